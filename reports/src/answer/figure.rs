//! A figure of an answer, from a row of a decision.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::Serialize;
use stats::SeriesKey;

use figures::evidence::RunEvidence;
use figures::provenance::Provenance;
use figures::summary::is_simulated;
use figures::text::{interval_words, lower, time};
use verdicts::decide::spread;
use verdicts::decide::{Decision, Row, RowEffect, SessionRange, amount, digits};

/// A figure that carries an answer. Ends without a bound are `null` in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AnswerFigure {
    /// The title of the policy's row.
    pub title: String,
    /// The arm, method or practice that it is compared with, in words; empty for a figure without a comparison, and for one
    /// whose title says it.
    pub against: String,
    /// The figure with its interval, in words.
    pub text: String,
    /// The figure in the unit of its row.
    pub value: Option<f64>,
    /// The lower end of its interval.
    pub low: Option<f64>,
    /// The upper end of its interval.
    pub high: Option<f64>,
    /// The unit.
    pub unit: String,
    /// The bound of the row, in words: `limit: …`, `needed: …` or `tolerated …`.
    pub needed: String,
    /// Whether the figure keeps the bound, in the words of the row's role.
    pub state: String,
    /// `measured`, `computed`, `simulated` or `declared`.
    pub provenance: String,
    /// The mark of that origin.
    pub mark: String,
    /// The time as a ratio to the baseline with the ends of its interval, for a row about time.
    pub ratio: Option<[f64; 3]>,
    /// The typical times of the baseline and of the candidate in nanoseconds, for a row about time.
    pub times_ns: Option<[f64; 2]>,
    /// The cell that it comes from, for a row about time.
    pub cell: Option<SeriesKey>,
    /// The files and fields that it comes from.
    pub evidence: String,
    /// `text` without sessions and without the ratio of two times; empty for a figure without a value.
    #[serde(skip)]
    brief: String,
    /// The figures in other sessions than the one of `value`; `None` without any.
    #[serde(skip)]
    others: Option<SessionRange>,
    /// Whether the figure is the baseline's or worse: a benefit that is none.
    #[serde(skip)]
    pub(super) is_none: bool,
    /// Whether it is worse than the baseline's.
    #[serde(skip)]
    pub(super) is_worse: bool,
}

impl AnswerFigure {
    /// The figure of a row. Without one, `text` is why.
    pub(super) fn of(decision: &Decision, row: &Row, runs: &[RunEvidence<'_>]) -> Self {
        let effect = row.effect;
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        let compared = compared(decision, row, runs);
        let ratio = compared.map(|(ratio, _)| ratio);
        let mut text = match effect {
            Some(effect) => with_interval(&effect, &row.bound.unit),
            None => row.candidate.clone(),
        };
        if is_simulated(&decision.candidate) {
            text += ", simulated distance";
        }
        // The times say more than their ratio.
        let brief = match (row.delays.as_str(), effect) {
            ("", Some(_)) => text.clone(),
            ("", None) => String::new(),
            (delays, _) => delays.to_owned(),
        };
        if !row.delays.is_empty() {
            text += &format!(": {}", row.delays);
        }
        // Less than the baseline is better where the bound is an upper one.
        let side = effect.map(|effect| {
            let equal = if row.bound.unit == "ratio" { 1.0 } else { 0.0 };
            let order = effect.value.total_cmp(&equal);
            if row.bound.is_most { order } else { order.reverse() }
        });
        let others = row.in_other_sessions();
        if let Some(range) = &others {
            text += &format!(" in one example; {range}");
        }
        Self {
            title: row.title.clone(),
            against: if row.names_its_baseline() { String::new() } else { row.against.clone() },
            text,
            value: finite(effect.map(|effect| effect.value)),
            low: finite(effect.map(|effect| effect.low)),
            high: finite(effect.map(|effect| effect.high)),
            unit: row.bound.unit.clone(),
            needed: row.bound_words(),
            state: row.role.state(row.state).to_owned(),
            provenance: row.provenance.name().to_owned(),
            mark: row.provenance.mark().to_owned(),
            ratio,
            times_ns: compared.map(|(_, times)| times),
            cell: row.cell.clone(),
            evidence: row.evidence.clone(),
            brief,
            others,
            is_none: side.is_some_and(|side| side != Ordering::Less),
            is_worse: side == Some(Ordering::Greater),
        }
    }

    /// The figure behind its title, with the mark of its origin. `against` is what the sentence already compares with.
    pub fn words(&self, against: &str) -> String {
        format!("{} ({} {}{})", lower(&self.title), self.mark, self.text, self.compared_words(against))
    }

    /// As [`Self::words`], with the bound that the figure breaks or leaves open.
    pub(super) fn words_with_bound(&self, against: &str, bound: &str) -> String {
        let compared = self.compared_words(against);
        format!("{} ({} {}{compared}; {bound})", lower(&self.title), self.mark, self.text)
    }

    /// The bound without the word for its role, for a sentence that has this word.
    pub(super) fn bare_bound(&self) -> &str {
        let needed = self.needed.strip_prefix("needed: ");
        needed.or(self.needed.strip_prefix("tolerated ")).unwrap_or(&self.needed)
    }

    /// What the figure is compared with, if the sentence does not say it.
    fn compared_words(&self, against: &str) -> String {
        if self.against.is_empty() || self.against == against {
            String::new()
        } else {
            format!(" compared with {}", self.against)
        }
    }

    /// The figure behind its title, shorter than [`Self::words`]. `sessions` is what the sentence says about sessions.
    pub(super) fn short_words(&self, against: &str, sessions: &str) -> String {
        if self.value.is_none() {
            return self.words(against);
        }
        let compared = self.compared_words(against);
        let others = match &self.others {
            None => String::new(),
            Some(range) if range.sessions == sessions => String::new(),
            Some(range) => format!(" in one example; {range}"),
        };
        format!("{} ({}{others}{compared})", lower(&self.title), self.marked_brief())
    }

    /// The figure behind its title as one number.
    pub(super) fn shortest_words(&self) -> String {
        if self.value.is_none() {
            return self.words(&self.against);
        }
        let example = if self.others.is_none() { "" } else { " in one example" };
        format!("{} ({}{example})", lower(&self.title), self.marked_brief())
    }

    /// `brief` behind its mark. Two times have marks of their own.
    fn marked_brief(&self) -> String {
        if self.brief.starts_with(|first| Provenance::ALL.iter().any(|origin| origin.mark().starts_with(first))) {
            self.brief.clone()
        } else {
            format!("{} {}", self.mark, self.brief)
        }
    }

    /// The other sessions that the figure is from, with the figures in them.
    pub(super) fn other_sessions(&self) -> Option<&SessionRange> {
        self.others.as_ref()
    }

    /// A cost behind its title; a time as a ratio and as both times: `waiting for files (● ×1.62 [1.58, 1.66]: 21.0 ms instead of
    /// 13.0 ms)`.
    pub(super) fn cost_words(&self, against: &str) -> String {
        let (Some([ratio, low, high]), Some(times)) = (self.ratio, self.times_ns) else {
            return self.words(against);
        };
        let [baseline, candidate] = times.map(time);
        format!(
            "{} ({} {}{}: {candidate} instead of {baseline})",
            lower(&self.title),
            self.mark,
            ratio_words(ratio, low, high),
            self.compared_words(against)
        )
    }
}

/// A ratio with its interval, all three with the places that the interval earns.
pub(super) fn ratio_words(ratio: f64, low: f64, high: f64) -> String {
    if ratio < 0.1 || is_wide(ratio, low, high) {
        let [figure, low, high] = [ratio, low, high].map(digits);
        return format!("×{figure}{}", interval_words(&figure, &low, &high));
    }
    let places = places((high - ratio).max(ratio - low));
    let [figure, low, high] = [ratio, low, high].map(|end| format!("{end:.places$}"));
    format!("×{figure}{}", interval_words(&figure, &low, &high))
}

/// Whether the wider half of an interval is at least half of its ratio.
pub(super) fn is_wide(ratio: f64, low: f64, high: f64) -> bool {
    (high - ratio).max(ratio - low) >= ratio / 2.0
}

/// Digits behind the point that half of an interval earns.
pub(super) fn places(half: f64) -> usize {
    match half {
        half if half >= 1.0 => 0,
        half if half >= 0.1 => 1,
        _ => 2,
    }
}

/// The ratio of the cell of a row with the ends of its interval, and the typical times of the baseline and the candidate in
/// nanoseconds: of the run with the most epochs. `None` if the policy compares with another arm than that run, or if there
/// is no interval.
pub(super) fn compared(decision: &Decision, row: &Row, runs: &[RunEvidence<'_>]) -> Option<([f64; 3], [f64; 2])> {
    let key = row.cell.as_ref()?;
    row.effect?;
    let cells = runs
        .iter()
        .filter(|run| {
            let planned = run.run.plan.arm(&decision.candidate);
            run.summary.baseline == decision.baseline && planned.is_some_and(|arm| arm.against.is_none())
        })
        .filter_map(|run| run.summary.cell(&key.workload, &key.state, &key.metric, &decision.candidate));
    let best = cells.max_by_key(|cell| cell.epochs)?;
    let comparison = best.against_baseline.as_ref()?;
    let interval = comparison.interval?;
    let times = [best.typical_ns / comparison.ratio, best.typical_ns];
    Some(([comparison.ratio, interval.low, interval.high], times))
}

/// A figure with its interval: `×1.62 [1.58, 1.66]`, `0.3 % [0.2, 0.4] of a turn`.
fn with_interval(effect: &RowEffect, unit: &str) -> String {
    let value = amount(effect.value, unit);
    let is_open = !(effect.low.is_finite() && effect.high.is_finite());
    if is_open {
        return format!("{value}, no interval");
    }
    if effect.low >= effect.high {
        return value;
    }
    if unit == "ratio" {
        return ratio_words(effect.value, effect.low, effect.high);
    }
    spread(effect.value, (effect.low, effect.high), unit)
}
