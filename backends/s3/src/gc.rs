//! Garbage collection: the only command that deletes from a log.
//!
//! A run first states, in a floor, from which checkpoint on history is kept. Only a run that is a grace time later
//! deletes what that checkpoint and the commits after it do not need, so no request that was in flight when the floor
//! was made can still depend on it. A crash at any point leaves garbage, and nothing missing.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};

use crate::client::{Client, Sweeper};
use crate::history::{HistoryPoint, Result, advance};
use crate::objects::{Fault, Floor, Key, Objects, PutOutcome, Record};
use crate::reader::{SessionError, Walk, checkpoint, create_checkpoint, damaged, floors, oldest};
use crate::tree::{Chunk, Place};

/// Deletions that are in flight at once.
const AT_ONCE: usize = 16;

/// The history that garbage collection keeps.
#[derive(Clone, Copy, Debug)]
pub struct GcOptions {
    /// History younger than this is kept.
    pub older_than: Duration,
    /// How old a floor must be before anything is deleted for it, and how old a blob that nothing refers to: at least
    /// [`GRACE`] nanoseconds, which sessions rely on, except in tests.
    ///
    /// [`GRACE`]: crate::session::GRACE
    pub grace: Duration,
    /// Only reports; changes nothing.
    pub dry_run: bool,
}

/// The result of a run; of a dry run, the result that it would have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// The checkpoint of the new floor, where history begins; `None` without a commit between last floor and cutoff.
    pub floor: Option<u64>,
    /// The checkpoint before which this run deleted; `None` if no floor is old enough yet.
    pub swept: Option<u64>,
    /// Keys of deleted objects, below that of the log.
    pub deleted: Vec<String>,
    /// Their length in bytes.
    pub bytes: u64,
    /// Commits below the floor that were made after it, by a mount that was away too long. They are kept.
    pub stray: Vec<u64>,
}

/// Makes a floor at the last commit that is older than the cutoff, and deletes what an earlier floor allows. `now` is
/// the current time in nanoseconds since 1970.
/// Nothing is deleted unless the log from the floor to its head is in order.
pub async fn collect(client: &Client, sweeper: &Sweeper, options: GcOptions, now: i64) -> Result<GcReport> {
    let before = |age: Duration| now.saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX));
    let mut done = GcReport {
        floor: make_floor(client, before(options.older_than), now, options.dry_run).await?,
        ..GcReport::default()
    };
    // List before the head is read, so that the listing has no object of a later upload or commit.
    let listed = sweeper.list().await?;
    let latest = before(options.grace);
    let floors = floors(client, Vec::new()).await?;
    let old = floors.iter().enumerate().rev().find_map(|(index, floor)| {
        let key = client.path(Key::Floor(index as u64 + 1));
        let object = listed.iter().find(|object| object.key == key)?;
        (object.modified <= latest).then_some((floor.checkpoint, object.modified))
    });
    let Some((kept_from, made)) = old else {
        return Ok(done);
    };
    done.swept = Some(kept_from);
    let needed = needed(client, kept_from).await?;
    for object in listed {
        let (kind, name) = object.key.split_once('/').unwrap_or_default();
        let number = name.parse::<u64>().ok().filter(|_| name.len() == 20);
        let is_garbage = match (kind, number) {
            ("log", Some(number)) if (2..kept_from).contains(&number) => {
                let is_stray = object.modified > made;
                done.stray.extend(is_stray.then_some(number));
                !is_stray
            }
            ("checkpoint", Some(number)) => number < kept_from,
            ("blob", _) => object.modified <= latest,
            _ => false,
        };
        if is_garbage && !needed.contains(&object.key) {
            done.bytes += object.size;
            done.deleted.push(object.key);
        }
    }
    if !options.dry_run {
        let deletions = done.deleted.iter().map(|key| sweeper.delete(key));
        let deletions = stream::iter(deletions).buffer_unordered(AT_ONCE);
        deletions.try_collect::<()>().await?;
    }
    Ok(done)
}

/// Makes a floor at the last commit before the first one that was made later than `cutoff`; its checkpoint.
async fn make_floor(client: &Client, cutoff: i64, now: i64, dry_run: bool) -> Result<Option<u64>> {
    let floors = floors(client, Vec::new()).await?;
    let last = oldest(&floors);
    let mut walk = Walk::start(client, last).await?;
    advance(&mut walk, HistoryPoint::Time(cutoff)).await?;
    let (head, tree) = (walk.head, &walk.tree);
    let number = head.number;
    if number <= last || dry_run {
        return Ok((number > last).then_some(number));
    }
    if create_checkpoint(client, head, walk.time, tree).await? == PutOutcome::Exists {
        // History will depend on it alone.
        let there = checkpoint(client, number).await?;
        if !there.is_some_and(|(there, stored)| there.hash == head.hash && stored == *tree) {
            let reason = "it differs from the commits up to it";
            return Err(damaged(Key::Checkpoint(number), reason).into());
        }
    }
    let key = Key::Floor(floors.len() as u64 + 1);
    let floor = Floor { checkpoint: number, time: now };
    let floor = floor.encode(&[]).map_err(|error| damaged(key, error))?;
    match client.put_new(key, floor).await? {
        PutOutcome::Created => Ok(Some(number)),
        PutOutcome::Exists => {
            let reason = "another garbage collection runs: try again later".to_owned();
            Err(Fault::Unknown(reason).into())
        }
    }
}

/// The keys, below that of the log, of what a checkpoint and the commits after it refer to.
async fn needed(client: &Client, kept_from: u64) -> Result<BTreeSet<String>, SessionError> {
    let key = |chunk: &Chunk| match chunk.place {
        Place::Blob { salt } => Some(client.path(Key::Blob(chunk.hash, salt))),
        Place::Inline { commit, .. } => Some(client.path(Key::Log(commit))),
        Place::Hole | Place::Local => None,
    };
    let mut walk = Walk::start(client, kept_from).await?;
    let mut needed: BTreeSet<String> = walk.tree.chunks().filter_map(key).collect();
    while let Some(step) = walk.next().await? {
        needed.extend(step.commit.changes.chunks().filter_map(key));
        walk.apply(&step);
    }
    Ok(needed)
}
