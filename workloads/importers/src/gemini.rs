//! Importer for Gemini CLI's session files (`chats/session-*.json`, and `.jsonl` of newer versions, in which a later record
//! of a message replaces the earlier one).

use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::{content, milliseconds, token_count};
use super::recorder::{Answer, Recorder};
use super::records::each_document;
use super::{ImportedSession, Importer, ReportedTotal, text};
use workloads::trace::TokenUsage;

/// Gemini CLI.
#[derive(Debug)]
pub struct Gemini;

impl Importer for Gemini {
    fn id(&self) -> &'static str {
        "gemini"
    }

    fn reads(&self) -> &'static str {
        "Gemini CLI sessions (`~/.gemini/tmp/*/chats/session-*.json` and `.jsonl`, `gemini --output-format stream-json`)"
    }

    fn detects(&self, head: &Head) -> bool {
        let is_session = head.has("sessionId") && (head.has("projectHash") || head.has("lastUpdated"));
        let is_stream = head.is("type", "init") && head.has("session_id") && head.has("model");
        is_stream || is_session || head.is("messages.type", "gemini") || head.is("type", "gemini")
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut recorder = Recorder::new("gemini-cli");
        let mut messages: Vec<Value> = Vec::new();
        let mut meta = Value::Null;
        let mut add = |record: Value| {
            if let Some(all) = record["messages"].as_array() {
                messages.extend(all.iter().cloned());
            } else if text(&record, "type").is_some() {
                // A message that is recorded again replaces the earlier record.
                let id = text(&record, "id").map(str::to_owned);
                let known = messages.iter().rposition(|one| id.is_some() && text(one, "id") == id.as_deref());
                match known {
                    Some(at) => messages[at] = record,
                    None => messages.push(record),
                }
                return;
            } else if let Some(id) = text(&record, "$rewindTo") {
                if let Some(at) = messages.iter().position(|one| text(one, "id") == Some(id)) {
                    messages.truncate(at);
                }
                return;
            }
            if meta.is_null() && record["sessionId"].is_string() {
                meta = record;
            }
        };
        let lost = each_document(recording, &mut add)?;
        recorder.unreadable(lost);
        recorder.identity(text(&meta, "sessionId").unwrap_or_default());
        if messages.iter().any(|message| text(message, "type") == Some("init")) {
            let mut model = String::new();
            for event in &messages {
                streamed(&mut recorder, event, &mut model);
            }
            return Ok(vec![recorder.finish()]);
        }
        for dir in meta["directories"].as_array().into_iter().flatten() {
            recorder.directory(dir.as_str().unwrap_or_default());
        }
        for message in &messages {
            recorder.time(milliseconds(&message["timestamp"]));
            match text(message, "type") {
                Some("user") => recorder.user(&content(&message["content"])),
                Some("gemini" | "model" | "assistant") => answer(&mut recorder, message),
                _ => {}
            }
        }
        Ok(vec![recorder.finish()])
    }
}

/// An event of `gemini --output-format stream-json`. The usage comes at the end, for the whole run.
fn streamed(recorder: &mut Recorder, event: &Value, model: &mut String) {
    recorder.time(milliseconds(&event["timestamp"]));
    let id = text(event, "tool_id").unwrap_or_default();
    match text(event, "type") {
        Some("init") => {
            recorder.identity(text(event, "session_id").unwrap_or_default());
            text(event, "model").unwrap_or_default().clone_into(model);
            recorder.model(model);
        }
        Some("message") => {
            let said = content(&event["content"]);
            match text(event, "role") {
                Some("user") => recorder.user(&said),
                _ => recorder.said(&said, ""),
            }
        }
        Some("tool_use") => {
            let name = text(event, "tool_name").unwrap_or("unknown");
            let args = event["parameters"].clone();
            let dir = text(&args, "dir_path").map(str::to_owned);
            let dir = dir.filter(|_| name == "run_shell_command");
            recorder.call(id, name, args, dir.as_deref());
        }
        Some("tool_result") => {
            let output = content(&event["output"]);
            let (printed, code) = shell(&output);
            recorder.answered(
                id,
                Answer {
                    failed: text(event, "status") == Some("error") || code != 0,
                    printed,
                    shown: output,
                    ..Answer::default()
                },
            );
        }
        Some("result") => {
            let stats = &event["stats"];
            let models = stats["models"].as_object().into_iter().flatten();
            let mut all: Vec<(&str, &Value)> = models.map(|(name, stats)| (name.as_str(), stats)).collect();
            if all.is_empty() && stats.is_object() {
                all.push((model.as_str(), stats));
            }
            for (model, stats) in all {
                let count = |name: &str| token_count(&stats[name]);
                recorder.total(ReportedTotal {
                    model: model.to_owned(),
                    usage: Some(TokenUsage {
                        uncached: count("input_tokens").saturating_sub(count("cached")),
                        cache_read: count("cached"),
                        output: count("output_tokens"),
                        ..TokenUsage::default()
                    }),
                    dollars: None,
                });
            }
        }
        _ => {}
    }
}

fn answer(recorder: &mut Recorder, message: &Value) {
    recorder.model(text(message, "model").unwrap_or_default());
    recorder.answer();
    let thoughts = message["thoughts"].as_array().into_iter().flatten();
    let thoughts: Vec<String> = thoughts
        .map(|thought| {
            let part = |name: &str| text(thought, name).unwrap_or_default();
            format!("{} {}", part("subject"), part("description"))
        })
        .collect();
    recorder.said(&content(&message["content"]), &thoughts.join("\n"));
    let calls: Vec<&Value> = message["toolCalls"].as_array().into_iter().flatten().collect();
    let mut ids = Vec::new();
    for call in &calls {
        let id = text(call, "id").unwrap_or_default();
        let name = text(call, "name").unwrap_or("unknown");
        let dir = ["dir_path", "directory"].into_iter().find_map(|name| text(&call["args"], name));
        let dir = dir.filter(|_| name == "run_shell_command").map(str::to_owned);
        ids.push(recorder.new_call(id, name, call["args"].clone(), dir.as_deref()));
    }
    recorder.usage(usage(&message["tokens"]));
    recorder.end_answer();
    for (id, call) in ids.iter().zip(calls) {
        if call["result"].is_array() || call["status"].is_string() {
            recorder.answered(id, result(call));
        }
    }
}

fn result(call: &Value) -> Answer {
    let parts = call["result"].as_array().into_iter().flatten();
    let responses = parts.map(|part| &part["functionResponse"]["response"]);
    let texts: Vec<String> = responses
        .map(|response| {
            text(response, "output")
                .or_else(|| text(response, "error"))
                .map_or_else(|| content(response), str::to_owned)
        })
        .collect();
    let shown = texts.join("\n");
    let failed = text(call, "status").is_some_and(|status| status != "success");
    let display = &call["resultDisplay"];
    let is_shell = text(call, "name") == Some("run_shell_command");
    let (printed, code) = if is_shell { shell(&shown) } else { (None, 0) };
    Answer {
        before: text(display, "originalContent").filter(|_| display["isNewFile"] != true).map(str::to_owned),
        failed: failed || code != 0,
        printed,
        shown,
        ..Answer::default()
    }
}

/// Output and exit code of a shell command, in the lines `Output: …`, `Error: …`, `Exit Code: …`.
fn shell(shown: &str) -> (Option<String>, i64) {
    let code = shown.lines().rev().find_map(|line| line.strip_prefix("Exit Code: "));
    let code = code.and_then(|code| code.trim().parse().ok()).unwrap_or(0);
    let start = match shown.strip_prefix("Output: ") {
        Some(rest) => Some(rest),
        None => shown.split_once("\nOutput: ").map(|(_, rest)| rest),
    };
    let Some(rest) = start else {
        return (None, code);
    };
    let ends = ["\nError: ", "\nExit Code: ", "\nSignal: ", "\nBackground PIDs: ", "\nProcess Group PGID: "];
    let end = ends.iter().filter_map(|end| rest.rfind(end)).min();
    let printed = &rest[..end.unwrap_or(rest.len())];
    match printed {
        "(empty)" => (Some(String::new()), code),
        printed => (Some(format!("{}\n", printed.trim_end_matches('\n'))), code),
    }
}

fn usage(tokens: &Value) -> TokenUsage {
    let count = |name: &str| token_count(&tokens[name]);
    let cached = count("cached");
    TokenUsage {
        uncached: (count("input") + count("tool")).saturating_sub(cached),
        cache_read: cached,
        output: count("output") + count("thoughts"),
        reasoning: count("thoughts"),
        ..TokenUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{calls, imported, usages};
    use serde_json::json;

    #[test]
    fn a_session_gives_its_calls_with_contents_before_an_edit() {
        let result = |id: &str, output: &str| json!([{"functionResponse": {"id": id, "name": "n", "response": {"output": output}}}]);
        let answer = json!({"id": "m2", "type": "gemini", "content": "I look.", "model": "gemini-3-pro-preview",
        "thoughts": [{"subject": "Look", "description": "first"}],
        "tokens": {"input": 100, "output": 5, "cached": 60, "thoughts": 3, "tool": 0, "total": 108},
        "toolCalls": [
            {"id": "c1", "name": "read_file", "args": {"file_path": "/w/p/a.txt"}, "status": "success", "result": result("c1", "one\n")},
            {"id": "c2", "name": "replace", "args": {"file_path": "/w/p/a.txt", "old_string": "one", "new_string": "1"},
                "status": "success", "result": result("c2", "Successfully modified file"),
                "resultDisplay": {"fileName": "a.txt", "originalContent": "one\n", "newContent": "1\n"}},
            {"id": "c3", "name": "run_shell_command", "args": {"command": "ls d"}, "status": "success",
                "result": result("c3", "Command: ls d\nDirectory: (root)\nOutput: b\nError: (none)\nExit Code: 0\nSignal: 0")},
            {"id": "c4", "name": "read_file", "args": {"file_path": "/w/p/d/none"}, "status": "error",
                "result": [{"functionResponse": {"response": {"error": "File not found: none"}}}]},
        ]});
        let user = json!({"id": "m1", "type": "user", "content": [{"text": "Change it."}]});
        let file = json!({"sessionId": "s", "projectHash": "h", "startTime": "2026-01-01T00:00:00Z", "messages": [user, answer]});
        let draft = json!({"id": "m2", "type": "gemini", "content": ""});
        let lines = format!(
            "{}\n{user}\n{draft}\n{answer}\n{}\n",
            json!({"sessionId": "s", "projectHash": "h", "kind": "main"}),
            json!({"$set": {"lastUpdated": "x"}})
        );
        for text in [serde_json::to_string_pretty(&file).unwrap(), lines] {
            let session = imported("gemini", &text);
            assert_eq!(
                calls(&session),
                [
                    "read_file read a.txt: whole one\n",
                    "replace edit a.txt: 1 replacements of a known file",
                    "run_shell_command exec: ls d in /w/p -> b\n",
                    "read_file read d/none (NotFound)",
                ]
            );
            assert_eq!(usages(&session), ["gemini-3-pro-preview 40+60 8"]);
        }
    }

    #[test]
    fn a_stream_gives_its_calls_and_the_usage_of_its_runs() {
        let events = [
            json!({"type": "init", "timestamp": "2026-01-01T10:00:00Z", "session_id": "s", "model": "gemini-3-pro-preview"}),
            json!({"type": "message", "role": "user", "content": "Look."}),
            json!({"type": "message", "role": "assistant", "content": "I ", "delta": true}),
            json!({"type": "message", "role": "assistant", "content": "look.", "delta": true}),
            json!({"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "c1", "parameters": {"command": "cat a"}}),
            json!({"type": "tool_result", "tool_id": "c1", "status": "success", "output": "one\n"}),
            json!({"type": "tool_use", "tool_name": "write_file", "tool_id": "c2", "parameters": {"file_path": "b", "content": "x"}}),
            json!({"type": "tool_result", "tool_id": "c2", "status": "error", "output": "File not found", "error": {"message": "File not found"}}),
            json!({"type": "result", "status": "success", "stats": {"total_tokens": 110, "input_tokens": 100, "output_tokens": 10, "cached": 60}}),
        ];
        let text: String = events.iter().map(|event| format!("{event}\n")).collect();
        let session = imported("gemini", &text);
        assert_eq!(calls(&session), ["run_shell_command exec: cat a -> one\n", "write_file write b (NotFound)"]);
        let usage = session.totals[0].usage.unwrap();
        assert_eq!((usage.uncached, usage.cache_read, usage.output), (40, 60, 10));
        assert_eq!(session.totals[0].model, "gemini-3-pro-preview");
    }
}
