//! Garbage collection: the only command that deletes from a log.
//!
//! A run first states, in a floor, from which checkpoint on history is kept. Only a run that is a grace time later
//! deletes what that checkpoint and the commits after it do not need, so no request that was in flight when the floor
//! was made can still depend on it. A crash at any point leaves garbage, and nothing missing.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};

use crate::client::{Client, Listed, Sweeper};
use crate::format::{Checkpoint, Floor};
use crate::history::{At, HistoryError, Walk, checkpoint, floors};
use crate::keys::Keys;
use crate::objects::{Fault, Key, Objects, Put};
use crate::session::{SessionError, damaged};
use crate::tree::{Changes, Node, Place};

/// Deletions that are in flight at once.
const AT_ONCE: usize = 16;

/// What to keep.
#[derive(Clone, Copy, Debug)]
pub struct GcOptions {
    /// History younger than this is kept.
    pub older_than: Duration,
    /// How old a floor must be before anything is deleted for it, and how old a blob that nothing refers to: at least
    /// [`GRACE`] nanoseconds, which sessions rely on, except in tests.
    ///
    /// [`GRACE`]: crate::session::GRACE
    pub grace: Duration,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What a run did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The checkpoint of the floor that this run made: history begins there from now on. `None` if there is no commit
    /// between the last floor and the cutoff.
    pub floor: Option<u64>,
    /// The checkpoint before which this run deleted; `None` if no floor is old enough yet.
    pub swept: Option<u64>,
    /// Keys of deleted objects.
    pub deleted: Vec<String>,
    /// Their length in bytes.
    pub bytes: u64,
    /// Commits below the floor that were made after it, by a mount that was away too long. They are kept.
    pub stray: Vec<u64>,
}

/// Makes a floor at the last commit that is older than the cutoff, and deletes what an earlier floor allows. `now` is
/// the current time in nanoseconds since 1970.
///
/// # Errors
/// [`HistoryError`]; nothing is deleted unless the log from the floor to its head is in order.
pub async fn collect(
    client: &Client,
    sweeper: &Sweeper,
    options: GcOptions,
    now: i64,
) -> Result<Collected, HistoryError> {
    let before =
        |age: Duration| now.saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX));
    let mut done = Collected {
        floor: make_floor(client, before(options.older_than), now, options.dry_run).await?,
        ..Collected::default()
    };
    // Listed before the head is read: what is uploaded or committed later is not in the listing.
    let listed = sweeper.list().await?;
    let latest = before(options.grace);
    let floors = floors(client).await?;
    let old = floors.iter().enumerate().rev().find_map(|(index, floor)| {
        let key = client.key(Key::Floor(index as u64 + 1));
        let object = listed.iter().find(|object| object.key == key)?;
        (object.modified <= latest).then_some((floor.checkpoint, object.modified))
    });
    let Some((kept_from, made)) = old else {
        return Ok(done);
    };
    done.swept = Some(kept_from);
    let needed = Needed::of(client, kept_from).await?;
    let blobs = format!("{}blob/", sweeper.prefix());
    let mut garbage: Vec<&Listed> = Vec::new();
    for object in &listed {
        let number = Keys::number(&object.key);
        let is = |key: Key| client.key(key) == object.key;
        let is_garbage = match number {
            Some(number) if is(Key::Log(number)) => {
                let is_before = number > 1 && number < kept_from;
                if is_before && object.modified > made {
                    done.stray.push(number);
                    continue;
                }
                is_before && !needed.commits.contains(&number)
            }
            Some(number) if is(Key::Checkpoint(number)) => number < kept_from,
            Some(number) if is(Key::Floor(number)) => false,
            _ => {
                object.key.starts_with(&blobs)
                    && object.modified <= latest
                    && !needed.blobs.contains(&object.key)
            }
        };
        if is_garbage {
            garbage.push(object);
        }
    }
    done.bytes = garbage.iter().map(|object| object.size).sum();
    done.deleted = garbage.iter().map(|object| object.key.clone()).collect();
    if !options.dry_run {
        let deletions = done.deleted.iter().map(|key| sweeper.delete(key));
        stream::iter(deletions)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
    }
    Ok(done)
}

/// Makes a floor at the last commit before the first one that was made later than `cutoff`; its checkpoint.
async fn make_floor(
    client: &Client,
    cutoff: i64,
    now: i64,
    dry_run: bool,
) -> Result<Option<u64>, HistoryError> {
    let floors = floors(client).await?;
    let last = floors.last().map_or(0, |floor| floor.checkpoint);
    let mut walk = Walk::from_checkpoint(client, last).await?;
    walk.advance(At::Time(cutoff)).await?;
    let number = walk.head().number;
    if number <= last || dry_run {
        return Ok((number > last).then_some(number));
    }
    let key = Key::Checkpoint(number);
    let object = Checkpoint {
        number,
        hash: walk.head().hash,
        time: walk.time(),
        tree: walk.tree().to_changes(),
    };
    let object = object.encode().map_err(|error| damaged(key, error))?;
    if client.put_new(key, object).await? == Put::Exists {
        // History will depend on it alone.
        let there = checkpoint(client, number).await?;
        let is_same =
            |(there, tree): (Checkpoint, _)| there.hash == walk.head().hash && tree == *walk.tree();
        if !there.is_some_and(is_same) {
            return Err(damaged(key, "it differs from the commits up to it").into());
        }
    }
    let key = Key::Floor(floors.len() as u64 + 1);
    let floor = Floor {
        checkpoint: number,
        time: now,
    };
    let floor = floor.encode().map_err(|error| damaged(key, error))?;
    match client.put_new(key, floor).await? {
        Put::Created => Ok(Some(number)),
        Put::Exists => {
            let reason = "another garbage collection runs: try again later".to_owned();
            Err(Fault::Unknown(reason).into())
        }
    }
}

/// What a checkpoint and the commits after it refer to.
#[derive(Default)]
struct Needed {
    blobs: BTreeSet<String>,
    commits: BTreeSet<u64>,
}

impl Needed {
    async fn of(client: &Client, kept_from: u64) -> Result<Self, SessionError> {
        let mut needed = Self::default();
        let mut walk = Walk::from_checkpoint(client, kept_from).await?;
        needed.add(client, &walk.tree().to_changes());
        while let Some(step) = walk.next().await? {
            needed.add(client, &step.commit.changes);
            walk.apply(&step);
        }
        Ok(needed)
    }

    fn add(&mut self, client: &Client, changes: &Changes) {
        let contents = changes.nodes.values().filter_map(Node::content);
        for chunk in contents.flat_map(|content| &content.chunks) {
            match chunk.place {
                Place::Blob { salt } => {
                    self.blobs.insert(client.key(Key::Blob(chunk.hash, salt)));
                }
                Place::Inline { commit, .. } => {
                    self.commits.insert(commit);
                }
                Place::Hole | Place::Local => {}
            }
        }
    }
}
