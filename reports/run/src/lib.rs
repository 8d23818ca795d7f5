//! A run directory: what is in it, how it is written, how it is read.
//!
//! `plan.toml` says what was to be measured, `env.json` on what machine, `policy.toml` what would be decided by it,
//! `contexts.jsonl` what its sessions put into an agent's context, all before the first pass. `samples.jsonl` gets a line
//! a pass, `cells.jsonl` one an arm, cell and epoch, `epochs.jsonl` one an epoch, `probes.jsonl` and `faults.jsonl` one a
//! probe, `fault-outcomes.jsonl` one a scenario, arm and seed, `crash-points.jsonl` one a stretch of crash points; `model-files.json` is written once, at the end. Nothing is ever changed afterwards.

mod context;
pub mod dir;
pub mod faults;
mod histogram;
mod looks;
mod model_files;
mod plan;
mod sample;
mod scratch;

pub use context::{Basis, ModelFactor, SessionContext};
pub use dir::{
    Broken, CELLS, CONTEXTS, CRASH_POINTS, ENVIRONMENT, EPOCHS, FAULT_OUTCOMES, FAULTS,
    MODEL_FILES, PLAN, POLICY, PROBES, Run, RunError, SAMPLES, Writer,
};
pub use histogram::{Calls, Latencies, histogram};
pub use looks::{Look, Looks};
pub use model_files::{
    AnswerLatency, AskedStep, AtLength, ModelFiles, ModelFilesPlan, ModelRead, MountedModel,
    Repeats,
};
pub use plan::{
    Arm, ArmBackend, Environment, Limits, Margins, Plan, PlannedPolicy, PlannedScenario,
    PlannedWorkload, Schedule, Settings, Skipped,
};
pub use sample::{
    CellEpoch, Counted, Cpu, DaemonCounters, Epoch, Fault, Load, Memory, OpcodeCount, Outcome,
    Probe, Sample, Score, Settled,
};
pub use scratch::{Journal, ScratchKind, ScratchReceipt, WriteCache};

/// The version of everything in a run directory. A reader refuses any other.
pub const SCHEMA_VERSION: u32 = 3;
