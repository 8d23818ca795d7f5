//! Mounts a store and serves it in the foreground until it is unmounted or told to stop.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use fuser::{Config, INodeNo, MountOption, Notifier, Session, SessionACL, SessionUnmounter};

use super::connection::{detach, is_dead, mount_at};
use super::control;
use super::front_end::{FrontEnd, Mounted};
use super::policy::CachePolicy;
use crate::cpu;
use crate::store::{Ino, KernelCache, Store, StoreError};

/// How long an unmount may take before the mount is detached from the tree instead.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(5);

/// How a store is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What the mount table shows as the source.
    pub source: String,
    /// Let other users in; the kernel checks permissions all the same.
    pub allow_other: bool,
    /// Honour set-user-ID programs and device nodes on the mount; root only.
    pub allow_privileges: bool,
    /// Let the kernel gather writes until a file is closed or synced, if nobody else changes the store: what was
    /// only written is lost with the daemon.
    pub writeback: bool,
    /// Threads that answer requests.
    pub threads: usize,
    /// The processor on which requests are answered; `None` for any. Other threads go anywhere.
    pub cpu: Option<usize>,
    /// The socket on which to listen for each [`Command`](super::Command).
    pub control: Option<PathBuf>,
}

/// Why a mount could not be made or kept.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// FUSE is missing or not permitted.
    #[error("{problem}\n  fix: {fix}")]
    Device {
        /// What is wrong.
        problem: String,
        /// What to do about it.
        fix: String,
    },
    /// Something is mounted on the directory already.
    #[error(
        "{} is already a mount point ({kind})\n  fix: unmount it with `fusermount3 -u {}`, or choose another directory",
        .dir.display(), .dir.display()
    )]
    AlreadyMounted {
        /// The directory.
        dir: PathBuf,
        /// The type of the mount there.
        kind: String,
    },
    /// The directory is not empty, and a mount would hide what is in it.
    #[error(
        "{} is not empty: it holds {entry:?}, which a mount would hide\n  fix: mount on an empty directory",
        .dir.display()
    )]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// One of its entries.
        entry: String,
    },
    /// The directory is missing or is no directory.
    #[error("{}: {error}\n  fix: create it with `mkdir -p {}`", .dir.display(), .dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The kernel or `fusermount3` refused, or the session broke.
    #[error("mounting on {}: {error}", .dir.display())]
    Session {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The store could not make its data durable at the end.
    #[error("flushing the store at unmount: {0}")]
    Flush(#[from] StoreError),
}

/// Tells a served mount to stop, from another thread.
#[derive(Clone, Debug)]
pub struct Stop(Sender<Event>);

impl Stop {
    /// Unmounts and ends [`serve`].
    pub fn stop(&self) {
        // An error means that the mount has ended already.
        let _ = self.0.send(Event::Stop);
    }
}

#[derive(Debug)]
enum Event {
    Stop,
    Ended(io::Result<()>),
}

/// Whether `/dev/fuse` is there and this user may open it.
///
/// # Errors
/// [`MountError::Device`] with the fix.
pub fn check_device() -> Result<(), MountError> {
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    let (problem, fix) = match opened {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => (
            "/dev/fuse is not permitted to this user".to_owned(),
            "let users open it with `sudo chmod 666 /dev/fuse`, or run as root",
        ),
        Err(error) => (
            format!("/dev/fuse cannot be opened: {error}"),
            "load the module with `sudo modprobe fuse`; in a container, add `--device /dev/fuse --cap-add SYS_ADMIN`",
        ),
    };
    Err(MountError::Device {
        problem,
        fix: fix.to_owned(),
    })
}

/// Whether something can be mounted on `dir` here; a dead mount that an earlier `ctxbench mount` left
/// there is detached.
///
/// # Errors
/// See [`MountError`].
pub fn check(dir: &Path) -> Result<(), MountError> {
    check_device()?;
    check_directory(dir)
}

/// Mounts `store` on `dir` and answers requests until it is unmounted from outside or told to stop.
///
/// `ready` is called once the mount can be used, with the handle that stops it. [`check`] is done first.
///
/// # Errors
/// See [`MountError`]; nothing stays mounted after one.
pub fn serve(
    store: Arc<dyn Store>,
    dir: &Path,
    options: &MountOptions,
    ready: impl FnOnce(Stop),
) -> Result<(), MountError> {
    check(dir)?;
    let mounted = Arc::new(Mounted::new(Arc::clone(&store)));
    let session_error = |error| MountError::Session {
        dir: dir.to_owned(),
        error,
    };
    if let Some(socket) = &options.control {
        control::listen(socket, Arc::downgrade(&mounted)).map_err(session_error)?;
    }
    let policy = CachePolicy::for_store(store.coherence(), options.writeback);
    let front_end = FrontEnd::new(Arc::clone(&mounted), policy);
    let mut session =
        Session::new(front_end, dir, &config(&*store, options)).map_err(session_error)?;
    let unmounter = session.unmount_callable();
    store.attach(Arc::new(Cached(session.notifier())));

    let (events, inbox) = mpsc::channel();
    let ended = events.clone();
    let pin = options.cpu;
    std::thread::Builder::new()
        .name("session".to_owned())
        .spawn(move || {
            // The threads that answer are started by this one, and stay where it stays.
            if let Some(Err(error)) = pin.map(cpu::stay_on) {
                tracing::warn!(%error, "requests are answered on any processor");
            }
            // An error means that nobody waits for the end any more.
            let _ = ended.send(Event::Ended(session.run()));
        })
        .map_err(session_error)?;
    ready(Stop(events));

    let ended = match inbox.recv() {
        Ok(Event::Ended(result)) => result,
        // The session thread holds a sender, so the channel cannot be closed before it ends.
        Ok(Event::Stop) | Err(_) => {
            take_down(dir, unmounter);
            loop {
                match inbox.recv_timeout(UNMOUNT_PATIENCE) {
                    Ok(Event::Stop) => {}
                    // The kernel may say of the connection that it is aborted: it is what was asked for.
                    Ok(Event::Ended(Err(error)))
                        if error.kind() == io::ErrorKind::ConnectionAborted =>
                    {
                        break Ok(());
                    }
                    Ok(Event::Ended(result)) => break result,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                        tracing::warn!("{} is still in use; its files end here", dir.display());
                        break Ok(());
                    }
                }
            }
        }
    };
    mounted.reclaim_orphans();
    let synced = store.sync();
    store.detach();
    synced?;
    ended.map_err(session_error)
}

/// The kernel's caches of one mount.
struct Cached(Notifier);

impl KernelCache for Cached {
    fn forget_inode(&self, ino: Ino) {
        if let Err(error) = self.0.inval_inode(INodeNo(ino), 0, 0) {
            tracing::debug!(ino, %error, "the kernel did not forget an inode");
        }
    }

    fn learn(&self, ino: Ino, offset: u64, bytes: &[u8]) {
        if let Err(error) = self.0.store(INodeNo(ino), offset, bytes) {
            tracing::debug!(ino, %error, "the kernel did not learn of a file's content");
        }
    }

    fn forget_name(&self, parent: Ino, name: &[u8]) {
        let forgotten = self.0.inval_entry(INodeNo(parent), OsStr::from_bytes(name));
        if let Err(error) = forgotten {
            tracing::debug!(parent, %error, "the kernel did not forget a name");
        }
    }
}

/// Unmounts `dir`; if it is in use, detaches it, so that it is gone from the tree in any case.
fn take_down(dir: &Path, mut unmounter: SessionUnmounter) {
    if let Err(error) = unmounter.unmount() {
        tracing::warn!("{} is in use ({error}): detaching it", dir.display());
        if let Err(error) = detach(dir) {
            tracing::error!("cannot detach {}: {error}", dir.display());
        }
    }
}

fn config(store: &dyn Store, options: &MountOptions) -> Config {
    let mut mount_options = vec![
        MountOption::FSName(options.source.clone()),
        MountOption::Subtype(format!("ctxbench-{}", store.kind())),
        // The kernel checks permissions by the attributes the store returns.
        MountOption::DefaultPermissions,
    ];
    if options.allow_privileges {
        mount_options.extend([MountOption::Dev, MountOption::Suid]);
    }
    let mut config = Config::default();
    config.mount_options = mount_options;
    config.acl = if options.allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = options.threads > 1;
    config
}

fn check_directory(dir: &Path) -> Result<(), MountError> {
    let wrong = |error| MountError::Directory {
        dir: dir.to_owned(),
        error,
    };
    while let Some(mount) = mount_at(dir).map_err(wrong)? {
        if !(mount.is_ours() && is_dead(dir)) {
            return Err(MountError::AlreadyMounted {
                dir: dir.to_owned(),
                kind: mount.kind,
            });
        }
        tracing::warn!("{} holds a dead mount: detaching it", dir.display());
        detach(dir).map_err(wrong)?;
    }
    let mut entries = std::fs::read_dir(dir).map_err(wrong)?;
    if let Some(entry) = entries.next() {
        let entry = entry.map_err(wrong)?.file_name();
        return Err(MountError::NotEmpty {
            dir: dir.to_owned(),
            entry: entry.to_string_lossy().into_owned(),
        });
    }
    Ok(())
}
