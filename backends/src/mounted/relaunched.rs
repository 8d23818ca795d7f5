//! A mount that is started by other options than its own. It is asked neither for a second host, whose options
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
    pub(super) launch: Launch,
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

    fn open(&self, site: &Site) -> io::Result<Box<dyn Workspace>> {
        let launch = Some(self.launch.clone());
        Ok(Box::new(MountedWorkspace::open(
            self.mounted,
            site,
            launch,
        )?))
    }

    fn offline_read(&self, site: &Site, name: &str) -> Option<(String, Vec<OsString>)> {
        self.mounted.offline_read(site, name)
    }
}
