//! Listings of directories: fixed names, then names that queries give, then files by key.
//!
//! A cookie is the number of a section and a place in it. The place of a file is its key. The place of another name is
//! the number of the listing and the name's position in that listing. A page never changes after its query.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use fuse::store::{Attr, DirEntry, EntrySink, Errno, FIRST_COOKIE, Ino, Kind, NAME_MAX, Result, StoreError};

use crate::ViewStore;
use crate::nodes::{FileRow, Node, NodeKind, ParentValues, Value};
use crate::rows::is_blob;
use crate::source::{Parameter, PooledConnection, VALUE};
use crate::tree::{AFTER, FixedEntry, Level, NAMES_PAGE, PAGE, RowDirectories, Values};

/// The most partly read pages of files that are kept.
const OPEN_LISTINGS: usize = 16;

/// A page of names ends with the name that makes it this long, in bytes of memory.
const NAMES_PAGE_BYTES: usize = 4 << 20;

/// The most pages of names that are kept, one a listing: they are searched one after the other, the last used first.
const NAMES_PAGES: usize = 1024;

/// The maximum memory of all pages of names, including the memory of a page beside its names.
const NAMES_BYTES: usize = 32 << 20;

/// Bits of a cookie below the number of its section.
const SECTION: u32 = 54;

/// Bits of a cookie below the number of a listing of names.
const LISTING: u32 = 32;

/// A page of the names that a query gives: of a section of a directory and the number of a listing, from a place in it on.
struct Names {
    of: (Ino, usize, u64),
    start: usize,
    values: Vec<Value>,
    /// Places in `values` of BLOBs, which are not shown.
    blobs: Vec<usize>,
    bytes: usize,
    is_last: bool,
}

impl Names {
    fn end(&self) -> usize {
        self.start + self.values.len()
    }
}

/// The rest of a page of files: of a section of a directory, after a key, with attributes or without.
struct Page {
    of: (Ino, usize, i64, bool),
    files: VecDeque<FileRow>,
    is_last: bool,
}

/// Pages of listings that callers have begun to read.
#[derive(Default)]
pub(super) struct Listings {
    begun: u64,
    names: VecDeque<Arc<Names>>,
    /// The memory of all `names`.
    names_bytes: usize,
    pages: VecDeque<Page>,
}

impl Listings {
    /// The number of a new listing of names.
    fn begin(&mut self) -> u64 {
        self.begun = (self.begun + 1) % (1 << (SECTION - LISTING));
        self.begun
    }

    /// Keeps a page of a listing instead of the one before it.
    fn keep_names(&mut self, page: Arc<Names>) {
        if page.start > 0 {
            self.take_names(page.of);
        }
        self.names_bytes += page.bytes;
        self.names.push_back(page);
        while (self.names_bytes > NAMES_BYTES || self.names.len() > NAMES_PAGES)
            && let Some(oldest) = self.names.pop_front()
        {
            self.names_bytes -= oldest.bytes;
        }
    }

    /// Removes and returns the kept page of a listing, which is mostly one of the last.
    fn take_names(&mut self, of: (Ino, usize, u64)) -> Option<Arc<Names>> {
        let place = self.names.iter().rposition(|page| page.of == of)?;
        let page = self.names.remove(place)?;
        self.names_bytes -= page.bytes;
        Some(page)
    }

    /// The kept page that contains a place, or ends just before it. It then becomes the last to be dropped.
    fn names(&mut self, of: (Ino, usize, u64), at: usize) -> Option<Arc<Names>> {
        let page = self.take_names(of)?;
        self.names_bytes += page.bytes;
        self.names.push_back(Arc::clone(&page));
        (page.start..=page.end()).contains(&at).then_some(page)
    }

    fn keep_page(&mut self, page: Page) {
        if self.pages.len() >= OPEN_LISTINGS {
            self.pages.pop_front();
        }
        self.pages.push_back(page);
    }
}

/// One call's part of a listing.
struct Lister<'a> {
    view: &'a ViewStore,
    dir: Ino,
    node: Arc<Node>,
    with_attr: bool,
    /// Where the call goes on.
    section: usize,
    after: Option<u64>,
    source: Option<PooledConnection<'a>>,
    emit: EntrySink<'a>,
}

impl<'a> Lister<'a> {
    fn source(&mut self) -> Result<&mut PooledConnection<'a>> {
        match &mut self.source {
            Some(source) => Ok(source),
            none => Ok(none.insert(self.view.sources.take()?)),
        }
    }

    /// The place in a section at which to go on; `None` if it is done.
    fn start(&self, section: usize) -> Option<usize> {
        match (section.cmp(&self.section), self.after) {
            (std::cmp::Ordering::Less, _) => None,
            (std::cmp::Ordering::Equal, Some(after)) => Some(after as usize + 1),
            _ => Some(0),
        }
    }

    fn offer(
        &mut self,
        (section, place): (usize, u64),
        name: &[u8],
        child: Node,
        attr: Option<Attr>,
    ) -> Result<ControlFlow<()>> {
        let ino = child.ino();
        let kind = match child.what {
            NodeKind::Level(_) => Kind::Directory,
            NodeKind::Link { .. } => Kind::Symlink,
            _ => Kind::File,
        };
        let mut shown = None;
        if self.with_attr {
            let attr = match attr {
                Some(attr) => Ok(attr),
                // Answer also while the source is unreachable.
                None if kind == Kind::Directory => Ok(self.view.attr(ino, kind, 0, None)),
                None => {
                    let view = self.view;
                    view.node_attr(self.source()?, ino, &child)
                }
            };
            shown = match attr {
                Ok(attr) => Some(Attr { ino, ..attr }),
                // It was deleted after the query.
                Err(error) if error.errno == Errno::NOENT => return Ok(ControlFlow::Continue(())),
                Err(error) => return Err(error),
            };
            self.view.know(child);
        }
        Ok((self.emit)(DirEntry {
            name,
            ino,
            kind,
            cookie: ((section as u64) << SECTION) | (place + FIRST_COOKIE),
            attr: shown,
        }))
    }

    fn fixed(&mut self, level: &Level) -> Result<ControlFlow<()>> {
        let Some(start) = self.start(0) else {
            return Ok(ControlFlow::Continue(()));
        };
        for (place, (name, fixed)) in level.fixed.iter().enumerate().skip(start) {
            if level.unlisted.contains(name) {
                continue;
            }
            let what = match fixed {
                FixedEntry::Level(level) => NodeKind::Level(*level),
                FixedEntry::Computed(computed) => NodeKind::Computed(*computed),
            };
            let child = self.node.child(self.dir, what);
            if self.offer((0, place as u64), name.as_bytes(), child, None)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A section of names that a query gives; `child` makes the node of a value.
    fn names(
        &mut self,
        section: usize,
        level: &Level,
        (list, named): (&Values, Option<&RowDirectories>),
        child: impl Fn(&Node, Value) -> Node,
    ) -> Result<ControlFlow<()>> {
        let (listing, mut at) = match self.start(section) {
            None => return Ok(ControlFlow::Continue(())),
            Some(0) => (self.view.state().listings.begin(), 0),
            Some(start) => (start as u64 >> LISTING, start & ((1 << LISTING) - 1)),
        };
        loop {
            let page = self.page_of_names((self.dir, section, listing), (list, named), at)?;
            for (in_page, value) in page.values.iter().enumerate().skip(at - page.start) {
                if page.blobs.binary_search(&in_page).is_ok() {
                    at += 1;
                    continue;
                }
                let name = self.view.value_name(level, &value.text);
                let place = (listing << LISTING) | at as u64;
                at += 1;
                if name.len() > NAME_MAX {
                    tracing::warn!(value = %String::from_utf8_lossy(&name), "a row is not shown: its name would be too long");
                    continue;
                }
                let child = child(&self.node, value.clone());
                if self.offer((section, place), &name, child, None)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if page.is_last {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// The page of names that contains a place; the last page if the names end before it.
    fn page_of_names(
        &mut self,
        of: (Ino, usize, u64),
        list: (&Values, Option<&RowDirectories>),
        at: usize,
    ) -> Result<Arc<Names>> {
        let kept = self.view.state().listings.names(of, at);
        let mut page = match kept {
            Some(page) => page,
            None => self.ask_names(of, list, None)?,
        };
        while at >= page.end() && !page.is_last {
            page = self.ask_names(of, list, Some(&page))?;
        }
        Ok(page)
    }

    /// Queries the page of names after another one.
    fn ask_names(
        &mut self,
        of: (Ino, usize, u64),
        (list, named): (&Values, Option<&RowDirectories>),
        before: Option<&Names>,
    ) -> Result<Arc<Names>> {
        let view = self.view;
        let last = before.and_then(|page| page.values.last());
        let after = last.map(|value| (AFTER, Parameter::Text(&value.text)));
        let query = match after {
            Some(_) => &list.next,
            None => &list.first,
        };
        let (mut values, above) = (Vec::new(), ParentValues::clone(&self.node.above));
        let (mut rows, mut bytes) = (0, size_of::<Names>());
        view.query(self.source()?, query, &above, after.as_slice(), &mut |row| {
            let is_blob = named.is_some() && is_blob(&row);
            let mut row = row.into_iter();
            let text = row.next().flatten().unwrap_or_default();
            let number = row.next().flatten();
            rows += 1;
            bytes += text.len() + size_of::<Value>();
            values.push((Value { text, number }, is_blob));
            if bytes < NAMES_PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        // A number and the same text are two values with one name.
        values.dedup_by(|one, kept| {
            let is_same = one.0.text == kept.0.text;
            if is_same && kept.1 {
                // Only the other value has a directory.
                std::mem::swap(one, kept);
            }
            is_same
        });
        let blobs: Vec<usize> = (0..values.len()).filter(|at| values[*at].1).collect();
        let values: Vec<Value> = values.into_iter().map(|(value, _)| value).collect();
        if let (Some(named), Some(first)) = (named, blobs.first()) {
            let (path, count, reason) = (&query.path, blobs.len(), view.blob_reason(named, &values[*first].text));
            tracing::warn!("rows of {path:?}: {count} rows are not shown: {reason}");
        }
        let page = Arc::new(Names {
            of,
            start: before.map_or(0, Names::end),
            values,
            blobs,
            bytes,
            is_last: rows < NAMES_PAGE && bytes < NAMES_PAGE_BYTES,
        });
        view.state().listings.keep_names(Arc::clone(&page));
        Ok(page)
    }

    /// Directories that programs have created, and that have no row yet.
    fn created(&mut self, section: usize, level: &Level, named: &RowDirectories) -> Result<ControlFlow<()>> {
        let Some(start) = self.start(section) else {
            return Ok(ControlFlow::Continue(()));
        };
        let created = self.view.created_directories(self.dir, named.level);
        for (place, text) in created.into_iter().enumerate().skip(start) {
            let (view, above) = (self.view, ParentValues::clone(&self.node.above));
            let asked = [(VALUE, Parameter::Text(&text))];
            if view.first(self.source()?, &named.find, &above, &asked)?.is_some() {
                continue;
            }
            let name = view.value_name(level, &text);
            let child = view.named(self.dir, &self.node, named.level, Value { text, number: None });
            if self.offer((section, place as u64), &name, child, None)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn files(&mut self, section: usize, files: usize) -> Result<ControlFlow<()>> {
        let Some(start) = self.start(section) else {
            return Ok(ControlFlow::Continue(()));
        };
        let mut last = start as i64 - 1;
        loop {
            let mut page = self.page(section, files, last)?;
            while let Some(shown) = page.files.front() {
                let (key, name) = (shown.key, &shown.name);
                let child = self.node.child(self.dir, NodeKind::File { files, key });
                let attr = self.view.file_attr(0, files, shown);
                if self.offer((section, key as u64), name, child, Some(attr))?.is_break() {
                    page.of.2 = last;
                    self.view.state().listings.keep_page(page);
                    return Ok(ControlFlow::Break(()));
                }
                last = key;
                page.files.pop_front();
            }
            if page.is_last {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// The files after the key `last`: the rest of this listing's kept page, or the next page.
    fn page(&mut self, section: usize, files: usize, last: i64) -> Result<Page> {
        let (view, of) = (self.view, (self.dir, section, last, self.with_attr));
        {
            let mut state = view.state();
            let pages = &mut state.listings.pages;
            if let Some(at) = pages.iter().position(|page| page.of == of && last >= 0)
                && let Some(page) = pages.remove(at)
            {
                return Ok(page);
            }
        }
        let table = &view.tree.files[files];
        let query = if self.with_attr { &table.list } else { &table.names };
        let mut shown: VecDeque<FileRow> = VecDeque::new();
        let (mut rows, mut bad) = (0, 0);
        let above = ParentValues::clone(&self.node.above);
        let asked = [(AFTER, Parameter::Integer(last))];
        view.query(self.source()?, query, &above, &asked, &mut |row| {
            rows += 1;
            let file = view.shown(files, row);
            // Two rows with one key have one file.
            match file.filter(|file| shown.back().is_none_or(|last| last.key != file.key)) {
                Some(file) => shown.push_back(file),
                None => bad += 1,
            }
            // A server need not keep to the limit of the query.
            if rows < PAGE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if bad > 0 {
            let (column, path) = (&table.key_column, &query.path);
            tracing::warn!(
                "rows of {path:?}: {bad} rows are not shown: their key `{column}` is not an integer from 0 to 2⁵³ - 1, or is not unique"
            );
        }
        if shown.is_empty() && rows >= PAGE {
            // The next page would begin with the same rows.
            let column = &table.key_column;
            let reason = format!("{rows} consecutive rows have a key `{column}` that is not an integer");
            return Err(StoreError::storage(Errno::IO, reason));
        }
        Ok(Page { of, is_last: rows < PAGE, files: shown })
    }
}

impl ViewStore {
    pub(super) fn list(&self, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()> {
        let (node, level) = self.level(dir)?;
        let mut lister = Lister {
            view: self,
            dir,
            node,
            with_attr,
            section: (after >> SECTION) as usize,
            after: (after > 0).then(|| (after & ((1 << SECTION) - 1)) - FIRST_COOKIE),
            source: None,
            emit,
        };
        let mut section = 0;
        if lister.fixed(level)?.is_break() {
            return Ok(());
        }
        for named in &level.named {
            section += 1;
            let child = |node: &Node, value| self.named(dir, node, named.level, value);
            if lister.names(section, level, (&named.list, Some(named)), child)?.is_break() {
                return Ok(());
            }
        }
        for links in &level.links {
            section += 1;
            let links = *links;
            let child = |node: &Node, value: Value| {
                let value = value.text;
                node.child(dir, NodeKind::Link { links, value })
            };
            let list = &self.tree.links[links].list;
            if lister.names(section, level, (list, None), child)?.is_break() {
                return Ok(());
            }
        }
        for files in &level.files {
            section += 1;
            if lister.files(section, *files)?.is_break() {
                return Ok(());
            }
        }
        for named in &level.named {
            section += 1;
            if lister.created(section, level, named)?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(listing: u64, start: usize) -> Arc<Names> {
        let text = b"name".to_vec();
        let values = vec![Value { text, number: None }; 10];
        Arc::new(Names { of: (1, 0, listing), start, values, blobs: Vec::new(), bytes: 1000, is_last: false })
    }

    #[test]
    fn of_each_listing_one_page_is_kept_and_of_all_the_ones_used_last() {
        let mut listings = Listings::default();
        listings.keep_names(page(0, 0));
        listings.keep_names(page(0, 10));
        assert_eq!(listings.names((1, 0, 0), 5).map(|it| it.start), None);
        for listing in 1..3 * NAMES_PAGES as u64 {
            listings.keep_names(page(listing, 0));
            let used = listings.names((1, 0, 0), 10);
            assert_eq!(used.map(|it| it.start), Some(10), "{listing}");
        }
        assert_eq!(listings.names.len(), NAMES_PAGES);
        assert_eq!(listings.names_bytes, NAMES_PAGES * 1000);
        assert!(listings.names((1, 0, 1), 5).is_none(), "the oldest is gone");
    }
}
