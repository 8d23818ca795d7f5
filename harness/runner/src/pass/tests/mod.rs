//! Tests of passes over a plain directory, with a scripted clock.

mod hosts;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arms::backend::Workspace;
use backends::registry::Registry;
use rundir::Outcome;
use workloads::catalogue;
use workloads::definition::CacheState;
use workloads::model::ReferenceModel;
use workloads::path::WorkspacePath;
use workloads::script::{CallKind, FileOp};

use super::*;
use crate::clock::ScriptedClock;
use crate::testing::{
    BrokenBackend, add_line, append, bytes, direct, list, path, rename, two_files, two_reads, workspace_config, write,
};
use trial::interrupt::Interrupt;
use trial::watchdog::supervise;

/// The input of a pass in a test. Defaults: a plain directory, hot.
struct PassInput {
    backend: Arc<dyn Backend>,
    script: Script,
    state: CacheState,
    /// By how much the clock advances at each reading, in nanoseconds.
    steps: Vec<u64>,
    timeout: Duration,
    slowed_percent: u32,
    is_counted: bool,
    reads_back: bool,
    interrupt: Interrupt,
    /// Applied to the root after it has been filled.
    tamper: fn(&Path),
}

impl PassInput {
    /// A pass whose calls take `times`, in nanoseconds. The clock's time between calls does not count.
    fn of(script: Script, times: &[u64]) -> Self {
        // Each call reads the clock twice.
        let steps = times.iter().flat_map(|time| [1_000_000, *time]).collect();
        Self {
            backend: direct(),
            script,
            state: CacheState::Hot,
            steps,
            timeout: Duration::from_secs(10),
            slowed_percent: 0,
            is_counted: true,
            reads_back: true,
            interrupt: Interrupt::never(),
            tamper: |_| {},
        }
    }

    fn passed(self) -> PassResult {
        let clock = ScriptedClock::new(self.steps.clone());
        self.passed_by(clock)
    }

    fn passed_by(self, clock: impl Clock + Send + 'static) -> PassResult {
        let dir = tempfile::tempdir().unwrap();
        let config = workspace_config(dir.path());
        let passed = supervise(&Interrupt::never(), move |watchdog| {
            let described = self.backend.describe();
            let expectations = Expectations::new(&Arc::new(self.script.clone()), self.state, &described, Access::Paths);
            let mut workspaces = Workspaces::one(self.backend.open(&config).unwrap());
            let mut driver = driver(&self.script, &*self.backend);
            driver.open(&mut workspaces, &*self.backend, &config).unwrap();
            let mut buffer = ResultBuffer::new();
            let root = workspaces.first.root().to_owned();
            let mut steps = Steps { root: &root, watchdog, limit: self.timeout, buffer: &mut buffer };
            steps.fill(&self.script, &root.join("filler")).unwrap();
            (self.tamper)(&root);
            let pass = Pass {
                expectations: &expectations,
                backend: &described,
                has_bucket: false,
                state: self.state,
                slowed_percent: self.slowed_percent,
                counting: if self.is_counted { CounterUse::Now } else { CounterUse::Never },
                proves_state: true,
                reads_back: self.reads_back,
                call_timeout: self.timeout,
                interrupt: &self.interrupt,
            };
            pass.run(&*driver, &mut workspaces, watchdog, &clock, &mut buffer, &mut || {})
        });
        passed.unwrap()
    }
}

/// Runs a script over a plain directory; its calls take `times`, in nanoseconds.
fn passed(script: Script, times: &[u64]) -> PassResult {
    PassInput::of(script, times).passed()
}

#[test]
fn a_workload_on_a_backend_has_the_rules_of_its_kind() {
    let rules = |workload: &str, backend: &str| {
        let script = catalogue::workload(workload).unwrap().script;
        driver::<Instant>(&script, &*Registry::default().find(backend).unwrap()).rules()
    };
    let plain = Rules::default();
    for (workload, backend, expected) in [
        ("micro/read-1k", "direct", plain),
        ("micro/eight-clients", "direct", Rules { needs_all_processors: true, ..plain }),
        ("program/log", "direct", Rules { syncs_first: true, is_unproved: true, ..plain }),
        (
            "program/parallel",
            "direct",
            Rules { syncs_first: true, is_unproved: true, needs_all_processors: true, ..plain },
        ),
        ("agent/handoff", "bind", Rules { reopens: true, runs_idle_arms: true, counts_failed_passes: true, ..plain }),
        ("micro/read-1k", "s3-bare-embedded", Rules { lacks_paths: true, is_unproved: true, ..plain }),
        ("agent/shortened", "state", Rules { lacks_paths: true, ..plain }),
    ] {
        assert_eq!(rules(workload, backend), expected, "{workload} on {backend}");
    }
}

#[test]
fn files_that_no_call_changes_are_read_back_once() {
    let once = |script: Script| {
        let backend = direct().describe();
        Expectations::new(&Arc::new(script), CacheState::Hot, &backend, Access::Paths).is_read_back_once()
    };
    assert!(once(two_reads()));
    let mut changing = two_reads();
    changing.call(CallKind::Write, vec![write("b", "replaced", false)]);
    assert!(!once(changing));
}

fn tampered(tamper: fn(&Path), exit_reason: Option<&'static str>) -> PassResult {
    let backend = BrokenBackend { exit_reason, ..BrokenBackend::default() };
    let made = PassInput { backend: Arc::new(backend), tamper, ..PassInput::of(two_reads(), &[100, 200]) };
    made.passed()
}

#[test]
fn a_pass_distinguishes_wrong_data_errors_and_crashes_and_times_none() {
    let flip: fn(&Path) = |root| std::fs::write(root.join("a"), "fIrst").unwrap();
    let remove: fn(&Path) = |root| std::fs::remove_file(root.join("a")).unwrap();

    let wrong = tampered(flip, None);
    assert_eq!(wrong.sample.outcomes, BTreeMap::from([(Outcome::Ok, 1), (Outcome::WrongData, 1)]));
    assert_eq!((wrong.sample.makespan_ns, wrong.sample.calls["read"].count), (200, 1));
    assert_eq!(wrong.sample.waited_ns, 300, "the caller waited for wrong bytes, too");
    let (outcome, reason) = wrong.worst_outcome.unwrap();
    assert_eq!((outcome, reason.as_str()), (Outcome::WrongData, "read a: byte 1 of 5 is wrong"));

    let failed = tampered(remove, None);
    assert_eq!(failed.sample.outcomes[&Outcome::Errno], 1);
    assert_eq!(failed.worst_outcome.unwrap().0, Outcome::Errno);

    let died = tampered(remove, Some("the daemon was killed"));
    let (outcome, reason) = died.worst_outcome.unwrap();
    assert_eq!(outcome, Outcome::Crash);
    assert!(reason.ends_with("; the daemon was killed"), "{reason}");
    assert_eq!(died.sample.outcomes, BTreeMap::from([(Outcome::Crash, 1)]), "nothing that follows a death counts");
}

#[test]
fn a_pass_with_read_back_checks_files_that_no_call_touches() {
    let spoil: fn(&Path) = |root| std::fs::write(root.join("b"), "sXcond").unwrap();
    let worst_outcome = |reads_back| {
        let mut script = two_files();
        script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
        let made = PassInput { tamper: spoil, reads_back, ..PassInput::of(script, &[100]) };
        made.passed().worst_outcome
    };
    let (outcome, reason) = worst_outcome(true).unwrap();
    assert_eq!(outcome, Outcome::WrongData);
    assert!(reason.starts_with("reading everything back: "), "{reason}");
    assert_eq!(worst_outcome(false), None);
}

#[test]
fn a_pass_does_not_read_guessed_content_back() {
    let spoil: fn(&Path) = |root| std::fs::write(root.join("b"), "sXcond").unwrap();
    let remove: fn(&Path) = |root| std::fs::remove_file(root.join("b")).unwrap();
    let worst_outcome = |tamper, guesses_content| {
        let mut script = two_files();
        script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
        let backend = BrokenBackend { guesses_content, ..BrokenBackend::default() };
        let made = PassInput { backend: Arc::new(backend), tamper, ..PassInput::of(script, &[100]) };
        made.passed().worst_outcome.map(|(outcome, _)| outcome)
    };
    assert_eq!(worst_outcome(spoil, false), Some(Outcome::WrongData));
    assert_eq!(worst_outcome(spoil, true), None, "no call read b");
    assert_eq!(worst_outcome(remove, true), Some(Outcome::WrongData), "a model must not guess names");
}

#[test]
fn a_pass_times_its_calls_and_nothing_between_them() {
    let mut script = two_reads();
    // Performed and checked, but not timed.
    script.meanwhile(vec![FileOp::Remove(path("a"))]);
    script.call(CallKind::Stat, vec![FileOp::Stat(path("b"))]);
    let found = passed(script, &[100, 300, 7777, 50]);
    assert!(found.worst_outcome.is_none(), "{:?}", found.worst_outcome);
    assert_eq!(found.sample.makespan_ns, 450);
    let read = &found.sample.calls["read"];
    assert_eq!((read.count, read.total_ns, read.max_ns), (2, 400, 300));
    assert_eq!(found.times[&CallKind::Read].len(), 2);
    assert_eq!(found.sample.calls["stat"].total_ns, 50);
    assert_eq!(found.sample.outcomes, BTreeMap::from([(Outcome::Ok, 3)]));
    assert_eq!(found.sample.bytes_read, 11);
}

#[test]
fn an_expected_failure_counts_as_waiting_but_has_no_latency() {
    let mut script = two_files();
    script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
    script.meanwhile(vec![FileOp::Remove(path("a"))]);
    script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
    let found = passed(script, &[100, 1, 200]);
    assert_eq!(found.sample.outcomes[&Outcome::Ok], 2);
    assert_eq!(found.sample.makespan_ns, 300);
    let read = &found.sample.calls["read"];
    assert_eq!((read.count, read.total_ns), (1, 100));
}

#[test]
fn a_call_that_ends_too_late_is_a_timeout() {
    let made = PassInput { timeout: Duration::from_secs(60), ..PassInput::of(two_reads(), &[120_000_000_000, 100]) };
    let found = made.passed();
    assert_eq!(found.sample.outcomes, BTreeMap::from([(Outcome::Ok, 1), (Outcome::Timeout, 1)]));
    let (outcome, reason) = found.worst_outcome.unwrap();
    assert_eq!((outcome, reason.as_str()), (Outcome::Timeout, "read a: took 120.0 s"));
    assert_eq!(found.sample.makespan_ns, 100);
}

#[test]
fn the_watchdog_does_not_cut_off_many_slow_calls_within_their_limit() {
    /// Sleeps at each reading that ends a call.
    struct SlowClock(std::cell::Cell<u64>, Instant, Duration);
    impl Clock for SlowClock {
        fn now_ns(&self) -> u64 {
            self.0.set(self.0.get() + 1);
            if self.0.get().is_multiple_of(2) {
                std::thread::sleep(self.2);
            }
            self.1.elapsed().as_nanos() as u64
        }
    }
    let mut script = two_files();
    for _ in 0..12 {
        script.call(CallKind::Stat, vec![FileOp::Stat(path("a"))]);
    }
    let outcomes = |sleep: Duration| {
        // Twelve calls take four times as long as one call may.
        let made = PassInput { timeout: 3 * sleep, ..PassInput::of(script.clone(), &[]) };
        made.passed_by(SlowClock(std::cell::Cell::new(0), Instant::now(), sleep)).sample.outcomes
    };
    // A busy machine may stop this process for longer than a call may take.
    let all = BTreeMap::from([(Outcome::Ok, 12)]);
    let mut sleeps = [80, 400, 2000].map(Duration::from_millis).into_iter();
    assert!(sleeps.any(|sleep| outcomes(sleep) == all));
}

#[test]
fn a_pass_keeps_its_worst_failure() {
    let mut found = PassResult::default();
    found.note(Outcome::Errno, "first".to_owned());
    found.note(Outcome::WrongData, "second".to_owned());
    found.note(Outcome::WrongData, "third".to_owned());
    found.note(Outcome::Timeout, "fourth".to_owned());
    assert_eq!(found.worst_outcome, Some((Outcome::WrongData, "second".to_owned())));
}

#[test]
fn system_calls_of_timed_calls_are_counted_exactly() {
    let read_open = FileOp::ReadOpen { path: path("b"), offset: 1, length: 2 };
    for (op, calls) in [
        // Open, fstat, read, close.
        (FileOp::Read(path("a")), 4),
        (read_open, 1),
        (FileOp::Stat(path("a")), 1),
        // Open, write, close, and fsync.
        (write("c", "third", false), 3),
        (write("c", "third", true), 4),
        (append("a", "!"), 3),
        (FileOp::Create(path("new")), 2),
        (rename("a", "d"), 1),
        (FileOp::Remove(path("a")), 1),
        (FileOp::Sync(path("a")), 3),
        // Open, getdents twice, close; one stat for each of two files.
        (list(".", false), 4),
        (list(".", true), 6),
        (FileOp::MakeDir(path("dir")), 1),
        // Two calls fail, then one for each directory.
        (FileOp::MakeDir(path("x/y")), 3),
        // The listing, then each of two files.
        (FileOp::Walk(WorkspacePath::root()), 4),
        (FileOp::Search(WorkspacePath::root()), 12),
    ] {
        let what = format!("{op:?}");
        let mut script = two_files();
        script.meanwhile(vec![FileOp::Read(path("b"))]);
        script.call(CallKind::Read, vec![op]);
        let found = passed(script, &[1, 1]);
        assert_eq!(found.worst_outcome, None, "{what}");
        let counted = found.counted.unwrap();
        assert_eq!(counted.system_calls, calls, "{what}");
        assert_eq!((counted.passes, counted.calls), (1, 1), "{what}");
    }
}

#[test]
fn an_uncounted_pass_reads_no_daemon_counters() {
    let counts = Arc::new(Mutex::new(Vec::new()));
    let backend = BrokenBackend { counts: Some(Arc::clone(&counts)), ..BrokenBackend::default() };
    let made = PassInput { backend: Arc::new(backend), is_counted: false, ..PassInput::of(two_reads(), &[1, 1]) };
    // An empty list of counts panics when the counters are read.
    let found = made.passed();
    assert_eq!((found.worst_outcome, found.counted), (None, None));
}

#[test]
fn requests_between_the_timed_calls_are_not_counted() {
    // Before the pass, before and after the untimed call, and after the pass.
    let counts = Arc::new(Mutex::new(vec![10, 15, 22, 30]));
    let backend = BrokenBackend { counts: Some(Arc::clone(&counts)), ..BrokenBackend::default() };
    let mut script = two_files();
    script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
    script.meanwhile(vec![FileOp::Read(path("b"))]);
    script.call(CallKind::Read, vec![FileOp::Read(path("b"))]);
    let made = PassInput { backend: Arc::new(backend), ..PassInput::of(script, &[1, 1, 1]) };
    let found = made.passed();
    assert_eq!(found.worst_outcome, None);
    let daemon = found.counted.unwrap().daemon.unwrap();
    assert_eq!(daemon.count("read"), 5 + 8);
    assert!(counts.lock().unwrap().is_empty());
}

#[test]
fn a_slowed_arm_takes_the_planted_percentage_longer() {
    let mut script = two_files();
    script.call(CallKind::Stat, vec![FileOp::Stat(path("a"))]);
    script.call(CallKind::Stat, vec![FileOp::Stat(path("b"))]);
    let made = |slowed_percent, steps: &[u64]| PassInput {
        slowed_percent,
        steps: steps.to_vec(),
        ..PassInput::of(script.clone(), &[])
    };
    let straight = made(0, &[7, 1000, 7, 500]).passed();
    assert_eq!(straight.sample.makespan_ns, 1500);
    // 1000 ns and 100 more, after three readings. 500 ns and 50 more, which one reading exceeds.
    let slowed = made(10, &[7, 1000, 40, 40, 20, 7, 500, 60]).passed();
    assert_eq!(slowed.worst_outcome, None);
    assert_eq!(slowed.sample.makespan_ns, 1100 + 560);
    assert_eq!(slowed.sample.calls["stat"].max_ns, 1100);
    let counted = slowed.counted.unwrap();
    assert_eq!(counted.system_calls, 2, "it waits by looking at the clock");
}

#[test]
fn an_interrupted_pass_is_marked_and_not_read_back() {
    /// Sets the flag at its third reading, in the second call.
    struct InterruptingClock(Arc<AtomicBool>, std::cell::Cell<u32>);
    impl Clock for InterruptingClock {
        fn now_ns(&self) -> u64 {
            self.1.set(self.1.get() + 1);
            self.0.store(self.1.get() >= 3, Ordering::Relaxed);
            u64::from(self.1.get())
        }
    }
    let mut script = two_reads();
    script.call_after(1, CallKind::Stat, vec![FileOp::Stat(path("a"))]);
    let flag = Arc::new(AtomicBool::new(false));
    let made = PassInput {
        interrupt: Interrupt::of(Arc::clone(&flag)),
        // An interrupted pass does not read this file back.
        tamper: |root| std::fs::write(root.join("c"), "not of the script").unwrap(),
        ..PassInput::of(script, &[])
    };
    let found = made.passed_by(InterruptingClock(flag, std::cell::Cell::new(0)));
    assert!(found.interrupted);
    assert_eq!(found.worst_outcome, None);
    // The call after the pause is in the next stretch, which is not made.
    assert_eq!(found.sample.outcomes, BTreeMap::from([(Outcome::Ok, 2)]));
}

#[test]
fn expectations_say_whether_calls_change_or_sync_anything() {
    let of = |state: CacheState, script: &Script| {
        let described = direct().describe();
        let script = Arc::new(script.clone());
        let expectations = Expectations::new(&script, state, &described, Access::Paths);
        (expectations.changes(), expectations.syncs())
    };
    for (op, expected) in [
        (FileOp::Read(path("a")), (false, false)),
        (FileOp::Stat(path("a")), (false, false)),
        (FileOp::Search(WorkspacePath::root()), (false, false)),
        (write("a", "x", false), (true, false)),
        (write("a", "x", true), (true, true)),
        (FileOp::Sync(path("a")), (true, true)),
        (FileOp::Remove(path("a")), (true, false)),
    ] {
        let mut script = two_files();
        script.call(CallKind::Write, vec![op.clone()]);
        assert_eq!(of(CacheState::Hot, &script), expected, "{op:?}");
    }
    // In cold cells only the first touches are replayed.
    let mut script = two_reads();
    script.call(CallKind::Write, vec![write("a", "x", true)]);
    script.first_touches = Some(2);
    assert_eq!(of(CacheState::Hot, &script), (true, true));
    assert_eq!(of(CacheState::Cold, &script), (false, false));
}

#[test]
fn an_unproved_cache_state_is_an_infra_failure() {
    let made = PassInput { state: CacheState::Cold, ..PassInput::of(two_reads(), &[1, 1]) };
    // The files have just been written, so no read reaches the disk.
    let (outcome, reason) = made.passed().worst_outcome.unwrap();
    assert_eq!(outcome, Outcome::Infra);
    assert!(reason.contains("the cache state cold is not proved"), "{reason}");
}

#[test]
fn a_restored_subtree_holds_the_first_files_and_nothing_else() {
    let names = ["a", "b", "c/d", "c/e", "f", "g", "h", "i", "j", "k", "l"];
    let files = names.map(|name| (path(name), bytes(name)));
    let mut script = Script::new(files.to_vec());
    let ops = vec![
        write("a", "changed", false),
        FileOp::MakeDir(path("new/deep")),
        rename("b", "new/deep/b"),
        write("new/x", "changed", false),
        FileOp::Remove(path("c/d")),
        FileOp::Append { path: path("f"), content: bytes("longer") },
        FileOp::WriteAt { path: path("c/e"), offset: 1, content: bytes("o"), sync: false },
        write("g", "", false),
    ];
    script.call(CallKind::Write, ops.clone());
    let state = CacheState::Hot;
    let described = direct().describe();
    let dir = tempfile::tempdir().unwrap();
    let held = supervise(&Interrupt::never(), move |watchdog| {
        let script = Arc::new(script);
        let expectations = Expectations::new(&script, state, &described, Access::Paths);
        let restoration = expectations.restoration();
        // Undoing creates two files, changes four and removes two, which takes longer than to create three.
        let few = Arc::new(Script { files: script.files[..3].to_vec(), ..Script::clone(&script) });
        let few = Expectations::new(&few, state, &described, Access::Paths);
        assert_eq!(few.restoration(), None);
        let mut buffer = ResultBuffer::new();
        let mut steps = Steps { root: dir.path(), watchdog, limit: Duration::from_secs(10), buffer: &mut buffer };
        steps.fill(&script, &dir.path().join("filler")).unwrap();
        for op in &ops {
            steps.perform(op).unwrap().unwrap();
        }
        steps.restore(restoration.unwrap()).unwrap();
        let everything = FileOp::Search(WorkspacePath::root());
        let expected = ReferenceModel::of(&script).apply(&everything);
        steps.expect(&everything, &expected).unwrap();
        !dir.path().join("new").exists()
    });
    assert_eq!(held, Ok(true));
}
