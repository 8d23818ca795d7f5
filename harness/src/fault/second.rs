//! A second mount of what a workspace holds, as another host or another process would have it.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use backends::READY;
use backends::backend::{Backend, Site};
use backends::fuse::connection::detach;

/// How long it may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A second mount. It ends when dropped.
pub struct SecondMount {
    process: Child,
    stdin: Option<ChildStdin>,
    root: PathBuf,
}

/// What came of trying to mount a second time.
pub enum Second {
    /// It is mounted.
    Mounted(SecondMount),
    /// It was refused, in these words.
    Refused(String),
    /// There is nothing to mount a second time.
    NoMount,
}

impl SecondMount {
    /// Mounts what the workspace at `site` holds on `beside/mnt`.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(backend: &dyn Backend, site: &Site, beside: &Path) -> io::Result<Second> {
        let root = beside.join("mnt");
        std::fs::create_dir_all(&root)?;
        let Some(mut command) = backend.second_mount(site, beside)? else {
            return Ok(Second::NoMount);
        };
        let log = beside.join("daemon.log");
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()?;
        let stdin = process.stdin.take();
        let (sender, ready) = channel();
        if let Some(stdout) = process.stdout.take() {
            std::thread::spawn(move || {
                let mut line = String::new();
                let read = BufReader::new(stdout).read_line(&mut line);
                // Nobody listens any more if it took too long.
                let _ = sender.send(read.is_ok() && line.trim() == READY);
            });
        }
        let second = Self {
            process,
            stdin,
            root,
        };
        if ready.recv_timeout(PATIENCE) == Ok(true) {
            return Ok(Second::Mounted(second));
        }
        drop(second);
        let said = std::fs::read_to_string(&log).unwrap_or_default();
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
        // Errors mean that it has ended, and that nothing is mounted.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = detach(&self.root);
    }
}
