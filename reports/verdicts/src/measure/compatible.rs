//! Checks that one decision may use several runs: one machine, one build, and equal plans for all that they share.

use std::collections::HashSet;

use rundir::{Environment, Run, Sample};

/// Checks that no run is a copy of another one, or holds one that was joined or merged into it, which would double its kills
/// and passes. Their records say so, whatever was changed in a copy: its plan, its time, or the times of its passes.
///
/// # Errors
/// A message that names both directories and what they share.
pub fn check_distinct(runs: &[&Run]) -> Result<(), String> {
    let mut earlier: Vec<(&Run, PassTimes<'_>)> = Vec::new();
    for &other in runs {
        for (run, known) in &earlier {
            let shared = known.shared(other).or_else(|| shared_series(run, other)).or_else(|| shared_plan(run, other));
            if let Some(shared) = shared {
                return Err(format!(
                    "{} and {}: the same run twice: both have {shared} (name it once; a joined or merged run holds the runs that it was made of)",
                    run.dir.display(),
                    other.dir.display(),
                ));
            }
        }
        earlier.push((other, PassTimes::of(other)));
    }
    Ok(())
}

/// A pass by arm, workload, state and round, and its times.
type TimedPass<'a, T> = (&'a str, &'a str, &'a str, u32, T);

fn timed<T>(pass: &Sample, times: T) -> TimedPass<'_, T> {
    (&*pass.arm, &*pass.workload, &*pass.state, pass.round, times)
}

/// The times that were measured in nanoseconds, each with its place among them.
fn measured_ns(pass: &Sample) -> impl Iterator<Item = (usize, u64)> {
    let times = [pass.waited_ns, pass.makespan_ns, pass.cpu.client_ns, pass.cpu.daemon_ns];
    times.into_iter().enumerate().filter(|(_, ns)| *ns > 0)
}

/// The times of a run's passes.
struct PassTimes<'a> {
    all: HashSet<TimedPass<'a, [u64; 4]>>,
    each: HashSet<TimedPass<'a, (usize, u64)>>,
    passes: usize,
}

impl<'a> PassTimes<'a> {
    fn of(run: &'a Run) -> Self {
        let passes = || run.samples.iter().filter(|pass| pass.waited_ns > 0);
        Self {
            all: passes().map(|pass| timed(pass, Self::all(pass))).collect(),
            each: passes().flat_map(|pass| measured_ns(pass).map(|time| timed(pass, time))).collect(),
            passes: passes().count(),
        }
    }

    fn all(pass: &Sample) -> [u64; 4] {
        [pass.waited_ns, pass.makespan_ns, pass.started_ms, pass.took_us]
    }

    /// What a run has of these times, in words. No two passes have all times in common, and few have one of them by chance.
    fn shared(&self, other: &Run) -> Option<String> {
        let passes = || other.samples.iter().filter(|pass| pass.waited_ns > 0);
        if let Some(pass) = passes().find(|pass| self.all.contains(&timed(pass, Self::all(pass)))) {
            return Some(format!(
                "a pass of {} in {}, {}, that waited {} ns",
                pass.arm, pass.workload, pass.state, pass.waited_ns
            ));
        }
        let has_one = |pass: &&Sample| measured_ns(pass).any(|time| self.each.contains(&timed(pass, time)));
        let shared = passes().filter(has_one).count();
        let of = passes().count().min(self.passes);
        (of > 0 && 2 * shared >= of).then(|| format!("{shared} of {of} passes with an equal time in nanoseconds"))
    }
}

/// Crash points or fault scenarios that two runs would not both have, in words.
fn shared_series(one: &Run, other: &Run) -> Option<String> {
    let mut series = other.crash_points.iter().filter(|series| series.points > 0 && series.took_ms > 0);
    if let Some(series) = series.find(|series| one.crash_points.contains(series)) {
        return Some(format!(
            "{} crash points ({}) of {} that took {} ms",
            series.points, series.loss, series.backend, series.took_ms
        ));
    }
    let is_same = !one.fault_outcomes.is_empty() && one.fault_outcomes == other.fault_outcomes;
    is_same.then(|| "the same results of all fault scenarios".to_owned())
}

/// The second and the seed of two plans, in words, if they are equal and no different shards have them. Only passes and crash
/// points count twice.
fn shared_plan(one: &Run, other: &Run) -> Option<String> {
    let counts = |run: &Run| !run.samples.is_empty() || !run.crash_points.is_empty();
    let (left, right) = (&one.plan, &other.plan);
    let is_same = (&left.created, left.seed, left.shard) == (&right.created, right.seed, right.shard);
    (is_same && counts(one) && counts(other))
        .then(|| format!("the plan of {} with the seed {}", left.created, left.seed))
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
    if left == right {
        Ok(())
    } else {
        Err(format!("{} and {}: different {what}: {left}, {right}", one.dir.display(), other.dir.display()))
    }
}

fn differs_in_machine(one: &Run, other: &Run) -> Result<(), String> {
    match machine_differences(one, other) {
        found if found.is_empty() => Ok(()),
        found => {
            Err(format!("{} and {}: different machines: {}", one.dir.display(), other.dir.display(), found.join("; ")))
        }
    }
}

fn differs_in_plan(one: &Run, other: &Run) -> Result<(), String> {
    let (left, right) = (&one.plan, &other.plan);
    different(one, other, "builds of ctxbench", &left.ctxbench, &right.ctxbench)?;
    // Such a version does not say which changes.
    if ["with changes", "no commit"].iter().any(|unknown| left.ctxbench.contains(unknown)) {
        let [binary, another] = [one, other].map(|run| &*run.environment.binary_sha256);
        different(one, other, &format!("builds of ctxbench {}, by SHA-256", left.ctxbench), binary, another)?;
    }
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

/// Adds a value that differs, with its name and both values.
pub(crate) fn differ(found: &mut Vec<String>, name: &str, old: &str, new: &str) {
    if old != new {
        found.push(format!("{name}: {old} and {new}"));
    }
}
