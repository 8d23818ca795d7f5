//! Simulated power loss under the stores of a local SQLite database, in this process and without FUSE: changes records,
//! short ones and some past the first 256 KiB of a file, and audits what a [`PowerDisk`] leaves of them.
//! Not simulated: torn sectors, disks that ignore flushes. A sync counts if the store's counter of it rises.
//! Points at which the database file changed are not judged: SQLite's syncs during a checkpoint are not
//! observed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent_memory::AgentMemory;
use anyhow::{Context, Result, bail};
use arms::promise::Acknowledgement;
use fuse::store::{Allocation, Caller, Change, Errno, Ino, Kind, NewNode, ROOT, RenameMode, Store, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::{Audit, AuditVerdict, CrashPoints, POWER_LOSS, Status};
use sqlite::{HEAD, SqliteStore, forget_boot};

use super::audit::{check, locate};
use super::crash_points::count;
use super::history::{History, RecordChange, was_state};
use super::power_disk::{DATABASE, PowerDisk, Remains, Syncs};
use super::record::{
    DAMAGED_LINES, LOG_LINES, LONG_AT, STRANGERS, State, content, identify, log_line, log_states, long_bytes, name,
    number,
};

/// How many records there are.
const RECORDS: u64 = 32;
/// Bytes of each record.
const BYTES: usize = 1024;
/// The numbers of the records whose content lies past [`LONG_AT`], each in a file of its own.
const LONG_RECORDS: Range<u64> = RECORDS..RECORDS + 4;
/// The numbers of the records that lie side by side past the [`LONG_AT`] of one file, and are overwritten in place.
const CELLS: Range<u64> = 100..164;
/// Bytes of a cell: what every disk writes atomically.
const CELL: usize = 512;
/// The file of the cells.
const CELL_FILE: &[u8] = b".cells";
/// The file to which lines are appended, past its [`LONG_AT`].
const LOG: &[u8] = b".log";

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

/// A record that changes: its number, the version, and how.
type ChangingRecord = (u64, u64, RecordChange);

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
    /// The tails of the files that have replaced others by the last change.
    replacing: Vec<OsString>,
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
            replacing: Vec::new(),
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
        let path = self.place().join(DATABASE);
        self.store = Some((self.open)(&path, &caller())?);
        Ok(())
    }

    fn store(&self) -> Result<&dyn Store> {
        self.store.as_deref().context("the store is not open")
    }

    /// Changes records, cuts the power after a seeded number of changes, and audits the recovered store.
    /// Fails if the store fails before the cut, or cannot be opened after it.
    pub fn cut(&mut self, point: u64) -> Result<()> {
        let mut dice = ChaCha8Rng::seed_from_u64(self.seed.wrapping_mul(31).wrapping_add(point));
        if dice.random_range(0..8) == 0 {
            // An orderly end gives tails their checksums.
            self.store = None;
            self.open()?;
        }
        let base = self.found()?;
        let before = self.syncs()?;
        self.store()?.fsync(ROOT, false)?;
        let mut counted = self.syncs()?;
        if counted.log == before.log {
            // Below, changes since that sync count as synced.
            bail!("the first fsync of a mount did not sync SQLite's log");
        }
        let mut disk = PowerDisk::synced(&self.place())?;
        let mut done = Vec::new();
        let mut acknowledged = 0;
        let changes: u32 = dice.random_range(1..25);
        let waits = point % self.waits_every == self.waits_every - 1;
        for at in 1..=changes {
            if dice.random_range(0..12) == 0 {
                self.commit_at_once()?;
                self.note_syncs(&mut counted, &mut disk)?;
            }
            self.change(&mut dice, &mut done)?;
            self.replacing.drain(..).for_each(|tail| disk.replaces(tail));
            // Before the sync, so that what it syncs is known.
            self.note_syncs(&mut counted, &mut disk)?;
            let is_synced = if waits { at == changes.div_ceil(2) } else { dice.random_range(0..6) == 0 };
            if is_synced {
                if waits {
                    // No call has synced anything.
                    self.wait(&mut counted, &mut disk)?
                } else {
                    (self.fsync)(self.store()?)?
                }
                // An `fsync` acknowledges all earlier changes of the whole store.
                for (number, version, _) in &done[acknowledged..] {
                    self.history.acknowledge(*number, *version, Acknowledgement::Fsync);
                }
                acknowledged = done.len();
            }
            // A commit by the clock syncs, too.
            self.note_syncs(&mut counted, &mut disk)?;
        }
        // Only a checkpoint writes to the database file.
        let has_copied = disk.has_other_database(&self.place())?;
        let is_unclear = disk.is_unclear();
        let mut left = if has_copied { Remains::all(&self.place())? } else { disk.cut(&self.place(), &mut dice)? };
        // A sync while the files were read is in some of them.
        let is_unclear = has_copied || is_unclear || self.syncs()? != counted;
        if is_unclear && !has_copied {
            left = Remains::all(&self.place())?;
        }
        self.store = None;
        fs::remove_dir_all(self.place())?;
        self.generation += 1;
        fs::create_dir_all(self.place())?;
        left.write(&self.place())?;
        forget_boot(&self.place().join(DATABASE))?;
        self.audit(point, base, &done, acknowledged, is_unclear)
    }

    /// Waits for the sync that the store makes by itself.
    fn wait(&self, counted: &mut Syncs, disk: &mut PowerDisk) -> Result<()> {
        let until = Instant::now() + self.wait;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
            self.note_syncs(counted, disk)?;
        }
        Ok(())
    }

    /// How often the store has synced its files.
    fn syncs(&self) -> Result<Syncs> {
        let counters = self.store()?.counters();
        Ok(Syncs {
            log: counters["log_syncs"],
            redo: counters["redo_syncs"],
            tails: counters["tail_syncs"],
            tail_names: counters["tail_name_syncs"],
        })
    }

    /// Takes over what has changed and what was synced since `counted`.
    fn note_syncs(&self, counted: &mut Syncs, disk: &mut PowerDisk) -> Result<()> {
        let now = self.syncs()?;
        let mut needed = BTreeSet::new();
        self.store()?.readdir(ROOT, 0, false, &mut |entry| {
            needed.insert(entry.ino.to_string());
            ControlFlow::Continue(())
        })?;
        let is_needed = |name: &OsStr| name.to_str().is_some_and(|name| needed.contains(name));
        disk.observe(&self.place(), (*counted, now), is_needed)?;
        *counted = now;
        Ok(())
    }

    /// Makes a change that is too long to wait for its commit.
    fn commit_at_once(&self) -> Result<()> {
        let store = self.store()?;
        overwrite(store, LONG, 0, &vec![1; HEAD as usize])
    }

    /// Opens the store after the power cut and audits its records.
    fn audit(
        &mut self,
        point: u64,
        base: BTreeMap<u64, State>,
        done: &[ChangingRecord],
        acknowledged: usize,
        is_unclear: bool,
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
        if is_unclear {
            self.losses.unjudged += 1;
        } else {
            self.losses.points += 1;
            let mut audit = check(&self.history, &found, Some(Acknowledgement::Fsync));
            audit.acknowledged = BTreeMap::from([("fsync".to_owned(), acknowledged as u64)]);
            self.check_tails(&found, &mut audit)?;
            locate(&mut audit, &format!("point {point}"));
            // What lies past the head of a file is durable by itself, in any order, where no call has synced it.
            let is_ordered = |number: u64| number < RECORDS;
            let of_order = |states: &BTreeMap<u64, State>| -> BTreeMap<u64, State> {
                let states = states.iter().filter(|(number, _)| is_ordered(**number));
                states.map(|(number, state)| (*number, state.clone())).collect()
            };
            let ordered: Vec<ChangingRecord> =
                done.iter().filter(|(number, ..)| is_ordered(*number)).copied().collect();
            let before = done[..acknowledged].iter().filter(|(number, ..)| is_ordered(*number)).count();
            if !was_state(of_order(&base), &ordered, before, &of_order(&found)) {
                self.losses.mixtures = self.losses.mixtures.map(|mixtures| mixtures + 1);
                audit.verdict = AuditVerdict::Invalid;
                audit.examples.push(format!("point {point}: the records together are in no state that they ever were"));
            }
            let is_broken = audit.verdict != AuditVerdict::Valid;
            count(&mut self.losses.broken, is_broken);
            self.losses.audit.add(&audit);
        }
        // Opening the next point syncs the recovered state, so it counts as acknowledged.
        self.history.settle(&found, Acknowledgement::Fsync);
        self.history.shorten(Acknowledgement::Fsync);
        // A lost line counts once.
        let lines = self.history.records().range(LOG_LINES..STRANGERS).map(|(number, _)| *number);
        let lost: Vec<u64> = lines.filter(|number| !matches!(found.get(number), Some(State::Whole(_)))).collect();
        for number in lost {
            self.history.forget(number..number + 1);
        }
        self.repair(&found)
    }

    /// Counts damage: a disk writes a cell as a whole, and a mount cuts off what is not synced of a tail. Only a record whose
    /// version is not synced may be damaged: it has no bytes past its [`LONG_AT`].
    fn check_tails(&self, found: &BTreeMap<u64, State>, audit: &mut Audit) -> Result<()> {
        for (number, state) in found {
            let State::Damaged(what) = state else {
                continue;
            };
            let is_torn = match *number {
                number if LONG_RECORDS.contains(&number) => {
                    self.store()?.lookup(ROOT, name(number).as_bytes())?.size > LONG_AT
                }
                number => CELLS.contains(&number) || number >= DAMAGED_LINES,
            };
            if is_torn {
                audit.torn += 1;
                audit.verdict = AuditVerdict::Invalid;
                audit.examples.push(format!("record {number} past the first 256 KiB of a file is torn: {what}"));
            }
        }
        Ok(())
    }

    /// Removes what the power cut has left in part, as its owner would: the next point judges only its own changes.
    fn repair(&mut self, found: &BTreeMap<u64, State>) -> Result<()> {
        let damaged = found.iter().filter(|(_, state)| matches!(state, State::Damaged(_)));
        let damaged: Vec<u64> = damaged.map(|(number, _)| *number).collect();
        for number in damaged {
            let file = match number {
                number if LONG_RECORDS.contains(&number) => name(number).into_bytes(),
                number if CELLS.contains(&number) => CELL_FILE.to_vec(),
                number if number >= LOG_LINES => LOG.to_vec(),
                _ => continue,
            };
            remove(self.store()?, &file)?;
            match number {
                number if CELLS.contains(&number) => self.history.forget(CELLS),
                number if number >= LOG_LINES => self.history.forget(LOG_LINES..STRANGERS),
                number => self.history.forget(number..number + 1),
            }
        }
        Ok(())
    }

    /// Makes a change, and adds the records that it changes to `done`.
    fn change(&mut self, dice: &mut ChaCha8Rng, done: &mut Vec<ChangingRecord>) -> Result<()> {
        let begun = done.len();
        match dice.random_range(0..12) {
            0..=6 => self.change_short(dice, done)?,
            7 | 8 => self.change_long(dice, done)?,
            9 | 10 => self.change_log(dice, done)?,
            _ => self.change_cells(dice, done)?,
        }
        for (number, version, _) in &done[begun..] {
            self.history.acknowledge(*number, *version, Acknowledgement::Write);
        }
        Ok(())
    }

    /// Notes that records change together; the version.
    fn begin(
        &mut self,
        numbers: impl IntoIterator<Item = u64>,
        change: RecordChange,
        done: &mut Vec<ChangingRecord>,
    ) -> u64 {
        let version = self.next;
        self.next += 1;
        for number in numbers {
            self.history.begin(number, version, change);
            done.push((number, version, change));
        }
        version
    }

    fn change_short(&mut self, dice: &mut ChaCha8Rng, done: &mut Vec<ChangingRecord>) -> Result<()> {
        let number = dice.random_range(0..RECORDS);
        let file = name(number);
        let how = dice.random_range(0..10);
        let change = if how == 0 { RecordChange::Remove } else { RecordChange::Put };
        let version = self.begin([number], change, done);
        let store = self.store()?;
        let bytes = content(self.seed, number, version, BYTES);
        match how {
            0 => remove(store, file.as_bytes()),
            1..=4 => {
                // A power cut may have left the temporary file behind.
                remove(store, b".new")?;
                overwrite(store, b".new", 0, &bytes)?;
                rename(store, b".new", file.as_bytes())
            }
            _ => overwrite(store, file.as_bytes(), 0, &bytes),
        }
    }

    /// Changes a record in the tail of a file of its own: removes the file, replaces it, or truncates and rewrites it.
    fn change_long(&mut self, dice: &mut ChaCha8Rng, done: &mut Vec<ChangingRecord>) -> Result<()> {
        let number = dice.random_range(LONG_RECORDS);
        let file = name(number);
        let bytes = |seed, version| content(seed, number, version, long_bytes(version));
        match dice.random_range(0..6) {
            0 => {
                self.begin([number], RecordChange::Remove, done);
                remove(self.store()?, file.as_bytes())
            }
            1..=3 => {
                let version = self.begin([number], RecordChange::Put, done);
                let store = self.store()?;
                remove(store, b".new-long")?;
                overwrite(store, b".new-long", LONG_AT, &bytes(self.seed, version))?;
                let is_replaced = store.lookup(ROOT, file.as_bytes()).is_ok();
                rename(store, b".new-long", file.as_bytes())?;
                let ino = store.lookup(ROOT, file.as_bytes())?.ino;
                self.replacing.extend(is_replaced.then(|| ino.to_string().into()));
                Ok(())
            }
            _ => {
                if let Ok(attr) = self.store()?.lookup(ROOT, file.as_bytes()) {
                    self.begin([number], RecordChange::Remove, done);
                    resize(self.store()?, attr.ino, 0)?;
                }
                let version = self.begin([number], RecordChange::Put, done);
                overwrite(self.store()?, file.as_bytes(), LONG_AT, &bytes(self.seed, version))
            }
        }
    }

    /// Appends a line to the log, or truncates it to some of its lines, or to nothing.
    fn change_log(&mut self, dice: &mut ChaCha8Rng, done: &mut Vec<ChangingRecord>) -> Result<()> {
        let line = log_line(self.seed, 0).len() as u64;
        let ino = open(self.store()?, LOG)?;
        let size = self.store()?.getattr(ino)?.size.max(LONG_AT);
        let lines = (size - LONG_AT).div_ceil(line);
        if lines > 0 && dice.random_range(0..6) == 0 {
            let kept = dice.random_range(0..lines);
            let mut gone = Vec::new();
            self.store()?.read(ino, LONG_AT + kept * line, (lines * line) as usize, &mut gone)?;
            let gone = log_states(self.seed, &gone).into_iter().map(|(number, _)| number);
            self.begin(gone, RecordChange::Remove, done);
            let size = match kept {
                0 if dice.random_range(0..2) == 0 => 0,
                kept => LONG_AT + kept * line,
            };
            return resize(self.store()?, ino, size);
        }
        for _ in 0..dice.random_range(1..4) {
            let number = LOG_LINES + self.next;
            let version = self.begin([number], RecordChange::Put, done);
            let store = self.store()?;
            let end = store.getattr(ino)?.size.max(LONG_AT);
            store.write(&caller(), ino, end, &log_line(self.seed, version))?;
        }
        Ok(())
    }

    /// Overwrites cells in place, makes a hole of some, or cuts off the last ones and extends the file again.
    fn change_cells(&mut self, dice: &mut ChaCha8Rng, done: &mut Vec<ChangingRecord>) -> Result<()> {
        let first = dice.random_range(CELLS);
        let last = (first + dice.random_range(1..6)).min(CELLS.end);
        let place = |cell: u64| LONG_AT + (cell - CELLS.start) * CELL as u64;
        let ino = open(self.store()?, CELL_FILE)?;
        let size = self.store()?.getattr(ino)?.size;
        match dice.random_range(0..8) {
            0 if size > place(first) => {
                self.begin(first..last, RecordChange::Remove, done);
                let length = place(last) - place(first);
                Ok(self.store()?.fallocate(&caller(), ino, Allocation::PunchHole, place(first), length)?)
            }
            1 if size > place(first) => {
                self.begin(first..CELLS.end, RecordChange::Remove, done);
                resize(self.store()?, ino, place(first))?;
                resize(self.store()?, ino, place(CELLS.end))
            }
            _ => {
                let version = self.begin(first..last, RecordChange::Put, done);
                let cells = (first..last).map(|cell| content(self.seed, cell, version, CELL));
                let bytes = cells.collect::<Vec<_>>().concat();
                Ok(self.store()?.write(&caller(), ino, place(first), &bytes)?)
            }
        }
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
            let is_long = LONG_RECORDS.contains(&number);
            let state = match past(store, ino, if is_long { LONG_AT } else { 0 }) {
                Ok(bytes) if is_long && bytes.is_empty() && store.getattr(ino)?.size > 0 => {
                    State::Damaged("its content is cut off".to_owned())
                }
                Ok(bytes) => identify(self.seed, number, &bytes),
                Err(error) => State::Unreadable(error.to_string()),
            };
            found.insert(number, state);
        }
        if let Ok(attr) = store.lookup(ROOT, LOG) {
            match past(store, attr.ino, LONG_AT) {
                Ok(lines) => found.extend(log_states(self.seed, &lines)),
                Err(error) => drop(found.insert(LOG_LINES, State::Unreadable(error.to_string()))),
            }
        }
        if let Ok(attr) = store.lookup(ROOT, CELL_FILE) {
            match past(store, attr.ino, LONG_AT) {
                Ok(cells) => {
                    let cells = CELLS.zip(cells.chunks(CELL)).filter(|(_, cell)| cell.iter().any(|byte| *byte != 0));
                    found.extend(cells.map(|(number, cell)| (number, identify(self.seed, number, cell))));
                }
                Err(error) => found.extend(CELLS.map(|number| (number, State::Unreadable(error.to_string())))),
            }
        }
        Ok(found)
    }
}

/// The bytes of a file from `offset` on.
fn past(store: &dyn Store, ino: Ino, offset: u64) -> Result<Vec<u8>> {
    let size = store.getattr(ino)?.size;
    let mut bytes = Vec::new();
    store.read(ino, offset, size.saturating_sub(offset) as usize, &mut bytes)?;
    Ok(bytes)
}

/// Removes a file, if there is one.
fn remove(store: &dyn Store, name: &[u8]) -> Result<()> {
    match store.unlink(&caller(), ROOT, name) {
        Err(error) if error.errno == Errno::NOENT => Ok(()),
        Err(error) => Err(error.into()),
        Ok(None) => Ok(()),
        Ok(Some(ino)) => Ok(store.reclaim(ino)?),
    }
}

/// Renames a file over another.
fn rename(store: &dyn Store, from: &[u8], to: &[u8]) -> Result<()> {
    let replaced = store.rename(&caller(), (ROOT, from), (ROOT, to), RenameMode::Replace)?;
    match replaced {
        Some(ino) => Ok(store.reclaim(ino)?),
        None => Ok(()),
    }
}

/// The inode of a file, which is created if it does not exist.
fn open(store: &dyn Store, name: &[u8]) -> Result<Ino> {
    let found = store.lookup(ROOT, name);
    Ok(found.or_else(|_| store.create(&caller(), ROOT, name, &NODE))?.ino)
}

/// Writes to a file, which is created if it does not exist.
fn overwrite(store: &dyn Store, name: &[u8], offset: u64, bytes: &[u8]) -> Result<()> {
    Ok(store.write(&caller(), open(store, name)?, offset, bytes)?)
}

fn resize(store: &dyn Store, ino: Ino, size: u64) -> Result<()> {
    let change = Change { size: Some(size), ..Change::default() };
    store.setattr(&caller(), ino, &change)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `CTXBENCH_POWER_CUTS` is how many power cuts each store gets.
    #[test]
    fn a_store_survives_power_cuts() {
        let asked = std::env::var("CTXBENCH_POWER_CUTS").ok();
        let cuts_wanted: u64 = asked.map_or(40, |count| count.parse().unwrap());
        let dir = tempfile::tempdir().unwrap();
        for backend in ["sqlite", "agent-memory"] {
            let dir = dir.path().join(backend);
            let mut cuts = PowerCuts::new(&dir, 7, store_of(backend).unwrap()).unwrap();
            for point in 0..cuts_wanted {
                cuts.cut(point).unwrap();
            }
            let losses = &cuts.losses;
            eprintln!("{backend}: {losses:?}");
            assert_eq!(losses.points + losses.unjudged, cuts_wanted);
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
                if let Err(error) = cuts.cut(point) {
                    eprintln!("{backend}, seed {seed}, point {point}: {error}");
                    return false;
                }
            }
            assert_eq!(cuts.losses.points + cuts.losses.unjudged, 3);
            assert!(cuts.losses.points > 0);
            eprintln!("{backend}, seed {seed}: {:?}", cuts.losses.audit.examples);
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

    /// The audit of planted states, in which line 1 was synced and then truncated off, line 2 is synced, and line 3 is not.
    fn audit_of(planted: &[(u64, State)]) -> Audit {
        let dir = tempfile::tempdir().unwrap();
        let mut cuts = PowerCuts::new(dir.path(), 7, store_of("sqlite").unwrap()).unwrap();
        for (line, change, class) in [
            (1, RecordChange::Put, Acknowledgement::Fsync),
            (1, RecordChange::Remove, Acknowledgement::Fsync),
            (2, RecordChange::Put, Acknowledgement::Fsync),
            (3, RecordChange::Put, Acknowledgement::Write),
        ] {
            let version = cuts.begin([LOG_LINES + line], change, &mut Vec::new());
            cuts.history.acknowledge(LOG_LINES + line, version, class);
        }
        // The versions of the lines are not their numbers.
        let version = |line: u64| cuts.history.records()[&(LOG_LINES + line)][0].version;
        let whole = |(number, state): &(u64, State)| match state {
            State::Whole(line) => (*number, State::Whole(version(*line))),
            state => (*number, state.clone()),
        };
        let found: BTreeMap<u64, State> = planted.iter().map(whole).collect();
        let mut audit = check(&cuts.history, &found, Some(Acknowledgement::Fsync));
        cuts.check_tails(&found, &mut audit).unwrap();
        audit
    }

    #[test]
    fn the_audit_excuses_a_missing_line_that_was_not_synced_and_no_other_bytes_in_its_place() {
        let line = |number: u64| (LOG_LINES + number, State::Whole(number));
        let valid = audit_of(&[line(2)]);
        assert_eq!((valid.verdict, valid.unpromised), (AuditVerdict::Valid, 1), "{valid:?}");
        assert_eq!(audit_of(&[line(2), line(3)]).verdict, AuditVerdict::Valid);
        // A line from before the truncation, after what is synced or instead of it.
        assert_eq!(audit_of(&[line(2), line(1)]).phantom, 1);
        let instead = audit_of(&[line(1)]);
        assert_eq!((instead.phantom, instead.lost), (1, 1));
        // Zeros, or a part of a line.
        let zeros = (DAMAGED_LINES, State::Damaged("44 bytes, 44 of them zero".to_owned()));
        assert_eq!(audit_of(&[line(2), zeros]).torn, 1);
        // A line that was never written.
        assert_eq!(audit_of(&[line(2), (LOG_LINES + 9, State::Whole(2))]).phantom, 1);
        let unread = audit_of(&[(LOG_LINES, State::Unreadable("an error".to_owned()))]);
        assert_ne!(unread.verdict, AuditVerdict::Valid);
        // A record whose synced content is cut off; one that was not synced may be.
        let cut = |number| (number, State::Damaged("its content is cut off".to_owned()));
        assert_eq!(audit_of(&[line(2), cut(CELLS.start)]).verdict, AuditVerdict::Invalid);
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
