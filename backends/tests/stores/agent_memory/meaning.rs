//! Agent memory with embeddings, through its store and with a fake model: the queue, recalls meanwhile,
//! failures. The real model is in `tests/end_to_end/agent_memory.rs`.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use agent_memory::EmbeddingState::{Failed, Loading, Ready};
use agent_memory::{Embedder, Embeddings};
use fuse::store::{Kind, ROOT, Store};
use proptest::prelude::*;

use super::{Memory, place};
use crate::common::{create, has, write_files};
use crate::hosts::eventually;

/// Words to which the model gives the same meaning.
const MEANINGS: [&[&str]; 4] = [
    &["cat", "cats", "feline", "felines", "kitten"],
    &["sleep", "sleeps", "nap", "naps", "rest"],
    &["money", "revenue", "budget", "cost"],
    &["exit", "leave", "sell"],
];

/// The notes that the model has embedded, and how many more it may embed.
#[derive(Debug, Default)]
struct EmbeddingLog {
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
    asked: Mutex<EmbeddingLog>,
    changed: Condvar,
    /// The words; a piece is an index into them.
    words: Mutex<Vec<String>>,
}

impl Model {
    fn new(may: Option<usize>) -> Arc<Self> {
        let model = Self { id: "fake".to_owned(), ..Self::default() };
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
        let within = Duration::from_secs(60);
        let is_early = |asked: &mut EmbeddingLog| asked.begun < batches;
        let waited = self.changed.wait_timeout_while(asked, within, is_early);
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

    fn question(&self, text: &str) -> Vec<u32> {
        self.note(text)
    }

    fn note(&self, text: &str) -> Vec<u32> {
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
            let within = Duration::from_secs(120);
            let (mut asked, _) = self.changed.wait_timeout_while(asked, within, |asked| asked.may == Some(0)).unwrap();
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

impl Memory {
    fn open_with(path: &Path, agent: Option<&str>, model: &Arc<Model>) -> Self {
        let mut memory = Self::open(path, agent);
        let model = Arc::clone(model);
        memory.store.set_embedder(move || Ok(model)).unwrap();
        let is_loaded = || !matches!(memory.store.embeddings(), Loading);
        eventually("the model is loaded", is_loaded);
        memory
    }
}

fn with_model(may: Option<usize>) -> (tempfile::TempDir, Arc<Model>, Memory) {
    let (dir, path) = place();
    let model = Model::new(may);
    let memory = Memory::open_with(&path, None, &model);
    (dir, model, memory)
}

fn embedded(memory: &Memory) {
    let is_ready = || matches!(memory.store.embeddings(), Ready { waiting: 0, .. });
    eventually("all notes are embedded", is_ready);
}

fn failed(memory: &Memory) {
    let has_failed = || matches!(memory.store.embeddings(), Failed(_));
    eventually("the embeddings have failed", has_failed);
}

fn ask(memory: &Memory, name: &str) -> String {
    memory.ask(ROOT, name)
}

/// How relevance is computed, by the first line of an answer.
fn basis(answer: &str) -> &str {
    let first = answer.lines().next().unwrap();
    first.split_once(", ").map_or(first, |(_, basis)| basis)
}

#[test]
fn a_recall_uses_full_text_while_the_model_loads_and_says_so() {
    let (_dir, path) = place();
    let mut memory = Memory::open(&path, None);
    memory.write(ROOT, "pets.md", "My cat naps.\n");
    assert_eq!(basis(&ask(&memory, ":recall?cat")), "by full text");
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let load = move || {
        gone.recv().unwrap();
        Ok(Model::new(None) as Arc<dyn Embedder>)
    };
    memory.store.set_embedder(load).unwrap();
    let reading = "by full text (the embedding model is loading)";
    assert_eq!(basis(&ask(&memory, ":recall?cat")), reading);
    has(&ask(&memory, ":recall?felines"), &[reading]);
    memory.says(ROOT, ":stats", &["the embedding model is loading"]);
    go.send(()).unwrap();
    embedded(&memory);
    let found = ask(&memory, ":recall?felines");
    assert_eq!(basis(&found), "by full text and meaning");
    has(&found, &["My cat naps."]);
}

#[test]
fn an_end_does_not_wait_for_a_model_that_loads() {
    let (_dir, path) = place();
    let mut memory = Memory::open(&path, None);
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let load = move || {
        // It fails once the test has ended.
        let _ = gone.recv();
        Err("too late".to_owned())
    };
    memory.store.set_embedder(load).unwrap();
    memory.write(ROOT, "pets.md", "My cat naps.\n");
    memory.store.finish().unwrap();
    drop(memory);
    let memory = Memory::open(&path, None);
    has(&ask(&memory, ":recall?cat"), &["My cat naps."]);
    drop(go);
}

#[test]
fn a_recall_finds_notes_without_a_vector_by_words_and_counts_them() {
    let (_dir, model, memory) = with_model(Some(0));
    // A request does not wait for the model, which may not embed yet.
    memory.write(ROOT, "pets.md", "Cats sleep.\n");
    model.begun(1);
    memory.write(ROOT, "money.md", "Revenue rose.\n");
    let by_words = ask(&memory, ":recall?cats");
    let missing = "2 of 2 notes have no embedding yet: by full text";
    has(&by_words, &["Cats sleep."]);
    let both = "by full text and meaning";
    assert_eq!(basis(&by_words), format!("{both}; {missing}"));
    memory.says(ROOT, ":recall?felines", &["# nothing found", missing]);
    has(&ask(&memory, ":stats"), &["waiting-to-be-embedded: 2\n"]);
    model.let_go_on(1);
    model.begun(2);
    let missing = "1 of 2 notes have no embedding yet: by full text";
    has(&ask(&memory, ":recall?felines"), &["Cats sleep.", missing]);
    model.let_go_on(1);
    embedded(&memory);
    assert_eq!(basis(&ask(&memory, ":recall?felines")), both);
}

#[test]
fn the_worker_embeds_the_newest_notes_first_and_an_end_does_not_wait_for_its_batch() {
    let (_dir, path) = place();
    let model = Model::new(Some(0));
    let memory = Memory::open_with(&path, None, &model);
    memory.write(ROOT, "0.md", "n0 cat\n");
    // The model has begun the first note before the others are written.
    model.begun(1);
    for number in 1..=40 {
        memory.write(ROOT, &format!("{number}.md"), &format!("n{number} cat\n"));
    }
    model.let_go_on(2);
    model.begun(3);
    let mut expected = vec!["n0".to_owned()];
    expected.extend((9..=40).rev().map(|number| format!("n{number}")));
    assert_eq!(model.notes(), expected);
    // A stop waits neither for the batch nor for the remaining notes; the next mount embeds them.
    let stopped = Instant::now();
    drop(memory);
    let took = stopped.elapsed();
    assert!(took < Duration::from_secs(60), "the end took {took:?}");
    model.let_go_on(1);
    let has_ended = || Arc::strong_count(&model) == 1;
    eventually("the thread that embeds has ended", has_ended);
    assert_eq!(model.asked.lock().unwrap().begun, 3);
    let next = Model::new(None);
    let memory = Memory::open_with(&path, None, &next);
    embedded(&memory);
    let rest: Vec<String> = (1..=8).rev().map(|number| format!("n{number}")).collect();
    assert_eq!(next.notes(), rest);
}

#[test]
fn a_note_changed_during_its_embedding_is_embedded_again() {
    let (_dir, model, memory) = with_model(Some(0));
    memory.write(ROOT, "note.md", "kitten\n");
    model.begun(1);
    // Size and inode stay the same, so only the modification time shows the change.
    memory.write(ROOT, "note.md", "budget\n");
    model.let_go_on_for_ever();
    embedded(&memory);
    assert_eq!(model.notes(), ["kitten", "budget"]);
    memory.finds_nothing(ROOT, ":recall?felines");
    has(&ask(&memory, ":recall?money"), &["budget"]);
}

#[test]
fn the_worker_skips_notes_removed_while_they_waited() {
    let (_dir, model, memory) = with_model(Some(0));
    memory.write(ROOT, "first.md", "cat\n");
    model.begun(1);
    for number in 0..5 {
        memory.write(ROOT, &format!("{number}.md"), "revenue\n");
    }
    // Without a request, the index still has the notes for a while.
    for number in 0..5 {
        memory.unlink(ROOT, &format!("{number}.md"));
    }
    model.let_go_on_for_ever();
    embedded(&memory);
    assert_eq!(model.notes(), ["cat"]);
    // A removed note with a vector is no longer counted.
    memory.unlink(ROOT, "first.md");
    model.asked.lock().unwrap().may = Some(0);
    memory.write(ROOT, "last.md", "kitten\n");
    let missing = "1 of 1 notes have no embedding yet";
    has(&ask(&memory, ":recall?kitten"), &[missing]);
    memory.unlink(ROOT, "last.md");
    model.let_go_on_for_ever();
    // The new note reuses the id of a removed one.
    memory.write(ROOT, "new.md", "naps\n");
    embedded(&memory);
    let found = ask(&memory, ":recall?rest");
    has(&found, &["new.md"]);
    assert_eq!(basis(&found), "by full text and meaning");
}

#[test]
fn the_worker_retries_a_failed_batch_and_stops_at_the_fifth_failure() {
    let (_dir, model, memory) = with_model(None);
    model.asked.lock().unwrap().fails = 1;
    memory.write(ROOT, "note.md", "cat\n");
    embedded(&memory);
    has(&ask(&memory, ":recall?felines"), &["note.md"]);
    model.asked.lock().unwrap().fails = usize::MAX;
    memory.write(ROOT, "more.md", "kitten\n");
    failed(&memory);
    let by = "by full text (embedding has failed; see :stats)";
    has(&ask(&memory, ":recall?kitten"), &["more.md", by]);
    let why = "embedding has failed: it is a bad day";
    has(&ask(&memory, ":stats"), &[why]);
}

#[test]
fn vectors_outlive_mounts_and_moves_but_not_their_model() {
    let (_dir, path) = place();
    let model = Model::new(None);
    let memory = Memory::open_with(&path, None, &model);
    let aside = create(&memory.store, ROOT, "aside", Kind::Directory).ino;
    memory.write(ROOT, "pets.md", "cat\n");
    memory.write(ROOT, "binary", "\0\0");
    embedded(&memory);
    memory.rename((ROOT, "pets.md"), (aside, "p.md"));
    let asked = ":recall?felines";
    has(&ask(&memory, asked), &["/aside/p.md"]);
    drop(memory);
    // The vector also survives a move on a mount without a model.
    let memory = Memory::open(&path, None);
    memory.rename((aside, "p.md"), (aside, "q.md"));
    memory.finds_nothing(ROOT, asked);
    drop(memory);
    let again = Model::new(None);
    let memory = Memory::open_with(&path, None, &again);
    embedded(&memory);
    has(&ask(&memory, asked), &["/aside/q.md"]);
    assert_eq!(again.notes(), Vec::<String>::new());
    drop(memory);
    let other = Arc::new(Model { id: "another".to_owned(), ..Model::default() });
    let memory = Memory::open_with(&path, None, &other);
    embedded(&memory);
    assert_eq!(other.notes(), ["cat"]);
    has(&ask(&memory, asked), &["/aside/q.md"]);
}

#[test]
fn a_recall_ranks_the_closer_of_two_notes_with_equal_words_first() {
    let (_dir, path) = place();
    let memory = Memory::open_with(&path, None, &Model::new(None));
    // Both notes have the word; the older one is closer in meaning.
    memory.write(ROOT, "close.md", "tuesday kitten\n");
    memory.write(ROOT, "far.md", "tuesday revenue\n");
    memory.write(ROOT, "other.md", "budget of the month\n");
    embedded(&memory);
    let question = ":recall?tuesday+feline";
    assert_eq!(memory.recalls(question)[0], "close.md");
    drop(memory);
    let plain = Memory::open(&path, None);
    let found = plain.recalls(question);
    assert_eq!(found, ["far.md", "close.md"], "the newer first");
}

#[test]
fn a_recall_by_meaning_hides_private_notes_and_notes_out_of_scope() {
    let (_dir, path) = place();
    let question = ":recall?felines";
    let below = |memory: &Memory, agent: &str| {
        let store = &memory.store;
        let shared = store.lookup(ROOT, b"memory").unwrap().ino;
        let all = store.lookup(shared, b"private").unwrap().ino;
        store.lookup(all, agent.as_bytes()).unwrap().ino
    };
    let model = Model::new(None);
    let memory = Memory::open_with(&path, Some("kim"), &model);
    memory.write(below(&memory, "kim"), "secret.md", "My cat naps.\n");
    embedded(&memory);
    has(&ask(&memory, question), &["secret.md"]);
    drop(memory);
    let memory = Memory::open_with(&path, Some("lee"), &model);
    embedded(&memory);
    memory.finds_nothing(ROOT, question);
    let aside = create(&memory.store, ROOT, "aside", Kind::Directory).ino;
    memory.write(ROOT, "here.md", "kitten\n");
    embedded(&memory);
    assert_eq!(memory.recalls(question), ["here.md"]);
    memory.finds_nothing(aside, question);
}

#[test]
fn a_recall_by_meaning_hides_expired_notes() {
    let (_dir, _, memory) = with_model(None);
    memory.write(ROOT, "new.md", "---\nttl: 7d\n---\nkitten too\n");
    // They are closer, and more than are compared.
    for number in 0..300 {
        let text = format!("---\nttl: 1s\n---\nkitten{}\n", " kitten".repeat(number % 9));
        memory.write(ROOT, &format!("old{number}.md"), &text);
    }
    embedded(&memory);
    memory.pass(2_000_000_000);
    assert_eq!(memory.recalls(":recall?felines"), ["new.md"]);
}

#[test]
fn a_memory_refuses_a_directory_without_a_model_and_reports_a_broken_one() {
    let (dir, path) = place();
    let mut memory = Memory::open(&path, None);
    memory.write(ROOT, "rule.md", "RSI > 70 means exit\n");
    let model = dir.path().join("model");
    let refused = memory.store.set_embeddings(Embeddings::In(model.clone()));
    has(&refused.unwrap_err(), &["config.json"]);
    let config = r#"{"model_type": "bert", "hidden_act": "gelu", "hidden_size": 4, "intermediate_size": 8,
        "layer_norm_eps": 1e-12, "max_position_embeddings": 16, "num_attention_heads": 2,
        "num_hidden_layers": 1, "vocab_size": 5}"#;
    let pooling = r#"{"pooling_mode_mean_tokens": true}"#;
    let files = [
        ("config.json", config),
        ("1_Pooling/config.json", pooling),
        ("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n"),
        ("model.safetensors", "no tensors"),
    ];
    write_files(&model, &files);
    memory.store.set_embeddings(Embeddings::In(model)).unwrap();
    failed(&memory);
    let why = ["embedding has failed: ", "model.safetensors"];
    has(&ask(&memory, ":stats"), &why);
    let panics = || panic!("on purpose: a model that panics");
    memory.store.set_embedder(panics).unwrap();
    failed(&memory);
    let by = "by full text (embedding has failed; see :stats)";
    has(&ask(&memory, ":recall?RSI"), &[by, "RSI > 70"]);
    let why = "embedding has failed: its thread panicked";
    has(&ask(&memory, ":stats"), &[why]);
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
        let (_dir, model, memory) = with_model(Some(0));
        for (number, text) in notes.iter().enumerate() {
            memory.write(ROOT, &format!("{number}.md"), text);
        }
        model.let_go_on(batches);
        let asked = question.replace(' ', "+");
        // The worker adds vectors while the recalls run.
        for _ in 0..3 {
            let answer = ask(&memory, &format!(":recall?query={asked}&max_tokens={max_tokens}"));
            let counted = tokens::count(&answer);
            prop_assert!(counted <= max_tokens, "{counted} of {max_tokens}: {answer}");
            prop_assert!(answer.contains("by full text"), "{answer}");
        }
        model.let_go_on_for_ever();
        let recall = || ask(&memory, &format!(":recall?query={asked}&max_tokens={max_tokens}"));
        // The queue may not have the newest notes yet.
        eventually("every note is embedded", || !recall().contains("no embedding yet"));
        let answer = recall();
        prop_assert!(tokens::count(&answer) <= max_tokens, "{answer}");
        prop_assert!(answer.contains("by full text and meaning"), "{answer}");
        prop_assert!(!answer.contains("no embedding yet"), "{answer}");
    }
}
