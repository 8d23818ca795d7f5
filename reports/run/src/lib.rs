//! A run directory: its files, and how they are written and read.
//!
//! The plan, environment, policy and session contexts are written before the first pass.
//! Results are appended as JSON lines during the run, and `model-files.json` is written once, at the end.
//! No file is changed afterwards. [`dir`] names the files; evaluation is in the crates `stats` and `reports`.

mod context;
pub mod dir;
pub mod faults;
mod histogram;
mod looks;
mod model_files;
mod plan;
pub mod properties;
mod sample;
mod scratch;

pub use context::{Basis, ModelFactor, SessionContext};
pub use dir::{
    CELLS, CONTEXTS, CRASH_POINTS, ENVIRONMENT, EPOCHS, FAULT_OUTCOMES, FAULTS, FileDefect, MODEL_FILES, PLAN, POLICY,
    PROBES, RECORDS, RecordCounts, Run, RunError, SAMPLES, Writer,
};
pub use histogram::{Calls, Latencies, histogram};
pub use looks::{Look, Looks};
pub use model_files::{
    AnswerLatency, AskedStep, LengthResult, ModelFiles, ModelFilesPlan, ModelRead, MountedModel, Repeats,
};
pub use plan::{
    Arm, ArmBackend, Environment, Limits, MOST_SHARDS, Margins, MergedShard, Placement, Plan, PlannedPolicy,
    PlannedScenario, PlannedWorkload, Schedule, Section, Settings, Shard, SkippedCell, cache_state,
};
pub use sample::{
    CellEpoch, Cpu, DaemonCounters, Epoch, ExactCounts, Fault, LOAD_PROCESS, Load, Memory, OpcodeRecord, Outcome,
    Probe, Sample, Score, ScoreKind, ScoreName, SettledLines, SkipReason,
};
pub use scratch::{Journal, ScratchKind, ScratchReceipt, WriteCache};

/// The version of everything in a run directory. A reader refuses any other.
pub const RUN_DIRECTORY_VERSION: u32 = 4;
