use std::collections::BTreeMap;

use super::*;
use crate::faults::{
    AgentEvent, AgentEventKind, Audit, AuditVerdict, CrashMethod, Culprit, Fact, Hang, KILLED_DAEMON, POWER_LOSS,
    Recovery, Return, Status,
};
use crate::{AskedStep, Calls, MountedModel, Outcome, PlannedScenario, Score, SettledLines};

fn environment() -> Environment {
    serde_json::from_str(include_str!("../fixtures/env.json")).unwrap()
}

fn plan() -> Plan {
    let created = "2026-11-22T00:00:00Z".to_owned();
    Plan::without_passes("fault", "An essay.", created, "0.1.0".to_owned(), "ctxbench fault".to_owned(), Vec::new())
}

fn fault_plan() -> Plan {
    Plan {
        scenarios: vec![PlannedScenario {
            name: "kill-idle".to_owned(),
            group: "daemon".to_owned(),
            title: "the daemon is killed".to_owned(),
            essay: "What it stands for.".to_owned(),
            sha256: "0".to_owned(),
            hang_limit_s: 30.0,
        }],
        crash_points: 10,
        ..plan()
    }
}

fn conformance_plan() -> Plan {
    Plan { features: vec!["open: `O_APPEND`".to_owned(), "rename: replaces".to_owned()], ..plan() }
}

fn audit() -> Audit {
    Audit {
        promised: Some("write".to_owned()),
        verdict: AuditVerdict::Invalid,
        acknowledged: BTreeMap::from([("write".to_owned(), 7)]),
        lost: 3,
        half: 1,
        examples: vec!["record 3 is lost".to_owned()],
        ..Audit::default()
    }
}

fn outcome() -> FaultOutcome {
    FaultOutcome {
        v: RUN_DIRECTORY_VERSION,
        scenario: "kill-idle".to_owned(),
        group: "daemon".to_owned(),
        backend: "sqlite".to_owned(),
        seed: 7,
        status: Status::Ran,
        reason: None,
        injected: "kill -9".to_owned(),
        label: Some("shortened".to_owned()),
        seen: vec![AgentEvent {
            call: "write".to_owned(),
            what: AgentEventKind::Errno,
            errno: Some(107),
            text: "Transport endpoint is not connected\nand a second line".to_owned(),
            times: 2,
        }],
        longest_call_ms: 3,
        uninterruptible_ms: 5,
        hang: Some(Hang {
            call: "write".to_owned(),
            waited_ms: 30_100,
            culprit: Culprit::KernelWaits,
            state: "D".to_owned(),
            ended_by: "abort".to_owned(),
            ended_after_ms: 2_000,
            uninterruptible_ms: 1_900,
        }),
        recovery: Some(Recovery { how: Return::NextMount, ms: 21, step: None }),
        audits: BTreeMap::from([(KILLED_DAEMON.to_owned(), audit())]),
        facts: BTreeMap::from([
            ("count".to_owned(), Fact::Count(3)),
            ("share".to_owned(), Fact::Number(0.25)),
            ("words".to_owned(), Fact::Words("exclude".to_owned())),
        ]),
        breaches: vec!["write did not end within 30 s".to_owned()],
        took_ms: 10,
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
        audit: Audit { present: 36, ..audit() },
        recovery_ms: (20.0, 31.5),
        ..CrashPoints::not_run("sqlite", KILLED_DAEMON, Status::Ran, "it ended early")
    }
}

fn fault(order: u64) -> Fault {
    Fault {
        v: RUN_DIRECTORY_VERSION,
        scenario: "cron-kill".to_owned(),
        arm: "direct".to_owned(),
        order,
        outcome: Outcome::Ok,
        detail: "killed".to_owned(),
        killed: true,
        recovered: true,
        recovery_ms: 20,
        acknowledged: 10,
        lost: 0,
        failed_calls: 0,
    }
}

fn probe(outcome: Outcome, detail: &str) -> Probe {
    Probe::new("conformance", "rename: replaces", "sqlite", outcome, detail)
}

fn create(dir: &Path, plan: &Plan) -> Writer {
    Writer::create(dir, plan, &environment(), None, &[]).unwrap()
}

#[test]
fn a_fault_run_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(dir.path(), &fault_plan());
    let skipped = CrashPoints::not_run("sqlite", POWER_LOSS, Status::Skipped, "no block device");
    let other_seed = FaultOutcome { seed: 8, ..outcome() };
    writer.outcome(&outcome()).unwrap();
    writer.outcome(&other_seed).unwrap();
    writer.crash_points(&crash_points()).unwrap();
    writer.crash_points(&skipped).unwrap();
    let run = Run::read(dir.path()).unwrap();
    assert_eq!(run.plan, fault_plan());
    assert_eq!(run.environment, environment());
    assert_eq!(run.fault_outcomes, [outcome(), other_seed]);
    assert_eq!(run.crash_points, [crash_points(), skipped]);
    assert!(run.samples.is_empty() && run.probes.is_empty());
}

#[test]
fn a_conformance_run_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(dir.path(), &conformance_plan());
    let probes = [
        probe(Outcome::Ok, ""),
        probe(Outcome::Errno, "rename: Invalid argument"),
        probe(Outcome::Skipped, "only root can"),
    ];
    for probe in &probes {
        writer.probe(probe).unwrap();
    }
    let run = Run::read(dir.path()).unwrap();
    assert_eq!(run.plan, conformance_plan());
    assert_eq!(run.probes, probes);
}

/// The refusal of a run whose second line of this file is changed.
fn refused(file: &str, (known, other): (&str, &str)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(dir.path(), &fault_plan());
    for number in 0..2 {
        writer.probe(&Probe::not_offered("property", "fork", "direct")).unwrap();
        writer.fault(&fault(number)).unwrap();
        writer.outcome(&FaultOutcome { seed: number, ..outcome() }).unwrap();
        writer.crash_points(&CrashPoints { took_ms: number, ..crash_points() }).unwrap();
    }
    Run::read(dir.path()).unwrap();
    let file = dir.path().join(file);
    let text = fs::read_to_string(&file).unwrap();
    let (first, second) = text.split_once('\n').unwrap();
    assert!(second.contains(known), "{second}");
    fs::write(&file, format!("{first}\n{}", second.replace(known, other))).unwrap();
    Run::read(dir.path()).unwrap_err().to_string()
}

#[test]
fn an_unknown_or_missing_reason_or_method_is_refused_with_file_line_and_field() {
    let reason = "\"skipped\":\"not-offered\",";
    let method = "\"method\":\"kill\",";
    for (file, change, expected) in [
        (PROBES, (reason, "\"skipped\":\"no-time\","), "probes.jsonl:2: field `skipped`: unknown variant `no-time`"),
        (PROBES, (reason, ""), "probes.jsonl:2: field `skipped`: missing, although the outcome is skipped"),
        (
            PROBES,
            ("\"outcome\":\"skipped\"", "\"outcome\":\"ok\""),
            "probes.jsonl:2: field `skipped`: a reason, although the outcome is not skipped",
        ),
        (
            CRASH_POINTS,
            (method, "\"method\":\"prayer\","),
            "crash-points.jsonl:2: field `method`: unknown variant `prayer`",
        ),
        (CRASH_POINTS, (method, ""), "crash-points.jsonl:2: field `method`: missing, although the points ran"),
        (
            CRASH_POINTS,
            ("\"loss\":\"killed-daemon\"", "\"loss\":\"power-loss\""),
            "crash-points.jsonl:2: field `method`: is not that of the loss",
        ),
        (
            CRASH_POINTS,
            ("\"loss\":\"killed-daemon\"", "\"loss\":\"machine-loss\""),
            "crash-points.jsonl:2: field `loss`: a lost machine has no count of requests",
        ),
        (
            CRASH_POINTS,
            ("\"in_flight\":6,", "\"in_flight\":12,"),
            "crash-points.jsonl:2: field `in_flight`: above `points`",
        ),
        (CRASH_POINTS, ("\"broken\":1,", "\"broken\":12,"), "crash-points.jsonl:2: field `broken`: above `points`"),
        (
            CRASH_POINTS,
            ("\"points\":10,", "\"points\":1000000000,"),
            "crash-points.jsonl:2: field `points`: above the records of `audit`",
        ),
        (FAULTS, ("\"order\":1,", ""), "faults.jsonl:2: missing field `order`"),
    ] {
        let refused = refused(file, change);
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn a_pass_that_contradicts_itself_is_refused() {
    let scores = |name: &str, sum: u64| {
        let counts = BTreeMap::from([(name.to_owned(), Score { sum, of: 4 })]);
        BTreeMap::from([("task".to_owned(), counts)])
    };
    let pass = Sample {
        v: RUN_DIRECTORY_VERSION,
        arm: "a".to_owned(),
        workload: "w".to_owned(),
        state: "hot".to_owned(),
        ..Sample::default()
    };
    let settled = |lines| Sample { settled: Some(lines), ..pass.clone() };
    for (pass, expected) in [
        (Sample { scores: scores("stale-answers", 4), ..pass.clone() }, None),
        (Sample { scores: scores("call-tokens", 5), ..pass.clone() }, None),
        (
            Sample { scores: scores("stale-answers", 5), ..pass.clone() },
            Some("field `scores`: more answers than questions"),
        ),
        (
            Sample { scores: scores("found-at-1", 5), ..pass.clone() },
            Some("field `scores`: more answers than questions"),
        ),
        (settled(SettledLines { lines: 4, on_both: 3, lost: 1, ..SettledLines::default() }), None),
        // A line that is nowhere is a lost one.
        (
            settled(SettledLines { lines: 4, on_both: 3, ..SettledLines::default() }),
            Some("field `settled`: `lines` is not"),
        ),
        (Sample { outcome: Outcome::Skipped, ..pass.clone() }, Some("field `outcome`: skipped, ")),
    ] {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), &plan()).sample(&pass).unwrap();
        let refused = Run::read(dir.path()).map_err(|error| error.to_string()).err();
        assert_eq!(refused.is_some(), expected.is_some(), "{refused:?}");
        let words = refused.unwrap_or_default();
        assert!(words.contains(expected.unwrap_or_default()), "{words}");
    }
}

#[test]
fn a_copy_of_a_record_is_refused_with_its_line() {
    for (file, change) in [
        (FAULTS, ("\"order\":1,", "\"order\":0,")),
        (FAULT_OUTCOMES, ("\"seed\":1,", "\"seed\":0,")),
        (CRASH_POINTS, ("\"took_ms\":1}", "\"took_ms\":0}")),
    ] {
        let refused = refused(file, change);
        let expected = format!("{file}:2: is the same record as line 1: remove one of them");
        assert!(refused.ends_with(&expected), "{refused}");
    }
}

#[test]
fn a_run_that_two_runs_are_appended_to_has_all_of_their_records() {
    let model_files = |seconds| ModelFiles {
        model: "m-135M".to_owned(),
        generate: MountedModel {
            steps: vec![AskedStep { what: "cat".to_owned(), seconds, ..AskedStep::default() }],
            consistency: vec![("the same path twice".to_owned(), format!("4 of 4; {seconds} s"))],
            ..MountedModel::default()
        },
        ..ModelFiles::default()
    };
    let name = || "direct".to_owned();
    let run = |seconds| Run {
        samples: vec![Sample {
            v: RUN_DIRECTORY_VERSION,
            arm: name(),
            workload: name(),
            state: name(),
            ..Sample::default()
        }],
        cells: vec![CellEpoch {
            v: RUN_DIRECTORY_VERSION,
            arm: name(),
            workload: name(),
            state: name(),
            ..CellEpoch::default()
        }],
        epochs: vec![Epoch { v: RUN_DIRECTORY_VERSION, section: "all".to_owned(), ..Epoch::default() }],
        probes: vec![probe(Outcome::Ok, "")],
        faults: vec![fault(0), fault(1)],
        fault_outcomes: vec![FaultOutcome { seed: seconds as u64, ..outcome() }],
        crash_points: vec![
            CrashPoints { took_ms: seconds as u64, ..crash_points() },
            CrashPoints::not_run("direct", POWER_LOSS, Status::Unfit, "it makes no promise"),
        ],
        model_files: Some(model_files(seconds)),
        ..Run::default()
    };
    let runs = [run(1.0), run(2.0)];
    assert!(model_files(1.0).agrees_with(&model_files(2.0)));
    let mut other = model_files(2.0);
    other.generate.steps[0].outcome = "exit status: 1".to_owned();
    assert!(!model_files(1.0).agrees_with(&other));
    let dir = tempfile::tempdir().unwrap();
    let writer = create(dir.path(), &plan());
    let mut before = RecordCounts::default();
    for run in &runs {
        writer.append(run, &mut before).unwrap();
    }
    let found = Run::read(dir.path()).unwrap();
    let epochs = |numbers: Vec<u32>| assert_eq!(numbers, [0, 1]);
    epochs(found.samples.iter().map(|pass| pass.epoch).collect());
    epochs(found.cells.iter().map(|cell| cell.epoch).collect());
    epochs(found.epochs.iter().map(|epoch| epoch.epoch).collect());
    assert_eq!(found.probes.len(), 2);
    assert_eq!(found.faults, [0, 1, 2, 3].map(fault));
    assert_eq!(found.fault_outcomes, [&runs[0].fault_outcomes[..], &runs[1].fault_outcomes].concat());
    assert_eq!(found.crash_points, [&runs[0].crash_points[..], &runs[1].crash_points].concat());
    assert_eq!(found.model_files, runs[0].model_files);
}

#[test]
fn a_plan_says_why_it_has_no_passes() {
    let crash_points_only = Plan { crash_points: 1, ..plan() };
    for (plan, why) in [
        (fault_plan(), Some("a fault run")),
        (crash_points_only, Some("a fault run")),
        (conformance_plan(), Some("a conformance run")),
        (plan(), None),
    ] {
        let said = plan.measures_nothing();
        assert_eq!(said.is_some(), why.is_some(), "{said:?}");
        assert!(said.unwrap_or_default().starts_with(why.unwrap_or_default()));
    }
}

#[test]
fn a_half_line_is_ignored_and_cut_off_before_the_next() {
    for name in [FAULT_OUTCOMES, CRASH_POINTS, PROBES] {
        let dir = tempfile::tempdir().unwrap();
        let write = |writer: &Writer| match name {
            FAULT_OUTCOMES => writer.outcome(&outcome()),
            CRASH_POINTS => writer.crash_points(&crash_points()),
            _ => writer.probe(&probe(Outcome::Ok, "")),
        };
        let lines = |run: &Run| run.fault_outcomes.len() + run.crash_points.len() + run.probes.len();
        let writer = create(dir.path(), &fault_plan());
        write(&writer).unwrap();
        write(&writer).unwrap();
        drop(writer);
        let file = dir.path().join(name);
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() - 5]).unwrap();
        assert_eq!(lines(&Run::read(dir.path()).unwrap()), 1, "{name}");
        let (writer, run) = Writer::resume(dir.path()).unwrap();
        assert_eq!(lines(&run), 1, "{name}");
        write(&writer).unwrap();
        assert_eq!(fs::read(&file).unwrap(), whole, "{name}");
    }
}

#[test]
fn a_line_of_another_version_is_refused_with_both() {
    for name in [FAULT_OUTCOMES, CRASH_POINTS] {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), &fault_plan());
        fs::write(dir.path().join(name), "{\"v\":1}\n").unwrap();
        let error = Run::read(dir.path()).unwrap_err().to_string();
        let versions = format!("schema version 1; this ctxbench reads version {RUN_DIRECTORY_VERSION}");
        assert!(error.contains(name) && error.contains(&versions), "{error}");
    }
}

#[test]
fn a_missing_or_truncated_document_says_where_to_get_a_whole_one() {
    for name in [PLAN, ENVIRONMENT] {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), &fault_plan());
        let file = dir.path().join(name);
        let whole = fs::read(&file).unwrap();
        let refused = || {
            let error = Run::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            error
        };
        for part in [1, 3] {
            fs::write(&file, &whole[..whole.len() * part / 4]).unwrap();
            let error = refused();
            assert!(
                error.contains("the file is damaged or cut off: ") && error.contains("fix: copy the run"),
                "{error}"
            );
        }
        fs::remove_file(&file).unwrap();
        let is_plan = name == PLAN;
        let told =
            if is_plan { "it has no plan.toml" } else { "has no such file\n  fix: copy the run directory again" };
        assert!(refused().contains(told));
    }
}

#[test]
fn an_unknown_field_of_a_line_is_named_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(dir.path(), &fault_plan());
    writer.outcome(&outcome()).unwrap();
    let mut line = serde_json::to_value(outcome()).unwrap();
    line["colour"] = "red".into();
    append(&dir.path().join(FAULT_OUTCOMES), &line).unwrap();
    let error = Run::read(dir.path()).unwrap_err().to_string();
    assert!(error.contains("fault-outcomes.jsonl:2: "), "{error}");
    assert!(error.contains("colour"), "{error}");
}

#[test]
fn a_figure_in_another_unit_is_refused_with_its_file_line_and_field() {
    let [arm, workload, state] = ["direct", "micro/stat", "hot"].map(str::to_owned);
    let calls = BTreeMap::from([("read".to_owned(), Calls::of(&crate::histogram(), 0))]);
    let sample =
        Sample { arm: arm.clone(), workload: workload.clone(), state: state.clone(), calls, ..Sample::default() };
    let cell = CellEpoch { arm, workload, state, ..CellEpoch::default() };
    let epoch = Epoch { section: "all".to_owned(), ..Epoch::default() };
    let [sample, cell, epoch] =
        [serde_json::to_value(sample), serde_json::to_value(cell), serde_json::to_value(epoch)].map(Result::unwrap);
    let rows = [
        (SAMPLES, &sample, "", "makespan_us"),
        (SAMPLES, &sample, "", "waited_ms"),
        (SAMPLES, &sample, "", "took_ns"),
        (SAMPLES, &sample, "/calls/read", "total_us"),
        (CELLS, &cell, "", "timed_ns"),
        (CELLS, &cell, "/counted", "waited_us"),
        (EPOCHS, &epoch, "", "took_us"),
    ];
    for (name, record, place, field) in rows {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), &plan());
        let mut record = record.clone();
        record["v"] = RUN_DIRECTORY_VERSION.into();
        append(&dir.path().join(name), &record).unwrap();
        Run::read(dir.path()).unwrap();
        record.pointer_mut(place).unwrap()[field] = 7.into();
        append(&dir.path().join(name), &record).unwrap();
        let error = Run::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("{name}:2: ")) && error.contains(field), "{error}");
    }
}

#[test]
fn a_record_that_is_there_twice_is_refused_with_both_lines() {
    let [arm, workload, state] = ["direct", "micro/stat", "hot"].map(str::to_owned);
    let v = RUN_DIRECTORY_VERSION;
    let sample = Sample {
        v,
        arm: arm.clone(),
        workload: workload.clone(),
        state: state.clone(),
        waited_ns: 5,
        ..Sample::default()
    };
    let cell = CellEpoch { v, arm, workload, state, ..CellEpoch::default() };
    let epoch = Epoch { v, section: "all".to_owned(), ..Epoch::default() };
    for name in [SAMPLES, CELLS, EPOCHS] {
        let dir = tempfile::tempdir().unwrap();
        let writer = create(dir.path(), &plan());
        let write = |epoch_number: u32| match name {
            SAMPLES => writer.sample(&Sample { epoch: epoch_number, ..sample.clone() }),
            CELLS => writer.cell(&CellEpoch { epoch: epoch_number, ..cell.clone() }),
            _ => writer.epoch(&Epoch { epoch: epoch_number, ..epoch.clone() }),
        };
        write(0).unwrap();
        write(1).unwrap();
        Run::read(dir.path()).unwrap();
        write(0).unwrap();
        let error = Run::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("{name}:3: is the same record as line 1")), "{error}");
    }
}

#[test]
fn too_many_records_are_refused_before_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), &fault_plan());
    let line = serde_json::to_string(&outcome()).unwrap() + "\n";
    fs::write(dir.path().join(FAULT_OUTCOMES), line.repeat(3)).unwrap();
    let size = |most| {
        let mut file = File::open(dir.path().join(FAULT_OUTCOMES)).unwrap();
        check_size(&mut file, RUN_RECORDS, most)
    };
    size(3).unwrap();
    size(2).unwrap_err();
    fs::write(dir.path().join(FAULT_OUTCOMES), "\n".repeat(MOST_RECORDS + 1)).unwrap();
    let error = Run::read(dir.path()).unwrap_err().to_string();
    assert!(error.contains("at most 2097152 records"), "{error}");
}

#[test]
fn a_sparse_file_of_records_is_refused_by_its_length_or_its_first_long_line() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), &fault_plan());
    let lines = (0..3).map(|seed| serde_json::to_string(&FaultOutcome { seed, ..outcome() }).unwrap() + "\n");
    let path = dir.path().join(FAULT_OUTCOMES);
    fs::write(&path, lines.collect::<String>()).unwrap();
    let mut file = File::options().read(true).write(true).open(&path).unwrap();
    file.set_len(RUN_RECORDS.bytes() + 1).unwrap();
    let error = Run::read(dir.path()).unwrap_err().to_string();
    assert!(error.contains("is longer than 2 GiB"), "{error}");
    file.set_len(RUN_RECORDS.bytes()).unwrap();
    let error = check_size(&mut file, RUN_RECORDS, MOST_RECORDS).unwrap_err();
    assert_eq!(error.to_string(), "a record has at most 268435456 bytes");
    let read = file.stream_position().unwrap();
    assert!(read < RUN_RECORDS.line() + (1 << 20), "{read} bytes were read");
    // Zeros at the end, as a power cut can leave them, are a record that was not finished.
    file.set_len(1 << 20).unwrap();
    assert_eq!(Run::read(dir.path()).unwrap().fault_outcomes.len(), 3);
}

#[test]
fn a_directory_takes_one_run_and_one_writer_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let again = || Writer::create(dir.path(), &plan(), &environment(), Some("x"), &[]).map(drop);
    let writer = create(dir.path(), &plan());
    assert!(matches!(again(), Err(RunError::Taken(_))));
    assert!(!dir.path().join(POLICY).exists());
    let resumed = Writer::resume(dir.path()).map(drop);
    assert!(matches!(resumed, Err(RunError::Running(_))));
    drop(writer);
    assert!(matches!(again(), Err(RunError::Taken(_))));
    let (_writer, _) = Writer::resume(dir.path()).unwrap();
    let resumed = Writer::resume(dir.path()).map(drop);
    assert!(matches!(resumed, Err(RunError::Running(_))));
}

#[test]
fn of_many_runs_that_begin_at_once_one_gets_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let begun = std::thread::scope(|scope| {
        let begin = || Writer::create(dir.path(), &plan(), &environment(), Some("x"), &[]);
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(begin)).collect();
        let writers = threads.into_iter().map(|thread| thread.join().unwrap());
        writers.filter_map(Result::ok).count()
    });
    assert_eq!(begun, 1);
    Run::read(dir.path()).unwrap();
}

#[test]
fn a_plan_that_no_run_can_have_is_refused_with_its_field() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), &fault_plan());
    let text = fs::read_to_string(dir.path().join(PLAN)).unwrap();
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}: {text}");
        fs::write(dir.path().join(PLAN), text.replacen(from, to, 1)).unwrap();
        Run::read(dir.path()).unwrap_err().to_string()
    };
    for (from, to, told) in [
        ("relative = 0.05", "relative = -0.05", "field `margins`"),
        ("relative = 0.05", "relative = nan", "field `margins.relative`: the number NaN"),
        ("relative = 0.05", "relative = inf", "field `margins.relative`: the number inf"),
        (
            "sections = []",
            "sections = [{ name = 'x', budget_ms = 0, epochs = 4000000000, rounds = 0, placement = 'free', warm_up = true, counts = false, arms = [], cells = {}, looks = [] }]",
            "field `schedule.sections`: \"x\" has more than the 100000 epochs",
        ),
        (
            "sections = []",
            "sections = [{ name = '../x', budget_ms = 0, epochs = 8, rounds = 0, placement = 'free', warm_up = true, counts = false, arms = [], cells = {}, looks = [] }]",
            "field `schedule.sections[0].name`: the name \"../x\"",
        ),
        ("name = \"kill-idle\"", "name = \"../../x\"", "field `scenarios[0].name`: the name \"../../x\""),
    ] {
        let error = refused(from, to);
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn numbers_whose_sums_would_overflow_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(dir.path(), &fault_plan());
    let huge = FaultOutcome { took_ms: 1 << 59, ..outcome() };
    writer.outcome(&huge).unwrap();
    Run::read(dir.path()).unwrap();
    writer.outcome(&huge).unwrap();
    let error = Run::read(dir.path()).unwrap_err().to_string();
    let told = "fault-outcomes.jsonl:2: field `took_ms`: the numbers up to here are too large";
    assert!(error.contains(told), "{error}");
    // A seed is not summed as a figure.
    fs::remove_file(dir.path().join(FAULT_OUTCOMES)).unwrap();
    let seeded = FaultOutcome { seed: u64::MAX, ..outcome() };
    writer.outcome(&seeded).unwrap();
    writer.outcome(&FaultOutcome { seed: u64::MAX - 1, ..outcome() }).unwrap();
    Run::read(dir.path()).unwrap();
}
