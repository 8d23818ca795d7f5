//! Our own objects that are no files: JSON with a checksum, and the manifest that all writers write.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use bytes::Bytes;
use object_store::{Attribute, Attributes};
use serde::{Deserialize, Serialize};

use super::Inner;
use super::cache::{self, Entry, Manifest};
use super::object;
use super::remote::{Expect, Fetched, RemoteError};
use super::upload::other;
use crate::sqlite::db::Db;
use crate::sqlite::nodes;
use crate::store::{Errno, Ino, StoreError};

/// How often the manifest is tried again when others write it, too.
const MANIFEST_ATTEMPTS: u32 = 8;

/// What an object of ours that is no file says of its bytes; those of earlier versions say nothing.
const BODY_SHA256: Attribute = Attribute::Metadata(Cow::Borrowed("ctx-body-sha256"));

/// The manifests that this mount has met, by their entity tags.
#[derive(Debug, Default)]
pub(super) struct KnownManifest {
    /// Whose directories are all where it says: it need not be asked for again.
    placed: Option<String>,
    /// The last one that could not be followed in all, which the log has been told of.
    tried: Option<String>,
}

impl Inner {
    fn known_manifest(&self) -> MutexGuard<'_, KnownManifest> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manifest that need not be asked for again.
    pub(super) fn manifest_etag(&self) -> Option<String> {
        self.known_manifest().placed.clone()
    }

    /// A manifest was followed, but for directories whose names are taken here: those are tried again at the next look.
    pub(super) fn note_manifest(&self, etag: String, unplaced: &[String]) {
        let mut known = self.known_manifest();
        if unplaced.is_empty() {
            known.placed = Some(etag);
            return;
        }
        known.placed = None;
        if known.tried.as_ref() != Some(&etag) {
            tracing::warn!(
                ?unplaced,
                "directories of others are not where they have them, as their names are taken here: this is tried again at each look"
            );
            known.tried = Some(etag);
        }
    }

    /// Writes what the manifest has to say, into whatever others have written meanwhile.
    pub(super) async fn write_manifest(
        &self,
        changes: &BTreeMap<String, Option<Entry>>,
        touched: &BTreeMap<String, u64>,
    ) -> Result<(), StoreError> {
        for _ in 0..MANIFEST_ATTEMPTS {
            let (mut manifest, etag) = self.read_manifest().await?;
            for (prefix, entry) in changes {
                match entry {
                    Some(entry) => manifest.directories.insert(prefix.clone(), entry.clone()),
                    None => manifest.directories.remove(prefix),
                };
            }
            for (key, version) in touched {
                manifest.touched.insert(key.clone(), *version);
            }
            // Whatever becomes of conflicts: what two writers say is of two directories.
            let expect = etag.map_or(Expect::Absent, Expect::Etag);
            match self
                .put_json(&self.layout.manifest(), &manifest, &expect)
                .await
            {
                Ok(_) => {
                    return self.cache.transaction(|db| {
                        for (prefix, entry) in changes {
                            match cache::directory_of_prefix(db, prefix)? {
                                Some(dir) if entry.is_some() || is_living(db, dir)? => {
                                    cache::set_directory(db, dir, prefix, entry.as_ref())?;
                                }
                                _ => cache::remove_directory(db, prefix)?,
                            }
                        }
                        cache::clear_touched(db, touched)
                    });
                }
                Err(RemoteError::Changed(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::storage(
            Errno::AGAIN,
            "others keep writing the manifest",
        ))
    }

    pub(super) async fn read_manifest(&self) -> Result<(Manifest, Option<String>), RemoteError> {
        match self.remote.get(&self.layout.manifest()).await {
            Ok(fetched) => Ok((self.parse_json(&fetched)?, Some(fetched.etag))),
            Err(RemoteError::NotFound(_)) => Ok((Manifest::default(), None)),
            Err(error) => Err(error),
        }
    }

    /// Puts something of ours that is no file.
    pub(super) async fn put_json<T: Serialize>(
        &self,
        key: &str,
        value: &T,
        expect: &Expect,
    ) -> Result<String, RemoteError> {
        let mut body = serde_json::to_vec(value).map_err(other)?;
        if let Some(seal) = &self.seal {
            body = seal.seal(&body).map_err(other)?;
        }
        let mut attributes = Attributes::new();
        attributes.insert(BODY_SHA256, object::checksum(&body).into());
        self.remote
            .put(key, Bytes::from(body), attributes, expect)
            .await
    }

    pub(super) fn parse_json<T: for<'a> Deserialize<'a>>(
        &self,
        fetched: &Fetched,
    ) -> Result<T, RemoteError> {
        let said = fetched.attributes.get(&BODY_SHA256);
        if said.is_some_and(|said| said.as_ref() != object::checksum(&fetched.body)) {
            let message = "an object of ours came with bytes that are not what its checksum says";
            return Err(RemoteError::Damaged(message.to_owned()));
        }
        let plain = object::open(&fetched.body, self.seal.as_ref()).map_err(other)?;
        serde_json::from_slice(&plain).map_err(other)
    }
}

fn is_living(db: &Db, dir: Ino) -> Result<bool, StoreError> {
    let attr = nodes::find(db, dir)?;
    Ok(attr.is_some_and(|attr| attr.nlink > 0))
}
