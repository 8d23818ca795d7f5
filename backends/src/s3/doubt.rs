//! Requests whose answer never came: the server may have done them, or may do them yet.
//!
//! Kept in memory: after a crash the journal asks again, and what was done in the meantime by us looks like
//! somebody else's, so that both versions are kept.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many contents of one object are remembered: tries of a file that keeps changing.
const CONTENTS: usize = 64;

/// How long a request can arrive late: servers refuse signatures that are older than 15 minutes.
const LATE: Duration = Duration::from_secs(20 * 60);

/// Deleted objects that are remembered; with more, the oldest are asked for again when a listing shows them.
const DELETED: usize = 100_000;

#[derive(Debug, Default)]
struct Doubt {
    /// The checksums of contents that were sent.
    sent: HashMap<String, VecDeque<String>>,
    /// Keys whose deletion was sent.
    deleting: HashMap<String, Instant>,
    /// Keys and entity tags of objects that are deleted.
    deleted: HashMap<String, String>,
    order: VecDeque<String>,
}

/// What may have been done by a mount without its knowing.
#[derive(Debug, Default)]
pub(super) struct Doubts(Mutex<Doubt>);

impl Doubts {
    fn doubts(&self) -> MutexGuard<'_, Doubt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object is about to be written.
    pub(super) fn send(&self, key: &str, sha256: &str) {
        let mut doubts = self.doubts();
        let sent = doubts.sent.entry(key.to_owned()).or_default();
        if !sent.iter().any(|known| known == sha256) {
            if sent.len() == CONTENTS {
                sent.pop_front();
            }
            sent.push_back(sha256.to_owned());
        }
    }

    /// The object is there, as the server has said: no earlier write can come any more, as each carries a condition.
    pub(super) fn is_written(&self, key: &str) {
        self.doubts().sent.remove(key);
    }

    /// Whether content that is found in an object may be of a write whose answer was lost.
    pub(super) fn may_have_sent(&self, key: &str, sha256: &str) -> bool {
        let doubts = self.doubts();
        let sent = doubts.sent.get(key);
        sent.is_some_and(|sent| sent.iter().any(|known| known == sha256))
    }

    /// Objects are about to be deleted.
    pub(super) fn delete(&self, keys: &[String]) {
        let mut doubts = self.doubts();
        let now = Instant::now();
        doubts.deleting.retain(|_, at| now - *at < LATE);
        let keys = keys.iter().map(|key| (key.clone(), now));
        doubts.deleting.extend(keys);
    }

    /// They are deleted, as the server has said.
    pub(super) fn is_deleted(&self, keys: &[String]) {
        let mut doubts = self.doubts();
        for key in keys {
            doubts.deleting.remove(key);
        }
    }

    /// Whether an object may be gone by a deletion of ours that came late.
    pub(super) fn may_have_deleted(&self, key: &str) -> bool {
        let at = self.doubts().deleting.get(key).copied();
        at.is_some_and(|at| at.elapsed() < LATE)
    }

    /// An object is no more, whatever a listing or an index that lags behind says.
    pub(super) fn forget(&self, key: &str, etag: &str) {
        let mut doubts = self.doubts();
        if doubts
            .deleted
            .insert(key.to_owned(), etag.to_owned())
            .is_none()
        {
            doubts.order.push_back(key.to_owned());
        }
        if doubts.order.len() > DELETED
            && let Some(oldest) = doubts.order.pop_front()
        {
            doubts.deleted.remove(&oldest);
        }
    }

    /// Whether this state of an object is one that was deleted here.
    pub(super) fn is_forgotten(&self, key: &str, etag: &str) -> bool {
        self.doubts().deleted.get(key).is_some_and(|of| of == etag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_known_until_it_is_written() {
        let doubts = Doubts::default();
        doubts.send("k", "a");
        doubts.send("k", "b");
        assert!(doubts.may_have_sent("k", "a") && doubts.may_have_sent("k", "b"));
        assert!(!doubts.may_have_sent("k", "c") && !doubts.may_have_sent("other", "a"));
        for nth in 0..CONTENTS {
            doubts.send("k", &format!("{nth}"));
        }
        assert!(
            !doubts.may_have_sent("k", "a"),
            "what is remembered is bounded"
        );
        doubts.is_written("k");
        assert!(!doubts.may_have_sent("k", "0"));
    }

    #[test]
    fn a_deletion_may_come_until_it_has() {
        let doubts = Doubts::default();
        doubts.delete(&["k".to_owned()]);
        assert!(doubts.may_have_deleted("k"));
        doubts.is_deleted(&["k".to_owned()]);
        assert!(!doubts.may_have_deleted("k"));
        doubts.forget("k", "e");
        assert!(doubts.is_forgotten("k", "e") && !doubts.is_forgotten("k", "f"));
    }
}
