//! `ctxbench status`: lists the mounts of ctxbench on this machine.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use backends::fuse::connection::{MountEntry, MountHealth, PATIENCE, health, mounts};
use clap::{Args, Command};
use serde_json::json;

use super::mount::Mount;
use crate::environment::in_utc;

/// List what ctxbench has mounted here.
///
/// Where, what, by which process, since when, and whether it answers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench status
  ctxbench status --json

Exit codes: 0 every mount answers, or there is none; 1 one does not.")]
pub struct Status {
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
}

impl Status {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let all = mounts().context("reading the table of mounts")?;
        let daemons = daemons();
        let mut is_well = true;
        let mut rows = Vec::new();
        for mount in all.iter().filter(|mount| mount.is_ours()) {
            let daemon = daemons.iter().find(|daemon| daemon.mounts(&mount.at));
            let health = health(&mount.at);
            is_well &= matches!(health, MountHealth::Answers(_));
            if self.json {
                rows.push(json!({
                    "dir": mount.at, "backend": daemon.and_then(Daemon::backend), "source": mount.source,
                    "process": daemon.map(|daemon| daemon.pid),
                    "since": daemon.map(|daemon| daemon.since()),
                    "health": word(health),
                }));
                continue;
            }
            let by = daemon.map_or("by a process that cannot be seen".to_owned(), |daemon| {
                format!("process {}, since {}", daemon.pid, daemon.since())
            });
            let at = mount.at.display();
            println!("{at}: {}, {by}; {}", mount.source, words(health, &mount.at));
        }
        if self.json {
            println!("{}", serde_json::Value::Array(rows));
        } else if !all.iter().any(MountEntry::is_ours) {
            println!("nothing is mounted");
        }
        Ok(ExitCode::from(u8::from(!is_well)))
    }
}

fn word(health: MountHealth) -> &'static str {
    match health {
        MountHealth::Answers(_) => "answers",
        MountHealth::Dead => "dead",
        MountHealth::Silent => "silent",
    }
}

fn words(health: MountHealth, at: &Path) -> String {
    let at = at.display();
    match health {
        MountHealth::Answers(took) => format!("answers in {:.1} ms", took.as_secs_f64() * 1e3),
        MountHealth::Dead => format!(
            "DEAD: its daemon has ended without unmounting (take it down: ctxbench unmount {at})"
        ),
        MountHealth::Silent => format!(
            "SILENT for {} s: its daemon is stopped or stuck (its log says more)",
            PATIENCE.as_secs()
        ),
    }
}

/// A running `ctxbench mount`.
struct Daemon {
    pid: u32,
    cwd: PathBuf,
    arguments: Vec<PathBuf>,
    age: Duration,
}

impl Daemon {
    /// Whether one of its arguments is the path `dir`. Does not access `dir`, because its mount may hang.
    fn mounts(&self, dir: &Path) -> bool {
        self.arguments.iter().any(|argument| {
            let path = self.cwd.join(argument);
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return false;
            };
            dir.file_name() == Some(name)
                && parent
                    .canonicalize()
                    .is_ok_and(|parent| parent.join(name) == dir)
        })
    }

    /// The name of its backend in `ctxbench mount`.
    fn backend(&self) -> Option<String> {
        // A daemon of another version may have options of its store that this one does not know.
        let command = Command::new("mount")
            .no_binary_name(true)
            .ignore_errors(true);
        let parsed = Mount::augment_args(command).try_get_matches_from(&self.arguments);
        Some(parsed.ok()?.subcommand_name()?.to_owned())
    }

    /// When it was started, in UTC.
    fn since(&self) -> String {
        let started = std::time::SystemTime::now() - self.age;
        jiff::Timestamp::try_from(started).map_or_else(|_| "?".to_owned(), in_utc)
    }
}

/// The `ctxbench mount` processes whose command line this user may read.
fn daemons() -> Vec<Daemon> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(daemon).collect()
}

fn daemon(pid: u32) -> Option<Daemon> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let cmdline = std::fs::read(proc.join("cmdline")).ok()?;
    let mut arguments = cmdline
        .split(|byte| *byte == 0)
        .map(|argument| PathBuf::from(OsString::from_vec(argument.to_vec())));
    arguments.next()?;
    (arguments.next()? == Path::new("mount")).then_some(())?;
    Some(Daemon {
        pid,
        cwd: std::fs::read_link(proc.join("cwd")).ok()?,
        arguments: arguments.collect(),
        age: age(&proc)?,
    })
}

/// How long a process has been running.
fn age(proc: &Path) -> Option<Duration> {
    let stat = std::fs::read_to_string(proc.join("stat")).ok()?;
    // pid (comm) state ppid …; the 22nd field is the start in ticks since boot.
    let ticks: u64 = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    let started = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    Duration::try_from_secs_f64(uptime - started).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_of_the_store_in_its_command_line_and_of_no_other_word() {
        let store = |line: &str| {
            let daemon = Daemon {
                pid: 1,
                cwd: PathBuf::from("/"),
                arguments: line.split(' ').map(PathBuf::from).collect(),
                age: Duration::ZERO,
            };
            daemon.backend()
        };
        for (line, name) in [
            ("sqlite ctx --db ctx.db --detached", "sqlite"),
            ("--detached --log null memory ctx", "memory"),
            ("memory sqlite --until-stdin-ends", "memory"),
            ("s3 --sync close memory --not-yet-known", "s3"),
        ] {
            assert_eq!(store(line).as_deref(), Some(name), "{line}");
        }
    }
}
