//! A second mount of a workspace's data, as on another host or in another process.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use backends::READY;
use backends::backend::{Backend, Site};
use backends::fuse::connection::detach;

/// How long the process may take to become ready, and to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A second mount. Dropping it ends the process.
pub struct SecondMount {
    process: Child,
    stdin: Option<ChildStdin>,
    root: PathBuf,
}

/// The result of mounting a second time.
pub enum Second {
    /// The second mount is ready.
    Mounted(SecondMount),
    /// The mount was refused; the first lines of its standard error.
    Refused(String),
    /// The backend has nothing to mount a second time.
    NoMount,
}

impl SecondMount {
    /// Mounts the data of the workspace at `site` on `beside/mnt`.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(backend: &dyn Backend, site: &Site, beside: &Path) -> io::Result<Second> {
        let root = beside.join("mnt");
        std::fs::create_dir_all(&root)?;
        match backend.second_mount(site, beside)? {
            Some(command) => Self::run(command, root, &beside.join("daemon.log"), PATIENCE),
            None => Ok(Second::NoMount),
        }
    }

    /// Runs a command that mounts on `root`, prints [`READY`] within `patience`, and ends with its standard
    /// input. Its standard error goes to `log`.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn run(
        mut command: Command,
        root: PathBuf,
        log: &Path,
        patience: Duration,
    ) -> io::Result<Second> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .spawn()?;
        let stdin = process.stdin.take();
        let (sender, ready) = channel();
        if let Some(stdout) = process.stdout.take() {
            std::thread::spawn(move || {
                let mut line = String::new();
                let read = BufReader::new(stdout).read_line(&mut line);
                // After the timeout, the receiver is gone.
                let _ = sender.send(read.is_ok() && line.trim() == READY);
            });
        }
        let second = Self {
            process,
            stdin,
            root,
        };
        if ready.recv_timeout(patience) == Ok(true) {
            return Ok(Second::Mounted(second));
        }
        drop(second);
        let said = std::fs::read_to_string(log).unwrap_or_default();
        let said = said.trim().lines().take(3).collect::<Vec<_>>().join(" ");
        Ok(Second::Refused(said))
    }

    /// The mounted directory.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for SecondMount {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        tracing::warn!("a second mount did not end: killing it");
        // Errors mean that the process has ended or that nothing is mounted.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = detach(&self.root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Second {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let log = dir.path().join("log");
        let patience = Duration::from_secs(5);
        SecondMount::run(command, dir.path().join("mnt"), &log, patience).unwrap()
    }

    #[test]
    fn a_mount_ends_with_its_standard_input_and_a_refusal_is_returned() {
        let began = Instant::now();
        match run("echo ready; cat > /dev/null") {
            Second::Mounted(second) => drop(second),
            _ => panic!("it was ready"),
        }
        assert!(began.elapsed() < PATIENCE, "it was waited for");
        match run("echo 'it is mounted already' >&2; exit 1") {
            Second::Refused(words) => assert_eq!(words, "it is mounted already"),
            _ => panic!("it was refused"),
        }
    }
}
