//! A plain directory as a table: a row for each file below it, kept up to date by inotify.
//!
//! Changes that inotify does not report (by `mmap`, or by another host on a network file system) are seen within a
//! second. A symbolic link to a file or directory of the source is followed, one that leads out of it is not.

mod change;
mod json;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::Metadata;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fuse::store::{Errno, Result, StoreError};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use rusqlite::functions::FunctionFlags;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ToSql, params};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use super::sqlite::{Sqlite, TOO_LONG, Tables};
use super::{ExtraDirectory, FileChange, FileRow};
use crate::definition::SourceDefinition;
use change::{Files, UNFINISHED};

/// The `content` of a longer file is an error.
const CONTENT_MAX: u64 = 64 << 20;

/// How many directories a walk reads by following links: each link shows a whole directory once more.
const LINKED_MAX: usize = 1000;

/// How long a view relies on inotify before it walks the directory again.
const WALK_EVERY: Duration = Duration::from_secs(1);

/// `key` numbers the paths; it is not the inode number, which hard links share. `path` is relative, `dir` the path
/// without the name, `stem` the name before its last dot. `modified` is in seconds, `mode` has the permission bits. `json` is the content if it is
/// JSON. `reason` is why a file cannot be read.
const SCHEMA: &str = "
CREATE TABLE entry (
  key      INTEGER PRIMARY KEY,
  path     TEXT NOT NULL UNIQUE,
  dir      TEXT NOT NULL,
  name     TEXT NOT NULL,
  stem     TEXT NOT NULL,
  size     INTEGER NOT NULL,
  modified REAL NOT NULL,
  mode     INTEGER NOT NULL,
  content  TEXT,
  reason   TEXT,
  json     TEXT AS (CASE WHEN json_valid(content) THEN content END)
);
CREATE INDEX entry_name ON entry (dir, name);
CREATE INDEX entry_stem ON entry (dir, stem);
CREATE VIEW file AS SELECT
  key, path, dir, name, stem, size, modified, mode, CASE WHEN reason IS NULL THEN content ELSE unreadable(reason) END AS content, json
FROM entry;";

/// How old the last change of a file must be for the next change to get a different time.
const TICK: Duration = Duration::from_millis(20);

/// A path, or a part of it, as text that need not be UTF-8.
struct Bytes<'a>(&'a [u8]);

impl ToSql for Bytes<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

/// The metadata by which a walk detects a changed file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    ino: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self {
            ino: file.ino(),
            size: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }

    /// Whether a change after `looked` gives another stamp: the kernel's file times can be as coarse as its ticks.
    fn is_settled(&self, looked: SystemTime) -> bool {
        let since = looked.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, nanoseconds) = self.changed;
        let changed = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        changed + TICK.as_nanos() as i128 <= since.as_nanos() as i128
    }
}

/// A path's row.
struct PathRow {
    key: i64,
    /// `None` if the table does not have the present row.
    stamp: Option<Stamp>,
}

/// One result of a walk.
enum Step {
    Changed(File),
    /// The file with this key is gone.
    Gone(i64),
    /// The walk has ended.
    End(Result<()>),
}

/// A row of the table.
struct File {
    key: i64,
    /// Relative to the directory.
    path: PathBuf,
    size: u64,
    modified: f64,
    mode: u32,
    /// Or why it cannot be read.
    content: std::result::Result<Vec<u8>, String>,
}

/// The most queued steps: each can hold the content of a file.
const STEPS: usize = 4;

/// Walks the directory on its own thread, so that a hanging file system blocks no call.
struct Walker {
    root: PathBuf,
    also: Vec<ExtraDirectory>,
    notices: Arc<Inotify>,
    rows: HashMap<PathBuf, PathRow>,
    /// The key of the newest path.
    last_key: i64,
    steps: SyncSender<Step>,
}

/// The receiver of the walks' results, which keeps the table up to date.
struct Directory {
    root: PathBuf,
    notices: Arc<Inotify>,
    /// Requests a walk; true: one that reports all files again.
    asks: Sender<bool>,
    steps: Receiver<Step>,
    /// A requested walk has not ended.
    is_walking: bool,
    /// Whether a walk was ever requested. The first one is part of the mount, and has no deadline.
    has_walked: bool,
    /// The table misses results of walks: the next walk must report all files again.
    begins_anew: bool,
    /// Inotify has reported a change since the present walk began.
    has_passed: bool,
    walked: Option<Instant>,
    stale: Duration,
    timeout: Duration,
    files: Files,
}

/// The directory at `root` as a source. Waits for the first walk, however long that takes: no call waits yet. With
/// `may_write`, its files can be changed.
///
/// # Errors
/// Why it cannot be read, in words.
pub(super) fn open(
    root: &Path,
    also: Vec<ExtraDirectory>,
    definition: &SourceDefinition,
    may_write: bool,
) -> std::result::Result<Sqlite, String> {
    if let Some(missing) = also.iter().find(|it| !it.dir.is_dir()) {
        return Err(format!("{}: it is not a directory", missing.dir.display()));
    }
    let notices = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC);
    let notices = Arc::new(notices.map_err(|error| format!("inotify: {error}"))?);
    let (asks, asked) = channel();
    let (tells, steps) = sync_channel(STEPS);
    let mut walker = Walker {
        root: root.to_owned(),
        also: also.clone(),
        notices: Arc::clone(&notices),
        rows: HashMap::new(),
        last_key: 0,
        steps: tells,
    };
    let thread = std::thread::Builder::new().name("walk".to_owned());
    let walks = move || {
        // Until the view is gone.
        while let Ok(anew) = asked.recv()
            && let Ok(walked) = walker.walk(anew)
            && walker.tell(Step::End(walked)).is_ok()
        {}
    };
    thread.spawn(walks).map_err(|error| format!("a thread for walks: {error}"))?;
    let directory = Directory {
        root: root.to_owned(),
        notices,
        asks,
        steps,
        is_walking: false,
        has_walked: false,
        begins_anew: false,
        has_passed: false,
        walked: None,
        stale: definition.stale(),
        timeout: definition.timeout(),
        files: Files::new(root, also),
    };
    Sqlite::temporary(SCHEMA, Box::new(directory), may_write, definition.timeout())
}

/// The content of the file at a path without links, or why it cannot be read. `None` if it is gone, or a part of its path
/// has become a link, which could lead out of the source.
fn read(path: &Path, size: u64) -> Option<std::result::Result<Vec<u8>, String>> {
    let too_long = || format!("{TOO_LONG}a file of more than {} MiB", CONTENT_MAX >> 20);
    if size > CONTENT_MAX {
        return Some(Err(too_long()));
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let opened = opened.map_err(std::io::Error::from).map(std::fs::File::from);
    let mut content = Vec::new();
    match opened.and_then(|file| file.take(CONTENT_MAX + 1).read_to_end(&mut content)) {
        Ok(read) if read as u64 > CONTENT_MAX => Some(Err(too_long())),
        Ok(_) => Some(Ok(content)),
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
            _ => Some(Err(error.to_string())),
        },
    }
}

/// A directory that a walk reads.
struct Visit {
    /// Its path as the table has it.
    shown: PathBuf,
    /// Its path without links.
    real: PathBuf,
    /// Whether a link leads to it.
    is_linked: bool,
    /// The directory that links below it may not leave, without links.
    root: Arc<Path>,
}

/// The metadata and the path of what the link at `link` leads to; `None` if that is not below `root`, which is a path without
/// links, or is not there.
fn target(root: &Path, link: &Path) -> Option<(Metadata, PathBuf)> {
    let real = link.canonicalize().ok()?;
    real.strip_prefix(root).ok()?;
    let metadata = std::fs::symlink_metadata(&real).ok()?;
    Some((metadata, real))
}

/// The view has been unmounted.
struct Shutdown;

impl Walker {
    fn tell(&self, step: Step) -> std::result::Result<(), Shutdown> {
        self.steps.send(step).map_err(|_| Shutdown)
    }

    /// Walks, and reports the changes since the last walk; with `anew`, all files.
    fn walk(&mut self, anew: bool) -> std::result::Result<Result<()>, Shutdown> {
        if anew {
            // Paths keep their keys: the files' inode numbers stay when the source comes back.
            self.rows.values_mut().for_each(|row| row.stamp = None);
        }
        let mut seen = HashSet::new();
        let root = match self.root.canonicalize() {
            Ok(root) => root,
            Err(error) => return Ok(Err(away(&self.root, error))),
        };
        let top: Arc<Path> = root.as_path().into();
        let mut dirs =
            VecDeque::from([Visit { shown: self.root.clone(), real: root.clone(), is_linked: false, root: top }]);
        for also in &self.also {
            // One that is away for now shows no files.
            if let Ok(real) = also.dir.canonicalize() {
                let (shown, root) = (self.root.join(&also.name), real.as_path().into());
                dirs.push_back(Visit { shown, real, is_linked: false, root });
            }
        }
        let mut linked = 0;
        while let Some(visit) = dirs.pop_back() {
            let dir = &visit.real;
            if visit.is_linked {
                linked += 1;
                if linked > LINKED_MAX {
                    tracing::warn!(dir = %visit.shown.display(), "links lead to more than {LINKED_MAX} directories; some are not shown");
                    break;
                }
            }
            let flags = AddWatchFlags::IN_MODIFY
                | AddWatchFlags::IN_ATTRIB
                | AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_DELETE
                | AddWatchFlags::IN_MOVE
                | AddWatchFlags::IN_DELETE_SELF
                | AddWatchFlags::IN_MOVE_SELF;
            // Watch the directory before reading it, to be notified of changes in between. If the watch fails, the walk
            // each second finds them.
            if let Err(error) = self.notices.add_watch(dir, flags) {
                tracing::debug!(dir = %dir.display(), %error, "watching a directory");
            }
            let entries = match std::fs::read_dir(dir) {
                Ok(entries) => entries,
                Err(error) if *dir != root && error.kind() == ErrorKind::NotFound => continue,
                Err(error) if *dir != root && error.kind() == ErrorKind::PermissionDenied => {
                    tracing::warn!(dir = %dir.display(), %error, "some files of a directory are not shown");
                    continue;
                }
                Err(error) => return Ok(Err(away(dir, error))),
            };
            for entry in entries {
                if let Ok(entry) = &entry
                    && entry.file_name().as_bytes().starts_with(UNFINISHED)
                {
                    continue;
                }
                let looked = SystemTime::now();
                let found = entry.and_then(|entry| Ok((entry.metadata()?, entry)));
                let (file, entry) = match found {
                    Ok(found) => found,
                    // The next notice reports the entry that is gone by now.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(error) => return Ok(Err(away(dir, error))),
                };
                let (path, real) = (visit.shown.join(entry.file_name()), entry.path());
                let is_link = file.is_symlink();
                let (file, real) = if is_link {
                    match target(&visit.root, &real) {
                        Some(found) => found,
                        None => continue,
                    }
                } else {
                    (file, real)
                };
                if file.is_dir() {
                    if self.also.iter().any(|also| path == self.root.join(&also.name)) {
                        continue;
                    }
                    // A link to a directory above would show itself, and links below links could multiply without end.
                    if is_link && (visit.is_linked || dir.starts_with(&real)) {
                        continue;
                    }
                    let is_linked = visit.is_linked || is_link;
                    let next = Visit { shown: path, real, is_linked, root: Arc::clone(&visit.root) };
                    if next.is_linked {
                        // The source's own directories first: no number of links hides them.
                        dirs.push_front(next)
                    } else {
                        dirs.push_back(next)
                    }
                } else if file.is_file() && self.take((&path, &real), &file, looked)? {
                    seen.insert(path);
                }
            }
        }
        let gone: Vec<PathBuf> = (self.rows.keys().filter(|path| !seen.contains(*path))).cloned().collect();
        for path in gone {
            if let Some(row) = self.rows.remove(&path) {
                self.tell(Step::Gone(row.key))?;
            }
        }
        Ok(Ok(()))
    }

    /// Reports a file if it has changed: its path in the table, and the one without links. `looked` is a time before its
    /// metadata was read. False if it is gone.
    fn take(
        &mut self,
        (path, real): (&Path, &Path),
        file: &Metadata,
        looked: SystemTime,
    ) -> std::result::Result<bool, Shutdown> {
        let stamp = Stamp::of(file);
        let row = self.rows.entry(path.to_owned()).or_insert_with(|| {
            self.last_key += 1;
            PathRow { key: self.last_key, stamp: None }
        });
        if row.stamp.as_ref() == Some(&stamp) {
            return Ok(true);
        }
        let Some(content) = read(real, file.len()) else {
            return Ok(false);
        };
        // The next walk tries an unreadable file again.
        let is_known = content.is_ok() && stamp.is_settled(looked);
        row.stamp = is_known.then_some(stamp);
        let key = row.key;
        self.tell(Step::Changed(File {
            key,
            path: path.strip_prefix(&self.root).unwrap_or(path).to_owned(),
            size: file.len(),
            modified: file.mtime() as f64 + file.mtime_nsec() as f64 / 1e9,
            mode: file.mode() & 0o7777,
            content,
        }))?;
        Ok(true)
    }
}

fn away(path: &Path, error: impl std::fmt::Display) -> StoreError {
    StoreError::storage(Errno::IO, format!("the source {}: {error}", path.display()))
}

impl Directory {
    /// Whether inotify has reported any change since the last call.
    fn has_changed(&self) -> bool {
        let mut any = false;
        // An error means that there is nothing to read, or that the kernel cannot tell: the next walk finds out.
        while let Ok(events) = self.notices.read_events() {
            any = any || !events.is_empty();
        }
        any
    }

    /// Takes the steps of the present walk until it ends. Steps after the `deadline` are left to the next call.
    fn take_steps(&mut self, connection: &Connection, deadline: Option<Instant>) -> Result<()> {
        while self.is_walking {
            let told = match deadline {
                None => self.steps.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(deadline) => match deadline.saturating_duration_since(Instant::now()) {
                    Duration::ZERO => Err(RecvTimeoutError::Timeout),
                    left => self.steps.recv_timeout(left),
                },
            };
            let step = told.map_err(|error| {
                let limit = self.timeout.as_millis();
                let reason = match error {
                    RecvTimeoutError::Timeout => {
                        format!("reading it took longer than {limit} ms (`timeout_ms`)")
                    }
                    RecvTimeoutError::Disconnected => "the thread that reads it ended".to_owned(),
                };
                away(&self.root, reason)
            })?;
            let taken = match step {
                Step::Changed(file) => insert(connection, file).map_err(StoreError::from),
                Step::Gone(key) => delete(connection, key).map_err(StoreError::from),
                Step::End(walked) => {
                    self.is_walking = false;
                    walked
                }
            };
            self.begins_anew |= taken.is_err();
            taken?;
        }
        Ok(())
    }

    /// Walks the directory, after the end of a walk that an earlier call began. That walk is enough if inotify has
    /// reported no change since it began: it watches each directory before it reads it.
    fn walk(&mut self, connection: &Connection, deadline: Option<Instant>) -> Result<()> {
        let was_walking = self.is_walking;
        let before = self.take_steps(connection, deadline);
        self.has_passed |= self.has_changed();
        if self.is_walking {
            return before;
        }
        let has_passed = std::mem::take(&mut self.has_passed);
        if was_walking && before.is_ok() && !has_passed && !self.begins_anew {
            return Ok(());
        }
        let anew = std::mem::take(&mut self.begins_anew);
        if anew {
            // Rows of files that are gone by now would stay.
            connection.execute("DELETE FROM entry", ())?;
        }
        // An error means that the thread has ended: taking its steps says so.
        let _ = self.asks.send(anew);
        self.is_walking = true;
        self.take_steps(connection, deadline)
    }
}

fn delete(connection: &Connection, key: i64) -> rusqlite::Result<()> {
    let mut delete = connection.prepare_cached("DELETE FROM entry WHERE key = ?1")?;
    delete.execute([key]).map(|_| ())
}

/// Replaces the row of a file by its current state.
fn insert(connection: &Connection, file: File) -> rusqlite::Result<()> {
    // The bytes themselves: two names that are not UTF-8 may be equal in any other form.
    let dir = file.path.parent().unwrap_or(Path::new(""));
    let name = file.path.file_name().unwrap_or_default().as_bytes();
    let stem = &name[..name.iter().rposition(|byte| *byte == b'.').unwrap_or(name.len())];
    let mut insert =
        connection.prepare_cached("INSERT OR REPLACE INTO entry VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?;
    let (content, reason) = match file.content.map(String::from_utf8) {
        Ok(Ok(text)) => (Value::Text(text), None),
        Ok(Err(error)) => (Value::Blob(error.into_bytes()), None),
        Err(reason) => {
            // The kind of the error stays before the file.
            let (kind, why) = match reason.strip_prefix(TOO_LONG) {
                Some(why) => (TOO_LONG, why),
                None => ("", reason.as_str()),
            };
            let reason = format!("{kind}{}: {why}", file.path.display());
            (Value::Null, Some(reason))
        }
    };
    insert.execute(params![
        file.key,
        Bytes(file.path.as_os_str().as_bytes()),
        Bytes(dir.as_os_str().as_bytes()),
        Bytes(name),
        Bytes(stem),
        file.size as i64,
        file.modified,
        file.mode,
        content,
        reason,
    ])?;
    Ok(())
}

/// Adds the function that the SQL view calls for a file that cannot be read.
fn add_functions(connection: &Connection) -> rusqlite::Result<()> {
    // Innocuous: a view that SQLite does not trust may call it.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("unreadable", 1, flags, |asked| {
        let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
        let reason = asked.get(0)?;
        Err::<Value, _>(rusqlite::Error::SqliteFailure(failure, Some(reason)))
    })?;
    let flags = flags | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("json_put", 3, flags, |asked| {
        let text = |at: usize| asked.get_raw(at).as_str().ok();
        let (object, key, value) = (text(0), text(1), text(2));
        Ok(object.zip(key).zip(value).and_then(|((object, key), value)| json::put(object, key, value)))
    })
}

impl Tables for Directory {
    fn add_functions(&self, connection: &Connection) -> rusqlite::Result<()> {
        add_functions(connection)
    }

    fn refresh(&mut self, connection: &Connection, deadline: Instant) -> Result<()> {
        let age = self.walked.map(|at| at.elapsed());
        if age.is_some_and(|age| age < self.stale) {
            return Ok(());
        }
        self.has_passed |= self.has_changed();
        if !self.has_passed && age.is_some_and(|age| age < WALK_EVERY) {
            return Ok(());
        }
        // The events are consumed: only a walk can find those changes now.
        self.walked = None;
        let is_first = !std::mem::replace(&mut self.has_walked, true);
        connection.execute_batch("BEGIN")?;
        let walked = self.walk(connection, (!is_first).then_some(deadline));
        // Commit also a part of a walk: the next call continues it.
        let committed = connection.execute_batch("COMMIT");
        self.begins_anew |= committed.is_err();
        walked?;
        committed?;
        self.walked = Some(Instant::now());
        Ok(())
    }

    fn change_file(&mut self, change: FileChange, rows: &[FileRow], sync: bool) -> Result<Option<PathBuf>> {
        // Also a failed change may have been seen by a walk.
        self.has_passed = true;
        self.walked = None;
        self.files.change(change, rows, sync)
    }

    fn sync_names(&mut self) -> Result<()> {
        self.files.sync()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::super::Source;
    use super::*;
    use crate::definition::{ViewDefinition, find};

    #[test]
    fn contents_of_many_files_are_in_a_temporary_file_and_not_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..64 {
            let content = number.to_string().repeat(1 << 20);
            std::fs::write(dir.path().join(number.to_string()), content).unwrap();
        }
        let (file, text) = find("vsm").unwrap();
        let definition = ViewDefinition::parse(&file, &text).unwrap();
        let mut source = open(dir.path(), Vec::new(), &definition.source, false).unwrap();
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        // SQLite removes the name at once.
        let temporary = open
            .map(|it| it.unwrap().path())
            .filter(|path| std::fs::read_link(path).is_ok_and(|it| it.to_string_lossy().ends_with(" (deleted)")));
        let sizes = temporary.filter_map(|path| Some(std::fs::metadata(path).ok()?.len()));
        assert!(sizes.max().is_some_and(|most| most > 64 << 20));
        let sum = "SELECT sum(octet_length(content)) FROM file";
        let mut read = Vec::new();
        let mut each = |row| {
            read.push(row);
            ControlFlow::Continue(())
        };
        source.query(sum, &[], &mut each).unwrap();
        assert_eq!(read, [[Some((118 << 20).to_string().into_bytes())]]);
    }

    #[test]
    fn a_file_that_changed_just_before_the_look_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one");
        std::fs::write(&path, "1").unwrap();
        let (steps, told) = sync_channel(STEPS);
        let mut walker = Walker {
            root: dir.path().to_owned(),
            also: Vec::new(),
            notices: Arc::new(Inotify::init(InitFlags::IN_NONBLOCK).unwrap()),
            rows: HashMap::new(),
            last_key: 0,
            steps,
        };
        // Simulates a kernel with coarse times: a write after the read of the metadata has the same stamp.
        let metadata = std::fs::metadata(&path).unwrap();
        let changed = metadata.modified().unwrap();
        let mut look = |after: u64| {
            let looked = changed + Duration::from_millis(after);
            assert!(walker.take((&path, &path), &metadata, looked).is_ok());
            match told.try_recv() {
                Ok(Step::Changed(file)) => Some(file.content.unwrap()),
                _ => None,
            }
        };
        assert_eq!(look(19).unwrap(), b"1");
        std::fs::write(&path, "2").unwrap();
        assert_eq!(look(21).unwrap(), b"2");
        assert_eq!(look(40), None);
    }

    #[test]
    fn a_walk_that_hangs_fails_each_call_in_time_and_goes_on_when_it_can() {
        let timeout = Duration::from_millis(100);
        let (asks, asked) = channel();
        let (tells, steps) = sync_channel(STEPS);
        let notices = Arc::new(Inotify::init(InitFlags::IN_NONBLOCK).unwrap());
        let mut directory = Directory {
            root: PathBuf::from("/source"),
            notices: Arc::clone(&notices),
            asks,
            steps,
            is_walking: false,
            has_walked: true,
            begins_anew: false,
            has_passed: false,
            walked: None,
            stale: Duration::ZERO,
            timeout,
            files: Files::new(Path::new("/source"), Vec::new()),
        };
        let connection = Connection::open_in_memory().unwrap();
        add_functions(&connection).unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        let mut refresh = |timeout: Duration| directory.refresh(&connection, Instant::now() + timeout);
        for _ in 0..2 {
            let began = Instant::now();
            let failed = refresh(timeout).unwrap_err();
            assert_eq!(failed.errno, Errno::IO);
            let reason = failed.reason.unwrap();
            assert!(reason.contains("/source") && reason.contains("100 ms"), "{reason}");
            assert!(began.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(asked.try_iter().count(), 1, "one walk hangs");
        let file = File {
            key: 1,
            path: PathBuf::from("state/one"),
            size: 3,
            modified: 0.0,
            mode: 0o644,
            content: Ok(b"one".to_vec()),
        };
        tells.send(Step::Changed(file)).unwrap();
        tells.send(Step::End(Ok(()))).unwrap();
        let watched = tempfile::tempdir().unwrap();
        notices.add_watch(watched.path(), AddWatchFlags::IN_CREATE).unwrap();
        std::fs::write(watched.path().join("new"), "").unwrap();
        assert!(refresh(timeout).is_err(), "the walk that ended may have passed it");
        assert_eq!(asked.try_iter().collect::<Vec<_>>(), [false]);
        tells.send(Step::End(Ok(()))).unwrap();
        refresh(Duration::from_secs(60)).unwrap();
        assert_eq!(asked.try_iter().count(), 0, "nothing changed since it began");
        let count = "SELECT count(*) FROM file WHERE content = 'one'";
        let count: i64 = connection.query_row(count, (), |row| row.get(0)).unwrap();
        assert_eq!(count, 1);
    }
}
