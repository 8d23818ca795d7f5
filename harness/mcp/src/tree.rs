//! Files of a directory tree from which no path leads out. The texts of the tools are in [`super::files`].

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::RwLock;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::toolset::ToolAnswer;

/// The largest file that a tool reads, in bytes.
pub const FILE_MAX: u64 = 16 << 20;

/// The most directories that a listing reads.
const DIRECTORIES_MAX: usize = 100_000;

/// How many locks the files share: a call that hangs in a file blocks few others.
const LOCKS: usize = 64;

/// A directory and everything below it.
pub struct DirectoryTree {
    root: OwnedFd,
    /// By path: a write is not atomic, and calls come side by side.
    locks: Box<[RwLock<()>; LOCKS]>,
}

impl DirectoryTree {
    /// Opens the tree below `dir`.
    ///
    /// # Errors
    /// If `dir` is not a directory that can be opened.
    pub fn open(dir: &Path) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(dir, flags, Mode::empty())?;
        Ok(Self { root, locks: Box::new([const { RwLock::new(()) }; LOCKS]) })
    }

    /// The lock of the file at a path.
    fn lock_of(&self, path: &str) -> &RwLock<()> {
        let mut hasher = DefaultHasher::new();
        for component in Path::new(path).components() {
            if component != Component::CurDir {
                component.hash(&mut hasher);
            }
        }
        &self.locks[hasher.finish() as usize % LOCKS]
    }

    fn beneath(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mode = match flags.contains(OFlags::CREATE) {
            true => Mode::from_raw_mode(0o666),
            false => Mode::empty(),
        };
        // The kernel refuses what `..`, a symbolic link or an absolute path leads out.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.root, path, flags | OFlags::CLOEXEC, mode, resolve)
    }

    /// The content of a regular file.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let failed = |error: Errno| format!("cannot read {path}: {}", reason(error));
        let _lock = self.lock_of(path).read();
        // A FIFO must not make the server wait for its writer.
        let file = self.beneath(path, OFlags::RDONLY | OFlags::NONBLOCK).map_err(failed)?;
        let stat = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(format!("cannot read {path}: it is not a regular file"));
        }
        let mut content = Vec::new();
        let limited = File::from(file).take(FILE_MAX + 1).read_to_end(&mut content);
        limited.map_err(|error| format!("cannot read {path}: {error}"))?;
        if content.len() as u64 > FILE_MAX {
            return Err(format!("cannot read {path}: it is larger than {FILE_MAX} bytes"));
        }
        Ok(content)
    }

    /// Creates or replaces a file, and creates missing directories. With `new`, an existing file is an error.
    ///
    /// # Errors
    /// [`Errno`] of the failed call; [`Errno::XDEV`] if the path leaves the tree.
    pub fn write(&self, path: &str, content: &[u8], new: bool) -> Result<(), Errno> {
        self.make_parents(path)?;
        let _lock = self.lock_of(path).write();
        let only_new = match new {
            true => OFlags::EXCL,
            false => OFlags::TRUNC,
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | only_new;
        let mut file = File::from(self.beneath(path, flags)?);
        file.write_all(content).map_err(|error| errno(&error))?;
        // `close` reports what the mount could not keep; dropping the file would lose that.
        nix::unistd::close(file).map_err(|error| Errno::from_raw_os_error(error as i32))
    }

    /// Creates a symbolic link in the root.
    ///
    /// # Errors
    /// [`Errno`] of the failed call.
    pub fn symlink(&self, target: &str, name: &str) -> Result<(), Errno> {
        symlinkat(target, &self.root, name)
    }

    /// Removes a name from the root.
    ///
    /// # Errors
    /// [`Errno`] of the failed call.
    pub fn remove(&self, name: &str) -> Result<(), Errno> {
        unlinkat(&self.root, name, AtFlags::empty())
    }

    /// Removes the symbolic links of the root whose names begin with `start`, and that are older than `age`.
    ///
    /// # Errors
    /// [`Errno`] of the failed call.
    pub fn remove_links(&self, start: &str, age: Duration) -> Result<(), Errno> {
        let root = self.beneath(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        for entry in Dir::read_from(&root)? {
            let entry = entry?;
            let name = entry.file_name();
            if !name.to_bytes().starts_with(start.as_bytes()) {
                continue;
            }
            let Ok(stat) = statat(&root, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let made = UNIX_EPOCH + Duration::from_secs(stat.st_mtime.unsigned_abs());
            let is_old = made.elapsed().is_ok_and(|elapsed| elapsed > age);
            if is_old && FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                unlinkat(&root, name, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    fn make_parents(&self, path: &str) -> Result<(), Errno> {
        let Some(parent) = Path::new(path).parent() else {
            return Ok(());
        };
        let mut made = String::new();
        for component in parent.components() {
            let name = match component {
                Component::Normal(name) => name,
                Component::CurDir => continue,
                _ => return Err(Errno::XDEV),
            };
            let within = match made.is_empty() {
                true => ".",
                false => made.as_str(),
            };
            let dir = self.beneath(within, OFlags::PATH | OFlags::DIRECTORY)?;
            match mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            if !made.is_empty() {
                made.push('/');
            }
            made.push_str(name.to_str().ok_or(Errno::ILSEQ)?);
        }
        Ok(())
    }

    /// Paths and sizes in bytes of regular files below `dir`, sorted, to `limit` files and
    /// [`DIRECTORIES_MAX`] directories; and whether there are more.
    ///
    /// # Errors
    /// If `dir` cannot be listed. Directories below that vanish or cannot be opened are left out.
    pub fn list(&self, dir: &str, limit: usize) -> Result<(Vec<(String, u64)>, bool), String> {
        let failed = |error: Errno| format!("cannot list {dir}: {}", reason(error));
        let mut found = Vec::new();
        // An agent that means the whole workspace may say "" or "/", too.
        let top = match dir.trim_end_matches('/') {
            "" => ".",
            dir => dir,
        };
        let mut waiting = vec![top.to_owned()];
        let mut directories = 0;
        while let Some(dir) = waiting.pop() {
            directories += 1;
            if directories > DIRECTORIES_MAX {
                found.sort();
                return Ok((found, true));
            }
            let opened = match self.beneath(&dir, OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(opened) => opened,
                Err(error) if dir == top => return Err(failed(error)),
                Err(_) => continue,
            };
            for entry in Dir::read_from(&opened).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let Ok(name) = entry.file_name().to_str() else {
                    continue;
                };
                if name == "." || name == ".." {
                    continue;
                }
                let path = match dir.as_str() {
                    "." => name.to_owned(),
                    dir => format!("{dir}/{name}"),
                };
                let Ok(stat) = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW) else {
                    continue;
                };
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => waiting.push(path),
                    FileType::RegularFile if found.len() == limit => {
                        found.sort();
                        return Ok((found, true));
                    }
                    FileType::RegularFile => found.push((path, stat.st_size as u64)),
                    _ => {}
                }
            }
        }
        found.sort();
        Ok((found, false))
    }

    /// Whether a name resolves to something in the root.
    pub fn has(&self, name: &str) -> bool {
        self.beneath(name, OFlags::PATH).is_ok()
    }
}

/// Why a call failed, in words.
pub fn reason(error: Errno) -> String {
    match error {
        Errno::XDEV => "the path leaves the workspace; use a path relative to it".to_owned(),
        Errno::NOENT => "there is no such file; ls_files shows the existing ones".to_owned(),
        other => std::io::Error::from(other).to_string(),
    }
}

/// `saved`, or why `path` was not written.
pub fn written(path: &str, result: Result<(), Errno>, saved: String) -> ToolAnswer {
    match result {
        Ok(()) => Ok(saved),
        Err(error) => Err(format!("cannot write {path}: {}", reason(error))),
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_begin_with_the_workspace_itself() {
        let dir = tempfile::tempdir().unwrap();
        let tree = DirectoryTree::open(dir.path()).unwrap();
        tree.write("./a.md", b"a", true).unwrap();
        tree.write("./b/./c.md", b"c", true).unwrap();
        assert_eq!(tree.read("a.md").unwrap(), b"a");
        let listed = [("a.md".to_owned(), 1), ("b/c.md".to_owned(), 1)];
        for whole in [".", "", "/"] {
            assert_eq!(tree.list(whole, 9).unwrap(), (listed.to_vec(), false), "{whole:?}");
        }
        for outside in ["../d.md", "/d/e.md", "b/../../d.md"] {
            assert_eq!(tree.write(outside, b"d", true), Err(Errno::XDEV), "{outside}");
        }
    }
}
