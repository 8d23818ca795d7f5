//! The checksum file: what a mount knows of the tails that it has changed. [`super::tail_sums`] says when it changes.
//!
//! A kill of the daemon loses no page of it, so it is never synced. A power loss may lose any of them: the file counts only
//! until the machine restarts, and only for the mount that wrote it, or the next one. After a restart, it can show that a tail
//! has kept all that was appended to it: see [`super::synced`]. The file consists of blocks, each with
//! the slots of [`SLOTS`] pieces of one tail. A slot is changed in place, in one write that lies in one page.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};

use fuse::store::Ino;
use parking_lot::Mutex;
use rustix::fs::OFlags;

use crate::files::{open_beside, open_in, sums_of};
use crate::redo::boot;
use crate::set_aside::RedoRecord;

/// Bytes of a block; pages hold whole blocks.
const BLOCK: usize = 1024;

/// Bytes of the header of a block, and of a slot.
const HEADER: usize = 32;
const SLOT: usize = 12;

/// Slots of a block.
const SLOTS: u64 = 80;

/// Limits of a file that may be of another program: its bytes, and what a block can say.
const BYTES_MAX: u64 = 1 << 30;
const INO_LIMIT: Ino = 1 << 39;
const PIECE_LIMIT: u64 = 1 << 24;

const MAGIC: [u8; 8] = *b"ctxbsum1";

/// Lengths of a slot that are not lengths.
const UNKNOWN: u32 = u32::MAX;
const DAMAGED: u32 = u32::MAX - 1;

/// What the checksum file says of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// Its checksum is that of the tables; past the pieces that they count for, it is zeros.
    Base,
    /// Nothing is known of it.
    Unknown,
    /// Its first `length` bytes have this checksum.
    Prefix { sum: u32, length: u32 },
    /// It is damaged, or this slot was.
    Damaged,
}

impl Slot {
    fn encode(self, ino: Ino, piece: u64) -> [u8; SLOT] {
        let (sum, length) = match self {
            Self::Base => (0, 0),
            Self::Unknown => (0, UNKNOWN),
            Self::Damaged => (0, DAMAGED),
            Self::Prefix { sum, length } => (sum, length),
        };
        let mut bytes = [0; SLOT];
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        let check = check(ino, piece, &bytes[..8]);
        bytes[8..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], ino: Ino, piece: u64) -> Self {
        if check(ino, piece, &bytes[..8]) != u32_at(bytes, 8) {
            return Self::Damaged;
        }
        match (u32_at(bytes, 0), u32_at(bytes, 4)) {
            (_, 0) => Self::Base,
            (_, UNKNOWN) => Self::Unknown,
            (_, DAMAGED) => Self::Damaged,
            (sum, length) => Self::Prefix { sum, length },
        }
    }
}

/// A checksum that also says of what the bytes are.
fn check(ino: Ino, number: u64, bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&ino.to_le_bytes());
    sum.update(&number.to_le_bytes());
    sum.update(bytes);
    sum.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The header of a block.
#[derive(Clone, Copy, Debug)]
struct BlockHeader {
    ino: Ino,
    /// Which pieces of the tail the block is of. The block of group 0 is the tail's first; the next two count in it alone.
    group: u64,
    /// For how many pieces the checksums in the tables count.
    base: u64,
    /// Blocks of the tail.
    count: u32,
}

impl BlockHeader {
    fn encode(self, block: u32) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&self.ino.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.group.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.base.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.count.to_le_bytes());
        let check = check(self.ino, u64::from(block), &bytes[8..28]);
        bytes[28..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// `None` if the block is free, or damaged.
    fn decode(bytes: &[u8], block: u32) -> Option<Self> {
        let header =
            Self { ino: u64_at(bytes, 0), group: u64_at(bytes, 8), base: u64_at(bytes, 16), count: u32_at(bytes, 24) };
        let is_whole = check(header.ino, u64::from(block), &bytes[8..28]) == u32_at(bytes, 28);
        let is_possible =
            (1..INO_LIMIT).contains(&header.ino) && header.group < PIECE_LIMIT / SLOTS && header.base <= PIECE_LIMIT;
        (is_whole && is_possible).then_some(header)
    }
}

/// The header of the file.
#[derive(Clone, Copy, Debug)]
struct FileHeader {
    /// The run of the kernel in which it was written.
    boot: u128,
    /// The mount that wrote it, by the number of its redo log.
    mount: Option<i64>,
    /// An earlier mount, which was killed, has written some of it.
    is_taken_over: bool,
}

impl FileHeader {
    fn encode(self) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.boot.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.mount.unwrap_or(0).to_le_bytes());
        bytes[32] = u8::from(self.mount.is_some());
        bytes[33] = u8::from(self.is_taken_over);
        let sum = crc32fast::hash(&bytes[..34]);
        bytes[34..38].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..38)?;
        let is_whole = bytes[..8] == MAGIC && crc32fast::hash(&bytes[..34]) == u32_at(bytes, 34);
        is_whole.then(|| Self {
            boot: u128::from(u64_at(bytes, 8)) | u128::from(u64_at(bytes, 16)) << 64,
            mount: (bytes[32] == 1).then(|| u64_at(bytes, 24).cast_signed()),
            is_taken_over: bytes[33] != 0,
        })
    }

    /// Whether the file is of the state of a database that says `known`, and lacks nothing that was written to it.
    fn counts(self, known: RedoRecord) -> bool {
        self.is_of(known) && self.boot != 0 && self.boot == boot()
    }

    /// Whether the file is of the state of a database that says `known`.
    fn is_of(self, known: RedoRecord) -> bool {
        self.mount == known.mount || self.mount == known.ended
    }
}

/// What a checksum file says of one tail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordedTail {
    /// For how many pieces the checksums in the tables count.
    pub(super) base: u64,
    /// The pieces whose slots say more than that.
    pub(super) slots: BTreeMap<u64, Slot>,
    blocks: BTreeMap<u64, u32>,
}

/// What a checksum file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SumFileContent {
    pub(super) tails: HashMap<Ino, RecordedTail>,
    /// Blocks of no tail.
    free: Vec<u32>,
    /// Blocks, the header's included.
    end: u32,
}

impl SumFileContent {
    /// Reads a checksum file of a database that says `known`. `None` if there is none that counts.
    pub(super) fn read(path: &Path, known: RedoRecord) -> Option<Self> {
        let file = open_beside(&sums_of(path), File::options().read(true)).ok()?;
        Self::parse(&content(&file).ok()?, known)
    }

    /// Reads the checksum file of a database that says `known`, of which a power loss may have taken any part. What it says of
    /// a piece was so at some time of the last mount. Nothing, if it is not of that mount alone.
    pub(super) fn read_after_restart(path: &Path, known: RedoRecord) -> Self {
        let opened = open_beside(&sums_of(path), File::options().read(true));
        let bytes = opened.and_then(|file| content(&file)).unwrap_or_default();
        let header = FileHeader::decode(&bytes);
        let counts = |header: FileHeader| header.mount.is_some() && header.is_of(known) && !header.is_taken_over;
        if header.is_some_and(counts) { Self::of_blocks(&bytes) } else { Self::default() }
    }

    fn parse(bytes: &[u8], known: RedoRecord) -> Option<Self> {
        FileHeader::decode(bytes).filter(|header| header.counts(known))?;
        Some(Self::of_blocks(bytes))
    }

    fn of_blocks(bytes: &[u8]) -> Self {
        let mut found: BTreeMap<(Ino, u64), Vec<(u32, BlockHeader)>> = BTreeMap::new();
        let mut left = Self::default();
        let blocks = (0_u32..).zip(bytes.chunks(BLOCK)).skip(1);
        for (block, bytes) in blocks {
            left.end = block + 1;
            let is_whole = bytes.len() == BLOCK;
            match BlockHeader::decode(bytes.get(..HEADER).unwrap_or(&[0; HEADER]), block) {
                Some(header) if is_whole => {
                    let same = found.entry((header.ino, header.group)).or_default();
                    same.push((block, header));
                }
                _ => left.free.push(block),
            }
        }
        left.end = left.end.max(1);
        let inos: BTreeSet<Ino> = found.keys().map(|(ino, _)| *ino).collect();
        for ino in inos {
            let blocks: Vec<_> = found.range((ino, 0)..=(ino, u64::MAX)).collect();
            let first = match blocks.first() {
                Some(((_, 0), same)) => same[0].1,
                // Its removal was interrupted.
                _ => BlockHeader { ino, group: 0, base: 0, count: u32::MAX },
            };
            let is_whole = blocks.len() >= first.count as usize && blocks.iter().all(|(_, same)| same.len() == 1);
            if !is_whole {
                let numbers = blocks.iter().flat_map(|(_, same)| same.iter());
                left.free.extend(numbers.map(|(block, _)| *block));
                continue;
            }
            let mut tail = RecordedTail { base: first.base, ..RecordedTail::default() };
            for ((_, group), same) in blocks {
                let (block, _) = same[0];
                tail.blocks.insert(*group, block);
                let start = block as usize * BLOCK + HEADER;
                let slots = bytes[start..start + SLOT * SLOTS as usize].chunks(SLOT);
                for (piece, bytes) in (group * SLOTS..).zip(slots) {
                    match Slot::decode(bytes, ino, piece) {
                        Slot::Base => {}
                        slot => drop(tail.slots.insert(piece, slot)),
                    }
                }
            }
            left.tails.insert(ino, tail);
        }
        left
    }
}

/// Makes the checksum file of the database at `path` one that the machine has restarted since. Nothing, if there is none.
///
/// # Errors
/// If it cannot be written.
pub(super) fn forget_boot(path: &Path) -> io::Result<()> {
    let opened = open_beside(&sums_of(path), File::options().read(true).write(true));
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mut bytes = [0; BLOCK];
    match file.read_exact_at(&mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        read => read?,
    }
    match FileHeader::decode(&bytes) {
        Some(header) => file.write_all_at(&FileHeader { boot: 0, ..header }.encode(), 0),
        None => Ok(()),
    }
}

fn content(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    if length > BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {BYTES_MAX} bytes")));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// An open checksum file.
#[derive(Debug)]
struct OpenSumFile {
    file: File,
    free: Mutex<FreeBlocks>,
}

#[derive(Debug)]
struct FreeBlocks {
    blocks: Vec<u32>,
    end: u32,
}

impl OpenSumFile {
    fn allocate(&self) -> u32 {
        let mut free = self.free.lock();
        free.blocks.pop().unwrap_or_else(|| {
            free.end += 1;
            free.end - 1
        })
    }

    fn write(&self, bytes: &[u8], block: u32, within: usize) -> io::Result<()> {
        let at = block as usize * BLOCK + within;
        self.file.write_all_at(bytes, at as u64)
    }
}

/// The checksum file of a mount, which is created when the first tail changes.
#[derive(Debug)]
pub(super) struct SumFile {
    folder: File,
    name: OsString,
    opened: Mutex<Option<Arc<OpenSumFile>>>,
    mount: Mutex<Option<i64>>,
    is_taken_over: AtomicBool,
    /// Tails with a piece whose slot does not have its whole checksum.
    behind: Mutex<BTreeSet<Ino>>,
    wake: OnceLock<SyncSender<()>>,
}

impl SumFile {
    pub(super) fn new(folder: File, name: OsString) -> Self {
        Self {
            folder,
            name,
            opened: Mutex::default(),
            mount: Mutex::default(),
            is_taken_over: AtomicBool::new(false),
            behind: Mutex::default(),
            wake: OnceLock::new(),
        }
    }

    fn open(&self, flags: OFlags) -> io::Result<File> {
        open_in(&self.folder, Path::new(&self.name), flags | OFlags::RDWR)
    }

    /// Goes on with the file that a killed mount has left beside a database that says `known`; what it says of each tail.
    pub(super) fn go_on(&self, known: RedoRecord) -> HashMap<Ino, RecordedTail> {
        *self.mount.lock() = known.mount.or(known.ended);
        let read = || {
            let file = self.open(OFlags::empty())?;
            let bytes = content(&file)?;
            Ok((file, bytes))
        };
        let (file, left) = match read() {
            Ok((file, bytes)) => (file, SumFileContent::parse(&bytes, known)),
            Err(error) => {
                let error: io::Error = error;
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(file = %self.name.display(), %error, "cannot be read");
                }
                return HashMap::new();
            }
        };
        let Some(left) = left else {
            return HashMap::new();
        };
        let free = FreeBlocks { blocks: left.free, end: left.end };
        let opened = Arc::new(OpenSumFile { file, free: Mutex::new(free) });
        self.is_taken_over.store(true, Ordering::Release);
        // What is left of an interrupted removal must not count again.
        for block in &opened.free.lock().blocks {
            let _ = opened.write(&[0; HEADER], *block, 0);
        }
        *self.opened.lock() = Some(opened);
        left.tails
    }

    /// The mount has this redo log from now on.
    pub(super) fn set_mount(&self, mount: i64) {
        *self.mount.lock() = Some(mount);
        // Before, the file is one of the mount that has ended, and counts as well.
        if let Some(opened) = &*self.opened.lock()
            && let Err(error) = opened.write(&self.header(), 0, 0)
        {
            tracing::warn!(file = %self.name.display(), %error, "cannot be written");
        }
    }

    fn header(&self) -> [u8; BLOCK] {
        let is_taken_over = self.is_taken_over.load(Ordering::Acquire);
        let header = FileHeader { boot: boot(), mount: *self.mount.lock(), is_taken_over };
        header.encode()
    }

    fn opened(&self) -> io::Result<Arc<OpenSumFile>> {
        let mut opened = self.opened.lock();
        if let Some(opened) = &*opened {
            return Ok(Arc::clone(opened));
        }
        let file = self.open(OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all_at(&self.header(), 0)?;
        let free = FreeBlocks { blocks: Vec::new(), end: 1 };
        let made = Arc::new(OpenSumFile { file, free: Mutex::new(free) });
        *opened = Some(Arc::clone(&made));
        Ok(made)
    }

    /// The slots of a tail for whose first `base` pieces the checksums in the tables count, and that is zeros past them.
    pub(super) fn begin(self: &Arc<Self>, ino: Ino, base: u64) -> io::Result<TailSlots> {
        let mut slots =
            TailSlots { sums: Arc::clone(self), opened: self.opened()?, ino, base, blocks: BTreeMap::new() };
        slots.block(0)?;
        Ok(slots)
    }

    /// The slots of a tail that a killed mount has left.
    pub(super) fn slots_of(self: &Arc<Self>, ino: Ino, left: RecordedTail) -> Option<TailSlots> {
        Some(TailSlots {
            sums: Arc::clone(self),
            opened: self.opened.lock().clone()?,
            ino,
            base: left.base,
            blocks: left.blocks,
        })
    }

    /// Sets the channel that wakes the thread that brings slots up to date.
    pub(super) fn wake_by(&self, wake: SyncSender<()>) {
        let _ = self.wake.set(wake);
    }

    /// The slots of a tail are behind its pieces.
    pub(super) fn is_behind(&self, ino: Ino) {
        let mut behind = self.behind.lock();
        let is_first = behind.is_empty();
        behind.insert(ino);
        drop(behind);
        if is_first {
            self.wake();
        }
    }

    /// The slots of a tail are no longer behind its pieces.
    pub(super) fn is_up_to_date(&self, ino: Ino) {
        self.behind.lock().remove(&ino);
    }

    /// The tails whose slots are behind.
    pub(super) fn behind(&self) -> BTreeSet<Ino> {
        self.behind.lock().clone()
    }

    /// Wakes the thread that brings slots up to date.
    pub(super) fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            // Full means that a wake-up is pending.
            let _ = wake.try_send(());
        }
    }
}

/// The slots of one tail.
#[derive(Debug)]
pub(super) struct TailSlots {
    sums: Arc<SumFile>,
    opened: Arc<OpenSumFile>,
    ino: Ino,
    base: u64,
    /// By group.
    blocks: BTreeMap<u64, u32>,
}

impl TailSlots {
    /// They are behind the pieces.
    pub(super) fn are_behind(&self) {
        self.sums.is_behind(self.ino);
    }

    /// The block of a group.
    fn block(&mut self, group: u64) -> io::Result<u32> {
        if let Some(block) = self.blocks.get(&group) {
            return Ok(*block);
        }
        let block = self.opened.allocate();
        let header = BlockHeader { ino: self.ino, group, base: self.base, count: 1 };
        let mut bytes = [0; BLOCK];
        bytes[..HEADER].copy_from_slice(&header.encode(block));
        let slots = bytes[HEADER..].chunks_exact_mut(SLOT);
        for (piece, slot) in (group * SLOTS..(group + 1) * SLOTS).zip(slots) {
            slot.copy_from_slice(&Slot::Base.encode(self.ino, piece));
        }
        self.opened.write(&bytes, block, 0)?;
        self.blocks.insert(group, block);
        // A block that is not counted yet says nothing. One that is missing would be missed.
        if group > 0 {
            self.write_first()?;
        }
        Ok(block)
    }

    /// Writes the header of the tail's first block.
    fn write_first(&self) -> io::Result<()> {
        let Some(block) = self.blocks.get(&0) else {
            return Ok(());
        };
        let header = BlockHeader { ino: self.ino, group: 0, base: self.base, count: self.blocks.len() as u32 };
        self.opened.write(&header.encode(*block), *block, 0)
    }

    /// Changes the slots of pieces, in their order.
    pub(super) fn set(&mut self, slots: &[(u64, Slot)]) -> io::Result<()> {
        let is_next = |one: &(u64, Slot), two: &(u64, Slot)| one.0 + 1 == two.0 && one.0 / SLOTS == two.0 / SLOTS;
        for run in slots.chunk_by(is_next) {
            let (first, _) = run[0];
            let block = self.block(first / SLOTS)?;
            let bytes: Vec<u8> = run.iter().flat_map(|(piece, slot)| slot.encode(self.ino, *piece)).collect();
            let within = HEADER + (first % SLOTS) as usize * SLOT;
            self.opened.write(&bytes, block, within)?;
        }
        Ok(())
    }

    /// The pieces from `first` on are gone: they will be zeros if they come back.
    pub(super) fn cut(&mut self, first: u64) -> io::Result<()> {
        if self.base > first {
            self.base = first;
            self.write_first()?;
        }
        let groups: Vec<u64> = self.blocks.range(first / SLOTS..).map(|(group, _)| *group).collect();
        for group in groups {
            let pieces = first.max(group * SLOTS)..(group + 1) * SLOTS;
            let slots: Vec<(u64, Slot)> = pieces.map(|piece| (piece, Slot::Base)).collect();
            self.set(&slots)?;
        }
        Ok(())
    }

    /// Forgets the tail: nothing is known of it.
    ///
    /// # Errors
    /// If the file still says what it said, and cannot be emptied.
    pub(super) fn forget(self) -> io::Result<()> {
        // The first block first: the others say nothing without it.
        let freed = self.blocks.values().try_for_each(|block| self.opened.write(&[0; HEADER], *block, 0));
        match freed {
            Ok(()) => self.opened.free.lock().blocks.extend(self.blocks.values()),
            Err(error) => {
                tracing::warn!(ino = self.ino, %error, "a tail has no checksums after a kill");
                self.opened.file.set_len(0)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: RedoRecord = RedoRecord { mount: None, applied: 0, ended: Some(-3) };

    const KNOWN_SUM: Slot = Slot::Prefix { sum: 9, length: 80 };

    /// A file with two tails, of which one has two blocks and another block is free.
    fn written(dir: &Path) -> Vec<u8> {
        let sums = Arc::new(SumFile::new(File::open(dir).unwrap(), "a.db-sums".into()));
        sums.set_mount(-3);
        sums.begin(4, 0).unwrap().forget().unwrap();
        let mut one = sums.begin(5, 3).unwrap();
        let free = sums.begin(6, 0).unwrap();
        let mut two = sums.begin(7, 0).unwrap();
        let slots = [(79, Slot::Unknown), (80, KNOWN_SUM), (81, Slot::Damaged)];
        one.set(&slots).unwrap();
        two.set(&[(0, KNOWN_SUM), (7, KNOWN_SUM)]).unwrap();
        two.cut(5).unwrap();
        free.forget().unwrap();
        std::fs::read(dir.join("a.db-sums")).unwrap()
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = written(dir.path());
        let left = SumFileContent::read(&dir.path().join("a.db"), KNOWN).unwrap();
        assert_eq!(left.tails.len(), 2);
        assert_eq!(left.tails[&5].base, 3);
        let slots = [(79, Slot::Unknown), (80, KNOWN_SUM), (81, Slot::Damaged)];
        assert_eq!(left.tails[&5].slots, BTreeMap::from(slots));
        assert_eq!(left.tails[&7].slots, BTreeMap::from([(0, KNOWN_SUM)]));
        assert_eq!((left.free.len(), left.end as usize), (1, bytes.len() / BLOCK));
        // It is that of another mount, or of a machine that has restarted.
        let other = RedoRecord { ended: Some(3), ..KNOWN };
        assert_eq!(SumFileContent::parse(&bytes, other), None);
        forget_boot(&dir.path().join("a.db")).unwrap();
        assert_eq!(SumFileContent::read(&dir.path().join("a.db"), KNOWN), None);
    }

    #[test]
    fn a_changed_byte_makes_a_slot_a_damaged_one_or_the_tail_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = written(dir.path());
        let whole = SumFileContent::parse(&bytes, KNOWN).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            let Some(left) = SumFileContent::parse(&changed, KNOWN) else {
                continue;
            };
            for (ino, tail) in left.tails {
                let before = &whole.tails[&ino];
                assert_eq!(tail.base, before.base);
                for piece in 0..2 * SLOTS {
                    let [now, before] = [&tail, before].map(|tail| tail.slots.get(&piece).copied());
                    assert!(now == before || now == Some(Slot::Damaged), "byte {at}");
                }
            }
        }
        for cut in (0..bytes.len()).step_by(100) {
            let left = SumFileContent::parse(&bytes[..cut], KNOWN).unwrap_or_default();
            for (ino, tail) in left.tails {
                assert_eq!(tail, whole.tails[&ino], "{cut} bytes");
            }
        }
    }

    #[test]
    fn blocks_of_tails_that_are_gone_are_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let sums = Arc::new(SumFile::new(File::open(dir.path()).unwrap(), "a.db-sums".into()));
        for ino in 1..100 {
            let mut slots = sums.begin(ino, 0).unwrap();
            slots.set(&[(500, KNOWN_SUM)]).unwrap();
            slots.forget().unwrap();
        }
        let length = std::fs::metadata(dir.path().join("a.db-sums")).unwrap();
        assert_eq!(length.len(), 3 * BLOCK as u64);
    }
}
