//! Tables of the scenario groups `s3` (broken bucket) and `llm` (broken model).

use std::collections::BTreeSet;

use super::fault_words::{data, errno_name, short, worst};
use super::part::Part;
use figures::text::columns;
use rundir::Run;
use rundir::faults::{AgentEventKind, AuditVerdict, Fact, FaultOutcome, Return, Status};

/// The scenarios of a group that ran on at least one backend, in the plan's order.
fn scenarios_that_ran<'a>(run: &'a Run, group: &str) -> Vec<&'a str> {
    let scenarios = run.plan.scenarios.iter();
    let of_group = scenarios.filter(|scenario| scenario.group == group);
    let has_run = |name: &str| {
        let mut outcomes = run.fault_outcomes.iter();
        outcomes.any(|outcome| outcome.scenario == name && outcome.status != Status::Unfit)
    };
    of_group.map(|scenario| scenario.name.as_str()).filter(|name| has_run(name)).collect()
}

/// The table of group `s3`; empty if no scenario ran.
pub(super) fn bucket(run: &Run) -> Vec<Part> {
    let mut rows = Vec::new();
    for scenario in scenarios_that_ran(run, "s3") {
        for backend in &run.plan.arms {
            let outcome = worst(run, scenario, &backend.name);
            let Some(outcome) = outcome.filter(|outcome| outcome.status != Status::Unfit) else {
                continue;
            };
            let mut row = vec![format!("`{scenario}`"), format!("`{}`", backend.name)];
            match outcome.status {
                Status::Ran => {
                    row.extend([saw(outcome), duration(outcome.longest_call_ms), returned(outcome), kept(outcome)])
                }
                _ => row.extend([
                    short(outcome),
                    "–".to_owned(),
                    "–".to_owned(),
                    outcome.reason.clone().unwrap_or_default(),
                ]),
            }
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let head = columns("scenario | backend | what the agent saw | longest call | all in the bucket after | data");
    vec![Part::Table(head, rows)]
}

/// The table of group `llm`; empty if no scenario ran.
pub(super) fn model(run: &Run) -> Vec<Part> {
    let scenarios = scenarios_that_ran(run, "llm");
    let backends: Vec<&str> = run
        .plan
        .arms
        .iter()
        .map(|backend| backend.name.as_str())
        .filter(|name| {
            let mut outcomes = run.fault_outcomes.iter();
            outcomes
                .any(|outcome| outcome.group == "llm" && outcome.backend == *name && outcome.status != Status::Unfit)
        })
        .collect();
    if scenarios.is_empty() || backends.is_empty() {
        return Vec::new();
    }
    let mut head = columns("scenario");
    for backend in &backends {
        head.extend([format!("`{backend}`"), "read took".to_owned(), "right again after".to_owned()]);
    }
    let rows = scenarios.iter().map(|scenario| {
        let mut row = vec![format!("`{scenario}`")];
        for backend in &backends {
            let outcome = worst(run, scenario, backend);
            row.extend(match outcome {
                Some(outcome) if outcome.status == Status::Ran => {
                    [saw(outcome), fact(outcome, "read_ms").map_or("–".to_owned(), duration), returned(outcome)]
                }
                Some(outcome) => [short(outcome), "–".to_owned(), "–".to_owned()],
                None => ["not run", "–", "–"].map(str::to_owned),
            });
        }
        row
    });
    vec![Part::Table(head, rows.collect())]
}

fn fact(outcome: &FaultOutcome, name: &str) -> Option<u64> {
    match outcome.facts.get(name)? {
        Fact::Count(count) => Some(*count),
        Fact::Number(number) => Some(*number as u64),
        Fact::Words(_) => None,
    }
}

fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        _ => format!("{:.1} s", ms as f64 / 1e3),
    }
}

/// Each failed call, with its error numbers. Calls that the scenario itself ended are left out.
fn saw(outcome: &FaultOutcome) -> String {
    let mut all = BTreeSet::new();
    for seen in &outcome.seen {
        let what = match (seen.what, seen.errno) {
            (AgentEventKind::Nothing | AgentEventKind::Killed, _) => continue,
            (_, Some(errno)) => format!("`{}`", errno_name(errno)),
            (AgentEventKind::WrongBytes, None) => "wrong bytes".to_owned(),
            (AgentEventKind::Refusal, None) => "refused".to_owned(),
            (AgentEventKind::Hang, None) => "hang".to_owned(),
            (AgentEventKind::Late, None) => "seen late".to_owned(),
            (_, None) => seen.text.clone(),
        };
        all.insert(format!("{}: {what}", seen.call));
    }
    if all.is_empty() { "nothing".to_owned() } else { all.into_iter().collect::<Vec<_>>().join(", ") }
}

fn returned(outcome: &FaultOutcome) -> String {
    match &outcome.recovery {
        None => "–".to_owned(),
        Some(recovery) => match recovery.how {
            Return::ByItself | Return::NextMount => duration(recovery.ms),
            Return::AfterStep => "by hand".to_owned(),
            Return::Never => "never".to_owned(),
        },
    }
}

/// The audits, and other findings.
fn kept(outcome: &FaultOutcome) -> String {
    let wrong = outcome
        .audits
        .iter()
        .filter(|(_, audit)| audit.verdict != AuditVerdict::Valid)
        .map(|(loss, audit)| format!("{loss}: {}", data(audit)));
    let mut said: Vec<String> = wrong.collect();
    if said.is_empty() && !outcome.audits.is_empty() {
        said.push("all kept".to_owned());
    }
    let fact = |name| fact(outcome, name);
    if let (Some(once), Some(all)) = (fact("uploaded_once"), fact("uploads_expected")) {
        said.push(format!("{once} of {all} once"));
    }
    if let Some(cut) = fact("uploads_cut_off") {
        said.push(format!("{cut} of them cut off, and there"));
    }
    if let (Some(before), Some(peak), Some(written)) =
        (fact("rss_before_kib"), fact("rss_peak_kib"), fact("written_meanwhile_kib"))
    {
        said.push(format!(
            "daemon {} MiB, {} at most while {} MiB were written",
            before >> 10,
            peak >> 10,
            written >> 10
        ));
    }
    for (name, what) in [("read", "read"), ("sync", "sync")] {
        match outcome.facts.get(&format!("{name}_interrupted_after_ms")) {
            Some(Fact::Count(ms)) => said.push(format!("{what} interrupted after {ms} ms")),
            Some(other) => said.push(format!("{what} interrupted: {other}")),
            None => {}
        }
    }
    if let (Some(here), Some(there)) = (fact("kept_versions_here"), fact("kept_versions_there")) {
        said.push(format!("of the cut-off host's versions {here} kept here, {there} there"));
    }
    if let Some(failed) = fact("reads_that_failed_of_4") {
        said.push(format!("{failed} of 4 reads failed"));
    }
    for (name, what) in
        [("first_read_of_10_ms", "10 first reads"), ("write_of_100_ms", "100 writes"), ("sync_of_100_ms", "their sync")]
    {
        if let Some(ms) = fact(name) {
            said.push(format!("{what} {}", duration(ms)));
        }
    }
    said.extend(outcome.breaches.iter().map(|breach| format!("**{breach}**")));
    said.join("; ")
}
