#!/usr/bin/env bash
# Measures a suite in a job array of Slurm: each task measures one shard on a node of its own, into a shared directory.
# A test of this repository runs this script; it has not run on a cluster.
#
#   make packages                                    # builds the image, target/packages/ctxbench-*-image-amd64.tar.gz
#   apptainer build ctxbench.sif docker-archive:ctxbench-0.1.0-image-amd64.tar.gz
#   sbatch docs/scale/slurm.sh                       # or: RESULTS=s3://bucket/run sbatch docs/scale/slurm.sh
#   ctxbench merge results/seed-7/part-* --out results/seed-7/whole     # when all tasks are complete
#
# The shard is SLURM_ARRAY_TASK_ID of SLURM_ARRAY_TASK_COUNT, which Apptainer hands on. The number of shards is that of --array.
#SBATCH --job-name=ctxbench
#SBATCH --array=0-2
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=01:00:00
set -euo pipefail

suite=${SUITE:-default}
seed=${SEED:-7}
image=${IMAGE:-ctxbench.sif}
# A directory that all nodes share, or s3://BUCKET/PREFIX with the keys in the environment.
results=${RESULTS:-results/seed-$seed}
# A disk of the node: a shared file system would be measured instead.
scratch=${SCRATCH_DIR:-/var/tmp}

case $results in
    s3://*) out=$results ;;
    *)
        mkdir -p "$results"
        out=$results/part-$SLURM_ARRAY_TASK_ID
        ;;
esac

# --fakeroot: root in a namespace of its own may mount FUSE; the node needs /dev/fuse, and no daemon of ours. It has no loop
# devices and cannot empty the kernel's caches: the workspaces are in a plain directory, cells with empty caches are left
# out, and the report says both.
apptainer exec --fakeroot --bind "$scratch" --bind "$PWD" --pwd "$PWD" "$image" \
    ctxbench run --suite "$suite" --seed "$seed" --scratch-dir "$scratch" --out "$out"
