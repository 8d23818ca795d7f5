//! State of changes: the content of each open file that writes, and notes on rows. Nothing here queries the source.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fuse::store::{Errno, Ino};
use parking_lot::Mutex;

use crate::nodes::{Node, NodeKind};
use crate::source::Text;

/// How long a file that was created and closed without content stays visible.
const WAITS: Duration = Duration::from_secs(5);

/// The most entries of each map of names, hashes or reasons.
const REMEMBERED: usize = 10_000;

/// A row by column.
pub(super) type Row = Vec<(String, Text)>;

/// The progress of a change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The content is that of the row.
    Clean,
    /// The file was cut, or created, and nothing was written.
    Cut,
    Written,
    /// The source has refused it; readers see the row.
    Refused(Errno),
    /// It was committed, and the row has changed since.
    Outdated,
}

/// Why a draft is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// A close, which need not be the last one: what was only cut is not committed.
    Close,
    /// A sync: the commit is durable.
    Sync,
    /// The last close, or a change by path.
    End,
}

/// The content of one open file, on its way to its row.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) phase: Phase,
    /// The row that the content replaces; `None` for a new file.
    pub(super) row: Option<Row>,
    pub(super) bytes: Vec<u8>,
    /// How many of the first bytes are the row's, if everything after them was appended.
    pub(super) kept: Option<usize>,
}

/// An open file that writes. No other one has its content.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) ino: Ino,
    /// Also locked during its commit. Lock order: [`DraftState::busy`], this, the state.
    pub(super) draft: Mutex<Draft>,
    /// Set when the file is removed, or replaced by a rename: the content reaches no row then.
    pub(super) is_removed: AtomicBool,
}

impl Writer {
    pub(super) fn new(ino: Ino, draft: Draft) -> Self {
        Self { ino, draft: Mutex::new(draft), is_removed: AtomicBool::new(false) }
    }

    /// Marks that the content reaches no row.
    pub(super) fn remove(&self) {
        self.is_removed.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::SeqCst)
    }
}

/// A file that has no row yet.
#[derive(Debug)]
struct NewFile {
    node: Node,
    permissions: u16,
    /// When it was created, or last closed.
    since: Instant,
}

/// The row of a name that a program gave to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alias {
    pub(super) files: usize,
    pub(super) key: i64,
    /// The hash of the whole row: a database may reuse the key of a deleted row.
    pub(super) row: u64,
}

/// The changes in progress, and notes on earlier ones.
#[derive(Debug, Default)]
pub(super) struct DraftState {
    /// By the number of the open file.
    pub(super) writers: HashMap<u64, Arc<Writer>>,
    /// Files that a call changes now.
    pub(super) busy: HashSet<NodeKind>,
    /// By directory and name.
    new_files: HashMap<(Ino, Vec<u8>), NewFile>,
    /// How many files were created.
    pub(super) created: u64,
    /// Names that programs gave to files by creating or moving them, where the rows give other names.
    pub(super) aliases: HashMap<(Ino, Vec<u8>), Alias>,
    /// The hash of the content of each file that may be changed, as a program last read it.
    pub(super) read: HashMap<Ino, u64>,
    pub(super) reasons: HashMap<Ino, String>,
    /// The files that are open for reading, where a sync through one has an effect.
    pub(super) readers: HashMap<u64, Ino>,
    /// Directories that programs have created, and that need not have a row yet: where they are, level and name.
    pub(super) directories: BTreeSet<(Ino, usize, Vec<u8>)>,
}

pub(super) fn hash(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// Makes room for one more entry: drops all if there are too many.
pub(super) fn room<K, V>(map: &mut HashMap<K, V>) -> &mut HashMap<K, V> {
    if map.len() >= REMEMBERED {
        map.clear();
    }
    map
}

impl DraftState {
    /// The open files that write a file.
    pub(super) fn writers_of(&self, ino: Ino) -> impl Iterator<Item = &Arc<Writer>> {
        self.writers.values().filter(move |it| it.ino == ino)
    }

    fn is_awaited(&self, file: &NewFile) -> bool {
        file.since.elapsed() < WAITS || self.writers_of(file.node.ino()).next().is_some()
    }

    /// A file without a row, while a program has it open for writing or closed it less than [`WAITS`] ago.
    pub(super) fn new_file(&self, parent: Ino, name: &[u8]) -> Option<&Node> {
        // Do not allocate a key for each look-up in an empty map.
        if self.new_files.is_empty() {
            return None;
        }
        let file = self.new_files.get(&(parent, name.to_vec()))?;
        self.is_awaited(file).then_some(&file.node)
    }

    /// Adds a file without a row, and drops those that no program waits for any more.
    pub(super) fn add_new(&mut self, name: &[u8], node: Node, permissions: u16) {
        let mut files = std::mem::take(&mut self.new_files);
        files.retain(|_, file| self.is_awaited(file));
        let since = Instant::now();
        files.insert((node.parent, name.to_vec()), NewFile { node, permissions, since });
        self.new_files = files;
    }

    /// The permissions of a file without a row.
    pub(super) fn permissions_of_new(&mut self, file: &NodeKind) -> Option<&mut u16> {
        let mut files = self.new_files.values_mut();
        files.find(|it| it.node.what == *file).map(|it| &mut it.permissions)
    }

    /// Drops the name of a file without a row, unless another file has the name by now.
    pub(super) fn remove_new(&mut self, (parent, name): (Ino, &[u8]), file: &NodeKind) {
        let place = (parent, name.to_vec());
        if self.new_files.get(&place).is_some_and(|it| it.node.what == *file) {
            self.new_files.remove(&place);
        }
    }

    /// Ends an open file, and drops its uncommitted content.
    pub(super) fn release(&mut self, handle: u64) {
        self.readers.remove(&handle);
        if let Some(writer) = self.writers.remove(&handle) {
            let mut files = self.new_files.values_mut();
            if let Some(file) = files.find(|file| file.node.ino() == writer.ino) {
                file.since = Instant::now();
            }
        }
    }

    pub(super) fn alias(&self, parent: Ino, name: &[u8]) -> Option<Alias> {
        // Do not allocate a key for each look-up in an empty map.
        if self.aliases.is_empty() { None } else { self.aliases.get(&(parent, name.to_vec())).copied() }
    }

    /// Drops an alias whose row, of `file`, differs from `compared`. False if this mount has changed the row since the
    /// comparison, or is changing it: the caller must then compare again.
    pub(super) fn forget_alias(&mut self, (parent, name): (Ino, &[u8]), file: &NodeKind, compared: Alias) -> bool {
        let is_current = self.alias(parent, name).is_none_or(|it| it == compared);
        if !is_current || self.busy.contains(file) {
            return false;
        }
        self.aliases.remove(&(parent, name.to_vec()));
        true
    }

    /// Drops all notes on a deleted row. The caller holds its file.
    pub(super) fn forget_row(&mut self, ino: Ino, (files, key): (usize, i64)) {
        self.aliases.retain(|_, it| (it.files, it.key) != (files, key));
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

#[cfg(test)]
mod tests {
    use fuse::store::ROOT;

    use super::*;

    #[test]
    fn nothing_is_kept_of_files_that_were_closed_without_a_row() {
        let mut writing = DraftState::default();
        for number in 0..20 {
            let name = number.to_string().into_bytes();
            let what = NodeKind::New { files: 0, name: name.clone(), number };
            let node = Node { what, above: Default::default(), parent: ROOT };
            let ino = node.ino();
            writing.add_new(&name, node, 0o644);
            assert_eq!(writing.new_files.len(), 1, "the one before has waited");
            let refused =
                Draft { phase: Phase::Refused(Errno::INVAL), row: None, bytes: b"no header".to_vec(), kept: None };
            let writer = Arc::new(Writer::new(ino, refused));
            writing.writers.insert(number, writer);
            let file = (ROOT, name.clone());
            let long_ago = Instant::now().checked_sub(WAITS).unwrap();
            writing.new_files.get_mut(&file).unwrap().since = long_ago;
            assert!(writing.new_file(ROOT, &name).is_some(), "it is written");
            writing.release(number);
            assert!(writing.writers.is_empty());
            assert!(writing.new_file(ROOT, &name).is_some(), "for a moment");
            writing.new_files.get_mut(&file).unwrap().since = long_ago;
            assert!(writing.new_file(ROOT, &name).is_none());
        }
    }
}
