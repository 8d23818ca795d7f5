//! A fresh ext4 with a journal in a sparse file, mounted by a loop device with direct I/O.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use super::directory::{MOUNT_POINT, OwnDirectory};

const MIB: u64 = 1 << 20;

/// Smallest image in bytes. Below 512 MiB `mkfs.ext4` chooses small blocks and a tiny journal, unlike real disks.
const SMALLEST: u64 = 1024 * MIB;

/// Usual size in bytes: a journal of 64 MiB and enough free space for the allocator.
const USUAL: u64 = 8192 * MIB;

/// Bytes of an image that holds `needed` bytes of files. An eighth more is for inode tables (1.6 %), blocks
/// reserved for root (5 %) and directories. 256 MiB are for the journal and bitmaps.
pub(super) fn least_bytes(needed: u64) -> u64 {
    let all = needed.saturating_add(needed / 8).saturating_add(256 * MIB);
    all.max(SMALLEST)
}

/// Bytes of the image to make, in whole MiB; `None` if even the smallest does not fit.
///
/// The image can grow to its full size, because freed blocks are not returned to the disk. It is never larger
/// than the free space: a full disk below a file system causes I/O errors instead of `ENOSPC`.
pub(super) fn bytes_for(needed: u64, free: u64) -> Option<u64> {
    let least = least_bytes(needed);
    let wanted = least.saturating_mul(2).max(USUAL);
    (free >= least).then(|| (wanted.min(free - free / 16).max(least)) / MIB * MIB)
}

/// Makes a file system of `bytes` in `dir` and mounts it. Returns the mount point, an empty directory.
/// The error names the failed step, with the tool's message.
pub(super) fn mount_in(dir: &OwnDirectory, bytes: u64) -> anyhow::Result<PathBuf> {
    let image = dir.path().join("image");
    let at = dir.path().join(MOUNT_POINT);
    fs::create_dir(&at)?;
    File::create_new(&image)
        .and_then(|file| file.set_len(bytes))
        .with_context(|| format!("making an image of {} MiB", bytes / MIB))?;
    // Otherwise a kernel thread writes the inode tables after the mount, during the measurement. In a sparse
    // file they are zeros already, so writing them now takes no time.
    let eager = ["-E", "lazy_itable_init=0,lazy_journal_init=0"];
    run(tool("mkfs.ext4").args(["-q", "-F"]).args(eager).arg(&image))?;
    // Direct I/O: otherwise every page is cached twice, once for the file system and once for its image.
    let attach = ["--find", "--show", "--direct-io=on"];
    let device = run(tool("losetup").args(attach).arg(&image))
        .context("cannot attach a loop device (a container needs --privileged)")?;
    let mounted = mount_device(&device, &at);
    // Frees a mounted device with its mount, and any other device now.
    let released = run(tool("losetup").arg("--detach").arg(&device));
    mounted?;
    released?;
    // Unlink the image: from now on a killed run leaves only a mount.
    fs::remove_file(&image)?;
    // Backends expect an empty directory.
    fs::remove_dir(at.join("lost+found"))?;
    fs::set_permissions(&at, Permissions::from_mode(0o700))?;
    Ok(at)
}

fn mount_device(device: &str, at: &Path) -> anyhow::Result<()> {
    ensure!(
        is_direct(device),
        "the loop device uses no direct I/O, because the file system of the scratch directory does not support it"
    );
    mount(device, at, "ext4", MountFlags::empty(), None)
        .with_context(|| format!("cannot mount {device} on {} (a container needs --privileged)", at.display()))?;
    // Mounts of daemons in it must not propagate to other namespaces, which would keep it busy.
    mount_change(at, MountPropagationFlags::PRIVATE)
        .with_context(|| format!("making the mount on {} private", at.display()))
}

fn is_direct(device: &str) -> bool {
    let name = Path::new(device).file_name().unwrap_or_default();
    let flag = Path::new("/sys/block").join(name).join("loop/dio");
    fs::read_to_string(flag).is_ok_and(|flag| flag.trim() == "1")
}

/// Frees the loop devices whose image is in `dir`. Logs a warning for each that remains.
pub(super) fn free_loop_devices(dir: &Path) {
    for device in loop_devices(dir) {
        let freed = run(tool("losetup").arg("--detach").arg(&device));
        if let Err(error) = freed
            && loop_devices(dir).contains(&device)
        {
            tracing::warn!("{} stays in use: {error:#}", device.display());
        }
    }
}

/// The loop devices whose image is, or was, in `dir`.
pub(super) fn loop_devices(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    let has_image_here = |disk: &Path| {
        fs::read_to_string(disk.join("loop/backing_file"))
            .is_ok_and(|image| Path::new(image.trim_end()).starts_with(dir))
    };
    let ours = entries.flatten().filter(|disk| has_image_here(&disk.path()));
    ours.map(|disk| Path::new("/dev").join(disk.file_name())).collect()
}

/// A system tool, found in PATH or in `sbin`, which not every root has in PATH. It gets its own process group,
/// so that Ctrl-C does not interrupt a mount halfway.
pub(super) fn tool(name: &str) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/sbin", "/usr/sbin"].map(PathBuf::from);
    let mut dirs = std::env::split_paths(&path).chain(sbin);
    let program = dirs.find_map(|dir| Some(dir.join(name)).filter(|program| program.is_file()));
    // If it is missing, starting it fails with "not found".
    let mut command = Command::new(program.unwrap_or_else(|| Path::new("/usr/sbin").join(name)));
    command.env("LC_ALL", "C").process_group(0);
    command
}

/// Runs a tool and returns its standard output.
/// If it fails, the error has its standard error.
pub(super) fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let program = Path::new(command.get_program());
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or("?");
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let package = match name {
                "losetup" => "mount (or util-linux)",
                _ => "e2fsprogs",
            };
            bail!("{name} is not installed (apt-get install {package})")
        }
        Err(error) => return Err(error).with_context(|| format!("running {name}")),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ensure!(output.status.success(), "{name} failed: {}", text(&output.stderr));
    Ok(text(&output.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * MIB;

    #[test]
    fn an_image_has_room_to_spare_but_never_more_than_is_free() {
        assert_eq!(bytes_for(0, 100 * GIB), Some(8 * GIB));
        assert_eq!(bytes_for(GIB, 100 * GIB), Some(8 * GIB));
        let large = bytes_for(16 * GIB, 100 * GIB).unwrap();
        assert!(large > 32 * GIB && large < 40 * GIB, "{large}");
        assert_eq!(bytes_for(GIB, 4 * GIB), Some(4 * GIB - 256 * MIB));
        assert_eq!(bytes_for(16 * GIB, 16 * GIB), None);
        assert_eq!(bytes_for(0, GIB), Some(GIB));
        assert_eq!(bytes_for(0, GIB - 1), None);
        assert_eq!(bytes_for(u64::MAX, u64::MAX / 2), None);
    }

    #[test]
    fn a_missing_tool_is_named_with_its_package() {
        let error = run(&mut tool("mkfs.ext4-missing")).unwrap_err();
        assert_eq!(error.to_string(), "mkfs.ext4-missing is not installed (apt-get install e2fsprogs)");
    }

    #[test]
    fn a_failed_tool_says_why() {
        let error = run(tool("sh").args(["-c", "echo no room >&2; exit 1"])).unwrap_err();
        assert_eq!(error.to_string(), "sh failed: no room");
    }
}
