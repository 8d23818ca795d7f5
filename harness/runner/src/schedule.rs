//! Whose turn it is: the section of the next epoch, the time of its cells, the order of cells in an epoch and of arms in a
//! round. All functions are pure.

use std::time::Duration;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rundir::{Plan, Section};

/// A cell of a plan with its arms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCell {
    /// The index of the section in the plan.
    pub section: usize,
    /// The index of the workload in the plan.
    pub workload: usize,
    /// The index of the state in the workload's states.
    pub state: usize,
    /// The indices of the arms in the plan.
    pub arms: Vec<usize>,
}

/// All cells of a plan that this run measures, with every arm that takes part in them.
pub fn all_cells(plan: &Plan) -> Vec<PlannedCell> {
    let mut cells = Vec::new();
    for (workload, planned) in plan.workloads.iter().enumerate() {
        for (state, name) in planned.states.iter().enumerate() {
            let mut sections = plan.schedule.sections.iter();
            let Some(section) = sections.position(|section| section.has(&planned.name, name)) else {
                continue;
            };
            let is_skipped = |arm: &str| {
                plan.skipped
                    .iter()
                    .any(|skipped| skipped.arm == arm && skipped.workload == planned.name && skipped.state == *name)
            };
            let measures = |arm: usize| {
                let arm = &plan.arms[arm].name;
                plan.takes_part(arm, &planned.name, name) && !is_skipped(arm)
            };
            let arms: Vec<usize> = (0..plan.arms.len()).filter(|arm| measures(*arm)).collect();
            if !arms.is_empty() && plan.has_cell(&planned.name, name) {
                cells.push(PlannedCell { section, workload, state, arms });
            }
        }
    }
    cells
}

/// The section whose turn it is, of those with epochs to come: the one that has the smallest share of its epochs behind it,
/// so that the epochs of every section are spread over the run. `done` holds the epochs behind each section, or `None` for
/// one that is over.
pub fn next_section(sections: &[Section], done: &[Option<u32>]) -> Option<usize> {
    let open = sections.iter().zip(done).enumerate();
    let open = open.filter_map(|(at, (section, done))| Some((at, (*done)?, section.epochs)));
    let least = open.min_by(|(_, done, epochs), (_, other_done, other_epochs)| {
        let cross = |done: u32, epochs: u32| u64::from(done) * u64::from(epochs);
        cross(*done, *other_epochs).cmp(&cross(*other_done, *epochs))
    });
    least.map(|(at, _, _)| at)
}

/// After which time in an epoch no round of a cell begins: for each of the section's `cells` the same. It is an equal part
/// of what is left of the budget for each of the epochs to come, `sound` being behind it; but at least half of the part that
/// the plan has for it, so that a cell which takes more than its part costs the section epochs, and no other cell its rounds.
pub fn slice(section: &Section, cells: usize, sound: u32, left: Duration) -> Duration {
    let parts = |epochs: u32| epochs.max(1).saturating_mul(cells.max(1) as u32);
    let planned = Duration::from_millis(section.budget_ms) / parts(section.epochs);
    let to_come = left / parts(section.epochs.saturating_sub(sound));
    to_come.max(planned / 2)
}

/// The slice of a cell that overran its slices by `overruns` in earlier epochs: in each by its last round, its unmounts and the
/// removal of its files. Shorter by their median, so that the cell ends in time and the last epochs get as many rounds as the
/// first ones, and one call that hung does not shorten it; but at least half, so that a cell whose rounds are longer than its
/// part still gets some. Of an even number, the lower of the middle two counts.
pub fn shortened(slice: Duration, overruns: &[Duration]) -> Duration {
    let mut overruns = overruns.to_vec();
    overruns.sort_unstable();
    let median = overruns.get(overruns.len().saturating_sub(1) / 2).copied().unwrap_or_default();
    slice.saturating_sub(median).max(slice / 2)
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
    use std::collections::BTreeSet;

    use super::*;

    fn plan(seed: u64) -> Plan {
        let mut plan = crate::testing::plan();
        // A second cell: one alone has no order.
        let mut other = plan.workloads[0].clone();
        other.name = "micro/other".to_owned();
        let cells = &mut plan.schedule.sections[0].cells;
        cells.insert(other.name.clone(), other.states.clone());
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
        assert_eq!(firsts.len(), cell.arms.len(), "every arm goes first in some round");
        for order in rounds {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..cell.arms.len()).collect::<Vec<_>>());
        }
        assert_ne!(orders(&plan(1), 0, cell, 20), orders(&plan(1), 1, cell, 20));
        let other = &all_cells(&plan(1))[1];
        assert_ne!(orders(&plan(1), 0, cell, 20), orders(&plan(1), 0, other, 20));
    }

    #[test]
    fn all_cells_omits_skipped_arms_and_cells_without_arms() {
        let mut plan = plan(1);
        let skip = |arm: &str, workload: &str| rundir::SkippedCell {
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
        let expected = PlannedCell { section: 0, workload: 0, state: 0, arms: vec![0, 1, 3, 4] };
        assert_eq!(cells, [expected]);
    }

    fn section(budget_ms: u64, epochs: u32) -> Section {
        Section { budget_ms, epochs, ..Section::default() }
    }

    #[test]
    fn the_epochs_of_all_sections_are_spread_over_the_run() {
        let sections = [section(1, 8), section(1, 4), section(1, 2)];
        let mut done = [Some(0), Some(0), Some(0)];
        let mut order = Vec::new();
        while let Some(at) = next_section(&sections, &done) {
            order.push(at);
            done[at] = done[at].map(|done| done + 1).filter(|done| *done < sections[at].epochs);
        }
        assert_eq!(order, [0, 1, 2, 0, 0, 1, 0, 0, 1, 2, 0, 0, 1, 0]);
        assert_eq!(next_section(&sections, &[None, Some(3), Some(1)]), Some(2));
        assert_eq!(next_section(&sections, &[None, None, None]), None);
    }

    #[test]
    fn a_cell_gets_an_equal_part_and_never_less_than_half_of_the_planned_one() {
        let section = section(8_000, 8);
        let slice = |sound, left_ms| slice(&section, 2, sound, Duration::from_millis(left_ms)).as_millis();
        assert_eq!(slice(0, 8_000), 500);
        assert_eq!(slice(4, 4_000), 500);
        assert_eq!(slice(4, 8_000), 1_000, "what was not used is not lost");
        // Some cell took more than its part.
        assert_eq!(slice(4, 3_000), 375);
        assert_eq!(slice(4, 1_000), 250);
        assert_eq!(slice(7, 0), 250);
        assert_eq!(slice(8, 0), 250);
    }

    #[test]
    fn a_cell_that_overran_gets_a_shorter_slice_and_at_least_half_of_it() {
        let ms = Duration::from_millis;
        assert_eq!(shortened(ms(800), &[]), ms(800));
        assert_eq!(shortened(ms(800), &[ms(200), ms(100)]), ms(700));
        assert_eq!(shortened(ms(800), &[ms(300), ms(100), ms(200)]), ms(600));
        assert_eq!(shortened(ms(800), &[ms(9_000)]), ms(400));
        // A call that hung in one epoch shortens no later one.
        assert_eq!(shortened(ms(800), &[ms(9_000), ms(100)]), ms(700));
        assert_eq!(shortened(ms(800), &[ms(100), ms(9_000), ms(200)]), ms(600));
        assert_eq!(shortened(ms(800), &[Duration::ZERO]), ms(800));
    }
}
