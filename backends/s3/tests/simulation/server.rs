//! A bucket and the network before it. Requests are executed when the scheduler says so: in any order, late, twice, or
//! not at all; and answers are lost. It checks what must hold of the bucket at every moment.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use s3::objects::{Checkpoint, Commit, Fault, Floor, Key, Objects, PutOutcome, Record};
use s3::session::GRACE;
use s3::tree::{Changes, Hash, Node, Place, Tree};

use crate::Bug;
use crate::files::{tokens_in, whole};

/// A request.
#[derive(Clone)]
pub enum Request {
    /// Create unless it exists.
    Put(Key, Bytes),
    /// Read.
    Get(Key, Option<Range<u64>>),
    /// List.
    Checkpoints,
    /// Garbage collection's own.
    Delete(Key),
}

#[derive(Clone, Debug)]
enum Answer {
    Put(PutOutcome),
    Got(Option<Bytes>),
    Listed(Vec<u64>),
}

struct PendingRequest {
    id: u64,
    host: usize,
    request: Request,
    sent: i64,
    answer: Option<Result<Answer, Fault>>,
    waker: Waker,
}

/// A request that its sender does not wait for any more.
struct LateRequest {
    request: Request,
    sent: i64,
}

/// The bucket and the network.
pub struct Server {
    /// The objects, and when they were created.
    pub objects: BTreeMap<Key, (Bytes, i64)>,
    /// The time.
    pub now: i64,
    /// Requests in a thousand that fail.
    pub trouble: u32,
    /// Whether garbage collection runs in this history.
    pub collects: bool,
    /// Events that must not happen.
    pub violations: Vec<String>,
    /// Requests that were executed.
    pub executed: u64,
    bug: Bug,
    pending: Vec<PendingRequest>,
    late: Vec<LateRequest>,
    /// All keys that ever were, also those that garbage collection has removed.
    created: BTreeSet<Key>,
    next: u64,
    /// Checkpoint and time of the last floor.
    floor: (u64, i64, u64),
}

/// The bucket, as a host reaches it.
#[derive(Clone)]
pub struct Client {
    server: Arc<Mutex<Server>>,
    host: usize,
}

/// Locks a mutex that only one thread uses.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread of a history has panicked")
}

impl Server {
    /// An empty bucket.
    pub fn new(bug: Bug, collects: bool, trouble: u32) -> Self {
        Self {
            objects: BTreeMap::new(),
            now: 1_700_000_000_000_000_000,
            trouble,
            collects,
            violations: Vec::new(),
            executed: 0,
            bug,
            pending: Vec::new(),
            late: Vec::new(),
            created: BTreeSet::new(),
            next: 0,
            floor: (0, 0, 0),
        }
    }

    /// The last commit.
    pub fn head(&self) -> u64 {
        let logs = self.objects.keys().rev().filter_map(|key| match key {
            Key::Log(number) => Some(*number),
            _ => None,
        });
        logs.max().unwrap_or(0)
    }

    /// Whether a request is so old that it is over. Without garbage collection, none ever is.
    fn is_over(&self, sent: i64) -> bool {
        self.collects && self.now - sent > GRACE / 2
    }

    fn execute(&mut self, request: &Request, is_late: bool, random: u32) -> Answer {
        self.executed += 1;
        match request {
            Request::Put(key, body) => Answer::Put(self.put(*key, body, is_late)),
            Request::Get(key, range) => {
                let found = self.objects.get(key).map(|(body, _)| match range {
                    Some(range) => {
                        let end = (range.end as usize).min(body.len());
                        body.slice((range.start as usize).min(end)..end)
                    }
                    None => body.clone(),
                });
                Answer::Got(found)
            }
            Request::Checkpoints => {
                let all = self.objects.keys().filter_map(|key| match key {
                    Key::Checkpoint(number) => Some(*number),
                    _ => None,
                });
                let mut all: Vec<u64> = all.collect();
                // A listing may be old.
                if random.is_multiple_of(4) && !all.is_empty() {
                    all.truncate((random / 4) as usize % all.len());
                }
                Answer::Listed(all)
            }
            Request::Delete(key) => {
                self.objects.remove(key);
                Answer::Got(None)
            }
        }
    }

    fn put(&mut self, key: Key, body: &Bytes, is_late: bool) -> PutOutcome {
        let overwrites = match self.bug {
            Bug::Overwrite => matches!(key, Key::Log(number) if number > 1),
            bug => bug == Bug::OverwriteAll,
        };
        if self.objects.contains_key(&key) && !overwrites {
            return PutOutcome::Exists;
        }
        if self.bug == Bug::Forget && matches!(key, Key::Blob(..)) && self.created.len().is_multiple_of(8) {
            return PutOutcome::Created;
        }
        if !self.created.insert(key) && !is_late && !overwrites {
            self.violations.push(format!("{key:?} was written twice"));
        }
        if let Key::Log(number) = key
            && number >= self.floor.0
        {
            self.check_commit(number, body);
        }
        self.objects.insert(key, (body.clone(), self.now));
        PutOutcome::Created
    }

    /// A commit refers only to existing objects.
    fn check_commit(&mut self, number: u64, body: &Bytes) {
        let commit = match Commit::decode(body) {
            Ok(commit) => commit,
            Err(error) => return self.violations.push(format!("commit {number}: {error}")),
        };
        for key in keys_of(&commit.changes) {
            if key != Key::Log(number) && !self.objects.contains_key(&key) {
                self.violations.push(format!("commit {number} refers to {key:?}, which is not there"));
            }
        }
        let local = commit.changes.nodes.values().filter_map(Node::content);
        if local.flat_map(|content| &content.chunks).any(|chunk| chunk.place == Place::Local) {
            self.violations.push(format!("commit {number} has a local chunk"));
        }
    }

    /// Decides the outcome of one of the waiting requests; returns the host that sent it.
    pub fn advance(&mut self, random: &mut ChaCha8Rng) -> Option<usize> {
        let waiting: Vec<usize> = (0..self.pending.len()).filter(|at| self.pending[*at].answer.is_none()).collect();
        if waiting.is_empty() {
            return None;
        }
        let at = waiting[random.random_range(0..waiting.len())];
        let (request, sent) = (self.pending[at].request.clone(), self.pending[at].sent);
        let number = random.random_range(0..u32::MAX);
        let unknown = |reason: &str| Err(Fault::Unknown(reason.to_owned()));
        let is_troubled = random.random_range(0..1000) < self.trouble;
        let answer = match random.random_range(0..8) {
            _ if self.is_over(sent) => unknown("timed out"),
            _ if !is_troubled => Ok(self.execute(&request, false, number)),
            0 | 1 => {
                self.execute(&request, false, number);
                unknown("the answer was lost")
            }
            2 => unknown("503"),
            3 | 4 => {
                self.late.push(LateRequest { request, sent });
                unknown("timed out")
            }
            5 => {
                let answer = self.execute(&request, false, number);
                self.late.push(LateRequest { request, sent });
                Ok(answer)
            }
            6 => {
                self.execute(&request, false, number);
                Ok(self.execute(&request, true, number))
            }
            _ => Err(Fault::Refused("403".to_owned())),
        };
        let pending = &mut self.pending[at];
        pending.answer = Some(answer);
        pending.waker.wake_by_ref();
        Some(pending.host)
    }

    /// Executes one of the requests that no host waits for.
    pub fn advance_late(&mut self, random: &mut ChaCha8Rng) {
        if self.late.is_empty() {
            return;
        }
        let late = self.late.swap_remove(random.random_range(0..self.late.len()));
        let is_delete = matches!(late.request, Request::Delete(_));
        if is_delete || !self.is_over(late.sent) {
            self.execute(&late.request, true, 1);
        }
        if random.random_range(0..4) == 0 {
            self.late.push(late);
        }
    }

    /// Garbage collection: makes a floor, or deletes what the last one allows.
    pub fn collect(&mut self, random: &mut ChaCha8Rng) {
        let (checkpoint, made, count) = self.floor;
        if checkpoint > 0 && (self.now - made >= GRACE || self.bug == Bug::NoGrace) {
            let garbage = self.garbage(checkpoint);
            let sent = self.now;
            let deletions = garbage.into_iter().map(|key| LateRequest { request: Request::Delete(key), sent });
            self.late.extend(deletions);
        }
        let head = self.head();
        if head > checkpoint && random.random_range(0..2) == 0 {
            let number = random.random_range(checkpoint + 1..=head);
            let Some(checkpoint) = self.checkpoint_at(number) else {
                return self.violations.push(format!("the log has no commit {number}"));
            };
            let object = checkpoint.encode(&[]).expect("a checkpoint");
            self.put(Key::Checkpoint(number), &object, true);
            let floor = Floor { checkpoint: number, time: self.now };
            self.put(Key::Floor(count + 1), &floor.encode(&[]).expect("a floor"), false);
            self.floor = (number, self.now, count + 1);
        }
    }

    /// The tree at a commit, from the last floor or the first commit.
    pub fn checkpoint_at(&self, number: u64) -> Option<Checkpoint> {
        let mut tree = Tree::default();
        let mut hash = Hash([0; 32]);
        if self.floor.0 > 0 {
            let (object, _) = self.objects.get(&Key::Checkpoint(self.floor.0))?;
            let checkpoint = Checkpoint::decode(object).ok()?;
            (tree, hash) = (Tree::of(&checkpoint.tree).ok()?, checkpoint.hash);
        }
        for number in self.floor.0 + 1..=number {
            let (object, _) = self.objects.get(&Key::Log(number))?;
            let commit = Commit::decode(object).ok()?;
            if commit.parent != hash {
                return None;
            }
            s3::merge::validate(&tree, &commit.changes).ok()?;
            tree.apply(&commit.changes);
            hash = Hash::of(object);
        }
        Some(Checkpoint { number, hash, time: self.now, tree: tree.to_changes() })
    }

    fn garbage(&self, checkpoint: u64) -> Vec<Key> {
        let Some(Ok(kept)) = self.objects.get(&Key::Checkpoint(checkpoint)).map(|it| Checkpoint::decode(&it.0)) else {
            return Vec::new();
        };
        let mut needed = keys_of(&kept.tree);
        for number in checkpoint + 1..=self.head() {
            if let Some(Ok(commit)) = self.objects.get(&Key::Log(number)).map(|it| Commit::decode(&it.0)) {
                needed.extend(keys_of(&commit.changes));
            }
        }
        let is_old = |modified: i64| self.now - modified >= GRACE || self.bug == Bug::NoGrace;
        let garbage = self.objects.iter().filter(|(key, (_, modified))| {
            let is_below = match key {
                Key::Log(number) => (2..checkpoint).contains(number),
                Key::Checkpoint(number) => *number < checkpoint,
                Key::Blob(..) => is_old(*modified),
                Key::Floor(_) => false,
            };
            is_below && !needed.contains(key)
        });
        garbage.map(|(key, _)| *key).collect()
    }

    /// Lets keys be created again: the bucket was restored from a backup.
    pub fn forget_keys(&mut self) {
        self.created.clear();
    }

    /// The log as text.
    pub fn show(&self) -> String {
        let commits = self.objects.iter().filter(|(key, _)| matches!(key, Key::Log(_)));
        let lines = commits.filter_map(|(_, (object, _))| {
            let commit = Commit::decode(object).ok()?;
            let nodes = commit.changes.nodes.iter().map(|(id, node)| {
                let tokens = node.content().map(|content| tokens_in(&whole(content)));
                format!("  {:x}-{} {tokens:?}", id.writer, id.ino)
            });
            let names = commit.changes.names.iter().map(|((dir, name), to)| {
                let name = String::from_utf8_lossy(&name.0).into_owned();
                let to = to.map(|to| format!("{:x}-{}", to.writer, to.ino));
                format!("  {:x}-{}/{name} {to:?}", dir.writer, dir.ino)
            });
            let lines: Vec<String> = nodes.chain(names).collect();
            Some(format!("commit {} by {:x}\n{}", commit.number, commit.writer, lines.join("\n")))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Whether history has no beginning any more.
    pub fn has_floor(&self) -> bool {
        self.floor.0 > 0
    }
}

/// The objects that hold the chunks of files.
pub fn keys_of(changes: &Changes) -> BTreeSet<Key> {
    let contents = changes.nodes.values().filter_map(Node::content);
    let keys = contents.flat_map(|content| &content.chunks).filter_map(|chunk| match chunk.place {
        Place::Blob { salt } => Some(Key::Blob(chunk.hash, salt)),
        Place::Inline { commit, .. } => Some(Key::Log(commit)),
        Place::Hole | Place::Local => None,
    });
    keys.collect()
}

/// The future of an answer.
struct AnswerFuture {
    client: Client,
    request: Option<Request>,
    id: u64,
}

impl Future for AnswerFuture {
    type Output = Result<Answer, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.client.server.clone();
        let mut server = lock(&shared);
        if let Some(request) = self.request.take() {
            server.next += 1;
            self.id = server.next;
            let sent = server.now;
            if matches!(request, Request::Put(Key::Blob(..), _)) && server.bug == Bug::EarlyReference {
                server.late.push(LateRequest { request, sent });
                return Poll::Ready(Ok(Answer::Put(PutOutcome::Created)));
            }
            let pending = PendingRequest {
                id: self.id,
                host: self.client.host,
                request,
                sent,
                answer: None,
                waker: context.waker().clone(),
            };
            server.pending.push(pending);
            return Poll::Pending;
        }
        let at = server.pending.iter().position(|pending| pending.id == self.id);
        let at = at.expect("a request that waits");
        if server.pending[at].answer.is_some() {
            let answer = server.pending.swap_remove(at).answer;
            Poll::Ready(answer.expect("an answer"))
        } else {
            server.pending[at].waker = context.waker().clone();
            Poll::Pending
        }
    }
}

impl Drop for AnswerFuture {
    /// The request of a killed session may still be executed.
    fn drop(&mut self) {
        let shared = self.client.server.clone();
        let mut server = lock(&shared);
        if let Some(at) = server.pending.iter().position(|pending| pending.id == self.id) {
            let PendingRequest { request, sent, answer, .. } = server.pending.swap_remove(at);
            if answer.is_none() {
                server.late.push(LateRequest { request, sent });
            }
        }
    }
}

impl Client {
    /// The bucket for a host.
    pub fn new(server: &Arc<Mutex<Server>>, host: usize) -> Self {
        Self { server: server.clone(), host }
    }

    fn send(&self, request: Request) -> AnswerFuture {
        AnswerFuture { client: self.clone(), request: Some(request), id: 0 }
    }
}

impl Objects for Client {
    async fn put_new(&self, key: Key, body: Bytes) -> Result<PutOutcome, Fault> {
        match self.send(Request::Put(key, body)).await? {
            Answer::Put(put) => Ok(put),
            other => unreachable!("a PUT is answered by {other:?}"),
        }
    }

    async fn get(&self, key: Key, range: Option<Range<u64>>) -> Result<Option<Bytes>, Fault> {
        match self.send(Request::Get(key, range)).await? {
            Answer::Got(body) => Ok(body),
            other => unreachable!("a GET is answered by {other:?}"),
        }
    }

    async fn checkpoints(&self) -> Result<Vec<u64>, Fault> {
        match self.send(Request::Checkpoints).await? {
            Answer::Listed(numbers) => Ok(numbers),
            other => unreachable!("a listing is answered by {other:?}"),
        }
    }
}
