//! File tools: `ls_files`, `read_file`, `write_file`, `search`, `write_todos`, over a directory tree or an agent's state.
//!
//! `ls` and the argument `file_path` are names of source 5 and of deepagents for `ls_files` and `path`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use arms::backend::Tools;
use backends::state::StateFiles;
use inputs::border;
use parking_lot::Mutex;
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::toolset::{ToolAnswer, Toolset, arguments, definition};
use super::tree::{DirectoryTree, Listing, written};

/// The most files that a listing shows, and that a search reads.
const LIST_MAX: usize = 2000;

/// The most lines that a search shows.
const LINES_MAX: usize = 200;

/// The most characters of a line that a search shows.
const LINE_MAX: usize = 400;

/// How long a search reads files.
const SEARCH_MAX: Duration = Duration::from_secs(10);

/// The most bytes of all files of a state, which are in memory.
const STATE_MAX: usize = 256 << 20;

/// The most bytes that a read shows: about 65,000 tokens.
const READ_MAX: usize = 256 << 10;

/// The file with the agent's plan.
const TODOS: &str = "todos.json";

/// The most steps of a plan.
const TODOS_MAX: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArguments {
    #[serde(default = "whole", alias = "path")]
    dir: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    #[serde(alias = "file_path")]
    path: String,
    #[serde(default = "first")]
    offset: u64,
    limit: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    #[serde(alias = "file_path")]
    path: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TodosArguments {
    todos: Vec<Todo>,
}

/// A step of a plan, as source 5 writes it.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Todo {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    content: String,
    status: TodoStatus,
    /// The step as a client shows it while it is in progress; Claude Code writes it.
    #[serde(rename = "activeForm", skip_serializing_if = "Option::is_none")]
    active_form: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum TodoStatus {
    Pending,
    InProgress,
    Completed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    text: String,
    #[serde(default = "whole")]
    dir: String,
}

fn whole() -> String {
    ".".to_owned()
}

fn first() -> u64 {
    1
}

/// Where the files are.
pub enum FileTools {
    /// In a directory tree.
    Tree {
        tree: DirectoryTree,
        /// The directory of the agent's own files, where its plan is.
        home: String,
    },
    /// In the state of this process, which ends with it.
    State(Mutex<StateFiles>),
}

impl FileTools {
    /// Replaces the agent's plan.
    fn write_todos(&self, todos: &[Todo]) -> ToolAnswer {
        if todos.len() > TODOS_MAX {
            return Err(format!("write_todos: there are {} todos; the maximum is {TODOS_MAX}", todos.len()));
        }
        let mut ids = BTreeSet::new();
        for (number, todo) in (1..).zip(todos) {
            if todo.content.trim().is_empty() {
                return Err(format!("write_todos: the content of todo {number} is empty; say what is to be done"));
            }
            if let Some(id) = &todo.id
                && !ids.insert(id)
            {
                return Err(format!("write_todos: two todos have the id {id:?}"));
            }
        }
        let content = serde_json::to_string_pretty(todos).map_err(|error| format!("write_todos: {error}"))?;
        let path = match self {
            Self::Tree { home, .. } if home != "." => format!("{home}/{TODOS}"),
            _ => TODOS.to_owned(),
        };
        self.write(&WriteArguments { path: path.clone(), content: content + "\n" })?;
        let number = |status| todos.iter().filter(|todo| todo.status == status).count();
        Ok(format!(
            "Saved {path}: {} pending, {} in progress, {} completed",
            number(TodoStatus::Pending),
            number(TodoStatus::InProgress),
            number(TodoStatus::Completed)
        ))
    }

    fn list(&self, dir: &str) -> ToolAnswer {
        match self {
            Self::State(_) if dir != "." => {
                Err("ls_files: an agent's state has no directories; leave out `dir`".to_owned())
            }
            Self::State(files) => Ok(files.lock().ls_files()),
            Self::Tree { tree, .. } => {
                let listing = tree.list(dir, LIST_MAX)?;
                let mut text = if listing.files.is_empty() {
                    "No files in virtual workspace.".to_owned()
                } else {
                    "Files in virtual workspace:".to_owned()
                };
                for (path, size) in &listing.files {
                    text += &format!("\n  {} ({size} bytes)", border::line(path));
                }
                if listing.has_more {
                    text += &format!("\n(only {LIST_MAX} files are shown; give `dir`)");
                }
                if let Some(skipped) = listing.skipped_words() {
                    text += &format!("\n{skipped}");
                }
                Ok(text)
            }
        }
    }

    fn read(&self, asked: &ReadArguments) -> ToolAnswer {
        let path = asked.path.as_str();
        match self {
            Self::State(files) => files.lock().read_file(path, asked.offset, asked.limit),
            Self::Tree { tree, .. } => {
                let content = tree.read(path)?;
                if std::str::from_utf8(&content).is_err() {
                    return Err(format!("cannot read {path}: it is not UTF-8 text"));
                }
                // The same lines and numbers as from an agent's state.
                let mut one = StateFiles::default();
                one.write_file(path, &content).and_then(|_| one.read_file(path, asked.offset, asked.limit))
            }
        }
        .map(shortened)
        .map_err(|error| error.to_string())
    }

    fn write(&self, asked: &WriteArguments) -> ToolAnswer {
        let (path, content) = (asked.path.as_str(), asked.content.as_bytes());
        match self {
            Self::State(files) => {
                let mut files = files.lock();
                if files.size() + path.len() + content.len() > STATE_MAX {
                    return Err(format!(
                        "cannot write {path}: the files of this server would have more than {STATE_MAX} bytes; write less"
                    ));
                }
                let written = files.write_file(path, content);
                written.map_err(|error| error.to_string())
            }
            Self::Tree { tree, .. } => {
                // The receipt of an agent's state.
                let lines = asked.content.matches('\n').count() + 1;
                let saved = format!("✅ Saved {path} ({} bytes, {lines} lines)", content.len());
                written(path, tree.write(path, content, false), saved)
            }
        }
    }

    fn search(&self, asked: &SearchArguments) -> ToolAnswer {
        if asked.text.is_empty() {
            return Err("search: `text` is empty; give the text to find".to_owned());
        }
        let (listing, mut contents) = match self {
            Self::Tree { tree, .. } => (tree.list(&asked.dir, LIST_MAX)?, BTreeMap::new()),
            Self::State(_) if asked.dir != "." => {
                return Err("search: an agent's state has no directories; leave out `dir`".to_owned());
            }
            Self::State(files) => {
                let contents = contents(&files.lock())?;
                let files = contents.iter().map(|(name, content)| (name.clone(), content.len() as u64)).collect();
                (Listing { files, ..Listing::default() }, contents)
            }
        };
        let (mut lines, mut unread, mut unsearched) = (Vec::new(), 0, 0);
        let began = Instant::now();
        'files: for (name, _) in &listing.files {
            if began.elapsed() > SEARCH_MAX {
                unsearched += 1;
                continue;
            }
            let content = match self {
                Self::Tree { tree, .. } => (tree.read(name).ok()).and_then(|it| String::from_utf8(it).ok()),
                Self::State(_) => contents.remove(name),
            };
            let Some(content) = content else {
                unread += 1;
                continue;
            };
            for (number, line) in (1..).zip(content.lines()) {
                if line.contains(&asked.text) {
                    if lines.len() == LINES_MAX {
                        lines.push(format!("(only {LINES_MAX} lines are shown)"));
                        break 'files;
                    }
                    let shown: String = line.chars().take(LINE_MAX).collect();
                    lines.push(format!("{}:{number}:{shown}", border::line(name)));
                }
            }
        }
        if lines.is_empty() {
            lines.push(format!("No line contains {:?}.", asked.text));
        }
        if unread > 0 {
            lines.push(format!("({unread} files were skipped: they are not text, too large or unreadable)"));
        }
        if unsearched > 0 {
            lines.push(format!("({unsearched} files were not searched within {} s; give `dir`)", SEARCH_MAX.as_secs()));
        }
        lines.extend(listing.skipped_words());
        if listing.has_more {
            lines.push(format!("(only {LIST_MAX} files were searched; give `dir`)"));
        }
        Ok(lines.join("\n"))
    }
}

/// As much of a numbered text as a read shows: whole lines, or the beginning of a first line that is longer.
fn shortened(mut answer: String) -> String {
    if answer.len() <= READ_MAX {
        return answer;
    }
    // The first line is the header.
    let header = answer.find('\n');
    let newline = answer.as_bytes()[..=READ_MAX].iter().rposition(|byte| *byte == b'\n');
    let (end, next) = match newline {
        Some(newline) if Some(newline) != header => (newline, "continue with `offset`, or give `limit`"),
        _ => {
            let boundary = (0..=READ_MAX).rev().find(|at| answer.is_char_boundary(*at));
            (boundary.unwrap_or_default(), "within a line, whose rest no read shows; write it as several lines")
        }
    };
    answer.truncate(end);
    answer + &format!("\n(truncated after {READ_MAX} bytes; {next})")
}

/// The files of a state by name.
fn contents(files: &StateFiles) -> Result<BTreeMap<String, String>, String> {
    #[derive(Deserialize)]
    struct Snapshot {
        files: BTreeMap<String, String>,
    }
    let read: Result<Snapshot, _> = serde_json::from_str(&files.snapshot());
    read.map(|read| read.files).map_err(|error| format!("the agent's state: {error}"))
}

impl Toolset for FileTools {
    fn definitions(&self) -> Vec<Tool> {
        let path = json!({"type": "string", "description": "relative to the workspace"});
        let file_path = json!({"type": "string", "description": "the same as `path`: give one"});
        let dir = json!({"type": "string", "description": "a directory, the whole workspace by default"});
        let list = |name: &'static str| {
            let properties = match name {
                "ls" => json!({"path": dir}),
                _ => json!({"dir": dir}),
            };
            definition(name, "List files and their sizes", properties, &[])
        };
        vec![
            list("ls_files"),
            definition(
                "read_file",
                "Read numbered lines of a text file",
                json!({
                    "path": path,
                    "file_path": file_path,
                    "offset": {"type": "integer", "minimum": 1, "description": "first line, 1 by default"},
                    "limit": {"type": "integer", "minimum": 1, "description": "number of lines, 2000 by default"},
                }),
                // Providers refuse a schema that requires one of two.
                &[],
            ),
            definition(
                "write_file",
                "Create or replace a text file",
                json!({"path": path, "file_path": file_path, "content": {"type": "string"}}),
                &["content"],
            ),
            definition(
                "search",
                "Find lines that contain a text, with file and line number",
                json!({"text": {"type": "string"}, "dir": dir}),
                &["text"],
            ),
            list("ls"),
            definition(
                "write_todos",
                format!("Replace the plan, the file {TODOS}"),
                json!({"todos": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string"},
                            "content": {"type": "string"},
                            "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                            "activeForm": {"type": "string"},
                        },
                        "required": ["content", "status"],
                        "additionalProperties": false,
                    },
                }}),
                &["todos"],
            ),
        ]
    }

    fn changes(&self, name: &str) -> bool {
        matches!(name, "write_file" | "write_todos")
    }

    fn call(&self, name: &str, given: JsonObject) -> Option<ToolAnswer> {
        Some(match name {
            "ls_files" | "ls" => arguments(name, given).and_then(|asked: ListArguments| self.list(&asked.dir)),
            "read_file" => arguments(name, given).and_then(|asked| self.read(&asked)),
            "write_file" => arguments(name, given).and_then(|asked| self.write(&asked)),
            "search" => arguments(name, given).and_then(|asked| self.search(&asked)),
            "write_todos" => arguments(name, given).and_then(|asked: TodosArguments| self.write_todos(&asked.todos)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_of_a_state_reads_all_its_files_and_has_no_directories() {
        let mut files = StateFiles::default();
        for name in ["a.md", "b.md"] {
            files.write_file(name, b"one\ntwo\n").unwrap();
        }
        let tools = FileTools::State(Mutex::new(files));
        let search = |dir: &str| {
            let (text, dir) = ("tw".to_owned(), dir.to_owned());
            tools.search(&SearchArguments { text, dir })
        };
        assert_eq!(search(".").unwrap(), "a.md:2:two\nb.md:2:two");
        assert!(search("b").unwrap_err().contains("no directories"));
    }

    #[test]
    fn a_listing_and_a_search_say_how_much_they_leave_out() {
        use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.md"), "one").unwrap();
        let tools = FileTools::Tree { tree: DirectoryTree::open(dir.path()).unwrap(), home: ".".to_owned() };
        let search = || tools.search(&SearchArguments { text: "one".to_owned(), dir: ".".to_owned() }).unwrap();
        assert_eq!(search(), "a.md:1:one");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = openat(CWD, dir.path(), flags, Mode::empty()).unwrap();
        // Its path is longer than one that the kernel takes.
        for _ in 0..30 {
            let name = "d".repeat(200);
            mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = openat(&at, &name, flags, Mode::empty()).unwrap();
        }
        let left_out =
            "\n(1 directories and files were left out: too deep, not readable, or with a name that is not UTF-8)";
        assert_eq!(tools.list(".").unwrap(), format!("Files in virtual workspace:\n  a.md (3 bytes){left_out}"));
        assert_eq!(search(), format!("a.md:1:one{left_out}"));
    }

    #[test]
    fn the_name_of_a_file_cannot_add_another_to_a_listing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a\n  b.md (1 bytes)"), "one").unwrap();
        let tree = DirectoryTree::open(dir.path()).unwrap();
        let tools = FileTools::Tree { tree, home: ".".to_owned() };
        let listed = tools.list(".").unwrap();
        assert_eq!(listed, "Files in virtual workspace:\n  a\\u000a  b.md (1 bytes) (3 bytes)");
        let found = tools.search(&SearchArguments { text: "one".to_owned(), dir: ".".to_owned() });
        assert_eq!(found.unwrap(), "a\\u000a  b.md (1 bytes):1:one");
    }

    #[test]
    fn a_write_into_a_directory_has_the_receipt_of_source_5_as_one_into_a_state_has() {
        let dir = tempfile::tempdir().unwrap();
        let tree = FileTools::Tree { tree: DirectoryTree::open(dir.path()).unwrap(), home: ".".to_owned() };
        for tools in [tree, FileTools::State(Mutex::default())] {
            let write = WriteArguments { path: "july.json".to_owned(), content: "[1,\n\"é\"]\n".to_owned() };
            assert_eq!(tools.write(&write).unwrap(), "✅ Saved july.json (10 bytes, 3 lines)");
        }
    }

    #[test]
    fn a_plan_replaces_the_one_before_and_a_wrong_one_does_not() {
        let tools = FileTools::State(Mutex::default());
        let call = |tool: &str, given: serde_json::Value| {
            let serde_json::Value::Object(given) = given else { panic!("{given}") };
            tools.call(tool, given).unwrap()
        };
        let step = |id: &str, status: &str| json!({"id": id, "content": "Query", "status": status});
        let plan = json!({"todos": [step("1", "completed"), step("2", "pending")]});
        let said = call("write_todos", plan).unwrap();
        assert_eq!(said, "Saved todos.json: 1 pending, 0 in progress, 1 completed");
        let steps = vec![json!({"content": "x", "status": "pending"}); TODOS_MAX + 1];
        for (todos, reason) in [
            (json!([step("1", "done")]), "unknown variant `done`"),
            (json!([step("1", "pending"), step("1", "pending")]), "two todos have the id \"1\""),
            (json!([{"content": " ", "status": "pending"}]), "the content of todo 1 is empty"),
            (json!([{"content": "x", "status": "pending", "due": "now"}]), "unknown field `due`"),
            (json!([{"content": "x"}]), "missing field `status`"),
            (json!(steps), "there are 1001 todos; the maximum is 1000"),
        ] {
            let refused = call("write_todos", json!({"todos": todos})).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        let kept = call("read_file", json!({"file_path": "todos.json"})).unwrap();
        assert!(kept.contains("\"status\": \"completed\""), "{kept}");
        call("write_todos", json!({"todos": []})).unwrap();
        let kept = call("read_file", json!({"path": "todos.json"})).unwrap();
        assert!(!kept.contains("content"), "{kept}");
    }

    #[test]
    fn the_arguments_of_source_5_are_those_of_the_present_tools() {
        let tools = FileTools::State(Mutex::default());
        let call = |tool: &str, given: serde_json::Value| {
            let given = given.as_object().unwrap().clone();
            tools.call(tool, given).unwrap()
        };
        let written = json!({"file_path": "july.json", "content": "[1]\n"});
        call("write_file", written).unwrap();
        let read = |given| call("read_file", given);
        let (one, other) = (json!({"file_path": "july.json"}), json!({"path": "july.json"}));
        assert_eq!(read(one).unwrap(), read(other).unwrap());
        for tool in ["ls", "ls_files"] {
            assert!(call(tool, json!({})).unwrap().contains("july.json"), "{tool}");
        }
        let both = json!({"path": "a", "file_path": "b", "content": ""});
        let refused = call("write_file", both).unwrap_err();
        assert!(refused.contains("duplicate field"), "{refused}");
        for tool in ["read_file", "write_file"] {
            let refused = call(tool, json!({"content": "x"})).unwrap_err();
            assert!(refused.contains("`path`") || refused.contains("`content`"), "{refused}");
        }
    }

    #[test]
    fn a_state_refuses_a_write_beyond_its_limit() {
        let mut files = StateFiles::default();
        files.write_file("a", &vec![b'x'; STATE_MAX - 4]).unwrap();
        let tools = FileTools::State(Mutex::new(files));
        let write = |content: &str| {
            let (path, content) = ("b".to_owned(), content.to_owned());
            tools.write(&WriteArguments { path, content })
        };
        assert!(write("xxx").unwrap_err().contains("268435456 bytes"));
        write("xx").unwrap();
    }

    #[test]
    fn a_read_shows_whole_lines_to_its_limit_and_says_where_it_cut() {
        let short = "1: a\n2: b".to_owned();
        assert_eq!(shortened(short.clone()), short);
        let lines = "line é\n".repeat(READ_MAX / 4);
        let cut = shortened(lines);
        let (shown, note) = cut.rsplit_once('\n').unwrap();
        assert!(shown.len() <= READ_MAX && shown.ends_with("line é"));
        assert!(note.contains("`offset`"), "{note}");
        let exact = format!("header\n{}", "x".repeat(READ_MAX - 7));
        assert_eq!(shortened(exact.clone() + "\nmore"), exact.clone() + "\n" + note);
        let tools = FileTools::State(Mutex::default());
        let line = "é".repeat(READ_MAX);
        let write = WriteArguments { path: "a".to_owned(), content: format!("1\n{line}\n3") };
        tools.write(&write).unwrap();
        let read = |offset| tools.read(&ReadArguments { path: "a".to_owned(), offset, limit: None }).unwrap();
        assert!(read(1).contains("\n     1|1\n(truncated"));
        let long = read(2);
        assert!(long.contains("\n     2|éé") && (READ_MAX..READ_MAX + 200).contains(&long.len()));
        assert!(long.ends_with("within a line, whose rest no read shows; write it as several lines)"));
        assert!(read(3).ends_with("\n     3|3"));
    }

    #[test]
    fn a_plan_of_claude_code_keeps_what_it_shows_of_a_step_in_progress() {
        let tools = FileTools::State(Mutex::default());
        let call = |tool: &str, given: serde_json::Value| {
            let given = given.as_object().unwrap().clone();
            tools.call(tool, given).unwrap().unwrap()
        };
        let step = json!({"content": "Run tests", "status": "in_progress", "activeForm": "Running tests"});
        call("write_todos", json!({"todos": [step]}));
        let kept = call("read_file", json!({"path": "todos.json"}));
        assert!(kept.contains("\"activeForm\": \"Running tests\""), "{kept}");
    }
}
