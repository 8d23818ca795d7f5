//! The records of a stage: writing them, reading what was acknowledged, and saying what became of them.

use std::io;

use backends::promise::Acknowledgement;
use reports::faults::{Audit, KILLED_DAEMON, POWER_LOSS};
use workloads::fault::SyncClass;

use super::super::agent::{Answer, LastCall, Task, WriteTask};
use super::super::check::check;
use super::super::record::LOG_LINES;
use super::super::second::{Second, SecondMount};
use super::{Played, Spoiled, Stage};

impl Stage {
    /// The task that makes so many changes as the scenario says.
    pub fn write_task(&self, changes: u64) -> WriteTask {
        let work = self.scenario.work;
        WriteTask {
            root: self.root(),
            acknowledgements: self.acknowledgements(),
            seed: self.seed,
            first: self.next_change,
            changes,
            records: work.records,
            bytes: work.bytes,
            sync: match work.sync {
                SyncClass::Close => LastCall::Close,
                SyncClass::Fsync => LastCall::Fsync,
                SyncClass::Sync => LastCall::Sync,
            },
            log: work.log,
            pause_us: 0,
        }
    }

    /// Makes so many changes, waits for them, and reads what was acknowledged.
    pub fn write(&mut self, changes: u64) -> Played<Option<Answer>> {
        let task = Task::Write(self.write_task(changes));
        let answer = self.perform(&task)?;
        self.read_acknowledgements()?;
        Ok(answer)
    }

    /// Makes all of the scenario's changes, in a whole world: what fails is not the fault's doing.
    pub fn fill(&mut self) -> Played {
        match self.write(self.scenario.work.changes)? {
            Some(answer) if answer.failures.is_empty() => Ok(()),
            Some(answer) => {
                let first = &answer.failures[0];
                let (call, text) = (&first.call, &first.text);
                Err(Spoiled::Infra(format!(
                    "before anything was broken, {call} failed: {text}"
                )))
            }
            None => Err(Spoiled::Infra(
                "before anything was broken, the agent hung or ended".into(),
            )),
        }
    }

    /// Makes changes after something that must not have mattered; what fails is a breach.
    pub fn fill_again(&mut self) -> Played {
        let failed = match self.write(10)? {
            None => Some("it hung, or the agent ended".to_owned()),
            Some(answer) => {
                let first = answer.failures.first();
                first.map(|failure| format!("{}: {}", failure.call, failure.text))
            }
        };
        if let Some(failed) = failed {
            self.breach(format!("it does not go on as before: {failed}"));
        }
        Ok(())
    }

    /// Somebody else has removed the records: what was done to them so far says nothing any more.
    pub fn forget_removed(&mut self) {
        self.history.forget_below(LOG_LINES);
    }

    /// Takes what was acknowledged since the last time into the history.
    pub fn read_acknowledgements(&mut self) -> Played {
        let path = self.acknowledgements();
        let log = match std::fs::read_to_string(&path) {
            Ok(log) => log,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        std::fs::remove_file(&path)?;
        self.history.read(&log).map_err(Spoiled::Infra)?;
        // An agent that was killed did not say how far it came.
        let steps = self.history.records().values().flatten();
        let last = steps.map(|step| step.version).max().unwrap_or(0);
        self.next_change = self.next_change.max(last + 1);
        Ok(())
    }

    /// Reads all records and says what became of them; `loss` is what they went through.
    pub fn audit(&mut self, loss: &str) -> Played {
        let promises = self.backend.promises();
        let promised = match loss {
            KILLED_DAEMON => promises.killed_daemon,
            POWER_LOSS => promises.power_loss,
            _ => promises.machine_loss,
        };
        let audit = self.audit_promise(promised)?;
        self.outcome.audits.insert(loss.to_owned(), audit);
        Ok(())
    }

    /// As [`Stage::audit`], by what is said to be promised; the outcome does not get it.
    pub fn audit_promise(&mut self, promised: Option<Acknowledgement>) -> Played<Audit> {
        self.read_acknowledgements()?;
        let task = Task::ReadRecords {
            root: self.root(),
            seed: self.seed,
        };
        let Some(answer) = self.perform(&task)? else {
            return Ok(Audit::unknown("reading the records hung"));
        };
        let mut failures = answer.failures.iter();
        // Without a listing nothing is known of any; a record that cannot be read is one.
        if let Some(failure) = failures.find(|failure| failure.call == "readdir") {
            let known = check(&self.history, &answer.found, None);
            let mut audit = Audit::unknown(format!("readdir: {}", failure.text));
            audit.acknowledged = known.acknowledged;
            audit.unreadable = self.history.records().len() as u64;
            return Ok(audit);
        }
        Ok(check(&self.history, &answer.found, promised))
    }

    /// What another machine finds in the bucket, without this one's cache; `None` where there is no bucket.
    pub fn audit_machine_loss(&mut self) -> Played<Option<Audit>> {
        let Some(promised) = self.backend.promises().machine_loss else {
            return Ok(None);
        };
        let beside = self.site.dir.join("machine");
        let second = match SecondMount::start(&*self.backend, &self.site, &beside)? {
            Second::Mounted(second) => second,
            Second::NoMount => return Ok(None),
            Second::Refused(words) => {
                return Ok(Some(Audit::unknown(format!("another machine: {words}"))));
            }
        };
        let task = Task::ReadRecords {
            root: second.root().to_owned(),
            seed: self.seed,
        };
        let answer = self.perform(&task)?;
        // Whoever reads has files of it open.
        drop(second);
        std::fs::remove_dir_all(&beside)?;
        Ok(Some(match answer {
            None => Audit::unknown("reading the records hung"),
            Some(answer) => match answer.failures.first() {
                Some(failure) => Audit::unknown(format!("{}: {}", failure.call, failure.text)),
                None => check(&self.history, &answer.found, Some(promised)),
            },
        }))
    }
}
