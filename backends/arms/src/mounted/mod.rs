//! Backends whose files a daemon serves: `ctxbench mount` as a child process.
//!
//! A separate process can be killed, stopped, measured and restarted. It also excludes a deadlock of a
//! mount with the process that uses it. It unmounts when its standard input closes, so it ends with us.

mod workspace;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fuse::MountError;

use crate::backend::{
    Backend, Capabilities, Description, Launch, Need, PropertyCall, Unavailable, Versions, Workspace, WorkspaceConfig,
    kernel,
};
use crate::promise::Promises;
use crate::source::Source;
use workspace::MountedWorkspace;

/// The line that a daemon prints on standard output once its mount is usable.
pub const READY: &str = "ready";

/// A store that `ctxbench mount` serves, as a backend. The default methods fit most mounts.
pub trait MountedStore: Send + Sync {
    /// Its properties: [`description`], with this store's differences.
    fn describe(&self) -> Description;

    /// Its name in `ctxbench mount`.
    fn store(&self) -> String {
        self.describe().name
    }

    /// As [`Backend::promises`].
    fn promises(&self) -> Promises;

    /// As [`Backend::ends_with_process`].
    fn ends_with_process(&self) -> bool {
        false
    }

    /// As [`Backend::unsupported_reason`].
    fn unsupported_reason(&self, workload: &str, sha256: &str) -> Option<String> {
        let _ = (workload, sha256);
        None
    }

    /// The launch of the workspace of `config`, or of a second host whose own files are in `beside`.
    ///
    /// # Errors
    /// If a required server or model is missing.
    fn launch(&self, config: &WorkspaceConfig, beside: Option<&Path>) -> io::Result<Launch> {
        let _ = (config, beside);
        Ok(Launch::default())
    }

    /// As [`Backend::source`].
    fn source(&self, dir: &Path) -> Option<Source> {
        let _ = dir;
        None
    }

    /// The file name of its SQLite database in a workspace's directory, if it has one.
    fn database(&self) -> Option<&'static str> {
        None
    }

    /// The names in a workspace's directory that are its whole state, as [`Workspace::state`].
    fn state(&self) -> &'static [&'static str] {
        &[]
    }

    /// As [`Workspace::property`], for the workspace of `config`, mounted on `mount`.
    ///
    /// # Errors
    /// If the command fails.
    fn property(&self, config: &WorkspaceConfig, mount: &Path, call: PropertyCall<'_>) -> io::Result<Option<String>> {
        let _ = (config, mount, call);
        Ok(None)
    }

    /// Versions of its own components, besides those of every mount.
    ///
    /// # Errors
    /// [`Unavailable`] if it cannot be used on this machine.
    fn versions(&self) -> Result<Versions, Unavailable> {
        Ok(Versions::new())
    }

    /// The agent's directory in the mount `root`, which must list only the agent's files.
    fn work(&self, root: &Path) -> PathBuf {
        root.to_owned()
    }

    /// The counter of work that the daemon does in the background, which must be 0 before a measurement.
    fn background(&self) -> Option<&'static str> {
        None
    }

    /// As [`Backend::offline_read`].
    fn offline_read(&self, config: &WorkspaceConfig, name: &str) -> Option<(String, Vec<OsString>)> {
        let _ = (config, name);
        None
    }
}

/// The properties of a mount that keeps files. The lines of its code are an argument of [`StoreBackend::new`].
pub fn description(name: &str, summary: impl Into<String>, durability: &str) -> Description {
    let need = |name: &str, why: &str| Need { name: name.to_owned(), why: why.to_owned() };
    Description {
        name: name.to_owned(),
        file: None,
        summary: summary.into(),
        durability: durability.to_owned(),
        capabilities: Capabilities {
            holds_data: true,
            persistent: true,
            counts_requests: true,
            ..Capabilities::default()
        },
        daemons: 1,
        mounts: 1,
        needs: vec![
            need("/dev/fuse", "to serve files to the kernel"),
            need("fusermount3", "to mount without being root"),
        ],
        lines_of_code: 0,
    }
}

/// A backend over one store.
#[derive(Clone)]
pub struct StoreBackend {
    store: Arc<dyn MountedStore>,
    /// Replaces the store's own launch.
    replaced: Option<Launch>,
    /// Added to the launch.
    options: Vec<OsString>,
    /// [`Description::lines_of_code`].
    lines_of_code: u32,
}

impl StoreBackend {
    /// The backend, whose files `lines_of_code` lines serve.
    pub fn new(store: impl MountedStore + 'static, lines_of_code: u32) -> Self {
        Self { store: Arc::new(store), replaced: None, options: Vec::new(), lines_of_code }
    }

    /// Whether launch options are replaced or added. The options of a second host are then undefined.
    fn is_changed(&self) -> bool {
        self.replaced.is_some() || !self.options.is_empty()
    }

    fn name(&self) -> String {
        self.store.describe().name
    }

    /// Whether a restart removes the local cache.
    fn starts_empty(&self) -> bool {
        self.store.describe().capabilities.starts_empty
    }

    fn launch(&self, config: &WorkspaceConfig) -> io::Result<Launch> {
        let mut launch = match &self.replaced {
            Some(launch) => launch.clone(),
            None => self.store.launch(config, None)?,
        };
        launch.arguments.extend(self.options.iter().cloned());
        Ok(launch)
    }

    fn command(&self, config: &WorkspaceConfig, mount: &Path, control: &Path, launch: Launch) -> Command {
        let mut command = Command::new(&config.program);
        command
            .arg("mount")
            .arg(self.store.store())
            .arg(mount)
            .args(launch.arguments)
            .envs(launch.environment)
            .arg("--control")
            .arg(control)
            .arg("--until-stdin-ends");
        command
    }
}

impl Backend for StoreBackend {
    fn describe(&self) -> Description {
        Description { lines_of_code: self.lines_of_code, ..self.store.describe() }
    }

    fn unsupported_reason(&self, workload: &str, sha256: &str) -> Option<String> {
        // The server of a fault scenario defines its own answers.
        if self.is_changed() { None } else { self.store.unsupported_reason(workload, sha256) }
    }

    fn promises(&self) -> Promises {
        self.store.promises()
    }

    fn ends_with_process(&self) -> bool {
        self.store.ends_with_process()
    }

    fn source(&self, dir: &Path) -> Option<Source> {
        self.store.source(dir)
    }

    fn database(&self, config: &WorkspaceConfig) -> Option<PathBuf> {
        self.store.database().map(|name| config.dir.join(name))
    }

    fn second_host(&self, config: &WorkspaceConfig, beside: &Path) -> io::Result<Option<Box<dyn Workspace>>> {
        if self.store.database().is_none() || self.is_changed() {
            return Ok(None);
        }
        let mut second = self.clone();
        second.replaced = Some(self.store.launch(config, Some(beside))?);
        let config = WorkspaceConfig { dir: beside.to_owned(), ..config.clone() };
        Ok(Some(Box::new(MountedWorkspace::open(second, &config)?)))
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        if let Err(MountError::Device { problem, fix }) = fuse::check_device() {
            return Err(Unavailable { reason: problem, fix });
        }
        let fusermount = Command::new("fusermount3").arg("--version").output();
        let fusermount = match fusermount {
            Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            Err(_) if rustix::process::geteuid().is_root() => "none (root does not need it)".to_owned(),
            Err(_) => {
                return Err(Unavailable {
                    reason: "fusermount3 is not installed, and mounting without it needs root".to_owned(),
                    fix: "sudo apt-get install fuse3".to_owned(),
                });
            }
        };
        let mut versions = Versions::from([
            ("kernel".to_owned(), kernel()),
            ("ctxbench".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("fusermount3".to_owned(), fusermount),
        ]);
        if self.store.database().is_some() {
            versions.insert("sqlite".to_owned(), rusqlite::version().to_owned());
        }
        versions.extend(self.store.versions()?);
        Ok(versions)
    }

    fn with_launch(&self, launch: Launch) -> Option<Box<dyn Backend>> {
        if self.starts_empty() {
            // Those options choose the cache's path, so a restart would not remove it.
            return None;
        }
        Some(Box::new(Self { replaced: Some(launch), options: Vec::new(), ..self.clone() }))
    }

    fn with_option(&self, option: &str) -> Option<Box<dyn Backend>> {
        let mut changed = self.clone();
        changed.options.push(option.into());
        Some(Box::new(changed))
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        if let Some(source) = self.source(&config.dir) {
            source.make()?;
        }
        Ok(Box::new(MountedWorkspace::open(self.clone(), config)?))
    }

    fn offline_read(&self, config: &WorkspaceConfig, name: &str) -> Option<(String, Vec<OsString>)> {
        self.store.offline_read(config, name)
    }
}
