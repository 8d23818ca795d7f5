//! Memory tools: `remember` and `recall`, over the names that an `agent-memory` mount answers (docs/MEMORY.md).

use std::time::Duration;

use rmcp::model::{JsonObject, Tool};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::json;
use url::form_urlencoded::byte_serialize;

use super::toolset::{ToolAnswer, Toolset, arguments, definition};
use super::tree::{DirectoryTree, reason, written};

/// The longest name of a file, in bytes; a short question is part of one.
const NAME_MAX: usize = 255;

/// The longest target of a symbolic link, in bytes; a longer question is one.
const TARGET_MAX: usize = 4095;

/// How the name of a question begins that is too long for one.
const QUESTION: &str = ".question-";

/// How old a question is whose server has not removed it: its host or process ended. Clocks of hosts differ by less.
const ABANDONED: Duration = Duration::from_secs(600);

/// Where notes are written.
const DIR: &str = "notes";

/// The tools over a mounted memory.
pub struct MemoryTools {
    tree: DirectoryTree,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RememberArguments {
    text: String,
    importance: Option<f64>,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecallArguments {
    question: String,
    #[serde(default = "tokens")]
    max_tokens: u64,
    #[serde(default)]
    strategy: StrategyName,
}

fn tokens() -> u64 {
    2000
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StrategyName {
    Recency,
    Importance,
    #[default]
    Balanced,
}

impl MemoryTools {
    /// The tools, if `tree` is the root of a memory.
    pub fn of(tree: DirectoryTree) -> Option<Self> {
        if !tree.has(":stats") {
            return None;
        }
        if let Err(error) = tree.remove_links(QUESTION, ABANDONED) {
            tracing::warn!(%error, "removing questions of killed servers");
        }
        Some(Self { tree })
    }

    fn remember(&self, asked: &RememberArguments) -> ToolAnswer {
        if asked.text.trim().is_empty() {
            return Err("remember: `text` is empty; give the text of the note".to_owned());
        }
        let importance = asked.importance.unwrap_or(0.5);
        if !(0.0..=1.0).contains(&importance) {
            return Err(format!(
                "remember: importance is {importance}; it must be 0 to 1"
            ));
        }
        let is_word = |tag: &String| {
            !tag.is_empty() && tag.chars().all(|c| c.is_alphanumeric() || "-_".contains(c))
        };
        if let Some(tag) = asked.tags.iter().find(|tag| !is_word(tag)) {
            return Err(format!(
                "remember: the tag {tag:?} must consist of letters, digits, - and _"
            ));
        }
        let tags = asked.tags.join(", ");
        let text = asked.text.trim_end();
        let note = format!("---\nimportance: {importance}\ntags: [{tags}]\n---\n{text}\n");
        let title = title(text);
        for number in 1..10_000 {
            let path = match number {
                1 => format!("{DIR}/{title}.md"),
                number => format!("{DIR}/{title}-{number}.md"),
            };
            match self.tree.write(&path, note.as_bytes(), true) {
                Err(Errno::EXIST) => {}
                result => return written(&path, result, format!("Remembered in {path}")),
            }
        }
        Err(format!(
            "remember: {DIR} already has 9,999 notes called {title}; begin the text with other words"
        ))
    }

    fn recall(&self, asked: &RecallArguments) -> ToolAnswer {
        if asked.question.trim().is_empty() {
            return Err("recall: `question` is empty; give a question or words".to_owned());
        }
        if !(64..=1_000_000).contains(&asked.max_tokens) {
            return Err(format!(
                "recall: max_tokens is {}; it must be 64 to 1,000,000",
                asked.max_tokens
            ));
        }
        let strategy = match asked.strategy {
            StrategyName::Recency => "recency",
            StrategyName::Importance => "importance",
            StrategyName::Balanced => "balanced",
        };
        let max_tokens = asked.max_tokens;
        let rest = format!("&max_tokens={max_tokens}&strategy={strategy}");
        let question: String = byte_serialize(asked.question.as_bytes()).collect();
        let name = format!(":recall?query={question}{rest}");
        let answer = match name.len() {
            ..=NAME_MAX => self.tree.read(&name)?,
            _ => self.recall_by_link(asked.question.trim(), &rest)?,
        };
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Asks a question that is too long for a name: as the target of a symbolic link, which the memory does not index.
    fn recall_by_link(&self, question: &str, rest: &str) -> Result<Vec<u8>, String> {
        if question.len() > TARGET_MAX {
            return Err(format!(
                "recall: the question has {} bytes; the maximum is {TARGET_MAX}",
                question.len()
            ));
        }
        let failed = |error: Errno| format!("recall: cannot store the question: {}", reason(error));
        let process = std::process::id();
        for number in 1..10_000 {
            let link = format!("{QUESTION}{process}-{number}");
            match self.tree.symlink(question, &link) {
                Err(Errno::EXIST) => continue,
                made => made.map_err(failed)?,
            }
            let answer = self.tree.read(&format!(":recall?link={link}{rest}"));
            let removed = self.tree.remove(&link);
            removed.map_err(|error| format!("recall: cannot remove {link}: {}", reason(error)))?;
            return answer;
        }
        Err("recall: 9,999 questions are pending; remove the links .question-*".to_owned())
    }
}

/// The first words of a note as a file name.
fn title(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty()).take(6);
    let name = words.collect::<Vec<_>>().join("-").to_lowercase();
    // 40 characters of 4 bytes leave room for a number.
    let name: String = name.chars().take(40).collect();
    match name.is_empty() {
        true => "note".to_owned(),
        false => name,
    }
}

impl Toolset for MemoryTools {
    fn definitions(&self) -> Vec<Tool> {
        vec![
            definition(
                "remember",
                "Store a note that recall finds later",
                json!({
                    "text": {"type": "string"},
                    "importance": {"type": "number", "minimum": 0, "maximum": 1},
                    "tags": {"type": "array", "items": {"type": "string"}},
                }),
                &["text"],
            ),
            definition(
                "recall",
                "The most useful notes for a question",
                json!({
                    "question": {"type": "string"},
                    "max_tokens": {"type": "integer", "minimum": 64, "maximum": 1_000_000},
                    "strategy": {"type": "string", "enum": ["balanced", "recency", "importance"]},
                }),
                &["question"],
            ),
        ]
    }

    fn changes(&self, name: &str) -> bool {
        name == "remember"
    }

    fn call(&self, name: &str, given: JsonObject) -> Option<ToolAnswer> {
        Some(match name {
            "remember" => arguments(name, given).and_then(|asked| self.remember(&asked)),
            "recall" => arguments(name, given).and_then(|asked| self.recall(&asked)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

    use super::*;

    #[test]
    fn a_question_of_a_killed_server_is_removed_by_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(":stats"), "").unwrap();
        for name in [".question-1-1", ".question-2-1", "other"] {
            std::os::unix::fs::symlink("a question", dir.path().join(name)).unwrap();
        }
        let long_ago = Timespec {
            tv_sec: 1_000_000,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: long_ago,
            last_modification: long_ago,
        };
        for name in [".question-1-1", "other"] {
            let link = dir.path().join(name);
            utimensat(CWD, &link, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
        MemoryTools::of(DirectoryTree::open(dir.path()).unwrap()).unwrap();
        let names = std::fs::read_dir(dir.path()).unwrap();
        let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        assert_eq!(names, [".question-2-1", ":stats", "other"]);
    }

    #[test]
    fn context_policies_count_the_definition_of_recall_that_clients_get() {
        let dir = tempfile::tempdir().unwrap();
        let tools = MemoryTools {
            tree: DirectoryTree::open(dir.path()).unwrap(),
        };
        let recall = serde_json::to_value(&tools.definitions()[1]).unwrap();
        let counted: serde_json::Value =
            serde_json::from_str(workloads::context::RECALL_TOOL).unwrap();
        assert_eq!(recall, counted);
    }
}
