//! One file that goes up by the thread that waits for it: no other has to be woken to send it, and none to say that it
//! is there. What is more than one file is a batch, which [the engine](super::engine) performs for all who wait.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use super::noted::Noted;
use super::object::Meta;
use super::plan::{self, Body, Plan, Put};
use super::remote::RemoteError;
use super::upload::Done;
use super::{GIVE_UP_EVERY, Inner, S3Store, cache};
use crate::fuse::interrupt::requester_gave_up;
use crate::store::{Errno, Ino, Result, StoreError};

/// A file that is in the bucket, and of which the journal does not know so yet. Whoever has the turn next notes it first.
#[derive(Debug)]
pub(super) struct ToNote {
    put: Put,
    etag: String,
    meta: Meta,
    batch: u64,
}

impl Plan {
    /// The one file that is all there is to do.
    fn only_put(mut self) -> Option<(u64, Put)> {
        let is_one = self.added.len() + self.changed.len() == 1
            && self.gone.is_empty()
            && self.doubtful.is_empty()
            && !self.must_tell;
        let put = self.added.pop().or_else(|| self.changed.pop())?;
        let is_all = is_one
            && put.attr.nlink == 1
            && matches!(put.body, Body::Bytes(_))
            && self.inodes.iter().all(|ino| *ino == put.attr.ino)
            && (self.names.iter()).all(|(dir, name)| *dir == put.parent && *name == put.name);
        is_all.then_some((self.batch, put))
    }
}

impl S3Store {
    /// Brings up what is journalled, if it is this file alone, a small one, and nobody is at it. `None`: the engine has to,
    /// which knows what rests.
    pub(super) fn upload_alone(&self, ino: Ino) -> Option<Result<()>> {
        let inner = &self.inner;
        let is_barred = inner.is_emptied.load(Ordering::Acquire)
            || inner.is_offline.load(Ordering::Acquire)
            || inner.is_ending.load(Ordering::Acquire);
        if is_barred {
            return None;
        }
        // Who finds somebody at it goes up with all others who wait by then.
        let turn = inner.turn.try_lock().ok()?;
        inner.note_waiting();
        let changes = inner.changes.load(Ordering::Acquire);
        let planned = inner.cache.transaction(|db| {
            if !cache::may_be_one_file(db)? {
                return Ok(None);
            }
            Ok(plan::plan(db, inner.seal.as_ref(), &BTreeSet::new())?.only_put())
        });
        let (batch, put) = match planned {
            Ok(planned) => planned.filter(|(_, put)| put.attr.ino == ino)?,
            Err(error) => return Some(Err(error)),
        };
        if let Some(known) = &put.known
            && known.ino != put.attr.ino
            && inner.is_stub(known.ino)
        {
            // What it replaces may be open, and has to be fetched first.
            return None;
        }
        inner.keep_what_goes_up();
        let (etag, meta) = match self.runtime.block_on(wait(inner, &put)) {
            Ok(Done::Written { etag, meta }) => (etag, meta),
            // The engine knows what to do then.
            Ok(_) => return None,
            Err(error) => return Some(Err(error)),
        };
        inner.tally.batches.fetch_add(1, Ordering::Relaxed);
        let is_touched = put.is_touched(&etag, &meta);
        inner.to_note().push(ToNote {
            put,
            etag,
            meta,
            batch,
        });
        if is_touched {
            // Others have to be told otherwise, which is the engine's; what is there is noted first.
            inner.note_waiting();
            return None;
        }
        inner.synced.fetch_max(changes, Ordering::AcqRel);
        drop(turn);
        // Where it cannot be told, the mount ends, and the next one finds the file in the bucket.
        self.engine.note();
        Some(Ok(()))
    }
}

/// Puts a file, for as long as somebody waits for it and requests are answered.
async fn wait(inner: &Inner, put: &Put) -> Result<Done> {
    let timeout = inner.config.timeout;
    let mut putting = pin!(inner.put(put));
    let mut answered = inner.progress();
    let mut deadline = Instant::now() + timeout;
    loop {
        match tokio::time::timeout(GIVE_UP_EVERY, &mut putting).await {
            Ok(done) => return done.map_err(|error: RemoteError| error.into()),
            // It is journalled, and may have been sent, which is noted: the engine goes on with it.
            Err(_) if requester_gave_up() => return Err(Errno::INTR.into()),
            Err(_) if inner.is_ending.load(Ordering::Acquire) => {
                return Err(StoreError::storage(Errno::IO, "S3: the mount ends"));
            }
            Err(_) => {}
        }
        let now_answered = inner.progress();
        if now_answered != answered {
            answered = now_answered;
            deadline = Instant::now() + timeout;
        } else if Instant::now() >= deadline.max(inner.remote.patience().unwrap_or(deadline)) {
            let reason = format!("S3: no answer within {} s", timeout.as_secs());
            return Err(StoreError::storage(Errno::TIMEDOUT, reason));
        }
    }
}

impl Inner {
    fn to_note(&self) -> MutexGuard<'_, Vec<ToNote>> {
        self.to_note.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what has gone up alone. For whoever has the turn: before that, nothing new is planned.
    pub(super) fn note_waiting(&self) {
        for noted in std::mem::take(&mut *self.to_note()) {
            let written = vec![(noted.put, noted.etag, noted.meta)];
            if let Err(error) = self.note_written(written, noted.batch, &mut Noted::default()) {
                tracing::warn!("noting what went up: {error}; the next batch finds it there");
                self.changes.fetch_add(1, Ordering::AcqRel);
            }
        }
    }
}
