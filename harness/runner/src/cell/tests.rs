//! Tests of cells over plain directories: the passes, their order, and failing arms.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::SystemTime;

use rundir::ExactCounts;
use workloads::script::{CallKind, FillerFiles, Host, Script};

use super::*;
use crate::testing::{BrokenBackend, add_line, bytes, direct, no_limits, path, two_files, two_reads, workload, write};
use trial::watchdog::supervise;

/// A script that reads one file and replaces the other.
fn a_write() -> Script {
    let mut script = two_files();
    script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
    script.call(CallKind::Write, vec![write("b", "replaced", false)]);
    script
}

fn arm(name: &str, backend: impl Into<Option<BrokenBackend>>) -> CellArm {
    CellArm {
        name: name.to_owned(),
        is_external: false,
        backend: match backend.into() {
            Some(broken) => Arc::new(broken),
            None => direct(),
        },
        slowed_percent: 0,
    }
}

/// An arm whose directory a second host has, too.
fn shared(name: &str) -> CellArm {
    let backend = BrokenBackend { is_shared: true, ..BrokenBackend::default() };
    arm(name, backend)
}

/// A hot cell of these arms for `rounds` rounds, with limits that no load exceeds.
fn task(script: Script, arms: Vec<CellArm>, rounds: usize) -> CellTask {
    let order: Vec<usize> = (0..arms.len()).collect();
    CellTask {
        epoch: 3,
        workload: Arc::new(workload(script)),
        state: CacheState::Hot,
        state_name: "hot".to_owned(),
        arms,
        rounds: Rounds {
            orders: vec![order; rounds],
            warm_up: true,
            slice: Duration::from_secs(60),
            limits: no_limits(),
        },
        dir: PathBuf::new(),
        cpu: None,
        call_timeout: Duration::from_secs(10),
        setup: RunSetup {
            program: "/nonexistent".into(),
            interrupt: Interrupt::never(),
            started: Instant::now(),
            services: Arc::default(),
            expectations: Arc::default(),
        },
    }
}

/// The lines of a cell.
struct CellLines {
    samples: Vec<Sample>,
    cells: Vec<CellEpoch>,
}

impl CellLines {
    fn of(task: CellTask) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let task = CellTask { dir: dir.path().to_owned(), ..task };
        let (sender, lines) = channel();
        let interrupt = task.setup.interrupt.clone();
        supervise(&interrupt, move |watchdog| {
            task.run(watchdog, &sender);
        })
        .unwrap();
        let (mut samples, mut cells) = (Vec::new(), Vec::new());
        for line in lines {
            match line {
                Line::Sample(sample) => samples.push(*sample),
                Line::Cell(cell) => cells.push(*cell),
            }
        }
        Self { samples, cells }
    }

    fn outcomes(&self, arm: &str) -> Vec<Outcome> {
        let samples = self.samples.iter().filter(|sample| sample.arm == arm);
        samples.map(|sample| sample.outcome).collect()
    }

    fn reason(&self, arm: &str) -> &str {
        let mut samples = self.samples.iter().filter(|sample| sample.arm == arm);
        samples.find_map(|sample| sample.reason.as_deref()).unwrap()
    }

    fn cell(&self, arm: &str) -> &CellEpoch {
        self.cells.iter().find(|cell| cell.arm == arm).unwrap()
    }

    fn timed(&self, arm: &str, kind: &str) -> u64 {
        let latencies = self.cell(arm).latencies.get(kind);
        latencies.map_or(0, |packed| packed.histogram().unwrap().len())
    }
}

const FLIP: fn(&Path) = |subtree| std::fs::write(subtree.join("a"), "fIrst").unwrap();
const REMOVE: fn(&Path) = |subtree| std::fs::remove_file(subtree.join("a")).unwrap();

#[test]
fn the_files_of_all_arms_have_paths_of_one_length() {
    static ROOTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let noting = || BrokenBackend {
        tamper: Some(|subtree| ROOTS.lock().unwrap().push(subtree.to_owned())),
        ..BrokenBackend::default()
    };
    let arms =
        vec![arm("direct", noting()), arm("direct-again", noting()), arm("an-arm-with-a-longer-name-yet", noting())];
    // Passes that change files use subtree after subtree, each arm at its own pace.
    let _ = CellLines::of(task(a_write(), arms, 12));
    let roots = ROOTS.lock().unwrap();
    let arms: BTreeSet<&Path> = roots.iter().filter_map(|root| root.parent()).collect();
    assert_eq!(arms.len(), 3);
    let lengths: BTreeSet<usize> = roots.iter().map(|root| root.as_os_str().len()).collect();
    assert_eq!(lengths.len(), 1, "{roots:?}");

    let task = task(a_write(), Vec::new(), 1);
    let dir = |place, reopened| task.arm_dir(place, reopened).as_os_str().len();
    assert_eq!(dir(0, 0), dir(999, 99_999));
    assert_eq!(subtree_name(1).len(), subtree_name(99_999).len());
}

#[test]
fn without_a_warm_up_the_first_round_of_a_hot_cell_is_timed_and_counted() {
    let mut cell = task(two_reads(), vec![arm("one", None), arm("two", None)], 1);
    cell.rounds.warm_up = false;
    let found = CellLines::of(CellTask { state_name: "hot-shared-cpu".to_owned(), ..cell });
    assert_eq!(found.samples.len(), 2);
    for sample in &found.samples {
        assert!(!sample.warm_up && sample.state == "hot-shared-cpu", "{sample:?}");
    }
    for name in ["one", "two"] {
        let cell = found.cell(name);
        assert_eq!(cell.state, "hot-shared-cpu");
        assert_eq!((cell.counted.passes, cell.counted.calls), (1, 2), "{name}");
        assert_eq!(found.timed(name, "read"), 2, "{name}");
    }
}

#[test]
fn passes_alternate_in_the_given_order_and_the_first_round_only_warms_up() {
    let orders = vec![vec![1, 0], vec![0, 1], vec![1, 0], vec![0, 1]];
    let mut cell = task(two_reads(), vec![arm("one", None), arm("two", None)], 4);
    cell.rounds.orders.clone_from(&orders);
    let found = CellLines::of(cell);
    let played: Vec<(u32, &str)> = found.samples.iter().map(|sample| (sample.round, sample.arm.as_str())).collect();
    let names = ["one", "two"];
    let expected: Vec<(u32, &str)> =
        (0..).zip(&orders).flat_map(|(round, order)| order.iter().map(move |at| (round, names[*at]))).collect();
    assert_eq!(played, expected);
    assert!(found.samples.is_sorted_by_key(|sample| sample.started_ms));
    for sample in &found.samples {
        assert_eq!(sample.warm_up, sample.round == 0);
        assert_eq!((sample.epoch, sample.outcome), (3, Outcome::Ok));
        assert_eq!(sample.calls["read"].count, 2);
        assert!(sample.load.busy.is_none());
    }
    assert_eq!(found.cells.len(), 2);
    for name in names {
        // The warm-up pass is counted, and the other passes are timed.
        let cell = found.cell(name);
        let counted = &cell.counted;
        assert_eq!((counted.passes, counted.calls), (1, 2), "{name}");
        assert_eq!(counted.system_calls, 8, "{name}");
        assert_eq!(found.timed(name, "read"), 6, "{name}");
        let timed: u64 = found
            .samples
            .iter()
            .filter(|sample| sample.arm == name && !sample.warm_up)
            .map(|sample| sample.makespan_ns)
            .sum();
        assert_eq!(cell.timed_us, timed / 1000, "{name}");
    }
}

#[test]
fn an_arm_with_wrong_data_does_not_affect_the_other_arms() {
    let broken = BrokenBackend { tamper: Some(FLIP), ..BrokenBackend::default() };
    let arms = vec![arm("broken", broken), arm("direct", None)];
    let found = CellLines::of(task(two_reads(), arms, 4));
    assert_eq!(found.outcomes("broken"), [Outcome::WrongData; 4]);
    assert_eq!(found.reason("broken"), "read a: byte 1 of 5 is wrong");
    assert_eq!(found.outcomes("direct"), [Outcome::Ok; 4]);
    assert_eq!(found.timed("direct", "read"), 6);
    assert_eq!(found.timed("broken", "read"), 0);
    assert_eq!(found.cell("broken").counted, ExactCounts::default());
}

#[test]
fn an_arm_whose_first_pass_fails_is_read_back_after_the_next_one() {
    // No call reads the file that is wrong.
    let mut script = two_files();
    script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
    let broken = BrokenBackend {
        tamper: Some(|subtree| {
            if subtree.ends_with(subtree_name(1)) {
                drop(std::fs::remove_file(subtree.join("a")))
            } else {
                std::fs::write(subtree.join("b"), "sXcond").unwrap()
            }
        }),
        ..BrokenBackend::default()
    };
    let found = CellLines::of(task(script, vec![arm("broken", broken)], 3));
    assert_eq!(found.outcomes("broken"), [Outcome::Errno, Outcome::WrongData, Outcome::WrongData]);
}

#[test]
fn a_cold_arm_gets_its_daemon_just_before_its_pass_and_after_the_pass_of_the_arm_before_it() {
    if !arms::backend::can_drop_caches() {
        assert!(std::env::var_os("CTXBENCH_REQUIRE_ROOT").is_none());
        eprintln!("SKIPPED: this test needs root");
        return;
    }
    static EVENTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    fn note(event: &str, below: &Path) {
        let mut parts = below.components().map(|part| part.as_os_str().to_string_lossy());
        let arm = parts.rfind(|part| part.starts_with("arm")).unwrap().into_owned();
        EVENTS.lock().unwrap().push(format!("{event} {arm}"));
    }
    let noting = || BrokenBackend {
        starting: Some(|root| note("start", root)),
        tamper: Some(|subtree| note("pass", subtree)),
        ..BrokenBackend::default()
    };
    let arms = vec![arm("one", noting()), arm("other", noting())];
    let mut cold = task(two_reads(), arms, 1);
    cold.rounds.warm_up = false;
    CellLines::of(CellTask { state: CacheState::Cold, state_name: "cold".to_owned(), ..cold });
    let mut events = EVENTS.lock().unwrap().clone();
    // Filling a workspace asks for its daemon, too.
    events.drain(..events.iter().position(|event| event.starts_with("start")).unwrap());
    events.dedup();
    assert_eq!(events, ["start arm000-00000", "pass arm000-00000", "start arm001-00000", "pass arm001-00000"]);
}

#[test]
fn a_cell_drops_an_arm_whose_daemon_dies_and_goes_on() {
    let broken =
        BrokenBackend { tamper: Some(REMOVE), exit_reason: Some("the daemon was killed"), ..BrokenBackend::default() };
    let opened = Arc::clone(&broken.opened);
    let arms = vec![arm("broken", broken), arm("direct", None)];
    let found = CellLines::of(task(a_write(), arms, 4));
    assert_eq!(found.outcomes("broken"), [Outcome::Crash]);
    assert!(found.reason("broken").ends_with("; the daemon was killed"));
    assert_eq!(found.outcomes("direct"), [Outcome::Ok; 4]);
    assert_eq!(found.cells.len(), 2, "its cell is recorded all the same");
    assert_eq!(*opened.lock().unwrap(), 1);
}

#[test]
fn a_cell_does_not_reopen_a_dropped_guessing_arm() {
    let broken = BrokenBackend { guesses_content: true, ..BrokenBackend::default() };
    let opened = Arc::clone(&broken.opened);
    let found = CellLines::of(task(a_write(), vec![arm("broken", broken.clone())], 4));
    assert_eq!(found.outcomes("broken"), [Outcome::Ok; 4]);
    assert_eq!(*opened.lock().unwrap(), 4, "each pass has the same paths");

    *opened.lock().unwrap() = 0;
    let dies = BrokenBackend {
        exit_reason: Some("the daemon was killed"),
        // The first pass fails.
        tamper_root: Some(|root| drop(std::fs::remove_file(root.join("a")))),
        ..broken
    };
    let arms = vec![arm("broken", dies), arm("direct", None)];
    let found = CellLines::of(task(a_write(), arms, 4));
    assert_eq!(found.outcomes("broken"), [Outcome::Crash]);
    assert_eq!(*opened.lock().unwrap(), 1);
    assert_eq!(found.outcomes("direct"), [Outcome::Ok; 4]);
}

#[test]
fn an_arm_that_cannot_be_opened_is_a_setup_failure_and_the_others_go_on() {
    let broken = BrokenBackend { opening: Some("no server".to_owned()), ..BrokenBackend::default() };
    let arms = vec![arm("broken", broken), arm("direct", None)];
    let found = CellLines::of(task(two_reads(), arms, 3));
    assert_eq!(found.outcomes("broken"), [Outcome::Setup]);
    assert_eq!(found.reason("broken"), "no server");
    assert_eq!(found.outcomes("direct"), [Outcome::Ok; 3]);
}

#[test]
fn a_workspace_that_cannot_be_filled_is_a_setup_failure() {
    let mut script = two_reads();
    script.dirs.clear();
    script.files.push((path("no/dir/for/this"), bytes("")));
    let found = CellLines::of(task(script, vec![arm("direct", None)], 3));
    assert_eq!(found.outcomes("direct"), [Outcome::Setup]);
    let reason = found.reason("direct");
    assert!(reason.contains("write no/dir/for/this"), "{reason}");
    assert!(found.samples[0].outcomes.is_empty());
}

#[test]
fn a_backend_of_one_host_cannot_be_prepared_for_two() {
    let mut script = two_files();
    let seen = FileOp::SeenByOther { host: Host::SECOND, path: path("a"), content: bytes("first") };
    script.call(CallKind::Handoff, vec![seen]);
    let arms = vec![arm("broken", BrokenBackend::default()), shared("direct")];
    let found = CellLines::of(task(script, arms, 3));
    assert_eq!(found.outcomes("broken"), [Outcome::Setup]);
    let reason = found.reason("broken");
    assert!(reason.contains("no second host can have it"), "{reason}");
    assert_eq!(found.outcomes("direct"), [Outcome::Ok; 3]);
}

#[test]
fn a_cell_makes_filler_files_once_between_and_beside_the_files_of_its_passes() {
    let mut script = two_reads();
    script.filler = FillerFiles { count: 5, bytes: 100 };
    static MADE: Mutex<BTreeSet<SystemTime>> = Mutex::new(BTreeSet::new());
    const COUNTED: fn(&Path) = |subtree| {
        let filler = subtree.with_file_name("filler");
        let files = |after: &str| std::fs::read_dir(filler.join(after)).unwrap().count();
        assert_eq!([files("0"), files("1")], [2, 3]);
        let last = std::fs::metadata(filler.join("1/4")).unwrap();
        assert_eq!(last.len(), 100);
        MADE.lock().unwrap().insert(last.modified().unwrap());
    };
    let backend = BrokenBackend { tamper: Some(COUNTED), ..BrokenBackend::default() };
    let found = CellLines::of(task(script, vec![arm("direct", backend)], 3));
    // A pass that reads everything back would find them in its own directory.
    assert_eq!(found.outcomes("direct"), [Outcome::Ok; 3]);
    assert_eq!(MADE.lock().unwrap().len(), 1);
}

#[test]
fn a_two_host_cell_opens_a_workspace_for_each_pass() {
    let mut script = Script::new(Vec::new());
    for (host, line) in [(Host::FIRST, "a\n"), (Host::SECOND, "b\n")] {
        script.call(CallKind::Edit, vec![add_line(host, "shared.md", line)]);
    }
    let found = CellLines::of(task(script, vec![shared("direct")], 3));
    assert_eq!(found.outcomes("direct"), [Outcome::Ok; 3]);
    for sample in &found.samples {
        let settled = sample.settled.unwrap();
        assert_eq!((settled.lines, settled.on_both), (2, 2), "{settled:?}");
    }
}

#[test]
fn no_round_begins_after_the_slice_but_one_is_always_timed() {
    let rounds = |slice| {
        let mut cell = task(two_reads(), vec![arm("direct", None)], 1_000_000);
        cell.rounds.slice = slice;
        CellLines::of(cell).samples.len()
    };
    assert_eq!(rounds(Duration::ZERO), 2);
    let began = Instant::now();
    // On a busy machine, one round may take longer than a short slice.
    assert!([200, 5000].into_iter().any(|slice| rounds(Duration::from_millis(slice)) > 3));
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_busy_round_is_repeated_up_to_the_limit_and_is_in_no_latency() {
    let busy = Limits {
        // No share of stalls is negative, so every pass exceeds this limit.
        memory: -1.0,
        ..no_limits()
    };
    let rounds = |repeats| {
        // A round is longer than a gauge window, so that each one is judged at once.
        let mut cell = task(with_pause(two_reads()), vec![arm("direct", None)], 100);
        (cell.rounds.slice, cell.rounds.limits) = (Duration::ZERO, Limits { repeats, ..busy });
        let found = CellLines::of(cell);
        assert_eq!(found.timed("direct", "read"), 0);
        let is_busy = |sample: &Sample| sample.load.busy.is_some();
        assert!(found.samples.iter().all(is_busy));
        assert_eq!(found.outcomes("direct"), vec![Outcome::Ok; found.samples.len()]);
        found.samples.len()
    };
    assert_eq!(rounds(0.0), 2);
    assert_eq!(rounds(0.5), 3);
    assert_eq!(rounds(2.0), 4);
}

/// Adds a pause before the last call.
fn with_pause(mut script: Script) -> Script {
    if let Some(last) = script.calls.last_mut() {
        last.pause_ms = 310;
    }
    script
}

#[test]
fn an_interrupted_cell_makes_no_pass() {
    let mut cell = task(two_reads(), vec![arm("direct", None)], 3);
    cell.setup.interrupt = Interrupt::of(Arc::new(AtomicBool::new(true)));
    let found = CellLines::of(cell);
    assert!(found.samples.is_empty());
}

#[test]
fn a_pass_does_not_see_the_changes_of_an_earlier_pass() {
    let found = CellLines::of(task(a_write(), vec![arm("direct", None)], 6));
    // A pass that reads everything back would find the files of an earlier pass.
    assert_eq!(found.outcomes("direct"), [Outcome::Ok; 6]);
    assert_eq!(found.timed("direct", "write"), 5);
}
