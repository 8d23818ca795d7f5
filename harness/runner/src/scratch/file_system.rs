//! Reads the properties of a directory's file system and of the disk below it.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use fuse::connection::{MountEntry, mount_of};
use rundir::{Journal, ScratchKind, ScratchReceipt, WriteCache};

use super::image;

/// The file system of the directory `path`, without its size.
pub(super) fn file_system(path: &Path) -> io::Result<ScratchReceipt> {
    let unknown = ScratchReceipt {
        kind: ScratchKind::Directory,
        file_system: "unknown".to_owned(),
        features: Vec::new(),
        journal: Journal::Unknown,
        mount_options: String::new(),
        device: "unknown".to_owned(),
        write_cache: WriteCache::Unknown,
        bytes: 0,
        fallback: None,
    };
    let Some(mount) = mount_of(path)? else {
        return Ok(unknown);
    };
    let device = sysfs_device(&mount);
    let features = if mount.kind.starts_with("ext") { read_features(&mount.source) } else { Vec::new() };
    Ok(ScratchReceipt {
        journal: journal(&mount.kind, &features, ext4_options(&device).as_deref()),
        features,
        write_cache: device.as_deref().map_or(WriteCache::Unknown, write_cache),
        device: match device.as_deref().map(disks).unwrap_or_default() {
            disks if disks.is_empty() => mount.source,
            disks if disks == [Path::new(&mount.source)] => mount.source,
            disks => {
                let disks: Vec<_> = disks.iter().map(|d| d.to_string_lossy()).collect();
                format!("{} on {}", mount.source, disks.join(", "))
            }
        },
        file_system: mount.kind,
        mount_options: mount.options,
        ..unknown
    })
}

fn read_features(device: &str) -> Vec<String> {
    match image::run(image::tool("dumpe2fs").arg("-h").arg(device)) {
        Ok(text) => parse_features(&text),
        Err(error) => {
            tracing::debug!("the features of {device} are not known: {error:#}");
            Vec::new()
        }
    }
}

/// Parses the features in the output of `dumpe2fs -h`.
fn parse_features(text: &str) -> Vec<String> {
    let mut lines = text.lines();
    let features = lines.find_map(|line| line.strip_prefix("Filesystem features:"));
    let names = features.unwrap_or_default().split_whitespace();
    names.map(str::to_owned).collect()
}

/// Whether a file system has a journal, by its type, its features and the lines of `/proc/fs/ext4/DEVICE/options`.
fn journal(kind: &str, features: &[String], ext4_options: Option<&str>) -> Journal {
    let known = |has: bool| if has { Journal::Journaled } else { Journal::None };
    match (kind, ext4_options) {
        ("ext2" | "ext3" | "ext4", _) if !features.is_empty() => {
            known(features.iter().any(|feature| feature == "has_journal"))
        }
        // The kernel lists the journal's mode only if there is a journal. Reading it needs no root.
        ("ext2" | "ext3" | "ext4", Some(options)) => known(options.lines().any(|line| line.starts_with("data="))),
        ("ext3" | "xfs" | "btrfs" | "zfs" | "bcachefs" | "f2fs" | "jfs" | "ntfs3", _) => Journal::Journaled,
        ("ext2" | "tmpfs" | "ramfs" | "vfat" | "exfat", _) => Journal::None,
        _ => Journal::Unknown,
    }
}

fn ext4_options(device: &Option<PathBuf>) -> Option<String> {
    let name = device.as_deref()?.file_name()?;
    fs::read_to_string(Path::new("/proc/fs/ext4").join(name).join("options")).ok()
}

/// The sysfs directory of a mount's block device; `None` without one.
fn sysfs_device(mount: &MountEntry) -> Option<PathBuf> {
    let number = match mount.device {
        // btrfs has its own device numbers, but its source is a device.
        (0, _) => {
            // The source of `tmpfs` and `overlay` is not a path.
            let source = Some(Path::new(&mount.source)).filter(|source| source.is_absolute())?;
            let found = fs::metadata(source).ok()?;
            let number = found.file_type().is_block_device().then(|| found.rdev())?;
            (rustix::fs::major(number), rustix::fs::minor(number))
        }
        number => number,
    };
    let link = format!("/sys/dev/block/{}:{}", number.0, number.1);
    fs::canonicalize(link).ok()
}

/// The disk of a partition; for another device, the device itself.
fn whole_disk(device: &Path) -> &Path {
    match device.parent() {
        Some(disk) if device.join("partition").exists() => disk,
        _ => device,
    }
}

/// The disks below a device, through partitions, LVM, encryption and RAID.
fn disks(device: &Path) -> Vec<PathBuf> {
    let device = whole_disk(device);
    let slaves = fs::read_dir(device.join("slaves"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|slave| fs::canonicalize(slave.path()).ok());
    let mut below: Vec<_> = slaves.flat_map(|slave| disks(&slave)).collect();
    if below.is_empty()
        && let Some(name) = device.file_name()
    {
        below.push(Path::new("/dev").join(name));
    }
    below.sort();
    below.dedup();
    below
}

/// The write cache of a device. The kernel combines those below LVM, encryption and RAID.
fn write_cache(device: &Path) -> WriteCache {
    let text = fs::read_to_string(whole_disk(device).join("queue/write_cache"));
    text.map_or(WriteCache::Unknown, |text| WriteCache::parse(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMPE2FS: &str = "Filesystem volume name:   <none>
Last mounted on:          <not available>
Filesystem magic number:  0xEF53
Filesystem revision #:    1 (dynamic)
Filesystem features:      has_journal ext_attr resize_inode dir_index filetype extent 64bit
Filesystem flags:         signed_directory_hash
Default mount options:    user_xattr acl
Filesystem state:         clean";

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn features_are_read_as_dumpe2fs_lists_them() {
        let expected = words("has_journal ext_attr resize_inode dir_index filetype extent 64bit");
        assert_eq!(parse_features(DUMPE2FS), expected);
        assert!(parse_features("dumpe2fs 1.47.0 (5-Feb-2023)").is_empty());
    }

    #[test]
    fn the_journal_is_known_by_features_or_options_or_type() {
        let (with, without) = (words("has_journal extent"), words("extent 64bit"));
        assert_eq!(journal("ext4", &with, None), Journal::Journaled);
        assert_eq!(journal("ext4", &without, None), Journal::None);
        let options = "rw\nbarrier\ndata=ordered\ncommit=5\n";
        assert_eq!(journal("ext4", &[], Some(options)), Journal::Journaled);
        let options = "rw\nbarrier\ncommit=5\n";
        assert_eq!(journal("ext4", &[], Some(options)), Journal::None);
        assert_eq!(journal("ext4", &[], None), Journal::Unknown);
        assert_eq!(journal("xfs", &[], None), Journal::Journaled);
        assert_eq!(journal("btrfs", &[], None), Journal::Journaled);
        assert_eq!(journal("tmpfs", &[], None), Journal::None);
        assert_eq!(journal("overlay", &[], None), Journal::Unknown);
    }

    #[test]
    fn a_partition_is_traced_to_its_disk_and_a_logical_volume_to_both_of_its_disks() {
        let sys = tempfile::tempdir().unwrap();
        let at = |name: &str| sys.path().join(name);
        for partition in ["sda/sda2", "sdb/sdb1"] {
            fs::create_dir_all(at(partition)).unwrap();
            fs::write(at(partition).join("partition"), "1\n").unwrap();
        }
        for queue in ["sda/queue", "dm-0/queue", "dm-0/slaves"] {
            fs::create_dir_all(at(queue)).unwrap();
        }
        fs::write(at("sda/queue/write_cache"), "write through\n").unwrap();
        fs::write(at("dm-0/queue/write_cache"), "write back\n").unwrap();
        for slave in ["sda/sda2", "sdb/sdb1"] {
            let link = at("dm-0/slaves").join(slave.split('/').next_back().unwrap());
            std::os::unix::fs::symlink(at(slave), link).unwrap();
        }
        assert_eq!(disks(&at("sda/sda2")), [PathBuf::from("/dev/sda")]);
        assert_eq!(write_cache(&at("sda/sda2")), WriteCache::WriteThrough);
        let both = ["/dev/sda", "/dev/sdb"].map(PathBuf::from);
        assert_eq!(disks(&at("dm-0")), both);
        assert_eq!(write_cache(&at("dm-0")), WriteCache::Volatile);
        assert_eq!(write_cache(&at("sdb/sdb1")), WriteCache::Unknown);
    }

    #[test]
    fn a_file_system_in_memory_has_no_disk() {
        let Ok(found) = file_system(Path::new("/proc")) else {
            panic!("/proc is mounted everywhere");
        };
        assert_eq!((found.file_system.as_str(), found.device.as_str()), ("proc", "proc"));
        assert_eq!(found.write_cache, WriteCache::Unknown);
        assert_eq!(found.journal, Journal::Unknown);
    }
}
