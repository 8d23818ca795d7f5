//! Damage on the disk, under every store that keeps its files in SQLite's tables or in a log of operations: a damaged byte is
//! never served as good, and never hides what comes after it. `CTXBENCH_DAMAGES` is how many damages each kind of file gets.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use agent_memory::AgentMemory;
use fuse::store::{
    Allocation, Attr, Caller, Change, Errno, Ino, Kind, NewNode, ROOT, RenameMode, Result, Seek, Store, Timestamp,
    XattrMode,
};
use llm::HistoryStore;
use llm::history::HistoryOptions;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use s3::config::S3Config;
use s3_store::{OpenOptions, S3Store};
use servers::Quirk;
use sqlite::{HEAD, SqliteStore, check, go_on_without_log};

use crate::hosts::{Service, config_of, copy_cache};
use crate::model::{asker, nobody};

const OWNER: Caller = Caller { uid: 0, gid: 0, now: Timestamp(1_700_000_000_000_000_000) };

/// A file of its owner.
const FILE: NewNode<'static> = NewNode { kind: Kind::File, permissions: 0o600, rdev: 0, target: b"" };

/// A store that is open.
trait OpenStore {
    /// What answers from the files that are damaged.
    fn store(&self) -> &dyn Store;

    /// What changes go through.
    fn changed(&self) -> &dyn Store {
        self.store()
    }
}

impl<T: Store> OpenStore for T {
    fn store(&self) -> &dyn Store {
        self
    }
}

/// A history whose content is that of its log: a model's answers prove nothing about it.
struct LoggedHistory(HistoryStore);

impl OpenStore for LoggedHistory {
    fn store(&self) -> &dyn Store {
        self.0.reference()
    }

    fn changed(&self) -> &dyn Store {
        &self.0
    }
}

/// An open store, or why it cannot be opened.
type OpenResult = std::result::Result<Box<dyn OpenStore>, String>;

/// What opens a store.
type Open<'a> = &'a (dyn Fn(&Path) -> OpenResult + Sync);

fn opened<T: OpenStore + 'static, E: ToString>(opened: std::result::Result<T, E>) -> OpenResult {
    opened.map(|store| Box::new(store) as Box<dyn OpenStore>).map_err(|error| error.to_string())
}

fn open_sqlite(path: &Path) -> OpenResult {
    opened(SqliteStore::open(path, &OWNER))
}

fn open_agent_memory(path: &Path) -> OpenResult {
    opened(AgentMemory::open(path, &OWNER, None))
}

fn open_history(path: &Path) -> OpenResult {
    let (asker, options) = (asker(nobody(), None), HistoryOptions::default());
    opened(HistoryStore::open(asker, options, Some(path), &OWNER).map(LoggedHistory))
}

/// Opens a cache with `config`; where `is_away`, its server is, as after the damage: what the bucket has cannot replace it.
fn open_s3(config: S3Config, path: &Path, is_away: bool) -> OpenResult {
    let options = OpenOptions { allow_offline: is_away, ..OpenOptions::default() };
    opened(S3Store::open(config, path, &OWNER, options))
}

fn damages() -> u32 {
    let asked = std::env::var("CTXBENCH_DAMAGES").ok();
    asked.map_or(25, |count| count.parse().unwrap())
}

/// How many damages are tried side by side: a cache whose server is away mostly waits for it.
const THREADS: usize = 4;

/// How long a damaged store may take to be checked, opened and read.
const PATIENCE: Duration = Duration::from_secs(120);

/// Which damages a check must find.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    /// All.
    All,
    /// Those that have an effect.
    Effects,
    /// There is no check: opening the store reads all of it.
    Absent,
}

/// Everything of one node.
#[derive(Debug)]
struct Node {
    attr: Attr,
    names: BTreeMap<Vec<u8>, Node>,
    bytes: Vec<u8>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The attributes without those that the underlying file system decides.
fn stable(attr: Attr) -> Attr {
    Attr { blocks: 0, ..attr }
}

fn listed(store: &dyn Store, dir: Ino, with_attr: bool) -> (Vec<(Vec<u8>, Ino)>, Result<()>) {
    let mut names = Vec::new();
    let result = store.readdir(dir, 0, with_attr, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino));
        ControlFlow::Continue(())
    });
    (names, result)
}

fn bytes_of(store: &dyn Store, ino: Ino, offset: u64, size: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    store.read(ino, offset, size as usize, &mut bytes)?;
    Ok(bytes)
}

fn snapshot(store: &dyn Store, ino: Ino) -> Node {
    let attr = store.getattr(ino).unwrap();
    let mut node = Node {
        attr: stable(attr),
        names: BTreeMap::new(),
        bytes: Vec::new(),
        target: Vec::new(),
        xattrs: BTreeMap::new(),
    };
    for name in store.listxattr(ino).unwrap() {
        let value = store.getxattr(ino, &name).unwrap();
        node.xattrs.insert(name, value);
    }
    match attr.kind {
        Kind::Directory => {
            let (names, result) = listed(store, ino, true);
            result.unwrap();
            for (name, child) in names {
                node.names.insert(name, snapshot(store, child));
            }
        }
        Kind::File => node.bytes = bytes_of(store, ino, 0, attr.size).unwrap(),
        Kind::Symlink => node.target = store.readlink(ino).unwrap(),
        _ => {}
    }
    node
}

/// Compares a damaged store with what it was.
struct Comparison<'a> {
    store: &'a dyn Store,
    /// Calls that failed with `EIO`.
    refused: u32,
    /// Answers that are wrong.
    wrong: Vec<String>,
}

impl Comparison<'_> {
    /// A right answer; nothing if it is `EIO`, or wrong.
    fn right<T>(&mut self, what: &str, answer: Result<T>, is_right: impl FnOnce(&T) -> bool) -> Option<T> {
        match answer {
            Ok(answer) if is_right(&answer) => return Some(answer),
            Ok(_) => self.wrong.push(format!("{what} is wrong")),
            Err(error) if error.errno == Errno::IO => self.refused += 1,
            Err(error) => self.wrong.push(format!("{what}: {error}")),
        }
        None
    }

    fn node(&mut self, path: &str, ino: Ino, was: &Node) {
        let attr = self.store.getattr(ino);
        self.right(&format!("attributes of {path}"), attr, |attr| stable(*attr) == was.attr);
        let xattrs = self.store.listxattr(ino).map(|mut names| {
            names.sort();
            names
        });
        self.right(&format!("xattrs of {path}"), xattrs, |names| names.iter().eq(was.xattrs.keys()));
        for (name, value) in &was.xattrs {
            let found = self.store.getxattr(ino, name);
            self.right(&format!("an xattr of {path}"), found, |found| found == value);
        }
        match was.attr.kind {
            Kind::Directory => self.directory(path, ino, was),
            Kind::File => self.file(path, ino, &was.bytes),
            Kind::Symlink => {
                let target = self.store.readlink(ino);
                self.right(&format!("target of {path}"), target, |target| *target == was.target);
            }
            _ => {}
        }
    }

    fn directory(&mut self, path: &str, ino: Ino, was: &Node) {
        for with_attr in [false, true] {
            let (names, result) = listed(self.store, ino, with_attr);
            let is_known =
                |(name, child): &(Vec<u8>, Ino)| was.names.get(name).is_some_and(|node| node.attr.ino == *child);
            if !names.iter().all(is_known) {
                self.wrong.push(format!("{path} has another name"));
            }
            let is_whole = names.len() == was.names.len();
            self.right(&format!("names of {path}"), result, |()| is_whole);
        }
        let missing = self.store.lookup(ino, b"never there");
        if !missing.is_err_and(|error| matches!(error.errno, Errno::NOENT | Errno::IO)) {
            self.wrong.push(format!("{path} has a name that was never there"));
        }
        for (name, child) in &was.names {
            let path = format!("{path}/{}", String::from_utf8_lossy(name));
            let found = self.store.lookup(ino, name);
            let found = self.right(&path, found, |attr| stable(*attr) == child.attr);
            if let Some(attr) = found {
                self.node(&path, attr.ino, child);
            }
        }
    }

    fn file(&mut self, path: &str, ino: Ino, was: &[u8]) {
        let size = was.len() as u64;
        for offset in (0..size).step_by(100_000) {
            let bytes = bytes_of(self.store, ino, offset, 100_000);
            let upto = was.len().min(offset as usize + 100_000);
            self.right(&format!("{path} at {offset}"), bytes, |bytes| **bytes == was[offset as usize..upto]);
        }
        // As `cp` does it: what lies in a hole is not read.
        let mut at = 0;
        while at < size {
            let data = match self.store.seek(ino, at, Seek::Data) {
                Err(error) if error.errno == Errno::NXIO => Ok(size),
                found => found,
            };
            let is_zeros = |data: &u64| was[at as usize..*data as usize].iter().all(|byte| *byte == 0);
            let Some(data) = self.right(&format!("data of {path} from {at}"), data, is_zeros) else {
                return;
            };
            if data == size {
                return;
            }
            let hole = self.store.seek(ino, data, Seek::Hole);
            match self.right(&format!("hole of {path} from {data}"), hole, |hole| *hole > data) {
                Some(hole) => at = hole,
                None => return,
            }
        }
    }
}

fn random_bytes(dice: &mut ChaCha8Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| dice.random_range(b' '..b'~')).collect()
}

/// Makes files of all kinds, in an order that a seed decides.
fn fill(store: &dyn Store, dice: &mut ChaCha8Rng) {
    let made = |parent, name: &str, kind, target: &[u8]| {
        let node = NewNode { kind, permissions: 0o750, rdev: 0, target };
        store.create(&OWNER, parent, name.as_bytes(), &node).unwrap().ino
    };
    let mut dirs = vec![ROOT];
    for depth in 0..3 {
        dirs.push(made(dirs[depth], &format!("directory {depth}"), Kind::Directory, b""));
    }
    for number in 0..80 {
        let parent = dirs[number % dirs.len()];
        let ino = made(parent, &format!("note {number} with a longer name.md"), Kind::File, b"");
        let length = [0, 10, 900, 5_000, 40_000][dice.random_range(0..5)];
        store.write(&OWNER, ino, 0, &random_bytes(dice, length)).unwrap();
        if number % 4 == 0 {
            let change = Change {
                uid: Some(number as u32),
                permissions: Some(0o400 + number as u16),
                mtime: Some(Timestamp(1_000_000 * number as i64)),
                ..Change::default()
            };
            store.setattr(&OWNER, ino, &change).unwrap();
            let value = random_bytes(dice, 30);
            store.setxattr(&OWNER, ino, b"user.kind", &value, XattrMode::Set).unwrap();
        }
        if number % 10 == 0 {
            made(parent, &format!("link {number}"), Kind::Symlink, format!("target {number}").as_bytes());
            store.link(&OWNER, ino, ROOT, format!("second {number}").as_bytes()).unwrap();
        }
    }
    for (number, length) in [1, 1_000, 100_000, 300_000].into_iter().enumerate() {
        let ino = made(dirs[1], &format!("long {number}"), Kind::File, b"");
        let bytes = random_bytes(dice, HEAD as usize + length);
        store.write(&OWNER, ino, 0, &bytes).unwrap();
    }
    // With holes in the tail, and one at its end.
    let ino = made(dirs[1], "sparse", Kind::File, b"");
    store.write(&OWNER, ino, 10, b"head").unwrap();
    store.write(&OWNER, ino, HEAD + 300_000, b"tail").unwrap();
    store.write(&OWNER, ino, HEAD + 100_000, &random_bytes(dice, 70_000)).unwrap();
    store.fallocate(&OWNER, ino, Allocation::PunchHole, HEAD + 120_000, 40_000).unwrap();
    let longer = Change { size: Some(HEAD + 600_000), ..Change::default() };
    store.setattr(&OWNER, ino, &longer).unwrap();
}

/// Changes as a mount makes them that is killed then: some committed, the last ones only recorded.
fn go_on(store: &dyn Store, dice: &mut ChaCha8Rng, round: u32) {
    for number in 0..15 {
        let name = format!("round {round} file {number}");
        let ino = store.create(&OWNER, ROOT, name.as_bytes(), &FILE).unwrap().ino;
        store.write(&OWNER, ino, 0, &random_bytes(dice, 100 * number)).unwrap();
        if number % 5 == 4 {
            // Committed at once.
            store.write(&OWNER, ino, 0, &random_bytes(dice, 140_000)).unwrap();
        }
        if number % 5 == 3 {
            let to = format!("round {round} renamed {number}");
            let (from, to) = ((ROOT, name.as_bytes()), (ROOT, to.as_bytes()));
            store.rename(&OWNER, from, to, RenameMode::Replace).unwrap();
        }
    }
}

/// Writes a long file, changes a part of it, and truncates it.
fn change_tail(store: &dyn Store, dice: &mut ChaCha8Rng, round: u32) {
    let name = format!("round {round} long");
    let ino = store.create(&OWNER, ROOT, name.as_bytes(), &FILE).unwrap().ino;
    let mut write = |offset, length| {
        let bytes = random_bytes(dice, length);
        store.write(&OWNER, ino, offset, &bytes).unwrap();
    };
    write(0, HEAD as usize + 200_000);
    write(HEAD + 50_000, 10_000);
    let shorter = Change { size: Some(HEAD + 150_000), ..Change::default() };
    store.setattr(&OWNER, ino, &shorter).unwrap();
}

/// A store's files, and what it held.
struct Fixture {
    dir: tempfile::TempDir,
    was: Node,
}

impl Fixture {
    fn path(&self) -> PathBuf {
        self.dir.path().join("a.db")
    }

    /// After an orderly end.
    fn clean(open: Open<'_>) -> Self {
        Self::made(open, open)
    }

    /// After an orderly end of a store that `make` opened; `open` opens it from then on.
    fn made(make: Open<'_>, open: Open<'_>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let mut dice = ChaCha8Rng::seed_from_u64(1);
        let made = make(&path).unwrap();
        fill(made.changed(), &mut dice);
        drop(made);
        let was = snapshot(open(&path).unwrap().store(), ROOT);
        Self { dir, was }
    }

    /// After a kill of a mount of `clean`.
    fn killed(clean: &Self, open: Open<'_>) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(2);
        let opened = open(&clean.path()).unwrap();
        for round in 0..20 {
            go_on(opened.changed(), &mut dice, round);
            change_tail(opened.changed(), &mut dice, round);
            opened.changed().fsync(ROOT, false).unwrap();
            std::thread::sleep(Duration::from_millis(250));
            go_on(opened.changed(), &mut dice, round + 100);
            let dir = tempfile::tempdir().unwrap();
            copy_cache(&clean.path(), &dir.path().join("a.db"));
            let fixture = Self { dir, was: snapshot(opened.store(), ROOT) };
            // A commit in between makes a copy of two moments.
            if fixture.is_of_one_moment(open) {
                return fixture;
            }
        }
        panic!("no copy is of one moment");
    }

    fn is_of_one_moment(&self, open: Open<'_>) -> bool {
        let (_dir, path) = self.copy();
        // A log of operations has no redo log.
        let redo = std::fs::read(with(&path, "-redo")).unwrap_or(vec![1; 65]);
        let Ok(opened) = open(&path) else {
            return false;
        };
        let mut comparison = Comparison { store: opened.store(), refused: 0, wrong: Vec::new() };
        comparison.node("", ROOT, &self.was);
        comparison.wrong.is_empty() && comparison.refused == 0 && redo[64..].iter().any(|byte| *byte > 0)
    }

    fn copy(&self) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        copy_cache(&self.path(), &path);
        (dir, path)
    }
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Damages a file, in one of the ways of disks and of people.
fn damage(file: &Path, dice: &mut ChaCha8Rng) -> String {
    let whole = std::fs::read(file).unwrap();
    // What follows is reserved, and never read.
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    loop {
        let mut bytes = whole.clone();
        let range = |dice: &mut ChaCha8Rng, length: usize| {
            let at = dice.random_range(0..used) / length * length;
            at..(at + length).min(whole.len())
        };
        let what = match dice.random_range(0..9) {
            0 | 1 => {
                let at = dice.random_range(0..used);
                bytes[at] ^= 1 << dice.random_range(0..8);
                format!("a bit of byte {at}")
            }
            2 => {
                let at = dice.random_range(0..used);
                bytes[at] = dice.random_range(0..=255);
                format!("byte {at}")
            }
            how @ (3 | 4) => {
                let range = range(dice, [512, 4096][how - 3]);
                bytes[range.clone()].fill(0);
                format!("zeros in {range:?}")
            }
            5 => {
                let at = dice.random_range(0..used);
                bytes.truncate(at);
                format!("cut at {at}")
            }
            how => {
                let length = [512, 4096, 32 << 10][how - 6];
                let (one, two) = (range(dice, length), range(dice, length));
                if one.len() != two.len() {
                    continue;
                }
                let (first, second) = (whole[one.clone()].to_vec(), whole[two.clone()].to_vec());
                bytes[one.clone()].copy_from_slice(&second);
                bytes[two.clone()].copy_from_slice(&first);
                format!("swapped {one:?} and {two:?}")
            }
        };
        if bytes != whole {
            std::fs::write(file, bytes).unwrap();
            return format!("{}: {what}", file.file_name().unwrap().display());
        }
    }
}

/// The files of one kind.
fn files(path: &Path, kind: &str) -> Vec<PathBuf> {
    let file = with(path, kind);
    if file.is_dir() {
        let entries = std::fs::read_dir(file).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.metadata().unwrap().len() > 0);
        files.sort();
        files
    } else {
        vec![file]
    }
}

/// What became of the damages of one kind of file.
#[derive(Debug, Default)]
struct Tally {
    refused_mounts: u32,
    with_errors: u32,
    without_effect: u32,
    /// Damages that changed an answer, that a check did not find, or that ended in a panic.
    wrong: Vec<String>,
}

/// Damages a copy of the files by this number, and tries what is left of it.
fn damage_one(fixture: &Fixture, open: Open<'_>, kind: &str, must_find: Check, number: u32, tally: &Mutex<Tally>) {
    let mut dice = ChaCha8Rng::seed_from_u64(1000 + u64::from(number));
    let (_dir, path) = fixture.copy();
    let files = files(&path, kind);
    let what = damage(&files[dice.random_range(0..files.len())], &mut dice);
    let case = catch_unwind(AssertUnwindSafe(|| {
        let is_found = must_find == Check::Absent || check(&path).map_or(true, |checked| !checked.problems.is_empty());
        let (mut wrong, refused) = match open(&path) {
            Err(_) => {
                tally.lock().unwrap().refused_mounts += 1;
                (Vec::new(), 1)
            }
            Ok(opened) => {
                let mut comparison = Comparison { store: opened.store(), refused: 0, wrong: Vec::new() };
                comparison.node("", ROOT, &fixture.was);
                let mut tally = tally.lock().unwrap();
                match comparison.refused {
                    0 => tally.without_effect += 1,
                    _ => tally.with_errors += 1,
                }
                (comparison.wrong, comparison.refused)
            }
        };
        if !is_found && (must_find == Check::All || refused > 0) {
            wrong.push("a check does not find it".to_owned());
        }
        wrong
    }));
    let wrong = match &case {
        Ok(wrong) => wrong.first().map(String::as_str),
        Err(_) => Some("a panic"),
    };
    if let Some(wrong) = wrong {
        tally.lock().unwrap().wrong.push(format!("damage {number}, {what}: {wrong}"));
    }
}

/// Damages a copy of the files again and again. A damage that changes an answer must be an error, and found by a check.
fn withstand(fixture: &Fixture, open: Open<'_>, kind: &str, must_find: Check) {
    let (tally, next, began) = (Mutex::default(), AtomicU32::new(0), Instant::now());
    // By thread: the damage that it tries.
    let tried: [Mutex<Option<(u32, Instant)>>; THREADS] = Default::default();
    std::thread::scope(|threads| {
        let work = |at: &Mutex<Option<(u32, Instant)>>| {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= damages() {
                    break;
                }
                *at.lock().unwrap() = Some((number, Instant::now()));
                damage_one(fixture, open, kind, must_find, number, &tally);
            }
            *at.lock().unwrap() = None;
        };
        let workers: Vec<_> = tried.iter().map(|at| threads.spawn(move || work(at))).collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
            for (number, since) in tried.iter().filter_map(|at| *at.lock().unwrap()) {
                if since.elapsed() > PATIENCE {
                    eprintln!("damage {number} of file {kind:?}: no end after {PATIENCE:?}");
                    // The thread cannot be ended.
                    std::process::exit(101);
                }
            }
        }
    });
    let Tally { refused_mounts, with_errors, without_effect, wrong } = tally.into_inner().unwrap();
    eprintln!(
        "{kind:?}: {} damages in {:?}, {refused_mounts} mounts refused, {with_errors} with EIO, {without_effect} without effect",
        damages(),
        began.elapsed()
    );
    assert_eq!(wrong, Vec::<String>::new(), "of file {kind:?}");
}

/// Damages each kind of file of a store after an orderly end, which `clean` is, and after a kill.
fn withstand_all(clean: &Fixture, open: Open<'_>) {
    assert_eq!(check(&clean.path()).unwrap().problems, Vec::<String>::new());
    withstand(clean, open, "", Check::All);
    withstand(clean, open, "-tails", Check::All);
    let killed = Fixture::killed(clean, open);
    for kind in ["-wal", "-redo", "", "-tails", "-sums"] {
        withstand(&killed, open, kind, Check::Effects);
    }
}

#[test]
fn sqlite_serves_no_damaged_byte_name_or_attribute() {
    withstand_all(&Fixture::clean(&open_sqlite), &open_sqlite);
}

#[test]
fn agent_memory_serves_no_damaged_byte_name_or_attribute() {
    withstand_all(&Fixture::clean(&open_agent_memory), &open_agent_memory);
}

#[test]
fn a_cache_of_a_bucket_serves_no_damaged_byte_name_or_attribute() {
    let service = Service::start(Quirk::None);
    let config = config_of(&service.access, "agent", "writer");
    let make = |path: &Path| open_s3(config.clone(), path, false);
    let away = |path: &Path| open_s3(config.clone(), path, true);
    // The last flush of `make` uploads all of it.
    let sent = Fixture::made(&make, &away);
    drop(service);
    withstand_all(&sent, &away);
}

#[test]
fn a_history_serves_no_damaged_byte_name_or_attribute() {
    let clean = Fixture::clean(&open_history);
    withstand(&clean, &open_history, "", Check::Absent);
    let killed = Fixture::killed(&clean, &open_history);
    for kind in ["", "-wal", "-count"] {
        withstand(&killed, &open_history, kind, Check::Absent);
    }
}

#[test]
fn a_store_whose_redo_log_is_damaged_goes_on_with_what_was_before_the_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let store = SqliteStore::open(&path, &OWNER).unwrap();
    // If all or a part of a round is committed before the copy, the next round has other names.
    let damaged = |round: u32| {
        let names: Vec<String> = (0..12).map(|number| format!("note {number} of {round}.md")).collect();
        for name in &names {
            store.create(&OWNER, ROOT, name.as_bytes(), &FILE).unwrap();
        }
        store.sync().unwrap();
        let copy = dir.path().join(format!("{round}/b.db"));
        copy_cache(&path, &copy);
        let mut redo = std::fs::read(with(&copy, "-redo")).unwrap();
        let at = |name: &str| redo.windows(name.len()).position(|part| part == name.as_bytes());
        let (_, at) = (at(&names[0])?, at(&names[7])?);
        redo[at] ^= 1;
        std::fs::write(with(&copy, "-redo"), redo).unwrap();
        let error = SqliteStore::open(&copy, &OWNER).err()?;
        Some((names, copy, error.to_string()))
    };
    let (names, copy, error) = (0..100).find_map(damaged).expect("a redo log that is needed");
    drop(store);
    assert!(error.contains("b.db-redo is damaged"), "{error}");
    let found = check(&copy).unwrap().problems.join("\n");
    assert!(found.contains("b.db-redo is damaged"), "{found}");
    assert!(go_on_without_log(&copy).unwrap());
    let store = SqliteStore::open(&copy, &OWNER).unwrap();
    let left = |name: &String| store.lookup(ROOT, name.as_bytes()).is_ok();
    let left: Vec<bool> = names.iter().map(left).collect();
    assert_eq!(left, (0..12).map(|number| number < 7).collect::<Vec<_>>());
    drop(store);
    assert_eq!(check(&copy).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_check_names_the_paths_that_are_lost() {
    let fixture = Fixture::clean(&open_sqlite);
    let (_dir, path) = fixture.copy();
    let tail = files(&path, "-tails").pop().unwrap();
    let mut bytes = std::fs::read(&tail).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&tail, bytes).unwrap();
    let found = check(&path).unwrap().problems.join("\n");
    assert!(found.contains("/directory 0/sparse: bytes 262144 to "), "{found}");
    // The page that holds a name.
    let (_dir, path) = fixture.copy();
    let mut bytes = std::fs::read(&path).unwrap();
    let name = b"note 41 with a longer name.md";
    let at = bytes.windows(name.len()).position(|part| part == name).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let found = check(&path).unwrap().problems.join("\n");
    assert!(found.contains(&format!("a page of the database is damaged: {}", at / 4096 + 1)), "{found}");
    assert!(found.contains("lost: names in /"), "{found}");
}

#[test]
fn a_short_tail_is_an_error_however_it_is_used() {
    let fixture = Fixture::clean(&open_sqlite);
    let (_dir, path) = fixture.copy();
    let ino = {
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let dir = store.lookup(ROOT, b"directory 0").unwrap().ino;
        store.lookup(dir, b"long 3").unwrap().ino
    };
    let tail = with(&path, "-tails").join(ino.to_string());
    let file = std::fs::File::options().write(true).open(tail).unwrap();
    file.set_len(150_000).unwrap();
    let store = SqliteStore::open(&path, &OWNER).unwrap();
    let eio = |result: Result<()>| assert_eq!(result.unwrap_err().errno, Errno::IO);
    eio(bytes_of(&store, ino, HEAD + 149_990, 20).map(|_| ()));
    eio(store.seek(ino, HEAD, Seek::Data).map(|_| ()));
    eio(store.seek(ino, HEAD, Seek::Hole).map(|_| ()));
    eio(store.write(&OWNER, ino, HEAD + 300_000, b"more"));
    let size = |size| Change { size: Some(size), ..Change::default() };
    eio(store.setattr(&OWNER, ino, &size(HEAD + 900_000)).map(|_| ()));
    // What is cut off need not be there.
    store.setattr(&OWNER, ino, &size(0)).unwrap();
    store.write(&OWNER, ino, HEAD, b"new").unwrap();
    assert_eq!(bytes_of(&store, ino, HEAD, 10).unwrap(), b"new");
}

#[test]
fn a_tail_that_a_killed_mount_has_changed_is_not_reported_as_damage() {
    let fixture = Fixture::clean(&open_sqlite);
    let (_dir, path) = fixture.copy();
    let store = SqliteStore::open(&path, &OWNER).unwrap();
    let dir = store.lookup(ROOT, b"directory 0").unwrap().ino;
    let ino = store.lookup(dir, b"long 3").unwrap().ino;
    store.write(&OWNER, ino, HEAD + 1_000, b"changed").unwrap();
    let (_other, copy) = {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("a.db");
        copy_cache(&path, &copy);
        (dir, copy)
    };
    // Without the checksum file, bytes of a write whose call has not returned may be there, too.
    std::fs::remove_file(with(&copy, "-sums")).unwrap();
    let tail = with(&copy, "-tails").join(ino.to_string());
    let mut bytes = std::fs::read(&tail).unwrap();
    bytes[200_000..200_010].fill(b'x');
    std::fs::write(&tail, bytes).unwrap();
    assert_eq!(check(&copy).unwrap().problems, Vec::<String>::new());
    let again = SqliteStore::open(&copy, &OWNER).unwrap();
    assert_eq!(bytes_of(&again, ino, HEAD + 1_000, 7).unwrap(), b"changed");
    assert_eq!(bytes_of(&again, ino, HEAD + 200_000, 10).unwrap(), [b'x'; 10]);
    drop(again);
    // From its orderly end on, it has checksums again.
    let mut bytes = std::fs::read(&tail).unwrap();
    bytes[200_003] = b'y';
    std::fs::write(&tail, bytes).unwrap();
    assert_ne!(check(&copy).unwrap().problems, Vec::<String>::new());
    let again = SqliteStore::open(&copy, &OWNER).unwrap();
    let error = bytes_of(&again, ino, HEAD + 200_000, 10).unwrap_err();
    assert_eq!(error.errno, Errno::IO);
    assert_eq!(bytes_of(&again, ino, HEAD + 1_000, 7).unwrap(), b"changed");
}

#[test]
fn a_row_whose_pages_are_of_two_states_is_damage_although_each_page_is_whole() {
    let fixture = Fixture::clean(&open_sqlite);
    let (_dir, path) = fixture.copy();
    let before = std::fs::read(&path).unwrap();
    let ino = {
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let dir = store.lookup(ROOT, b"directory 0").unwrap().ino;
        let ino = store.lookup(dir, b"long 2").unwrap().ino;
        let mut dice = ChaCha8Rng::seed_from_u64(3);
        let bytes = random_bytes(&mut dice, HEAD as usize);
        store.write(&OWNER, ino, 0, &bytes).unwrap();
        ino
    };
    let after = std::fs::read(&path).unwrap();
    let was = |page: usize| before.get(page * 4096..(page + 1) * 4096);
    let pages = after.chunks(4096).enumerate();
    let changed = pages.filter(|(page, bytes)| was(*page).is_some_and(|was| was != *bytes));
    let mut refused = 0;
    // As a checkpoint leaves them that was killed, and whose log was removed.
    for (page, _) in changed.skip(20).step_by(5) {
        let mut mixed = after.clone();
        mixed[page * 4096..(page + 1) * 4096].copy_from_slice(was(page).unwrap());
        std::fs::write(&path, mixed).unwrap();
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let read = bytes_of(&store, ino, 0, HEAD);
        refused += u32::from(read.is_err_and(|error| error.errno == Errno::IO));
    }
    assert!(refused >= 5, "{refused} pages");
}

#[test]
fn a_damaged_file_can_be_removed_and_the_store_goes_on() {
    let fixture = Fixture::clean(&open_sqlite);
    let (_dir, path) = fixture.copy();
    let (parent, name, ino) = {
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let dir = store.lookup(ROOT, b"directory 0").unwrap().ino;
        (dir, b"long 2", store.lookup(dir, b"long 2").unwrap().ino)
    };
    let was = bytes_of(&SqliteStore::open(&path, &OWNER).unwrap(), ino, 0, HEAD).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // An overflow page of its content.
    let part = &was[60_000..60_100];
    let at = bytes.windows(100).position(|found| found == part).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    for is_read_first in [true, false] {
        let copy = path.with_file_name("c.db");
        copy_cache(&path, &copy);
        let store = SqliteStore::open(&copy, &OWNER).unwrap();
        if is_read_first {
            let error = bytes_of(&store, ino, 0, HEAD).unwrap_err();
            assert_eq!(error.errno, Errno::IO);
        }
        assert_eq!(store.unlink(&OWNER, parent, name).unwrap(), Some(ino));
        store.reclaim(ino).unwrap();
        store.create(&OWNER, ROOT, b"later", &FILE).unwrap();
        store.sync().unwrap();
        drop(store);
        let store = SqliteStore::open(&copy, &OWNER).unwrap();
        store.lookup(ROOT, b"later").unwrap();
        assert_eq!(store.lookup(parent, name).unwrap_err().errno, Errno::NOENT);
        store.create(&OWNER, ROOT, b"last", &FILE).unwrap();
        drop(store);
        SqliteStore::open(&copy, &OWNER).unwrap().lookup(ROOT, b"last").unwrap();
        std::fs::remove_dir_all(with(&copy, "-tails")).unwrap();
    }
}
