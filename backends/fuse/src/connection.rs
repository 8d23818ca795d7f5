//! The kernel's mount table, FUSE connections, and how to remove a mount whose daemon does not answer.
//!
//! Only [`mount_of`] accesses a mounted directory on the calling thread, so nothing else here can hang.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The mount point.
    pub at: PathBuf,
    /// The file system type, such as `ext4` or `fuse.ctxbench-sqlite`.
    pub kind: String,
    /// The mount's source, such as a device.
    pub source: String,
    /// Mount options and super block options, joined by commas.
    pub options: String,
    /// Device number, major and minor.
    pub device: (u32, u32),
}

impl MountEntry {
    /// Whether this is a FUSE mount.
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.")
    }

    /// Whether a process serves its files: a FUSE daemon, or a server on the network.
    pub fn is_served(&self) -> bool {
        self.is_fuse() || ["nfs", "nfs4", "cifs", "smb3"].contains(&&*self.kind)
    }

    /// The user that has mounted it; `None` for a mount that is not of FUSE.
    pub fn user(&self) -> Option<u32> {
        let mut options = self.options.split(',');
        options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    }

    /// Whether `ctxbench mount` made this mount.
    pub fn is_ours(&self) -> bool {
        self.kind.starts_with("fuse.ctxbench") || self.source.starts_with("ctxbench-")
    }
}

/// All mounts of this process's namespace, in mount order.
///
/// # Errors
/// If `/proc` is not mounted.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse_mount).collect())
}

/// The topmost mount exactly at `dir`, found without accessing `dir` itself.
///
/// # Errors
/// If `/proc` is not mounted, or the parent of `dir` cannot be resolved.
pub fn mount_at(dir: &Path) -> io::Result<Option<MountEntry>> {
    let dir = resolve_parent(dir)?;
    Ok(mounts()?.into_iter().rev().find(|mount| mount.at == dir))
}

/// The mount that contains `path`.
///
/// # Errors
/// As [`mounts`]; `path` is resolved, so it must exist.
pub fn mount_of(path: &Path) -> io::Result<Option<MountEntry>> {
    let path = path.canonicalize()?;
    let within = |mount: &MountEntry| path.starts_with(&mount.at);
    let longest = |mount: &MountEntry| mount.at.as_os_str().len();
    Ok(mounts()?.into_iter().filter(within).max_by_key(longest))
}

/// Makes `dir` absolute by resolving its parent only: resolving a dead mount itself would fail.
fn resolve_parent(dir: &Path) -> io::Result<PathBuf> {
    match (dir.parent(), dir.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let unresolved = parent.canonicalize()?.join(name);
            // Resolve a symbolic link to the mount point; `readlink` on the mount point itself fails at once.
            match std::fs::read_link(&unresolved) {
                Ok(_) => unresolved.canonicalize(),
                Err(_) => Ok(unresolved),
            }
        }
        _ => dir.canonicalize(),
    }
}

fn parse_mount(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let device = text(fields.nth(2)?);
    let (major, minor) = device.split_once(':')?;
    let at = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    let mount_options = text(fields.next()?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = text(fields.next()?);
    let source = text(fields.next()?);
    let super_options = text(fields.next()?);
    Some(MountEntry {
        at,
        kind,
        source,
        options: format!("{mount_options},{super_options}"),
        device: (major.parse().ok()?, minor.parse().ok()?),
    })
}

/// Decodes the octal escapes of the mount table (`\040` for a space).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(escaped) if byte == b'\\' => {
                bytes.push(escaped);
                rest = &after[3..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    bytes
}

/// A FUSE connection: its number in `fusectl`, and its mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    number: u32,
    at: PathBuf,
}

impl Connection {
    /// The connection of a FUSE mount; `None` for another mount.
    pub fn of(mount: &MountEntry) -> Option<Self> {
        mount.is_fuse().then(|| Self { number: mount.device.1, at: mount.at.clone() })
    }

    /// Fails all pending and all future requests of the connection.
    ///
    /// Nothing else wakes a process from uninterruptible sleep in a request that the daemon never answers.
    ///
    /// # Errors
    /// If `fusectl` is not mounted, or the connection belongs to another user. Also if it is no longer
    /// mounted there: the kernel reuses its number for any later mount.
    pub fn abort(&self) -> io::Result<()> {
        let mounted = mount_at(&self.at)?;
        if mounted.as_ref().and_then(Self::of).as_ref() != Some(self) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let control = fusectl().ok_or(io::ErrorKind::NotFound)?;
        std::fs::write(control.join(self.number.to_string()).join("abort"), b"1")
    }
}

/// Where `fusectl` is usually mounted.
pub const FUSECTL: &str = "/sys/fs/fuse/connections";

/// Where `fusectl`, which aborts connections, is mounted in this namespace.
pub fn fusectl() -> Option<PathBuf> {
    let mounts = mounts().ok()?;
    let control = mounts.into_iter().find(|mount| mount.kind == "fusectl");
    control.map(|mount| mount.at)
}

/// Detaches a mount from the tree at once, even if it is in use or its daemon is dead.
///
/// # Errors
/// If neither the kernel nor `fusermount3` lets this user do it.
pub fn detach(dir: &Path) -> io::Result<()> {
    match unmount(dir, UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => fusermount_detach(dir),
        Err(error) => Err(error.into()),
    }
}

/// How long [`end`] retries while a mount is in use: `ctxbench status` and file managers hold a mount for a moment.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two attempts to unmount.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Unmounts an idle mount of ours; its daemon flushes and exits.
///
/// # Errors
/// If no mount of ours is at `dir`, or it is still in use after two seconds.
pub fn end(dir: &Path) -> io::Result<()> {
    match mount_at(dir)? {
        Some(mount) if mount.is_ours() => {}
        Some(mount) => {
            let message = format!("the mount there belongs to {}, not to ctxbench", mount.kind);
            return Err(io::Error::other(message));
        }
        None => return Err(io::Error::other("nothing is mounted there")),
    }
    let unmount_once = || match unmount(dir, UnmountFlags::empty()) {
        Err(rustix::io::Errno::PERM) => fusermount(dir, &["-u", "--"]),
        unmounted => Ok(unmounted?),
    };
    retry_while_busy(BUSY_PATIENCE, unmount_once).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => {
            let message = "it is in use: close programs that have open files in it or use it as working directory";
            io::Error::other(message)
        }
        _ => error,
    })
}

/// Repeats `attempt` for as long as it answers that the mount is in use, but not past `patience`.
fn retry_while_busy(patience: Duration, mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(BUSY_PAUSE);
            }
            ended => return ended,
        }
    }
}

fn fusermount_detach(dir: &Path) -> io::Result<()> {
    fusermount(dir, &["-u", "-z", "--"])
}

fn fusermount(dir: &Path, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("fusermount3")
        .args(arguments)
        .arg(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("running fusermount3: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(fusermount_error(&said))
}

/// The error of a failed `fusermount3`, which gives the kernel's reason only in words.
fn fusermount_error(said: &str) -> io::Error {
    let kind =
        if said.contains("Device or resource busy") { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
    let said = said.trim();
    let said = said.strip_prefix("fusermount3: ").unwrap_or(said);
    io::Error::new(kind, format!("fusermount3: {said}"))
}

/// Whether a daemon serves a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountHealth {
    /// The mount answered after this time.
    Answers(Duration),
    /// The mount answers `ENOTCONN`: its daemon has died.
    Dead,
    /// The mount does not answer within [`PATIENCE`]: its daemon is stopped or stuck.
    Silent,
}

/// How long a mount may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Whether a daemon serves the mount at `dir`.
///
/// The probe runs on its own thread, because a stuck daemon never answers it.
pub fn health(dir: &Path) -> MountHealth {
    let (sender, answer) = std::sync::mpsc::channel();
    let dir = dir.to_owned();
    let ask = move || {
        let started = Instant::now();
        // The kernel may answer names and attributes from its cache, but never `statfs`.
        let health = match rustix::fs::statvfs(&dir) {
            Err(rustix::io::Errno::NOTCONN) => MountHealth::Dead,
            _ => MountHealth::Answers(started.elapsed()),
        };
        // After the timeout there is no receiver.
        let _ = sender.send(health);
    };
    std::thread::spawn(ask);
    answer.recv_timeout(PATIENCE).unwrap_or(MountHealth::Silent)
}

/// Whether the daemon of the mount at `dir` has died.
pub fn is_dead(dir: &Path) -> bool {
    health(dir) == MountHealth::Dead
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_table_line_is_read_with_escapes_and_optional_fields() {
        let line =
            br"41 28 0:52 / /tmp/a\040b\134c rw,nosuid shared:5 master:2 - fuse.ctxbench-sqlite notes.db rw,user_id=0";
        let mount = parse_mount(line).unwrap();
        assert_eq!(mount.at, Path::new(r"/tmp/a b\c"));
        assert_eq!(mount.kind, "fuse.ctxbench-sqlite");
        assert_eq!(mount.device, (0, 52));
        assert_eq!(mount.options, "rw,nosuid,rw,user_id=0");
        assert_eq!(mount.user(), Some(0));
        assert!(mount.is_fuse() && mount.is_ours() && mount.is_served());
        let kind = |kind: &str| MountEntry { kind: kind.to_owned(), ..mount.clone() };
        assert!(kind("nfs4").is_served() && !kind("ext4").is_served() && !kind("fusectl").is_served());
        let connection = Connection::of(&mount).unwrap();
        assert_eq!((connection.number, &connection.at), (52, &mount.at));
        assert_eq!(parse_mount(b""), None);
        assert_eq!(parse_mount(b"41 28 0:52 / /x rw"), None);
    }

    #[test]
    fn an_unmount_is_repeated_while_the_mount_is_in_use_and_no_longer() {
        let busy = || io::Error::from(rustix::io::Errno::BUSY);
        let fusermount_busy = || fusermount_error("fusermount3: failed to unmount /a: Device or resource busy\n");
        for refused in [busy, fusermount_busy] as [fn() -> io::Error; 2] {
            let mut attempts = 0;
            let unmounted = retry_while_busy(Duration::from_secs(60), || {
                attempts += 1;
                if attempts < 4 { Err(refused()) } else { Ok(()) }
            });
            assert!(unmounted.is_ok() && attempts == 4, "{attempts}");
        }
        let (patience, started) = (Duration::from_millis(60), Instant::now());
        let error = retry_while_busy(patience, || Err(busy())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert!(started.elapsed() >= patience);
        let mut attempts = 0;
        let refused = retry_while_busy(patience, || {
            attempts += 1;
            Err(fusermount_error("fusermount3: entry for /a not found"))
        });
        assert!(refused.is_err() && attempts == 1, "{attempts}");
    }

    #[test]
    fn a_connection_whose_number_another_mount_has_is_not_aborted() {
        let gone = Connection { number: 0, at: PathBuf::from("/proc/self") };
        let error = gone.abort().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_mount_of_a_path_is_the_longest_that_holds_it() {
        let root = mount_of(Path::new("/")).unwrap().unwrap();
        assert_eq!(root.at, Path::new("/"));
        let proc = mount_of(Path::new("/proc/self")).unwrap().unwrap();
        assert_eq!(proc.kind, "proc");
        assert_eq!(mount_at(Path::new("/proc")).unwrap(), Some(proc));
        assert_eq!(mount_at(Path::new("/proc/self")).unwrap(), None);
    }
}
