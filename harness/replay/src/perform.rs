//! Performs operations as system calls. This code is timed, so it allocates as little as possible.
//!
//! What runs between a system call and the next reading of the clock is inlined. Kernels that guard the return predictor make
//! the first return from a function after a system call cost 300 ns, and a caller that is inlined makes none.

use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fstat, fsync, getxattr,
    mkdirat, openat, renameat, statat, unlinkat, utimensat,
};
use rustix::io::{Errno, pread, pwrite, read, write};
use workloads::script::{FileOp, ProgramRun};

use super::PreparedOp;

/// Buffer size of `getdents64` in bytes, as in glibc's `readdir`.
const DIRENT_BUFFER: usize = 32 * 1024;

/// Bytes of a page. Content in the buffer is aligned to it.
const PAGE: usize = 4096;

/// Mode of created files: readable by all, as editors and agents create them.
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
const DIR_MODE: Mode = Mode::from_raw_mode(0o755);

/// A buffer of the results of operations, reused between calls.
#[derive(Debug)]
pub struct ResultBuffer {
    /// Content that was read, from `start` up to `used`. The rest is free.
    pub data: Vec<u8>,
    /// Offset of the first page boundary in `data`. Content starts there, as in fio's buffers, because copying
    /// to an unaligned address takes longer.
    start: usize,
    used: usize,
    /// Names and paths that were listed, each with a NUL at its end.
    pub names: Vec<u8>,
    /// The listed entries, as ranges of `names` and `data`.
    pub entries: Vec<ListedEntry>,
    dirents: Vec<MaybeUninit<u8>>,
    /// System calls that operations have made so far.
    pub system_calls: u64,
    /// The time that stands for the last call instead of its service time: that of processes in an open loop.
    pub response_ns: Option<u64>,
}

/// A listed file or directory.
#[derive(Clone, Debug)]
pub struct ListedEntry {
    /// Its name or path in [`ResultBuffer::names`].
    pub name: Range<usize>,
    /// Its content in [`ResultBuffer::data`]; empty if it was not read.
    pub content: Range<usize>,
    /// Its size in bytes, if attributes were read.
    pub size: Option<u64>,
    /// Whether it is a directory.
    pub is_dir: bool,
}

impl Default for ResultBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl ResultBuffer {
    /// Allocates the buffers for listings. [`ResultBuffer::reserve`] allocates the one for content.
    pub fn new() -> Self {
        Self {
            data: Vec::new(),
            start: 0,
            used: 0,
            names: Vec::with_capacity(64 * 1024),
            entries: Vec::with_capacity(2048),
            dirents: vec![MaybeUninit::uninit(); DIRENT_BUFFER],
            system_calls: 0,
            response_ns: None,
        }
    }

    /// Drops the results and keeps the memory.
    pub fn clear(&mut self) {
        self.used = self.start;
        self.names.clear();
        self.entries.clear();
    }

    /// Reserves room for `bytes` more of content, so that no timed call allocates.
    pub fn reserve(&mut self, bytes: usize) {
        if self.data.len() < self.used + bytes {
            self.data.resize(self.used + bytes + PAGE, 0);
            // Existing content must stay in place.
            if self.used == self.start {
                self.start = self.data.as_ptr().align_offset(PAGE);
                self.used = self.start;
            }
        }
    }

    /// Appends content as if an operation had read it. Returns its range in [`ResultBuffer::data`].
    pub fn put(&mut self, content: &[u8]) -> Range<usize> {
        self.reserve(content.len());
        let start = self.used;
        self.used += content.len();
        self.data[start..self.used].copy_from_slice(content);
        start..self.used
    }

    /// The end of the content, for [`ResultBuffer::back_to`].
    pub fn mark(&self) -> usize {
        self.used
    }

    /// Drops the content after a mark.
    pub fn back_to(&mut self, mark: usize) {
        self.used = mark.max(self.start);
    }

    /// Opens a file. Counts two system calls: open and the later close.
    #[inline(always)]
    fn open(&mut self, path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.system_calls += 1;
        let file = open(path, flags)?;
        self.system_calls += 1;
        Ok(file)
    }

    #[inline(always)]
    fn write_all(&mut self, content: &[u8], write: impl FnMut(&[u8]) -> Result<usize, Errno>) -> Result<(), Errno> {
        self.system_calls += write_all(content, write)?;
        Ok(())
    }

    /// Reads up to `size` bytes with one call of `read`. A short read is returned as it is.
    #[inline(always)]
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

    /// Calls `read` until it returns 0 or `size` bytes have been read.
    #[inline(always)]
    fn fill(
        &mut self,
        size: usize,
        mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Range<usize>, Errno> {
        // Allocates only for a file that is larger than the model expects.
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

/// The result of an operation. Content and names are in the [`ResultBuffer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Success.
    Done,
    /// Content, as a range of [`ResultBuffer::data`].
    Bytes(Range<usize>),
    /// The other host did not show the expected content in time.
    NotSeen,
    /// Attributes.
    Attributes {
        /// Size in bytes.
        size: u64,
        /// Whether it is a directory.
        is_dir: bool,
    },
    /// Entries, as a range of [`ResultBuffer::entries`].
    Entries(Range<usize>),
    /// A program has exited.
    Ran {
        /// How.
        status: ExitStatus,
        /// Its standard output, as a range of [`ResultBuffer::data`].
        said: Range<usize>,
        /// Its standard error.
        error: String,
    },
}

/// Executes an operation.
/// The error is that of the first system call that failed.
#[inline(always)]
pub fn perform(prepared: &PreparedOp<'_>, buffer: &mut ResultBuffer) -> Result<Observation, Errno> {
    let path = prepared.path.as_c_str();
    match prepared.op {
        // `SeenByOther` reads once: the caller retries.
        FileOp::Read(_) | FileOp::Ask { .. } | FileOp::SeenByOther { .. } => {
            let file = buffer.open(path, OFlags::RDONLY)?;
            buffer.system_calls += 1;
            let size = fstat(&file)?.st_size as usize;
            let bytes = buffer.fill(size, |room| read(&file, room))?;
            return Ok(Observation::Bytes(bytes));
        }
        FileOp::ReadAt { offset, length, .. } => {
            let file = buffer.open(path, OFlags::RDONLY)?;
            let bytes = buffer.fill_once(*length, |room| pread(&file, room, *offset))?;
            return Ok(Observation::Bytes(bytes));
        }
        FileOp::ReadOpen { offset, length, .. } => {
            let file = prepared.open.as_deref().ok_or(Errno::BADF)?;
            let bytes = buffer.fill_once(*length, |room| pread(file, room, *offset))?;
            return Ok(Observation::Bytes(bytes));
        }
        FileOp::Write { content, sync, .. } => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
            let file = buffer.open(path, flags)?;
            buffer.write_all(content, |rest| write(&file, rest))?;
            if *sync {
                buffer.system_calls += 1;
                fsync(&file)?;
            }
        }
        FileOp::WriteAt { offset, content, sync, .. } => {
            let file = buffer.open(path, OFlags::WRONLY)?;
            let mut at = *offset;
            buffer.write_all(content, |rest| {
                let written = pwrite(&file, rest, at)?;
                at += written as u64;
                Ok(written)
            })?;
            if *sync {
                buffer.system_calls += 1;
                fsync(&file)?;
            }
        }
        FileOp::Append { content, .. } => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
            let file = buffer.open(path, flags)?;
            buffer.write_all(content, |rest| write(&file, rest))?;
        }
        FileOp::Create(_) => {
            buffer.open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        }
        FileOp::Stat(_) => {
            buffer.system_calls += 1;
            let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
            return Ok(Observation::Attributes {
                size: stat.st_size as u64,
                is_dir: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
            });
        }
        FileOp::List { attributes, .. } => {
            let dir = buffer.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
            let start = buffer.entries.len();
            list(&dir, b"", buffer)?;
            if *attributes {
                for at in start..buffer.entries.len() {
                    buffer.system_calls += 1;
                    let name = c_name(&buffer.names, &buffer.entries[at].name)?;
                    let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    buffer.entries[at].size = Some(stat.st_size as u64);
                }
            }
            return Ok(Observation::Entries(start..buffer.entries.len()));
        }
        FileOp::Search(_) => return walk(path, true, buffer),
        FileOp::Walk(_) => return walk(path, false, buffer),
        FileOp::Rename { .. } => {
            let to = prepared.to.as_deref().unwrap_or(path);
            buffer.system_calls += 1;
            renameat(CWD, path, CWD, to)?;
        }
        FileOp::Remove(_) => {
            buffer.system_calls += 1;
            unlinkat(CWD, path, AtFlags::empty())?;
        }
        FileOp::MakeDir(_) => make_dirs(path, buffer)?,
        FileOp::RemoveDir(_) => {
            buffer.system_calls += 1;
            unlinkat(CWD, path, AtFlags::REMOVEDIR)?;
        }
        FileOp::Sync(_) => sync(path, buffer)?,
        FileOp::SyncAll { .. } => {
            if prepared.has_bucket {
                let mut answer = [0; 64];
                buffer.system_calls += 1;
                let length = getxattr(path, c"user.ctx.sync", &mut answer[..])?;
                if answer.get(..length) != Some(b"durable") {
                    return Err(Errno::IO);
                }
            } else {
                for file in &prepared.files {
                    sync(file, buffer)?;
                }
            }
        }
        FileOp::Touch(_) => {
            let root = prepared.to.as_deref().unwrap_or(path);
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let times = Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: now };
            utimensat(CWD, root, &times, AtFlags::empty())?;
            // Closing a file makes an index check for changes.
            buffer.open(path, OFlags::RDONLY)?;
        }
        FileOp::Together { .. } => {
            let workers = prepared.workers.as_ref().ok_or(Errno::CHILD)?;
            buffer.response_ns = workers.run()?;
        }
        FileOp::AddLine { line, .. } => return add_line(path, line, buffer),
        FileOp::Run(command) => return run(command, path, buffer),
    }
    Ok(Observation::Done)
}

/// The environment of a program: no configuration of the user, and the same times, names and language everywhere.
const ENVIRONMENT: [(&str, &str); 10] = [
    ("HOME", "/nonexistent"),
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_AUTHOR_NAME", "ctxbench"),
    ("GIT_AUTHOR_EMAIL", "ctxbench@localhost"),
    ("GIT_AUTHOR_DATE", "2026-01-01T00:00:00Z"),
    ("GIT_COMMITTER_NAME", "ctxbench"),
    ("GIT_COMMITTER_EMAIL", "ctxbench@localhost"),
    ("GIT_COMMITTER_DATE", "2026-01-01T00:00:00Z"),
];

/// The search path of programs: the distribution's directories, then those of rustup's toolchain. rustup's own
/// `cargo` needs the user's configuration, which programs do not get.
fn search_path() -> &'static str {
    // Static, because asking rustup takes as long as many calls.
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let mut path = "/usr/local/bin:/usr/bin:/bin".to_owned();
        let found = Command::new("rustup").args(["which", "cargo"]).output();
        if let Ok(found) = found
            && let Ok(cargo) = String::from_utf8(found.stdout)
            && let Some((directory, _)) = cargo.rsplit_once('/')
        {
            path = format!("{path}:{directory}");
        }
        path
    })
}

/// Directories in which programs are looked up.
pub fn program_directories() -> impl Iterator<Item = &'static Path> {
    search_path().split(':').map(Path::new)
}

/// A program with its arguments, in `directory` and in the environment that all programs get.
pub fn program(name: &str, arguments: &[impl AsRef<OsStr>], directory: &Path) -> Command {
    // By its path: to look a name up in another `PATH`, the standard library forks. A fork copies the page tables of the
    // harness, which takes longer than many programs and longer with each epoch; `posix_spawn` copies none.
    let found = program_directories().map(|place| place.join(name)).find(|file| inputs::is_program(file));
    let mut command = Command::new(found.as_deref().unwrap_or(Path::new(name)));
    command
        .arg0(name)
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", search_path())
        .envs(ENVIRONMENT)
        .stdin(Stdio::null());
    command
}

/// Runs a program in `directory` until it exits.
fn run(run: &ProgramRun, directory: &CStr, buffer: &mut ResultBuffer) -> Result<Observation, Errno> {
    let Some((name, arguments)) = run.command.split_first() else {
        return Err(Errno::INVAL);
    };
    let directory = Path::new(OsStr::from_bytes(directory.to_bytes()));
    let output = program(name, arguments, directory).output();
    let output = output.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(Observation::Ran {
        status: output.status,
        said: buffer.put(&output.stdout),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

#[inline(always)]
fn sync(path: &CStr, buffer: &mut ResultBuffer) -> Result<(), Errno> {
    let file = buffer.open(path, OFlags::RDONLY)?;
    buffer.system_calls += 1;
    fsync(&file)
}

/// Rewrites a file with `line` appended. Returns the content before.
fn add_line(path: &CStr, line: &[u8], buffer: &mut ResultBuffer) -> Result<Observation, Errno> {
    let held = match buffer.open(path, OFlags::RDONLY) {
        Ok(file) => {
            buffer.system_calls += 1;
            let size = fstat(&file)?.st_size as usize;
            // The line is placed right behind the content.
            buffer.reserve(size + line.len());
            buffer.fill(size, |room| read(&file, room))?
        }
        Err(Errno::NOENT) => {
            buffer.reserve(line.len());
            buffer.fill(0, |_| Ok(0))?
        }
        Err(error) => return Err(error),
    };
    let end = buffer.put(line).end;
    let file = buffer.open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
    buffer.system_calls += write_all(&buffer.data[held.start..end], |rest| write(&file, rest))?;
    Ok(Observation::Bytes(held))
}

#[inline(always)]
fn open(path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(CWD, path, flags | OFlags::CLOEXEC, FILE_MODE)
}

/// Writes all of `content`. Returns the number of calls.
#[inline(always)]
fn write_all(content: &[u8], mut write: impl FnMut(&[u8]) -> Result<usize, Errno>) -> Result<u64, Errno> {
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
fn list(dir: &OwnedFd, prefix: &[u8], buffer: &mut ResultBuffer) -> Result<(), Errno> {
    let mut dirents = RawDir::new(dir, &mut buffer.dirents);
    loop {
        buffer.system_calls += u64::from(dirents.is_buffer_empty());
        let Some(dirent) = dirents.next() else {
            break;
        };
        let dirent = dirent?;
        let name = dirent.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let start = buffer.names.len();
        buffer.names.extend_from_slice(prefix);
        buffer.names.extend_from_slice(name);
        let end = buffer.names.len();
        // The NUL lets the next system call use the name without a copy.
        buffer.names.push(0);
        let is_dir = match dirent.file_type() {
            FileType::Unknown => {
                buffer.system_calls += 1;
                let stat = statat(dir, dirent.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            }
            known => known == FileType::Directory,
        };
        buffer.entries.push(ListedEntry { name: start..end, content: 0..0, size: None, is_dir });
    }
    Ok(())
}

fn c_name<'a>(names: &'a [u8], name: &Range<usize>) -> Result<&'a CStr, Errno> {
    CStr::from_bytes_with_nul(&names[name.start..=name.end]).map_err(|_| Errno::ILSEQ)
}

/// Lists the tree at `top` breadth first, and reads its files if `contents`. Entries are paths below `top`.
fn walk(top: &CStr, contents: bool, buffer: &mut ResultBuffer) -> Result<Observation, Errno> {
    let start = buffer.entries.len();
    let top = buffer.open(top, OFlags::RDONLY | OFlags::DIRECTORY)?;
    list(&top, b"", buffer)?;
    let mut at = start;
    while at < buffer.entries.len() {
        let entry = buffer.entries[at].clone();
        if entry.is_dir || contents {
            // Open and close.
            buffer.system_calls += 2;
        }
        let path = c_name(&buffer.names, &entry.name)?;
        if entry.is_dir {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = openat(top.as_fd(), path, flags, Mode::empty())?;
            let mut prefix = path.to_bytes().to_vec();
            prefix.push(b'/');
            list(&dir, &prefix, buffer)?;
        } else if contents {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let file = openat(top.as_fd(), path, flags, Mode::empty())?;
            buffer.system_calls += 1;
            let size = fstat(&file)?.st_size as usize;
            buffer.entries[at].content = buffer.fill(size, |room| read(&file, room))?;
        }
        at += 1;
    }
    Ok(Observation::Entries(start..buffer.entries.len()))
}

/// Creates a directory and its missing parents.
fn make_dirs(path: &CStr, buffer: &mut ResultBuffer) -> Result<(), Errno> {
    buffer.system_calls += 1;
    match mkdirat(CWD, path, DIR_MODE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => {
            let bytes = path.to_bytes();
            let parent = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            if parent == 0 {
                return Err(Errno::NOENT);
            }
            let parent = std::ffi::CString::new(&bytes[..parent]).map_err(|_| Errno::ILSEQ)?;
            make_dirs(&parent, buffer)?;
            buffer.system_calls += 1;
            mkdirat(CWD, path, DIR_MODE)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_started_by_its_path_and_keeps_its_name() {
        let mut shell = program("sh", &["-c", "echo $0"], Path::new("/"));
        assert!(Path::new(shell.get_program()).is_absolute(), "a name makes the standard library fork: {shell:?}");
        assert_eq!(shell.output().unwrap().stdout, b"sh\n");
        let missing = program("no-such-program", &[""; 0], Path::new("/"));
        assert_eq!(missing.get_program(), "no-such-program");
    }
}
