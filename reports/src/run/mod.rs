//! A run directory: what is in it, how it is written, how it is read.
//!
//! `plan.toml` says what was to be measured, `env.json` on what machine, `policy.toml` what would be
//! decided by it, `contexts.jsonl` what its sessions put into an agent's context, all before the first block. `samples.jsonl` gets one line a block, `probes.jsonl`
//! and `faults.jsonl` one a probe. Nothing is ever changed afterwards.

mod context;
pub(crate) mod dir;
mod histogram;
mod plan;
mod sample;

pub use context::{Basis, ModelFactor, SessionContext};
pub use dir::{
    Broken, CONTEXTS, ENVIRONMENT, FAULTS, PLAN, POLICY, PROBES, Run, RunError, SAMPLES, Writer,
};
pub use histogram::{Calls, histogram};
pub use plan::{
    Arm, ArmBackend, Environment, Plan, PlannedPolicy, PlannedWorkload, Settings, Skipped,
};
pub use sample::{
    Cpu, DaemonCounters, Fault, Memory, OpcodeCount, Outcome, Pressure, Probe, Sample,
};

/// The version of everything in a run directory. A reader refuses any other.
pub const SCHEMA_VERSION: u32 = 1;
