//! `ctxbench reproduce`: measures one plan several times and reports contradictions.

use std::borrow::Cow;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use backends::registry::Registry;
use clap::Args;
use reports::render::{columns, table};
use rundir::Run;
use schemars::JsonSchema;
use serde::Serialize;
use verdicts::reproduction::{ArmReproduction, Reproduction, reproduction};

use super::busy::DetachedLoad;
use super::format::ScreenFormat;
use super::run::{Options, RunOutcome, RunPlace};
use crate::evidence::check_whole;
use crate::signals::end_process_at_signals;
use trial::interrupt::Interrupt;

/// How much the planted arms are slowed down, in percent.
const PLANTED: [u32; 3] = [2, 5, 10];

/// Repeat one plan, and report where the runs contradict each other.
///
/// Each run has a different seed and additional arms: an unchanged second copy of FUSE over memory, and three copies
/// whose calls are lengthened by 2, 5 and 10 %. In a run without that backend, calls of `direct` are lengthened
/// instead. For each arm, the table counts five kinds of cells: the 99 % intervals of two runs do not overlap; one run says
/// "better" and another "worse"; the verdict on a planted slowdown or on the identical arms is wrong; there is no verdict;
/// and the times are too short to matter. With --load, the last run is made under load: busy loops and a process that writes to the
/// disk. Its intervals are widened by the largest disturbance that the load can cause, and its verdicts must not
/// contradict those of a quiet run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench reproduce --workload micro/stat --workload micro/create-1k --backend sqlite --budget 30
  ctxbench reproduce --runs 3 --load

Exit codes: 0 no contradiction, 1 at least one, or a run failed, 130 interrupted.")]
pub struct Reproduce {
    /// Number of runs.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=100))]
    runs: u32,
    /// Make the last run under load: a busy loop for each processor, and a process that writes to the disk.
    #[arg(long)]
    load: bool,
    /// Compare these existing runs, and measure nothing.
    #[arg(long, value_name = "DIR", num_args = 2..)]
    of: Vec<PathBuf>,
    /// How to print the result. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
    #[command(flatten)]
    options: Options,
}

/// What `reproduce` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct PrintedReproduction<'a> {
    /// The directories of the runs.
    runs: Vec<Cow<'a, str>>,
    arms: &'a [ArmReproduction],
    /// The number of a run, from 1, and a note on it.
    notes: &'a [(usize, String)],
}

impl Reproduce {
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        let dirs = if self.of.is_empty() {
            match self.measure(registry)? {
                Some(dirs) => {
                    registry.services().stop();
                    dirs
                }
                None => return Ok(ExitCode::from(130)),
            }
        } else {
            self.of.clone()
        };
        end_process_at_signals().context("setting up signal handling")?;
        let runs: Result<Vec<Run>, _> = dirs.iter().map(|dir| Run::read(dir)).collect();
        let runs = runs?;
        runs.iter().try_for_each(check_whole)?;
        let found = match reproduction(&runs) {
            Ok(found) => found,
            Err(problem) => anyhow::bail!("{problem}"),
        };
        let text = || dirs.iter().fold(page(&found), |text, dir| text + &format!("run: {}\n", dir.display()));
        let runs = dirs.iter().map(|dir| dir.to_string_lossy()).collect();
        let document = PrintedReproduction { runs, arms: &found.arms, notes: &found.notes };
        self.format.print(text, &document)?;
        let is_contradicted = found.arms.iter().any(|arm| arm.contradicting > 0);
        Ok(ExitCode::from(u8::from(is_contradicted)))
    }

    /// Measures the runs; `None` if the user interrupted them.
    fn measure(&self, registry: &Registry) -> anyhow::Result<Option<Vec<PathBuf>>> {
        let interrupt = Interrupt::catch().context("setting up signal handling")?;
        let mut dirs = Vec::new();
        for number in 0..self.runs {
            let mut options = self.options.clone();
            options.slowed = PLANTED.to_vec();
            options.no_probes = true;
            options.no_model_files = true;
            options.seed = self.options.seed.map(|seed| seed + u64::from(number));
            let results = match &self.options.out {
                Some(RunPlace::Directory(dir)) => dir,
                Some(RunPlace::Bucket(address)) => {
                    bail!("{address} takes shards only\n  fix: give a directory with --out")
                }
                None => &self.options.results,
            };
            options.out = Some(RunPlace::Directory(results.join(format!(
                "{}-reproduce-{}",
                jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S"),
                number + 1
            ))));
            let is_loaded = self.load && number + 1 == self.runs;
            eprintln!("run {} of {}{}", number + 1, self.runs, if is_loaded { ", under load" } else { "" });
            let load = is_loaded.then(DetachedLoad::start).transpose()?;
            let measured = options.measure(registry, &interrupt, None)?;
            drop(load);
            match measured {
                RunOutcome::Complete(dir) => dirs.push(dir),
                RunOutcome::Interrupted(dir) => {
                    eprintln!("interrupted; the part of run {} is in {}", number + 1, dir.display());
                    say_interrupted(&dirs);
                    return Ok(None);
                }
                RunOutcome::NotBegun => {
                    say_interrupted(&dirs);
                    return Ok(None);
                }
            }
        }
        Ok(Some(dirs))
    }
}

/// Says what an interrupted command leaves.
fn say_interrupted(complete: &[PathBuf]) {
    let dirs: Vec<String> = complete.iter().map(|dir| dir.display().to_string()).collect();
    match dirs.len() {
        0 => eprintln!("interrupted; no run is complete, so nothing can be compared"),
        1 => eprintln!("interrupted; one run is complete, and two can be compared: {}", dirs[0]),
        _ => eprintln!("interrupted; compare the complete runs with `ctxbench reproduce --of {}`", dirs.join(" ")),
    }
}

fn page(found: &Reproduction) -> String {
    let rows = found.arms.iter().map(|arm| {
        vec![
            arm.arm.clone(),
            format!("{} of {}", arm.disjoint, arm.intervals),
            format!("{} of {}", arm.contradicting, arm.verdicts),
            format!("{} of {}", arm.called_different, arm.judged),
            format!("{} of {}", arm.undecided, arm.judged),
            format!("{} of {}", arm.below_what_matters, arm.judged),
        ]
    });
    let head = columns(
        "arm | disjoint 99 % intervals | contradicting verdicts | called different | undecided | below what matters",
    );
    let mut text = table(&head, &rows.collect::<Vec<_>>());
    for (run, note) in &found.notes {
        text += &format!("run {run}: {note}\n");
    }
    text += "\"called different\": the interval excludes 1. For an identical arm, that is a false verdict; for an arm slowed by N %, the planted slowdown is found.\n";
    text
}
