//! Counts the code of each backend, so that the report's "complexity" row is counted, not claimed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The front end behind every mount.
const MOUNT: &[&str] = &["../fuse/src"];

/// What serves no file: how a backend is described, launched and opened by options, and what daemons and clients need besides.
const OTHERS: [&str; 6] = ["backend.rs", "options.rs", "attribute.rs", "cpu.rs", "daemon_log.rs", "unfinished.rs"];

/// A store in the directory of the front end, which only its own backends count.
const MEMORY: &str = "fuse/src/memory";

/// The code that both `llm-*` backends use.
const LLM: &[&str] =
    &["llm/asker.rs", "llm/flight.rs", "llm/log_file.rs", "llm/names.rs", "../models/src", "../fuse/src/memory"];

/// The files and directories whose lines count, where they are not a backend's own directory and the front end.
const EXCEPTIONS: &[(&str, &[&[&str]])] = &[
    ("DIRECT", &[&["direct.rs"]]),
    ("AGENT_MEMORY", &[&["../agent-memory/src", "../sqlite/src"], MOUNT]),
    ("AGENT_MEMORY_MEANING", &[&["../agent-memory/src", "../sqlite/src", "../embeddings/src"], MOUNT]),
    ("S3", &[&["../s3/src", "../s3-store/src", "../sqlite/src"], MOUNT]),
    ("LLM_HISTORY", &[&["llm/history"], LLM, MOUNT]),
    ("LLM_GENERATE", &[&["llm/generate"], LLM, MOUNT]),
    ("VIEW", &[&["../view/src"], MOUNT]),
    ("SQLITE", &[&["../sqlite/src"], MOUNT]),
    ("MEMORY", &[&["../fuse/src/memory"], MOUNT]),
    ("STATE", &[&["state.rs"]]),
    ("TOOLS_SQL", &[&["tools/sql.rs"]]),
    (
        "TOOLS_MCP",
        &[&[
            "tools/sql.rs",
            "../../harness/mcp/src/server.rs",
            "../../harness/mcp/src/sql.rs",
            "../../harness/mcp/src/sql_worker.rs",
        ]],
    ),
];

fn main() {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=agent-memory/src");
    println!("cargo:rerun-if-changed=fuse/src");
    println!("cargo:rerun-if-changed=models/src");
    println!("cargo:rerun-if-changed=s3/src");
    println!("cargo:rerun-if-changed=s3-store/src");
    println!("cargo:rerun-if-changed=embeddings/src");
    println!("cargo:rerun-if-changed=sqlite/src");
    println!("cargo:rerun-if-changed=view/src");
    for file in ["server", "sql", "sql_worker"] {
        println!("cargo:rerun-if-changed=../harness/mcp/src/{file}.rs");
    }
    let dirs = entries(Path::new("src")).into_iter();
    let backends = dirs.filter(|dir| dir.join("backend.rs").exists());
    let backends = backends.map(|dir| {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        (name.to_uppercase(), count(&dir) + sum(MOUNT))
    });
    let exceptions = EXCEPTIONS.iter().map(|(name, places)| {
        let lines = places.iter().map(|places| sum(places)).sum();
        ((*name).to_owned(), lines)
    });
    let all: BTreeMap<String, usize> = backends.chain(exceptions).collect();
    for (name, lines) in all {
        println!("cargo:rustc-env=CTXBENCH_LINES_{name}={lines}");
    }
}

fn sum(places: &[&str]) -> usize {
    let places = places.iter();
    places.map(|place| count(&Path::new("src").join(place))).sum()
}

fn count(place: &Path) -> usize {
    if place.is_dir() {
        let entries = entries(place);
        let is_other = |entry: &Path| OTHERS.iter().any(|other| entry.ends_with(other)) || entry.ends_with(MEMORY);
        let serving = entries.iter().filter(|entry| !is_other(entry));
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
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("listing {}: {error}", dir.display()));
    entries.flatten().map(|entry| entry.path()).collect()
}
