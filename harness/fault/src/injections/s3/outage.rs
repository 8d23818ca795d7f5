//! Outages of the S3 server: no request succeeds for a while, and the agent process continues to work.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use backends::promise::Acknowledgement;
use rundir::faults::{Fact, IN_USE, MACHINE_LOSS, Return};
use rustix::process::Signal;
use servers::{Fault, Operation, Rule};
use workloads::fault::OutageCause;

use super::super::super::agent::{RemoteTask, Series, Task};
use super::super::super::bed::{Injected, ScenarioError, TestBed};
use super::world::{World, memory_peak, recover, sync, watch_memory, whole};
use super::{refuse, series};

/// Seconds of the full-length outage, which a backend must survive without loss.
const WHOLE: f64 = 600.0;

/// Hang limit of a long run in seconds: the 30 s request timeout of a mount, plus slack.
const LONG_HANG: f64 = 32.0;

/// The option of `ctxbench mount` that uploads the whole cache again.
const REFILL: &str = "--refill-bucket";

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

/// An outage that begins after the records are synced, and ends by itself.
pub fn outage(bed: &mut TestBed, cause: OutageCause, seconds: f64, files: u64) -> Injected {
    if bed.is_long {
        let limits = &mut bed.scenario.limits;
        limits.hang = limits.hang.max(LONG_HANG);
        limits.recovery = limits.recovery.max(4.0 * LONG_HANG);
    }
    let mut world = World::start(bed)?;
    bed.open()?;
    bed.fill()?;
    let old = series(bed, "old", 4, 100);
    whole(bed, RemoteTask::Write(old.clone()))?;
    let before = series(bed, "replaced", 4, 100);
    whole(bed, RemoteTask::Write(before.clone()))?;
    sync(bed, bed.root())?;
    let there = series(bed, "there", 6, 2000);
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
    world.begin();
    let began = Instant::now();
    begin(&mut world, cause)?;
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
        let root = bed.root();
        interrupt(bed, "sync_interrupted_after_ms", &Task::Sync { root })?;
        if bed.outcome.hang.is_some() {
            // Only an abort ended the call, so the mount is gone.
            return Ok(());
        }
    }
    let read = bed.perform(&Task::Remote(RemoteTask::Read(one(0))))?;
    if read.is_some_and(|answer| answer.failures.is_empty()) {
        let message = "what only the bucket has could be read: nothing was broken";
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

    end(&mut world, cause)?;
    if recover(bed)? {
        whole(bed, RemoteTask::Read(there))?;
        whole(bed, RemoteTask::Read(mine.clone()))?;
        whole(bed, RemoteTask::Read(replaced.clone()))?;
        if is_weighed(cause) {
            whole(bed, RemoteTask::Read(bulk))?;
        }
        no_conflict(bed)?;
        world.once_and_before_deletions(bed, &mine);
        world.in_order(bed, &mine, &replaced);
        after(bed, &mut world, &mine)?;
        let replaced = Series {
            dir: bed.root(),
            ..replaced
        };
        if let Err(ScenarioError::Infra(reason)) = whole(bed, RemoteTask::Read(replaced)) {
            bed.breach(format!("on a new machine, of what was replaced: {reason}"));
        }
    }
    Ok(())
}

fn begin(world: &mut World, cause: OutageCause) -> Injected {
    match cause {
        OutageCause::ServerKilled => return world.kill_server(),
        OutageCause::Partition => return world.partition(true),
        OutageCause::ServerStopped => world.set(vec![Rule::always(Fault::Hang)]),
        OutageCause::AccessDenied => world.set(vec![refuse(403, "AccessDenied")]),
        OutageCause::CredentialsRevoked => world.set(vec![refuse(403, "InvalidAccessKeyId")]),
        OutageCause::ClockSkew => world.set(vec![refuse(403, "RequestTimeTooSkewed")]),
        OutageCause::BucketDeleted => world.set(vec![refuse(404, "NoSuchBucket")]),
        OutageCause::SlowDown => world.set(vec![refuse(503, "SlowDown")]),
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
    let (what, simulated) = match cause {
        OutageCause::ServerKilled => (
            "the server's process was killed; started again on what it had",
            None,
        ),
        OutageCause::ServerStopped => (
            "connections were taken and requests read, and nothing was answered",
            Some("by a proxy"),
        ),
        OutageCause::Partition => (
            "connections were refused, and those there were reset",
            Some("by a proxy: no packet was dropped"),
        ),
        OutageCause::AccessDenied => (
            "every request was answered 403 AccessDenied",
            Some("by a proxy"),
        ),
        OutageCause::CredentialsRevoked => (
            "every request was answered 403 InvalidAccessKeyId",
            Some("by a proxy; the server would have taken the keys"),
        ),
        OutageCause::ClockSkew => (
            "every request was answered 403 RequestTimeTooSkewed",
            Some("by a proxy; no clock was off"),
        ),
        OutageCause::BucketDeleted => (
            "every request was answered 404 NoSuchBucket",
            Some("by a proxy; the bucket was there"),
        ),
        OutageCause::SlowDown => (
            "every request was answered 503 SlowDown",
            Some("by a proxy"),
        ),
    };
    bed.injected(format!("{what}, for {seconds} s"));
    let timeout = World::timeout(bed);
    let mut label = vec![format!("a request may take {timeout} s")];
    if let Some(simulated) = simulated {
        label.push(format!("simulated {simulated}"));
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
fn no_conflict(bed: &mut TestBed) -> Injected {
    let listed = whole(bed, RemoteTask::List { dir: bed.root() })?;
    let names = listed
        .facts
        .get("names")
        .map(ToString::to_string)
        .unwrap_or_default();
    let conflicts: Vec<&str> = names
        .lines()
        .filter(|name| name.contains(".conflict-"))
        .collect();
    if !conflicts.is_empty() {
        bed.breach(format!(
            "a conflict of the mount with itself: {}",
            conflicts.join(", ")
        ));
    }
    Ok(())
}

/// Audits the records on this mount and on a new machine.
pub fn after(bed: &mut TestBed, world: &mut World, mine: &Series) -> Injected {
    bed.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    // New changes, so that the sync has something to upload.
    bed.fill_again()?;
    world.lose_machine(bed)?;
    bed.audit_as(MACHINE_LOSS, Some(Acknowledgement::Sync))?;
    let read = whole(
        bed,
        RemoteTask::Read(Series {
            dir: bed.root(),
            ..mine.clone()
        }),
    );
    if let Err(ScenarioError::Infra(reason)) = read {
        bed.breach(format!("on a new machine: {reason}"));
    }
    Ok(())
}

/// Cuts the connections for a few seconds while `ctxbench s3 sync` is in flight.
pub fn partition_in_sync(bed: &mut TestBed) -> Injected {
    let mut world = World::start(bed)?;
    bed.open()?;
    bed.fill()?;
    let old = series(bed, "old", 4, 100);
    whole(bed, RemoteTask::Write(old.clone()))?;
    sync(bed, bed.root())?;
    world.begin();
    // Slow uploads, so that the cut falls into the sync.
    world.set(vec![
        Rule::always(Fault::Delay { ms: 100.0 }).of(&[Operation::Put]),
    ]);
    let mine = series(bed, "mine", 200, BYTES);
    let root = bed.root();
    whole(bed, RemoteTask::Write(mine.clone()))?;
    whole(bed, RemoteTask::Remove(old))?;
    bed.begin(&Task::Sync { root })?;
    std::thread::sleep(Duration::from_millis(300));
    world.partition(true)?;
    bed.injected("connections were reset and refused 300 ms into ctxbench s3 sync, for 5 s");
    bed.outcome.label = Some("simulated by a proxy: no packet was dropped".to_owned());
    let synced = bed.end()?;
    if synced.is_some_and(|answer| answer.failures.is_empty()) {
        return Err(ScenarioError::Infra(
            "the sync was over before the way was cut".into(),
        ));
    }
    std::thread::sleep(Duration::from_secs(5));
    world.proxy.clear();
    world.partition(false)?;
    if recover(bed)? {
        no_conflict(bed)?;
        let seen = world.proxy.seen();
        bed.fact("requests", Fact::Count(seen.len() as u64));
        world.once_and_before_deletions(bed, &mine);
        after(bed, &mut world, &mine)?;
    }
    Ok(())
}

/// The server restarts with an empty bucket. The cache may hold the only copy of the files.
pub fn emptied(bed: &mut TestBed) -> Injected {
    let mut world = World::start(bed)?;
    bed.open()?;
    bed.fill()?;
    let mine = series(bed, "mine", 20, BYTES);
    whole(bed, RemoteTask::Write(mine.clone()))?;
    sync(bed, bed.root())?;
    world.kill_server()?;
    world.start_server(true)?;
    bed.injected("the server was killed, and came back with an empty bucket");
    // Long enough for several polls.
    std::thread::sleep(Duration::from_secs(6));
    let read = bed.perform(&Task::Remote(RemoteTask::Read(mine.clone())))?;
    if read.is_none_or(|answer| !answer.failures.is_empty()) {
        bed.breach("what was here is gone because it was gone there");
    }
    bed.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    let began = Instant::now();
    let root = bed.root();
    let synced = bed.perform(&Task::Sync { root })?;
    if synced.is_none_or(|answer| !answer.failures.is_empty()) {
        // The sync reports a failure, so the user has to act.
        return match bed.logs(0, REFILL) {
            true => refill(bed, &mut world, &mine),
            false => by_hand(bed, &mut world, &mine),
        };
    }
    let ms = began.elapsed().as_millis() as u64;
    match is_elsewhere(bed, &mut world, &mine)? {
        true => bed.recovered(Return::ByItself, ms, None),
        false => bed
            .breach("ctxbench s3 sync says that everything is in the bucket, and another host does not read it"),
    }
    Ok(())
}

/// Whether another host reads all files.
fn is_elsewhere(bed: &mut TestBed, world: &mut World, mine: &Series) -> Injected<bool> {
    let there = Series {
        dir: world.elsewhere(bed)?,
        ..mine.clone()
    };
    let read = bed.perform(&Task::Remote(RemoteTask::Read(there)))?;
    Ok(read.is_some_and(|answer| answer.failures.is_empty()))
}

/// Takes the step that the daemon's log names.
fn refill(bed: &mut TestBed, world: &mut World, mine: &Series) -> Injected {
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
    if !is_elsewhere(bed, world, mine)? {
        bed.breach("another host does not read what was brought up again");
    }
    Ok(())
}

/// A manual step for a log that names none: writes the files, which were read before, again through a new
/// cache.
fn by_hand(bed: &mut TestBed, world: &mut World, mine: &Series) -> Injected {
    let step = "copy the files out, unmount, delete the cache, mount again, copy them in: the daemon's log names no option";
    let began = Instant::now();
    // The daemon reports that it could not upload everything.
    let _ = bed.close()?;
    let tried = world
        .begin_anew(bed, "by-hand")
        .and_then(|()| whole(bed, RemoteTask::Write(mine.clone())))
        .and_then(|_| sync(bed, bed.root()));
    let ms = began.elapsed().as_millis() as u64;
    match tried {
        Ok(()) => bed.recovered(Return::AfterStep, ms, Some(step.to_owned())),
        Err(ScenarioError::Infra(reason)) => {
            bed.recovered(Return::Never, ms, Some(format!("{step}: {reason}")));
            bed.breach(format!("a step by hand does not help: {reason}"));
            return Ok(());
        }
        Err(spoiled) => return Err(spoiled),
    }
    if !is_elsewhere(bed, world, mine)? {
        bed.breach("another host does not read what was copied in");
    }
    Ok(())
}
