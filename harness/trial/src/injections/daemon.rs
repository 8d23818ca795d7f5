//! Kills of the daemon, and the control scenario without a fault.

use std::time::Duration;

use arms::promise::Acknowledgement;
use rundir::faults::{IN_USE, ORDERLY_END};
use workloads::fault::Moment;

use super::super::agent::{Job, JobAnswer};
use super::super::bed::{STREAM, StepResult, TestBed, infra};

/// Changes before the fault, where the scenario's own changes are in flight during it.
const BEFORE: u64 = 20;

/// The control scenario without a fault. Every acknowledged change must be present.
pub fn nothing(bed: &mut TestBed) -> StepResult {
    bed.injected("nothing");
    bed.open()?;
    let before = bed.counted();
    // Without a fault, a failure is the backend's.
    if let Some(failed) = bed.write_whole(bed.scenario.work.changes)? {
        bed.breach(format!("no fault was injected, and {failed}"));
    }
    bed.count_syncs(before.as_ref());
    bed.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    let is_persistent = bed.backend.describe().capabilities.persistent;
    if let Err(error) = bed.close()? {
        bed.breach(format!("a clean unmount: {error}"));
    }
    if is_persistent {
        bed.open()?;
        bed.audit_as(ORDERLY_END, Some(Acknowledgement::Write))?;
    }
    Ok(())
}

/// SIGKILL of the daemon, at the given moment.
pub fn kill(bed: &mut TestBed, when: Moment) -> StepResult {
    bed.open()?;
    match when {
        Moment::Idle => {
            bed.fill()?;
            bed.injected("kill -9 of the daemon, nothing under way");
            bed.kill_daemon()?;
            bed.perform(bed.root(), &Job::Look)?;
        }
        Moment::AfterSync => {
            bed.write(BEFORE)?;
            bed.begin_changes(STREAM)?;
            let nth = bed.random(20..60);
            await_syncs(bed, nth)?;
            bed.kill_daemon()?;
            bed.injected(format!(
                "kill -9 of the daemon as soon as the agent, which went on, had said that its {nth}th fsync had returned"
            ));
            hit(bed.end()?)?;
        }
        Moment::BeforeSync => {
            bed.fill()?;
            if !bed.hold()? {
                return infra("nothing was written that could have been synced");
            }
            bed.injected("kill -9 of the daemon after write returned, before fsync was called");
            bed.kill_daemon()?;
            if bed.succeeds(bed.root(), &Job::SyncHeld)? {
                bed.breach("fsync on a dead mount returned success");
            }
        }
        Moment::Writing => {
            bed.write(BEFORE)?;
            bed.begin_changes(bed.scenario.work.changes)?;
            let after = bed.random(2_000..30_000);
            std::thread::sleep(Duration::from_micros(after));
            bed.kill_daemon()?;
            bed.injected(format!("kill -9 of the daemon {:.1} ms into a stream of changes", after as f64 / 1e3));
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
fn hit(answer: Option<JobAnswer>) -> StepResult {
    if answer.is_some_and(|answer| answer.failures.is_empty()) {
        return infra("the changes were complete before the daemon was killed: the fault hit nothing");
    }
    Ok(())
}

/// Waits until `wanted` more `fsync` calls of the current job have returned.
fn await_syncs(bed: &mut TestBed, wanted: u64) -> StepResult {
    let syncs = |bed: &mut TestBed| bed.agent().map_or(0, |agent| agent.syncs());
    let enough = syncs(bed) + wanted;
    // Shorter than one `fsync` call.
    let tick = Duration::from_micros(20);
    let limit = bed.hang_limit();
    if bed.wait_until(limit, tick, |bed| Ok(syncs(bed) >= enough))? {
        Ok(())
    } else {
        infra(format!("{wanted} calls of fsync did not return in time"))
    }
}
