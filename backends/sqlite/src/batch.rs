//! Transactions that stay open over many calls: begun with a redo log, ended with it, and made again after a kill.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuse::store::{Result, StoreError};
use parking_lot::Mutex;
use rusqlite::Connection;

use crate::db::Db;
use crate::files::{redo_of, tails_of};
use crate::log::sync_names;
use crate::nodes::unsigned;
use crate::open_error::{SqliteOpenError, unreadable};
use crate::record;
use crate::redo::{self, ReadError, Redo};
use crate::synced::PowerLoss;
use crate::synced_rows::set;
use crate::transaction::locked;
use crate::{replacing, set_aside, synced};

/// How long a transaction may stay open: other programs see a change that much later.
const OPEN_FOR: Duration = Duration::from_millis(100);

/// How long a commit that failed waits for its next attempt.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Notes that all changes of the redo log are in the tables.
const END: &str = "UPDATE log SET ended = coalesce(redo, ended), redo = NULL";

/// Makes the changes that a killed daemon recorded and did not commit. After a power loss, mends the files that may lack bytes.
/// Answers how many changes there were.
pub(super) fn recover(db: &Db, path: &Path) -> std::result::Result<usize, SqliteOpenError> {
    let redo = redo_of(path);
    let Some(pending) = pending(&db.connection, path)? else {
        return Ok(0);
    };
    let wrong = |error: StoreError| {
        let fix = format!(
            "fix: move {} away, and mount with --without-log to continue with an earlier state",
            redo.display()
        );
        unreadable(path, &format!("its redo log cannot be replayed: {error}\n  {fix}"))
    };
    let known = known(&db.connection).map_err(|error| unreadable(path, &error))?;
    let is_cut = synced::is_cut_at_mount(path, known);
    let power_loss = is_cut.then(|| PowerLoss::of(db, path, &pending, known)).transpose().map_err(wrong)?;
    let replacing = replacing::needed(&pending);
    if !is_cut && !replacing.is_empty() {
        // The transaction may be durable before the sync of all that the killed mount has left.
        db.tails.take_over().and_then(|()| db.tails.sync(0)).map_err(wrong)?;
    }
    let work = |db: &Db| {
        pending.iter().try_for_each(|payload| record::redo(db, payload))?;
        if !is_cut {
            set(db, &db.tail_lengths(replacing.iter().copied()).into_iter().collect::<Vec<_>>())?;
        }
        power_loss.iter().try_for_each(|power_loss| power_loss.mend(db))?;
        db.execute(END, ())
    };
    db.transaction(work).map_err(wrong)?;
    Ok(pending.len())
}

/// Gives tails their names back that the state needs which [`recover`] makes.
pub(super) fn restore_tails(connection: &Connection, path: &Path) -> std::result::Result<(), SqliteOpenError> {
    let pending = pending(connection, path)?.unwrap_or_default();
    let known = known(connection).map_err(|error| unreadable(path, &error))?;
    let reached = known.applied + pending.len() as u64;
    let restored = set_aside::restore(&tails_of(path), known, reached);
    restored.map_err(|error| unreadable(&tails_of(path), &error))
}

/// Renames the set-aside tails that the tables need without the redo log back to their own names, and removes the other
/// set-aside tails: the database is about to forget the mount that counted these changes.
pub(super) fn restore_last_tails(connection: &Connection, path: &Path) -> std::result::Result<(), SqliteOpenError> {
    let known = known(connection).map_err(|error| unreadable(path, &error))?;
    let dir = tails_of(path);
    let restored = set_aside::restore(&dir, known, known.applied);
    let restored = restored.and_then(|()| set_aside::remove(&dir));
    restored.map_err(|error| unreadable(&dir, &error))
}

/// The database's record of its redo log.
pub(super) fn known(connection: &Connection) -> rusqlite::Result<set_aside::RedoRecord> {
    let read = "SELECT redo, applied, ended FROM log";
    connection.query_row(read, (), |row| {
        Ok(set_aside::RedoRecord { mount: row.get(0)?, applied: unsigned(row.get(1)?), ended: row.get(2)? })
    })
}

/// The changes of the redo log that the database lacks, and the next mount makes; `None` where there is no redo log.
pub(super) fn pending(
    connection: &Connection,
    path: &Path,
) -> std::result::Result<Option<Vec<Vec<u8>>>, SqliteOpenError> {
    let known = known(connection).map_err(|error| unreadable(path, &error))?;
    match redo::read(path, known) {
        Ok(mut pending) => {
            if synced::is_cut_at_mount(path, known) {
                pending.truncate(replacing::whole_changes(&pending));
            }
            Ok(Some(pending))
        }
        // A copy of the tables alone, such as `VACUUM INTO` makes: `missing_log` refuses all others.
        Err(ReadError::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(ReadError::Unreadable(error)) => Err(unreadable(&redo_of(path), &error)),
        Err(ReadError::Damaged(reason)) => {
            Err(SqliteOpenError::LogDamaged { path: path.to_owned(), log: redo_of(path), reason })
        }
    }
}

/// Removes a redo log that nothing needs.
pub(super) fn remove(path: &Path) {
    let redo = redo_of(path);
    if let Err(error) = std::fs::remove_file(&redo)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %redo.display(), %error, "removing the redo log");
    }
}

/// A thread that commits a transaction that has been open for long enough.
#[derive(Debug)]
pub(super) struct Committer {
    db: Arc<Mutex<Db>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Begins to record changes. `None` if the disk has no room for the redo log: every change is then committed before
    /// its call returns.
    pub(super) fn start(db: &Arc<Mutex<Db>>, path: &Path) -> std::result::Result<Option<Self>, SqliteOpenError> {
        let (wake, woken) = sync_channel(1);
        if !begin(&locked(db), path, wake)? {
            return Ok(None);
        }
        let thread_db = Arc::clone(db);
        let thread = std::thread::Builder::new()
            .name("commit".to_owned())
            .spawn(move || run_or_give_up(&thread_db, &woken))
            .map_err(|error| unreadable(path, &error))?;
        Ok(Some(Self { db: Arc::clone(db), thread: Some(thread) }))
    }

    /// Commits, and ends the thread. If that fails, the redo log stays.
    pub(super) fn stop(&mut self) -> Result<()> {
        let ended = end(&locked(&self.db));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the commit thread panicked");
        }
        ended.inspect_err(|error| tracing::warn!(%error, "the redo log is kept, and is replayed at the next mount"))
    }
}

fn begin(db: &Db, path: &Path, wake: SyncSender<()>) -> std::result::Result<bool, SqliteOpenError> {
    let wrong = |error: StoreError| unreadable(path, &error);
    let mount = db.row("SELECT random()", (), |row| row.get(0));
    let mount = mount.map_err(wrong)?.unwrap_or_default();
    // The file before the row that asks for it: a file that no row asks for is harmless.
    let redo = redo_of(path);
    let redo = match Redo::create(path, mount, wake) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            tracing::warn!(
                "the disk is full: until the next mount there is no redo log, and every change is committed at once"
            );
            return Ok(false);
        }
        created => created.map_err(|error| unreadable(&redo, &error))?,
    };
    sync_names(path)?;
    db.transaction(|db| db.execute("UPDATE log SET redo = ?1, applied = 0", [mount])).map_err(wrong)?;
    db.tails.sum_file().set_mount(mount);
    *db.redo.borrow_mut() = Some(redo);
    db.deferred.is_on.set(true);
    Ok(true)
}

fn end(db: &Db) -> Result<()> {
    let committed = db.commit();
    if committed.is_err() {
        // Any later commit of this connection would have the records applied twice.
        db.give_up();
    }
    db.deferred.is_on.set(false);
    // The thread ends with it: it holds the sender.
    *db.redo.borrow_mut() = None;
    committed?;
    db.transaction(|db| db.execute(END, ()))?;
    Ok(())
}

/// As [`run`]. After a panic, nothing would be committed in time any more: the store answers nothing from then on.
fn run_or_give_up(db: &Mutex<Db>, woken: &Receiver<()>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(db, woken))) {
        db.lock().give_up();
        tracing::error!("the commit thread panicked: all reads and writes fail until the next mount");
        resume_unwind(panic);
    }
}

fn run(db: &Mutex<Db>, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        let mut wait = OPEN_FOR;
        loop {
            let until = Instant::now() + wait;
            loop {
                match woken.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    // Another batch has begun meanwhile: this commit includes it.
                    Ok(()) => {}
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            if let Err(error) = synced::note_replacing(db) {
                tracing::warn!(%error, "a power loss may cut a file that has replaced another one just now");
            }
            match locked(db).commit() {
                Ok(()) => break,
                Err(error) => tracing::warn!(%error, "committing changes"),
            }
            wait = AGAIN_AFTER;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use fuse::store::{
        Allocation, Caller, Change, Errno, Ino, Kind, NewNode, ROOT, RenameMode, Store, Timestamp, XattrMode,
    };
    use rusqlite::hooks::{AuthAction, AuthContext, Authorization, TransactionOperation};

    use super::*;
    use crate::files::beside;
    use crate::log_mark::tests::{FILE, OWNER};
    use crate::{HEAD, SqliteStore, content, held};

    /// A copy of the files that a killed daemon leaves.
    fn killed(path: &Path, copy: &Path) {
        for suffix in ["", "-wal", "-redo"] {
            std::fs::copy(beside(path, suffix), beside(copy, suffix)).unwrap();
        }
        let (from, to) = (beside(path, "-tails"), beside(copy, "-tails"));
        let _ = std::fs::remove_dir_all(&to);
        for tail in std::fs::read_dir(from).into_iter().flatten().flatten() {
            std::fs::create_dir_all(&to).unwrap();
            std::fs::copy(tail.path(), to.join(tail.file_name())).unwrap();
        }
    }

    /// Names, attributes, content and extended attributes of everything in the root.
    fn state(store: &SqliteStore) -> Vec<String> {
        let mut names: Vec<(Vec<u8>, Ino)> = Vec::new();
        let mut note = |entry: fuse::store::DirEntry<'_>| {
            names.push((entry.name.to_vec(), entry.ino));
            ControlFlow::Continue(())
        };
        store.readdir(ROOT, 0, false, &mut note).unwrap();
        names.push((b".".to_vec(), ROOT));
        let described = names.iter().map(|(name, ino)| {
            let attr = store.getattr(*ino).unwrap();
            let mut bytes = Vec::new();
            if attr.kind == Kind::File {
                store.read(*ino, 0, 2 * HEAD as usize, &mut bytes).unwrap();
            }
            let xattrs = store.listxattr(*ino).unwrap();
            // The blocks of a tail depend on the file system below.
            let attr = fuse::store::Attr { blocks: 0, ..attr };
            let sum = crc32fast::hash(&bytes);
            format!("{} {attr:?} {sum} {xattrs:?}", String::from_utf8_lossy(name))
        });
        let mut described: Vec<String> = described.collect();
        described.sort();
        described
    }

    /// One change or none, as a seed has it.
    fn step(store: &SqliteStore, seed: &mut u64) {
        let mut random = |below: u64| {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (*seed >> 33) % below
        };
        let caller = Caller { now: Timestamp(random(1 << 30) as i64), ..OWNER };
        let name = |at: u64| format!("f{at}").into_bytes();
        let (one, two) = (name(random(8)), name(random(8)));
        let ino = store.lookup(ROOT, &one).map_or(ROOT, |attr| attr.ino);
        let gone = |replaced: Result<Option<Ino>>| {
            if let Ok(Some(ino)) = replaced {
                store.reclaim(ino).unwrap();
            }
        };
        let node = NewNode {
            kind: [Kind::File, Kind::Directory, Kind::Symlink][random(3) as usize],
            permissions: 0o644,
            rdev: 0,
            target: b"elsewhere",
        };
        // A failed call changes nothing: that is a case, too.
        match random(12) {
            0..3 => drop(store.create(&caller, ROOT, &one, &node)),
            3..6 => {
                let offset = [0, 100, 40_000, HEAD - 10, HEAD + 5][random(5) as usize];
                let bytes = vec![random(256) as u8; 1 + random(50_000) as usize];
                drop(store.write(&caller, ino, offset, &bytes));
            }
            6 => {
                let change = Change { size: Some(random(2 * HEAD)), ..Change::default() };
                drop(store.setattr(&caller, ino, &change));
            }
            7 => {
                let mode = [RenameMode::Replace, RenameMode::Exchange, RenameMode::Whiteout][random(3) as usize];
                gone(store.rename(&caller, (ROOT, &one), (ROOT, &two), mode));
            }
            8 => gone(store.unlink(&caller, ROOT, &one)),
            9 => gone(store.rmdir(&caller, ROOT, &one)),
            10 => drop(store.setxattr(&caller, ino, &two, &one, XattrMode::Set)),
            _ => {
                let how = [Allocation::PunchHole, Allocation::Zero { keep_size: false }];
                let how = how[random(2) as usize];
                drop(store.fallocate(&caller, ino, how, random(HEAD), 1 + random(HEAD)));
            }
        }
        if random(40) == 0 {
            store.sync().unwrap();
        }
    }

    #[test]
    fn a_mount_after_a_kill_at_any_call_has_every_change() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let (mut seed, mut redone) = (1, 0);
        for _ in 0..400 {
            step(&store, &mut seed);
            {
                // Nothing is committed while the files are copied.
                let db = store.db();
                redone += u32::from(db.redo.borrow().as_ref().is_some_and(Redo::is_pending));
                killed(&path, &copy);
            }
            let again = SqliteStore::open(&copy, &OWNER).unwrap();
            assert_eq!(state(&again), state(&store));
            drop(again);
            assert!(!beside(&copy, "-redo").exists(), "an orderly end removes it");
            let problems = crate::check(&copy).unwrap().problems;
            assert_eq!(problems, Vec::<String>::new());
        }
        assert!(redone > 100, "{redone} of 400 copies had a record to apply");
    }

    #[test]
    fn the_first_fsync_after_a_kill_makes_the_row_durable_that_asks_for_the_redo_log() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        store.create(&OWNER, ROOT, b"note", &FILE).unwrap();
        killed(&path, &copy);
        let again = SqliteStore::open(&copy, &OWNER).unwrap();
        let syncs = || again.counters()["log_syncs"];
        let before = syncs();
        again.create(&OWNER, ROOT, b"other", &FILE).unwrap();
        again.sync().unwrap();
        assert_eq!(syncs(), before + 1);
        again.create(&OWNER, ROOT, b"third", &FILE).unwrap();
        again.sync().unwrap();
        assert!(again.counters()["redo_syncs"] > 0 || syncs() > before + 1);
    }

    #[test]
    fn a_tail_that_changes_without_a_commit_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("a.db"), &OWNER).unwrap();
        let ino = store.create(&OWNER, ROOT, b"note", &FILE).unwrap().ino;
        store.write(&OWNER, ino, HEAD, b"end").unwrap();
        store.settle().unwrap();
        let before = store.counters()["tail_syncs"];
        content::write_tail(&store.db(), ino, 3, 0, b"new").unwrap();
        store.settle().unwrap();
        assert_eq!(store.counters()["tail_syncs"], before + 1);
    }

    #[test]
    fn a_store_that_has_given_up_promises_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("a.db"), &OWNER).unwrap();
        store.sync().unwrap();
        store.create(&OWNER, ROOT, b"note", &FILE).unwrap();
        store.db().give_up();
        assert!(store.sync().is_err());
    }

    #[test]
    fn a_store_whose_commit_thread_panics_answers_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let commit = ("UPDATE log SET applied", 0);
        store.db().panics_at.set(Some(commit));
        let ino = store.create(&OWNER, ROOT, b"note", &FILE).unwrap().ino;
        let until = Instant::now() + Duration::from_secs(60);
        while store.getattr(ino).is_ok() {
            assert!(Instant::now() < until, "changes wait for no commit");
            std::thread::sleep(OPEN_FOR / 10);
        }
        assert_eq!(store.getattr(ROOT).unwrap_err().errno, Errno::IO);
        drop(store);
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        assert_eq!(store.lookup(ROOT, b"note").unwrap().ino, ino);
    }

    #[test]
    fn a_redo_log_that_is_cut_gives_the_state_of_an_earlier_call() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let (mut seed, mut steps) = (7, 0);
        let records = loop {
            step(&store, &mut seed);
            steps += 1;
            assert!(steps < 3000, "no transaction had 12 changes");
            // Nothing is committed while the files are copied.
            let db = store.db();
            let redo = db.redo.borrow();
            let pending = redo.as_ref().unwrap().pending().unwrap();
            if pending.len() >= 12 {
                killed(&path, &copy);
                break pending;
            }
        };
        // The same calls again, on a database of its own: reading each state takes so long that transactions would end.
        let again = SqliteStore::open(&dir.path().join("c.db"), &OWNER).unwrap();
        let (mut seed, mut states) = (7, vec![state(&again)]);
        for _ in 0..steps {
            step(&again, &mut seed);
            states.push(state(&again));
        }
        assert_eq!(Some(&state(&store)), states.last());
        drop(again);
        drop(store);
        // Power loss may cut it, a kill may not.
        redo::forget_boot(&copy).unwrap();
        let redo = std::fs::read(beside(&copy, "-redo")).unwrap();
        let (mut cuts, mut end) = (vec![redo::START], redo::START);
        for payload in records {
            // A header of 16 bytes and the payload; cut in the middle and after it.
            let length = 16 + payload.len();
            cuts.extend([length / 2, length].map(|at| end + at));
            end += length;
        }
        let files = ["", "-wal"].map(|suffix| {
            let file = beside(&copy, suffix);
            (std::fs::read(&file).unwrap(), file)
        });
        let (mut earlier, mut met) = (states.len() - 1, Vec::new());
        for cut in cuts.iter().rev() {
            for (bytes, file) in &files {
                std::fs::write(file, bytes).unwrap();
            }
            let mut left = redo.clone();
            left[*cut..].fill(0);
            std::fs::write(beside(&copy, "-redo"), left).unwrap();
            let again = state(&SqliteStore::open(&copy, &OWNER).unwrap());
            let at = states.iter().rposition(|state| *state == again).unwrap();
            assert!(at <= earlier, "a shorter log has no later state");
            earlier = at;
            met.push(again);
        }
        assert_eq!(met.first(), states.last(), "the whole log has every change");
        let is_met = |state: &Vec<String>| met.contains(state);
        assert!(states[earlier..].iter().all(is_met), "a cut skips a call");
    }

    #[test]
    fn a_long_write_waits_for_its_commit_and_survives_a_kill() {
        let head = HEAD as usize;
        for (offset, length) in
            [(0, head - 10), (10, head), (head - 10, 20), (300_000, 20), (0, 1 << 20), (head, 1 << 20)]
        {
            let dir = tempfile::tempdir().unwrap();
            let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
            let store = SqliteStore::open(&path, &OWNER).unwrap();
            let ino = store.create(&OWNER, ROOT, b"a", &FILE).unwrap().ino;
            let mut expected = vec![1; head];
            store.write(&OWNER, ino, 0, &expected).unwrap();
            let is_hole = offset > expected.len();
            let new: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            expected.resize(expected.len().max(offset + length), 0);
            expected[offset..offset + length].copy_from_slice(&new);
            {
                let db = store.db();
                db.commit().unwrap();
                held::write(&db, &OWNER, ino, offset as u64, &new).unwrap();
                assert_eq!(db.has_open_changes(), !is_hole, "{length} bytes at {offset}");
                killed(&path, &copy);
            }
            let again = SqliteStore::open(&copy, &OWNER).unwrap();
            let mut found = Vec::new();
            again.read(ino, 0, 2 << 20, &mut found).unwrap();
            assert!(found == expected, "{length} bytes at {offset}");
        }
    }

    #[test]
    fn a_sync_after_a_long_write_does_not_sync_the_redo_log() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("a.db"), &OWNER).unwrap();
        let ino = store.create(&OWNER, ROOT, b"a", &FILE).unwrap().ino;
        store.sync().unwrap();
        let before = store.counters()["redo_syncs"];
        store.write(&OWNER, ino, 0, &[1; 200_000]).unwrap();
        store.sync().unwrap();
        assert_eq!(store.counters()["redo_syncs"], before);
    }

    fn text_of(store: &SqliteStore, ino: Ino) -> String {
        let mut text = Vec::new();
        store.read(ino, 0, 100, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Lets no transaction be committed.
    fn deny_commits(store: &SqliteStore) {
        let no_commit = |asked: AuthContext<'_>| match asked.action {
            AuthAction::Transaction { operation: TransactionOperation::Rollback | TransactionOperation::Begin } => {
                Authorization::Allow
            }
            AuthAction::Transaction { .. } => Authorization::Deny,
            _ => Authorization::Allow,
        };
        store.db().connection.authorizer(Some(no_commit)).unwrap();
    }

    #[test]
    fn recorded_changes_outlast_a_commit_that_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        deny_commits(&store);
        let ino = store.create(&OWNER, ROOT, b"note", &FILE).unwrap().ino;
        assert!(store.sync().is_err());
        store.write(&OWNER, ino, 0, b"text").unwrap_err();
        assert_eq!(store.lookup(ROOT, b"note").unwrap().ino, ino);
        let allow = |_: AuthContext<'_>| Authorization::Allow;
        store.db().connection.authorizer(Some(allow)).unwrap();
        store.write(&OWNER, ino, 0, b"text").unwrap();
        store.sync().unwrap();
        drop(store);
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        assert_eq!(text_of(&store, ino), "text");
    }

    #[test]
    fn a_mount_applies_once_what_an_earlier_mount_could_not_commit_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let ino = store.create(&OWNER, ROOT, b"note", &FILE).unwrap().ino;
        held::append(&store.db(), &OWNER, ino, b"once").unwrap();
        deny_commits(&store);
        drop(store);
        assert!(beside(&path, "-redo").exists());
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        assert_eq!(text_of(&store, ino), "once");
    }

    #[test]
    fn a_transaction_that_sqlite_rolls_back_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        // As SQLite does when memory or the disk fails in a statement that only reads.
        let roll_back = || store.db().connection.execute_batch("ROLLBACK").unwrap();
        let ino = store.create(&OWNER, ROOT, b"note", &FILE).unwrap().ino;
        roll_back();
        assert_eq!(store.lookup(ROOT, b"note").unwrap().ino, ino);
        roll_back();
        store.write(&OWNER, ino, 0, b"text").unwrap();
        roll_back();
        store.sync().unwrap();
        assert_eq!(text_of(&store, ino), "text");
        store.write(&OWNER, ino, 4, b" and more").unwrap();
        roll_back();
        let copy = dir.path().join("b.db");
        killed(&path, &copy);
        let again = SqliteStore::open(&copy, &OWNER).unwrap();
        assert_eq!(text_of(&again, ino), "text and more");
        assert_eq!(text_of(&store, ino), "text and more");
    }

    #[test]
    fn a_copy_that_sqlite_makes_of_a_mounted_database_can_be_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let ino = store.create(&OWNER, ROOT, b"note", &FILE).unwrap().ino;
        store.write(&OWNER, ino, 0, b"text").unwrap();
        store.sync().unwrap();
        let other = Connection::open(&path).unwrap();
        let to = copy.to_str().unwrap();
        other.execute("VACUUM INTO ?1", [to]).unwrap();
        let again = SqliteStore::open(&copy, &OWNER).unwrap();
        assert_eq!(text_of(&again, ino), "text");
    }
}
