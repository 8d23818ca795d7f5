//! Importer for Pi's session files (`~/.pi/agent/sessions/**/*.jsonl`), which OpenClaw writes, too.

use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::{content, milliseconds, token_count};
use super::messages::{is_failed, message};
use super::recorder::{Answer, Recorder};
use super::records::each_record;
use super::{Hunk, ImportedSession, Importer, text};

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
        let has_record = || RECORDS.iter().any(|kind| head.is("type", kind));
        head.is("type", "session") && (head.has("cwd") || head.has("version")) && has_record()
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

/// Kinds of records that sessions of Pi begin with.
const RECORDS: [&str; 6] =
    ["message", "model_change", "thinking_level_change", "custom_message", "session_info", "compaction"];

fn line(recorder: &mut Recorder, record: &Value) {
    recorder.time(milliseconds(&record["timestamp"]));
    match text(record, "type") {
        Some("session") => {
            recorder.identity(text(record, "id").unwrap_or_default());
            recorder.directory(text(record, "cwd").unwrap_or_default());
        }
        Some("model_change") => recorder.model(text(record, "modelId").unwrap_or_default()),
        Some("message") if has_details(&record["message"]) => detailed(recorder, &record["message"]),
        Some("message") => {
            message(recorder, &record["message"]);
            recorder.cost(&record["message"]["usage"]["cost"]["total"]);
        }
        Some("custom_message") => recorder.reminder(content(&record["content"])),
        Some("compaction") => recorder.compact(token_count(&record["tokensBefore"])),
        _ => {}
    }
}

/// The text that a fork of Pi puts in place of results that it removes from a long session.
const REMOVED: &str = "[Compacted history content evicted";

/// Whether a message is a result that keeps what the user was shown beside what the model saw: of an edit, the changed lines, and
/// with a fork of Pi, of a read, the lines without marks. They stay if the text is removed later.
fn has_details(message: &Value) -> bool {
    let details = &message["details"];
    details["displayContent"].is_object() || details["isDirectory"] == true || details["diff"].is_string()
}

fn detailed(recorder: &mut Recorder, message: &Value) {
    let details = &message["details"];
    recorder.time(milliseconds(&message["timestamp"]));
    let kept = text(&details["displayContent"], "text").or_else(|| text(details, "diff"));
    let mut shown = content(&message["content"]);
    if let Some(kept) = kept.filter(|_| shown.starts_with(REMOVED)) {
        kept.clone_into(&mut shown);
    }
    let mut answer = Answer { shown, failed: is_failed(message), ..Answer::default() };
    if text(message, "toolName") == Some("read") {
        // A summary leaves lines out, and a directory has no text.
        let is_whole = details["summary"].is_null() && details["isDirectory"] != true;
        answer.printed = Some(kept.filter(|_| is_whole).map(|kept| lines_shown(kept, details)).unwrap_or_default());
    } else if let Some(diff) = text(details, "diff") {
        answer.hunks = hunks(diff).unwrap_or_default();
    }
    recorder.answered(text(message, "toolCallId").unwrap_or_default(), answer);
}

/// The lines that a read showed, with their numbers if they are a part of the file: a fork shows lines around those that were asked
/// for.
fn lines_shown(kept: &str, details: &Value) -> String {
    let first = token_count(&details["displayContent"]["startLine"]).max(1);
    let total = token_count(&details["meta"]["truncation"]["totalLines"]);
    if first == 1 && total == 0 {
        return kept.to_owned();
    }
    let mut shown = if total > 0 { format!("[{total} lines total]\n") } else { String::new() };
    for (number, line) in (first..).zip(kept.split('\n')) {
        shown += &format!("{number}\t{line}\n");
    }
    shown
}

/// The changed lines of an edit, whose diff has a mark and a number before each line: ` 7 text`, with the numbers set to the right,
/// and with a fork ` 7|text`. The number of a new line is that in the file after the edit. `...` stands for lines that are left
/// out: Pi writes no number before it, and the fork writes ` 9|...`. `None` if the numbers are not those of one file.
fn hunks(diff: &str) -> Option<Vec<Hunk>> {
    let mut hunks: Vec<Hunk> = Vec::new();
    // The line of the file before the edit that is the next one, whether it is known, and how many lines the edit has added.
    let (mut next, mut is_known, mut added) = (1_i64, false, 0_i64);
    for line in diff.split('\n') {
        let mark = line.chars().next().filter(|mark| " -+".contains(*mark))?;
        let rest = line[1..].trim_start_matches(' ');
        let (number, text) = rest.split_at(rest.find(|sign: char| !sign.is_ascii_digit())?);
        if mark == ' ' && (text == "|..." || rest == "...") {
            is_known = false;
            continue;
        }
        let number: i64 = number.parse::<u32>().ok()?.into();
        let text = text.strip_prefix(['|', ' '])?;
        let place = if mark == '+' { number - added } else { number };
        if place < next || is_known && place > next {
            return None;
        }
        if !is_known {
            hunks.push(Hunk { first: u64::try_from(place).ok()?, lines: Vec::new() });
        }
        hunks.last_mut()?.lines.push(format!("{mark}{text}"));
        is_known = true;
        next = place + i64::from(mark != '+');
        added += match mark {
            '+' => 1,
            '-' => -1,
            _ => 0,
        };
    }
    Some(hunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordedEvent;
    use crate::testing::{calls, files, imported, stated, usages};
    use serde_json::json;

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
    fn a_session_of_another_agent_is_not_taken_for_pis() {
        let detects = |lines: &str| Pi.detects(&Head::new(lines.as_bytes()));
        let session = r#"{"type":"session","version":1,"id":"s"}"#;
        assert!(detects(&format!("{session}\n{{\"type\":\"model_change\",\"modelId\":\"m\"}}\n")));
        assert!(!detects(&format!("{session}\n{{\"type\":\"turn\",\"turn\":{{}}}}\n")));
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
                "read read p/a.txt: two of 2 lines",
                "read read p/b.txt"
            ]
        );
    }

    #[test]
    fn an_edit_whose_texts_are_missing_is_at_the_lines_that_its_details_state() {
        let session = |diff: &str| {
            let record = |message: Value| json!({"type": "message", "message": message}).to_string();
            let edit = json!({"type": "toolCall", "id": "c1", "name": "edit", "arguments": {"path": "/w/p/a.txt", "input": "removed"}});
            let removed = "[Compacted history content evicted to a store]";
            let lines = [
                json!({"type": "session", "version": 3, "id": "s", "cwd": "/w/p"}).to_string(),
                record(json!({"role": "assistant", "content": [edit]})),
                record(json!({"role": "toolResult", "toolCallId": "c1", "toolName": "edit",
                    "content": [{"type": "text", "text": removed}], "details": {"diff": diff, "op": "update"}})),
            ];
            imported("pi", &lines.join("\n"))
        };
        let diff = " 1|...\n 3|three\n-4|four\n+4|4\n+5|4.5\n 5|five\n 6|...\n+9|7.5\n 8|eight";
        let edited = session(diff);
        assert_eq!(calls(&edited), ["edit edit a.txt: line 3:  three -four +4 +4.5  five, 8: +7.5  eight"]);
        let file = files(&edited).remove(0);
        let lines: Vec<&str> = file.lines().collect();
        assert_eq!((lines[2], lines[3], lines[4], lines[7]), ("three", "four", "five", "eight"));
        // What the agent saw was as long as what is left of it.
        assert_eq!(edited.results().next().unwrap().output().unwrap().len(), diff.len());
        // Lines of two files, a number that is not the next one, and a diff of another kind.
        for other in ["-4|a\n+4|b\n 2|c", " 3|a\n 5|b", " 3|a\n+5|b", "@@ -4 +4 @@\n-a\n+b", ""] {
            assert_eq!(calls(&session(other)), ["edit edit a.txt"], "{other}");
        }
    }

    #[test]
    fn an_edit_is_at_the_lines_that_its_details_state() {
        let record = |message: Value| json!({"type": "message", "message": message}).to_string();
        let args = json!({"path": "/w/p/a.txt", "oldText": "same", "newText": "other"});
        let edit = json!({"type": "toolCall", "id": "c1", "name": "edit", "arguments": args});
        let diff = "    ...\n   8 ...\n-  9 same\n+  9 other\n  10 end\n    ...";
        let lines = [
            json!({"type": "session", "version": 3, "id": "s", "cwd": "/w/p"}).to_string(),
            record(json!({"role": "assistant", "content": [edit]})),
            record(json!({"role": "toolResult", "toolCallId": "c1", "toolName": "edit",
                "content": [{"type": "text", "text": "Successfully replaced text in /w/p/a.txt."}], "details": {"diff": diff}})),
        ];
        let edited = imported("pi", &lines.join("\n"));
        assert_eq!(calls(&edited), ["edit edit a.txt: 1 replacements"]);
        let file = files(&edited).remove(0);
        let lines: Vec<&str> = file.lines().collect();
        assert_eq!((lines[7], lines[8], lines[9]), ("...", "same", "end"));
    }

    #[test]
    fn a_text_of_an_extension_is_in_the_context() {
        let lines = [
            json!({"type": "session", "version": 3, "id": "s", "cwd": "/w"}),
            json!({"type": "message", "message": {"role": "user", "content": "Look."}}),
            json!({"type": "custom_message", "customType": "notes", "content": "The day.", "display": false}),
            json!({"type": "custom", "customType": "state", "data": {"text": "Not for the model."}}),
            json!({"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}}),
        ];
        let session = imported("pi", &lines.map(|line| line.to_string()).join("\n"));
        let said = session.events.iter().filter_map(|event| match event {
            RecordedEvent::User { text, by_client, .. } => Some((text.load().unwrap(), *by_client)),
            _ => None,
        });
        assert_eq!(said.collect::<Vec<_>>(), [("Look.".to_owned(), false), ("The day.".to_owned(), true)]);
    }

    #[test]
    fn a_part_of_a_file_is_at_the_lines_that_its_details_state() {
        let session = |path: &str, details: Value| {
            let record = |message: Value| json!({"type": "message", "message": message}).to_string();
            let read = json!({"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": path}});
            let lines = [
                json!({"type": "session", "version": 3, "id": "s", "cwd": "/w/p"}).to_string(),
                record(json!({"role": "assistant", "content": [read]})),
                record(json!({"role": "toolResult", "toolCallId": "c1", "toolName": "read",
                    "content": [{"type": "text", "text": "removed"}], "details": details})),
            ];
            calls(&imported("pi", &lines.join("\n"))).remove(0)
        };
        let part = json!({"displayContent": {"text": "\ttwo\nthree\nfour", "startLine": 2}, "meta": {"truncation": {"totalLines": 9}}});
        assert_eq!(session("/w/p/a.txt:3-3", part), "read read a.txt: \ttwo\nthree\nfour of 9 lines");
        let rest = json!({"displayContent": {"text": "four\nfive\n", "startLine": 4}});
        assert_eq!(session("/w/p/a.txt:5", rest), "read read a.txt: four\nfive\n of 6 lines");
        let whole = json!({"displayContent": {"text": "one\n", "startLine": 1}});
        assert_eq!(session("/w/p/a.txt", whole), "read read a.txt: whole one\n");
    }
}
