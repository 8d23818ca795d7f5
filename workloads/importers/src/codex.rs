//! Importer for Codex: session files (`rollout-*.jsonl`, of all versions) and the events of `codex exec --json`.
//! The usage comes in `token_count` events, which repeat the last one when only the limits of the account changed.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;

use serde_json::{Value, json};

use super::code_mode::{Script, literal};
use super::detect::Head;
use super::json::{arguments, content, milliseconds, token_count};
use super::recorder::{Answer, Recorder, ResultPlace};
use super::records::each_record;
use super::{CopiedHistory, ImportedSession, Importer, text};
use shell::path::{is_absolute, is_windows};
use shell::programs::lists;
use tokens::BilledUsage;
use workloads::trace::TokenUsage;

/// Codex.
#[derive(Debug)]
pub struct Codex;

impl Importer for Codex {
    fn id(&self) -> &'static str {
        "codex"
    }

    fn reads(&self) -> &'static str {
        "Codex session files (`~/.codex/sessions/**/rollout-*.jsonl`) and `codex exec --json`"
    }

    fn streams(&self) -> bool {
        true
    }

    fn detects(&self, head: &Head) -> bool {
        let kinds = ["session_meta", "response_item", "event_msg", "turn_context"];
        let is_rollout = head.has("payload") && kinds.iter().any(|kind| head.is("type", kind));
        let calls = ["function_call", "function_call_output", "local_shell_call"];
        // A list of such items is of the Responses API.
        let is_old = head.is("record_type", "state")
            || head.is_lines && head.has("call_id") && calls.iter().any(|kind| head.is("type", kind));
        is_rollout || is_old || head.is("type", "thread.started")
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut reader = Reader {
            recorder: Recorder::new("codex"),
            scripts: HashMap::new(),
            history: History::Unknown,
            copied: CopiedHistory::default(),
            first_copied_prompt: 0,
            first_prompt: 0,
            total: None,
            prompt: 0,
            numbers: 0,
            running: HashMap::new(),
            waits: HashMap::new(),
            opaque: HashSet::new(),
        };
        let lost = each_record(recording, |record| reader.record(&record))?;
        reader.recorder.unreadable(lost);
        // Both first prompts have the system prompt and the tools; that of the fork has the history, too.
        let inherited = match reader.first_copied_prompt {
            0 => 0,
            fixed => reader.first_prompt.saturating_sub(fixed),
        };
        reader.recorder.history(reader.copied, inherited);
        Ok(vec![reader.recorder.finish()])
    }
}

struct Reader {
    recorder: Recorder,
    /// Scripts of several commands, by their calls.
    scripts: HashMap<String, Script>,
    history: History,
    /// What is left out of a fork.
    copied: CopiedHistory,
    /// Tokens of the first prompt in the copied records, and of the first one that is the session's own.
    first_copied_prompt: u64,
    first_prompt: u64,
    /// The totals that were reported last.
    total: Option<TokenUsage>,
    /// Tokens of the last prompt.
    prompt: u64,
    numbers: u64,
    /// The programs that run longer than their call, by the number of their terminal.
    running: HashMap<u64, RunningProgram>,
    /// Calls that wait for a program or feed it, with its terminal.
    waits: HashMap<String, u64>,
    /// Calls without a result whose script does not tell its commands.
    opaque: HashSet<String>,
}

/// Whose records are being read. A fork begins with a copy of the records of the session that it continues.
enum History {
    /// Before the first record on the session.
    Unknown,
    /// Those of the other session.
    Copied(Fork),
    /// The session's own.
    Own,
}

/// A session that continues another one.
struct Fork {
    id: String,
    /// The time of its first record, in milliseconds since the Unix epoch.
    began_ms: Option<i64>,
    /// Whether the copied turns have identities that tell their age.
    has_dated_turns: bool,
}

/// Types of records, and of items, that hold no call and no message of their own. Most events repeat an item.
const WITHOUT_CALLS: &str =
    "event_msg thread.started turn.started turn.failed turn.aborted item.started item.updated error";
const ITEMS_WITHOUT_CALLS: &str = "ghost_snapshot other todo_list error";

/// How long after the first record of a fork copies can be written, in milliseconds.
const COPIED_MS: i64 = 1000;

/// A program that runs longer than its call.
struct RunningProgram {
    result: ResultPlace,
    printed: String,
}

/// The tool of a script that does not tell its commands.
const SCRIPT: &str = "script";

/// The most bytes of the output of a running program that are put together.
const LONGEST_OUTPUT: usize = 64 << 20;

impl Reader {
    fn record(&mut self, record: &Value) {
        match &mut self.history {
            History::Unknown if text(record, "type") == Some("session_meta") => {
                self.history = match fork(record) {
                    Some(fork) => History::Copied(fork),
                    None => History::Own,
                };
            }
            History::Copied(fork) => {
                if !fork.begins_own(record) {
                    self.skip(&record["payload"]);
                    return;
                }
                self.history = History::Own;
            }
            History::Unknown | History::Own => {}
        }
        self.recorder.time(milliseconds(&record["timestamp"]));
        let payload = &record["payload"];
        match text(record, "type") {
            Some("session_meta") => self.meta(payload),
            Some("turn_context") => {
                self.recorder.model(text(payload, "model").unwrap_or_default());
                self.recorder.directory(text(payload, "cwd").unwrap_or_default());
            }
            Some("response_item") => self.item(payload),
            Some("event_msg") if text(payload, "type") == Some("token_count") => {
                self.count(&payload["info"]);
            }
            Some("event_msg") if text(payload, "type") == Some("item_completed") => self.completed(&payload["item"]),
            Some("compacted") => self.recorder.compact(self.prompt),
            Some("item.completed") => self.exec_item(&record["item"]),
            Some("thread.started") => self.recorder.identity(text(record, "thread_id").unwrap_or_default()),
            Some("turn.completed") => self.turn(&record["usage"]),
            Some(known) if lists(WITHOUT_CALLS, known) => {}
            Some(_) if !payload.is_object() => self.item(record),
            None if record["instructions"].is_string() || record["git"].is_object() => {
                self.meta(record);
            }
            None if text(record, "record_type") == Some("state") => {}
            other => self.recorder.unknown(other),
        }
    }

    /// A copied record. The counter goes on from the total of the other session.
    fn skip(&mut self, payload: &Value) {
        let [last, _] = self.advance(&payload["info"]);
        if last != TokenUsage::default() {
            self.copied.answers += 1;
            if self.first_copied_prompt == 0 {
                self.first_copied_prompt = self.prompt;
            }
        }
        let is_call = text(payload, "type").is_some_and(|kind| kind.ends_with("_call"));
        self.copied.calls += u64::from(is_call);
    }

    fn meta(&mut self, meta: &Value) {
        if let Some(version) = text(meta, "cli_version") {
            self.recorder.agent(format!("codex {version}"));
        }
        self.recorder.identity(text(meta, "id").unwrap_or_default());
        self.recorder.directory(text(meta, "cwd").unwrap_or_default());
        let prompt = text(&meta["base_instructions"], "text").or_else(|| text(meta, "instructions"));
        self.recorder.system(prompt.unwrap_or_default());
    }

    fn item(&mut self, item: &Value) {
        let id = text(item, "call_id").or_else(|| text(item, "id")).unwrap_or_default();
        match text(item, "type") {
            Some("message") => match text(item, "role") {
                Some("assistant") => self.recorder.said(&content(&item["content"]), ""),
                _ => self.recorder.user(&content(&item["content"])),
            },
            Some("reasoning") => {
                let thinking = content(&item["summary"]) + &content(&item["content"]);
                self.recorder.said("", &thinking);
            }
            Some("function_call") => {
                let name = text(item, "name").unwrap_or("unknown");
                let args = arguments(&item["arguments"]);
                let dir = text(&args, "workdir").map(str::to_owned);
                self.name_directory(dir.as_deref());
                if let ("write_stdin", Some(terminal)) = (name, args["session_id"].as_u64()) {
                    self.waits.insert(id.to_owned(), terminal);
                }
                self.recorder.call(id, name, args, dir.as_deref());
            }
            Some("tool_search_call") => {
                let args = arguments(&item["arguments"]);
                self.recorder.call(id, "tool_search", args, None);
            }
            Some("local_shell_call") => {
                let action = &item["action"];
                let dir = text(action, "working_directory");
                self.name_directory(dir);
                self.recorder.call(id, "local_shell", action.clone(), dir);
            }
            Some("custom_tool_call") => {
                let name = text(item, "name").unwrap_or("unknown");
                let input = text(item, "input").unwrap_or_default();
                if name == "exec"
                    && let Some(several) = Script::new(input)
                {
                    self.script(id, several);
                    return;
                }
                let (name, args) = match name {
                    "exec" => script(input),
                    name => (name, json!({ "input": input })),
                };
                if name == SCRIPT {
                    self.opaque.insert(id.to_owned());
                }
                let dir = text(&args, "workdir").map(str::to_owned);
                self.recorder.call(id, name, args, dir.as_deref());
            }
            Some(
                "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" | "tool_search_output",
            ) => {
                self.opaque.remove(id);
                match self.scripts.remove(id) {
                    Some(script) => self.script_answered(id, &script, &item["output"]),
                    None => self.answered(id, output(&item["output"])),
                }
            }
            Some("web_search_call") => {
                self.numbers += 1;
                let id = format!("web-search-{}", self.numbers);
                self.recorder.call(&id, "web_search", item["action"].clone(), None);
            }
            Some("compaction" | "context_compaction") => self.recorder.compact(self.prompt),
            Some(known) if lists(ITEMS_WITHOUT_CALLS, known) => {}
            other => self.recorder.unknown(other),
        }
    }

    /// A command that has ended. It is a call of its own if a script ran it that does not tell its commands.
    fn completed(&mut self, item: &Value) {
        if self.opaque.is_empty() || !self.scripts.is_empty() || text(item, "type") != Some("CommandExecution") {
            return;
        }
        let dir = text(item, "cwd").map(|url| {
            let path = url.strip_prefix("file://").unwrap_or(url);
            path.strip_prefix('/').filter(|path| is_windows(path)).unwrap_or(path)
        });
        // Letters of a URL that stand for others.
        if dir.is_some_and(|dir| dir.contains('%')) {
            return;
        }
        self.name_directory(dir);
        let id = text(item, "id").unwrap_or_default();
        let args = json!({ "command": item["command"] });
        // The model has seen the script and its output.
        let id = self.recorder.new_call_in_text(id, "exec_command", args, dir);
        let printed = text(item, "aggregated_output").unwrap_or_default().to_owned();
        let failed = item["exit_code"].as_i64() != Some(0);
        self.recorder.answered_at_end(&id, Answer { printed: Some(printed), failed, ..Answer::default() });
    }

    /// The commands of a script are calls of their own.
    fn script(&mut self, id: &str, script: Script) {
        for (number, args) in script.commands.iter().enumerate() {
            let dir = text(args, "workdir").map(str::to_owned);
            self.name_directory(dir.as_deref());
            self.recorder.call(&format!("{id}/{number}"), "exec_command", args.clone(), dir.as_deref());
        }
        self.scripts.insert(id.to_owned(), script);
    }

    /// The results of a script's commands. Without a result of each one, none is certain.
    fn script_answered(&mut self, id: &str, script: &Script, output: &Value) {
        let results = script.results(output);
        let mut results = results.into_iter().flatten();
        for number in 0..script.commands.len() {
            let answer = match results.next() {
                Some(result) => Answer {
                    shown: result.shown,
                    printed: Some(result.printed),
                    failed: result.code != Some(0),
                    ..Answer::default()
                },
                None if number == 0 => Answer { shown: content(output), failed: true, ..Answer::default() },
                None => Answer { failed: true, ..Answer::default() },
            };
            self.recorder.answered(&format!("{id}/{number}"), answer);
        }
    }

    /// The result of a call. The last one of those that wait for a program ends the call that started it.
    fn answered(&mut self, id: &str, answer: Answer) {
        let (terminal, failed) = (terminal(&answer.shown), answer.failed);
        let waits_for = self.waits.remove(id);
        let printed = match terminal.or(waits_for) {
            Some(_) => answer.printed.clone().unwrap_or_default(),
            None => String::new(),
        };
        let result = self.recorder.answered(id, answer);
        let Some(number) = waits_for else {
            if let Some(number) = terminal {
                let program = RunningProgram { result, printed };
                self.running.insert(number, program);
            }
            return;
        };
        let Some(program) = self.running.get_mut(&number) else {
            return;
        };
        if program.printed.len() + printed.len() <= LONGEST_OUTPUT {
            program.printed.push_str(&printed);
        }
        if terminal.is_none()
            && let Some(program) = self.running.remove(&number)
        {
            self.recorder.ended(program.result, program.printed, failed);
        }
    }

    /// A directory in which a command ran is a directory of the session.
    fn name_directory(&mut self, dir: Option<&str>) {
        if let Some(dir) = dir
            && is_absolute(dir)
        {
            self.recorder.directory(dir);
        }
    }

    fn count(&mut self, info: &Value) {
        let [last, unreported] = self.advance(info);
        if self.first_prompt == 0 {
            self.first_prompt = last.uncached + last.cache_read;
        }
        self.recorder.usage(last);
        self.recorder.unplaced(BilledUsage::Sum(unreported));
    }

    /// The end of a turn of `codex exec --json`: the counter of tokens goes on from turn to turn of a session.
    fn turn(&mut self, reported: &Value) {
        let all = usage(reported);
        let known = self.total.replace(all).unwrap_or_default();
        // Another session, whose log follows in the same file, begins with a smaller total.
        let is_next = less(known, all) == TokenUsage::default();
        let tokens = if is_next { less(all, known) } else { all };
        self.recorder.unplaced(BilledUsage::Sum(tokens));
    }

    /// Sets the counter of tokens to a new total. Returns the usage of the last call, and that of calls before it that
    /// were not reported.
    fn advance(&mut self, info: &Value) -> [TokenUsage; 2] {
        let total = &info["total_token_usage"];
        let all = usage(total);
        if !info.is_object() || total.is_object() && self.total == Some(all) {
            return <[TokenUsage; 2]>::default();
        }
        let last = &info["last_token_usage"];
        let known = self.total.unwrap_or_default();
        let grown = less(all, known);
        let last = if last.is_object() { usage(last) } else { grown };
        // A session that begins with the total of another one has no calls of its own in it.
        let unreported = match self.total {
            Some(_) => less(grown, last),
            None => TokenUsage::default(),
        };
        self.total = Some(all);
        self.prompt = last.uncached + last.cache_read;
        [last, unreported]
    }

    /// An item of `codex exec --json`.
    fn exec_item(&mut self, item: &Value) {
        let id = text(item, "id").unwrap_or_default();
        let said = text(item, "text").unwrap_or_default();
        match text(item, "type") {
            Some("agent_message" | "assistant_message") => self.recorder.said(said, ""),
            Some("reasoning") => self.recorder.said("", said),
            Some("command_execution") => {
                let command = text(item, "command").unwrap_or_default();
                let line = unwrapped(command);
                let id = self.recorder.new_call(id, "command_execution", json!({ "command": line }), None);
                let failed = item["exit_code"].as_i64() != Some(0);
                let shown = text(item, "aggregated_output").unwrap_or_default();
                self.recorder.result(&id, shown, failed);
            }
            Some(kind @ ("file_change" | "mcp_tool_call" | "web_search")) => {
                let tool = text(item, "tool").unwrap_or(kind);
                let args = match &item["arguments"] {
                    Value::Null => item["changes"].clone(),
                    args => arguments(args),
                };
                let id = self.recorder.new_call(id, tool, args, None);
                let failed = text(item, "status") == Some("failed");
                let shown = content(&item["result"]["content"]);
                self.recorder.result(&id, shown, failed);
            }
            Some(known) if lists(ITEMS_WITHOUT_CALLS, known) => {}
            other => self.recorder.unknown(other),
        }
    }
}

/// The fork that begins with this record.
fn fork(record: &Value) -> Option<Fork> {
    let meta = &record["payload"];
    let parent = text(meta, "forked_from_id");
    parent.or_else(|| text(&meta["source"]["subagent"]["thread_spawn"], "parent_thread_id"))?;
    Some(Fork {
        id: text(meta, "id").unwrap_or_default().to_owned(),
        began_ms: milliseconds(&record["timestamp"]),
        has_dated_turns: false,
    })
}

impl Fork {
    /// Whether the fork's own records begin with this one: it is of a turn that is newer than the fork. Without
    /// identities that tell the age, copies keep their time or have that of the copying.
    fn begins_own(&mut self, record: &Value) -> bool {
        let turn = text(&record["payload"], "turn_id").unwrap_or_default();
        if is_dated(turn) && is_dated(&self.id) {
            self.has_dated_turns = true;
            return turn >= self.id.as_str();
        }
        // Without times, nothing tells a copy from the fork's own records.
        let Some(began) = self.began_ms else { return true };
        let after = milliseconds(&record["timestamp"]).map(|now| now.saturating_sub(began));
        !self.has_dated_turns && after.is_some_and(|after| after > COPIED_MS)
    }
}

/// Whether an identity is a UUID that begins with its time: version 7.
fn is_dated(id: &str) -> bool {
    id.len() == 36 && id.as_bytes()[14] == b'7'
}

/// `ls` for `/bin/bash -lc 'ls'`.
fn unwrapped(command: &str) -> &str {
    let Some((shell, line)) = command.split_once(" -lc ") else {
        return command;
    };
    let quoted = |quote: char| line.strip_prefix(quote)?.strip_suffix(quote);
    let is_shell = shell.ends_with("bash") || shell.ends_with("zsh") || shell.ends_with("sh");
    match quoted('\'').or_else(|| quoted('"')) {
        Some(inner) if is_shell && !inner.contains(['\'', '\\', '"']) => inner,
        None if is_shell && !line.contains(['\'', '"']) => line,
        _ => command,
    }
}

/// The one call of a script, in which newer versions write calls: `await tools.exec_command({ cmd: "ls" })`.
fn script(input: &str) -> (&'static str, Value) {
    let whole = || (SCRIPT, json!({ "input": input }));
    if input.matches("tools.").count() != 1 {
        return whole();
    }
    if let Some((_, rest)) = input.split_once("tools.exec_command(") {
        let field = |name: &str| {
            let named = [format!("{name}:"), format!("\"{name}\":")];
            let (_, rest) = named.iter().find_map(|name| rest.split_once(name.as_str()))?;
            Some(literal(rest.trim_start())?.0)
        };
        let Some(cmd) = field("cmd") else {
            return whole();
        };
        return match field("workdir") {
            Some(dir) => ("exec_command", json!({ "cmd": cmd, "workdir": dir })),
            None => ("exec_command", json!({ "cmd": cmd })),
        };
    }
    let patch = input.split_once("tools.apply_patch(");
    match patch.and_then(|(_, rest)| literal(rest.trim_start())) {
        Some((patch, _)) => ("apply_patch", json!({ "input": patch })),
        None => whole(),
    }
}

/// The terminal of a program that was running when its call returned.
fn terminal(shown: &str) -> Option<u64> {
    let (frame, _) = shown.split_once("Output:\n").unwrap_or((shown, ""));
    let (_, rest) = frame.split_once("Process running with session ID ")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The result of a call: a text, or JSON with output and exit code, in a frame that changed from version to version.
fn output(output: &Value) -> Answer {
    let shown = content(output);
    let parsed: Value = serde_json::from_str(&shown).unwrap_or_default();
    if let (Some(printed), Some(code)) = (text(&parsed, "output"), parsed["metadata"]["exit_code"].as_i64()) {
        return Answer { printed: Some(printed.to_owned()), failed: code != 0, shown, ..Answer::default() };
    }
    let stated = output["success"].as_bool().map(|success| !success);
    let (frame, printed) = match shown.split_once("Output:\n") {
        Some((frame, printed)) if frame.len() < 600 => (frame, Some(printed.to_owned())),
        _ => ("", None),
    };
    let code = ["Exit code: ", "Process exited with code "].iter().find_map(|words| {
        let (_, rest) = frame.split_once(words)?;
        rest.split_whitespace().next()?.parse::<i64>().ok()
    });
    let starts = ["failed", "apply_patch verification failed", "execution error", "exec_command failed", "aborted"];
    let is_running = frame.contains("Process running with session ID");
    let failed = match (code, stated) {
        (Some(code), _) => code != 0,
        (None, Some(failed)) => failed,
        (None, None) => is_running || starts.iter().any(|start| shown.starts_with(start)),
    };
    Answer { shown, printed, failed, ..Answer::default() }
}

/// What `more` has beyond `known`.
fn less(more: TokenUsage, known: TokenUsage) -> TokenUsage {
    TokenUsage {
        uncached: more.uncached.saturating_sub(known.uncached),
        cache_read: more.cache_read.saturating_sub(known.cache_read),
        output: more.output.saturating_sub(known.output),
        reasoning: more.reasoning.saturating_sub(known.reasoning),
        ..TokenUsage::default()
    }
}

fn usage(usage: &Value) -> TokenUsage {
    let count = |name: &str| token_count(&usage[name]);
    let cached = count("cached_input_tokens");
    TokenUsage {
        uncached: count("input_tokens").saturating_sub(cached),
        cache_read: cached,
        output: count("output_tokens"),
        reasoning: count("reasoning_output_tokens"),
        ..TokenUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{calls, imported, unplaced, usages};

    #[test]
    fn a_total_that_grows_by_more_than_the_last_call_has_calls_without_a_report() {
        let count = |total: u64, last: u64| json!({"type": "event_msg", "payload": {"type": "token_count", "info": {"total_token_usage": {"input_tokens": total, "output_tokens": total / 10}, "last_token_usage": {"input_tokens": last, "output_tokens": last / 10}}}});
        let lines = [
            json!({"type": "session_meta", "payload": {"id": "s", "cwd": "/w/p", "cli_version": "0.98.0"}}),
            json!({"type": "response_item", "payload": {"type": "tool_search_call", "call_id": "c1", "arguments": {"query": "x"}}}),
            json!({"type": "response_item", "payload": {"type": "tool_search_output", "call_id": "c1", "tools": []}}),
            // The first total may be that of the session that this one continues.
            count(5000, 100),
            count(5000, 100),
            count(5350, 200),
        ];
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let session = imported("codex", &lines);
        assert_eq!(usages(&session), [" 100+0 10", " 200+0 20"]);
        assert_eq!(unplaced(&session), [BilledUsage::Sum(" 150+0 15".to_owned())]);
        // Searching for tools reads no file.
        assert_eq!(calls(&session), ["tool_search plan"]);
    }

    #[test]
    fn records_of_another_format_are_counted() {
        let own = json!({"type": "session_meta", "payload": {"id": "s", "cwd": "/w/p"}});
        let said = json!({"type": "response_item", "payload": {"type": "message", "role": "user", "content": "Look."}});
        let event = json!({"type": "event_msg", "payload": {"type": "user_message", "message": "Look."}});
        let item = json!({"type": "response_item", "payload": {"type": "new_item"}});
        let other = json!({"type": "assistant", "sessionId": "t", "message": {"role": "assistant", "content": []}});
        let lines: String = [own, said, event, item, other.clone(), other].map(|line| format!("{line}\n")).concat();
        let unknown = imported("codex", &lines).unknown_records;
        assert_eq!(unknown, [("assistant".to_owned(), 2), ("new_item".to_owned(), 1)].into());
    }

    /// A fork with a copied turn and a turn of its own, whose identities are `turns`; the seconds are those of the copied
    /// records and of the own ones.
    fn fork(meta: Value, turns: [&str; 2], seconds: [&str; 2]) -> Vec<Value> {
        let mut meta = meta;
        meta["id"] = json!("019d7e3d-0164-79d1-af76-000000000000");
        meta["cwd"] = json!("/w/p");
        let mut lines = vec![json!({"timestamp": "2026-04-11T20:30:20.000Z", "type": "session_meta", "payload": meta})];
        for (turn, second, totals) in
            [(turns[0], seconds[0], [(1000, 1000), (3000, 2000)]), (turns[1], seconds[1], [(3000, 2000), (3500, 500)])]
        {
            let mut add = |kind: &str, payload: Value| {
                let time = format!("2026-04-11T20:30:{second}Z");
                lines.push(json!({"timestamp": time, "type": kind, "payload": payload}));
            };
            add("turn_context", json!({"turn_id": turn, "cwd": "/w/p", "model": format!("gpt-{second}")}));
            for (total, last) in totals {
                let id = format!("{turn} {total}");
                let args = json!({"cmd": format!("cat {total}")}).to_string();
                add(
                    "response_item",
                    json!({"type": "function_call", "name": "exec_command", "call_id": id, "arguments": args}),
                );
                let info = json!({"total_token_usage": {"input_tokens": total, "output_tokens": total / 10},
                    "last_token_usage": {"input_tokens": last, "output_tokens": last / 10}});
                add("event_msg", json!({"type": "token_count", "info": info}));
                add("response_item", json!({"type": "function_call_output", "call_id": id, "output": "Output:\nx"}));
            }
        }
        lines
    }

    #[test]
    fn a_fork_has_no_calls_and_no_usage_of_the_session_that_it_continues() {
        let parent = || json!({"forked_from_id": "019d7d08-46c9-7f73-affe-000000000000"});
        let spawned = json!({"source": {"subagent": {"thread_spawn": {"parent_thread_id": "p"}}}});
        let (older, newer) = ("019d7d08-f1d2-78a1-ae52-000000000000", "019d7e3d-018b-70c0-afd0-000000000000");
        for (meta, turns, seconds) in [
            (parent(), [older, newer], ["20.001", "20.002"]),
            (spawned, [older, newer], ["09.000", "21.000"]),
            (parent(), ["1", "2"], ["20.400", "21.400"]),
        ] {
            let lines = fork(meta, turns, seconds);
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let session = imported("codex", &text);
            // The first count of the fork repeats the last one of the copy.
            let model = format!("gpt-{}", seconds[1]);
            assert_eq!(usages(&session), [format!("{model} 500+0 50")], "{turns:?}");
            assert_eq!(session.model, model);
            assert_eq!(session.history, CopiedHistory { answers: 2, calls: 2 });
            let calls = calls(&session);
            assert_eq!(calls, ["exec_command exec: cat 3000 in /w/p -> x", "exec_command exec: cat 3500 in /w/p -> x"]);
        }
        // The same records are all of a session that is no fork.
        let lines = fork(json!({}), [older, newer], ["20.001", "20.002"]);
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let session = imported("codex", &text);
        assert_eq!((session.calls().count(), session.history), (4, CopiedHistory::default()));
    }

    #[test]
    fn the_history_of_a_fork_is_in_its_prompts_until_they_are_compacted() {
        use workloads::conversation::of_trace;
        let mut lines: Vec<Value> = Vec::new();
        let mut add = |kind: &str, payload: Value| {
            let time = format!("2026-04-11T20:30:{:02}Z", lines.len());
            lines.push(json!({"timestamp": time, "type": kind, "payload": payload}));
        };
        let count = |total: u64, last: u64| {
            json!({"type": "token_count", "info": {
            "total_token_usage": {"input_tokens": total}, "last_token_usage": {"input_tokens": last}}})
        };
        let (older, newer) = ("019d7d08-f1d2-78a1-ae52-000000000000", "019d7e3d-018b-70c0-afd0-000000000000");
        add(
            "session_meta",
            json!({"id": "019d7e3d-0164-79d1-af76-000000000000", "forked_from_id": older, "cwd": "/w"}),
        );
        add("turn_context", json!({"turn_id": older, "model": "gpt-5.5"}));
        add("event_msg", count(10_000, 10_000));
        add("event_msg", count(60_000, 50_000));
        add("turn_context", json!({"turn_id": newer, "model": "gpt-5.5"}));
        add("event_msg", count(120_000, 60_000));
        add("compacted", json!({"message": ""}));
        add("event_msg", count(140_000, 20_000));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let session = imported("codex", &text);
        let conversation = of_trace(&crate::testing::traced(&session).0).unwrap();
        assert_eq!(conversation.fixed, 10_000);
        let account = tokens::Account::of(&conversation, &tokens::Terms::default());
        let prompts: Vec<u64> = account.calls.iter().map(|call| call.prompt).collect();
        assert_eq!(prompts, [60_000, 10_000]);
    }

    #[test]
    fn a_rollout_gives_its_calls_with_directory_and_output_and_each_usage_once() {
        let session = imported("codex", include_str!("fixtures/codex-rollout.jsonl"));
        assert_eq!(session.agent, "codex 0.98.0");
        assert_eq!(session.model, "gpt-5.5");
        assert_eq!(
            calls(&session),
            [
                "exec_command exec: sed -n '1,3p' src/a.rs in /w/p -> fn a() {}\n",
                "apply_patch exec: apply_patch <<'END_OF_PATCH'",
                "shell exec: ls docs in /w/p/sub -> b.md\n",
                "exec_command exec: false in /w/p -> (Exit)",
                "exec_command exec: cat src/a.rs in /w/p -> fn b() {}\n",
                "web_search net",
            ]
        );
        assert_eq!(usages(&session), ["gpt-5.5 200+800 50", "gpt-5.5 100+1000 20"]);
    }

    #[test]
    fn a_program_that_runs_longer_than_its_call_ends_with_the_last_wait_for_it() {
        let call = |id: &str, name: &str, args: Value| {
            json!({"type": "response_item", "payload": {
                "type": "function_call", "name": name, "call_id": id, "arguments": args.to_string()}})
        };
        let result = |id: &str, frame: &str, printed: &str| {
            json!({"type": "response_item", "payload": {"type": "function_call_output", "call_id": id,
                "output": format!("Wall time: 1.0 seconds\n{frame}\nOutput:\n{printed}")}})
        };
        let wait = |terminal: u64| json!({"session_id": terminal, "chars": ""});
        let running = |terminal: u64| format!("Process running with session ID {terminal}");
        let session = [
            json!({"type": "session_meta", "payload": {"cwd": "/w", "cli_version": "0.98.0"}}),
            call("a", "exec_command", json!({"cmd": "cargo test"})),
            result("a", &running(7), "one\n"),
            call("b", "exec_command", json!({"cmd": "sleep 9 && cat a"})),
            result("b", &running(8), ""),
            call("c", "write_stdin", wait(7)),
            result("c", &running(7), "two\n"),
            call("d", "write_stdin", wait(7)),
            result("d", "Process exited with code 0", "three\n"),
            call("e", "write_stdin", wait(8)),
            result("e", "Process exited with code 1", ""),
            call("f", "exec_command", json!({"cmd": "cat b"})),
            result("f", &running(9), ""),
        ];
        let text: Vec<String> = session.iter().map(Value::to_string).collect();
        let session = imported("codex", &text.join("\n"));
        let calls = calls(&session);
        assert_eq!(calls[0], "exec_command exec: cargo test in /w -> one\ntwo\nthree\n");
        assert_eq!(calls[1], "exec_command exec: sleep 9 && cat a in /w -> (Exit)");
        // Of a program that is still running at the end, nothing is certain.
        assert_eq!(calls[5], "exec_command exec: cat b in /w -> (Exit)");
    }

    #[test]
    fn the_first_versions_and_exec_events_are_read_too() {
        let old = imported("codex", include_str!("fixtures/codex-old.jsonl"));
        assert_eq!(calls(&old), ["shell exec: cat a.txt -> one\n"]);
        let events = imported("codex", include_str!("fixtures/codex-exec.jsonl"));
        assert_eq!(calls(&events), ["command_execution exec: ls -> a.txt\n"]);
        assert_eq!(unplaced(&events), [BilledUsage::Sum(" 100+20 7".to_owned())]);
    }

    #[test]
    fn a_turn_of_exec_has_the_tokens_by_which_the_total_of_the_session_grew() {
        let started = json!({"type": "thread.started", "thread_id": "t"});
        let turn = |input: u64| json!({"type": "turn.completed", "usage": {"input_tokens": input, "output_tokens": input / 10}});
        let text: Vec<String> = [started, turn(1000), turn(3000), turn(500)].iter().map(Value::to_string).collect();
        let session = imported("codex", &text.join("\n"));
        let expected = [" 1000+0 100", " 2000+0 200", " 500+0 50"];
        assert_eq!(unplaced(&session), expected.map(|sum| BilledUsage::Sum(sum.to_owned())));
        assert!(usages(&session).is_empty());
    }

    #[test]
    fn the_commands_that_a_script_ran_are_calls_if_it_does_not_tell_them() {
        let item = |payload: Value| json!({"type": "response_item", "payload": payload});
        let ran = |id: &str, line: &str, output: &str, code: i64| {
            let item = json!({"type": "CommandExecution", "id": id, "command": ["/bin/sh", "-lc", line],
                "cwd": "file:///w/sub", "status": "completed", "aggregated_output": output, "exit_code": code});
            json!({"type": "event_msg", "payload": {"type": "item_completed", "item": item}})
        };
        let usage = json!({"input_tokens": 50, "output_tokens": 5, "total_tokens": 55});
        let lines = [
            json!({"type": "session_meta", "payload": {"cwd": "/w", "cli_version": "0.154.0", "history_mode": "paginated"}}),
            item(
                json!({"type": "function_call", "name": "exec_command", "call_id": "a", "arguments": "{\"cmd\":\"ls\"}"}),
            ),
            // A call of the model is there already.
            ran("exec-0", "ls", "x\n", 0),
            item(json!({"type": "function_call_output", "call_id": "a", "output": "x\n"})),
            item(json!({"type": "custom_tool_call", "name": "exec", "call_id": "b",
                "input": "for (const f of ['a', 'b']) text((await tools.exec_command({cmd: `cat ${f}`})).output);"})),
            json!({"type": "event_msg", "payload": {"type": "token_count",
                "info": {"total_token_usage": usage, "last_token_usage": usage}}}),
            ran("exec-1", "cat a", "one\n", 0),
            ran("exec-2", "cat b", "", 1),
            item(json!({"type": "custom_tool_call_output", "call_id": "b", "output": "one"})),
        ];
        let text: Vec<String> = lines.iter().map(Value::to_string).collect();
        let session = imported("codex", &text.join("\n"));
        let calls = calls(&session);
        assert_eq!(calls.len(), 4, "{calls:?}");
        assert_eq!(calls[2], "exec_command exec: cat a in /w/sub -> one\n");
        assert_eq!(calls[3], "exec_command exec: cat b in /w/sub -> (Exit)");
        assert_eq!(usages(&session).len(), 1);
        let coverage = crate::testing::coverage(&session);
        assert_eq!((coverage.recorded, coverage.read_bytes_equal), (4, 4));
    }

    #[test]
    fn the_commands_of_a_script_are_calls_with_results_of_their_own() {
        let item = |payload: Value| json!({"type": "response_item", "payload": payload});
        let part = |text: &str| json!({"type": "input_text", "text": text});
        let source = "const a = await tools.exec_command({cmd: 'cat a', workdir: '/w/sub'}); text(a);\
            const b = await tools.exec_command({cmd: 'ls'}); text(b);";
        let call = |id: &str| item(json!({"type": "custom_tool_call", "name": "exec", "call_id": id, "input": source}));
        let result = |id: &str, output: &[Value]| {
            item(json!({"type": "custom_tool_call_output", "call_id": id, "output": output}))
        };
        let done = [
            part("Script completed\nOutput:\n"),
            part(r#"{"exit_code": 0, "output": "x\n"}"#),
            part(r#"{"exit_code": 2, "output": ""}"#),
        ];
        let lines = [
            json!({"type": "session_meta", "payload": {"cwd": "/w", "cli_version": "0.144.0"}}),
            call("c"),
            result("c", &done),
            call("d"),
            result("d", &[part("Script failed")]),
        ];
        let text: Vec<String> = lines.iter().map(Value::to_string).collect();
        let expected = [
            "exec_command exec: cat a in /w/sub -> x\n",
            "exec_command exec: ls in /w -> (Exit)",
            "exec_command exec: cat a in /w/sub -> (Exit)",
            "exec_command exec: ls in /w -> (Exit)",
        ];
        assert_eq!(calls(&imported("codex", &text.join("\n"))), expected);
    }

    #[test]
    fn a_script_with_one_call_is_that_call() {
        let (tool, args) = script("const r = await tools.exec_command({ cmd: \"cat \\\"a b\\\"\", workdir: '/w' });");
        assert_eq!((tool, args), ("exec_command", json!({"cmd": "cat \"a b\"", "workdir": "/w"})));
        assert_eq!(script("await tools.exec_command({cmd: `ls ${dir}`})").0, "script");
        assert_eq!(script("tools.a(); tools.b();").0, "script");
    }
}
