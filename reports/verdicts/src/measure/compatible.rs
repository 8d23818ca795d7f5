//! Checks that one decision may use several runs: one machine, one build, and equal plans for all that they share.

use std::collections::BTreeMap;

use rundir::Run;

/// Checks that no run is a copy of another one, which would double its kills and passes.
///
/// # Errors
/// A message that names both directories.
pub fn check_distinct(runs: &[&Run]) -> Result<(), String> {
    let mut known = BTreeMap::new();
    for run in runs {
        let plan = &run.plan;
        let shard = plan.shard.as_ref().map(|shard| (shard.index, shard.of));
        if let Some(other) = known.insert((&plan.created, plan.seed, &plan.command, shard), &run.dir) {
            return Err(format!(
                "{} and {}: the same run twice, both planned at {} with the seed {} (name it once)",
                other.display(),
                run.dir.display(),
                plan.created,
                plan.seed
            ));
        }
    }
    Ok(())
}

/// Checks that runs are of one machine and one build, and that whatever two of them measure is planned alike.
///
/// # Errors
/// A message that names both runs and the difference.
pub fn check_compatible(runs: &[&Run]) -> Result<(), String> {
    let Some((first, others)) = runs.split_first() else {
        return Err("no run was given".to_owned());
    };
    for (at, other) in others.iter().enumerate() {
        differs_in_machine(first, other)?;
        for earlier in &runs[..=at] {
            differs_in_plan(earlier, other)?;
        }
    }
    Ok(())
}

fn different(one: &Run, other: &Run, what: &str, left: &str, right: &str) -> Result<(), String> {
    match left == right {
        true => Ok(()),
        false => Err(format!("{} and {}: different {what}: {left}, {right}", one.dir.display(), other.dir.display())),
    }
}

fn differs_in_machine(one: &Run, other: &Run) -> Result<(), String> {
    let (left, right) = (&one.environment, &other.environment);
    different(one, other, "processors", &left.cpu, &right.cpu)?;
    let [cpus, others] = [left, right].map(|machine| machine.cpus.to_string());
    different(one, other, "numbers of processors", &cpus, &others)?;
    different(one, other, "kernels", &left.kernel, &right.kernel)
}

fn differs_in_plan(one: &Run, other: &Run) -> Result<(), String> {
    let (left, right) = (&one.plan, &other.plan);
    different(one, other, "builds of ctxbench", &left.ctxbench, &right.ctxbench)?;
    let both_measure = !left.workloads.is_empty() && !right.workloads.is_empty();
    if both_measure {
        let [margins, others] = [left, right].map(|plan| format!("{:?}", plan.margins));
        different(one, other, "margins", &margins, &others)?;
    }
    for workload in &right.workloads {
        if let Some(known) = left.workload(&workload.name) {
            let what = format!("definitions of {}", workload.name);
            different(one, other, &what, &known.sha256, &workload.sha256)?;
        }
    }
    for arm in &right.arms {
        let usable = left.arm(&arm.name).filter(|same| same.unavailable.is_none() && arm.unavailable.is_none());
        if let Some(same) = usable {
            let [versions, others] = [same, arm].map(|arm| format!("{:?}", arm.backend.versions));
            let what = format!("versions of {}", arm.name);
            different(one, other, &what, &versions, &others)?;
        }
    }
    Ok(())
}
