//! An architecture decision record: decisions as a Markdown file that is ready to commit.

use super::decisions::{decisions_markdown, titles};
use crate::decide::{Decision, PolicyVerdict, RowRole, RowState};
use rundir::Run;

/// Writes the record of decisions that rest on these runs.
pub fn decision_record(decisions: &[Decision], runs: &[&Run]) -> String {
    let mut text = String::new();
    let title = match decisions {
        [only] => format!(
            "{}: {} {}",
            only.policy,
            only.verdict.name(),
            only.candidate
        ),
        _ => "Context backends by policy".to_owned(),
    };
    text += &format!("# {title}\n\n");
    let newest = runs.iter().map(|run| run.plan.created.as_str()).max();
    text += &format!(
        "Date: {}\n\n",
        newest
            .unwrap_or_default()
            .split('T')
            .next()
            .unwrap_or_default()
    );
    let is_open = decisions
        .iter()
        .any(|decision| decision.verdict == PolicyVerdict::NotDecided);
    text += &format!(
        "Status: {}\n\n",
        if is_open { "proposed" } else { "accepted" }
    );
    text += "## Context\n\n";
    let mut questions: Vec<&str> = decisions
        .iter()
        .map(|decision| decision.question.as_str())
        .collect();
    questions.dedup();
    for question in questions {
        text += &format!("- {question}\n");
    }
    text += "\nThe evidence:\n\n";
    for run in runs {
        let machine = &run.environment;
        text += &format!(
            "- {}: suite {}, {}, ctxbench {}, on {} ({} processors), Linux {}; `{}`\n",
            run.dir.display(),
            run.plan.suite,
            run.plan.created,
            run.plan.ctxbench,
            machine.cpu,
            machine.cpus,
            machine.kernel.split(' ').next().unwrap_or_default(),
            run.plan.command
        );
    }
    text += "\n## Decision\n\n";
    for decision in decisions {
        let what = match decision.verdict {
            PolicyVerdict::Adopt => format!(
                "Adopt {} instead of {}",
                decision.candidate, decision.baseline
            ),
            PolicyVerdict::AdoptIf => format!(
                "Adopt {} instead of {} if {}",
                decision.candidate,
                decision.baseline,
                decision.conditions.join(" and ")
            ),
            PolicyVerdict::Archive => {
                format!(
                    "Keep {}; {} is not adopted",
                    decision.baseline, decision.candidate
                )
            }
            PolicyVerdict::NotDecided => format!(
                "{} instead of {} is not decided",
                decision.candidate, decision.baseline
            ),
        };
        text += &format!("- {what} ({}): {}.\n", decision.policy, decision.why);
    }
    text += "\n## Consequences\n\n";
    for decision in decisions {
        let mut lines = Vec::new();
        let mut add = |what: &str, role, state| {
            let titles = titles(decision, role, state).into_iter();
            lines.extend(titles.map(|title| format!("  - {what}: {title}")));
        };
        add("gained", RowRole::Benefit, RowState::Met);
        add("accepted cost", RowRole::Cost, RowState::Met);
        add("cost above its margin", RowRole::Cost, RowState::Unmet);
        add("failed gate", RowRole::Gate, RowState::Unmet);
        text += &format!(
            "- {}, {}\n{}\n",
            decision.policy,
            decision.candidate,
            lines.join("\n")
        );
        text += &format!("  - it would change by: {}\n", decision.would_flip);
    }
    text += "\n## Evidence\n\n";
    text + &decisions_markdown(decisions)
}
