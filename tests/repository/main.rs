//! Checks of the repository itself: licences, the crate graph, imports, names, links and commands in documents.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod borders;
mod crates;
mod documents;
mod errors;
#[path = "../executable.rs"]
mod executable;
mod imports;
mod licences;
mod names;
mod packages;
mod scripts;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The top directory of the repository.
fn top() -> PathBuf {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    harness.parent().unwrap().to_owned()
}

/// The Rust files of the repository, and their texts.
fn rust_files() -> Vec<(String, String)> {
    let mut git = Command::new("git");
    let listed = git.args(["ls-files", "*.rs"]).current_dir(top()).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let files = listed.lines().map(|file| {
        // One that is removed and not yet committed is listed, too.
        let text = std::fs::read_to_string(top().join(file)).unwrap_or_default();
        (file.to_owned(), text)
    });
    files.collect()
}

/// Every package linked on this platform, from `cargo metadata`.
fn packages() -> Vec<Value> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .args(["--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {errors}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}
