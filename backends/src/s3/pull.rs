//! Bringing in what others have changed: a listing, held against what this mount knows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;

use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use super::apply::{Kept, News};
use super::cache::{self, Manifest};
use super::fetch::PART;
use super::forget::Forget;
use super::layout::Layout;
use super::object::{self, Meta};
use super::open::check_seal;
use super::remote::{Expect, Fetched, Listed, Remote, RemoteError, S3OpenError};
use super::upload::Parts;
use super::{Inner, doubt, known, layout, mark};
use crate::store::{Errno, Kind, Store, StoreError};

/// Requests under way at once.
const PARALLEL: usize = 32;

/// From so many unknown objects on, the writers' indexes are asked before the objects themselves.
const ASK_INDEXES_FROM: usize = 4;

/// What a writer says of the objects it has written, so that listing them needs no request for each. It is a
/// hint: what is not in it, or has another entity tag, is asked for.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Index {
    pub(super) writer: String,
    pub(super) objects: BTreeMap<String, (String, Meta)>,
}

/// One look at a bucket.
pub(super) struct Look {
    listed: Result<Vec<Listed>, RemoteError>,
    /// `None` if it is the one that is known.
    manifest: Result<Option<Fetched>, RemoteError>,
    /// Where they were asked for.
    indexes: Option<Result<Vec<Fetched>, RemoteError>>,
}

/// Looks at a bucket: everything at once, the writers' indexes too for a mount that knows nothing yet.
pub(super) async fn look(
    remote: &Remote,
    layout: &Layout,
    known_manifest: Option<&str>,
    with_indexes: bool,
) -> Look {
    let manifest = layout.manifest();
    let indexes = async {
        match with_indexes {
            true => Some(indexes_of(remote, layout).await),
            false => None,
        }
    };
    let (listed, manifest, indexes) = tokio::join!(
        remote.list(layout.files()),
        remote.get_unless(&manifest, known_manifest),
        indexes
    );
    Look {
        listed,
        manifest,
        indexes,
    }
}

async fn indexes_of(remote: &Remote, layout: &Layout) -> Result<Vec<Fetched>, RemoteError> {
    let listed = remote.list(&layout.indexes()).await?;
    let fetched = stream::iter(listed)
        .map(|index| async move { remote.get(&index.key).await })
        .buffer_unordered(PARALLEL);
    fetched.try_collect().await
}

impl Inner {
    /// Looks at the bucket once, and takes in what changed.
    pub(super) async fn pull(&self) -> Result<(), StoreError> {
        let is_offline = self.is_offline.load(Ordering::Acquire);
        if is_offline {
            self.meet().await?;
        }
        let known = self.manifest_etag();
        let look = look(&self.remote, &self.layout, known.as_deref(), false);
        self.take_in(look.await).await?;
        if is_offline {
            self.is_offline.store(false, Ordering::Release);
            let endpoint = &self.config.endpoint;
            tracing::warn!("{endpoint} answers: this mount, begun without it, is like any other");
        }
        Ok(())
    }

    /// Finds out what a mount otherwise finds out before it begins.
    async fn meet(&self) -> Result<(), StoreError> {
        let failed = |error: S3OpenError| {
            let errno = match error {
                S3OpenError::Credentials { .. } | S3OpenError::Key { .. } => Errno::ACCESS,
                _ => Errno::IO,
            };
            StoreError::storage(errno, format!("S3: {error}"))
        };
        self.remote.check(&self.config).await.map_err(failed)?;
        let known = self.cache.transaction(known::settings)?.seal_check;
        let seal = self.seal.as_ref();
        let checked = check_seal(
            &self.remote,
            &self.layout,
            seal,
            &self.config,
            known.as_deref(),
        );
        checked.await.map(|_| ()).map_err(failed)
    }

    /// Takes in what changed.
    pub(super) async fn take_in(&self, look: Look) -> Result<(), StoreError> {
        self.tally.polls.fetch_add(1, Ordering::Relaxed);
        let files = self.layout.files();
        let Look {
            listed,
            manifest,
            indexes,
        } = look;
        let listed = listed?;
        let (known, said) = self.cache.transaction(|db| {
            doubt::expire(db)?;
            Ok((cache::etags(db)?, cache::entries(db)?))
        })?;
        let manifest: Option<(Manifest, String)> = match manifest {
            Ok(Some(fetched)) => Some((self.parse_json(&fetched)?, fetched.etag)),
            Ok(None) | Err(RemoteError::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let touched = manifest.as_ref().map(|(manifest, _)| &manifest.touched);
        let mut unknown = Vec::new();
        let mut seen = HashSet::new();
        for object in listed {
            let Some(key) = object.key.strip_prefix(files) else {
                continue;
            };
            let key = key.to_owned();
            let told = touched.and_then(|touched| touched.get(&key)).copied();
            let told = told.unwrap_or(0);
            // A hint is as old as its index: it must not take back what is known since.
            let version = told.max(known.get(&key).map_or(0, |known| known.1));
            let is_news = known
                .get(&key)
                .is_none_or(|known| known.0 != object.etag || known.1 < told);
            // A key that no path can have cannot be asked for: `ctxbench s3 check` lists it.
            let is_path = Path::parse(&object.key).is_ok();
            seen.insert(key.clone());
            if is_news && is_path {
                unknown.push((key, object, version));
            }
        }
        let replaced = unknown.iter().filter(|(key, ..)| known.contains_key(key));
        let replaced = replaced.count();
        let known_objects = known.len();
        let missing = known.into_keys().filter(|key| !seen.contains(key));
        let gone = self.gone(missing.collect()).await?;
        let is_all_gone = !gone.is_empty() && gone.len() == known_objects;
        let takes_directories = manifest.as_ref().is_some_and(|(manifest, _)| {
            let mut said = said.iter();
            said.any(|(_, prefix, _)| !manifest.directories.contains_key(prefix))
        });
        // Whatever takes something away here.
        if !gone.is_empty()
            || replaced > 0
            || takes_directories
            || self.is_emptied.load(Ordering::Acquire)
        {
            self.must_not_be_emptied(gone.len() + replaced, is_all_gone)
                .await?;
        }
        self.is_emptied.store(false, Ordering::Release);
        if unknown.is_empty() && gone.is_empty() && manifest.is_none() {
            return Ok(());
        }
        let news = self.ask(unknown, indexes).await?;
        self.tally
            .pulled
            .fetch_add((news.len() + gone.len()) as u64, Ordering::Relaxed);
        let mut forget = Forget::default();
        let mut unplaced = Vec::new();
        self.with_stubs(|db, stubs| {
            cache::applying(db, |db| {
                // What is gone makes room for what was moved, and that for what is new.
                let mut left = Vec::new();
                for key in &gone {
                    left.extend(self.apply_gone(db, key, &mut forget, stubs)?);
                }
                if let Some((manifest, _)) = &manifest {
                    let said = self.apply_manifest(db, manifest, &mut forget)?;
                    left.extend(said.plain);
                    unplaced = said.unplaced;
                }
                for object in &news {
                    stubs.extend(self.apply(db, object, &mut forget)?);
                }
                for dir in left {
                    self.prune(db, dir, &mut forget)?;
                }
                Ok(())
            })
        })?;
        if let Some((_, etag)) = manifest {
            self.note_manifest(etag, &unplaced);
        }
        self.kernel.tell(forget);
        Ok(())
    }

    /// Which of the objects that a listing does not show are gone: a listing may lag behind.
    pub(super) async fn gone(&self, missing: Vec<String>) -> Result<Vec<String>, StoreError> {
        let asked = stream::iter(missing).map(|key| async move {
            match self.remote.head(&self.key(&key)).await {
                Ok(_) => Ok(None),
                Err(RemoteError::NotFound(_)) => Ok(Some(key)),
                Err(error) => Err(StoreError::from(error)),
            }
        });
        let asked: Vec<Option<String>> = asked.buffer_unordered(PARALLEL).try_collect().await?;
        Ok(asked.into_iter().flatten().collect())
    }

    /// Refuses to take a bucket that was emptied for what others have done with their mounts: those leave its mark alone.
    /// What is here may be the only copy there is.
    async fn must_not_be_emptied(
        &self,
        at_stake: usize,
        is_all_gone: bool,
    ) -> Result<(), StoreError> {
        let found = match self.cache.transaction(known::settings)?.mark {
            Some(known) => self.find_mark(&known).await?,
            // It could not be written so far. Where nothing at all is left, not even what mounts never remove, it was
            // no mount either.
            None if is_all_gone && self.has_lost_server().await? => mark::Found::Gone,
            None => return Ok(()),
        };
        if found == mark::Found::Same {
            return Ok(());
        }
        self.is_emptied.store(true, Ordering::Release);
        let (mark, bucket) = (self.layout.mark(), &self.config.bucket);
        let (what, fix) = match found {
            mark::Found::Same | mark::Found::Gone => (
                format!("was emptied, and not through a mount ({mark} is gone, too)"),
                "to bring everything up again that is here",
            ),
            mark::Found::Other(_) => (
                format!("was emptied, and filled again by another mount ({mark} is another)"),
                "to bring up what is missing there, and to keep both where it has something else",
            ),
        };
        Err(StoreError::storage(
            Errno::IO,
            format!(
                "S3: bucket {bucket} {what}: none of the {at_stake} files that are missing or others there is taken away here, and nothing goes up\n  fix: unmount, and mount again with --refill-bucket {fix}, or with --rebuild-cache to take the bucket as it is (the cache is then set aside, and not deleted)"
            ),
        ))
    }

    /// The attributes of objects: from their writers' indexes where many are unknown, else from themselves.
    async fn ask(
        &self,
        unknown: Vec<(String, Listed, u64)>,
        indexes: Option<Result<Vec<Fetched>, RemoteError>>,
    ) -> Result<Vec<News>, StoreError> {
        let indexes = match indexes {
            Some(indexes) => self.read_indexes(indexes?),
            None if unknown.len() >= ASK_INDEXES_FROM => {
                self.read_indexes(indexes_of(&self.remote, &self.layout).await?)
            }
            None => HashMap::new(),
        };
        let asked = stream::iter(unknown).map(|(key, listed, version)| {
            let hint = indexes.get(&(key.clone(), listed.etag.clone()));
            // An index may be older than the attributes, or than the object's end.
            let is_forgotten = self.forgotten.is_forgotten(&key, &listed.etag);
            let hint = hint.filter(|meta| meta.version >= version && !is_forgotten);
            let hint = hint.cloned();
            async move {
                if let Some(meta) = hint {
                    let target = self.target(&listed.key, &meta).await?;
                    let kept = self.unchanged_parts(&key, &listed.etag, &meta).await?;
                    return Ok(Some(News {
                        listed,
                        key,
                        meta,
                        target,
                        kept,
                    }));
                }
                match self.remote.head(&listed.key).await {
                    Ok(head) => {
                        let meta = self.meta_of(&listed.key, &head).await?;
                        let listed = Listed {
                            etag: head.etag,
                            size: head.size,
                            ..listed
                        };
                        let target = self.target(&listed.key, &meta).await?;
                        let kept = self.unchanged_parts(&key, &listed.etag, &meta).await?;
                        Ok(Some(News {
                            listed,
                            key,
                            meta,
                            target,
                            kept,
                        }))
                    }
                    Err(RemoteError::NotFound(_)) => Ok(None),
                    Err(error) => Err(StoreError::from(error)),
                }
            }
        });
        let asked: Vec<Option<News>> = asked.buffer_unordered(PARALLEL).try_collect().await?;
        Ok(asked.into_iter().flatten().collect())
    }

    /// Which parts of a large file that is here are the same in a new version of it.
    async fn unchanged_parts(
        &self,
        key: &str,
        etag: &str,
        meta: &Meta,
    ) -> Result<Kept, StoreError> {
        // The digests are of parts without the front matter.
        if meta.size <= PART || self.shows_front_matter(meta) {
            return Ok(Kept::default());
        }
        let known = self.cache.transaction(|db| cache::object_of_key(db, key))?;
        let Some(known) = known else {
            return Ok(Kept::default());
        };
        let digests = match self.remote.get(&self.layout.parts(&self.key(key))).await {
            Ok(fetched) => self.parse_json::<Parts>(&fetched),
            Err(error) => Err(error),
        };
        // Without it, all of the file is fetched anew.
        let Some(digests) = digests.ok().filter(|digests| digests.etag == etag) else {
            return Ok(Kept::default());
        };
        let mut parts = Vec::new();
        for (part, digest) in (0..).zip(&digests.sha256) {
            let range = part * PART..(part + 1) * PART;
            let mut bytes = Vec::new();
            if self.is_here(known.ino, &range)
                && self
                    .cache
                    .read(known.ino, range.start, PART as usize, &mut bytes)
                    .is_ok()
                && object::checksum(&bytes) == *digest
            {
                parts.push(part);
            }
        }
        Ok(Kept {
            of: known.etag,
            parts,
        })
    }

    /// Where a symbolic link points: nothing for anything else.
    pub(super) async fn target(&self, key: &str, meta: &Meta) -> Result<Vec<u8>, StoreError> {
        if meta.kind() != Kind::Symlink {
            return Ok(Vec::new());
        }
        let fetched = self.remote.get(key).await?;
        let target = object::open(&fetched.body, self.seal.as_ref())
            .map_err(|error| StoreError::storage(Errno::IO, format!("{key}: {error}")))?;
        self.check_content(key, meta, &target, &fetched)?;
        Ok(target)
    }

    /// What an object says of its file, in its metadata, or in front matter if another tool has dropped that.
    pub(super) async fn meta_of(&self, key: &str, head: &Fetched) -> Result<Meta, RemoteError> {
        if let Some(mut meta) = Meta::from_attributes(&head.attributes, self.seal.as_ref()) {
            let is_whole = super::seal::object_length(meta.header + meta.size, self.seal.is_some())
                == head.size;
            if !is_whole && self.seal.is_none() && meta.kind() == Kind::File {
                tracing::warn!(
                    key,
                    "its length is not what its metadata says: its bytes are taken as they are"
                );
                meta.size = head.size;
                meta.header = 0;
                meta.sha256.clear();
            }
            return Ok(meta);
        }
        let mut meta = Meta::foreign(head.size, head.modified, self.owner.uid, self.owner.gid);
        if self.seal.is_none() && layout::is_markdown(key.as_bytes()) && head.size > 0 {
            let range = 0..head.size.min(1024);
            let start = self.remote.get_range(key, range, &head.etag).await?;
            if let Some((length, version, writer)) = object::parse_front_matter(&start.body) {
                meta.header = if self.config.front_matter_visible {
                    0
                } else {
                    length
                };
                meta.size = head.size - meta.header;
                (meta.version, meta.writer) = (version, writer);
            }
        }
        Ok(meta)
    }

    fn read_indexes(&self, fetched: Vec<Fetched>) -> HashMap<(String, String), Meta> {
        let mut all = HashMap::new();
        for index in fetched {
            match self.parse_json::<Index>(&index) {
                Ok(index) => {
                    let objects = index.objects.into_iter();
                    all.extend(objects.map(|(key, (etag, meta))| ((key, etag), meta)));
                }
                // It is a hint: without it, every object is asked for.
                Err(error) => tracing::warn!(%error, "an index cannot be read"),
            }
        }
        all
    }

    /// Tells others what this mount has written.
    pub(super) async fn write_index(&self) -> Result<(), StoreError> {
        let objects = self.cache.transaction(cache::objects)?;
        let ours = objects
            .into_iter()
            .filter(|object| object.meta.writer == self.config.writer);
        let index = Index {
            writer: self.config.writer.clone(),
            objects: ours
                .map(|object| (object.key, (object.etag, object.meta)))
                .collect(),
        };
        let key = self.layout.index();
        self.put_json(&key, &index, &Expect::Anything).await?;
        Ok(())
    }
}
