//! Importer for Cline and Roo Code: `api_conversation_history.json`, with calls as tool use or as tags in the text of answers,
//! and `ui_messages.json`, which has the usage, and calls without the content that reads showed; and the sessions of Cline's
//! SDK, which [`super::cline_sdk`] reads.

use std::io::BufRead;

use serde_json::{Map, Value, json};

use super::cline_sdk;
use super::detect::Head;
use super::json::{content, document, milliseconds, token_count};
use super::messages::{assistant, message};
use super::recorder::{Answer, Recorder};
use super::tools::search_blocks;
use super::{Hunk, ImportedSession, Importer, text};
use workloads::trace::TokenUsage;

/// Cline and Roo Code.
#[derive(Debug)]
pub struct Cline;

/// Tools that are written as tags.
const TOOLS: &str = "read_file write_to_file replace_in_file apply_diff search_files list_files execute_command insert_content \
    search_and_replace list_code_definition_names ask_followup_question attempt_completion new_task browser_action \
    use_mcp_tool access_mcp_resource switch_mode plan_mode_respond load_mcp_documentation update_todo_list codebase_search \
    fetch_instructions edit_file web_fetch";

impl Importer for Cline {
    fn id(&self) -> &'static str {
        "cline"
    }

    fn reads(&self) -> &'static str {
        "Cline and Roo Code tasks (`api_conversation_history.json`; `ui_messages.json` for usage), and sessions of Cline's SDK (`*.messages.json`)"
    }

    fn lacks(&self) -> Option<&'static str> {
        Some("usage in older versions, which is in ui_messages.json beside it")
    }

    fn detects(&self, head: &Head) -> bool {
        let starts = ["<task>", "<environment_details>", "<user_message>", "[read_file for", "[execute_command for"];
        let is_history =
            head.is_list && head.has("role") && starts.iter().any(|start| head.begins("content.text", start));
        is_history
            || head.is_list && (head.is("say", "api_req_started") || head.is("say", "task"))
            || cline_sdk::detects(head)
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let (file, damage) = document(recording)?;
        if file.is_object() {
            let mut recorder = Recorder::new("cline");
            cline_sdk::session(&mut recorder, &file);
            recorder.unreadable(damage);
            return Ok(vec![recorder.finish()]);
        }
        let messages = file.as_array().ok_or("is not a list of messages")?;
        let mut reader = Reader { recorder: Recorder::new("cline"), open: Vec::new(), question: None };
        if messages.iter().any(|message| message["say"].is_string()) {
            messages.iter().for_each(|message| reader.interface(message));
        } else {
            messages.iter().for_each(|message| reader.message(message));
        }
        reader.end_command();
        reader.recorder.unreadable(damage);
        Ok(vec![reader.recorder.finish()])
    }
}

struct Reader {
    recorder: Recorder,
    /// The calls of the last answer that have no result yet: identity and tool.
    open: Vec<(String, String)>,
    /// A command of the interface whose output follows: its identity and its output so far.
    question: Option<(String, String)>,
}

impl Reader {
    fn message(&mut self, record: &Value) {
        self.recorder.time(milliseconds(&record["ts"]));
        if text(record, "role") == Some("assistant") {
            let said = content(&record["content"]);
            let model = text(&record["modelInfo"], "modelId").unwrap_or_default();
            self.recorder.model(model);
            assistant(&mut self.recorder, record);
            self.recorder.usage(metrics(&record["metrics"]["tokens"]));
            self.recorder.cost(&record["metrics"]["cost"]);
            let native = record["content"].as_array().into_iter().flatten();
            let native = native.filter(|block| text(block, "type") == Some("tool_use"));
            self.open = native
                .map(|block| {
                    let field = |name| text(block, name).unwrap_or_default().to_owned();
                    (field("id"), field("name"))
                })
                .collect();
            if self.open.is_empty()
                && let Some((tool, args)) = tagged(&said)
            {
                let id = self.recorder.new_call_in_text("call", &tool, args, None);
                self.recorder.end_answer();
                self.open.push((id, tool));
            }
            return;
        }
        let said = content(&record["content"]);
        if let Some((_, rest)) = said.split_once("Current Working Directory (")
            && let Some((dir, _)) = rest.split_once(')')
        {
            self.recorder.directory(dir);
        }
        let has_results = record["content"]
            .as_array()
            .is_some_and(|blocks| blocks.iter().any(|block| text(block, "type") == Some("tool_result")));
        if self.open.is_empty() || has_results {
            self.open.clear();
            return message(&mut self.recorder, record);
        }
        for (tool, shown) in results(record, &self.open) {
            let of = self.open.iter().position(|(_, name)| *name == tool);
            let (id, tool) = self.open.remove(of.unwrap_or(0));
            self.result(&id, &tool, &shown);
            if self.open.is_empty() {
                break;
            }
        }
    }

    /// The result of a call, which the next message shows as text.
    fn result(&mut self, id: &str, tool: &str, shown: &str) {
        let mut result = match shown.split_once("Result:\n") {
            Some((frame, result)) if frame.trim_start().starts_with(&format!("[{tool}")) => result,
            _ => shown,
        };
        result = result.trim_start_matches('\n');
        for tag in ["file_content", "final_file_content"] {
            let opened = result.find(&format!("<{tag}"));
            if let Some(inner) = opened.and_then(|at| result[at..].split_once(">\n")) {
                result = inner.1.split_once(&format!("\n</{tag}>")).map_or(inner.1, |(inner, _)| inner);
            }
        }
        let failed = result.starts_with("The tool execution failed")
            || result.starts_with("The user denied")
            || result.starts_with("Command failed with exit code")
            || result.contains("<error>");
        let printed = match result.split_once("Output:\n") {
            Some((frame, printed)) if tool == "execute_command" && frame.len() < 400 => printed,
            _ => result,
        };
        // The whole file, which the client may have formatted.
        let is_saved = !failed && shown.contains("<final_file_content");
        self.recorder.answered(
            id,
            Answer {
                shown: shown.to_owned(),
                printed: Some(printed.to_owned()),
                failed,
                after: is_saved.then(|| result.to_owned()),
                ..Answer::default()
            },
        );
    }

    /// A message of the interface: a request states its usage.
    fn interface(&mut self, record: &Value) {
        self.recorder.time(milliseconds(&record["ts"]));
        let said = text(record, "text").unwrap_or_default();
        let model = text(&record["modelInfo"], "modelId").unwrap_or_default();
        self.recorder.model(model);
        if record["partial"].as_bool() == Some(true) {
            return;
        }
        let kind = text(record, "say").or_else(|| text(record, "ask"));
        if kind != Some("command_output") {
            self.end_command();
        }
        match kind {
            Some("api_req_started") => {
                let Ok(request) = serde_json::from_str::<Value>(said) else {
                    return;
                };
                let count = |name: &str| token_count(&request[name]);
                self.recorder.answer();
                self.recorder.usage(TokenUsage {
                    uncached: count("tokensIn"),
                    cache_read: count("cacheReads"),
                    cache_write_5m: count("cacheWrites"),
                    output: count("tokensOut"),
                    ..TokenUsage::default()
                });
                self.recorder.cost(&request["cost"]);
            }
            Some("text") => self.recorder.said(said, ""),
            Some("reasoning") => self.recorder.said("", said),
            Some("task" | "user_feedback") => self.recorder.user(said),
            Some("tool") => self.interface_call(said),
            Some("command") => {
                let args = json!({ "command": said });
                let id = self.recorder.new_call("call", "execute_command", args, None);
                self.question = Some((id, String::new()));
            }
            Some("command_output") => {
                if let Some((_, printed)) = &mut self.question {
                    printed.push_str(said);
                    printed.push('\n');
                }
            }
            _ => {}
        }
    }

    /// Ends the command whose output has been shown.
    fn end_command(&mut self) {
        if let Some((id, printed)) = self.question.take() {
            self.recorder.result(&id, printed, false);
        }
    }

    /// A tool that the interface shows: its content is what was written or listed; of a read, it is the file's path.
    fn interface_call(&mut self, said: &str) {
        let Ok(mut shown) = serde_json::from_str::<Value>(said) else {
            return;
        };
        let tool = text(&shown, "tool").unwrap_or("unknown");
        let tool = match tool {
            "readFile" => "read_file",
            "newFileCreated" => "write_to_file",
            "editedExistingFile" | "appliedDiff" => "replace_in_file",
            "listFilesTopLevel" | "listFilesRecursive" => "list_files",
            "searchFiles" => "search_files",
            other => other,
        }
        .to_owned();
        let content = text(&shown, "content").unwrap_or_default().to_owned();
        let result = match tool.as_str() {
            "read_file" | "write_to_file" | "replace_in_file" => String::new(),
            _ => content.clone(),
        };
        let mut hunks = Vec::new();
        if tool == "replace_in_file" {
            hunks = stated_hunks(&content, &shown["startLineNumbers"]);
            shown["diff"] = content.into();
        }
        let id = self.recorder.new_call("call", &tool, shown, None);
        self.recorder.answered(&id, Answer { shown: result, hunks, ..Answer::default() });
    }
}

/// The changed lines of an edit whose blocks the interface has found in these lines of the file; empty if it does not say
/// so of each block.
fn stated_hunks(diff: &str, first_lines: &Value) -> Vec<Hunk> {
    let blocks = search_blocks(diff);
    let firsts: Vec<u64> = first_lines.as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    let is_stated = firsts.len() == blocks.len() && blocks.iter().all(|block| !block.old.is_empty());
    if !is_stated {
        return Vec::new();
    }
    let marked = |mark: char, text: &str| text.lines().map(|line| format!("{mark}{line}")).collect::<Vec<_>>();
    let hunks = firsts.into_iter().zip(&blocks);
    hunks
        .map(|(first, block)| Hunk { first, lines: [marked('-', &block.old), marked('+', &block.new)].concat() })
        .collect()
}

/// The usage of an answer, in newer versions. The prompt includes what the cache serves, except where it is smaller.
fn metrics(tokens: &Value) -> TokenUsage {
    let [prompt, cached, output] = ["prompt", "cached", "completion"].map(|name| token_count(&tokens[name]));
    let uncached = prompt.checked_sub(cached).unwrap_or(prompt);
    TokenUsage { uncached, cache_read: cached, output, ..TokenUsage::default() }
}

/// The results that a message shows as text: `[read_file for 'a'] Result:`, then the result, in this block or the next one.
/// A result whose tool is not named is of the first call.
fn results(record: &Value, open: &[(String, String)]) -> Vec<(String, String)> {
    let whole = content(&record["content"]);
    let blocks: Vec<&str> = match record["content"].as_array() {
        Some(blocks) => blocks.iter().filter_map(|block| text(block, "text")).collect(),
        None => vec![whole.as_str()],
    };
    let mut found: Vec<(String, String)> = Vec::new();
    for block in blocks {
        let (block, _) = block.split_once("\n<environment_details>").unwrap_or((block, ""));
        if block.trim_start().starts_with("<environment_details>") {
            continue;
        }
        let named = block.trim_start().strip_prefix('[').and_then(|rest| {
            let (frame, _) = rest.split_once("] Result:")?;
            let name = frame.split([' ', ']']).next()?;
            open.iter().find(|(_, tool)| tool == name)
        });
        match (named, found.last_mut()) {
            (Some((_, tool)), _) => found.push((tool.clone(), block.to_owned())),
            (None, Some((_, shown))) => {
                shown.push('\n');
                shown.push_str(block);
            }
            (None, None) => found.push((String::new(), block.to_owned())),
        }
    }
    found
}

/// The last call in the text of an answer: `<read_file><path>a</path></read_file>`.
fn tagged(said: &str) -> Option<(String, Value)> {
    let mut found: Option<(usize, &str)> = None;
    for tool in TOOLS.split_whitespace() {
        if let Some(at) = said.find(&format!("<{tool}>"))
            && found.is_none_or(|(first, _)| at < first)
        {
            found = Some((at, tool));
        }
    }
    let (at, tool) = found?;
    let body = &said[at + tool.len() + 2..];
    let body = body.rsplit_once(&format!("</{tool}>")).map_or(body, |(body, _)| body);
    let mut args = fields(body);
    // Roo names files in `<args><file><path>`.
    if !args.contains_key("path")
        && let Some((_, rest)) = body.split_once("<path>")
        && let Some((path, _)) = rest.split_once("</path>")
        && body.matches("<path>").count() == 1
    {
        args.insert("path".to_owned(), path.trim().into());
    }
    Some((tool.to_owned(), Value::Object(args)))
}

/// The outer tags of a text.
fn fields(body: &str) -> Map<String, Value> {
    let mut all = Map::new();
    let mut rest = body;
    while let Some((_, after)) = rest.split_once('<') {
        let Some((name, inner)) = after.split_once('>') else {
            break;
        };
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let end = format!("</{name}>");
        // A file's content can contain its own tag: the last one ends it.
        let closed = match name {
            "content" | "diff" => inner.rsplit_once(end.as_str()),
            _ => inner.split_once(end.as_str()),
        };
        match closed.filter(|_| is_name) {
            Some((value, after)) => {
                let value = match name {
                    "content" | "diff" => value.strip_prefix('\n').unwrap_or(value),
                    _ => value.trim(),
                };
                all.insert(name.to_owned(), value.into());
                rest = after;
            }
            None => rest = inner,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::testing::{calls, coverage, files, imported, stated, usages};
    use serde_json::json;

    #[test]
    fn calls_in_tags_and_native_calls_are_calls() {
        let user = |text: &str| json!({"role": "user", "content": [{"type": "text", "text": text}]});
        let details = "<environment_details>\n# Current Working Directory (/w/p) Files\na.txt\n</environment_details>";
        let said = |text: &str| json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
        let diff = "<<<<<<< SEARCH\none\n=======\n1\n>>>>>>> REPLACE";
        let history = json!([
            {"role": "user", "content": [{"type": "text", "text": "<task>\nChange it.\n</task>"}, {"type": "text", "text": details}]},
            said("<thinking>hm</thinking>\n<read_file>\n<path>a.txt</path>\n</read_file>"),
            user("[read_file for 'a.txt'] Result:\none\ntwo\n"),
            said(&format!("<replace_in_file>\n<path>a.txt</path>\n<diff>\n{diff}\n</diff>\n</replace_in_file>")),
            user("[replace_in_file for 'a.txt'] Result:\nThe content was successfully saved."),
            said("<execute_command>\n<command>ls</command>\n<requires_approval>false</requires_approval>\n</execute_command>"),
            user("[execute_command for 'ls'] Result:\nCommand executed.\nOutput:\na.txt\n"),
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "write_to_file", "input": {"path": "b.txt", "content": "x"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "saved"}]},
        ]);
        assert_eq!(
            calls(&imported("cline", &history.to_string())),
            [
                "read_file read a.txt: whole one\ntwo\n",
                "replace_in_file edit a.txt: 1 replacements",
                "execute_command exec: ls in /w/p -> a.txt\n",
                "write_to_file write b.txt: written x",
            ]
        );
        let interface = json!([
            {"ts": 1_769_000_000_000_u64, "type": "say", "say": "task", "text": "Change it."},
            {"ts": 1_769_000_001_000_u64, "type": "say", "say": "api_req_started",
                "text": json!({"tokensIn": 5, "tokensOut": 6, "cacheWrites": 7, "cacheReads": 8, "cost": 0.5}).to_string()},
            {"ts": 1_769_000_002_000_u64, "type": "say", "say": "api_req_started",
                "text": json!({"tokensIn": 1, "tokensOut": 1, "cost": 0.25}).to_string()},
        ]);
        let session = imported("cline", &interface.to_string());
        assert_eq!(usages(&session), [" 5+8+7 6", " 1+0 1"]);
        assert_eq!(stated(&session), Some(0.75));
    }

    #[test]
    fn an_answer_has_the_usage_of_its_metrics() {
        let answer = |prompt: u64, cached: u64, said: &str| {
            let metrics = json!({"tokens": {"prompt": prompt, "completion": 7, "cached": cached}, "cost": 0.25});
            json!({"role": "assistant", "content": said, "modelInfo": {"modelId": "m"}, "metrics": metrics})
        };
        let history = json!([
            {"role": "user", "content": [{"type": "text", "text": "<task>\nLook.\n</task>"}]},
            answer(100, 60, "<read_file>\n<path>/w/a.txt</path>\n</read_file>"),
            {"role": "user", "content": "[read_file for '/w/a.txt'] Result:\none"},
            answer(3, 90, "Done."),
            {"role": "assistant", "content": "No.", "metrics": {"tokens": {"prompt": -5, "completion": 1e300, "cached": "x"}, "cost": -1}},
            {"role": "assistant", "content": "No.", "metrics": {"cost": 1e308}},
            {"role": "assistant", "content": "No.", "metrics": {"cost": 1e308}},
        ]);
        let session = imported("cline", &history.to_string());
        assert_eq!(usages(&session), ["m 40+60 7", "m 3+90 7"]);
        assert_eq!(stated(&session), Some(0.5));
    }

    #[test]
    fn the_saved_content_is_that_of_the_file() {
        let saved = |tool: &str, content: &str| json!({"role": "user", "content": [{"type": "text", "text": format!("[{tool} for 'a.txt'] Result:\nThe content was successfully saved to a.txt.\n\nHere is the full, updated content of the file that was saved:\n\n<final_file_content path=\"a.txt\">\n{content}\n</final_file_content>\n\nIMPORTANT: use it as reference.")}]});
        let ask = |id: &str, name: &str, input: serde_json::Value| json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": input}]});
        let edit = |diff: &str, content: &str| {
            let history = json!([
                {"role": "user", "content": [{"type": "text", "text": "<task>\nChange it.\n</task>"}]},
                ask("t1", "replace_in_file", json!({"path": "a.txt", "diff": diff})),
                saved("replace_in_file", content),
            ]);
            imported("cline", &history.to_string())
        };
        let diff = "------- SEARCH\none\ntwo\n=======\n1\n2\n+++++++ REPLACE\n";
        // The file has other ends of lines than the diff.
        for (after, before) in [("0\r\n1\r\n2\r\n3", "0\r\none\r\ntwo\r\n3"), ("0\n1\n2", "0\none\ntwo")] {
            let session = edit(diff, after);
            assert_eq!((coverage(&session).replayed, files(&session)), (1, vec![format!("a.txt Full {before}")]));
        }
        // One of two places: which one is not certain.
        assert_eq!(coverage(&edit(diff, "1\n2\n1\n2\n")).replayed, 0);
        let history = json!([
            {"role": "user", "content": [{"type": "text", "text": "<task>\nWrite it.\n</task>"}]},
            ask("t1", "write_to_file", json!({"path": "a.txt", "content": "one"})),
            saved("write_to_file", "one\n"),
        ]);
        assert_eq!(calls(&imported("cline", &history.to_string())), ["write_to_file write a.txt: written one\n"]);
    }

    #[test]
    fn native_calls_whose_results_are_text_have_their_results() {
        let ask = |id: &str, name: &str, input: serde_json::Value| json!({"type": "tool_use", "id": id, "name": name, "input": input});
        let history = json!([
            {"role": "user", "content": [{"type": "text", "text": "<task>\nChange it.\n</task>"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."},
                ask("t1", "list_files", json!({"path": "src", "recursive": true})), ask("t2", "read_file", json!({"path": "src/a.txt"}))]},
            {"role": "user", "content": [
                {"type": "text", "text": "[list_files for 'src'] Result:\na.txt\nb/"},
                {"type": "text", "text": "[read_file for 'src/a.txt'] Result:\n1 | one\n2 | two"},
                {"type": "text", "text": "<environment_details>\n# Current Mode\nACT MODE\n</environment_details>"}]},
            {"role": "assistant", "content": [ask("t3", "execute_command", json!({"command": "cat src/a.txt"}))]},
            {"role": "user", "content": [{"type": "text", "text": "[execute_command for 'cat src/a.txt'] Result:\nCommand failed with exit code 1."}]},
        ]);
        assert_eq!(
            calls(&imported("cline", &history.to_string())),
            [
                "list_files list src: lists src/a.txt",
                "read_file read src/a.txt: whole one\ntwo\n",
                "execute_command exec: cat src/a.txt -> (Exit)",
            ]
        );
    }

    #[test]
    fn a_session_on_windows_has_commands_of_cmd() {
        let user = |text: &str| json!({"role": "user", "content": [{"type": "text", "text": text}]});
        let said = |text: &str| json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
        let run = |command: &str| said(&format!("<execute_command>\n<command>{command}</command>\n</execute_command>"));
        let ask = |id: &str, name: &str, input: serde_json::Value| json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": input}]});
        let history = json!([
            user("<task>\nChange it.\n</task>"),
            ask("t1", "write_to_file", json!({"absolutePath": r"C:\Apps\p\src\a.txt", "content": "one\n"})),
            user("[write_to_file for 'a.txt'] Result:\nThe content was successfully saved."),
            run(r"cd /d c:\Apps\p && type src\a.txt"),
            user("[execute_command for 'type'] Result:\nCommand executed.\nOutput:\none\n"),
            run(r"ren c:\Apps\p\src\a.txt b.txt"),
            user("[execute_command for 'ren'] Result:\nCommand executed."),
            ask("t2", "write_to_file", json!({"content": "two\n"})),
            user("[write_to_file for 'b.txt'] Result:\nThe content was successfully saved."),
        ]);
        let coverage = coverage(&imported("cline", &history.to_string()));
        assert_eq!((coverage.recorded, coverage.replayed), (4, 3), "{:?}", coverage.causes);
        assert_eq!(coverage.causes.into_iter().collect::<Vec<_>>(), [("a call that names no file".to_owned(), 1)]);
    }

    #[test]
    fn an_edit_of_the_interface_is_where_it_says() {
        let edit = |firsts: serde_json::Value| {
            let diff = "------- SEARCH\none\ntwo\n=======\n1\n+++++++ REPLACE\n------- SEARCH\nten\n=======\nten\n11\n+++++++ REPLACE\n";
            let edit =
                json!({"tool": "editedExistingFile", "path": "a.txt", "content": diff, "startLineNumbers": firsts});
            let say =
                |what: &str, text: &str| json!({"ts": 1_769_000_000_000_u64, "type": "say", "say": what, "text": text});
            let interface = json!([say("task", "Change it."), say("tool", &edit.to_string())]);
            imported("cline", &interface.to_string())
        };
        let session = edit(json!([3, 10]));
        assert_eq!(coverage(&session).replayed, 1);
        let file = &files(&session)[0];
        let lines: Vec<&str> = file.lines().collect();
        assert_eq!((lines[2], lines[3], lines[9]), ("one", "two", "ten"), "{file}");
        assert_eq!(coverage(&edit(json!([3]))).replayed, 0);
    }

    #[test]
    fn the_interface_shows_calls_and_the_model() {
        let say = |what: &str, text: &str| json!({"ts": 1_769_000_000_000_u64, "type": "say", "say": what, "text": text, "modelInfo": {"modelId": "claude-opus-4-6"}});
        let tool = |tool: &str, path: &str, content: &str| {
            say("tool", &json!({"tool": tool, "path": path, "content": content}).to_string())
        };
        let interface = json!([
            say("task", "Change it."),
            say("api_req_started", &json!({"tokensIn": 5, "tokensOut": 6}).to_string()),
            tool("newFileCreated", "a.txt", "one\n"),
            tool("readFile", "b.txt", "/w/p/b.txt"),
            say("command", "ls"),
            {"type": "ask", "ask": "command_output", "text": "a.txt"},
            {"type": "ask", "ask": "command_output", "text": "cut off", "partial": true},
            say("completion_result", "Done."),
        ]);
        let session = imported("cline", &interface.to_string());
        assert_eq!(session.model, "claude-opus-4-6");
        assert_eq!(
            calls(&session),
            ["write_to_file write a.txt: written one\n", "read_file read b.txt", "execute_command exec: ls -> a.txt\n",]
        );
    }
}
