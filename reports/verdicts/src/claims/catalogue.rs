//! Checks that the arms, workloads, states, metrics and scenarios that claims name exist.

use std::collections::BTreeSet;

use inputs::InputError;
use inputs::PathStep::{Any, Field};
use rundir::Run;

use super::file::ClaimFile;
use super::finding::Name;
use crate::measure::{READY, planned_arm};
use figures::summary::MAKESPAN;

/// A workload that claims may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownWorkload {
    /// Its cache states.
    pub states: BTreeSet<String>,
    /// The kinds of its calls.
    pub kinds: BTreeSet<String>,
    /// Its context policies and published accounts; empty if unknown.
    pub policies: BTreeSet<String>,
}

/// The names that exist: those of a run, or those that are built into the harness.
pub trait Catalogue {
    /// The workload called `name`.
    fn workload(&self, name: &str) -> Option<KnownWorkload>;
    /// Whether there is an arm called `name`.
    fn has_arm(&self, name: &str) -> bool;
    /// The fault scenarios.
    fn scenarios(&self) -> BTreeSet<String>;
    /// All names of workloads and of arms, for an error message.
    fn names(&self) -> (BTreeSet<String>, BTreeSet<String>);
}

impl Catalogue for Run {
    fn workload(&self, name: &str) -> Option<KnownWorkload> {
        let planned = self.plan.workload(name)?;
        let contexts = self.contexts.iter().filter(|context| context.workload == name);
        Some(KnownWorkload {
            states: planned.states.iter().cloned().collect(),
            kinds: planned.calls.keys().cloned().collect(),
            policies: contexts.map(|context| context.policy.clone()).collect(),
        })
    }

    fn has_arm(&self, name: &str) -> bool {
        let mut outcomes = self.fault_outcomes.iter();
        planned_arm(&self.plan, name).is_some() || outcomes.any(|outcome| outcome.backend == name)
    }

    fn scenarios(&self) -> BTreeSet<String> {
        let planned = self.plan.scenarios.iter();
        planned.map(|scenario| scenario.name.clone()).collect()
    }

    fn names(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let workloads = self.plan.workloads.iter();
        let workloads = workloads.map(|workload| workload.name.clone());
        let arms = self.plan.arms.iter().map(|arm| arm.name.clone());
        (workloads.collect(), arms.collect())
    }
}

/// Checks all names of a claim file against catalogues; a name of any of them is known.
///
/// # Errors
/// [`InputError`] with file, line, field, and the names that exist.
pub fn check(file: &ClaimFile, known: &[&dyn Catalogue]) -> Result<(), InputError> {
    for (at, claim) in file.claims.iter().enumerate() {
        for (place, _, test) in claim.tests() {
            for (field, name) in test.names() {
                if let Some(problem) = unknown(name, known) {
                    let path = [&*place, &[Field("test"), Any], &*field].concat();
                    return Err(file.wrong(at, &path, &problem));
                }
            }
        }
    }
    Ok(())
}

/// The problem with a name; `None` if it is known.
fn unknown(name: Name<'_>, known: &[&dyn Catalogue]) -> Option<String> {
    let of_all = |of: fn(&dyn Catalogue) -> BTreeSet<String>| -> BTreeSet<String> {
        known.iter().flat_map(|catalogue| of(*catalogue)).collect()
    };
    let workload = |name: &str| {
        let mut all = KnownWorkload::default();
        let found = known.iter();
        for found in found.filter_map(|catalogue| catalogue.workload(name)) {
            all.states.extend(found.states);
            all.kinds.extend(found.kinds);
            all.policies.extend(found.policies);
        }
        all
    };
    let wanted = match name {
        Name::Arm(name) | Name::Workload(name) | Name::Scenario(name) => name,
        Name::State(_, name) | Name::Metric(_, name) | Name::Policy(_, name) => name,
    };
    let (what, is_known, names) = match name {
        Name::Arm(arm) => {
            let names = of_all(|catalogue| catalogue.names().1);
            let is_known = known.iter().any(|catalogue| catalogue.has_arm(arm));
            (format!("unknown arm {arm:?}"), is_known, names)
        }
        Name::Workload(name) => {
            let names = of_all(|catalogue| catalogue.names().0);
            let mut catalogues = known.iter();
            let is_known = catalogues.any(|catalogue| catalogue.workload(name).is_some());
            (format!("unknown workload {name:?}"), is_known, names)
        }
        Name::State(name, state) => {
            let names = workload(name).states;
            let what = format!("{name} has no cache state {state:?}");
            (what, names.contains(state), names)
        }
        Name::Metric(name, metric) => {
            let mut names = workload(name).kinds;
            names.insert(READY.to_owned());
            if name.starts_with("agent/") {
                names.insert(MAKESPAN.to_owned());
            }
            let what = format!("{name} has no metric {metric:?}");
            (what, names.contains(metric), names)
        }
        Name::Policy(name, policy) => {
            let names = workload(name).policies;
            let what = format!("{name} has no context policy {policy:?}");
            (what, names.is_empty() || names.contains(policy), names)
        }
        Name::Scenario(name) => {
            let names = of_all(|catalogue| catalogue.scenarios());
            let what = format!("unknown scenario {name:?}");
            (what, names.contains(name), names)
        }
    };
    let names = names.iter().map(String::as_str);
    (!is_known).then(|| format!("{what}; {}", inputs::names::alternatives(wanted, names)))
}
