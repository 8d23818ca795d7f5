//! The arm `rsync`: a plain directory on each of two hosts, and rsync in both directions between them.
//!
//! A team without a shared memory copies so, on a schedule. Nothing is copied until the harness syncs, so all that the two
//! hosts write in a pass lies between two copies. Both directories are on this machine.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use arms::backend::{
    Backend, Capabilities, Description, FILES, Need, Unavailable, Versions, Workspace, WorkspaceConfig,
};
use arms::promise::{Acknowledgement, Promises};

/// Its name on the command line and in results, and the program.
const NAME: &str = "rsync";

/// Two directories and a program that copies between them.
pub(crate) struct Rsync;

/// The directory of a host.
struct Host {
    root: PathBuf,
    /// The directory of the other host, on the host that copies.
    other: Option<PathBuf>,
}

impl Backend for Rsync {
    fn describe(&self) -> Description {
        Description {
            name: NAME.to_owned(),
            summary: "a plain directory on each of two hosts, which rsync copies in both directions".to_owned(),
            durability: "as a plain directory; a copied file also survives the loss of one machine".to_owned(),
            capabilities: Capabilities {
                holds_data: true,
                persistent: true,
                several_hosts: true,
                is_practice: true,
                ..Capabilities::default()
            },
            needs: vec![Need { name: NAME.to_owned(), why: "it copies the files".to_owned() }],
            ..Description::default()
        }
    }

    fn promises(&self) -> Promises {
        Promises { killed_daemon: Some(Acknowledgement::Write), ..Promises::POSIX }
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        let missing = |reason: String| Unavailable { reason, fix: "sudo apt-get install rsync".to_owned() };
        let asked = Command::new(NAME).arg("--version").output();
        let output = asked.map_err(|error| missing(format!("rsync does not start: {error}")))?;
        let printed = String::from_utf8_lossy(&output.stdout);
        // `rsync  version 3.2.7  protocol version 31`.
        let version = printed.split_whitespace().nth(2).filter(|_| output.status.success());
        let version = version.ok_or_else(|| missing("rsync does not print its version".to_owned()))?;
        Ok(Versions::from([(NAME.to_owned(), version.to_owned())]))
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        let root = config.dir.join(FILES);
        std::fs::create_dir_all(&root)?;
        Ok(Box::new(Host { root, other: None }))
    }
}

impl Workspace for Host {
    fn root(&self) -> &Path {
        &self.root
    }

    fn second_host(&self, beside: &Path) -> io::Result<Option<Box<dyn Workspace>>> {
        let root = beside.join(FILES);
        std::fs::create_dir_all(&root)?;
        Ok(Some(Box::new(Host { root, other: Some(self.root.clone()) })))
    }

    /// Copies the other host's files here, then this host's files there.
    fn sync(&mut self) -> io::Result<()> {
        let Some(other) = &self.other else {
            return Ok(());
        };
        copy(other, &self.root)?;
        copy(&self.root, other)
    }
}

/// Copies the files of a directory into another one.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    // With the files of a test, which are written in one second, the size and the second of the last change may be equal.
    let mut command = Command::new(NAME);
    command.args(["--archive", "--checksum", "--"]).arg(from.join("")).arg(to);
    let output = command.output()?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("rsync: {}: {}", output.status, said.trim_end())))
    }
}
