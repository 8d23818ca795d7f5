//! Importer for OpenAI's Responses API: a response, a list of its items, or logged calls with request and response. Each
//! request may repeat the conversation; what was read before is not read again.

use std::io::BufRead;

use serde_json::{Value, json};

use super::detect::Head;
use super::json::{arguments, content, milliseconds};
use super::messages::{is_failed, usage};
use super::recorder::{Answer, Recorder};
use super::records::each_document;
use super::{ImportedSession, Importer, text};

/// OpenAI's Responses API.
#[derive(Debug)]
pub struct Responses;

/// Where a request may be in a logged call.
const REQUESTS: [&str; 4] = ["", "/request", "/request/body", "/body"];

/// Where a response may be.
const RESPONSES: [&str; 4] = ["", "/response", "/response/body", "/output"];

impl Importer for Responses {
    fn id(&self) -> &'static str {
        "openai-responses"
    }

    fn reads(&self) -> &'static str {
        "OpenAI's Responses API: responses, lists of items, and logged calls (`input`, `output`)"
    }

    fn detects(&self, head: &Head) -> bool {
        let is_response = RESPONSES.iter().any(|place| {
            let field = format!("{place}/object");
            head.is(&field[1..].replace('/', "."), "response")
        });
        let lists = ["", "input.", "output.", "request.input.", "request.body.input.", "body.input."];
        let has_items = lists.iter().any(|list| {
            let kinds = ["function_call", "function_call_output"];
            head.has(&format!("{list}call_id")) && kinds.iter().any(|kind| head.is(&format!("{list}type"), kind))
        });
        is_response || has_items
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut reader = Reader { recorder: Recorder::new("unknown agent"), read: Vec::new() };
        let lost = each_document(recording, |record| reader.any(&record))?;
        reader.recorder.unreadable(lost);
        Ok(vec![reader.recorder.finish()])
    }
}

struct Reader {
    recorder: Recorder,
    /// The items of the last request, as texts.
    read: Vec<String>,
}

impl Reader {
    fn any(&mut self, record: &Value) {
        match record {
            Value::Array(all) if all.iter().any(is_exchange) => {
                all.iter().for_each(|one| self.exchange(one));
            }
            Value::Array(all) => all.iter().for_each(|one| self.item(one)),
            one if is_exchange(one) => self.exchange(one),
            one => self.item(one),
        }
    }

    /// A response, or a request with its response.
    fn exchange(&mut self, record: &Value) {
        let created = ["created_at", "timestamp", "time", "ts"];
        let time = created.into_iter().find_map(|name| record.get(name));
        self.recorder.time(time.and_then(milliseconds));
        let at = |places: &[&str], field: &str| {
            let found = places.iter().filter_map(|place| record.pointer(place)).find_map(|place| place.get(field));
            found.cloned().unwrap_or_default()
        };
        self.recorder.system(at(&REQUESTS, "instructions").as_str().unwrap_or_default());
        let input = match at(&REQUESTS, "input") {
            Value::String(said) => vec![json!({ "role": "user", "content": said })],
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        let known = input.iter().zip(&self.read).take_while(|(item, read)| item.to_string() == **read).count();
        // A request repeats the conversation, or has only what follows the last response.
        let repeats = known > 0;
        for item in input.iter().skip(known) {
            if !(repeats && is_answer(item)) {
                self.item(item);
            }
        }
        self.recorder.model(at(&REQUESTS, "model").as_str().unwrap_or_default());
        let response =
            RESPONSES.iter().filter_map(|place| record.pointer(place)).find(|place| place["output"].is_array());
        self.read = input.iter().map(Value::to_string).collect();
        let Some(response) = response else {
            return;
        };
        self.recorder.model(text(response, "model").unwrap_or_default());
        self.recorder.answer();
        for item in response["output"].as_array().into_iter().flatten() {
            self.item(item);
        }
        self.recorder.usage(usage(&response["usage"]));
        self.recorder.end_answer();
    }

    fn item(&mut self, item: &Value) {
        let recorder = &mut self.recorder;
        let id = text(item, "call_id").or_else(|| text(item, "id")).unwrap_or_default();
        match (text(item, "type"), text(item, "role")) {
            (Some("reasoning"), _) => {
                let thinking = content(&item["summary"]) + &content(&item["content"]);
                recorder.said("", &thinking);
            }
            (Some("function_call" | "custom_tool_call" | "mcp_call"), _) => {
                let args = item.get("arguments").or_else(|| item.get("input"));
                let args = args.map(arguments).unwrap_or_default();
                recorder.call(id, text(item, "name").unwrap_or("unknown"), args, None);
                // A server's tool has its result beside its arguments.
                if let Some(output) = text(item, "output").or_else(|| text(item, "error")) {
                    let answer =
                        Answer { shown: output.to_owned(), failed: text(item, "error").is_some(), ..Answer::default() };
                    recorder.answered_at_end(id, answer);
                }
            }
            (Some("local_shell_call" | "shell_call"), _) => {
                let action = &item["action"];
                let dir = text(action, "working_directory");
                let command = match (action["command"].as_array(), action["commands"].as_array()) {
                    (Some(_), _) => action["command"].clone(),
                    (None, Some(lines)) => {
                        let lines = lines.iter().filter_map(Value::as_str);
                        lines.collect::<Vec<_>>().join("\n").into()
                    }
                    (None, None) => Value::Null,
                };
                recorder.call(id, "shell", json!({ "command": command }), dir);
            }
            (
                Some(
                    "function_call_output"
                    | "custom_tool_call_output"
                    | "local_shell_call_output"
                    | "shell_call_output"
                    | "apply_patch_call_output",
                ),
                _,
            ) => {
                let output = &item["output"];
                let parts = output.as_array().into_iter().flatten();
                let printed: Vec<&str> = parts
                    .clone()
                    .flat_map(|part| [text(part, "stdout"), text(part, "stderr")])
                    .flatten()
                    .filter(|text| !text.is_empty())
                    .collect();
                let code = |part: &Value| part["outcome"]["exit_code"].as_i64();
                let has_failed = parts.clone().any(|part| code(part).is_some_and(|code| code != 0));
                let shown = match printed[..] {
                    [] => content(output),
                    _ => printed.concat(),
                };
                let is_incomplete = text(item, "status") == Some("failed");
                recorder.result(id, shown, has_failed || is_incomplete || is_failed(item));
            }
            (Some(kind), _) if kind.ends_with("_call") => {
                let args = ["action", "operation", "queries", "code"].into_iter().find_map(|name| item.get(name));
                recorder.call(id, kind, args.cloned().unwrap_or_default(), None);
            }
            (Some("compaction"), _) => recorder.compact(0),
            (_, Some("assistant")) => recorder.said(&content(&item["content"]), ""),
            (_, Some("system" | "developer")) => recorder.system(&content(&item["content"])),
            (_, Some("user")) => recorder.user(&content(&item["content"])),
            _ => {}
        }
    }
}

/// Whether a record is a response, or holds a request or a response.
fn is_exchange(record: &Value) -> bool {
    let has = |places: &[&str], field: &str, is: fn(&Value) -> bool| {
        let mut places = places.iter().filter_map(|place| record.pointer(place));
        places.any(|place| is(&place[field]))
    };
    let is_input = |value: &Value| value.is_array() || value.is_string();
    let is_item = text(record, "type").is_some_and(|kind| kind.contains("_call"));
    !is_item && (has(&RESPONSES, "output", Value::is_array) || has(&REQUESTS, "input", is_input))
}

/// Whether an item is of the model's answer, which the response before had.
fn is_answer(item: &Value) -> bool {
    let kind = text(item, "type").unwrap_or_default();
    text(item, "role") == Some("assistant") || kind == "reasoning" || kind.ends_with("_call")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{calls, imported, usages};

    fn items() -> [Value; 4] {
        [
            json!({"role": "user", "content": "What is in a.txt?"}),
            json!({"type": "function_call", "call_id": "call_1", "id": "fc_1", "name": "read_file", "arguments": "{\"path\":\"/w/p/a.txt\"}"}),
            json!({"type": "function_call_output", "call_id": "call_1", "output": "one\n"}),
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One."}]}),
        ]
    }

    fn response(output: &[Value], input: u64) -> Value {
        json!({"id": "resp_1", "object": "response", "created_at": 1_769_000_000, "model": "gpt-5.5", "output": output,
            "usage": {"input_tokens": input, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": input + 7}})
    }

    #[test]
    fn logged_calls_that_repeat_the_conversation_give_each_part_of_it_once() {
        let [user, call, result, said] = items();
        let logged = [
            json!({"request": {"model": "gpt-5.5", "instructions": "Be short.", "input": [user]}, "response": response(std::slice::from_ref(&call), 100)}),
            json!({"request": {"model": "gpt-5.5", "input": [user, call, result]}, "response": response(&[said], 140)}),
        ];
        let lines: String = logged.iter().map(|one| format!("{one}\n")).collect();
        for text in [lines, serde_json::to_string_pretty(&logged).unwrap()] {
            let session = imported("openai-responses", &text);
            assert_eq!(calls(&session), ["read_file read a.txt: whole one\n"]);
            assert_eq!(usages(&session), ["gpt-5.5 60+40 7", "gpt-5.5 100+40 7"]);
            assert_eq!(session.system.as_deref(), Some("Be short."));
            let users = session.events.iter();
            let users = users.filter(|event| matches!(event, super::super::RecordedEvent::User { .. }));
            assert_eq!(users.count(), 1, "{text}");
        }
    }

    #[test]
    fn a_response_and_a_list_of_items_give_their_calls() {
        let [user, call, result, said] = items();
        let list = json!([user, call, result, said]).to_string();
        assert_eq!(calls(&imported("openai-responses", &list)), ["read_file read a.txt: whole one\n"]);
        let shell = json!({"type": "local_shell_call", "call_id": "s1", "action": {"type": "exec", "command": ["bash", "-lc", "ls"], "working_directory": "/w/p"}});
        let one = response(&[call, shell], 100).to_string();
        let session = imported("openai-responses", &one);
        assert_eq!(calls(&session), ["read_file read a.txt", "shell exec: ls in /w/p"]);
        assert_eq!(usages(&session), ["gpt-5.5 60+40 7"]);
    }
}
