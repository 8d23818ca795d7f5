//! `ctxbench calibrate`: the harness's own overhead, held against fio.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use backends::backend::{self, Backend, Site};
use backends::cpu;
use clap::Args;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use reports::render::{table, time};
use stats::mean_with_interval;
use workloads::catalogue;
use workloads::definition::{CacheState, Workload};

use crate::clock::Monotonic;
use crate::interrupt::Interrupt;
use crate::pass::{Counting, Expectations, Hosts, Pass, Passed, fill, start_model, warm_up};
use crate::replay::Scratch;
use crate::scratch::ScratchDir;
use crate::supervise::supervise;

/// The workload that both sides run.
const WORKLOAD: &str = "micro/pread-4k";

/// How much longer than fio's the harness's figure may be.
const ALLOWED: f64 = 1.05;

/// Time a 4 KiB pread by this harness and by fio, in turns, and compare.
///
/// Both read random pages of a 4 MiB file in the page cache, on the same processor, one call after
/// the other; fio by its psync engine. What is compared is the median completion time of a call.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 within 5 % of fio, 1 not, or fio is missing.")]
pub struct Calibrate {
    /// How often each side runs.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(8..))]
    rounds: u32,
    /// Where the file lies [default: $CTXBENCH_SCRATCH or /var/tmp].
    #[arg(long, value_name = "DIR")]
    scratch: Option<std::path::PathBuf>,
    /// What decides who goes first in each round.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Calibrate {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let interrupt = Interrupt::catch().context("setting up signal handling")?;
        let scratch = ScratchDir::make(self.scratch.as_deref())?;
        let workload = Arc::new(catalogue::workload(WORKLOAD)?);
        let direct: Arc<dyn Backend> = backend::find("direct")?.into();
        let (_, content) = workload
            .script
            .files
            .first()
            .context("the workload has a file")?;
        let fio_file = scratch.path().join("fio");
        std::fs::write(&fio_file, content)?;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut rows = Vec::new();
        let mut logs = Vec::new();
        for round in 0..self.rounds {
            let mut harness_first = [true, false];
            harness_first.shuffle(&mut rng);
            let (mut ours, mut theirs) = (0.0, 0.0);
            for is_harness in harness_first {
                if interrupt.is_set() {
                    return Ok(ExitCode::from(130));
                }
                if is_harness {
                    let dir = scratch.path().join(format!("h{round}"));
                    std::fs::create_dir(&dir)?;
                    ours = by_harness(&direct, &workload, &dir, &interrupt)?;
                } else {
                    theirs = by_fio(&fio_file, workload.script.calls.len())?;
                }
            }
            logs.push((ours / theirs).ln());
            rows.push(vec![
                round.to_string(),
                time(ours),
                time(theirs),
                format!("{:.3}", ours / theirs),
            ]);
        }
        print!(
            "{}",
            table(&["round", "ctxbench", "fio psync", "ratio"], &rows)
        );
        let (mean, interval) = mean_with_interval(&logs).context("no round was made")?;
        let (mean, interval) = (mean.exp(), interval.map(|logs| logs.map(f64::exp)));
        let is_within = interval.is_some_and(|interval| interval.high <= ALLOWED);
        if let Some(interval) = interval {
            println!(
                "\nmedian 4 KiB pread, ctxbench over fio: {mean:.3} [{:.3}, {:.3}] (99 % interval over {} rounds); {}",
                interval.low,
                interval.high,
                self.rounds,
                if is_within {
                    "the harness adds at most 5 % to what fio reports"
                } else {
                    "NOT shown to be within 5 % of what fio reports"
                }
            );
        }
        Ok(ExitCode::from(u8::from(!is_within)))
    }
}

/// The median in nanoseconds, through the same code that measures every pass.
fn by_harness(
    direct: &Arc<dyn Backend>,
    workload: &Arc<Workload>,
    dir: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<f64> {
    let site = Site {
        dir: dir.to_owned(),
        program: std::env::current_exe()?,
        patience: Duration::from_secs(20),
        cpu: processor()?,
        allow_other: false,
    };
    let mut hosts = Hosts::one(direct.open(&site)?);
    let (direct, workload, interrupted) =
        (direct.describe(), Arc::clone(workload), interrupt.clone());
    let passed = supervise(interrupt, move |pulse| {
        if let Some(cpu) = site.cpu {
            cpu::stay_on(cpu)?;
        }
        let limit = Duration::from_secs(10);
        let script = &workload.script;
        let mut scratch = Scratch::new();
        let root = hosts.first.root().to_owned();
        fill(script, &root, pulse, limit, &mut scratch)?;
        let mut model = start_model(script, &direct);
        warm_up(
            script,
            &mut model,
            &root,
            pulse,
            limit,
            &mut scratch,
            |_| false,
        )?;
        let expectations = Expectations::new(script, CacheState::Hot, &direct, false);
        let pass = Pass {
            expectations: &expectations,
            backend: &direct,
            has_bucket: false,
            state: CacheState::Hot,
            slowed_percent: 0,
            proves_state: true,
            counting: Counting::Never,
            reads_back: false,
            call_timeout: limit,
            interrupt: &interrupted,
        };
        let clock = Monotonic::start();
        Ok(pass.run(&mut hosts, pulse, &clock, &mut scratch, &mut || {}))
    });
    let passed: std::io::Result<Passed> = match passed {
        Ok(passed) => passed,
        Err(_) => bail!("the harness's own replay did not come back"),
    };
    let passed = passed.context("preparing the harness's own replay")?;
    if let Some((outcome, reason)) = passed.verdict {
        bail!("the harness's own replay ended {outcome}: {reason}");
    }
    let calls = passed.calls.get("pread").context("no pread was timed")?;
    std::fs::remove_dir_all(dir)?;
    Ok(calls.p50_ns as f64)
}

/// The processor that both sides run on: the last one, as the first often has the interrupts.
fn processor() -> std::io::Result<Option<usize>> {
    Ok(cpu::allowed()?.last().copied())
}

fn by_fio(file: &Path, calls: usize) -> anyhow::Result<f64> {
    let mut command = Command::new("fio");
    command
        .args([
            "--name=pread",
            "--ioengine=psync",
            "--rw=randread",
            "--bs=4k",
        ])
        .args(["--invalidate=0", "--norandommap", "--output-format=json"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--number_ios={calls}"));
    if let Some(cpu) = processor()? {
        command.arg(format!("--cpus_allowed={cpu}"));
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("fio is not installed\n  fix: sudo apt-get install fio");
        }
        Err(error) => return Err(error).context("running fio"),
    };
    if !output.status.success() {
        bail!("fio: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("reading fio's report")?;
    let median = &report["jobs"][0]["read"]["clat_ns"]["percentile"]["50.000000"];
    median
        .as_f64()
        .context("fio's report has no median completion latency")
}
