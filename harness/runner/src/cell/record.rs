//! The samples of a cell: one for each pass, sent once the gauge window of its round is closed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rundir::{CellEpoch, ExactCounts, Latencies, Load, Memory, Outcome, RUN_DIRECTORY_VERSION, Sample};
use workloads::script::CallKind;

use super::{CellArm, CellRun, Line, MountedArm};
use crate::pass::PassResult;

/// A finished pass whose gauge window is still open: whether the machine was quiet is not known yet.
pub(super) struct PendingPass {
    pub(super) arm: usize,
    pub(super) round: u32,
    pub(super) passed: PassResult,
    pub(super) load: Load,
    pub(super) began: Instant,
    pub(super) took: Duration,
    pub(super) is_warm_up: bool,
}

/// The totals of an arm's passes in its cell.
#[derive(Default)]
pub(super) struct Totals {
    times: BTreeMap<CallKind, Histogram<u64>>,
    counted: ExactCounts,
    ready_ns: Vec<u64>,
    timed_ns: u64,
    pub(super) memory: Memory,
}

impl Totals {
    pub(super) fn note_ready(&mut self, ready: Duration) {
        if !ready.is_zero() {
            self.ready_ns.push(ready.as_nanos() as u64);
        }
    }
}

impl From<Totals> for CellEpoch {
    fn from(totals: Totals) -> Self {
        let latencies = totals.times.iter().filter_map(|(kind, times)| {
            let packed = Latencies::new(times).ok()?;
            Some((kind.to_string(), packed))
        });
        Self {
            v: RUN_DIRECTORY_VERSION,
            latencies: latencies.collect(),
            counted: totals.counted,
            memory: totals.memory,
            ready_ns: totals.ready_ns,
            timed_us: totals.timed_ns / 1000,
            ..Self::default()
        }
    }
}

impl CellRun<'_> {
    /// Sends the passes of a closed gauge window and counts its timed rounds, quiet ones and busy ones. One
    /// busy pass marks its whole round as busy: otherwise each arm would lose only its own slow passes.
    pub(super) fn flush(&mut self, arms: &mut [MountedArm<'_>], quiet: Result<(), String>) {
        let mut rounds: BTreeMap<u32, Option<String>> = BTreeMap::new();
        for pass in self.pending.iter().filter(|pass| !pass.is_warm_up) {
            let busy = pass.load.busy.clone().or_else(|| quiet.clone().err());
            let round = rounds.entry(pass.round).or_default();
            *round = round.take().or(busy);
        }
        let busy = rounds.values().flatten().count() as u32;
        self.busy_rounds += busy;
        self.quiet_rounds += rounds.len() as u32 - busy;
        for mut pass in std::mem::take(&mut self.pending) {
            if let Some(Some(reason)) = rounds.get(&pass.round) {
                pass.load.busy.get_or_insert_with(|| reason.clone());
            }
            let arm = &mut arms[pass.arm];
            keep(arm, &pass.passed, &pass.load, pass.is_warm_up);
            self.send(arm.arm, pass.round, pass.passed, pass.load, (pass.began, pass.took));
        }
    }

    /// Sends the line of a pass that ended before it was measured.
    pub(super) fn send_failure(&self, arm: &CellArm, round: u32, passed: PassResult, began: Instant) {
        let span = (began, began.elapsed());
        self.send(arm, round, passed, Load::default(), span);
    }

    fn send(&self, arm: &CellArm, round: u32, passed: PassResult, load: Load, (began, took): (Instant, Duration)) {
        let (outcome, reason) = match passed.worst_outcome {
            Some((outcome, reason)) => (outcome, Some(reason)),
            None => (Outcome::Ok, None),
        };
        let sample = Sample {
            v: RUN_DIRECTORY_VERSION,
            epoch: self.task.epoch,
            round,
            arm: arm.name.clone(),
            workload: self.task.workload.name.clone(),
            state: self.task.state_name.clone(),
            warm_up: round < self.task.rounds.first_timed(),
            outcome,
            reason,
            load,
            started_ms: began.duration_since(self.task.setup.started).as_millis() as u64,
            took_us: took.as_micros() as u64,
            ..passed.sample
        };
        // The receiver is gone only if the run was abandoned.
        let _ = self.lines.send(Line::Sample(Box::new(sample)));
    }
}

/// Adds a pass to the arm's totals for this cell.
fn keep(arm: &mut MountedArm<'_>, passed: &PassResult, load: &Load, is_warm_up: bool) {
    // Content that a model guesses is usually wrong, but the daemon's work for it counts.
    let guesses = arm.described.capabilities.guesses_content;
    let is_whole = match &passed.worst_outcome {
        None => true,
        Some((worst, _)) => guesses && *worst <= Outcome::WrongData,
    };
    if let Some(counted) = &passed.counted
        && is_whole
    {
        arm.totals.counted.add(counted);
    }
    let counts = passed.worst_outcome.is_none() || arm.driver.rules().counts_failed_passes;
    if is_warm_up || !counts {
        return;
    }
    arm.totals.timed_ns += passed.sample.makespan_ns;
    if load.busy.is_some() {
        return;
    }
    for (kind, times) in &passed.times {
        let all = arm.totals.times.entry(*kind).or_insert_with(rundir::histogram);
        // Cannot fail: both histograms have the same bounds and resize themselves.
        let _ = all.add(times);
    }
}
