//! Power cuts under a mounted store, at seeded moments of a stream of changes.
//!
//! Simulated: ext4 on a loop device stops writing, and its image is remounted. Dirty pages and the pending
//! journal are lost. Data that the device received counts as kept, so missing flushes are not found. Two
//! control files validate the cut: the synced one must exist, the unsynced one must not.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::{Audit, AuditVerdict, POWER_LOSS, Return};
use workloads::fault::SyncClass;

use super::super::agent::Job;
use super::super::bed::{Injected, STREAM, TestBed, infra};
use super::super::check::locate;
use super::storage::on_small_disk;

/// Synced changes before each cut.
const SYNCED: u64 = 10;

/// Range of the delay before the power cut, in microseconds.
const MOMENTS_US: std::ops::Range<u64> = 2_000..200_000;

/// The label of the outcome.
const LABEL: &str = "simulated: the image of the disk under the store, without what was not written back; a flush that the disk itself ignores is not seen";

/// Runs the scenario with `cuts` power cuts.
pub fn run(bed: &mut TestBed, mib: u64, cuts: u32) -> Injected {
    on_small_disk(bed, mib)?;
    bed.injected(format!(
        "the power of a disk of {mib} MiB under the store was cut {cuts} times, {} to {} ms into a stream of changes",
        MOMENTS_US.start / 1000,
        MOMENTS_US.end / 1000
    ));
    bed.label(LABEL);
    let mut total = Audit::default();
    let (mut discarded, mut copies, mut redo_syncs) = (0, 0, 0);
    for at in 1..=cuts {
        if at > 1
            && let Some(failed) = bed.write_whole(SYNCED)?
        {
            bed.breach(format!("after a cut it does not go on: {failed}"));
            break;
        }
        discarded += u64::from(cut(bed, at, &mut redo_syncs)?);
        bed.come_back()?;
        let recovery = bed.outcome.recovery.as_ref();
        if recovery.is_none_or(|recovery| recovery.how == Return::Never) {
            total.add(&Audit::unknown(format!("cut {at}: it did not come back")));
            break;
        }
        copies += remove_copies(&bed.root())?;
        let mut audit = bed.audit_promise(bed.backend.promises().power_loss)?;
        locate(&mut audit, &format!("cut {at}"));
        let acknowledged = std::mem::take(&mut audit.acknowledged);
        total.add(&audit);
        // Each change counts once, however often its record is audited.
        total.acknowledged = acknowledged;
        total.promised = audit.promised;
        if audit.verdict != AuditVerdict::Valid {
            // Every later audit would count the same errors again.
            break;
        }
    }
    bed.count("cuts", cuts.into());
    bed.count("unsynced_discarded", discarded);
    if redo_syncs > 0 {
        bed.count("redo_syncs", redo_syncs);
    }
    if copies > 0 {
        bed.count("conflict_copies", copies);
    }
    if discarded == 0 {
        return infra(
            "what was not synced was there after each cut: nothing was lost that could be, and it proves nothing",
        );
    }
    total.note = Some(format!(
        "records, looked at after each of {cuts} cuts; after {discarded} of them an unsynced file was gone"
    ));
    bed.audited(POWER_LOSS, total);
    if bed.workspace.is_some() {
        bed.fill_again()?;
    }
    Ok(())
}

/// Removes conflict copies below `dir`; how many there were. A bucket may have later versions than the disk after a cut, and
/// `s3` then keeps both: no version is lost, and the copy has no record's name.
fn remove_copies(dir: &Path) -> Injected<u64> {
    let (mut removed, mut dirs) = (0, vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).context("conflict copies")? {
            let entry = entry.context("conflict copies")?;
            if entry.file_type().context("conflict copies")?.is_dir() {
                dirs.push(entry.path());
            } else if entry.file_name().to_string_lossy().contains(".conflict-") {
                std::fs::remove_file(entry.path()).context("conflict copies")?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

/// Cuts the power once and remounts. Returns whether the unsynced control file is gone. Counts the store's syncs of its redo
/// log.
fn cut(bed: &mut TestBed, at: u32, redo_syncs: &mut u64) -> Injected<bool> {
    let mut dice = ChaCha8Rng::seed_from_u64(bed.seed.wrapping_mul(0x9e37) ^ u64::from(at));
    let mut changes = bed.changes(STREAM);
    // Some streams do not sync, so that unsynced data lies between synced data.
    changes.sync = match dice.random_range(0..3) {
        0 => SyncClass::Close,
        _ => SyncClass::Fsync,
    };
    let (synced, unsynced) = (format!("synced-{at}"), format!("unsynced-{at}"));
    bed.disk()?.plant(&synced, true)?;
    bed.begin(bed.root(), &Job::Change(changes))?;
    std::thread::sleep(Duration::from_micros(dice.random_range(MOMENTS_US)));
    bed.disk()?.plant(&unsynced, false)?;
    let counters = bed.counters();
    *redo_syncs += counters.map_or(0, |counters| {
        counters.store.get("redo_syncs").copied().unwrap_or(0)
    });
    bed.lose_power()?;
    let answer = bed.end()?;
    if answer.is_some_and(|answer| answer.failures.is_empty()) {
        return infra("the changes were made before the power went: nothing was hit");
    }
    bed.read_acknowledgements()?;
    bed.start_machine()?;
    if let Some(path) = bed.backend.database(&bed.config) {
        // The disk has lost its power, the kernel runs on.
        backends::sqlite::forget_boot(&path)?;
    }
    if !bed.disk()?.has(&synced) {
        return infra("a file that was synced is not there after the cut: it is no power cut");
    }
    Ok(!bed.disk()?.has(&unsynced))
}
