//! Importer for OpenTelemetry spans with the conventions for generative AI: OTLP in JSON, or one span a line.
//! Spans carry usage; arguments, results and messages only if the agent was told to record them.

use std::io::BufRead;

use serde_json::{Map, Value};

use super::detect::Head;
use super::json::{arguments, content, milliseconds};
use super::recorder::Recorder;
use super::records::each_document;
use super::{ImportedSession, Importer, text};
use workloads::trace::TokenUsage;

/// OpenTelemetry.
#[derive(Debug)]
pub struct OpenTelemetry;

impl Importer for OpenTelemetry {
    fn id(&self) -> &'static str {
        "otel"
    }

    fn reads(&self) -> &'static str {
        "OpenTelemetry spans of generative AI (`gen_ai.*`): OTLP in JSON, or one span a line"
    }

    fn detects(&self, head: &Head) -> bool {
        head.has("resourceSpans")
            || head.has("resource_spans")
            || head.has("attributes.gen_ai.operation.name")
            || head.has("attributes.gen_ai.request.model")
            || head.begins("attributes.key", "gen_ai.")
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut spans = Vec::new();
        let lost = each_document(recording, |record| collect(&record, &mut spans))?;
        spans.sort_by_key(|span| span.start);
        let mut recorder = Recorder::new("unknown agent");
        recorder.unreadable(lost);
        spans.iter().for_each(|span| record(&mut recorder, span));
        Ok(vec![recorder.finish()])
    }
}

struct Span {
    start: i64,
    failed: bool,
    id: String,
    attributes: Map<String, Value>,
}

impl Span {
    fn text(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.attributes.get(*name)?.as_str())
    }

    fn count(&self, names: &[&str]) -> u64 {
        let found = names.iter().find_map(|name| {
            let value = self.attributes.get(*name)?;
            value.as_u64().or_else(|| value.as_str()?.parse().ok())
        });
        found.unwrap_or(0).min(1 << 50)
    }
}

/// Collects the spans of a document or a line.
fn collect(value: &Value, spans: &mut Vec<Span>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| collect(one, spans)),
        Value::Object(fields) => {
            for name in [
                "resourceSpans",
                "resource_spans",
                "scopeSpans",
                "scope_spans",
                "instrumentationLibrarySpans",
                "spans",
                "data",
            ] {
                if let Some(inner) = fields.get(name) {
                    collect(inner, spans);
                }
            }
            if let Some(attributes) = fields.get("attributes")
                && (fields.contains_key("name") || fields.contains_key("spanId"))
            {
                let start = ["startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime", "timestamp"];
                let start = start.iter().find_map(|name| milliseconds(fields.get(*name)?));
                let code = &value["status"]["code"];
                let id = ["spanId", "span_id", "id"].iter().find_map(|name| text(value, name));
                let id = id.or_else(|| text(&value["context"], "span_id"));
                spans.push(Span {
                    start: start.unwrap_or(0),
                    failed: code.as_u64() == Some(2) || code.as_str().is_some_and(|code| code.ends_with("ERROR")),
                    id: id.unwrap_or_default().to_owned(),
                    attributes: named(attributes),
                });
            }
        }
        _ => {}
    }
}

/// Attributes by name: OTLP lists them, exporters of libraries have an object.
pub(super) fn named(attributes: &Value) -> Map<String, Value> {
    match attributes {
        Value::Object(fields) => fields.clone(),
        Value::Array(all) => {
            let pairs = all.iter().filter_map(|one| {
                let value = &one["value"];
                let inner = ["stringValue", "intValue", "doubleValue", "boolValue"];
                let inner = inner.into_iter().find_map(|kind| value.get(kind));
                Some((text(one, "key")?.to_owned(), inner.unwrap_or(value).clone()))
            });
            pairs.collect()
        }
        _ => Map::new(),
    }
}

fn record(recorder: &mut Recorder, span: &Span) {
    recorder.time(Some(span.start));
    let operation = span.text(&["gen_ai.operation.name"]);
    if let Some(name) = span.text(&["gen_ai.agent.name"]) {
        recorder.agent(name.to_owned());
    }
    let tool = span.text(&["gen_ai.tool.name", "tool.name"]);
    if operation == Some("execute_tool") || operation.is_none() && tool.is_some() {
        let id = span.text(&["gen_ai.tool.call.id"]).unwrap_or(&span.id);
        let args = span.attributes.get("gen_ai.tool.call.arguments").map(arguments);
        recorder.call(id, tool.unwrap_or("unknown"), args.unwrap_or_default(), None);
        let shown = span.attributes.get("gen_ai.tool.call.result").map(content);
        recorder.result(id, shown.unwrap_or_default(), span.failed);
        return;
    }
    if matches!(operation, Some("invoke_agent" | "create_agent" | "embeddings"))
        || span.text(&["gen_ai.request.model", "gen_ai.response.model"]).is_none()
    {
        return;
    }
    messages(recorder, span, "gen_ai.system_instructions");
    messages(recorder, span, "gen_ai.input.messages");
    recorder.model(span.text(&["gen_ai.response.model", "gen_ai.request.model"]).unwrap_or_default());
    recorder.answer();
    messages(recorder, span, "gen_ai.output.messages");
    let read = span.count(&[
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.details.cache_read_input_tokens",
    ]);
    let write = span.count(&[
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.details.cache_creation_input_tokens",
    ]);
    let input = span.count(&["gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"]);
    recorder.usage(TokenUsage {
        // The convention counts cached tokens in the input; older libraries of Anthropic do not.
        uncached: input.checked_sub(read + write).unwrap_or(input),
        cache_read: read,
        cache_write_5m: write,
        output: span.count(&["gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"]),
        reasoning: span.count(&["gen_ai.usage.reasoning.output_tokens"]),
        ..TokenUsage::default()
    });
    recorder.end_answer();
}

/// Messages in an attribute. Each span repeats the conversation: calls and results count once by their identity, and the
/// user's messages only in the first span.
fn messages(recorder: &mut Recorder, span: &Span, attribute: &str) {
    let Some(value) = span.attributes.get(attribute) else {
        return;
    };
    let is_first = recorder.is_empty();
    for message in arguments(value).as_array().into_iter().flatten() {
        let role = text(message, "role").unwrap_or("system");
        let parts = match message["parts"].as_array() {
            Some(parts) => parts.iter().collect(),
            None => vec![message],
        };
        for part in parts {
            let said = text(part, "content").or_else(|| text(part, "text")).unwrap_or_default();
            match (role, text(part, "type")) {
                (_, Some("tool_call")) if attribute == "gen_ai.output.messages" => {
                    let id = text(part, "id").unwrap_or_default();
                    recorder.call(id, text(part, "name").unwrap_or("unknown"), arguments(&part["arguments"]), None);
                }
                (_, Some("tool_call_response")) => {
                    let id = text(part, "id").unwrap_or_default();
                    let shown = ["response", "result"].into_iter().find_map(|name| part.get(name));
                    recorder.result(id, shown.map(content).unwrap_or_default(), false);
                }
                ("system", _) => recorder.system(said),
                ("user", _) if is_first => recorder.user(said),
                ("assistant", Some("reasoning")) if attribute == "gen_ai.output.messages" => recorder.said("", said),
                ("assistant", _) if attribute == "gen_ai.output.messages" => recorder.said(said, ""),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{calls, imported, usages};
    use serde_json::json;

    #[test]
    fn spans_give_usage_and_the_calls_that_they_record() {
        let attributes = |pairs: Value| -> Vec<Value> {
            let pairs = pairs.as_object().unwrap().clone().into_iter();
            pairs
                .map(|(key, value)| {
                    let kind = if value.is_string() { "stringValue" } else { "intValue" };
                    json!({"key": key, "value": {kind: value}})
                })
                .collect()
        };
        let chat = json!({"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5.5", "gen_ai.usage.input_tokens": "100",
            "gen_ai.usage.cache_read.input_tokens": 40, "gen_ai.usage.output_tokens": 7});
        let tool = json!({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "read_file", "gen_ai.tool.call.id": "c1",
            "gen_ai.tool.call.arguments": "{\"path\":\"/w/p/a.txt\"}", "gen_ai.tool.call.result": "one\n"});
        let span = |id: &str, start: &str, pairs: &Value| json!({"name": "n", "spanId": id, "startTimeUnixNano": start, "attributes": attributes(pairs.clone())});
        let otlp = json!({"resourceSpans": [{"scopeSpans": [{"spans": [
            span("2", "1769000001000000000", &tool), span("1", "1769000000000000000", &chat)]}]}]});
        let flat: String =
            [&chat, &tool].iter().map(|pairs| format!("{}\n", json!({"name": "n", "attributes": pairs}))).collect();
        for text in [otlp.to_string(), serde_json::to_string_pretty(&otlp).unwrap(), flat] {
            let session = imported("otel", &text);
            assert_eq!(calls(&session), ["read_file read a.txt: whole one\n"]);
            assert_eq!(usages(&session), ["gpt-5.5 60+40 7"]);
        }
    }
}
