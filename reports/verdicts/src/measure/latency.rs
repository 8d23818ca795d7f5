//! Times of cells: an arm's own, and the time that an arm adds to the baseline's.

use std::collections::BTreeSet;

use rundir::{Outcome, PlannedWorkload, SAMPLES, Sample};
use serde::Deserialize;
use stats::{Comparison, Interval, SeriesKey, compare_arms};

use super::compared::saved;
use super::hosts::HostFigure;
use super::{ArmReading, Evidence, Figure, Measure, MeasureResult, Scale, pooled, run_gap};
use figures::evidence::RunEvidence;
use figures::provenance::Provenance;
use figures::summary::{Cell, FailedPasses, MAKESPAN};
use figures::text::{interval_words, ratio_with_interval, time};

/// The turn of a workload that no agent recorded, in nanoseconds: the median turn of 281 Claude Code sessions
/// (docs/METHODOLOGY.md).
pub const TURN_NS: f64 = 3.6e9;

/// The metric of readiness: the time from the start of the daemon to a usable mount.
pub const READY: &str = "ready";

/// A cell without its arm.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// A kind of call, `makespan`, or [`READY`].
    pub metric: String,
}

impl Latency {
    /// The workload, with the cache state and the metric.
    pub(super) fn cell(&self) -> (&str, Option<(&str, &str)>) {
        (&self.workload, Some((&self.state, &self.metric)))
    }

    /// Whether a pass has a time of it, disturbed or not.
    fn is_timed_in(&self, pass: &Sample) -> bool {
        let has_metric = self.metric == MAKESPAN || pass.calls.contains_key(&self.metric);
        has_metric && !pass.warm_up && pass.outcome == Outcome::Ok && pass.state == self.state
    }
}

/// A step of a program, and how often a session runs it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixStep {
    pub cell: Latency,
    pub times: f64,
}

/// Copies on a schedule: what a team does that has no shared memory. Their delay is computed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduledCopies {
    /// The stated time between the starts of two copies, in seconds.
    pub every_s: f64,
    /// The shortest such time that is in use. A verdict that turns between both is fragile.
    pub or_every_s: f64,
    /// The measured time of one copy, on the baseline.
    pub copy: Latency,
}

impl<'a> Evidence<'a> {
    /// The delay of a note by copies of a schedule: on average half of the time between two copies, at most all of it, and
    /// the time of the copy.
    pub(super) fn scheduled(&self, copies: &ScheduledCopies, figure: HostFigure, arm: &str) -> MeasureResult {
        let copy = match self.time(&copies.copy, arm) {
            MeasureResult::Value(reading) => reading,
            other => return other,
        };
        let every_s = copies.every_s;
        let (share, waits) = match figure {
            HostFigure::LongestHandoffMs => (1.0, format!("the {every_s} s between copies")),
            _ => (0.5, format!("half of the {every_s} s between copies")),
        };
        let wait_ms = share * every_s * 1000.0;
        let ends = |added_ms: f64| {
            let [figure, low, high] = [copy.value, copy.low, copy.high].map(|ms| time((added_ms + ms) * 1e6));
            if copy.high.is_finite() { format!("{figure}{}", interval_words(&figure, &low, &high)) } else { figure }
        };
        let (sum, took) = (ends(wait_ms), ends(0.0));
        MeasureResult::Value(ArmReading {
            value: wait_ms + copy.value,
            low: wait_ms + copy.low,
            high: wait_ms + copy.high,
            words: format!("{sum}: {waits}, and {took} for a copy"),
            short: sum,
            source: copy.source,
            provenance: Provenance::Computed,
        })
    }

    /// The candidate's own time in milliseconds.
    pub(super) fn time(&self, latency: &Latency, arm: &str) -> MeasureResult {
        if latency.metric == READY {
            return self.ready(latency, arm);
        }
        let readings = self.runs.iter().filter_map(|run| {
            let cell = cell(run, latency, arm)?;
            let known = cell.interval.filter(|_| !run.summary.health.is_busy);
            let (low, high) = match known {
                Some(interval) => (interval.low / 1e6, interval.high / 1e6),
                None => (0.0, f64::INFINITY),
            };
            let reading = ArmReading {
                low,
                high,
                provenance: Provenance::of_arm(arm),
                ..ArmReading::exact(cell.typical_ns / 1e6, cell_words(cell), &source(latency))
            };
            Some((run.summary.health.is_busy, (known.map_or(0, |_| cell.epochs), reading)))
        });
        match most_precise(undisturbed(readings.collect())) {
            Some((_, reading)) => MeasureResult::Value(reading),
            None => self.without_time(latency, &[arm], not_measured(latency, arm)),
        }
    }

    /// The time until a mount is usable, in milliseconds.
    fn ready(&self, latency: &Latency, arm: &str) -> MeasureResult {
        let all = self.runs.iter().flat_map(|run| &run.summary.ready);
        let of_cell = all
            .filter(|ready| (&*ready.arm, &ready.workload, &ready.state) == (arm, &latency.workload, &latency.state));
        let readings = of_cell.map(|ready| {
            let ends = ready.interval.map(|ends| (ends.low / 1e6, ends.high / 1e6));
            let (low, high) = ends.unwrap_or((0.0, f64::INFINITY));
            let exact = ArmReading::exact(ready.typical_ns / 1e6, time(ready.typical_ns), &source(latency));
            ArmReading { low, high, ..exact }
        });
        match pooled(readings.collect()) {
            Some(reading) => MeasureResult::Value(reading),
            None => run_gap(&latency.workload, &[arm], not_measured(latency, arm)),
        }
    }

    /// Whether an arm was timed in a workload, and no run knows how long a session of it is.
    fn has_no_turns(&self, latency: &Latency, arm: &str) -> bool {
        let mut timed = self.runs.iter().filter(|run| cell(run, latency, arm).is_some()).peekable();
        let has_turns =
            |run: &RunEvidence<'_>| run.run.plan.workload(&latency.workload).and_then(recorded_ns).is_some();
        timed.peek().is_some() && !timed.any(has_turns)
    }

    /// Passes that give no time are unknown; without them, the evidence is missing.
    fn without_time(&self, latency: &Latency, arms: &[&str], what: String) -> MeasureResult {
        let is_tried = |run: &RunEvidence<'_>| {
            run.run.plan.compares(&latency.workload, &latency.state)
                && arms.iter().all(|arm| run.passes(&latency.workload, arm).any(|pass| latency.is_timed_in(pass)))
        };
        if self.runs.iter().any(is_tried) {
            MeasureResult::Unknown(format!(
                "measured, but no round of {} of {} ({}) was quiet on {}",
                latency.metric,
                latency.workload,
                latency.state,
                arms.join(" and ")
            ))
        } else {
            run_gap(&latency.workload, arms, what)
        }
    }

    /// The time that one call in a hundred takes or exceeds, in milliseconds. It has no interval; on a busy machine it may
    /// have been any time.
    pub(super) fn tail(&self, latency: &Latency, arm: &str) -> MeasureResult {
        let readings = self.runs.iter().filter_map(|run| {
            let cell = cell(run, latency, arm)?;
            let p99 = cell.p99_ns?;
            let words = format!("p99 {} of {} calls, {}", time(p99 as f64), cell.calls, cell.failed.words());
            let exact = ArmReading::exact(p99 as f64 / 1e6, words, &source(latency));
            Some(if run.summary.health.is_busy { ArmReading { low: 0.0, high: f64::INFINITY, ..exact } } else { exact })
        });
        if let Some(reading) = pooled(readings.collect()) {
            return MeasureResult::Value(reading);
        }
        if self.runs.iter().any(|run| cell(run, latency, arm).is_some()) {
            let words = "measured, but too few calls ran without other work beside them for a 99th percentile";
            return MeasureResult::Unknown(words.to_owned());
        }
        let what = format!("the 99th percentile of {}", not_measured(latency, arm));
        self.without_time(latency, &[arm], what)
    }

    /// The summed time of steps, in milliseconds.
    pub(super) fn mix(&self, steps: &[MixStep], arm: &str) -> MeasureResult {
        let mut all = ArmReading::exact(0.0, String::new(), SAMPLES);
        for step in steps {
            let reading = match self.time(&step.cell, arm) {
                MeasureResult::Value(reading) => reading,
                other => return other,
            };
            all.value += step.times * reading.value;
            all.low += step.times * reading.low;
            all.high += step.times * reading.high;
        }
        all.words = format!("{} for {}", time(all.value * 1e6), step_words(steps));
        MeasureResult::Value(all)
    }

    /// The failed passes of the steps' workloads, each once.
    fn failed_steps(&self, steps: &[MixStep], arm: &str) -> String {
        let cells = steps.iter().map(|step| (&step.cell.workload, &step.cell.state));
        let mut all = FailedPasses::default();
        for (workload, state) in cells.collect::<BTreeSet<_>>() {
            all.add(&self.failed_passes(workload, Some(state), arm));
        }
        all.words()
    }

    /// The candidate's summed time over the baseline's: the mean of the steps' ratios, each weighted by the baseline's time.
    pub fn mixed(
        &self,
        steps: &[MixStep],
        scale: Scale,
        (arm, baseline): (&str, &str),
    ) -> Result<Figure, MeasureResult> {
        let mut sum = ArmReading::exact(0.0, String::new(), SAMPLES);
        let mut of_baseline = 0.0;
        let mut words = Vec::new();
        for step in steps {
            let ratio = self.timed(&step.cell, Scale::Ratio, arm, baseline)?.reading;
            let base = match self.time(&step.cell, baseline) {
                MeasureResult::Value(base) => base.value * step.times,
                other => return Err(other),
            };
            of_baseline += base;
            sum.value += base * ratio.value;
            sum.low += base * ratio.low;
            sum.high += base * ratio.high;
            words.push(format!("{} {} ×{:.2}", step.times, step.cell.metric.replace('-', " "), ratio.value));
        }
        let in_unit = |sum: f64| match scale {
            Scale::More => sum - of_baseline,
            Scale::Fewer => of_baseline - sum,
            Scale::Saved => saved(sum / of_baseline),
            _ => sum / of_baseline,
        };
        let ends = [in_unit(sum.low), in_unit(sum.high)];
        let reading = ArmReading {
            value: in_unit(sum.value),
            low: ends[0].min(ends[1]),
            high: ends[0].max(ends[1]),
            words: format!("{} ({}), {}", time(sum.value * 1e6), words.join(", "), self.failed_steps(steps, arm)),
            short: String::new(),
            source: format!("{SAMPLES}: {}", step_words(steps)),
            provenance: Provenance::of_arm(arm),
        };
        let failed = self.failed_steps(steps, baseline);
        let baseline = format!("{}, {failed}", time(of_baseline * 1e6));
        Ok(Figure::of(reading, baseline))
    }

    /// That a baseline differs from the arm that is identical to it, beyond the plan's margin and by more than a row with
    /// this bound asks of a candidate or tolerates. `None` for measures that are not times with an interval.
    pub fn baseline_apart(&self, measure: &Measure, scale: Scale, baseline: &str, bound: f64) -> Option<MeasureResult> {
        let figure = |arm: &str, scale| match measure {
            Measure::Latency(latency) => self.timed(latency, scale, arm, baseline).ok(),
            Measure::Mix { steps } => self.mixed(steps, scale, (arm, baseline)).ok(),
            _ => None,
        };
        let is_beyond = |reading: &ArmReading, (low, high)| reading.high < low || reading.low > high;
        let plans = self.runs.iter().map(|run| 1.0 + run.run.plan.margins.relative);
        let margin = plans.fold(1.0, f64::max);
        let of_row = match scale {
            Scale::Own => return None,
            Scale::Ratio => (bound.min(1.0 / bound), bound.max(1.0 / bound)),
            _ => (-bound.abs(), bound.abs()),
        };
        self.identical(baseline).into_iter().filter(|arm| arm != baseline).find_map(|arm| {
            let ratio = figure(&arm, Scale::Ratio)?.reading;
            let is_apart =
                is_beyond(&ratio, (1.0 / margin, margin)) && is_beyond(&figure(&arm, scale)?.reading, of_row);
            is_apart.then(|| {
                let ends = Interval { low: ratio.low, high: ratio.high };
                let apart = ratio_with_interval(ratio.value, Some(ends));
                MeasureResult::Void(format!("void: the identical arms {arm} and {baseline} differ by {apart}"))
            })
        })
    }

    /// The candidate's time beside the baseline's.
    pub fn timed(&self, latency: &Latency, scale: Scale, arm: &str, baseline: &str) -> Result<Figure, MeasureResult> {
        let runs = self.runs.iter();
        let all = runs.filter_map(|run| Some((run.summary.health.is_busy, timed(run, latency, scale, arm, baseline)?)));
        let mut all: Vec<(usize, Figure)> = undisturbed(all.collect());
        let readings = all.iter().map(|(epochs, figure)| (*epochs, figure.reading.clone()));
        match most_precise(readings.collect()) {
            Some((at, reading)) => Ok(Figure { reading, ..all.swap_remove(at).1 }),
            None if scale == Scale::SessionShare && self.has_no_turns(latency, arm) => Err(MeasureResult::Unknown(
                format!("measured, but {} has no recorded turns, of which its time could be a share", latency.workload),
            )),
            None => Err(self.without_time(latency, &[arm, baseline], not_measured(latency, arm))),
        }
    }
}

/// The epochs behind a time, 0 without an interval, and the time.
fn timed(run: &RunEvidence<'_>, latency: &Latency, scale: Scale, arm: &str, baseline: &str) -> Option<(usize, Figure)> {
    let workload = run.run.plan.workload(&latency.workload)?;
    let candidate = cell(run, latency, arm)?;
    let base = cell(run, latency, baseline)?;
    let itself = Interval { low: 1.0, high: 1.0 };
    let (ratio, interval, withheld) =
        if arm == baseline { (1.0, Some(itself), None) } else { ratio(&compared(run, latency, candidate, baseline)?) };
    let (of_pass, calls_of_pass) = match latency.metric.as_str() {
        MAKESPAN => (1, workload.calls.values().sum::<u64>().max(1)),
        kind => (workload.calls.get(kind).copied().unwrap_or(1), 1),
    };
    let (of_pass, calls_of_pass) = (of_pass as f64, calls_of_pass as f64);
    let added = |ratio: f64| base.typical_ns * (ratio - 1.0);
    let in_unit = |ratio: f64| {
        Some(match scale {
            Scale::Ratio => ratio,
            Scale::Saved => saved(ratio),
            Scale::More => added(ratio) / 1e6,
            Scale::Fewer => -added(ratio) / 1e6,
            Scale::SessionShare => added(ratio) * of_pass / recorded_ns(workload)?.0,
            Scale::TurnShare => added(ratio) * of_pass / session_ns(workload),
            Scale::Own => return None,
        })
    };
    let value = in_unit(ratio)?;
    let (low, high) = match interval {
        Some(interval) => {
            let [one, other] = [interval.low, interval.high].map(|end| in_unit(end).unwrap_or(value));
            (one.min(other), one.max(other))
        }
        None => (f64::NEG_INFINITY, f64::INFINITY),
    };
    let of_ratio = interval.filter(|_| arm != baseline);
    let mut words = cell_words(candidate);
    if !matches!(scale, Scale::Ratio) {
        words = format!("{words}, {}", ratio_with_interval(ratio, of_ratio));
    }
    if let Some(why) = withheld {
        words += &format!("; no verdict: {why}");
    }
    let mut provenance = Provenance::of_arm(arm);
    if let (Scale::SessionShare, Some((_, Some(turns)))) = (scale, recorded_ns(workload)) {
        words += &format!("; the recording has no times: {turns} turns of {} are assumed", time(TURN_NS));
        provenance = provenance.max(Provenance::Computed);
    }
    let epochs = interval.map_or(0, |_| candidate.epochs.min(base.epochs));
    let timed = Figure {
        reading: ArmReading { low, high, provenance, ..ArmReading::exact(value, words, &source(latency)) },
        baseline: cell_words(base),
        baseline_short: String::new(),
        added_ns: Some(added(ratio) / calls_of_pass),
        session: session(workload, candidate.typical_ns * of_pass),
    };
    Some((epochs, timed))
}

/// The ratio and its interval; no interval where the verdict is withheld.
fn ratio(comparison: &Comparison) -> (f64, Option<Interval>, Option<String>) {
    let withheld = comparison.withheld.clone();
    let interval = comparison.interval.filter(|_| withheld.is_none());
    (comparison.ratio, interval, withheld)
}

fn compared(run: &RunEvidence<'_>, latency: &Latency, candidate: &Cell, baseline: &str) -> Option<Comparison> {
    let plan = &run.run.plan;
    let planned = plan.arm(&candidate.arm);
    let has_other = planned.is_some_and(|arm| arm.against.is_some());
    if run.summary.baseline == baseline && !has_other {
        return candidate.against_baseline.clone();
    }
    let key = SeriesKey::new(&latency.workload, &latency.state, &latency.metric);
    compare_arms(plan, run.table(), &key, &candidate.arm, &[baseline])
}

fn cell<'a>(run: &RunEvidence<'a>, latency: &Latency, arm: &str) -> Option<&'a Cell> {
    run.summary.cell(&latency.workload, &latency.state, &latency.metric, arm)
}

/// The duration of a workload's turns, in nanoseconds: the recorded ones, or one turn.
fn session_ns(workload: &PlannedWorkload) -> f64 {
    recorded_ns(workload).map_or(TURN_NS, |(ns, _)| ns)
}

/// The duration of a recorded session in nanoseconds; that of as many typical turns if the recording has no times, with their
/// number. `None` for other workloads.
fn recorded_ns(workload: &PlannedWorkload) -> Option<(f64, Option<u64>)> {
    let recorded = workload.session_ms.filter(|ms| *ms > 0);
    match recorded {
        Some(ms) => Some((ms as f64 * 1e6, None)),
        None => workload.turns.map(|turns| (turns as f64 * TURN_NS, Some(turns))),
    }
}

fn session(workload: &PlannedWorkload, waited_ns: f64) -> Option<String> {
    let session_ns = workload.session_ms? as f64 * 1e6;
    let not_replayed: u64 = workload.not_replayed.values().sum();
    let kinds = workload.not_replayed.iter();
    let kinds: Vec<String> = kinds.map(|(kind, n)| format!("{n} {kind}")).collect();
    let replayed: u64 = workload.calls.values().sum();
    let caveat = match not_replayed {
        0 => String::new(),
        _ => format!(
            "; {not_replayed} of {} recorded calls were not replayed, and are not in this figure ({})",
            replayed + not_replayed,
            kinds.join(", ")
        ),
    };
    Some(format!(
        "a session of {} waits {} for its replayed file calls in all (the baseline's wait included): {:.4} %{caveat}",
        time(session_ns),
        time(waited_ns),
        100.0 * waited_ns / session_ns
    ))
}

/// The readings without those of busy runs that have no interval, if a run has one: other work can have changed their values.
/// Each has the number of its epochs, 0 without an interval.
fn undisturbed<T>(mut readings: Vec<(bool, (usize, T))>) -> Vec<(usize, T)> {
    if readings.iter().any(|(_, (epochs, _))| *epochs > 0) {
        readings.retain(|(is_busy, (epochs, _))| !is_busy || *epochs > 0);
    }
    readings.into_iter().map(|(_, reading)| reading).collect()
}

/// The reading of the run with the most epochs, and its index. Its range holds the value of each other run, and the whole range
/// of each run that has as many epochs or whose interval excludes that reading's value: then everything between both is
/// possible. So a run without an interval never counts for more than the same run with one, however wide.
fn most_precise(readings: Vec<(usize, ArmReading)>) -> Option<(usize, ArmReading)> {
    // The order of the runs decides nothing.
    let mut readings: Vec<(usize, (usize, ArmReading))> = readings.into_iter().enumerate().collect();
    readings.sort_by(|(_, (epochs, one)), (_, (others, other))| others.cmp(epochs).then_with(|| one.order(other)));
    let mut readings = readings.into_iter();
    let (at, (most, first)) = readings.next()?;
    let value = first.value;
    let reading = readings.fold(first, |all, (_, (epochs, other))| {
        let excludes = epochs > 0 && (other.low > value || other.high < value);
        let other = if excludes || epochs == most {
            other
        } else {
            ArmReading { low: other.value, high: other.value, ..other }
        };
        if other.low < all.low || other.high > all.high { hull(all, other) } else { all }
    });
    Some((at, reading))
}

fn hull(one: ArmReading, other: ArmReading) -> ArmReading {
    ArmReading {
        value: one.value,
        low: one.low.min(other.low),
        high: one.high.max(other.high),
        words: format!("{}; in another run {}", one.words, other.words),
        short: one.short,
        source: one.source,
        provenance: one.provenance,
    }
}

fn step_words(steps: &[MixStep]) -> String {
    let steps = steps.iter();
    let steps: Vec<String> = steps.map(|step| format!("{} {}", step.times, step.cell.metric)).collect();
    steps.join(", ")
}

fn cell_words(cell: &Cell) -> String {
    let interval = cell.interval;
    let typical = time(cell.typical_ns);
    let interval = interval.map(|ends| interval_words(&typical, &time(ends.low), &time(ends.high)));
    format!("{typical}{}, {}", interval.unwrap_or_default(), cell.failed.words())
}

fn source(latency: &Latency) -> String {
    format!("{SAMPLES}: {} of {}, {}", latency.metric, latency.workload, latency.state)
}

fn not_measured(latency: &Latency, arm: &str) -> String {
    format!("{} of {} ({}) on {arm}", latency.metric, latency.workload, latency.state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(low: f64, high: f64) -> ArmReading {
        ArmReading { low, high, ..ArmReading::exact(f64::midpoint(low, high), String::new(), "") }
    }

    #[test]
    fn the_run_with_the_most_epochs_speaks_and_its_range_holds_the_values_of_the_others() {
        for (runs, speaker, low, high) in [
            (vec![(3, (0.3, 2.0)), (8, (1.0, 1.2))], 1, 1.0, 1.2),
            (vec![(8, (1.0, 1.2)), (3, (0.3, 2.0))], 0, 1.0, 1.2),
            // The value of the second run lies outside, whether it has an interval or not.
            (vec![(8, (1.0, 1.2)), (3, (0.0, 4.0))], 0, 1.0, 2.0),
            (vec![(8, (1.0, 1.2)), (0, (0.0, 4.0))], 0, 1.0, 2.0),
            (vec![(8, (1.0, 1.2)), (3, (1.5, 3.0))], 0, 1.0, 3.0),
            (vec![(8, (1.0, 1.2)), (7, (1.19, 3.0))], 0, 1.0, 3.0),
            (vec![(3, (0.3, 3.0)), (3, (1.0, 4.0))], 0, 0.3, 4.0),
            (vec![(0, (2.0, 2.0)), (3, (1.0, 4.0))], 1, 1.0, 4.0),
            (vec![(0, (300.0, 300.0)), (3, (1.0, 4.0))], 1, 1.0, 300.0),
            (vec![(3, (1.0, 4.0)), (0, (0.1, 0.1))], 0, 0.1, 4.0),
        ] {
            let readings = runs.iter().map(|(epochs, ends)| {
                let reading = reading(ends.0, ends.1);
                let without_ends = ArmReading { low: 0.0, high: f64::INFINITY, ..reading.clone() };
                (*epochs, if *epochs == 0 { without_ends } else { reading })
            });
            let (at, found) = most_precise(readings.collect()).unwrap();
            assert_eq!((at, found.low, found.high), (speaker, low, high), "{runs:?}");
        }
        assert!(most_precise(Vec::new()).is_none());
    }
}
