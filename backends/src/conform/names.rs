//! Which bytes and lengths a name may have.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

use super::check::{Check, did, must, refused, same};
use super::{Feature, Group, Place};

const NAMES: Group = Group("names");

pub(super) const FEATURES: &[Feature] = &[
    NAMES.feature("bytes that are not UTF-8", |place| {
        comes_back(place, b"\xff\xfe latin \xe4")
    }),
    NAMES.feature("`:`, as in a Maildir", |place| {
        comes_back(place, b"1700000000.M1.host:2,S")
    }),
    NAMES.feature("quotes, wildcards, backslash, newline", |place| {
        comes_back(place, b"'; DROP TABLE \"inode\" *?<>|\\ \n.")
    }),
    NAMES.feature("255 bytes, and not one more", longest),
    NAMES.feature("upper and lower case differ", |place| {
        did("creating `a`", fs::write(place.at("a"), "small"))?;
        did("creating `A`", fs::write(place.at("A"), "large"))?;
        same("content of `a`", read(&place.at("a"))?, "small".to_owned())
    }),
    NAMES.feature("composed and decomposed letters differ", |place| {
        did("creating composed", fs::write(place.at("\u{e4}"), "1"))?;
        did("creating decomposed", fs::write(place.at("a\u{308}"), "2"))?;
        same("content", read(&place.at("\u{e4}"))?, "1".to_owned())
    }),
    NAMES.feature("missing ones, and below a file", |place| {
        refused(
            "reading a missing file",
            fs::read(place.at("x")),
            Errno::NOENT,
        )?;
        did("creating", fs::write(place.at("file"), ""))?;
        refused("below a file", fs::read(place.at("file/x")), Errno::NOTDIR)
    }),
];

pub(super) fn read(path: &Path) -> Result<String, super::check::Shortfall> {
    did("reading back", fs::read_to_string(path))
}

fn comes_back(place: &Place, name: &[u8]) -> Check {
    let name = OsStr::from_bytes(name);
    let path = place.dir.join(name);
    did("creating", fs::write(&path, "content"))?;
    same("content", read(&path)?, "content".to_owned())?;
    let listed = did("listing", fs::read_dir(&place.dir))?;
    let listed: Vec<_> = listed.flatten().map(|entry| entry.file_name()).collect();
    same("listing", listed, vec![name.to_owned()])?;
    did("removing", fs::remove_file(&path))?;
    must(!path.exists(), || "it is still there after removing")
}

fn longest(place: &Place) -> Check {
    let name = "x".repeat(255);
    did("creating", fs::write(place.at(&name), "long"))?;
    same("content", read(&place.at(&name))?, "long".to_owned())?;
    refused(
        "creating 256 bytes",
        fs::write(place.at(&"x".repeat(256)), ""),
        Errno::NAMETOOLONG,
    )
}
