//! The process that serves the files is killed.

use std::time::{Duration, Instant};

use backends::promise::Acknowledgement;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reports::faults::{IN_USE, ORDERLY_END};
use workloads::fault::Moment;

use super::super::agent::{Answer, Task};
use super::super::stage::{Played, Spoiled, Stage};

/// Changes before anything is broken, where the scenario's own are the ones under way when it is.
const BEFORE: u64 = 20;

/// More changes than are made before the daemon is hit.
const MANY: u64 = 100_000;

/// Nothing is broken. What is promised of a whole world is everything.
pub fn nothing(stage: &mut Stage) -> Played {
    stage.injected("nothing");
    stage.open()?;
    let before = stage.counted();
    // The control: what fails here is the backend's doing, and not a fault's.
    if let Some(failed) = stage.write_whole(stage.scenario.work.changes)? {
        stage.breach(format!("nothing was broken, and {failed}"));
    }
    stage.count_syncs(before.as_ref());
    stage.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    let is_persistent = stage.backend.describe().capabilities.persistent;
    if let Err(error) = stage.close()? {
        stage.breach(format!("an orderly end: {error}"));
    }
    if is_persistent {
        stage.open()?;
        stage.audit_as(ORDERLY_END, Some(Acknowledgement::Write))?;
    }
    Ok(())
}

/// `kill -9`, at one of the moments.
pub fn kill(stage: &mut Stage, when: Moment) -> Played {
    stage.open()?;
    match when {
        Moment::Idle => {
            stage.fill()?;
            stage.injected("kill -9 of the daemon, nothing under way");
            stage.kill_daemon()?;
            stage.look()?;
        }
        Moment::AfterSync => {
            stage.write(BEFORE)?;
            let task = stage.write_task(MANY);
            stage.begin(&Task::Write(task))?;
            let nth = ChaCha8Rng::seed_from_u64(stage.seed).random_range(20..60);
            await_syncs(stage, nth)?;
            stage.kill_daemon()?;
            stage.injected(format!(
                "kill -9 of the daemon as soon as the agent, which went on, had said that its {nth}th fsync had returned"
            ));
            hit(stage.end()?)?;
        }
        Moment::BeforeSync => {
            stage.fill()?;
            let task = stage.write_task(1);
            let held = stage.perform(&Task::WriteAndHold(task))?;
            if held.is_none_or(|answer| !answer.failures.is_empty()) {
                let message = "nothing was written that could have been synced";
                return Err(Spoiled::Infra(message.into()));
            }
            stage.injected("kill -9 of the daemon after write returned, before fsync was called");
            stage.kill_daemon()?;
            let synced = stage.perform(&Task::SyncHeld)?;
            if synced.is_some_and(|answer| answer.failures.is_empty()) {
                stage.breach("fsync on a dead mount returned success");
            }
        }
        Moment::Writing => {
            stage.write(BEFORE)?;
            let task = stage.write_task(stage.scenario.work.changes);
            stage.begin(&Task::Write(task))?;
            let after = ChaCha8Rng::seed_from_u64(stage.seed).random_range(2_000..30_000);
            std::thread::sleep(Duration::from_micros(after));
            stage.kill_daemon()?;
            stage.injected(format!(
                "kill -9 of the daemon {:.1} ms into a stream of changes",
                after as f64 / 1e3
            ));
            hit(stage.end()?)?;
        }
    }
    stage.read_acknowledgements()?;
    // As if the machine had gone with its daemon.
    stage.lose_machine()?;
    stage.come_back()?;
    stage.audit()
}

/// A stream of changes has to be cut off by what was done meanwhile.
fn hit(answer: Option<Answer>) -> Played {
    if answer.is_some_and(|answer| answer.failures.is_empty()) {
        let message = "the changes were made before the daemon was killed: nothing was hit";
        return Err(Spoiled::Infra(message.into()));
    }
    Ok(())
}

/// Waits until so many calls of `fsync` have returned in the task that was just given.
fn await_syncs(stage: &mut Stage, wanted: u64) -> Played {
    let deadline = Instant::now() + stage.hang_limit();
    let syncs = |stage: &mut Stage| stage.agent().map_or(0, |agent| agent.syncs());
    let before = syncs(stage);
    while syncs(stage) < before + wanted {
        if stage.interrupt.is_set() {
            return Err(Spoiled::Interrupted);
        }
        if Instant::now() > deadline {
            let message = format!("{wanted} calls of fsync did not return in time");
            return Err(Spoiled::Infra(message));
        }
        // Less than a call of fsync takes.
        std::thread::sleep(Duration::from_micros(20));
    }
    Ok(())
}
