//! The paths of inodes: stores index names by directory, prompts need paths.

use std::collections::HashMap;
use std::fmt::Write;

use fuse::store::{Ino, ROOT, RenameMode};

/// The longest path that a prompt shows, in bytes: `PATH_MAX` of Linux. Each operation is a line of later prompts.
pub(super) const PATH_MAX: usize = 4096;

/// All names of every inode.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<Ino, Vec<(Ino, Vec<u8>)>>);

impl Names {
    pub(super) fn add(&mut self, ino: Ino, parent: Ino, name: &[u8]) {
        self.0.entry(ino).or_default().push((parent, name.to_vec()));
    }

    pub(super) fn remove(&mut self, ino: Ino, parent: Ino, name: &[u8]) {
        if let Some(names) = self.0.get_mut(&ino) {
            names.retain(|(p, n)| !(*p == parent && n == name));
            if names.is_empty() {
                self.0.remove(&ino);
            }
        }
    }

    /// Moves a name; `target` is the inode that had the new name before.
    pub(super) fn rename(
        &mut self,
        source: Ino,
        target: Option<Ino>,
        (from, from_name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
        mode: RenameMode,
    ) {
        if let Some(target) = target {
            self.remove(target, to, to_name);
            if mode == RenameMode::Exchange {
                self.add(target, from, from_name);
            }
        }
        self.remove(source, from, from_name);
        self.add(source, to, to_name);
    }

    /// Whether the path of `name` in `parent` has more than [`PATH_MAX`] bytes.
    pub(super) fn is_too_long(&self, parent: Ino, name: &[u8]) -> bool {
        let (mut length, mut at) = (name.len() + 1, parent);
        while length <= PATH_MAX {
            let Some((parent, name)) = self.0.get(&at).and_then(|names| names.first()) else {
                return false;
            };
            length += name.len() + 1;
            at = *parent;
        }
        true
    }

    /// A path of an inode, from `/`; `None` if it has no name.
    pub(super) fn path(&self, ino: Ino) -> Option<String> {
        self.path_by(ino, &|name| String::from_utf8_lossy(name).into_owned())
    }

    fn path_by(&self, ino: Ino, text: &dyn Fn(&[u8]) -> String) -> Option<String> {
        let mut parts = Vec::new();
        let mut at = ino;
        while at != ROOT {
            let (parent, name) = self.0.get(&at)?.first()?;
            parts.push(text(name));
            at = *parent;
        }
        parts.reverse();
        Some(format!("/{}", parts.join("/")))
    }

    /// A path of an inode, escaped by [`shown`]; `None` if it has no name.
    pub(super) fn shown_path(&self, ino: Ino) -> Option<String> {
        self.path_by(ino, &|name| shown(name))
    }

    /// The path of `name` in `parent`, escaped by [`shown`].
    pub(super) fn shown_path_in(&self, parent: Ino, name: &[u8]) -> String {
        let dir = self.shown_path(parent);
        let dir = dir.unwrap_or_else(|| "/(removed)".to_owned());
        format!("{}/{}", dir.trim_end_matches('/'), shown(name))
    }
}

/// Whether a character may end a line or control a terminal.
pub(super) fn is_control(char: char) -> bool {
    // The line and paragraph separators of Unicode also end a line.
    char.is_control() || matches!(char, '\u{2028}' | '\u{2029}')
}

/// Escapes control characters, backslashes and invalid UTF-8 in a name, a path or a link target. Distinct
/// names stay distinct, and no name can imitate another line of a prompt.
pub(super) fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char == '\\' || is_control(char) {
                text.extend(char.escape_default());
            } else {
                text.push(char);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_links_renames_and_exchanges() {
        let mut names = Names::default();
        names.add(2, ROOT, b"dir");
        names.add(3, 2, b"a");
        names.add(3, ROOT, b"b");
        assert_eq!(names.path(3).unwrap(), "/dir/a");
        names.remove(3, 2, b"a");
        assert_eq!(names.path(3).unwrap(), "/b");
        names.add(4, 2, b"x");
        names.rename(3, Some(4), (ROOT, b"b"), (2, b"x"), RenameMode::Exchange);
        assert_eq!((names.path(3).unwrap(), names.path(4).unwrap()), ("/dir/x".into(), "/b".into()));
        names.rename(2, None, (ROOT, b"dir"), (ROOT, b"new"), RenameMode::Replace);
        assert_eq!(names.path(3).unwrap(), "/new/x");
        assert_eq!(names.path(9), None);
        assert_eq!(names.shown_path_in(ROOT, b"z"), "/z");
    }

    #[test]
    fn no_name_passes_for_another_line_or_another_name() {
        let mut names = Names::default();
        names.add(2, ROOT, b"a\nwrite /b at 0: \"x\"");
        assert_eq!(names.shown_path(2).unwrap(), "/a\\nwrite /b at 0: \"x\"");
        let raw = [&b"\n"[..], b"\\n", b"\xff", b"\\xff", "\u{2028}".as_bytes(), b"\r"];
        let all: std::collections::BTreeSet<String> = raw.iter().map(|name| shown(name)).collect();
        assert_eq!(all.len(), raw.len(), "{all:?}");
        assert!(all.iter().all(|name| name.is_ascii() && name.lines().count() == 1));
        assert_eq!(shown("größe 1.txt".as_bytes()), "größe 1.txt");
    }
}
