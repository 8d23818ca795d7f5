//! Faults of the agent process: a kill, unusual requests, and a removal during writes.

use std::time::{Duration, Instant};

use arms::promise::Acknowledgement;
use rundir::faults::{AgentEventKind, Fact, IN_USE};
use rustix::process::Signal;

use super::super::agent::Job;
use super::super::agent_process::Agent;
use super::super::bed::{StepResult, TestBed, infra};
use super::super::record::DIR;

/// Makes an unusual request on `name` in a directory of its own, and adds its facts to the outcome.
pub fn ask(bed: &mut TestBed, what: String, name: &str, job: &Job) -> StepResult {
    // Records that the request must not affect.
    bed.open_and_fill()?;
    bed.injected(what);
    let answer = bed.perform(bed.root().join("other").join(name), job)?;
    if let Some(answer) = &answer {
        for (name, fact) in answer.facts.clone() {
            if name == "done" && fact != Fact::Count(1) {
                bed.breach("the agent could not perform the operations");
            }
            bed.fact(&name, fact);
        }
        if answer.failures.iter().any(|failure| failure.what == AgentEventKind::WrongBytes) {
            bed.breach("the agent read wrong results");
        }
    }
    // Whatever the request was, the mount must still be usable.
    if let Err(reason) = bed.is_usable()? {
        bed.breach(format!("the mount is unusable afterwards: {reason}"));
        bed.come_back()?;
    }
    bed.audit()
}

/// Kills the agent process while it writes.
pub fn killed(bed: &mut TestBed) -> StepResult {
    bed.open()?;
    bed.write(20)?;
    let lock = bed.root().join("lock");
    bed.perform(&lock, &Job::TryLock)?;
    bed.begin_changes(bed.scenario.work.changes)?;
    let after = bed.random(5_000..40_000);
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
        return infra("the agent finished before it was killed");
    }
    bed.go_on(killed, "the mount is unusable after its agent was killed")?;
    let locked = bed.perform(lock, &Job::TryLock)?;
    if locked.is_none_or(|answer| answer.count("locked") != 1) {
        bed.breach("the lock of an agent that was killed is still held");
    }
    bed.read_acknowledgements()?;
    bed.audit()
}

/// One agent process removes the directory in which another one writes.
pub fn removed(bed: &mut TestBed) -> StepResult {
    bed.open()?;
    bed.write(100)?;
    bed.begin_changes(bed.scenario.work.changes)?;
    std::thread::sleep(Duration::from_millis(20));
    let mut other = Agent::start(bed.program())?;
    other.ask(&bed.root().join(DIR), &Job::RemoveTree)?;
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
        return infra("the rm -rf did not affect the writer: the fault hit nothing");
    }
    bed.read_acknowledgements()?;
    bed.forget_removed();
    // The next writer starts with an empty directory.
    bed.fill_again()?;
    bed.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    let path = bed.backend.database(&bed.config);
    if let Err(error) = bed.close()? {
        bed.breach(format!("a clean unmount: {error}"));
    }
    if let Some(path) = path {
        match sqlite::check(&path) {
            Ok(checked) if checked.problems.is_empty() => {
                bed.words("check_store", "whole");
            }
            Ok(checked) => bed.breach(format!("the store is not whole: {}", checked.problems[0])),
            Err(error) => bed.breach(format!("the store cannot be checked: {error}")),
        }
    }
    Ok(())
}
