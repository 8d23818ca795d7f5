//! Renders calls as a model writes them and results as an agent sees them, to count their tokens.
//! The formats are those of Claude Code's tools. A call is a name with JSON arguments.
//! A read shows at most 2,000 numbered lines from the requested line.
//! A listing or a search shows paths, and a change shows a sentence.

use serde_json::json;
use tokens::PartKind::{self, Arguments, Content};

use crate::model::{ExpectedResult, ReferenceModel};
use crate::script::{Call, CallKind, FileOp, Script};

/// The maximum number of lines that a read shows.
pub const READ_LIMIT: u64 = 2000;

/// Tokens of the results of all timed calls of a script, according to the reference model.
pub fn result_tokens(script: &Script) -> u64 {
    let mut model = ReferenceModel::of(script);
    let mut total = 0;
    for call in &script.calls {
        let results: Vec<ExpectedResult> = call.ops.iter().map(|op| model.apply(op)).collect();
        if call.kind.is_some() {
            total += tokens::count(&result(call, &results));
        }
    }
    total
}

/// The reads of a recording, rendered by this module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct RenderedAgain {
    /// Number of reads of files with known bytes.
    pub reads: usize,
    /// Tokens of the reads of files with known bytes, in the recording.
    #[serde(rename = "recorded_tokens")]
    pub recorded: u64,
    /// Tokens of the reads of files with known bytes, as rendered here.
    #[serde(rename = "rendered_tokens")]
    pub rendered: u64,
}

/// Compares the rendering with a recording of content fidelity: the same reads of the same bytes.
pub fn rendered_again(script: &Script) -> RenderedAgain {
    let mut model = ReferenceModel::of(script);
    let mut again = RenderedAgain::default();
    for call in &script.calls {
        let results: Vec<ExpectedResult> = call.ops.iter().map(|op| model.apply(op)).collect();
        if let Some(recorded) = call.recorded_tokens {
            again.reads += 1;
            again.recorded += recorded;
            again.rendered += tokens::count(&result(call, &results));
        }
    }
    again
}

/// The model's output for a call, as parts with their kind. It contains a file's whole new content.
pub fn written(call: &Call) -> Vec<(PartKind, String)> {
    call.ops
        .iter()
        .map(|op| {
            let path = format!("/ws/{}", op.path());
            let text = |content: &[u8]| String::from_utf8_lossy(content).into_owned();
            let (kind, name, input) = match op {
                FileOp::Read(_) => match call.lines {
                    Some((first, count)) => {
                        let input = json!({"file_path": path, "offset": first, "limit": count});
                        (Arguments, "Read", input)
                    }
                    None => (Arguments, "Read", json!({ "file_path": path })),
                },
                FileOp::ReadAt { offset, length, .. } | FileOp::ReadOpen { offset, length, .. } => {
                    let input = json!({"file_path": path, "at_byte": offset, "bytes": length});
                    (Arguments, "Read", input)
                }
                FileOp::Write { content, .. } => {
                    let input = json!({"file_path": path, "content": text(content)});
                    (Content, "Write", input)
                }
                FileOp::WriteAt { offset, content, .. } => {
                    let content = text(content);
                    let input = json!({"file_path": path, "at_byte": offset, "content": content});
                    (Content, "Write", input)
                }
                FileOp::Append { content, .. } => {
                    let input = json!({"file_path": path, "append": text(content)});
                    (Content, "Write", input)
                }
                FileOp::List { .. } => (Arguments, "LS", json!({ "path": path })),
                FileOp::Walk(_) => (Arguments, "Glob", json!({"path": path, "pattern": "**/*"})),
                FileOp::Search(_) => (Arguments, "Grep", json!({"path": path, "pattern": "word"})),
                op => (Arguments, "Bash", json!({ "command": op.describe() })),
            };
            (kind, json!({"name": name, "input": input}).to_string())
        })
        .collect()
}

/// The text of a call's results that an agent sees.
pub fn result(call: &Call, results: &[ExpectedResult]) -> String {
    let mut results_of = call.ops.iter().zip(results);
    let failed = results_of.find_map(|(op, result)| match result {
        ExpectedResult::Errno(errno) => Some(failure(op, *errno)),
        _ => None,
    });
    if let Some(failed) = failed {
        return failed;
    }
    let path = call.ops.last().map(FileOp::path);
    let path = path.map_or(".", |path| path.as_str());
    match (call.kind, results.last()) {
        (Some(CallKind::Edit), _) => format!("The file {path} has been updated."),
        (_, Some(ExpectedResult::Bytes(bytes))) => numbered(bytes, call),
        (_, Some(ExpectedResult::Part { whole, start, end })) => numbered(&whole[*start..*end], &Call::default()),
        (_, Some(ExpectedResult::Attributes { size })) => match size {
            Some(size) => format!("{path}: {size} bytes"),
            None => format!("{path}: directory"),
        },
        (_, Some(ExpectedResult::Entries(entries))) => entries.keys().cloned().collect::<Vec<_>>().join("\n"),
        (_, Some(ExpectedResult::Tree { files, .. })) => {
            let paths: Vec<_> = files.keys().map(|path| path.as_str()).collect();
            format!("Found {} files\n{}", paths.len(), paths.join("\n"))
        }
        (_, Some(ExpectedResult::Paths { files, .. })) => {
            let paths: Vec<_> = files.iter().map(|path| path.as_str()).collect();
            paths.join("\n")
        }
        _ => format!("{path}: done"),
    }
}

/// An error in the words of Node's `fs`, which Claude Code shows unchanged, except for a missing file.
fn failure(op: &FileOp, errno: i32) -> String {
    let (name, words) = match errno {
        2 => return "File does not exist.".to_owned(),
        13 => ("EACCES", "permission denied"),
        17 => ("EEXIST", "file already exists"),
        20 => ("ENOTDIR", "not a directory"),
        21 => ("EISDIR", "illegal operation on a directory"),
        39 => ("ENOTEMPTY", "directory not empty"),
        errno => return format!("The call failed with error number {errno}."),
    };
    let call = match op {
        // A directory can be opened for reading, so the read fails, and its error has no path.
        op if op.reads_content() && errno == 21 => return format!("{name}: {words}, read"),
        FileOp::Stat(_) => "stat",
        FileOp::List { .. } | FileOp::Search(_) | FileOp::Walk(_) => "scandir",
        FileOp::Rename { from, to } => {
            return format!("{name}: {words}, rename '/ws/{from}' -> '/ws/{to}'");
        }
        FileOp::Remove(_) => "unlink",
        FileOp::MakeDir(_) => "mkdir",
        FileOp::RemoveDir(_) => "rmdir",
        _ => "open",
    };
    format!("{name}: {words}, {call} '/ws/{}'", op.path())
}

fn numbered(bytes: &[u8], call: &Call) -> String {
    let text = String::from_utf8_lossy(bytes);
    let (first, count) = call.lines.unwrap_or((1, READ_LIMIT));
    let first = first.max(1);
    let shown = (1..).zip(text.lines());
    let shown = shown.skip_while(|(number, _)| *number < first);
    let shown: Vec<String> = shown
        .take(count.min(READ_LIMIT) as usize)
        .map(
            |(number, line)| {
                if call.numbers_by_tab { format!("{number}\t{line}") } else { format!("{number:>6}→{line}") }
            },
        )
        .collect();
    if shown.is_empty() {
        return "The file has no lines there.".to_owned();
    }
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::WorkspacePath;

    /// The results of calls of one operation each, on `a/b.md` with this text.
    fn shown(text: &str, calls: impl IntoIterator<Item = (CallKind, FileOp)>) -> Vec<String> {
        let path = WorkspacePath::new("a/b.md").unwrap();
        let mut script = Script::new(vec![(path, text.as_bytes().to_vec().into())]);
        for (kind, op) in calls {
            script.call(kind, vec![op]);
        }
        let mut model = ReferenceModel::of(&script);
        let shown = script.calls.iter().map(|call| {
            let results: Vec<_> = call.ops.iter().map(|op| model.apply(op)).collect();
            result(call, &results)
        });
        let shown: Vec<String> = shown.collect();
        let counted = shown.iter().map(|text| tokens::count(text));
        assert_eq!(result_tokens(&script), counted.sum::<u64>());
        shown
    }

    #[test]
    fn results_look_as_agents_see_them() {
        let path = WorkspacePath::new("a/b.md").unwrap();
        let missing = WorkspacePath::new("missing").unwrap();
        let list = FileOp::list(WorkspacePath::root(), false);
        let calls = [
            (CallKind::Read, FileOp::Read(path.clone())),
            (CallKind::Read, FileOp::Read(missing)),
            (CallKind::Search, FileOp::Search(WorkspacePath::root())),
            (CallKind::List, list),
            (CallKind::Stat, FileOp::Stat(path.clone())),
            (CallKind::Delete, FileOp::Remove(path)),
        ];
        let shown = shown("one\ntwo\n", calls);
        insta::assert_snapshot!(shown.join("\n--\n"), @r"
             1→one
             2→two
        --
        File does not exist.
        --
        Found 1 files
        a/b.md
        --
        a
        --
        a/b.md: 8 bytes
        --
        a/b.md: done
        ");
    }

    #[test]
    fn errors_look_as_agents_see_them() {
        let path = |path: &str| WorkspacePath::new(path).unwrap();
        let write = |to: &str| FileOp::write(path(to), b"x".to_vec());
        let calls = [
            (CallKind::Read, FileOp::Read(path("a"))),
            (CallKind::Write, write("a")),
            (CallKind::Write, write("a/b.md/c")),
            (CallKind::Create, FileOp::Create(path("a/b.md"))),
            (CallKind::Search, FileOp::Search(path("a/b.md"))),
        ];
        let mut shown = shown("one\n", calls);
        // Errors that only other file systems return.
        shown.push(failure(&FileOp::Read(path("a/b.md")), 13));
        shown.push(failure(&FileOp::MakeDir(path("a")), 17));
        shown.push(failure(&FileOp::Remove(path("a")), 21));
        let (from, to) = (path("d"), path("a"));
        shown.push(failure(&FileOp::Rename { from, to }, 39));
        shown.push(failure(&FileOp::Stat(path("a")), 5));
        insta::assert_snapshot!(shown.join("\n"), @r"
        EISDIR: illegal operation on a directory, read
        EISDIR: illegal operation on a directory, open '/ws/a'
        ENOTDIR: not a directory, open '/ws/a/b.md/c'
        EEXIST: file already exists, open '/ws/a/b.md'
        ENOTDIR: not a directory, scandir '/ws/a/b.md'
        EACCES: permission denied, open '/ws/a/b.md'
        EEXIST: file already exists, mkdir '/ws/a'
        EISDIR: illegal operation on a directory, unlink '/ws/a'
        ENOTEMPTY: directory not empty, rename '/ws/d' -> '/ws/a'
        The call failed with error number 5.
        ");
    }

    #[test]
    fn a_read_shows_the_lines_that_were_asked_for_and_never_more_than_2000() {
        let text: String = (1..=5000).map(|line| format!("line {line}\n")).collect();
        let all = numbered(text.as_bytes(), &Call::default());
        assert_eq!(all.lines().count(), 2000);
        let asked = Call { lines: Some((4999, 50)), ..Call::default() };
        let some = numbered(text.as_bytes(), &asked);
        let by_tab = Call { numbers_by_tab: true, ..asked };
        assert_eq!(numbered(text.as_bytes(), &by_tab), "4999\tline 4999\n5000\tline 5000");
        assert_eq!(some, "  4999→line 4999\n  5000→line 5000");
        assert_eq!(numbered(b"", &Call::default()), "The file has no lines there.");
    }

    #[test]
    fn to_write_a_file_is_to_write_its_content() {
        let path = WorkspacePath::new("a.md").unwrap();
        let mut script = Script::default();
        let write = FileOp::write(path.clone(), b"a \"quoted\" line\n".to_vec());
        script.call(CallKind::Write, vec![write]);
        script.call(CallKind::Read, vec![FileOp::Read(path)]);
        script.calls[1].lines = Some((3, 10));
        let written: Vec<_> = script.calls.iter().flat_map(written).collect();
        insta::assert_snapshot!(written[0].1, @r#"{"name":"Write","input":{"file_path":"/ws/a.md","content":"a \"quoted\" line\n"}}"#);
        insta::assert_snapshot!(written[1].1, @r#"{"name":"Read","input":{"file_path":"/ws/a.md","offset":3,"limit":10}}"#);
        assert_eq!(written[0].0, Content);
    }
}
