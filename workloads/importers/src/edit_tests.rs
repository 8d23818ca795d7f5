//! Edits of agents' tools: the files after them have the bytes that the tools wrote.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::ImportedSession;
use super::claude_code_tests::{content, replayed};
use super::testing::imported;
use session_traces::coverage::Coverage;
use workloads::trace::Event;

/// A conversation of an agent without a format of its own.
#[derive(Default)]
struct Conversation(Vec<(String, Value, String)>);

impl Conversation {
    fn call(&mut self, tool: &str, args: Value, shown: &str) -> &mut Self {
        self.0.push((tool.to_owned(), args, shown.to_owned()));
        self
    }

    fn openai(&self) -> ImportedSession {
        let messages = (0..).zip(&self.0).flat_map(|(id, (tool, args, shown))| {
            let function = json!({"name": tool, "arguments": args.to_string()});
            let call = json!({"id": format!("c{id}"), "type": "function", "function": function});
            let call = json!({"role": "assistant", "content": null, "tool_calls": [call]});
            [call, json!({"role": "tool", "tool_call_id": format!("c{id}"), "content": shown})]
        });
        imported("messages", &Value::from_iter(messages).to_string())
    }

    fn anthropic(&self) -> ImportedSession {
        let messages = (0..).zip(&self.0).flat_map(|(id, (tool, args, shown))| {
            let call = json!({"type": "tool_use", "id": format!("t{id}"), "name": tool, "input": args});
            let result = json!({"type": "tool_result", "tool_use_id": format!("t{id}"), "content": shown});
            [json!({"role": "assistant", "content": [call]}), json!({"role": "user", "content": [result]})]
        });
        imported("messages", &Value::from_iter(messages).to_string())
    }

    fn openhands(&self) -> ImportedSession {
        let events = (0..).zip(&self.0).flat_map(|(id, (tool, args, shown))| {
            let function = json!({"name": tool, "arguments": args.to_string()});
            let response =
                json!({"id": format!("r{id}"), "choices": [{"message": {"tool_calls": [{"id": "t", "function": function}]}}]});
            let call = json!({"tool_call_id": "t", "function_name": tool, "model_response": response});
            [
                json!({"id": 2 * id, "source": "agent", "action": "edit", "args": {}, "tool_call_metadata": call}),
                json!({"id": 2 * id + 1, "source": "agent", "cause": 2 * id, "observation": "edit", "content": shown,
                    "extras": {"prev_exist": false, "old_content": args["old_str"], "new_content": args["new_str"], "impl_source": "oh_aci"}}),
            ]
        });
        imported("openhands", &json!({"history": Value::from_iter(events)}).to_string())
    }

    fn swe_agent(&self) -> ImportedSession {
        let steps = self.0.iter().map(|(tool, args, shown)| {
            let given = args.as_object().unwrap().iter().filter(|(name, _)| !matches!(name.as_str(), "command" | "path"));
            let given = given.map(|(name, value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                format!(" --{name} '{value}'")
            });
            let given: String = given.collect();
            let (command, path) = (args["command"].as_str().unwrap(), args["path"].as_str().unwrap());
            json!({"action": format!("{tool} {command} {path}{given}"), "observation": shown, "response": "x", "thought": "x",
                "state": {"open_file": "n/a", "working_dir": "/w/p"}})
        });
        let history = json!([{"role": "system", "content": "w"}]);
        let whole = json!({"environment": "e", "trajectory": Value::from_iter(steps), "history": history, "info": {}});
        imported("swe-agent", &whole.to_string())
    }
}

/// What the editor answers: the lines around a change that begins in the line `at`, from 0, and has `count` newlines.
fn edited(text: &str, at: usize, count: usize) -> String {
    let start = at.saturating_sub(4);
    let lines = (start + 1..).zip(text.split('\n').skip(start).take(at + 5 + count - start));
    let lines: String = lines.map(|(number, line)| format!("{number:6}\t{line}\n")).collect();
    let head = "The file /w/p/f has been edited. Here's the result of running `cat -n` on a snippet of /w/p/f:\n";
    format!("{head}{lines}Review the changes and make sure they are as expected.")
}

/// Checks that a session replays all calls, knows the file before each edit, and ends with this text in the file.
fn ends_with(session: &ImportedSession, text: &str) {
    let (trace, script, causes) = replayed(session);
    assert_eq!(causes, [""; 0]);
    assert_eq!(content(&script, "f").as_deref(), Some(text));
    assert!(!trace.events.iter().any(|event| matches!(event, Event::Ext(_))));
    let coverage = Coverage::of(&trace);
    assert_eq!(coverage.edits, coverage.edits_equal);
}

#[test]
fn an_insertion_by_the_number_of_a_line_is_replayed_in_every_format() {
    let editor = |command: &str, mut args: Value| {
        args["command"] = command.into();
        args["path"] = "/w/p/f".into();
        args
    };
    for (insert, after) in [
        (json!({"insert_line": 1, "new_str": "top"}), "a\ntop\nb\n"),
        (json!({"insert_line": 0, "new_str": "x\n"}), "x\n\na\nb\n"),
        (json!({"insert_line": "2", "new_str": "end"}), "a\nb\nend\n"),
    ] {
        let mut session = Conversation::default();
        let tool = "str_replace_editor";
        session.call(tool, editor("create", json!({"file_text": "a\nb\n"})), "File created successfully at: /w/p/f");
        let line = insert["insert_line"].as_u64().unwrap_or(2) as usize;
        let shown = edited(after, line, 0);
        for shown in ["Done.", &shown] {
            session.call(tool, editor("insert", insert.clone()), shown);
            for session in [session.openai(), session.anthropic(), session.openhands(), session.swe_agent()] {
                ends_with(&session, after);
            }
            session.0.pop();
        }
    }
}

#[test]
fn an_edit_whose_result_shows_lines_tells_the_file_before_it() {
    let mut session = Conversation::default();
    let args = json!({"command": "str_replace", "path": "/w/p/f", "old_str": "}", "new_str": "} // end"});
    session.call("str_replace_editor", args, &edited("1\n2\n3\n4\n5\n6 } // end\n7\n8\n9\n10\n", 5, 0));
    let (trace, script, causes) = replayed(&session.openai());
    assert_eq!(causes, [""; 0]);
    let after = content(&script, "f").unwrap();
    assert_eq!(after.lines().skip(1).collect::<Vec<_>>(), ["2", "3", "4", "5", "6 } // end", "7", "8", "9", "10"]);
    assert_eq!(Coverage::of(&trace).edits_equal, 1);
}

#[test]
fn an_edit_that_a_server_only_shows_changes_nothing() {
    let mut session = Conversation::default();
    session.call("write_file", json!({"path": "/w/p/f", "content": "x\n"}), "Successfully wrote to /w/p/f");
    let edit = |dry: bool| json!({"path": "/w/p/f", "edits": [{"oldText": "x", "newText": "y"}], "dryRun": dry});
    let diff = "```diff\nIndex: f\n===\n--- f\toriginal\n+++ f\tmodified\n@@ -1,1 +1,1 @@\n-x\n+y\n```\n\n";
    session.call("edit_file", edit(true), diff);
    ends_with(&session.openai(), "x\n");
    session.call("edit_file", edit(false), diff);
    ends_with(&session.openai(), "y\n");
}

#[test]
fn a_patch_of_opencodes_tool_is_replayed() {
    let mut session = Conversation::default();
    session.call("write", json!({"filePath": "/w/p/f", "content": "q\n"}), "");
    let patch = "*** Begin Patch\n*** Update File: /w/p/f\n@@\n-q\n+r\n*** End Patch";
    session.call("patch", json!({"patchText": patch}), "Success. Updated the following files:\nM f");
    ends_with(&session.openai(), "r\n");
}

fn text_of_lines(count: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let pieces = ["a", "b", "}", " ", "  ", "\n", "\n", "\n", "é", "x = 1"];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), count).prop_map(|pieces| pieces.concat())
}

type Edit = (prop::sample::Index, usize, String, bool, bool);

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec(
        (any::<prop::sample::Index>(), 1..9_usize, text_of_lines(0..6), any::<bool>(), any::<bool>()),
        1..7,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn random_edits_of_the_editor_give_the_bytes_that_it_wrote(file in text_of_lines(1..60), edits in edits()) {
        let mut session = Conversation::default();
        session.call("str_replace_editor", json!({"command": "create", "path": "/w/p/f", "file_text": file}), "Created.");
        let mut text = file;
        for (place, length, new, inserts, is_shown) in edits {
            let (args, after, at) = if inserts {
                let mut lines: Vec<&str> = text.split('\n').collect();
                let at = place.index(lines.len() + 1);
                lines.splice(at..at, new.split('\n'));
                let args = json!({"command": "insert", "path": "/w/p/f", "insert_line": at, "new_str": new});
                (args, lines.join("\n"), at)
            } else {
                let chars: Vec<char> = text.chars().collect();
                let from = place.index(chars.len().max(1)).min(chars.len());
                let old: String = chars[from..chars.len().min(from + length)].iter().collect();
                if old.is_empty() || old == new || text.matches(&old).count() != 1 {
                    continue;
                }
                let at = text.find(&old).map_or(0, |at| text[..at].matches('\n').count());
                let args = json!({"command": "str_replace", "path": "/w/p/f", "old_str": old, "new_str": new});
                (args, text.replacen(&old, &new, 1), at)
            };
            let shown = edited(&after, at, new.matches('\n').count());
            session.call("str_replace_editor", args, if is_shown { &shown } else { "Done." });
            text = after;
        }
        ends_with(&session.openai(), &text);
    }

    #[test]
    fn random_patches_give_the_bytes_that_codex_wrote(file in text_of_lines(1..60), edits in edits()) {
        let mut session = Conversation::default();
        session.call("write_file", json!({"path": "/w/p/f", "content": file}), "Wrote.");
        let mut text = file;
        for (place, length, new, is_at_end, has_anchor) in edits {
            let mut lines: Vec<&str> = text.split('\n').collect();
            lines.pop_if(|last| last.is_empty());
            let first = place.index(lines.len() + 1);
            let last = lines.len().min(first + length);
            let first = if is_at_end { lines.len().saturating_sub(length) } else { first };
            let last = if is_at_end { lines.len() } else { last };
            // The lines around the change are as many as make its place certain.
            let occurs = |run: &[&str]| lines.windows(run.len().max(1)).filter(|lines| *lines == run).count();
            let around = (0..lines.len()).find(|around| {
                let run = &lines[first.saturating_sub(*around)..lines.len().min(last + around)];
                !run.is_empty() && (is_at_end && run.len() >= last - first || occurs(run) == 1)
            });
            let Some(around) = around else {
                continue;
            };
            let (from, to) = (first.saturating_sub(around), lines.len().min(last + around));
            let mut patch = "*** Begin Patch\n*** Update File: /w/p/f\n".to_owned();
            let anchor = has_anchor.then(|| from.checked_sub(1)).flatten().filter(|at| occurs(&lines[*at..=*at]) == 1);
            // An anchor that is an empty line is none.
            patch += &match anchor.map(|at| lines[at]).filter(|line| line.trim() == *line && !line.is_empty()) {
                Some(anchor) => format!("@@ {anchor}\n"),
                None => "@@\n".to_owned(),
            };
            let new: Vec<&str> = new.split('\n').collect();
            let marked = |mark: char, lines: &[&str]| lines.iter().map(|line| format!("{mark}{line}\n")).collect::<String>();
            patch += &[marked(' ', &lines[from..first]), marked('-', &lines[first..last]), marked('+', &new)].concat();
            patch += &marked(' ', &lines[last..to]);
            patch += if is_at_end { "*** End of File\n*** End Patch\n" } else { "*** End Patch\n" };
            lines.splice(first..last, new.iter().copied());
            let mut after = lines.join("\n");
            if lines.last().is_some_and(|last| !last.is_empty()) {
                after.push('\n');
            }
            session.call("apply_patch", json!({"input": patch}), "Success. Updated the following files:\nM f");
            text = after;
        }
        ends_with(&session.openai(), &text);
    }
}
