//! Run directories of other people, from reading to the summary.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use figures::summary::summarise;
use rand::RngExt;
use rundir::Run;

use crate::{Rng, fuzz, mutation};

const SUITE: &str = "essay = 'A directory to be changed.'
epochs = 3
budget = 1
rounds = 1
backends = ['direct']
[[workload]]
name = 'micro/stat'
states = ['hot']
";

/// A run of `direct`, and the files that a report reads of it.
fn run(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let suite = dir.join("suite.toml");
    fs::write(&suite, SUITE).unwrap();
    let (out, work) = (dir.join("run"), dir.join("work"));
    fs::create_dir(&work).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_ctxbench"))
        .args(["run", "--seed", "7", "--suite"])
        .arg(&suite)
        .arg("--out")
        .arg(&out)
        .arg("--scratch-dir")
        .arg(&work)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(out.join("samples.jsonl").exists(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = ["plan.toml", "env.json", "samples.jsonl", "cells.jsonl", "epochs.jsonl", "probes.jsonl"];
    let files = names.into_iter().filter(|name| out.join(name).exists());
    files.map(|name| (name.to_owned(), fs::read(out.join(name)).unwrap())).collect()
}

#[test]
fn a_run_directory_is_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let files = run(dir.path());
    assert!(files.len() >= 5, "{:?}", files.iter().map(|(name, _)| name).collect::<Vec<_>>());
    let make = |rng: &mut Rng| {
        let at = rng.random_range(0..files.len());
        let (name, whole) = &files[at];
        let mut input = match name.rsplit('.').next() {
            Some("toml") => mutation::toml(rng, whole),
            Some("json") => mutation::json(rng, whole),
            _ => mutation::json_lines(rng, whole),
        };
        input.insert(0, at as u8);
        input
    };
    fuzz("run-directory", make, |input| {
        let place = tempfile::tempdir().unwrap();
        for (at, (name, whole)) in files.iter().enumerate() {
            let bytes = if at == input[0] as usize { &input[1..] } else { &whole[..] };
            fs::write(place.path().join(name), bytes).unwrap();
        }
        if let Ok(run) = Run::read(place.path()) {
            let _ = summarise(&run);
        }
    });
}
