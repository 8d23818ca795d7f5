//! What agents and their tools expect of a directory on Linux, feature by feature.
//!
//! The suite runs on any directory, so that foreign file systems and the one below get the same table
//! as ours. It judges what callers see; what a [`Store`](crate::store::Store) promises beneath is held
//! against the reference model by the crate's own tests.

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

use std::io;
use std::path::{Path, PathBuf};

use check::Shortfall;

/// One thing that a file system does or does not do.
pub struct Feature {
    /// What it is about, such as `rename`.
    pub group: &'static str,
    /// What is expected.
    pub name: &'static str,
    check: fn(&Place) -> Result<(), Shortfall>,
}

/// What came of one feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does what Linux programs expect.
    Works,
    /// It does not, and how that showed.
    Fails(String),
    /// It could not be tried here, and why.
    Skipped(String),
}

/// Where a feature is tried: an empty directory of its own.
struct Place {
    dir: PathBuf,
    /// The same directory through another mount of the same files.
    elsewhere: Option<PathBuf>,
}

impl Place {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
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

impl Feature {
    const fn new(
        group: &'static str,
        name: &'static str,
        check: fn(&Place) -> Result<(), Shortfall>,
    ) -> Self {
        Self { group, name, check }
    }

    /// Tries the feature in a new directory below `dir`, which is removed again as far as that works.
    /// `also` is `dir` through another mount of the same files, if there is one.
    ///
    /// # Errors
    /// If the directory for it cannot be made.
    pub fn run(&self, dir: &Path, also: Option<&Path>) -> io::Result<Verdict> {
        let own = tempfile::Builder::new()
            .prefix("conform-")
            .tempdir_in(dir)?;
        let elsewhere = also.and_then(|also| Some(also.join(own.path().file_name()?)));
        let place = Place {
            dir: own.path().to_owned(),
            elsewhere,
        };
        let verdict = match (self.check)(&place) {
            Ok(()) => Verdict::Works,
            Err(Shortfall::Wrong(what)) => Verdict::Fails(what),
            Err(Shortfall::NotHere(why)) => Verdict::Skipped(why),
        };
        Ok(match (own.close(), verdict) {
            (Err(error), Verdict::Works) => Verdict::Fails(format!("cleaning up: {error}")),
            (_, verdict) => verdict,
        })
    }
}
