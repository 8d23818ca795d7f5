//! Rows: a criterion of a policy, tested by the evidence for one candidate.

use serde::Serialize;
use stats::SeriesKey;

use super::policy::{Condition, Criterion, ITSELF, ListedRow, Policy};
use crate::measure::{
    Evidence, Figure, Found, Gap, Measure, Reading, Scale, ScoreMeasure, TURN_NS, amount, digits,
    spread,
};
use crate::provenance::Provenance;

inputs::named! {
    /// The part that a row plays in a verdict.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum RowRole, name {
        /// A requirement before any comparison.
        Gate = "gate",
        /// A reason to change.
        Benefit = "benefit",
        /// A reason not to change.
        Cost = "cost",
        /// A fact that decides nothing.
        Listed = "listed",
    }
}

/// Whether a row keeps its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowState {
    /// The whole interval keeps the bound: passed, shown, inside the margin.
    Met,
    /// The whole interval breaks the bound: failed, not shown, above the margin.
    Unmet,
    /// A pass of the candidate failed in a workload that the row reads. The passes that ended well say nothing.
    Failed,
    /// The interval contains the bound, or the run withholds a verdict.
    Open,
    /// A pass of the baseline failed, or the harness in a pass, in a workload that the row reads.
    Void,
    /// There is no evidence.
    Missing,
    /// A constant of this project or of a backend's makers. It keeps no bound and breaks none.
    Declared,
    /// No run measured a cost that decides only if it is measured.
    Unmeasured,
}

impl RowRole {
    /// A state of a row of this role in words.
    pub fn state(self, state: RowState) -> &'static str {
        match (self, state) {
            (RowRole::Gate, RowState::Met) => "passed",
            (RowRole::Gate, RowState::Unmet) => "FAILED",
            (RowRole::Benefit, RowState::Met) => "shown",
            (RowRole::Benefit, RowState::Unmet) => "not shown",
            (RowRole::Cost, RowState::Met) => "inside the margin",
            (RowRole::Cost, RowState::Unmet) => "above the margin",
            (_, RowState::Failed) => "FAILED passes",
            (_, RowState::Open) => "not decided",
            (_, RowState::Void) => "void, not decided",
            (_, RowState::Missing) => "no evidence",
            (_, RowState::Declared) => "declared, decides nothing",
            (RowRole::Listed, _) => "listed, decides nothing",
            (_, RowState::Unmeasured) => "not measured, decides nothing",
        }
    }
}

/// A figure with its interval, in the unit of its row. An unbounded end is `null` in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RowEffect {
    /// The figure.
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// The bound of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Whether the figure must be at most, rather than at least, this.
    pub is_most: bool,
    /// The bound.
    pub value: f64,
    pub unit: String,
}

impl Bound {
    /// The state of a figure.
    pub fn state(&self, effect: &RowEffect) -> RowState {
        let (keeps, breaks) = match self.is_most {
            true => (effect.high <= self.value, effect.low > self.value),
            false => (effect.low >= self.value, effect.high < self.value),
        };
        match (keeps, breaks) {
            (true, _) => RowState::Met,
            (_, true) => RowState::Unmet,
            _ => RowState::Open,
        }
    }

    pub fn words(&self) -> String {
        if self.value.is_infinite() {
            return "nothing".to_owned();
        }
        let side = if self.is_most { "at most" } else { "at least" };
        format!("{side} {}", amount(self.value, &self.unit))
    }
}

/// A row of a decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its part in the verdict.
    pub role: RowRole,
    pub title: String,
    /// The baseline's figure in words; empty without one.
    pub baseline: String,
    /// The candidate's figure in words.
    pub candidate: String,
    /// The figure that is compared with the bound; `None` without evidence.
    pub effect: Option<RowEffect>,
    pub bound: Bound,
    /// Whether the figure keeps the bound.
    pub state: RowState,
    /// The cell that it reads; `None` for other measures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<SeriesKey>,
    /// Where the figure comes from.
    pub provenance: Provenance,
    /// The wait as a share of a recorded session; `None` for other measures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The use at which a cost begins to matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub break_even: Option<BreakEven>,
    /// The files and fields behind it.
    pub evidence: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// The properties that the candidate has and the baseline has not, in words; empty for other measures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<&'static str>,
}

impl Row {
    /// The figure that is compared with the bound, without its interval, behind the mark of its origin; empty without
    /// evidence.
    pub fn value(&self) -> String {
        let marked = |effect: RowEffect| {
            let value = amount(effect.value, &self.bound.unit);
            self.provenance.marked(&value)
        };
        self.effect.map(marked).unwrap_or_default()
    }

    /// The figure that is compared with the bound, with its interval, behind the mark of its origin; empty without evidence.
    pub fn figure(&self) -> String {
        let Some(effect) = self.effect else {
            return String::new();
        };
        let ends = (effect.low, effect.high);
        self.provenance
            .marked(&spread(effect.value, ends, &self.bound.unit))
    }
}

/// The use at which a cost begins to matter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BreakEven {
    /// The amount; `null` if none is reached.
    pub amount: f64,
    /// The condition under which the cost is tolerable, in words.
    pub condition: String,
    /// The same as a statement.
    pub words: String,
    /// Whether some use is below it, so that the condition can hold.
    pub can_hold: bool,
}

/// A criterion of a policy, asked of one candidate.
struct Question<'a> {
    evidence: &'a Evidence<'a>,
    criterion: &'a Criterion,
    candidate: &'a str,
    baseline: &'a str,
}

/// Evaluates a criterion for a candidate.
pub(super) fn row(
    evidence: &Evidence<'_>,
    policy: &Policy,
    role: RowRole,
    criterion: &Criterion,
    candidate: &str,
) -> Row {
    let bound = Bound {
        is_most: criterion.at_most.is_some(),
        // A parsed policy has exactly one of them.
        value: criterion.at_most.or(criterion.at_least).unwrap_or(f64::NAN),
        unit: criterion.unit.clone(),
    };
    let question = Question {
        evidence,
        criterion,
        candidate,
        baseline: match criterion.baseline.as_deref() {
            Some(ITSELF) => candidate,
            other => other.unwrap_or(&policy.baseline),
        },
    };
    let mut row = match question.figure() {
        Ok(figure) => Row {
            break_even: question.break_even(bound.value, &figure),
            baseline: figure.baseline,
            session: figure.session,
            ..of_reading(role, &criterion.title, bound, figure.reading)
        },
        Err(found) => without(role, &criterion.title, bound, found),
    };
    // The weaker of the measure's own provenance and that of its evidence.
    let origin = criterion.measure.provenance();
    row.provenance = row
        .provenance
        .max(origin)
        .max(Provenance::of_arm(candidate));
    if let Measure::Property { of } = &criterion.measure {
        row.properties = evidence.more_properties(of, candidate, question.baseline);
    }
    if row.state == RowState::Missing && criterion.if_measured {
        (row.state, row.gap) = (RowState::Unmeasured, None);
    }
    // More kills narrow the bound of a share.
    if row.state == RowState::Open && matches!(criterion.measure, Measure::Durability { .. }) {
        row.gap = Some(Gap {
            what: format!("enough losses of {candidate} for {}", row.bound.words()),
            command: format!("ctxbench fault --backend {candidate} --crash-points 1000"),
        });
    }
    if let Measure::Latency(cell) = &criterion.measure {
        row.cell = Some(SeriesKey::new(&cell.workload, &cell.state, &cell.metric));
    }
    row
}

/// A fact that decides nothing, with that of the baseline beside it.
pub(super) fn listed(
    evidence: &Evidence<'_>,
    row: &ListedRow,
    candidate: &str,
    baseline: &str,
) -> Row {
    let bound = Bound {
        is_most: true,
        value: f64::INFINITY,
        unit: row.measure.kind().to_owned(),
    };
    let provenance = row.measure.provenance();
    let words = |found: Found| match found {
        Found::Value(reading) => (provenance.marked(&reading.words), reading.source),
        Found::Missing(gap) => (format!("no evidence: {}", gap.what), String::new()),
        Found::NotOffered(why) | Found::Failed(why) | Found::Void(why) => (why, String::new()),
    };
    let (found, source) = words(evidence.read(&row.measure, candidate, false));
    let baseline = words(evidence.read(&row.measure, baseline, true)).0;
    let state = match provenance {
        Provenance::Declared => RowState::Declared,
        _ => RowState::Unmeasured,
    };
    Row {
        baseline,
        evidence: source,
        provenance,
        ..bare(RowRole::Listed, &row.title, bound, state, found)
    }
}

/// A row without a figure.
pub(super) fn bare(
    role: RowRole,
    title: &str,
    bound: Bound,
    state: RowState,
    candidate: String,
) -> Row {
    Row {
        role,
        title: title.to_owned(),
        baseline: String::new(),
        candidate,
        effect: None,
        bound,
        state,
        cell: None,
        provenance: Provenance::Measured,
        session: None,
        break_even: None,
        evidence: String::new(),
        gap: None,
        properties: Vec::new(),
    }
}

/// A row of a figure without a baseline.
fn of_reading(role: RowRole, title: &str, bound: Bound, reading: Reading) -> Row {
    let effect = RowEffect {
        value: reading.value,
        low: reading.low,
        high: reading.high,
    };
    let state = bound.state(&effect);
    Row {
        effect: Some(effect),
        evidence: reading.source,
        provenance: reading.provenance,
        ..bare(role, title, bound, state, reading.words)
    }
}

/// A row of a figure that the candidate does not offer or no run measured.
pub(super) fn without(role: RowRole, title: &str, bound: Bound, found: Found) -> Row {
    let (state, words) = match found {
        Found::Missing(gap) => {
            let words = format!("no evidence: {}", gap.what);
            return Row {
                gap: Some(gap),
                ..bare(role, title, bound, RowState::Missing, words)
            };
        }
        // A benefit or a gate that the candidate cannot offer is not met. A cost that was not measured is not inside its
        // margin.
        Found::NotOffered(why) if role == RowRole::Cost => (RowState::Open, why),
        Found::NotOffered(why) => (RowState::Unmet, format!("not offered: {why}")),
        Found::Failed(why) => (RowState::Failed, why),
        Found::Void(why) => (RowState::Void, why),
        Found::Value(reading) => return of_reading(role, title, bound, reading),
    };
    bare(role, title, bound, state, words)
}

impl Question<'_> {
    fn figure(&self) -> Result<Figure, Found> {
        let (measure, scale) = (&self.criterion.measure, self.criterion.scale());
        let baseline = (scale != Scale::Own).then_some(self.baseline);
        if let Some(barred) = self.evidence.barred(measure, self.candidate, baseline) {
            return Err(barred);
        }
        self.evidence
            .figure(measure, scale, self.candidate, self.baseline)
    }

    fn of_candidate(&self, measure: &Measure) -> Result<Reading, Found> {
        self.evidence.read(measure, self.candidate, false).value()
    }

    fn of_baseline(&self, measure: &Measure) -> Result<Reading, Found> {
        self.evidence.read(measure, self.baseline, true).value()
    }

    /// How much more the candidate has of a measure.
    fn difference(&self, measure: &Measure) -> Option<f64> {
        let candidate = self.of_candidate(measure).ok()?;
        Some(candidate.value - self.of_baseline(measure).ok()?.value)
    }

    fn break_even(&self, bound: f64, figure: &Figure) -> Option<BreakEven> {
        let (amount, noun) = match self.criterion.condition.as_ref()? {
            Condition::CallsATurn(share) => {
                let added = figure.added_ns.filter(|added| *added > 0.0)?;
                (share * TURN_NS / added, "file calls a turn")
            }
            Condition::RoundTrip => {
                let amount = self.round_trip_ms(bound)?;
                let shown = digits((amount * 10.0).floor() / 10.0);
                return Some(BreakEven {
                    amount,
                    condition: format!(
                        "the server is nearer than {} (simulated delay)",
                        Provenance::Simulated.marked(&format!("{shown} ms"))
                    ),
                    words: format!(
                        "matters above a round trip of {} (simulated delay)",
                        Provenance::Simulated.marked(&format!("{shown} ms"))
                    ),
                    can_hold: amount > 0.0,
                });
            }
            Condition::Proportional { what, used } => {
                let effect = Some(figure.reading.value).filter(|value| *value > 0.0)?;
                (used * bound / effect, what.as_str())
            }
            Condition::OutweighedBy { counts } => {
                let Measure::Score(score) = &self.criterion.measure else {
                    return None;
                };
                let other = Measure::Score(ScoreMeasure {
                    counts: counts.clone(),
                    ..score.clone()
                });
                let paid = self.difference(&self.criterion.measure);
                let paid = paid.filter(|paid| *paid > 0.0)?;
                let saved = Some(-self.difference(&other)?).filter(|saved| *saved > 0.0)?;
                (saved / paid, "tasks a session")
            }
        };
        let whole = whole(amount);
        // An edit, the least that an agent does with files in a turn, is a read and a write.
        let least = match self.criterion.condition {
            Some(Condition::CallsATurn(_)) => 2.0,
            _ => 1.0,
        };
        Some(BreakEven {
            amount,
            condition: format!("there are at most {whole} {noun}"),
            words: format!("matters above {whole} {noun}"),
            can_hold: amount >= least,
        })
    }

    /// The round-trip time at which a time reaches `most` milliseconds: a line through the candidate's time without an
    /// injected delay and that with the longest one. `None` without both, or if the delay changes nothing.
    fn round_trip_ms(&self, most: f64) -> Option<f64> {
        let near = self.candidate.split('@').next().unwrap_or(self.candidate);
        let arms = self.evidence.arms().into_iter();
        let delays = arms.filter_map(|name| {
            let delay = name
                .strip_prefix(near)?
                .strip_prefix('@')?
                .strip_suffix("ms")?;
            Some((delay.parse::<f64>().ok()?, name.clone()))
        });
        let (delay, far) = delays.max_by(|one, other| one.0.total_cmp(&other.0))?;
        let measure = &self.criterion.measure;
        let time = |arm: &str| Some(self.evidence.read(measure, arm, false).value().ok()?.value);
        let undelayed = time(near)?;
        let slope = (time(&far)? - undelayed) / delay;
        (slope > 0.0).then(|| (most - undelayed) / slope)
    }
}

/// A number rounded down, to two digits from 100 on.
fn whole(number: f64) -> String {
    if number < 1.0 {
        return format!("{number:.2}");
    }
    let size = 10f64.powf((number.log10().floor() - 1.0).max(0.0));
    crate::text::count(((number / size).floor() * size) as u64)
}
