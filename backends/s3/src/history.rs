//! Reads a log's history: events by path, earlier contents; and restores them.
//!
//! History begins at the newest floor, the statement of garbage collection that earlier commits may be gone.

use std::collections::BTreeMap;
use std::io::{self, Write};

use futures::{StreamExt, TryStreamExt, stream};

use crate::checkout::{Checkout, Occupied};
use crate::objects::{Fault, Objects};
use crate::reader::{SessionError, Walk, fetch, floors, oldest};
use crate::tree::{Node, NodeId, Tree};

/// Chunks of a file that are fetched at once; each holds 8 MiB in memory.
const CHUNKS_AT_ONCE: usize = 2;

/// A moment of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// After the newest commit.
    Head,
    /// After the commit of that number.
    Commit(u64),
    /// Before the first commit that was made later than that, in nanoseconds since 1970 by the writers' clocks.
    Time(i64),
}

/// Why something cannot be read from history, or brought back.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The log cannot be read.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// It was before the oldest commit that can be read.
    #[error("history begins at commit {0}: garbage collection removed everything before it")]
    TooOld(u64),
    /// No commit has the first number; the second number is that of the newest commit.
    #[error("there is no commit {0}; the newest is {1}")]
    NoCommit(u64, u64),
    /// The path was not in the commit.
    #[error("{0} is not in commit {1} (`ctxbench s3 log {0}` lists the commits that changed it)")]
    NoPath(String, u64),
    /// The path was not a regular file in the commit.
    #[error("{0} was not a regular file in commit {1}")]
    NotFile(String, u64),
    /// Something else is where it would be restored to.
    #[error("cannot restore: {0} (choose another place with --to)")]
    Occupied(Occupied),
    /// The content cannot be written out.
    #[error("cannot write the content: {0}")]
    Output(io::Error),
}

impl From<Occupied> for HistoryError {
    fn from(occupied: Occupied) -> Self {
        Self::Occupied(occupied)
    }
}

impl From<io::Error> for HistoryError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// The result of reading or changing a history.
pub type Result<T, E = HistoryError> = std::result::Result<T, E>;

impl From<Fault> for HistoryError {
    fn from(fault: Fault) -> Self {
        Self::Session(fault.into())
    }
}

/// Goes on to the last commit that is not later than `at`.
pub(crate) async fn advance<O: Objects>(walk: &mut Walk<'_, O>, at: At) -> Result<()> {
    while !matches!(at, At::Commit(number) if walk.head.number >= number) {
        match walk.next().await? {
            Some(step) if !matches!(at, At::Time(time) if step.commit.time > time) => {
                walk.apply(&step);
            }
            _ => break,
        }
    }
    Ok(())
}

/// A walk that has come to a moment.
pub(crate) async fn walk_to<O: Objects>(objects: &O, at: At) -> Result<Walk<'_, O>> {
    let floor = oldest(&floors(objects, Vec::new()).await?);
    let last = match at {
        At::Head => u64::MAX,
        At::Commit(wanted) => wanted,
        At::Time(_) => 0,
    };
    let near = objects.checkpoints().await?.into_iter();
    let near = near.filter(|number| *number <= last);
    let mut walk = Walk::start(objects, near.max().unwrap_or(0).max(floor)).await?;
    let is_too_old = match at {
        At::Head => false,
        At::Commit(wanted) => wanted < walk.head.number,
        At::Time(time) => floor > 0 && time < walk.time,
    };
    if is_too_old {
        return Err(HistoryError::TooOld(floor));
    }
    advance(&mut walk, at).await?;
    match at {
        At::Commit(wanted) if wanted > walk.head.number => {
            Err(HistoryError::NoCommit(wanted, walk.head.number))
        }
        _ => Ok(walk),
    }
}

/// A change of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is new.
    Added,
    /// Its content changed, or something else took its place.
    Changed,
    /// Only its attributes changed.
    Attributes,
    /// It had another path before.
    Renamed(String),
    /// It is gone.
    Removed,
}

/// A commit, as the log shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its number.
    pub number: u64,
    /// When it was made, in nanoseconds since 1970 by the writer's clock.
    pub time: i64,
    /// The name of its writer.
    pub writer: String,
    /// Its changes, by path. Bytes that are not UTF-8 show as `U+FFFD`.
    pub events: BTreeMap<String, Event>,
}

/// The commits that changed `path` or something below it, newest first; all commits for the empty path.
pub async fn log<O: Objects>(objects: &O, path: &str) -> Result<Vec<LogEntry>> {
    let path = path.trim_matches('/');
    let is_below = |one: &str, other: &str| {
        let rest = one.strip_prefix(other);
        other.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut entries = Vec::new();
    let mut walk = Walk::start(objects, oldest(&floors(objects, Vec::new()).await?)).await?;
    while let Some(step) = walk.next().await? {
        let (changes, before) = (&step.commit.changes, &walk.tree);
        let nodes = changes.nodes.iter().filter_map(|(id, is)| {
            let was = before.node(*id)?;
            let is_same = match (was.content(), is.content()) {
                (Some(was), Some(is)) => was.same_bytes(is),
                _ => was.body == is.body,
            };
            let event = match is_same {
                true => Event::Attributes,
                false => Event::Changed,
            };
            Some((*id, event))
        });
        let nodes: Vec<_> = nodes.collect();
        let names = changes.names.iter().map(|(entry, to)| {
            let from = to.and_then(|to| before.path(to));
            (entry, before.name(entry), before.path_of(entry), from)
        });
        let names: Vec<_> = names.collect();
        walk.apply(&step);
        let after = &walk.tree;
        let nodes = nodes.into_iter();
        let nodes = nodes.filter_map(|(id, event)| Some((text(&after.path(id)?), event)));
        let mut events: BTreeMap<String, Event> = nodes.collect();
        for (entry, was, old_path, from) in names {
            let event = match (was, after.name(entry)) {
                // A node that is still there is shown under its new name.
                (Some(was), None) if after.node(was).is_some() => continue,
                (Some(_), None) => Event::Removed,
                (Some(was), Some(is)) if was == is => continue,
                (Some(_), Some(_)) => Event::Changed,
                (None, Some(is)) => match from.filter(|from| after.find(from) != Some(is)) {
                    Some(from) => Event::Renamed(text(&from)),
                    None => Event::Added,
                },
                (None, None) => continue,
            };
            let path = match event {
                Event::Removed => old_path,
                _ => after.path_of(entry),
            };
            events.extend(path.map(|path| (text(&path), event)));
        }
        events.retain(|changed, event| match event {
            _ if is_below(changed, path) => true,
            // Renaming a directory above the path moves the path, too.
            Event::Renamed(from) => {
                is_below(path, changed) || is_below(from, path) || is_below(path, from)
            }
            _ => false,
        });
        if path.is_empty() || !events.is_empty() {
            entries.push(LogEntry {
                number: step.commit.number,
                time: step.commit.time,
                writer: step.commit.writer_name,
                events,
            });
        }
    }
    entries.reverse();
    Ok(entries)
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn find(tree: &Tree, path: &str, number: u64) -> Result<NodeId> {
    tree.find(path.as_bytes())
        .ok_or_else(|| HistoryError::NoPath(path.to_owned(), number))
}

/// Writes the content that a file had at a moment to `out`; every chunk is checked against its digest first.
pub async fn show<O: Objects>(objects: &O, path: &str, at: At, out: &mut dyn Write) -> Result<()> {
    let Walk { head, tree, .. } = walk_to(objects, at).await?;
    let node = tree.node(find(&tree, path, head.number)?);
    let content = node.and_then(Node::content);
    let content = content.ok_or_else(|| HistoryError::NotFile(path.to_owned(), head.number))?;
    let chunks = stream::iter(&content.chunks).map(|chunk| fetch(objects, chunk));
    let mut chunks = chunks.buffered(CHUNKS_AT_ONCE);
    while let Some(bytes) = chunks.try_next().await? {
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// The result of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The commit that was restored from.
    pub from: u64,
    /// The commit that brought it back; `None` if everything was as it had been.
    pub commit: Option<u64>,
    /// Files, directories and links that were brought back or found unchanged.
    pub nodes: u64,
}

/// Restores a path's earlier state, there or at `to`, in one commit by `writer`. No content is uploaded again.
/// In a directory, files that were added since stay.
/// After a [`Fault`] the commit may be in the log.
pub async fn restore<O: Objects>(
    objects: &O,
    path: &str,
    at: At,
    to: Option<&str>,
    writer: &str,
) -> Result<Restored> {
    let Walk { head, tree, .. } = walk_to(objects, at).await?;
    let root = find(&tree, path, head.number)?;
    let mut checkout = Checkout::open(objects, writer).await?;
    let target = to.unwrap_or(path).trim_matches('/').as_bytes();
    let nodes = checkout.copy(&tree, root, target)?;
    let committed = checkout.commit(objects).await?;
    Ok(Restored {
        from: head.number,
        commit: committed.number,
        nodes,
    })
}
