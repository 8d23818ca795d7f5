//! The control socket of a mount, on which other processes read its counters.
//!
//! One request per connection, one line each way: the request is a JSON string, the answer a JSON value.
//! The socket works while the mount itself is stuck, and a command sends no FUSE request.
//! Its directory may have any path: the kernel takes 107 bytes as a socket's address, so both sides go through `/proc`.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::daemon_log;
use crate::front_end::MountState;
use crate::panics::message;

/// How long the client and the mount wait for each other.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a sync may take: it may have to upload much to a remote bucket.
const SYNC_PATIENCE: Duration = Duration::from_secs(300);

/// A command to a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlCommand {
    /// Return the counters.
    Counters,
    /// Make everything durable.
    Sync,
    /// Make the next request that has a reply panic before it calls the store, for `ctxbench fault`.
    PanicNext,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Counters(Counters),
    Done,
    Failed(String),
}

/// A short path of a socket, which exists as long as its directory is open here.
struct ShortPath {
    path: PathBuf,
    _dir: OwnedFd,
}

impl ShortPath {
    fn of(socket: &Path) -> io::Result<Self> {
        let Some(name) = socket.file_name() else {
            let message = format!("{} is not the path of a socket", socket.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        let parent = socket.parent().filter(|dir| !dir.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        Ok(Self { path: PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name), _dir: dir })
    }
}

/// Sends a command to the mount whose control socket is at `socket`.
///
/// # Errors
/// If no mount listens there, the answer takes longer than 10 s (a sync: 5 min), or the command failed.
pub fn ask(socket: &Path, command: ControlCommand) -> io::Result<Counters> {
    let mut stream = UnixStream::connect(&ShortPath::of(socket)?.path)?;
    stream.set_read_timeout(Some(match command {
        ControlCommand::Counters | ControlCommand::PanicNext => PATIENCE,
        ControlCommand::Sync => SYNC_PATIENCE,
    }))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    serde_json::to_writer(&mut stream, &command)?;
    stream.write_all(b"\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match serde_json::from_str(&line)? {
        Answer::Counters(counters) => Ok(counters),
        Answer::Done => Ok(Counters::default()),
        Answer::Failed(reason) => Err(io::Error::other(reason)),
    }
}

/// Listens at `socket` and answers for as long as the mount exists.
///
/// Holds only a weak reference, because the store must close when its mount ends.
pub(crate) fn listen(socket: &Path, mounted: Weak<MountState>) -> io::Result<()> {
    let short = ShortPath::of(socket)?;
    let listener = UnixListener::bind(&short.path)?;
    std::fs::set_permissions(&short.path, std::fs::Permissions::from_mode(0o600))?;
    let serve = move || {
        for stream in listener.incoming().flatten() {
            let Some(mounted) = mounted.upgrade() else {
                break;
            };
            // A panic fails this connection only; the socket keeps working.
            match catch_unwind(AssertUnwindSafe(|| answer(stream, &mounted))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "control socket"),
                Err(panic) => tracing::error!("control socket: a panic: {}", message(&*panic)),
            }
        }
    };
    std::thread::Builder::new().name("control".to_owned()).spawn(serve)?;
    Ok(())
}

fn answer(mut stream: UnixStream, mounted: &MountState) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(ControlCommand::Counters) => Answer::Counters(Counters {
            fuse: mounted.recorder.snapshot(),
            store: mounted
                .store
                .counters()
                .into_iter()
                .chain([("cached_bytes_lost", mounted.lost_writes.bytes())])
                .chain(mounted.watch_events.counts())
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            inodes: mounted.inodes.len(),
            log_lines_dropped: daemon_log::lines_dropped(),
        }),
        Ok(ControlCommand::Sync) => match mounted.store.sync() {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Failed(error.to_string()),
        },
        Ok(ControlCommand::PanicNext) => {
            mounted.panics_next.store(true, Ordering::Relaxed);
            Answer::Done
        }
        Err(error) => Answer::Failed(format!("unknown command {:?}: {error}", line.trim())),
    };
    serde_json::to_writer(&mut stream, &answer)?;
    stream.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::MemoryStore;
    use crate::store::{Caller, Timestamp};

    fn mounted() -> Arc<MountState> {
        let owner = Caller { uid: 0, gid: 0, now: Timestamp(0) };
        let store = Arc::new(MemoryStore::new(&owner));
        Arc::new(MountState::new(store, false, 1))
    }

    #[test]
    fn a_socket_in_a_directory_of_any_depth_answers() {
        let dir = tempfile::tempdir().unwrap();
        for depth in [0, 1, 10] {
            let place = dir.path().join(vec!["d".repeat(200); depth].join("/"));
            std::fs::create_dir_all(&place).unwrap();
            let socket = place.join("control");
            let mounted = mounted();
            listen(&socket, Arc::downgrade(&mounted)).unwrap();
            ask(&socket, ControlCommand::Counters).unwrap();
            let mode = socket.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let again = listen(&socket, Arc::downgrade(&mounted)).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        }
        for missing in ["none/control", "none", "/"] {
            ask(&dir.path().join(missing), ControlCommand::Sync).unwrap_err();
        }
    }

    #[test]
    fn answers_counters_and_refuses_the_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control");
        let mounted = mounted();
        listen(&socket, Arc::downgrade(&mounted)).unwrap();
        drop(mounted.recorder.start(super::super::Opcode::Read));

        let counters = ask(&socket, ControlCommand::Counters).unwrap();
        assert_eq!(counters.count(super::super::Opcode::Read), 1);
        ask(&socket, ControlCommand::Sync).unwrap();
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(b"\"explode\"\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.contains("unknown command"), "{line}");
    }
}
