//! Faults of single S3 requests: errors, delays, damaged or stale answers.

use std::time::{Duration, Instant};

use backends::promise::Acknowledgement;
use rundir::faults::{Fact, SeenKind};
use servers::{Fault, Operation, Rule, When};
use workloads::fault::{BadAnswer, Flaky};

use super::super::super::agent::{RemoteTask, Series, Task};
use super::super::super::bed::{Injected, ScenarioError, TestBed};
use super::outage::after;
use super::series;
use super::world::{World, recover, sync, whole};

/// Bytes of a file that the daemon fetches in parts.
const LARGE: usize = 9 << 20;

/// Requests on objects and listings, which make up the usual traffic of a mount.
const ALL: [Operation; 7] = [
    Operation::Get,
    Operation::Head,
    Operation::Put,
    Operation::Copy,
    Operation::List,
    Operation::Delete,
    Operation::Parts,
];

/// Some requests fail while the agent process works. It must see no error, and no upload may happen twice.
pub fn flaky(bed: &mut TestBed, how: Flaky) -> Injected {
    let refuse = |status: u16, code: &str| Fault::Refuse {
        status,
        code: code.to_owned(),
        retry_after: None,
    };
    let each = |nth: u64| When::Bursts {
        length: 1,
        every: nth,
    };
    let (rule, what) = match how {
        Flaky::SlowDownBursts { length, every } => (
            Rule::always(refuse(503, "SlowDown"))
                .of(&ALL)
                .when(When::Bursts { length, every }),
            format!("{length} of every {every} requests in a row were answered 503 SlowDown"),
        ),
        Flaky::InternalErrors { nth } => (
            Rule::always(refuse(500, "InternalError"))
                .of(&ALL)
                .when(each(nth)),
            format!("every {nth}th request was answered 500 InternalError"),
        ),
        Flaky::LostAnswers { nth } => (
            Rule::always(Fault::LoseAnswer)
                .of(&[Operation::Put, Operation::Delete])
                .when(each(nth)),
            format!("every {nth}th upload or deletion was done, and its answer lost"),
        ),
        Flaky::Resets { nth } => (
            Rule::always(Fault::Reset).of(&ALL).when(each(nth)),
            format!("every {nth}th connection was reset before the server saw the request"),
        ),
    };
    let mut world = World::start(bed)?;
    bed.open()?;
    bed.fill()?;
    let there = series(bed, "there", 40, 2000);
    world.others_write(bed, &there)?;
    world.begin();
    world.set(vec![rule]);
    bed.injected(format!(
        "{what}, while 60 files were written and synced and 40 were fetched"
    ));
    bed.outcome.label = Some("simulated by a proxy".to_owned());
    let mine = series(bed, "mine", 60, 2000);
    bed.perform(&Task::Remote(RemoteTask::Write(mine.clone())))?;
    bed.perform(&Task::Remote(RemoteTask::Read(there)))?;
    let root = bed.root();
    bed.perform(&Task::Sync { root: root.clone() })?;
    // From here on: only synced records, and uploads that the failed sync left over.
    let before = bed.counted();
    bed.write(20)?;
    bed.perform(&Task::Sync { root })?;
    world.fired(bed)?;
    world.proxy.clear();
    if recover(bed)? {
        bed.count_syncs(before.as_ref());
        world.once_and_before_deletions(bed, &mine);
        after(bed, &mut world, &mine)?;
    }
    Ok(())
}

/// Every exchange takes longer. No call may fail.
pub fn slow(bed: &mut TestBed, rtt_ms: f64) -> Injected {
    let mut world = World::start(bed)?;
    bed.open()?;
    bed.fill()?;
    let there = series(bed, "there", 10, 2000);
    world.others_write(bed, &there)?;
    world.set(vec![Rule::always(Fault::Delay { ms: rtt_ms })]);
    bed.injected(format!(
        "every exchange with the server took {rtt_ms} ms longer"
    ));
    bed.outcome.label = Some("simulated by a proxy, by exchange and not by packet".to_owned());
    let milliseconds = |bed: &mut TestBed, name: &str, task: Task| -> Injected {
        let started = Instant::now();
        bed.perform(&task)?;
        bed.fact(name, Fact::Number(started.elapsed().as_secs_f64() * 1e3));
        Ok(())
    };
    milliseconds(
        bed,
        "first_read_of_10_ms",
        Task::Remote(RemoteTask::Read(there.clone())),
    )?;
    milliseconds(
        bed,
        "second_read_of_10_ms",
        Task::Remote(RemoteTask::Read(there)),
    )?;
    let mine = series(bed, "mine", 100, 1000);
    milliseconds(
        bed,
        "write_of_100_ms",
        Task::Remote(RemoteTask::Write(mine.clone())),
    )?;
    let root = bed.root();
    milliseconds(bed, "sync_of_100_ms", Task::Sync { root })?;
    // Few changes, because each fsync may wait for several requests.
    let before = bed.counted();
    bed.write(3)?;
    world.fired(bed)?;
    if recover(bed)? {
        bed.count_syncs(before.as_ref());
        after(bed, &mut world, &mine)?;
    }
    Ok(())
}

/// Fetched content is damaged, first once and then every time. The agent process may see an error, but no
/// wrong bytes.
pub fn bad_answer(bed: &mut TestBed, how: BadAnswer) -> Injected {
    let (fault, what) = match how {
        BadAnswer::Reset => (
            Fault::ResetInBody,
            "the connection was reset in the middle of the body",
        ),
        BadAnswer::Cut => (
            Fault::CutBody,
            "the body ended in its middle, whatever Content-Length said",
        ),
        BadAnswer::Short => (
            Fault::ShortenBody,
            "half of the body came, and Content-Length said so",
        ),
        BadAnswer::WrongBytes => (
            Fault::DamageBody,
            "some bytes of the body were wrong, its length right",
        ),
    };
    let mut world = World::start(bed)?;
    bed.open()?;
    bed.fill()?;
    let small = series(bed, "there", 4, 2000);
    let large = series(bed, "large", 2, LARGE);
    world.others_write(bed, &small)?;
    world.others_write(bed, &large)?;
    let one = |series: &Series, number: u64| {
        Task::Remote(RemoteTask::Read(Series {
            first: number,
            files: 1,
            ..series.clone()
        }))
    };
    bed.injected(format!(
        "{what}: of the first answer to GET, and then of all"
    ));
    bed.outcome.label = Some("simulated by a proxy".to_owned());
    let bad = |when: When| vec![Rule::always(fault.clone()).of(&[Operation::Get]).when(when)];
    let mut errors = 0;
    let mut hits = 0;
    for (when, number) in [(When::First(1), 0), (When::Always, 1)] {
        for series in [&small, &large] {
            world.set(bad(when));
            let answer = bed.perform(&one(series, number))?;
            let failed = answer.is_none_or(|answer| !answer.failures.is_empty());
            errors += u64::from(failed);
            hits += world
                .proxy
                .fired()
                .iter()
                .map(|fired| fired.done)
                .sum::<u64>();
            if failed && matches!(when, When::First(_)) {
                bed.fact("one_bad_answer_is_an_error", Fact::Count(1));
            }
        }
    }
    world.proxy.clear();
    bed.fact("requests_hit", Fact::Count(hits));
    bed.fact("reads_that_failed_of_4", Fact::Count(errors));
    if hits < 4 {
        return Err(ScenarioError::Infra(format!(
            "only {hits} answers were bad"
        )));
    }
    // Once answers are right again, reads must be right. No wrong content may be cached.
    let began = Instant::now();
    for series in [&small, &large] {
        let read = bed.perform(&Task::Remote(RemoteTask::Read(series.clone())))?;
        if read.is_none_or(|answer| !answer.failures.is_empty()) {
            bed.breach("what had come wrong stays wrong");
        }
    }
    bed.recovered(
        rundir::faults::Return::ByItself,
        began.elapsed().as_millis() as u64,
        None,
    );
    if bed
        .outcome
        .seen
        .iter()
        .any(|seen| seen.what == SeenKind::WrongBytes)
    {
        bed.breach("bytes that nobody wrote were read without an error");
    }
    Ok(())
}

/// Uploaded bytes are damaged. The server must refuse them, and the retry must succeed.
pub fn damaged_upload(bed: &mut TestBed) -> Injected {
    let mut world = World::start(bed)?;
    bed.open()?;
    bed.fill()?;
    sync(bed, bed.root())?;
    world.begin();
    world.set(vec![
        Rule::always(Fault::DamageRequest).of(&[Operation::Put, Operation::Parts]),
    ]);
    bed.injected("some bytes of every upload were wrong when the server got it");
    bed.outcome.label = Some("simulated by a proxy".to_owned());
    let mine = series(bed, "mine", 20, 2000);
    whole(bed, RemoteTask::Write(mine.clone()))?;
    bed.write(10)?;
    let root = bed.root();
    let synced = bed.perform(&Task::Sync { root })?;
    if synced.is_some_and(|answer| answer.failures.is_empty()) {
        bed.breach("ctxbench s3 sync returned success, and wrong bytes are in the bucket");
    }
    world.fired(bed)?;
    world.proxy.clear();
    if recover(bed)? {
        world.once_and_before_deletions(bed, &mine);
        after(bed, &mut world, &mine)?;
    }
    Ok(())
}

/// Listings are stale. New files must not vanish, and deleted files must not reappear.
pub fn stale_list(bed: &mut TestBed) -> Injected {
    let mut world = World::start(bed)?;
    bed.open()?;
    bed.fill()?;
    let old = series(bed, "old", 10, 500);
    whole(bed, RemoteTask::Write(old.clone()))?;
    sync(bed, bed.root())?;
    // Long enough for at least one poll.
    std::thread::sleep(Duration::from_secs(2));
    world.begin();
    world.set(vec![Rule::always(Fault::StaleList).of(&[Operation::List])]);
    bed.injected("for 5 s listings showed what was there before 20 files were written, 5 overwritten and 5 deleted");
    bed.outcome.label =
        Some("simulated by a proxy, which answers with an earlier listing".to_owned());
    let mine = series(bed, "mine", 20, 500);
    whole(bed, RemoteTask::Write(mine.clone()))?;
    let changed = Series {
        files: 5,
        version: 2,
        ..old.clone()
    };
    whole(bed, RemoteTask::Write(changed.clone()))?;
    let deleted = Series {
        first: 5,
        files: 5,
        ..old
    };
    whole(bed, RemoteTask::Remove(deleted))?;
    bed.write(10)?;
    sync(bed, bed.root())?;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        let listed = whole(bed, RemoteTask::List { dir: bed.root() })?;
        let names = listed
            .facts
            .get("names")
            .map(ToString::to_string)
            .unwrap_or_default();
        let count = |start: &str| names.lines().filter(|name| name.starts_with(start)).count();
        let (new, old) = (count("mine-"), count("old-"));
        if new != 20 {
            bed.breach(format!(
                "{} of 20 new files have vanished",
                20 - new.min(20)
            ));
            break;
        }
        if old != 5 {
            bed.breach(format!(
                "{old} files of which 5 were deleted and 5 are left"
            ));
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    for series in [&mine, &changed] {
        bed.perform(&Task::Remote(RemoteTask::Read(series.clone())))?;
    }
    world.fired(bed)?;
    bed.audit_as("during", Some(Acknowledgement::Write))?;
    world.proxy.clear();
    if recover(bed)? {
        after(bed, &mut world, &mine)?;
    }
    Ok(())
}
