//! Records that a run must have and lacks: a file of it was cut off, or lines of it were removed. A run that was interrupted
//! lacks only what comes after its last record, and nothing here.

use std::collections::{BTreeMap, BTreeSet};

use rundir::{EPOCHS, Plan, Run, SAMPLES, Sample, Shard};

use crate::{Discrepancy, made_calls};

/// Adds what shows that records of a run are missing.
pub(super) fn check_missing(run: &Run, found: &mut Vec<Discrepancy>) {
    let passes = by_epoch(run);
    check_arms(run, &passes, found);
    check_lines_of_epochs(run, &passes, found);
}

/// A cell of an epoch, workload and state, with the arms that have passes in it.
type CellArms<'a> = BTreeMap<(&'a str, &'a str), BTreeMap<&'a str, Vec<&'a Sample>>>;

fn by_epoch(run: &Run) -> BTreeMap<u32, CellArms<'_>> {
    let mut epochs: BTreeMap<u32, CellArms<'_>> = BTreeMap::new();
    for pass in &run.samples {
        let cells = epochs.entry(pass.epoch).or_default();
        let arms = cells.entry((&pass.workload, &pass.state)).or_default();
        arms.entry(&pass.arm).or_default().push(pass);
    }
    epochs
}

/// In an epoch that ended, every planned arm has a pass in each cell, and be it one that could not be prepared.
fn check_arms(run: &Run, epochs: &BTreeMap<u32, CellArms<'_>>, found: &mut Vec<Discrepancy>) {
    let plan = &run.plan;
    for epoch in &run.epochs {
        for ((workload, state), arms) in epochs.get(&epoch.epoch).into_iter().flatten() {
            let planned = plan.arms.iter().filter(|arm| arm.unavailable.is_none());
            let planned = planned.filter(|arm| plan.takes_part(&arm.name, workload, state));
            for arm in planned.filter(|arm| !arms.contains_key(arm.name.as_str())) {
                let is_skipped = |one: &rundir::SkippedCell| {
                    (one.arm.as_str(), one.workload.as_str(), one.state.as_str()) == (&*arm.name, *workload, *state)
                };
                if !plan.skipped.iter().any(is_skipped) {
                    let row = format!("epoch {}, {workload}, {state}", epoch.epoch);
                    let why = format!("a pass of {}, by the plan", arm.name);
                    found.push(Discrepancy::new(SAMPLES, row, "arm", "no pass", why));
                }
            }
        }
    }
}

/// An epoch of which every cell was recorded and after which the run went on has ended, and has a line.
fn check_lines_of_epochs(run: &Run, epochs: &BTreeMap<u32, CellArms<'_>>, found: &mut Vec<Discrepancy>) {
    let ended: BTreeSet<u32> = run.epochs.iter().map(|epoch| epoch.epoch).collect();
    let recorded: BTreeSet<(u32, &str, &str, &str)> =
        run.cells.iter().map(|cell| (cell.epoch, &*cell.workload, &*cell.state, &*cell.arm)).collect();
    for (number, cells) in epochs.iter().filter(|(number, _)| !ended.contains(*number)) {
        let is_recorded = cells.iter().all(|((workload, state), arms)| {
            arms.iter().all(|(arm, passes)| {
                recorded.contains(&(*number, *workload, *state, *arm)) || passes.iter().any(|pass| !made_calls(pass))
            })
        });
        let planned =
            cells.keys().next().map_or(0, |(workload, state)| cells_of_epoch(&run.plan, *number, workload, state));
        if is_recorded && cells.len() >= planned && went_on(run, *number) {
            let row = format!("epoch {number}");
            let why = "a line: every cell of the epoch was recorded, and the run went on";
            found.push(Discrepancy::new(EPOCHS, row, "epoch", "no line", why));
        }
    }
}

/// Whether a run went on after an epoch without a restart. A process that was killed before it wrote the line of its last epoch
/// did not: the run ends there, or was resumed, and the clock of its passes began again.
fn went_on(run: &Run, epoch: u32) -> bool {
    let shard = run.plan.shard_of(epoch);
    let of_shard = || run.samples.iter().filter(|pass| run.plan.shard_of(pass.epoch) == shard);
    let last = of_shard().rfind(|pass| pass.epoch == epoch);
    let next = of_shard().find(|pass| pass.epoch > epoch);
    match (last, next) {
        (Some(last), Some(next)) => next.started_ms >= last.started_ms + last.took_us / 1000,
        // Only whole shards are merged, and probes, kills and model files follow the last epoch.
        _ => {
            let is_probed = !run.probes.is_empty() || !run.faults.is_empty() || !run.crash_points.is_empty();
            shard.is_some() || is_probed || run.model_files.is_some()
        }
    }
}

/// The number of cells of an epoch that has this one.
fn cells_of_epoch(plan: &Plan, epoch: u32, workload: &str, state: &str) -> usize {
    let Some(section) = plan.section(workload, state) else {
        return usize::MAX;
    };
    let shard = plan.shard_of(epoch).map(|index| Shard { index: index as u32, of: plan.merged.len() as u32 });
    let of_shard = Plan { shard: plan.shard.or(shard), ..plan.clone() };
    let states = section.cells.iter();
    let cells = states.flat_map(|(workload, states)| states.iter().map(move |state| (workload, state)));
    cells.filter(|(workload, state)| of_shard.has_cell(workload, state)).count()
}

#[cfg(test)]
mod tests;
