//! Whether two runs may be compared: the same machine, and the same plan but for the build.

use rundir::{Environment, Plan, Run};

/// What differs between the machines of two runs, each with its name and both values.
pub fn machine_differences(old: &Run, new: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let (before, after) = (&old.environment, &new.environment);
    differ(&mut found, "kernel", &before.kernel, &after.kernel);
    differ(&mut found, "processor", &before.cpu, &after.cpu);
    let processors = |own: &Environment| own.cpus.to_string();
    differ(
        &mut found,
        "processors",
        &processors(before),
        &processors(after),
    );
    // The kernel's own share differs from boot to boot.
    let memory = |own: &Environment| format!("{} GiB", own.memory_bytes.div_ceil(1 << 30));
    differ(&mut found, "memory", &memory(before), &memory(after));
    // No figure of a fault or conformance run depends on the file system below.
    let has_passes = |run: &Run| run.plan.measures_nothing().is_none();
    if has_passes(old) && has_passes(new) {
        let scratch =
            |own: &Environment| format!("{:?} {}", own.scratch.kind, own.scratch.file_system);
        differ(&mut found, "scratch", &scratch(before), &scratch(after));
    }
    found
}

/// What differs between the machines and plans of two runs, each with its name and both values.
/// The build and the versions of arms may differ: they are what a comparison is about.
pub fn differences(old: &Run, new: &Run) -> Vec<String> {
    let mut found = machine_differences(old, new);
    let (before, after) = (&old.plan, &new.plan);
    differ(&mut found, "suite", &before.suite, &after.suite);
    let words = |plan: &Plan| format!("{:?}", plan.margins);
    differ(&mut found, "margins", &words(before), &words(after));
    let words = |plan: &Plan| format!("{:?}", plan.settings);
    differ(&mut found, "settings", &words(before), &words(after));
    let names = |plan: &Plan| {
        let names = plan.arms.iter().map(|arm| arm.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    differ(&mut found, "arms", &names(before), &names(after));
    let names = |plan: &Plan| {
        let names = plan.workloads.iter().map(|own| own.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    differ(&mut found, "workloads", &names(before), &names(after));
    for own in &before.workloads {
        let other = after.workloads.iter().find(|other| other.name == own.name);
        if let Some(other) = other {
            let short = |sha256: &str| sha256.chars().take(12).collect::<String>();
            let name = format!("definition of {}", own.name);
            differ(
                &mut found,
                &name,
                &short(&own.sha256),
                &short(&other.sha256),
            );
            let name = format!("cache states of {}", own.name);
            differ(
                &mut found,
                &name,
                &own.states.join(", "),
                &other.states.join(", "),
            );
        }
    }
    found
}

fn differ(found: &mut Vec<String>, name: &str, old: &str, new: &str) {
    if old != new {
        found.push(format!("{name}: {old} and {new}"));
    }
}
