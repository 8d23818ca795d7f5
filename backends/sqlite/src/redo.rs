//! The redo log: the changes since SQLite's last commit, each appended before its call returns.
//!
//! A transaction stays open over many calls, and a killed daemon loses it. The kernel keeps what it has copied to this
//! file's pages, and the next mount applies it again. Where every commit is durable, `fsync` syncs this file alone;
//! SQLite's own log then has to be durable before such records are overwritten.
//!
//! The header says which change was recorded last, and which was committed last. Until the machine restarts, every change
//! up to these has to be in the database or in a record: if one is not, either log is damaged. After power loss, records
//! that do not follow the database's state are ignored.

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use fuse::store::Result;
use fuse::unfinished;
use memmap2::{MmapMut, MmapOptions};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::io::preadv;

use crate::HEAD;
use crate::files::{new_redo_of, open_beside, redo_of};
use crate::set_aside::{ChangeId, RedoRecord};

/// Bytes of records after which the transaction is committed.
const COMMIT_AT: u64 = 1 << 20;

/// Records after which the transaction is committed. Their pages fit into SQLite's cache, so that none spills.
const RECORDS_MAX: u32 = 500;

/// Records of one change: it may need the tail of a file.
const CHANGE_RECORDS: u32 = 2;

/// Bytes that must be free on the disk for a transaction to stay open: a record changes at most two chunks of content and
/// a few pages. With less, every change is committed at once, so that the call that meets a full disk fails.
const ROOM: u64 = 128 << 20;

/// The longest payload of a change that is recorded wherever the file ends. Only a long write has a longer one.
pub(super) const PAYLOAD_MAX: usize = 129 << 10;

/// Bytes of the file's own header.
pub(super) const START: usize = 64;

/// Bytes of the file: its header, room for records up to [`COMMIT_AT`], and the last one.
const FILE_BYTES: u64 = START as u64 + COMMIT_AT + RECORD_MAX;

/// The longest record; names and values beside a payload are shorter than a page.
const RECORD_MAX: u64 = PAYLOAD_MAX as u64 + 4096;

/// Bytes of memory that the longest record and the header of the file are copied from.
const SOURCE_BYTES: u64 = HEAD + RECORD_MAX + START as u64;

/// Bytes before a payload: its length, a checksum of what follows, the number of the change.
const HEADER: usize = 16;

/// The header of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// The mount that wrote the file.
    mount: i64,
    /// The run of the kernel in which it did; 0 where that is not known, or of no account.
    boot: u128,
    /// The change that was recorded last.
    last: u64,
    /// The change that was committed last.
    committed: u64,
}

impl Header {
    fn encode(&self) -> [u8; START] {
        let mut bytes = [0; START];
        bytes[..8].copy_from_slice(&self.mount.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.boot.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.last.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.committed.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..START - 4]);
        bytes[START - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are not those of a header.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, sum) = bytes.get(..START)?.split_at(START - 4);
        let (mount, rest) = header.split_first_chunk()?;
        let (boot, rest) = rest.split_first_chunk()?;
        let (last, rest) = rest.split_first_chunk()?;
        let committed = rest.first_chunk()?;
        let is_whole = sum == crc32fast::hash(header).to_le_bytes();
        is_whole.then_some(Self {
            mount: i64::from_le_bytes(*mount),
            boot: u128::from_le_bytes(*boot),
            last: u64::from_le_bytes(*last),
            committed: u64::from_le_bytes(*committed),
        })
    }

    /// The last change that the database and the records together must have.
    fn wanted(&self) -> u64 {
        self.last.max(self.committed)
    }

    /// Whether everything is there that was ever written: the machine has not restarted.
    fn is_of_this_boot(&self) -> bool {
        self.boot != 0 && self.boot == boot()
    }
}

/// This run of the kernel; 0 if it cannot be told.
pub fn boot() -> u128 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&id.trim().replace('-', ""), 16).unwrap_or(0)
}

/// The records that a sync of the redo log makes durable.
#[derive(Debug)]
pub(super) struct PromisedRecords {
    pub(super) file: Arc<File>,
    /// The number of the last change, or 0 where none is recorded.
    pub(super) last: u64,
    /// The commits before them.
    pub(super) commits: u64,
}

/// The redo log of a mount.
#[derive(Debug)]
pub(super) struct Redo {
    file: Arc<File>,
    /// The file's pages. Only the kernel writes to them: it reports a failing disk as an error. There, a write by this process
    /// would end it by a signal.
    pages: MmapMut,
    /// Where the kernel copies a record from: memory behind a descriptor.
    source: (File, MmapMut),
    /// The file's header. Its mount number is random, and also in the database: records of another mount do not count.
    header: Header,
    /// The number of the last change.
    last: u64,
    /// Where the next record goes; everything before it is not committed yet.
    end: u64,
    records: u32,
    /// One of these records is that of a long write.
    has_long: bool,
    /// An `fsync` relies on these records.
    is_promised: bool,
    /// Such records stay, and others are not taken: a sync of either log has failed.
    is_frozen: bool,
    record: Vec<u8>,
    /// Tells the thread that commits that a transaction has begun.
    wake: SyncSender<()>,
}

impl Redo {
    /// Creates the file, without a record.
    ///
    /// # Errors
    /// If there is no room for it; then there is no file.
    pub(super) fn create(path: &Path, mount: i64, wake: SyncSender<()>) -> io::Result<Self> {
        // Under its own name only when it is whole: a mount takes a part of one for damage.
        let new = new_redo_of(path);
        let file = unfinished::create(&new)?;
        let header = Header { mount, boot: boot(), last: 0, committed: 0 };
        let made = fill(&file, &header).and_then(|()| std::fs::rename(&new, redo_of(path)));
        if let Err(error) = made {
            std::fs::remove_file(&new)?;
            return Err(error);
        }
        let pages = map(&file, FILE_BYTES)?;
        if let Err(error) = pages.lock() {
            tracing::info!(%error, "the redo log may have to be read to be written");
        }
        let memory = memory()?;
        memory.set_len(SOURCE_BYTES)?;
        let source = map(&memory, SOURCE_BYTES)?;
        Ok(Self {
            file: Arc::new(file),
            pages,
            source: (memory, source),
            header,
            last: 0,
            end: START as u64,
            records: 0,
            has_long: false,
            is_promised: false,
            is_frozen: false,
            record: Vec::with_capacity(4096),
            wake,
        })
    }

    /// The number of the last change.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The last change.
    pub(super) fn last_change(&self) -> ChangeId {
        ChangeId { number: self.last, mount: self.header.mount }
    }

    /// Whether there is a record of a long write that is not committed.
    pub(super) fn has_long(&self) -> bool {
        self.has_long
    }

    /// Whether there is a record that is not committed.
    pub(super) fn is_pending(&self) -> bool {
        self.end > START as u64
    }

    /// Whether the transaction has become long enough.
    pub(super) fn is_full(&self) -> bool {
        self.end >= START as u64 + COMMIT_AT || self.records >= RECORDS_MAX
    }

    /// Whether the records of one more change may make the transaction long enough.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.end + RECORD_MAX >= START as u64 + COMMIT_AT || self.records + CHANGE_RECORDS >= RECORDS_MAX
    }

    /// Whether a change can wait for its commit: others do already, or the disk has room for all that may follow.
    pub(super) fn can_wait(&self) -> bool {
        !self.is_frozen && (self.is_pending() || self.is_roomy())
    }

    /// Whether the disk has room for all that may follow until the commit.
    fn is_roomy(&self) -> bool {
        let disk = rustix::fs::fstatvfs(&*self.file);
        disk.is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= ROOM)
    }

    /// Whether a long write can wait for its commit, with a payload of so many bytes. What it takes of the disk at once is no
    /// longer there for the changes that wait, so the disk is asked again.
    pub(super) fn can_long_wait(&self, payload: usize) -> bool {
        let beside = RECORD_MAX - PAYLOAD_MAX as u64;
        self.end + payload as u64 + beside < START as u64 + COMMIT_AT && self.is_roomy()
    }

    /// Appends the record that `encode` writes.
    ///
    /// # Errors
    /// If it cannot be written; the record then does not count.
    pub(super) fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
        self.record.clear();
        self.record.resize(HEADER, 0);
        encode(&mut self.record)?;
        let number = self.last + 1;
        let length = u32::try_from(self.record.len() - HEADER).map_err(io::Error::other)?;
        self.record[..4].copy_from_slice(&length.to_le_bytes());
        self.record[8..16].copy_from_slice(&number.to_le_bytes());
        let sum = checksum(self.header.mount, &self.record[8..]);
        self.record[4..8].copy_from_slice(&sum.to_le_bytes());
        let header = Header { last: number, ..self.header };
        self.copy(&header)?;
        self.header = header;
        if !self.is_pending() {
            // If the channel is full, the commit thread knows already.
            let _ = self.wake.try_send(());
        }
        self.end += self.record.len() as u64;
        self.records += 1;
        self.has_long |= self.record.len() as u64 > RECORD_MAX;
        self.last = number;
        Ok(())
    }

    /// Copies the record to its place, and then the header: a record that is not whole is none that the header tells of.
    fn copy(&mut self, header: &Header) -> io::Result<()> {
        let (start, length) = (self.end as usize - START, self.record.len());
        let (memory, source) = &mut self.source;
        let full = || io::Error::other("a record is longer than the space of the redo log");
        let from = source.get_mut(..length + START).ok_or_else(full)?;
        from[..length].copy_from_slice(&self.record);
        from[length..].copy_from_slice(&header.encode());
        let (header, records) = self.pages.split_at_mut(START);
        let place = records.get_mut(start..start + length).ok_or_else(full)?;
        let places = &mut [IoSliceMut::new(place), IoSliceMut::new(header)];
        match preadv(memory, places, 0) {
            Ok(copied) if copied == length + START => Ok(()),
            // A fault of a page in the middle ends it early.
            Ok(_) | Err(Errno::FAULT) => Err(Errno::IO.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The current records, which follow `commits` commits, for a sync that promises that they are durable.
    pub(super) fn promise(&mut self, commits: u64) -> PromisedRecords {
        self.is_promised |= self.is_pending();
        PromisedRecords { file: Arc::clone(&self.file), last: if self.is_pending() { self.last } else { 0 }, commits }
    }

    /// Everything up to change `last` is committed; `sync` makes that durable, where an `fsync` relies on the records.
    pub(super) fn committed(&mut self, last: u64, sync: impl FnOnce() -> Result<()>) {
        self.last = last;
        (self.end, self.records, self.has_long) = (START as u64, 0, false);
        self.header.committed = last;
        self.record.clear();
        let header = self.header;
        if let Err(error) = self.copy(&header) {
            tracing::warn!(%error, "the redo log does not record what is committed");
        }
        // Until SQLite's log is durable, however that ends.
        self.is_frozen |= std::mem::take(&mut self.is_promised);
        if !self.is_frozen {
            return;
        }
        match sync() {
            Ok(()) => self.is_frozen = false,
            Err(error) => {
                tracing::error!(%error, "the redo log is kept: the next mount may need it");
            }
        }
    }

    /// The payloads of the records that are not committed.
    pub(super) fn pending(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut bytes = vec![0; self.end as usize - START];
        self.file.read_exact_at(&mut bytes, START as u64)?;
        let found = payloads(&bytes, self.header.mount, None);
        if found.len() == self.records as usize {
            Ok(found)
        } else {
            Err(io::Error::other(format!("{} of {} records can be read", found.len(), self.records)))
        }
    }
}

/// Writes the header, and fills the file with zeros, so that syncs change no metadata later. A page at a time: longer writes make large folios,
/// and a mapped folio is written as a whole.
fn fill(file: &File, header: &Header) -> io::Result<()> {
    let mut page = [0; 4096];
    page[..START].copy_from_slice(&header.encode());
    for at in (0..FILE_BYTES).step_by(page.len()) {
        let length = (FILE_BYTES - at).min(page.len() as u64) as usize;
        file.write_all_at(&page[..length], at)?;
        page[..START].fill(0);
    }
    file.sync_data()
}

/// Memory that has a descriptor, and can never be executed: some hosts allow no other.
fn memory() -> io::Result<File> {
    let create = |flags| rustix::fs::memfd_create(c"redo", MemfdFlags::CLOEXEC | flags);
    let created = match create(MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => create(MemfdFlags::empty()),
        created => created,
    };
    Ok(File::from(created?))
}

/// The pages of a file.
#[expect(unsafe_code, reason = "files are mapped in no other way")]
fn map(file: &File, length: u64) -> io::Result<MmapMut> {
    // SAFETY: only this store, which holds the lock of the database, writes to the file or changes its length.
    unsafe { MmapOptions::new().len(length as usize).map_mut(file) }
}

/// Why a redo log cannot be applied.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// It or the database's log is damaged.
    Damaged(String),
}

/// The payloads that the database, which says `known`, lacks of the redo log at `path`.
///
/// # Errors
/// If the file cannot be read, or changes of a mount since the machine has started are lost.
pub(super) fn read(path: &Path, known: RedoRecord) -> std::result::Result<Vec<Vec<u8>>, ReadError> {
    let applied = known.applied;
    let (bytes, length) = content(path).map_err(ReadError::Unreadable)?;
    let damaged = |reason: String| Err(ReadError::Damaged(reason));
    let Some(header) = Header::decode(&bytes) else {
        return damaged("its header is damaged".to_owned());
    };
    if length != FILE_BYTES {
        return damaged(format!("it has {length} of {FILE_BYTES} bytes"));
    }
    if known.mount != Some(header.mount) {
        // It belongs to a state that power loss has taken, to a mount that has ended, or to one that made no change.
        if known.ended != Some(header.mount) && header.wanted() > 0 && header.is_of_this_boot() {
            let lost = header.wanted();
            return damaged(format!(
                "its changes 1 to {lost} are missing in the database: the write-ahead log is damaged, too"
            ));
        }
        return Ok(Vec::new());
    }
    let found = payloads(&bytes[START..], header.mount, Some(applied));
    let (reached, wanted) = (applied + found.len() as u64, header.wanted());
    if reached < wanted {
        let reason = format!("its changes {} to {wanted} are damaged or missing", reached + 1);
        if header.is_of_this_boot() {
            return damaged(reason);
        }
        tracing::warn!(
            "{}: {reason}: these changes were not synced before the machine restarted",
            redo_of(path).display()
        );
    }
    Ok(found)
}

/// The bytes of the redo log of the database at `path`, as many as it should have, and how many it has.
fn content(path: &Path) -> io::Result<(Vec<u8>, u64)> {
    let file = open_beside(&redo_of(path), File::options().read(true))?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.take(FILE_BYTES).read_to_end(&mut bytes)?;
    Ok((bytes, length))
}

/// Makes the redo log of the database at `path`, which is not mounted, one that the machine has restarted since: a change
/// that is missing in it was lost with the power. Nothing, if there is none.
///
/// # Errors
/// If it cannot be written.
pub(super) fn restart(path: &Path) -> io::Result<()> {
    change_header(path, |header| header.boot = u128::MAX)
}

/// As [`restart`], of a database that may lack its latest changes for another reason.
///
/// # Errors
/// If it cannot be written.
pub(super) fn forget_boot(path: &Path) -> io::Result<()> {
    change_header(path, |header| header.boot = 0)
}

/// The mount that wrote the redo log of the database at `path`, if the machine has restarted since. `None` if that cannot be told.
pub(super) fn restarted_mount(path: &Path) -> Option<i64> {
    let (bytes, _) = content(path).ok()?;
    let header = Header::decode(&bytes)?;
    let now = boot();
    (header.boot != 0 && now != 0 && header.boot != now).then_some(header.mount)
}

fn change_header(path: &Path, change: impl FnOnce(&mut Header)) -> io::Result<()> {
    let opened = open_beside(&redo_of(path), File::options().read(true).write(true));
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mut bytes = [0; START];
    match file.read_exact_at(&mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        read => read?,
    }
    match Header::decode(&bytes) {
        Some(mut header) => {
            change(&mut header);
            file.write_all_at(&header.encode(), 0)
        }
        None => Ok(()),
    }
}

/// The payloads at the start of `bytes` whose numbers follow each other, up to the first that is not whole; from the
/// one after `applied` on, where that is given.
fn payloads(bytes: &[u8], mount: i64, applied: Option<u64>) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let (mut at, mut last) = (0, applied);
    while let Some((number, payload)) = record(&bytes[at..], mount) {
        at += HEADER + payload.len();
        if applied.is_some_and(|applied| number <= applied) {
            continue;
        }
        if last.is_some_and(|last| number != last + 1) {
            break;
        }
        last = Some(number);
        found.push(payload.to_vec());
    }
    found
}

fn record(bytes: &[u8], mount: i64) -> Option<(u64, &[u8])> {
    let header = bytes.first_chunk::<HEADER>()?;
    let four = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    let length = u32::from_le_bytes(four(0)) as usize;
    let numbered = bytes.get(8..HEADER + length)?;
    let is_whole = length > 0 && checksum(mount, numbered) == u32::from_le_bytes(four(4));
    let number = numbered.first_chunk::<8>()?;
    is_whole.then(|| (u64::from_le_bytes(*number), &numbered[8..]))
}

fn checksum(mount: i64, numbered: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&mount.to_le_bytes());
    sum.update(numbered);
    sum.finalize()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use fuse::store::StoreError;

    use super::*;

    fn append(redo: &mut Redo, payload: &[u8]) {
        let encode = |record: &mut Vec<u8>| {
            record.extend_from_slice(payload);
            Ok(())
        };
        redo.append(encode).unwrap();
    }

    fn known(mount: i64, applied: u64) -> RedoRecord {
        RedoRecord { mount: Some(mount), applied, ended: None }
    }

    fn read(path: &Path, mount: i64, applied: u64) -> Vec<Vec<u8>> {
        super::read(path, known(mount, applied)).unwrap()
    }

    fn damage(path: &Path, mount: i64, applied: u64) -> String {
        match super::read(path, known(mount, applied)) {
            Err(ReadError::Damaged(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_reader_gets_the_records_that_follow_a_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let (wake, woken) = sync_channel(1);
        let mut redo = Redo::create(&path, 7, wake).unwrap();
        for payload in [b"one", b"two"] {
            append(&mut redo, payload);
        }
        assert_eq!(read(&path, 7, 0), [b"one", b"two"]);
        assert_eq!(read(&path, 7, 1), [b"two"]);
        assert_eq!(redo.pending().unwrap(), [b"one", b"two"]);
        assert!(woken.try_recv().is_ok() && woken.try_recv().is_err());
        // A transaction of one unrecorded change commits them.
        redo.committed(3, || unreachable!("no sync relies on them"));
        assert!(redo.pending().unwrap().is_empty());
        append(&mut redo, b"four");
        assert_eq!(read(&path, 7, 3), [b"four"]);
        // A database whose log is damaged is in the state of an earlier commit, and lacks change 3.
        assert!(damage(&path, 7, 2).contains("3 to 4"));
        assert!(damage(&path, 8, 3).contains("1 to 4"), "another mount's");
        // So is one after power loss.
        forget_boot(&path).unwrap();
        assert!(read(&path, 7, 2).is_empty());
        assert!(read(&path, 8, 3).is_empty());
    }

    #[test]
    fn promised_records_are_overwritten_when_their_commit_is_durable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let (wake, _woken) = sync_channel(1);
        let mut redo = Redo::create(&path, 7, wake).unwrap();
        assert_eq!(redo.promise(1).last, 0);
        append(&mut redo, b"one");
        redo.committed(1, || unreachable!("no sync relies on it"));
        append(&mut redo, b"two");
        assert_eq!(redo.promise(1).last, 2);
        append(&mut redo, b"three");
        let mut synced = false;
        redo.committed(3, || {
            synced = true;
            Ok(())
        });
        assert!(synced && redo.can_wait());
        append(&mut redo, b"four");
        assert_eq!(redo.promise(1).last, 4);
        redo.committed(4, || Err(StoreError::storage(Errno::IO, "a sick disk")));
        assert!(!redo.can_wait() && !redo.is_pending());
        assert_eq!(read(&path, 7, 3), [b"four"]);
    }

    #[test]
    fn a_page_that_cannot_be_written_is_an_error_and_no_signal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let (wake, _woken) = sync_channel(1);
        let mut redo = Redo::create(&path, 7, wake).unwrap();
        append(&mut redo, b"one");
        redo.file.set_len(0).unwrap();
        let encode = |record: &mut Vec<u8>| {
            record.extend_from_slice(b"two");
            Ok(())
        };
        let error = redo.append(encode).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
        assert_eq!(redo.last(), 1);
        redo.file.set_len(FILE_BYTES).unwrap();
        append(&mut redo, b"three");
        assert_eq!(redo.last(), 2);
    }

    #[test]
    fn a_record_that_is_changed_is_damage_and_after_power_loss_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let (wake, _woken) = sync_channel(1);
        let mut redo = Redo::create(&path, 7, wake).unwrap();
        append(&mut redo, b"one");
        append(&mut redo, b"two");
        let whole = std::fs::read(redo_of(&path)).unwrap();
        let end = START + 2 * (HEADER + 3);
        for at in 0..end {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(redo_of(&path), &changed).unwrap();
            damage(&path, 7, 0);
            if at < START {
                continue;
            }
            forget_boot(&path).unwrap();
            let left = read(&path, 7, 0).len();
            assert_eq!(left, (at - START) / (HEADER + 3), "byte {at}");
        }
        for cut in [0, START - 1, START, end, whole.len() - 1] {
            std::fs::write(redo_of(&path), &whole[..cut]).unwrap();
            damage(&path, 7, 0);
        }
        // Zeros in place of the last record look like the end.
        let mut changed = whole.clone();
        changed[end - 3 - HEADER..].fill(0);
        std::fs::write(redo_of(&path), &changed).unwrap();
        assert!(damage(&path, 7, 0).contains("2 to 2"));
        // Once they are committed, nothing needs them.
        assert!(read(&path, 7, 2).is_empty());
        damage(&path, 8, 0);
        let ended = RedoRecord { ended: Some(7), ..known(8, 0) };
        assert!(super::read(&path, ended).unwrap().is_empty());
    }

    #[test]
    fn a_log_has_its_name_only_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        // A start that was killed has left a part of one.
        std::fs::write(new_redo_of(&path), b"a part").unwrap();
        let (wake, _woken) = sync_channel(1);
        drop(Redo::create(&path, 7, wake).unwrap());
        assert!(!new_redo_of(&path).exists());
        assert_eq!(std::fs::metadata(redo_of(&path)).unwrap().len(), FILE_BYTES);
    }
}
