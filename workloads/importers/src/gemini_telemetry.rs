//! Importer for the telemetry of Gemini CLI (`telemetry.outfile`): records of OpenTelemetry logs, one after the other, each over
//! many lines. One file holds many sessions.

use std::io::BufRead;

use serde_json::{Map, Value};

use super::detect::Head;
use super::json::{arguments, content, milliseconds, token_count};
use super::otel::named;
use super::recorder::{Answer, Recorder};
use super::records::{Damage, each_document};
use super::{ImportedSession, Importer};
use workloads::trace::TokenUsage;

/// The telemetry of Gemini CLI.
#[derive(Debug)]
pub struct GeminiTelemetry;

/// The names of its events begin so.
const EVENTS: &str = "gemini_cli.";

impl Importer for GeminiTelemetry {
    fn id(&self) -> &'static str {
        "gemini-telemetry"
    }

    fn reads(&self) -> &'static str {
        "telemetry of Gemini CLI (`telemetry.outfile`, or the collector's logs in JSON)"
    }

    fn lacks(&self) -> Option<&'static str> {
        Some("results of tools: the telemetry says only whether a call succeeded")
    }

    fn holds_results(&self, _: &ImportedSession) -> bool {
        false
    }

    fn detects(&self, head: &Head) -> bool {
        let is_batch = head.has("resourceLogs") && head.text.contains("\"gemini_cli.");
        is_batch || head.begins("attributes.event.name", EVENTS)
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut sessions: Vec<(String, Recorder)> = Vec::new();
        let lost = each_document(recording, |record| {
            collect(&record, &mut sessions);
        })?;
        let mut sessions: Vec<ImportedSession> = sessions
            .into_iter()
            .map(|(id, mut recorder)| {
                recorder.identity(&id);
                recorder.finish()
            })
            .collect();
        // A record that cannot be read names no session.
        if let Some(first) = sessions.first_mut() {
            let Damage { unreadable, mended } = lost;
            first.unreadable_lines += unreadable;
            first.mended_lines += mended;
        }
        Ok(sessions)
    }
}

/// Reads a record, or the records in a batch of a collector.
fn collect(record: &Value, sessions: &mut Vec<(String, Recorder)>) {
    for batch in record["resourceLogs"].as_array().into_iter().flatten() {
        let resource = named(&batch["resource"]["attributes"]);
        for scope in batch["scopeLogs"].as_array().into_iter().flatten() {
            for one in scope["logRecords"].as_array().into_iter().flatten() {
                let mut attributes = named(&one["attributes"]);
                for (name, value) in &resource {
                    attributes.entry(name.clone()).or_insert_with(|| value.clone());
                }
                event(&attributes, &one["timeUnixNano"], sessions);
            }
        }
    }
    if record["attributes"].is_object() {
        event(&named(&record["attributes"]), &Value::Null, sessions);
    }
}

fn event(attributes: &Map<String, Value>, time: &Value, sessions: &mut Vec<(String, Recorder)>) {
    let text = |name: &str| attributes.get(name).and_then(Value::as_str);
    let Some(name) = text("event.name").and_then(|name| name.strip_prefix(EVENTS)) else {
        return;
    };
    let session = text("session.id").unwrap_or_default();
    // Events of one session are mostly beside each other.
    let known = sessions.iter().rposition(|(id, _)| id == session);
    let at = known.unwrap_or_else(|| {
        sessions.push((session.to_owned(), Recorder::new("gemini-cli")));
        sessions.len() - 1
    });
    let Some((_, recorder)) = sessions.get_mut(at) else {
        return;
    };
    let time = attributes.get("event.timestamp").unwrap_or(time);
    recorder.time(milliseconds(time));
    let count = |name: &str| {
        let value = attributes.get(name).unwrap_or(&Value::Null);
        let spelt = value.as_str().and_then(|text| text.parse::<u64>().ok());
        spelt.map_or_else(|| token_count(value), |count| token_count(&count.into()))
    };
    match name {
        "config" => recorder.model(text("model").unwrap_or_default()),
        "user_prompt" => recorder.user(text("prompt").unwrap_or_default()),
        "api_response" => {
            recorder.model(text("model").unwrap_or_default());
            recorder.answer();
            let cached = count("cached_content_token_count");
            let input = count("input_token_count") + count("tool_token_count");
            recorder.usage(TokenUsage {
                uncached: input.saturating_sub(cached),
                cache_read: cached,
                output: count("output_token_count") + count("thoughts_token_count"),
                reasoning: count("thoughts_token_count"),
                ..TokenUsage::default()
            });
            let response = attributes.get("response_text").map(arguments);
            recorder.said(&said(&response.unwrap_or_default()), "");
        }
        "tool_call" => {
            let args = attributes.get("function_args").map(arguments);
            let tool = text("function_name").unwrap_or("unknown");
            let id = recorder.new_call("call", tool, args.unwrap_or_default(), None);
            let success = attributes.get("success");
            let failed = success.is_some_and(|success| success == false || success == "false");
            let answer = Answer { shown: text("error").unwrap_or_default().to_owned(), failed, ..Answer::default() };
            recorder.answered_at_end(&id, answer);
        }
        "chat_compression" => recorder.compact(count("tokens_before")),
        _ => {}
    }
}

/// The text of a response: candidates with parts, or parts of a stream.
fn said(response: &Value) -> String {
    match response {
        Value::Array(all) => all.iter().map(said).collect(),
        Value::Object(_) if response["candidates"].is_array() => said(&response["candidates"]),
        Value::Object(_) if response["content"]["parts"].is_array() => content(&response["content"]["parts"]),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{calls, imported, imported_all, usages};

    fn events(session: &str) -> [Value; 4] {
        let time = "2026-02-09T08:12:58.677Z";
        [
            json!({"event.name": "gemini_cli.config", "session.id": session, "event.timestamp": time, "model": "gemini-3-pro"}),
            json!({"event.name": "gemini_cli.user_prompt", "session.id": session, "event.timestamp": time, "prompt_length": 4, "prompt": "Edit."}),
            json!({"event.name": "gemini_cli.api_response", "session.id": session, "event.timestamp": time, "model": "gemini-3-pro",
                "input_token_count": 100, "output_token_count": 5, "cached_content_token_count": 60, "thoughts_token_count": 2, "tool_token_count": 0,
                "response_text": "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"I edit.\"}]}}]}"}),
            json!({"event.name": "gemini_cli.tool_call", "session.id": session, "event.timestamp": time, "function_name": "write_file",
                "function_args": "{\"file_path\":\"/w/p/a.txt\",\"content\":\"one\\n\"}", "duration_ms": 3, "success": true, "decision": "accept"}),
        ]
    }

    #[test]
    fn records_over_many_lines_give_the_calls_and_the_usage_of_each_session() {
        let record = |attributes: &Value| {
            let record = json!({"hrTime": [1, 2], "_body": "b", "attributes": attributes});
            format!("{}\n", serde_json::to_string_pretty(&record).unwrap())
        };
        let one: String = events("s1").iter().map(record).collect();
        let session = imported("gemini-telemetry", &one);
        assert_eq!(calls(&session), ["write_file write a.txt: written one\n"]);
        assert_eq!(usages(&session), ["gemini-3-pro 40+60 7"]);
        // A record that was cut off costs itself.
        let (cut, _) = one.split_at(one.len() / 9);
        let two = format!("{one}{cut}\n{}", events("s2").iter().map(record).collect::<String>());
        let sessions = imported_all("gemini-telemetry", &two);
        assert_eq!(sessions.len(), 2);
        for session in &sessions {
            assert_eq!(usages(session), ["gemini-3-pro 40+60 7"]);
        }
        assert_eq!(sessions[0].unreadable_lines, 1);
    }

    #[test]
    fn the_logs_of_a_collector_are_read_too() {
        let records: Vec<Value> = events("s1")
            .iter()
            .map(|attributes| {
                let pairs = attributes.as_object().unwrap().iter();
                let pairs = pairs.map(|(key, value)| match value {
                    Value::Number(number) => json!({"key": key, "value": {"intValue": number.to_string()}}),
                    Value::Bool(value) => json!({"key": key, "value": {"boolValue": value}}),
                    text => json!({"key": key, "value": {"stringValue": text}}),
                });
                json!({"timeUnixNano": "1769000000000000000", "attributes": pairs.collect::<Vec<_>>()})
            })
            .collect();
        let batch = json!({"resourceLogs": [{"resource": {"attributes": []}, "scopeLogs": [{"logRecords": records}]}]});
        let session = imported("gemini-telemetry", &batch.to_string());
        assert_eq!(calls(&session), ["write_file write a.txt: written one\n"]);
        assert_eq!(usages(&session), ["gemini-3-pro 40+60 7"]);
    }
}
