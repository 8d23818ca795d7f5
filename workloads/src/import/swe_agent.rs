//! Importer for SWE-agent's trajectories (`.traj`): actions as text, or as tool calls in the history.
//! The agent looks at files through a window, and edits by line numbers: both need the file as it is known at that point.

use std::collections::HashMap;
use std::io::BufRead;

use serde_json::{Value, json};

use super::detect::Head;
use super::json::{arguments, content, document, token_count};
use super::recorder::{Answer, Recorder};
use super::tools::numbered;
use super::{ImportedSession, Importer, ReportedTotal, text};
use crate::trace::TokenUsage;

/// SWE-agent.
#[derive(Debug)]
pub struct SweAgent;

impl Importer for SweAgent {
    fn id(&self) -> &'static str {
        "swe-agent"
    }

    fn reads(&self) -> &'static str {
        "SWE-agent trajectories (`*.traj`), with actions as text or as tool calls"
    }

    fn detects(&self, head: &Head) -> bool {
        let has_steps = head.has("trajectory.action") && head.has("trajectory.observation");
        // A demonstration holds the history alone.
        has_steps || head.has("history.agent") && head.is("history.message_type", "observation")
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let file = document(recording)?;
        let told = match file["history"].as_array() {
            Some(history) if file["trajectory"].is_null() => told_steps(history),
            _ => Vec::new(),
        };
        let steps = match &file["trajectory"] {
            Value::Array(steps) => steps,
            _ if file["history"].is_array() => &told,
            _ => return Err("has no list `trajectory`".to_owned()),
        };
        let mut reader = Reader { recorder: Recorder::new("SWE-agent"), windows: Windows::default() };
        let config = match &file["replay_config"] {
            Value::String(config) => serde_json::from_str(config).unwrap_or_default(),
            config => config.clone(),
        };
        let model = text(&config["agent"]["model"], "name").unwrap_or_default();
        reader.recorder.model(model);
        let history = file["history"].as_array();
        let history: Vec<&Value> = history.into_iter().flatten().collect();
        let is_action = |message: &&&Value| text(message, "role") == Some("assistant") && message["is_demo"] != true;
        let actions: Vec<&&Value> = history.iter().filter(is_action).collect();
        for message in history.iter().take_while(|message| !is_action(message)) {
            match text(message, "role") {
                Some("system") => reader.recorder.system(&content(&message["content"])),
                _ => reader.recorder.user(&content(&message["content"])),
            }
        }
        let is_paired = actions.len() == steps.len();
        for (number, step) in steps.iter().enumerate() {
            let call = match is_paired {
                true => &actions[number]["tool_calls"][0],
                false => &Value::Null,
            };
            reader.step(number, step, call);
        }
        let info = &file["info"]["model_stats"];
        let count = |name: &str| token_count(&info[name]);
        let usage =
            TokenUsage { uncached: count("tokens_sent"), output: count("tokens_received"), ..TokenUsage::default() };
        reader.recorder.total(ReportedTotal {
            model: model.to_owned(),
            usage: (usage != TokenUsage::default()).then_some(usage),
            dollars: info["instance_cost"].as_f64().filter(|dollars| *dollars > 0.0),
        });
        Ok(vec![reader.recorder.finish()])
    }
}

struct Reader {
    recorder: Recorder,
    windows: Windows,
}

impl Reader {
    fn step(&mut self, number: usize, step: &Value, call: &Value) {
        // The state is a text of JSON in old files.
        let state = arguments(&step["state"]);
        let dir = text(&state, "working_dir").filter(|dir| *dir != "n/a").map(str::to_owned);
        self.recorder.directory(dir.as_deref().unwrap_or_default());
        let dir = dir.as_deref();
        self.recorder.answer();
        let function = &call["function"];
        let is_call = function["name"].is_string();
        let response = content(&step["response"]);
        let thought = content(&step["thought"]);
        self.recorder.said(if response.is_empty() { &thought } else { &response }, "");
        let action = content(&step["action"]);
        let observation = content(&step["observation"]).replace("\r\n", "\n");
        let failed = has_failed(&observation);
        let id = format!("step-{number}");
        let (tool, args) = match is_call {
            true => (text(function, "name").unwrap_or_default().to_owned(), arguments(&function["arguments"])),
            false => parsed(&action),
        };
        let (args, before) = self.windows.understand(&tool, args, &state, &observation, failed);
        match is_call {
            true => self.recorder.call(&id, &tool, args, dir),
            false => self.recorder.call_in_text(&id, &tool, args, dir),
        }
        self.recorder.end_answer();
        let answer = Answer { shown: observation, failed, before, ..Answer::default() };
        self.recorder.answered(&id, answer);
    }
}

/// The steps that a history tells: an answer, and the observation after it with the state in its last lines.
fn told_steps(history: &[Value]) -> Vec<Value> {
    let is_answer = |message: &Value| text(message, "role") == Some("assistant") && message["is_demo"] != true;
    let told = history.iter().enumerate();
    told.filter(|(_, message)| is_answer(message))
        .map(|(at, message)| {
            let next = history.get(at + 1).filter(|next| !is_answer(next));
            let observation = next.map(|next| content(&next["content"])).unwrap_or_default();
            let named = |name: &str| {
                let line = observation.lines().rev().find(|line| line.starts_with(name))?;
                line.strip_prefix(name)?.strip_suffix(')').map(str::to_owned)
            };
            json!({
                "action": message["action"],
                "response": content(&message["content"]),
                "state": { "open_file": named("(Open file: "), "working_dir": named("(Current directory: ") },
                "observation": observation,
            })
        })
        .collect()
}

fn has_failed(observation: &str) -> bool {
    let starts = [
        "Error",
        "Usage:",
        "Your proposed edit has introduced",
        "File not found",
        "No file open",
        "Traceback",
        "usage:",
    ];
    let last = observation.trim_end().lines().last().unwrap_or_default();
    starts.iter().any(|start| observation.trim_start().starts_with(start))
        || observation.contains("Your proposed edit has introduced new syntax error")
        || last.ends_with("command not found")
        || last.contains("No such file or directory")
}

/// The agent's command, and its arguments. Anything else is a line of the shell.
fn parsed(action: &str) -> (String, Value) {
    let (line, rest) = action.split_once('\n').unwrap_or((action, ""));
    let words = words(line);
    let word = |at: usize| words.get(at).map(String::as_str);
    let number = |at: usize| word(at).and_then(|word| word.parse::<u64>().ok());
    let Some(command) = word(0) else {
        return ("bash".to_owned(), json!({ "command": action }));
    };
    let args = match command {
        "open" => json!({ "path": word(1), "line_number": number(2) }),
        "goto" => json!({ "line_number": number(1) }),
        "scroll_up" | "scroll_down" => json!({}),
        "create" => json!({ "filename": word(1) }),
        "edit" if word(1).is_some_and(|range| range.contains(':')) => {
            let (first, last) = word(1).and_then(|range| range.split_once(':')).unwrap_or_default();
            let text = rest.trim_end_matches('\n');
            let text = text.strip_suffix("end_of_edit").unwrap_or(text);
            let text = text.strip_suffix('\n').unwrap_or(text);
            json!({ "start_line": first.parse::<u64>().ok(), "end_line": last.parse::<u64>().ok(), "replacement_text": text })
        }
        "search_dir" => json!({ "search_term": word(1), "path": word(2).unwrap_or(".") }),
        "search_file" => json!({ "search_term": word(1), "path": word(2) }),
        "find_file" => json!({ "file_name_pattern": word(1), "path": word(2).unwrap_or(".") }),
        "submit" => json!({}),
        "str_replace_editor" => {
            let all = self::words(action);
            let mut args = json!({ "command": all.get(1), "path": all.get(2) });
            let mut rest = all.iter().skip(3);
            while let Some(option) = rest.next() {
                let Some(name) = option.strip_prefix("--") else {
                    continue;
                };
                args[name] = match name {
                    "view_range" => {
                        let ends: Vec<i64> = rest.by_ref().take(2).filter_map(|end| end.parse().ok()).collect();
                        json!(ends)
                    }
                    _ => json!(rest.next()),
                };
            }
            args
        }
        _ => return ("bash".to_owned(), json!({ "command": action.trim_end() })),
    };
    (command.to_owned(), args)
}

/// The words of a line, without quotes.
fn words(line: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => word.get_or_insert_default().extend(chars.by_ref().take_while(|c| *c != '\'')),
            '"' => {
                let word = word.get_or_insert_default();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    word.extend(if c == '\\' { chars.next() } else { Some(c) });
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            c if c.is_whitespace() => all.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    all
}

/// Files as the agent's window has shown them.
#[derive(Default)]
struct Windows {
    /// The lines of each file that is known as a whole.
    files: HashMap<String, Vec<String>>,
}

impl Windows {
    /// Turns the arguments of a windowed command into those of a read, a write or an edit. Returns the file before an edit,
    /// too, if it is known.
    fn understand(
        &mut self,
        tool: &str,
        mut args: Value,
        state: &Value,
        observation: &str,
        failed: bool,
    ) -> (Value, Option<String>) {
        let header = header(observation);
        let after = text(state, "open_file").filter(|file| *file != "n/a");
        let open = header.map(|(file, _)| file).or(after).map(str::to_owned);
        let mut before = None;
        if let Some(pattern) = args.get("dir").cloned() {
            args["path"] = pattern;
        }
        match tool {
            "open" | "goto" | "scroll_up" | "scroll_down" => {
                if args["path"].is_null() {
                    args["path"] = json!(open);
                }
                let shown = numbered(observation);
                if let (Some(shown), Some((_, total))) = (&shown, header) {
                    let count = shown.lines.len() as u64;
                    if shown.first != 1 || count != total {
                        args["start_line"] = json!(shown.first);
                        args["end_line"] = json!(shown.first + count - 1);
                    }
                }
            }
            "create" => {
                if let Some(name) = text(&args, "filename").map(str::to_owned) {
                    args["content"] = json!("\n");
                    self.files.insert(open.clone().unwrap_or(name), vec![String::new()]);
                }
            }
            "edit" if !failed => {
                if args["path"].is_null() {
                    args["path"] = json!(open);
                }
                before = self.edited(open.as_deref(), &mut args);
            }
            _ => {}
        }
        if let (Some(file), Some(shown), Some((_, total))) = (open, numbered(observation), header) {
            if shown.first == 1 && shown.lines.len() as u64 == total {
                let lines = shown.lines.iter().map(|line| (*line).to_owned());
                self.files.insert(file, lines.collect());
            } else if !failed
                && tool != "edit"
                && self.files.get(&file).is_some_and(|known| known.len() as u64 != total)
            {
                self.files.remove(&file);
            }
        }
        (args, before)
    }

    /// Turns an edit of lines into a replacement of text.
    fn edited(&mut self, file: Option<&str>, args: &mut Value) -> Option<String> {
        let first = args["start_line"].as_u64()?.max(1) as usize;
        let last = args["end_line"].as_u64()? as usize;
        let new = text(args, "replacement_text")?.to_owned();
        let lines = self.files.get_mut(file?)?;
        if first > lines.len() + 1 {
            return None;
        }
        let joined = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let before = joined(lines);
        let new: Vec<String> = new.split('\n').map(str::to_owned).collect();
        lines.splice(first - 1..last.min(lines.len()).max(first - 1), new);
        let after = joined(lines);
        // The second of two steps changes nothing: the timeline narrows both to the difference.
        args["edits"] = json!([
            { "old_text": before, "new_text": after },
            { "old_text": after, "new_text": after },
        ]);
        Some(before)
    }
}

/// The file and its number of lines in `[File: /w/a.py (9 lines total)]`.
fn header(observation: &str) -> Option<(&str, u64)> {
    let (_, rest) = observation.split_once("[File: ")?;
    let (file, rest) = rest.split_once(" (")?;
    let (lines, _) = rest.split_once(" lines total)]")?;
    Some((file, lines.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::testing::{calls, imported};

    const WINDOW: &str = "[File: /w/p/a.py (2 lines total)]\n1:x = 1\n2:print(x)\n";

    fn step(action: &str, observation: &str) -> Value {
        let state = json!({"open_file": "/w/p/a.py", "working_dir": "/w/p"}).to_string();
        json!({"action": action, "observation": observation, "response": "I act.", "state": state, "thought": "I act."})
    }

    #[test]
    fn both_styles_give_reads_and_edits_of_lines() {
        let after = WINDOW.replace("x = 1", "x = 2") + "File updated.";
        let steps = [
            step("open a.py\n", WINDOW),
            step("edit 1:1\nx = 2\nend_of_edit\n", &after),
            step("search_dir print\n", "Found 1 matches\n/w/p/a.py:2:print(x)"),
            step("python a.py\n", "2\n"),
            step("submit", ""),
        ];
        let history = json!([
            {"role": "system", "content": "You have a window."},
            {"role": "user", "content": "Mend it."},
        ]);
        let text = json!({"environment": "e", "trajectory": steps, "history": history, "info": {"model_stats": {
            "instance_cost": 0.5, "tokens_sent": 900, "tokens_received": 40}}});
        let session = imported("swe-agent", &text.to_string());
        let expected = [
            "open read a.py: whole x = 1\nprint(x)\n",
            "edit edit a.py: 2 replacements of a known file",
            "search_dir search .: lists a.py",
            "bash exec: python a.py in /w/p -> 2\n",
            "submit plan",
        ];
        assert_eq!(calls(&session), expected);
        assert_eq!(session.totals[0].dollars, Some(0.5));
        let functions = [
            ("open", json!({"path": "a.py"})),
            ("edit", json!({"start_line": 1, "end_line": 1, "replacement_text": "x = 2"})),
            ("search_dir", json!({"search_term": "print"})),
            ("bash", json!({"command": "python a.py"})),
            ("submit", json!({})),
        ];
        let mut history: Vec<Value> = history.as_array().unwrap().clone();
        for (name, args) in functions {
            history.push(json!({"role": "assistant", "content": "I act.", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": name, "arguments": args.to_string()}}]}));
            history.push(json!({"role": "tool", "content": "shown"}));
        }
        let text = json!({"trajectory": steps, "history": history, "info": {}});
        assert_eq!(calls(&imported("swe-agent", &text.to_string())), expected);
    }

    #[test]
    fn an_editor_command_is_parsed_with_its_options() {
        let (tool, args) = parsed("str_replace_editor str_replace /w/a --old_str 'a b' --new_str \"c\"");
        assert_eq!((&*tool, &args["old_str"], &args["new_str"]), ("str_replace_editor", &json!("a b"), &json!("c")));
        assert_eq!(parsed("str_replace_editor view /w/a --view_range 1 9").1["view_range"], json!([1, 9]));
    }

    #[test]
    fn a_demonstration_is_a_session_that_its_history_tells() {
        let history = json!({"history": [
            {"role": "system", "content": "You have a shell.", "agent": "main", "message_type": "system_prompt"},
            {"role": "user", "content": "Fix it.", "agent": "main", "message_type": "observation"},
            {"role": "assistant", "content": "I look.", "action": "cat a", "agent": "main"},
            {"role": "tool", "content": "one\n(Open file: n/a)\n(Current directory: /w/p)\nbash-$", "agent": "main", "message_type": "observation"},
        ]});
        let session = imported("swe-agent", &history.to_string());
        assert_eq!(session.calls().count(), 1);
        assert_eq!(session.results().count(), 1);
    }
}
