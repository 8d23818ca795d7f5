//! The index of notes, if there is one, as the store's threads know it: they tell it of changes that it did not make itself.

use std::sync::{Arc, Weak};

use agent_memory::{AgentMemory, is_indexed};
use fuse::store::{Ino, Result};
use parking_lot::Mutex;
use sqlite::tables::Db;

use crate::prefetch::Wake;

#[derive(Default)]
pub(super) struct IndexLink {
    /// Locked while it is used: the memory, and with it the store, must not end on a thread of the store's own.
    memory: Mutex<Option<Weak<AgentMemory>>>,
    prefetch: Mutex<Option<Wake>>,
}

impl std::fmt::Debug for IndexLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexLink").finish_non_exhaustive()
    }
}

impl IndexLink {
    /// The memory to tell; `None` before it ends.
    pub(super) fn set(&self, memory: Option<&Arc<AgentMemory>>) {
        *self.memory.lock() = memory.map(Arc::downgrade);
    }

    /// What wakes the thread that fetches content; `None` if it ends.
    pub(super) fn set_prefetch(&self, wake: Option<Wake>) {
        *self.prefetch.lock() = wake;
    }

    /// The content of a file is here from now on. In the transaction that writes it, also before [`IndexLink::set`].
    pub(super) fn filled(db: &Db, ino: Ino) -> Result<()> {
        if is_indexed(db)? { AgentMemory::mark(db, ino) } else { Ok(()) }
    }

    /// A call has changed a file. Also if it began before there was an index, which then does not know of the call.
    pub(super) fn changed(&self) {
        self.tell(AgentMemory::wake);
    }

    /// Something has changed other than by a call, and the transaction of the change has ended.
    pub(super) fn follow(&self) {
        self.tell(AgentMemory::follow);
    }

    fn tell(&self, call: impl Fn(&AgentMemory)) {
        let memory = self.memory.lock();
        if let Some(memory) = memory.as_ref().and_then(Weak::upgrade) {
            call(&memory);
        }
    }

    /// Commits of others were adopted: there may be content to fetch.
    pub(super) fn adopted(&self) {
        self.follow();
        if let Some(wake) = &*self.prefetch.lock() {
            // If the channel is full, the thread is about to wake up.
            let _ = wake.try_send(());
        }
    }
}
