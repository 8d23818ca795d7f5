//! A mount with replaced or added launch options.
//!
//! It has no second host, whose options would be undefined, and does not check recordings.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use super::workspace::MountedWorkspace;
use super::{Launch, Mounted};
use crate::backend::{Backend, Description, Receipt, Site, Unavailable, Workspace};
use crate::promise::Promises;

pub(super) struct Relaunched {
    pub(super) mounted: Mounted,
    /// Replaces the backend's own launch.
    pub(super) launch: Option<Launch>,
    /// Added to the launch.
    pub(super) options: Vec<OsString>,
}

impl Backend for Relaunched {
    fn describe(&self) -> Description {
        self.mounted.describe()
    }

    fn promises(&self) -> Promises {
        self.mounted.promises()
    }

    fn database(&self, site: &Site) -> Option<PathBuf> {
        self.mounted.database(site)
    }

    fn receipt(&self) -> Result<Receipt, Unavailable> {
        self.mounted.receipt()
    }

    fn launched_by(&self, launch: Launch) -> Option<Box<dyn Backend>> {
        self.mounted.launched_by(launch)
    }

    fn with_option(&self, option: &str) -> Option<Box<dyn Backend>> {
        let mut options = self.options.clone();
        options.push(option.into());
        Some(Box::new(Relaunched {
            mounted: self.mounted,
            launch: self.launch.clone(),
            options,
        }))
    }

    fn open(&self, site: &Site) -> io::Result<Box<dyn Workspace>> {
        let mut launch = match &self.launch {
            Some(launch) => launch.clone(),
            None => self.mounted.launch(site, None)?,
        };
        launch.arguments.extend(self.options.iter().cloned());
        Ok(Box::new(MountedWorkspace::open(
            self.mounted,
            site,
            Some(launch),
        )?))
    }

    fn offline_read(&self, site: &Site, name: &str) -> Option<(String, Vec<OsString>)> {
        self.mounted.offline_read(site, name)
    }
}
