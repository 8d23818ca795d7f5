//! Figures of a session's context: tokens, and what they cost.

use rundir::Basis;
use serde::Deserialize;

use super::cells::run_command;
use super::finding::{Finding, Name, Test};
use super::range::Unit;
use crate::context::{ContextCost, DOLLARS, MODELS};
use crate::evidence::RunEvidence;

/// A figure of a session's context. Tokens are counted exactly, so it has no interval.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenTest {
    workload: String,
    /// The context policy, or a published account.
    policy: String,
    /// One of [`ContextCost::FIGURES`], or `dollars`.
    figure: String,
    /// The model that is paid, for `dollars`.
    model: Option<String>,
    /// The policy against which `policy` saves; the claim is then in percent.
    saved_against: Option<String>,
}

impl TokenTest {
    fn figure(&self, run: &RunEvidence<'_>, policy: &str) -> Option<(f64, Basis)> {
        let cost = run.context(&self.workload, policy)?;
        let value = match &self.model {
            Some(model) => *cost.dollars.get(model)?,
            None => cost.figure(&self.figure)? as f64,
        };
        Some((value, cost.basis))
    }
}

impl Test for TokenTest {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        let place = match &self.model {
            Some(model) => format!("the bill of {} for {}", model, self.workload),
            None => format!("{} of {}", self.figure, self.workload),
        };
        let missing = |policy: &str| {
            Finding::Missing(format!(
                "this run did not account for {place} under {policy}"
            ))
        };
        let Some((amount, basis)) = self.figure(run, &self.policy) else {
            return missing(&self.policy);
        };
        let counted = match basis {
            Basis::Published => "as published, in its own units; ",
            Basis::Recorded | Basis::Generated => "counted; ",
            Basis::PartlyStated => "counted where there is a text, else as published; ",
            Basis::Simulated => "simulated from what was counted; ",
        };
        let show = |value: f64| match self.model {
            Some(_) => format!("${value:.4}"),
            None => format!("{value} tokens"),
        };
        let (value, words) = match &self.saved_against {
            None => (
                amount,
                format!("{}: {counted}{place} under {}", show(amount), self.policy),
            ),
            Some(against) => {
                let before = self.figure(run, against);
                let Some((before, _)) = before.filter(|(before, _)| *before > 0.0) else {
                    return missing(against);
                };
                let saved = (1.0 - amount / before) * 100.0;
                let words = format!(
                    "{saved:.1} % saved: {counted}{place} is {} under {}, {} under {against}",
                    show(amount),
                    self.policy,
                    show(before)
                );
                (saved, words)
            }
        };
        Finding::Value {
            value,
            interval: None,
            words,
            is_published: basis == Basis::Published,
        }
    }

    fn units(&self) -> Vec<Unit> {
        vec![match (&self.saved_against, &self.model) {
            (Some(_), _) => Unit::Percent,
            (None, Some(_)) => Unit::Dollars,
            (None, None) => Unit::Tokens,
        }]
    }

    fn check(&self) -> Result<(), String> {
        let is_known = ContextCost::FIGURES.contains(&self.figure.as_str());
        if !is_known && self.figure != DOLLARS {
            return Err(format!(
                "`tokens.figure`: unknown figure {:?}, expected {DOLLARS} or one of {}",
                self.figure,
                ContextCost::FIGURES.join(", ")
            ));
        }
        if (self.figure == DOLLARS) != self.model.is_some() {
            return Err("`tokens.model`: goes with the figure dollars, and only there".to_owned());
        }
        match &self.model {
            Some(model) if !MODELS.contains(&model.as_str()) => Err(format!(
                "`tokens.model`: unknown model {model:?}, expected one of {}",
                MODELS.join(", ")
            )),
            _ => Ok(()),
        }
    }

    fn command(&self) -> String {
        run_command(&[&self.workload], None, &["direct"])
    }

    fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        let mut names = vec![
            ("workload", Name::Workload(&self.workload)),
            ("policy", Name::Policy(&self.workload, &self.policy)),
        ];
        let against = self.saved_against.iter();
        names.extend(against.map(|policy| ("saved_against", Name::Policy(&self.workload, policy))));
        names
    }
}
