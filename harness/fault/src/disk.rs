//! A small disk of its own for a store, that can be filled, broken, and lose its power: ext4 in a file, on a loop device; or
//! btrfs, which alone has a quota that binds root, too.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use backends::fuse::connection::mount_at;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use rustix::mount::{UnmountFlags, unmount};

/// `EXT4_IOC_SHUTDOWN` of the kernel's `ext4.h`: from then on the file system writes nothing more.
const SHUTDOWN: Opcode = opcode::read::<u32>(b'X', 125);

/// `EXT4_GOING_FLAGS_NOLOGFLUSH`: neither what its journal has not written yet.
const WITHOUT_LOG_FLUSH: u32 = 2;

/// What a control file holds: more than a journal would keep of it.
const CONTROL: [u8; 16 * 1024] = [b'c'; 16 * 1024];

/// A mounted disk. It is taken away when dropped.
pub struct SmallDisk {
    image: PathBuf,
    at: PathBuf,
    /// Of `mount`.
    options: &'static str,
}

/// Mebibytes of a disk with a quota: btrfs takes none below 109.
const BTRFS: u64 = 160;

impl SmallDisk {
    /// Makes a disk of so many MiB and mounts it on `at`, an empty directory.
    ///
    /// # Errors
    /// What is missing for it, in words.
    pub fn mount(at: &Path, mib: u64) -> Result<Self, String> {
        let disk = Self::blank(at, mib, "loop,errors=remount-ro")?;
        let image = disk.image.as_os_str();
        // No blocks kept for root, who would otherwise find room on a full disk.
        run(Command::new("mkfs.ext4")
            .args(["-q", "-m", "0", "-F"])
            .arg(image))?;
        disk.attach()?;
        Ok(disk)
    }

    /// Makes a larger disk, of which no more than so many MiB may be used, and mounts it on `at`, an empty directory.
    ///
    /// # Errors
    /// What is missing for it, in words.
    pub fn with_quota(at: &Path, mib: u64) -> Result<Self, String> {
        let disk = Self::blank(at, BTRFS, "loop")?;
        let made = run(Command::new("mkfs.btrfs").arg("-q").arg(&disk.image));
        made.map_err(|error| format!("{error} (fix: apt-get install btrfs-progs)"))?;
        disk.attach()?;
        let btrfs = |words: &[&str]| run(Command::new("btrfs").args(words).arg(at));
        btrfs(&["quota", "enable"])?;
        btrfs(&["quota", "rescan", "-w"])?;
        btrfs(&["qgroup", "limit", &format!("{mib}M")])?;
        Ok(disk)
    }

    fn blank(at: &Path, mib: u64, options: &'static str) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting a small disk needs root".to_owned());
        }
        let mut image = at.as_os_str().to_owned();
        image.push(".img");
        let disk = Self {
            image: image.into(),
            at: at.to_owned(),
            options,
        };
        File::create(&disk.image)
            .and_then(|file| file.set_len(mib << 20))
            .map_err(|error| format!("{}: {error}", disk.image.display()))?;
        Ok(disk)
    }

    fn attach(&self) -> Result<(), String> {
        let mut mount = Command::new("mount");
        mount.args(["-o", self.options]);
        run(mount.arg(&self.image).arg(&self.at))
    }

    /// Fills what is free with one file; answers how many bytes that took.
    pub fn fill(&self) -> io::Result<u64> {
        let mut file = File::create(self.filler())?;
        let mut written = 0;
        // Ever smaller pieces, to the last block.
        for size in [1 << 20, 4096, 1] {
            let piece = vec![b'x'; size];
            loop {
                match file.write(&piece) {
                    Ok(count) => written += count as u64,
                    Err(error) if is_full(&error) => break,
                    Err(error) => return Err(error),
                }
            }
            // Space is given out when it is written back.
            match file.sync_all() {
                Err(error) if !is_full(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(written)
    }

    /// Makes room again.
    pub fn empty(&self) -> io::Result<()> {
        std::fs::remove_file(self.filler())?;
        // btrfs gives room back with its next transaction.
        Ok(rustix::fs::syncfs(File::open(&self.at)?)?)
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }

    /// Has the kernel meet an error, upon which it makes the file system read-only.
    ///
    /// # Errors
    /// If the kernel does not let it be made.
    pub fn break_down(&self) -> Result<(), String> {
        let mount = mount_at(&self.at).map_err(|error| error.to_string())?;
        let source = mount.map(|mount| mount.source).unwrap_or_default();
        let device = source.rsplit('/').next().unwrap_or_default();
        let trigger = format!("/sys/fs/ext4/{device}/trigger_fs_error");
        std::fs::write(&trigger, "ctxbench fault").map_err(|error| format!("{trigger}: {error}"))
    }

    /// Writes a control file: where it is synced, it has to be there after a cut, and else it must not be.
    pub fn plant(&self, name: &str, is_synced: bool) -> io::Result<()> {
        let mut file = File::create(self.at.join(name))?;
        file.write_all(&CONTROL)?;
        if is_synced {
            file.sync_all()?;
            File::open(&self.at)?.sync_all()?;
        }
        Ok(())
    }

    /// Whether a control file is there with all of its bytes.
    pub fn has(&self, name: &str) -> bool {
        std::fs::read(self.at.join(name)).is_ok_and(|bytes| bytes == CONTROL)
    }

    /// Cuts the power: what ext4 has not given to the loop device by now never gets there, and every call on it fails. What the
    /// device was given counts as written, whether or not it was told to flush.
    ///
    /// # Errors
    /// If the kernel does not do that.
    #[expect(unsafe_code, reason = "an ioctl of ext4 that rustix does not have")]
    pub fn cut_power(&self) -> io::Result<()> {
        let root = File::open(&self.at)?;
        // SAFETY: this ioctl reads a __u32 through a pointer, and changes no memory of ours.
        unsafe {
            let shutdown = Setter::<SHUTDOWN, u32>::new(WITHOUT_LOG_FLUSH);
            ioctl(&root, shutdown)?;
        }
        Ok(())
    }

    /// Mounts what the cut has left of it, which ext4 recovers by its journal; whatever is mounted on top must be gone.
    ///
    /// # Errors
    /// What failed.
    pub fn start_again(&self) -> Result<(), String> {
        let mut copy = self.image.clone().into_os_string();
        copy.push(".cut");
        let copied = std::fs::copy(&self.image, &copy);
        copied.map_err(|error| format!("{}: {error}", self.image.display()))?;
        // Lazily: a process that was killed may still be on its way out. It has the old image, and nobody else does.
        unmount(&self.at, UnmountFlags::DETACH).map_err(|error| format!("unmounting: {error}"))?;
        let renamed = std::fs::rename(&copy, &self.image);
        renamed.map_err(|error| format!("{}: {error}", self.image.display()))?;
        self.attach()
    }

    /// Unmounts it, repairs it, and mounts it again; nothing may use it.
    ///
    /// # Errors
    /// What failed.
    pub fn repair(&self) -> Result<(), String> {
        unmount(&self.at, UnmountFlags::empty()).map_err(|error| format!("unmounting: {error}"))?;
        let mut check = Command::new("e2fsck");
        let checked = check
            .args(["-f", "-p"])
            .arg(&self.image)
            .stdin(Stdio::null())
            .output();
        let checked = checked.map_err(|error| format!("e2fsck: {error}"))?;
        // 1: errors were corrected.
        if !matches!(checked.status.code(), Some(0 | 1)) {
            return Err(format!("e2fsck: {}", checked.status));
        }
        self.attach()
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", said.trim()))
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: it goes as soon as nothing uses it. An error means that it is not mounted.
        let _ = unmount(&self.at, UnmountFlags::DETACH);
        if let Err(error) = std::fs::remove_file(&self.image) {
            tracing::warn!("{} stays: {error}", self.image.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_keeps_what_was_synced_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("disk");
        std::fs::create_dir(&at).unwrap();
        let disk = match SmallDisk::mount(&at, 16) {
            Ok(disk) => disk,
            Err(reason) => {
                let is_required = std::env::var_os("CTXBENCH_REQUIRE_ROOT").is_some();
                assert!(!is_required, "{reason}");
                eprintln!("not tested: {reason}");
                return;
            }
        };
        for _ in 0..2 {
            disk.plant("synced", true).unwrap();
            disk.plant("unsynced", false).unwrap();
            assert!(disk.has("synced") && disk.has("unsynced"));
            disk.cut_power().unwrap();
            assert!(disk.plant("later", true).is_err(), "nothing works any more");
            disk.start_again().unwrap();
            assert!(disk.has("synced"));
            assert!(!disk.has("unsynced") && !disk.has("later"));
        }
        drop(disk);
        assert!(mount_at(&at).unwrap().is_none());
    }
}
