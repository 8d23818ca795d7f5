//! Memory tools: `remember` and `recall`, over the names that an `agent-memory` mount answers (docs/MEMORY.md).

use std::fmt;
use std::time::Duration;

use agent_memory::check_ttl;
use rmcp::model::{JsonObject, Tool};
use rustix::io::Errno;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
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

/// Where notes are written in a memory without an agent.
const DIR: &str = "notes";

/// The private directories of the agents and the shared ones, as seen from the root of a memory.
const PRIVATE: &str = "memory/private";
const SHARED: &str = "memory/shared";

/// The most bytes of a title: a number and an ending still fit into a name.
const TITLE_MAX: usize = 200;

/// The tools over a mounted memory.
pub struct MemoryTools {
    tree: DirectoryTree,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RememberArguments {
    text: String,
    title: Option<String>,
    importance: Option<f64>,
    #[serde(default)]
    tags: Vec<String>,
    ttl: Option<Ttl>,
    namespace: Option<String>,
}

/// A time to live as the front matter writes it: a number of seconds may come as a number, as in the SDKs.
struct Ttl(String);

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TtlVisitor;
        impl Visitor<'_> for TtlVisitor {
            type Value = Ttl;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a ttl such as \"7d\", or a whole number of seconds")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Ttl, E> {
                Ok(Ttl(text.to_owned()))
            }
            fn visit_u64<E: Error>(self, seconds: u64) -> Result<Ttl, E> {
                Ok(Ttl(seconds.to_string()))
            }
        }
        deserializer.deserialize_any(TtlVisitor)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecallArguments {
    /// Source 3 calls it `query`.
    #[serde(alias = "query")]
    question: String,
    #[serde(default = "tokens")]
    max_tokens: u64,
    #[serde(default)]
    strategy: StrategyName,
}

fn tokens() -> u64 {
    2000
}

/// Source 3 writes the names in capitals.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StrategyName {
    #[serde(alias = "RECENCY")]
    Recency,
    #[serde(alias = "IMPORTANCE")]
    Importance,
    #[default]
    #[serde(alias = "BALANCED")]
    Balanced,
}

/// Where a memory is open, as its `:stats` says.
#[derive(Debug, PartialEq)]
struct Location {
    /// The path of the directory in the mount, as in `/` and `/memory/shared/`.
    below: String,
    /// The agent of the mount, if it has one.
    agent: Option<String>,
}

impl Location {
    fn of(stats: &str) -> Result<Self, String> {
        let value = |key: &str| {
            let mut lines = stats.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
            value.ok_or_else(|| format!("cannot read :stats: it has no line `{key}`"))
        };
        // No agent's name has a colon.
        let agent = value("agent")?;
        Ok(Self { below: value("below")?.to_owned(), agent: (!agent.starts_with("none:")).then(|| agent.to_owned()) })
    }

    /// The directory of a note, relative to this one. A note is private unless it has a namespace.
    fn folder(&self, namespace: Option<&str>) -> Result<String, String> {
        let Self { below, agent } = self;
        let is_root = below == "/";
        match (namespace, agent) {
            (Some(namespace), _) => {
                check_namespace(namespace)?;
                if !is_root {
                    return Err(format!(
                        "remember: a namespace is a directory of /{SHARED}, but this directory is {below}; give the root of the mount"
                    ));
                }
                Ok(format!("{SHARED}/{namespace}"))
            }
            (None, None) => Ok(DIR.to_owned()),
            (None, Some(agent)) if is_root => Ok(format!("{PRIVATE}/{agent}")),
            (None, Some(agent)) if below.starts_with(&format!("/{PRIVATE}/{agent}/")) => Ok(".".to_owned()),
            (None, Some(agent)) => Err(format!(
                "remember: other agents find notes in {below}; give the root of the mount for a private note, and a namespace to share it (or write the file yourself); {agent}'s own directories are below /{PRIVATE}/{agent}/"
            )),
        }
    }
}

/// How the answer of `remember` begins; the note's path follows.
pub const REMEMBERED: &str = "Remembered in ";

/// A namespace is the name of one directory.
fn check_namespace(namespace: &str) -> Result<(), String> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    let is_name = (1..=64).contains(&namespace.len()) && namespace.chars().all(is_valid);
    if is_name && !namespace.starts_with('.') {
        return Ok(());
    }
    Err(format!(
        "remember: the namespace {namespace:?} must be 1 to 64 letters, digits, `.`, `_`, `-` and `@`, not beginning with `.`"
    ))
}

/// The file name that a title gives, without its ending.
fn file_stem(title: &str) -> Result<&str, String> {
    let stem = title.trim();
    let stem = stem.strip_suffix(".md").unwrap_or(stem);
    let is_name = !stem.is_empty()
        && stem.len() <= TITLE_MAX
        && !stem.starts_with(['.', ':', '-'])
        && !stem.chars().any(|c| c == '/' || c.is_control());
    if is_name {
        Ok(stem)
    } else {
        Err(format!(
            "remember: the title {title:?} must be a file name of 1 to {TITLE_MAX} bytes: without `/` and control characters, and not beginning with `.`, `:` or `-`"
        ))
    }
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

    /// The agent's private directory, relative to this one; `None` without an agent, or outside its directories.
    pub fn home(&self) -> Option<String> {
        let place = self.place().ok()?;
        place.agent.as_ref()?;
        place.folder(None).ok()
    }

    fn place(&self) -> Result<Location, String> {
        let stats = self.tree.read(":stats")?;
        Location::of(&String::from_utf8_lossy(&stats))
    }

    fn remember(&self, asked: &RememberArguments) -> ToolAnswer {
        if asked.text.trim().is_empty() {
            return Err("remember: `text` is empty; give the text of the note".to_owned());
        }
        let importance = asked.importance.unwrap_or(0.5);
        if !(0.0..=1.0).contains(&importance) {
            return Err(format!("remember: importance is {importance}; it must be 0 to 1"));
        }
        let is_word = |tag: &String| !tag.is_empty() && tag.chars().all(|c| c.is_alphanumeric() || "-_".contains(c));
        if let Some(tag) = asked.tags.iter().find(|tag| !is_word(tag)) {
            return Err(format!("remember: the tag {tag:?} must consist of letters, digits, - and _"));
        }
        let mut head = format!("importance: {importance}\n");
        if !asked.tags.is_empty() {
            head += &format!("tags: [{}]\n", asked.tags.join(", "));
        }
        if let Some(Ttl(ttl)) = &asked.ttl {
            check_ttl(ttl).map_err(|error| format!("remember: ttl is {ttl:?}: {error}"))?;
            head += &format!("ttl: {}\n", ttl.trim());
        }
        let text = asked.text.trim_end();
        let stem = match &asked.title {
            Some(title) => file_stem(title)?.to_owned(),
            None => first_words(text),
        };
        let folder = self.place()?.folder(asked.namespace.as_deref())?;
        let note = format!("---\n{head}---\n{text}\n");
        for number in 1..10_000 {
            let name = match number {
                1 => format!("{stem}.md"),
                number => format!("{stem}-{number}.md"),
            };
            let path = match folder.as_str() {
                "." => name,
                folder => format!("{folder}/{name}"),
            };
            match self.tree.write(&path, note.as_bytes(), true) {
                Err(Errno::EXIST) => {}
                result => return written(&path, result, format!("{REMEMBERED}{path}")),
            }
        }
        Err(format!("remember: {folder} already has 9,999 notes called {stem}; give another title"))
    }

    fn recall(&self, asked: &RecallArguments) -> ToolAnswer {
        if asked.question.trim().is_empty() {
            return Err("recall: `question` is empty; give a question or words".to_owned());
        }
        if !(64..=1_000_000).contains(&asked.max_tokens) {
            return Err(format!("recall: max_tokens is {}; it must be 64 to 1,000,000", asked.max_tokens));
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
            return Err(format!("recall: the question has {} bytes; the maximum is {TARGET_MAX}", question.len()));
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

/// The first words of a note as a file name, without its ending.
fn first_words(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty()).take(6);
    let name = words.collect::<Vec<_>>().join("-").to_lowercase();
    // 40 characters of 4 bytes leave room for a number.
    let name: String = name.chars().take(40).collect();
    if name.is_empty() { "note".to_owned() } else { name }
}

impl Toolset for MemoryTools {
    fn definitions(&self) -> Vec<Tool> {
        vec![
            definition(
                "remember",
                "Store a note that recall finds later; private unless it has a namespace",
                json!({
                    "text": {"type": "string"},
                    "title": {"type": "string", "description": "the file name, by default the first words"},
                    "importance": {"type": "number", "minimum": 0, "maximum": 1},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "ttl": {"type": "string", "description": "how long recall finds it, as 30m, 12h or 7d"},
                    "namespace": {"type": "string", "description": "shares the note with other agents under this name"},
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
        let long_ago = Timespec { tv_sec: 1_000_000, tv_nsec: 0 };
        let times = Timestamps { last_access: long_ago, last_modification: long_ago };
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

    fn place(below: &str, agent: &str) -> Location {
        Location::of(&format!("below: {below}\nnotes: 7\nagent: {agent}\nlast-error: none\n")).unwrap()
    }

    #[test]
    fn a_note_is_private_unless_it_has_a_namespace() {
        for (below, agent, namespace, folder) in [
            ("/", "akashi", None, "memory/private/akashi"),
            ("/", "none", None, "memory/private/none"),
            ("/", "akashi", Some("market"), "memory/shared/market"),
            ("/memory/private/akashi/", "akashi", None, "."),
            ("/memory/private/akashi/btc/", "akashi", None, "."),
            ("/", "none: no private namespaces", None, "notes"),
            ("/work/", "none: no private namespaces", None, "notes"),
            ("/", "none: no private namespaces", Some("a.b"), "memory/shared/a.b"),
        ] {
            let place = place(below, agent);
            assert_eq!(place.folder(namespace).unwrap(), folder, "{place:?}");
        }
        for (below, namespace, reason) in [
            ("/memory/shared/", None, "other agents find notes in /memory/shared/"),
            ("/work/", None, "give the root of the mount"),
            // Another agent, whose name begins with this one's.
            ("/memory/private/akashi2/", None, "other agents find notes"),
            ("/work/", Some("market"), "but this directory is /work/"),
            ("/", Some(""), "the namespace \"\""),
            ("/", Some(".."), "the namespace \"..\""),
            ("/", Some("../private/kim"), "the namespace"),
            ("/", Some("a/b"), "the namespace"),
            ("/", Some("a\nb"), "the namespace"),
        ] {
            let refused = place(below, "akashi").folder(namespace).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        assert!(Location::of("nothing").unwrap_err().contains("no line `agent`"));
    }

    #[test]
    fn a_title_is_the_name_of_one_file() {
        for (title, stem) in [("nvda_rsi_rule", "nvda_rsi_rule"), (" RSI rule.md ", "RSI rule"), ("a.b", "a.b")] {
            assert_eq!(file_stem(title).unwrap(), stem);
        }
        let long = "x".repeat(TITLE_MAX + 1);
        for title in ["", " ", ".md", "..", "../x", "a/b", "/a", ":stats", "-rf", "a\0", "a\nb", &long] {
            assert!(file_stem(title).unwrap_err().contains("file name"), "{title:?}");
        }
    }

    #[test]
    fn the_arguments_of_source_3_are_accepted() {
        let given = |given: serde_json::Value| given.as_object().unwrap().clone();
        let recall: RecallArguments =
            arguments("recall", given(json!({"query": "NVDA risk", "max_tokens": 2000}))).unwrap();
        assert_eq!(recall.question, "NVDA risk");
        for ttl in [json!(3600), json!("3600")] {
            let remember: RememberArguments = arguments("remember", given(json!({"text": "x", "ttl": ttl}))).unwrap();
            assert_eq!(remember.ttl.unwrap().0, "3600");
        }
        for ttl in [json!(-1), json!(1.5), json!(true)] {
            let refused = arguments("remember", given(json!({"text": "x", "ttl": ttl})));
            let refused: Result<RememberArguments, String> = refused;
            assert!(refused.err().unwrap().contains("a whole number of seconds"), "{ttl}");
        }
    }

    #[test]
    fn context_policies_count_the_definition_of_recall_that_clients_get() {
        let dir = tempfile::tempdir().unwrap();
        let tools = MemoryTools { tree: DirectoryTree::open(dir.path()).unwrap() };
        let recall = serde_json::to_value(&tools.definitions()[1]).unwrap();
        let counted: serde_json::Value = serde_json::from_str(workloads::context::RECALL_TOOL).unwrap();
        assert_eq!(recall, counted);
    }
}
