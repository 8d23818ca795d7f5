//! Importer for transcripts of MCP servers of files: JSON-RPC messages, one a line, alone or in the record of a log.

use std::collections::HashMap;
use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::{content, milliseconds};
use super::messages::is_failed;
use super::recorder::Recorder;
use super::records::each_line;
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
        let places = [
            "",
            "message.",
            "payload.",
            "data.",
            "params.",
            "msg.",
            "body.",
            "request.",
            "response.",
        ];
        let has = |place: &&str| head.has(&format!("{place}jsonrpc"));
        places.iter().any(has)
            || head.text.contains("{\"jsonrpc\":")
            || head.text.contains("{\"method\":\"tools/call\"")
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut reader = Reader {
            recorder: Recorder::without_model("an MCP client"),
            open: HashMap::new(),
        };
        let text = super::json::whole(recording)?;
        if let Ok(Value::Array(all)) = serde_json::from_str::<Value>(&text) {
            all.iter().for_each(|record| reader.record(record));
        } else {
            // In a log, words may stand before a message.
            let messages: Vec<&str> = text
                .lines()
                .map(|line| line.find('{').map_or(line, |at| &line[at..]))
                .collect();
            let messages = messages.join("\n");
            let lost = each_line(&mut messages.as_bytes(), |record| reader.record(&record))?;
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
    fn record(&mut self, record: &Value) {
        let time = ["timestamp", "time", "ts"]
            .into_iter()
            .find_map(|name| record.get(name));
        self.recorder.time(time.and_then(milliseconds));
        let Some(message) = inner(record, 0) else {
            return;
        };
        if let Value::Array(all) = message {
            all.iter().for_each(|one| self.message(one));
        } else {
            self.message(message);
        }
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
                let id = self.recorder.new_id(&key);
                let name = text(params, "name").unwrap_or("unknown");
                self.recorder
                    .call(&id, name, params["arguments"].clone(), None);
                self.open.insert(key, id);
            }
            Some(_) => {}
            None => {
                let roots = message["result"]["roots"].as_array().into_iter().flatten();
                for root in roots {
                    let uri = text(root, "uri").unwrap_or_default();
                    self.recorder
                        .directory(uri.strip_prefix("file://").unwrap_or(uri));
                }
                let Some(id) = self.open.remove(&key) else {
                    return;
                };
                let result = &message["result"];
                let error = &message["error"];
                match error.is_object() {
                    true => self.recorder.result(&id, content(&error["message"]), true),
                    false => {
                        self.recorder
                            .result(&id, content(&result["content"]), is_failed(result))
                    }
                }
            }
        }
    }
}

/// The JSON-RPC message in a record.
fn inner(record: &Value, depth: usize) -> Option<&Value> {
    if record["jsonrpc"].is_string()
        || record["method"].is_string() && record.get("params").is_some()
    {
        return Some(record);
    }
    if let Value::Array(all) = record {
        return all
            .iter()
            .any(|one| one["jsonrpc"].is_string())
            .then_some(record);
    }
    if depth > 3 {
        return None;
    }
    record
        .as_object()?
        .values()
        .find_map(|value| inner(value, depth + 1))
}

#[cfg(test)]
mod tests {
    use crate::import::testing::{calls, imported};

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
        let wrapped: String = messages
            .lines()
            .map(|line| format!("{{\"direction\":\"in\",\"message\":{line}}}\n"))
            .collect();
        let logged: String = messages
            .lines()
            .map(|line| format!("2026-01-01T00:00:00Z [files] info: {line}\n"))
            .collect();
        for text in [messages, &wrapped, &logged] {
            let session = imported("mcp", text);
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
}
