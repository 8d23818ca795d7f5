//! The daemon of a mount, and how its last flush ended, over an abstract Unix socket.
//!
//! The socket is named after the mount's device number. The kernel tells a client which process listens, even while that
//! process is stopped. Once a mount has flushed and closed its store, it sends one line to each client.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, Shutdown, UCred, recv, shutdown};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use crate::connection::{MountEntry, mounts};

/// Clients that may wait for one mount.
const CLIENTS_MAX: usize = 64;

/// How long a client waits for a new mount to listen.
const START_PATIENCE: Duration = Duration::from_secs(1);

/// How long a new mount waits for its name: the kernel gives a device number to the next mount before the daemon of the
/// earlier one has run again.
const BIND_PATIENCE: Duration = Duration::from_secs(10);

/// Pause between two looks at a daemon.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The line of a mount whose last flush succeeded.
const FLUSHED: &str = "flushed";

/// Begins the line of a mount whose last flush succeeded after it had lost bytes; their number follows.
const LOST: &str = "flushed, but lost bytes: ";

fn address(mount: &MountEntry) -> io::Result<SocketAddr> {
    let (major, minor) = mount.device;
    SocketAddr::from_abstract_name(format!("ctxbench-mount-{major}:{minor}"))
}

/// The process at the other end, if it belongs to this user, to root, or to the user `owner`.
fn trusted(stream: &UnixStream, owner: Option<u32>) -> Option<UCred> {
    let peer = socket_peercred(stream).ok()?;
    let is_owner = owner == Some(peer.uid.as_raw());
    (is_owner || peer.uid.is_root() || peer.uid == geteuid()).then_some(peer)
}

/// The socket of a served mount.
#[derive(Debug)]
pub(super) struct DaemonSocket {
    /// `None` once it is closed: the name is free when the last descriptor is.
    listener: Option<Arc<UnixListener>>,
    clients: Arc<Mutex<Vec<UnixStream>>>,
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Bytes from the kernel's cache that the store has refused.
    lost_bytes: u64,
}

impl DaemonSocket {
    /// Listens for the mount at `dir`, a path without links.
    ///
    /// # Errors
    /// If nothing is mounted there, or another process listens under that name.
    pub(super) fn listen(dir: &Path) -> io::Result<Self> {
        let mut mounts = mounts()?.into_iter().rev();
        let mount = mounts.find(|mount| mount.at == dir);
        Self::of(&mount.ok_or(io::ErrorKind::NotFound)?)
    }

    fn of(mount: &MountEntry) -> io::Result<Self> {
        let listener = Arc::new(bind(&address(mount)?)?);
        let clients = Arc::new(Mutex::new(Vec::new()));
        let has_ended = Arc::new(AtomicBool::new(false));
        let accepting = (Arc::clone(&listener), Arc::clone(&clients), Arc::clone(&has_ended));
        let thread = std::thread::Builder::new().name("daemon".to_owned()).spawn(move || {
            let (listener, clients, has_ended) = accepting;
            while !has_ended.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((stream, _)) => keep(&clients, stream),
                    // The mount has ended, or the process has too many open files.
                    Err(_) => std::thread::sleep(POLL_INTERVAL),
                }
            }
        })?;
        Ok(Self { listener: Some(listener), clients, has_ended, thread: Some(thread), lost_bytes: 0 })
    }

    /// Stops listening: the kernel may give the device number to the next mount. Clients wait on.
    pub(super) fn close(&mut self) {
        let Some(listener) = self.listener.take() else {
            return;
        };
        // Clients that the thread has not accepted yet.
        if listener.set_nonblocking(true).is_ok() {
            while let Ok((stream, _)) = listener.accept() {
                keep(&self.clients, stream);
            }
        }
        self.has_ended.store(true, Ordering::Release);
        // Wakes the thread.
        let _ = shutdown(&listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Adds to the report that the store has refused so many bytes from the kernel's cache.
    pub(super) fn set_lost(&mut self, bytes: u64) {
        self.lost_bytes = bytes;
    }

    /// Tells every client how the last flush ended.
    pub(super) fn report(mut self, failure: Option<&dyn std::error::Error>) {
        self.close();
        let line = match failure {
            None if self.lost_bytes > 0 => format!("{LOST}{}\n", self.lost_bytes),
            None => format!("{FLUSHED}\n"),
            Some(failure) => format!("{}\n", failure.to_string().replace('\n', " ")),
        };
        for mut client in self.clients.lock().drain(..) {
            // The client may have ended.
            let _ = client.write_all(line.as_bytes());
        }
    }
}

/// Listens at `address`. The daemon of an earlier mount with the same device number may just be about to let go of it.
fn bind(address: &SocketAddr) -> io::Result<UnixListener> {
    let deadline = Instant::now() + BIND_PATIENCE;
    loop {
        match UnixListener::bind_addr(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(POLL_INTERVAL);
            }
            bound => return bound,
        }
    }
}

impl Drop for DaemonSocket {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether the client at the other end still waits.
fn is_connected(stream: &UnixStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let received = recv(stream, &mut [0; 1], flags).map(|(received, _)| received);
    received != Ok(0)
}

fn keep(clients: &Mutex<Vec<UnixStream>>, stream: UnixStream) {
    let mut clients = clients.lock();
    // Those that have ended, such as `ctxbench status`.
    clients.retain(is_connected);
    if clients.len() < CLIENTS_MAX && trusted(&stream, None).is_some() {
        clients.push(stream);
    }
}

/// How a daemon ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonEnd {
    /// Its last flush succeeded, and its process has ended.
    Flushed,
    /// As [`DaemonEnd::Flushed`], but the store had refused so many bytes from the kernel's cache before.
    Lost(u64),
    /// Its last flush failed, for this reason, and its process has ended.
    FlushFailed(String),
    /// Its process has ended without a word: it was killed, or has crashed.
    Unknown,
    /// Its process is stopped by a signal.
    Stopped,
    /// The time is over, and its process runs.
    Runs,
}

/// The daemon of a mount of ours, as another process sees it.
#[derive(Debug)]
pub struct Daemon {
    pid: Pid,
    process: OwnedFd,
    stream: UnixStream,
    said: Vec<u8>,
}

impl Daemon {
    /// The daemon of `mount`; `None` where it cannot be told, such as from another network namespace.
    pub fn of(mount: &MountEntry) -> Option<Self> {
        let address = address(mount).ok()?;
        let deadline = Instant::now() + START_PATIENCE;
        let stream = loop {
            match UnixStream::connect_addr(&address) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() > deadline => return None,
                Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
        };
        let peer = trusted(&stream, mount.user())?;
        let process = pidfd_open(peer.pid, PidfdFlags::empty()).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(Self { pid: peer.pid, process, stream, said: Vec::new() })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether a signal or a debugger has stopped it.
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let state = |stat: String| stat.rsplit_once(") ")?.1.chars().next();
        matches!(stat.ok().and_then(state), Some('T' | 't'))
    }

    /// Waits until its process has ended, and with that its locks; at most until `deadline`.
    pub fn wait(&mut self, deadline: Instant) -> DaemonEnd {
        loop {
            self.read();
            if self.has_ended() {
                self.read();
                return self.end();
            }
            if self.is_stopped() {
                return DaemonEnd::Stopped;
            }
            if Instant::now() >= deadline {
                return DaemonEnd::Runs;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn read(&mut self) {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = self.stream.read(&mut bytes) {
            self.said.extend_from_slice(&bytes[..count]);
        }
    }

    fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::from_borrowed_fd(self.process.as_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    fn end(&self) -> DaemonEnd {
        let said = String::from_utf8_lossy(&self.said);
        match said.strip_suffix('\n') {
            Some(FLUSHED) => DaemonEnd::Flushed,
            Some(line) => match line.strip_prefix(LOST).map(str::parse) {
                Some(Ok(bytes)) => DaemonEnd::Lost(bytes),
                _ => DaemonEnd::FlushFailed(line.to_owned()),
            },
            None => DaemonEnd::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_client_learns_of_the_daemon_and_of_its_last_flush_and_the_name_is_free_at_once() {
        // No mount has this number: the major number of FUSE mounts is 0.
        let mount = MountEntry {
            at: PathBuf::from("/proc"),
            kind: "fuse".to_owned(),
            source: "ctxbench-test".to_owned(),
            options: "rw,user_id=0".to_owned(),
            device: (9999, std::process::id()),
        };
        assert!(Daemon::of(&mount).is_none(), "no daemon listens");
        for (failure, lost) in [(None, 0), (None, 77), (Some("no space"), 0)] {
            let mut socket = DaemonSocket::of(&mount).unwrap();
            // `ctxbench status` comes and goes.
            for _ in 0..2 * CLIENTS_MAX {
                drop(Daemon::of(&mount).unwrap());
            }
            let mut daemon = Daemon::of(&mount).unwrap();
            assert_eq!(daemon.pid(), std::process::id());
            assert!(!daemon.is_stopped());
            assert_eq!(daemon.wait(Instant::now()), DaemonEnd::Runs);
            socket.close();
            // The next mount may have the number now.
            drop(DaemonSocket::of(&mount).unwrap());
            let error = failure.map(io::Error::other);
            socket.set_lost(lost);
            socket.report(error.as_ref().map(|error| error as &dyn std::error::Error));
            daemon.read();
            let expected = match failure {
                None if lost > 0 => DaemonEnd::Lost(lost),
                None => DaemonEnd::Flushed,
                Some(reason) => DaemonEnd::FlushFailed(reason.to_owned()),
            };
            assert_eq!(daemon.end(), expected);
        }
        let socket = DaemonSocket::of(&mount).unwrap();
        let mut daemon = Daemon::of(&mount).unwrap();
        drop(socket);
        daemon.read();
        assert_eq!(daemon.end(), DaemonEnd::Unknown);
    }
}
