//! A caller that cron starts repeatedly, while the backend's daemon is killed between or during the starts.
//!
//! Each start opens the workspace, checks every acknowledged record, and writes more. Nothing cleans up between
//! starts: the next start must handle a dead mount itself. What a view shows is written by another program: into the plain
//! directory, or as messages into the database.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arms::backend::WorkspaceConfig;
use arms::source::Source;
use rundir::{Fault, Outcome};
use rusqlite::{Connection, params};

use super::{Prober, STEP_LIMIT};
use crate::record::{State, content, identify, name};
use crate::watchdog::Watchdog;

/// When the daemon is killed, one moment for each start.
const MOMENTS: [Moment; 4] = [Moment::Idle, Moment::Writing, Moment::BeforeSync, Moment::Writing];

/// Records that a start writes before the kill.
const RECORDS: u64 = 20;

/// The same in a short series.
const FEW_RECORDS: u64 = 5;

/// The most time for the short series of an arm's kills.
pub const KILLS_LIMIT: Duration = Duration::from_secs(10);

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
    if !capabilities.holds_data || !capabilities.persistent {
        return Ok(Vec::new());
    }
    let until = Instant::now() + KILLS_LIMIT;
    // Many short series hit more states than a few long ones.
    let is_long = prober.kills == 0;
    let mut faults = series(prober, watchdog, (0, is_long))?;
    // Without a daemon, or after a start that failed, another series shows nothing new.
    let is_worth_more = |faults: &[Fault]| {
        let mut all = faults.iter();
        (faults.len() as u64) < prober.kills
            && all.all(|fault| fault.killed && fault.recovered)
            && Instant::now() < until
            && !prober.interrupt.is_set()
    };
    for number in 1.. {
        if !is_worth_more(&faults) {
            break;
        }
        match series(prober, watchdog, (number, is_long)) {
            Ok(more) => faults.extend(more),
            Err(error) => {
                faults.push(prober.fault(Outcome::Infra, &error.to_string()));
                break;
            }
        }
    }
    Ok(faults)
}

/// A kill at each of [`MOMENTS`], in a workspace of its own.
fn series(prober: &Prober, watchdog: &Watchdog, (number, is_long): (u64, bool)) -> io::Result<Vec<Fault>> {
    watchdog.enter(STEP_LIMIT);
    let config = prober.workspace_config(&format!("cron-{number}"))?;
    let source = prober.backend.source(&config.dir);
    source.map_or(Ok(()), |source| source.make())?;
    let mut faults: Vec<Fault> = Vec::new();
    let mut acknowledged = Vec::new();
    for moment in MOMENTS.map(Some).into_iter().chain([None]) {
        if let Err(error) = start(prober, watchdog, &config, (moment, is_long), &mut faults, &mut acknowledged) {
            // An error before the first kill does not result from a fault.
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
    if faults.iter().all(|fault| fault.recovered)
        && let Err(error) = fs::remove_dir_all(&config.dir)
    {
        tracing::warn!("removing {}: {error}", config.dir.display());
    }
    Ok(faults)
}

/// One start by cron: checks the records and writes more. The daemon is killed at `moment`; the last start has
/// none. Only a long series writes many records.
fn start(
    prober: &Prober,
    watchdog: &Watchdog,
    config: &WorkspaceConfig,
    (moment, is_long): (Option<Moment>, bool),
    faults: &mut Vec<Fault>,
    acknowledged: &mut Vec<u64>,
) -> io::Result<()> {
    watchdog.enter(STEP_LIMIT);
    let started = Instant::now();
    let mut workspace = prober.backend.open(config)?;
    watchdog.depend_on(workspace.kill_handle());
    let records = Records::of(prober, config, workspace.root());
    if let Some(last) = faults.last_mut() {
        settle(last, &records, acknowledged, started.elapsed());
    }
    let Some(moment) = moment else {
        return workspace.close();
    };
    records.make()?;
    let sync = moment != Moment::BeforeSync;
    // Never reuse a number: writing a lost record again would hide the loss.
    let first = faults.len() as u64 * RECORDS_MAX;
    let count = if is_long { RECORDS } else { FEW_RECORDS };
    let mut written: Vec<u64> = (first..first + count).collect();
    for number in &written {
        records.write(*number, sync)?;
    }
    let mut failed_calls = 0;
    let killed = if moment == Moment::Writing {
        let next = first + count;
        let most = next + records.most(is_long);
        let (killed, more, failed) = kill_while_writing(&mut *workspace, &records, next..most)?;
        written.extend(next..next + more);
        failed_calls += failed;
        killed
    } else {
        workspace.kill()?
    };
    // The daemon is gone, so the watchdog has nothing to kill.
    watchdog.independent();
    // The caller's last call before it gives up.
    if fs::metadata(records.shown()).is_err() {
        failed_calls += 1;
    }
    drop(workspace);
    let detail = if killed { moment.words() } else { "there is no daemon to kill" };
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
fn settle(fault: &mut Fault, records: &Records, acknowledged: &mut Vec<u64>, recovery: Duration) {
    fault.recovered = true;
    fault.recovery_ms = recovery.as_millis() as u64;
    let before = acknowledged.len();
    let whole = records.whole(acknowledged);
    *acknowledged = whole;
    fault.lost = (before - acknowledged.len()) as u64;
}

/// Kills the daemon 10 ms after the start of a stream of writes. Returns whether there was a daemon, the number of
/// acknowledged writes, and the number of failed ones.
fn kill_while_writing(
    workspace: &mut dyn arms::backend::Workspace,
    records: &Records,
    numbers: Range<u64>,
) -> io::Result<(bool, u64, u64)> {
    let done = Arc::new(AtomicU64::new(0));
    let (counter, records) = (Arc::clone(&done), records.clone());
    let writer = std::thread::spawn(move || {
        // Writes that do not pass through the daemon never fail, so the loop needs an end.
        for number in numbers {
            if records.write(number, false).is_err() {
                return 1;
            }
            counter.fetch_add(1, Ordering::SeqCst);
        }
        0
    });
    std::thread::sleep(Duration::from_millis(10));
    let killed = workspace.kill()?;
    let failed = writer.join().map_err(|_| io::Error::other("the writer panicked"))?;
    Ok((killed, done.load(Ordering::SeqCst), failed))
}

/// Where the records of the caller are written and read.
#[derive(Clone, Debug)]
enum Records {
    /// As files. Both places differ for a view of a plain directory.
    Files { written: PathBuf, shown: PathBuf },
    /// As messages of a database, of which a view shows each as a file.
    Messages { database: PathBuf, shown: PathBuf },
}

/// The sender of all messages.
const SENDER: &str = "cron";

impl Records {
    fn of(prober: &Prober, config: &WorkspaceConfig, root: &Path) -> Self {
        match prober.backend.source(&config.dir) {
            Some(Source::Database(database)) => Records::Messages { database, shown: root.join("inbox").join(SENDER) },
            // A view shows the files of a directory, and none of the directories in it.
            Some(Source::Directory(plain)) => {
                Records::Files { written: plain.join("state"), shown: root.join("state") }
            }
            None => Records::Files { written: root.join("records"), shown: root.join("records") },
        }
    }

    /// The directory in which a reader looks for them.
    fn shown(&self) -> &Path {
        match self {
            Records::Files { shown, .. } | Records::Messages { shown, .. } => shown,
        }
    }

    /// The most records that are written while the daemon is killed.
    fn most(&self, is_long: bool) -> u64 {
        match self {
            Records::Files { .. } if is_long => 2000,
            Records::Files { .. } => 200,
            // Each is a commit, and each later start reads it through queries.
            Records::Messages { .. } if is_long => 200,
            Records::Messages { .. } => 20,
        }
    }

    fn make(&self) -> io::Result<()> {
        match self {
            Records::Files { written, .. } => fs::create_dir_all(written),
            Records::Messages { .. } => Ok(()),
        }
    }

    /// Writes a record. The record is acknowledged once this returns.
    fn write(&self, number: u64, sync: bool) -> io::Result<()> {
        use std::io::Write;
        let bytes = content(SEED, number, VERSION, RECORD_BYTES);
        match self {
            Records::Files { written, .. } => {
                let mut file = fs::File::create(written.join(name(number)))?;
                file.write_all(&bytes)?;
                if sync {
                    file.sync_all()?;
                }
                Ok(())
            }
            Records::Messages { database, .. } => insert(database, number, &bytes, sync).map_err(io::Error::other),
        }
    }

    /// The records of these that a reader finds whole.
    fn whole(&self, numbers: &[u64]) -> Vec<u64> {
        let is_whole = |path: &Path, number: u64| {
            fs::read(path).is_ok_and(|bytes| {
                let bytes = match self {
                    Records::Files { .. } => &bytes[..],
                    Records::Messages { .. } => body(&bytes),
                };
                identify(SEED, number, bytes) == State::Whole(VERSION)
            })
        };
        let paths: BTreeMap<u64, PathBuf> = match self {
            Records::Files { shown, .. } => {
                let paths = numbers.iter();
                paths.map(|number| (*number, shown.join(name(*number)))).collect()
            }
            Records::Messages { shown, .. } => messages(shown),
        };
        let mut whole = numbers.to_vec();
        whole.retain(|number| paths.get(number).is_some_and(|path| is_whole(path, *number)));
        whole
    }
}

/// Commits a record as a message.
fn insert(database: &Path, number: u64, bytes: &[u8], sync: bool) -> rusqlite::Result<()> {
    let db = Connection::open(database)?;
    db.busy_timeout(STEP_LIMIT)?;
    let synchronous = if sync { "FULL" } else { "NORMAL" };
    db.pragma_update(None, "synchronous", synchronous)?;
    let sql = "INSERT INTO messages (id, thread_id, sender, recipient, sent_at, subject, body, folder) VALUES (?1, 1, ?2, 'me', '2026-01-01T00:00:00Z', 'record', ?3, 'inbox')";
    // Ids of messages begin with 1.
    let text = String::from_utf8_lossy(bytes);
    db.execute(sql, params![number as i64 + 1, SENDER, text])?;
    Ok(())
}

/// The files of a directory by the record that each is: `2026-01-01 record 7.eml` is record 6.
fn messages(dir: &Path) -> BTreeMap<u64, PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return BTreeMap::new();
    };
    let numbered = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let file = entry.file_name();
        let id = file.to_str()?.strip_suffix(".eml")?.rsplit(' ').next()?;
        Some((id.parse::<u64>().ok()?.checked_sub(1)?, entry.path()))
    });
    numbered.collect()
}

/// The text of a message, without its head and the line feed at its end.
fn body(message: &[u8]) -> &[u8] {
    let head = message.windows(2).position(|pair| pair == b"\n\n");
    let body = head.map_or(message, |at| &message[at + 2..]);
    body.strip_suffix(b"\n").unwrap_or(body)
}
