//! `ctxbench fault` over real mounts: it finds breaches, ends hangs and leaves nothing behind.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rundir::Run;
use rundir::faults::{
    AgentEventKind, AuditVerdict, CellKind, Culprit, FaultOutcome, IN_USE, KILLED_DAEMON, ORDERLY_END, POWER_LOSS,
    Return, Status,
};
use rustix::process::Signal;

use crate::common::{
    Scratch, Succeeds, as_root, ctxbench, entry_of, has, lacks, mountable, mounts_under, refused, run, signal, stderr,
    stdout, text_of, wait_for, words,
};

/// `ctxbench fault` with the options of a line, and where its results and its mounts will be.
fn command(scratch: &Scratch, line: &str) -> (Command, [PathBuf; 2]) {
    let [results, work] = ["results", "work"].map(|name| scratch.dir(name));
    let mut command = ctxbench(["fault", "--results"]);
    command.arg(&results).arg("--scratch").arg(&work);
    command.args(words(line));
    (command, [results, work])
}

/// Runs `ctxbench fault`. Returns its exit code, the recorded run and its standard error.
pub fn fault(scratch: &Scratch, line: &str) -> (i32, Run, String) {
    let (mut command, [results, work]) = command(scratch, line);
    let output = command.output().unwrap();
    let said = format!("{}{}", stdout(&output), stderr(&output));
    let dir = fs::read_dir(&results).unwrap().next();
    let dir = dir.unwrap_or_else(|| panic!("{said}")).unwrap().path();
    assert!(mounts_under(&work).is_empty(), "{said}");
    let left = fs::read_dir(&work).unwrap().count();
    assert_eq!(left, 0, "{said}");
    let code = output.status.code().unwrap();
    (code, Run::read(&dir).unwrap(), said)
}

/// The outcome of a scenario.
pub fn of<'a>(run: &'a Run, scenario: &str) -> &'a FaultOutcome {
    let mut all = run.fault_outcomes.iter();
    all.find(|outcome| outcome.scenario == scenario).unwrap()
}

#[test]
fn a_killed_daemon_recovers_by_itself_and_keeps_its_promise() {
    let Some(scratch) = mountable() else { return };
    let line = "--backend=sqlite --scenario=nothing-broken --scenario=kill-while-writing \
                --scenario=kill-before-sync --scenario=client-killed --scenario=writers-append \
                --scenario=database-newer --scenario=crash-loop";
    let (code, run, said) = fault(&scratch, line);
    assert_eq!(code, 0, "{said}");
    // A step that each backend needs says nothing about one of them.
    let baseline =
        run.fault_outcomes.iter().filter(|outcome| outcome.backend == "direct" && outcome.scenario == "nothing-broken");
    let baseline: Vec<Status> = baseline.map(|outcome| outcome.status).collect();
    assert_eq!(baseline, [Status::Ran]);
    let killed = of(&run, "kill-while-writing");
    assert_eq!(killed.cell(), CellKind::Error, "{killed:?}");
    assert_eq!(killed.recovery.as_ref().unwrap().how, Return::NextMount);
    let audit = &killed.audits[KILLED_DAEMON];
    assert_eq!(audit.promised.as_deref(), Some("write"));
    assert_eq!(audit.verdict, AuditVerdict::Valid);
    assert!(audit.present > 0, "{audit:?}");
    assert!(!audit.acknowledged.is_empty(), "{audit:?}");
    let unsynced = of(&run, "kill-before-sync");
    let mut seen = unsynced.seen.iter();
    let fsync = seen.find(|seen| seen.call == "fsync").unwrap();
    const ENOTCONN: Option<i32> = Some(107);
    assert_eq!((fsync.what, fsync.errno), (AgentEventKind::Errno, ENOTCONN));
    let newer = of(&run, "database-newer");
    assert_eq!(newer.seen[0].what, AgentEventKind::Refusal);
    has(&newer.seen[0].text, &["version"]);
    let lost = &of(&run, "writers-append").facts["updates_lost"];
    assert_eq!(lost.to_string(), "0");
    let page = text_of(&run.dir, "faults.html");
    has(&page, &["<svg", "kill-while-writing"]);
    // The page only depends on the run's files.
    let markdown = text_of(&run.dir, "faults.md");
    fs::remove_file(run.dir.join("faults.md")).unwrap();
    ctxbench(["report"]).arg(&run.dir).succeeds();
    assert_eq!(text_of(&run.dir, "faults.md"), markdown);
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
    let line = format!("--backend=sqlite --scenario {}", file.display());
    let (code, run, said) = fault(&scratch, &line);
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
    assert_eq!(outcome.audits[lost].verdict, AuditVerdict::Valid, "{outcome:?}");
}

#[test]
fn sqlite_keeps_its_promise_at_crash_points() {
    let Some(scratch) = mountable() else { return };
    let line = "--backend=sqlite --no-scenarios --crash-points=12 --seed=5";
    let (code, run, said) = fault(&scratch, line);
    assert_eq!(code, 0, "{said}");
    assert_eq!(run.crash_points.len(), 2);
    for (points, loss) in run.crash_points.iter().zip([KILLED_DAEMON, POWER_LOSS]) {
        assert_eq!(points.loss, loss);
        // Kills that could show nothing are made again, up to a limit.
        assert!(points.points >= 12 && points.broken == Some(0), "{points:?}");
        assert_eq!(points.audit.verdict, AuditVerdict::Valid, "{points:?}");
        assert!(points.audit.present > 0, "{points:?}");
    }
    let kills = &run.crash_points[0];
    // A kill between two calls or before the first one increments none of these counters.
    assert!(kills.newly_acknowledged > Some(0), "{kills:?}");
    assert!(kills.unacknowledged <= Some(kills.points) && kills.in_flight <= Some(kills.points));
    assert_eq!(kills.died_by_itself, 0, "{kills:?}");
    assert_eq!(run.crash_points[1].in_flight, None, "not audited");
    let page = text_of(&run.dir, "faults.md");
    has(&page, &["95 % confidence", "page cache"]);
    has(&said, &["page: "]);
}

#[test]
fn an_interrupted_fault_run_leaves_nothing_behind() {
    let Some(scratch) = mountable() else { return };
    let line = "--backend=sqlite --scenario=stop-daemon --long";
    let (mut command, [results, work]) = command(&scratch, line);
    command.stderr(fs::File::create(scratch.path().join("said")).unwrap());
    let mut process = command.spawn().unwrap();
    wait_for("a mount", || {
        let said = text_of(scratch.path(), "said");
        assert_eq!(process.try_wait().unwrap(), None, "{said}");
        !mounts_under(&work).is_empty()
    });
    std::thread::sleep(Duration::from_millis(500));
    signal(&process, Signal::INT);
    let status = process.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(mounts_under(&work).is_empty());
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
    let run = Run::read(&entry_of(&results)).unwrap();
    assert!(run.fault_outcomes.is_empty());
}

#[test]
fn the_fault_command_lists_selects_and_checks_scenarios() {
    let line = "fault --list --backend=direct --backend=sqlite";
    let listed = stdout(&run(words(line)));
    let mut lines = listed.lines();
    let line = lines.find(|line| line.contains("kill-idle")).unwrap();
    has(line, &["sqlite"]);
    lacks(line, &["direct"]);
    let one = stdout(&run(["fault", "--list", "--group=many-agents"]));
    has(&one, &["writers-locked"]);
    lacks(&one, &["kill-idle"]);
    let scratch = Scratch::new();
    let file = scratch.path().join("mine.toml");
    let scenario = "name = 'mine'\ngroup = 'daemon'\ntitle = 't'\ncolour = 3\n";
    fs::write(&file, scenario).unwrap();
    let said = refused(&["fault", "--scenario", file.to_str().unwrap()]);
    has(&said, &[":4: ", "colour"]);
    let said = refused(&["fault", "--scenario", "nonsense"]);
    has(&said, &["unknown scenario", "use one of"]);
    let said = refused(&["fault", "--scenario", "kil-idle"]);
    has(&said, &["the nearest are kill-idle"]);
}

#[test]
fn a_misfit_is_recorded_with_its_reason() {
    let scratch = Scratch::new();
    let (code, run, said) = fault(&scratch, "--backend=direct --scenario=kill-idle");
    assert_eq!(code, 0, "{said}");
    let outcome = of(&run, "kill-idle");
    assert_eq!(outcome.status, Status::Unfit);
    has(outcome.reason.as_ref().unwrap(), &["no daemon"]);
}

#[test]
fn local_stores_keep_synced_changes_after_a_power_cut() {
    let Some(scratch) = as_root() else { return };
    let line = "--backend=direct --backend=sqlite --backend=s3-embedded --scenario=power-loss";
    let (code, run, said) = fault(&scratch, line);
    assert_eq!(code, 0, "{said}{:#?}", run.fault_outcomes);
    assert_eq!(run.fault_outcomes.len(), 3);
    let mut unpromised = 0;
    for outcome in &run.fault_outcomes {
        has(outcome.label.as_ref().unwrap(), &["simulated"]);
        // The control: some cuts must discard unsynced data, else the test proves nothing.
        assert_ne!(outcome.facts["unsynced_discarded"].to_string(), "0");
        let audit = &outcome.audits[POWER_LOSS];
        assert_eq!(audit.promised.as_deref(), Some("fsync"));
        assert_eq!(audit.verdict, AuditVerdict::Valid, "{outcome:?}");
        assert!(audit.present > 0, "{audit:?}");
        assert!(audit.acknowledged["fsync"] > 0, "{audit:?}");
        unpromised += audit.unpromised;
        let has_redo_log = outcome.facts.contains_key("redo_syncs");
        assert_eq!(has_redo_log, outcome.backend != "direct", "{outcome:?}");
        let recovery = outcome.recovery.as_ref().unwrap();
        assert_eq!(recovery.how, Return::NextMount, "{outcome:?}");
    }
    // Some changes with a weaker acknowledgement than promised must be lost, too.
    assert!(unpromised > 0, "{:?}", run.fault_outcomes);
}

#[test]
fn a_power_cut_spares_what_a_definition_has_set_up() {
    let Some(scratch) = as_root() else { return };
    let file = scratch.path().join("set-up.toml");
    // Nothing syncs the key.
    let definition = "name = \"set-up\"\nsummary = \"a directory with a key\"\ndurability = \"as the disk\"\n\
        persistent = true\ndaemons = 0\nsetup = [[\"sh\", \"-c\", \"echo secret > {data}/key\"]]\n\
        mount = [\"sh\", \"-c\", \"test -s {data}/key && mount --bind {data} {mount}\"]\n\
        unmount = [\"umount\", \"{mount}\"]\n";
    fs::write(&file, definition).unwrap();
    let line = format!("--backend={} --no-scenarios --crash-points=2 --seed=5", file.display());
    let (code, run, said) = fault(&scratch, &line);
    assert_eq!(code, 0, "{said}");
    let cuts = run.crash_points.iter().find(|points| points.loss == POWER_LOSS).unwrap();
    assert_eq!((cuts.points, cuts.audit.verdict), (2, AuditVerdict::Valid), "{cuts:?}");
}

#[test]
fn the_option_that_a_refusal_names_recovers_the_mount() {
    let Some(scratch) = mountable() else { return };
    let line = "--backend=sqlite-writeback --backend=s3-embedded --scenario=log-gone \
                --scenario=database-truncated --scenario=s3-emptied";
    let (_, run, said) = fault(&scratch, line);
    let find = |scenario: &str, backend: &str| {
        let mut all = run.fault_outcomes.iter();
        let found = all.find(|outcome| outcome.scenario == scenario && outcome.backend == backend);
        let outcome = found.unwrap();
        let recovery = outcome.recovery.as_ref();
        let recovery = recovery.unwrap_or_else(|| panic!("{outcome:?}"));
        assert_eq!(recovery.how, Return::AfterStep, "{outcome:?}");
        (outcome, recovery.step.clone().unwrap_or_default())
    };
    let (log, s3) = ("log-gone", "s3-embedded");
    let (cut, emptied) = ("database-truncated", "s3-emptied");
    let (bad, good) = (AuditVerdict::Invalid, AuditVerdict::Valid);
    for (scenario, backend, option, audit, verdict) in [
        (log, "sqlite-writeback", "--without-log", log, bad),
        (cut, s3, "--rebuild-cache", "damaged", good),
        (emptied, s3, "--refill-bucket", "refilled", good),
    ] {
        let (outcome, step) = find(scenario, backend);
        assert_eq!(outcome.breaches, [""; 0], "{said}");
        has(&step, &[option]);
        let audit = &outcome.audits[audit];
        assert_eq!(audit.verdict, verdict, "{outcome:?}");
        assert!(audit.present > 0, "{audit:?}");
    }
    // Whether the result is a past state or a mixture depends on what had been uploaded when the log was
    // removed.
    let (bucket, _) = find(log, s3);
    assert!(bucket.audits[log].present > 0, "{bucket:?}");
}

#[test]
fn sqlite_keeps_its_promise_under_daemon_disk_and_agent_faults() {
    let Some(scratch) = as_root() else { return };
    let line = "--backend=sqlite --scenario=disk-full --scenario=read-only \
                --scenario=mount-twice --scenario=unmount-in-use --scenario=panic-daemon \
                --scenario=kill-after-sync --scenario=database-truncated --scenario=odd-names \
                --scenario=nothing-broken";
    let (_, run, _) = fault(&scratch, line);
    let check = |scenario: &str, audit: &str, how: Option<Return>, errno: Option<i32>| {
        let outcome = of(&run, scenario);
        assert_eq!(outcome.status, Status::Ran, "{outcome:?}");
        assert_eq!(outcome.breaches, [""; 0], "{outcome:?}");
        assert!(outcome.hang.is_none(), "{outcome:?}");
        let audit = &outcome.audits[audit];
        assert_eq!(audit.verdict, AuditVerdict::Valid, "{outcome:?}");
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
    assert!(twice.seen.iter().any(|seen| seen.what == AgentEventKind::Refusal));
    check("unmount-in-use", ORDERLY_END, Some(Return::NextMount), None);
    let io = Some(5);
    check("panic-daemon", IN_USE, Some(Return::ByItself), io);
    let next = Some(Return::NextMount);
    let killed = check("kill-after-sync", KILLED_DAEMON, next, None);
    assert!(killed.audits[KILLED_DAEMON].acknowledged["fsync"] > 0);
    check("odd-names", IN_USE, None, None);
    let whole = check("nothing-broken", ORDERLY_END, None, None);
    // A synced file is not synced again for its directory. There is at most one sync per fsync.
    let syncs = whole.facts["own_syncs_per_fsync"].to_string();
    let syncs: f64 = syncs.parse().unwrap();
    assert!(syncs > 0.2 && syncs <= 1.0, "{whole:?}");
    let cut = of(&run, "database-truncated");
    assert_eq!(cut.seen[0].what, AgentEventKind::Refusal, "{cut:?}");
    assert_eq!(cut.recovery.as_ref().unwrap().how, Return::Never);
    assert_eq!(cut.audits["damaged"].verdict, AuditVerdict::Unknown);
}

#[test]
fn a_conformance_run_has_a_run_directory_and_a_report() {
    let scratch = Scratch::new();
    let (results, work) = (scratch.dir("results"), scratch.dir("work"));
    let mut conform = ctxbench(words("conform direct --only rename --results"));
    conform.arg(&results).arg("--scratch").arg(&work).succeeds();
    let dir = entry_of(&results);
    let run = Run::read(&dir).unwrap();
    assert_eq!(run.plan.arms[0].name, "direct");
    let features = run.probes.iter().filter(|probe| probe.name.contains("rename"));
    assert!(features.count() > 3, "{:?}", run.probes);
    ctxbench(["report"]).arg(&dir).succeeds();
    let page = text_of(&dir, "report.md");
    has(&page, &["## Conformance", "| works |"]);
}
