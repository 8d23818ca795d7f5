//! `ctxbench merge`: makes one run of the shards of a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use rundir::{MergedShard, Plan, RecordCounts, Run, Shard, Writer};
use serde_json::Value;
use tempfile::TempDir;
use verdicts::compare::machine_differences;

use super::format::ScreenFormat;
use super::run::{conclude, shard_option};
use crate::evidence::PriceList;
use crate::history::check_history;
use crate::progress_line::ProgressLine;
use crate::reporting::ReportInputs;
use crate::results_bucket::{ResultsAddress, ResultsBucket};

/// Merge the shards of a plan into one run.
///
/// The shards are the directories of `ctxbench run --shard 0/N` to `N-1/N`, made with one plan, seed and build, on one or
/// several machines. The merged run has all their records, with new numbers of epochs and passes only: its histograms
/// and counts are those of the shards. `report`, `decide`, `claims`, `compare` and `verify` take it like any other run. Every cell was measured on one machine, with its own `direct` pair. If the shards ran on different machines, every
/// output says so first, and states the A/A check of each machine.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench run --seed 7 --shard 0/2 --out results/part-0
  ctxbench run --seed 7 --shard 1/2 --out results/part-1
  ctxbench merge results/part-0 results/part-1 --out results/whole
  ctxbench merge s3://bucket/run --out results/whole      # all shards that `ctxbench run --out s3://bucket/run` uploaded

Exit codes: 0 merged; 1 a shard is missing, incomplete, given twice, or of another plan, seed or build.")]
pub struct Merge {
    /// The directories of all shards, in any order. s3://BUCKET/PREFIX stands for the shards that `ctxbench run --out` has
    /// uploaded there; they are downloaded into $TMPDIR, and removed at the end.
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// The directory of the merged run, which must not contain a run yet.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How to print the answer at the end. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
    #[command(flatten)]
    prices: PriceList,
}

impl Merge {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut downloads = Vec::new();
        let shards = Self::shards(&self.dirs(&mut downloads)?)?;
        for warning in other_machines(&shards) {
            eprintln!("warning: {warning}");
        }
        write(&shards, &self.out).with_context(|| format!("merging into {}", self.out.display()))?;
        drop(shards);
        for directory in downloads {
            directory.close().context("removing the downloaded shards")?;
        }
        let report_inputs = ReportInputs::of(&self.out, &[], None, &self.prices)?;
        conclude(&report_inputs, self.format)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The directories of the shards. Those in a bucket are downloaded into a new one of `downloads`.
    fn dirs(&self, downloads: &mut Vec<TempDir>) -> anyhow::Result<Vec<PathBuf>> {
        let mut dirs = Vec::new();
        for run in &self.runs {
            let Some(address) = ResultsAddress::of_argument(run) else {
                dirs.push(run.clone());
                continue;
            };
            let bucket = ResultsBucket::new(&address.map_err(anyhow::Error::msg)?)?;
            let into = tempfile::Builder::new().prefix("ctxbench-merge-").tempdir();
            let into = into.context("creating a temporary directory")?;
            dirs.extend(bucket.download(into.path())?);
            downloads.push(into);
        }
        Ok(dirs)
    }

    /// All shards of one plan, in their order.
    fn shards(dirs: &[PathBuf]) -> anyhow::Result<Vec<Run>> {
        let line = ProgressLine::still();
        let mut places = BTreeSet::new();
        let mut shards: BTreeMap<u32, Run> = BTreeMap::new();
        let mut of: Option<(&PathBuf, u32)> = None;
        for (done, dir) in dirs.iter().enumerate() {
            line.step(done, dirs.len(), &format!("reading {}", dir.display()));
            let place = dir.canonicalize().with_context(|| dir.display().to_string())?;
            if !places.insert(place) {
                bail!("{}: the same run twice (name it once)", dir.display());
            }
            let run = Run::read(dir)?;
            let Some(shard) = run.plan.shard else {
                bail!(
                    "{}: not a shard: it has all cells of its plan\n  fix: name runs that `ctxbench run --shard I/N` made",
                    dir.display()
                );
            };
            if let Some((other, known)) = of.filter(|(_, known)| *known != shard.of) {
                bail!(
                    "{} is shard {shard}, and {} is one of {known} shards\n  fix: name the shards of one run",
                    dir.display(),
                    other.display()
                );
            }
            of = Some((dir, shard.of));
            if let Some(other) = shards.get(&shard.index) {
                bail!(
                    "{} and {} are both shard {shard}\n  fix: name each shard once",
                    other.dir.display(),
                    dir.display()
                );
            }
            shards.insert(shard.index, run);
        }
        let of = of.map_or(0, |(_, of)| of);
        let missing = (0..of).filter(|index| !shards.contains_key(index));
        let missing = missing.map(|index| Shard { index, of }.to_string());
        let missing: Vec<String> = missing.take(MOST_NAMED).collect();
        if !missing.is_empty() {
            bail!(
                "shard {} is missing: {} of {of} are given\n  fix: name all shards of the run",
                missing.join(", "),
                shards.len()
            );
        }
        let shards: Vec<Run> = shards.into_values().collect();
        for other in &shards[1..] {
            if let Some(difference) = difference(&shards[0], other) {
                bail!(
                    "{} is a shard of another run than {}: {difference}\n  fix: make all shards with one build, the same options and the same --seed",
                    other.dir.display(),
                    shards[0].dir.display()
                );
            }
        }
        for (done, run) in shards.iter().enumerate() {
            line.step(done, shards.len(), &format!("checking {}", run.dir.display()));
            if let Some(problem) = check_history(run).first() {
                bail!("{}: its records are not those of a complete shard: {problem}", run.dir.display());
            }
        }
        Ok(shards)
    }
}

/// The most missing shards that a message names.
const MOST_NAMED: usize = 10;

/// The first difference between the plans, builds or policies of two shards. The kernel may differ: it is a property of the
/// machine.
fn difference(one: &Run, other: &Run) -> Option<String> {
    let plan = |run: &Run| {
        let mut plan = run.plan.clone();
        plan.created = String::new();
        plan.shard = None;
        // It names the directory of the scratch, which may be another one on each machine.
        plan.command = String::new();
        for arm in &mut plan.arms {
            arm.backend.versions.remove("kernel");
        }
        serde_json::to_value(plan).unwrap_or_default()
    };
    let builds = [one, other].map(|run| Value::from(run.environment.binary_sha256.clone()));
    let policies = [one, other].map(|run| Value::from(run.policy.clone()));
    first_difference("plan", &plan(one), &plan(other))
        .or_else(|| first_difference("SHA-256 of the binary", &builds[0], &builds[1]))
        .or_else(|| first_difference("policy", &policies[0], &policies[1]))
        .or_else(|| {
            let differ = one.contexts != other.contexts;
            differ.then(|| "other contexts of the sessions".to_owned())
        })
}

/// The first place at which two values differ, with both of them.
fn first_difference(place: &str, one: &Value, other: &Value) -> Option<String> {
    match (one, other) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let names = ours.keys().chain(theirs.keys());
            let mut found = names.filter_map(|name| {
                let [ours, theirs] = [ours, theirs].map(|table| table.get(name).unwrap_or(&Value::Null));
                first_difference(&format!("{place}.{name}"), ours, theirs)
            });
            found.next()
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            let mut items = ours.iter().zip(theirs).enumerate();
            items.find_map(|(at, (ours, theirs))| first_difference(&format!("{place}[{at}]"), ours, theirs))
        }
        _ => (one != other).then(|| {
            let short = |value: &Value| value.to_string().chars().take(80).collect::<String>();
            format!("{place}: {}, {}", short(other), short(one))
        }),
    }
}

/// Where a shard ran on another machine than the first one.
fn other_machines(shards: &[Run]) -> Vec<String> {
    let others = shards.iter().skip(1).filter_map(|run| {
        let found = machine_differences(&shards[0], run);
        (!found.is_empty()).then(|| {
            format!(
                "{} ran on another machine than {}: {}; every output of the merged run says so",
                run.dir.display(),
                shards[0].dir.display(),
                found.join("; ")
            )
        })
    });
    others.collect()
}

/// The plan of the merged run.
fn merged_plan(shards: &[Run]) -> Plan {
    let mut plan = shards[0].plan.clone();
    if let Some(shard) = plan.shard.take() {
        plan.command = plan.command.replace(&format!(" {}", shard_option(&shard)), "");
    }
    let mut first_epoch = 0;
    for run in shards {
        plan.merged.push(MergedShard {
            created: run.plan.created.clone(),
            machine: run.environment.machine(),
            first_epoch,
        });
        first_epoch += run.epochs_begun();
    }
    plan
}

/// Writes the merged run.
fn write(shards: &[Run], out: &Path) -> anyhow::Result<()> {
    let line = ProgressLine::still();
    let (plan, first) = (merged_plan(shards), &shards[0]);
    let policy = first.policy.as_deref();
    let writer = Writer::create(out, &plan, &first.environment, policy, &first.contexts)?;
    let mut before = RecordCounts::default();
    for (done, run) in shards.iter().enumerate() {
        line.step(done, shards.len(), &format!("merging {}", run.dir.display()));
        writer.append(run, &mut before)?;
    }
    Ok(())
}
