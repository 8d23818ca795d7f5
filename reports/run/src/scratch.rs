//! The scratch file system of a run. Figures of creating, deleting and syncing depend on it most.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The scratch file system of a run, as it was before the first pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScratchReceipt {
    /// Whether each epoch has a file system of its own.
    pub kind: ScratchKind,
    /// The type of the file system, such as `ext4`, `xfs`, `btrfs` or `tmpfs`; `unknown` if no mount lists it.
    pub file_system: String,
    /// On ext2, ext3 and ext4, the features in the superblock, as `dumpe2fs -h` lists them.
    /// Empty if unknown: without root, or on another file system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Whether the file system logs changes of its metadata.
    pub journal: Journal,
    /// Options of the mount, then of the superblock, as `/proc/self/mountinfo` lists them, separated by commas.
    pub mount_options: String,
    /// The device and the disk below it, such as `/dev/sda2 on /dev/sda`.
    /// A loop device has no number here, because the number may change with each epoch.
    pub device: String,
    /// Whether the disk below loses acknowledged writes when power fails.
    pub write_cache: WriteCache,
    /// Size of the file system in bytes; for an image, the size of its sparse file.
    pub bytes: u64,
    /// Why the run used a directory instead of the default image, and what that costs; absent for an image, and for a
    /// directory that the user requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
}

/// The kind of scratch that an epoch runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScratchKind {
    /// A fresh ext4 on a loop device, made for the epoch.
    Image,
    /// A fresh directory on an existing file system.
    #[default]
    Directory,
}

/// Whether a file system logs changes of its metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Journal {
    /// With a journal: ext3 or ext4 with `has_journal`, or a file system with its own log (xfs, btrfs).
    Journaled,
    /// Without a journal: ext2, ext4 without `has_journal`, tmpfs, vfat.
    None,
    /// The machine does not report it.
    #[default]
    Unknown,
}

/// How the disk handles a write without a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCache {
    /// The disk may keep the write in volatile memory (`write back`), so fsync needs a flush.
    Volatile,
    /// An acknowledged write is durable (`write through`): fsync needs no flush.
    WriteThrough,
    /// There is no disk, or the kernel does not report it.
    #[default]
    Unknown,
}

impl WriteCache {
    /// Reads the file `queue/write_cache` of a disk in sysfs.
    pub fn parse(text: &str) -> Self {
        match text.trim() {
            "write back" => WriteCache::Volatile,
            "write through" => WriteCache::WriteThrough,
            _ => WriteCache::Unknown,
        }
    }
}

impl fmt::Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Journal::Journaled => "with a journal",
            Journal::None => "without a journal",
            Journal::Unknown => "journal unknown",
        })
    }
}

impl fmt::Display for WriteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WriteCache::Volatile => "volatile write cache",
            WriteCache::WriteThrough => "no volatile write cache",
            WriteCache::Unknown => "write cache unknown",
        })
    }
}

/// One line: kind, file system, journal, size, device and write cache, without features, options and fallback.
impl fmt::Display for ScratchReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ScratchKind::Image => "a fresh file system for each epoch",
            ScratchKind::Directory => "a directory",
        };
        write!(
            f,
            "{kind}: {} {}, {:.1} GiB, {}, {}",
            self.file_system,
            self.journal,
            self.bytes as f64 / f64::from(1 << 30),
            self.device,
            self.write_cache
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt() -> ScratchReceipt {
        ScratchReceipt {
            kind: ScratchKind::Image,
            file_system: "ext4".to_owned(),
            features: vec!["has_journal".to_owned(), "extent".to_owned()],
            journal: Journal::Journaled,
            mount_options: "rw,relatime,rw".to_owned(),
            device: "loop device (direct I/O) on /dev/vda".to_owned(),
            write_cache: WriteCache::Volatile,
            bytes: 8 << 30,
            fallback: None,
        }
    }

    #[test]
    fn a_receipt_survives_toml_and_json() {
        let unknown = ScratchReceipt {
            kind: ScratchKind::Directory,
            features: Vec::new(),
            journal: Journal::None,
            write_cache: WriteCache::WriteThrough,
            fallback: Some("only root can mount an image".to_owned()),
            ..receipt()
        };
        for receipt in [receipt(), unknown] {
            let text = toml::to_string(&receipt).unwrap();
            assert_eq!(toml::from_str::<ScratchReceipt>(&text).unwrap(), receipt);
            let text = serde_json::to_string(&receipt).unwrap();
            assert_eq!(serde_json::from_str::<ScratchReceipt>(&text).unwrap(), receipt);
        }
    }

    #[test]
    fn an_unknown_field_is_refused() {
        let text = toml::to_string(&receipt()).unwrap() + "colour = \"red\"\n";
        let error = toml::from_str::<ScratchReceipt>(&text).unwrap_err();
        assert!(error.to_string().contains("colour"), "{error}");
    }

    #[test]
    fn the_write_cache_is_read_as_sysfs_names_it() {
        assert_eq!(WriteCache::parse("write back\n"), WriteCache::Volatile);
        assert_eq!(WriteCache::parse("write through\n"), WriteCache::WriteThrough);
        assert_eq!(WriteCache::parse(""), WriteCache::Unknown);
    }

    #[test]
    fn a_receipt_is_summarised_in_one_line() {
        assert_eq!(
            receipt().to_string(),
            "a fresh file system for each epoch: ext4 with a journal, 8.0 GiB, loop device (direct I/O) on /dev/vda, volatile write cache"
        );
    }
}
