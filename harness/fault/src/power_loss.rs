//! Simulated power loss under the stores of a local SQLite database, in this process and without FUSE. Each piece of its files
//! keeps either its content at the last sync of that file or its current content, by the seed.
//! Not simulated: torn sectors, disks that ignore flushes. A sync counts if the store's counter of it rises.
//! Points at which the database file changed are not judged: SQLite's syncs during a checkpoint are not
//! observed.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_memory::AgentMemory;
use anyhow::{Context, Result, bail};
use arms::promise::Acknowledgement;
use fuse::store::{Caller, Errno, Kind, NewNode, ROOT, RenameMode, Store, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::{Audit, AuditVerdict, CrashPoints, POWER_LOSS, Status};
use sqlite::{HEAD, SqliteStore, forget_boot};

use super::check::{check, locate};
use super::crash_points::count;
use super::history::{History, RecordChange, was_state};
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

/// A file that is not a record.
const LONG: &[u8] = b".long";
/// The attributes of new files.
const NODE: NewNode<'_> = NewNode { kind: Kind::File, permissions: 0o600, rdev: 0, target: &[] };

/// One point in so many calls no `fsync`, but waits for the sync that a store makes by itself.
const WAITS_EVERY: u64 = 100;

/// How long: a store makes durable what is older than five seconds.
const WAIT: Duration = Duration::from_secs(7);

/// Makes a store durable. Tests replace it.
type Fsync = fn(&dyn Store) -> Result<()>;

/// Opens a store in the database at a path.
pub type OpenStore = fn(&Path, &Caller) -> Result<Box<dyn Store>>;

/// How the store of a backend is opened here; `None` for one whose files are not all in a local database.
pub fn store_of(backend: &str) -> Option<OpenStore> {
    match backend {
        "sqlite" => Some(|path, owner| Ok(Box::new(SqliteStore::open(path, owner)?))),
        "agent-memory" => Some(|path, owner| Ok(Box::new(AgentMemory::open(path, owner, None)?))),
        _ => None,
    }
}

/// The bytes of each of a store's files.
type Image = BTreeMap<&'static str, Vec<u8>>;

/// A store under simulated power loss, and the history of its records.
pub struct PowerCuts {
    dir: PathBuf,
    seed: u64,
    store: Option<Box<dyn Store>>,
    open: OpenStore,
    history: History,
    next: u64,
    generation: u64,
    fsync: Fsync,
    waits_every: u64,
    wait: Duration,
    /// The results so far.
    pub losses: CrashPoints,
}

fn caller() -> Caller {
    Caller { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), now: Timestamp::now() }
}

impl PowerCuts {
    /// A new store in `dir`, which must be empty.
    pub fn new(dir: &Path, seed: u64, open: OpenStore) -> Result<Self> {
        let mut cuts = Self {
            dir: dir.to_owned(),
            seed,
            store: None,
            open,
            history: History::default(),
            next: 1,
            generation: 0,
            fsync: |store| Ok(store.fsync(ROOT, false)?),
            waits_every: WAITS_EVERY,
            wait: WAIT,
            losses: CrashPoints {
                audit: Audit::default(),
                broken: Some(0),
                mixtures: Some(0),
                ..CrashPoints::not_run("", POWER_LOSS, Status::Ran, "")
            },
        };
        fs::create_dir_all(cuts.place())?;
        cuts.open()?;
        Ok(cuts)
    }

    fn place(&self) -> PathBuf {
        self.dir.join(format!("g{}", self.generation))
    }

    fn open(&mut self) -> Result<()> {
        let path = self.place().join(FILES[0]);
        self.store = Some((self.open)(&path, &caller())?);
        Ok(())
    }

    fn store(&self) -> Result<&dyn Store> {
        self.store.as_deref().context("the store is not open")
    }

    fn image(&self) -> Result<Image> {
        let mut image = Image::new();
        for file in FILES {
            match fs::read(self.place().join(file)) {
                Ok(bytes) => image.insert(file, bytes),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error.into()),
            };
        }
        Ok(image)
    }

    /// Changes records, cuts the power after a seeded number of changes, and audits the recovered store.
    /// Fails if the store fails before the cut, or cannot be opened after it.
    pub fn cut(&mut self, point: u64) -> Result<()> {
        let mut dice = ChaCha8Rng::seed_from_u64(self.seed.wrapping_mul(31).wrapping_add(point));
        let base = self.found()?;
        let [before, _] = self.syncs()?;
        self.store()?.fsync(ROOT, false)?;
        let mut counted = self.syncs()?;
        if counted[0] == before {
            // Below, changes since that sync count as synced.
            bail!("the first fsync of a mount did not sync SQLite's log");
        }
        let mut synced = self.image()?;
        let before = synced.get(FILES[0]).cloned();
        let mut done = Vec::new();
        let mut acknowledged = 0;
        let changes: u32 = dice.random_range(1..25);
        let waits = point % self.waits_every == self.waits_every - 1;
        for at in 1..=changes {
            if dice.random_range(0..12) == 0 {
                self.commit_at_once()?;
                self.note_syncs(&mut counted, &mut synced)?;
            }
            let version = self.next;
            self.next += 1;
            let (number, change) = self.change(version, &mut dice)?;
            done.push((number, version, change));
            let is_synced = match waits {
                true => at == changes.div_ceil(2),
                false => dice.random_range(0..6) == 0,
            };
            if is_synced {
                match waits {
                    // No call has synced anything.
                    true => std::thread::sleep(self.wait),
                    false => (self.fsync)(self.store()?)?,
                }
                // An `fsync` acknowledges all earlier changes of the whole store.
                for (number, version, _) in &done[acknowledged..] {
                    self.history.acknowledge(*number, *version, Acknowledgement::Fsync);
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
        forget_boot(&self.place().join(FILES[0]))?;
        self.audit(point, base, &done, acknowledged, has_copied)
    }

    /// How many syncs of SQLite's log and of the redo log there were.
    fn syncs(&self) -> Result<[u64; 2]> {
        let counters = self.store()?.counters();
        Ok([counters["log_syncs"], counters["redo_syncs"]])
    }

    /// Takes over what was synced since `counted`.
    fn note_syncs(&self, counted: &mut [u64; 2], synced: &mut Image) -> Result<()> {
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
    fn commit_at_once(&self) -> Result<()> {
        let store = self.store()?;
        overwrite(store, LONG, &vec![1; HEAD as usize])
    }

    /// Opens the store after the power cut and audits its records.
    fn audit(
        &mut self,
        point: u64,
        base: BTreeMap<u64, State>,
        done: &[(u64, u64, RecordChange)],
        acknowledged: usize,
        has_copied: bool,
    ) -> Result<()> {
        if let Err(error) = self.open() {
            // A store must open after every power cut. While it does not, every record counts as
            // unreadable.
            self.losses.points += 1;
            let mut audit = Audit::unknown(format!("point {point}: the store does not open: {error}"));
            audit.verdict = AuditVerdict::Invalid;
            audit.unreadable = base.len() as u64;
            count(&mut self.losses.broken, true);
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
            locate(&mut audit, &format!("point {point}"));
            if !was_state(base, done, acknowledged, &found) {
                self.losses.mixtures = self.losses.mixtures.map(|mixtures| mixtures + 1);
                audit.verdict = AuditVerdict::Invalid;
                audit.examples.push(format!("point {point}: the records together are in no state that they ever were"));
            }
            let is_broken = audit.verdict == AuditVerdict::Invalid;
            count(&mut self.losses.broken, is_broken);
            self.losses.audit.add(&audit);
        }
        // Opening the next point syncs the recovered state, so it counts as acknowledged.
        self.history.settle(&found, Acknowledgement::Fsync);
        self.history.shorten(Acknowledgement::Fsync);
        Ok(())
    }

    fn change(&mut self, version: u64, dice: &mut ChaCha8Rng) -> Result<(u64, RecordChange)> {
        let number = dice.random_range(0..RECORDS);
        let file = name(number);
        let how = dice.random_range(0..10);
        let change = if how == 0 { RecordChange::Remove } else { RecordChange::Put };
        self.history.begin(number, version, change);
        let store = self.store()?;
        let bytes = content(self.seed, number, version, BYTES);
        let reclaimed = match how {
            0 => unlink(store, file.as_bytes())?,
            1..=4 => {
                // A power cut may have left the temporary file behind.
                if let Some(ino) = unlink(store, b".new")? {
                    store.reclaim(ino)?;
                }
                overwrite(store, b".new", &bytes)?;
                let to = (ROOT, file.as_bytes());
                store.rename(&caller(), (ROOT, b".new"), to, RenameMode::Replace)?
            }
            _ => {
                overwrite(store, file.as_bytes(), &bytes)?;
                None
            }
        };
        if let Some(ino) = reclaimed {
            store.reclaim(ino)?;
        }
        self.history.acknowledge(number, version, Acknowledgement::Write);
        Ok((number, change))
    }

    /// Reads the state of every record.
    fn found(&self) -> Result<BTreeMap<u64, State>> {
        let store = self.store()?;
        let mut inodes = Vec::new();
        store.readdir(ROOT, 0, false, &mut |entry| {
            let name = String::from_utf8_lossy(entry.name);
            inodes.extend(number(&name).map(|number| (number, entry.ino)));
            ControlFlow::Continue(())
        })?;
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

/// Removes a name. Returns the inode that has none any more.
fn unlink(store: &dyn Store, name: &[u8]) -> Result<Option<u64>> {
    match store.unlink(&caller(), ROOT, name) {
        Err(error) if error.errno == Errno::NOENT => Ok(None),
        unlinked => Ok(unlinked?),
    }
}

/// Writes to the start of a file, which is created if it does not exist.
fn overwrite(store: &dyn Store, name: &[u8], bytes: &[u8]) -> Result<()> {
    let found = store.lookup(ROOT, name);
    let found = found.or_else(|_| store.create(&caller(), ROOT, name, &NODE));
    Ok(store.write(&caller(), found?.ino, 0, bytes)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_survives_power_cuts() {
        let dir = tempfile::tempdir().unwrap();
        for backend in ["sqlite", "agent-memory"] {
            let dir = dir.path().join(backend);
            let mut cuts = PowerCuts::new(&dir, 7, store_of(backend).unwrap()).unwrap();
            for point in 0..40 {
                cuts.cut(point).unwrap();
            }
            let losses = &cuts.losses;
            assert_eq!(losses.points + losses.unjudged, 40);
            assert_eq!(losses.audit.verdict, AuditVerdict::Valid, "{losses:?}");
            assert!(losses.audit.present > 100, "{losses:?}");
            assert_eq!((losses.mixtures, losses.broken), (Some(0), Some(0)));
        }
    }

    /// Points that only wait, of both stores and several seeds side by side; whether each was valid.
    fn after_waiting(wait: Duration) -> Vec<bool> {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let of = |backend: &str, seed: u64| {
            let dir = dir.join(format!("{backend}-{seed}"));
            let mut cuts = PowerCuts::new(&dir, seed, store_of(backend).unwrap()).unwrap();
            (cuts.waits_every, cuts.wait) = (1, wait);
            for point in 0..3 {
                if cuts.cut(point).is_err() {
                    return false;
                }
            }
            assert_eq!(cuts.losses.points + cuts.losses.unjudged, 3);
            assert!(cuts.losses.points > 0);
            cuts.losses.audit.verdict == AuditVerdict::Valid
        };
        std::thread::scope(|threads| {
            let of = &of;
            let cases = (1..=6).flat_map(|seed| [("sqlite", seed), ("agent-memory", seed)]);
            let started = cases.map(|(backend, seed)| threads.spawn(move || of(backend, seed)));
            let started: Vec<_> = started.collect();
            let ended = started.into_iter().map(|thread| thread.join().unwrap());
            ended.collect()
        })
    }

    #[test]
    fn what_is_older_than_five_seconds_survives_a_power_cut_without_any_sync() {
        let valid = after_waiting(WAIT);
        assert!(valid.iter().all(|is_valid| *is_valid), "{valid:?}");
    }

    #[test]
    fn what_is_younger_than_five_seconds_does_not_always() {
        let valid = after_waiting(Duration::ZERO);
        assert!(!valid.iter().all(|is_valid| *is_valid), "nothing was lost that could be");
    }

    #[test]
    fn a_store_whose_fsync_does_not_sync_fails_the_audit() {
        let dir = tempfile::tempdir().unwrap();
        let mut cuts = PowerCuts::new(dir.path(), 7, store_of("sqlite").unwrap()).unwrap();
        cuts.fsync = |_| Ok(());
        for point in 0..40 {
            // A store that no longer opens also counts as a failure.
            if cuts.cut(point).is_err() {
                break;
            }
        }
        let losses = &cuts.losses;
        assert_eq!(losses.audit.verdict, AuditVerdict::Invalid, "{losses:?}");
        assert!(losses.broken > Some(0), "{losses:?}");
    }
}
