//! A scripted run for tests: known latencies, seeded noise, no machine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use ledger::{Conversation, Fixed, Part, PartKind, Reported, Step};

use crate::context::{self, Contexts};
use crate::prices::Prices;
use rundir::{
    Arm, ArmBackend, AskedStep, AtLength, Basis, Calls, Cpu, DaemonCounters, Environment, Fault,
    Memory, ModelFactor, ModelFiles, ModelRead, MountedModel, OpcodeCount, Outcome, Plan,
    PlannedWorkload, Pressure, Probe, Run, SCHEMA_VERSION, Sample, SessionContext, Settings,
    histogram,
};
use crate::summary::{Summary, summarise};

const ROUNDS: u32 = 10;
const CALLS: u64 = 100;

/// Three arms, direct twice and sqlite twice as slow, one micro and one agent workload.
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

/// A recorded session that keeps everything or evicts, and a published account of it.
fn session_contexts() -> Vec<SessionContext> {
    let step = |enters: u64, emits: u64, gap_ms, reported| Step {
        gap_ms,
        enters: vec![Part::new(PartKind::Result, enters)],
        emits: vec![Part::new(PartKind::Arguments, emits)],
        files: BTreeMap::from([("edit".to_owned(), 1)]),
        reported: Some(Reported {
            prompt: reported,
            cached: 0,
            output: 1,
        }),
        ..Step::default()
    };
    let session = |policy: &str, basis, large: u64| SessionContext {
        v: SCHEMA_VERSION,
        workload: "agent/session".to_owned(),
        policy: policy.to_owned(),
        basis,
        model: (basis == Basis::Recorded).then(|| "claude-sonnet-4-5".to_owned()),
        factors: vec![ModelFactor {
            model: "claude-sonnet-4-5".to_owned(),
            per_o200k: 1.12,
            label: "×1.12, measured: a source".to_owned(),
            thinking: ledger::ThinkingStays::UntilUserSpeaks,
        }],
        conversation: Conversation {
            fixed: 1000,
            fixed_is: Fixed::Inferred,
            steps: vec![
                step(50, 100, 0, 1176),
                step(large, 100, 4000, 14_500),
                step(200, 400, 290_000, 15_000),
            ],
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

/// As [`run`], with other noise: a slow drift that all arms share, jitter of 3 % of every block, and
/// now and then a block that something else slowed down.
pub fn seeded(seed: u64) -> Run {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let plan = plan(seed);
    let mut samples = Vec::new();
    let mut drift = 1.0f64;
    for round in 0..ROUNDS {
        for workload in &plan.workloads {
            for arm in &plan.arms {
                drift *= 1.0 + rng.random_range(-0.02..0.02);
                let burst = if rng.random_range(0..40) == 0 {
                    1.4
                } else {
                    1.0
                };
                let jitter = 1.0 + rng.random_range(-0.03..0.03);
                let factor = if arm.backend.name == "sqlite" {
                    2.0
                } else {
                    1.0
                };
                let typical = 5000.0 * factor * drift * burst * jitter;
                samples.push(sample(&mut rng, &plan, round, workload, arm, typical));
            }
        }
    }
    let (probes, faults) = probes();
    Run {
        dir: PathBuf::from("results/scripted"),
        environment: environment(),
        policy: None,
        contexts: session_contexts(),
        plan,
        samples,
        probes,
        faults,
        model_files: Some(model_files()),
    }
}

/// Multiplies all times of an arm.
pub fn scale(run: &mut Run, arm: &str, factor: f64) {
    for sample in run.samples.iter_mut().filter(|sample| sample.arm == arm) {
        for calls in sample.calls.values_mut() {
            let mut scaled = histogram();
            for step in calls.histogram().unwrap().iter_recorded() {
                let value = (step.value_iterated_to() as f64 * factor).max(1.0) as u64;
                scaled.record_n(value, step.count_at_value()).unwrap();
            }
            let total = (calls.total_ns as f64 * factor) as u64;
            *calls = Calls::new(&scaled, total).unwrap();
        }
        sample.makespan_ns = (sample.makespan_ns as f64 * factor) as u64;
    }
}

fn sample(
    rng: &mut ChaCha8Rng,
    plan: &Plan,
    round: u32,
    workload: &PlannedWorkload,
    arm: &Arm,
    typical: f64,
) -> Sample {
    let mut times = histogram();
    let mut total = 0;
    for _ in 0..CALLS {
        // A long tail, as latencies have.
        let tail: f64 = rng.random_range(0.0..1.0);
        let time = (typical * (0.9 + 0.1 / (1.02 - tail))) as u64;
        times.record(time).unwrap();
        total += time;
    }
    let kind = workload.calls.keys().next().unwrap().clone();
    let counts = OpcodeCount {
        count: 2 * CALLS,
        errors: 0,
        handling_ns: total / 4,
        store_ns: total / 5,
    };
    let has_daemon = arm.backend.daemons > 0;
    Sample {
        v: SCHEMA_VERSION,
        round,
        order: round * plan.arms.len() as u32,
        arm: arm.name.clone(),
        backend: arm.backend.name.clone(),
        workload: workload.name.clone(),
        state: "hot".to_owned(),
        outcome: Outcome::Ok,
        reason: None,
        outcomes: BTreeMap::from([(Outcome::Ok, CALLS)]),
        calls: BTreeMap::from([(kind, Calls::new(&times, total).unwrap())]),
        makespan_ns: total,
        waited_ns: total,
        bytes_read: 1024 * CALLS,
        disk_read_bytes: 0,
        ready_ns: if has_daemon { 12_000_000 } else { 0 },
        daemon: has_daemon.then(|| DaemonCounters {
            fuse: BTreeMap::from([("lookup".to_owned(), counts)]),
            store: BTreeMap::from([("sql_statements".to_owned(), 3 * CALLS)]),
        }),
        cpu: Cpu {
            client_ns: total / 2,
            daemon_ns: if has_daemon { total / 3 } else { 0 },
        },
        memory: Memory {
            resident: 8 << 20,
            peak: 9 << 20,
        },
        pressure: Pressure::default(),
        settled: None,
        started_ms: u64::from(round) * 1000,
        took_ms: 50,
    }
}

fn plan(seed: u64) -> Plan {
    let workload = |name: &str, kind: &str, tokens, turn| PlannedWorkload {
        name: name.to_owned(),
        file: None,
        essay: format!("What {name} stands for."),
        sha256: "0".repeat(64),
        states: vec!["hot".to_owned()],
        calls: BTreeMap::from([(kind.to_owned(), CALLS)]),
        not_replayed: BTreeMap::new(),
        result_tokens: tokens,
        session_ms: turn,
        turns: turn.map(|_| 40),
    };
    Plan {
        schema: SCHEMA_VERSION,
        suite: "scripted".to_owned(),
        essay: "A scripted run.".to_owned(),
        created: "2026-11-21T00:00:00Z".to_owned(),
        ctxbench: "0.0.0 (test)".to_owned(),
        command: format!("ctxbench run --suite scripted --seed {seed}"),
        seed,
        rounds: ROUNDS,
        probes: true,
        model_files: true,
        settings: Settings {
            call_timeout_ms: 10_000,
            placement: "shared-cpu".to_owned(),
        },
        policy: None,
        arms: vec![
            arm("direct", None),
            arm("direct", Some("direct")),
            arm("sqlite", None),
        ],
        workloads: vec![
            workload("micro/read", "read", None, None),
            workload("agent/session", "edit", Some(1234), Some(3600)),
        ],
        skipped: Vec::new(),
    }
}

fn arm(backend: &str, twin_of: Option<&str>) -> Arm {
    let is_direct = backend == "direct";
    Arm {
        name: match twin_of {
            Some(first) => format!("{first}-twin"),
            None => backend.to_owned(),
        },
        twin_of: twin_of.map(str::to_owned),
        unavailable: None,
        backend: ArmBackend {
            name: backend.to_owned(),
            file: None,
            summary: format!("The {backend} backend."),
            durability: "what is promised".to_owned(),
            holds_data: true,
            persistent: true,
            counts_requests: !is_direct,
            has_bucket: false,
            daemons: u32::from(!is_direct),
            mounts: u32::from(!is_direct),
            needs: if is_direct {
                Vec::new()
            } else {
                vec!["/dev/fuse: to serve files".to_owned()]
            },
            lines_of_code: if is_direct { 50 } else { 2000 },
            receipt: BTreeMap::from([("kernel".to_owned(), "6.18".to_owned())]),
        },
    }
}

fn model_files() -> ModelFiles {
    let step = |what: &str, calls, seconds| AskedStep {
        what: what.to_owned(),
        calls,
        seconds,
        outcome: "ok".to_owned(),
    };
    ModelFiles {
        failed: None,
        origin: "recorded".to_owned(),
        model: "scripted".to_owned(),
        engine: "a recording of nothing".to_owned(),
        fidelity: vec![AtLength {
            operations: 10,
            reads: vec![ModelRead { is_exact: false }, ModelRead { is_exact: true }],
            calls: 5,
            unusable: 1,
            unanswered: 0,
            answer_ms: 1234.0,
        }],
        history: MountedModel {
            steps: vec![step("cat FILE", 1, 1.5)],
            session: Some((9.0, 0.001)),
            session_reads: Some((4, 1)),
        },
        generate: MountedModel {
            steps: vec![step("stat FILE", 0, 0.002)],
            ..MountedModel::default()
        },
    }
}

fn probes() -> (Vec<Probe>, Vec<Fault>) {
    let probe = |aspect: &str, name: &str, arm: &str| Probe {
        v: SCHEMA_VERSION,
        aspect: aspect.to_owned(),
        name: name.to_owned(),
        arm: arm.to_owned(),
        outcome: Outcome::Ok,
        detail: "exit 0".to_owned(),
    };
    let fault = |arm: &str| Fault {
        killed: arm != "direct",
        v: SCHEMA_VERSION,
        scenario: "cron-kill".to_owned(),
        arm: arm.to_owned(),
        outcome: Outcome::Ok,
        detail: "killed".to_owned(),
        recovered: true,
        recovery_ms: 20,
        acknowledged: 10,
        lost: 0,
        failed_calls: u64::from(arm == "sqlite"),
    };
    let arms = ["direct", "sqlite"];
    let probes = arms.iter().flat_map(|arm| {
        [
            probe("tool", "cat", arm),
            probe("tool", "grep", arm),
            probe("visible", "cat", arm),
        ]
    });
    (
        probes.collect(),
        arms.iter().map(|arm| fault(arm)).collect(),
    )
}

pub(crate) fn environment() -> Environment {
    Environment {
        schema: SCHEMA_VERSION,
        kernel: "6.18".to_owned(),
        cpu: "Scripted CPU".to_owned(),
        cpus: 2,
        memory_bytes: 24 << 30,
        clock: "tsc".to_owned(),
        hypervisor: Some("yes".to_owned()),
        scratch: "ext4 on /dev/vda (rw)".to_owned(),
        user: "root".to_owned(),
        binary_sha256: "0".repeat(64),
        build: "release".to_owned(),
        load: "0.1 0.1 0.1".to_owned(),
        cpu_pressure_avg10: Some(0.5),
        fusectl: true,
    }
}
