//! Counts the code of each backend, so that the report's "complexity" row is counted, not claimed.

use std::path::{Path, PathBuf};

/// What has to work for a backend's files to be there: its own code and, behind a mount, the front end.
const BACKENDS: &[(&str, &[&str])] = &[
    ("DIRECT", &["direct.rs"]),
    ("MEMORY", &["memory", "fuse", "store.rs"]),
    ("NULL", &["null", "fuse", "store.rs"]),
    ("SQLITE", &["sqlite", "fuse", "store.rs"]),
    (
        "AGENT_MEMORY",
        &["agent_memory", "sqlite", "fuse", "store.rs"],
    ),
    (
        "AGENT_MEMORY_MEANING",
        &[
            "agent_memory",
            "sqlite",
            "fuse",
            "store.rs",
            "../embeddings/src",
        ],
    ),
    ("S3", &["../s3/src", "s3", "sqlite", "fuse", "store.rs"]),
    (
        "LLM_HISTORY",
        &[
            "llm/history",
            "llm/asker.rs",
            "llm/flight.rs",
            "llm/log_file.rs",
            "llm/names.rs",
            "../models/src",
            "memory",
            "fuse",
            "store.rs",
        ],
    ),
    (
        "LLM_GENERATE",
        &[
            "llm/generate",
            "llm/asker.rs",
            "llm/flight.rs",
            "llm/log_file.rs",
            "llm/names.rs",
            "../models/src",
            "memory",
            "fuse",
            "store.rs",
        ],
    ),
    ("STATE", &["state.rs"]),
    ("VIEW", &["view", "fuse", "store.rs"]),
    ("TOOLS_SQL", &["sql_tool.rs"]),
    (
        "TOOLS_MCP",
        &["sql_tool.rs", "../../harness/src/cmd/mcp/mod.rs"],
    ),
];

fn main() {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=models/src");
    println!("cargo:rerun-if-changed=s3/src");
    println!("cargo:rerun-if-changed=embeddings/src");
    println!("cargo:rerun-if-changed=../harness/src/cmd/mcp/mod.rs");
    for (name, places) in BACKENDS {
        let lines: usize = places
            .iter()
            .map(|place| count(&Path::new("src").join(place)))
            .sum();
        println!("cargo:rustc-env=CTXBENCH_LINES_{name}={lines}");
    }
}

fn count(place: &Path) -> usize {
    if place.is_dir() {
        let entries = entries(place);
        // How a backend is described and launched serves no file.
        let serving = entries
            .iter()
            .filter(|entry| !entry.ends_with("backend.rs"));
        return serving.map(|entry| count(entry)).sum();
    }
    let source = std::fs::read_to_string(place)
        .unwrap_or_else(|error| panic!("counting the lines of {}: {error}", place.display()));
    source
        .lines()
        .map(str::trim)
        .take_while(|line| *line != "#[cfg(test)]")
        .filter(|line| !(line.is_empty() || line.starts_with("//") || line.starts_with("--")))
        .count()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(dir).unwrap_or_else(|error| panic!("listing {}: {error}", dir.display()));
    entries.flatten().map(|entry| entry.path()).collect()
}
