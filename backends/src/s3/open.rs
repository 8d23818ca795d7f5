//! Opening: everything that can be wrong is found out here, before anything is mounted.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use bytes::Bytes;
use object_store::Attributes;
use tokio::runtime::Runtime;

use super::config::S3Config;
use super::doubt::Forgotten;
use super::engine::Engine;
use super::forget::Forgetting;
use super::known::{self, Known};
use super::layout::Layout;
use super::mark::Filling;
use super::probe::probe;
use super::pull::Look;
use super::remote::{Expect, Remote, RemoteError, S3OpenError};
use super::seal::Seal;
use super::stubbed::Stubbed;
use super::{Conditions, Inner, S3Store, Tally};
use super::{aside, cache, pull, stub};
use crate::sqlite::SqliteStore;
use crate::store::Caller;

/// What a sealed memory's check object holds.
const SEAL_CHECK: &[u8] = b"ctxbench seal 1";

/// What a mount may do that it does not do by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// While the server is away: begin with what an earlier mount of the same memory has left in the cache. What is
    /// wrong with the credentials, the bucket, the clock or the certificate stays an error where the server says so.
    pub allow_offline: bool,
    /// Bring everything up again that is gone from a bucket which was emptied, and not through a mount.
    pub refill_bucket: bool,
}

/// What was found out about the server, all at once.
struct Reached {
    look: Look,
    /// The bytes that tell a wrong key, of a sealed memory.
    seal_check: Option<Bytes>,
    /// What it makes of conditions, and the mark that says so in the bucket; where it was asked for.
    probed: Option<(Conditions, Option<String>)>,
}

/// Asks for everything at once: a mount far away shall not wait for one answer after the other. Nothing else is waited
/// for when the first question has found what is wrong.
async fn reach(
    remote: &Remote,
    layout: &Layout,
    seal: Option<&Seal>,
    config: &S3Config,
    is_new: bool,
    known_seal: Option<&[u8]>,
) -> Result<Reached, S3OpenError> {
    let probed = async {
        match is_new {
            true => Some(probe(remote, layout, config, Filling::First).await),
            false => None,
        }
    };
    let rest = async {
        Ok(tokio::join!(
            check_seal(remote, layout, seal, config, known_seal),
            pull::look(remote, layout, None, is_new),
            probed
        ))
    };
    let ((), (seal_check, look, probed)) = tokio::try_join!(remote.check(config), rest)?;
    Ok(Reached {
        look,
        seal_check: seal_check?,
        probed: probed.transpose()?,
    })
}

pub(super) fn start_runtime() -> Result<Runtime, S3OpenError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("s3")
        .enable_all()
        .build()
        .map_err(|error| S3OpenError::Cache(format!("starting threads: {error}")))
}

impl S3Store {
    /// Opens an agent's memory in a bucket, with the cache at `file`, which is created where there is none.
    ///
    /// # Errors
    /// See [`S3OpenError`]; nothing is changed in the bucket but what asking takes.
    pub fn open(config: S3Config, file: &Path, owner: &Caller) -> Result<Self, S3OpenError> {
        Self::open_with(config, file, owner, OpenOptions::default())
    }

    /// As [`S3Store::open`], with what may be done beyond that.
    ///
    /// # Errors
    /// As [`S3Store::open`].
    pub fn open_with(
        config: S3Config,
        file: &Path,
        owner: &Caller,
        options: OpenOptions,
    ) -> Result<Self, S3OpenError> {
        Self::open_in_place(config, file, owner, options, false)
    }

    /// As [`S3Store::open_with`]; in the place of a cache that was set aside, only for who has done that.
    pub(super) fn open_in_place(
        config: S3Config,
        file: &Path,
        owner: &Caller,
        options: OpenOptions,
        is_rebuilding: bool,
    ) -> Result<Self, S3OpenError> {
        let must_be_there = || match is_rebuilding {
            true => Ok(()),
            false => aside::must_not_be_on_its_way(file),
        };
        must_be_there()?;
        let remote = Remote::new(&config)?;
        let runtime = start_runtime()?;
        let layout = Layout::new(&config.prefix, &config.agent, &config.writer);
        let seal = config.seal.as_ref().map(Seal::new);
        let is_new = !file.exists();
        known::must_not_be_cut(file)?;
        let earlier = known::read(file).filter(|known| known.of == cache::of(&config));
        let known_seal = earlier.as_ref().and_then(|known| known.seal_check.clone());
        let reached = runtime.block_on(reach(
            &remote,
            &layout,
            seal.as_ref(),
            &config,
            is_new,
            known_seal.as_deref(),
        ));
        let (reached, away) = match reached {
            Ok(reached) => (Some(reached), None),
            Err(error) if error.is_away() && options.allow_offline => {
                must_be_enough(&error, earlier.as_ref(), file, seal.as_ref(), &config)?;
                (None, Some(error.first_line()))
            }
            Err(S3OpenError::Unreachable {
                endpoint, reason, ..
            }) => {
                return Err(S3OpenError::Unreachable {
                    endpoint,
                    reason,
                    cache: earlier.map(|_| file.to_owned()),
                });
            }
            Err(error) => return Err(error),
        };
        let cache = SqliteStore::open_committing(file, owner)
            .map_err(|error| S3OpenError::of_open(file, error))?;
        // Nobody sets aside what is held, but somebody may have before.
        must_be_there()?;
        cache::prepare(&cache, file, &config)?;
        let (look, probed) = match reached {
            Some(reached) => {
                if let Some(check) = &reached.seal_check {
                    cache
                        .transaction(|db| known::keep_seal_check(db, check))
                        .map_err(|error| S3OpenError::of_cache(file, &error))?;
                }
                (Some(reached.look), reached.probed)
            }
            None => (None, None),
        };
        let known = cache
            .transaction(known::settings)
            .map_err(|error| S3OpenError::of_cache(file, &error))?;
        let conditions = match (known.conditions, probed) {
            // A mark that is not known yet is settled after the first look: one that is written before would vouch for
            // a bucket that was emptied.
            (Some(conditions), None) => conditions,
            (_, probed) => {
                let (conditions, mark) = match probed {
                    Some(probed) => probed,
                    None => runtime.block_on(probe(&remote, &layout, &config, Filling::First))?,
                };
                cache
                    .transaction(|db| known::keep_conditions(db, conditions, mark.as_deref()))
                    .map_err(|error| S3OpenError::of_cache(file, &error))?;
                conditions
            }
        };
        if !conditions.are_honoured {
            tracing::warn!(
                "{} ignores conditions of writes: a change that another writer makes between a look and a write is overwritten, and nobody is told",
                config.endpoint
            );
        }
        if conditions.are_honoured && !conditions.are_honoured_of_parts {
            tracing::warn!(
                "{} is not known to honour conditions of uploads in parts: a change that another writer makes between a look and the end of one is overwritten, and nobody is told",
                config.endpoint
            );
        }
        let (stubs, pending) = cache
            .transaction(|db| {
                stub::settle_all(db)?;
                Ok((stub::all(db)?, cache::pending(db)?))
            })
            .map_err(|error| S3OpenError::of_cache(file, &error))?;
        let stubs: HashMap<_, _> = stubs
            .into_iter()
            .map(|(ino, stub, parts)| (ino, Arc::new(Stubbed::new(stub, parts))))
            .collect();
        let mut notes = Vec::new();
        if let Some(away) = &away {
            notes.push(format!(
                "offline: {away}; what {} holds can be read and changed, {pending} changes wait, and go up by themselves when the server answers",
                file.display()
            ));
        }
        let inner = Arc::new(Inner {
            config,
            layout,
            seal,
            remote,
            cache: Arc::new(cache),
            owner: *owner,
            conditions,
            stubs: RwLock::new(stubs),
            kernel: Forgetting::default(),
            manifest: Mutex::default(),
            // What an earlier mount could not bring up counts as a change.
            changes: AtomicU64::new(u64::from(pending > 0)),
            synced: AtomicU64::new(0),
            has_news: AtomicBool::new(false),
            forgotten: Forgotten::default(),
            is_emptied: AtomicBool::new(false),
            is_offline: AtomicBool::new(away.is_some()),
            turn: tokio::sync::Mutex::default(),
            to_note: Mutex::default(),
            copying: Arc::new(tokio::sync::Semaphore::new(1)),
            may_have_unended: AtomicBool::new(true),
            read: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            tally: Tally::default(),
        });
        let unreadable = |error: crate::store::StoreError| {
            let reason = error.to_string();
            if super::error::is_damage(&reason) {
                return S3OpenError::of_cache(file, &reason);
            }
            S3OpenError::Cache(format!("reading the bucket: {reason}"))
        };
        if options.refill_bucket && look.is_some() {
            let refilled = runtime.block_on(inner.refill());
            notes.push(refilled.map_err(unreadable)?.to_string());
        }
        if let Some(look) = look {
            match runtime.block_on(inner.take_in(look)) {
                // What is here can be read, and copied elsewhere; nothing goes up.
                Err(error) if inner.is_emptied.load(Ordering::Acquire) => {
                    tracing::error!("{error}");
                }
                taken => {
                    taken.map_err(unreadable)?;
                    if let Err(error) = runtime.block_on(inner.settle_mark()) {
                        tracing::warn!(
                            "the mark of the bucket cannot be written: a bucket that somebody empties would be taken for one whose files were removed; the next mount tries again: {error}"
                        );
                    }
                }
            }
        }
        for note in &notes {
            tracing::warn!("{note}");
        }
        let engine = Engine::start(Arc::clone(&inner), runtime.handle().clone())
            .map_err(|error| S3OpenError::Cache(format!("starting threads: {error}")))?;
        Ok(Self {
            inner,
            engine,
            notes,
            runtime,
        })
    }
}

/// Whether what an earlier mount has left is enough to do without the server: that mount has found everything right,
/// and the key is the one it had.
fn must_be_enough(
    error: &S3OpenError,
    earlier: Option<&Known>,
    file: &Path,
    seal: Option<&Seal>,
    config: &S3Config,
) -> Result<(), S3OpenError> {
    let lacks = |why: String| {
        Err(S3OpenError::NothingCached {
            endpoint: config.endpoint.clone(),
            reason: error.first_line(),
            why,
        })
    };
    let path = file.display();
    let Some(earlier) = earlier else {
        return lacks(format!(
            "{path} is no cache of bucket {} and agent {} at this endpoint",
            config.bucket, config.agent
        ));
    };
    if earlier.conditions.is_none() {
        return lacks(format!("the mount that made {path} was cut short"));
    }
    match (seal, &earlier.seal_check) {
        (None, _) => Ok(()),
        (Some(seal), Some(check)) if is_of_key(seal, check) => Ok(()),
        (Some(_), Some(_)) => Err(wrong_key(config, "is sealed with another key")),
        (Some(_), None) => lacks(format!(
            "{path} was made before caches could tell a wrong key"
        )),
    }
}

fn is_of_key(seal: &Seal, check: &[u8]) -> bool {
    seal.open(check).is_ok_and(|plain| plain == SEAL_CHECK)
}

fn wrong_key(config: &S3Config, problem: &'static str) -> S3OpenError {
    S3OpenError::Key {
        agent: config.agent.clone(),
        bucket: config.bucket.clone(),
        problem,
    }
}

/// Whether the key is the one that this memory was written with; a new memory is marked with it, and one whose mark
/// is gone, though this machine knows it, with the same. The mark, of a sealed memory.
pub(super) async fn check_seal(
    remote: &Remote,
    layout: &Layout,
    seal: Option<&Seal>,
    config: &S3Config,
    known: Option<&[u8]>,
) -> Result<Option<Bytes>, S3OpenError> {
    let failed = |error: RemoteError| S3OpenError::of_request(&config.endpoint, &error);
    let found = match remote.get(&layout.seal_check()).await {
        Ok(fetched) => Some(fetched.body),
        Err(RemoteError::NotFound(_)) => None,
        Err(error) => return Err(failed(error)),
    };
    match (seal, found) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(wrong_key(config, "is sealed, and no key was given")),
        (Some(seal), Some(body)) if is_of_key(seal, &body) => Ok(Some(body)),
        (Some(_), Some(_)) => Err(wrong_key(config, "is sealed with another key")),
        (Some(seal), None) => {
            let body = match known {
                Some(known) if is_of_key(seal, known) => Bytes::copy_from_slice(known),
                _ => {
                    let listed = remote.list(layout.files()).await.map_err(failed)?;
                    if !listed.is_empty() {
                        return Err(wrong_key(config, "is not sealed, but a key was given"));
                    }
                    let sealed = seal.seal(SEAL_CHECK);
                    Bytes::from(
                        sealed.map_err(|error| S3OpenError::Cache(format!("sealing: {error}")))?,
                    )
                }
            };
            let key = layout.seal_check();
            let put = remote.put(&key, body.clone(), Attributes::new(), &Expect::Anything);
            put.await.map_err(failed)?;
            Ok(Some(body))
        }
    }
}
