//! Files of a directory tree from which no path leads out. The texts of the tools are in [`super::files`].

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::RwLock;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, XattrFlags, fchmod, fchown, fgetxattr,
    flistxattr, fsetxattr, fstat, ftruncate, mkdirat, openat, openat2, readlink, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::toolset::ToolAnswer;

/// The largest file that a tool reads, in bytes.
pub const FILE_MAX: u64 = 16 << 20;

/// The most directories that a listing reads.
const DIRECTORIES_MAX: usize = 100_000;

/// The most bytes of an extended attribute, and of the list of their names.
const XATTR_MAX: usize = 64 << 10;

/// How many locks the files share: a call that hangs in a file blocks few others.
const LOCKS: usize = 64;

/// The files of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Paths and sizes in bytes, sorted.
    pub files: Vec<(String, u64)>,
    /// Whether there are more.
    pub has_more: bool,
    /// How many directories cannot be opened, because they are too deep or closed to this user, and names are not UTF-8.
    pub skipped: usize,
}

impl Listing {
    /// What is left out, in words; `None` if nothing is.
    pub fn skipped_words(&self) -> Option<String> {
        (self.skipped > 0).then(|| {
            let skipped = self.skipped;
            format!("({skipped} directories and files were left out: too deep, not readable, or with a name that is not UTF-8)")
        })
    }
}

/// A directory and everything below it.
pub struct DirectoryTree {
    root: OwnedFd,
    /// By path: calls come side by side.
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
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
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

    /// Creates or replaces a file, and creates missing directories. With `new`, an existing file is an error. A failed write
    /// leaves the old content, or no file where there was none.
    ///
    /// # Errors
    /// [`Errno`] of the failed call; [`Errno::XDEV`] if the path leaves the tree; [`Errno::EXIST`] if it is a symbolic link to a
    /// file that does not exist, as the file-system server of the Model Context Protocol refuses it. A new file is created at
    /// no path but the one that the caller names.
    pub fn write(&self, path: &str, content: &[u8], new: bool) -> Result<(), Errno> {
        self.make_parents(path)?;
        let _lock = self.lock_of(path).write();
        let old = match self.beneath(path, OFlags::PATH) {
            Err(Errno::NOENT) => None,
            found => Some(found?),
        };
        match old {
            None => match self.create(path, content) {
                // Another process has made it just now, or it is a link that leads nowhere.
                Err(Errno::EXIST) if !new => match self.beneath(path, OFlags::PATH) {
                    Ok(made) => self.replace(&made, content),
                    Err(_) => Err(Errno::EXIST),
                },
                created => created,
            },
            Some(_) if new => Err(Errno::EXIST),
            Some(old) => self.replace(&old, content),
        }
    }

    /// Creates a file, and removes it again if it cannot be written.
    fn create(&self, path: &str, content: &[u8]) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NONBLOCK;
        let file = self.beneath(path, flags)?;
        let written = fill(file, content);
        if written.is_err() {
            let (dir, name) = self.place(path)?;
            unlinkat(&dir, name, AtFlags::empty())?;
        }
        written
    }

    /// Replaces a file by a new one with the same mode, owner and extended attributes.
    fn replace(&self, old: &OwnedFd, content: &[u8]) -> Result<(), Errno> {
        let stat = fstat(old)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        let path = self.path_of(old)?;
        // A file that may not be written is not replaced either.
        let old = self.beneath(&path, OFlags::WRONLY | OFlags::NONBLOCK)?;
        match self.rename_over(&old, &stat, &path, content) {
            // Its directory may not be written, or it is a mount of its own.
            Err(Errno::ACCESS | Errno::PERM | Errno::BUSY) => {
                ftruncate(&old, 0)?;
                fill(old, content)
            }
            replaced => replaced,
        }
    }

    fn rename_over(&self, old: &OwnedFd, stat: &Stat, path: &str, content: &[u8]) -> Result<(), Errno> {
        let (dir, name) = self.place(path)?;
        let (new_name, new) = create_beside(&dir)?;
        let replaced = copy_attributes(old, stat, &new)
            .and_then(|()| fill(new, content))
            .and_then(|()| renameat(&dir, &new_name, &dir, name));
        if replaced.is_err() {
            // The first error counts.
            let _ = unlinkat(&dir, &new_name, AtFlags::empty());
        }
        replaced
    }

    /// The path of an open file from the root, without symbolic links.
    fn path_of(&self, file: &OwnedFd) -> Result<String, Errno> {
        let named = |file: &OwnedFd| readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new());
        let (root, file) = (named(&self.root)?, named(file)?);
        let (root, file) =
            (Path::new(OsStr::from_bytes(root.to_bytes())), Path::new(OsStr::from_bytes(file.to_bytes())));
        let below = file.strip_prefix(root).map_err(|_| Errno::XDEV)?;
        below.to_str().map(str::to_owned).ok_or(Errno::ILSEQ)
    }

    /// The directory of a path, and the name in it.
    fn place<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a OsStr), Errno> {
        let name = Path::new(path).file_name().ok_or(Errno::ISDIR)?;
        let parent = Path::new(path).parent().and_then(Path::to_str).filter(|parent| !parent.is_empty());
        let dir = self.beneath(parent.unwrap_or("."), OFlags::PATH | OFlags::DIRECTORY)?;
        Ok((dir, name))
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
            let within = if made.is_empty() { "." } else { made.as_str() };
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

    /// The regular files below `dir`, to `limit` files and [`DIRECTORIES_MAX`] directories.
    ///
    /// # Errors
    /// If `dir` cannot be listed.
    pub fn list(&self, dir: &str, limit: usize) -> Result<Listing, String> {
        let failed = |error: Errno| format!("cannot list {dir}: {}", reason(error));
        let mut listing = Listing::default();
        // An agent that means the whole workspace may say "" or "/", too.
        let top = match dir.trim_end_matches('/') {
            "" => ".",
            dir => dir,
        };
        let mut waiting = vec![top.to_owned()];
        let mut directories = 0;
        'directories: while let Some(dir) = waiting.pop() {
            directories += 1;
            if directories > DIRECTORIES_MAX {
                listing.has_more = true;
                break;
            }
            let opened = match self.beneath(&dir, OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(opened) => opened,
                Err(error) if dir == top => return Err(failed(error)),
                // It has vanished.
                Err(Errno::NOENT) => continue,
                Err(_) => {
                    listing.skipped += 1;
                    continue;
                }
            };
            for entry in Dir::read_from(&opened).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let Ok(name) = entry.file_name().to_str() else {
                    listing.skipped += 1;
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
                    FileType::RegularFile if listing.files.len() == limit => {
                        listing.has_more = true;
                        break 'directories;
                    }
                    FileType::RegularFile => listing.files.push((path, stat.st_size as u64)),
                    _ => {}
                }
            }
        }
        listing.files.sort();
        Ok(listing)
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
        Errno::EXIST => {
            "it is a symbolic link to a file that does not exist; write to the path that it names, or to another one"
                .to_owned()
        }
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

/// Writes the content of a file, and closes it.
fn fill(file: OwnedFd, content: &[u8]) -> Result<(), Errno> {
    let mut file = File::from(file);
    file.write_all(content).map_err(|error| errno(&error))?;
    // `close` reports what the mount could not keep; dropping the file would lose that.
    nix::unistd::close(file).map_err(|error| Errno::from_raw_os_error(error as i32))
}

/// Creates a file with a new hidden name in a directory.
fn create_beside(dir: &OwnedFd) -> Result<(String, OwnedFd), Errno> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".ctxbench-write-{}-{number}", std::process::id());
        match openat(dir, &name, flags, Mode::from_raw_mode(0o600)) {
            // Of a server that was killed, and had the same number.
            Err(Errno::EXIST) => {}
            created => return Ok((name, created?)),
        }
    }
}

/// Gives a new file the owner, the extended attributes and the mode of an old one.
fn copy_attributes(old: &OwnedFd, stat: &Stat, new: &OwnedFd) -> Result<(), Errno> {
    // Only root may give a file away; others may give it to a group of theirs.
    let group = Some(Gid::from_raw(stat.st_gid));
    if fchown(new, Some(Uid::from_raw(stat.st_uid)), group).is_err() {
        let _ = fchown(new, None, group);
    }
    let (mut names, mut value) = (vec![0; XATTR_MAX], vec![0; XATTR_MAX]);
    let length = match flistxattr(old, &mut names) {
        Err(Errno::OPNOTSUPP) => 0,
        length => length?,
    };
    let names = names[..length].split(|byte| *byte == 0);
    for name in names.filter(|name| name.starts_with(b"user.")) {
        let length = fgetxattr(old, name, &mut value)?;
        fsetxattr(new, name, &value[..length], XattrFlags::empty())?;
    }
    fchmod(new, Mode::from_raw_mode(stat.st_mode & 0o7777))
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
            assert_eq!(tree.list(whole, 9).unwrap().files, listed, "{whole:?}");
        }
        for outside in ["../d.md", "/d/e.md", "b/../../d.md"] {
            assert_eq!(tree.write(outside, b"d", true), Err(Errno::XDEV), "{outside}");
        }
    }

    #[test]
    fn a_write_keeps_links_to_the_file_and_its_mode_and_attributes() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let tree = DirectoryTree::open(dir.path()).unwrap();
        let at = |name: &str| dir.path().join(name);
        tree.write("a.md", b"old", false).unwrap();
        std::fs::set_permissions(at("a.md"), std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("a.md", at("link")).unwrap();
        let set = rustix::fs::setxattr(at("a.md"), "user.tags", b"x", XattrFlags::empty());
        assert_eq!(tree.write("a.md", b"new", true), Err(Errno::EXIST));
        tree.write("link", b"new", false).unwrap();
        assert_eq!(std::fs::read(at("a.md")).unwrap(), b"new");
        assert_eq!(std::fs::metadata(at("a.md")).unwrap().permissions().mode() & 0o7777, 0o640);
        let mut value = [0; 8];
        match set {
            Ok(()) => assert_eq!(rustix::fs::getxattr(at("a.md"), "user.tags", &mut value), Ok(1)),
            Err(error) => assert_eq!(error, Errno::OPNOTSUPP),
        }
        assert_eq!(tree.write(".", b"", false), Err(Errno::ISDIR));
        let mut names: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a.md", "link"]);
    }

    #[test]
    fn a_write_through_a_link_that_leads_nowhere_is_refused_and_creates_nothing() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tree = DirectoryTree::open(dir.path()).unwrap();
        let out = outside.path().join("new.md");
        let up = format!("../{}/new.md", outside.path().file_name().unwrap().display());
        let targets = ["missing.md", "loop-b", out.to_str().unwrap(), &up];
        for (link, target) in ["within", "loop-a", "out", "up"].into_iter().zip(targets) {
            std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
        }
        std::os::unix::fs::symlink("loop-a", dir.path().join("loop-b")).unwrap();
        let refused = ["within", "loop-a", "out", "up"].map(|link| tree.write(link, b"new", false).unwrap_err());
        assert_eq!(refused, [Errno::EXIST, Errno::LOOP, Errno::XDEV, Errno::XDEV]);
        let said = written("within", Err(refused[0]), String::new()).unwrap_err();
        assert!(said.contains("symbolic link to a file that does not exist"), "{said}");
        assert!(std::fs::read_dir(outside.path()).unwrap().next().is_none());
        assert_eq!(tree.list(".", 9).unwrap(), Listing::default());
        // Once its target is there, the link is followed, and stays.
        tree.write("missing.md", b"old", false).unwrap();
        tree.write("within", b"new", false).unwrap();
        assert_eq!(tree.read("missing.md").unwrap(), b"new");
        assert!(dir.path().join("within").is_symlink());
    }

    #[test]
    fn a_full_disk_keeps_the_old_file_and_leaves_no_new_one() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(dir.path());
        if !mount.output().is_ok_and(|mounted| mounted.status.success()) {
            eprintln!("SKIPPED: this needs root");
            return;
        }
        let tree = DirectoryTree::open(dir.path()).unwrap();
        tree.write("a.md", b"old", false).unwrap();
        let refused = ["a.md", "b.md"].map(|name| tree.write(name, &[b'x'; 100_000], false));
        let kept = tree.read("a.md");
        let listed = tree.list(".", 9);
        drop(tree);
        let unmounted = std::process::Command::new("umount").arg(dir.path()).status();
        assert!(unmounted.unwrap().success());
        assert_eq!(refused, [Err(Errno::NOSPC); 2]);
        assert_eq!(kept.unwrap(), b"old");
        assert_eq!(listed.unwrap().files, [("a.md".to_owned(), 3)]);
    }
}
