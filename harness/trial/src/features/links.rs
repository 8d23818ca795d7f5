//! Hard and symbolic links, and files without a name.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::check::{Check, did, must, refused, same};
use super::names::read;
use super::{Feature, Group, TestDir};

const LINKS: Group = Group("links");

pub(super) const FEATURES: &[Feature] = &[
    LINKS.feature("hard links share content and count", |test_dir| {
        did("creating", fs::write(test_dir.at("a"), "one"))?;
        did("linking", fs::hard_link(test_dir.at("a"), test_dir.at("b")))?;
        did("writing", fs::write(test_dir.at("b"), "two"))?;
        same("content", read(&test_dir.at("a"))?, "two".to_owned())?;
        same("links", test_dir.stat("a")?.nlink(), 2)?;
        did("removing", fs::remove_file(test_dir.at("a")))?;
        same("links", test_dir.stat("b")?.nlink(), 1)?;
        same("content", read(&test_dir.at("b"))?, "two".to_owned())
    }),
    LINKS.feature("no hard links of directories, none over a name", |test_dir| {
        did("creating", fs::create_dir(test_dir.at("dir")))?;
        did("creating", fs::write(test_dir.at("a"), ""))?;
        refused("a directory", fs::hard_link(test_dir.at("dir"), test_dir.at("x")), Errno::PERM)?;
        refused("over a name", fs::hard_link(test_dir.at("a"), test_dir.at("dir")), Errno::EXIST)
    }),
    LINKS.feature("symbolic links, dangling, looping, long", symbolic),
    LINKS.feature("unlinked while open: readable, writable, gone after", unlinked),
    LINKS.feature("a directory removed while open", |test_dir| {
        did("creating", fs::create_dir(test_dir.at("dir")))?;
        let open = did("opening", File::open(test_dir.at("dir")))?;
        did("removing", fs::remove_dir(test_dir.at("dir")))?;
        did("stat", open.metadata())?;
        let made = openat(&open, "x", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR);
        refused("creating in it", made, Errno::NOENT)
    }),
];

fn symbolic(test_dir: &TestDir) -> Check {
    did("creating", fs::write(test_dir.at("a"), "one"))?;
    did("linking", symlink("a", test_dir.at("link")))?;
    same("content", read(&test_dir.at("link"))?, "one".to_owned())?;
    let target = did("reading the link", fs::read_link(test_dir.at("link")))?;
    same("target", target.as_path(), Path::new("a"))?;
    let length = did("lstat", fs::symlink_metadata(test_dir.at("link")))?.len();
    same("size of the link", length, 1)?;
    did("linking", symlink("missing", test_dir.at("dangling")))?;
    refused("reading a dangling one", fs::read(test_dir.at("dangling")), Errno::NOENT)?;
    did("linking", symlink("loop", test_dir.at("loop")))?;
    refused("reading a loop", fs::read(test_dir.at("loop")), Errno::LOOP)?;
    let nofollow = OFlags::NOFOLLOW | OFlags::RDONLY;
    let opened = openat(CWD, test_dir.at("link"), nofollow, Mode::empty());
    refused("opening with O_NOFOLLOW", opened, Errno::LOOP)?;
    let long: PathBuf = "x/".repeat(2000).into();
    did("linking to 4,000 bytes", symlink(&long, test_dir.at("long")))?;
    same("long target", did("reading the link", fs::read_link(test_dir.at("long")))?, long)
}

fn unlinked(test_dir: &TestDir) -> Check {
    let mut file = test_dir.create("gone")?;
    did("writing", file.write_all(b"still here"))?;
    did("removing", fs::remove_file(test_dir.at("gone")))?;
    did("creating another", fs::write(test_dir.at("gone"), "another"))?;
    did("seeking", file.seek(SeekFrom::Start(0)))?;
    let mut text = String::new();
    did("reading the removed file", file.read_to_string(&mut text))?;
    same("content of the removed file", text, "still here".to_owned())?;
    did("writing to the removed file", file.write_all(b", and grows"))?;
    let meta = did("fstat of the removed file", file.metadata())?;
    same("its size and links", (meta.len(), meta.nlink()), (21, 0))?;
    did("truncating the removed file", file.set_len(5))?;
    drop(file);
    same("content of the other", read(&test_dir.at("gone"))?, "another".to_owned())?;
    let mut names = did("listing", fs::read_dir(&test_dir.path))?.flatten();
    let hidden = names.find(|entry| entry.file_name() != "gone");
    must(hidden.is_none(), || format!("{:?} is left in the directory", hidden.map(|entry| entry.file_name())))
}
