//! A cache that cannot be used any more: it is set aside, never deleted, and a new one takes its place.

use std::path::Path;
use std::sync::Arc;

use super::S3Store;
use super::aside::OnItsWay;
use super::cache;
use super::config::S3Config;
use super::known::beside;
use super::old::Old;
use super::open::{OpenOptions, check_seal, start_runtime};
use super::remote::{Remote, S3OpenError};
use super::seal::Seal;
use crate::store::{Caller, Store};

impl S3Store {
    /// Sets the cache at `file` aside, opens a new one, and takes what had not gone up from the old one as far as it
    /// can be read. Nothing happens where there is no file, or the server or something else is not as it has to be.
    ///
    /// If it is interrupted, no mount opens the cache until this is done again, which begins anew with what was set
    /// aside.
    ///
    /// # Errors
    /// See [`S3OpenError`]; the cache is then where it was, or the message says where.
    pub fn rebuild(config: S3Config, file: &Path, owner: &Caller) -> Result<Self, S3OpenError> {
        let mut way = OnItsWay::begin(file)?;
        let prepared = way
            .put_back()
            .and_then(|()| match file.exists() || is_left_of(file) {
                true => ask(&config, file).map(|()| true),
                false => Ok(false),
            });
        match prepared {
            Ok(true) => {}
            Ok(false) => {
                way.end()?;
                return Self::open(config, file, owner);
            }
            Err(error) => return Err(stay(way, error)),
        }
        let writer = config.writer.clone();
        let set_aside = way.make_or_hold_cache().and_then(|held| {
            let aside = way.set_aside()?;
            drop(held);
            Ok(aside)
        });
        let opened = set_aside.and_then(|aside| {
            let store = Self::open_in_place(config, file, owner, OpenOptions::default(), true)?;
            Ok((aside, store))
        });
        let (aside, mut store) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                return Err(match way.put_back() {
                    Ok(()) => stay(way, error),
                    Err(also) => S3OpenError::Cache(format!(
                        "{error}\n{also}\n  fix: mount with --rebuild-cache again"
                    )),
                });
            }
        };
        // Nothing goes up before all is taken from the old cache, and the new one has it for good.
        let inner = Arc::clone(&store.inner);
        let turn = inner.turn.blocking_lock();
        let at = aside.display();
        let note = match Old::open(&aside) {
            Ok(old) => store
                .salvage(&old, &writer)
                .map(|salvaged| format!("the cache was set aside as {at}; {salvaged}")),
            Err(reason) => Ok(format!(
                "the cache was set aside as {at}; nothing can be read of it ({reason}): what had not gone up is only there"
            )),
        };
        let kept = note.and_then(|note| {
            let synced = inner.cache.sync().map_err(|error| error.to_string());
            synced.map(|()| note)
        });
        let kept = kept.map_err(|reason| {
            S3OpenError::Cache(format!(
                "{}, the new cache, cannot take over what had not gone up: {reason}\n  fix: make room, or see to what is said, and mount with --rebuild-cache again: everything is in {at}",
                file.display()
            ))
        });
        let note = match kept.and_then(|note| way.end().map(|()| note)) {
            Ok(note) => note,
            Err(error) => {
                // Before the engine has its turn.
                drop(store);
                return Err(error);
            }
        };
        drop(turn);
        tracing::warn!("{note}");
        store.notes.push(note);
        Ok(store)
    }
}

/// Whether there is something of a cache whose database is gone.
fn is_left_of(file: &Path) -> bool {
    let log = std::fs::metadata(beside(file, "-wal"));
    let tails = std::fs::read_dir(beside(file, "-tails"));
    log.is_ok_and(|log| log.len() > 0) || tails.is_ok_and(|mut tails| tails.next().is_some())
}

/// Lets a cache that is where it was be mounted again.
fn stay(way: OnItsWay, error: S3OpenError) -> S3OpenError {
    if way.is_aside() {
        return error;
    }
    match way.end() {
        Ok(()) => error,
        Err(also) => S3OpenError::Cache(format!("{error}\n{also}")),
    }
}

/// Whether the server, the bucket, the credentials and the key are right, and the file is not of another memory.
fn ask(config: &S3Config, file: &Path) -> Result<(), S3OpenError> {
    if let Ok(old) = Old::open(file)
        && old.of != cache::of(config)
    {
        return Err(S3OpenError::Cache(format!(
            "{} is the cache of {}, not of {}\n  fix: choose another file with --cache",
            file.display(),
            old.of,
            cache::of(config)
        )));
    }
    let remote = Remote::new(config)?;
    let layout = super::layout::Layout::new(&config.prefix, &config.agent, &config.writer);
    let seal = config.seal.as_ref().map(Seal::new);
    start_runtime()?.block_on(async {
        remote.check(config).await?;
        check_seal(&remote, &layout, seal.as_ref(), config, None).await
    })?;
    Ok(())
}
