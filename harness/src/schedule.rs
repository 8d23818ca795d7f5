//! The order of cells in an epoch and of arms in a round, and the undecided cells. All functions are pure.

use std::collections::BTreeSet;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rundir::{Plan, Sample};
use stats::{Table, baselines, undecided};

/// A cell of a plan with its arms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCell {
    /// The index of the workload in the plan.
    pub workload: usize,
    /// The index of the cache state in the workload's states.
    pub state: usize,
    /// The indices of the arms in the plan.
    pub arms: Vec<usize>,
}

impl PlannedCell {
    fn names<'a>(&self, plan: &'a Plan) -> (&'a str, &'a str) {
        let workload = &plan.workloads[self.workload];
        (&workload.name, &workload.states[self.state])
    }
}

/// All cells of a plan, with every arm that is not skipped in them.
pub fn all_cells(plan: &Plan) -> Vec<PlannedCell> {
    let mut cells = Vec::new();
    for (workload, planned) in plan.workloads.iter().enumerate() {
        for (state, name) in planned.states.iter().enumerate() {
            let is_skipped = |arm: usize| {
                plan.skipped.iter().any(|skipped| {
                    skipped.arm == plan.arms[arm].name
                        && skipped.workload == planned.name
                        && skipped.state == *name
                })
            };
            let takes_part = |arm: usize| {
                let only = &plan.arms[arm].only;
                only.is_empty() || only.contains(&planned.name)
            };
            let arms: Vec<usize> = (0..plan.arms.len())
                .filter(|arm| takes_part(*arm) && !is_skipped(*arm))
                .collect();
            if !arms.is_empty() {
                cells.push(PlannedCell {
                    workload,
                    state,
                    arms,
                });
            }
        }
    }
    cells
}

/// The cells to measure after `sound` epochs that count: a workload with a number of epochs of its own is in no more.
pub fn due(plan: &Plan, cells: &[PlannedCell], sound: u32) -> Vec<PlannedCell> {
    let cells = cells.iter();
    let due = cells.filter(|cell| {
        plan.workloads[cell.workload]
            .epochs
            .is_none_or(|epochs| sound < epochs)
    });
    due.cloned().collect()
}

/// The cells that an interim analysis leaves open, with their undecided arms and the baselines. A cell whose
/// A/A arms are not shown to be equal keeps all its arms, and so does one of a workload with a number of epochs of its own.
pub fn still_open(
    plan: &Plan,
    cells: Vec<PlannedCell>,
    samples: &[Sample],
    void: &BTreeSet<u32>,
) -> Vec<PlannedCell> {
    let table = Table::of(samples, void, false);
    let (baseline, aa_arm) = baselines(plan);
    let is_baseline = |arm: usize| {
        let name = &plan.arms[arm].name;
        let is_compared_with = plan
            .arms
            .iter()
            .any(|arm| arm.against.as_ref() == Some(name));
        *name == baseline || Some(name) == aa_arm.as_ref() || is_compared_with
    };
    let open = cells.into_iter().filter_map(|mut cell| {
        let (workload, state) = cell.names(plan);
        if plan.workloads[cell.workload].epochs.is_some()
            || cell.arms.iter().all(|arm| is_baseline(*arm))
        {
            // It is looked at once, after its last epoch; or nothing in it is compared.
            return Some(cell);
        }
        let open = undecided(plan, &table, workload, state);
        // A wide A/A interval means that every arm's interval is wide, too.
        let all_go_on = aa_arm.as_ref().is_some_and(|aa_arm| open.contains(aa_arm));
        cell.arms
            .retain(|arm| all_go_on || is_baseline(*arm) || open.contains(&plan.arms[*arm].name));
        (!open.is_empty()).then_some(cell)
    });
    open.collect()
}

/// The cells in the random order of an epoch.
pub fn in_order(plan: &Plan, epoch: u32, mut cells: Vec<PlannedCell>) -> Vec<PlannedCell> {
    cells.shuffle(&mut rng(plan, epoch, 0));
    cells
}

/// The random order of a cell's arms in each round, so that no arm always goes first.
pub fn orders(plan: &Plan, epoch: u32, cell: &PlannedCell, rounds: u32) -> Vec<Vec<usize>> {
    let place = 1 + cell.workload as u64 * 8 + cell.state as u64;
    let mut rng = rng(plan, epoch, place);
    let mut order: Vec<usize> = (0..cell.arms.len()).collect();
    (0..rounds)
        .map(|_| {
            order.shuffle(&mut rng);
            order.clone()
        })
        .collect()
}

/// The random generator for one `place` in one epoch.
fn rng(plan: &Plan, epoch: u32, place: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed);
    rng.set_stream((u64::from(epoch) << 32) | place);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64) -> Plan {
        let mut plan = crate::testing::plan();
        // A second cell: one alone has no order.
        let mut other = plan.workloads[0].clone();
        other.name = "micro/other".to_owned();
        plan.workloads.push(other);
        plan.seed = seed;
        plan
    }

    #[test]
    fn the_seed_alone_determines_the_order() {
        let order = |seed, epoch| in_order(&plan(seed), epoch, all_cells(&plan(seed)));
        assert_eq!(order(5, 0), order(5, 0));
        let differ = (0..8).any(|epoch| order(5, epoch) != order(6, epoch));
        assert!(differ);
        let cell = &all_cells(&plan(1))[0];
        let rounds = orders(&plan(1), 0, cell, 20);
        let firsts: BTreeSet<usize> = rounds.iter().map(|order| order[0]).collect();
        assert_eq!(
            firsts.len(),
            cell.arms.len(),
            "every arm goes first in some round"
        );
        for order in rounds {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..cell.arms.len()).collect::<Vec<_>>());
        }
        assert_ne!(orders(&plan(1), 0, cell, 20), orders(&plan(1), 1, cell, 20));
        let other = &all_cells(&plan(1))[1];
        assert_ne!(
            orders(&plan(1), 0, cell, 20),
            orders(&plan(1), 0, other, 20)
        );
    }

    #[test]
    fn all_cells_omits_skipped_arms_and_cells_without_arms() {
        let mut plan = plan(1);
        let skip = |arm: &str, workload: &str| rundir::Skipped {
            arm: arm.to_owned(),
            workload: workload.to_owned(),
            state: "hot".to_owned(),
            reason: "a test".to_owned(),
        };
        plan.skipped.push(skip("null", "micro/stat"));
        for arm in &plan.arms {
            plan.skipped.push(skip(&arm.name, "micro/other"));
        }
        let cells = all_cells(&plan);
        let expected = PlannedCell {
            workload: 0,
            state: 0,
            arms: vec![0, 1, 3, 4],
        };
        assert_eq!(cells, [expected]);
    }

    #[test]
    fn a_cell_with_baselines_alone_stays_open() {
        let mut plan = plan(1);
        plan.arms.truncate(2);
        let cells = all_cells(&plan);
        assert_eq!(
            still_open(&plan, cells.clone(), &[], &BTreeSet::new()),
            cells
        );
    }
}
