//! Whether two runs may be compared: the same machine, and the same plan but for the build.

use rundir::{Environment, Plan, PlannedWorkload, Run};

/// The differences between the machines of two runs, each with its name and both values.
pub fn machine_differences(old: &Run, new: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let (before, after) = (&old.environment, &new.environment);
    differ(&mut found, "kernel", &before.kernel, &after.kernel);
    differ(&mut found, "processor", &before.cpu, &after.cpu);
    let mut of_machine = |name: &str, of: &dyn Fn(&Environment) -> String| {
        differ(&mut found, name, &of(before), &of(after));
    };
    of_machine("processors", &|machine| machine.cpus.to_string());
    // The kernel's own share differs from boot to boot.
    of_machine("memory", &|machine| format!("{} GiB", machine.memory_bytes.div_ceil(1 << 30)));
    // No figure of a fault or conformance run depends on the file system below.
    let has_passes = |run: &Run| run.plan.measures_nothing().is_none();
    if has_passes(old) && has_passes(new) {
        of_machine("scratch", &|machine| format!("{:?} {}", machine.scratch.kind, machine.scratch.file_system));
    }
    found
}

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

fn differ(found: &mut Vec<String>, name: &str, old: &str, new: &str) {
    if old != new {
        found.push(format!("{name}: {old} and {new}"));
    }
}
