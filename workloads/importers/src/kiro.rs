//! Importer for Kiro: sessions of Kiro CLI (`~/.kiro/sessions/cli/*.jsonl`, with their metadata in the `.json` beside each of
//! them), conversations as its older versions and Amazon Q
//! keep them (`/save`), and of the editor: logs of executions, and sessions with messages alone.

use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::{arguments, content, milliseconds, token_count};
use super::messages::message;
use super::recorder::Recorder;
use super::records::each_document;
use super::{ImportedSession, Importer, text};
use tokens::BilledUsage;
use workloads::trace::TokenUsage;

/// Kiro.
#[derive(Debug)]
pub struct Kiro;

impl Importer for Kiro {
    fn id(&self) -> &'static str {
        "kiro"
    }

    fn reads(&self) -> &'static str {
        "Kiro CLI sessions (`~/.kiro/sessions/cli/*.jsonl`, `/save`), and sessions and execution logs of the Kiro editor"
    }

    fn lacks(&self) -> Option<&'static str> {
        Some(
            "usage, except in the `.json` beside some sessions of Kiro CLI; sessions of the editor have no tool calls, either",
        )
    }

    fn holds_results(&self, session: &ImportedSession) -> bool {
        session.shows_results() && session.calls().next().is_some()
    }

    fn detects(&self, head: &Head) -> bool {
        let is_session = ["Prompt", "AssistantMessage"].iter().any(|kind| head.is("kind", kind));
        is_session && head.has("data.content")
            || head.has("session_state.conversation_metadata")
            || head.has("conversation_id") && (head.has("history.user") || head.has("history.assistant"))
            || head.has("history.message.role") && (head.has("sessionId") || head.has("title"))
            || head.has("executionId") && (head.has("context.messages.entries") || head.has("chat.role"))
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut recorder = Recorder::new("kiro");
        let damage = each_document(recording, |record| match text(&record, "kind") {
            Some(kind) => line(&mut recorder, kind, &record["data"]),
            None if record["session_state"].is_object() => metadata(&mut recorder, &record),
            None => conversation(&mut recorder, &record),
        })?;
        recorder.unreadable(damage);
        Ok(vec![recorder.finish()])
    }
}

/// The metadata of a session of Kiro CLI: its directory, its model, and the tokens of each turn. In most versions, these are 0, and
/// only credits are stated, which are no dollars.
fn metadata(recorder: &mut Recorder, file: &Value) {
    recorder.identity(text(file, "session_id").unwrap_or_default());
    recorder.directory(text(file, "cwd").unwrap_or_default());
    let state = &file["session_state"];
    let turns = state["conversation_metadata"]["user_turn_metadatas"].as_array();
    let of_session = text(&state["rts_model_state"]["model_info"], "model_id").filter(|model| is_model(model));
    for turn in turns.into_iter().flatten() {
        recorder.time(milliseconds(&turn["end_timestamp"]));
        recorder.model(text(turn, "model").filter(|model| is_model(model)).or(of_session).unwrap_or_default());
        let count = |name: &str| token_count(&turn[name]);
        recorder.unplaced(BilledUsage::Sum(TokenUsage {
            uncached: count("input_token_count"),
            cache_read: count("cache_read_input_token_count"),
            cache_write_5m: count("cache_write_input_token_count"),
            output: count("output_token_count"),
            ..TokenUsage::default()
        }));
    }
    recorder.model(of_session.unwrap_or_default());
}

/// Whether this is the name of a model: Kiro chooses one for each answer otherwise.
fn is_model(name: &str) -> bool {
    name != "auto"
}

/// A line of a session of Kiro CLI.
fn line(recorder: &mut Recorder, kind: &str, data: &Value) {
    recorder.time(milliseconds(&data["meta"]["timestamp"]));
    let blocks = data["content"].as_array().into_iter().flatten();
    match kind {
        "Compaction" => recorder.compact(0),
        "AssistantMessage" => {
            recorder.answer();
            blocks.for_each(|block| answer_block(recorder, block));
            recorder.end_answer();
        }
        "Prompt" | "ToolResults" => {
            for block in blocks {
                let body = &block["data"];
                match text(block, "kind") {
                    Some("toolResult") => {
                        let blocks = body["content"].as_array().into_iter().flatten();
                        let texts = blocks.map(|block| shown(&block["data"]));
                        let shown = texts.collect::<Vec<_>>().join("\n");
                        let failed = text(body, "status").is_some_and(|status| !status.eq_ignore_ascii_case("success"));
                        recorder.result(text(body, "toolUseId").unwrap_or_default(), shown, failed);
                    }
                    _ => recorder.user(body.as_str().unwrap_or_default()),
                }
            }
        }
        "Clear" | "ResetTo" | "CancelledPrompt" | "SystemPrompt" => {}
        other => recorder.unknown(Some(other)),
    }
}

fn answer_block(recorder: &mut Recorder, block: &Value) {
    let body = &block["data"];
    match text(block, "kind") {
        Some("toolUse") => {
            let id = text(body, "toolUseId").unwrap_or_default();
            recorder.call(id, text(body, "name").unwrap_or("unknown"), arguments(&body["input"]), None);
        }
        Some("thinking") => {
            recorder.model(text(body, "modelId").filter(|model| is_model(model)).unwrap_or_default());
            recorder.said("", body.as_str().or_else(|| text(body, "text")).unwrap_or_default());
            recorder.signed(text(body, "signature").unwrap_or_default());
        }
        _ => recorder.said(body.as_str().unwrap_or_default(), ""),
    }
}

/// A conversation of older versions of Kiro CLI, a session of the editor, or the log of an execution in it.
fn conversation(recorder: &mut Recorder, file: &Value) {
    let model = text(&file["model_info"], "model_id").or_else(|| text(file, "selectedModel"));
    let model = model.or_else(|| text(&file["metadata"], "modelId")).or_else(|| text(file, "model"));
    recorder.model(model.unwrap_or_default());
    recorder.directory(text(file, "workspaceDirectory").unwrap_or_default());
    recorder.time(milliseconds(&file["startTime"]));
    for turn in file["history"].as_array().into_iter().flatten() {
        if turn["message"].is_object() {
            message(recorder, &turn["message"]);
            continue;
        }
        let user = &turn["user"];
        recorder.time(milliseconds(&user["timestamp"]));
        let env = &user["env_context"]["env_state"];
        recorder.directory(text(env, "current_working_directory").unwrap_or_default());
        let said = &user["content"];
        recorder.user(text(&said["Prompt"], "prompt").unwrap_or_default());
        for kind in ["ToolUseResults", "CancelledToolUses"] {
            let results = said[kind]["tool_use_results"].as_array().into_iter().flatten();
            for result in results {
                let blocks = result["content"].as_array().into_iter().flatten();
                let texts =
                    blocks.map(|block| block["Text"].as_str().map_or_else(|| shown(&block["Json"]), str::to_owned));
                let shown = texts.collect::<Vec<_>>().join("\n");
                let failed = text(result, "status") != Some("Success");
                recorder.result(text(result, "tool_use_id").unwrap_or_default(), shown, failed);
            }
        }
        answer(recorder, &turn["assistant"]);
    }
    let of_execution = file["context"]["messages"].as_array().or_else(|| file["chat"].as_array());
    of_execution.into_iter().flatten().for_each(|message| execution_message(recorder, message));
}

/// A message of an execution in the editor.
fn execution_message(recorder: &mut Recorder, message: &Value) {
    let is_answer = text(message, "role") == Some("bot");
    if is_answer {
        recorder.answer();
    }
    let said = |recorder: &mut Recorder, said: &str| match text(message, "role") {
        Some("bot") => recorder.said(said, ""),
        Some("human") => recorder.user(said),
        _ => {}
    };
    said(recorder, text(message, "content").unwrap_or_default());
    for entry in message["entries"].as_array().into_iter().flatten() {
        let id = text(entry, "id").unwrap_or_default();
        match text(entry, "type") {
            Some("toolUse") => {
                recorder.call(id, text(entry, "name").unwrap_or("unknown"), arguments(&entry["args"]), None);
            }
            Some("toolUseResponse") => {
                let failed = entry["success"].as_bool() == Some(false);
                recorder.result(id, content(&entry["message"]), failed);
            }
            _ => said(recorder, text(entry, "text").unwrap_or_default()),
        }
    }
    if is_answer {
        recorder.end_answer();
    }
}

fn answer(recorder: &mut Recorder, assistant: &Value) {
    for kind in ["ToolUse", "Response"] {
        let said = &assistant[kind];
        if !said.is_object() {
            continue;
        }
        recorder.answer();
        recorder.said(text(said, "content").unwrap_or_default(), "");
        for call in said["tool_uses"].as_array().into_iter().flatten() {
            let name = text(call, "orig_name").or_else(|| text(call, "name")).unwrap_or("unknown");
            let id = text(call, "id").unwrap_or_default();
            recorder.call(id, name, arguments(&call["args"]), None);
        }
        recorder.end_answer();
    }
}

/// What a block of a result shows: a text, or the output of a command.
fn shown(block: &Value) -> String {
    text(block, "stdout").map_or_else(|| content(block), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{calls, coverage, imported, unplaced};
    use serde_json::json;

    #[test]
    fn a_conversation_gives_its_calls_and_an_editors_session_its_messages() {
        let file = json!({"conversation_id": "c", "history": [
            {"user": {"content": {"Prompt": {"prompt": "Run it."}}, "env_context": {"env_state": {"current_working_directory": "/w/p"}}},
             "assistant": {"ToolUse": {"content": "I run it.", "tool_uses": [{"id": "t1", "name": "execute_bash", "args": {"command": "ls"}}]}}},
            {"user": {"content": {"ToolUseResults": {"tool_use_results": [{"tool_use_id": "t1", "status": "Success",
                "content": [{"Json": {"exit_status": "0", "stdout": "a\n", "stderr": ""}}]}]}}},
             "assistant": {"Response": {"content": "Done."}}},
        ]});
        assert_eq!(calls(&imported("kiro", &file.to_string())), ["execute_bash exec: ls in /w/p -> a\n"]);
        let editor = json!({"sessionId": "s", "title": "t", "history": [
            {"message": {"role": "user", "content": [{"type": "text", "text": "Hello."}]}},
            {"message": {"role": "assistant", "content": "Hello."}},
        ]});
        let session = imported("kiro", &editor.to_string());
        assert_eq!((session.events.len(), calls(&session).len()), (2, 0));
        assert!(!Kiro.holds_results(&session));
    }

    #[test]
    fn a_session_of_kiro_cli_gives_the_calls_of_its_lines() {
        let line = |kind: &str, content: Value| {
            json!({"version": "v1", "kind": kind, "data": {"message_id": "m", "content": content, "meta": {"timestamp": 1_790_000_000}}}).to_string()
        };
        let call = |id: &str, name: &str, input: Value| json!({"kind": "toolUse", "data": {"toolUseId": id, "name": name, "input": input}});
        let result = |id: &str, data: Value| {
            let kind = if data.is_string() { "text" } else { "json" };
            json!({"kind": "toolResult", "data": {"toolUseId": id, "content": [{"kind": kind, "data": data}], "status": "success"}})
        };
        let lines = [
            line("Prompt", json!([{"kind": "text", "data": "Look."}])),
            line(
                "AssistantMessage",
                json!([
                    {"kind": "thinking", "data": {"text": "", "modelId": "claude-opus-4.6"}},
                    {"kind": "text", "data": "I look."},
                    call("t1", "read", json!({"operations": [{"mode": "Line", "path": "/w/p/a.txt"}]})),
                    call("t2", "shell", json!({"command": "cat b.txt"})),
                    call("t3", "read", json!({"operations": [{"mode": "Line", "path": "/w/p/a.txt", "start_line": 2, "end_line": 2}]})),
                    call("t4", "write", json!({"command": "strReplace", "path": "/w/p/a.txt", "oldStr": "one", "newStr": "1"})),
                    call("t5", "write", json!({"command": "create", "path": "/w/p/c.txt", "content": "new\n"})),
                call("t6", "fs_write", json!({"command": "append", "path": "/w/p/c.txt", "new_str": "more"})),
                call("t7", "read", json!({"operations": [{"mode": "Line", "path": "/w/p/a.txt"}, {"mode": "Line", "path": "/w/p/c.txt"}]})),
                ]),
            ),
            line(
                "ToolResults",
                json!([
                    result("t1", json!("one\ntwo\n")),
                    result("t2", json!({"exit_status": "exit status: 0", "stdout": "b\n", "stderr": ""})),
                    result("t3", json!("two")),
                    result("t4", json!("Replaced.")),
                    result("t5", json!("Created.")),
                    result("t6", json!("Appended.")),
                    result("t7", json!("1\ntwo\nnew\nmore\n")),
                ]),
            ),
            line("Compaction", json!(null)),
        ];
        let session = imported("kiro", &lines.join("\n"));
        assert_eq!(
            calls(&session),
            [
                "read read a.txt: whole one\ntwo\n",
                "shell exec: cat b.txt in /w/p -> b\n",
                "read read a.txt: two of 1 lines",
                "write edit a.txt: 1 replacements",
                "write write c.txt: written new\n",
                "fs_write exec: cat >> /w/p/c.txt <<'END_OF_TEXT'",
                "read exec: cat -- /w/p/a.txt /w/p/c.txt in /w/p -> 1\ntwo\nnew\nmore\n",
            ]
        );
        assert_eq!(session.model, "claude-opus-4.6");
        let coverage = coverage(&session);
        assert_eq!((coverage.replayed, coverage.causes.len()), (7, 0));
    }

    #[test]
    fn the_log_of_an_execution_gives_its_calls() {
        let file = json!({"executionId": "e", "startTime": 1_790_000_000_000_u64, "context": {"messages": [
            {"role": "human", "entries": [{"type": "text", "text": "Look."}]},
            {"role": "bot", "entries": [{"type": "text", "text": "I look."}, {"type": "toolUse", "id": "t1", "name": "fsWrite", "args": {"path": "a.txt", "text": "one\n"}}]},
            {"role": "tool", "entries": [{"type": "toolUseResponse", "id": "t1", "name": "fsWrite", "success": true, "message": "Created the a.txt file."}]},
            {"role": "bot", "entries": [{"type": "toolUse", "id": "t2", "name": "strReplace", "args": {"path": "a.txt", "oldStr": "one", "newStr": "1"}}]},
            {"role": "tool", "entries": [{"type": "toolUseResponse", "id": "t2", "success": true, "message": "Replaced text in a.txt"}]},
            {"role": "bot", "entries": [{"type": "toolUse", "id": "t3", "name": "deleteFile", "args": {"targetFile": "a.txt"}}]},
            {"role": "tool", "entries": [{"type": "toolUseResponse", "id": "t3", "success": true, "message": "Deleted the file"}]},
        ]}});
        let session = imported("kiro", &file.to_string());
        assert_eq!(
            calls(&session),
            [
                "fsWrite write a.txt: written one\n",
                "strReplace edit a.txt: 1 replacements",
                "deleteFile exec: rm -- a.txt -> Deleted the file"
            ]
        );
        assert_eq!(coverage(&session).replayed, 3);
        assert!(Kiro.holds_results(&session));
        let chat = json!({"executionId": "e", "chat": [{"role": "human", "content": "Hello."}, {"role": "bot", "content": "Hello."}], "metadata": {"modelId": "claude-opus-4-6"}});
        let session = imported("kiro", &chat.to_string());
        assert_eq!((session.events.len(), Kiro.holds_results(&session)), (2, false));
    }

    #[test]
    fn the_metadata_of_a_session_give_its_directory_and_the_usage_of_its_turns() {
        let line = |kind: &str, content: Value| json!({"kind": kind, "data": {"content": content}}).to_string();
        let call =
            json!({"kind": "toolUse", "data": {"toolUseId": "t1", "name": "shell", "input": {"command": "cat b.txt"}}});
        let result = json!({"kind": "toolResult", "data": {"toolUseId": "t1", "content": [{"kind": "text", "data": "b\n"}], "status": "success"}});
        let metadata = json!({"session_id": "s", "cwd": "/w/p", "session_state": {
            "rts_model_state": {"model_info": {"model_id": "claude-opus-4.6"}},
            "conversation_metadata": {"user_turn_metadatas": [
                {"model": "auto", "input_token_count": 10, "output_token_count": 5, "cache_read_input_token_count": 70, "cache_write_input_token_count": 2},
                {"model": "claude-haiku-4.5", "input_token_count": 1, "output_token_count": 1},
                {"metering_usage": [{"value": 0.3, "unit": "credit"}], "input_token_count": 0, "output_token_count": 0},
            ]},
        }});
        let lines = [
            line("Prompt", json!([{"kind": "text", "data": "Look."}])),
            line("AssistantMessage", json!([call])),
            line("ToolResults", json!([result])),
        ];
        let session = imported("kiro", &format!("{}\n{metadata}\n", lines.join("\n")));
        assert_eq!(calls(&session), ["shell exec: cat b.txt in /w/p -> b\n"]);
        assert_eq!((session.identity.as_str(), session.model.as_str()), ("s", "claude-opus-4.6"));
        let sum = |used: &str| BilledUsage::Sum(used.to_owned());
        let expected = [sum("claude-opus-4.6 10+70+2 5"), sum("claude-haiku-4.5 1+0 1")];
        assert_eq!(unplaced(&session), expected);
        assert_eq!(unplaced(&imported("kiro", &metadata.to_string())), expected);
    }
}
