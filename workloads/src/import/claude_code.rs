//! Importer for Claude Code's session files, one JSON object per line.
//! An API response spans several lines with the same `message.id`, each with the usage so far.
//! Resumed files copy history, so a `uuid` counts once. Subagents' turns are in `progress.data.message`.
//! Some lines are not JSON, and `toolUseResult` is a plain string on error.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::{
    Clock, ImportedSession, Recorded, RecordedCall, RecordedResult, Replacement, SeenContent,
    shell_op, text,
};
use crate::trace::{CallError, Extra, Op, TokenUsage};

/// The maximum number of lines that Claude Code's Read returns without a range.
const READ_LIMIT: u64 = 2000;

/// Reads a session file.
///
/// # Errors
/// If no line belongs to a Claude Code session.
pub fn read(text: &str) -> Result<ImportedSession, String> {
    let mut reader = Reader::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match serde_json::from_str::<Value>(line) {
            Ok(value) => reader.line(&value),
            Err(_) => reader.session.unreadable_lines += 1,
        }
    }
    if reader.session.events.is_empty() {
        return Err("no line of it is a message of a Claude Code session".to_owned());
    }
    Ok(reader.session)
}

#[derive(Default)]
struct Reader {
    session: ImportedSession,
    seen_uuids: HashSet<String>,
    /// The index in `events` and the number of each API response, by its message id.
    responses: HashMap<String, (usize, u64)>,
    tools: HashMap<String, (String, Value)>,
    cwd: Option<PathBuf>,
    clock: Clock,
}

impl Reader {
    fn line(&mut self, line: &Value) {
        if let Some(uuid) = text(line, "uuid")
            && !self.seen_uuids.insert(uuid.to_owned())
        {
            return;
        }
        if self.cwd.is_none() {
            self.cwd = text(line, "cwd").map(PathBuf::from);
        }
        if let Some(version) = text(line, "version")
            && self.session.agent.is_empty()
        {
            self.session.agent = format!("claude-code {version}");
        }
        match text(line, "type") {
            Some("assistant" | "user") => {
                let sidechain = line.get("isSidechain").and_then(Value::as_bool);
                let lane = match (sidechain, text(line, "agentId")) {
                    (Some(true), Some(agent)) => format!("sub:{agent}"),
                    (Some(true), None) => "sub:sidechain".to_owned(),
                    _ => "main".to_owned(),
                };
                self.message(line, &lane);
            }
            Some("progress") => {
                let data = &line["data"];
                if data["message"].is_object() {
                    let id = text(data, "agentId").or_else(|| text(line, "parentToolUseID"));
                    let lane = format!("sub:{}", id.unwrap_or("unknown"));
                    // A turn reported again with more progress is the same turn.
                    if let Some(uuid) = text(&data["message"], "uuid")
                        && !self.seen_uuids.insert(uuid.to_owned())
                    {
                        return;
                    }
                    self.message(&data["message"], &lane);
                }
            }
            Some("system") if text(line, "subtype") == Some("compact_boundary") => {
                let pre_tok = line["compactMetadata"]["preTokens"].as_u64().unwrap_or(0);
                self.session.events.push(Recorded::Compact { pre_tok });
            }
            _ => {}
        }
    }

    fn message(&mut self, line: &Value, lane: &str) {
        let at = self.at(line);
        let message = &line["message"];
        match text(line, "type") {
            Some("assistant") => self.assistant(message, lane, at),
            Some("user") => self.user(line, message, lane),
            _ => {}
        }
    }

    fn assistant(&mut self, message: &Value, lane: &str, at: u64) {
        if let Some(model) = text(message, "model")
            && self.session.model.is_empty()
            && model != "<synthetic>"
        {
            self.session.model = model.to_owned();
        }
        let (place, api) = self.response(message, lane, at);
        for block in message["content"].as_array().into_iter().flatten() {
            if let Some(Recorded::Api {
                text: said,
                thinking,
                ..
            }) = self.session.events.get_mut(place)
            {
                said.push_str(text(block, "text").unwrap_or_default());
                thinking.push_str(text(block, "thinking").unwrap_or_default());
            }
            if text(block, "type") == Some("tool_use")
                && let (Some(id), Some(tool)) = (text(block, "id"), text(block, "name"))
            {
                let input = block["input"].clone();
                self.tools
                    .insert(id.to_owned(), (tool.to_owned(), input.clone()));
                let call = self.call(id, api, lane, tool, input, at);
                self.session.events.push(Recorded::Call(call));
            }
        }
    }

    /// Counts an API response once, although it spans several lines, and keeps the usage of the last line.
    /// Returns the index of its event, and its number.
    fn response(&mut self, message: &Value, lane: &str, at: u64) -> (usize, u64) {
        let usage = usage(&message["usage"]);
        let id = text(message, "id").unwrap_or_default();
        if let Some((place, number)) = self.responses.get(id)
            && !id.is_empty()
        {
            if let Some(Recorded::Api { usage: known, .. }) = self.session.events.get_mut(*place)
                && usage.output >= known.output
            {
                *known = usage;
            }
            return (*place, *number);
        }
        let number = self.responses.len() as u64;
        let key = if id.is_empty() {
            format!("unnamed {number}")
        } else {
            id.to_owned()
        };
        let place = self.session.events.len();
        self.responses.insert(key, (place, number));
        self.session.events.push(Recorded::Api {
            at,
            usage,
            lane: lane.to_owned(),
            text: String::new(),
            thinking: String::new(),
        });
        (place, number)
    }

    fn call(
        &self,
        id: &str,
        api: u64,
        lane: &str,
        tool: &str,
        input: Value,
        at: u64,
    ) -> RecordedCall {
        let op = op(tool, &input);
        let named = ["file_path", "path", "notebook_path"]
            .into_iter()
            .find_map(|key| text(&input, key));
        let path = match (op, named) {
            (Op::Read | Op::Write | Op::Edit, Some(path)) => self.inside(path),
            // A search or list without a path refers to the workspace.
            (Op::Search | Op::List, path) => {
                path.map_or(Some(".".to_owned()), |path| self.inside(path))
            }
            _ => None,
        };
        let range = (op == Op::Read)
            .then(|| {
                let first = input["offset"].as_u64();
                let count = input["limit"].as_u64();
                (first.is_some() || count.is_some())
                    .then(|| (first.unwrap_or(1).max(1), count.unwrap_or(READ_LIMIT)))
            })
            .flatten();
        let args = match input {
            Value::Object(fields) => fields,
            other => Extra::from_iter([("input".to_owned(), other)]),
        };
        RecordedCall {
            lane: lane.to_owned(),
            path,
            range,
            args,
            recursive: tool == "Glob",
            ..RecordedCall::new(id.to_owned(), api, tool, op, at)
        }
    }

    fn user(&mut self, line: &Value, message: &Value, lane: &str) {
        let content = &message["content"];
        if let Some(said) = content.as_str() {
            if lane == "main" {
                let text = said.to_owned();
                self.session.events.push(Recorded::User { text });
            }
            return;
        }
        for block in content.as_array().into_iter().flatten() {
            match text(block, "type") {
                Some("tool_result") => self.result(line, block),
                Some("text") if lane == "main" => {
                    let text = text(block, "text").unwrap_or_default().to_owned();
                    self.session.events.push(Recorded::User { text });
                }
                _ => {}
            }
        }
    }

    fn result(&mut self, line: &Value, block: &Value) {
        let Some(id) = text(block, "tool_use_id") else {
            return;
        };
        let Some((tool, input)) = self.tools.get(id) else {
            return;
        };
        let shown = shown(&block["content"]);
        let structured = &line["toolUseResult"];
        let failed = block["is_error"].as_bool() == Some(true) || structured.is_string();
        let err = failed.then(|| error(structured.as_str().unwrap_or(&shown)));
        let seen = if failed {
            SeenContent::Nothing
        } else {
            self.seen(tool, input, structured, &shown)
        };
        self.session.events.push(Recorded::Result(RecordedResult {
            id: id.to_owned(),
            err,
            shown,
            seen,
        }));
    }

    fn seen(&self, tool: &str, input: &Value, structured: &Value, shown: &str) -> SeenContent {
        let path_of =
            |value: &Value, key: &str| text(value, key).and_then(|path| self.inside(path));
        match tool {
            "Read" => self.seen_read(input, structured, shown),
            "Write" => {
                let path = path_of(structured, "filePath").or_else(|| path_of(input, "file_path"));
                let content = text(structured, "content").or_else(|| text(input, "content"));
                match (path, content) {
                    (Some(path), Some(content)) => SeenContent::Written {
                        path,
                        before: text(structured, "originalFile").map(str::to_owned),
                        content: content.to_owned(),
                    },
                    _ => SeenContent::Nothing,
                }
            }
            "Edit" | "MultiEdit" => {
                let path = path_of(structured, "filePath").or_else(|| path_of(input, "file_path"));
                let replacements: Vec<Replacement> = match input["edits"].as_array() {
                    Some(edits) => edits.iter().filter_map(replacement).collect(),
                    None => replacement(input).into_iter().collect(),
                };
                match path {
                    Some(path) if !replacements.is_empty() => SeenContent::Edited {
                        path,
                        before: ["originalFile", "originalFileContents"]
                            .into_iter()
                            .find_map(|key| text(structured, key))
                            .map(str::to_owned),
                        replacements,
                    },
                    _ => SeenContent::Nothing,
                }
            }
            "Grep" | "Glob" => {
                let mut files: Vec<&str> = structured["filenames"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                if files.is_empty() && text(structured, "mode") == Some("content") {
                    let content = text(structured, "content").unwrap_or_default();
                    files.extend(content.lines().filter_map(grep_file));
                }
                let files = files.into_iter().filter_map(|path| self.inside(path));
                let files: Vec<String> = files.filter(|path| path != ".").collect();
                SeenContent::Listed(files)
            }
            _ => SeenContent::Nothing,
        }
    }

    fn seen_read(&self, input: &Value, structured: &Value, shown: &str) -> SeenContent {
        let file = &structured["file"];
        let path = text(file, "filePath").or_else(|| text(input, "file_path"));
        let Some(path) = path.and_then(|path| self.inside(path)) else {
            return SeenContent::Nothing;
        };
        if let Some(content) = text(file, "content") {
            let start = file["startLine"].as_u64().unwrap_or(1);
            let lines = content.matches('\n').count() as u64 + 1;
            let total_lines = file["totalLines"].as_u64().unwrap_or(lines);
            return if start == 1 && lines == total_lines {
                SeenContent::Whole {
                    path,
                    content: content.to_owned(),
                }
            } else {
                SeenContent::Part {
                    path,
                    content: content.to_owned(),
                    total_lines,
                }
            };
        }
        // A subagent's results have no structure, only the displayed lines with numbers.
        let numbered: Vec<&str> = shown.lines().filter_map(numbered_line).collect();
        if numbered.is_empty() {
            return SeenContent::Nothing;
        }
        let last_number = shown
            .lines()
            .rev()
            .find_map(|line| line.split_once('→')?.0.trim().parse::<u64>().ok());
        SeenContent::Part {
            path,
            content: numbered.join("\n"),
            total_lines: last_number.unwrap_or(numbered.len() as u64),
        }
    }

    /// A path relative to the workspace, or `None` if it lies outside.
    fn inside(&self, path: &str) -> Option<String> {
        let path = Path::new(path);
        let relative = if path.is_absolute() {
            path.strip_prefix(self.cwd.as_deref()?).ok()?
        } else {
            path
        };
        let mut parts: Vec<&str> = Vec::new();
        for part in relative.components() {
            match part {
                Component::Normal(name) => parts.push(name.to_str()?),
                Component::CurDir => {}
                Component::ParentDir => {
                    parts.pop()?;
                }
                Component::RootDir | Component::Prefix(_) => return None,
            }
        }
        Some(if parts.is_empty() {
            ".".to_owned()
        } else {
            parts.join("/")
        })
    }

    /// Milliseconds since the first line that has a time.
    fn at(&mut self, line: &Value) -> u64 {
        self.clock
            .at(text(line, "timestamp").and_then(milliseconds))
    }
}

fn op(tool: &str, input: &Value) -> Op {
    match tool {
        "Read" | "NotebookRead" => Op::Read,
        "Write" => Op::Write,
        "Edit" | "MultiEdit" => Op::Edit,
        "Grep" => Op::Search,
        "Glob" | "LS" => Op::List,
        "Bash" => shell_op(text(input, "command").unwrap_or_default()),
        "BashOutput" | "KillShell" | "KillBash" => Op::Exec,
        "TodoWrite" | "TodoRead" | "ExitPlanMode" | "EnterPlanMode" => Op::Plan,
        "WebFetch" | "WebSearch" => Op::Net,
        "Task" | "Agent" | "Skill" => Op::Agent,
        _ => Op::Other,
    }
}

fn usage(usage: &Value) -> TokenUsage {
    let count = |key: &str| usage[key].as_u64().unwrap_or(0);
    let split = &usage["cache_creation"];
    let hour = split["ephemeral_1h_input_tokens"].as_u64().unwrap_or(0);
    TokenUsage {
        uncached: count("input_tokens"),
        cache_read: count("cache_read_input_tokens"),
        cache_write_5m: count("cache_creation_input_tokens").saturating_sub(hour),
        cache_write_1h: hour,
        output: count("output_tokens"),
        reasoning: 0,
    }
}

fn replacement(edit: &Value) -> Option<Replacement> {
    Some(Replacement {
        old: text(edit, "old_string")?.to_owned(),
        new: text(edit, "new_string")?.to_owned(),
        all: edit["replace_all"].as_bool() == Some(true),
    })
}

/// The text of a result block, which is a string or a list of text blocks.
fn shown(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| text(block, "text"));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn error(message: &str) -> CallError {
    let says = |part: &str| message.contains(part);
    if says("user doesn't want") || says("user rejected") {
        CallError::Rejected
    } else if says("does not exist") {
        CallError::NotFound
    } else if says("String to replace not found") {
        CallError::NoMatch
    } else if says("matches of the string to replace") {
        CallError::MultiMatch
    } else if says("has not been read yet") || says("has been modified since") {
        CallError::Stale
    } else if says("Exit code") {
        CallError::Exit
    } else {
        CallError::Other
    }
}

/// The file in a line of `grep -n` output: `path:12:text`, or `path-12-text` around a match.
fn grep_file(line: &str) -> Option<&str> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (path, rest) = line.split_once(':')?;
    let (number, _) = rest.split_once(':')?;
    (is_number(number) && !path.is_empty() && !path.contains(char::is_whitespace)).then_some(path)
}

/// The text of a line in Read's format: right-aligned number, arrow, text.
fn numbered_line(line: &str) -> Option<&str> {
    let (number, text) = line.split_once('→')?;
    number.trim().parse::<u64>().ok()?;
    Some(text)
}

/// Milliseconds since 1970 of a time such as `2026-02-09T08:12:58.677Z`.
fn milliseconds(time: &str) -> Option<i64> {
    Some(time.parse::<jiff::Timestamp>().ok()?.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traps() -> ImportedSession {
        read(include_str!("fixtures/claude-code-traps.jsonl")).unwrap()
    }

    #[test]
    fn a_response_over_several_lines_counts_once_with_its_last_usage() {
        let session = traps();
        let apis = session.events.iter().filter_map(|event| match event {
            Recorded::Api { usage, .. } => Some(*usage),
            _ => None,
        });
        let apis: Vec<_> = apis.collect();
        assert_eq!(apis.len(), 6, "m1 to m6, m5 by the subagent");
        let expected = TokenUsage {
            uncached: 10,
            cache_read: 100,
            cache_write_5m: 20,
            cache_write_1h: 10,
            output: 9,
            reasoning: 0,
        };
        assert_eq!(apis[0], expected);
    }

    #[test]
    fn copied_history_counts_once_and_broken_lines_are_counted() {
        let session = traps();
        let users = session.events.iter();
        let users = users.filter(|event| matches!(event, Recorded::User { .. }));
        assert_eq!(users.count(), 1);
        assert_eq!(session.unreadable_lines, 1);
    }

    #[test]
    fn a_subagent_has_a_lane_of_its_own() {
        let session = traps();
        let others = session.calls().filter(|call| call.lane != "main");
        let others: Vec<_> = others.map(|call| (&*call.id, &*call.lane)).collect();
        assert_eq!(others, [("t7", "sub:a7")]);
    }

    #[test]
    fn the_importer_extracts_file_content_from_results() {
        let session = traps();
        let seen = session.results().map(|result| (&*result.id, result));
        let seen: HashMap<_, _> = seen.collect();
        assert!(
            matches!(&seen["t1"].seen, SeenContent::Whole { path, .. } if path == "src/main.go")
        );
        assert_eq!(
            seen["t2"].seen,
            SeenContent::Listed(vec!["docs/a.md".to_owned()])
        );
        assert_eq!(seen["t5"].err, Some(CallError::NotFound));
        assert_eq!(seen["t6"].err, Some(CallError::NoMatch));
        let part = SeenContent::Part {
            path: "docs/a.md".to_owned(),
            content: "line two\na secret".to_owned(),
            total_lines: 3,
        };
        assert_eq!(seen["t7"].seen, part);
        let written = &seen["t8"].seen;
        assert!(matches!(written, SeenContent::Written { before: None, .. }));
        assert_eq!(
            seen["t9"].seen,
            SeenContent::Nothing,
            "outside the workspace"
        );
    }

    #[test]
    fn errors_and_lines_of_grep_are_told_apart() {
        let many = "Error: Found 3 matches of the string to replace";
        for (message, expected) in [
            (many, CallError::MultiMatch),
            ("Error: File has not been read yet.", CallError::Stale),
            (
                "Error: The user doesn't want to proceed",
                CallError::Rejected,
            ),
            ("Error: Exit code 1", CallError::Exit),
        ] {
            assert_eq!(error(message), expected);
        }
        assert_eq!(grep_file("a/b.go:12:text: more"), Some("a/b.go"));
        assert_eq!(grep_file("some text: not a file: 12:"), None);
        assert_eq!(grep_file("no"), None);
    }

    #[test]
    fn a_file_without_a_session_is_refused() {
        assert!(read("").is_err());
        assert!(read("{\"type\":\"summary\"}\nnonsense\n").is_err());
    }
}
