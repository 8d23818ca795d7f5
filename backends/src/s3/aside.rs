//! The files of a cache, renamed together: set aside, and put back.
//!
//! While they are on their way, and until what had not gone up is taken from them, a file beside the cache says where
//! they went. No mount opens the cache then, so that none meets a database without its log, or takes its tails for
//! those of files that are gone.
//!
//! The database is renamed last when it is set aside, and first when it is put back: where it is says whose the other
//! files are.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::known::beside;
use super::remote::S3OpenError;
use crate::sqlite::OpenError;

/// What ends a note that was written whole.
const END: u8 = b'\n';

/// The file that says where a cache went.
fn note_of(file: &Path) -> PathBuf {
    beside(file, "-rebuilding")
}

/// Refuses a cache that is being rebuilt, or whose rebuilding was cut short.
pub(super) fn must_not_be_on_its_way(file: &Path) -> Result<(), S3OpenError> {
    let note = note_of(file);
    let written = match std::fs::read(&note) {
        Ok(written) => written,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(wrong(&note, &error)),
    };
    match aside_of(file, &written) {
        Some(aside) => Err(S3OpenError::Unfinished {
            file: file.to_owned(),
            aside,
        }),
        // Nothing has been moved yet: the note is written before.
        None => Ok(()),
    }
}

fn wrong(file: &Path, reason: &dyn std::fmt::Display) -> S3OpenError {
    S3OpenError::Cache(format!("{}: {reason}", file.display()))
}

fn aside_of(file: &Path, written: &[u8]) -> Option<PathBuf> {
    let name = written.strip_suffix(&[END])?;
    Some(file.with_file_name(OsStr::from_bytes(name)))
}

/// Makes the names in the directory of a file durable.
fn sync_names(file: &Path) -> Result<(), S3OpenError> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| wrong(dir, &error))
}

fn rename(from: &Path, to: &Path) -> Result<(), S3OpenError> {
    let failed = |reason: &dyn std::fmt::Display| {
        let (from, to) = (from.display(), to.display());
        S3OpenError::Cache(format!("{from} cannot be renamed to {to}: {reason}"))
    };
    match std::fs::metadata(to) {
        // What SQLite leaves when it has only looked.
        Ok(there) if there.is_file() && there.len() == 0 => {}
        Ok(_) => return Err(failed(&"both are there")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&error)),
    }
    std::fs::rename(from, to).map_err(|error| failed(&error))
}

/// Renames what there is of a file.
fn rename_if_there(from: &Path, to: &Path) -> Result<(), S3OpenError> {
    match from.exists() {
        true => rename(from, to),
        false => Ok(()),
    }
}

fn remove_if_there(removed: io::Result<()>, file: &Path) -> Result<(), S3OpenError> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(wrong(file, &error)),
        _ => Ok(()),
    }
}

fn remove_file(file: &Path) -> Result<(), S3OpenError> {
    remove_if_there(std::fs::remove_file(file), file)
}

/// A cache that is on its way, or was: nobody else moves or opens it meanwhile.
#[derive(Debug)]
pub(super) struct OnItsWay {
    file: PathBuf,
    /// Held, as the cache is by a mount.
    note: File,
    /// Where the cache went, if an earlier attempt was cut short.
    aside: Option<PathBuf>,
}

impl OnItsWay {
    /// Keeps all others from a cache.
    pub(super) fn begin(file: &Path) -> Result<Self, S3OpenError> {
        let path = note_of(file);
        let failed = |error: io::Error| wrong(&path, &error);
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let mut note = opened.map_err(failed)?;
        hold(&note, file)?;
        // Whoever had it may have ended meanwhile.
        if note.metadata().map_err(failed)?.nlink() == 0 {
            return Err(S3OpenError::of_open(
                file,
                OpenError::Owned(file.to_owned()),
            ));
        }
        let mut written = Vec::new();
        note.read_to_end(&mut written).map_err(failed)?;
        Ok(Self {
            aside: aside_of(file, &written),
            file: file.to_owned(),
            note,
        })
    }

    /// Holds the cache as a mount does, so that there is none of it; `None` where there is no cache.
    pub(super) fn hold_cache(&self) -> Result<Option<File>, S3OpenError> {
        let cache = match File::options().read(true).write(true).open(&self.file) {
            Ok(cache) => cache,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(&self.file, &error)),
        };
        hold(&cache, &self.file)?;
        Ok(Some(cache))
    }

    /// As [`Self::hold_cache`]. Where only what belongs to a database is left, an empty file stands for that, and goes
    /// the way of the others.
    pub(super) fn make_or_hold_cache(&self) -> Result<Option<File>, S3OpenError> {
        let made = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.file);
        made.map_err(|error| wrong(&self.file, &error))?;
        self.hold_cache()
    }

    /// Puts back what an earlier attempt has set aside. What that has begun in its place goes: it was never mounted,
    /// and everything in it is also in what was set aside, or in the bucket.
    pub(super) fn put_back(&mut self) -> Result<(), S3OpenError> {
        let Some(aside) = self.aside.clone() else {
            return Ok(());
        };
        let held = self.hold_cache()?;
        if aside.exists() {
            for suffix in ["-wal", "-shm"] {
                remove_file(&beside(&self.file, suffix))?;
            }
            let tails = beside(&self.file, "-tails");
            remove_if_there(std::fs::remove_dir_all(&tails), &tails)?;
            remove_file(&self.file)?;
            // Before the log of the new one could come back beside the old.
            sync_names(&self.file)?;
            rename(&aside, &self.file)?;
        } else if held.is_none() {
            return Err(S3OpenError::Cache(format!(
                "{} was set aside as {}, which is gone\n  fix: put it back; or remove {}, to begin anew with what is in the bucket",
                self.file.display(),
                aside.display(),
                note_of(&self.file).display()
            )));
        }
        for suffix in ["-wal", "-tails"] {
            rename_if_there(&beside(&aside, suffix), &beside(&self.file, suffix))?;
        }
        remove_file(&beside(&aside, "-shm"))?;
        sync_names(&self.file)?;
        self.aside = None;
        Ok(())
    }

    /// Whether some of the cache may be where it was set aside.
    pub(super) fn is_aside(&self) -> bool {
        self.aside.is_some()
    }

    /// Sets the cache aside; where it is then. Whenever this is cut short, [`Self::put_back`] undoes it.
    pub(super) fn set_aside(&mut self) -> Result<PathBuf, S3OpenError> {
        let aside = free_name(&self.file);
        let path = note_of(&self.file);
        let mut name = aside.file_name().unwrap_or_default().as_bytes().to_vec();
        name.push(END);
        let noted = self
            .note
            .set_len(0)
            .and_then(|()| self.note.rewind())
            .and_then(|()| self.note.write_all(&name))
            .and_then(|()| self.note.sync_all());
        noted.map_err(|error| wrong(&path, &error))?;
        sync_names(&self.file)?;
        self.aside = Some(aside.clone());
        for suffix in ["-tails", "-wal"] {
            rename_if_there(&beside(&self.file, suffix), &beside(&aside, suffix))?;
        }
        // The log's index is made anew.
        remove_file(&beside(&self.file, "-shm"))?;
        // Names reach the disk in no order of their own.
        sync_names(&self.file)?;
        rename(&self.file, &aside)?;
        sync_names(&self.file)?;
        Ok(aside)
    }

    /// Lets the cache be mounted again.
    pub(super) fn end(self) -> Result<(), S3OpenError> {
        remove_file(&note_of(&self.file))?;
        sync_names(&self.file)
    }
}

/// Holds a file as a mount does.
fn hold(held: &File, cache: &Path) -> Result<(), S3OpenError> {
    match flock(held, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(S3OpenError::of_open(
            cache,
            OpenError::Owned(cache.to_owned()),
        )),
        Err(error) => Err(wrong(cache, &error)),
    }
}

/// A name beside a file that nothing has.
fn free_name(file: &Path) -> PathBuf {
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let mut name = beside(file, &format!(".set-aside-{now}"));
    let mut other = 2;
    let is_taken = |name: &Path| {
        let all = ["", "-wal", "-tails"];
        all.iter().any(|suffix| beside(name, suffix).exists())
    };
    while is_taken(&name) {
        name = beside(file, &format!(".set-aside-{now}-{other}"));
        other += 1;
    }
    name
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn fill(file: &Path, content: &str) {
        for suffix in ["", "-wal"] {
            std::fs::write(beside(file, suffix), content).unwrap();
        }
        std::fs::create_dir_all(beside(file, "-tails")).unwrap();
        std::fs::write(beside(file, "-tails").join("7"), content).unwrap();
    }

    fn holds(file: &Path, content: &str) {
        for suffix in ["", "-wal", "-tails/7"] {
            let found = std::fs::read_to_string(beside(file, suffix)).unwrap();
            assert_eq!(found, content, "{suffix}");
        }
    }

    #[test]
    fn a_cache_is_put_back_in_the_place_of_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.db");
        fill(&file, "old");
        let mut way = OnItsWay::begin(&file).unwrap();
        let aside = way.set_aside().unwrap();
        holds(&aside, "old");
        assert!(OnItsWay::begin(&file).is_err(), "one at a time");
        fill(&file, "new");
        // Killed.
        drop(way);
        assert!(must_not_be_on_its_way(&file).is_err());
        let mut way = OnItsWay::begin(&file).unwrap();
        way.put_back().unwrap();
        holds(&file, "old");
        assert!(!aside.exists() && !way.is_aside());
        way.end().unwrap();
        must_not_be_on_its_way(&file).unwrap();
    }

    #[test]
    fn a_log_takes_the_place_of_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.db");
        fill(&file, "old");
        let mut way = OnItsWay::begin(&file).unwrap();
        let aside = way.set_aside().unwrap();
        // Somebody has renamed the database alone, and a log has come beside it.
        std::fs::rename(&aside, &file).unwrap();
        std::fs::write(beside(&file, "-wal"), "new").unwrap();
        let told = way.put_back().unwrap_err().to_string();
        assert!(told.contains("both are there") && way.is_aside(), "{told}");
        let log = std::fs::read_to_string(beside(&aside, "-wal")).unwrap();
        assert_eq!(log, "old");
    }
}
