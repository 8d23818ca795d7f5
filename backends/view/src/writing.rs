//! Changes of rows: an open file gathers its writes in a draft, which becomes one statement when the file is closed.
//!
//! A shell closes a file several times: once for each program that inherited it. So a close commits no file that was
//! only truncated, and a later write of the same open file can complete refused content. Each open file has its own
//! draft. Readers see the row. Of two writers, the source refuses the one whose draft began with an outdated row.

use std::sync::Arc;

use fuse::store::{Attr, Errno, Ino, Kind, NewNode, RenameMode, Result, StoreError, Timestamp};

use crate::content::within_limit;
use crate::draft::{Alias, Draft, Occasion, Phase, Row, Writer, hash, room};
use crate::rows::parameters;
use crate::source::{BODY_MAX, BoundStatement, Parameter, PooledConnection, Text, TransactionResult};
use crate::tree::{Files, KEY, NUMBER};
use crate::{Node, NodeKind, ParentValues, State, ViewStore};

/// A statement, a row, and the columns of directories above.
type Change<'a> = (&'a str, &'a [(String, Text)], &'a ParentValues);

/// Marks files that a call begins to change, commits or removes. Other such calls wait until it is dropped.
pub(super) struct Busy<'a> {
    view: &'a ViewStore,
    files: Vec<NodeKind>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.view.state();
        for file in &self.files {
            state.writing.busy.remove(file);
        }
        self.view.settled.notify_all();
    }
}

impl State {
    /// Marks the writers of a removed or replaced file: their content reaches no row.
    pub(super) fn remove_writers(&self, file: &NodeKind) {
        for writer in self.writing.writers.values() {
            let node = self.nodes.get(writer.ino);
            if node.is_some_and(|node| node.what == *file) {
                writer.remove();
            }
        }
    }
}

pub(super) fn invalid(reason: impl ToString) -> StoreError {
    StoreError::storage(Errno::INVAL, reason)
}

/// The error after another writer has changed the row.
pub(super) fn conflict() -> StoreError {
    let reason = "the row has changed since it was read: read the file again, and repeat the change";
    StoreError::storage(Errno::STALE, reason)
}

/// The error of a write to a removed file.
fn removed() -> StoreError {
    let reason = "the file was deleted, or replaced by a rename, since it was opened: open it again";
    StoreError::storage(Errno::STALE, reason)
}

fn one_row(changed: TransactionResult) -> Result<TransactionResult> {
    match changed.rows {
        0 => Err(conflict()),
        _ => Ok(changed),
    }
}

/// The value of a column as a parameter: a number, if the column has no type and the row has a number in it.
pub(super) fn value<'a>(row: &'a [(String, Text)], column: &str, text: &'a Text) -> Parameter<'a> {
    let number = |text: &[u8]| {
        let text = std::str::from_utf8(text).ok();
        text.is_some_and(|it| it.ends_with(|end: char| end.is_ascii_digit()) && it.parse::<f64>().is_ok())
    };
    let held_number = |(has, number): &(String, Text)| has.strip_prefix(NUMBER) == Some(column) && number.is_some();
    match text {
        None => Parameter::Null,
        Some(text) if number(text) && row.iter().any(held_number) => Parameter::Number(text),
        Some(text) => Parameter::Text(text),
    }
}

impl Files {
    /// A row's values, in the order of the body's columns.
    fn body_values<'a>(&'a self, row: &'a [(String, Text)]) -> impl Iterator<Item = &'a [u8]> {
        self.body.columns().map(move |column| {
            let found = row.iter().find(|(has, _)| has == column);
            let text = found.and_then(|(_, text)| text.as_deref());
            text.unwrap_or_default()
        })
    }

    /// The content of a row's file.
    pub(super) fn render(&self, row: &[(String, Text)]) -> Result<Vec<u8>> {
        within_limit(self.body.render(self.body_values(row)))
    }

    /// The content of a row's file; an error if an edited content would not tell which columns have changed.
    fn editable(&self, row: &[(String, Text)]) -> Result<Vec<u8>> {
        let content = self.render(row)?;
        let comes_back = (self.body).comes_back(&content, self.body_values(row));
        comes_back.map(|()| content).map_err(invalid)
    }
}

/// Why a file cannot get a name: a row could give it to a directory or a link.
fn of_a_directory(name: &[u8]) -> StoreError {
    let name = String::from_utf8_lossy(name);
    let reason = format!("{name:?}: a directory or a link of the same directory can have this name");
    StoreError::storage(Errno::INVAL, reason)
}

impl ViewStore {
    /// All columns of a file's row.
    pub(super) fn row(&self, files: usize, key: i64, above: &ParentValues) -> Result<Row> {
        let files = &self.tree.files[files];
        let key = [(KEY, Parameter::Integer(key))];
        let row = self.first(&mut self.sources.take()?, &files.row, above, &key)?;
        let row = row.ok_or(Errno::NOENT)?;
        Ok(files.columns.iter().cloned().zip(row).collect())
    }

    /// Whether the row of an alias is still the one that the alias was given for.
    pub(super) fn is_same_row(
        &self,
        source: &mut PooledConnection<'_>,
        alias: Alias,
        above: &ParentValues,
    ) -> Result<bool> {
        let key = [(KEY, Parameter::Integer(alias.key))];
        let row = self.first(source, &self.tree.files[alias.files].row, above, &key)?;
        Ok(row.is_some_and(|row| hash(&row) == alias.row))
    }

    /// Adds an alias of a row, unless the row cannot be read in the directory.
    fn remember(&self, parent: Ino, name: &[u8], (files, key): (usize, i64), above: &ParentValues) {
        let row = match self.row(files, key, above) {
            Ok(row) => row,
            Err(error) => {
                tracing::debug!(%error, "reading a row again: it has only the name that listings show");
                return;
            }
        };
        let values: Vec<Text> = row.into_iter().map(|(_, text)| text).collect();
        let alias = Alias { files, key, row: hash(&values) };
        let mut state = self.state();
        room(&mut state.writing.aliases).insert((parent, name.to_vec()), alias);
    }

    /// The initial draft of a change of a file; `None` if the file cannot be changed.
    pub(super) fn draft(&self, node: &Node) -> Result<Option<Draft>> {
        let (phase, row, bytes, kept) = match node.what {
            NodeKind::File { files, key } if self.may_update(node) => {
                let row = self.row(files, key, &node.above)?;
                let bytes = self.explained(node.ino(), self.tree.files[files].editable(&row))?;
                let kept = Some(bytes.len());
                (Phase::Clean, Some(row), bytes, kept)
            }
            NodeKind::New { .. } => (Phase::Cut, None, Vec::new(), Some(0)),
            _ => return Ok(None),
        };
        Ok(Some(Draft { phase, row, bytes, kept }))
    }

    /// Updates the hashes of a row that this mount has changed: those of its aliases, and that of the content last
    /// read. Returns the new draft, if the file can be changed further.
    fn relearn(&self, node: &Node) -> Option<Draft> {
        let NodeKind::File { files, key } = node.what else {
            return None;
        };
        let now = self.draft(node).ok().flatten();
        let mut state = self.state();
        let writing = &mut state.writing;
        let Some((draft, row)) = now.as_ref().and_then(|it| Some((it, it.row.as_ref()?))) else {
            writing.read.remove(&node.ino());
            return None;
        };
        let values: Vec<&Text> = row.iter().map(|(_, text)| text).collect();
        for ((parent, _), alias) in &mut writing.aliases {
            if *parent == node.parent && (alias.files, alias.key) == (files, key) {
                alias.row = hash(&values);
            }
        }
        if let Some(read) = writing.read.get_mut(&node.ino()) {
            *read = hash(&draft.bytes);
        }
        now
    }

    /// Runs statements in one transaction.
    fn run(&self, statements: &[Change<'_>]) -> Result<TransactionResult> {
        let bound: Vec<_> = (statements.iter())
            .map(|(sql, row, above)| {
                let row = (row.iter()).map(|(column, text)| (column.as_str(), value(row, column, text)));
                (*sql, parameters(above, &row.collect::<Vec<_>>()))
            })
            .collect();
        let bound: Vec<BoundStatement<'_>> =
            (bound.iter()).map(|(sql, parameters)| (*sql, parameters.as_slice())).collect();
        let (_turn, mut source) = self.sources.take_to_change()?;
        bound.iter().for_each(|_| source.count());
        source.change(&bound)
    }

    /// Waits until no call changes the files, and makes later changes of them wait. `None` if the files must be looked
    /// up again: after a wait, or because a new file has a row by now.
    pub(super) fn hold(&self, files: &[(Ino, &Node)]) -> Option<Busy<'_>> {
        let mut state = self.state();
        let is_busy = |state: &State| {
            let mut files = files.iter();
            files.any(|(_, node)| state.writing.busy.contains(&node.what))
        };
        if is_busy(&state) {
            // The source's timeouts end the calls that make those changes.
            while is_busy(&state) {
                self.settled.wait(&mut state);
            }
            return None;
        }
        let is_same = |(ino, node): &(Ino, &Node)| {
            let known = state.nodes.get(*ino);
            known.is_some_and(|known| known.what == node.what)
        };
        if !files.iter().all(is_same) {
            return None;
        }
        let files: Vec<NodeKind> = files.iter().map(|(_, node)| node.what.clone()).collect();
        // Mark all files at once, so that two calls never wait for each other.
        state.writing.busy.extend(files.iter().cloned());
        Some(Busy { view: self, files })
    }

    /// As [`Self::hold`], of a file that the kernel holds.
    fn hold_open(&self, ino: Ino) -> Result<(Arc<Node>, Busy<'_>)> {
        loop {
            let node = self.node(ino)?;
            if let Some(busy) = self.hold(&[(ino, &node)]) {
                return Ok((node, busy));
            }
        }
    }

    /// Opens a file for writing. Its draft begins with the row as it is now.
    pub(super) fn open_writer(&self, ino: Ino) -> Result<u64> {
        let (node, _busy) = self.hold_open(ino)?;
        let draft = self.draft(&node)?;
        let mut state = self.state();
        let handle = state.contents.open();
        if let Some(draft) = draft {
            let writer = Arc::new(Writer::new(ino, draft));
            state.writing.writers.insert(handle, writer);
        }
        Ok(handle)
    }

    pub(super) fn writer(&self, handle: u64) -> Option<Arc<Writer>> {
        self.state().writing.writers.get(&handle).cloned()
    }

    /// Changes the draft of an open file.
    fn change(&self, handle: u64, change: impl FnOnce(&Writer, &mut Draft) -> Result<()>) -> Result<()> {
        let writer = self.writer(handle).ok_or_else(|| self.read_only("the file's content"))?;
        let mut draft = writer.draft.lock();
        if writer.is_removed() { Err(removed()) } else { change(&writer, &mut draft) }
    }

    pub(super) fn resize(&self, handle: u64, size: u64) -> Result<()> {
        let size = usize::try_from(size).ok().filter(|size| *size <= BODY_MAX).ok_or(Errno::FBIG)?;
        self.change(handle, |writer, draft| {
            match (draft.phase, size) {
                // The insert may have made the row.
                (Phase::Refused(Errno::IO), _) if draft.row.is_none() => {
                    return Err(Errno::IO.into());
                }
                // A truncation begins a refused change again, with the present row.
                (Phase::Refused(_) | Phase::Outdated, 0) => {
                    let node = self.node(writer.ino)?;
                    *draft = self.draft(&node)?.ok_or(Errno::ROFS)?;
                }
                (Phase::Outdated, _) => return Err(conflict()),
                _ => {}
            }
            draft.bytes.resize(size, 0);
            draft.kept = None;
            draft.phase = match size {
                0 => Phase::Cut,
                _ => Phase::Written,
            };
            Ok(())
        })
    }

    /// Sets the size of a file that the caller has not opened, and commits that change.
    pub(super) fn resize_row(&self, ino: Ino, size: u64) -> Result<()> {
        let handle = self.open_writer(ino)?;
        let resized = self.resize(handle, size);
        let has_row = !matches!(self.node(ino)?.what, NodeKind::New { .. });
        let occasion = if has_row || self.changes_files() { Occasion::End } else { Occasion::Close };
        let committed = resized.and_then(|()| self.commit(handle, occasion));
        self.state().writing.release(handle);
        committed
    }

    /// Writes at an offset, or at the end.
    pub(super) fn write_draft(&self, handle: u64, offset: Option<u64>, data: &[u8]) -> Result<()> {
        self.change(handle, |writer, draft| {
            match draft.phase {
                // Another program has appended, too: its lines stay.
                Phase::Outdated if offset.is_none() && self.changes_files() => {
                    let node = self.node(writer.ino)?;
                    *draft = self.draft(&node)?.ok_or(Errno::ROFS)?;
                }
                Phase::Outdated => return Err(conflict()),
                // The insert may have made the row: another commit could make a second one.
                Phase::Refused(Errno::IO) if draft.row.is_none() => return Err(Errno::IO.into()),
                _ => {}
            }
            let start = match offset {
                Some(offset) => {
                    draft.kept = None;
                    usize::try_from(offset).map_err(|_| Errno::FBIG)?
                }
                None => draft.bytes.len(),
            };
            let end = start.checked_add(data.len()).filter(|end| *end <= BODY_MAX).ok_or(Errno::FBIG)?;
            if draft.bytes.len() < end {
                draft.bytes.resize(end, 0);
            }
            draft.bytes[start..end].copy_from_slice(data);
            draft.phase = Phase::Written;
            Ok(())
        })
    }

    /// Begins a new file. Its row is created when it is closed.
    pub(super) fn begin_new(&self, parent: Ino, name: &[u8], new: &NewNode<'_>) -> Result<Attr> {
        let (dir, level) = self.level(parent)?;
        let may_insert = |files: &&usize| self.tree.files[**files].write.insert.is_some();
        let files = level.files.iter().find(may_insert).ok_or_else(|| self.read_only("new files in the directory"))?;
        if new.kind != Kind::File {
            return Err(Errno::PERM.into());
        }
        match self.changes_files() {
            // Any file of a directory: if no row shows it, a program may rename it to a name that a row gives.
            true => self.given_name(name).map(|_| ())?,
            false if !self.tree.may_name(level, name) => return Err(of_a_directory(name)),
            false => {}
        }
        match self.lookup_any(parent, name) {
            Ok(_) => return Err(Errno::EXIST.into()),
            Err(error) if error.errno == Errno::NOENT => {}
            Err(error) => return Err(error),
        }
        let mut state = self.state();
        if state.writing.new_file(parent, name).is_some() {
            return Err(Errno::EXIST.into());
        }
        state.writing.created += 1;
        let what = NodeKind::New { files: *files, name: name.to_vec(), number: state.writing.created };
        let node = dir.child(parent, what);
        state.writing.add_new(name, node.clone(), new.permissions);
        let ino = state.nodes.know(node);
        Ok(self.attr(ino, Kind::File, 0, Some(Timestamp::now())))
    }

    pub(super) fn lookup_any(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let mut state = self.state();
        let Some(new) = state.writing.new_file(parent, name).cloned() else {
            drop(state);
            return self.find(parent, name);
        };
        let ino = state.nodes.know(new);
        Ok(self.attr(ino, Kind::File, 0, Some(Timestamp::now())))
    }

    /// Commits the draft of an open file. Tries a refused draft again if the source was locked or unreachable; returns the
    /// same error otherwise.
    pub(super) fn commit(&self, handle: u64, occasion: Occasion) -> Result<()> {
        let Some(writer) = self.writer(handle) else {
            return Ok(());
        };
        if matches!(writer.draft.lock().phase, Phase::Clean | Phase::Outdated) {
            return Ok(());
        }
        let (node, _busy) = self.hold_open(writer.ino)?;
        let mut draft = writer.draft.lock();
        if writer.is_removed() {
            return Ok(());
        }
        // Repeating an insert whose outcome is unknown could make a second row.
        let is_new = matches!(node.what, NodeKind::New { .. });
        match draft.phase {
            Phase::Written => {}
            Phase::Cut if occasion != Occasion::Close => {}
            Phase::Refused(Errno::BUSY) => {}
            Phase::Refused(Errno::IO) if !is_new => {}
            Phase::Refused(errno) => return Err(errno.into()),
            _ => return Ok(()),
        }
        // The phase that a panic leaves.
        draft.phase = Phase::Refused(Errno::IO);
        let is_durable = occasion == Occasion::Sync;
        let done = match (&node.what, &draft.row) {
            (NodeKind::File { files, key }, Some(row)) if self.changes_files() => {
                self.replace_file((*files, *key), &node.above, (row, &draft), is_durable)
            }
            (NodeKind::File { files, .. }, Some(row)) => self.update(*files, &node.above, row, &draft.bytes),
            (NodeKind::New { .. }, _) if self.changes_files() => {
                self.create_file(&node, &writer, &draft.bytes, is_durable)
            }
            (NodeKind::New { files, name, .. }, _) => self.insert(&node, &writer, (*files, name), &draft.bytes),
            // Another open file has made the row.
            (NodeKind::File { files, key }, None) if self.changes_files() => {
                let row = self.row(*files, *key, &node.above);
                row.and_then(|row| self.replace_file((*files, *key), &node.above, (&row, &draft), is_durable))
            }
            (NodeKind::File { .. }, None) => Err(conflict()),
            _ => Err(Errno::ROFS.into()),
        };
        match &done {
            Ok(()) => {
                let node = self.node(writer.ino).ok();
                let now = node.and_then(|node| self.relearn(&node));
                match now.filter(|now| now.bytes == draft.bytes) {
                    Some(now) => *draft = now,
                    None => draft.phase = Phase::Outdated,
                }
                self.state().writing.reasons.remove(&writer.ino);
            }
            Err(error) => {
                draft.phase = Phase::Refused(error.errno);
                let reason = error.reason.clone().unwrap_or_else(|| error.errno.to_string());
                let mut state = self.state();
                state.writing.explain(writer.ino, &reason);
                state.writing.explain(node.parent, &reason);
                if let NodeKind::New { name, .. } = &node.what {
                    // A program that saves again creates another file.
                    state.writing.remove_new((node.parent, name), &node.what);
                }
            }
        }
        self.state().contents.renew(node.ino());
        done
    }

    /// Commits the written drafts of all open files.
    pub(super) fn commit_all(&self) -> Result<()> {
        let writers = self.state().writing.writers.clone();
        let written = (writers.iter()).filter(|(_, it)| it.draft.lock().phase == Phase::Written);
        let commits = written.map(|(handle, _)| self.commit(*handle, Occasion::Close));
        // Commit the rest also after an error.
        commits.fold(Ok(()), Result::and)
    }

    /// The update statement, and the row with the values of new content.
    pub(super) fn updated(&self, files: usize, row: &[(String, Text)], bytes: &[u8]) -> Result<(&str, Row)> {
        let files = &self.tree.files[files];
        let sql = files.write.update.as_deref().ok_or(Errno::ROFS)?;
        let described = self.sources.take()?.describe(sql, true).map_err(invalid)?;
        let mut row = row.to_vec();
        for (column, text) in files.body.take_apart(bytes).map_err(invalid)? {
            let Some((_, before)) = row.iter_mut().find(|(has, _)| has == column) else {
                continue;
            };
            if before.as_deref().unwrap_or_default() == text {
                continue;
            }
            if !described.parameters.iter().any(|parameter| parameter == column) {
                return Err(invalid(format!("`{column}` cannot be changed")));
            }
            *before = Some(text.to_vec());
        }
        Ok((sql, row))
    }

    fn update(&self, files: usize, above: &ParentValues, row: &[(String, Text)], bytes: &[u8]) -> Result<()> {
        let (sql, row) = self.updated(files, row, bytes)?;
        one_row(self.run(&[(sql, &row, above)])?).map(|_| ())
    }

    fn insert(&self, node: &Node, writer: &Writer, (files, name): (usize, &[u8]), bytes: &[u8]) -> Result<()> {
        let table = &self.tree.files[files];
        let sql = table.write.insert.as_deref().ok_or(Errno::ROFS)?;
        let values = table.body.take_apart(bytes).map_err(invalid)?;
        let values: Row = values.into_iter().map(|(column, text)| (column.to_owned(), Some(text.to_vec()))).collect();
        let changed = self.run(&[(sql, &values, &node.above)])?;
        if changed.rows == 0 {
            return Err(invalid("the statement `insert` created no row"));
        }
        match changed.key {
            Some(key) => {
                let row = Node { what: NodeKind::File { files, key }, ..node.clone() };
                self.state().nodes.replace(writer.ino, row);
                self.remember(node.parent, name, (files, key), &node.above);
            }
            None => writer.remove(),
        }
        // Remove the new file only after its row is known, so that a look-up always finds one of the two.
        self.state().writing.remove_new((node.parent, name), &node.what);
        Ok(())
    }

    /// Deletes the row of a file; its open writers then change nothing.
    pub(super) fn delete(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let (ino, node, _busy) = loop {
            let ino = self.lookup_any(parent, name)?.ino;
            let node = self.node(ino)?;
            if let Some(busy) = self.hold(&[(ino, &node)]) {
                break (ino, node, busy);
            }
        };
        match node.what {
            NodeKind::New { .. } => {
                self.state().writing.remove_new((parent, name), &node.what);
            }
            NodeKind::File { files, key } if self.changes_files() => {
                let removed = self.remove_file(&node, (files, key));
                self.explained(parent, removed)?;
                self.state().writing.forget_row(ino, (files, key));
            }
            NodeKind::Link { .. } if self.changes_files() => {
                self.remove_link(&node)?;
                return Ok(Some(ino));
            }
            NodeKind::File { files, key } => {
                let sql = self.tree.files[files].write.delete.as_deref();
                let sql = sql.ok_or_else(|| self.read_only("the file's name"))?;
                let row = self.row(files, key, &node.above)?;
                let deleted = self.run(&[(sql, &row, &node.above)]).and_then(one_row);
                self.explained(parent, deleted)?;
                self.state().writing.forget_row(ino, (files, key));
            }
            NodeKind::Level(_) => return Err(Errno::ISDIR.into()),
            _ => return Err(self.read_only("the file")),
        }
        self.state().remove_writers(&node.what);
        Ok(Some(ino))
    }

    /// The uncommitted content that the newest writing open file has for a file.
    fn written(&self, file: &NodeKind) -> Option<Vec<u8>> {
        let state = self.state();
        // Compare nodes, not inode numbers: a file that was created here has another number than its row.
        let is_of = |it: &Writer| (state.nodes.get(it.ino)).is_some_and(|it| it.what == *file);
        let writers = state.writing.writers.iter().filter(|(_, it)| is_of(it));
        let mut writers: Vec<_> = writers.map(|(handle, it)| (*handle, Arc::clone(it))).collect();
        drop(state);
        writers.sort_by_key(|(handle, _)| *handle);
        writers.into_iter().rev().find_map(|(_, writer)| {
            let draft = writer.draft.lock();
            (draft.phase == Phase::Written).then(|| draft.bytes.clone())
        })
    }

    /// Moves a row to another directory. If the new name exists, gives the content to that file's row instead, for
    /// editors that save by renaming.
    pub(super) fn move_row(
        &self,
        (from, from_name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<Ino>> {
        if mode == RenameMode::Exchange || mode.leaves_whiteout() {
            return Err(Errno::INVAL.into());
        }
        if self.changes_files() {
            return self.move_file((from, from_name), (to, to_name), mode);
        }
        let (ino, node, _busy) = loop {
            let ino = self.lookup_any(from, from_name)?.ino;
            let node = self.node(ino)?;
            match self.lookup_any(to, to_name) {
                Ok(_) if mode != RenameMode::Replace => return Err(Errno::EXIST.into()),
                Ok(target) if target.ino == ino => return Ok(None),
                Ok(target) => {
                    let over = self.node(target.ino)?;
                    if let Some(_busy) = self.hold(&[(ino, &node), (target.ino, &over)]) {
                        return self.save_over((ino, &node), &over);
                    }
                }
                Err(error) if error.errno == Errno::NOENT => {
                    if let Some(busy) = self.hold(&[(ino, &node)]) {
                        break (ino, node, busy);
                    }
                }
                Err(error) => return Err(error),
            }
        };
        let NodeKind::File { files, key } = node.what else {
            return Err(Errno::ROFS.into());
        };
        let (dir, level) = self.level(to)?;
        let may_receive = |files: &&usize| self.tree.files[**files].write.receive.is_some();
        let into = *level.files.iter().find(may_receive).ok_or(Errno::ROFS)?;
        if !self.tree.may_name(level, to_name) {
            return Err(of_a_directory(to_name));
        }
        let sql = self.tree.files[into].write.receive.as_deref().ok_or(Errno::ROFS)?;
        let row = self.row(files, key, &node.above)?;
        let moved = self.run(&[(sql, &row, &dir.above)]).and_then(one_row);
        self.explained(to, moved)?;
        self.state().writing.forget_row(ino, (files, key));
        self.remember(to, to_name, (into, key), &dir.above);
        Ok(None)
    }

    /// Gives the content of a file to `target`, and deletes the file, in one transaction. Drops uncommitted writes to
    /// the target. The caller holds both.
    fn save_over(&self, (ino, node): (Ino, &Node), target: &Node) -> Result<Option<Ino>> {
        let NodeKind::File { files, key } = target.what else {
            return Err(Errno::ROFS.into());
        };
        // A file that has no row yet needs no statement.
        let source = match node.what {
            NodeKind::File { files, key } => {
                let sql = self.tree.files[files].write.delete.as_deref();
                let row = self.row(files, key, &node.above)?;
                Some((files, key, sql.ok_or(Errno::ROFS)?, row))
            }
            NodeKind::New { .. } => None,
            _ => return Err(Errno::ROFS.into()),
        };
        let bytes = match (self.written(&node.what), &source) {
            (Some(bytes), _) => bytes,
            (None, Some((files, _, _, row))) => self.tree.files[*files].render(row)?,
            (None, None) => Vec::new(),
        };
        let row = self.row(files, key, &target.above)?;
        let now = hash(&self.explained(target.parent, self.tree.files[files].editable(&row))?);
        let saved = match self.state().writing.read.get(&target.ino()) {
            // The row has changed since the editor read it.
            Some(read) if *read != now => Err(conflict()),
            _ => Ok(()),
        };
        let saved = saved.and_then(|()| self.updated(files, &row, &bytes));
        let saved = saved.and_then(|(update, row)| {
            let mut statements = vec![(update, row.as_slice(), &target.above)];
            if let Some((_, _, delete, row)) = &source {
                statements.push((delete, row, &node.above));
            }
            one_row(self.run(&statements)?)
        });
        self.explained(target.parent, saved)?;
        {
            let mut state = self.state();
            match (source, &node.what) {
                (Some((files, key, ..)), _) => state.writing.forget_row(ino, (files, key)),
                (None, NodeKind::New { name, .. }) => {
                    state.writing.remove_new((node.parent, name), &node.what);
                }
                (None, _) => {}
            }
            state.remove_writers(&node.what);
            state.remove_writers(&target.what);
            state.contents.renew(target.ino());
        }
        self.relearn(target);
        Ok(None)
    }

    pub(super) fn explained<T>(&self, dir: Ino, result: Result<T>) -> Result<T> {
        if let Err(StoreError { reason: Some(reason), .. }) = &result {
            self.state().writing.explain(dir, reason);
        }
        result
    }
}
