//! An architecture decision record: decisions as a Markdown file that is ready to commit.

use inputs::border::markdown;

use super::decisions::{reasons, titles};
use rundir::Run;
use verdicts::decide::{Decision, PolicyVerdict, RowRole, RowState};

/// Writes the record of decisions that rest on these runs.
pub fn decision_record(decisions: &[Decision], runs: &[&Run]) -> String {
    let mut text = String::new();
    let title = match decisions {
        [only] => format!("{}: {} {}", only.use_title(), only.verdict.name(), only.candidate),
        _ => "Context backends by policy".to_owned(),
    };
    text += &format!("# {}\n\n", markdown(&title));
    let newest = runs.iter().map(|run| run.plan.created.as_str()).max();
    text += &format!("Date: {}\n\n", markdown(newest.and_then(|time| time.split('T').next()).unwrap_or_default()));
    let is_open = decisions.iter().any(|decision| decision.verdict == PolicyVerdict::NotDecided);
    text += &format!("Status: {}\n\n", if is_open { "proposed" } else { "accepted" });
    text += "## Context\n\n";
    let mut questions: Vec<&str> = decisions.iter().map(|decision| decision.question.as_str()).collect();
    questions.dedup();
    for question in questions {
        text += &format!("- {}\n", markdown(question));
    }
    text += "\nThe evidence:\n\n";
    for run in runs {
        let machine = &run.environment;
        let evidence = format!(
            "{}: suite {}, {}, ctxbench {}, on {} ({} processors), Linux {}; `{}`",
            run.dir.display(),
            run.plan.suite,
            run.plan.created,
            run.plan.ctxbench,
            machine.cpu,
            machine.cpus,
            machine.kernel.split(' ').next().unwrap_or_default(),
            run.plan.command
        );
        text += &format!("- {}\n", markdown(&evidence));
    }
    text += "\n## Decision\n\n";
    for decision in decisions {
        let what = match decision.verdict {
            PolicyVerdict::Adopt => format!("Adopt {} instead of {}", decision.candidate, decision.baseline),
            PolicyVerdict::AdoptIf => format!(
                "Adopt {} instead of {} if {}",
                decision.candidate,
                decision.baseline,
                decision.conditions.join(" and ")
            ),
            PolicyVerdict::Archive => {
                format!("Keep {}; {} is not adopted", decision.baseline, decision.candidate)
            }
            PolicyVerdict::NotDecided => {
                format!("{} instead of {} is not decided", decision.candidate, decision.baseline)
            }
        };
        let decided = format!("{what} ({}): {}.", decision.use_title(), decision.why);
        text += &format!("- {}\n", markdown(&decided));
    }
    text += "\n## Consequences\n\n";
    for decision in decisions {
        let is_adopted = matches!(decision.verdict, PolicyVerdict::Adopt | PolicyVerdict::AdoptIf);
        let mut lines = Vec::new();
        let mut add = |what: &str, role, state| {
            let titles = titles(decision, role, state).into_iter();
            lines.extend(titles.map(|title| format!("  - {what}: {}", markdown(&title))));
        };
        add(if is_adopted { "gained" } else { "benefit shown" }, RowRole::Benefit, RowState::Met);
        add(if is_adopted { "accepted cost" } else { "tolerated cost" }, RowRole::Cost, RowState::Met);
        add("cost not tolerated", RowRole::Cost, RowState::Unmet);
        add("failed gate", RowRole::Gate, RowState::Unmet);
        for role in [RowRole::Gate, RowRole::Benefit, RowRole::Cost] {
            add("failed passes", role, RowState::Failed);
        }
        text +=
            &format!("- {}, {}\n{}\n", markdown(decision.use_title()), markdown(&decision.candidate), lines.join("\n"));
        let flip = markdown(&decision.would_flip);
        text += &format!("  - what would change it: {flip}\n");
    }
    text += "\n## Evidence\n\n";
    text + &reasons(decisions)
}
