//! Changing rows: what is written is gathered, and becomes one statement when the file is closed.
//!
//! A shell closes a file several times: once for each program that inherited it. So a file that was only cut waits for its
//! bytes, and one whose content was refused can be completed by a later write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::content::BODY_MAX;
use super::rows::parameters;
use super::source::{Changed, Parameter, Text};
use super::tree::KEY;
use super::{Above, Node, ViewStore, What};
use crate::store::{Attr, Errno, Ino, Kind, RenameMode, Result, StoreError, Timestamp};

/// How long a file that was cut, or refused, waits for more.
const WAITS: Duration = Duration::from_secs(5);

/// Names and reasons that are remembered.
const REMEMBERED: usize = 10_000;

/// A file's content on its way to its row.
#[derive(Debug)]
struct Pending {
    /// The row when this began, by column; empty for a new file.
    row: Vec<(String, Text)>,
    bytes: Vec<u8>,
    is_written: bool,
    /// The source has refused it; readers see the row.
    is_refused: bool,
    touched: Instant,
}

/// What is being changed.
#[derive(Debug, Default)]
pub(super) struct Writing {
    pending: HashMap<Ino, Pending>,
    /// Names that files were created under, and moved to; their rows give them other names.
    aliases: HashMap<(Ino, Vec<u8>), (usize, i64)>,
    reasons: HashMap<Ino, String>,
}

impl Writing {
    fn shown(&self, ino: Ino) -> Option<&Pending> {
        self.pending
            .get(&ino)
            .filter(|it| !it.is_refused && (it.is_written || it.touched.elapsed() < WAITS))
    }

    pub(super) fn size(&self, ino: Ino) -> Option<u64> {
        self.shown(ino).map(|it| it.bytes.len() as u64)
    }

    pub(super) fn bytes(&self, ino: Ino) -> Option<&[u8]> {
        self.shown(ino).map(|it| it.bytes.as_slice())
    }

    /// Whether content waits for its row, or was refused a moment ago.
    pub(super) fn is_pending(&self, ino: Ino) -> bool {
        let waits = |it: &Pending| it.is_written && !it.is_refused || it.touched.elapsed() < WAITS;
        self.pending.get(&ino).is_some_and(waits)
    }

    pub(super) fn pending(&self) -> Vec<Ino> {
        let written = self
            .pending
            .iter()
            .filter(|(_, it)| it.is_written && !it.is_refused);
        written.map(|(ino, _)| *ino).collect()
    }

    pub(super) fn alias(&self, parent: Ino, name: &[u8]) -> Option<(usize, i64)> {
        // Not worth a key of its own for each look-up where there are none.
        match self.aliases.is_empty() {
            true => None,
            false => self.aliases.get(&(parent, name.to_vec())).copied(),
        }
    }

    fn remember(&mut self, parent: Ino, name: &[u8], row: (usize, i64)) {
        if self.aliases.len() >= REMEMBERED {
            self.aliases.clear();
        }
        self.aliases.insert((parent, name.to_vec()), row);
    }

    pub(super) fn reason(&self, ino: Ino) -> Option<&str> {
        self.reasons.get(&ino).map(String::as_str)
    }

    fn explain(&mut self, ino: Ino, reason: &str) {
        if self.reasons.len() >= REMEMBERED {
            self.reasons.clear();
        }
        self.reasons.insert(ino, reason.to_owned());
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

impl ViewStore {
    /// All columns of a file's row.
    fn row(&self, files: usize, key: i64, above: &Above) -> Result<Vec<(String, Text)>> {
        let files = &self.tree.files[files];
        let key = [(KEY, Parameter::Integer(key))];
        let row = self.first(&mut self.sources.take()?, &files.row, above, &key)?;
        let row = row.ok_or(Errno::NOENT)?;
        Ok(files.columns.iter().cloned().zip(row).collect())
    }

    /// Runs a statement with a row and the columns of directories above as parameters.
    fn run(&self, sql: &str, row: &[(String, Text)], above: &Above) -> Result<Changed> {
        let row: Vec<(&str, Parameter<'_>)> = row
            .iter()
            .map(|(column, text)| (column.as_str(), value(text)))
            .collect();
        let parameters = parameters(above, &row);
        let mut source = self.sources.take()?;
        source.count();
        source.change(sql, &parameters)
    }

    /// Begins to change a file, unless that has begun; then changes its bytes.
    fn change(&self, ino: Ino, change: impl FnOnce(&mut Pending) -> Result<()>) -> Result<()> {
        let node = self.node(ino)?;
        let begun = |it: &Pending| !it.is_refused || it.touched.elapsed() < WAITS;
        let has_begun = self.state().writing.pending.get(&ino).is_some_and(begun);
        if !has_begun {
            let pending = match &node.what {
                What::File { files, key } => {
                    if self.tree.files[*files].write.update.is_none() {
                        return Err(Errno::ROFS.into());
                    }
                    let row = self.row(*files, *key, &node.above)?;
                    Pending {
                        row,
                        bytes: self.body(&mut self.sources.take()?, ino, &node)?.to_vec(),
                        is_written: false,
                        is_refused: false,
                        touched: Instant::now(),
                    }
                }
                What::Level(_) => return Err(Errno::ISDIR.into()),
                _ => return Err(Errno::ROFS.into()),
            };
            self.state().writing.pending.insert(ino, pending);
        }
        let mut state = self.state();
        let pending = state.writing.pending.get_mut(&ino).ok_or(Errno::IO)?;
        pending.touched = Instant::now();
        change(pending)
    }

    pub(super) fn resize(&self, ino: Ino, size: u64) -> Result<()> {
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= BODY_MAX)
            .ok_or(Errno::FBIG)?;
        self.change(ino, |pending| {
            pending.bytes.resize(size, 0);
            // Begun anew.
            pending.is_refused &= size > 0;
            Ok(())
        })
    }

    pub(super) fn write_pending(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
        let end = start
            .checked_add(data.len())
            .filter(|end| *end <= BODY_MAX)
            .ok_or(Errno::FBIG)?;
        self.change(ino, |pending| {
            if pending.bytes.len() < end {
                pending.bytes.resize(end, 0);
            }
            pending.bytes[start..end].copy_from_slice(data);
            (pending.is_written, pending.is_refused) = (true, false);
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
        if self.lookup_any(parent, name).is_ok() {
            return Err(Errno::EXIST.into());
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
        let pending = Pending {
            row: Vec::new(),
            bytes: Vec::new(),
            is_written: false,
            is_refused: false,
            touched: Instant::now(),
        };
        self.state().writing.pending.insert(ino, pending);
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

    /// Makes a row of what was written. `is_asked` also takes a file that was only cut.
    pub(super) fn commit(&self, ino: Ino, is_asked: bool) -> Result<()> {
        let node = match self.node(ino) {
            Ok(node) => node,
            Err(_) => return Ok(()),
        };
        let (row, bytes) = {
            let mut state = self.state();
            let waits = |it: &Pending| it.is_refused || !(it.is_written || is_asked);
            match state.writing.pending.get_mut(&ino) {
                Some(pending) if !waits(pending) => (
                    std::mem::take(&mut pending.row),
                    std::mem::take(&mut pending.bytes),
                ),
                _ => return Ok(()),
            }
        };
        let done = match &node.what {
            What::File { files, .. } => self.update(*files, &node.above, &row, &bytes),
            What::New { files, name } => self.insert(&node, *files, name, &bytes),
            _ => Err(Errno::ROFS.into()),
        };
        let mut state = self.state();
        state.contents.renew(ino);
        let writing = &mut state.writing;
        match done {
            Ok(()) => {
                writing.pending.remove(&ino);
                writing.reasons.remove(&ino);
                Ok(())
            }
            Err(error) => {
                let reason = error
                    .reason
                    .clone()
                    .unwrap_or_else(|| error.errno.to_string());
                writing.explain(ino, &reason);
                writing.explain(node.parent, &reason);
                if let Some(pending) = writing.pending.get_mut(&ino) {
                    (pending.row, pending.bytes) = (row, bytes);
                    pending.is_refused = true;
                }
                Err(error)
            }
        }
    }

    fn update(
        &self,
        files: usize,
        above: &Above,
        row: &[(String, Text)],
        bytes: &[u8],
    ) -> Result<()> {
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
        one_row(self.run(sql, &row, above)?).map(|_| ())
    }

    fn insert(&self, node: &Node, files: usize, name: &[u8], bytes: &[u8]) -> Result<()> {
        let table = &self.tree.files[files];
        let sql = table.write.insert.as_deref().ok_or(Errno::ROFS)?;
        let values = table.body.take_apart(bytes).map_err(invalid)?;
        let values: Vec<(String, Text)> = values
            .into_iter()
            .map(|(column, text)| (column.to_owned(), Some(text.to_vec())))
            .collect();
        let changed = self.run(sql, &values, &node.above)?;
        if let Some(key) = changed.key {
            self.state()
                .writing
                .remember(node.parent, name, (files, key));
        }
        Ok(())
    }

    /// Deletes the row of a file.
    pub(super) fn delete(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let attr = self.lookup_any(parent, name)?;
        let node = self.node(attr.ino)?;
        match &node.what {
            What::New { .. } => {
                self.state().writing.pending.remove(&attr.ino);
                Ok(Some(attr.ino))
            }
            What::File { files, key } => {
                let sql = self.tree.files[*files]
                    .write
                    .delete
                    .as_deref()
                    .ok_or(Errno::ROFS)?;
                let row = self.row(*files, *key, &node.above)?;
                let deleted = self.run(sql, &row, &node.above).and_then(one_row);
                self.explained(parent, deleted)?;
                Ok(Some(attr.ino))
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
        let attr = self.lookup_any(from, from_name)?;
        let node = self.node(attr.ino)?;
        if let Ok(target) = self.lookup_any(to, to_name) {
            return match mode {
                RenameMode::Replace => self.save_over(attr.ino, (from, from_name), target.ino),
                _ => Err(Errno::EXIST.into()),
            };
        }
        let What::File { files, key } = node.what else {
            return Err(Errno::ROFS.into());
        };
        let (dir, level) = self.level(to)?;
        let may_receive = |files: &&usize| self.tree.files[**files].write.receive.is_some();
        let into = *level.files.iter().find(may_receive).ok_or(Errno::ROFS)?;
        if self.lookup_any(to, to_name).is_ok() {
            return Err(Errno::EXIST.into());
        }
        let sql = self.tree.files[into]
            .write
            .receive
            .as_deref()
            .ok_or(Errno::ROFS)?;
        let row = self.row(files, key, &node.above)?;
        let moved = self.run(sql, &row, &dir.above).and_then(one_row);
        self.explained(to, moved)?;
        let mut state = self.state();
        state.writing.aliases.remove(&(from, from_name.to_vec()));
        state.writing.remember(to, to_name, (into, key));
        Ok(None)
    }

    /// Makes the content of one file that of another, and deletes the first.
    fn save_over(&self, ino: Ino, (from, name): (Ino, &[u8]), over: Ino) -> Result<Option<Ino>> {
        let target = self.node(over)?;
        let What::File { files, key } = target.what else {
            return Err(Errno::ROFS.into());
        };
        let written = self.state().writing.bytes(ino).map(<[u8]>::to_vec);
        let bytes = match written {
            Some(bytes) => bytes,
            None => {
                let node = self.node(ino)?;
                self.body(&mut self.sources.take()?, ino, &node)?.to_vec()
            }
        };
        let row = self.row(files, key, &target.above)?;
        let saved = self.update(files, &target.above, &row, &bytes);
        self.explained(target.parent, saved)?;
        self.delete(from, name)?;
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
