//! Permissions, as another user sees them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::check::{Check, Shortfall, did, must, same};
use super::names::read;
use super::{Feature, Group, TestDir};

/// The user and group ID of `nobody` and `nogroup` on most systems; any unprivileged user would do.
const NOBODY: u32 = 65_534;

const PERMISSIONS: Group = Group("permissions");

pub(super) const FEATURES: &[Feature] = &[
    PERMISSIONS.feature("a private file is private", |test_dir| {
        open_to_all(test_dir)?;
        did("creating", fs::write(test_dir.at("private"), "secret"))?;
        mode(test_dir, "private", 0o600)?;
        did("creating", fs::write(test_dir.at("public"), "open"))?;
        mode(test_dir, "public", 0o644)?;
        can(test_dir, "cat public >/dev/null", "another user cannot read a public file")?;
        cannot(test_dir, "cat private", "another user reads a private file")?;
        cannot(test_dir, "echo x >> public", "another user writes a file that is not theirs")
    }),
    PERMISSIONS.feature("the sticky bit keeps others' files", |test_dir| {
        open_to_all(test_dir)?;
        did("creating", fs::write(test_dir.at("mine"), ""))?;
        can(test_dir, "touch theirs && mv theirs renamed && rm renamed", "another user cannot handle their own files")?;
        cannot(test_dir, "rm -f mine", "another user removes a file that is not theirs")?;
        cannot(test_dir, "mv mine gone", "another user renames a file that is not theirs")
    }),
    PERMISSIONS.feature("search permission of directories", |test_dir| {
        open_to_all(test_dir)?;
        did("creating", fs::create_dir(test_dir.at("dir")))?;
        did("creating", fs::write(test_dir.at("dir/file"), ""))?;
        mode(test_dir, "dir/file", 0o644)?;
        mode(test_dir, "dir", 0o700)?;
        cannot(test_dir, "cat dir/file", "another user looks into a private directory")?;
        mode(test_dir, "dir", 0o711)?;
        can(test_dir, "cat dir/file && ! ls dir", "search without reading does not work")
    }),
    PERMISSIONS.feature("a directory's group is passed on (set-group-ID)", |test_dir| {
        needs_root()?;
        did("creating", fs::create_dir(test_dir.at("dir")))?;
        did("chown", chown(test_dir.at("dir"), None, Some(NOBODY)))?;
        mode(test_dir, "dir", 0o2775)?;
        did("creating", fs::write(test_dir.at("dir/file"), ""))?;
        did("creating", fs::create_dir(test_dir.at("dir/sub")))?;
        same("group of a file", test_dir.stat("dir/file")?.gid(), NOBODY)?;
        let sub = test_dir.stat("dir/sub")?;
        same("group and bit of a directory", (sub.gid(), sub.mode() & 0o2000), (NOBODY, 0o2000))
    }),
    PERMISSIONS.feature("a write by another clears set-user-ID", |test_dir| {
        open_to_all(test_dir)?;
        did("creating", fs::write(test_dir.at("tool"), "x"))?;
        mode(test_dir, "tool", 0o6777)?;
        can(test_dir, "echo y >> tool", "another user cannot write a file open to all")?;
        same("content", read(&test_dir.at("tool"))?, "xy\n".to_owned())?;
        let is = test_dir.stat("tool")?.mode() & 0o7777;
        same("mode", format!("{is:o}"), "777".to_owned())
    }),
    PERMISSIONS.feature("chown of nothing by another keeps set-user-ID", |test_dir| {
        open_to_all(test_dir)?;
        did("creating", fs::write(test_dir.at("tool"), "x"))?;
        mode(test_dir, "tool", 0o4755)?;
        cannot(test_dir, "chown '' tool", "another user clears set-user-ID of a file that is not theirs")?;
        let is = test_dir.stat("tool")?.mode() & 0o7777;
        same("mode", format!("{is:o}"), "4755".to_owned())
    }),
    PERMISSIONS.feature("a changed program no longer runs as its owner", changed_programs),
    PERMISSIONS.feature("chown by its owner to others is refused", |test_dir| {
        open_to_all(test_dir)?;
        can(
            test_dir,
            "touch theirs && ! chown 0 theirs && chmod 600 theirs",
            "another user gives files away, or cannot change their own",
        )
    }),
];

fn changed_programs(test_dir: &TestDir) -> Check {
    open_to_all(test_dir)?;
    let program = ["/usr/bin/id", "/bin/id"].iter().find(|program| fs::exists(program).unwrap_or(false));
    let program = program.ok_or_else(|| Shortfall::NotHere("there is no `id`".to_owned()))?;
    for change in [
        "echo y >> tool",
        "truncate -s +1 tool",
        "fallocate -l 1M tool",
        "fallocate -p -o 0 -l 1 tool",
        "dd if=tool of=tool bs=4096 count=1 conv=notrunc",
        ": > tool",
    ] {
        did("copying a program", fs::copy(program, test_dir.at("tool")))?;
        mode(test_dir, "tool", 0o4777)?;
        // The kernel knows the mode.
        test_dir.stat("tool")?;
        can(test_dir, change, "another user cannot change a file open to all")?;
        // The mode that counts when it runs may be another one than `stat` shows.
        cannot(test_dir, "test \"$(./tool -u)\" = 0", "the changed program runs as root")?;
        let is = test_dir.stat("tool")?.mode() & 0o7777;
        same(change, format!("{is:o}"), "777".to_owned())?;
    }
    Ok(())
}

fn mode(test_dir: &TestDir, name: &str, mode: u32) -> Check {
    did("chmod", fs::set_permissions(test_dir.at(name), fs::Permissions::from_mode(mode)))
}

pub(super) fn needs_root() -> Check {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err(Shortfall::NotHere("needs root, to become another user".to_owned()))
    }
}

/// Permits other users in the directory; fails where that is not possible.
fn open_to_all(test_dir: &TestDir) -> Check {
    needs_root()?;
    mode(test_dir, ".", 0o1777)?;
    if as_nobody(test_dir, "true")? {
        Ok(())
    } else {
        Err(Shortfall::NotHere(
            "other users do not get here: a mount needs --allow-other, and directories above must let them pass"
                .to_owned(),
        ))
    }
}

/// Requires that another user can do this, or says what is wrong.
fn can(test_dir: &TestDir, script: &str, wrong: &str) -> Check {
    must(as_nobody(test_dir, script)?, || wrong)
}

fn cannot(test_dir: &TestDir, script: &str, wrong: &str) -> Check {
    must(!as_nobody(test_dir, script)?, || wrong)
}

/// Whether a shell script succeeds when another user runs it in the directory.
fn as_nobody(test_dir: &TestDir, script: &str) -> Result<bool, Shortfall> {
    let script = format!("cd \"$1\" && {{ {script}; }} 2>/dev/null");
    let status = Command::new("/bin/sh")
        .args(["-uc", &script, "sh"])
        .arg(&test_dir.path)
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    Ok(did("running a shell as another user", status)?.success())
}
