//! Reading the log: commits that follow one another, checkpoints, floors and chunks; and the damage they can have.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream, try_join};
use network::limits;

use crate::merge::{ChunkBytes, ReplicaError};
use crate::objects::{Checkpoint, Commit, Fault, Floor, Head, INLINE_START, Key, Objects, PutOutcome, Record};
use crate::tree::{CHUNK, Chunk, Content, Hash, Place, Tree};
use crate::view::validate;

/// How many requests are under way at once.
const AT_ONCE: usize = 8;

/// How often an object that looks damaged is read: an answer may be damaged on its way.
pub(crate) const READS: u32 = 3;

/// Why a session cannot go on. The working copy is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// A request has no result; trying again is right.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The working copy's storage failed.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// The log is not the one that the working copy knows. Nothing may be written.
    #[error(transparent)]
    Broken(#[from] BrokenLog),
    /// Other writers committed first in every attempt.
    #[error("other writers committed first, {0} times in a row")]
    Outrun(u32),
}

/// The result of a session's calls.
pub type Result<T, E = SessionError> = std::result::Result<T, E>;

/// The reason why a log cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenLog {
    /// The last commit that the working copy knows is gone.
    #[error("commit {0} is missing: the bucket was emptied, or rolled back to an earlier state")]
    Gone(u64),
    /// It is another one.
    #[error(
        "commit {0} differs from the one that this cache knows: the bucket was replaced, or rolled back and written to again"
    )]
    Different(u64),
    /// A commit does not follow the one before it.
    #[error("commit {0} does not follow commit {before}: the log is damaged", before = .0 - 1)]
    Chain(u64),
    /// An object cannot be read.
    #[error("{0}: {1}")]
    Damaged(String, String),
    /// The server overwrites where it must refuse.
    #[error("the server ignores If-None-Match, so two writers would overwrite each other: the memory is read-only")]
    Unconditional,
}

impl BrokenLog {
    /// Advice for the user.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Gone(_) | Self::Different(_) => {
                "if the bucket was emptied by mistake, restore it, or mount with --refill-bucket to upload the content of the cache; if the bucket is right, mount with --rebuild-cache"
            }
            Self::Chain(_) | Self::Damaged(..) => {
                "the mount reads it again later; if that fails, `ctxbench s3 check` lists all damage"
            }
            Self::Unconditional => "use another S3 server",
        }
    }
}

pub(crate) fn damaged(key: Key, reason: impl ToString) -> SessionError {
    BrokenLog::Damaged(format!("{key:?}"), reason.to_string()).into()
}

/// Reads an object of the log; `None` if there is none.
async fn record<O: Objects, R: Record>(objects: &O, key: Key) -> Result<Option<R>> {
    let object = objects.get(key, None).await?;
    let record = object.map(|object| R::decode(&object)).transpose();
    record.map_err(|error| damaged(key, error))
}

/// The floors of a log, oldest first, beginning with those that are known. Each names a later checkpoint than the one
/// before: a server cannot repeat one for ever.
pub(crate) async fn floors<O: Objects>(objects: &O, mut floors: Vec<Floor>) -> Result<Vec<Floor>> {
    loop {
        let key = Key::Floor(floors.len() as u64 + 1);
        let Some(floor) = record::<O, Floor>(objects, key).await? else {
            return Ok(floors);
        };
        if floor.checkpoint <= oldest(&floors) {
            let reason = "it names no later checkpoint than the floor before it";
            return Err(damaged(key, reason));
        }
        if floors.len() >= limits::FLOORS {
            let reason = format!("the log has more than {} floors", limits::FLOORS);
            return Err(damaged(key, reason));
        }
        floors.push(floor);
    }
}

/// The checkpoint that the newest floor names, which is the oldest state that can be read; 0 without a floor.
pub(crate) fn oldest(floors: &[Floor]) -> u64 {
    floors.last().map_or(0, |floor| floor.checkpoint)
}

/// A checkpoint and its tree; `None` if no checkpoint has that number.
pub(crate) async fn checkpoint<O: Objects>(objects: &O, number: u64) -> Result<Option<(Checkpoint, Tree)>> {
    let key = Key::Checkpoint(number);
    let Some(checkpoint) = record::<O, Checkpoint>(objects, key).await? else {
        return Ok(None);
    };
    let tree = Tree::of(&checkpoint.tree).map_err(|error| damaged(key, error))?;
    Ok(Some((checkpoint, tree)))
}

/// Creates the checkpoint of the tree after a commit, unless there is one.
pub(crate) async fn create_checkpoint<O: Objects>(
    objects: &O,
    head: Head,
    time: i64,
    tree: &Tree,
) -> Result<PutOutcome> {
    let key = Key::Checkpoint(head.number);
    let checkpoint = Checkpoint { number: head.number, hash: head.hash, time, tree: tree.to_changes() };
    let object = checkpoint.encode(&[]);
    let object = object.map_err(|error| damaged(key, error))?;
    Ok(objects.put_new(key, object).await?)
}

/// Reads an object or a part of it, again if it is not the one that is known: an answer may be damaged on its way.
pub(crate) async fn expected<O: Objects>(
    objects: &O,
    key: Key,
    range: Option<Range<u64>>,
    hash: Hash,
) -> Result<Option<Bytes>> {
    for _ in 1..READS {
        match objects.get(key, range.clone()).await? {
            Some(object) if Hash::of(&object) != hash => {}
            read => return Ok(read),
        }
    }
    Ok(objects.get(key, range).await?)
}

/// A checkpoint and its tree, if it is of the commit that the log has.
pub(crate) async fn checkpoint_of_log<O: Objects>(objects: &O, number: u64) -> Result<(Checkpoint, Tree)> {
    let commit = async { Ok(objects.get(Key::Log(number), None).await?) };
    let (found, commit) = try_join!(checkpoint(objects, number), commit)?;
    let (Some(found), Some(commit)) = (found, commit) else {
        return Err(BrokenLog::Gone(number).into());
    };
    if (found.0.number, found.0.hash) != (number, Hash::of(&commit)) {
        let reason = "it is of another commit than the log's";
        return Err(damaged(Key::Checkpoint(number), reason));
    }
    Ok(found)
}

/// The chunk's bytes. Fails, too, if they are missing or do not match the digest.
pub async fn fetch<O: Objects>(objects: &O, chunk: &Chunk) -> Result<Bytes> {
    let length = u64::from(chunk.length);
    let (key, range) = match chunk.place {
        // No length that a log states is believed, even if a caller has not checked the log.
        _ if length > CHUNK => {
            return Err(ReplicaError::other(format!("a chunk of {length} bytes")).into());
        }
        Place::Hole => return Ok(vec![0; chunk.length as usize].into()),
        Place::Blob { salt } => (Key::Blob(chunk.hash, salt), None),
        Place::Inline { commit, offset } => {
            let start = INLINE_START + u64::from(offset);
            (Key::Log(commit), Some(start..start + length))
        }
        Place::Local => {
            let reason = "a chunk that only another cache has".to_owned();
            return Err(ReplicaError::other(reason).into());
        }
    };
    let bytes = expected(objects, key, range, chunk.hash).await?;
    let bytes = bytes.ok_or_else(|| damaged(key, "it is gone"))?;
    if Hash::of(&bytes) == chunk.hash { Ok(bytes) } else { Err(damaged(key, "its bytes do not match its digest")) }
}

/// The bytes of a file of at most some MiB.
pub(crate) async fn read<O: Objects>(objects: &O, content: &Content) -> Result<Bytes> {
    let mut bytes = Vec::new();
    for chunk in &content.chunks {
        bytes.extend_from_slice(&fetch(objects, chunk).await?);
    }
    Ok(bytes.into())
}

/// The objects of commits, in order. Several are fetched at once: a reader that is one commit behind is often many
/// behind.
#[derive(Debug, Default)]
pub(crate) struct CommitPrefetch {
    found: VecDeque<Option<Bytes>>,
    window: u64,
}

impl CommitPrefetch {
    /// Whether the next call sends requests.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Fetches commits from `number` on.
    pub(crate) async fn fill<O: Objects>(&mut self, objects: &O, number: u64) -> Result<(), Fault> {
        self.window = (self.window * 2).clamp(1, AT_ONCE as u64);
        let gets = (number..number + self.window).map(|number| objects.get(Key::Log(number), None));
        self.found = stream::iter(gets).buffered(AT_ONCE).try_collect().await?;
        if let Some(end) = self.found.iter().position(Option::is_none) {
            self.found.truncate(end + 1);
        }
        Ok(())
    }

    /// The commit `number`, if the call before gave the one before it; `None` if there was none.
    pub(crate) async fn next<O: Objects>(&mut self, objects: &O, number: u64) -> Result<Option<Bytes>, Fault> {
        if self.is_empty() {
            self.fill(objects, number).await?;
        }
        Ok(self.found.pop_front().flatten())
    }
}

/// The part of a log that a mount without a cache reads first. Reading it needs no working copy: the mount can make one
/// meanwhile.
#[derive(Debug)]
pub struct Look {
    pub(crate) started: i64,
    pub(crate) floors: Vec<Floor>,
    /// The number of the newest checkpoint; 0 for none.
    pub(crate) newest: u64,
    /// The first commit. Without one, nothing else was read.
    pub(crate) first: Option<Bytes>,
    /// The outcome of creating it again: this detects, harmlessly, a server that overwrites silently.
    pub(crate) probed: PutOutcome,
    pub(crate) checkpoint: Option<(Checkpoint, Tree)>,
    /// The commits after the checkpoint.
    pub(crate) ahead: CommitPrefetch,
}

impl Look {
    /// Reads the newest checkpoint and the commits after it. `started` is the time in nanoseconds since 1970. Fails if a
    /// request does, or the checkpoint is damaged.
    pub async fn take<O: Objects>(objects: &O, started: i64) -> Result<Self> {
        let (listed, first, floors) = try_join!(
            async { Ok(objects.checkpoints().await?) },
            async { Ok(objects.get(Key::Log(1), None).await?) },
            floors(objects, Vec::new()),
        )?;
        let newest = listed.into_iter().max().unwrap_or(0).max(oldest(&floors));
        let mut ahead = CommitPrefetch::default();
        let (mut probed, mut checkpoint) = (PutOutcome::Created, None);
        if let Some(first) = &first {
            (probed, checkpoint, ()) = try_join!(
                async { Ok(objects.put_new(Key::Log(1), first.clone()).await?) },
                async {
                    match newest {
                        0 => Ok(None),
                        _ => checkpoint_of_log(objects, newest).await.map(Some),
                    }
                },
                async { Ok(ahead.fill(objects, newest.max(1) + 1).await?) },
            )?;
        }
        Ok(Self { started, floors, newest, first, probed, checkpoint, ahead })
    }
}

/// A commit that follows another.
pub(crate) struct Step {
    pub(crate) commit: Commit,
    pub(crate) object: Bytes,
    /// The head that it makes.
    pub(crate) head: Head,
}

impl Step {
    /// The commit in `object`, which has to be the one after `head`.
    pub(crate) fn after(head: Head, object: Bytes) -> Result<Self> {
        let number = head.number + 1;
        let commit = Commit::decode(&object).map_err(|error| damaged(Key::Log(number), error))?;
        if commit.number != number || commit.parent != head.hash {
            return Err(BrokenLog::Chain(number).into());
        }
        let hash = Hash::of(&object);
        let first = if number == 1 { hash } else { head.first };
        let head = Head { number, hash, first };
        Ok(Self { commit, object, head })
    }

    /// The chunks whose bytes are in the commit, and these, where they are what they should be.
    pub(crate) fn inline(&self) -> impl Iterator<Item = (&Chunk, Option<Bytes>)> {
        self.commit.changes.chunks().filter_map(|chunk| {
            let Place::Inline { commit, offset } = chunk.place else {
                return None;
            };
            let start = INLINE_START as usize + offset as usize;
            let bytes = self.object.get(start..start + chunk.length as usize);
            let bytes = bytes.filter(|bytes| Hash::of(bytes) == chunk.hash);
            let bytes = bytes.map(|bytes| self.object.slice_ref(bytes));
            (commit == self.head.number).then_some((chunk, bytes))
        })
    }

    /// The same by digest.
    pub(crate) fn fetched(&self) -> Result<ChunkBytes> {
        let reason = "an inline file differs from its digest";
        let damaged = || damaged(Key::Log(self.head.number), reason);
        let bytes = |(chunk, bytes): (&Chunk, Option<_>)| Ok((chunk.hash, bytes.ok_or_else(damaged)?));
        self.inline().map(bytes).collect()
    }
}

/// A walk along the log, from one commit to the next.
pub(crate) struct Walk<'a, O> {
    objects: &'a O,
    /// The commit that the tree is of.
    pub(crate) head: Head,
    /// When it was made, in nanoseconds since 1970.
    pub(crate) time: i64,
    pub(crate) tree: Tree,
    ahead: CommitPrefetch,
}

impl<'a, O: Objects> Walk<'a, O> {
    /// From a checkpoint, or from before the first commit for 0.
    pub(crate) async fn start(objects: &'a O, number: u64) -> Result<Self> {
        let mut walk = Self {
            objects,
            head: Head::default(),
            time: i64::MIN,
            tree: Tree::default(),
            ahead: CommitPrefetch::default(),
        };
        if number > 0 {
            let found = checkpoint(objects, number).await?;
            let (checkpoint, tree) = found.ok_or(BrokenLog::Gone(number))?;
            (walk.head.number, walk.head.hash) = (number, checkpoint.hash);
            (walk.time, walk.tree) = (checkpoint.time, tree);
        }
        Ok(walk)
    }

    /// The next commit, which is checked and not applied yet; `None` at the end of the log.
    pub(crate) async fn next(&mut self) -> Result<Option<Step>> {
        let number = self.head.number + 1;
        let Some(object) = self.ahead.next(self.objects, number).await? else {
            return Ok(None);
        };
        let step = Step::after(self.head, object)?;
        let checked = validate(&self.tree, &step.commit.changes);
        checked.map_err(|error| damaged(Key::Log(number), error))?;
        Ok(Some(step))
    }

    /// Applies a commit that [`Walk::next`] has just given.
    pub(crate) fn apply(&mut self, step: &Step) {
        self.tree.apply(&step.commit.changes);
        (self.head, self.time) = (step.head, step.commit.time);
    }
}
