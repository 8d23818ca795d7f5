//! Crash points: kills the daemon at seeded moments of a stream of changes, remounts and audits every
//! record, many times on one store. The seed determines the delay and the changes. The state that a kill
//! hits depends on scheduling.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use arms::promise::Acknowledgement;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::{Audit, AuditVerdict, CrashMethod, CrashPoints, KILLED_DAEMON, Return, Status};
use rustix::io::Errno;
use workloads::fault::SyncClass;

use super::agent::{Job, JobAnswer};
use super::audit::{check, locate};
use super::bed::{STREAM, ScenarioError, StepResult, TestBed, unread};

/// Longest time of work before a kill, in microseconds. It fits about twenty changes.
pub const LONGEST_US: u64 = 12_000;

/// The same for a stream with `ctxbench s3 sync` after every tenth change, so that some kills fall into a
/// sync.
pub const LONGEST_SYNC_US: u64 = 60_000;

/// The results of all points so far.
pub struct Hits {
    /// Their line in the run directory.
    pub line: CrashPoints,
    /// Whether some records are long ones.
    pub has_long: bool,
    /// Unknown files next to the records at the first broken promise.
    pub beside: Option<String>,
    recoveries: Recoveries,
}

/// Recovery times, in milliseconds.
#[derive(Debug, Default)]
pub struct Recoveries(Vec<f64>);

impl Recoveries {
    /// Adds one.
    pub fn add(&mut self, ms: f64) {
        self.0.push(ms);
    }

    /// The median and the longest; 0 without any. The median of an even number is the upper of the middle two.
    pub fn median_and_longest(&self) -> (f64, f64) {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |at: usize| sorted.get(at).copied().unwrap_or(0.0);
        (at(sorted.len() / 2), at(sorted.len().saturating_sub(1)))
    }
}

/// Counts a point at which something is so.
pub fn count(points: &mut Option<u64>, is_so: bool) {
    *points.get_or_insert(0) += u64::from(is_so);
}

/// Whether another point can follow. A break holds the reason.
pub type Next = ControlFlow<String>;

/// Whether a call failed because its request was in flight when the daemon ended. Later calls get
/// `ENOTCONN`.
fn was_with_daemon(answer: &JobAnswer) -> bool {
    let aborted = Some(Errno::CONNABORTED.raw_os_error());
    let mut failures = answer.failures.iter();
    failures.any(|failure| failure.errno == aborted)
}

impl Hits {
    /// No point of this loss yet.
    pub fn new(bed: &TestBed, loss: &str) -> Self {
        // Of a lost machine, only broken promises are counted.
        let counted = (loss == KILLED_DAEMON).then_some(0);
        let line = CrashPoints {
            seed: bed.seed,
            method: Some(CrashMethod::Kill),
            in_flight: counted,
            exposed: counted,
            unacknowledged: counted,
            newly_acknowledged: counted,
            broken: Some(0),
            audit: Audit::default(),
            ..CrashPoints::not_run(&bed.outcome.backend, loss, Status::Ran, "")
        };
        Self { line, has_long: false, beside: None, recoveries: Recoveries::default() }
    }

    /// Kills the daemon of an open test bed at a seeded moment of its work, remounts and audits every
    /// record. Breaks with the reason if that fails.
    pub fn hit(&mut self, bed: &mut TestBed, point: u64) -> StepResult<Next> {
        let mut dice = ChaCha8Rng::seed_from_u64(bed.seed.wrapping_mul(0x9e37).wrapping_add(point));
        let has_bucket = bed.backend.promises().machine_loss.is_some();
        let mut changes = bed.changes(STREAM);
        changes.log = dice.random_range(0..2) == 0;
        changes.long = self.has_long;
        changes.sync = match dice.random_range(0..8) {
            0 | 1 => SyncClass::Fsync,
            2 if has_bucket => SyncClass::Sync,
            _ => SyncClass::Close,
        };
        let longest = match changes.sync {
            SyncClass::Sync => LONGEST_SYNC_US,
            _ => LONGEST_US,
        };
        let first = changes.first;
        bed.begin(bed.root(), &Job::Change(changes))?;
        let after = Duration::from_micros(dice.random_range(0..longest));
        std::thread::sleep(after);
        let exit_reason = bed.kill_daemon()?;
        let answer = bed.end()?;
        let line = &mut self.line;
        line.died_by_itself += u64::from(exit_reason.is_some());
        let is_in_flight = answer.as_ref().is_some_and(was_with_daemon);
        count(&mut line.in_flight, is_in_flight);
        bed.read_acknowledgements()?;
        let acknowledged = bed.history.acknowledged_since(first);
        count(&mut line.newly_acknowledged, !acknowledged.is_empty());
        count(&mut line.exposed, is_in_flight || !acknowledged.is_empty());
        let is_left = bed.history.has_unacknowledged_since(first);
        count(&mut line.unacknowledged, is_left);
        self.look(bed, point, acknowledged)
    }

    /// Remounts after a kill and audits every record. `acknowledged` counts the changes acknowledged since
    /// the last audit.
    pub fn look(&mut self, bed: &mut TestBed, point: u64, acknowledged: BTreeMap<String, u64>) -> StepResult<Next> {
        self.line.points += 1;
        let promised = bed.backend.promises().killed_daemon;
        bed.workspace = None;
        let started = Instant::now();
        if let Err(error) = bed.open() {
            let ScenarioError::Infra(reason) = error else {
                return Err(error);
            };
            return Ok(self.gone(bed, point, started, reason));
        }
        self.recoveries.add(started.elapsed().as_secs_f64() * 1e3);
        let answer = bed.perform(bed.root(), &Job::ReadRecords(bed.seed))?;
        let hung = || Err("reading the records hung".to_owned());
        let answer = answer.map_or_else(hung, |answer| unread(&answer).map_or(Ok(answer), Err));
        let answer = match answer {
            Ok(answer) => answer,
            Err(reason) => return Ok(self.gone(bed, point, started, reason)),
        };
        let mut found = check(&bed.history, &answer.found, promised);
        locate(&mut found, &format!("point {point}"));
        // Each change counts once, at the point before which it was acknowledged.
        found.acknowledged = acknowledged;
        self.line.audit.add(&found);
        let class = promised.unwrap_or(Acknowledgement::Sync);
        // After a recovery every record must be readable.
        if found.verdict != AuditVerdict::Valid {
            count(&mut self.line.broken, true);
            bed.history.adopt(&answer.found, class);
            if let Some(beside) = answer.facts.get("beside") {
                let beside: String = beside.to_string().chars().take(400).collect();
                self.beside.get_or_insert(format!("point {point}: beside the records: {beside}"));
            }
        } else {
            bed.history.settle(&answer.found, class);
        }
        Ok(Next::Continue(()))
    }

    /// Records the worst result: the store does not recover, so no record is readable.
    fn gone(&mut self, bed: &mut TestBed, point: u64, since: Instant, reason: String) -> Next {
        let reason = format!("after point {point} it did not recover: {reason}");
        bed.recovered(Return::Never, since.elapsed(), Some(reason.clone()));
        bed.breach(reason.clone());
        count(&mut self.line.broken, true);
        let mut audit = Audit::unknown(&reason);
        audit.verdict = AuditVerdict::Invalid;
        audit.unreadable = bed.history.records().len() as u64;
        audit.examples.push(reason.clone());
        self.line.audit.add(&audit);
        Next::Break(reason)
    }

    /// The median and the longest recovery time, in milliseconds.
    pub fn recovery_ms(&self) -> (f64, f64) {
        self.recoveries.median_and_longest()
    }
}

#[cfg(test)]
mod tests {
    use rundir::faults::AgentEventKind;

    use super::*;
    use crate::agent::Failure;

    #[test]
    fn only_an_aborted_request_counts_as_in_flight() {
        let answer = |errno| JobAnswer {
            failures: vec![Failure {
                call: "write".to_owned(),
                what: AgentEventKind::Errno,
                errno: Some(errno),
                text: String::new(),
            }],
            ..JobAnswer::default()
        };
        assert!(was_with_daemon(&answer(103)), "ECONNABORTED");
        assert!(!was_with_daemon(&answer(107)), "ENOTCONN: asked afterwards");
        assert!(!was_with_daemon(&JobAnswer::default()));
    }
}
