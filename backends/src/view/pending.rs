//! What is being changed: contents on their way to rows, and what is remembered of rows. No source is asked here.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::source::Text;
use crate::store::{Errno, Ino};

/// How long a file that was cut, or refused, waits for more.
pub(super) const WAITS: Duration = Duration::from_secs(5);

/// Names and reasons that are remembered.
const REMEMBERED: usize = 10_000;

/// A row by column.
pub(super) type Row = Vec<(String, Text)>;

/// How far a change of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A call reads the row that is to be changed.
    Beginning,
    /// The file was cut, or created, and nothing was written.
    Cut,
    Written,
    /// A call waits for the source.
    Committing,
    /// The source has refused it; readers see the row.
    Refused(Errno),
}

/// A file's content on its way to its row.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) phase: Phase,
    /// The row when this began; empty for a new file.
    pub(super) row: Arc<Row>,
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) touched: Instant,
}

impl Pending {
    pub(super) fn new(phase: Phase, row: Row, bytes: Vec<u8>) -> Self {
        Self {
            phase,
            row: Arc::new(row),
            bytes: Arc::new(bytes),
            touched: Instant::now(),
        }
    }

    fn is_busy(&self) -> bool {
        matches!(self.phase, Phase::Beginning | Phase::Committing)
    }

    fn is_shown(&self) -> bool {
        match self.phase {
            Phase::Written | Phase::Committing => true,
            Phase::Cut => self.touched.elapsed() < WAITS,
            Phase::Beginning | Phase::Refused(_) => false,
        }
    }
}

/// The row that a given name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alias {
    pub(super) files: usize,
    pub(super) key: i64,
    /// Of the whole row: a database may give the key of a deleted row to another one.
    pub(super) row: u64,
}

/// What is being changed.
#[derive(Debug, Default)]
pub(super) struct Writing {
    pub(super) pending: HashMap<Ino, Pending>,
    /// Names that files were created under, and moved to; their rows give them other names.
    pub(super) aliases: HashMap<(Ino, Vec<u8>), Alias>,
    /// The content of each file that may be changed, as a program last read it.
    pub(super) read: HashMap<Ino, u64>,
    pub(super) reasons: HashMap<Ino, String>,
}

pub(super) fn hash(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// Makes room for one more.
pub(super) fn room<K, V>(map: &mut HashMap<K, V>) -> &mut HashMap<K, V> {
    if map.len() >= REMEMBERED {
        map.clear();
    }
    map
}

impl Writing {
    fn shown(&self, ino: Ino) -> Option<&Pending> {
        self.pending.get(&ino).filter(|it| it.is_shown())
    }

    pub(super) fn size(&self, ino: Ino) -> Option<u64> {
        self.shown(ino).map(|it| it.bytes.len() as u64)
    }

    pub(super) fn bytes(&self, ino: Ino) -> Option<&Arc<Vec<u8>>> {
        self.shown(ino).map(|it| &it.bytes)
    }

    /// Whether content waits for its row, or was refused a moment ago.
    pub(super) fn is_pending(&self, ino: Ino) -> bool {
        let waits = |it: &Pending| match it.phase {
            Phase::Cut | Phase::Refused(_) => it.touched.elapsed() < WAITS,
            Phase::Beginning | Phase::Written | Phase::Committing => true,
        };
        self.pending.get(&ino).is_some_and(waits)
    }

    pub(super) fn pending(&self) -> Vec<Ino> {
        let written = |it: &Pending| matches!(it.phase, Phase::Written | Phase::Committing);
        let pending = self.pending.iter().filter(|(_, it)| written(it));
        pending.map(|(ino, _)| *ino).collect()
    }

    pub(super) fn is_busy(&self, ino: Ino) -> bool {
        self.pending.get(&ino).is_some_and(Pending::is_busy)
    }

    /// Marks a file as busy; readers go on to see its content. Returns what was pending.
    pub(super) fn hold(&mut self, ino: Ino) -> Option<Pending> {
        let held = match self.shown(ino) {
            Some(shown) => Pending {
                phase: Phase::Committing,
                ..shown.clone()
            },
            None => Pending::new(Phase::Beginning, Vec::new(), Vec::new()),
        };
        self.pending.insert(ino, held)
    }

    /// Drops content that readers do not see, before another program writes: refused, or cut too long ago. A new file keeps
    /// it: without a row, its writer has nothing else to go on with.
    pub(super) fn drop_hidden(&mut self, ino: Ino) {
        let is_hidden = |it: &Pending| !it.is_shown() && !it.is_busy() && !it.row.is_empty();
        if self.pending.get(&ino).is_some_and(is_hidden) {
            self.pending.remove(&ino);
        }
    }

    pub(super) fn alias(&self, parent: Ino, name: &[u8]) -> Option<Alias> {
        // Not worth a key of its own for each look-up where there are none.
        match self.aliases.is_empty() {
            true => None,
            false => self.aliases.get(&(parent, name.to_vec())).copied(),
        }
    }

    /// Drops a given name whose row, of the file `ino`, is not `compared`. False if this mount has changed the row since,
    /// or does so now: the name must then be compared again.
    pub(super) fn forget_alias(
        &mut self,
        (parent, name): (Ino, &[u8]),
        ino: Ino,
        compared: Alias,
    ) -> bool {
        let is_current = self.alias(parent, name).is_none_or(|it| it == compared);
        if !is_current || self.is_busy(ino) {
            return false;
        }
        self.aliases.remove(&(parent, name.to_vec()));
        true
    }

    /// Drops all that is remembered of a row that has gone. The caller holds its file, and decides what becomes of its content.
    pub(super) fn forget_row(&mut self, ino: Ino, (files, key): (usize, i64)) {
        self.aliases
            .retain(|_, it| (it.files, it.key) != (files, key));
        self.read.remove(&ino);
        self.reasons.remove(&ino);
    }

    /// Remembers the hash of a content that may be changed.
    pub(super) fn has_read(&mut self, ino: Ino, body: u64) {
        room(&mut self.read).insert(ino, body);
    }

    pub(super) fn reason(&self, ino: Ino) -> Option<&str> {
        self.reasons.get(&ino).map(String::as_str)
    }

    pub(super) fn explain(&mut self, ino: Ino, reason: &str) {
        room(&mut self.reasons).insert(ino, reason.to_owned());
    }
}
