//! `ctxbench fault` over real mounts: it finds breaches, ends hangs and leaves nothing behind.

use std::fs;
use std::time::Duration;

use rundir::Run;
use rundir::faults::{
    CellKind, Culprit, FaultOutcome, IN_USE, KILLED_DAEMON, ORDERLY_END, POWER_LOSS, Return,
    SeenKind, Status, Verdict,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{
    Scratch, Succeeds, as_root, ctxbench, has, mountable, mounts_under, refused, run, stderr,
    stdout, wait_for, words,
};

/// Runs `ctxbench fault`. Returns its exit code, the recorded run and its standard error.
pub fn fault(scratch: &Scratch, arguments: &[&str]) -> (i32, Run, String) {
    let results = scratch.dir("results");
    let work = scratch.dir("work");
    let output = ctxbench(["fault", "--results", results.to_str().unwrap()])
        .args(["--scratch", work.to_str().unwrap()])
        .args(arguments)
        .output()
        .unwrap();
    let said = format!("{}{}", stdout(&output), stderr(&output));
    let dir = fs::read_dir(&results).unwrap().next();
    let dir = dir.unwrap_or_else(|| panic!("{said}")).unwrap().path();
    assert!(mounts_under(&work).is_empty(), "{said}");
    let left = fs::read_dir(&work).unwrap().count();
    assert_eq!(left, 0, "{said}");
    (
        output.status.code().unwrap(),
        Run::read(&dir).unwrap(),
        said,
    )
}

/// The outcome of a scenario.
pub fn of<'a>(run: &'a Run, scenario: &str) -> &'a FaultOutcome {
    let mut own = run
        .fault_outcomes
        .iter()
        .filter(|own| own.scenario == scenario);
    own.next().unwrap()
}

#[test]
fn a_killed_daemon_recovers_by_itself_and_keeps_its_promise() {
    let Some(scratch) = mountable() else { return };
    let (code, run, said) = fault(
        &scratch,
        &words(
            "--backend=sqlite --scenario=nothing-broken --scenario=kill-while-writing \
             --scenario=kill-before-sync --scenario=client-killed --scenario=writers-append \
             --scenario=database-newer --scenario=crash-loop",
        ),
    );
    assert_eq!(code, 0, "{said}");
    let killed = of(&run, "kill-while-writing");
    assert_eq!(killed.cell(), CellKind::Error, "{killed:?}");
    assert_eq!(killed.recovery.as_ref().unwrap().how, Return::NextMount);
    let audit = &killed.audits[KILLED_DAEMON];
    assert_eq!(audit.promised.as_deref(), Some("write"));
    assert_eq!(audit.verdict, Verdict::Valid);
    assert!(
        audit.present > 0 && !audit.acknowledged.is_empty(),
        "{audit:?}"
    );
    let unsynced = of(&run, "kill-before-sync");
    let fsync = unsynced
        .seen
        .iter()
        .find(|seen| seen.call == "fsync")
        .unwrap();
    assert_eq!(
        (fsync.what, fsync.errno),
        (SeenKind::Errno, Some(107)),
        "ENOTCONN"
    );
    let newer = of(&run, "database-newer");
    assert_eq!(newer.seen[0].what, SeenKind::Refusal);
    assert!(newer.seen[0].text.contains("version"), "{newer:?}");
    assert_eq!(
        of(&run, "writers-append").facts["updates_lost"].to_string(),
        "0"
    );
    let page = fs::read_to_string(run.dir.join("faults.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("kill-while-writing"));
    // The page only depends on the run's files.
    let markdown = fs::read_to_string(run.dir.join("faults.md")).unwrap();
    fs::remove_file(run.dir.join("faults.md")).unwrap();
    let again = crate::common::run(["report", run.dir.to_str().unwrap()]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(
        fs::read_to_string(run.dir.join("faults.md")).unwrap(),
        markdown
    );
}

#[test]
fn a_hang_is_reported_and_ended() {
    let Some(scratch) = mountable() else { return };
    let file = scratch.path().join("stuck.toml");
    let scenario = "name = \"stuck\"\ngroup = \"daemon\"\ntitle = \"stopped for longer than the limit\"\n\
        essay = \"A daemon that stands still for longer than the limit: the watchdog has to end the call.\"\n\
        needs = [\"daemon\", \"data\", \"persistence\"]\n[injection.stop-daemon]\nseconds = 3.0\nlong_seconds = 3.0\n\
        [limits]\nhang = 1.0\n";
    fs::write(&file, scenario).unwrap();
    let arguments = ["--backend=sqlite", "--scenario", file.to_str().unwrap()];
    let (code, run, said) = fault(&scratch, &arguments);
    assert_eq!(code, 1, "a hang is a breach: {said}");
    let outcome = of(&run, "stuck");
    assert_eq!(outcome.cell(), CellKind::Hang, "{outcome:?}");
    let hang = outcome.hang.as_ref().unwrap();
    assert_eq!(hang.culprit, Culprit::DaemonStuck);
    assert_ne!(hang.ended_by, "nothing");
    // A resumed daemon must show every acknowledged change. A daemon whose connection was aborted ends. So
    // does one that does not answer within the one-second limit.
    let how = outcome.recovery.as_ref().unwrap().how;
    if hang.ended_by == "abort" {
        assert_ne!(how, Return::ByItself, "{outcome:?}");
    }
    let (lost, kept) = match how {
        Return::ByItself => (IN_USE, KILLED_DAEMON),
        _ => (KILLED_DAEMON, IN_USE),
    };
    assert!(!outcome.audits.contains_key(kept), "{outcome:?}");
    assert_eq!(outcome.audits[lost].verdict, Verdict::Valid, "{outcome:?}");
}

#[test]
fn sqlite_keeps_its_promise_at_crash_points() {
    let Some(scratch) = mountable() else { return };
    let (code, run, said) = fault(
        &scratch,
        &words("--backend=sqlite --no-scenarios --crash-points=12 --seed=5"),
    );
    assert_eq!(code, 0, "{said}");
    let losses: Vec<&str> = run
        .crash_points
        .iter()
        .map(|own| own.loss.as_str())
        .collect();
    assert_eq!(losses, [KILLED_DAEMON, POWER_LOSS]);
    for points in &run.crash_points {
        assert_eq!(points.points + points.unjudged, 12);
        assert_eq!(points.audit.verdict, Verdict::Valid, "{points:?}");
        assert!(points.audit.present > 0, "{points:?}");
    }
    let kills = &run.crash_points[0];
    // A kill between two calls or before the first one increments none of these counters.
    assert!(kills.newly_acknowledged > Some(0), "{kills:?}");
    assert!(kills.unacknowledged <= Some(12) && kills.in_flight <= Some(12));
    assert_eq!(kills.died_by_itself, 0, "{kills:?}");
    assert_eq!(run.crash_points[1].in_flight, None, "nobody looks there");
    let page = fs::read_to_string(run.dir.join("faults.md")).unwrap();
    assert!(page.contains("95 % confidence") && page.contains("page cache"));
    assert!(said.contains("page: "), "{said}");
}

#[test]
fn an_interrupted_fault_run_leaves_nothing_behind() {
    let Some(scratch) = mountable() else { return };
    let (results, work) = (scratch.dir("results"), scratch.dir("work"));
    let mut process = ctxbench(words(
        "fault --backend=sqlite --scenario=stop-daemon --long",
    ))
    .arg("--results")
    .arg(&results)
    .arg("--scratch")
    .arg(&work)
    .stderr(fs::File::create(scratch.path().join("said")).unwrap())
    .spawn()
    .unwrap();
    wait_for("a mount", || {
        let said = fs::read_to_string(scratch.path().join("said")).unwrap();
        assert_eq!(process.try_wait().unwrap(), None, "{said}");
        !mounts_under(&work).is_empty()
    });
    std::thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_raw(process.id() as i32).unwrap(), Signal::INT).unwrap();
    let status = process.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(mounts_under(&work).is_empty());
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
    let dir = fs::read_dir(&results)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert!(Run::read(&dir).unwrap().fault_outcomes.is_empty());
}

#[test]
fn the_fault_command_lists_selects_and_checks_scenarios() {
    let listed = stdout(&run(words(
        "fault --list --backend=direct --backend=sqlite",
    )));
    let line = listed
        .lines()
        .find(|line| line.contains("kill-idle"))
        .unwrap();
    assert!(
        line.contains("sqlite") && !line.contains("direct"),
        "{line}"
    );
    let one = stdout(&run(["fault", "--list", "--group=many-agents"]));
    assert!(
        one.contains("writers-locked") && !one.contains("kill-idle"),
        "{one}"
    );
    let scratch = Scratch::new();
    let file = scratch.path().join("mine.toml");
    fs::write(
        &file,
        "name = \"mine\"\ngroup = \"daemon\"\ntitle = \"t\"\ncolour = 3\n",
    )
    .unwrap();
    let said = refused(&["fault", "--scenario", file.to_str().unwrap()]);
    has(&said, &[":4: ", "colour"]);
    has(
        &refused(&["fault", "--scenario", "nonsense"]),
        &["kill-idle"],
    );
}

#[test]
fn a_misfit_is_recorded_with_its_reason() {
    let scratch = Scratch::new();
    let (code, run, said) = fault(&scratch, &["--backend=direct", "--scenario=kill-idle"]);
    assert_eq!(code, 0, "{said}");
    let outcome = of(&run, "kill-idle");
    assert_eq!(outcome.status, Status::Unfit);
    assert!(outcome.reason.as_ref().unwrap().contains("no daemon"));
}

#[test]
fn local_stores_keep_synced_changes_after_a_power_cut() {
    let Some(scratch) = as_root() else { return };
    let (code, run, said) = fault(
        &scratch,
        &words("--backend=direct --backend=sqlite --backend=s3-embedded --scenario=power-loss"),
    );
    assert_eq!(code, 0, "{said}{:#?}", run.fault_outcomes);
    assert_eq!(run.fault_outcomes.len(), 3);
    let mut unpromised = 0;
    for outcome in &run.fault_outcomes {
        assert!(outcome.label.as_ref().unwrap().contains("simulated"));
        // The control: some cuts must discard unsynced data, else the test proves nothing.
        assert_ne!(outcome.facts["unsynced_discarded"].to_string(), "0");
        let audit = &outcome.audits[POWER_LOSS];
        assert_eq!(audit.promised.as_deref(), Some("fsync"));
        assert_eq!(audit.verdict, Verdict::Valid, "{outcome:?}");
        assert!(
            audit.present > 0 && audit.acknowledged["fsync"] > 0,
            "{audit:?}"
        );
        unpromised += audit.unpromised;
        let has_redo_log = outcome.backend != "direct";
        assert_eq!(
            has_redo_log,
            outcome.facts.contains_key("redo_syncs"),
            "{outcome:?}"
        );
        let recovery = outcome.recovery.as_ref().unwrap();
        assert_eq!(recovery.how, Return::NextMount, "{outcome:?}");
    }
    // Some changes with a weaker acknowledgement than promised must be lost, too.
    assert!(unpromised > 0, "{:?}", run.fault_outcomes);
}

#[test]
fn the_option_that_a_refusal_names_recovers_the_mount() {
    let Some(scratch) = mountable() else { return };
    let (_, run, said) = fault(
        &scratch,
        &words(
            "--backend=sqlite-writeback --backend=s3-embedded --scenario=log-gone \
             --scenario=database-truncated --scenario=s3-emptied",
        ),
    );
    for (scenario, backend, option, audit, verdict) in [
        (
            "log-gone",
            "sqlite-writeback",
            "--without-log",
            "log-gone",
            Verdict::Invalid,
        ),
        (
            "database-truncated",
            "s3-embedded",
            "--rebuild-cache",
            "damaged",
            Verdict::Valid,
        ),
        (
            "s3-emptied",
            "s3-embedded",
            "--refill-bucket",
            "refilled",
            Verdict::Valid,
        ),
    ] {
        let mut own = run.fault_outcomes.iter();
        let outcome = own
            .find(|own| own.scenario == scenario && own.backend == backend)
            .unwrap();
        assert_eq!(outcome.breaches, [""; 0], "{said}");
        let recovery = outcome.recovery.as_ref();
        let recovery = recovery.unwrap_or_else(|| panic!("{outcome:?}"));
        assert_eq!(recovery.how, Return::AfterStep, "{outcome:?}");
        assert!(recovery.step.as_ref().unwrap().contains(option));
        let audit = &outcome.audits[audit];
        assert_eq!(audit.verdict, verdict, "{outcome:?}");
        assert!(audit.present > 0, "{audit:?}");
    }
    let mut own = run.fault_outcomes.iter();
    let bucket = own.find(|own| own.scenario == "log-gone" && own.backend == "s3-embedded");
    // Whether the result is a past state or a mixture depends on what had been uploaded when the log was
    // removed.
    let bucket = bucket.unwrap();
    assert_eq!(bucket.recovery.as_ref().unwrap().how, Return::AfterStep);
    assert!(bucket.audits["log-gone"].present > 0, "{bucket:?}");
}

#[test]
fn sqlite_keeps_its_promise_under_daemon_disk_and_agent_faults() {
    let Some(scratch) = as_root() else { return };
    let scenarios = [
        "disk-full",
        "read-only",
        "mount-twice",
        "unmount-in-use",
        "panic-daemon",
        "kill-after-sync",
        "database-truncated",
        "odd-names",
        "nothing-broken",
    ];
    let scenarios = scenarios.map(|name| format!("--scenario={name}"));
    let mut arguments = vec!["--backend=sqlite"];
    arguments.extend(scenarios.iter().map(String::as_str));
    let (_, run, _) = fault(&scratch, &arguments);
    let check = |scenario: &str, audit: &str, how: Option<Return>, errno: Option<i32>| {
        let outcome = of(&run, scenario);
        assert_eq!(outcome.status, Status::Ran, "{outcome:?}");
        assert_eq!(outcome.breaches, [""; 0], "{outcome:?}");
        assert!(outcome.hang.is_none(), "{outcome:?}");
        let audit = &outcome.audits[audit];
        assert_eq!(audit.verdict, Verdict::Valid, "{outcome:?}");
        assert!(audit.present > 0, "{outcome:?}");
        let recovered = outcome.recovery.as_ref().map(|recovery| recovery.how);
        assert_eq!(recovered, how, "{outcome:?}");
        let mut seen = outcome.seen.iter();
        let is_told = errno.is_none() || seen.any(|seen| seen.errno == errno);
        assert!(is_told, "{outcome:?}");
        outcome
    };
    let no_room = Some(28);
    check("disk-full", "after-it", Some(Return::ByItself), no_room);
    check("read-only", "after-it", Some(Return::AfterStep), None);
    let twice = check("mount-twice", IN_USE, None, None);
    assert!(twice.seen.iter().any(|seen| seen.what == SeenKind::Refusal));
    check("unmount-in-use", ORDERLY_END, Some(Return::NextMount), None);
    let io = Some(5);
    check("panic-daemon", IN_USE, Some(Return::ByItself), io);
    let killed = check(
        "kill-after-sync",
        KILLED_DAEMON,
        Some(Return::NextMount),
        None,
    );
    assert!(killed.audits[KILLED_DAEMON].acknowledged["fsync"] > 0);
    check("odd-names", IN_USE, None, None);
    let whole = check("nothing-broken", ORDERLY_END, None, None);
    // A synced file is not synced again for its directory. There is at most one sync per fsync.
    let syncs: f64 = whole.facts["own_syncs_per_fsync"]
        .to_string()
        .parse()
        .unwrap();
    assert!(syncs > 0.2 && syncs <= 1.0, "{whole:?}");
    let cut = of(&run, "database-truncated");
    assert_eq!(cut.seen[0].what, SeenKind::Refusal, "{cut:?}");
    assert_eq!(cut.recovery.as_ref().unwrap().how, Return::Never);
    assert_eq!(cut.audits["damaged"].verdict, Verdict::Unknown);
}

#[test]
fn a_conformance_run_has_a_run_directory_and_a_report() {
    let scratch = Scratch::new();
    let (results, work) = (scratch.dir("results"), scratch.dir("work"));
    ctxbench(["conform", "direct", "--only", "rename"])
        .arg("--results")
        .arg(&results)
        .arg("--scratch")
        .arg(&work)
        .succeeds();
    let dir = fs::read_dir(&results).unwrap().next().unwrap().unwrap();
    let run = Run::read(&dir.path()).unwrap();
    assert_eq!(run.plan.arms[0].name, "direct");
    let features = run.probes.iter().filter(|own| own.name.contains("rename"));
    assert!(features.count() > 3, "{:?}", run.probes);
    let reported = ctxbench(["report"]).arg(dir.path()).output().unwrap();
    assert!(reported.status.success(), "{}", stderr(&reported));
    let page = fs::read_to_string(dir.path().join("report.md")).unwrap();
    assert!(page.contains("## Conformance"), "{page}");
    assert!(page.contains("| works |"), "{page}");
}
