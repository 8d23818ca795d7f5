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

use backends::backend::Site;
use rundir::{Fault, Outcome, SCHEMA_VERSION};

use super::{Prober, STEP_LIMIT};
use crate::supervise::Watchdog;

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

/// Records that a start may write while it is being hit, at most.
const RECORDS_MAX: u64 = 10_000;

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

pub(super) fn run(prober: &Prober, watchdog: &Watchdog) -> io::Result<Vec<Fault>> {
    let capabilities = prober.backend.describe().capabilities;
    // What forgets everything when its daemon stops has promised nothing that could be lost.
    if !capabilities.holds_data || !capabilities.persistent {
        return Ok(Vec::new());
    }
    watchdog.enter(STEP_LIMIT);
    let site = prober.site("cron")?;
    let mut faults: Vec<Fault> = Vec::new();
    let mut acknowledged = Vec::new();
    for moment in MOMENTS.map(Some).into_iter().chain([None]) {
        if let Err(error) = start(
            prober,
            watchdog,
            &site,
            moment,
            &mut faults,
            &mut acknowledged,
        ) {
            // Before the first kill it is not a fault that was survived badly: nothing was tested.
            let Some(last) = faults.last_mut() else {
                return Err(error);
            };
            last.recovered = false;
            last.outcome = Outcome::Errno;
            last.detail += &format!("; the next start failed: {error}");
            break;
        }
    }
    watchdog.leave();
    Ok(faults)
}

/// One start by cron: looks at what is there, writes more, and is hit, unless it is the last.
fn start(
    prober: &Prober,
    watchdog: &Watchdog,
    site: &Site,
    moment: Option<Moment>,
    faults: &mut Vec<Fault>,
    acknowledged: &mut Vec<u64>,
) -> io::Result<()> {
    watchdog.enter(STEP_LIMIT);
    let started = Instant::now();
    let mut workspace = prober.backend.open(site)?;
    watchdog.depend_on(workspace.kill_handle());
    if let Some(last) = faults.last_mut() {
        settle(last, workspace.root(), acknowledged, started.elapsed());
    }
    let Some(moment) = moment else {
        return workspace.close();
    };
    let records = workspace.root().join("records");
    fs::create_dir_all(&records)?;
    let sync = moment != Moment::BeforeSync;
    // No number twice, whatever was lost: a record that is written again would hide it.
    let first = faults.len() as u64 * RECORDS_MAX;
    let mut written: Vec<u64> = (first..first + RECORDS).collect();
    for number in &written {
        write_record(&records, *number, sync)?;
    }
    let mut failed_calls = 0;
    let killed = if moment == Moment::Writing {
        let next = first + RECORDS;
        let (killed, more, failed) = kill_while_writing(&mut *workspace, &records, next)?;
        written.extend(next..next + more);
        failed_calls += failed;
        killed
    } else {
        workspace.kill()?
    };
    // Without a daemon, what is killed is the caller: nothing goes on running.
    watchdog.independent();
    // What the caller sees of it before it gives up.
    if fs::metadata(&records).is_err() {
        failed_calls += 1;
    }
    drop(workspace);
    let detail = if killed {
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
        killed,
        recovered: false,
        recovery_ms: 0,
        acknowledged: written.len() as u64,
        lost: 0,
        failed_calls,
    });
    acknowledged.extend(written);
    Ok(())
}

/// Notes how the caller came back, and what was lost: each record counts for the kill that it did not
/// survive.
fn settle(fault: &mut Fault, root: &Path, acknowledged: &mut Vec<u64>, recovery: Duration) {
    fault.recovered = true;
    fault.recovery_ms = recovery.as_millis() as u64;
    let records = root.join("records");
    let is_whole = |number: &u64| {
        fs::read_to_string(records.join(record_name(*number)))
            .is_ok_and(|text| text == record_text(*number))
    };
    let before = acknowledged.len();
    acknowledged.retain(is_whole);
    fault.lost = (before - acknowledged.len()) as u64;
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
