//! An open file: the bytes that the log shows of it, at their positions.

use std::collections::BTreeMap;

/// The most bytes of one file whose content is kept.
pub(super) const CONTENT_MAX: usize = 16 << 20;

/// Where a call reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offset {
    /// At the position of the descriptor, which the call moves.
    Current,
    /// At this byte, without moving the position.
    At(u64),
    /// At a byte that the log does not show.
    Unknown,
}

/// A change of a file.
#[derive(Debug)]
enum Change {
    /// A write at this byte. `None` if the log does not show where.
    Write { at: Option<u64>, bytes: Vec<u8> },
    /// The file has this size from here on.
    Resize(u64),
}

/// What a process did with a file, from opening it to closing it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileUse {
    /// Nothing that the log shows.
    Nothing,
    /// It listed the directory.
    List,
    /// It read the file. The content if all of it is known.
    Read(Option<Vec<u8>>),
    /// It wrote the whole file.
    Write(Vec<u8>),
    /// It added these bytes to the end.
    Append(Vec<u8>),
    /// It gave the file this size.
    Resize(u64),
    /// It changed the file. The content before and after if both are known.
    Edit(Option<(Vec<u8>, Vec<u8>)>),
}

/// An open file, which several descriptors of several processes may name.
#[derive(Debug, Default)]
pub(super) struct OpenFile {
    pub(super) path: String,
    lists: bool,
    reads: bool,
    /// Whether the file was empty when it was opened: truncated or created.
    was_empty: bool,
    /// Whether each write goes to the end.
    pub(super) appends: bool,
    /// The position of its descriptors. `None` if it is not known.
    position: Option<u64>,
    /// The size of the file. `None` if it is not known.
    size: Option<u64>,
    /// The content before the first change, up to the first byte that is not known.
    read: Vec<u8>,
    /// Later parts of it, by position.
    apart: BTreeMap<u64, Vec<u8>>,
    /// Whether two reads contradict each other, so that another process has changed the file.
    is_mixed: bool,
    /// The size before the first change, as a read found or the process was told. `None` if it is not known.
    end: Option<u64>,
    changes: Vec<Change>,
    /// Whether each change is a write at the end.
    only_adds: bool,
    /// Bytes of all changes that are kept.
    written: usize,
}

impl OpenFile {
    /// A file that was opened with these flags.
    pub(super) fn new(path: String, flags: &str) -> Self {
        let was_empty = flags.contains("O_TRUNC") || flags.contains("O_EXCL");
        Self {
            path,
            lists: flags.contains("O_DIRECTORY"),
            was_empty,
            appends: flags.contains("O_APPEND"),
            position: Some(0),
            size: was_empty.then_some(0),
            only_adds: true,
            ..Self::default()
        }
    }

    /// Its entries are read, so it is a directory.
    pub(super) fn list(&mut self) {
        self.lists = true;
        self.reads = true;
    }

    /// The process is told the size.
    pub(super) fn tell_size(&mut self, size: u64) {
        self.size = Some(size);
        if self.changes.is_empty() {
            self.end = Some(size);
        }
    }

    /// The position is moved; to the end of the file if `size` is known by that.
    pub(super) fn seek(&mut self, position: u64, size: Option<u64>) {
        self.position = Some(position);
        self.size = size.or(self.size);
    }

    /// Bytes are read that the log does not show.
    pub(super) fn read_unseen(&mut self, offset: Offset, size: u64) {
        self.reads = true;
        self.advance(offset, size);
    }

    /// `size` bytes are read, of which the log shows `bytes`.
    pub(super) fn read(&mut self, offset: Offset, bytes: &[u8], size: u64) {
        self.reads = true;
        let at = self.advance(offset, size);
        let Some(at) = at.filter(|_| self.changes.is_empty()) else {
            return;
        };
        if size == 0 {
            let is_exact = at == self.read.len() as u64;
            if is_exact || self.end.is_none_or(|end| at < end) {
                self.end = Some(at);
            }
            if is_exact {
                self.size = Some(at);
            }
        } else if bytes.len() as u64 == size && at.saturating_add(size) <= CONTENT_MAX as u64 {
            self.add_read(at, bytes);
            while let Some(next) = self.apart.first_entry()
                && *next.key() <= self.read.len() as u64
            {
                let (at, bytes) = next.remove_entry();
                self.add_read(at, &bytes);
            }
        }
    }

    fn add_read(&mut self, at: u64, bytes: &[u8]) {
        let end = self.read.len() as u64;
        let (part, from) =
            if at <= end { (&mut self.read, at as usize) } else { (self.apart.entry(at).or_default(), 0) };
        let known = (part.len() - from).min(bytes.len());
        self.is_mixed |= part[from..from + known] != bytes[..known];
        part.extend(&bytes[known..]);
    }

    /// How many bytes of a write of `size` bytes can be kept, if there is room for `left`.
    pub(super) fn room(&self, size: u64, left: usize) -> usize {
        let room = CONTENT_MAX.saturating_sub(self.written).min(left);
        usize::try_from(size).map_or(room, |size| size.min(room))
    }

    /// `size` bytes are written, of which `bytes` are kept.
    pub(super) fn write(&mut self, offset: Offset, bytes: Vec<u8>, size: u64) {
        let at = match (self.appends, offset) {
            (false, offset) => self.advance(offset, size),
            (true, offset) => {
                let end = self.size;
                if offset == Offset::Current {
                    self.position = end.map(|end| end.saturating_add(size));
                }
                end
            }
        };
        self.only_adds &= self.appends || at.is_some() && at == self.size;
        self.size = match at {
            Some(at) => self.size.map(|known| known.max(at.saturating_add(size))),
            None => None,
        };
        self.written += bytes.len();
        self.changes.push(Change::Write { at, bytes });
    }

    /// The file gets this size.
    pub(super) fn resize(&mut self, size: u64) {
        self.only_adds = false;
        self.size = Some(size);
        self.changes.push(Change::Resize(size));
    }

    /// Moves the position if the call does. Returns where the call reads or writes.
    fn advance(&mut self, offset: Offset, size: u64) -> Option<u64> {
        match offset {
            Offset::At(at) => Some(at),
            Offset::Unknown => None,
            Offset::Current => {
                let at = self.position?;
                self.position = Some(at.saturating_add(size));
                Some(at)
            }
        }
    }

    /// What the process did. `left` is the number of bytes that may be added to fill holes.
    pub(super) fn into_use(self, left: &mut usize) -> FileUse {
        if self.lists {
            return if self.reads { FileUse::List } else { FileUse::Nothing };
        }
        let is_whole = !self.is_mixed && self.apart.is_empty() && self.end == Some(self.read.len() as u64);
        let before = if self.was_empty { Some(Vec::new()) } else { is_whole.then_some(self.read) };
        match &self.changes[..] {
            [] if self.was_empty => FileUse::Write(Vec::new()),
            [] if self.reads => FileUse::Read(before),
            [] => FileUse::Nothing,
            changes if self.only_adds && !self.was_empty => FileUse::Append(added(changes)),
            changes => match before {
                Some(before) => {
                    let after = changed(&before, changes, left);
                    if self.was_empty {
                        after.map_or(FileUse::Edit(None), FileUse::Write)
                    } else {
                        FileUse::Edit(after.map(|after| (before, after)))
                    }
                }
                None => match changes {
                    [Change::Resize(size)] => FileUse::Resize(*size),
                    _ => FileUse::Edit(None),
                },
            },
        }
    }
}

/// The bytes that writes at the end add.
fn added(changes: &[Change]) -> Vec<u8> {
    let bytes = changes.iter().map(|change| match change {
        Change::Write { bytes, .. } => &bytes[..],
        Change::Resize(_) => &[],
    });
    bytes.collect::<Vec<_>>().concat()
}

/// The content after changes, without what is too large to keep. `None` if the log does not show where a change is.
fn changed(before: &[u8], changes: &[Change], left: &mut usize) -> Option<Vec<u8>> {
    let mut all = before.to_vec();
    let mut fill = |all: &mut Vec<u8>, size: u64| {
        let size = usize::try_from(size).unwrap_or(CONTENT_MAX).min(CONTENT_MAX);
        let more = size.saturating_sub(all.len()).min(*left);
        *left -= more;
        all.resize(all.len() + more, 0);
    };
    for change in changes {
        match change {
            Change::Resize(size) => {
                all.truncate(usize::try_from(*size).unwrap_or(usize::MAX));
                fill(&mut all, *size);
            }
            Change::Write { at, bytes } => {
                let at = (*at)?;
                if !bytes.is_empty() {
                    fill(&mut all, at);
                }
                if let Ok(at) = usize::try_from(at)
                    && at <= all.len()
                {
                    let known = (all.len() - at).min(bytes.len());
                    all[at..at + known].copy_from_slice(&bytes[..known]);
                    let room = CONTENT_MAX.saturating_sub(all.len());
                    all.extend(bytes[known..].iter().take(room));
                }
            }
        }
    }
    Some(all)
}
