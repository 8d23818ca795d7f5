//! Run directories that others have made: every mutation of a small one is reported or refused, and nothing outside of
//! it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rundir::faults::{
    AgentEvent, AgentEventKind, Audit, AuditVerdict, CrashMethod, CrashPoints, Fact, FaultOutcome, Recovery, Return,
    Status,
};
use rundir::{ENVIRONMENT, MODEL_FILES, PLAN, PlannedScenario, RUN_DIRECTORY_VERSION, Run, Writer};
use serde_json::Value;

use super::report::Report;
use super::testing::Inputs;
use super::{
    comparison_junit, comparison_markdown, comparison_text, decision_record, decisions_text, ranking_text, write,
    write_faults,
};
use crate::answer::Overview;
use figures::context::contexts;
use figures::evidence::RunEvidence;
use figures::prices::Prices;
use figures::summary::summarise;
use figures::testing;
use verdicts::claims::judge;
use verdicts::compare::compare;
use verdicts::decide::{Evidence, Policy, decide, find};
use verdicts::rank::rank;

/// How long a command may take on a small directory. A loop over a hostile number would take for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Text that gives an order to each kind of output.
const HOSTILE: &str =
    "=HYPERLINK(\"http://x\")\u{1b}]0;owned\u{7}\u{202e}<script>alert(1)</script>|`[a](javascript:b)\n# c";

/// An outcome of a scenario in which everything was seen.
fn outcome() -> FaultOutcome {
    let audit = Audit {
        promised: Some("write".to_owned()),
        verdict: AuditVerdict::Invalid,
        acknowledged: BTreeMap::from([("write".to_owned(), 7)]),
        lost: 3,
        examples: vec!["record 3 is lost".to_owned()],
        ..Audit::default()
    };
    FaultOutcome {
        v: RUN_DIRECTORY_VERSION,
        scenario: "kill-idle".to_owned(),
        group: "daemon".to_owned(),
        backend: "sqlite".to_owned(),
        injected: "kill -9".to_owned(),
        label: Some("shortened".to_owned()),
        seen: vec![AgentEvent {
            call: "write".to_owned(),
            what: AgentEventKind::Errno,
            errno: Some(107),
            text: "not connected".to_owned(),
            times: 2,
        }],
        recovery: Some(Recovery { how: Return::NextMount, ms: 21, step: Some("mount it".to_owned()) }),
        audits: BTreeMap::from([("killed-daemon".to_owned(), audit)]),
        facts: BTreeMap::from([
            ("count".to_owned(), Fact::Count(3)),
            ("share".to_owned(), Fact::Number(0.25)),
            ("words".to_owned(), Fact::Words("exclude".to_owned())),
        ]),
        breaches: vec!["write did not end".to_owned()],
        ..FaultOutcome::default()
    }
}

fn crash_points() -> CrashPoints {
    CrashPoints {
        method: Some(CrashMethod::Kill),
        how: "kill -9".to_owned(),
        points: 10,
        in_flight: Some(6),
        broken: Some(1),
        died_by_itself: 1,
        recovery_ms: (20.0, 31.5),
        ..CrashPoints::not_run("sqlite", "killed-daemon", Status::Ran, "it ended early")
    }
}

/// A run directory three levels below a directory whose other content must not change.
struct Place {
    top: tempfile::TempDir,
    run: PathBuf,
}

impl Place {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let run = top.path().join("a/b/run");
        let mut scripted = testing::run();
        scripted.plan.scenarios = vec![PlannedScenario {
            name: "kill-idle".to_owned(),
            group: "daemon".to_owned(),
            title: "the daemon is killed".to_owned(),
            essay: "What it stands for.".to_owned(),
            sha256: "0".to_owned(),
            hang_limit_s: 30.0,
        }];
        scripted.samples.retain(|sample| sample.round < 3);
        let Run { plan, environment, contexts, .. } = &scripted;
        let writer = Writer::create(&run, plan, environment, None, contexts).unwrap();
        scripted.samples.iter().for_each(|line| writer.sample(line).unwrap());
        scripted.cells.iter().for_each(|line| writer.cell(line).unwrap());
        scripted.epochs.iter().for_each(|line| writer.epoch(line).unwrap());
        scripted.probes.iter().for_each(|line| writer.probe(line).unwrap());
        scripted.faults.iter().for_each(|line| writer.fault(line).unwrap());
        writer.model_files(scripted.model_files.as_ref().unwrap()).unwrap();
        writer.outcome(&outcome()).unwrap();
        writer.crash_points(&crash_points()).unwrap();
        Self { top, run }
    }

    /// The files outside of the run directory.
    fn outside(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut open = vec![self.top.path().to_owned()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                if path == self.run {
                    continue;
                }
                if entry.file_type().unwrap().is_dir() {
                    open.push(path.clone());
                }
                found.insert(path);
            }
        }
        found
    }

    /// The files of a run that hold documents and records, each with its first line.
    fn documents(&self) -> Vec<(String, Value)> {
        let mut files: Vec<PathBuf> = fs::read_dir(&self.run).unwrap().flatten().map(|entry| entry.path()).collect();
        files.sort();
        let documents = files.into_iter().filter_map(|file| {
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&file).unwrap();
            let value = match name.as_str() {
                PLAN => serde_json::to_value(toml::from_str::<toml::Table>(&text).unwrap()).unwrap(),
                ENVIRONMENT | MODEL_FILES => serde_json::from_str(&text).unwrap(),
                _ => serde_json::from_str(text.lines().next()?).unwrap(),
            };
            Some((name, value))
        });
        documents.collect()
    }

    /// Replaces a document, or the first record of a file. False if its format cannot express it.
    fn replace(&self, name: &str, value: &Value) -> bool {
        let file = self.run.join(name);
        let text = match name {
            PLAN => match toml::to_string(value) {
                Ok(text) => text,
                Err(_) => return false,
            },
            ENVIRONMENT | MODEL_FILES => value.to_string(),
            _ => {
                let old = fs::read_to_string(&file).unwrap();
                let rest = old.split_once('\n').unwrap().1;
                format!("{value}\n{rest}")
            }
        };
        fs::write(file, text).unwrap();
        true
    }
}

/// Everything that commands do with a run directory.
fn all_commands(dir: &Path) -> Result<String, String> {
    let run = Run::read(dir).map_err(|error| error.to_string())?;
    let summary = summarise(&run)?;
    let contexts = contexts(&run, &Prices::built_in().unwrap())?;
    let evidence = RunEvidence::new(&run, &summary, &contexts);
    let claims = judge(&[evidence]).map_err(|error| error.to_string())?;
    let evidence = || RunEvidence::new(&run, &summary, &contexts);
    let (file, text) = find("coding-agent").unwrap();
    let policy = Policy::parse(&file, &text).unwrap();
    let decisions = decide(&policy, &text, &Evidence::of(&run, &summary, &contexts));
    let overview = Overview::of(&decisions, &[evidence()]);
    let mut printed = overview.terminal(&[]) + &decisions_text(&overview, &decisions);
    printed += &decision_record(&decisions, &[&run]);
    if let Ok(found) = rank(&evidence()) {
        printed += &ranking_text(&found);
    }
    if let Ok(found) = compare(&evidence(), &[evidence()], (&claims, &claims), true) {
        printed += &comparison_text(&found);
        printed += &comparison_markdown(&found);
        printed += &comparison_junit(&found)?;
    }
    let report = Report {
        run: &run,
        summary: &summary,
        contexts: &contexts,
        claims: &claims,
        decisions,
        overview: &overview,
        others: &[],
        sessions: &[],
    };
    write(&report, dir).map_err(|error| error.to_string())?;
    write_faults(&run).map_err(|error| error.to_string())?;
    Ok(printed)
}

/// Runs `work` on a thread of its own. An error if it panics or takes too long.
fn tried<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || {
        let _ = sender.send(work());
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(result) => Ok(result),
        Err(RecvTimeoutError::Disconnected) => {
            let panic = thread.join().unwrap_err();
            let panic = panic.downcast_ref::<String>().cloned();
            Err(format!("{what}: panicked: {}", panic.unwrap_or_default()))
        }
        Err(RecvTimeoutError::Timeout) => Err(format!("{what}: not done after {PATIENCE:?}")),
    }
}

/// As [`tried`]; an error fails the test.
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    tried(what, work).unwrap_or_else(|error| panic!("{error}"))
}

/// The pointers to every value of a document without fields of its own.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                leaves(value, &format!("{at}/{name}"), found);
            }
        }
        // One item stands for its list.
        Value::Array(items) if !items.is_empty() => leaves(&items[0], &format!("{at}/0"), found),
        _ => found.push(at.to_owned()),
    }
}

/// Values that a foreign directory may hold in the place of one.
fn hostile(value: &Value) -> Vec<Value> {
    let numbers = [
        Value::from(0),
        1.into(),
        (-1).into(),
        u32::MAX.into(),
        (1u64 << 59).into(),
        u64::MAX.into(),
        1e308.into(),
        (-1e17).into(),
        5e-324.into(),
    ];
    let texts = ["../../../x", "/var/tmp/x", "", ".", "a\0b", HOSTILE, "\u{1b}[31m"];
    let mut others: Vec<Value> = match value {
        Value::Number(_) => numbers.into(),
        Value::String(_) => texts.map(Value::from).into(),
        _ => Vec::new(),
    };
    others.extend([Value::Null, Value::Array(Vec::new()), Value::from("x"), Value::from(7)]);
    others
}

/// The share of the accepted mutations that all commands are run on, one in so many.
/// `CTXBENCH_MUTATIONS=all` takes every one.
fn one_in() -> usize {
    match std::env::var_os("CTXBENCH_MUTATIONS") {
        Some(_) => 1,
        None => 150,
    }
}

#[test]
fn every_mutation_of_a_run_directory_is_reported_or_refused_by_file() {
    let place = Place::new();
    let outside = place.outside();
    let (mut mutations, mut accepted, mut reported) = (0, 0, 0);
    let mut failed = Vec::new();
    for (name, original) in place.documents() {
        let mut pointers = Vec::new();
        leaves(&original, "", &mut pointers);
        for pointer in pointers {
            for value in hostile(original.pointer(&pointer).unwrap()) {
                let mut mutated = original.clone();
                *mutated.pointer_mut(&pointer).unwrap() = value.clone();
                if !place.replace(&name, &mutated) {
                    continue;
                }
                mutations += 1;
                let what = format!("{name}{pointer} = {value}");
                let dir = place.run.clone();
                match in_time(&what, move || Run::read(&dir).map(drop).map_err(|error| error.to_string())) {
                    Err(error) => {
                        assert!(error.contains(&name), "{what}: {error}");
                        let is_records = name.ends_with(".jsonl");
                        // A later line is the second one with the names of this record.
                        let is_named =
                            error.contains(&format!("{name}:1: ")) || error.contains("is the same record as line 1: ");
                        assert!(!is_records || is_named, "{what}: {error}");
                    }
                    Ok(()) => {
                        accepted += 1;
                        if accepted % one_in() == 0 {
                            reported += 1;
                            let dir = place.run.clone();
                            // What follows from impossible figures may be refused.
                            let ended = tried(&what, move || all_commands(&dir).map(drop));
                            failed.extend(ended.err());
                        }
                    }
                }
            }
        }
        place.replace(&name, &original);
    }
    assert!(mutations > 500 && accepted > 100 && reported > 0, "{mutations} {accepted} {reported}");
    assert_eq!(failed, Vec::<String>::new());
    assert_eq!(place.outside(), outside);
}

#[test]
fn foreign_text_gives_no_order_to_any_output() {
    let place = Place::new();
    let outside = place.outside();
    let mut hostile = 0;
    for (name, mut document) in place.documents() {
        let mut pointers = Vec::new();
        leaves(&document, "", &mut pointers);
        for pointer in pointers {
            let Some(Value::String(_)) = document.pointer(&pointer) else {
                continue;
            };
            let before = document.pointer(&pointer).unwrap().clone();
            *document.pointer_mut(&pointer).unwrap() = HOSTILE.into();
            place.replace(&name, &document);
            match Run::read(&place.run) {
                Ok(_) => hostile += 1,
                // A name, or a word of a list.
                Err(_) => *document.pointer_mut(&pointer).unwrap() = before,
            }
        }
        place.replace(&name, &document);
    }
    assert!(hostile > 20, "{hostile}");
    let dir = place.run.clone();
    let printed = in_time("all commands", move || all_commands(&dir)).unwrap();
    let printed = inputs::border::terminal(&printed).into_owned();
    let is_hidden = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!printed.contains(is_hidden), "{printed}");
    let mut checked = 0;
    for dir in [place.run.clone(), place.run.join("charts")] {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let ending = path.extension().unwrap_or_default().to_str().unwrap();
            if !matches!(ending, "md" | "html" | "svg" | "csv") {
                continue;
            }
            checked += 1;
            let text = fs::read_to_string(&path).unwrap();
            let hidden = text.find(is_hidden).map(|at| text[at..].chars().take(40).collect::<String>());
            assert_eq!(hidden, None, "{}", path.display());
            if ending == "csv" {
                for record in csv::Reader::from_reader(text.as_bytes()).into_records() {
                    let record = record.unwrap();
                    assert!(record.iter().all(|field| !field.starts_with('=')), "{}", path.display());
                }
            } else {
                assert!(!text.contains("<script>alert"), "{}", path.display());
            }
            assert!(ending != "md" || !text.contains("](javascript"), "{}", path.display());
        }
    }
    assert!(checked > 8, "{checked}");
    assert_eq!(place.outside(), outside);
}

#[test]
fn a_broken_line_is_refused_with_its_file_and_line() {
    let place = Place::new();
    let deep = "[".repeat(100_000);
    for name in [rundir::SAMPLES, rundir::CELLS, rundir::EPOCHS, rundir::PROBES, rundir::FAULTS, rundir::CONTEXTS] {
        let file = place.run.join(name);
        let whole = fs::read(&file).unwrap();
        let lines = whole.iter().filter(|byte| **byte == b'\n').count();
        for (line, told) in [
            (&b"nonsense\n"[..], "expected ident"),
            (b"\xff\n", "is not UTF-8 text"),
            (b"{}\n", "field `v`: not a schema version"),
            (b"\n", "EOF"),
            (b"{\"v\": 99}\n", "schema version 99"),
            (b"{\"v\": 1e400}\n", "number out of range"),
            (deep.as_bytes(), ""),
        ] {
            fs::write(&file, [&whole, line].concat()).unwrap();
            let read = Run::read(&place.run);
            if told.is_empty() {
                // Without its end it is what a full disk leaves.
                read.unwrap();
                fs::write(&file, [&whole, line, b"\n"].concat()).unwrap();
            }
            let error = Run::read(&place.run).unwrap_err().to_string();
            assert!(error.contains(told) || told.is_empty() && error.contains("recursion limit"), "{error}");
            let at = format!("{name}:{}: ", lines + 1);
            assert!(error.contains(&at), "{error}");
        }
        fs::write(&file, whole).unwrap();
    }
    Run::read(&place.run).unwrap();
}

#[test]
fn a_path_that_is_not_a_regular_file_of_the_directory_is_refused_at_once() {
    use std::os::unix::fs::symlink;
    let place = Place::new();
    let started = Instant::now();
    for name in [PLAN, ENVIRONMENT, rundir::SAMPLES, rundir::POLICY, MODEL_FILES] {
        let file = place.run.join(name);
        let kept = place.top.path().join("kept");
        let was_there = fs::rename(&file, &kept).is_ok();
        let refused = || {
            let dir = place.run.clone();
            let read = in_time(name, move || Run::read(&dir).map(drop));
            let error = read.unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            error
        };
        symlink("/dev/zero", &file).unwrap();
        refused();
        fs::remove_file(&file).unwrap();
        symlink(&kept, &file).unwrap();
        assert!(refused().contains("symbolic link"));
        fs::remove_file(&file).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
        assert!(made.success());
        assert!(refused().contains("FIFO"));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(refused().contains("a directory"));
        fs::remove_dir(&file).unwrap();
        if was_there {
            fs::rename(&kept, &file).unwrap();
        }
    }
    Run::read(&place.run).unwrap();
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn a_run_without_any_time_is_reported_in_time() {
    let mut run = testing::run();
    for sample in &mut run.samples {
        sample.calls.clear();
        (sample.makespan_ns, sample.waited_ns) = (0, 0);
    }
    for cell in &mut run.cells {
        cell.latencies.clear();
        cell.counted = rundir::ExactCounts::default();
    }
    for workload in &mut run.plan.workloads {
        workload.calls.clear();
    }
    let page = in_time("the report", move || {
        let dir = tempfile::tempdir().unwrap();
        let inputs = Inputs::of(run);
        write(&inputs.report(), dir.path()).unwrap();
        fs::read_to_string(dir.path().join("report.md")).unwrap()
    });
    assert!(page.contains("agent/session: nothing to replay"), "{page}");
}
