//! Reads OpenCode's own sessions: from its database, or, of older versions, from a directory of small files.
//! Each becomes the document that `opencode export` writes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use inputs::files::{self, RECORDING};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

/// A session of OpenCode.
pub struct OpenCodeSession {
    /// Its identity.
    pub id: String,
    /// When it was last changed, in milliseconds since the Unix epoch.
    pub updated_ms: i64,
}

/// OpenCode's directory, if `path` is that, its `storage` directory, or its database.
pub fn data_directory(path: &Path) -> Option<PathBuf> {
    let is_data = |dir: &Path| database(dir).is_some() || dir.join("storage/session").is_dir();
    if path.file_name()? == "opencode.db" && path.is_file() {
        return Some(path.parent()?.to_owned());
    }
    let is_storage = path.file_name()? == "storage";
    let around = path.parent().filter(|_| is_storage);
    [Some(path), around].into_iter().flatten().find(|dir| is_data(dir)).map(Path::to_owned)
}

/// The database, if this version of OpenCode has one.
fn database(dir: &Path) -> Option<PathBuf> {
    Some(dir.join("opencode.db")).filter(|file| file.is_file())
}

fn open(file: &Path) -> anyhow::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(file, flags).with_context(|| format!("opening {}", file.display()))
}

/// The newest sessions in OpenCode's directory, the newest first.
pub fn list(dir: &Path, most: usize) -> anyhow::Result<Vec<OpenCodeSession>> {
    if let Some(file) = database(dir) {
        let reading = || format!("reading {}", file.display());
        let connection = open(&file)?;
        let mut rows = connection
            .prepare("SELECT id, time_updated FROM session ORDER BY time_updated DESC LIMIT ?1")
            .with_context(reading)?;
        let sessions =
            rows.query_map([most as i64], |row| Ok(OpenCodeSession { id: row.get(0)?, updated_ms: row.get(1)? }));
        return sessions.and_then(|rows| rows.collect()).with_context(reading);
    }
    let mut found: Vec<OpenCodeSession> = Vec::new();
    for project in entries(&dir.join("storage/session")) {
        for file in entries(&project) {
            let session = document(&file)?;
            found.extend(session["id"].as_str().map(|id| OpenCodeSession {
                id: id.to_owned(),
                updated_ms: session["time"]["updated"].as_i64().unwrap_or(0),
            }));
        }
    }
    found.sort_by_key(|session| std::cmp::Reverse(session.updated_ms));
    found.truncate(most);
    Ok(found)
}

/// The document of a session.
pub fn export(dir: &Path, id: &str) -> anyhow::Result<String> {
    let document = match database(dir) {
        Some(file) => from_database(&file, id).with_context(|| format!("reading {}", file.display()))?,
        None => from_files(&dir.join("storage"), id)?,
    };
    Ok(document.to_string())
}

fn from_database(file: &Path, id: &str) -> anyhow::Result<Value> {
    let connection = open(file)?;
    let info = connection.query_row("SELECT directory, version FROM session WHERE id = ?1", [id], |row| {
        Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<String>>(1)?))
    })?;
    let mut bytes = 0;
    let mut parsed = |text: String| {
        bytes += text.len() as u64;
        if bytes > RECORDING.bytes() {
            bail!("session {id} is longer than a recorded session may be");
        }
        // A part that cannot be read costs that part.
        Ok(serde_json::from_str::<Value>(&text).unwrap_or_default())
    };
    let mut messages = Vec::new();
    let mut rows =
        connection.prepare("SELECT id, data FROM message WHERE session_id = ?1 ORDER BY time_created, id")?;
    let mut parts = connection.prepare("SELECT data FROM part WHERE message_id = ?1 ORDER BY id")?;
    let found = rows.query_map([id], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    for row in found {
        let (message, data) = row?;
        let of_message = parts.query_map([&message], |row| row.get::<_, String>(0))?;
        let of_message: Vec<String> = of_message.collect::<Result<_, _>>()?;
        let of_message = of_message.into_iter().map(&mut parsed);
        let of_message: Vec<Value> = of_message.collect::<anyhow::Result<_>>()?;
        messages.push(json!({ "info": parsed(data)?, "parts": of_message }));
    }
    Ok(json!({ "info": { "id": id, "directory": info.0, "version": info.1 }, "messages": messages }))
}

fn from_files(storage: &Path, id: &str) -> anyhow::Result<Value> {
    let mut info = Value::Null;
    for project in entries(&storage.join("session")) {
        let file = project.join(format!("{id}.json"));
        if file.is_file() {
            info = document(&file)?;
        }
    }
    let mut messages = Vec::new();
    for file in entries(&storage.join("message").join(id)) {
        let message = document(&file)?;
        let of_message = message["id"].as_str().unwrap_or_default();
        let parts = entries(&storage.join("part").join(of_message));
        let parts: Vec<Value> = parts.iter().map(|file| document(file)).collect::<anyhow::Result<_>>()?;
        messages.push(json!({ "info": message, "parts": parts }));
    }
    messages.sort_by_key(|message| message["info"]["time"]["created"].as_i64());
    if messages.is_empty() {
        bail!("{}: has no message of session {id}", storage.display());
    }
    Ok(json!({ "info": info, "messages": messages }))
}

fn document(file: &Path) -> anyhow::Result<Value> {
    let text = files::read_text(file, RECORDING).with_context(|| format!("reading {}", file.display()))?;
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

/// The entries of a directory, by name; empty if it cannot be read.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use importers::detect;

    fn calls(document: &str) -> usize {
        let (importer, sessions) = detect::read(document.as_bytes(), None).unwrap();
        assert_eq!(importer.id(), "opencode");
        let events = sessions.iter().flat_map(|session| &session.events);
        events.filter(|event| matches!(event, session_traces::RecordedEvent::Call(_))).count()
    }

    const PART: &str = r#"{"type":"tool","callID":"c","tool":"bash","state":{"status":"completed","input":{"command":"ls"},"output":"a\n"}}"#;

    #[test]
    fn a_session_is_read_from_the_database() {
        let dir = tempfile::tempdir().unwrap();
        let connection = Connection::open(dir.path().join("opencode.db")).unwrap();
        connection
            .execute_batch(&format!(
                r#"CREATE TABLE session (id TEXT, directory TEXT, version TEXT, time_updated INTEGER);
                CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT);
                CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT);
                INSERT INTO session VALUES ('s1', '/w/p', '1.2.0', 5), ('s2', '/w/p', '1.2.0', 9);
                INSERT INTO message VALUES ('m1', 's2', 1, '{{"role":"assistant","modelID":"m"}}');
                INSERT INTO part VALUES ('p1', 'm1', 's2', '{PART}'), ('p2', 'm1', 's2', 'broken');"#
            ))
            .unwrap();
        let sessions = list(dir.path(), 10).unwrap();
        let ids: Vec<&str> = sessions.iter().map(|session| session.id.as_str()).collect();
        assert_eq!(ids, ["s2", "s1"]);
        assert_eq!(calls(&export(dir.path(), "s2").unwrap()), 1);
    }

    #[test]
    fn a_session_of_an_older_version_is_read_from_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let storage = dir.path().join("storage");
        for (file, text) in [
            ("session/p/s1.json", r#"{"id":"s1","directory":"/w/p","time":{"updated":5}}"#),
            ("message/s1/m1.json", r#"{"id":"m1","role":"assistant","time":{"created":1}}"#),
            ("part/m1/p1.json", PART),
        ] {
            let file = storage.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        assert_eq!(list(dir.path(), 10).unwrap()[0].id, "s1");
        assert_eq!(calls(&export(dir.path(), "s1").unwrap()), 1);
    }
}
