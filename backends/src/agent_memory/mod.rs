//! An agent's memory: the file system of [`crate::sqlite`] with an index of its notes (`docs/MEMORY.md`).
//!
//! Names such as `:search?RSI` and `note.md:meta` are requests, which no listing shows; a lookup answers them.
//! The index is derived: the transaction of a change marks the note, and `close` and every request index the
//! marked notes, also after a crash. FUSE is in [`crate::fuse`].

mod answers;
mod describe;
mod embedder;
mod files;
mod index;
mod meaning;
mod merging;
mod metadata;
mod passage;
mod paths;
mod recall;
mod request;
mod search;
mod vectors;
mod words;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sqlite::db::Db;
use crate::sqlite::{HEAD, OpenError, SqliteStore, content};
use crate::store::{
    Attr, Caller, Errno, Ino, Kind, NewNode, ROOT, Result, Store, StoreError, Timestamp,
};
use answers::{Answer, Answers};
use describe::Stats;
pub use embedder::{Embedder, EmbeddingState, Embeddings};
use embeddings::Model;
use meaning::{Meaning, Meant};
use merging::Merger;
use passage::{one_line, shown_name};
use paths::{Places, Privacy, Scope};
pub use request::Strategy;
use request::{Query, Request, check_query};

/// The source of the current time; tests set their own.
type Clock = Box<dyn Fn() -> Timestamp + Send + Sync>;

/// Why a request has no answer.
#[derive(Debug)]
enum Failure {
    /// The request is invalid; the text says why.
    Asked(String),
    /// The store failed.
    Storage(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Storage(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Storage(error.into())
    }
}

/// The day in UTC, as in `2026-11-22`.
fn date(at: Timestamp) -> String {
    format_time(at, "%Y-%m-%d")
}

/// The second in UTC, as in `2026-11-22T10:05:00Z`.
fn moment(at: Timestamp) -> String {
    format_time(at, "%Y-%m-%dT%H:%M:%SZ")
}

fn format_time(at: Timestamp, format: &str) -> String {
    // jiff covers the range of every `Timestamp`.
    jiff::Timestamp::from_nanosecond(at.0.into())
        .map(|time| time.strftime(format).to_string())
        .unwrap_or_default()
}

/// An agent's memory in one SQLite database.
pub struct AgentMemory {
    // The first field: its thread stops before the other fields are dropped.
    meaning: Option<Meaning>,
    /// Why `meaning` is `None`.
    no_meaning: String,
    merger: Option<Merger>,
    files: Arc<SqliteStore>,
    agent: Option<String>,
    owner: Caller,
    privacy: Option<Privacy>,
    places: Places,
    answers: Answers,
    clock: Clock,
    /// Locked by the thread that updates the index; requests wait for it. Holds the inodes that are still to
    /// do.
    refreshing: Mutex<Vec<i64>>,
    /// Whether there may be marked notes that are not indexed.
    is_stale: AtomicBool,
    /// When the next note expires, in nanoseconds since 1970.
    next_expiry: AtomicI64,
    notes: AtomicI64,
    /// Counts changes that may invalidate an answer.
    changes: Arc<AtomicU64>,
    last_error: Mutex<Option<String>>,
    tally: Tally,
}

/// Counters of the store's own work.
#[derive(Debug, Default)]
struct Tally {
    indexed: AtomicU64,
    searches: AtomicU64,
    recalls: AtomicU64,
    refused: AtomicU64,
}

impl AgentMemory {
    /// Opens the memory in the database at `path`, or creates one whose root belongs to `owner`. Opening a
    /// database of the `sqlite` backend turns it into a memory.
    ///
    /// With an `agent`, this creates `/memory/private/<agent>` and `/memory/shared`. Lookups, listings and
    /// answers then hide the private directories of other agents.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        path: &Path,
        owner: &Caller,
        agent: Option<&str>,
    ) -> std::result::Result<Self, OpenError> {
        Self::open_at(path, owner, agent, Box::new(Timestamp::now))
    }

    /// As [`AgentMemory::open`], with `clock` in place of the machine's clock. It decides recency and expiry.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_at(
        path: &Path,
        owner: &Caller,
        agent: Option<&str>,
        clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> std::result::Result<Self, OpenError> {
        let files = SqliteStore::open_committing(path, owner)?;
        let unreadable = |error: StoreError| OpenError::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let notes = files
            .transaction(|db| {
                index::prepare(db)?;
                index::count(db)
            })
            .map_err(unreadable)?;
        let files = Arc::new(files);
        let mut memory = Self {
            meaning: None,
            no_meaning: "embeddings are not asked for".to_owned(),
            merger: None,
            files,
            agent: agent.map(str::to_owned),
            owner: *owner,
            privacy: None,
            places: Places::default(),
            answers: Answers::default(),
            clock,
            refreshing: Mutex::default(),
            is_stale: AtomicBool::new(true),
            next_expiry: AtomicI64::new(i64::MAX),
            notes: AtomicI64::new(notes as i64),
            changes: Arc::default(),
            last_error: Mutex::default(),
            tally: Tally::default(),
        };
        if let Some(agent) = agent {
            memory.privacy = Some(memory.make_namespaces(agent).map_err(unreadable)?);
        }
        // Notes marked now were written by another backend, or by a mount that ended before it indexed them.
        memory.refresh_as(None).map_err(unreadable)?;
        let merger = Merger::start(Arc::clone(&memory.files));
        memory.merger = Some(merger.map_err(|error| OpenError::Unreadable {
            path: path.to_owned(),
            reason: format!("starting the thread that merges the index: {error}"),
        })?);
        Ok(memory)
    }

    /// The shared and private directories, created if they are missing.
    fn make_namespaces(&self, agent: &str) -> Result<Privacy> {
        let directory = |parent: Ino, name: &str| {
            let found = match self.files.lookup(parent, name.as_bytes()) {
                Err(error) if error.errno == Errno::NOENT => {
                    let node = NewNode {
                        kind: Kind::Directory,
                        permissions: 0o755,
                        rdev: 0,
                        target: b"",
                    };
                    self.files
                        .create(&self.owner, parent, name.as_bytes(), &node)?
                }
                found => found?,
            };
            if found.kind != Kind::Directory {
                let reason = format!("{name} is no directory, but namespaces need it as one");
                return Err(StoreError::storage(Errno::NOTDIR, reason));
            }
            Ok(found.ino)
        };
        let memory = directory(ROOT, "memory")?;
        let all = directory(memory, "private")?;
        Ok(Privacy {
            memory,
            all,
            shared: directory(memory, "shared")?,
            own: directory(all, agent)?,
        })
    }

    /// Switches relevance by meaning on or off. The model loads in the background; until then recalls use
    /// full text alone.
    ///
    /// # Errors
    /// If the model's small files are missing or invalid, or no thread can be started.
    /// [`AgentMemory::embeddings`] and `:stats` report an error in its weights later.
    pub fn set_embeddings(&mut self, wanted: Embeddings) -> std::result::Result<(), String> {
        self.meaning = None;
        match wanted {
            Embeddings::Off { reason } => {
                self.no_meaning = reason;
                self.changes.fetch_add(1, Ordering::AcqRel);
            }
            Embeddings::In(dir) => {
                embeddings::Config::read(&dir).map_err(|error| error.to_string())?;
                self.set_embedder(move || {
                    let model = Model::load(&dir).map_err(|error| error.to_string())?;
                    Ok(Arc::new(model))
                })?;
            }
        }
        Ok(())
    }

    /// As [`AgentMemory::set_embeddings`], with the model that `load` returns, in the background.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn set_embedder(
        &mut self,
        load: impl FnOnce() -> std::result::Result<Arc<dyn Embedder>, String> + Send + 'static,
    ) -> std::result::Result<(), String> {
        self.meaning = None;
        let (files, changes) = (Arc::clone(&self.files), Arc::clone(&self.changes));
        let started = Meaning::start(load, files, changes);
        self.meaning = Some(started.map_err(|error| format!("starting a thread: {error}"))?);
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The state of embedding.
    pub fn embeddings(&self) -> EmbeddingState {
        match &self.meaning {
            Some(meaning) => meaning.state(),
            None => EmbeddingState::Off(self.no_meaning.clone()),
        }
    }

    /// The number of notes, those of other agents included.
    pub fn notes(&self) -> u64 {
        u64::try_from(self.notes.load(Ordering::Acquire)).unwrap_or(0)
    }

    fn last_error(&self) -> MutexGuard<'_, Option<String>> {
        self.last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Indexes changed notes, and drops expired notes from the index.
    fn refresh(&self) -> Result<()> {
        self.refresh_as(Some(self.agent.as_deref().unwrap_or_default()))
    }

    /// As [`AgentMemory::refresh`]; `agent` is the author of changes made just now, or `None` if it is unknown.
    fn refresh_as(&self, agent: Option<&str>) -> Result<()> {
        let mut turn = self
            .refreshing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut total = 0;
        loop {
            let now = (self.clock)();
            let has_expired = now.0 >= self.next_expiry.load(Ordering::Acquire);
            // Reset it before the refresh: a change meanwhile sets it again.
            if !self.is_stale.swap(false, Ordering::AcqRel) && !has_expired {
                break;
            }
            let db = self.files.db();
            let refreshed =
                db.transaction(|db| index::refresh(db, &self.places, agent, now, &mut turn));
            if let (Ok(done), Some(meaning)) = (&refreshed, &self.meaning) {
                meaning.take_up(done);
            }
            drop(db);
            let done = refreshed.inspect_err(|_| {
                turn.clear();
                self.is_stale.store(true, Ordering::Release);
            })?;
            self.notes.fetch_add(done.notes, Ordering::AcqRel);
            let next = done.next_expiry.map_or(i64::MAX, |at| at.0);
            self.next_expiry.store(next, Ordering::Release);
            if has_expired || done.looked_at > 0 {
                self.changes.fetch_add(1, Ordering::AcqRel);
            }
            if done.has_more {
                self.is_stale.store(true, Ordering::Release);
            }
            let before = total;
            total += done.looked_at;
            if total / 10_000 > before / 10_000 {
                tracing::warn!("indexing notes: {total} so far");
            }
        }
        if total > 0
            && let Some(merger) = &self.merger
        {
            merger.wake();
        }
        let indexed = &self.tally.indexed;
        indexed.fetch_add(total as u64, Ordering::Relaxed);
        Ok(())
    }

    /// After a successful change, requires a refresh of the index and invalidates all answers.
    fn changed<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_ok() {
            self.is_stale.store(true, Ordering::Release);
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        result
    }

    /// Records for `:stats` why a call is refused, and returns its error.
    fn refuse(&self, errno: Errno, what: &[u8], reason: &str) -> StoreError {
        let shown = shown_name(&what[..what.len().min(255)]);
        let said = format!("{} {shown}: {}", moment((self.clock)()), one_line(reason));
        *self.last_error() = Some(said);
        self.tally.refused.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::AcqRel);
        StoreError::storage(errno, reason)
    }

    /// The scope of a request in the directory `dir`.
    fn scope(&self, db: &Db, dir: Ino) -> Result<Scope> {
        Ok(Scope {
            dir,
            place: self.places.of(db, dir)?,
            privacy: self.privacy,
        })
    }

    /// The answer to a name; `None` if the name is no request.
    fn answer(&self, dir: Ino, name: &[u8]) -> Result<Option<Attr>> {
        let is_request = request::is_reserved(name);
        let aspect = request::aspect(name);
        if !is_request && aspect.is_none() {
            return Ok(None);
        }
        self.refresh()?;
        let now = (self.clock)();
        // Read it before the query: a change meanwhile makes this answer outdated.
        let changes = self.changes.load(Ordering::Acquire);
        if let Some(answer) = self.answers.standing(dir, name, changes, now) {
            return Ok(Some(self.answer_attr(&answer)));
        }
        let text = if is_request {
            match self.respond(dir, name, now) {
                Ok(text) => text,
                Err(Failure::Asked(reason)) => {
                    return Err(self.refuse(Errno::INVAL, name, &reason));
                }
                Err(Failure::Storage(error)) => return Err(error),
            }
        } else if let Some((file, aspect)) = aspect {
            let attr = match self.lookup_file(dir, file) {
                Ok(attr) if attr.kind == Kind::File => attr,
                _ => return Ok(None),
            };
            let db = self.files.db();
            // The caller sees the file, but its history may lead through any directory.
            let scope = self.scope(&db, ROOT)?;
            describe::aspect(&db, &self.places, &scope, &attr, aspect, now)?.into_bytes()
        } else {
            return Ok(None);
        };
        let answer = self.answers.keep(dir, name, text, changes, now);
        Ok(Some(self.answer_attr(&answer)))
    }

    fn respond(
        &self,
        dir: Ino,
        name: &[u8],
        now: Timestamp,
    ) -> std::result::Result<Vec<u8>, Failure> {
        let request = request::parse(name).map_err(Failure::Asked)?;
        let query_of = |query: Query| match query {
            Query::Here(text) => Ok(text),
            Query::InFile(file) => self.read_query(dir, &file),
        };
        let text = match request {
            Request::Search { query, lines } => {
                let query = query_of(query)?;
                self.tally.searches.fetch_add(1, Ordering::Relaxed);
                self.files.db().reading(|db| {
                    let scope = self.scope(db, dir)?;
                    search::answer(db, &self.places, &scope, &query, lines, self.notes())
                })?
            }
            Request::Recall {
                query,
                max_tokens,
                strategy,
            } => {
                let query = query_of(query)?;
                self.tally.recalls.fetch_add(1, Ordering::Relaxed);
                // Embed the question before locking the database: it takes milliseconds.
                let meant = match &self.meaning {
                    Some(meaning) => meaning.ask(&query),
                    None => Meant::by_text(None),
                };
                let asked = recall::Asked {
                    query: &query,
                    max_tokens,
                    strategy,
                    now,
                    notes: self.notes(),
                    meant: &meant,
                };
                self.files.db().reading(|db| {
                    let scope = self.scope(db, dir)?;
                    recall::answer(db, &self.places, &scope, &asked)
                })?
            }
            Request::Stats => {
                let stats = Stats {
                    agent: self.agent.as_deref(),
                    notes: self.notes(),
                    last_error: self.last_error().clone(),
                    embeddings: self.embeddings(),
                };
                let db = self.files.db();
                describe::stats(&db, &self.scope(&db, dir)?, &stats)?
            }
            Request::Meta => {
                let db = self.files.db();
                describe::meta(&db, &self.scope(&db, dir)?)?
            }
            Request::Tags => {
                let db = self.files.db();
                describe::tags(&db, &self.places, &self.scope(&db, dir)?)?
            }
            Request::Ttl { only_expired: true } => {
                let db = self.files.db();
                let scope = self.scope(&db, dir)?;
                return Ok(describe::expired(&db, &self.places, &scope, now)?);
            }
            Request::Ttl {
                only_expired: false,
            } => {
                let db = self.files.db();
                describe::ttl(&db, &self.places, &self.scope(&db, dir)?, now)?
            }
            Request::History => {
                let db = self.files.db();
                describe::history(&db, &self.places, &self.scope(&db, dir)?)?
            }
        };
        Ok(text.into_bytes())
    }

    /// Reads a query from a file, for queries that are too long for a name.
    fn read_query(&self, dir: Ino, file: &str) -> std::result::Result<String, Failure> {
        let attr = self
            .lookup_file(dir, file.as_bytes())
            .map_err(|error| Failure::Asked(format!("the query's file {file:?}: {error}")))?;
        if attr.kind != Kind::File {
            return Err(Failure::Asked(format!("{file:?} is no file")));
        }
        if attr.size > request::QUERY_MAX as u64 {
            return Err(Failure::Asked(format!(
                "the query in {file:?} has {} bytes; {} is the most",
                attr.size,
                request::QUERY_MAX
            )));
        }
        let mut bytes = Vec::new();
        content::read(&self.files.db(), attr.ino, 0, HEAD as usize, &mut bytes)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Failure::Asked(format!("{file:?} is not UTF-8 text")))?;
        check_query(&text).map_err(Failure::Asked)?;
        Ok(text)
    }

    fn answer_attr(&self, answer: &Answer) -> Attr {
        Attr {
            ino: answer.ino,
            kind: Kind::File,
            permissions: 0o444,
            // Without a link, the front end reclaims the inode once the kernel forgets it.
            nlink: 0,
            uid: self.owner.uid,
            gid: self.owner.gid,
            rdev: 0,
            size: answer.text.len() as u64,
            blocks: 0,
            atime: answer.made,
            mtime: answer.made,
            ctime: answer.made,
            btime: answer.made,
        }
    }

    /// An answer by its inode. `ESTALE` if newer answers have displaced it.
    fn kept_answer(&self, ino: Ino) -> Result<Answer> {
        self.answers.get(ino).ok_or_else(|| Errno::STALE.into())
    }

    /// Looks up a file, never a request. `ENOENT` for the private directories of other agents.
    fn lookup_file(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let attr = self.files.lookup(parent, name)?;
        match self.privacy {
            Some(privacy) if parent == privacy.all && attr.ino != privacy.own => {
                Err(Errno::NOENT.into())
            }
            _ => Ok(attr),
        }
    }

    /// Whether a name may be created: `EEXIST` for a request, `EPERM` in `/memory/private` itself.
    fn check_new_name(&self, parent: Ino, name: &[u8]) -> Result<()> {
        if let Some(privacy) = self.privacy
            && parent == privacy.all
        {
            return Err(Errno::PERM.into());
        }
        if request::is_reserved(name) {
            return Err(Errno::EXIST.into());
        }
        if let Some((file, _)) = request::aspect(name)
            && let Ok(attr) = self.files.lookup(parent, file)
            && attr.kind == Kind::File
        {
            return Err(Errno::EXIST.into());
        }
        Ok(())
    }

    /// Whether a name may be moved or removed: `EBUSY` for the namespace directories.
    fn check_old_name(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let Some(privacy) = self.privacy else {
            return Ok(());
        };
        let attr = self.lookup_file(parent, name)?;
        let fixed = [privacy.memory, privacy.all, privacy.shared, privacy.own];
        if fixed.contains(&attr.ino) {
            return Err(Errno::BUSY.into());
        }
        Ok(())
    }
}
