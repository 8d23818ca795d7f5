use super::*;
use crate::faults::{
    Audit, CrashPoints, Culprit, Fact, FaultPlan, Hang, PlannedBackend, PlannedScenario, Recovery,
    Return, Seen, Status,
};
use crate::run::SCHEMA_VERSION;

fn outcome(scenario: &str, backend: &str) -> FaultOutcome {
    FaultOutcome {
        v: SCHEMA_VERSION,
        scenario: scenario.to_owned(),
        group: "daemon".to_owned(),
        backend: backend.to_owned(),
        seed: 1,
        status: Status::Ran,
        reason: None,
        injected: "kill -9".to_owned(),
        label: None,
        seen: Vec::new(),
        longest_call_ms: 3,
        hang: None,
        recovery: None,
        audits: BTreeMap::new(),
        facts: BTreeMap::new(),
        breaches: Vec::new(),
        took_ms: 10,
    }
}

fn seen(errno: i32) -> Seen {
    Seen {
        call: "write".to_owned(),
        what: SeenKind::Errno,
        errno: Some(errno),
        text: "Transport endpoint is not connected".to_owned(),
        times: 2,
    }
}

fn run() -> FaultRun {
    let scenario = |name: &str, group: &str| PlannedScenario {
        name: name.to_owned(),
        group: group.to_owned(),
        title: "something happens".to_owned(),
        essay: "What it stands for.".to_owned(),
        sha256: "0".to_owned(),
        hang_limit_s: 30.0,
    };
    let backend = |name: &str| PlannedBackend {
        name: name.to_owned(),
        summary: String::new(),
        durability: "in its own words".to_owned(),
        promises: BTreeMap::from([(KILLED_DAEMON.to_owned(), "write".to_owned())]),
        receipt: BTreeMap::new(),
        unavailable: None,
    };
    let mut error = outcome("kill-idle", "sqlite");
    error.seen.push(seen(107));
    error.recovery = Some(Recovery {
        how: Return::NextMount,
        ms: 21,
        step: None,
    });
    error
        .facts
        .insert("locks".to_owned(), Fact::Words("exclude".to_owned()));
    let mut hang = outcome("stop", "sqlite");
    hang.label = Some("shortened: 5 s instead of 30 s".to_owned());
    hang.hang = Some(Hang {
        call: "write".to_owned(),
        waited_ms: 30_100,
        culprit: Culprit::KernelWaits,
        state: "D".to_owned(),
        ended_by: "abort".to_owned(),
        ended_after_ms: 2_000,
    });
    hang.breaches
        .push("write did not end within 30 s".to_owned());
    let mut lost = outcome("kill-idle", "theirs");
    let audit = Audit {
        verdict: Verdict::Invalid,
        lost: 3,
        present: 4,
        examples: vec!["record 3 is lost".to_owned()],
        ..Audit::default()
    };
    lost.audits.insert(KILLED_DAEMON.to_owned(), audit.clone());
    let mut unfit = outcome("stop", "theirs");
    unfit.status = Status::Unfit;
    unfit.reason = Some("it has no daemon".to_owned());
    FaultRun {
        dir: PathBuf::new(),
        plan: FaultPlan {
            schema: SCHEMA_VERSION,
            created: "2026-11-22T00:00:00Z".to_owned(),
            ctxbench: "0.1.0".to_owned(),
            scenarios: vec![scenario("kill-idle", "daemon"), scenario("stop", "daemon")],
            backends: vec![backend("sqlite"), backend("theirs")],
            crash_points: 10,
        },
        environment: crate::testing::environment(),
        outcomes: vec![error, lost, hang, unfit],
        crash_points: vec![CrashPoints {
            v: SCHEMA_VERSION,
            backend: "theirs".to_owned(),
            loss: KILLED_DAEMON.to_owned(),
            how: "kill -9".to_owned(),
            seed: 1,
            points: 10,
            in_flight: 9,
            unjudged: 0,
            mixtures: 0,
            audit,
            recovery_ms: (20.0, 31.0),
            took_ms: 100,
        }],
    }
}

#[test]
fn the_worst_of_what_happened_is_what_a_cell_shows() {
    let run = run();
    let kind = |scenario: &str, backend: &str| worst(&run, scenario, backend).unwrap().cell();
    assert_eq!(kind("kill-idle", "sqlite"), CellKind::Error);
    assert_eq!(kind("kill-idle", "theirs"), CellKind::Lost);
    assert_eq!(kind("stop", "sqlite"), CellKind::Hang);
    assert_eq!(kind("stop", "theirs"), CellKind::Unfit);
    let text = |at: usize| short(&run.outcomes[at]);
    assert_eq!(
        [text(0), text(1), text(2)],
        ["ENOTCONN", "3 lost", "hang 30 s"]
    );

    let mut by_hand = outcome("x", "y");
    by_hand.recovery = Some(Recovery {
        how: Return::Never,
        ms: 1,
        step: None,
    });
    assert_eq!(by_hand.cell(), CellKind::Manual);
    let mut unknown = outcome("x", "y");
    unknown
        .audits
        .insert("power-loss".to_owned(), Audit::unknown("no way to see it"));
    assert_eq!(unknown.cell(), CellKind::Unknown);
    unknown.breaches.push("b".to_owned());
    assert_eq!(unknown.cell(), CellKind::Breach);
    assert_eq!(outcome("x", "y").cell(), CellKind::Clean);
    let mut raced = outcome("x", "y");
    raced
        .facts
        .insert("updates_lost".to_owned(), Fact::Count(86));
    assert_eq!(raced.cell(), CellKind::Raced);
    assert_eq!(short(&raced), "86 raced");
}

#[test]
fn a_page_is_made_from_a_run() {
    let text = markdown(&page(&run()));
    insta::assert_snapshot!(text);
}

#[test]
fn the_matrix_shows_every_cell_and_every_kind() {
    let svg = matrix(&run()).unwrap().for_file();
    for words in [
        "kill-idle",
        "sqlite",
        "3 lost",
        "hang 30 s",
        "ENOTCONN",
        "lost or wrong",
        "needs a hand",
    ] {
        assert!(svg.contains(words), "{words}");
    }
}
