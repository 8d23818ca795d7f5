//! Crash points: kills the daemon at seeded moments of a stream of changes, remounts and audits every
//! record, many times on one store. The seed determines the delay and the changes. The state that a kill
//! hits depends on scheduling.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use backends::promise::Acknowledgement;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::{Audit, Return, Verdict};
use rustix::io::Errno;
use workloads::fault::Work;

use super::agent::{Answer, LastCall, Task};
use super::bed::{Injected, MOUNT, ScenarioError, TestBed};
use super::check::check;

/// Longest time of work before a kill, in microseconds. It fits about twenty changes.
pub const LONGEST_US: u64 = 12_000;

/// The same for a stream with `ctxbench s3 sync` after every tenth change, so that some kills fall into a
/// sync.
pub const LONGEST_SYNC_US: u64 = 60_000;

/// Changes of one point: more than fit before the kill.
const CHANGES: u64 = 100_000;

/// What the agent process writes between two points.
pub struct Settings {
    /// The number of records.
    pub records: u64,
    /// Bytes of each record.
    pub bytes: usize,
}

impl Settings {
    /// The settings of a scenario's work.
    pub fn of_work(work: &Work) -> Self {
        Self {
            records: work.records,
            bytes: work.bytes,
        }
    }
}

/// The results of all points so far.
#[derive(Default)]
pub struct Hits {
    /// How many points there were.
    pub points: u64,
    /// Points at which a request was in flight to the daemon.
    pub in_flight: u64,
    /// Points at which a change had begun and was not acknowledged.
    pub unacknowledged: u64,
    /// Points before which at least one new change was acknowledged.
    pub newly_acknowledged: u64,
    /// Points after which a promise was broken.
    pub broken: u64,
    /// How often the daemon had ended before the kill.
    pub died_by_itself: u64,
    /// The audits of all points, added up.
    pub audit: Audit,
    /// Unknown files next to the records at the first broken promise.
    pub beside: Option<String>,
    recoveries: Vec<f64>,
}

/// Whether another point can follow. A break holds the reason.
pub type Next = ControlFlow<String>;

/// Whether a call failed because its request was in flight when the daemon ended. Later calls get
/// `ENOTCONN`.
fn was_with_daemon(answer: &Answer) -> bool {
    let aborted = Some(Errno::CONNABORTED.raw_os_error());
    let mut failures = answer.failures.iter();
    failures.any(|failure| failure.errno == aborted)
}

impl Hits {
    /// Kills the daemon of an open test bed at a seeded moment of its work, remounts and audits every
    /// record. Breaks with the reason if that fails.
    pub fn hit(&mut self, bed: &mut TestBed, settings: &Settings, point: u64) -> Injected<Next> {
        let mut dice = ChaCha8Rng::seed_from_u64(bed.seed.wrapping_mul(0x9e37).wrapping_add(point));
        let has_bucket = bed.backend.promises().machine_loss.is_some();
        let mut task = bed.write_task(CHANGES);
        task.records = settings.records;
        task.bytes = settings.bytes;
        task.log = dice.random_range(0..2) == 0;
        task.sync = match dice.random_range(0..8) {
            0 | 1 => LastCall::Fsync,
            2 if has_bucket => LastCall::Sync,
            _ => LastCall::Close,
        };
        let longest = match task.sync {
            LastCall::Sync => LONGEST_SYNC_US,
            _ => LONGEST_US,
        };
        let first = task.first;
        bed.begin(&Task::Write(task))?;
        let after = Duration::from_micros(dice.random_range(0..longest));
        std::thread::sleep(after);
        let exit_reason = bed.kill_daemon()?;
        let answer = bed.end()?;
        self.died_by_itself += u64::from(exit_reason.is_some());
        self.in_flight += u64::from(answer.as_ref().is_some_and(was_with_daemon));
        bed.read_acknowledgements()?;
        let acknowledged = bed.history.acknowledged_since(first);
        self.newly_acknowledged += u64::from(!acknowledged.is_empty());
        self.unacknowledged += u64::from(bed.history.has_unacknowledged_since(first));
        self.look(bed, point, acknowledged)
    }

    /// Remounts after a kill and audits every record. `acknowledged` counts the changes acknowledged since
    /// the last audit.
    pub fn look(
        &mut self,
        bed: &mut TestBed,
        point: u64,
        acknowledged: BTreeMap<String, u64>,
    ) -> Injected<Next> {
        self.points += 1;
        let promised = bed.backend.promises().killed_daemon;
        bed.workspace = None;
        let started = Instant::now();
        if let Err(error) = bed.open() {
            let ScenarioError::Infra(reason) = error else {
                return Err(error);
            };
            return Ok(self.gone(bed, point, started, reason));
        }
        self.recoveries.push(started.elapsed().as_secs_f64() * 1e3);
        let task = Task::ReadRecords {
            root: bed.root(),
            seed: bed.seed,
        };
        let Some(answer) = bed.perform(&task)? else {
            let reason = "reading the records hung".to_owned();
            return Ok(self.gone(bed, point, started, reason));
        };
        let mut failures = answer.failures.iter();
        if let Some(failure) =
            failures.find(|failure| matches!(failure.call.as_str(), "readdir" | MOUNT))
        {
            let reason = format!("{}: {}", failure.call, failure.text);
            return Ok(self.gone(bed, point, started, reason));
        }
        let mut found = check(&bed.history, &answer.found, promised);
        for example in &mut found.examples {
            *example = format!("point {point}: {example}");
        }
        // Each change counts once, at the point before which it was acknowledged.
        found.acknowledged = acknowledged;
        self.audit.add(&found);
        let class = promised.unwrap_or(Acknowledgement::Sync);
        if found.verdict == Verdict::Invalid {
            self.broken += 1;
            bed.history.adopt(&answer.found, class);
            if let Some(beside) = answer.facts.get("beside") {
                let beside: String = beside.to_string().chars().take(400).collect();
                self.beside
                    .get_or_insert(format!("point {point}: beside the records: {beside}"));
            }
        } else {
            bed.history.settle(&answer.found, class);
        }
        Ok(Next::Continue(()))
    }

    /// Records the worst result: the store does not recover, so no record is readable.
    fn gone(&mut self, bed: &mut TestBed, point: u64, since: Instant, reason: String) -> Next {
        let ms = since.elapsed().as_millis() as u64;
        let reason = format!("after point {point} it did not come back: {reason}");
        bed.recovered(Return::Never, ms, Some(reason.clone()));
        bed.breach(reason.clone());
        self.broken += 1;
        let mut audit = Audit::unknown(&reason);
        audit.verdict = Verdict::Invalid;
        audit.unreadable = bed.history.records().len() as u64;
        audit.examples.push(reason.clone());
        self.audit.add(&audit);
        Next::Break(reason)
    }

    /// The median and the longest recovery time, in milliseconds.
    pub fn recovery_ms(&self) -> (f64, f64) {
        let mut sorted = self.recoveries.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |at: usize| sorted.get(at).copied().unwrap_or(0.0);
        (at(sorted.len() / 2), at(sorted.len().saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use rundir::faults::SeenKind;

    use super::*;
    use crate::agent::Failure;

    #[test]
    fn only_an_aborted_request_counts_as_in_flight() {
        let answer = |errno| Answer {
            failures: vec![Failure {
                call: "write".to_owned(),
                what: SeenKind::Errno,
                errno: Some(errno),
                text: String::new(),
            }],
            ..Answer::default()
        };
        assert!(was_with_daemon(&answer(103)), "ECONNABORTED");
        assert!(!was_with_daemon(&answer(107)), "ENOTCONN: asked afterwards");
        assert!(!was_with_daemon(&Answer::default()));
    }
}
