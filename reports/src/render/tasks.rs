//! The report's section on scripted tasks: tokens, calls, lag and stale answers of each arm.

use std::collections::BTreeMap;

use rundir::{Plan, Run, Sample, Score};

use super::part::Part::{self, Heading, Table, Text};
use super::report::Report;
use figures::provenance::Provenance;
use figures::summary::{PROGRAMS, TASK};
use figures::text::{columns, count, time};

/// The kind of a scripted task's calls.
pub(super) const TOOL_CALL: &str = "tool-call";

const TOKENS: [&str; 3] = ["definition-tokens", "call-tokens", "result-tokens"];

pub(super) fn tasks(report: &Report<'_>, parts: &mut Vec<Part>) {
    let rows = rows(report);
    if rows.is_empty() {
        return;
    }
    parts.push(Heading(3, "What a task costs".to_owned()));
    parts.push(Text("A script does the same tasks in three ways: shell commands over files, SQL tools in the agent's process, and an MCP server. No model chose the steps, and every answer was compared with the reference. The tokens (o200k) of a task are the definitions of the tools and the prompt's description of the files, each once, the calls as a model writes them, and their results. An arm with files has the definition of one shell tool. “direct, with programs”: small programs beside the plain files print health and all logs, and the prompt describes them; they are not timed.".to_owned()));
    parts.push(Text("Lag: the time from a commit until a reader sees it, as the median of passes; a policy reads the slowest pass. For files that are copied from the source, it is the computed wait for the next scheduled copy, plus the measured time of the copy. A stale answer misses a commit that was made before the question.".to_owned()));
    let head = columns(
        "workload | arm | tokens a task | of definitions | of calls | of results | calls a task | \
         lag of a commit | stale answers | time a call",
    );
    parts.push(Table(head, rows));
}

fn rows(report: &Report<'_>) -> Vec<Vec<String>> {
    let plan: &Plan = &report.run.plan;
    let arms = plan.arms.iter().filter(|arm| arm.same_as.is_none());
    let arms: Vec<&str> = arms.map(|arm| arm.name.as_str()).collect();
    let cells = plan.workloads.iter().flat_map(|workload| arms.iter().map(move |arm| (workload.name.as_str(), *arm)));
    let methods = cells.flat_map(|cell| [TASK, PROGRAMS].map(|method| (cell, method)));
    methods
        .filter_map(|((workload, arm), method)| {
            let all = scores(report.run, workload, arm, method);
            let first = all.first()?;
            let of = |name: &str| first.get(name).copied().unwrap_or_default();
            let total = TOKENS.map(|name| of(name).sum).iter().sum();
            let tasks = of("calls").of;
            let mut lags: Vec<f64> = all.iter().filter_map(|scores| scores.get("lag-us")?.mean()).collect();
            // Copies are made on a schedule, and nothing sleeps until the next one.
            let marked =
                |text: String| if first.contains_key("copies") { Provenance::Simulated.marked(&text) } else { text };
            let stale = of("stale-answers");
            let (name, time_of_call) = match method {
                PROGRAMS => (format!("{arm}, with programs"), "–".to_owned()),
                _ => (arm.to_owned(), report.typical(workload, arm, TOOL_CALL)),
            };
            let mut row = vec![workload.to_owned(), name];
            row.push(each(Score { sum: total, of: tasks }));
            row.extend(TOKENS.map(|name| each(of(name))));
            row.push(of("calls").mean().map_or("–".to_owned(), |calls| format!("{calls:.1}")));
            let lag = stats::median(&mut lags).map(|lag| marked(time(lag * 1000.0)));
            row.push(lag.unwrap_or("–".to_owned()));
            row.push(marked(format!("{} of {}", stale.sum, stale.of)));
            row.push(time_of_call);
            Some(row)
        })
        .collect()
}

/// The scores of a method in all passes of a cell that have some.
fn scores<'a>(run: &'a Run, workload: &str, arm: &str, method: &str) -> Vec<&'a BTreeMap<String, Score>> {
    let is_wanted = |sample: &&Sample| sample.workload == workload && sample.arm == arm;
    let samples = run.samples.iter().filter(is_wanted);
    samples.filter_map(|sample| sample.scores.get(method)).collect()
}

fn each(score: Score) -> String {
    score.mean().map_or("–".to_owned(), |mean| count(mean.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing;
    use figures::testing::{rename_calls, run};

    #[test]
    fn tokens_are_of_one_task_and_lag_is_of_one_commit() {
        let mut run = run();
        rename_calls(&mut run, "read", TOOL_CALL);
        let workload = run.plan.workloads[0].name.clone();
        let of = |sum, of| Score { sum, of };
        let is_wanted = |sample: &&mut Sample| sample.workload == workload && sample.arm == "sqlite";
        for (sample, lag) in run.samples.iter_mut().filter(is_wanted).zip([100, 300, 5000]) {
            let counts = [
                ("definition-tokens", of(1200, 4)),
                ("call-tokens", of(400, 4)),
                ("result-tokens", of(800, 4)),
                ("calls", of(10, 4)),
                ("stale-answers", of(1, 4)),
                ("lag-us", of(lag, 2)),
            ];
            let counts = counts.map(|(name, score)| (name.to_owned(), score));
            sample.scores.insert(TASK.to_owned(), counts.clone().into());
            sample.scores.insert(PROGRAMS.to_owned(), counts[..5].iter().cloned().collect());
        }
        let mut found = Vec::new();
        testing::parts(&run, |report, _| {
            found = rows(report);
            assert!(report.summary.found.is_empty(), "a task does not count as a search");
        });
        assert_eq!(found.len(), 2);
        let expected = [workload.as_str(), "sqlite", "600", "300", "100", "200", "2.5", "150 µs", "1 of 4"];
        assert_eq!(found[0][..9], expected);
        assert_eq!(found[1][1..3], ["sqlite, with programs", "600"]);
        assert_eq!([&found[1][7], &found[1][9]], ["–", "–"], "no time of a program counts");
    }
}
