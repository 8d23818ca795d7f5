//! The scripted agent: the same tasks through shell words over files, and through SQL tools. No model chose the steps.
//!
//! A script decides by what a call returned, as an agent would, and never by the reference answer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::command::{MatchPart, TaskCommand, TaskProgram};
use super::{Find, SourceChange, TaskKind, last_value, triaged};

/// How an agent reaches the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By shell words, over files that were copied from the source.
    Copy,
    /// By shell words, over such files with programs beside them that compute what the files alone do not say.
    Programs,
    /// By shell words, over a view with computed files and questions.
    View,
    /// By the tools `query` and `execute`.
    Sql,
}

/// The shell tool, which an agent without any tool would need. A coding agent has a shell anyway, and in addition Read,
/// Glob and Grep, whatever holds the data; counting one short definition against files, and nothing for SQL beside its
/// own tools, favours SQL.
const SHELL: &str = r#"{"name":"bash","description":"Run a command line in a shell. Returns its standard output and standard error. The working directory stays the workspace.","inputSchema":{"type":"object","properties":{"command":{"type":"string","description":"The command line"}},"required":["command"],"additionalProperties":false}}"#;

/// The description of the files in the prompt, as a schema describes tables.
const LAYOUT: &str = "The workspace: inbox/SENDER/DATE SUBJECT ID.eml; the same mail in threads/THREAD/ID SENDER.eml; drafts/ takes a file with To:, Subject:, an empty line and the text; mail that is moved to archive/ is filed; tasks/NAME.json with state (open, running, done) and depends_on; logs/ with lines of time, service, level, request=ID, message.";

/// The additional description of a view.
const VIEW: &str = " Computed on read: `:about?WORDS` lists mail with these words; tasks-by-state/STATE/ and tasks/NAME/depends-on/ list tasks; health/tasks.json counts open and blocked ones; logs/all.log has the lines of all services.";

/// The additional description of the programs beside plain files.
const PROGRAMS: &str = " `sh bin/health` counts open and blocked tasks, and lists the tasks of each state and what each task depends on; `sh bin/all-logs` prints the lines of all services.";

/// The definitions of the tools of a form in the prompt; `None` where the tools bring their own.
pub fn definitions(form: Form) -> Option<String> {
    match form {
        Form::Copy => Some(format!("[{SHELL}]\n{LAYOUT}")),
        Form::Programs => Some(format!("[{SHELL}]\n{LAYOUT}{PROGRAMS}")),
        Form::View => Some(format!("[{SHELL}]\n{LAYOUT}{VIEW}")),
        Form::Sql => None,
    }
}

/// A call as a model writes it.
pub fn call_text(tool: &str, arguments: &Value) -> String {
    json!({"name": tool, "arguments": arguments}).to_string()
}

/// The call of the shell tool.
pub fn shell_text(command: &TaskCommand) -> String {
    call_text("bash", &json!({"command": command.text()}))
}

/// Makes the calls of a script.
pub trait Console {
    /// The output of a shell command.
    ///
    /// # Errors
    /// The message of the shell about a failed command.
    fn shell(&mut self, command: &TaskCommand) -> Result<String, String>;

    /// The answer of a tool.
    ///
    /// # Errors
    /// The message of the tool about a failed call.
    fn tool(&mut self, name: &str, arguments: Value) -> Result<String, String>;
}

/// Performs a task: the answer.
///
/// # Errors
/// The call that failed, or the result that gives no answer.
pub fn perform(asks: &TaskKind, form: Form, console: &mut dyn Console) -> Result<String, String> {
    match (asks, form) {
        (TaskKind::Find(find), Form::Sql) => find_by_sql(find, console),
        (TaskKind::Find(find), _) => find_in_files(find, form == Form::View, console),
        (TaskKind::Triage, Form::Copy) => triage_in_files(console),
        (TaskKind::Triage, Form::Programs) => triage_by_program(console),
        (TaskKind::Triage, Form::View) => triage_in_view(console),
        (TaskKind::Triage, Form::Sql) => triage_by_sql(console),
        (TaskKind::Cause { service }, Form::Sql) => cause_by_sql(service, console),
        (TaskKind::Cause { service }, _) => cause_in_files(service, form, console),
    }
}

fn no_answer(what: &str, output: &str) -> String {
    let start: String = output.chars().take(200).collect();
    format!("no {what} in {start:?}")
}

fn find_in_files(find: &Find, is_view: bool, console: &mut dyn Console) -> Result<String, String> {
    let Find { sender, topic, fact } = find;
    let listed = console.shell(&if is_view {
        TaskCommand::Read(vec![format!(":about?{topic}")])
    } else {
        TaskCommand::Grep {
            texts: vec![topic.clone()],
            place: "threads".to_owned(),
            is_recursive: true,
            shows: MatchPart::File,
            last: None,
        }
    })?;
    // `threads/7/1012 ann.eml`, and in a view `: SUBJECT` after it.
    let name = format!(" {sender}.eml");
    let mut mails = listed.lines().filter_map(|line| {
        let (path, _) = line.split_once(&name)?;
        let (thread, id) = path.strip_prefix("threads/")?.split_once('/')?;
        Some((thread.to_owned(), id.parse::<u64>().ok()?))
    });
    let (thread, id) = mails.next().ok_or_else(|| no_answer("mail", &listed))?;
    let read = console.shell(&TaskCommand::Read(vec![format!("threads/{thread}/*")]))?;
    let value = last_value(&read, fact).ok_or_else(|| no_answer("value", &read))?;
    let draft = find.draft(id, &value);
    console.shell(&TaskCommand::Write { path: draft.path(), content: draft.text() })?;
    console.shell(&TaskCommand::Move {
        dir: format!("inbox/{sender}"),
        suffix: format!(" {id}.eml"),
        to: "archive".to_owned(),
    })?;
    Ok(format!("{id} in thread {thread}: {fact}{value}"))
}

/// The rows of an answer of `query`.
fn rows(answer: &str) -> Result<Vec<Vec<Value>>, String> {
    let read: Result<Value, _> = serde_json::from_str(answer);
    let mut read = read.map_err(|error| format!("{error} in {answer}"))?;
    serde_json::from_value(read["rows"].take()).map_err(|error| format!("{error} in {answer}"))
}

fn query(sql: &str, console: &mut dyn Console) -> Result<(Vec<Vec<Value>>, String), String> {
    let answer = console.tool("query", json!({"sql": sql}))?;
    Ok((rows(&answer)?, answer))
}

/// A text of a row.
fn text(row: &[Value], column: usize) -> String {
    match row.get(column) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

fn find_by_sql(find: &Find, console: &mut dyn Console) -> Result<String, String> {
    let Find { sender, topic, fact } = find;
    let sql =
        format!("SELECT id, thread_id, subject FROM messages WHERE sender = '{sender}' AND subject LIKE '%{topic}%'");
    let (found, answer) = query(&sql, console)?;
    let first = found.first().ok_or_else(|| no_answer("mail", &answer))?;
    let (id, thread) = (text(first, 0), text(first, 1));
    let sql = format!("SELECT sender, sent_at, body FROM messages WHERE thread_id = {thread} ORDER BY id");
    let (messages, answer) = query(&sql, console)?;
    let messages = messages.iter();
    let mut values = messages.filter_map(|row| last_value(&text(row, 2), fact));
    let value = values.next_back();
    let value = value.ok_or_else(|| no_answer("value", &answer))?;
    let number = id.parse().map_err(|_| no_answer("number", &answer))?;
    let draft = find.draft(number, &value);
    let sql = format!(
        "INSERT INTO messages (sender, recipient, sent_at, subject, body, folder) VALUES ('me', '{}', datetime('now'), '{}', '{}', 'drafts')",
        draft.recipient, draft.subject, draft.body
    );
    console.tool("execute", json!({"sql": sql}))?;
    let sql = format!("UPDATE messages SET folder = 'archive' WHERE id = {id}");
    console.tool("execute", json!({"sql": sql}))?;
    Ok(format!("{id} in thread {thread}: {fact}{value}"))
}

fn triage_in_files(console: &mut dyn Console) -> Result<String, String> {
    let output = console.shell(&TaskCommand::Grep {
        texts: vec!["\"state\"".to_owned(), "\"depends_on\"".to_owned()],
        place: "tasks/*".to_owned(),
        is_recursive: false,
        shows: MatchPart::FileAndLine,
        last: None,
    })?;
    let mut states: BTreeMap<String, String> = BTreeMap::new();
    let mut waits_for: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in output.lines() {
        let Some((file, field)) = line.split_once(':') else {
            continue;
        };
        let name = file.trim_start_matches("tasks/").trim_end_matches(".json");
        // Every second part between quotes is a text.
        let mut texts = field.split('"').skip(1).step_by(2).map(str::to_owned);
        match texts.next().as_deref() {
            Some("state") => {
                states.insert(name.to_owned(), texts.next().unwrap_or_default());
            }
            Some("depends_on") => {
                waits_for.insert(name.to_owned(), texts.collect());
            }
            _ => return Err(no_answer("field", line)),
        }
    }
    if states.is_empty() {
        return Err(no_answer("task", &output));
    }
    let is_done = |name: &String| states.get(name).is_some_and(|state| state == "done");
    let waits = |name: &String| {
        let others = waits_for.get(name).map_or(&[][..], Vec::as_slice);
        !others.iter().all(is_done)
    };
    let left = states.keys().filter(|name| !is_done(name));
    let blocked = left.filter(|name| waits(name)).count();
    let open = states.iter().filter(|(_, state)| *state == "open");
    let ready: BTreeSet<String> = open.map(|(name, _)| name.clone()).filter(|name| !waits(name)).collect();
    Ok(triaged(blocked as u64, ready))
}

fn triage_in_view(console: &mut dyn Console) -> Result<String, String> {
    let health = console.shell(&TaskCommand::Read(vec!["health/tasks.json".to_owned()]))?;
    let blocked = blocked_in(&health)?;
    let output =
        console.shell(&TaskCommand::List(vec!["tasks-by-state/*".to_owned(), "tasks/*/depends-on".to_owned()]))?;
    let mut states: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut waits_for: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for section in output.split("\n\n") {
        let (dir, names) = section.split_once(":\n").unwrap_or((section.trim_end_matches(':'), ""));
        let names = names.lines().map(|name| name.trim_end_matches(".json"));
        let task = dir.strip_prefix("tasks/");
        let task = task.and_then(|dir| dir.strip_suffix("/depends-on"));
        match (task, dir.strip_prefix("tasks-by-state/")) {
            (Some(task), _) => {
                waits_for.insert(task, names.collect());
            }
            (_, Some(state)) => states.entry(state).or_default().extend(names),
            _ => return Err(no_answer("directory", section)),
        }
    }
    Ok(triaged(blocked, ready(&states, &waits_for)))
}

fn triage_by_program(console: &mut dyn Console) -> Result<String, String> {
    let output = console.shell(&TaskCommand::Run { program: TaskProgram::Health, text: None, last: None })?;
    let (health, lists) = output.split_once('\n').ok_or_else(|| no_answer("health", &output))?;
    let blocked = blocked_in(health)?;
    let mut states: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut waits_for: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in lists.lines() {
        let (of, names) = line.split_once(':').ok_or_else(|| no_answer("list", line))?;
        let names = names.split_whitespace();
        match of.strip_suffix(" depends on") {
            Some(task) => {
                waits_for.insert(task, names.collect());
            }
            None => states.entry(of).or_default().extend(names),
        }
    }
    Ok(triaged(blocked, ready(&states, &waits_for)))
}

/// The count of blocked tasks in a line of health.
fn blocked_in(health: &str) -> Result<u64, String> {
    let counted: Value = serde_json::from_str(health).map_err(|error| format!("{error} in {health}"))?;
    counted["blocked"].as_u64().ok_or_else(|| no_answer("count", health))
}

/// The open tasks all of whose dependencies are done.
fn ready(states: &BTreeMap<&str, BTreeSet<&str>>, waits_for: &BTreeMap<&str, Vec<&str>>) -> BTreeSet<String> {
    let none = BTreeSet::new();
    let done = states.get("done").unwrap_or(&none);
    let open = states.get("open").unwrap_or(&none).iter();
    let ready = open.filter(|name| {
        let others = waits_for.get(**name).map_or(&[][..], Vec::as_slice);
        others.iter().all(|other| done.contains(other))
    });
    ready.map(|name| (*name).to_owned()).collect()
}

fn triage_by_sql(console: &mut dyn Console) -> Result<String, String> {
    let blocked = "SELECT count(DISTINCT t.name) AS blocked FROM tasks t JOIN depends_on d ON d.task = t.name JOIN tasks o ON o.name = d.on_task WHERE t.state <> 'done' AND o.state <> 'done'";
    let (counted, answer) = query(blocked, console)?;
    let blocked = counted.first().and_then(|row| row.first()?.as_u64());
    let blocked = blocked.ok_or_else(|| no_answer("count", &answer))?;
    let ready = "SELECT name FROM tasks t WHERE state = 'open' AND NOT EXISTS (SELECT 1 FROM depends_on d JOIN tasks o ON o.name = d.on_task WHERE d.task = t.name AND o.state <> 'done') ORDER BY name";
    let (rows, _) = query(ready, console)?;
    Ok(triaged(blocked, rows.iter().map(|row| text(row, 0)).collect()))
}

/// A line of a log as (time, service, level, request, message).
fn parts(line: &str) -> Option<[&str; 5]> {
    let mut words = line.splitn(5, ' ');
    let mut next = || words.next();
    let [at, service, level, request] = [next()?, next()?, next()?, next()?];
    Some([at, service, level, request.strip_prefix("request=")?, next()?])
}

fn cause_in_files(service: &str, form: Form, console: &mut dyn Console) -> Result<String, String> {
    let all = |text: String, last| match form {
        Form::Programs => TaskCommand::Run { program: TaskProgram::AllLogs, text: Some(text), last },
        _ => TaskCommand::Grep {
            texts: vec![text],
            place: if form == Form::View { "logs/all.log" } else { "logs" }.to_owned(),
            is_recursive: form != Form::View,
            // Each line names its service, so that file names would only cost tokens.
            shows: MatchPart::Line,
            last,
        },
    };
    let output = console.shell(&match form {
        Form::Copy => TaskCommand::Grep {
            texts: vec![" ERROR ".to_owned()],
            place: format!("logs/{service}.log"),
            is_recursive: false,
            shows: MatchPart::Line,
            last: Some(1),
        },
        _ => all(format!(" {service} ERROR "), Some(1)),
    })?;
    let [_, _, _, request, _] = parts(output.trim_end()).ok_or_else(|| no_answer("line", &output))?;
    let output = console.shell(&all(format!("request={request} "), None))?;
    let lines = output.lines().filter_map(parts);
    let errors = lines.filter(|[_, _, level, _, _]| *level == "ERROR");
    let first = errors.min_by_key(|[at, ..]| *at);
    let [_, service, _, _, message] = first.ok_or_else(|| no_answer("error", &output))?;
    Ok(format!("{request}: {service}: {message}"))
}

fn cause_by_sql(service: &str, console: &mut dyn Console) -> Result<String, String> {
    let sql =
        format!("SELECT request FROM log WHERE service = '{service}' AND level = 'ERROR' ORDER BY id DESC LIMIT 1");
    let (found, answer) = query(&sql, console)?;
    let first = found.first().ok_or_else(|| no_answer("line", &answer))?;
    let request = text(first, 0);
    let sql = format!("SELECT at, service, level, message FROM log WHERE request = '{request}' ORDER BY at");
    let (lines, answer) = query(&sql, console)?;
    let mut errors = lines.iter().filter(|row| text(row, 2) == "ERROR");
    let first = errors.next().ok_or_else(|| no_answer("error", &answer))?;
    Ok(format!("{request}: {}: {}", text(first, 1), text(first, 3)))
}

/// Whether a reader sees a change: one call, for measuring how late it is seen.
pub fn sees(change: &SourceChange, form: Form, console: &mut dyn Console) -> bool {
    let last = match change {
        SourceChange::Log(lines) => lines.last(),
        _ => None,
    };
    if form == Form::Sql {
        let (sql, expected) = match (change, last) {
            (SourceChange::Message(message), _) => {
                let sql = format!("SELECT body FROM messages WHERE id = {}", message.id);
                (sql, None)
            }
            (SourceChange::State { task, state }, _) => {
                let sql = format!("SELECT state FROM tasks WHERE name = '{task}'");
                (sql, Some(state.name()))
            }
            (_, Some(last)) => {
                let sql = format!("SELECT message FROM log WHERE at = '{}'", last.at);
                (sql, None)
            }
            (_, None) => return true,
        };
        let is_it = |row: &Vec<Value>| expected.is_none_or(|expected| text(row, 0) == expected);
        return query(&sql, console).is_ok_and(|(rows, _)| rows.iter().any(is_it));
    }
    let (place, expected) = match (change, last) {
        (SourceChange::Message(message), _) => (message.thread_path(), message.text()),
        (SourceChange::State { task, state }, _) => (format!("tasks/{task}.json"), format!("\"{}\"", state.name())),
        (_, Some(last)) if form == Form::View => ("logs/all.log".to_owned(), last.text()),
        (_, Some(last)) => (last.path(), last.text()),
        (_, None) => return true,
    };
    let read = console.shell(&TaskCommand::Read(vec![place]));
    read.is_ok_and(|text| match change {
        SourceChange::Message(_) => text == expected,
        _ => text.contains(&expected),
    })
}
