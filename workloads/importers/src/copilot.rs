//! Importer for the events of Copilot CLI's sessions (`~/.copilot/session-state/*/events.jsonl`).
//! Usage is in `assistant.usage` events, if they are kept, or else by model in the event at the session's end.

use std::collections::HashMap;
use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::{arguments, content, milliseconds, token_count};
use super::recorder::{Answer, Recorder};
use super::records::each_record;
use super::{ImportedSession, Importer, ReportedTotal, text};
use shell::{Platform, ShellCommand, ShellDirectory};
use workloads::trace::TokenUsage;

/// Copilot CLI.
#[derive(Debug)]
pub struct Copilot;

impl Importer for Copilot {
    fn id(&self) -> &'static str {
        "copilot"
    }

    fn reads(&self) -> &'static str {
        "Copilot CLI sessions (`~/.copilot/session-state/*/events.jsonl`)"
    }

    fn streams(&self) -> bool {
        true
    }

    fn detects(&self, head: &Head) -> bool {
        let kinds =
            ["session.start", "user.message", "assistant.message", "assistant.turn_start", "tool.execution_start"];
        head.has("data") && kinds.iter().any(|kind| head.is("type", kind))
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut recorder = Recorder::new("copilot");
        let (mut shells, mut totals) = (Shells::default(), Totals::default());
        let lost = each_record(recording, |record| match text(&record, "type") {
            Some("session.shutdown") => totals.add(&record["data"]["modelMetrics"]),
            _ => event(&mut recorder, &mut shells, &record),
        })?;
        recorder.unreadable(lost);
        totals.runs.into_iter().for_each(|(model, usage)| {
            recorder.total(ReportedTotal { model, usage: Some(usage), dollars: None });
        });
        Ok(vec![recorder.finish()])
    }
}

/// The shells that stay open, by the identity that calls give them.
#[derive(Default)]
struct Shells {
    all: HashMap<String, ShellDirectory>,
    /// Commands without a result, by the identity of the call.
    running: HashMap<String, (String, ShellCommand)>,
}

impl Shells {
    /// A call begins, or is reported again. Returns the directory of its shell, if that is another than at the start.
    fn begin(&mut self, id: &str, args: &Value) -> Option<String> {
        let (shell, line) = (text(args, "sessionId")?, text(args, "command")?);
        if let Some((_, command)) = self.running.get(id) {
            return Some(command.cwd.clone()).filter(|cwd| !cwd.is_empty());
        }
        let cwd = self.all.entry(shell.to_owned()).or_default().begin(line);
        let command = ShellCommand { line: line.to_owned(), cwd: cwd.clone(), platform: Platform::Posix };
        self.running.insert(id.to_owned(), (shell.to_owned(), command));
        Some(cwd).filter(|cwd| !cwd.is_empty())
    }

    fn end(&mut self, id: &str) {
        if let Some((shell, command)) = self.running.remove(id)
            && let Some(shell) = self.all.get_mut(&shell)
        {
            // Whether a version keeps the directory is not certain.
            shell.end(&command, None, None);
        }
    }
}

/// What each end of a session states of each model. A session that is resumed ends several times.
#[derive(Default)]
struct Totals {
    runs: Vec<(String, TokenUsage)>,
}

impl Totals {
    /// Adds the totals of the session so far. They include those before; smaller ones are of a run of their own.
    fn add(&mut self, metrics: &Value) {
        for (model, metrics) in metrics.as_object().into_iter().flatten() {
            let all = usage(&metrics["usage"]);
            let prompt = |usage: &TokenUsage| usage.uncached + usage.cache_read + usage.cache_write_5m;
            let known = self.runs.iter_mut().rfind(|(known, _)| known == model);
            match known.map(|(_, known)| known).filter(|k| k.output <= all.output && prompt(k) <= prompt(&all)) {
                Some(known) => *known = all,
                None => self.runs.push((model.clone(), all)),
            }
        }
    }
}

fn event(recorder: &mut Recorder, shells: &mut Shells, event: &Value) {
    let time = [&event["timestamp"], &event["ts"]].into_iter().find_map(milliseconds);
    recorder.time(time);
    let data = &event["data"];
    let lane = text(data, "parentToolCallId");
    match text(event, "type") {
        Some("session.start" | "session.resume") => {
            if let Some(version) = text(data, "copilotVersion") {
                recorder.agent(format!("copilot {version}"));
            }
            recorder.identity(text(data, "sessionId").unwrap_or_default());
            let context = &data["context"];
            recorder.directory(text(context, "cwd").unwrap_or_default());
            recorder.directory(text(context, "gitRoot").unwrap_or_default());
            recorder.model(text(data, "selectedModel").or_else(|| text(data, "model")).unwrap_or_default());
        }
        Some("session.model_change") => recorder.model(text(data, "newModel").unwrap_or_default()),
        Some("system.message") => recorder.system(&content(&data["content"])),
        Some("user.message") => {
            recorder.lane(None);
            recorder.user(text(data, "transformedContent").or_else(|| text(data, "content")).unwrap_or_default());
        }
        Some("assistant.reasoning") => recorder.said("", text(data, "content").unwrap_or_default()),
        Some("assistant.message") => {
            recorder.lane(lane);
            recorder.model(text(data, "model").unwrap_or_default());
            recorder.said(text(data, "content").unwrap_or_default(), text(data, "reasoningText").unwrap_or_default());
            for request in data["toolRequests"].as_array().into_iter().flatten() {
                let name = text(request, "name").unwrap_or("unknown");
                if let Some(id) = text(request, "toolCallId") {
                    let args = arguments(&request["arguments"]);
                    let dir = shells.begin(id, &args);
                    recorder.call(id, name, args, dir.as_deref());
                }
            }
        }
        Some("assistant.usage") => {
            recorder.model(text(data, "model").unwrap_or_default());
            recorder.usage(usage(data));
        }
        Some("tool.execution_start") => {
            let name = text(data, "toolName").unwrap_or("unknown");
            if let Some(id) = text(data, "toolCallId") {
                let args = arguments(&data["arguments"]);
                let dir = shells.begin(id, &args);
                recorder.call(id, name, args, dir.as_deref());
            }
        }
        Some("tool.execution_complete") => {
            if let Some(id) = text(data, "toolCallId") {
                shells.end(id);
                recorder.answered(id, result(data));
            }
        }
        Some("session.compaction_complete") => {
            recorder.compact(token_count(&data["preCompactionTokens"]));
        }
        _ => {}
    }
}

fn result(data: &Value) -> Answer {
    let result = match &data["result"] {
        Value::Null => &data["error"]["message"],
        result => result,
    };
    let shown = content(result);
    // A shell command ends with `<exited with exit code 0>`.
    let end = shown.trim_end().rsplit_once("<exited with exit code ");
    let code = end.and_then(|(_, code)| code.strip_suffix('>')?.parse::<i64>().ok());
    let printed = end.filter(|_| code.is_some()).map(|(printed, _)| printed.to_owned());
    Answer {
        failed: data["success"].as_bool() == Some(false) || code.is_some_and(|code| code != 0),
        printed,
        shown,
        ..Answer::default()
    }
}

/// A usage record; its input includes what the cache serves.
fn usage(usage: &Value) -> TokenUsage {
    let count = |name: &str| token_count(&usage[name]);
    let (input, read, write) = (count("inputTokens"), count("cacheReadTokens"), count("cacheWriteTokens"));
    TokenUsage {
        uncached: input.checked_sub(read + write).unwrap_or(input),
        cache_read: read,
        cache_write_5m: write,
        output: count("outputTokens"),
        reasoning: count("reasoningTokens"),
        ..TokenUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{calls, imported};
    use serde_json::json;

    #[test]
    fn a_shell_that_may_have_moved_has_no_certain_directory() {
        let event = |kind: &str, data: Value| json!({"type": kind, "data": data});
        let mut lines = vec![event("session.start", json!({"sessionId": "s", "context": {"cwd": "/w/p"}}))];
        for (number, (shell, command)) in
            [("A", "ls"), ("A", "cd sub; rm a"), ("A", "rm b"), ("B", "rm c"), ("A", "rm /w/p/d")]
                .into_iter()
                .enumerate()
        {
            let id = format!("t{number}");
            let args = json!({"command": command, "sessionId": shell});
            lines.push(event("tool.execution_start", json!({"toolCallId": id, "toolName": "bash", "arguments": args})));
            let end = json!({"toolCallId": id, "success": true, "result": {"content": "x\n<exited with exit code 0>"}});
            lines.push(event("tool.execution_complete", end));
        }
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let causes = crate::testing::coverage(&imported("copilot", &lines)).causes;
        assert_eq!(causes, [("a directory that is not certain".to_owned(), 1)].into());
    }

    #[test]
    fn events_give_calls_once_and_the_usage_of_each_model() {
        let event = |kind: &str, data: Value| json!({"type": kind, "data": data, "id": "e", "timestamp": "2026-03-01T10:00:00Z", "parentId": null});
        let request = |id: &str, name: &str, args: Value| json!({"toolCallId": id, "name": name, "arguments": args});
        let view = json!({"path": "/w/p/a.txt"});
        let lines: String = [
            event("session.start", json!({"sessionId": "s", "producer": "copilot-agent", "copilotVersion": "1.0.5", "context": {"cwd": "/w/p"}})),
            event("user.message", json!({"content": "Look."})),
            event("assistant.message", json!({"content": "", "model": "claude-sonnet-4.6", "toolRequests": [request("t1", "view", view.clone()),
                request("t2", "bash", json!({"command": "cat a.txt"}))]})),
            event("tool.execution_start", json!({"toolCallId": "t1", "toolName": "view", "arguments": view})),
            event("tool.execution_complete", json!({"toolCallId": "t1", "success": true, "result": {"content": "1. one\n2. two"}})),
            event("tool.execution_complete", json!({"toolCallId": "t2", "success": true, "result": {"content": "one\ntwo\n<exited with exit code 0>"}})),
            event("session.shutdown", json!({"modelMetrics": {"claude-sonnet-4.6": {"usage": {
                "inputTokens": 100, "outputTokens": 9, "cacheReadTokens": 60, "cacheWriteTokens": 10}}}})),
        ]
        .iter()
        .map(|event| format!("{event}\n"))
        .collect();
        let session = imported("copilot", &lines);
        assert_eq!(session.agent, "copilot 1.0.5");
        assert_eq!(
            calls(&session),
            ["view read a.txt: whole one\ntwo\n", "bash exec: cat a.txt in /w/p -> one\ntwo\n"]
        );
        let [total] = &session.totals[..] else {
            panic!("{:?}", session.totals);
        };
        let usage = total.usage.unwrap();
        assert_eq!((usage.uncached, usage.cache_read, usage.cache_write_5m, usage.output), (30, 60, 10, 9));
    }

    #[test]
    fn the_end_of_a_resumed_session_includes_the_end_before() {
        let end = |model: &str, input: u64, output: u64| {
            let usage = json!({"usage": {"inputTokens": input, "outputTokens": output}});
            json!({"type": "session.shutdown", "data": {"modelMetrics": {model: usage}}})
        };
        let start = json!({"type": "session.start", "data": {"sessionId": "s"}});
        let resume = json!({"type": "session.resume", "data": {"sessionId": "s"}});
        let lines =
            [start, end("a", 100, 9), resume.clone(), end("a", 300, 20), end("b", 7, 1), resume, end("a", 50, 2)];
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let totals = imported("copilot", &lines).totals;
        let totals: Vec<_> =
            totals.iter().map(|total| (total.model.as_str(), total.usage.unwrap_or_default().output)).collect();
        assert_eq!(totals, [("a", 20), ("b", 1), ("a", 2)]);
    }
}
