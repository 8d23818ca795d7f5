//! What of a batch is in the bucket, what is not, and why.

use std::collections::BTreeSet;

use super::cache;
use super::plan::{Plan, Put};
use crate::sqlite::db::Db;
use crate::sqlite::{names, nodes};
use crate::store::{Ino, Kind, ROOT, Result, StoreError};

/// A name in a directory.
pub(super) type Name = (Ino, Vec<u8>);

/// What of a batch needs no more work: it is in the bucket, and the journal says so.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) names: BTreeSet<Name>,
    pub(super) inodes: BTreeSet<Ino>,
    /// Files that changed while they were read: they are not there.
    pub(super) later: BTreeSet<Ino>,
    /// Files that cannot go up, for a reason of their own: what follows of them waits.
    pub(super) failed: BTreeSet<Ino>,
    /// Why the first of these cannot.
    pub(super) reason: Option<StoreError>,
    /// The manifest has to tell others of an object whose entity tag does not.
    pub(super) must_tell: bool,
    /// Somebody else had written one of the objects: our version of it is journalled anew.
    pub(super) is_contested: bool,
}

impl Noted {
    /// Whether the bucket has all that was to be put, and nobody needs to be told of it otherwise.
    pub(super) fn is_all(&self) -> bool {
        !self.must_tell && !self.is_cut_short() && self.failed.is_empty()
    }

    /// Whether what follows in the batch has to wait for another.
    pub(super) fn is_cut_short(&self) -> bool {
        self.is_contested || !self.later.is_empty()
    }

    pub(super) fn fail(&mut self, ino: Ino, reason: StoreError) {
        self.failed.insert(ino);
        self.reason.get_or_insert(reason);
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.names.append(&mut other.names);
        self.inodes.append(&mut other.inodes);
        self.later.append(&mut other.later);
        self.failed.append(&mut other.failed);
        self.reason = self.reason.take().or(other.reason);
        self.must_tell |= other.must_tell;
        self.is_contested |= other.is_contested;
    }

    /// Leaves out of a plan what has failed before, and rests.
    pub(super) fn let_rest(&mut self, plan: &mut Plan, resting: &Left) {
        let rests = |put: &mut Put| {
            // Another file that has the name since may well go up.
            resting.concerns(put.attr.ino) && resting.holds(put.parent, &put.name)
        };
        for puts in [&mut plan.added, &mut plan.changed] {
            let left: Vec<Put> = puts.extract_if(.., rests).collect();
            for put in left {
                self.fail(put.attr.ino, resting.again());
            }
        }
    }
}

/// What could not go up for reasons of its own.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// The names whose objects are not as they are to be.
    pub(super) names: BTreeSet<Name>,
    /// The files of which something has to be put still.
    pub(super) files: BTreeSet<Ino>,
}

/// Why not all of a batch is in the bucket.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) reason: StoreError,
    /// What is missing, if the batch went to its end: all else of it is there.
    pub(super) own: Option<Own>,
}

impl From<StoreError> for Left {
    fn from(reason: StoreError) -> Self {
        Self { reason, own: None }
    }
}

impl Left {
    /// Whether a file, or something in a directory, may not be in the bucket.
    pub(super) fn concerns(&self, ino: Ino) -> bool {
        self.own.as_ref().is_none_or(|own| {
            own.files.contains(&ino) || own.names.iter().any(|(parent, _)| *parent == ino)
        })
    }

    /// Whether a name is one of those that could not go up.
    pub(super) fn holds(&self, parent: Ino, name: &[u8]) -> bool {
        let own = self.own.as_ref();
        own.is_some_and(|own| own.names.contains(&(parent, name.to_vec())))
    }

    /// The reason, told again.
    pub(super) fn again(&self) -> StoreError {
        let told = self.reason.reason.as_deref().unwrap_or_default();
        StoreError::storage(self.reason.errno, told)
    }
}

/// Whether the journal holds anything that a file, or a directory with the names in it, needs to be found as it is: of
/// its own, or of the directories above it.
pub(super) fn is_journalled(db: &Db, ino: Ino) -> Result<bool> {
    let objects = cache::objects_of(db, ino)?;
    let mut above: Vec<Ino> = objects.iter().map(|object| object.parent).collect();
    if nodes::get(db, ino)?.kind == Kind::Directory {
        above.push(ino);
    }
    let mut all = BTreeSet::from([ino]);
    while let Some(dir) = above.pop() {
        let is_new = all.insert(dir) || dir == ino;
        if is_new && dir != ROOT {
            above.push(nodes::parent(db, dir)?);
        }
    }
    for ino in &all {
        if cache::is_dirty_inode(db, *ino)? {
            return Ok(true);
        }
    }
    let touched = cache::touched(db)?;
    if objects
        .iter()
        .any(|object| touched.contains_key(&object.key))
    {
        return Ok(true);
    }
    for (parent, name) in cache::dirty_names(db, i64::MAX as u64)? {
        let there = names::find(db, parent, &name)?;
        if parent == ino || there.is_some_and(|there| all.contains(&there.ino)) {
            return Ok(true);
        }
    }
    Ok(false)
}
