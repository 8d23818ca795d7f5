//! `rename` and its flags.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::check::{Check, did, must, refused, same};
use super::names::read;
use super::users::needs_root;
use super::{Feature, Group, TestDir};

const RENAME: Group = Group("rename");

pub(super) const FEATURES: &[Feature] = &[
    RENAME.feature("replaces, and the replaced stays readable", replaces),
    RENAME.feature("without replacing (`RENAME_NOREPLACE`)", |test_dir| {
        two_files(test_dir)?;
        refused("onto a name", flagged(test_dir, RenameFlags::NOREPLACE), Errno::EXIST)?;
        did("removing", fs::remove_file(test_dir.at("b")))?;
        did("onto nothing", flagged(test_dir, RenameFlags::NOREPLACE))?;
        same("content", read(&test_dir.at("b"))?, "a".to_owned())
    }),
    RENAME.feature("exchange (`RENAME_EXCHANGE`)", |test_dir| {
        two_files(test_dir)?;
        did("exchanging", flagged(test_dir, RenameFlags::EXCHANGE))?;
        same("content of a", read(&test_dir.at("a"))?, "b".to_owned())?;
        same("content of b", read(&test_dir.at("b"))?, "a".to_owned())?;
        did("removing", fs::remove_file(test_dir.at("b")))?;
        refused("with nothing", flagged(test_dir, RenameFlags::EXCHANGE), Errno::NOENT)
    }),
    RENAME.feature("leaving a whiteout (`RENAME_WHITEOUT`)", |test_dir| {
        needs_root()?;
        two_files(test_dir)?;
        did("renaming", flagged(test_dir, RenameFlags::WHITEOUT))?;
        same("content of b", read(&test_dir.at("b"))?, "a".to_owned())?;
        let left = test_dir.stat("a")?;
        must(left.file_type().is_char_device() && left.rdev() == 0, || "the old name is not a character device 0/0")
    }),
    RENAME.feature("exchange of a directory and a file", |test_dir| {
        did("creating", fs::create_dir_all(test_dir.at("a/in")))?;
        did("creating", fs::create_dir(test_dir.at("d")))?;
        did("creating", fs::write(test_dir.at("b"), "b"))?;
        did("exchanging", flagged(test_dir, RenameFlags::EXCHANGE))?;
        must(test_dir.at("b/in").is_dir(), || "the directory's content did not move along")?;
        same("content of a", read(&test_dir.at("a"))?, "b".to_owned())
    }),
    RENAME.feature("directories: over empty ones only, not into themselves", directories),
    RENAME.feature("a directory to another parent, `..` and link counts included", moves),
    RENAME.feature("onto a link of the same file does nothing", |test_dir| {
        did("creating", fs::write(test_dir.at("a"), "a"))?;
        did("linking", fs::hard_link(test_dir.at("a"), test_dir.at("b")))?;
        did("renaming", fs::rename(test_dir.at("a"), test_dir.at("b")))?;
        must(test_dir.at("a").exists(), || "the first name is gone")
    }),
];

fn two_files(test_dir: &TestDir) -> Check {
    did("creating", fs::write(test_dir.at("a"), "a"))?;
    did("creating", fs::write(test_dir.at("b"), "b"))
}

fn flagged(test_dir: &TestDir, flags: RenameFlags) -> rustix::io::Result<()> {
    renameat_with(CWD, test_dir.at("a"), CWD, test_dir.at("b"), flags)
}

fn replaces(test_dir: &TestDir) -> Check {
    two_files(test_dir)?;
    let moved = test_dir.stat("a")?.ino();
    let mut replaced = did("opening", File::open(test_dir.at("b")))?;
    did("renaming", fs::rename(test_dir.at("a"), test_dir.at("b")))?;
    same("content", read(&test_dir.at("b"))?, "a".to_owned())?;
    must(!test_dir.at("a").exists(), || "the old name is still there")?;
    same("inode", test_dir.stat("b")?.ino(), moved)?;
    let mut text = String::new();
    did("reading the replaced file", replaced.read_to_string(&mut text))?;
    same("content of the replaced file", text, "b".to_owned())
}

fn directories(test_dir: &TestDir) -> Check {
    for dir in ["full/in", "empty", "third"] {
        did("creating", fs::create_dir_all(test_dir.at(dir)))?;
    }
    did("creating", fs::write(test_dir.at("file"), ""))?;
    let rename = |from: &str, to: &str| fs::rename(test_dir.at(from), test_dir.at(to));
    refused("over a full directory", rename("empty", "full"), Errno::NOTEMPTY)?;
    refused("into itself", rename("full", "full/in/x"), Errno::INVAL)?;
    refused("a directory over a file", rename("empty", "file"), Errno::NOTDIR)?;
    refused("a file over a directory", rename("file", "empty"), Errno::ISDIR)?;
    did("over an empty directory", rename("full", "empty"))?;
    must(test_dir.at("empty/in").is_dir(), || "what was in it did not move along")
}

fn moves(test_dir: &TestDir) -> Check {
    for dir in ["from/dir", "to"] {
        did("creating", fs::create_dir_all(test_dir.at(dir)))?;
    }
    did("renaming", fs::rename(test_dir.at("from/dir"), test_dir.at("to/dir")))?;
    let parent = did("stat of `..`", fs::metadata(test_dir.at("to/dir/..")))?.ino();
    let to = test_dir.stat("to")?;
    same("inode of `..`", parent, to.ino())?;
    let links = test_dir.stat("from")?.nlink();
    // Some file systems do not count subdirectories, and report 1.
    must(to.nlink() == 1 || (links, to.nlink()) == (2, 3), || {
        format!("link counts are {links} and {}, not 2 and 3", to.nlink())
    })
}
