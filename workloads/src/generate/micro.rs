//! One repeated operation, as in the rows of published latency tables.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

use super::plain;
use crate::filler::fill;
use crate::path::WorkspacePath;
use crate::script::{Bytes, CallKind, FileOp, FillerFiles, Script};

/// Bytes per system call of a sequential read or write of a large file.
const STREAM_PIECE: usize = 1 << 20;

/// The maximum content of a workload in bytes, of files and calls together.
const CONTENT_MAX: u64 = 1 << 30;

/// The parameters of a micro workload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Micro {
    /// The repeated operation.
    operation: Operation,
    /// Number of initial files in its directory.
    files: u32,
    /// Size of each file in bytes, and of each read or write.
    bytes: u32,
    /// Size of each file in bytes, if it differs from the size of a read or write.
    file_bytes: Option<u32>,
    /// Number of calls of the operation in a pass.
    calls: u32,
    /// Number of further files of the same size, which no call uses: they make the store large.
    #[serde(default)]
    filler_files: u32,
    /// The directories that the initial files are in.
    #[serde(default)]
    layout: Layout,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Layout {
    /// One directory.
    #[default]
    Flat,
    /// Ten files in each directory, so that the depth grows with the logarithm of the number of files.
    Deep,
    /// As in a repository: about twelve files in a directory, and each directory in one that was there before it.
    Tree,
}

/// The files in a directory of [`Layout::Tree`], as a mean.
const FILES_OF_TREE: u32 = 12;

/// The levels of directories in [`Layout::Tree`].
const LEVELS_OF_TREE: usize = 8;

impl Layout {
    /// The paths of so many files.
    fn paths(self, files: u32) -> Vec<WorkspacePath> {
        match self {
            Layout::Flat => (0..files).map(|number| name("f", number)).collect(),
            Layout::Deep => (0..files).map(deep).collect(),
            Layout::Tree => tree(files),
        }
    }
}

/// The path of a file whose directories are the digits of its number: `files/d1/d7/f5` is number 175.
fn deep(number: u32) -> WorkspacePath {
    let digits = number.to_string();
    let (last, above) = (digits.len() - 1, &digits[..digits.len() - 1]);
    let directories: String = above.chars().map(|digit| format!("d{digit}/")).collect();
    plain(&format!("files/{directories}f{}", &digits[last..]))
}

/// Paths in a seeded tree. A prefix of the list is the tree of fewer files.
fn tree(files: u32) -> Vec<WorkspacePath> {
    let mut rng = ChaCha8Rng::seed_from_u64(0x7472_6565);
    let mut directories = vec![("files".to_owned(), 0)];
    let mut paths = Vec::new();
    for number in 0..files {
        if rng.random_range(0..FILES_OF_TREE) == 0 {
            let (parent, level) = &directories[rng.random_range(0..directories.len())];
            if *level < LEVELS_OF_TREE {
                let directory = (format!("{parent}/d{}", directories.len()), level + 1);
                directories.push(directory);
            }
        }
        let (directory, _) = &directories[rng.random_range(0..directories.len())];
        paths.push(plain(&format!("{directory}/f{number:04}")));
    }
    paths
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    /// Open, read, close.
    Read,
    /// Read at a random offset of a file that stays open.
    Pread,
    /// Open an existing file, overwrite, close.
    Write,
    /// Write at a random offset of an existing file.
    Pwrite,
    /// Open an existing file, truncate and write it, close.
    Rewrite,
    /// Write a new file, and rename it over an existing one.
    Replace,
    /// Read the attributes.
    Stat,
    /// Read the attributes of a file, or open, read and close it, in turn.
    StatRead,
    /// Read a directory.
    List,
    /// Read a directory and the attributes of every entry.
    ListAttributes,
    /// Create, write, close.
    Create,
    /// Create, write, `fsync`, close.
    CreateFsync,
    /// Create a file and write it in chunks.
    StreamWrite,
    /// Read a file from start to end in chunks.
    StreamRead,
    /// Open for appending, write, close.
    Append,
    /// Rename within the directory.
    Rename,
    /// Remove.
    Delete,
    /// Open an existing file, overwrite, `fsync`, close.
    Fsync,
    /// Make all files durable, after an untimed overwrite of all.
    Sync,
    /// Overwrite all files and make them durable.
    WriteSync,
}

impl Micro {
    /// Whether the operation changes no names, so that a backend with fixed names supports it.
    pub(crate) fn fits_fixed_tree(&self) -> bool {
        self.layout == Layout::Flat
            && self.filler_files == 0
            && matches!(
                self.operation,
                Operation::Read
                    | Operation::Write
                    | Operation::Stat
                    | Operation::List
                    | Operation::ListAttributes
                    | Operation::Fsync
            )
    }

    pub(crate) fn script(&self) -> Result<Script, String> {
        if self.files.saturating_add(self.filler_files) > 1_000_000 {
            return Err("fields `micro.files`, `filler_files`: at most 1000000 in all".to_owned());
        }
        // A pass that changes files may need new ones, and the filler files must not be made again for it.
        let changes_nothing =
            matches!(self.operation, Operation::Read | Operation::Pread | Operation::Stat | Operation::StatRead);
        if self.filler_files > 0 && !(changes_nothing && self.files > 0) {
            return Err(
                "field `micro.filler_files`: only for `read`, `pread`, `stat` and `stat-read` of at least one file"
                    .to_owned(),
            );
        }
        let most = u64::from(self.file_bytes.unwrap_or(0).max(self.bytes));
        let asked = most * u64::from(self.files) + u64::from(self.bytes) * u64::from(self.calls);
        if asked > CONTENT_MAX {
            return Err(format!(
                "fields `micro.files`, `bytes`, `calls`: {asked} bytes of content in all exceed the limit of {CONTENT_MAX}"
            ));
        }
        if self.calls == 0 {
            return Err("field `micro.calls`: must be at least 1".to_owned());
        }
        let needs_files = !matches!(
            self.operation,
            Operation::Create | Operation::CreateFsync | Operation::StreamWrite | Operation::List
        );
        if needs_files && self.files == 0 {
            return Err("field `micro.files`: this operation needs at least one".to_owned());
        }
        if self.operation == Operation::Delete && self.calls > self.files {
            return Err("field `micro.calls`: cannot delete more than `files`".to_owned());
        }
        let mut rng = ChaCha8Rng::seed_from_u64(0x6d69_6372_6f00);
        let names = self.layout.paths(self.files);
        let file_bytes = self.file_bytes.unwrap_or(self.bytes);
        let files = names.iter().map(|path| {
            let content = content(file_bytes, &mut rng);
            (path.clone(), content)
        });
        let mut script = Script::new(files.collect());
        script.filler = FillerFiles { count: self.filler_files, bytes: file_bytes };
        let dir = plain("files");
        if !script.dirs.contains(&dir) {
            script.dirs.push(dir.clone());
        }
        let list = |attributes| FileOp::list(dir.clone(), attributes);
        match self.operation {
            // A caller that lists names has not read the files before.
            Operation::ListAttributes | Operation::List => script.warm_up = vec![list(true)],
            _ => {
                let stats = names.iter().cloned().map(FileOp::Stat);
                script.warm_up.extend(stats);
            }
        }
        script.first_touches = Some(match self.operation {
            Operation::List | Operation::ListAttributes => 1,
            _ => self.files as usize,
        });
        // Every file once in random order, then in another order, so that read-ahead finds no pattern.
        let mut order = Vec::new();
        while order.len() < self.calls as usize && !names.is_empty() {
            let mut pass = names.clone();
            pass.shuffle(&mut rng);
            order.extend(pass);
        }
        for call in 0..self.calls {
            let path = || order[call as usize].clone();
            match self.operation {
                Operation::StatRead if call % 2 == 0 => script.call(CallKind::Stat, vec![FileOp::Stat(path())]),
                Operation::Read | Operation::StatRead => {
                    let op = FileOp::ReadAt { path: path(), offset: 0, length: self.bytes as usize };
                    script.call(CallKind::Read, vec![op]);
                }
                Operation::Pread => {
                    let places = u64::from(file_bytes / self.bytes.max(1));
                    let op = FileOp::ReadOpen {
                        path: path(),
                        offset: rng.random_range(0..places.max(1)) * u64::from(self.bytes),
                        length: self.bytes as usize,
                    };
                    script.call(CallKind::Pread, vec![op]);
                }
                Operation::Write => {
                    let op = self.overwrite(path(), false, &mut rng);
                    script.call(CallKind::Write, vec![op]);
                }
                Operation::Pwrite => {
                    let places = u64::from(file_bytes / self.bytes.max(1));
                    let op = FileOp::WriteAt {
                        path: path(),
                        offset: rng.random_range(0..places.max(1)) * u64::from(self.bytes),
                        content: content(self.bytes, &mut rng),
                        sync: false,
                    };
                    script.call(CallKind::Write, vec![op]);
                }
                Operation::Rewrite => {
                    let op = FileOp::write(path(), content(self.bytes, &mut rng));
                    script.call(CallKind::Write, vec![op]);
                }
                Operation::Replace => {
                    let new = name("n", call);
                    let ops = vec![
                        FileOp::write(new.clone(), content(self.bytes, &mut rng)),
                        FileOp::Rename { from: new, to: path() },
                    ];
                    script.call(CallKind::Write, ops);
                }
                Operation::Fsync => {
                    let op = self.overwrite(path(), true, &mut rng);
                    script.call(CallKind::Fsync, vec![op]);
                }
                Operation::Stat => script.call(CallKind::Stat, vec![FileOp::Stat(path())]),
                Operation::List => script.call(CallKind::List, vec![list(false)]),
                Operation::ListAttributes => {
                    script.call(CallKind::ListAttributes, vec![list(true)]);
                }
                Operation::Create | Operation::CreateFsync => {
                    let op = FileOp::Write {
                        path: name("n", call),
                        content: content(self.bytes, &mut rng),
                        sync: self.operation == Operation::CreateFsync,
                    };
                    script.call(CallKind::Create, vec![op]);
                }
                Operation::StreamWrite => {
                    let content = content(self.bytes, &mut rng);
                    let pieces = content
                        .chunks(STREAM_PIECE)
                        .map(|piece| FileOp::Append { path: name("n", call), content: piece.to_vec().into() });
                    script.call(CallKind::Write, pieces.collect());
                }
                Operation::StreamRead => {
                    let pieces = (0..self.bytes as usize).step_by(STREAM_PIECE);
                    let pieces = pieces.map(|offset| FileOp::ReadOpen {
                        path: path(),
                        offset: offset as u64,
                        length: STREAM_PIECE,
                    });
                    script.call(CallKind::Read, pieces.collect());
                }
                Operation::Append => {
                    let op = FileOp::Append { path: path(), content: content(self.bytes, &mut rng) };
                    script.call(CallKind::Append, vec![op]);
                }
                Operation::Rename => {
                    // Odd calls undo even ones, so that names do not run out.
                    let file = order[(call / 2) as usize].clone();
                    let other = name("r", call / 2);
                    let (from, to) = if call % 2 == 0 { (file, other) } else { (other, file) };
                    script.call(CallKind::Rename, vec![FileOp::Rename { from, to }]);
                }
                Operation::Delete => script.call(CallKind::Delete, vec![FileOp::Remove(path())]),
                Operation::Sync | Operation::WriteSync => {
                    let dirty = names.iter();
                    let dirty = dirty.map(|path| self.overwrite(path.clone(), false, &mut rng));
                    let mut dirty: Vec<_> = dirty.collect();
                    let sync = names.iter().cloned().map(FileOp::Sync);
                    if self.operation == Operation::Sync {
                        script.meanwhile(std::mem::take(&mut dirty));
                    }
                    dirty.extend(sync);
                    script.call(CallKind::Sync, dirty);
                }
            }
        }
        Ok(script)
    }

    fn overwrite(&self, path: WorkspacePath, sync: bool, rng: &mut ChaCha8Rng) -> FileOp {
        FileOp::WriteAt { path, offset: 0, content: content(self.bytes, rng), sync }
    }
}

fn content(bytes: u32, rng: &mut ChaCha8Rng) -> Bytes {
    let bytes = u64::from(bytes);
    fill(rng.next_u64(), bytes, bytes / 40).into()
}

/// A path such as `files/f0042`, as the null backend lists them.
fn name(prefix: &str, number: u32) -> WorkspacePath {
    plain(&format!("files/{prefix}{number:04}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micro(operation: Operation, files: u32, calls: u32) -> Micro {
        Micro { operation, files, bytes: 1024, file_bytes: None, calls, filler_files: 0, layout: Layout::Flat }
    }

    #[test]
    fn the_same_parameters_make_the_same_script() {
        let make = || micro(Operation::Fsync, 8, 20).script().unwrap();
        assert_eq!(make(), make());
    }

    #[test]
    fn each_layout_has_as_many_files_in_directories_of_its_kind() {
        let count = |paths: &[WorkspacePath]| {
            let mut entries: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
            for path in paths {
                let text = path.to_string();
                *entries.entry(text.rsplit_once('/').unwrap().0.to_owned()).or_default() += 1;
            }
            let unique: std::collections::BTreeSet<&WorkspacePath> = paths.iter().collect();
            assert_eq!(unique.len(), paths.len());
            let levels = paths.iter().map(|path| path.to_string().matches('/').count()).max().unwrap();
            (entries.len(), *entries.values().max().unwrap(), levels)
        };
        assert_eq!(count(&Layout::Flat.paths(2000)), (1, 2000, 1));
        let (directories, most, levels) = count(&Layout::Deep.paths(2000));
        assert!((190..=210).contains(&directories) && most <= 10 && levels == 4, "{directories} {most} {levels}");
        let (directories, most, levels) = count(&Layout::Tree.paths(2000));
        assert!(
            (120..220).contains(&directories) && most < 200 && (4..=9).contains(&levels),
            "{directories} {most} {levels}"
        );
        for layout in [Layout::Flat, Layout::Deep, Layout::Tree] {
            assert_eq!(layout.paths(300), layout.paths(2000)[..300]);
        }
        let deep = Micro { layout: Layout::Deep, ..micro(Operation::Stat, 200, 10) };
        assert!(!deep.fits_fixed_tree());
        assert!(deep.script().unwrap().dirs.contains(&plain("files/d1/d9")));
    }

    #[test]
    fn a_script_names_the_kinds_of_calls_that_make_files_durable() {
        let kinds = |operation| {
            let script = micro(operation, 2, 4).script().unwrap();
            script.kinds_that_sync().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(kinds(Operation::CreateFsync), [CallKind::Create]);
        assert_eq!(kinds(Operation::Fsync), [CallKind::Fsync]);
        assert_eq!(kinds(Operation::Sync), [CallKind::Sync]);
        assert_eq!(kinds(Operation::Create), []);
    }

    #[test]
    fn a_replaced_file_is_written_under_another_name_first() {
        let script = micro(Operation::Replace, 2, 4).script().unwrap();
        for call in &script.calls {
            let [FileOp::Write { path, .. }, FileOp::Rename { from, to }] = &call.ops[..] else {
                panic!("{:?}", call.ops);
            };
            assert_eq!(path, from);
            let is_file = |path: &WorkspacePath| script.files.iter().any(|file| file.0 == *path);
            assert!(is_file(to) && !is_file(from));
        }
    }

    #[test]
    fn filler_files_lie_between_the_files_of_the_calls_and_take_no_memory() {
        let large = Micro { file_bytes: Some(1 << 20), filler_files: 900_001, ..micro(Operation::StatRead, 7, 7) };
        let script = large.script().unwrap();
        assert_eq!((script.files.len(), script.filler.bytes), (7, 1 << 20));
        let mut next = 0;
        for number in 0..7 {
            let after = script.filler.after(number, 7);
            assert_eq!(after.start, next);
            assert!((after.end - after.start).abs_diff(900_001 / 7) <= 1, "{after:?}");
            next = after.end;
        }
        assert_eq!(next, 900_001);
        let kinds: Vec<Option<CallKind>> = script.calls.iter().map(|call| call.kind).collect();
        assert_eq!(kinds[..3], [Some(CallKind::Stat), Some(CallKind::Read), Some(CallKind::Stat)]);
        assert!(!large.fits_fixed_tree());
        for (wrong, field) in
            [(micro(Operation::Write, 7, 7), "filler_files"), (micro(Operation::Read, 200_000, 7), "files")]
        {
            let error = Micro { filler_files: 900_000, ..wrong }.script().unwrap_err();
            assert!(error.contains(field), "{error}");
        }
    }

    #[test]
    fn random_writes_stay_within_the_file() {
        let micro = Micro { file_bytes: Some(64 << 10), ..micro(Operation::Pwrite, 1, 100) };
        let script = micro.script().unwrap();
        let offsets = script.calls.iter().map(|call| match &call.ops[..] {
            [FileOp::WriteAt { offset, .. }] => *offset,
            other => panic!("{other:?}"),
        });
        let offsets: std::collections::BTreeSet<u64> = offsets.collect();
        assert!(offsets.len() > 30);
        assert!(offsets.iter().all(|offset| offset % 1024 == 0 && *offset < 64 << 10));
    }

    #[test]
    fn every_file_is_used_once_before_any_is_used_twice() {
        let script = micro(Operation::Read, 16, 40).script().unwrap();
        let paths: Vec<_> = script.calls.iter().map(|call| call.ops[0].path()).collect();
        for pass in paths.chunks(16) {
            let mut unique: Vec<_> = pass.to_vec();
            unique.sort();
            unique.dedup();
            assert_eq!(unique.len(), pass.len());
        }
    }
}
