//! Answers as files that have no name in any listing: made when they are looked up, fixed from then on.
//!
//! The kernel is told not to keep the name, so the next look-up asks again. As long as nothing has changed
//! in between it gets the same answer; otherwise a new one, with an inode of its own, so that no page of an old
//! answer is ever taken for a new one's.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::store::{Ino, Timestamp};

/// Inode numbers of answers have this bit, which those of files never have.
const ANSWER: Ino = 1 << 62;

/// How much is kept for readers that have not finished.
const KEPT_BYTES: usize = 64 << 20;
const KEPT_ANSWERS: usize = 4096;

/// How long an answer stands while nothing changes: what is recent, and what has expired, changes by itself.
const STANDS: Duration = Duration::from_secs(1);

/// Whether an inode number is that of an answer.
pub(super) fn is_answer(ino: Ino) -> bool {
    ino & ANSWER != 0
}

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) ino: Ino,
    pub(super) text: Arc<str>,
    pub(super) made: Timestamp,
    /// How many changes there had been.
    changes: u64,
}

#[derive(Debug, Default)]
struct Kept {
    by_ino: HashMap<Ino, (Answer, Ino, Vec<u8>)>,
    by_name: HashMap<(Ino, Vec<u8>), Ino>,
    order: VecDeque<Ino>,
    bytes: usize,
    last: Ino,
}

/// The answers that somebody may still read.
#[derive(Debug, Default)]
pub(super) struct Answers {
    kept: Mutex<Kept>,
}

impl Answers {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer of an inode; `None` if it is no longer kept.
    pub(super) fn get(&self, ino: Ino) -> Option<Answer> {
        self.kept()
            .by_ino
            .get(&ino)
            .map(|(answer, ..)| answer.clone())
    }

    /// The answer that still stands for a name.
    pub(super) fn standing(
        &self,
        dir: Ino,
        name: &[u8],
        changes: u64,
        now: Timestamp,
    ) -> Option<Answer> {
        let kept = self.kept();
        let ino = kept.by_name.get(&(dir, name.to_vec()))?;
        let (answer, ..) = kept.by_ino.get(ino)?;
        let age = now.0.checked_sub(answer.made.0)?;
        let stands = answer.changes == changes && (0..STANDS.as_nanos() as i64).contains(&age);
        stands.then(|| answer.clone())
    }

    /// Keeps an answer.
    pub(super) fn keep(
        &self,
        dir: Ino,
        name: &[u8],
        text: String,
        changes: u64,
        made: Timestamp,
    ) -> Answer {
        let mut kept = self.kept();
        kept.last += 1;
        let answer = Answer {
            ino: ANSWER | kept.last,
            text: text.into(),
            made,
            changes,
        };
        kept.bytes += answer.text.len();
        kept.order.push_back(answer.ino);
        kept.by_name.insert((dir, name.to_vec()), answer.ino);
        let entry = (answer.clone(), dir, name.to_vec());
        kept.by_ino.insert(answer.ino, entry);
        while kept.order.len() > 1 && (kept.bytes > KEPT_BYTES || kept.by_ino.len() > KEPT_ANSWERS)
        {
            let Some(oldest) = kept.order.pop_front() else {
                break;
            };
            kept.remove(oldest);
        }
        answer
    }

    /// The kernel has forgotten an answer.
    pub(super) fn let_go(&self, ino: Ino) {
        let mut kept = self.kept();
        kept.remove(ino);
        // What is gone by now, at the front: the rest goes when its turn comes.
        while let Some(oldest) = kept.order.front().copied()
            && !kept.by_ino.contains_key(&oldest)
        {
            kept.order.pop_front();
        }
    }
}

impl Kept {
    fn remove(&mut self, ino: Ino) {
        if let Some((answer, dir, name)) = self.by_ino.remove(&ino) {
            self.bytes -= answer.text.len();
            let name = (dir, name);
            if self.by_name.get(&name) == Some(&ino) {
                self.by_name.remove(&name);
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
        assert_eq!((again.ino, &*again.text), (made.ino, "one"));
        assert!(answers.standing(1, b":stats", 8, NOW).is_none());
        assert!(answers.standing(2, b":stats", 7, NOW).is_none());
        let later = Timestamp(NOW.0 + 1_000_000_000);
        assert!(answers.standing(1, b":stats", 7, later).is_none());
        let newer = answers.keep(1, b":stats", "two".to_owned(), 8, NOW);
        assert_ne!(newer.ino, made.ino);
        assert_eq!(&*answers.get(made.ino).unwrap().text, "one");
        answers.let_go(made.ino);
        assert!(answers.get(made.ino).is_none());
        assert!(answers.standing(1, b":stats", 8, NOW).is_some());
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
        assert!(
            answers.get(large.ino).is_some(),
            "the newest is always kept"
        );
        assert_eq!(answers.kept().by_ino.len(), 1);
    }
}
