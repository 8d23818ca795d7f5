//! `ctxbench status`: lists the mounts of ctxbench on this machine.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Command};
use fuse::LOST_BYTES;
use fuse::connection::{MountEntry, MountHealth, PATIENCE, health, mounts};
use fuse::daemon::Daemon;
use inputs::border;
use schemars::JsonSchema;
use serde::Serialize;
use sqlite::{DatabaseSpace, space};

use super::format::ScreenFormat;
use super::mount::Mount;
use crate::environment::in_utc;

/// List the mounts of ctxbench on this machine.
///
/// For each mount: where it is, its backend, its process, since when it runs, and whether it answers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench status
  ctxbench status --format json

Exit codes: 0 every mount answers, or there is no mount; 1 a mount does not answer.")]
pub struct Status {
    /// How to print the result. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
    /// The same as --format json.
    #[arg(long, hide = true)]
    json: bool,
}

impl Status {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let all = mounts().context("reading the table of mounts")?;
        let prints_json = self.json || self.format == ScreenFormat::Json;
        let mut is_well = true;
        let mut rows = Vec::new();
        for mount in all.iter().filter(|mount| mount.is_ours()) {
            let health = health(&mount.at);
            let daemon = match health {
                MountHealth::Dead => None,
                _ => Process::of(mount),
            };
            let is_read_only = mount.options.split(',').any(|option| option == "ro");
            is_well &= matches!(health, MountHealth::Answers(_));
            let space = (daemon.as_ref()).and_then(|daemon| space_of(daemon, &mount.source));
            let lost = lost_bytes(health, &mount.at);
            if prints_json {
                rows.push(MountStatus {
                    dir: mount.at.to_string_lossy(),
                    backend: daemon.as_ref().and_then(Process::backend),
                    source: &mount.source,
                    process: daemon.as_ref().map(|daemon| daemon.pid),
                    since: daemon.as_ref().map(Process::since),
                    read_only: is_read_only,
                    health: HealthWord::of(health),
                    lost_bytes: lost,
                    space: space.map(SpaceStatus::of),
                });
                continue;
            }
            let by = by(health, daemon.as_ref());
            let at = border::path(&mount.at);
            let read_only = if is_read_only { "read-only, " } else { "" };
            println!("{at}: {}, {read_only}{by}; {}", border::line(&mount.source), words(health, &mount.at));
            if let Some(space) = space {
                println!("  {}", space_words(space));
            }
            if let Some(lost) = lost.filter(|lost| *lost > 0) {
                println!(
                    "    LOST {lost} bytes that programs wrote through memory maps or the writeback cache; the daemon's log names the files"
                );
            }
        }
        if prints_json {
            println!("{}", serde_json::to_string(&rows)?);
        } else if !all.iter().any(MountEntry::is_ours) {
            println!("nothing is mounted");
        }
        Ok(ExitCode::from(u8::from(!is_well)))
    }
}

/// The disk space of a mount whose source is a database on this machine.
fn space_of(daemon: &Process, source: &str) -> Option<DatabaseSpace> {
    // A kernel without subtypes puts the store's name before it.
    let path = source.strip_prefix("ctxbench-").unwrap_or(source);
    let directory = std::fs::read_link(format!("/proc/{}/cwd", daemon.pid)).ok()?;
    space(&directory.join(path)).ok()?
}

/// A mount, as `status` prints it for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct MountStatus<'a> {
    dir: Cow<'a, str>,
    backend: Option<String>,
    source: &'a str,
    process: Option<u32>,
    /// When it was mounted, in UTC; null if that is not known.
    since: Option<String>,
    read_only: bool,
    health: HealthWord,
    /// Bytes of memory maps or the writeback cache that the store had no place for.
    lost_bytes: Option<u64>,
    /// The disk space of its database, in bytes; null if the database is not on this machine.
    space: Option<SpaceStatus>,
}

/// Whether a mount answers.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum HealthWord {
    Answers,
    Dead,
    Silent,
}

impl HealthWord {
    fn of(health: MountHealth) -> Self {
        match health {
            MountHealth::Answers(_) => HealthWord::Answers,
            MountHealth::Dead => HealthWord::Dead,
            MountHealth::Silent => HealthWord::Silent,
        }
    }
}

/// The disk space of a database, in bytes.
#[derive(Serialize, JsonSchema)]
struct SpaceStatus {
    database: u64,
    free_pages: u64,
    reserve: u64,
    log: u64,
    redo: u64,
    tails: u64,
    reserved_ahead: u64,
    disk_free: u64,
}

impl SpaceStatus {
    fn of(space: DatabaseSpace) -> Self {
        Self {
            database: space.database,
            free_pages: space.free_pages,
            reserve: space.reserve,
            log: space.log,
            redo: space.redo,
            tails: space.tails,
            reserved_ahead: space.reserved_ahead,
            disk_free: space.disk_free,
        }
    }
}

fn space_words(space: DatabaseSpace) -> String {
    let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    format!(
        "database {} (free pages {}, reserve {}), log {}, redo log {}, tails {} (reserved ahead {}); {} free on the disk",
        mb(space.database),
        mb(space.free_pages),
        mb(space.reserve),
        mb(space.log),
        mb(space.redo),
        mb(space.tails),
        mb(space.reserved_ahead),
        mb(space.disk_free),
    )
}

/// The bytes from the kernel's cache that the store of a mount has refused. `None` if the mount does not say.
fn lost_bytes(health: MountHealth, at: &Path) -> Option<u64> {
    // A mount that does not answer would keep this process waiting.
    let MountHealth::Answers(_) = health else {
        return None;
    };
    let mut value = [0; 20];
    let length = rustix::fs::getxattr(at, LOST_BYTES, &mut value).ok()?;
    std::str::from_utf8(value.get(..length)?).ok()?.parse().ok()
}

/// The process of a mount, in words.
fn by(health: MountHealth, daemon: Option<&Process>) -> String {
    match (daemon, health) {
        (Some(daemon), _) => format!("process {}, since {}", daemon.pid, daemon.since()),
        (None, MountHealth::Dead) => "its process is gone".to_owned(),
        (None, _) => "by a process that is not visible here".to_owned(),
    }
}

fn words(health: MountHealth, at: &Path) -> String {
    let at = border::path(at);
    match health {
        MountHealth::Answers(took) => format!("answers in {:.1} ms", took.as_secs_f64() * 1e3),
        MountHealth::Dead => {
            format!(
                "DEAD: its daemon was killed or has crashed (fix: `ctxbench unmount {at}`, then mount the store again, which recovers all completed calls)"
            )
        }
        MountHealth::Silent => {
            format!("SILENT for {} s: its daemon is stopped or hangs (its log may have the reason)", PATIENCE.as_secs())
        }
    }
}

/// The process of a mount.
struct Process {
    pid: u32,
    arguments: Vec<OsString>,
    age: Duration,
}

impl Process {
    /// The process that serves `mount`; `None` where it cannot be seen.
    fn of(mount: &MountEntry) -> Option<Self> {
        let pid = Daemon::of(mount)?.pid();
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let cmdline = std::fs::read(proc.join("cmdline")).ok()?;
        let words = cmdline.split(|byte| *byte == 0);
        // The first two are the program and `mount`.
        let arguments = words.skip(2).map(|word| OsString::from_vec(word.to_vec()));
        Some(Self { pid, arguments: arguments.collect(), age: age(&proc)? })
    }

    /// The name of its backend in `ctxbench mount`.
    fn backend(&self) -> Option<String> {
        // A daemon of another version may have options of its store that this one does not know.
        let command = Command::new("mount").no_binary_name(true).ignore_errors(true);
        let parsed = Mount::augment_args(command).try_get_matches_from(&self.arguments);
        Some(parsed.ok()?.subcommand_name()?.to_owned())
    }

    /// When it was started, in UTC.
    fn since(&self) -> String {
        let started = std::time::SystemTime::now() - self.age;
        jiff::Timestamp::try_from(started).map_or_else(|_| "?".to_owned(), in_utc)
    }
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
            let daemon =
                Process { pid: 1, arguments: line.split(' ').map(OsString::from).collect(), age: Duration::ZERO };
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
    #[test]
    fn the_name_of_a_mount_stays_on_its_line() {
        let said = words(MountHealth::Dead, Path::new("/m\n/x: answers"));
        assert!(said.contains(r"`ctxbench unmount /m\u000a/x: answers`") && !said.contains('\n'), "{said}");
    }
}
