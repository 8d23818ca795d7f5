//! Crash points: the daemon is killed at seeded moments of a stream of changes, comes back, and every record is looked
//! at; again and again on one store.

use std::time::{Duration, Instant};

use backends::promise::Acknowledgement;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reports::faults::{Audit, Return};
use workloads::fault::Work;

use super::agent::{LastCall, Task};
use super::check::check;
use super::stage::{Played, Spoiled, Stage};

/// The longest that a daemon works before it is killed, in microseconds: about as long as twenty changes take.
const LONGEST_US: u64 = 12_000;

/// Changes of one point: more than are made before it is hit.
const CHANGES: u64 = 100_000;

/// What is written between two points.
pub struct Settings {
    /// How many records there are at most.
    pub records: u64,
    /// Bytes in each.
    pub bytes: usize,
}

impl Settings {
    /// As a scenario's work says.
    pub fn of_work(work: &Work) -> Self {
        Self {
            records: work.records,
            bytes: work.bytes,
        }
    }
}

/// What came of all points so far.
#[derive(Default)]
pub struct Hits {
    /// How many.
    pub points: u64,
    /// Of those, while a call was under way.
    pub in_flight: u64,
    /// What became of the records, at all points together.
    pub audit: Audit,
    recoveries: Vec<f64>,
}

impl Hits {
    /// Has an open stage's daemon work, kills it, and looks at every record once it is back.
    pub fn hit(&mut self, stage: &mut Stage, settings: &Settings, point: u64) -> Played {
        let mut dice =
            ChaCha8Rng::seed_from_u64(stage.seed.wrapping_mul(0x9e37).wrapping_add(point));
        let mut task = stage.write_task(CHANGES);
        task.records = settings.records;
        task.bytes = settings.bytes;
        // The log would grow for ever; it begins anew every hundred points.
        task.log = false;
        task.sync = match dice.random_range(0..4) {
            0 => LastCall::Fsync,
            _ => LastCall::Close,
        };
        let first = task.first;
        stage.begin(&Task::Write(task))?;
        let after = Duration::from_micros(dice.random_range(0..LONGEST_US));
        std::thread::sleep(after);
        stage.kill_daemon()?;
        let answer = stage.end()?;
        self.points += 1;
        if answer.is_some_and(|answer| !answer.failures.is_empty()) {
            self.in_flight += 1;
        }
        stage.read_acknowledgements()?;
        let promised = stage.backend.promises().killed_daemon;
        stage.workspace = None;
        let started = Instant::now();
        if let Err(error) = stage.open() {
            let Spoiled::Infra(reason) = error else {
                return Err(error);
            };
            let ms = started.elapsed().as_millis() as u64;
            stage.recovered(Return::Never, ms, Some(reason.clone()));
            stage.breach(format!("after point {point}: {reason}"));
            self.audit.add(&Audit::unknown(reason));
            return Ok(());
        }
        self.recoveries.push(started.elapsed().as_secs_f64() * 1e3);
        let task = Task::ReadRecords {
            root: stage.root(),
            seed: stage.seed,
        };
        let Some(answer) = stage.perform(&task)? else {
            self.audit.add(&Audit::unknown("reading the records hung"));
            return Ok(());
        };
        if let Some(failure) = answer
            .failures
            .iter()
            .find(|failure| failure.call == "readdir")
        {
            self.audit.add(&Audit::unknown(&failure.text));
            return Ok(());
        }
        let mut found = check(&stage.history, &answer.found, promised);
        for example in &mut found.examples {
            *example = format!("point {point}: {example}");
        }
        // Each change once, at the point that it was acknowledged before.
        found.acknowledged = stage.history.acknowledged_since(first);
        self.audit.add(&found);
        stage
            .history
            .settle(&answer.found, promised.unwrap_or(Acknowledgement::Sync));
        Ok(())
    }

    /// The median and the longest time of coming back, in milliseconds.
    pub fn recovery_ms(&self) -> (f64, f64) {
        let mut sorted = self.recoveries.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |at: usize| sorted.get(at).copied().unwrap_or(0.0);
        (at(sorted.len() / 2), at(sorted.len().saturating_sub(1)))
    }
}
