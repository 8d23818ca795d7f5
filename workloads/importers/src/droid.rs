//! Importer for Factory Droid's session files (`~/.factory/sessions/**/*.jsonl`). Usage is in a settings file beside them.

use std::io::BufRead;

use super::detect::Head;
use super::json::milliseconds;
use super::messages::message;
use super::recorder::Recorder;
use super::records::each_record;
use super::{ImportedSession, Importer, text};

/// Factory Droid.
#[derive(Debug)]
pub struct Droid;

impl Importer for Droid {
    fn id(&self) -> &'static str {
        "droid"
    }

    fn reads(&self) -> &'static str {
        "Factory Droid sessions (`~/.factory/sessions/**/*.jsonl`)"
    }

    fn lacks(&self) -> Option<&'static str> {
        Some("usage, which is in the settings file beside it")
    }

    fn streams(&self) -> bool {
        true
    }

    fn detects(&self, head: &Head) -> bool {
        head.is("type", "session_start") && (head.has("cwd") || head.has("title") || head.has("message.role"))
            || head.is("type", "message") && head.has("message.role") && head.has("message.content")
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut recorder = Recorder::new("droid");
        let lost = each_record(recording, |record| {
            recorder.time(milliseconds(&record["timestamp"]));
            if text(&record, "type") == Some("session_start") {
                recorder.identity(text(&record, "id").unwrap_or_default());
            }
            recorder.directory(text(&record, "cwd").unwrap_or_default());
            recorder.model(text(&record, "model").unwrap_or_default());
            if record["message"].is_object() {
                message(&mut recorder, &record["message"]);
            }
        })?;
        recorder.unreadable(lost);
        Ok(vec![recorder.finish()])
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{calls, imported};

    #[test]
    fn a_session_gives_its_calls() {
        let session = imported(
            "droid",
            r#"{"type":"session_start","id":"s","title":"t","cwd":"/w/p"}
{"type":"message","id":"m1","timestamp":"2026-01-01T00:00:00Z","message":{"role":"user","content":[{"type":"text","text":"Run it."}]}}
{"type":"message","id":"m2","message":{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Execute","input":{"command":"ls"}}]}}
{"type":"message","id":"m3","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"a.txt\n"}]}}
"#,
        );
        assert_eq!(calls(&session), ["Execute exec: ls in /w/p -> a.txt\n"]);
    }
}
