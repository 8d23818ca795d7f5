//! Checks of tails; [`super::check`] has those of the tables.
//!
//! Tails are compared with the state that the next mount makes: the tables with the changes of the redo log. The tables alone
//! may be of an earlier state, of whose tails a part is gone.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuse::store::Ino;
use rusqlite::{Connection, OptionalExtension};

use crate::HEAD;
use crate::content::tail_length;
use crate::files::{is_regular, open_beside, tails_of};
use crate::nodes::{signed, unsigned};
use crate::open_error::SqliteOpenError;
use crate::record::Sizes;
use crate::set_aside::{TailName, TailNames};
use crate::sum_file::{RecordedTail, SumFileContent};
use crate::tail_sums::{self, Rows, TailSums};
use crate::{batch, set_aside, synced, synced_rows};

/// How often a look is repeated that a mount in use may have disturbed, and the pause before.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// How often, and after which pause, what was found is looked for again.
const LOOKS_AGAIN: u32 = 2;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// What the next mount would make of the tails.
struct NextState {
    dir: PathBuf,
    /// The length of the tail that each long file needs.
    wanted: BTreeMap<Ino, u64>,
    /// Tails that it would give their names back.
    restored: BTreeMap<Ino, TailName>,
    known: set_aside::RedoRecord,
}

impl NextState {
    fn read(db: &Connection, path: &Path) -> rusqlite::Result<Self> {
        let dir = tails_of(path);
        let mut attempt = 1;
        loop {
            // First: a change that has set one of them aside is in what is read after them. Without the directory, each tail is
            // missing.
            let names = TailNames::read(&dir).unwrap_or_default();
            // The tables are of one moment, and the redo log is of the same commit or shows damage.
            let tables = db.unchecked_transaction()?;
            let known = batch::known(&tables)?;
            let pending = match batch::pending(&tables, path) {
                Err(SqliteOpenError::LogDamaged { .. }) if attempt < ATTEMPTS => {
                    attempt += 1;
                    std::thread::sleep(PAUSE);
                    continue;
                }
                // Damage of the redo log is a finding of its own.
                pending => pending.ok().flatten().unwrap_or_default(),
            };
            return Ok(Self {
                wanted: wanted(&tables, &Sizes::of(&pending), synced::is_cut_at_mount(path, known))?,
                restored: names.restored(known, known.applied + pending.len() as u64),
                dir,
                known,
            });
        }
    }

    /// Where the tail of an inode is.
    fn tail(&self, ino: Ino) -> PathBuf {
        let current = TailName::current(ino);
        let name = self.restored.get(&ino).unwrap_or(&current);
        self.dir.join(name.to_string())
    }

    /// Files whose tails hold less than the files are long, or are not there.
    fn short(&self) -> Vec<String> {
        let missing = |(ino, wanted): (&Ino, &u64)| {
            let tail = self.tail(*ino);
            match tail.symlink_metadata() {
                Ok(held) if !held.is_file() => Some(format!("{ino}: {} is not a regular file", tail.display())),
                Ok(held) if held.len() >= *wanted => None,
                Ok(held) => Some(format!("{ino}: {} of {wanted} bytes", held.len())),
                Err(error) => Some(format!("{ino}: {}: {error}", tail.display())),
            }
        };
        self.wanted.iter().filter_map(missing).collect()
    }
}

/// The length of the tail of each long file, after the changes of the redo log, and after a power loss what is synced of it.
fn wanted(tables: &Connection, sizes: &Sizes<'_>, is_restarted: bool) -> rusqlite::Result<BTreeMap<Ino, u64>> {
    let mut before: BTreeMap<Ino, Option<u64>> = BTreeMap::new();
    let mut long = tables.prepare("SELECT ino, size FROM inode WHERE mode & 61440 = 32768 AND size > ?1")?;
    let mut rows = long.query([signed(HEAD)])?;
    while let Some(row) = rows.next()? {
        before.insert(unsigned(row.get(0)?), Some(unsigned(row.get(1)?)));
    }
    for ino in sizes.inodes() {
        let size = tables
            .prepare_cached("SELECT size FROM inode WHERE ino = ?1")?
            .query_row([signed(ino)], |row| row.get(0).map(unsigned));
        before.insert(ino, size.optional()?);
    }
    let mut wanted = BTreeMap::new();
    for (ino, size) in before {
        let Some(size) = sizes.after(ino, size).filter(|size| *size > HEAD) else {
            continue;
        };
        let length = if is_restarted {
            tail_length(size).min(sizes.synced_after(ino, synced_rows::of(tables, ino)?.0))
        } else {
            tail_length(size)
        };
        if length > 0 {
            wanted.insert(ino, length);
        }
    }
    Ok(wanted)
}

/// Files whose tails hold less than the files are long, or are not there.
pub(super) fn short_tails(db: &Connection, path: &Path) -> rusqlite::Result<Vec<String>> {
    let look = || NextState::read(db, path).map(|state| state.short());
    let mut found = look()?;
    for _ in 0..LOOKS_AGAIN {
        if found.is_empty() {
            break;
        }
        // A mount in use may have changed a tail during the look.
        std::thread::sleep(BETWEEN_LOOKS);
        let again: HashSet<String> = look()?.into_iter().collect();
        found.retain(|short| again.contains(short));
    }
    Ok(found)
}

/// How the tails of all long files compare with their checksums.
#[derive(Debug, Default)]
pub(super) struct TailComparison {
    /// Tails that were compared.
    pub(super) compared: u64,
    /// Which of them are not as they were written.
    pub(super) damaged: Vec<String>,
    /// The paths of files whose tails have no checksums, or not everywhere.
    pub(super) unchecked: Vec<String>,
}

/// Compares all tails that are there with their checksums. A mount that has the database, as `is_mounted` says, may change
/// the other tails at any time.
pub(super) fn compare_tails(
    db: &Connection,
    path: &Path,
    is_mounted: impl Fn() -> bool,
) -> rusqlite::Result<TailComparison> {
    let state = NextState::read(db, path)?;
    let left = || {
        if is_mounted() {
            SumFileContent::default()
        } else {
            SumFileContent::read(path, state.known).unwrap_or_default()
        }
    };
    let before = left();
    let mut found = TailComparison::default();
    let mut unsealed = Vec::new();
    for (ino, wanted) in &state.wanted {
        let tail = state.tail(*ino);
        let path = || path_of(db, signed(*ino));
        match compare(db, *ino, &tail)? {
            // That one is missing, or something else, is a finding of its own.
            Comparison::Unsealed if !is_regular(&tail) => {}
            Comparison::Unsealed => {
                let left = before.tails.get(ino);
                let left = left.filter(|_| !state.restored.contains_key(ino));
                let compared = left.map(|left| compare_left(db, (*ino, *wanted), &tail, left));
                unsealed.push((path(), compared.transpose()?));
            }
            Comparison::Whole => found.compared += 1,
            Comparison::Damaged(which) => {
                found.compared += 1;
                found.damaged.push(format!("{}: {which}", path()));
            }
        }
    }
    let is_same = unsealed.is_empty() || left() == before;
    for (path, compared) in unsealed {
        let Some((is_complete, damage)) = compared.filter(|_| is_same) else {
            found.unchecked.push(path);
            continue;
        };
        found.compared += 1;
        match damage {
            Some(which) => found.damaged.push(format!("{path}: {which}")),
            None if !is_complete => found.unchecked.push(path),
            None => {}
        }
    }
    Ok(found)
}

/// Compares a tail of which a killed mount has left `left`. Whether all of it has checksums, and which bytes are damaged, or
/// why they cannot be read.
fn compare_left(
    db: &Connection,
    (ino, wanted): (Ino, u64),
    tail: &Path,
    left: &RecordedTail,
) -> rusqlite::Result<(bool, Option<String>)> {
    let rows = sums(db, ino)?.unwrap_or_default();
    let compared = open_beside(tail, File::options().read(true)).and_then(|file| {
        let (sums, _) = TailSums::left(&file, wanted, left, rows)?;
        Ok((!sums.has_unknown(), tail_sums::damaged(&file, wanted, &sums)?))
    });
    Ok(match compared {
        Ok((is_complete, range)) => (is_complete, range.map(bytes)),
        Err(error) => (false, Some(error.to_string())),
    })
}

/// Bytes of a tail as those of its file, for people.
fn bytes(range: Range<u64>) -> String {
    format!("bytes {} to {}", HEAD + range.start, HEAD + range.end - 1)
}

/// How a tail compares with the checksums in the tables.
enum Comparison {
    /// It has none: a mount changes it, or was killed.
    Unsealed,
    Whole,
    /// Which bytes are damaged, or why they cannot be read.
    Damaged(String),
}

fn compare(db: &Connection, ino: Ino, tail: &Path) -> rusqlite::Result<Comparison> {
    let is_sealed = || tail.symlink_metadata().is_ok_and(|file| file.is_file() && tail_sums::is_sealed(&file));
    for _ in 0..ATTEMPTS {
        if !is_sealed() {
            return Ok(Comparison::Unsealed);
        }
        let Some((length, groups)) = sums(db, ino)? else {
            return Ok(Comparison::Unsealed);
        };
        let sealed = TailSums::sealed(length, groups.clone(), None);
        let opened = open_beside(tail, File::options().read(true));
        let damaged = opened.and_then(|file| tail_sums::damaged(&file, length, &sealed));
        let which = match damaged {
            Ok(None) => return Ok(Comparison::Whole),
            Ok(Some(range)) => bytes(range),
            Err(error) => error.to_string(),
        };
        // A mount may have changed it meanwhile, and have given it other checksums at its end.
        if is_sealed() && sums(db, ino)? == Some((length, groups)) {
            return Ok(Comparison::Damaged(which));
        }
    }
    Ok(Comparison::Unsealed)
}

fn sums(db: &Connection, ino: Ino) -> rusqlite::Result<Option<Rows>> {
    let rows = db.unchecked_transaction()?;
    let length = rows
        .prepare_cached("SELECT length FROM tail WHERE ino = ?1")?
        .query_row([signed(ino)], |row| row.get(0).map(unsigned))
        .optional()?;
    let Some(length) = length else {
        return Ok(None);
    };
    let mut groups =
        rows.prepare_cached("SELECT id & 16777215, sums FROM tail_sum WHERE id >= ?1 << 24 AND id < (?1 + 1) << 24")?;
    let groups = groups.query_map([signed(ino)], |row| Ok((unsigned(row.get(0)?), row.get(1)?)))?;
    Ok(Some((length, groups.collect::<Result<_, _>>()?)))
}

/// The first path of an inode, for people.
pub(super) fn path_of(db: &Connection, ino: i64) -> String {
    let query = "SELECT path FROM file WHERE ino = ?1 LIMIT 1";
    let path: rusqlite::Result<String> =
        db.prepare_cached(query).and_then(|mut statement| statement.query_row([ino], |row| row.get(0)));
    path.unwrap_or_else(|_| format!("inode {ino}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use fuse::store::{Errno, ROOT, Store};

    use super::*;
    use crate::files::{beside, log_of};
    use crate::free_tails::tests::{LONG, contents, create, dice, resize, seeds, step};
    use crate::log_mark::tests::OWNER;
    use crate::{SqliteStore, check};

    /// The files of a daemon that is killed at this moment.
    fn kill(store: &SqliteStore, path: &Path, copy: &Path) {
        // Nothing is committed while the files are copied.
        let _db = store.db();
        let _still = store.tails.freeze();
        // First: slots that are behind their pieces may be brought up to date meanwhile.
        let _ = std::fs::remove_file(beside(copy, "-sums"));
        if beside(path, "-sums").exists() {
            std::fs::copy(beside(path, "-sums"), beside(copy, "-sums")).unwrap();
        }
        for suffix in ["", "-wal", "-redo"] {
            let mut bytes = std::fs::read(beside(path, suffix)).unwrap();
            if suffix == "-wal" {
                // Zeros fill it up.
                let used = bytes.iter().rposition(|byte| *byte != 0);
                bytes.truncate(used.map_or(0, |last| last + 1));
            }
            std::fs::write(beside(copy, suffix), bytes).unwrap();
        }
        let _ = std::fs::remove_file(beside(copy, "-shm"));
        copy_tails(&tails_of(path), &tails_of(copy));
    }

    fn copy_tails(from: &Path, to: &Path) {
        let _ = std::fs::remove_dir_all(to);
        for tail in std::fs::read_dir(from).into_iter().flatten().flatten() {
            std::fs::create_dir_all(to).unwrap();
            match std::fs::copy(tail.path(), to.join(tail.file_name())) {
                // The flush thread has removed it: the tables do not need it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }

    fn problems(path: &Path) -> Vec<String> {
        check(path).unwrap().problems
    }

    /// Cuts or removes a tail.
    fn shorten(tails: &Path, random: &mut impl FnMut(u64) -> u64) -> Option<String> {
        let names = std::fs::read_dir(tails).into_iter().flatten().flatten();
        let mut names: Vec<PathBuf> = names.map(|tail| tail.path()).collect();
        names.sort();
        let tail = names.get(random(names.len().max(1) as u64) as usize)?;
        let held = tail.metadata().unwrap().len();
        match random(3) {
            0 => std::fs::remove_file(tail).unwrap(),
            _ => {
                let file = File::options().write(true).open(tail).unwrap();
                file.set_len(random(held + 1)).unwrap();
            }
        }
        Some(format!("{} of {held} bytes", tail.display()))
    }

    fn kill_again_and_again(seed: u64) -> [u32; 3] {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let mut random = dice(seed);
        let mut store = SqliteStore::open(&path, &OWNER).unwrap();
        let (mut shortened, mut lost, mut pending) = (0, 0, 0);
        for round in 0..12 {
            let at = format!("seed {seed}, round {round}");
            if random(8) == 0 {
                // Its tails have checksums from now on.
                drop(store);
                store = SqliteStore::open(&path, &OWNER).unwrap();
            }
            for _ in 0..1 + random(5) {
                match random(7) {
                    0 => store.db().commit().unwrap(),
                    1 => store.tails.free(store.log.durable()),
                    2 => store.sync().unwrap(),
                    _ => {}
                }
                step(&store, &mut random);
            }
            let expected = contents(&store);
            pending += u32::from(store.db().has_open_changes());
            kill(&store, &path, &copy);
            assert_eq!(problems(&copy), Vec::<String>::new(), "{at}");
            let again = SqliteStore::open(&copy, &OWNER).unwrap();
            assert_eq!(contents(&again), expected, "{at}");
            drop(again);
            assert_eq!(problems(&copy), Vec::<String>::new(), "{at}");
            // A check finds what reads find, and nothing else.
            kill(&store, &path, &copy);
            let Some(which) = shorten(&tails_of(&copy), &mut random) else {
                continue;
            };
            let found = problems(&copy);
            let again = SqliteStore::open(&copy, &OWNER).unwrap();
            let is_lost = (0..4).any(|n| {
                let Ok(attr) = again.lookup(ROOT, format!("f{n}").as_bytes()) else {
                    return false;
                };
                let mut bytes = Vec::new();
                again.read(attr.ino, 0, attr.size as usize, &mut bytes).is_err()
            });
            assert!(!is_lost || !found.is_empty(), "{at}, {which}: not found");
            // What a truncation has not cut off yet is compared, too.
            let is_right = |problem: &String| is_lost || problem.contains("a wrong checksum");
            assert!(found.iter().all(is_right), "{at}, {which}: {found:?}");
            shortened += 1;
            lost += u32::from(is_lost);
        }
        [shortened, lost, pending]
    }

    #[test]
    fn a_check_after_a_kill_finds_what_the_next_mount_cannot_read_and_nothing_else() {
        let mut sums = [0; 3];
        for seed in seeds(6) {
            for (sum, count) in sums.iter_mut().zip(kill_again_and_again(seed)) {
                *sum += count;
            }
        }
        let [shortened, lost, pending] = sums;
        assert!(lost > 5 && shortened > lost, "{lost} of {shortened} tails");
        assert!(pending > 10, "{pending} kills had a change to replay");
    }

    #[test]
    fn a_check_of_a_mount_in_use_finds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        // The tables, before the first check.
        drop(SqliteStore::open(&path, &OWNER).unwrap());
        let is_over = AtomicBool::new(false);
        let until = Instant::now() + Duration::from_secs(2 * seeds(1).end());
        let mut checks = 0;
        std::thread::scope(|threads| {
            let change = || {
                let mut random = dice(1);
                while !is_over.load(Ordering::Relaxed) {
                    // A check holds a database that no mount has.
                    let store = match SqliteStore::open(&path, &OWNER) {
                        Err(SqliteOpenError::Owned(..)) => continue,
                        opened => opened.unwrap(),
                    };
                    for _ in 0..random(100) {
                        step(&store, &mut random);
                        if random(10) == 0 {
                            store.sync().unwrap();
                        }
                        if random(10) == 0 {
                            std::thread::sleep(Duration::from_millis(random(30)));
                        }
                    }
                }
            };
            let changes = threads.spawn(change);
            let mut found = Vec::new();
            while found.is_empty() && (Instant::now() < until || checks <= 3) {
                found = check(&path).map_or_else(|error| vec![error.to_string()], |checked| checked.problems);
                checks += 1;
            }
            is_over.store(true, Ordering::Relaxed);
            changes.join().unwrap();
            assert_eq!(found, Vec::<String>::new(), "check {checks}");
        });
    }

    #[test]
    fn a_tail_that_the_redo_log_needs_and_the_tables_do_not_is_missed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let ino = create(&store, "f0", &vec![1; HEAD as usize]);
        let emptied = create(&store, "f1", &[1; LONG]);
        store.sync().unwrap();
        // Both wait for their commit.
        store.append(&OWNER, ino, HEAD, &[2; 90]).unwrap();
        resize(&store, emptied, 0);
        assert!(store.db().has_open_changes());
        kill(&store, &path, &copy);
        assert_eq!(problems(&copy), Vec::<String>::new());
        std::fs::remove_file(tails_of(&copy).join(ino.to_string())).unwrap();
        let found = problems(&copy).join("\n");
        assert!(found.contains(&format!("is missing: {ino}: ")), "{found}");
    }

    #[test]
    fn a_tail_that_was_set_aside_is_compared_if_the_next_mount_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let ino = create(&SqliteStore::open(&path, &OWNER).unwrap(), "f0", &[1; LONG]);
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        store.sync().unwrap();
        kill(&store, &path, &copy);
        resize(&store, ino, 0);
        // The power loss takes the truncation, but not the new name of the tail.
        copy_tails(&tails_of(&path), &tails_of(&copy));
        crate::forget_boot(&copy).unwrap();
        assert_eq!(check(&copy).unwrap().tails, 1);
        assert_eq!(problems(&copy), Vec::<String>::new());
        let mut names = std::fs::read_dir(tails_of(&copy)).unwrap().flatten();
        let aside = names.next().unwrap().path();
        assert!(aside.to_string_lossy().contains('.'), "{}", aside.display());
        let file = File::options().write(true).open(aside).unwrap();
        file.write_all_at(b"damage", 70).unwrap();
        let found = problems(&copy).join("\n");
        assert!(found.contains("has a wrong checksum: /f0: "), "{found}");
    }

    /// Puts something else in the place of a tail; `false` if this user may not.
    fn replace(tail: &Path, kind: &str) -> bool {
        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let kept = tail.with_extension("kept");
        std::fs::rename(tail, &kept).unwrap();
        let node = |kind, mode, device| mknodat(CWD, tail, kind, Mode::from_raw_mode(mode), device);
        match kind {
            "a directory" => std::fs::create_dir(tail).unwrap(),
            // Its bytes are those of the tail.
            "a link" => std::os::unix::fs::symlink(&kept, tail).unwrap(),
            "a socket" => drop(std::os::unix::net::UnixListener::bind(tail).unwrap()),
            "a FIFO" => node(FileType::Fifo, 0o600, 0).unwrap(),
            "a FIFO with the mode of a sealed tail" => node(FileType::Fifo, 0o700, 0).unwrap(),
            _ => return node(FileType::CharacterDevice, 0o600, rustix::fs::makedev(1, 5)).is_ok(),
        }
        true
    }

    #[test]
    fn something_else_in_the_place_of_a_tail_loses_this_file_alone() {
        for kind in ["a directory", "a link", "a socket", "a FIFO with the mode of a sealed tail", "a FIFO", "a device"]
        {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.db");
            let store = SqliteStore::open(&path, &OWNER).unwrap();
            let (lost, kept) = (create(&store, "f0", &[1; LONG]), create(&store, "f1", &[2; LONG]));
            drop(store);
            if !replace(&tails_of(&path).join(lost.to_string()), kind) {
                eprintln!("skipped: this user cannot make {kind}");
                continue;
            }
            let found = problems(&path).join("\n");
            let listed = format!("{lost}: {} is not a regular file", tails_of(&path).join(lost.to_string()).display());
            assert!(found.contains(&listed), "{kind}: {found}");
            let store = SqliteStore::open(&path, &OWNER).unwrap();
            let mut bytes = Vec::new();
            let refused = store.read(lost, 0, LONG, &mut bytes).unwrap_err();
            assert_eq!(refused.errno, Errno::IO, "{kind}: {refused}");
            let refused = store.write(&OWNER, lost, LONG as u64 - 1, &[1]).unwrap_err();
            assert_eq!(refused.errno, Errno::IO, "{kind}: {refused}");
            // Replaced while it is mounted, and has bytes to sync.
            let late = create(&store, "f2", &[3; LONG]);
            assert!(replace(&tails_of(&path).join(late.to_string()), kind));
            store.fsync(kept, false).unwrap();
            store.write(&OWNER, kept, LONG as u64 - 1, &[4]).unwrap();
            store.sync().unwrap();
            drop(store);
            let checked = check(&path).unwrap();
            assert_eq!((checked.tails, checked.unchecked_tails.len()), (1, 0), "{kind}: {checked:?}");
            let store = SqliteStore::open(&path, &OWNER).unwrap();
            bytes.clear();
            store.read(kept, 0, LONG, &mut bytes).unwrap();
            assert!(bytes[..LONG - 1].iter().all(|byte| *byte == 2) && bytes[LONG - 1] == 4, "{kind}");
            assert_eq!(store.read(late, 0, LONG, &mut bytes).unwrap_err().errno, Errno::IO, "{kind}");
        }
    }

    #[test]
    fn a_check_after_a_kill_names_the_tails_without_checksums_and_compares_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let old = create(&SqliteStore::open(&path, &OWNER).unwrap(), "f0", &[1; LONG]);
        assert_eq!(check(&path).unwrap().unchecked_tails, [""; 0]);
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let new = create(&store, "f1", &[2; LONG]);
        store.sync().unwrap();
        let mounted = check(&path).unwrap();
        assert!(mounted.is_mounted);
        assert_eq!(mounted.unchecked_tails, ["/f1"]);
        kill(&store, &path, &copy);
        let damage = |ino: Ino, at: u64| {
            let tail = tails_of(&copy).join(ino.to_string());
            let file = File::options().write(true).open(tail).unwrap();
            file.write_all_at(b"damage", at).unwrap();
        };
        let killed = check(&copy).unwrap();
        assert_eq!((killed.tails, killed.is_mounted), (2, false));
        assert_eq!(killed.unchecked_tails, [""; 0]);
        assert_eq!(killed.problems, [""; 0]);
        damage(new, 70);
        let found = problems(&copy).join("\n");
        assert!(found.contains("has a wrong checksum: /f1: "), "{found}");
        // Without the checksum file nothing is known of what the killed mount has written.
        kill(&store, &path, &copy);
        std::fs::remove_file(beside(&copy, "-sums")).unwrap();
        damage(new, 70);
        let killed = check(&copy).unwrap();
        assert_eq!((killed.tails, killed.is_mounted), (1, false));
        assert_eq!(killed.unchecked_tails, ["/f1"]);
        assert_eq!(killed.problems, [""; 0]);
        // What it has not written still has its checksums, also for the next mount.
        damage(old, 70);
        let found = problems(&copy).join("\n");
        assert!(found.contains("has a wrong checksum: /f0: "), "{found}");
        let again = SqliteStore::open(&copy, &OWNER).unwrap();
        assert_eq!(again.tails.unsealed().unwrap(), [new]);
        let mut bytes = Vec::new();
        assert!(again.read(old, 0, LONG, &mut bytes).is_err());
        drop(again);
        let unmounted = check(&copy).unwrap();
        assert_eq!((unmounted.tails, unmounted.unchecked_tails.len()), (2, 0));
        assert!(!beside(&copy, "-sums").exists());
    }

    /// A store whose long files were changed in every way since they had checksums in the tables; their inodes.
    fn changed_in_every_way(path: &Path) -> (SqliteStore, Vec<Ino>) {
        let bytes: Vec<u8> = (0..4 * LONG).map(|at| (at % 251) as u8).collect();
        let old = SqliteStore::open(path, &OWNER).unwrap();
        let mut inos: Vec<Ino> = (0..5).map(|n| create(&old, &format!("f{n}"), &bytes)).collect();
        drop(old);
        let store = SqliteStore::open(path, &OWNER).unwrap();
        inos.extend((5..10).map(|n| create(&store, &format!("f{n}"), &bytes)));
        for old_and_new in [&inos[..5], &inos[5..]] {
            let [appended, written, cut, punched, extended] = old_and_new.try_into().unwrap();
            for n in 0..600 {
                let end = bytes.len() as u64 + n * 80;
                store.append(&OWNER, appended, end, &[n as u8; 80]).unwrap();
            }
            for n in 1..9 {
                let at = HEAD + n * 70_001;
                store.write(&OWNER, written, at, &[n as u8; 4096]).unwrap();
            }
            resize(&store, cut, HEAD + 100_001);
            store.append(&OWNER, cut, HEAD + 100_001, b"after it").unwrap();
            let hole = fuse::store::Allocation::PunchHole;
            store.fallocate(&OWNER, punched, hole, HEAD + 10_000, 150_000).unwrap();
            resize(&store, extended, 5 * LONG as u64);
            let end = 6 * LONG as u64;
            store.append(&OWNER, extended, end, &[7; 10_000]).unwrap();
        }
        (store, inos)
    }

    /// The content of a file, of each 32 KiB that can be read.
    fn pieces(store: &SqliteStore, ino: Ino) -> Vec<Option<Vec<u8>>> {
        let size = store.getattr(ino).unwrap().size;
        let read = |at: u64| {
            let mut bytes = Vec::new();
            let read = store.read(ino, at, tail_sums::PIECE as usize, &mut bytes);
            read.is_ok().then_some(bytes)
        };
        (0..size).step_by(tail_sums::PIECE as usize).map(read).collect()
    }

    #[test]
    fn a_changed_byte_in_a_tail_of_a_killed_store_is_an_error_wherever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let (store, inos) = changed_in_every_way(&path);
        store.tails.record_sums();
        let whole: Vec<_> = inos.iter().map(|ino| pieces(&store, *ino)).collect();
        assert!(whole.iter().flatten().all(Option::is_some));
        kill(&store, &path, &copy);
        assert_eq!(problems(&copy), Vec::<String>::new());
        let again = SqliteStore::open(&copy, &OWNER).unwrap();
        for (ino, whole) in inos.iter().zip(&whole) {
            assert_eq!(&pieces(&again, *ino), whole);
        }
        drop(again);
        // A sector of each piece, of each tail.
        for sector in (0..tail_sums::PIECE / 512).step_by(7).chain([63]) {
            kill(&store, &path, &copy);
            for ino in &inos {
                let tail = tails_of(&copy).join(ino.to_string());
                let file = File::options().read(true).write(true).open(tail).unwrap();
                let held = file.metadata().unwrap().len();
                for start in (0..held).step_by(tail_sums::PIECE as usize) {
                    let at = (start + sector * 512 + 5).min(held - 1);
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, at).unwrap();
                    file.write_all_at(&[!byte[0]], at).unwrap();
                }
            }
            let found = check(&copy).unwrap();
            let named = |n: usize| found.problems.iter().any(|problem| problem.contains(&format!("/f{n}: bytes")));
            assert!((0..inos.len()).all(named), "sector {sector}: {found:?}");
            assert_eq!(found.unchecked_tails, [""; 0]);
            let again = SqliteStore::open(&copy, &OWNER).unwrap();
            for (n, (ino, whole)) in inos.iter().zip(&whole).enumerate() {
                let head = HEAD.div_ceil(tail_sums::PIECE) as usize;
                for (at, piece) in pieces(&again, *ino).into_iter().enumerate() {
                    let expected = whole[at].clone().filter(|_| at < head);
                    assert!(piece == expected, "sector {sector}, f{n}, piece {at}");
                }
            }
        }
    }

    #[test]
    fn damage_of_the_checksum_file_itself_lets_no_read_answer_a_wrong_byte() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let (store, inos) = changed_in_every_way(&path);
        store.tails.record_sums();
        let whole: Vec<_> = inos.iter().map(|ino| pieces(&store, *ino)).collect();
        kill(&store, &path, &copy);
        let sums = std::fs::read(beside(&copy, "-sums")).unwrap();
        let mut random = dice(9);
        let mut errors = 0;
        for round in 0..30 {
            kill(&store, &path, &copy);
            let mut bytes = sums.clone();
            let at = random(bytes.len() as u64) as usize;
            match random(3) {
                0 => bytes[at] ^= 1 << random(8),
                1 => {
                    let end = bytes.len();
                    bytes[at / 512 * 512..(at / 512 * 512 + 512).min(end)].fill(0);
                }
                _ => bytes.truncate(at),
            }
            std::fs::write(beside(&copy, "-sums"), bytes).unwrap();
            let again = SqliteStore::open(&copy, &OWNER).unwrap();
            for (ino, whole) in inos.iter().zip(&whole) {
                for (piece, whole) in pieces(&again, *ino).iter().zip(whole) {
                    errors += u32::from(piece.is_none());
                    assert!(piece.is_none() || piece == whole, "round {round}, byte {at}");
                }
            }
        }
        assert!(errors > 0);
    }

    #[test]
    fn a_mount_that_is_killed_again_and_again_keeps_what_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["a.db", "b.db"].map(|name| dir.path().join(name));
        let (store, inos) = changed_in_every_way(&names[0]);
        store.tails.record_sums();
        let whole: Vec<_> = inos.iter().map(|ino| pieces(&store, *ino)).collect();
        let mut store = store;
        for round in 0..4 {
            let (from, to) = (&names[round % 2], &names[1 - round % 2]);
            kill(&store, from, to);
            drop(store);
            for file in crate::files::files_of(from) {
                let _ = std::fs::remove_file(&file);
                let _ = std::fs::remove_dir_all(&file);
            }
            assert_eq!(check(to).unwrap().unchecked_tails, [""; 0], "round {round}");
            store = SqliteStore::open(to, &OWNER).unwrap();
            for (ino, whole) in inos.iter().zip(&whole) {
                assert_eq!(&pieces(&store, *ino), whole, "round {round}");
            }
        }
    }

    #[test]
    fn checksums_of_before_a_power_loss_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let (store, inos) = changed_in_every_way(&path);
        store.sync().unwrap();
        kill(&store, &path, &copy);
        crate::forget_boot(&copy).unwrap();
        assert_eq!(check(&copy).unwrap().unchecked_tails.len(), inos.len());
        let again = SqliteStore::open(&copy, &OWNER).unwrap();
        assert_eq!(again.tails.unsealed().unwrap().len(), inos.len());
    }

    #[test]
    fn pages_that_a_killed_checkpoint_has_written_in_part_are_no_damage() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        for n in 0..4 {
            create(&store, &format!("f{n}"), &[n; 100_000]);
        }
        drop(store);
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        for n in 0..4 {
            let ino = store.lookup(ROOT, format!("f{n}").as_bytes()).unwrap().ino;
            store.write(&OWNER, ino, 0, &[9; 60_000]).unwrap();
        }
        store.sync().unwrap();
        let expected = contents(&store);
        kill(&store, &path, &copy);
        let tear = |page: u64| {
            let file = File::options().write(true).open(&copy).unwrap();
            // Sectors of another state.
            file.write_all_at(&[7; 1024], (page - 1) * 4096 + 2048).unwrap();
        };
        let pages = copy.metadata().unwrap().len() / 4096;
        let in_log = sqlite_pages::in_log(File::open(log_of(&copy)).unwrap()).unwrap();
        let torn: Vec<u64> = (1..=pages).filter(|page| in_log.contains(page)).collect();
        assert!(torn.len() > 10 && (torn.len() as u64) < pages, "{torn:?}");
        torn.iter().for_each(|page| tear(*page));
        assert_eq!(problems(&copy), Vec::<String>::new());
        let again = SqliteStore::open(&copy, &OWNER).unwrap();
        assert_eq!(contents(&again), expected);
        drop(again);
        assert_eq!(problems(&copy), Vec::<String>::new());
        // A page that the log does not have is damaged.
        kill(&store, &path, &copy);
        let other = (2..=pages).find(|page| !in_log.contains(page)).unwrap();
        tear(other);
        let damaged = format!("a page of the database is damaged: {other}");
        let found = problems(&copy);
        assert!(found.contains(&damaged), "{found:?}");
    }
}
