//! The power goes under a store, and with it whatever was not on the disk: again and again, at seeded moments of a stream of
//! changes over a real mount.
//!
//! Simulated: ext4 on a loop device is told to write nothing more, and what the device was given by then is mounted anew. What
//! was dirty in the page cache or in ext4's journal is gone. A write that the device was given counts as kept: a flush that the
//! disk ignores, or that the file system forgets, is not seen. Two control files show that the cut is one: what was synced
//! is there, what was not is not.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reports::faults::{Audit, Fact, POWER_LOSS, Return, Verdict};

use super::super::agent::{LastCall, Task};
use super::super::stage::{Played, Spoiled, Stage};
use super::storage::{disk, on_small_disk};

/// Changes that are synced before each cut.
const SYNCED: u64 = 10;

/// More changes than are made before the cut.
const MANY: u64 = 100_000;

/// Microseconds of the stream of changes after which the power goes.
const MOMENTS_US: std::ops::Range<u64> = 2_000..200_000;

/// What is done, for whoever reads the outcome.
const LABEL: &str = "simulated: the image of the disk under the store, without what was not written back; a flush that the disk itself ignores is not seen";

/// Cuts the power so often.
pub fn play(stage: &mut Stage, mib: u64, cuts: u32) -> Played {
    on_small_disk(stage, mib)?;
    stage.injected(format!(
        "the power of a disk of {mib} MiB under the store was cut {cuts} times, {} to {} ms into a stream of changes",
        MOMENTS_US.start / 1000,
        MOMENTS_US.end / 1000
    ));
    stage.outcome.label = Some(LABEL.to_owned());
    let mut total = Audit::default();
    let mut discarded = 0;
    for at in 1..=cuts {
        if at > 1
            && let Some(failed) = stage.write_whole(SYNCED)?
        {
            stage.breach(format!("after a cut it does not go on: {failed}"));
            break;
        }
        discarded += u64::from(cut(stage, at)?);
        stage.come_back()?;
        let recovery = stage.outcome.recovery.as_ref();
        if recovery.is_none_or(|recovery| recovery.how == Return::Never) {
            total.add(&Audit::unknown(format!("cut {at}: it did not come back")));
            break;
        }
        let mut audit = stage.audit_promise(stage.backend.promises().power_loss)?;
        for example in &mut audit.examples {
            *example = format!("cut {at}: {example}");
        }
        let acknowledged = std::mem::take(&mut audit.acknowledged);
        total.add(&audit);
        // Each change once, however often its record was looked at.
        total.acknowledged = acknowledged;
        total.promised = audit.promised;
        if audit.verdict != Verdict::Valid {
            // What is wrong would be wrong again at each look.
            break;
        }
    }
    stage.fact("cuts", Fact::Count(cuts.into()));
    stage.fact("unsynced_discarded", Fact::Count(discarded));
    if discarded == 0 {
        let message = "what was not synced was there after each cut: nothing was lost that could be, and it proves nothing";
        return Err(Spoiled::Infra(message.into()));
    }
    total.note = Some(format!(
        "records, looked at after each of {cuts} cuts; after {discarded} of them a file that nobody had synced was gone"
    ));
    stage.outcome.audits.insert(POWER_LOSS.to_owned(), total);
    if stage.workspace.is_some() {
        stage.fill_again()?;
    }
    Ok(())
}

/// One cut, and what is left is mounted again. Answers whether what nobody had synced is gone.
fn cut(stage: &mut Stage, at: u32) -> Played<bool> {
    let mut dice = ChaCha8Rng::seed_from_u64(stage.seed.wrapping_mul(0x9e37) ^ u64::from(at));
    let mut task = stage.write_task(MANY);
    // What nobody syncs lies around between what somebody did.
    task.sync = match dice.random_range(0..3) {
        0 => LastCall::Close,
        _ => LastCall::Fsync,
    };
    let (synced, unsynced) = (format!("synced-{at}"), format!("unsynced-{at}"));
    disk(stage)?.plant(&synced, true)?;
    stage.begin(&Task::Write(task))?;
    std::thread::sleep(Duration::from_micros(dice.random_range(MOMENTS_US)));
    disk(stage)?.plant(&unsynced, false)?;
    stage.lose_power()?;
    let answer = stage.end()?;
    if answer.is_some_and(|answer| answer.failures.is_empty()) {
        let message = "the changes were made before the power went: nothing was hit";
        return Err(Spoiled::Infra(message.into()));
    }
    stage.read_acknowledgements()?;
    stage.start_machine()?;
    if !disk(stage)?.has(&synced) {
        let message = "a file that was synced is not there after the cut: it is no power cut";
        return Err(Spoiled::Infra(message.into()));
    }
    Ok(!disk(stage)?.has(&unsynced))
}
