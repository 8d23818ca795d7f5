//! An agent's memory: the file system of [`sqlite`], or one whose rows are in it, with an index of its notes (`docs/MEMORY.md`).
//!
//! Names such as `:search?RSI` and `note.md:meta` are requests, which no listing shows; a lookup answers them.
//! The index is derived: the transaction of a change marks the note, and every request indexes the marked notes before it
//! answers, also after a crash. FUSE is in [`fuse`].

mod answers;
pub mod backend;
mod describe;
mod embedder;
mod files;
mod index;
mod indexer;
mod mean_length;
mod meaning;
mod merging;
mod metadata;
mod neighbours;
mod pace;
mod passage;
mod paths;
mod question;
mod ranking;
mod recall;
mod request;
mod search;
mod sections;
mod vectors;
mod words;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuse::store::{Attr, Caller, Errno, Ino, Kind, NewNode, ROOT, Result, Store, StoreError, Timestamp};
use parking_lot::Mutex;
use sqlite::tables::{Db, content};
use sqlite::{HEAD, SqliteOpenError, SqliteStore};

use answers::{Answer, Answers};
use describe::Stats;
pub use embedder::{Embedder, EmbeddingState, Embeddings};
use embeddings::SentenceModel;
use indexer::{Index, Indexer};
use meaning::{Meaning, QuestionEmbedding};
pub use metadata::check_ttl;
use passage::{one_line, shown_name};
use paths::{DEPTH_MAX, Privacy, Scope};
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

/// The files of a memory. Their rows are in a [`SqliteStore`], which may lack the content of some.
pub trait NoteFiles: Store {
    /// Whether the rows lack the content of a file.
    ///
    /// # Errors
    /// If the rows cannot be read.
    fn lacks(&self, _db: &Db, _ino: Ino) -> Result<bool> {
        Ok(false)
    }

    /// The number of such files; `None` if the rows never lack content.
    ///
    /// # Errors
    /// If the rows cannot be read.
    fn lacking(&self, _db: &Db) -> Result<Option<u64>> {
        Ok(None)
    }
}

impl NoteFiles for SqliteStore {}

/// Whether a lookup of the name is a request, unless a file has the name. `file_exists` says whether the directory has a
/// regular file of a name.
pub fn is_request(name: &[u8], file_exists: impl FnOnce(&[u8]) -> bool) -> bool {
    request::is_reserved(name) || request::aspect(name).is_some_and(|(file, _)| file_exists(file))
}

/// Whether a failed lookup of the name stays failed until the mount creates it: see [`Store::keeps_missing`].
pub fn keeps_missing(name: &[u8]) -> bool {
    !request::is_reserved(name) && request::aspect(name).is_none()
}

/// Whether the database has an index of notes.
///
/// # Errors
/// If it cannot be read.
pub fn is_indexed(db: &Db) -> Result<bool> {
    index::is_prepared(db)
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
    jiff::Timestamp::from_nanosecond(at.0.into()).map(|time| time.strftime(format).to_string()).unwrap_or_default()
}

/// The shared and private directories, created if they are missing.
fn make_namespaces(files: &SqliteStore, owner: &Caller, agent: &str) -> Result<Privacy> {
    let directory = |parent: Ino, name: &str| {
        let found = match files.lookup(parent, name.as_bytes()) {
            Err(error) if error.errno == Errno::NOENT && files.read_only().is_some() => {
                let reason = format!(
                    "it is read-only, and has no directory {name} for the agent {agent}: leave out --agent-id, or mount the database writable once"
                );
                return Err(StoreError::storage(Errno::ROFS, reason));
            }
            Err(error) if error.errno == Errno::NOENT => {
                let node = NewNode { kind: Kind::Directory, permissions: 0o755, rdev: 0, target: b"" };
                files.create(owner, parent, name.as_bytes(), &node)?
            }
            found => found?,
        };
        if found.kind != Kind::Directory {
            let reason = format!("{name} must be a directory, because namespaces are below it");
            return Err(StoreError::storage(Errno::NOTDIR, reason));
        }
        Ok(found.ino)
    };
    let memory = directory(ROOT, "memory")?;
    let all = directory(memory, "private")?;
    Ok(Privacy { memory, all, shared: directory(memory, "shared")?, own: directory(all, agent)? })
}

/// An agent's memory with its rows in one SQLite database.
pub struct AgentMemory {
    /// `None` once the index has ended, and of a memory that can only be read.
    indexer: Mutex<Option<Indexer>>,
    index: Arc<Index>,
    files: Arc<dyn NoteFiles>,
    /// Those of the files.
    rows: Arc<SqliteStore>,
    /// Why relevance by meaning is off.
    no_meaning: String,
    agent: Option<String>,
    owner: Caller,
    privacy: Option<Privacy>,
    answers: Answers,
    last_error: Mutex<Option<String>>,
    counters: Counters,
}

impl Drop for AgentMemory {
    fn drop(&mut self) {
        self.end_index();
    }
}

/// Counters of the store's own work.
#[derive(Debug, Default)]
struct Counters {
    searches: AtomicU64,
    recalls: AtomicU64,
    refused: AtomicU64,
}

impl AgentMemory {
    /// Opens the memory in the database at `path`, or creates one whose root belongs to `owner`. Opening a
    /// database of the `sqlite` backend turns it into a memory.
    ///
    /// A database that can only be read is never changed; its index must be there, and answers fail with `EROFS` where it is not
    /// current. With an `agent`, this creates `/memory/private/<agent>` and `/memory/shared`. Lookups, listings and
    /// answers then hide the private directories of other agents.
    ///
    /// # Errors
    /// See [`SqliteOpenError`].
    pub fn open(path: &Path, owner: &Caller, agent: Option<&str>) -> std::result::Result<Self, SqliteOpenError> {
        Self::open_at(path, owner, agent, Box::new(Timestamp::now))
    }

    /// As [`AgentMemory::open`], with `clock` in place of the machine's clock. It decides recency and expiry.
    ///
    /// # Errors
    /// See [`SqliteOpenError`].
    pub fn open_at(
        path: &Path,
        owner: &Caller,
        agent: Option<&str>,
        clock: Clock,
    ) -> std::result::Result<Self, SqliteOpenError> {
        let rows = Arc::new(SqliteStore::open(path, owner)?);
        if let Some(reason) = rows.read_only()
            && !index::is_prepared(&rows.db()).unwrap_or(false)
        {
            return Err(SqliteOpenError::ReadOnly {
                path: path.to_owned(),
                reason: reason.to_owned(),
                fix: "it has no index of notes yet: copy the database to a directory that you can write to; or mount it with `ctxbench mount sqlite --db`, which serves the files without search",
            });
        }
        Self::over(Arc::clone(&rows) as Arc<dyn NoteFiles>, Arc::clone(&rows), owner, agent, clock).map_err(|error| {
            rows.discard_new();
            SqliteOpenError::Unreadable { path: path.to_owned(), reason: error.to_string() }
        })
    }

    /// The memory of `files`, whose rows are in `rows`; creates its index if there is none, and indexes what is not indexed.
    ///
    /// # Errors
    /// If the rows cannot be read or changed.
    pub fn over(
        files: Arc<dyn NoteFiles>,
        rows: Arc<SqliteStore>,
        owner: &Caller,
        agent: Option<&str>,
        clock: Clock,
    ) -> Result<Self> {
        let can_write = rows.read_only().is_none();
        let notes = if can_write {
            rows.transaction(|db| {
                // The triggers mark no row that is written later.
                db.write_rows()?;
                index::prepare(db)?;
                index::count(db)
            })?
        } else {
            let db = rows.db();
            index::check_version(&db)?;
            index::count(&db)?
        };
        let privacy = agent.map(|agent| make_namespaces(&rows, owner, agent)).transpose()?;
        let index = Arc::new(Index::new(Arc::clone(&files), Arc::clone(&rows), agent, clock, notes));
        let indexer = if can_write {
            index.refresh_earlier()?;
            let started = Indexer::start(Arc::clone(&index));
            Some(started.map_err(|error| {
                StoreError::storage(Errno::IO, format!("starting the thread that indexes notes: {error}"))
            })?)
        } else {
            index.take_as_it_is()?;
            None
        };
        Ok(Self {
            indexer: Mutex::new(indexer),
            index,
            files,
            rows,
            no_meaning: "embeddings are switched off".to_owned(),
            agent: agent.map(str::to_owned),
            owner: *owner,
            privacy,
            answers: Answers::default(),
            last_error: Mutex::default(),
            counters: Counters::default(),
        })
    }

    /// As [`AgentMemory::wake`], after a change that may have moved directories.
    pub fn follow(&self) {
        self.index.paths.clear();
        self.wake();
    }

    /// Requires the index of a file whose content the rows have from now on, in the caller's transaction.
    ///
    /// # Errors
    /// If the row cannot be written.
    pub fn mark(db: &Db, ino: Ino) -> Result<()> {
        index::mark(db, ino)
    }

    /// Ends the threads that change the index, and leaves it as an unmounted database has it. Before the store's own end: a
    /// change after that one would be neither synced nor copied from the log. Does nothing the second time.
    fn end_index(&self) {
        let Some(indexer) = self.indexer.lock().take() else {
            return;
        };
        drop(indexer);
        self.index.stop_meaning();
        if let Err(error) = self.index.end() {
            tracing::warn!(%error, "could not index notes; the next mount retries");
        }
    }

    /// Switches relevance by meaning on or off. The model loads in the background; until then recalls use
    /// full text alone.
    ///
    /// # Errors
    /// If the model's small files are missing or invalid, or no thread can be started.
    /// [`AgentMemory::embeddings`] and `:stats` report an error in its weights later.
    pub fn set_embeddings(&mut self, wanted: Embeddings) -> std::result::Result<(), String> {
        self.index.stop_meaning();
        match wanted {
            Embeddings::Off { reason } => {
                self.no_meaning = reason;
                self.index.changes.fetch_add(1, Ordering::AcqRel);
            }
            // The vectors of notes would have to be written.
            Embeddings::In(_) if self.read_only().is_some() => {
                self.no_meaning = "the memory is read-only".to_owned();
            }
            Embeddings::In(dir) => {
                embeddings::Config::read(&dir).map_err(|error| error.to_string())?;
                self.set_embedder(move || {
                    let model = SentenceModel::load(&dir).map_err(|error| error.to_string())?;
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
        self.index.stop_meaning();
        let (files, changes) = (Arc::clone(&self.rows), Arc::clone(&self.index.changes));
        let started = Meaning::start(load, files, changes);
        let started = started.map_err(|error| format!("starting a thread: {error}"))?;
        *self.index.meaning.write() = Some(started);
        self.index.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Why the memory can only be read; `None` if it can be written.
    pub fn read_only(&self) -> Option<&str> {
        self.rows.read_only()
    }

    /// The state of embedding.
    pub fn embeddings(&self) -> EmbeddingState {
        match &*self.index.meaning.read() {
            Some(meaning) => meaning.state(),
            None => EmbeddingState::Off(self.no_meaning.clone()),
        }
    }

    /// The number of notes, those of other agents included.
    pub fn notes(&self) -> u64 {
        self.index.notes()
    }

    /// After a successful change, does [`AgentMemory::wake`].
    fn changed<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_ok() {
            self.wake();
        }
        result
    }

    /// Requires a refresh of the index, and invalidates all answers: the files have changed, maybe not through this memory.
    pub fn wake(&self) {
        let has_to_wake = self.index.changed();
        if has_to_wake && let Some(indexer) = &*self.indexer.lock() {
            indexer.wake();
        }
    }

    /// Records for `:stats` why a call is refused, and returns its error.
    fn refuse(&self, errno: Errno, what: &[u8], reason: &str) -> StoreError {
        let shown = shown_name(&what[..what.len().min(255)]);
        let said = format!("{} {shown}: {}", moment((self.index.clock)()), one_line(reason));
        *self.last_error.lock() = Some(said);
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        self.index.changes.fetch_add(1, Ordering::AcqRel);
        StoreError::storage(errno, reason)
    }

    /// The scope of a request in the directory `dir`.
    fn scope(&self, db: &Db, dir: Ino) -> Result<Scope> {
        Ok(Scope { dir, dir_path: self.index.paths.of(db, dir)?, privacy: self.privacy })
    }

    /// The answer to a name; `None` if the name is not a request.
    fn answer(&self, dir: Ino, name: &[u8]) -> Result<Option<Attr>> {
        let is_request = request::is_reserved(name);
        let aspect = request::aspect(name);
        if !is_request && aspect.is_none() {
            return Ok(None);
        }
        match self.index.refresh() {
            // It says that the index is behind.
            Err(error) if error.errno == Errno::NOSPC && request::parse(name) == Ok(Request::Stats) => {}
            refreshed => {
                refreshed?;
            }
        }
        let now = (self.index.clock)();
        // Read it before the query: a change meanwhile makes this answer outdated.
        let changes = self.index.changes.load(Ordering::Acquire);
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
            let db = self.rows.db();
            // The caller sees the file, but its history may lead through any directory.
            let all = self.scope(&db, ROOT)?;
            let asked = self.scope(&db, dir)?;
            let scopes = [&all, &asked];
            describe::aspect(&db, &self.index.paths, scopes, (&attr, file), aspect, now)?.into_bytes()
        } else {
            return Ok(None);
        };
        let answer = self.answers.keep(dir, name, text, changes, now);
        Ok(Some(self.answer_attr(&answer)))
    }

    fn respond(&self, dir: Ino, name: &[u8], now: Timestamp) -> std::result::Result<Vec<u8>, Failure> {
        let request = request::parse(name).map_err(Failure::Asked)?;
        if self.index.paths.of(&self.rows.db(), dir)?.is_too_deep {
            return Err(Failure::Asked(format!(
                "the directory is more than {DEPTH_MAX} levels deep; ask in a directory above it, whose answers include its notes"
            )));
        }
        let query_of = |query: Query| match query {
            Query::Here(text) => Ok(text),
            Query::InFile(file) => self.read_query(dir, &file),
            Query::InLink(link) => self.read_target(dir, &link),
        };
        let text = match request {
            Request::Search { query, lines } => {
                let query = query_of(query)?;
                self.counters.searches.fetch_add(1, Ordering::Relaxed);
                self.rows.db().reading(|db| {
                    let scope = self.scope(db, dir)?;
                    let found = search::answer(db, &self.index.paths, &scope, &query, lines, self.notes())?;
                    Ok::<_, Failure>(found + &self.unsearched(db)?)
                })?
            }
            Request::Recall { query, max_tokens, strategy } => {
                let query = query_of(query)?;
                self.counters.recalls.fetch_add(1, Ordering::Relaxed);
                // Embed the question before locking the database: it takes milliseconds.
                let meant = match &*self.index.meaning.read() {
                    Some(meaning) => meaning.ask(&query),
                    None => QuestionEmbedding::by_text(None),
                };
                self.rows.db().reading(|db| {
                    let scope = self.scope(db, dir)?;
                    let unsearched = match &*self.unsearched(db)? {
                        "" => String::new(),
                        line => format!("# {line}"),
                    };
                    let max_tokens = max_tokens.saturating_sub(tokens::count(&unsearched));
                    let (query, notes, meant) = (&*query, self.notes(), &meant);
                    let asked = question::Question { query, max_tokens, strategy, now, notes, meant };
                    let found = recall::answer(db, &self.index.paths, &scope, &asked)?;
                    Ok::<_, Failure>(found + &unsearched)
                })?
            }
            Request::Stats => {
                let (last_error, behind) = (self.last_error.lock().clone(), self.index.behind());
                let embeddings = self.embeddings();
                let db = self.rows.db();
                let stats = Stats {
                    agent: self.agent.as_deref(),
                    notes: self.notes(),
                    lacking: self.files.lacking(&db)?,
                    last_error,
                    behind,
                    embeddings,
                };
                describe::stats(&db, &self.scope(&db, dir)?, &stats)?
            }
            Request::Meta => {
                let db = self.rows.db();
                describe::meta(&db, &self.scope(&db, dir)?)?
            }
            Request::Tags => {
                let db = self.rows.db();
                describe::tags(&db, &self.index.paths, &self.scope(&db, dir)?)?
            }
            Request::Ttl { only_expired: true } => {
                let db = self.rows.db();
                let scope = self.scope(&db, dir)?;
                return Ok(describe::expired(&db, &self.index.paths, &scope, now)?);
            }
            Request::Ttl { only_expired: false } => {
                let db = self.rows.db();
                describe::ttl(&db, &self.index.paths, &self.scope(&db, dir)?, now)?
            }
            Request::History => {
                let db = self.rows.db();
                describe::history(&db, &self.index.paths, &self.scope(&db, dir)?)?
            }
        };
        Ok(text.into_bytes())
    }

    /// The line of an answer about the files that the index cannot know; empty if there are none.
    fn unsearched(&self, db: &Db) -> Result<String> {
        Ok(match self.files.lacking(db)?.unwrap_or(0) {
            0 => String::new(),
            1 => "1 file was not searched: its content is not here yet\n".to_owned(),
            count => format!("{count} files were not searched: their content is not here yet\n"),
        })
    }

    /// Reads a query from a file, for queries that are too long for a name.
    fn read_query(&self, dir: Ino, file: &str) -> std::result::Result<String, Failure> {
        let attr = self
            .lookup_file(dir, file.as_bytes())
            .map_err(|error| Failure::Asked(format!("the query's file {file:?}: {error}")))?;
        if attr.kind != Kind::File {
            return Err(Failure::Asked(format!("{file:?} is not a regular file")));
        }
        if attr.size > request::QUERY_MAX as u64 {
            return Err(Failure::Asked(format!(
                "the query in {file:?} has {} bytes; the maximum is {}",
                attr.size,
                request::QUERY_MAX
            )));
        }
        let mut bytes = Vec::new();
        let db = self.rows.db();
        if self.files.lacks(&db, attr.ino)? {
            return Err(Failure::Asked(format!("the content of {file:?} is not here yet: read the file first")));
        }
        content::read(&db, attr.ino, 0, HEAD as usize, &mut bytes)?;
        drop(db);
        let text = String::from_utf8(bytes).map_err(|_| Failure::Asked(format!("{file:?} is not UTF-8 text")))?;
        check_query(&text).map_err(Failure::Asked)?;
        Ok(text)
    }

    /// Reads a query from the target of a symbolic link.
    fn read_target(&self, dir: Ino, link: &str) -> std::result::Result<String, Failure> {
        let target = self
            .lookup_file(dir, link.as_bytes())
            .and_then(|attr| self.files.readlink(attr.ino))
            .map_err(|error| Failure::Asked(format!("the query's link {link:?}: {error}")))?;
        let text = String::from_utf8(target).map_err(|_| Failure::Asked(format!("{link:?} is not UTF-8 text")))?;
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
            Some(privacy) if parent == privacy.all && attr.ino != privacy.own => Err(Errno::NOENT.into()),
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
