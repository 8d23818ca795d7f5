//! The reference model: the results that every operation of a script must return on a correct file system.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::path::WorkspacePath;
use crate::script::{Bytes, FileOp, Script};

/// The expected result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedResult {
    /// Success, with nothing to compare.
    Done,
    /// These bytes.
    Bytes(Bytes),
    /// These bytes out of a larger content.
    Part {
        /// The whole content.
        whole: Bytes,
        /// The offset of the first byte.
        start: usize,
        /// The offset after the last byte.
        end: usize,
    },
    /// Attributes of a file of this size, or of a directory.
    Attributes {
        /// Size in bytes; `None` for a directory, whose size is not compared.
        size: Option<u64>,
    },
    /// These entries, in any order.
    Entries(BTreeMap<String, ModelEntry>),
    /// These entries, in any order, and any directories beside them.
    EntriesAmongDirectories(BTreeMap<String, ModelEntry>),
    /// These files below the searched directory, with their content.
    Tree {
        /// The files.
        files: BTreeMap<WorkspacePath, Bytes>,
        /// Files and directories whose content is not known.
        opaque: BTreeSet<WorkspacePath>,
    },
    /// These files below the walked directory.
    Paths {
        /// The files.
        files: BTreeSet<WorkspacePath>,
        /// Files and directories whose content is not known.
        opaque: BTreeSet<WorkspacePath>,
    },
    /// Exit status 0, and this standard output where one is known.
    Ran(Option<String>),
    /// Any of these lines, each complete.
    Lines(BTreeSet<Bytes>),
    /// Text that mentions all of these.
    Mentions(Vec<String>),
    /// Failure with this error number.
    Errno(i32),
}

/// An entry of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelEntry {
    /// A file of this size in bytes.
    File(u64),
    /// A directory.
    Directory,
}

/// The changes that turn one state of a workspace into another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restoration {
    /// Files to remove.
    pub removed_files: Vec<WorkspacePath>,
    /// Directories to remove after their files, the deepest first.
    pub removed_dirs: Vec<WorkspacePath>,
    /// Directories to create, the highest first.
    pub dirs: Vec<WorkspacePath>,
    /// Files to create.
    pub created: Vec<(WorkspacePath, Bytes)>,
    /// Files to change in place: to truncate them to nothing first would make a file system write them to the disk at once.
    pub changed: Vec<FileChange>,
}

/// The change that turns one content of a file into another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The file.
    pub path: WorkspacePath,
    /// The length to cut it to, in bytes, before anything is written. `None`: it is not too long.
    pub length: Option<u64>,
    /// Where `content` belongs, in bytes.
    pub offset: u64,
    /// The bytes that differ; empty if the rest need only be cut off.
    pub content: Vec<u8>,
}

impl FileChange {
    fn new(path: &WorkspacePath, from: &[u8], to: &[u8]) -> Self {
        let same = |(one, other): &(&u8, &u8)| one == other;
        let start = from.iter().zip(to).take_while(same).count();
        let rest = from[start..].iter().rev().zip(to[start..].iter().rev());
        let end = if from.len() == to.len() { to.len() - rest.take_while(same).count() } else { to.len() };
        Self {
            path: path.clone(),
            length: (from.len() > to.len()).then_some(to.len() as u64),
            offset: start as u64,
            content: to[start..end].to_vec(),
        }
    }
}

/// The error number of a missing file.
const ENOENT: i32 = 2;
/// The error number of an existing name.
const EEXIST: i32 = 17;
/// The error number of a directory that is not empty.
const ENOTEMPTY: i32 = 39;
/// The error number of a path through a file.
const ENOTDIR: i32 = 20;
/// The error number of a directory in place of a file.
const EISDIR: i32 = 21;

/// The expected files of a workspace.
#[derive(Clone, Debug)]
pub struct ReferenceModel {
    files: BTreeMap<WorkspacePath, Bytes>,
    dirs: BTreeSet<WorkspacePath>,
    /// The lines that hosts have appended to each file, or tried to.
    lines: BTreeMap<WorkspacePath, BTreeSet<Bytes>>,
    /// Files and directories that programs have made: their content is not known.
    opaque: BTreeSet<WorkspacePath>,
    /// Whether changes are accepted but dropped, as by a backend that stores no data.
    fixed: bool,
}

impl ReferenceModel {
    /// The initial state of a script.
    pub fn of(script: &Script) -> Self {
        let made = script.setup.iter().flat_map(|run| &run.makes);
        Self {
            files: script.files.iter().cloned().collect(),
            dirs: script.dirs.iter().cloned().collect(),
            lines: BTreeMap::new(),
            opaque: made.cloned().collect(),
            fixed: false,
        }
    }

    /// The names of a script, with the same fixed bytes in every file, whatever is written.
    pub fn fixed(script: &Script, content: &Bytes) -> Self {
        let files = script.files.iter();
        let files = files.map(|(path, _)| (path.clone(), Bytes::clone(content)));
        Self { files: files.collect(), opaque: BTreeSet::new(), fixed: true, ..Self::of(script) }
    }

    /// The content of a file, if it exists.
    pub fn file(&self, path: &WorkspacePath) -> Option<&Bytes> {
        self.files.get(path)
    }

    /// The changes that turn this state into `other`.
    pub fn restoration(&self, other: &Self) -> Restoration {
        let dirs = other.dirs.difference(&self.dirs);
        let removed_files = self.files.keys();
        let removed_files = removed_files.filter(|path| !other.files.contains_key(*path));
        let removed_dirs = self.dirs.iter().rev();
        let removed_dirs = removed_dirs.filter(|dir| !other.dirs.contains(*dir));
        let mut restoration = Restoration {
            removed_files: removed_files.cloned().collect(),
            removed_dirs: removed_dirs.cloned().collect(),
            dirs: dirs.cloned().collect(),
            ..Restoration::default()
        };
        for (path, bytes) in &other.files {
            match self.files.get(path) {
                Some(now) if now == bytes => {}
                Some(now) => {
                    let change = FileChange::new(path, now, bytes);
                    restoration.changed.push(change);
                }
                None => restoration.created.push((path.clone(), Bytes::clone(bytes))),
            }
        }
        restoration
    }

    /// All lines that hosts have appended, or tried to.
    pub fn lines(&self) -> BTreeSet<Bytes> {
        self.lines.values().flatten().cloned().collect()
    }

    /// Applies an operation and returns its expected result.
    pub fn apply(&mut self, op: &FileOp) -> ExpectedResult {
        match self.perform(op) {
            Ok(expected) => expected,
            Err(errno) => ExpectedResult::Errno(errno),
        }
    }

    /// Applies an operation without putting its expected result together: a listing or a walk of many files is long.
    ///
    /// # Errors
    /// The error number with which it must fail.
    pub fn follow(&mut self, op: &FileOp) -> Result<(), i32> {
        match op {
            FileOp::List { path, .. } | FileOp::Search(path) | FileOp::Walk(path) => self.check_dir(path),
            op => self.perform(op).map(drop),
        }
    }

    fn perform(&mut self, op: &FileOp) -> Result<ExpectedResult, i32> {
        match op {
            FileOp::Read(path) => return Ok(ExpectedResult::Bytes(Bytes::clone(self.existing(path)?))),
            FileOp::ReadAt { path, offset, length } | FileOp::ReadOpen { path, offset, length } => {
                let whole = Bytes::clone(self.existing(path)?);
                let start = (*offset as usize).min(whole.len());
                let end = (start + length).min(whole.len());
                return Ok(ExpectedResult::Part { whole, start, end });
            }
            FileOp::Write { path, content, .. } => {
                self.check_parent(path)?;
                if self.is_dir(path) {
                    return Err(EISDIR);
                }
                self.put(path, Bytes::clone(content));
            }
            FileOp::WriteAt { path, offset, content, .. } => {
                self.existing(path)?;
                let (start, end) = (*offset as usize, *offset as usize + content.len());
                self.edit(path, |bytes| {
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[start..end].copy_from_slice(content);
                });
            }
            FileOp::Append { path, content } => {
                self.check_parent(path)?;
                match self.existing(path) {
                    Ok(_) | Err(ENOENT) => {}
                    Err(errno) => return Err(errno),
                }
                self.edit(path, |bytes| bytes.extend_from_slice(content));
            }
            FileOp::Create(path) => {
                self.check_parent(path)?;
                if self.files.contains_key(path) || self.is_dir(path) {
                    return Err(EEXIST);
                }
                self.put(path, Bytes::default());
            }
            FileOp::Stat(path) => {
                let size = if self.is_dir(path) { None } else { Some(self.existing(path)?.len() as u64) };
                return Ok(ExpectedResult::Attributes { size });
            }
            FileOp::List { path, .. } => {
                self.check_dir(path)?;
                return Ok(ExpectedResult::Entries(self.entries(path)));
            }
            FileOp::Search(path) => {
                self.check_dir(path)?;
                let files = self.files.iter().filter(|(file, _)| file.is_within(path));
                let tree = files.map(|(file, bytes)| (file.clone(), Bytes::clone(bytes)));
                return Ok(ExpectedResult::Tree { files: tree.collect(), opaque: self.opaque.clone() });
            }
            FileOp::Walk(path) => {
                self.check_dir(path)?;
                let files = self.files.keys().filter(|file| file.is_within(path));
                return Ok(ExpectedResult::Paths { files: files.cloned().collect(), opaque: self.opaque.clone() });
            }
            FileOp::Rename { from, to } => {
                let bytes = Bytes::clone(self.existing(from)?);
                self.check_parent(to)?;
                if self.is_dir(to) {
                    return Err(EISDIR);
                }
                if !self.fixed {
                    self.files.remove(from);
                }
                self.put(to, bytes);
            }
            FileOp::Remove(path) => {
                self.existing(path)?;
                if !self.fixed {
                    self.files.remove(path);
                }
            }
            FileOp::MakeDir(path) => {
                for dir in path.ancestors().into_iter().chain([path.clone()]) {
                    if self.files.contains_key(&dir) {
                        return Err(if dir == *path { EEXIST } else { ENOTDIR });
                    }
                    if !self.fixed && !dir.is_root() {
                        self.dirs.insert(dir);
                    }
                }
            }
            FileOp::RemoveDir(path) => {
                self.check_dir(path)?;
                if !self.fixed {
                    let is_below = |other: &WorkspacePath| other != path && other.is_within(path);
                    if self.files.keys().any(is_below) || self.dirs.iter().any(is_below) {
                        return Err(ENOTEMPTY);
                    }
                    self.dirs.remove(path);
                }
            }
            FileOp::SyncAll { dir, files } => {
                self.check_dir(dir)?;
                for file in files {
                    self.existing(file)?;
                }
            }
            FileOp::Sync(path) | FileOp::Touch(path) => {
                self.existing(path)?;
            }
            FileOp::Together { dir, clients } => {
                for (name, content) in clients.written() {
                    let path = dir.join(&name).map_err(|_| ENOENT)?;
                    self.existing(&path)?;
                    self.put(&path, content);
                }
            }
            FileOp::Run(run) => {
                for (from, to) in &run.copies {
                    self.copy_tree(from, to)?;
                }
                for tree in &run.removes {
                    self.files.retain(|path, _| !path.is_within(tree));
                    self.dirs.retain(|path| !path.is_within(tree));
                    self.opaque.retain(|path| !path.is_within(tree));
                }
                self.opaque.extend(run.makes.iter().cloned());
                return Ok(ExpectedResult::Ran(run.output.clone()));
            }
            FileOp::SeenByOther { path, content, .. } => {
                self.existing(path)?;
                return Ok(ExpectedResult::Bytes(Bytes::clone(content)));
            }
            FileOp::AddLine { path, line, .. } => {
                self.check_parent(path)?;
                let lines = self.lines.entry(path.clone()).or_default();
                // Which of these lines a host sees is measured. Any other line is an error.
                let expected = ExpectedResult::Lines(lines.clone());
                lines.insert(Bytes::clone(line));
                return Ok(expected);
            }
            // The wording of an answer is free.
            FileOp::Ask { mentions, .. } => return Ok(ExpectedResult::Mentions(mentions.clone())),
        }
        Ok(ExpectedResult::Done)
    }

    /// Whether the content of a file or directory is not known.
    pub fn has_opaque(&self) -> bool {
        !self.opaque.is_empty()
    }

    fn copy_tree(&mut self, from: &WorkspacePath, to: &WorkspacePath) -> Result<(), i32> {
        let moved = |path: &WorkspacePath| {
            let below = path.as_str().strip_prefix(from.as_str()).ok_or(ENOENT)?;
            WorkspacePath::new(format!("{to}{below}")).map_err(|_| ENOENT)
        };
        let dirs = self.dirs.iter().filter(|path| path.is_within(from));
        let dirs: Vec<_> = dirs.map(moved).collect::<Result<_, _>>()?;
        let files = self.files.iter().filter(|(path, _)| path.is_within(from));
        let files: Vec<_> =
            files.map(|(path, bytes)| Ok((moved(path)?, Bytes::clone(bytes)))).collect::<Result<_, i32>>()?;
        self.dirs.extend(dirs);
        self.files.extend(files);
        Ok(())
    }

    fn is_dir(&self, path: &WorkspacePath) -> bool {
        path.is_root() || self.dirs.contains(path)
    }

    fn put(&mut self, path: &WorkspacePath, bytes: Bytes) {
        if !self.fixed {
            self.files.insert(path.clone(), bytes);
        }
    }

    /// Edits a file, or a new one, in place. Copies the content first if another owner shares it.
    fn edit(&mut self, path: &WorkspacePath, change: impl FnOnce(&mut Vec<u8>)) {
        if !self.fixed {
            change(Arc::make_mut(self.files.entry(path.clone()).or_default()));
        }
    }

    fn existing(&self, path: &WorkspacePath) -> Result<&Bytes, i32> {
        self.check_parent(path)?;
        match self.files.get(path) {
            Some(bytes) => Ok(bytes),
            None if self.is_dir(path) => Err(EISDIR),
            None => Err(ENOENT),
        }
    }

    /// Checks that every ancestor of `path` is a directory.
    fn check_parent(&self, path: &WorkspacePath) -> Result<(), i32> {
        let above = path.ancestors();
        if above.iter().any(|dir| self.files.contains_key(dir)) {
            return Err(ENOTDIR);
        }
        let is_there = above.iter().all(|dir| self.dirs.contains(dir));
        is_there.then_some(()).ok_or(ENOENT)
    }

    fn check_dir(&self, path: &WorkspacePath) -> Result<(), i32> {
        self.check_parent(path)?;
        match self.files.contains_key(path) {
            _ if self.is_dir(path) => Ok(()),
            true => Err(ENOTDIR),
            false => Err(ENOENT),
        }
    }

    fn entries(&self, dir: &WorkspacePath) -> BTreeMap<String, ModelEntry> {
        let is_child = |path: &&WorkspacePath| path.parent().as_ref() == Some(dir);
        let files = self.files.iter().filter(|(path, _)| is_child(path));
        let files = files.map(|(path, bytes)| {
            let entry = ModelEntry::File(bytes.len() as u64);
            (path.name().to_owned(), entry)
        });
        let dirs = self.dirs.iter().filter(is_child);
        let dirs = dirs.map(|path| (path.name().to_owned(), ModelEntry::Directory));
        files.chain(dirs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_is_followed_has_the_error_and_the_changes_of_one_that_is_applied() {
        let path = |text: &str| WorkspacePath::new(text).unwrap();
        let script = Script::new(vec![(path("d/a"), Bytes::default())]);
        let (mut followed, mut applied) = (ReferenceModel::of(&script), ReferenceModel::of(&script));
        let mut ops = vec![FileOp::write(path("d/b"), Bytes::default())];
        for at in [".", "d", "d/a", "d/a/x", "none", "none/x"] {
            let at = if at == "." { WorkspacePath::root() } else { path(at) };
            ops.push(FileOp::list(at.clone(), false));
            ops.extend([FileOp::Walk(at.clone()), FileOp::Search(at.clone()), FileOp::Read(at)]);
        }
        for op in ops {
            let expected = match applied.apply(&op) {
                ExpectedResult::Errno(errno) => Err(errno),
                _ => Ok(()),
            };
            assert_eq!(followed.follow(&op), expected, "{}", op.describe());
        }
        assert_eq!(followed.files, applied.files);
    }

    #[test]
    fn a_change_of_a_file_writes_only_the_bytes_that_differ() {
        let path = WorkspacePath::root();
        let change = |from: &str, to: &str| {
            let change = FileChange::new(&path, from.as_bytes(), to.as_bytes());
            let content = String::from_utf8(change.content).unwrap();
            (change.length, change.offset, content)
        };
        assert_eq!(change("same", "sane"), (None, 2, "n".to_owned()));
        assert_eq!(change("aaaa", "abaa"), (None, 1, "b".to_owned()));
        assert_eq!(change("lines and more", "lines"), (Some(5), 5, String::new()));
        assert_eq!(change("", "all"), (None, 0, "all".to_owned()));
        assert_eq!(change("all", ""), (Some(0), 0, String::new()));
        assert_eq!(change("old end", "new longer"), (None, 0, "new longer".to_owned()));
        assert_eq!(change("new longer", "new end"), (Some(7), 4, "end".to_owned()));
    }
}
