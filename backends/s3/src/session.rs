//! The protocol: how a working copy joins the log, follows it, and commits to it.
//!
//! There is no clock, socket, file or thread here: requests go through [`Objects`], the working copy is a
//! [`Replica`]. Each `await` is a point at which a session may be killed; the simulation does so.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream, try_join};

use crate::format::{Checkpoint, Commit, Floor, INLINE_START, inline_bytes};
use crate::merge::{Merged, Theirs, difference, merge, validate};
use crate::objects::{Fault, Key, Objects, Put};
use crate::replica::{Fetched, Head, NOTHING, Replica, ReplicaError};
use crate::tree::{Changes, Chunk, Hash, Node, Place, Tree};
use crate::upload::Placed;

/// Nanoseconds that garbage collection waits between creating a floor and removing what is below it, and the age below
/// which it leaves alone a blob that nothing refers to: one day. A request is over within half of that.
pub const GRACE: i64 = 24 * 3600 * 1_000_000_000;

/// How many requests are under way at once.
const AT_ONCE: usize = 8;

/// How often a commit is attempted again because another was faster.
const RACES_MAX: u32 = 1000;

/// How often files are read again because they changed meanwhile.
const RESTLESS_MAX: u32 = 4;

/// Commits after which a checkpoint is made, beside one for each [`NODES_PER_COMMIT`] nodes.
const CHECKPOINT_AFTER: u64 = 64;

/// Nodes that delay a checkpoint by one commit.
const NODES_PER_COMMIT: u64 = 64;

/// The same for the last checkpoint of a mount.
const NODES_PER_LAST_COMMIT: u64 = 1024;

/// Why a session cannot go on. The working copy is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// A request has no result; trying again is right.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// The working copy's storage failed.
    #[error("{0}")]
    Replica(#[from] ReplicaError),
    /// The log is not the one that the working copy knows. Nothing may be written.
    #[error("{0}")]
    Broken(Broken),
    /// Other writers were faster a thousand times.
    #[error("other writers committed first {RACES_MAX} times in a row")]
    Outrun,
}

/// What is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The last commit that the working copy knows is gone.
    #[error("commit {0} is gone: the bucket was emptied, or rolled back to an earlier state")]
    Gone(u64),
    /// It is another one.
    #[error(
        "commit {0} is not the one that this cache knows: the bucket was replaced, or rolled back and written again"
    )]
    Different(u64),
    /// A commit does not follow the one before it.
    #[error("commit {0} does not follow commit {before}: the log is damaged", before = .0 - 1)]
    Chain(u64),
    /// An object cannot be read.
    #[error("{0}: {1}")]
    Damaged(String, String),
    /// The server overwrites where it must refuse.
    #[error(
        "the server ignores If-None-Match, so two writers would overwrite each other: this memory can only be read"
    )]
    Unconditional,
}

pub(crate) fn damaged(key: Key, reason: impl ToString) -> SessionError {
    SessionError::Broken(Broken::Damaged(format!("{key:?}"), reason.to_string()))
}

/// What [`Session::commit`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// The commit, or `None` if there was nothing to commit.
    pub number: Option<u64>,
    /// Commits of others that were adopted.
    pub adopted: u64,
    /// Files that changed all the time: the commit has a mixture of two states, the next one has what they are then.
    pub restless: u64,
    /// Files that cannot be committed, because their content is neither here nor in the bucket any more: others deleted
    /// them long ago, while this working copy renamed them or changed their attributes.
    pub missing: Vec<String>,
}

impl Committed {
    /// Whether every change that was local when the call began is in the log.
    pub fn is_complete(&self) -> bool {
        self.restless == 0 && self.missing.is_empty()
    }
}

/// What a mount knows of the bucket from one session to the next. It is empty when the mount starts.
#[derive(Debug, Default)]
pub struct Contact {
    /// When it was last known that garbage collection had removed nothing after the head.
    checked: Option<i64>,
    /// How many floors there are, and the checkpoint that the last one names.
    floors: (u64, u64),
    /// The head at the last look at the log; 0 before the first.
    anchor: u64,
    /// Blobs that this mount created: salt, and when the upload began.
    pub(crate) uploaded: BTreeMap<Hash, (u32, i64)>,
}

/// A working copy and the bucket that its log is in.
pub struct Session<'a, O, R> {
    pub(crate) objects: &'a O,
    pub(crate) replica: &'a mut R,
    pub(crate) now: &'a (dyn Fn() -> i64 + Sync),
    pub(crate) random: &'a (dyn Fn(&mut [u8]) + Sync),
    pub(crate) contact: &'a mut Contact,
}

impl<'a, O: Objects, R: Replica> Session<'a, O, R> {
    /// A session of the working copy `replica` with the log in `objects`. `now` is the time in nanoseconds since 1970;
    /// it must go on while the machine sleeps. `random` fills a buffer with random bytes.
    pub fn new(
        objects: &'a O,
        replica: &'a mut R,
        now: &'a (dyn Fn() -> i64 + Sync),
        random: &'a (dyn Fn(&mut [u8]) + Sync),
        contact: &'a mut Contact,
    ) -> Self {
        Self {
            objects,
            replica,
            now,
            random,
            contact,
        }
    }

    /// Begins: checks that the log is the one that the working copy knows, or creates a new log, or takes the newest
    /// checkpoint of one that the working copy does not know yet; then follows it to its end.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn join(&mut self) -> Result<u64, SessionError> {
        self.verify().await?;
        self.follow().await
    }

    /// Whether less than half the grace time has passed since something was known to be so: garbage collection has then
    /// removed nothing that this depends on, and removes nothing before a request that is sent now is over.
    pub(crate) fn is_recent(&self, at: i64) -> bool {
        is_recent((self.now)(), at)
    }

    fn is_in_contact(&self) -> bool {
        self.contact.checked.is_some_and(|at| self.is_recent(at))
    }

    /// What was long out of contact may be before commits that garbage collection has removed. It must not read or create
    /// the commit after its head before it has looked.
    async fn ensure_contact(&mut self) -> Result<(), SessionError> {
        match self.is_in_contact() {
            true => Ok(()),
            false => self.verify().await,
        }
    }

    /// Checks that the head of the working copy is in the log. What garbage collection has removed is skipped.
    ///
    /// # Errors
    /// [`Broken::Gone`] or [`Broken::Different`].
    pub async fn verify(&mut self) -> Result<(), SessionError> {
        let (started, head) = ((self.now)(), self.replica.head());
        if head == NOTHING {
            return self.begin().await;
        }
        let object = self.objects.get(Key::Log(head.number), None);
        // The first commit is never removed, also where this mount has committed to a bucket that was emptied.
        let first = self.objects.get(Key::Log(1), Some(0..8));
        let floors = floors(self.objects, self.contact.floors);
        let (object, first, floors) = try_join!(object, first, floors)?;
        self.contact.floors = floors?;
        let floor = self.contact.floors.1;
        if first.is_none() {
            return Err(SessionError::Broken(Broken::Gone(1)));
        }
        match object {
            Some(object) if Hash::of(&object) != head.hash => {
                return Err(SessionError::Broken(Broken::Different(head.number)));
            }
            None if floor <= head.number => {
                return Err(SessionError::Broken(Broken::Gone(head.number)));
            }
            _ => {}
        }
        if floor > head.number {
            let checkpoint = self.objects.get(Key::Checkpoint(floor), None).await?;
            self.skip(floor, checkpoint).await?;
        }
        self.contact.checked = Some(started);
        self.contact.anchor = self.replica.head().number;
        Ok(())
    }

    /// Whether the log still holds what was its head at the last look, by one small request: for sessions that poll. A
    /// head that was committed since proves nothing, because it may be alone in a bucket that was emptied.
    ///
    /// # Errors
    /// [`Broken::Gone`].
    pub async fn glance(&mut self) -> Result<(), SessionError> {
        let anchor = self.contact.anchor;
        if !self.is_in_contact() || anchor == 0 {
            return self.verify().await;
        }
        if self
            .objects
            .get(Key::Log(anchor), Some(0..8))
            .await?
            .is_none()
        {
            self.contact.floors = floors(self.objects, self.contact.floors).await??;
            if self.contact.floors.1 <= anchor {
                return Err(SessionError::Broken(Broken::Gone(anchor)));
            }
            return self.verify().await;
        }
        self.contact.anchor = self.replica.head().number;
        Ok(())
    }

    /// Adopts a checkpoint as if it were one commit.
    async fn skip(&mut self, number: u64, checkpoint: Option<Bytes>) -> Result<(), SessionError> {
        let key = Key::Checkpoint(number);
        let object = checkpoint.ok_or(SessionError::Broken(Broken::Gone(number)))?;
        let checkpoint = Checkpoint::decode(&object).map_err(|error| damaged(key, error))?;
        let tree = Tree::of(&checkpoint.tree).map_err(|error| damaged(key, error))?;
        let theirs = difference(self.replica.base(), &tree);
        let head = Head {
            number,
            hash: checkpoint.hash,
        };
        // A commit whose answer is not known may be among those that are skipped.
        let is_own = !self.replica.intents().is_empty();
        self.adopt(head, &theirs, is_own, Fetched::new()).await
    }

    /// Takes up a log that the working copy knows nothing of.
    async fn begin(&mut self) -> Result<(), SessionError> {
        let (objects, started) = (self.objects, (self.now)());
        let (listed, first, floors) = try_join!(
            objects.checkpoints(),
            objects.get(Key::Log(1), None),
            floors(objects, self.contact.floors),
        )?;
        self.contact.floors = floors?;
        let newest = listed
            .into_iter()
            .max()
            .unwrap_or(0)
            .max(self.contact.floors.1);
        let first = match first {
            Some(first) => first,
            // The first commit is never removed.
            None if newest > 0 => return Err(SessionError::Broken(Broken::Gone(1))),
            None => self.create().await?,
        };
        // The same bytes again: a server that overwrites silently does no harm, and is found out.
        let again = objects.put_new(Key::Log(1), first.clone());
        let checkpoint = async {
            match newest {
                0 => Ok(None),
                _ => objects.get(Key::Checkpoint(newest), None).await,
            }
        };
        let (again, checkpoint) = try_join!(again, checkpoint)?;
        match newest {
            0 => self.take(1, first).await?,
            _ => self.skip(newest, checkpoint).await?,
        }
        self.contact.checked = Some(started);
        match again {
            Put::Exists => Ok(()),
            // The log can be followed all the same.
            Put::Created => Err(SessionError::Broken(Broken::Unconditional)),
        }
    }

    /// Creates the first commit, which is empty, unless another writer does.
    async fn create(&mut self) -> Result<Bytes, SessionError> {
        let (key, nonce) = (Key::Log(1), self.nonce());
        let first = self.encode(NOTHING, nonce, Changes::default(), &[])?;
        if self.objects.put_new(key, first.clone()).await? == Put::Created {
            return Ok(first);
        }
        let first = self.objects.get(key, None).await?;
        first.ok_or_else(|| {
            Fault::Unknown("commit 1 exists, but cannot be read yet".to_owned()).into()
        })
    }

    fn nonce(&self) -> [u8; 16] {
        let mut nonce = [0; 16];
        (self.random)(&mut nonce);
        nonce
    }

    /// The commit after `head`.
    fn encode(
        &self,
        head: Head,
        nonce: [u8; 16],
        changes: Changes,
        inline: &[u8],
    ) -> Result<Bytes, SessionError> {
        let (number, writer) = (head.number + 1, self.replica.writer());
        let commit = Commit {
            number,
            parent: head.hash,
            writer: writer.id,
            writer_name: writer.name.clone(),
            nonce,
            time: (self.now)(),
            changes,
        };
        let encoded = commit.encode(inline);
        encoded.map_err(|error| damaged(Key::Log(number), error))
    }

    /// Adopts all commits after the head; how many there were.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn follow(&mut self) -> Result<u64, SessionError> {
        let mut adopted = 0;
        let mut window = 1;
        loop {
            self.ensure_contact().await?;
            let (objects, started) = (self.objects, (self.now)());
            let next = self.replica.head().number + 1;
            let gets = (next..next + window).map(|number| async move {
                let object = objects.get(Key::Log(number), None).await?;
                Ok::<_, Fault>((number, object))
            });
            let read: Vec<_> = stream::iter(gets).buffered(AT_ONCE).try_collect().await?;
            for (number, object) in read {
                let Some(object) = object else {
                    // Nothing after the head was removed, so there was nothing.
                    self.contact.checked = Some(started);
                    return Ok(adopted);
                };
                self.take(number, object).await?;
                adopted += 1;
            }
            // Whoever is one behind is often many behind.
            window = (window * 2).min(AT_ONCE as u64);
        }
    }

    /// Takes the commit after the head.
    async fn take(&mut self, number: u64, object: Bytes) -> Result<(), SessionError> {
        let key = Key::Log(number);
        let commit = Commit::decode(&object).map_err(|error| damaged(key, error))?;
        let head = self.replica.head();
        if commit.number != number || commit.parent != head.hash || number != head.number + 1 {
            return Err(SessionError::Broken(Broken::Chain(number)));
        }
        let head = Head {
            number,
            hash: Hash::of(&object),
        };
        if self.replica.intents().contains(&commit.nonce) {
            return Ok(self.replica.acknowledge(head, &commit.changes, None)?);
        }
        let mut fetched = Fetched::new();
        let contents = commit.changes.nodes.values().filter_map(Node::content);
        for chunk in contents.flat_map(|content| &content.chunks) {
            if matches!(chunk.place, Place::Inline { commit, .. } if commit == number) {
                let bytes = inline_bytes(&object, chunk);
                let reason = "an inline file differs from its digest";
                fetched.insert(chunk.hash, bytes.ok_or_else(|| damaged(key, reason))?);
            }
        }
        let is_own = self.replica.was_writer(commit.writer);
        self.adopt(head, &commit.changes, is_own, fetched).await
    }

    async fn adopt(
        &mut self,
        head: Head,
        changes: &Changes,
        is_own: bool,
        mut fetched: Fetched,
    ) -> Result<(), SessionError> {
        let theirs = Theirs {
            changes,
            number: head.number,
            is_own,
        };
        let writer = self.replica.writer().name.clone();
        validate(self.replica.base(), changes)
            .map_err(|error| damaged(Key::Log(head.number), error))?;
        loop {
            let known = &fetched;
            let adopted = self
                .replica
                .adopt(head, changes, &mut |base, ours, read, fresh| {
                    let merged = merge(base, theirs, ours, &writer, known, read, fresh)?;
                    Ok(merged.map(|merged| with_bytes(merged, known)))
                })?;
            let Err(needs) = adopted else {
                return Ok(());
            };
            for chunk in needs.iter().flat_map(|content| &content.chunks) {
                if chunk.place != Place::Hole && !fetched.contains_key(&chunk.hash) {
                    let bytes = match fetch(self.objects, chunk).await {
                        // What cannot be merged stays beside the other version.
                        Err(SessionError::Broken(_)) => Bytes::new(),
                        fetched => fetched?,
                    };
                    fetched.insert(chunk.hash, bytes);
                }
            }
        }
    }

    /// Commits the local changes, after adopting what others have committed meanwhile.
    ///
    /// # Errors
    /// [`SessionError`]. After [`SessionError::Fault`] the commit may be in the log: the next call finds out.
    pub async fn commit(&mut self) -> Result<Committed, SessionError> {
        let mut done = Committed::default();
        if !self.replica.intents().is_empty() {
            // An earlier attempt may have succeeded.
            done.adopted += self.follow().await?;
        }
        let mut patience = RESTLESS_MAX;
        for _ in 0..RACES_MAX {
            self.ensure_contact().await?;
            let nonce = self.nonce();
            let local = self.replica.local(nonce)?;
            let (head, mark) = (self.replica.head(), local.mark);
            if local.changes.is_empty() {
                // A late commit would otherwise come back over what was undone since.
                if self.replica.intents().is_empty() {
                    self.replica.settle(mark)?;
                }
                return Ok(done);
            }
            let placed = self.upload(local, patience > 0).await?;
            let Some(Placed {
                changes,
                inline,
                restless,
                missing,
                oldest,
            }) = placed
            else {
                patience -= 1;
                continue;
            };
            (done.restless, done.missing) = (restless, missing);
            if changes.is_empty() {
                return Ok(done);
            }
            if !self.is_in_contact() || oldest.is_some_and(|at| !self.is_recent(at)) {
                // The upload took long.
                continue;
            }
            validate(self.replica.base(), &changes).map_err(|error| {
                ReplicaError(format!(
                    "the local changes do not follow commit {}: {error}",
                    head.number
                ))
            })?;
            let number = head.number + 1;
            let key = Key::Log(number);
            // The nonce is noted with a state of the working copy. A commit that has later states must not be taken for
            // it: after a power cut, or in a copy of the machine, they are not here.
            let nonce = if restless == 0 { nonce } else { self.nonce() };
            let object = self.encode(head, nonce, changes, &inline)?;
            if self.objects.put_new(key, object.clone()).await? == Put::Created {
                // As others read it.
                let commit = Commit::decode(&object).map_err(|error| damaged(key, error))?;
                let hash = Hash::of(&object);
                let mark = done.is_complete().then_some(mark);
                self.replica
                    .acknowledge(Head { number, hash }, &commit.changes, mark)?;
                done.number = Some(number);
                return Ok(done);
            }
            done.adopted += self.follow().await?;
            if self.replica.head() == head {
                let reason = format!("commit {number} exists, but cannot be read yet");
                return Err(Fault::Unknown(reason).into());
            }
        }
        Err(SessionError::Outrun)
    }

    /// Makes a checkpoint at the head, if the last one is long ago; whether it did. With `is_last`, no later call may do
    /// so: a few commits are then reason enough, because the next mount without a cache reads them one by one.
    ///
    /// # Errors
    /// [`SessionError`]; nothing depends on a checkpoint.
    pub async fn checkpoint(&mut self, last: u64, is_last: bool) -> Result<bool, SessionError> {
        let (head, base) = (self.replica.head(), self.replica.base());
        let due = match is_last {
            true => 1 + base.len() as u64 / NODES_PER_LAST_COMMIT,
            false => CHECKPOINT_AFTER + base.len() as u64 / NODES_PER_COMMIT,
        };
        if head.number < last + due {
            return Ok(false);
        }
        self.checkpoint_now().await?;
        Ok(true)
    }

    /// Makes a checkpoint at the head, unless there is one.
    ///
    /// # Errors
    /// [`SessionError`]; nothing depends on a checkpoint.
    pub async fn checkpoint_now(&mut self) -> Result<(), SessionError> {
        self.ensure_contact().await?;
        let head = self.replica.head();
        let checkpoint = Checkpoint {
            number: head.number,
            hash: head.hash,
            time: (self.now)(),
            tree: self.replica.base().to_changes(),
        };
        let key = Key::Checkpoint(head.number);
        let object = checkpoint.encode().map_err(|error| damaged(key, error))?;
        self.objects.put_new(key, object).await?;
        Ok(())
    }
}

/// Whether less than half the grace time has passed at `now`. A clock that went back is not to be relied on.
pub(crate) fn is_recent(now: i64, at: i64) -> bool {
    (0..=GRACE / 2).contains(&now.saturating_sub(at))
}

/// How many floors there are and the checkpoint that the newest names, beginning with those that are known.
async fn floors<O: Objects>(
    objects: &O,
    (mut count, mut checkpoint): (u64, u64),
) -> Result<Result<(u64, u64), SessionError>, Fault> {
    loop {
        let key = Key::Floor(count + 1);
        let Some(object) = objects.get(key, None).await? else {
            return Ok(Ok((count, checkpoint)));
        };
        match Floor::decode(&object) {
            Ok(floor) => (count, checkpoint) = (count + 1, floor.checkpoint),
            Err(error) => return Ok(Err(damaged(key, error))),
        }
    }
}

/// The chunk's bytes.
///
/// # Errors
/// [`SessionError`], also if they are gone or not those.
pub async fn fetch<O: Objects>(objects: &O, chunk: &Chunk) -> Result<Bytes, SessionError> {
    let length = u64::from(chunk.length);
    let (key, range) = match chunk.place {
        Place::Hole => return Ok(vec![0; chunk.length as usize].into()),
        Place::Blob { salt } => (Key::Blob(chunk.hash, salt), None),
        Place::Inline { commit, offset } => {
            let start = INLINE_START + u64::from(offset);
            (Key::Log(commit), Some(start..start + length))
        }
        Place::Local => {
            let reason = "a chunk that only another cache has".to_owned();
            return Err(SessionError::Replica(ReplicaError(reason)));
        }
    };
    // A damaged answer may be the connection's doing.
    for _ in 0..3 {
        match objects.get(key, range.clone()).await? {
            Some(bytes) if Hash::of(&bytes) == chunk.hash => return Ok(bytes),
            Some(_) => {}
            None => return Err(damaged(key, "it is gone")),
        }
    }
    Err(damaged(key, "its bytes are not those of its digest"))
}

/// The bytes that the working copy may take up with the merged tree.
fn with_bytes(mut merged: Merged, fetched: &Fetched) -> Merged {
    let contents = merged.actions.nodes.values().filter_map(Node::content);
    for chunk in contents.flat_map(|content| &content.chunks) {
        if let Some(bytes) = fetched.get(&chunk.hash).filter(|bytes| !bytes.is_empty()) {
            merged.bytes.insert(chunk.hash, bytes.clone());
        }
    }
    merged
}
