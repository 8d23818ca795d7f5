//! Importer for Cursor: transcripts of its agent (`agent-transcripts/*.jsonl`, in older versions `.txt`), which hold calls
//! without results, and the events of `cursor-agent --output-format stream-json`, which hold both.

use std::io::BufRead;

use serde_json::{Map, Value, json};

use super::detect::Head;
use super::json::{content, milliseconds, whole};
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
        "Cursor transcripts (`agent-transcripts/**/*.jsonl`, `*.txt`) and `cursor-agent --output-format stream-json`"
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
        let mut lines = head.text.lines().map(str::trim_end).skip_while(|line| line.is_empty());
        let is_text = !head.is_lines && !head.is_document && lines.next() == Some("user:");
        is_stream || is_transcript || is_text && lines.any(|line| ANSWERS.contains(&line))
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut recorder = Recorder::new("cursor");
        let start = recording.fill_buf().map_err(|error| format!("cannot be read: {error}"))?;
        if start.trim_ascii_start().starts_with(b"user:") {
            text_transcript(&mut recorder, &whole(recording)?);
            return Ok(vec![recorder.finish()]);
        }
        let lost = each_record(recording, |record| line(&mut recorder, &record))?;
        recorder.unreadable(lost);
        Ok(vec![recorder.finish()])
    }
}

/// Lines that begin an answer in a transcript that is plain text.
const ANSWERS: [&str; 2] = ["assistant:", "A:"];

/// A part of a transcript that is plain text.
enum Part {
    User,
    Answer,
    Thinking,
    /// A call of this tool, with its arguments.
    Call(String, Map<String, Value>),
    /// The end of a call, which may show a result.
    Result,
}

/// A transcript of older versions: `user:`, `assistant:`, `[Thinking]`, `[Tool call] NAME` with an argument on each line, and
/// `[Tool result] NAME`.
fn text_transcript(recorder: &mut Recorder, transcript: &str) {
    let (mut part, mut lines, mut open) = (Part::User, String::new(), None);
    for line in transcript.lines() {
        let next = match line {
            "user:" => Some((Part::User, "")),
            line if ANSWERS.contains(&line) => Some((Part::Answer, "")),
            line => {
                let marked = |mark: &str| line.strip_prefix(mark).map(str::trim);
                let call = marked("[Tool call]").map(|name| (Part::Call(name.to_owned(), Map::new()), ""));
                let call = call.or_else(|| marked("[Tool result]").map(|_| (Part::Result, "")));
                call.or_else(|| marked("[Thinking]").map(|text| (Part::Thinking, text)))
            }
        };
        // Arguments and a result end with an empty line.
        let ends = line.is_empty() && matches!(part, Part::Call(..) | Part::Result);
        if let Some((next, rest)) = next.or(ends.then_some((Part::Answer, ""))) {
            end_part(recorder, std::mem::replace(&mut part, next), &std::mem::take(&mut lines), &mut open);
            lines.push_str(rest);
        } else if let Part::Call(_, args) = &mut part
            && let Some((name, value)) = line.trim_start().split_once(": ")
        {
            args.insert(name.to_owned(), value.into());
        } else {
            lines.push_str(line);
            lines.push('\n');
        }
    }
    end_part(recorder, part, &lines, &mut open);
}

/// `open` is the last call, which has no result yet.
fn end_part(recorder: &mut Recorder, part: Part, text: &str, open: &mut Option<String>) {
    let shown = text.trim();
    match part {
        Part::User => recorder.user(shown),
        Part::Answer => recorder.said(shown, ""),
        Part::Thinking => recorder.said("", shown),
        Part::Call(name, args) => *open = Some(recorder.new_call("call", &name, Value::Object(args), None)),
        Part::Result => {
            if let Some(call) = open.take().filter(|_| !shown.is_empty()) {
                recorder.result(&call, shown, false);
            }
        }
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

    #[test]
    fn a_transcript_in_plain_text_gives_its_messages_and_calls() {
        let text = "user:\n<user_query>\nLook.\n</user_query>\n\nassistant:\n[Thinking] Hm.\nI look.\n[Tool call] Read\n  path: /w/p/a.txt\n  limit: 3\n\n[Tool result] Read\n\nI see.\n\nassistant:\n[Tool call] Grep\n  pattern: a: b\n  path: /w/p/src\n\nuser:\nThanks.\n";
        let session = imported("cursor", text);
        assert_eq!(calls(&session), ["Read read a.txt", "Grep search src"]);
        let users = session.events.iter().filter(|event| matches!(event, crate::RecordedEvent::User { .. }));
        assert_eq!(users.count(), 2);
    }
}
