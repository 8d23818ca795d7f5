//! Tests of the traces that sessions become: files, changes from outside, and what fidelity `shape` leaves out.

use std::path::Path;

use super::claude_code;
use session_traces::{Blobs, TraceOrigin, trace};
use workloads::compile::compile;
use workloads::script::CallKind;
use workloads::trace::{ChangeCause, ContentKnowledge, Event, Fidelity, Trace, TraceSource};

fn imported(fidelity: Fidelity) -> (Trace, Blobs) {
    let session =
        claude_code::read(&mut include_bytes!("fixtures/claude-code-traps.jsonl").as_slice(), &mut []).unwrap();
    let provenance = TraceOrigin {
        id: "traps".to_owned(),
        source: TraceSource {
            format: "claude-code".to_owned(),
            repo: None,
            commit: None,
            path: "traps.jsonl".to_owned(),
            sha256: "0".to_owned(),
            licence: None,
        },
    };
    trace(&session, &provenance, fidelity).unwrap()
}

#[test]
fn a_shape_holds_none_of_the_sessions_words() {
    let (trace, blobs) = imported(Fidelity::Shape);
    let text = trace.to_jsonl().unwrap();
    assert!(blobs.is_empty());
    for word in ["secret", "package", "main.go", "gofmt", "notes", "fix it", "docs"] {
        assert!(!text.contains(word), "{word:?} in {text}");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn files_are_there_as_they_were_first_seen() {
    let (trace, _) = imported(Fidelity::Content);
    let files = trace.files.iter();
    let files = files.map(|file| (file.path.as_str(), file.known, file.content.bytes));
    // A search named docs/a.md, then a read showed two of its three lines of 8 bytes.
    let partial = ("docs/a.md", ContentKnowledge::Partial, 26);
    let expected = [partial, ("src/main.go", ContentKnowledge::Full, 29)];
    assert_eq!(files.collect::<Vec<_>>(), expected);
}

#[test]
fn a_change_from_outside_is_inferred_from_the_next_known_state() {
    let (trace, blobs) = imported(Fidelity::Content);
    let mut changes = trace.events.iter().filter_map(|event| match event {
        Event::Ext(change) => Some(change),
        _ => None,
    });
    let (Some(change), None) = (changes.next(), changes.next()) else {
        panic!("{:?}", trace.events);
    };
    assert_eq!(change.path.as_str(), "src/main.go");
    assert_eq!(change.why, ChangeCause::Exec);
    let content = &blobs[&change.content.as_ref().unwrap().sha256];
    assert_eq!(content, b"package main\n\nfunc main() {\n}\n");
}

#[test]
fn both_fidelities_replay_the_same_calls() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("traps.trace.jsonl");
    let (content, blobs) = imported(Fidelity::Content);
    std::fs::create_dir(dir.path().join("blobs")).unwrap();
    for (digest, bytes) in blobs {
        std::fs::write(dir.path().join("blobs").join(digest), bytes).unwrap();
    }
    let full = compile(&file, &content).unwrap();
    let shape = compile(Path::new("shape"), &imported(Fidelity::Shape).0).unwrap();
    let calls = [
        (CallKind::Read, 3),
        (CallKind::Write, 1),
        (CallKind::Edit, 2),
        (CallKind::Search, 1),
        (CallKind::ModelledProgram, 1),
    ];
    assert_eq!(full.timed_calls(), calls.into());
    assert_eq!(shape.timed_calls(), calls.into());
    let expected = ["read", "vcs"].map(|op| (op.to_owned(), 1));
    assert_eq!(full.not_replayed, expected.into());
    assert_eq!(shape.not_replayed, full.not_replayed);
}

#[test]
fn a_tampered_trace_is_refused() {
    let (trace, _) = imported(Fidelity::Shape);
    let error = |change: fn(&mut Trace)| {
        let mut trace = trace.clone();
        change(&mut trace);
        compile(Path::new("t.jsonl"), &trace).unwrap_err().to_string()
    };
    let other_sha256 = error(|trace| trace.files[0].content.sha256 = "0".repeat(64));
    let no_result = error(|trace| {
        let is_third = |event: &Event| matches!(event, Event::Result(result) if result.i == 3);
        trace.events.retain(|event| !is_third(event));
    });
    let no_files = error(|trace| trace.files.clear());
    for (message, expected) in [
        (other_sha256, "content has SHA-256"),
        (no_result, "call 3: has no result record"),
        (no_files, "succeeded in the recording, but"),
    ] {
        assert!(message.contains(expected), "{message}");
    }
}
