//! Where notes are, and who may see them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::passage::shown_name;
use crate::sqlite::db::Db;
use crate::sqlite::nodes::{self, signed, unsigned};
use crate::store::{Ino, ROOT, Result};

/// Directories whose paths are kept; all are let go when there are more.
const KEPT: usize = 65_536;

/// A directory.
#[derive(Debug)]
pub(super) struct Place {
    /// Its path in the mount as it is shown, `/` at the end left out: empty for the root.
    pub(super) path: String,
    /// Itself and those above it, the root first.
    pub(super) chain: Vec<Ino>,
}

/// Other agents' private directories are not for this mount.
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

/// The directory that requests are about, and what of it may be seen.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) dir: Ino,
    pub(super) place: Arc<Place>,
    pub(super) privacy: Option<Privacy>,
}

impl Scope {
    /// Whether what is in a directory is asked about.
    pub(super) fn covers(&self, place: &Place) -> bool {
        let hidden = self.privacy.is_some_and(|privacy| {
            place.chain.contains(&privacy.all) && !place.chain.contains(&privacy.own)
        });
        !hidden && (self.dir == ROOT || place.chain.contains(&self.dir))
    }

    /// An FTS5 expression for the notes that match `words`, which must be a whole expression of its own.
    pub(super) fn matching(&self, words: &str) -> String {
        let mut expression = format!("{{name tags text}} : ({words})");
        if self.dir != ROOT {
            expression = format!("({expression}) AND within : d{}", self.dir);
        }
        self.visible(expression)
    }

    /// An FTS5 expression for all notes.
    pub(super) fn all(&self) -> String {
        self.visible(format!("within : d{}", self.dir))
    }

    fn visible(&self, expression: String) -> String {
        match self.privacy {
            Some(privacy) if !self.place.chain.contains(&privacy.own) => format!(
                "({expression}) NOT (within : d{} NOT within : d{})",
                privacy.all, privacy.own
            ),
            _ => expression,
        }
    }
}

/// The paths of directories, kept until one of them moves.
#[derive(Debug, Default)]
pub(super) struct Places {
    kept: Mutex<HashMap<Ino, Arc<Place>>>,
}

impl Places {
    fn kept(&self) -> MutexGuard<'_, HashMap<Ino, Arc<Place>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A directory has moved or gone.
    pub(super) fn let_go(&self) {
        self.kept().clear();
    }

    /// Where a directory is.
    pub(super) fn of(&self, db: &Db, dir: Ino) -> Result<Arc<Place>> {
        if let Some(place) = self.kept().get(&dir) {
            return Ok(Arc::clone(place));
        }
        let place = if dir == ROOT {
            Place {
                path: String::new(),
                chain: vec![ROOT],
            }
        } else {
            let above = self.of(db, nodes::parent(db, dir)?)?;
            let name = name_of(db, dir)?.map(|(_, name)| name).unwrap_or_default();
            let mut chain = above.chain.clone();
            chain.push(dir);
            Place {
                path: format!("{}/{}", above.path, shown_name(&name)),
                chain,
            }
        };
        let place = Arc::new(place);
        let mut kept = self.kept();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(dir, Arc::clone(&place));
        Ok(place)
    }
}

/// Where `/memory/private` is, however the database is mounted.
const PRIVATE: &str = "/memory/private";

/// The name by which a file is found, of those that it has, and the directory that is in: the first that is not
/// in somebody's private directory, if there is one. `None` if it has no name.
pub(super) fn found_as(db: &Db, places: &Places, ino: Ino) -> Result<Option<(Ino, Vec<u8>)>> {
    let mut names: Vec<(Ino, Vec<u8>)> = {
        let mut statement = db.statement(
            "SELECT parent, name FROM memory_name WHERE ino = ?1 ORDER BY parent, name",
        )?;
        let names = statement.query_map([signed(ino)], |row| {
            Ok((unsigned(row.get(0)?), row.get(1)?))
        })?;
        names.collect::<rusqlite::Result<_>>()?
    };
    if names.len() > 1 {
        for (at, (dir, _)) in names.iter().enumerate() {
            let place = places.of(db, *dir)?;
            if place
                .path
                .strip_prefix(PRIVATE)
                .is_none_or(|rest| !rest.is_empty() && !rest.starts_with('/'))
            {
                return Ok(Some(names.swap_remove(at)));
            }
        }
    }
    Ok(names.into_iter().next())
}

/// A name of an inode and the directory it is in; `None` if it has none.
pub(super) fn name_of(db: &Db, ino: Ino) -> Result<Option<(Ino, Vec<u8>)>> {
    db.row(
        "SELECT parent, name FROM memory_name WHERE ino = ?1 LIMIT 1",
        [signed(ino)],
        |row| Ok((unsigned(row.get(0)?), row.get(1)?)),
    )
}
