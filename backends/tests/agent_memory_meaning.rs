//! Agent memory with an embedding model, as its store is called. Skipped where no model is installed.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use backends::agent_memory::{AgentMemory, EmbeddingState, Embeddings};
use backends::store::{Caller, Ino, Kind, ROOT, Store, Timestamp};
use common::{create, node, read};

const NOW: i64 = 1_795_300_000_000_000_000;

fn caller() -> Caller {
    Caller {
        uid: 1000,
        gid: 100,
        now: Timestamp(NOW),
    }
}

fn model() -> Option<PathBuf> {
    match embeddings::find() {
        Ok(dir) => Some(dir),
        Err(missing) if std::env::var_os("CTXBENCH_REQUIRE_EMBEDDINGS").is_some() => {
            panic!("{missing}")
        }
        Err(missing) => {
            eprintln!("SKIPPED: {missing}");
            None
        }
    }
}

fn open(path: &Path, agent: Option<&str>) -> AgentMemory {
    let clock = Box::new(|| Timestamp(NOW));
    AgentMemory::open_at(path, &caller(), agent, clock).unwrap()
}

fn write(store: &AgentMemory, dir: Ino, name: &str, text: &str) {
    let made = store
        .create(&caller(), dir, name.as_bytes(), &node(Kind::File))
        .unwrap();
    store
        .write(&caller(), made.ino, 0, text.as_bytes())
        .unwrap();
    store.close(made.ino).unwrap();
}

fn ask(store: &AgentMemory, dir: Ino, name: &str) -> String {
    let attr = store.lookup(dir, name.as_bytes()).unwrap();
    String::from_utf8(read(store, attr.ino, 0, 1 << 20)).unwrap()
}

fn embedded(store: &AgentMemory) {
    let started = Instant::now();
    while !matches!(store.embeddings(), EmbeddingState::Ready { waiting: 0, .. }) {
        assert!(started.elapsed().as_secs() < 60, "{:?}", store.embeddings());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn while_embeddings_are_missing_it_is_by_full_text_and_said() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir.path().join("m.db"), None);
    for number in 0..300 {
        let filler = "The meeting ran long and ended without a decision. ".repeat(10);
        write(
            &store,
            ROOT,
            &format!("{number}.md"),
            &format!("Cats nap, case {number}. {filler}"),
        );
    }
    assert!(
        ask(&store, ROOT, ":recall?nap")
            .lines()
            .next()
            .unwrap()
            .ends_with("by full text")
    );
    store.set_embeddings(Embeddings::In(model)).unwrap();
    let mut seen = Vec::new();
    let started = Instant::now();
    loop {
        let answer = ask(&store, ROOT, ":recall?query=case+7+nap&max_tokens=500");
        let first = answer.lines().next().unwrap().to_owned();
        // Whatever is embedded already: what has the words is found.
        assert!(answer.contains("case 7."), "{answer}");
        let how = first.split("balanced, ").nth(1).unwrap().to_owned();
        if how == "by full text and meaning" {
            break;
        }
        seen.push(how);
        assert!(started.elapsed().as_secs() < 60, "{seen:?}");
    }
    assert!(
        seen.iter()
            .any(|how| how.contains("of 300 notes have no embedding yet: by full text")),
        "{seen:?}"
    );
    // A stop does not wait for all that is to be done.
    for number in 0..300 {
        write(
            &store,
            ROOT,
            &format!("more{number}.md"),
            &"Words and more words. ".repeat(60),
        );
    }
    let started = Instant::now();
    drop(store);
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn what_is_private_to_others_is_not_found_by_meaning_either() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let question = ":recall?query=where+do+felines+sleep%3F";
    let below = |store: &AgentMemory, agent: &str| {
        let memory = store.lookup(ROOT, b"memory").unwrap().ino;
        let all = store.lookup(memory, b"private").unwrap().ino;
        store.lookup(all, agent.as_bytes()).unwrap().ino
    };
    let mut store = open(&path, Some("kim"));
    let own = below(&store, "kim");
    write(&store, own, "secret.md", "My cat naps on the sofa.\n");
    store.set_embeddings(Embeddings::In(model.clone())).unwrap();
    embedded(&store);
    assert!(ask(&store, ROOT, question).contains("secret.md"));
    drop(store);
    let mut store = open(&path, Some("lee"));
    store.set_embeddings(Embeddings::In(model)).unwrap();
    embedded(&store);
    assert!(ask(&store, ROOT, question).starts_with("# nothing found"));
    let aside = create(&store, ROOT, "aside", Kind::Directory).ino;
    write(&store, ROOT, "here.md", "Kittens rest in baskets.\n");
    embedded(&store);
    assert!(ask(&store, ROOT, question).contains("here.md"));
    assert!(ask(&store, aside, question).starts_with("# nothing found"));
}

#[test]
fn a_broken_model_is_said_and_recall_goes_on_by_full_text() {
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
    let started = Instant::now();
    while !matches!(store.embeddings(), EmbeddingState::Failed(_)) {
        assert!(started.elapsed().as_secs() < 10, "{:?}", store.embeddings());
        std::thread::sleep(Duration::from_millis(5));
    }
    let recalled = ask(&store, ROOT, ":recall?RSI");
    assert!(
        recalled.contains("by full text (embeddings have failed, see :stats)")
            && recalled.contains("RSI > 70"),
        "{recalled}"
    );
    assert!(ask(&store, ROOT, ":stats").contains("embeddings have failed: "));
}
