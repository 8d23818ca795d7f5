//! Agent memory with embeddings, through its store and with a fake model: the queue, recalls meanwhile,
//! failures. The real model is in `tests/end_to_end/agent_memory.rs`.

use crate::common;

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use backends::agent_memory::{AgentMemory, Embedder, EmbeddingState, Embeddings};
use backends::store::{Caller, Change, Ino, Kind, ROOT, RenameMode, Store, Timestamp};
use common::{create, node, read};
use proptest::prelude::*;

/// Words to which the model gives the same meaning.
const MEANINGS: [&[&str]; 4] = [
    &["cat", "cats", "feline", "felines", "kitten"],
    &["sleep", "sleeps", "nap", "naps", "rest"],
    &["money", "revenue", "budget", "cost"],
    &["exit", "leave", "sell"],
];

/// What the model has embedded, and what it may embed.
#[derive(Debug, Default)]
struct Asked {
    /// The first word of every note that was embedded, in order.
    notes: Vec<String>,
    /// How many more batches may be embedded; `None` for all.
    may: Option<usize>,
    /// Batches begun so far.
    begun: usize,
    /// How many of the next batches fail.
    fails: usize,
}

/// A fake model: one dimension a meaning, and some for all other words. Only notes wait for `may`.
#[derive(Debug, Default)]
struct Model {
    id: String,
    asked: Mutex<Asked>,
    changed: Condvar,
    /// The words; a piece is an index into them.
    words: Mutex<Vec<String>>,
}

impl Model {
    fn new(may: Option<usize>) -> Arc<Self> {
        let model = Self {
            id: "fake".to_owned(),
            ..Self::default()
        };
        model.asked.lock().unwrap().may = may;
        Arc::new(model)
    }

    fn let_go_on(&self, batches: usize) {
        let mut asked = self.asked.lock().unwrap();
        asked.may = asked.may.map(|may| may + batches);
        self.changed.notify_all();
    }

    fn let_go_on_for_ever(&self) {
        self.asked.lock().unwrap().may = None;
        self.changed.notify_all();
    }

    /// Waits until `batches` batches have begun.
    fn begun(&self, batches: usize) {
        let asked = self.asked.lock().unwrap();
        let within = Duration::from_secs(20);
        let waited = self
            .changed
            .wait_timeout_while(asked, within, |asked| asked.begun < batches);
        let (asked, _) = waited.unwrap();
        assert!(asked.begun >= batches, "{asked:?}");
    }

    fn notes(&self) -> Vec<String> {
        self.asked.lock().unwrap().notes.clone()
    }
}

impl Embedder for Model {
    fn id(&self) -> &str {
        &self.id
    }

    fn dimensions(&self) -> usize {
        MEANINGS.len() + 60
    }

    fn pieces(&self, text: &str) -> Vec<u32> {
        let mut known = self.words.lock().unwrap();
        let cut = text.split(|c: char| !c.is_alphanumeric());
        cut.filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .map(|word| {
                let at = known.iter().position(|known| *known == word);
                at.unwrap_or_else(|| {
                    known.push(word);
                    known.len() - 1
                }) as u32
            })
            .collect()
    }

    fn embed(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, String> {
        let word = |piece: &u32| self.words.lock().unwrap()[*piece as usize].clone();
        if std::thread::current().name() == Some("embeddings") && !texts.is_empty() {
            let mut asked = self.asked.lock().unwrap();
            asked.begun += 1;
            self.changed.notify_all();
            if asked.fails > 0 {
                asked.fails -= 1;
                return Err("it is a bad day".to_owned());
            }
            // With a limit, so that a failed test ends.
            let within = Duration::from_secs(20);
            let (mut asked, _) = self
                .changed
                .wait_timeout_while(asked, within, |asked| asked.may == Some(0))
                .unwrap();
            asked.may = asked.may.map(|may| may.saturating_sub(1));
            asked.notes.extend(texts.iter().map(|text| word(&text[0])));
        }
        Ok(texts
            .iter()
            .map(|text| {
                let mut vector = vec![0.0_f32; self.dimensions()];
                for piece in text {
                    let word = word(piece);
                    let meaning = MEANINGS.iter().position(|m| m.contains(&&*word));
                    match meaning {
                        Some(meaning) => vector[meaning] += 5.0,
                        None => {
                            let sum: usize = word.bytes().map(usize::from).sum();
                            vector[MEANINGS.len() + sum % 60] += 1.0;
                        }
                    }
                }
                let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
                vector.iter_mut().for_each(|x| *x /= length);
                vector
            })
            .collect())
    }
}

const NOW: i64 = 1_795_300_000_000_000_000;

/// Returns a later time at each call.
fn caller() -> Caller {
    static CLOCK: AtomicI64 = AtomicI64::new(NOW);
    Caller {
        uid: 1000,
        gid: 100,
        now: Timestamp(CLOCK.fetch_add(1000, Ordering::Relaxed)),
    }
}

fn open(path: &Path, agent: Option<&str>) -> AgentMemory {
    let clock = Box::new(|| Timestamp(NOW + 60_000_000_000));
    AgentMemory::open_at(path, &caller(), agent, clock).unwrap()
}

fn open_with(path: &Path, agent: Option<&str>, model: &Arc<Model>) -> AgentMemory {
    let mut store = open(path, agent);
    let model = Arc::clone(model);
    store.set_embedder(move || Ok(model)).unwrap();
    until(|| !matches!(store.embeddings(), EmbeddingState::Loading));
    store
}

fn until(mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed().as_secs() < 20, "waited in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn write(store: &AgentMemory, dir: Ino, name: &str, text: &str) -> Ino {
    let caller = caller();
    let ino = match store.lookup(dir, name.as_bytes()) {
        Ok(attr) => {
            let empty = Change {
                size: Some(0),
                ..Change::default()
            };
            store.setattr(&caller, attr.ino, &empty).unwrap();
            attr.ino
        }
        Err(_) => {
            let made = store.create(&caller, dir, name.as_bytes(), &node(Kind::File));
            made.unwrap().ino
        }
    };
    store.write(&caller, ino, 0, text.as_bytes()).unwrap();
    store.lookup(ROOT, b":stats").unwrap();
    ino
}

/// Like `rm`: no request follows, so that the index has the note for a while.
fn remove(store: &AgentMemory, dir: Ino, name: &str) {
    if let Some(ino) = store.unlink(&caller(), dir, name.as_bytes()).unwrap() {
        store.reclaim(ino).unwrap();
    }
}

fn ask(store: &AgentMemory, dir: Ino, name: &str) -> String {
    let attr = store.lookup(dir, name.as_bytes()).unwrap();
    String::from_utf8(read(store, attr.ino, 0, 1 << 20)).unwrap()
}

fn embedded(store: &AgentMemory) {
    until(|| matches!(store.embeddings(), EmbeddingState::Ready { waiting: 0, .. }));
}

/// How relevance is computed, by the first line of an answer.
fn basis(answer: &str) -> &str {
    let first = answer.lines().next().unwrap();
    first.split(" tokens, ").nth(1).unwrap_or(first)
}

#[test]
fn a_recall_uses_full_text_while_the_model_loads_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir.path().join("m.db"), None);
    write(&store, ROOT, "pets.md", "My cat naps.\n");
    assert_eq!(basis(&ask(&store, ROOT, ":recall?cat")), "by full text");
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let load = move || {
        gone.recv().unwrap();
        Ok(Model::new(None) as Arc<dyn Embedder>)
    };
    store.set_embedder(load).unwrap();
    let reading = "by full text (the embedding model is being read)";
    assert_eq!(basis(&ask(&store, ROOT, ":recall?cat")), reading);
    assert!(ask(&store, ROOT, ":recall?felines").contains(reading));
    assert!(ask(&store, ROOT, ":stats").contains("the embedding model is being read"));
    go.send(()).unwrap();
    embedded(&store);
    let found = ask(&store, ROOT, ":recall?felines");
    assert_eq!(basis(&found), "by full text and meaning");
    assert!(found.contains("My cat naps."), "{found}");
}

#[test]
fn a_recall_finds_notes_without_a_vector_by_words_and_counts_them() {
    let dir = tempfile::tempdir().unwrap();
    let model = Model::new(Some(0));
    let store = open_with(&dir.path().join("m.db"), None, &model);
    // A request does not wait for the model, which may not embed yet.
    write(&store, ROOT, "pets.md", "Cats sleep.\n");
    model.begun(1);
    write(&store, ROOT, "money.md", "Revenue rose.\n");
    let by_words = ask(&store, ROOT, ":recall?cats");
    let missing = "2 of 2 notes have no embedding yet: by full text";
    assert!(by_words.contains("Cats sleep."), "{by_words}");
    assert_eq!(
        basis(&by_words),
        format!("by full text and meaning; {missing}")
    );
    let by_meaning = ask(&store, ROOT, ":recall?felines");
    assert!(
        by_meaning.starts_with("# nothing found") && by_meaning.contains(missing),
        "{by_meaning}"
    );
    assert!(ask(&store, ROOT, ":stats").contains("waiting-to-be-embedded: 2\n"));
    model.let_go_on(1);
    model.begun(2);
    let half = ask(&store, ROOT, ":recall?felines");
    assert!(
        half.contains("Cats sleep.")
            && half.contains("1 of 2 notes have no embedding yet: by full text"),
        "{half}"
    );
    model.let_go_on(1);
    embedded(&store);
    assert_eq!(
        basis(&ask(&store, ROOT, ":recall?felines")),
        "by full text and meaning"
    );
}

#[test]
fn the_worker_embeds_the_newest_notes_first_and_stops_after_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let model = Model::new(Some(0));
    let store = open_with(&path, None, &model);
    write(&store, ROOT, "0.md", "n0 cat\n");
    // The model has begun the first note before the others are written.
    model.begun(1);
    for number in 1..=40 {
        write(
            &store,
            ROOT,
            &format!("{number}.md"),
            &format!("n{number} cat\n"),
        );
    }
    model.let_go_on(2);
    model.begun(3);
    let mut expected = vec!["n0".to_owned()];
    expected.extend((9..=40).rev().map(|number| format!("n{number}")));
    assert_eq!(model.notes(), expected);
    // A stop does not wait for the remaining notes; the next mount embeds them.
    let stops = std::thread::spawn(move || drop(store));
    std::thread::sleep(Duration::from_millis(200));
    model.let_go_on(1);
    stops.join().unwrap();
    assert_eq!(model.asked.lock().unwrap().begun, 3);
    let next = Model::new(None);
    let store = open_with(&path, None, &next);
    embedded(&store);
    let rest: Vec<String> = (1..=8).rev().map(|number| format!("n{number}")).collect();
    assert_eq!(next.notes(), rest);
}

#[test]
fn a_note_changed_during_its_embedding_is_embedded_again() {
    let dir = tempfile::tempdir().unwrap();
    let model = Model::new(Some(0));
    let store = open_with(&dir.path().join("m.db"), None, &model);
    write(&store, ROOT, "note.md", "kitten\n");
    model.begun(1);
    // Size and inode stay the same, so only the modification time shows the change.
    write(&store, ROOT, "note.md", "budget\n");
    model.let_go_on_for_ever();
    embedded(&store);
    assert_eq!(model.notes(), ["kitten", "budget"]);
    assert!(ask(&store, ROOT, ":recall?felines").starts_with("# nothing found"));
    assert!(ask(&store, ROOT, ":recall?money").contains("budget"));
}

#[test]
fn the_worker_skips_notes_removed_while_they_waited() {
    let dir = tempfile::tempdir().unwrap();
    let model = Model::new(Some(0));
    let store = open_with(&dir.path().join("m.db"), None, &model);
    write(&store, ROOT, "first.md", "cat\n");
    model.begun(1);
    for number in 0..5 {
        write(&store, ROOT, &format!("{number}.md"), "revenue\n");
    }
    // Without a request, the index still has the notes for a while.
    for number in 0..5 {
        remove(&store, ROOT, &format!("{number}.md"));
    }
    model.let_go_on_for_ever();
    embedded(&store);
    assert_eq!(model.notes(), ["cat"]);
    // A removed note with a vector is no longer counted.
    remove(&store, ROOT, "first.md");
    model.asked.lock().unwrap().may = Some(0);
    write(&store, ROOT, "last.md", "kitten\n");
    let found = ask(&store, ROOT, ":recall?kitten");
    assert!(
        found.contains("1 of 1 notes have no embedding yet"),
        "{found}"
    );
    remove(&store, ROOT, "last.md");
    model.let_go_on_for_ever();
    // The new note reuses the id of a removed one.
    write(&store, ROOT, "new.md", "naps\n");
    embedded(&store);
    let found = ask(&store, ROOT, ":recall?rest");
    assert!(
        found.contains("new.md") && basis(&found) == "by full text and meaning",
        "{found}"
    );
}

#[test]
fn the_worker_retries_a_failed_batch_and_stops_at_the_fifth_failure() {
    let dir = tempfile::tempdir().unwrap();
    let model = Model::new(None);
    model.asked.lock().unwrap().fails = 1;
    let store = open_with(&dir.path().join("m.db"), None, &model);
    write(&store, ROOT, "note.md", "cat\n");
    embedded(&store);
    assert!(ask(&store, ROOT, ":recall?felines").contains("note.md"));
    model.asked.lock().unwrap().fails = usize::MAX;
    write(&store, ROOT, "more.md", "kitten\n");
    until(|| matches!(store.embeddings(), EmbeddingState::Failed(_)));
    let found = ask(&store, ROOT, ":recall?kitten");
    assert!(
        found.contains("more.md")
            && found.contains("by full text (embeddings have failed, see :stats)"),
        "{found}"
    );
    let stats = ask(&store, ROOT, ":stats");
    assert!(
        stats.contains("embeddings have failed: it is a bad day"),
        "{stats}"
    );
}

#[test]
fn vectors_outlive_mounts_and_moves_but_not_their_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let model = Model::new(None);
    let store = open_with(&path, None, &model);
    let aside = create(&store, ROOT, "aside", Kind::Directory).ino;
    write(&store, ROOT, "pets.md", "cat\n");
    write(&store, ROOT, "binary", "\0\0");
    embedded(&store);
    store
        .rename(
            &caller(),
            (ROOT, b"pets.md"),
            (aside, b"p.md"),
            RenameMode::Replace,
        )
        .unwrap();
    let asked = ":recall?felines";
    assert!(ask(&store, ROOT, asked).contains("/aside/p.md"));
    drop(store);
    // The vector also survives a move on a mount without a model.
    let store = open(&path, None);
    store
        .rename(
            &caller(),
            (aside, b"p.md"),
            (aside, b"q.md"),
            RenameMode::Replace,
        )
        .unwrap();
    assert!(ask(&store, ROOT, asked).starts_with("# nothing found"));
    drop(store);
    let again = Model::new(None);
    let store = open_with(&path, None, &again);
    embedded(&store);
    assert!(ask(&store, ROOT, asked).contains("/aside/q.md"));
    assert_eq!(again.notes(), Vec::<String>::new());
    drop(store);
    let other = Arc::new(Model {
        id: "another".to_owned(),
        ..Model::default()
    });
    let store = open_with(&path, None, &other);
    embedded(&store);
    assert_eq!(other.notes(), ["cat"]);
    assert!(ask(&store, ROOT, asked).contains("/aside/q.md"));
}

#[test]
fn a_recall_ranks_the_closer_of_two_notes_with_equal_words_first() {
    let dir = tempfile::tempdir().unwrap();
    let model = Model::new(None);
    let store = open_with(&dir.path().join("m.db"), None, &model);
    // Both notes have the word; the older one is closer in meaning.
    write(&store, ROOT, "close.md", "tuesday kitten\n");
    write(&store, ROOT, "far.md", "tuesday revenue\n");
    write(&store, ROOT, "other.md", "budget of the month\n");
    let order = |answer: &str| -> Vec<String> {
        let names = answer.lines().filter_map(|line| line.strip_prefix("## /"));
        names.map(str::to_owned).collect()
    };
    embedded(&store);
    let found = ask(&store, ROOT, ":recall?tuesday+feline");
    assert_eq!(order(&found).first().unwrap(), "close.md", "{found}");
    drop(store);
    let plain = open(&dir.path().join("m.db"), None);
    let found = ask(&plain, ROOT, ":recall?tuesday+feline");
    assert_eq!(order(&found), ["far.md", "close.md"], "the newer first");
}

#[test]
fn a_recall_by_meaning_hides_private_notes_and_notes_out_of_scope() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let question = ":recall?felines";
    let below = |store: &AgentMemory, agent: &str| {
        let memory = store.lookup(ROOT, b"memory").unwrap().ino;
        let all = store.lookup(memory, b"private").unwrap().ino;
        store.lookup(all, agent.as_bytes()).unwrap().ino
    };
    let model = Model::new(None);
    let store = open_with(&path, Some("kim"), &model);
    write(&store, below(&store, "kim"), "secret.md", "My cat naps.\n");
    embedded(&store);
    assert!(ask(&store, ROOT, question).contains("secret.md"));
    drop(store);
    let store = open_with(&path, Some("lee"), &model);
    embedded(&store);
    assert!(ask(&store, ROOT, question).starts_with("# nothing found"));
    let aside = create(&store, ROOT, "aside", Kind::Directory).ino;
    write(&store, ROOT, "here.md", "kitten\n");
    embedded(&store);
    let found = ask(&store, ROOT, question);
    assert!(
        found.contains("here.md") && !found.contains("secret.md"),
        "{found}"
    );
    assert!(ask(&store, aside, question).starts_with("# nothing found"));
}

#[test]
fn a_recall_by_meaning_hides_expired_notes() {
    let dir = tempfile::tempdir().unwrap();
    let model = Model::new(None);
    let store = open_with(&dir.path().join("m.db"), None, &model);
    write(&store, ROOT, "old.md", "---\nttl: 1s\n---\nkitten\n");
    write(&store, ROOT, "new.md", "---\nttl: 7d\n---\nkitten too\n");
    embedded(&store);
    let found = ask(&store, ROOT, ":recall?felines");
    assert!(
        found.contains("new.md") && !found.contains("old.md"),
        "{found}"
    );
}

#[test]
fn a_memory_refuses_a_directory_without_a_model_and_reports_a_broken_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir.path().join("m.db"), None);
    write(&store, ROOT, "rule.md", "RSI > 70 means exit\n");
    let model = dir.path().join("model");
    let refused = store
        .set_embeddings(Embeddings::In(model.clone()))
        .unwrap_err();
    assert!(refused.contains("config.json"), "{refused}");
    std::fs::create_dir_all(model.join("1_Pooling")).unwrap();
    let config = r#"{"model_type": "bert", "hidden_act": "gelu", "hidden_size": 4, "intermediate_size": 8,
        "layer_norm_eps": 1e-12, "max_position_embeddings": 16, "num_attention_heads": 2,
        "num_hidden_layers": 1, "vocab_size": 5}"#;
    std::fs::write(model.join("config.json"), config).unwrap();
    let pooling = r#"{"pooling_mode_mean_tokens": true}"#;
    std::fs::write(model.join("1_Pooling/config.json"), pooling).unwrap();
    std::fs::write(model.join("vocab.txt"), "[UNK]\n[CLS]\n[SEP]\n").unwrap();
    std::fs::write(model.join("model.safetensors"), "no tensors").unwrap();
    store.set_embeddings(Embeddings::In(model)).unwrap();
    until(|| matches!(store.embeddings(), EmbeddingState::Failed(_)));
    let stats = ask(&store, ROOT, ":stats");
    assert!(
        stats.contains("embeddings have failed: ") && stats.contains("model.safetensors"),
        "{stats}"
    );
    store
        .set_embedder(|| panic!("on purpose: a model that panics"))
        .unwrap();
    until(|| matches!(store.embeddings(), EmbeddingState::Failed(_)));
    let recalled = ask(&store, ROOT, ":recall?RSI");
    assert!(
        recalled.contains("by full text (embeddings have failed, see :stats)")
            && recalled.contains("RSI > 70"),
        "{recalled}"
    );
    let stats = ask(&store, ROOT, ":stats");
    assert!(
        stats.contains("embeddings have failed: its thread panicked"),
        "{stats}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_recall_by_meaning_never_exceeds_its_budget(
        notes in prop::collection::vec("(cat|nap|budget|tuesday|[a-z ]{1,30}\n){1,30}", 1..20),
        question in "(feline|rest|money|tuesday)( (kitten|sleep|cost|exit)){0,3}",
        max_tokens in 64_u64..600,
        batches in 0_usize..4,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let model = Model::new(Some(0));
        let store = open_with(&dir.path().join("m.db"), None, &model);
        for (number, text) in notes.iter().enumerate() {
            write(&store, ROOT, &format!("{number}.md"), text);
        }
        model.let_go_on(batches);
        let asked = question.replace(' ', "+");
        // The worker adds vectors while the recalls run.
        for _ in 0..3 {
            let answer = ask(&store, ROOT, &format!(":recall?query={asked}&max_tokens={max_tokens}"));
            let counted = tokens::count(&answer);
            prop_assert!(counted <= max_tokens, "{counted} of {max_tokens}: {answer}");
            prop_assert!(answer.contains("by full text"), "{answer}");
        }
        model.let_go_on_for_ever();
        let recall = || ask(&store, ROOT, &format!(":recall?query={asked}&max_tokens={max_tokens}"));
        // The queue may not have the newest notes yet.
        until(|| !recall().contains("no embedding yet"));
        let answer = recall();
        prop_assert!(tokens::count(&answer) <= max_tokens, "{answer}");
        prop_assert!(answer.contains("by full text and meaning"), "{answer}");
        prop_assert!(!answer.contains("no embedding yet"), "{answer}");
    }
}
