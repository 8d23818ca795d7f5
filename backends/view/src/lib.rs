//! Rows and answers as files: a [`Store`] over a source that others own, by a definition.
//!
//! Every call asks the source. Only the contents and listings that callers have begun to read are cached.

mod backend;
mod check;
mod content;
pub mod definition;
mod draft;
mod files;
mod listing;
mod nodes;
mod numbers;
mod rows;
mod source;
mod template;
mod tree;
mod writing;

use std::collections::BTreeMap;
use std::path::Path;

use fuse::store::{
    Attr, Caller, Change, Coherence, DirEntry, EntrySink, Errno, Ino, Kind, NewNode, OpenFiles, ROOT, RenameMode,
    Result, SlowCall, Store, Timestamp,
};
use inputs::InputError;
use parking_lot::{Condvar, Mutex, MutexGuard};

pub use backend::{ViewMount, ViewOptions};
use content::Contents;
use definition::ViewDefinition;
use draft::{DraftState, Occasion, Phase};
use listing::Listings;
use nodes::{Node, NodeKind, Nodes, ParentValues};
use numbers::Numbers;
use source::Pool;
pub use source::{ExtraDirectory, find_postgresql};
use tree::Tree;

/// The prefix of extended attributes.
const ATTRIBUTE: &[u8] = b"user.view.";

/// The attribute with the reason why the last change of a file, or in a directory, was refused.
const REASON: &str = "reason";

/// The kernel accepts no longer attribute value.
const ATTRIBUTE_MAX: usize = 64 << 10;

#[derive(Default)]
struct State {
    numbers: Numbers,
    nodes: Nodes,
    contents: Contents,
    listings: Listings,
    writing: DraftState,
}

/// Why a view cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum ViewOpenError {
    /// Its definition is wrong.
    #[error(transparent)]
    Definition(#[from] InputError),
    /// Its source cannot be reached.
    #[error("the source {place}: {reason}\n  fix: check --source")]
    Source {
        /// The path or URL of the source.
        place: String,
        /// Why it cannot be reached.
        reason: String,
    },
}

/// What a view permits, and how it names files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewSettings {
    /// Rows and files can be changed, where the definition says how.
    pub may_write: bool,
    /// Names have no blanks, quotes and backslashes.
    pub has_plain_names: bool,
    /// More directories, only for a `directory`.
    pub also: Vec<ExtraDirectory>,
}

/// A view, mounted.
pub struct ViewStore {
    owner: Caller,
    tree: Tree,
    sources: Pool,
    state: Mutex<State>,
    /// Notified when a call that began or committed a change of a file ends.
    settled: Condvar,
}

impl std::fmt::Debug for ViewStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ViewStore").field("tree", &self.tree).finish_non_exhaustive()
    }
}

impl ViewStore {
    /// Opens the view that `text`, from `file`, defines, of the source at `place`: a path, or a URL.
    ///
    /// # Errors
    /// [`ViewOpenError`], if the definition is wrong or the source cannot be reached.
    pub fn open(
        (file, text): (&Path, &str),
        place: &str,
        settings: ViewSettings,
        owner: &Caller,
    ) -> std::result::Result<Self, ViewOpenError> {
        let ViewSettings { may_write, has_plain_names, .. } = settings;
        let mut definition = ViewDefinition::parse(file, text)?;
        if has_plain_names {
            definition.make_names_plain();
        }
        let unreachable = |reason: String| {
            let place = source::without_password(place);
            // A reason for the log names the source itself.
            let named = format!("the source {place}: ");
            let reason = reason.strip_prefix(&named).map(str::to_owned).unwrap_or(reason);
            ViewOpenError::Source { place, reason }
        };
        let kind = definition.source.kind_of(place).map_err(unreachable)?;
        definition.check_source(file, text, kind)?;
        let sources = source::open(&definition.source, place, &settings).map_err(unreachable)?;
        let mut tree = {
            let mut source = sources.take().map_err(|error| unreachable(error.into_reason()))?;
            definition.check(file, text, kind, &mut *source)?;
            Tree::new(definition, kind, &mut *source).map_err(|reason| InputError::whole(file, reason))?
        };
        if !may_write {
            tree.permit_no_change();
        }
        Ok(Self { owner: *owner, tree, sources, state: Mutex::default(), settled: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The attributes of a node, by its number in the view.
    fn attr_of(&self, number: Ino) -> Result<Attr> {
        let node = self.node(number)?;
        match node.what {
            // Answer also while the source is unreachable.
            NodeKind::Level(_) => Ok(self.attr(number, Kind::Directory, 0, None)),
            _ => self.node_attr(&mut self.sources.take()?, number, &node),
        }
    }

    /// Changes the attributes of a node, by its number in the view.
    fn set_attr_of(&self, number: Ino, change: &Change) -> Result<Attr> {
        match change.size {
            Some(size) => self.resize_row(number, size)?,
            // Accept and ignore times, which programs set after writing a file: the row has its own.
            None if (change.permissions, change.uid, change.gid) == (None, None, None) => {}
            None => {
                let attr = self.attr_of(number)?;
                // `mv` and `cp -p` give a file the owner that it has already.
                let has_owner =
                    change.uid.is_none_or(|it| it == attr.uid) && change.gid.is_none_or(|it| it == attr.gid);
                if !has_owner || !self.changes_files() {
                    return Err(Errno::PERM.into());
                }
                if let Some(permissions) = change.permissions {
                    self.permit(number, permissions)?;
                }
            }
        }
        self.attr_of(number)
    }

    /// The attributes that an open file shows, by its node's number in the view.
    fn handle_attr_of(&self, handle: u64, number: Ino) -> Result<Attr> {
        let Some(writer) = self.writer(handle) else {
            return self.attr_of(number);
        };
        let size = writer.draft.lock().bytes.len() as u64;
        Ok(self.attr(number, Kind::File, size, Some(Timestamp::now())))
    }
}

impl Store for ViewStore {
    fn kind(&self) -> &'static str {
        "view"
    }

    fn coherence(&self) -> Coherence {
        Coherence::Uncached
    }

    fn attr_coherence(&self, ino: Ino) -> Coherence {
        match self.node_number(ino).and_then(|number| self.node(number)) {
            // A directory that the definition names, not a row.
            Ok(node) if matches!(node.what, NodeKind::Level(_)) && node.above.is_empty() => Coherence::Exclusive,
            _ => Coherence::Uncached,
        }
    }

    fn lists_attributes(&self) -> bool {
        false
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.lookup_any(self.node_number(parent)?, name).map(|attr| self.numbered(attr))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.attr_of(self.node_number(ino)?).map(|attr| self.numbered(attr))
    }

    fn getattr_handle(&self, handle: u64, ino: Ino) -> Result<Attr> {
        self.handle_attr_of(handle, self.node_number(ino)?).map(|attr| self.numbered(attr))
    }

    fn setattr(&self, _caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        self.set_attr_of(self.node_number(ino)?, change).map(|attr| self.numbered(attr))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        let parent = self.node(self.node_number(dir)?)?.parent;
        Ok(self.listed_ino(parent, false))
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let node = self.node(self.node_number(ino)?)?;
        self.target(&mut self.sources.take()?, &node)
    }

    fn create(&self, _caller: &Caller, parent: Ino, name: &[u8], node: &NewNode<'_>) -> Result<Attr> {
        let parent = self.node_number(parent)?;
        let created = match node.kind {
            Kind::Symlink if self.changes_files() => self.make_link(parent, name, node.target),
            Kind::Directory if self.changes_files() => self.make_directory(parent, name),
            _ => self.begin_new(parent, name, node),
        };
        created.map(|attr| self.numbered(attr))
    }

    fn link(&self, _caller: &Caller, _ino: Ino, _parent: Ino, _name: &[u8]) -> Result<Attr> {
        // A file system without hard links. Programs that deliver mail then rename it instead.
        Err(if self.wants_close() { Errno::PERM.into() } else { Errno::ROFS.into() })
    }

    fn unlink(&self, _caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let orphan = self.delete(self.node_number(parent)?, name)?;
        Ok(orphan.map(|number| self.listed_ino(number, false)))
    }

    fn rmdir(&self, _caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let orphan = self.remove_directory(self.node_number(parent)?, name)?;
        Ok(orphan.map(|number| self.listed_ino(number, false)))
    }

    fn rename(&self, _caller: &Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<Option<Ino>> {
        let (from, to) = ((self.node_number(from.0)?, from.1), (self.node_number(to.0)?, to.1));
        let orphan = self.move_row(from, to, mode)?;
        Ok(orphan.map(|number| self.listed_ino(number, false)))
    }

    fn forget(&self, inos: &[Ino]) {
        let mut state = self.state();
        for ino in inos {
            if let Some(number) = state.numbers.forget(*ino) {
                state.nodes.remove(number);
            }
        }
    }

    fn open_files(&self) -> Option<&dyn OpenFiles> {
        Some(self)
    }

    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        self.read_current(self.node_number(ino)?, offset, size, out)
    }

    fn places_appends(&self) -> bool {
        self.wants_close()
    }

    fn readdir(&self, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()> {
        self.list(self.node_number(dir)?, after, with_attr, &mut |entry| {
            let ino = self.listed_ino(entry.ino, entry.attr.is_some());
            emit(DirEntry { ino, attr: entry.attr.map(|attr| Attr { ino, ..attr }), ..entry })
        })
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let ino = self.node_number(ino)?;
        let name = name.strip_prefix(ATTRIBUTE).ok_or(Errno::NODATA)?;
        if name == REASON.as_bytes() {
            let state = self.state();
            let reason = state.writing.reason(ino).ok_or(Errno::NODATA)?;
            return Ok(reason.as_bytes().to_vec());
        }
        let mut columns = self.attributes(ino, |column| column.as_bytes() == name)?;
        let (_, value) = columns.pop().ok_or(Errno::NODATA)?;
        if value.len() <= ATTRIBUTE_MAX { Ok(value) } else { Err(Errno::TOOBIG.into()) }
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let ino = self.node_number(ino)?;
        let has_reason = self.state().writing.reason(ino).is_some();
        let columns = self.attributes(ino, |_| true)?;
        let names = columns.iter().map(|(column, _)| *column);
        let names = names.chain(has_reason.then_some(REASON));
        Ok(names.map(|name| [ATTRIBUTE, name.as_bytes()].concat()).collect())
    }

    fn fsync(&self, _ino: Ino, _data_only: bool) -> Result<()> {
        self.sync_names()
    }

    fn sync(&self) -> Result<()> {
        self.commit_all().and(self.sync_names())
    }

    fn wants_close(&self) -> bool {
        self.tree.permits_changes()
    }

    fn close(&self, handle: u64, _ino: Ino) -> Result<()> {
        self.commit(handle, Occasion::Close)
    }

    fn is_slow(&self, ino: Ino, call: SlowCall) -> bool {
        let ino = self.node_number(ino).unwrap_or(ino);
        let state = self.state();
        let file = state.nodes.get(ino).map(|node| &node.what);
        let mut drafts = state.writing.writers_of(ino).map(|it| it.draft.try_lock());
        match call {
            // A statement waits as long as another program locks the row.
            SlowCall::Close | SlowCall::Fsync => {
                drafts.any(|draft| draft.is_none_or(|draft| draft.phase != Phase::Clean))
            }
            SlowCall::Approval => (ino == ROOT || matches!(file, Some(NodeKind::Level(_)))) && self.wants_close(),
            SlowCall::Open => file.is_some_and(|file| state.writing.busy.contains(file)),
            // The open file is being committed.
            SlowCall::Read { .. } | SlowCall::Change | SlowCall::SizeForRead => drafts.any(|draft| draft.is_none()),
            // It opens, changes and commits in one call.
            SlowCall::Resize => self.wants_close(),
            SlowCall::Xattr => false,
        }
    }

    fn counters(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::from([("view_queries", self.sources.queries())])
    }
}

impl OpenFiles for ViewStore {
    fn open(&self, ino: Ino, writes: bool) -> Result<u64> {
        let ino = self.node_number(ino)?;
        if writes { self.open_writer(ino) } else { Ok(self.open_reader(ino)) }
    }

    fn setattr_handle(&self, handle: u64, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        match change.size {
            Some(size) => self.resize(handle, size)?,
            None => return self.setattr(caller, ino, change),
        }
        self.getattr_handle(handle, ino)
    }

    fn read_handle(&self, handle: u64, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        self.read_open_file(handle, self.node_number(ino)?, offset, size, out)
    }

    fn write_handle(&self, handle: u64, offset: u64, data: &[u8]) -> Result<()> {
        self.write_draft(handle, Some(offset), data)
    }

    fn append_handle(&self, handle: u64, data: &[u8]) -> Result<()> {
        self.write_draft(handle, None, data)
    }

    fn fsync_handle(&self, handle: u64) -> Result<()> {
        if self.changes_files() { self.sync_file(handle) } else { self.commit(handle, Occasion::Sync) }
    }

    fn release(&self, handle: u64) {
        if self.changes_files() {
            self.commit_empty(handle);
        }
        let mut state = self.state();
        state.contents.release(handle);
        state.writing.release(handle);
    }
}
