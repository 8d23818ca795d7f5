//! The thread that publishes the readable mirror of one mount: what the mirror holds is decided in [`s3::mirror`].
//!
//! Its requests have connections and a runtime of their own, so that no commit waits for them.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use fuse::store::Result;
use parking_lot::{Condvar, Mutex};
use s3::client::{Bucket, Client, MirrorClient};
use s3::config::{MirrorMode, S3Config};
use s3::mirror::{Files, MirrorFile, MirrorIndex, files, plan, plan_all, publish};
use s3::objects::Head;
use s3::replica::Replica;
use s3::session::SessionError;
use sqlite::tables::held;
use tokio::runtime::Runtime;

use crate::cache::Cache;
use crate::{Inner, tables};

/// The pause after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// How long the end of a mount may be put off by the last changes of the mirror.
const LAST: Duration = Duration::from_secs(5);

/// The setting that says which commit the mirror showed when the mount ended.
const SETTING: &str = "mirrored";

/// Which files are mirrored.
pub(super) fn mode(config: &S3Config) -> MirrorMode {
    match &config.seal {
        Some(_) => MirrorMode::Off,
        None => config.mirror,
    }
}

fn setting(mode: MirrorMode, head: Head) -> String {
    format!("{mode:?} {} {}", head.number, head.hash)
}

/// The files of a commit.
#[derive(Debug)]
pub(super) struct CommitFiles {
    head: Head,
    files: Files,
}

impl CommitFiles {
    fn of(cache: &Cache, mode: MirrorMode) -> Self {
        Self { head: cache.head(), files: files(cache.base(), mode) }
    }

    /// The state of the mirror when a cache joins its log again; `None` if that is not known, as after a killed daemon.
    ///
    /// # Errors
    /// If the cache cannot be read.
    pub(super) fn before(cache: &Cache, config: &S3Config) -> Result<Option<Self>> {
        let mode = mode(config);
        let noted = tables::setting(&cache.store.db(), SETTING)?;
        let is_known = noted == Some(setting(mode, cache.head()));
        Ok(is_known.then(|| Self::of(cache, mode)))
    }

    /// The state that the writers of a log have published, when the log is new here.
    pub(super) fn by_others(cache: &Cache, config: &S3Config) -> Self {
        Self::of(cache, mode(config))
    }
}

/// The work of the thread.
#[derive(Debug, Default)]
struct Slot {
    /// The newest state that is not published yet.
    wanted: Option<CommitFiles>,
    /// The mount ends: publishing the wanted state is tried once more.
    ends: bool,
}

/// The mirror of one mount.
#[derive(Debug)]
pub(super) struct Mirror {
    mode: MirrorMode,
    /// The commit that the mirror shows, or will.
    shown: Option<Head>,
    slot: Arc<(Mutex<Slot>, Condvar)>,
    /// Whether the mirror showed the last state when the thread ended.
    ended: Receiver<bool>,
}

impl Mirror {
    /// Starts the thread, with what the mirror shows now if that is known; `None` where nothing is mirrored.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(
        inner: &Arc<Inner>,
        bucket: Option<&Bucket>,
        published: Option<CommitFiles>,
    ) -> std::io::Result<Option<Self>> {
        let Some(bucket) = bucket else {
            return Ok(None);
        };
        let (end, ended) = sync_channel(1);
        let slot = Arc::default();
        let shown = published.as_ref().map(|it| it.head);
        let mut publisher = Publisher {
            mode: mode(&inner.config),
            mirror: MirrorClient::new(bucket, &inner.config),
            log: Client::new(bucket, &inner.config),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            inner: Arc::downgrade(inner),
            slot: Arc::clone(&slot),
            published: published.map(|it| MirrorIndex::from(&it.files)),
        };
        let work = move || {
            let is_current = publisher.run();
            // Release everything of the mount before its end continues.
            drop(publisher);
            // The mount may have ended without waiting.
            let _ = end.send(is_current);
        };
        let thread = std::thread::Builder::new().name("mirror".to_owned());
        thread.spawn(work)?;
        Ok(Some(Self { mode: mode(&inner.config), shown, slot, ended }))
    }

    /// Whether the mirror shows the cache's head, or will.
    pub(super) fn is_current(&self, head: Head) -> bool {
        self.shown == Some(head)
    }

    /// Publishes what has changed up to the head. Changes of others since the last time are among it: the writer that
    /// committed last leaves a mirror of everything before.
    pub(super) fn show(&mut self, cache: &Cache) {
        let wanted = CommitFiles::of(cache, self.mode);
        self.shown = Some(wanted.head);
        let (slot, changed) = &*self.slot;
        slot.lock().wanted = Some(wanted);
        changed.notify_one();
    }

    /// Ends the thread, and notes in the cache that the mirror shows its head, if it does.
    pub(super) fn end(self, cache: &Cache) {
        let (slot, changed) = &*self.slot;
        slot.lock().ends = true;
        changed.notify_one();
        if self.ended.recv_timeout(LAST) != Ok(true) || !self.is_current(cache.head()) {
            tracing::warn!("the mirror is out of date; the next mount publishes it");
            return;
        }
        let value = setting(self.mode, cache.head());
        let noted = (cache.store).transaction(|db| tables::set_setting(db, SETTING, &value));
        if let Err(error) = noted {
            tracing::warn!(%error, "noting the state of the mirror in the cache");
        }
    }
}

struct Publisher {
    mode: MirrorMode,
    /// The mount ends without waiting for this thread.
    inner: Weak<Inner>,
    mirror: MirrorClient,
    log: Client,
    runtime: Runtime,
    slot: Arc<(Mutex<Slot>, Condvar)>,
    published: Option<MirrorIndex>,
}

impl Publisher {
    /// Whether the mirror shows the last state that was wanted.
    fn run(&mut self) -> bool {
        let (slot, changed) = &*Arc::clone(&self.slot);
        loop {
            let (wanted, ends) = {
                let mut slot = slot.lock();
                while slot.wanted.is_none() && !slot.ends {
                    changed.wait(&mut slot);
                }
                (slot.wanted.take(), slot.ends)
            };
            let Some(wanted) = wanted else {
                return self.published.is_some();
            };
            match self.publish(&wanted) {
                Ok(()) => self.published = Some(MirrorIndex::from(&wanted.files)),
                Err(error) => {
                    tracing::debug!(%error, "publishing the mirror");
                    if ends {
                        return false;
                    }
                    let mut slot = slot.lock();
                    slot.wanted.get_or_insert(wanted);
                    if !slot.ends {
                        changed.wait_for(&mut slot, RETRY_AFTER);
                    }
                }
            }
        }
    }

    fn publish(&self, wanted: &CommitFiles) -> std::result::Result<(), SessionError> {
        let local = |file: &MirrorFile| read(&*self.inner.upgrade()?, file).ok().flatten();
        self.runtime.block_on(async {
            let plan = match &self.published {
                Some(published) => plan(published, &wanted.files),
                None => plan_all(&self.mirror.list("").await?, &wanted.files, self.mode),
            };
            publish(&self.mirror, &self.log, &plan, wanted.head.number, &local).await
        })
    }
}

/// The content of a file that is here; [`publish`] checks whether it is the one that was committed.
fn read(inner: &Inner, file: &MirrorFile) -> Result<Option<Bytes>> {
    let db = inner.store.db();
    let Some(ino) = tables::ino_of(&db, file.node)? else {
        return Ok(None);
    };
    if inner.placeholders.contains(ino) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    held::read(&db, ino, 0, file.content.size as usize, &mut bytes)?;
    Ok(Some(bytes.into()))
}
