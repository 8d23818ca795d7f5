//! A caller that starts the daemon repeatedly, as cron does, and a SIGKILL for each start.

use rundir::faults::{Fact, KILLED_DAEMON, Return};

use super::super::bed::{Injected, ScenarioError, TestBed};
use super::super::crash_points::{Hits, Settings};

/// Runs the scenario with `kills` starts.
pub fn run(bed: &mut TestBed, kills: u32) -> Injected {
    let settings = Settings::of_work(&bed.scenario.work);
    bed.open()?;
    bed.injected(format!(
        "{kills} starts, each hit by kill -9 while it wrote"
    ));
    let mut hits = Hits::default();
    for kill in 0..u64::from(kills) {
        // The break's reason is already recorded.
        if hits.hit(bed, &settings, kill)?.is_break() {
            break;
        }
    }
    if hits.newly_acknowledged + hits.unacknowledged == 0 {
        let message = "no change had begun at any of the kills: nothing was hit";
        return Err(ScenarioError::Infra(message.into()));
    }
    bed.fact("in_flight", Fact::Count(hits.in_flight));
    bed.fact("unacknowledged", Fact::Count(hits.unacknowledged));
    let (median, longest) = hits.recovery_ms();
    bed.fact("recovery_ms_median", Fact::Number(median));
    bed.fact("recovery_ms_longest", Fact::Number(longest));
    if bed.outcome.recovery.is_none() {
        bed.recovered(Return::NextMount, longest as u64, None);
    }
    bed.outcome
        .audits
        .insert(KILLED_DAEMON.to_owned(), hits.audit);
    Ok(())
}
