//! A caller that cron starts repeatedly, while the backend's daemon is killed between or during the starts.
//!
//! Each start opens the workspace, checks every acknowledged record, and writes more. Nothing cleans up between
//! starts: the next start must handle a dead mount itself.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use backends::backend::WorkspaceConfig;
use fault::record::{State, content, identify, name};
use rundir::{Fault, Outcome};

use super::{Prober, STEP_LIMIT};
use crate::supervise::Watchdog;

/// The scenario's name in `faults.jsonl`.
pub(super) const SCENARIO: &str = "cron-kill";

/// When the daemon is killed, one moment for each start.
const MOMENTS: [Moment; 4] = [
    Moment::Idle,
    Moment::Writing,
    Moment::BeforeSync,
    Moment::Writing,
];

/// Records that a start writes before the kill.
const RECORDS: u64 = 20;

/// Upper bound of the records of a start; record numbers of two starts differ by it.
const RECORDS_MAX: u64 = 10_000;

/// Bytes of a record.
const RECORD_BYTES: usize = 128;

/// The seed and the version of all records.
const SEED: u64 = 0;
const VERSION: u64 = 0;

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
    // A backend that is not persistent promises nothing that a kill could lose.
    if !capabilities.holds_data || !capabilities.persistent || prober.shows_rows() {
        return Ok(Vec::new());
    }
    watchdog.enter(STEP_LIMIT);
    let config = prober.workspace_config("cron")?;
    let mut faults: Vec<Fault> = Vec::new();
    let mut acknowledged = Vec::new();
    for moment in MOMENTS.map(Some).into_iter().chain([None]) {
        if let Err(error) = start(
            prober,
            watchdog,
            &config,
            moment,
            &mut faults,
            &mut acknowledged,
        ) {
            // An error before the first kill is no result of a fault.
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

/// One start by cron: checks the records and writes more. The daemon is killed at `moment`; the last start has
/// none.
fn start(
    prober: &Prober,
    watchdog: &Watchdog,
    config: &WorkspaceConfig,
    moment: Option<Moment>,
    faults: &mut Vec<Fault>,
    acknowledged: &mut Vec<u64>,
) -> io::Result<()> {
    watchdog.enter(STEP_LIMIT);
    let started = Instant::now();
    let mut workspace = prober.backend.open(config)?;
    watchdog.depend_on(workspace.kill_handle());
    let (written_to, read_from) = prober.places(config, &*workspace);
    // A view shows the files of a directory, and none of the directories in it.
    let (records, shown) = match written_to == read_from {
        true => (written_to.join("records"), read_from.join("records")),
        false => (written_to, read_from),
    };
    if let Some(last) = faults.last_mut() {
        settle(last, &shown, acknowledged, started.elapsed());
    }
    let Some(moment) = moment else {
        return workspace.close();
    };
    fs::create_dir_all(&records)?;
    let sync = moment != Moment::BeforeSync;
    // Never reuse a number: writing a lost record again would hide the loss.
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
    // The daemon is gone, so the watchdog has nothing to kill.
    watchdog.independent();
    // The caller's last call before it gives up.
    if fs::metadata(&shown).is_err() {
        failed_calls += 1;
    }
    drop(workspace);
    let detail = if killed {
        moment.words()
    } else {
        "there is no daemon to kill"
    };
    faults.push(Fault {
        killed,
        acknowledged: written.len() as u64,
        failed_calls,
        ..prober.fault(Outcome::Ok, detail)
    });
    acknowledged.extend(written);
    Ok(())
}

/// Records the recovery of the caller and the lost records. A record counts for the first kill that it did not
/// survive.
fn settle(fault: &mut Fault, records: &Path, acknowledged: &mut Vec<u64>, recovery: Duration) {
    fault.recovered = true;
    fault.recovery_ms = recovery.as_millis() as u64;
    let is_whole = |number: &u64| {
        fs::read(records.join(name(*number)))
            .is_ok_and(|bytes| identify(SEED, *number, &bytes) == State::Whole(VERSION))
    };
    let before = acknowledged.len();
    acknowledged.retain(is_whole);
    fault.lost = (before - acknowledged.len()) as u64;
}

/// Kills the daemon 10 ms after the start of a stream of writes. Returns whether there was a daemon, the number of
/// acknowledged writes, and the number of failed ones.
fn kill_while_writing(
    workspace: &mut dyn backends::backend::Workspace,
    records: &Path,
    first: u64,
) -> io::Result<(bool, u64, u64)> {
    let done = Arc::new(AtomicU64::new(0));
    let (counter, dir) = (Arc::clone(&done), records.to_owned());
    let writer = std::thread::spawn(move || {
        // Without a daemon no write fails, so the loop needs an end.
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

/// Writes a record. The record is acknowledged once this returns.
fn write_record(dir: &Path, number: u64, sync: bool) -> io::Result<()> {
    use std::io::Write;
    let mut file = fs::File::create(dir.join(name(number)))?;
    file.write_all(&content(SEED, number, VERSION, RECORD_BYTES))?;
    if sync {
        file.sync_all()?;
    }
    Ok(())
}
