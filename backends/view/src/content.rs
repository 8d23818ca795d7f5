//! Contents of files and targets of links, and the cache of computed contents.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuse::store::{Attr, Errno, Ino, Kind, Result, StoreError, Timestamp, slice};

use crate::ViewStore;
use crate::draft::{Phase, hash};
use crate::nodes::{Node, NodeKind, ParentValues};
use crate::source::{BODY_MAX, Parameter, PooledConnection, Text, VALUE, Version};
use crate::template::Naming;
use crate::tree::{KEY, Query, Target};

/// The most computed contents in the cache.
const ANSWERS: usize = 16;

/// Longer computed contents are not cached.
const ANSWER_MAX: usize = 1 << 20;

/// How long a computed content is cached if the source does not change: a program asks for the size, and then reads.
/// Not longer, because a query may depend on the time.
const KEPT: Duration = Duration::from_millis(100);

type Body = Arc<Vec<u8>>;

struct Answer {
    ino: Ino,
    version: Version,
    asked: Instant,
    body: Body,
}

/// Contents that open files are reading, and cached computed contents.
#[derive(Default)]
pub(super) struct Contents {
    opened: u64,
    /// The content of each open file that reads, until it reads from offset 0 again.
    handles: HashMap<u64, (Ino, Body)>,
    answers: VecDeque<Answer>,
}

impl Contents {
    /// The number of a new open file.
    pub(super) fn open(&mut self) -> u64 {
        self.opened += 1;
        self.opened
    }

    pub(super) fn release(&mut self, handle: u64) {
        self.handles.remove(&handle);
    }

    /// Drops the content that readers of a changed file have: their next read takes the new one.
    pub(super) fn renew(&mut self, ino: Ino) {
        self.handles.retain(|_, (of, _)| *of != ino);
    }

    fn answer(&mut self, ino: Ino, version: Version) -> Option<Body> {
        self.answers.retain(|it| it.asked.elapsed() < KEPT);
        let is_it = |it: &&Answer| it.ino == ino && it.version == version;
        Some(Arc::clone(&self.answers.iter().find(is_it)?.body))
    }

    fn keep_answer(&mut self, answer: Answer) {
        self.answers.retain(|it| it.ino != answer.ino);
        if self.answers.len() >= ANSWERS {
            self.answers.pop_front();
        }
        if answer.body.len() <= ANSWER_MAX {
            self.answers.push_back(answer);
        }
    }
}

/// # Errors
/// `EFBIG` if the text is longer than a file of a view may be.
pub(super) fn within_limit(text: Vec<u8>) -> Result<Vec<u8>> {
    if text.len() <= BODY_MAX {
        Ok(text)
    } else {
        Err(StoreError::storage(Errno::FBIG, format!("a file of a view may have at most {} MiB", BODY_MAX >> 20)))
    }
}

impl Target {
    /// The path, and what follows it, in one line.
    fn line(&self, row: &[Text], naming: Naming) -> Vec<u8> {
        let (path, note) = row.split_at(self.path.columns().count().min(row.len()));
        let mut line = self.path.render_path(path, naming);
        if let Some(template) = &self.note {
            line.extend(b": ");
            let values = note.iter().map(|it| it.as_deref().unwrap_or_default());
            let note = template.render(values);
            line.extend(note.into_iter().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
        }
        line
    }
}

impl ViewStore {
    /// The text of a query: a line a row, of one column if there is no `target`.
    fn lines(
        &self,
        source: &mut PooledConnection<'_>,
        (query, target): (&Query, Option<&Target>),
        above: &ParentValues,
        more: &[(&str, Parameter<'_>)],
    ) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        self.query(source, query, above, more, &mut |mut row| {
            text.extend(match target {
                Some(target) => target.line(&row, self.tree.naming),
                None => row.pop().flatten().unwrap_or_default(),
            });
            text.push(b'\n');
            if text.len() <= BODY_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        within_limit(text)
    }

    /// The present content of a node that has one.
    pub(super) fn body(&self, source: &mut PooledConnection<'_>, ino: Ino, node: &Node) -> Result<Body> {
        match &node.what {
            NodeKind::File { files, key } => {
                let files = &self.tree.files[*files];
                let key = [(KEY, Parameter::Integer(*key))];
                let row = self.first(source, &files.read, &node.above, &key)?;
                let row = row.ok_or(Errno::NOENT)?;
                let values = row.iter().map(|value| value.as_deref().unwrap_or_default());
                Ok(Arc::new(within_limit(files.body.render(values))?))
            }
            NodeKind::Computed(computed) => {
                self.answer(source, ino, (&self.tree.computed[*computed], None), &node.above, &[])
            }
            NodeKind::Answer { question, text } => {
                let question = &self.tree.questions[*question];
                let text = [(question.column.as_str(), Parameter::Text(text))];
                let lines = (&question.lines, question.target.as_ref());
                self.answer(source, ino, lines, &node.above, &text)
            }
            NodeKind::New { .. } => Ok(Body::default()),
            NodeKind::Level(_) => Err(Errno::ISDIR.into()),
            NodeKind::Link { .. } => Err(Errno::INVAL.into()),
        }
    }

    /// The lines of a query; queries again if the source may have changed.
    fn answer(
        &self,
        source: &mut PooledConnection<'_>,
        ino: Ino,
        query: (&Query, Option<&Target>),
        above: &ParentValues,
        more: &[(&str, Parameter<'_>)],
    ) -> Result<Body> {
        // The version before the query: a commit during the query makes the answer stale.
        let version = source.state()?;
        let kept = version.and_then(|version| self.state().contents.answer(ino, version));
        if let Some(body) = kept {
            return Ok(body);
        }
        let asked = Instant::now();
        let body = Arc::new(self.lines(source, query, above, more)?);
        if let Some(version) = version {
            let body = Arc::clone(&body);
            self.state().contents.keep_answer(Answer { ino, version, asked, body });
        }
        Ok(body)
    }

    /// The present content for a reader. The hash of what is read from offset 0 is kept: a writer that has read it may
    /// replace it.
    fn body_for_reader(&self, ino: Ino, node: &Node, offset: u64) -> Result<Body> {
        let body = self.body(&mut self.sources.take()?, ino, node)?;
        if offset == 0 && self.may_update(node) {
            // Hash before locking: the content may be long.
            let seen = hash(&*body);
            self.state().writing.has_read(node.ino(), seen);
        }
        Ok(body)
    }

    /// A read without an open file.
    pub(super) fn read_current(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        let body = self.body_for_reader(ino, &*self.node(ino)?, offset)?;
        out.extend_from_slice(slice(&body, offset, size));
        Ok(())
    }

    /// A read through an open file: a writer reads its draft, and a reader finishes with the version of the row that it
    /// began with.
    pub(super) fn read_open_file(
        &self,
        handle: u64,
        ino: Ino,
        offset: u64,
        size: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let node = self.node(ino)?;
        let mut take = |body: &[u8]| out.extend_from_slice(slice(body, offset, size));
        if let Some(writer) = self.writer(handle) {
            let mut draft = writer.draft.lock();
            let is_as_committed = matches!(draft.phase, Phase::Clean | Phase::Outdated);
            if offset == 0
                && is_as_committed
                && !writer.is_removed()
                && let Some(now) = self.draft(&node)?
            {
                *draft = now;
                let seen = hash(&draft.bytes);
                self.state().writing.has_read(node.ino(), seen);
            }
            take(&draft.bytes);
            return Ok(());
        }
        if let Some((_, body)) = (self.state().contents.handles.get(&handle)).filter(|_| offset > 0) {
            take(body);
            return Ok(());
        }
        let body = self.body_for_reader(ino, &node, offset)?;
        take(&body);
        let opened = (node.ino(), body);
        self.state().contents.handles.insert(handle, opened);
        Ok(())
    }

    pub(super) fn may_update(&self, node: &Node) -> bool {
        match node.what {
            NodeKind::File { files, .. } => self.tree.files[files].write.update.is_some(),
            _ => false,
        }
    }

    pub(super) fn node_attr(&self, source: &mut PooledConnection<'_>, ino: Ino, node: &Node) -> Result<Attr> {
        match &node.what {
            NodeKind::Level(_) => Ok(self.attr(ino, Kind::Directory, 0, None)),
            NodeKind::File { files, key } => {
                let shown = self.show(source, *files, *key, &node.above)?;
                Ok(self.file_attr(ino, *files, &shown.ok_or(Errno::NOENT)?))
            }
            NodeKind::Computed(_) | NodeKind::Answer { .. } => {
                let size = self.body(source, ino, node)?.len() as u64;
                let mut attr = self.attr(ino, Kind::File, size, Some(Timestamp::now()));
                attr.permissions = 0o444;
                if matches!(node.what, NodeKind::Answer { .. }) {
                    attr.nlink = 0;
                }
                Ok(attr)
            }
            NodeKind::Link { .. } => {
                let size = self.target(source, node)?.len() as u64;
                Ok(self.attr(ino, Kind::Symlink, size, None))
            }
            NodeKind::New { .. } => Ok(self.attr(ino, Kind::File, 0, None)),
        }
    }

    /// The columns of a file's row that are attributes and not NULL, of those that are `wanted`.
    pub(super) fn attributes(&self, ino: Ino, wanted: impl Fn(&str) -> bool) -> Result<Vec<(&str, Vec<u8>)>> {
        let node = self.node(ino)?;
        let NodeKind::File { files, key } = node.what else {
            return Ok(Vec::new());
        };
        let files = &self.tree.files[files];
        if !files.attributes.iter().any(|column| wanted(column)) {
            return Ok(Vec::new());
        }
        let key = [(KEY, Parameter::Integer(key))];
        let mut source = self.sources.take()?;
        let row = self.first(&mut source, &files.attribute_values, &node.above, &key)?;
        let columns = files.attributes.iter().map(String::as_str);
        let values = columns.zip(row.ok_or(Errno::NOENT)?);
        Ok(values.filter_map(|(column, value)| Some((column, value?))).filter(|(column, _)| wanted(column)).collect())
    }

    pub(super) fn target(&self, source: &mut PooledConnection<'_>, node: &Node) -> Result<Vec<u8>> {
        let NodeKind::Link { links, value } = &node.what else {
            return Err(Errno::INVAL.into());
        };
        let links = &self.tree.links[*links];
        let value = [(VALUE, Parameter::Text(value))];
        let row = self.first(source, &links.find, &node.above, &value)?;
        Ok(links.target.render_path(&row.ok_or(Errno::NOENT)?, self.tree.naming))
    }
}
