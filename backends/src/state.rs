//! Files inside an agent's state: no mount and no path, three tools whose answers are text.
//!
//! The tools, formats and limits are those of source 5 (Sybil): `ls_files`, `write_file` and `read_file`
//! over a dictionary that exists as long as the session. It has no deletion, renaming, appending or
//! directories. A snapshot is JSON, as an agent framework stores it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use arms::backend::{
    Access, Backend, Capabilities, Description, ToolError, Tools, Unavailable, Versions, Workspace, WorkspaceConfig,
};

/// The number of lines that `read_file` returns by default; a requested `limit` may be larger.
pub const READ_LIMIT: u64 = 2000;

/// The version of the snapshot format.
const SNAPSHOT_VERSION: u32 = 1;

/// The `state` backend.
pub(crate) struct State;

/// The files of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateFiles {
    files: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Snapshot {
    version: u32,
    files: BTreeMap<String, String>,
}

impl StateFiles {
    /// The files as JSON: `{"version":1,"files":{name:content}}`.
    pub fn snapshot(&self) -> String {
        let snapshot = serde_json::json!({"version": SNAPSHOT_VERSION, "files": self.files});
        snapshot.to_string()
    }

    /// The bytes of all names and contents.
    pub fn size(&self) -> usize {
        let files = self.files.iter();
        files.map(|(name, content)| name.len() + content.len()).sum()
    }

    /// Parses a snapshot.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the snapshot is invalid, with the reason.
    pub fn restore(snapshot: &str) -> io::Result<Self> {
        let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
        let read: Snapshot = serde_json::from_str(snapshot)
            .map_err(|error| invalid(format!("snapshot of an agent's files: {error}")))?;
        if read.version != SNAPSHOT_VERSION {
            return Err(invalid(format!(
                "snapshot of an agent's files: version {}; this ctxbench reads {SNAPSHOT_VERSION}",
                read.version
            )));
        }
        for name in read.files.keys() {
            check_name(name).map_err(|error| invalid(error.to_string()))?;
        }
        Ok(Self { files: read.files })
    }
}

impl Tools for StateFiles {
    fn ls_files(&mut self) -> String {
        if self.files.is_empty() {
            return "No files in virtual workspace.".to_owned();
        }
        let mut text = "Files in virtual workspace:".to_owned();
        for (name, content) in &self.files {
            text += &format!("\n  {name} ({} bytes)", content.len());
        }
        text
    }

    fn write_file(&mut self, name: &str, content: &[u8]) -> Result<String, ToolError> {
        check_name(name)?;
        // A state is JSON, which holds only text.
        let Ok(content) = std::str::from_utf8(content) else {
            return Err(ToolError::NotText(name.to_owned()));
        };
        let lines = line_count(content);
        self.files.insert(name.to_owned(), content.to_owned());
        Ok(format!("✅ Saved {name} ({} bytes, {lines} lines)", content.len()))
    }

    fn read_file(&mut self, name: &str, offset: u64, limit: Option<u64>) -> Result<String, ToolError> {
        let limit = limit.unwrap_or(READ_LIMIT);
        let Some(content) = self.files.get(name) else {
            return Err(ToolError::NotFound(name.to_owned()));
        };
        let total = line_count(content);
        let first = offset.max(1);
        let last = first.saturating_add(limit).saturating_sub(1).min(total);
        if first > total || limit == 0 {
            return Err(ToolError::NoSuchLines { name: name.to_owned(), first, limit, total });
        }
        let mut text = format!("=== {name} (lines {first}-{last} of {total}) ===");
        let lines = (1..).zip(content.split('\n'));
        for (number, line) in lines.skip(first as usize - 1).take((last - first + 1) as usize) {
            text += &format!("\n{number:>6}|{line}");
        }
        Ok(text)
    }

    fn snapshot(&self) -> String {
        StateFiles::snapshot(self)
    }

    fn restore(&mut self, snapshot: &str) -> io::Result<()> {
        *self = StateFiles::restore(snapshot)?;
        Ok(())
    }
}

/// The number of lines, separated by newlines.
///
/// The text after the last newline counts, even if empty: joining all lines restores every byte.
fn line_count(content: &str) -> u64 {
    content.matches('\n').count() as u64 + 1
}

/// Refuses an empty name, and one that does not fit into one line of a listing.
fn check_name(name: &str) -> Result<(), ToolError> {
    if name.trim().is_empty() || name.contains(['\n', '\r', '\0']) {
        return Err(ToolError::BadName(name.to_owned()));
    }
    Ok(())
}

struct StateWorkspace {
    files: StateFiles,
    /// Always empty: the agent's files are not on disk.
    dir: PathBuf,
}

impl Backend for State {
    fn describe(&self) -> Description {
        Description {
            name: "state".to_owned(),
            summary: "files in the agent's own state: ls_files, write_file, read_file; no mount, no path".to_owned(),
            durability: "only what the agent's framework saves of a session, as a JSON snapshot".to_owned(),
            capabilities: Capabilities { holds_data: true, ..Capabilities::default() },
            lines_of_code: env!("CTXBENCH_LINES_STATE").parse().unwrap_or(0),
            ..Description::default()
        }
    }

    fn access(&self) -> Access {
        Access::Tools
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Versions::from([("ctxbench".to_owned(), version)]))
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        Ok(Box::new(StateWorkspace { files: StateFiles::default(), dir: config.dir.clone() }))
    }
}

impl Workspace for StateWorkspace {
    fn root(&self) -> &Path {
        &self.dir
    }

    fn tools(&mut self) -> Option<&mut dyn Tools> {
        Some(&mut self.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn two() -> StateFiles {
        let mut files = StateFiles::default();
        files.write_file("b.txt", b"one\ntwo\n").unwrap();
        files.write_file("a.json", b"{}").unwrap();
        files
    }

    #[test]
    fn answers_look_as_the_seed_shows_them() {
        let mut files = two();
        insta::assert_snapshot!(files.ls_files(), @r"
        Files in virtual workspace:
          a.json (2 bytes)
          b.txt (8 bytes)
        ");
        insta::assert_snapshot!(files.write_file("c.md", b"x\ny").unwrap(), @"✅ Saved c.md (3 bytes, 2 lines)");
        insta::assert_snapshot!(files.read_file("b.txt", 1, None).unwrap(), @r"
        === b.txt (lines 1-3 of 3) ===
             1|one
             2|two
             3|
        ");
        insta::assert_snapshot!(files.read_file("b.txt", 2, Some(1)).unwrap(), @r"
        === b.txt (lines 2-2 of 3) ===
             2|two
        ");
        assert_eq!(StateFiles::default().ls_files(), "No files in virtual workspace.");
    }

    #[test]
    fn a_refused_call_says_why() {
        let mut files = two();
        let error = |result: Result<String, ToolError>| result.unwrap_err().to_string();
        insta::assert_snapshot!(error(files.read_file("none", 1, Some(10))), @"Error: File none not found. Use ls_files() to see what there is.");
        insta::assert_snapshot!(error(files.read_file("b.txt", 9, Some(10))), @"Error: b.txt has 3 lines; there are none from line 9 on (limit 10).");
        insta::assert_snapshot!(error(files.read_file("b.txt", 1, Some(0))), @"Error: b.txt has 3 lines; there are none from line 1 on (limit 0).");
        insta::assert_snapshot!(error(files.write_file("x", &[0xff])), @"Error: x was not saved: its content is not text, and an agent's state holds only text.");
        insta::assert_snapshot!(error(files.write_file("a\nb", b"")), @r#"Error: "a\nb" is not a file name: it is empty or has more than one line."#);
        assert_eq!(files, two(), "nothing was half done");
    }

    #[test]
    fn a_read_shows_2000_lines_unless_more_are_asked_for_and_the_next_goes_on() {
        let mut files = StateFiles::default();
        let content: String = (1..=4500).map(|n| format!("line {n}\n")).collect();
        files.write_file("long", content.as_bytes()).unwrap();
        let mut head = |offset, limit| {
            let page = files.read_file("long", offset, limit).unwrap();
            (page.lines().next().unwrap().to_owned(), page.lines().count())
        };
        let shown = |lines: &str, count| (format!("=== long (lines {lines} of 4501) ==="), count);
        assert_eq!(head(1, None), shown("1-2000", 2001));
        assert_eq!(head(4001, None), shown("4001-4501", 502));
        assert_eq!(head(1, Some(10)), shown("1-10", 11));
        assert_eq!(head(1, Some(3000)), shown("1-3000", 3001));
        assert_eq!(head(2, Some(u64::MAX)), shown("2-4501", 4501));
    }

    #[test]
    fn a_snapshot_that_is_none_is_refused() {
        let error = |text: &str| StateFiles::restore(text).unwrap_err().to_string();
        assert!(error("nonsense").contains("expected"));
        assert!(error(r#"{"version":2,"files":{}}"#).contains("version 2"));
        assert!(error(r#"{"version":1,"files":{"a":1}}"#).contains("invalid type"));
        assert!(error(r#"{"version":1,"files":{},"more":1}"#).contains("unknown field `more`"));
        assert!(error(r#"{"version":1,"files":{"":""}}"#).contains("is not a file name"));
    }

    proptest! {
        #[test]
        fn a_snapshot_holds_every_byte(
            files in prop::collection::btree_map("[a-z/. ]{1,9}[a-z]", "\\PC{0,40}|(a|\n|\r|\t|\"){0,20}", 0..6)
        ) {
            let mut written = StateFiles::default();
            for (name, content) in &files {
                written.write_file(name, content.as_bytes()).unwrap();
            }
            prop_assert_eq!(StateFiles::restore(&written.snapshot()).unwrap(), written);
        }

        #[test]
        fn pages_put_together_are_the_file(content in "(a|é|\n|\\|){0,60}", page in 1..7u64) {
            let mut files = StateFiles::default();
            files.write_file("f", content.as_bytes()).unwrap();
            let (mut lines, mut offset) = (Vec::new(), 1);
            while let Ok(shown) = files.read_file("f", offset, Some(page)) {
                lines.extend(shown.split('\n').skip(1).map(|line| line[7..].to_owned()));
                offset += page;
            }
            prop_assert_eq!(lines.join("\n"), content);
        }
    }
}
