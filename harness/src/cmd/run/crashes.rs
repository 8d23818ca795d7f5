//! Kills and simulated power cuts of the stores of a run, which promise to survive them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rundir::faults::CrashPoints;
use rundir::{Plan, Writer};

use crate::crash_words::crash_words;
use crate::progress_line::ProgressLine;
use runner::plan::{BASELINE, LiveArm};
use trial::interrupt::Interrupt;
use trial::probes::KILLS_LIMIT;
use trial::{CrashPointPlan, LiveExecutor, ScheduleEnd, has_crash_points, of_points};

/// How long all kills and power cuts of a run take: those of cron jobs' daemons, then those of stores.
const USUAL: Duration = Duration::from_secs(45);

/// The most time for them. On a busy or slow machine they take longer, and a policy asks for a number of them.
const LIMIT: Duration = Duration::from_secs(120);

/// The stores that promise to keep records, and that this shard of the plan tries.
fn stores<'a>(plan: &'a Plan, arms: &'a [LiveArm]) -> impl Iterator<Item = &'a LiveArm> {
    let promises = |arm: &&LiveArm| {
        let promises = arm.backend.promises();
        let is_store = arm.backend.has_paths() && arm.backend.source(Path::new("")).is_none();
        is_store && (promises.killed_daemon.is_some() || promises.power_loss.is_some())
    };
    arms.iter().filter(|arm| plan.tries_arm(&arm.name)).filter(promises)
}

/// How long the kills of cron jobs' daemons of `arms`, and the kills and power cuts of `crashed`, are expected to take.
pub(super) fn usual_time(plan: &Plan, arms: &[LiveArm], crashed: &[LiveArm]) -> Duration {
    let has_cron_kills = |arm: &&LiveArm| {
        plan.probes_arm(&arm.name) && arm.backend.describe().daemons > 0 && !has_crash_points(&*arm.backend)
    };
    let cron_kills = KILLS_LIMIT * arms.iter().filter(has_cron_kills).count() as u32;
    let points = of_points(plan.crash_points, stores(plan, crashed).map(|arm| &*arm.backend));
    (cron_kills + points).min(USUAL)
}

/// Makes the planned kills and power cuts of each arm that was not in the lines of `before`. Kills of a cron job's daemons took
/// `killing` of the time.
pub(super) fn crash(
    plan: &Plan,
    arms: &[LiveArm],
    before: Option<Vec<CrashPoints>>,
    (scratch, killing): (&Path, Duration),
    writer: &Writer,
    interrupt: &Interrupt,
) -> anyhow::Result<ScheduleEnd> {
    let points = plan.crash_points;
    let before = before.into_iter().flatten();
    let done: BTreeSet<String> = before.map(|points| points.backend).collect();
    let mut stores: Vec<&LiveArm> = stores(plan, arms).filter(|arm| !done.contains(&arm.name)).collect();
    // If the time is too short, the candidates have it.
    stores.sort_by_key(|arm| arm.name == BASELINE);
    let backends: Vec<_> = stores.into_iter().map(|arm| (arm.backend.clone(), None)).collect();
    if points == 0 || backends.is_empty() {
        return Ok(ScheduleEnd::Complete);
    }
    let limit = LIMIT.saturating_sub(killing);
    eprintln!(
        "killing daemons and simulating power cuts, {points} times for each store (at most {:.0} s)",
        limit.as_secs_f64()
    );
    let live = LiveExecutor {
        scenarios: Vec::new(),
        backends,
        scratch: scratch.to_owned(),
        program: std::env::current_exe().context("finding the ctxbench binary")?,
        interrupt: interrupt.clone(),
        is_long: false,
        sites: 0,
    };
    let line = ProgressLine::still();
    let mut told = |backend: &str, what: &str, at: u64| {
        let share = at as f64 / points as f64;
        line.show(share, None, &format!("{backend}: {at} of {points} {what}"));
    };
    let mut recorded = |lines: &[CrashPoints]| line.say(&crash_words(lines));
    let wanted = CrashPointPlan { points, seed: plan.seed, limit: Some(limit) };
    live.crash_points(wanted, writer, &mut told, &mut recorded)
}
