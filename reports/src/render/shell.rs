//! The share of a recorded session that files are, shell commands included: an estimate from measured programs.
//!
//! A session's file calls are replayed and measured; its shell commands are only counted, and each of a known kind is
//! taken to last as long as the measured program that is named for it.

use rundir::PlannedWorkload;

use super::part::Part::{self, Heading, List, Table, Text};
use super::report::Report;
use figures::summary::{Cell, MAKESPAN};
use figures::text::{columns, time};

/// The workload and step whose time stands for each of some commands.
const MEASURED: &str = "
program/git status: git status
program/git add: git add
program/git commit: git commit
program/git clone: git clone
program/git checkout: git checkout, git reset, git restore, git stash, git switch
program/git log: git blame, git branch, git cat-file, git diff, git log, git ls-files, git ls-tree, git rev-parse, git show
program/tree find: fd, file, find, ls, stat, tree
program/tree disk-usage: du
program/tree grep: awk, cat, diff, egrep, git grep, grep, head, jq, less, rg, sed, sort, tail, wc
program/tree copy-tree: cp
program/tree remove-tree: rm
program/tree archive: tar
program/rsync mirror: rsync
program/npm install: npm ci, npm install
program/node import: node, npx
program/pip install: pip install, pip3 install
program/python import: pytest, python, python3
program/cargo build: cargo build, cargo check, cargo clippy, cargo run, cargo test
program/parallel build: make
";

/// The workload and step that stand for a command.
fn measured(command: &str) -> Option<(&'static str, &'static str)> {
    let mut lines = MEASURED.lines().filter_map(|line| line.split_once(": "));
    let (program, _) = lines.find(|(_, commands)| commands.split(", ").any(|name| name == command))?;
    program.split_once(' ')
}

/// Commands that open no file of the workspace.
const WITHOUT_FILES: &[&str] = &[
    "[", "basename", "cd", "date", "dirname", "echo", "export", "false", "kill", "printf", "ps", "pwd", "read", "set",
    "sleep", "test", "true", "type", "unset", "which", "whoami",
];

/// The commands of a session, by the estimate of their time.
#[derive(Default)]
struct Commands<'a> {
    /// The command, how often it ran, and the workload and step that stand for it.
    estimated: Vec<(&'a str, u64, &'static str, &'static str)>,
    without_files: u64,
    unknown: Vec<(&'a str, u64)>,
}

pub(super) fn shell(report: &Report<'_>, parts: &mut Vec<Part>) {
    let workloads = report.run.plan.workloads.iter();
    let sessions = workloads.filter(|session| !session.commands.is_empty() && session.session_ms.is_some());
    let sessions: Vec<_> = sessions.map(|session| (session, commands(report, session))).collect();
    if sessions.is_empty() {
        return;
    }
    let mut rows = Vec::new();
    for (session, commands) in &sessions {
        rows.extend(session_rows(report, session, commands));
    }
    parts.push(Heading(3, "Files in a session, shell commands included".to_owned()));
    parts.push(Text(
        "This is an estimate. It is too high for the commands that it covers, and it leaves out the others. A command of a known kind is taken to last as long as the measured program that is named below, whose start and own work are included and whose tree has 500 files. \"beyond\": what it takes longer than in the plain directory. The file calls are measured. A loop's body counts once."
            .to_owned(),
    ));
    if !rows.is_empty() {
        let baseline = &report.summary.baseline;
        let head = columns(&format!(
            "session | arm | file calls | shell commands | both, of the session | \
             beyond {baseline}, of the session"
        ));
        parts.push(Table(head, rows));
    }
    let lines = sessions.iter();
    parts.push(List(lines.map(|(session, commands)| line(session, commands)).collect()));
}

fn cell<'a>(report: &'a Report<'_>, workload: &str, metric: &str, arm: &str) -> Option<&'a Cell> {
    report.summary.cell(workload, "hot", metric, arm)
}

fn commands<'a>(report: &Report<'_>, session: &'a PlannedWorkload) -> Commands<'a> {
    let mut found = Commands::default();
    for (command, times) in &session.commands {
        let measured = measured(command)
            .filter(|(workload, step)| cell(report, workload, step, &report.summary.baseline).is_some());
        match measured {
            _ if WITHOUT_FILES.contains(&command.as_str()) => found.without_files += times,
            Some((workload, step)) => found.estimated.push((command, *times, workload, step)),
            None => found.unknown.push((command, *times)),
        }
    }
    found.unknown.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    found
}

/// The measured and the estimated time of a session in nanoseconds; `None` if one of them is missing.
fn waited(report: &Report<'_>, name: &str, commands: &Commands<'_>, arm: &str) -> Option<[f64; 2]> {
    let files = cell(report, name, MAKESPAN, arm)?.typical_ns;
    let each = commands.estimated.iter();
    let each =
        each.map(|(_, times, workload, step)| Some(*times as f64 * cell(report, workload, step, arm)?.typical_ns));
    Some([files, each.sum::<Option<f64>>()?])
}

fn session_rows(report: &Report<'_>, session: &PlannedWorkload, commands: &Commands<'_>) -> Vec<Vec<String>> {
    let baseline = &report.summary.baseline;
    let (Some(session_ms), Some(base)) = (
        session.session_ms.filter(|_| !commands.estimated.is_empty()),
        waited(report, &session.name, commands, baseline),
    ) else {
        return Vec::new();
    };
    let share = |ns: f64| format!("{:.3} %", ns / (session_ms as f64 * 1e6) * 100.0);
    let rows = report.arms().into_iter().filter_map(|arm| {
        let [files, shell] = waited(report, &session.name, commands, arm)?;
        let beyond = if arm == baseline { "–".to_owned() } else { share(files + shell - base[0] - base[1]) };
        let both = share(files + shell);
        Some(vec![session.name.clone(), arm.to_owned(), time(files), time(shell), both, beyond])
    });
    rows.collect()
}

fn line(session: &PlannedWorkload, commands: &Commands<'_>) -> String {
    let total: u64 = session.commands.values().sum();
    let estimated = commands.estimated.iter();
    let estimated =
        estimated.map(|(command, times, workload, step)| format!("{times} {command} (as {workload} {step})"));
    let unknown = commands.unknown.iter();
    let unknown = unknown.map(|(command, times)| format!("{times} {command}"));
    let words = |all: Vec<String>| if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    format!(
        "{}: {total} commands, {} of them without files; estimated: {}; not estimated: {}",
        session.name,
        commands.without_files,
        words(estimated.collect()),
        words(unknown.collect())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::{self, run_of};
    use figures::testing::rename_calls;
    use rundir::Run;

    /// The parts for the scripted run, whose micro workload takes the place of `git status`.
    fn parts(commands: &[(&str, u64)], change: impl FnOnce(&mut Run)) -> Vec<Part> {
        let mut run = run_of("program/git");
        rename_calls(&mut run, "read", "status");
        let commands = commands.iter();
        run.plan.workloads[1].commands = commands.map(|(command, times)| ((*command).to_owned(), *times)).collect();
        change(&mut run);
        testing::parts(&run, shell)
    }

    /// A share in a cell, in percent.
    fn share(cell: &str) -> f64 {
        cell.strip_suffix(" %").unwrap().parse().unwrap()
    }

    #[test]
    fn a_known_command_takes_as_long_as_the_measured_program() {
        // 700 ms of session; a call takes 0.1 ms in `direct`, 0.2 ms in `sqlite`, and the session has 100 of its own.
        let commands = [("git status", 400), ("cd", 7), ("go build", 3), ("other", 5)];
        let parts = parts(&commands, |_| {});
        let [Heading(..), Text(_), Table(_, rows), List(lines)] = &parts[..] else {
            panic!("{} parts", parts.len());
        };
        let arms: Vec<&str> = rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(arms, ["direct", "sqlite"]);
        let [direct, sqlite] = [share(&rows[0][4]), share(&rows[1][4])];
        assert!((6.4..7.2).contains(&direct), "{direct} of 50 ms in 700");
        assert!((1.9..2.1).contains(&(sqlite / direct)), "{sqlite} to {direct}");
        assert_eq!(rows[0][5], "–");
        assert!((share(&rows[1][5]) - (sqlite - direct)).abs() < 0.002);
        insta::assert_snapshot!(lines[0], @"agent/session: 415 commands, 7 of them without files; estimated: 400 git status (as program/git status); not estimated: 5 other, 3 go build");
    }

    #[test]
    fn a_command_whose_program_the_run_did_not_measure_is_named_and_not_estimated() {
        let parts = parts(&[("npm ci", 2)], |_| {});
        let [Heading(..), Text(_), List(lines)] = &parts[..] else {
            panic!("{} parts", parts.len());
        };
        insta::assert_snapshot!(lines[0], @"agent/session: 2 commands, 0 of them without files; estimated: none; not estimated: 2 npm ci");
    }

    #[test]
    fn an_arm_in_which_the_program_failed_has_no_estimate() {
        let parts = parts(&[("git status", 1)], |run| {
            let has_failed = |workload: &str, arm: &str| workload == "program/git" && arm == "sqlite";
            run.samples.retain(|pass| !has_failed(&pass.workload, &pass.arm));
            run.cells.retain(|cell| !has_failed(&cell.workload, &cell.arm));
        });
        let [.., Table(_, rows), List(_)] = &parts[..] else {
            panic!("{} parts", parts.len());
        };
        assert!(rows.iter().all(|row| row[1] != "sqlite"), "{rows:?}");
    }

    #[test]
    fn a_session_whose_trace_names_no_commands_has_no_section() {
        assert!(parts(&[], |_| {}).is_empty());
    }
}
