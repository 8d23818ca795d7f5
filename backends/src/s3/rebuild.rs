//! A cache that cannot be used any more: it is set aside, never deleted, and a new one takes its place.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::S3Store;
use super::cache;
use super::config::S3Config;
use super::known::beside;
use super::old::Old;
use super::open::{check_seal, start_runtime};
use super::remote::{Remote, S3OpenError};
use super::seal::Seal;
use crate::sqlite::OpenError;
use crate::store::Caller;

impl S3Store {
    /// Sets the cache at `file` aside, opens a new one, and takes what had not gone up from the old one as far as it
    /// can be read. Nothing happens where there is no file, or the server or something else is not as it has to be.
    ///
    /// If it is interrupted, everything is in the file that was set aside.
    ///
    /// # Errors
    /// See [`S3OpenError`]; the cache is then where it was.
    pub fn rebuild(config: S3Config, file: &Path, owner: &Caller) -> Result<Self, S3OpenError> {
        if !file.exists() {
            return Self::open(config, file, owner);
        }
        let writer = config.writer.clone();
        ask(&config, file)?;
        let held = hold(file)?;
        let aside = free_name(file);
        move_all(file, &aside)?;
        drop(held);
        let mut store = match Self::open(config, file, owner) {
            Ok(store) => store,
            Err(error) => {
                put_back(file, &aside)?;
                return Err(error);
            }
        };
        let at = aside.display();
        let note = match Old::open(&aside) {
            Ok(old) => {
                let salvaged = store.salvage(&old, &writer);
                format!("the cache was set aside as {at}; {salvaged}")
            }
            Err(reason) => format!(
                "the cache was set aside as {at}; nothing can be read of it ({reason}): what had not gone up is only there"
            ),
        };
        tracing::warn!("{note}");
        store.notes.push(note);
        Ok(store)
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

/// Holds a file as a mount does, so that there is none of it.
fn hold(file: &Path) -> Result<File, S3OpenError> {
    let wrong = |reason: &dyn std::fmt::Display| {
        S3OpenError::Cache(format!("{} cannot be set aside: {reason}", file.display()))
    };
    let held = File::options().read(true).write(true).open(file);
    let held = held.map_err(|error| wrong(&error))?;
    match flock(&held, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(held),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(S3OpenError::of_open(
            file,
            OpenError::Owned(file.to_owned()),
        )),
        Err(error) => Err(wrong(&error)),
    }
}

/// A name beside a file that nothing has.
fn free_name(file: &Path) -> PathBuf {
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let mut name = beside(file, &format!(".set-aside-{now}"));
    let mut other = 2;
    while name.exists() {
        name = beside(file, &format!(".set-aside-{now}-{other}"));
        other += 1;
    }
    name
}

/// Renames a database with what belongs to it. Whenever this is cut short, one of the names has database and log.
fn move_all(from: &Path, to: &Path) -> Result<(), S3OpenError> {
    let failed = |error: std::io::Error| {
        let (from, to) = (from.display(), to.display());
        S3OpenError::Cache(format!("{from} cannot be renamed to {to}: {error}"))
    };
    let log = beside(from, "-wal");
    if log.exists() {
        let linked = std::fs::hard_link(&log, beside(to, "-wal"));
        linked.map_err(failed)?;
    }
    if let Err(error) = std::fs::rename(from, to) {
        // The link alone is of no use.
        let _ = std::fs::remove_file(beside(to, "-wal"));
        return Err(failed(error));
    }
    let tails = beside(from, "-tails");
    if tails.exists() {
        std::fs::rename(tails, beside(to, "-tails")).map_err(failed)?;
    }
    for suffix in ["-wal", "-shm"] {
        // The log has another name by now, and its index is made anew.
        let _ = std::fs::remove_file(beside(from, suffix));
    }
    Ok(())
}

/// Puts a cache back that was set aside, in the place of what opening a new one has left: nothing that anybody wrote.
fn put_back(file: &Path, aside: &Path) -> Result<(), S3OpenError> {
    for suffix in ["-wal", "-shm"] {
        // The log of another database would be taken for this one's.
        let _ = std::fs::remove_file(beside(file, suffix));
    }
    move_all(aside, file)
}
