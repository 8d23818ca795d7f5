//! Agent memory through its store: index, privacy, recall, requests and embeddings.

use crate::common;
mod corpora;
mod index;
mod meaning;
mod places;
mod recall;
mod requests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use agent_memory::AgentMemory;
use common::{caller, create, errno, has, node, read, size_change};
use fuse::store::{Caller, Errno, Ino, Kind, ROOT, RenameMode, Store, Timestamp, XattrMode};

const DAY: i64 = 86_400_000_000_000;

/// The evening of 2026-11-21 in nanoseconds since 1970.
const START: i64 = 1_795_300_000_000_000_000;

/// A memory whose clock the test sets.
struct Memory {
    store: AgentMemory,
    now: Arc<AtomicI64>,
}

impl Memory {
    fn open(path: &Path, agent: Option<&str>) -> Self {
        Self::open_at(path, agent, START)
    }

    fn open_at(path: &Path, agent: Option<&str>, now: i64) -> Self {
        let now = Arc::new(AtomicI64::new(now));
        let clock = Arc::clone(&now);
        let clock = move || Timestamp(clock.load(Ordering::Relaxed));
        let store = AgentMemory::open_at(path, &caller(START), agent, Box::new(clock)).unwrap();
        Self { store, now }
    }

    fn pass(&self, nanos: i64) -> i64 {
        self.now.fetch_add(nanos, Ordering::Relaxed) + nanos
    }

    fn caller(&self) -> Caller {
        caller(self.pass(1))
    }

    fn dir(&self, parent: Ino, name: &str) -> Ino {
        match self.store.lookup(parent, name.as_bytes()) {
            Ok(attr) => attr.ino,
            Err(_) => create(&self.store, parent, name, Kind::Directory).ino,
        }
    }

    fn write(&self, dir: Ino, name: &str, text: &str) -> Ino {
        self.write_bytes(dir, name, text.as_bytes())
    }

    fn write_bytes(&self, dir: Ino, name: &str, bytes: &[u8]) -> Ino {
        let caller = self.caller();
        let ino = match self.store.lookup(dir, name.as_bytes()) {
            Ok(attr) => {
                let empty = size_change(0);
                self.store.setattr(&caller, attr.ino, &empty).unwrap();
                attr.ino
            }
            Err(_) => {
                let new = node(Kind::File);
                let made = self.store.create(&caller, dir, name.as_bytes(), &new);
                made.unwrap().ino
            }
        };
        self.store.write(&caller, ino, 0, bytes).unwrap();
        // Indexed at this time of the test's clock. `:stats` would count all notes.
        self.store.lookup(ROOT, b":meta").unwrap();
        ino
    }

    fn set(&self, ino: Ino, name: &str, value: &str) {
        let (name, value) = (format!("user.ctx.{name}"), value.as_bytes());
        let (caller, name) = (self.caller(), name.as_bytes());
        let set = self.store.setxattr(&caller, ino, name, value, XattrMode::Set);
        set.unwrap();
    }

    fn rename(&self, from: (Ino, &str), to: (Ino, &str)) {
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        let (caller, replace) = (self.caller(), RenameMode::Replace);
        self.store.rename(&caller, from, to, replace).unwrap();
    }

    /// Like `rm`: no request follows, so that the index has the note for a while.
    fn unlink(&self, dir: Ino, name: &str) {
        let removed = self.store.unlink(&self.caller(), dir, name.as_bytes());
        if let Some(ino) = removed.unwrap() {
            self.store.reclaim(ino).unwrap();
        }
    }

    /// The notes that a recall shows, in its order.
    fn recalls(&self, request: &str) -> Vec<String> {
        let answer = self.ask(ROOT, request);
        let names = answer.lines().filter_map(|line| line.strip_prefix("## /"));
        names.map(str::to_owned).collect()
    }

    /// The output of `cat NAME`.
    fn ask(&self, dir: Ino, name: &str) -> String {
        let attr = self.store.lookup(dir, name.as_bytes()).unwrap();
        let bytes = read(&self.store, attr.ino, 0, 1 << 24);
        assert_eq!(bytes.len() as u64, attr.size);
        String::from_utf8(bytes).unwrap()
    }

    /// Checks that the output of `cat NAME` has these parts.
    #[track_caller]
    fn says(&self, dir: Ino, name: &str, parts: &[&str]) {
        has(&self.ask(dir, name), parts);
    }

    #[track_caller]
    fn finds_nothing(&self, dir: Ino, request: &str) {
        let answer = self.ask(dir, request);
        let said = answer.trim_start_matches("# ");
        assert!(said.starts_with("nothing found"), "{request}: {answer}");
    }

    /// Checks that a request is refused, and that `:stats` says why.
    #[track_caller]
    fn refuses(&self, request: &str, reason: &str) {
        let refused = self.store.lookup(ROOT, request.as_bytes());
        assert_eq!(errno(refused), Errno::INVAL, "{request:.100}");
        has(&self.last_error(), &[reason]);
    }

    fn last_error(&self) -> String {
        let stats = self.ask(ROOT, ":stats");
        let names = stats.lines().map(|line| line.split_once(": ").unwrap().0);
        let names: std::collections::BTreeSet<_> = names.collect();
        let lines = stats.lines().count();
        assert_eq!(names.len(), lines, "a line is forged: {stats}");
        let last = stats.lines().last().unwrap();
        assert!(last.starts_with("last-error: "), "{stats}");
        last.to_owned()
    }
}

/// A directory that the test owns, and a database in it that is not there yet.
fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    (dir, path)
}

fn with_memory(test: impl FnOnce(&Memory)) {
    let (_dir, path) = place();
    test(&Memory::open(&path, None));
}
