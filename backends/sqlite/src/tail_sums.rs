//! Checksums of tails: a CRC-32 for each piece. [`super::tail_rows`] has their tables.
//!
//! A tail with checksums is *sealed*: its owner may execute it, a bit that nothing else uses. Before the first change the
//! bit is cleared, and that is durable. So the checksums of a sealed tail are of its bytes, also after a kill or power
//! loss. A mount computes those of the others at its end.
//!
//! Until then [`super::sum_file`] has them, for the case that the mount is killed. Before a call returns, the slot of each
//! piece that it changed has a checksum that is right, or says that none is known. Before bytes change that a slot vouches
//! for, the slot says that none is known. Slots that are behind their pieces are brought up to date soon after.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, LazyLock};

use fuse::store::{Errno, Ino, StoreError};
use parking_lot::Mutex;
use rustix::fs::{Mode, SeekFrom, fchmod, seek};

use crate::sum_file::{RecordedTail, Slot, SumFile, TailSlots};

/// Bytes that have one checksum.
pub(super) const PIECE: u64 = 32 * 1024;

/// Checksums in a row; a row in which all are those of zeros is left out.
const GROUP: u64 = 256;

/// The checksum of a piece of zeros.
static ZEROS: LazyLock<u32> = LazyLock::new(|| zeros(PIECE));

/// The mode of a tail whose checksums are in the tables, and of any other.
const SEALED: Mode = Mode::from_raw_mode(0o700);
const UNSEALED: Mode = Mode::from_raw_mode(0o600);

fn zeros(length: u64) -> u32 {
    crc32fast::hash(&vec![0; length as usize])
}

/// Whether the checksums in the tables are of the bytes of this file.
pub(super) fn is_sealed(file: &std::fs::Metadata) -> bool {
    file.mode() & 0o100 != 0
}

type Group = [u32; GROUP as usize];

/// Bytes of a write whose last piece gets its checksum at once; after a shorter one, the thread that brings slots up to date
/// does it.
const LONG_WRITE: usize = 8 * 1024;

/// Pieces that are brought up to date together.
const TOGETHER: usize = 8;

/// What is known of a changed piece: the checksum of its first `length` bytes.
#[derive(Clone, Copy, Debug)]
struct PieceSum {
    sum: u32,
    length: u64,
    /// How many of its first bytes its slot vouches for.
    vouched: u64,
    /// Whether its slot has been written since it changed: [`Slot::Base`] says that all of it is zeros.
    has_slot: bool,
    /// The number of the change of the tail that was the last one to change the piece.
    change: u64,
}

impl PieceSum {
    /// Nothing is.
    const UNKNOWN: Self = Self { sum: 0, length: u64::MAX, vouched: 0, has_slot: true, change: 0 };
}

/// A piece whose slot is behind, as it was when its bytes were read.
#[derive(Clone, Copy, Debug)]
struct StalePiece {
    piece: u64,
    held: u64,
    running: PieceSum,
}

/// Where the checksums of a tail are to be recorded.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) file: Arc<SumFile>,
    pub(super) ino: Ino,
}

impl Recorder {
    /// Forgets what a killed mount has left.
    pub(super) fn forget(&self, left: RecordedTail) {
        let slots = self.file.slots_of(self.ino, left);
        if let Err(error) = slots.map_or(Ok(()), TailSlots::forget) {
            tracing::error!(%error, "after a kill, content past the first 256 KiB may seem to be damaged");
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of the tail.
    length: u64,
    /// Checksums by group; of zeros where there is none.
    groups: BTreeMap<u64, Box<Group>>,
    /// Pieces whose checksum in `groups` does not count.
    changed: BTreeMap<u64, PieceSum>,
    /// No checksum counts.
    is_unknown: bool,
    is_sealed: bool,
    /// Where they are recorded from the first change on.
    recorder: Option<Recorder>,
    /// Where they are recorded. Without, a kill loses them.
    slots: Option<TailSlots>,
    /// The pieces whose slots do not have the checksum of all their bytes.
    behind: BTreeSet<u64>,
    /// Counts the changes of bytes.
    changes: u64,
}

/// The checksums of one tail; by default, of one that does not exist yet.
#[derive(Debug, Default)]
pub(crate) struct TailSums(Mutex<State>);

impl State {
    fn sum(&self, piece: u64) -> u32 {
        let group = self.groups.get(&(piece / GROUP));
        group.map_or(*ZEROS, |group| group[(piece % GROUP) as usize])
    }

    fn set_sum(&mut self, piece: u64, sum: u32) {
        if sum == *ZEROS && !self.groups.contains_key(&(piece / GROUP)) {
            return;
        }
        let group = self.groups.entry(piece / GROUP);
        group.or_insert_with(|| Box::new([*ZEROS; GROUP as usize]))[(piece % GROUP) as usize] = sum;
    }

    /// How many bytes of a piece there are.
    fn held(&self, piece: u64) -> u64 {
        self.length.saturating_sub(piece * PIECE).min(PIECE)
    }

    /// The checksum of a piece, and of how many bytes; `None` where none counts.
    fn expected(&self, piece: u64) -> Option<(u32, usize)> {
        let held = self.held(piece);
        if self.is_unknown || held == 0 || self.changed.contains_key(&piece) {
            return None;
        }
        let sum = self.sum(piece);
        if sum == *ZEROS && held < PIECE { Some((zeros(held), held as usize)) } else { Some((sum, held as usize)) }
    }

    /// Makes the pieces of a range those of zeros, and does not know those at its edges, except the `damaged` one: its
    /// checksum stays wrong.
    fn clear(&mut self, range: Range<u64>, damaged: Option<u64>) {
        if range.is_empty() {
            return;
        }
        self.changes += 1;
        let unknown = PieceSum { change: self.changes, ..PieceSum::UNKNOWN };
        let whole = range.start.div_ceil(PIECE)..range.end / PIECE;
        self.changed.retain(|piece, _| !whole.contains(piece));
        let groups = whole.start / GROUP..whole.end.div_ceil(GROUP).max(whole.start / GROUP);
        for (group, sums) in self.groups.range_mut(groups) {
            for (at, sum) in sums.iter_mut().enumerate() {
                if whole.contains(&(group * GROUP + at as u64)) {
                    *sum = *ZEROS;
                }
            }
        }
        for edge in [range.start, range.end] {
            if edge % PIECE != 0 && damaged != Some(edge / PIECE) {
                self.changed.insert(edge / PIECE, unknown);
            }
        }
    }

    /// The tail gets another length; bytes that it gains are zeros.
    fn resize(&mut self, file: &File, length: u64) {
        let (shorter, longer) = (length.min(self.length), length.max(self.length));
        let piece = shorter / PIECE;
        // A file with damage can be truncated; its last piece stays damaged.
        let is_whole = shorter % PIECE == 0 || self.is_whole(file, piece).unwrap_or(false);
        let damaged = (!is_whole).then_some(piece);
        let mut edge = self.running(piece);
        if self.slots.is_some() {
            let mut slots = Vec::new();
            if damaged.is_some() {
                slots.push((piece, Slot::Damaged));
            } else if length < self.length && shorter % PIECE != 0 {
                // Its slot vouches for bytes that are about to go.
                slots.push((piece, Slot::Unknown));
                edge = PieceSum::UNKNOWN;
            }
            let cut = length < self.length;
            self.record_freely(|recorded| {
                recorded.set(&slots)?;
                if cut { recorded.cut(shorter.div_ceil(PIECE)) } else { Ok(()) }
            });
        }
        // The piece of an end that moves has other bytes, and no piece begins past it.
        self.clear(shorter..longer.next_multiple_of(PIECE), damaged);
        self.length = length;
        if let Some(changed) = self.changed.get_mut(&piece) {
            changed.vouched = edge.vouched;
            changed.has_slot = edge.has_slot;
            self.fall_behind(piece);
        }
        let gone = length.div_ceil(PIECE);
        self.behind.retain(|piece| *piece < gone);
    }

    /// What is known of a piece, and what its slot vouches for.
    fn running(&self, piece: u64) -> PieceSum {
        let before = self.changed.get(&piece).copied();
        let before = before.unwrap_or(PieceSum { has_slot: false, ..PieceSum::UNKNOWN });
        if before.has_slot { before } else { PieceSum { vouched: self.held(piece), ..before } }
    }

    /// The slot of a piece does not have the checksum of all its bytes.
    fn fall_behind(&mut self, piece: u64) {
        let Some(slots) = &self.slots else {
            return;
        };
        slots.are_behind();
        self.behind.insert(piece);
    }

    /// Records by `work`. If that fails, a kill leaves the tail without checksums.
    ///
    /// # Errors
    /// If a kill might leave wrong ones.
    fn record(&mut self, work: impl FnOnce(&mut TailSlots) -> io::Result<()>) -> io::Result<()> {
        let Some(slots) = &mut self.slots else {
            return Ok(());
        };
        match work(slots) {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "checksums of content past the first 256 KiB are not recorded");
                self.forget()
            }
        }
    }

    /// As [`State::record`], for a change that must not fail.
    fn record_freely(&mut self, work: impl FnOnce(&mut TailSlots) -> io::Result<()>) {
        if let Err(error) = self.record(work) {
            tracing::error!(%error, "after a kill, content past the first 256 KiB may seem to be damaged");
        }
    }

    /// Records nothing from now on.
    fn forget(&mut self) -> io::Result<()> {
        self.recorder = None;
        self.behind.clear();
        self.slots.take().map_or(Ok(()), TailSlots::forget)
    }

    /// No checksum counts any more.
    fn lose(&mut self) {
        self.is_unknown = true;
        if let Err(error) = self.forget() {
            tracing::error!(%error, "after a kill, content past the first 256 KiB may seem to be damaged");
        }
    }

    /// Bytes are written: the pieces, and what is known of them afterwards.
    fn written(&self, offset: u64, bytes: &[u8]) -> Vec<(u64, PieceSum)> {
        let end = offset + bytes.len() as u64;
        let pieces = offset / PIECE..end.div_ceil(PIECE);
        let known = pieces.map(|piece| {
            let start = piece * PIECE;
            let (from, to) = (offset.max(start), end.min(start + PIECE));
            let part = &bytes[(from - offset) as usize..(to - offset) as usize];
            let before = match self.changed.get(&piece) {
                _ if from == start => Some(0),
                Some(running) if start + running.length.min(PIECE) == from => Some(running.sum),
                Some(_) => None,
                None => {
                    let expected = self.expected(piece);
                    let at_end = expected.filter(|(_, held)| start + *held as u64 == from);
                    at_end.map(|(sum, _)| sum)
                }
            };
            let running = before.map_or(PieceSum::UNKNOWN, |before| {
                let mut sum = crc32fast::Hasher::new_with_initial(before);
                sum.update(part);
                PieceSum { sum: sum.finalize(), length: to - start, ..PieceSum::UNKNOWN }
            });
            (piece, running)
        });
        known.collect()
    }

    /// Whether a piece is as it was written; true where that is not known.
    fn is_whole(&self, file: &File, piece: u64) -> io::Result<bool> {
        let Some((sum, held)) = self.expected(piece) else {
            return Ok(true);
        };
        let start = piece * PIECE;
        let of_zeros = if held as u64 == PIECE { *ZEROS } else { zeros(held as u64) };
        if sum == of_zeros && is_hole(file, start..start + held as u64)? {
            return Ok(true);
        }
        let mut bytes = vec![0; held];
        match file.read_exact_at(&mut bytes, start) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            read => read.map(|()| crc32fast::hash(&bytes) == sum),
        }
    }

    /// Fails if a change of the bytes of a range would keep damaged bytes of a piece, and forget that they are.
    fn must_keep_whole(&self, file: &File, range: &Range<u64>) -> io::Result<()> {
        let pieces = [range.start / PIECE, range.end.saturating_sub(1) / PIECE];
        for piece in pieces {
            let start = piece * PIECE;
            let is_kept = start < range.start || start + self.held(piece) > range.end;
            if is_kept && !range.is_empty() && !self.is_whole(file, piece)? {
                return Err(io::Error::other(format!(
                    "the bytes from {} on have a wrong checksum, and a part of them would stay",
                    crate::HEAD + start
                )));
            }
        }
        Ok(())
    }

    /// Clears the mark, durably: a changed page may reach the disk before anything else does. From then on the checksums are
    /// recorded.
    fn unseal(&mut self, file: &File) -> io::Result<()> {
        if let Some(recorder) = self.recorder.take() {
            let base = if self.is_sealed { self.length.div_ceil(PIECE) } else { 0 };
            let begun = recorder.file.begin(recorder.ino, base);
            self.slots = begun
                .inspect_err(|error| {
                    tracing::warn!(%error, "checksums of content past the first 256 KiB are not recorded");
                })
                .ok();
        }
        if self.is_sealed {
            fchmod(file, UNSEALED)?;
            file.sync_all()?;
            self.is_sealed = false;
        }
        Ok(())
    }

    /// The slots that say that nothing is known of these pieces.
    fn unknown_slots(pieces: impl IntoIterator<Item = u64>) -> Vec<(u64, Slot)> {
        let slots = pieces.into_iter().map(|piece| (piece, Slot::Unknown));
        slots.collect()
    }

    /// Brings the slot of a piece up to date.
    fn catch_up(&mut self, file: &File, piece: u64) -> io::Result<()> {
        self.behind.remove(&piece);
        let Some(behind) = self.as_behind(piece) else {
            return Ok(());
        };
        let sum = behind.sum(file, &mut Vec::new());
        self.caught_up([(behind, sum)])
    }

    /// A piece whose slot is behind; `None` if there is nothing to record of it.
    fn as_behind(&self, piece: u64) -> Option<StalePiece> {
        let (held, running) = (self.held(piece), self.changed.get(&piece).copied()?);
        (held > 0 && self.slots.is_some()).then_some(StalePiece { piece, held, running })
    }

    /// The next pieces from `from` on whose slots are behind, and where the search goes on; `None` at its end.
    fn next_behind(&mut self, from: u64) -> Option<(Vec<StalePiece>, u64)> {
        let pieces: Vec<u64> = self.behind.range(from..).take(TOGETHER).copied().collect();
        let last = pieces.last().copied()?;
        let mut found = Vec::new();
        for piece in pieces {
            match self.as_behind(piece) {
                Some(behind) => found.push(behind),
                None => drop(self.behind.remove(&piece)),
            }
        }
        Some((found, last + 1))
    }

    /// Records the checksums of those pieces, in their order, that have not changed since they were read. An error is that of a
    /// piece that could not be read.
    fn caught_up(&mut self, pieces: impl IntoIterator<Item = (StalePiece, io::Result<u32>)>) -> io::Result<()> {
        let (mut slots, mut result) = (Vec::new(), Ok(()));
        for (behind, sum) in pieces {
            let StalePiece { piece, held, running } = behind;
            let now = self.as_behind(piece);
            if now.is_none_or(|now| now.held != held || now.running.change != running.change) {
                continue;
            }
            self.behind.remove(&piece);
            match sum {
                Ok(sum) => {
                    let known = PieceSum { sum, length: held, vouched: held, has_slot: true, ..running };
                    self.changed.insert(piece, known);
                    let length = held as u32;
                    slots.push((piece, Slot::Prefix { sum, length }));
                }
                Err(error) => result = Err(error),
            }
        }
        if !slots.is_empty() {
            self.record_freely(|recorded| recorded.set(&slots));
        }
        result
    }

    /// Takes over what a slot says of a piece, of a file with `there` bytes. What it has to say from now on, if that is
    /// something else.
    fn restore(
        &mut self,
        file: &File,
        there: u64,
        piece: u64,
        (slot, has_slot): (Slot, bool),
    ) -> io::Result<Option<Slot>> {
        let held = self.held(piece);
        let (sum, length) = match slot {
            Slot::Base => return Ok(None),
            Slot::Unknown => {
                self.changed.insert(piece, PieceSum::UNKNOWN);
                return Ok(None);
            }
            Slot::Damaged => return self.restore_damaged(file, piece).map(Some),
            Slot::Prefix { sum, length } => (sum, u64::from(length)),
        };
        if length == held || (sum == *ZEROS && length == PIECE) {
            self.set_sum(piece, sum);
            return Ok(None);
        }
        let start = piece * PIECE;
        if length > PIECE || start + length > there {
            self.changed.insert(piece, PieceSum::UNKNOWN);
            return Ok(Some(Slot::Unknown));
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, start)?;
        if crc32fast::hash(&bytes) != sum {
            return self.restore_damaged(file, piece).map(Some);
        }
        if length > held {
            // The call that has written the rest did not return.
            let sum = crc32fast::hash(&bytes[..held as usize]);
            self.set_sum(piece, sum);
            let length = held as u32;
            return Ok(Some(Slot::Prefix { sum, length }));
        }
        self.changed.insert(piece, PieceSum { sum, length, vouched: length, has_slot, change: 0 });
        Ok(None)
    }

    /// Keeps a piece damaged: its checksum is that of no bytes that it has.
    fn restore_damaged(&mut self, file: &File, piece: u64) -> io::Result<Slot> {
        let mut bytes = vec![0; self.held(piece) as usize];
        file.read_exact_at(&mut bytes, piece * PIECE)?;
        self.set_sum(piece, !crc32fast::hash(&bytes));
        Ok(Slot::Damaged)
    }

    /// Brings the slots of the pieces up to date in which a hole or the tail ends.
    fn catch_up_edges(&mut self, file: &File, edges: &[u64]) {
        for edge in edges.iter().filter(|edge| **edge % PIECE != 0) {
            let piece = edge / PIECE;
            if self.catch_up(file, piece).is_err() {
                self.fall_behind(piece);
            }
        }
    }

    /// The pieces in a range that may hold something else than zeros.
    fn not_zeros(&self, whole: Range<u64>) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        if self.slots.is_none() || whole.is_empty() {
            return found;
        }
        for (group, sums) in self.groups.range(whole.start / GROUP..=whole.end / GROUP) {
            let sums = (group * GROUP..).zip(sums.iter());
            let others = sums.filter(|(piece, sum)| **sum != *ZEROS && whole.contains(piece));
            found.extend(others.map(|(piece, _)| piece));
        }
        found.extend(self.changed.range(whole).map(|(piece, _)| *piece));
        found
    }

    /// Records what a write has made of its pieces.
    fn record_written(&mut self, known: &[(u64, PieceSum)], is_long: bool) {
        let mut slots = Vec::new();
        for (piece, _) in known {
            let held = self.held(*piece);
            let Some(running) = self.changed.get_mut(piece) else {
                continue;
            };
            let is_known = running.length == held;
            if is_known && (is_long || held == PIECE || !running.has_slot) {
                let (sum, length) = (running.sum, held as u32);
                slots.push((*piece, Slot::Prefix { sum, length }));
                (running.vouched, running.has_slot) = (held, true);
            } else {
                if !running.has_slot {
                    slots.push((*piece, Slot::Unknown));
                    (running.vouched, running.has_slot) = (0, true);
                }
                self.fall_behind(*piece);
            }
        }
        for (piece, slot) in &slots {
            if matches!(slot, Slot::Prefix { .. }) {
                self.behind.remove(piece);
            }
        }
        if !slots.is_empty() {
            self.record_freely(|recorded| recorded.set(&slots));
        }
    }

    /// Computes the checksums that do not count.
    fn complete(&mut self, file: &File) -> io::Result<()> {
        if self.is_unknown {
            self.groups.clear();
            self.changed.clear();
            self.length = file.metadata()?.len();
            self.is_unknown = false;
            let mut at = 0;
            while let Some(data) = next_data(file, at)? {
                let hole = seek(file, SeekFrom::Hole(data))?;
                for piece in data / PIECE..hole.div_ceil(PIECE) {
                    self.changed.insert(piece, PieceSum::UNKNOWN);
                }
                at = hole;
            }
        }
        let mut buffer = vec![0; PIECE as usize];
        for (piece, running) in std::mem::take(&mut self.changed) {
            let held = self.held(piece);
            let sum = if running.length == held {
                running.sum
            } else {
                let bytes = &mut buffer[..held as usize];
                file.read_exact_at(bytes, piece * PIECE)?;
                crc32fast::hash(bytes)
            };
            let is_zeros = held < PIECE && sum == zeros(held);
            self.set_sum(piece, if is_zeros { *ZEROS } else { sum });
        }
        Ok(())
    }
}

impl StalePiece {
    /// The checksum of all bytes of the piece.
    fn sum(&self, file: &File, buffer: &mut Vec<u8>) -> io::Result<u32> {
        if self.running.length == self.held {
            return Ok(self.running.sum);
        }
        buffer.resize(self.held as usize, 0);
        file.read_exact_at(buffer, self.piece * PIECE)?;
        Ok(crc32fast::hash(buffer))
    }
}

/// Whether a range that the file has surely lies in a hole, which reads as zeros.
fn is_hole(file: &File, range: Range<u64>) -> io::Result<bool> {
    match next_data(file, range.start)? {
        Some(data) => Ok(data >= range.end),
        // There is no data before the end of the file.
        None => Ok(file.metadata()?.len() >= range.end),
    }
}

/// The first byte at or after `at` that lies in no hole.
pub(super) fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl TailSums {
    /// Writes by `work`, and follows it.
    pub(super) fn write(
        &self,
        file: &File,
        offset: u64,
        bytes: &[u8],
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.0.lock();
        state.unseal(file)?;
        if state.is_unknown {
            return work();
        }
        let end = offset + bytes.len() as u64;
        state.must_keep_whole(file, &(offset..end))?;
        if offset > state.length {
            state.resize(file, offset);
        }
        let mut known = state.written(offset, bytes);
        if state.slots.is_some() {
            let mut vouched = Vec::new();
            for (piece, running) in &mut known {
                let before = state.running(*piece);
                (running.vouched, running.has_slot) = (before.vouched, before.has_slot);
                if before.vouched > 0 && offset < *piece * PIECE + before.vouched {
                    vouched.push(*piece);
                    (running.vouched, running.has_slot) = (0, true);
                }
            }
            if !vouched.is_empty() {
                state.record(|slots| slots.set(&State::unknown_slots(vouched)))?;
            }
        }
        state.changes += 1;
        for (piece, running) in &mut known {
            running.change = state.changes;
            let unknown = PieceSum { sum: 0, length: u64::MAX, ..*running };
            state.changed.insert(*piece, unknown);
        }
        state.length = state.length.max(end);
        if let Err(error) = work() {
            // Some of it may be there.
            match file.metadata() {
                Ok(file) => state.length = file.len(),
                Err(_) => state.lose(),
            }
            for (piece, _) in &known {
                match state.held(*piece) {
                    0 => drop(state.changed.remove(piece)),
                    _ => state.fall_behind(*piece),
                }
            }
            return Err(error);
        }
        state.changed.extend(known.iter().copied());
        state.record_written(&known, bytes.len() >= LONG_WRITE);
        Ok(())
    }

    /// Cuts or extends by `work`, and follows it.
    pub(super) fn resize(&self, file: &File, length: u64, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.0.lock();
        state.unseal(file)?;
        let is_shorter = length < state.length;
        state.resize(file, length);
        let resized = work();
        if resized.is_err() {
            state.lose();
        } else if is_shorter {
            state.catch_up_edges(file, &[length]);
        }
        resized
    }

    /// Makes zeros of a range by `work`, and follows it.
    pub(super) fn punch(
        &self,
        file: &File,
        range: Range<u64>,
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.0.lock();
        state.unseal(file)?;
        let end = range.end.min(state.length);
        let range = range.start.min(end)..end;
        state.must_keep_whole(file, &range)?;
        let whole = state.not_zeros(range.start.div_ceil(PIECE)..range.end / PIECE);
        let edges = [range.start, range.end];
        if state.slots.is_some() && !range.is_empty() {
            let edges = edges.iter().filter(|edge| **edge % PIECE != 0);
            let mut pieces: BTreeSet<u64> = edges.map(|edge| edge / PIECE).collect();
            pieces.extend(whole.iter().copied());
            state.record(|slots| slots.set(&State::unknown_slots(pieces)))?;
        }
        state.clear(range.clone(), None);
        let punched = work();
        if punched.is_err() {
            state.lose();
        } else if !range.is_empty() {
            let (sum, length) = (*ZEROS, PIECE as u32);
            let zeros = whole.iter().map(|piece| (*piece, Slot::Prefix { sum, length }));
            let zeros: Vec<(u64, Slot)> = zeros.collect();
            state.record_freely(|slots| slots.set(&zeros));
            state.behind.retain(|piece| !whole.contains(piece));
            state.catch_up_edges(file, &edges);
        }
        punched
    }

    /// Brings all slots up to date, except those of pieces that change meanwhile. If none is left behind, says so by `is_done`,
    /// before another change.
    pub(super) fn catch_up(&self, file: &File, is_done: impl FnOnce()) -> io::Result<()> {
        let (mut result, mut from, mut buffer) = (Ok(()), 0, Vec::new());
        let mut state = self.0.lock();
        while let Some((pieces, next)) = state.next_behind(from) {
            // Other calls go on while the bytes are read.
            drop(state);
            let read = |behind: StalePiece| (behind, behind.sum(file, &mut buffer));
            let sums: Vec<_> = pieces.into_iter().map(read).collect();
            state = self.0.lock();
            if let Err(error) = state.caught_up(sums) {
                result = Err(error);
            }
            from = next;
        }
        if state.behind.is_empty() {
            is_done();
        }
        result
    }

    /// Forgets the recorded checksums of a tail that is no longer the one of its inode.
    pub(super) fn forget(&self) {
        let forgotten = self.0.lock().forget();
        if let Err(error) = forgotten {
            tracing::error!(%error, "after a kill, content past the first 256 KiB may seem to be damaged");
        }
    }

    /// Whether a changed byte of some piece cannot be found.
    pub(super) fn has_unknown(&self) -> bool {
        let state = self.0.lock();
        let is_unknown = |(piece, running): (&u64, &PieceSum)| running.length != state.held(*piece);
        state.is_unknown || state.changed.iter().any(is_unknown)
    }

    /// Compares the pieces that `out`, read from `offset` on, lies in. Bytes of pieces that reach past it are read again,
    /// so that what is compared is what is answered. The first byte of a damaged piece.
    pub(super) fn verify(&self, file: &File, offset: u64, out: &mut [u8]) -> io::Result<Option<u64>> {
        let end = offset + out.len() as u64;
        let expected: Vec<_> = {
            let (state, pieces) = (self.0.lock(), offset / PIECE..end.div_ceil(PIECE));
            pieces.filter_map(|piece| Some((piece, state.expected(piece)?))).collect()
        };
        let mut buffer = Vec::new();
        for (piece, (sum, held)) in expected {
            let start = piece * PIECE;
            let stop = start + held as u64;
            if start >= offset && stop <= end {
                let bytes = &out[(start - offset) as usize..(stop - offset) as usize];
                if crc32fast::hash(bytes) != sum {
                    return Ok(Some(start));
                }
                continue;
            }
            buffer.resize(held, 0);
            match file.read_exact_at(&mut buffer, start) {
                Ok(()) if crc32fast::hash(&buffer) == sum => {}
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
                _ => return Ok(Some(start)),
            }
            let (from, to) = (start.max(offset), stop.min(end));
            if from < to {
                out[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&buffer[(from - start) as usize..(to - start) as usize]);
            }
        }
        Ok(None)
    }

    /// The first piece in a range, which reads as zeros, that should hold something else.
    pub(super) fn lost_in_hole(&self, range: Range<u64>) -> Option<u64> {
        let state = self.0.lock();
        let whole = range.start.div_ceil(PIECE)..range.end.min(state.length) / PIECE;
        if state.is_unknown || whole.is_empty() {
            return None;
        }
        let groups = state.groups.range(whole.start / GROUP..=whole.end / GROUP);
        let mut pieces = groups.flat_map(|(group, sums)| {
            let sums = sums.iter().enumerate();
            sums.map(move |(at, sum)| (group * GROUP + at as u64, *sum))
        });
        let is_lost =
            |(piece, sum): &(u64, u32)| whole.contains(piece) && *sum != *ZEROS && !state.changed.contains_key(piece);
        pieces.find(is_lost).map(|(piece, _)| piece * PIECE)
    }

    /// The checksums of a sealed tail, from its rows.
    pub(super) fn sealed(
        length: u64,
        rows: impl IntoIterator<Item = (u64, Vec<u8>)>,
        recorder: Option<Recorder>,
    ) -> Self {
        Self(Mutex::new(State { length, groups: groups(rows), is_sealed: true, recorder, ..State::default() }))
    }

    /// The checksums of a tail that does not exist yet.
    pub(super) fn new(recorder: Recorder) -> Self {
        Self(Mutex::new(State { recorder: Some(recorder), ..State::default() }))
    }

    /// The checksums of a tail of which a killed mount has left `left`, whose rows have the checksums of `rows`. The database
    /// needs its first `length` bytes. Also the slots that have to say something else from now on.
    ///
    /// # Errors
    /// If the tail cannot be read.
    pub(super) fn left(
        file: &File,
        length: u64,
        left: &RecordedTail,
        rows: Rows,
    ) -> io::Result<(Self, Vec<(u64, Slot)>)> {
        let there = file.metadata()?.len();
        let mut state = State { length: length.min(there), ..State::default() };
        let sealed = State { length: rows.0, groups: groups(rows.1), ..State::default() };
        let base = left.base;
        if base > sealed.length.div_ceil(PIECE) {
            let reason = "the database lacks its checksums from before the last mount";
            return Err(io::Error::other(reason));
        }
        let known = sealed.groups.iter().flat_map(|(group, sums)| {
            let pieces = (group * GROUP..).zip(sums.iter());
            pieces.map(|(piece, _)| piece)
        });
        // Whole pieces of zeros may have no rows; the last piece may have grown.
        let known = known.chain(base.checked_sub(1));
        let mut pieces: BTreeSet<u64> = known.filter(|piece| *piece < base).collect();
        pieces.extend(left.slots.keys());
        let mut slots = Vec::new();
        for piece in pieces.range(..state.length.div_ceil(PIECE)).copied() {
            let own = left.slots.get(&piece).copied();
            let slot = own.unwrap_or_else(|| {
                let (length, sum) = (sealed.held(piece), sealed.sum(piece));
                Slot::Prefix {
                    sum: if sum == *ZEROS && length < PIECE { zeros(length) } else { sum },
                    length: length as u32,
                }
            });
            let now = state.restore(file, there, piece, (slot, own.is_some()))?;
            slots.extend(now.map(|now| (piece, now)));
        }
        Ok((Self(Mutex::new(state)), slots))
    }

    /// Goes on recording in the slots that a killed mount has left, of which some have to say something else.
    pub(super) fn go_on(&self, left: RecordedTail, changed: &[(u64, Slot)], recorder: &Recorder) {
        let mut state = self.0.lock();
        let end = state.length.div_ceil(PIECE);
        let has_more = left.base > end || left.slots.range(end..).next().is_some();
        state.slots = recorder.file.slots_of(recorder.ino, left);
        state.record_freely(|slots| {
            slots.set(changed)?;
            if has_more { slots.cut(end) } else { Ok(()) }
        });
        let unknown = |(piece, running): (&u64, &PieceSum)| (running.length != state.held(*piece)).then_some(*piece);
        let behind: Vec<u64> = state.changed.iter().filter_map(unknown).collect();
        behind.into_iter().for_each(|piece| state.fall_behind(piece));
    }

    /// The checksums of a tail whose content is unknown.
    pub(super) fn unknown() -> Self {
        Self(Mutex::new(State { is_unknown: true, ..State::default() }))
    }

    /// Computes the checksums that do not count.
    pub(super) fn complete(&self, file: &File) -> io::Result<()> {
        self.0.lock().complete(file)
    }

    /// The length of the tail, and the rows of its checksums.
    pub(super) fn rows(&self) -> Rows {
        let state = self.0.lock();
        let is_needed = |sums: &Group| sums.iter().any(|sum| *sum != *ZEROS);
        let groups = state.groups.iter().filter(|(_, sums)| is_needed(sums));
        let pack = |sums: &Group| sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let rows = groups.map(|(group, sums)| (*group, pack(sums)));
        (state.length, rows.collect())
    }

    /// Marks the file: the rows are durable.
    pub(super) fn seal(&self, file: &File) -> io::Result<()> {
        let mut state = self.0.lock();
        fchmod(file, SEALED)?;
        state.is_sealed = true;
        Ok(())
    }
}

/// The rows of the checksums of a tail: its length, and the checksums by group.
pub(super) type Rows = (u64, Vec<(u64, Vec<u8>)>);

fn groups(rows: impl IntoIterator<Item = (u64, Vec<u8>)>) -> BTreeMap<u64, Box<Group>> {
    let unpacked = rows.into_iter().map(|(group, bytes)| (group, Box::new(unpack(&bytes))));
    unpacked.collect()
}

fn unpack(bytes: &[u8]) -> Group {
    let mut sums = [*ZEROS; GROUP as usize];
    for (sum, four) in sums.iter_mut().zip(bytes.chunks_exact(4)) {
        *sum = u32::from_le_bytes(four.try_into().unwrap_or_default());
    }
    sums
}

/// The pieces of a tail of `length` bytes that are not as they were written, for `doctor`: the bytes from the first to the
/// last one.
pub(super) fn damaged(file: &File, length: u64, sums: &TailSums) -> io::Result<Option<Range<u64>>> {
    let mut found: Option<Range<u64>> = None;
    let mut add = |range: Range<u64>| {
        let first = found.as_ref().map_or(range.start, |found| found.start);
        found = Some(first..range.end);
    };
    let held = file.metadata()?.len();
    let mut buffer = vec![0; PIECE as usize];
    let mut at = 0;
    while at < held.min(length) {
        let data = next_data(file, at)?.unwrap_or(held).min(length);
        if data > at
            && let Some(lost) = sums.lost_in_hole(at..data)
        {
            add(lost..lost + PIECE);
        }
        let hole = if data < held.min(length) { seek(file, SeekFrom::Hole(data))?.min(length) } else { data };
        for piece in data / PIECE..hole.div_ceil(PIECE) {
            let start = piece * PIECE;
            let stop = (start + PIECE).min(held).min(length);
            let bytes = &mut buffer[..stop.saturating_sub(start) as usize];
            file.read_exact_at(bytes, start)?;
            if sums.verify(file, start, bytes)?.is_some() {
                add(start..stop);
            }
        }
        at = hole.max(data);
    }
    if held < length {
        add(held..length);
    }
    Ok(found)
}

/// Whether the bytes of a range of a tail are as a checksum file says that a power loss may have changed.
pub(super) fn is_as_recorded(file: &File, range: Range<u64>, left: &RecordedTail) -> bool {
    (range.start / PIECE..range.end.div_ceil(PIECE)).all(|piece| {
        let start = piece * PIECE;
        let Some(Slot::Prefix { sum, length }) = left.slots.get(&piece).copied() else {
            return false;
        };
        let is_enough = (range.end.min(start + PIECE)..=start + PIECE).contains(&(start + u64::from(length)));
        let mut bytes = vec![0; length.min(PIECE as u32) as usize];
        is_enough && file.read_exact_at(&mut bytes, start).is_ok() && crc32fast::hash(&bytes) == sum
    })
}

pub(super) fn damage(path: &std::path::Path, at: u64) -> StoreError {
    let reason = format!(
        "{}: the chunk at byte {at} is damaged: wrong checksum; `ctxbench doctor --store` lists the path of the file",
        path.display()
    );
    StoreError::storage(Errno::IO, reason)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::free_tails::tests::dice;
    use crate::set_aside::RedoRecord;
    use crate::sum_file::SumFileContent;

    #[test]
    fn checksums_that_follow_changes_are_those_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for round in 0..60 {
            let path = dir.path().join(round.to_string());
            let options = File::options().read(true).write(true).create_new(true).open(&path);
            let (file, sums) = (options.unwrap(), TailSums::default());
            let mut length = 0;
            for _ in 0..30 {
                let bytes = vec![random(256) as u8; 1 + random(3 * PIECE) as usize];
                let at = if random(2) == 0 { length } else { random(length + 1) };
                match random(8) {
                    0 => {
                        let to = [random(12 * PIECE), random(12) * PIECE][random(2) as usize];
                        sums.resize(&file, to, || file.set_len(to)).unwrap();
                        length = to;
                    }
                    1 => {
                        let end = at + 1 + random(4 * PIECE);
                        let punch = || {
                            let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                            Ok(rustix::fs::fallocate(&file, flags, at, end - at)?)
                        };
                        sums.punch(&file, at..end, punch).unwrap();
                    }
                    _ => {
                        let write = || file.write_all_at(&bytes, at);
                        sums.write(&file, at, &bytes, write).unwrap();
                        length = length.max(at + bytes.len() as u64);
                    }
                }
                // The checksums that are known already are right.
                let mut all = std::fs::read(&path).unwrap();
                assert_eq!(all.len() as u64, length);
                let wrong = sums.verify(&file, 0, &mut all).unwrap();
                assert_eq!(wrong, None, "round {round}");
            }
            sums.0.lock().complete(&file).unwrap();
            let state = sums.0.lock();
            for piece in 0..length.div_ceil(PIECE) {
                let all = std::fs::read(&path).unwrap();
                let start = (piece * PIECE) as usize;
                let bytes = &all[start..all.len().min(start + PIECE as usize)];
                let expected = Some((crc32fast::hash(bytes), bytes.len()));
                assert_eq!(state.expected(piece), expected, "round {round}, piece {piece}");
            }
            let computed = State { is_unknown: true, ..State::default() };
            drop(state);
            let again = TailSums(Mutex::new(computed));
            again.0.lock().complete(&file).unwrap();
            let (one, two) = (sums.0.lock(), again.0.lock());
            let pieces = 0..length.div_ceil(PIECE);
            assert!(pieces.clone().all(|piece| one.expected(piece) == two.expected(piece)));
        }
    }

    /// A sealed tail of one and a half pieces, whose second one is damaged.
    fn damaged_tail() -> (File, TailSums) {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..PIECE * 3 / 2).map(|at| (at % 251) as u8).collect();
        let sums = TailSums::default();
        let write = || file.write_all_at(&bytes, 0);
        sums.write(&file, 0, &bytes, write).unwrap();
        sums.complete(&file).unwrap();
        let (length, rows) = sums.rows();
        file.write_all_at(b"damage", PIECE + 100).unwrap();
        (file, TailSums::sealed(length, rows, None))
    }

    /// Whether the second piece is found to be damaged, also with the checksums that the end of a mount writes.
    fn is_found(file: &File, sums: &TailSums) -> bool {
        let found = |sums: &TailSums| {
            let mut out = vec![0; (file.metadata().unwrap().len() - PIECE) as usize];
            file.read_exact_at(&mut out, PIECE).unwrap();
            sums.verify(file, PIECE, &mut out).unwrap() == Some(PIECE)
        };
        let is_found = found(sums);
        sums.complete(file).unwrap();
        let (length, rows) = sums.rows();
        assert_eq!(found(&TailSums::sealed(length, rows, None)), is_found);
        is_found
    }

    #[test]
    fn a_change_of_a_part_of_a_damaged_piece_makes_no_damaged_byte_a_good_one() {
        for at in [PIECE, PIECE + 5000, PIECE * 3 / 2, PIECE * 3 / 2 + 10] {
            let (file, sums) = damaged_tail();
            let written = sums.write(&file, at, b"new", || panic!("written at {at}"));
            assert!(written.is_err() && is_found(&file, &sums), "write at {at}");
        }
        let (file, sums) = damaged_tail();
        let hole = PIECE - 10..PIECE + 4096;
        let punched = sums.punch(&file, hole, || panic!("punched"));
        assert!(punched.is_err() && is_found(&file, &sums));
        for length in [PIECE + 200, PIECE * 2, PIECE * 5] {
            let (file, sums) = damaged_tail();
            let resize = || file.set_len(length);
            sums.resize(&file, length, resize).unwrap();
            assert!(is_found(&file, &sums), "{length} bytes");
        }
        // Nothing of it stays.
        let (file, sums) = damaged_tail();
        let bytes = vec![1; PIECE as usize];
        let write = || file.write_all_at(&bytes, PIECE);
        sums.write(&file, PIECE, &bytes, write).unwrap();
        assert!(!is_found(&file, &sums));
        let (file, sums) = damaged_tail();
        sums.resize(&file, PIECE, || file.set_len(PIECE)).unwrap();
        sums.write(&file, PIECE + 9, b"new", || file.write_all_at(b"new", PIECE + 9)).unwrap();
        assert!(!is_found(&file, &sums));
    }

    #[test]
    fn a_write_into_a_hole_reads_nothing_and_finds_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tail");
        // Nothing can be read from it.
        let file = File::options().write(true).create_new(true).open(&path).unwrap();
        let length = PIECE * 5 / 2;
        let sums = TailSums::default();
        sums.resize(&file, length, || file.set_len(length)).unwrap();
        for at in [100, PIECE * 2 + 100] {
            sums.write(&file, at, b"new", || file.write_all_at(b"new", at)).unwrap();
        }
        let readable = File::options().read(true).write(true).open(&path).unwrap();
        let write_is_refused = || sums.write(&readable, PIECE + 100, b"new", || panic!("written")).is_err();
        readable.set_len(PIECE + 100).unwrap();
        assert!(write_is_refused(), "the end of the hole is missing");
        readable.set_len(length).unwrap();
        readable.write_all_at(b"damage", PIECE + 9000).unwrap();
        assert!(write_is_refused(), "a byte is not zero");
    }

    const INO: Ino = 7;
    const KNOWN: RedoRecord = RedoRecord { mount: Some(5), applied: 0, ended: None };

    /// A tail, its checksum file, and what the database knows of both.
    struct Tail {
        dir: tempfile::TempDir,
        file: File,
        sum_file: Arc<SumFile>,
        sums: TailSums,
        rows: Rows,
        /// How many bytes the database needs.
        length: u64,
    }

    fn sum_file(dir: &Path) -> Arc<SumFile> {
        Arc::new(SumFile::new(File::open(dir).unwrap(), "a.db-sums".into()))
    }

    fn recorder(sum_file: &Arc<SumFile>) -> Recorder {
        Recorder { file: Arc::clone(sum_file), ino: INO }
    }

    fn open(path: &Path) -> File {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        options.open(path).unwrap()
    }

    impl Tail {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let sum_file = sum_file(dir.path());
            sum_file.set_mount(5);
            Self {
                file: open(&dir.path().join("tail")),
                sums: TailSums::new(recorder(&sum_file)),
                sum_file,
                dir,
                rows: Rows::default(),
                length: 0,
            }
        }

        /// What a kill leaves at this moment, in another directory.
        fn kill(&self, to: &Path) {
            for name in ["tail", "a.db-sums"] {
                let from = self.dir.path().join(name);
                if from.exists() {
                    std::fs::copy(from, to.join(name)).unwrap();
                }
            }
        }

        /// The checksums that a mount after a kill has.
        fn restored(&self, dir: &Path, length: u64) -> Option<(File, TailSums)> {
            let file = open(&dir.join("tail"));
            if is_sealed(&file.metadata().unwrap()) {
                let (length, rows) = self.rows.clone();
                return Some((file, TailSums::sealed(length, rows, None)));
            }
            let left = SumFileContent::read(&dir.join("a.db"), KNOWN)?.tails.remove(&INO)?;
            let restored = TailSums::left(&file, length, &left, self.rows.clone());
            Some((file, restored.unwrap().0))
        }

        /// A kill with `length` needed bytes must leave no checksum that is wrong.
        fn must_survive(&self, length: u64, at: &str) {
            let copy = tempfile::tempdir().unwrap();
            self.kill(copy.path());
            if let Some((file, sums)) = self.restored(copy.path(), length) {
                let mut out = vec![0; length as usize];
                file.read_exact_at(&mut out, 0).unwrap();
                let damaged = sums.verify(&file, 0, &mut out).unwrap();
                assert_eq!(damaged, None, "{at}: {length} bytes");
                assert_eq!(sums.lost_in_hole(0..0), None);
            }
        }

        /// A kill and a changed byte. Whether that is found.
        fn finds(&self, at: u64) -> bool {
            let copy = tempfile::tempdir().unwrap();
            self.kill(copy.path());
            let file = open(&copy.path().join("tail"));
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
            let Some((file, sums)) = self.restored(copy.path(), self.length) else {
                return false;
            };
            let mut out = vec![0; self.length as usize];
            file.read_exact_at(&mut out, 0).unwrap();
            sums.verify(&file, 0, &mut out).unwrap() == Some(at / PIECE * PIECE)
        }

        fn write(&mut self, at: u64, bytes: &[u8], fails: bool) {
            let round = format!("write of {} at {at} of {}", bytes.len(), self.length);
            let work = || {
                self.must_survive(self.length, &format!("before a {round}"));
                let half = bytes.len() / 2;
                self.file.write_all_at(&bytes[..half], at)?;
                self.must_survive(self.length, &format!("amid a {round}"));
                if fails {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                self.file.write_all_at(&bytes[half..], at + half as u64)?;
                self.must_survive(self.length, &format!("at the end of a {round}"));
                Ok(())
            };
            let end = at + bytes.len() as u64;
            let written = self.sums.write(&self.file, at, bytes, work);
            assert_eq!(written.is_err(), fails);
            self.must_survive(self.length, &format!("after a {round}"));
            match written {
                Ok(()) => self.length = self.length.max(end),
                Err(_) => self.resize(self.length),
            }
        }

        fn resize(&self, to: u64) {
            let needed = self.length.min(to);
            let work = || {
                self.must_survive(needed, "before a change of the length");
                self.file.set_len(to)?;
                self.must_survive(needed, "amid a change of the length");
                Ok(())
            };
            self.sums.resize(&self.file, to, work).unwrap();
            self.must_survive(needed, "after a change of the length");
        }

        fn punch(&self, range: Range<u64>) {
            let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            let punch =
                |range: Range<u64>| rustix::fs::fallocate(&self.file, flags, range.start, range.end - range.start);
            let middle = range.start + (range.end - range.start).div_ceil(2);
            let work = || {
                self.must_survive(self.length, "before a hole");
                punch(range.start..middle)?;
                self.must_survive(self.length, "amid a hole");
                punch(range.clone())?;
                self.must_survive(self.length, "at the end of a hole");
                Ok(())
            };
            self.sums.punch(&self.file, range.clone(), work).unwrap();
        }

        /// Ends the mount in order, and begins the next one.
        fn seal(&mut self) {
            self.sums.complete(&self.file).unwrap();
            self.rows = self.sums.rows();
            self.must_survive(self.length, "between the rows and the seal");
            self.sums.seal(&self.file).unwrap();
            let (length, rows) = self.rows.clone();
            std::fs::remove_file(self.dir.path().join("a.db-sums")).unwrap_or_default();
            self.sum_file = sum_file(self.dir.path());
            self.sum_file.set_mount(5);
            self.sums = TailSums::sealed(length, rows, Some(recorder(&self.sum_file)));
        }

        /// Kills the mount, and begins the next one.
        fn go_on(&mut self) {
            if is_sealed(&self.file.metadata().unwrap()) {
                return;
            }
            self.sum_file = sum_file(self.dir.path());
            let left = self.sum_file.go_on(KNOWN).remove(&INO);
            let Some(left) = left.filter(|_| self.length > 0) else {
                return self.begin_again();
            };
            let restored = TailSums::left(&self.file, self.length, &left, self.rows.clone());
            let (sums, changed) = restored.unwrap();
            sums.go_on(left, &changed, &recorder(&self.sum_file));
            self.sums = sums;
            self.must_survive(self.length, "after a kill and a mount");
            self.resize(self.length);
        }

        /// Begins with an empty tail, as after its removal.
        fn begin_again(&mut self) {
            self.sums.forget();
            self.length = 0;
            self.file.set_len(0).unwrap();
            fchmod(&self.file, UNSEALED).unwrap();
            self.sums = TailSums::new(recorder(&self.sum_file));
        }
    }

    #[test]
    fn a_kill_at_any_step_of_any_change_leaves_checksums_that_are_right_or_unknown() {
        let (mut tried, mut steps) = (0, 0);
        for seed in 1..=20 {
            let mut random = dice(seed);
            let mut tail = Tail::new();
            for _ in 0..40 {
                let mut at = random(tail.length + 1);
                if random(2) == 0 {
                    at = tail.length;
                }
                let most = [100, 5000, 3 * PIECE][random(3) as usize];
                let bytes = vec![random(256) as u8; 1 + random(most) as usize];
                let other = [random(12 * PIECE), random(12) * PIECE][random(2) as usize];
                match random(14) {
                    12 => {
                        // The call that has written does not return.
                        let length = tail.length;
                        tail.write(at, &bytes, false);
                        tail.length = length;
                        tail.go_on();
                    }
                    13 => {
                        // A hole in a hole in one piece, and a write into both.
                        let start = tail.length;
                        for _ in 0..2 {
                            let longer = tail.length + 1 + random(PIECE / 2);
                            tail.resize(longer);
                            tail.length = longer;
                        }
                        let at = start + random(tail.length - start);
                        tail.write(at, &bytes[..bytes.len().min(2000)], false);
                    }
                    0 => {
                        // The database shortens the file first, and extends it last.
                        tail.length = tail.length.min(other);
                        tail.resize(tail.length);
                        tail.resize(other);
                        tail.length = other;
                    }
                    1 => tail.punch(at..at + 1 + random(4 * PIECE)),
                    2 => tail.write(at, &bytes, true),
                    3 => tail.seal(),
                    4 | 5 => tail.go_on(),
                    6 => tail.sums.catch_up(&tail.file, || {}).unwrap(),
                    7 => tail.write(tail.length + random(2 * PIECE), &bytes, false),
                    _ => tail.write(at, &bytes, false),
                }
                steps += 1;
                tail.must_survive(tail.length, &format!("seed {seed}, step {steps}"));
                if tail.length > 0 && random(3) == 0 {
                    tail.sums.catch_up(&tail.file, || {}).unwrap();
                    for _ in 0..3 {
                        let at = random(tail.length);
                        assert!(tail.finds(at), "seed {seed}, step {steps}, byte {at}");
                        tried += 1;
                    }
                }
            }
        }
        assert!(tried > 300, "{tried} damages");
    }

    #[test]
    fn a_checksum_of_bytes_that_changed_while_they_were_read_is_not_recorded() {
        let mut tail = Tail::new();
        tail.write(0, &vec![1; 5 * PIECE as usize], false);
        for piece in 0..5 {
            tail.write(piece * PIECE + 100, &[2; 100], false);
        }
        let (behind, next) = tail.sums.0.lock().next_behind(0).unwrap();
        assert_eq!((behind.len(), next), (5, 5));
        let read = |behind: StalePiece| (behind, behind.sum(&tail.file, &mut Vec::new()));
        let sums: Vec<_> = behind.into_iter().map(read).collect();
        tail.write(PIECE + 500, &[3; 10], false);
        tail.punch(2 * PIECE + 50..3 * PIECE);
        tail.resize(4 * PIECE + 50);
        tail.length = 4 * PIECE + 50;
        tail.write(3 * PIECE - 60, &[4; 120], false);
        tail.sums.0.lock().caught_up(sums).unwrap();
        tail.must_survive(tail.length, "with an old checksum");
        assert!(tail.finds(7) && !tail.finds(PIECE) && !tail.finds(3 * PIECE));
        let mut is_done = false;
        tail.sums.catch_up(&tail.file, || is_done = true).unwrap();
        assert!(is_done);
        tail.must_survive(tail.length, "up to date");
        assert!((0..5).all(|piece| tail.finds(piece * PIECE + 7)));
    }

    #[test]
    fn a_damaged_piece_of_a_killed_tail_stays_damaged_however_the_next_mounts_end() {
        let mut tail = Tail::new();
        let bytes: Vec<u8> = (0..PIECE * 5 / 2).map(|at| (at % 251) as u8).collect();
        tail.write(0, &bytes, false);
        let damage = |tail: &Tail| tail.file.write_all_at(b"damage", PIECE * 2 + 9).unwrap();
        let must_find = |tail: &Tail| {
            let mut out = vec![0; tail.length as usize];
            tail.file.read_exact_at(&mut out, 0).unwrap();
            let found = tail.sums.verify(&tail.file, 0, &mut out).unwrap();
            assert_eq!(found, Some(PIECE * 2));
        };
        // The call that made the piece longer has not returned: the database needs less of it.
        damage(&tail);
        tail.length -= 100;
        let left = SumFileContent::read(&tail.dir.path().join("a.db"), KNOWN).unwrap();
        let rows = Rows::default();
        let (sums, _) = TailSums::left(&tail.file, tail.length, &left.tails[&INO], rows).unwrap();
        let mut out = vec![0; tail.length as usize];
        tail.file.read_exact_at(&mut out, 0).unwrap();
        let found = sums.verify(&tail.file, 0, &mut out).unwrap();
        assert_eq!(found, Some(PIECE * 2));
        // What must survive is that it is damaged.
        tail.length += 100;
        for _ in 0..3 {
            tail.sum_file = sum_file(tail.dir.path());
            let left = tail.sum_file.go_on(KNOWN).remove(&INO).unwrap();
            let rows = tail.rows.clone();
            let (sums, changed) = TailSums::left(&tail.file, tail.length, &left, rows).unwrap();
            sums.go_on(left, &changed, &recorder(&tail.sum_file));
            tail.sums = sums;
            must_find(&tail);
            tail.length -= 1;
            let shorter = tail.length;
            let cut = || tail.file.set_len(shorter);
            tail.sums.resize(&tail.file, shorter, cut).unwrap();
            must_find(&tail);
            tail.sums.catch_up(&tail.file, || {}).unwrap();
        }
        tail.sums.complete(&tail.file).unwrap();
        let (length, rows) = tail.sums.rows();
        tail.sums = TailSums::sealed(length, rows, None);
        must_find(&tail);
    }

    #[test]
    fn small_appends_write_a_slot_for_each_piece_and_not_for_each_call() {
        let tail = Tail::new();
        let mut changes = BTreeSet::new();
        for n in 0..2000_u64 {
            let bytes = [n as u8; 80];
            let write = || tail.file.write_all_at(&bytes, n * 80);
            tail.sums.write(&tail.file, n * 80, &bytes, write).unwrap();
            changes.insert(std::fs::read(tail.dir.path().join("a.db-sums")).unwrap());
        }
        let pieces = 2000 * 80 / PIECE + 1;
        assert!(changes.len() as u64 <= 2 * pieces, "{}", changes.len());
    }

    #[test]
    fn a_hole_of_hundreds_of_gigabytes_costs_nothing() {
        let file = tempfile::tempfile().unwrap();
        let sums = TailSums::default();
        let length = 400 << 30;
        sums.resize(&file, length, || file.set_len(length)).unwrap();
        sums.write(&file, 300 << 30, b"x", || file.write_all_at(b"x", 300 << 30)).unwrap();
        let mut state = sums.0.lock();
        state.complete(&file).unwrap();
        assert_eq!(state.groups.len(), 1);
        drop(state);
        assert_eq!(sums.lost_in_hole(0..length), Some(300 << 30));
        assert_eq!(sums.lost_in_hole(0..300 << 30), None);
        let punch = || {
            Ok(rustix::fs::fallocate(
                &file,
                rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
                0,
                length,
            )?)
        };
        sums.punch(&file, 0..length, punch).unwrap();
        assert_eq!(sums.lost_in_hole(0..length), None);
    }
}
