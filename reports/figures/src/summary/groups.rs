//! Groups the passes and cells of a run by workload, cache state and arm. Void epochs are left out.

use std::collections::HashMap;

use rundir::{Arm, CellEpoch, Placement, Plan, PlannedWorkload, Run, Sample};

use super::void;

/// One arm in one workload and cache state, over all valid epochs.
pub(super) struct Group<'a> {
    pub(super) workload: &'a PlannedWorkload,
    pub(super) state: &'a str,
    pub(super) arm: &'a Arm,
    /// All passes, warm-up passes included.
    pub(super) passes: Vec<&'a Sample>,
    pub(super) cells: Vec<&'a CellEpoch>,
}

/// All groups of a run, in the plan's order.
pub(super) struct Groups<'a> {
    groups: Vec<Group<'a>>,
    places: HashMap<(&'a str, &'a str, &'a str), usize>,
}

impl<'a> Groups<'a> {
    pub(super) fn of_run(run: &'a Run) -> Self {
        let plan = &run.plan;
        let mut sorted = Self { groups: Vec::new(), places: HashMap::new() };
        for workload in &plan.workloads {
            for state in &workload.states {
                for arm in &plan.arms {
                    let place = (workload.name.as_str(), state.as_str(), arm.name.as_str());
                    sorted.places.insert(place, sorted.groups.len());
                    sorted.groups.push(Group { workload, state, arm, passes: Vec::new(), cells: Vec::new() });
                }
            }
        }
        let void = void(run);
        for sample in run.samples.iter().filter(|sample| !void.contains(&sample.epoch)) {
            if let Some(group) = sorted.mutable(&sample.workload, &sample.state, &sample.arm) {
                group.passes.push(sample);
            }
        }
        for cell in run.cells.iter().filter(|cell| !void.contains(&cell.epoch)) {
            if let Some(group) = sorted.mutable(&cell.workload, &cell.state, &cell.arm) {
                group.cells.push(cell);
            }
        }
        sorted
    }

    fn mutable(&mut self, workload: &str, state: &str, arm: &str) -> Option<&mut Group<'a>> {
        let at = self.places.get(&(workload, state, arm))?;
        self.groups.get_mut(*at)
    }

    /// All groups, empty ones included.
    pub(super) fn all(&self) -> impl Iterator<Item = &Group<'a>> {
        self.groups.iter()
    }

    pub(super) fn of(&self, workload: &str, state: &str, arm: &str) -> Option<&Group<'a>> {
        self.groups.get(*self.places.get(&(workload, state, arm))?)
    }

    /// The groups of each workload and arm, over all cache states of one placement: that of the workload's first state.
    pub(super) fn by_workload_and_arm(
        &self,
        plan: &'a Plan,
    ) -> impl Iterator<Item = (&'a PlannedWorkload, &'a Arm, Vec<&Group<'a>>)> {
        plan.workloads.iter().flat_map(move |workload| {
            plan.arms.iter().map(move |arm| {
                let placed = |state: &String| Placement::of_state(state);
                let first = workload.states.first().map(placed);
                let states = workload.states.iter();
                let states = states.filter(move |state| Some(placed(state)) == first);
                let groups = states.filter_map(|state| self.of(&workload.name, state, &arm.name));
                (workload, arm, groups.collect())
            })
        })
    }
}
