//! Changes of a directory's own files: each is one operation below the root, and has happened whole or not at all.
//!
//! A path comes from a definition's statement, and a link in it may lead to another place of the root, but not out of it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fuse::store::{Errno, Result, StoreError};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Uid, fchmod, fchown, fdatasync, fstat,
    fsync, ftruncate, openat, openat2, renameat_with, statat, unlinkat,
};

use super::CONTENT_MAX;
use crate::source::{ExtraDirectory, FileChange, FileRow};

/// How the name of a file begins that is not complete yet. Views do not show such files.
pub(super) const UNFINISHED: &[u8] = b".ctxbench-view-";

/// A name in an open directory.
struct Place {
    dir: OwnedFd,
    name: PathBuf,
    /// The directory's path without links.
    real: PathBuf,
}

/// The directory whose files change.
pub(super) struct Files {
    root: PathBuf,
    also: Vec<ExtraDirectory>,
    /// Directories in which names have changed since they were synced.
    unsynced: BTreeSet<PathBuf>,
}

fn refused(errno: Errno, path: &Path, reason: &str) -> StoreError {
    StoreError::storage(errno, format!("{}: {reason}", path.display()))
}

/// The error of a call on a path.
fn failed(path: &Path) -> impl Fn(Errno) -> StoreError {
    move |errno| refused(errno, path, &errno.to_string())
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

impl Files {
    pub(super) fn new(root: &Path, also: Vec<ExtraDirectory>) -> Self {
        Self { root: root.to_owned(), also, unsynced: BTreeSet::new() }
    }

    /// The directory that a path may not leave, without links, and the rest of the path below it.
    fn root_of<'a>(&self, path: &'a Path) -> Result<(PathBuf, &'a Path)> {
        let also = self.also.iter().find_map(|also| Some((&also.dir, path.strip_prefix(&also.name).ok()?)));
        let (root, below) = also.unwrap_or((&self.root, path));
        let root = root.canonicalize().map_err(|error| super::away(root, error))?;
        Ok((root, below))
    }

    /// The name at a path of the source, in its directory, which must exist.
    fn place(&self, path: &Path) -> Result<Place> {
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        let (root, below) = self.root_of(path)?;
        if is_plain && below.file_name().is_some() {
            place(&root, below, path)
        } else {
            Err(refused(Errno::INVAL, path, "it is not a path below the source"))
        }
    }

    /// The regular file at a path, or the one to which a link there leads, and its metadata.
    fn file(&self, path: &Path) -> Result<(Place, Stat)> {
        let mut found = self.place(path)?;
        let mut stat = found.stat().map_err(failed(path))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            let (root, _) = self.root_of(path)?;
            let outside = || refused(Errno::ROFS, path, "the link leads to no file of the source");
            let (_, target) = super::target(&root, &found.real.join(&found.name)).ok_or_else(outside)?;
            found = place(&root, target.strip_prefix(&root).map_err(|_| outside())?, path)?;
            stat = found.stat().map_err(failed(path))?;
        }
        if is_regular(&stat) { Ok((found, stat)) } else { Err(refused(Errno::INVAL, path, "it is not a regular file")) }
    }

    /// Carries out a change that a statement's rows describe; the first row whose directory exists counts. Returns the path
    /// of the file afterwards. With `sync`, the change is durable then.
    ///
    /// # Errors
    /// Those of Linux: nothing has changed then, except that a durable change may not be durable yet.
    pub(super) fn change(&mut self, change: FileChange, rows: &[FileRow], sync: bool) -> Result<Option<PathBuf>> {
        let has_dir = |row: &&FileRow| self.place(&row.path).is_ok();
        let Some(row) = rows.iter().find(has_dir).or(rows.first()) else {
            return Ok(None);
        };
        let path = &row.path;
        match change {
            FileChange::Create { permissions } => self.create(path, row.content()?, permissions, sync)?,
            FileChange::Replace => self.replace(path, row.content()?, sync)?,
            FileChange::Append { from } => self.append(path, row.content()?, from, sync)?,
            FileChange::Remove => self.remove(path)?,
            FileChange::Move { replaces } => {
                let moved = row.moved.as_deref();
                self.rename(moved.ok_or(Errno::INVAL)?, path, replaces)?;
            }
            FileChange::Permit { permissions } => {
                let (place, _) = self.file(path)?;
                let file = place.open(OFlags::RDONLY | OFlags::NONBLOCK);
                let done = file.and_then(|file| fchmod(file, Mode::from_raw_mode(permissions.into())));
                done.map_err(failed(path))?;
            }
            FileChange::Sync => {
                let (place, _) = self.file(path)?;
                place.open(OFlags::RDONLY | OFlags::NONBLOCK).and_then(fsync).map_err(failed(path))?;
                self.sync()?;
            }
        }
        if sync {
            self.sync()?;
        }
        Ok(Some(path.clone()))
    }

    fn create(&mut self, path: &Path, content: &[u8], permissions: u16, sync: bool) -> Result<()> {
        let place = self.place(path)?;
        let prepare = |new: &File| fchmod(new, Mode::from_raw_mode(permissions.into()));
        let written = place.put(content, sync, prepare, RenameFlags::NOREPLACE);
        written.map_err(failed(path))?;
        self.unsynced.insert(place.real);
        Ok(())
    }

    fn replace(&mut self, path: &Path, content: &[u8], sync: bool) -> Result<()> {
        let (place, old) = self.file(path)?;
        // A file that may not be written is not replaced either. A FIFO that took its place makes no call wait.
        place.open(OFlags::WRONLY | OFlags::NONBLOCK).map_err(failed(path))?;
        let prepare = |new: &File| {
            let now = fstat(new)?;
            if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid) {
                fchown(new, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)))?;
            }
            // After the owner, whose change clears bits.
            fchmod(new, Mode::from_raw_mode(old.st_mode))
        };
        let written = place.put(content, sync, prepare, RenameFlags::empty());
        written.map_err(failed(path))?;
        self.unsynced.insert(place.real);
        Ok(())
    }

    /// Appends what follows the first `from` bytes of a content, in place: a program that has the file open to append, such
    /// as one that writes its log, goes on with the same file.
    fn append(&mut self, path: &Path, content: &[u8], from: usize, sync: bool) -> Result<()> {
        let (place, _) = self.file(path)?;
        let file = place.open(OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK).map_err(failed(path))?;
        let before = fstat(&file).map_err(failed(path))?;
        if !is_regular(&before) {
            return Err(refused(Errno::INVAL, path, "it is not a regular file"));
        }
        let tail = content.get(from..).unwrap_or_default();
        if before.st_size as u64 + tail.len() as u64 > CONTENT_MAX {
            return Err(too_long(path));
        }
        match rustix::io::write(&file, tail).map_err(failed(path))? {
            written if written == tail.len() => {}
            written => {
                // Take the part back, unless another program has appended after it.
                let now = fstat(&file).map_err(failed(path))?;
                if now.st_size == before.st_size + written as i64 {
                    ftruncate(&file, before.st_size as u64).map_err(failed(path))?;
                }
                return Err(refused(Errno::NOSPC, path, "the file system took only a part of it"));
            }
        }
        if sync { fdatasync(&file).map_err(failed(path)) } else { Ok(()) }
    }

    fn remove(&mut self, path: &Path) -> Result<()> {
        let place = self.place(path)?;
        unlinkat(&place.dir, &place.name, AtFlags::empty()).map_err(failed(path))?;
        self.unsynced.insert(place.real);
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path, replaces: bool) -> Result<()> {
        let (old, new) = (self.place(from)?, self.place(to)?);
        let stat = old.stat().map_err(failed(from))?;
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if is_link && old.real != new.real {
            // The link could lead elsewhere from there. `mv` copies the content instead.
            return Err(refused(Errno::XDEV, from, "it is a symbolic link, which is moved only within its directory"));
        }
        let flags = if replaces { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        renameat_with(&old.dir, &old.name, &new.dir, &new.name, flags).map_err(failed(to))?;
        self.unsynced.extend([old.real, new.real]);
        Ok(())
    }

    /// Makes all changes of names durable.
    ///
    /// # Errors
    /// That of the failed sync; the directory is synced again by the next call.
    pub(super) fn sync(&mut self) -> Result<()> {
        while let Some(dir) = self.unsynced.first() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match openat2(CWD, dir, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).and_then(fsync) {
                // It has gone, with its names.
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => return Err(failed(dir)(error)),
            }
            self.unsynced.pop_first();
        }
        Ok(())
    }
}

/// The name at a path below `root`, which is a path without links; `path` is that of the source, for messages.
fn place(root: &Path, below: &Path, path: &Path) -> Result<Place> {
    let (name, parent) = below.file_name().zip(below.parent()).ok_or(Errno::INVAL)?;
    if name.as_bytes().starts_with(UNFINISHED) {
        return Err(refused(Errno::INVAL, path, "the name is reserved for files that are not complete"));
    }
    let found = root.join(parent).canonicalize();
    let real = found.map_err(|error| {
        let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        refused(errno, path, &format!("its directory: {error}"))
    })?;
    let outside = |_| refused(Errno::ROFS, path, "a link leads out of the source");
    let below = real.strip_prefix(root).map_err(outside)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = openat2(CWD, root, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).map_err(failed(root))?;
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    // The path has no link by now. One that has replaced a part since is not followed.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let dir = openat2(&top, below, flags, Mode::empty(), resolve).map_err(failed(path))?;
    Ok(Place { dir, name: name.into(), real })
}

fn too_long(path: &Path) -> StoreError {
    refused(Errno::FBIG, path, &format!("a view shows no file of more than {} MiB", CONTENT_MAX >> 20))
}

impl FileRow {
    fn content(&self) -> Result<&[u8]> {
        let content = self.content.as_deref();
        let content =
            content.ok_or_else(|| refused(Errno::INVAL, &self.path, "it has no content that can be changed so"))?;
        if content.len() as u64 <= CONTENT_MAX { Ok(content) } else { Err(too_long(&self.path)) }
    }
}

impl Place {
    fn stat(&self) -> rustix::io::Result<Stat> {
        statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        openat(&self.dir, &self.name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
    }

    /// Writes a new file beside the place, calls `prepare` with it, and gives it the place. Removes it after an error.
    fn put(
        &self,
        content: &[u8],
        sync: bool,
        prepare: impl FnOnce(&File) -> rustix::io::Result<()>,
        flags: RenameFlags,
    ) -> rustix::io::Result<()> {
        let (mut new, temporary) = self.unfinished()?;
        let written = new.write_all(content).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        let done = written
            .and_then(|()| prepare(&new))
            .and_then(|()| if sync { fsync(&new) } else { Ok(()) })
            .and_then(|()| renameat_with(&self.dir, &temporary, &self.dir, &self.name, flags));
        if done.is_err() {
            // The first error counts.
            let _ = unlinkat(&self.dir, &temporary, AtFlags::empty());
        }
        done
    }

    /// A new file in the directory, which only its owner may read yet, and its name.
    fn unfinished(&self) -> rustix::io::Result<(File, OsString)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let end = format!("{}-{number}", std::process::id());
            let name = OsString::from_vec([UNFINISHED, end.as_bytes()].concat());
            match openat(&self.dir, &name, flags, Mode::RUSR | Mode::WUSR) {
                // A killed process with the same number has left it.
                Err(Errno::EXIST) => {}
                opened => return Ok((File::from(opened?), name)),
            }
        }
    }
}
