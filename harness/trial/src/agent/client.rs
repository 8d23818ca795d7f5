//! Unusual requests of one agent process: many files, large files, odd names, deep paths.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use rundir::faults::Fact;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Caller;

/// Bytes per write to a large file.
const PIECE: usize = 1 << 20;

/// Performs an unusual request. The first failure is recorded and ends it. Facts `done` and `seconds`.
pub(super) fn timed(caller: &mut Caller, request: impl FnOnce(&mut Caller) -> io::Result<()>) {
    let started = Instant::now();
    let done = request(caller);
    caller.fact("done", Fact::Count(u64::from(done.is_ok())));
    caller.fact("seconds", Fact::Number(started.elapsed().as_secs_f64()));
}

pub(super) fn open_many(dir: &Path, files: u64, caller: &mut Caller) -> io::Result<()> {
    let wanted = files + 64;
    let is_too_few = |limit: Option<u64>| limit.is_some_and(|limit| limit < wanted);
    let limit = getrlimit(Resource::Nofile);
    if is_too_few(limit.current) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum.map(|maximum| maximum.max(wanted)) };
        // If the limit cannot be raised, `open` fails with EMFILE, and that is recorded.
        let _ = setrlimit(Resource::Nofile, raised);
    }
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

pub(super) fn many_files(dir: &Path, files: u64, caller: &mut Caller) -> io::Result<()> {
    caller.call("mkdir", || fs::create_dir_all(dir))?;
    let started = Instant::now();
    for number in 0..files {
        let path = dir.join(format!("note-{number:06}.md"));
        caller.call("create", || fs::write(&path, number.to_string()))?;
    }
    caller.fact("create_s", Fact::Number(started.elapsed().as_secs_f64()));
    let started = Instant::now();
    let listed = caller.call("readdir", || list(dir))?;
    caller.fact("list_s", Fact::Number(started.elapsed().as_secs_f64()));
    let different: BTreeSet<&OsString> = listed.iter().collect();
    if listed.len() as u64 != files || different.len() != listed.len() {
        let (names, different) = (listed.len(), different.len());
        caller.wrong("readdir", format!("{names} names, {different} different, of {files}"));
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

fn list(dir: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(dir)?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

pub(super) fn large_file(path: &Path, mib: u64, written: u64, caller: &mut Caller) -> io::Result<()> {
    let third = (written / 3).max(1);
    if let Some(dir) = path.parent() {
        caller.call("mkdir", || fs::create_dir_all(dir))?;
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    let file = caller.call("open", || options.open(path))?;
    let starts = [0, (mib / 2).max(third), mib - third];
    let written: BTreeSet<u64> = starts.iter().flat_map(|at| *at..*at + third).collect();
    let piece = |at: &u64| if written.contains(at) { vec![(at % 251) as u8 + 1; PIECE] } else { vec![0; PIECE] };
    for at in &written {
        caller.call("write", || file.write_all_at(&piece(at), at << 20))?;
    }
    caller.call("fsync", || file.sync_all())?;
    let size = caller.call("stat", || file.metadata())?.len();
    if size != mib << 20 {
        caller.wrong("stat", format!("{size} bytes instead of {}", mib << 20));
    }
    let mut bytes = vec![0; PIECE];
    let mut wrong = 0;
    // Every written piece, and one piece of each hole.
    let holes = [third, mib / 2 + third].into_iter().filter(|at| *at < mib);
    let all: BTreeSet<u64> = written.iter().copied().chain(holes).collect();
    for at in &all {
        caller.call("read", || file.read_exact_at(&mut bytes, at << 20))?;
        wrong += u64::from(bytes != piece(at));
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

pub(super) fn odd_names(dir: &Path, caller: &mut Caller) -> io::Result<()> {
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
    let listed = caller.call("readdir", || list(dir))?;
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
            caller.wrong("readdir", format!("{:?} is listed, and was never made", shown(name)));
        }
    }
    // A name longer than NAME_MAX must be refused.
    let too_long = fs::write(dir.join("x".repeat(256)), b"x");
    if too_long.as_ref().err().and_then(io::Error::raw_os_error) != Some(36) {
        caller.wrong("create", format!("a name of 256 bytes: {too_long:?} instead of ENAMETOOLONG"));
    }
    Ok(())
}

fn shown(name: &OsStr) -> String {
    let text: String = name.to_string_lossy().chars().take(40).collect();
    text
}

pub(super) fn deep_path(dir: &Path, depth: u32, caller: &mut Caller) -> io::Result<()> {
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
        caller.wrong("read", "the file at the bottom holds something else".to_owned());
    }
    if fs::metadata(&top).is_ok() {
        caller.wrong("stat", "the old name is still there".to_owned());
    }
    caller.call("rm -rf", || fs::remove_dir_all(&renamed))
}

pub(super) fn remove_tree(dir: &Path, caller: &mut Caller) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::super::{AgentState, Job, perform};
    use super::*;

    #[test]
    fn a_plain_directory_passes_every_unusual_request() {
        let dir = tempfile::tempdir().unwrap();
        let large = Job::LargeFile { mib: 9, written_mib: 3 };
        for (at, job) in [
            ("open", Job::OpenMany(20)),
            ("many", Job::ManyFiles(50)),
            ("new/large", large),
            ("odd", Job::OddNames),
            ("deep", Job::DeepPath(30)),
            ("open", Job::RemoveTree),
        ] {
            let kept = &mut AgentState::default();
            let answer = perform(&dir.path().join(at), job.clone(), kept).unwrap();
            assert_eq!(answer.failures, [], "{job:?}");
            assert_eq!(answer.facts["done"], Fact::Count(1), "{job:?}");
        }
    }
}
