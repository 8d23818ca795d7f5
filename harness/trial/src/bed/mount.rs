//! The mount point of a test bed: files in the bare directory must not pass for files in the mount.

use std::path::{Path, PathBuf};

use fuse::connection::mount_at;
use rundir::faults::AgentEventKind;

use super::super::agent::{Failure, JobAnswer};
use super::TestBed;

/// The call that fails where nothing is mounted, before any job reaches the agent process.
pub(super) const MOUNT: &str = "mount";

/// The answer to a job on a mount point where nothing is mounted.
pub(super) fn not_mounted() -> JobAnswer {
    let failure = Failure {
        call: MOUNT.to_owned(),
        what: AgentEventKind::Unnumbered,
        errno: None,
        text: "nothing is mounted there".to_owned(),
    };
    JobAnswer { failures: vec![failure], ..JobAnswer::default() }
}

impl TestBed {
    /// The directory on which the backend mounts, if it mounts.
    pub fn mount_point(&self) -> PathBuf {
        self.config.dir.join("mnt")
    }

    /// Whether `place` belongs to the mount, and nothing is mounted.
    pub(super) fn is_bare(&self, place: &Path) -> bool {
        let mount = self.mount_point();
        self.backend.describe().mounts > 0 && place.starts_with(&mount) && !matches!(mount_at(&mount), Ok(Some(_)))
    }

    /// Removes files that an agent process wrote to the bare mount point after the mount went away.
    /// Acknowledgements then say nothing about the backend's data.
    pub(super) fn sweep(&mut self) {
        let mount = self.mount_point();
        if !self.is_bare(&mount) {
            return;
        }
        let entries = std::fs::read_dir(&mount).into_iter().flatten();
        let entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        for path in &entries {
            let removed = if path.is_dir() && !path.is_symlink() {
                std::fs::remove_dir_all(path)
            } else {
                std::fs::remove_file(path)
            };
            if let Err(error) = removed {
                tracing::warn!("{}: {error}", path.display());
            }
        }
        if !entries.is_empty() {
            self.beside = Some(format!(
                "the mount disappeared while an agent worked, and {} names were created in the directory below it, so its acknowledgements prove nothing",
                entries.len()
            ));
        }
    }
}
