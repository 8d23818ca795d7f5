//! The process that serves the files is killed.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reports::faults::{Fact, KILLED_DAEMON, MACHINE_LOSS};
use workloads::fault::Moment;

use super::super::agent::Task;
use super::super::stage::{Played, Spoiled, Stage};

/// Changes before anything is broken, where the scenario's own are the ones under way when it is.
const BEFORE: u64 = 20;

/// Nothing is broken. What is promised of a whole world is everything.
pub fn nothing(stage: &mut Stage) -> Played {
    stage.injected("nothing");
    stage.open()?;
    let before = stage.counters();
    stage.fill()?;
    count_syncs(stage, before.as_ref());
    let audit = stage.audit_promise(Some(backends::promise::Acknowledgement::Write))?;
    let is_persistent = stage.backend.describe().capabilities.persistent;
    stage.outcome.audits.insert("in-use".to_owned(), audit);
    if let Err(error) = stage.close()? {
        stage.breach(format!("an orderly end: {error}"));
    }
    if is_persistent {
        stage.open()?;
        let audit = stage.audit_promise(Some(backends::promise::Acknowledgement::Write))?;
        stage.outcome.audits.insert("orderly-end".to_owned(), audit);
    }
    Ok(())
}

/// The backend's own syncs and uploads for each `fsync` that returned, by its own counters.
fn count_syncs(stage: &mut Stage, before: Option<&backends::fuse::Counters>) {
    let (Some(before), Some(after)) = (before, stage.counters()) else {
        return;
    };
    let fsyncs = |counters: &backends::fuse::Counters| {
        use backends::fuse::Opcode;
        counters.count(Opcode::Fsync) + counters.count(Opcode::Fsyncdir)
    };
    let asked = fsyncs(&after) - fsyncs(before);
    if asked == 0 {
        return;
    }
    stage.fact("fsyncs", Fact::Count(asked));
    for (name, fact) in [
        ("log_syncs", "own_syncs_per_fsync"),
        ("s3_put", "puts_per_fsync"),
    ] {
        if let Some(now) = after.store.get(name) {
            let then = before.store.get(name).copied().unwrap_or(0);
            stage.fact(fact, Fact::Number((now - then) as f64 / asked as f64));
        }
    }
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
            stage.fill()?;
            stage.injected("kill -9 of the daemon, right after fsync of the last change returned");
            stage.kill_daemon()?;
            stage.look()?;
        }
        Moment::BeforeSync => {
            stage.fill()?;
            let task = stage.write_task(1);
            stage.perform(&Task::WriteAndHold(task))?;
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
            let answer = stage.end()?;
            if answer.is_some_and(|answer| answer.failures.is_empty()) {
                let message = "the changes were made before the daemon was killed: nothing was hit";
                return Err(Spoiled::Infra(message.into()));
            }
        }
    }
    stage.read_acknowledgements()?;
    // As if the machine had gone with its daemon.
    if let Some(audit) = stage.audit_machine_loss()? {
        stage.outcome.audits.insert(MACHINE_LOSS.to_owned(), audit);
    }
    stage.come_back()?;
    stage.audit(KILLED_DAEMON)
}
