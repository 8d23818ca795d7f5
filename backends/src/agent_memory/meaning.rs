//! Relevance by meaning: vectors of notes, made by a thread in the background, and the nearest to a question's.
//!
//! A vector is kept as one signed byte a number in `memory_embedding`, which is derived as the rest of the index is.
//! In memory are only the signs of its numbers, 48 bytes a note: whose signs differ least from the question's is
//! looked at closely. A question is embedded when it is asked; notes are embedded newest first, outside of every
//! lock, by a thread that has the lowest priority.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use embeddings::Model;
use rusqlite::params;

use super::index::Refreshed;
use super::paths::{Places, Scope};
use crate::sqlite::db::Db;
use crate::sqlite::nodes::unsigned;
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
const CANDIDATES: usize = 32;

/// Failures in a row after which no more is embedded.
const FAILURES_MAX: u32 = 5;

/// Where the model is that relevance by meaning needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Embeddings {
    /// Full text alone.
    Off {
        /// Why, for `:stats`.
        reason: String,
    },
    /// A directory that [`embeddings::Model::load`] reads.
    In(PathBuf),
}

/// How far embedding is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbeddingState {
    /// Full text alone, and why.
    Off(String),
    /// The model is being read.
    Loading,
    /// So many notes have no vector yet.
    Ready {
        /// See [`embeddings::Model::id`].
        model: String,
        /// Notes without a vector.
        waiting: u64,
    },
    /// The model or the database could not be read.
    Failed(String),
}

/// The signs of vectors, by note.
#[derive(Debug, Default)]
struct Signs {
    /// Words of 64 signs a vector.
    stride: usize,
    signs: Vec<u64>,
    ids: Vec<i64>,
    places: HashMap<i64, usize>,
    /// Notes without any text.
    blank: HashSet<i64>,
}

fn signs(vector: impl Iterator<Item = bool>, to: &mut Vec<u64>) {
    let mut word = 0;
    let mut count = 0;
    for is_positive in vector {
        word |= u64::from(is_positive) << (count % 64);
        count += 1;
        if count % 64 == 0 {
            to.push(std::mem::take(&mut word));
        }
    }
    if count % 64 != 0 {
        to.push(word);
    }
}

impl Signs {
    fn new(dimensions: usize) -> Self {
        Self {
            stride: dimensions.div_ceil(64),
            ..Self::default()
        }
    }

    fn add(&mut self, id: i64, vector: &[u8]) {
        self.remove(id);
        if vector.is_empty() {
            self.blank.insert(id);
            return;
        }
        self.places.insert(id, self.ids.len());
        self.ids.push(id);
        signs(
            vector.iter().map(|byte| byte.cast_signed() > 0),
            &mut self.signs,
        );
    }

    fn remove(&mut self, id: i64) {
        self.blank.remove(&id);
        let Some(place) = self.places.remove(&id) else {
            return;
        };
        self.ids.swap_remove(place);
        let last = self.ids.len() * self.stride;
        self.signs.copy_within(last.., place * self.stride);
        self.signs.truncate(last);
        if let Some(moved) = self.ids.get(place) {
            self.places.insert(*moved, place);
        }
    }

    fn len(&self) -> usize {
        self.ids.len() + self.blank.len()
    }

    /// Notes in the order in which their signs differ from a vector's, the `most` nearest.
    fn nearest(&self, vector: &[f32], most: usize) -> Vec<i64> {
        let mut wanted = Vec::with_capacity(self.stride);
        signs(vector.iter().map(|number| *number > 0.0), &mut wanted);
        if wanted.len() != self.stride || self.stride == 0 {
            return Vec::new();
        }
        let distances: Vec<u16> = self
            .signs
            .chunks_exact(self.stride)
            .map(|signs| {
                signs
                    .iter()
                    .zip(&wanted)
                    .map(|(a, b)| (a ^ b).count_ones() as u16)
                    .sum()
            })
            .collect();
        // There are few distances, and many notes: counted, not sorted.
        let mut counts = vec![0_usize; self.stride * 64 + 1];
        for distance in &distances {
            counts[usize::from(*distance)] += 1;
        }
        let mut sum = 0;
        let furthest = counts.iter().position(|count| {
            sum += count;
            sum >= most
        });
        let furthest = furthest.unwrap_or(counts.len());
        let near = distances
            .iter()
            .zip(&self.ids)
            .filter(|(distance, _)| usize::from(**distance) <= furthest);
        let mut near: Vec<(u16, i64)> = near.map(|(distance, id)| (*distance, *id)).collect();
        near.sort_unstable_by_key(|(distance, id)| (*distance, -id));
        near.truncate(most);
        near.into_iter().map(|(_, id)| id).collect()
    }
}

/// A vector as it is kept: one signed byte a number, the largest 127. Only its direction says anything.
fn packed(vector: &[f32]) -> Vec<u8> {
    let largest = vector
        .iter()
        .fold(0.0_f32, |largest, number| largest.max(number.abs()));
    let scale = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    vector
        .iter()
        .map(|number| ((number * scale).round() as i8).cast_unsigned())
        .collect()
}

/// The cosine of a vector of length 1 and a packed one; `None` if they are of different models.
fn cosine(vector: &[f32], packed: &[u8]) -> Option<f64> {
    if packed.len() != vector.len() || packed.is_empty() {
        return None;
    }
    let (mut product, mut square) = (0.0_f32, 0.0_f32);
    for (a, b) in vector.iter().zip(packed) {
        let b = f32::from(b.cast_signed());
        product += a * b;
        square += b * b;
    }
    (square > 0.0).then(|| f64::from(product / square.sqrt()))
}

enum State {
    Loading,
    Ready(Arc<Model>),
    Failed(String),
}

struct Shared {
    state: Mutex<State>,
    signs: Mutex<Signs>,
    /// Notes without a vector.
    waiting: Mutex<BTreeSet<i64>>,
    wake: Condvar,
    stops: AtomicBool,
    questions: Mutex<VecDeque<(String, Arc<Vec<f32>>)>>,
    embedded: AtomicU64,
    /// Counts what may change an answer: [`super::AgentMemory`]'s.
    changes: Arc<AtomicU64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The notes in scope that are nearest to the question, the nearest first.
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
        let mut looked_at = 0;
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
                looked_at += 1;
            }
            if looked_at == NEAREST {
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
        dir: PathBuf,
        files: Arc<SqliteStore>,
        changes: Arc<AtomicU64>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::Loading),
            signs: Mutex::default(),
            waiting: Mutex::default(),
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
                if let Err(reason) = for_worker.work(&dir, &files) {
                    tracing::error!("embeddings are given up: {reason}");
                    *lock(&for_worker.state) = State::Failed(reason);
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
        // One lock after the other: whoever holds the second may want the first.
        let waiting = lock(&self.shared.waiting).len() as u64;
        match &*lock(&self.shared.state) {
            State::Loading => EmbeddingState::Loading,
            State::Ready(model) => EmbeddingState::Ready {
                model: model.id().to_owned(),
                waiting,
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
        let shared = &self.shared;
        let mut waiting = lock(&shared.waiting);
        // Until the model is there nothing is known, and then all is read from the database.
        if !matches!(*lock(&shared.state), State::Ready(_)) {
            return;
        }
        let mut signs = lock(&shared.signs);
        for id in &done.forgotten {
            waiting.remove(id);
            signs.remove(*id);
        }
        if !done.added.is_empty() {
            waiting.extend(&done.added);
            shared.wake.notify_all();
        }
    }

    /// A question by its meaning. Takes some milliseconds: no lock is to be held.
    pub(super) fn ask(&self, query: &str, notes: u64) -> Meant {
        let model = match &*lock(&self.shared.state) {
            State::Loading => return Meant::by_text(Some("the embedding model is being read")),
            State::Failed(_) => return Meant::by_text(Some("embeddings have failed, see :stats")),
            State::Ready(model) => Arc::clone(model),
        };
        let vector = match self.shared.vector(&model, query) {
            Ok(vector) => vector,
            Err(error) => {
                tracing::warn!(%error, "a question is not embedded");
                return Meant::by_text(Some("the question could not be embedded"));
            }
        };
        let (nearest, known) = {
            let signs = lock(&self.shared.signs);
            (signs.nearest(&vector, NEAREST_SCOPED), signs.len() as u64)
        };
        let missing = notes.saturating_sub(known);
        let basis = match missing {
            0 => "by full text and meaning".to_owned(),
            _ => format!(
                "by full text and meaning; {missing} of {notes} notes have no embedding yet: by full text"
            ),
        };
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
        drop(lock(&self.shared.waiting));
        self.shared.wake.notify_all();
        if let Some(worker) = self.worker.take() {
            // It has said what went wrong.
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
    fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// The vector of a question, kept for when it is asked again.
    fn vector(
        &self,
        model: &Model,
        query: &str,
    ) -> std::result::Result<Arc<Vec<f32>>, embeddings::ModelError> {
        let kept = lock(&self.questions)
            .iter()
            .find(|(kept, _)| kept == query)
            .map(|(_, vector)| Arc::clone(vector));
        if let Some(vector) = kept {
            return Ok(vector);
        }
        let vector = Arc::new(
            model
                .embed(&[model.tokens(query)])?
                .pop()
                .unwrap_or_default(),
        );
        let mut questions = lock(&self.questions);
        questions.push_back((query.to_owned(), Arc::clone(&vector)));
        if questions.len() > QUESTIONS_KEPT {
            questions.pop_front();
        }
        Ok(vector)
    }

    fn work(&self, dir: &Path, files: &SqliteStore) -> std::result::Result<(), String> {
        let model = Arc::new(Model::load(dir).map_err(|error| error.to_string())?);
        if self.stops() {
            return Ok(());
        }
        self.read_known(&files.db(), &model)
            .map_err(|error| error.to_string())?;
        let mut failures = 0;
        while let Some(ids) = self.next() {
            match self.embed(files, &model, &ids) {
                Ok(()) => failures = 0,
                Err(reason) => {
                    failures += 1;
                    if failures == FAILURES_MAX {
                        return Err(reason);
                    }
                    tracing::warn!("notes are not embedded, and tried again: {reason}");
                    let waiting = lock(&self.waiting);
                    drop(
                        self.wake
                            .wait_timeout_while(waiting, Duration::from_secs(1), |_| !self.stops()),
                    );
                }
            }
        }
        Ok(())
    }

    /// Reads what was embedded before, and what was not.
    fn read_known(&self, db: &Db, model: &Arc<Model>) -> Result<()> {
        let mut waiting = lock(&self.waiting);
        let mut signs = Signs::new(model.dimensions());
        let mut statement = db.statement(
            "SELECT n.id, e.vector FROM memory_note n LEFT JOIN memory_embedding e ON e.id = n.id AND e.model = ?1",
        )?;
        let mut rows = statement.query([model.id()])?;
        while let Some(row) = rows.next()? {
            match (
                row.get(0)?,
                row.get_ref(1)?
                    .as_blob_or_null()
                    .map_err(rusqlite::Error::from)?,
            ) {
                (id, Some(vector)) if vector.is_empty() || vector.len() == model.dimensions() => {
                    signs.add(id, vector)
                }
                (id, _) => {
                    waiting.insert(id);
                }
            }
        }
        *lock(&self.signs) = signs;
        *lock(&self.state) = State::Ready(Arc::clone(model));
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Waits until there is something to do; the newest notes first. `None` to stop.
    fn next(&self) -> Option<Vec<i64>> {
        let waiting = lock(&self.waiting);
        let waiting = self
            .wake
            .wait_while(waiting, |waiting| waiting.is_empty() && !self.stops())
            .unwrap_or_else(PoisonError::into_inner);
        (!self.stops()).then(|| waiting.iter().rev().take(BATCH_NOTES).copied().collect())
    }

    /// Embeds as many of the notes as make a batch.
    fn embed(
        &self,
        files: &SqliteStore,
        model: &Model,
        ids: &[i64],
    ) -> std::result::Result<(), String> {
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut pieces = 0;
        for id in ids {
            let read = read(&files.db(), *id).map_err(|error| error.to_string())?;
            let Some((changed, size, text)) = read else {
                // It is gone, or has become another: whoever did that has said so.
                lock(&self.waiting).remove(id);
                continue;
            };
            let text = text.map(|text| model.tokens(&text)).unwrap_or_default();
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
        // The pieces that begin and end every text say nothing.
        let texts: Vec<Vec<u32>> = wanted
            .iter()
            .filter(|note| note.pieces.len() > 2)
            .map(|note| note.pieces.clone())
            .collect();
        let mut vectors = model
            .embed(&texts)
            .map_err(|error| error.to_string())?
            .into_iter();
        if self.stops() {
            return Ok(());
        }
        let kept = files.transaction(|db| {
            let mut kept = Vec::new();
            for note in &wanted {
                let vector = if note.pieces.len() > 2 { packed(&vectors.next().unwrap_or_default()) } else { Vec::new() };
                let is_kept = db.execute(
                    "INSERT OR REPLACE INTO memory_embedding (id, model, vector)
                     SELECT id, ?2, ?3 FROM memory_note WHERE id = ?1 AND changed = ?4 AND size = ?5",
                    params![note.id, model.id(), vector, note.changed, note.size],
                )?;
                if is_kept > 0 {
                    kept.push((note.id, vector));
                }
            }
            let (mut waiting, mut signs) = (lock(&self.waiting), lock(&self.signs));
            for (id, vector) in &kept {
                waiting.remove(id);
                signs.add(*id, vector);
            }
            Ok(kept.len())
        });
        let kept = kept.map_err(|error| error.to_string())?;
        self.embedded.fetch_add(kept as u64, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

/// When a note was changed, its size, and the beginning of its body if it is text.
fn read(db: &Db, id: i64) -> Result<Option<(i64, i64, Option<String>)>> {
    let found = db.row(
        "SELECT changed, size, ino, body, is_text FROM memory_note WHERE id = ?1",
        [id],
        |row| {
            let is_text: bool = row.get(4)?;
            Ok((
                row.get(0)?,
                row.get(1)?,
                unsigned(row.get(2)?),
                row.get::<_, u32>(3)?,
                is_text,
            ))
        },
    )?;
    let Some((changed, size, ino, body, is_text)) = found else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    if is_text {
        content::read(db, ino, body.into(), TEXT_MAX, &mut bytes)?;
    }
    // What is read may end within a character, which is then dropped.
    let text = is_text.then(|| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Some((changed, size, text)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_packed_keeps_its_direction() {
        let vector = [0.6, -0.8, 0.0];
        let packed = packed(&vector);
        assert_eq!(packed[1].cast_signed(), -127);
        assert!(cosine(&vector, &packed).unwrap() > 0.9999);
        assert!(cosine(&[0.8, 0.6, 0.0], &packed).unwrap().abs() < 0.01);
        assert_eq!(cosine(&vector, &packed[..2]), None);
        assert_eq!(cosine(&[], &[]), None);
    }

    #[test]
    fn the_nearest_come_first_and_what_is_forgotten_does_not_come() {
        let mut signs = Signs::new(4);
        let plus = 1_i8.cast_unsigned();
        let minus = (-1_i8).cast_unsigned();
        signs.add(1, &[plus, plus, plus, plus]);
        signs.add(2, &[plus, plus, minus, minus]);
        signs.add(3, &[minus, minus, minus, minus]);
        signs.add(4, &[]);
        assert_eq!(signs.nearest(&[1.0, 1.0, 1.0, -1.0], 3), [2, 1, 3]);
        assert_eq!(signs.nearest(&[1.0, 1.0, 1.0, -1.0], 1), [2]);
        signs.remove(1);
        assert_eq!(signs.nearest(&[1.0; 4], 9), [2, 3]);
        signs.add(3, &[plus, plus, plus, plus]);
        assert_eq!((signs.nearest(&[1.0; 4], 9), signs.len()), (vec![3, 2], 3));
    }

    proptest! {
        #[test]
        fn signs_follow_any_changes(steps in prop::collection::vec((0_i64..12, any::<Option<[i8; 3]>>()), 0..60)) {
            let mut signs = Signs::new(3);
            let mut model: HashMap<i64, [bool; 3]> = HashMap::new();
            for (id, vector) in steps {
                match vector {
                    Some(vector) => {
                        signs.add(id, &vector.map(i8::cast_unsigned));
                        model.insert(id, vector.map(|number| number > 0));
                    }
                    None => {
                        signs.remove(id);
                        model.remove(&id);
                    }
                }
            }
            let distance = |id: &i64| model[id].iter().filter(|sign| !**sign).count();
            let mut expected: Vec<i64> = model.keys().copied().collect();
            expected.sort_by_key(|id| (distance(id), -id));
            prop_assert_eq!(signs.nearest(&[1.0; 3], 100), expected);
        }
    }

    /// `cargo test --release -p backends --lib -- --ignored --nocapture meaning`
    #[test]
    #[ignore = "a measurement"]
    fn how_long_the_nearest_take() {
        for size in [1_000, 100_000, 1_000_000] {
            let mut signs = Signs::new(384);
            let mut state = 1_u64;
            let mut vector = || -> Vec<u8> {
                let mut random = || {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (state >> 56) as u8
                };
                (0..384).map(|_| random()).collect()
            };
            for id in 0..size {
                signs.add(id, &vector());
            }
            let question: Vec<f32> = vector()
                .iter()
                .map(|byte| f32::from(byte.cast_signed()))
                .collect();
            let mut times: Vec<f64> = (0..21)
                .map(|_| {
                    let started = std::time::Instant::now();
                    assert_eq!(signs.nearest(&question, NEAREST).len(), NEAREST);
                    started.elapsed().as_secs_f64() * 1e3
                })
                .collect();
            times.sort_by(f64::total_cmp);
            println!("{size} notes: {:.3} ms", times[10]);
        }
    }
}
