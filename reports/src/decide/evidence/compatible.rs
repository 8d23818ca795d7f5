//! Whether runs may be decided on together: one machine, and no two plans of the same thing.

use rundir::Run;

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

fn different(one: &Run, other: &Run, what: &str, own: &str, its: &str) -> Result<(), String> {
    match own == its {
        true => Ok(()),
        false => Err(format!(
            "{} and {}: different {what}: {own}, {its}",
            one.dir.display(),
            other.dir.display()
        )),
    }
}

fn differs_in_machine(one: &Run, other: &Run) -> Result<(), String> {
    let (own, its) = (&one.environment, &other.environment);
    different(one, other, "processors", &own.cpu, &its.cpu)?;
    let [cpus, others] = [own, its].map(|machine| machine.cpus.to_string());
    different(one, other, "numbers of processors", &cpus, &others)?;
    different(one, other, "kernels", &own.kernel, &its.kernel)
}

fn differs_in_plan(one: &Run, other: &Run) -> Result<(), String> {
    let (own, its) = (&one.plan, &other.plan);
    different(
        one,
        other,
        "builds of ctxbench",
        &own.ctxbench,
        &its.ctxbench,
    )?;
    let both_measure = !own.workloads.is_empty() && !its.workloads.is_empty();
    if both_measure {
        let [margins, others] = [own, its].map(|plan| format!("{:?}", plan.margins));
        different(one, other, "margins", &margins, &others)?;
        let [placement, others] = [own, its].map(|plan| &plan.settings.placement);
        different(one, other, "placements", placement, others)?;
    }
    for workload in &its.workloads {
        if let Some(known) = own.workload(&workload.name) {
            let what = format!("definitions of {}", workload.name);
            different(one, other, &what, &known.sha256, &workload.sha256)?;
        }
    }
    for arm in &its.arms {
        let usable = own
            .arm(&arm.name)
            .filter(|same| same.unavailable.is_none() && arm.unavailable.is_none());
        if let Some(same) = usable {
            let [versions, others] = [same, arm].map(|arm| format!("{:?}", arm.backend.versions));
            let what = format!("versions of {}", arm.name);
            different(one, other, &what, &versions, &others)?;
        }
    }
    Ok(())
}
