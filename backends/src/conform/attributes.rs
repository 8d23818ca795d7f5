//! Times and extended attributes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, Timespec, Timestamps, XattrFlags, getxattr, listxattr, removexattr, setxattr,
    utimensat,
};
use rustix::io::Errno;

use super::check::{Check, Shortfall, did, must, refused, same};
use super::Feature;

pub(super) const FEATURES: &[Feature] = &[
    Feature::new(
        "attributes",
        "times before 1970, to the nanosecond",
        |place| {
            did("creating", fs::write(place.at("a"), ""))?;
            let time = Timespec {
                tv_sec: -1_000_000,
                tv_nsec: 123_456_789,
            };
            let times = Timestamps {
                last_access: time,
                last_modification: time,
            };
            let set = utimensat(CWD, place.at("a"), &times, AtFlags::empty());
            did("utimensat", set)?;
            let meta = did("stat", fs::metadata(place.at("a")))?;
            let mtime = (meta.mtime(), meta.mtime_nsec());
            same("mtime", mtime, (time.tv_sec, time.tv_nsec))?;
            let atime = (meta.atime(), meta.atime_nsec());
            same("atime", atime, (time.tv_sec, time.tv_nsec))
        },
    ),
    Feature::new("attributes", "a write moves mtime and ctime", |place| {
        let path = place.at("a");
        did("creating", fs::write(&path, "1"))?;
        let times = || {
            let meta = did("stat", fs::metadata(&path))?;
            Ok::<_, Shortfall>((
                (meta.mtime(), meta.mtime_nsec()),
                (meta.ctime(), meta.ctime_nsec()),
            ))
        };
        let before = times()?;
        // Longer than a clock tick, the resolution of some file systems' timestamps.
        std::thread::sleep(Duration::from_millis(15));
        let mut file = did("opening", File::options().append(true).open(&path))?;
        did("writing", file.write_all(b"2"))?;
        drop(file);
        let after = times()?;
        must(
            after.0 > before.0 && after.1 > before.1,
            || "a write does not move mtime and ctime",
        )
    }),
    Feature::new(
        "xattr",
        "set, get, list, replace, remove; binary",
        |place| {
            let path = place.at("a");
            did("creating", fs::write(&path, ""))?;
            for path in [path.as_path(), place.dir.as_path()] {
                xattrs(path)?;
            }
            Ok(())
        },
    ),
    Feature::new("xattr", "values of 2,000 bytes", |place| {
        let (path, value) = (place.at("a"), vec![7; 2000]);
        did("creating", fs::write(&path, ""))?;
        did(
            "setting",
            setxattr(&path, "user.ctx.large", &value, XattrFlags::empty()),
        )?;
        same("value", get(&path, "user.ctx.large")?, value)?;
        let short = getxattr(&path, "user.ctx.large", &mut [0; 10][..]);
        refused("reading into too small a buffer", short, Errno::RANGE)
    }),
];

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Shortfall> {
    let mut value = vec![0; 65_536];
    let length = did("getting", getxattr(path, name, &mut value[..]))?;
    value.truncate(length);
    Ok(value)
}

fn xattrs(path: &Path) -> Check {
    let name = "user.ctx.tag";
    let set = |value: &[u8], flags| setxattr(path, name, value, flags);
    refused(
        "getting a missing one",
        getxattr(path, name, &mut [0; 8][..]),
        Errno::NODATA,
    )?;
    refused(
        "replacing a missing one",
        set(b"x", XattrFlags::REPLACE),
        Errno::NODATA,
    )?;
    did("creating", set(b"a\0\xff", XattrFlags::CREATE))?;
    refused(
        "creating again",
        set(b"x", XattrFlags::CREATE),
        Errno::EXIST,
    )?;
    same("value", get(path, name)?, b"a\0\xff".to_vec())?;
    did("replacing", set(b"longer than before", XattrFlags::REPLACE))?;
    same("value", get(path, name)?, b"longer than before".to_vec())?;
    let mut names = vec![0; 4096];
    let length = did("listing", listxattr(path, &mut names[..]))?;
    let listed = names[..length]
        .split(|byte| *byte == 0)
        .any(|listed| listed == name.as_bytes());
    must(listed, || "it is not listed")?;
    did("removing", removexattr(path, name))?;
    refused("removing again", removexattr(path, name), Errno::NODATA)
}
