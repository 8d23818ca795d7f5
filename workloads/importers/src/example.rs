//! Importer for the notes of Jotter, an agent that does not exist: one JSON object a line.

use std::io::BufRead;

use super::detect::Head;
use super::json::{arguments, milliseconds, token_count};
use super::recorder::Recorder;
use super::records::each_record;
use super::{ImportedSession, Importer, text};
use workloads::trace::TokenUsage;

/// Jotter.
#[derive(Debug)]
pub struct Jotter;

impl Importer for Jotter {
    fn id(&self) -> &'static str {
        "jotter"
    }

    fn reads(&self) -> &'static str {
        "Jotter's notes (`*.jotter.jsonl`)"
    }

    fn detects(&self, head: &Head) -> bool {
        head.is("jot", "start") && head.has("workdir")
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut recorder = Recorder::new("jotter");
        let lost = each_record(recording, |record| {
            recorder.time(milliseconds(&record["time"]));
            let said = text(&record, "text").unwrap_or_default();
            let id = text(&record, "id").unwrap_or_default();
            match text(&record, "jot") {
                Some("start") => recorder.directory(text(&record, "workdir").unwrap_or_default()),
                Some("user") => recorder.user(said),
                Some("model") => {
                    recorder.model(text(&record, "model").unwrap_or_default());
                    recorder.said(said, "");
                    recorder.usage(TokenUsage {
                        uncached: token_count(&record["in"]),
                        output: token_count(&record["out"]),
                        ..TokenUsage::default()
                    });
                }
                Some("call") => {
                    let tool = text(&record, "tool").unwrap_or("unknown");
                    recorder.call(id, tool, arguments(&record["args"]), None);
                }
                Some("result") => {
                    let failed = record["failed"].as_bool() == Some(true);
                    recorder.result(id, said, failed);
                }
                _ => {}
            }
        })?;
        recorder.unreadable(lost);
        Ok(vec![recorder.finish()])
    }
}
