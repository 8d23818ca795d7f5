//! The scratch of a run: the file system of its workspaces, fresh for each epoch and deleted after it.
//!
//! As root it is a journaled ext4 in an image on the scratch disk. Without root, or if the user names a
//! directory, it is a fresh directory there. The receipt records the choice and its reason.

mod directory;
mod file_system;
mod image;

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rundir::{Journal, ScratchKind, ScratchReceipt};

use directory::OwnDirectory;
use file_system::file_system;

/// The default directory of the scratch. Unlike `/tmp`, it is usually on a disk (Filesystem Hierarchy Standard).
const DEFAULT: &str = "/var/tmp";

/// `CTXBENCH_SCRATCH`, or `/var/tmp`.
fn base() -> PathBuf {
    std::env::var_os("CTXBENCH_SCRATCH").map_or_else(|| PathBuf::from(DEFAULT), PathBuf::from)
}

/// The place and kind of the scratch of a run, chosen once before the first pass.
#[derive(Debug)]
pub struct ScratchDisk {
    base: PathBuf,
    receipt: ScratchReceipt,
}

impl ScratchDisk {
    /// Removes the leftovers of killed runs. Chooses a directory in `parent`, or else, in `CTXBENCH_SCRATCH` or
    /// `/var/tmp`, an image, which it makes once as a test, or a directory if that fails.
    ///
    /// `needed` is the most that one epoch holds at a time, in bytes. A file counts as at least 16 KiB, because
    /// `mkfs.ext4` makes one inode for so many bytes.
    /// Fails if fewer than `needed` bytes are free. An image also needs room for its metadata.
    pub fn choose(parent: Option<&Path>, needed: u64) -> anyhow::Result<Self> {
        match parent {
            None => Self::choose_in(&base(), needed),
            Some(dir) => Self::directory(&checked(dir, needed)?, None),
        }
    }

    fn choose_in(base: &Path, needed: u64) -> anyhow::Result<Self> {
        let base = checked(base, needed)?;
        if !rustix::process::geteuid().is_root() {
            return Self::directory(&base, Some("only root can mount an image"));
        }
        let free = free_bytes(&base)?;
        let Some(bytes) = image::bytes_for(needed, free) else {
            bail!(
                "the plan needs {} of scratch space ({} with the metadata of its file system), but {} has only {} free ({})",
                size(needed),
                size(image::least_bytes(needed)),
                base.display(),
                size(free),
                ADVICE
            );
        };
        match Self::image(&base, bytes) {
            Ok(disk) => Ok(disk),
            Err(error) => Self::directory(&base, Some(&format!("{error:#}"))),
        }
    }

    /// Makes, mounts and unmounts an image, which tests more than a check of each step.
    fn image(base: &Path, bytes: u64) -> anyhow::Result<Self> {
        let below = file_system(base)?;
        let epoch = EpochScratch::image(base, bytes)?;
        let made = file_system(epoch.path())?;
        epoch.close().context("unmounting the image")?;
        let receipt = ScratchReceipt {
            kind: ScratchKind::Image,
            device: format!("loop device (direct I/O) on {}", below.device),
            write_cache: below.write_cache,
            bytes,
            ..made
        };
        Ok(Self { base: base.to_owned(), receipt })
    }

    /// Chooses a directory in `base`. `reason` says why a wanted image cannot be made.
    fn directory(base: &Path, reason: Option<&str>) -> anyhow::Result<Self> {
        let found = file_system(base)?;
        let stat = rustix::fs::statvfs(base).context("asking for the size of the scratch")?;
        let fallback = reason.map(|reason| {
            format!(
                "{reason}. The run uses a directory in {} instead of a new journaled ext4 for each epoch. {}",
                base.display(),
                cost(&found)
            )
        });
        let receipt = ScratchReceipt { bytes: stat.f_blocks.saturating_mul(stat.f_frsize), fallback, ..found };
        let disk = Self { base: base.to_owned(), receipt };
        // Refuse a read-only directory now, not in the first epoch.
        disk.epoch()?.close()?;
        Ok(disk)
    }

    /// The chosen scratch and the reason.
    pub fn receipt(&self) -> &ScratchReceipt {
        &self.receipt
    }

    /// Makes a fresh, empty scratch.
    pub fn epoch(&self) -> anyhow::Result<EpochScratch> {
        match self.receipt.kind {
            ScratchKind::Image => EpochScratch::image(&self.base, self.receipt.bytes),
            ScratchKind::Directory => EpochScratch::directory(&self.base),
        }
        .with_context(|| format!("making a scratch in {}", self.base.display()))
    }
}

/// The scratch of one epoch, or of a command that needs no fresh file system. Dropping it unmounts everything in it, frees its loop device and deletes it.
#[derive(Debug)]
pub struct EpochScratch {
    dir: OwnDirectory,
    path: PathBuf,
}

impl EpochScratch {
    fn image(base: &Path, bytes: u64) -> anyhow::Result<Self> {
        let dir = OwnDirectory::make(base)?;
        let path = image::mount_in(&dir, bytes)?;
        Ok(Self { dir, path })
    }

    /// A directory in `parent`, or in `CTXBENCH_SCRATCH`, or in `/var/tmp`.
    pub fn in_directory(parent: Option<&Path>) -> anyhow::Result<Self> {
        let base = parent.map_or_else(base, Path::to_owned);
        Self::directory(&base).with_context(|| format!("making a scratch directory in {}", base.display()))
    }

    fn directory(base: &Path) -> anyhow::Result<Self> {
        let dir = OwnDirectory::make(base)?;
        let path = dir.path().to_owned();
        Ok(Self { dir, path })
    }

    /// Its empty directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As dropping it, but returns errors. Detaches a mount that is still in use, with a warning; it ends with
    /// its last user.
    pub fn close(self) -> io::Result<()> {
        self.dir.close()
    }
}

const ADVICE: &str = "free space, name a directory on a larger disk with --scratch-dir, or measure fewer workloads";

/// The canonical path of `dir`, without leftovers of killed runs, if it has `needed` bytes free.
fn checked(dir: &Path, needed: u64) -> anyhow::Result<PathBuf> {
    let found = dir.canonicalize();
    let dir = found.with_context(|| format!("finding the scratch directory in {}", dir.display()))?;
    directory::remove_left_over(&dir);
    let free = free_bytes(&dir)?;
    if free < needed {
        bail!(
            "the plan needs {} of scratch space, but {} has only {} free ({ADVICE})",
            size(needed),
            dir.display(),
            size(free)
        );
    }
    Ok(dir)
}

/// Free bytes for unprivileged users.
fn free_bytes(dir: &Path) -> anyhow::Result<u64> {
    let stat = rustix::fs::statvfs(dir).with_context(|| format!("asking how much is free in {}", dir.display()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

/// How figures on this file system differ from those on a fresh one.
fn cost(found: &ScratchReceipt) -> &'static str {
    match (found.file_system.as_str(), found.journal) {
        ("tmpfs" | "ramfs", _) => {
            "It is in memory, where fsync costs nothing and nothing is read from a disk, so its figures hold for no disk."
        }
        ("ext4", Journal::None) => {
            "It is an ext4 without a journal, where creating files becomes up to 20 times slower after deletions, so figures for creating and deleting do not hold for a usual file system."
        }
        (_, Journal::None) => {
            "That file system has no journal, so creating, deleting and fsync are cheaper than on a usual file system."
        }
        (_, Journal::Journaled) => {
            "Files of other programs and of earlier epochs on that file system influence the figures, which therefore differ more between runs and machines."
        }
        (_, Journal::Unknown) => {
            "It is unknown whether that file system has a journal; without one, figures for creating and deleting do not hold for a usual file system."
        }
    }
}

#[cfg(test)]
mod tests;
