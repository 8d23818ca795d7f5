//! The disk under a store is full, or becomes read-only.

use std::time::Instant;

use reports::faults::{KILLED_DAEMON, Return, SeenKind};
use rustix::io::Errno;

use super::super::disk::SmallDisk;
use super::super::stage::{Played, Spoiled, Stage};

/// Changes until the disk must have shown that it is full.
const MANY: u64 = 4_000;

/// Mebibytes of a disk that is to become read-only.
const DISK: u64 = 64;

/// Mounts a small disk where the workspace will be.
fn on_small_disk(stage: &mut Stage, mib: u64) -> Played {
    let disk = SmallDisk::mount(&stage.site.dir, mib).map_err(Spoiled::Skipped)?;
    stage.disk = Some(disk);
    stage.open()?;
    stage.fill()
}

fn disk(stage: &Stage) -> Played<&SmallDisk> {
    let disk = stage.disk.as_ref();
    disk.ok_or_else(|| Spoiled::Infra("there is no small disk".into()))
}

/// The disk fills up, and is emptied again.
pub fn full(stage: &mut Stage, mib: u64) -> Played {
    on_small_disk(stage, mib)?;
    let filled = disk(stage)?.fill()?;
    stage.injected(format!(
        "a disk of {mib} MiB under the store was filled with a file of {} MiB",
        filled >> 20
    ));
    let answer = stage.write(MANY)?;
    if let Some(answer) = &answer {
        match answer.failures.first() {
            None => stage.saw("write", SeenKind::Nothing, None, "no call failed"),
            Some(failure) if failure.errno == Some(Errno::NOSPC.raw_os_error()) => {}
            Some(failure) => {
                let text = failure.text.clone();
                stage.breach(format!("a full disk is told as {text}, not as ENOSPC"));
            }
        }
    }
    let read = stage.audit_promise(stage.backend.promises().killed_daemon)?;
    stage.outcome.audits.insert("while-full".to_owned(), read);
    disk(stage)?.empty()?;
    let emptied = Instant::now();
    go_on(stage, emptied)?;
    stage.fill_again()?;
    stage.audit(KILLED_DAEMON)
}

/// Whether the mount goes on by itself; if not, it is mounted anew.
fn go_on(stage: &mut Stage, since: Instant) -> Played {
    match stage.is_usable()? {
        Ok(()) => {
            stage.recovered(Return::ByItself, since.elapsed().as_millis() as u64, None);
            Ok(())
        }
        Err(reason) => {
            stage.saw("after the fault", SeenKind::Errno, None, &reason);
            // In order, as far as it ends in order.
            let _ = stage.close()?;
            stage.come_back()
        }
    }
}

/// The kernel makes the file system under the store read-only after an error, and somebody repairs it.
pub fn read_only(stage: &mut Stage) -> Played {
    on_small_disk(stage, DISK)?;
    disk(stage)?.break_down().map_err(Spoiled::Skipped)?;
    stage.injected("the kernel met an error on the disk under the store, and made it read-only");
    let answer = stage.write(20)?;
    if answer.is_some_and(|answer| answer.failures.is_empty()) {
        stage.breach(
            "changes were acknowledged by fsync although the disk under the store is read-only",
        );
    }
    let read = stage.audit_promise(stage.backend.promises().killed_daemon)?;
    stage
        .outcome
        .audits
        .insert("while-read-only".to_owned(), read);
    if let Err(error) = stage.close()? {
        stage.saw(
            "end",
            SeenKind::Refusal,
            None,
            error.lines().next().unwrap_or_default(),
        );
    }
    disk(stage)?.repair().map_err(Spoiled::Infra)?;
    stage.come_back()?;
    if let Some(recovery) = &mut stage.outcome.recovery {
        recovery.step =
            Some("after the disk was repaired and mounted again, which no store can do".into());
    }
    stage.audit(KILLED_DAEMON)
}

/// A quota of the user's is used up.
pub fn quota(_stage: &mut Stage) -> Played {
    Err(Spoiled::Skipped(
        "a quota does not bind root, and setting one up needs root: the daemon would have to be another user's, who may \
         not enter root's mounts"
            .into(),
    ))
}
