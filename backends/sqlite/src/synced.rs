//! How much of each tail is durable: its *synced length*, in the tables.
//!
//! After a power loss, the tables may be of a later state than the last sync. A tail may then lack bytes that they count on,
//! or have zeros or older bytes in their place. So a mount cuts each file to its synced length, unless all that follows is as the
//! checksum file says: then the machine has restarted after a kill, and nothing is lost. A sync notes the lengths of
//! the tails that have grown: after it has synced the tails, and before it syncs a log. A truncation lowers the synced length
//! in its own transaction.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use fuse::store::{Ino, Kind, Result};
use parking_lot::Mutex;

use crate::content::tail_length;
use crate::db::{Db, UnsealedFile};
use crate::log::Log;
use crate::nodes::{self, signed, unsigned};
use crate::record::{Record, Sizes};
use crate::redo::restarted_mount;
use crate::set_aside::RedoRecord;
use crate::sum_file::SumFileContent;
use crate::synced_rows::{has_guest, of, set};
use crate::tails::Tails;
use crate::transaction::locked;
use crate::{HEAD, tail_sums};

/// Makes the tails that have grown durable, and notes their lengths. What is noted is durable after the next sync of a log.
///
/// # Errors
/// If a sync fails, or the lengths cannot be noted.
pub(super) fn note(db: &Mutex<Db>, log: &Log, tails: &Tails) -> Result<()> {
    let growth = tails.growth();
    let _noting = growth.noting.lock();
    if growth.state.lock().grown.is_empty() {
        return Ok(());
    }
    let commit = locked(db).begin_noting();
    let noted = log.sync_tails(tails, commit).and_then(|()| locked(db).end_noting(log));
    growth.end(noted.is_err());
    noted
}

/// As [`note()`], also if no tail has grown: bytes of a tail may have been overwritten.
pub(super) fn note_all(db: &Mutex<Db>, log: &Log, tails: &Tails) -> Result<()> {
    note(db, log, tails)?;
    if tails.are_clean() { Ok(()) } else { log.sync_tails(tails, log.commits()) }
}

/// As [`note()`], of the tails alone that the next commit would have to sync with the lock: see [`super::replacing`].
pub(super) fn note_replacing(db: &Mutex<Db>) -> Result<()> {
    let (log, tails) = {
        let db = locked(db);
        let Some(log) = db.log.get().filter(|_| !db.unsynced_replacing().is_empty()) else {
            return Ok(());
        };
        (Arc::clone(log), Arc::clone(&db.tails))
    };
    let growth = tails.growth();
    let _noting = growth.noting.lock();
    let inos: Vec<Ino> = {
        let db = locked(db);
        // Some may have been noted while this thread waited.
        let inos = db.unsynced_replacing();
        growth.state.lock().grown.retain(|ino| !inos.contains(ino));
        db.begin_noting_of(inos);
        // Without those that have lost their tail since.
        growth.state.lock().in_sync.keys().copied().collect()
    };
    let synced = log.sync_some(&tails, inos);
    let noted = synced.and_then(|()| locked(db).end_noting(&log));
    growth.end(noted.is_err());
    noted
}

/// Makes what a killed mount has left durable, and notes the lengths of its tails: from now on, a power loss cuts none of it.
pub(super) fn note_left(db: &Db, log: &Log) -> Result<()> {
    db.tails.take_over()?;
    log.sync_tails(&db.tails, log.commits())?;
    let lengths = db.tail_lengths(db.tails.unsealed()?);
    if !lengths.is_empty() {
        db.transaction(|db| set(db, &lengths.into_iter().collect::<Vec<_>>()))?;
    }
    log.sync(&db.tails)
}

/// Whether a mount of the database at `path`, which says `known`, cuts its files: the one before was not ended in order, and the
/// machine has restarted since. SQLite's log does not matter: another program may have copied and removed it meanwhile.
pub(super) fn is_cut_at_mount(path: &Path, known: RedoRecord) -> bool {
    restarted_mount(path).is_some_and(|mount| known.is_of(mount))
}

/// What a mount after a power loss needs to know before it changes anything.
#[derive(Debug)]
pub(super) struct PowerLoss {
    files: BTreeSet<Ino>,
    left: SumFileContent,
}

impl PowerLoss {
    /// Of a database that lacks these changes of the redo log. Without files on damaged pages, of which each read fails: to meet
    /// one in the transaction would undo it.
    pub(super) fn of(db: &Db, path: &Path, pending: &[Vec<u8>], known: RedoRecord) -> Result<Self> {
        let in_tables = || -> Result<BTreeSet<Ino>> {
            let mut long = db.statement("SELECT ino FROM inode WHERE mode & 61440 = 32768 AND size > ?1")?;
            let rows = long.query_map([signed(HEAD)], |row| row.get(0).map(unsigned))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        };
        let mut files = in_tables().unwrap_or_else(|error| {
            tracing::warn!(%error, "not all files can be looked at");
            BTreeSet::new()
        });
        files.extend(db.tails.unsealed()?);
        files.extend(Sizes::of(pending).inodes());
        files.retain(|ino| nodes::find(db, *ino).is_ok() && of(&db.connection, *ino).is_ok());
        let left = SumFileContent::read_after_restart(path, known);
        Ok(Self { files, left })
    }

    /// Cuts the files that may lack bytes, or leaves them to the store that has tables of its own here. Has to be in the
    /// transaction that notes that the redo log is applied.
    pub(super) fn mend(&self, db: &Db) -> Result<()> {
        let is_guest = has_guest(&db.connection)?;
        for ino in self.files.iter().copied() {
            let Some(mut attr) = nodes::find(db, ino)?.filter(|attr| attr.kind == Kind::File) else {
                continue;
            };
            let (synced, is_cut) = of(&db.connection, ino)?;
            let size = HEAD + synced;
            let is_whole = attr.size <= size || (!is_cut && self.has_all(db, ino, synced..tail_length(attr.size)));
            if is_guest && !(is_whole && db.tails.metadata(ino)?.as_ref().is_some_and(tail_sums::is_sealed)) {
                let durable = if is_whole { attr.size } else { size };
                (db.guest.mend)(db, &UnsealedFile { attr, durable, is_cut })?;
                continue;
            }
            if is_whole {
                continue;
            }
            tracing::warn!(
                "the machine restarted before bytes {size} to {} of inode {ino} were synced: the file is cut to {size} bytes (`find -inum {ino}` finds its path)",
                attr.size - 1
            );
            attr.size = size;
            nodes::update(db, &attr)?;
        }
        Ok(())
    }

    /// Whether these bytes of a tail are as they were written. Of a tail that was truncated, this cannot be told: the bytes and
    /// their checksums may both be those from before.
    fn has_all(&self, db: &Db, ino: Ino, range: Range<u64>) -> bool {
        let (Some(left), Ok(file)) = (self.left.tails.get(&ino), db.tails.file(ino)) else {
            return false;
        };
        tail_sums::is_as_recorded(&file, range, left)
    }
}

impl Db {
    /// How long the tails of these inodes are in this state; without those that have none. A row that cannot be read is
    /// damaged, and so is its file.
    pub(super) fn tail_lengths(&self, inos: impl IntoIterator<Item = Ino>) -> BTreeMap<Ino, u64> {
        let length = |ino: Ino| {
            let attr = nodes::find(self, ino).ok().flatten()?;
            let length = tail_length(attr.size);
            (attr.kind == Kind::File && length > 0).then_some((ino, length))
        };
        inos.into_iter().filter_map(length).collect()
    }

    /// Takes the lengths that a sync of the tails makes durable, of a state that this commit has.
    fn begin_noting(&self) -> u64 {
        let growth = self.tails.growth();
        // With the lock, no tail grows or is cut meanwhile.
        let grown = std::mem::take(&mut growth.state.lock().grown);
        self.begin_noting_of(grown);
        self.last_commit()
    }

    fn begin_noting_of(&self, grown: BTreeSet<Ino>) {
        let lengths = self.tail_lengths(grown);
        let state = &mut *self.tails.growth().state.lock();
        (state.in_sync, state.is_cut) = (lengths, false);
    }

    /// Notes the lengths that [`Db::begin_noting`] has taken, now that the tails are synced.
    fn end_noting(&self, log: &Log) -> Result<()> {
        let (taken, is_cut) = {
            let state = self.tails.growth().state.lock();
            (state.in_sync.clone(), state.is_cut)
        };
        let now = self.tail_lengths(taken.keys().copied());
        let lengths: Vec<(Ino, u64)> = if is_cut {
            // What has replaced the bytes is not synced. With the lock, nothing changes meanwhile.
            log.sync_tails(&self.tails, self.last_commit())?;
            now.into_iter().collect()
        } else {
            taken.into_iter().filter(|(ino, _)| now.contains_key(ino)).collect()
        };
        self.record_lengths(&lengths)
    }

    /// Notes lengths as a change that may wait for its commit.
    fn record_lengths(&self, lengths: &[(Ino, u64)]) -> Result<()> {
        if lengths.is_empty() {
            return Ok(());
        }
        let record = Record::TailsSynced { lengths: Cow::Borrowed(lengths) };
        self.change(&record, |db| set(db, lengths))
    }

    /// As [`note()`], with the lock, for the tails that have grown since. No change may be under way.
    pub(super) fn note_rest(&self, log: &Log) -> Result<()> {
        let grown = self.tails.growth().all();
        if grown.is_empty() {
            return Ok(());
        }
        log.sync_tails(&self.tails, self.last_commit())?;
        let lengths: Vec<(Ino, u64)> = self.tail_lengths(grown).into_iter().collect();
        self.record_lengths(&lengths)?;
        self.tails.growth().state.lock().grown.clear();
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use fuse::store::{Errno, Ino, ROOT, RenameMode, Store};

    use super::of;
    use crate::db::Db;
    use crate::files::beside;
    use crate::free_tails::tests::{LONG, create, read, resize};
    use crate::log_mark::tests::OWNER;
    use crate::{HEAD, SqliteStore, check, forget_boot, go_on_without_log};

    /// Bytes past the first 256 KiB of a file of [`LONG`] bytes.
    pub(crate) const TAIL: usize = LONG - HEAD as usize;

    /// A database, and a copy of the files that a kill or a power loss leaves of it.
    pub(crate) struct Place {
        _dir: tempfile::TempDir,
        pub(crate) path: PathBuf,
        pub(crate) copy: PathBuf,
    }

    impl Place {
        pub(crate) fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
            Self { _dir: dir, path, copy }
        }

        pub(crate) fn open(&self) -> SqliteStore {
            open(&self.path)
        }

        pub(crate) fn tail(&self, ino: Ino) -> PathBuf {
            beside(&self.copy, "-tails").join(ino.to_string())
        }

        /// Copies the files that a kill leaves at this moment.
        fn kill(&self, store: &SqliteStore) {
            copy_files(store, &self.path, &self.copy);
        }

        /// As [`Place::kill`], with the lock, which keeps the commit thread away.
        pub(crate) fn kill_held(&self, store: &SqliteStore) {
            copy_files_held(store, &self.path, &self.copy);
        }

        /// What a power loss leaves of a mount of the copy, if it takes nothing that was written.
        pub(crate) fn lose_power_of_copy(&self, store: &SqliteStore) -> Self {
            let left = Self::new();
            copy_files(store, &self.copy, &left.copy);
            forget_boot(&left.copy).unwrap();
            left
        }

        /// Copies what a power loss leaves that takes nothing of the logs, and leaves `tail` of the tail of an inode; without
        /// any, not even its name.
        fn lose_power(&self, store: &SqliteStore, ino: Ino, tail: Option<&[u8]>) {
            self.kill(store);
            let place = self.tail(ino);
            match tail {
                Some(bytes) => {
                    let mode = fs::metadata(&place).unwrap().permissions();
                    fs::write(&place, bytes).unwrap();
                    fs::set_permissions(&place, mode).unwrap();
                }
                None => fs::remove_file(&place).unwrap(),
            }
            forget_boot(&self.copy).unwrap();
        }

        /// A check finds nothing, and a mount has the file with these bytes, and can append to it.
        pub(crate) fn must_have(&self, ino: Ino, expected: &[u8], at: &str) {
            assert_eq!(check(&self.copy).unwrap().problems, Vec::<String>::new(), "{at}");
            let store = SqliteStore::open(&self.copy, &OWNER).unwrap();
            let found = read(&store, ino);
            assert_eq!(found.len(), expected.len(), "{at}");
            assert!(found == expected, "{at}");
            store.append(&OWNER, ino, expected.len() as u64, b"more").unwrap();
            let all = [expected, b"more"].concat();
            assert!(read(&store, ino) == all, "{at}");
            drop(store);
            assert_eq!(check(&self.copy).unwrap().problems, Vec::<String>::new(), "{at}");
            let store = SqliteStore::open(&self.copy, &OWNER).unwrap();
            assert!(read(&store, ino) == all, "{at}");
        }
    }

    /// Opens a store that syncs nothing by the clock.
    pub(crate) fn open(path: &Path) -> SqliteStore {
        let store = SqliteStore::open(path, &OWNER).unwrap();
        let flusher = store.threads.lock().as_mut().and_then(|threads| threads.flusher.take());
        flusher.unwrap().stop();
        store
    }

    /// Takes the lengths of tails that have grown, and syncs the tails, as [`super::note`] does without the lock.
    pub(crate) fn begin_noting(store: &SqliteStore) {
        let commit = store.db().begin_noting();
        store.log.sync_tails(&store.tails, commit).unwrap();
    }

    /// Notes the lengths that [`begin_noting`] has taken.
    pub(crate) fn end_noting(store: &SqliteStore, db: &Db) {
        db.end_noting(&store.log).unwrap();
        store.tails.growth().end(false);
    }

    fn copy_files(store: &SqliteStore, from: &Path, to: &Path) {
        // Nothing is committed while the files are copied.
        let _db = store.db();
        copy_files_held(store, from, to);
    }

    fn copy_files_held(store: &SqliteStore, from: &Path, to: &Path) {
        let _still = store.tails.freeze();
        for suffix in ["", "-wal", "-redo", "-sums", "-shm"] {
            let _ = fs::remove_file(beside(to, suffix));
        }
        for suffix in ["", "-wal", "-redo", "-sums"] {
            if beside(from, suffix).exists() {
                fs::copy(beside(from, suffix), beside(to, suffix)).unwrap();
            }
        }
        let (from, to) = (beside(from, "-tails"), beside(to, "-tails"));
        let _ = fs::remove_dir_all(&to);
        fs::create_dir(&to).unwrap();
        for tail in fs::read_dir(from).into_iter().flatten().flatten() {
            fs::copy(tail.path(), to.join(tail.file_name())).unwrap();
        }
    }

    pub(crate) fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    /// A mount with a file of [`LONG`] bytes that is synced, and to which 40,000 bytes were appended since; the file's bytes.
    fn appended() -> (Place, SqliteStore, Ino, Vec<u8>) {
        let place = Place::new();
        let store = place.open();
        let mut all = bytes(LONG);
        let ino = create(&store, "f0", &all);
        store.sync().unwrap();
        store.append(&OWNER, ino, LONG as u64, &[7; 40_000]).unwrap();
        all.extend([7; 40_000]);
        (place, store, ino, all)
    }

    #[test]
    fn a_mount_after_a_power_loss_cuts_an_append_that_was_not_synced() {
        for waits in [true, false] {
            let (place, store, ino, all) = appended();
            let synced = &all[..LONG];
            if !waits {
                store.db().commit().unwrap();
            }
            let tail = &synced[HEAD as usize..];
            for (at, left) in [
                ("no byte of it", tail.to_vec()),
                ("its length", [tail, &[0; 40_000]].concat()),
                ("a part of it", [tail, &[7; 9000]].concat()),
                ("its length and a part", [tail, &[7; 9000], &[0; 31_000]].concat()),
            ] {
                place.lose_power(&store, ino, Some(&left));
                place.must_have(ino, synced, at);
            }
        }
    }

    #[test]
    fn a_mount_after_a_power_loss_keeps_every_append_that_was_synced() {
        let place = Place::new();
        let store = place.open();
        let mut expected = bytes(LONG);
        let ino = create(&store, "f0", &expected);
        for round in 0..4 {
            let more = vec![round; 10_000];
            store.append(&OWNER, ino, expected.len() as u64, &more).unwrap();
            expected.extend(more);
            store.sync().unwrap();
            // Its rows and its end are newer than the sync.
            store.append(&OWNER, ino, expected.len() as u64, b"lost").unwrap();
            if round % 2 == 0 {
                store.db().commit().unwrap();
            }
            place.lose_power(&store, ino, Some(&expected[HEAD as usize..]));
            place.must_have(ino, &expected, &format!("round {round}"));
            resize(&store, ino, expected.len() as u64);
        }
    }

    #[test]
    fn a_tail_that_no_sync_has_seen_is_cut_to_the_first_bytes_of_its_file() {
        let place = Place::new();
        let store = place.open();
        store.sync().unwrap();
        let all = bytes(LONG);
        let ino = create(&store, "f0", &all);
        store.db().commit().unwrap();
        for (at, left) in [("no name", None), ("no byte", Some(Vec::new())), ("zeros", Some(vec![0; TAIL]))] {
            place.lose_power(&store, ino, left.as_deref());
            place.must_have(ino, &all[..HEAD as usize], at);
        }
    }

    #[test]
    fn a_truncated_file_that_has_grown_again_is_cut_to_its_synced_bytes() {
        let place = Place::new();
        let store = place.open();
        let old = bytes(LONG);
        let ino = create(&store, "f0", &old);
        store.sync().unwrap();
        resize(&store, ino, HEAD + 10);
        store.append(&OWNER, ino, HEAD + 10, &[9; 30_000]).unwrap();
        store.db().commit().unwrap();
        // The bytes from before the truncation are there, and the new ones are not.
        for left in [&old[HEAD as usize..], &old[HEAD as usize..][..30_010], &old[HEAD as usize..][..10]] {
            place.lose_power(&store, ino, Some(left));
            place.must_have(ino, &old[..HEAD as usize + 10], &format!("{} bytes", left.len()));
        }
        // All of it is synced.
        store.sync().unwrap();
        let new = [&old[..HEAD as usize + 10], &[9; 30_000]].concat();
        place.lose_power(&store, ino, Some(&new[HEAD as usize..]));
        place.must_have(ino, &new, "synced");
    }

    #[test]
    fn bytes_that_were_synced_and_are_gone_are_an_error_and_not_cut() {
        let (place, store, ino, all) = appended();
        let synced = &all[..LONG];
        store.db().commit().unwrap();
        for left in [Some(&synced[HEAD as usize..LONG - 1]), Some(&[][..]), None] {
            place.lose_power(&store, ino, left);
            let problems = check(&place.copy).unwrap().problems;
            assert!(problems.iter().any(|problem| problem.contains("is missing")), "{problems:?}");
            for _ in 0..2 {
                let again = SqliteStore::open(&place.copy, &OWNER).unwrap();
                assert_eq!(again.getattr(ino).unwrap().size, LONG as u64);
                let mut out = Vec::new();
                let error = again.read(ino, HEAD, TAIL, &mut out).unwrap_err();
                assert_eq!(error.errno, Errno::IO);
                let error = again.append(&OWNER, ino, LONG as u64, b"more").unwrap_err();
                assert_eq!(error.errno, Errno::IO);
                out.clear();
                again.read(ino, 0, HEAD as usize, &mut out).unwrap();
                assert!(out == synced[..HEAD as usize]);
            }
        }
    }

    #[test]
    fn bytes_that_have_survived_a_kill_survive_a_later_power_loss() {
        let (place, store, ino, all) = appended();
        place.kill(&store);
        let after_kill = open(&place.copy);
        assert!(read(&after_kill, ino) == all);
        let other = place.lose_power_of_copy(&after_kill);
        other.must_have(ino, &all, "power loss");
    }

    #[test]
    fn a_mount_notes_what_a_killed_one_left_although_another_program_has_removed_its_log() {
        let (place, store, ino, all) = appended();
        store.db().commit().unwrap();
        place.kill(&store);
        let other = rusqlite::Connection::open(&place.copy).unwrap();
        let count: u32 = other.query_row("SELECT count(*) FROM inode", (), |row| row.get(0)).unwrap();
        assert_eq!(count, 2);
        other.close().unwrap();
        assert!(!beside(&place.copy, "-wal").exists(), "the other program has removed it");
        let second = open(&place.copy);
        create(&second, "short", b"text");
        second.sync().unwrap();
        let lost = place.lose_power_of_copy(&second);
        fs::remove_file(beside(&lost.copy, "-sums")).unwrap();
        lost.must_have(ino, &all, "a power loss");
    }

    #[test]
    fn a_mount_after_a_power_loss_cuts_although_another_program_has_removed_the_log() {
        let (place, store, ino, all) = appended();
        let synced = &all[..LONG];
        store.db().commit().unwrap();
        let zeros = [&synced[HEAD as usize..], &[0; 40_000]].concat();
        place.lose_power(&store, ino, Some(&zeros));
        let other = rusqlite::Connection::open(&place.copy).unwrap();
        let count: u32 = other.query_row("SELECT count(*) FROM inode", (), |row| row.get(0)).unwrap();
        assert_eq!(count, 2);
        other.close().unwrap();
        assert!(!beside(&place.copy, "-wal").exists(), "the other program has removed it");
        place.must_have(ino, synced, "a power loss");
    }

    #[test]
    fn a_sync_notes_what_has_grown_since_its_tails_were_synced() {
        let place = Place::new();
        let store = place.open();
        let ino = create(&store, "f0", &bytes(LONG));
        // As if it had grown while another sync was under way.
        store.db().begin_noting();
        store.db().note_rest(&store.log).unwrap();
        assert_eq!(of(&store.db().connection, ino).unwrap().0, TAIL as u64);
        store.tails.growth().end(false);
    }

    #[test]
    fn an_unmount_keeps_the_synced_length_of_a_tail_that_has_lost_bytes() {
        let place = Place::new();
        let store = place.open();
        let ino = create(&store, "f0", &bytes(LONG));
        store.sync().unwrap();
        place.lose_power(&store, ino, Some(&[1; 100]));
        let damaged = SqliteStore::open(&place.copy, &OWNER).unwrap();
        assert_eq!(of(&damaged.db().connection, ino).unwrap().0, TAIL as u64);
        drop(damaged);
        let again = SqliteStore::open(&place.copy, &OWNER).unwrap();
        assert_eq!(of(&again.db().connection, ino).unwrap().0, TAIL as u64);
        assert_eq!(again.getattr(ino).unwrap().size, LONG as u64);
    }

    #[test]
    fn a_restart_after_a_kill_takes_nothing_that_the_checksum_file_shows_to_be_whole() {
        let place = Place::new();
        let store = place.open();
        let mut all = bytes(LONG);
        let ino = create(&store, "f0", &all);
        let new = create(&store, "f1", &all);
        store.sync().unwrap();
        for n in 0..30 {
            let more = vec![n; 3000];
            store.append(&OWNER, ino, all.len() as u64, &more).unwrap();
            all.extend(more);
        }
        store.tails.record_sums();
        place.kill(&store);
        forget_boot(&place.copy).unwrap();
        place.must_have(ino, &all, "a restart");
        // A byte that is not as it was written: after the synced ones, all is in doubt.
        for at in [LONG, LONG + 50_000, all.len() - 1] {
            let mut left = all[HEAD as usize..].to_vec();
            left[at - HEAD as usize] ^= 1;
            place.lose_power(&store, ino, Some(&left));
            place.must_have(ino, &all[..LONG], &format!("byte {at}"));
        }
        store.append(&OWNER, new, LONG as u64, &[7; 10]).unwrap();
        resize(&store, new, LONG as u64 + 5);
        store.append(&OWNER, new, LONG as u64 + 5, &[8; 10]).unwrap();
        store.tails.record_sums();
        place.kill(&store);
        forget_boot(&place.copy).unwrap();
        // Its bytes and their checksums could be those from before the truncation.
        place.must_have(new, &bytes(LONG), "after a truncation");
    }

    #[test]
    fn a_checksum_file_that_an_earlier_mount_has_begun_shows_nothing_after_a_restart() {
        let place = Place::new();
        let store = place.open();
        let mut all = bytes(LONG);
        let ino = create(&store, "f0", &all);
        store.append(&OWNER, ino, LONG as u64, &[7; 20_000]).unwrap();
        all.extend([7; 20_000]);
        store.tails.record_sums();
        place.kill(&store);
        let second = open(&place.copy);
        second.append(&OWNER, ino, all.len() as u64, &[8; 20_000]).unwrap();
        second.tails.record_sums();
        let other = place.lose_power_of_copy(&second);
        other.must_have(ino, &all, "a restart");
    }

    #[test]
    fn a_file_that_has_replaced_a_discarded_one_is_not_cut() {
        let place = Place::new();
        let store = place.open();
        let old = create(&store, "f0", &bytes(LONG));
        store.sync().unwrap();
        let all = [3; LONG];
        let new = create(&store, "f1", &all);
        let replaced = store.rename(&OWNER, (ROOT, b"f1"), (ROOT, b"f0"), RenameMode::Replace).unwrap();
        store.reclaim(replaced.unwrap()).unwrap();
        store.db().free_discards().unwrap();
        place.kill(&store);
        assert!(!place.tail(old).exists());
        fs::remove_file(beside(&place.copy, "-sums")).unwrap();
        forget_boot(&place.copy).unwrap();
        place.must_have(new, &all, "a power loss");
    }

    #[test]
    fn a_mount_without_a_log_cuts_nothing() {
        let place = Place::new();
        let store = place.open();
        store.sync().unwrap();
        let all = bytes(LONG);
        let ino = create(&store, "f0", &all);
        store.db().commit().unwrap();
        place.kill(&store);
        fs::remove_file(beside(&place.copy, "-redo")).unwrap();
        assert!(go_on_without_log(&place.copy).unwrap());
        forget_boot(&place.copy).unwrap();
        place.must_have(ino, &all, "without a log");
        // With a damaged one.
        place.kill(&store);
        let log = beside(&place.copy, "-redo");
        let whole = fs::read(&log).unwrap();
        let mut damaged = whole.clone();
        damaged[24] ^= 1;
        fs::write(&log, damaged).unwrap();
        assert!(go_on_without_log(&place.copy).unwrap());
        // A power loss before the mount undoes its removal.
        fs::write(&log, whole).unwrap();
        forget_boot(&place.copy).unwrap();
        fs::remove_file(beside(&place.copy, "-sums")).unwrap();
        place.must_have(ino, &all, "a damaged log");
    }

    #[test]
    fn a_truncation_during_a_sync_leaves_no_byte_noted_that_is_not_synced() {
        let place = Place::new();
        let store = place.open();
        let old = bytes(LONG);
        let ino = create(&store, "f0", &old);
        begin_noting(&store);
        resize(&store, ino, HEAD + 10);
        store.append(&OWNER, ino, HEAD + 10, &[9; 60_000]).unwrap();
        let before = store.counters()["tail_syncs"];
        store.db().end_noting(&store.log).unwrap();
        assert_eq!(store.counters()["tail_syncs"], before + 1, "the new bytes are not synced");
        assert_eq!(of(&store.db().connection, ino).unwrap().0, 60_010);
        store.tails.growth().end(false);
        // Without a truncation, an append meanwhile is not noted.
        store.append(&OWNER, ino, HEAD + 60_010, b"synced").unwrap();
        begin_noting(&store);
        store.append(&OWNER, ino, HEAD + 60_016, b"not synced").unwrap();
        store.db().end_noting(&store.log).unwrap();
        assert_eq!(of(&store.db().connection, ino).unwrap().0, 60_016);
        store.tails.growth().end(false);
        store.sync().unwrap();
        assert_eq!(of(&store.db().connection, ino).unwrap().0, 60_026);
        // A file that is removed meanwhile leaves nothing.
        store.append(&OWNER, ino, HEAD + 60_026, b"more").unwrap();
        begin_noting(&store);
        store.unlink(&OWNER, ROOT, b"f0").unwrap();
        store.reclaim(ino).unwrap();
        store.db().end_noting(&store.log).unwrap();
        store.tails.growth().end(false);
    }

    #[test]
    fn a_sync_notes_nothing_where_no_tail_has_grown() {
        let place = Place::new();
        let store = place.open();
        let ino = create(&store, "f0", &bytes(LONG));
        store.sync().unwrap();
        let statements = || store.counters()["sql_statements"];
        for round in 0..10 {
            store.write(&OWNER, ino, HEAD + 100 * round, &[9; 100]).unwrap();
        }
        let written = statements();
        store.sync().unwrap();
        assert_eq!(statements(), written);
        store.append(&OWNER, ino, LONG as u64, b"end").unwrap();
        let appended = statements();
        store.sync().unwrap();
        assert!(statements() <= appended + 1);
    }

    #[test]
    fn an_inode_whose_number_is_used_again_has_no_synced_bytes() {
        let place = Place::new();
        let store = place.open();
        let ino = create(&store, "f0", &bytes(LONG));
        store.sync().unwrap();
        store.unlink(&OWNER, ROOT, b"f0").unwrap();
        store.reclaim(ino).unwrap();
        store.db().commit().unwrap();
        place.kill(&store);
        let again = open(&place.copy);
        let other = Place::new();
        let new = create(&again, "f1", &[3; LONG]);
        assert_eq!(new, ino);
        again.db().commit().unwrap();
        copy_files(&again, &place.copy, &other.copy);
        fs::write(other.tail(new), [0; 10]).unwrap();
        forget_boot(&other.copy).unwrap();
        other.must_have(new, &[3; HEAD as usize], "the number is used again");
    }
}
