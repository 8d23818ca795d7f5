//! Compares the result of an operation with the model, outside the timed calls.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rustix::io::Errno;
use workloads::model::{ExpectedResult, ModelEntry};
use workloads::path::WorkspacePath;
use workloads::script::{Bytes, FileOp};

use super::{Observation, ResultBuffer};
use crate::perform::ListedEntry;

/// Checks that a result is the one that the model expects.
/// The error says what is wrong.
pub fn verify(
    op: &FileOp,
    expected: &ExpectedResult,
    observed: &Result<Observation, Errno>,
    buffer: &ResultBuffer,
) -> Result<(), String> {
    let wrong = |what: String| Err(format!("{}: {what}", op.describe()));
    let observed = match (expected, observed) {
        (ExpectedResult::Errno(expected), Err(errno)) if errno.raw_os_error() == *expected => {
            return Ok(());
        }
        (ExpectedResult::Errno(expected), Ok(_)) => {
            return wrong(format!("succeeded, but must fail with error number {expected}"));
        }
        (_, Err(errno)) => return wrong(format!("failed: {errno}")),
        (_, Ok(observed)) => observed,
    };
    match (expected, observed) {
        (ExpectedResult::Done, Observation::Done) => Ok(()),
        (ExpectedResult::Bytes(bytes), Observation::Bytes(place)) => {
            same_bytes(bytes, &buffer.data[place.clone()]).or_else(wrong)
        }
        (ExpectedResult::Part { whole, start, end }, Observation::Bytes(place)) => {
            same_bytes(&whole[*start..*end], &buffer.data[place.clone()]).or_else(wrong)
        }
        (ExpectedResult::Lines(lines), Observation::Bytes(place)) => {
            only_lines(lines, &buffer.data[place.clone()]).or_else(wrong)
        }
        (ExpectedResult::Mentions(all), Observation::Bytes(place)) => {
            let answer = String::from_utf8_lossy(&buffer.data[place.clone()]);
            match all.iter().find(|part| !answer.contains(part.as_str())) {
                Some(part) => wrong(format!("does not mention {part:?}")),
                None => Ok(()),
            }
        }
        (ExpectedResult::Attributes { size: Some(size) }, Observation::Attributes { size: seen, is_dir }) => {
            if *is_dir {
                wrong("is a directory, but should be a file".to_owned())
            } else if seen == size {
                Ok(())
            } else {
                wrong(format!("has {seen} bytes, but should have {size}"))
            }
        }
        (ExpectedResult::Attributes { size: None }, Observation::Attributes { is_dir: true, .. }) => Ok(()),
        (ExpectedResult::Entries(entries), Observation::Entries(place)) => {
            same_entries(entries, sorted(place, buffer)).or_else(wrong)
        }
        (ExpectedResult::EntriesAmongDirectories(entries), Observation::Entries(place)) => {
            let mut seen = sorted(place, buffer);
            seen.retain(|(name, entry)| {
                !entry.is_dir || str::from_utf8(name).is_ok_and(|name| entries.contains_key(name))
            });
            same_entries(entries, seen).or_else(wrong)
        }
        (ExpectedResult::Tree { files, opaque }, Observation::Entries(place)) => {
            let expected = files.iter().map(|(path, bytes)| (path, Some(&bytes[..])));
            same_files(op, expected.collect(), opaque, place, buffer).or_else(wrong)
        }
        (ExpectedResult::Paths { files, opaque }, Observation::Entries(place)) => {
            let expected = files.iter().map(|path| (path, None));
            same_files(op, expected.collect(), opaque, place, buffer).or_else(wrong)
        }
        (ExpectedResult::Ran(output), Observation::Ran { status, said, error }) => {
            let said = &buffer.data[said.clone()];
            if !status.success() {
                let error = error.lines().last().unwrap_or("nothing on standard error");
                return wrong(format!("{status}: {error}"));
            }
            match output {
                Some(expected) if expected.as_bytes() != said => {
                    let said: String = String::from_utf8_lossy(said).chars().take(200).collect();
                    wrong(format!("printed {said:?} instead of {expected:?}"))
                }
                _ => Ok(()),
            }
        }
        (expected, observed) => wrong(format!("returned {observed:?}, expected {expected:?}")),
    }
}

/// Checks that `bytes` consists of whole lines out of `lines`.
/// The error names the first other line.
pub fn only_lines(lines: &BTreeSet<Bytes>, bytes: &[u8]) -> Result<(), String> {
    let mut all = bytes.split_inclusive(|byte| *byte == b'\n');
    match all.find(|line| !lines.contains(&line.to_vec())) {
        None => Ok(()),
        Some(line) => {
            let line = String::from_utf8_lossy(&line[..line.len().min(80)]);
            Err(format!("holds {line:?}, a line that no host wrote"))
        }
    }
}

fn same_bytes(expected: &[u8], seen: &[u8]) -> Result<(), String> {
    if expected == seen {
        return Ok(());
    }
    let differs = expected.iter().zip(seen).position(|(a, b)| a != b);
    Err(match differs {
        Some(at) => format!("byte {at} of {} is wrong", expected.len()),
        None => format!("returned {} bytes instead of {}", seen.len(), expected.len()),
    })
}

/// The entries of a listing by name.
fn sorted<'a>(place: &Range<usize>, buffer: &'a ResultBuffer) -> Vec<(&'a [u8], &'a ListedEntry)> {
    let mut seen: Vec<(&[u8], &ListedEntry)> =
        buffer.entries[place.clone()].iter().map(|entry| (entry_bytes(buffer, entry), entry)).collect();
    seen.sort_unstable_by_key(|(name, _)| *name);
    seen
}

fn same_entries(expected: &BTreeMap<String, ModelEntry>, seen: Vec<(&[u8], &ListedEntry)>) -> Result<(), String> {
    if let Some(twice) = seen.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(format!("lists {} twice", text(twice[0].0)));
    }
    let mut all = expected.iter();
    for (name, entry) in &seen {
        // Both are sorted by bytes. The count below finds the entries that this search skips.
        let should = all.find(|(expected, _)| expected.as_bytes() >= *name);
        let should = should.filter(|(expected, _)| expected.as_bytes() == *name);
        match (should, entry) {
            (Some((_, ModelEntry::Directory)), ListedEntry { is_dir: true, .. }) => {}
            (Some((_, ModelEntry::File(size))), ListedEntry { is_dir: false, size: seen, .. }) => {
                if let Some(seen) = seen.filter(|seen| seen != size) {
                    let name = text(name);
                    return Err(format!("{name} has {seen} bytes, but should have {size}"));
                }
            }
            (Some(_), _) => return Err(format!("{} is of the wrong kind", text(name))),
            (None, _) => return Err(format!("lists {}, which should not be there", text(name))),
        }
    }
    same_count(expected.len(), seen.len())
}

fn same_files(
    op: &FileOp,
    expected: BTreeMap<&WorkspacePath, Option<&[u8]>>,
    opaque: &BTreeSet<WorkspacePath>,
    place: &Range<usize>,
    buffer: &ResultBuffer,
) -> Result<(), String> {
    let files = buffer.entries[place.clone()].iter().filter(|entry| !entry.is_dir);
    let mut paths = BTreeSet::new();
    for file in files {
        let name = entry_bytes(buffer, file);
        let path = text(name);
        if !paths.insert(name) {
            return Err(format!("finds {path} twice"));
        }
        let path = op.path().join(&path).map_err(|error| error.to_string())?;
        if opaque.iter().any(|unknown| path.is_within(unknown)) {
            paths.remove(name);
            continue;
        }
        match expected.get(&path) {
            None => return Err(format!("finds {path}, which should not be there")),
            Some(None) => {}
            Some(Some(bytes)) => {
                same_bytes(bytes, &buffer.data[file.content.clone()]).map_err(|what| format!("{path}: {what}"))?
            }
        }
    }
    same_count(expected.len(), paths.len())
}

fn same_count(expected: usize, seen: usize) -> Result<(), String> {
    if expected == seen { Ok(()) } else { Err(format!("returns {seen} entries instead of {expected}")) }
}

fn entry_bytes<'a>(buffer: &'a ResultBuffer, entry: &ListedEntry) -> &'a [u8] {
    &buffer.names[entry.name.clone()]
}

fn text(name: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{add_line, append, bytes, list, path, rename, write};
    use crate::{OpenFileTable, perform, prepare};
    use std::path::Path;
    use workloads::model::ReferenceModel;
    use workloads::script::{Host, Script};

    fn script() -> Script {
        Script::new(vec![
            (path("a/one"), bytes("first")),
            (path("a/b/two"), bytes("second")),
            (path("three"), bytes("")),
        ])
    }

    #[test]
    fn a_listing_among_directories_still_needs_each_entry_and_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        let op = list("a", true);
        let found = || {
            let ExpectedResult::Entries(entries) = ReferenceModel::of(&script()).apply(&op) else {
                panic!("a listing has entries")
            };
            let mut buffer = ResultBuffer::new();
            let prepared = prepare(dir.path(), &op, &mut OpenFileTable::new()).unwrap();
            let observed = perform(&prepared, &mut buffer);
            verify(&op, &ExpectedResult::EntriesAmongDirectories(entries), &observed, &buffer)
        };
        std::fs::create_dir(dir.path().join("a/one-depends-on")).unwrap();
        assert_eq!(found(), Ok(()));
        std::fs::write(dir.path().join("a/extra"), "").unwrap();
        assert!(found().unwrap_err().contains("lists extra"));
        std::fs::remove_file(dir.path().join("a/extra")).unwrap();
        std::fs::remove_file(dir.path().join("a/one")).unwrap();
        assert!(found().unwrap_err().contains("returns 1 entries instead of 2"));
        std::fs::create_dir(dir.path().join("a/one")).unwrap();
        assert!(found().unwrap_err().contains("one is of the wrong kind"));
    }

    fn filled(dir: &Path) {
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::fs::write(dir.join("a/one"), "first").unwrap();
        std::fs::write(dir.join("a/b/two"), "second").unwrap();
        std::fs::write(dir.join("three"), "").unwrap();
    }

    /// Performs operations in a directory and compares each with the model.
    fn replay(dir: &Path, ops: &[FileOp]) -> Result<(), String> {
        let mut model = ReferenceModel::of(&script());
        let mut buffer = ResultBuffer::new();
        for op in ops {
            buffer.clear();
            let expected = model.apply(op);
            let prepared = prepare(dir, op, &mut OpenFileTable::new()).map_err(|e| e.to_string())?;
            verify(op, &expected, &perform(&prepared, &mut buffer), &buffer)?;
        }
        Ok(())
    }

    fn every_operation() -> Vec<FileOp> {
        let write_at = |file: &str, offset, text: &str| FileOp::WriteAt {
            path: path(file),
            offset,
            content: bytes(text),
            sync: false,
        };
        vec![
            FileOp::Search(path(".")),
            FileOp::Walk(path("a")),
            list(".", true),
            list("a", false),
            FileOp::Read(path("a/one")),
            FileOp::Read(path("missing")),
            FileOp::Read(path("a")),
            FileOp::Read(path("a/one/below")),
            FileOp::ReadAt { path: path("a/b/two"), offset: 3, length: 100 },
            FileOp::ReadOpen { path: path("a/b/two"), offset: 1, length: 2 },
            FileOp::Stat(path("a/one")),
            FileOp::Stat(path("a")),
            FileOp::Stat(path("missing")),
            write("a/one", "rewritten", true),
            write("missing/dir/file", "x", true),
            FileOp::MakeDir(path("new/deep/dir")),
            FileOp::MakeDir(path("new/deep/dir")),
            write("new/deep/dir/file", "x", true),
            write_at("a/b/two", 10, "end"),
            write_at("missing", 0, "x"),
            append("three", "more"),
            append("four", "made"),
            FileOp::Create(path("five")),
            FileOp::Create(path("five")),
            rename("five", "a/one"),
            rename("five", "six"),
            FileOp::Remove(path("four")),
            FileOp::Remove(path("four")),
            FileOp::RemoveDir(path("new/deep")),
            FileOp::RemoveDir(path("new/deep/dir/file")),
            FileOp::Remove(path("new/deep/dir/file")),
            FileOp::RemoveDir(path("new/deep/dir")),
            FileOp::RemoveDir(path("new/deep/dir")),
            FileOp::RemoveDir(path("new/deep")),
            write("new/deep", "a file now", true),
            FileOp::Sync(path("three")),
            FileOp::SyncAll { dir: path("a"), files: vec![path("a/one"), path("three")] },
            FileOp::SeenByOther { host: Host::SECOND, path: path("a/one"), content: bytes("") },
            list("missing", false),
            FileOp::Search(path(".")),
            list("a", true),
        ]
    }

    #[test]
    fn the_model_predicts_every_operation_on_a_real_file_system() {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        replay(dir.path(), &every_operation()).unwrap();
    }

    #[test]
    fn add_line_keeps_existing_lines_and_verify_rejects_unknown_ones() {
        let dir = tempfile::tempdir().unwrap();
        let add = |file: &str, line: &str| add_line(Host::FIRST, file, line);
        let ops = [add("x.md", "one\n"), add("x.md", "two\n"), add("y.md", "three\n")];
        replay(dir.path(), &ops).unwrap();
        let text = std::fs::read_to_string(dir.path().join("x.md")).unwrap();
        assert_eq!(text, "one\ntwo\n");
        // A host may miss whole lines of the other host, but half a line is wrong data.
        for (seen, is_right) in [("two\n", true), ("", true), ("one\ntw", false), ("\0\0\0\n", false)] {
            std::fs::write(dir.path().join("x.md"), seen).unwrap();
            let mut model = ReferenceModel::of(&script());
            ops.iter().for_each(|op| drop(model.apply(op)));
            let op = add("x.md", "four\n");
            let mut buffer = ResultBuffer::new();
            let prepared = prepare(dir.path(), &op, &mut OpenFileTable::new()).unwrap();
            let observed = perform(&prepared, &mut buffer);
            let verified = verify(&op, &model.apply(&op), &observed, &buffer);
            assert_eq!(verified.is_ok(), is_right, "{seen:?}: {verified:?}");
            let text = std::fs::read_to_string(dir.path().join("x.md")).unwrap();
            assert_eq!(text, format!("{seen}four\n"));
        }
    }

    #[test]
    fn verify_finds_every_wrong_result() {
        let found = |tamper: fn(&Path), op: FileOp| {
            let dir = tempfile::tempdir().unwrap();
            filled(dir.path());
            tamper(dir.path());
            replay(dir.path(), &[op]).expect_err("must be found")
        };
        let flipped = |dir: &Path| std::fs::write(dir.join("a/one"), "fIrst").unwrap();
        let cut = |dir: &Path| std::fs::write(dir.join("a/one"), "fir").unwrap();
        let gone = |dir: &Path| std::fs::remove_file(dir.join("a/one")).unwrap();
        let extra = |dir: &Path| std::fs::write(dir.join("a/extra"), "").unwrap();
        let list = |attributes| list("a", attributes);

        assert_eq!(found(flipped, FileOp::Read(path("a/one"))), "read a/one: byte 1 of 5 is wrong");
        assert_eq!(found(cut, FileOp::Read(path("a/one"))), "read a/one: returned 3 bytes instead of 5");
        assert!(found(gone, FileOp::Read(path("a/one"))).contains("failed"));
        assert!(found(flipped, FileOp::Search(path("."))).contains("a/one: byte 1"));
        assert!(found(extra, FileOp::Search(path("a"))).contains("finds a/extra"));
        assert!(found(gone, FileOp::Walk(path("."))).contains("2 entries instead of 3"));
        assert!(found(cut, FileOp::Stat(path("a/one"))).contains("has 3 bytes, but should have 5"));
        assert!(found(cut, list(true)).contains("one has 3 bytes"));
        assert!(found(gone, list(false)).contains("1 entries instead of 2"));
        assert!(found(extra, list(false)).contains("lists extra"));
        let made = |dir: &Path| std::fs::write(dir.join("missing"), "").unwrap();
        assert!(found(made, FileOp::Read(path("missing"))).contains("must fail with error number 2"));
        let dir = |dir: &Path| {
            std::fs::remove_file(dir.join("three")).unwrap();
            std::fs::create_dir(dir.join("three")).unwrap();
        };
        assert!(found(dir, FileOp::Stat(path("three"))).contains("is a directory"));
    }
}
