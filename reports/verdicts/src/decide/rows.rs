//! Rows: a criterion of a policy, tested by the evidence for one candidate.

use schemars::JsonSchema;
use serde::Serialize;
use stats::SeriesKey;

use super::policy::{BASELINE, CANDIDATE, Condition, Criterion, ITSELF, ListedRow, Policy, arm_words};
use crate::measure::{
    ArmReading, Evidence, Figure, Gap, GapKind, Loss, Measure, MeasureResult, RestatedMeasure, Scale, ScoreMeasure,
    TURN_NS, amount, digits, spread,
};
use figures::provenance::Provenance;
use figures::text::{lower, time};

inputs::named! {
    /// The part that a row plays in a verdict.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RowState {
    /// The whole interval keeps the bound: passed, shown, tolerated.
    Met,
    /// A benefit that keeps the bound, and counts under a condition: for teams that need it, or in sessions like one of them.
    Conditional,
    /// The whole interval breaks the bound: failed, not shown, not tolerated.
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
            (_, RowState::Conditional) => "shown under a condition",
            (RowRole::Benefit, RowState::Unmet) => "not shown",
            (RowRole::Cost, RowState::Met) => "tolerated",
            (RowRole::Cost, RowState::Unmet) => "not tolerated",
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RowEffect {
    /// The figure.
    #[schemars(with = "Option<f64>")]
    pub value: f64,
    /// The low end of its interval.
    #[schemars(with = "Option<f64>")]
    pub low: f64,
    /// The high end of its interval.
    #[schemars(with = "Option<f64>")]
    pub high: f64,
}

/// The bound of a row.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Bound {
    /// Whether the figure must be at most, rather than at least, this.
    pub is_most: bool,
    /// The bound; `null` if there is none.
    #[schemars(with = "Option<f64>")]
    pub value: f64,
    pub unit: String,
}

impl Bound {
    /// The state of a figure.
    pub fn state(&self, effect: &RowEffect) -> RowState {
        let (keeps, breaks) = if self.is_most {
            (effect.high <= self.value, effect.low > self.value)
        } else {
            (effect.low >= self.value, effect.high < self.value)
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
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// Its part in the verdict.
    pub role: RowRole,
    /// What the row asks.
    pub title: String,
    /// The arm, method or practice that its figure is compared with, in words; empty for a figure without a comparison.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub against: String,
    /// The baseline's figure in words; empty without one.
    pub baseline: String,
    /// The candidate's figure in words.
    pub candidate: String,
    /// The figure that is compared with the bound; null without evidence.
    pub effect: Option<RowEffect>,
    /// What the figure is held against.
    pub bound: Bound,
    /// Whether the figure keeps the bound.
    pub state: RowState,
    /// The cell that it reads; absent for other measures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<SeriesKey>,
    /// Where the figure comes from.
    pub provenance: Provenance,
    /// The wait as a share of a recorded session; absent for other measures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The use at which a cost begins to matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub break_even: Option<BreakEven>,
    /// The files and fields behind it.
    pub evidence: String,
    /// The reason that there is no figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// The delays of the candidate and of copies on a schedule, with their intervals; empty for other measures.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub delays: String,
    /// The properties that the candidate has and the baseline has not, in words; empty for other measures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<&'static str>,
    /// The figure in the other sessions in which a benefit is asked for; empty for other rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<OtherSession>,
    /// The sentence of an answer about the row, whatever the verdict, such as a listed fact; empty without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub says: String,
    /// The figure under other values of the parameters that the policy states.
    #[serde(skip)]
    pub stated: Vec<RestatedFigure>,
    /// Whether a benefit counts only for teams that need it.
    #[serde(skip)]
    pub is_for_need: bool,
    /// Whether the candidate does not offer what the row is about.
    #[serde(skip)]
    pub is_not_offered: bool,
}

/// A figure under another value of a stated parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct RestatedFigure {
    /// The parameter, in words.
    pub parameter: String,
    pub unit: &'static str,
    /// The stated value.
    pub from: f64,
    /// The other value.
    pub to: f64,
    pub effect: RowEffect,
}

/// The figure of a benefit in another session.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OtherSession {
    /// The session.
    pub workload: String,
    /// Whether it is the recording of an agent's session.
    pub is_recorded: bool,
    /// The figure, in the unit of the row.
    pub effect: RowEffect,
}

/// The figures of a benefit in other sessions, in words.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRange {
    /// The figure, or the smallest and the largest one: `×0.77 to ×0.97`.
    pub figures: String,
    /// The sessions: `3 recorded sessions`.
    pub sessions: String,
}

impl std::fmt::Display for SessionRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {}", self.figures, self.sessions)
    }
}

impl Row {
    /// Its bound in words: what a gate's limit is, what a benefit needs, what of a cost is tolerated.
    pub fn bound_words(&self) -> String {
        match self.role {
            RowRole::Gate => format!("limit: {}", self.bound.words()),
            RowRole::Cost => format!("tolerated {}", self.bound.words()),
            // "Needed at most" would name a limit, and no benefit.
            RowRole::Benefit | RowRole::Listed if self.bound.is_most && self.bound.value.is_finite() => {
                format!("needed: {} or less", amount(self.bound.value, &self.bound.unit))
            }
            RowRole::Benefit | RowRole::Listed => format!("needed: {}", self.bound.words()),
        }
    }

    /// Whether its title says what its figure is compared with.
    pub fn names_its_baseline(&self) -> bool {
        self.title.contains("against ")
    }

    /// The state of a figure of this row under a bound.
    ///
    /// A benefit that is not shown in every session counts under a condition.
    pub fn state_at(&self, bound: &Bound, effect: &RowEffect) -> RowState {
        let state = bound.state(effect);
        let mut sessions = self.sessions.iter();
        let is_everywhere = sessions.all(|other| bound.state(&other.effect) == RowState::Met);
        match state {
            RowState::Met if self.is_for_need || !is_everywhere => RowState::Conditional,
            state => state,
        }
    }

    /// The other session whose figure is the farthest on the wrong side of the bound.
    pub fn worst_session(&self) -> Option<&OtherSession> {
        let worse = |one: &&OtherSession, other: &&OtherSession| {
            let order = one.effect.value.total_cmp(&other.effect.value);
            if self.bound.is_most { order } else { order.reverse() }
        };
        self.sessions.iter().max_by(worse)
    }

    /// The figures in the other sessions, and those sessions. `None` without any.
    pub fn in_other_sessions(&self) -> Option<SessionRange> {
        let figures = || self.sessions.iter().map(|other| other.effect.value);
        let words = |value: f64| amount(value, &self.bound.unit);
        let low = figures().fold(f64::INFINITY, f64::min);
        let high = figures().fold(f64::NEG_INFINITY, f64::max);
        let kind = if self.sessions.iter().all(|other| other.is_recorded) { "recorded" } else { "other" };
        let count = self.sessions.len();
        let noun = if count == 1 { "session" } else { "sessions" };
        let figures = if low == high { words(low) } else { format!("{} to {}", words(low), words(high)) };
        (count > 0).then(|| SessionRange { figures, sessions: format!("{count} {kind} {noun}") })
    }

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
        self.provenance.marked(&spread(effect.value, ends, &self.bound.unit))
    }
}

/// The use at which a cost begins to matter.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BreakEven {
    /// The amount; `null` if none is reached.
    #[schemars(with = "Option<f64>")]
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
    let found = question.figure();
    let found = found.and_then(|figure| Ok((figure, question.other_sessions()?)));
    // The figures without their explanation.
    let (own, of_baseline) = match &found {
        Ok((figure, _)) => (figure.reading.figure_words().to_owned(), figure.baseline_short.clone()),
        Err(_) => Default::default(),
    };
    let mut row = match found {
        Ok((figure, sessions)) => Row {
            break_even: question.break_even(bound.value, &figure),
            stated: question.restated(),
            baseline: figure.baseline,
            session: figure.session,
            sessions,
            ..of_reading(role, &criterion.title, bound, figure.reading)
        },
        Err(found) => without(role, &criterion.title, bound, found),
    };
    if criterion.condition == Some(Condition::RoundTrip) {
        let has_bucket = |arm: &str| evidence.arm(arm).is_none_or(|arm| arm.backend.has_bucket);
        if !has_bucket(question.baseline) {
            row.baseline = String::new();
        }
        // Its time is one of its disk, and nothing that is put beside the time of an upload.
        if !has_bucket(candidate) {
            let bound = row.bound;
            row = bare(role, &criterion.title, bound, RowState::Unmeasured, "has no bucket".to_owned());
        }
    }
    row.against = against(criterion, &policy.baseline);
    if let (Measure::Hosts { copies: Some(_), figure, .. }, Some(_)) = (&criterion.measure, row.effect) {
        // Behind the figures stands how they were found.
        let own = Provenance::of_arm(candidate).marked(&own);
        let copies = Provenance::Computed.marked(&of_baseline);
        // The longest of some handoffs stands beside the longest that a schedule allows.
        let most = if figure.is_longest() { "at most " } else { "" };
        row.delays = format!("{own} instead of {most}{copies}");
    }
    // The weaker of the measure's own provenance and that of its evidence.
    let origin = criterion.measure.provenance();
    row.provenance = row.provenance.max(origin).max(Provenance::of_arm(candidate));
    if let Measure::Property { of } = &criterion.measure {
        row.properties = evidence.more_properties(of, candidate, question.baseline);
    }
    row.is_for_need = criterion.condition == Some(Condition::Needed);
    if let Some(effect) = row.effect {
        row.state = row.state_at(&row.bound, &effect);
        // What two hosts show in the end may still change: a count that breaks the bound all the same does so whatever comes,
        // but the amount at which a condition holds follows from the count.
        if question.is_unsettled() && (row.state != RowState::Unmet || criterion.condition.is_some()) {
            (row.state, row.break_even) = (RowState::Open, None);
        }
    }
    if let Some(range) = row.in_other_sessions() {
        row.candidate += &format!("; {range}");
    }
    if row.state == RowState::Conditional {
        row.break_even = Some(conditional(&row, criterion));
    }
    if row.state == RowState::Missing && criterion.if_measured {
        (row.state, row.gap) = (RowState::Unmeasured, None);
    }
    if let (Measure::Score(score), Scale::Own, Some(effect), RowState::Open) =
        (&criterion.measure, criterion.scale(), row.effect, row.state)
        && let Some(words) = score.deciding_words(effect.value, row.bound.value)
    {
        row.says = format!("“{}” is open: {words}", lower(&row.title));
        row.candidate += &format!("; {words}");
    }
    // More kills, notes or lines narrow the bound of a share.
    if let (RowState::Open, Some(effect)) = (row.state, &row.effect) {
        row.gap = question.too_few(&row.bound, effect);
    }
    if let Measure::Latency(cell) = &criterion.measure {
        row.cell = Some(SeriesKey::new(&cell.workload, &cell.state, &cell.metric));
    }
    row
}

/// What the figure of a criterion is compared with, in words; empty if it is not compared.
fn against(criterion: &Criterion, baseline: &str) -> String {
    if criterion.scale() == Scale::Own {
        return String::new();
    }
    let baseline = criterion.baseline.as_deref().unwrap_or(baseline);
    let words = arm_words(baseline);
    match &criterion.measure {
        Measure::Score(score) => match (&score.baseline_method, &score.or_baseline_method) {
            (Some(method), _) => method.clone(),
            (None, Some(_)) => format!("the cheaper of {words} and its programs"),
            (None, None) => words.to_owned(),
        },
        Measure::Context(context) => arm_words(context.against.as_deref().unwrap_or(baseline)).to_owned(),
        Measure::Hosts { copies: Some(copies), .. } => format!("copies every {} s", copies.every_s),
        _ => words.to_owned(),
    }
}

/// A fact that decides nothing, with that of the baseline beside it.
pub(super) fn listed(evidence: &Evidence<'_>, row: &ListedRow, candidate: &str, baseline: &str) -> Row {
    let bound = Bound { is_most: true, value: f64::INFINITY, unit: row.measure.kind().to_owned() };
    let of_candidate = evidence.read(&row.measure, candidate, false);
    let of_baseline = evidence.read(&row.measure, baseline, true);
    let says = match (&of_candidate, &of_baseline) {
        (MeasureResult::Value(own), MeasureResult::Value(other)) => {
            let says = row.says.replace(CANDIDATE, own.figure_words());
            says.replace(BASELINE, other.figure_words())
        }
        _ => String::new(),
    };
    let provenance = row.measure.provenance();
    let words = |found: MeasureResult| match found {
        MeasureResult::Value(reading) => (provenance.marked(&reading.words), reading.source),
        MeasureResult::Missing(gap) => (format!("no evidence: {}", gap.what), String::new()),
        MeasureResult::NotOffered(why)
        | MeasureResult::Unknown(why)
        | MeasureResult::Failed(why)
        | MeasureResult::Void(why) => (why, String::new()),
    };
    let (found, source) = words(of_candidate);
    let baseline = words(of_baseline).0;
    let state = match provenance {
        Provenance::Declared => RowState::Declared,
        _ => RowState::Unmeasured,
    };
    Row { baseline, evidence: source, provenance, says, ..bare(RowRole::Listed, &row.title, bound, state, found) }
}

/// A row without a figure.
pub(super) fn bare(role: RowRole, title: &str, bound: Bound, state: RowState, candidate: String) -> Row {
    Row {
        role,
        title: title.to_owned(),
        against: String::new(),
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
        delays: String::new(),
        properties: Vec::new(),
        sessions: Vec::new(),
        says: String::new(),
        stated: Vec::new(),
        is_for_need: false,
        is_not_offered: false,
    }
}

/// The condition of a benefit that is not shown in every session, or that only some need.
fn conditional(row: &Row, criterion: &Criterion) -> BreakEven {
    let condition = match &criterion.condition {
        Some(Condition::Sessions { like, .. }) => like.clone(),
        _ => {
            let listed = match row.properties.split_last() {
                Some((last, others)) if !others.is_empty() => {
                    format!("{} or {last}", others.join(", "))
                }
                Some((only, _)) => (*only).to_owned(),
                None => lower(&row.title),
            };
            format!("you need {listed}")
        }
    };
    BreakEven { amount: f64::INFINITY, words: format!("a benefit if {condition}"), condition, can_hold: true }
}

/// A row of a figure without a baseline.
fn of_reading(role: RowRole, title: &str, bound: Bound, reading: ArmReading) -> Row {
    let effect = RowEffect { value: reading.value, low: reading.low, high: reading.high };
    let state = bound.state(&effect);
    Row {
        effect: Some(effect),
        evidence: reading.source,
        provenance: reading.provenance,
        ..bare(role, title, bound, state, reading.words)
    }
}

/// A row of a figure that the candidate does not offer or no run measured.
pub(super) fn without(role: RowRole, title: &str, bound: Bound, found: MeasureResult) -> Row {
    let (state, words) = match found {
        MeasureResult::Missing(gap) => {
            // The answer of the use has the details of a need, once for all rows and candidates.
            let what = match &gap.kind {
                GapKind::Need { need, .. } => need,
                GapKind::Unmeasured | GapKind::Reason | GapKind::TooFew(_) => &gap.what,
            };
            let words = format!("no evidence: {what}");
            return Row { gap: Some(gap), ..bare(role, title, bound, RowState::Missing, words) };
        }
        // A benefit or a gate that the candidate cannot offer is not met. A cost that was not measured is not
        // tolerated.
        MeasureResult::NotOffered(why) if role == RowRole::Cost => (RowState::Open, why),
        MeasureResult::Unknown(why) => (RowState::Open, why),
        MeasureResult::NotOffered(why) => {
            let words = format!("not offered: {why}");
            return Row { is_not_offered: true, ..bare(role, title, bound, RowState::Unmet, words) };
        }
        MeasureResult::Failed(why) => (RowState::Failed, why),
        MeasureResult::Void(why) => (RowState::Void, why),
        MeasureResult::Value(reading) => return of_reading(role, title, bound, reading),
    };
    bare(role, title, bound, state, words)
}

impl Question<'_> {
    fn figure(&self) -> Result<Figure, MeasureResult> {
        let (measure, scale) = (&self.criterion.measure, self.criterion.scale());
        let baseline = (scale != Scale::Own).then_some(self.baseline);
        if let Some(barred) = self.evidence.barred(measure, self.candidate, baseline) {
            return Err(barred);
        }
        let bound = self.criterion.at_most.or(self.criterion.at_least).unwrap_or(f64::NAN);
        if let Some(void) = self.evidence.baseline_apart(measure, scale, self.baseline, bound) {
            return Err(void);
        }
        let figure = self.evidence.figure(measure, scale, self.candidate, self.baseline)?;
        // Anything is infinitely more than nothing. The interval of a share says how much more at least.
        if scale == Scale::Ratio && self.criterion.at_least.is_some() && figure.reading.low.is_infinite() {
            let why = format!("no ratio to a baseline of 0: {}, against {}", figure.reading.words, figure.baseline);
            return Err(MeasureResult::Unknown(why));
        }
        Ok(figure)
    }

    /// The figure in the other sessions in which a benefit is asked for.
    fn other_sessions(&self) -> Result<Vec<OtherSession>, MeasureResult> {
        let (Some(Condition::Sessions { others, .. }), Measure::Context(context)) =
            (&self.criterion.condition, &self.criterion.measure)
        else {
            return Ok(Vec::new());
        };
        let of = |workload: &String| {
            let measure = Measure::Context(context.of_session(workload));
            let scale = self.criterion.scale();
            let figure = self.evidence.figure(&measure, scale, self.candidate, self.baseline)?;
            let plans = self.evidence.runs.iter().map(|run| &run.run.plan);
            let mut planned = plans.filter_map(|plan| plan.workload(workload));
            Ok(OtherSession {
                workload: workload.clone(),
                is_recorded: planned.any(|planned| planned.session_ms.is_some()),
                effect: RowEffect { value: figure.reading.value, low: figure.reading.low, high: figure.reading.high },
            })
        };
        others.iter().map(of).collect()
    }

    /// Whether two hosts of the candidate or of its baseline showed different files in the end of a pass that it reads.
    fn is_unsettled(&self) -> bool {
        let Measure::Hosts { workload, figure, .. } = &self.criterion.measure else {
            return false;
        };
        let baseline = (self.criterion.scale() != Scale::Own).then_some(self.baseline);
        let mut arms = [self.candidate].into_iter().chain(baseline);
        arms.any(|arm| self.evidence.apart_words(workload, *figure, arm).is_some())
    }

    /// The evidence that would narrow the bound of what was never seen; `None` for other measures.
    fn too_few(&self, bound: &Bound, effect: &RowEffect) -> Option<Gap> {
        let (evidence, candidate) = (self.evidence, self.candidate);
        let losses = |things: &'static str, asked: String| {
            let what = format!("enough {things} of {candidate} for {asked}");
            Gap::too_few(things, what, evidence.more_kills(candidate))
        };
        match &self.criterion.measure {
            Measure::Durability { loss } => Some(losses(loss.things(), bound.words())),
            Measure::Faults { within: Some(share), .. } => {
                Some(losses(Loss::Daemon.things(), format!("at most {}", amount(*share, "share of kills"))))
            }
            Measure::Score(ScoreMeasure { workload, within: Some(share), .. }) => {
                let asked = format!("at most {} of questions", amount(*share, "share"));
                Some(evidence.more_questions(workload, &asked, candidate))
            }
            // More lines do not make hosts agree.
            Measure::Hosts { .. } if self.is_unsettled() => None,
            Measure::Hosts { workload, figure, within: Some(share), .. }
                if figure.is_event() || effect.high.is_infinite() =>
            {
                let asked = format!("at most {} of {}", amount(*share, "share"), figure.things());
                Some(evidence.more_of_hosts(workload, *figure, &asked, candidate))
            }
            _ => None,
        }
    }

    /// The figure under other values of each parameter that the policy states.
    fn restated(&self) -> Vec<RestatedFigure> {
        let all = self.criterion.measure.restated().into_iter();
        let figures = all.filter_map(|restated| {
            let criterion = &Criterion { measure: restated.measure, ..self.criterion.clone() };
            let question =
                Question { evidence: self.evidence, criterion, candidate: self.candidate, baseline: self.baseline };
            let figure = question.figure().ok()?;
            let ArmReading { value, low, high, .. } = figure.reading;
            let effect = RowEffect { value, low, high };
            let RestatedMeasure { parameter, unit, from, to, .. } = restated;
            Some(RestatedFigure { parameter, unit, from, to, effect })
        });
        figures.collect()
    }

    fn of_candidate(&self, measure: &Measure) -> Result<ArmReading, MeasureResult> {
        self.evidence.read(measure, self.candidate, false).value()
    }

    fn of_baseline(&self, measure: &Measure) -> Result<ArmReading, MeasureResult> {
        self.evidence.read(measure, self.baseline, true).value()
    }

    /// How much more the candidate has of a measure.
    fn difference(&self, measure: &Measure) -> Option<f64> {
        let candidate = self.of_candidate(measure).ok()?;
        Some(candidate.value - self.of_baseline(measure).ok()?.value)
    }

    fn break_even(&self, bound: f64, figure: &Figure) -> Option<BreakEven> {
        let mut words = None;
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
                        "tolerated up to a round trip of {} (simulated delay)",
                        Provenance::Simulated.marked(&format!("{shown} ms"))
                    ),
                    can_hold: amount > 0.0,
                });
            }
            Condition::Proportional { what, used, holds_if } => {
                let effect = Some(figure.reading.value).filter(|value| *value > 0.0)?;
                if !holds_if.is_empty() {
                    let measured = holds_if.replace("{measured}", &digits(effect));
                    words = Some(measured.replace("{used}", &digits(*used)));
                }
                (used * bound / effect, what.as_str())
            }
            Condition::OutweighedBy { counts } => {
                let Measure::Score(score) = &self.criterion.measure else {
                    return None;
                };
                let other = Measure::Score(ScoreMeasure { counts: counts.clone(), ..score.clone() });
                let paid = self.difference(&self.criterion.measure);
                let paid = paid.filter(|paid| *paid > 0.0)?;
                let saved = Some(-self.difference(&other)?).filter(|saved| *saved > 0.0)?;
                (saved / paid, "tasks a session")
            }
            Condition::Needed | Condition::Sessions { .. } => return None,
        };
        let whole = whole(amount);
        let turn = match self.criterion.condition {
            Some(Condition::CallsATurn(share)) => Some(format!(
                "a turn of {} with more than {whole} file calls becomes longer by over {} %",
                time(TURN_NS),
                digits(100.0 * share)
            )),
            _ => None,
        };
        // An edit, the least that an agent does with files in a turn, is a read and a write.
        let least = match self.criterion.condition {
            Some(Condition::CallsATurn(_)) => 2.0,
            _ => 1.0,
        };
        Some(BreakEven {
            amount,
            condition: words.unwrap_or_else(|| format!("there are at most {whole} {noun}")),
            words: turn.unwrap_or_else(|| format!("tolerated up to {whole} {noun}")),
            can_hold: amount >= least,
        })
    }

    /// The round-trip time at which a time reaches `most` milliseconds: a line through the candidate's time without an
    /// injected delay and that with the longest one. `None` without both, or if the delay changes nothing.
    fn round_trip_ms(&self, most: f64) -> Option<f64> {
        let near = self.candidate.split('@').next().unwrap_or(self.candidate);
        let arms = self.evidence.arms().into_iter();
        let delays = arms.filter_map(|name| {
            let delay = name.strip_prefix(near)?.strip_prefix('@')?.strip_suffix("ms")?;
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
    figures::text::count(((number / size).floor() * size) as u64)
}
