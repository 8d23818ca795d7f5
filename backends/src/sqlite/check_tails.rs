//! Checks of tails; [`super::check`] has those of the tables.
//!
//! Tails are compared with the state that the next mount makes: the tables with the changes of the redo log. The tables alone
//! may be of an earlier state, of whose tails a part is gone.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};

use super::content::tail_length;
use super::files::tails_of;
use super::nodes::{signed, unsigned};
use super::open::SqliteOpenError;
use super::record::Sizes;
use super::set_aside::{TailName, TailNames};
use super::tails::HEAD;
use super::{batch, tail_sums};
use crate::store::Ino;

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
            let pending = match batch::pending_after(path, known) {
                Err(SqliteOpenError::LogDamaged { .. }) if attempt < ATTEMPTS => {
                    attempt += 1;
                    std::thread::sleep(PAUSE);
                    continue;
                }
                // Damage of the redo log is a finding of its own.
                pending => pending.ok().flatten().unwrap_or_default(),
            };
            return Ok(Self {
                wanted: wanted(&tables, &Sizes::of(&pending))?,
                restored: names.restored(known, known.applied + pending.len() as u64),
                dir,
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
            match std::fs::metadata(&tail).map(|tail| tail.len()) {
                Ok(held) if held >= *wanted => None,
                Ok(held) => Some(format!("{ino}: {held} of {wanted} bytes")),
                Err(error) => Some(format!("{ino}: {}: {error}", tail.display())),
            }
        };
        self.wanted.iter().filter_map(missing).collect()
    }
}

/// The length of the tail of each long file, after the changes of the redo log.
fn wanted(tables: &Connection, sizes: &Sizes<'_>) -> rusqlite::Result<BTreeMap<Ino, u64>> {
    let mut before: BTreeMap<Ino, Option<u64>> = BTreeMap::new();
    let mut long =
        tables.prepare("SELECT ino, size FROM inode WHERE mode & 61440 = 32768 AND size > ?1")?;
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
    let after = before
        .into_iter()
        .filter_map(|(ino, size)| Some((ino, tail_length(sizes.after(ino, size)?))));
    Ok(after.filter(|(_, wanted)| *wanted > 0).collect())
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
    /// The paths of files whose tails have no checksums.
    pub(super) unchecked: Vec<String>,
}

/// Compares all tails that are there with their checksums.
pub(super) fn compare_tails(db: &Connection, path: &Path) -> rusqlite::Result<TailComparison> {
    let state = NextState::read(db, path)?;
    let mut found = TailComparison::default();
    for ino in state.wanted.keys() {
        let tail = state.tail(*ino);
        let path = || path_of(db, signed(*ino));
        match compare(db, *ino, &tail)? {
            // One that is missing is found by its file's size.
            Comparison::Unsealed if !tail.exists() => {}
            Comparison::Unsealed => found.unchecked.push(path()),
            Comparison::Whole => found.compared += 1,
            Comparison::Damaged(which) => {
                found.compared += 1;
                found.damaged.push(format!("{}: {which}", path()));
            }
        }
    }
    Ok(found)
}

/// How a tail compares with its checksums.
enum Comparison {
    /// It has none: a mount changes it, or was killed.
    Unsealed,
    Whole,
    /// Which bytes are damaged, or why they cannot be read.
    Damaged(String),
}

fn compare(db: &Connection, ino: Ino, tail: &Path) -> rusqlite::Result<Comparison> {
    let is_sealed = || std::fs::metadata(tail).is_ok_and(|file| tail_sums::is_sealed(&file));
    for _ in 0..ATTEMPTS {
        if !is_sealed() {
            return Ok(Comparison::Unsealed);
        }
        let Some((length, groups)) = sums(db, ino)? else {
            return Ok(Comparison::Unsealed);
        };
        let damaged =
            File::open(tail).and_then(|file| tail_sums::damaged(&file, length, groups.clone()));
        let which = match damaged {
            Ok(None) => return Ok(Comparison::Whole),
            Ok(Some(range)) => format!("bytes {} to {}", HEAD + range.start, HEAD + range.end - 1),
            Err(error) => error.to_string(),
        };
        // A mount may have changed it meanwhile, and have given it other checksums at its end.
        if is_sealed() && sums(db, ino)? == Some((length, groups)) {
            return Ok(Comparison::Damaged(which));
        }
    }
    Ok(Comparison::Unsealed)
}

/// The rows of the checksums of a tail: its length, and the checksums by group.
type Sums = (u64, Vec<(u64, Vec<u8>)>);

fn sums(db: &Connection, ino: Ino) -> rusqlite::Result<Option<Sums>> {
    let rows = db.unchecked_transaction()?;
    let length = rows
        .prepare_cached("SELECT length FROM tail WHERE ino = ?1")?
        .query_row([signed(ino)], |row| row.get(0).map(unsigned))
        .optional()?;
    let Some(length) = length else {
        return Ok(None);
    };
    let mut groups = rows.prepare_cached(
        "SELECT id & 16777215, sums FROM tail_sum WHERE id >= ?1 << 24 AND id < (?1 + 1) << 24",
    )?;
    let groups = groups.query_map([signed(ino)], |row| {
        Ok((unsigned(row.get(0)?), row.get(1)?))
    })?;
    Ok(Some((length, groups.collect::<Result<_, _>>()?)))
}

/// The first path of an inode, for people.
pub(super) fn path_of(db: &Connection, ino: i64) -> String {
    let query = "SELECT path FROM file WHERE ino = ?1 LIMIT 1";
    let path: rusqlite::Result<String> = db
        .prepare_cached(query)
        .and_then(|mut statement| statement.query_row([ino], |row| row.get(0)));
    path.unwrap_or_else(|_| format!("inode {ino}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::sqlite::files::beside;
    use crate::sqlite::free_tails::tests::{LONG, contents, create, dice, resize, seeds, step};
    use crate::sqlite::log_mark::tests::OWNER;
    use crate::sqlite::{SqliteStore, check, pages};
    use crate::store::{ROOT, Store};

    /// The files of a daemon that is killed at this moment.
    fn kill(store: &SqliteStore, path: &Path, copy: &Path) {
        // Nothing is committed while the files are copied.
        let _db = store.db();
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
            kill(&store, &path, &copy);
            pending += u32::from(store.db().has_open_changes());
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
                again
                    .read(attr.ino, 0, attr.size as usize, &mut bytes)
                    .is_err()
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
        let is_over = AtomicBool::new(false);
        let until = Instant::now() + Duration::from_secs(2 * seeds(1).end());
        let mut checks = 0;
        std::thread::scope(|threads| {
            let change = || {
                let mut random = dice(1);
                while !is_over.load(Ordering::Relaxed) {
                    let store = SqliteStore::open(&path, &OWNER).unwrap();
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
            while !path.exists() {
                std::thread::sleep(PAUSE);
            }
            std::thread::sleep(BETWEEN_LOOKS);
            let mut found = Vec::new();
            while found.is_empty() && Instant::now() < until {
                found = check(&path)
                    .map_or_else(|error| vec![error.to_string()], |checked| checked.problems);
                checks += 1;
            }
            is_over.store(true, Ordering::Relaxed);
            changes.join().unwrap();
            assert_eq!(found, Vec::<String>::new(), "check {checks}");
        });
        assert!(checks > 3, "{checks} checks");
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
        crate::sqlite::forget_boot(&copy).unwrap();
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
        for name in [old, new].map(|ino| ino.to_string()) {
            let from = tails_of(&path).join(&name).metadata().unwrap();
            let to = tails_of(&copy).join(&name);
            std::fs::set_permissions(to, from.permissions()).unwrap();
        }
        let killed = check(&copy).unwrap();
        assert_eq!((killed.tails, killed.is_mounted), (1, false));
        assert_eq!(killed.unchecked_tails, ["/f1"]);
        assert_eq!(killed.problems, [""; 0]);
        // What the killed mount has not written still has its checksums, also for the next mount.
        let tail = tails_of(&copy).join(old.to_string());
        let file = File::options().write(true).open(tail).unwrap();
        file.write_all_at(b"damage", 70).unwrap();
        let found = problems(&copy).join("\n");
        assert!(found.contains("has a wrong checksum: /f0: "), "{found}");
        let again = SqliteStore::open(&copy, &OWNER).unwrap();
        assert_eq!(again.tails.unsealed().unwrap(), [new]);
        let mut bytes = Vec::new();
        assert!(again.read(old, 0, LONG, &mut bytes).is_err());
        drop(again);
        let unmounted = check(&copy).unwrap();
        assert_eq!((unmounted.tails, unmounted.unchecked_tails.len()), (2, 0));
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
            file.write_all_at(&[7; 1024], (page - 1) * 4096 + 2048)
                .unwrap();
        };
        let pages = copy.metadata().unwrap().len() / 4096;
        let in_log = pages::in_log(&copy).unwrap();
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
