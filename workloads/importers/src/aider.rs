//! Importer for aider's chat history (`.aider.chat.history.md`), which holds no tool calls: messages, and stated usage.

use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::{milliseconds, whole};
use super::recorder::Recorder;
use super::{ImportedSession, Importer, ReportedTotal};
use workloads::trace::TokenUsage;

/// aider.
#[derive(Debug)]
pub struct Aider;

impl Importer for Aider {
    fn id(&self) -> &'static str {
        "aider"
    }

    fn reads(&self) -> &'static str {
        "aider's chat history (`.aider.chat.history.md`)"
    }

    fn lacks(&self) -> Option<&'static str> {
        Some("tool calls: aider edits files from the text of answers")
    }

    fn holds_results(&self, _: &ImportedSession) -> bool {
        false
    }

    fn detects(&self, head: &Head) -> bool {
        head.text.contains(START)
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let text = whole(recording)?;
        // A history holds many chats, each with a context of its own.
        let mut chats: Vec<Vec<&str>> = vec![Vec::new()];
        for line in text.lines() {
            if line.starts_with(START) {
                chats.push(Vec::new());
            }
            if let Some(chat) = chats.last_mut() {
                chat.push(line);
            }
        }
        let sessions = chats.iter().map(|lines| chat(lines));
        Ok(sessions.filter(|session| !session.events.is_empty()).collect())
    }
}

/// The first line of a chat, before its time.
const START: &str = "# aider chat started at ";

fn chat(lines: &[&str]) -> ImportedSession {
    let mut recorder = Recorder::new("aider");
    let mut model = String::new();
    let mut user = String::new();
    let mut said = String::new();
    let mut dollars = 0.0;
    for line in lines {
        if let Some(time) = line.strip_prefix(START) {
            recorder.time(milliseconds(&Value::from(time.trim())));
            continue;
        }
        if let Some(asked) = line.strip_prefix("#### ") {
            recorder.said(&std::mem::take(&mut said), "");
            recorder.end_answer();
            user.push_str(asked);
            user.push('\n');
            continue;
        }
        let note = line.strip_prefix("> ").map(|note| note.trim_end());
        match note {
            Some(note) => {
                for start in ["Model: ", "Main model: "] {
                    if let Some(rest) = note.strip_prefix(start) {
                        rest.split(" with ").next().unwrap_or_default().clone_into(&mut model);
                        recorder.model(&model);
                    }
                }
                if let Some(version) = note.strip_prefix("Aider v") {
                    recorder.agent(format!("aider {version}"));
                }
                if let Some((usage, cost)) = note.strip_prefix("Tokens: ").and_then(stated) {
                    recorder.said(&std::mem::take(&mut said), "");
                    recorder.usage(usage);
                    recorder.end_answer();
                    dollars += cost;
                }
            }
            None if line.trim().is_empty() && said.is_empty() => {}
            None => {
                if !user.is_empty() {
                    recorder.user(&std::mem::take(&mut user));
                }
                said.push_str(line);
                said.push('\n');
            }
        }
    }
    recorder.user(&user);
    recorder.said(&said, "");
    if dollars > 0.0 {
        recorder.total(ReportedTotal { model, usage: None, dollars: Some(dollars) });
    }
    recorder.finish()
}

/// Usage and dollars of `2.3k sent, 1.1k cache hit, 45 received. Cost: $0.01 message, $0.02 session.`
fn stated(note: &str) -> Option<(TokenUsage, f64)> {
    let (tokens, cost) = note.split_once(" received").unwrap_or((note, ""));
    let mut usage = TokenUsage::default();
    for part in format!("{tokens} received").split(", ") {
        let (number, kind) = part.trim().split_once(' ')?;
        let (number, scale) = match number.strip_suffix('k') {
            Some(number) => (number, 1e3),
            None => (number.strip_suffix('M').unwrap_or(number), if number.ends_with('M') { 1e6 } else { 1.0 }),
        };
        let count = (number.replace(',', "").parse::<f64>().ok()? * scale) as u64;
        match kind {
            "sent" => usage.uncached = count,
            "cache hit" => usage.cache_read = count,
            "cache write" => usage.cache_write_5m = count,
            "received" => usage.output = count,
            _ => {}
        }
    }
    let cost = cost.split_once("Cost: $").and_then(|(_, cost)| cost.split_whitespace().next()?.parse().ok());
    Some((usage, cost.unwrap_or(0.0)))
}

#[cfg(test)]
mod tests {
    use crate::testing::{calls, imported, imported_all, usages};

    #[test]
    fn a_history_gives_its_usage_and_no_calls() {
        let text = "\n# aider chat started at 2026-01-01 10:00:00\n\n> Aider v0.86.1  \n> Main model: gpt-5.5 with diff edit format  \n\n#### Change a.  \n\nI change it.\n\n> Tokens: 2.3k sent, 45 received. Cost: $0.01 message, $0.01 session.  \n\n#### Again.  \n\nDone.\n\n> Tokens: 1.5k sent, 1k cache hit, 5 received. Cost: $0.02 message, $0.03 session.  \n";
        let session = imported("aider", text);
        assert_eq!(session.agent, "aider 0.86.1");
        assert_eq!(usages(&session), ["gpt-5.5 2300+0 45", "gpt-5.5 1500+1000 5"]);
        assert!(calls(&session).is_empty());
        assert!((session.totals[0].dollars.unwrap() - 0.03).abs() < 1e-9);
        // 10 o'clock on the first day of 2026.
        assert_eq!(session.started_ms, Some(1_767_261_600_000));
        let two = format!("{text}\n# aider chat started at 2026-01-02 10:00:00\n\n> Aider v0.86.1  \n{text}");
        let two = imported_all("aider", &two);
        assert_eq!(two.len(), 2, "a chat without a message is left out");
        assert_eq!(usages(&two[1]), usages(&session));
    }
}
