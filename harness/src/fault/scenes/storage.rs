//! The disk under a store is full, a quota on it is used up, or it becomes read-only.

use std::time::Instant;

use backends::promise::Acknowledgement;
use reports::faults::{Return, SeenKind};
use rustix::io::Errno;

use super::super::disk::SmallDisk;
use super::super::stage::{Played, Spoiled, Stage};

/// Changes until the disk must have shown that it is full.
const MANY: u64 = 4_000;

/// Mebibytes of a disk that is to become read-only.
const DISK: u64 = 64;

/// Mounts a small disk where the workspace will be.
pub(super) fn on_small_disk(stage: &mut Stage, mib: u64) -> Played {
    let disk = SmallDisk::mount(&stage.site.dir, mib).map_err(Spoiled::Skipped)?;
    stage.disk = Some(disk);
    stage.open()?;
    stage.fill()
}

pub(super) fn disk(stage: &Stage) -> Played<&SmallDisk> {
    let disk = stage.disk.as_ref();
    disk.ok_or_else(|| Spoiled::Infra("there is no small disk".into()))
}

/// The disk fills up, and is emptied again.
pub fn full(stage: &mut Stage, mib: u64) -> Played {
    on_small_disk(stage, mib)?;
    use_up(stage, &format!("a disk of {mib} MiB"), &[Errno::NOSPC])
}

/// A quota is used up, and room is made again.
pub fn quota(stage: &mut Stage, mib: u64) -> Played {
    let disk = SmallDisk::with_quota(&stage.site.dir, mib).map_err(Spoiled::Skipped)?;
    stage.disk = Some(disk);
    stage.open()?;
    stage.fill()?;
    let what = format!("a quota of {mib} MiB (a btrfs qgroup, which binds root, too)");
    use_up(stage, &what, &[Errno::DQUOT, Errno::NOSPC])
}

/// Nothing is left of what the store may use, and then it is again; `told` is how an agent may be told.
fn use_up(stage: &mut Stage, what: &str, told: &[Errno]) -> Played {
    let filled = disk(stage)?.fill()?;
    stage.injected(format!(
        "{what} under the store was used up by a file of {} MiB",
        filled >> 20
    ));
    let answer = stage.write(MANY)?;
    if let Some(answer) = &answer {
        match answer.failures.first() {
            None => {
                let message =
                    format!("{MANY} changes found room although none was left: nothing was hit");
                return Err(Spoiled::Infra(message));
            }
            Some(failure)
                if told
                    .iter()
                    .any(|told| failure.errno == Some(told.raw_os_error())) => {}
            Some(failure) => {
                let text = failure.text.clone();
                stage.breach(format!("that no room is left is told as {text}"));
            }
        }
    }
    if let Some(obituary) = stage.obituary() {
        stage.breach(format!("no room was left, and {obituary}"));
    }
    // Of a change that was told to have failed, half may be there: a `write` that is short is no broken promise.
    stage.audit_as("while-full", Some(Acknowledgement::Fsync))?;
    disk(stage)?.empty()?;
    let emptied = Instant::now();
    go_on(stage, emptied)?;
    stage.fill_again()?;
    stage.audit_as("after-it", Some(Acknowledgement::Fsync))
}

/// Whether the mount goes on by itself; if not, it is mounted anew.
fn go_on(stage: &mut Stage, since: Instant) -> Played {
    match stage.is_usable()? {
        Ok(()) => {
            stage.recovered(Return::ByItself, since.elapsed().as_millis() as u64, None);
            Ok(())
        }
        Err(reason) => {
            stage.saw("after the fault", SeenKind::Unnumbered, None, &reason);
            let step = match stage.close()? {
                Ok(()) => "an unmount, and a mount again".to_owned(),
                Err(error) => format!(
                    "an unmount, and a mount again; the unmount: {}",
                    error.lines().next().unwrap_or_default()
                ),
            };
            stage.come_back_after(Some(step))
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
    stage.audit_as("while-read-only", Some(Acknowledgement::Fsync))?;
    if let Err(error) = stage.close()? {
        stage.saw(
            "end",
            SeenKind::Refusal,
            None,
            error.lines().next().unwrap_or_default(),
        );
    }
    disk(stage)?.repair().map_err(Spoiled::Infra)?;
    let step =
        "an unmount, e2fsck and a mount of the disk, which no store can do, and a mount again";
    stage.come_back_after(Some(step.to_owned()))?;
    // What was not synced, the kernel may have let go of with the disk.
    stage.audit_as("after-it", stage.backend.promises().power_loss)
}
