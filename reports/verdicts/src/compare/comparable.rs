//! Whether two runs may be compared: the same machine, and the same plan but for the build.

use rundir::{Plan, PlannedWorkload, Run};

use crate::measure::{differ, machine_differences};

/// The differences between the machines and plans of two runs, each with its name and both values.
/// The build and the versions of arms may differ: they are what a comparison is about.
pub fn differences(old: &Run, new: &Run) -> Vec<String> {
    let mut found = machine_differences(old, new);
    let (before, after) = (&old.plan, &new.plan);
    let mut of_plan = |name: &str, of: &dyn Fn(&Plan) -> String| {
        differ(&mut found, name, &of(before), &of(after));
    };
    of_plan("suite", &|plan| plan.suite.clone());
    of_plan("shard", &|plan| {
        let shard = plan.shard.map(|shard| shard.to_string());
        shard.unwrap_or_else(|| "all cells".to_owned())
    });
    of_plan("margins", &|plan| format!("{:?}", plan.margins));
    of_plan("settings", &|plan| format!("{:?}", plan.settings));
    of_plan("arms", &|plan| {
        let names = plan.arms.iter().map(|arm| arm.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    });
    of_plan("workloads", &|plan| {
        let names = plan.workloads.iter().map(|workload| workload.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    });
    let both = before.workloads.iter();
    let both = both.filter_map(|workload| Some((workload, after.workload(&workload.name)?)));
    for (workload, other) in both {
        let mut of_workload = |name: &str, of: &dyn Fn(&PlannedWorkload) -> String| {
            let name = format!("{name} of {}", workload.name);
            differ(&mut found, &name, &of(workload), &of(other));
        };
        of_workload("definition", &|workload| workload.sha256.chars().take(12).collect());
        of_workload("cache states", &|workload| workload.states.join(", "));
    }
    found
}
