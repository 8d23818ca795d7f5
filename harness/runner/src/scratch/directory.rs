//! The directory of a run in the scratch base. Its name identifies it, and its owner locks it. The owner
//! removes it with all mounts and loop devices in it. If the owner was killed, the next run removes it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuse::connection::{MountEntry, detach, mounts};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::mount::{UnmountFlags, unmount};

use super::image;

/// Prefix of the directory's name; the process id and six random characters follow.
const PREFIX: &str = "ctxbench-scratch-";

/// Mount point of an image's file system, in the run's directory.
pub(super) const MOUNT_POINT: &str = "mnt";

/// How often unmounting is tried: a daemon that has just ended may keep its file system busy for a moment.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Held between making a directory and locking it, when another thread would take it for a leftover.
static UNLOCKED: Mutex<()> = Mutex::new(());

/// The directory of a run. Dropping it deletes it and unmounts everything in it.
#[derive(Debug)]
pub(super) struct OwnDirectory {
    path: PathBuf,
    /// The kernel releases the lock when the process ends. `None` if the file system has no locks.
    _lock: Option<File>,
    is_removed: bool,
}

impl OwnDirectory {
    /// Makes a directory in `base` that only this user can read.
    pub(super) fn make(base: &Path) -> io::Result<Self> {
        let base = base.canonicalize()?;
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let _unlocked = UNLOCKED.lock();
        let made = tempfile::Builder::new().prefix(&prefix).tempdir_in(base)?;
        let lock = open(made.path()).and_then(|dir| {
            dir.try_lock()?;
            Ok(dir)
        });
        Ok(Self { path: made.keep(), _lock: lock.ok(), is_removed: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it and everything mounted in it.
    pub(super) fn close(mut self) -> io::Result<()> {
        self.is_removed = true;
        remove(&self.path)
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        if !self.is_removed
            && let Err(error) = remove(&self.path)
        {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

fn open(dir: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(dir)
}

/// Unmounts everything in `dir`, frees loop devices with an image in it, and deletes it.
fn remove(dir: &Path) -> io::Result<()> {
    unmount_all(dir)?;
    image::free_loop_devices(dir);
    fs::remove_dir_all(dir)
}

/// Mounts in `dir`, the newest first.
fn mounts_in(dir: &Path) -> io::Result<Vec<MountEntry>> {
    let inside = mounts()?.into_iter().rev();
    Ok(inside.filter(|mount| mount.at.starts_with(dir)).collect())
}

/// Unmounts everything in `dir`. Detaches a mount in use, which then ends with its last user.
/// Fails if a mount remains: deleting `dir` would delete the mounted files.
fn unmount_all(dir: &Path) -> io::Result<()> {
    let mount_point = dir.join(MOUNT_POINT);
    for mount in mounts_in(dir)? {
        let at = mount.at.as_path();
        if at == mount_point && unmount_own(at) {
            continue;
        }
        tracing::warn!("{} ({}) is still in use; detaching it", at.display(), mount.kind);
        if let Err(error) = detach(at) {
            tracing::warn!("cannot detach {}: {error}", at.display());
        }
    }
    match mounts_in(dir)?.first() {
        None => Ok(()),
        Some(mount) => {
            let message = format!("{} stays mounted", mount.at.display());
            Err(io::Error::other(message))
        }
    }
}

/// Unmounts the file system of an image; false if it remains in use.
fn unmount_own(at: &Path) -> bool {
    for _ in 0..BUSY_TRIES {
        match unmount(at, UnmountFlags::NOFOLLOW) {
            Ok(()) => return true,
            Err(rustix::io::Errno::BUSY) => std::thread::sleep(BUSY_PAUSE),
            Err(_) => return false,
        }
    }
    false
}

/// Removes the leftovers of this user's killed runs in `base`. Logs a warning if that fails.
pub(super) fn remove_left_over(base: &Path) {
    // The mount table and /sys have paths without symbolic links.
    let Ok(entries) = base.canonicalize().and_then(fs::read_dir) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(pid_in) else {
            continue;
        };
        let path = entry.path();
        if !is_left_over(&path, pid) {
            continue;
        }
        match remove(&path) {
            Ok(()) => tracing::info!("removed {}, left by a killed run", path.display()),
            Err(error) => {
                tracing::warn!("cannot remove {}, left by a killed run: {error}", path.display());
            }
        }
    }
}

/// The process id in the name of a run's directory.
fn pid_in(name: &str) -> Option<u32> {
    let (pid, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    pid.parse().ok()
}

/// Whether a directory belongs to this user and its owner has ended. The lock reveals a live owner in another
/// container, whose process id is unknown here.
fn is_left_over(path: &Path, pid: u32) -> bool {
    let is_other = pid != std::process::id();
    if is_other && Path::new("/proc").join(pid.to_string()).exists() {
        return false;
    }
    let _unlocked = UNLOCKED.lock();
    let Ok(dir) = open(path) else {
        return false;
    };
    let user = rustix::process::geteuid().as_raw();
    let is_ours = dir.metadata().is_ok_and(|found| found.uid() == user);
    is_ours && dir.try_lock().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process has this id: the kernel's limit is 2^22.
    const DEAD: u32 = 1 << 23;

    fn plant(base: &Path, pid: u32) -> PathBuf {
        let dir = base.join(format!("{PREFIX}{pid}-AbCdEf"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "x").unwrap();
        dir
    }

    #[test]
    fn a_run_removes_only_directories_of_dead_processes() {
        let base = tempfile::tempdir().unwrap();
        let dead = plant(base.path(), DEAD);
        let alive = plant(base.path(), 1);
        let foreign = base.path().join("ctxbench-scratch");
        fs::create_dir(&foreign).unwrap();
        let directory = OwnDirectory::make(base.path()).unwrap();
        remove_left_over(base.path());
        assert!(!dead.exists());
        assert!(alive.exists() && foreign.exists() && directory.path().exists());
    }

    #[test]
    fn a_locked_directory_is_not_left_over_even_if_its_process_is_not_listed() {
        let base = tempfile::tempdir().unwrap();
        let dir = plant(base.path(), DEAD);
        let owner = open(&dir).unwrap();
        owner.try_lock().unwrap();
        remove_left_over(base.path());
        assert!(dir.exists());
        drop(owner);
        remove_left_over(base.path());
        assert!(!dir.exists());
    }

    #[test]
    fn a_link_in_the_base_is_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let link = base.path().join(format!("{PREFIX}{DEAD}-AbCdEf"));
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        remove_left_over(base.path());
        assert!(elsewhere.path().exists() && link.is_symlink());
    }
}
