//! Faults of the disk under a store: full, quota used up, read-only.

use std::time::Instant;

use arms::promise::Acknowledgement;
use rundir::faults::{AgentEventKind, Return};
use rustix::io::Errno;

use super::super::bed::{ScenarioError, StepResult, TestBed, infra};
use super::super::disk::SmallDisk;

/// Number of changes by which a full disk must have caused an error.
const MANY: u64 = 4_000;

/// Size in MiB of the disk that becomes read-only: with less than 128 free, `sqlite` commits each change at once.
const DISK: u64 = 256;

/// Mounts a small disk at the workspace's directory, and fills the store.
pub(super) fn on_small_disk(bed: &mut TestBed, mib: u64) -> StepResult {
    fill_on(bed, SmallDisk::mount(&bed.config.dir, mib))
}

fn fill_on(bed: &mut TestBed, disk: Result<SmallDisk, String>) -> StepResult {
    bed.disk = Some(disk.map_err(ScenarioError::Skipped)?);
    bed.open()?;
    if bed.backend.describe().lines_of_code == 0 {
        // A user sets up a third-party file system long before the power cut, and no `fsync` acknowledges that.
        bed.disk()?.sync()?;
    }
    bed.fill()
}

/// The disk fills up, and is freed again.
pub fn full(bed: &mut TestBed, mib: u64) -> StepResult {
    on_small_disk(bed, mib)?;
    use_up(bed, &format!("a disk of {mib} MiB"), &[Errno::NOSPC])
}

/// The quota is used up, and freed again.
pub fn quota(bed: &mut TestBed, mib: u64) -> StepResult {
    fill_on(bed, SmallDisk::with_quota(&bed.config.dir, mib))?;
    let what = format!("a quota of {mib} MiB (a btrfs qgroup, which binds root, too)");
    use_up(bed, &what, &[Errno::DQUOT, Errno::NOSPC])
}

/// Uses up the store's space, and frees it again. `told` lists the allowed error numbers.
fn use_up(bed: &mut TestBed, what: &str, told: &[Errno]) -> StepResult {
    let filled = bed.disk()?.fill()?;
    bed.injected(format!("{what} under the store was used up by a file of {} MiB", filled >> 20));
    let answer = bed.write(MANY)?;
    if let Some(answer) = &answer {
        let Some(failure) = answer.failures.first() else {
            return infra(format!("{MANY} changes found space on the full disk: the fault hit nothing"));
        };
        let is_told = |told: &Errno| failure.errno == Some(told.raw_os_error());
        if !told.iter().any(is_told) {
            let text = &failure.text;
            bed.breach(format!("a full disk returns {text}"));
        }
    }
    if let Some(exit_reason) = bed.exit_reason() {
        bed.breach(format!("the disk was full, and {exit_reason}"));
    }
    // Part of a failed change may be present: a short `write` breaks no promise.
    bed.audit_as("while-full", Some(Acknowledgement::Fsync))?;
    bed.disk()?.empty()?;
    let emptied = Instant::now();
    go_on_or_mount(bed, emptied)?;
    bed.fill_again()?;
    bed.audit_as("after-it", Some(Acknowledgement::Fsync))
}

/// Whether the mount recovers by itself. If not, mounts again.
fn go_on_or_mount(bed: &mut TestBed, since: Instant) -> StepResult {
    match bed.is_usable()? {
        Ok(()) => {
            bed.recovered(Return::ByItself, since.elapsed(), None);
            Ok(())
        }
        Err(reason) => {
            bed.saw("after the fault", AgentEventKind::Unnumbered, None, &reason);
            let step = match bed.close()? {
                Ok(()) => "an unmount, and a mount again".to_owned(),
                Err(error) => {
                    format!("an unmount, and a mount again; the unmount: {}", error.lines().next().unwrap_or_default())
                }
            };
            bed.come_back_after(Some(step))
        }
    }
}

/// A file system error makes the disk read-only. The harness repairs it with e2fsck.
pub fn read_only(bed: &mut TestBed) -> StepResult {
    on_small_disk(bed, DISK)?;
    bed.disk()?.break_down().map_err(ScenarioError::Skipped)?;
    bed.injected("the kernel met an error on the disk under the store, and made it read-only");
    if bed.write_whole(20)?.is_none() {
        bed.breach("changes were acknowledged by fsync although the disk under the store is read-only");
    }
    bed.audit_as("while-read-only", Some(Acknowledgement::Fsync))?;
    if let Err(error) = bed.close()? {
        bed.saw("end", AgentEventKind::Refusal, None, error.lines().next().unwrap_or_default());
    }
    bed.disk()?.repair().map_err(ScenarioError::Infra)?;
    let step = "an unmount, e2fsck and a mount of the disk, which no store can do, and a mount again";
    bed.come_back_after(Some(step.to_owned()))?;
    // The kernel may have dropped unsynced data with the disk.
    bed.audit_as("after-it", bed.backend.promises().power_loss)
}
