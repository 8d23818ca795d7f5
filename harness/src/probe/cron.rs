//! A caller that cron starts again and again, while its backend's daemon is killed in between.
//!
//! Each start opens the workspace, checks every record that was ever acknowledged, and writes more.
//! Nobody helps: if a dead mount is in the way of the next start, that start has to deal with it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reports::run::{Fault, Outcome, SCHEMA_VERSION};

use super::{Prober, STEP_LIMIT};
use crate::supervise::Pulse;

/// The scenario's name in `faults.jsonl`.
pub(super) const SCENARIO: &str = "cron-kill";

/// When the daemon is killed; each once.
const MOMENTS: [Moment; 4] = [
    Moment::Idle,
    Moment::Writing,
    Moment::BeforeSync,
    Moment::Writing,
];

/// Records that a start writes before it is hit.
const RECORDS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// After all records have been written and synced.
    Idle,
    /// While records are being written.
    Writing,
    /// After a record has been written and closed, before anything is synced.
    BeforeSync,
}

impl Moment {
    fn words(self) -> &'static str {
        match self {
            Moment::Idle => "killed while idle, after fsync",
            Moment::Writing => "killed while writing",
            Moment::BeforeSync => "killed after close, before fsync",
        }
    }
}

pub(super) fn run(prober: &Prober, pulse: &Pulse) -> io::Result<Vec<Fault>> {
    let capabilities = prober.backend.describe().capabilities;
    // What forgets everything when its daemon stops has promised nothing that could be lost.
    if !capabilities.holds_data || !capabilities.persistent {
        return Ok(Vec::new());
    }
    pulse.enter(STEP_LIMIT);
    let site = prober.site("cron")?;
    let mut acknowledged = 0;
    let mut faults: Vec<Fault> = Vec::new();
    for moment in MOMENTS {
        pulse.enter(STEP_LIMIT);
        let started = Instant::now();
        let opened = prober.backend.open(&site);
        let mut workspace = match opened {
            Ok(workspace) => workspace,
            Err(error) => {
                if let Some(last) = faults.last_mut() {
                    last.recovered = false;
                    last.detail += &format!("; the next start failed: {error}");
                }
                return Ok(faults);
            }
        };
        pulse.depend_on(workspace.lifeline());
        let recovery = started.elapsed();
        if let Some(last) = faults.last_mut() {
            settle(last, workspace.root(), acknowledged, recovery);
        }
        let records = workspace.root().join("records");
        fs::create_dir_all(&records)?;
        let sync = moment != Moment::BeforeSync;
        let mut failed_calls = 0;
        for number in acknowledged..acknowledged + RECORDS {
            write_record(&records, number, sync)?;
        }
        acknowledged += RECORDS;
        let was_killed = if moment == Moment::Writing {
            let (killed, more, failed) =
                kill_while_writing(&mut *workspace, &records, acknowledged)?;
            acknowledged += more;
            failed_calls += failed;
            killed
        } else {
            workspace.kill()?
        };
        // What the caller sees of it before it gives up.
        if fs::metadata(&records).is_err() {
            failed_calls += 1;
        }
        drop(workspace);
        let detail = if was_killed {
            moment.words()
        } else {
            "there is no daemon to kill"
        };
        faults.push(Fault {
            v: SCHEMA_VERSION,
            scenario: SCENARIO.to_owned(),
            arm: prober.arm.clone(),
            outcome: Outcome::Ok,
            detail: detail.to_owned(),
            recovered: false,
            recovery_ms: 0,
            acknowledged,
            lost: 0,
            failed_calls,
        });
    }
    pulse.enter(STEP_LIMIT);
    let started = Instant::now();
    let workspace = prober.backend.open(&site)?;
    pulse.depend_on(workspace.lifeline());
    if let Some(last) = faults.last_mut() {
        settle(last, workspace.root(), acknowledged, started.elapsed());
    }
    workspace.close()?;
    pulse.leave();
    Ok(faults)
}

/// Notes how the caller came back, and what was lost.
fn settle(fault: &mut Fault, root: &Path, acknowledged: u64, recovery: Duration) {
    fault.recovered = true;
    fault.recovery_ms = recovery.as_millis() as u64;
    let records = root.join("records");
    let is_whole = |number: &u64| {
        fs::read_to_string(records.join(record_name(*number)))
            .is_ok_and(|text| text == record_text(*number))
    };
    fault.lost = (0..acknowledged).filter(|number| !is_whole(number)).count() as u64;
}

/// Kills the daemon a few milliseconds into a stream of writes: whether there was one to kill, how
/// many writes were acknowledged, how many failed.
fn kill_while_writing(
    workspace: &mut dyn backends::backend::Workspace,
    records: &Path,
    first: u64,
) -> io::Result<(bool, u64, u64)> {
    let done = Arc::new(AtomicU64::new(0));
    let (counter, dir) = (Arc::clone(&done), records.to_owned());
    let writer = std::thread::spawn(move || {
        // A backend without a daemon is never cut off: it stops by itself.
        for number in first..first + 2000 {
            if write_record(&dir, number, false).is_err() {
                return 1;
            }
            counter.fetch_add(1, Ordering::SeqCst);
        }
        0
    });
    std::thread::sleep(Duration::from_millis(10));
    let killed = workspace.kill()?;
    let failed = writer
        .join()
        .map_err(|_| io::Error::other("the writer panicked"))?;
    Ok((killed, done.load(Ordering::SeqCst), failed))
}

/// Writes a record; it is acknowledged when this returns.
fn write_record(dir: &Path, number: u64, sync: bool) -> io::Result<()> {
    use std::io::Write;
    let mut file = fs::File::create(dir.join(record_name(number)))?;
    file.write_all(record_text(number).as_bytes())?;
    if sync {
        file.sync_all()?;
    }
    Ok(())
}

fn record_name(number: u64) -> String {
    format!("r{number:06}")
}

/// Text that no other record has, and that shows if a part of it is missing.
fn record_text(number: u64) -> String {
    let word = format!("{:016x}", (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    format!("{number} {}\n", word.repeat(8))
}
