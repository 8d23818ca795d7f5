//! Unusual requests of one agent process: many files, large files, odd names, deep paths.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rundir::faults::Fact;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::Caller;

/// Bytes per write to a large file.
const PIECE: usize = 1 << 20;

/// A task of unusual file system calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientTask {
    /// Opens many files at once; writes and reads each through its descriptor.
    OpenMany {
        /// An empty directory.
        dir: PathBuf,
        /// The number of files.
        files: u64,
    },
    /// Creates many files in one directory, lists them and removes them.
    ManyFiles {
        /// An empty directory.
        dir: PathBuf,
        /// The number of files.
        files: u64,
    },
    /// Writes a large, mostly sparse file.
    LargeFile {
        /// Path of the file.
        file: PathBuf,
        /// Its size in MiB.
        mib: u64,
        /// MiB that are written: a third each at the start, in the middle and at the end.
        written_mib: u64,
    },
    /// Creates files whose names programs often mishandle.
    OddNames {
        /// An empty directory.
        dir: PathBuf,
    },
    /// Creates nested directories with a file at the bottom, and renames the top.
    DeepPath {
        /// An empty directory.
        dir: PathBuf,
        /// The number of levels.
        depth: u32,
    },
    /// `rm -rf`.
    RemoveTree {
        /// The directory that is removed.
        dir: PathBuf,
    },
    /// Reads existing files one after the other, until a read fails.
    ReadAll {
        /// Their directory.
        dir: PathBuf,
    },
}

impl ClientTask {
    /// The path that the task works on.
    pub(super) fn place(&self) -> &Path {
        match self {
            ClientTask::LargeFile { file, .. } => file,
            ClientTask::OpenMany { dir, .. }
            | ClientTask::ManyFiles { dir, .. }
            | ClientTask::OddNames { dir }
            | ClientTask::DeepPath { dir, .. }
            | ClientTask::RemoveTree { dir }
            | ClientTask::ReadAll { dir } => dir,
        }
    }

    /// Performs the task. The first failure is recorded and ends it.
    pub(super) fn perform(self, caller: &mut Caller) {
        let started = Instant::now();
        let done = match &self {
            ClientTask::OpenMany { dir, files } => open_many(dir, *files, caller),
            ClientTask::ManyFiles { dir, files } => many_files(dir, *files, caller),
            ClientTask::LargeFile {
                file,
                mib,
                written_mib,
            } => large_file(file, *mib, *written_mib, caller),
            ClientTask::OddNames { dir } => odd_names(dir, caller),
            ClientTask::DeepPath { dir, depth } => deep_path(dir, *depth, caller),
            ClientTask::RemoveTree { dir } => remove_tree(dir, caller),
            ClientTask::ReadAll { dir } => read_all(dir, caller),
        };
        caller.fact("done", Fact::Count(u64::from(done.is_ok())));
        caller.fact("seconds", Fact::Number(started.elapsed().as_secs_f64()));
    }
}

fn open_many(dir: &Path, files: u64, caller: &mut Caller) -> io::Result<()> {
    let most = Some(files + 64);
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    // If the limit cannot be raised, `open` fails with EMFILE, and that is recorded.
    let _ = setrlimit(Resource::Nofile, limit);
    caller.call("mkdir", || fs::create_dir_all(dir))?;
    let mut open = Vec::new();
    for number in 0..files {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let path = dir.join(format!("f{number}"));
        let mut file = caller.call("open", || options.open(&path))?;
        caller.call("write", || writeln!(file, "{number}"))?;
        open.push(file);
    }
    caller.fact("open_at_once", Fact::Count(open.len() as u64));
    for (number, file) in (0..).zip(&open) {
        let wanted = format!("{number}\n");
        let mut bytes = vec![0; wanted.len()];
        caller.call("read", || file.read_exact_at(&mut bytes, 0))?;
        if bytes != wanted.as_bytes() {
            caller.wrong("read", format!("file {number} does not hold its number"));
        }
    }
    Ok(())
}

fn many_files(dir: &Path, files: u64, caller: &mut Caller) -> io::Result<()> {
    caller.call("mkdir", || fs::create_dir_all(dir))?;
    let started = Instant::now();
    for number in 0..files {
        let path = dir.join(format!("note-{number:06}.md"));
        caller.call("create", || fs::write(&path, number.to_string()))?;
    }
    caller.fact("create_s", Fact::Number(started.elapsed().as_secs_f64()));
    let started = Instant::now();
    let listed = caller.call("readdir", || {
        let entries = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name()));
        entries.collect::<io::Result<Vec<OsString>>>()
    })?;
    caller.fact("list_s", Fact::Number(started.elapsed().as_secs_f64()));
    let different: std::collections::BTreeSet<&OsString> = listed.iter().collect();
    if listed.len() as u64 != files || different.len() != listed.len() {
        let (names, different) = (listed.len(), different.len());
        caller.wrong(
            "readdir",
            format!("{names} names, {different} different, of {files}"),
        );
    }
    let last = dir.join(format!("note-{:06}.md", files - 1));
    let read = caller.call("read", || fs::read_to_string(&last))?;
    if read != (files - 1).to_string() {
        caller.wrong("read", format!("{read:?} instead of {}", files - 1));
    }
    let started = Instant::now();
    caller.call("rm -rf", || fs::remove_dir_all(dir))?;
    caller.fact("remove_s", Fact::Number(started.elapsed().as_secs_f64()));
    Ok(())
}

fn large_file(path: &Path, mib: u64, written: u64, caller: &mut Caller) -> io::Result<()> {
    let third = (written / 3).max(1);
    if let Some(dir) = path.parent() {
        caller.call("mkdir", || fs::create_dir_all(dir))?;
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    let file = caller.call("open", || options.open(path))?;
    let starts = [0, (mib / 2).max(third), mib - third];
    let piece = |at: u64| vec![(at % 251) as u8 + 1; PIECE];
    for at in starts.iter().flat_map(|start| *start..*start + third) {
        caller.call("write", || file.write_all_at(&piece(at), at << 20))?;
    }
    caller.call("fsync", || file.sync_all())?;
    let size = caller.call("stat", || file.metadata())?.len();
    if size != mib << 20 {
        caller.wrong("stat", format!("{size} bytes instead of {}", mib << 20));
    }
    let mut bytes = vec![0; PIECE];
    let written_at = |at: u64| {
        starts
            .iter()
            .any(|start| (*start..*start + third).contains(&at))
    };
    let mut wrong = 0;
    // Every written piece, and one piece of each hole.
    let holes = [third, mib / 2 + third]
        .into_iter()
        .filter(|at| *at < mib && !written_at(*at));
    let all = starts
        .iter()
        .flat_map(|start| *start..*start + third)
        .chain(holes);
    for at in all {
        caller.call("read", || file.read_exact_at(&mut bytes, at << 20))?;
        let wanted = if written_at(at) {
            piece(at)
        } else {
            vec![0; PIECE]
        };
        wrong += u64::from(bytes != wanted);
    }
    if wrong > 0 {
        caller.wrong("read", format!("{wrong} MiB do not hold what was written"));
    }
    drop(file);
    caller.call("unlink", || fs::remove_file(path))
}

/// Names that Linux file systems allow and programs often mishandle.
fn names() -> Vec<OsString> {
    let mut names: Vec<OsString> = [
        " ",
        "  two  ",
        "-rf",
        "--",
        "a\nb",
        "tab\there",
        "quote'\"",
        "$(touch x)",
        "`id`",
        "*",
        "?",
        "[a]",
        "~",
        "#x",
        "back\\slash",
        "%2F",
        "%00",
        "a%20b",
        "con",
        "nul.",
        "trailing.",
        "trailing ",
        ".hidden",
        "...",
        ":search?x",
        "|pipe",
        "semi;colon",
        "\u{1b}[31m",
        "\u{7f}",
        "\u{feff}bom",
        "\u{202e}rtl",
        "e\u{301}",
        "\u{e9}",
        "😀",
        "İ",
        "ß",
        "SS",
        "a~2",
        "x.conflict-y-1.md",
        ".new-1",
        "ctx",
        "manifest.json",
    ]
    .into_iter()
    .map(OsString::from)
    .collect();
    names.extend([
        OsString::from_vec(vec![0xff, 0xfe]),
        OsString::from_vec(vec![b'a', 0xc3]),
        OsString::from("x".repeat(255)),
        OsString::from("é".repeat(127)),
    ]);
    names
}

fn odd_names(dir: &Path, caller: &mut Caller) -> io::Result<()> {
    caller.call("mkdir", || fs::create_dir_all(dir))?;
    let (mut held, mut refused) = (Vec::new(), Vec::new());
    for name in names() {
        let content = name.as_bytes().to_owned();
        // Refusing a name is allowed; mangling it is not. So a refusal is counted, not recorded as a
        // failure.
        match fs::write(dir.join(&name), &content) {
            Ok(()) => held.push(name),
            Err(error) => refused.push(format!("{:?}: {error}", shown(&name))),
        }
    }
    caller.fact("names_held", Fact::Count(held.len() as u64));
    caller.fact("names_refused", Fact::Count(refused.len() as u64));
    if !refused.is_empty() {
        caller.fact("refused", Fact::Words(refused.join("; ")));
    }
    let listed = caller.call("readdir", || {
        let entries = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name()));
        entries.collect::<io::Result<Vec<OsString>>>()
    })?;
    for name in &held {
        if !listed.contains(name) {
            caller.wrong("readdir", format!("{:?} is not listed", shown(name)));
        }
        match caller.call("read", || fs::read(dir.join(name))) {
            Ok(bytes) if bytes != name.as_bytes() => {
                caller.wrong("read", format!("{:?} holds something else", shown(name)));
            }
            _ => {}
        }
    }
    for name in &listed {
        if !held.contains(name) {
            caller.wrong(
                "readdir",
                format!("{:?} is listed, and was never made", shown(name)),
            );
        }
    }
    // A name longer than NAME_MAX must be refused.
    let too_long = fs::write(dir.join("x".repeat(256)), b"x");
    if too_long.as_ref().err().and_then(io::Error::raw_os_error) != Some(36) {
        caller.wrong(
            "create",
            format!("a name of 256 bytes: {too_long:?} instead of ENAMETOOLONG"),
        );
    }
    Ok(())
}

fn shown(name: &OsStr) -> String {
    let text: String = name.to_string_lossy().chars().take(40).collect();
    text
}

fn deep_path(dir: &Path, depth: u32, caller: &mut Caller) -> io::Result<()> {
    let inside = |top: &Path| {
        let mut path = top.to_owned();
        path.extend((0..depth).map(|level| format!("d{level}")));
        path
    };
    let top = dir.join("deep");
    let bottom = inside(&top);
    caller.fact("path_bytes", Fact::Count(bottom.as_os_str().len() as u64));
    caller.call("mkdir -p", || fs::create_dir_all(&bottom))?;
    caller.call("write", || fs::write(bottom.join("note"), b"down here"))?;
    let renamed = dir.join("renamed");
    caller.call("rename", || fs::rename(&top, &renamed))?;
    let read = caller.call("read", || fs::read(inside(&renamed).join("note")))?;
    if read != b"down here" {
        caller.wrong(
            "read",
            "the file at the bottom holds something else".to_owned(),
        );
    }
    if fs::metadata(&top).is_ok() {
        caller.wrong("stat", "the old name is still there".to_owned());
    }
    caller.call("rm -rf", || fs::remove_dir_all(&renamed))
}

fn remove_tree(dir: &Path, caller: &mut Caller) -> io::Result<()> {
    let mut tries = 0u64;
    loop {
        tries += 1;
        // A process that still writes to the tree makes the removal fail with ENOTEMPTY. Retry.
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && tries < 1000 => {}
            removed => {
                caller.fact("tries", Fact::Count(tries));
                return caller.call("rm -rf", || removed);
            }
        }
    }
}

fn read_all(dir: &Path, caller: &mut Caller) -> io::Result<()> {
    let entries = caller.call("readdir", || {
        fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()
    })?;
    for entry in entries {
        caller.call("read", || fs::read(entry.path()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_directory_passes_every_client_task() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for task in [
            ClientTask::OpenMany {
                dir: at("open"),
                files: 20,
            },
            ClientTask::ManyFiles {
                dir: at("many"),
                files: 50,
            },
            ClientTask::LargeFile {
                file: at("new").join("large"),
                mib: 9,
                written_mib: 3,
            },
            ClientTask::OddNames { dir: at("odd") },
            ClientTask::DeepPath {
                dir: at("deep"),
                depth: 30,
            },
            ClientTask::ReadAll { dir: at("odd") },
            ClientTask::RemoveTree { dir: at("open") },
        ] {
            let mut caller = Caller::default();
            task.clone().perform(&mut caller);
            assert_eq!(caller.answer.failures, [], "{task:?}");
            assert_eq!(caller.answer.facts["done"], Fact::Count(1), "{task:?}");
        }
    }
}
