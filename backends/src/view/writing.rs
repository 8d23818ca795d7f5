//! Changing rows: what is written is gathered, and becomes one statement when the file is closed.
//!
//! A shell closes a file several times: once for each program that inherited it. So a file that was only cut waits for its
//! bytes, and one whose content was refused can be completed by a later write. While one call begins or commits a change,
//! readers go on, and other writers of the file wait.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::MutexGuard;

use super::content::{BODY_MAX, within_limit};
use super::pending::{Alias, Pending, Phase, Row, WAITS, hash, room};
use super::rows::parameters;
use super::source::{Changed, Lent, Parameter, Statement, Text};
use super::tree::{Files, KEY};
use super::{Above, Node, State, ViewStore, What};
use crate::store::{Attr, Errno, Ino, Kind, RenameMode, Result, StoreError, Timestamp};

/// A statement, a row, and the columns of directories above.
type Change<'a> = (&'a str, &'a [(String, Text)], &'a Above);

/// A call that begins or commits a change of a file, or removes it. Others of the file wait until it is dropped.
struct Busy<'a> {
    view: &'a ViewStore,
    ino: Ino,
    /// What becomes of the change; `None`: it is done, or has not begun.
    ends: Option<Pending>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.view.state();
        let pending = &mut state.writing.pending;
        match self.ends.take() {
            Some(ends) => pending.insert(self.ino, ends),
            None => pending.remove(&self.ino),
        };
        self.view.settled.notify_all();
    }
}

fn invalid(reason: impl ToString) -> StoreError {
    StoreError::storage(Errno::INVAL, reason)
}

/// Another writer has changed the row.
fn conflict() -> StoreError {
    let reason =
        "the row is not the one any more that was read: read it again, and repeat the change";
    StoreError::storage(Errno::STALE, reason)
}

fn one_row(changed: Changed) -> Result<Changed> {
    match changed.rows {
        0 => Err(conflict()),
        _ => Ok(changed),
    }
}

fn value(text: &Text) -> Parameter<'_> {
    match text {
        Some(text) => Parameter::Text(text),
        None => Parameter::Null,
    }
}

impl Files {
    /// The content that a row has.
    fn render(&self, row: &[(String, Text)]) -> Result<Vec<u8>> {
        let column = |column| row.iter().find(|(has, _)| has == column);
        let values = self.body.columns().map(column);
        let values = values.map(|it| it.and_then(|(_, text)| text.as_deref()));
        within_limit(self.body.render(values.map(Option::unwrap_or_default)))
    }
}

impl ViewStore {
    /// All columns of a file's row.
    fn row(&self, files: usize, key: i64, above: &Above) -> Result<Row> {
        let files = &self.tree.files[files];
        let key = [(KEY, Parameter::Integer(key))];
        let row = self.first(&mut self.sources.take()?, &files.row, above, &key)?;
        let row = row.ok_or(Errno::NOENT)?;
        Ok(files.columns.iter().cloned().zip(row).collect())
    }

    /// Whether a given name still leads to the row that it was given for.
    pub(super) fn is_same_row(
        &self,
        source: &mut Lent<'_>,
        alias: Alias,
        above: &Above,
    ) -> Result<bool> {
        let key = [(KEY, Parameter::Integer(alias.key))];
        let row = self.first(source, &self.tree.files[alias.files].row, above, &key)?;
        Ok(row.is_some_and(|row| hash(&row) == alias.row))
    }

    /// Remembers a given name of a row, unless the directory does not show the row.
    fn remember(&self, parent: Ino, name: &[u8], (files, key): (usize, i64), above: &Above) {
        let row = match self.row(files, key, above) {
            Ok(row) => row,
            Err(error) => {
                tracing::debug!(%error, "reading a row again: it has only the name that listings show");
                return;
            }
        };
        let values: Vec<Text> = row.into_iter().map(|(_, text)| text).collect();
        let alias = Alias {
            files,
            key,
            row: hash(&values),
        };
        let mut state = self.state();
        room(&mut state.writing.aliases).insert((parent, name.to_vec()), alias);
    }

    /// After this mount has changed a row: it is the one that its given names lead to, and what programs have read.
    fn relearn(&self, ino: Ino, node: &Node) {
        let What::File { files, key } = node.what else {
            return;
        };
        let (names, has_read) = {
            let state = self.state();
            let aliases = state.writing.aliases.iter();
            let names: Vec<Vec<u8>> = aliases
                .filter(|((of, _), it)| *of == node.parent && (it.files, it.key) == (files, key))
                .map(|((_, name), _)| name.clone())
                .collect();
            (names, state.writing.read.contains_key(&ino))
        };
        for name in &names {
            self.remember(node.parent, name, (files, key), &node.above);
        }
        if !has_read {
            return;
        }
        let row = self.row(files, key, &node.above);
        let body = row.and_then(|row| Ok(hash(&self.tree.files[files].render(&row)?)));
        let mut state = self.state();
        match body {
            Ok(body) => state.writing.has_read(ino, body),
            Err(_) => _ = state.writing.read.remove(&ino),
        }
    }

    /// Runs statements in one transaction.
    fn run(&self, statements: &[Change<'_>]) -> Result<Changed> {
        let bound: Vec<_> = (statements.iter())
            .map(|(sql, row, above)| {
                let row = row
                    .iter()
                    .map(|(column, text)| (column.as_str(), value(text)));
                (*sql, parameters(above, &row.collect::<Vec<_>>()))
            })
            .collect();
        let bound: Vec<Statement<'_>> = (bound.iter())
            .map(|(sql, parameters)| (*sql, parameters.as_slice()))
            .collect();
        let mut source = self.sources.take()?;
        bound.iter().for_each(|_| source.count());
        source.change(&bound)
    }

    /// Waits until no other call begins or commits a change of the file. Those calls end with the source's timeouts.
    fn settle(&self, ino: Ino) -> (MutexGuard<'_, State>, bool) {
        let (mut state, mut has_waited) = (self.state(), false);
        while state.writing.is_busy(ino) {
            has_waited = true;
            self.settled.wait(&mut state);
        }
        (state, has_waited)
    }

    /// Makes other changes of files wait, once no call makes one. `None` if a file must be looked up again: a new one may
    /// have its row now.
    fn hold<const N: usize>(&self, files: [(Ino, &Node); N]) -> Option<[Busy<'_>; N]> {
        let mut state = self.state();
        let writing = &mut state.writing;
        if let Some((busy, _)) = files.iter().find(|(ino, _)| writing.is_busy(*ino)) {
            drop(state);
            drop(self.settle(*busy));
            return None;
        }
        let has_row = |(ino, node): &(Ino, &Node)| {
            matches!(node.what, What::New { .. }) && !writing.pending.contains_key(ino)
        };
        if files.iter().any(has_row) {
            return None;
        }
        // All at once: two calls never wait for each other.
        Some(files.map(|(ino, _)| Busy {
            view: self,
            ino,
            ends: writing.hold(ino),
        }))
    }

    /// Begins to change a file, unless that has begun; then changes its bytes. `anew`: a change that was refused begins again,
    /// with the row as it is now.
    fn change(
        &self,
        ino: Ino,
        anew: bool,
        change: impl FnOnce(&mut Pending) -> Result<()>,
    ) -> Result<()> {
        let node = self.node(ino)?;
        loop {
            let (mut state, _) = self.settle(ino);
            let goes_on = |it: &Pending| match it.phase {
                Phase::Refused(_) => !anew && it.touched.elapsed() < WAITS,
                _ => true,
            };
            let pending = state.writing.pending.get_mut(&ino);
            if let Some(pending) = pending.filter(|it| goes_on(it)) {
                pending.touched = Instant::now();
                return change(pending);
            }
            match node.what {
                What::File { files, key } if self.may_update(&node) => {
                    let beginning = Pending::new(Phase::Beginning, Vec::new(), Vec::new());
                    state.writing.pending.insert(ino, beginning);
                    drop(state);
                    let mut busy = Busy {
                        view: self,
                        ino,
                        ends: None,
                    };
                    let row = self.row(files, key, &node.above)?;
                    let bytes = self.tree.files[files].render(&row)?;
                    busy.ends = Some(Pending::new(Phase::Cut, row, bytes));
                }
                // One that was refused; one that was committed has a row and another number.
                What::New { .. } if state.writing.pending.contains_key(&ino) => {
                    let cut = Pending::new(Phase::Cut, Vec::new(), Vec::new());
                    state.writing.pending.insert(ino, cut);
                }
                What::Level(_) => return Err(Errno::ISDIR.into()),
                _ => return Err(Errno::ROFS.into()),
            }
        }
    }

    pub(super) fn resize(&self, ino: Ino, size: u64) -> Result<()> {
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= BODY_MAX)
            .ok_or(Errno::FBIG)?;
        self.change(ino, size == 0, |pending| {
            Arc::make_mut(&mut pending.bytes).resize(size, 0);
            // Nothing need follow: `truncate` only closes the file.
            if size > 0 {
                pending.phase = Phase::Written;
            }
            Ok(())
        })
    }

    pub(super) fn write_pending(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
        let end = start
            .checked_add(data.len())
            .filter(|end| *end <= BODY_MAX)
            .ok_or(Errno::FBIG)?;
        self.change(ino, false, |pending| {
            let bytes = Arc::make_mut(&mut pending.bytes);
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[start..end].copy_from_slice(data);
            pending.phase = Phase::Written;
            Ok(())
        })
    }

    /// Begins a new file. Its row is created when it is closed.
    pub(super) fn begin_new(&self, parent: Ino, name: &[u8], kind: Kind) -> Result<Attr> {
        let (dir, level) = self.level(parent)?;
        let may_insert = |files: &&usize| self.tree.files[**files].write.insert.is_some();
        let files = level.files.iter().find(may_insert).ok_or(Errno::ROFS)?;
        if kind != Kind::File {
            return Err(Errno::PERM.into());
        }
        match self.lookup_any(parent, name) {
            Ok(_) => return Err(Errno::EXIST.into()),
            Err(error) if error.errno == Errno::NOENT => {}
            Err(error) => return Err(error),
        }
        let node = Node {
            what: What::New {
                files: *files,
                name: name.to_vec(),
            },
            above: Arc::clone(&dir.above),
            parent,
        };
        let ino = self.know(node);
        let pending = Pending::new(Phase::Cut, Vec::new(), Vec::new());
        let mut state = self.settle(ino).0;
        if state.writing.size(ino).is_some() {
            return Err(Errno::EXIST.into());
        }
        state.writing.pending.insert(ino, pending);
        Ok(self.attr(ino, Kind::File, 0, Some(Timestamp::now())))
    }

    fn lookup_any(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        match self.pending_of_name(parent, name)? {
            Some(attr) => Ok(attr),
            None => self.find(parent, name),
        }
    }

    /// The attributes of a new file without a row.
    pub(super) fn pending_of_name(&self, parent: Ino, name: &[u8]) -> Result<Option<Attr>> {
        let (dir, level) = self.level(parent)?;
        for files in &level.files {
            if self.tree.files[*files].write.insert.is_none() {
                continue;
            }
            let node = Node {
                what: What::New {
                    files: *files,
                    name: name.to_vec(),
                },
                above: Arc::clone(&dir.above),
                parent,
            };
            let ino = node.ino();
            if let Some(size) = self.state().writing.size(ino) {
                let attr = self.attr(ino, Kind::File, size, Some(Timestamp::now()));
                return Ok(Some(attr));
            }
        }
        Ok(None)
    }

    /// Makes a row of what was written. `is_asked` also takes a file that was only cut. What was refused is tried again if
    /// the source was locked or away, and is refused again otherwise.
    pub(super) fn commit(&self, ino: Ino, is_asked: bool) -> Result<()> {
        let node = match self.node(ino) {
            Ok(node) => node,
            Err(_) => return Ok(()),
        };
        // An insert whose outcome is not known would make a second row.
        let is_new = matches!(node.what, What::New { .. });
        let may_repeat = |errno: Errno| errno == Errno::BUSY || (errno == Errno::IO && !is_new);
        let (row, bytes) = {
            let (mut state, has_waited) = self.settle(ino);
            let Some(pending) = state.writing.pending.get_mut(&ino) else {
                return Ok(());
            };
            match pending.phase {
                Phase::Written => {}
                Phase::Cut if is_asked => {}
                // The commit that this call waited for had the bytes of both.
                Phase::Refused(errno) if has_waited => return Err(errno.into()),
                Phase::Refused(errno) if may_repeat(errno) => {}
                Phase::Refused(errno) => return Err(errno.into()),
                _ => return Ok(()),
            }
            pending.phase = Phase::Committing;
            (Arc::clone(&pending.row), Arc::clone(&pending.bytes))
        };
        let refused = |errno| Pending {
            phase: Phase::Refused(errno),
            row: Arc::clone(&row),
            bytes: Arc::clone(&bytes),
            touched: Instant::now(),
        };
        let mut busy = Busy {
            view: self,
            ino,
            // What a panic leaves.
            ends: Some(refused(Errno::IO)),
        };
        let done = match &node.what {
            What::File { files, .. } => self.update(*files, &node.above, &row, &bytes),
            What::New { files, name } => self.insert(&node, *files, name, &bytes),
            _ => Err(Errno::ROFS.into()),
        };
        busy.ends = match &done {
            Ok(()) => {
                self.relearn(ino, &node);
                self.state().writing.reasons.remove(&ino);
                None
            }
            Err(error) => {
                let reason = error
                    .reason
                    .clone()
                    .unwrap_or_else(|| error.errno.to_string());
                let mut state = self.state();
                state.writing.explain(ino, &reason);
                state.writing.explain(node.parent, &reason);
                Some(refused(error.errno))
            }
        };
        self.state().contents.renew(ino);
        done
    }

    /// The row that new content makes of one.
    fn updated(&self, files: usize, row: &[(String, Text)], bytes: &[u8]) -> Result<(&str, Row)> {
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
            if !described
                .parameters
                .iter()
                .any(|parameter| parameter == column)
            {
                return Err(invalid(format!("`{column}` cannot be changed")));
            }
            *before = Some(text.to_vec());
        }
        Ok((sql, row))
    }

    fn update(
        &self,
        files: usize,
        above: &Above,
        row: &[(String, Text)],
        bytes: &[u8],
    ) -> Result<()> {
        let (sql, row) = self.updated(files, row, bytes)?;
        one_row(self.run(&[(sql, &row, above)])?).map(|_| ())
    }

    fn insert(&self, node: &Node, files: usize, name: &[u8], bytes: &[u8]) -> Result<()> {
        let table = &self.tree.files[files];
        let sql = table.write.insert.as_deref().ok_or(Errno::ROFS)?;
        let values = table.body.take_apart(bytes).map_err(invalid)?;
        let values: Row = values
            .into_iter()
            .map(|(column, text)| (column.to_owned(), Some(text.to_vec())))
            .collect();
        let changed = self.run(&[(sql, &values, &node.above)])?;
        if changed.rows == 0 {
            return Err(invalid("the statement `insert` made no row"));
        }
        if let Some(key) = changed.key {
            self.remember(node.parent, name, (files, key), &node.above);
        }
        Ok(())
    }

    /// Deletes the row of a file, and what was written to it: its writers change nothing any more.
    pub(super) fn delete(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let (ino, node, mut busy) = loop {
            let ino = self.lookup_any(parent, name)?.ino;
            let node = self.node(ino)?;
            if let Some([busy]) = self.hold([(ino, &node)]) {
                break (ino, node, busy);
            }
        };
        match node.what {
            What::New { .. } => {
                busy.ends = None;
                Ok(Some(ino))
            }
            What::File { files, key } => {
                let sql = self.tree.files[files].write.delete.as_deref();
                let sql = sql.ok_or(Errno::ROFS)?;
                let row = self.row(files, key, &node.above)?;
                let deleted = self.run(&[(sql, &row, &node.above)]).and_then(one_row);
                self.explained(parent, deleted)?;
                self.state().writing.forget_row(ino, (files, key));
                busy.ends = None;
                Ok(Some(ino))
            }
            What::Level(_) => Err(Errno::ISDIR.into()),
            _ => Err(Errno::ROFS.into()),
        }
    }

    /// Moves a row to where files of another directory are; or gives its content to the row that has the name, as an editor
    /// does that saves by renaming.
    pub(super) fn move_row(
        &self,
        (from, from_name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<Ino>> {
        if mode == RenameMode::Exchange {
            return Err(Errno::INVAL.into());
        }
        let (ino, node, _busy) = loop {
            let ino = self.lookup_any(from, from_name)?.ino;
            let node = self.node(ino)?;
            match self.lookup_any(to, to_name) {
                Ok(_) if mode != RenameMode::Replace => return Err(Errno::EXIST.into()),
                Ok(target) if target.ino == ino => return Ok(None),
                Ok(target) => {
                    let over = self.node(target.ino)?;
                    if let Some(busy) = self.hold([(ino, &node), (target.ino, &over)]) {
                        return self.save_over(busy, &node, &over);
                    }
                }
                Err(error) if error.errno == Errno::NOENT => {
                    if let Some([busy]) = self.hold([(ino, &node)]) {
                        break (ino, node, busy);
                    }
                }
                Err(error) => return Err(error),
            }
        };
        let What::File { files, key } = node.what else {
            return Err(Errno::ROFS.into());
        };
        let (dir, level) = self.level(to)?;
        let may_receive = |files: &&usize| self.tree.files[**files].write.receive.is_some();
        let into = *level.files.iter().find(may_receive).ok_or(Errno::ROFS)?;
        let sql = self.tree.files[into]
            .write
            .receive
            .as_deref()
            .ok_or(Errno::ROFS)?;
        let row = self.row(files, key, &node.above)?;
        let moved = self.run(&[(sql, &row, &dir.above)]).and_then(one_row);
        self.explained(to, moved)?;
        self.state().writing.forget_row(ino, (files, key));
        self.remember(to, to_name, (into, key), &dir.above);
        Ok(None)
    }

    /// Makes the content of one file that of another, and deletes the first, in one transaction. What was written to the
    /// other one, and has no row yet, is replaced, too.
    fn save_over(
        &self,
        [mut busy, mut busy_over]: [Busy<'_>; 2],
        node: &Node,
        target: &Node,
    ) -> Result<Option<Ino>> {
        let (ino, over) = (busy.ino, busy_over.ino);
        let What::File { files, key } = target.what else {
            return Err(Errno::ROFS.into());
        };
        let written = self.state().writing.bytes(ino).cloned();
        // A file that has no row yet needs no statement.
        let source = match node.what {
            What::File { files, key } => {
                let sql = self.tree.files[files].write.delete.as_deref();
                let row = self.row(files, key, &node.above)?;
                Some((files, key, sql.ok_or(Errno::ROFS)?, row))
            }
            What::New { .. } => None,
            _ => return Err(Errno::ROFS.into()),
        };
        let bytes = match (written, &source) {
            (Some(bytes), _) => bytes,
            (None, Some((files, _, _, row))) => Arc::new(self.tree.files[*files].render(row)?),
            (None, None) => return Err(Errno::NOENT.into()),
        };
        let row = self.row(files, key, &target.above)?;
        let now = hash(&self.tree.files[files].render(&row)?);
        let saved = match self.state().writing.read.get(&over) {
            // The row that the editor read is not this one any more.
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
            if let Some((files, key, ..)) = source {
                state.writing.forget_row(ino, (files, key));
            }
            state.contents.renew(over);
        }
        (busy.ends, busy_over.ends) = (None, None);
        self.relearn(over, target);
        Ok(None)
    }

    fn explained<T>(&self, dir: Ino, result: Result<T>) -> Result<T> {
        if let Err(StoreError {
            reason: Some(reason),
            ..
        }) = &result
        {
            self.state().writing.explain(dir, reason);
        }
        result
    }
}
