//! The protocol: how a working copy joins the log, follows it, and commits to it.
//!
//! There is no clock, socket, file or thread here: requests go through [`Objects`], the working copy is a
//! [`Replica`]. Each `await` is a point at which a session may be killed; the simulation does so.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{join, try_join};

use crate::merge::{ChunkBytes, RemoteCommit, ReplicaError, merge};
use crate::objects::{CHECKSUM, Checkpoint, Commit, Fault, Floor, Head, Key, Objects, PutOutcome, Record};
use crate::reader::{self, CommitPrefetch, READS, Step, damaged, oldest};
pub use crate::reader::{BrokenLog, Look, Result, SessionError, fetch};
use crate::replica::{MergeWork, Replica};
use crate::tree::{Changes, Hash, Tree};
use crate::view::{difference, validate};

/// Nanoseconds that garbage collection waits between creating a floor and removing what is below it, and the age below
/// which it leaves alone a blob that nothing refers to: one day. A request is over within half of that.
pub const GRACE: i64 = 24 * 3600 * 1_000_000_000;

/// Commits after which a session that still follows the log says so.
const FOLLOWED_NEWS: u64 = 1000;

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

/// The result of [`Session::commit`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitReport {
    /// The commit, or `None` if there was nothing to commit.
    pub number: Option<u64>,
    /// Files that changed during every read: the commit has a mixture of two states of them. The next commit has a later
    /// state.
    pub restless: u64,
    /// Files that cannot be committed, because their content is neither here nor in the bucket any more: others deleted
    /// them long ago, while this working copy renamed them or changed their attributes.
    pub missing: Vec<String>,
}

impl CommitReport {
    /// Whether every change that was local when the call began is in the log.
    pub fn is_complete(&self) -> bool {
        self.restless == 0 && self.missing.is_empty()
    }
}

/// A mount's knowledge of the bucket, kept from one session to the next. It is empty when the mount starts.
#[derive(Debug, Default)]
pub struct Contact {
    /// When it was last known that garbage collection had removed nothing after the head.
    checked: Option<i64>,
    floors: Vec<Floor>,
    /// The newest commit whose object was here, and what that was at the last glance.
    newest: Option<Anchor>,
    anchor: Option<Anchor>,
    /// The server has refused to create a commit again.
    is_conditional: bool,
    /// Blobs that this mount created: salt, and when the upload began.
    pub(crate) uploaded: BTreeMap<Hash, (u32, i64)>,
    /// The first look of a mount without a cache at the log, if it has had one, or has tried to.
    pub look: Option<Result<Look>>,
}

/// Identifies a commit's object by one small read: its checksum, which is its end.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    number: u64,
    length: u64,
    checksum: [u8; CHECKSUM],
}

impl Anchor {
    fn of(number: u64, object: &[u8]) -> Option<Self> {
        Some(Self { number, length: object.len() as u64, checksum: *object.last_chunk()? })
    }
}

/// A working copy and the bucket that its log is in. Its calls fail with a [`SessionError`].
pub struct Session<'a, O, R> {
    /// The log.
    pub objects: &'a O,
    /// The working copy.
    pub replica: &'a mut R,
    /// The time in nanoseconds since 1970; it must go on while the machine sleeps.
    pub now: &'a (dyn Fn() -> i64 + Sync),
    /// Fills a buffer with random bytes.
    pub random: &'a (dyn Fn(&mut [u8]) + Sync),
    /// Kept from the mount's earlier sessions.
    pub contact: &'a mut Contact,
}

/// Whether less than half the grace time has passed at `now` since something was known to be so: garbage collection has
/// then removed nothing that it depends on, and removes nothing before a request that is sent now is over. A clock that
/// went back is not to be relied on.
pub(crate) fn is_recent(now: i64, at: i64) -> bool {
    (0..=GRACE / 2).contains(&now.saturating_sub(at))
}

/// A commit that the server refused to replace, and does not return.
fn not_readable_yet(number: u64) -> SessionError {
    Fault::Unknown(format!("commit {number} exists, but cannot be read yet")).into()
}

impl<O: Objects, R: Replica> Session<'_, O, R> {
    /// Begins: checks that the log is the one that the working copy knows, or creates a new log, or takes the newest
    /// checkpoint of one that the working copy does not know yet; then follows it to its end. Creates the first commit
    /// again, to learn whether the server refuses that; one that does not is [`BrokenLog::Unconditional`], but the log is
    /// followed all the same.
    pub async fn join(&mut self) -> Result<u64> {
        let objects = self.objects;
        let (probed, adopted) = if self.replica.head().number == 0 {
            let (probed, ahead) = self.begin().await?;
            (Ok(probed), self.follow_from(ahead).await)
        } else {
            let first = self.check_head().await?;
            join!(objects.put_new(Key::Log(1), first), self.follow())
        };
        let (adopted, probed) = (adopted?, probed?);
        self.record_probe(probed).map(|()| adopted)
    }

    /// Takes the answer to creating the first commit again with the same bytes: a server that overwrites it does no harm,
    /// and is found out.
    fn record_probe(&mut self, probed: PutOutcome) -> Result<()> {
        self.contact.is_conditional = probed == PutOutcome::Exists;
        match probed {
            PutOutcome::Exists => Ok(()),
            PutOutcome::Created => Err(BrokenLog::Unconditional.into()),
        }
    }

    /// Whether garbage collection has removed nothing after the head, and will not before a request sent now is over.
    fn is_in_contact(&self) -> bool {
        let checked = self.contact.checked;
        checked.is_some_and(|at| is_recent((self.now)(), at))
    }

    /// After a long time out of contact, the commit after the head may be removed: it is neither read nor created unseen.
    async fn ensure_contact(&mut self) -> Result<()> {
        if self.is_in_contact() { Ok(()) } else { self.verify().await }
    }

    /// Checks that the head of the working copy is in the log, and takes up a log that the working copy knows nothing of.
    /// Commits that garbage collection has removed are skipped.
    pub async fn verify(&mut self) -> Result<()> {
        if self.replica.head().number > 0 {
            return self.check_head().await.map(drop);
        }
        let (probed, _) = self.begin().await?;
        self.record_probe(probed)
    }

    /// Makes sure that the server refuses to overwrite, before the first commit of a mount that began without it.
    async fn ensure_conditional(&mut self) -> Result<()> {
        if self.contact.is_conditional {
            return Ok(());
        }
        let first = self.check_head().await?;
        let probed = self.objects.put_new(Key::Log(1), first).await?;
        self.record_probe(probed)
    }

    /// As [`Session::verify`], for a log that the working copy knows; its first commit.
    async fn check_head(&mut self) -> Result<Bytes> {
        let (started, head) = ((self.now)(), self.replica.head());
        let object = reader::expected(self.objects, Key::Log(head.number), None, head.hash);
        // No mount removes the first commit, even if this mount has committed to a bucket that was emptied.
        let first = reader::expected(self.objects, Key::Log(1), None, head.first);
        let floors = reader::floors(self.objects, self.contact.floors.clone());
        let (object, first, floors) = try_join!(object, first, floors)?;
        self.contact.floors = floors;
        let floor = oldest(&self.contact.floors);
        let first = first.ok_or(BrokenLog::Gone(1))?;
        if Hash::of(&first) != head.first {
            return Err(BrokenLog::Different(1).into());
        }
        match object {
            Some(object) if Hash::of(&object) != head.hash => {
                return Err(BrokenLog::Different(head.number).into());
            }
            None if floor <= head.number => return Err(BrokenLog::Gone(head.number).into()),
            _ => {}
        }
        self.contact.newest = object.and_then(|object| Anchor::of(head.number, &object));
        self.contact.anchor = self.contact.newest;
        if floor > head.number {
            let found = reader::checkpoint_of_log(self.objects, floor).await?;
            self.skip(found, head.first).await?;
        }
        self.contact.checked = Some(started);
        Ok(first)
    }

    /// Whether the log still holds what was its newest commit at the last glance, by one small request: for sessions that
    /// poll. One that was committed since proves nothing, because it may be alone in a bucket that was emptied.
    pub async fn glance(&mut self) -> Result<()> {
        let Some(anchor) = self.contact.anchor.filter(|_| self.is_in_contact()) else {
            return self.verify().await;
        };
        let Anchor { number, length, .. } = anchor;
        let end = length - CHECKSUM as u64..length;
        for _ in 0..READS {
            match self.objects.get(Key::Log(number), Some(end.clone())).await {
                Ok(Some(checksum)) if checksum == anchor.checksum[..] => {
                    self.contact.anchor = self.contact.newest;
                    return Ok(());
                }
                Ok(None) => {
                    let floors = self.contact.floors.clone();
                    self.contact.floors = reader::floors(self.objects, floors).await?;
                    return if oldest(&self.contact.floors) <= number {
                        Err(BrokenLog::Gone(number).into())
                    } else {
                        self.verify().await
                    };
                }
                // Another commit, or an answer that was damaged on its way.
                Ok(Some(_)) | Err(Fault::Unreadable(_)) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(BrokenLog::Different(number).into())
    }

    /// Adopts a checkpoint as if it were one commit.
    async fn skip(&mut self, (checkpoint, tree): (Checkpoint, Tree), first: Hash) -> Result<()> {
        let theirs = difference(self.replica.base(), &tree);
        let head = Head { number: checkpoint.number, hash: checkpoint.hash, first };
        // A commit whose answer is not known may be among those that are skipped.
        let is_own = !self.replica.intents().is_empty();
        self.adopt(head, &theirs, is_own, ChunkBytes::new()).await
    }

    /// Takes up a log that is new here; what creating the first commit again gave, and the commits after the checkpoint.
    async fn begin(&mut self) -> Result<(PutOutcome, CommitPrefetch)> {
        let mut look = match self.contact.look.take() {
            Some(look) => look?,
            None => Look::take(self.objects, (self.now)()).await?,
        };
        if look.first.is_none() {
            // The first commit is never removed.
            if look.newest > 0 {
                return Err(BrokenLog::Gone(1).into());
            }
            // It is empty. Another writer may be faster.
            let (nonce, nothing) = (self.nonce(), Changes::default());
            let (_, first) = self.encode(Head::default(), nonce, nothing, &[])?;
            self.objects.put_new(Key::Log(1), first).await?;
            look = Look::take(self.objects, (self.now)()).await?;
        }
        let first = look.first.ok_or_else(|| not_readable_yet(1))?;
        self.contact.floors = look.floors;
        match look.checkpoint {
            None => self.take(first).await?,
            Some(found) => self.skip(found, Hash::of(&first)).await?,
        }
        self.contact.checked = Some(look.started);
        Ok((look.probed, look.ahead))
    }

    fn nonce(&self) -> [u8; 16] {
        let mut nonce = [0; 16];
        (self.random)(&mut nonce);
        nonce
    }

    /// The commit after `head`, and its object.
    fn encode(&self, head: Head, nonce: [u8; 16], changes: Changes, inline: &[u8]) -> Result<(Commit, Bytes)> {
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
        let object = commit.encode(inline);
        let object = object.map_err(|error| damaged(Key::Log(number), error))?;
        Ok((commit.located(), object))
    }

    /// Adopts all commits after the head; how many there were.
    pub async fn follow(&mut self) -> Result<u64> {
        self.follow_from(CommitPrefetch::default()).await
    }

    /// The same, where some commits are read already.
    async fn follow_from(&mut self, mut ahead: CommitPrefetch) -> Result<u64> {
        let mut started = self.contact.checked;
        let mut adopted = 0;
        loop {
            if ahead.is_empty() {
                self.ensure_contact().await?;
                started = Some((self.now)());
            }
            let next = self.replica.head().number + 1;
            let Some(object) = ahead.next(self.objects, next).await? else {
                // Nothing after the head was removed, so there was nothing.
                self.contact.checked = started;
                return Ok(adopted);
            };
            self.take_intact(next, object).await?;
            adopted += 1;
            if adopted % FOLLOWED_NEWS == 0 {
                tracing::info!("still reading the log: at commit {next}, {adopted} commits adopted so far");
            }
        }
    }

    /// Takes the commit after the head, which is read again if it looks damaged.
    async fn take_intact(&mut self, number: u64, mut object: Bytes) -> Result<()> {
        for _ in 1..READS {
            match self.take(object).await {
                Err(SessionError::Broken(BrokenLog::Damaged(..) | BrokenLog::Chain(_))) => {}
                taken => return taken,
            }
            let again = self.objects.get(Key::Log(number), None).await?;
            object = again.ok_or(BrokenLog::Gone(number))?;
        }
        self.take(object).await
    }

    /// Takes the commit after the head.
    async fn take(&mut self, object: Bytes) -> Result<()> {
        let anchor = Anchor::of(self.replica.head().number + 1, &object);
        let step = Step::after(self.replica.head(), object)?;
        let (head, commit) = (step.head, &step.commit);
        if self.replica.intents().contains(&commit.nonce) {
            self.replica.acknowledge(head, &commit.changes, None)?;
        } else {
            let is_own = self.replica.was_writer(commit.writer);
            self.adopt(head, &commit.changes, is_own, step.fetched()?).await?;
        }
        self.contact.newest = anchor;
        Ok(())
    }

    async fn adopt(&mut self, head: Head, changes: &Changes, is_own: bool, mut fetched: ChunkBytes) -> Result<()> {
        let writer = self.replica.writer().name.clone();
        validate(self.replica.base(), changes).map_err(|error| damaged(Key::Log(head.number), error))?;
        loop {
            let theirs = RemoteCommit { changes, number: head.number, is_own, fetched: &fetched, writer: &writer };
            let merge: &mut MergeWork<'_> = &mut |base, ours, read, fresh| merge(base, theirs, ours, read, fresh);
            let Err(needs) = self.replica.adopt(head, changes, merge)? else {
                return Ok(());
            };
            for chunk in needs {
                let bytes = match fetch(self.objects, &chunk).await {
                    // A file that cannot be merged is kept beside the other version.
                    Err(SessionError::Broken(_)) => Bytes::new(),
                    fetched => fetched?,
                };
                fetched.insert(chunk.hash, bytes);
            }
        }
    }

    /// Commits the local changes, after adopting others' commits. After [`SessionError::Fault`] the
    /// commit may be in the log: the next call finds out.
    pub async fn commit(&mut self) -> Result<CommitReport> {
        let mut done = CommitReport::default();
        if !self.replica.intents().is_empty() {
            // An earlier attempt may have succeeded.
            self.follow().await?;
        }
        let mut patience = RESTLESS_MAX;
        for _ in 0..RACES_MAX {
            self.ensure_contact().await?;
            let nonce = self.nonce();
            let local = self.replica.local(nonce)?;
            let (head, mark) = (self.replica.head(), local.mark);
            if local.changes.is_empty() {
                // A late commit would otherwise redo a change that was undone since.
                if mark > 0 && self.replica.intents().is_empty() {
                    self.replica.acknowledge(head, &local.changes, Some(mark))?;
                }
                return Ok(done);
            }
            self.ensure_conditional().await?;
            if self.replica.head() != head {
                continue;
            }
            let placed = self.place(local, patience > 0, &mut done).await?;
            let Some((changes, inline, oldest)) = placed else {
                patience -= 1;
                continue;
            };
            if changes.is_empty() {
                return Ok(done);
            }
            let now = (self.now)();
            if !self.is_in_contact() || oldest.is_some_and(|at| !is_recent(now, at)) {
                // The upload took long.
                continue;
            }
            validate(self.replica.base(), &changes).map_err(|error| {
                let start = format!("the local changes do not follow commit {}", head.number);
                ReplicaError::other(format!("{start}: {error}"))
            })?;
            // The nonce is noted with a state of the working copy. A commit that has later states must not be taken for
            // it: after a power cut, or in a copy of the machine, they are not here.
            let nonce = match done.restless {
                0 => nonce,
                _ => self.nonce(),
            };
            let (commit, object) = self.encode(head, nonce, changes, &inline)?;
            let (number, hash) = (commit.number, Hash::of(&object));
            let anchor = Anchor::of(number, &object);
            if self.objects.put_new(Key::Log(number), object).await? == PutOutcome::Created {
                let mark = done.is_complete().then_some(mark);
                let head = Head { number, hash, ..head };
                self.replica.acknowledge(head, &commit.changes, mark)?;
                self.contact.newest = anchor;
                done.number = Some(number);
                return Ok(done);
            }
            self.follow().await?;
            if self.replica.head() == head {
                return Err(not_readable_yet(number));
            }
        }
        Err(SessionError::Outrun(RACES_MAX))
    }

    /// Makes a checkpoint at the head, if it is due after the commits since `last`; whether it did. Nothing depends on it.
    ///
    /// One is due whenever the numbers of commits pass a multiple, so that writers which are killed again and again make
    /// theirs, too. With `is_last`, no later call may make one: a few commits are then reason enough, because the next
    /// mount without a cache reads them one by one.
    pub async fn checkpoint(&mut self, last: u64, is_last: bool) -> Result<bool> {
        let (head, nodes) = (self.replica.head().number, self.replica.base().count() as u64);
        let every = CHECKPOINT_AFTER + nodes / NODES_PER_COMMIT;
        let is_due = if is_last { head > last + nodes / NODES_PER_LAST_COMMIT } else { head / every > last / every };
        if !is_due || !self.contact.is_conditional {
            return Ok(false);
        }
        self.checkpoint_now().await?;
        Ok(true)
    }

    /// Makes a checkpoint at the head, unless there is one.
    pub async fn checkpoint_now(&mut self) -> Result<()> {
        self.ensure_contact().await?;
        let (head, tree) = (self.replica.head(), self.replica.base());
        reader::create_checkpoint(self.objects, head, (self.now)(), tree).await?;
        Ok(())
    }
}
