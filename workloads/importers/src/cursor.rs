//! Importer for Cursor: transcripts of its agent (`agent-transcripts/*.jsonl`), which hold calls without results, and the
//! events of `cursor-agent --output-format stream-json`, which hold both.

use std::io::BufRead;

use serde_json::{Value, json};

use super::detect::Head;
use super::json::{content, milliseconds};
use super::messages::{message, usage};
use super::recorder::{Answer, Recorder};
use super::records::each_record;
use super::{ImportedSession, Importer, text};
use tokens::BilledUsage;

/// Cursor.
#[derive(Debug)]
pub struct Cursor;

impl Importer for Cursor {
    fn id(&self) -> &'static str {
        "cursor"
    }

    fn reads(&self) -> &'static str {
        "Cursor transcripts (`agent-transcripts/**/*.jsonl`) and `cursor-agent --output-format stream-json`"
    }

    fn lacks(&self) -> Option<&'static str> {
        Some("usage; transcripts have no results of tools, either")
    }

    fn streams(&self) -> bool {
        true
    }

    fn detects(&self, head: &Head) -> bool {
        let is_stream = head.is("type", "tool_call") && head.has("call_id") && head.has("tool_call");
        // Other agents' messages have their role inside.
        let is_transcript = head.has("role") && head.has("message.content") && !head.has("message.role");
        is_stream || is_transcript
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut recorder = Recorder::new("cursor");
        let lost = each_record(recording, |record| line(&mut recorder, &record))?;
        recorder.unreadable(lost);
        Ok(vec![recorder.finish()])
    }
}

fn line(recorder: &mut Recorder, record: &Value) {
    recorder.time(milliseconds(&record["timestamp_ms"]));
    recorder.directory(text(record, "cwd").unwrap_or_default());
    recorder.model(text(record, "model").unwrap_or_default());
    match (text(record, "type"), text(record, "role")) {
        (Some("tool_call"), _) => call(recorder, record),
        // The usage of the whole run.
        (Some("result"), _) => recorder.unplaced(BilledUsage::Sum(usage(&record["usage"]))),
        (Some("assistant"), _) => recorder.said(&content(&record["message"]["content"]), ""),
        (Some("thinking"), _) => recorder.said("", text(record, "text").unwrap_or_default()),
        (Some("user"), _) => message(recorder, &record["message"]),
        (None, Some(role)) => {
            let body = json!({ "role": role, "content": record["message"]["content"] });
            message(recorder, &body);
        }
        _ => {}
    }
}

fn call(recorder: &mut Recorder, record: &Value) {
    let id = text(record, "call_id").unwrap_or_default();
    let Some((name, call)) = record["tool_call"].as_object().and_then(|call| call.iter().next()) else {
        return;
    };
    // `readToolCall` is the tool `read`.
    let name = name.strip_suffix("ToolCall").unwrap_or(name);
    recorder.call(id, name, call["args"].clone(), text(&call["args"], "workingDirectory"));
    if text(record, "subtype") != Some("completed") {
        return;
    }
    let success = &call["result"]["success"];
    let answer = if success.is_object() {
        let shown = text(success, "content").or_else(|| text(success, "stdout"));
        Answer {
            shown: shown.map_or_else(|| content(success), str::to_owned),
            failed: success["exitCode"].as_i64().is_some_and(|code| code != 0),
            before: text(success, "beforeFullFileContent").map(str::to_owned),
            ..Answer::default()
        }
    } else {
        Answer { shown: content(&call["result"]), failed: true, ..Answer::default() }
    };
    recorder.answered(id, answer);
}

#[cfg(test)]
mod tests {
    use crate::testing::{calls, imported, unplaced, usages};
    use tokens::BilledUsage;

    #[test]
    fn a_stream_gives_calls_with_results_and_a_transcript_calls_without() {
        let stream = imported(
            "cursor",
            r#"{"type":"system","subtype":"init","apiKeySource":"login","cwd":"/w/p","session_id":"s","model":"Auto"}
{"type":"user","message":{"role":"user","content":[{"type":"text","text":"Look."}]},"session_id":"s"}
{"type":"tool_call","subtype":"started","call_id":"c1","tool_call":{"readToolCall":{"args":{"path":"/w/p/a.txt"}}},"session_id":"s"}
{"type":"tool_call","subtype":"completed","call_id":"c1","tool_call":{"readToolCall":{"args":{"path":"/w/p/a.txt"},"result":{"success":{"content":"one\n","totalLines":1}}}},"session_id":"s"}
{"type":"tool_call","subtype":"completed","call_id":"c2","tool_call":{"shellToolCall":{"args":{"command":"ls"},"result":{"success":{"stdout":"a.txt\n","exitCode":0}}}},"session_id":"s"}
{"type":"result","subtype":"success","result":"Done.","session_id":"s","usage":{"inputTokens":1000,"outputTokens":7,"cacheReadTokens":900,"cacheWriteTokens":5}}
"#,
        );
        assert!(usages(&stream).is_empty());
        assert_eq!(unplaced(&stream), [BilledUsage::Sum("Auto 1000+900+5 7".to_owned())]);
        assert_eq!(calls(&stream), ["read read a.txt: whole one\n", "shell exec: ls in /w/p -> a.txt\n"]);
        let transcript = imported(
            "cursor",
            r#"{"role":"user","message":{"content":[{"type":"text","text":"Look."}]}}
{"role":"assistant","message":{"content":[{"type":"text","text":"I look."},{"type":"tool_use","name":"Read","input":{"path":"/w/p/a.txt"}}]}}
"#,
        );
        assert_eq!(calls(&transcript), ["Read read a.txt"]);
    }
}
