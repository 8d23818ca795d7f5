//! A thousand crash points on one backend, and what comes to light: killed daemons, the loss of the machine where there is a
//! bucket, power loss where it can be simulated.

use std::path::Path;
use std::time::Instant;

use reports::faults::{Audit, CrashPoints, KILLED_DAEMON, MACHINE_LOSS, POWER_LOSS};
use reports::run::SCHEMA_VERSION;

use super::agent::Task;
use super::crash_points::{Hits, Settings};
use super::power_loss::PowerCuts;
use super::stage::{Played, Spoiled, Stage};

/// After how many points the bucket is looked at as if the machine were gone.
const POINTS_A_MACHINE: u64 = 50;

/// What is written.
const SETTINGS: Settings = Settings {
    records: 48,
    bytes: 512,
};

/// Sees how far it is.
pub type Progress<'a> = &'a mut dyn FnMut(u64);

/// Kills the daemon of an open stage so often; the bucket, where there is one, is looked at in between.
pub fn kills(stage: &mut Stage, points: u64, progress: Progress<'_>) -> Played<Vec<CrashPoints>> {
    let began = Instant::now();
    stage.open()?;
    let mut hits = Hits::default();
    let mut machines = (0, Audit::default());
    let has_bucket = stage.backend.promises().machine_loss.is_some();
    for point in 0..points {
        hits.hit(stage, &SETTINGS, point)?;
        progress(point + 1);
        if has_bucket && (point + 1) % POINTS_A_MACHINE == 0 {
            // What was synced at the last look must be there whatever has happened since; then all of it.
            lose_machine(stage, point, &mut machines)?;
            sync(stage)?;
            lose_machine(stage, point, &mut machines)?;
        } else if !has_bucket && let Some(class) = stage.backend.promises().killed_daemon {
            stage.history.shorten(class);
        }
    }
    let line = |loss: &str, how: &str, points, hits: Option<&Hits>, audit| CrashPoints {
        v: SCHEMA_VERSION,
        backend: stage.outcome.backend.clone(),
        loss: loss.to_owned(),
        how: how.to_owned(),
        seed: stage.seed,
        points,
        in_flight: hits.map_or(0, |hits| hits.in_flight),
        unjudged: 0,
        mixtures: 0,
        audit,
        recovery_ms: hits.map_or((0.0, 0.0), Hits::recovery_ms),
        took_ms: began.elapsed().as_millis() as u64,
    };
    let audit = hits.audit.clone();
    let how = "kill -9 of the daemon at a seeded moment of a stream of changes, over a real mount; all records are looked at after each";
    let mut lines = vec![line(KILLED_DAEMON, how, hits.points, Some(&hits), audit)];
    if has_bucket {
        let how = "a second mount without a cache, every 50 kills: once before and once after ctxbench sync; the local cache is not asked";
        lines.push(line(MACHINE_LOSS, how, machines.0, None, machines.1));
    }
    Ok(lines)
}

/// Has everything be in the bucket.
fn sync(stage: &mut Stage) -> Played {
    let task = Task::Sync { root: stage.root() };
    let answer = stage.perform(&task)?;
    if answer.is_none_or(|answer| !answer.failures.is_empty()) {
        return Err(Spoiled::Infra(
            "ctxbench sync failed between crash points".into(),
        ));
    }
    let class = backends::promise::Acknowledgement::Sync;
    stage.history.acknowledge_all(class);
    stage.history.shorten(class);
    Ok(())
}

/// What another machine finds in the bucket.
fn lose_machine(stage: &mut Stage, point: u64, machines: &mut (u64, Audit)) -> Played {
    let Some(mut audit) = stage.audit_machine_loss()? else {
        return Err(Spoiled::Infra("there is nothing to mount".into()));
    };
    machines.0 += 1;
    for example in &mut audit.examples {
        *example = format!("after point {point}: {example}");
    }
    machines.1.add(&audit);
    Ok(())
}

/// Cuts the power so often, under the store itself.
pub fn power_cuts(stage: &Stage, points: u64, progress: Progress<'_>) -> Played<CrashPoints> {
    let began = Instant::now();
    // In memory where there is such a place: what a disk keeps is decided here, and need not be waited for.
    let memory = Path::new("/dev/shm");
    let parent = Some(memory).filter(|memory| memory.is_dir());
    let dir = tempfile::Builder::new()
        .prefix("ctxbench-power-")
        .tempdir_in(parent.unwrap_or(&stage.site.dir))?;
    let mut cuts = PowerCuts::new(dir.path(), stage.seed)?;
    let mut at = 0;
    while at < points {
        if stage.interrupt.is_set() {
            return Err(Spoiled::Interrupted);
        }
        if let Err(error) = cuts.cut(at) {
            if cuts.losses.audit.unreadable > 0 {
                // It is counted, and there is nothing to go on with.
                break;
            }
            return Err(error.into());
        }
        at += 1;
        progress(at);
    }
    let losses = cuts.losses;
    Ok(CrashPoints {
        v: SCHEMA_VERSION,
        backend: stage.outcome.backend.clone(),
        loss: POWER_LOSS.to_owned(),
        how: "SIMULATED, without FUSE: by the seed, each page or sector of database and log is as at the last fsync or as at the cut; no tails".to_owned(),
        seed: stage.seed,
        points: losses.points,
        in_flight: 0,
        unjudged: losses.unjudged,
        mixtures: losses.mixtures,
        audit: losses.audit,
        recovery_ms: (0.0, 0.0),
        took_ms: began.elapsed().as_millis() as u64,
    })
}
