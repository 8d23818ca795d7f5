//! The thread that publishes the readable mirror of one mount: what the mirror holds is decided in [`s3::mirror`].
//!
//! Its requests have connections and a runtime of their own, so that no commit waits for them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use s3::client::{Client, MirrorClient};
use s3::config::{MirrorMode, S3Config};
use s3::mirror::{Files, MirrorFile, files, plan, plan_anew, publish};
use s3::session::SessionError;
use s3::tree::Tree;
use tokio::runtime::Runtime;

use super::cache::Cache;
use super::{Inner, tables};
use crate::sqlite::held;
use crate::store::Result;

/// The pause after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// How long the end of a mount may be put off by the last changes of the mirror.
const LAST: Duration = Duration::from_secs(5);

/// The setting that says which commit the mirror showed when the mount ended.
const SETTING: &str = "mirrored";

/// The files of a commit, and its number.
type State = (Files, u64);

/// Which files are mirrored.
pub(super) fn mode(config: &S3Config) -> MirrorMode {
    match &config.seal {
        Some(_) => MirrorMode::Off,
        None => config.mirror,
    }
}

fn shown(mode: MirrorMode, commit: u64) -> String {
    format!("{mode:?} {commit}")
}

/// What the mirror shows before a cache meets its log again; `None` if that is not known, as after a killed daemon.
///
/// # Errors
/// If the cache cannot be read.
pub(super) fn published(cache: &Cache, config: &S3Config) -> Result<Option<Files>> {
    let (mode, head) = (mode(config), s3::replica::Replica::head(cache).number);
    let setting = tables::setting(&cache.store.db(), SETTING)?;
    let is_known = setting == Some(shown(mode, head));
    Ok(is_known.then(|| files(cache.base(), mode)))
}

/// The mirror of one mount.
#[derive(Debug)]
pub(super) struct Mirror {
    inner: Arc<Inner>,
    mode: MirrorMode,
    /// Whether it was known what the mirror shows.
    pub(super) is_known: bool,
    states: Sender<State>,
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
        published: Option<Files>,
    ) -> std::io::Result<Option<Self>> {
        let mode = mode(&inner.config);
        if mode == MirrorMode::Off {
            return Ok(None);
        }
        let ((states, inbox), (end, ended)) = (channel(), channel());
        let is_known = published.is_some();
        let mut publisher = Publisher {
            mirror: MirrorClient::new(&inner.buckets[2], &inner.config),
            log: Client::new(&inner.buckets[2], &inner.config),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
            inner: Arc::clone(inner),
            published,
        };
        let work = move || {
            let is_current = publisher.run(&inbox);
            // The mount may have ended without waiting.
            let _ = end.send(is_current);
        };
        let thread = std::thread::Builder::new().name("mirror".to_owned());
        thread.spawn(work)?;
        Ok(Some(Self {
            inner: Arc::clone(inner),
            mode,
            is_known,
            states,
            ended,
        }))
    }

    /// Publishes what has changed up to commit `head`. Changes of others since the last time are among it: the writer that
    /// committed last leaves a mirror of everything before.
    pub(super) fn show(&self, base: &Tree, head: u64) {
        // Nothing depends on it if the thread has ended.
        let _ = self.states.send((files(base, self.mode), head));
    }

    /// Ends the thread, and notes in the cache that the mirror shows commit `head`, if it does.
    pub(super) fn end(self, head: u64) {
        drop(self.states);
        if self.ended.recv_timeout(LAST) != Ok(true) {
            tracing::warn!("the mirror is not up to date: the next mount publishes it");
            return;
        }
        let setting = shown(self.mode, head);
        let noted = (self.inner.store).transaction(|db| tables::set_setting(db, SETTING, &setting));
        if let Err(error) = noted {
            tracing::warn!(%error, "noting the state of the mirror in the cache");
        }
    }
}

struct Publisher {
    inner: Arc<Inner>,
    mirror: MirrorClient,
    log: Client,
    runtime: Runtime,
    published: Option<Files>,
}

impl Publisher {
    /// Whether the mirror shows the last state that came.
    fn run(&mut self, states: &Receiver<State>) -> bool {
        let mut wanted: Option<State> = None;
        loop {
            let next = match &wanted {
                None => states.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(_) => states.recv_timeout(RETRY_AFTER),
            };
            match next {
                Ok(state) => wanted = Some(states.try_iter().last().unwrap_or(state)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return wanted.is_none() && self.published.is_some();
                }
            }
            let Some((files, head)) = wanted.take() else {
                continue;
            };
            match self.publish(&files, head) {
                Ok(()) => self.published = Some(files),
                Err(error) => {
                    tracing::debug!(%error, "publishing the mirror");
                    wanted = Some((files, head));
                }
            }
        }
    }

    fn publish(&self, files: &Files, head: u64) -> std::result::Result<(), SessionError> {
        let local = |file: &MirrorFile| read(&self.inner, file).ok().flatten();
        self.runtime.block_on(async {
            let plan = match &self.published {
                Some(published) => plan(published, files),
                None => plan_anew(&self.mirror.list("").await?, files),
            };
            publish(&self.mirror, &self.log, &plan, head, &local).await
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
