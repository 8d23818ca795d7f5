//! Counts the code of each backend, so that the report's "complexity" row is counted, not claimed.

use std::path::{Path, PathBuf};

/// The front end behind every mount.
const MOUNT: &[&str] = &["fuse/src"];

/// What serves no file: how a backend is described, launched and opened by options, and what daemons and clients need besides.
const OTHERS: [&str; 6] = ["backend.rs", "options.rs", "attribute.rs", "cpu.rs", "daemon_log.rs", "unfinished.rs"];

/// A store in the directory of the front end, which only its own backends count.
const MEMORY: &str = "fuse/src/memory";

/// The code that both `llm-*` backends use.
const LLM: &[&str] =
    &["llm/src/asker.rs", "llm/src/flight.rs", "llm/src/log_file.rs", "llm/src/names.rs", "models/src", MEMORY];

/// The files and directories whose lines count for each backend.
const BACKENDS: &[(&str, &[&[&str]])] = &[
    ("DIRECT", &[&["src/direct.rs"]]),
    ("NULL", &[&["src/null"], MOUNT]),
    ("MEMORY", &[&[MEMORY], MOUNT]),
    ("SQLITE", &[&["sqlite/src", "sqlite-pages/src"], MOUNT]),
    ("AGENT_MEMORY", &[&["agent-memory/src", "sqlite/src", "sqlite-pages/src"], MOUNT]),
    ("AGENT_MEMORY_MEANING", &[&["agent-memory/src", "sqlite/src", "sqlite-pages/src", "embeddings/src"], MOUNT]),
    ("S3", &[&["s3/src", "s3-store/src", "sqlite/src", "sqlite-pages/src"], MOUNT]),
    ("LLM_HISTORY", &[&["llm/src/history"], LLM, MOUNT]),
    ("LLM_GENERATE", &[&["llm/src/generate"], LLM, MOUNT]),
    ("VIEW", &[&["view/src"], MOUNT]),
    ("STATE", &[&["src/state.rs"]]),
    ("TOOLS_SQL", &[&["src/tools/sql.rs"]]),
    (
        "TOOLS_MCP",
        &[&[
            "src/tools/sql.rs",
            "../harness/mcp/src/server.rs",
            "../harness/mcp/src/sql.rs",
            "../harness/mcp/src/sql_worker.rs",
        ]],
    ),
];

fn main() {
    for (name, places) in BACKENDS {
        let places = places.iter().copied().flatten();
        let lines: usize = places.clone().map(|place| count(Path::new(place))).sum();
        println!("cargo:rustc-env=CTXBENCH_LINES_{name}={lines}");
        for place in places {
            println!("cargo:rerun-if-changed={place}");
        }
    }
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
