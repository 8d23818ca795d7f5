//! `ctxbench unmount`: ends a mount of ctxbench.

use std::borrow::Cow;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use fuse::connection::{MountEntry, end, is_dead, mount_at, mounts};
use fuse::daemon::{Daemon, DaemonEnd};
use inputs::border;

use arms::mount_command::absolute_path;
use fuse::{UNSAVED, attribute};
use schemars::JsonSchema;
use serde::Serialize;

use super::format::ScreenFormat;

/// How long a daemon may take for its uploads, its last flush and its end.
const PATIENCE: Duration = Duration::from_secs(300);

/// The time after which this command tells the user what it waits for.
const QUIET: Duration = Duration::from_secs(3);

/// Pause between two looks at a process.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Unmount a store, and wait until all changes are flushed and uploaded.
///
/// The store can then be mounted again at once. If the daemon does not exit within five minutes, the command fails and
/// leaves the daemon running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench unmount ~/notes
  ctxbench status && ctxbench unmount /tmp/avm

Exit codes: 0 unmounted, and everything is flushed; 1 no ctxbench mount is there, it is in use, its last flush failed, the mount had lost bytes, or its daemon does not exit.")]
pub struct Unmount {
    /// The mounted directory.
    #[arg(value_parser = absolute_path())]
    dir: PathBuf,
    /// How to print the result. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
    /// Only unmount: a daemon that is stuck can block the process that does it for ever.
    #[arg(long, hide = true)]
    without_waiting: bool,
}

/// What `unmount` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct Unmounted<'a> {
    dir: Cow<'a, str>,
    /// false: the daemon had ended before, and the next mount recovers all completed calls.
    had_daemon: bool,
}

impl Unmount {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let at = border::path(&self.dir);
        let unmounting = || format!("unmounting {at}");
        if self.without_waiting {
            // Ignore errors: the last flush uploads again, and the daemon reports how that ends.
            let _ = attribute::get(&self.dir, "user.ctx.sync");
            if let Ok(reason) = attribute::get(&self.dir, UNSAVED)
                && !reason.is_empty()
            {
                bail!(
                    "{at} is still mounted: its changes cannot be saved: {}\n  fix: free disk space, or copy the files elsewhere, and run this again; to lose the changes, end its daemon with `kill -KILL` (`ctxbench status` has its process), and run this again",
                    border::line(&reason)
                );
            }
            end(&self.dir).with_context(unmounting)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mount = mount_at(&self.dir).ok().flatten();
        let Some(mount) = mount.filter(MountEntry::is_ours) else {
            bail!("cannot unmount {at}: {}", self.obstacle()?);
        };
        let (user, owner) = (rustix::process::geteuid(), mount.user());
        if !user.is_root() && owner.is_some_and(|owner| owner != user.as_raw()) {
            bail!(
                "cannot unmount {at}: user {} has mounted it\n  fix: unmount it as that user, or as root",
                owner.unwrap_or_default()
            );
        }
        let daemon = Daemon::of(&mount);
        // Ask the mount only if no daemon listens: the kernel may never end a thread that waits for a stuck daemon.
        if daemon.is_none() && is_dead(&self.dir) {
            end(&self.dir).with_context(unmounting)?;
            let text = || {
                format!(
                    "{at} is unmounted; its daemon had already ended, so the next mount recovers all completed calls\n"
                )
            };
            self.format.print(text, &Unmounted { dir: self.dir.to_string_lossy(), had_daemon: false })?;
            return Ok(ExitCode::SUCCESS);
        }
        let deadline = Instant::now() + PATIENCE;
        let ended = self.unmount(daemon.as_ref(), deadline)?;
        if let Some(given_up) = ended {
            bail!("{at} is still mounted: {given_up}");
        }
        let Some(mut daemon) = daemon else {
            bail!(
                "{at} is unmounted, but its daemon is not visible from here, so the result of its last flush is unknown (see its log)"
            );
        };
        let pid = daemon.pid();
        let mut end = daemon.wait(deadline.min(Instant::now() + QUIET));
        if end == DaemonEnd::Runs {
            eprintln!("{at} is unmounted; waiting for the last flush of process {pid}");
            end = daemon.wait(deadline);
        }
        match end {
            DaemonEnd::Flushed => {
                self.format.print(
                    || format!("{at} is unmounted\n"),
                    &Unmounted { dir: self.dir.to_string_lossy(), had_daemon: true },
                )?;
                Ok(ExitCode::SUCCESS)
            }
            DaemonEnd::Lost(bytes) => bail!(
                "{at} is unmounted, but the store had no place for {bytes} bytes that programs wrote through memory maps or the writeback cache\n  fix: find the files in the daemon's log, free disk space, and write them again"
            ),
            DaemonEnd::FlushFailed(reason) => bail!(
                "{at} is unmounted, but its last flush failed: {reason}\n  fix: if the store's files are still there, remove the cause, and mount it again: it has the changes that the daemon could save, and `ctxbench doctor --store` checks it"
            ),
            DaemonEnd::Unknown => bail!(
                "{at} is unmounted, but its daemon (process {pid}) was killed or crashed before the end of its last flush\n  fix: mount it again, which recovers all completed calls; its log may have the reason"
            ),
            DaemonEnd::Stopped => bail!("{at} is unmounted, but {}", stopped(pid)),
            DaemonEnd::Runs => bail!(
                "{at} is unmounted, but its daemon (process {pid}) has not exited within {} s\n  fix: see its log for what it waits for; the store can be mounted when that process has exited",
                PATIENCE.as_secs()
            ),
        }
    }

    /// What is at the directory instead of a mount of ours, and what to do. The directory is not accessed if it is in a mount
    /// of ours, which may hang.
    fn obstacle(&self) -> anyhow::Result<String> {
        const LIST: &str = "`ctxbench status` lists the mounts of ctxbench";
        let all = mounts().context("reading the table of mounts")?;
        let mut inside = all.iter().rev().filter(|mount| mount.is_ours());
        if let Some(above) = inside.find(|mount| self.dir.starts_with(&mount.at)) {
            let above = border::path(&above.at);
            return Ok(format!("it is a directory inside the mount at {above}\n  fix: `ctxbench unmount {above}`"));
        }
        if let Some(other) = all.iter().rev().find(|mount| mount.at == self.dir) {
            return Ok(format!(
                "the mount there is {}, not one of ctxbench\n  fix: {LIST}; unmount another one with the program that mounted it",
                other.kind
            ));
        }
        Ok(match self.dir.metadata() {
            Ok(found) if found.is_dir() => format!("nothing is mounted there\n  fix: {LIST}"),
            Ok(_) => format!("it is a file, and mounts are on directories\n  fix: {LIST}"),
            Err(error) => format!("{error}\n  fix: {LIST}"),
        })
    }

    /// Unmounts by another process. Answers why it was given up, if it was.
    fn unmount(&self, daemon: Option<&Daemon>, deadline: Instant) -> anyhow::Result<Option<String>> {
        let is_stopped = || daemon.is_some_and(Daemon::is_stopped);
        let pid = daemon.map_or(0, Daemon::pid);
        if is_stopped() {
            return Ok(Some(stopped(pid)));
        }
        let mut child = Command::new(std::env::current_exe().context("finding ctxbench")?)
            .args(["unmount", "--without-waiting"])
            .arg(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting a process that unmounts")?;
        let mut tells_at = Some(Instant::now() + QUIET);
        loop {
            if let Some(status) = child.try_wait().context("waiting for the unmount")? {
                if status.success() {
                    return Ok(None);
                }
                let said = child.wait_with_output().context("reading its error")?;
                let said = String::from_utf8_lossy(&said.stderr);
                let said = said.trim();
                bail!("{}", said.strip_prefix("ctxbench: ").unwrap_or(said));
            }
            let given_up = if is_stopped() {
                Some(stopped(pid))
            } else if Instant::now() > deadline {
                let process = daemon
                    .map_or_else(|| "its daemon".to_owned(), |daemon| format!("its daemon, process {},", daemon.pid()));
                Some(format!(
                    "{process} has not answered within {} s\n  fix: see its log for what it waits for, and try again later; or kill that process, which can lose unflushed changes, and run this again",
                    PATIENCE.as_secs()
                ))
            } else {
                None
            };
            if given_up.is_some() {
                give_up(child);
                return Ok(given_up);
            }
            if tells_at.is_some_and(|at| Instant::now() > at) {
                tells_at = None;
                eprintln!("waiting for the daemon of {}", border::path(&self.dir));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Ends the process that unmounts. In a request that the daemon has read, the kernel ends it only after the answer, so
/// this does not wait; and the process then ends before it unmounts.
fn give_up(mut child: Child) {
    // An error means that it has just ended.
    let _ = child.kill();
}

fn stopped(pid: u32) -> String {
    format!(
        "its daemon (process {pid}) is stopped\n  fix: continue it with `kill -CONT {pid}`, and run this again; or kill it with `kill -KILL {pid}`, which can lose unflushed changes, and run this again"
    )
}
