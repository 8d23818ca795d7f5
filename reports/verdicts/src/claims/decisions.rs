//! Decisions of policies: a source's own verdict, tested by the gates, benefits and costs of a policy.

use inputs::PathStep::{self, Field};
use serde::Deserialize;

use super::finding::{Finding, Name, Test};
use crate::decide::{self, Policy, PolicyVerdict, RowRole, RowState, decide, find};
use figures::evidence::RunEvidence;

/// A figure of a decision by a built-in policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionTest {
    policy: String,
    arm: String,
    figure: DecisionFigure,
}

/// The part of a decision that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DecisionFigure {
    /// 1 if the verdict is *archive*, 0 if it is *adopt* or *adopt if*.
    Archive,
    /// Benefits that the candidate shows.
    Benefits,
}

impl Test for DecisionTest {
    fn measure(&self, run: &RunEvidence<'_>, _: &str) -> Finding {
        let evidence = decide::Evidence { runs: vec![run.clone()] };
        let arm = evidence.arm_named(&self.arm);
        let missing = |why: String| {
            let policy = &self.policy;
            Finding::Missing(format!("policy {policy} does not decide on {arm}: {why}"))
        };
        // `check` has read the policy before.
        let Ok((file, text)) = find(&self.policy) else {
            return missing("no policy has this name".to_owned());
        };
        let Ok(policy) = Policy::parse(&file, &text) else {
            return missing("it cannot be read".to_owned());
        };
        let decisions = decide(&policy, &text, &evidence);
        let mut decisions = decisions.iter();
        let Some(decision) = decisions.find(|decision| decision.candidate == arm) else {
            return missing("it is not a candidate in this run".to_owned());
        };
        let words = format!("policy {} on {arm}: {}", self.policy, decision.why);
        match self.figure {
            DecisionFigure::Archive => match decision.verdict {
                PolicyVerdict::NotDecided => missing(decision.why.clone()),
                verdict => Finding::exact(f64::from(u8::from(verdict == PolicyVerdict::Archive)), words),
            },
            DecisionFigure::Benefits => {
                let in_state = |wanted: &[RowState]| {
                    let rows = decision.of_role(RowRole::Benefit);
                    let titles = rows.filter(|row| wanted.contains(&row.state));
                    titles.map(|row| row.title.as_str()).collect::<Vec<_>>()
                };
                let shown = in_state(&[RowState::Met]);
                let open = in_state(&[RowState::Missing, RowState::Open, RowState::Void]);
                match (shown.as_slice(), open.as_slice()) {
                    ([], [_, ..]) => missing(format!("no evidence of {}", open.join(", "))),
                    ([], _) => Finding::exact(0.0, format!("{words}; no benefit is shown")),
                    _ => Finding::exact(
                        shown.len() as f64,
                        format!("policy {} on {arm}: benefits shown: {}", self.policy, shown.join(", ")),
                    ),
                }
            }
        }
    }

    fn units(&self) -> Vec<String> {
        let unit = match self.figure {
            DecisionFigure::Archive => "verdicts",
            DecisionFigure::Benefits => "benefits",
        };
        vec![unit.to_owned()]
    }

    fn problem(&self) -> Option<(Vec<PathStep<'static>>, String)> {
        let is_built_in = find(&self.policy).is_ok() && !self.policy.ends_with(".toml");
        (!is_built_in).then(|| {
            let known = decide::built_in();
            let known = known.iter().map(String::as_str);
            let known = inputs::names::alternatives(&self.policy, known);
            let message = format!("no built-in policy {:?}; {known}", self.policy);
            (vec![Field("policy")], message)
        })
    }

    fn command(&self, _: &str) -> String {
        format!("ctxbench decide --policy {} RUN…", self.policy)
    }

    fn names(&self) -> Vec<(Vec<PathStep<'static>>, Name<'_>)> {
        vec![(vec![Field("arm")], Name::Arm(&self.arm))]
    }
}
