//! Helpers of the tests of a report's sections.

use rundir::Run;

use super::part::Part;
use super::report::Report;
use crate::answer::Overview;
use crate::claims::{ClaimResult, judge};
use crate::context::{Contexts, contexts};
use crate::decide::Decision;
use crate::evidence::RunEvidence;
use crate::prices::Prices;
use crate::summary::{Summary, summarise};
use crate::testing;

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
        let mut inputs = Self::of(testing::run());
        let evidence = RunEvidence::new(&inputs.run, &inputs.summary, &inputs.contexts);
        inputs.claims = judge(&[evidence]).unwrap();
        inputs.decisions = testing::decisions();
        let evidence = RunEvidence::new(&inputs.run, &inputs.summary, &inputs.contexts);
        inputs.overview = Overview::of(&inputs.decisions, &[evidence]);
        inputs
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
        }
    }
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
    run.plan
        .workloads
        .iter_mut()
        .for_each(|w| rename(&mut w.name));
    run.samples.iter_mut().for_each(|s| rename(&mut s.workload));
    run.cells.iter_mut().for_each(|c| rename(&mut c.workload));
    run
}
