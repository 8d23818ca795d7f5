//! The tree of names that a model proposes: its schema and its validation.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use fuse::store::{NAME_MAX, TARGET_MAX};

use crate::names::is_control;

/// The most entries a tree may have.
pub const ENTRIES_MAX: usize = 10_000;

/// The most entries a model is asked for.
const ASKED_MAX: usize = 40;

/// The most characters of a path, a target or a description that a model is asked for.
const ASKED_LENGTH: usize = 60;

/// The most characters of a path, a target or a description.
const LENGTH_MAX: usize = 200;

/// Tokens of one entry as small models write it, white space included.
const TOKENS_AN_ENTRY: u32 = 80;

/// The longest path in bytes.
const PATH_MAX: usize = 4096;

/// The form of a tree, for errors.
const FORM: &str = r#"{"entries": [{"path": "src/main.py", "kind": "file", "about": "prints hello"}]}"#;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A file, which is generated on its first read.
    File,
    /// A directory. The parents of an entry need no entries.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// An entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeEntry {
    /// Path relative to the root, such as `src/main.py`.
    pub path: String,
    /// The kind of node.
    pub kind: EntryKind,
    /// The target of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The prompt of the file, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
}

/// Why a tree is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The text is not JSON, or an object has a field twice.
    #[error("the tree cannot be read as JSON: {0}")]
    NotJson(String),
    /// The JSON does not match the schema.
    #[error("the tree does not fit its schema, {FORM}: {0}")]
    Schema(String),
    /// An entry is invalid.
    #[error("the tree's entry {path:?} {why}")]
    Entry {
        /// Its path.
        path: String,
        /// The reason why it is invalid.
        why: String,
    },
    /// The tree has more than [`ENTRIES_MAX`] entries.
    #[error("the tree has {0} entries; the maximum is {ENTRIES_MAX}")]
    TooMany(usize),
    /// The tree has no entries.
    #[error("the tree has no entries")]
    Empty,
    /// The answer ended at the token limit.
    #[error("the tree is cut off at --answer-tokens")]
    CutOff,
}

/// The JSON Schema of a tree with at most `most` entries.
pub fn schema(most: usize) -> Value {
    json!({
        "type": "object",
        "properties": {
            "entries": {
                "type": "array",
                "minItems": 1,
                "maxItems": most,
                "items": {
                    "type": "object",
                    "properties": {
                        "path": {"type": "string", "minLength": 1, "maxLength": LENGTH_MAX},
                        "kind": {"type": "string", "enum": ["file", "directory", "symlink"]},
                        "target": {"type": "string", "maxLength": LENGTH_MAX},
                        "about": {"type": "string", "maxLength": LENGTH_MAX},
                    },
                    "required": ["path", "kind"],
                    "additionalProperties": false,
                },
            },
        },
        "required": ["entries"],
        "additionalProperties": false,
    })
}

/// The schema for a request to a model. Strict structured output requires every field; an empty `target` or
/// `about` means none. An answer of `max_tokens` has room for the entries. Each repair halves their number
/// and excludes links, which can be invalid in most ways.
pub(super) fn asked_schema(max_tokens: u32, repairs: usize) -> Value {
    let fitting = (max_tokens / TOKENS_AN_ENTRY) as usize >> repairs;
    let mut schema = schema(fitting.clamp(1, ASKED_MAX));
    if let Some(item) = schema.pointer_mut("/properties/entries/items") {
        for field in ["path", "target", "about"] {
            item["properties"][field]["maxLength"] = json!(ASKED_LENGTH);
        }
        item["required"] = json!(["path", "kind", "target", "about"]);
        if repairs > 0 {
            item["properties"]["kind"]["enum"] = json!(["file", "directory"]);
            item["required"] = json!(["path", "kind", "about"]);
            if let Some(fields) = item["properties"].as_object_mut() {
                fields.remove("target");
            }
        }
    }
    schema
}

/// Parses a tree and validates it: first the schema, then rules that a schema cannot express. One invalid entry
/// refuses the whole tree.
///
/// # Errors
/// [`TreeError`], which names an invalid entry.
pub fn parse(text: &str) -> Result<Vec<TreeEntry>, TreeError> {
    let short = |error: &dyn Error| error.to_string().chars().take(300).collect();
    let value = inputs::parse_json(text).map_err(|error| TreeError::NotJson(short(&error)))?;
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Tree {
        entries: Vec<TreeEntry>,
    }
    let Tree { entries } = inputs::read_value(value).map_err(|error| TreeError::Schema(short(&error)))?;
    if entries.len() > ENTRIES_MAX {
        return Err(TreeError::TooMany(entries.len()));
    }
    check(entries)
}

fn check(entries: Vec<TreeEntry>) -> Result<Vec<TreeEntry>, TreeError> {
    let mut kinds: BTreeMap<String, EntryKind> = BTreeMap::new();
    let mut checked = Vec::with_capacity(entries.len());
    for mut entry in entries {
        let refuse = |why: &str| TreeError::Entry { path: entry.path.clone(), why: why.to_owned() };
        let more = entry.target.iter().chain(&entry.about);
        let is_long = |text: &String| text.chars().count() > LENGTH_MAX;
        if std::iter::once(&entry.path).chain(more).any(is_long) {
            let why = format!("has a text of more than {LENGTH_MAX} characters");
            return Err(refuse(&why));
        }
        let path = with_slashes(&entry.path);
        if entry.kind == EntryKind::Directory && path.starts_with('/') && parts_of(&path).next().is_none() {
            // The root, which every tree has.
            continue;
        }
        let path = normal(&path).map_err(|why| refuse(&why))?;
        let target = entry.target.take().filter(|target| !target.is_empty());
        let target = target.map(|target| with_slashes(&target));
        entry.target = match (entry.kind, target) {
            (EntryKind::Symlink, None) => {
                return Err(refuse("is a symbolic link with an empty target"));
            }
            (EntryKind::Symlink, Some(target)) if target.len() > TARGET_MAX || target.contains(is_control) => {
                return Err(refuse("has an invalid target"));
            }
            (EntryKind::Symlink, Some(target)) if !stays_inside(&path, &target) => {
                return Err(refuse("has a target outside of the tree"));
            }
            (EntryKind::Symlink, target) => target,
            // Models fill in every field, so a target of a file has no meaning.
            (_, _) => None,
        };
        if kinds.insert(path.clone(), entry.kind).is_some() {
            return Err(refuse("appears twice"));
        }
        entry.about = entry.about.filter(|about| !about.trim().is_empty());
        entry.path = path;
        checked.push(entry);
    }
    if checked.is_empty() {
        return Err(TreeError::Empty);
    }
    for path in kinds.keys() {
        let is_other = |above: &&str| {
            let kind = kinds.get(*above);
            kind.is_some_and(|kind| *kind != EntryKind::Directory)
        };
        if let Some(above) = ancestors(path).find(is_other) {
            return Err(TreeError::Entry {
                path: path.clone(),
                why: format!("is below {above:?}, which is not a directory"),
            });
        }
    }
    Ok(checked)
}

/// A path with slashes in place of backslashes: models write them in trees of Windows, as in `C:\WINDOWS\SYSTEM`.
fn with_slashes(path: &str) -> String {
    let path = path.replace('\\', "/");
    if !has_drive(&path) {
        return path;
    }
    // No name of Windows has a control character: it is a backslash that the model did not escape, as in `"C:\temp"`.
    let escapes = [('\t', "/t"), ('\n', "/n"), ('\r', "/r"), ('\u{8}', "/b"), ('\u{c}', "/f")];
    escapes.into_iter().fold(path, |path, (control, meant)| path.replace(control, meant))
}

/// Whether a path begins with a drive of Windows.
fn has_drive(path: &str) -> bool {
    matches!(path.as_bytes(), [drive, b':', ..] if drive.is_ascii_alphabetic())
}

/// Normalizes a path: without `.` parts and extra slashes. A first slash is the root of the tree, as models write it in
/// trees of Unix. Refuses a path outside the tree or in `.llmfs`.
fn normal(path: &str) -> Result<String, String> {
    if let Some(control) = path.chars().find(|char| is_control(*char)) {
        return Err(format!("has the control character U+{:04X} in its path", u32::from(control)));
    }
    if path.len() > PATH_MAX {
        return Err(format!("has a path of more than {PATH_MAX} bytes"));
    }
    let mut parts = Vec::new();
    for part in parts_of(path) {
        if part == ".." {
            return Err("leads out of the tree with `..`".to_owned());
        }
        if part.len() > NAME_MAX {
            return Err(format!("has a name of more than {NAME_MAX} bytes"));
        }
        parts.push(part);
    }
    match parts.first() {
        None => Err("names nothing".to_owned()),
        Some(&".llmfs") => Err("is in `.llmfs`, which is the control directory".to_owned()),
        Some(_) => Ok(parts.join("/")),
    }
}

/// Whether a link at `path` stays inside the tree. Its `..` parts must come first and lead at most to the
/// root. All parents of a link are directories, and every link on its way obeys the same rule.
fn stays_inside(path: &str, target: &str) -> bool {
    if target.starts_with('/') {
        return false;
    }
    let parts: Vec<&str> = parts_of(target).collect();
    let up = parts.iter().take_while(|part| **part == "..").count();
    up <= path.matches('/').count() && !parts[up..].contains(&"..")
}

/// The parts of a path that name something.
fn parts_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

/// The parents of a path, nearest first.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').rev().map(|(at, _)| &path[..at])
}

/// Every directory of a tree, parents before children.
pub(super) fn directories(entries: &[TreeEntry]) -> BTreeSet<String> {
    let mut directories = BTreeSet::new();
    for entry in entries {
        directories.extend(ancestors(&entry.path).map(str::to_owned));
        if entry.kind == EntryKind::Directory {
            directories.insert(entry.path.clone());
        }
    }
    directories
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree(entries: &str) -> String {
        format!("{{\"entries\":[{entries}]}}")
    }

    fn file(path: &str) -> String {
        json!({"path": path, "kind": "file"}).to_string()
    }

    fn link(path: &str, target: &str) -> String {
        json!({"path": path, "kind": "symlink", "target": target}).to_string()
    }

    #[test]
    fn a_link_may_go_up_as_far_as_the_root() {
        for (path, target) in [("l", "a/b"), ("a/l", "../b"), ("a/b/l", "../../c"), ("a/l", "./..//b/"), ("l", "...")] {
            let entries = parse(&tree(&link(path, target))).unwrap();
            assert_eq!(entries[0].target.as_deref(), Some(target));
        }
    }

    #[test]
    fn a_good_tree_is_read_and_paths_are_made_normal() {
        let text = tree(
            r#"{"path":"./src/","kind":"directory","target":"","about":""},
               {"path":"src//main.py","kind":"file","about":"prints hello"},
               {"path":"latest","kind":"symlink","target":"src/main.py"}"#,
        );
        let entries = parse(&text).unwrap();
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["src", "src/main.py", "latest"]);
        assert_eq!(entries[1].about.as_deref(), Some("prints hello"));
        let dirs = directories(&entries);
        assert_eq!(dirs.into_iter().collect::<Vec<_>>(), ["src"]);
    }

    #[test]
    fn backslashes_of_a_tree_separate_directories_and_lead_no_further_than_slashes() {
        let entries = [
            file(r"C:\WINDOWS\SYSTEM\KRNL386.EXE"),
            file(r"C:\AUTOEXEC.BAT"),
            file(r"a\b/c"),
            link(r"C:\DOCS\SYSTEM", r"..\WINDOWS\SYSTEM"),
            json!({"path": r"C:\PROGRA~1\", "kind": "directory"}).to_string(),
        ];
        let entries = parse(&tree(&entries.join(","))).unwrap();
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        let expected = ["C:/WINDOWS/SYSTEM/KRNL386.EXE", "C:/AUTOEXEC.BAT", "a/b/c", "C:/DOCS/SYSTEM", "C:/PROGRA~1"];
        assert_eq!(paths, expected);
        assert_eq!(entries[3].target.as_deref(), Some("../WINDOWS/SYSTEM"));
        let dirs: Vec<String> = directories(&entries).into_iter().collect();
        let expected = ["C:", "C:/DOCS", "C:/PROGRA~1", "C:/WINDOWS", "C:/WINDOWS/SYSTEM", "a", "a/b"];
        assert_eq!(dirs, expected);
        for (bad, expected) in [
            (file(r"..\..\etc\passwd"), "`..`"),
            (file(r"a\..\b"), "`..`"),
            (file(r"\..\x"), "`..`"),
            (file(r".llmfs\model"), "control directory"),
            (format!("{},{}", file(r"a\b"), file("a/b")), "twice"),
            (link(r"a\l", r"..\..\x"), "outside"),
            (link("l", r"\x"), "outside"),
        ] {
            let error = parse(&tree(&bad)).unwrap_err().to_string();
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }

    #[test]
    fn a_backslash_that_a_model_did_not_escape_separates_directories() {
        let unescaped = [r"C:\temp\new\readme.txt", r"C:\b\fonts\new.txt"].map(|path| file(path).replace(r"\\", r"\"));
        let entries = parse(&tree(&unescaped.join(","))).unwrap();
        let paths: Vec<&str> = entries.iter().map(|entry| &*entry.path).collect();
        assert_eq!(paths, ["C:/temp/new/readme.txt", "C:/b/fonts/new.txt"]);
    }

    #[test]
    fn a_first_slash_is_the_root_of_the_tree() {
        let directory = |path: &str| json!({"path": path, "kind": "directory"}).to_string();
        let entries = [directory("/"), directory("/bin/"), file("//etc/passwd"), file(r"\WINDOWS\WIN.INI")];
        let entries = parse(&tree(&entries.join(","))).unwrap();
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["bin", "etc/passwd", "WINDOWS/WIN.INI"]);
    }

    #[test]
    fn each_bad_tree_is_refused_and_the_entry_is_named() {
        let bad = [
            (file("../../etc/passwd"), "`..`"),
            (file("a/../b"), "`..`"),
            (file("/../etc/passwd"), "`..`"),
            (format!("{},{}", file("/a"), file("a")), "twice"),
            (file("/"), "names nothing"),
            (file("/.llmfs/model"), "control directory"),
            (json!({"path": "/", "kind": "directory"}).to_string(), "no entries"),
            (file("a\0b"), "U+0000"),
            (file("a\nb"), "U+000A"),
            (file("a/\u{1b}[31mb/c"), "U+001B"),
            (file("\u{9b}31m"), "U+009B"),
            (file("a\u{2028}b"), "U+2028"),
            (json!({"path": "a\tb", "kind": "directory"}).to_string(), "U+0009"),
            (link("l", "a\u{7f}"), "invalid target"),
            (format!("{},{}", file("a"), file("./a")), "twice"),
            (format!("{},{}", file("a"), file("a/b")), "not a directory"),
            (file(&"n".repeat(256)), "more than 200 characters"),
            (file("."), "names nothing"),
            (file(".llmfs/model"), "control directory"),
            (r#"{"path":"l","kind":"symlink"}"#.to_owned(), "an empty target"),
            (link("l", "/etc/passwd"), "outside"),
            (link("l", ".."), "outside"),
            (link("a/l", "../../x"), "outside"),
            (link("a/l", "./..//../x"), "outside"),
            // `b` may be a link to a directory with another parent.
            (link("a/l", "b/../.."), "outside"),
            (r#"{"path":"l","kind":"device"}"#.to_owned(), "entries[0].kind"),
            (r#"{"path":"l","kind":"file","mode":7}"#.to_owned(), "mode"),
            (r#"{"kind":"file"}"#.to_owned(), "path"),
            (r#"{"path":"a","path":"b","kind":"file"}"#.to_owned(), "`path` appears twice"),
            (String::new(), "no entries"),
        ];
        for (entries, expected) in bad {
            let error = parse(&tree(&entries)).unwrap_err().to_string();
            assert!(error.contains(expected), "{entries}: {error}");
        }
        assert!(matches!(parse("[1,"), Err(TreeError::NotJson(_))));
        let refused = parse(r#"[{"path":"a","kind":"file"}]"#).unwrap_err().to_string();
        assert!(refused.contains(FORM), "{refused}");
        parse(FORM).unwrap();
        let many: Vec<String> = (0..100_000).map(|at| file(&format!("f{at}"))).collect();
        assert_eq!(parse(&tree(&many.join(","))), Err(TreeError::TooMany(100_000)));
    }

    #[test]
    fn the_mount_accepts_what_it_asks_the_model_for() {
        let answer = json!({"entries": [{"path": "a", "kind": "file", "target": "", "about": ""}]});
        let asked = jsonschema::validator_for(&asked_schema(512, 0)).unwrap();
        assert!(asked.validate(&answer).is_ok());
        assert!(parse(&answer.to_string()).is_ok());
        let repaired = json!({"entries": [{"path": "a", "kind": "file", "about": ""}]});
        let asked = jsonschema::validator_for(&asked_schema(512, 1)).unwrap();
        assert!(asked.validate(&repaired).is_ok() && asked.validate(&answer).is_err());
        assert!(parse(&repaired.to_string()).is_ok());
        let most = |tokens, repairs| {
            let schema = asked_schema(tokens, repairs);
            let entries = &schema["properties"]["entries"];
            entries["maxItems"].as_u64().unwrap()
        };
        assert_eq!([most(512, 0), most(512, 1), most(512, 2)], [6, 3, 1]);
        assert_eq!((most(100_000, 0), most(1, 0)), (40, 1));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_no_accepted_path_leaves_the_tree(path in ".{0,40}") {
            if let Ok(entries) = parse(&tree(&file(&path))) {
                let path = &entries[0].path;
                prop_assert!(!path.starts_with('/') && !path.split('/').any(|part| part == ".." || part.is_empty()));
            }
        }
    }
}
