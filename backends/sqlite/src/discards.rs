//! Tails, and ends of tails, that no later state needs. They are removed once the later state is durable: until then a
//! power loss may bring back an earlier state, which needs them unchanged. No call waits for the removal.

use std::collections::{BTreeSet, HashMap};

use fuse::store::Ino;

use crate::set_aside::TailName;

/// Bytes of discards that start the background sync early.
const BYTES_WAKE: u64 = 4 << 20;

/// Number of discards that starts the background sync early.
const COUNT_WAKE: usize = 512;

/// Bytes of discards after which the call that adds to them removes them first.
const BYTES_MAX: u64 = 12 << 20;

/// A file to remove once commit `commit` is durable.
#[derive(Debug)]
struct DiscardedFile {
    commit: u64,
    name: TailName,
    bytes: u64,
}

/// The end of a tail, from byte `length` on, to cut off once commit `commit` is durable.
#[derive(Clone, Copy, Debug)]
struct DiscardedEnd {
    commit: u64,
    length: u64,
    /// Without those that an earlier end has.
    bytes: u64,
}

/// Tails, and ends of tails, that are removed once the state that no longer needs them is durable.
#[derive(Debug, Default)]
pub(super) struct Discards {
    files: Vec<DiscardedFile>,
    /// By inode: the discarded ends of its tail in the order of the commits, each `length` smaller than the one before.
    ends: HashMap<Ino, Vec<DiscardedEnd>>,
    bytes: u64,
}

impl Discards {
    /// Bytes that the removal will free.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there are so many that the background sync should start early.
    pub(super) fn are_many(&self) -> bool {
        self.bytes >= BYTES_WAKE || self.files.len() + self.ends.len() >= COUNT_WAKE
    }

    /// Whether there are so many that the next call waits for their removal.
    pub(super) fn are_too_many(&self) -> bool {
        self.bytes >= BYTES_MAX
    }

    pub(super) fn add_file(&mut self, name: TailName, bytes: u64, commit: u64) {
        self.forget_ends(name.ino);
        self.bytes += bytes;
        self.files.push(DiscardedFile { commit, name, bytes });
    }

    pub(super) fn add_end(&mut self, ino: Ino, length: u64, bytes: u64, commit: u64) {
        self.bytes += bytes;
        let ends = self.ends.entry(ino).or_default();
        match ends.last_mut() {
            Some(last) if last.commit == commit => {
                last.length = length;
                last.bytes += bytes;
            }
            _ => ends.push(DiscardedEnd { commit, length, bytes }),
        }
    }

    /// The first discarded byte of an inode's tail.
    pub(super) fn end(&self, ino: Ino) -> Option<u64> {
        Some(self.ends.get(&ino)?.last()?.length)
    }

    /// The tails with an end to cut off, now that `durable` commits are durable.
    pub(super) fn cut_at(&self, durable: u64) -> Vec<Ino> {
        let is_due = |ends: &[DiscardedEnd]| ends.iter().any(|end| end.commit <= durable);
        let due = self.ends.iter().filter(|(_, ends)| is_due(ends));
        due.map(|(ino, _)| *ino).collect()
    }

    /// The length to which the tail of an inode can be cut, now that `durable` commits are durable.
    pub(super) fn due_end(&self, ino: Ino, durable: u64) -> Option<u64> {
        let ends = self.ends.get(&ino)?.iter();
        let due = ends.filter(|end| end.commit <= durable);
        due.map(|end| end.length).next_back()
    }

    /// Forgets the discarded ends of a tail that was truncated now that `durable` commits are durable.
    pub(super) fn cut_done(&mut self, ino: Ino, durable: u64) {
        let Some(ends) = self.ends.get_mut(&ino) else {
            return;
        };
        let (done, left) = ends.iter().partition(|end| end.commit <= durable);
        let done: Vec<DiscardedEnd> = done;
        *ends = left;
        if ends.is_empty() {
            self.ends.remove(&ino);
        }
        self.bytes -= done.iter().map(|end| end.bytes).sum::<u64>();
    }

    fn forget_ends(&mut self, ino: Ino) {
        let ends = self.ends.remove(&ino).unwrap_or_default();
        self.bytes -= ends.iter().map(|end| end.bytes).sum::<u64>();
    }

    /// The files that can be removed, now that `durable` commits are durable.
    pub(super) fn files(&self, durable: u64) -> BTreeSet<TailName> {
        let due = self.files.iter().filter(|file| file.commit <= durable);
        due.map(|file| file.name).collect()
    }

    pub(super) fn take_files(&mut self, durable: u64) -> Vec<TailName> {
        let mut due = Vec::new();
        self.files.retain(|file| {
            if file.commit <= durable {
                self.bytes -= file.bytes;
                due.push(file.name);
            }
            file.commit > durable
        });
        due
    }
}
