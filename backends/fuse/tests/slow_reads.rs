//! Reads that wait for a server delay no other call.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use fuse::memory::MemoryStore;
use fuse::store::{
    Attr, Caller, Change, Coherence, EntrySink, Ino, Kind, NewNode, ROOT, Result, SlowCall, Store, Timestamp,
};
use fuse::{MountOptions, serve};
use parking_lot::{Condvar, Mutex};

/// The kernel sends 16 of its own requests at once to a store without slow reads.
const AT_ONCE: usize = 16;
const READERS: usize = 24;
const PATIENCE: Duration = Duration::from_secs(20);
const OWNER: Caller = Caller { uid: 0, gid: 0, now: Timestamp(1) };

/// A store whose reads wait until it is told that the server answers.
struct WaitingStore {
    files: MemoryStore,
    answers: Mutex<bool>,
    answered: Condvar,
    reads: AtomicUsize,
}

impl Store for WaitingStore {
    fuse::forward! { self.files =>
        fn kind(&self) -> &'static str;
        fn coherence(&self) -> Coherence;
        fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr>;
        fn getattr(&self, ino: Ino) -> Result<Attr>;
        fn setattr(&self, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr>;
        fn parent(&self, dir: Ino) -> Result<Ino>;
        fn create(&self, caller: &Caller, parent: Ino, name: &[u8], node: &NewNode<'_>) -> Result<Attr>;
        fn write(&self, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()>;
        fn readdir(&self, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()>;
        fn fsync(&self, ino: Ino, data_only: bool) -> Result<()>;
        fn sync(&self) -> Result<()>;
    }

    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock();
        self.answered.wait_while_for(&mut answers, |answers| !*answers, 2 * PATIENCE);
        self.files.read(ino, offset, size, out)
    }

    fn is_slow(&self, _ino: Ino, call: SlowCall) -> bool {
        matches!(call, SlowCall::Read { .. })
    }

    fn has_slow_reads(&self) -> bool {
        true
    }
}

#[test]
fn a_dirty_page_does_not_wait_for_slow_reads() {
    if let Err(error) = fuse::check_device() {
        assert!(std::env::var_os("CTXBENCH_REQUIRE_FUSE").is_none(), "{error}");
        eprintln!("SKIPPED: {error}");
        return;
    }
    let files = MemoryStore::new(&OWNER);
    let node = NewNode { kind: Kind::File, permissions: 0o644, rdev: 0, target: b"" };
    for number in 0..READERS {
        let ino = files.create(&OWNER, ROOT, number.to_string().as_bytes(), &node).unwrap().ino;
        files.write(&OWNER, ino, 0, b"content").unwrap();
    }
    let store =
        WaitingStore { files, answers: Mutex::new(false), answered: Condvar::new(), reads: AtomicUsize::new(0) };
    let store = Arc::new(store);
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().to_owned();
    let (ready, is_ready) = channel();
    let served = {
        let (store, dir) = (Arc::clone(&store), dir.clone());
        std::thread::spawn(move || {
            let options = MountOptions { source: "slow".to_owned(), writeback: true, ..MountOptions::default() };
            serve(store, &dir, &options, |stop| ready.send(stop).unwrap())
        })
    };
    let stop = is_ready.recv().unwrap();
    let readers = (0..READERS).map(|number| {
        let file = dir.join(number.to_string());
        std::thread::spawn(move || fs::read(file).unwrap())
    });
    let readers: Vec<_> = readers.collect();
    let until = Instant::now() + PATIENCE;
    while store.reads.load(Ordering::SeqCst) < AT_ONCE {
        assert!(Instant::now() < until, "the reads do not reach the store");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (synced, is_synced) = channel();
    let writer = std::thread::spawn(move || {
        let mut file = File::create(dir.join("new")).unwrap();
        file.write_all(b"text").unwrap();
        synced.send(file.sync_all()).unwrap();
    });
    let outcome = is_synced.recv_timeout(PATIENCE);
    *store.answers.lock() = true;
    store.answered.notify_all();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), b"content");
    }
    writer.join().unwrap();
    stop.stop();
    served.join().unwrap().unwrap();
    outcome.expect("the sync waits for the reads of other files").unwrap();
}
