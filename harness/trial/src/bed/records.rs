//! The records of a test bed: writing them, reading the acknowledgement log, and auditing them.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use arms::promise::Acknowledgement;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::{Audit, IN_USE, KILLED_DAEMON, MACHINE_LOSS};

use super::super::agent::{Changes, Job, JobAnswer};
use super::super::audit::check;
use super::super::record::LOG_LINES;
use super::super::second_mount::SecondMount;
use super::mount::MOUNT;
use super::{ScenarioError, StepResult, TestBed, infra};

/// More changes than fit before a stream of them is interrupted.
pub const STREAM: u64 = 100_000;

impl TestBed {
    /// A random number that follows from the seed.
    pub fn random(&self, range: Range<u64>) -> u64 {
        ChaCha8Rng::seed_from_u64(self.seed).random_range(range)
    }

    /// The next changes, with the settings of the scenario.
    pub fn changes(&self, changes: u64) -> Changes {
        let work = self.scenario.work;
        Changes {
            acknowledgements: self.acknowledgements(),
            seed: self.seed,
            first: self.next_change,
            changes,
            records: work.records,
            bytes: work.bytes,
            sync: work.sync,
            log: work.log,
            long: false,
        }
    }

    /// Begins to make changes.
    pub fn begin_changes(&mut self, changes: u64) -> StepResult {
        self.begin(self.root(), &Job::Change(self.changes(changes)))
    }

    /// Makes changes, waits for the answer, and reads the acknowledgement log.
    pub fn write(&mut self, changes: u64) -> StepResult<Option<JobAnswer>> {
        self.begin_changes(changes)?;
        let answer = self.end()?;
        self.read_acknowledgements()?;
        Ok(answer)
    }

    /// Makes changes, and returns the first failure.
    pub fn write_whole(&mut self, changes: u64) -> StepResult<Option<String>> {
        Ok(match self.write(changes)? {
            None => Some("the agent hung or ended".to_owned()),
            Some(answer) => answer.failure(),
        })
    }

    /// Writes one record, and keeps its file open in the agent process. Returns whether that succeeded.
    pub fn hold(&mut self) -> StepResult<bool> {
        self.succeeds(self.root(), &Job::ChangeAndHold(self.changes(1)))
    }

    /// Makes all of the scenario's changes while no fault is active. A failure is then the harness's.
    pub fn fill(&mut self) -> StepResult {
        match self.write_whole(self.scenario.work.changes)? {
            None => Ok(()),
            Some(failed) => infra(format!("before the fault, {failed}")),
        }
    }

    /// Opens the workspace, and makes all of the scenario's changes.
    pub fn open_and_fill(&mut self) -> StepResult {
        self.open()?;
        self.fill()
    }

    /// Makes changes after a fault that must have no lasting effect. A failure is a breach.
    pub fn fill_again(&mut self) -> StepResult {
        if let Some(failed) = self.write_whole(10)? {
            self.breach(format!("it does not work as before: {failed}"));
        }
        Ok(())
    }

    /// Forgets the changes of records that another agent process has removed.
    pub fn forget_removed(&mut self) {
        self.history.forget(0..LOG_LINES);
    }

    /// Adds the acknowledgement log to the history, and removes the log.
    pub fn read_acknowledgements(&mut self) -> StepResult {
        let path = self.acknowledgements();
        let log = match std::fs::read_to_string(&path) {
            Ok(log) => log,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        std::fs::remove_file(&path)?;
        let until = self.acknowledged_before_cut.take();
        let until = until.map_or(log.len(), |bytes| log.len().min(bytes as usize));
        self.history.read(&log, until).map_err(ScenarioError::Infra)?;
        // A killed agent process did not report its last change.
        let steps = self.history.records().values().flatten();
        let last = steps.map(|step| step.version).max().unwrap_or(0);
        self.next_change = self.next_change.max(last + 1);
        Ok(())
    }

    /// Audits all records. After the loss of a daemon, the backend's promise applies. Otherwise a mount
    /// must show every acknowledged change.
    pub fn audit(&mut self) -> StepResult {
        if self.has_lost_daemon {
            self.audit_as(KILLED_DAEMON, self.backend.promises().killed_daemon)
        } else {
            self.audit_as(IN_USE, Some(Acknowledgement::Write))
        }
    }

    /// As [`TestBed::audit`], against the given promise, recorded under the name `what`.
    pub fn audit_as(&mut self, what: &str, promised: Option<Acknowledgement>) -> StepResult {
        let audit = self.audit_promise(promised)?;
        self.audited(what, audit);
        Ok(())
    }

    /// As [`TestBed::audit_as`], without recording the audit in the outcome.
    pub fn audit_promise(&mut self, promised: Option<Acknowledgement>) -> StepResult<Audit> {
        self.read_acknowledgements()?;
        self.sweep();
        if let Some(beside) = &self.beside {
            return Ok(Audit::unknown(beside));
        }
        let Some(answer) = self.perform(self.root(), &Job::ReadRecords(self.seed))? else {
            return Ok(Audit::unknown("reading the records hung"));
        };
        Ok(match unread(&answer) {
            Some(reason) => Audit {
                acknowledged: self.history.acknowledged_since(0),
                unreadable: self.history.records().len() as u64,
                ..Audit::unknown(reason)
            },
            None => check(&self.history, &answer.found, promised),
        })
    }

    /// Runs `ctxbench s3 sync` and kills the daemon as soon as it returns, so that the daemon sends nothing
    /// afterwards. All acknowledged changes then count as acknowledged by `sync`. Returns the failure of
    /// the sync.
    pub fn sync_and_kill(&mut self) -> StepResult<Result<(), String>> {
        let answer = self.perform(self.root(), &Job::Sync)?;
        let failed = match &answer {
            None => Some("it hung".to_owned()),
            Some(answer) => answer.failures.first().map(|failure| failure.text.clone()),
        };
        if let Some(failed) = failed {
            return Ok(Err(failed));
        }
        self.kill_daemon()?;
        self.read_acknowledgements()?;
        self.history.acknowledge_all(Acknowledgement::Sync);
        Ok(Ok(()))
    }

    /// Audits a second machine's mount of the bucket, if there is a bucket.
    pub fn lose_machine(&mut self) -> StepResult {
        if let Some(audit) = self.audit_machine_loss()? {
            self.audited(MACHINE_LOSS, audit);
        }
        Ok(())
    }

    /// Audits the records on a second machine that mounts the bucket without a cache. `None` without a
    /// bucket.
    pub fn audit_machine_loss(&mut self) -> StepResult<Option<Audit>> {
        let Some(promised) = self.backend.promises().machine_loss else {
            return Ok(None);
        };
        let beside = self.config.dir.join("machine");
        let second = SecondMount::start(&*self.backend, &self.config, &beside)?;
        let root = match &second {
            SecondMount::Mounted(second) => second.root().to_owned(),
            SecondMount::NoMount => return Ok(None),
            SecondMount::Refused(words) => {
                return Ok(Some(Audit::unknown(format!("another machine: {words}"))));
            }
        };
        let audit = self.audit_through(root, Some(promised))?;
        // The agent process had files of the second mount open.
        second.end();
        std::fs::remove_dir_all(&beside)?;
        Ok(Some(audit))
    }

    /// Audits the records as another mount shows them.
    pub fn audit_through(&mut self, root: PathBuf, promised: Option<Acknowledgement>) -> StepResult<Audit> {
        Ok(match self.perform(root, &Job::ReadRecords(self.seed))? {
            None => Audit::unknown("reading the records hung"),
            Some(answer) => match answer.failure() {
                Some(failure) => Audit::unknown(failure),
                None => check(&self.history, &answer.found, promised),
            },
        })
    }
}

/// Why no record's state is known after reading them: there is no listing, or no mount. A failed read concerns
/// only its record.
pub fn unread(answer: &JobAnswer) -> Option<String> {
    let mut failures = answer.failures.iter();
    let failure = failures.find(|failure| matches!(failure.call.as_str(), "readdir" | MOUNT))?;
    Some(format!("{}: {}", failure.call, failure.text))
}
