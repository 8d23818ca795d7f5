//! Operations as system calls. This is what is timed: nothing here allocates more than it must.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ops::Range;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    fstat, fsync, getxattr, mkdirat, openat, renameat, statat, unlinkat, utimensat,
};
use rustix::io::{Errno, pread, pwrite, read, write};
use workloads::script::FileOp;

use super::Prepared;

/// Bytes of directory entries asked for at once, as glibc's `readdir` does.
const DIRENT_BUFFER: usize = 32 * 1024;

/// Bytes of a page, to which the buffer is aligned.
const PAGE: usize = 4096;

/// Permissions of what is created: readable by all, as editors and agents do.
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
const DIR_MODE: Mode = Mode::from_raw_mode(0o755);

/// Memory for what operations return, kept from one call to the next.
#[derive(Debug)]
pub struct Scratch {
    /// Content that was read, from `start` up to `used`; what follows is room.
    pub data: Vec<u8>,
    /// Where the first page border in `data` is: content starts there, as in fio's buffers, because
    /// copying to an unaligned place takes longer.
    start: usize,
    used: usize,
    /// Names and paths that were listed, one after the other.
    pub names: Vec<u8>,
    /// What was listed, by its place in `names` and `data`.
    pub entries: Vec<Entry>,
    dirents: Vec<MaybeUninit<u8>>,
    /// System calls that operations have made.
    pub system_calls: u64,
}

/// Something that was listed or found.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name or path in [`Scratch::names`].
    pub name: Range<usize>,
    /// Its content in [`Scratch::data`], if it was read.
    pub content: Range<usize>,
    /// Its size in bytes, if attributes were asked for.
    pub size: Option<u64>,
    /// Whether it is a directory.
    pub is_dir: bool,
}

impl Scratch {
    /// Memory for listings; room for content comes with [`Scratch::reserve`].
    pub fn new() -> Self {
        Self {
            data: Vec::new(),
            start: 0,
            used: 0,
            names: Vec::with_capacity(64 * 1024),
            entries: Vec::with_capacity(2048),
            dirents: vec![MaybeUninit::uninit(); DIRENT_BUFFER],
            system_calls: 0,
        }
    }

    /// Forgets what the last call returned; keeps the memory.
    pub fn clear(&mut self) {
        self.used = self.start;
        self.names.clear();
        self.entries.clear();
    }

    /// Makes room for `bytes` of content, so that no call under the clock has to.
    pub fn reserve(&mut self, bytes: usize) {
        if self.data.len() < self.used + bytes {
            self.data.resize(self.used + bytes + PAGE, 0);
            // Content that is there already stays where it is.
            if self.used == self.start {
                self.start = self.data.as_ptr().align_offset(PAGE);
                self.used = self.start;
            }
        }
    }

    /// Puts content in, as if it had been read.
    pub fn put(&mut self, content: &[u8]) -> Range<usize> {
        self.reserve(content.len());
        let start = self.used;
        self.used += content.len();
        self.data[start..self.used].copy_from_slice(content);
        start..self.used
    }

    /// How much has been read by now.
    pub fn mark(&self) -> usize {
        self.used
    }

    /// Forgets what was read after a mark.
    pub fn back_to(&mut self, mark: usize) {
        self.used = mark.max(self.start);
    }

    /// Opens a file and counts that and its closing.
    fn open(&mut self, path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.system_calls += 1;
        let file = open(path, flags)?;
        self.system_calls += 1;
        Ok(file)
    }

    fn write_all(
        &mut self,
        content: &[u8],
        write: impl FnMut(&[u8]) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        self.system_calls += write_all(content, write)?;
        Ok(())
    }

    /// Fills up to `size` bytes of room by one call of `read`: a short answer is an answer.
    fn fill_once(
        &mut self,
        size: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Range<usize>, Errno> {
        self.reserve(size);
        self.system_calls += 1;
        let start = self.used;
        self.used += read(&mut self.data[start..start + size])?;
        Ok(start..self.used)
    }

    /// Fills up to `size` bytes of room by `read`, called until it returns 0 or they are there.
    fn fill(
        &mut self,
        size: usize,
        mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Range<usize>, Errno> {
        // Only a file that is larger than the model says gets here without room.
        self.reserve(size);
        let start = self.used;
        while self.used < start + size {
            self.system_calls += 1;
            match read(&mut self.data[self.used..start + size])? {
                0 => break,
                read => self.used += read,
            }
        }
        Ok(start..self.used)
    }
}

/// What an operation returned; contents and names are in the [`Scratch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Success.
    Done,
    /// Bytes, at this place in the scratch's data.
    Bytes(Range<usize>),
    /// Another host did not show in time what was to be seen on it.
    NotSeen,
    /// Attributes.
    Attributes {
        /// Size in bytes.
        size: u64,
        /// Whether it is a directory.
        is_dir: bool,
    },
    /// Entries, at these places in the scratch's entries.
    Entries(Range<usize>),
}

/// Executes an operation.
///
/// # Errors
/// The error number of the first system call that failed.
pub fn perform(prepared: &Prepared<'_>, scratch: &mut Scratch) -> Result<Observed, Errno> {
    let path = prepared.path.as_c_str();
    match prepared.op {
        // One look: whoever waits looks again.
        FileOp::Read(_) | FileOp::Ask { .. } | FileOp::SeenByOther { .. } => {
            let file = scratch.open(path, OFlags::RDONLY)?;
            scratch.system_calls += 1;
            let size = fstat(&file)?.st_size as usize;
            let bytes = scratch.fill(size, |room| read(&file, room))?;
            Ok(Observed::Bytes(bytes))
        }
        FileOp::ReadAt { offset, length, .. } => {
            let file = scratch.open(path, OFlags::RDONLY)?;
            let bytes = scratch.fill_once(*length, |room| pread(&file, room, *offset))?;
            Ok(Observed::Bytes(bytes))
        }
        FileOp::ReadOpen { offset, length, .. } => {
            let file = prepared.open.as_deref().ok_or(Errno::BADF)?;
            let bytes = scratch.fill_once(*length, |room| pread(file, room, *offset))?;
            Ok(Observed::Bytes(bytes))
        }
        FileOp::Write { content, sync, .. } => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
            let file = scratch.open(path, flags)?;
            scratch.write_all(content, |rest| write(&file, rest))?;
            if *sync {
                scratch.system_calls += 1;
                fsync(&file)?;
            }
            Ok(Observed::Done)
        }
        FileOp::WriteAt {
            offset,
            content,
            sync,
            ..
        } => {
            let file = scratch.open(path, OFlags::WRONLY)?;
            let mut at = *offset;
            scratch.write_all(content, |rest| {
                let written = pwrite(&file, rest, at)?;
                at += written as u64;
                Ok(written)
            })?;
            if *sync {
                scratch.system_calls += 1;
                fsync(&file)?;
            }
            Ok(Observed::Done)
        }
        FileOp::Append { content, .. } => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
            let file = scratch.open(path, flags)?;
            scratch.write_all(content, |rest| write(&file, rest))?;
            Ok(Observed::Done)
        }
        FileOp::Create(_) => {
            scratch.open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
            Ok(Observed::Done)
        }
        FileOp::Stat(_) => {
            scratch.system_calls += 1;
            let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(Observed::Attributes {
                size: stat.st_size as u64,
                is_dir: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
            })
        }
        FileOp::List { attributes, .. } => {
            let dir = scratch.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
            let start = scratch.entries.len();
            list(&dir, b"", scratch)?;
            if *attributes {
                for at in start..scratch.entries.len() {
                    scratch.system_calls += 1;
                    let name = c_name(&scratch.names, &scratch.entries[at].name)?;
                    let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    scratch.entries[at].size = Some(stat.st_size as u64);
                }
            }
            Ok(Observed::Entries(start..scratch.entries.len()))
        }
        FileOp::Search(_) => walk(path, true, scratch),
        FileOp::Walk(_) => walk(path, false, scratch),
        FileOp::Rename { .. } => {
            let to = prepared.to.as_deref().unwrap_or(path);
            scratch.system_calls += 1;
            renameat(CWD, path, CWD, to)?;
            Ok(Observed::Done)
        }
        FileOp::Remove(_) => {
            scratch.system_calls += 1;
            unlinkat(CWD, path, AtFlags::empty())?;
            Ok(Observed::Done)
        }
        FileOp::MakeDir(_) => make_dirs(path, scratch),
        FileOp::Sync(_) => {
            sync(path, scratch)?;
            Ok(Observed::Done)
        }
        FileOp::SyncAll { .. } => {
            if prepared.has_bucket {
                let mut answer = [0; 64];
                scratch.system_calls += 1;
                let length = getxattr(path, c"user.ctx.sync", &mut answer[..])?;
                let is_durable = answer.get(..length) == Some(b"durable");
                return is_durable.then_some(Observed::Done).ok_or(Errno::IO);
            }
            for file in &prepared.files {
                sync(file, scratch)?;
            }
            Ok(Observed::Done)
        }
        FileOp::Touch(_) => {
            let root = prepared.to.as_deref().unwrap_or(path);
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_NOW,
            };
            let times = Timestamps {
                last_access: Timespec {
                    tv_sec: 0,
                    tv_nsec: UTIME_OMIT,
                },
                last_modification: now,
            };
            utimensat(CWD, root, &times, AtFlags::empty())?;
            // A file that is closed is when an index looks for what has changed.
            scratch.open(path, OFlags::RDONLY)?;
            Ok(Observed::Done)
        }
        FileOp::Together { .. } => {
            let workers = prepared.workers.as_ref().ok_or(Errno::CHILD)?;
            workers.run()?;
            Ok(Observed::Done)
        }
        FileOp::AddLine { line, .. } => add_line(path, line, scratch),
    }
}

fn sync(path: &CStr, scratch: &mut Scratch) -> Result<(), Errno> {
    let file = scratch.open(path, OFlags::RDONLY)?;
    scratch.system_calls += 1;
    fsync(&file)
}

/// Writes what a file holds and a line behind it; answers what it held.
fn add_line(path: &CStr, line: &[u8], scratch: &mut Scratch) -> Result<Observed, Errno> {
    let held = match scratch.open(path, OFlags::RDONLY) {
        Ok(file) => {
            scratch.system_calls += 1;
            let size = fstat(&file)?.st_size as usize;
            // Room for the line, too: it comes right behind.
            scratch.reserve(size + line.len());
            scratch.fill(size, |room| read(&file, room))?
        }
        Err(Errno::NOENT) => {
            scratch.reserve(line.len());
            scratch.fill(0, |_| Ok(0))?
        }
        Err(error) => return Err(error),
    };
    let end = scratch.put(line).end;
    let file = scratch.open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
    scratch.system_calls += write_all(&scratch.data[held.start..end], |rest| write(&file, rest))?;
    Ok(Observed::Bytes(held))
}

fn open(path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(CWD, path, flags | OFlags::CLOEXEC, FILE_MODE)
}

/// Writes all of it; answers how many calls that took.
fn write_all(
    content: &[u8],
    mut write: impl FnMut(&[u8]) -> Result<usize, Errno>,
) -> Result<u64, Errno> {
    let mut rest = content;
    let mut calls = 0;
    while !rest.is_empty() {
        calls += 1;
        let written = write(rest)?;
        if written == 0 {
            return Err(Errno::IO);
        }
        rest = &rest[written..];
    }
    Ok(calls)
}

/// Appends the entries of a directory, each name after `prefix`.
fn list(dir: &OwnedFd, prefix: &[u8], scratch: &mut Scratch) -> Result<(), Errno> {
    let mut dirents = RawDir::new(dir, &mut scratch.dirents);
    loop {
        scratch.system_calls += u64::from(dirents.is_buffer_empty());
        let Some(dirent) = dirents.next() else {
            break;
        };
        let dirent = dirent?;
        let name = dirent.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let start = scratch.names.len();
        scratch.names.extend_from_slice(prefix);
        scratch.names.extend_from_slice(name);
        let end = scratch.names.len();
        // Each name ends in a NUL, so that it can go into the next system call as it is.
        scratch.names.push(0);
        let is_dir = match dirent.file_type() {
            FileType::Unknown => {
                scratch.system_calls += 1;
                let stat = statat(dir, dirent.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            }
            known => known == FileType::Directory,
        };
        scratch.entries.push(Entry {
            name: start..end,
            content: 0..0,
            size: None,
            is_dir,
        });
    }
    Ok(())
}

fn c_name<'a>(names: &'a [u8], name: &Range<usize>) -> Result<&'a CStr, Errno> {
    CStr::from_bytes_with_nul(&names[name.start..=name.end]).map_err(|_| Errno::ILSEQ)
}

/// Lists a tree from its root down, and reads the files if `contents`. Entries are paths below `top`.
fn walk(top: &CStr, contents: bool, scratch: &mut Scratch) -> Result<Observed, Errno> {
    let start = scratch.entries.len();
    let top = scratch.open(top, OFlags::RDONLY | OFlags::DIRECTORY)?;
    list(&top, b"", scratch)?;
    let mut at = start;
    while at < scratch.entries.len() {
        let entry = scratch.entries[at].clone();
        if entry.is_dir || contents {
            // Opening and closing.
            scratch.system_calls += 2;
        }
        let path = c_name(&scratch.names, &entry.name)?;
        if entry.is_dir {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = openat(top.as_fd(), path, flags, Mode::empty())?;
            let mut prefix = path.to_bytes().to_vec();
            prefix.push(b'/');
            list(&dir, &prefix, scratch)?;
        } else if contents {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let file = openat(top.as_fd(), path, flags, Mode::empty())?;
            scratch.system_calls += 1;
            let size = fstat(&file)?.st_size as usize;
            scratch.entries[at].content = scratch.fill(size, |room| read(&file, room))?;
        }
        at += 1;
    }
    Ok(Observed::Entries(start..scratch.entries.len()))
}

/// Creates a directory and those above it, as far as they are missing.
fn make_dirs(path: &CStr, scratch: &mut Scratch) -> Result<Observed, Errno> {
    scratch.system_calls += 1;
    match mkdirat(CWD, path, DIR_MODE) {
        Ok(()) | Err(Errno::EXIST) => Ok(Observed::Done),
        Err(Errno::NOENT) => {
            let bytes = path.to_bytes();
            let parent = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            if parent == 0 {
                return Err(Errno::NOENT);
            }
            let parent = std::ffi::CString::new(&bytes[..parent]).map_err(|_| Errno::ILSEQ)?;
            make_dirs(&parent, scratch)?;
            scratch.system_calls += 1;
            mkdirat(CWD, path, DIR_MODE)?;
            Ok(Observed::Done)
        }
        Err(error) => Err(error),
    }
}
