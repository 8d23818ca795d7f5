//! Sessions of Claude Code as its versions write them, in our own words.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::testing::calls;
use super::{ImportedSession, RecordedEvent, claude_code};
use session_traces::coverage::Coverage;
use session_traces::{TraceOrigin, trace};
use workloads::compile::{compared, compile};
use workloads::script::{CallKind, FileOp, Script};
use workloads::trace::{Effect, Event, Fidelity, Trace, TraceSource};

/// A session that is written line by line.
#[derive(Default)]
struct Session {
    lines: Vec<Value>,
    cwd: String,
}

impl Session {
    fn new(cwd: &str) -> Self {
        let cwd = cwd.to_owned();
        let lines = Vec::new();
        Self { lines, cwd }
    }

    fn line(&mut self, mut line: Value) -> &mut Self {
        let number = self.lines.len();
        line["uuid"] = format!("u{number}").into();
        line["cwd"] = self.cwd.as_str().into();
        line["version"] = "2.1.200".into();
        line["timestamp"] = format!("2026-01-01T00:{:02}:{:02}Z", number / 60, number % 60).into();
        self.lines.push(line);
        self
    }

    /// A call and its result.
    fn call(&mut self, tool: &str, input: Value, shown: &str, structured: Value) -> &mut Self {
        let id = format!("t{}", self.lines.len());
        let usage = json!({"input_tokens": 10, "output_tokens": 5});
        let call = json!({"type": "tool_use", "id": id, "name": tool, "input": input});
        self.line(json!({"type": "assistant", "message": {"id": format!("m{id}"), "content": [call], "usage": usage}}));
        let failed = structured.is_string();
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": shown, "is_error": failed});
        self.line(json!({"type": "user", "message": {"content": [result]}, "toolUseResult": structured}))
    }

    fn read(&mut self, path: &str, content: &str) -> &mut Self {
        let lines = content.split('\n').count();
        self.call(
            "Read",
            json!({"file_path": path}),
            "",
            json!({"file": {"filePath": path, "content": content, "startLine": 1, "totalLines": lines}}),
        )
    }

    fn read_part(&mut self, path: &str, first: u64, content: &str, total: u64) -> &mut Self {
        let count = content.split('\n').count();
        self.call(
            "Read",
            json!({"file_path": path, "offset": first, "limit": count}),
            "",
            json!({"file": {"filePath": path, "content": content, "startLine": first, "totalLines": total}}),
        )
    }

    fn write(&mut self, path: &str, content: &str) -> &mut Self {
        self.call(
            "Write",
            json!({"file_path": path, "content": content}),
            "",
            json!({"type": "create", "filePath": path, "content": content, "originalFile": null}),
        )
    }

    /// An edit whose original is not recorded.
    fn edit(&mut self, path: &str, old: &str, new: &str, hunks: Value) -> &mut Self {
        self.call(
            "Edit",
            json!({"file_path": path, "old_string": old, "new_string": new}),
            "",
            json!({"filePath": path, "originalFile": null, "structuredPatch": hunks}),
        )
    }

    fn bash(&mut self, command: &str, output: &str) -> &mut Self {
        self.call("Bash", json!({ "command": command }), output, json!({"stdout": output, "stderr": ""}))
    }

    fn of_lines(lines: &[Value]) -> Self {
        let mut session = Self::new("/w/p");
        for line in lines {
            session.line(line.clone());
        }
        session
    }

    fn text(&self) -> String {
        let lines = self.lines.iter().map(|line| format!("{line}\n"));
        lines.collect()
    }

    fn imported(&self) -> ImportedSession {
        claude_code::read(&mut self.text().as_bytes(), &mut []).unwrap()
    }

    /// The trace, its script, and the causes of calls that are not replayed.
    fn replayed(&self) -> (Trace, Script, Vec<String>) {
        replayed(&self.imported())
    }
}

pub(super) fn replayed(session: &ImportedSession) -> (Trace, Script, Vec<String>) {
    let source = TraceSource {
        format: "claude-code".to_owned(),
        repo: None,
        commit: None,
        path: "s.jsonl".to_owned(),
        sha256: "0".to_owned(),
        licence: None,
    };
    let id = "s".to_owned();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.trace.jsonl");
    let (trace, blobs) = trace(session, &TraceOrigin { id, source }, Fidelity::Content).unwrap();
    std::fs::create_dir(dir.path().join("blobs")).unwrap();
    for (digest, bytes) in blobs {
        std::fs::write(dir.path().join("blobs").join(digest), bytes).unwrap();
    }
    let text = trace.to_jsonl().unwrap();
    let trace = Trace::parse(Path::new("s"), &text).unwrap();
    let (script, bytes) = compared(&file, &trace).unwrap();
    assert_eq!(bytes.reads, bytes.equal_reads);
    let causes = Coverage::of(&trace).causes;
    let causes = causes.into_iter().map(|(cause, count)| format!("{count} {cause}"));
    (trace, script, causes.collect())
}

/// The content of a file after all calls.
pub(super) fn content(script: &Script, path: &str) -> Option<String> {
    let mut model = workloads::model::ReferenceModel::of(script);
    for op in script.calls.iter().flat_map(|call| &call.ops) {
        model.apply(op);
    }
    let path = workloads::path::WorkspacePath::new(path).unwrap();
    let bytes = model.file(&path)?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

fn paths(session: &ImportedSession) -> Vec<Option<&str>> {
    session.calls().map(|call| call.path.as_deref()).collect()
}

#[test]
fn history_under_new_uuids_counts_once() {
    let mut once = Session::new("/p");
    once.line(json!({"type": "user", "message": {"content": "Mend it."}}));
    once.line(json!({"type": "assistant", "message": {"id": "m0", "content": [{"type": "text", "text": "I look."}], "usage": {"output_tokens": 3}}}));
    once.read("/p/a", "one\n").write("/p/b", "two\n");
    let mut twice = once.text();
    let copied = once.lines.iter().map(|line| {
        let mut line = line.clone();
        line["uuid"] = format!("copy-{}", line["uuid"]).into();
        line["sessionId"] = "fork".into();
        format!("{line}\n")
    });
    twice.extend(copied);
    let expected = format!("{:?}", once.imported().events);
    let session = claude_code::read(&mut twice.as_bytes(), &mut []).unwrap();
    assert_eq!(format!("{:?}", session.events), expected);
    assert_eq!(session.calls().count(), 2);
}

#[test]
fn an_edit_without_the_original_is_placed_by_its_patch() {
    let lines: Vec<String> = (1..=400).map(|n| format!("\tline {n}")).collect();
    let part = lines[99..120].join("\n");
    let mut session = Session::new("/p");
    session.read_part("/p/big", 100, &part, 401);
    // The text occurs many times; the place says which one. Tabs are shown as two spaces.
    session.edit(
        "/p/big",
        "line 1",
        "LINE 1",
        json!([{"oldStart": 104, "lines": ["   line 104", "-  line 105", "+  LINE 105", "   line 106"]}]),
    );
    // A place that no read has shown.
    session.edit(
        "/p/big",
        "\tline 300\n",
        "\tx\n\ty\n",
        json!([{"oldStart": 299, "lines": ["   line 299", "-  line 300", "+  x", "+  y", "   line 301"]}]),
    );
    session.read_part("/p/big", 299, "\tline 299\n\tx\n\ty\n\tline 301", 402);
    let (trace, script, causes) = session.replayed();
    assert_eq!(causes, [""; 0]);
    let after = content(&script, "big").unwrap();
    let after: Vec<&str> = after.split('\n').collect();
    assert_eq!(after.len(), 402);
    assert_eq!((after[99], after[104], after[118]), ("\tline 100", "\tLINE 105", "\tline 119"));
    assert_eq!(after[298..302], ["\tline 299", "\tx", "\ty", "\tline 301"]);
    let coverage = Coverage::of(&trace);
    assert_eq!(coverage.read_bytes, coverage.read_bytes_equal);
    assert_eq!((coverage.edits, coverage.edits_equal), (2, 2));
    assert!(!trace.events.iter().any(|event| matches!(event, Event::Ext(_))));
}

#[test]
fn what_the_client_did_wins_over_what_the_model_asked_for() {
    let curly = "say \u{201c}hi\u{201d}";
    for (before, input, result, lines, after) in [
        // Claude Code removes the newline of a line that nothing replaces.
        ("a\nb\nc\n", ("b", ""), ("b", ""), [" a", "-b", " c"].as_slice(), "a\nc\n"),
        // The user changed the proposed text.
        ("one\ntwo\n", ("two", "TWO"), ("two", "TWO!!"), &[" one", "-two", "+TWO!!"], "one\nTWO!!\n"),
        ("one\ntwo\n", ("two", "TWO"), ("two", "TWO"), &[" one", "-two", "+TWO!!"], "one\nTWO!!\n"),
        // The file has other quotes than the model wrote.
        (&format!("{curly}\n"), ("say \"hi\"", "x"), (curly, "x"), &[&format!("-{curly}"), "+x"], "x\n"),
    ] {
        for original in [json!(before), json!(null)] {
            let mut session = Session::new("/p");
            session.read("/p/a", before);
            session.call(
                "Edit",
                json!({"file_path": "/p/a", "old_string": input.0, "new_string": input.1}),
                "",
                json!({"filePath": "/p/a", "oldString": result.0, "newString": result.1, "originalFile": original,
                    "structuredPatch": [{"oldStart": 1, "lines": lines}]}),
            );
            session.read("/p/a", after);
            let (trace, script, causes) = session.replayed();
            assert_eq!(causes, [""; 0]);
            assert_eq!(content(&script, "a").unwrap(), after, "{input:?} {original}");
            assert!(!trace.events.iter().any(|event| matches!(event, Event::Ext(_))), "{input:?} {original}");
            let coverage = Coverage::of(&trace);
            // An edit that the texts do not explain is counted.
            let explained = u64::from(!after.contains(result.1) || after.contains(&format!("{}\n", result.1)));
            assert_eq!((coverage.edits, coverage.edits_equal), (1, explained), "{input:?} {original}");
        }
    }
}

/// The places of a change, as the client states them: lines that differ with three lines around them, and leading tabs as
/// spaces.
fn stated_patch(before: &str, after: &str) -> Value {
    let lines = |text: &str| -> Vec<String> {
        let ended = |line: &str| if line.ends_with('\n') { line.to_owned() } else { format!("{line}\n\\ No newline") };
        text.split_inclusive('\n').map(ended).collect()
    };
    let (old, new) = (lines(before), lines(after));
    let head = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(old, new)| old == new).count();
    let first = head.saturating_sub(3);
    let last = (old.len() - tail + 3).min(old.len());
    let marked = |mark: &'static str, lines: &[String]| -> Vec<String> {
        let shown = lines.iter().flat_map(move |line| {
            let line = line.trim_end_matches('\n');
            let text = line.trim_start_matches('\t');
            let (text, end) = text.split_once('\n').map_or((text, None), |(text, end)| (text, Some(end.to_owned())));
            let indent = "  ".repeat(line.len() - line.trim_start_matches('\t').len());
            std::iter::once(format!("{mark}{indent}{text}")).chain(end)
        });
        shown.collect()
    };
    let shown = [
        marked(" ", &old[first..head]),
        marked("-", &old[head..old.len() - tail]),
        marked("+", &new[head..new.len() - tail]),
        marked(" ", &old[old.len() - tail..last]),
    ];
    json!([{"oldStart": first + 1, "lines": shown.concat()}])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn random_edits_give_the_bytes_that_the_client_wrote(
        file in text_of_pieces(1..60),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 1..12_usize, text_of_pieces(0..6), any::<bool>()), 1..6),
    ) {
        let mut session = Session::new("/p");
        session.read("/p/a", &file);
        let mut text = file;
        let mut count = 0;
        for (place, length, new, is_known) in edits {
            let chars: Vec<char> = text.chars().collect();
            if chars.is_empty() {
                break;
            }
            let from = place.index(chars.len());
            let old: String = chars[from..chars.len().min(from + length)].iter().collect();
            let all = text.matches(&old).count() > 1;
            let line = format!("{old}\n");
            let removed = if new.is_empty() && !old.ends_with('\n') && text.contains(&line) { &line } else { &old };
            let after = if all {
text.replace(removed, &new)
} else {
text.replacen(removed, &new, 1)
};
            if after == text {
                continue;
            }
            // The model writes straight quotes.
            let written = |text: &str| text.replace(['\u{201c}', '\u{201d}'], "\"");
            session.call(
                "Edit",
                json!({"file_path": "/p/a", "old_string": written(&old), "new_string": written(&new), "replace_all": all}),
                "",
                json!({"filePath": "/p/a", "oldString": old, "newString": new, "replaceAll": all,
                    "originalFile": is_known.then_some(&text), "structuredPatch": stated_patch(&text, &after)}),
            );
            text = after;
            count += 1;
        }
        let (trace, script, causes) = session.replayed();
        prop_assert_eq!(causes, [""; 0]);
        prop_assert_eq!(content(&script, "a").unwrap(), text);
        prop_assert!(!trace.events.iter().any(|event| matches!(event, Event::Ext(_))));
        let coverage = Coverage::of(&trace);
        prop_assert_eq!((coverage.edits, coverage.edits_equal), (count, count));
    }
}

fn text_of_pieces(count: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let pieces = ["a", "b", "}", " ", "  ", "\t", "\n", "\n", "\n\t", "\u{201c}", "\u{201d}", "é"];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), count).prop_map(|pieces| pieces.concat())
}

#[test]
fn an_edit_of_a_file_that_a_program_has_changed_is_placed_after_that_change() {
    let mut session = Session::new("/p");
    session.read("/p/a", "one\ntwo\nthree\n");
    session.edit("/p/a", "2", "zwei", json!([{"oldStart": 1, "lines": [" one", "-2", "+zwei", " three"]}]));
    session.read("/p/a", "one\nzwei\nthree\n");
    let (trace, script, causes) = session.replayed();
    assert_eq!(causes, [""; 0]);
    assert_eq!(content(&script, "a").unwrap(), "one\nzwei\nthree\n");
    let changes = trace.events.iter().filter(|event| matches!(event, Event::Ext(_)));
    assert_eq!(changes.count(), 1);
}

#[test]
fn a_write_of_a_file_without_its_original_does_not_remove_it() {
    let mut session = Session::new("/p");
    session.call(
        "Write",
        json!({"file_path": "/p/a", "content": "new"}),
        "",
        json!({"type": "update", "filePath": "/p/a", "content": "new", "originalFile": null}),
    );
    let (trace, script, _) = session.replayed();
    assert_eq!(trace.files.len(), 1);
    assert_eq!(content(&script, "a").unwrap(), "new");
    assert_eq!(script.timed_calls(), [(CallKind::Write, 1)].into());
}

#[test]
fn an_edit_of_a_notebook_is_replayed_if_both_contents_are_recorded() {
    let mut session = Session::new("/p");
    let input = json!({"notebook_path": "/p/n.ipynb", "new_source": "x"});
    session.call(
        "NotebookEdit",
        input.clone(),
        "",
        json!({"notebook_path": "/p/n.ipynb", "original_file": "{\"a\":1}", "updated_file": "{\"a\":2}"}),
    );
    session.call("NotebookEdit", input, "", json!({"notebook_path": "/p/n.ipynb"}));
    let (_, script, causes) = session.replayed();
    assert_eq!(content(&script, "n.ipynb").unwrap(), "{\"a\":2}");
    assert_eq!(causes, ["1 an effect that the recording does not show"]);
}

#[test]
fn directories_that_lines_and_calls_name_are_roots() {
    let mut session = Session::new("/home/u/p/sub");
    session.read("/home/u/p/sub/a", "a");
    session.cwd = "/home/u/p".to_owned();
    session.read("/home/u/p/b", "b").read("sub/a", "a");
    session.cwd = "/home/u/tree".to_owned();
    session.read("c", "c");
    session.read("/private/tmp/x", "x").read("/home/u/.claude/plans/p.md", "p");
    session.bash("cd /srv/other && cat d", "d\n").read("/srv/other/e", "e");
    session.read("/etc/passwd", "no").read("/home/u/else/f", "no");
    let (_, script, causes) = session.replayed();
    assert_eq!(causes, ["2 a path outside the session's directories"]);
    let session = session.imported();
    let expected = [
        Some("sub/a"),
        Some("b"),
        Some("sub/a"),
        Some(".roots/home/u/tree/c"),
        Some(".roots/tmp/x"),
        Some(".roots/home/u/.claude/plans/p.md"),
        None,
        Some(".roots/srv/other/e"),
        None,
        None,
    ];
    assert_eq!(paths(&session), expected);
    assert_eq!(script.timed_calls()[&CallKind::Shell], 1);
}

#[test]
fn a_search_of_one_file_proves_that_it_is_there() {
    let mut session = Session::new("/p");
    let grep = |path: &str| json!({"pattern": "x", "path": path, "output_mode": "content"});
    let found = |content: &str| json!({"mode": "content", "filenames": [], "content": content});
    session.call("Grep", grep("/p/a/b.txt"), "", found("11-before\n12:x 3:4\n--\n40:x"));
    session.call("Grep", grep("/p/a/none.txt"), "", found(""));
    let (trace, _, causes) = session.replayed();
    assert_eq!(trace.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["a/b.txt"]);
    assert_eq!(causes, ["1 a directory without known files"]);
}

#[test]
fn a_session_on_windows_keeps_its_tree_and_its_searches() {
    let mut session = Session::new(r"C:\Users\Ann Lee\proj");
    session.read(r"C:\Users\Ann Lee\proj\src\a.txt", "one\n");
    session.edit(r"c:\users\ann lee\proj/src/A.TXT", "one", "two", json!([]));
    session.call(
        "Grep",
        json!({"pattern": "x", "output_mode": "content"}),
        "",
        json!({"mode": "content", "filenames": [], "content": "C:\\Users\\Ann Lee\\proj\\src\\b c.txt:3:x"}),
    );
    session.call("PowerShell", json!({"command": r"Get-Content src\a.txt"}), "two", json!({"stdout": "two"}));
    let (trace, script, causes) = session.replayed();
    assert_eq!(causes, [""; 0]);
    let files = trace.files.iter().map(|file| file.path.as_str());
    assert_eq!(files.collect::<Vec<_>>(), ["src/a.txt", "src/b c.txt"]);
    assert_eq!(content(&script, "src/a.txt").unwrap(), "two\n");
}

#[test]
fn a_stream_has_its_agent_and_its_subagents() {
    let call = |id: &str, parent: Value| {
        json!({"type": "assistant", "parent_tool_use_id": parent, "session_id": "s", "message": {"id": format!("m{id}"), "model": "m", "content": [
            {"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": "/p/a"}}]}})
    };
    let init =
        json!({"type": "system", "subtype": "init", "cwd": "/p", "model": "m-1", "claude_code_version": "2.1.200"});
    let odd = json!({"type": "hologram"});
    let result = json!({"type": "result", "subtype": "success"});
    let lines = [init, call("t1", Value::Null), call("t2", "t0".into()), odd.clone(), odd, result];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let session = claude_code::read(&mut text.as_bytes(), &mut []).unwrap();
    assert_eq!((session.agent.as_str(), session.model.as_str()), ("claude-code 2.1.200", "m-1"));
    let lanes: Vec<&str> = session.calls().map(|call| &*call.lane).collect();
    assert_eq!(lanes, ["main", "sub:t0"]);
    assert_eq!(paths(&session), [Some("a"), Some("a")]);
    assert_eq!(session.unknown_records, [("hologram".to_owned(), 2)].into());
}

#[test]
fn lines_of_a_subagents_read_are_numbered_before_a_tab_or_an_arrow() {
    for (shown, by_tab) in [("1\talpha\n2\tbeta\n3\tgamma", true), ("     1→alpha\n     2→beta\n     3→gamma", false)]
    {
        let mut session = Session::new("/p");
        session.call("Read", json!({"file_path": "/p/a"}), shown, Value::Null);
        let (trace, script, _) = session.replayed();
        assert_eq!(trace.files[0].content.bytes, 16, "{shown}");
        assert_eq!(script.calls[0].numbers_by_tab, by_tab);
        let path = trace.files[0].path.clone();
        assert_eq!(script.calls[0].ops, [FileOp::Read(path)]);
    }
}

#[test]
fn a_call_that_contradicts_the_files_costs_one_call() {
    let mut session = Session::new("/p");
    session.read("/p/conf", "x").write("/p/conf/a", "one").read("/p/conf/a", "one");
    session.write("/p/dir/a", "a").write("/p/dir", "no").write("/p/c", "c");
    session.read(&format!("/p/{}", "long".repeat(1000)), "x");
    let (_, script, causes) = session.replayed();
    assert_eq!(causes, ["3 a file in place of a directory, or the other way round", "1 a name that no file can have"]);
    assert_eq!(content(&script, "c").unwrap(), "c");
}

#[test]
fn a_result_of_another_file_than_the_calls_costs_one_call() {
    let whole = |path: &str, content: &str| {
        let lines = content.split('\n').count();
        json!({"file": {"filePath": path, "content": content, "startLine": 1, "totalLines": lines}})
    };
    let part = json!({"file": {"filePath": "/p/b", "content": "x", "startLine": 3, "totalLines": 9}});
    let written = |path: &str, before: Value| json!({"type": "create", "filePath": path, "content": "new", "originalFile": before});
    let edited = |path: &str, before: Value| {
        let hunks = json!([{"oldStart": 1, "lines": ["-one", "+1"]}]);
        json!({"filePath": path, "originalFile": before, "structuredPatch": hunks})
    };
    let read = ("Read", json!({"file_path": "/p/a"}));
    let write = ("Write", json!({"file_path": "/p/a", "content": "new"}));
    let edit = ("Edit", json!({"file_path": "/p/a", "old_string": "one", "new_string": "1"}));
    let other = "1 a result of another file than the call's";
    let outside = "1 a path outside the session's directories";
    for (call, structured, cause) in [
        (&read, whole("/p/b", "other"), other),
        (&read, whole("/p/sub/deep/b", "other"), other),
        (&read, whole("/p/a/b", "other"), other),
        (&read, whole("/elsewhere/b", "other"), outside),
        (&read, part, other),
        (&write, written("/p/b", Value::Null), other),
        (&write, written("/p/b", "before".into()), other),
        (&write, written("/elsewhere/b", Value::Null), outside),
        (&edit, edited("/p/b", "one\n".into()), other),
        (&edit, edited("/p/b", Value::Null), other),
        (&edit, edited("/elsewhere/b", Value::Null), outside),
    ] {
        let (tool, input) = call;
        let mut session = Session::new("/p");
        session.write("/p/a", "one\n").write("/p/b", "two\n");
        session.call(tool, input.clone(), "", structured.clone());
        // What the call did to the files is not known: the next reads say how they are.
        session.read("/p/b", "after\n").read("/p/a", "one\n");
        session.edit("/p/a", "one", "1", Value::Null);
        let (_, script, causes) = session.replayed();
        assert_eq!(causes, [cause], "{structured}");
        assert_eq!(content(&script, "a").unwrap(), "1\n", "{structured}");
        assert_eq!(content(&script, "b").unwrap(), "after\n", "{structured}");
    }
    // The input is outside, the result inside.
    for structured in [written("/p/b", Value::Null), edited("/p/b", "two\n".into()), whole("/p/b", "other")] {
        for (tool, input) in [&read, &write, &edit] {
            let mut session = Session::new("/p");
            session.write("/p/b", "two\n");
            let mut input = input.clone();
            input["file_path"] = "/elsewhere/a".into();
            session.call(tool, input, "", structured.clone());
            session.read("/p/b", "two\n");
            let (_, script, causes) = session.replayed();
            assert_eq!(causes, [outside], "{structured}");
            assert_eq!(content(&script, "b").unwrap(), "two\n", "{structured}");
        }
    }
    // The same file in another spelling is the same.
    let mut session = Session::new("/p");
    session.call("Write", json!({"file_path": "/p/x/../a", "content": "new"}), "", written("/p/a", Value::Null));
    let (_, script, causes) = session.replayed();
    assert_eq!(causes, Vec::<String>::new());
    assert_eq!(content(&script, "a").unwrap(), "new");
}

#[test]
fn shell_commands_replay_as_file_operations() {
    let mut session = Session::new("/p");
    session.bash("mkdir -p d && cat > d/a <<'EOF'\none\ntwo\nEOF", "");
    session.bash("sed -i 's/one/1/g' d/a; echo three >> d/a", "");
    session.read("/p/d/a", "1\ntwo\nthree\n");
    session.bash("cp -r d e && mv e/a b && rm -rf d", "");
    session.bash("cat b", "1\ntwo\nthree");
    session.bash("git status && make", "clean");
    session.bash("apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: b\n@@\n-two\n+2\n*** End Patch\nEOF", "Done");
    // The second part cannot be replayed, so the first is not either.
    session.bash("rm b; cat unknown/*", "");
    session.bash("touch new; rm no/such", "");
    session.bash("./deploy.sh > log", "");
    let (trace, script, causes) = session.replayed();
    assert_eq!(content(&script, "b").unwrap(), "1\n2\nthree\n");
    assert_eq!(content(&script, "d/a"), None);
    let expected = [(CallKind::Read, 1), (CallKind::Shell, 6), (CallKind::ModelledProgram, 1)];
    assert_eq!(script.timed_calls(), expected.into());
    assert_eq!(causes, ["1 a pattern of file names", "1 a program whose work on files is not known"]);
    assert_eq!(script.not_replayed, [("exec".to_owned(), 2)].into());
    let known = trace.files.iter().map(|file| file.path.as_str());
    assert_eq!(known.collect::<Vec<_>>(), ["no/such"]);
}

#[test]
fn a_command_that_fails_midway_leaves_the_files_as_they_were() {
    let mut session = Session::new("/p");
    session.write("/p/a", "a").write("/p/x/b", "b");
    session.bash("rm a && echo z > x", "");
    session.read("/p/a", "a");
    let (_, script, causes) = session.replayed();
    assert_eq!(causes, ["1 a file in place of a directory, or the other way round"]);
    assert_eq!(content(&script, "a").unwrap(), "a");
    assert_eq!(script.timed_calls()[&CallKind::Read], 1);
}

#[test]
fn a_directory_goes_with_its_files() {
    let mut session = Session::new("/p");
    session.write("/p/f/x", "1").bash("rm -r f", "");
    session.write("/p/f", "a file").read("/p/f", "a file");
    session.write("/p/d/x/y", "2").write("/p/k/z", "3");
    // Now `d` is a new name, and not a directory that gets `k`.
    session.bash("rm -rf d; cp -r k d", "").read("/p/d/z", "3");
    session.bash("mkdir -p m/empty && mv d m && mv m e && mv k m", "");
    session.read("/p/e/d/z", "3").read("/p/m/z", "3");
    session.bash("rmdir e/empty && echo 4 > e/empty", "").read("/p/e/empty", "4\n");
    session.bash("cp -r e/. g && cp -r e/. g", "").read("/p/g/d/z", "3");
    // What is not empty stays, and a command that is left out changes no directory.
    session.bash("rmdir e", "").bash("rm -r g; rmdir unknown", "").read("/p/g/empty", "4\n");
    session.bash("mv m/z new/", "").read("/p/new/z", "3");
    let (trace, script, causes) = session.replayed();
    let changes = trace.events.iter().filter(|event| matches!(event, Event::Ext(_)));
    let changes: Vec<_> = changes.collect();
    assert!(changes.is_empty(), "{changes:?} {:?}", trace.files);
    assert_eq!(causes, ["1 a directory that is not empty", "1 a directory without known files"]);
    assert_eq!(script.timed_calls()[&CallKind::Read], 8);
    assert_eq!(content(&script, "new/z").unwrap(), "3");
}

#[test]
fn sed_edits_the_lines_that_its_script_tells() {
    let mut session = Session::new("/p");
    session.write("/p/a", "x x\ny\nx\nz\n");
    session.bash("sed -i -e 's/x/1/' -e '2d;s_z_w_' a", "").read("/p/a", "1 x\n1\nw\n");
    session.bash("sed -i '2,$s/1/2/; /none/d' a", "").read("/p/a", "1 x\n2\nw\n");
    session.bash("sed -i 's/none/x/' a", "").read("/p/a", "1 x\n2\nw\n");
    session.bash("cat a > b; printf '%s\\n' 3 4 >> b", "").read("/p/b", "1 x\n2\nw\n3\n4\n");
    let (trace, script, causes) = session.replayed();
    let changes = trace.events.iter().filter(|event| matches!(event, Event::Ext(_)));
    assert_eq!(changes.count(), 0);
    assert_eq!(causes, <[String; 0]>::default());
    assert_eq!(script.timed_calls(), [(CallKind::Write, 1), (CallKind::Read, 4), (CallKind::Shell, 4)].into());
}

#[test]
fn a_session_with_many_copied_reads_has_the_effects_of_one() {
    let mut session = Session::new("/p");
    session.write("/p/a", "one\n");
    session.call(
        "MultiEdit",
        json!({"file_path": "/p/a", "edits": [
        {"old_string": "one", "new_string": "two"}, {"old_string": "two", "new_string": "three"}]}),
        "",
        json!({"filePath": "/p/a", "originalFileContents": "one\n"}),
    );
    let (trace, script, _) = session.replayed();
    assert_eq!(content(&script, "a").unwrap(), "three\n");
    let edits = trace
        .events
        .iter()
        .filter(|event| matches!(event, Event::Call(call) if matches!(call.effect, Some(Effect::Edit(_)))));
    assert_eq!(edits.count(), 1);
}

#[test]
fn twenty_thousand_listed_files_are_imported_in_time() {
    let names: Vec<String> = (0..20_000).map(|n| format!("/p/d{}/f{n}", n % 100)).collect();
    let mut session = Session::new("/p");
    session.call("Glob", json!({"pattern": "**"}), "", json!({ "filenames": names }));
    let session = session.imported();
    let files = session.results().count();
    assert_eq!(files, 1);
    let began = std::time::Instant::now();
    let source = TraceSource {
        format: "claude-code".to_owned(),
        repo: None,
        commit: None,
        path: "s".to_owned(),
        sha256: "0".to_owned(),
        licence: None,
    };
    let id = "s".to_owned();
    let (made, _) = trace(&session, &TraceOrigin { id, source }, Fidelity::Shape).unwrap();
    assert_eq!(made.files.len(), 20_000);
    compile(Path::new("s"), &made).unwrap();
    // A debug build takes most of it to make 80 MB of filler; quadratic checks took minutes.
    assert!(began.elapsed() < std::time::Duration::from_secs(60));
    assert!(session.events.iter().any(|event| matches!(event, RecordedEvent::Call(_))));
}

/// The events `user` and `api` of a session.
fn context(session: &ImportedSession) -> Vec<String> {
    let origin = TraceOrigin {
        id: "s".to_owned(),
        source: TraceSource {
            format: "claude-code".to_owned(),
            repo: None,
            commit: None,
            path: "s".to_owned(),
            sha256: "0".to_owned(),
            licence: None,
        },
    };
    let (trace, _) = trace(session, &origin, Fidelity::Shape).unwrap();
    let shown = trace.events.iter().filter_map(|event| match event {
        Event::User(user) => {
            Some(format!("{} {} {}", if user.by_client { "client" } else { "user" }, user.turn, user.tok))
        }
        Event::Api(api) => Some(format!("api {} {}", api.thinking_tok.unwrap_or_default(), api.model)),
        _ => None,
    });
    shown.collect()
}

#[test]
fn attachments_images_and_hidden_thinking_are_in_the_context() {
    let mut session = Session::new("/w/p");
    let attach = |attachment: Value| json!({"type": "attachment", "attachment": attachment});
    let usage = json!({"input_tokens": 10, "output_tokens": 5});
    let answer = |id: &str, model: &str, block: Value| json!({"type": "assistant", "message": {"id": id, "model": model, "content": [block], "usage": usage}});
    let thinks = |signature: usize, text: &str| json!({"type": "thinking", "thinking": text, "signature": "A".repeat(signature)});
    session
        .line(json!({"type": "user", "message": {"content": "Look."}}))
        .line(attach(json!({"type": "hook_system_message", "content": "The user sees this."})))
        .line(attach(json!({"type": "nested_memory", "path": "/w/p/A.md", "content": {"path": "/w/p/A.md", "content": "one two three"}})))
        .line(attach(json!({"type": "deferred_tools_delta", "addedNames": ["one", "two"], "removedNames": ["three"]})))
        .line(attach(json!({"type": "hook_success", "content": "one", "stdout": "one", "command": "x"})))
        // 3,000 bytes of thinking, none of which is shown; then thinking that is shown in full.
        .line(answer("m1", "claude-opus-5", thinks(4300, "")))
        .line(answer("m2", "claude-haiku-4-5", thinks(312, "one two three four")))
        .line(json!({"type": "user", "message": {"content": [{"type": "image", "source": {"type": "base64", "data": "AAAA"}}]}}));
    let lines: Vec<String> = session.lines.iter().map(Value::to_string).collect();
    // A resumed file repeats its history under new identities.
    let again = lines.iter().map(|line| line.replace("\"uuid\":\"u", "\"uuid\":\"v"));
    let text = lines.iter().cloned().chain(again).collect::<Vec<_>>().join("\n");
    let session = claude_code::read(&mut text.as_bytes(), &mut []).unwrap();
    assert_eq!(
        context(&session),
        ["user 0 2", "client 1 4", "client 1 4", "client 1 2", "api 735 ", "api 4 claude-haiku-4-5", "client 1 800",]
    );
}

#[test]
fn the_end_of_a_query_states_tokens_and_dollars() {
    let line = |line: Value| format!("{line}\n");
    let end = |output: u64, dollars: f64| {
        line(json!({"type": "result", "session_id": "s", "total_cost_usd": dollars, "modelUsage": {
            "claude-opus-4-6[1m]": {"inputTokens": 30, "outputTokens": output, "cacheReadInputTokens": 7, "cacheCreationInputTokens": 5, "costUSD": dollars}}}))
    };
    let usage = json!({"input_tokens": 3, "output_tokens": 2});
    let text = line(json!({"type": "system", "subtype": "init", "cwd": "/w/p", "session_id": "s", "uuid": "u0"}))
        + &line(json!({"type": "assistant", "session_id": "s", "uuid": "u1", "message": {
            "id": "m1", "role": "assistant", "model": "claude-opus-4-6", "content": [], "usage": usage}}))
        + &end(40, 0.5)
        + &end(400, 1.25);
    let session = claude_code::read(&mut text.as_bytes(), &mut []).unwrap();
    let totals = session.totals.iter().map(|total| {
        (
            total.model.as_str(),
            total.usage.map(|usage| (usage.uncached, usage.cache_read, usage.cache_write_5m, usage.output)),
            total.dollars,
        )
    });
    let totals: Vec<_> = totals.collect();
    assert_eq!(totals, [("claude-opus-4-6", Some((30, 7, 5, 400)), None), ("", None, Some(1.25))]);
}

#[test]
fn a_usage_of_absurd_numbers_is_bounded() {
    let usage = json!({"input_tokens": u64::MAX, "cache_read_input_tokens": u64::MAX, "output_tokens": -1,
        "cache_creation": {"ephemeral_1h_input_tokens": u64::MAX}});
    let answer = json!({"type": "assistant", "session_id": "s", "message": {
        "id": "m1", "role": "assistant", "model": "claude-opus-4-6", "content": [], "usage": usage}});
    let end = json!({"type": "result", "session_id": "s", "total_cost_usd": 1e300});
    let session = claude_code::read(&mut format!("{answer}\n{end}\n").as_bytes(), &mut []).unwrap();
    let Some(RecordedEvent::Api { usage, .. }) = session.events.first() else {
        panic!("{:?}", session.events);
    };
    assert_eq!((usage.uncached, usage.cache_read, usage.cache_write_1h, usage.output), (1 << 50, 1 << 50, 1 << 50, 0));
    assert!(session.totals.iter().all(|total| total.dollars.is_none()), "{:?}", session.totals);
}

#[test]
fn web_searches_and_answers_in_fast_mode_count_once_a_response() {
    let answer = |id: &str, speed: &str, searches: u64| {
        let usage = json!({"input_tokens": 3, "output_tokens": 2, "speed": speed, "server_tool_use": {"web_search_requests": searches}});
        let line = json!({"type": "assistant", "sessionId": "s", "message": {
            "id": id, "role": "assistant", "model": "claude-opus-4-6", "content": [], "usage": usage}});
        format!("{line}\n")
    };
    let text =
        [answer("m1", "fast", 0), answer("m1", "fast", 2), answer("m2", "standard", 3), answer("m3", "standard", 0)];
    let session = claude_code::read(&mut text.concat().as_bytes(), &mut []).unwrap();
    assert_eq!((session.web_searches, session.fast_answers), (5, 1));
}

/// A call of this answer.
fn use_line(answer: &str, id: Value, tool: Value, input: Value) -> Value {
    let call = json!({"type": "tool_use", "id": id, "name": tool, "input": input});
    json!({"type": "assistant", "message": {"id": answer, "role": "assistant", "content": [call], "usage": {}}})
}

/// A result, as `claude -p` prints it.
fn result_line(id: &str, shown: &str) -> Value {
    json!({"type": "user", "message": {"role": "user",
        "content": [{"type": "tool_result", "tool_use_id": id, "content": shown}]}})
}

#[test]
fn a_call_that_uses_an_identity_again_is_another_call() {
    let path = |name: &str| json!({"file_path": format!("/w/p/{name}")});
    let lines = [
        use_line("m1", "call_0".into(), "Read".into(), path("a")),
        result_line("call_0", "1\tone"),
        use_line("m2", "call_0".into(), "Read".into(), path("b")),
        result_line("call_0", "1\ttwo"),
        use_line("m3", "call_0".into(), "Read".into(), path("b")),
        result_line("call_0", "1\ttwo"),
    ];
    let expected = ["Read read a: one of 1 lines", "Read read b: two of 1 lines", "Read read b: two of 1 lines"];
    assert_eq!(calls(&Session::of_lines(&lines).imported()), expected);
    // A resumed session repeats its history with new `uuid`s.
    let repeated = [&lines[..], &lines[..]].concat();
    assert_eq!(calls(&Session::of_lines(&repeated).imported()), expected);
}

#[test]
fn a_result_before_its_call_is_its_result_and_one_without_a_call_is_counted() {
    let call = |id: &str, name: &str| use_line("m1", id.into(), "Read".into(), json!({"file_path": name}));
    let lines = [
        result_line("lost", "some text of a lost call"),
        result_line("t1", "1\tone"),
        call("t1", "/w/p/a"),
        call("t2", "/w/p/b"),
        result_line("t2", "1\ttwo"),
    ];
    let session = Session::of_lines(&lines).imported();
    assert_eq!(calls(&session), ["Read read a: one of 1 lines", "Read read b: two of 1 lines"]);
    assert_eq!(session.results_without_call, 1);
    let added = session.events.iter().filter_map(|event| match event {
        RecordedEvent::User { text, .. } => Some(text.load().unwrap()),
        _ => None,
    });
    assert_eq!(added.collect::<Vec<_>>(), ["some text of a lost call"]);
    let kinds = session.events.iter().filter_map(|event| match event {
        RecordedEvent::Call(call) => Some(format!("call {}", call.id)),
        RecordedEvent::Result(result) => Some(format!("result {}", result.id)),
        _ => None,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["call t1", "result t1", "call t2", "result t2"]);
}

#[test]
fn a_call_without_identity_or_name_is_counted() {
    let input = json!({"file_path": "/w/p/a"});
    let lines = [
        use_line("m1", Value::Null, "Read".into(), input.clone()),
        use_line("m2", "t2".into(), Value::Null, input),
        result_line("t2", "?"),
    ];
    let (trace, _, causes) = Session::of_lines(&lines).replayed();
    assert_eq!(trace.events.iter().filter(|event| matches!(event, Event::Call(_))).count(), 2);
    assert_eq!(causes, ["1 a call without a result", "1 an unknown tool that names a file"]);
}

/// The last record of a run of `claude -p`: dollars and output so far.
fn stated(session: &str, dollars: f64, output: u64) -> Value {
    json!({"type": "result", "subtype": "success", "session_id": session, "total_cost_usd": dollars,
        "usage": {"output_tokens": output}, "modelUsage": {"claude-opus-4-6": {"outputTokens": output}}})
}

#[test]
fn the_totals_of_several_runs_in_one_log_add_up() {
    // Each query of a run states the sum so far; a resumed run begins at zero.
    let results = [stated("a", 1.0, 200), stated("a", 1.25, 500), stated("b", 0.5, 100), stated("a", 0.25, 50)];
    let session = Session::of_lines(&results).imported();
    let totals: Vec<_> =
        session.totals.iter().map(|total| (total.usage.map(|usage| usage.output), total.dollars)).collect();
    assert_eq!(totals, [(Some(650), None), (None, Some(2.0))]);
}

#[test]
fn a_session_is_the_same_as_lines_as_a_list_and_over_many_lines() {
    let mut written = Session::new("/w/p");
    written.read("/w/p/a.txt", "one\n").bash("cat a.txt", "one");
    let mut all = written.lines.clone();
    all.push(stated("s", 1.0, 7));
    all.iter_mut().for_each(|line| line["sessionId"] = "s".into());
    let expected = calls(&written.imported());
    let list = Value::Array(all.clone());
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    let objects: Vec<String> = all.iter().map(pretty).collect();
    for text in [list.to_string(), pretty(&list), objects.join("\n"), format!("{list}\n")] {
        let session = super::testing::imported("claude-code", &text);
        assert_eq!(calls(&session), expected, "{text}");
        assert_eq!(super::testing::stated(&session), Some(1.0));
        assert_eq!((session.unreadable_lines, session.mended_lines), (0, 0));
    }
    // `claude -p --output-format json` prints the result alone.
    for text in [stated("s", 1.0, 7).to_string(), pretty(&stated("s", 1.0, 7))] {
        let session = super::testing::imported("claude-code", &text);
        assert_eq!(super::testing::stated(&session), Some(1.0));
        assert_eq!(session.totals[0].usage.unwrap().output, 7);
        assert_eq!((session.agent.as_str(), session.model.as_str()), ("claude-code", "claude-opus-4-6"));
    }
}

#[test]
fn a_long_recording_is_recognised_by_its_start() {
    // The limit of the head is 1 MiB. What follows looks like another format.
    let long = json!({"role": "user", "content": "x".repeat(3 << 20)});
    let first = json!({"type": "user", "sessionId": "s", "uuid": "u1", "cwd": "/w/p", "message": long});
    let other = json!({"type": "session_meta", "payload": {"id": "s", "cwd": "/w/p"}});
    for text in [format!("{first}\n{other}\n"), json!([first, other]).to_string()] {
        let session = super::testing::imported("claude-code", &text);
        assert_eq!((session.events.len(), session.unknown_records["session_meta"]), (1, 1));
    }
}

#[test]
fn the_lines_that_a_read_returned_win_over_those_that_it_asked_for() {
    let mut session = Session::new("/w/p");
    session.read("/w/p/a", "a\nb\nc\nd\ne\nf\n");
    let part = json!({"file": {"filePath": "/w/p/a", "content": "e\nf", "startLine": 5, "totalLines": 7}});
    for offset in [json!("5"), json!(5.5), json!(3)] {
        session.call("Read", json!({"file_path": "/w/p/a", "offset": offset, "limit": "2"}), "", part.clone());
    }
    session.read("/w/p/a", "a\nb\nc\nd\ne\nf\n");
    let (trace, ..) = session.replayed();
    let coverage = Coverage::of(&trace);
    assert_eq!((coverage.replayed, coverage.read_bytes), (5, 33));
    assert_eq!(coverage.read_bytes_equal, 33);
    assert!(!trace.events.iter().any(|event| matches!(event, Event::Ext(_))));
    let ranges = trace.events.iter().filter_map(|event| match event {
        Event::Call(call) => call.range.map(|(first, _)| first),
        _ => None,
    });
    assert_eq!(ranges.collect::<Vec<_>>(), [5, 5, 5]);
}

#[test]
fn a_command_that_did_not_end_is_not_replayed() {
    let mut session = Session::new("/w/p");
    session.write("/w/p/a", "1\n");
    for structured in [json!({"stdout": "", "interrupted": true}), json!({"stdout": "", "backgroundTaskId": "b1"})] {
        session.call("Bash", json!({"command": "sleep 9; rm a"}), "", structured);
    }
    session.call("Bash", json!({"command": "rm a"}), "[Request interrupted by user for tool use]", Value::Null);
    session.read("/w/p/a", "1\n");
    let (trace, script, causes) = session.replayed();
    assert_eq!(causes, ["3 a command that did not end"]);
    assert_eq!(content(&script, "a").as_deref(), Some("1\n"));
    assert!(!trace.events.iter().any(|event| matches!(event, Event::Ext(_))));
}

#[test]
fn an_edit_that_replaces_nothing_creates_the_file() {
    let mut session = Session::new("/w/p");
    let made = json!({"filePath": "/w/p/m", "originalFile": "", "structuredPatch": []});
    session.call("Edit", json!({"file_path": "/w/p/m", "old_string": "", "new_string": "m"}), "", made);
    session.edit("/w/p/n", "", "new\n", json!([])).read("/w/p/n", "new\n");
    let (trace, script, causes) = session.replayed();
    assert!(causes.is_empty() && trace.files.is_empty(), "{causes:?}");
    assert_eq!(content(&script, "n").as_deref(), Some("new\n"));
    assert!(!trace.events.iter().any(|event| matches!(event, Event::Ext(_))));
}

#[test]
fn the_tools_of_a_file_server_are_replayed() {
    let mut session = Session::new("/w/p");
    let mut call = |tool: &str, input: Value, shown: &str| {
        session.call(&format!("mcp__filesystem__{tool}"), input, shown, Value::Null);
    };
    call("list_allowed_directories", json!({}), "Allowed directories:\n/w/p\n/srv/data/x");
    call("write_file", json!({"path": "/w/p/a", "content": "one\n"}), "Successfully wrote to /w/p/a");
    call("edit_file", json!({"path": "/w/p/a", "edits": [{"oldText": "one", "newText": "two"}]}), "diff");
    call("move_file", json!({"source": "/w/p/a", "destination": "/srv/data/x/b"}), "Successfully moved");
    call("read_text_file", json!({"path": "/srv/data/x/b"}), "two\n");
    // Another server's files are elsewhere.
    call("read_file", json!({"owner": "o", "path": "README.md"}), "text");
    let (trace, script, causes) = session.replayed();
    assert_eq!(Coverage::of(&trace).replayed, 4, "{causes:?}");
    assert_eq!(content(&script, ".roots/srv/data/x/b").as_deref(), Some("two\n"));
    assert_eq!(content(&script, "a"), None);
    assert!(trace.files.is_empty() && !trace.events.iter().any(|event| matches!(event, Event::Ext(_))));
}

#[test]
fn the_text_of_an_answer_without_blocks_counts() {
    let line = json!({"type": "assistant", "message": {"id": "m1", "role": "assistant", "content": "Some text."}});
    let session = Session::of_lines(&[line.clone(), line]).imported();
    let texts = session.events.iter().filter_map(|event| match event {
        RecordedEvent::Api { text, .. } => Some(text.load().unwrap()),
        _ => None,
    });
    assert_eq!(texts.collect::<Vec<_>>(), ["Some text."]);
}

#[test]
fn the_shell_of_claude_p_keeps_its_directory() {
    let init = json!({"type": "system", "subtype": "init", "session_id": "s", "cwd": "/w/p"});
    let run = |number: usize, command: &str, shown: &str| {
        let id = format!("t{number}");
        [
            use_line(&format!("m{number}"), id.clone().into(), "Bash".into(), json!({"command": command})),
            result_line(&id, shown),
        ]
    };
    let commands = [
        ("cd sub && ls", "a"),
        ("cat a", "one"),
        ("cd .. && cat a", "two"),
        ("cd sub || mkdir sub", ""),
        ("cat a", "?"),
        ("cd /w/p/sub", ""),
        ("cat a", "one"),
        ("cd /elsewhere", "\nShell cwd was reset to /w/p"),
        ("cat a", "two"),
    ];
    let mut lines = vec![init];
    for (number, (command, shown)) in commands.into_iter().enumerate() {
        lines.extend(run(number, command, shown));
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let session = claude_code::read(&mut text.as_bytes(), &mut []).unwrap();
    let (trace, script, causes) = replayed(&session);
    assert_eq!(
        causes,
        ["1 a command for the case of a failure", "2 a command without files", "1 a directory that is not certain"]
    );
    let read = trace.events.iter().filter_map(|event| match event {
        Event::Call(call) => call.steps.iter().find_map(|step| match step {
            workloads::trace::FileStep::Read(path) => Some(path.to_string()),
            _ => None,
        }),
        _ => None,
    });
    assert_eq!(read.collect::<Vec<_>>(), ["sub/a", "a", "sub/a", "a"]);
    assert_eq!(content(&script, "sub/a").as_deref(), Some("one\n"));
}
