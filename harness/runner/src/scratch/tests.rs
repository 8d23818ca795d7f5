use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fuse::connection::{mount_at, mounts};
use rundir::{Journal, ScratchKind};
use rustix::mount::{MountFlags, mount};

use super::*;

const MIB: u64 = 1 << 20;

/// A base directory, and the scratch in it if images can be made here. If not, the test prints the reason and
/// passes, unless `CTXBENCH_REQUIRE_ROOT` is set.
fn disk() -> Option<(tempfile::TempDir, ScratchDisk)> {
    let base = base_dir();
    let disk = ScratchDisk::choose_in(base.path(), 16 * MIB).unwrap();
    if let Some(reason) = &disk.receipt().fallback {
        let is_required = std::env::var_os("CTXBENCH_REQUIRE_ROOT").is_some();
        assert!(!is_required, "{reason}");
        eprintln!("SKIPPED: {reason}");
        return None;
    }
    Some((base, disk))
}

/// A directory on the disk of the scratch, because `/tmp` may be in memory.
fn base_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(base()).unwrap()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Asserts that `base` has no mount, loop device or file. The kernel may free a loop device with a delay.
fn assert_nothing_left(base: &Path) {
    let mut is_mounted = mounts().unwrap().into_iter().map(|mount| mount.at);
    assert!(!is_mounted.any(|at| at.starts_with(base)));
    let began = Instant::now();
    while !image::loop_devices(base).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(entries(base), Vec::<PathBuf>::new());
}

#[test]
fn an_epoch_is_an_empty_journaled_ext4_and_leaves_nothing() {
    let Some((base, disk)) = disk() else {
        return;
    };
    assert_nothing_left(base.path());
    let receipt = disk.receipt();
    assert_eq!(receipt.kind, ScratchKind::Image);
    assert_eq!(receipt.file_system, "ext4");
    assert_eq!(receipt.journal, Journal::Journaled);
    let has = |name: &str| receipt.features.iter().any(|feature| feature == name);
    assert!(has("has_journal") && has("extent"), "{receipt:?}");
    assert!(receipt.mount_options.starts_with("rw"), "{receipt:?}");
    assert!(receipt.device.contains("direct I/O"), "{receipt:?}");

    let scratch = disk.epoch().unwrap();
    let mounted = mount_at(scratch.path()).unwrap().unwrap();
    assert_eq!(mounted.kind, "ext4");
    assert_eq!(entries(scratch.path()), Vec::<PathBuf>::new());
    let size = rustix::fs::statvfs(scratch.path()).unwrap();
    assert!(size.f_blocks * size.f_frsize > receipt.bytes / 10 * 9);
    fs::write(scratch.path().join("file"), "x").unwrap();
    drop(scratch);
    assert_nothing_left(base.path());

    let scratch = disk.epoch().unwrap();
    assert_eq!(entries(scratch.path()), Vec::<PathBuf>::new());
    scratch.close().unwrap();
    assert_nothing_left(base.path());
}

#[test]
fn two_epochs_at_once_do_not_see_each_other() {
    let Some((base, disk)) = disk() else {
        return;
    };
    let (one, two) = (disk.epoch().unwrap(), disk.epoch().unwrap());
    fs::write(one.path().join("file"), "x").unwrap();
    assert_eq!(entries(two.path()), Vec::<PathBuf>::new());
    one.close().unwrap();
    fs::write(two.path().join("file"), "x").unwrap();
    two.close().unwrap();
    assert_nothing_left(base.path());
}

#[test]
fn a_mount_in_an_epoch_is_detached_with_it() {
    let Some((base, disk)) = disk() else {
        return;
    };
    let scratch = disk.epoch().unwrap();
    let inside = scratch.path().join("inside");
    fs::create_dir(&inside).unwrap();
    mount("ctxbench-test", &inside, "tmpfs", MountFlags::empty(), None).unwrap();
    let open = fs::File::create(inside.join("file")).unwrap();
    scratch.close().unwrap();
    drop(open);
    assert_nothing_left(base.path());
}

#[test]
fn a_closed_epoch_frees_its_loop_device_with_its_last_user() {
    let Some((base, disk)) = disk() else {
        return;
    };
    let scratch = disk.epoch().unwrap();
    let open = fs::File::create(scratch.path().join("file")).unwrap();
    scratch.close().unwrap();
    assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
    assert_eq!(image::loop_devices(base.path()).len(), 1);
    drop(open);
    assert_nothing_left(base.path());
}

#[test]
fn a_run_removes_the_scratch_of_a_killed_run() {
    let Some((base, disk)) = disk() else {
        return;
    };
    // The id of a process that has ended.
    let mut ended = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
    ended.wait().unwrap();
    let left = base.path().join(format!("ctxbench-scratch-{}-AbCdEf", ended.id()));
    let at = left.join(directory::MOUNT_POINT);
    fs::create_dir_all(&at).unwrap();
    // One image is mounted. The other one has only a loop device.
    for name in ["image", "half"] {
        let image = left.join(name);
        fs::File::create(&image).unwrap().set_len(64 * MIB).unwrap();
        image::run(image::tool("mkfs.ext4").args(["-q", "-F"]).arg(&image)).unwrap();
        let device = image::run(image::tool("losetup").args(["-f", "--show"]).arg(&image)).unwrap();
        if name == "image" {
            mount(&device, &at, "ext4", MountFlags::empty(), None).unwrap();
        }
    }
    fs::write(at.join("file"), "x").unwrap();
    let inside = at.join("inside");
    fs::create_dir(&inside).unwrap();
    mount("ctxbench-test", &inside, "tmpfs", MountFlags::empty(), None).unwrap();

    let living = disk.epoch().unwrap();
    ScratchDisk::choose_in(base.path(), 0).unwrap();
    assert!(!left.exists());
    assert!(mount_at(living.path()).unwrap().is_some());
    living.close().unwrap();
    assert_nothing_left(base.path());
}

#[test]
fn a_failed_image_falls_back_to_a_directory_with_the_reason_and_the_cost() {
    let base = base_dir();
    let reason = "mkfs.ext4 is not installed (apt-get install e2fsprogs)";
    let disk = ScratchDisk::directory(base.path(), Some(reason)).unwrap();
    let receipt = disk.receipt();
    assert_eq!(receipt.kind, ScratchKind::Directory);
    let fallback = receipt.fallback.as_deref().unwrap();
    assert!(fallback.starts_with(reason), "{fallback}");
    assert!(fallback.contains(&*base.path().to_string_lossy()), "{fallback}");
}

#[test]
fn each_epoch_of_a_directory_is_empty_and_leaves_nothing() {
    let base = base_dir();
    let disk = ScratchDisk::choose(Some(base.path()), MIB).unwrap();
    assert_eq!(disk.receipt().kind, ScratchKind::Directory);
    assert_eq!(disk.receipt().fallback, None);
    assert!(disk.receipt().bytes > MIB);
    for _ in 0..2 {
        let scratch = disk.epoch().unwrap();
        assert!(scratch.path().starts_with(base.path()));
        assert_eq!(entries(scratch.path()), Vec::<PathBuf>::new());
        fs::write(scratch.path().join("file"), "x").unwrap();
        scratch.close().unwrap();
        assert_nothing_left(base.path());
    }
}

#[test]
fn a_scratch_too_small_for_the_plan_is_refused_with_both_sizes() {
    let base = base_dir();
    let free = free_bytes(base.path()).unwrap();
    let needed = 1 << 50;
    for refused in [ScratchDisk::choose(Some(base.path()), needed), ScratchDisk::choose_in(base.path(), needed)] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("1048576.0 GiB"), "{error}");
        assert!(error.contains("--scratch-dir"), "{error}");
        // Other programs may write between the two measurements.
        let gib = free >> 30;
        let near = (gib.saturating_sub(2)..=gib + 2).any(|gib| error.contains(&format!(" {gib}.")));
        assert!(near || gib == 0, "{error}");
    }
}

#[test]
fn a_scratch_without_room_for_the_structures_of_an_image_is_refused() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CTXBENCH_REQUIRE_ROOT").is_none());
        eprintln!("SKIPPED: this test needs root");
        return;
    }
    let base = base_dir();
    mount("ctxbench-test", base.path(), "tmpfs", MountFlags::empty(), Some(c"size=700m")).unwrap();
    let refused = ScratchDisk::choose_in(base.path(), 600 * MIB);
    rustix::mount::unmount(base.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("needs 600 MiB") && error.contains("1.0 GiB with"), "{error}");
    assert!(error.contains("only 700 MiB free"), "{error}");
}

#[test]
fn choose_names_a_missing_directory() {
    let missing = Path::new("/nonexistent/scratch");
    let error = ScratchDisk::choose(Some(missing), 0).unwrap_err();
    assert!(format!("{error:#}").contains("/nonexistent/scratch"), "{error:#}");
}

#[test]
fn a_dropped_scratch_directory_is_deleted() {
    let base = tempfile::tempdir().unwrap();
    let scratch = EpochScratch::in_directory(Some(base.path())).unwrap();
    fs::write(scratch.path().join("file"), "x").unwrap();
    drop(scratch);
    assert!(fs::read_dir(base.path()).unwrap().next().is_none());
}
