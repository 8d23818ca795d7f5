//! Files that are copied from a database at the times of a schedule: the usual way to give an agent rows as files.
//!
//! A copy goes one way. What the agent writes into it stays there: carrying it back would need rules for conflicts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use workloads::tasks::command::TaskProgram;
use workloads::tasks::{Draft, LogLine, MailMessage, Task, TaskState};

/// The copies in a directory.
pub(super) struct Copies {
    db: Connection,
    root: PathBuf,
    last_message: i64,
    last_line: i64,
    tasks: BTreeMap<String, String>,
    made: BTreeSet<PathBuf>,
}

impl Copies {
    /// Begins with an empty directory.
    pub(super) fn start(db: &Path, root: &Path) -> io::Result<Self> {
        if root.exists() {
            fs::remove_dir_all(root)?;
        }
        for name in ["archive", "bin", "drafts", "inbox", "logs", "tasks", "threads"] {
            fs::create_dir_all(root.join(name))?;
        }
        for program in TaskProgram::ALL {
            fs::write(root.join(program.path()), program.text())?;
        }
        let db = Connection::open_with_flags(db, OpenFlags::SQLITE_OPEN_READ_ONLY);
        Ok(Self {
            db: db.map_err(io::Error::other)?,
            root: root.to_owned(),
            last_message: 0,
            last_line: 0,
            tasks: BTreeMap::new(),
            made: BTreeSet::new(),
        })
    }

    /// Copies the rows that are new or different in the database.
    pub(super) fn update(&mut self) -> io::Result<()> {
        let Rows { messages, tasks, lines } = self.rows().map_err(io::Error::other)?;
        for message in messages {
            self.put(&message.inbox_path(), &message.text())?;
            self.put(&message.thread_path(), &message.text())?;
            self.last_message = message.id as i64;
        }
        for task in tasks {
            let (path, text) = (task.path(), task.text());
            if self.tasks.get(&path) != Some(&text) {
                self.put(&path, &text)?;
                self.tasks.insert(path, text);
            }
        }
        let mut logs: BTreeMap<String, String> = BTreeMap::new();
        for (id, line) in lines {
            *logs.entry(line.path()).or_default() += &format!("{}\n", line.text());
            self.last_line = id;
        }
        for (path, text) in logs {
            let mut options = fs::File::options();
            let file = options.create(true).append(true).open(self.root.join(path));
            file?.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    fn put(&mut self, path: &str, text: &str) -> io::Result<()> {
        let path = self.root.join(path);
        if let Some(dir) = path.parent()
            && self.made.insert(dir.to_owned())
        {
            fs::create_dir_all(dir)?;
        }
        fs::write(path, text)
    }

    /// The messages and log lines that the copies do not have yet, and all tasks.
    fn rows(&self) -> rusqlite::Result<Rows> {
        let sql = "SELECT id, thread_id, sender, sent_at, subject, body FROM messages WHERE id > ?1 AND folder = 'inbox' ORDER BY id";
        let mut messages = self.db.prepare_cached(sql)?;
        let messages = messages.query_map([self.last_message], |row| {
            Ok(MailMessage {
                id: row.get::<_, i64>(0)?.unsigned_abs(),
                thread: row.get::<_, i64>(1)?.unsigned_abs(),
                sender: row.get(2)?,
                sent_at: row.get(3)?,
                subject: row.get(4)?,
                body: row.get(5)?,
            })
        })?;
        let sql = "SELECT name, title, owner, heartbeat, state, (SELECT json_group_array(on_task) FROM depends_on WHERE task = name) FROM tasks";
        let mut tasks = self.db.prepare_cached(sql)?;
        let tasks = tasks.query_map([], |row| {
            let (state, depends_on): (String, String) = (row.get(4)?, row.get(5)?);
            Ok(Task {
                name: row.get(0)?,
                title: row.get(1)?,
                owner: row.get(2)?,
                heartbeat: row.get(3)?,
                // The table admits these states only, and the array is SQLite's.
                state: TaskState::named(&state).unwrap_or(TaskState::Open),
                depends_on: serde_json::from_str(&depends_on).unwrap_or_default(),
            })
        })?;
        let sql = "SELECT id, at, service, level, request, message FROM log WHERE id > ?1 ORDER BY id";
        let mut lines = self.db.prepare_cached(sql)?;
        let lines = lines.query_map([self.last_line], |row| {
            let line = LogLine {
                at: row.get(1)?,
                service: row.get(2)?,
                level: row.get(3)?,
                request: row.get(4)?,
                message: row.get(5)?,
            };
            Ok((row.get(0)?, line))
        })?;
        Ok(Rows {
            messages: messages.collect::<rusqlite::Result<_>>()?,
            tasks: tasks.collect::<rusqlite::Result<_>>()?,
            lines: lines.collect::<rusqlite::Result<_>>()?,
        })
    }
}

/// Rows to copy.
struct Rows {
    messages: Vec<MailMessage>,
    tasks: Vec<Task>,
    /// With their numbers.
    lines: Vec<(i64, LogLine)>,
}

/// Checks a draft among copied files, and that the mail that it answers is filed.
/// The error says what differs.
pub(super) fn drafted(root: &Path, draft: &Draft) -> Result<(), String> {
    let found = fs::read_to_string(root.join(draft.path())).unwrap_or_default();
    if found != draft.text() {
        return Err(format!("{}: {found:?}, expected {:?}", draft.path(), draft.text()));
    }
    let end = format!(" {}.eml", draft.answers);
    let count = |dir: &str| {
        let entries = fs::read_dir(root.join(dir)).into_iter().flatten().flatten();
        let matching = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(&end));
        matching.count()
    };
    let (filed, left) = (count("archive"), count(&format!("inbox/{}", draft.recipient)));
    match (filed, left) {
        (1, 0) => Ok(()),
        _ => Err(format!(
            "message {} is {filed} times in archive and {left} times in the inbox; expected once and never",
            draft.answers
        )),
    }
}
