//! `ctxbench hosts`: what several hosts see of one memory in a bucket: the workloads `agent/handoff` and
//! `agent/two-writers`, which need two mounts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use backends::s3_service::address;
use clap::Args;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reports::render;

use crate::attribute;
use crate::host::{self, Host, Memory};
use crate::interrupt::Interrupt;
use crate::scratch::ScratchDir;

/// How long a reader waits for what another host wrote.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two hosts, one memory: how long until the other sees a note, and what becomes of concurrent changes.
///
/// agent/handoff: one host writes a note and closes it, the other looks every 2 ms until it reads it. agent/two-writers:
/// two hosts read a file, add a line and write it back, again and again, at the same time; then everything settles,
/// and each line that was written is looked for in every file, and then in the kept versions of the shared one: a
/// line that came to a host between its reading and its writing is overwritten there, as by any two programs that do
/// not lock. About two minutes.
#[derive(Debug, Args)]
pub struct Hosts {
    /// Round-trip times to add, in milliseconds.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 30])]
    rtt: Vec<u32>,
    /// Notes to hand over.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    notes: u32,
    /// Lines that each of two writers adds.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    lines: u32,
    /// The server [default: MinIO where it is installed, else the embedded one].
    #[arg(long)]
    server: Option<String>,
    /// The seed of the writers' pauses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the hosts keep their caches [default: as `run`].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

/// How the hosts are mounted, and what that is called.
const HANDOFFS: [(&str, &[&str]); 3] = [
    ("defaults: up after 200 ms, looks every second", &[]),
    (
        "close waits for the bucket, looks every second",
        &["--sync", "close"],
    ),
    (
        "close waits for the bucket, looks every 50 ms",
        &["--sync", "close", "--poll", "50"],
    ),
];

const WRITERS: [(&str, &[&str]); 2] = [
    ("keep-both", &["--poll", "100", "--delay", "20"]),
    (
        "last-write-wins",
        &[
            "--poll",
            "100",
            "--delay",
            "20",
            "--conflicts",
            "last-write-wins",
        ],
    ),
];

impl Hosts {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let interrupt = Interrupt::catch()?;
        let server = host::server(self.server.as_deref())?;
        let scratch = ScratchDir::make(self.scratch.as_deref())?;
        let mut handoffs = Vec::new();
        let mut writers = Vec::new();
        let mut lost_quietly = 0;
        for rtt in &self.rtt {
            let address = address(&std::env::current_exe()?, server, *rtt)?;
            let memory = |name: &str| Memory {
                address: address.clone(),
                prefix: format!("ctxbench-hosts/{}/{rtt}-{name}/", std::process::id()),
            };
            for (at, (how, options)) in HANDOFFS.iter().enumerate() {
                let dir = scratch.path().join(format!("handoff-{rtt}-{at}"));
                let memory = memory(&format!("handoff-{at}"));
                eprintln!("agent/handoff, {rtt} ms, {how} …");
                let mut delays = self.hand_over(&memory, &dir, options, &interrupt)?;
                delays.sort_by(f64::total_cmp);
                let at = |q: f64| {
                    render::time(delays[((delays.len() - 1) as f64 * q).round() as usize] * 1e9)
                };
                handoffs.push(vec![
                    format!("{rtt} ms"),
                    (*how).to_owned(),
                    at(0.5),
                    at(1.0),
                    delays.len().to_string(),
                ]);
            }
            for (how, options) in WRITERS {
                let dir = scratch.path().join(format!("writers-{rtt}-{how}"));
                eprintln!("agent/two-writers, {rtt} ms, {how} …");
                let ended = self.write_both(&memory(how), &dir, options, &interrupt)?;
                if how == "keep-both" {
                    lost_quietly += ended.lost;
                }
                writers.push(vec![
                    format!("{rtt} ms"),
                    how.to_owned(),
                    ended.written.to_string(),
                    ended.only_in_versions.to_string(),
                    ended.lost.to_string(),
                    ended.conflicts.to_string(),
                    ended.kept_files.to_string(),
                    if ended.agree { "yes" } else { "NO" }.to_owned(),
                ]);
            }
        }
        println!("\nagent/handoff: from close on one host until the other has read it");
        let head = ["added RTT", "how", "median", "longest", "notes"];
        print!("{}", render::table(&head, &handoffs));
        println!("\nagent/two-writers: read, add a line, write back, on two hosts at once");
        let head = [
            "added RTT",
            "policy",
            "lines written",
            "only in an old version",
            "lost",
            "conflicts told",
            "files kept beside",
            "both see the same",
        ];
        print!("{}", render::table(&head, &writers));
        if lost_quietly > 0 {
            println!("{lost_quietly} lines were lost although both versions are to be kept");
        }
        Ok(ExitCode::from(u8::from(lost_quietly > 0)))
    }

    fn hand_over(
        &self,
        memory: &Memory,
        dir: &Path,
        options: &[&str],
        interrupt: &Interrupt,
    ) -> anyhow::Result<Vec<f64>> {
        let alice = Host::mount(memory, "alice", &dir.join("alice"), options)?;
        let bob = Host::mount(memory, "bob", &dir.join("bob"), options)?;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut delays = Vec::new();
        for note in 0..self.notes {
            let text = format!("note {note}\n");
            let name = format!("note-{note}.md");
            // The two hosts' clocks do not tick together.
            std::thread::sleep(Duration::from_millis(rng.random_range(0..500)));
            std::fs::write(alice.root().join(&name), &text)?;
            let closed = Instant::now();
            let theirs = bob.root().join(&name);
            while std::fs::read_to_string(&theirs).ok().as_deref() != Some(&text) {
                if interrupt.is_set() {
                    bail!("interrupted");
                }
                if closed.elapsed() > PATIENCE {
                    bail!("{name} was not seen within {} s", PATIENCE.as_secs());
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            delays.push(closed.elapsed().as_secs_f64());
        }
        Ok(delays)
    }

    fn write_both(
        &self,
        memory: &Memory,
        dir: &Path,
        options: &[&str],
        interrupt: &Interrupt,
    ) -> anyhow::Result<Ended> {
        let hosts = [
            Host::mount(memory, "alice", &dir.join("alice"), options)?,
            Host::mount(memory, "bob", &dir.join("bob"), options)?,
        ];
        let results: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
            let writers: Vec<_> = hosts
                .iter()
                .zip(0..)
                .map(|(host, number)| {
                    scope.spawn(move || self.add_lines(host.root(), number, interrupt))
                })
                .collect();
            let ended = writers.into_iter().map(|writer| writer.join());
            ended
                .map(|ended| ended.unwrap_or_else(|_| bail!("a writer panicked")))
                .collect()
        });
        results.into_iter().collect::<anyhow::Result<()>>()?;
        // Conflicts that one host's upload meets become changes that go up, too.
        for _ in 0..3 {
            for host in &hosts {
                host.sync()?;
                attribute::get(host.root(), "user.ctx.pull")?;
            }
        }
        let mut seen = Vec::new();
        for host in &hosts {
            seen.push(lines_of(host.root())?);
        }
        let written: BTreeSet<String> = (0..2)
            .flat_map(|writer| {
                (0..self.lines).map(move |line| format!("writer {writer} line {line}"))
            })
            .collect();
        let conflicts: u64 = hosts
            .iter()
            .map(|host| {
                Ok(host
                    .counters()?
                    .store
                    .get("s3_conflicts")
                    .copied()
                    .unwrap_or(0))
            })
            .sum::<anyhow::Result<u64>>()?;
        let (files, lines) = &seen[0];
        let missing: BTreeSet<&String> = written.difference(lines).collect();
        let mut kept = BTreeSet::new();
        if !missing.is_empty() {
            for host in &hosts {
                kept.extend(lines_of_versions(&host.root().join("shared.md"))?);
            }
        }
        let only_in_versions = missing.iter().filter(|line| kept.contains(**line)).count();
        Ok(Ended {
            written: written.len(),
            only_in_versions,
            lost: missing.len() - only_in_versions,
            conflicts,
            kept_files: files.len().saturating_sub(1),
            agree: seen[0] == seen[1],
        })
    }

    fn add_lines(&self, root: &Path, writer: u64, interrupt: &Interrupt) -> anyhow::Result<()> {
        let file = root.join("shared.md");
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed + writer);
        for line in 0..self.lines {
            if interrupt.is_set() {
                bail!("interrupted");
            }
            let mut text = std::fs::read_to_string(&file).unwrap_or_default();
            text.push_str(&format!("writer {writer} line {line}\n"));
            std::fs::write(&file, text)?;
            std::thread::sleep(Duration::from_millis(rng.random_range(5..60)));
        }
        Ok(())
    }
}

/// What became of two writers' lines.
struct Ended {
    written: usize,
    only_in_versions: usize,
    lost: usize,
    conflicts: u64,
    kept_files: usize,
    agree: bool,
}

/// All lines of the versions that are kept of a file.
fn lines_of_versions(file: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut lines = BTreeSet::new();
    for version in attribute::get(file, "user.ctx.versions")?.lines() {
        let version: serde_json::Value = serde_json::from_str(version)?;
        let text = attribute::get(file, &format!("user.ctx.version.{}", version["version"]))?;
        lines.extend(text.lines().map(str::to_owned));
    }
    Ok(lines)
}

/// The files in a directory, and all their lines.
fn lines_of(dir: &Path) -> anyhow::Result<(BTreeSet<String>, BTreeSet<String>)> {
    let (mut files, mut lines) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        files.insert(entry.file_name().to_string_lossy().into_owned());
        let text = std::fs::read_to_string(entry.path())?;
        lines.extend(text.lines().map(str::to_owned));
    }
    Ok((files, lines))
}
