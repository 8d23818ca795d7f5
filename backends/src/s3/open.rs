//! Opening: everything that can be wrong is found out here, before anything is mounted.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use bytes::Bytes;
use object_store::Attributes;
use serde::{Deserialize, Serialize};

use super::config::S3Config;
use super::doubt::Doubts;
use super::engine::Engine;
use super::fetch::Stubbed;
use super::forget::Forgetting;
use super::layout::Layout;
use super::remote::{Expect, Remote, RemoteError, S3OpenError};
use super::seal::Seal;
use super::{Conditions, Inner, S3Store, Tally};
use super::{cache, pull};
use crate::sqlite::SqliteStore;
use crate::store::Caller;

/// What a sealed memory's check object holds.
const SEAL_CHECK: &[u8] = b"ctxbench seal 1";

impl S3Store {
    /// Opens an agent's memory in a bucket, with the cache at `file`, which is created where there is none.
    ///
    /// # Errors
    /// See [`S3OpenError`]; nothing is changed in the bucket but what asking takes.
    pub fn open(config: S3Config, file: &Path, owner: &Caller) -> Result<Self, S3OpenError> {
        let remote = Remote::new(&config)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("s3")
            .enable_all()
            .build()
            .map_err(|error| S3OpenError::Cache(format!("starting threads: {error}")))?;
        let layout = Layout::new(&config.prefix, &config.agent, &config.writer);
        let seal = config.seal.as_ref().map(Seal::new);
        // Everything at once: a mount far away shall not wait for one answer after the other.
        let is_new = !file.exists();
        let (checked, unsealed, look, conditions) = runtime.block_on(async {
            let probed = async {
                match is_new {
                    true => Some(probe(&remote, &layout, &config).await),
                    false => None,
                }
            };
            tokio::join!(
                remote.check(&config),
                check_seal(&remote, &layout, seal.as_ref(), &config),
                pull::look(&remote, &layout, None, is_new),
                probed
            )
        });
        checked?;
        unsealed?;
        let probed = conditions.transpose()?;
        let wrong = |error: &dyn std::fmt::Display| S3OpenError::Cache(error.to_string());
        let cache = SqliteStore::open(file, owner).map_err(|error| wrong(&error))?;
        cache::prepare(&cache, file, &config)?;
        let (known, marked) = cache
            .transaction(|db| {
                Ok((
                    cache::setting(db, "conditions")?,
                    cache::setting(db, "marked")?,
                ))
            })
            .map_err(|error| wrong(&error))?;
        let mut is_marked = marked.is_some();
        let conditions = match (known.as_deref(), probed) {
            (Some(known), _) if is_marked => Conditions {
                are_honoured: known == "honoured",
            },
            (_, probed) => {
                let conditions;
                (conditions, is_marked) = match probed {
                    Some(probed) => probed,
                    None => runtime.block_on(probe(&remote, &layout, &config))?,
                };
                let word = if conditions.are_honoured {
                    "honoured"
                } else {
                    "ignored"
                };
                cache
                    .transaction(|db| {
                        if is_marked {
                            cache::set(db, "marked", "yes")?;
                        }
                        cache::set(db, "conditions", word)
                    })
                    .map_err(|error| wrong(&error))?;
                conditions
            }
        };
        if !conditions.are_honoured {
            tracing::warn!(
                "{} ignores conditions of writes: a change that another writer makes between a look and a write is overwritten, and nobody is told",
                config.endpoint
            );
        }
        let (stubs, pending) = cache
            .transaction(|db| Ok((cache::stubs(db)?, cache::pending(db)?)))
            .map_err(|error| wrong(&error))?;
        let stubs: HashMap<_, _> = stubs
            .into_iter()
            .map(|(ino, stub, parts)| (ino, Arc::new(Stubbed::new(stub, parts))))
            .collect();
        let inner = Arc::new(Inner {
            config,
            layout,
            seal,
            remote,
            cache,
            owner: *owner,
            conditions,
            stubs: RwLock::new(stubs),
            kernel: Forgetting::default(),
            manifest_etag: Mutex::new(None),
            // What an earlier mount could not bring up counts as a change.
            changes: AtomicU64::new(u64::from(pending > 0)),
            synced: AtomicU64::new(0),
            has_news: AtomicBool::new(false),
            doubts: Doubts::default(),
            is_marked,
            is_emptied: AtomicBool::new(false),
            tally: Tally::default(),
        });
        let unreadable = |error: &dyn std::fmt::Display| {
            S3OpenError::Cache(format!("reading the bucket: {error}"))
        };
        match runtime.block_on(inner.take_in(look)) {
            // What is here can be read, and copied elsewhere; nothing goes up.
            Err(error) if inner.is_emptied.load(Ordering::Acquire) => tracing::error!("{error}"),
            taken => taken.map_err(|error| unreadable(&error))?,
        }
        let engine = Engine::start(Arc::clone(&inner), runtime.handle().clone())
            .map_err(|error| unreadable(&error))?;
        Ok(Self {
            inner,
            engine,
            runtime,
        })
    }
}

/// Whether the key is the one that this memory was written with; a new memory is marked with it.
pub(super) async fn check_seal(
    remote: &Remote,
    layout: &Layout,
    seal: Option<&Seal>,
    config: &S3Config,
) -> Result<(), S3OpenError> {
    let wrong = |problem: &'static str| S3OpenError::Key {
        agent: config.agent.clone(),
        bucket: config.bucket.clone(),
        problem,
    };
    let failed = |error: RemoteError| S3OpenError::Answer {
        endpoint: config.endpoint.clone(),
        status: 0,
        reason: error.to_string(),
    };
    let found = match remote.get(&layout.seal_check()).await {
        Ok(fetched) => Some(fetched.body),
        Err(RemoteError::NotFound(_)) => None,
        Err(error) => return Err(failed(error)),
    };
    match (seal, found) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(wrong("is sealed, and no key was given")),
        (Some(seal), Some(body)) if seal.open(&body).is_ok_and(|plain| plain == SEAL_CHECK) => {
            Ok(())
        }
        (Some(_), Some(_)) => Err(wrong("is sealed with another key")),
        (Some(seal), None) => {
            let listed = remote.list(layout.files()).await.map_err(failed)?;
            if !listed.is_empty() {
                return Err(wrong("is not sealed, but a key was given"));
            }
            let body = seal
                .seal(SEAL_CHECK)
                .map_err(|error| S3OpenError::Cache(format!("sealing: {error}")))?;
            let key = layout.seal_check();
            let body = Bytes::from(body);
            let put = remote.put(&key, body, Attributes::new(), &Expect::Anything);
            put.await.map(|_| ()).map_err(failed)
        }
    }
}

/// What the first mount of a memory found out about the server, for those that come after it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    endpoint: String,
    conditions_are_honoured: bool,
}

/// What the server makes of conditions: as somebody else has found out, or by trying. Also whether that is noted in the
/// bucket.
async fn probe(
    remote: &Remote,
    layout: &Layout,
    config: &S3Config,
) -> Result<(Conditions, bool), S3OpenError> {
    let key = layout.server();
    let known = remote.get(&key).await.ok();
    let known = known.and_then(|known| serde_json::from_slice::<Server>(&known.body).ok());
    if let Some(known) = known.filter(|known| known.endpoint == config.endpoint) {
        let conditions = Conditions {
            are_honoured: known.conditions_are_honoured,
        };
        return Ok((conditions, true));
    }
    let conditions = try_conditions(remote, layout, config).await?;
    let server = Server {
        endpoint: config.endpoint.clone(),
        conditions_are_honoured: conditions.are_honoured,
    };
    let body = serde_json::to_vec(&server)
        .map_err(|error| S3OpenError::Cache(format!("writing {key}: {error}")))?;
    let put = remote.put(&key, body.into(), Attributes::new(), &Expect::Anything);
    let put = put.await;
    if let Err(error) = &put {
        tracing::debug!(key, %error, "the next mount has to find out by itself");
    }
    Ok((conditions, put.is_ok()))
}

/// Tries whether the server refuses writes whose condition does not hold.
async fn try_conditions(
    remote: &Remote,
    layout: &Layout,
    config: &S3Config,
) -> Result<Conditions, S3OpenError> {
    let failed = |error: RemoteError| match error {
        RemoteError::Refused(code) => S3OpenError::Credentials {
            endpoint: config.endpoint.clone(),
            source_name: config.access_key.source.clone(),
            bucket: config.bucket.clone(),
            code,
        },
        error => S3OpenError::Answer {
            endpoint: config.endpoint.clone(),
            status: 0,
            reason: error.to_string(),
        },
    };
    let key = layout.probe();
    let put = |body: &'static [u8], expect: Expect| {
        let key = key.clone();
        async move {
            let body = Bytes::from_static(body);
            remote.put(&key, body, Attributes::new(), &expect).await
        }
    };
    put(b"a", Expect::Anything).await.map_err(failed)?;
    let no_such = "d41d8cd98f00b204e9800998ecf8427e".to_owned();
    let (created, updated) =
        tokio::join!(put(b"b", Expect::Absent), put(b"c", Expect::Etag(no_such)));
    remote
        .delete(std::slice::from_ref(&key))
        .await
        .map_err(failed)?;
    Ok(Conditions {
        are_honoured: matches!(created, Err(RemoteError::Changed(_)))
            && matches!(updated, Err(RemoteError::Changed(_))),
    })
}
