//! Modes, times, extended attributes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags, getxattr, listxattr, removexattr, setxattr,
    utimensat,
};
use rustix::io::Errno;

use super::check::{Check, Shortfall, did, must, refused, same};
use super::{Feature, Group, TestDir};

const ATTRIBUTES: Group = Group("attributes");
const XATTR: Group = Group("xattr");

pub(super) const FEATURES: &[Feature] = &[
    ATTRIBUTES.feature("mode bits, set-user-ID and sticky included", |test_dir| {
        did("creating", fs::write(test_dir.at("a"), ""))?;
        for mode in [0o000, 0o644, 0o4755, 0o1777] {
            let permissions = fs::Permissions::from_mode(mode);
            did("chmod", fs::set_permissions(test_dir.at("a"), permissions))?;
            let is = test_dir.stat("a")?.mode() & 0o7777;
            same("mode", format!("{is:o}"), format!("{mode:o}"))?;
        }
        Ok(())
    }),
    ATTRIBUTES.feature("times to the nanosecond, before 1970 too", |test_dir| {
        did("creating", fs::write(test_dir.at("a"), ""))?;
        for seconds in [1_000_000_000, -1_000_000] {
            let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
            set_times(&test_dir.at("a"), time, time)?;
            let meta = test_dir.stat("a")?;
            let is = (meta.mtime(), meta.mtime_nsec(), meta.atime(), meta.atime_nsec());
            same("mtime and atime", is, (seconds, 123_456_789, seconds, 123_456_789))?;
        }
        Ok(())
    }),
    ATTRIBUTES.feature("`UTIME_NOW` and `UTIME_OMIT`", |test_dir| {
        did("creating", fs::write(test_dir.at("a"), ""))?;
        let special = |nsec| Timespec { tv_sec: 0, tv_nsec: nsec };
        let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        set_times(&test_dir.at("a"), old, old)?;
        set_times(&test_dir.at("a"), special(UTIME_OMIT), special(UTIME_NOW))?;
        let meta = test_dir.stat("a")?;
        same("atime", meta.atime(), 1_000_000_000)?;
        must(meta.mtime() > 1_700_000_000, || format!("mtime is {}, not now", meta.mtime()))
    }),
    ATTRIBUTES.feature("which times a change moves", times_move),
    XATTR.feature("set, get, list, replace, remove; binary", |test_dir| {
        let path = test_dir.at("a");
        did("creating", fs::write(&path, ""))?;
        for path in [path.as_path(), test_dir.path.as_path()] {
            xattrs(path)?;
        }
        Ok(())
    }),
    XATTR.feature("values of 2,000 bytes", |test_dir| {
        let (path, value) = (test_dir.at("a"), vec![7; 2000]);
        did("creating", fs::write(&path, ""))?;
        did("setting", setxattr(&path, "user.ctx.large", &value, XattrFlags::empty()))?;
        same("value", get(&path, "user.ctx.large")?, value)?;
        let short = getxattr(&path, "user.ctx.large", &mut [0; 10][..]);
        refused("reading into too small a buffer", short, Errno::RANGE)
    }),
];

fn set_times(path: &Path, last_access: Timespec, last_modification: Timespec) -> Check {
    let times = Timestamps { last_access, last_modification };
    did("utimensat", utimensat(CWD, path, &times, AtFlags::empty()))
}

fn times_move(test_dir: &TestDir) -> Check {
    let path = test_dir.at("a");
    did("creating", fs::write(&path, "1"))?;
    let times = |path: &Path| {
        let meta = did("stat", fs::metadata(path))?;
        Ok::<_, Shortfall>(((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())))
    };
    // Longer than a clock tick, the resolution of some file systems' timestamps.
    let wait = || std::thread::sleep(Duration::from_millis(15));
    let before = times(&path)?;
    wait();
    let mut file = did("opening", File::options().append(true).open(&path))?;
    did("writing", file.write_all(b"2"))?;
    drop(file);
    let written = times(&path)?;
    must(written.0 > before.0 && written.1 > before.1, || "a write does not move mtime and ctime")?;
    wait();
    did("chmod", fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))?;
    let changed = times(&path)?;
    must(changed.1 > written.1, || "chmod does not move ctime")?;
    same("mtime after chmod", changed.0, written.0)?;
    wait();
    let dir = times(&test_dir.path)?;
    did("linking", fs::hard_link(&path, test_dir.at("b")))?;
    must(times(&path)?.1 > changed.1, || "link does not move ctime")?;
    let linked = times(&test_dir.path)?;
    must(linked.0 > dir.0, || "a new name does not move the directory's mtime")?;
    wait();
    did("removing", fs::remove_file(test_dir.at("b")))?;
    must(times(&test_dir.path)?.0 > linked.0, || "removing a name does not move the directory's mtime")
}

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Shortfall> {
    let mut value = vec![0; 65_536];
    let length = did("getting", getxattr(path, name, &mut value[..]))?;
    value.truncate(length);
    Ok(value)
}

fn xattrs(path: &Path) -> Check {
    let name = "user.ctx.tag";
    let set = |value: &[u8], flags| setxattr(path, name, value, flags);
    refused("getting a missing one", getxattr(path, name, &mut [0; 8][..]), Errno::NODATA)?;
    refused("replacing a missing one", set(b"x", XattrFlags::REPLACE), Errno::NODATA)?;
    did("creating", set(b"a\0\xff", XattrFlags::CREATE))?;
    refused("creating again", set(b"x", XattrFlags::CREATE), Errno::EXIST)?;
    same("value", get(path, name)?, b"a\0\xff".to_vec())?;
    did("replacing", set(b"longer than before", XattrFlags::REPLACE))?;
    same("value", get(path, name)?, b"longer than before".to_vec())?;
    let mut names = vec![0; 4096];
    let length = did("listing", listxattr(path, &mut names[..]))?;
    let listed = names[..length].split(|byte| *byte == 0).any(|listed| listed == name.as_bytes());
    must(listed, || "it is not listed")?;
    did("removing", removexattr(path, name))?;
    refused("removing again", removexattr(path, name), Errno::NODATA)
}
