//! A cron-style caller whose daemon is killed again and again.

use reports::faults::{Fact, KILLED_DAEMON, Return};

use super::super::crash_points::{Hits, Settings};
use super::super::stage::{Played, Spoiled, Stage};

/// So many starts, each hit by `kill -9`.
pub fn play(stage: &mut Stage, kills: u32) -> Played {
    let settings = Settings::of_work(&stage.scenario.work);
    stage.open()?;
    stage.injected(format!(
        "{kills} starts, each hit by kill -9 while it wrote"
    ));
    let mut hits = Hits::default();
    for kill in 0..u64::from(kills) {
        // What is the matter is noted.
        if hits.hit(stage, &settings, kill)?.is_break() {
            break;
        }
    }
    if hits.newly_acknowledged + hits.unacknowledged == 0 {
        let message = "no change had begun at any of the kills: nothing was hit";
        return Err(Spoiled::Infra(message.into()));
    }
    stage.fact("in_flight", Fact::Count(hits.in_flight));
    stage.fact("unacknowledged", Fact::Count(hits.unacknowledged));
    let (median, longest) = hits.recovery_ms();
    stage.fact("recovery_ms_median", Fact::Number(median));
    stage.fact("recovery_ms_longest", Fact::Number(longest));
    if stage.outcome.recovery.is_none() {
        stage.recovered(Return::NextMount, longest as u64, None);
    }
    stage
        .outcome
        .audits
        .insert(KILLED_DAEMON.to_owned(), hits.audit);
    Ok(())
}
