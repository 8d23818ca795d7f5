//! Bringing everything up again that is gone from a bucket which was emptied, and not through a mount.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::Ordering;

use super::forget::Forget;
use super::open::probe;
use super::remote::RemoteError;
use super::{Inner, cache, stub};
use crate::sqlite::names;
use crate::store::{Errno, Ino, StoreError};

/// How many lost files are named; the log has all of them.
const NAMED: usize = 10;

/// What goes up again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Refilled {
    was_emptied: bool,
    files: usize,
    /// Files whose content was nowhere but in the bucket.
    lost: Vec<String>,
}

impl fmt::Display for Refilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.was_emptied {
            return write!(f, "the bucket was not emptied: there is nothing to refill");
        }
        write!(
            f,
            "the bucket was emptied: {} files go up again",
            self.files
        )?;
        if !self.lost.is_empty() {
            let some = &self.lost[..self.lost.len().min(NAMED)];
            let more = if self.lost.len() > NAMED { ", …" } else { "" };
            let (count, some) = (self.lost.len(), some.join(", "));
            write!(
                f,
                "; {count} whose content was only there are lost: {some}{more}"
            )?;
        }
        Ok(())
    }
}

impl Inner {
    /// Takes what is missing in an emptied bucket for new, and marks the bucket as one in use.
    pub(super) async fn refill(&self) -> Result<Refilled, StoreError> {
        if !self.is_marked || self.has_mark().await? {
            return Ok(Refilled::default());
        }
        let files = self.layout.files();
        let listed = self.remote.list(files).await?.into_iter();
        let listed: HashSet<String> = listed
            .filter_map(|object| object.key.strip_prefix(files).map(str::to_owned))
            .collect();
        let known = self.cache.transaction(cache::etags)?;
        let missing = known.into_keys().filter(|key| !listed.contains(key));
        let gone = self.gone(missing.collect()).await?;
        let mut refilled = Refilled {
            was_emptied: true,
            ..Refilled::default()
        };
        let mut dropped: Vec<Ino> = Vec::new();
        self.cache.transaction(|db| {
            cache::applying(db, |db| {
                for key in &gone {
                    let Some(object) = cache::object_of_key(db, key)? else {
                        continue;
                    };
                    cache::remove_object(db, object.parent, &object.name)?;
                    let local = names::find(db, object.parent, &object.name)?;
                    if local.is_none_or(|local| local.ino != object.ino) {
                        continue;
                    }
                    if stub::find(db, object.ino)?.is_some() {
                        self.drop_name(db, object.parent, &object.name, &mut Forget::default())?;
                        dropped.push(object.ino);
                        refilled.lost.push(key.clone());
                    } else {
                        cache::journal(db, object.parent, &object.name, object.ino)?;
                        refilled.files += 1;
                    }
                }
                // The manifest is gone with the rest.
                for (dir, prefix, _) in cache::entries(db)? {
                    cache::set_directory(db, dir, &prefix, None)?;
                    cache::journal_inode(db, dir)?;
                }
                Ok(())
            })
        })?;
        for ino in dropped {
            self.stubs_mut().remove(&ino);
        }
        for key in &refilled.lost {
            tracing::error!(key, "its content was in the bucket only: it is lost");
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
        // Last: who is interrupted before it finds the bucket emptied still, and begins anew.
        let failed = |reason: String| StoreError::storage(Errno::IO, reason);
        match probe(&self.remote, &self.layout, &self.config).await {
            Ok((_, true)) => Ok(refilled),
            Ok((_, false)) => Err(failed(format!(
                "{} cannot be written",
                self.layout.server()
            ))),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Whether what the first mount of a memory notes in its bucket is there.
    pub(super) async fn has_mark(&self) -> Result<bool, StoreError> {
        match self.remote.head(&self.layout.server()).await {
            Ok(_) => Ok(true),
            Err(RemoteError::NotFound(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
