//! One history: some hosts, a bucket, and a scheduler that chooses each event by a seed. At the end all faults
//! end, and the properties are checked.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use s3::objects::{Checkpoint, Commit, Key, Record};
use s3::replica::ReplicaError;
use s3::session::{GRACE, SessionError};
use s3::tree::{Hash, Node, Place, Tree};

use crate::Bug;
use crate::files::{self, Files, JOURNAL, is_equal, show, tokens_in, tokens_of, whole};
use crate::host::{Action, Disk, Host, KILLED, TokenLog};
use crate::server::{Server, lock};

/// Hosts at most, snapshots included.
const HOSTS: usize = 4;

/// Counters of the events in a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Commits in the log.
    pub commits: u64,
    /// Requests that were executed.
    pub requests: u64,
    /// Killed sessions, in calls of the working copy or between them.
    pub kills: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Snapshots that went on as hosts.
    pub snapshots: u64,
    /// Histories in which garbage collection made a floor.
    pub floors: u64,
    /// Conflict names at the end.
    pub conflicts: u64,
    /// Files that could not be committed because their content was nowhere.
    pub missing: u64,
    /// Files that changed while they were read.
    pub restless: u64,
}

impl Counts {
    /// Adds another history's.
    pub fn add(&mut self, other: &Self) {
        self.commits += other.commits;
        self.requests += other.requests;
        self.kills += other.kills;
        self.cuts += other.cuts;
        self.snapshots += other.snapshots;
        self.floors += other.floors;
        self.conflicts += other.conflicts;
        self.missing += other.missing;
        self.restless += other.restless;
    }
}

struct History {
    random: ChaCha8Rng,
    server: Arc<Mutex<Server>>,
    known: Arc<Mutex<TokenLog>>,
    hosts: Vec<Host>,
    noise: Arc<AtomicU64>,
    writers: u64,
    bug: Bug,
    counts: Counts,
    /// The journal may have a line twice.
    may_repeat: bool,
    /// Of a thousand steps, those that are file operations.
    operations: usize,
    /// Files change while they are committed.
    is_busy: bool,
    is_verbose: bool,
}

/// Runs the history of a seed.
///
/// # Errors
/// The property that did not hold.
pub fn run(seed: u64, bug: Bug, is_verbose: bool) -> Result<Counts, String> {
    files::forget();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let collects = random.random_range(0..3) == 0 || matches!(bug, Bug::NoGrace | Bug::BlindClock);
    let trouble = [0, 30, 120, 400][random.random_range(0..4)];
    let hosts = random.random_range(2..=HOSTS);
    let server = Arc::new(Mutex::new(Server::new(bug, collects, 0)));
    let mut history = History {
        server,
        known: Arc::default(),
        hosts: (0..hosts).map(|number| Host::new(number, Disk::new(), bug)).collect(),
        noise: Arc::new(AtomicU64::new(seed)),
        writers: 0x100,
        bug,
        counts: Counts::default(),
        may_repeat: false,
        operations: [60, 150, 300][random.random_range(0..3)],
        is_busy: random.random_range(0..8) == 0,
        is_verbose,
        random,
    };
    history.begin()?;
    lock(&history.server).trouble = trouble;
    let steps = history.random.random_range(40..420);
    for _ in 0..steps {
        history.step()?;
    }
    history.heal()?;
    let checked = history.check();
    history.log(|| lock(&history.server).show());
    checked.map(|()| history.counts)
}

impl History {
    fn log(&self, what: impl FnOnce() -> String) {
        if self.is_verbose {
            println!("{}", what());
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end)
    }

    fn numbers(&mut self) -> [u32; 4] {
        std::array::from_fn(|_| self.random.random_range(0..1_000_000))
    }

    fn mount(&mut self, at: usize) {
        self.writers += 1;
        self.hosts[at].mount(self.writers);
        self.log(|| format!("host {at} mounts as {:x}", self.writers));
    }

    fn start(&mut self, at: usize, action: Action, fails: Option<(u32, bool)>) {
        self.log(|| format!("host {at} begins {action:?} {fails:?}"));
        let host = &mut self.hosts[at];
        host.start(action, &self.server, &self.known, &self.noise, fails);
    }

    /// Goes on with what a host does.
    fn poll(&mut self, at: usize) -> Result<(), String> {
        let was_mounted = self.hosts[at].is_mounted;
        let Some((action, outcome)) = self.hosts[at].poll(&self.known) else {
            return Ok(());
        };
        self.log(|| format!("host {at} ends {action:?}: {outcome:?}"));
        self.counts.kills += u64::from(was_mounted && !self.hosts[at].is_mounted);
        match outcome {
            Ok(committed) => {
                let committed = committed.unwrap_or_default();
                self.counts.missing += committed.missing.len() as u64;
                self.counts.restless += committed.restless;
            }
            Err(SessionError::Fault(_)) => {}
            Err(SessionError::Replica(ReplicaError { reason, .. })) if reason == KILLED => {}
            Err(error) => return Err(format!("host {at}, {action:?}: {error}")),
        }
        Ok(())
    }

    /// Runs one action on a healthy host to its end.
    fn finish(&mut self, at: usize, action: Action) -> Result<(), String> {
        self.start(at, action, None);
        self.poll(at)?;
        while !self.hosts[at].is_idle() {
            let answered = lock(&self.server).advance(&mut self.random);
            match answered {
                Some(host) => self.poll(host)?,
                None => return Err(format!("host {at}, {action:?}: waits for nothing")),
            }
        }
        Ok(())
    }

    /// The first host makes the journal, to which all append; or all hosts make one at once.
    fn begin(&mut self) -> Result<(), String> {
        let makers = match self.below(2) {
            0 => 1,
            _ => self.hosts.len(),
        };
        for at in 0..makers {
            self.mount(at);
            self.finish(at, Action::Join)?;
            lock(&self.hosts[at].disk).act(Files::append_to_journal);
        }
        (0..makers).try_for_each(|at| self.finish(at, Action::Commit))
    }

    fn step(&mut self) -> Result<(), String> {
        let at = self.below(self.hosts.len());
        lock(&self.server).now += self.random.random_range(1..50_000_000);
        if !self.hosts[at].is_mounted {
            self.mount(at);
        }
        let collects = lock(&self.server).collects;
        let step = self.below(if collects { 1100 } else { 1000 });
        match step {
            _ if step < self.operations => {
                let (how, numbers) = (self.below(4), self.numbers());
                self.log(|| format!("host {at} does {how} {numbers:?}"));
                lock(&self.hosts[at].disk).act(|files| match how {
                    0 => files.append_to_journal(),
                    _ => files.act(numbers),
                });
            }
            0..480 if self.hosts[at].is_idle() => {
                let actions = if self.hosts[at].is_joined {
                    &[
                        Action::Commit,
                        Action::Commit,
                        Action::Commit,
                        Action::Follow,
                        Action::Hydrate,
                        Action::Checkpoint,
                        Action::Glance,
                        Action::Verify,
                    ]
                } else {
                    &[Action::Join][..]
                };
                let action = actions[self.below(actions.len())];
                let fails = (self.below(12) == 0).then(|| (self.below(4) as u32, self.below(2) == 0));
                self.start(at, action, fails);
                self.poll(at)?;
            }
            0..900 => {
                let answered = lock(&self.server).advance(&mut self.random);
                if let Some(host) = answered {
                    if self.is_busy {
                        let [_, one, two, three] = self.numbers();
                        lock(&self.hosts[host].disk).act(|files| files.act([4, one % 2, two, three]));
                    }
                    self.poll(host)?;
                }
            }
            900..930 => lock(&self.server).advance_late(&mut self.random),
            930..945 => {
                let is_forced = self.below(2) == 0;
                self.hosts[at].sync(is_forced);
            }
            945..955 | 1080..1100 => lock(&self.hosts[at].disk).evict(),
            955..963 => {
                self.log(|| format!("host {at} is killed"));
                self.counts.kills += 1;
                self.hosts[at].kill();
            }
            963..967 => {
                self.log(|| format!("host {at} loses power"));
                self.counts.cuts += 1;
                self.may_repeat = true;
                let state = self.below(8);
                self.hosts[at].cut_power(state);
            }
            967..971 if self.hosts.len() < HOSTS => {
                self.log(|| format!("host {at} is copied"));
                self.counts.snapshots += 1;
                self.may_repeat = true;
                let disk = lock(&self.hosts[at].disk).clone();
                self.hosts.push(Host::new(self.hosts.len(), disk, self.bug));
            }
            971..975 => self.hosts[at].abandon(),
            1000..1060 => {
                self.log(|| "garbage collection".to_owned());
                lock(&self.server).collect(&mut self.random);
            }
            990..1000 | 1060..1080 => {
                let hours = [1, 5, 11, 13, 25, 100][self.below(6)];
                self.log(|| format!("{hours} hours pass"));
                lock(&self.server).now += hours * (GRACE / 24);
            }
            _ => {}
        }
        let violation = lock(&self.server).violations.pop();
        violation.map_or(Ok(()), Err)
    }

    /// The server is healthy, and every host commits and follows until nothing changes any more.
    fn heal(&mut self) -> Result<(), String> {
        self.log(|| "everything heals".to_owned());
        lock(&self.server).trouble = 0;
        for round in 0..30 {
            let before = lock(&self.server).head();
            for at in 0..self.hosts.len() {
                if round > 0 && self.below(2) == 0 {
                    lock(&self.server).advance_late(&mut self.random);
                }
                if !self.hosts[at].is_mounted {
                    self.mount(at);
                }
                while !self.hosts[at].is_idle() {
                    let answered = lock(&self.server).advance(&mut self.random);
                    match answered {
                        Some(host) => self.poll(host)?,
                        None => self.hosts[at].abandon(),
                    }
                }
                if !self.hosts[at].is_mounted {
                    self.mount(at);
                }
                if !self.hosts[at].is_joined {
                    self.finish(at, Action::Join)?;
                }
                self.finish(at, Action::Commit)?;
                self.finish(at, Action::Follow)?;
            }
            let mut heads = self.hosts.iter().map(|host| lock(&host.disk).head.number);
            if lock(&self.server).head() == before && heads.all(|head| head == before) {
                return Ok(());
            }
        }
        Err("the hosts do not come to rest".to_owned())
    }

    fn check(&mut self) -> Result<(), String> {
        if let Some(violation) = lock(&self.server).violations.pop() {
            return Err(violation);
        }
        self.check_trees()?;
        let tree = lock(&self.hosts[0].disk).base.clone();
        self.check_log(&tree)?;
        self.check_content(&tree)?;
        self.check_tokens(&tree)?;
        let server = lock(&self.server);
        self.counts.commits = server.head();
        self.counts.requests = server.executed;
        self.counts.floors = u64::from(server.has_floor());
        let names = tree.to_changes().names;
        let is_conflict = |name: &[u8]| name.windows(10).any(|part| part == b".conflict-");
        self.counts.conflicts = names.keys().filter(|(_, name)| is_conflict(&name.0)).count() as u64;
        Ok(())
    }

    /// All working copies are equal to each other and to the tree at the head, also to that of a new host.
    fn check_trees(&mut self) -> Result<(), String> {
        self.hosts.push(Host::new(self.hosts.len(), Disk::new(), self.bug));
        let new = self.hosts.len() - 1;
        self.mount(new);
        self.finish(new, Action::Join)?;
        let base = lock(&self.hosts[0].disk).base.clone();
        for host in &self.hosts {
            let disk = lock(&host.disk);
            if *disk.base != *base {
                return Err(format!("host {} has another base", host.number));
            }
            // Content that is lost everywhere stays on the host that changed it.
            if self.counts.missing == 0 && !is_equal(&disk.files.tree, &base) {
                let (files, base) = (show(&disk.files.tree), show(&base));
                return Err(format!("host {} differs from the log:\n{files}\n--\n{base}", host.number));
            }
            if self.counts.missing == 0 && !disk.is_clean() {
                return Err(format!("host {} has changes left", host.number));
            }
        }
        Ok(())
    }

    /// The log read from its beginning, or from every checkpoint, gives the tree.
    fn check_log(&self, tree: &Tree) -> Result<(), String> {
        let server = lock(&self.server);
        let head = server.head();
        let log = server.checkpoint_at(head).ok_or("the log cannot be read from its beginning")?;
        if Tree::of(&log.tree).as_ref() != Ok(tree) {
            return Err("the log gives another tree than the hosts have".to_owned());
        }
        for (key, (object, _)) in &server.objects {
            let Key::Checkpoint(number) = key else {
                continue;
            };
            let checkpoint = Checkpoint::decode(object).map_err(|error| error.to_string())?;
            let mut tree = Tree::of(&checkpoint.tree).map_err(|error| error.to_string())?;
            let tail = (number + 1..=head).map(|number| server.objects.get(&Key::Log(number)));
            let Some(tail) = tail.collect::<Option<Vec<_>>>() else {
                continue; // A late checkpoint below the floor.
            };
            for (object, _) in tail {
                tree.apply(&Commit::decode(object).map_err(|error| error.to_string())?.changes);
            }
            if Tree::of(&log.tree).as_ref() != Ok(&tree) {
                return Err(format!("{key:?} and its tail give another tree"));
            }
        }
        Ok(())
    }

    /// Every chunk of the tree is in the bucket.
    fn check_content(&self, tree: &Tree) -> Result<(), String> {
        let server = lock(&self.server);
        let contents = tree.nodes().filter_map(|(_, node)| node.content());
        for chunk in contents.flat_map(|content| &content.chunks) {
            let length = chunk.length as usize;
            let (key, start) = match chunk.place {
                Place::Blob { salt } => (Key::Blob(chunk.hash, salt), 0),
                Place::Inline { commit, offset } => (Key::Log(commit), 8 + offset as usize),
                place => return Err(format!("the log has a chunk at {place:?}")),
            };
            let bytes = server.objects.get(&key).and_then(|(body, _)| body.get(start..start + length));
            if bytes.map(Hash::of) != Some(chunk.hash) {
                return Err(format!("{key:?} is gone, but the tree refers to it"));
            }
        }
        Ok(())
    }

    /// Checks that every acknowledged token is there, unless an operation destroyed it, and every appended line once.
    fn check_tokens(&self, tree: &Tree) -> Result<(), String> {
        let known = lock(&self.known);
        let mut destroyed = known.destroyed.clone();
        let mut appended = BTreeSet::new();
        for host in &self.hosts {
            let disk = lock(&host.disk);
            destroyed.extend(disk.files.destroyed.iter().cloned());
            appended.extend(disk.files.appended.iter().cloned());
        }
        let there = tokens_of(tree);
        let lost = known.acknowledged.difference(&there).filter(|token| !destroyed.contains(*token));
        let lost: Vec<&String> = lost.collect();
        if !lost.is_empty() {
            return Err(format!("acknowledged and lost: {lost:?}; there is:\n{}", show(tree)));
        }
        let journal = tree.find(JOURNAL.as_bytes()).and_then(|id| tree.node(id)).and_then(Node::content);
        let lines = tokens_in(&whole(journal.ok_or("the journal is gone")?));
        for line in &appended {
            let times = lines.iter().filter(|there| *there == line).count();
            if times == 0 || times > 1 && !self.may_repeat {
                return Err(format!("line {line} is in the journal {times} times: {lines:?}"));
            }
        }
        let conflict = b"journal.conflict-";
        let names = tree.to_changes().names;
        if names.keys().any(|(_, name)| name.0.starts_with(conflict)) {
            return Err("appends gave a conflict".to_owned());
        }
        Ok(())
    }
}
