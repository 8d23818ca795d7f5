//! Importer for Kiro: conversations of Kiro CLI (formerly Amazon Q) as `/save` writes them, and sessions of the editor, which
//! hold messages without tool calls.

use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::{arguments, content, document};
use super::messages::message;
use super::recorder::Recorder;
use super::{ImportedSession, Importer, text};

/// Kiro.
#[derive(Debug)]
pub struct Kiro;

impl Importer for Kiro {
    fn id(&self) -> &'static str {
        "kiro"
    }

    fn reads(&self) -> &'static str {
        "Kiro CLI conversations (`/save`), and sessions of the Kiro editor"
    }

    fn lacks(&self) -> Option<&'static str> {
        Some("usage; sessions of the editor have no tool calls, either")
    }

    fn detects(&self, head: &Head) -> bool {
        head.has("conversation_id") && (head.has("history.user") || head.has("history.assistant"))
            || head.has("history.message.role") && (head.has("sessionId") || head.has("title"))
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let (file, damage) = document(recording)?;
        let mut recorder = Recorder::new("kiro");
        let model = text(&file["model_info"], "model_id").or_else(|| text(&file, "selectedModel"));
        recorder.model(model.or_else(|| text(&file, "model")).unwrap_or_default());
        recorder.directory(text(&file, "workspaceDirectory").unwrap_or_default());
        for turn in file["history"].as_array().into_iter().flatten() {
            if turn["message"].is_object() {
                message(&mut recorder, &turn["message"]);
                continue;
            }
            let user = &turn["user"];
            let env = &user["env_context"]["env_state"];
            recorder.directory(text(env, "current_working_directory").unwrap_or_default());
            let said = &user["content"];
            recorder.user(text(&said["Prompt"], "prompt").unwrap_or_default());
            for kind in ["ToolUseResults", "CancelledToolUses"] {
                let results = said[kind]["tool_use_results"].as_array().into_iter().flatten();
                for result in results {
                    let shown = shown(&result["content"]);
                    let failed = text(result, "status") != Some("Success");
                    recorder.result(text(result, "tool_use_id").unwrap_or_default(), shown, failed);
                }
            }
            answer(&mut recorder, &turn["assistant"]);
        }
        recorder.unreadable(damage);
        Ok(vec![recorder.finish()])
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

fn shown(blocks: &Value) -> String {
    let blocks = blocks.as_array().into_iter().flatten();
    let texts = blocks.map(|block| match (&block["Text"], &block["Json"]) {
        (Value::String(text), _) => text.clone(),
        (_, json) => text(json, "stdout").map_or_else(|| content(json), str::to_owned),
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use crate::testing::{calls, imported};
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
    }
}
