//! Importer for Pi's session files (`~/.pi/agent/sessions/**/*.jsonl`), which OpenClaw writes, too.

use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::{content, milliseconds, token_count};
use super::messages::{is_failed, message};
use super::recorder::{Answer, Recorder};
use super::records::each_record;
use super::{ImportedSession, Importer, text};

/// Pi.
#[derive(Debug)]
pub struct Pi;

impl Importer for Pi {
    fn id(&self) -> &'static str {
        "pi"
    }

    fn reads(&self) -> &'static str {
        "Pi sessions (`~/.pi/agent/sessions/**/*.jsonl`)"
    }

    fn streams(&self) -> bool {
        true
    }

    fn detects(&self, head: &Head) -> bool {
        head.is("type", "session") && (head.has("cwd") || head.has("version"))
            || head.is("type", "message")
                && (head.is("message.content.type", "toolCall") || head.is("message.role", "toolResult"))
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut recorder = Recorder::new("pi");
        let lost = each_record(recording, |record| line(&mut recorder, &record))?;
        recorder.unreadable(lost);
        Ok(vec![recorder.finish()])
    }
}

fn line(recorder: &mut Recorder, record: &Value) {
    recorder.time(milliseconds(&record["timestamp"]));
    match text(record, "type") {
        Some("session") => {
            recorder.identity(text(record, "id").unwrap_or_default());
            recorder.directory(text(record, "cwd").unwrap_or_default());
        }
        Some("model_change") => recorder.model(text(record, "modelId").unwrap_or_default()),
        Some("message") if is_read(&record["message"]) => read(recorder, &record["message"]),
        Some("message") => {
            message(recorder, &record["message"]);
            recorder.cost(&record["message"]["usage"]["cost"]["total"]);
        }
        Some("compaction") => recorder.compact(token_count(&record["tokensBefore"])),
        _ => {}
    }
}

/// Whether a message is the result of a read of a fork of Pi, which keeps what it showed the user beside what the model saw: the
/// lines without marks, also if the text was removed later.
fn is_read(message: &Value) -> bool {
    text(message, "toolName") == Some("read")
        && message["details"].is_object()
        && (message["details"]["displayContent"].is_object() || message["details"]["isDirectory"] == true)
}

fn read(recorder: &mut Recorder, message: &Value) {
    let details = &message["details"];
    recorder.time(milliseconds(&message["timestamp"]));
    // A summary leaves lines out, and a directory is no file.
    let is_whole = details["summary"].is_null() && details["isDirectory"] != true;
    let shown = text(&details["displayContent"], "text").filter(|_| is_whole);
    let answer = Answer {
        shown: content(&message["content"]),
        failed: is_failed(message),
        printed: Some(shown.unwrap_or_default().to_owned()),
        ..Answer::default()
    };
    recorder.answered(text(message, "toolCallId").unwrap_or_default(), answer);
}

#[cfg(test)]
mod tests {
    use crate::testing::{calls, imported, stated, usages};

    #[test]
    fn a_session_gives_its_calls_and_usage() {
        let session = imported(
            "pi",
            r#"{"type":"session","version":3,"id":"s","timestamp":"2026-05-16T00:14:30.481Z","cwd":"/w/p"}
{"type":"message","id":"a","message":{"role":"user","content":[{"type":"text","text":"Look."}]}}
{"type":"message","id":"b","message":{"role":"assistant","model":"gpt-5.5","content":[{"type":"text","text":"I look."},{"type":"toolCall","id":"c1","name":"read","arguments":{"path":"a.txt"}}],"usage":{"input":10,"output":3,"cacheRead":50,"cacheWrite":2,"totalTokens":65,"cost":{"input":0.1,"output":0.2,"total":0.3}}}}
{"type":"message","id":"c","message":{"role":"toolResult","toolCallId":"c1","toolName":"read","content":[{"type":"text","text":"one\n"}],"isError":false}}
"#,
        );
        assert_eq!(calls(&session), ["read read a.txt: whole one\n"]);
        assert_eq!(usages(&session), ["gpt-5.5 10+50+2 3"]);
        assert_eq!(stated(&session), Some(0.3));
    }

    #[test]
    fn a_read_of_a_directory_costs_no_other_call_and_a_part_is_named_behind_the_path() {
        let call = |id: &str, path: &str| {
            format!(
                r#"{{"type":"message","message":{{"role":"assistant","content":[{{"type":"toolCall","id":"{id}","name":"read","arguments":{{"path":"{path}"}}}}]}}}}"#
            )
        };
        let result = |id: &str, shown: &str, details: &str| {
            format!(
                r#"{{"type":"message","message":{{"role":"toolResult","toolCallId":"{id}","toolName":"read","content":[{{"type":"text","text":"{shown}"}}],"details":{details}}}}}"#
            )
        };
        let lines = [
            r#"{"type":"session","version":3,"id":"s","cwd":"/w"}"#.to_owned(),
            call("c1", "/w/p"),
            result("c1", "a.txt 1KB", "{}"),
            call("c2", "/w/p/a.txt"),
            result("c2", "1uc|one\\n2yy|two\\n", r#"{"displayContent":{"text":"one\ntwo\n","startLine":1}}"#),
            call("c3", "/w/p/a.txt:2-2"),
            result("c3", "removed", r#"{"displayContent":{"text":"two","startLine":2}}"#),
            call("c4", "/w/p/b.txt"),
            result("c4", "1uc|{ .. }", r#"{"displayContent":{"text":"{ .. }"},"summary":{"lines":1}}"#),
        ];
        let session = imported("pi", &lines.join("\n"));
        assert_eq!(
            calls(&session),
            [
                "read list p",
                "read read p/a.txt: whole one\ntwo\n",
                "read read p/a.txt: two of 1 lines",
                "read read p/b.txt"
            ]
        );
    }
}
