//! Checks of the repository itself: licences, the crate graph, imports, links and commands in documents.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod crates;
mod documents;
mod imports;
mod licences;
mod scripts;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The top directory of the repository.
fn top() -> PathBuf {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    harness.parent().unwrap().to_owned()
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
