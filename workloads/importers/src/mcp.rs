//! Importer for transcripts of MCP servers of files: JSON-RPC messages, one a line, alone or in the record of a log.

use std::collections::HashMap;
use std::io::BufRead;

use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value, json};

use super::detect::Head;
use super::json::{arguments, content, milliseconds};
use super::messages::is_failed;
use super::recorder::Recorder;
use super::records::{Damage, document};
use super::{ImportedSession, Importer, text};

/// Model Context Protocol.
#[derive(Debug)]
pub struct Mcp;

impl Importer for Mcp {
    fn id(&self) -> &'static str {
        "mcp"
    }

    fn reads(&self) -> &'static str {
        "transcripts of MCP servers: JSON-RPC messages, one a line"
    }

    fn lacks(&self) -> Option<&'static str> {
        Some("the model's answers and usage, which an MCP server does not see")
    }

    fn detects(&self, head: &Head) -> bool {
        let places = ["", "message.", "payload.", "data.", "params.", "msg.", "body.", "request.", "response."];
        let has = |place: &&str| head.has(&format!("{place}jsonrpc"));
        places.iter().any(has)
            || head.text.contains("{\"jsonrpc\":")
            || head.text.contains("{\"method\":\"tools/call\"")
            || head.begins("request", r#"{\"method\":\"tools/"#)
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut reader = Reader { recorder: Recorder::without_model("an MCP client"), open: HashMap::new() };
        let text = super::json::whole(recording)?;
        if let Ok(Value::Array(all)) = serde_json::from_str::<Value>(&text) {
            for record in &all {
                reader.record(record);
            }
        } else {
            let mut lost = Damage::default();
            text.lines().for_each(|line| reader.line(line, &mut lost));
            reader.recorder.unreadable(lost);
        }
        Ok(vec![reader.recorder.finish()])
    }
}

struct Reader {
    recorder: Recorder,
    /// The identity of each request that has no answer yet: an MCP session counts its own.
    open: HashMap<String, String>,
}

impl Reader {
    /// A line of a transcript or of a log, in which words may stand before, between and after messages.
    fn line(&mut self, line: &str, lost: &mut Damage) {
        let Some(first) = line.find('{') else {
            return;
        };
        let word = line[..first].split_whitespace().next().unwrap_or_default();
        self.recorder.time(milliseconds(&Value::from(word)));
        let (mut rest, mut is_read) = (&line[first..], false);
        if line.contains("\\u")
            && let Ok(record) = document(rest.as_bytes())
        {
            // Half a character of a message may have been replaced.
            lost.mended += u64::from(serde_json::from_str::<IgnoredAny>(rest).is_err());
            self.record(&record);
            return;
        }
        loop {
            let mut records = Deserializer::from_str(rest).into_iter::<Value>();
            if let Some(Ok(record)) = records.next() {
                rest = &rest[records.byte_offset()..];
                is_read |= self.record(&record);
            } else {
                rest = rest.get(1..).unwrap_or_default();
            }
            let Some(next) = rest.find("{\"") else {
                break;
            };
            rest = &rest[next..];
        }
        let is_message = line.contains("\"jsonrpc\"") || line.contains("\"method\"");
        lost.unreadable += u64::from(!is_read && is_message);
    }

    /// Reads the messages of a record. Returns whether it has any.
    fn record(&mut self, record: &Value) -> bool {
        let time = ["timestamp", "time", "ts"].into_iter().find_map(|name| record.get(name));
        self.recorder.time(time.and_then(milliseconds));
        let mut messages = Vec::new();
        inner(record, 0, &mut messages);
        // The history of MCP Inspector has pairs of a request and its result, in texts and without an identity.
        let [request, response] = [&record["request"], &record["response"]].map(arguments);
        if text(&request, "method") == Some("tools/call") && request.get("jsonrpc").is_none() {
            self.message(&request);
            let answer = match response.get("error") {
                Some(_) => response.clone(),
                None => json!({ "result": response }),
            };
            self.message(&answer);
            return true;
        }
        let has_messages = !messages.is_empty();
        messages.into_iter().for_each(|one| self.message(one));
        has_messages
    }

    fn message(&mut self, message: &Value) {
        let key = message["id"].to_string();
        let params = &message["params"];
        match text(message, "method") {
            Some("initialize") => {
                let client = &params["clientInfo"];
                if let Some(name) = text(client, "name") {
                    let version = text(client, "version").unwrap_or_default();
                    self.recorder.agent(format!("{name} {version} (MCP)"));
                }
            }
            Some("tools/call") => {
                let name = text(params, "name").unwrap_or("unknown");
                let id = self.recorder.new_call(&key, name, params["arguments"].clone(), None);
                self.open.insert(key, id);
            }
            Some(_) => {}
            None => {
                let roots = message["result"]["roots"].as_array().into_iter().flatten();
                for root in roots {
                    let uri = text(root, "uri").unwrap_or_default();
                    self.recorder.directory(uri.strip_prefix("file://").unwrap_or(uri));
                }
                let result = &message["result"];
                // The answers to other requests have no content.
                let Some(id) = self.open.remove(&key).or_else(|| result["content"].is_array().then_some(key)) else {
                    return;
                };
                let error = &message["error"];
                if error.is_object() {
                    self.recorder.result(&id, content(&error["message"]), true)
                } else {
                    self.recorder.result(&id, content(&result["content"]), is_failed(result))
                }
            }
        }
    }
}

/// The JSON-RPC messages in a record, in their order.
fn inner<'a>(record: &'a Value, depth: usize, messages: &mut Vec<&'a Value>) {
    let is_message = record["jsonrpc"].is_string() || record["method"].is_string() && record.get("params").is_some();
    match record {
        _ if is_message => messages.push(record),
        Value::Array(all) => {
            messages.extend(all.iter().filter(|one| one["jsonrpc"].is_string()));
        }
        Value::Object(fields) if depth <= 3 => {
            for value in fields.values() {
                inner(value, depth + 1, messages);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{calls, coverage, imported};
    use serde_json::json;

    #[test]
    fn every_tool_of_the_file_server_that_works_on_files_is_replayed() {
        let calls = [
            ("read_text_file", json!({"path": "/w/p/a.txt"}), "one\n"),
            ("write_file", json!({"path": "/w/p/b.txt", "content": "two\n"}), "Successfully wrote"),
            (
                "read_multiple_files",
                json!({"paths": ["/w/p/a.txt", "/w/p/b.txt", "/w/p/c.txt"]}),
                "/w/p/a.txt:\none\n\n---\n/w/p/b.txt:\ntwo\n\n---\n/w/p/c.txt: Error - ENOENT",
            ),
            ("create_directory", json!({"path": "/w/p/d"}), "Successfully created"),
            ("move_file", json!({"source": "/w/p/a.txt", "destination": "/w/p/d/it's.txt"}), "Successfully moved"),
            ("get_file_info", json!({"path": "/w/p/d/it's.txt"}), "size: 4"),
        ];
        let mut text = String::new();
        for (id, (name, arguments, shown)) in calls.into_iter().enumerate() {
            let params = json!({"name": name, "arguments": arguments});
            text += &format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
            let result = json!({"content": [{"type": "text", "text": shown}]});
            text += &format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "result": result}));
        }
        let coverage = coverage(&imported("mcp", &text));
        assert_eq!((coverage.recorded, coverage.file_work, coverage.replayed), (6, 6, 6), "{:?}", coverage.causes);
    }

    #[test]
    fn messages_alone_or_in_a_log_give_the_calls_of_a_file_server() {
        let messages = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":{"name":"agent","version":"1"}}}
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"/w/p/a.txt"}}}
{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"one\n"}]}}
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"edit_file","arguments":{"path":"/w/p/a.txt","edits":[{"oldText":"one","newText":"1"}]}}}
{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"diff"}]}}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"/w/p/d/none"}}}
{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"ENOENT: no such file"}],"isError":true}}
"#;
        let wrapped: String =
            messages.lines().map(|line| format!("{{\"direction\":\"in\",\"message\":{line}}}\n")).collect();
        let logged: String =
            messages.lines().map(|line| format!("2026-01-01T00:00:00Z [files] info: {line}\n")).collect();
        // Claude Desktop writes words behind each message, and may begin no line between two.
        let described = |end: &str| -> String {
            let line = |line: &str| {
                format!("2026-01-01T00:00:00Z [files] [info] Message: {line} {{ metadata: undefined }}{end}")
            };
            messages.lines().map(line).collect::<String>() + "Server began {\n"
        };
        for text in [messages, &wrapped, &logged, &described("\n"), &described(" ")] {
            let session = imported("mcp", text);
            assert_eq!((session.unreadable_lines, session.mended_lines), (0, 0), "{text}");
            assert_eq!(session.agent, "agent 1 (MCP)");
            assert_eq!(
                calls(&session),
                [
                    "read_text_file read a.txt: whole one\n",
                    "edit_file edit a.txt: 1 replacements",
                    "read_text_file read d/none (NotFound)",
                ]
            );
        }
    }

    #[test]
    fn a_response_without_its_request_is_counted() {
        let response = |id: u64, result: serde_json::Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
        let listed = response(1, json!({"tools": []}));
        let shown = response(2, json!({"content": [{"type": "text", "text": "one"}]}));
        let request =
            json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "x", "arguments": {}}});
        assert_eq!(imported("mcp", &format!("{listed}\n{shown}\n{request}\n")).results_without_call, 1);
    }

    #[test]
    fn the_list_of_allowed_directories_gives_the_roots() {
        let mut text = String::new();
        for (id, (name, args, shown)) in [
            ("list_allowed_directories", json!({}), "Allowed directories:\n/w/p\n/srv/x"),
            ("read_text_file", json!({"path": "/w/p/d/a.txt"}), "one\n"),
            ("read_text_file", json!({"path": "/srv/x/b.txt"}), "two\n"),
        ]
        .into_iter()
        .enumerate()
        {
            let params = json!({"name": name, "arguments": args});
            text += &format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
            let result = json!({"content": [{"type": "text", "text": shown}]});
            text += &format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "result": result}));
        }
        let expected =
            ["read_text_file read d/a.txt: whole one\n", "read_text_file read .roots/srv/x/b.txt: whole two\n"];
        assert_eq!(calls(&imported("mcp", &text))[1..], expected);
    }

    #[test]
    fn a_record_with_a_request_and_its_response_gives_one_call() {
        let call = serde_json::json!({"method": "tools/call", "params": {"name": "read_text_file", "arguments": {"path": "/w/p/a.txt"}}});
        let result = serde_json::json!({"content": [{"type": "text", "text": "one\n"}]});
        let mut request = call.clone();
        request["jsonrpc"] = "2.0".into();
        request["id"] = 7.into();
        let response = serde_json::json!({"jsonrpc": "2.0", "id": 7, "result": result});
        for pair in [
            serde_json::json!({"request": request, "response": response}),
            serde_json::json!({"request": call.to_string(), "response": result.to_string()}),
        ] {
            let text = serde_json::json!([pair]).to_string();
            let session = imported("mcp", &text);
            assert_eq!(calls(&session), ["read_text_file read a.txt: whole one\n"], "{text}");
        }
    }
}
