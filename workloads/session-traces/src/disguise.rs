//! Anonymises a session for a trace of fidelity `shape`; with fidelity `content` it changes nothing.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use inputs::sha256;
use serde_json::Value;

use super::sketch::newlines;
use shell::programs::lists;
use workloads::filler::fill;
use workloads::trace::{Extra, Fidelity, Fill, TraceContent};

/// File extensions that name a file type and do not identify the file's owner. Others are left out.
const EXTENSIONS: &str = "c cc cfg conf cpp cs css csv go h hpp html ini java js json jsonl jsx kt lock log \
    lua md mod php pl png proto py rb rs scss sh sql sum svg swift tmp toml ts tsx txt vue xml yaml yml zig";

/// Built-in tools of agents. Others are numbered, because a custom tool's name may identify its owner.
const TOOLS: &str = "Agent AskUserQuestion Bash BashOutput Edit EnterPlanMode ExitPlanMode Glob Grep KillBash \
    KillShell LS LSP MultiEdit NotebookEdit NotebookRead Read Skill SlashCommand Task TaskCreate TaskGet \
    TaskList TaskOutput TaskStop TaskUpdate TodoRead TodoWrite ToolSearch WebFetch WebSearch Write";

/// Arguments of built-in tools. Others are numbered.
const ARGUMENTS: &str = "-A -B -C -i -n args cell_id command content dangerouslyDisableSandbox description \
    edit_mode edits file_path glob head_limit limit multiline new_string notebook_path offset old_string \
    output_mode path pattern prompt query recursive replace_all run_in_background skill subagent_type timeout \
    todos type url";

/// Replaces text that may not be published, each text always by the same replacement.
pub(super) struct Disguise {
    fidelity: Fidelity,
    /// The number and the published name of each directory and file, by the number of its directory and its own name. The
    /// root of all paths has the number 0. Whole paths as keys would take memory that grows with the square of their depth.
    names: HashMap<(usize, String), (usize, String)>,
    /// Numbers of replaced words, by word.
    words: HashMap<String, usize>,
    next_seed: u64,
    /// Contents by SHA-256; empty for fidelity `shape`.
    pub(super) blobs: BTreeMap<String, Vec<u8>>,
}

impl Disguise {
    /// Derives the seeds of all filler from `name`, so that two traces do not share text.
    pub(super) fn new(fidelity: Fidelity, name: &str) -> Self {
        let digest = sha256(name);
        // 11 hexadecimal digits fit into a number that every JSON reader keeps exactly.
        let first = u64::from_str_radix(&digest[..11], 16).unwrap_or(0);
        Self { fidelity, names: HashMap::new(), words: HashMap::new(), next_seed: first, blobs: BTreeMap::new() }
    }

    /// Whether names that may identify a person are published.
    pub(super) fn keeps_names(&self) -> bool {
        self.fidelity == Fidelity::Content
    }

    /// The published path: a number for every directory and file, with the file's extension.
    pub(super) fn path(&mut self, original: &str) -> String {
        if self.fidelity == Fidelity::Content || original == "." {
            return original.to_owned();
        }
        let mut shown = String::new();
        let mut dir = 0;
        let mut parts = original.split('/').peekable();
        while let Some(part) = parts.next() {
            if !shown.is_empty() {
                shown.push('/');
            }
            let number = self.names.len();
            let entry = self.names.entry((dir, part.to_owned()));
            let (found, name) = entry.or_insert_with(|| {
                let name = match parts.peek() {
                    None => format!("f{number}{}", extension(part)),
                    Some(_) => format!("d{number}"),
                };
                (number + 1, name)
            });
            dir = *found;
            shown.push_str(name);
        }
        shown
    }

    /// The record of the published content for `original`, and its bytes.
    pub(super) fn content(&mut self, original: &str) -> (TraceContent, Vec<u8>) {
        let lines = newlines(original) as u64;
        match self.fidelity {
            Fidelity::Content => {
                let bytes = original.as_bytes().to_vec();
                let digest = sha256(&bytes);
                self.blobs.insert(digest.clone(), bytes.clone());
                let blob = (!bytes.is_empty()).then(|| format!("blobs/{digest}"));
                let content = TraceContent { bytes: bytes.len() as u64, lines, sha256: digest, blob, fill: None };
                (content, bytes)
            }
            Fidelity::Shape => self.filler(original.len() as u64, lines),
        }
    }

    /// Filler of a given size, for content that the recording does not contain.
    pub(super) fn filler(&mut self, bytes: u64, lines: u64) -> (TraceContent, Vec<u8>) {
        self.next_seed += 1;
        let text = fill(self.next_seed, bytes, lines);
        let content = TraceContent {
            bytes,
            lines: lines.min(bytes),
            sha256: sha256(&text),
            blob: None,
            fill: Some(Fill { seed: self.next_seed }),
        };
        (content, text)
    }

    /// The published arguments: numbers and booleans unchanged, texts by their length.
    pub(super) fn args(&mut self, args: &Extra) -> Extra {
        if self.fidelity == Fidelity::Content {
            return args.clone();
        }
        let shown = args.iter().map(|(key, value)| {
            let key = self.word(key, ARGUMENTS, "argument");
            (key, measured(value))
        });
        shown.collect()
    }

    /// The published name of a tool.
    pub(super) fn tool(&mut self, tool: &str) -> String {
        self.word(tool, TOOLS, "tool")
    }

    /// The published lane, with a number for each subagent.
    pub(super) fn lane(&mut self, lane: &str) -> String {
        match lane.strip_prefix("sub:") {
            Some(agent) => format!("sub:{}", self.word(agent, "", "agent")),
            None => lane.to_owned(),
        }
    }

    fn word(&mut self, word: &str, known: &str, kind: &str) -> String {
        if self.fidelity == Fidelity::Content || lists(known, word) {
            return word.to_owned();
        }
        let next = self.words.len();
        let number = self.words.entry(format!("{kind} {word}")).or_insert(next);
        format!("{kind}-{number}")
    }
}

fn extension(name: &str) -> String {
    let extension = Path::new(name).extension().and_then(|ext| ext.to_str());
    match extension {
        Some(ext) if lists(EXTENSIONS, ext) => format!(".{ext}"),
        _ => String::new(),
    }
}

fn measured(value: &Value) -> Value {
    // An object that grows by itself takes the room of three fields.
    let one = |name: &str, count: usize| {
        let mut field = Extra::with_capacity(1);
        field.insert(name.to_owned(), count.into());
        Value::Object(field)
    };
    match value {
        Value::String(text) => one("bytes", text.len()),
        Value::Array(items) => items.iter().map(measured).collect(),
        Value::Object(fields) => one("fields", fields.len()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shape_shows_no_text() {
        let mut disguise = Disguise::new(Fidelity::Shape, "t");
        assert_eq!(disguise.path("secret/plan.md"), "d0/f1.md");
        assert_eq!(disguise.path("secret/.passwords"), "d0/f2");
        assert_eq!(disguise.path("secret"), "d0");
        assert_eq!(disguise.path("secret/plan.md"), "d0/f1.md");
        assert_eq!(disguise.path("."), ".");
        let (content, bytes) = disguise.content("top secret\n");
        assert_eq!((content.bytes, content.lines), (11, 1));
        assert!(!String::from_utf8(bytes).unwrap().contains("secret"));
        assert_eq!(disguise.path("secret/notes.alice"), "d0/f3");
        assert_eq!(disguise.tool("Read"), "Read");
        assert_eq!(disguise.tool("mcp__acme__get"), "tool-0");
        assert_eq!(disguise.lane("main"), "main");
        assert_eq!(disguise.lane("sub:alice"), "sub:agent-1");
        assert_eq!(disguise.tool("mcp__acme__get"), "tool-0");
        let args = json!({"secret key": 1, "pattern": "secret", "-n": true, "limit": 5, "list": ["secret"], "deep": {"secret": 1}});
        let shown = serde_json::to_string(&disguise.args(args.as_object().unwrap())).unwrap();
        assert!(!shown.contains("secret"), "{shown}");
        assert!(shown.contains("\"limit\":5"), "{shown}");
    }

    #[test]
    fn a_deep_path_takes_memory_in_proportion_to_its_length() {
        let mut disguise = Disguise::new(Fidelity::Shape, "t");
        let deep = "d/".repeat(40_000) + "f";
        for _ in 0..2 {
            assert_eq!(disguise.path(&deep).split('/').count(), 40_001);
            let kept = disguise.names.keys().map(|(_, name)| name.len());
            assert_eq!(kept.sum::<usize>(), 40_001);
        }
    }

    #[test]
    fn content_fidelity_shows_everything_and_keeps_blobs() {
        let mut disguise = Disguise::new(Fidelity::Content, "t");
        assert_eq!(disguise.path("a/b.md"), "a/b.md");
        let (content, bytes) = disguise.content("text");
        assert_eq!(content.blob, Some(format!("blobs/{}", content.sha256)));
        assert_eq!(disguise.blobs[&content.sha256], bytes);
    }
}
