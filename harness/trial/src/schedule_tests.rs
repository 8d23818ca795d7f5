use std::path::Path;

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

fn writer(dir: &Path) -> Writer {
    let plan = Plan::without_passes("fault", "", String::new(), String::new(), String::new(), Vec::new());
    let environment = include_str!("../../runner/src/testing/env.json");
    let environment = serde_json::from_str(environment).unwrap();
    Writer::create(&dir.join("run"), &plan, &environment, None, &[]).unwrap()
}

/// The runs of a schedule of three seeds and scenarios on two backends, interrupted at the given run.
struct ScheduleResult {
    ended: ScheduleEnd,
    /// Scenario, backend and seed of each run that was executed.
    executed: Vec<(usize, usize, u64)>,
    outcomes: usize,
    /// How many runs were left after each one.
    left: Vec<usize>,
}

fn schedule(interrupted_at: Option<usize>, interrupt: bool) -> ScheduleResult {
    let dir = tempfile::tempdir().unwrap();
    let scenarios = [scenario("a", "seeds = [1, 2]"), scenario("b", "")];
    let (mut executed, mut left) = (Vec::new(), Vec::new());
    let ended = run_all(
        &scenario_runs(&scenarios, 2, None),
        &mut |run| {
            if interrupted_at == Some(executed.len()) {
                return None;
            }
            executed.push((run.scenario, run.backend, run.seed));
            let (scenario, backend) = (run.scenario.to_string(), run.backend.to_string());
            Some(FaultOutcome::ran(&scenario, "daemon", &backend, run.seed))
        },
        &writer(dir.path()),
        &mut |_, runs| left.push(runs),
        &Interrupt::of(Arc::new(interrupt.into())),
    );
    let run = Run::read(&dir.path().join("run")).unwrap();
    ScheduleResult { ended: ended.unwrap(), executed, outcomes: run.fault_outcomes.len(), left }
}

#[test]
fn the_schedule_runs_and_records_every_scenario_backend_and_seed() {
    let all = schedule(None, false);
    assert_eq!((all.ended, all.outcomes), (ScheduleEnd::Complete, 6));
    assert_eq!(all.executed[..3], [(0, 0, 1), (0, 0, 2), (0, 1, 1)]);
    assert_eq!(all.executed[3..], [(0, 1, 2), (1, 0, 1), (1, 1, 1)]);
    assert_eq!(all.left, [5, 4, 3, 2, 1, 0]);
    let given = scenario_runs(&[scenario("a", "seeds = [1, 2]")], 1, Some(9));
    assert_eq!(given.len(), 1);
    assert_eq!(given[0].seed, 9);
}

#[test]
fn an_interrupted_run_keeps_its_finished_outcomes() {
    let part = schedule(Some(3), false);
    assert_eq!((part.ended, part.outcomes), (ScheduleEnd::Interrupted, 3));
    assert_eq!(part.left.len(), 3);
    let none = schedule(None, true);
    assert_eq!((none.ended, none.outcomes), (ScheduleEnd::Interrupted, 0));
    assert!(none.executed.is_empty());
}

#[test]
fn a_misfit_names_the_missing_need() {
    let find = |name: &str| backends::registry::Registry::default().find(name).unwrap();
    let daemon = scenario("a", "needs = [\"daemon\", \"data\", \"persistence\"]");
    let why = |backend: &str| misfit(&daemon, &*find(backend));
    assert_eq!(why("sqlite"), None);
    assert_eq!(why("s3-embedded"), None);
    assert!(why("direct").unwrap().contains("no daemon"));
    assert!(why("memory").unwrap().contains("promises nothing after the end of its daemon"));
    assert!(why("null").unwrap().contains("does not return"));
    assert!(why("state").unwrap().contains("no paths"));
    assert!(why("llm-history-live").is_some());
    let database = scenario("b", "needs = [\"database\"]");
    assert_eq!(misfit(&database, &*find("s3-embedded")), None);
    assert!(misfit(&database, &*find("direct")).unwrap().contains("SQLite"));
    let bucket = scenario("c", "needs = [\"bucket\"]");
    assert_eq!(misfit(&bucket, &*find("s3-fsync-embedded")), None);
    assert!(misfit(&bucket, &*find("sqlite")).is_some());
}

#[test]
fn crash_points_need_a_database_that_outlives_its_daemon() {
    let scenario = crash_points_scenario();
    let registry = backends::registry::Registry::default();
    let fits = |name: &str| misfit(&scenario, &*registry.find(name).unwrap()).is_none();
    assert!(fits("sqlite") && fits("agent-memory") && fits("s3-embedded"));
    assert!(!fits("direct") && !fits("memory"));
    let cuts = |name: &str| misfit_of_cuts(&*registry.find(name).unwrap());
    for name in ["direct", "sqlite", "agent-memory", "s3-embedded"] {
        assert_eq!(cuts(name), None, "{name}");
    }
    assert!(cuts("memory").is_some());
    assert!(cuts("view-mail").unwrap().contains("makes no promise"));
}
