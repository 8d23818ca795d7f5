//! The evidence of several runs, pooled by kind: what they say about one measure of one arm.
//! Rows, bounds and verdicts are not known here.

mod compatible;
mod counted;
mod figures;
mod latency;
mod safety;

use rundir::{Arm, Run};
use serde::Serialize;

use super::measure::Measure;
use crate::context::Contexts;
use crate::summary::Summary;

pub use compatible::check_compatible;
pub use counted::CRON_KILL;
pub(crate) use figures::plausible_imports;
pub(super) use latency::{TURN_NS, Timed};

/// A run with what follows from it.
#[derive(Clone, Copy)]
pub struct RunEvidence<'a> {
    /// The run.
    pub run: &'a Run,
    /// The summary of its samples.
    pub summary: &'a Summary,
    /// The costs of its contexts.
    pub contexts: &'a Contexts,
}

/// The runs that a decision rests on.
#[derive(Clone)]
pub struct Evidence<'a> {
    /// The runs, in the order given.
    pub runs: Vec<RunEvidence<'a>>,
}

/// Evidence that is missing, and the command that makes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Gap {
    /// What is missing, and why.
    pub what: String,
    /// The command.
    pub command: String,
}

/// A figure with the range in which it is known to lie.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// The figure in words.
    pub(super) words: String,
    /// The files and fields it comes from.
    pub(super) source: String,
}

impl Reading {
    /// An exact count.
    pub(super) fn exact(value: f64, words: String, source: &str) -> Self {
        Self {
            value,
            low: value,
            high: value,
            words,
            source: source.to_owned(),
        }
    }
}

/// What the runs say about a measure of an arm.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found {
    Value(Reading),
    /// No run measured it.
    Missing(Gap),
    /// The candidate cannot do what the measure is about, with the reason.
    NotOffered(String),
    /// The backend's makers do not say.
    Unknown(String),
}

impl<'a> Evidence<'a> {
    /// The evidence of one run.
    pub fn of(run: &'a Run, summary: &'a Summary, contexts: &'a Contexts) -> Self {
        Self {
            runs: vec![RunEvidence {
                run,
                summary,
                contexts,
            }],
        }
    }

    /// The names of everything that can be a candidate, in the order of the plans. Identical arms and arms slowed on
    /// purpose are none.
    pub fn arms(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let arms = self.runs.iter().flat_map(|own| &own.run.plan.arms);
        let arms = arms.filter(|arm| arm.same_as.is_none() && arm.slowed_percent.is_none());
        let made_up = self.runs.iter().any(|own| {
            let found = own.run.model_files.as_ref();
            found.is_some_and(|found| found.failed.is_none())
        });
        let models = [figures::GENERATE, figures::HISTORY].into_iter();
        let models = models.filter(|_| made_up).map(str::to_owned);
        for name in arms.map(|arm| arm.name.clone()).chain(models) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The first plan's description of an arm, of a plan that can use it if there is one.
    pub fn arm(&self, name: &str) -> Option<&'a Arm> {
        let arms = self.runs.iter().filter_map(|own| planned(own.run, name));
        arms.clone()
            .find(|arm| arm.unavailable.is_none())
            .or(arms.clone().next())
    }

    /// What the runs say about a measure of an arm. `as_baseline` selects the baseline's workload, method and context
    /// policy where a measure names another one.
    pub(super) fn read(&self, measure: &Measure, arm: &str, as_baseline: bool) -> Found {
        if let Some(why) = self.arm(arm).and_then(|own| own.unavailable.as_ref()) {
            return Found::Missing(Gap {
                what: format!("{arm} cannot be used here: {why}"),
                command: "ctxbench doctor".to_owned(),
            });
        }
        match measure {
            Measure::Latency(own) => self.time(own, arm),
            Measure::Passes(own) => self.passes(own, arm),
            Measure::Probes(own) => self.probes(own, arm),
            Measure::Conformance(own) => self.conformance(own, arm),
            Measure::Faults(own) => self.faults(own, arm),
            Measure::Kept(own) => self.kept(own, arm),
            Measure::Score(own) => self.score(own, arm, as_baseline),
            Measure::Results(own) => self.results(own, arm),
            Measure::Context(own) => self.context(own, arm, as_baseline),
            Measure::ModelFiles(own) => self.model_files(own, arm),
            Measure::Hosts(own) => self.hosts(own, arm),
            Measure::Burden(own) => self.burden(own, arm),
            Measure::Gives(own) => self.gives(own, arm),
        }
    }

    /// The reason of a plan for leaving out a workload on an arm in every cache state. A workload that no arm can run,
    /// such as that of a program which is not installed, says nothing about the arm.
    fn left_out(&self, workload: &str, arm: &str) -> Option<String> {
        self.runs.iter().map(|own| &own.run.plan).find_map(|plan| {
            let planned = plan.workloads.iter().find(|own| own.name == workload)?;
            let reason = |arm: &str| {
                let skipped = plan.skipped.iter();
                let mut own = skipped.filter(|own| own.workload == workload && own.arm == arm);
                let first = own.next()?;
                (1 + own.count() == planned.states.len()).then(|| first.reason.clone())
            };
            let own = reason(arm)?;
            let all = plan.arms.iter().all(|arm| reason(&arm.name).is_some());
            (!all).then_some(own)
        })
    }
}

/// An arm of a plan that can be used.
fn planned<'a>(run: &'a Run, name: &str) -> Option<&'a Arm> {
    run.plan.arms.iter().find(|arm| arm.name == name)
}

/// A gap that a run of one workload fills.
fn run_gap(workload: &str, arms: &[&str], what: String) -> Found {
    let arms = arms.iter().filter(|arm| **arm != "direct");
    let arms: String = arms.map(|arm| format!(" --backend {arm}")).collect();
    Found::Missing(Gap {
        what,
        command: format!("ctxbench run --workload {workload}{arms}"),
    })
}
