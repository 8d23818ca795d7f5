//! The paths of notes, and which notes a mount may show.

use std::collections::HashMap;
use std::sync::Arc;

use fuse::store::{Ino, ROOT, Result};
use parking_lot::Mutex;
use sqlite::tables::Db;
use sqlite::tables::nodes::{self, PathToRoot, signed, unsigned};

use crate::passage::shown_name;

/// The most cached paths; when there are more, the cache is cleared.
const KEPT: usize = 65_536;

/// How many directories a directory with requests of its own is nested in, at most. What the index has of each note is
/// as long as the chain of directories above it: without a limit, the index of nested directories is quadratic.
pub(super) const DEPTH_MAX: usize = 256;

/// The longest path of a directory that answers show, in bytes: `PATH_MAX` of Linux.
const SHOWN_MAX: usize = 4096;

/// How the path ends of a directory that is nested too deeply, or whose path is too long.
const CUT: &str = "/…";

/// The path of a directory. Directories nested more deeply than [`DEPTH_MAX`] share that of one above.
#[derive(Debug)]
pub(super) struct DirPath {
    /// Its path in the mount as answers show it, without `/` at the end; empty for the root.
    pub(super) path: String,
    /// Its parents and itself, the root first: as many as have requests of their own.
    pub(super) chain: Vec<Ino>,
    /// Whether the directory itself is not in `chain`.
    pub(super) is_too_deep: bool,
}

impl DirPath {
    /// The path of a directory in the directory at `above`.
    fn below(above: &Arc<Self>, dir: Ino, name: &[u8]) -> Arc<Self> {
        if above.is_too_deep {
            return Arc::clone(above);
        }
        let is_too_deep = above.chain.len() > DEPTH_MAX;
        let mut chain = above.chain.clone();
        if !is_too_deep {
            chain.push(dir);
        }
        let mut path = above.path.clone();
        if !path.ends_with(CUT) {
            let whole = format!("{path}/{}", shown_name(name));
            path = if is_too_deep || whole.len() > SHOWN_MAX { path + CUT } else { whole };
        }
        Arc::new(Self { path, chain, is_too_deep })
    }
}

/// The namespace directories. This mount hides the private directories of other agents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Privacy {
    /// `/memory`.
    pub(super) memory: Ino,
    /// `/memory/private`.
    pub(super) all: Ino,
    /// `/memory/shared`.
    pub(super) shared: Ino,
    /// `/memory/private/<agent>`.
    pub(super) own: Ino,
}

/// The directory of a request, and the part of it that the mount may show.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) dir: Ino,
    pub(super) dir_path: Arc<DirPath>,
    pub(super) privacy: Option<Privacy>,
}

impl Scope {
    /// Whether all notes are in scope.
    pub(super) fn is_whole(&self) -> bool {
        self.dir == ROOT && self.privacy.is_none()
    }

    /// Whether the notes in a directory are in scope.
    pub(super) fn covers(&self, dir_path: &DirPath) -> bool {
        let hidden = self
            .privacy
            .is_some_and(|privacy| dir_path.chain.contains(&privacy.all) && !dir_path.chain.contains(&privacy.own));
        !hidden && (self.dir == ROOT || dir_path.chain.contains(&self.dir))
    }

    /// A path as the scope's answers show it: relative to the directory of the request (`a/b`), unchanged if that is the
    /// root (`/a/b`).
    pub(super) fn relative<'a>(&self, path: &'a str) -> &'a str {
        let below = path.strip_prefix(&*self.dir_path.path);
        match below.and_then(|rest| rest.strip_prefix('/')) {
            Some(rest) if self.dir != ROOT => rest,
            _ => path,
        }
    }

    /// An FTS5 expression for the notes in scope that match `words`, which must be a complete expression.
    pub(super) fn matching(&self, words: &str) -> String {
        self.matching_in("name tags text", words)
    }

    /// As [`Scope::matching`], for stems of words.
    pub(super) fn matching_stems(&self, stems: &str) -> String {
        self.matching_in("name tags text stems", stems)
    }

    fn matching_in(&self, columns: &str, words: &str) -> String {
        let mut expression = format!("{{{columns}}} : ({words})");
        if self.dir != ROOT {
            expression = format!("({expression}) AND within : d{}", self.dir);
        }
        self.visible(expression)
    }

    /// An FTS5 expression for all notes in scope.
    pub(super) fn all(&self) -> String {
        self.visible(format!("within : d{}", self.dir))
    }

    fn visible(&self, expression: String) -> String {
        match self.privacy {
            Some(privacy) if !self.dir_path.chain.contains(&privacy.own) => {
                format!("({expression}) NOT (within : d{} NOT within : d{})", privacy.all, privacy.own)
            }
            _ => expression,
        }
    }
}

/// The paths of directories, cached until one of them moves. With a directory, all directories above it are cached.
#[derive(Debug, Default)]
pub(super) struct PathCache {
    kept: Mutex<HashMap<Ino, Arc<DirPath>>>,
}

impl PathCache {
    /// Clears the cache, after a directory has moved or gone.
    pub(super) fn clear(&self) {
        self.kept.lock().clear();
    }

    /// Clears the cache if it has the path of a directory, which may have moved. Otherwise it has no path below it.
    pub(super) fn forget(&self, dir: Ino) {
        let mut kept = self.kept.lock();
        if kept.contains_key(&dir) {
            kept.clear();
        }
    }

    /// The path of a directory.
    pub(super) fn of(&self, db: &Db, dir: Ino) -> Result<Arc<DirPath>> {
        let mut below = Vec::new();
        let (mut top, mut at) = (dir, PathToRoot::default());
        let mut path = loop {
            if let Some(kept) = self.kept.lock().get(&top) {
                break Arc::clone(kept);
            }
            if top == ROOT {
                break Arc::new(DirPath { path: String::new(), chain: vec![ROOT], is_too_deep: false });
            }
            below.push(top);
            top = nodes::parent(db, top)?;
            at.step(top)?;
        };
        let mut found = Vec::new();
        if top == ROOT {
            found.push((ROOT, Arc::clone(&path)));
        }
        for dir in below.into_iter().rev() {
            if !path.is_too_deep {
                let name = name_of(db, dir)?.map(|(_, name)| name).unwrap_or_default();
                path = DirPath::below(&path, dir, &name);
            }
            found.push((dir, Arc::clone(&path)));
        }
        let mut kept = self.kept.lock();
        if kept.len() + found.len() > KEPT {
            kept.clear();
        }
        // Another thread may have cleared the cache meanwhile.
        let has_top = top == ROOT || kept.contains_key(&top);
        if has_top && found.len() <= KEPT {
            kept.extend(found);
        }
        Ok(path)
    }
}

/// The parent of the private directories, also for a mount without an agent.
const PRIVATE: &str = "/memory/private";

/// The directory and name by which a file is indexed: its first name outside the private directories, else
/// its first name. `None` if it has no name.
pub(super) fn found_as(db: &Db, paths: &PathCache, ino: Ino) -> Result<Option<(Ino, Vec<u8>)>> {
    let mut names: Vec<(Ino, Vec<u8>)> = {
        let mut statement =
            db.statement("SELECT parent, name FROM memory_name WHERE ino = ?1 ORDER BY parent, name")?;
        let names = statement.query_map([signed(ino)], |row| Ok((unsigned(row.get(0)?), row.get(1)?)))?;
        names.collect::<rusqlite::Result<_>>()?
    };
    if names.len() > 1 {
        for (at, (dir, _)) in names.iter().enumerate() {
            let dir_path = paths.of(db, *dir)?;
            if dir_path.path.strip_prefix(PRIVATE).is_none_or(|rest| !rest.is_empty() && !rest.starts_with('/')) {
                return Ok(Some(names.swap_remove(at)));
            }
        }
    }
    Ok(names.into_iter().next())
}

/// A name of an inode and its directory; `None` if it has no name.
pub(super) fn name_of(db: &Db, ino: Ino) -> Result<Option<(Ino, Vec<u8>)>> {
    db.row("SELECT parent, name FROM memory_name WHERE ino = ?1 LIMIT 1", [signed(ino)], |row| {
        Ok((unsigned(row.get(0)?), row.get(1)?))
    })
}
