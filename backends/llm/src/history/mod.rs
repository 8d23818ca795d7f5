//! A [`Store`] that asks a model what files hold after a log of operations (second pattern of source 1).
//!
//! A [`MemoryStore`], the reference, applies the same log: it supplies names, attributes and the expected
//! content. Reads return the model's content. Without a log file nothing is durable. With one, a completed
//! call survives a killed daemon. It survives power loss after an `fsync`, or after five seconds.

mod answer;
mod count;
mod log;
mod operation;
mod prompt;
mod space;
mod store;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use models::{Cancel, Reply};
use parking_lot::Mutex;

pub use answer::Answer;
pub use log::LogError;

use fuse::memory::MemoryStore;
use fuse::store::{Attr, Caller, Errno, Ino, Result, Store, StoreError};

use self::answer::PolicyDecision;
use self::log::{Entry, Log};
use self::operation::Operation;
use super::asker::{Asker, Purpose};
use super::flight::{Failure, Flights};
use super::names::{Names, PATH_MAX};
use crate::periodic::Periodic;

/// How often the log is synced: with the time that a sync takes, less than five seconds.
const SYNC_EVERY: Duration = Duration::from_secs(4);

/// File content as the model returned it.
type Content = Arc<Vec<u8>>;

/// A file and the log length at the time of the request.
type QuestionKey = (Ino, u64);

/// Options of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// The rules by which the model allows or refuses operations, in words. `None` allows everything without
    /// a request.
    pub policy: Option<String>,
    /// The most bytes of log in a prompt; the oldest operations are left out.
    pub log_bytes: usize,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self { policy: None, log_bytes: 8 * 1024 }
    }
}

/// A file system whose content a model reconstructs from a log.
#[derive(Debug)]
pub struct HistoryStore {
    shared: Arc<SharedState>,
    flights: Arc<Flights<QuestionKey, Content>>,
    /// Policy requests in flight, by the text of the operation.
    judgements: Arc<Flights<String, ()>>,
    /// Syncs the log; `None` without a file that operations are added to.
    _flusher: Option<Periodic>,
}

#[derive(Debug)]
struct SharedState {
    asker: Asker,
    options: HistoryOptions,
    reference: MemoryStore,
    history: Mutex<History>,
    /// The last answer for each file and its log length. A read at offset 0 asks again; later offsets use the
    /// answer while the log has not grown.
    answers: Mutex<HashMap<Ino, (u64, Content)>>,
    /// Why the last call on an inode failed, such as a refusal by the policy.
    failures: Mutex<HashMap<Ino, String>>,
    refused: AtomicU64,
    log_cut: AtomicU64,
}

#[derive(Debug)]
struct History {
    log: Log,
    names: Names,
    /// The operations as a prompt shows them, oldest first.
    lines: Vec<String>,
    /// Operations so far, including those that `lines` omits.
    length: u64,
}

impl HistoryStore {
    /// Opens an empty history, or the one in the log file `log`.
    ///
    /// # Errors
    /// [`LogError`] if the file cannot be used.
    pub fn open(
        asker: Asker,
        options: HistoryOptions,
        log: Option<&Path>,
        owner: &Caller,
    ) -> std::result::Result<Self, LogError> {
        let (log, entries) = match log {
            Some(path) => Log::open(path, owner)?,
            None => (Log::in_memory(), Vec::new()),
        };
        let owner = log.owner().unwrap_or(*owner);
        let shared = SharedState {
            asker,
            options,
            reference: MemoryStore::new(&owner),
            history: Mutex::new(History { log, names: Names::default(), lines: Vec::new(), length: 0 }),
            answers: Mutex::default(),
            failures: Mutex::default(),
            refused: AtomicU64::new(0),
            log_cut: AtomicU64::new(0),
        };
        for Entry { caller, operation } in entries {
            let mut history = shared.history.lock();
            match shared.apply(&mut history, &caller, &operation) {
                // No process has the file open after a restart.
                Ok(applied) => {
                    if let Some(orphan) = applied.orphan {
                        let _ = shared.reference.reclaim(orphan);
                    }
                }
                // The operation changed an unlinked open file, which is gone after a restart.
                Err(error) => {
                    tracing::debug!(%error, ?operation, "an operation acts on a node that no longer exists")
                }
            }
        }
        let shared = Arc::new(shared);
        let is_written = shared.history.lock().log.is_written();
        let flusher = if is_written {
            let shared = Arc::clone(&shared);
            let flush = move || shared.flush();
            Some(Periodic::start("flush", SYNC_EVERY, flush).map_err(LogError::Thread)?)
        } else {
            None
        };
        Ok(Self { shared, flights: Arc::default(), judgements: Arc::default(), _flusher: flusher })
    }

    /// Why the log can only be read; `None` if operations can be added to it.
    pub fn read_only(&self) -> Option<String> {
        let history = self.shared.history.lock();
        history.log.read_only().map(str::to_owned)
    }

    /// The store that applies the same log without a model: the expected content of every file.
    pub fn reference(&self) -> &dyn Store {
        &self.shared.reference
    }

    /// The asker of this store.
    pub fn asker(&self) -> &Asker {
        &self.shared.asker
    }

    /// Operations so far.
    pub fn length(&self) -> u64 {
        self.shared.history.lock().length
    }

    /// Asks the model what the file at `path` holds. The file need not exist.
    ///
    /// # Errors
    /// If the model gives no usable answer.
    pub fn ask_file(&self, path: &str) -> Result<Answer> {
        Ok(self.shared.ask_file(path, &Cancel::default())?)
    }

    /// Asks the model for the names in the root directory. A mount takes names from the reference instead.
    ///
    /// # Errors
    /// If the model gives no usable answer.
    pub fn ask_listing(&self) -> Result<Vec<String>> {
        let asked = prompt::listing(&self.shared.log_text());
        let parsed = answer::names;
        let cancel = Cancel::default();
        Ok(self.shared.ask(Purpose::Read, "/", asked, parsed, &cancel)?)
    }

    fn change(&self, caller: &Caller, operation: Operation) -> Result<OperationResult> {
        let judged = self.check_paths(&operation).and_then(|()| self.judge(&operation));
        let done = judged.and_then(|()| self.shared.record(caller, &operation));
        self.shared.note(operation.inode(), &done);
        done
    }

    /// `ENAMETOOLONG` for a path that is too long for a prompt: the prompts of nested directories would be quadratic.
    fn check_paths(&self, operation: &Operation) -> Result<()> {
        let history = self.shared.history.lock();
        let mut names = operation.new_names().into_iter();
        if names.any(|(parent, name)| history.names.is_too_long(parent, name)) {
            Err(StoreError::storage(
                Errno::NAMETOOLONG,
                format!("the path has more than {PATH_MAX} bytes, which is too long for a prompt"),
            ))
        } else {
            Ok(())
        }
    }

    /// Asks the policy, if there is one.
    fn judge(&self, operation: &Operation) -> Result<()> {
        let Some(policy) = self.shared.options.policy.clone() else {
            return Ok(());
        };
        let line = operation.describe(&self.shared.history.lock().names);
        let shared = Arc::clone(&self.shared);
        self.judgements.join(line.clone(), move |cancel| shared.judge(&policy, &line, cancel))
    }
}

/// The result of an operation.
#[derive(Debug, Default)]
struct OperationResult {
    attr: Option<Attr>,
    orphan: Option<Ino>,
    /// Whether the operation changed nothing, such as a rename between two names of one inode.
    is_nothing: bool,
}

impl OperationResult {
    fn attr(self) -> Result<Attr> {
        self.attr.ok_or_else(|| Errno::IO.into())
    }
}

impl SharedState {
    /// Makes all operations so far survive power loss.
    fn flush(&self) {
        let log = &mut self.history.lock().log;
        if !log.is_broken()
            && let Err(error) = log.sync()
        {
            tracing::error!(%error, "operations older than {SYNC_EVERY:?} are not durable");
        }
    }

    /// Asks the model whether the policy allows the operation in `line`.
    fn judge(&self, policy: &str, line: &str, cancel: &Cancel) -> std::result::Result<(), Failure> {
        let asked = prompt::policy(policy, line);
        let decision = self.ask(Purpose::Policy, line, asked, answer::parse::<PolicyDecision>, cancel)?;
        if decision.allow {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.asker.log(&format!("REFUSED {line}: {}", decision.reason));
        Err(Failure { errno: Errno::ACCESS, reason: format!("the policy refuses it: {}", decision.reason) })
    }

    /// Stores why a call on an inode failed. The next successful call clears it.
    fn note<T>(&self, ino: Ino, done: &Result<T>) {
        let mut failures = self.failures.lock();
        match done {
            Ok(_) => {
                failures.remove(&ino);
            }
            Err(StoreError { errno, reason }) => {
                if let (Some(reason), true) = (reason, *errno != Errno::INTR) {
                    failures.insert(ino, reason.clone());
                }
            }
        }
    }

    fn failure(&self, ino: Ino) -> Option<String> {
        let failures = self.failures.lock();
        failures.get(&ino).cloned()
    }

    /// Applies an operation and appends it to the log: both, or neither.
    fn record(&self, caller: &Caller, operation: &Operation) -> Result<OperationResult> {
        let mut history = self.history.lock();
        let pending = history.log.begin(caller, operation)?;
        match self.apply(&mut history, caller, operation) {
            Ok(applied) => {
                history.log.commit(pending)?;
                Ok(applied)
            }
            Err(error) => {
                history.log.roll_back(pending);
                Err(error)
            }
        }
    }

    fn apply(&self, history: &mut History, caller: &Caller, operation: &Operation) -> Result<OperationResult> {
        let line = operation.describe(&history.names);
        let applied = operation.apply(&self.reference, caller, &mut history.names)?;
        if operation.is_told() && !applied.is_nothing {
            history.lines.push(line);
        }
        history.length += 1;
        Ok(applied)
    }

    /// The newest part of the log that fits into a prompt.
    fn log_text(&self) -> String {
        let history = self.history.lock();
        let (text, left_out) = prompt::log(&history.lines, self.options.log_bytes);
        if left_out > 0 {
            self.log_cut.fetch_add(1, Ordering::Relaxed);
        }
        text
    }

    fn ask_file(&self, path: &str, cancel: &Cancel) -> std::result::Result<Answer, Failure> {
        let asked = prompt::file(&self.log_text(), path);
        self.ask(Purpose::Read, path, asked, answer::file, cancel)
    }

    /// Asks the model about `what` and parses its answer.
    fn ask<T>(
        &self,
        purpose: Purpose,
        what: &str,
        (system, question, schema): prompt::Prompt,
        parsed: impl FnOnce(&Reply) -> std::result::Result<T, String>,
        cancel: &Cancel,
    ) -> std::result::Result<T, Failure> {
        let asker = &self.asker;
        let request = asker.request(asker.model(), system, question, Some(schema));
        let reply = asker.ask(purpose, what, &request, cancel)?;
        parsed(&reply).map_err(|why| asker.refuse(purpose, what, Errno::IO, why))
    }

    /// The content of a file according to the model.
    fn content(&self, ino: Ino, cancel: &Cancel) -> std::result::Result<Content, Failure> {
        let (path, length) = {
            let history = self.history.lock();
            (history.names.shown_path(ino), history.length)
        };
        let Some(path) = path else {
            let why = "it no longer has a name by which the model could be asked for it";
            return Err(Failure { errno: Errno::IO, reason: why.to_owned() });
        };
        if let Some(policy) = &self.options.policy {
            self.judge(policy, &format!("read {path}"), cancel)?;
        }
        let answer = self.ask_file(&path, cancel)?;
        let Some(content) = answer.content else {
            let why = "the model says that there is no such file".to_owned();
            return Err(self.asker.refuse(Purpose::Read, &path, Errno::NOENT, why));
        };
        let size = self.reference.getattr(ino).map_or(0, |attr| attr.size);
        if content.is_empty() && size > 0 {
            let why = format!("the model says that it is empty, and it has {size} bytes");
            return Err(self.asker.refuse(Purpose::Read, &path, Errno::IO, why));
        }
        let content = Arc::new(content);
        let mut answers = self.answers.lock();
        answers.insert(ino, (length, Arc::clone(&content)));
        Ok(content)
    }
}
