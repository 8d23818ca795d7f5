//! `ctxbench load`: how many calls several processes get out of one file system, all at once.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use backends::backend::{self, Site, Workspace};
use clap::Args;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use reports::render::{count, table};
use stats::mean_with_interval;

use super::load_worker::FILES;
use crate::interrupt::Interrupt;
use crate::scratch::ScratchDir;

/// How long a daemon may take to start or to stop.
const DAEMON_PATIENCE: Duration = Duration::from_secs(20);

/// Have several processes read and write small files at once, and compare file systems.
///
/// Each process has 100 files in a directory of its own, and takes one at random again and again: it
/// opens it, reads or overwrites all of it, and closes it. A closed loop: what is compared is how much
/// all of them get done, not how long a call takes. The file systems take turns, `direct` among them, in
/// an order that the seed decides anew for every round; ratios are of the same round.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench load                             # our backends against a plain directory
  ctxbench load sqlite --processes 2 --writes 50
  ctxbench load --path /mnt/theirs          # any directory; scratch directories are made in it

Exit codes: 0 all rounds ended well, 1 not.")]
pub struct Load {
    /// Only these backends.
    #[arg(value_name = "BACKEND")]
    backends: Vec<String>,
    /// This directory, too, whatever file system it is on; can be repeated.
    #[arg(long, value_name = "DIR")]
    path: Vec<PathBuf>,
    /// Processes at once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,
    /// Out of 100 calls, how many write.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=100))]
    writes: u32,
    /// Bytes in each file.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    bytes: u32,
    /// Open each file once, and not for every call.
    #[arg(long)]
    keep_open: bool,
    /// How long each file system has its turn, in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// How often each has its turn; 8 at least for intervals.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// What decides who goes first, and which files are taken.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where workspaces live [default: $CTXBENCH_SCRATCH or /var/tmp].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

/// A file system under load.
struct Arm {
    name: String,
    dir: PathBuf,
    /// Calls a second, by round.
    rates: Vec<f64>,
    /// The share of all processors' time that was not idle, by round.
    busy: Vec<f64>,
    workspace: Option<Box<dyn Workspace>>,
}

impl Load {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let interrupt = Interrupt::catch().context("setting up signal handling")?;
        let scratch = ScratchDir::make(self.scratch.as_deref())?;
        // The directories made in other people's file systems go when this does.
        let mut foreign = Vec::new();
        let mut arms = self.arms(scratch.path(), &mut foreign)?;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        for round in 0..self.rounds {
            let mut order: Vec<usize> = (0..arms.len()).collect();
            order.shuffle(&mut rng);
            for at in order {
                let Some((rate, busy)) = self.turn(&arms[at], &interrupt)? else {
                    return Ok(ExitCode::from(130));
                };
                arms[at].rates.push(rate);
                arms[at].busy.push(busy);
            }
            let rates = arms.iter().map(|arm| {
                let rate = arm.rates.last().copied().unwrap_or(0.0);
                format!("{} {}/s", arm.name, count(rate as u64))
            });
            let rates: Vec<String> = rates.collect();
            eprintln!(
                "round {} of {}: {}",
                round + 1,
                self.rounds,
                rates.join(", ")
            );
        }
        print!("{}", self.page(&arms));
        for arm in arms {
            if let Some(workspace) = arm.workspace {
                workspace
                    .close()
                    .with_context(|| format!("closing {}", arm.name))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Opens what is to be compared, `direct` first.
    fn arms(
        &self,
        scratch: &Path,
        foreign: &mut Vec<tempfile::TempDir>,
    ) -> anyhow::Result<Vec<Arm>> {
        let mut names = vec!["direct".to_owned()];
        if self.backends.is_empty() && self.path.is_empty() {
            let all = backend::registry().into_iter();
            let mountable = all.filter(|backend| !backend.is_tools_only());
            let hold_data = mountable.map(|backend| backend.describe());
            let hold_data = hold_data
                .filter(|described| described.capabilities.holds_data && !described.needs_model());
            names.extend(hold_data.map(|described| described.name));
        } else {
            names.extend(self.backends.iter().cloned());
        }
        let mut seen = Vec::new();
        names.retain(|name| {
            let is_new = !seen.contains(name);
            seen.push(name.clone());
            is_new
        });
        let mut arms = Vec::new();
        for name in names {
            let backend = backend::find(&name)?;
            if !backend.describe().capabilities.holds_data {
                bail!("`{name}` holds no data: there is nothing to read back");
            }
            if backend.is_tools_only() {
                bail!("`{name}` is reached by tool calls only: processes cannot share it");
            }
            if let Err(unavailable) = backend.receipt() {
                eprintln!("{name} is left out: {unavailable}");
                continue;
            }
            let site = Site {
                dir: scratch.join(&name),
                program: std::env::current_exe()?,
                patience: DAEMON_PATIENCE,
                cpu: None,
                allow_other: false,
            };
            std::fs::create_dir(&site.dir)?;
            let workspace = backend
                .open(&site)
                .with_context(|| format!("opening {name}"))?;
            arms.push(Arm {
                name,
                dir: workspace.root().to_owned(),
                rates: Vec::new(),
                busy: Vec::new(),
                workspace: Some(workspace),
            });
        }
        for path in &self.path {
            let dir = tempfile::Builder::new()
                .prefix("ctxbench-load-")
                .tempdir_in(path)
                .with_context(|| format!("making a directory in {}", path.display()))?;
            arms.push(Arm {
                name: path.display().to_string(),
                dir: dir.path().to_owned(),
                rates: Vec::new(),
                busy: Vec::new(),
                workspace: None,
            });
            foreign.push(dir);
        }
        Ok(arms)
    }

    /// Calls a second and the share of processor time used, for one turn; `None` if interrupted.
    fn turn(&self, arm: &Arm, interrupt: &Interrupt) -> anyhow::Result<Option<(f64, f64)>> {
        let mut workers = (0..self.processes)
            .map(|number| Worker::start(self, &arm.dir.join(number.to_string()), number))
            .collect::<anyhow::Result<Vec<_>>>()?;
        for worker in &mut workers {
            worker
                .expect_line()
                .with_context(|| format!("{}: preparing files", arm.name))?;
        }
        if interrupt.is_set() {
            return Ok(None);
        }
        let before = processor_time()?;
        let started = Instant::now();
        for worker in &mut workers {
            worker.go()?;
        }
        let mut calls = 0;
        for worker in &mut workers {
            let line = worker.expect_line();
            if interrupt.is_set() {
                return Ok(None);
            }
            let line = line.with_context(|| format!("{}: under load", arm.name))?;
            calls += line.trim().parse::<u64>().context("a worker's count")?;
        }
        let took = started.elapsed().as_secs_f64();
        let after = processor_time()?;
        let busy = (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64;
        Ok(Some((calls as f64 / took, busy)))
    }

    fn page(&self, arms: &[Arm]) -> String {
        let Some((direct, _)) = arms.split_first() else {
            return String::new();
        };
        let rows: Vec<Vec<String>> = arms
            .iter()
            .map(|arm| {
                let logs = arm.rates.iter().zip(&direct.rates);
                let logs: Vec<f64> = logs.map(|(rate, base)| (rate / base).ln()).collect();
                let ratio = mean(&logs).exp();
                let interval = mean_with_interval(&logs).and_then(|(_, interval)| interval);
                let interval = interval.map(|logs| logs.map(f64::exp));
                let ratio = match interval {
                    _ if std::ptr::eq(arm, direct) => "1".to_owned(),
                    Some(interval) => {
                        format!("{ratio:.2} [{:.2}, {:.2}]", interval.low, interval.high)
                    }
                    None => format!("{ratio:.2} (too few rounds for an interval)"),
                };
                vec![
                    arm.name.clone(),
                    format!("{}/s", count(median(&arm.rates) as u64)),
                    ratio,
                    format!("{:.0} %", median(&arm.busy) * 100.0),
                ]
            })
            .collect();
        let head = [
            "file system",
            "calls (median)",
            "of direct's, mean [99 % interval]",
            "processors busy",
        ];
        format!(
            "{}\n{} processes, {} % of calls write; {} {} bytes{}; {FILES} files each; {} rounds of {} s each\n",
            table(&head, &rows),
            self.processes,
            self.writes,
            if self.keep_open {
                "read or overwrite"
            } else {
                "open, read or overwrite"
            },
            count(self.bytes.into()),
            if self.keep_open {
                " of files kept open"
            } else {
                ", close"
            },
            self.rounds,
            self.seconds,
        )
    }
}

/// A process that reads and writes; ended when dropped.
struct Worker {
    process: Child,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    fn start(load: &Load, dir: &Path, number: u32) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("load-worker")
            .arg(dir)
            .arg(load.seconds.to_string())
            .arg(load.writes.to_string())
            .arg(load.bytes.to_string())
            .arg(load.keep_open.to_string())
            .arg(load.seed.wrapping_add(number.into()).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a worker")?;
        let stdout = process.stdout.take().context("a worker's output")?;
        Ok(Self {
            process,
            stdout: BufReader::new(stdout),
        })
    }

    /// The next line it prints.
    fn expect_line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        if line.is_empty() {
            bail!("a worker ended early; what it said is above");
        }
        Ok(line)
    }

    fn go(&mut self) -> anyhow::Result<()> {
        let mut stdin = self.process.stdin.take().context("a worker's input")?;
        writeln!(stdin, "go").context("telling a worker to start")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has mostly ended by itself; one that has not must not go on.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Time all processors were not idle, and all their time, in clock ticks.
fn processor_time() -> anyhow::Result<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    let line = stat.lines().next().unwrap_or_default();
    let ticks = line
        .split_whitespace()
        .skip(1)
        .map_while(|n| n.parse().ok());
    let ticks: Vec<u64> = ticks.collect();
    let all: u64 = ticks.iter().take(8).sum();
    // Fourth and fifth: idle, and idle while waiting for a disk.
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    Ok((all - idle, all))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
