//! A host: a working copy in memory, which implements [`Replica`], and the session that runs on it.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use s3::merge::{MergeResult, MissingChunks, difference};
use s3::replica::{Head, LocalChanges, MergeWork, Replica, ReplicaError, Writer};
use s3::session::{CommitReport, Contact, Session, SessionError, fetch};
use s3::tree::{Body, Changes, Chunk, Content, Entry, Node, NodeId, Place, Tree};

use crate::Bug;
use crate::files::{Files, note, tokens_of};
use crate::server::{Client, Server, lock};

/// Bytes up to which a file travels inside its commit.
const INLINE: u64 = 200;

/// A host's disk: a power cut takes it back to an earlier state, a snapshot copies it.
#[derive(Clone)]
pub struct Disk {
    /// The working copy.
    pub files: Files,
    /// The last commit in the base.
    pub head: Head,
    /// The tree after it.
    pub base: Arc<Tree>,
    intents: Vec<[u8; 16]>,
    /// All identities that this working copy had, the present one last.
    writers: Vec<u64>,
    /// The journal: what changed, and when.
    nodes: BTreeMap<NodeId, u64>,
    names: BTreeMap<Entry, u64>,
    clock: u64,
}

/// Equal but for the places of chunks.
fn is_same(one: Option<&Node>, other: Option<&Node>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            let bodies = match (&one.body, &other.body) {
                (Body::File(one), Body::File(other)) => one.same_bytes(other),
                (one, other) => one == other,
            };
            bodies && one.attributes == other.attributes
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

impl Disk {
    /// An empty working copy.
    pub fn new() -> Self {
        Self {
            files: Files::new(0, 300, 450),
            head: Head::default(),
            base: Arc::new(Tree::default()),
            intents: Vec::new(),
            writers: Vec::new(),
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            clock: 0,
        }
    }

    fn journal(&mut self, changes: &Changes) {
        self.clock += 1;
        self.nodes.extend(changes.nodes.keys().map(|id| (*id, self.clock)));
        self.names.extend(changes.names.keys().map(|entry| (entry.clone(), self.clock)));
    }

    /// Runs file operations.
    pub fn act(&mut self, operation: impl FnOnce(&mut Files)) {
        let before = self.files.tree.clone();
        operation(&mut self.files);
        let changes = difference(&before, &self.files.tree);
        self.journal(&changes);
    }

    /// The journalled nodes and names that differ from the base.
    fn changes(&self) -> Changes {
        let (work, base) = (&self.files.tree, &self.base);
        let mut changes = Changes::default();
        for id in self.nodes.keys() {
            let (now, was) = (work.node(*id), base.node(*id));
            if let Some(node) = now.filter(|_| !is_same(now, was)) {
                let mut node = node.clone();
                if let Body::File(content) = &mut node.body {
                    let known = was.and_then(Node::content).map_or(&[][..], |content| &content.chunks);
                    for chunk in content.chunks.iter_mut().filter(|chunk| chunk.place == Place::Local) {
                        if let Some(known) = known.iter().find(|known| known.hash == chunk.hash) {
                            chunk.place = known.place;
                        }
                    }
                }
                changes.nodes.insert(*id, node);
            }
        }
        let all = difference(base, work).names;
        let forgotten = all.iter().find(|(entry, _)| !self.names.contains_key(*entry));
        assert_eq!(forgotten, None, "a changed name is not in the journal");
        for entry in self.names.keys() {
            let to = work.name(entry);
            if to != base.name(entry) {
                changes.names.insert(entry.clone(), to);
            }
        }
        changes
    }

    /// Whether there is nothing to commit.
    pub fn is_clean(&self) -> bool {
        self.changes().is_empty()
    }

    fn settle(&mut self, mark: u64) {
        self.nodes.retain(|_, at| *at > mark);
        self.names.retain(|_, at| *at > mark);
    }

    /// Files that are as in the base learn where their bytes are in the bucket.
    fn learn(&mut self, ids: impl Iterator<Item = NodeId>) {
        for id in ids {
            let (now, base) = (self.files.tree.node(id), self.base.node(id));
            if let (Some(now), Some(Node { body, .. })) = (now, base)
                && is_same(Some(now), base)
            {
                let node = Node { body: body.clone(), ..now.clone() };
                self.files.tree.apply(&Changes { nodes: BTreeMap::from([(id, node)]), names: BTreeMap::new() });
            }
        }
    }

    fn take(&mut self, merged: &MergeResult, takes_bytes: bool) {
        let contents = merged.actions.nodes.values().filter_map(Node::content);
        for chunk in contents.flat_map(|content| &content.chunks) {
            if let Some(bytes) = merged.bytes.get(&chunk.hash) {
                note(chunk.hash, bytes);
                if chunk.place == Place::Local || takes_bytes {
                    self.files.bytes.insert(chunk.hash, bytes.clone());
                }
            }
        }
        if !merged.forks.is_empty() {
            let renamed: BTreeMap<NodeId, NodeId> = merged.forks.iter().copied().collect();
            let of = |id: NodeId| renamed.get(&id).copied().unwrap_or(id);
            let before = self.files.tree.to_changes();
            let nodes = before.nodes.into_iter().map(|(id, node)| (of(id), node));
            let names = before.names.into_iter().map(|((dir, name), id)| ((of(dir), name), id.map(of)));
            let all = Changes { nodes: nodes.collect(), names: names.collect() };
            let renamed = Tree::of(&all).expect("forks leave a tree");
            let changes = difference(&self.files.tree, &renamed);
            self.journal(&changes);
            self.files.tree = renamed;
        }
        s3::merge::validate(&self.files.tree, &merged.actions).expect("the actions leave a tree");
        self.files.tree.apply(&merged.actions);
        self.journal(&merged.actions);
    }

    /// Forgets bytes that are in the bucket, as a cache does that is full.
    pub fn evict(&mut self) {
        let ids: Vec<NodeId> = self.base.nodes().map(|(id, _)| id).collect();
        self.learn(ids.into_iter());
        let contents = self.files.tree.nodes().filter_map(|(_, node)| node.content());
        let chunks = contents.flat_map(|content| &content.chunks);
        let local: BTreeSet<_> = chunks.filter(|chunk| chunk.place == Place::Local).map(|it| it.hash).collect();
        self.files.bytes.retain(|hash, _| local.contains(hash));
    }

    /// A chunk that is not at hand.
    pub fn placeholder(&self) -> Option<Chunk> {
        let contents = self.files.tree.nodes().filter_map(|(_, node)| node.content());
        let mut chunks = contents.flat_map(|content| &content.chunks);
        chunks.find(|chunk| !self.files.bytes.contains_key(&chunk.hash)).copied()
    }
}

/// Facts about all hosts that the histories' properties need.
#[derive(Default)]
pub struct TokenLog {
    /// Tokens that an operation destroyed which may have been committed.
    pub destroyed: BTreeSet<String>,
    /// Tokens that were acknowledged.
    pub acknowledged: BTreeSet<String>,
}

/// [`Replica`] on a disk that others see, too.
struct Copy {
    disk: Arc<Mutex<Disk>>,
    known: Arc<Mutex<TokenLog>>,
    base: Arc<Tree>,
    writer: Writer,
    seen: BTreeMap<NodeId, Content>,
    /// Calls until one fails, and whether it has its effect.
    fails: Option<(u32, bool)>,
    takes_bytes: bool,
    bug: Bug,
}

impl Copy {
    /// Runs a call that changes the disk; it may be killed before or after.
    fn change<T>(
        &mut self,
        call: impl FnOnce(&mut Self, &mut Disk) -> Result<T, ReplicaError>,
    ) -> Result<T, ReplicaError> {
        let killed = || Err(ReplicaError::other(KILLED));
        let dies = match &mut self.fails {
            Some((0, after)) => Some(*after),
            Some((calls, _)) => {
                *calls -= 1;
                None
            }
            None => None,
        };
        if dies == Some(false) {
            return killed();
        }
        let disk = self.disk.clone();
        let mut disk = lock(&disk);
        let result = call(self, &mut disk);
        self.base = disk.base.clone();
        if dies == Some(true) { killed() } else { result }
    }
}

/// The error of a call in which the session is killed.
pub const KILLED: &str = "killed";

impl Copy {
    /// Notes a commit that may be sent.
    fn intend(&mut self, nonce: [u8; 16]) -> Result<(), ReplicaError> {
        self.change(|copy, disk| {
            disk.intents.push(nonce);
            lock(&copy.known).destroyed.extend(disk.files.destroyed.iter().cloned());
            Ok(())
        })
    }
}

impl Replica for Copy {
    fn head(&self) -> Head {
        lock(&self.disk).head
    }

    fn base(&self) -> &Tree {
        &self.base
    }

    fn writer(&self) -> &Writer {
        &self.writer
    }

    fn was_writer(&self, id: u64) -> bool {
        let is_present = id == self.writer.id && self.bug == Bug::SkipNonce;
        !is_present && lock(&self.disk).writers.contains(&id)
    }

    fn intents(&self) -> Vec<[u8; 16]> {
        match self.bug {
            Bug::SkipNonce => Vec::new(),
            _ => lock(&self.disk).intents.clone(),
        }
    }

    fn local(&mut self, nonce: [u8; 16]) -> Result<LocalChanges, ReplicaError> {
        if !lock(&self.disk).changes().is_empty() {
            self.intend(nonce)?;
        }
        let disk = lock(&self.disk);
        let changes = disk.changes();
        let mut inline = BTreeMap::new();
        self.seen.clear();
        for (id, node) in &changes.nodes {
            let Some(content) = node.content() else {
                continue;
            };
            self.seen.insert(*id, content.clone());
            if let [chunk] = &content.chunks[..]
                && content.size <= INLINE
                && chunk.place == Place::Local
            {
                inline.insert(chunk.hash, disk.files.bytes[&chunk.hash].clone());
            }
        }
        Ok(LocalChanges { changes, inline, mark: disk.clock, ..LocalChanges::default() })
    }

    fn read(&mut self, id: NodeId, index: usize) -> Result<Option<Bytes>, ReplicaError> {
        let disk = lock(&self.disk);
        // A commit may have a file as it is now, without what was destroyed since `local`.
        let destroyed = disk.files.destroyed.iter().cloned();
        lock(&self.known).destroyed.extend(destroyed);
        let content = disk.files.tree.node(id).and_then(Node::content);
        let chunk = content.and_then(|content| content.chunks.get(index));
        Ok(chunk.and_then(|chunk| disk.files.bytes.get(&chunk.hash).cloned()))
    }

    fn is_unchanged(&mut self, id: NodeId) -> Result<bool, ReplicaError> {
        let disk = lock(&self.disk);
        let now = disk.files.tree.node(id).and_then(Node::content);
        Ok(match (now, self.seen.get(&id)) {
            (Some(now), Some(seen)) => now.same_bytes(seen),
            _ => false,
        })
    }

    fn acknowledge(&mut self, head: Head, changes: &Changes, mark: Option<u64>) -> Result<(), ReplicaError> {
        self.change(|_, disk| {
            disk.head = head;
            disk.intents.clear();
            Arc::make_mut(&mut disk.base).apply(changes);
            if let Some(mark) = mark {
                disk.settle(mark);
            }
            disk.learn(changes.nodes.keys().copied());
            Ok(())
        })
    }

    fn adopt(
        &mut self,
        head: Head,
        theirs: &Changes,
        merge: &mut MergeWork<'_>,
    ) -> Result<Result<(), MissingChunks>, ReplicaError> {
        self.change(|copy, disk| {
            let ours = disk.changes();
            let mut next = disk.files.clone();
            let mut fresh = || next.fresh();
            let mut read = |id: NodeId| {
                let content = disk.files.tree.node(id).and_then(Node::content);
                Ok(content.and_then(|content| disk.files.read(content)).map(Bytes::from))
            };
            let merged = match merge(&disk.base, &ours, &mut read, &mut fresh)? {
                Ok(merged) => merged,
                Err(needs) => return Ok(Err(needs)),
            };
            disk.files.next = next.next;
            disk.head = head;
            disk.intents.clear();
            Arc::make_mut(&mut disk.base).apply(theirs);
            if copy.bug != Bug::LoseMerge || merged.bytes.is_empty() {
                disk.take(&merged, copy.takes_bytes);
            } else {
                disk.files.tree = (*disk.base).clone();
            }
            Ok(Ok(()))
        })
    }
}

/// A request to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// [`Session::join`].
    Join,
    /// [`Session::follow`].
    Follow,
    /// [`Session::commit`].
    Commit,
    /// [`Session::checkpoint`], always due.
    Checkpoint,
    /// [`Session::glance`].
    Glance,
    /// [`Session::verify`].
    Verify,
    /// Fetches a chunk that is not at hand.
    Hydrate,
}

type Outcome = Result<Option<CommitReport>, SessionError>;

/// A running action.
struct Task {
    action: Action,
    future: Pin<Box<dyn Future<Output = (Outcome, Contact)>>>,
    /// The tokens in the working copy when it began.
    tokens: BTreeSet<String>,
}

/// A host.
pub struct Host {
    /// Its number.
    pub number: usize,
    /// Its disk.
    pub disk: Arc<Mutex<Disk>>,
    /// States that a power cut may lead back to.
    pub synced: Vec<Disk>,
    /// Whether the memory is mounted.
    pub is_mounted: bool,
    /// Whether the mount has joined the log.
    pub is_joined: bool,
    task: Option<Task>,
    contact: Contact,
    writer: u64,
    bug: Bug,
}

impl Host {
    /// A host with that disk, which is not mounted.
    pub fn new(number: usize, disk: Disk, bug: Bug) -> Self {
        Self {
            number,
            synced: vec![disk.clone()],
            disk: Arc::new(Mutex::new(disk)),
            is_mounted: false,
            is_joined: false,
            task: None,
            contact: Contact::default(),
            writer: 0,
            bug,
        }
    }

    /// Mounts: a new identity, which is durable before it is used.
    pub fn mount(&mut self, writer: u64) {
        self.is_mounted = true;
        self.writer = writer;
        let mut disk = lock(&self.disk);
        disk.writers.push(writer);
        disk.files.writer = writer;
        self.synced = vec![disk.clone()];
    }

    /// Ends the mount's process at once.
    pub fn kill(&mut self) {
        self.task = None;
        self.contact = Contact::default();
        (self.is_mounted, self.is_joined) = (false, false);
    }

    /// Takes the disk back to a state that it had since the last sync.
    pub fn cut_power(&mut self, random: usize) {
        self.kill();
        let state = self.synced[random % self.synced.len()].clone();
        *lock(&self.disk) = state;
    }

    /// Notes a state that may or, with `is_forced`, must be on the disk from now on.
    pub fn sync(&mut self, is_forced: bool) {
        if is_forced {
            self.synced.clear();
        }
        self.synced.push(lock(&self.disk).clone());
    }

    /// Whether no action runs.
    pub fn is_idle(&self) -> bool {
        self.task.is_none()
    }

    /// Drops the session without an end of the mount.
    pub fn abandon(&mut self) {
        self.task = None;
    }

    /// Begins an action.
    pub fn start(
        &mut self,
        action: Action,
        server: &Arc<Mutex<Server>>,
        known: &Arc<Mutex<TokenLog>>,
        random: &Arc<AtomicU64>,
        fails: Option<(u32, bool)>,
    ) {
        let (disk, client) = (self.disk.clone(), Client::new(server, self.number));
        let tokens = tokens_of(&lock(&disk).files.tree);
        let base = lock(&disk).base.clone();
        let mut copy = Copy {
            base,
            known: known.clone(),
            writer: Writer { id: self.writer, name: format!("host{}", self.number) },
            seen: BTreeMap::new(),
            fails,
            takes_bytes: random.load(Ordering::Relaxed).is_multiple_of(2),
            bug: self.bug,
            disk,
        };
        let mut contact = std::mem::take(&mut self.contact);
        let (server, random, bug) = (server.clone(), random.clone(), self.bug);
        let future = async move {
            let now = move || match bug {
                Bug::BlindClock => 0,
                _ => lock(&server).now,
            };
            let fill = move |buffer: &mut [u8]| {
                for byte in buffer.chunks_mut(8) {
                    // Splitmix: deterministic, and never the same twice in a history.
                    let mut mixed = random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
                    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                    byte.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes()[..byte.len()]);
                }
            };
            let outcome = if action == Action::Hydrate {
                hydrate(&client, &copy.disk).await
            } else {
                let mut session =
                    Session { objects: &client, replica: &mut copy, now: &now, random: &fill, contact: &mut contact };
                match action {
                    Action::Join => session.join().await.map(|_| None),
                    Action::Follow => session.follow().await.map(|_| None),
                    Action::Commit => session.commit().await.map(Some),
                    Action::Checkpoint => session.checkpoint_now().await.map(|()| None),
                    Action::Glance => session.glance().await.map(|()| None),
                    Action::Verify => session.verify().await.map(|()| None),
                    Action::Hydrate => unreachable!("it needs no session"),
                }
            };
            (outcome, contact)
        };
        self.task = Some(Task { action, future: Box::pin(future), tokens });
    }

    /// Continues the action; returns its result once it has ended.
    pub fn poll(&mut self, known: &Arc<Mutex<TokenLog>>) -> Option<(Action, Outcome)> {
        let task = self.task.as_mut()?;
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready((outcome, contact)) = task.future.as_mut().poll(&mut context) else {
            return None;
        };
        let Task { action, tokens, .. } = self.task.take()?;
        self.contact = contact;
        match &outcome {
            Err(SessionError::Replica(ReplicaError { reason, .. })) if reason == KILLED => self.kill(),
            Ok(Some(committed)) if committed.is_complete() => {
                let disk = lock(&self.disk);
                let left = tokens.into_iter().filter(|token| !disk.files.destroyed.contains(token));
                lock(known).acknowledged.extend(left);
            }
            Ok(_) if action == Action::Join => self.is_joined = true,
            _ => {}
        }
        Some((action, outcome))
    }
}

async fn hydrate(client: &Client, disk: &Mutex<Disk>) -> Outcome {
    let placeholder = lock(disk).placeholder();
    if let Some(chunk) = placeholder {
        // It may be gone, if others have deleted the file long ago.
        match fetch(client, &chunk).await {
            Ok(bytes) => {
                lock(disk).files.bytes.insert(chunk.hash, bytes);
            }
            Err(SessionError::Broken(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
