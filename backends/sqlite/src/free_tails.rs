//! When a change discards tails, and when they are removed: as soon as the state that no longer needs them is durable.

use fuse::store::{Errno, Ino, Result, StoreError};

use crate::db::Db;
use crate::redo::Redo;
use crate::tail_rows;

impl Db {
    /// The number of the commit that holds the last change.
    pub(super) fn last_commit(&self) -> u64 {
        let commits = self.log.get().map_or(0, |log| log.commits());
        commits + u64::from(self.has_open_changes())
    }

    /// Removes the tail of a removed inode, once the removal is durable.
    pub(super) fn discard_tail(&self, ino: Ino) {
        self.tails.discard(ino, self.last_commit());
    }

    /// Cuts a tail that the last change has shortened, once that change is durable.
    pub fn discard_end(&self, ino: Ino, length: u64) {
        let commit = self.last_commit();
        let change = match length {
            0 => self.redo.borrow().as_ref().map(Redo::last_change),
            _ => None,
        };
        let is_aside = change.is_some_and(|change| {
            let renamed = self.tails.set_aside(ino, change, commit);
            renamed.inspect_err(|error| tracing::warn!(ino, %error, "could not set a tail aside")).is_ok()
        });
        if !is_aside {
            match tail_rows::of(self, ino) {
                Ok(_) => self.tails.discard_end(ino, length, commit),
                Err(error) => tracing::warn!(ino, %error, "could not free the space of a tail"),
            }
        }
    }

    /// Cuts off the discarded end of a tail, before its bytes up to `end` are written.
    pub(super) fn claim_end(&self, ino: Ino, end: u64) {
        if self.tails.discarded_end(ino).is_none_or(|length| end <= length) {
            return;
        }
        if let Err(error) = self.settle_changes() {
            // The disk has failed: a power loss now leaves the overwritten bytes as the underlying file system has
            // them.
            tracing::warn!(ino, %error, "a truncated file grows before that is durable");
        }
        self.tails.cut_discarded(ino, u64::MAX);
    }

    /// Makes every change whose call has returned durable, without a commit.
    fn settle_changes(&self) -> Result<()> {
        let Some(log) = self.log.get() else {
            return Ok(());
        };
        log.sync(&self.tails)?;
        self.record_replacing()?;
        match self.promise() {
            Some(recorded) => log.sync_redo(&recorded, &self.tails),
            None if !self.has_open_changes() => Ok(()),
            None => Err(StoreError::storage(Errno::IO, "the redo log is not durable")),
        }
    }

    /// Makes the current state durable, and removes the discards, which it does not need. No change may be under way.
    pub(super) fn free_discards(&self) -> Result<()> {
        self.commit()?;
        self.free_committed()
    }

    /// As [`Db::free_discards`], but only for discards whose commit is made already. That commit has noted the lengths of the files
    /// that have replaced others: see [`super::replacing`].
    pub(super) fn free_committed(&self) -> Result<()> {
        let Some(log) = self.log.get().filter(|_| self.tails.has_discards()) else {
            return Ok(());
        };
        #[cfg(test)]
        self.synced_with_lock.set(true);
        log.sync(&self.tails)?;
        self.tails.free(log.durable());
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::path::Path;

    use fuse::store::{Change, ROOT, RenameMode, Store};

    use super::*;
    use crate::files::beside;
    use crate::log_mark::tests::{FILE, OWNER};
    use crate::{HEAD, SqliteStore, check, forget_boot};

    pub(crate) const LONG: usize = HEAD as usize + 50_000;

    pub(crate) fn resize(store: &SqliteStore, ino: Ino, size: u64) {
        let change = Change { size: Some(size), ..Change::default() };
        store.setattr(&OWNER, ino, &change).unwrap();
    }

    pub(crate) fn create(store: &SqliteStore, name: &str, bytes: &[u8]) -> Ino {
        let ino = store.create(&OWNER, ROOT, name.as_bytes(), &FILE);
        let ino = ino.unwrap().ino;
        store.write(&OWNER, ino, 0, bytes).unwrap();
        ino
    }

    pub(crate) fn read(store: &SqliteStore, ino: Ino) -> Vec<u8> {
        let mut bytes = Vec::new();
        store.read(ino, 0, 4 * LONG, &mut bytes).unwrap();
        bytes
    }

    /// The content of each file in the root.
    fn all(store: &SqliteStore) -> BTreeMap<String, Vec<u8>> {
        let names = (0..4).map(|n| format!("f{n}"));
        let found = names.filter_map(|name| {
            let ino = store.lookup(ROOT, name.as_bytes()).ok()?.ino;
            Some((name, read(store, ino)))
        });
        found.collect()
    }

    /// The length and the checksum of each file in the root.
    pub(crate) fn contents(store: &SqliteStore) -> BTreeMap<String, (usize, u32)> {
        let sums = all(store).into_iter().map(|(name, bytes)| (name, (bytes.len(), crc32fast::hash(&bytes))));
        sums.collect()
    }

    fn syncs(store: &SqliteStore) -> [u64; 2] {
        let counters = store.counters();
        [counters["log_syncs"], counters["redo_syncs"]]
    }

    /// The database and its logs at a sync, and the content of the files at that time.
    struct Image {
        syncs: [u64; 2],
        files: Vec<(&'static str, Vec<u8>)>,
        contents: BTreeMap<String, Vec<u8>>,
        /// The sync was one of the background thread, and a rename that followed it is undone by a power loss.
        has_undone_rename: bool,
    }

    impl Image {
        fn of(store: &SqliteStore, path: &Path) -> Self {
            let (syncs, contents) = (syncs(store), all(store));
            // Nothing is committed while the files are copied.
            let db = store.db();
            let read = |suffix| (suffix, std::fs::read(beside(path, suffix)).unwrap());
            let has_undone_rename = !db.unsynced_replacing().is_empty();
            Self { syncs, files: ["", "-wal", "-redo"].map(read).into(), contents, has_undone_rename }
        }
    }

    /// The state after a power loss that loses everything that was not synced, except in the tails, which stay as they
    /// are now.
    fn cut_power(image: &Image, path: &Path, copy: &Path) {
        for (suffix, bytes) in &image.files {
            std::fs::write(beside(copy, suffix), bytes).unwrap();
        }
        let (from, to) = (beside(path, "-tails"), beside(copy, "-tails"));
        let _ = std::fs::remove_dir_all(&to);
        std::fs::create_dir_all(&to).unwrap();
        for tail in std::fs::read_dir(from).into_iter().flatten().flatten() {
            match std::fs::copy(tail.path(), to.join(tail.file_name())) {
                // The background thread has removed it, after a sync: the caller notices the sync and skips this round.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
        forget_boot(copy).unwrap();
    }

    /// A change that overwrites no byte of a file in place.
    pub(crate) fn step(store: &SqliteStore, random: &mut impl FnMut(u64) -> u64) {
        let (one, two) = (format!("f{}", random(4)), format!("f{}", random(4)));
        let gone = |gone: Result<Option<Ino>>| {
            if let Ok(Some(ino)) = gone {
                store.reclaim(ino).unwrap();
            }
        };
        let long = vec![random(256) as u8; LONG - random(100_000) as usize];
        let Ok(attr) = store.lookup(ROOT, one.as_bytes()) else {
            create(store, &one, &long);
            return;
        };
        match random(8) {
            0 | 1 => {
                resize(store, attr.ino, [0, HEAD, 100][random(3) as usize]);
                let end = store.getattr(attr.ino).unwrap().size;
                store.append(&OWNER, attr.ino, end, &long).unwrap();
            }
            2 => resize(store, attr.ino, HEAD + random(50_000)),
            3 => resize(store, attr.ino, random(2 * HEAD)),
            4 => {
                let bytes = &long[..random(70_000) as usize];
                store.append(&OWNER, attr.ino, attr.size, bytes).unwrap();
            }
            5 => gone(store.unlink(&OWNER, ROOT, one.as_bytes())),
            _ => {
                let (from, to) = ((ROOT, one.as_bytes()), (ROOT, two.as_bytes()));
                gone(store.rename(&OWNER, from, to, RenameMode::Replace));
            }
        }
    }

    /// How many seeds a test tries: those that `CTXBENCH_SEEDS` asks for.
    pub(crate) fn seeds(by_default: u64) -> std::ops::RangeInclusive<u64> {
        let asked = std::env::var("CTXBENCH_SEEDS").ok();
        1..=asked.map_or(by_default, |count| count.parse().unwrap())
    }

    /// Numbers below a limit.
    pub(crate) fn dice(mut seed: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        }
    }

    #[test]
    fn a_power_loss_leaves_a_whole_earlier_state_of_long_files() {
        seeds(1).for_each(cut_power_again_and_again);
    }

    fn cut_power_again_and_again(seed: u64) {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let mut random = dice(seed);
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        store.sync().unwrap();
        let mut image = Image::of(&store, &path);
        // Whether a call has made it durable: then all of its tails are noted as synced.
        let mut is_noted = true;
        let (mut earlier, mut aside, mut noted) = (0, 0, 0);
        for round in 0..300 {
            match random(6) {
                0 => store.db().commit().unwrap(),
                1 => store.tails.free(store.log.durable()),
                _ => {}
            }
            step(&store, &mut random);
            let is_synced = random(12) == 0;
            if is_synced {
                store.sync().unwrap();
            }
            if syncs(&store) != image.syncs {
                image = Image::of(&store, &path);
                is_noted = is_synced;
            }
            cut_power(&image, &path, &copy);
            if syncs(&store) != image.syncs {
                // The background thread has synced meanwhile.
                continue;
            }
            let names = std::fs::read_dir(beside(&copy, "-tails")).unwrap();
            let is_aside = |name: std::fs::DirEntry| name.file_name().to_string_lossy().contains('.');
            aside += u32::from(names.flatten().any(is_aside));
            let problems = check(&copy).unwrap().problems;
            assert_eq!(problems, Vec::<String>::new(), "seed {seed}, round {round}");
            let again = SqliteStore::open(&copy, &OWNER).unwrap();
            if image.has_undone_rename {
                continue;
            }
            let found = all(&again);
            assert!(found.keys().eq(image.contents.keys()), "seed {seed}, round {round}");
            for (name, bytes) in &found {
                let expected = &image.contents[name];
                let is_whole = is_noted || expected.len() <= HEAD as usize;
                let least = if is_whole { expected.len() } else { HEAD as usize };
                assert!(bytes.len() >= least, "seed {seed}, round {round}, {name}: {} bytes", bytes.len());
                assert!(expected.starts_with(bytes), "seed {seed}, round {round}, {name}");
            }
            noted += u32::from(is_noted);
            earlier += u32::from(image.contents != all(&store));
            drop(again);
            let problems = check(&copy).unwrap().problems;
            assert_eq!(problems, Vec::<String>::new(), "seed {seed}, round {round}");
        }
        assert!(earlier > 100, "{earlier} of 300 power losses lost a change");
        assert!(aside > 30, "{aside} of 300 power losses met a tail that was set aside");
        assert!(noted > 30, "{noted} of 300 power losses followed a sync");
    }

    #[test]
    fn check_does_not_report_content_that_a_truncation_in_the_redo_log_has_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let ino = create(&store, "f0", &[1; LONG]);
        store.sync().unwrap();
        resize(&store, ino, HEAD + 10);
        let end = HEAD + 10;
        store.append(&OWNER, ino, end, &[2; 90]).unwrap();
        // The append has cut the tail, and the tables have the old size.
        let tail = beside(&path, "-tails").join(ino.to_string());
        assert!(tail.metadata().unwrap().len() < 50_000);
        assert_eq!(check(&path).unwrap().problems, Vec::<String>::new());
        File::options().write(true).open(&tail).unwrap().set_len(9).unwrap();
        let problems = check(&path).unwrap().problems;
        let missing = "content past the first 256 KiB is missing: 2: 9 of 100 bytes";
        assert_eq!(problems, [missing]);
    }

    #[test]
    fn no_call_waits_for_a_sync_to_remove_truncate_or_replace_a_long_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let tails = beside(&path, "-tails");
        let inos: Vec<Ino> = (0..20).map(|n| create(&store, &format!("f{n}"), &[1; LONG])).collect();
        let before = (syncs(&store), store.counters()["tail_syncs"]);
        for (n, ino) in inos.iter().enumerate() {
            let name = format!("f{n}");
            match n % 3 {
                0 => {
                    store.unlink(&OWNER, ROOT, name.as_bytes()).unwrap();
                    store.reclaim(*ino).unwrap();
                }
                1 => resize(&store, *ino, HEAD + 7),
                _ => {
                    resize(&store, *ino, 0);
                    store.write(&OWNER, *ino, 0, &[2; LONG]).unwrap();
                    assert_eq!(read(&store, *ino), [2; LONG]);
                }
            }
        }
        let after = (syncs(&store), store.counters()["tail_syncs"]);
        assert_eq!(after, before);
        store.db().free_discards().unwrap();
        assert_eq!(store.tails.discarded_bytes(), 0);
        let lengths = std::fs::read_dir(&tails).unwrap().flatten();
        let mut lengths: Vec<u64> = lengths.map(|tail| tail.metadata().unwrap().len()).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [vec![7; 7], vec![50_000; 6]].concat());
    }

    #[test]
    fn the_end_of_a_file_that_is_truncated_again_and_again_is_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("a.db"), &OWNER).unwrap();
        let ino = create(&store, "f0", &[1; LONG]);
        for cut in 1..=400 {
            resize(&store, ino, LONG as u64 - 100 * cut);
            if cut == 200 {
                store.db().commit().unwrap();
            }
        }
        // The background sync may have freed some.
        assert!(store.tails.discarded_bytes() <= 400 * 100);
    }

    #[test]
    fn a_truncated_file_that_grows_has_zeros_where_it_was_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let ino = create(&store, "f0", &[1; LONG]);
        resize(&store, ino, HEAD + 10);
        resize(&store, ino, HEAD + 100);
        resize(&store, ino, HEAD + 20);
        store.append(&OWNER, ino, HEAD + 20, b"end").unwrap();
        store.db().free_discards().unwrap();
        let expected = [&[1; 10][..], &[0; 10], b"end"].concat();
        assert_eq!(read(&store, ino)[HEAD as usize..], expected);
        drop(store);
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        assert_eq!(read(&store, ino)[HEAD as usize..], expected);
    }

    #[test]
    fn a_mount_after_a_kill_cuts_the_end_that_a_truncation_has_discarded() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let ino = create(&store, "f0", &[1; LONG]);
        store.sync().unwrap();
        resize(&store, ino, HEAD + 10);
        cut_power(&Image::of(&store, &path), &path, &copy);
        let store = SqliteStore::open(&copy, &OWNER).unwrap();
        assert_eq!(read(&store, ino)[HEAD as usize..], [1; 10]);
        let tail = beside(&copy, "-tails").join(ino.to_string());
        assert_eq!(tail.metadata().unwrap().len(), 10);
    }
}
