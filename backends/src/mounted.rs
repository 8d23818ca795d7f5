//! Backends whose files a daemon serves: `ctxbench mount` in a process of its own.
//!
//! The daemon can be killed, stopped, measured and restarted, and a mount that waits for the process
//! it serves cannot happen. It unmounts when its standard input ends, so it does not outlive us.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::backend::{
    Backend, Capabilities, Description, Lifeline, Need, Receipt, Site, Unavailable, Workspace,
    drop_machine_caches, kernel,
};
use crate::fuse::connection::{Connection, mount_at};
use crate::fuse::{self, Counters, MountError, Opcode};

/// The line a daemon prints on standard output when its mount can be used.
pub const READY: &str = "ready";

/// The stores that can be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mounted {
    Null,
    Memory,
    Sqlite,
}

impl Mounted {
    fn name(self) -> &'static str {
        match self {
            Mounted::Null => "null",
            Mounted::Memory => "memory",
            Mounted::Sqlite => "sqlite",
        }
    }

    fn store_arguments(self, site: &Site) -> Vec<PathBuf> {
        match self {
            Mounted::Null | Mounted::Memory => Vec::new(),
            Mounted::Sqlite => vec!["--db".into(), site.dir.join("store.db")],
        }
    }
}

impl Backend for Mounted {
    fn describe(&self) -> Description {
        let (summary, durability, lines) = match self {
            Mounted::Null => (
                "FUSE over nothing: fixed names, attributes and bytes, nothing cached by the kernel",
                "holds nothing",
                env!("CTXBENCH_LINES_NULL"),
            ),
            Mounted::Memory => (
                "FUSE over the daemon's memory: the floor of what our FUSE front end costs",
                "gone when the daemon ends, fsync or not",
                env!("CTXBENCH_LINES_MEMORY"),
            ),
            Mounted::Sqlite => (
                "FUSE over one SQLite file; what is past 256 KiB of a file lies beside it",
                "every call that returned survives a killed daemon; fsync makes everything before it survive power loss",
                env!("CTXBENCH_LINES_SQLITE"),
            ),
        };
        let need = |name: &str, why: &str| Need {
            name: name.to_owned(),
            why: why.to_owned(),
        };
        Description {
            name: self.name().to_owned(),
            file: None,
            summary: summary.to_owned(),
            durability: durability.to_owned(),
            capabilities: Capabilities {
                holds_data: *self != Mounted::Null,
                persistent: *self != Mounted::Memory,
                counts_requests: true,
            },
            daemons: 1,
            mounts: 1,
            needs: vec![
                need("/dev/fuse", "to serve files to the kernel"),
                need("fusermount3", "to mount without being root"),
            ],
            lines_of_code: lines.parse().unwrap_or(0),
        }
    }

    fn receipt(&self) -> Result<Receipt, Unavailable> {
        if let Err(MountError::Device { problem, fix }) = fuse::check_device() {
            return Err(Unavailable {
                reason: problem,
                fix,
            });
        }
        let fusermount = Command::new("fusermount3").arg("--version").output();
        let fusermount = match fusermount {
            Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            Err(_) if rustix::process::geteuid().is_root() => "none (root needs none)".to_owned(),
            Err(_) => {
                return Err(Unavailable {
                    reason: "fusermount3 is not installed, and mounting without it needs root"
                        .to_owned(),
                    fix: "sudo apt-get install fuse3".to_owned(),
                });
            }
        };
        let mut receipt = Receipt::from([
            ("kernel".to_owned(), kernel()),
            ("ctxbench".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("fusermount3".to_owned(), fusermount),
        ]);
        if *self == Mounted::Sqlite {
            receipt.insert("sqlite".to_owned(), rusqlite::version().to_owned());
        }
        Ok(receipt)
    }

    fn open(&self, site: &Site) -> io::Result<Box<dyn Workspace>> {
        let root = site.dir.join("mnt");
        // A dead mount is there, but cannot be looked at; the daemon knows what to do about it.
        if mount_at(&root)?.is_none() {
            std::fs::create_dir_all(&root)?;
        }
        let mut workspace = MountedWorkspace {
            backend: *self,
            site: site.clone(),
            root,
            daemon: None,
            connection: None,
            time_to_ready: Duration::ZERO,
        };
        workspace.start()?;
        Ok(Box::new(workspace))
    }

    fn offline_read(&self, site: &Site, name: &str) -> Option<(String, Vec<OsString>)> {
        match self {
            Mounted::Null | Mounted::Memory => None,
            Mounted::Sqlite => {
                let query = format!(
                    "SELECT CAST(bytes AS TEXT) FROM content JOIN file USING (ino) WHERE path = '/{name}' ORDER BY at"
                );
                let db = site.dir.join("store.db");
                Some(("sqlite3".to_owned(), vec![db.into(), query.into()]))
            }
        }
    }
}

struct MountedWorkspace {
    backend: Mounted,
    site: Site,
    root: PathBuf,
    daemon: Option<Daemon>,
    connection: Option<Connection>,
    time_to_ready: Duration,
}

struct Daemon {
    process: Child,
    /// Ends the daemon when closed.
    stdin: Option<ChildStdin>,
}

impl MountedWorkspace {
    fn control(&self) -> PathBuf {
        self.site.dir.join("control")
    }

    fn log(&self) -> PathBuf {
        self.site.dir.join("daemon.log")
    }

    /// What went wrong, with what the daemon said about it.
    fn failure(&self, what: &str) -> io::Error {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let last = log.trim().lines().rev().take(5).collect::<Vec<_>>();
        let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
        let name = self.backend.name();
        io::Error::other(format!("the {name} daemon {what}: {last}"))
    }

    fn start(&mut self) -> io::Result<()> {
        // A socket that an earlier daemon left behind would keep the new one from listening.
        let _ = std::fs::remove_file(self.control());
        let log = File::options().create(true).append(true).open(self.log())?;
        let started = Instant::now();
        let mut process = Command::new(&self.site.program)
            .arg("mount")
            .arg(self.backend.name())
            .arg(&self.root)
            .args(self.backend.store_arguments(&self.site))
            .arg("--control")
            .arg(self.control())
            .arg("--until-stdin-ends")
            .args(self.site.cpu.map(|cpu| format!("--cpu={cpu}")))
            .args(self.site.allow_other.then_some("--allow-other"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take();
        self.daemon = Some(Daemon { process, stdin });
        let (sender, ready) = mpsc::channel();
        if let Some(stdout) = stdout {
            std::thread::spawn(move || {
                let mut line = String::new();
                let read = BufReader::new(stdout).read_line(&mut line);
                // Nobody listens any more if it took too long.
                let _ = sender.send(read.is_ok() && line.trim() == READY);
            });
        }
        match ready.recv_timeout(self.site.patience) {
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
        self.connection = mount_at(&self.root)?.as_ref().and_then(Connection::of);
        Ok(())
    }

    fn stop(&mut self) -> io::Result<()> {
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        drop(daemon.stdin.take());
        match wait(&mut daemon.process, self.site.patience)? {
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
        self.lifeline().sever();
        if let Some(mut daemon) = self.daemon.take() {
            // A killed child ends at once; waiting for it leaves no zombie.
            let _ = daemon.process.wait();
        }
        self.connection = None;
    }

    /// Waits until the kernel has told the daemon which inodes it let go: until then those messages
    /// compete with what is to be measured.
    fn settle(&mut self) -> io::Result<()> {
        let mut last = u64::MAX;
        for _ in 0..100 {
            let forgets =
                fuse::ask(&self.control(), fuse::Command::Counters)?.count(Opcode::Forget);
            if forgets == last {
                break;
            }
            last = forgets;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Workspace for MountedWorkspace {
    fn root(&self) -> &Path {
        &self.root
    }

    fn lifeline(&self) -> Lifeline {
        Lifeline {
            daemon: self.daemon(),
            mount: Some((self.root.clone(), self.connection)),
        }
    }

    fn daemon(&self) -> Option<u32> {
        self.daemon.as_ref().map(|daemon| daemon.process.id())
    }

    fn time_to_ready(&self) -> Duration {
        self.time_to_ready
    }

    fn sync(&mut self) -> io::Result<()> {
        rustix::fs::syncfs(File::open(&self.root)?)?;
        fuse::ask(&self.control(), fuse::Command::Sync)?;
        Ok(())
    }

    fn drop_caches(&mut self) -> io::Result<()> {
        self.sync()?;
        drop_machine_caches(&self.site.dir)?;
        self.settle()
    }

    fn restart(&mut self) -> io::Result<()> {
        self.stop()?;
        drop_machine_caches(&self.site.dir)?;
        self.start()
    }

    fn counters(&mut self) -> io::Result<Option<Counters>> {
        fuse::ask(&self.control(), fuse::Command::Counters).map(Some)
    }

    fn obituary(&mut self) -> Option<String> {
        let daemon = self.daemon.as_mut()?;
        match daemon.process.try_wait() {
            Ok(Some(status)) => Some(format!(
                "the {} daemon ended: {status}",
                self.backend.name()
            )),
            _ => None,
        }
    }

    fn kill(&mut self) -> io::Result<bool> {
        let Some(mut daemon) = self.daemon.take() else {
            return Ok(false);
        };
        daemon.process.kill()?;
        daemon.process.wait()?;
        Ok(true)
    }

    fn close(mut self: Box<Self>) -> io::Result<()> {
        self.stop()
    }
}

impl Drop for MountedWorkspace {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            self.take_down_by_force();
        }
    }
}

/// Waits for a child for at most `patience`.
fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<std::process::ExitStatus>> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
