//! The `direct` baseline: a plain directory.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use arms::backend::{Backend, Capabilities, Description, Unavailable, Versions, Workspace, WorkspaceConfig, kernel};
use arms::promise::{Acknowledgement, Promises};

/// A directory on the machine's own file system.
pub(crate) struct Direct;

struct Directory {
    root: PathBuf,
}

impl Backend for Direct {
    fn describe(&self) -> Description {
        Description {
            name: "direct".to_owned(),
            summary: "a plain directory on one machine".to_owned(),
            durability: "written data survive a killed process; after fsync they survive power loss, as the file system below promises".to_owned(),
            capabilities: Capabilities {
                holds_data: true,
                persistent: true,
                ..Capabilities::default()
            },
            lines_of_code: env!("CTXBENCH_LINES_DIRECT").parse().unwrap_or(0),
            ..Description::default()
        }
    }

    fn promises(&self) -> Promises {
        Promises { killed_daemon: Some(Acknowledgement::Write), ..Promises::POSIX }
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        Ok(Versions::from([("kernel".to_owned(), kernel())]))
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        let root = config.dir.join(arms::backend::FILES);
        std::fs::create_dir_all(&root)?;
        Ok(Box::new(Directory { root }))
    }

    fn offline_read(&self, config: &WorkspaceConfig, name: &str) -> Option<(String, Vec<OsString>)> {
        let file = config.dir.join(arms::backend::FILES).join(name);
        Some(("cat".to_owned(), vec![file.into()]))
    }
}

impl Workspace for Directory {
    fn root(&self) -> &Path {
        &self.root
    }

    fn state(&self) -> Vec<PathBuf> {
        vec![self.root.clone()]
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(std::fs::File::open(&self.root)?)?)
    }
}
