//! The program that owns a source: fills it, commits changes to it, and says what an agent's work left in it.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use arms::source::Source;
use rusqlite::{Connection, params};
use workloads::tasks::{Draft, LogLine, MailMessage, SourceChange, Task, World};

/// Writes a source.
pub(super) trait Writer {
    /// Replaces everything by the data of a world.
    fn reset(&mut self, world: &World) -> io::Result<()>;

    /// Commits a change; readers can see it when this returns.
    fn commit(&mut self, change: &SourceChange) -> io::Result<()>;

    /// Checks that a draft is there as it should be, and that the mail that it answers is filed.
    /// The error says what differs.
    fn drafted(&self, draft: &Draft) -> Result<(), String>;
}

/// The writer of a source, which must exist.
pub(super) fn writer(source: &Source) -> io::Result<Box<dyn Writer>> {
    Ok(match source {
        Source::Database(file) => {
            let db = Connection::open(file).map_err(failed)?;
            // A commit survives the process, as the default of write-ahead logging.
            db.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
            Box::new(Database(db))
        }
        Source::Directory(root) => Box::new(Directory(root.clone())),
    })
}

fn failed(error: rusqlite::Error) -> io::Error {
    io::Error::other(error)
}

struct Database(Connection);

fn insert_message(db: &Connection, message: &MailMessage) -> rusqlite::Result<()> {
    let sql = "INSERT INTO messages (id, thread_id, sender, recipient, sent_at, subject, body, folder) VALUES (?1, ?2, ?3, 'me', ?4, ?5, ?6, 'inbox')";
    db.prepare_cached(sql)?.execute(params![
        message.id as i64,
        message.thread as i64,
        message.sender,
        message.sent_at,
        message.subject,
        message.body
    ])?;
    Ok(())
}

fn insert_task(db: &Connection, task: &Task) -> rusqlite::Result<()> {
    let sql = "INSERT INTO tasks (name, title, owner, heartbeat, state) VALUES (?1, ?2, ?3, ?4, ?5)";
    db.prepare_cached(sql)?.execute(params![task.name, task.title, task.owner, task.heartbeat, task.state.name()])?;
    let mut insert = db.prepare_cached("INSERT INTO depends_on VALUES (?1, ?2)")?;
    for other in &task.depends_on {
        insert.execute(params![task.name, other])?;
    }
    Ok(())
}

fn insert_line(db: &Connection, line: &LogLine) -> rusqlite::Result<()> {
    let sql = "INSERT INTO log (at, service, level, request, message) VALUES (?1, ?2, ?3, ?4, ?5)";
    db.prepare_cached(sql)?.execute(params![line.at, line.service, line.level, line.request, line.message])?;
    Ok(())
}

impl Database {
    fn replace(&mut self, world: &World) -> rusqlite::Result<()> {
        let transaction = self.0.transaction()?;
        transaction
            .execute_batch("DELETE FROM messages; DELETE FROM tasks; DELETE FROM depends_on; DELETE FROM log;")?;
        for message in &world.messages {
            insert_message(&transaction, message)?;
        }
        for task in &world.tasks {
            insert_task(&transaction, task)?;
        }
        for line in &world.log {
            insert_line(&transaction, line)?;
        }
        transaction.commit()
    }

    fn change(&mut self, change: &SourceChange) -> rusqlite::Result<()> {
        let transaction = self.0.transaction()?;
        match change {
            SourceChange::Message(message) => insert_message(&transaction, message)?,
            SourceChange::State { task, state } => {
                let sql = "UPDATE tasks SET state = ?2 WHERE name = ?1";
                transaction.execute(sql, params![task, state.name()])?;
            }
            SourceChange::Log(lines) => {
                for line in lines {
                    insert_line(&transaction, line)?;
                }
            }
        }
        transaction.commit()
    }
}

impl Writer for Database {
    fn reset(&mut self, world: &World) -> io::Result<()> {
        self.replace(world).map_err(failed)
    }

    fn commit(&mut self, change: &SourceChange) -> io::Result<()> {
        self.change(change).map_err(failed)
    }

    fn drafted(&self, draft: &Draft) -> Result<(), String> {
        let sql =
            "SELECT count(*) FROM messages WHERE folder = 'drafts' AND recipient = ?1 AND subject = ?2 AND body = ?3";
        let count = |sql: &str, parameters: &[&dyn rusqlite::ToSql]| {
            let counted = self.0.query_row(sql, parameters, |row| row.get::<_, i64>(0));
            counted.map_err(|error| error.to_string())
        };
        let drafts = count(sql, &[&draft.recipient, &draft.subject, &draft.body])?;
        let sql = "SELECT count(*) FROM messages WHERE folder = 'archive' AND id = ?1";
        let filed = count(sql, &[&(draft.answers as i64)])?;
        match (drafts, filed) {
            (1, 1) => Ok(()),
            _ => Err(format!(
                "{drafts} drafts answer message {} with {:?}, and it is filed {filed} times; expected one each",
                draft.answers, draft.body
            )),
        }
    }
}

struct Directory(PathBuf);

impl Directory {
    /// Replaces a file at once, so that no reader sees a part of it.
    fn put(&self, path: &str, text: &str) -> io::Result<()> {
        let file = self.0.join(path);
        let beside = file.with_extension("new");
        fs::write(&beside, text)?;
        fs::rename(&beside, &file)
    }

    fn append(&self, line: &LogLine) -> io::Result<()> {
        let file = fs::File::options().create(true).append(true).open(self.0.join(line.path()));
        file?.write_all(format!("{}\n", line.text()).as_bytes())
    }
}

fn clear(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(())
}

impl Writer for Directory {
    fn reset(&mut self, world: &World) -> io::Result<()> {
        clear(&self.0.join("tasks"))?;
        clear(&self.0.join("logs"))?;
        for task in &world.tasks {
            self.put(&task.path(), &task.text())?;
        }
        world.log.iter().try_for_each(|line| self.append(line))
    }

    fn commit(&mut self, change: &SourceChange) -> io::Result<()> {
        match change {
            SourceChange::Message(_) => Err(io::Error::other("a controller's directory has no mail")),
            SourceChange::State { task, state } => {
                let path = format!("tasks/{task}.json");
                let text = fs::read_to_string(self.0.join(&path))?;
                let lines = text.lines().map(|line| {
                    if line.contains("\"state\"") {
                        format!("  \"state\": \"{}\",\n", state.name())
                    } else {
                        format!("{line}\n")
                    }
                });
                self.put(&path, &lines.collect::<String>())
            }
            SourceChange::Log(lines) => lines.iter().try_for_each(|line| self.append(line)),
        }
    }

    fn drafted(&self, _: &Draft) -> Result<(), String> {
        Err("a controller's directory has no drafts".to_owned())
    }
}
