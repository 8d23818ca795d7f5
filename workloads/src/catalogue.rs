//! The built-in workloads and suites, and access to workload and suite files by path.

use std::io;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

use crate::built_in;
use crate::definition::Workload;
use crate::suite::Suite;
use inputs::files::{self, TRACE};
use inputs::{InputError, PathStep};

static MICRO: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/micro");
static AGENT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/agent");
static PROGRAM: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/program");
static TRACES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/traces");
static SUITES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/suites");

/// The families of built-in workloads.
const FAMILIES: [(&str, &Dir<'_>); 3] = [("micro", &MICRO), ("agent", &AGENT), ("program", &PROGRAM)];

/// The names of all built-in workloads, in order.
pub fn workload_names() -> Vec<String> {
    let names = FAMILIES.into_iter().flat_map(|(family, dir)| {
        let stems = built_in::stems(dir).into_iter();
        stems.map(move |stem| format!("{family}/{stem}"))
    });
    names.collect()
}

/// The built-in workload called `name`, or the workload file at that path.
///
/// # Errors
/// [`InputError`] if it does not exist or is malformed.
pub fn workload(name: &str) -> Result<Workload, InputError> {
    if name.ends_with(".toml") {
        return workload_file(Path::new(name));
    }
    let found = built_in_workload(name);
    let (file, text) = inputs::named("workload", name, found, &workload_names())?;
    let workload = Workload::parse(&file, &text, |trace| {
        let stem = trace.strip_prefix("traces/").unwrap_or(trace);
        let text = TRACES.get_file(stem).and_then(|file| file.contents_utf8());
        let found = text.map(|text| (PathBuf::from(trace), text.to_owned()));
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    })?;
    if workload.name != name {
        let message = format!("field `name`: is {:?}, but the file is {name}", workload.name);
        return Err(InputError::whole(&file, message));
    }
    Ok(workload)
}

/// The file of the built-in workload called `name`, and its text.
fn built_in_workload(name: &str) -> Option<(PathBuf, &'static str)> {
    let mut families = FAMILIES.into_iter();
    families.find_map(|(family, dir)| built_in::file(dir, family, name.strip_prefix(family)?.strip_prefix('/')?))
}

/// The workload in a file. Only a copy of a built-in one may have its name.
fn workload_file(path: &Path) -> Result<Workload, InputError> {
    let text = inputs::read(path)?;
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut workload = Workload::parse(path, &text, |trace| {
        let trace = dir.join(trace);
        let text = files::read_text(&trace, TRACE)?;
        Ok((trace, text))
    })?;
    let name = &workload.name;
    if built_in_workload(name).is_some_and(|(_, own)| own != text) {
        let message = format!(
            "{name:?} is the name of a built-in workload, whose figures would be mixed with those of this one (choose another name)"
        );
        let field = [PathStep::Field("name")];
        return Err(inputs::toml_error(path, &text, &field, &message));
    }
    // Absolute, because a run may be resumed from another working directory.
    let file = path.canonicalize();
    workload.file = Some(file.map_err(|error| InputError::whole(path, error))?);
    Ok(workload)
}

/// The names of all built-in suites, in order.
pub fn suite_names() -> Vec<String> {
    built_in::stems(&SUITES)
}

/// The built-in suite called `name`, or the suite file at that path.
///
/// # Errors
/// [`InputError`] if it does not exist or is malformed.
pub fn suite(name: &str) -> Result<Suite, InputError> {
    let found = built_in::file(&SUITES, "suites", name);
    let (file, text) = inputs::named("suite", name, found, &suite_names())?;
    Suite::parse(&file, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::CacheState;
    use crate::model::{ExpectedResult, ReferenceModel};
    use crate::suite::SuiteSection;

    #[test]
    fn a_workload_file_cannot_have_the_name_of_a_built_in_workload_unless_it_is_a_copy() {
        let dir = std::env::temp_dir().join(format!("ctxbench-workload-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("w.toml");
        let (_, text) = built_in_workload("micro/stat").unwrap();
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            workload(file.to_str().unwrap()).map(|workload| workload.name)
        };
        assert_eq!(read(text).unwrap(), "micro/stat");
        assert_eq!(read(&text.replace("micro/stat", "stat")).unwrap(), "stat");
        let refused = read(&format!("{text}\n# Another one.\n")).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("w.toml:1: field `name`: \"micro/stat\" is the name of a built-in workload"),
            "{refused}"
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn every_built_in_workload_can_be_replayed_and_fits_its_own_model() {
        let names = workload_names();
        assert!(names.len() >= 14, "{names:?}");
        for name in names {
            let workload = workload(&name).unwrap();
            if workload.missing.is_some() {
                // A program or corpus that it needs is not installed.
                continue;
            }
            let mut model = ReferenceModel::of(&workload.script);
            for (at, call) in workload.script.calls.iter().enumerate() {
                for op in &call.ops {
                    let expected = model.apply(op);
                    let recorded_failure =
                        name.starts_with("agent/claude") && matches!(expected, ExpectedResult::Errno(2));
                    assert!(
                        !matches!(expected, ExpectedResult::Errno(_)) || recorded_failure,
                        "{name}, call {at}: {} gives {expected:?}",
                        op.describe()
                    );
                }
            }
            assert!(!workload.script.timed_calls().is_empty(), "{name}");
        }
    }

    #[test]
    fn a_shortened_session_is_short_and_says_so() {
        let shortened = workload("agent/shortened").unwrap();
        let script = &shortened.script;
        assert_eq!(script.calls.len(), 12);
        let reads = script.calls.iter().flat_map(|call| &call.ops);
        assert_eq!(reads.filter(|op| op.reads_content()).count(), 5);
        assert!(script.files.iter().all(|(_, content)| content.len() <= 60));
        assert!(shortened.essay.contains("short"));

        let refused = |text: &str| {
            let path = Path::new("w.toml");
            let parsed = Workload::parse(path, text, |_| Err(io::ErrorKind::NotFound.into()));
            parsed.unwrap_err().to_string()
        };
        let (_, stat) = built_in::file(&MICRO, "micro", "stat").unwrap();
        let error = refused(&format!("{stat}\n[shortened]\ncalls = 3\nbytes = 10\n"));
        let expected = "only `[vsm_cycle]` can be shortened";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn every_suite_names_workloads_and_states_that_exist() {
        for name in suite_names() {
            for entry in suite(&name).unwrap().workloads() {
                let workload = workload(&entry.name).unwrap();
                for state in &entry.states {
                    let is_there = workload.states.contains(state);
                    assert!(is_there, "{name}: {} {state:?}", entry.name);
                }
            }
        }
    }

    #[test]
    fn the_default_suite_keeps_long_passes_counts_and_placements_apart() {
        let suite = suite("default").unwrap();
        let budgets = suite.sections.iter().map(|section| section.budget.unwrap());
        assert!(budgets.sum::<f64>() <= 315.0, "45 s are for kills and power cuts");
        let programs = |section: &SuiteSection| {
            let mut workloads = section.workloads.iter();
            // A copy of a hundred notes takes milliseconds.
            workloads.any(|entry| entry.name.starts_with("program/") && entry.name != "program/rsync-few")
        };
        let has_empty_caches = |section: &SuiteSection| {
            let mut states = section.workloads.iter().flat_map(|entry| &entry.states);
            states.any(|state| *state != CacheState::Hot)
        };
        for section in &suite.sections {
            let name = &section.name;
            assert_eq!(programs(section), name == "programs");
            assert_eq!(has_empty_caches(section), name == "empty-caches");
            assert_eq!(section.shared_cpu, name == "shared-cpu");
            assert_eq!(section.counts, name == "counts");
            if programs(section) {
                assert!(section.epochs >= Some(10) && section.rounds == Some(1) && !section.warm_up);
                assert!(section.backends.as_ref().unwrap().len() <= 3);
            }
        }
        for moved in ["program/tree", "program/npm-few"] {
            assert!(suite.workloads().all(|entry| entry.name != moved), "{moved}");
        }
    }

    #[test]
    fn a_workload_file_finds_its_trace_and_blobs_in_its_directory() {
        use inputs::sha256;
        let dir = tempfile::tempdir().unwrap();
        let digest = sha256(b"hello\n");
        std::fs::create_dir(dir.path().join("blobs")).unwrap();
        std::fs::write(dir.path().join("blobs").join(&digest), "hello\n").unwrap();
        let built_in = include_str!("../traces/claude-code-read-heavy.trace.jsonl");
        let mut head: serde_json::Value = serde_json::from_str(built_in.lines().next().unwrap()).unwrap();
        head["fidelity"] = "content".into();
        let file = format!(
            r#"{{"t":"file","path":"a.md","known":"full","content":{{"bytes":6,"lines":1,"sha256":"{digest}","blob":"blobs/{digest}"}}}}"#
        );
        let call = r#"{"t":"call","i":0,"k":0,"lane":"main","tool":"Read","op":"read","path":"a.md","args":{},"at":1}"#;
        let result = r#"{"t":"result","i":0,"ok":true,"bytes":6,"tok":1}"#;
        let end = built_in.lines().last().unwrap();
        let trace = [&head.to_string(), file.as_str(), call, result, end].join("\n");
        std::fs::write(dir.path().join("my.trace.jsonl"), trace + "\n").unwrap();
        let essay = "A workload of one's own, as a user would write it beside a trace of their own sessions.";
        let toml =
            format!("name = \"mine\"\nessay = \"{essay}\"\nstates = [\"hot\"]\n[trace]\nfile = \"my.trace.jsonl\"\n");
        let path = dir.path().join("mine.toml");
        std::fs::write(&path, toml).unwrap();
        let workload = workload(path.to_str().unwrap()).unwrap();
        assert_eq!(&*workload.script.files[0].1, b"hello\n");
        assert!(workload.is_recorded && workload.file.is_some());
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_names() {
        let error = workload("micro/read-2k").unwrap_err().to_string();
        assert!(error.contains("the nearest are micro/read-1k"), "{error}");
        let error = suite("defualt").unwrap_err().to_string();
        assert!(error.contains("default"), "{error}");
    }
}
