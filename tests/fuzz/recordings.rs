//! Recorded sessions of agents, and traces.

use std::path::Path;

use workloads::compile::compile;
use workloads::import::{TraceOrigin, claude_code, mini_swe_agent, openhands, trace};
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

/// A session of mini-swe-agent, in our own words.
const MINI_SWE_AGENT: &str = r#"{"info":{"config":{"model":{"model_name":"m"}},"exit_status":"Submitted"},"trajectory_format":"mini-swe-agent-1","messages":[{"role":"system","content":"You fix code."},{"role":"user","content":"Mend the parser."},{"role":"assistant","content":"I look.\n```bash\ncat src/a.py\n```"},{"role":"user","content":"<returncode>0</returncode>\n<output>\ndef f():\n    return 1\n</output>"}]}"#;

/// A session of OpenHands, in our own words.
const OPENHANDS: &str = r#"{"instance_id":"a","history":[{"id":0,"source":"user","action":"message","args":{"content":"Mend it."}},{"id":1,"source":"agent","action":"read","args":{"path":"/ws/a.py"},"tool_call_metadata":{"tool_call_id":"c1","function_name":"str_replace_editor"}},{"id":2,"source":"agent","observation":"read","cause":1,"content":"def f():\n    return 1\n","extras":{"path":"/ws/a.py"}}],"metadata":{"llm_config":{"model":"m"}}}"#;

#[test]
fn a_recording_becomes_a_trace_or_is_refused() {
    let mut seeds = seeds(&["workloads/src/import/fixtures"], &[".jsonl", ".json"]);
    seeds.extend([MINI_SWE_AGENT, OPENHANDS].map(|seed| seed.as_bytes().to_vec()));
    let make = |rng: &mut crate::Rng| {
        let seed = mutation::pick(rng, &seeds);
        mutation::json_lines(rng, seed)
    };
    fuzz("recordings", make, |input| {
        let text = String::from_utf8_lossy(input);
        let mut sessions = Vec::new();
        sessions.extend(claude_code::read(&text));
        sessions.extend(mini_swe_agent::read(&text));
        sessions.extend(openhands::read(&text).unwrap_or_default());
        for session in sessions {
            for fidelity in [Fidelity::Shape, Fidelity::Content] {
                let (made, _) = trace(&session, &provenance(), fidelity);
                // What an importer writes, the parser reads.
                let text = made.to_jsonl().unwrap();
                let read = Trace::parse(Path::new("made"), &text).unwrap();
                let _ = compile(Path::new("made"), &read);
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
