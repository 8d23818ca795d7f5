//! Shards of a run on schedulers: the ready files of docs/scale, run here without a cluster, give what one machine gives.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hdrhistogram::Histogram;
use rundir::{Calls, Latencies};
use serde_json::Value;

use crate::common::{
    CTXBENCH, Scratch, Server, Succeeds, as_root, ctxbench, has, lines, refused, stderr, suite, suite_run, text_of,
    write_executable,
};
use crate::verify::{counts, put_lines};

/// The shards of each ready file.
const SHARDS: usize = 3;

/// As many cells as shards.
fn three_cells() -> String {
    suite(
        "budget = 1\nrounds = 1\nprobes = false\npolicy = 'none'",
        &["direct", "memory", "sqlite"],
        &[("micro/stat", &["hot", "lukewarm"]), ("micro/create-1k", &["hot"])],
    )
}

/// A ready file.
fn ready(name: &str) -> String {
    text_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/scale"), name)
}

/// The settings that a test gives to the ready files instead of theirs.
struct Cluster {
    scratch: Scratch,
    suite: PathBuf,
    /// A directory with our binary, and with an `apptainer`.
    bin: PathBuf,
}

impl Cluster {
    fn new(scratch: Scratch) -> Self {
        let (suite, bin) = (scratch.path().join("suite.toml"), scratch.dir("bin"));
        fs::write(&suite, three_cells()).unwrap();
        std::os::unix::fs::symlink(CTXBENCH, bin.join("ctxbench")).unwrap();
        // It runs the program of `apptainer exec` in a mount namespace.
        let apptainer = "#!/bin/sh\n[ \"$1\" = exec ] || exit 64\nshift\n\
            while :; do case $1 in --fakeroot) shift ;; --bind | --pwd) shift 2 ;; --*) exit 64 ;; *) break ;; esac; done\n\
            [ \"$1\" = ctxbench.sif ] || exit 64\nshift\nexec unshare --mount \"$@\"\n";
        write_executable(&bin.join("apptainer"), apptainer);
        Self { scratch, suite, bin }
    }

    /// A command of a job's container, in a directory of its own.
    fn command(&self, name: &str, program: &str) -> (PathBuf, Command) {
        let dir = self.scratch.dir(name);
        let mut command = Command::new(program);
        let path = format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("SUITE", &self.suite).env("CTXBENCH_SCRATCH", &dir).current_dir(&dir);
        (dir, command)
    }

    fn merge(&self, shards: &[PathBuf], name: &str) -> PathBuf {
        let merged = self.scratch.path().join(name);
        ctxbench(["merge", "--out"]).arg(&merged).args(shards).succeeds();
        merged
    }
}

/// The sum of the histograms of each cell, arm and kind of call.
fn histograms(dirs: &[&Path]) -> BTreeMap<String, Histogram<u64>> {
    let mut sums: BTreeMap<String, Histogram<u64>> = BTreeMap::new();
    for cell in dirs.iter().flat_map(|dir| lines(dir, "cells.jsonl")) {
        for (kind, packed) in cell["latencies"].as_object().into_iter().flatten() {
            let name = format!("{} {} {} {kind}", cell["workload"], cell["state"], cell["arm"]);
            let latencies: Latencies = serde_json::from_value(packed.clone()).unwrap();
            let histogram = latencies.histogram().unwrap();
            match sums.get_mut(&name) {
                Some(sum) => sum.add(&histogram).unwrap(),
                None => drop(sums.insert(name, histogram)),
            }
        }
    }
    sums
}

/// Times with the percentiles and the sum of a pass, each with how often it occurs.
fn times(calls: &Calls) -> Vec<(u64, u64)> {
    let Calls { count, total_ns, p50_ns, p90_ns, max_ns } = *calls;
    let rank = |quantile: f64| ((quantile * count as f64).ceil() as u64).clamp(1, count);
    let (half, most) = (rank(0.5), rank(0.9));
    let mut all = vec![(p50_ns, 1), (p90_ns, u64::from(most > half)), (max_ns, u64::from(count > most))];
    let between = [(half, 1, p50_ns), (most - half, p50_ns, p90_ns), (count - most, p90_ns, max_ns)];
    let between = between.map(|(calls, low, high)| (calls.saturating_sub(1), low, high));
    let least = |(calls, low, _): &(u64, u64, u64)| calls * low;
    let known: u64 = all.iter().map(|(ns, calls)| ns * calls).chain(between.iter().map(least)).sum();
    // Percentiles are rounded up, so that they can be above the sum.
    let mut more = total_ns.saturating_sub(known);
    for (calls, low, high) in between.into_iter().filter(|(calls, ..)| *calls > 0) {
        let own = more.min(calls * (high - low));
        more -= own;
        all.extend([(low + own / calls, calls - own % calls), (low + own / calls + 1, own % calls)]);
    }
    all
}

/// Lets the passes of a shard be those of a quiet machine. On a busy one, they have no histograms.
fn make_quiet(shard: &Path) {
    let (mut samples, mut cells) = (lines(shard, "samples.jsonl"), lines(shard, "cells.jsonl"));
    for sample in &mut samples {
        sample["load"].as_object_mut().unwrap().remove("busy");
    }
    for cell in &mut cells {
        let fields = ["epoch", "workload", "state", "arm"];
        let of_cell = samples.iter().filter(|sample| fields.iter().all(|field| sample[field] == cell[field]));
        let timed = of_cell.filter(|sample| sample["warm_up"] != true && sample["outcome"] == "ok");
        let mut histograms: BTreeMap<&String, Histogram<u64>> = BTreeMap::new();
        for (kind, calls) in timed.flat_map(|sample| sample["calls"].as_object().unwrap()) {
            let histogram = histograms.entry(kind).or_insert_with(rundir::histogram);
            for (ns, count) in times(&serde_json::from_value(calls.clone()).unwrap()) {
                histogram.record_n(ns, count).unwrap();
            }
        }
        let packed = histograms.into_iter().map(|(kind, times)| (kind, Latencies::new(&times).unwrap()));
        cell["latencies"] = serde_json::to_value(packed.collect::<BTreeMap<_, _>>()).unwrap();
    }
    put_lines(shard, "samples.jsonl", &samples);
    put_lines(shard, "cells.jsonl", &cells);
}

/// The container of the Kubernetes job: its command, with the variables of the file replaced in it as Kubernetes does.
fn pod(cluster: &Cluster, index: usize, given: &[(&str, &str)], server: &Server) -> Command {
    let job: Value = yaml_serde::from_str(&ready("kubernetes.yaml")).unwrap();
    let spec = &job["spec"];
    assert_eq!((&spec["completionMode"], &spec["completions"]), (&"Indexed".into(), &SHARDS.into()));
    assert_eq!(spec["parallelism"], spec["completions"]);
    let container = &spec["template"]["spec"]["containers"][0];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let variables = container["env"].as_array().unwrap().iter();
    let mut variables: BTreeMap<String, String> =
        variables.map(|one| (text(&one["name"]), text(&one["value"]))).collect();
    for (name, value) in given {
        assert!(variables.insert((*name).to_owned(), (*value).to_owned()).is_some(), "{name}");
    }
    let words = ["command", "args"].iter().flat_map(|name| container[name].as_array().unwrap());
    let words: Vec<String> = words
        .map(|word| variables.iter().fold(text(word), |word, (name, value)| word.replace(&format!("$({name})"), value)))
        .collect();
    let (_, mut command) = cluster.command(&format!("pod-{index}"), "unshare");
    let server = &server.announcement;
    crate::common::set_server(&mut command, &server.endpoint, &server.access_key, &server.secret_key);
    variables.remove("CTXBENCH_SCRATCH");
    command.arg("--mount").args(words).envs(variables).env("JOB_COMPLETION_INDEX", index.to_string());
    command
}

#[test]
fn the_ready_file_of_each_scheduler_measures_what_one_machine_measures() {
    let Some(scratch) = as_root() else { return };
    let whole = scratch.path().join("whole");
    suite_run(&scratch, &three_cells(), &whole).succeeds();
    let expected = counts(&whole);
    let cluster = Cluster::new(scratch);

    // Slurm: the script itself, with a directory that the nodes share.
    let results = cluster.scratch.dir("slurm");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/scale/slurm.sh");
    has(&ready("slurm.sh"), &["#SBATCH --array=0-2\n"]);
    for index in 0..SHARDS {
        let (dir, mut task) = cluster.command(&format!("task-{index}"), "bash");
        task.arg(&script).env("RESULTS", &results).env("SCRATCH_DIR", &dir);
        task.env("SLURM_ARRAY_TASK_ID", index.to_string()).env("SLURM_ARRAY_TASK_COUNT", SHARDS.to_string());
        task.succeeds();
    }
    let parts = [0, 1, 2].map(|index| results.join(format!("part-{index}")));
    parts.iter().for_each(|part| make_quiet(part));
    let merged = cluster.merge(&parts, "slurm-merged");
    assert_eq!(counts(&merged), expected);
    let [first, second, third] = parts.each_ref().map(PathBuf::as_path);
    let sums = histograms(&[first, second, third]);
    // Each cell and arm has one for each kind of its calls.
    assert!(sums.len() >= expected.len(), "{:?} of {:?}", sums.keys(), expected.keys());
    assert!(histograms(&[merged.as_path()]) == sums, "the merged histograms are not the sum");
    let of_part = |part: &Path| fs::read_dir(part.join("hist")).unwrap().count();
    assert_eq!(of_part(&merged), [first, second, third].map(of_part).into_iter().sum::<usize>());

    // GitHub: the steps' commands, with the expressions of the matrix replaced.
    let workflow: Value = yaml_serde::from_str(&ready("github.yml")).unwrap();
    let jobs = &workflow["jobs"];
    let matrix = jobs["shard"]["strategy"]["matrix"]["shard"].as_array().unwrap();
    assert_eq!(matrix.len(), SHARDS);
    let script = |job: &str, named: &str| {
        let steps = jobs[job]["steps"].as_array().unwrap();
        let step = steps.iter().find(|step| step["name"] == named).unwrap();
        step["run"].as_str().unwrap().to_owned()
    };
    let dir = cluster.scratch.dir("github");
    let step = |text: &str| {
        assert!(!text.contains("${{"), "{text}");
        let (_, mut shell) = cluster.command("github", "unshare");
        shell.args(["--mount", "bash", "-euc", text]).env("SEED", workflow["env"]["SEED"].as_str().unwrap());
        shell.succeeds();
    };
    for shard in matrix {
        let text = script("shard", "Measure a shard").replace("${{ matrix.shard }}", &shard.to_string());
        step(&text.replace("${{ strategy.job-total }}", &matrix.len().to_string()));
    }
    step(&script("merge", "Merge the shards"));
    assert_eq!(counts(&dir.join("runs/whole")), expected);

    // Kubernetes: the container's command, over a bucket.
    let server = Server::start(&cluster.scratch.dir("server"), &[]);
    let address = format!("s3://{}/runs/seed-7", server.announcement.bucket);
    let suite = cluster.suite.to_str().unwrap().to_owned();
    let given = [("SUITE", suite.as_str()), ("OUT", &address)];
    let downloads = cluster.scratch.dir("downloads");
    let merge = |name: &str| {
        let mut merge = server.command(&["merge", &address, "--out"]);
        merge.arg(cluster.scratch.path().join(name)).env("TMPDIR", &downloads);
        merge
    };
    for index in 0..SHARDS {
        // Before the last shard is there, nothing is merged.
        let early = merge("early").output().unwrap();
        assert!(!early.status.success());
        let missing = if index == 0 { "there is no shard" } else { "2/3 is missing" };
        has(&stderr(&early), &[missing]);
        let output = pod(&cluster, index, &given, &server).succeeds();
        has(&stderr(&output), &[&format!("shard {index}/3, by JOB_COMPLETION_INDEX"), "its records are in s3://"]);
    }
    let output = merge("k8s-merged").succeeds();
    assert!(!stderr(&output).contains("another machine"), "{}", stderr(&output));
    let merged = cluster.scratch.path().join("k8s-merged");
    assert_eq!(counts(&merged), expected);
    ctxbench(["verify"]).arg(&merged).succeeds();

    // A pod that is started again is refused before it measures.
    let mut again = pod(&cluster, 0, &given, &server);
    let runs = cluster.scratch.path().join("pod-0/results");
    let before = fs::read_dir(&runs).unwrap().count();
    let output = again.output().unwrap();
    assert!(!output.status.success());
    has(&stderr(&output), &["shard 0/3 is already there", "another prefix"]);
    assert_eq!(fs::read_dir(&runs).unwrap().count(), before);
    assert_eq!(fs::read_dir(&downloads).unwrap().count(), 0, "downloaded shards are left behind");
}

#[test]
fn a_bucket_takes_only_shards() {
    has(&refused(&["run", "--out", "s3://results/a"]), &["takes the shards of a run", "--shard 0/1"]);
    has(&refused(&["run", "--out", "s3://results"]), &["no usable prefix"]);
    has(&refused(&["run", "--out", "gs://results/a"]), &["local directory, not to gs://"]);
    has(&refused(&["reproduce", "--out", "s3://results/a"]), &["takes shards only"]);
    has(&refused(&["merge", "s3://results", "--out", "results/none"]), &["no usable prefix"]);
}
