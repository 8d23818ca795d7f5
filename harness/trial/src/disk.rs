//! A small disk under a store, which a scenario can fill, break or cut from power.
//! It is ext4 in a file on a loop device, or btrfs where a quota must bind root too.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fuse::connection::mount_at;
use processes::output;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use rustix::mount::{UnmountFlags, unmount};

/// `EXT4_IOC_SHUTDOWN` of the kernel's `ext4.h`: the file system stops all writes.
const SHUTDOWN: Opcode = opcode::read::<u32>(b'X', 125);

/// `EXT4_GOING_FLAGS_NOLOGFLUSH`: do not write the pending journal either.
const WITHOUT_LOG_FLUSH: u32 = 2;

/// How long a tool may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Content of a control file. It must not fit into the journal.
const CONTROL: [u8; 16 * 1024] = [b'c'; 16 * 1024];

/// A mounted disk. Dropping it unmounts it and removes the image.
pub struct SmallDisk {
    image: PathBuf,
    at: PathBuf,
    /// Options for `mount -o`.
    options: &'static str,
}

/// Size in MiB of a btrfs disk. mkfs.btrfs needs at least 109.
const BTRFS: u64 = 160;

impl SmallDisk {
    /// Makes an ext4 disk of `mib` MiB and mounts it on `at`, an empty directory.
    /// The error says what is missing.
    pub fn mount(at: &Path, mib: u64) -> Result<Self, String> {
        let disk = Self::blank(at, mib, "loop,errors=remount-ro")?;
        let image = disk.image.as_os_str();
        // No blocks reserved for root, because root could use them on a full disk.
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0", "-F"]).arg(image))?;
        disk.attach()?;
        Ok(disk)
    }

    /// Makes a btrfs disk with a quota of `mib` MiB and mounts it on `at`, an empty directory.
    /// The error says what is missing.
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
        let disk = Self { image: image.into(), at: at.to_owned(), options };
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

    /// Fills the free space with one file. Returns its size in bytes.
    pub fn fill(&self) -> io::Result<u64> {
        let mut file = File::create(self.filler())?;
        let mut written = 0;
        // Smaller and smaller writes, to use the last block.
        for size in [1 << 20, 4096, 1] {
            let piece = vec![b'x'; size];
            loop {
                match file.write(&piece) {
                    Ok(count) => written += count as u64,
                    Err(error) if is_full(&error) => break,
                    Err(error) => return Err(error),
                }
            }
            // With delayed allocation, space is allocated at writeback.
            match file.sync_all() {
                Err(error) if !is_full(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(written)
    }

    /// Removes the filler file.
    pub fn empty(&self) -> io::Result<()> {
        std::fs::remove_file(self.filler())?;
        // btrfs frees the space at its next transaction commit.
        self.sync()
    }

    /// Makes everything on the disk durable.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.at)?)?)
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }

    /// Triggers a file system error, upon which the kernel makes the file system read-only.
    pub fn break_down(&self) -> Result<(), String> {
        let mount = mount_at(&self.at).map_err(|error| error.to_string())?;
        let source = mount.map(|mount| mount.source).unwrap_or_default();
        let device = source.rsplit('/').next().unwrap_or_default();
        let trigger = format!("/sys/fs/ext4/{device}/trigger_fs_error");
        std::fs::write(&trigger, "ctxbench fault").map_err(|error| format!("{trigger}: {error}"))
    }

    /// Writes a control file. After a power cut, a synced one must exist and an unsynced one must not.
    pub fn plant(&self, name: &str, is_synced: bool) -> io::Result<()> {
        let mut file = File::create(self.at.join(name))?;
        file.write_all(&CONTROL)?;
        if is_synced {
            file.sync_all()?;
            File::open(&self.at)?.sync_all()?;
        }
        Ok(())
    }

    /// Whether a control file has its full content.
    pub fn has(&self, name: &str) -> bool {
        std::fs::read(self.at.join(name)).is_ok_and(|bytes| bytes == CONTROL)
    }

    /// Cuts the power: data that ext4 has not passed to the loop device is lost, and all further calls
    /// fail. Data that the device has received counts as written, flushed or not.
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

    /// Remounts the disk as it is after the power cut. ext4 recovers from its journal. Nothing may be
    /// mounted on top.
    /// The error says which step failed.
    pub fn start_again(&self) -> Result<(), String> {
        let mut copy = self.image.clone().into_os_string();
        copy.push(".cut");
        let copied = copy_data(&self.image, Path::new(&copy));
        copied.map_err(|error| format!("{}: {error}", self.image.display()))?;
        // Detach, because a killed process may still be exiting. It keeps the old image; new processes use
        // the copy.
        unmount(&self.at, UnmountFlags::DETACH).map_err(|error| format!("unmounting: {error}"))?;
        let renamed = std::fs::rename(&copy, &self.image);
        renamed.map_err(|error| format!("{}: {error}", self.image.display()))?;
        self.attach()
    }

    /// Unmounts the disk, repairs it with e2fsck and mounts it again. No process may use it.
    /// The error says which step failed.
    pub fn repair(&self) -> Result<(), String> {
        unmount(&self.at, UnmountFlags::empty()).map_err(|error| format!("unmounting: {error}"))?;
        let mut check = Command::new("e2fsck");
        let checked = check.args(["-f", "-p"]).arg(&self.image).stdin(Stdio::null()).output();
        let checked = checked.map_err(|error| format!("e2fsck: {error}"))?;
        // Exit status 1: e2fsck corrected errors.
        if !matches!(checked.status.code(), Some(0 | 1)) {
            return Err(format!("e2fsck: {}", checked.status));
        }
        self.attach()
    }
}

/// Copies a file without its holes.
fn copy_data(from: &Path, to: &Path) -> io::Result<()> {
    let (source, target) = (File::open(from)?, File::create(to)?);
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut at = 0;
    let mut piece = vec![0; 1 << 20];
    while at < length {
        let data = match seek(&source, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(&source, SeekFrom::Hole(data))?.min(length);
        at = data;
        while at < end {
            let most = piece.len().min((end - at) as usize);
            let count = source.read_at(&mut piece[..most], at)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            target.write_all_at(&piece[..count], at)?;
            at += count as u64;
        }
    }
    Ok(())
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

fn run(command: &mut Command) -> Result<(), String> {
    output(command, PATIENCE).map(drop).map_err(|error| error.to_string())
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Detach: the unmount completes when no process uses the disk. An error means that it is not
        // mounted.
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
    fn a_power_cut_keeps_only_synced_files() {
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
