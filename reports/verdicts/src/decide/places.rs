//! The places that a context policy can be used with: arms that keep every row that a policy asks of a place.

use schemars::JsonSchema;
use serde::Serialize;

use super::policy::Policy;
use super::rows::{self, Bound, Row, RowEffect, RowRole, RowState, bare};
use super::safety;
use crate::measure::{Evidence, Gap};

/// A place, and whether it qualifies.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ContextPlace {
    /// The arm.
    pub name: String,
    /// *Met* if it keeps every row, else the state of the first row that it does not keep.
    pub state: RowState,
    /// That row, in words; empty if it qualifies.
    pub why: String,
    #[serde(skip)]
    gap: Option<Gap>,
}

/// The places of a policy, in the order of the plans.
pub(super) fn places(evidence: &Evidence<'_>, policy: &Policy) -> Vec<ContextPlace> {
    let Some(places) = &policy.places else {
        return Vec::new();
    };
    let arms = evidence.arms().into_iter();
    let arms = arms.filter(|name| {
        let backend = evidence.arm(name).map(|arm| &arm.backend);
        places.arms.fit(name, backend)
    });
    let tried = arms.map(|name| {
        let mut rows = safety(evidence, policy, &name);
        let own = places.rows.iter();
        rows.extend(own.map(|criterion| rows::row(evidence, policy, RowRole::Gate, criterion, &name)));
        let worst = |wanted: fn(RowState) -> bool| rows.iter().find(|row| wanted(row.state));
        let is_lost = |state| matches!(state, RowState::Unmet | RowState::Failed);
        let problem = worst(is_lost).or(worst(|state| state != RowState::Met));
        ContextPlace {
            state: problem.map_or(RowState::Met, |row| row.state),
            why: problem.map_or(String::new(), |row| format!("{}: {}", row.title, row.candidate)),
            gap: problem.and_then(|row| row.gap.clone()),
            name,
        }
    });
    tried.collect()
}

/// The gate that some place qualifies.
pub(super) fn row(places: &[ContextPlace]) -> Row {
    let in_state = |wanted: fn(RowState) -> bool| places.iter().filter(move |at| wanted(at.state));
    let is_met = |state| state == RowState::Met;
    let is_open = |state| matches!(state, RowState::Open | RowState::Missing | RowState::Void);
    let met: Vec<&str> = in_state(is_met).map(|at| at.name.as_str()).collect();
    let open = in_state(is_open).next();
    let others = places.iter().filter(|at| at.state != RowState::Met);
    let others: Vec<String> = others.map(|at| format!("{} ({})", at.name, at.why)).collect();
    let words = if met.is_empty() { "none".to_owned() } else { met.join(", ") };
    let not = if others.is_empty() { String::new() } else { format!("; not {}", others.join("; ")) };
    let bound = Bound { is_most: false, value: 1.0, unit: "places".to_owned() };
    let state = match (met.is_empty(), open) {
        (false, _) => RowState::Met,
        (true, Some(open)) => open.state,
        (true, None) => RowState::Unmet,
    };
    let value = met.len() as f64;
    let effect = (!is_open(state)).then_some(RowEffect { value, low: value, high: value });
    Row {
        effect,
        gap: open.filter(|_| met.is_empty()).and_then(|open| open.gap.clone()),
        ..bare(RowRole::Gate, "A place qualifies", bound, state, format!("{words}{not}"))
    }
}
