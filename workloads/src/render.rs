//! Results as an agent is shown them, to count what they cost in tokens.
//!
//! The formats are those of Claude Code's tools: numbered lines for a read, at most 2,000 of them;
//! paths for a listing or a search; a sentence for a change.

use crate::model::{Expected, Model};
use crate::script::{Call, CallKind, FileOp, Script};

/// The most lines that a read shows.
const READ_LIMIT: usize = 2000;

/// Tokens of the results of all timed calls of a script, on a file system that does what the model says.
pub fn result_tokens(script: &Script) -> u64 {
    let mut model = Model::of(script);
    let mut total = 0;
    for call in &script.calls {
        let results: Vec<Expected> = call.ops.iter().map(|op| model.apply(op)).collect();
        if call.kind.is_some() {
            total += tokens::count(&result(call, &results));
        }
    }
    total
}

/// What an agent is shown of a call's results.
pub fn result(call: &Call, results: &[Expected]) -> String {
    if let Some(Expected::Errno(errno)) = results.iter().find(|r| matches!(r, Expected::Errno(_))) {
        return match errno {
            2 => "File does not exist.".to_owned(),
            errno => format!("The call failed with error number {errno}."),
        };
    }
    let path = call.ops.last().map(FileOp::path);
    let path = path.map_or(".", |path| path.as_str());
    match (call.kind, results.last()) {
        (Some(CallKind::Edit), _) => format!("The file {path} has been updated."),
        (_, Some(Expected::Bytes(bytes))) => numbered(bytes),
        (_, Some(Expected::Part { whole, start, end })) => numbered(&whole[*start..*end]),
        (_, Some(Expected::Attributes { size })) => match size {
            Some(size) => format!("{path}: {size} bytes"),
            None => format!("{path}: directory"),
        },
        (_, Some(Expected::Entries(entries))) => {
            entries.keys().cloned().collect::<Vec<_>>().join("\n")
        }
        (_, Some(Expected::Tree(tree))) => {
            let paths: Vec<_> = tree.keys().map(|path| path.as_str()).collect();
            format!("Found {} files\n{}", paths.len(), paths.join("\n"))
        }
        (_, Some(Expected::Paths(paths))) => {
            let paths: Vec<_> = paths.iter().map(|path| path.as_str()).collect();
            paths.join("\n")
        }
        _ => format!("{path}: done"),
    }
}

fn numbered(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = (1..).zip(text.lines()).take(READ_LIMIT);
    let lines: Vec<_> = lines
        .map(|(number, line)| format!("{number:>6}→{line}"))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::WorkspacePath;

    #[test]
    fn results_look_as_agents_see_them() {
        let path = WorkspacePath::new("a/b.md").unwrap();
        let mut script = Script::new(vec![(path.clone(), "one\ntwo\n".as_bytes().into())]);
        let kinds = [
            (CallKind::Read, FileOp::Read(path.clone())),
            (
                CallKind::Read,
                FileOp::Read(WorkspacePath::new("missing").unwrap()),
            ),
            (CallKind::Search, FileOp::Search(WorkspacePath::root())),
            (
                CallKind::List,
                FileOp::List {
                    path: WorkspacePath::root(),
                    attributes: false,
                },
            ),
            (CallKind::Stat, FileOp::Stat(path.clone())),
            (CallKind::Delete, FileOp::Remove(path)),
        ];
        for (kind, op) in kinds {
            script.call(kind, vec![op]);
        }
        let mut model = Model::of(&script);
        let shown: Vec<String> = script
            .calls
            .iter()
            .map(|call| {
                let results: Vec<_> = call.ops.iter().map(|op| model.apply(op)).collect();
                result(call, &results)
            })
            .collect();
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
        assert!(result_tokens(&script) > 20);
    }
}
