//! Reads a log's history: events by path, earlier contents; and restores them.
//!
//! History begins at the newest floor, the statement of garbage collection that earlier commits may be gone.

use std::collections::BTreeMap;
use std::io::{self, Write};

use futures::{StreamExt, TryStreamExt, stream};

use crate::checkout::{Checkout, OccupiedPath};
use crate::objects::{Fault, Objects};
use crate::reader::{SessionError, Step, Walk, fetch, floors, oldest};
use crate::tree::{Entry, Name, Node, NodeId, ROOT, Tree};

/// Chunks of a file that are fetched at once; each holds 8 MiB in memory.
const CHUNKS_AT_ONCE: usize = 2;

/// A moment of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryPoint {
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
    /// The log is empty.
    #[error("the bucket has no memory of this agent (check --bucket, --prefix and --agent-id)")]
    NoMemory,
    /// The path was not in the commit.
    #[error(
        "{0} is not in commit {1} (`ctxbench s3 log {0}`, with the options of this command, lists the commits that changed it)"
    )]
    NoPath(String, u64),
    /// The path was not a regular file in the commit.
    #[error("{0} was not a regular file in commit {1}")]
    NotFile(String, u64),
    /// Something else is where it would be restored to.
    #[error("cannot restore: {0} (choose another place with --to)")]
    Occupied(OccupiedPath),
    /// The content cannot be written out.
    #[error("cannot write the content: {0}")]
    Output(io::Error),
}

impl From<OccupiedPath> for HistoryError {
    fn from(occupied: OccupiedPath) -> Self {
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
pub(crate) async fn advance<O: Objects>(walk: &mut Walk<'_, O>, at: HistoryPoint) -> Result<()> {
    while !matches!(at, HistoryPoint::Commit(number) if walk.head.number >= number) {
        match walk.next().await? {
            Some(step) if !matches!(at, HistoryPoint::Time(time) if step.commit.time > time) => {
                walk.apply(&step);
            }
            _ => break,
        }
    }
    Ok(())
}

/// A walk that has come to a moment.
pub(crate) async fn walk_to<O: Objects>(objects: &O, at: HistoryPoint) -> Result<Walk<'_, O>> {
    let floor = oldest(&floors(objects, Vec::new()).await?);
    let last = match at {
        HistoryPoint::Head => u64::MAX,
        HistoryPoint::Commit(wanted) => wanted,
        HistoryPoint::Time(_) => 0,
    };
    let near = objects.checkpoints().await?.into_iter();
    let near = near.filter(|number| *number <= last);
    let mut walk = Walk::start(objects, near.max().unwrap_or(0).max(floor)).await?;
    let is_too_old = match at {
        HistoryPoint::Head => false,
        HistoryPoint::Commit(wanted) => wanted < walk.head.number,
        HistoryPoint::Time(time) => floor > 0 && time < walk.time,
    };
    if is_too_old {
        return Err(HistoryError::TooOld(floor));
    }
    advance(&mut walk, at).await?;
    match at {
        HistoryPoint::Commit(wanted) if wanted > walk.head.number => {
            Err(HistoryError::NoCommit(wanted, walk.head.number))
        }
        _ => Ok(walk),
    }
}

/// A change of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is new.
    Added,
    /// Its content changed, or something else took its place.
    Changed,
    /// Only its attributes changed.
    Attributes,
    /// It had this path before.
    Renamed(PathId),
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
    /// Its changes, each path once, in the order of the paths.
    pub events: Vec<(PathId, Event)>,
}

/// Commits, and the paths that they changed.
#[derive(Debug)]
pub struct CommitHistory {
    /// The commits, newest first.
    pub entries: Vec<LogEntry>,
    paths: LogPaths,
}

impl CommitHistory {
    /// A path that an entry names. Bytes that are not UTF-8 show as `U+FFFD`.
    pub fn path(&self, id: PathId) -> String {
        self.paths.text(id)
    }

    /// How many names were read to find the paths of all changes: what the log cost.
    pub fn names_read(&self) -> u64 {
        self.paths.names_read
    }
}

/// A path in a [`CommitHistory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathId(usize);

/// The root's path.
const TOP: PathId = PathId(0);

/// Where a path is, seen from the path whose commits are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// This many of its names lead to the listed path.
    Above(usize),
    /// It is the listed path, or below it.
    Within,
    Elsewhere,
}

/// Paths as a tree of names: written out, the paths of nested directories are quadratic together.
#[derive(Debug)]
struct LogPaths {
    /// Of each path the directory, the name, and where it is.
    all: Vec<(PathId, Name, Position)>,
    known: BTreeMap<(PathId, Name), PathId>,
    /// The names of the path whose commits are listed.
    listed: Vec<String>,
    names_read: u64,
}

/// The paths of directories that were read in one tree.
type KnownDirs = BTreeMap<NodeId, PathId>;

impl LogPaths {
    fn new(listed: &str) -> Self {
        let names = listed.split('/').filter(|name| !name.is_empty());
        let listed: Vec<String> = names.map(str::to_owned).collect();
        let position = if listed.is_empty() { Position::Within } else { Position::Above(0) };
        Self { all: vec![(TOP, Name(Vec::new()), position)], known: BTreeMap::new(), listed, names_read: 0 }
    }

    fn position(&self, path: PathId) -> Position {
        self.all.get(path.0).map_or(Position::Elsewhere, |path| path.2)
    }

    /// The path of a name in a directory.
    fn below(&mut self, dir: PathId, name: &Name) -> PathId {
        self.names_read += 1;
        let key = (dir, name.clone());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let position = match self.position(dir) {
            Position::Above(names) if self.listed[names] == text(&name.0) => {
                if names + 1 == self.listed.len() {
                    Position::Within
                } else {
                    Position::Above(names + 1)
                }
            }
            Position::Within => Position::Within,
            Position::Above(_) | Position::Elsewhere => Position::Elsewhere,
        };
        let path = PathId(self.all.len());
        self.all.push((dir, name.clone(), position));
        self.known.insert(key, path);
        path
    }

    /// The path of a name in a tree; `None` if its directory is not there. `dirs` holds the directories of that tree whose
    /// paths were read before: each is climbed from once.
    fn of_entry(&mut self, tree: &Tree, dirs: &mut KnownDirs, (dir, name): &Entry) -> Option<PathId> {
        let (mut climbed, mut at) = (Vec::new(), *dir);
        let mut path = loop {
            match dirs.get(&at) {
                _ if at == ROOT => break TOP,
                Some(known) => break *known,
                None => {
                    let (above, name) = tree.names_of(at).next()?;
                    climbed.push((at, name));
                    at = *above;
                }
            }
        };
        for (dir, name) in climbed.into_iter().rev() {
            path = self.below(path, name);
            dirs.insert(dir, path);
        }
        Some(self.below(path, name))
    }

    /// A path of a node; `None` if it is not there.
    fn of_node(&mut self, tree: &Tree, dirs: &mut KnownDirs, id: NodeId) -> Option<PathId> {
        match id {
            ROOT => Some(TOP),
            _ => self.of_entry(tree, dirs, tree.names_of(id).next()?),
        }
    }

    fn text(&self, path: PathId) -> String {
        let (mut names, mut at) = (Vec::new(), path);
        while at != TOP
            && let Some((dir, name, _)) = self.all.get(at.0)
        {
            names.push(&name.0[..]);
            at = *dir;
        }
        names.reverse();
        text(&names.join(&b'/'))
    }

    /// The place of each path among all of them: a directory comes before its entries, which are in the order of their names.
    fn order(&self) -> Vec<usize> {
        let mut order = vec![0; self.all.len()];
        let mut waiting = vec![TOP];
        let mut next = 0;
        while let Some(path) = waiting.pop() {
            order[path.0] = next;
            next += 1;
            let names = self.known.range((path, Name(Vec::new()))..);
            let names = names.take_while(|((dir, _), _)| *dir == path);
            let from = waiting.len();
            waiting.extend(names.map(|(_, below)| *below));
            waiting[from..].reverse();
        }
        order
    }

    /// Whether a change belongs to the listed path.
    fn lists(&self, changed: PathId, event: Event) -> bool {
        match (self.position(changed), event) {
            (Position::Within, _) => true,
            // Renaming a directory above the path moves the path, too.
            (to, Event::Renamed(from)) => to != Position::Elsewhere || self.position(from) != Position::Elsewhere,
            _ => false,
        }
    }

    /// The changes of a commit, before it is applied to the tree of `walk` and after that.
    fn changes<O: Objects>(&mut self, walk: &mut Walk<'_, O>, step: &Step) -> Vec<(PathId, Event)> {
        let (mut dirs_before, mut dirs_after) = (KnownDirs::new(), KnownDirs::new());
        let (changes, before) = (&step.commit.changes, &walk.tree);
        let nodes = changes.nodes.iter().filter_map(|(id, is)| {
            let was = before.node(*id)?;
            let is_same = match (was.content(), is.content()) {
                (Some(was), Some(is)) => was.same_bytes(is),
                _ => was.body == is.body,
            };
            let event = if is_same { Event::Attributes } else { Event::Changed };
            Some((*id, event))
        });
        let nodes: Vec<_> = nodes.collect();
        // The name and the path that each named node had.
        let mut earlier: BTreeMap<NodeId, (Entry, PathId)> = BTreeMap::new();
        let mut names = Vec::new();
        for (entry, to) in &changes.names {
            let was = before.name(entry);
            let path = was.and_then(|_| self.of_entry(before, &mut dirs_before, entry));
            names.push((entry, was, path));
            if let Some(to) = to
                && !earlier.contains_key(to)
                && let Some(entry) = before.names_of(*to).next()
                && let Some(path) = self.of_entry(before, &mut dirs_before, entry)
            {
                earlier.insert(*to, (entry.clone(), path));
            }
        }
        walk.apply(step);
        let after = &walk.tree;
        // A node that still has its path was not renamed.
        earlier.retain(|id, (entry, path)| {
            after.name(entry) != Some(*id) || self.of_entry(after, &mut dirs_after, entry) != Some(*path)
        });
        let mut events: BTreeMap<PathId, Event> = BTreeMap::new();
        for (id, event) in nodes {
            let path = self.of_node(after, &mut dirs_after, id);
            events.extend(path.map(|path| (path, event)));
        }
        for (entry, was, old_path) in names {
            let Some(is) = after.name(entry) else {
                // A node that is still there is shown under its new name.
                let is_gone = was.is_some_and(|was| after.node(was).is_none());
                let path = old_path.filter(|_| is_gone);
                // Another node may have taken the path in the same commit.
                if let Some(path) = path {
                    events.entry(path).or_insert(Event::Removed);
                }
                continue;
            };
            if was == Some(is) {
                continue;
            }
            let Some(path) = self.of_entry(after, &mut dirs_after, entry) else {
                continue;
            };
            let event = match earlier.get(&is) {
                _ if was.is_some() => Event::Changed,
                Some((_, from)) if *from != path => Event::Renamed(*from),
                _ => Event::Added,
            };
            events.insert(path, event);
        }
        events.retain(|path, event| self.lists(*path, *event));
        events.into_iter().collect()
    }
}

/// The commits that changed `path` or something below it; all commits for the empty path.
pub async fn log<O: Objects>(objects: &O, path: &str) -> Result<CommitHistory> {
    let mut paths = LogPaths::new(path);
    let mut entries = Vec::new();
    let mut walk = Walk::start(objects, oldest(&floors(objects, Vec::new()).await?)).await?;
    while let Some(step) = walk.next().await? {
        let events = paths.changes(&mut walk, &step);
        if paths.listed.is_empty() || !events.is_empty() {
            entries.push(LogEntry {
                number: step.commit.number,
                time: step.commit.time,
                writer: step.commit.writer_name,
                events,
            });
        }
    }
    entries.reverse();
    let order = paths.order();
    for entry in &mut entries {
        entry.events.sort_by_key(|(path, _)| order[path.0]);
    }
    Ok(CommitHistory { entries, paths })
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn find(tree: &Tree, path: &str, number: u64) -> Result<NodeId> {
    let missing = || match number {
        0 => HistoryError::NoMemory,
        number => HistoryError::NoPath(path.to_owned(), number),
    };
    tree.find(path.as_bytes()).ok_or_else(missing)
}

/// Writes the content that a file had at a moment to `out`; every chunk is checked against its digest first.
pub async fn show<O: Objects>(objects: &O, path: &str, at: HistoryPoint, out: &mut dyn Write) -> Result<()> {
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
pub struct RestoreReport {
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
    at: HistoryPoint,
    to: Option<&str>,
    writer: &str,
) -> Result<RestoreReport> {
    let Walk { head, tree, .. } = walk_to(objects, at).await?;
    let root = find(&tree, path, head.number)?;
    let mut checkout = Checkout::open(objects, writer).await?;
    let target = to.unwrap_or(path).trim_matches('/').as_bytes();
    let nodes = checkout.copy(&tree, root, target)?;
    let committed = checkout.commit(objects).await?;
    Ok(RestoreReport { from: head.number, commit: committed.number, nodes })
}
