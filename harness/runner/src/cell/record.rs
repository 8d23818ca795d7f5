//! The samples of a cell: one for each pass, sent once the gauge window of its round is closed.

use super::*;

impl CellTask {
    /// Sends the passes of a closed gauge window and counts its timed rounds, quiet ones and busy ones. One
    /// busy pass marks its whole round as busy: otherwise each arm would lose only its own slow passes.
    pub(super) fn flush(
        &self,
        arms: &mut [MountedArm<'_>],
        pending: &mut Vec<Pending>,
        quiet: Result<(), String>,
        lines: &Sender<Line>,
        (quiet_rounds, busy_rounds): &mut (u32, u32),
    ) {
        let mut rounds: BTreeMap<u32, Option<String>> = BTreeMap::new();
        for pass in pending.iter().filter(|pass| !pass.is_warm_up) {
            let busy = pass.load.busy.clone().or_else(|| quiet.clone().err());
            let round = rounds.entry(pass.round).or_default();
            *round = round.take().or(busy);
        }
        let busy = rounds.values().flatten().count() as u32;
        *busy_rounds += busy;
        *quiet_rounds += rounds.len() as u32 - busy;
        for mut pass in pending.drain(..) {
            if let Some(Some(reason)) = rounds.get(&pass.round) {
                pass.load.busy.get_or_insert_with(|| reason.clone());
            }
            let arm = &mut arms[pass.arm];
            self.keep(arm, &pass.passed, &pass.load, pass.is_warm_up);
            self.send(lines, arm.arm, pass.round, pass.passed, pass.load, (pass.began, pass.took));
        }
    }

    /// Adds a pass to the arm's totals for this cell.
    pub(super) fn keep(&self, arm: &mut MountedArm<'_>, passed: &Passed, load: &Load, is_warm_up: bool) {
        // Content that a model guesses is usually wrong, but the daemon's work for it counts.
        let guesses = arm.described.capabilities.guesses_content;
        let is_whole = match &passed.worst_outcome {
            None => true,
            Some((worst, _)) => guesses && *worst <= Outcome::WrongData,
        };
        if let Some(counted) = &passed.counted
            && is_whole
        {
            arm.counted.add(counted);
        }
        // With two hosts, calls that ended in time count even if another call was late.
        let counts = passed.worst_outcome.is_none() || self.workload.script.needs_second_host();
        if is_warm_up || !counts {
            return;
        }
        arm.timed_ns += passed.sample.makespan_ns;
        if load.busy.is_some() {
            return;
        }
        for (kind, times) in &passed.times {
            let all = arm.times.entry(*kind).or_insert_with(rundir::histogram);
            // Cannot fail: both histograms have the same bounds and resize themselves.
            let _ = all.add(times);
        }
    }

    /// Sends the line of a pass that ended before it was measured.
    pub(super) fn send_failure(&self, lines: &Sender<Line>, arm: &CellArm, round: u32, passed: Passed, began: Instant) {
        let span = (began, began.elapsed());
        self.send(lines, arm, round, passed, Load::default(), span);
    }

    pub(super) fn send(
        &self,
        lines: &Sender<Line>,
        arm: &CellArm,
        round: u32,
        passed: Passed,
        load: Load,
        (began, took): (Instant, Duration),
    ) {
        let (outcome, reason) = match passed.worst_outcome {
            Some((outcome, reason)) => (outcome, Some(reason)),
            None => (Outcome::Ok, None),
        };
        let sample = Sample {
            v: SCHEMA_VERSION,
            epoch: self.epoch,
            round,
            arm: arm.name.clone(),
            workload: self.workload.name.clone(),
            state: self.state_name.clone(),
            warm_up: round < self.first_timed(),
            outcome,
            reason,
            load,
            started_ms: began.duration_since(self.run_started).as_millis() as u64,
            took_us: took.as_micros() as u64,
            ..passed.sample
        };
        // The receiver is gone only if the run was abandoned.
        let _ = lines.send(Line::Sample(Box::new(sample)));
    }
}
