//! Constructed evidence: for each policy a run whose candidate is adopted, and ways to change it.
#![expect(missing_docs, reason = "for tests; the names say it")]

use rundir::faults::{Audit, CrashPoints, Status};
use rundir::{MountedModel, Outcome, Probe, Run, Score, SessionContext, SettledLines};

use figures::testing;
pub use figures::testing::{copy_workload, rename_workload};

pub const ASKED: &str = "how often it was asked for what";

/// Measures a workload in another cache state.
fn set_state(run: &mut Run, workload: &str, state: &str) {
    let workloads = run.plan.workloads.iter_mut().filter(|planned| planned.name == workload);
    let states = workloads.flat_map(|planned| &mut planned.states);
    let passes = run.samples.iter_mut().filter(|pass| pass.workload == workload);
    let states = states.chain(passes.map(|pass| &mut pass.state));
    let cells = run.cells.iter_mut().filter(|cell| cell.workload == workload);
    for known in states.chain(cells.map(|cell| &mut cell.state)) {
        state.clone_into(known);
    }
}

pub fn score(run: &mut Run, workload: &str, arm: &str, method: &str, counts: &[(&str, u64)]) {
    for sample in testing::passes(run, workload, arm) {
        let scores = sample.scores.entry(method.to_owned()).or_default();
        for (name, sum) in counts {
            // A hundred questions cannot show that less than five in a hundred are outdated.
            let of = if *name == "stale" { 1000 } else { 100 };
            scores.insert((*name).to_owned(), Score { sum: *sum, of });
        }
    }
}

pub fn probe(run: &mut Run, aspect: &str, name: &str, arm: &str, outcome: Outcome) {
    run.probes.retain(|probe| (&*probe.aspect, &*probe.name, &*probe.arm) != (aspect, name, arm));
    run.probes.push(match (aspect, outcome) {
        ("property", Outcome::Skipped) => Probe::not_offered(aspect, name, arm),
        _ => Probe::new(aspect, name, arm, outcome, "scripted"),
    });
}

pub fn fail_a_pass(run: &mut Run, workload: &str, arm: &str) {
    let first = testing::passes(run, workload, arm).next();
    first.unwrap().outcome = Outcome::Errno;
}

/// Scores the task of a workload on `view-mail`.
pub fn task(run: &mut Run, workload: &str, counts: &[(&str, u64)]) {
    score(run, workload, "view-mail", "task", counts);
}

/// Scores the recalls of `sqlite`.
pub fn recalls(run: &mut Run, counts: &[(&str, u64)]) {
    let method = ":recall balanced";
    score(run, "micro/find-by-request-1000", "sqlite", method, counts);
}

/// Adds the tokens that an aggregated log takes.
pub fn log(run: &mut Run, direct: u64, sqlite: u64) {
    copy_workload(run, "micro/read", "agent/inbox-log", "read");
    for (arm, tokens) in [("direct", direct), ("sqlite", sqlite)] {
        let counts = [("definition-tokens", 5), ("call-tokens", 5), ("result-tokens", tokens)];
        score(run, "agent/inbox-log", arm, "task", &counts);
    }
    programs_print(run, "agent/inbox-log", direct);
}

/// The tokens of the results that programs beside plain files print.
pub fn programs_print(run: &mut Run, workload: &str, tokens: u64) {
    let counts = [("definition-tokens", 5), ("call-tokens", 5), ("result-tokens", tokens), ("calls", 1)];
    score(run, workload, "direct", "programs", &counts);
}

/// Scores the triage of tasks, logs and mail, which reads their health.
pub fn triage(run: &mut Run, direct: u64, sqlite: u64) {
    for (arm, tokens) in [("direct", direct), ("sqlite", sqlite)] {
        let counts = [("definition-tokens", 5), ("call-tokens", 5), ("result-tokens", tokens), ("calls", 1)];
        score(run, "agent/inbox-triage", arm, "task", &counts);
    }
    programs_print(run, "agent/inbox-triage", direct);
}

/// Sets the power losses: so many of ten records are present after each.
pub fn power_loss(run: &mut Run, direct: u64, sqlite: u64) {
    run.crash_points.retain(|points| points.loss != "power-loss");
    for (backend, present) in [("direct", direct), ("sqlite", sqlite)] {
        let audit = Audit { present, unpromised: 10 - present, ..Audit::default() };
        run.crash_points.push(CrashPoints { audit, ..losses(backend, "power-loss", 0) });
    }
}

/// Sixty kills or power cuts, at so many of which a record was lost.
fn losses(backend: &str, loss: &str, lost: u64) -> CrashPoints {
    CrashPoints {
        points: 60,
        broken: Some(lost),
        audit: Audit { present: 600, lost, ..Audit::default() },
        ..CrashPoints::not_run(backend, loss, Status::Ran, "")
    }
}

/// Sixty kills of an arm, at so many of which a record was lost.
pub fn kills(run: &mut Run, backend: &str, lost: u64) {
    run.crash_points.retain(|points| (&*points.backend, &*points.loss) != (backend, "killed-daemon"));
    let kills = losses(backend, "killed-daemon", lost);
    run.crash_points.push(kills);
}

/// Sixty losses of the machine of `sqlite`, at so many of which a record was lost.
pub fn machine_losses(run: &mut Run, lost: u64) {
    run.crash_points.retain(|points| points.loss != "machine-loss");
    run.crash_points.push(losses("sqlite", "machine-loss", lost));
}

/// Repeats the kill of a cron job's daemon until there are so many.
pub fn cron_kills(run: &mut Run, count: usize) {
    let kill = run.faults[1].clone();
    run.faults.truncate(2);
    run.faults.extend(std::iter::repeat_n(kill, count - 1));
}

/// Lets the properties of `sqlite` be what its probes found.
pub fn properties(run: &mut Run, snapshot: Outcome) {
    for name in ["snapshot", "fork", "diff", "versions", "portable"] {
        for arm in ["direct", "sqlite"] {
            let outcome = match (name, arm) {
                ("portable", _) => Outcome::Ok,
                ("snapshot", "sqlite") => snapshot,
                _ => Outcome::Skipped,
            };
            probe(run, "property", name, arm, outcome);
        }
    }
}

/// Lets `sqlite` survive the loss of a machine, or not.
pub fn machine_loss(run: &mut Run, outcome: Outcome) {
    let name = "survives-machine-loss";
    probe(run, "property", name, "direct", Outcome::Skipped);
    probe(run, "property", name, "sqlite", outcome);
}

/// Gives a workload more kinds of calls, which take as long as those of `from`.
fn more_kinds(run: &mut Run, workload: &str, from: &str, kinds: &[&str]) {
    for kind in kinds.iter().map(|kind| (*kind).to_owned()) {
        for planned in &mut run.plan.workloads {
            if planned.name == workload {
                planned.calls.insert(kind.clone(), planned.calls[from]);
            }
        }
        for pass in run.samples.iter_mut().filter(|pass| pass.workload == workload) {
            let calls = pass.calls[from];
            pass.calls.insert(kind.clone(), calls);
        }
        for cell in run.cells.iter_mut().filter(|cell| cell.workload == workload) {
            let latencies = cell.latencies[from].clone();
            cell.latencies.insert(kind.clone(), latencies);
        }
    }
}

/// Adds the programs that only decide if they are measured; `sqlite` takes this factor of its time.
pub fn programs(run: &mut Run, factor: f64) {
    for (workload, kind) in [
        ("program/pip", "install"),
        ("program/venv", "environment"),
        ("program/cargo", "build"),
        ("program/tree", "grep"),
        ("program/parallel", "concurrent"),
    ] {
        copy_workload(run, "program/npm-few", workload, kind);
        if kind == "build" {
            more_kinds(run, workload, kind, &["test"]);
        }
        slow(run, workload, "sqlite", factor);
    }
}

/// Multiplies the time of the slowest calls of `sqlite` in a workload.
pub fn slow_tail(run: &mut Run, workload: &str, factor: u64) {
    let cells = run.cells.iter_mut();
    for cell in cells.filter(|cell| cell.workload == workload && cell.arm == "sqlite") {
        for latencies in cell.latencies.values_mut() {
            let times = latencies.histogram().unwrap();
            let mut slower = rundir::histogram();
            for step in times.iter_recorded() {
                let time = step.value_iterated_to() * factor;
                slower.record_n(time, step.count_at_value()).unwrap();
            }
            *latencies = rundir::Latencies::new(&slower).unwrap();
        }
    }
}

/// Changes what two writers left on `sqlite`.
pub fn settle(run: &mut Run, change: fn(&mut SettledLines)) {
    let passes = run.samples.iter_mut().filter(|pass| pass.arm == "sqlite");
    passes.filter_map(|pass| pass.settled.as_mut()).for_each(change);
}

pub fn made_up(run: &mut Run) -> &mut MountedModel {
    &mut run.model_files.as_mut().unwrap().generate
}

pub fn slow(run: &mut Run, workload: &str, arm: &str, factor: f64) {
    testing::passes(run, workload, arm).for_each(|pass| testing::scale_pass(pass, factor));
}

pub fn set_session(run: &mut Run, workload: &str, ms: Option<u64>) {
    let mut workloads = run.plan.workloads.iter_mut();
    workloads.find(|planned| planned.name == workload).unwrap().session_ms = ms;
}

pub fn write_heavy(run: &mut Run) {
    rename_workload(run, "agent/session", "agent/claude-code-write-heavy");
    set_session(run, "agent/claude-code-write-heavy", Some(2_000_000));
}

pub fn cron() -> Run {
    let mut run = testing::run();
    rename_workload(&mut run, "agent/session", "agent/vsm-cycle");
    set_session(&mut run, "agent/vsm-cycle", None);
    for arm in ["direct", "sqlite"] {
        for tool in ["cat", "ls", "grep", "find", "sed", "mv"] {
            probe(&mut run, "tool", tool, arm, Outcome::Ok);
        }
    }
    probe(&mut run, "visible", ASKED, "direct", Outcome::Errno);
    probe(&mut run, "visible", ASKED, "sqlite", Outcome::Ok);
    let faults = run.faults.iter_mut();
    faults.for_each(|fault| fault.failed_calls = 0);
    copy_workload(&mut run, "agent/vsm-cycle", "agent/inbox-triage", "tool-call");
    triage(&mut run, 100, 10);
    kills(&mut run, "sqlite", 0);
    run
}

/// The evidence of [`cron`] about a view, which cannot run a cycle that writes.
pub fn cron_view() -> Run {
    let mut run = cron();
    testing::rename_arm(&mut run, "sqlite", "view-vsm");
    run.faults[1].arm = "view-vsm".to_owned();
    // The daemon of a view is killed as often as a cron job's.
    run.crash_points.clear();
    cron_kills(&mut run, 60);
    for probe in run.probes.iter_mut().filter(|probe| probe.arm == "sqlite") {
        probe.arm = "view-vsm".to_owned();
    }
    let reason = "view-vsm shows what other programs write";
    skip(&mut run, "agent/vsm-cycle", "view-vsm", reason);
    run
}

/// Says why an arm cannot take part in a workload, and leaves out its passes.
pub fn skip(run: &mut Run, workload: &str, arm: &str, reason: &str) {
    run.samples.retain(|pass| (&*pass.arm, &*pass.workload) != (arm, workload));
    run.cells.retain(|cell| (&*cell.arm, &*cell.workload) != (arm, workload));
    let planned = run.plan.workload(workload).unwrap().clone();
    let section = &mut run.plan.schedule.sections[0];
    let cells = planned.states.clone();
    section.cells.insert(workload.to_owned(), cells);
    section.arms.push(arm.to_owned());
    for state in planned.states {
        run.plan.skipped.push(rundir::SkippedCell {
            arm: arm.to_owned(),
            workload: workload.to_owned(),
            state,
            reason: reason.to_owned(),
        });
    }
}

pub fn inbox() -> Run {
    let mut run = testing::run();
    rename_workload(&mut run, "micro/read", "agent/inbox-find");
    rename_workload(&mut run, "agent/session", "agent/inbox-triage");
    copy_workload(&mut run, "agent/inbox-find", "agent/inbox-log", "read");
    for tools in ["tools-sql", "tools-mcp"] {
        testing::copy_arm(&mut run, "direct", tools);
    }
    testing::rename_arm(&mut run, "sqlite", "view-mail");
    run.faults[1].arm = "view-mail".to_owned();
    cron_kills(&mut run, 60);
    for workload in ["agent/inbox-find", "agent/inbox-log", "agent/inbox-triage"] {
        for (arm, definition, tokens, lag) in [
            ("tools-sql", 90_000, 100_000, 100),
            ("tools-mcp", 90_000, 100_000, 100),
            // The description of the files.
            ("view-mail", 100, 59_900, 100),
            ("direct", 100, 59_900, 1_000_000),
        ] {
            let counts = [
                ("definition-tokens", definition),
                ("call-tokens", tokens / 2),
                ("result-tokens", tokens / 2),
                ("stale-answers", 0),
                ("lag-us", lag),
            ];
            score(&mut run, workload, arm, "task", &counts);
        }
    }
    run
}

pub fn coding() -> Run {
    let mut run = testing::run();
    testing::rename_calls(&mut run, "read", "status");
    rename_workload(&mut run, "micro/read", "program/git");
    copy_workload(&mut run, "program/git", "program/npm-few", "install");
    copy_workload(&mut run, "program/git", "micro/read-1k", "read");
    set_state(&mut run, "micro/read-1k", "lukewarm");
    let kinds = ["add", "log", "commit", "checkout", "clone", "remove-tree"];
    more_kinds(&mut run, "program/git", "status", &kinds);
    write_heavy(&mut run);
    // Ten seconds for a step of git, so that its ratio is one of a time that matters in a session.
    for arm in ["direct", "direct-again", "sqlite"] {
        slow(&mut run, "program/git", arm, 1e5);
    }
    testing::scale(&mut run, "sqlite", 0.6);
    for arm in ["direct", "sqlite"] {
        for feature in ["names: odd ones", "rename: over a file", "content: holes"] {
            probe(&mut run, "conformance", feature, arm, Outcome::Ok);
        }
    }
    power_loss(&mut run, 5, 10);
    kills(&mut run, "sqlite", 0);
    properties(&mut run, Outcome::Ok);
    run
}

/// The dialogues of others.
pub const DIALOGUES: &str = "micro/corpus-longmemeval";

/// Facts that have changed.
pub const CHANGED: &str = "micro/find-changed-1000";

/// Scores the recalls of `sqlite` about a thousand facts that have changed.
pub fn recalls_changed(run: &mut Run, stale: u64) {
    score(run, CHANGED, "sqlite", ":recall balanced", &[("stale", stale)]);
}

/// Scores the recalls of `sqlite` in the dialogues of others.
pub fn recalls_dialogues(run: &mut Run, found: u64) {
    let method = ":recall balanced";
    score(run, DIALOGUES, "sqlite", method, &[("evidence-in-budget", found)]);
}

pub fn memory() -> Run {
    let mut run = testing::run();
    rename_workload(&mut run, "micro/read", "micro/find-in-files-1000");
    copy_workload(&mut run, "micro/find-in-files-1000", "micro/find-by-request-1000", "recall");
    write_heavy(&mut run);
    let plain = "micro/find-in-files-1000";
    let answered = |found, tokens, stale| [("evidence-in-budget", found), ("tokens", tokens), ("stale", stale)];
    for (method, counts) in
        [("MEMORY.md, whole", answered(0, 4_000_000, 0)), ("MEMORY.md, its end", answered(5, 200_000, 0))]
    {
        score(&mut run, plain, "direct", method, &counts);
    }
    recalls(&mut run, &answered(95, 40_000, 1)[..2]);
    let grep = "grep, both words, newest first";
    score(&mut run, plain, "direct", grep, &answered(100, 29_300, 0));
    copy_workload(&mut run, plain, CHANGED, "recall");
    recalls_changed(&mut run, 1);
    copy_workload(&mut run, plain, DIALOGUES, "recall");
    for (method, found) in [(":recall balanced", 95), ("BM25", 40), ("grep, most words first", 39)] {
        score(&mut run, DIALOGUES, "sqlite", method, &answered(found, 50_000, 0));
    }
    kills(&mut run, "sqlite", 0);
    run
}

pub fn roaming() -> Run {
    let mut run = testing::run();
    testing::rename_calls(&mut run, "read", "handoff");
    rename_workload(&mut run, "micro/read", "agent/handoff-few");
    copy_workload(&mut run, "agent/session", "agent/two-writers-few", "edit");
    copy_workload(&mut run, "agent/session", "agent/sync-100", "sync-new");
    copy_workload(&mut run, "agent/session", "program/rsync-few", "mirror");
    write_heavy(&mut run);
    testing::copy_arm(&mut run, "direct", "rsync");
    let arms = run.plan.arms.iter_mut();
    arms.filter(|arm| arm.name == "rsync").for_each(|arm| arm.backend.is_practice = true);
    run.samples.retain(|pass| pass.arm != "rsync" || pass.workload == "agent/two-writers-few");
    run.cells.retain(|cell| cell.arm != "rsync" || cell.workload == "agent/two-writers-few");
    let passes = run.samples.iter_mut();
    for sample in passes.filter(|pass| pass.workload == "agent/two-writers-few") {
        sample.settled = Some(SettledLines { lines: 50, on_both: 50, agree: true, ..SettledLines::default() });
    }
    rsync_loses(&mut run, 6);
    for arm in &mut run.plan.arms {
        arm.backend.promises.insert("killed-daemon".to_owned(), "write".to_owned());
        // It stands for a memory that hosts share.
        arm.backend.has_bucket = arm.name == "sqlite";
        if arm.backend.has_bucket {
            arm.backend.promises.insert("machine-loss".to_owned(), "sync".to_owned());
        }
    }
    machine_loss(&mut run, Outcome::Ok);
    machine_losses(&mut run, 0);
    kills(&mut run, "sqlite", 0);
    run
}

/// Lets rsync lose so many lines of two writers in each pass.
pub fn rsync_loses(run: &mut Run, lost: u64) {
    for pass in testing::passes(run, "agent/two-writers-few", "rsync") {
        pass.settled =
            Some(SettledLines { lines: 50, on_both: 50 - lost, lost, agree: true, ..SettledLines::default() });
    }
}

/// The recorded sessions whose bills `long-context` reads.
const RECORDED: [&str; 3] =
    ["agent/claude-code-write-heavy", "agent/claude-code-read-heavy", "agent/claude-code-compaction"];

/// Makes a session under `evict` as large as one under `inline`, or larger.
pub fn evict_nothing(run: &mut Run, is_recorded: bool, more: u64) {
    let inline = run.contexts.iter();
    let mut inline = inline.filter(|context| context.policy == "inline");
    let mut large = inline.next().unwrap().conversation.clone();
    large.fixed += more;
    for context in &mut run.contexts {
        let is_wanted = RECORDED.contains(&&*context.workload) == is_recorded;
        if is_wanted && context.policy == "evict" {
            context.conversation = large.clone();
        }
    }
}

pub fn long_context() -> Run {
    let mut run = testing::run();
    rename_workload(&mut run, "agent/session", "agent/offload-comparison");
    set_session(&mut run, "agent/offload-comparison", None);
    let example = run.contexts.clone();
    for workload in RECORDED {
        run.contexts
            .extend(example.iter().map(|context| SessionContext { workload: workload.to_owned(), ..context.clone() }));
    }
    for arm in ["direct", "sqlite"] {
        kills(&mut run, arm, 0);
    }
    run
}

pub fn exploration() -> Run {
    let mut run = testing::run();
    let found = made_up(&mut run);
    let step = &mut found.steps[0];
    (step.calls, step.seconds) = (4, 8.0);
    (step.prompt_tokens, step.output_tokens) = (400, 500);
    found.consistency = vec![
        ("the same path read twice".to_owned(), "4 of 4".to_owned()),
        (
            "listing against content".to_owned(),
            "45 imports in the Python files, 30 of them of a file that is listed".to_owned(),
        ),
    ];
    run
}

/// A row, why its figure is unknown although passes measured it, and the change that makes it so.
pub type UnknownFigure = (&'static str, &'static str, fn(&mut Run));

pub const UNKNOWN_FIGURES: [UnknownFigure; 4] = [
    ("Time of git status, log, commit and checkout", "but no round", |run| {
        // Each round has a disturbed pass, of one arm or of the other.
        for (arm, disturbed) in [("sqlite", 0), ("direct", 1)] {
            let passes = testing::passes(run, "program/git", arm);
            let passes = passes.filter(|pass| pass.round % 2 == disturbed);
            passes.for_each(|pass| pass.load.busy = Some("other work".to_owned()));
        }
    }),
    ("Time of git clone, git add of all files and rm -rf", "but no round", |run| {
        let passes = testing::passes(run, "program/git", "sqlite");
        passes.for_each(|pass| pass.load.busy = Some("other work".to_owned()));
    }),
    ("99th percentile of first reads", "too few calls", |run| {
        let cells = run.cells.iter_mut().filter(|cell| cell.workload == "micro/read-1k");
        cells.for_each(|cell| cell.latencies.clear());
    }),
    ("Wait for replayed file calls of a session", "no recorded turns", |run| {
        set_session(run, "agent/claude-code-write-heavy", None);
        run.plan.workloads.iter_mut().for_each(|planned| planned.turns = None);
    }),
];
