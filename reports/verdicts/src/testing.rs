//! The decisions on the scripted run, and constructed evidence.
#![expect(clippy::unwrap_used, reason = "for tests: the run is constructed")]

pub mod evidence;

use figures::context;
use figures::prices::Prices;
use figures::summary::summarise;
use figures::testing::run;
use rundir::Run;

use crate::decide::{Decision, Evidence, Policy, built_in, decide, find};

/// The decisions of every built-in policy on [`run`].
pub fn decisions() -> Vec<Decision> {
    decisions_on(&run())
}

/// The decisions of every built-in policy on a run.
pub fn decisions_on(run: &Run) -> Vec<Decision> {
    let summary = summarise(run).unwrap();
    let contexts = context::contexts(run, &Prices::built_in().unwrap()).unwrap();
    let evidence = Evidence::of(run, &summary, &contexts);
    let policies = built_in().into_iter().flat_map(|name| {
        let (file, text) = find(&name).unwrap();
        let policy = Policy::parse(&file, &text).unwrap();
        decide(&policy, &text, &evidence)
    });
    policies.collect()
}
