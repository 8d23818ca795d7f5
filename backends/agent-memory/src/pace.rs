//! When the thread that indexes notes works, and how much: calls come first.
//!
//! A call that meets the thread waits for the database, and a commit of the thread makes the next `fsync` sync more than the
//! redo log. So the thread waits until changes pause, and works in small steps beside those that go on for too long.

use std::time::Duration;

/// How long nothing must have changed before the thread indexes.
const SETTLED: Duration = Duration::from_millis(50);

/// How long changes may wait to be indexed before the thread works beside the calls that go on.
const LATEST: Duration = Duration::from_secs(1);

/// How long nothing must have changed before a merge.
const QUIET: Duration = Duration::from_millis(500);

/// The parts of these times. The thread sees changes after each part; no call wakes it meanwhile.
pub(super) const PART: Duration = Duration::from_millis(10);

/// The most inodes that the thread indexes in one transaction: in a pause of changes, and beside them.
const BATCH: usize = 16;
const BATCH_BESIDE: usize = 2;

/// Waiting inodes above which it works beside changes as in a pause of them: a request has to wait for all of them.
const LEFT_MAX: usize = 1_000;

/// A step beside changes takes at most this share of the time.
const SHARE_BESIDE: u32 = 10;

/// What the thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Nothing,
    /// Index at most so many inodes.
    Index(usize),
    Merge,
}

impl Work {
    /// How long the thread waits after this work, which took so long.
    pub(super) fn pause(self, took: Duration) -> Duration {
        match self {
            Self::Nothing => PART,
            Self::Index(BATCH_BESIDE) => PART.max(took * (SHARE_BESIDE - 1)),
            // At most half of the time.
            Self::Index(_) | Self::Merge => took,
        }
    }
}

/// The pauses of a thread since it was woken. Only pauses that it asked for are counted, at the length that it asked for:
/// while a process is stopped, or its machine asleep, nothing is quiet.
#[derive(Debug)]
pub(super) struct Pace {
    /// The number of the last change.
    last: u64,
    /// For how long nothing has changed.
    quiet: Duration,
    /// For how long changes have waited.
    behind: Duration,
    /// How many inodes wait, as far as the thread knows.
    pub(super) left: usize,
}

impl Pace {
    /// `last` is the number of the last change.
    pub(super) fn new(last: u64) -> Self {
        Self { last, quiet: Duration::ZERO, behind: Duration::ZERO, left: 0 }
    }

    /// What to do after a pause; `marked` is the number of the last change, and `is_behind` whether the index lacks any.
    pub(super) fn after(&mut self, pause: Duration, marked: u64, is_behind: bool) -> Work {
        self.quiet = if self.last == marked { self.quiet + pause } else { Duration::ZERO };
        self.last = marked;
        self.behind = if is_behind { self.behind + pause } else { Duration::ZERO };
        match is_behind {
            true if self.quiet >= SETTLED => Work::Index(BATCH),
            true if self.behind >= LATEST && self.left > LEFT_MAX => Work::Index(BATCH),
            true if self.behind >= LATEST => Work::Index(BATCH_BESIDE),
            false if self.quiet >= QUIET => Work::Merge,
            _ => Work::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is done after so many parts of a pause, one after the other.
    fn parts(pace: &mut Pace, count: u32, mut change: impl FnMut() -> u64) -> Vec<Work> {
        let one = |_| pace.after(PART, change(), true);
        (0..count).map(one).collect()
    }

    #[test]
    fn notes_are_indexed_once_changes_have_paused() {
        let mut pace = Pace::new(7);
        let done = parts(&mut pace, 5, || 7);
        assert_eq!(done[..4], [Work::Nothing; 4]);
        assert_eq!(done[4], Work::Index(BATCH));
        // A change begins the pause again.
        assert_eq!(pace.after(PART, 8, true), Work::Nothing);
        assert_eq!(parts(&mut pace, 4, || 8), [Work::Nothing; 4]);
        assert_eq!(pace.after(PART, 8, true), Work::Index(BATCH));
    }

    #[test]
    fn changes_that_go_on_are_met_by_small_steps_after_a_second() {
        let mut pace = Pace::new(0);
        let mut number = 0;
        let done = parts(&mut pace, 120, || {
            number += 1;
            number
        });
        assert_eq!(done[..99], [Work::Nothing; 99]);
        assert!(done[99..].iter().all(|work| *work == Work::Index(BATCH_BESIDE)));
        let step = Work::Index(BATCH_BESIDE).pause(Duration::from_millis(8));
        assert_eq!(step, Duration::from_millis(72));
        // A request would have to wait for all that is left.
        pace.left = LEFT_MAX + 1;
        assert_eq!(pace.after(PART, 1_000, true), Work::Index(BATCH));
    }

    #[test]
    fn an_index_that_is_up_to_date_is_merged_after_half_a_second_without_changes() {
        let mut pace = Pace::new(3);
        let done: Vec<Work> = (0..50).map(|_| pace.after(PART, 3, false)).collect();
        assert_eq!(done[..49], [Work::Nothing; 49]);
        assert_eq!(done[49], Work::Merge);
        assert_eq!(pace.after(PART, 4, false), Work::Nothing);
    }
}
