//! Opens a memory: opens the cache and reads the log for the first time, even if one of them is damaged.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use fuse::store::{Caller, ROOT, Store, StoreError};
use s3::checkout::{now, random};
use s3::client::{Bucket, Client};
use s3::config::{MirrorMode, S3Config};
use s3::objects::Fault;
use s3::replica::{Replica, Writer};
use s3::session::{BrokenLog, Contact, Look, Session, SessionError};
use sqlite::SqliteStore;
use sqlite::tables::names;

use crate::cache::Cache;
use crate::engine::Engine;
use crate::index_link::IndexLink;
use crate::invalidation::Invalidation;
use crate::link::Link;
use crate::mirroring::{self, CommitFiles, Mirror};
use crate::open_error::OpenError;
use crate::tables::{self, CACHE_VERSION, Placeholders};
use crate::unread::UnreadVersions;
use crate::{Counters, Inner, RECOVERY, S3Store, recovery};

/// Options that a mount uses only on request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Begin with the cache's content if the server does not answer now.
    pub allow_offline: bool,
    /// Begin a new log with the cache's content: the bucket was emptied by mistake.
    pub refill_bucket: bool,
    /// Quarantine the cache and begin with a new one, which recovers the unsent changes of the old one.
    pub rebuild_cache: bool,
}

fn in_cache(file: &Path) -> impl Fn(StoreError) -> OpenError + '_ {
    move |error| OpenError::Cache(format!("the cache {}: {error}", file.display()))
}

/// Which memory a cache is of.
fn memory(config: &S3Config) -> String {
    format!(
        "{} bucket {} {}agents/{}{}",
        config.endpoint,
        config.bucket,
        config.prefix,
        config.agent,
        if config.seal.is_some() { " sealed" } else { "" }
    )
}

/// Makes a database the cache of a memory, or checks that it is.
fn prepare(store: &SqliteStore, file: &Path, config: &S3Config) -> Result<(), OpenError> {
    let memory = memory(config);
    let found = store.transaction(|db| {
        let has_tables = db.row("SELECT 1 FROM sqlite_schema WHERE name = 's3_setting'", (), |_| Ok(()))?;
        if has_tables.is_none() {
            if !names::is_empty(db, ROOT)? {
                return Ok(None);
            }
            db.connection.execute_batch(include_str!("schema.sql"))?;
            tables::set_setting(db, "memory", &memory)?;
            tables::set_setting(db, "tables", CACHE_VERSION)?;
        }
        Ok(Some((
            tables::setting(db, "memory")?.unwrap_or_default(),
            tables::setting(db, "tables")?.unwrap_or_default(),
        )))
    });
    let name = file.display();
    match found.map_err(in_cache(file))? {
        Some((found, version)) if found == memory && version == CACHE_VERSION => {
            let written = tables::write_tails(&store.db(), || store.settle());
            written.map_err(in_cache(file))
        }
        Some((found, version)) if found == memory => Err(OpenError::Cache(format!(
            "{name} has tables of version {version:?}; this ctxbench knows version {CACHE_VERSION}\n  fix: choose another file with --cache"
        ))),
        Some((found, _)) => Err(OpenError::Cache(format!(
            "{name} is the cache of {found}, not of {memory}\n  fix: choose another file with --cache"
        ))),
        None => Err(OpenError::Cache(format!(
            "{name} is a `sqlite` file system with files, not the cache of a bucket\n  fix: choose another file with --cache"
        ))),
    }
}

fn no_threads(error: std::io::Error) -> OpenError {
    OpenError::Cache(format!("starting threads: {error}"))
}

/// Gives the system back what reading the tree has taken: the allocator would keep it, and hardly anything needs it later.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the standard library has no call for it")]
fn return_free_memory() {
    // SAFETY: the call takes a number of bytes to keep, and any thread may make it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(not(target_env = "gnu"))]
fn return_free_memory() {}

/// A cache that has met its log.
struct JoinedCache {
    cache: Cache,
    contact: Contact,
    /// The state of the mirror, if that is known.
    published: Option<CommitFiles>,
    notes: Vec<String>,
    read_only: Option<String>,
}

impl S3Store {
    /// Opens an agent's memory in a bucket, with the cache at `file`, which is created where there is none.
    ///
    /// # Errors
    /// See [`OpenError`]. A cache that did not exist does not exist afterwards either.
    pub fn open(config: S3Config, file: &Path, owner: &Caller, options: OpenOptions) -> Result<Self, OpenError> {
        let quarantined = if options.rebuild_cache && file.exists() { Some(recovery::quarantine(file)?) } else { None };
        let opened = Self::open_cache(config, file, owner, options, quarantined.as_deref());
        if opened.is_err()
            && let Some(quarantined) = &quarantined
        {
            recovery::restore(quarantined, file)?;
        }
        opened
    }

    fn open_cache(
        config: S3Config,
        file: &Path,
        owner: &Caller,
        options: OpenOptions,
        quarantined: Option<&Path>,
    ) -> Result<Self, OpenError> {
        let bucket = Bucket::new(&config)?;
        let link = Link::new(Bucket::new(&config)?, &config).map_err(no_threads)?;
        // Making a cache takes as long as the first requests.
        let (store, contact) = std::thread::scope(|scope| {
            let look = || link.runtime.block_on(Look::take(&link.log, now()));
            let look = (!file.exists()).then(|| scope.spawn(look));
            let store = SqliteStore::open_with(file, owner, RECOVERY)?;
            if let Some(reason) = store.read_only() {
                return Err(OpenError::Cache(format!(
                    "the cache {} is read-only: {reason}\n  fix: name another file with --cache; the new cache is filled from the bucket",
                    file.display()
                )));
            }
            if let Err(error) = prepare(&store, file, &config) {
                store.discard_new();
                return Err(error);
            }
            let mut contact = Contact::default();
            // A look that panicked is taken again.
            contact.look = look.and_then(|look| look.join().ok());
            Ok::<_, OpenError>((Arc::new(store), contact))
        })?;
        let cache = Arc::clone(&store);
        let started = Self::start(config, store, (file, quarantined), owner, options, (bucket, link, contact));
        if started.is_err() {
            cache.discard_new();
        }
        started
    }

    /// Joins the log with the cache `store`, and starts the threads of the mount.
    fn start(
        config: S3Config,
        store: Arc<SqliteStore>,
        (file, quarantined): (&Path, Option<&Path>),
        owner: &Caller,
        options: OpenOptions,
        (bucket, link, contact): (Bucket, Link, Contact),
    ) -> Result<Self, OpenError> {
        let placeholders = Arc::new(Placeholders::default());
        let joined = join(&link, (&store, &placeholders), (&config, owner), file, options, contact)?;
        let JoinedCache { mut cache, contact, published, mut notes, read_only } = joined;
        if let Some(quarantined) = quarantined {
            let recovered = recovery::recover(quarantined, &store, &cache, owner);
            notes.extend(recovered.map_err(in_cache(file))?);
        }
        let is_clean = tables::is_clean(&store.db()).map_err(in_cache(file))?;
        let mut buckets = vec![bucket.clone(), link.bucket.clone()];
        if read_only.is_none() && mirroring::mode(&config) != MirrorMode::Off {
            buckets.push(Bucket::new(&config)?);
        }
        let unread = Arc::new(UnreadVersions::new(cache.writer.id));
        cache.unread = Some(Arc::clone(&unread));
        let inner = Arc::new(Inner {
            unread,
            objects: Client::new(&bucket, &config),
            buckets,
            placeholders,
            owner: *owner,
            kernel: Invalidation::default(),
            index: IndexLink::default(),
            changes: AtomicU64::new(u64::from(!is_clean && read_only.is_none())),
            synced: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            counters: Counters::default(),
            store,
            config,
        });
        let mirror = Mirror::start(&inner, inner.buckets.get(2), published).map_err(no_threads)?;
        return_free_memory();
        let engine = Engine::start(Arc::clone(&inner), link, (cache, contact), mirror).map_err(no_threads)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("s3")
            .enable_all()
            .build()
            .map_err(no_threads)?;
        Ok(Self {
            inner,
            engine,
            read_only,
            notes,
            last_failure: super::hydrate::LastFailure::default(),
            downloads: super::downloads::Downloads::default(),
            runtime,
        })
    }
}

/// Opens the working copy and joins the log.
fn join(
    link: &Link,
    (store, placeholders): (&Arc<SqliteStore>, &Arc<Placeholders>),
    (config, owner): (&S3Config, &Caller),
    file: &Path,
    options: OpenOptions,
    mut contact: Contact,
) -> Result<JoinedCache, OpenError> {
    let mut id = [0; 8];
    random(&mut id);
    let writer = Writer {
        // 0 is the root's; SQLite's integers are signed.
        id: (u64::from_le_bytes(id) >> 1).max(1),
        name: config.writer.clone(),
    };
    let mut cache = Cache::open(Arc::clone(store), Arc::clone(placeholders), *owner, writer).map_err(in_cache(file))?;
    let is_new = cache.head().number == 0;
    let mut published = CommitFiles::before(&cache, config).map_err(in_cache(file))?;
    let (mut notes, mut read_only) = (Vec::new(), None);
    let attempt = |cache: &mut Cache, contact: &mut Contact| {
        let mut session = Session { objects: &link.log, replica: cache, now: &now, random: &random, contact };
        link.runtime.block_on(async {
            match session.join().await {
                // The log can still be read.
                Err(SessionError::Broken(BrokenLog::Unconditional)) => Ok(Some(BrokenLog::Unconditional.to_string())),
                joined => joined.map(|_| None),
            }
        })
    };
    let mut joined = attempt(&mut cache, &mut contact);
    if options.refill_bucket
        && let Err(SessionError::Broken(BrokenLog::Gone(_) | BrokenLog::Different(_))) = joined
    {
        cache.forget_base().map_err(in_cache(file))?;
        contact = Contact::default();
        published = None;
        joined = attempt(&mut cache, &mut contact);
    }
    // After a commit without an answer, the log says whether it arrived.
    let is_known = joined.is_ok() || cache.intents().is_empty();
    match joined {
        Ok(unconditional) => {
            let refused = || {
                let refusal =
                    link.runtime.block_on(link.log.0.refusal()).map_err(|fault| OpenError::Fault { fault })?;
                Ok::<_, OpenError>(refusal.map(|reason| format!("{reason}: the memory is read-only")))
            };
            let reason = match unconditional {
                None => refused()?,
                reason => reason,
            };
            read_only = reason.map(|reason| format!("{}: {reason}", config.endpoint));
        }
        Err(SessionError::Fault(Fault::Unknown(reason))) if options.allow_offline && cache.head().number > 0 => {
            notes.push(format!("{} does not answer ({reason}): the mount shows the content of the cache, and uploads changes when the server answers", config.endpoint));
        }
        Err(SessionError::Fault(fault)) => {
            // The failed request's error does not name a wrong address, key or bucket.
            link.runtime.block_on(s3::check::check_access(config))?;
            return Err(OpenError::Fault { fault });
        }
        Err(SessionError::Broken(broken)) => return Err(OpenError::Broken { broken }),
        Err(error) => {
            return Err(OpenError::Cache(format!("the cache {}: {error}", file.display())));
        }
    }
    if is_known {
        cache.mend_lost().map_err(in_cache(file))?;
    }
    cache.reclaim_orphans().map_err(in_cache(file))?;
    if is_new {
        // The log's writers have published it.
        published = Some(CommitFiles::by_others(&cache, config));
    }
    Ok(JoinedCache { cache, contact, published, notes, read_only })
}
