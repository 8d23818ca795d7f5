//! Files that replace others by a rename. A power loss must not leave the new file without its end when the old one is gone.
//!
//! A rename syncs nothing, and neither does its record in the redo log: after a power loss, a mount makes only the changes before
//! the first that has replaced a file by one whose tail was not synced. The commit syncs that tail, and notes its length: what
//! is in SQLite's log is not taken back. The commit thread does so before it takes the lock.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use fuse::store::{Attr, Errno, Ino, Kind, RenameMode, Result};

use crate::content::tail_length;
use crate::db::Db;
use crate::record::Record;
use crate::synced_rows::set;
use crate::{names, nodes};

impl Db {
    /// A file has replaced another one.
    pub(super) fn replaces(&self, attr: &Attr) {
        if self.needs_sync(attr) {
            self.tails.growth().must_be_noted(attr.ino);
            let mut replacing = self.replacing.borrow_mut();
            replacing.inos.insert(attr.ino);
            replacing.unrecorded.push((attr.ino, tail_length(attr.size)));
        }
    }

    /// Whether a power loss may take bytes of a file's tail.
    fn needs_sync(&self, attr: &Attr) -> bool {
        let is_unsynced = || self.tails.growth().has_grown(attr.ino) || self.tails.is_unsynced(attr.ino);
        attr.kind == Kind::File && tail_length(attr.size) > 0 && is_unsynced()
    }

    /// Whether a power loss may take bytes of any tail.
    pub(super) fn has_unsynced_tails(&self) -> bool {
        self.tails.growth().has_any() || self.tails.are_any_unsynced()
    }

    /// Whether a rename is about to replace a file by one that needs a sync.
    pub(super) fn would_replace(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<bool> {
        let (Some(source), true) = (names::find(self, from.0, from.1)?, mode.replaces()) else {
            return Ok(false);
        };
        let needs_sync = nodes::find(self, source.ino)?.is_some_and(|attr| self.needs_sync(&attr));
        Ok(needs_sync && names::find(self, to.0, to.1)?.is_some())
    }

    /// The files that have replaced others, and have tails that are not noted as synced.
    pub(super) fn unsynced_replacing(&self) -> BTreeSet<Ino> {
        let mut inos = self.replacing.borrow().inos.clone();
        inos.retain(|ino| self.tails.growth().has_grown(*ino));
        inos
    }

    /// Whether a change is committed at once, or fills the redo log, and would so sync such files with the lock.
    pub(super) fn would_sync_replacing(&self, can_wait: impl FnOnce(&Self) -> Result<bool>) -> bool {
        !self.unsynced_replacing().is_empty()
            && (self.is_stuck.get() || self.is_last_to_wait() || !can_wait(self).unwrap_or(false))
    }

    /// Whether the next change may have to be committed before it returns, whichever it is.
    pub(super) fn is_last_to_wait(&self) -> bool {
        let redo = self.redo.borrow();
        redo.as_ref().is_none_or(|redo| redo.is_nearly_full() || !redo.can_wait())
    }

    /// Syncs the tails of the files that have replaced others, and notes their lengths in the open transaction, which is about to
    /// be committed. Where the disk has no room for the note, or fails, the commit goes on without: a rename always succeeds.
    pub(super) fn note_replacing(&self) -> Result<()> {
        let lengths = self.tail_lengths(self.unsynced_replacing());
        let Some(log) = self.log.get().filter(|_| !lengths.is_empty()) else {
            return Ok(());
        };
        #[cfg(test)]
        self.synced_with_lock.set(true);
        if let Err(error) = log.sync_some(&self.tails, lengths.keys().copied()) {
            tracing::warn!(%error, "a power loss may cut a file that has replaced another one just now");
            return Ok(());
        }
        let lengths: Vec<(Ino, u64)> = lengths.into_iter().collect();
        self.execute("SAVEPOINT replacing", ())?;
        let noted = set(self, &lengths).and_then(|()| self.take_room());
        if let Err(error) = &noted
            && error.errno == Errno::NOSPC
            && !self.connection.is_autocommit()
        {
            tracing::warn!(%error, "a power loss may cut a file that has replaced another one just now");
            self.execute("ROLLBACK TO replacing", ())?;
        } else {
            noted?;
        }
        self.execute("RELEASE replacing", ())?;
        Ok(())
    }

    /// As [`Db::note_replacing`], as a change of its own in the redo log, of tails that are synced. Another change may be under way.
    pub(super) fn record_replacing(&self) -> Result<()> {
        let lengths: Vec<(Ino, u64)> = self.tail_lengths(self.unsynced_replacing()).into_iter().collect();
        if lengths.is_empty() {
            return Ok(());
        }
        set(self, &lengths)?;
        self.append(&Record::TailsSynced { lengths: Cow::Owned(lengths) })
    }
}

/// A part of a tail that a change needs.
#[derive(Clone, Copy, Debug)]
struct Need {
    /// The index of the change.
    change: usize,
    length: u64,
}

/// Which changes need tails, and with which later ones these are synced. What was noted before a change is of no account: the tail
/// may have been overwritten since.
#[derive(Debug, Default)]
struct Needs {
    open: HashMap<Ino, Need>,
    /// The changes that need something, and the change with which it is synced.
    met: Vec<(usize, usize)>,
}

impl Needs {
    fn need(&mut self, at: usize, ino: Ino, length: u64) {
        let need = self.open.entry(ino).or_insert(Need { change: at, length });
        need.length = need.length.max(length);
    }

    /// With change `at`, so much of a tail is synced.
    fn synced(&mut self, at: usize, ino: Ino, synced: u64) {
        if let Some(need) = self.open.get(&ino).copied().filter(|need| need.length <= synced) {
            self.open.remove(&ino);
            self.met.push((need.change, at));
        }
    }

    /// With change `at`, a tail has at most so many bytes.
    fn cut(&mut self, at: usize, ino: Ino, length: u64) {
        if let Some(need) = self.open.get_mut(&ino) {
            need.length = need.length.min(length);
        }
        // An empty one is synced.
        self.synced(at, ino, 0);
    }

    /// Of `count` changes, how many come before the first whose need is not met by one of them.
    fn met(mut self, count: usize) -> usize {
        let unmet = self.open.values().map(|need| need.change).min();
        let mut end = unmet.unwrap_or(count);
        self.met.sort_unstable_by_key(|(_, met_by)| Reverse(*met_by));
        for (change, met_by) in self.met {
            if met_by >= end {
                end = end.min(change);
            }
        }
        end
    }
}

/// The files that have replaced others by these changes of a redo log, with tails that were not synced.
pub(super) fn needed(payloads: &[Vec<u8>]) -> BTreeSet<Ino> {
    let needed = payloads.iter().filter_map(|payload| match postcard::from_bytes(payload) {
        Ok(Record::TailNeeded { ino, .. }) => Some(ino),
        _ => None,
    });
    needed.collect()
}

/// How many of these changes of a redo log a mount makes after a power loss, in a database that lacks them.
pub(super) fn whole_changes(payloads: &[Vec<u8>]) -> usize {
    let mut needs = Needs::default();
    for (at, payload) in payloads.iter().enumerate() {
        // A record that cannot be read says nothing; `record::redo` refuses it.
        let Ok(record) = postcard::from_bytes::<Record<'_>>(payload) else {
            continue;
        };
        match record {
            Record::TailNeeded { ino, length } => needs.need(at, ino, length),
            Record::TailsSynced { lengths } => {
                lengths.iter().for_each(|(ino, length)| needs.synced(at, *ino, *length));
            }
            Record::SetAttr { ino, change, .. } => {
                if let Some(size) = change.size {
                    needs.cut(at, ino, tail_length(size));
                }
            }
            // Of a file that is gone, nothing is needed.
            Record::Reclaim { ino } => needs.cut(at, ino, 0),
            _ => {}
        }
    }
    needs.met(payloads.len())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use fuse::store::{Change, ROOT, RenameMode, Store};

    use super::*;
    use crate::db::GuestRecovery;
    use crate::files::beside;
    use crate::free_tails::tests::{LONG, create, dice, read, resize, seeds};
    use crate::log_mark::tests::OWNER;
    use crate::set_aside::TailName;
    use crate::synced::tests::{Place, TAIL, bytes, open};
    use crate::synced_rows::of;
    use crate::{HEAD, SqliteStore, check, forget_boot};

    static NEW: [u8; LONG] = [3; LONG];

    /// A synced file, and one that has its rows committed and is about to replace it.
    fn files(store: &SqliteStore) -> (Ino, Ino) {
        let old = create(store, "f0", &bytes(LONG));
        store.sync().unwrap();
        let new = create(store, "f1", &NEW);
        store.db().commit().unwrap();
        (old, new)
    }

    fn replace(store: &SqliteStore, db: &Db) {
        let replaced = store.rename_held(db, &OWNER, (ROOT, b"f1"), (ROOT, b"f0"), RenameMode::Replace);
        assert!(replaced.unwrap().is_some());
    }

    /// The files that a mount of what a power loss leaves has.
    fn left(place: &Place) -> BTreeMap<&'static str, Vec<u8>> {
        assert_eq!(check(&place.copy).unwrap().problems, Vec::<String>::new());
        let store = open(&place.copy);
        let found = ["f0", "f1", "f2"].into_iter().filter_map(|name| {
            let ino = store.lookup(ROOT, name.as_bytes()).ok()?.ino;
            Some((name, read(&store, ino)))
        });
        let found = found.collect();
        drop(store);
        assert_eq!(check(&place.copy).unwrap().problems, Vec::<String>::new());
        found
    }

    /// Takes from a copy what was not synced of the tail of an inode, and makes it one of before a restart of the machine.
    fn lose_tail(place: &Place, ino: Ino) {
        let file = std::fs::File::options().write(true).open(place.tail(ino)).unwrap();
        file.set_len(0).unwrap();
        std::fs::remove_file(beside(&place.copy, "-sums")).unwrap();
        forget_boot(&place.copy).unwrap();
    }

    /// Takes from a copy what no sync has made durable of the tails, and makes it one of before a restart of the machine.
    fn lose_unsynced(place: &Place, store: &SqliteStore) {
        for tail in std::fs::read_dir(beside(&place.copy, "-tails")).unwrap() {
            let tail = tail.unwrap();
            let name = TailName::parse(&tail.file_name()).unwrap();
            let durable = store.tails.durable.lock().get(&name).cloned().unwrap_or_default();
            let file = std::fs::File::options().write(true).open(tail.path()).unwrap();
            let length = file.metadata().unwrap().len().min(durable.len() as u64);
            file.set_len(0).unwrap();
            file.write_all_at(&durable[..length as usize], 0).unwrap();
        }
        forget_boot(&place.copy).unwrap();
    }

    #[test]
    fn a_power_loss_leaves_the_whole_old_file_or_the_whole_new_one() {
        const NAMES: [&str; 3] = ["f0", "f1", "f2"];
        for seed in 1..=2_u64 {
            let place = Place::new();
            let store = place.open();
            let mut state = seed;
            let mut random = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                ((state >> 33) % below) as usize
            };
            // The length and the byte of each content that a name had, and which of them was synced last.
            let mut contents: BTreeMap<&str, Vec<(usize, u8)>> = BTreeMap::new();
            let mut synced: BTreeMap<&str, usize> = BTreeMap::new();
            for name in NAMES {
                create(&store, name, &[0; LONG]);
                contents.insert(name, vec![(LONG, 0)]);
            }
            store.sync().unwrap();
            for round in 1..=20_u8 {
                let name = NAMES[random(3)];
                let length = [HEAD as usize - 10, HEAD as usize + 10, LONG][random(3)];
                let new = create(&store, "new", b"");
                if random(2) == 0 {
                    // It is made longer first, and then filled.
                    resize(&store, new, length as u64);
                    if random(2) == 0 {
                        store.sync().unwrap();
                        synced.extend(contents.iter().map(|(name, all)| (*name, all.len() - 1)));
                    }
                }
                for at in (0..length).step_by(HEAD as usize / 2) {
                    let bytes = vec![round; (length - at).min(HEAD as usize / 2)];
                    store.write(&OWNER, new, at as u64, &bytes).unwrap();
                }
                let to = (ROOT, name.as_bytes());
                let replaced = store.rename(&OWNER, (ROOT, b"new"), to, RenameMode::Replace).unwrap();
                store.reclaim(replaced.unwrap()).unwrap();
                contents.get_mut(name).unwrap().push((length, round));
                match random(6) {
                    0 => store.db().commit().unwrap(),
                    1 => store.db().free_discards().unwrap(),
                    2 => {
                        store.sync().unwrap();
                        synced.extend(contents.iter().map(|(name, all)| (*name, all.len() - 1)));
                    }
                    _ => {}
                }
                {
                    let _db = store.db();
                    place.kill_held(&store);
                }
                lose_unsynced(&place, &store);
                let left = left(&place);
                for (name, all) in &contents {
                    let bytes = &left[name];
                    let is = |(length, byte): &(usize, u8)| bytes.len() == *length && bytes.iter().all(|it| it == byte);
                    let found = all.iter().rposition(is);
                    let at = format!("seed {seed}, round {round}, {name}: {} bytes", bytes.len());
                    assert!(found.is_some_and(|found| found >= synced.get(name).copied().unwrap_or(0)), "{at}");
                }
            }
        }
    }

    /// The logs as their last syncs have left them.
    struct Logs {
        syncs: [u64; 2],
        database: Vec<u8>,
        synced: [Vec<u8>; 2],
    }

    impl Logs {
        const NAMES: [&str; 2] = ["-wal", "-redo"];

        /// After a sync of everything, and with the lock.
        fn of(place: &Place, store: &SqliteStore) -> Self {
            let read = |suffix| std::fs::read(beside(&place.path, suffix)).unwrap();
            Self { syncs: Self::syncs(store), database: read(""), synced: Self::NAMES.map(read) }
        }

        fn syncs(store: &SqliteStore) -> [u64; 2] {
            let counters = store.counters();
            [counters["log_syncs"], counters["redo_syncs"]]
        }

        /// Takes over what was synced meanwhile; false after a checkpoint, whose syncs are not counted.
        fn observe(&mut self, place: &Place, store: &SqliteStore) -> bool {
            let now = Self::of(place, store);
            let is_same = now.database == self.database;
            for (at, bytes) in now.synced.into_iter().enumerate() {
                if now.syncs[at] != self.syncs[at] {
                    self.synced[at] = bytes;
                }
            }
            self.syncs = now.syncs;
            is_same
        }
    }

    /// The content of a file after a power loss: each page is as at its last sync, or, with a chance of so many quarters, as now.
    fn mixed(old: &[u8], new: &[u8], share: u64, random: &mut impl FnMut(u64) -> u64) -> Vec<u8> {
        let length = if random(4) < share { new.len() } else { old.len() };
        let mut bytes = vec![0; length];
        for at in (0..length).step_by(4096) {
            let source = if random(4) < share { new } else { old };
            let end = (at + 4096).min(length).min(source.len());
            if at < end {
                bytes[at..end].copy_from_slice(&source[at..end]);
            }
        }
        bytes
    }

    /// Loses the power again and again, amid long writes, renames and truncations; how many of these wait for their commit. A disk
    /// that `forgets` keeps nothing that was synced of a tail.
    fn lose_power_amid_long_writes(seed: u64, forgets: bool) -> u32 {
        const NAMES: [&str; 3] = ["f0", "f1", "f2"];
        const HEAD_BYTES: usize = HEAD as usize;
        let mut waited = 0;
        let place = Place::new();
        let store = place.open();
        let mut random = dice(seed);
        // The length and the byte of each content that a name had, and whether a power loss may cut it; and which of them was
        // synced last.
        let mut contents: BTreeMap<&str, Vec<(usize, u8, bool)>> = BTreeMap::new();
        let mut synced: BTreeMap<&str, usize> = BTreeMap::new();
        for name in NAMES {
            create(&store, name, &[0; LONG]);
            contents.insert(name, vec![(LONG, 0, false)]);
        }
        let other = create(&store, "other", &[0; LONG]);
        store.sync().unwrap();
        let mut logs = Logs::of(&place, &store);
        for round in 1..=60_u8 {
            let name = NAMES[random(3) as usize];
            let length = [100, HEAD_BYTES - 10, HEAD_BYTES, HEAD_BYTES + 10, LONG][random(5) as usize];
            let bytes = vec![round; length];
            match random(4) {
                0 => store.write(&OWNER, other, HEAD + random(40_000), &bytes[..100]).unwrap(),
                1 => {
                    let ino = store.lookup(ROOT, name.as_bytes()).unwrap().ino;
                    resize(&store, ino, 0);
                    store.write(&OWNER, ino, 0, &bytes).unwrap();
                    contents.get_mut(name).unwrap().push((length, round, true));
                }
                _ => {
                    create(&store, "new", &bytes);
                    let to = (ROOT, name.as_bytes());
                    let replaced = store.rename(&OWNER, (ROOT, b"new"), to, RenameMode::Replace).unwrap();
                    store.reclaim(replaced.unwrap()).unwrap();
                    contents.get_mut(name).unwrap().push((length, round, false));
                }
            }
            waited += u32::from(store.db().has_open_changes());
            match random(8) {
                0 => store.db().commit().unwrap(),
                1 => crate::synced::note_replacing(&store.db).unwrap(),
                2 => store.db().free_discards().unwrap(),
                3 => {
                    store.sync().unwrap();
                    synced.extend(contents.iter().map(|(name, all)| (*name, all.len() - 1)));
                }
                _ => {}
            }
            let mut db = store.db();
            if !logs.observe(&place, &store) {
                drop(db);
                store.sync().unwrap();
                synced.extend(contents.iter().map(|(name, all)| (*name, all.len() - 1)));
                db = store.db();
                logs = Logs::of(&place, &store);
            }
            if forgets {
                store.tails.durable.lock().clear();
            }
            place.kill_held(&store);
            let (of_logs, of_tails) = (random(5), random(5));
            for (suffix, synced) in Logs::NAMES.iter().zip(&logs.synced) {
                let log = beside(&place.copy, suffix);
                let left = mixed(synced, &std::fs::read(&log).unwrap(), of_logs, &mut random);
                std::fs::write(log, left).unwrap();
            }
            for tail in std::fs::read_dir(beside(&place.copy, "-tails")).unwrap() {
                let tail = tail.unwrap();
                let name = TailName::parse(&tail.file_name()).unwrap();
                let durable = store.tails.durable.lock().get(&name).cloned().unwrap_or_default();
                let left = mixed(&durable, &std::fs::read(tail.path()).unwrap(), of_tails, &mut random);
                let file = std::fs::File::options().write(true).open(tail.path()).unwrap();
                file.set_len(0).unwrap();
                file.write_all_at(&left, 0).unwrap();
            }
            drop(db);
            forget_boot(&place.copy).unwrap();
            let left = left(&place);
            for (name, all) in &contents {
                let bytes = &left[name];
                let is = |(length, byte, is_cut): &(usize, u8, bool)| {
                    let is_cut = *is_cut && (bytes.is_empty() || bytes.len() == HEAD_BYTES.min(*length));
                    (bytes.len() == *length || is_cut) && bytes.iter().all(|it| it == byte)
                };
                let found = all.iter().rposition(is);
                let at = format!("seed {seed}, round {round}, {name}: {} bytes", bytes.len());
                assert!(found.is_some_and(|found| found >= synced.get(name).copied().unwrap_or(0)), "{at}");
            }
        }
        waited
    }

    #[test]
    fn a_power_loss_amid_long_writes_leaves_each_file_of_one_moment() {
        let waited: u32 = seeds(2).map(|seed| lose_power_amid_long_writes(seed, false)).sum();
        assert!(waited > 20, "{waited} changes waited for their commit");
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn a_power_loss_that_takes_synced_tails_is_found() {
        lose_power_amid_long_writes(1, true);
    }

    #[test]
    fn a_commit_syncs_the_tail_of_a_file_that_replaces_another_one() {
        let place = Place::new();
        let store = place.open();
        let (_, new) = files(&store);
        {
            let db = store.db();
            replace(&store, &db);
            let syncs = || store.counters()["tail_syncs"];
            let before = syncs();
            db.commit().unwrap();
            assert_eq!(syncs(), before + 1);
            assert_eq!(of(&db.connection, new).unwrap().0, TAIL as u64);
            place.kill_held(&store);
        }
        std::fs::remove_file(beside(&place.copy, "-sums")).unwrap();
        forget_boot(&place.copy).unwrap();
        place.must_have(new, &NEW, "a power loss");
    }

    #[test]
    fn a_power_loss_undoes_a_rename_over_a_file_that_waits_for_its_commit() {
        let place = Place::new();
        let store = place.open();
        let (_, new) = files(&store);
        {
            let db = store.db();
            replace(&store, &db);
            store.rename_held(&db, &OWNER, (ROOT, b"f0"), (ROOT, b"f2"), RenameMode::Replace).unwrap();
            place.kill_held(&store);
        }
        lose_tail(&place, new);
        let head = NEW[..HEAD as usize].to_vec();
        assert!(left(&place) == BTreeMap::from([("f0", bytes(LONG)), ("f1", head)]));
    }

    /// Has a longer file of zeros that is noted as synced, and fills it; `note` notes what is synced of it meanwhile.
    fn fill_and_replace(place: &Place, store: &SqliteStore, note: bool) -> Ino {
        create(store, "f0", &bytes(LONG));
        let new = create(store, "f1", b"");
        resize(store, new, LONG as u64);
        store.sync().unwrap();
        if note {
            store.tails.growth().grew(new);
            crate::synced::tests::begin_noting(store);
        }
        store.write(&OWNER, new, 0, &NEW[..HEAD as usize]).unwrap();
        store.write(&OWNER, new, HEAD, &NEW[HEAD as usize..]).unwrap();
        {
            let db = store.db();
            db.commit().unwrap();
            replace(store, &db);
            if note {
                crate::synced::tests::end_noting(store, &db);
            }
            place.kill_held(store);
        }
        new
    }

    #[test]
    fn a_power_loss_undoes_a_rename_of_a_file_that_was_made_longer_before_it_was_filled() {
        for note in [false, true] {
            let place = Place::new();
            let store = place.open();
            let new = fill_and_replace(&place, &store, note);
            lose_unsynced(&place, &store);
            let found = left(&place);
            assert!(found["f0"] == bytes(LONG), "note {note}");
            let zeros = [&NEW[..HEAD as usize], &[0; TAIL]].concat();
            assert!(found["f1"] == zeros, "note {note}");
            // After a sync, it has all bytes.
            store.sync().unwrap();
            {
                let _db = store.db();
                place.kill_held(&store);
            }
            lose_unsynced(&place, &store);
            place.must_have(new, &NEW, "a sync");
            assert!(left(&place).keys().eq(["f0"].iter()), "note {note}");
        }
    }

    #[test]
    fn a_file_that_loses_its_tail_after_it_has_replaced_another_one_is_synced_without() {
        let place = Place::new();
        let store = place.open();
        let (_, new) = files(&store);
        replace(&store, &store.db());
        resize(&store, new, 10);
        crate::synced::note_replacing(&store.db).unwrap();
        store.sync().unwrap();
        // As after a race with the truncation.
        store.tails.sync_some([new]).unwrap();
        assert_eq!(read(&store, new), NEW[..10]);
    }

    #[test]
    fn a_mount_after_a_kill_notes_the_tail_of_a_file_that_has_replaced_another_one() {
        let place = Place::new();
        let store = place.open();
        let (_, new) = files(&store);
        {
            let db = store.db();
            replace(&store, &db);
            place.kill_held(&store);
        }
        let ownership = crate::open_and_lock(&place.copy).unwrap();
        let counters = Arc::new(crate::Counters::default());
        let tails = Arc::new(crate::Tails::new(&place.copy, Arc::clone(&counters)).unwrap());
        let room = Arc::new(crate::Room::new(ownership.file()));
        let db = Db::new(crate::connect(&place.copy).unwrap(), tails, room, counters, GuestRecovery::NONE);
        assert!(crate::batch::recover(&db, &place.copy).unwrap() > 0);
        assert_eq!(of(&db.connection, new).unwrap().0, TAIL as u64);
    }

    #[test]
    fn a_rename_over_a_file_that_was_synced_survives_a_power_loss() {
        for size in [LONG, LONG - 10, HEAD as usize - 10] {
            let place = Place::new();
            let store = place.open();
            let (_, new) = files(&store);
            replace(&store, &store.db());
            resize(&store, new, size as u64);
            store.sync().unwrap();
            {
                let _db = store.db();
                place.kill_held(&store);
            }
            std::fs::remove_file(beside(&place.copy, "-sums")).unwrap();
            forget_boot(&place.copy).unwrap();
            assert!(left(&place) == BTreeMap::from([("f0", NEW[..size].to_vec())]), "{size} bytes");
        }
    }

    #[test]
    fn the_commit_thread_syncs_before_it_takes_the_lock() {
        let place = Place::new();
        let store = place.open();
        let (_, new) = files(&store);
        replace(&store, &store.db());
        crate::synced::note_replacing(&store.db).unwrap();
        let db = store.db();
        assert_eq!(of(&db.connection, new).unwrap().0, TAIL as u64);
        assert!(db.unsynced_replacing().is_empty());
        let syncs = || store.counters()["tail_syncs"];
        let before = syncs();
        db.commit().unwrap();
        assert_eq!(syncs(), before);
    }

    /// Lets the redo log be one change away from its commit.
    fn fill_redo_log(db: &Db) {
        while !db.is_last_to_wait() {
            db.append(&Record::TailNeeded { ino: 99, length: 0 }).unwrap();
        }
    }

    type Call = (&'static str, fn(&SqliteStore));

    #[test]
    fn no_call_syncs_a_file_that_has_replaced_another_one_with_the_lock() {
        let calls: [Call; 7] = [
            ("a long write that the redo log has no space for", |store| {
                for n in 3..8 {
                    create(store, &format!("f{n}"), &[1; LONG]);
                }
            }),
            ("a longer write than any that waits", |store| {
                create(store, "f3", &vec![1; 2 << 20]);
            }),
            ("a call that makes a file longer", |store| {
                let ino = create(store, "f3", b"text");
                resize(store, ino, HEAD + 1);
            }),
            ("the last record", |store| {
                fill_redo_log(&store.db());
                create(store, "f3", b"text");
                create(store, "f4", b"text");
            }),
            ("a rename with the last record", |store| {
                fill_redo_log(&store.db());
                let to = (ROOT, &b"f0"[..]);
                let replaced = store.rename(&OWNER, (ROOT, b"f2"), to, RenameMode::Replace).unwrap();
                store.reclaim(replaced.unwrap()).unwrap();
            }),
            ("the removal of a long file", |store| {
                let gone = store.unlink(&OWNER, ROOT, b"f2").unwrap();
                store.tails.set_tight(true);
                store.reclaim(gone.unwrap()).unwrap();
            }),
            ("a truncation", |store| {
                let ino = store.lookup(ROOT, b"f2").unwrap().ino;
                store.tails.set_tight(true);
                resize(store, ino, 10);
                assert!(!store.tails.has_discards());
            }),
        ];
        for (call, work) in calls {
            let place = Place::new();
            let store = place.open();
            let (old, _) = files(&store);
            create(&store, "f2", &NEW);
            replace(&store, &store.db());
            store.reclaim(old).unwrap();
            work(&store);
            assert!(!store.db().synced_with_lock.get(), "{call}");
            assert!(read(&store, store.lookup(ROOT, b"f0").unwrap().ino) == NEW, "{call}");
        }
    }

    #[test]
    fn a_rename_that_cannot_wait_for_its_commit_syncs_its_file_without_the_lock() {
        for is_overwritten in [false, true] {
            let place = Place::new();
            let store = place.open();
            let (_, new) = files(&store);
            let mut expected = NEW;
            if is_overwritten {
                store.sync().unwrap();
                store.write(&OWNER, new, HEAD + 10, b"other").unwrap();
                expected[HEAD as usize + 10..][..5].copy_from_slice(b"other");
            }
            // As where the disk has no room for changes that wait.
            store.db().commit().unwrap();
            store.db().redo.take();
            let replaced = store.rename(&OWNER, (ROOT, b"f1"), (ROOT, b"f0"), RenameMode::Replace).unwrap();
            store.reclaim(replaced.unwrap()).unwrap();
            assert!(!store.db().synced_with_lock.get(), "overwritten {is_overwritten}");
            {
                let _db = store.db();
                place.kill_held(&store);
            }
            lose_unsynced(&place, &store);
            assert!(left(&place) == BTreeMap::from([("f0", expected.to_vec())]), "overwritten {is_overwritten}");
        }
    }

    #[test]
    fn a_rename_over_a_file_succeeds_without_room_for_the_synced_length() {
        let place = Place::new();
        let store = place.open();
        let (_, new) = files(&store);
        let db = store.db();
        replace(&store, &db);
        db.full_after.set(Some(1));
        db.commit().unwrap();
        assert_eq!(db.full_after.get(), None);
        assert_eq!(of(&db.connection, new).unwrap().0, 0);
        drop(db);
        store.sync().unwrap();
        assert_eq!(of(&store.db().connection, new).unwrap().0, TAIL as u64);
        assert!(read(&store, store.lookup(ROOT, b"f0").unwrap().ino) == NEW);
    }

    #[test]
    fn renames_that_replace_no_file_or_a_short_one_sync_nothing() {
        let place = Place::new();
        let store = place.open();
        files(&store);
        create(&store, "short", b"text");
        let db = store.db();
        let syncs = || store.counters()["tail_syncs"];
        let before = syncs();
        for (from, to, mode) in [
            ("f1", "f2", RenameMode::Replace),
            ("short", "f0", RenameMode::Replace),
            ("f2", "f0", RenameMode::Exchange),
        ] {
            store.rename_held(&db, &OWNER, (ROOT, from.as_bytes()), (ROOT, to.as_bytes()), mode).unwrap();
            db.commit().unwrap();
        }
        assert_eq!(syncs(), before);
    }

    #[test]
    fn a_truncated_file_that_grows_keeps_a_rename_over_a_file() {
        let place = Place::new();
        let store = place.open();
        let (old, new) = files(&store);
        let cut = create(&store, "f2", &bytes(LONG));
        store.sync().unwrap();
        let more = create(&store, "f3", &NEW);
        {
            let db = store.db();
            db.commit().unwrap();
            store.rename_held(&db, &OWNER, (ROOT, b"f3"), (ROOT, b"f0"), RenameMode::Replace).unwrap();
            let change = Change { size: Some(HEAD + 10), ..Change::default() };
            store.setattr_held(&db, &OWNER, cut, &change).unwrap();
            // It overwrites the end that the truncation has discarded.
            db.claim_end(cut, 100);
            place.kill_held(&store);
        }
        assert_ne!((old, new), (cut, more));
        std::fs::remove_file(beside(&place.copy, "-sums")).unwrap();
        forget_boot(&place.copy).unwrap();
        let left = left(&place);
        assert!(left["f0"] == NEW);
        assert!(left["f2"] == bytes(LONG)[..HEAD as usize + 10]);
    }

    #[test]
    fn changes_are_made_again_up_to_the_first_that_needs_an_unsynced_tail() {
        let need = |ino, length| Record::TailNeeded { ino, length };
        let synced = |lengths: &[(Ino, u64)]| Record::TailsSynced { lengths: Cow::Owned(lengths.to_vec()) };
        let resize = |ino, length| {
            let change = Change { size: Some(HEAD + length), ..Change::default() };
            Record::SetAttr { caller: OWNER, ino, change }
        };
        let other = || Record::Rmdir { caller: OWNER, parent: ROOT, name: b"d" };
        for (expected, records) in [
            (2, vec![other(), other()]),
            (1, vec![other(), need(7, 10), other()]),
            (3, vec![need(7, 10), other(), synced(&[(7, 10)])]),
            (0, vec![need(7, 10), other(), synced(&[(7, 9), (8, 10)])]),
            // What was synced before may have been overwritten.
            (1, vec![synced(&[(7, 10)]), need(7, 10), other()]),
            // A later change needs less, or nothing.
            (0, vec![need(7, 10), resize(7, 9), other()]),
            (3, vec![need(7, 10), resize(7, 9), synced(&[(7, 9)])]),
            (2, vec![need(7, 10), resize(7, 0)]),
            (2, vec![need(7, 10), Record::Reclaim { ino: 7 }]),
            // The sync of the first comes after the second, which has none.
            (0, vec![need(7, 10), need(8, 10), synced(&[(7, 10)])]),
            (2, vec![need(7, 10), synced(&[(7, 10)]), need(8, 10), other()]),
            (2, vec![need(7, 10), synced(&[(7, 10)]), need(7, 20), need(7, 30), synced(&[(7, 20)])]),
        ] {
            let encode = |record: &Record<'_>| {
                let mut bytes = Vec::new();
                record.encode(&mut bytes).unwrap();
                bytes
            };
            let payloads: Vec<Vec<u8>> = records.iter().map(encode).collect();
            assert_eq!(whole_changes(&payloads), expected, "{records:?}");
        }
    }
}
