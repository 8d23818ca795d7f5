//! A crash-point run on one backend: killed daemons, machine losses for a bucket, and simulated power cuts.
//! Single points live in `crash_points` and `power_loss`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use arms::promise::Acknowledgement;
use rundir::faults::{AuditVerdict, CrashMethod, CrashPoints, KILLED_DAEMON, MACHINE_LOSS, Status};

use super::agent::Job;
use super::audit::locate;
use super::bed::{ScenarioError, StepResult, TestBed, infra};
use super::crash_points::{Hits, LONGEST_SYNC_US, LONGEST_US, Next, count};
use super::power_loss::{OpenStore, PowerCuts, store_of};
use super::record::{LOG_LINES, STRANGERS};

/// The most kills between two machine losses, or after which the log of changes begins again.
const POINTS_A_MACHINE: u64 = 50;

/// The fewest kills between two machine losses.
const FEWEST_A_MACHINE: u64 = 10;

/// How many points a series has, and when it ends before.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// The number of points.
    pub points: u64,
    /// When it ends.
    pub until: Option<Instant>,
}

impl Goal {
    /// The number of kills between two machine losses: a short series has a dozen losses, each of which takes longer than a kill.
    fn points_a_machine(&self) -> u64 {
        (self.points / 6).clamp(FEWEST_A_MACHINE, POINTS_A_MACHINE)
    }

    /// Whether a series ends that has `judged` points and would make attempt `attempt`, from 1; with the reason if it ends
    /// early.
    pub fn end(&self, judged: u64, attempt: u64) -> Option<Option<String>> {
        if judged >= self.points {
            return Some(None);
        }
        if self.until.is_some_and(|until| Instant::now() > until) {
            let of = self.points;
            return Some(Some(format!("the time limit ended the series after {judged} of {of} points")));
        }
        // Attempts that cannot be judged must not go on for ever.
        let most = self.points.saturating_mul(2).saturating_add(20);
        (attempt > most).then(|| Some(format!("only {judged} of {} attempts could be judged", attempt - 1)))
    }
}

/// Called with the number of finished points.
pub type CrashPointProgress<'a> = &'a mut dyn FnMut(u64);

/// Kills the daemon until `goal` is reached, with machine losses in between if there is a bucket. Returns the
/// results even if the run ended early; the reason is then in the lines.
pub fn kills(bed: &mut TestBed, goal: Goal, progress: CrashPointProgress<'_>) -> StepResult<Vec<CrashPoints>> {
    let began = Instant::now();
    let mut hits = Hits::new(bed, KILLED_DAEMON);
    hits.has_long = store_of(&bed.outcome.backend).is_some();
    let mut machines = Hits::new(bed, MACHINE_LOSS);
    let ended = all_kills(bed, goal, &mut hits, &mut machines, progress);
    let (status, reason) = match ended {
        Ok(Next::Continue(())) => (Status::Ran, None),
        // A store that does not recover is a result, not a failure of the harness.
        Ok(Next::Break(reason)) => (Status::Ran, Some(reason)),
        Err(ScenarioError::Interrupted) => return Err(ScenarioError::Interrupted),
        Err(ScenarioError::Skipped(reason) | ScenarioError::Infra(reason)) => (Status::Infra, Some(reason)),
    };
    hits.line.audit.examples.extend(hits.beside.take());
    hits.line.recovery_ms = hits.recovery_ms();
    hits.line.how = format!(
        "kill -9 of the daemon, over a real mount, after a delay of 0 to {} ms (0 to {} ms where ctxbench s3 sync is called) that the seed decides, into a stream of changes (of a sqlite store, a sixth of them past the first 256 KiB of a file); which state that hits depends on scheduling. What the kernel's page cache holds survives a kill -9. All records are looked at after each",
        LONGEST_US / 1000,
        LONGEST_SYNC_US / 1000
    );
    machines.line.how = format!(
        "every {} kills the daemon is killed once more, at a moment of its own, and once as soon as ctxbench s3 sync has returned; each time another machine mounts the bucket, without the cache and while the first is dead. The first time only where nothing was broken since the last sync",
        goal.points_a_machine()
    );
    let mut lines = vec![hits.line];
    if bed.backend.promises().machine_loss.is_some() {
        lines.push(machines.line);
    }
    for line in &mut lines {
        line.status = status;
        line.reason.clone_from(&reason);
        line.took_ms = began.elapsed().as_millis() as u64;
    }
    Ok(lines)
}

fn all_kills(
    bed: &mut TestBed,
    goal: Goal,
    hits: &mut Hits,
    machines: &mut Hits,
    progress: CrashPointProgress<'_>,
) -> StepResult<Next> {
    bed.open()?;
    let promises = bed.backend.promises();
    let has_bucket = promises.machine_loss.is_some();
    let log_points = if has_bucket { goal.points_a_machine() } else { POINTS_A_MACHINE };
    let mut broken_at_sync = hits.line.broken;
    for point in 0.. {
        // A kill between two requests shows nothing.
        if let Some(ended) = goal.end(hits.line.exposed_points(), point + 1) {
            return Ok(ended.map_or(Next::Continue(()), Next::Break));
        }
        let next = hits.hit(bed, point)?;
        progress(hits.line.exposed_points());
        if next.is_break() {
            return Ok(next);
        }
        if let Some(class) = promises.killed_daemon
            && !has_bucket
        {
            bed.history.shorten(class);
        }
        if (point + 1) % log_points != 0 {
            continue;
        }
        if has_bucket {
            // Synced changes must be in the bucket. Later changes may be there in part, since any of them
            // may have been uploaded.
            hits.line.died_by_itself += u64::from(bed.kill_daemon()?.is_some());
            // After a broken promise, the expected content of the bucket is unknown.
            if hits.line.broken == broken_at_sync {
                lose_machine(bed, point, machines)?;
            }
            let next = hits.look(bed, point, BTreeMap::new())?;
            if next.is_break() {
                return Ok(next);
            }
        }
        remove_log(bed)?;
        if has_bucket {
            // After the sync, all changes are in the bucket, and the killed daemon uploads nothing more.
            let synced = bed.sync_and_kill()?;
            if let Err(error) = synced {
                return infra(format!("ctxbench s3 sync failed between crash points: {error}"));
            }
            bed.history.shorten(Acknowledgement::Sync);
            lose_machine(bed, point, machines)?;
            let next = hits.look(bed, point, BTreeMap::new())?;
            if next.is_break() {
                return Ok(next);
            }
            broken_at_sync = hits.line.broken;
        }
    }
    Ok(Next::Continue(()))
}

/// Removes the log, which would otherwise grow without bound.
fn remove_log(bed: &mut TestBed) -> StepResult {
    if !bed.succeeds(bed.root(), &Job::RemoveLog)? {
        return infra("the log could not be removed");
    }
    bed.history.forget(LOG_LINES..STRANGERS);
    Ok(())
}

/// Audits what another machine finds in the bucket.
fn lose_machine(bed: &mut TestBed, point: u64, machines: &mut Hits) -> StepResult {
    let Some(mut audit) = bed.audit_machine_loss()? else {
        return infra("there is nothing to mount");
    };
    machines.line.points += 1;
    count(&mut machines.line.broken, audit.verdict != AuditVerdict::Valid);
    locate(&mut audit, &format!("after point {point}"));
    machines.line.audit.add(&audit);
    Ok(())
}

/// Simulates power cuts under a store that `open` opens, until `goal` is reached.
pub fn power_cuts(
    bed: &TestBed,
    open: OpenStore,
    goal: Goal,
    progress: CrashPointProgress<'_>,
) -> StepResult<CrashPoints> {
    let began = Instant::now();
    // In memory if possible: the simulation decides what survives, so real syncs would only cost time.
    let memory = Path::new("/dev/shm");
    let parent = Some(memory).filter(|memory| memory.is_dir());
    let dir = tempfile::Builder::new().prefix("ctxbench-power-").tempdir_in(parent.unwrap_or(&bed.config.dir))?;
    let mut cuts = PowerCuts::new(dir.path(), bed.seed, open)?;
    let mut reason = None;
    for at in 0.. {
        if let Some(ended) = goal.end(cuts.losses.points, at + 1) {
            reason = ended;
            break;
        }
        if bed.interrupt.is_set() {
            return Err(ScenarioError::Interrupted);
        }
        // The recovery is provoked here, so the store's log of it is not worth showing.
        let quiet = tracing::subscriber::NoSubscriber::default();
        if let Err(error) = tracing::subscriber::with_default(quiet, || cuts.cut(at)) {
            if cuts.losses.audit.verdict != AuditVerdict::Invalid {
                return Err(error.into());
            }
            // The failure is counted, and no store is left to continue with.
            reason = Some(format!("point {at}: {error}"));
            break;
        }
        progress(cuts.losses.points);
    }
    Ok(CrashPoints {
        method: Some(CrashMethod::SimulatedFiles),
        how: "SIMULATED, without FUSE: by the seed, each page or sector of the logs and of the content past 256 KiB is as at the last sync of that file or as at the cut, and the names of these tails as at any moment since the last sync of their directory. One point in a hundred calls no fsync, and waits for the sync within five seconds. What was in the page cache when the call returned counts as synced if the store has counted a sync of that log: that the disk was told is not seen".to_owned(),
        reason,
        seed: bed.seed,
        backend: bed.outcome.backend.clone(),
        took_ms: began.elapsed().as_millis() as u64,
        ..cuts.losses
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_series_loses_the_machine_often_enough_for_a_bound_of_a_quarter() {
        // Two losses each time: of 12, none is at most 22 %.
        for (points, every) in [(12, 10), (60, 10), (120, 20), (1000, 50)] {
            assert_eq!(Goal { points, until: None }.points_a_machine(), every, "{points}");
        }
    }
}
