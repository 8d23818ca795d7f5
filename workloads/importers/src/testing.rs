//! Shows what an importer made of a fixture.

use super::detect::read;
use super::{ImportedSession, RecordedCall, RecordedEvent, RecordedResult, SeenContent};
use session_traces::coverage::Coverage;
use session_traces::{Blobs, TraceOrigin, trace};
use shell::ShellCommand;
use tokens::BilledUsage;
use workloads::trace::{Fidelity, TokenUsage, Trace, TraceSource};

/// The sessions of a recording that is detected as `format`.
pub(super) fn imported_all(format: &str, text: &str) -> Vec<ImportedSession> {
    let (importer, sessions) = read(text.as_bytes(), None).unwrap();
    assert_eq!(importer.id(), format);
    sessions
}

/// The only session of a recording that is detected as `format`.
pub(super) fn imported(format: &str, text: &str) -> ImportedSession {
    let mut sessions = imported_all(format, text);
    assert_eq!(sessions.len(), 1);
    sessions.remove(0)
}

/// The trace of a session, with all of its text.
pub(super) fn traced(session: &ImportedSession) -> (Trace, Blobs) {
    let source = TraceSource {
        format: "test".to_owned(),
        repo: None,
        commit: None,
        path: "test".to_owned(),
        sha256: "0".to_owned(),
        licence: None,
    };
    trace(session, &TraceOrigin { id: "test".to_owned(), source }, Fidelity::Content).unwrap()
}

/// How much of a session its trace replays.
pub(super) fn coverage(session: &ImportedSession) -> Coverage {
    Coverage::of(&traced(session).0)
}

/// The files at the start of a session's trace: path, how much is known, and content.
pub(super) fn files(session: &ImportedSession) -> Vec<String> {
    let (trace, blobs) = traced(session);
    let shown = trace.files.iter().map(|file| {
        let content = String::from_utf8_lossy(&blobs[&file.content.sha256]);
        format!("{} {:?} {content}", file.path, file.known)
    });
    shown.collect()
}

/// Each call, in words: tool, operation, path, and what its result shows.
pub(super) fn calls(session: &ImportedSession) -> Vec<String> {
    let result = |call: &RecordedCall| session.results().find(|result| result.id == call.id);
    session.calls().map(|call| shown(call, result(call))).collect()
}

fn shown(call: &RecordedCall, result: Option<&RecordedResult>) -> String {
    let mut words = format!("{} {}", call.tool, call.op.name());
    if let Some(path) = &call.path {
        words += &format!(" {path}");
    }
    let shell = call.shell.as_ref().map(|shell| shell.load().unwrap());
    if let Some(ShellCommand { line, cwd, .. }) = &shell {
        words += &format!(": {}", line.lines().next().unwrap_or_default());
        if !cwd.is_empty() && !line.contains('\n') {
            words += &format!(" in {cwd}");
        }
    }
    let Some(result) = result else {
        return words;
    };
    let is_patch = shell.as_ref().is_some_and(|shell| shell.line.contains('\n'));
    if let Some(err) = result.err {
        let arrow = if call.shell.is_some() { " ->" } else { "" };
        return format!("{words}{arrow} ({err:?})");
    }
    words
        + &match &result.seen.load().unwrap() {
            SeenContent::Nothing | SeenContent::Printed(_) | SeenContent::PrintedEnd(_)
                if call.shell.is_some() && !is_patch =>
            {
                format!(" -> {}", result.output().unwrap())
            }
            SeenContent::Nothing | SeenContent::Printed(_) | SeenContent::PrintedEnd(_) => String::new(),
            SeenContent::Whole { content, .. } => format!(": whole {content}"),
            SeenContent::Part { content, total_lines, .. } => format!(": {content} of {total_lines} lines"),
            SeenContent::Edited { before, replacements, .. } => {
                let known = before.as_ref().map_or("", |_| " of a known file");
                format!(": {} replacements{known}", replacements.len())
            }
            SeenContent::Patched { replacements, hunks, .. } if replacements.is_empty() => {
                let hunks = hunks.iter().map(|hunk| format!("{}: {}", hunk.first, hunk.lines.join(" ")));
                format!(": line {}", hunks.collect::<Vec<_>>().join(", "))
            }
            SeenContent::Patched { replacements, .. } => {
                format!(": {} replacements", replacements.len())
            }
            SeenContent::Written { content, .. } | SeenContent::Replaced { content, .. } => {
                format!(": written {content}")
            }
            SeenContent::Listed(paths) if paths.is_empty() => String::new(),
            SeenContent::Listed(paths) => format!(": lists {}", paths.join(" ")),
        }
}

/// The usage of each answer that reports it: model, uncached + read + written, output.
pub(super) fn usages(session: &ImportedSession) -> Vec<String> {
    let all = session.events.iter().filter_map(|event| match event {
        RecordedEvent::Api { usage, model, .. } if *usage != Default::default() => Some((usage, model)),
        _ => None,
    });
    all.map(|(usage, model)| used(model, usage)).collect()
}

/// The usage of no answer, in the same words.
pub(super) fn unplaced(session: &ImportedSession) -> Vec<BilledUsage<String>> {
    session.unplaced.iter().map(|one| one.tokens.map(|tokens| used(&one.model, &tokens))).collect()
}

fn used(model: &str, usage: &TokenUsage) -> String {
    let written = usage.cache_write_5m + usage.cache_write_1h;
    let written = if written > 0 { format!("+{written}") } else { String::new() };
    format!("{model} {}+{}{written} {}", usage.uncached, usage.cache_read, usage.output)
}

/// The sum of the dollars that the recording states.
pub(super) fn stated(session: &ImportedSession) -> Option<f64> {
    session.totals.iter().filter_map(|total| total.dollars).reduce(|a, b| a + b)
}

#[test]
fn the_importer_in_the_documents_reads_the_recording_in_the_documents() {
    use super::Importer;
    use super::detect::{Head, detect};
    use super::example::Jotter;
    let page = include_str!("../../../docs/ADDING-AN-IMPORTER.md");
    let block = |language: &str| {
        let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
        rest.split_once("```\n").unwrap().0
    };
    assert_eq!(block("rust"), include_str!("example.rs"), "the code on the page is not the code that is tested");
    let recording = block("json");
    let head = Head::new(recording.as_bytes());
    assert!(Jotter.detects(&head));
    assert!(detect(&head).is_err(), "another importer takes it");
    let sessions = Jotter.import(&mut recording.as_bytes()).unwrap();
    assert_eq!(calls(&sessions[0]), ["read_file read a.txt: whole one\n"]);
    assert_eq!(usages(&sessions[0]), ["gpt-5.5 120+0 9"]);
    // The steps that the page names are those of the list.
    let list = include_str!("lib.rs");
    for step in ["pub static IMPORTERS", "pub trait Importer"] {
        assert!(list.contains(step), "{step}");
    }
}

/// The fixtures: name and content.
fn fixtures() -> Vec<(String, String)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/fixtures");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<(String, String)> = files
        .map(|file| {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(file).unwrap())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn every_fixture_is_read_by_the_importer_that_its_name_says() {
    for (name, text) in fixtures() {
        let (importer, sessions) = read(text.as_bytes(), None).unwrap();
        let says = match name.as_str() {
            "program.strace" => "strace",
            name => name,
        };
        assert!(says.starts_with(importer.id()), "{name}: {}", importer.id());
        assert!(sessions.iter().all(|session| !session.events.is_empty()), "{name}");
    }
}

#[test]
fn a_bad_line_costs_that_line() {
    for (name, text) in fixtures().iter().filter(|(name, _)| name.ends_with(".jsonl")) {
        let session = |text: &str| read(text.as_bytes(), None).unwrap().1.remove(0);
        let whole = session(text);
        for bad in ["{\"type\":\"cut off", "\u{0}\u{1}", "[1,2", "{\"type\":7,\"payload\":[]}"] {
            let mut lines: Vec<&str> = text.lines().collect();
            lines.insert(lines.len() / 2, bad);
            let spoilt = session(&lines.join("\n"));
            assert_eq!(calls(&whole), calls(&spoilt), "{name}: {bad}");
            assert_eq!(usages(&whole), usages(&spoilt), "{name}: {bad}");
        }
    }
}
