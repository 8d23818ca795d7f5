//! Recorded sessions of agents, and traces.

use std::path::Path;

use importers::{IMPORTERS, detect};
use session_traces::{TraceOrigin, trace};
use workloads::compile::compile;
use workloads::trace::{Fidelity, Trace, TraceSource};

use crate::{fuzz, mutation};

/// The fixtures of the importers' tests, and the built-in traces.
fn seeds(dirs: &[&str], ends: &[&str]) -> Vec<Vec<u8>> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for dir in dirs {
        let mut files: Vec<_> = std::fs::read_dir(top.join(dir))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|file| ends.iter().any(|end| file.to_string_lossy().ends_with(end)))
            .filter(|file| file.metadata().unwrap().len() < 256 << 10)
            .collect();
        files.sort();
        found.extend(files.iter().map(|file| std::fs::read(file).unwrap()));
    }
    assert!(!found.is_empty(), "no seed in {dirs:?}");
    found
}

fn provenance() -> TraceOrigin {
    TraceOrigin {
        id: "fuzz".to_owned(),
        source: TraceSource {
            format: "fuzz".to_owned(),
            repo: None,
            commit: None,
            path: "fuzz".to_owned(),
            sha256: "0".repeat(64),
            licence: None,
        },
    }
}

#[test]
fn a_recording_becomes_a_trace_or_is_refused() {
    let seeds = seeds(&["workloads/importers/src/fixtures"], &[".jsonl", ".json", ".md", ".strace"]);
    let formats = seeds.iter().map(|seed| detect::read(&seed[..], None).unwrap().0.id());
    let formats: std::collections::BTreeSet<&str> = formats.collect();
    assert_eq!(formats.len(), IMPORTERS.len(), "a format without a fixture: {formats:?}");
    let make = |rng: &mut crate::Rng| {
        let seed = mutation::pick(rng, &seeds);
        mutation::json_lines(rng, seed)
    };
    fuzz("recordings", make, |input| {
        // Through detection, and by an importer that the input names itself: any file may be said to be of any format.
        let named = IMPORTERS[input.len() % IMPORTERS.len()].id();
        let read = [None, Some(named)].map(|format| detect::read(input, format));
        let sessions = read.into_iter().flatten().flat_map(|(_, sessions)| sessions);
        for session in sessions {
            for fidelity in [Fidelity::Shape, Fidelity::Content] {
                let (made, _) = trace(&session, &provenance(), fidelity).unwrap();
                // What an importer writes, the parser reads.
                let text = made.to_jsonl().unwrap();
                let read = Trace::parse(Path::new("made"), &text).unwrap();
                let compiled = compile(Path::new("made"), &read);
                // A wrong call costs one call, never the session. The contents of the other fidelity are in files.
                if fidelity == Fidelity::Shape {
                    compiled.unwrap();
                }
            }
        }
    });
}

#[test]
fn a_trace_is_compiled_or_refused() {
    let seeds = seeds(&["workloads/traces"], &[".trace.jsonl"]);
    let make = |rng: &mut crate::Rng| {
        let seed = mutation::pick(rng, &seeds);
        mutation::json_lines(rng, seed)
    };
    fuzz("traces", make, |input| {
        let text = String::from_utf8_lossy(input);
        if let Ok(trace) = Trace::parse(Path::new("input"), &text) {
            let _ = compile(Path::new("input"), &trace);
        }
    });
}
