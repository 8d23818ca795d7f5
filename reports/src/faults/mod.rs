//! Fault runs: what was broken on purpose, and what came of it; as files, and as a page made from them.

mod dir;
mod outcome;

pub use dir::{
    CRASH_POINTS, FAULT_PLAN, FaultPlan, FaultRun, FaultWriter, OUTCOMES, PlannedBackend,
    PlannedScenario,
};
pub use outcome::{
    Audit, CellKind, CrashPoints, Culprit, Fact, FaultOutcome, Hang, Recovery, Return, Seen,
    SeenKind, Status, Verdict,
};

/// Nothing of the backend's was killed: what a living mount shows.
pub const IN_USE: &str = "in-use";
/// After the mount was ended in order, and made again.
pub const ORDERLY_END: &str = "orderly-end";
/// The daemon, or where there is none the program, was killed.
pub const KILLED_DAEMON: &str = "killed-daemon";
/// What the machine had not written is gone.
pub const POWER_LOSS: &str = "power-loss";
/// The machine and its disks are gone.
pub const MACHINE_LOSS: &str = "machine-loss";
