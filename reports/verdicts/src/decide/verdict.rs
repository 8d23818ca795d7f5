//! From the states of rows to a verdict, and from their figures and bounds to the smallest change that would flip it.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::Serialize;

use super::rows::{Bound, RestatedFigure, Row, RowEffect, RowRole, RowState};
use crate::measure::amount;
use figures::text::lower;

inputs::named! {
    /// The verdict of a decision.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum PolicyVerdict, name {
        /// Replace the baseline by the candidate.
        Adopt = "adopt",
        /// Replace it where a named condition holds.
        AdoptIf = "adopt if",
        /// Keep the baseline.
        Archive = "archive",
        /// The evidence does not decide.
        #[default]
        NotDecided = "not decided",
    }
}

impl PolicyVerdict {
    /// The exit code of `ctxbench decide`.
    pub fn exit_code(self) -> u8 {
        match self {
            PolicyVerdict::Adopt => 0,
            PolicyVerdict::Archive => 10,
            PolicyVerdict::NotDecided => 11,
            PolicyVerdict::AdoptIf => 12,
        }
    }
}

/// A change of one bound or one measurement that flips a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Flip {
    /// The row's title, or the parameter that the policy states, in words.
    pub row: String,
    /// The row's part in the verdict.
    pub role: RowRole,
    /// Whether the bound changes, rather than the measurement.
    pub is_bound: bool,
    /// Whether a parameter changes that the policy states.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_stated: bool,
    /// The present value.
    pub from: f64,
    /// The value at which the verdict flips.
    pub to: f64,
    /// The unit of both.
    pub unit: String,
    /// The bound of the row, before a change of it.
    pub bound: f64,
    /// The end of the interval that reaches the bound, if the measurement changes and has an interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<MovedEnd>,
    /// The other verdict.
    pub becomes: PolicyVerdict,
}

/// An end of an interval that moves with its measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MovedEnd {
    /// Whether it is the lower end.
    pub is_low: bool,
    pub from: f64,
    pub to: f64,
}

impl MovedEnd {
    /// The end that is nearer to the bound after the shift. `None` without an interval.
    fn of(effect: &RowEffect, shift: f64, bound: f64) -> Option<Self> {
        let has_width = effect.low < effect.high && effect.low.is_finite() && effect.high.is_finite();
        let ends =
            [(true, effect.low), (false, effect.high)].map(|(is_low, from)| Self { is_low, from, to: from + shift });
        let distance = |end: &Self| (end.to - bound).abs();
        has_width
            .then_some(ends)
            .and_then(|ends| ends.into_iter().min_by(|one, other| distance(one).total_cmp(&distance(other))))
    }
}

impl Flip {
    /// The difference as a share of the larger value: 0 means no change.
    pub fn size(&self) -> f64 {
        let largest = self.from.abs().max(self.to.abs());
        if largest > 0.0 { (self.to - self.from).abs() / largest } else { 0.0 }
    }

    /// A flip of a row.
    fn of(row: &Row, is_bound: bool, (from, to): (f64, f64), becomes: PolicyVerdict) -> Self {
        let unit = row.bound.unit.clone();
        let bound = row.bound.value;
        let (title, role) = (row.title.clone(), row.role);
        Self { row: title, role, is_bound, is_stated: false, from, to, unit, bound, end: None, becomes }
    }

    /// Another value of a stated parameter, which can change several rows.
    fn of_parameter(row: &Row, stated: &RestatedFigure, becomes: PolicyVerdict) -> Self {
        let RestatedFigure { parameter, unit, from, to, .. } = stated;
        let flip = Self::of(row, false, (*from, *to), becomes);
        Self { row: parameter.clone(), unit: (*unit).to_owned(), is_stated: true, ..flip }
    }

    /// The change in a clause behind "if".
    pub fn condition(&self) -> String {
        let title = lower(&self.row);
        let words = |value: f64| amount(value, &self.unit);
        // A reader compares the end of the interval with the bound. The figure beside it would look like another bound.
        if let Some(MovedEnd { is_low, from, to }) = self.end {
            let verb = if is_low { "began" } else { "ended" };
            return if words(to) == words(from) {
                let side = if to > from { "above" } else { "below" };
                format!("the interval of “{title}” {verb} slightly {side} {}", words(from))
            } else {
                format!(
                    "the interval of “{title}” {verb} {}{} instead of {}",
                    self.beside(to).unwrap_or("at "),
                    words(to),
                    words(from)
                )
            };
        }
        let [to, from] = [self.to, self.from].map(words);
        if self.is_stated {
            return format!("the stated “{title}” were {to} instead of {from}");
        }
        // Three digits cannot tell them apart.
        if to == from {
            let what = if self.is_bound { "the bound of " } else { "" };
            let side = if self.to > self.from { "above" } else { "below" };
            return format!("{what}“{title}” were slightly {side} {from}");
        }
        let is_saving = self.unit == "ratio" && self.from < 1.0;
        match (self.is_bound, self.role) {
            (true, RowRole::Benefit) if is_saving => {
                // To a tenth of a percent.
                let [to, from] = [self.to, self.from].map(|ratio| ((1.0 - ratio) * 1000.0).round() / 1000.0);
                let [least, needed] = [to, from].map(|saving| amount(saving, "share"));
                if to > 0.0 {
                    format!("a saving of {least} instead of {needed} were enough in “{title}”")
                } else {
                    format!("no saving were needed in “{title}”, instead of {needed}")
                }
            }
            (true, RowRole::Benefit) => format!("{to} instead of {from} were enough for “{title}”"),
            (true, RowRole::Cost) => format!("{to} instead of {from} were tolerated for “{title}”"),
            (true, _) => format!("the limit of “{title}” were {to} instead of {from}"),
            (false, _) => format!("“{title}” were {}{to} instead of {from}", self.beside(self.to).unwrap_or("")),
        }
    }

    /// "above" or "below" for a value beside the bound that is written like it.
    fn beside(&self, value: f64) -> Option<&'static str> {
        let is_written_alike = amount(value, &self.unit) == amount(self.bound, &self.unit);
        match value.total_cmp(&self.bound) {
            Ordering::Greater if is_written_alike => Some("above "),
            Ordering::Less if is_written_alike => Some("below "),
            _ => None,
        }
    }

    /// What follows for a candidate.
    pub fn outcome(&self, candidate: &str) -> String {
        match self.becomes {
            PolicyVerdict::Adopt => format!("{candidate} would be chosen"),
            PolicyVerdict::AdoptIf => format!("{candidate} would be chosen under a condition"),
            PolicyVerdict::Archive => format!("{candidate} would not be chosen"),
            PolicyVerdict::NotDecided => format!("{candidate} would be undecided"),
        }
    }
}

/// The verdict, and the rows that decide it.
pub(super) fn conclude(rows: &[Row], benefits_needed: usize) -> (PolicyVerdict, Vec<usize>) {
    let states: Vec<RowState> = rows.iter().map(|row| row.state).collect();
    of_states(rows, &states, benefits_needed)
}

fn of_states(rows: &[Row], states: &[RowState], benefits_needed: usize) -> (PolicyVerdict, Vec<usize>) {
    let pick = |role: RowRole, wanted: &[RowState]| -> Vec<usize> {
        let all = rows.iter().zip(states).enumerate();
        let picked = all.filter(|(_, (row, state))| row.role == role && wanted.contains(state));
        picked.map(|(at, _)| at).collect()
    };
    let failed = pick(RowRole::Gate, &[RowState::Unmet, RowState::Failed]);
    if !failed.is_empty() {
        return (PolicyVerdict::Archive, failed);
    }
    const UNDECIDED: [RowState; 3] = [RowState::Missing, RowState::Open, RowState::Void];
    // Rows cannot be compared with a baseline whose passes failed.
    let void = pick(RowRole::Gate, &[RowState::Void]);
    if !void.is_empty() {
        return (PolicyVerdict::NotDecided, void);
    }
    let shown = pick(RowRole::Benefit, &[RowState::Met]);
    let conditional = pick(RowRole::Benefit, &[RowState::Conditional]);
    let open = pick(RowRole::Benefit, &UNDECIDED);
    let counting = shown.len() + conditional.len();
    if counting + open.len() < benefits_needed {
        return (
            PolicyVerdict::Archive,
            pick(RowRole::Benefit, &[RowState::Unmet, RowState::Failed, RowState::Declared]),
        );
    }
    // No condition makes a failed pass tolerable.
    let failed = pick(RowRole::Cost, &[RowState::Failed]);
    if !failed.is_empty() {
        return (PolicyVerdict::Archive, failed);
    }
    let above = pick(RowRole::Cost, &[RowState::Unmet]);
    let cannot_hold = |at: &&usize| {
        let break_even = rows[**at].break_even.as_ref();
        !break_even.is_some_and(|break_even| break_even.can_hold)
    };
    let fatal: Vec<usize> = above.iter().filter(cannot_hold).copied().collect();
    if !fatal.is_empty() {
        return (PolicyVerdict::Archive, fatal);
    }
    // The rows so far rule the candidate out, whatever the open gates would show.
    let unknown = pick(RowRole::Gate, &UNDECIDED);
    if !unknown.is_empty() {
        return (PolicyVerdict::NotDecided, unknown);
    }
    if counting < benefits_needed {
        return (PolicyVerdict::NotDecided, open);
    }
    let unknown = pick(RowRole::Cost, &UNDECIDED);
    if !unknown.is_empty() {
        return (PolicyVerdict::NotDecided, unknown);
    }
    let conditions = if shown.len() < benefits_needed { [conditional, above].concat() } else { above };
    if conditions.is_empty() { (PolicyVerdict::Adopt, shown) } else { (PolicyVerdict::AdoptIf, conditions) }
}

/// The change of one bound by a factor of two, of one measurement by half of its interval, or of a stated parameter that
/// turns the verdict; the smallest if several do. A stricter bound that leaves a row open does not count as a flip.
pub(super) fn fragile_flip(rows: &[Row], benefits_needed: usize) -> Option<Flip> {
    let (verdict, _) = conclude(rows, benefits_needed);
    if verdict == PolicyVerdict::NotDecided {
        return None;
    }
    let mut turns = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let Some(effect) = row.effect else { continue };
        let mut change = |is_bound: bool, change: (f64, f64), state: RowState| {
            let mut states: Vec<RowState> = rows.iter().map(|row| row.state).collect();
            states[at] = state;
            let (becomes, _) = of_states(rows, &states, benefits_needed);
            // A looser bound does not ask for more evidence.
            let asks_for_more = is_bound && becomes == PolicyVerdict::NotDecided && row.state != RowState::Unmet;
            if becomes != verdict && !asks_for_more {
                turns.push(Flip::of(row, is_bound, change, becomes));
            }
        };
        for factor in [0.5, 2.0] {
            let Some(value) = scaled(&row.bound, factor) else {
                continue;
            };
            let bound = Bound { value, ..row.bound.clone() };
            let state = row.state_at(&bound, &effect);
            change(true, (row.bound.value, bound.value), state);
        }
        // A session that lacks the benefit is as good a sample of sessions as the one that shows it.
        if row.state == RowState::Conditional
            && let Some(worst) = row.worst_session()
        {
            let state = row.state_at(&row.bound, &worst.effect);
            change(false, (effect.value, worst.effect.value), state);
        }
        // The upper bound of a loss that was never seen is not an interval around a figure.
        let is_around = effect.low < effect.value && effect.value < effect.high;
        let half = (effect.high - effect.low) / 2.0;
        if is_around && half.is_finite() {
            for shift in [-half, half] {
                let shifted =
                    RowEffect { value: effect.value + shift, low: effect.low + shift, high: effect.high + shift };
                let state = row.state_at(&row.bound, &shifted);
                change(false, (effect.value, shifted.value), state);
            }
        }
    }
    turns.extend(stated_flips(rows, verdict, benefits_needed));
    turns.into_iter().min_by(|one, other| one.size().total_cmp(&other.size()))
}

/// The other values of stated parameters that turn the verdict, or leave it open. A parameter changes each row that has it.
fn stated_flips(rows: &[Row], verdict: PolicyVerdict, benefits_needed: usize) -> Vec<Flip> {
    let all = rows.iter().flat_map(|row| row.stated.iter().map(move |stated| (row, stated)));
    let flips = all.filter_map(|(row, stated)| {
        let state_of = |row: &Row| {
            let mut own = row.stated.iter();
            let same = own.find(|other| (&other.parameter, other.to) == (&stated.parameter, stated.to));
            same.map_or(row.state, |same| row.state_at(&row.bound, &same.effect))
        };
        let states: Vec<RowState> = rows.iter().map(state_of).collect();
        let (becomes, _) = of_states(rows, &states, benefits_needed);
        (becomes != verdict).then(|| Flip::of_parameter(row, stated, becomes))
    });
    flips.collect()
}

/// Whether a bound could be wider or narrower. A property is there or not.
fn can_change(bound: &Bound) -> bool {
    !["properties more", "properties"].contains(&&*bound.unit)
}

/// A bound that is multiplied; of a ratio, its distance from 1 is. `None` if the result is no bound or the bound is at the
/// end of the figure's range.
fn scaled(bound: &Bound, factor: f64) -> Option<f64> {
    let value = match bound.unit.as_str() {
        "ratio" | "times" => 1.0 + (bound.value - 1.0) * factor,
        _ if !can_change(bound) => return None,
        _ => bound.value * factor,
    };
    let is_ratio_of_nothing = ["ratio", "times"].contains(&&*bound.unit) && value <= 0.0;
    let is_whole = bound.unit.contains("share") && value >= 1.0;
    (!is_ratio_of_nothing && !is_whole).then_some(value)
}

/// The smallest change of one bound or one measurement that flips the verdict; `None` if none does. A bound that asks for
/// more evidence flips nothing.
pub(super) fn smallest_flip(rows: &[Row], benefits_needed: usize) -> Option<Flip> {
    let (verdict, _) = conclude(rows, benefits_needed);
    let mut smallest: Option<Flip> = None;
    for (at, row) in rows.iter().enumerate() {
        let Some(effect) = row.effect else { continue };
        for (is_bound, from, to, state) in changes(row, &effect) {
            let mut states: Vec<RowState> = rows.iter().map(|row| row.state).collect();
            states[at] = state;
            let (becomes, _) = of_states(rows, &states, benefits_needed);
            let flip = Flip::of(row, is_bound, (from, to), becomes);
            let end = (!is_bound).then(|| MovedEnd::of(&effect, to - from, row.bound.value)).flatten();
            let flip = Flip { end, ..flip };
            let is_smaller = smallest.as_ref().is_none_or(|known| flip.size() < known.size());
            let is_open = is_bound && becomes == PolicyVerdict::NotDecided;
            if becomes != verdict && is_smaller && !is_open {
                smallest = Some(flip);
            }
        }
    }
    smallest
}

/// The changes of a row's bound and of its measurement that give it another state: whether it is the bound, the
/// present value, the new one, the new state.
pub(super) fn changes(row: &Row, effect: &RowEffect) -> Vec<(bool, f64, f64, RowState)> {
    let bound = &row.bound;
    // Counts change by one, other figures by as little as can be written.
    let is_count = [effect.value, effect.low, effect.high, bound.value]
        .iter()
        .all(|figure| figure.is_finite() && figure.fract() == 0.0)
        && bound.unit != "ratio";
    let past = |value: f64, up: bool| {
        let step = if is_count { 1.0 } else { (value.abs() * 1e-3).max(1e-9) };
        if up { value + step } else { value - step }
    };
    let most = bound.is_most;
    // The ends of the interval that keep and break the bound last.
    let (worst, best) = if most { (effect.high, effect.low) } else { (effect.low, effect.high) };
    let mut found = Vec::new();
    // Of a loss that was never seen only the upper end is known. The next figure is that of one loss, which is no shift.
    let is_unseen = effect.value == 0.0 && effect.low == 0.0 && effect.high > 0.0;
    let is_plain = row.sessions.is_empty();
    let mut to = |state: RowState, other: f64, shift: f64| {
        let state = match state {
            RowState::Met if row.is_for_need => RowState::Conditional,
            state => state,
        };
        if state == row.state || !other.is_finite() || !shift.is_finite() {
            return;
        }
        let changed = Bound { value: other, ..bound.clone() };
        let shifted = RowEffect { value: effect.value + shift, low: effect.low + shift, high: effect.high + shift };
        // A bound or a figure alone may not change a row that rests on several sessions.
        if can_change(bound) && (is_plain || row.state_at(&changed, effect) == state) {
            found.push((true, bound.value, other, state));
        }
        if !is_unseen && (is_plain || row.state_at(bound, &shifted) == state) {
            found.push((false, effect.value, shifted.value, state));
        }
    };
    to(RowState::Met, worst, bound.value - worst);
    to(RowState::Unmet, past(best, !most), past(bound.value, most) - best);
    if worst != best {
        // A step that is longer than the interval would leave the bound outside of it.
        let half = (worst - best).abs() / 2.0;
        let inside = |value: f64, up: bool| {
            let step = past(value, up) - value;
            value + step.abs().min(half).copysign(step)
        };
        let middle = inside(worst, !most);
        match row.state {
            RowState::Met => to(RowState::Open, middle, inside(bound.value, most) - worst),
            RowState::Unmet => to(RowState::Open, best, bound.value - best),
            _ => {}
        }
    }
    found
}
