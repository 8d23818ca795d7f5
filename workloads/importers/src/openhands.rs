//! Importer for OpenHands: evaluation output (`output.jsonl`, a session a row), and lists or lines of events, V0 and V1.
//! An action contains the model's answer that requested it, or its identity. An observation names its action.
//! Rows also contain the configuration with keys, which the importer does not read.

use std::collections::HashMap;
use std::io::BufRead;

use serde_json::{Value, json};

use super::detect::Head;
use super::json::{arguments, content, milliseconds, token_count};
use super::messages::usage;
use super::recorder::{Answer, Recorder};
use super::records::each_document;
use super::{ImportedSession, Importer, ReportedTotal, text};
use shell::path::is_absolute;
use shell::{Platform, ShellCommand, ShellDirectory};

/// OpenHands.
#[derive(Debug)]
pub struct OpenHands;

impl Importer for OpenHands {
    fn id(&self) -> &'static str {
        "openhands"
    }

    fn reads(&self) -> &'static str {
        "OpenHands evaluation output (`output.jsonl`), and its events (V0, V1)"
    }

    fn detects(&self, head: &Head) -> bool {
        let is_event = |base: &str| {
            let is = |field: &str, value: &str| head.is(&format!("{base}{field}"), value);
            is("source", "agent") && (head.has(&format!("{base}observation")) || head.has(&format!("{base}action")))
                || is("kind", "ActionEvent")
                || is("kind", "ObservationEvent")
        };
        // The first versions wrote the arguments beside the action, and no source.
        let is_old = head.is("history.observation", "run") && head.has("history.action");
        is_old || is_event("history.") || is_event("") || is_event("events.") || is_event("trajectory.")
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut sessions = Vec::new();
        let mut events = Reader::new();
        let mut each = |record: &Value| {
            let all = ["history", "events", "trajectory"].into_iter().find_map(|name| record[name].as_array());
            match all {
                Some(all) => {
                    let mut reader = Reader::new();
                    for event in all {
                        // Older rows hold pairs of an action and its observation.
                        match event.as_array() {
                            Some(pair) => pair.iter().for_each(|event| reader.event(event)),
                            None => reader.event(event),
                        }
                    }
                    reader.totals(&record["metrics"]);
                    sessions.push(reader.recorder.finish());
                }
                None => events.event(record),
            }
        };
        let lost = each_document(recording, |record| match record {
            Value::Array(all) => all.iter().for_each(&mut each),
            record => each(&record),
        })?;
        events.recorder.unreadable(lost);
        if !events.recorder.is_empty() {
            sessions.push(events.recorder.finish());
        }
        // A row that holds no event costs that row.
        sessions.retain(|session| !session.events.is_empty());
        if sessions.is_empty() { Err("holds no event of a session".to_owned()) } else { Ok(sessions) }
    }
}

struct Reader {
    recorder: Recorder,
    last_answer: String,
    /// The identity of the call of each action.
    calls: HashMap<String, String>,
    /// Whether the agent has acted.
    has_acted: bool,
    /// The shell, which stays open.
    shell: ShellDirectory,
    /// The commands without a result, by the key of their action.
    commands: HashMap<String, ShellCommand>,
}

/// The tools that run a command in the shell.
const SHELLS: [&str; 4] = ["execute_bash", "bash", "terminal", "run"];

/// The key of the last action, in rows that do not number them.
const LAST: &str = "last";

impl Reader {
    fn new() -> Self {
        Self {
            recorder: Recorder::new("openhands V0"),
            last_answer: String::new(),
            calls: HashMap::new(),
            has_acted: false,
            shell: ShellDirectory::default(),
            commands: HashMap::new(),
        }
    }

    fn event(&mut self, event: &Value) {
        self.recorder.time(milliseconds(&event["timestamp"]));
        if event["kind"].is_string() {
            return self.event_of_v1(event);
        }
        let is_old = event["source"].is_null();
        let source = match text(event, "action") {
            Some("message") if is_old && !self.has_acted => Some("user"),
            _ if is_old => Some("agent"),
            _ => text(event, "source"),
        };
        let args = if event["args"].is_null() { event } else { &event["args"] };
        match (text(event, "action"), source) {
            (Some("system"), _) => {
                let version = text(args, "openhands_version").unwrap_or("V0");
                self.recorder.agent(format!("openhands {version}"));
                self.recorder.system(text(args, "content").unwrap_or_default());
            }
            (Some("message"), Some("user")) => {
                self.recorder.user(text(args, "content").unwrap_or_default());
            }
            (Some("recall" | "condensation" | "change_agent_state" | "null"), _) => {}
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
        let args = if event["args"].is_null() { event } else { &event["args"] };
        self.has_acted = true;
        // An answer with several tool calls becomes several actions.
        let answer = text(response, "id").unwrap_or_default();
        if answer.is_empty() || answer != self.last_answer {
            answer.clone_into(&mut self.last_answer);
            self.recorder.model(text(response, "model").unwrap_or_default());
            self.recorder.answer();
            let said = text(message, "content").or_else(|| text(args, "thought")).or_else(|| text(args, "content"));
            self.recorder.said(said.unwrap_or_default(), "");
            self.recorder.usage(usage(&response["usage"]));
        }
        if matches!(action, "message" | "finish" | "reject") && !metadata.is_object() {
            return;
        }
        let asked = message["tool_calls"].as_array().into_iter().flatten();
        let id = text(metadata, "tool_call_id");
        let function = asked.filter(|call| text(call, "id") == id).map(|call| &call["function"]).next();
        let mut given = function.map_or_else(|| args.clone(), |function| arguments(&function["arguments"]));
        if !given.is_object() {
            given = json!({ "arguments": given });
        }
        for name in ["path", "command"] {
            if given[name].is_null() && args[name].is_string() {
                given[name] = args[name].clone();
            }
        }
        let tool = function.and_then(|function| text(function, "name")).unwrap_or(match action {
            "run" => "execute_bash",
            "edit" => "str_replace_editor",
            action => action,
        });
        let key = match &event["id"] {
            // The next observation is the answer.
            Value::Null => LAST.to_owned(),
            id => number(id),
        };
        let dir = self.begin_command(&key, tool, &given);
        let call = self.recorder.new_call(&key, tool, given, dir.as_deref());
        self.calls.insert(key, call);
    }

    fn observation(&mut self, event: &Value) {
        let key = match &event["cause"] {
            Value::Null if event["id"].is_null() => LAST.to_owned(),
            cause => number(cause),
        };
        let Some(call) = self.calls.get(&key).cloned() else {
            return;
        };
        let shown = text(event, "content").unwrap_or_default().to_owned();
        let extras = &event["extras"];
        // The agent's editor states the replaced text and the new one, unless it says that the file existed.
        let is_replacement = text(extras, "impl_source") == Some("oh_aci") && extras["prev_exist"] != true;
        let by_model = text(extras, "impl_source") == Some("llm_based_edit");
        let file = |name: &str| text(extras, name).filter(|_| !is_replacement).map(str::to_owned);
        let code = extras["metadata"]["exit_code"]
            .as_i64()
            .or_else(|| extras["exit_code"].as_i64())
            .or_else(|| event["exit_code"].as_i64());
        let failed = shown.starts_with("ERROR")
            || event["success"].as_bool() == Some(false)
            || code.is_some_and(|code| code != 0)
            || text(event, "observation") == Some("error");
        self.end_command(&key, &shown, !failed, &extras["metadata"]);
        self.recorder.answered(
            &call,
            Answer {
                printed: code.map(|_| unframed(&shown)),
                shown,
                failed,
                before: file("old_content").filter(|old| !old.is_empty()),
                // The editor with a model of its own ends the file with a line end, and does not state it.
                after: file("new_content").map(|new| if by_model && !new.ends_with('\n') { new + "\n" } else { new }),
                ..Answer::default()
            },
        );
    }

    fn event_of_v1(&mut self, event: &Value) {
        let action = &event["action"];
        let observation = &event["observation"];
        match text(event, "kind") {
            Some("SystemPromptEvent") => {
                self.recorder.agent("openhands V1".to_owned());
                self.recorder.system(&content(&event["system_prompt"]));
            }
            Some("MessageEvent") => {
                let message = &event["llm_message"];
                let said = content(&message["content"]);
                match text(message, "role") {
                    Some("assistant") => self.recorder.said(&said, ""),
                    _ => self.recorder.user(&said),
                }
            }
            Some("ActionEvent") => {
                let answer = text(event, "llm_response_id").unwrap_or_default();
                if answer.is_empty() || answer != self.last_answer {
                    answer.clone_into(&mut self.last_answer);
                    self.recorder.answer();
                    let thinking = text(event, "reasoning_content").unwrap_or_default();
                    self.recorder.said(&content(&event["thought"]), thinking);
                }
                let call = &event["tool_call"];
                let function = if call["function"].is_object() { &call["function"] } else { call };
                let tool = text(event, "tool_name").or_else(|| text(function, "name"));
                let args = match &function["arguments"] {
                    Value::Null => action.clone(),
                    args => arguments(args),
                };
                let id = text(event, "tool_call_id").or_else(|| text(event, "id")).unwrap_or_default();
                let tool = tool.unwrap_or("unknown");
                let dir = self.begin_command(id, tool, &args);
                self.recorder.call(id, tool, args, dir.as_deref());
            }
            Some("ObservationEvent" | "AgentErrorEvent" | "UserRejectObservation") => {
                let id = text(event, "tool_call_id").unwrap_or_default();
                let shown = ["content", "output", "error"].into_iter().map(|name| content(&observation[name]));
                let shown = shown.into_iter().find(|shown| !shown.is_empty());
                let metadata = &observation["metadata"];
                let code = observation["exit_code"].as_i64().or_else(|| metadata["exit_code"].as_i64());
                let failed = text(event, "kind") != Some("ObservationEvent")
                    || observation["is_error"].as_bool() == Some(true)
                    || observation["error"].is_string()
                    || code.is_some_and(|code| code != 0);
                let shown = shown.unwrap_or_else(|| text(event, "error").unwrap_or_default().to_owned());
                self.end_command(id, &shown, !failed, metadata);
                self.recorder.answered(
                    id,
                    Answer {
                        printed: code.map(|_| unframed(&shown)),
                        shown,
                        failed,
                        before: text(observation, "old_content").map(str::to_owned),
                        after: text(observation, "new_content").map(str::to_owned),
                        ..Answer::default()
                    },
                );
            }
            Some("Condensation") => self.recorder.compact(0),
            _ => {}
        }
    }

    /// The directory of a call of the shell.
    fn begin_command(&mut self, key: &str, tool: &str, args: &Value) -> Option<String> {
        let is_true = |name: &str| args[name] == true || args[name] == "true";
        let line = text(args, "command").filter(|_| SHELLS.contains(&tool) && !is_true("is_input"))?;
        if is_true("reset") {
            self.shell = ShellDirectory::default();
        }
        let cwd = self.shell.begin(line);
        let command = ShellCommand { line: line.to_owned(), cwd: cwd.clone(), platform: Platform::Posix };
        self.commands.insert(key.to_owned(), command);
        Some(cwd).filter(|cwd| !cwd.is_empty())
    }

    /// Follows the shell: its result states the directory, except for early versions.
    fn end_command(&mut self, key: &str, shown: &str, ok: bool, metadata: &Value) {
        let stated = text(metadata, "working_dir").filter(|dir| is_absolute(dir));
        if let Some(dir) = stated {
            self.recorder.directory(dir);
        }
        if let Some(command) = self.commands.remove(key) {
            self.shell.end(&command, Some((shown, ok)), stated);
        }
    }

    /// The usage of a session whose events do not hold it.
    fn totals(&mut self, metrics: &Value) {
        let accumulated = &metrics["accumulated_token_usage"];
        let count = |name: &str| token_count(&accumulated[name]);
        let (prompt, read, write) = (count("prompt_tokens"), count("cache_read_tokens"), count("cache_write_tokens"));
        let dollars = metrics["accumulated_cost"].as_f64().filter(|dollars| *dollars > 0.0);
        if prompt == 0 && dollars.is_none() {
            return;
        }
        self.recorder.total(ReportedTotal {
            model: text(accumulated, "model").filter(|model| *model != "default").unwrap_or_default().to_owned(),
            usage: (prompt > 0).then(|| workloads::trace::TokenUsage {
                uncached: prompt.saturating_sub(read + write),
                cache_read: read,
                cache_write_5m: write,
                output: count("completion_tokens"),
                reasoning: count("reasoning_tokens"),
                ..Default::default()
            }),
            dollars,
        });
    }
}

/// The output of a command without the lines that OpenHands adds.
fn unframed(shown: &str) -> String {
    let lines = [
        "\n[The command completed with exit code",
        "\n[Current working directory:",
        "\r\nroot@",
        "\n[Python interpreter:",
        "\n[Command finished with exit code",
    ];
    let end = lines.iter().filter_map(|line| shown.rfind(line)).min();
    let printed = &shown[..end.unwrap_or(shown.len())];
    if printed.is_empty() || printed.ends_with('\n') { printed.to_owned() } else { format!("{printed}\n") }
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
    use crate::testing::{calls, coverage, files, imported, imported_all, usages};

    fn answer(id: &str, tool: &str, arguments: &str) -> Value {
        json!({"tool_call_id": id, "function_name": tool, "model_response": {
            "id": id, "model": "m", "usage": {"prompt_tokens": 100, "completion_tokens": 5},
            "choices": [{"message": {"content": "I look.", "tool_calls": [
                {"id": id, "function": {"name": tool, "arguments": arguments}}]}}]}})
    }

    #[test]
    fn actions_and_observations_become_calls_and_results() {
        let row = json!({"metadata": {"llm_config": {"api_key": "secret"}}, "history": [
            {"id": "0", "source": "agent", "action": "system", "args": {"content": "You are."}},
            {"id": "1", "source": "user", "action": "message", "args": {"content": "Fix it."}},
            {"id": 5, "source": "agent", "action": "read", "timestamp": "2025-04-30T16:00:00.5",
             "args": {"path": "/workspace/repo/a.c"}, "tool_call_metadata": answer("t1", "str_replace_editor", "{\"command\":\"view\"}")},
            {"id": 6, "source": "agent", "cause": 5, "observation": "read", "content": "Here:\n     1\tint x;\n     2\t\n", "extras": {"path": "/workspace/repo/a.c"}},
            {"id": 7, "source": "agent", "action": "edit", "timestamp": "2025-04-30T16:00:02.5",
             "args": {"path": "/workspace/repo/a.c", "command": "str_replace"}, "tool_call_metadata": answer("t2", "str_replace_editor", "broken")},
            {"id": 8, "source": "agent", "cause": 7, "observation": "edit", "content": "ERROR:\nno.", "extras": {"path": "/workspace/repo/a.c"}},
            {"id": 9, "source": "agent", "action": "run", "args": {"command": "ls"}, "tool_call_metadata": answer("t3", "execute_bash", "{\"command\":\"ls\"}")},
            {"id": 10, "source": "agent", "cause": 9, "observation": "run", "content": "a.c\n[The command completed with exit code 0.]\n[Current working directory: /workspace/repo]",
             "extras": {"metadata": {"exit_code": 0, "working_dir": "/workspace/repo"}}},
            {"id": 11, "source": "agent", "action": "edit", "args": {"path": "/workspace/repo/a.c", "command": "insert"}, "tool_call_metadata": answer("t4", "str_replace_editor", "{}")},
            {"id": 12, "source": "agent", "cause": 11, "observation": "edit", "content": "Done.",
             "extras": {"path": "/workspace/repo/a.c", "old_content": "int x;\n", "new_content": "int x;\nint y;\n"}},
        ]});
        let session = imported("openhands", &row.to_string());
        assert!(!format!("{session:?}").contains("secret"));
        assert_eq!(session.system.as_deref(), Some("You are."));
        assert_eq!(
            calls(&session),
            [
                "str_replace_editor read a.c: whole int x;\n",
                "str_replace_editor edit a.c (Other)",
                "execute_bash exec: ls in /workspace/repo -> a.c\n",
                "str_replace_editor edit a.c: 2 replacements of a known file",
            ]
        );
        assert_eq!(usages(&session)[0], "m 100+0 5");
        let times: Vec<u64> = session.calls().map(|call| call.at).collect();
        assert_eq!(times[..2], [0, 2000]);
    }

    #[test]
    fn a_command_begins_where_the_one_before_it_left_the_shell() {
        for stated in [true, false] {
            let mut history =
                vec![json!({"id": 0, "source": "user", "action": "message", "args": {"content": "Look."}})];
            for (number, (command, dir)) in [
                ("ls", "/w/p"),
                ("cd sub && ls", "/w/p/sub"),
                ("cat a", "/w/p/sub"),
                ("cd /w/p", "/w/p"),
                ("cat a", "/w/p"),
            ]
            .into_iter()
            .enumerate()
            {
                let id = 2 * number + 1;
                // Each row states the first directory.
                let metadata = if stated || number == 0 {
                    json!({"exit_code": 0, "working_dir": dir})
                } else {
                    json!({"exit_code": 0})
                };
                history.push(json!({"id": id, "source": "agent", "action": "run", "args": {"command": command}}));
                history
                    .push(json!({"id": id + 1, "source": "agent", "cause": id, "observation": "run", "content": "a",
                    "extras": {"metadata": metadata}}));
            }
            let session = imported("openhands", &json!({ "history": history }).to_string());
            let dirs: Vec<String> = session
                .calls()
                .map(|call| call.shell.as_ref().unwrap().load().unwrap().cwd.replace("/w/p", "W"))
                .collect();
            assert_eq!(dirs[2..], ["W/sub", "W/sub", "W"], "{stated}");
        }
    }

    #[test]
    fn an_edit_that_states_the_replaced_text_keeps_the_file_that_a_read_showed() {
        let args = json!({"command": "str_replace", "path": "/w/p/a.c", "old_str": "int y;", "new_str": "int z;"});
        let row = json!({"history": [
            {"id": 1, "source": "agent", "action": "read", "args": {"path": "/w/p/a.c"},
             "tool_call_metadata": answer("t1", "str_replace_editor", "{\"command\":\"view\"}")},
            {"id": 2, "source": "agent", "cause": 1, "observation": "read", "content": "Here:\n     1\tint x;\n     2\tint y;\n"},
            {"id": 3, "source": "agent", "action": "edit", "args": {"path": "/w/p/a.c"},
             "tool_call_metadata": answer("t2", "str_replace_editor", &args.to_string())},
            {"id": 4, "source": "agent", "cause": 3, "observation": "edit", "content": "Done.", "extras": {"path": "/w/p/a.c",
             "prev_exist": false, "old_content": "int y;", "new_content": "int z;", "impl_source": "oh_aci"}},
        ]});
        let session = imported("openhands", &row.to_string());
        assert_eq!(files(&session), ["a.c Full int x;\nint y;\n"]);
        let coverage = coverage(&session);
        assert_eq!((coverage.replayed, coverage.edits_equal, coverage.read_bytes_equal), (2, 1, 14));
    }

    #[test]
    fn the_file_of_an_editor_with_a_model_ends_with_a_line_end() {
        let edit = |call: u64, old: &str, new: &str| {
            let id = format!("t{call}");
            [
                json!({"id": call, "source": "agent", "action": "edit", "args": {"path": "/w/p/a.c"},
                    "tool_call_metadata": answer(&id, "edit_file", "{\"path\":\"/w/p/a.c\"}")}),
                json!({"id": call + 1, "source": "agent", "cause": call, "observation": "edit", "content": "Done.",
                    "extras": {"path": "/w/p/a.c", "prev_exist": true, "old_content": old, "new_content": new,
                        "impl_source": "llm_based_edit"}}),
            ]
        };
        let history = [edit(1, "int x;\n", "int y;"), edit(3, "int y;\n", "int z;")].concat();
        let session = imported("openhands", &json!({ "history": history }).to_string());
        assert_eq!(coverage(&session).edits_equal, 2);
    }

    #[test]
    fn a_row_that_is_not_a_session_costs_only_that_row() {
        let row = json!({"history": [{"id": 1, "source": "user", "action": "message", "args": {"content": "Fix it."}},
            {"id": 2, "source": "agent", "action": "finish", "args": {"thought": "Done."}}],
            "metrics": {"accumulated_cost": 0.25}});
        let text = format!("{row}\n{{}}\nno json\n{row}\n");
        let sessions = imported_all("openhands", &text);
        assert_eq!(sessions.len(), 2);
        assert_eq!(sessions[0].totals[0].dollars, Some(0.25));
        assert!(OpenHands.import(&mut "{}".as_bytes()).is_err());
    }

    #[test]
    fn events_of_the_second_version_become_calls_and_results() {
        let events = json!([
            {"kind": "SystemPromptEvent", "source": "agent", "system_prompt": {"type": "text", "text": "You are."}},
            {"kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": [{"type": "text", "text": "Fix it."}]}},
            {"kind": "ActionEvent", "source": "agent", "thought": [{"type": "text", "text": "I look."}], "tool_name": "file_editor", "tool_call_id": "t1",
             "tool_call": {"id": "t1", "name": "file_editor", "arguments": "{\"command\":\"view\",\"path\":\"/w/p/a.c\"}"}, "llm_response_id": "r1"},
            {"kind": "ObservationEvent", "source": "environment", "tool_name": "file_editor", "tool_call_id": "t1",
             "observation": {"kind": "FileEditorObservation", "content": [{"type": "text", "text": "Here's the result of running `cat -n` on /w/p/a.c:\n     1\tint x;\n"}], "is_error": false}},
        ]);
        let session = imported("openhands", &events.to_string());
        assert_eq!(calls(&session), ["file_editor read a.c: whole int x;\n"]);
    }

    #[test]
    fn the_first_versions_rows_name_no_source_and_no_cause() {
        let row = json!({"issue": {"number": 1}, "history": [
            {"content": "Fix it.", "action": "message"},
            {"command": "cat a", "thought": "I look.", "action": "run"},
            {"content": "one\r\nroot@host:/workspace # ", "command": "cat a", "exit_code": 0, "observation": "run"},
        ]});
        let pairs = json!({"history": [[
            {"id": 1, "source": "agent", "action": "run", "args": {"command": "cat a"}},
            {"id": 2, "cause": 1, "observation": "run", "content": "one\n", "extras": {"exit_code": 0}},
        ]]});
        for row in [row, pairs] {
            assert_eq!(calls(&imported("openhands", &row.to_string())), ["execute_bash exec: cat a -> one\n"], "{row}");
        }
    }
}
