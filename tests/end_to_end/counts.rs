//! Exact counts of each call against budgets. Continuous integration can gate on them on any machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::common::{Succeeds, as_root, lines, measure};

/// How far a count may exceed its budget, as a share: some calls of a pass may send a one-time request.
const ABOVE: f64 = 0.03;

/// How far a count may be below its budget before the budget must be lowered, as a share.
const BELOW: f64 = 0.10;

/// The most files that the calls of a workload with a budget of statements change again and again.
const FILES_MAX: u64 = 16;

/// A workload of one call that removes a tree of 500 files.
const REMOVE_TREE: &str = "
name = 'program/remove-tree'
essay = '`rm -rf` of 500 files in 20 directories, and nothing else, so that the requests of each removed file can be counted.'
states = ['hot']
[program]
needs = { rm = 'coreutils' }
[program.tree]
directory = 'src'
directories = 20
files = 500
bytes = 1024
extension = 'txt'
seed = 1
[[program.step]]
run = ['rm', '-rf', 'src']
kind = 'remove-tree'
removes = ['src']
";

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Budgets {
    count: Vec<Budget>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    workload: String,
    /// The files that a call removes: the counts are for each of them. `None` for counts of a call.
    files: Option<u32>,
    arms: BTreeMap<String, Counts>,
}

/// Counts per call.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    system_calls: f64,
    #[serde(default)]
    fuse: BTreeMap<String, f64>,
    #[serde(default)]
    store: BTreeMap<String, f64>,
}

/// The counters of an arm's counted passes of one epoch, summed.
#[derive(Default)]
struct Sums {
    passes: u64,
    calls: u64,
    system_calls: u64,
    fuse: BTreeMap<String, u64>,
    store: BTreeMap<String, u64>,
}

fn sums(out: &Path) -> BTreeMap<(String, String), Vec<Sums>> {
    let mut all: BTreeMap<(String, String), Vec<Sums>> = BTreeMap::new();
    for line in lines(out, "cells.jsonl") {
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let mut sum = Sums::default();
        let counted = &line["counted"];
        sum.passes += counted["passes"].as_u64().unwrap();
        sum.calls += counted["calls"].as_u64().unwrap();
        sum.system_calls += counted["system_calls"].as_u64().unwrap();
        if let Some(daemon) = counted.get("daemon") {
            // No caller waits for these requests, and the kernel chooses when to send them.
            let unwaited = ["forget", "release", "releasedir"];
            for (opcode, count) in daemon["fuse"].as_object().unwrap() {
                if !unwaited.contains(&opcode.as_str()) {
                    *sum.fuse.entry(opcode.clone()).or_default() += count["count"].as_u64().unwrap();
                }
            }
            for (name, count) in daemon["store"].as_object().unwrap() {
                *sum.store.entry(name.clone()).or_default() += count.as_u64().unwrap();
            }
        }
        all.entry((text("workload"), text("arm"))).or_default().push(sum);
    }
    all
}

/// Reads a counter of the store.
fn of_store(name: &str) -> impl Fn(&Sums) -> u64 {
    move |sum| sum.store.get(name).copied().unwrap_or(0)
}

#[test]
fn a_call_stays_within_its_budget() {
    let Some(scratch) = as_root() else { return };
    let budgets: Budgets = toml::from_str(include_str!("counts.toml")).unwrap();
    let line = "--state hot --backend memory --backend sqlite --budget 60 --epochs 3 --rounds 1 \
                --no-probes --policy none";
    let (out, mut run) = measure(&scratch, line);
    let tree = scratch.path().join("remove-tree.toml");
    std::fs::write(&tree, REMOVE_TREE).unwrap();
    for budget in &budgets.count {
        run.arg("--workload");
        match budget.workload.as_str() {
            "program/remove-tree" => run.arg(&tree),
            built_in => run.arg(built_in),
        };
    }
    run.succeeds();
    let sums = sums(&out);
    let mut problems = Vec::new();
    for Budget { workload, files, arms } in &budgets.count {
        let per = files.map_or("call", |_| "removed file");
        for (arm, budget) in arms {
            // The median of the epochs: on a busy machine a commit by the clock falls into one of them.
            let epochs = &sums[&(workload.clone(), arm.clone())];
            let each = |count: &dyn Fn(&Sums) -> u64| {
                let mut counts: Vec<f64> = (epochs.iter())
                    .map(|sum| count(sum) as f64 / sum.calls as f64 / f64::from(files.unwrap_or(1)))
                    .collect();
                counts.sort_by(f64::total_cmp);
                counts[counts.len() / 2]
            };
            let mut hold = |what: &str, count: f64, budget: f64, above: f64| {
                if count > budget + above {
                    problems.push(format!("{workload} on {arm}: {count:.3} {what} a {per}, more than {budget}"));
                } else if count < budget - BELOW {
                    problems.push(format!(
                        "{workload} on {arm}: {count:.3} {what} a {per}, less than {budget}: lower the budget"
                    ));
                }
            };
            hold("system calls", each(&|sum| sum.system_calls), budget.system_calls, ABOVE);
            let sent = epochs.iter().flat_map(|sum| sum.fuse.keys());
            for opcode in sent.chain(budget.fuse.keys()).collect::<BTreeSet<_>>() {
                let count = each(&|sum| sum.fuse.get(opcode).copied().unwrap_or(0));
                let budget = budget.fuse.get(opcode).copied().unwrap_or(0.0);
                hold(opcode, count, budget, ABOVE);
            }
            for (name, budget) in &budget.store {
                let commits = of_store("sql_commits");
                let above = match name.as_str() {
                    // On a busy machine a pass of few calls takes as long as the clock waits between commits.
                    "sql_commits" => 0.5,
                    // After a commit, the first change of each file reads its row again. A commit may come before a pass,
                    // too. One statement more for every second call would still be found.
                    "sql_statements" => ABOVE + each(&|sum| FILES_MAX * (sum.passes + commits(sum))).min(0.4),
                    _ => ABOVE,
                };
                hold(name, each(&of_store(name)), *budget, above);
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
