//! Importer for OpenCode: a session as `opencode export` writes it, and the events of `opencode run --format json`.
//! A step of the agent is one call of the model; it ends with its usage.

use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::{content, milliseconds, token_count};
use super::recorder::{Answer, Recorder};
use super::records::each_document;
use super::{ImportedSession, Importer, text};
use workloads::trace::TokenUsage;

/// OpenCode.
#[derive(Debug)]
pub struct OpenCode;

impl Importer for OpenCode {
    fn id(&self) -> &'static str {
        "opencode"
    }

    fn reads(&self) -> &'static str {
        "OpenCode sessions (`opencode export SESSION`, `opencode run --format json`)"
    }

    fn detects(&self, head: &Head) -> bool {
        head.has("messages.parts.type") && head.has("messages.info.role")
            || head.has("sessionID") && head.has("part.type")
            || head.has("parts.type") && head.has("info.role")
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut recorder = Recorder::new("opencode");
        let lost = each_document(recording, |record| match &record {
            Value::Array(messages) => {
                messages.iter().for_each(|one| message(&mut recorder, one));
            }
            file if file["messages"].is_array() => {
                let info = &file["info"];
                if let Some(version) = text(info, "version") {
                    recorder.agent(format!("opencode {version}"));
                }
                recorder.identity(text(info, "id").unwrap_or_default());
                recorder.directory(text(info, "directory").unwrap_or_default());
                let messages = file["messages"].as_array().into_iter().flatten();
                messages.for_each(|one| message(&mut recorder, one));
            }
            event => {
                recorder.identity(text(event, "sessionID").unwrap_or_default());
                recorder.time(milliseconds(&event["timestamp"]));
                part(&mut recorder, &event["part"], false);
            }
        })?;
        recorder.unreadable(lost);
        Ok(vec![recorder.finish()])
    }
}

fn message(recorder: &mut Recorder, message: &Value) {
    let info = &message["info"];
    recorder.time(milliseconds(&info["time"]["created"]));
    for name in ["root", "cwd"] {
        recorder.directory(text(&info["path"], name).unwrap_or_default());
    }
    let parts: Vec<&Value> = message["parts"].as_array().into_iter().flatten().collect();
    if text(info, "role") == Some("user") {
        for part in parts {
            recorder.user(text(part, "text").unwrap_or_default());
        }
        return;
    }
    if info["summary"].as_bool() == Some(true) {
        recorder.compact(0);
    }
    recorder.model(text(info, "modelID").unwrap_or_default());
    let has_steps = parts.iter().any(|part| text(part, "type") == Some("step-finish"));
    recorder.answer();
    let mut is_first = true;
    for each in parts {
        // The first step is the answer that has just begun.
        if text(each, "type") == Some("step-start") && !std::mem::take(&mut is_first) {
            recorder.answer();
        }
        part(recorder, each, true);
    }
    if !has_steps {
        recorder.usage(usage(&info["tokens"]));
    }
    // The cost of the message is the sum of its steps.
    recorder.cost(&info["cost"]);
    recorder.end_answer();
}

fn part(recorder: &mut Recorder, part: &Value, is_export: bool) {
    match text(part, "type") {
        Some("text") => recorder.said(text(part, "text").unwrap_or_default(), ""),
        Some("reasoning") => recorder.said("", text(part, "text").unwrap_or_default()),
        Some("step-start") if !is_export => recorder.answer(),
        Some("step-finish") => {
            recorder.model(text(part, "modelID").unwrap_or_default());
            recorder.usage(usage(&part["tokens"]));
            if !is_export {
                recorder.cost(&part["cost"]);
            }
            recorder.end_answer();
        }
        Some("compaction") => recorder.compact(0),
        Some("tool") => tool(recorder, part, is_export),
        _ => {}
    }
}

fn tool(recorder: &mut Recorder, part: &Value, is_export: bool) {
    let state = &part["state"];
    let status = text(state, "status");
    let has_ended = matches!(status, Some("completed" | "error"));
    // Events report a call again when it ends; an export has it once.
    if !has_ended && !is_export {
        return;
    }
    let id = text(part, "callID").or_else(|| text(part, "id")).unwrap_or_default();
    let input = state["input"].clone();
    let dir = text(&input, "workdir").map(str::to_owned);
    recorder.time(milliseconds(&state["time"]["start"]));
    let id = recorder.new_call(id, text(part, "tool").unwrap_or("unknown"), input, dir.as_deref());
    if !has_ended {
        return;
    }
    let metadata = &state["metadata"];
    let code = metadata["exit"].as_i64().unwrap_or(0);
    let patched = only_file(metadata);
    let edit = patched.unwrap_or(&metadata["filediff"]);
    let before = text(edit, "before").filter(|_| text(edit, "type") != Some("add"));
    let shown = match status {
        Some("error") => content(&state["error"]),
        _ => content(&state["output"]),
    };
    recorder.answered_at_end(
        &id,
        Answer {
            printed: text(metadata, "output").map(str::to_owned).filter(|_| metadata["exit"].is_i64()),
            shown,
            failed: status == Some("error") || code != 0,
            before: before.map(str::to_owned),
            after: text(edit, "after").map(str::to_owned),
            patched: patched.and_then(|file| text(file, "filePath")).map(str::to_owned),
            ..Answer::default()
        },
    );
}

/// The file that a patch changed in its place or added, if it is one and its contents are stated.
fn only_file(metadata: &Value) -> Option<&Value> {
    let [file] = &metadata["files"].as_array()?[..] else {
        return None;
    };
    let has = |field: &str| file[field].is_string();
    let is_update = text(file, "type") == Some("update") && text(file, "movePath").is_none() && has("before");
    let is_stated = is_update || text(file, "type") == Some("add");
    (is_stated && has("filePath") && has("after")).then_some(file)
}

fn usage(tokens: &Value) -> TokenUsage {
    let count = token_count;
    let reasoning = count(&tokens["reasoning"]);
    let output = count(&tokens["output"]);
    let usage = TokenUsage {
        uncached: count(&tokens["input"]),
        cache_read: count(&tokens["cache"]["read"]),
        cache_write_5m: count(&tokens["cache"]["write"]),
        output,
        reasoning,
        ..TokenUsage::default()
    };
    // Whether the output holds the reasoning depends on version and provider; the provider's total says so.
    let known = usage.uncached + usage.cache_read + usage.cache_write_5m + output;
    let is_inside = count(&tokens["total"]) == known && output >= reasoning;
    TokenUsage { output: if is_inside { output } else { output + reasoning }, ..usage }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordedEvent;
    use crate::testing::{calls, imported, stated, usages};
    use serde_json::json;
    use workloads::trace::ContentKnowledge;

    #[test]
    fn a_part_is_at_the_numbers_before_its_lines() {
        let shown = "<path>/w/p/a</path>\n<type>file</type>\n<content>3: c\n4: d\n\n(Showing lines 3-4 of 9. Use offset=5 to continue.)\n</content>";
        // An offset of a version that counts from 0.
        let read = json!({"type": "tool", "callID": "c", "tool": "read", "state": {"status": "completed", "input": {"filePath": "/w/p/a", "offset": 2, "limit": 2}, "output": shown}});
        let export = json!({"info": {"id": "s", "directory": "/w/p"}, "messages": [
            {"info": {"role": "user"}, "parts": [{"type": "text", "text": "Go."}]},
            {"info": {"role": "assistant"}, "parts": [read]}]});
        let session = imported("opencode", &export.to_string());
        assert_eq!(session.calls().map(|call| call.range).collect::<Vec<_>>(), [Some((3, 2))]);
    }

    #[test]
    fn a_call_that_was_running_at_the_export_counts() {
        let call = |id: &str, tool: &str| json!({"type": "tool", "callID": id, "tool": tool, "state": {"status": "running", "input": {"command": "make"}}});
        let export = json!({"info": {"id": "s", "directory": "/w/p"}, "messages": [
            {"info": {"role": "user"}, "parts": [{"type": "text", "text": "Go."}]},
            {"info": {"role": "assistant"}, "parts": [call("c", "bash"), call("d", "webfetch")]}]});
        let session = imported("opencode", &export.to_string());
        let causes = ["a call of the network", "a call without a result"].map(|cause| (cause.to_owned(), 1));
        assert_eq!(crate::testing::coverage(&session).causes, causes.into());
    }

    #[test]
    fn a_read_of_a_directory_lists_it() {
        let tool = |tool: &str, input: Value, output: &str| json!({"type": "tool", "callID": format!("{tool}{}", output.len()), "tool": tool, "state": {"status": "completed", "input": input, "output": output}});
        let entries =
            "<path>/w/p/src</path>\n<type>directory</type>\n<entries>\nMakefile\nlib/\n\n(2 entries)\n</entries>";
        let file = "<path>/w/p/src/lib/a.txt</path>\n<type>file</type>\n<content>1: one\n2: two\n\n(End of file - total 2 lines)\n</content>";
        let found = "Found 1 matches\n/w/p/src/lib/b.txt:\n  Line 3: two";
        let export = json!({"info": {"id": "s", "directory": "/w/p"}, "messages": [
            {"info": {"role": "user"}, "parts": [{"type": "text", "text": "Go."}]},
            {"info": {"role": "assistant"}, "parts": [
                tool("read", json!({"filePath": "/w/p/src"}), entries),
                tool("read", json!({"filePath": "/w/p/src/lib/a.txt"}), file),
                tool("grep", json!({"path": "/w/p/src", "pattern": "two"}), found)]}]});
        let session = imported("opencode", &export.to_string());
        let coverage = crate::testing::coverage(&session);
        assert_eq!((coverage.recorded, coverage.replayed), (3, 3), "{:?}", coverage.causes);
        let (trace, _) = crate::testing::traced(&session);
        let files: Vec<&str> = trace.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(files, ["src/Makefile", "src/lib/a.txt", "src/lib/b.txt"]);
        let read = trace.files[1].content.clone();
        assert_eq!((trace.files[1].known, read.bytes, read.lines), (ContentKnowledge::Full, 8, 2));
    }

    #[test]
    fn a_patch_with_stated_contents_needs_no_lines_that_are_known() {
        let patch = "*** Begin Patch\n*** Update File: /w/p/a.txt\n@@\n-two\n+2\n*** End Patch";
        let changed = json!({"files": [{"filePath": "/w/p/a.txt", "type": "update", "before": "one\ntwo\n", "after": "one\n2\n"}]});
        let call = json!({"type": "tool", "callID": "c", "tool": "apply_patch", "state": {"status": "completed", "input": {"patchText": patch}, "output": "Success. Updated the following files:\nM a.txt", "metadata": changed}});
        let cat = json!({"type": "tool", "callID": "d", "tool": "bash", "state": {"status": "completed", "input": {"command": "cat a.txt"}, "output": "one\n2\n", "metadata": {"output": "one\n2\n", "exit": 0}}});
        let export = json!({"info": {"id": "s", "directory": "/w/p"}, "messages": [
            {"info": {"role": "user"}, "parts": [{"type": "text", "text": "Go."}]},
            {"info": {"role": "assistant"}, "parts": [call, cat]}]});
        let session = imported("opencode", &export.to_string());
        let coverage = crate::testing::coverage(&session);
        assert_eq!((coverage.replayed, coverage.read_bytes, coverage.read_bytes_equal), (2, 6, 6));
    }

    #[test]
    fn a_tool_named_bash_runs_powershell_on_windows() {
        let shell = |id: &str, command: &str, output: &str| json!({"type": "tool", "callID": id, "tool": "bash", "state": {"status": "completed", "input": {"command": command}, "output": output, "metadata": {"output": output, "exit": 0}}});
        let export = json!({"info": {"id": "s", "directory": r"C:\w\p"}, "messages": [
            {"info": {"role": "user"}, "parts": [{"type": "text", "text": "Go."}]},
            {"info": {"role": "assistant"}, "parts": [
                shell("c", "Get-Content -LiteralPath \"C:\\w\\p\\a.txt\"", "one\r\n"), shell("d", "cat /c/w/p/b.txt", "two\n")]}]});
        let coverage = crate::testing::coverage(&imported("opencode", &export.to_string()));
        assert_eq!(coverage.replayed, 2, "{:?}", coverage.causes);
    }

    #[test]
    fn a_file_that_a_patch_adds_has_the_stated_content() {
        // OpenCode writes an empty last line as the end of the line before.
        let patch = "*** Begin Patch\n*** Add File: /w/p/a.txt\n+one\n+\n*** End Patch";
        let added = json!({"files": [{"filePath": "/w/p/a.txt", "type": "add", "before": "", "after": "one\n"}]});
        let call = json!({"type": "tool", "callID": "c", "tool": "apply_patch", "state": {"status": "completed", "input": {"patchText": patch}, "output": "Success. Updated the following files:\nA a.txt", "metadata": added}});
        let export = json!({"info": {"id": "s", "directory": "/w/p"}, "messages": [
            {"info": {"role": "user"}, "parts": [{"type": "text", "text": "Go."}]},
            {"info": {"role": "assistant"}, "parts": [call]}]});
        let session = imported("opencode", &export.to_string());
        assert_eq!(calls(&session), ["apply_patch write a.txt: written one\n"]);
        assert_eq!(crate::testing::coverage(&session).replayed, 1);
    }

    #[test]
    fn an_export_gives_its_steps_with_usage_and_calls() {
        let tool = |id: &str, tool: &str, input: Value, output: &str, metadata: Value| json!({"type": "tool", "callID": id, "tool": tool, "state": {"status": "completed", "input": input, "output": output, "metadata": metadata}});
        let read = "<file>\n00001| one\n00002| two\n\n(End of file - total 2 lines)\n</file>";
        let diff = json!({"filediff": {"before": "one\ntwo\n"}});
        let file = json!({"info": {"id": "s", "version": "1.1.0", "directory": "/w/p"}, "messages": [
            {"info": {"role": "user"}, "parts": [{"type": "text", "text": "Change it."}]},
            {"info": {"role": "assistant", "modelID": "claude-sonnet-4-6", "providerID": "anthropic", "cost": 0.75}, "parts": [
                {"type": "step-start"}, {"type": "text", "text": "I look."},
                tool("c1", "read", json!({"filePath": "/w/p/a.txt"}), read, json!({})),
                tool("c1", "read", json!({"filePath": "/w/p/a.txt"}), read, json!({})),
                {"type": "step-finish", "cost": 0.5, "tokens": {"input": 10, "output": 5, "reasoning": 2, "cache": {"read": 90, "write": 4}}},
                {"type": "step-start"},
                tool("c2", "edit", json!({"filePath": "/w/p/a.txt", "oldString": "one", "newString": "1"}), "ok", diff),
                tool("c3", "bash", json!({"command": "ls", "workdir": "/w/p"}), "a.txt\n", json!({"output": "a.txt\n", "exit": 0})),
                {"type": "step-finish", "cost": 0.25, "tokens": {"total": 108, "input": 1, "output": 3, "reasoning": 2, "cache": {"read": 104, "write": 0}}},
            ]},
        ]});
        let session = imported("opencode", &file.to_string());
        assert_eq!(session.agent, "opencode 1.1.0");
        assert_eq!(
            calls(&session),
            [
                "read read a.txt: whole one\ntwo\n",
                "read read a.txt: whole one\ntwo\n",
                "edit edit a.txt: 1 replacements of a known file",
                "bash exec: ls in /w/p -> a.txt\n",
            ]
        );
        assert_eq!(usages(&session), ["claude-sonnet-4-6 10+90+4 7", "claude-sonnet-4-6 1+104 3"]);
        assert_eq!(stated(&session), Some(0.75), "the cost of the message is that of its steps");
        let answers = session.events.iter().filter(|event| matches!(event, RecordedEvent::Api { .. }));
        assert_eq!(answers.count(), 2, "a step is one call of the model");
        let events: Vec<Value> = ["step_start", "tool_use", "step_finish"]
            .into_iter()
            .zip([
                json!({"type": "step-start"}),
                tool("c1", "bash", json!({"command": "ls"}), "a\n", json!({})),
                json!({"type": "step-finish", "cost": 0.125, "tokens": {"input": 3, "output": 1, "cache": {"read": 0, "write": 0}}}),
            ])
            .map(|(kind, part)| json!({"type": kind, "sessionID": "s", "part": part}))
            .collect();
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        let session = imported("opencode", &lines);
        assert_eq!(
            (calls(&session), usages(&session)),
            (vec!["bash exec: ls -> a\n".to_owned()], vec![" 3+0 1".to_owned()])
        );
        assert_eq!(stated(&session), Some(0.125));
    }
}
