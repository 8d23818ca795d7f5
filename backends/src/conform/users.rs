//! Permissions, as another user sees them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::check::{Check, Shortfall, did, must, same};
use super::names::read;
use super::{Feature, Group, Place};

/// The user and group ID of `nobody` and `nogroup` on most systems; any unprivileged user would do.
const NOBODY: u32 = 65_534;

const PERMISSIONS: Group = Group("permissions");

pub(super) const FEATURES: &[Feature] = &[
    PERMISSIONS.feature("a private file is private", |place| {
        open_to_all(place)?;
        did("creating", fs::write(place.at("private"), "secret"))?;
        mode(place, "private", 0o600)?;
        did("creating", fs::write(place.at("public"), "open"))?;
        mode(place, "public", 0o644)?;
        can(
            place,
            "cat public >/dev/null",
            "another user cannot read a public file",
        )?;
        cannot(place, "cat private", "another user reads a private file")?;
        cannot(
            place,
            "echo x >> public",
            "another user writes a file that is not theirs",
        )
    }),
    PERMISSIONS.feature("the sticky bit keeps others' files", |place| {
        open_to_all(place)?;
        did("creating", fs::write(place.at("mine"), ""))?;
        can(
            place,
            "touch theirs && mv theirs renamed && rm renamed",
            "another user cannot handle their own files",
        )?;
        cannot(
            place,
            "rm -f mine",
            "another user removes a file that is not theirs",
        )?;
        cannot(
            place,
            "mv mine gone",
            "another user renames a file that is not theirs",
        )
    }),
    PERMISSIONS.feature("search permission of directories", |place| {
        open_to_all(place)?;
        did("creating", fs::create_dir(place.at("dir")))?;
        did("creating", fs::write(place.at("dir/file"), ""))?;
        mode(place, "dir/file", 0o644)?;
        mode(place, "dir", 0o700)?;
        cannot(
            place,
            "cat dir/file",
            "another user looks into a private directory",
        )?;
        mode(place, "dir", 0o711)?;
        can(
            place,
            "cat dir/file && ! ls dir",
            "search without reading does not work",
        )
    }),
    PERMISSIONS.feature("a directory's group is passed on (set-group-ID)", |place| {
        needs_root()?;
        did("creating", fs::create_dir(place.at("dir")))?;
        did("chown", chown(place.at("dir"), None, Some(NOBODY)))?;
        mode(place, "dir", 0o2775)?;
        did("creating", fs::write(place.at("dir/file"), ""))?;
        did("creating", fs::create_dir(place.at("dir/sub")))?;
        same("group of a file", place.stat("dir/file")?.gid(), NOBODY)?;
        let sub = place.stat("dir/sub")?;
        same(
            "group and bit of a directory",
            (sub.gid(), sub.mode() & 0o2000),
            (NOBODY, 0o2000),
        )
    }),
    PERMISSIONS.feature("a write by another clears set-user-ID", |place| {
        open_to_all(place)?;
        did("creating", fs::write(place.at("tool"), "x"))?;
        mode(place, "tool", 0o6777)?;
        can(
            place,
            "echo y >> tool",
            "another user cannot write a file open to all",
        )?;
        same("content", read(&place.at("tool"))?, "xy\n".to_owned())?;
        let is = place.stat("tool")?.mode() & 0o7777;
        same("mode", format!("{is:o}"), "777".to_owned())
    }),
    PERMISSIONS.feature("chown by its owner to others is refused", |place| {
        open_to_all(place)?;
        can(
            place,
            "touch theirs && ! chown 0 theirs && chmod 600 theirs",
            "another user gives files away, or cannot change their own",
        )
    }),
];

fn mode(place: &Place, name: &str, mode: u32) -> Check {
    did(
        "chmod",
        fs::set_permissions(place.at(name), fs::Permissions::from_mode(mode)),
    )
}

fn needs_root() -> Check {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err(Shortfall::NotHere(
            "needs root, to become another user".to_owned(),
        ))
    }
}

/// Permits other users in the directory; fails where that is not possible.
fn open_to_all(place: &Place) -> Check {
    needs_root()?;
    mode(place, ".", 0o1777)?;
    if as_nobody(place, "true")? {
        Ok(())
    } else {
        Err(Shortfall::NotHere(
            "other users do not get here: a mount needs --allow-other, and directories above must let them pass".to_owned(),
        ))
    }
}

/// Requires that another user can do this, or says what is wrong.
fn can(place: &Place, script: &str, wrong: &str) -> Check {
    must(as_nobody(place, script)?, || wrong)
}

fn cannot(place: &Place, script: &str, wrong: &str) -> Check {
    must(!as_nobody(place, script)?, || wrong)
}

/// Whether a shell script succeeds when another user runs it in the directory.
fn as_nobody(place: &Place, script: &str) -> Result<bool, Shortfall> {
    let script = format!("cd \"$1\" && {{ {script}; }} 2>/dev/null");
    let status = Command::new("/bin/sh")
        .args(["-uc", &script, "sh"])
        .arg(&place.dir)
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    Ok(did("running a shell as another user", status)?.success())
}
