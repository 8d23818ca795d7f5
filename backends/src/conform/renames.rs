//! `rename` and its flags.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::check::{Check, did, must, refused, same};
use super::names::read;
use super::{Feature, Group, Place};

const RENAME: Group = Group("rename");

pub(super) const FEATURES: &[Feature] = &[
    RENAME.feature("replaces, and the replaced stays readable", replaces),
    RENAME.feature("without replacing (`RENAME_NOREPLACE`)", |place| {
        two_files(place)?;
        refused(
            "onto a name",
            flagged(place, RenameFlags::NOREPLACE),
            Errno::EXIST,
        )?;
        did("removing", fs::remove_file(place.at("b")))?;
        did("onto nothing", flagged(place, RenameFlags::NOREPLACE))?;
        same("content", read(&place.at("b"))?, "a".to_owned())
    }),
    RENAME.feature("exchange (`RENAME_EXCHANGE`)", |place| {
        two_files(place)?;
        did("exchanging", flagged(place, RenameFlags::EXCHANGE))?;
        same("content of a", read(&place.at("a"))?, "b".to_owned())?;
        same("content of b", read(&place.at("b"))?, "a".to_owned())?;
        did("removing", fs::remove_file(place.at("b")))?;
        refused(
            "with nothing",
            flagged(place, RenameFlags::EXCHANGE),
            Errno::NOENT,
        )
    }),
    RENAME.feature("exchange of a directory and a file", |place| {
        did("creating", fs::create_dir_all(place.at("a/in")))?;
        did("creating", fs::create_dir(place.at("d")))?;
        did("creating", fs::write(place.at("b"), "b"))?;
        did("exchanging", flagged(place, RenameFlags::EXCHANGE))?;
        must(
            place.at("b/in").is_dir(),
            || "the directory's content did not move along",
        )?;
        same("content of a", read(&place.at("a"))?, "b".to_owned())
    }),
    RENAME.feature(
        "directories: over empty ones only, not into themselves",
        directories,
    ),
    RENAME.feature(
        "a directory to another parent, `..` and link counts included",
        moves,
    ),
    RENAME.feature("onto a link of the same file does nothing", |place| {
        did("creating", fs::write(place.at("a"), "a"))?;
        did("linking", fs::hard_link(place.at("a"), place.at("b")))?;
        did("renaming", fs::rename(place.at("a"), place.at("b")))?;
        must(place.at("a").exists(), || "the first name is gone")
    }),
];

fn two_files(place: &Place) -> Check {
    did("creating", fs::write(place.at("a"), "a"))?;
    did("creating", fs::write(place.at("b"), "b"))
}

fn flagged(place: &Place, flags: RenameFlags) -> rustix::io::Result<()> {
    renameat_with(CWD, place.at("a"), CWD, place.at("b"), flags)
}

fn replaces(place: &Place) -> Check {
    two_files(place)?;
    let moved = place.stat("a")?.ino();
    let mut replaced = did("opening", File::open(place.at("b")))?;
    did("renaming", fs::rename(place.at("a"), place.at("b")))?;
    same("content", read(&place.at("b"))?, "a".to_owned())?;
    must(!place.at("a").exists(), || "the old name is still there")?;
    same("inode", place.stat("b")?.ino(), moved)?;
    let mut text = String::new();
    did(
        "reading the replaced file",
        replaced.read_to_string(&mut text),
    )?;
    same("content of the replaced file", text, "b".to_owned())
}

fn directories(place: &Place) -> Check {
    for dir in ["full/in", "empty", "third"] {
        did("creating", fs::create_dir_all(place.at(dir)))?;
    }
    did("creating", fs::write(place.at("file"), ""))?;
    let rename = |from: &str, to: &str| fs::rename(place.at(from), place.at(to));
    refused(
        "over a full directory",
        rename("empty", "full"),
        Errno::NOTEMPTY,
    )?;
    refused("into itself", rename("full", "full/in/x"), Errno::INVAL)?;
    refused(
        "a directory over a file",
        rename("empty", "file"),
        Errno::NOTDIR,
    )?;
    refused(
        "a file over a directory",
        rename("file", "empty"),
        Errno::ISDIR,
    )?;
    did("over an empty directory", rename("full", "empty"))?;
    must(
        place.at("empty/in").is_dir(),
        || "what was in it did not move along",
    )
}

fn moves(place: &Place) -> Check {
    for dir in ["from/dir", "to"] {
        did("creating", fs::create_dir_all(place.at(dir)))?;
    }
    did(
        "renaming",
        fs::rename(place.at("from/dir"), place.at("to/dir")),
    )?;
    let parent = did("stat of `..`", fs::metadata(place.at("to/dir/..")))?.ino();
    let to = place.stat("to")?;
    same("inode of `..`", parent, to.ino())?;
    let links = place.stat("from")?.nlink();
    // Some file systems do not count subdirectories, and report 1.
    must(to.nlink() == 1 || (links, to.nlink()) == (2, 3), || {
        format!("link counts are {links} and {}, not 2 and 3", to.nlink())
    })
}
