//! The lifecycle of a daemon that serves a mount: start, control, stop, kill, forced teardown.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fuse::Counters;
use fuse::connection::{Connection, mount_at};
use fuse::own_file;
use processes::ChildProcess;

use super::{READY, StoreBackend};
use crate::backend::{Backend, KillHandle, PropertyCall, Workspace, WorkspaceConfig, log_end};

/// How long [`MountedWorkspace::sync`](Workspace::sync) waits for the daemon's background work.
const BACKGROUND_MAX: Duration = Duration::from_secs(100);

pub(super) struct MountedWorkspace {
    backend: StoreBackend,
    config: WorkspaceConfig,
    mount: PathBuf,
    /// The agent's directory: the mount, or a directory in it.
    root: PathBuf,
    /// Closing its standard input ends it.
    daemon: Option<ChildProcess>,
    connection: Option<Connection>,
    time_to_ready: Duration,
}

impl MountedWorkspace {
    /// Mounts the workspace of `config`.
    ///
    /// # Errors
    ///
    /// If the daemon cannot be started, or does not mount in time; with the last lines of its log.
    pub(super) fn open(backend: StoreBackend, config: &WorkspaceConfig) -> io::Result<Self> {
        let mount = config.dir.join(crate::backend::FILES);
        // Accessing a dead mount fails; the daemon detaches it.
        if mount_at(&mount)?.is_none() {
            std::fs::create_dir_all(&mount)?;
        }
        let mut workspace = Self {
            root: backend.store.work(&mount),
            backend,
            config: config.clone(),
            mount,
            daemon: None,
            connection: None,
            time_to_ready: Duration::ZERO,
        };
        workspace.start_daemon()?;
        if workspace.root != workspace.mount {
            std::fs::create_dir_all(&workspace.root)?;
        }
        Ok(workspace)
    }

    fn control(&self) -> PathBuf {
        self.config.dir.join("control")
    }

    fn log(&self) -> PathBuf {
        self.config.dir.join("daemon.log")
    }

    /// An error with the last lines of the daemon's log.
    fn failure(&self, what: &str) -> io::Error {
        let (name, last) = (self.backend.name(), log_end(&self.log()));
        io::Error::other(format!("the {name} daemon {what}: {last}"))
    }

    fn start_daemon(&mut self) -> io::Result<()> {
        // The socket of an earlier daemon would make the new one's `bind` fail.
        let _ = std::fs::remove_file(self.control());
        let log = own_file::open(&self.log(), File::options().create(true).append(true))?;
        // This may start a shared server, whose start must not count in `time_to_ready`.
        let launch = self.backend.launch(&self.config)?;
        let started = Instant::now();
        let mut command = self.backend.command(&self.config, &self.mount, &self.control(), launch);
        command
            .args(self.config.cpu.map(|cpu| format!("--cpu={cpu}")))
            .args(self.config.allow_other.then_some("--allow-other"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        let daemon = self.daemon.insert(ChildProcess::start(&mut command, Duration::ZERO)?);
        let stdout = daemon.output()?;
        let (sender, ready) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            // After the timeout there is no receiver.
            let _ = sender.send(read.is_ok() && line.trim() == READY);
        });
        match ready.recv_timeout(self.config.patience) {
            Ok(true) => {}
            Ok(false) => {
                self.take_down_by_force();
                return Err(self.failure("did not mount"));
            }
            Err(_) => {
                self.take_down_by_force();
                return Err(self.failure("took too long to mount"));
            }
        }
        self.time_to_ready = started.elapsed();
        self.connection = mount_at(&self.mount)?.as_ref().and_then(Connection::of);
        Ok(())
    }

    fn stop_daemon(&mut self) -> io::Result<()> {
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        daemon.close_input();
        match daemon.wait_for(self.config.patience)? {
            Some(status) => {
                self.daemon = None;
                if status.success() {
                    return Ok(());
                }
                self.take_down_by_force();
                Err(self.failure(&format!("ended with {status}")))
            }
            None => {
                self.take_down_by_force();
                Err(self.failure("did not stop"))
            }
        }
    }

    fn take_down_by_force(&mut self) {
        self.kill_handle().kill();
        if let Some(mut daemon) = self.daemon.take() {
            // The kill handle has killed it. Waiting leaves no zombie.
            let _ = daemon.wait();
        }
        self.connection = None;
    }

    /// Waits for the daemon's background work, so that it does not run during a measurement.
    fn finish_background(&self) -> io::Result<()> {
        let Some(counter) = self.backend.store.background() else {
            return Ok(());
        };
        let started = Instant::now();
        loop {
            let counters = fuse::ask(&self.control(), fuse::ControlCommand::Counters)?;
            match counters.store.get(counter) {
                Some(0) => return Ok(()),
                Some(left) if started.elapsed() > BACKGROUND_MAX => {
                    let limit = BACKGROUND_MAX.as_secs();
                    return Err(self.failure(&format!("still has {counter} {left} after {limit} s")));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(20)),
                None => return Err(self.failure(&format!("has no counter {counter}"))),
            }
        }
    }

    /// Removes the local cache: database, log and tails. The daemon must have uploaded everything and ended.
    fn remove_cache(&self) -> io::Result<()> {
        let Some(cache) = self.backend.store.database() else {
            return Ok(());
        };
        for entry in std::fs::read_dir(&self.config.dir)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with(cache) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?
            } else {
                std::fs::remove_file(entry.path())?
            }
        }
        Ok(())
    }
}

impl Workspace for MountedWorkspace {
    fn root(&self) -> &Path {
        &self.root
    }

    fn second_host(&self, beside: &Path) -> io::Result<Option<Box<dyn Workspace>>> {
        self.backend.second_host(&self.config, beside)
    }

    fn kill_handle(&self) -> KillHandle {
        KillHandle { daemon: self.daemon(), mount: Some((self.mount.clone(), self.connection.clone())) }
    }

    fn daemon(&self) -> Option<u32> {
        self.daemon.as_ref().map(ChildProcess::id)
    }

    fn time_to_ready(&self) -> Duration {
        self.time_to_ready
    }

    fn sync(&mut self) -> io::Result<()> {
        rustix::fs::syncfs(File::open(&self.mount)?)?;
        fuse::ask(&self.control(), fuse::ControlCommand::Sync)?;
        self.finish_background()
    }

    fn state(&self) -> Vec<PathBuf> {
        let names = self.backend.store.state().iter();
        names.map(|name| self.config.dir.join(name)).collect()
    }

    fn property(&mut self, call: PropertyCall<'_>) -> io::Result<Option<String>> {
        self.backend.store.property(&self.config, &self.mount, call)
    }

    fn stop(&mut self) -> io::Result<()> {
        if !self.backend.starts_empty() {
            return self.stop_daemon();
        }
        // Changes that only the cache holds would be lost with it.
        self.sync()?;
        self.stop_daemon()?;
        self.remove_cache()
    }

    fn start(&mut self) -> io::Result<()> {
        self.start_daemon()
    }

    fn counters(&mut self) -> io::Result<Option<Counters>> {
        fuse::ask(&self.control(), fuse::ControlCommand::Counters).map(Some)
    }

    fn exit_reason(&mut self) -> Option<String> {
        let status = self.daemon.as_mut()?.ended().ok()??;
        Some(format!("the {} daemon ended: {status}", self.backend.name()))
    }

    fn kill(&mut self) -> io::Result<bool> {
        let Some(mut daemon) = self.daemon.take() else {
            return Ok(false);
        };
        daemon.kill()?;
        Ok(true)
    }

    fn close(mut self: Box<Self>) -> io::Result<()> {
        self.stop_daemon()
    }
}

impl Drop for MountedWorkspace {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            self.take_down_by_force();
        }
    }
}
