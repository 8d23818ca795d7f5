//! Applies a policy to a run: adopt, archive or inconclusive.

mod evidence;
mod policy;

use serde::Serialize;

use crate::summary::Summary;
use evidence::Evidence;
pub use policy::{Count, Criterion, Place, Policy, find, identity};
use rundir::Run;

/// The better arm of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Winner {
    /// The arm in use.
    Baseline,
    /// The arm that might replace the baseline.
    Candidate,
    /// The run shows that both are the same.
    Tie,
    /// The run cannot tell.
    Open,
}

/// Whether the candidate passes the gate of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// The candidate passes.
    Passed,
    /// The candidate fails.
    Failed,
    /// The run cannot tell.
    Open,
    /// The row has no gate.
    None,
}

/// The verdict of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Replace the baseline by the candidate.
    Adopt,
    /// Keep the baseline.
    Archive,
    /// The run cannot decide.
    Inconclusive,
}

impl Verdict {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Adopt => "adopt",
            Verdict::Archive => "archive",
            Verdict::Inconclusive => "inconclusive",
        }
    }
}

/// A row of a decision.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The aspect of comparison.
    pub aspect: String,
    /// The statement of the policy's source.
    pub source_says: String,
    /// The result of the baseline, in words.
    pub baseline: String,
    /// The result of the candidate, in words.
    pub candidate: String,
    /// The better arm.
    pub winner: Winner,
    /// The candidate's gate, in words; empty without one.
    pub demand: String,
    /// Whether the candidate passes the gate.
    pub must: Gate,
    /// The place of the evidence in the run's files.
    pub evidence: String,
}

/// A decision.
#[derive(Clone, Debug, Serialize)]
pub struct Decision {
    /// The policy's name.
    pub policy: String,
    /// SHA-256 of its text.
    pub policy_sha256: String,
    /// Whether the run was made for exactly this policy.
    pub planned: bool,
    /// The arm in use.
    pub baseline: String,
    /// The arm that might replace the baseline.
    pub candidate: String,
    /// The rows.
    pub rows: Vec<Row>,
    /// The verdict.
    pub verdict: Verdict,
    /// The deciding row, and why.
    pub because: String,
    /// The evidence that would change the verdict.
    pub would_flip: String,
}

/// Applies a policy to a run. `text` is the policy's text, whose hash identifies it.
pub fn decide(policy: &Policy, text: &str, run: &Run, summary: &Summary) -> Decision {
    let evidence = Evidence { run, summary };
    let rows: Vec<Row> = policy
        .criteria
        .iter()
        .map(|criterion| evidence.row(policy, criterion))
        .collect();
    let (verdict, because, would_flip) = conclude(policy, &rows);
    let policy_sha256 = identity(text);
    Decision {
        policy: policy.name.clone(),
        planned: run
            .plan
            .policy
            .as_ref()
            .is_some_and(|planned| planned.sha256 == policy_sha256),
        policy_sha256,
        baseline: policy.baseline.clone(),
        candidate: policy.candidate.clone(),
        rows,
        verdict,
        because,
        would_flip,
    }
}

fn conclude(policy: &Policy, rows: &[Row]) -> (Verdict, String, String) {
    let candidate = &policy.candidate;
    let names = |wanted: &dyn Fn(&Row) -> bool| -> Vec<&str> {
        let rows = rows.iter().filter(|row| wanted(row));
        rows.map(|row| row.aspect.as_str()).collect()
    };
    let failed = names(&|row| row.must == Gate::Failed);
    let unknown = names(&|row| row.must == Gate::Open);
    let won = names(&|row| row.winner == Winner::Candidate);
    let open = names(&|row| row.winner == Winner::Open);
    if let Some(first) = rows.iter().find(|row| row.must == Gate::Failed) {
        return (
            Verdict::Archive,
            format!(
                "{}: {candidate} must be {}, and is {}",
                first.aspect, first.demand, first.candidate
            ),
            format!(
                "{candidate} reaching what it must in: {}",
                failed.join(", ")
            ),
        );
    }
    if let Some(first) = rows.iter().find(|row| row.must == Gate::Open) {
        return (
            Verdict::Inconclusive,
            format!(
                "{}: whether {candidate} is {} is open ({})",
                first.aspect, first.demand, first.candidate
            ),
            format!("measuring: {}", unknown.join(", ")),
        );
    }
    if won.len() >= policy.wins_needed {
        return (
            Verdict::Adopt,
            format!(
                "{candidate} reaches all it must and wins: {}",
                won.join(", ")
            ),
            format!(
                "{candidate} failing what it must anywhere, or losing {}",
                won.join(" and ")
            ),
        );
    }
    if won.len() + open.len() >= policy.wins_needed {
        return (
            Verdict::Inconclusive,
            format!(
                "{candidate} reaches all it must, but who wins is open in: {}",
                open.join(", ")
            ),
            format!("a clear winner in: {}", open.join(", ")),
        );
    }
    let lost = names(&|row| row.winner == Winner::Baseline);
    let ties = names(&|row| row.winner == Winner::Tie);
    (
        Verdict::Archive,
        format!(
            "{candidate} reaches all it must, but wins {} of the {} rows it needs: it is worse in {}{}",
            won.len(),
            policy.wins_needed,
            if lost.is_empty() {
                "none".to_owned()
            } else {
                lost.join(", ")
            },
            if ties.is_empty() {
                String::new()
            } else {
                format!(", and no better in {}", ties.join(", "))
            }
        ),
        format!(
            "{candidate} clearly better than {} in {} of these rows",
            policy.baseline, policy.wins_needed
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use std::path::Path;

    const POLICY: &str = r#"
name = "test"
essay = "e"
baseline = "direct"
candidate = "sqlite"
wins_needed = 1
[[criterion]]
aspect = "Read latency"
source_says = "s"
must_be_below_ms = 1.0
[criterion.latency]
workload = "micro/read"
state = "hot"
metric = "read"
[[criterion]]
aspect = "Tool support"
source_says = "s"
count = "tools-failing"
must_be_at_most = 0
"#;

    fn decided(policy: &str, run: &Run) -> Decision {
        let parsed = Policy::parse(Path::new("p.toml"), policy).unwrap();
        let summary = crate::summary::summarise(run).unwrap();
        decide(&parsed, policy, run, &summary)
    }

    #[test]
    fn something_that_is_better_nowhere_is_archived() {
        let decision = decided(POLICY, &testing::run());
        assert_eq!(decision.verdict, Verdict::Archive);
        insta::assert_snapshot!(serde_json::to_string_pretty(&decision).unwrap());
    }

    #[test]
    fn a_candidate_that_wins_a_row_and_reaches_the_rest_is_adopted() {
        let mut run = testing::run();
        testing::scale(&mut run, "sqlite", 0.3);
        let decision = decided(POLICY, &run);
        assert_eq!(decision.verdict, Verdict::Adopt, "{}", decision.because);
        assert!(decision.because.contains("Read latency"));
    }

    #[test]
    fn what_must_be_reached_and_is_not_decides() {
        let mut run = testing::run();
        testing::scale(&mut run, "sqlite", 1000.0);
        let decision = decided(POLICY, &run);
        assert_eq!(decision.verdict, Verdict::Archive);
        assert!(
            decision
                .because
                .starts_with("Read latency: sqlite must be below 1 ms"),
            "{}",
            decision.because
        );
        assert!(decision.would_flip.contains("Read latency"));
    }

    #[test]
    fn what_was_not_measured_leaves_it_open() {
        let mut run = testing::run();
        run.probes.clear();
        let decision = decided(POLICY, &run);
        assert_eq!(decision.verdict, Verdict::Inconclusive);
        assert!(
            decision.because.starts_with("Tool support"),
            "{}",
            decision.because
        );
    }

    #[test]
    fn one_epoch_says_nothing() {
        let mut run = testing::run();
        run.samples.retain(|sample| sample.epoch == 0);
        let decision = decided(POLICY, &run);
        assert_eq!(
            decision.verdict,
            Verdict::Inconclusive,
            "{}",
            decision.because
        );
    }

    #[test]
    fn a_busy_machine_decides_nothing() {
        for factor in [0.3, 1.0, 1000.0] {
            let mut run = testing::run();
            testing::scale(&mut run, "sqlite", factor);
            for sample in &mut run.samples {
                sample.load.busy = Some("tasks waited for memory in 9 % of it".to_owned());
            }
            let decision = decided(POLICY, &run);
            assert_eq!(decision.verdict, Verdict::Inconclusive, "{factor}");
            assert!(decision.because.starts_with("Read latency"));
        }
    }

    #[test]
    fn a_policy_says_what_is_wrong_with_it() {
        let error = |from: &str, to: &str| {
            let text = POLICY.replacen(from, to, 1);
            assert_ne!(text, POLICY);
            Policy::parse(Path::new("p.toml"), &text)
                .unwrap_err()
                .to_string()
        };
        insta::assert_snapshot!(error("count = \"tools-failing\"", "count = \"tools\""), @"p.toml:18: field `criterion[1].count`: unknown variant `tools`, expected one of `needs`, `lines-of-code`, `result-tokens`, `tools-failing`, `hidden-facts`, `cron-failed-calls`, `cron-losses`");
        insta::assert_snapshot!(error("must_be_at_most = 0", "must_be_below_ms = 0"), @r#"p.toml: criterion "Tool support": `must_be_below_ms` goes with `latency`; a count takes `must_be_at_most`"#);
        insta::assert_snapshot!(error("count = \"tools-failing\"", ""), @r#"p.toml: criterion "Tool support": needs exactly one of `latency` and `count`"#);
        insta::assert_snapshot!(error("wins_needed = 1", "wins = 1"), @"p.toml:6: unknown field `wins`, expected one of `name`, `essay`, `baseline`, `candidate`, `wins_needed`, `criterion`");
    }

    #[test]
    fn the_built_in_policy_restates_the_seeds_table() {
        let (file, text) = find("vsm").unwrap();
        let policy = Policy::parse(&file, &text).unwrap();
        let aspects: Vec<_> = policy.criteria.iter().map(|c| c.aspect.as_str()).collect();
        assert_eq!(
            aspects,
            [
                "Read latency",
                "Deployment",
                "Cron safety",
                "Token cost",
                "Complexity",
                "Tool support",
                "Observability"
            ]
        );
        assert!(
            find("nonsense")
                .unwrap_err()
                .to_string()
                .contains("there are vsm")
        );
    }

    #[test]
    fn a_policy_the_run_was_not_made_for_is_told_apart() {
        let mut run = testing::run();
        assert!(!decided(POLICY, &run).planned);
        run.plan.policy = Some(rundir::PlannedPolicy {
            name: "test".to_owned(),
            sha256: identity(POLICY),
        });
        assert!(decided(POLICY, &run).planned);
    }
}
