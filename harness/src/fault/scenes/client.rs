//! The agent is killed, or asks for very much, or for odd things.

use std::time::{Duration, Instant};

use backends::promise::Acknowledgement;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reports::faults::{Fact, IN_USE, Return, SeenKind};
use rustix::process::Signal;

use super::super::agent::{Answer, ClientTask, ShareTask, Task};
use super::super::record::DIR;
use super::super::stage::{Played, Spoiled, Stage};
use super::super::watch::Agent;

/// One task of one agent: its facts are the outcome's.
pub fn ask(stage: &mut Stage, what: String, task: ClientTask) -> Played<Option<Answer>> {
    if stage.workspace.is_none() {
        stage.open()?;
    }
    // Data that is none of the agent's business, and must not suffer.
    stage.fill()?;
    stage.injected(what);
    let answer = stage.perform(&Task::Client(task))?;
    if let Some(answer) = &answer {
        for (name, fact) in answer.facts.clone() {
            if name == "done" && fact != Fact::Count(1) {
                stage.breach("the agent could not do it");
            }
            stage.fact(&name, fact);
        }
        if answer
            .failures
            .iter()
            .any(|failure| failure.what == SeenKind::WrongBytes)
        {
            stage.breach("the agent saw what is not so");
        }
    }
    // Whatever was asked, the next must be answered.
    if let Err(reason) = stage.is_usable()? {
        stage.breach(format!("it cannot be used afterwards: {reason}"));
        stage.come_back()?;
    }
    stage.audit()?;
    Ok(answer)
}

/// The agent is killed while it writes.
pub fn killed(stage: &mut Stage) -> Played {
    stage.open()?;
    stage.write(20)?;
    let lock = ShareTask::TryLock {
        file: stage.root().join("lock"),
    };
    stage.perform(&Task::Share(lock.clone()))?;
    let task = stage.write_task(stage.scenario.work.changes);
    stage.begin(&Task::Write(task))?;
    let after = ChaCha8Rng::seed_from_u64(stage.seed).random_range(5_000..40_000);
    std::thread::sleep(Duration::from_micros(after));
    if let Some(agent) = stage.agent() {
        agent.signal(Signal::KILL);
    }
    stage.injected(format!(
        "kill -9 of the agent {:.1} ms into a stream of changes, while it held a lock",
        after as f64 / 1e3
    ));
    let killed = Instant::now();
    if stage.end()?.is_some() {
        return Err(Spoiled::Infra(
            "the agent was done before it was killed".into(),
        ));
    }
    let usable = stage.is_usable()?;
    let ms = killed.elapsed().as_millis() as u64;
    match usable {
        Ok(()) => stage.recovered(Return::ByItself, ms, None),
        Err(reason) => {
            stage.breach(format!(
                "it cannot be used after its agent was killed: {reason}"
            ));
            stage.come_back()?;
        }
    }
    let locked = stage.perform(&Task::Share(lock))?;
    let is_free = locked.is_some_and(|answer| answer.facts.get("locked") == Some(&Fact::Count(1)));
    if !is_free {
        stage.breach("the lock of an agent that was killed is still held");
    }
    stage.read_acknowledgements()?;
    stage.audit()
}

/// One agent removes what another one writes.
pub fn removed(stage: &mut Stage) -> Played {
    stage.open()?;
    stage.write(100)?;
    let task = stage.write_task(stage.scenario.work.changes);
    stage.begin(&Task::Write(task))?;
    std::thread::sleep(Duration::from_millis(20));
    let mut other = Agent::start(stage.program())?;
    let dir = stage.root().join(DIR);
    other.ask(&Task::Client(ClientTask::RemoveTree { dir }))?;
    stage.injected("rm -rf of the records' directory, 20 ms into a stream of changes in it");
    if let (Some(answer), _) = stage.end_of(other)? {
        for (name, fact) in answer.facts {
            stage.fact(&format!("rm_{name}"), fact);
        }
        for failure in answer.failures {
            stage.breach(format!("rm -rf: {}", failure.text));
        }
    }
    if stage
        .end()?
        .is_some_and(|writer| writer.failures.is_empty())
    {
        let message = "the writer met nothing of the rm -rf: nothing was hit";
        return Err(Spoiled::Infra(message.into()));
    }
    stage.read_acknowledgements()?;
    stage.forget_removed();
    // The next writer starts where there is nothing.
    stage.fill_again()?;
    stage.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    let path = stage.backend.database(&stage.site);
    if let Err(error) = stage.close()? {
        stage.breach(format!("an orderly end: {error}"));
    }
    if let Some(path) = path {
        match backends::sqlite::check(&path) {
            Ok(checked) if checked.problems.is_empty() => {
                stage.fact("check_store", Fact::Words("whole".into()));
            }
            Ok(checked) => stage.breach(format!("the store is not whole: {}", checked.problems[0])),
            Err(error) => stage.breach(format!("the store cannot be checked: {error}")),
        }
    }
    Ok(())
}
