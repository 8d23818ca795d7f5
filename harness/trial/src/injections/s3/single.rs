//! Faults of single S3 requests: errors, delays, damaged or stale answers.

use std::time::{Duration, Instant};

use rundir::faults::{AgentEventKind, Fact, Return};
use servers::{Operation, RequestFault, Rule, RuleFrequency};
use workloads::fault::{BadAnswer, FailurePattern};

use super::super::super::agent::{FileSeries, Job};
use super::super::super::bed::{StepResult, TestBed, infra};
use super::outage::{afterwards, no_conflict, on_new_machine};
use super::world::{BucketWorld, names, recover, sync, whole, write};
use super::{BLOB, refusal};

/// Bytes of a file that the daemon fetches in parts.
const LARGE: usize = 9 << 20;

/// Commits after which a small memory has a checkpoint.
const COMMITS_UNTIL_CHECKPOINT: u64 = 80;

/// Requests on objects and listings, which make up the usual traffic of a mount.
const ALL: [Operation; 4] = [Operation::Get, Operation::Put, Operation::List, Operation::Delete];

/// Prefixes of the paths of blobs and commits.
const BLOBS: &str = "/.ctx/blob/";
const COMMITS: &str = "/.ctx/log/";

/// Some requests fail while the agent process works. Nothing may happen twice.
pub fn flaky(bed: &mut TestBed, world: &mut BucketWorld, how: FailurePattern) -> StepResult {
    let each = |nth: u64| RuleFrequency::Bursts { length: 1, every: nth };
    let (rule, what) = match how {
        FailurePattern::SlowDownBursts { length, every } => (
            Rule::always(refusal(503, "SlowDown")).of(&ALL).when(RuleFrequency::Bursts { length, every }),
            format!("{length} of every {every} requests in a row were answered 503 SlowDown"),
        ),
        FailurePattern::InternalErrors { nth } => (
            Rule::always(refusal(500, "InternalError")).of(&ALL).when(each(nth)),
            format!("every {nth}th request was answered 500 InternalError"),
        ),
        FailurePattern::LostAnswers { nth } => (
            Rule::always(RequestFault::LoseAnswer).of(&[Operation::Put]).when(each(nth)),
            format!("every {nth}th upload was done, and its answer lost"),
        ),
        FailurePattern::Resets { nth } => (
            Rule::always(RequestFault::Reset).of(&ALL).when(each(nth)),
            format!("every {nth}th connection was reset before the server saw the request"),
        ),
    };
    bed.open_and_fill()?;
    let there = FileSeries::new("there", 40, BLOB);
    world.others_write(bed, &there)?;
    world.set(vec![rule]);
    bed.injected(format!("{what}, while 60 files were written in 20 syncs and 40 were fetched"));
    bed.label("simulated by a proxy");
    let mine = FileSeries::new("mine", 60, 2000);
    for first in (0..mine.files).step_by(3) {
        bed.perform(bed.root(), &Job::WriteSeries(mine.part(first, 3)))?;
        bed.perform(bed.root(), &Job::Sync)?;
    }
    bed.perform(bed.root(), &Job::ReadSeries(there))?;
    // From here on: only synced records, and uploads that a failed sync left over.
    let before = bed.counted();
    bed.write(20)?;
    bed.perform(bed.root(), &Job::Sync)?;
    world.fired(bed)?;
    world.proxy.clear();
    if recover(bed)? {
        bed.count_syncs(before.as_ref());
        no_conflict(bed)?;
        afterwards(bed, world, &[mine])?;
    }
    Ok(())
}

/// Every exchange takes longer. No call may fail.
pub fn slow(bed: &mut TestBed, world: &mut BucketWorld, rtt_ms: f64) -> StepResult {
    bed.open_and_fill()?;
    let there = FileSeries::new("there", 10, BLOB);
    world.others_write(bed, &there)?;
    world.set(vec![Rule::always(RequestFault::Delay { ms: rtt_ms })]);
    bed.injected(format!("every exchange with the server took {rtt_ms} ms longer"));
    bed.label("simulated by a proxy, by exchange and not by packet");
    let milliseconds = |bed: &mut TestBed, name: &str, job: Job| -> StepResult {
        let started = Instant::now();
        bed.perform(bed.root(), &job)?;
        bed.fact(name, Fact::Number(started.elapsed().as_secs_f64() * 1e3));
        Ok(())
    };
    for name in ["first_read_of_10_ms", "second_read_of_10_ms"] {
        milliseconds(bed, name, Job::ReadSeries(there.clone()))?;
    }
    let mine = FileSeries::new("mine", 100, 1000);
    let commits = world.commits();
    milliseconds(bed, "write_of_100_ms", Job::WriteSeries(mine.clone()))?;
    milliseconds(bed, "sync_of_100_ms", Job::Sync)?;
    bed.count("commits_of_100", world.commits() - commits);
    // Few changes, because each fsync may wait for several requests.
    let before = bed.counted();
    bed.write(3)?;
    world.fired(bed)?;
    if recover(bed)? {
        bed.count_syncs(before.as_ref());
        afterwards(bed, world, &[mine])?;
    }
    Ok(())
}

/// Fetched content is damaged, first once and then every time; then fetched commits are. The agent process may see an
/// error, but no wrong bytes.
pub fn bad_answer(bed: &mut TestBed, world: &mut BucketWorld, how: BadAnswer) -> StepResult {
    let (fault, what) = match how {
        BadAnswer::Reset => (RequestFault::ResetInBody, "the connection was reset in the middle of the body"),
        BadAnswer::Cut => (RequestFault::CutBody, "the body ended in its middle, whatever Content-Length said"),
        BadAnswer::Short => (RequestFault::ShortenBody, "half of the body came, and Content-Length said so"),
        BadAnswer::WrongBytes => (RequestFault::DamageBody, "some bytes of the body were wrong, its length right"),
    };
    bed.open_and_fill()?;
    let small = FileSeries::new("there", 4, BLOB);
    let large = FileSeries::new("large", 2, LARGE);
    world.others_write(bed, &small)?;
    world.others_write(bed, &large)?;
    bed.injected(format!("{what}: of the first answer to GET of content, then of all, and then of all commits"));
    bed.label("simulated by a proxy");
    let bad = |below: &str, when: RuleFrequency| {
        let rule = Rule::always(fault.clone()).of(&[Operation::Get]);
        vec![rule.below(below).when(when)]
    };
    let mut errors = 0;
    let mut hits = 0;
    for (when, number) in [(RuleFrequency::First(1), 0), (RuleFrequency::Always, 1)] {
        for series in [&small, &large] {
            world.set(bad(BLOBS, when));
            let one = Job::ReadSeries(series.part(number, 1));
            let failed = !bed.succeeds(bed.root(), &one)?;
            errors += u64::from(failed);
            hits += world.hits();
            if failed && matches!(when, RuleFrequency::First(_)) {
                bed.count("one_bad_answer_is_an_error", 1);
            }
        }
    }
    let late = FileSeries::new("late", 4, 2000);
    let there = world.elsewhere(bed)?;
    world.set(bad(COMMITS, RuleFrequency::Always));
    whole(bed, &there, &Job::WriteSeries(late.clone()))?;
    sync(bed, there)?;
    // Some polls.
    std::thread::sleep(Duration::from_secs(3));
    // Files of a commit that cannot be read are not there yet. They must not be wrong.
    bed.perform(bed.root(), &Job::ReadSeries(late.clone()))?;
    world.proxy.clear();
    bed.count("requests_hit", hits);
    bed.count("reads_that_failed_of_4", errors);
    if hits < 4 {
        return infra(format!("only {hits} answers were bad"));
    }
    // Once answers are right again, reads must be right. No wrong content may be cached.
    let began = Instant::now();
    whole(bed, bed.root(), &Job::AwaitSeries(late.clone()))?;
    for series in [&small, &large, &late] {
        if !bed.succeeds(bed.root(), &Job::ReadSeries(series.clone()))? {
            bed.breach(format!("the files {} stay wrong", series.name));
        }
    }
    bed.recovered(Return::ByItself, began.elapsed(), None);
    let mut seen = bed.outcome.seen.iter();
    if seen.any(|seen| seen.what == AgentEventKind::WrongBytes) {
        bed.breach("wrong bytes were read without an error");
    }
    Ok(())
}

/// Uploaded bytes are damaged. The server must refuse them, and the retry must succeed.
pub fn damaged_upload(bed: &mut TestBed, world: &mut BucketWorld) -> StepResult {
    bed.open_and_fill()?;
    sync(bed, bed.root())?;
    world.set(vec![Rule::always(RequestFault::DamageRequest).of(&[Operation::Put])]);
    bed.injected("some bytes of every upload were wrong when the server got it");
    bed.label("simulated by a proxy");
    // Contents of commits, and contents with objects of their own.
    let (mine, blobs) = (FileSeries::new("mine", 20, 2000), FileSeries::new("blobs", 4, BLOB));
    write(bed, &mine)?;
    write(bed, &blobs)?;
    bed.write(10)?;
    if bed.succeeds(bed.root(), &Job::Sync)? {
        bed.breach("ctxbench s3 sync returned success, and wrong bytes are in the bucket");
    }
    world.fired(bed)?;
    world.proxy.clear();
    if recover(bed)? {
        afterwards(bed, world, &[mine, blobs])?;
    }
    Ok(())
}

/// Listings are stale. A new machine lists checkpoints, and must find the newest commit all the same.
pub fn stale_list(bed: &mut TestBed, world: &mut BucketWorld) -> StepResult {
    // The mount lists the checkpoints, of which there are none. The proxy repeats that answer later.
    bed.open_and_fill()?;
    let old = FileSeries::new("old", 10, 500);
    write(bed, &old)?;
    sync(bed, bed.root())?;
    let mine = FileSeries::new("mine", COMMITS_UNTIL_CHECKPOINT, 500);
    for first in 0..mine.files {
        write(bed, &mine.part(first, 1))?;
        sync(bed, bed.root())?;
    }
    let changed = old.part(0, 5).version(2);
    write(bed, &changed)?;
    whole(bed, bed.root(), &Job::RemoveSeries(old.part(5, 5)))?;
    bed.fill_again()?;
    let checkpoints = world.checkpoints();
    bed.count("checkpoints_not_listed", checkpoints);
    if checkpoints == 0 {
        return infra("the mount has made no checkpoint: no listing is stale");
    }
    world.set(vec![Rule::always(RequestFault::StaleList).of(&[Operation::List])]);
    bed.injected("listings do not show the checkpoints, which a new machine looks for");
    bed.label("simulated by a proxy, which answers with an earlier listing");
    let began = Instant::now();
    world.lose_machine_behind(bed, &world.proxy.endpoint())?;
    bed.recovered(Return::ByItself, began.elapsed(), None);
    world.fired(bed)?;
    on_new_machine(bed, &[mine, changed])?;
    let names = names(bed, bed.root())?;
    let left = names.iter().filter(|name| name.starts_with("old-")).count();
    if left != 5 {
        bed.breach(format!("{left} files of which 5 were deleted and 5 are left"));
    }
    Ok(())
}
