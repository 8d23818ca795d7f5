//! Importer for SWE-agent's trajectories (`.traj`): actions as text, or as tool calls in the history.
//! The agent looks at files through a window, and edits by line numbers: an edit's old lines are those that windows have shown.

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;

use serde_json::{Value, json};

use super::detect::Head;
use super::json::{arguments, content, document, token_count};
use super::recorder::{Answer, Recorder};
use super::{Hunk, ImportedSession, Importer, ReportedTotal, text};
use shell::file_text::numbered;
use workloads::trace::TokenUsage;

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
        let (file, damage) = document(recording)?;
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
            let call = if is_paired { &actions[number]["tool_calls"][0] } else { &Value::Null };
            reader.step(step, call);
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
        reader.recorder.unreadable(damage);
        Ok(vec![reader.recorder.finish()])
    }
}

struct Reader {
    recorder: Recorder,
    windows: Windows,
}

impl Reader {
    fn step(&mut self, step: &Value, call: &Value) {
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
        let (tool, args) = if is_call {
            (text(function, "name").unwrap_or_default().to_owned(), arguments(&function["arguments"]))
        } else {
            parsed(&action)
        };
        let (args, hunks) = self.windows.understand(&tool, args, &state, &observation, failed);
        let id = if is_call {
            self.recorder.new_call("step", &tool, args, dir)
        } else {
            self.recorder.new_call_in_text("step", &tool, args, dir)
        };
        self.recorder.end_answer();
        let answer = Answer { shown: observation, failed, hunks, ..Answer::default() };
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

/// Files as the agent's windows have shown them, by absolute path.
#[derive(Default)]
struct Windows {
    files: HashMap<String, ShownLines>,
}

/// The lines of a file that windows have shown.
#[derive(Default)]
struct ShownLines {
    /// By number, from 1.
    known: BTreeMap<u64, String>,
    /// The number of lines of the whole file.
    total: u64,
}

impl Windows {
    /// Turns the arguments of a windowed command into those of a read, a write or an edit. Returns the lines that an edit
    /// replaces, too, if they are known.
    fn understand(
        &mut self,
        tool: &str,
        mut args: Value,
        state: &Value,
        observation: &str,
        failed: bool,
    ) -> (Value, Vec<Hunk>) {
        let header = header(observation);
        let named = |name: &str| text(state, name).filter(|value| *value != "n/a");
        let open = header.map(|(file, _)| file).or(named("open_file")).map(str::to_owned);
        let file = open.as_deref().map(|open| absolute(named("working_dir").unwrap_or_default(), open));
        let total = header.map(|(_, total)| total);
        let mut hunks = Vec::new();
        if let Some(pattern) = args.get("dir").cloned() {
            args["path"] = pattern;
        }
        match tool {
            "open" | "goto" | "scroll_up" | "scroll_down" => {
                if args["path"].is_null() {
                    args["path"] = json!(open);
                }
                let shown = numbered(observation);
                if let (Some(shown), Some(total)) = (&shown, total) {
                    let count = shown.lines.len() as u64;
                    if shown.first != 1 || count != total {
                        args["start_line"] = json!(shown.first);
                        args["end_line"] = json!(shown.first + count - 1);
                    }
                }
            }
            "create" if text(&args, "filename").is_some() => args["content"] = json!("\n"),
            "edit" if !failed => {
                if args["path"].is_null() {
                    args["path"] = json!(open);
                }
                let lines = file.as_ref().and_then(|file| self.files.get_mut(file));
                hunks.extend(lines.and_then(|lines| lines.edit(&args, total)));
            }
            _ => {}
        }
        if let (Some(file), Some(total), false) = (file, total, failed) {
            let lines = self.files.entry(file).or_default();
            if lines.total != total {
                *lines = ShownLines { total, ..ShownLines::default() };
            }
            if let Some(shown) = numbered(observation) {
                lines.show(shown.first, &shown.lines);
            }
        }
        (args, hunks)
    }
}

impl ShownLines {
    /// Takes over the lines of a window. Lines that differ from the known ones say that a program has changed the file.
    fn show(&mut self, first: u64, lines: &[&str]) {
        let differs = |(number, line): (u64, &&str)| self.known.get(&number).is_some_and(|known| known != line);
        if (first..).zip(lines).any(differs) {
            self.known.clear();
        }
        self.known.extend((first..).zip(lines.iter().map(|line| (*line).to_owned())));
    }

    /// Replaces lines. Returns the place, if the old lines are known and the file then has `total` lines.
    fn edit(&mut self, args: &Value, total: Option<u64>) -> Option<Hunk> {
        let first = args["start_line"].as_u64()?.max(1);
        let last = args["end_line"].as_u64()?.min(self.total);
        let replacement = text(args, "replacement_text")?;
        if first > self.total + 1 {
            return None;
        }
        let old: Vec<String> = (first..=last).map(|number| self.known.get(&number).cloned()).collect::<Option<_>>()?;
        let kept = self.total - old.len() as u64;
        // Versions of the agent differ in the meaning of a newline at the end, and of an empty text.
        let without_end = replacement.strip_suffix('\n');
        let readings = [Some(replacement), without_end].into_iter().flatten();
        let readings = readings.map(|text| text.split('\n').collect::<Vec<_>>());
        let mut readings = readings.chain(replacement.is_empty().then(Vec::new));
        let new = readings.find(|new| total.is_none_or(|total| kept + new.len() as u64 == total))?;
        let (removed, added) = (old.len() as u64, new.len() as u64);
        let after = std::mem::take(&mut self.known).into_iter().filter_map(|(number, line)| match number {
            number if number < first => Some((number, line)),
            number if number < first + removed => None,
            number => Some((number - removed + added, line)),
        });
        self.known = after.collect();
        self.known.extend((first..).zip(new.iter().map(|line| (*line).to_owned())));
        self.total = kept + added;
        let removals = old.iter().map(|line| format!("-{line}"));
        let lines = removals.chain(new.iter().map(|line| format!("+{line}"))).collect();
        Some(Hunk { first, lines })
    }
}

/// The path of a file as seen from a directory, without `.` and `..`.
fn absolute(dir: &str, file: &str) -> String {
    let whole = if file.starts_with('/') { file.to_owned() } else { format!("{dir}/{file}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The file and its number of lines in `[File: /w/a.py (9 lines total)]`.
fn header(observation: &str) -> Option<(&str, u64)> {
    let (_, rest) = observation.split_once("[File: ")?;
    let (file, rest) = rest.split_once(" (")?;
    let (lines, _) = rest.split_once(" lines total)]")?;
    Some((file, u64::from(lines.parse::<u32>().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{calls, coverage, files, imported};

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
            "edit edit a.py: line 1: -x = 1 +x = 2",
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

    fn session(steps: &[Value]) -> ImportedSession {
        imported("swe-agent", &json!({"trajectory": steps, "history": [], "info": {}}).to_string())
    }

    #[test]
    fn a_window_shows_indented_and_empty_lines_and_counts_newlines() {
        let shown = |x: u8| format!("[File: a.py (4 lines total)]\n1:def f():\n2:    return {x}\n3:\n4:\n");
        let steps = [step("open ./a.py", &shown(1)), step("edit 2:2\n    return 2\nend_of_edit", &shown(2))];
        let session = session(&steps);
        assert_eq!(files(&session), ["a.py Full def f():\n    return 1\n\n\n"]);
        let coverage = coverage(&session);
        assert_eq!((coverage.replayed, coverage.edits_equal, coverage.read_bytes_equal), (2, 1, 24));
    }

    #[test]
    fn an_edit_of_a_part_that_a_window_showed_is_replayed() {
        let window = |lines: &str, total: u64| {
            format!("[File: /w/p/a.py ({total} lines total)]\n(98 more lines above)\n{lines}(99 more lines below)")
        };
        let old = window("99:class A:\n100:\n101:    x = 1\n", 200);
        let steps = [
            step("open a.py 100", &old.replace("/w/p/a.py", "a.py")),
            step(
                "edit 101:101\n    x = 2\n    y = 3\nend_of_edit",
                &window("99:class A:\n100:\n101:    x = 2\n102:    y = 3\n", 201),
            ),
            step("edit 102:102\nend_of_edit", &window("99:class A:\n100:\n101:    x = 2\n", 200)),
            step("edit 7:7\nunseen\nend_of_edit", &window("99:class A:\n", 200)),
        ];
        let session = session(&steps);
        assert_eq!(
            calls(&session)[1..],
            [
                "edit edit a.py: line 101: -    x = 1 +    x = 2 +    y = 3",
                "edit edit a.py: line 102: -    y = 3",
                "edit edit a.py"
            ]
        );
        let coverage = coverage(&session);
        assert_eq!((coverage.replayed, coverage.edits, coverage.edits_equal), (3, 3, 2));
        let [file] = &files(&session)[..] else { panic!("{:?}", files(&session)) };
        assert_eq!((file.lines().count(), file.lines().nth(100)), (201, Some("    x = 1")));
    }

    #[test]
    fn a_new_file_is_edited_under_each_of_its_names() {
        let created = step("create b.py", "[File: b.py (1 lines total)]\n1:\n");
        let edited = step(
            "edit 1:1\nx = 1\n\ny = 2\nend_of_edit",
            "[File: /w/p/b.py (3 lines total)]\n1:x = 1\n2:\n3:y = 2\nFile updated.",
        );
        let coverage = coverage(&session(&[created, edited]));
        assert_eq!((coverage.replayed, coverage.edits_equal), (2, 1));
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
