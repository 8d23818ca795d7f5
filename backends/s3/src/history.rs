//! Reading the log: what changed when, what a path held, and bringing it back.
//!
//! History begins at the newest floor, the statement of garbage collection that earlier commits may be gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use crate::checkout::{Checkout, Occupied};
use crate::format::{Checkpoint, Commit, Floor};
use crate::merge::validate;
use crate::objects::{Fault, Key, Objects};
use crate::replica::{Head, NOTHING};
use crate::session::{Broken, SessionError, damaged, fetch};
use crate::tree::{Body, Content, Hash, Node, NodeId, Tree};

/// Commits that are fetched at once.
const AT_ONCE: u64 = 8;

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
    #[error("history begins with commit {0}: garbage collection removed what was before it")]
    TooOld(u64),
    /// There is no commit of the first number; the second is the newest.
    #[error("there is no commit {0}: the newest is {1}")]
    NoCommit(u64, u64),
    /// The path was not in the commit.
    #[error("{0} is not in commit {1} (`ctxbench s3 log {0}` lists the commits that changed it)")]
    NoPath(String, u64),
    /// The path was not a regular file in the commit.
    #[error("{0} was not a regular file in commit {1}")]
    NotFile(String, u64),
    /// Something else is where it would be restored to.
    #[error("cannot restore: {0} (choose another place with --to)")]
    Occupied(#[from] Occupied),
    /// The content cannot be written out.
    #[error("cannot write the content: {0}")]
    Output(#[from] io::Error),
}

impl From<Fault> for HistoryError {
    fn from(fault: Fault) -> Self {
        Self::Session(fault.into())
    }
}

/// The floors of a log, oldest first.
///
/// # Errors
/// [`SessionError`].
pub(crate) async fn floors<O: Objects>(objects: &O) -> Result<Vec<Floor>, SessionError> {
    let mut floors = Vec::new();
    for number in 1.. {
        let key = Key::Floor(number);
        let Some(object) = objects.get(key, None).await? else {
            break;
        };
        floors.push(Floor::decode(&object).map_err(|error| damaged(key, error))?);
    }
    Ok(floors)
}

/// A checkpoint and its tree; `None` if there is none of that number.
///
/// # Errors
/// [`SessionError`].
pub(crate) async fn checkpoint<O: Objects>(
    objects: &O,
    number: u64,
) -> Result<Option<(Checkpoint, Tree)>, SessionError> {
    let key = Key::Checkpoint(number);
    let Some(object) = objects.get(key, None).await? else {
        return Ok(None);
    };
    let checkpoint = Checkpoint::decode(&object).map_err(|error| damaged(key, error))?;
    let tree = Tree::of(&checkpoint.tree).map_err(|error| damaged(key, error))?;
    Ok(Some((checkpoint, tree)))
}

/// A commit that follows the one before it, and applies to the tree.
#[derive(Clone, Debug)]
pub struct Step {
    /// The commit.
    pub commit: Commit,
    /// Its object.
    pub object: Bytes,
    hash: Hash,
}

/// A walk along the log, from one commit to the next.
pub struct Walk<'a, O> {
    objects: &'a O,
    head: Head,
    time: i64,
    tree: Tree,
    ahead: VecDeque<Bytes>,
    window: u64,
}

impl<'a, O: Objects> Walk<'a, O> {
    /// From the oldest state that can be read.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn from_oldest(objects: &'a O) -> Result<Self, SessionError> {
        let floors = floors(objects).await?;
        let oldest = floors.last().map_or(0, |floor| floor.checkpoint);
        Self::from_checkpoint(objects, oldest).await
    }

    /// From a checkpoint, or from before the first commit for 0.
    ///
    /// # Errors
    /// [`SessionError`]; [`Broken::Gone`] if there is no such checkpoint.
    pub async fn from_checkpoint(objects: &'a O, number: u64) -> Result<Self, SessionError> {
        let mut walk = Self {
            objects,
            head: NOTHING,
            time: i64::MIN,
            tree: Tree::default(),
            ahead: VecDeque::new(),
            window: 1,
        };
        if number > 0 {
            let found = checkpoint(objects, number).await?;
            let gone = SessionError::Broken(Broken::Gone(number));
            let (checkpoint, tree) = found.ok_or(gone)?;
            let hash = checkpoint.hash;
            (walk.head, walk.time, walk.tree) = (Head { number, hash }, checkpoint.time, tree);
        }
        Ok(walk)
    }

    /// The commit that the tree is of.
    pub fn head(&self) -> Head {
        self.head
    }

    /// When that commit was made, in nanoseconds since 1970.
    pub fn time(&self) -> i64 {
        self.time
    }

    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The next commit, which is checked and not applied yet; `None` at the end of the log.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn next(&mut self) -> Result<Option<Step>, SessionError> {
        let number = self.head.number + 1;
        if self.ahead.is_empty() {
            let gets = (number..number + self.window).map(|number| {
                let objects = self.objects;
                async move { objects.get(Key::Log(number), None).await }
            });
            let gets = stream::iter(gets).buffered(AT_ONCE as usize);
            let found: Vec<Option<Bytes>> = gets.try_collect().await?;
            self.ahead = found.into_iter().map_while(|object| object).collect();
            self.window = (self.window * 2).min(AT_ONCE);
        }
        let Some(object) = self.ahead.pop_front() else {
            return Ok(None);
        };
        let key = Key::Log(number);
        let commit = Commit::decode(&object).map_err(|error| damaged(key, error))?;
        if commit.number != number || commit.parent != self.head.hash {
            return Err(SessionError::Broken(Broken::Chain(number)));
        }
        validate(&self.tree, &commit.changes).map_err(|error| damaged(key, error))?;
        let hash = Hash::of(&object);
        Ok(Some(Step {
            commit,
            object,
            hash,
        }))
    }

    /// Applies a commit that [`Walk::next`] has just given.
    pub fn apply(&mut self, step: &Step) {
        self.tree.apply(&step.commit.changes);
        self.time = step.commit.time;
        self.head = Head {
            number: step.commit.number,
            hash: step.hash,
        };
    }

    /// Goes on to the last commit that is not later than `at`.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn advance(&mut self, at: At) -> Result<(), SessionError> {
        loop {
            if matches!(at, At::Commit(number) if self.head.number >= number) {
                return Ok(());
            }
            match self.next().await? {
                Some(step) if !matches!(at, At::Time(time) if step.commit.time > time) => {
                    self.apply(&step);
                }
                _ => return Ok(()),
            }
        }
    }
}

/// The tree at a moment, and the number of its commit.
///
/// # Errors
/// [`HistoryError`].
pub async fn tree_at<O: Objects>(objects: &O, at: At) -> Result<(u64, Tree), HistoryError> {
    let floor = floors(objects)
        .await?
        .last()
        .map_or(0, |floor| floor.checkpoint);
    let is_before = |number: &u64| match at {
        At::Head => true,
        At::Commit(wanted) => *number <= wanted,
        At::Time(_) => false,
    };
    let near = objects.checkpoints().await?.into_iter().filter(is_before);
    let mut walk = Walk::from_checkpoint(objects, near.max().unwrap_or(0).max(floor)).await?;
    let is_too_old = match at {
        At::Head => false,
        At::Commit(wanted) => wanted < walk.head.number,
        At::Time(time) => floor > 0 && time < walk.time,
    };
    if is_too_old {
        return Err(HistoryError::TooOld(floor));
    }
    walk.advance(at).await?;
    let newest = walk.head.number;
    match at {
        At::Commit(wanted) if wanted > newest => Err(HistoryError::NoCommit(wanted, newest)),
        _ => Ok((newest, walk.tree)),
    }
}

/// What happened to a path.
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
    /// What it changed, by path. Bytes that are no UTF-8 show as `U+FFFD`.
    pub events: BTreeMap<String, Event>,
}

/// The commits that changed `path` or something below it, newest first; all commits for the empty path.
///
/// # Errors
/// [`HistoryError`].
pub async fn log<O: Objects>(objects: &O, path: &str) -> Result<Vec<LogEntry>, HistoryError> {
    let path = path.trim_matches('/');
    let is_below = |one: &str, other: &str| {
        other.is_empty()
            || one
                .strip_prefix(other)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut entries = Vec::new();
    let mut walk = Walk::from_oldest(objects).await?;
    while let Some(step) = walk.next().await? {
        let mut events = events(&mut walk, &step);
        events.retain(|own, event| match event {
            // What is above a path and renamed takes it along.
            Event::Renamed(from) => [&**own, &*from]
                .iter()
                .any(|own| is_below(own, path) || is_below(path, own)),
            _ => is_below(own, path),
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

/// Applies a commit, and says what it changes.
fn events<O: Objects>(walk: &mut Walk<'_, O>, step: &Step) -> BTreeMap<String, Event> {
    let changes = &step.commit.changes;
    let path = |tree: &Tree, dir: NodeId, name: &[u8]| {
        let dir = tree.path(dir)?;
        Some(
            text(&[dir.as_slice(), name].join(&b'/'))
                .trim_start_matches('/')
                .to_owned(),
        )
    };
    let before = &walk.tree;
    let names: Vec<_> = changes
        .names
        .iter()
        .map(|((dir, name), to)| {
            let was = before.name(*dir, name);
            let from = to.and_then(|to| before.path(to));
            (*dir, name, was, *to, path(before, *dir, &name.0), from)
        })
        .collect();
    let nodes: Vec<(NodeId, bool)> = changes
        .nodes
        .iter()
        .filter_map(|(id, node)| {
            let old = before.node(*id)?;
            let is_same = match (old.content(), node.content()) {
                (Some(old), Some(new)) => old.same_bytes(new),
                _ => old.body == node.body,
            };
            Some((*id, is_same))
        })
        .collect();
    walk.apply(step);
    let after = &walk.tree;
    let mut events = BTreeMap::new();
    for (dir, name, was, to, old_path, from) in names {
        let event = match (was, to, from) {
            (Some(was), Some(to), _) if was == to => continue,
            (None, Some(to), Some(from)) if after.path(to).as_ref() != Some(&from) => {
                Event::Renamed(text(&from))
            }
            (None, Some(_), _) => Event::Added,
            (Some(_), Some(_), _) => Event::Changed,
            // A node that is still there is shown under its new name.
            (Some(was), None, _) if after.names_of(was).next().is_some() => continue,
            (Some(_), None, _) => Event::Removed,
            (None, None, _) => continue,
        };
        let path = match event {
            Event::Removed => old_path,
            _ => path(after, dir, &name.0),
        };
        if let Some(path) = path {
            events.insert(path, event);
        }
    }
    for (id, is_same) in nodes {
        if let Some(path) = after.path(id) {
            let event = if is_same {
                Event::Attributes
            } else {
                Event::Changed
            };
            events.entry(text(&path)).or_insert(event);
        }
    }
    events
}

fn find(tree: &Tree, path: &str, number: u64) -> Result<NodeId, HistoryError> {
    tree.find(path.as_bytes())
        .ok_or_else(|| HistoryError::NoPath(path.to_owned(), number))
}

/// Writes the content that a file had at a moment to `out`; every chunk is checked against its digest first.
///
/// # Errors
/// [`HistoryError`].
pub async fn show<O: Objects>(
    objects: &O,
    path: &str,
    at: At,
    out: &mut dyn Write,
) -> Result<(), HistoryError> {
    let (number, tree) = tree_at(objects, at).await?;
    let node = tree.node(find(&tree, path, number)?);
    let content = node
        .and_then(Node::content)
        .ok_or_else(|| HistoryError::NotFile(path.to_owned(), number))?;
    let mut chunks = stream::iter(&content.chunks)
        .map(|chunk| fetch(objects, chunk))
        .buffered(CHUNKS_AT_ONCE);
    while let Some(bytes) = chunks.try_next().await? {
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// The bytes of a file of at most some MiB.
///
/// # Errors
/// [`SessionError`].
pub async fn read<O: Objects>(objects: &O, content: &Content) -> Result<Bytes, SessionError> {
    let mut bytes = Vec::with_capacity(content.size as usize);
    for chunk in &content.chunks {
        bytes.extend_from_slice(&fetch(objects, chunk).await?);
    }
    Ok(bytes.into())
}

/// What a restore did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The commit that was restored from.
    pub from: u64,
    /// The commit that brought it back; `None` if everything was as it had been.
    pub commit: Option<u64>,
    /// Files, directories and links that were brought back or found unchanged.
    pub nodes: u64,
}

/// Brings back what a path held at a moment, there or at `to`, in one commit by `writer`. No content is uploaded again.
/// In a directory, files that were added since stay.
///
/// # Errors
/// [`HistoryError`]. After a [`Fault`] the commit may be in the log.
pub async fn restore<O: Objects>(
    objects: &O,
    path: &str,
    at: At,
    to: Option<&str>,
    writer: &str,
) -> Result<Restored, HistoryError> {
    let (from, old) = tree_at(objects, at).await?;
    let root = find(&old, path, from)?;
    let mut checkout = Checkout::open(objects, writer).await?;
    let target = to.unwrap_or(path).trim_matches('/').as_bytes().to_vec();
    // Hard links within what is restored stay links.
    let mut links: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    let mut done = BTreeSet::new();
    let mut queue = vec![(root, target)];
    while let Some((id, path)) = queue.pop() {
        let Some(node) = old.node(id) else { continue };
        done.insert(path.clone());
        match links.get(&id) {
            Some(restored) => checkout.link(&path, *restored)?,
            None => {
                let restored = checkout.put(&path, node.clone())?;
                if node.body != Body::Directory && old.names_of(id).count() > 1 {
                    links.insert(id, restored);
                }
            }
        }
        for (name, child) in old.children(id) {
            let above = if path.is_empty() {
                Vec::new()
            } else {
                [&path[..], b"/"].concat()
            };
            queue.push((child, [above, name.0.clone()].concat()));
        }
    }
    let committed = checkout.commit(objects).await?;
    Ok(Restored {
        from,
        commit: committed.number,
        nodes: done.len() as u64,
    })
}
