//! Outages of the S3 server: no request succeeds for a while, and the agent process continues to work.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use backends::promise::Acknowledgement;
use rundir::faults::{Fact, IN_USE, Return};
use rustix::process::Signal;
use servers::{Fault, Operation, Rule};
use workloads::fault::OutageCause;

use super::super::super::agent::{RemoteTask, Series, Task};
use super::super::super::bed::{Injected, ScenarioError, TestBed};
use super::world::{World, memory_peak, names, recover, sync, watch_memory, whole};
use super::{BLOB, refuse, series};

/// Seconds of the full-length outage, which a backend must survive without loss.
const WHOLE: f64 = 600.0;

/// Hang limit of a long run in seconds: the 30 s request timeout of a mount, plus slack.
const LONG_HANG: f64 = 32.0;

/// The option of `ctxbench mount` that begins a new log with what the cache holds.
const REFILL: &str = "--refill-bucket";

/// Options of a mount that commits nothing for five seconds unless a sync asks for it.
pub const ONE_COMMIT: [&str; 4] = ["--delay", "5000", "--poll", "60000"];

/// How long a mount may take to notice an emptied bucket, and some polls.
const UNTIL_NOTICED: Duration = Duration::from_secs(12);

/// Bytes of each file that the agent process writes during the outage.
const BYTES: usize = 4096;

/// How much the daemon's memory may grow during the outage, in KiB. It must not depend on the amount
/// written.
const GROWTH: u64 = 16 * 1024;

/// Bytes of each file that is written to measure the growth. The database keeps no more of a file.
const LARGE: usize = 256 * 1024;

/// How many of these files are written during the outage: four times the allowed growth.
const LARGE_FILES: u64 = 4 * GROWTH * 1024 / LARGE as u64;

/// How many of these files are written before it, to fill the daemon's caches.
const LARGE_FILES_BEFORE: u64 = 400;

/// How long a read must have been in flight before it is interrupted.
const BEFORE_INTERRUPT: Duration = Duration::from_millis(1500);

/// How long an interrupted call may take to end.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(2);

/// Whether memory is measured. One outage of each kind is enough, because measuring takes long.
fn is_weighed(cause: OutageCause) -> bool {
    matches!(
        cause,
        OutageCause::ServerKilled | OutageCause::ServerStopped | OutageCause::SlowDown
    )
}

/// Requests of a long run keep the mount's default time limit.
pub fn lengthen_limits(bed: &mut TestBed) {
    if bed.is_long {
        let limits = &mut bed.scenario.limits;
        limits.hang = limits.hang.max(LONG_HANG);
        limits.recovery = limits.recovery.max(4.0 * LONG_HANG);
    }
}

/// An outage that begins after the records are synced, and ends by itself.
pub fn outage(
    bed: &mut TestBed,
    world: &mut World,
    cause: OutageCause,
    seconds: f64,
    files: u64,
) -> Injected {
    bed.open()?;
    bed.fill()?;
    let old = series(bed, "old", 4, 100);
    whole(bed, RemoteTask::Write(old.clone()))?;
    let before = series(bed, "replaced", 4, 100);
    whole(bed, RemoteTask::Write(before.clone()))?;
    sync(bed, bed.root())?;
    let there = series(bed, "there", 6, BLOB);
    world.others_write(bed, &there)?;
    let large = |name, files| series(bed, name, files, LARGE);
    let (filler, bulk) = (
        large("filler", LARGE_FILES_BEFORE),
        large("bulk", LARGE_FILES),
    );
    if is_weighed(cause) {
        whole(bed, RemoteTask::Write(filler))?;
        sync(bed, bed.root())?;
    }
    let began = Instant::now();
    begin(world, cause)?;
    describe(bed, cause, seconds);

    // Files that only the bucket has.
    let one = |number| Series {
        first: number,
        files: 1,
        ..there.clone()
    };
    if cause == OutageCause::ServerStopped {
        let read = Task::Remote(RemoteTask::Read(one(1)));
        interrupt(bed, "read_interrupted_after_ms", &read)?;
        // A sync without changes would return at once.
        let pending = series(bed, "pending", 1, BYTES);
        whole(bed, RemoteTask::Write(pending))?;
        let root = bed.root();
        interrupt(bed, "sync_interrupted_after_ms", &Task::Sync { root })?;
        if bed.outcome.hang.is_some() {
            // Only an abort ended the call, so the mount is gone.
            return Ok(());
        }
    }
    let read = bed.perform(&Task::Remote(RemoteTask::Read(one(0))))?;
    if read.is_some_and(|answer| answer.failures.is_empty()) {
        let message = "content that only the bucket has could be read: nothing was broken";
        return Err(ScenarioError::Infra(message.into()));
    }
    // Files that the cache has.
    bed.audit_as("during", Some(Acknowledgement::Write))?;
    let mine = series(bed, "mine", files, BYTES);
    bed.perform(&Task::Remote(RemoteTask::Write(mine.clone())))?;
    let replaced = Series {
        version: 2,
        ..before
    };
    bed.perform(&Task::Remote(RemoteTask::Write(replaced.clone())))?;
    let dir = bed.root().join("made-meanwhile");
    bed.perform(&Task::Remote(RemoteTask::MakeDir { dir }))?;
    bed.perform(&Task::Remote(RemoteTask::Remove(old)))?;
    bed.write(10)?;
    let before = match is_weighed(cause) {
        true => {
            let before = watch_memory(bed);
            bed.perform(&Task::Remote(RemoteTask::Write(bulk.clone())))?;
            before
        }
        false => None,
    };
    let root = bed.root();
    let synced = bed.perform(&Task::Sync { root })?;
    if synced.is_some_and(|answer| answer.failures.is_empty()) {
        bed.breach("ctxbench s3 sync returned success while nothing got through");
    }
    if !matches!(cause, OutageCause::ServerKilled | OutageCause::Partition) {
        world.fired(bed)?;
    }
    while began.elapsed().as_secs_f64() < seconds {
        if bed.interrupt.load(Ordering::Relaxed) {
            return Err(ScenarioError::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    if is_weighed(cause) {
        weigh(bed, before);
    }

    end(world, cause)?;
    if !recover(bed)? {
        return Ok(());
    }
    whole(bed, RemoteTask::Read(there))?;
    whole(bed, RemoteTask::Read(mine.clone()))?;
    whole(bed, RemoteTask::Read(replaced.clone()))?;
    if is_weighed(cause) {
        whole(bed, RemoteTask::Read(bulk))?;
    }
    no_conflict(bed)?;
    after(bed, world, &[mine, replaced])?;
    let names = names(bed, bed.root())?;
    if names.iter().any(|name| name.starts_with("old-")) {
        bed.breach("files that were deleted during the outage are on a new machine");
    }
    if !names.iter().any(|name| name == "made-meanwhile") {
        bed.breach("a directory that was made during the outage is not on a new machine");
    }
    Ok(())
}

/// The answer of a proxy to every request: status, code, and in what it deviates from the cause.
fn refusal(cause: OutageCause) -> Option<(u16, &'static str, &'static str)> {
    Some(match cause {
        OutageCause::ServerKilled | OutageCause::ServerStopped | OutageCause::Partition => {
            return None;
        }
        OutageCause::AccessDenied => (403, "AccessDenied", ""),
        OutageCause::CredentialsRevoked => {
            let kept = "; the server would have taken the keys";
            (403, "InvalidAccessKeyId", kept)
        }
        OutageCause::ClockSkew => (403, "RequestTimeTooSkewed", "; no clock was off"),
        OutageCause::BucketDeleted => (404, "NoSuchBucket", "; the bucket was there"),
        OutageCause::SlowDown => (503, "SlowDown", ""),
    })
}

fn begin(world: &mut World, cause: OutageCause) -> Injected {
    match (cause, refusal(cause)) {
        (_, Some((status, code, _))) => world.set(vec![refuse(status, code)]),
        (OutageCause::ServerKilled, _) => return world.kill_server(),
        (OutageCause::Partition, _) => return world.partition(true),
        _ => world.set(vec![Rule::always(Fault::Hang)]),
    }
    Ok(())
}

fn end(world: &mut World, cause: OutageCause) -> Injected {
    match cause {
        OutageCause::ServerKilled => world.start_server(false),
        OutageCause::Partition => world.partition(false),
        _ => {
            world.proxy.clear();
            Ok(())
        }
    }
}

fn describe(bed: &mut TestBed, cause: OutageCause, seconds: f64) {
    let answered;
    let (what, proxy) = match (cause, refusal(cause)) {
        (_, Some((status, code, deviation))) => {
            answered = format!("every request was answered {status} {code}");
            (answered.as_str(), Some(deviation))
        }
        (OutageCause::ServerKilled, _) => (
            "the server's process was killed; started again on what it had",
            None,
        ),
        (OutageCause::Partition, _) => (
            "connections were refused, and those there were reset",
            Some(": no packet was dropped"),
        ),
        _ => (
            "connections were taken and requests read, and nothing was answered",
            Some(""),
        ),
    };
    bed.injected(format!("{what}, for {seconds} s"));
    let timeout = World::timeout(bed);
    let mut label = vec![format!("a request may take {timeout} s")];
    if let Some(deviation) = proxy {
        label.push(format!("simulated by a proxy{deviation}"));
    }
    if seconds < WHOLE {
        label.push(format!("{seconds} s in place of {WHOLE} s"));
    }
    bed.outcome.label = Some(label.join("; "));
    bed.fact("outage_s", Fact::Number(seconds));
}

/// Measures how long a call that waits for the server takes to end after SIGINT.
fn interrupt(bed: &mut TestBed, fact: &str, task: &Task) -> Injected {
    bed.begin(task)?;
    let began = Instant::now();
    let in_call = loop {
        let waiting = bed.agent().map(|agent| {
            let is_waiting = agent.is_waiting(BEFORE_INTERRUPT);
            (is_waiting, agent.in_call())
        });
        match waiting {
            Some((true, in_call)) => break in_call,
            Some((false, _)) if began.elapsed() < 2 * BEFORE_INTERRUPT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => {
                // A process without a waiting call would end at once, which proves nothing.
                let words = "not measured: no call waited".to_owned();
                bed.fact(fact, Fact::Words(words));
                bed.end()?;
                return Ok(());
            }
        }
    };
    let signalled = Instant::now();
    if let Some(agent) = bed.agent() {
        agent.signal(Signal::INT);
    }
    let hung = bed.outcome.hang.is_some();
    bed.end_within(in_call + INTERRUPT_PATIENCE)?;
    if bed.outcome.hang.is_some() == hung {
        let ms = signalled.elapsed().as_millis() as u64;
        bed.fact(fact, Fact::Count(ms));
    }
    Ok(())
}

/// Records the peak growth of the daemon's memory during the outage.
fn weigh(bed: &mut TestBed, before: Option<u64>) {
    let (Some(before), Some(peak)) = (before, memory_peak(bed)) else {
        let words = "not measured: the kernel does not let its peak be set back".to_owned();
        bed.fact("rss_peak_kib", Fact::Words(words));
        return;
    };
    bed.fact("rss_before_kib", Fact::Count(before));
    bed.fact("rss_peak_kib", Fact::Count(peak));
    let written = (LARGE_FILES * LARGE as u64) >> 10;
    bed.fact("written_meanwhile_kib", Fact::Count(written));
    if peak > before + GROWTH {
        bed.breach(format!(
            "the daemon grew from {before} to {peak} KiB while {written} KiB were written and nothing got through"
        ));
    }
}

/// Checks for conflicts. Only this mount writes, so any conflict is a false one.
pub fn no_conflict(bed: &mut TestBed) -> Injected {
    let mut conflicts = names(bed, bed.root())?;
    conflicts.retain(|name| name.contains(".conflict-"));
    if !conflicts.is_empty() {
        bed.breach(format!(
            "a conflict of the mount with itself: {}",
            conflicts.join(", ")
        ));
    }
    Ok(())
}

/// Audits the records on this mount and on a new machine, which must also have the series.
pub fn after(bed: &mut TestBed, world: &World, series: &[Series]) -> Injected {
    bed.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    // New changes, so that the sync has something to upload.
    bed.fill_again()?;
    world.lose_machine(bed)?;
    on_new_machine(bed, series)
}

/// Checks that a new machine, which the test bed is now, has the series.
pub fn on_new_machine(bed: &mut TestBed, series: &[Series]) -> Injected {
    for series in series {
        let there = Series {
            dir: bed.root(),
            ..series.clone()
        };
        if let Err(ScenarioError::Infra(reason)) = whole(bed, RemoteTask::Read(there)) {
            bed.breach(format!(
                "on a new machine, of the files {}: {reason}",
                series.name
            ));
        }
    }
    Ok(())
}

/// Cuts the connections while `ctxbench s3 sync` uploads a commit. Another host must see all of its changes or none.
pub fn partition_in_sync(bed: &mut TestBed, world: &mut World) -> Injected {
    bed.open()?;
    bed.fill()?;
    let old = series(bed, "old", 20, 100);
    whole(bed, RemoteTask::Write(old.clone()))?;
    sync(bed, bed.root())?;
    let elsewhere = world.elsewhere(bed)?;
    let mine = series(bed, "mine", 20, BYTES);
    let batch = Batch {
        dir: elsewhere,
        new: mine.name.clone(),
        removed: old.name.clone(),
        files: mine.files,
    };
    // Slow uploads, so that the cut falls into the sync.
    world.set(vec![
        Rule::always(Fault::Delay { ms: 1000.0 }).of(&[Operation::Put]),
    ]);
    let root = bed.root();
    let before = world.commits();
    whole(bed, RemoteTask::Write(mine.clone()))?;
    whole(bed, RemoteTask::Remove(old))?;
    bed.begin(&Task::Sync { root })?;
    std::thread::sleep(Duration::from_millis(300));
    world.partition(true)?;
    bed.injected("connections were reset and refused 300 ms into ctxbench s3 sync, for 5 s");
    bed.outcome.label = Some("simulated by a proxy: no packet was dropped".to_owned());
    let synced = bed.end()?;
    if synced.is_some_and(|answer| answer.failures.is_empty()) {
        let reason = "the sync was over before the connections were cut";
        return Err(ScenarioError::Infra(reason.into()));
    }
    batch.observe(bed, Duration::from_secs(5))?;
    world.proxy.clear();
    world.partition(false)?;
    if !recover(bed)? {
        return Ok(());
    }
    batch.observe(bed, Duration::from_secs(2))?;
    let commits = world.commits() - before;
    bed.fact("commits_of_the_batch", Fact::Count(commits));
    no_conflict(bed)?;
    after(bed, world, &[mine])
}

/// Changes of one commit: files that are new, and as many that are removed.
struct Batch {
    /// The directory of another host.
    dir: PathBuf,
    new: String,
    removed: String,
    files: u64,
}

impl Batch {
    /// Lists the directory for a while. A part of the batch must not be visible. One listing takes several calls,
    /// between which a commit may arrive, so only a part that two listings show is a breach.
    fn observe(&self, bed: &mut TestBed, time: Duration) -> Injected {
        let began = Instant::now();
        let mut before = None;
        while began.elapsed() < time {
            let names = names(bed, self.dir.clone())?;
            let count = |start: &str| {
                let start = format!("{start}-");
                names.iter().filter(|name| name.starts_with(&start)).count() as u64
            };
            let shown = (count(&self.new), count(&self.removed));
            let is_part = shown != (0, self.files) && shown != (self.files, 0);
            if is_part && before == Some(shown) {
                let (new, old) = shown;
                let files = self.files;
                bed.breach(format!(
                    "another host saw half of a commit: {new} of {files} new files, and {old} of {files} removed ones"
                ));
                return Ok(());
            }
            before = Some(shown);
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// The server restarts with an empty bucket. The cache may hold the only copy of the files. The mount must stop uploading
/// and say what to do, and that must help.
pub fn emptied(bed: &mut TestBed, world: &mut World) -> Injected {
    bed.open()?;
    bed.fill()?;
    let mine = series(bed, "mine", 20, BYTES);
    whole(bed, RemoteTask::Write(mine.clone()))?;
    sync(bed, bed.root())?;
    world.kill_server()?;
    world.start_server(true)?;
    bed.injected("the server was killed, and came back with an empty bucket");
    std::thread::sleep(UNTIL_NOTICED);
    let read = bed.perform(&Task::Remote(RemoteTask::Read(mine.clone())))?;
    if read.is_none_or(|answer| !answer.failures.is_empty()) {
        bed.breach("files of the cache are gone because they are gone in the bucket");
    }
    bed.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    let late = series(bed, "late", 3, BYTES);
    whole(bed, RemoteTask::Write(late.clone()))?;
    let root = bed.root();
    let synced = bed.perform(&Task::Sync { root })?;
    if synced.is_none_or(|answer| answer.failures.is_empty()) {
        bed.breach("ctxbench s3 sync returned success, and the bucket lacks most of the files");
    }
    if world.commits() > 0 {
        bed.breach("the mount goes on uploading to an emptied bucket");
    }
    if !bed.logs(0, REFILL) {
        bed.breach(format!("the daemon's log does not name {REFILL}"));
        return Ok(());
    }
    let step = format!("an unmount, and a mount with {REFILL}, as the daemon's log says");
    let began = Instant::now();
    // The daemon reports that it could not upload everything.
    let _ = bed.close()?;
    let tried = match bed.open_with(REFILL)? {
        Err(words) => Err(words.lines().next().unwrap_or_default().to_owned()),
        Ok(()) => match sync(bed, bed.root()) {
            Err(ScenarioError::Infra(reason)) => Err(reason),
            synced => Ok(synced?),
        },
    };
    let ms = began.elapsed().as_millis() as u64;
    if let Err(reason) = tried {
        bed.recovered(Return::Never, ms, Some(format!("{step}: {reason}")));
        bed.breach(format!(
            "the step that the daemon's log names does not help: {reason}"
        ));
        return Ok(());
    }
    bed.recovered(Return::AfterStep, ms, Some(step));
    bed.audit_as("refilled", Some(Acknowledgement::Write))?;
    after(bed, world, &[mine, late])
}
