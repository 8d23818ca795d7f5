//! The records that scenarios write. Each contains its number and version, so that any mix-up is found.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use sqlite::HEAD;

/// Name of the records' directory in a workspace.
pub const DIR: &str = "records";

/// Name of the log file, to which each change may append a line.
pub const LOG: &str = "log";

/// Offset of the record numbers of log lines. The line of change N is record `LOG_LINES + N`.
pub const LOG_LINES: u64 = 1 << 40;

/// First record number of damaged pieces of the log.
pub const DAMAGED_LINES: u64 = 1 << 45;

/// First record number of files that no job made.
pub const STRANGERS: u64 = 1 << 50;

/// Bytes of a line of the log.
const LINE: usize = 44;

/// Where the content of a long record begins: what a file has from there on, a `sqlite` store keeps outside its database.
pub const LONG_AT: u64 = HEAD;

/// The bytes of a version of a long record, at most 128 KiB: one request.
pub fn long_bytes(version: u64) -> usize {
    200 + (version * 7919 % 90_000) as usize
}

/// The state of a record, as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// There is no file.
    Absent,
    /// The file is empty.
    Empty,
    /// The file holds this version as a whole.
    Whole(u64),
    /// The file holds bytes that match no version of the record.
    Damaged(String),
    /// The file may exist and cannot be read.
    Unreadable(String),
}

/// The file name of a record.
pub fn name(number: u64) -> String {
    format!("r{number:06}")
}

/// The record number that a file name denotes. `None` if it is not a record's name.
pub fn number(name: &str) -> Option<u64> {
    name.strip_prefix('r')?.parse().ok()
}

/// Content of a version of a record. `bytes` is at least 128.
pub fn content(seed: u64, number: u64, version: u64, bytes: usize) -> Vec<u8> {
    let mut text = format!("ctx1 {seed:016x} {number:08} {version:08} {bytes:06} ");
    // Filler bytes that differ between versions at every position.
    let mut word = seed ^ (number << 32) ^ version;
    while text.len() + 17 < bytes {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let _ = write!(text, "{:08x}", word >> 32);
    }
    text.truncate(bytes.saturating_sub(17));
    let digest = digest(&text);
    text += &digest;
    text.push('\n');
    text.into_bytes()
}

/// As [`identify`], of a record that may be a long one: a hole, and then its content. No writer leaves the hole alone.
pub fn identify_any(seed: u64, expected: u64, bytes: &[u8]) -> State {
    match bytes.split_at_checked(LONG_AT as usize) {
        Some((_, [])) => State::Damaged("its content is cut off".to_owned()),
        Some((hole, content)) if hole.iter().all(|byte| *byte == 0) => identify(seed, expected, content),
        _ => identify(seed, expected, bytes),
    }
}

/// Identifies the state of record `expected` from the bytes of its file.
pub fn identify(seed: u64, expected: u64, bytes: &[u8]) -> State {
    if bytes.is_empty() {
        return State::Empty;
    }
    match parse(seed, bytes) {
        Some((number, version)) if number == expected => State::Whole(version),
        Some((number, version)) => State::Damaged(format!("holds record {number}, version {version}")),
        None => {
            let zeros = bytes.iter().filter(|byte| **byte == 0).count();
            State::Damaged(format!("{} bytes, {zeros} of them zero", bytes.len()))
        }
    }
}

fn parse(seed: u64, bytes: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (rest, found) = text.split_at_checked(text.len().checked_sub(16)?)?;
    if digest(rest) != found {
        return None;
    }
    let mut fields = rest.split(' ');
    let is_ours = fields.next()? == "ctx1" && u64::from_str_radix(fields.next()?, 16).ok()? == seed;
    let number = fields.next()?.parse().ok()?;
    let version = fields.next()?.parse().ok()?;
    let length: usize = fields.next()?.parse().ok()?;
    (is_ours && length == bytes.len()).then_some((number, version))
}

/// The log line that a change appends.
pub fn log_line(seed: u64, change: u64) -> Vec<u8> {
    let text = format!("{change:08} {seed:016x} ");
    let digest = digest(&text);
    format!("{text}{digest} \n").into_bytes()
}

/// The lines of a log, as records. A damaged piece becomes a damaged record, from [`DAMAGED_LINES`] on. The
/// lines after it still count.
pub fn log_states(seed: u64, log: &[u8]) -> Vec<(u64, State)> {
    let mut states = Vec::new();
    let mut last = None;
    let mut damaged = 0;
    for piece in log.split_inclusive(|byte| *byte == b'\n') {
        // Bytes before a whole line in the same piece, such as zeros without a line feed.
        let (before, line) = piece.split_at(piece.len().saturating_sub(LINE));
        let change = std::str::from_utf8(line)
            .ok()
            .and_then(|line| line.get(..8)?.parse::<u64>().ok())
            .filter(|change| log_line(seed, *change) == line);
        let wrong = match change {
            Some(change) if last >= Some(change) => Some(format!("line {change} of the log comes twice, or too late")),
            Some(change) => {
                last = Some(change);
                states.push((LOG_LINES + change, State::Whole(change)));
                (!before.is_empty()).then(|| zeros(before))
            }
            None => Some(zeros(piece)),
        };
        if let Some(found) = wrong {
            states.push((DAMAGED_LINES + damaged, State::Damaged(found)));
            damaged += 1;
        }
    }
    states
}

fn zeros(piece: &[u8]) -> String {
    let zeros = piece.iter().filter(|byte| **byte == 0).count();
    format!("{} bytes of the log, {zeros} of them zero", piece.len())
}

fn digest(text: &str) -> String {
    let mut digest = inputs::sha256(text);
    digest.truncate(16);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_tells_whole_records_from_damaged_ones() {
        for bytes in [128, 129, 512, 4096] {
            let whole = content(7, 3, 41, bytes);
            assert_eq!(whole.len(), bytes);
            assert_eq!(identify(7, 3, &whole), State::Whole(41));
            assert!(matches!(identify(8, 3, &whole), State::Damaged(_)));
            assert!(matches!(identify(7, 4, &whole), State::Damaged(_)));
            assert!(matches!(identify(7, 3, &whole[1..]), State::Damaged(_)));
            let mut mixed = whole.clone();
            mixed[bytes / 2..].copy_from_slice(&content(7, 3, 42, bytes)[bytes / 2..]);
            assert!(matches!(identify(7, 3, &mixed), State::Damaged(_)));
        }
        assert_eq!(identify(7, 3, b""), State::Empty);
        assert_eq!(number(&name(12)), Some(12));
        assert_eq!(number(".new-12"), None);
    }

    #[test]
    fn a_long_record_is_read_after_its_hole() {
        let whole = content(7, 3, 41, long_bytes(41));
        let hole = vec![0; LONG_AT as usize];
        assert_eq!(identify_any(7, 3, &[&hole[..], &whole].concat()), State::Whole(41));
        assert_eq!(identify_any(7, 3, &whole), State::Whole(41));
        assert!(matches!(identify_any(7, 3, &hole), State::Damaged(_)));
        assert_eq!(identify_any(7, 3, b""), State::Empty);
        let mut filled = [&hole[..], &whole].concat();
        filled[9] = 1;
        assert!(matches!(identify_any(7, 3, &filled), State::Damaged(_)));
        assert!((0..90_000).all(|version| long_bytes(version) <= 128 << 10));
    }

    #[test]
    fn a_log_is_read_as_one_record_per_line() {
        let mut log = log_line(7, 0);
        assert_eq!(log.len(), LINE);
        log.extend(log_line(7, 1));
        let whole = |change| (LOG_LINES + change, State::Whole(change));
        assert_eq!(log_states(7, &log), [whole(0), whole(1)]);
        log.extend(&log_line(7, 2)[..20]);
        let states = log_states(7, &log);
        assert!(matches!(states[2], (DAMAGED_LINES, State::Damaged(_))));
        let again = [log_line(7, 1), log_line(7, 1)].concat();
        assert!(matches!(log_states(7, &again)[1].1, State::Damaged(_)));
        log[3] ^= 1;
        assert!(matches!(log_states(7, &log)[0].1, State::Damaged(_)));
    }

    #[test]
    fn a_damaged_piece_of_a_log_does_not_affect_later_lines() {
        let whole = |change| (LOG_LINES + change, State::Whole(change));
        let mut log = log_line(7, 0);
        log.extend([0; 100]);
        log.extend(log_line(7, 1));
        log.extend(b"short\n");
        log.extend(log_line(7, 2));
        let states = log_states(7, &log);
        for change in 0..3 {
            assert!(states.contains(&whole(change)), "{states:?}");
        }
        let damaged = states.iter().filter(|(number, _)| *number >= DAMAGED_LINES);
        assert_eq!(damaged.count(), 2, "{states:?}");
    }
}
