//! Finds recorded sessions: below directories, by patterns, and where agents keep their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;

use crate::opencode_sessions;
use crate::sessions::{Recording, covering_files};

/// How deep directories are searched.
const DEPTH: usize = 8;

/// The most files of a directory.
const FILES: usize = 20_000;

/// Ends of the names of files that can be sessions.
pub const ENDS: [&str; 10] =
    [".jsonl", ".json", ".traj", ".eval", ".ndjson", ".gz", ".zst", ".strace", ".log", ".history.md"];

/// An agent whose own directory is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AgentHome {
    /// Claude Code: `~/.claude/projects`.
    ClaudeCode,
    /// Codex: `~/.codex/sessions`.
    Codex,
    /// OpenCode: `~/.local/share/opencode`.
    Opencode,
    /// Gemini CLI: `~/.gemini/tmp`.
    Gemini,
    /// Copilot CLI: `~/.copilot/session-state`.
    Copilot,
}

/// Where a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionPlace {
    /// A file; `-` is standard input.
    File(PathBuf),
    /// A session in OpenCode's own directory.
    OpenCode {
        /// The directory.
        dir: PathBuf,
        /// Its identity.
        id: String,
    },
}

impl SessionPlace {
    /// Its name in messages.
    pub fn name(&self) -> String {
        match self {
            SessionPlace::File(file) if file == Path::new("-") => "standard input".to_owned(),
            SessionPlace::File(file) => file.display().to_string(),
            SessionPlace::OpenCode { id, .. } => format!("OpenCode session {id}"),
        }
    }

    /// The name of its file, without directories.
    pub fn file_name(&self) -> String {
        match self {
            SessionPlace::File(file) => {
                let name = file.file_name().filter(|_| file != Path::new("-"));
                name.map_or_else(|| self.name(), |name| name.to_string_lossy().into_owned())
            }
            SessionPlace::OpenCode { .. } => self.name(),
        }
    }

    /// Opens it.
    pub fn open(&self) -> anyhow::Result<Recording> {
        match self {
            SessionPlace::File(file) => Recording::open(file),
            SessionPlace::OpenCode { dir, id } => Recording::of_text(self.name(), &opencode_sessions::export(dir, id)?),
        }
    }
}

/// A session of an agent.
pub struct FoundSession {
    pub place: SessionPlace,
    /// When it was last written.
    pub when: String,
}

impl AgentHome {
    /// The agent's name.
    pub fn title(self) -> &'static str {
        match self {
            AgentHome::ClaudeCode => "Claude Code",
            AgentHome::Codex => "Codex",
            AgentHome::Opencode => "OpenCode",
            AgentHome::Gemini => "Gemini CLI",
            AgentHome::Copilot => "Copilot CLI",
        }
    }

    /// The directory in which it keeps sessions.
    fn dir(self) -> anyhow::Result<PathBuf> {
        let home = || {
            let home = inputs::variable("HOME").context("HOME is not set")?;
            anyhow::Ok(PathBuf::from(home))
        };
        let configured = |variable: &str, below: &str| match inputs::variable(variable) {
            Some(dir) => anyhow::Ok(PathBuf::from(dir)),
            None => Ok(home()?.join(below)),
        };
        Ok(match self {
            AgentHome::ClaudeCode => configured("CLAUDE_CONFIG_DIR", ".claude")?.join("projects"),
            AgentHome::Codex => configured("CODEX_HOME", ".codex")?.join("sessions"),
            AgentHome::Opencode => configured("XDG_DATA_HOME", ".local/share")?.join("opencode"),
            AgentHome::Gemini => home()?.join(".gemini/tmp"),
            AgentHome::Copilot => home()?.join(".copilot/session-state"),
        })
    }

    /// Whether a file in the directory is a session.
    fn is_session(self, file: &Path) -> bool {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let parent = file.parent().and_then(Path::file_name).unwrap_or_default();
        match self {
            // What subagents write belongs to the session beside their directory.
            AgentHome::ClaudeCode => name.ends_with(".jsonl") && parent != "subagents" && !name.starts_with("agent-"),
            AgentHome::Codex => name.starts_with("rollout-") && name.ends_with(".jsonl"),
            // Its sessions are rows of a database, not files.
            AgentHome::Opencode => false,
            AgentHome::Gemini => name.starts_with("session-") && parent == "chats",
            AgentHome::Copilot => name.ends_with(".jsonl"),
        }
    }
}

/// The newest sessions in an agent's own directory, the newest first.
pub fn newest(home: AgentHome, most: usize) -> anyhow::Result<Vec<FoundSession>> {
    let dir = home.dir()?;
    if !dir.is_dir() {
        bail!("{}: {} has no sessions here\n  fix: name the session file", dir.display(), home.title());
    }
    let found: Vec<FoundSession> = if home == AgentHome::Opencode {
        let sessions = opencode_sessions::list(&dir, most)?.into_iter();
        let sessions = sessions.map(|session| FoundSession {
            when: minute(jiff::Timestamp::from_millisecond(session.updated_ms)),
            place: SessionPlace::OpenCode { dir: dir.clone(), id: session.id },
        });
        sessions.collect()
    } else {
        let mut files = Vec::new();
        below(&dir, 0, &|file| home.is_session(file), &mut files);
        let mut dated: Vec<(SystemTime, PathBuf)> =
            files.into_iter().filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file))).collect();
        dated.sort();
        let newest = dated.into_iter().rev().take(most);
        let newest = newest.map(|(time, file)| FoundSession {
            when: minute(jiff::Timestamp::try_from(time)),
            place: SessionPlace::File(file),
        });
        newest.collect()
    };
    if found.is_empty() {
        bail!("{}: has no session of {}\n  fix: name the session file", dir.display(), home.title());
    }
    Ok(found)
}

/// A time to the minute.
fn minute(time: Result<jiff::Timestamp, jiff::Error>) -> String {
    time.map_or_else(|_| "unknown".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
}

/// The sessions that the arguments name: files themselves, what lies below directories, what matches patterns, and the
/// sessions in OpenCode's directory or database.
pub fn session_files(arguments: &[PathBuf]) -> anyhow::Result<Vec<SessionPlace>> {
    let mut files = Vec::new();
    let mut places = Vec::new();
    for argument in arguments {
        if let Some(dir) = opencode_sessions::data_directory(argument) {
            let sessions = opencode_sessions::list(&dir, FILES)?.into_iter();
            let before = places.len();
            places.extend(sessions.map(|session| SessionPlace::OpenCode { dir: dir.clone(), id: session.id }));
            if places.len() == before {
                bail!(
                    "{}: holds no session of OpenCode\n  fix: name another directory, or the file of a session",
                    argument.display()
                );
            }
        } else if argument == Path::new("-") {
            files.push(argument.clone());
        } else if argument.is_dir() {
            let before = files.len();
            let may_be = |file: &Path| {
                let name = file.to_string_lossy();
                ENDS.iter().any(|end| name.ends_with(end)) && !name.ends_with(".trace.jsonl")
            };
            below(argument, 0, &may_be, &mut files);
            files[before..].sort();
            if files.len() == before {
                bail!(
                    "{}: no file in it has the name of a session ({})\n  fix: name the file itself",
                    argument.display(),
                    ENDS.join(", ")
                );
            }
        } else if !argument.exists() && argument.to_string_lossy().contains(['*', '?', '[']) {
            let pattern = argument.to_str().ok_or_else(|| anyhow!("{}: is not UTF-8 text", argument.display()))?;
            let found = glob::glob(pattern).with_context(|| format!("pattern {pattern}"))?;
            let before = files.len();
            files.extend(found.flatten().filter(|file| file.is_file()).take(FILES));
            if files.len() == before {
                bail!("{pattern}: matches no file\n  fix: correct the pattern, which `ls` can show");
            }
        } else {
            files.push(argument.clone());
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    let canonical = |file: &Path| file.canonicalize().unwrap_or_else(|_| file.to_owned());
    files.retain(|file| seen.insert(canonical(file)));
    // What another file covers would count twice.
    files.retain(|file| !covering_files(file).iter().any(|covering| seen.contains(&canonical(covering))));
    places.extend(files.into_iter().map(SessionPlace::File));
    Ok(places)
}

/// Collects files below a directory. Links to directories are not followed.
fn below(dir: &Path, depth: usize, is_wanted: &dyn Fn(&Path) -> bool, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        if files.len() >= FILES {
            return;
        }
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let path = entry.path();
        if kind.is_dir() && depth < DEPTH {
            below(&path, depth + 1, is_wanted, files);
        } else if kind.is_file() && is_wanted(&path) {
            files.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_directories_and_patterns_name_sessions_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        for name in ["a/1.jsonl", "a/b/2.traj", "a/b/3.txt", "a/4.trace.jsonl"] {
            fs::write(at(name), "x").unwrap();
        }
        let names = |arguments: &[&str]| {
            let arguments: Vec<PathBuf> = arguments.iter().map(|name| at(name)).collect();
            session_files(&arguments).map(|places| {
                let names = places.iter().map(|place| {
                    let name = place.name();
                    let relative = Path::new(&name).strip_prefix(dir.path());
                    relative.map_or(name.clone(), |name| name.display().to_string())
                });
                names.collect::<Vec<_>>()
            })
        };
        assert_eq!(names(&["a"]).unwrap(), ["a/1.jsonl", "a/b/2.traj"]);
        assert_eq!(names(&["a/1.jsonl", "a"]).unwrap(), ["a/1.jsonl", "a/b/2.traj"]);
        assert_eq!(names(&["a/*.jsonl"]).unwrap(), ["a/1.jsonl", "a/4.trace.jsonl"]);
        fs::create_dir_all(at("a/1/subagents")).unwrap();
        let named = "{\"sessionId\":\"1\"}\n";
        for (name, text) in [
            ("a/1/subagents/agent-x.jsonl.gz", "x"),
            ("a/agent-y.jsonl", named),
            ("a/agent-z.jsonl", "{\"sessionId\":\"gone\"}\n"),
            ("a/b/api_conversation_history.json", "[]"),
            ("a/b/ui_messages.json", "[]"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        // A subagent and the interface of a task belong to a session that is named, too.
        let covered = ["a/1.jsonl", "a/agent-z.jsonl", "a/b/2.traj", "a/b/api_conversation_history.json"];
        assert_eq!(names(&["a"]).unwrap(), covered);
        for alone in ["a/1/subagents/agent-x.jsonl.gz", "a/agent-y.jsonl", "a/b/ui_messages.json"] {
            assert_eq!(names(&[alone]).unwrap(), [alone]);
        }
        assert!(names(&["a/*.none"]).unwrap_err().to_string().contains("matches no file"));
        for (file, text) in [("o/storage/session/p/s1.json", r#"{"id":"s1"}"#), ("o/storage/message/s1/m1.json", "{}")]
        {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), text).unwrap();
        }
        for named in ["o", "o/storage"] {
            assert_eq!(names(&[named]).unwrap(), ["OpenCode session s1"]);
        }
        fs::create_dir(at("empty")).unwrap();
        assert!(names(&["empty"]).unwrap_err().to_string().contains("no file in it"));
    }
}
