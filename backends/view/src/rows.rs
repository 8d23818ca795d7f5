//! Rows of the source, and the names that they have.

use std::ops::ControlFlow;

use fuse::store::{Attr, Errno, Ino, Kind, NAME_MAX, Result, StoreError, Timestamp};

use crate::ViewStore;
use crate::check::KeyPlace;
use crate::definition::KEY_END;
use crate::draft::Alias;
use crate::nodes::{FileRow, Node, NodeKind, ParentValues, Value};
use crate::source::{Parameter, PooledConnection, Text, VALUE};
use crate::template::{MARK, decode, escape, escape_short, room, unescape};
use crate::tree::{Files, FixedEntry, KEY, Level, Query, RowDirectories};

pub(super) fn parameters<'a>(
    above: &'a ParentValues,
    more: &[(&'a str, Parameter<'a>)],
) -> Vec<(&'a str, Parameter<'a>)> {
    let above = above.iter();
    above.map(|(column, value)| (column.as_str(), value.parameter())).chain(more.iter().copied()).collect()
}

/// The key in a name.
fn key_in(name: &[u8], place: KeyPlace) -> Option<i64> {
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    let digits = match place {
        KeyPlace::First(before) => {
            let rest = name.get(before..)?;
            let count = rest.iter().take_while(is_digit).count();
            &rest[..count]
        }
        KeyPlace::Last(after) => {
            let rest = name.get(..name.len().checked_sub(after)?)?;
            let count = rest.iter().rev().take_while(is_digit).count();
            &rest[rest.len() - count..]
        }
        KeyPlace::Unique => return None,
    };
    let key = std::str::from_utf8(digits).ok()?.parse().ok();
    key.filter(|key| *key < KEY_END)
}

/// The key at the end of a name whose column gives no name that fits.
fn key_after_mark(part: &[u8]) -> Option<i64> {
    let (start, key) = std::str::from_utf8(part).ok()?.rsplit_once(MARK)?;
    let key = key.parse().ok().filter(|key| (0..KEY_END).contains(key));
    key.filter(|_| !start.is_empty())
}

/// The name that `render` makes of a part. The part begins with the mark if the plain name is taken.
fn marked_if(is_taken: impl Fn(&[u8]) -> bool, part: &[u8], render: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let name = render(part);
    if is_taken(&name) { render(&[MARK.as_bytes(), part].concat()) } else { name }
}

/// A time in ISO 8601, or in seconds since 1970.
fn time(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Some(Timestamp((seconds * 1e9) as i64));
    }
    let time = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let civil = text.parse::<jiff::civil::DateTime>().ok()?;
        Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    });
    Some(Timestamp(i64::try_from(time?.as_nanosecond()).ok()?))
}

/// Bytes of a value that a message shows.
const SHOWN_BYTES: usize = 100;

/// Whether a row of [`RowDirectories`] has a BLOB: its last column.
pub(super) fn is_blob(row: &[Text]) -> bool {
    row.last().is_some_and(|it| it.as_deref() == Some(b"1"))
}

impl ViewStore {
    /// The rows of a query, with the columns of directories above and `more` as parameters.
    pub(super) fn query(
        &self,
        source: &mut PooledConnection<'_>,
        query: &Query,
        above: &ParentValues,
        more: &[(&str, Parameter<'_>)],
        each: &mut dyn FnMut(Vec<Text>) -> ControlFlow<()>,
    ) -> Result<()> {
        source.count();
        let asked = source.query(&query.sql, &parameters(above, more), each);
        asked.map_err(|mut error| {
            if let Some(reason) = &mut error.reason {
                reason.insert_str(0, &format!("rows of {:?}: ", query.path));
            }
            error
        })
    }

    pub(super) fn first(
        &self,
        source: &mut PooledConnection<'_>,
        query: &Query,
        above: &ParentValues,
        more: &[(&str, Parameter<'_>)],
    ) -> Result<Option<Vec<Text>>> {
        let mut first = None;
        self.query(source, query, above, more, &mut |row| {
            first = Some(row);
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

    /// Parses a row of [`Files::list`](super::tree::Files::list). `None` if its key is not an integer from 0 to 2⁵³ -
    /// 1: such a row has no file.
    pub(super) fn shown(&self, files: usize, row: Vec<Text>) -> Option<FileRow> {
        let mut row = row.into_iter();
        let number = |value: Option<Text>| -> Option<i64> { std::str::from_utf8(&value??).ok()?.parse().ok() };
        let key = number(row.next()).filter(|key| (0..KEY_END).contains(key))?;
        let size = number(row.next()).unwrap_or(0).unsigned_abs();
        let modified = row.next().flatten().and_then(|text| time(&text));
        let permissions = number(row.next()).map(|mode| mode as u16 & 0o7777);
        let values: Vec<Text> = row.collect();
        Some(FileRow { key, size, modified, permissions, name: self.name(files, key, &values) })
    }

    /// The name of a row's file.
    fn name(&self, files: usize, key: i64, values: &[Text]) -> Vec<u8> {
        let files = &self.tree.files[files];
        if files.key == KeyPlace::Unique {
            return self.unique_name(files, key, values.first().and_then(Option::as_deref));
        }
        let room = room(files.name.literal_bytes(), values.len().saturating_sub(1));
        let key = key.to_string().into_bytes();
        let parts = files.name.columns().zip(values).map(|(column, value)| {
            if column == files.key_column {
                key.clone().into()
            } else {
                escape_short(value.as_deref().unwrap_or_default(), room, self.tree.naming)
            }
        });
        let parts: Vec<_> = parts.collect();
        files.name.render(parts.iter().map(|part| &**part))
    }

    /// The name of a row whose one column is unique. Where the column gives no name that fits, the key does.
    fn unique_name(&self, files: &Files, key: i64, value: Option<&[u8]>) -> Vec<u8> {
        let level = &self.tree.levels[files.level];
        let render = |part: &[u8]| files.name.render([part]);
        let is_taken = |name: &[u8]| self.tree.is_taken(level, name);
        let plain = value.map(|value| marked_if(is_taken, &escape(value, self.tree.naming), render));
        if let Some(plain) = plain.filter(|plain| plain.len() <= NAME_MAX) {
            return plain;
        }
        let end = format!("{MARK}{key}");
        let room = NAME_MAX.saturating_sub(files.name.literal_bytes() + end.len());
        let start = escape_short(value.unwrap_or_default(), room, self.tree.naming);
        render(&[&*start, end.as_bytes()].concat())
    }

    /// The name of a value's directory or link. It differs from the plain name if something else has that name.
    pub(super) fn value_name(&self, level: &Level, value: &[u8]) -> Vec<u8> {
        let is_taken = |name: &[u8]| self.tree.is_taken(level, name) || self.tree.may_be_file(level, name);
        marked_if(is_taken, &escape(value, self.tree.naming), <[u8]>::to_vec)
    }

    /// The value that a name in a directory stands for.
    pub(super) fn value_of(&self, level: &Level, name: &[u8]) -> Option<Vec<u8>> {
        let value = unescape(name.strip_prefix(MARK.as_bytes()).unwrap_or(name), self.tree.naming)?;
        (self.value_name(level, &value) == name).then_some(value)
    }

    /// The row that a name may be of.
    fn named_row(
        &self,
        source: &mut PooledConnection<'_>,
        files: usize,
        name: &[u8],
        above: &ParentValues,
    ) -> Result<Option<FileRow>> {
        let table = &self.tree.files[files];
        if table.key != KeyPlace::Unique {
            return match key_in(name, table.key) {
                Some(key) => self.show(source, files, key, above),
                None => Ok(None),
            };
        }
        let Ok(mut values) = table.name.take_apart(name) else {
            return Ok(None);
        };
        let Some((_, part)) = values.pop() else {
            return Ok(None);
        };
        if let Some(key) = key_after_mark(part) {
            return self.show(source, files, key, above);
        }
        let Some(value) = unescape(part.strip_prefix(MARK.as_bytes()).unwrap_or(part), self.tree.naming) else {
            return Ok(None);
        };
        let value = [(VALUE, Parameter::Text(&value))];
        let row = self.first(source, &table.by_name, above, &value)?;
        Ok(row.and_then(|row| self.shown(files, row)))
    }

    pub(super) fn show(
        &self,
        source: &mut PooledConnection<'_>,
        files: usize,
        key: i64,
        above: &ParentValues,
    ) -> Result<Option<FileRow>> {
        let key = [(KEY, Parameter::Integer(key))];
        let row = self.first(source, &self.tree.files[files].one, above, &key)?;
        Ok(row.and_then(|row| self.shown(files, row)))
    }

    /// The node that a name in a directory stands for, and its attributes.
    pub(super) fn find(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let (dir, level) = self.level(parent)?;
        let fixed = level.fixed.iter().find(|(has, _)| has.as_bytes() == name);
        match fixed {
            // Answer also while the source is unreachable.
            Some((_, FixedEntry::Level(level))) => {
                let ino = self.know(dir.child(parent, NodeKind::Level(*level)));
                Ok(self.attr(ino, Kind::Directory, 0, None))
            }
            Some((_, FixedEntry::Computed(computed))) => {
                let node = dir.child(parent, NodeKind::Computed(*computed));
                self.known(&mut self.sources.take()?, node)
            }
            None if level.is_fixed() => Err(Errno::NOENT.into()),
            None => match self.find_alias((parent, &dir), name)? {
                Some(attr) => Ok(attr),
                None => {
                    let mut source = self.sources.take()?;
                    match self.find_row(&mut source, (parent, &dir), level, name) {
                        Err(error) if error.errno == Errno::NOENT && self.changes_files() => {
                            self.find_unshown(&mut source, (parent, &dir), level, name)
                        }
                        found => found,
                    }
                }
            },
        }
    }

    /// The file of an alias, as long as the row is the one that the alias was given for.
    fn find_alias(&self, (parent, dir): (Ino, &Node), name: &[u8]) -> Result<Option<Attr>> {
        loop {
            let alias = self.state().writing.alias(parent, name);
            let Some(alias) = alias else { return Ok(None) };
            let Alias { files, key, .. } = alias;
            let node = dir.child(parent, NodeKind::File { files, key });
            let ino = node.ino();
            // This mount may have changed the row of a busy file without updating the alias yet.
            let what = NodeKind::File { files, key };
            let is_busy = self.state().writing.busy.contains(&what);
            // Ask the source after reading the alias, so that the row is not older than the alias.
            let mut source = self.sources.take()?;
            if (is_busy || self.is_same_row(&mut source, alias, &dir.above)?)
                && let Some(shown) = self.show(&mut source, files, key, &dir.above)?
            {
                self.know(node);
                return Ok(Some(self.file_attr(ino, files, &shown)));
            }
            let name = (parent, name);
            if is_busy || self.state().writing.forget_alias(name, &what, alias) {
                return Ok(None);
            }
        }
    }

    /// Remembers a node; its attributes.
    fn known(&self, source: &mut PooledConnection<'_>, node: Node) -> Result<Attr> {
        let attr = self.node_attr(source, node.ino(), &node)?;
        self.know(node);
        Ok(attr)
    }

    fn find_row(
        &self,
        source: &mut PooledConnection<'_>,
        (parent, dir): (Ino, &Node),
        level: &Level,
        name: &[u8],
    ) -> Result<Attr> {
        let file = |files: usize, shown: &FileRow| {
            let key = shown.key;
            let ino = self.know(dir.child(parent, NodeKind::File { files, key }));
            self.file_attr(ino, files, shown)
        };
        for question in &level.questions {
            let start = self.tree.questions[*question].start.as_bytes();
            if let Some(text) = name.strip_prefix(start) {
                let (question, text) = (*question, decode(text));
                return self.known(source, dir.child(parent, NodeKind::Answer { question, text }));
            }
        }
        for files in &level.files {
            if let Some(shown) = self.named_row(source, *files, name, &dir.above)?
                && shown.name == name
            {
                return Ok(file(*files, &shown));
            }
        }
        let value = self.value_of(level, name).ok_or(Errno::NOENT)?;
        for links in &level.links {
            let asked = [(VALUE, Parameter::Text(&value))];
            let find = &self.tree.links[*links].find;
            if self.first(source, find, &dir.above, &asked)?.is_some() {
                let links = *links;
                return self.known(source, dir.child(parent, NodeKind::Link { links, value }));
            }
        }
        for named in &level.named {
            if let Some(row) = self.directory_row(source, named, &dir.above, &value)? {
                let number = row.into_iter().next().flatten();
                let value = Value { text: value, number };
                return self.known(source, self.named(parent, dir, named.level, value));
            }
        }
        for named in &level.named {
            if self.state().writing.directories.contains(&(parent, named.level, value.clone())) {
                let value = Value { text: value, number: None };
                return self.known(source, self.named(parent, dir, named.level, value));
            }
        }
        Err(Errno::NOENT.into())
    }

    /// The row that names a directory with `value`.
    ///
    /// # Errors
    /// `EIO` if only a BLOB has this text.
    fn directory_row(
        &self,
        source: &mut PooledConnection<'_>,
        named: &RowDirectories,
        above: &ParentValues,
        value: &[u8],
    ) -> Result<Option<Vec<Text>>> {
        let asked = [(VALUE, Parameter::Text(value))];
        let row = self.first(source, &named.find, above, &asked)?;
        if !row.as_deref().is_some_and(is_blob) {
            return Ok(row);
        }
        let text = self.first(source, &named.find_text, above, &asked)?;
        match text {
            Some(text) => Ok(Some(text)),
            None => {
                let reason = self.blob_reason(named, value);
                Err(StoreError::storage(Errno::IO, format!("rows of {:?}: {reason}", named.find.path)))
            }
        }
    }

    /// Why the row with a BLOB has no directory.
    pub(super) fn blob_reason(&self, named: &RowDirectories, value: &[u8]) -> String {
        let column = self.tree.levels[named.level].column.as_deref().unwrap_or_default();
        let shown = String::from_utf8_lossy(&value[..value.len().min(SHOWN_BYTES)]);
        format!(
            "the column `{column}` of the row {shown:?} is a BLOB, which no query below the directory would find: store it as text, or \
             select CAST({column} AS TEXT)"
        )
    }

    /// The directory that a row names.
    pub(super) fn named(&self, parent: Ino, dir: &Node, level: usize, value: Value) -> Node {
        let column = self.tree.levels[level].column.clone().unwrap_or_default();
        let mut above = dir.above.to_vec();
        above.push((column, value));
        Node { what: NodeKind::Level(level), above: above.into(), parent }
    }
}
