//! Backends that a user names. Each must be usable on this machine, and each that a file defines must mount:
//! a command that goes on without one of them would answer another question.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use arms::backend::{Backend, Unavailable, Workspace, WorkspaceConfig};
use fuse::connection::mount_of;

use crate::progress_line::ProgressLine;
use runner::plan::LiveArm;
use trial::interrupt::Interrupt;
use trial::watchdog::{Watchdog, supervise};

/// Time limit of a whole trial, with its setup.
const TRIAL_LIMIT: Duration = Duration::from_secs(120);

/// A program that puts itself into the background has ended so long after its mount can be used.
const SETTLING: Duration = Duration::from_secs(1);

/// How often a program is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Refuses a command if backends that it names cannot be used here; with the reason and the fix of each.
pub fn check_usable(arms: &[LiveArm], is_named: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let named = arms.iter().filter(|arm| is_named(&arm.name));
    let unusable: Vec<String> =
        named.filter_map(|arm| Some(format!("{}: {}", arm.name, arm.versions.as_ref().err()?))).collect();
    match &unusable[..] {
        [] => Ok(()),
        [one] => bail!("cannot use the backend {one}"),
        several => bail!("cannot use these backends:\n  {}", several.join("\n  ")),
    }
}

/// Mounts each usable backend that a file defines once in `scratch`, and ends the mount. One that fails is unavailable from
/// then on, with the reason. Returns false after an interrupt.
pub fn try_mounts(arms: &mut [LiveArm], scratch: &Path, interrupt: &Interrupt) -> anyhow::Result<bool> {
    let program = std::env::current_exe().context("finding the ctxbench binary")?;
    let own = |arm: &&mut LiveArm| arm.versions.is_ok() && arm.backend.describe().file.is_some();
    for arm in arms.iter_mut().filter(own) {
        let _line = ProgressLine::moving(&format!("trying to mount {}", arm.name));
        let dir = scratch.join(format!("trial-{}", arm.name));
        std::fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let config = WorkspaceConfig::new(dir.clone(), program.clone());
        let backend = Arc::clone(&arm.backend);
        let tried = supervise(interrupt, move |watchdog| trial(&*backend, &config, watchdog));
        if interrupt.is_set() {
            return Ok(false);
        }
        let tried = tried.map_err(io::Error::from).flatten();
        if let Some(unavailable) = tried.unwrap_or_else(|error| Some(failed(&error))) {
            arm.versions = Err(unavailable);
        }
        // A mount that hangs keeps its directory until the scratch is removed.
        let _ = std::fs::remove_dir_all(&dir);
    }
    Ok(true)
}

fn failed(error: &io::Error) -> Unavailable {
    if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        return Unavailable {
            reason: "it is a read-only file system, and a run writes files".to_owned(),
            fix: "mount it writable, or measure a store that can be written".to_owned(),
        };
    }
    let said = error.to_string();
    Unavailable {
        reason: format!("it cannot be mounted: {}", said.trim_end_matches([' ', ':'])),
        fix: "correct the commands in its file, which docs/ADDING-A-BACKEND.md lists".to_owned(),
    }
}

/// Mounts and unmounts; answers why the backend cannot be measured although it can be mounted.
fn trial(backend: &dyn Backend, config: &WorkspaceConfig, watchdog: &Watchdog) -> io::Result<Option<Unavailable>> {
    watchdog.shield();
    watchdog.enter(TRIAL_LIMIT);
    let mut workspace = backend.open(config)?;
    watchdog.depend_on(workspace.kill_handle());
    let unseen = unseen_daemon(&mut *workspace)?;
    workspace.close()?;
    watchdog.leave();
    Ok(unseen)
}

/// Why the daemon of a FUSE mount is not the program that `mount` names. Its caches and its counts would not be proved, and
/// it could be neither stopped nor started again.
fn unseen_daemon(workspace: &mut dyn Workspace) -> io::Result<Option<Unavailable>> {
    let started = Instant::now();
    let mut ended = workspace.exit_reason();
    while ended.is_none() && workspace.daemon().is_some() && started.elapsed() < SETTLING {
        std::thread::sleep(POLL_INTERVAL);
        ended = workspace.exit_reason();
    }
    let is_seen = ended.is_none() && workspace.daemon().is_some();
    let mount = mount_of(workspace.root())?;
    let Some(mount) = mount.filter(|mount| mount.is_fuse() && !is_seen) else {
        return Ok(None);
    };
    Ok(Some(Unavailable {
        reason: format!(
            "its command `mount` ends while its {} mount stays: the daemon runs in the background, where a run can neither stop it nor read its counts",
            mount.kind
        ),
        fix: "add the option that keeps it in the foreground to `mount` (`-f` for most FUSE programs), and the line `stays = true`".to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use backends::registry::Registry;

    use super::*;
    use runner::plan::single_arms;

    fn arm(dir: &Path, definition: &str) -> Vec<LiveArm> {
        let head = "name = 'x'\nsummary = 's'\ndurability = 'd'\npersistent = true\ndaemons = 1\n";
        let file = dir.join("x.toml");
        std::fs::write(&file, format!("{head}{definition}")).unwrap();
        let found = Registry::default().find(file.to_str().unwrap()).unwrap();
        single_arms(&[found.into()])
    }

    fn tried(definition: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let mut arms = arm(dir.path(), definition);
        assert!(try_mounts(&mut arms, dir.path(), &Interrupt::never()).unwrap());
        assert!(!dir.path().join("trial-x").exists());
        let refused = check_usable(&arms, |name| name == "x");
        refused.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_named_backend_without_its_program_is_refused_with_reason_and_fix() {
        let dir = tempfile::tempdir().unwrap();
        let arms = arm(dir.path(), "mount = ['no-such-program']\n");
        let refused = check_usable(&arms, |name| name == "x").unwrap_err().to_string();
        for part in ["cannot use the backend x: ", "no-such-program", "(fix: install it"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        check_usable(&arms, |_| false).unwrap();
    }

    #[test]
    fn a_backend_that_cannot_be_mounted_is_unavailable_before_a_run() {
        let fails = tried("mount = ['sh', '-c', 'echo no licence >&2; exit 3']\n");
        for part in ["cannot use the backend x: it cannot be mounted", "exit code 3", "no licence"] {
            assert!(fails.contains(part), "{part}: {fails}");
        }
        let closes = tried("mount = ['true']\nready = ['true']\nunmount = ['false']\n");
        assert!(closes.contains("could not be unmounted"), "{closes}");
        assert_eq!(tried("mount = ['true']\nready = ['true']\nunmount = ['true']\n"), "");
    }
}
