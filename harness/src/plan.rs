//! What to measure, in what order: a pure function of the suite, the backends and a seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use backends::backend::{Backend, Receipt, Unavailable};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use reports::run::{
    Arm, ArmBackend, Plan, PlannedPolicy, PlannedWorkload, SCHEMA_VERSION, Settings, Skipped,
};
use workloads::definition::{CacheState, Workload};
use workloads::suite::Suite;

/// The backend that the others are compared with.
pub const BASELINE: &str = "direct";

/// The second arm of the baseline.
pub const TWIN: &str = "direct-twin";

/// An arm as the runner uses it.
#[derive(Clone)]
pub struct LiveArm {
    /// Its name.
    pub name: String,
    /// Its backend.
    pub backend: Arc<dyn Backend>,
    /// Versions, or why it cannot be used.
    pub receipt: Result<Receipt, Unavailable>,
}

/// Everything a plan is made from.
pub struct Inputs<'a> {
    /// The suite's name.
    pub name: &'a str,
    /// The suite.
    pub suite: &'a Suite,
    /// The arms, in the order of reports.
    pub arms: &'a [LiveArm],
    /// The suite's workloads, in its order.
    pub workloads: &'a [Arc<Workload>],
    /// Tokens of all results of a workload, by name, for agent workloads.
    pub result_tokens: &'a BTreeMap<String, u64>,
    /// The seed of the order.
    pub seed: u64,
    /// How calls are measured.
    pub settings: Settings,
    /// The policy.
    pub policy: Option<PlannedPolicy>,
    /// Whether the kernel's caches can be dropped.
    pub can_drop_caches: bool,
    /// When the plan is made, in UTC.
    pub created: String,
    /// Version and commit of this binary.
    pub ctxbench: String,
}

/// Makes the plan.
pub fn plan(inputs: &Inputs<'_>) -> Plan {
    let workloads = inputs.suite.workloads.iter().zip(inputs.workloads);
    let mut plan = Plan {
        schema: SCHEMA_VERSION,
        suite: inputs.name.to_owned(),
        essay: inputs.suite.essay.trim().to_owned(),
        created: inputs.created.clone(),
        ctxbench: inputs.ctxbench.clone(),
        seed: inputs.seed,
        rounds: inputs.suite.rounds,
        probes: inputs.suite.probes,
        settings: inputs.settings.clone(),
        policy: inputs.policy.clone(),
        arms: inputs.arms.iter().map(arm).collect(),
        workloads: workloads
            .map(|(entry, workload)| {
                let states = entry.states.iter().map(|state| state.name().to_owned());
                planned_workload(workload, states.collect(), inputs.result_tokens)
            })
            .collect(),
        skipped: Vec::new(),
    };
    for (entry, workload) in inputs.suite.workloads.iter().zip(inputs.workloads) {
        for state in &entry.states {
            for arm in inputs.arms {
                if let Some(reason) = skip_reason(arm, workload, *state, inputs.can_drop_caches) {
                    plan.skipped.push(Skipped {
                        arm: arm.name.clone(),
                        workload: workload.name.clone(),
                        state: state.name().to_owned(),
                        reason,
                    });
                }
            }
        }
    }
    plan
}

/// The arms for these backends: the baseline first, its twin second.
pub fn arms(backends: Vec<Arc<dyn Backend>>) -> Vec<LiveArm> {
    let mut arms = Vec::new();
    for backend in backends {
        let name = backend.describe().name;
        let receipt = backend.receipt();
        let twin = (name == BASELINE).then(|| LiveArm {
            name: TWIN.to_owned(),
            backend: Arc::clone(&backend),
            receipt: receipt.clone(),
        });
        arms.push(LiveArm {
            name,
            backend,
            receipt,
        });
        arms.extend(twin);
    }
    arms
}

fn arm(live: &LiveArm) -> Arm {
    let described = live.backend.describe();
    let (receipt, unavailable) = match &live.receipt {
        Ok(receipt) => (receipt.clone(), None),
        Err(reason) => (Receipt::new(), Some(reason.to_string())),
    };
    let needs = described.needs.iter();
    Arm {
        name: live.name.clone(),
        twin_of: (live.name == TWIN).then(|| BASELINE.to_owned()),
        unavailable,
        backend: ArmBackend {
            name: described.name.clone(),
            summary: described.summary.clone(),
            durability: described.durability.clone(),
            holds_data: described.capabilities.holds_data,
            persistent: described.capabilities.persistent,
            counts_requests: described.capabilities.counts_requests,
            daemons: described.daemons,
            mounts: described.mounts,
            needs: needs
                .map(|need| format!("{}: {}", need.name, need.why))
                .collect(),
            lines_of_code: described.lines_of_code,
            receipt,
        },
    }
}

fn planned_workload(
    workload: &Workload,
    states: Vec<String>,
    result_tokens: &BTreeMap<String, u64>,
) -> PlannedWorkload {
    let script = &workload.script;
    let mut turns = script.think_ms.clone();
    turns.sort_unstable();
    PlannedWorkload {
        name: workload.name.clone(),
        essay: workload.essay.clone(),
        sha256: workload.sha256.clone(),
        states,
        calls: script
            .timed_calls()
            .into_iter()
            .map(|(kind, count)| (kind.to_string(), count))
            .collect(),
        not_replayed: script.not_replayed.clone(),
        result_tokens: result_tokens.get(&workload.name).copied(),
        turn_ms: turns.get(turns.len() / 2).copied(),
        turns: (!turns.is_empty()).then_some(turns.len() as u64),
    }
}

fn skip_reason(
    arm: &LiveArm,
    workload: &Workload,
    state: CacheState,
    can_drop_caches: bool,
) -> Option<String> {
    let described = arm.backend.describe();
    let name = &described.name;
    if let Err(reason) = &arm.receipt {
        return Some(reason.to_string());
    }
    if !described.capabilities.holds_data && !workload.fits_fixed_tree {
        return Some(format!(
            "{name} holds nothing: it only takes part where names and bytes can be fixed"
        ));
    }
    if state == CacheState::Cold && !described.capabilities.persistent {
        return Some(format!("what {name} holds is gone when its daemon stops"));
    }
    if state != CacheState::Hot && !can_drop_caches {
        return Some(
            "only root can drop the kernel's caches (fix: run as root, for instance `sudo make bench`)"
                .to_owned(),
        );
    }
    None
}

/// A block of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The round, from 0.
    pub round: u32,
    /// Its place in the order of all blocks, from 0.
    pub order: u32,
    /// The arm, by its place in the plan.
    pub arm: usize,
    /// The workload, by its place in the plan.
    pub workload: usize,
    /// The cache state, by its place in the workload's states.
    pub state: usize,
}

/// All blocks of a plan in their order: each round goes through all workloads and states in a random
/// order, and through the arms of each in another, so that the arms that are compared run within
/// seconds of each other and none always goes first.
pub fn blocks(plan: &Plan) -> Vec<Block> {
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed);
    let mut cells = Vec::new();
    for (workload, planned) in plan.workloads.iter().enumerate() {
        cells.extend((0..planned.states.len()).map(|state| (workload, state)));
    }
    let is_skipped = |arm: usize, workload: usize, state: usize| {
        let planned = &plan.workloads[workload];
        plan.skipped.iter().any(|skipped| {
            skipped.arm == plan.arms[arm].name
                && skipped.workload == planned.name
                && skipped.state == planned.states[state]
        })
    };
    let mut blocks = Vec::new();
    for round in 0..plan.rounds {
        cells.shuffle(&mut rng);
        for &(workload, state) in &cells {
            let mut arms: Vec<usize> = (0..plan.arms.len())
                .filter(|arm| !is_skipped(*arm, workload, state))
                .collect();
            arms.shuffle(&mut rng);
            for arm in arms {
                blocks.push(Block {
                    round,
                    order: blocks.len() as u32,
                    arm,
                    workload,
                    state,
                });
            }
        }
    }
    blocks
}
