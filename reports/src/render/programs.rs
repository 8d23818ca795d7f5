//! The report's table of real programs: in which file system each of them works, and how much slower it is.

use std::collections::BTreeMap;

use rundir::Outcome;

use super::latencies::compared;
use super::part::Part::{self, Heading, List, Table, Text};
use super::report::Report;
use figures::text::{columns, time};

/// The start of the names of workloads that run programs.
const FAMILY: &str = "program/";
/// The word for a program that the suite does not run on an arm.
const ABSENT: &str = "–";
/// The word for a program that was planned and has no pass.
const NOT_REACHED: &str = "not reached";

pub(super) fn programs(report: &Report<'_>, parts: &mut Vec<Part>) {
    let planned = report.run.plan.workloads.iter();
    let planned = planned.filter(|workload| workload.name.starts_with(FAMILY));
    let planned: Vec<_> = planned.collect();
    if planned.is_empty() {
        return;
    }
    let baseline = report.summary.baseline.as_str();
    let plan = &report.run.plan;
    let takes_part = |arm: &&str| {
        let cells = planned.iter().flat_map(|workload| workload.states.iter().map(|state| (&workload.name, state)));
        cells.clone().any(|(workload, state)| plan.takes_part(arm, workload, state))
    };
    let arms: Vec<&str> = compared(report).into_iter().filter(takes_part).collect();
    let mut head = columns(&format!("program | caches | {baseline}"));
    head.extend(arms.iter().map(|arm| (*arm).to_owned()));
    let mut rows: Vec<Vec<String>> = Vec::new();
    // By arm and reason: the programs that it concerns.
    let mut problems: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for workload in planned {
        for state in &workload.states {
            let short = workload.name.trim_start_matches(FAMILY);
            let mut note = |arm, problem: Option<String>| {
                if let Some(problem) = problem {
                    let concerned = problems.entry((arm, problem)).or_default();
                    concerned.push(format!("{short} {state}"));
                }
            };
            let mut row = vec![short.to_owned(), state.clone()];
            let base = found(report, &workload.name, state, baseline);
            row.push(match (&base.problem, base.total_ns) {
                (None, Some(total)) => time(total),
                _ => base.word.to_owned(),
            });
            note(baseline, base.problem);
            for arm in &arms {
                let result = found(report, &workload.name, state, arm);
                row.push(match (&result.problem, result.total_ns, base.total_ns) {
                    (None, Some(total_ns), Some(base_ns)) => {
                        format!("{}, ×{:.2}", result.word, total_ns / base_ns)
                    }
                    _ => result.word.to_owned(),
                });
                note(arm, result.problem);
            }
            rows.push(row);
        }
    }
    let remarks = problems.into_iter().map(|((arm, problem), concerned)| {
        let concerned = if rows.len() > 1 && concerned.len() == rows.len() {
            "every program".to_owned()
        } else {
            concerned.join(", ")
        };
        format!("{arm}, {concerned}: {problem}")
    });
    let remarks: Vec<String> = remarks.collect();
    parts.push(Heading(3, "Which programs work".to_owned()));
    let mut why = String::new();
    let has = |word: &str| rows.iter().flatten().any(|cell| cell == word);
    if has(ABSENT) {
        why += &format!(" \"{ABSENT}\": the suite does not run the program on this arm.");
    }
    if has(NOT_REACHED) {
        why += &format!(" \"{NOT_REACHED}\": the run ended before its first pass.");
    }
    if !remarks.is_empty() {
        why += " The reasons for failed and skipped programs are below this table.";
    }
    parts.push(Text(format!(
        "\"works\": every pass ended with exit status 0, and with the expected output and tree. The figure is the time of all timed steps of a pass together, each run once, divided by that on {baseline}. The page All cells has each step with its interval.{why}"
    )));
    parts.push(Table(head, rows));
    if !remarks.is_empty() {
        parts.push(List(remarks));
    }
}

/// The result of a program in one file system.
struct ProgramResult {
    /// The word in the table.
    word: &'static str,
    /// Why it failed or was skipped.
    problem: Option<String>,
    /// The typical time of all timed steps of a pass, in nanoseconds; `None` if one was not measured.
    total_ns: Option<f64>,
}

fn found(report: &Report<'_>, workload: &str, state: &str, arm: &str) -> ProgramResult {
    let run = report.run;
    let mut skipped = run.plan.skipped.iter();
    let skipped = skipped
        .find(|skipped| skipped.workload == workload && skipped.state == state && skipped.arm == arm)
        .map(|skipped| skipped.reason.clone());
    let passes = run.samples.iter();
    let passes = passes.filter(|pass| pass.workload == workload && pass.state == state && pass.arm == arm);
    let all = passes.clone().count();
    let failed: Vec<_> = passes.filter(|pass| pass.outcome != Outcome::Ok).collect();
    let (word, problem) = match (skipped, failed.first()) {
        (Some(reason), _) => ("skipped", Some(format!("skipped: {reason}"))),
        (None, Some(first)) => {
            let reason = first.reason.as_deref().unwrap_or("no reason is known");
            let how = format!("{} of {all} passes failed, the first as {}: {reason}", failed.len(), first.outcome);
            ("FAILS", Some(how))
        }
        (None, None) if !run.plan.takes_part(arm, workload, state) => (ABSENT, None),
        (None, None) if all == 0 => (NOT_REACHED, None),
        (None, None) => ("works", None),
    };
    let cells = report.summary.cells.iter();
    let cells = cells.filter(|cell| cell.workload == workload && cell.state == state && cell.arm == arm);
    let kinds = run.plan.workload(workload).map_or(0, |planned| planned.calls.len());
    let is_whole = kinds > 0 && cells.clone().count() == kinds;
    let total_ns = cells.map(|cell| cell.typical_ns * cell.calls as f64 / cell.passes.max(1) as f64).sum();
    ProgramResult { word, problem, total_ns: is_whole.then_some(total_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::{self, run_of};
    use rundir::{Run, SkippedCell};

    /// The parts for the scripted run, whose micro workload is called a program here.
    fn parts(change: impl FnOnce(&mut Run)) -> Vec<Part> {
        let mut run = run_of("program/tree");
        change(&mut run);
        testing::parts(&run, programs)
    }

    #[test]
    fn a_program_that_works_has_its_ratio_and_no_remark() {
        let parts = parts(|_| {});
        let [Heading(..), Text(_), Table(head, rows)] = &parts[..] else {
            panic!("{} parts", parts.len());
        };
        assert_eq!(head[..4], ["program", "caches", "direct", "sqlite"]);
        assert!(rows.iter().all(|row| row[0] == "tree"), "{rows:?}");
        let factor = rows[0][3].strip_prefix("works, ×").unwrap();
        let factor: f64 = factor.parse().unwrap();
        assert!((1.9..2.1).contains(&factor), "{factor}");
    }

    #[test]
    fn an_arm_that_the_suite_gives_no_program_has_no_column_and_one_that_lacks_some_has_dashes() {
        let two = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            let parts = parts(|run| {
                let mut other = run.plan.workloads[0].clone();
                other.name = "program/other".to_owned();
                let section = &mut run.plan.schedule.sections[0];
                section.cells.insert(other.name.clone(), other.states.clone());
                run.plan.workloads.push(other);
                run.plan.arms.iter_mut().filter(|arm| arm.name == "sqlite").for_each(|arm| arm.only = only.clone());
                let runs = |name: &str| only.iter().any(|one| one == name);
                run.samples.retain(|pass| pass.arm != "sqlite" || runs(&pass.workload));
                run.cells.retain(|cell| cell.arm != "sqlite" || runs(&cell.workload));
            });
            let [Heading(..), Text(words), Table(head, rows), ..] = &parts[..] else {
                panic!("{} parts", parts.len());
            };
            let of_sqlite = head.iter().position(|name| name == "sqlite");
            let cells = of_sqlite.map(|at| rows.iter().map(|row| row[at].clone()).collect::<Vec<_>>());
            (words.clone(), cells)
        };
        let (words, cells) = two(&["program/other"]);
        assert_eq!(cells.as_deref(), Some(&["–".to_owned(), "not reached".to_owned()][..]));
        assert!(words.contains("\"–\": the suite does not run") && words.contains("\"not reached\": the run ended"));
        let (words, cells) = two(&["agent/session"]);
        assert_eq!(cells, None);
        assert!(!words.contains("\"–\""), "{words}");
    }

    #[test]
    fn a_program_that_fails_or_is_skipped_is_explained_below_the_table() {
        let word = |change: fn(&mut Run)| {
            let parts = parts(change);
            let [.., Table(_, rows), List(remarks)] = &parts[..] else {
                panic!("{} parts", parts.len());
            };
            (rows[0][3].clone(), remarks.clone())
        };
        let (failed, remarks) = word(|run| {
            let mut passes = run.samples.iter_mut();
            let pass = passes.find(|pass| pass.workload == "program/tree" && pass.arm == "sqlite");
            let pass = pass.unwrap();
            (pass.outcome, pass.reason) = (Outcome::WrongData, Some("run `cp`: hurt".to_owned()));
        });
        assert_eq!(failed, "FAILS");
        let [remark] = &remarks[..] else { panic!("{remarks:?}") };
        assert!(remark.starts_with("sqlite, tree hot: 1 of "), "{remark}");
        assert!(remark.ends_with("as wrong-data: run `cp`: hurt"), "{remark}");

        let (skipped, remarks) = word(|run| {
            let is_skipped = |name: &str, arm: &str| name == "program/tree" && arm == "sqlite";
            run.samples.retain(|pass| !is_skipped(&pass.workload, &pass.arm));
            run.cells.retain(|cell| !is_skipped(&cell.workload, &cell.arm));
            for state in &run.plan.workloads[0].states {
                run.plan.skipped.push(SkippedCell {
                    arm: "sqlite".to_owned(),
                    workload: "program/tree".to_owned(),
                    state: state.clone(),
                    reason: "cp is not installed".to_owned(),
                });
            }
        });
        assert_eq!(skipped, "skipped");
        assert_eq!(remarks, ["sqlite, tree hot: skipped: cp is not installed"]);
    }
}
