//! Importer for Pi's session files (`~/.pi/agent/sessions/**/*.jsonl`), which OpenClaw writes, too.

use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::{milliseconds, token_count};
use super::messages::message;
use super::recorder::Recorder;
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
        Some("message") => {
            message(recorder, &record["message"]);
            recorder.cost(&record["message"]["usage"]["cost"]["total"]);
        }
        Some("compaction") => recorder.compact(token_count(&record["tokensBefore"])),
        _ => {}
    }
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
}
