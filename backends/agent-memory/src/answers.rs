//! Answers as files that no listing shows. A lookup creates an answer, which never changes.
//!
//! The kernel does not cache the name, so every lookup reaches the store. While nothing changes, it gets the
//! same answer. After a change it gets a new inode, so the kernel never serves pages of the old answer.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use fuse::store::{Ino, Timestamp};

/// Inode numbers of answers have this bit, which those of files never have.
const ANSWER: Ino = 1 << 62;

/// The most bytes and the most answers kept for readers that have not finished.
const KEPT_BYTES: usize = 64 << 20;
const KEPT_ANSWERS: usize = 4096;

/// How long an answer is reused while nothing changes. Recency and expiry change with time alone.
const STANDS: Duration = Duration::from_secs(1);

/// How long an answer is kept after the kernel forgot it: longer than a concurrent lookup takes to return it.
const LINGERS: Duration = Duration::from_secs(10);

/// Whether an inode number is that of an answer.
pub(super) fn is_answer(ino: Ino) -> bool {
    ino & ANSWER != 0
}

/// An answer to one request.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) ino: Ino,
    pub(super) text: Arc<[u8]>,
    pub(super) made: Timestamp,
    /// The store's change counter when the answer was made.
    changes: u64,
}

impl Answer {
    fn age(&self, now: Timestamp) -> Duration {
        // If the clock was set back, the age is 0.
        let nanos = now.0.saturating_sub(self.made.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }
}

/// An answer, its request, and whether the kernel has forgotten it.
#[derive(Debug)]
struct AnswerEntry {
    answer: Answer,
    asked: (Ino, Vec<u8>),
    is_free: bool,
}

#[derive(Debug, Default)]
struct AnswerTable {
    by_ino: HashMap<Ino, AnswerEntry>,
    by_name: HashMap<(Ino, Vec<u8>), Ino>,
    order: VecDeque<Ino>,
    bytes: usize,
    last: Ino,
}

/// The answers that a process may still read.
#[derive(Debug, Default)]
pub(super) struct Answers {
    kept: Mutex<AnswerTable>,
}

impl Answers {
    /// The answer of an inode; `None` if it is no longer kept.
    pub(super) fn get(&self, ino: Ino) -> Option<Answer> {
        self.kept.lock().by_ino.get(&ino).map(|held| held.answer.clone())
    }

    /// The answer to a request, if it is still valid.
    pub(super) fn standing(&self, dir: Ino, name: &[u8], changes: u64, now: Timestamp) -> Option<Answer> {
        let mut kept = self.kept.lock();
        let ino = *kept.by_name.get(&(dir, name.to_vec()))?;
        let held = kept.by_ino.get_mut(&ino)?;
        if held.answer.changes != changes || held.answer.age(now) >= STANDS {
            return None;
        }
        held.is_free = false;
        Some(held.answer.clone())
    }

    /// Stores a new answer, and drops old ones.
    pub(super) fn keep(
        &self,
        dir: Ino,
        name: &[u8],
        text: impl Into<Vec<u8>>,
        changes: u64,
        made: Timestamp,
    ) -> Answer {
        let text: Vec<u8> = text.into();
        let mut kept = self.kept.lock();
        kept.last += 1;
        let answer = Answer { ino: ANSWER | kept.last, text: text.into(), made, changes };
        kept.bytes += answer.text.len();
        kept.order.push_back(answer.ino);
        kept.by_name.insert((dir, name.to_vec()), answer.ino);
        let held = AnswerEntry { answer: answer.clone(), asked: (dir, name.to_vec()), is_free: false };
        kept.by_ino.insert(answer.ino, held);
        while let Some(oldest) = kept.order.front().copied()
            && oldest != answer.ino
        {
            let is_over = kept.bytes > KEPT_BYTES || kept.by_ino.len() > KEPT_ANSWERS;
            let is_due = kept.by_ino.get(&oldest).is_none_or(|held| held.is_free && held.answer.age(made) >= LINGERS);
            if !is_over && !is_due {
                break;
            }
            kept.order.pop_front();
            kept.remove(oldest);
        }
        answer
    }

    /// Marks an answer that the kernel has forgotten. A concurrent lookup may still return it, so it is kept
    /// for [`LINGERS`].
    pub(super) fn let_go(&self, ino: Ino) {
        if let Some(held) = self.kept.lock().by_ino.get_mut(&ino) {
            held.is_free = true;
        }
    }
}

impl AnswerTable {
    fn remove(&mut self, ino: Ino) {
        if let Some(held) = self.by_ino.remove(&ino) {
            self.bytes -= held.answer.text.len();
            if self.by_name.get(&held.asked) == Some(&ino) {
                self.by_name.remove(&held.asked);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(5_000_000_000);

    #[test]
    fn an_answer_stands_until_something_changes() {
        let answers = Answers::default();
        let made = answers.keep(1, b":stats", "one".to_owned(), 7, NOW);
        assert!(is_answer(made.ino));
        let again = answers.standing(1, b":stats", 7, NOW).unwrap();
        assert_eq!((again.ino, &*again.text), (made.ino, b"one".as_slice()));
        assert!(answers.standing(1, b":stats", 8, NOW).is_none());
        assert!(answers.standing(2, b":stats", 7, NOW).is_none());
        let later = Timestamp(NOW.0 + 1_000_000_000);
        assert!(answers.standing(1, b":stats", 7, later).is_none());
        let newer = answers.keep(1, b":stats", "two".to_owned(), 8, NOW);
        assert_ne!(newer.ino, made.ino);
        assert_eq!(&*answers.get(made.ino).unwrap().text, b"one");
        assert!(answers.standing(1, b":stats", 8, NOW).is_some());
    }

    #[test]
    fn an_answer_that_no_caller_holds_is_kept_for_a_while_and_then_dropped() {
        let answers = Answers::default();
        let made = answers.keep(1, b":stats", "one".to_owned(), 7, NOW);
        answers.let_go(made.ino);
        // A concurrent lookup still finds it.
        assert!(answers.get(made.ino).is_some());
        assert!(answers.standing(1, b":stats", 7, NOW).is_some());
        let later = Timestamp(NOW.0 + 20_000_000_000);
        answers.keep(1, b":tags", "x".to_owned(), 8, later);
        assert!(answers.get(made.ino).is_some(), "it is held again");
        answers.let_go(made.ino);
        answers.keep(1, b":meta", "x".to_owned(), 9, later);
        assert!(answers.get(made.ino).is_none());
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let answers = Answers::default();
        let first = answers.keep(1, b":search?0", "x".to_owned(), 0, NOW);
        for n in 1..=KEPT_ANSWERS {
            answers.keep(1, format!(":search?{n}").as_bytes(), "x".to_owned(), 0, NOW);
        }
        assert!(answers.get(first.ino).is_none());
        let large = answers.keep(1, b":meta", "x".repeat(KEPT_BYTES + 1), 0, NOW);
        assert!(answers.get(large.ino).is_some(), "the newest is always kept");
        assert_eq!(answers.kept.lock().by_ino.len(), 1);
    }
}
