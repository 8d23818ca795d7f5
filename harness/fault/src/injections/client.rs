//! Faults of the agent process: a kill, unusual requests, and a removal during writes.

use std::time::{Duration, Instant};

use backends::promise::Acknowledgement;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::{Fact, IN_USE, Return, SeenKind};
use rustix::process::Signal;

use super::super::agent::{Answer, ClientTask, ShareTask, Task};
use super::super::bed::{Injected, ScenarioError, TestBed, infra};
use super::super::record::DIR;
use super::super::watch::Agent;

/// Runs one unusual task, and adds its facts to the outcome.
pub fn ask(bed: &mut TestBed, what: String, task: ClientTask) -> Injected<Option<Answer>> {
    if bed.workspace.is_none() {
        bed.open()?;
    }
    // Records that the task must not affect.
    bed.fill()?;
    bed.injected(what);
    let answer = bed.perform(&Task::Client(task))?;
    if let Some(answer) = &answer {
        for (name, fact) in answer.facts.clone() {
            if name == "done" && fact != Fact::Count(1) {
                bed.breach("the agent could not do it");
            }
            bed.fact(&name, fact);
        }
        if answer
            .failures
            .iter()
            .any(|failure| failure.what == SeenKind::WrongBytes)
        {
            bed.breach("the agent saw what is not so");
        }
    }
    // Whatever the task was, the mount must still be usable.
    if let Err(reason) = bed.is_usable()? {
        bed.breach(format!("it cannot be used afterwards: {reason}"));
        bed.come_back()?;
    }
    bed.audit()?;
    Ok(answer)
}

/// Kills the agent process while it writes.
pub fn killed(bed: &mut TestBed) -> Injected {
    bed.open()?;
    bed.write(20)?;
    let lock = ShareTask::TryLock {
        file: bed.root().join("lock"),
    };
    bed.perform(&Task::Share(lock.clone()))?;
    let task = bed.write_task(bed.scenario.work.changes);
    bed.begin(&Task::Write(task))?;
    let after = ChaCha8Rng::seed_from_u64(bed.seed).random_range(5_000..40_000);
    std::thread::sleep(Duration::from_micros(after));
    if let Some(agent) = bed.agent() {
        agent.signal(Signal::KILL);
    }
    bed.injected(format!(
        "kill -9 of the agent {:.1} ms into a stream of changes, while it held a lock",
        after as f64 / 1e3
    ));
    let killed = Instant::now();
    if bed.end()?.is_some() {
        return infra("the agent was done before it was killed");
    }
    let usable = bed.is_usable()?;
    let ms = killed.elapsed().as_millis() as u64;
    match usable {
        Ok(()) => bed.recovered(Return::ByItself, ms, None),
        Err(reason) => {
            bed.breach(format!(
                "it cannot be used after its agent was killed: {reason}"
            ));
            bed.come_back()?;
        }
    }
    let locked = bed.perform(&Task::Share(lock))?;
    let is_free = locked.is_some_and(|answer| answer.facts.get("locked") == Some(&Fact::Count(1)));
    if !is_free {
        bed.breach("the lock of an agent that was killed is still held");
    }
    bed.read_acknowledgements()?;
    bed.audit()
}

/// One agent process removes the directory in which another one writes.
pub fn removed(bed: &mut TestBed) -> Injected {
    bed.open()?;
    bed.write(100)?;
    let task = bed.write_task(bed.scenario.work.changes);
    bed.begin(&Task::Write(task))?;
    std::thread::sleep(Duration::from_millis(20));
    let mut other = Agent::start(bed.program())?;
    let dir = bed.root().join(DIR);
    other.ask(&Task::Client(ClientTask::RemoveTree { dir }))?;
    bed.injected("rm -rf of the records' directory, 20 ms into a stream of changes in it");
    if let (Some(answer), _) = bed.end_of(other)? {
        for (name, fact) in answer.facts {
            bed.fact(&format!("rm_{name}"), fact);
        }
        for failure in answer.failures {
            bed.breach(format!("rm -rf: {}", failure.text));
        }
    }
    if bed.end()?.is_some_and(|writer| writer.failures.is_empty()) {
        let message = "the writer met nothing of the rm -rf: nothing was hit";
        return Err(ScenarioError::Infra(message.into()));
    }
    bed.read_acknowledgements()?;
    bed.forget_removed();
    // The next writer starts with an empty directory.
    bed.fill_again()?;
    bed.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    let path = bed.backend.database(&bed.config);
    if let Err(error) = bed.close()? {
        bed.breach(format!("an orderly end: {error}"));
    }
    if let Some(path) = path {
        match backends::sqlite::check(&path) {
            Ok(checked) if checked.problems.is_empty() => {
                bed.fact("check_store", Fact::Words("whole".into()));
            }
            Ok(checked) => bed.breach(format!("the store is not whole: {}", checked.problems[0])),
            Err(error) => bed.breach(format!("the store cannot be checked: {error}")),
        }
    }
    Ok(())
}
