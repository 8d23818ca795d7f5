//! Which bytes and lengths a name may have.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

use super::check::{Check, did, must, refused, same};
use super::{Feature, Group, TestDir};

const NAMES: Group = Group("names");

pub(super) const FEATURES: &[Feature] = &[
    NAMES.feature("bytes that are not UTF-8", |test_dir| comes_back(test_dir, b"\xff\xfe latin \xe4")),
    NAMES.feature("`:`, as in a Maildir", |test_dir| comes_back(test_dir, b"1700000000.M1.host:2,S")),
    NAMES.feature("quotes, wildcards, backslash, newline", |test_dir| {
        comes_back(test_dir, b"'; DROP TABLE \"inode\" *?<>|\\ \n.")
    }),
    NAMES.feature("255 bytes, and not one more", longest),
    NAMES.feature("upper and lower case differ", |test_dir| {
        did("creating `a`", fs::write(test_dir.at("a"), "small"))?;
        did("creating `A`", fs::write(test_dir.at("A"), "large"))?;
        same("content of `a`", read(&test_dir.at("a"))?, "small".to_owned())
    }),
    NAMES.feature("composed and decomposed letters differ", |test_dir| {
        did("creating composed", fs::write(test_dir.at("\u{e4}"), "1"))?;
        did("creating decomposed", fs::write(test_dir.at("a\u{308}"), "2"))?;
        same("content", read(&test_dir.at("\u{e4}"))?, "1".to_owned())
    }),
    NAMES.feature("missing ones, and below a file", |test_dir| {
        refused("reading a missing file", fs::read(test_dir.at("x")), Errno::NOENT)?;
        did("creating", fs::write(test_dir.at("file"), ""))?;
        refused("below a file", fs::read(test_dir.at("file/x")), Errno::NOTDIR)
    }),
];

pub(super) fn read(path: &Path) -> Result<String, super::check::Shortfall> {
    did("reading back", fs::read_to_string(path))
}

fn comes_back(test_dir: &TestDir, name: &[u8]) -> Check {
    let name = OsStr::from_bytes(name);
    let path = test_dir.path.join(name);
    did("creating", fs::write(&path, "content"))?;
    same("content", read(&path)?, "content".to_owned())?;
    let listed = did("listing", fs::read_dir(&test_dir.path))?;
    let listed: Vec<_> = listed.flatten().map(|entry| entry.file_name()).collect();
    same("listing", listed, vec![name.to_owned()])?;
    did("removing", fs::remove_file(&path))?;
    must(!path.exists(), || "it is still there after removing")
}

fn longest(test_dir: &TestDir) -> Check {
    let name = "x".repeat(255);
    did("creating", fs::write(test_dir.at(&name), "long"))?;
    same("content", read(&test_dir.at(&name))?, "long".to_owned())?;
    refused("creating 256 bytes", fs::write(test_dir.at(&"x".repeat(256)), ""), Errno::NAMETOOLONG)
}
