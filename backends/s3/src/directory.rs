//! A bucket that is a directory, which hosts may share over NFS. An object is a file, and its key is the path.
//!
//! An object is written to a file of its own and synced, and then gets its name: by `link`, which fails if the name exists,
//! or by `rename`. So every object is whole, one of several hosts creates it, and it survives a power loss before its
//! writer or a reader goes on. An object is compared and replaced under a lock, which other programs do not know. Nothing in the directory is trusted: no link is followed, no FIFO or device is opened.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use network::limits::{self, BodyLimit, SLOWEST};
use rustix::fs::{Access, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, XattrFlags};
use rustix::io::Errno;
use url::Url;

use crate::config::S3Config;
use crate::objects::Fault;
use crate::stored::{ListedObject, Object, Precondition, Requests, S3OpenError};
use crate::text::is_markdown;
use crate::tree::Hash;

/// The scheme of an endpoint that is a directory.
const SCHEME: &str = "file:";

/// The directory of files that are not whole yet. No key has this name.
const UNFINISHED: &str = "%new";

/// The file that a host locks while it replaces or removes an object. No key has this name.
const LOCK: &str = "%lock";

/// The kernel's lock belongs to the process: its threads exclude each other by this one.
static REPLACING: Mutex<()> = Mutex::new(());

/// When a file that is not whole is one of a writer that died.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// When the directory of a file was surely synced: before, a reader does it.
const SETTLED: Duration = Duration::from_secs(60);

/// Calls without an answer, beyond which a server of the directory is taken for dead.
const CALLS: usize = 256;

/// How long a listing may take.
const LISTING: Duration = Duration::from_secs(600);

/// Bytes of a key, as of S3.
const KEY_MAX: usize = 1024;

/// The extended attribute with the metadata of an object, a line `name=value` each, and its limit in bytes.
const METADATA: &str = "user.ctx.s3";
const METADATA_MAX: usize = 4096;

/// How often a name is tried whose directory another host removes.
const ATTEMPTS: usize = 8;

/// A directory as a bucket.
#[derive(Debug)]
pub(crate) struct Directory {
    folder: Arc<Folder>,
    timeout: Duration,
    pub(crate) requests: Requests,
}

/// The path of the bucket, and the calls that have not returned.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    calls: AtomicUsize,
}

/// Whether an endpoint is a directory.
pub fn is_directory(endpoint: &str) -> bool {
    endpoint.get(..SCHEME.len()).is_some_and(|start| start.eq_ignore_ascii_case(SCHEME))
}

impl Directory {
    /// The directory that the endpoint names; `None` for a server. Fails if it is not an absolute path.
    pub(crate) fn of(config: &S3Config) -> Result<Option<Self>, S3OpenError> {
        let endpoint = &config.endpoint;
        if !is_directory(endpoint) {
            return Ok(None);
        }
        // Otherwise, a part of the path would be a host, or a relative path an absolute one.
        let is_absolute = endpoint[SCHEME.len()..].starts_with("///");
        let url = Url::parse(endpoint).ok().filter(|_| is_absolute);
        let path = url.and_then(|url| url.to_file_path().ok());
        let path = path.ok_or_else(|| {
            let reason = format!("endpoint {endpoint:?} is not the path of a directory");
            S3OpenError::new(reason, "give an absolute path, such as file:///mnt/shared")
        })?;
        let name = encode(&config.bucket).map_err(|reason| {
            S3OpenError::new(format!("bucket {:?} cannot be a directory: {reason}", config.bucket), "name another one")
        })?;
        let folder = Folder { path: path.join(name), calls: AtomicUsize::new(0) };
        Ok(Some(Self { folder: Arc::new(folder), timeout: config.timeout, requests: Requests::default() }))
    }

    /// Calls the directory in a thread of its own, because a server of it may not answer for long.
    async fn call<T: Send + 'static>(
        &self,
        what: String,
        time: Duration,
        work: impl FnOnce(&Folder) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let folder = Arc::clone(&self.folder);
        if folder.calls.fetch_add(1, Ordering::Relaxed) >= CALLS {
            folder.calls.fetch_sub(1, Ordering::Relaxed);
            return Err(Fault::Unknown(format!("{what}: {CALLS} calls have no answer")));
        }
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let spawned = std::thread::Builder::new().name("s3-directory".to_owned()).spawn(move || {
            let folder = CallGuard(folder);
            // The caller may have gone.
            let _ = sender.send(work(&folder.0));
        });
        if let Err(error) = spawned {
            // The closure is gone, and its count with it only if it ran.
            self.folder.calls.fetch_sub(1, Ordering::Relaxed);
            return Err(Fault::Unknown(format!("{what}: starting a thread: {error}")));
        }
        let answered = tokio::time::timeout(time, receiver).await;
        let done = answered.map_err(|_| Fault::Unknown(format!("{what}: no answer within {} s", time.as_secs())))?;
        let done = done.map_err(|_| Fault::Unknown(format!("{what}: the call was aborted")))?;
        if !matches!(done, Err(Fault::Unknown(_))) {
            self.requests.answered();
        }
        done
    }

    fn time(&self, bytes: u64) -> Duration {
        self.timeout + Duration::from_secs(bytes / SLOWEST)
    }

    /// As `Bucket::write`.
    pub(crate) async fn write(
        &self,
        key: &str,
        body: Bytes,
        metadata: &[(&str, String)],
        precondition: Precondition<'_>,
    ) -> Result<bool, Fault> {
        self.requests.count("s3_put", 1);
        self.requests.count("s3_bytes_sent", body.len());
        let metadata: String = metadata.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let (key, time) = (key.to_owned(), self.time(body.len() as u64));
        let (is_new, etag) = match precondition {
            Precondition::None => (false, None),
            Precondition::Absent => (true, None),
            Precondition::Etag(etag) => (false, Some(etag.to_owned())),
        };
        self.call(format!("PUT {key}"), time, move |folder| match (is_new, etag) {
            (true, _) => folder.create(&key, &body, &metadata),
            (false, etag) => folder.replace(&key, &body, &metadata, etag.as_deref()),
        })
        .await
    }

    /// As `Bucket::get`.
    pub(crate) async fn get(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        limit: BodyLimit,
    ) -> Result<Option<Object>, Fault> {
        self.requests.count("s3_get", 1);
        let key = key.to_owned();
        let length = range.as_ref().map_or(limits::BLOB.bytes, |range| range.end.saturating_sub(range.start));
        let read =
            self.call(format!("GET {key}"), self.time(length), move |folder| folder.get(&key, range, limit)).await?;
        self.requests.count("s3_bytes_received", read.as_ref().map_or(0, |object| object.body.len()));
        Ok(read)
    }

    /// As `Bucket::list`.
    pub(crate) async fn list(&self, prefix: &str, most: usize) -> Result<Vec<ListedObject>, Fault> {
        self.requests.count("s3_list", 1);
        let prefix = prefix.to_owned();
        self.call(format!("LIST {prefix}"), LISTING, move |folder| folder.list(&prefix, most)).await
    }

    /// As `Bucket::delete`.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), Fault> {
        self.requests.count("s3_delete", 1);
        let key = key.to_owned();
        self.call(format!("DELETE {key}"), self.timeout, move |folder| folder.delete(&key)).await
    }

    /// As `Bucket::refusal`.
    pub(crate) async fn refusal(&self, key: &str) -> Result<Option<String>, Fault> {
        let key = key.to_owned();
        self.call(format!("the check of {key}"), self.timeout, move |folder| folder.refusal(&key)).await
    }

    /// Checks that there is a directory, and that objects can be created in it. Leaves nothing behind.
    pub(crate) async fn check(&self) -> Result<(), S3OpenError> {
        let checked = self.call("the check of the directory".to_owned(), self.timeout, |folder| Ok(folder.check()));
        let late = |fault: Fault| {
            let fix = "check that the server of the directory is running";
            S3OpenError::new(format!("{}: {fault}", self.folder.path.display()), fix)
        };
        checked.await.map_err(late)?
    }
}

/// A call; its end is counted, even if it panics.
struct CallGuard(Arc<Folder>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The name of a part of a key. `%` begins what a name cannot hold, and every name that no key has.
fn encode(part: &str) -> Result<String, String> {
    let name = match part {
        "" => "%".to_owned(),
        "." | ".." => part.replace('.', "%2E"),
        _ => part
            .chars()
            .flat_map(|c| {
                (if c == '%' || c.is_ascii_control() { format!("%{:02X}", c as u32) } else { c.to_string() })
                    .chars()
                    .collect::<Vec<_>>()
            })
            .collect(),
    };
    if name.len() <= 255 { Ok(name) } else { Err(format!("the name {part:?} is too long for a directory")) }
}

/// The part of a key that a name is of; `None` if it is of none.
fn decode(name: &[u8]) -> Option<String> {
    let name = str::from_utf8(name).ok()?;
    let part = match name {
        "%" => String::new(),
        _ => percent_encoding::percent_decode_str(name).decode_utf8().ok()?.into_owned(),
    };
    (encode(&part).as_deref() == Ok(name)).then_some(part)
}

/// The names of a key: those of its directories, and its own.
fn names(key: &str) -> Result<(Vec<String>, String), Fault> {
    let names: Result<Vec<String>, String> = key.split('/').map(encode).collect();
    let mut names = names.map_err(|reason| Fault::Refused(format!("{key}: {reason}")))?;
    // A split has at least one part.
    let name = names.pop().unwrap_or_default();
    Ok((names, name))
}

fn fault(what: &str, error: Errno) -> Fault {
    let text = std::io::Error::from(error);
    match error {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            Fault::Refused(format!("{what}: {text} (check the permissions of the directory and what is in it)"))
        }
        Errno::NAMETOOLONG => Fault::Refused(format!("{what}: {text}")),
        _ => Fault::Unknown(format!("{what}: {text}")),
    }
}

fn io_fault(what: &str, error: &std::io::Error) -> Fault {
    fault(what, Errno::from_io_error(error).unwrap_or(Errno::IO))
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// When a file was last written, in nanoseconds since 1970.
fn modified(stat: &Stat) -> i64 {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// The time between a file's last change and now, by the clock of this host.
fn distance(stat: &Stat) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let modified = Duration::from_nanos(u64::try_from(modified(stat)).unwrap_or(0));
    now.abs_diff(modified)
}

impl Folder {
    /// Opens the bucket. The path to it is the user's, and may lead over links.
    fn open(&self) -> Result<OwnedFd, Fault> {
        let what = self.path.display();
        rustix::fs::open(&self.path, DIRECTORY, Mode::empty()).map_err(|error| match error {
            // It may be on a file system that is mounted again later.
            Errno::NOENT => Fault::Unknown(format!("there is no directory {what}")),
            error => fault(&what.to_string(), error),
        })
    }

    /// Opens a directory below the bucket; `None` if there is none. With `make`, it is made.
    fn descend(&self, key: &str, names: &[String], make: bool) -> Result<Option<Vec<OwnedFd>>, Fault> {
        let mut path = vec![self.open()?];
        for name in names {
            let Some(at) = path.last() else { break };
            let mut opened = open_below(at.as_fd(), name);
            if make && matches!(opened, Err(Errno::NOENT)) {
                match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) => rustix::fs::fsync(at).map_err(|error| fault(key, error))?,
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(fault(key, error)),
                }
                opened = open_below(at.as_fd(), name);
            }
            match opened {
                Ok(next) => path.push(next),
                Err(Errno::NOENT) if !make => return Ok(None),
                Err(Errno::NOTDIR | Errno::LOOP) => match stat_of(key, at.as_fd(), name)
                    .map_err(|fault| if make { refused(fault) } else { fault })?
                {
                    Some(stat) if is_file(&stat) && !make => return Ok(None),
                    Some(stat) if is_file(&stat) => {
                        return Err(Fault::Unknown(format!("{key}: {name} is an object, and nothing can be below it")));
                    }
                    _ => return Err(Fault::Refused(format!("{key}: {name} is a link, and no directory"))),
                },
                Err(error) => return Err(fault(key, error)),
            }
        }
        Ok(Some(path))
    }

    /// Creates an object unless there is one.
    fn create(&self, key: &str, body: &[u8], metadata: &str) -> Result<bool, Fault> {
        let (parents, name) = names(key)?;
        let mut unfinished = None;
        for _ in 0..ATTEMPTS {
            let path = self.descend(key, &parents, true)?.unwrap_or_default();
            let Some(parent) = path.last() else { break };
            let exists = stat_of(key, parent.as_fd(), &name).map_err(refused)?.is_some();
            if !exists && unfinished.is_none() {
                unfinished = Some(self.prepare(key, body, metadata)?);
            }
            let created = match &unfinished {
                Some(unfinished) if !exists => unfinished.link(parent.as_fd(), &name),
                _ => Ok(false),
            };
            match created {
                Ok(created) => {
                    // Also before a reader that found it goes on.
                    rustix::fs::fsync(parent).map_err(|error| fault(key, error))?;
                    return Ok(created);
                }
                // Its directory was empty and has been removed.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(fault(key, error)),
            }
        }
        Err(Fault::Unknown(format!("{key}: another host removes its directory")))
    }

    /// Writes an object, whether there is one or not; with `etag`, only if there is one with that content.
    fn replace(&self, key: &str, body: &[u8], metadata: &str, etag: Option<&str>) -> Result<bool, Fault> {
        let (parents, name) = names(key)?;
        let unfinished = self.prepare(key, body, metadata)?;
        let _lock = self.lock(key)?;
        if let Some(etag) = etag {
            let there = self.get(key, None, limits::FOREIGN_OBJECT)?;
            if there.is_none_or(|there| Hash::of(&there.body).to_string() != etag) {
                return Ok(false);
            }
        }
        for _ in 0..ATTEMPTS {
            let path = self.descend(key, &parents, true)?.unwrap_or_default();
            let Some(parent) = path.last() else { break };
            match rustix::fs::renameat(&unfinished.parent, &unfinished.name, parent, &name) {
                Ok(()) => {
                    rustix::fs::fsync(parent).map_err(|error| fault(key, error))?;
                    return Ok(true);
                }
                Err(Errno::NOENT) => {}
                Err(error) => return Err(fault(key, error)),
            }
        }
        Err(Fault::Unknown(format!("{key}: another host removes its directory")))
    }

    /// Waits until no other host and no other thread replaces or removes an object. The kernel ends the lock of a process
    /// that dies; NFS sends the lock to its server.
    fn lock(&self, key: &str) -> Result<Lock, Fault> {
        let threads = REPLACING.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = self.open()?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&bucket, LOCK, flags | OFlags::CREATE | OFlags::EXCL, Mode::from_raw_mode(0o666));
        let file = match made {
            Ok(file) => {
                // Hosts may have several users, whatever the umask of the first. Who may enter the directory may lock.
                let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(0o666));
                Ok(file)
            }
            Err(Errno::EXIST) => rustix::fs::openat(&bucket, LOCK, flags, Mode::empty()),
            Err(error) => Err(error),
        };
        let place = self.path.join(LOCK);
        let place = place.display();
        let file = file.map_err(|error| match error {
            Errno::LOOP => Fault::Refused(format!("{key}: {place} is a link, and no lock (remove it)")),
            error => fault(&format!("{key}: opening {place}"), error),
        })?;
        let stat = rustix::fs::fstat(&file).map_err(|error| fault(key, error))?;
        if !is_file(&stat) {
            return Err(Fault::Refused(format!("{key}: {place} is no regular file, and no lock (remove it)")));
        }
        loop {
            match rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Lock { _file: file, _threads: threads }),
                Err(Errno::INTR) => {}
                Err(error @ (Errno::NOLCK | Errno::NOTSUP | Errno::NOSYS)) => {
                    let reason = std::io::Error::from(error);
                    let fix = "mount the file system with locks, or use --mirror off";
                    return Err(Fault::Refused(format!("{key}: {place} cannot be locked: {reason} ({fix})")));
                }
                Err(error) => return Err(fault(&format!("{key}: locking {place}"), error)),
            }
        }
    }

    /// Writes a file that has the name of no key, and syncs it.
    fn prepare(&self, key: &str, body: &[u8], metadata: &str) -> Result<UnfinishedFile, Fault> {
        let failed = |error| fault(key, error);
        let mut path = self.descend(key, &[UNFINISHED.to_owned()], true)?.unwrap_or_default();
        let parent = path.pop().ok_or_else(|| failed(Errno::NOENT))?;
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| Fault::Unknown(format!("{key}: {error}")))?;
        let name = format!("{:032x}", u128::from_le_bytes(random));
        let options = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, &name, options, Mode::from_raw_mode(0o666)).map_err(failed)?;
        let unfinished = UnfinishedFile { parent, name };
        let mut file = File::from(file);
        file.write_all(body).map_err(|error| io_fault(key, &error))?;
        if !metadata.is_empty() {
            match rustix::fs::fsetxattr(&file, METADATA, metadata.as_bytes(), XattrFlags::empty()) {
                // Its front matter says the same.
                Err(_) if is_markdown(key.as_bytes()) => {}
                Err(Errno::NOTSUP) => {
                    let reason = "the file system of the directory has no extended attributes";
                    return Err(Fault::Refused(format!("{key}: {reason} (use --mirror markdown)")));
                }
                set => set.map_err(failed)?,
            }
        }
        file.sync_all().map_err(|error| io_fault(key, &error))?;
        Ok(unfinished)
    }

    fn get(&self, key: &str, range: Option<Range<u64>>, limit: BodyLimit) -> Result<Option<Object>, Fault> {
        let (parents, name) = names(key)?;
        let Some(path) = self.descend(key, &parents, false)? else { return Ok(None) };
        let Some(parent) = path.last() else { return Ok(None) };
        // Asked first, because opening a device can have an effect.
        if stat_of(key, parent.as_fd(), &name)?.is_none() {
            return Ok(None);
        }
        let options = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(parent, &name, options, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => return Err(foreign(key, &name)),
            Err(error) => return Err(fault(key, error)),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| fault(key, error))?;
        if !is_file(&stat) {
            return Err(foreign(key, &name));
        }
        if distance(&stat) < SETTLED {
            rustix::fs::fsync(parent).map_err(|error| fault(key, error))?;
        }
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        let range = range.unwrap_or(0..length);
        let wanted = range.end.saturating_sub(range.start);
        if wanted > limit.bytes {
            let (kind, most) = (limit.kind, limit.bytes);
            return Err(Fault::Unreadable(format!("{key}: {kind} is longer than {most} bytes, the limit")));
        }
        if range.end > length {
            return Err(Fault::Unreadable(format!("{key} is truncated")));
        }
        let file = File::from(file);
        let mut body = Vec::with_capacity(wanted as usize);
        let mut part = PositionedReader { file: &file, position: range.start }.take(wanted);
        part.read_to_end(&mut body).map_err(|error| io_fault(key, &error))?;
        let is_part = wanted < length;
        let mut metadata = vec![0; METADATA_MAX];
        // It need not have any.
        let filled = rustix::fs::fgetxattr(&file, METADATA, &mut metadata[..]).unwrap_or(0);
        let metadata = str::from_utf8(&metadata[..filled]).unwrap_or_default().lines();
        let metadata = metadata.filter_map(|line| line.split_once('='));
        let metadata: BTreeMap<_, _> = metadata.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(Some(Object { body: body.into(), is_part, metadata, etag: None }))
    }

    fn list(&self, prefix: &str, most: usize) -> Result<Vec<ListedObject>, Fault> {
        let (directory, rest) = prefix.rsplit_once('/').map_or(("", prefix), |(directory, rest)| (directory, rest));
        let parents = match directory {
            "" => Vec::new(),
            directory => {
                let (mut names, last) = names(directory)?;
                names.push(last);
                names
            }
        };
        let mut listed = Vec::new();
        if let Some(path) = self.descend(prefix, &parents, false)?
            && let Some(start) = path.last()
        {
            let mut listing = Listing { prefix, rest, most, listed: &mut listed };
            listing.walk(start.as_fd(), "", KEY_MAX.saturating_sub(prefix.len()))?;
        }
        listed.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        Ok(listed)
    }

    fn delete(&self, key: &str) -> Result<(), Fault> {
        let (parents, name) = names(key)?;
        let Some(mut path) = self.descend(key, &parents, false)? else { return Ok(()) };
        let Some(parent) = path.last() else { return Ok(()) };
        let _lock = self.lock(key)?;
        match rustix::fs::unlinkat(parent, &name, AtFlags::empty()) {
            // No object has that key.
            Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
            Err(error) => return Err(fault(key, error)),
        }
        // An object may get the name of an empty directory.
        for name in parents.iter().rev() {
            path.pop();
            let Some(parent) = path.last() else { break };
            if rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Why this process cannot create an object beside `key`, which may exist. Creates nothing.
    fn refusal(&self, key: &str) -> Result<Option<String>, Fault> {
        let (parents, _) = names(key)?;
        for names in [&[UNFINISHED.to_owned()][..], &parents] {
            let path = self.descend(key, names, false)?;
            let Some(dir) = path.as_ref().and_then(|path| path.last()) else { continue };
            let found = rustix::fs::accessat(dir, c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty());
            if let Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) = found {
                let (place, reason) = (self.path.join(names.join("/")), std::io::Error::from(error));
                return Ok(Some(format!("{} cannot be written to: {reason}", place.display())));
            }
        }
        Ok(None)
    }

    fn check(&self) -> Result<(), S3OpenError> {
        let place = self.path.display();
        let text = |error: Errno| std::io::Error::from(error).to_string();
        if !self.path.is_dir() {
            let fix = format!("make it with `mkdir -p '{place}'`, or name another bucket with --bucket");
            return Err(S3OpenError::new(format!("there is no directory {place}"), &fix));
        }
        let failed = |reason: String| {
            let fix =
                "give this user the right to write there, on a file system with hard links and `fsync` of directories";
            S3OpenError::new(format!("no object can be created in {place}: {reason}"), fix)
        };
        let unfinished = self.prepare("a check", b"", "").map_err(|fault| failed(fault.to_string()))?;
        let other = UnfinishedFile {
            parent: unfinished.parent.try_clone().map_err(|error| failed(error.to_string()))?,
            name: format!("{}-link", unfinished.name),
        };
        let linked = unfinished.link(other.parent.as_fd(), &other.name);
        linked.and_then(|_| rustix::fs::fsync(&other.parent)).map_err(|error| failed(text(error)))?;
        self.remove_abandoned(unfinished.parent.as_fd());
        Ok(())
    }

    /// Removes files of writers that died. What cannot be removed stays.
    fn remove_abandoned(&self, unfinished: BorrowedFd<'_>) {
        let Ok(entries) = Dir::read_from(unfinished) else { return };
        for entry in entries.flatten() {
            let stat = rustix::fs::statat(unfinished, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
            if stat.is_ok_and(|stat| is_file(&stat) && distance(&stat) > ABANDONED) {
                let _ = rustix::fs::unlinkat(unfinished, entry.file_name(), AtFlags::empty());
            }
        }
    }
}

fn open_below(at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(at, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// The fault of a read of a link, FIFO or device in the place of an object: the object is damaged.
fn foreign(key: &str, name: &str) -> Fault {
    Fault::Unreadable(format!("{key}: {name} is a link, a FIFO or a device, and no object"))
}

/// The fault of a write in the place of one of a read.
fn refused(fault: Fault) -> Fault {
    match fault {
        Fault::Unreadable(reason) => Fault::Refused(format!("{reason} (remove it)")),
        fault => fault,
    }
}

/// The attributes of the object with that name; `None` if there is none. Fails for what is neither file nor directory.
fn stat_of(key: &str, at: BorrowedFd<'_>, name: &str) -> Result<Option<Stat>, Fault> {
    match rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some(stat)),
            FileType::Directory => Ok(None),
            _ => Err(foreign(key, name)),
        },
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(fault(key, error)),
    }
}

/// The right to replace and to remove objects. It ends with the file, which is closed before other threads go on.
struct Lock {
    _file: OwnedFd,
    _threads: MutexGuard<'static, ()>,
}

/// A whole file that has no key yet. It is removed at the end.
struct UnfinishedFile {
    parent: OwnedFd,
    name: String,
}

impl UnfinishedFile {
    /// Gives it a name; false if something has that name.
    fn link(&self, parent: BorrowedFd<'_>, name: &str) -> Result<bool, Errno> {
        match rustix::fs::linkat(&self.parent, &self.name, parent, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            // NFS may repeat a request whose answer was lost, and answer the second.
            Err(Errno::EXIST) => Ok(self.has_a_key()),
            // Not every file system has links.
            Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::MLINK) => {
                match rustix::fs::renameat_with(&self.parent, &self.name, parent, name, RenameFlags::NOREPLACE) {
                    Err(Errno::EXIST) => Ok(false),
                    renamed => renamed.map(|()| true),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Whether it has a second name.
    fn has_a_key(&self) -> bool {
        let stat = rustix::fs::statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| stat.st_nlink > 1)
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // It may have been renamed; what stays is removed a day later.
        let _ = rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::empty());
    }
}

/// A file from a position on, whose own position does not matter.
struct PositionedReader<'a> {
    file: &'a File,
    position: u64,
}

impl Read for PositionedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// A walk through a directory.
struct Listing<'a> {
    prefix: &'a str,
    /// The beginning of every key below the directory.
    rest: &'a str,
    /// How many objects there may be.
    most: usize,
    listed: &'a mut Vec<ListedObject>,
}

impl Listing<'_> {
    /// Adds the objects below a directory, whose own key is `key`, if they have at most `room` bytes more. Leaves out what
    /// is neither file nor directory, and what another program named.
    fn walk(&mut self, at: BorrowedFd<'_>, key: &str, room: usize) -> Result<(), Fault> {
        let prefix = self.prefix;
        let failed = |error| fault(&format!("LIST {prefix}"), error);
        let entries = Dir::read_from(at).map_err(failed)?;
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Some(part) = decode(name.to_bytes()).filter(|part| part.len() < room) else { continue };
            let key = format!("{key}{part}");
            if !key.starts_with(self.rest) {
                continue;
            }
            let stat = match rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(failed(error)),
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => self.add(&key, &stat)?,
                FileType::Directory => {
                    match rustix::fs::openat(at, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
                        Ok(next) => self.walk(next.as_fd(), &format!("{key}/"), room - part.len() - 1)?,
                        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                        Err(error) => return Err(failed(error)),
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, key: &str, stat: &Stat) -> Result<(), Fault> {
        let Some(key) = key.strip_prefix(self.rest) else { return Ok(()) };
        if self.listed.len() >= self.most {
            let (prefix, most) = (self.prefix, self.most);
            return Err(Fault::Unreadable(format!("LIST {prefix}: there are more than {most} objects")));
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.listed.push(ListedObject { key: key.to_owned(), size, modified: modified(stat) });
        Ok(())
    }
}
