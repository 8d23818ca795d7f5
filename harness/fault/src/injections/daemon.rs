//! Kills of the daemon, and the control scenario without a fault.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use backends::promise::Acknowledgement;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::{IN_USE, ORDERLY_END};
use workloads::fault::Moment;

use super::super::agent::{Answer, Task};
use super::super::bed::{Injected, ScenarioError, TestBed};

/// Changes before the fault, where the scenario's own changes are in flight during it.
const BEFORE: u64 = 20;

/// Changes of a stream: more than fit before the kill.
const MANY: u64 = 100_000;

/// The control scenario without a fault. Every acknowledged change must be present.
pub fn nothing(bed: &mut TestBed) -> Injected {
    bed.injected("nothing");
    bed.open()?;
    let before = bed.counted();
    // Without a fault, a failure is the backend's.
    if let Some(failed) = bed.write_whole(bed.scenario.work.changes)? {
        bed.breach(format!("nothing was broken, and {failed}"));
    }
    bed.count_syncs(before.as_ref());
    bed.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    let is_persistent = bed.backend.describe().capabilities.persistent;
    if let Err(error) = bed.close()? {
        bed.breach(format!("an orderly end: {error}"));
    }
    if is_persistent {
        bed.open()?;
        bed.audit_as(ORDERLY_END, Some(Acknowledgement::Write))?;
    }
    Ok(())
}

/// SIGKILL of the daemon, at the given moment.
pub fn kill(bed: &mut TestBed, when: Moment) -> Injected {
    bed.open()?;
    match when {
        Moment::Idle => {
            bed.fill()?;
            bed.injected("kill -9 of the daemon, nothing under way");
            bed.kill_daemon()?;
            bed.look()?;
        }
        Moment::AfterSync => {
            bed.write(BEFORE)?;
            let task = bed.write_task(MANY);
            bed.begin(&Task::Write(task))?;
            let nth = ChaCha8Rng::seed_from_u64(bed.seed).random_range(20..60);
            await_syncs(bed, nth)?;
            bed.kill_daemon()?;
            bed.injected(format!(
                "kill -9 of the daemon as soon as the agent, which went on, had said that its {nth}th fsync had returned"
            ));
            hit(bed.end()?)?;
        }
        Moment::BeforeSync => {
            bed.fill()?;
            let task = bed.write_task(1);
            let held = bed.perform(&Task::WriteAndHold(task))?;
            if held.is_none_or(|answer| !answer.failures.is_empty()) {
                let message = "nothing was written that could have been synced";
                return Err(ScenarioError::Infra(message.into()));
            }
            bed.injected("kill -9 of the daemon after write returned, before fsync was called");
            bed.kill_daemon()?;
            let synced = bed.perform(&Task::SyncHeld)?;
            if synced.is_some_and(|answer| answer.failures.is_empty()) {
                bed.breach("fsync on a dead mount returned success");
            }
        }
        Moment::Writing => {
            bed.write(BEFORE)?;
            let task = bed.write_task(bed.scenario.work.changes);
            bed.begin(&Task::Write(task))?;
            let after = ChaCha8Rng::seed_from_u64(bed.seed).random_range(2_000..30_000);
            std::thread::sleep(Duration::from_micros(after));
            bed.kill_daemon()?;
            bed.injected(format!(
                "kill -9 of the daemon {:.1} ms into a stream of changes",
                after as f64 / 1e3
            ));
            hit(bed.end()?)?;
        }
    }
    bed.read_acknowledgements()?;
    // Audits the bucket as if the machine were lost with its daemon.
    bed.lose_machine()?;
    bed.come_back()?;
    bed.audit()
}

/// Checks that the kill interrupted the stream of changes.
fn hit(answer: Option<Answer>) -> Injected {
    if answer.is_some_and(|answer| answer.failures.is_empty()) {
        let message = "the changes were made before the daemon was killed: nothing was hit";
        return Err(ScenarioError::Infra(message.into()));
    }
    Ok(())
}

/// Waits until `wanted` more `fsync` calls of the current task have returned.
fn await_syncs(bed: &mut TestBed, wanted: u64) -> Injected {
    let deadline = Instant::now() + bed.hang_limit();
    let syncs = |bed: &mut TestBed| bed.agent().map_or(0, |agent| agent.syncs());
    let before = syncs(bed);
    while syncs(bed) < before + wanted {
        if bed.interrupt.load(Ordering::Relaxed) {
            return Err(ScenarioError::Interrupted);
        }
        if Instant::now() > deadline {
            let message = format!("{wanted} calls of fsync did not return in time");
            return Err(ScenarioError::Infra(message));
        }
        // Shorter than one `fsync` call.
        std::thread::sleep(Duration::from_micros(20));
    }
    Ok(())
}
