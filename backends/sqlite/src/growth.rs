//! The tails that have grown since their lengths were noted: see [`super::synced`].

use std::collections::{BTreeMap, BTreeSet};

use fuse::store::Ino;
use parking_lot::Mutex;

/// Tails that have grown since their lengths were noted.
#[derive(Debug, Default)]
pub(super) struct Growth {
    pub(super) state: Mutex<State>,
    /// Held by a sync until it has noted the lengths. Never taken by a thread that has the lock of the database.
    pub(super) noting: Mutex<()>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) grown: BTreeSet<Ino>,
    /// The lengths that the sync which is under way makes durable.
    pub(super) in_sync: BTreeMap<Ino, u64>,
    /// One of these tails was truncated meanwhile.
    pub(super) is_cut: bool,
}

/// The files that have replaced others in the open transaction, while a part of their tails was not noted as synced: see
/// [`super::replacing`].
#[derive(Debug, Default)]
pub(super) struct OpenReplacements {
    pub(super) inos: BTreeSet<Ino>,
    /// Those of the change that is not recorded yet, and the lengths of their tails.
    pub(super) unrecorded: Vec<(Ino, u64)>,
}

impl OpenReplacements {
    /// What the redo log has to record before the change that was made last.
    pub(super) fn take_unrecorded(&mut self) -> Vec<(Ino, u64)> {
        std::mem::take(&mut self.unrecorded)
    }
}

impl Growth {
    /// A tail has grown.
    pub(super) fn grew(&self, ino: Ino) {
        self.state.lock().grown.insert(ino);
    }

    /// The next note has to have this tail, although its length may be noted: a sync that is under way may have missed bytes.
    pub(super) fn must_be_noted(&self, ino: Ino) {
        let mut state = self.state.lock();
        state.in_sync.remove(&ino);
        state.grown.insert(ino);
    }

    /// Whether a tail has grown since its length was noted.
    pub(super) fn has_grown(&self, ino: Ino) -> bool {
        let state = self.state.lock();
        state.grown.contains(&ino) || state.in_sync.contains_key(&ino)
    }

    /// Whether any tail has grown since its length was noted.
    pub(super) fn has_any(&self) -> bool {
        let state = self.state.lock();
        !(state.grown.is_empty() && state.in_sync.is_empty())
    }

    /// The tails that have grown, those in a sync included.
    pub(super) fn all(&self) -> BTreeSet<Ino> {
        let state = self.state.lock();
        state.grown.iter().chain(state.in_sync.keys()).copied().collect()
    }

    /// A sync is over; if it `failed`, the next one has to note the lengths.
    pub(super) fn end(&self, failed: bool) {
        let mut state = self.state.lock();
        let ended = std::mem::take(&mut state.in_sync);
        if failed {
            state.grown.extend(ended.into_keys());
        }
    }
}
