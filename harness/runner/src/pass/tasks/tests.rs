//! Passes of tasks over copied files and over SQL tools: answers, staleness, tokens, wrong answers.

use std::ffi::OsString;
use std::sync::Arc;

use arms::backend::{Backend, Description, DomainTools, Unavailable, Versions, Workspace, WorkspaceConfig};
use backends::registry::Registry;
use replay::ResultBuffer;
use serde_json::Value;
use workloads::catalogue;
use workloads::definition::CacheState;

use super::*;
use crate::pass::{CounterUse, Expectations, Pass};
use crate::testing::workspace_config;
use trial::interrupt::Interrupt;
use trial::watchdog::supervise;

fn tasks(workload: &str) -> Tasks {
    let script = catalogue::workload(workload).unwrap().script;
    Tasks::clone(script.tasks.as_ref().unwrap())
}

/// Two passes over one workspace, so that the second one begins with what the first one left. The second one is returned.
fn passed(backend: Box<dyn Backend>, tasks: Tasks) -> PassResult {
    passed_on(backend, tasks, true)
}

/// The same on a machine that has what the programs beside plain files need, or has not.
fn passed_on(backend: Box<dyn Backend>, tasks: Tasks, has_programs: bool) -> PassResult {
    let dir = tempfile::tempdir().unwrap();
    let config = workspace_config(dir.path());
    let result = supervise(&Interrupt::never(), move |watchdog| {
        let script = Arc::new(Script { tasks: Some(Arc::new(tasks)), ..Script::default() });
        let described = backend.describe();
        let expectations = Expectations::new(&script, CacheState::Hot, &described, backend.access());
        let mut workspaces = Workspaces::one(backend.open(&config).unwrap());
        let mut driver = TaskDriver::new(script.tasks.as_ref().unwrap());
        Driver::<Instant>::open(&mut driver, &mut workspaces, &*backend, &config).unwrap();
        driver.has_programs = has_programs;
        let interrupt = Interrupt::never();
        let mut run = || {
            let pass = Pass {
                expectations: &expectations,
                backend: &described,
                has_bucket: false,
                state: CacheState::Hot,
                slowed_percent: 0,
                counting: CounterUse::Never,
                proves_state: false,
                reads_back: true,
                call_timeout: Duration::from_secs(10),
                interrupt: &interrupt,
            };
            let (clock, mut buffer) = (Instant::now(), ResultBuffer::new());
            pass.run(&driver, &mut workspaces, watchdog, &clock, &mut buffer, &mut || {})
        };
        let first = run();
        assert_eq!(first.worst_outcome, None);
        run()
    });
    result.unwrap()
}

fn named(name: &str) -> Box<dyn Backend> {
    Registry::default().find(name).unwrap()
}

fn score(passed: &PassResult, name: &str) -> (u64, u64) {
    let score = passed.sample.scores[METHOD][name];
    (score.sum, score.of)
}

#[test]
fn copies_and_sql_tools_answer_every_question() {
    for (workload, stale) in [("agent/inbox-find", 3), ("agent/inbox-triage", 4), ("agent/inbox-log", 3)] {
        for (arm, most_stale) in [("direct", stale), ("tools-sql", 0)] {
            let passed = passed(named(arm), tasks(workload));
            assert_eq!(passed.worst_outcome, None, "{workload} on {arm}");
            let questions = tasks(workload).questions.len() as u64;
            let (calls, of) = score(&passed, "calls");
            assert!(calls >= questions && of == questions, "{workload} on {arm}: {calls} of {of}");
            assert_eq!(passed.sample.calls["tool-call"].count, calls);
            for name in ["definition-tokens", "call-tokens", "result-tokens"] {
                assert!(score(&passed, name).0 > 10 * questions, "{workload} on {arm}: {name}");
            }
            let (found, _) = score(&passed, "stale-answers");
            assert!(found <= most_stale && (found > 0) == (most_stale > 0), "{workload} on {arm}: {found} stale");
            let (lag, changes) = score(&passed, "lag-us");
            let mean = lag / changes;
            match arm {
                "direct" => assert!((10_000_000..300_000_000).contains(&mean), "{mean}"),
                _ => assert!(mean < 1_000_000, "{mean}"),
            }
            // Only the delay of copies follows from a schedule, which a report marks as simulated.
            let is_copied = passed.sample.scores["task"].contains_key("copies");
            assert_eq!(is_copied, arm == "direct", "{workload} on {arm}");
        }
    }
}

#[test]
fn programs_beside_plain_files_answer_each_question_of_a_controller_and_are_counted() {
    let tokens = |passed: &PassResult, method: &str| {
        let scores = &passed.sample.scores[method];
        ["definition-tokens", "call-tokens", "result-tokens"].map(|name| scores[name].sum)
    };
    for (workload, calls) in [("agent/inbox-triage", 8), ("agent/inbox-log", 16)] {
        let passed = passed(named("direct"), tasks(workload));
        assert_eq!(passed.worst_outcome, None, "{workload}");
        let found = &passed.sample.scores[PROGRAMS];
        assert_eq!((found["calls"].sum, found["calls"].of), (calls, 8), "{workload}");
        // A program reads the same copies, and is asked after the same changes.
        assert_eq!(found["stale-answers"], passed.sample.scores[METHOD]["stale-answers"], "{workload}");
        assert!(tokens(&passed, PROGRAMS).iter().all(|count| *count > 80), "{workload}");
        // No time of them is in a latency.
        assert_eq!(passed.sample.calls["tool-call"].count, score(&passed, "calls").0, "{workload}");
        if workload == "agent/inbox-triage" {
            let [_, _, plain] = tokens(&passed, METHOD);
            let [_, _, computed] = tokens(&passed, PROGRAMS);
            assert!(2 * computed < plain, "{computed} of {plain}");
        }
    }
    // Mail has no program, and neither has an arm without plain files.
    for (arm, workload) in [("direct", "agent/inbox-find"), ("tools-sql", "agent/inbox-triage")] {
        let passed = passed(named(arm), tasks(workload));
        assert!(!passed.sample.scores.contains_key(PROGRAMS), "{workload} on {arm}");
    }
}

#[test]
fn a_machine_without_awk_measures_plain_files_and_leaves_out_the_programs_beside_them() {
    let passed = passed_on(named("direct"), tasks("agent/inbox-triage"), false);
    assert_eq!(passed.worst_outcome, None);
    assert!(score(&passed, "calls").0 > 0);
    assert!(!passed.sample.scores.contains_key(PROGRAMS));
    let missing = TaskProgram::missing(|name| !["awk", "sort", "tail"].contains(&name));
    let said = "not installed: awk, sort, tail (`apt-get install coreutils mawk`)";
    assert_eq!(missing.as_deref(), Some(said));
    assert_eq!(TaskProgram::missing(|_| true), None);
}

#[test]
fn a_copy_that_is_never_renewed_is_stale_and_one_before_each_question_is_not() {
    let stale = |every_s| {
        let mut tasks = tasks("agent/inbox-find");
        tasks.copies_every_s = every_s;
        let passed = passed(named("direct"), tasks);
        assert_eq!(passed.worst_outcome, None);
        score(&passed, "stale-answers")
    };
    assert_eq!(stale(5), (0, 12));
    assert_eq!(stale(100_000), (3, 12));
}

#[test]
fn the_definitions_are_counted_once_a_task() {
    let passed = passed(named("direct"), tasks("agent/inbox-log"));
    let stated = tokens::count(&definitions(Form::Copy).unwrap());
    assert_eq!(score(&passed, "definition-tokens"), (8 * stated, 8));
}

/// SQL tools whose second answer and later ones name other values.
struct LyingBackend(Box<dyn Backend>);

struct LyingWorkspace(Box<dyn Workspace>, u32);

impl Backend for LyingBackend {
    fn describe(&self) -> Description {
        self.0.describe()
    }

    fn access(&self) -> Access {
        self.0.access()
    }

    fn source(&self, dir: &Path) -> Option<Source> {
        self.0.source(dir)
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        self.0.versions()
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        Ok(Box::new(LyingWorkspace(self.0.open(config)?, 0)))
    }

    fn offline_read(&self, _: &WorkspaceConfig, _: &str) -> Option<(String, Vec<OsString>)> {
        None
    }
}

impl Workspace for LyingWorkspace {
    fn root(&self) -> &Path {
        self.0.root()
    }

    fn domain_tools(&mut self) -> Option<&mut dyn DomainTools> {
        Some(self)
    }
}

impl DomainTools for LyingWorkspace {
    fn definitions(&self) -> &str {
        "[]"
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> io::Result<Result<String, String>> {
        self.1 += 1;
        // The first pass of a test has 16 calls, and those that look for two changes.
        let is_second_pass = self.1 > 20;
        let tools = self.0.domain_tools().unwrap();
        let answer = tools.call(tool, arguments)?;
        Ok(answer.map(
            |text| if is_second_pass { text.replace("\"db\"", "\"cache\"").replace("full", "empty") } else { text },
        ))
    }
}

#[test]
fn a_wrong_answer_is_wrong_data() {
    let passed = passed(Box::new(LyingBackend(named("tools-sql"))), tasks("agent/inbox-log"));
    let (outcome, reason) = passed.worst_outcome.unwrap();
    assert_eq!(outcome, Outcome::WrongData);
    assert!(reason.contains("expected"), "{reason}");
    assert!(passed.sample.outcomes[&Outcome::WrongData] >= 2);
}

#[test]
fn only_arms_with_the_data_take_part_in_tasks() {
    let mail = catalogue::workload("agent/inbox-find").unwrap().script;
    let triage = catalogue::workload("agent/inbox-triage").unwrap().script;
    let other = catalogue::workload("micro/stat").unwrap().script;
    let why = |script: &Script, name: &str| unsupported(script, name, &*named(name));
    for name in ["direct", "sqlite", "view-mail", "tools-sql", "tools-mcp"] {
        assert_eq!(why(&mail, name), None, "{name}");
    }
    assert!(why(&mail, "view-vsm").unwrap().contains("no mail"));
    assert_eq!(why(&triage, "view-vsm"), None);
    let cycle = catalogue::workload("agent/vsm-cycle").unwrap().script;
    assert_eq!(why(&cycle, "view-vsm-writable"), None);
    assert_eq!(why(&triage, "view-vsm-writable"), None);
    assert!(why(&cycle, "view-vsm").unwrap().contains("other programs"));
    assert!(why(&other, "view-vsm-writable").unwrap().contains("is in none of them"));
    assert!(why(&mail, "state").unwrap().contains("no directory"));
    assert!(why(&mail, "null").unwrap().contains("does not hold"));
    assert!(why(&other, "view-mail").unwrap().contains("other programs"));
    assert_eq!(why(&other, "direct"), None);
}
