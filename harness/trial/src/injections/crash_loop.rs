//! A caller that starts the daemon repeatedly, as cron does, and a SIGKILL for each start.

use std::time::Duration;

use rundir::faults::{Fact, KILLED_DAEMON, Return};

use super::super::bed::{StepResult, TestBed, infra};
use super::super::crash_points::Hits;

/// Runs the scenario with `kills` starts.
pub fn run(bed: &mut TestBed, kills: u32) -> StepResult {
    bed.open()?;
    bed.injected(format!("{kills} starts, each hit by kill -9 while it wrote"));
    let mut hits = Hits::new(bed, KILLED_DAEMON);
    for kill in 0..u64::from(kills) {
        // The break's reason is already recorded.
        if hits.hit(bed, kill)?.is_break() {
            break;
        }
    }
    let line = &hits.line;
    let unacknowledged = line.unacknowledged.unwrap_or(0);
    if line.newly_acknowledged.unwrap_or(0) + unacknowledged == 0 {
        return infra("no change was in progress at any kill: the fault hit nothing");
    }
    bed.count("in_flight", line.in_flight.unwrap_or(0));
    bed.count("unacknowledged", unacknowledged);
    let (median, longest) = hits.recovery_ms();
    bed.fact("recovery_ms_median", Fact::Number(median));
    bed.fact("recovery_ms_longest", Fact::Number(longest));
    if bed.outcome.recovery.is_none() {
        let longest = Duration::from_secs_f64(longest / 1e3);
        bed.recovered(Return::NextMount, longest, None);
    }
    bed.audited(KILLED_DAEMON, hits.line.audit);
    Ok(())
}
