//! A small disk of its own for a store, that can be filled and broken: ext4 in a file, on a loop device.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use backends::fuse::connection::mount_at;
use rustix::mount::{UnmountFlags, unmount};

/// A mounted disk. It is taken away when dropped.
pub struct SmallDisk {
    image: PathBuf,
    at: PathBuf,
}

impl SmallDisk {
    /// Makes a disk of so many MiB and mounts it on `at`, an empty directory.
    ///
    /// # Errors
    /// What is missing for it, in words.
    pub fn mount(at: &Path, mib: u64) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting a small disk needs root".to_owned());
        }
        let mut image = at.as_os_str().to_owned();
        image.push(".img");
        let disk = Self {
            image: image.into(),
            at: at.to_owned(),
        };
        std::fs::File::create(&disk.image)
            .and_then(|file| file.set_len(mib << 20))
            .map_err(|error| format!("{}: {error}", disk.image.display()))?;
        let image = disk.image.as_os_str();
        // No blocks kept for root, who would otherwise find room on a full disk.
        run(Command::new("mkfs.ext4")
            .args(["-q", "-m", "0", "-F"])
            .arg(image))?;
        disk.attach()?;
        Ok(disk)
    }

    fn attach(&self) -> Result<(), String> {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop,errors=remount-ro"]);
        run(mount.arg(&self.image).arg(&self.at))
    }

    /// Fills what is free with one file; answers how many bytes that took.
    pub fn fill(&self) -> io::Result<u64> {
        use std::io::Write;
        let mut file = std::fs::File::create(self.filler())?;
        let mut written = 0;
        // Ever smaller pieces, to the last block.
        for size in [1 << 20, 4096, 1] {
            let piece = vec![b'x'; size];
            loop {
                match file.write(&piece) {
                    Ok(count) => written += count as u64,
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error),
                }
            }
            // Space is given out when it is written back.
            match file.sync_all() {
                Err(error) if error.kind() != io::ErrorKind::StorageFull => return Err(error),
                _ => {}
            }
        }
        Ok(written)
    }

    /// Makes room again.
    pub fn empty(&self) -> io::Result<()> {
        std::fs::remove_file(self.filler())
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
