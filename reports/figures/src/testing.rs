//! A scripted run for tests, with known latencies and seeded noise.
#![expect(clippy::unwrap_used, reason = "for tests: the run is constructed here")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use tokens::{CallUsage, Conversation, FixedOrigin, Part, PartKind, Step};

use crate::context::{self, Contexts};
use crate::prices::Prices;
use crate::summary::{Summary, summarise};
use rundir::{
    Arm, ArmBackend, AskedStep, Basis, Calls, CellEpoch, DaemonCounters, Environment, Epoch, ExactCounts, Fault,
    Latencies, LengthResult, Looks, Memory, ModelFactor, ModelFiles, ModelFilesPlan, ModelRead, MountedModel,
    OpcodeRecord, Outcome, Placement, Plan, PlannedWorkload, Probe, RUN_DIRECTORY_VERSION, Run, Sample, Schedule,
    Section, SessionContext, Settings, histogram,
};

/// Epochs of the scripted run.
pub const EPOCHS: u32 = 4;
/// Timed rounds of a cell in an epoch; round 0 precedes them and is a warm-up.
pub const ROUNDS: u32 = 6;
/// Timed calls in a pass.
pub const CALLS: u64 = 100;
/// The mean time of a call of `direct` without noise, in nanoseconds.
const TYPICAL_NS: f64 = 100_000.0;

/// A run with one micro and one agent workload and three arms: `direct`, its A/A arm `direct-again`,
/// and `sqlite`, which is twice as slow.
pub fn run() -> Run {
    seeded(1)
}

/// The summary of [`run`].
pub fn summary() -> Summary {
    summarise(&run()).unwrap()
}

/// The contexts of [`run`].
pub fn contexts() -> Contexts {
    context::contexts(&run(), &Prices::built_in().unwrap()).unwrap()
}

/// A recorded session under two policies (keep everything, evict), and a published account of it.
fn session_contexts() -> Vec<SessionContext> {
    let step = |enters: u64, emits: u64, gap_ms, reported| Step {
        gap_ms,
        enters: vec![Part::new(PartKind::Result, enters)],
        emits: vec![Part::new(PartKind::Arguments, emits)],
        files: BTreeMap::from([("edit".to_owned(), 1)]),
        reported: Some(CallUsage { prompt: reported, output: 1, ..CallUsage::default() }),
        ..Step::default()
    };
    let session = |policy: &str, basis, large: u64| SessionContext {
        v: RUN_DIRECTORY_VERSION,
        workload: "agent/session".to_owned(),
        policy: policy.to_owned(),
        basis,
        model: (basis == Basis::Recorded).then(|| "claude-sonnet-4-5".to_owned()),
        factors: vec![ModelFactor {
            model: "claude-sonnet-4-5".to_owned(),
            per_o200k: 1.12,
            label: "×1.12, measured: a source".to_owned(),
            thinking: tokens::ThinkingRetention::UntilUserSpeaks,
        }],
        conversation: Conversation {
            fixed: 1000,
            fixed_is: FixedOrigin::Inferred,
            steps: vec![step(50, 100, 0, 1176), step(large, 100, 4000, 14_500), step(200, 400, 290_000, 15_000)],
            ..Conversation::default()
        },
    };
    vec![
        session("inline", Basis::Recorded, 12_000),
        session("evict", Basis::Simulated, 700),
        session("before", Basis::Published, 50_000),
        session("after", Basis::Published, 5_000),
    ]
}

/// As [`run`], with other noise. All arms share a level for each epoch and a drift.
/// Each pass has 1 % of jitter, and one pass in a hundred is slowed down from outside.
pub fn seeded(seed: u64) -> Run {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let plan = plan(seed);
    let mut script = Script::default();
    for epoch in 0..EPOCHS {
        let level = 1.0 + rng.random_range(-0.1..0.1);
        for workload in &plan.workloads {
            script.cell(&mut rng, &plan, epoch, workload, level);
        }
    }
    Run {
        dir: PathBuf::from("results/scripted"),
        environment: environment(),
        contexts: session_contexts(),
        plan,
        samples: script.samples,
        cells: script.cells,
        epochs: (0..EPOCHS).map(epoch).collect(),
        probes: probes(),
        faults: ["direct", "sqlite"].map(fault).to_vec(),
        model_files: Some(model_files()),
        ..Run::default()
    }
}

/// Multiplies all times of an arm.
pub fn scale(run: &mut Run, arm: &str, factor: f64) {
    let scaled = |ns: u64| (ns as f64 * factor).max(1.0) as u64;
    for sample in run.samples.iter_mut().filter(|sample| sample.arm == arm) {
        scale_pass(sample, factor);
        sample.cpu.client_ns = scaled(sample.cpu.client_ns);
        sample.cpu.daemon_ns = scaled(sample.cpu.daemon_ns);
    }
    for cell in run.cells.iter_mut().filter(|cell| cell.arm == arm) {
        for latencies in cell.latencies.values_mut() {
            let mut times = histogram();
            for step in latencies.histogram().unwrap().iter_recorded() {
                times.record_n(scaled(step.value_iterated_to()), step.count_at_value()).unwrap();
            }
            *latencies = Latencies::new(&times).unwrap();
        }
        cell.counted.waited_ns = scaled(cell.counted.waited_ns);
        cell.timed_us = scaled(cell.timed_us);
    }
}

/// Multiplies all times of a pass but its processor time, as waiting does; the histograms of its cell stay as they are.
pub fn scale_pass(sample: &mut Sample, factor: f64) {
    let scaled = |ns: u64| (ns as f64 * factor).max(1.0) as u64;
    for calls in sample.calls.values_mut() {
        calls.total_ns = scaled(calls.total_ns);
        calls.p50_ns = scaled(calls.p50_ns);
        calls.p90_ns = scaled(calls.p90_ns);
        calls.max_ns = scaled(calls.max_ns);
    }
    sample.makespan_ns = scaled(sample.makespan_ns);
    sample.waited_ns = scaled(sample.waited_ns);
}

/// Measures the micro cell once more in four epochs, in which client and daemons share a processor and calls take
/// `factor` times as long.
pub fn with_shared_cpu(run: &mut Run, factor: f64) {
    let state = Placement::SharedCpu.state("hot");
    let again = |epoch: u32| epoch + EPOCHS;
    let samples = run.samples.iter();
    let mut samples: Vec<Sample> = samples.filter(|pass| pass.workload == "micro/read").cloned().collect();
    for pass in &mut samples {
        pass.epoch = again(pass.epoch);
        pass.state.clone_from(&state);
        if pass.arm == "sqlite" {
            scale_pass(pass, factor);
        }
    }
    run.samples.extend(samples);
    let mut epochs = run.epochs.clone();
    for epoch in &mut epochs {
        epoch.epoch = again(epoch.epoch);
        epoch.section = "shared".to_owned();
    }
    run.epochs.extend(epochs);
    run.plan.workloads[0].states.push(state.clone());
    let section = Section {
        name: "shared".to_owned(),
        placement: Placement::SharedCpu,
        cells: BTreeMap::from([("micro/read".to_owned(), vec![state])]),
        ..run.plan.schedule.sections[0].clone()
    };
    run.plan.schedule.sections.push(section);
}

/// Marks all passes as made on a busy machine.
pub fn make_busy(run: &mut Run) {
    for sample in &mut run.samples {
        sample.load.busy = Some("tasks waited for memory in 9 % of this pass".to_owned());
    }
}

/// The passes of an arm in a workload.
pub fn passes<'a>(run: &'a mut Run, workload: &'a str, arm: &'a str) -> impl Iterator<Item = &'a mut Sample> {
    let passes = run.samples.iter_mut();
    passes.filter(move |pass| pass.workload == workload && pass.arm == arm)
}

/// Gives an arm another name.
pub fn rename_arm(run: &mut Run, from: &str, to: &str) {
    let arms = run.plan.arms.iter_mut();
    let names = arms.flat_map(|arm| std::iter::once(&mut arm.name).chain(arm.same_as.as_mut()));
    let names = names.chain(run.samples.iter_mut().map(|pass| &mut pass.arm));
    let names = names.chain(run.cells.iter_mut().map(|cell| &mut cell.arm));
    for name in names.filter(|name| *name == from) {
        *name = to.to_owned();
    }
}

/// Adds an arm with the passes of another one.
pub fn copy_arm(run: &mut Run, from: &str, to: &str) {
    let mut other = run.clone();
    other.plan.arms.retain(|arm| arm.name == from);
    other.samples.retain(|pass| pass.arm == from);
    other.cells.retain(|cell| cell.arm == from);
    rename_arm(&mut other, from, to);
    run.plan.arms.extend(other.plan.arms);
    run.samples.extend(other.samples);
    run.cells.extend(other.cells);
}

/// Gives a workload another name.
pub fn rename_workload(run: &mut Run, from: &str, to: &str) {
    let workloads = run.plan.workloads.iter_mut();
    let names = workloads.map(|workload| &mut workload.name);
    let names = names.chain(run.samples.iter_mut().map(|pass| &mut pass.workload));
    let names = names.chain(run.cells.iter_mut().map(|cell| &mut cell.workload));
    let contexts = run.contexts.iter_mut();
    let names = names.chain(contexts.map(|context| &mut context.workload));
    for name in names.filter(|name| *name == from) {
        *name = to.to_owned();
    }
}

/// Adds a workload with the passes of another one, whose calls are of one kind.
pub fn copy_workload(run: &mut Run, from: &str, to: &str, kind: &str) {
    let mut other = run.clone();
    other.plan.workloads.retain(|workload| workload.name == from);
    other.samples.retain(|pass| pass.workload == from);
    other.cells.retain(|cell| cell.workload == from);
    let old = other.plan.workloads[0].calls.keys().next().unwrap().clone();
    rename_calls(&mut other, &old, kind);
    rename_workload(&mut other, from, to);
    run.plan.workloads.extend(other.plan.workloads);
    run.samples.extend(other.samples);
    run.cells.extend(other.cells);
}

/// Gives a kind of calls another name.
pub fn rename_calls(run: &mut Run, from: &str, to: &str) {
    fn rename<T>(by_kind: &mut BTreeMap<String, T>, from: &str, to: &str) {
        if let Some(value) = by_kind.remove(from) {
            by_kind.insert(to.to_owned(), value);
        }
    }
    for workload in &mut run.plan.workloads {
        rename(&mut workload.calls, from, to);
    }
    for sample in &mut run.samples {
        rename(&mut sample.calls, from, to);
    }
    for cell in &mut run.cells {
        rename(&mut cell.latencies, from, to);
    }
}

/// The run as scripted so far.
#[derive(Default)]
struct Script {
    samples: Vec<Sample>,
    cells: Vec<CellEpoch>,
}

impl Script {
    /// All passes of a workload in an epoch.
    fn cell(&mut self, rng: &mut ChaCha8Rng, plan: &Plan, epoch: u32, workload: &PlannedWorkload, level: f64) {
        let kind = workload.calls.keys().next().unwrap();
        let mut cells: Vec<(Histogram<u64>, CellEpoch)> =
            plan.arms.iter().map(|arm| (histogram(), cell_epoch(epoch, workload, arm))).collect();
        let mut drift = 1.0f64;
        for round in 0..=ROUNDS {
            drift *= 1.0 + rng.random_range(-0.02..0.02);
            for (arm, (times, cell)) in plan.arms.iter().zip(&mut cells) {
                let is_burst = rng.random_range(0..100) == 0;
                let burst = if is_burst { 1.4 } else { 1.0 };
                let jitter = 1.0 + rng.random_range(-0.01..0.01);
                let is_sqlite = arm.backend.name == "sqlite";
                let factor = if is_sqlite { 2.0 } else { 1.0 };
                let typical = TYPICAL_NS * factor * level * drift * burst * jitter;
                let pass = pass_times(rng, typical);
                let total = pass.iter().sum();
                let mut sample = sample(epoch, round, workload, arm);
                sample.order = self.samples.len() as u64;
                sample.calls = BTreeMap::from([(kind.clone(), calls_of(&pass, times))]);
                (sample.makespan_ns, sample.waited_ns) = (total, total);
                sample.cpu.client_ns = total / 2;
                if arm.backend.daemons > 0 {
                    sample.cpu.daemon_ns = total / 3;
                }
                if sample.warm_up {
                    cell.counted = counted(arm, total);
                } else {
                    pass.iter().for_each(|time| times.record(*time).unwrap());
                    cell.timed_us += total / 1000;
                }
                self.samples.push(sample);
            }
        }
        for (times, mut cell) in cells {
            let latencies = Latencies::new(&times).unwrap();
            cell.latencies = BTreeMap::from([(kind.clone(), latencies)]);
            self.cells.push(cell);
        }
    }
}

/// Service times of a pass in ascending order: a long tail, as latencies have.
fn pass_times(rng: &mut ChaCha8Rng, typical: f64) -> Vec<u64> {
    let mut times: Vec<u64> = (0..CALLS)
        .map(|_| {
            let tail: f64 = rng.random_range(0.0..1.0);
            (typical * (0.92 + 0.02 / (1.02 - tail))) as u64
        })
        .collect();
    times.sort_unstable();
    times
}

/// [`Calls::of`] a histogram of these times, without the histogram, which unoptimised code fills slowly. `like` has its
/// precision.
fn calls_of(times: &[u64], like: &Histogram<u64>) -> Calls {
    let at = |count: usize| like.highest_equivalent(times[count - 1]);
    Calls {
        count: CALLS,
        total_ns: times.iter().sum(),
        p50_ns: at(times.len() / 2),
        p90_ns: at(times.len() * 9 / 10),
        max_ns: at(times.len()),
    }
}

/// The name of the run's one section.
const SECTION: &str = "all";

/// A pass without times.
fn sample(epoch: u32, round: u32, workload: &PlannedWorkload, arm: &Arm) -> Sample {
    Sample {
        v: RUN_DIRECTORY_VERSION,
        epoch,
        round,
        arm: arm.name.clone(),
        workload: workload.name.clone(),
        state: "hot".to_owned(),
        warm_up: round == 0,
        outcomes: BTreeMap::from([(Outcome::Ok, CALLS)]),
        bytes_read: 1024 * CALLS,
        started_ms: u64::from(epoch) * 10_000 + u64::from(round) * 1000,
        took_us: 50_000,
        ..Sample::default()
    }
}

/// The counts of a warm-up pass whose calls took `total` nanoseconds.
fn counted(arm: &Arm, total: u64) -> ExactCounts {
    let counts = OpcodeRecord { count: 2 * CALLS, errors: 0, handling_ns: total / 4, store_ns: total / 5 };
    ExactCounts {
        passes: 1,
        calls: CALLS,
        waited_ns: total,
        system_calls: 3 * CALLS,
        disk_written_bytes: 4096 * CALLS,
        disk_read_bytes: 0,
        daemon: (arm.backend.daemons > 0).then(|| DaemonCounters {
            fuse: BTreeMap::from([("lookup".to_owned(), counts)]),
            store: BTreeMap::from([("sql_statements".to_owned(), 3 * CALLS)]),
        }),
    }
}

/// An arm's line of a cell, without times and counts.
fn cell_epoch(epoch: u32, workload: &PlannedWorkload, arm: &Arm) -> CellEpoch {
    CellEpoch {
        v: RUN_DIRECTORY_VERSION,
        epoch,
        arm: arm.name.clone(),
        workload: workload.name.clone(),
        state: "hot".to_owned(),
        memory: Memory { resident: 8 << 20, peak: 9 << 20 },
        ready_ns: match arm.backend.daemons {
            0 => Vec::new(),
            // The start times of daemons vary a little.
            _ => vec![11_800_000 + 100_000 * u64::from(epoch)],
        },
        took_ms: 1000,
        ..CellEpoch::default()
    }
}

fn epoch(epoch: u32) -> Epoch {
    Epoch {
        v: RUN_DIRECTORY_VERSION,
        epoch,
        section: SECTION.to_owned(),
        cells: 2,
        took_ms: 10_000,
        hot_ms: 8000,
        hot_timed_ms: 5000,
        steal: 0.01,
        stalled: [0.05, 0.02, 0.0],
        ..Epoch::default()
    }
}

fn plan(seed: u64) -> Plan {
    let workload = |name: &str, kind: &str, tokens, turn| PlannedWorkload {
        name: name.to_owned(),
        essay: format!("What {name} stands for."),
        sha256: "0".repeat(64),
        states: vec!["hot".to_owned()],
        calls: BTreeMap::from([(kind.to_owned(), CALLS)]),
        result_tokens: tokens,
        session_ms: turn,
        turns: turn.map(|_| 40),
        ..PlannedWorkload::default()
    };
    Plan {
        schema: RUN_DIRECTORY_VERSION,
        suite: "scripted".to_owned(),
        essay: "A scripted run.".to_owned(),
        created: "2026-11-21T00:00:00Z".to_owned(),
        ctxbench: "0.0.0 (test)".to_owned(),
        command: format!("ctxbench run --suite scripted --seed {seed}"),
        seed,
        schedule: Schedule {
            sections: vec![Section {
                name: SECTION.to_owned(),
                budget_ms: 240_000,
                epochs: EPOCHS,
                rounds: ROUNDS,
                warm_up: true,
                arms: ["direct", "direct-again", "sqlite"].map(str::to_owned).to_vec(),
                cells: ["micro/read", "agent/session"].map(|name| (name.to_owned(), vec!["hot".to_owned()])).into(),
                looks: Looks::at_end(EPOCHS),
                ..Section::default()
            }],
        },
        probes: true,
        model_files: Some(ModelFilesPlan::default()),
        settings: Settings { call_timeout_ms: 10_000 },
        arms: vec![arm("direct", None), arm("direct", Some("direct")), arm("sqlite", None)],
        workloads: vec![
            workload("micro/read", "read", None, None),
            workload("agent/session", "edit", Some(1234), Some(700)),
        ],
        ..Plan::default()
    }
}

/// An arm of the plan; with `same_as`, an A/A arm.
pub fn arm(backend: &str, same_as: Option<&str>) -> Arm {
    let is_direct = backend == "direct";
    Arm {
        name: match same_as {
            Some(first) => format!("{first}-again"),
            None => backend.to_owned(),
        },
        same_as: same_as.map(str::to_owned),
        backend: ArmBackend {
            name: backend.to_owned(),
            summary: format!("The {backend} backend."),
            durability: "what is promised".to_owned(),
            holds_data: true,
            persistent: true,
            counts_requests: !is_direct,
            daemons: u32::from(!is_direct),
            mounts: u32::from(!is_direct),
            needs: if is_direct { Vec::new() } else { vec!["/dev/fuse: to serve files".to_owned()] },
            lines_of_code: if is_direct { 50 } else { 2000 },
            versions: BTreeMap::from([("kernel".to_owned(), "6.18".to_owned())]),
            ..ArmBackend::default()
        },
        ..Arm::default()
    }
}

fn model_files() -> ModelFiles {
    let step = |what: &str, calls, seconds| AskedStep {
        what: what.to_owned(),
        calls,
        seconds,
        outcome: "ok".to_owned(),
        ..AskedStep::default()
    };
    ModelFiles {
        origin: "recorded".to_owned(),
        model: "scripted-70B".to_owned(),
        engine: "a recording of nothing".to_owned(),
        fidelity: vec![LengthResult {
            operations: 10,
            reads: [false, true].map(|is_exact| ModelRead { is_exact, ..ModelRead::default() }).to_vec(),
            calls: 5,
            unusable: 1,
            unanswered: 0,
            answer_ms: 1234.0,
            ..LengthResult::default()
        }],
        history: MountedModel {
            steps: vec![step("cat FILE", 1, 1.5)],
            session: Some((9.0, 0.001)),
            session_reads: Some((4, 1)),
            ..MountedModel::default()
        },
        generate: MountedModel { steps: vec![step("stat FILE", 0, 0.002)], ..MountedModel::default() },
        ..ModelFiles::default()
    }
}

fn probes() -> Vec<Probe> {
    let names = [("tool", "cat"), ("tool", "grep"), ("visible", "cat")];
    let probes = ["direct", "sqlite"]
        .into_iter()
        .flat_map(|arm| names.map(|(aspect, name)| Probe::new(aspect, name, arm, Outcome::Ok, "exit 0")));
    probes.collect()
}

fn fault(arm: &str) -> Fault {
    Fault {
        v: RUN_DIRECTORY_VERSION,
        scenario: "cron-kill".to_owned(),
        arm: arm.to_owned(),
        order: u64::from(arm != "direct"),
        outcome: Outcome::Ok,
        detail: "killed".to_owned(),
        killed: arm != "direct",
        recovered: true,
        recovery_ms: 20,
        acknowledged: 10,
        lost: 0,
        failed_calls: u64::from(arm == "sqlite"),
    }
}

/// The environment of a recorded run.
pub fn environment() -> Environment {
    serde_json::from_str(include_str!("../../run/fixtures/env.json")).unwrap()
}

#[test]
fn calls_of_a_pass_are_those_of_its_histogram() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let times = pass_times(&mut rng, TYPICAL_NS);
    let mut all = histogram();
    times.iter().for_each(|time| all.record(*time).unwrap());
    let expected = Calls::of(&all, times.iter().sum());
    assert_eq!(calls_of(&times, &all), expected);
}
