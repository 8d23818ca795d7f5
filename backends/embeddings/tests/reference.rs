//! Compares the installed model with reference values: word pieces of Hugging Face's `tokenizers`, and
//! vectors by NumPy in 64-bit floats from the same weights. `reference.py` in this directory computes them.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::time::Instant;

use embeddings::{SentenceModel, cosine};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    text: String,
    tokens: Vec<u32>,
    vector: Vec<f32>,
}

fn is_required() -> bool {
    std::env::var_os("CTXBENCH_REQUIRE_EMBEDDINGS").is_some()
}

/// The model of the reference values, if it is installed.
fn model() -> Option<SentenceModel> {
    match embeddings::find() {
        Ok(dir) => Some(SentenceModel::load(&dir).unwrap()),
        Err(missing) => {
            assert!(!is_required(), "{missing}");
            eprintln!("SKIPPED: {missing}");
            None
        }
    }
}

#[test]
fn pieces_and_vectors_are_those_of_other_programs() {
    let Some(model) = model() else { return };
    if model.id() != "95231ebc345e2bd3" {
        let other = format!("another model is installed: {}", model.id());
        assert!(!is_required(), "{other}");
        eprintln!("SKIPPED: {other}");
        return;
    }
    let cases: Vec<Case> = serde_json::from_str(include_str!("reference.json")).unwrap();
    assert!(cases.len() >= 9);
    let tokens: Vec<Vec<u32>> = cases.iter().map(|case| model.note(&case.text)).collect();
    for (case, tokens) in cases.iter().zip(&tokens) {
        assert_eq!(&case.tokens, tokens, "{:?}", case.text);
    }
    assert_eq!((model.note(""), model.question(" ")), (vec![], vec![]));
    assert_ne!(model.note("RSI"), model.question("RSI"));
    let together = model.embed(&tokens).unwrap();
    for (number, case) in cases.iter().enumerate() {
        let alone = model.embed(&tokens[number..=number]).unwrap();
        for (how, vector) in [("alone", &alone[0]), ("together", &together[number])] {
            let close = cosine(&case.vector, vector);
            assert!(close > 0.999_999, "{:?} {how}: cosine {close}", case.text);
            let off = case.vector.iter().zip(vector).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            // A stored vector's numbers are rounded by up to five times as much.
            assert!(off < 1e-4, "{:?} {how}: off by {off}", case.text);
        }
    }
    // The second text is close to the first in meaning, the third is not.
    assert!(cosine(&together[0], &together[1]) > cosine(&together[0], &together[2]) + 0.4);
    let far = cosine(&together[0], &together[2]);
    assert!(far.abs() < 0.3, "texts with nothing in common have a cosine of {far}");
}

#[test]
#[ignore = "prints the speed on this machine: cargo test --release -p embeddings -- --ignored --nocapture"]
fn speed() {
    let Some(model) = model() else { return };
    let median = |texts: &[Vec<u32>]| {
        let mut times: Vec<f64> = (0..11)
            .map(|_| {
                let started = Instant::now();
                model.embed(texts).unwrap();
                started.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[5]
    };
    for words in [4, 8, 16, 32, 62, 128] {
        let one = model.note(&"word ".repeat(words));
        let many: Vec<Vec<u32>> = std::iter::repeat_n(one.clone(), (512 / one.len()).max(1)).collect();
        println!(
            "{} tokens: {:.2} ms alone, {:.2} ms each of {}",
            one.len(),
            median(std::slice::from_ref(&one)),
            median(&many) / many.len() as f64,
            many.len()
        );
    }
}
