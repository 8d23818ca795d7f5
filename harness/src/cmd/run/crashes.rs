//! Kills and simulated power cuts of the stores of a run, which promise to survive them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use fault::{CrashPointPlan, Live, ScheduleEnd};
use rundir::faults::CrashPoints;
use rundir::{Plan, Writer};

use crate::crash_words::crash_words;
use crate::interrupt::Interrupt;
use crate::plan::{BASELINE, LiveArm};

/// The most time for all kills and power cuts of a run.
const LIMIT: Duration = Duration::from_secs(45);

/// How often progress is printed.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Makes the planned kills and power cuts of each arm that was not in the lines of `before`.
pub(super) fn crash(
    plan: &Plan,
    arms: &[LiveArm],
    before: Option<Vec<CrashPoints>>,
    scratch: &Path,
    writer: &Writer,
    interrupt: &Interrupt,
) -> anyhow::Result<ScheduleEnd> {
    let points = plan.crash_points;
    let before = before.into_iter().flatten();
    let done: BTreeSet<String> = before.map(|points| points.backend).collect();
    let promises = |arm: &&LiveArm| {
        let promises = arm.backend.promises();
        let is_store = arm.backend.has_paths() && arm.backend.source(Path::new("")).is_none();
        is_store && (promises.killed_daemon.is_some() || promises.power_loss.is_some())
    };
    let mut stores: Vec<&LiveArm> = arms
        .iter()
        .filter(|arm| plan.probes_arm(&arm.name) && !done.contains(&arm.name))
        .filter(promises)
        .collect();
    // If the time is too short, the candidates have it.
    stores.sort_by_key(|arm| arm.name == BASELINE);
    let backends: Vec<_> = stores
        .into_iter()
        .map(|arm| (arm.backend.clone(), None))
        .collect();
    if points == 0 || backends.is_empty() {
        return Ok(ScheduleEnd::Complete);
    }
    eprintln!(
        "killing daemons and simulating power cuts, {points} times for each store (at most {} s)",
        LIMIT.as_secs()
    );
    let live = Live {
        scenarios: Vec::new(),
        backends,
        scratch: scratch.to_owned(),
        program: std::env::current_exe().context("finding the ctxbench binary")?,
        interrupt: interrupt.flag(),
        is_long: false,
        sites: 0,
    };
    let mut last = Instant::now();
    let mut told = |backend: &str, what: &str, at: u64| {
        if last.elapsed() > LINE_EVERY {
            last = Instant::now();
            eprintln!("{backend}: {at} of {points} {what}");
        }
    };
    let mut recorded = |lines: &[CrashPoints]| eprintln!("{}", crash_words(lines));
    let wanted = CrashPointPlan {
        points,
        seed: plan.seed,
        limit: Some(LIMIT),
    };
    live.crash_points(wanted, writer, &mut told, &mut recorded)
}
