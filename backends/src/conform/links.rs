//! Hard and symbolic links, and files without a name.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::check::{Check, did, must, refused, same};
use super::names::read;
use super::{Feature, Group, Place};

const LINKS: Group = Group("links");

pub(super) const FEATURES: &[Feature] = &[
    LINKS.feature("hard links share content and count", |place| {
        did("creating", fs::write(place.at("a"), "one"))?;
        did("linking", fs::hard_link(place.at("a"), place.at("b")))?;
        did("writing", fs::write(place.at("b"), "two"))?;
        same("content", read(&place.at("a"))?, "two".to_owned())?;
        same("links", place.stat("a")?.nlink(), 2)?;
        did("removing", fs::remove_file(place.at("a")))?;
        same("links", place.stat("b")?.nlink(), 1)?;
        same("content", read(&place.at("b"))?, "two".to_owned())
    }),
    LINKS.feature("no hard links of directories, none over a name", |place| {
        did("creating", fs::create_dir(place.at("dir")))?;
        did("creating", fs::write(place.at("a"), ""))?;
        refused(
            "a directory",
            fs::hard_link(place.at("dir"), place.at("x")),
            Errno::PERM,
        )?;
        refused(
            "over a name",
            fs::hard_link(place.at("a"), place.at("dir")),
            Errno::EXIST,
        )
    }),
    LINKS.feature("symbolic links, dangling, looping, long", symbolic),
    LINKS.feature(
        "unlinked while open: readable, writable, gone after",
        unlinked,
    ),
    LINKS.feature("a directory removed while open", |place| {
        did("creating", fs::create_dir(place.at("dir")))?;
        let open = did("opening", File::open(place.at("dir")))?;
        did("removing", fs::remove_dir(place.at("dir")))?;
        did("stat", open.metadata())?;
        let made = openat(&open, "x", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR);
        refused("creating in it", made, Errno::NOENT)
    }),
];

fn symbolic(place: &Place) -> Check {
    did("creating", fs::write(place.at("a"), "one"))?;
    did("linking", symlink("a", place.at("link")))?;
    same("content", read(&place.at("link"))?, "one".to_owned())?;
    let target = did("reading the link", fs::read_link(place.at("link")))?;
    same("target", target.as_path(), Path::new("a"))?;
    let length = did("lstat", fs::symlink_metadata(place.at("link")))?.len();
    same("size of the link", length, 1)?;
    did("linking", symlink("missing", place.at("dangling")))?;
    refused(
        "reading a dangling one",
        fs::read(place.at("dangling")),
        Errno::NOENT,
    )?;
    did("linking", symlink("loop", place.at("loop")))?;
    refused("reading a loop", fs::read(place.at("loop")), Errno::LOOP)?;
    let nofollow = OFlags::NOFOLLOW | OFlags::RDONLY;
    let opened = openat(CWD, place.at("link"), nofollow, Mode::empty());
    refused("opening with O_NOFOLLOW", opened, Errno::LOOP)?;
    let long: PathBuf = "x/".repeat(2000).into();
    did("linking to 4,000 bytes", symlink(&long, place.at("long")))?;
    same(
        "long target",
        did("reading the link", fs::read_link(place.at("long")))?,
        long,
    )
}

fn unlinked(place: &Place) -> Check {
    let mut file = place.create("gone")?;
    did("writing", file.write_all(b"still here"))?;
    did("removing", fs::remove_file(place.at("gone")))?;
    did("creating another", fs::write(place.at("gone"), "another"))?;
    did("seeking", file.seek(SeekFrom::Start(0)))?;
    let mut text = String::new();
    did("reading the removed file", file.read_to_string(&mut text))?;
    same("content of the removed file", text, "still here".to_owned())?;
    did(
        "writing to the removed file",
        file.write_all(b", and grows"),
    )?;
    let meta = did("fstat of the removed file", file.metadata())?;
    same("its size and links", (meta.len(), meta.nlink()), (21, 0))?;
    did("truncating the removed file", file.set_len(5))?;
    drop(file);
    same(
        "content of the other",
        read(&place.at("gone"))?,
        "another".to_owned(),
    )?;
    let mut names = did("listing", fs::read_dir(&place.dir))?.flatten();
    let hidden = names.find(|entry| entry.file_name() != "gone");
    must(hidden.is_none(), || {
        format!(
            "{:?} is left in the directory",
            hidden.map(|entry| entry.file_name())
        )
    })
}
