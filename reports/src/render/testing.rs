//! What tests of a report's sections share.

use rundir::Run;

use super::part::Part;
use super::report::Report;
use crate::context::contexts;
use crate::prices::Prices;
use crate::summary::summarise;
use crate::testing;

/// What `section` adds to the report of a run without claims and decisions.
pub(super) fn parts(run: &Run, section: impl FnOnce(&Report<'_>, &mut Vec<Part>)) -> Vec<Part> {
    let report = Report {
        run,
        summary: &summarise(run).unwrap(),
        contexts: &contexts(run, &Prices::built_in().unwrap()).unwrap(),
        claims: &[],
        decisions: Vec::new(),
        others: &[],
    };
    let mut parts = Vec::new();
    section(&report, &mut parts);
    parts
}

/// The scripted run, whose micro workload has another name.
pub(super) fn run_of(workload: &str) -> Run {
    let mut run = testing::run();
    let own = |name: &mut String| {
        if name == "micro/read" {
            workload.clone_into(name);
        }
    };
    run.plan.workloads.iter_mut().for_each(|w| own(&mut w.name));
    run.samples.iter_mut().for_each(|s| own(&mut s.workload));
    run.cells.iter_mut().for_each(|c| own(&mut c.workload));
    run
}
