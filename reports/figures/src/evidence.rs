//! A run with its summary and contexts, and the queries of claims and decisions on its results.

use std::sync::{Arc, OnceLock};

use rundir::faults::{CrashPoints, FaultOutcome, Status};
use rundir::{Fault, ModelFiles, Outcome, Probe, Run, Sample, SettledLines};
use stats::Table;

use crate::context::{ContextCost, Contexts};
use crate::summary::{FailedPasses, Handoffs, SearchScores, SharedFiles, Summary, void};

/// The scenario of `faults.jsonl`, which the probes of every run make.
pub const CRON_KILL: &str = "cron-kill";

/// A run with the results that follow from it.
#[derive(Clone, Debug)]
pub struct RunEvidence<'a> {
    /// The run.
    pub run: &'a Run,
    /// The summary of its samples.
    pub summary: &'a Summary,
    /// The costs of its sessions' contexts.
    pub contexts: &'a Contexts,
    table: Arc<OnceLock<Table>>,
}

impl<'a> RunEvidence<'a> {
    /// A run as evidence.
    pub fn new(run: &'a Run, summary: &'a Summary, contexts: &'a Contexts) -> Self {
        Self { run, summary, contexts, table: Arc::default() }
    }

    /// The measured values of the run.
    pub fn table(&self) -> &Table {
        self.table.get_or_init(|| {
            let void = void(self.run);
            Table::of(&self.run.samples, &void, self.summary.health.is_busy)
        })
    }

    /// All passes of an arm in a workload.
    pub fn passes(&self, workload: &str, arm: &str) -> impl Iterator<Item = &'a Sample> {
        let passes = self.run.samples.iter();
        passes.filter(move |pass| pass.arm == arm && pass.workload == workload)
    }

    /// The failed passes of an arm in a workload. An error counts in every cache state and epoch; what the harness could
    /// not do or prove counts only in `state` (`None` for all states), and not in void epochs, which are in no figure.
    pub fn failed_passes(&self, workload: &str, state: Option<&str>, arm: &str) -> FailedPasses {
        let is_void = |pass: &Sample| self.summary.health.void.contains_key(&pass.epoch);
        let is_read = |pass: &Sample| state.is_none_or(|state| pass.state == state);
        FailedPasses::of(
            self.passes(workload, arm)
                .filter(|pass| pass.outcome != Outcome::Infra || (is_read(pass) && !is_void(pass))),
        )
    }

    /// The tokens of a workload's results, if the plan counts them.
    pub fn result_tokens(&self, workload: &str) -> Option<u64> {
        self.run.plan.workload(workload)?.result_tokens
    }

    /// The probes of an aspect that were tried on an arm.
    pub fn probes(&self, aspect: &str, arm: &str) -> impl Iterator<Item = &'a Probe> {
        let probes = self.run.probes.iter();
        probes
            .filter(move |probe| probe.aspect == aspect && probe.arm == arm)
            .filter(|probe| probe.outcome != Outcome::Skipped)
    }

    /// The kills of a cron job's daemon. A backend that did not come back is a result, one that could not be tried is not.
    pub fn kills(&self, arm: &str) -> impl Iterator<Item = &'a Fault> {
        let faults = self.run.faults.iter();
        faults
            .filter(move |fault| fault.arm == arm && fault.scenario == CRON_KILL)
            .filter(|fault| !matches!(fault.outcome, Outcome::Infra | Outcome::Skipped))
    }

    /// The outcomes of all scenarios that ran on an arm.
    pub fn outcomes(&self, arm: &str) -> impl Iterator<Item = &'a FaultOutcome> {
        let outcomes = self.run.fault_outcomes.iter();
        outcomes.filter(move |outcome| outcome.backend == arm && outcome.status == Status::Ran)
    }

    /// The crash points of a loss that ran on an arm.
    pub fn crash_points(&self, loss: &str, arm: &str) -> impl Iterator<Item = &'a CrashPoints> {
        let crash_points = self.run.crash_points.iter();
        crash_points
            .filter(move |points| points.backend == arm && points.status == Status::Ran)
            .filter(move |points| points.loss == loss)
    }

    /// The handoffs of an arm in a workload.
    pub fn handoffs(&self, workload: &str, arm: &str) -> Option<&'a Handoffs> {
        let mut all = self.summary.handoffs.iter();
        all.find(|handoffs| handoffs.arm == arm && handoffs.workload == workload)
    }

    /// The passes of an arm in which two hosts shared files, of all epochs: a line that was lost while the machine slept is
    /// lost.
    pub fn settled(&self, arm: &str) -> impl Iterator<Item = (&'a str, SettledLines)> {
        let passes = self.run.samples.iter().filter(move |pass| pass.arm == arm);
        passes.filter_map(|pass| Some((&*pass.workload, pass.settled?)))
    }

    /// The files that two hosts of an arm shared in a workload, without void epochs.
    pub fn shared_files(&self, workload: &str, arm: &str) -> Option<&'a SharedFiles> {
        let mut all = self.summary.shared_files.iter();
        all.find(|files| files.arm == arm && files.workload == workload)
    }

    /// What a method of search found on an arm in a workload.
    pub fn searched(&self, workload: &str, arm: &str, method: &str) -> Option<&'a SearchScores> {
        let mut all = self.summary.found.iter();
        all.find(|found| (&*found.workload, &*found.arm, &*found.method) == (workload, arm, method))
    }

    /// The cost of a session under a context policy.
    pub fn context(&self, workload: &str, policy: &str) -> Option<&'a ContextCost> {
        let mut costs = self.contexts.costs.iter();
        costs.find(|cost| cost.workload == workload && cost.policy == policy)
    }

    /// The results for files that a language model makes up, if they were measured.
    pub fn model_files(&self) -> Option<&'a ModelFiles> {
        let found = self.run.model_files.as_ref();
        found.filter(|found| found.failed.is_none())
    }
}
