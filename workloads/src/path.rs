//! Validated paths inside a workspace.

use std::borrow::Borrow;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The maximum length of a path in bytes, below `PATH_MAX` to leave room for the root.
const LONGEST: usize = 3072;

/// A relative UTF-8 path inside the workspace; `.` is the workspace itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkspacePath(String);

/// Why a path is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("path {path:?} {problem}; a path in a workload is relative to its workspace and stays inside it")]
pub struct PathError {
    path: String,
    problem: &'static str,
}

impl WorkspacePath {
    /// The workspace itself.
    pub fn root() -> Self {
        Self(".".to_owned())
    }

    /// Checks a path.
    ///
    /// # Errors
    /// If it is empty, absolute, too long, or has an empty, `.` or `..` component or a NUL.
    pub fn new(path: impl Into<String>) -> Result<Self, PathError> {
        let path = path.into();
        let problem = if path == "." {
            return Ok(Self::root());
        } else if path.is_empty() {
            "is empty"
        } else if path.len() > LONGEST {
            "is too long"
        } else if path.starts_with('/') {
            "is absolute"
        } else if path.contains('\0') {
            "has a NUL byte"
        } else if path.split('/').any(|part| part == "..") {
            "leaves the workspace"
        } else if path.split('/').any(|part| part.is_empty() || part == ".") {
            "is not normal: it has an empty or `.` component"
        } else {
            return Ok(Self(path));
        };
        Err(PathError { path, problem })
    }

    /// Whether this is the workspace itself.
    pub fn is_root(&self) -> bool {
        self.0 == "."
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path below `root`.
    pub fn below(&self, root: &Path) -> PathBuf {
        if self.is_root() { root.to_owned() } else { root.join(&self.0) }
    }

    /// The last component; `.` for the workspace itself.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// The directory that contains this path; `None` for the workspace itself.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        Some(match self.0.rsplit_once('/') {
            Some((parent, _)) => Self(parent.to_owned()),
            None => Self::root(),
        })
    }

    /// All ancestor directories from the top down, without the workspace itself.
    pub fn ancestors(&self) -> Vec<Self> {
        let ends = self.0.match_indices('/').map(|(at, _)| at);
        ends.map(|end| Self(self.0[..end].to_owned())).collect()
    }

    /// The path of `name` in this directory.
    ///
    /// # Errors
    /// As [`WorkspacePath::new`].
    pub fn join(&self, name: &str) -> Result<Self, PathError> {
        if self.is_root() { Self::new(name) } else { Self::new(format!("{}/{name}", self.0)) }
    }

    /// Whether this is `dir` or below it.
    pub fn is_within(&self, dir: &Self) -> bool {
        dir.is_root() || self.0.strip_prefix(&dir.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl TryFrom<String> for WorkspacePath {
    type Error = PathError;

    fn try_from(path: String) -> Result<Self, PathError> {
        Self::new(path)
    }
}

impl From<WorkspacePath> for String {
    fn from(path: WorkspacePath) -> Self {
        path.0
    }
}

impl Borrow<str> for WorkspacePath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_outside_the_workspace_is_refused() {
        for bad in ["", "/etc/passwd", "..", "a/../../b", "a//b", "./a", "a/.", "a\0b", "a/"] {
            assert!(WorkspacePath::new(bad).is_err(), "{bad:?}");
        }
        for good in [".", "a", "a/b.md", "...", "a/..b", "mail:2,S", "näme"] {
            assert_eq!(WorkspacePath::new(good).unwrap().as_str(), good);
        }
        let error = WorkspacePath::new("../x").unwrap_err().to_string();
        assert!(error.contains("\"../x\" leaves the workspace"), "{error}");
    }

    #[test]
    fn a_path_is_within_its_parent_and_ancestors() {
        let path = WorkspacePath::new("a/b/c").unwrap();
        assert_eq!(path.name(), "c");
        assert_eq!(path.parent().unwrap().as_str(), "a/b");
        let above: Vec<_> = path.ancestors().into_iter().map(String::from).collect();
        assert_eq!(above, ["a", "a/b"]);
        assert!(path.is_within(&path.parent().unwrap()));
        assert!(!path.is_within(&WorkspacePath::new("a/b/cd").unwrap()));
        assert!(path.is_within(&WorkspacePath::root()));
        assert_eq!(WorkspacePath::root().parent(), None);
    }

    proptest! {
        #[test]
        fn an_accepted_path_resolves_below_its_root(path in "[a.:/]{0,12}") {
            if let Ok(path) = WorkspacePath::new(path) {
                let below = path.below(Path::new("/root"));
                prop_assert!(below.starts_with("/root"));
                prop_assert!(below.components().all(|part| part.as_os_str() != ".."));
            }
        }
    }
}
