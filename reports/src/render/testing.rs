//! Helpers of the tests of a report's sections.

use rundir::Run;

use super::part::Part;
use super::report::Report;
use crate::answer::Overview;
use figures::context::{Contexts, contexts};
use figures::evidence::RunEvidence;
use figures::prices::Prices;
use figures::summary::{Summary, summarise};
use figures::testing;
use verdicts::claims::{ClaimResult, judge};
use verdicts::decide::Decision;

/// A run with everything that a report needs.
pub(super) struct Inputs {
    run: Run,
    summary: Summary,
    contexts: Contexts,
    claims: Vec<ClaimResult>,
    decisions: Vec<Decision>,
    overview: Overview,
}

impl Inputs {
    /// Of a run without claims and decisions.
    pub(super) fn of(run: Run) -> Self {
        Self {
            summary: summarise(&run).unwrap(),
            contexts: contexts(&run, &Prices::built_in().unwrap()).unwrap(),
            run,
            claims: Vec::new(),
            decisions: Vec::new(),
            overview: Overview::default(),
        }
    }

    /// Of the scripted run, with every built-in claim and policy.
    pub(super) fn judged() -> Self {
        Self::judged_of(testing::run())
    }

    /// Of a run, with every built-in claim and policy.
    pub(super) fn judged_of(run: Run) -> Self {
        let decisions = verdicts::testing::decisions_on(&run);
        let mut inputs = Self::of(run);
        let evidence = RunEvidence::new(&inputs.run, &inputs.summary, &inputs.contexts);
        inputs.claims = judge(&[evidence]).unwrap();
        inputs.decisions = decisions;
        inputs.change_decisions(|_| {});
        inputs
    }

    /// Changes the decisions, and with them the answer.
    pub(super) fn change_decisions(&mut self, change: impl FnOnce(&mut Vec<Decision>)) {
        change(&mut self.decisions);
        let evidence = RunEvidence::new(&self.run, &self.summary, &self.contexts);
        self.overview = Overview::of(&self.decisions, &[evidence]);
    }

    pub(super) fn report(&self) -> Report<'_> {
        Report {
            run: &self.run,
            summary: &self.summary,
            contexts: &self.contexts,
            claims: &self.claims,
            decisions: self.decisions.clone(),
            overview: &self.overview,
            others: &[],
            sessions: &[],
        }
    }
}

/// A run as large as the default suite makes them: twelve arms, sessions and operations in three cache states.
pub(super) fn largest() -> Run {
    let small = testing::run();
    let mut run = small.clone();
    run.plan.workloads.clear();
    run.samples.clear();
    run.cells.clear();
    let mut factor = 1.0;
    let mut add = |from: &str, name: &str, states: &[&str]| {
        factor += 0.25;
        let mut planned = small.plan.workload(from).unwrap().clone();
        name.clone_into(&mut planned.name);
        planned.states = states.iter().map(|state| (*state).to_owned()).collect();
        run.plan.workloads.push(planned);
        for state in states {
            let samples = small.samples.iter().filter(|pass| pass.workload == from);
            run.samples.extend(samples.map(|pass| {
                let mut pass = rundir::Sample { workload: name.to_owned(), state: (*state).to_owned(), ..pass.clone() };
                testing::scale_pass(&mut pass, factor);
                pass
            }));
            let cells = small.cells.iter().filter(|cell| cell.workload == from);
            run.cells.extend(cells.map(|cell| rundir::CellEpoch {
                workload: name.to_owned(),
                state: (*state).to_owned(),
                ..cell.clone()
            }));
        }
    };
    let all = ["hot", "lukewarm", "cold"];
    for name in ["read-1k", "stat", "find-by-request-100", "find-by-request-1000"] {
        add("micro/read", &format!("micro/{name}"), &all);
    }
    for name in [
        "list-1000",
        "list-1000-attributes",
        "write-1k",
        "create-1k",
        "append",
        "rename",
        "delete",
        "fsync-1k",
        "sync-100",
        "find-in-files-1000",
    ] {
        add("micro/read", &format!("micro/{name}"), &["hot"]);
    }
    for name in ["git", "tree", "npm-few", "python", "cargo", "node"] {
        add("micro/read", &format!("program/{name}"), &["hot"]);
    }
    for name in ["claude-code-write-heavy", "claude-code-read-heavy", "claude-code-compaction"] {
        add("agent/session", &format!("agent/{name}"), &all);
        for context in &small.contexts {
            let mut context = context.clone();
            context.workload = format!("agent/{name}");
            run.contexts.push(context);
        }
    }
    for arm in [
        "memory",
        "s3-embedded",
        "agent-memory",
        "state",
        "view-mail",
        "view-vsm",
        "tools-sql",
        "tools-mcp",
        "llm-generate",
        "s3-minio@30ms",
    ] {
        testing::copy_arm(&mut run, "sqlite", arm);
        let factor = 0.2 * run.plan.arms.len() as f64;
        let passes = run.samples.iter_mut().filter(|pass| pass.arm == arm);
        passes.for_each(|pass| testing::scale_pass(pass, factor));
        run.probes.extend(small.probes.iter().filter(|probe| probe.arm == "sqlite").map(|probe| {
            let mut probe = probe.clone();
            arm.clone_into(&mut probe.arm);
            probe
        }));
        run.faults.extend(small.faults.iter().filter(|fault| fault.arm == "sqlite").map(|fault| {
            let mut fault = fault.clone();
            arm.clone_into(&mut fault.arm);
            fault
        }));
    }
    run
}

/// The parts that `section` adds to the report of a run without claims and decisions.
pub(super) fn parts(run: &Run, section: impl FnOnce(&Report<'_>, &mut Vec<Part>)) -> Vec<Part> {
    let mut parts = Vec::new();
    section(&Inputs::of(run.clone()).report(), &mut parts);
    parts
}

/// The scripted run, whose micro workload has another name.
pub(super) fn run_of(workload: &str) -> Run {
    let mut run = testing::run();
    let rename = |name: &mut String| {
        if name == "micro/read" {
            workload.clone_into(name);
        }
    };
    run.plan.workloads.iter_mut().for_each(|w| rename(&mut w.name));
    run.samples.iter_mut().for_each(|s| rename(&mut s.workload));
    run.cells.iter_mut().for_each(|c| rename(&mut c.workload));
    for section in &mut run.plan.schedule.sections {
        if let Some(states) = section.cells.remove("micro/read") {
            section.cells.insert(workload.to_owned(), states);
        }
    }
    run
}
