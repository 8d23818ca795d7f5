//! Tokens and dollars of a session's context under a context policy.

use rundir::Basis;
use serde::Deserialize;

use super::{Evidence, Found, run_gap};
use crate::context::{DOLLARS, MODELS};
use crate::text::count;

/// See [`Measure::Context`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextFigure {
    /// The session.
    pub workload: String,
    /// The context policy; the candidate itself without it.
    pub policy: Option<String>,
    /// The context policy of the baseline.
    pub against: String,
    /// One of [`ContextCost::FIGURES`], or `dollars` on the first model of the report.
    pub figure: String,
}

impl Evidence<'_> {
    pub(super) fn context(&self, figure: &ContextFigure, arm: &str, as_baseline: bool) -> Found {
        let policy = match as_baseline {
            true => figure.against.as_str(),
            false => figure.policy.as_deref().unwrap_or(arm),
        };
        if !as_baseline && figure.policy.is_some() {
            // The arm has to hold what leaves the context.
            match self.passes(&figure.workload, arm) {
                Found::Value(_) => {}
                other => return other,
            }
        }
        // A context policy as a candidate needs no arm beside the plain directory.
        let arm = figure.policy.as_ref().map_or("direct", |_| arm);
        let mut runs = self.runs.iter();
        let Some(cost) = runs.find_map(|run| run.context(&figure.workload, policy)) else {
            let what = format!("context {policy} of {}", figure.workload);
            return run_gap(&figure.workload, &[arm], what);
        };
        let (value, words) = match figure.figure.as_str() {
            DOLLARS => {
                let Some(dollars) = cost.dollars.get(MODELS[0]) else {
                    let what = format!("no price for context {policy} of {}", figure.workload);
                    return run_gap(&figure.workload, &[arm], what);
                };
                let words = format!("{dollars:.4} USD ({}, {policy})", MODELS[0]);
                (*dollars, words)
            }
            name => {
                // A parsed policy names known figures only.
                let tokens = cost.figure(name).unwrap_or(0);
                let words = format!("{} tokens ({policy})", count(tokens));
                (tokens as f64, words)
            }
        };
        let basis = match cost.basis {
            Basis::Recorded | Basis::Generated => String::new(),
            other => format!(", {}", other.name()),
        };
        let source = format!("contexts.jsonl: {} of {}", figure.figure, figure.workload);
        Found::exact(value, format!("{words}{basis}"), &source)
    }
}
