//! The details of a fault run: each backend's behaviour in each scenario, and the scenarios that did not run.

use super::fault_words::{data, errno_name, recovery};
use super::part::Part;
use figures::text::columns;
use rundir::Run;
use rundir::faults::{AgentEventKind, CellKind, FaultOutcome, KILLED_DAEMON, MACHINE_LOSS, POWER_LOSS, Status};

pub(super) fn details(run: &Run, parts: &mut Vec<Part>) {
    parts.push(Part::Heading(2, "Scenario by scenario".to_owned()));
    let head = columns(
        "backend | what was broken | what the agent saw | longest call | hang | \
         how it came back | killed daemon | power loss | machine loss | \
         other looks at the data | found",
    );
    for scenario in &run.plan.scenarios {
        let outcomes: Vec<&FaultOutcome> = run
            .fault_outcomes
            .iter()
            .filter(|outcome| outcome.scenario == scenario.name && outcome.status == Status::Ran)
            .collect();
        if outcomes.is_empty() {
            continue;
        }
        let rows = outcomes.iter().map(|outcome| row(outcome)).collect();
        let title = format!("{}: {}", scenario.name, scenario.title);
        parts.push(Part::Folded(
            title,
            vec![Part::Text(scenario.essay.replace('\n', " ")), Part::Table(head.clone(), rows)],
        ));
    }
}

fn row(outcome: &FaultOutcome) -> Vec<String> {
    let data_after = |loss: &str| outcome.audits.get(loss).map_or("–".to_owned(), data);
    let known = [KILLED_DAEMON, POWER_LOSS, MACHINE_LOSS];
    let others = outcome
        .audits
        .iter()
        .filter(|(loss, _)| !known.contains(&loss.as_str()))
        .map(|(loss, audit)| format!("{loss}: {}", data(audit)));
    let facts = outcome.facts.iter().map(|(name, fact)| format!("{}: {fact}", name.replace('_', " ")));
    let mut injected = outcome.injected.clone();
    if let Some(label) = &outcome.label {
        injected += &format!(" ({label})");
    }
    vec![
        outcome.backend.clone(),
        injected,
        seen(outcome),
        format!("{:.3} s", outcome.longest_call_ms as f64 / 1e3),
        hang(outcome),
        recovery(outcome),
        data_after(KILLED_DAEMON),
        data_after(POWER_LOSS),
        data_after(MACHINE_LOSS),
        others.collect::<Vec<_>>().join("; "),
        facts.chain(outcome.breaches.iter().map(|breach| format!("BREACH: {breach}"))).collect::<Vec<_>>().join("; "),
    ]
}

fn seen(outcome: &FaultOutcome) -> String {
    if outcome.seen.is_empty() {
        return "nothing".to_owned();
    }
    let all = outcome.seen.iter().map(|seen| {
        let times = match seen.times {
            1 => String::new(),
            times => format!(" ×{times}"),
        };
        let what = match (seen.what, seen.errno) {
            (AgentEventKind::WrongBytes, _) => "WRONG: ".to_owned(),
            (AgentEventKind::Refusal, _) => "refused: ".to_owned(),
            (AgentEventKind::Late, _) => "LATE: ".to_owned(),
            (_, Some(errno)) => format!("{} ", errno_name(errno)),
            _ => String::new(),
        };
        format!("{}: {what}{}{times}", seen.call, seen.text)
    });
    all.collect::<Vec<_>>().join("; ")
}

fn hang(outcome: &FaultOutcome) -> String {
    outcome.hang.as_ref().map_or("no".to_owned(), |hang| {
        format!(
            "{} for {:.1} s, {}, state {}; ended by {} after {:.1} s, of which {:.1} s in state D",
            hang.call,
            hang.waited_ms as f64 / 1e3,
            hang.culprit.words(),
            hang.state,
            hang.ended_by,
            hang.ended_after_ms as f64 / 1e3,
            hang.uninterruptible_ms as f64 / 1e3
        )
    })
}

/// Scenarios that did not run, with the reason; a skipped scenario is not a passed one.
pub(super) fn not_run(run: &Run, parts: &mut Vec<Part>) {
    let rows: Vec<Vec<String>> = run
        .fault_outcomes
        .iter()
        .filter(|outcome| outcome.status != Status::Ran)
        .map(|outcome| {
            vec![
                outcome.cell().words().to_owned(),
                outcome.scenario.clone(),
                outcome.backend.clone(),
                outcome.reason.clone().unwrap_or_default(),
            ]
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let failed = run.fault_outcomes.iter().filter(|outcome| outcome.cell() == CellKind::Infra).count();
    parts.push(Part::Heading(2, "Not run".to_owned()));
    parts.push(Part::Text(format!(
        "{} pairs of scenario and backend; {failed} because the harness failed. None of them is passed.",
        rows.len()
    )));
    let head = columns("why | scenario | backend | reason");
    parts.push(Part::Folded("The pairs".to_owned(), vec![Part::Table(head, rows)]));
}
