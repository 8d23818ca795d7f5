//! Relevance by meaning: what a question is compared by, and the queue of notes that have no vector yet.
//!
//! Vectors are rows of `memory_embedding`, which is derived as the rest of the index is. A question is embedded when it
//! is asked; notes are embedded newest first, outside of every lock, by a thread that has the lowest priority. What is
//! known in memory changes while the database is locked, so that it says what the database says.
//!
//! What lives elsewhere: models ([`super::embedder`]), how vectors are kept and compared ([`super::vectors`]).

use std::collections::{BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::params;

use super::embedder::{Embedder, EmbeddingState};
use super::index::Refreshed;
use super::paths::{Places, Scope};
use super::vectors::{Signs, cosine, packed};
use crate::sqlite::db::Db;
use crate::sqlite::nodes::{self, unsigned};
use crate::sqlite::{SqliteStore, content};
use crate::store::Result;

/// Bytes of a body that are looked at: more than a model's word pieces take up.
const TEXT_MAX: usize = 4096;

/// Word pieces that are embedded at once: about a tenth of a second, and so is what a stop waits for.
const BATCH_PIECES: usize = 512;

/// Notes that are read at once.
const BATCH_NOTES: usize = 32;

/// Questions whose vectors are kept, for who asks again with another budget or in another directory.
const QUESTIONS_KEPT: usize = 8;

/// Notes whose signs are nearest that are looked at closely; more where only some are asked about.
const NEAREST: usize = 256;
const NEAREST_SCOPED: usize = 1024;

/// Notes that are candidates because of their meaning.
pub(super) const CANDIDATES: usize = 32;

/// Failures in a row after which no more is embedded, and the pause after each.
const FAILURES_MAX: u32 = 5;
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

enum State {
    Loading,
    Ready(Arc<dyn Embedder>),
    Failed(String),
}

/// What is known of the notes. Locked after the database, where both are.
struct Known {
    state: State,
    signs: Signs,
    /// Notes without a vector.
    waiting: BTreeSet<i64>,
}

struct Shared {
    known: Mutex<Known>,
    wake: Condvar,
    stops: AtomicBool,
    questions: Mutex<VecDeque<(String, Arc<Vec<f32>>)>>,
    embedded: AtomicU64,
    /// Counts what may change an answer: [`super::AgentMemory`]'s.
    changes: Arc<AtomicU64>,
}

/// What relevance by meaning needs, while a memory is open.
pub(super) struct Meaning {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

/// A question by its meaning.
#[derive(Debug)]
pub(super) struct Meant {
    /// What relevance is made of, for the answer's first line.
    pub(super) basis: String,
    /// The question's vector, its model, and the notes whose signs are nearest.
    vector: Option<(Arc<Vec<f32>>, String, Vec<i64>)>,
}

impl Meant {
    /// Full text alone; `why` is said if there is a reason that may pass.
    pub(super) fn by_text(why: Option<&str>) -> Self {
        Self {
            basis: match why {
                None => "by full text".to_owned(),
                Some(why) => format!("by full text ({why})"),
            },
            vector: None,
        }
    }

    /// Whether notes are compared by meaning, those that have a vector.
    pub(super) fn is_by_meaning(&self) -> bool {
        self.vector.is_some()
    }

    /// How close a note is to the question: the cosine, from -1 to 1. `None` if it has no vector.
    pub(super) fn closeness(&self, db: &Db, note: i64) -> Result<Option<f64>> {
        let Some((vector, model, _)) = &self.vector else {
            return Ok(None);
        };
        let found = db.row(
            "SELECT vector FROM memory_embedding WHERE id = ?1 AND model = ?2",
            params![note, model],
            |row| Ok(cosine(vector, row.get_ref(0)?.as_blob()?)),
        )?;
        Ok(found.flatten())
    }

    /// At most [`CANDIDATES`] notes in scope that are nearest to the question, the nearest first.
    pub(super) fn nearest(
        &self,
        db: &Db,
        places: &Places,
        scope: &Scope,
    ) -> Result<Vec<(i64, f64)>> {
        let Some((vector, model, ids)) = &self.vector else {
            return Ok(Vec::new());
        };
        let mut near = Vec::new();
        for id in ids {
            let found = db.row(
                "SELECT n.dir, e.vector FROM memory_embedding e JOIN memory_note n ON n.id = e.id
                 WHERE e.id = ?1 AND e.model = ?2 AND n.is_found = 1",
                params![id, model],
                |row| {
                    Ok((
                        unsigned(row.get(0)?),
                        cosine(vector, row.get_ref(1)?.as_blob()?),
                    ))
                },
            )?;
            if let Some((dir, Some(cosine))) = found
                && scope.covers(&*places.of(db, dir)?)
            {
                near.push((*id, cosine));
            }
            if near.len() == NEAREST {
                break;
            }
        }
        near.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        near.truncate(CANDIDATES);
        Ok(near)
    }
}

impl Meaning {
    /// Starts reading the model and then embedding what has no vector of it.
    pub(super) fn start(
        load: impl FnOnce() -> std::result::Result<Arc<dyn Embedder>, String> + Send + 'static,
        files: Arc<SqliteStore>,
        changes: Arc<AtomicU64>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            known: Mutex::new(Known {
                state: State::Loading,
                signs: Signs::default(),
                waiting: BTreeSet::new(),
            }),
            wake: Condvar::new(),
            stops: AtomicBool::new(false),
            questions: Mutex::default(),
            embedded: AtomicU64::new(0),
            changes,
        });
        let for_worker = Arc::clone(&shared);
        let worker = std::thread::Builder::new()
            .name("embeddings".to_owned())
            .spawn(move || {
                // Of this thread only; without it, embedding competes with requests.
                let thread = rustix::thread::gettid();
                if let Err(error) = rustix::process::setpriority_process(Some(thread), 19) {
                    tracing::warn!(%error, "embedding runs at the priority of requests");
                }
                let work = || load().and_then(|model| for_worker.work(&model, &files));
                // Whatever happens: nobody is to be told for ever that a model is being read.
                let done = std::panic::catch_unwind(AssertUnwindSafe(work));
                let done = done.unwrap_or_else(|_| Err("its thread panicked".to_owned()));
                if let Err(reason) = done {
                    tracing::error!("embeddings are given up: {reason}");
                    for_worker.known().state = State::Failed(reason);
                    for_worker.changes.fetch_add(1, Ordering::AcqRel);
                }
            })?;
        Ok(Self {
            shared,
            worker: Some(worker),
        })
    }

    /// How far it is.
    pub(super) fn state(&self) -> EmbeddingState {
        let known = self.shared.known();
        match &known.state {
            State::Loading => EmbeddingState::Loading,
            State::Ready(model) => EmbeddingState::Ready {
                model: model.id().to_owned(),
                waiting: known.waiting.len() as u64,
            },
            State::Failed(reason) => EmbeddingState::Failed(reason.clone()),
        }
    }

    /// How many notes were embedded since the start.
    pub(super) fn embedded(&self) -> u64 {
        self.shared.embedded.load(Ordering::Relaxed)
    }

    /// What a refresh of the index has changed, while the database is still locked.
    pub(super) fn take_up(&self, done: &Refreshed) {
        let mut known = self.shared.known();
        // Until the model is there nothing is known, and then all is read from the database.
        if !matches!(known.state, State::Ready(_)) {
            return;
        }
        for id in &done.forgotten {
            known.waiting.remove(id);
            known.signs.remove(*id);
        }
        if !done.added.is_empty() {
            known.waiting.extend(&done.added);
            self.shared.wake.notify_all();
        }
    }

    /// A question by its meaning. Takes some milliseconds: no lock is to be held.
    pub(super) fn ask(&self, query: &str) -> Meant {
        let model = match &self.shared.known().state {
            State::Loading => return Meant::by_text(Some("the embedding model is being read")),
            State::Failed(_) => return Meant::by_text(Some("embeddings have failed, see :stats")),
            State::Ready(model) => Arc::clone(model),
        };
        let vector = match self.shared.vector(&*model, query) {
            Ok(vector) => vector,
            Err(error) => {
                tracing::warn!(error, "a question is not embedded");
                return Meant::by_text(Some("the question could not be embedded"));
            }
        };
        let known = self.shared.known();
        let missing = known.waiting.len();
        let all = missing + known.signs.len();
        let basis = match missing {
            0 => "by full text and meaning".to_owned(),
            _ => format!(
                "by full text and meaning; {missing} of {all} notes have no embedding yet: by full text"
            ),
        };
        let nearest = known.signs.nearest(&vector, NEAREST_SCOPED);
        Meant {
            basis,
            vector: Some((vector, model.id().to_owned(), nearest)),
        }
    }
}

impl Drop for Meaning {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        // With the lock, so that a worker that is about to wait is not missed.
        drop(self.shared.known());
        self.shared.wake.notify_all();
        if let Some(worker) = self.worker.take() {
            // A panic in it has been caught and said.
            let _ = worker.join();
        }
    }
}

/// A note that is to be embedded, as it was when it was read.
struct Wanted {
    id: i64,
    changed: i64,
    size: i64,
    pieces: Vec<u32>,
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// The vector of a question, kept for when it is asked again.
    fn vector(
        &self,
        model: &dyn Embedder,
        query: &str,
    ) -> std::result::Result<Arc<Vec<f32>>, String> {
        let questions = || {
            self.questions
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let kept = questions()
            .iter()
            .find(|(kept, _)| kept == query)
            .map(|(_, vector)| Arc::clone(vector));
        if let Some(vector) = kept {
            return Ok(vector);
        }
        let pieces = model.pieces(query);
        if pieces.is_empty() {
            return Err("it has no word".to_owned());
        }
        let vector = model.embed(&[pieces])?.pop();
        let vector = Arc::new(vector.unwrap_or_default());
        let mut questions = questions();
        questions.push_back((query.to_owned(), Arc::clone(&vector)));
        if questions.len() > QUESTIONS_KEPT {
            questions.pop_front();
        }
        Ok(vector)
    }

    fn work(
        &self,
        model: &Arc<dyn Embedder>,
        files: &SqliteStore,
    ) -> std::result::Result<(), String> {
        if self.stops() {
            return Ok(());
        }
        self.read_known(&files.db(), model)
            .map_err(|error| error.to_string())?;
        let mut failures = 0;
        while let Some(ids) = self.next() {
            match self.embed(files, &**model, &ids) {
                Ok(()) => failures = 0,
                Err(reason) => {
                    failures += 1;
                    if failures == FAILURES_MAX {
                        return Err(reason);
                    }
                    tracing::warn!("notes are not embedded, and tried again: {reason}");
                    let is_on = |_: &mut Known| !self.stops();
                    let wait = self
                        .wake
                        .wait_timeout_while(self.known(), FAILURE_PAUSE, is_on);
                    drop(wait);
                }
            }
        }
        Ok(())
    }

    /// Reads what was embedded before, and what was not.
    fn read_known(&self, db: &Db, model: &Arc<dyn Embedder>) -> Result<()> {
        let mut known = self.known();
        known.signs = Signs::new(model.dimensions());
        let mut statement = db.statement(
            "SELECT n.id, e.vector FROM memory_note n LEFT JOIN memory_embedding e ON e.id = n.id AND e.model = ?1",
        )?;
        let mut rows = statement.query([model.id()])?;
        while let Some(row) = rows.next()? {
            let id = row.get(0)?;
            let vector = row.get_ref(1)?.as_blob_or_null();
            match vector.map_err(rusqlite::Error::from)? {
                Some(vector) if vector.is_empty() || vector.len() == model.dimensions() => {
                    known.signs.add(id, vector);
                }
                _ => {
                    known.waiting.insert(id);
                }
            }
        }
        known.state = State::Ready(Arc::clone(model));
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Waits until there is something to do; the newest notes first. `None` to stop.
    fn next(&self) -> Option<Vec<i64>> {
        let is_idle = |known: &mut Known| known.waiting.is_empty() && !self.stops();
        let known = self
            .wake
            .wait_while(self.known(), is_idle)
            .unwrap_or_else(PoisonError::into_inner);
        let newest = known.waiting.iter().rev().take(BATCH_NOTES);
        (!self.stops()).then(|| newest.copied().collect())
    }

    /// Embeds as many of the notes as make a batch.
    fn embed(
        &self,
        files: &SqliteStore,
        model: &dyn Embedder,
        ids: &[i64],
    ) -> std::result::Result<(), String> {
        let wanted = self.read(files, model, ids)?;
        let texts: Vec<Vec<u32>> = wanted
            .iter()
            .filter(|note| !note.pieces.is_empty())
            .map(|note| note.pieces.clone())
            .collect();
        let made = model.embed(&texts)?;
        if made.len() != texts.len() || made.iter().any(|made| made.len() != model.dimensions()) {
            return Err("the model made other vectors than it was asked for".to_owned());
        }
        if self.stops() {
            return Ok(());
        }
        let mut made = made.iter();
        let vectors = wanted.into_iter().map(|note| {
            let has_text = !note.pieces.is_empty();
            let vector = has_text.then(|| made.next()).flatten();
            (note, vector.map(|made| packed(made)).unwrap_or_default())
        });
        let vectors: Vec<(Wanted, Vec<u8>)> = vectors.collect();
        self.keep(files, model, &vectors)
            .map_err(|error| error.to_string())
    }

    /// What is to be embedded of notes, as many as make a batch.
    fn read(
        &self,
        files: &SqliteStore,
        model: &dyn Embedder,
        ids: &[i64],
    ) -> std::result::Result<Vec<Wanted>, String> {
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut pieces = 0;
        for id in ids {
            let (changed, size, text) = {
                let db = files.db();
                match text(&db, *id).map_err(|error| error.to_string())? {
                    Some(found) => found,
                    None => {
                        // While the database is locked: a new note may get its number.
                        self.known().waiting.remove(id);
                        continue;
                    }
                }
            };
            let text = model.pieces(&text);
            pieces += text.len();
            if pieces > BATCH_PIECES && !wanted.is_empty() {
                break;
            }
            wanted.push(Wanted {
                id: *id,
                changed,
                size,
                pieces: text,
            });
        }
        Ok(wanted)
    }

    /// Keeps vectors of notes that are still what was read of them.
    fn keep(
        &self,
        files: &SqliteStore,
        model: &dyn Embedder,
        vectors: &[(Wanted, Vec<u8>)],
    ) -> Result<()> {
        let db = files.db();
        let kept = db.transaction(|db| {
            let mut kept = Vec::new();
            for (note, vector) in vectors {
                let is_kept = db.execute(
                    "INSERT OR REPLACE INTO memory_embedding (id, model, vector)
                     SELECT id, ?2, ?3 FROM memory_note WHERE id = ?1 AND changed = ?4 AND size = ?5",
                    params![note.id, model.id(), vector, note.changed, note.size],
                )?;
                if is_kept > 0 {
                    kept.push((note.id, vector));
                }
            }
            Ok(kept)
        })?;
        let mut known = self.known();
        for (id, vector) in &kept {
            known.waiting.remove(id);
            known.signs.add(*id, vector);
        }
        drop((known, db));
        self.embedded
            .fetch_add(kept.len() as u64, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

/// When a note was changed, its size, and the beginning of its body: nothing if it is not text. `None` if it is gone,
/// whether or not the index knows.
fn text(db: &Db, id: i64) -> Result<Option<(i64, i64, String)>> {
    let found = db.row(
        "SELECT changed, size, ino, body, is_text FROM memory_note WHERE id = ?1",
        [id],
        |row| {
            Ok((
                row.get(0)?,
                row.get(1)?,
                unsigned(row.get(2)?),
                row.get::<_, u32>(3)?,
                row.get::<_, bool>(4)?,
            ))
        },
    )?;
    let Some((changed, size, ino, body, is_text)) = found else {
        return Ok(None);
    };
    if nodes::find(db, ino)?.is_none() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    if is_text {
        content::read(db, ino, body.into(), TEXT_MAX, &mut bytes)?;
    }
    // What is read may end within a character, which is then dropped.
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Some((changed, size, text)))
}
