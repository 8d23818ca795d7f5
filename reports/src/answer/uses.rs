//! The answer for each use: a recommendation that follows from the decisions of a policy on all its candidates.

use std::cmp::Reverse;

use schemars::JsonSchema;
use serde::Serialize;

use super::figure::{AnswerFigure, compared};
use figures::evidence::RunEvidence;
use figures::provenance::Provenance;
use figures::text::lower;
use rundir::Plan;
use verdicts::decide::{
    CANDIDATE, Decision, Flip, Gap, GapKind, PolicyVerdict, Row, RowRole, RowState, amount, arm_words, remedies,
};

/// Figures of a kind in an answer.
const FIGURES: usize = 3;
/// The beginning of the command that measures sessions of the user. Its workloads are files in a run's directory.
const TRY: &str = "ctxbench try ";
/// Seconds of a replay of `ctxbench try` from which on git and single reads are measured, too: less gives them fewer than
/// three epochs.
pub const TRY_WITH_PROGRAMS: f64 = 30.0;
/// Epochs of a command that measures an open cell longer: more than a default run has.
const EPOCHS: u32 = 20;

/// What an answer advises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AdviceKind {
    /// Choose a candidate.
    Choose,
    /// Choose a candidate where a condition holds.
    ChooseIf,
    /// Keep the baseline.
    Keep,
    /// The evidence does not decide.
    NotDecided,
}

/// What decides an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ground {
    /// The candidate shows the benefits that the policy needs.
    Benefits,
    /// It fails a gate, which the reason names with its figure.
    FailedGate,
    /// It shows fewer benefits than needed.
    FewBenefits,
    /// It shows a benefit that does not reach its bound.
    SmallBenefit,
    /// It has a higher cost than tolerated, which the figures begin with.
    HigherCost,
    /// The evidence does not decide.
    OpenRows,
}

/// How sure an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// Neither half nor twice any one bound changes it, nor any one figure at the end of its interval.
    Sure,
    /// Half or twice a bound changes it, or a figure at the end of its interval, or it chooses a candidate although the
    /// policy names something that no row measures.
    Fragile,
    /// The evidence does not decide.
    NotDecided,
}

impl Confidence {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Confidence::Sure => "sure",
            Confidence::Fragile => "fragile",
            Confidence::NotDecided => "not decided",
        }
    }
}

/// The answer for a use.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UseAnswer {
    /// The policy.
    pub policy: String,
    /// The use, in two or three words.
    pub title: String,
    /// The policy's question.
    pub question: String,
    /// What it advises.
    pub kind: AdviceKind,
    /// The advice in a sentence.
    pub advice: String,
    /// The need that makes the candidate the better choice although the advice is to keep the baseline, in a clause behind
    /// "unless"; empty without one.
    pub unless: String,
    /// The chosen candidate; of an answer that chooses none, the one that comes closest. The figures are about it.
    pub candidate: String,
    /// The other candidates with the same verdict.
    pub others: Vec<String>,
    /// Those of the others that fail a gate, with this gate and its figure, where the baseline is kept.
    #[serde(skip)]
    pub(super) failed_gates: Vec<(String, String)>,
    /// Other candidates that pass the gates and show no benefit, where the baseline is kept.
    pub without_benefit: Vec<String>,
    /// Other candidates that pass the gates and show too small a benefit, where the baseline is kept.
    pub small_benefit: Vec<String>,
    /// Candidates of the use without a verdict, beside `candidate`.
    pub undecided: Vec<String>,
    /// Candidates that the policy expects, and that no run measured. An answer that keeps the baseline does not cover them.
    pub not_measured: Vec<String>,
    /// Why, in a sentence.
    pub reason: String,
    /// What the reason is about.
    #[serde(skip)]
    pub(super) ground: Ground,
    /// What the run found about the use, whether or not this decides, in sentences.
    pub known: Vec<String>,
    /// The figures that carry the answer.
    pub figures: Vec<AnswerFigure>,
    /// How many benefits the candidate shows; `figures` has the first of them.
    #[serde(skip)]
    pub(crate) benefits: usize,
    /// How many benefits are needed, and how many the policy has.
    #[serde(skip)]
    pub(super) needed: [usize; 2],
    /// In how many of the other sessions all benefits of a choice keep their bounds.
    #[serde(skip)]
    pub(super) sessions_with_all: usize,
    /// The cost of others that decides against the candidate, by candidate, where they break its bound, too.
    #[serde(skip)]
    pub(super) same_cost: Vec<(String, String)>,
    /// What the candidate costs.
    pub costs: Vec<AnswerFigure>,
    /// What makes a fragile answer so, in clauses; empty for another answer.
    pub fragile: Vec<String>,
    /// When it would be otherwise, in a sentence; empty if nothing is known to change it, or if `fragile` says it.
    pub otherwise: String,
    /// What no row of the policy measures, in a few words; empty if nothing is named.
    pub unmeasured: String,
    /// How sure it is.
    pub confidence: Confidence,
    /// The command that makes missing evidence, or that measures longer; empty for a decided use.
    pub command: String,
    /// Whether only other work on the machine kept the run from deciding: the same command decides without it.
    #[serde(skip)]
    pub(super) needs_quiet: bool,
    /// Whether the use is not decided because no run has its evidence.
    pub lacks_evidence: bool,
    /// Whether the policy was fixed before all runs.
    pub planned: bool,
}

/// The answers: decided uses first, each group in the order of the policies.
pub(super) fn uses(decisions: &[Decision], runs: &[RunEvidence<'_>]) -> Vec<UseAnswer> {
    let mut policies: Vec<&str> = Vec::new();
    for decision in decisions {
        if !policies.contains(&decision.policy.as_str()) {
            policies.push(&decision.policy);
        }
    }
    let answers = policies.into_iter().filter_map(|policy| {
        let of_policy = decisions.iter().filter(|decision| decision.policy == policy);
        UseAnswer::of(&of_policy.collect::<Vec<_>>(), runs)
    });
    let mut answers: Vec<UseAnswer> = answers.collect();
    // Stable: the others stay in the order of the policies.
    answers.sort_by_key(|answer| answer.kind == AdviceKind::NotDecided);
    answers
}

/// Whether a run that was planned with the policy has the candidate. An arm of other runs alone, such as one behind a simulated
/// distance, lacks most of the policy's evidence: a use may be decided without it.
fn is_asked(decision: &Decision, runs: &[RunEvidence<'_>]) -> bool {
    let has_policy = |plan: &Plan| {
        let given = plan.policy.as_ref();
        plan.policies.contains_key(&decision.policy) || given.is_some_and(|given| given.name == decision.policy)
    };
    let has_arm = |plan: &Plan| plan.arm(&decision.candidate).is_some();
    let (with_policy, others): (Vec<&Plan>, Vec<&Plan>) =
        runs.iter().map(|run| &run.run.plan).partition(|plan| has_policy(plan));
    with_policy.is_empty() || with_policy.into_iter().any(has_arm) || !others.into_iter().any(has_arm)
}

/// The number of daemons, mounts and needs of an arm, plus one if it has a bucket: a team must run or rent its server.
fn weight(candidate: &str, runs: &[RunEvidence<'_>]) -> usize {
    let arm = runs.iter().find_map(|run| run.run.plan.arm(candidate));
    arm.map_or(0, |arm| {
        (arm.backend.daemons + arm.backend.mounts) as usize
            + arm.backend.needs.len()
            + usize::from(arm.backend.has_bucket)
    })
}

/// Candidates with the same verdict, the strongest first, which an answer is about.
///
/// The strongest lacks the fewest things that the policy asks for: gates, then benefits, then tolerated costs.
/// Of those that lack equally many, one whose figures are surely nearer to their bounds comes first. Two figures with
/// intervals that overlap are equally near: noise must not choose the candidate of an answer. Then the one with less to
/// run comes first, then the first of the plan.
fn by_strength<'d>(mut found: Vec<&'d Decision>, runs: &[RunEvidence<'_>]) -> Vec<&'d Decision> {
    let lacks = |decision: &Decision| {
        let shown = rows(decision, RowRole::Benefit, &SHOWN).count();
        (
            rows(decision, RowRole::Gate, &FAILED).count(),
            rows(decision, RowRole::Gate, &OPEN).count(),
            decision.benefits_needed.saturating_sub(shown),
            rows(decision, RowRole::Cost, &FAILED).count(),
            Reverse(shown),
        )
    };
    // The order is stable: candidates that are equal stay in the order of the plan.
    found.sort_by_key(|decision| (lacks(decision), weight(&decision.candidate, runs)));
    let is_first = |decision: &&&Decision| {
        let (nearest, _) = excess(decision);
        let equals = found.iter().take_while(|other| lacks(other) == lacks(decision));
        let is_beaten = equals.into_iter().any(|other| excess(other).1 < nearest);
        !is_beaten
    };
    let first = found.iter().position(|decision| is_first(&decision));
    if let Some(first) = first {
        found[..=first].rotate_right(1);
    }
    found
}

/// The largest distance of a figure from its bound that counts.
const FARTHEST: f64 = 100.0;

/// How far the figures that break their bounds are from them together, at the near and at the far ends of their intervals.
/// A figure that is a hundred times past its bound, or has none, counts as a hundred.
fn excess(decision: &Decision) -> (f64, f64) {
    let broken = [RowRole::Benefit, RowRole::Cost];
    let broken = broken.into_iter().flat_map(|role| rows(decision, role, &FAILED));
    let ends = broken.map(|row| {
        let Some(effect) = row.effect else {
            return (FARTHEST, FARTHEST);
        };
        let ends = [effect.low, effect.high];
        let [one, other] = ends.map(|end| distance_at(row, end).clamp(0.0, FARTHEST));
        (one.min(other), one.max(other))
    });
    ends.fold((0.0, 0.0), |sum, ends| (sum.0 + ends.0, sum.1 + ends.1))
}

/// Whether the figure of a cost is worse than the baseline's: a figure that is better than it costs nothing.
fn is_worse(row: &Row) -> bool {
    let is_ratio = row.bound.unit == "ratio";
    let equal = if is_ratio { 1.0 } else { 0.0 };
    row.effect.is_some_and(|effect| {
        if row.bound.is_most {
            effect.value > equal
        } else {
            // An amount that must reach a bound is not compared with a baseline.
            !is_ratio || effect.value < equal
        }
    })
}

/// A benefit that is there, and does not reach its bound.
pub(super) const SMALL_BENEFIT: &str = "too small a benefit";

/// Whether a candidate is surely better than the baseline in a benefit whose bound it does not reach.
fn has_small_benefit(decision: &Decision) -> bool {
    rows(decision, RowRole::Benefit, &[RowState::Unmet]).any(|row| {
        let equal = if row.bound.unit == "ratio" { 1.0 } else { 0.0 };
        row.effect.is_some_and(|effect| if row.bound.is_most { effect.high < equal } else { effect.low > equal })
    })
}

/// Whether a row about the candidate's own time is of a cell in which it is faster than the baseline.
fn is_faster(decision: &Decision, row: &Row, runs: &[RunEvidence<'_>]) -> bool {
    compared(decision, row, runs).is_some_and(|([ratio, ..], _)| ratio < 1.0)
}

fn has_role(row: &Row, role: RowRole, states: &[RowState]) -> bool {
    row.role == role && states.contains(&row.state)
}

fn rows<'a>(decision: &'a Decision, role: RowRole, states: &'a [RowState]) -> impl Iterator<Item = &'a Row> + 'a {
    let all = decision.rows.iter();
    all.filter(move |row| has_role(row, role, states))
}

fn has(decision: &Decision, role: RowRole, states: &[RowState]) -> bool {
    decision.rows.iter().any(|row| has_role(row, role, states))
}

const FAILED: [RowState; 2] = [RowState::Unmet, RowState::Failed];
const SHOWN: [RowState; 2] = [RowState::Met, RowState::Conditional];
const OPEN: [RowState; 3] = [RowState::Missing, RowState::Open, RowState::Void];

/// How far a figure is from its bound: 1 at the bound, more beyond it.
fn distance(row: &Row) -> f64 {
    row.effect.map_or(0.0, |effect| distance_at(row, effect.value))
}

/// How far a value is from the bound of a row.
fn distance_at(row: &Row, value: f64) -> f64 {
    let bound = row.bound.value;
    let ratio = if row.bound.is_most { value / bound } else { bound / value };
    if ratio.is_nan() { 1.0 } else { ratio }
}

impl UseAnswer {
    /// The answer of the decisions of one policy.
    fn of(decisions: &[&Decision], runs: &[RunEvidence<'_>]) -> Option<Self> {
        let with = |verdict: PolicyVerdict| {
            let decided = decisions.iter().copied();
            let of_verdict = decided.filter(|decision| decision.verdict == verdict);
            by_strength(of_verdict.collect(), runs)
        };
        let open = with(PolicyVerdict::NotDecided);
        let asked = open.iter().copied().filter(|decision| is_asked(decision, runs));
        let order = [
            (AdviceKind::Choose, with(PolicyVerdict::Adopt)),
            (AdviceKind::ChooseIf, with(PolicyVerdict::AdoptIf)),
            (AdviceKind::NotDecided, asked.collect()),
            (AdviceKind::Keep, with(PolicyVerdict::Archive)),
            (AdviceKind::NotDecided, open.clone()),
        ];
        let (kind, found) = order.into_iter().find(|(_, found)| !found.is_empty())?;
        let (best, others) = found.split_first()?;
        let confidence = match kind {
            AdviceKind::NotDecided => Confidence::NotDecided,
            // Another candidate may turn up with another verdict.
            AdviceKind::Keep => confidence_in(decisions),
            // What is not measured may be better than the candidate.
            _ if !best.advice.unmeasured.is_empty() => Confidence::Fragile,
            _ => confidence_in(&[best]),
        };
        let flip = smallest(kind, best, decisions, |decision| decision.fragile.as_ref());
        let flip = flip.filter(|_| confidence == Confidence::Fragile);
        let is_busy = runs.iter().any(|run| run.summary.health.is_busy);
        let (ground, reason, carrying) = reason(kind, best, others.is_empty(), is_busy);
        let is_carrying = |row: &&Row| carrying.iter().any(|other| std::ptr::eq(*other, *row));
        let mut costs: Vec<&Row> = best
            .of_role(RowRole::Cost)
            .filter(|row| row.provenance != Provenance::Declared)
            .filter(|row| is_worse(row) && !is_faster(best, row, runs) && !is_carrying(row))
            .collect();
        costs.sort_by(|one, other| distance(other).total_cmp(&distance(one)));
        let figures = |rows: &[&Row]| {
            let rows = rows.iter().take(FIGURES);
            rows.map(|row| AnswerFigure::of(best, row, runs)).collect()
        };
        let name = |decision: &&Decision| decision.candidate.clone();
        let lacking = |is_small: bool| -> Vec<String> {
            let lacking = others.iter().filter(|other| {
                kind == AdviceKind::Keep
                    && !has(other, RowRole::Gate, &FAILED)
                    && !has(other, RowRole::Benefit, &SHOWN)
                    && has_small_benefit(other) == is_small
            });
            lacking.map(name).collect()
        };
        Some(Self {
            policy: best.policy.clone(),
            title: best.advice.title.clone(),
            question: best.question.clone(),
            kind,
            advice: advice(kind, best, decisions, is_busy),
            unless: unless(kind, best),
            not_measured: best.not_measured.clone(),
            candidate: best.candidate.clone(),
            others: others.iter().map(name).collect(),
            failed_gates: match kind {
                AdviceKind::Keep => failed_gates(others),
                _ => Vec::new(),
            },
            without_benefit: lacking(false),
            small_benefit: lacking(true),
            undecided: match kind {
                AdviceKind::NotDecided => Vec::new(),
                _ => open.iter().map(name).collect(),
            },
            reason,
            ground,
            known: known(best, decisions),
            figures: figures(&carrying),
            benefits: rows(best, RowRole::Benefit, &SHOWN).count(),
            needed: [best.benefits_needed, best.of_role(RowRole::Benefit).count()],
            sessions_with_all: sessions_with_all(&carrying),
            same_cost: match (ground, carrying.first()) {
                (Ground::HigherCost, Some(cost)) => same_cost(others, cost),
                _ => Vec::new(),
            },
            costs: figures(&costs),
            fragile: fragile(kind, best, flip),
            otherwise: otherwise(kind, best, decisions, flip),
            unmeasured: best.advice.unmeasured.clone(),
            confidence,
            command: match kind {
                AdviceKind::NotDecided => command(best, runs),
                _ => String::new(),
            },
            needs_quiet: kind == AdviceKind::NotDecided && needs_quiet(best, runs),
            lacks_evidence: kind == AdviceKind::NotDecided
                && best.rows.iter().any(|row| row.state == RowState::Missing),
            planned: decisions.iter().all(|decision| decision.planned),
        })
    }
}

/// The sentences of rows that an answer states, about its candidate or else about the first candidate with a figure.
fn known(best: &Decision, decisions: &[&Decision]) -> Vec<String> {
    let of = |decision: &Decision| -> Vec<String> {
        let says = decision.rows.iter().map(|row| &row.says);
        says.filter(|says| !says.is_empty()).map(|says| format!("{says}.")).collect()
    };
    let mut all = std::iter::once(best).chain(decisions.iter().copied()).map(of);
    all.find(|known| !known.is_empty()).unwrap_or_default()
}

/// In how many of the other sessions every one of these rows keeps its bound.
fn sessions_with_all(carrying: &[&Row]) -> usize {
    let Some(first) = carrying.first() else {
        return 0;
    };
    let is_met = |row: &Row, workload: &str| {
        let mut sessions = row.sessions.iter();
        sessions.any(|session| session.workload == workload && row.bound.state(&session.effect) == RowState::Met)
    };
    let names = first.sessions.iter().map(|session| session.workload.as_str());
    names.filter(|name| carrying.iter().all(|row| is_met(row, name))).count()
}

/// The first gate that each of these candidates fails, with its figure.
fn failed_gates(others: &[&Decision]) -> Vec<(String, String)> {
    let failed = others.iter().filter_map(|other| {
        let row = rows(other, RowRole::Gate, &FAILED).next()?;
        let figure = row.value();
        let figure = if figure.is_empty() { String::new() } else { format!(" ({figure})") };
        Some((other.candidate.clone(), format!("“{}”{figure}", lower(&row.title))))
    });
    failed.collect()
}

/// The figures of others in the row of a cost, of those that break its bound.
fn same_cost(others: &[&Decision], cost: &Row) -> Vec<(String, String)> {
    let broken = others.iter().filter_map(|other| {
        let row = rows(other, RowRole::Cost, &FAILED).find(|row| row.title == cost.title)?;
        Some((other.candidate.clone(), amount(row.effect?.value, &row.bound.unit)))
    });
    broken.collect()
}

fn confidence_in(decisions: &[&Decision]) -> Confidence {
    if decisions.iter().any(|decision| decision.fragile.is_some()) { Confidence::Fragile } else { Confidence::Sure }
}

fn advice(kind: AdviceKind, best: &Decision, decisions: &[&Decision], is_busy: bool) -> String {
    let words = &best.advice;
    let choose = words.choose.replace(CANDIDATE, arm_words(&best.candidate));
    let keep = lower(&words.keep);
    match kind {
        AdviceKind::Choose => format!("{choose}."),
        AdviceKind::ChooseIf => {
            format!("{choose} if {}; else {keep}.", best.conditions.join(" and "))
        }
        // The advice is sure of what was compared, and of nothing else.
        AdviceKind::Keep if !best.not_measured.is_empty() => {
            let compared: Vec<&str> = decisions.iter().map(|decision| arm_words(&decision.candidate)).collect();
            format!("{} rather than use {}.", words.keep, listed(&compared, "or"))
        }
        AdviceKind::Keep => format!("{}.", words.keep),
        AdviceKind::NotDecided => format!("Not decided: {}.", obstacle(best, is_busy).0),
    }
}

/// What decides, why in a sentence, and the rows whose figures carry it.
fn reason<'a>(kind: AdviceKind, best: &'a Decision, is_only: bool, is_busy: bool) -> (Ground, String, Vec<&'a Row>) {
    let of = |role, states: &'static [RowState]| -> Vec<&'a Row> {
        best.rows.iter().filter(|row| has_role(row, role, states)).collect()
    };
    let candidate = arm_words(&best.candidate);
    let shown = of(RowRole::Benefit, &SHOWN);
    match kind {
        AdviceKind::Choose | AdviceKind::ChooseIf => {
            let titles: Vec<String> = shown.iter().map(|row| lower(&row.title)).collect();
            (Ground::Benefits, format!("Benefits: {}.", titles.join("; ")), shown)
        }
        AdviceKind::Keep => {
            let gates = of(RowRole::Gate, &FAILED);
            if let Some(first) = gates.first() {
                let reason = format!("{candidate} fails the gate “{}”: {}.", lower(&first.title), first.candidate);
                return (Ground::FailedGate, reason, gates);
            }
            let open = of(RowRole::Benefit, &OPEN);
            if shown.len() + open.len() < best.benefits_needed {
                let mut unmet = of(RowRole::Benefit, &FAILED);
                unmet.sort_by(|one, other| distance(one).total_cmp(&distance(other)));
                let whose = if is_only { candidate.to_owned() } else { format!("The closest candidate ({candidate})") };
                let (ground, count) = match shown.len() {
                    0 if has_small_benefit(best) => (Ground::SmallBenefit, SMALL_BENEFIT.to_owned()),
                    0 => (Ground::FewBenefits, "no benefit".to_owned()),
                    shown => {
                        let count = format!("{shown} of the {} benefits that are needed", best.benefits_needed);
                        (Ground::FewBenefits, count)
                    }
                };
                return (ground, format!("{whose} shows {count}."), unmet);
            }
            let mut costs = of(RowRole::Cost, &FAILED);
            costs.sort_by(|one, other| distance(other).total_cmp(&distance(one)));
            (Ground::HigherCost, format!("{candidate} costs more than tolerated."), costs)
        }
        AdviceKind::NotDecided => {
            let keep = lower(&best.advice.keep);
            let reason = match obstacle(best, is_busy).1 {
                details if details.is_empty() => format!("Until then {keep}."),
                details => format!("Until then {keep}. {details}."),
            };
            let undecided = [RowRole::Gate, RowRole::Benefit, RowRole::Cost];
            let undecided = undecided.into_iter().flat_map(|role| of(role, &OPEN));
            let open = undecided.filter(|row| row.state == RowState::Open && row.effect.is_some());
            (Ground::OpenRows, reason, open.collect())
        }
    }
}

/// Why a use is not decided, in a few words, and the details of it; the details are empty if the words say all.
fn obstacle(best: &Decision, is_busy: bool) -> (String, String) {
    let undecided = || {
        let roles = [RowRole::Gate, RowRole::Benefit, RowRole::Cost];
        roles.into_iter().flat_map(|role| rows(best, role, &OPEN))
    };
    // Evidence that is missing is named before evidence that leaves a bound open.
    let missing = undecided().find(|row| row.state == RowState::Missing);
    let Some(row) = missing.or(undecided().next()) else {
        return ("no evidence".to_owned(), String::new());
    };
    let (candidate, title) = (arm_words(&best.candidate), lower(&row.title));
    let few = row.gap.as_ref().and_then(Gap::too_few_of).unwrap_or_default();
    match row.state {
        RowState::Missing => {
            let unmeasured = format!("no run measured “{title}” of {candidate}");
            match row.gap.as_ref().map(|gap| (&gap.kind, &gap.what)) {
                Some((GapKind::Need { need, details }, _)) => (format!("{candidate} {need}"), details.clone()),
                Some((GapKind::Reason, what)) => (unmeasured, what.clone()),
                Some((GapKind::Unmeasured | GapKind::TooFew(_), _)) | None => (unmeasured, String::new()),
            }
        }
        RowState::Void => ("the comparison is void".to_owned(), format!("{candidate}: “{title}” is {}", row.candidate)),
        _ if !few.is_empty() => (format!("too few {few} of {candidate} for “{title}”"), row.candidate.clone()),
        _ if is_busy => ("the machine was busy".to_owned(), String::new()),
        _ if row.effect.is_none() => (format!("“{title}” of {candidate} is not known"), row.candidate.clone()),
        _ if row.effect.is_some_and(|effect| effect.high.is_infinite()) => {
            (format!("too few quiet epochs for “{title}” of {candidate}"), String::new())
        }
        _ => (format!("the interval of “{title}” contains its bound on {candidate}"), String::new()),
    }
}

/// A change that turns the verdict on a candidate.
type Turn<'a> = (&'a Decision, &'a Flip);

/// The smallest of some changes: those of the chosen candidate, or of all candidates if none is chosen.
fn smallest<'a>(
    kind: AdviceKind,
    best: &Decision,
    decisions: &[&'a Decision],
    change: impl Fn(&'a Decision) -> Option<&'a Flip>,
) -> Option<Turn<'a>> {
    let all = decisions.iter().copied();
    let flips = all.filter(|decision| kind == AdviceKind::Keep || decision.candidate == best.candidate);
    let flips = flips.filter_map(|decision| Some((decision, change(decision)?)));
    flips.min_by(|one, other| one.1.size().total_cmp(&other.1.size()))
}

/// A change in a clause.
fn turn_words((decision, flip): Turn<'_>) -> String {
    format!("{} if {}", flip.outcome(arm_words(&decision.candidate)), flip.condition())
}

/// What makes an answer fragile, in clauses: what no row measures of a choice, and a change of one row that turns a verdict.
fn fragile(kind: AdviceKind, best: &Decision, flip: Option<Turn<'_>>) -> Vec<String> {
    let unmeasured = match kind {
        AdviceKind::Choose | AdviceKind::ChooseIf => best.advice.unmeasured.as_str(),
        AdviceKind::Keep | AdviceKind::NotDecided => "",
    };
    let unmeasured = Some(unmeasured).filter(|words| !words.is_empty());
    let unmeasured = unmeasured.map(|words| format!("no run measured {words}"));
    unmeasured.into_iter().chain(flip.map(turn_words)).collect()
}

/// When it would be otherwise, in a sentence; empty if `said` is about the same row.
fn otherwise(kind: AdviceKind, best: &Decision, decisions: &[&Decision], said: Option<Turn<'_>>) -> String {
    let shown = needed(kind, best);
    if !shown.is_empty() {
        let titles = shown.iter().filter(|row| row.properties.is_empty());
        let titles: Vec<String> = titles.map(|row| lower(&row.title)).collect();
        return if titles.is_empty() {
            // The advice has the exception.
            String::new()
        } else {
            format!("A reason for {}: {}.", arm_words(&best.candidate), titles.join("; "))
        };
    }
    // A bound of 0 cannot be halved or doubled.
    let change =
        smallest(kind, best, decisions, |decision| decision.change().filter(|flip| !flip.is_bound || flip.from != 0.0));
    match change {
        Some((decision, flip)) if kind != AdviceKind::NotDecided => {
            let is_said = said.is_some_and(|(of, said)| (&of.candidate, &said.row) == (&decision.candidate, &flip.row));
            if is_said { String::new() } else { turn_words((decision, flip)) + "." }
        }
        _ => String::new(),
    }
}

/// The benefits of a candidate that is not chosen: a team with these needs may choose it all the same.
fn needed(kind: AdviceKind, best: &Decision) -> Vec<&Row> {
    if kind == AdviceKind::Keep && !has(best, RowRole::Gate, &FAILED) {
        rows(best, RowRole::Benefit, &SHOWN).collect()
    } else {
        Vec::new()
    }
}

/// A list in a sentence, with a word before the last one.
pub(super) fn listed(names: &[&str], word: &str) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [others @ .., last] => format!("{} {word} {last}", others.join(", ")),
    }
}

/// The properties that probes found on a candidate that is not chosen, as the exception of the advice.
fn unless(kind: AdviceKind, best: &Decision) -> String {
    let of_property: Vec<&Row> = needed(kind, best).into_iter().filter(|row| !row.properties.is_empty()).collect();
    let properties: Vec<&str> = of_property.iter().flat_map(|row| row.properties.iter().copied()).collect();
    let weakest = of_property.iter().map(|row| row.provenance).max();
    let (false, Some(weakest)) = (properties.is_empty(), weakest) else {
        return String::new();
    };
    format!(
        "you need {}, which {} has ({} tried)",
        listed(&properties, "or"),
        arm_words(&best.candidate),
        weakest.mark()
    )
}

/// Whether the evidence is there, but other work kept the machine busy.
fn needs_quiet(best: &Decision, runs: &[RunEvidence<'_>]) -> bool {
    let is_busy = runs.first().is_some_and(|run| run.summary.health.is_busy);
    is_busy && remedies(std::slice::from_ref(best)).is_empty()
}

/// The command that would decide: the one that makes missing evidence, or one that measures the open cell longer.
fn command(best: &Decision, runs: &[RunEvidence<'_>]) -> String {
    let remedy = remedies(std::slice::from_ref(best)).into_iter().next();
    let Some(first) = runs.first() else {
        return remedy.map(|remedy| remedy.command).unwrap_or_default();
    };
    let plan = &first.run.plan;
    let is_try = plan.command.starts_with(TRY);
    if let Some(remedy) = remedy {
        let sessions = plan.workloads.iter().filter(|workload| workload.file.is_some());
        let mut names = sessions.map(|workload| format!("--workload {}", workload.name));
        // A short replay leaves out programs and single calls.
        let is_short = budget(&plan.command).is_some_and(|seconds| seconds < TRY_WITH_PROGRAMS);
        let is_left_out = is_short && remedy.command.starts_with("ctxbench run --workload ");
        return if is_try && (is_left_out || names.any(|name| remedy.command.contains(&name))) {
            longer(&plan.command)
        } else {
            remedy.command
        };
    }
    if needs_quiet(best, runs) {
        return plan.command.clone();
    }
    if is_try {
        return longer(&plan.command);
    }
    let open = [RowRole::Gate, RowRole::Benefit, RowRole::Cost];
    let mut open = open.into_iter().flat_map(|role| rows(best, role, &OPEN));
    let cell = open.find_map(|row| row.cell.as_ref().filter(|_| row.state == RowState::Open));
    match cell {
        Some(cell) => {
            let backend = match best.candidate.as_str() {
                "direct" => String::new(),
                name => format!(" --backend {name}"),
            };
            format!("ctxbench run --workload {}{backend} --state {} --epochs {EPOCHS}", cell.workload, cell.state)
        }
        None => plan.command.clone(),
    }
}

/// The seconds of a command's budget.
fn budget(command: &str) -> Option<f64> {
    let mut words = command.split(' ').skip_while(|word| *word != "--budget");
    words.nth(1)?.parse().ok()
}

/// The command of sessions, with twice its budget, which is enough for programs, too.
fn longer(command: &str) -> String {
    let Some(seconds) = budget(command) else {
        return command.to_owned();
    };
    let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    if let Some(at) = words.iter().position(|word| word == "--budget") {
        words[at + 1] = format!("{}", (2.0 * seconds).max(2.0 * TRY_WITH_PROGRAMS));
    }
    words.join(" ")
}
