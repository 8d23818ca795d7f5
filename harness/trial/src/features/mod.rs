//! A conformance suite: the Linux file system features that agents and their tools expect.
//!
//! It runs on any directory, so that third-party file systems get the same table as ours. It tests only
//! what callers see; the tests of `backends` compare each `Store` with the
//! reference model. `ctxbench conform` tries all features; a run with probes tries [`short_features`].

mod attributes;
mod check;
mod content;
mod directories;
mod links;
mod locks;
mod names;
mod open;
mod renames;
mod users;

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arms::backend::{Backend, WorkspaceConfig};
use figures::conformance::CONFORMANCE;
use rundir::{Outcome, Probe};

use crate::interrupt::Interrupt;
use crate::watchdog::Watchdog;
use check::{Check, Shortfall, did};

/// How long one feature may take, and a workspace to open or to close.
const LIMIT: Duration = Duration::from_secs(60);

/// Groups that act as other users or compare two mounts.
const LONG_GROUPS: [&str; 2] = ["permissions", "two mounts"];

/// One feature of a file system.
pub struct Feature {
    /// Its group, such as `rename`.
    pub group: &'static str,
    /// The expected behaviour.
    pub name: &'static str,
    check: fn(&TestDir) -> Check,
}

/// The result for one feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeatureResult {
    /// The file system behaves as Linux programs expect.
    Works,
    /// It does not; with the observed behaviour.
    Fails(String),
    /// The check could not run here; with the reason.
    Skipped(String),
}

/// The empty directory in which a feature is checked.
struct TestDir {
    path: PathBuf,
    /// The same directory through another mount of the same files.
    elsewhere: Option<PathBuf>,
}

impl TestDir {
    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn stat(&self, name: &str) -> Result<Metadata, Shortfall> {
        did("stat", fs::metadata(self.at(name)))
    }

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> Result<File, Shortfall> {
        let mut options = File::options();
        did("opening", options.read(true).write(true).open(self.at(name)))
    }

    /// Creates a file that must not exist, and opens it.
    fn create(&self, name: &str) -> Result<File, Shortfall> {
        let mut options = File::options();
        let options = options.create_new(true).read(true).write(true);
        did("creating", options.open(self.at(name)))
    }
}

/// A group of features.
struct Group(&'static str);

impl Group {
    const fn feature(&self, name: &'static str, check: fn(&TestDir) -> Check) -> Feature {
        Feature { group: self.0, name, check }
    }
}

/// All features, in the order of the table.
pub fn features() -> impl Iterator<Item = &'static Feature> {
    [
        names::FEATURES,
        renames::FEATURES,
        links::FEATURES,
        open::FEATURES,
        content::FEATURES,
        attributes::FEATURES,
        locks::FEATURES,
        directories::FEATURES,
        users::FEATURES,
    ]
    .into_iter()
    .flatten()
}

/// The features that a run with probes tries: they need no other user and no second mount.
pub fn short_features() -> impl Iterator<Item = &'static Feature> {
    features().filter(|feature| !LONG_GROUPS.contains(&feature.group))
}

/// Tries features in `dir`; those after one that hangs are skipped. `also` is `dir` through another mount.
///
/// # Errors
/// As [`Feature::run`].
pub fn try_features(
    dir: &Path,
    also: Option<&Path>,
    features: &[&Feature],
    watchdog: &Watchdog,
    interrupt: &Interrupt,
) -> io::Result<Vec<FeatureResult>> {
    let mut results = Vec::new();
    for feature in features {
        // Each feature has a result, since a record that is not there counts as removed.
        let untried = match watchdog.killed() {
            Some(_) => Some("an earlier feature hung and was aborted"),
            None => interrupt.is_set().then_some("the command was interrupted"),
        };
        if let Some(why) = untried {
            results.push(FeatureResult::Skipped(format!("not tried: {why}")));
            continue;
        }
        watchdog.enter(LIMIT);
        let result = feature.run(dir, also)?;
        watchdog.leave();
        let cut = watchdog.killed();
        results.push(cut.map_or(result, |cut| FeatureResult::Fails(cut.to_string())));
    }
    Ok(results)
}

/// As [`try_features`], in a new workspace.
///
/// # Errors
/// As [`Feature::run`], and if the workspace cannot be opened or closed.
pub fn try_in_workspace(
    backend: &dyn Backend,
    config: &WorkspaceConfig,
    features: &[&Feature],
    watchdog: &Watchdog,
    interrupt: &Interrupt,
) -> io::Result<Vec<FeatureResult>> {
    watchdog.enter(LIMIT);
    let workspace = backend.open(config)?;
    watchdog.depend_on(workspace.kill_handle());
    let results = try_features(workspace.root(), None, features, watchdog, interrupt)?;
    watchdog.enter(LIMIT);
    workspace.close()?;
    watchdog.leave();
    Ok(results)
}

impl Feature {
    /// Its name in a run directory.
    pub fn full_name(&self) -> String {
        format!("{}: {}", self.group, self.name)
    }

    /// The record of its result on an arm.
    pub fn probe(&self, arm: &str, result: &FeatureResult) -> Probe {
        let (outcome, detail) = match result {
            FeatureResult::Works => (Outcome::Ok, ""),
            FeatureResult::Fails(why) => (Outcome::Errno, why.as_str()),
            FeatureResult::Skipped(why) => (Outcome::Skipped, why.as_str()),
        };
        Probe::new(CONFORMANCE, &self.full_name(), arm, outcome, detail)
    }

    /// Checks the feature in a new directory below `dir`, and removes that directory if possible.
    /// `also` is `dir` through another mount of the same files, if there is one.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn run(&self, dir: &Path, also: Option<&Path>) -> io::Result<FeatureResult> {
        let scratch = tempfile::Builder::new().prefix("conform-").tempdir_in(dir)?;
        let elsewhere = also.and_then(|also| Some(also.join(scratch.path().file_name()?)));
        let test_dir = TestDir { path: scratch.path().to_owned(), elsewhere };
        let result = match (self.check)(&test_dir) {
            Ok(()) => FeatureResult::Works,
            Err(Shortfall::Wrong(what)) => FeatureResult::Fails(what),
            Err(Shortfall::NotHere(why)) => FeatureResult::Skipped(why),
        };
        Ok(match (scratch.close(), result) {
            (Err(error), FeatureResult::Works) => FeatureResult::Fails(format!("cleaning up: {error}")),
            (_, result) => result,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, LazyLock};

    use super::*;
    use crate::watchdog::supervise;

    static IS_INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

    /// Is cut off: the watchdog waits two seconds for interrupted work.
    fn hangs(_: &TestDir) -> Check {
        IS_INTERRUPTED.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(3500));
        Ok(())
    }

    #[test]
    fn a_feature_that_hangs_fails_and_those_after_it_are_recorded_as_skipped() {
        let group = Group("test");
        let features =
            [group.feature("works", |_| Ok(())), group.feature("hangs", hangs), group.feature("is late", hangs)];
        let interrupt = Interrupt::of(Arc::clone(&IS_INTERRUPTED));
        let results = supervise(&interrupt.clone(), move |watchdog| {
            let dir = tempfile::tempdir().unwrap();
            try_features(dir.path(), None, &features.each_ref(), watchdog, &interrupt).unwrap()
        });
        let results = results.unwrap();
        let [works, hung, late] = &results[..] else { panic!("each feature has a result") };
        assert_eq!(*works, FeatureResult::Works);
        assert!(matches!(hung, FeatureResult::Fails(why) if why.starts_with("no answer after ")), "{hung:?}");
        let why = "not tried: an earlier feature hung and was aborted";
        assert_eq!(*late, FeatureResult::Skipped(why.to_owned()));
    }
}
