use rundir::faults::AgentEventKind;

use super::*;
use rundir::faults::{AgentEvent, Audit, CrashPoints, Culprit, Fact, Hang, Recovery, Return, Status};
use rundir::{Arm, Plan, PlannedScenario};

fn outcome(scenario: &str, backend: &str) -> FaultOutcome {
    FaultOutcome {
        injected: "kill -9".to_owned(),
        longest_call_ms: 3,
        took_ms: 10,
        ..FaultOutcome::ran(scenario, "daemon", backend, 1)
    }
}

fn seen(errno: i32) -> AgentEvent {
    AgentEvent {
        call: "write".to_owned(),
        what: AgentEventKind::Errno,
        errno: Some(errno),
        text: "Transport endpoint is not connected".to_owned(),
        times: 2,
    }
}

fn run() -> Run {
    let scenario = |name: &str, group: &str| PlannedScenario {
        name: name.to_owned(),
        group: group.to_owned(),
        title: "something happens".to_owned(),
        essay: "What it stands for.".to_owned(),
        sha256: "0".to_owned(),
        hang_limit_s: 30.0,
    };
    let backend = |name: &str| {
        let mut arm: Arm = figures::testing::arm(name, None);
        arm.backend.durability = "in its own words".to_owned();
        arm.backend.promises = BTreeMap::from([(KILLED_DAEMON.to_owned(), "write".to_owned())]);
        arm
    };
    let mut error = outcome("kill-idle", "sqlite");
    error.seen.push(seen(107));
    error.recovery = Some(Recovery { how: Return::NextMount, ms: 21, step: None });
    error.facts.insert("locks".to_owned(), Fact::Words("exclude".to_owned()));
    let mut hang = outcome("stop", "sqlite");
    hang.label = Some("shortened: 5 s instead of 30 s".to_owned());
    hang.hang = Some(Hang {
        call: "write".to_owned(),
        waited_ms: 30_100,
        culprit: Culprit::KernelWaits,
        state: "S".to_owned(),
        ended_by: "abort".to_owned(),
        ended_after_ms: 2_000,
        uninterruptible_ms: 1_900,
    });
    hang.breaches.push("write did not end within 30 s".to_owned());
    let mut lost = outcome("kill-idle", "theirs");
    let audit = Audit {
        verdict: AuditVerdict::Invalid,
        lost: 3,
        present: 4,
        examples: vec!["record 3 is lost".to_owned()],
        ..Audit::default()
    };
    lost.audits.insert(KILLED_DAEMON.to_owned(), audit.clone());
    let mut unfit = outcome("stop", "theirs");
    unfit.status = Status::Unfit;
    unfit.reason = Some("it has no daemon".to_owned());
    Run {
        plan: Plan {
            scenarios: vec![scenario("kill-idle", "daemon"), scenario("stop", "daemon")],
            crash_points: 10,
            ..Plan::without_passes(
                "fault",
                "",
                "2026-11-22T00:00:00Z".to_owned(),
                "0.1.0".to_owned(),
                "ctxbench fault".to_owned(),
                vec![backend("sqlite"), backend("theirs")],
            )
        },
        environment: figures::testing::environment(),
        fault_outcomes: vec![error, lost, hang, unfit],
        crash_points: vec![
            CrashPoints {
                how: "kill -9".to_owned(),
                seed: 1,
                points: 10,
                in_flight: Some(6),
                unacknowledged: Some(9),
                newly_acknowledged: Some(8),
                broken: Some(1),
                died_by_itself: 1,
                audit,
                recovery_ms: (20.0, 31.0),
                took_ms: 100,
                ..CrashPoints::not_run("theirs", KILLED_DAEMON, Status::Ran, "it went away")
            },
            CrashPoints::not_run("theirs", POWER_LOSS, Status::Skipped, "no block device"),
        ],
        ..Run::default()
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
    let text = |at: usize| short(&run.fault_outcomes[at]);
    assert_eq!([text(0), text(1), text(2)], ["ENOTCONN", "3 lost", "hang 30 s"]);

    let mut by_hand = outcome("x", "y");
    by_hand.recovery = Some(Recovery { how: Return::Never, ms: 1, step: None });
    assert_eq!(by_hand.cell(), CellKind::Manual);
    let mut unknown = outcome("x", "y");
    unknown.audits.insert("power-loss".to_owned(), Audit::unknown("no way to see it"));
    assert_eq!(unknown.cell(), CellKind::Unknown);
    unknown.breaches.push("b".to_owned());
    assert_eq!(unknown.cell(), CellKind::Breach);
    assert_eq!(outcome("x", "y").cell(), CellKind::Clean);
    let mut raced = outcome("x", "y");
    raced.facts.insert("torn_reads".to_owned(), Fact::Count(12));
    assert_eq!(short(&raced), "12 torn reads");
    raced.facts.insert("updates_lost".to_owned(), Fact::Count(86));
    // Lost updates are worse than a failed call.
    raced.seen.push(seen(5));
    assert_eq!(raced.cell(), CellKind::Raced);
    assert_eq!(short(&raced), "86 upd. lost");
    let mut late = outcome("x", "y");
    late.seen.push(AgentEvent { what: AgentEventKind::Late, errno: None, ..seen(5) });
    assert_eq!(late.cell(), CellKind::Error, "late is not wrong");
    assert_eq!(short(&late), "seen late");
    late.seen.push(seen(110));
    assert_eq!(short(&late), "ETIMEDOUT", "a number says more");
}

#[test]
fn skipped_crash_points_pass_and_unchecked_ones_do_not() {
    let line = |status| CrashPoints::not_run("sqlite", POWER_LOSS, status, "why");
    assert!(line(Status::Skipped).is_passed() && line(Status::Unfit).is_passed());
    assert!(!line(Status::Infra).is_passed());
    // The points ran, but the state of the data is unknown.
    assert!(!line(Status::Ran).is_passed());
    let valid = CrashPoints { audit: Audit::default(), ..line(Status::Ran) };
    assert!(valid.is_passed());
    let died = CrashPoints { died_by_itself: 1, ..valid };
    assert!(!died.is_passed());
}

#[test]
fn examples_of_one_kind_do_not_hide_those_of_another() {
    let example = |at: u64, kind: &str| format!("point {at}: record {at} is {kind}: found nothing");
    let mut all = Audit::default();
    for at in 0..20 {
        let kind = if at < 19 { "stale" } else { "lost" };
        all.add(&Audit { examples: vec![example(at, kind)], ..Audit::default() });
    }
    assert_eq!(all.examples.len(), 4);
    assert_eq!(all.examples[3], example(19, "lost"));
}

#[test]
fn a_line_without_a_status_is_refused() {
    let line = r#"{"v":4,"backend":"sqlite","loss":"killed-daemon","how":"kill -9","seed":1,"points":12,"in_flight":12,"unacknowledged":0,"newly_acknowledged":12,"broken":0,"died_by_itself":0,"unjudged":0,"mixtures":0,"audit":{"verdict":"valid","acknowledged":{},"present":3,"absent":0,"unpromised":0,"lost":0,"torn":0,"half":0,"stale":0,"phantom":0,"unreadable":0,"examples":[]},"recovery_ms":[1.0,2.0],"took_ms":3}"#;
    let error = serde_json::from_str::<CrashPoints>(line).unwrap_err();
    assert!(error.to_string().contains("`status`"), "{error}");
}

/// A run of the groups with their own tables.
fn remote() -> Run {
    let mut run = run();
    for (name, group) in [("s3-cut", "s3"), ("llm-empty", "llm")] {
        let mut scenario = run.plan.scenarios[0].clone();
        scenario.name = name.to_owned();
        scenario.group = group.to_owned();
        run.plan.scenarios.push(scenario);
    }
    let mut cut = outcome("s3-cut", "sqlite");
    cut.group = "s3".to_owned();
    cut.seen.push(seen(5));
    cut.recovery = Some(Recovery { how: Return::ByItself, ms: 1_500, step: None });
    cut.audits.insert(MACHINE_LOSS.to_owned(), Audit::default());
    for (name, count) in [
        ("uploaded_once", 300),
        ("uploads_expected", 300),
        ("rss_before_kib", 90_000),
        ("rss_peak_kib", 95_000),
        ("written_meanwhile_kib", 65_536),
    ] {
        cut.facts.insert(name.to_owned(), Fact::Count(count));
    }
    let words = "not measured: no call waited".to_owned();
    cut.facts.insert("sync_interrupted_after_ms".to_owned(), Fact::Words(words));
    let mut empty = outcome("llm-empty", "theirs");
    empty.group = "llm".to_owned();
    empty.seen.push(AgentEvent { call: "read".to_owned(), ..seen(5) });
    empty.facts.insert("read_ms".to_owned(), Fact::Count(4));
    run.fault_outcomes.extend([cut, empty]);
    run
}

#[test]
fn tables_of_a_run_replace_those_in_a_document() {
    let mut text = "before\n".to_owned();
    for name in ["MATRIX", "CRASH", "BUCKET", "MODEL"] {
        text += &format!("<!-- {name} -->\nold {name}\n<!-- end of {name} -->\nbetween\n");
    }
    let (spliced, replaced) = super::super::splice_faults(&remote(), &text).unwrap();
    assert_eq!(replaced, ["MATRIX", "CRASH", "BUCKET", "MODEL"]);
    assert!(!spliced.contains("old "), "{spliced}");
    for words in [
        "before\n<!-- MATRIX -->",
        "300 of 300 once",
        "daemon 87 MiB, 92 at most while 64 MiB were written",
        "sync interrupted: not measured: no call waited",
        "| `s3-cut` | `sqlite` | write: `EIO` | 3 ms | 1.5 s |",
        "| `llm-empty` | read: `EIO` | 4 ms | – |",
        "not looked at",
        "From the run of 2026-11-22T00:00:00Z",
    ] {
        assert!(spliced.contains(words), "{words}: {spliced}");
    }
    let again = super::super::splice_faults(&remote(), &spliced).unwrap().0;
    assert_eq!(again, spliced);
    // Tables that the run does not have stay unchanged.
    let (spliced, replaced) = super::super::splice_faults(&run(), &text).unwrap();
    assert_eq!(replaced, ["MATRIX", "CRASH"]);
    assert!(spliced.contains("old BUCKET") && spliced.contains("old MODEL"));
    assert!(super::super::splice_faults(&run(), "no mark").is_err());
    assert!(super::super::splice_faults(&run(), "<!-- CRASH -->").is_err());
}

#[test]
fn a_page_is_made_from_a_run() {
    let text = markdown(&page(&run()));
    insta::assert_snapshot!(text);
}

#[test]
fn the_matrix_shows_every_cell_and_every_kind() {
    let svg = matrix(&run()).unwrap().for_file();
    for words in ["kill-idle", "sqlite", "3 lost", "hang 30 s", "ENOTCONN", "lost or wrong", "needs a hand"] {
        assert!(svg.contains(words), "{words}");
    }
}
