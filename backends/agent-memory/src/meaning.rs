//! Relevance by meaning: the vectors of questions, and the queue of notes without a vector.
//!
//! Vectors are rows of `memory_embedding`, derived like the rest of the index. A thread of the lowest priority
//! embeds notes, newest first, without a lock. The state in memory changes under the database lock, so both
//! agree. Models are in [`super::embedder`], stored vectors in [`super::vectors`].

use std::collections::{BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fuse::store::Result;
use parking_lot::{Condvar, Mutex};
use rusqlite::params;
use sqlite::SqliteStore;
use sqlite::tables::nodes::{self, unsigned};
use sqlite::tables::{Db, content, first};

use crate::embedder::{Embedder, EmbeddingState};
use crate::index::RefreshResult;
use crate::paths::{PathCache, Scope};
use crate::vectors::{Signs, cosine, packed};

/// Bytes of a body that are read, more than a model embeds.
const TEXT_MAX: usize = 4096;

/// Word pieces in a batch. They take about a tenth of a second, which a stop has to wait for.
const BATCH_PIECES: usize = 512;

/// The most notes in a batch.
const BATCH_NOTES: usize = 32;

/// Vectors of questions that are cached, for a repeat with another budget or in another directory.
const QUESTIONS_KEPT: usize = 8;

/// How many notes in scope are compared by vector, and of how many notes with the nearest signs they are taken.
pub(super) const NEAREST: usize = 256;
const NEAREST_SCOPED: usize = 1024;

/// Failures in a row that stop embedding, and the pause after each.
const FAILURES_MAX: u32 = 5;
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

enum State {
    Loading,
    Ready(Arc<dyn Embedder>),
    Failed(String),
}

/// The state of the notes. A thread that needs both locks locks the database first.
struct NoteVectors {
    state: State,
    signs: Signs,
    /// Notes without a vector.
    waiting: BTreeSet<i64>,
}

struct SharedState {
    /// `None` once embedding is to end. Held while the thread reads notes or stores vectors, and not while it embeds.
    files: Mutex<Option<Arc<SqliteStore>>>,
    note_vectors: Mutex<NoteVectors>,
    wake: Condvar,
    stops: AtomicBool,
    questions: Mutex<VecDeque<(String, Arc<Vec<f32>>)>>,
    embedded: AtomicU64,
    /// Counts changes that may invalidate an answer; shared with [`super::AgentMemory`].
    changes: Arc<AtomicU64>,
}

/// The embedding thread of an open memory, and its state.
pub(super) struct Meaning {
    shared: Arc<SharedState>,
}

/// A question, with its vector if there is one.
#[derive(Debug)]
pub(super) struct QuestionEmbedding {
    /// How relevance is computed, for the answer's first line.
    pub(super) basis: String,
    /// The question's vector, its model, and the notes whose signs are nearest.
    vector: Option<(Arc<Vec<f32>>, String, Vec<i64>)>,
}

impl QuestionEmbedding {
    /// A question without a vector; the answer shows `why`, if given.
    pub(super) fn by_text(why: Option<&str>) -> Self {
        Self {
            basis: match why {
                None => "by full text".to_owned(),
                Some(why) => format!("by full text ({why})"),
            },
            vector: None,
        }
    }

    /// Whether notes with a vector are compared by meaning.
    pub(super) fn is_by_meaning(&self) -> bool {
        self.vector.is_some()
    }

    /// The question's vector, of length 1.
    pub(super) fn vector(&self) -> Option<&[f32]> {
        self.vector.as_ref().map(|(vector, _, _)| &***vector)
    }

    /// The model of the question's vector.
    pub(super) fn model(&self) -> Option<&str> {
        self.vector.as_ref().map(|(_, model, _)| &**model)
    }

    /// The notes in scope nearest to the question, at most `most` of [`NEAREST`], the nearest first.
    pub(super) fn nearest(&self, db: &Db, paths: &PathCache, scope: &Scope, most: usize) -> Result<Vec<(i64, f64)>> {
        let Some((vector, model, ids)) = &self.vector else {
            return Ok(Vec::new());
        };
        let has_expired = "SELECT 1 FROM memory_note WHERE is_found = 0 AND expires IS NOT NULL LIMIT 1";
        let has_expired = db.row(has_expired, (), |_| Ok(()))?.is_some();
        let mut vectors = db.statement("SELECT vector FROM memory_embedding WHERE id = ?1 AND model = ?2")?;
        let mut near = Vec::new();
        for id in ids {
            if has_expired || !scope.is_whole() {
                let sql = "SELECT dir FROM memory_note WHERE id = ?1 AND is_found = 1";
                let dir = db.row(sql, [id], |row| Ok(unsigned(row.get(0)?)))?;
                let is_covered = match dir {
                    Some(dir) => scope.covers(&*paths.of(db, dir)?),
                    None => false,
                };
                if !is_covered {
                    continue;
                }
            }
            let cosine = first(&mut vectors, params![id, model], |row| Ok(cosine(vector, row.get_ref(0)?.as_blob()?)))?;
            near.extend(cosine.flatten().map(|cosine| (*id, cosine)));
            if near.len() == NEAREST {
                break;
            }
        }
        near.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        near.truncate(most);
        Ok(near)
    }
}

impl Meaning {
    /// Starts the thread, which loads the model and then embeds notes without a vector of it.
    pub(super) fn start(
        load: impl FnOnce() -> std::result::Result<Arc<dyn Embedder>, String> + Send + 'static,
        files: Arc<SqliteStore>,
        changes: Arc<AtomicU64>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(SharedState {
            files: Mutex::new(Some(files)),
            note_vectors: Mutex::new(NoteVectors {
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
        std::thread::Builder::new().name("embeddings".to_owned()).spawn(move || {
            // Lower the priority of this thread only: embedding must not compete with requests.
            let thread = rustix::thread::gettid();
            if let Err(error) = rustix::process::setpriority_process(Some(thread), 19) {
                tracing::warn!(%error, "embedding runs at the priority of requests");
            }
            let work = || load().and_then(|model| for_worker.work(&model));
            // Catch panics: the state must not stay `Loading` for ever.
            let done = std::panic::catch_unwind(AssertUnwindSafe(work));
            let done = done.unwrap_or_else(|_| Err("its thread panicked".to_owned()));
            if let Err(reason) = done {
                tracing::error!("embedding has stopped: {reason}");
                for_worker.note_vectors.lock().state = State::Failed(reason);
                for_worker.changes.fetch_add(1, Ordering::AcqRel);
            }
        })?;
        Ok(Self { shared })
    }

    /// The state of embedding.
    pub(super) fn state(&self) -> EmbeddingState {
        let note_vectors = self.shared.note_vectors.lock();
        match &note_vectors.state {
            State::Loading => EmbeddingState::Loading,
            State::Ready(model) => {
                EmbeddingState::Ready { model: model.id().to_owned(), waiting: note_vectors.waiting.len() as u64 }
            }
            State::Failed(reason) => EmbeddingState::Failed(reason.clone()),
        }
    }

    /// The number of notes embedded since the start.
    pub(super) fn embedded(&self) -> u64 {
        self.shared.embedded.load(Ordering::Relaxed)
    }

    /// Applies a refresh of the index. The caller holds the database lock.
    pub(super) fn take_up(&self, done: &RefreshResult) {
        let mut note_vectors = self.shared.note_vectors.lock();
        // Until the model is loaded there is no state; then all of it is read from the database.
        if !matches!(note_vectors.state, State::Ready(_)) {
            return;
        }
        for id in &done.forgotten {
            note_vectors.waiting.remove(id);
            note_vectors.signs.remove(*id);
        }
        if !done.added.is_empty() {
            note_vectors.waiting.extend(&done.added);
            self.shared.wake.notify_all();
        }
    }

    /// Embeds a question. The caller must hold no lock, because this takes milliseconds.
    pub(super) fn ask(&self, query: &str) -> QuestionEmbedding {
        let model = match &self.shared.note_vectors.lock().state {
            State::Loading => return QuestionEmbedding::by_text(Some("the embedding model is loading")),
            State::Failed(_) => return QuestionEmbedding::by_text(Some("embedding has failed; see :stats")),
            State::Ready(model) => Arc::clone(model),
        };
        let vector = match self.shared.vector(&*model, query) {
            Ok(vector) => vector,
            Err(error) => {
                tracing::warn!(error, "could not embed a question");
                return QuestionEmbedding::by_text(Some("the question could not be embedded"));
            }
        };
        let note_vectors = self.shared.note_vectors.lock();
        let missing = note_vectors.waiting.len();
        let all = missing + note_vectors.signs.len();
        let basis = match missing {
            0 => "by full text and meaning".to_owned(),
            _ => format!("by full text and meaning; {missing} of {all} notes have no embedding yet: by full text"),
        };
        let nearest = note_vectors.signs.nearest(&vector, NEAREST_SCOPED);
        QuestionEmbedding { basis, vector: Some((vector, model.id().to_owned(), nearest)) }
    }
}

impl Drop for Meaning {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        // Take the lock once, or a worker between its check and its wait would miss the wakeup.
        drop(self.shared.note_vectors.lock());
        self.shared.wake.notify_all();
        // From here on the thread does not touch the store. It is not joined: on a busy machine, at its priority, the model
        // takes minutes for a batch, or to load.
        let files = self.shared.files.lock().take();
        drop(files);
    }
}

/// A note to embed, as it was when it was read.
struct EmbeddingJob {
    id: i64,
    changed: i64,
    size: i64,
    pieces: Vec<u32>,
}

impl SharedState {
    fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// The vector of a question, from the cache or the model.
    fn vector(&self, model: &dyn Embedder, query: &str) -> std::result::Result<Arc<Vec<f32>>, String> {
        let kept = self.questions.lock().iter().find(|(kept, _)| kept == query).map(|(_, vector)| Arc::clone(vector));
        if let Some(vector) = kept {
            return Ok(vector);
        }
        let pieces = model.question(query);
        if pieces.is_empty() {
            return Err("it has no word".to_owned());
        }
        let vector = model.embed(&[pieces])?.pop();
        let vector = Arc::new(vector.unwrap_or_default());
        let mut questions = self.questions.lock();
        questions.push_back((query.to_owned(), Arc::clone(&vector)));
        if questions.len() > QUESTIONS_KEPT {
            questions.pop_front();
        }
        Ok(vector)
    }

    /// Runs `work` on the store; `None` if embedding is to end.
    fn with_files<T>(&self, work: impl FnOnce(&SqliteStore) -> T) -> Option<T> {
        self.files.lock().as_deref().map(work)
    }

    fn work(&self, model: &Arc<dyn Embedder>) -> std::result::Result<(), String> {
        let read = self.with_files(|files| self.read_vectors(&files.db(), model));
        read.transpose().map_err(|error| error.to_string())?;
        let mut failures = 0;
        while let Some(ids) = self.next() {
            match self.embed(&**model, &ids) {
                Ok(()) => failures = 0,
                Err(reason) => {
                    failures += 1;
                    if failures == FAILURES_MAX {
                        return Err(reason);
                    }
                    tracing::warn!("could not embed notes, will retry: {reason}");
                    let is_on = |_: &mut NoteVectors| !self.stops();
                    self.wake.wait_while_for(&mut self.note_vectors.lock(), is_on, FAILURE_PAUSE);
                }
            }
        }
        Ok(())
    }

    /// Reads from the database which notes have a vector of `model`.
    fn read_vectors(&self, db: &Db, model: &Arc<dyn Embedder>) -> Result<()> {
        let mut note_vectors = self.note_vectors.lock();
        note_vectors.signs = Signs::new(model.dimensions());
        let mut statement = db.statement(
            "SELECT n.id, e.vector FROM memory_note n LEFT JOIN memory_embedding e ON e.id = n.id AND e.model = ?1",
        )?;
        let mut rows = statement.query([model.id()])?;
        while let Some(row) = rows.next()? {
            let id = row.get(0)?;
            let vector = row.get_ref(1)?.as_blob_or_null();
            match vector.map_err(rusqlite::Error::from)? {
                Some(vector) if vector.is_empty() || vector.len() == model.dimensions() => {
                    note_vectors.signs.add(id, vector);
                }
                _ => {
                    note_vectors.waiting.insert(id);
                }
            }
        }
        note_vectors.state = State::Ready(Arc::clone(model));
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Waits for notes without a vector, and returns the newest. `None` to stop.
    fn next(&self) -> Option<Vec<i64>> {
        let is_idle = |note_vectors: &mut NoteVectors| note_vectors.waiting.is_empty() && !self.stops();
        let mut note_vectors = self.note_vectors.lock();
        self.wake.wait_while(&mut note_vectors, is_idle);
        let newest = note_vectors.waiting.iter().rev().take(BATCH_NOTES);
        (!self.stops()).then(|| newest.copied().collect())
    }

    /// Embeds one batch of the notes.
    fn embed(&self, model: &dyn Embedder, ids: &[i64]) -> std::result::Result<(), String> {
        let wanted = self.with_files(|files| self.read(files, model, ids));
        let Some(wanted) = wanted.transpose()? else {
            return Ok(());
        };
        let texts: Vec<Vec<u32>> =
            wanted.iter().filter(|note| !note.pieces.is_empty()).map(|note| note.pieces.clone()).collect();
        let made = model.embed(&texts)?;
        if made.len() != texts.len() || made.iter().any(|made| made.len() != model.dimensions()) {
            return Err("the model returned unexpected vectors".to_owned());
        }
        let mut made = made.iter();
        let vectors = wanted.into_iter().map(|note| {
            let has_text = !note.pieces.is_empty();
            let vector = has_text.then(|| made.next()).flatten();
            (note, vector.map(|made| packed(made)).unwrap_or_default())
        });
        let vectors: Vec<(EmbeddingJob, Vec<u8>)> = vectors.collect();
        let kept = self.with_files(|files| self.keep(files, model, &vectors));
        kept.transpose().map(|_| ()).map_err(|error| error.to_string())
    }

    /// Reads the pieces of one batch of the notes.
    fn read(
        &self,
        files: &SqliteStore,
        model: &dyn Embedder,
        ids: &[i64],
    ) -> std::result::Result<Vec<EmbeddingJob>, String> {
        let mut wanted: Vec<EmbeddingJob> = Vec::new();
        let mut pieces = 0;
        for id in ids {
            if self.stops() {
                break;
            }
            let (changed, size, text) = {
                let db = files.db();
                match text(&db, *id).map_err(|error| error.to_string())? {
                    Some(found) => found,
                    None => {
                        // Remove it under the database lock: a new note may reuse the id.
                        self.note_vectors.lock().waiting.remove(id);
                        continue;
                    }
                }
            };
            let text = model.note(&text);
            pieces += text.len();
            if pieces > BATCH_PIECES && !wanted.is_empty() {
                break;
            }
            wanted.push(EmbeddingJob { id: *id, changed, size, pieces: text });
        }
        Ok(wanted)
    }

    /// Stores vectors of notes that have not changed since they were read.
    fn keep(&self, files: &SqliteStore, model: &dyn Embedder, vectors: &[(EmbeddingJob, Vec<u8>)]) -> Result<()> {
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
        let mut note_vectors = self.note_vectors.lock();
        for (id, vector) in &kept {
            note_vectors.waiting.remove(id);
            note_vectors.signs.add(*id, vector);
        }
        drop((note_vectors, db));
        self.embedded.fetch_add(kept.len() as u64, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

/// The modification time, the size and the beginning of the body of a note; the body is empty if it is not
/// text. `None` if the note is gone, even if the index still has it.
fn text(db: &Db, id: i64) -> Result<Option<(i64, i64, String)>> {
    let found = db.row("SELECT changed, size, ino, body, is_text FROM memory_note WHERE id = ?1", [id], |row| {
        Ok((row.get(0)?, row.get(1)?, unsigned(row.get(2)?), row.get::<_, u32>(3)?, row.get::<_, bool>(4)?))
    })?;
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
    // The limit may cut the last character, which is then replaced.
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Some((changed, size, text)))
}
