//! What a disk has of a store's files after a power cut: each piece of a file is as at the last sync of that file, or as at
//! the cut; the names in the directory of tails are those of any moment since that directory was synced.
//! A removal or a renaming may therefore be undone, and a new tail may lack its name, its length or its bytes.
//! Not simulated: the mode of a file is as at the cut.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::SystemTime;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Sizes, in bytes, of what the disk writes atomically: a page, or a sector.
const PIECES: [usize; 2] = [4096, 512];
/// The database.
pub const DATABASE: &str = "store.db";
/// The redo log.
const REDO: &str = "store.db-redo";
/// The checksums of changed tails, which no call syncs.
const SUMS: &str = "store.db-sums";
/// The files that recovery reads. It rebuilds the shared-memory file.
const FILES: [&str; 4] = [DATABASE, "store.db-wal", REDO, SUMS];
/// The directory of the tails.
const TAILS: &str = "store.db-tails";

/// How often a store has synced each of its files, by its own counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syncs {
    /// SQLite's log.
    pub log: u64,
    /// The redo log.
    pub redo: u64,
    /// Tails; a sync of two counts twice.
    pub tails: u64,
    /// The directory of the tails.
    pub tail_names: u64,
}

/// A file, whatever its name: its number, and when it was made, because numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileId(u64, Option<SystemTime>);

/// The names in the directory of tails.
type Names = BTreeMap<OsString, FileId>;

/// A tail.
#[derive(Clone, Debug, Default)]
struct Tail {
    synced: Vec<u8>,
    /// As it was before the changes that were observed last.
    before: Vec<u8>,
    seen: Vec<u8>,
    mode: u32,
}

/// The files of a store after a power cut.
#[derive(Debug)]
pub struct Remains {
    files: BTreeMap<&'static str, Vec<u8>>,
    /// By name, with their modes.
    tails: BTreeMap<OsString, (Vec<u8>, u32)>,
}

/// A disk under the files of one store.
#[derive(Clone, Debug, Default)]
pub struct PowerDisk {
    /// The files beside the tails, as they were at their last sync.
    synced: BTreeMap<&'static str, Vec<u8>>,
    /// The names of the tails since their directory was synced, oldest first.
    names: Vec<Names>,
    tails: BTreeMap<FileId, Tail>,
    /// How many tails were synced, of which it is not known yet.
    tail_syncs: u64,
    /// The tails of files that have replaced others since the last sync of these.
    replacing: BTreeSet<OsString>,
}

fn read(dir: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    match fs::read(dir.join(name)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The files beside the tails, as they are.
fn files(dir: &Path) -> io::Result<BTreeMap<&'static str, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for name in FILES {
        if let Some(bytes) = read(dir, name)? {
            files.insert(name, bytes);
        }
    }
    Ok(files)
}

impl PowerDisk {
    /// The disk under the store in `dir` after a sync of everything.
    pub fn synced(dir: &Path) -> io::Result<Self> {
        let mut files = files(dir)?;
        files.remove(SUMS);
        let mut disk = Self { synced: files, ..Self::default() };
        disk.see_tails(dir)?;
        for tail in disk.tails.values_mut() {
            tail.synced.clone_from(&tail.seen);
        }
        Ok(disk)
    }

    /// Whether the database file in `dir` has changed since its last sync.
    pub fn has_other_database(&self, dir: &Path) -> io::Result<bool> {
        Ok(read(dir, DATABASE)?.as_ref() != self.synced.get(DATABASE))
    }

    /// The file of a tail has replaced another one: a commit syncs the tails of such files, and no others.
    pub fn replaces(&mut self, tail: OsString) {
        self.replacing.insert(tail);
    }

    /// Whether a tail was synced of which it is not known which it is.
    pub fn is_unclear(&self) -> bool {
        self.tail_syncs > 0
    }

    /// Takes over what has changed in `dir`, and what was synced meanwhile. No sync concerns a tail that `is_needed` denies.
    pub fn observe(
        &mut self,
        dir: &Path,
        (before, now): (Syncs, Syncs),
        is_needed: impl Fn(&OsStr) -> bool,
    ) -> io::Result<()> {
        for tail in self.tails.values_mut() {
            tail.before.clone_from(&tail.seen);
        }
        self.see_tails(dir)?;
        if now.tail_names > before.tail_names {
            self.names.drain(..self.names.len() - 1);
        }
        self.tail_syncs += now.tails - before.tails;
        let is_log_synced = (now.log, now.redo) != (before.log, before.redo);
        // The sync of a log follows one of all tails that have changed. Without it, a commit has synced those of files that have
        // replaced others, some of which may have been replaced since.
        let is_in_it = |name: &OsStr| if is_log_synced { is_needed(name) } else { self.replacing.contains(name) };
        let current = self.names.last().into_iter().flatten().filter(|(name, _)| is_in_it(name));
        let current: Vec<FileId> = current.map(|(_, id)| *id).collect();
        if self.note_synced(&current) || is_log_synced {
            self.tail_syncs = 0;
            self.replacing.clear();
        }
        for (name, bytes) in files(dir)? {
            let is_synced = match name {
                SUMS | DATABASE => false,
                REDO => now.redo > before.redo,
                _ => now.log > before.log,
            };
            if is_synced {
                self.synced.insert(name, bytes);
            }
        }
        Ok(())
    }

    /// Notes that these tails were synced, if so many were; whether any was. A sync that found fewer changed ones was made before the
    /// last of these changes, or goes on.
    fn note_synced(&mut self, tails: &[FileId]) -> bool {
        let count = |is_changed: fn(&Tail) -> bool| {
            let tails = tails.iter().filter_map(|id| self.tails.get(id));
            tails.filter(|tail| is_changed(tail)).count() as u64
        };
        let (all, earlier) = (count(|tail| tail.synced != tail.seen), count(|tail| tail.synced != tail.before));
        let (has_all, has_earlier) = (self.tail_syncs >= all, self.tail_syncs >= earlier);
        for id in tails.iter().filter(|_| has_all || has_earlier) {
            if let Some(tail) = self.tails.get_mut(id) {
                tail.synced.clone_from(if has_all { &tail.seen } else { &tail.before });
            }
        }
        (has_all && all > 0) || (has_earlier && earlier > 0)
    }

    /// Takes over the names and the bytes of the tails.
    fn see_tails(&mut self, dir: &Path) -> io::Result<()> {
        let entries = match fs::read_dir(dir.join(TAILS)) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            entries => Some(entries?),
        };
        let mut names = Names::new();
        for entry in entries.into_iter().flatten() {
            let entry = entry?;
            // It may have been removed, or renamed, just now.
            let (Ok(file), Ok(bytes)) = (entry.metadata(), fs::read(entry.path())) else {
                continue;
            };
            let id = FileId(file.ino(), file.created().ok());
            names.insert(entry.file_name(), id);
            let tail = self.tails.entry(id).or_default();
            (tail.seen, tail.mode) = (bytes, file.mode());
        }
        if self.names.last() != Some(&names) {
            self.names.push(names);
        }
        Ok(())
    }

    /// Cuts the power: what is left of the files in `dir`, by the seed.
    pub fn cut(mut self, dir: &Path, dice: &mut ChaCha8Rng) -> io::Result<Remains> {
        self.see_tails(dir)?;
        let piece = PIECES[dice.random_range(0..PIECES.len())];
        // In quarters: how much of the unsynced data reached the disk.
        let mut odds = || Odds { piece, share: dice.random_range(0..=4) };
        let (of_logs, of_tails) = (odds(), odds());
        let now = files(dir)?;
        let nothing = Vec::new();
        let mut remains = Remains { files: BTreeMap::new(), tails: BTreeMap::new() };
        for (name, bytes) in &now {
            let synced = self.synced.get(name).unwrap_or(&nothing);
            remains.files.insert(*name, of_logs.mix(synced, bytes, dice));
        }
        let last = self.names.len() - 1;
        let at = match of_tails.share {
            0 => 0,
            4 => last,
            _ => dice.random_range(0..=last),
        };
        for (name, id) in &self.names[at] {
            if let Some(tail) = self.tails.get(id) {
                let bytes = of_tails.mix(&tail.synced, &tail.seen, dice);
                remains.tails.insert(name.clone(), (bytes, tail.mode));
            }
        }
        Ok(remains)
    }
}

impl Remains {
    /// The files in `dir`, as they are.
    pub fn all(dir: &Path) -> io::Result<Self> {
        let mut disk = PowerDisk::default();
        disk.see_tails(dir)?;
        let names = disk.names.pop().unwrap_or_default();
        let tails = names.into_iter().map(|(name, id)| {
            let tail = disk.tails.get(&id).cloned().unwrap_or_default();
            (name, (tail.seen, tail.mode))
        });
        Ok(Self { files: files(dir)?, tails: tails.collect() })
    }

    /// Writes the files into `dir`, which must be empty.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        for (name, bytes) in &self.files {
            fs::write(dir.join(name), bytes)?;
        }
        let tails = dir.join(TAILS);
        if !self.tails.is_empty() {
            fs::create_dir(&tails)?;
        }
        for (name, (bytes, mode)) in &self.tails {
            let path = tails.join(name);
            fs::write(&path, bytes)?;
            fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777))?;
        }
        Ok(())
    }
}

/// How a power cut treats what was not synced.
#[derive(Clone, Copy)]
struct Odds {
    piece: usize,
    share: u32,
}

impl Odds {
    /// The content of a file: each piece is from the last sync, or from now.
    fn mix(self, old: &[u8], new: &[u8], dice: &mut ChaCha8Rng) -> Vec<u8> {
        if old == new {
            return new.to_vec();
        }
        // A file may have its new length on the disk but not its new bytes. Those read as zeros.
        let has_new_length = dice.random_range(0..4) < self.share;
        let length = if has_new_length { new.len() } else { old.len() };
        let mut bytes = vec![0; length];
        for at in (0..length).step_by(self.piece) {
            let end = (at + self.piece).min(length);
            let source = if dice.random_range(0..4) < self.share { new } else { old };
            let upto = end.min(source.len());
            if at < upto {
                bytes[at..upto].copy_from_slice(&source[at..upto]);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rand::SeedableRng;

    use super::*;

    const NOTHING_SYNCED: Syncs = Syncs { log: 0, redo: 0, tails: 0, tail_names: 0 };

    /// What seeds of power cuts leave of the tails in a directory.
    fn remains(dir: &Path, disk: impl Fn() -> PowerDisk) -> Vec<BTreeMap<String, Vec<u8>>> {
        let remains = (0..200).map(|seed| {
            let mut dice = ChaCha8Rng::seed_from_u64(seed);
            let remains = disk().cut(dir, &mut dice).unwrap();
            let tails = remains.tails.into_iter();
            tails.map(|(name, (bytes, _))| (name.into_string().unwrap(), bytes)).collect()
        });
        remains.collect()
    }

    #[test]
    fn a_power_cut_may_undo_a_removal_and_keep_a_part_of_a_tail_until_both_are_synced() {
        let dir = tempfile::tempdir().unwrap();
        let tails = dir.path().join(TAILS);
        fs::create_dir(&tails).unwrap();
        let (gone, changed) = (tails.join("7"), tails.join("8"));
        fs::write(&gone, [1; 5000]).unwrap();
        fs::write(&changed, [1; 5000]).unwrap();
        // The same changes for each seed: only what is synced differs.
        let originals = PowerDisk::synced(dir.path()).unwrap();
        fs::remove_file(&gone).unwrap();
        let open = File::options().write(true).open(&changed).unwrap();
        open.write_all_at(&[2; 9000], 0).unwrap();
        let after = |now: Syncs| {
            remains(dir.path(), || {
                let mut disk = originals.clone();
                disk.observe(dir.path(), (NOTHING_SYNCED, now), |_| true).unwrap();
                disk
            })
        };
        let unsynced = after(NOTHING_SYNCED);
        let has = |name: &str, is_so: &dyn Fn(&[u8]) -> bool| {
            unsynced.iter().any(|left| left.get(name).is_some_and(|bytes| is_so(bytes)))
        };
        assert!(has("7", &|bytes| bytes == [1; 5000]), "the removal is undone");
        assert!(unsynced.iter().any(|left| !left.contains_key("7")), "the removal is kept");
        assert!(has("8", &|bytes| bytes == [1; 5000]) && has("8", &|bytes| bytes == [2; 9000]));
        assert!(has("8", &|bytes| bytes.contains(&1) && bytes.contains(&2)), "a part is kept");
        assert!(has("8", &|bytes| bytes.len() == 9000 && bytes[8999] == 0), "the length is kept alone");
        let synced = after(Syncs { tails: 1, tail_names: 1, redo: 1, ..NOTHING_SYNCED });
        let whole = BTreeMap::from([("8".to_owned(), vec![2; 9000])]);
        assert!(synced.iter().all(|left| *left == whole));
        // Of two changed tails, one was synced: which is not known.
        fs::write(tails.join("9"), [3; 10]).unwrap();
        let one = after(Syncs { tails: 1, tail_names: 1, redo: 1, ..NOTHING_SYNCED });
        assert!(one.iter().any(|left| left["8"] == [1; 5000]));
    }

    #[test]
    fn a_commit_syncs_the_tails_of_files_that_have_replaced_others_alone() {
        let dir = tempfile::tempdir().unwrap();
        let tails = dir.path().join(TAILS);
        fs::create_dir(&tails).unwrap();
        let write = |byte: u8| ["7", "8"].iter().for_each(|name| fs::write(tails.join(name), [byte; 5000]).unwrap());
        write(1);
        let originals = PowerDisk::synced(dir.path()).unwrap();
        write(2);
        let after = |replacing: &[&str]| {
            let mut disk = originals.clone();
            replacing.iter().for_each(|name| disk.replaces(name.into()));
            let now = Syncs { tails: 1, tail_names: 1, ..NOTHING_SYNCED };
            disk.observe(dir.path(), (NOTHING_SYNCED, now), |_| true).unwrap();
            (disk.is_unclear(), remains(dir.path(), || disk.clone()))
        };
        let lost = |left: &[BTreeMap<String, Vec<u8>>], name: &str| left.iter().any(|left| left[name] != [2; 5000]);
        let (is_unclear, left) = after(&["7"]);
        assert!(!is_unclear && !lost(&left, "7") && lost(&left, "8"));
        // Of both, one was synced: which is not known.
        for replacing in [&[][..], &["7", "8"]] {
            let (is_unclear, left) = after(replacing);
            assert!(is_unclear && lost(&left, "7") && lost(&left, "8"));
        }
    }
}
