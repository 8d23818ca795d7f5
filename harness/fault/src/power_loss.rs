//! Simulated power loss under the `sqlite` store, in this process and without FUSE. Each piece of its files
//! keeps either its content at the last sync of that file or its current content, by the seed.
//! Not simulated: torn sectors, disks that ignore flushes. A sync counts if the store's counter of it rises.
//! Points at which the database file changed are not judged: SQLite's syncs during a checkpoint are not
//! observed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use backends::promise::Acknowledgement;
use backends::sqlite::{HEAD, SqliteStore};
use backends::store::{
    Caller, Errno, Kind, NewNode, ROOT, RenameMode, Store, StoreError, Timestamp,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::{Audit, Verdict};

use super::check::check;
use super::history::{Change, History};
use super::record::{State, content, identify, name, number};

/// How many records there are.
const RECORDS: u64 = 32;
/// Bytes of each record.
const BYTES: usize = 1024;
/// Sizes, in bytes, of what the disk writes atomically: a page, or a sector.
const PIECES: [usize; 2] = [4096, 512];
/// The files that recovery reads. It rebuilds the shared-memory file.
const FILES: [&str; 3] = ["store.db", "store.db-wal", REDO];
/// The redo log.
const REDO: &str = "store.db-redo";

/// A file that is no record.
const LONG: &[u8] = b".long";
/// What is created.
const NODE: NewNode<'_> = NewNode {
    kind: Kind::File,
    permissions: 0o600,
    rdev: 0,
    target: &[],
};

/// Makes a store durable. Tests replace it.
type Fsync = fn(&SqliteStore) -> io::Result<()>;

/// The bytes of each of a store's files.
type Image = BTreeMap<&'static str, Vec<u8>>;

/// The results of all points.
#[derive(Debug, Default)]
pub struct PowerLosses {
    /// How many points were judged.
    pub points: u64,
    /// How many points were not judged, because SQLite checkpointed its log.
    pub unjudged: u64,
    /// How many points left a state that the records together never had.
    pub mixtures: u64,
    /// The audit of the records, added up.
    pub audit: Audit,
}

/// A store under simulated power loss, and the history of its records.
pub struct PowerCuts {
    dir: PathBuf,
    seed: u64,
    store: Option<SqliteStore>,
    history: History,
    next: u64,
    generation: u64,
    fsync: Fsync,
    /// The results so far.
    pub losses: PowerLosses,
}

fn failed(error: StoreError) -> io::Error {
    io::Error::other(error.to_string())
}

fn caller() -> Caller {
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        now: Timestamp::now(),
    }
}

impl PowerCuts {
    /// A new store in `dir`, which must be empty.
    ///
    /// # Errors
    /// If the directory or the store cannot be created.
    pub fn new(dir: &Path, seed: u64) -> io::Result<Self> {
        let mut cuts = Self {
            dir: dir.to_owned(),
            seed,
            store: None,
            history: History::default(),
            next: 1,
            generation: 0,
            fsync: |store| store.fsync(ROOT, false).map_err(failed),
            losses: PowerLosses::default(),
        };
        fs::create_dir_all(cuts.place())?;
        cuts.open()?;
        Ok(cuts)
    }

    fn place(&self) -> PathBuf {
        self.dir.join(format!("g{}", self.generation))
    }

    fn open(&mut self) -> io::Result<()> {
        let opened = SqliteStore::open(&self.place().join(FILES[0]), &caller());
        self.store = Some(opened.map_err(|error| io::Error::other(error.to_string()))?);
        Ok(())
    }

    fn store(&self) -> io::Result<&SqliteStore> {
        let store = self.store.as_ref();
        store.ok_or_else(|| io::Error::other("the store is not open"))
    }

    fn image(&self) -> io::Result<Image> {
        let mut image = Image::new();
        for file in FILES {
            match fs::read(self.place().join(file)) {
                Ok(bytes) => image.insert(file, bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        Ok(image)
    }

    /// Changes records, cuts the power after a seeded number of changes, and audits the recovered store.
    ///
    /// # Errors
    /// If the store fails before the cut or cannot be opened after it, or if files cannot be read and
    /// written.
    pub fn cut(&mut self, point: u64) -> io::Result<()> {
        let mut dice = ChaCha8Rng::seed_from_u64(self.seed.wrapping_mul(31).wrapping_add(point));
        let base = self.found()?;
        let [before, _] = self.syncs()?;
        self.store()?.fsync(ROOT, false).map_err(failed)?;
        let mut counted = self.syncs()?;
        if counted[0] == before {
            // What the mount has written since its own sync counts as synced below.
            return Err(io::Error::other(
                "the first fsync of a mount did not sync SQLite's log",
            ));
        }
        let mut synced = self.image()?;
        let before = synced.get(FILES[0]).cloned();
        let mut done = Vec::new();
        let mut acknowledged = 0;
        for _ in 0..dice.random_range(1..25) {
            if dice.random_range(0..12) == 0 {
                self.commit_at_once()?;
                self.note_syncs(&mut counted, &mut synced)?;
            }
            let version = self.next;
            self.next += 1;
            let (number, change) = self.change(version, &mut dice)?;
            done.push((number, version, change));
            if dice.random_range(0..6) == 0 {
                (self.fsync)(self.store()?)?;
                // An `fsync` acknowledges all earlier changes of the whole store.
                for (number, version, _) in &done[acknowledged..] {
                    self.history
                        .acknowledge(*number, *version, Acknowledgement::Fsync);
                }
                acknowledged = done.len();
            }
            // A commit by the clock syncs, too.
            self.note_syncs(&mut counted, &mut synced)?;
        }
        let now = self.image()?;
        // Only a checkpoint writes to the database file.
        let has_copied = now.get(FILES[0]) != before.as_ref();
        let left = mix(&synced, &now, &mut dice);
        self.store = None;
        fs::remove_dir_all(self.place())?;
        self.generation += 1;
        fs::create_dir_all(self.place())?;
        let image = if has_copied { &now } else { &left };
        for (file, bytes) in image {
            fs::write(self.place().join(file), bytes)?;
        }
        self.judge(point, &base, &done, acknowledged, has_copied)
    }

    /// How many syncs of SQLite's log and of the redo log there were.
    fn syncs(&self) -> io::Result<[u64; 2]> {
        let counters = self.store()?.counters();
        Ok([counters["log_syncs"], counters["redo_syncs"]])
    }

    /// Takes over what was synced since `counted`.
    fn note_syncs(&self, counted: &mut [u64; 2], synced: &mut Image) -> io::Result<()> {
        let now = self.syncs()?;
        if now == *counted {
            return Ok(());
        }
        for (file, bytes) in self.image()? {
            let at = usize::from(file == REDO);
            if now[at] > counted[at] {
                synced.insert(file, bytes);
            }
        }
        *counted = now;
        Ok(())
    }

    /// Makes a change that is too long to wait for its commit.
    fn commit_at_once(&self) -> io::Result<()> {
        let store = self.store()?;
        let ino = match store.lookup(ROOT, LONG) {
            Ok(attr) => attr.ino,
            Err(_) => {
                store
                    .create(&caller(), ROOT, LONG, &NODE)
                    .map_err(failed)?
                    .ino
            }
        };
        let bytes = vec![1; HEAD as usize];
        store.write(&caller(), ino, 0, &bytes).map_err(failed)
    }

    fn judge(
        &mut self,
        point: u64,
        base: &BTreeMap<u64, State>,
        done: &[(u64, u64, Change)],
        acknowledged: usize,
        has_copied: bool,
    ) -> io::Result<()> {
        if let Err(error) = self.open() {
            // A store must open after every power cut. While it does not, every record counts as
            // unreadable.
            self.losses.points += 1;
            let mut audit =
                Audit::unknown(format!("point {point}: the store does not open: {error}"));
            audit.verdict = Verdict::Invalid;
            audit.unreadable = base.len() as u64;
            self.losses.audit.add(&audit);
            return Err(error);
        }
        let found = self.found()?;
        if has_copied {
            self.losses.unjudged += 1;
        } else {
            self.losses.points += 1;
            let mut audit = check(&self.history, &found, Some(Acknowledgement::Fsync));
            audit.acknowledged = BTreeMap::from([("fsync".to_owned(), acknowledged as u64)]);
            for example in &mut audit.examples {
                *example = format!("point {point}: {example}");
            }
            if !is_a_state_there_was(base, done, acknowledged, &found) {
                self.losses.mixtures += 1;
                audit.verdict = Verdict::Invalid;
                audit.examples.push(format!(
                    "point {point}: the records together are in no state that they ever were"
                ));
            }
            self.losses.audit.add(&audit);
        }
        // Opening the next point syncs the recovered state, so it counts as acknowledged.
        self.history.settle(&found, Acknowledgement::Fsync);
        self.history.shorten(Acknowledgement::Fsync);
        Ok(())
    }

    fn change(&mut self, version: u64, dice: &mut ChaCha8Rng) -> io::Result<(u64, Change)> {
        let number = dice.random_range(0..RECORDS);
        let file = name(number);
        let caller = caller();
        let how = dice.random_range(0..10);
        let change = if how == 0 {
            Change::Remove
        } else {
            Change::Put
        };
        self.history.begin(number, version, change);
        let store = self.store()?;
        let bytes = content(self.seed, number, version, BYTES);
        let reclaimed = match how {
            0 => match store.unlink(&caller, ROOT, file.as_bytes()) {
                Err(error) if error.errno == Errno::NOENT => None,
                unlinked => unlinked.map_err(failed)?,
            },
            1..=4 => {
                // A power cut may have left the temporary file behind.
                let left = match store.unlink(&caller, ROOT, b".new") {
                    Err(error) if error.errno == Errno::NOENT => None,
                    unlinked => unlinked.map_err(failed)?,
                };
                if let Some(ino) = left {
                    store.reclaim(ino).map_err(failed)?;
                }
                let made = store
                    .create(&caller, ROOT, b".new", &NODE)
                    .map_err(failed)?;
                store.write(&caller, made.ino, 0, &bytes).map_err(failed)?;
                let to = (ROOT, file.as_bytes());
                let renamed = store.rename(&caller, (ROOT, b".new"), to, RenameMode::Replace);
                renamed.map_err(failed)?
            }
            _ => {
                let ino = match store.lookup(ROOT, file.as_bytes()) {
                    Ok(attr) => attr.ino,
                    Err(_) => {
                        let made = store.create(&caller, ROOT, file.as_bytes(), &NODE);
                        made.map_err(failed)?.ino
                    }
                };
                store.write(&caller, ino, 0, &bytes).map_err(failed)?;
                None
            }
        };
        if let Some(ino) = reclaimed {
            store.reclaim(ino).map_err(failed)?;
        }
        self.history
            .acknowledge(number, version, Acknowledgement::Write);
        Ok((number, change))
    }

    /// Reads the state of every record.
    fn found(&self) -> io::Result<BTreeMap<u64, State>> {
        let store = self.store()?;
        let mut inodes = Vec::new();
        store
            .readdir(ROOT, 0, false, &mut |entry| {
                let name = String::from_utf8_lossy(entry.name);
                inodes.extend(number(&name).map(|number| (number, entry.ino)));
                ControlFlow::Continue(())
            })
            .map_err(failed)?;
        let mut found = BTreeMap::new();
        for (number, ino) in inodes {
            let mut bytes = Vec::new();
            let state = match store.read(ino, 0, BYTES * 2, &mut bytes) {
                Ok(()) => identify(self.seed, number, &bytes),
                Err(error) => State::Unreadable(error.to_string()),
            };
            found.insert(number, state);
        }
        Ok(found)
    }
}

/// The content of the disk after a power cut: each piece is from the last sync or from now.
fn mix(synced: &Image, now: &Image, dice: &mut ChaCha8Rng) -> Image {
    let piece = PIECES[dice.random_range(0..PIECES.len())];
    // In quarters: how much of the unsynced data reached the disk.
    let share = dice.random_range(0..=4);
    let mut left = Image::new();
    for (file, new) in now {
        let empty = Vec::new();
        let old = synced.get(file).unwrap_or(&empty);
        // A file may have its new length on the disk but not its new bytes. Those read as zeros.
        let is_grown = new.len() <= old.len() || dice.random_range(0..4) < share;
        let length = if is_grown { new.len() } else { old.len() };
        let is_unchanged = old == new;
        let mut bytes = vec![0; length];
        for at in (0..length).step_by(piece) {
            let end = (at + piece).min(length);
            let is_new = dice.random_range(0..4) < share;
            let source = if is_new || is_unchanged { new } else { old };
            let upto = end.min(source.len());
            if at < upto {
                bytes[at..upto].copy_from_slice(&source[at..upto]);
            }
        }
        left.insert(file, bytes);
    }
    left
}

/// Whether the records are in the state after some prefix of `done` that includes all acknowledged changes.
fn is_a_state_there_was(
    base: &BTreeMap<u64, State>,
    done: &[(u64, u64, Change)],
    acknowledged: usize,
    found: &BTreeMap<u64, State>,
) -> bool {
    let mut state = base.clone();
    // A new file is empty between its creation and its first write. Empty files count as absent.
    let is_same = |state: &BTreeMap<u64, State>| {
        let (mut state, mut found) = (state.clone(), found.clone());
        state.retain(|_, own| *own != State::Empty);
        found.retain(|_, own| *own != State::Empty);
        state == found
    };
    for (at, (number, version, change)) in done.iter().enumerate() {
        if at >= acknowledged && is_same(&state) {
            return true;
        }
        match change {
            Change::Put => state.insert(*number, State::Whole(*version)),
            Change::Remove => state.remove(number),
        };
    }
    is_same(&state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_survives_power_cuts() {
        let dir = tempfile::tempdir().unwrap();
        let mut cuts = PowerCuts::new(dir.path(), 7).unwrap();
        for point in 0..40 {
            cuts.cut(point).unwrap();
        }
        let losses = &cuts.losses;
        assert_eq!(losses.points + losses.unjudged, 40);
        assert_eq!(losses.audit.verdict, Verdict::Valid, "{losses:?}");
        assert!(losses.audit.present > 100, "{losses:?}");
        assert_eq!(losses.mixtures, 0);
    }

    #[test]
    fn a_store_whose_fsync_does_not_sync_fails_the_audit() {
        let dir = tempfile::tempdir().unwrap();
        let mut cuts = PowerCuts::new(dir.path(), 7).unwrap();
        cuts.fsync = |_| Ok(());
        for point in 0..40 {
            // A store that no longer opens also counts as a failure.
            if cuts.cut(point).is_err() {
                break;
            }
        }
        let losses = &cuts.losses;
        assert_eq!(losses.audit.verdict, Verdict::Invalid, "{losses:?}");
    }

    #[test]
    fn a_store_with_a_later_change_alone_is_in_no_past_state() {
        let done = [
            (1, 1, Change::Put),
            (2, 2, Change::Put),
            (1, 3, Change::Remove),
        ];
        let whole = |versions: &[(u64, u64)]| -> BTreeMap<u64, State> {
            let versions = versions.iter();
            versions
                .map(|(number, version)| (*number, State::Whole(*version)))
                .collect()
        };
        let base = whole(&[]);
        let is_state = |acknowledged, found: &[(u64, u64)]| {
            is_a_state_there_was(&base, &done, acknowledged, &whole(found))
        };
        assert!(is_state(0, &[]) && is_state(0, &[(1, 1)]) && is_state(0, &[(1, 1), (2, 2)]));
        assert!(is_state(3, &[(2, 2)]) && is_state(0, &[(2, 2)]));
        assert!(!is_state(1, &[]), "the first was acknowledged");
        assert!(!is_state(0, &[(1, 3)]));
        let done = [(1, 1, Change::Put), (2, 2, Change::Put)];
        let mixture = whole(&[(2, 2)]);
        assert!(
            !is_a_state_there_was(&base, &done, 0, &mixture),
            "the second without the first"
        );
    }
}
