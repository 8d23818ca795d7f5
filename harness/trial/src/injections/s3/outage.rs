//! Outages of the S3 server: no request succeeds for a while, and the agent process continues to work.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use arms::promise::Acknowledgement;
use rundir::faults::{Fact, IN_USE, Return};
use rustix::process::Signal;
use servers::{Operation, RequestFault, Rule};
use workloads::fault::OutageCause;

use super::super::super::agent::{FileSeries, Job};
use super::super::super::bed::{ScenarioError, StepResult, TestBed, infra};
use super::world::{BucketWorld, memory_peak, names, read, recover, sync, watch_memory, whole, write};
use super::{BLOB, refusal};

/// Seconds of the full-length outage, which a backend must survive without loss.
const WHOLE: f64 = 600.0;

/// Hang limit of a long run in seconds: the 30 s request timeout of a mount, plus slack.
const LONG_HANG: f64 = 32.0;

/// The option of `ctxbench mount` that begins a new log with the content of the cache.
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
fn measures_memory(cause: OutageCause) -> bool {
    matches!(cause, OutageCause::ServerKilled | OutageCause::ServerStopped | OutageCause::SlowDown)
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
pub fn outage(bed: &mut TestBed, world: &mut BucketWorld, cause: OutageCause, seconds: f64, files: u64) -> StepResult {
    bed.open_and_fill()?;
    let old = FileSeries::new("old", 4, 100);
    write(bed, &old)?;
    let replaced = FileSeries::new("replaced", 4, 100);
    write(bed, &replaced)?;
    sync(bed, bed.root())?;
    let there = FileSeries::new("there", 6, BLOB);
    world.others_write(bed, &there)?;
    let bulk = FileSeries::new("bulk", LARGE_FILES, LARGE);
    if measures_memory(cause) {
        write(bed, &FileSeries::new("filler", LARGE_FILES_BEFORE, LARGE))?;
        sync(bed, bed.root())?;
    }
    let began = Instant::now();
    begin(bed, world, cause, seconds)?;

    // Files that only the bucket has.
    let read_one = |number| Job::ReadSeries(there.part(number, 1));
    if cause == OutageCause::ServerStopped {
        interrupt(bed, "read_interrupted_after_ms", &read_one(1))?;
        // A sync without changes would return at once.
        write(bed, &FileSeries::new("pending", 1, BYTES))?;
        interrupt(bed, "sync_interrupted_after_ms", &Job::Sync)?;
        if bed.outcome.hang.is_some() {
            // Only an abort ended the call, so the mount is gone.
            return Ok(());
        }
    }
    if bed.succeeds(bed.root(), &read_one(0))? {
        return infra("content that only the bucket has could be read: the fault hit nothing");
    }
    // Files that the cache has.
    bed.audit_as("during", Some(Acknowledgement::Write))?;
    let mine = FileSeries::new("mine", files, BYTES);
    bed.perform(bed.root(), &Job::WriteSeries(mine.clone()))?;
    let replaced = replaced.version(2);
    bed.perform(bed.root(), &Job::WriteSeries(replaced.clone()))?;
    bed.perform(bed.root().join("made-meanwhile"), &Job::MakeDir)?;
    bed.perform(bed.root(), &Job::RemoveSeries(old))?;
    bed.write(10)?;
    let before = if measures_memory(cause) {
        let before = watch_memory(bed);
        bed.perform(bed.root(), &Job::WriteSeries(bulk.clone()))?;
        before
    } else {
        None
    };
    if bed.succeeds(bed.root(), &Job::Sync)? {
        bed.breach("ctxbench s3 sync returned success while nothing got through");
    }
    if !matches!(cause, OutageCause::ServerKilled | OutageCause::Partition) {
        world.fired(bed)?;
    }
    let left = Duration::from_secs_f64(seconds).saturating_sub(began.elapsed());
    bed.wait_until(left, Duration::from_millis(100), |_| Ok(false))?;
    if measures_memory(cause) {
        weigh(bed, before);
    }

    end(world, cause)?;
    if !recover(bed)? {
        return Ok(());
    }
    for series in [&there, &mine, &replaced] {
        read(bed, series)?;
    }
    if measures_memory(cause) {
        read(bed, &bulk)?;
    }
    no_conflict(bed)?;
    afterwards(bed, world, &[mine, replaced])?;
    let names = names(bed, bed.root())?;
    if names.iter().any(|name| name.starts_with("old-")) {
        bed.breach("files that were deleted during the outage are on a new machine");
    }
    if !names.iter().any(|name| name == "made-meanwhile") {
        bed.breach("a directory that was made during the outage is not on a new machine");
    }
    Ok(())
}

/// Describes an outage: in words, by the proxy's fault that simulates it, and by how the simulation differs from the real
/// cause. Without a fault, the harness kills the server or makes the proxy refuse connections. The difference is `None` if
/// the proxy simulates nothing, and empty if the simulation does not differ.
fn describe(cause: OutageCause) -> (String, Option<RequestFault>, Option<&'static str>) {
    let told = |words: &str, fault, deviation| (words.to_owned(), fault, deviation);
    let refused = |status, code: &str, deviation| {
        let words = format!("every request was answered {status} {code}");
        (words, Some(refusal(status, code)), Some(deviation))
    };
    match cause {
        OutageCause::ServerKilled => told("the server's process was killed; started again on what it had", None, None),
        OutageCause::Partition => {
            told("connections were refused, and those there were reset", None, Some(": no packet was dropped"))
        }
        OutageCause::ServerStopped => told(
            "connections were taken and requests read, and nothing was answered",
            Some(RequestFault::Hang),
            Some(""),
        ),
        OutageCause::AccessDenied => refused(403, "AccessDenied", ""),
        OutageCause::CredentialsRevoked => {
            let kept = "; the server would have taken the keys";
            refused(403, "InvalidAccessKeyId", kept)
        }
        OutageCause::ClockSkew => refused(403, "RequestTimeTooSkewed", "; no clock was off"),
        OutageCause::BucketDeleted => refused(404, "NoSuchBucket", "; the bucket was there"),
        OutageCause::SlowDown => refused(503, "SlowDown", ""),
    }
}

/// Begins an outage, and describes it.
fn begin(bed: &mut TestBed, world: &mut BucketWorld, cause: OutageCause, seconds: f64) -> StepResult {
    let (what, fault, deviation) = describe(cause);
    match fault {
        Some(fault) => world.set(vec![Rule::always(fault)]),
        None if cause == OutageCause::Partition => world.partition(true)?,
        None => world.kill_server()?,
    }
    bed.injected(format!("{what}, for {seconds} s"));
    let timeout = BucketWorld::timeout(bed);
    let mut label = vec![format!("a request may take {timeout} s")];
    if let Some(deviation) = deviation {
        label.push(format!("simulated by a proxy{deviation}"));
    }
    if seconds < WHOLE {
        label.push(format!("{seconds} s in place of {WHOLE} s"));
    }
    bed.label(label.join("; "));
    bed.fact("outage_s", Fact::Number(seconds));
    Ok(())
}

fn end(world: &mut BucketWorld, cause: OutageCause) -> StepResult {
    match cause {
        OutageCause::ServerKilled => world.start_server(false),
        OutageCause::Partition => world.partition(false),
        _ => {
            world.proxy.clear();
            Ok(())
        }
    }
}

/// Measures how long a call that waits for the server takes to end after SIGINT.
fn interrupt(bed: &mut TestBed, fact: &str, job: &Job) -> StepResult {
    bed.begin(bed.root(), job)?;
    let tick = Duration::from_millis(10);
    let mut in_call = Duration::ZERO;
    let is_waiting = bed.wait_until(2 * BEFORE_INTERRUPT, tick, |bed| {
        Ok(bed.agent().is_some_and(|agent| {
            in_call = agent.in_call();
            agent.is_waiting(BEFORE_INTERRUPT)
        }))
    })?;
    if !is_waiting {
        // A process without a waiting call would end at once, which proves nothing.
        let words = "not measured: no call waited".to_owned();
        bed.words(fact, words);
        bed.end()?;
        return Ok(());
    }
    let signalled = Instant::now();
    if let Some(agent) = bed.agent() {
        agent.signal(Signal::INT);
    }
    let hung = bed.outcome.hang.is_some();
    bed.end_within(in_call + INTERRUPT_PATIENCE)?;
    if bed.outcome.hang.is_some() == hung {
        let ms = signalled.elapsed().as_millis() as u64;
        bed.count(fact, ms);
    }
    Ok(())
}

/// Records the peak growth of the daemon's memory during the outage.
fn weigh(bed: &mut TestBed, before: Option<u64>) {
    let (Some(before), Some(peak)) = (before, memory_peak(bed)) else {
        let words = "not measured: the kernel does not let its peak be set back".to_owned();
        bed.words("rss_peak_kib", words);
        return;
    };
    bed.count("rss_before_kib", before);
    bed.count("rss_peak_kib", peak);
    let written = (LARGE_FILES * LARGE as u64) >> 10;
    bed.count("written_meanwhile_kib", written);
    if peak > before + GROWTH {
        bed.breach(format!(
            "the daemon grew from {before} to {peak} KiB while {written} KiB were written and nothing got through"
        ));
    }
}

/// Checks for conflicts. Only this mount writes, so any conflict is a false one.
pub fn no_conflict(bed: &mut TestBed) -> StepResult {
    let mut conflicts = names(bed, bed.root())?;
    conflicts.retain(|name| name.contains(".conflict-"));
    if !conflicts.is_empty() {
        bed.breach(format!("a conflict of the mount with itself: {}", conflicts.join(", ")));
    }
    Ok(())
}

/// Audits the records on this mount and on a new machine, which must also have the series.
pub fn afterwards(bed: &mut TestBed, world: &BucketWorld, series: &[FileSeries]) -> StepResult {
    bed.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    // New changes, so that the sync has something to upload.
    bed.fill_again()?;
    world.lose_machine(bed)?;
    on_new_machine(bed, series)
}

/// Checks that a new machine, which the test bed is now, has the series.
pub fn on_new_machine(bed: &mut TestBed, series: &[FileSeries]) -> StepResult {
    for series in series {
        if let Err(ScenarioError::Infra(reason)) = read(bed, series) {
            bed.breach(format!("on a new machine, of the files {}: {reason}", series.name));
        }
    }
    Ok(())
}

/// Cuts the connections while `ctxbench s3 sync` uploads a commit. Another host must see all of its changes or none.
pub fn partition_in_sync(bed: &mut TestBed, world: &mut BucketWorld) -> StepResult {
    bed.open_and_fill()?;
    let old = FileSeries::new("old", 20, 100);
    write(bed, &old)?;
    sync(bed, bed.root())?;
    let elsewhere = world.elsewhere(bed)?;
    let mine = FileSeries::new("mine", 20, BYTES);
    let batch = Batch { dir: elsewhere, new: mine.name.clone(), removed: old.name.clone(), files: mine.files };
    // Slow uploads, so that the cut falls into the sync.
    world.set(vec![Rule::always(RequestFault::Delay { ms: 1000.0 }).of(&[Operation::Put])]);
    let before = world.commits();
    write(bed, &mine)?;
    whole(bed, bed.root(), &Job::RemoveSeries(old))?;
    bed.begin(bed.root(), &Job::Sync)?;
    std::thread::sleep(Duration::from_millis(300));
    world.partition(true)?;
    bed.injected("connections were reset and refused 300 ms into ctxbench s3 sync, for 5 s");
    bed.label("simulated by a proxy: no packet was dropped");
    let synced = bed.end()?;
    if synced.is_some_and(|answer| answer.failures.is_empty()) {
        return infra("the sync was over before the connections were cut");
    }
    batch.observe(bed, Duration::from_secs(5))?;
    world.proxy.clear();
    world.partition(false)?;
    if !recover(bed)? {
        return Ok(());
    }
    batch.observe(bed, Duration::from_secs(2))?;
    let commits = world.commits() - before;
    bed.count("commits_of_the_batch", commits);
    no_conflict(bed)?;
    afterwards(bed, world, &[mine])
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
    fn observe(&self, bed: &mut TestBed, time: Duration) -> StepResult {
        let mut before = None;
        let tick = Duration::from_millis(50);
        let is_seen = bed.wait_until(time, tick, |bed| {
            let names = names(bed, &self.dir)?;
            let count = |start: &str| {
                let start = format!("{start}-");
                names.iter().filter(|name| name.starts_with(&start)).count() as u64
            };
            let shown = (count(&self.new), count(&self.removed));
            let is_part = shown != (0, self.files) && shown != (self.files, 0);
            Ok(before.replace(shown) == Some(shown) && is_part)
        })?;
        if let (true, Some((new, old))) = (is_seen, before) {
            let files = self.files;
            bed.breach(format!(
                "another host saw half of a commit: {new} of {files} new files, and {old} of {files} removed ones"
            ));
        }
        Ok(())
    }
}

/// The server restarts with an empty bucket. The cache may hold the only copy of the files. The mount must stop uploading
/// and say what to do, and that must help.
pub fn emptied(bed: &mut TestBed, world: &mut BucketWorld) -> StepResult {
    bed.open_and_fill()?;
    let mine = FileSeries::new("mine", 20, BYTES);
    write(bed, &mine)?;
    sync(bed, bed.root())?;
    world.kill_server()?;
    world.start_server(true)?;
    bed.injected("the server was killed, and came back with an empty bucket");
    std::thread::sleep(UNTIL_NOTICED);
    if !bed.succeeds(bed.root(), &Job::ReadSeries(mine.clone()))? {
        bed.breach("files of the cache were removed because the bucket lost them");
    }
    bed.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    let late = FileSeries::new("late", 3, BYTES);
    write(bed, &late)?;
    let synced = bed.perform(bed.root(), &Job::Sync)?;
    if synced.is_none_or(|answer| answer.failures.is_empty()) {
        bed.breach("ctxbench s3 sync returned success, and the bucket lacks most of the files");
    }
    if world.commits() > 0 {
        bed.breach("the mount continues to upload to an emptied bucket");
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
    let after = began.elapsed();
    if let Err(reason) = tried {
        bed.recovered(Return::Never, after, Some(format!("{step}: {reason}")));
        bed.breach(format!("the step that the daemon's log names does not help: {reason}"));
        return Ok(());
    }
    bed.recovered(Return::AfterStep, after, Some(step));
    bed.audit_as("refilled", Some(Acknowledgement::Write))?;
    afterwards(bed, world, &[mine, late])
}
