//! Replays the decisions of a run from its plan and its records: which section each epoch belongs to, the order of its cells
//! and of the arms in its rounds, and whether the run has ended. All of them follow from the seed and the earlier records.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use records::{Discrepancy, made_calls, pass_row};
use rundir::{
    CONTEXTS, EPOCHS, Epoch, Limits, Looks, MODEL_FILES, Margins, PLAN, PROBES, Plan, Run, SAMPLES, Sample, Shard,
    cache_state,
};
use verdicts::decide::identities;
use workloads::catalogue;
use workloads::definition::Workload;

use crate::session_contexts::session_contexts;
use runner::run::Turns;
use runner::schedule::{PlannedCell, in_order, orders};

/// What does not follow from the plan and the earlier records of a run. A merged run is checked shard by shard.
pub fn check_history(run: &Run) -> Vec<Discrepancy> {
    let mut found = Vec::new();
    let merged = &run.plan.merged;
    if merged.is_empty() {
        check_epochs(&Part::whole(run), &mut found);
    }
    for (index, shard) in merged.iter().enumerate() {
        let next = merged.get(index + 1).map_or(u32::MAX, |next| next.first_epoch);
        let plan = Plan {
            shard: Some(Shard { index: index as u32, of: merged.len() as u32 }),
            merged: Vec::new(),
            ..run.plan.clone()
        };
        check_epochs(&Part::of(run, &plan, shard.first_epoch..next), &mut found);
    }
    check_rest(run, &mut found);
    found
}

/// The epochs of a run that one process made, numbered from 0.
struct Part<'a> {
    plan: &'a Plan,
    /// With their lines.
    samples: Vec<(usize, Sample)>,
    epochs: Vec<Epoch>,
}

impl<'a> Part<'a> {
    fn whole(run: &'a Run) -> Self {
        Self::of(run, &run.plan, 0..u32::MAX)
    }

    fn of(run: &Run, plan: &'a Plan, numbers: Range<u32>) -> Self {
        let samples = (1..).zip(&run.samples);
        let samples = samples.filter(|(_, pass)| numbers.contains(&pass.epoch));
        let epochs = run.epochs.iter().filter(|one| numbers.contains(&one.epoch));
        Self {
            plan,
            samples: samples
                .map(|(line, pass)| {
                    let epoch = pass.epoch - numbers.start;
                    (line, Sample { epoch, ..pass.clone() })
                })
                .collect(),
            epochs: epochs.map(|one| Epoch { epoch: one.epoch - numbers.start, ..one.clone() }).collect(),
        }
    }
}

fn check_epochs(part: &Part<'_>, found: &mut Vec<Discrepancy>) {
    let plan = part.plan;
    let mut epochs: BTreeMap<u32, Vec<(usize, &Sample)>> = BTreeMap::new();
    for (line, pass) in &part.samples {
        epochs.entry(pass.epoch).or_default().push((*line, pass));
    }
    let of_shard = plan.shard.map_or(String::new(), |shard| format!("shard {shard}, "));
    let ended: BTreeMap<u32, &Epoch> = part.epochs.iter().map(|one| (one.epoch, one)).collect();
    let numbers: BTreeSet<u32> = epochs.keys().chain(ended.keys()).copied().collect();
    let mut turns = Turns::new(plan);
    let mut next = 0;
    for number in numbers {
        let none = Vec::new();
        let passes = epochs.get(&number).unwrap_or(&none);
        let end = ended.get(&number).copied();
        let row = match end {
            Some(end) => format!("{of_shard}epoch {number}, {}", end.section),
            None => format!("{of_shard}epoch {number}"),
        };
        if number != next {
            let why = format!("no record of epoch {next}");
            let after = "an epoch after every other one: its records are missing";
            found.push(Discrepancy::new(EPOCHS, &row, "epoch", why, after));
        }
        next = number + 1;
        let Some(at) = turns.next() else {
            let why = "the run had ended: by its plan no section has an epoch left";
            found.push(Discrepancy::new(EPOCHS, &row, "epoch", number, why));
            return;
        };
        let section = &plan.schedule.sections[at];
        if let Some(end) = end.filter(|end| end.section != section.name) {
            let why = format!("{}, whose turn it is", section.name);
            found.push(Discrepancy::new(EPOCHS, &row, "section", &end.section, why));
            return;
        }
        let cells = in_order(plan, number, turns.cells(at).to_vec());
        check_cells(plan, &cells, passes, end.is_some(), found);
        for cell in &cells {
            check_arms(plan, number, cell, passes, found);
        }
        match end {
            Some(end) => turns.ended(end),
            None => check_interruption(&row, passes, &epochs, found),
        }
    }
    for at in turns.open() {
        let section = &plan.schedule.sections[at];
        let has = part.epochs.iter().filter(|one| one.section == section.name);
        let row = format!("{of_shard}section {}", section.name);
        let stated = format!("{} epochs", has.count());
        let why = format!(
            "up to {} epochs in {} s: the run ended while there was time for another epoch (`ctxbench run --resume` continues it)",
            section.epochs,
            plan.budget_ms(section) / 1000
        );
        found.push(Discrepancy::new(EPOCHS, row, "lines", stated, why));
    }
}

fn cell_name<'a>(plan: &'a Plan, cell: &PlannedCell) -> (&'a str, &'a str) {
    let workload = &plan.workloads[cell.workload];
    (&workload.name, &workload.states[cell.state])
}

/// The cells of an epoch in the order of its seed.
fn check_cells(
    plan: &Plan,
    cells: &[PlannedCell],
    passes: &[(usize, &Sample)],
    has_ended: bool,
    found: &mut Vec<Discrepancy>,
) {
    let mut known = BTreeSet::new();
    let first = passes.iter().filter(|(_, pass)| known.insert((&pass.workload, &pass.state)));
    let first: Vec<&(usize, &Sample)> = first.collect();
    for (at, (line, pass)) in first.iter().enumerate() {
        let expected = cells.get(at).map(|cell| cell_name(plan, cell));
        if expected != Some((&*pass.workload, &*pass.state)) {
            let why = match expected {
                Some((workload, state)) => {
                    format!("{workload}, {state}: the next cell by plan and seed")
                }
                None => "no cell: the epoch had ended".to_owned(),
            };
            let stated = format!("{}, {}", pass.workload, pass.state);
            let row = pass_row(*line, pass);
            found.push(Discrepancy::new(SAMPLES, row, "workload", stated, why));
            return;
        }
    }
    if let Some(missing) = cells.get(first.len()).filter(|_| has_ended) {
        let (workload, state) = cell_name(plan, missing);
        let row = passes.last().map_or(String::new(), |(line, pass)| pass_row(*line, pass));
        let why = format!("passes of {workload}, {state} after it, because the epoch has ended");
        found.push(Discrepancy::new(SAMPLES, row, "workload", "the last cell", why));
    }
}

/// The arms of each round in the order of the seed.
fn check_arms(plan: &Plan, epoch: u32, cell: &PlannedCell, passes: &[(usize, &Sample)], found: &mut Vec<Discrepancy>) {
    let (workload, state) = cell_name(plan, cell);
    let section = &plan.schedule.sections[cell.section];
    let warms_up = section.warm_up && cache_state(state) == "hot";
    let rounds = section.rounds.saturating_add(u32::from(warms_up));
    let own = passes.iter().filter(|(_, pass)| pass.workload == workload && pass.state == state && made_calls(pass));
    let own: Vec<&(usize, &Sample)> = own.collect();
    let last = own.iter().map(|(_, pass)| pass.round).max().unwrap_or(0);
    let orders = orders(plan, epoch, cell, rounds.min(last.saturating_add(1)));
    let mut left: BTreeMap<u32, std::slice::Iter<'_, usize>> = BTreeMap::new();
    for (line, pass) in own {
        let mut wrong = |field: &str, stated: &dyn Display, why: &str| {
            let row = pass_row(*line, pass);
            found.push(Discrepancy::new(SAMPLES, row, field, stated, why));
        };
        if pass.warm_up != (warms_up && pass.round == 0) {
            return wrong("warm_up", &pass.warm_up, "true in the first round of a hot cell only");
        }
        let Some(order) = orders.get(pass.round as usize) else {
            return wrong("round", &pass.round, &format!("at most {rounds} rounds, by the plan"));
        };
        let order = left.entry(pass.round).or_insert_with(|| order.iter());
        // An arm may be left out of a round, so the others are in its order without it.
        if !order.any(|at| plan.arms[cell.arms[*at]].name == pass.arm) {
            return wrong("arm", &pass.arm, "another arm: plan and seed have another order in this round");
        }
    }
}

/// An epoch without a line of its own was interrupted, and the run began again after it, or ended.
fn check_interruption(
    row: &str,
    passes: &[(usize, &Sample)],
    epochs: &BTreeMap<u32, Vec<(usize, &Sample)>>,
    found: &mut Vec<Discrepancy>,
) {
    let Some((_, last)) = passes.last() else {
        return;
    };
    let next = epochs.range(last.epoch + 1..).next();
    let next = next.and_then(|(_, passes)| passes.first());
    if next.is_some_and(|(_, first)| first.started_ms >= last.started_ms + last.took_us / 1000) {
        let why = "a line: the run went on after the epoch without a restart";
        found.push(Discrepancy::new(EPOCHS, row, "epoch", "no line of this epoch", why));
    }
}

/// What follows the epochs of a complete run.
fn check_rest(run: &Run, found: &mut Vec<Discrepancy>) {
    let probed = run.plan.arms.iter().filter(|arm| run.plan.probes_arm(&arm.name));
    for arm in probed {
        if !run.probes.iter().any(|probe| probe.arm == arm.name) {
            let row = format!("probes of {}", arm.name);
            let why = "the probes of every arm that is available, by the plan";
            found.push(Discrepancy::new(PROBES, row, "lines", "none", why));
        }
    }
    if run.plan.measures_model_files() && run.model_files.is_none() {
        let why = "the measurement of files that a language model generates, by the plan";
        found.push(Discrepancy::new(MODEL_FILES, "whole file", "", "no file", why));
    }
}

/// What in a plan contradicts the command line that made it.
pub fn check_plan(plan: &Plan) -> Vec<Discrepancy> {
    let mut found = Vec::new();
    let mut wrong = |field: &str, stated: &dyn Display, recomputed: &dyn Display| {
        found.push(Discrepancy::new(PLAN, "plan", field, stated, recomputed));
    };
    let words: Vec<&str> = plan.command.split_whitespace().collect();
    let number = |option: &str| {
        let at = words.iter().position(|word| *word == option)?;
        words.get(at + 1)?.parse::<f64>().ok()
    };
    let by_command = |option: &str, number: f64| format!("{number}, by {option} of the command");
    let margins = &plan.margins;
    let sections = &plan.schedule.sections;
    let seed = words.iter().position(|word| *word == "--seed");
    let seed = seed.and_then(|at| words.get(at + 1)?.parse::<u64>().ok());
    if let Some(seed) = seed.filter(|seed| *seed != plan.seed) {
        wrong("seed", &plan.seed, &format!("{seed}, by --seed of the command"));
    }
    if let Some(margin) = number("--margin").filter(|margin| margin / 100.0 != margins.relative) {
        let recomputed = by_command("--margin", margin / 100.0);
        wrong("margins.relative", &margins.relative, &recomputed);
    }
    if let Some(us) = number("--margin-us").filter(|us| us * 1000.0 != margins.absolute_ns) {
        let recomputed = by_command("--margin-us", us * 1000.0);
        wrong("margins.absolute_ns", &margins.absolute_ns, &recomputed);
    }
    let timeout = number("--call-timeout").map(|seconds| (seconds * 1000.0).ceil());
    if let Some(ms) = timeout.filter(|ms| *ms != plan.settings.call_timeout_ms as f64) {
        let recomputed = by_command("--call-timeout", ms);
        wrong("settings.call_timeout_ms", &plan.settings.call_timeout_ms, &recomputed);
    }
    if margins.session_share != Margins::default().session_share {
        let own = Margins::default().session_share;
        wrong("margins.session_share", &margins.session_share, &own);
    }
    if plan.limits != Limits::default() {
        wrong("limits", &format!("{:?}", plan.limits), &format!("{:?}", Limits::default()));
    }
    for section in sections {
        let name = &section.name;
        for (field, option, stated) in [("epochs", "--epochs", section.epochs), ("rounds", "--rounds", section.rounds)]
        {
            if let Some(most) = number(option).filter(|most| *most != f64::from(stated)) {
                let field = format!("schedule.sections.{field} of {name}");
                wrong(&field, &stated, &by_command(option, most));
            }
        }
        let looks = Looks::at_end(section.epochs);
        if section.looks != looks {
            let field = format!("schedule.sections.looks of {name}");
            wrong(&field, &format!("{:?}", section.looks), &format!("{looks:?}"));
        }
    }
    let budget = number("--budget").map(|seconds| seconds * 1000.0);
    let planned = plan.schedule.budget_ms() as f64;
    // Each section's share is rounded up.
    if let Some(ms) = budget.filter(|ms| planned < ms.floor() || planned > ms + sections.len() as f64) {
        wrong("schedule.sections.budget_ms", &planned, &by_command("--budget", ms));
    }
    found
}

/// What in a run of this build contradicts the workloads and policies that are built in.
pub fn check_built_in(run: &Run) -> Vec<Discrepancy> {
    let plan = &run.plan;
    let mut found = Vec::new();
    let mut workloads: Vec<Arc<Workload>> = Vec::new();
    for planned in plan.workloads.iter().filter(|planned| planned.file.is_none()) {
        let Ok(workload) = catalogue::workload(&planned.name) else {
            let row = format!("workload {}", planned.name);
            let why = "no built-in workload has this name";
            found.push(Discrepancy::new(PLAN, row, "name", &planned.name, why));
            continue;
        };
        if workload.sha256 != planned.sha256 {
            let row = format!("workload {}", planned.name);
            found.push(Discrepancy::new(PLAN, row, "sha256", &planned.sha256, &workload.sha256));
            continue;
        }
        workloads.push(Arc::new(workload));
    }
    let built_in = identities();
    for (name, sha256) in &plan.policies {
        let own = built_in.get(name).map_or("no such policy", String::as_str);
        if own != sha256 {
            let row = format!("policy {name}");
            found.push(Discrepancy::new(PLAN, row, "policies", sha256, own));
        }
    }
    let stated = |workload: &str, policy: &str| {
        let mut lines = run.contexts.iter();
        lines.find(|line| line.workload == workload && line.policy == policy)
    };
    for line in session_contexts(&workloads) {
        let found_line = stated(&line.workload, &line.policy);
        if found_line != Some(&line) {
            let row = format!("{} under {}", line.workload, line.policy);
            let stated = match found_line {
                Some(_) => "another context",
                None => "no line",
            };
            let why = "the context of the recorded session, call by call";
            found.push(Discrepancy::new(CONTEXTS, row, "conversation", stated, why));
        }
    }
    found
}
