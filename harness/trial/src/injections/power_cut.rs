//! Power cuts under a mounted store, at seeded moments of a stream of changes.
//!
//! Simulated: ext4 on a loop device stops writing, and its image is remounted. Dirty pages and the pending
//! journal are lost. Data that the device received counts as kept, so missing flushes are not found. Two
//! control files validate the cut: the synced one must exist, the unsynced one must not.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Context;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::{Audit, AuditVerdict, CrashMethod, CrashPoints, POWER_LOSS, Return, Status};
use workloads::fault::SyncClass;

use super::super::agent::Job;
use super::super::audit::locate;
use super::super::bed::{STREAM, StepResult, TestBed, infra};
use super::super::crash_points::{Recoveries, count};
use super::super::crash_run::Goal;
use super::storage::on_small_disk;

/// Synced changes before each cut of the scenario, and before one of many cuts.
const SYNCED: u64 = 10;
const FEW_SYNCED: u64 = 3;

/// Range of the delay before the power cut of the scenario, in microseconds.
const MOMENTS_US: Range<u64> = 2_000..200_000;

/// The same before one of many cuts.
const SHORT_MOMENTS_US: Range<u64> = 1_000..30_000;

/// The size in MiB of the disk for many cuts: with less than 128 free, `sqlite` commits each change at once.
const DISK_MIB: u64 = 256;

/// The label of the outcome.
const LABEL: &str = "simulated: the image of the disk under the store, without what was not written back; a flush that the disk itself ignores is not seen";

/// Runs the scenario with `cuts` power cuts.
pub fn run(bed: &mut TestBed, mib: u64, cuts: u32) -> StepResult {
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
            bed.breach(format!("after a power cut it does not work: {failed}"));
            break;
        }
        discarded += u64::from(cut(bed, at, MOMENTS_US, &mut redo_syncs)?);
        bed.come_back()?;
        let recovery = bed.outcome.recovery.as_ref();
        if recovery.is_none_or(|recovery| recovery.how == Return::Never) {
            total.add(&Audit::unknown(format!("power cut {at}: it did not recover")));
            break;
        }
        copies += remove_copies(bed)?;
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
        return infra("unsynced files survived every cut, so the cuts prove nothing");
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

/// Cuts the power under a store until `goal` is reached, and audits its records after each cut. Ends at the first promise
/// that was broken.
pub fn series(bed: &mut TestBed, goal: Goal, progress: &mut dyn FnMut(u64)) -> StepResult<CrashPoints> {
    let began = Instant::now();
    on_small_disk(bed, DISK_MIB)?;
    let mut line = CrashPoints {
        seed: bed.seed,
        broken: Some(0),
        audit: Audit::default(),
        ..CrashPoints::not_run(&bed.outcome.backend, POWER_LOSS, Status::Ran, "")
    };
    line.reason = None;
    let (mut recoveries, mut redo_syncs) = (Recoveries::default(), 0);
    for at in 1.. {
        if let Some(why) = goal.end(line.points, u64::from(at)) {
            line.reason = why;
            break;
        }
        if at > 1
            && let Some(failed) = bed.write_whole(FEW_SYNCED)?
        {
            line.died_by_itself += u64::from(bed.exit_reason().is_some());
            line.audit.add(&Audit::unknown(format!("after power cut {}: it does not work: {failed}", at - 1)));
            line.reason = line.audit.note.clone();
            break;
        }
        let is_proved = cut(bed, at, SHORT_MOMENTS_US, &mut redo_syncs)?;
        bed.come_back()?;
        let recovery = bed.outcome.recovery.take();
        let is_back = recovery.as_ref().filter(|recovery| recovery.how != Return::Never);
        let mut audit = match is_back {
            Some(recovery) => {
                recoveries.add(recovery.ms as f64);
                remove_copies(bed)?;
                bed.audit_promise(bed.backend.promises().power_loss)?
            }
            None => {
                let step = recovery.and_then(|recovery| recovery.step);
                let words = step.unwrap_or_default();
                let reason = format!("it did not recover: {}", words.lines().collect::<Vec<_>>().join("; "));
                Audit {
                    verdict: AuditVerdict::Invalid,
                    unreadable: bed.history.records().len() as u64,
                    ..Audit::unknown(reason)
                }
            }
        };
        if audit.examples.is_empty() {
            audit.examples.extend(audit.note.clone());
        }
        locate(&mut audit, &format!("cut {at}"));
        let is_valid = audit.verdict == AuditVerdict::Valid;
        // A cut that dropped nothing proves nothing, unless something is wrong after it.
        if is_proved || !is_valid {
            line.points += 1;
        } else {
            line.unjudged += 1;
        }
        count(&mut line.broken, audit.verdict == AuditVerdict::Invalid);
        line.audit.add(&audit);
        progress(line.points);
        if !is_valid {
            line.reason = audit.examples.first().cloned();
            break;
        }
        if let Some(class) = bed.backend.promises().power_loss {
            bed.history.shorten(class);
        }
    }
    line.method = Some(CrashMethod::SimulatedDisk);
    line.how = format!(
        "SIMULATED, over a real mount: a separate ext4 on a loop device stops all writes, {} to {} ms into a stream of changes, and its image is mounted again; what ext4 had passed to the device counts as written, flushed or not. Points after which an unsynced file was still there are not judged",
        SHORT_MOMENTS_US.start / 1000,
        SHORT_MOMENTS_US.end / 1000
    );
    line.recovery_ms = recoveries.median_and_longest();
    line.took_ms = began.elapsed().as_millis() as u64;
    Ok(line)
}

/// Removes the conflict copies of a store with a bucket; how many there were. The bucket may have later versions than the disk
/// after a cut, and `s3` then keeps both: no version is lost, and the copy has no record's name.
fn remove_copies(bed: &TestBed) -> StepResult<u64> {
    if bed.backend.promises().machine_loss.is_none() {
        return Ok(0);
    }
    let (mut removed, mut dirs) = (0, vec![bed.root()]);
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
fn cut(bed: &mut TestBed, at: u32, moments_us: Range<u64>, redo_syncs: &mut u64) -> StepResult<bool> {
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
    std::thread::sleep(Duration::from_micros(dice.random_range(moments_us)));
    bed.disk()?.plant(&unsynced, false)?;
    let counters = bed.counters();
    *redo_syncs += counters.map_or(0, |counters| counters.store.get("redo_syncs").copied().unwrap_or(0));
    bed.lose_power()?;
    let answer = bed.end()?;
    if answer.is_some_and(|answer| answer.failures.is_empty()) {
        return infra("the changes were complete before the power cut: the fault hit nothing");
    }
    bed.read_acknowledgements()?;
    bed.start_machine()?;
    if let Some(path) = bed.backend.database(&bed.config) {
        // The disk has lost its power, the kernel runs on.
        sqlite::forget_boot(&path)?;
    }
    if !bed.disk()?.has(&synced) {
        return infra("a synced file is missing after the cut, so this was not a power cut");
    }
    Ok(!bed.disk()?.has(&unsynced))
}
