//! Changes of a view over a directory: each is one operation on one of the directory's own files.
//!
//! A statement of the definition is a query that names the file; the source carries the operation out below its root.

use fuse::store::{Attr, Errno, Ino, RenameMode, Result, StoreError};

use crate::draft::{Draft, Occasion, Phase, Row, Writer};
use crate::nodes::{Node, NodeKind, ParentValues};
use crate::rows::parameters;
use crate::source::{FileChange, NAME, Parameter, PooledConnection, TARGET, TransactionResult, VALUE};
use crate::template::unescape;
use crate::tree::Level;
use crate::writing::{conflict, invalid, value};
use crate::{State, ViewStore};

/// Names the places of a file and of another one that it replaces.
const MOVE_OVER: &str = "SELECT it.path AS moved, other.path AS path FROM file AS it JOIN file AS other ON other.key = :_over WHERE it.key = :key";

/// The error of a change for which the definition's statement has no row.
fn no_place(what: &str) -> StoreError {
    invalid(format!("{what}: the definition's statement names no file for this change"))
}

impl State {
    /// Makes the inode numbers of a renamed file stand for `new`: programs that have it open go on with the same file, also
    /// those that created it.
    fn follow(&mut self, (ino, old): (Ino, &NodeKind), new: &Node) {
        let open = self.writing.writers.values().map(|writer| writer.ino).chain(self.writing.readers.values().copied());
        let is_it = |ino: &Ino| self.nodes.get(*ino).is_some_and(|node| node.what == *old);
        let inos: Vec<Ino> = open.filter(is_it).chain([ino]).collect();
        inos.into_iter().for_each(|ino| self.nodes.replace(ino, new.clone()));
    }
}

impl ViewStore {
    /// Whether a change of the view is one of files of a directory.
    pub(super) fn changes_files(&self) -> bool {
        self.tree.unshown.is_some() && self.tree.permits_changes()
    }

    /// The error of a change that the definition has no statement for.
    pub(super) fn read_only(&self, what: &str) -> StoreError {
        if self.tree.permits_changes() {
            StoreError::storage(
                Errno::ROFS,
                format!("{what} cannot be changed through the view: its definition has no statement for it"),
            )
        } else {
            Errno::ROFS.into()
        }
    }

    /// The name of a file for the name in the view that a program gives to it.
    pub(super) fn given_name(&self, name: &[u8]) -> Result<Vec<u8>> {
        let shown = String::from_utf8_lossy(name);
        let wrong = || {
            invalid(format!(
                "{shown:?}: in a view, `%` and two hexadecimal digits stand for a byte, and only for one that no name can have"
            ))
        };
        let given = unescape(name, self.tree.naming).ok_or_else(wrong)?;
        if given.contains(&b'/') || given.contains(&0) || matches!(&given[..], b"" | b"." | b"..") {
            Err(invalid(format!("{shown:?}: no file can have the name that this stands for")))
        } else {
            Ok(given)
        }
    }

    fn change_file(
        &self,
        change: FileChange,
        (sql, above): (&str, &ParentValues),
        more: &[(&str, Parameter<'_>)],
        is_durable: bool,
    ) -> Result<TransactionResult> {
        let parameters = parameters(above, more);
        let (_turn, mut source) = self.sources.take_to_change()?;
        source.count();
        source.change_file(change, (sql, &parameters), is_durable)
    }

    /// Commits a draft of a file that the view shows.
    pub(super) fn replace_file(
        &self,
        (files, key): (usize, i64),
        above: &ParentValues,
        (row, draft): (&Row, &Draft),
        is_durable: bool,
    ) -> Result<()> {
        let (sql, row) = self.updated(files, row, &draft.bytes)?;
        let table = &self.tree.files[files];
        // Bytes after the row's are bytes after the file's only if the body is nothing but one column.
        let appended = draft.kept.filter(|_| table.body.0.len() == 1);
        let change = appended.map_or(FileChange::Replace, |from| FileChange::Append { from });
        let values = row.iter().map(|(column, text)| {
            if *column == table.key_column {
                // Another one than in the row if a program has renamed the file since.
                (column.as_str(), Parameter::Integer(key))
            } else {
                (column.as_str(), value(&row, column, text))
            }
        });
        let values: Vec<_> = values.collect();
        match self.change_file(change, (sql, above), &values, is_durable)?.rows {
            0 => Err(conflict()),
            _ => Ok(()),
        }
    }

    /// Commits a draft of a new file.
    pub(super) fn create_file(&self, node: &Node, writer: &Writer, bytes: &[u8], is_durable: bool) -> Result<()> {
        let NodeKind::New { files, name, .. } = &node.what else {
            return Err(Errno::ROFS.into());
        };
        let table = &self.tree.files[*files];
        let sql = table.write.insert.as_deref().ok_or(Errno::ROFS)?;
        let given = self.given_name(name)?;
        let columns = table.body.take_apart(bytes).map_err(invalid)?;
        let columns = columns.into_iter().map(|(column, text)| (column, Parameter::Text(text)));
        let values: Vec<_> = columns.chain([(NAME, Parameter::Text(&given))]).collect();
        // Without a name by now, it was closed long ago.
        let permissions = self.state().writing.permissions_of_new(&node.what).map_or(0o600, |it| *it);
        let change = FileChange::Create { permissions };
        let changed = self.change_file(change, (sql, &node.above), &values, is_durable)?;
        if changed.rows == 0 {
            return Err(no_place(&String::from_utf8_lossy(name)));
        }
        match changed.key {
            Some(key) => {
                let what = self.node_of((*files, key), &node.above)?;
                let file = Node { what, ..node.clone() };
                self.state().nodes.replace(writer.ino, file);
            }
            // Another program has removed it already.
            None => writer.remove(),
        }
        // As for a row: a look-up always finds one of the two.
        self.state().writing.remove_new((node.parent, name), &node.what);
        Ok(())
    }

    /// Whether an open file was only cut, or created, and no other program has changed the file since.
    fn is_only_cut(&self, writer: &Writer) -> bool {
        let draft = writer.draft.lock();
        let node = self.node(writer.ino);
        match (draft.phase, node.as_ref().map(|node| &node.what), &draft.row) {
            (Phase::Cut, Ok(NodeKind::New { .. }), _) => true,
            (Phase::Cut, Ok(NodeKind::File { files, key }), Some(before)) => {
                let above = node.as_ref().map(|node| ParentValues::clone(&node.above)).unwrap_or_default();
                let content = |row: &Row| self.tree.files[*files].render(row).ok();
                self.row(*files, *key, &above).is_ok_and(|now| content(&now) == content(before))
            }
            _ => false,
        }
    }

    /// Commits an open file that was only cut, or created, when it is closed for the last time.
    pub(super) fn commit_empty(&self, handle: u64) {
        if self.writer(handle).is_some_and(|writer| self.is_only_cut(&writer))
            && let Err(error) = self.commit(handle, Occasion::End)
        {
            tracing::error!(%error, "a file that was emptied, or created without content, could not be changed");
        }
    }

    /// Opens a file for reading.
    pub(super) fn open_reader(&self, ino: Ino) -> u64 {
        let mut state = self.state();
        let handle = state.contents.open();
        if self.changes_files() {
            state.writing.readers.insert(handle, ino);
        }
        handle
    }

    /// Commits an open file, and makes its file durable.
    pub(super) fn sync_file(&self, handle: u64) -> Result<()> {
        let writer = self.writer(handle);
        if let Some(writer) = &writer {
            let is_new = !matches!(writer.draft.lock().phase, Phase::Clean | Phase::Outdated);
            self.commit(handle, Occasion::Sync)?;
            if is_new || writer.is_removed() {
                return Ok(());
            }
        }
        let reader = self.state().writing.readers.get(&handle).copied();
        let Some(ino) = writer.map(|writer| writer.ino).or(reader) else {
            return Ok(());
        };
        // An earlier close has committed it, or another program has changed it.
        let (Some(unshown), Ok(node)) = (self.tree.unshown, self.node(ino)) else {
            return Ok(());
        };
        let NodeKind::File { key, .. } = node.what else {
            return Ok(());
        };
        let sql = self.tree.files[unshown].write.delete.as_deref().unwrap_or_default();
        self.change_file(FileChange::Sync, (sql, &node.above), &[("key", Parameter::Integer(key))], true).map(|_| ())
    }

    /// Makes all changes of names durable.
    pub(super) fn sync_names(&self) -> Result<()> {
        if self.changes_files() { self.sources.take()?.sync_names() } else { Ok(()) }
    }

    /// Sets the permissions of a file.
    pub(super) fn permit(&self, ino: Ino, permissions: u16) -> Result<()> {
        let node = self.node(ino)?;
        if let Some(of_new) = self.state().writing.permissions_of_new(&node.what) {
            *of_new = permissions;
            return Ok(());
        }
        let sql = self.tree.unshown.and_then(|unshown| self.tree.files[unshown].write.delete.as_deref());
        match (&node.what, sql) {
            (NodeKind::File { files, key }, Some(sql)) if self.tree.files[*files].write.update.is_some() => {
                let key = [("key", Parameter::Integer(*key))];
                self.change_file(FileChange::Permit { permissions }, (sql, &node.above), &key, false).map(|_| ())
            }
            _ => Err(Errno::PERM.into()),
        }
    }

    pub(super) fn remove_file(&self, node: &Node, (files, key): (usize, i64)) -> Result<()> {
        let table = &self.tree.files[files];
        let sql = table.write.delete.as_deref().ok_or_else(|| self.read_only("the file's name"))?;
        let key = [(table.key_column.as_str(), Parameter::Integer(key))];
        match self.change_file(FileChange::Remove, (sql, &node.above), &key, false)?.rows {
            0 => Err(Errno::NOENT.into()),
            _ => Ok(()),
        }
    }

    /// The file of the source with a key: that of a row of `files`, or one that no row shows.
    fn node_of(&self, (files, key): (usize, i64), above: &ParentValues) -> Result<NodeKind> {
        // A file that is too long to be shown is one, too.
        let shown = self.show(&mut self.sources.take()?, files, key, above).unwrap_or(None);
        let files = if shown.is_some() { files } else { self.tree.unshown.unwrap_or(files) };
        Ok(NodeKind::File { files, key })
    }

    /// The file that has the place of a new file with a name, and that no row shows under this name.
    pub(super) fn find_unshown(
        &self,
        source: &mut PooledConnection<'_>,
        (parent, dir): (Ino, &Node),
        level: &Level,
        name: &[u8],
    ) -> Result<Attr> {
        let mut places = level.files.iter().filter_map(|files| self.tree.files[*files].place.as_ref());
        let (place, files) = places.next().zip(self.tree.unshown).ok_or(Errno::NOENT)?;
        let given = self.given_name(name).map_err(|_| Errno::NOENT)?;
        let row = self.first(source, place, &dir.above, &[(NAME, Parameter::Text(&given))])?;
        let key = row.and_then(|row| std::str::from_utf8(row.first()?.as_deref()?).ok()?.parse().ok());
        let key = key.ok_or(Errno::NOENT)?;
        let shown = self.show(source, files, key, &dir.above)?.ok_or(Errno::NOENT)?;
        let ino = self.know(dir.child(parent, NodeKind::File { files, key }));
        Ok(self.file_attr(ino, files, &shown))
    }

    /// Commits a new file, which a call needs in the source.
    fn settle_new(&self, node: &Node) -> Result<()> {
        let state = self.state();
        let writers = state.writing.writers.iter();
        let of_it = writers.filter(|(_, it)| state.nodes.get(it.ino).is_some_and(|it| it.what == node.what));
        let newest = of_it.map(|(handle, _)| *handle).max();
        drop(state);
        match newest {
            Some(handle) => self.commit(handle, Occasion::End),
            None => Err(invalid("the file has no content yet: write and close it first")),
        }
    }

    /// Renames a file or a link.
    pub(super) fn move_file(
        &self,
        (from, from_name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<Ino>> {
        let (ino, node, over, _busy) = loop {
            let ino = self.lookup_any(from, from_name)?.ino;
            let node = self.node(ino)?;
            if matches!(node.what, NodeKind::New { .. }) {
                self.settle_new(&node)?;
                continue;
            }
            let over = match self.lookup_any(to, to_name) {
                Ok(_) if mode != RenameMode::Replace => return Err(Errno::EXIST.into()),
                Ok(target) if target.ino == ino => return Ok(None),
                Ok(target) => Some((target.ino, self.node(target.ino)?)),
                Err(error) if error.errno == Errno::NOENT => None,
                Err(error) => return Err(error),
            };
            let mut held = vec![(ino, &*node)];
            held.extend(over.iter().map(|(ino, node)| (*ino, &**node)));
            if let Some(busy) = self.hold(&held) {
                break (ino, node, over, busy);
            }
        };
        let (dir, level) = self.level(to)?;
        let (files, key) = match &node.what {
            NodeKind::File { files, key } => (*files, *key),
            NodeKind::Link { links, value } => {
                let moved = self.move_link((*links, value), (&dir, to, to_name));
                return self.explained(to, moved).map(|()| None);
            }
            NodeKind::Level(_) => return Err(self.read_only("the directory's name")),
            _ => return Err(self.read_only("the file's name")),
        };
        match over.as_ref().map(|(_, over)| &over.what) {
            None | Some(NodeKind::File { .. } | NodeKind::New { .. }) => {}
            Some(NodeKind::Level(_)) => return Err(Errno::ISDIR.into()),
            Some(_) => return Err(self.read_only("the other file")),
        }
        let may_receive = |files: &&usize| self.tree.files[**files].write.receive.is_some();
        let into = *level.files.iter().find(may_receive).ok_or_else(|| self.read_only("names in the directory"))?;
        let receives = &self.tree.files[into];
        let given = self.given_name(to_name)?;
        let key_of_it = Parameter::Integer(key);
        let moved = match over.as_ref().map(|(_, over)| &over.what) {
            // That very file, wherever the statement would put a new one.
            Some(NodeKind::File { key, .. }) => {
                let values = [("key", key_of_it), ("_over", Parameter::Integer(*key))];
                self.change_file(FileChange::Move { replaces: true }, (MOVE_OVER, &dir.above), &values, false)
            }
            _ => {
                let sql = receives.write.receive.as_deref().ok_or(Errno::ROFS)?;
                let values = [(receives.key_column.as_str(), key_of_it), (NAME, Parameter::Text(&given))];
                self.change_file(FileChange::Move { replaces: false }, (sql, &dir.above), &values, false)
            }
        };
        let moved = moved.and_then(|moved| match moved.rows {
            0 => Err(no_place(&String::from_utf8_lossy(to_name))),
            _ => Ok(moved),
        });
        let moved = self.explained(to, moved)?;
        {
            let mut state = self.state();
            state.writing.forget_row(ino, (files, key));
            if let Some((over_ino, over)) = &over {
                if let NodeKind::File { files, key } = over.what {
                    state.writing.forget_row(*over_ino, (files, key));
                }
                state.writing.remove_new((to, to_name), &over.what);
                state.remove_writers(&over.what);
                state.contents.renew(*over_ino);
            }
        }
        if let Some(key) = moved.key {
            let what = self.node_of((into, key), &dir.above)?;
            self.state().follow((ino, &node.what), &dir.child(to, what));
        }
        Ok(None)
    }

    /// Creates a link, which is a change of the file that has it as its row.
    pub(super) fn make_link(&self, parent: Ino, name: &[u8], target: &[u8]) -> Result<Attr> {
        let (dir, level) = self.level(parent)?;
        match self.lookup_any(parent, name) {
            Ok(_) => return Err(Errno::EXIST.into()),
            Err(error) if error.errno == Errno::NOENT => {}
            Err(error) => return Err(error),
        }
        let may_insert = |links: &&usize| self.tree.links[**links].write.insert.is_some();
        let links = level.links.iter().find(may_insert).ok_or_else(|| self.read_only("links in the directory"))?;
        let links = &self.tree.links[*links];
        let sql = links.write.insert.as_deref().ok_or(Errno::ROFS)?;
        let wrong = || no_place(&format!("{} -> {}", String::from_utf8_lossy(name), String::from_utf8_lossy(target)));
        let value = self.value_of(level, name).ok_or_else(wrong)?;
        let values = [(links.column.as_str(), Parameter::Text(&value)), (TARGET, Parameter::Text(target))];
        let made = self.change_file(FileChange::Replace, (sql, &dir.above), &values, false);
        let made = made.and_then(|made| if made.rows == 0 { Err(wrong()) } else { Ok(()) });
        self.explained(parent, made)?;
        self.lookup_any(parent, name)
    }

    /// Removes a link, which is a change of the file that has it as its row.
    pub(super) fn remove_link(&self, node: &Node) -> Result<()> {
        let NodeKind::Link { links, value } = &node.what else {
            return Err(Errno::ROFS.into());
        };
        let links = &self.tree.links[*links];
        let sql = links.write.delete.as_deref().ok_or_else(|| self.read_only("the link"))?;
        let name = [(links.column.as_str(), Parameter::Text(value))];
        let removed = self.change_file(FileChange::Replace, (sql, &node.above), &name, false);
        match self.explained(node.parent, removed)?.rows {
            0 => Err(Errno::NOENT.into()),
            _ => Ok(()),
        }
    }

    /// Moves a link to another directory, which is a change of the file that has it as its row.
    fn move_link(&self, (links, value): (usize, &[u8]), (dir, to, to_name): (&Node, Ino, &[u8])) -> Result<()> {
        let (_, level) = self.level(to)?;
        let table = &self.tree.links[links];
        let sql = table.write.receive.as_deref().filter(|_| level.links.contains(&links));
        let sql = sql.ok_or_else(|| self.read_only("the link's place"))?;
        if self.value_of(level, to_name).as_deref() != Some(value) {
            return Err(invalid(format!("{}: a link keeps its name", String::from_utf8_lossy(to_name))));
        }
        let name = [(table.column.as_str(), Parameter::Text(value))];
        match self.change_file(FileChange::Replace, (sql, &dir.above), &name, false)?.rows {
            0 => Err(no_place(&String::from_utf8_lossy(to_name))),
            _ => Ok(()),
        }
    }

    /// Creates a directory that stays empty until a row names it.
    pub(super) fn make_directory(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let (dir, level) = self.level(parent)?;
        match self.lookup_any(parent, name) {
            Ok(_) => return Err(Errno::EXIST.into()),
            Err(error) if error.errno == Errno::NOENT => {}
            Err(error) => return Err(error),
        }
        let wrong = || invalid(format!("{}: no row can give a directory this name", String::from_utf8_lossy(name)));
        let Some(named) = level.named.iter().find(|named| named.make.is_some()) else {
            return Err(self.read_only("directories"));
        };
        let value = self.value_of(level, name).ok_or_else(wrong)?;
        let column = self.tree.levels[named.level].column.as_deref().unwrap_or_default();
        if let Some(make) = &named.make {
            let asked = [(column, Parameter::Text(&value))];
            self.first(&mut self.sources.take()?, make, &dir.above, &asked)?.ok_or_else(wrong)?;
        }
        {
            let mut state = self.state();
            let directories = &mut state.writing.directories;
            if directories.len() >= DIRECTORIES {
                return Err(StoreError::storage(
                    Errno::NOSPC,
                    format!("{DIRECTORIES} directories were created already"),
                ));
            }
            directories.insert((parent, named.level, value));
        }
        self.lookup_any(parent, name)
    }

    /// The names of directories that programs have created in a directory.
    pub(super) fn created_directories(&self, parent: Ino, level: usize) -> Vec<Vec<u8>> {
        let state = self.state();
        let directories = state.writing.directories.range((parent, level, Vec::new())..);
        let here = directories.take_while(|it| (it.0, it.1) == (parent, level));
        here.map(|(_, _, value)| value.clone()).collect()
    }

    /// Removes a directory that a program has created, and that no row names.
    pub(super) fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let ino = self.lookup_any(parent, name)?.ino;
        let NodeKind::Level(removed) = self.node(ino)?.what else {
            return Err(Errno::NOTDIR.into());
        };
        let (dir, level) = self.level(parent)?;
        let Some(named) = level.named.iter().find(|named| named.level == removed) else {
            return Err(self.read_only("the directory"));
        };
        let value = self.value_of(level, name).ok_or(Errno::NOENT)?;
        let asked = [(VALUE, Parameter::Text(&value))];
        if self.first(&mut self.sources.take()?, &named.find, &dir.above, &asked)?.is_some() {
            return Err(if self.changes_files() { Errno::NOTEMPTY.into() } else { Errno::ROFS.into() });
        }
        self.state().writing.directories.remove(&(parent, removed, value));
        Ok(Some(ino))
    }
}

/// The most directories that programs create without a row.
const DIRECTORIES: usize = 10_000;
