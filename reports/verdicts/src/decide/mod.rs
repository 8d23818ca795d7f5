//! Decides by policies: adopt, adopt if, archive or not decided, for each candidate that a policy fits.
//! A decision is a pure function of policy and runs. Pages are in `render`.

mod missing;
mod places;
mod policy;
mod rows;
mod sources;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeSet;

use rundir::Run;
use schemars::JsonSchema;
use serde::Serialize;

pub use missing::{Remedy, remedies};
pub use places::ContextPlace;
pub use policy::{CANDIDATE, arm_words};
pub use policy::{Names, Policy, PolicyAdvice, built_in, find, identities, identity};
use rows::{Bound, listed, row, without};
pub use rows::{Row, RowEffect, RowRole, RowState, SessionRange};
use sources::SourceResult;
pub use verdict::{Flip, PolicyVerdict};
use verdict::{conclude, fragile_flip, smallest_flip};

use crate::measure::MeasureResult;
pub use crate::measure::{Evidence, check_compatible, check_distinct};
pub use crate::measure::{Gap, GapKind};
pub use crate::measure::{MODEL_ARMS, amount, digits, spread};

/// A decision on one candidate by one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Decision {
    /// The policy's name.
    pub policy: String,
    /// SHA-256 of its text.
    pub policy_sha256: String,
    /// Whether the policy was fixed before all runs.
    pub planned: bool,
    /// The policy's question.
    pub question: String,
    /// The policy's words for what to do.
    pub advice: PolicyAdvice,
    /// The arm or practice that the candidate is compared with.
    pub baseline: String,
    /// The candidate.
    pub candidate: String,
    /// Candidates that the policy expects, and that no run measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_measured: Vec<String>,
    /// The number of benefits that the policy asks for.
    pub benefits_needed: usize,
    /// Gates, benefits and costs, in this order.
    pub rows: Vec<Row>,
    /// The verdict.
    pub verdict: PolicyVerdict,
    /// The title of the row that decides, and its figure.
    pub why: String,
    /// The figure that decides; null without evidence.
    pub figure: Option<String>,
    /// The conditions of *adopt if*.
    pub conditions: Vec<String>,
    /// The smallest change of one bound or one measurement that flips the verdict.
    pub flip: Option<Flip>,
    /// The change of a bound by a factor of two, of a measurement by half of its interval, or of a stated parameter that turns
    /// the verdict, which is then fragile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragile: Option<Flip>,
    /// The places that a context policy can be used with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<ContextPlace>,
    /// What would turn the verdict, in a sentence without its full stop: another value of a stated parameter, or the
    /// smallest change of a bound or a measurement.
    pub would_flip: String,
    /// The missing evidence, if the verdict is *not decided*.
    pub missing: Vec<Gap>,
    /// The rows of a source's own comparison.
    pub sources: Vec<SourceResult>,
}

impl Decision {
    /// The name of the use, as every output writes it. The policy's own name is for commands.
    pub fn use_title(&self) -> &str {
        match self.advice.title.as_str() {
            "" => &self.policy,
            title => title,
        }
    }

    /// The verdict, with the row that makes it fragile.
    pub fn verdict_words(&self) -> String {
        let verdict = self.verdict.name();
        match &self.fragile {
            Some(flip) => format!("{verdict} (fragile: {})", flip.row),
            None => verdict.to_owned(),
        }
    }

    /// The change to name: another value of a parameter that the policy states, or else the smallest change of a bound or a
    /// measurement.
    pub fn change(&self) -> Option<&Flip> {
        self.fragile.as_ref().filter(|flip| flip.is_stated).or(self.flip.as_ref())
    }

    /// Whether the candidate can be adopted at all: it offers every gate, and as many benefits as the policy asks for.
    pub fn fits(&self) -> bool {
        let benefits = self.of_role(RowRole::Benefit).filter(|row| !row.is_not_offered).count();
        self.of_role(RowRole::Gate).all(|row| !row.is_not_offered) && benefits >= self.benefits_needed
    }

    /// The rows of a role.
    pub fn of_role(&self, role: RowRole) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.role == role)
    }
}

/// Decides on every candidate that the policy fits, in the order of the runs' plans. `text` is the policy's text, whose
/// hash identifies it.
pub fn decide(policy: &Policy, text: &str, evidence: &Evidence<'_>) -> Vec<Decision> {
    let policy = &policy.with_arms_of(evidence);
    if !policy.candidates.contexts.is_empty() {
        let contexts = policy.candidates.contexts.iter();
        return contexts
            .filter(|name| evidence.has_context(name))
            .map(|name| decide_on(policy, text, evidence, name))
            .collect();
    }
    let arms = evidence.arms().into_iter();
    let candidates = arms.filter(|name| {
        let backend = evidence.arm(name).map(|arm| &arm.backend);
        *name != policy.baseline && policy.candidates.fit(name, backend)
    });
    candidates.map(|candidate| decide_on(policy, text, evidence, &candidate)).collect()
}

fn decide_on(policy: &Policy, text: &str, evidence: &Evidence<'_>, candidate: &str) -> Decision {
    let places = places::places(evidence, policy);
    let mut rows = match (&policy.places, policy.candidates.contexts.is_empty()) {
        (Some(_), _) => vec![places::row(&places)],
        (None, true) => safety(evidence, policy, candidate),
        // A context policy is not an arm: only its place can fail, and without places, tokens alone decide.
        (None, false) => Vec::new(),
    };
    for (role, criteria) in
        [(RowRole::Gate, &policy.gates), (RowRole::Benefit, &policy.benefits), (RowRole::Cost, &policy.costs)]
    {
        let criteria = criteria.iter();
        rows.extend(criteria.map(|criterion| row(evidence, policy, role, criterion, candidate)));
    }
    let facts = policy.listed.iter();
    rows.extend(facts.map(|fact| listed(evidence, fact, candidate, &policy.baseline)));
    let (verdict, deciding) = conclude(&rows, policy.benefits_needed);
    let flip = smallest_flip(&rows, policy.benefits_needed);
    let fragile = fragile_flip(&rows, policy.benefits_needed);
    let change = fragile.as_ref().filter(|flip| flip.is_stated).or(flip.as_ref());
    let missing = missing(&rows, verdict);
    let conditions: Vec<String> = match verdict {
        PolicyVerdict::AdoptIf => {
            let of_row = |at: &usize| Some(rows[*at].break_even.as_ref()?.condition.clone());
            let mut conditions = Vec::new();
            for condition in deciding.iter().filter_map(of_row) {
                if !conditions.contains(&condition) {
                    conditions.push(condition);
                }
            }
            conditions
        }
        _ => Vec::new(),
    };
    let policy_sha256 = identity(text);
    let figure = deciding.first().map(|at| &rows[*at]);
    let figure = figure.filter(|row| row.effect.is_some()).map(figure_words);
    Decision {
        policy: policy.name.clone(),
        planned: is_planned(evidence, &policy.name, &policy_sha256),
        policy_sha256,
        question: policy.question.clone(),
        advice: policy.words(),
        baseline: policy.baseline.clone(),
        candidate: candidate.to_owned(),
        not_measured: not_measured(policy, evidence),
        benefits_needed: policy.benefits_needed,
        why: why(&rows, verdict, &deciding, &conditions),
        figure,
        would_flip: would_flip(change, &rows, candidate, &missing),
        fragile,
        places,
        sources: sources::test(evidence, policy, candidate),
        rows,
        verdict,
        conditions,
        flip,
        missing,
    }
}

/// The candidates that a policy expects, and that no run measured.
fn not_measured(policy: &Policy, evidence: &Evidence<'_>) -> Vec<String> {
    let expected = policy.candidates.expected.iter();
    expected.filter(|name| evidence.arm(evidence.arm_named(name)).is_none()).cloned().collect()
}

/// The gates of every policy.
fn safety(evidence: &Evidence<'_>, policy: &Policy, candidate: &str) -> Vec<Row> {
    let bound = |unit: &str| Bound { is_most: true, value: 0.0, unit: unit.to_owned() };
    let passes = evidence.failing_passes(candidate, &policy.baseline);
    let mut rows = vec![without(RowRole::Gate, "Failed passes", bound("passes"), passes)];
    // A run without a pass of the baseline has no row of it. Rows that compare with it then have no evidence.
    if let Some(baseline) = evidence.baseline_passes(&policy.compared_with()) {
        let title = "Failed passes of the baseline";
        rows.push(without(RowRole::Gate, title, bound("passes"), baseline));
    }
    // Without an audit there is no row. A policy that needs one has a gate of its own.
    let lost = evidence.lost_records(candidate);
    if matches!(lost, MeasureResult::Value(_)) {
        let title = "Acknowledged records not kept as promised";
        rows.push(without(RowRole::Gate, title, bound("records"), lost));
    }
    rows
}

/// Whether the policy was fixed before every measured run, of which there is one: each was planned with it, or was made by the same
/// program as one that was.
fn is_planned(evidence: &Evidence<'_>, name: &str, sha256: &str) -> bool {
    let runs = evidence.runs.iter().map(|run| run.run);
    let runs: Vec<&Run> = runs.filter(|run| run.plan.measures_nothing().is_none()).collect();
    let is_of_program = |run: &Run| run.plan.policies.get(name).is_some_and(|hash| hash == sha256);
    let is_given = |run: &Run| run.plan.policy.as_ref().is_some_and(|file| file.sha256 == sha256);
    let program = |run: &Run| (run.plan.ctxbench.clone(), run.environment.binary_sha256.clone());
    let programs: BTreeSet<_> = runs.iter().filter(|run| is_of_program(run)).map(|run| program(run)).collect();
    !runs.is_empty() && runs.iter().all(|run| is_given(run) || programs.contains(&program(run)))
}

/// The missing evidence, if the verdict is *not decided*.
fn missing(rows: &[Row], verdict: PolicyVerdict) -> Vec<Gap> {
    if verdict != PolicyVerdict::NotDecided {
        return Vec::new();
    }
    let mut gaps: Vec<Gap> = rows.iter().filter_map(|row| row.gap.clone()).collect();
    gaps.sort();
    gaps.dedup();
    gaps
}

/// The title of a row with its figure.
fn figure_words(row: &Row) -> String {
    let figure = row.effect.map(|effect| amount(effect.value, &row.bound.unit));
    let of_candidate = match &row.baseline {
        base if base.is_empty() => row.candidate.clone(),
        base => format!("{} against {base}", row.candidate),
    };
    format!("{}: {} ({of_candidate}), {}", row.title, figure.unwrap_or_default(), row.bound_words())
}

fn why(rows: &[Row], verdict: PolicyVerdict, deciding: &[usize], conditions: &[String]) -> String {
    let titles: Vec<&str> = deciding.iter().map(|at| rows[*at].title.as_str()).collect();
    let Some(first) = deciding.first().map(|at| &rows[*at]) else {
        return "no benefit is shown".to_owned();
    };
    let figure = first.effect;
    let figure = figure.map(|effect| amount(effect.value, &first.bound.unit));
    let marked = |figure: String| format!("{}, {}", first.provenance.marked(&figure), first.bound_words());
    let figure = figure.map_or_else(|| first.candidate.clone(), marked);
    match (verdict, first.role) {
        (PolicyVerdict::Adopt, _) => {
            format!("benefits shown: {}; all costs tolerated", titles.join(" and "))
        }
        (PolicyVerdict::AdoptIf, _) => conditions.join(" and "),
        (PolicyVerdict::Archive, RowRole::Benefit) => format!("no benefit, or less than needed: {}", titles.join("; ")),
        (PolicyVerdict::Archive, _) => format!("{}: {figure}", first.title),
        (PolicyVerdict::NotDecided, _) if first.state == RowState::Missing => {
            format!("no evidence: {}", titles.join("; "))
        }
        (PolicyVerdict::NotDecided, _) if first.state == RowState::Void => {
            format!("{}: {}", first.title, first.candidate)
        }
        (PolicyVerdict::NotDecided, _) => format!("open: {}", titles.join("; ")),
    }
}

fn would_flip(flip: Option<&Flip>, rows: &[Row], candidate: &str, missing: &[Gap]) -> String {
    match (flip, missing) {
        (Some(flip), []) => format!("{} if {}", flip.outcome(arm_words(candidate)), flip.condition()),
        (None, []) => "no change of one bound or one figure".to_owned(),
        // The list of missing evidence has the command.
        (_, [first, ..]) => format!("a measurement of {}", missing::gap_words(rows, candidate, first)),
    }
}
