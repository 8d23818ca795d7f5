//! A run directory: what is in it, how it is written, how it is read.
//!
//! `plan.toml` says what was to be measured, `env.json` on what machine, `policy.toml` what would be
//! decided by it, `contexts.jsonl` what its sessions put into an agent's context, all before the first block. `samples.jsonl` gets one line a block, `probes.jsonl`
//! and `faults.jsonl` one a probe; `model-files.json` is written once, at the end. Nothing is ever changed afterwards.

mod context;
pub(crate) mod dir;
mod histogram;
mod model_files;
mod plan;
mod sample;
mod scratch;

pub use context::{Basis, ModelFactor, SessionContext};
pub use dir::{
    Broken, CONTEXTS, ENVIRONMENT, FAULTS, MODEL_FILES, PLAN, POLICY, PROBES, Run, RunError,
    SAMPLES, Writer,
};
pub use histogram::{Calls, histogram};
pub use model_files::{AskedStep, AtLength, ModelFiles, ModelRead, MountedModel};
pub use plan::{
    Arm, ArmBackend, Environment, Plan, PlannedPolicy, PlannedWorkload, Settings, Skipped,
};
pub use sample::{
    Cpu, DaemonCounters, Fault, Memory, OpcodeCount, Outcome, Pressure, Probe, Sample, Settled,
};
pub use scratch::{Journal, ScratchKind, ScratchReceipt, WriteCache};

/// The version of everything in a run directory. A reader refuses any other.
pub const SCHEMA_VERSION: u32 = 1;
