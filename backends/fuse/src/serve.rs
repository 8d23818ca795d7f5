//! Mounts a store and serves it in the foreground until an unmount or a stop request.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};

use fuser::{Config, INodeNo, MountOption, Notifier, Session, SessionACL, SessionUnmounter};

use crate::connection::{detach, is_dead, mount_at};
use crate::control;
use crate::cpu;
use crate::daemon::DaemonSocket;
use crate::front_end::{FrontEnd, MountState};
use crate::owner::StoredOwner;
use crate::policy::CachePolicy;
use crate::store::{Errno, Ino, KernelCache, ROOT, Store, StoreError};

/// How long the session may take to end after an unmount or detach.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(5);

/// Pause between two attempts to save changes on a full disk.
const SAVE_PAUSE: Duration = Duration::from_secs(1);

/// How a store is mounted. By default, one thread answers the requests of this process's user alone.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// The source in the mount table.
    pub source: String,
    /// Permit other users (`allow_other`); the kernel still checks file permissions.
    pub allow_other: bool,
    /// Honour set-user-ID programs and device nodes on the mount; root only.
    pub allow_privileges: bool,
    /// The stored owner whose files belong to this process's user on this mount.
    pub owner: Option<StoredOwner>,
    /// Refuse every change in the kernel.
    pub read_only: bool,
    /// Use the kernel's writeback cache, if only this mount changes the store. Data of files that are
    /// neither closed nor synced is lost with the daemon.
    pub writeback: bool,
    /// Threads that answer requests.
    pub threads: usize,
    /// The processor of the threads that answer requests; `None` for any. Other threads are not bound.
    pub cpu: Option<usize>,
    /// The control socket, which accepts each [`ControlCommand`](super::ControlCommand).
    pub control: Option<PathBuf>,
}

impl MountOptions {
    fn request_threads(&self) -> usize {
        self.threads.max(1)
    }
}

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// `/dev/fuse` is missing or not permitted.
    #[error("{problem}\n  fix: {fix}")]
    Device {
        /// The failed call or check.
        problem: String,
        /// How to fix it.
        fix: String,
    },
    /// The directory is already a mount point.
    #[error(
        "{} is already a mount point ({kind})\n  fix: unmount it with `ctxbench unmount {}` or, if another program mounted it, with `fusermount3 -u {}`; or choose another directory",
        .dir.display(), .dir.display(), .dir.display()
    )]
    AlreadyMounted {
        /// The directory.
        dir: PathBuf,
        /// The type of the mount there.
        kind: String,
    },
    /// The directory is not empty, and a mount would hide its entries.
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
    /// The directory is missing, cannot be read, or is not a directory.
    #[error("cannot mount on {}: {error}\n  fix: {}", .dir.display(), directory_fix(.dir, .error))]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The kernel or `fusermount3` refused the mount, or the session failed.
    #[error("mounting on {}: {error}", .dir.display())]
    Session {
        /// The directory.
        dir: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The store could not make its data durable at unmount.
    #[error("flushing the store at unmount: {0}")]
    Flush(StoreError),
}

/// How to fix a mount directory that cannot be opened.
fn directory_fix(dir: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("create it with `mkdir -p {}`", dir.display()),
        _ => "name an empty directory that you may read".to_owned(),
    }
}

impl From<StoreError> for MountError {
    fn from(error: StoreError) -> Self {
        Self::Flush(error)
    }
}

/// Stops a served mount from another thread.
#[derive(Clone, Debug)]
pub struct Stop(Sender<Event>);

impl Stop {
    /// Unmounts and ends [`serve`].
    pub fn stop(&self) {
        // An error means that the mount has already ended.
        let _ = self.0.send(Event::Stop);
    }
}

#[derive(Debug)]
enum Event {
    Stop,
    Ended(io::Result<()>),
}

/// Checks that `/dev/fuse` exists and that this user may open it.
///
/// # Errors
/// [`MountError::Device`] with the fix.
pub fn check_device() -> Result<(), MountError> {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let (problem, fix) = match opened {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            ("you have no permission to open /dev/fuse".to_owned(), "run `sudo chmod 666 /dev/fuse`, or run as root")
        }
        Err(error) => (
            format!("/dev/fuse cannot be opened: {error}"),
            "load the module with `sudo modprobe fuse`; in a container, add `--device /dev/fuse --cap-add SYS_ADMIN`",
        ),
    };
    Err(MountError::Device { problem, fix: fix.to_owned() })
}

/// Checks that `dir` can be mounted on. Detaches a dead mount that an earlier `ctxbench mount` left
/// there.
///
/// # Errors
/// See [`MountError`].
pub fn check(dir: &Path) -> Result<(), MountError> {
    check_device()?;
    check_directory(dir)
}

/// Runs [`check`], mounts `store` on `dir` and answers requests until an unmount or a stop request.
///
/// Calls `ready` when the mount is usable, with the handle that stops it. A store that was never mounted discards what
/// opening it created.
///
/// # Errors
/// See [`MountError`]; after an error, `dir` is not mounted.
pub fn serve(
    store: Arc<dyn Store>,
    dir: &Path,
    options: &MountOptions,
    ready: impl FnOnce(Stop),
) -> Result<(), MountError> {
    let mut socket = None;
    // The store is closed before the report: a client that reads it may mount the store again.
    let served = serve_store(store, dir, options, &mut socket, ready);
    if let Some(socket) = socket {
        let failure = served.as_ref().err();
        socket.report(failure.map(|failure| failure as &dyn std::error::Error));
    }
    served
}

fn serve_store(
    store: Arc<dyn Store>,
    dir: &Path,
    options: &MountOptions,
    socket: &mut Option<DaemonSocket>,
    ready: impl FnOnce(Stop),
) -> Result<(), MountError> {
    let policy = CachePolicy::for_store(store.coherence(), options.writeback);
    let mounted = MountState::new(Arc::clone(&store), policy.writeback, options.request_threads());
    let mounted = Arc::new(mounted.with_owner(options.owner));
    let started = start_session(&mounted, policy, dir, options);
    let (session, dir) = started.inspect_err(|_| store.discard_new())?;
    let dir = dir.as_path();
    if let Ok(Some(place)) = mount_at(dir) {
        let _ = mounted.place.set(place);
    }
    match DaemonSocket::listen(dir) {
        Ok(listening) => *socket = Some(listening),
        Err(error) => tracing::warn!(
            %error,
            "`ctxbench unmount` cannot report the result of the last flush of {}", dir.display()
        ),
    }
    let state = Arc::clone(&mounted);
    let served = run_session(&store, mounted, session, socket, dir, options, ready);
    if let Some(socket) = socket {
        socket.set_lost(state.lost_writes.bytes());
    }
    served
}

fn start_session(
    mounted: &Arc<MountState>,
    policy: CachePolicy,
    dir: &Path,
    options: &MountOptions,
) -> Result<(Session<FrontEnd>, PathBuf), MountError> {
    check(dir)?;
    let session_error = |error| MountError::Session { dir: dir.to_owned(), error };
    // Resolved now: once it is mounted, and before requests are answered, a path through the mount would never resolve.
    let resolved = dir.canonicalize().map_err(session_error)?;
    let store = &mounted.store;
    if let Some(socket) = &options.control {
        control::listen(socket, Arc::downgrade(mounted)).map_err(session_error)?;
    }
    let front_end = FrontEnd::new(Arc::clone(mounted), policy);
    let session = Session::new(front_end, &resolved, &config(&**store, options));
    if session.is_err()
        && let Some(socket) = &options.control
    {
        // It is this mount's own: binding fails where there is a file.
        let _ = std::fs::remove_file(socket);
    }
    Ok((session.map_err(session_error)?, resolved))
}

fn run_session(
    store: &Arc<dyn Store>,
    mounted: Arc<MountState>,
    mut session: Session<FrontEnd>,
    socket: &mut Option<DaemonSocket>,
    dir: &Path,
    options: &MountOptions,
    ready: impl FnOnce(Stop),
) -> Result<(), MountError> {
    let session_error = |error| MountError::Session { dir: dir.to_owned(), error };
    let unmounter = session.unmount_callable();
    // The first and only value.
    let _ = mounted.notifier.set(session.notifier());
    store.attach(Arc::new(MountCaches { notifier: session.notifier(), mounted: Arc::clone(&mounted) }));

    let (events, inbox) = mpsc::channel();
    let ended = events.clone();
    let pin = options.cpu;
    std::thread::Builder::new()
        .name("session".to_owned())
        .spawn(move || {
            // The threads that answer requests inherit this thread's processor affinity.
            if let Some(Err(error)) = pin.map(cpu::pin) {
                tracing::warn!(%error, "could not pin the request threads; they run on any processor");
            }
            // An error means that `serve` has stopped waiting.
            let _ = ended.send(Event::Ended(session.run()));
        })
        .map_err(session_error)?;
    ready(Stop(events));

    let ended = match inbox.recv() {
        Ok(Event::Ended(result)) => result,
        // The session thread holds a sender, so the channel stays open until that thread ends.
        Ok(Event::Stop) | Err(_) => {
            take_down(dir, unmounter, &mounted);
            loop {
                match inbox.recv_timeout(UNMOUNT_PATIENCE) {
                    Ok(Event::Stop) => {}
                    // The unmount above may abort the connection.
                    Ok(Event::Ended(Err(error))) if error.kind() == io::ErrorKind::ConnectionAborted => {
                        break Ok(());
                    }
                    Ok(Event::Ended(result)) => break result,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                        tracing::warn!("{} is still in use; its open files no longer work", dir.display());
                        break Ok(());
                    }
                }
            }
        }
    };
    if let Some(socket) = socket {
        socket.close();
    }
    mounted.reclaim_orphans();
    let synced = sync_at_end(&**store, dir);
    store.detach();
    let finished = store.finish();
    synced?;
    finished?;
    ended.map_err(session_error)
}

/// Syncs a store that is no longer mounted. One that would lose its changes waits for room on the disk.
fn sync_at_end(store: &dyn Store, dir: &Path) -> Result<(), StoreError> {
    let mut has_told = false;
    loop {
        match store.sync() {
            Err(error) if store.is_lost_without_sync() && matches!(error.errno, Errno::NOSPC | Errno::DQUOT) => {
                if !has_told {
                    let (dir, pid) = (dir.display(), std::process::id());
                    tracing::error!(
                        "{dir} is unmounted, but its changes are not saved: {error}; this process tries again until the disk has room: free some, or give the changes up with `kill -KILL {pid}`"
                    );
                    has_told = true;
                }
                std::thread::sleep(SAVE_PAUSE);
            }
            synced => return synced,
        }
    }
}

/// The kernel's caches of one mount.
struct MountCaches {
    notifier: Notifier,
    mounted: Arc<MountState>,
}

impl KernelCache for MountCaches {
    fn invalidate_inode(&self, ino: Ino) {
        if let Err(error) = self.notifier.inval_inode(INodeNo(ino), 0, 0) {
            tracing::debug!(ino, %error, "could not invalidate an inode in the kernel");
        }
    }

    fn store_pages(&self, ino: Ino, offset: u64, bytes: &[u8]) {
        if let Err(error) = self.notifier.store(INodeNo(ino), offset, bytes) {
            tracing::debug!(ino, %error, "could not store a file's content in the kernel's cache");
        }
    }

    fn invalidate_name(&self, parent: Ino, name: &[u8]) {
        let forgotten = self.notifier.inval_entry(INodeNo(parent), OsStr::from_bytes(name));
        if let Err(error) = forgotten {
            tracing::debug!(parent, %error, "could not invalidate a name in the kernel");
        }
    }

    fn knows(&self, ino: Ino) -> bool {
        ino == ROOT || self.mounted.inodes.is_referenced(ino)
    }

    fn tell_watchers(&self, ino: Ino, path: &[u8]) {
        if let Some(place) = self.mounted.place.get() {
            self.mounted.watch_events.raise(place, ino, path);
        }
    }

    fn is_unreferenced(&self, ino: Ino) -> bool {
        self.mounted.inodes.orphaned(ino)
    }
}

/// Unmounts `dir`, or detaches it from the tree if it is in use: with what programs have stored through memory maps until
/// then.
fn take_down(dir: &Path, mut unmounter: SessionUnmounter, mounted: &MountState) {
    if let Err(error) = unmounter.unmount() {
        tracing::warn!("{} is in use ({error}): detaching it", dir.display());
        mounted.write_back_all();
        if let Err(error) = detach(dir) {
            tracing::error!("cannot detach {}: {error}", dir.display());
        }
    }
}

fn config(store: &dyn Store, options: &MountOptions) -> Config {
    let mut mount_options =
        vec![MountOption::FSName(options.source.clone()), MountOption::Subtype(format!("ctxbench-{}", store.kind()))];
    if options.allow_other || !is_unrestricted() {
        // The kernel checks permissions by the attributes that the store returns. It therefore requests a directory's
        // attributes again after each change in it.
        mount_options.push(MountOption::DefaultPermissions);
    }
    if options.read_only {
        mount_options.push(MountOption::RO);
    }
    if options.allow_privileges {
        mount_options.extend([MountOption::Dev, MountOption::Suid]);
    }
    let mut config = Config::default();
    config.mount_options = mount_options;
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.request_threads());
    config.clone_fd = options.threads > 1;
    config
}

/// Whether permissions restrict this user in nothing: root with its capabilities. Without `allow_other` only processes of
/// the same user reach the mount.
fn is_unrestricted() -> bool {
    let needed = CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::CHOWN
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID;
    let held = capabilities(None);
    geteuid().is_root() && held.is_ok_and(|held| held.effective.contains(needed))
}

fn check_directory(dir: &Path) -> Result<(), MountError> {
    let wrong = |error| MountError::Directory { dir: dir.to_owned(), error };
    while let Some(mount) = mount_at(dir).map_err(wrong)? {
        if !(mount.is_ours() && is_dead(dir)) {
            return Err(MountError::AlreadyMounted { dir: dir.to_owned(), kind: mount.kind });
        }
        tracing::warn!("{} has a stale mount: detaching it", dir.display());
        detach(dir).map_err(wrong)?;
    }
    let mut entries = std::fs::read_dir(dir).map_err(wrong)?;
    if let Some(entry) = entries.next() {
        let entry = entry.map_err(wrong)?.file_name();
        return Err(MountError::NotEmpty { dir: dir.to_owned(), entry: entry.to_string_lossy().into_owned() });
    }
    Ok(())
}
