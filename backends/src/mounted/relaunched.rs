//! A mount that is started by other options than its own, or by more of them. It is asked neither for a second host, whose options
//! nobody knows, nor for what recordings lack, which only its own options would want.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use super::workspace::MountedWorkspace;
use super::{Launch, Mounted};
use crate::backend::{Backend, Description, Receipt, Site, Unavailable, Workspace};
use crate::promise::Promises;

pub(super) struct Relaunched {
    pub(super) mounted: Mounted,
    /// In place of its own.
    pub(super) launch: Option<Launch>,
    /// Beside those.
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
