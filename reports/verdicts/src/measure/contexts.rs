//! Tokens and dollars of a session's context under a context policy.

use rundir::Basis;
use serde::Deserialize;

use super::{ArmReading, Evidence, MeasureResult, pooled, run_gap};
use figures::context::{ContextCost, DOLLARS, MODELS};
use figures::provenance::Provenance;
use figures::text::count;

/// See [`super::Measure::Context`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextFigure {
    /// The session.
    pub workload: String,
    /// The context policy; the candidate itself without it.
    pub policy: Option<String>,
    /// The context policy of the baseline; the baseline itself without it.
    pub against: Option<String>,
    /// One of [`figures::context::ContextCost::FIGURES`], or `dollars`.
    pub figure: String,
    /// The model that is paid, for `dollars`; the first of the report without it.
    pub model: Option<String>,
}

impl ContextFigure {
    /// The same figure of another session.
    pub fn of_session(&self, workload: &str) -> Self {
        Self { workload: workload.to_owned(), ..self.clone() }
    }
}

impl Evidence<'_> {
    pub(super) fn context(&self, figure: &ContextFigure, arm: &str, as_baseline: bool) -> MeasureResult {
        let policy = match as_baseline {
            true => figure.against.as_deref().unwrap_or(arm),
            false => figure.policy.as_deref().unwrap_or(arm),
        };
        if !as_baseline && figure.policy.is_some() {
            // The arm has to hold what leaves the context.
            match self.passes(&figure.workload, arm) {
                MeasureResult::Value(_) => {}
                other => return other,
            }
        }
        // A context policy as a candidate needs no arm beside the plain directory.
        let arm = figure.policy.as_ref().map_or("direct", |_| arm);
        let costs = self.runs.iter().filter_map(|run| run.context(&figure.workload, policy));
        let costs: Vec<&ContextCost> = costs.collect();
        let is_measured = !costs.is_empty();
        let model = figure.model.as_deref().unwrap_or(MODELS[0]);
        let source = format!("contexts.jsonl: {} of {}", figure.figure, figure.workload);
        let readings = costs.into_iter().filter_map(|cost| {
            let (value, words) = match figure.figure.as_str() {
                DOLLARS => {
                    let dollars = *cost.dollars.get(model)?;
                    (dollars, format!("{dollars:.4} USD ({model}, {policy})"))
                }
                name => {
                    // A parsed policy names known figures only.
                    let tokens = cost.figure(name).unwrap_or(0);
                    (tokens as f64, format!("{} tokens ({policy})", count(tokens)))
                }
            };
            let basis = match cost.basis {
                Basis::Recorded | Basis::Generated => String::new(),
                other => format!(", {}", other.name()),
            };
            let provenance = match cost.basis {
                Basis::Published => Provenance::Computed,
                // The policy adds calls that no agent made.
                Basis::Simulated => Provenance::Simulated,
                Basis::Recorded | Basis::Generated | Basis::PartlyStated => Provenance::Measured,
            };
            Some(ArmReading { provenance, ..ArmReading::exact(value, format!("{words}{basis}"), &source) })
        });
        match pooled(readings.collect()) {
            Some(reading) => MeasureResult::Value(reading),
            None => {
                let what = match is_measured {
                    true => format!("no price for context {policy} of {}", figure.workload),
                    false => format!("context {policy} of {}", figure.workload),
                };
                run_gap(&figure.workload, &[arm], what)
            }
        }
    }
}
