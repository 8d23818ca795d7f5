//! Importer for OpenHands' evaluation output (`output.jsonl`, V0 events), a session per row.
//! An action contains the model's answer that requested it, with the usage.
//! The following observation names the action as its cause.
//! Rows also contain the configuration with keys, which the importer does not read.

use serde_json::Value;

use super::mini_swe_agent::usage;
use super::{
    Clock, ImportedSession, Recorded, RecordedCall, RecordedResult, Replacement, SeenContent,
    shell_op, text,
};
use crate::trace::{CallError, Extra, MAIN_LANE, Op};

/// The directory of the repository in the sandbox.
const WORKSPACE: &str = "/workspace/";

/// Reads the sessions of a file, one per row.
///
/// # Errors
/// A message with the line of the first row that is not a session.
pub fn read(text: &str) -> Result<Vec<ImportedSession>, String> {
    let mut sessions = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let row: Value =
            serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        let history = row["history"].as_array();
        let history = history.ok_or_else(|| format!("line {number}: has no `history` list"))?;
        let mut reader = Reader::default();
        for event in history {
            reader.event(event);
        }
        if reader.apis == 0 {
            return Err(format!("line {number}: holds no answer of a model"));
        }
        sessions.push(reader.session);
    }
    if sessions.is_empty() {
        return Err("is empty".to_owned());
    }
    Ok(sessions)
}

#[derive(Default)]
struct Reader {
    session: ImportedSession,
    apis: u64,
    last_answer: String,
    clock: Clock,
}

impl Reader {
    fn event(&mut self, event: &Value) {
        let action = event["action"].as_str();
        match (action, event["source"].as_str()) {
            (Some("system"), _) => {
                self.session.agent = format!(
                    "openhands {}",
                    text(&event["args"], "openhands_version").unwrap_or("V0")
                );
                self.session.system = Some(content(&event["args"]));
            }
            (Some("message"), Some("user")) => {
                let text = content(&event["args"]);
                self.session.events.push(Recorded::User { text });
            }
            (Some(action), Some("agent")) => self.action(action, event),
            _ => {}
        }
        if event["observation"].is_string() {
            self.observation(event);
        }
    }

    fn action(&mut self, action: &str, event: &Value) {
        let metadata = &event["tool_call_metadata"];
        let response = &metadata["model_response"];
        let message = &response["choices"][0]["message"];
        let at = self.at(event);
        let answer = text(response, "id").unwrap_or_default();
        // An answer with several tool calls becomes several actions.
        if self.apis == 0 || answer.is_empty() || answer != self.last_answer {
            self.last_answer = answer.to_owned();
            self.apis += 1;
            if self.session.model.is_empty() {
                self.session.model = text(response, "model").unwrap_or_default().to_owned();
            }
            self.session.events.push(Recorded::Api {
                at,
                usage: usage(&response["usage"]),
                lane: MAIN_LANE.to_owned(),
                text: content(message),
                thinking: String::new(),
            });
        }
        let id = text(metadata, "tool_call_id");
        let asked = message["tool_calls"].as_array().into_iter().flatten();
        let function = asked
            .filter(|call| text(call, "id") == id)
            .map(|call| &call["function"])
            .next();
        let Some(function) = function else {
            return;
        };
        let arguments = text(function, "arguments").unwrap_or_default();
        let args = match serde_json::from_str(arguments) {
            Ok(Value::Object(fields)) => fields,
            _ => Extra::from_iter([("arguments".to_owned(), arguments.into())]),
        };
        let tool = text(function, "name").unwrap_or("unknown");
        let (id, op) = (number(&event["id"]), op(action, &event["args"]));
        self.session.events.push(Recorded::Call(RecordedCall {
            path: text(&event["args"], "path").and_then(inside),
            args,
            ..RecordedCall::new(id, self.apis - 1, tool, op, at)
        }));
    }

    fn observation(&mut self, event: &Value) {
        let shown = content(event);
        let failed = shown.starts_with("ERROR") || event["success"].as_bool() == Some(false);
        let extras = &event["extras"];
        let path = text(extras, "path").and_then(inside);
        let seen = match (event["observation"].as_str(), path) {
            _ if failed => SeenContent::Nothing,
            (Some("read"), Some(path)) => read_lines(path, &shown),
            (Some("edit"), Some(path)) => edited(path, extras),
            _ => SeenContent::Nothing,
        };
        self.session.events.push(Recorded::Result(RecordedResult {
            id: number(&event["cause"]),
            err: failed.then_some(CallError::Other),
            shown,
            seen,
        }));
    }

    /// Milliseconds since the first answer.
    fn at(&mut self, event: &Value) -> u64 {
        let time = text(event, "timestamp").and_then(|time| {
            let time: jiff::civil::DateTime = time.parse().ok()?;
            let zoned = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
            Some(zoned.timestamp().as_millisecond())
        });
        self.clock.at(time)
    }
}

/// Parses the output of `cat -n`: number, tab, line.
fn read_lines(path: String, shown: &str) -> SeenContent {
    let numbered: Vec<(u64, &str)> = shown
        .lines()
        .filter_map(|line| {
            let (number, text) = line.split_once('\t')?;
            Some((number.trim().parse().ok()?, text))
        })
        .collect();
    let Some((total_lines, _)) = numbered.last() else {
        return SeenContent::Nothing;
    };
    let total_lines = *total_lines;
    let lines: Vec<&str> = numbered.into_iter().map(|(_, text)| text).collect();
    SeenContent::Part {
        path,
        content: lines.join("\n"),
        total_lines,
    }
}

fn edited(path: String, extras: &Value) -> SeenContent {
    let Some(new) = text(extras, "new_content") else {
        return SeenContent::Nothing;
    };
    match text(extras, "old_content").filter(|old| !old.is_empty()) {
        Some(old) => SeenContent::Edited {
            path,
            before: Some(old.to_owned()),
            replacements: vec![Replacement {
                old: old.to_owned(),
                new: new.to_owned(),
                all: false,
            }],
        },
        None => SeenContent::Written {
            path,
            before: None,
            content: new.to_owned(),
        },
    }
}

fn op(action: &str, args: &Value) -> Op {
    match action {
        "read" => Op::Read,
        "edit" if text(args, "command") == Some("create") => Op::Write,
        "edit" => Op::Edit,
        "write" => Op::Write,
        "run" => shell_op(text(args, "command").unwrap_or_default()),
        "run_ipython" => Op::Exec,
        "think" => Op::Plan,
        "browse" | "browse_interactive" => Op::Net,
        "delegate" => Op::Agent,
        _ => Op::Other,
    }
}

fn inside(path: &str) -> Option<String> {
    let relative = path.strip_prefix(WORKSPACE)?.trim_end_matches('/');
    let is_plain = !relative.is_empty()
        && relative
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..");
    is_plain.then(|| relative.to_owned())
}

fn content(value: &Value) -> String {
    text(value, "content").unwrap_or_default().to_owned()
}

fn number(id: &Value) -> String {
    match id {
        Value::String(id) => id.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: &str, tool: &str, arguments: &str) -> Value {
        serde_json::json!({"tool_call_id": id, "function_name": tool, "model_response": {
            "id": id, "model": "m", "usage": {"prompt_tokens": 100, "completion_tokens": 5},
            "choices": [{"message": {"content": "I look.", "tool_calls": [
                {"id": id, "function": {"name": tool, "arguments": arguments}}]}}]}})
    }

    #[test]
    fn actions_and_observations_become_calls_and_results() {
        let row = serde_json::json!({"metadata": {"llm_config": {"api_key": "secret"}}, "history": [
            {"id": "0", "source": "agent", "action": "system", "args": {"content": "You are."}},
            {"id": "1", "source": "user", "action": "message", "args": {"content": "Fix it."}},
            {"id": 5, "source": "agent", "action": "read", "timestamp": "2025-04-30T16:00:00.5",
             "args": {"path": "/workspace/repo/a.c"}, "tool_call_metadata": answer("t1", "str_replace_editor", "{\"command\":\"view\"}")},
            {"id": 6, "source": "agent", "cause": 5, "observation": "read", "content": "Here:\n     1\tint x;\n     2\t\n", "extras": {"path": "/workspace/repo/a.c"}},
            {"id": 7, "source": "agent", "action": "edit", "timestamp": "2025-04-30T16:00:02.5",
             "args": {"path": "/workspace/repo/a.c", "command": "str_replace"}, "tool_call_metadata": answer("t2", "str_replace_editor", "broken")},
            {"id": 8, "source": "agent", "cause": 7, "observation": "edit", "content": "ERROR:\nno.", "extras": {"path": "/workspace/repo/a.c"}},
        ]});
        let sessions = read(&row.to_string()).unwrap();
        let session = &sessions[0];
        assert!(!format!("{session:?}").contains("secret"));
        assert_eq!(session.system.as_deref(), Some("You are."));
        let calls = session.calls().map(|call| (call.op, call.at));
        let expected = [(Op::Read, 0), (Op::Edit, 2000)];
        assert_eq!(calls.collect::<Vec<_>>(), expected);
        let mut paths = session.calls().map(|call| call.path.as_deref());
        assert!(paths.all(|path| path == Some("repo/a.c")));
        let results = session.results();
        let results =
            results.map(|result| (result.err, matches!(result.seen, SeenContent::Part { .. })));
        let expected = [(None, true), (Some(CallError::Other), false)];
        assert_eq!(results.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_session_becomes_a_trace_that_can_be_replayed_and_accounted_for() {
        use crate::import::{TraceOrigin, trace};
        use crate::trace::{Fidelity, TraceSource};
        let edit = |id: u64, command: &str| {
            serde_json::json!({"id": id, "source": "agent", "action": "edit", "args": {"path": "/workspace/repo/a.c", "command": command},
                "tool_call_metadata": answer(&format!("t{id}"), "str_replace_editor", "{}")})
        };
        let edited = |cause: u64, old: &str, new: &str| {
            serde_json::json!({"id": cause + 1, "source": "agent", "cause": cause, "observation": "edit", "content": "Done.",
                "extras": {"path": "/workspace/repo/a.c", "old_content": old, "new_content": new}})
        };
        let row = serde_json::json!({"history": [
            {"id": 1, "source": "user", "action": "message", "args": {"content": "Fix it."}},
            edit(2, "create"), edited(2, "", "one\n"),
            edit(4, "str_replace"), edited(4, "one\n", "two\n"),
            // These edits do something else than their commands say.
            edit(6, "insert"), edited(6, "", "three\n"),
            edit(8, "create"), edited(8, "three\n", "four\n"),
        ]});
        let session = &read(&row.to_string()).unwrap()[0];
        let source = TraceSource {
            format: "openhands".to_owned(),
            repo: None,
            commit: None,
            path: "o.jsonl".to_owned(),
            sha256: "0".to_owned(),
            licence: None,
        };
        let id = "o".to_owned();
        let (trace, _) = trace(session, &TraceOrigin { id, source }, Fidelity::Shape);
        let script = crate::compile::compile(std::path::Path::new("o"), &trace).unwrap();
        let replayed: Vec<_> = script.calls.iter().filter_map(|call| call.kind).collect();
        assert_eq!(replayed.len(), 2, "{replayed:?}");
        let conversation = crate::conversation::of_trace(&trace).unwrap();
        assert_eq!(conversation.steps.len(), 4);
        assert_eq!(conversation.steps[0].reported.unwrap().prompt, 100);
    }

    #[test]
    fn a_row_that_is_no_session_is_refused_with_its_line() {
        assert!(read("").is_err());
        assert!(
            read("{}\n")
                .unwrap_err()
                .contains("line 1: has no `history`")
        );
        assert!(read("{\"history\":[]}").unwrap_err().contains("line 1"));
        assert!(read("x").unwrap_err().starts_with("line 1"));
    }
}
