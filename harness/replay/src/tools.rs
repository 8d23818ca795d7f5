//! Performs operations as tool calls, for files that have no path. [`ask`] is timed, [`observe`] is not.
//!
//! [`ask`] does the work of an agent without a file system. For an append it joins the pages of a read. For a
//! search it finds names in a listing. It reads a long file page by page.

use std::collections::BTreeMap;

use arms::backend::{ToolError, Tools};
use backends::state::READ_LIMIT;
use rustix::io::Errno;
use workloads::model::ExpectedResult;
use workloads::path::WorkspacePath;
use workloads::script::{FileOp, Script};

use super::perform::ListedEntry;
use super::{Observation, ResultBuffer};

/// The requested lines: the first one, counted from 1, and their number. `None`: all lines.
pub type Lines = Option<(u64, u64)>;

/// The text answers of the tools to one operation.
#[derive(Debug, Default)]
pub struct ToolAnswers {
    listing: Option<String>,
    /// The pages of each file that was read.
    read: Vec<(String, Vec<String>)>,
    error: Option<ToolError>,
}

/// Why tool calls cannot run a script; `None` if they can.
pub fn unsupported(script: &Script) -> Option<String> {
    let timed = script.calls.iter().filter(|call| call.kind.is_some());
    let op = timed.flat_map(|call| &call.ops).find(|op| !has_a_tool(op))?;
    Some(format!("there is no tool for it: to {} takes a file system", op.describe()))
}

fn has_a_tool(op: &FileOp) -> bool {
    matches!(
        op,
        FileOp::Read(_)
            | FileOp::Write { sync: false, .. }
            | FileOp::Append { .. }
            | FileOp::Stat(_)
            | FileOp::List { .. }
            | FileOp::Search(_)
            | FileOp::Walk(_)
            | FileOp::MakeDir(_)
            | FileOp::RemoveDir(_)
    )
}

/// Makes the tool calls of an operation.
pub fn ask(op: &FileOp, lines: Lines, tools: &mut dyn Tools) -> ToolAnswers {
    let mut answers = ToolAnswers::default();
    answers.error = match op {
        FileOp::Read(path) => answers.read_file(path.as_str(), lines, tools),
        FileOp::Write { path, content, .. } => tools.write_file(path.as_str(), content).err(),
        FileOp::Append { path, content } => {
            // There is no append tool: read the whole file and write it again.
            let mut whole = match answers.read_file(path.as_str(), None, tools) {
                Some(_) => Vec::new(),
                None => answers.read.pop().map_or(Vec::new(), |(_, pages)| joined(&pages)),
            };
            whole.extend_from_slice(content);
            tools.write_file(path.as_str(), &whole).err()
        }
        FileOp::Stat(_) | FileOp::List { .. } | FileOp::Walk(_) => {
            answers.listing = Some(tools.ls_files());
            None
        }
        FileOp::Search(top) => {
            let listing = tools.ls_files();
            let below = listed(&listing).into_iter();
            let below = below.filter(|(name, _)| is_below(name, top));
            let names: Vec<String> = below.map(|(name, _)| name.to_owned()).collect();
            answers.listing = Some(listing);
            let mut errors = names.iter().map(|name| answers.read_file(name, None, tools));
            errors.find_map(|error| error)
        }
        // Directories exist only as parts of names.
        FileOp::MakeDir(_) | FileOp::RemoveDir(_) => None,
        FileOp::Remove(path) => remove(path, tools),
        _ => Some(ToolError::BadName(op.describe())),
    };
    answers
}

impl ToolAnswers {
    /// Reads the requested lines, or all pages of the file.
    fn read_file(&mut self, name: &str, lines: Lines, tools: &mut dyn Tools) -> Option<ToolError> {
        let mut pages = Vec::new();
        let error = match lines {
            Some((first, count)) => match tools.read_file(name, first, Some(count)) {
                Ok(page) => {
                    pages.push(page);
                    None
                }
                // Missing lines are an empty result, like a read past the end of a file.
                Err(ToolError::NoSuchLines { .. }) => None,
                Err(error) => Some(error),
            },
            None => loop {
                let first = 1 + READ_LIMIT * pages.len() as u64;
                match tools.read_file(name, first, None) {
                    Ok(page) => {
                        let is_last = is_last(&page);
                        pages.push(page);
                        if is_last {
                            break None;
                        }
                    }
                    Err(error) => break Some(error),
                }
            },
        };
        self.read.push((name.to_owned(), pages));
        error
    }
}

/// Removes a file by editing a snapshot, because agents have no tool that removes.
fn remove(path: &WorkspacePath, tools: &mut dyn Tools) -> Option<ToolError> {
    let changed = (|| {
        let mut snapshot: serde_json::Value =
            serde_json::from_str(&tools.snapshot()).map_err(|error| error.to_string())?;
        let files = snapshot["files"].as_object_mut().ok_or("it has no files")?;
        if files.remove(path.as_str()).is_none() {
            return Ok(None);
        }
        Ok::<_, String>(Some(snapshot.to_string()))
    })();
    match changed {
        Ok(None) => Some(ToolError::NotFound(path.to_string())),
        Ok(Some(snapshot)) => {
            let restored = tools.restore(&snapshot).err()?;
            Some(ToolError::Snapshot(restored.to_string()))
        }
        Err(problem) => Some(ToolError::Snapshot(problem)),
    }
}

/// Parses the answers of the tools into the result that [`super::verify()`] compares.
/// The error is the one that a file system would return.
pub fn observe(op: &FileOp, answers: &ToolAnswers, buffer: &mut ResultBuffer) -> Result<Observation, Errno> {
    match &answers.error {
        Some(ToolError::NotFound(_)) => return Err(Errno::NOENT),
        Some(_) => return Err(Errno::INVAL),
        None => {}
    }
    let files = listed(answers.listing.as_deref().unwrap_or_default());
    // A directory exists while a file name starts with it.
    if let FileOp::List { path: top, .. } | FileOp::Walk(top) | FileOp::Search(top) = op
        && !top.is_root()
        && !files.iter().any(|(name, _)| is_below(name, top))
    {
        return Err(Errno::NOENT);
    }
    match op {
        FileOp::Read(_) => {
            let bytes = answers.read.first().map(|(_, pages)| joined(pages));
            Ok(Observation::Bytes(buffer.put(&bytes.unwrap_or_default())))
        }
        FileOp::Stat(path) => {
            if let Some((_, size)) = files.iter().find(|(name, _)| *name == path.as_str()) {
                return Ok(Observation::Attributes { size: *size, is_dir: false });
            }
            let is_dir = path.is_root() || files.iter().any(|(name, _)| is_below(name, path));
            let directory = Observation::Attributes { size: 0, is_dir };
            is_dir.then_some(directory).ok_or(Errno::NOENT)
        }
        FileOp::List { path, .. } => {
            let mut entries: BTreeMap<&str, Option<u64>> = BTreeMap::new();
            for (name, size) in &files {
                if let Some(below) = below(name, path) {
                    match below.split_once('/') {
                        Some((dir, _)) => entries.insert(dir, None),
                        None => entries.insert(below, Some(*size)),
                    };
                }
            }
            let start = buffer.entries.len();
            for (name, size) in entries {
                push(buffer, name, 0..0, size);
            }
            Ok(Observation::Entries(start..buffer.entries.len()))
        }
        FileOp::Walk(top) => {
            let start = buffer.entries.len();
            for (name, size) in &files {
                if let Some(below) = below(name, top) {
                    push(buffer, below, 0..0, Some(*size));
                }
            }
            Ok(Observation::Entries(start..buffer.entries.len()))
        }
        FileOp::Search(top) => {
            let start = buffer.entries.len();
            for (name, pages) in &answers.read {
                if let Some(below) = below(name, top) {
                    push_file(buffer, below, &joined(pages));
                }
            }
            Ok(Observation::Entries(start..buffer.entries.len()))
        }
        _ => Ok(Observation::Done),
    }
}

/// Narrows expected content to the requested lines.
pub fn narrowed(expected: ExpectedResult, lines: Lines) -> ExpectedResult {
    let (ExpectedResult::Bytes(whole), Some((first, count))) = (&expected, lines) else {
        return expected;
    };
    let skip = first.max(1) as usize - 1;
    let starts: Vec<usize> = std::iter::once(0)
        .chain(whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1))
        .collect();
    let nothing = whole.len()..whole.len();
    let range = match starts.get(skip) {
        Some(start) if count > 0 => {
            let after = starts.get(skip.saturating_add(count as usize));
            // A read shows no newline at the end of its last line.
            *start..after.map_or(whole.len(), |next| next - 1)
        }
        _ => nothing,
    };
    ExpectedResult::Part { whole: whole.clone(), start: range.start, end: range.end }
}

/// All files of a snapshot, as the result of a search of the whole workspace.
pub fn held(tools: &dyn Tools, buffer: &mut ResultBuffer) -> Result<Observation, String> {
    let snapshot: serde_json::Value = serde_json::from_str(&tools.snapshot()).map_err(|error| error.to_string())?;
    let files = snapshot["files"].as_object().ok_or("the snapshot has no files")?;
    let start = buffer.entries.len();
    for (name, content) in files {
        push_file(buffer, name, content.as_str().unwrap_or_default().as_bytes());
    }
    Ok(Observation::Entries(start..buffer.entries.len()))
}

/// Appends a file as if an operation had listed and read it.
pub(crate) fn push_file(buffer: &mut ResultBuffer, name: &str, content: &[u8]) {
    let size = content.len() as u64;
    let content = buffer.put(content);
    push(buffer, name, content, Some(size));
}

pub(crate) fn push(buffer: &mut ResultBuffer, name: &str, content: std::ops::Range<usize>, size: Option<u64>) {
    let start = buffer.names.len();
    buffer.names.extend_from_slice(name.as_bytes());
    let end = buffer.names.len();
    buffer.names.push(0);
    buffer.entries.push(ListedEntry { name: start..end, content, size, is_dir: size.is_none() });
}

/// Parses names and sizes in bytes from a listing.
fn listed(listing: &str) -> Vec<(&str, u64)> {
    let lines = listing.lines().filter_map(|line| {
        let (name, size) = line.strip_prefix("  ")?.rsplit_once(" (")?;
        Some((name, size.strip_suffix(" bytes)")?.parse().ok()?))
    });
    lines.collect()
}

fn below<'a>(name: &'a str, top: &WorkspacePath) -> Option<&'a str> {
    if top.is_root() {
        return Some(name);
    }
    name.strip_prefix(top.as_str())?.strip_prefix('/')
}

fn is_below(name: &str, top: &WorkspacePath) -> bool {
    below(name, top).is_some()
}

/// Whether the header of a page says that it is the last one: `(lines 1-245 of 245)`.
fn is_last(page: &str) -> bool {
    let head = page.lines().next().unwrap_or_default();
    let lines = head.rsplit_once("(lines ").map(|(_, lines)| lines);
    let parts = lines.and_then(|lines| lines.split_once(" of "));
    parts.is_none_or(|(shown, total)| {
        let last = shown.split_once('-').map(|(_, last)| last);
        last == total.strip_suffix(") ===")
    })
}

/// The content of pages, without their headers and line numbers.
fn joined(pages: &[String]) -> Vec<u8> {
    let lines = pages
        .iter()
        .flat_map(|page| page.split('\n').skip(1).map(|line| line.split_once('|').map_or(line, |(_, text)| text)));
    lines.collect::<Vec<_>>().join("\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use backends::state::StateFiles;

    use super::*;
    use crate::testing::{append, bytes, list, path, rename, write};
    use crate::verify;
    use workloads::model::ReferenceModel;
    use workloads::script::CallKind;

    fn long() -> String {
        (1..=4100).map(|n| format!("line {n} | of many\n")).collect()
    }

    fn script() -> Script {
        Script::new(vec![
            (path("a/one"), bytes("first\n\nlast")),
            (path("a/b/two"), bytes(&long())),
            (path("three"), bytes("")),
        ])
    }

    fn filled() -> StateFiles {
        let mut files = StateFiles::default();
        for (path, content) in &script().files {
            files.write_file(path.as_str(), content).unwrap();
        }
        files
    }

    /// Performs operations by tools and compares each with the model.
    fn replay(files: &mut StateFiles, ops: &[(FileOp, Lines)]) -> Result<(), String> {
        let mut model = ReferenceModel::of(&script());
        let mut buffer = ResultBuffer::new();
        for (op, lines) in ops {
            buffer.clear();
            let expected = narrowed(model.apply(op), *lines);
            let answers = ask(op, *lines, files);
            let observed = observe(op, &answers, &mut buffer);
            verify(op, &expected, &observed, &buffer)?;
        }
        let everything = FileOp::Search(WorkspacePath::root());
        buffer.clear();
        let held = held(files, &mut buffer).unwrap();
        verify(&everything, &model.apply(&everything), &Ok(held), &buffer)
    }

    fn every_operation() -> Vec<(FileOp, Lines)> {
        let whole = |op| (op, None);
        vec![
            whole(FileOp::Read(path("a/one"))),
            whole(FileOp::Read(path("a/b/two"))),
            whole(FileOp::Read(path("three"))),
            whole(FileOp::Read(path("missing"))),
            (FileOp::Read(path("a/b/two")), Some((4000, 50))),
            (FileOp::Read(path("a/b/two")), Some((4100, 50))),
            (FileOp::Read(path("a/b/two")), Some((9000, 50))),
            (FileOp::Read(path("a/b/two")), Some((1, 10_000))),
            (FileOp::Read(path("a/b/two")), Some((2, 3000))),
            (FileOp::Read(path("a/b/two")), Some((2, u64::MAX))),
            (FileOp::Read(path("a/one")), Some((2, 1))),
            whole(FileOp::Stat(path("a/one"))),
            whole(FileOp::Stat(path("a"))),
            whole(FileOp::Stat(path("missing"))),
            whole(list(".", true)),
            whole(list("a", false)),
            whole(FileOp::Walk(path("a"))),
            whole(FileOp::Search(path("a"))),
            whole(append("a/one", "\nmore\n")),
            whole(append("new", "made")),
            whole(FileOp::MakeDir(path("dir/deep"))),
            whole(write("dir/deep/file", "x\n", false)),
            whole(FileOp::Remove(path("three"))),
            whole(FileOp::Remove(path("three"))),
            whole(FileOp::Search(path("."))),
            whole(FileOp::Search(path("nowhere"))),
            whole(FileOp::Walk(path("nowhere"))),
            whole(list("nowhere", false)),
        ]
    }

    #[test]
    fn the_model_predicts_every_operation_of_the_tools() {
        replay(&mut filled(), &every_operation()).unwrap();
    }

    #[test]
    fn verify_finds_wrong_files_in_a_snapshot() {
        let found = |tamper: fn(&mut StateFiles), op: FileOp| {
            let mut files = filled();
            tamper(&mut files);
            replay(&mut files, &[(op, None)]).expect_err("must be found")
        };
        let flipped = |files: &mut StateFiles| {
            files.write_file("a/one", b"fIrst\n\nlast").unwrap();
        };
        let extra = |files: &mut StateFiles| {
            files.write_file("extra", b"").unwrap();
        };
        let read = |name: &str| FileOp::Read(path(name));
        assert_eq!(found(flipped, read("a/one")), "read a/one: byte 1 of 11 is wrong");
        // Reading the snapshot back finds a wrong file that no operation read.
        assert!(found(flipped, read("three")).contains("a/one: byte 1"));
        assert!(found(extra, read("three")).contains("finds extra"));
    }

    /// Files with an invalid snapshot.
    struct BrokenFiles(&'static str);

    impl Tools for BrokenFiles {
        fn ls_files(&mut self) -> String {
            String::new()
        }

        fn write_file(&mut self, _: &str, _: &[u8]) -> Result<String, ToolError> {
            Ok(String::new())
        }

        fn read_file(&mut self, _: &str, _: u64, _: Option<u64>) -> Result<String, ToolError> {
            Ok(String::new())
        }

        fn snapshot(&self) -> String {
            self.0.to_owned()
        }

        fn restore(&mut self, _: &str) -> std::io::Result<()> {
            Err(std::io::ErrorKind::InvalidData.into())
        }
    }

    #[test]
    fn remove_fails_on_an_invalid_snapshot() {
        for snapshot in ["nonsense", "{}", r#"{"files":{"three":""}}"#] {
            let answers = ask(&FileOp::Remove(path("three")), None, &mut BrokenFiles(snapshot));
            assert!(matches!(answers.error, Some(ToolError::Snapshot(_))), "{snapshot}: {answers:?}");
        }
    }

    #[test]
    fn unsupported_names_the_operation_without_a_tool() {
        assert_eq!(unsupported(&script()), None);
        let mut script = script();
        script.call(CallKind::Rename, vec![rename("three", "four")]);
        assert_eq!(unsupported(&script).unwrap(), "there is no tool for it: to rename to four takes a file system");
    }
}
