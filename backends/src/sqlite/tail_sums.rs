//! Checksums of tails: a CRC-32 for each piece. [`super::tail_rows`] has their tables.
//!
//! A tail with checksums is *sealed*: its owner may execute it, a bit that nothing else uses. Before the first change the
//! bit is cleared, and that is durable. So the checksums of a sealed tail are of its bytes, also after a kill or power
//! loss, and those of another one do not count. A mount computes them at its end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::LazyLock;

use parking_lot::Mutex;
use rustix::fs::{Mode, SeekFrom, fchmod, seek};

use crate::store::{Errno, StoreError};

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

/// What is known of a changed piece: the checksum of its first `length` bytes.
#[derive(Clone, Copy, Debug)]
struct Running {
    sum: u32,
    length: u64,
}

impl Running {
    /// Nothing is.
    const UNKNOWN: Self = Self {
        sum: 0,
        length: u64::MAX,
    };
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of the tail.
    length: u64,
    /// Checksums by group; of zeros where there is none.
    groups: BTreeMap<u64, Box<Group>>,
    /// Pieces whose checksum in `groups` does not count.
    changed: BTreeMap<u64, Running>,
    /// No checksum counts.
    is_unknown: bool,
    is_sealed: bool,
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
        match sum == *ZEROS && held < PIECE {
            true => Some((zeros(held), held as usize)),
            false => Some((sum, held as usize)),
        }
    }

    /// Makes the pieces of a range those of zeros, and does not know those at its edges, except the `damaged` one: its
    /// checksum stays wrong.
    fn clear(&mut self, range: Range<u64>, damaged: Option<u64>) {
        if range.is_empty() {
            return;
        }
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
                self.changed.insert(edge / PIECE, Running::UNKNOWN);
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
        // The piece of an end that moves has other bytes, and no piece begins past it.
        self.clear(shorter..longer.next_multiple_of(PIECE), damaged);
        self.length = length;
    }

    /// Bytes are written: the pieces, and what is known of them afterwards.
    fn written(&self, offset: u64, bytes: &[u8]) -> Vec<(u64, Running)> {
        let end = offset + bytes.len() as u64;
        let pieces = offset / PIECE..end.div_ceil(PIECE);
        let known = pieces.map(|piece| {
            let start = piece * PIECE;
            let (from, to) = (offset.max(start), end.min(start + PIECE));
            let part = &bytes[(from - offset) as usize..(to - offset) as usize];
            let before = match self.changed.get(&piece) {
                _ if from == start => Some(0),
                Some(running) if start + running.length.min(PIECE) == from => Some(running.sum),
                _ => None,
            };
            let running = before.map_or(Running::UNKNOWN, |before| {
                let mut sum = crc32fast::Hasher::new_with_initial(before);
                sum.update(part);
                Running {
                    sum: sum.finalize(),
                    length: to - start,
                }
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
        let mut bytes = vec![0; held];
        match file.read_exact_at(&mut bytes, piece * PIECE) {
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
                    super::tails::HEAD + start
                )));
            }
        }
        Ok(())
    }

    /// Clears the mark, durably: a changed page may reach the disk before anything else does.
    fn unseal(&mut self, file: &File) -> io::Result<()> {
        if self.is_sealed {
            fchmod(file, UNSEALED)?;
            file.sync_all()?;
            self.is_sealed = false;
        }
        Ok(())
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
                    self.changed.insert(piece, Running::UNKNOWN);
                }
                at = hole;
            }
        }
        let mut buffer = vec![0; PIECE as usize];
        for (piece, running) in std::mem::take(&mut self.changed) {
            let held = self.held(piece);
            let sum = match running.length == held {
                true => running.sum,
                false => {
                    let bytes = &mut buffer[..held as usize];
                    file.read_exact_at(bytes, piece * PIECE)?;
                    crc32fast::hash(bytes)
                }
            };
            let is_zeros = held < PIECE && sum == zeros(held);
            self.set_sum(piece, if is_zeros { *ZEROS } else { sum });
        }
        Ok(())
    }
}

/// The first byte at or after `at` that lies in no hole.
fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
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
        let known = state.written(offset, bytes);
        for (piece, _) in &known {
            state.changed.insert(*piece, Running::UNKNOWN);
        }
        let length = state.length;
        state.length = length.max(end);
        if let Err(error) = work() {
            // Some of it may be there.
            state.is_unknown = true;
            return Err(error);
        }
        state.changed.extend(known);
        Ok(())
    }

    /// Cuts or extends by `work`, and follows it.
    pub(super) fn resize(
        &self,
        file: &File,
        length: u64,
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.0.lock();
        state.unseal(file)?;
        state.resize(file, length);
        let resized = work();
        state.is_unknown |= resized.is_err();
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
        state.clear(range, None);
        let punched = work();
        state.is_unknown |= punched.is_err();
        punched
    }

    /// Compares the pieces that `out`, read from `offset` on, lies in. Bytes of pieces that reach past it are read again,
    /// so that what is compared is what is answered. The first byte of a damaged piece.
    pub(super) fn verify(
        &self,
        file: &File,
        offset: u64,
        out: &mut [u8],
    ) -> io::Result<Option<u64>> {
        let end = offset + out.len() as u64;
        let expected: Vec<_> = {
            let (state, pieces) = (self.0.lock(), offset / PIECE..end.div_ceil(PIECE));
            pieces
                .filter_map(|piece| Some((piece, state.expected(piece)?)))
                .collect()
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
        let is_lost = |(piece, sum): &(u64, u32)| {
            whole.contains(piece) && *sum != *ZEROS && !state.changed.contains_key(piece)
        };
        pieces.find(is_lost).map(|(piece, _)| piece * PIECE)
    }

    /// The checksums of a sealed tail, from its rows.
    pub(super) fn sealed(length: u64, rows: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Self {
        let groups = rows
            .into_iter()
            .map(|(group, bytes)| (group, Box::new(unpack(&bytes))));
        Self(Mutex::new(State {
            length,
            groups: groups.collect(),
            is_sealed: true,
            ..State::default()
        }))
    }

    /// The checksums of a tail whose content is unknown.
    pub(super) fn unknown() -> Self {
        Self(Mutex::new(State {
            is_unknown: true,
            ..State::default()
        }))
    }

    /// Computes the checksums that do not count.
    pub(super) fn complete(&self, file: &File) -> io::Result<()> {
        self.0.lock().complete(file)
    }

    /// The length of the tail, and the rows of its checksums.
    pub(super) fn rows(&self) -> (u64, Vec<(u64, Vec<u8>)>) {
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

fn unpack(bytes: &[u8]) -> Group {
    let mut sums = [*ZEROS; GROUP as usize];
    for (sum, four) in sums.iter_mut().zip(bytes.chunks_exact(4)) {
        *sum = u32::from_le_bytes(four.try_into().unwrap_or_default());
    }
    sums
}

/// The pieces of a sealed tail that are not as they were written, for `doctor`: the bytes from the first to the last one.
pub(super) fn damaged(
    file: &File,
    length: u64,
    groups: Vec<(u64, Vec<u8>)>,
) -> io::Result<Option<Range<u64>>> {
    let sums = TailSums::sealed(length, groups);
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
        let hole = match data < held.min(length) {
            true => seek(file, SeekFrom::Hole(data))?.min(length),
            false => data,
        };
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

pub(super) fn damage(path: &std::path::Path, at: u64) -> StoreError {
    let reason = format!(
        "{}: the chunk at byte {at} is damaged: wrong checksum; `ctxbench doctor --store` lists the path of the file",
        path.display()
    );
    StoreError::storage(Errno::IO, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let options = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path);
            let (file, sums) = (options.unwrap(), TailSums::default());
            let mut length = 0;
            for _ in 0..30 {
                let bytes = vec![random(256) as u8; 1 + random(3 * PIECE) as usize];
                let at = if random(2) == 0 {
                    length
                } else {
                    random(length + 1)
                };
                match random(8) {
                    0 => {
                        let to = [random(12 * PIECE), random(12) * PIECE][random(2) as usize];
                        sums.resize(&file, to, || file.set_len(to)).unwrap();
                        length = to;
                    }
                    1 => {
                        let end = at + 1 + random(4 * PIECE);
                        let punch = || {
                            let flags = rustix::fs::FallocateFlags::PUNCH_HOLE
                                | rustix::fs::FallocateFlags::KEEP_SIZE;
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
                assert_eq!(
                    state.expected(piece),
                    expected,
                    "round {round}, piece {piece}"
                );
            }
            let computed = State {
                is_unknown: true,
                ..State::default()
            };
            drop(state);
            let again = TailSums(Mutex::new(computed));
            again.0.lock().complete(&file).unwrap();
            let (one, two) = (sums.0.lock(), again.0.lock());
            let pieces = 0..length.div_ceil(PIECE);
            assert!(
                pieces
                    .clone()
                    .all(|piece| one.expected(piece) == two.expected(piece))
            );
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
        (file, TailSums::sealed(length, rows))
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
        assert_eq!(found(&TailSums::sealed(length, rows)), is_found);
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
        sums.write(&file, PIECE + 9, b"new", || {
            file.write_all_at(b"new", PIECE + 9)
        })
        .unwrap();
        assert!(!is_found(&file, &sums));
    }

    #[test]
    fn a_hole_of_hundreds_of_gigabytes_costs_nothing() {
        let file = tempfile::tempfile().unwrap();
        let sums = TailSums::default();
        let length = 400 << 30;
        sums.resize(&file, length, || file.set_len(length)).unwrap();
        sums.write(&file, 300 << 30, b"x", || {
            file.write_all_at(b"x", 300 << 30)
        })
        .unwrap();
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
