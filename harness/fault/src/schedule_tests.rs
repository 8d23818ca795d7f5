use std::path::Path;
use std::sync::atomic::AtomicBool;

use rundir::{Plan, Run};

use super::*;

const SCENARIO: &str = r#"
group = "daemon"
title = "t"
essay = "What it stands for, and what a good backend does about it, in a sentence or two."
"#;

fn scenario(name: &str, rest: &str) -> Scenario {
    let text = format!("name = \"{name}\"\n{SCENARIO}{rest}\ninjection = \"nothing\"\n");
    Scenario::parse(Path::new("x.toml"), &text).unwrap()
}

/// An executor that succeeds, and can be interrupted at a given run.
struct Scripted {
    executed: Vec<ScenarioRun>,
    interrupted_at: Option<usize>,
}

impl Executor for Scripted {
    fn run(&mut self, run: &ScenarioRun) -> Option<FaultOutcome> {
        if self.interrupted_at == Some(self.executed.len()) {
            return None;
        }
        self.executed.push(*run);
        let (scenario, backend) = (run.scenario.to_string(), run.backend.to_string());
        Some(FaultOutcome::ran(&scenario, "daemon", &backend, run.seed))
    }
}

#[derive(Default)]
struct Counting {
    begun: usize,
    recorded: usize,
}

impl Watcher for Counting {
    fn begins(&mut self, _: &ScenarioRun, _: usize) {
        self.begun += 1;
    }

    fn recorded(&mut self, _: &FaultOutcome) {
        self.recorded += 1;
    }
}

fn writer(dir: &Path) -> Writer {
    let plan = Plan::without_passes(
        "fault",
        "",
        String::new(),
        String::new(),
        String::new(),
        Vec::new(),
    );
    let environment = include_str!("../../src/testing/env.json");
    let environment = serde_json::from_str(environment).unwrap();
    Writer::create(&dir.join("run"), &plan, &environment, None, &[]).unwrap()
}

fn run_scripted(
    interrupted_at: Option<usize>,
) -> (Ended, Vec<ScenarioRun>, Vec<FaultOutcome>, Counting) {
    let dir = tempfile::tempdir().unwrap();
    let scenarios = [scenario("a", "seeds = [1, 2]"), scenario("b", "")];
    let runs = scenario_runs(&scenarios, 2, None);
    let writer = writer(dir.path());
    let mut executor = Scripted {
        executed: Vec::new(),
        interrupted_at,
    };
    let mut watcher = Counting::default();
    let ended = run_all(
        &runs,
        &mut executor,
        &writer,
        &mut watcher,
        &AtomicBool::new(false),
    )
    .unwrap();
    let run = Run::read(&dir.path().join("run")).unwrap();
    (ended, executor.executed, run.fault_outcomes, watcher)
}

#[test]
fn the_schedule_runs_and_records_every_scenario_backend_and_seed() {
    let (ended, executed, outcomes, watcher) = run_scripted(None);
    assert_eq!(ended, Ended::Complete);
    let order: Vec<(usize, usize, u64)> = executed
        .iter()
        .map(|run| (run.scenario, run.backend, run.seed))
        .collect();
    assert_eq!(
        order,
        [
            (0, 0, 1),
            (0, 0, 2),
            (0, 1, 1),
            (0, 1, 2),
            (1, 0, 1),
            (1, 1, 1)
        ]
    );
    assert_eq!((outcomes.len(), watcher.begun, watcher.recorded), (6, 6, 6));
    let given = scenario_runs(&[scenario("a", "seeds = [1, 2]")], 1, Some(9));
    assert_eq!(given.len(), 1);
    assert_eq!(given[0].seed, 9);
}

#[test]
fn an_interrupted_run_keeps_its_finished_outcomes() {
    let (ended, _, outcomes, watcher) = run_scripted(Some(3));
    assert_eq!(ended, Ended::Interrupted);
    assert_eq!((outcomes.len(), watcher.begun, watcher.recorded), (3, 4, 3));
    let set = AtomicBool::new(true);
    let dir = tempfile::tempdir().unwrap();
    let mut executor = Scripted {
        executed: Vec::new(),
        interrupted_at: None,
    };
    let runs = scenario_runs(&[scenario("a", "")], 1, None);
    let ended = run_all(
        &runs,
        &mut executor,
        &writer(dir.path()),
        &mut Counting::default(),
        &set,
    );
    assert_eq!(ended.unwrap(), Ended::Interrupted);
    assert!(executor.executed.is_empty());
}

#[test]
fn a_misfit_names_the_missing_need() {
    let find = |name: &str| backends::registry::Registry::default().find(name).unwrap();
    let daemon = scenario("a", "needs = [\"daemon\", \"data\", \"persistence\"]");
    let why = |backend: &str| misfit(&daemon, &*find(backend));
    assert_eq!(why("sqlite"), None);
    assert_eq!(why("s3-embedded"), None);
    assert!(why("direct").unwrap().contains("no daemon"));
    assert!(why("memory").unwrap().contains("gone with its daemon"));
    assert!(why("null").unwrap().contains("does not return"));
    assert!(why("state").unwrap().contains("no paths"));
    assert!(why("llm-history-live").is_some());
    let database = scenario("b", "needs = [\"database\"]");
    assert_eq!(misfit(&database, &*find("s3-embedded")), None);
    assert!(
        misfit(&database, &*find("direct"))
            .unwrap()
            .contains("SQLite")
    );
    let bucket = scenario("c", "needs = [\"bucket\"]");
    assert_eq!(misfit(&bucket, &*find("s3-fsync-embedded")), None);
    assert!(misfit(&bucket, &*find("sqlite")).is_some());
}

#[test]
fn crash_points_need_a_database_that_outlives_its_daemon() {
    let scenario = crash_points_scenario();
    let fits = |name: &str| {
        misfit(
            &scenario,
            &*backends::registry::Registry::default().find(name).unwrap(),
        )
        .is_none()
    };
    assert!(fits("sqlite") && fits("agent-memory") && fits("s3-embedded"));
    assert!(!fits("direct") && !fits("memory"));
}
