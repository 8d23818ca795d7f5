//! The run: block after block, each recorded as soon as it is there.

use std::collections::BTreeSet;

use reports::run::{Outcome, Plan, RunError, Sample, Writer};
use rustix::io::Errno;

use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::plan::{Block, blocks};

/// How a run ended.
#[derive(Debug)]
pub enum Ended {
    /// Every block of the plan is recorded.
    Complete,
    /// The user ended it; it can be resumed.
    Interrupted,
    /// There is no room left for workspaces, with what failed.
    ScratchFull(String),
    /// Results could not be written any more; those before are readable.
    CannotRecord(RunError),
}

/// What a run tells while it goes on.
pub trait Watcher {
    /// A block begins.
    fn begins(&mut self, plan: &Plan, block: &Block);
    /// A block has been recorded, `left` remain.
    fn recorded(&mut self, sample: &Sample, left: usize);
}

/// Measures all blocks of `plan` that are not among `done`.
pub fn run(
    plan: &Plan,
    done: &[Sample],
    lab: &mut dyn Lab,
    writer: &Writer,
    interrupt: &Interrupt,
    watcher: &mut dyn Watcher,
) -> Ended {
    let done: BTreeSet<u32> = done.iter().map(|sample| sample.order).collect();
    let mut todo: Vec<Block> = blocks(plan);
    todo.retain(|block| !done.contains(&block.order));
    let count = todo.len();
    for (number, block) in todo.into_iter().enumerate() {
        if interrupt.is_set() {
            return Ended::Interrupted;
        }
        watcher.begins(plan, &block);
        let Some(sample) = lab.measure(plan, &block) else {
            return Ended::Interrupted;
        };
        if sample.outcome == Outcome::Setup
            && let Some(reason) = &sample.reason
            && reason.contains(&Errno::NOSPC.to_string())
        {
            // Every block after it would fail alike, and say nothing about a backend.
            return Ended::ScratchFull(reason.clone());
        }
        if let Err(error) = writer.sample(&sample) {
            return Ended::CannotRecord(error);
        }
        watcher.recorded(&sample, count - number - 1);
    }
    Ended::Complete
}

#[cfg(test)]
mod tests {
    use super::*;
    use reports::run::{Environment, Run, SCHEMA_VERSION};
    use std::path::Path;

    /// A lab that answers every block with a sample of its own, until it is told to stop.
    struct Scripted {
        measured: Vec<u32>,
        until: usize,
    }

    impl Lab for Scripted {
        fn measure(&mut self, plan: &Plan, block: &Block) -> Option<Sample> {
            if self.measured.len() == self.until {
                return None;
            }
            self.measured.push(block.order);
            let workload = &plan.workloads[block.workload];
            Some(Sample {
                v: SCHEMA_VERSION,
                round: block.round,
                order: block.order,
                arm: plan.arms[block.arm].name.clone(),
                backend: plan.arms[block.arm].backend.name.clone(),
                workload: workload.name.clone(),
                state: workload.states[block.state].clone(),
                outcome: Outcome::Ok,
                reason: None,
                outcomes: Default::default(),
                calls: Default::default(),
                makespan_ns: 1,
                waited_ns: 1,
                bytes_read: 0,
                disk_read_bytes: 0,
                ready_ns: 0,
                daemon: None,
                cpu: Default::default(),
                memory: Default::default(),
                pressure: Default::default(),
                settled: None,
                started_ms: 0,
                took_ms: 0,
            })
        }
    }

    struct Silent;

    impl Watcher for Silent {
        fn begins(&mut self, _plan: &Plan, _block: &Block) {}
        fn recorded(&mut self, _sample: &Sample, _left: usize) {}
    }

    fn plan() -> Plan {
        toml::from_str(include_str!("testing/plan.toml")).unwrap()
    }

    fn environment() -> Environment {
        serde_json::from_str(include_str!("testing/env.json")).unwrap()
    }

    fn go(dir: &Path, until: usize) -> (Ended, Vec<u32>) {
        let (writer, done) = if dir.join("plan.toml").exists() {
            let (writer, run) = Writer::resume(dir).unwrap();
            (writer, run.samples)
        } else {
            let writer = Writer::create(dir, &plan(), &environment(), None, &[]).unwrap();
            (writer, Vec::new())
        };
        let mut lab = Scripted {
            measured: Vec::new(),
            until,
        };
        let never = Interrupt::never();
        let ended = run(&plan(), &done, &mut lab, &writer, &never, &mut Silent);
        (ended, lab.measured)
    }

    #[test]
    fn an_interrupted_run_is_a_smaller_run_and_goes_on_where_it_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("run");
        let (ended, first) = go(&dir, 5);
        assert!(matches!(ended, Ended::Interrupted));
        assert_eq!(Run::read(&dir).unwrap().samples.len(), 5);

        // A kill in the middle of a line leaves half of it.
        let samples = dir.join("samples.jsonl");
        let mut text = std::fs::read_to_string(&samples).unwrap();
        text.push_str("{\"v\":1,\"round\":0,\"ord");
        std::fs::write(&samples, text).unwrap();
        assert_eq!(Run::read(&dir).unwrap().samples.len(), 5);

        let (ended, rest) = go(&dir, usize::MAX);
        assert!(matches!(ended, Ended::Complete));
        let mut all = first;
        all.extend(rest);
        assert_eq!(all, (0..blocks(&plan()).len() as u32).collect::<Vec<_>>());
        assert_eq!(Run::read(&dir).unwrap().samples.len(), all.len());

        let (ended, none) = go(&dir, usize::MAX);
        assert!(matches!(ended, Ended::Complete) && none.is_empty());
    }

    #[test]
    fn a_directory_that_holds_a_run_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let create = || Writer::create(dir.path(), &plan(), &environment(), Some("text"), &[]);
        create().unwrap();
        let before = std::fs::read(dir.path().join("plan.toml")).unwrap();
        assert!(create().is_err());
        assert_eq!(std::fs::read(dir.path().join("plan.toml")).unwrap(), before);
    }

    #[test]
    fn results_that_cannot_be_written_end_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::create(dir.path(), &plan(), &environment(), None, &[]).unwrap();
        // A directory where the samples should be: no sample can be appended.
        std::fs::create_dir(dir.path().join("samples.jsonl")).unwrap();
        let mut lab = Scripted {
            measured: Vec::new(),
            until: usize::MAX,
        };
        let never = Interrupt::never();
        let ended = run(&plan(), &[], &mut lab, &writer, &never, &mut Silent);
        assert!(matches!(ended, Ended::CannotRecord(_)));
        assert_eq!(lab.measured.len(), 1);
    }

    #[test]
    fn another_schema_version_is_refused_with_both() {
        let dir = tempfile::tempdir().unwrap();
        Writer::create(dir.path(), &plan(), &environment(), None, &[]).unwrap();
        let file = dir.path().join("plan.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replacen("schema = 1", "schema = 7", 1)).unwrap();
        let error = Run::read(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("schema version 7; this ctxbench reads version 1"),
            "{error}"
        );
    }
}
