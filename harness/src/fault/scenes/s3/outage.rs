//! Nothing gets through for a while, and the agent goes on.

use std::time::{Duration, Instant};

use backends::promise::Acknowledgement;
use reports::faults::{Fact, IN_USE, MACHINE_LOSS, Return};
use rustix::process::Signal;
use servers::{Fault, Operation, Rule};
use workloads::fault::OutageCause;

use super::super::super::agent::{RemoteTask, Series, Task};
use super::super::super::stage::{Played, Spoiled, Stage};
use super::world::{World, memory_peak, recover, sync, watch_memory, whole};
use super::{refuse, series};

/// How long the outage is that a backend has to survive without loss, in seconds.
const WHOLE: f64 = 600.0;

/// The limit for hanging in a long run, in seconds: the 30 that a mount gives a request, and some slack.
const LONG_HANG: f64 = 32.0;

/// The option of `ctxbench mount` that brings everything up again.
const REFILL: &str = "--refill-bucket";

/// Bytes in each of the files that the agent writes meanwhile.
const BYTES: usize = 4096;

/// By how much the daemon may grow meanwhile, in KiB: what it holds must not depend on how much is done while nothing gets
/// through.
const GROWTH: u64 = 16 * 1024;

/// Bytes in each of the files that are to show whether it grows: what is larger is not kept in the database.
const LARGE: usize = 256 * 1024;

/// How many of them are written meanwhile: four times what it may grow by.
const LARGE_FILES: u64 = 4 * GROWTH * 1024 / LARGE as u64;

/// How many are written before: more than its caches hold, so that these are full and grow no more.
const LARGE_FILES_BEFORE: u64 = 400;

/// How long a read that waits is left alone before it is interrupted.
const BEFORE_INTERRUPT: Duration = Duration::from_millis(1500);

/// How long it then may take to end.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(2);

/// Whether memory is looked at: one outage of each kind is enough, and it takes a while.
fn is_weighed(cause: OutageCause) -> bool {
    matches!(
        cause,
        OutageCause::ServerKilled | OutageCause::ServerStopped | OutageCause::SlowDown
    )
}

/// One that begins after records were synced and ends by itself.
pub fn outage(stage: &mut Stage, cause: OutageCause, seconds: f64, files: u64) -> Played {
    if stage.is_long {
        let limits = &mut stage.scenario.limits;
        limits.hang = limits.hang.max(LONG_HANG);
        limits.recovery = limits.recovery.max(4.0 * LONG_HANG);
    }
    let mut world = World::start(stage)?;
    stage.open()?;
    stage.fill()?;
    let old = series(stage, "old", 4, 100);
    whole(stage, RemoteTask::Write(old.clone()))?;
    let before = series(stage, "replaced", 4, 100);
    whole(stage, RemoteTask::Write(before.clone()))?;
    sync(stage, stage.root())?;
    let there = series(stage, "there", 6, 2000);
    world.others_write(stage, &there)?;
    let large = |name, files| series(stage, name, files, LARGE);
    let (filler, bulk) = (
        large("filler", LARGE_FILES_BEFORE),
        large("bulk", LARGE_FILES),
    );
    if is_weighed(cause) {
        whole(stage, RemoteTask::Write(filler))?;
        sync(stage, stage.root())?;
    }
    world.begin();
    let began = Instant::now();
    begin(&mut world, cause)?;
    describe(stage, cause, seconds);

    // What is only there.
    let one = |number| Series {
        first: number,
        files: 1,
        ..there.clone()
    };
    if cause == OutageCause::ServerStopped {
        let read = Task::Remote(RemoteTask::Read(one(1)));
        interrupt(stage, "read_interrupted_after_ms", &read)?;
        let root = stage.root();
        interrupt(stage, "sync_interrupted_after_ms", &Task::Sync { root })?;
        if stage.outcome.hang.is_some() {
            // Only an abort has ended it: there is no mount any more.
            return Ok(());
        }
    }
    let read = stage.perform(&Task::Remote(RemoteTask::Read(one(0))))?;
    if read.is_some_and(|answer| answer.failures.is_empty()) {
        let message = "what only the bucket has could be read: nothing was broken";
        return Err(Spoiled::Infra(message.into()));
    }
    // What is here.
    stage.audit_as("during", Some(Acknowledgement::Write))?;
    let mine = series(stage, "mine", files, BYTES);
    stage.perform(&Task::Remote(RemoteTask::Write(mine.clone())))?;
    let replaced = Series {
        version: 2,
        ..before
    };
    stage.perform(&Task::Remote(RemoteTask::Write(replaced.clone())))?;
    let dir = stage.root().join("made-meanwhile");
    stage.perform(&Task::Remote(RemoteTask::MakeDir { dir }))?;
    stage.perform(&Task::Remote(RemoteTask::Remove(old)))?;
    stage.write(10)?;
    let before = match is_weighed(cause) {
        true => {
            let before = watch_memory(stage);
            stage.perform(&Task::Remote(RemoteTask::Write(bulk.clone())))?;
            before
        }
        false => None,
    };
    let root = stage.root();
    let synced = stage.perform(&Task::Sync { root })?;
    if synced.is_some_and(|answer| answer.failures.is_empty()) {
        stage.breach("ctxbench sync returned success while nothing got through");
    }
    if !matches!(cause, OutageCause::ServerKilled | OutageCause::Partition) {
        world.fired(stage)?;
    }
    while began.elapsed().as_secs_f64() < seconds {
        if stage.interrupt.is_set() {
            return Err(Spoiled::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    if is_weighed(cause) {
        weigh(stage, before);
    }

    end(&mut world, cause)?;
    if recover(stage)? {
        whole(stage, RemoteTask::Read(there))?;
        whole(stage, RemoteTask::Read(mine.clone()))?;
        whole(stage, RemoteTask::Read(replaced.clone()))?;
        if is_weighed(cause) {
            whole(stage, RemoteTask::Read(bulk))?;
        }
        no_conflict(stage)?;
        world.once_and_before_deletions(stage, &mine);
        world.in_order(stage, &mine, &replaced);
        after(stage, &mut world, &mine)?;
        let replaced = Series {
            dir: stage.root(),
            ..replaced
        };
        if let Err(Spoiled::Infra(reason)) = whole(stage, RemoteTask::Read(replaced)) {
            stage.breach(format!("on a new machine, of what was replaced: {reason}"));
        }
    }
    Ok(())
}

fn begin(world: &mut World, cause: OutageCause) -> Played {
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

fn end(world: &mut World, cause: OutageCause) -> Played {
    match cause {
        OutageCause::ServerKilled => world.start_server(false),
        OutageCause::Partition => world.partition(false),
        _ => {
            world.proxy.clear();
            Ok(())
        }
    }
}

fn describe(stage: &mut Stage, cause: OutageCause, seconds: f64) {
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
    stage.injected(format!("{what}, for {seconds} s"));
    let timeout = World::timeout(stage);
    let mut label = vec![format!("a request may take {timeout} s")];
    if let Some(simulated) = simulated {
        label.push(format!("simulated {simulated}"));
    }
    if seconds < WHOLE {
        label.push(format!("{seconds} s in place of {WHOLE} s"));
    }
    stage.outcome.label = Some(label.join("; "));
    stage.fact("outage_s", Fact::Number(seconds));
}

/// Whether a call that waits for the server ends by a signal, and after how long.
fn interrupt(stage: &mut Stage, fact: &str, task: &Task) -> Played {
    stage.begin(task)?;
    let began = Instant::now();
    let in_call = loop {
        let waiting = stage.agent().map(|agent| {
            let is_waiting = agent.is_waiting(BEFORE_INTERRUPT);
            (is_waiting, agent.in_call())
        });
        match waiting {
            Some((true, in_call)) => break in_call,
            Some((false, _)) if began.elapsed() < 2 * BEFORE_INTERRUPT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => {
                // An agent that waits for nothing would end at once, and prove nothing.
                let words = "not measured: no call waited".to_owned();
                stage.fact(fact, Fact::Words(words));
                stage.end()?;
                return Ok(());
            }
        }
    };
    let signalled = Instant::now();
    if let Some(agent) = stage.agent() {
        agent.signal(Signal::INT);
    }
    let hung = stage.outcome.hang.is_some();
    stage.end_within(in_call + INTERRUPT_PATIENCE)?;
    if stage.outcome.hang.is_some() == hung {
        let ms = signalled.elapsed().as_millis() as u64;
        stage.fact(fact, Fact::Count(ms));
    }
    Ok(())
}

/// How the daemon has grown at most, while four times as much was written as it may grow by.
fn weigh(stage: &mut Stage, before: Option<u64>) {
    let (Some(before), Some(peak)) = (before, memory_peak(stage)) else {
        let words = "not measured: the kernel does not let its peak be set back".to_owned();
        stage.fact("rss_peak_kib", Fact::Words(words));
        return;
    };
    stage.fact("rss_before_kib", Fact::Count(before));
    stage.fact("rss_peak_kib", Fact::Count(peak));
    let written = (LARGE_FILES * LARGE as u64) >> 10;
    stage.fact("written_meanwhile_kib", Fact::Count(written));
    if peak > before + GROWTH {
        stage.breach(format!(
            "the daemon grew from {before} to {peak} KiB while {written} KiB were written and nothing got through"
        ));
    }
}

/// Nobody else has changed anything: a conflict is one of the mount with itself.
fn no_conflict(stage: &mut Stage) -> Played {
    let listed = whole(stage, RemoteTask::List { dir: stage.root() })?;
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
        stage.breach(format!(
            "a conflict of the mount with itself: {}",
            conflicts.join(", ")
        ));
    }
    Ok(())
}

/// What this mount and a new machine have of it.
pub fn after(stage: &mut Stage, world: &mut World, mine: &Series) -> Played {
    stage.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    // Something that the sync has to bring up.
    stage.fill_again()?;
    world.lose_machine(stage)?;
    stage.audit_as(MACHINE_LOSS, Some(Acknowledgement::Sync))?;
    let read = whole(
        stage,
        RemoteTask::Read(Series {
            dir: stage.root(),
            ..mine.clone()
        }),
    );
    if let Err(Spoiled::Infra(reason)) = read {
        stage.breach(format!("on a new machine: {reason}"));
    }
    Ok(())
}

/// The way is cut while a sync is under way, for a few seconds.
pub fn partition_in_sync(stage: &mut Stage) -> Played {
    let mut world = World::start(stage)?;
    stage.open()?;
    stage.fill()?;
    let old = series(stage, "old", 4, 100);
    whole(stage, RemoteTask::Write(old.clone()))?;
    sync(stage, stage.root())?;
    world.begin();
    // Slowly, so that the cut is in the middle.
    world.set(vec![
        Rule::always(Fault::Delay { ms: 100.0 }).of(&[Operation::Put]),
    ]);
    let mine = series(stage, "mine", 200, BYTES);
    let root = stage.root();
    whole(stage, RemoteTask::Write(mine.clone()))?;
    whole(stage, RemoteTask::Remove(old))?;
    stage.begin(&Task::Sync { root })?;
    std::thread::sleep(Duration::from_millis(300));
    world.partition(true)?;
    stage.injected("connections were reset and refused 300 ms into ctxbench sync, for 5 s");
    stage.outcome.label = Some("simulated by a proxy: no packet was dropped".to_owned());
    let synced = stage.end()?;
    if synced.is_some_and(|answer| answer.failures.is_empty()) {
        return Err(Spoiled::Infra(
            "the sync was over before the way was cut".into(),
        ));
    }
    std::thread::sleep(Duration::from_secs(5));
    world.proxy.clear();
    world.partition(false)?;
    if recover(stage)? {
        no_conflict(stage)?;
        let seen = world.proxy.seen();
        stage.fact("requests", Fact::Count(seen.len() as u64));
        world.once_and_before_deletions(stage, &mine);
        after(stage, &mut world, &mine)?;
    }
    Ok(())
}

/// The server comes back with an empty bucket: what the cache has may be all there is.
pub fn emptied(stage: &mut Stage) -> Played {
    let mut world = World::start(stage)?;
    stage.open()?;
    stage.fill()?;
    let mine = series(stage, "mine", 20, BYTES);
    whole(stage, RemoteTask::Write(mine.clone()))?;
    sync(stage, stage.root())?;
    world.kill_server()?;
    world.start_server(true)?;
    stage.injected("the server was killed, and came back with an empty bucket");
    // Some looks at the bucket.
    std::thread::sleep(Duration::from_secs(6));
    let read = stage.perform(&Task::Remote(RemoteTask::Read(mine.clone())))?;
    if read.is_none_or(|answer| !answer.failures.is_empty()) {
        stage.breach("what was here is gone because it was gone there");
    }
    stage.audit_as(IN_USE, Some(Acknowledgement::Write))?;
    let began = Instant::now();
    let root = stage.root();
    let synced = stage.perform(&Task::Sync { root })?;
    if synced.is_none_or(|answer| !answer.failures.is_empty()) {
        // It does not say that all is well: somebody has to see to it.
        return match stage.daemon_log().contains(REFILL) {
            true => refill(stage, &mut world, &mine),
            false => by_hand(stage, &mut world, &mine),
        };
    }
    let ms = began.elapsed().as_millis() as u64;
    match is_elsewhere(stage, &mut world, &mine)? {
        true => stage.recovered(Return::ByItself, ms, None),
        false => stage
            .breach("ctxbench sync says that everything is in the bucket, and another host does not read it"),
    }
    Ok(())
}

/// Whether another host reads all of it.
fn is_elsewhere(stage: &mut Stage, world: &mut World, mine: &Series) -> Played<bool> {
    let there = Series {
        dir: world.elsewhere(stage)?,
        ..mine.clone()
    };
    let read = stage.perform(&Task::Remote(RemoteTask::Read(there)))?;
    Ok(read.is_some_and(|answer| answer.failures.is_empty()))
}

/// The step that the daemon's log names.
fn refill(stage: &mut Stage, world: &mut World, mine: &Series) -> Played {
    let step = format!("an unmount, and a mount with {REFILL}, as the daemon's log says");
    let began = Instant::now();
    // It says that it could not bring everything up.
    let _ = stage.close()?;
    let tried = match stage.open_with(REFILL)? {
        Err(words) => Err(words.lines().next().unwrap_or_default().to_owned()),
        Ok(()) => match sync(stage, stage.root()) {
            Err(Spoiled::Infra(reason)) => Err(reason),
            synced => Ok(synced?),
        },
    };
    let ms = began.elapsed().as_millis() as u64;
    if let Err(reason) = tried {
        stage.recovered(Return::Never, ms, Some(format!("{step}: {reason}")));
        stage.breach(format!(
            "the step that the daemon's log names does not help: {reason}"
        ));
        return Ok(());
    }
    stage.recovered(Return::AfterStep, ms, Some(step));
    stage.audit_as("refilled", Some(Acknowledgement::Write))?;
    if !is_elsewhere(stage, world, mine)? {
        stage.breach("another host does not read what was brought up again");
    }
    Ok(())
}

/// A step that always helps, where the log names none: the files, which were read already, are written once more through a new cache.
fn by_hand(stage: &mut Stage, world: &mut World, mine: &Series) -> Played {
    let step = "copy the files out, unmount, delete the cache, mount again, copy them in: the daemon's log names no option";
    let began = Instant::now();
    // It says that it could not bring everything up.
    let _ = stage.close()?;
    let tried = world
        .begin_anew(stage, "by-hand")
        .and_then(|()| whole(stage, RemoteTask::Write(mine.clone())))
        .and_then(|_| sync(stage, stage.root()));
    let ms = began.elapsed().as_millis() as u64;
    match tried {
        Ok(()) => stage.recovered(Return::AfterStep, ms, Some(step.to_owned())),
        Err(Spoiled::Infra(reason)) => {
            stage.recovered(Return::Never, ms, Some(format!("{step}: {reason}")));
            stage.breach(format!("a step by hand does not help: {reason}"));
            return Ok(());
        }
        Err(spoiled) => return Err(spoiled),
    }
    if !is_elsewhere(stage, world, mine)? {
        stage.breach("another host does not read what was copied in");
    }
    Ok(())
}
