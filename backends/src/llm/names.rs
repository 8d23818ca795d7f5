//! The paths of inodes: stores know names by directory, prompts want paths.

use std::collections::HashMap;

use crate::store::{Ino, ROOT, RenameMode};

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

    /// Moves a name; `target` is what the new name named before.
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

    /// A path of an inode, from `/`; `None` if it has no name.
    pub(super) fn path(&self, ino: Ino) -> Option<String> {
        let mut parts = Vec::new();
        let mut at = ino;
        while at != ROOT {
            let (parent, name) = self.0.get(&at)?.first()?;
            parts.push(String::from_utf8_lossy(name).into_owned());
            at = *parent;
        }
        parts.reverse();
        Some(format!("/{}", parts.join("/")))
    }

    /// The path that `name` in `parent` has.
    pub(super) fn path_in(&self, parent: Ino, name: &[u8]) -> String {
        let dir = self.path(parent).unwrap_or_else(|| "/(removed)".to_owned());
        let name = String::from_utf8_lossy(name);
        format!("{}/{name}", dir.trim_end_matches('/'))
    }
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
        assert_eq!(
            (names.path(3).unwrap(), names.path(4).unwrap()),
            ("/dir/x".into(), "/b".into())
        );
        names.rename(2, None, (ROOT, b"dir"), (ROOT, b"new"), RenameMode::Replace);
        assert_eq!(names.path(3).unwrap(), "/new/x");
        assert_eq!(names.path(9), None);
        assert_eq!(names.path_in(ROOT, b"z"), "/z");
    }
}
