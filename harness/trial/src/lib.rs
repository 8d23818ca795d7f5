//! Trials of a backend: which features of a Linux file system it has (`features`), which facts hold that a decision needs
//! (`probes`), and what is left after a fault.
//!
//! A fault scenario runs on a test bed (`bed`). Its `injections` break something while an `agent` process works, and the
//! `audit` compares the records with their `history`. Scenario definitions live in `workloads::fault`, results in `rundir`.
//!
//! `watchdog` cuts off work in this process, that of cells too; `agent_process` cuts off an agent process.

pub mod agent;
mod agent_process;
mod audit;
mod bed;
mod crash_points;
mod crash_run;
mod disk;
mod estimate;
pub mod features;
mod history;
mod injections;
pub mod interrupt;
mod power_disk;
mod power_loss;
pub mod probes;
pub mod record;
mod schedule;
mod second_mount;
pub mod watchdog;

pub use estimate::{Estimate, of_points, roughly, scratch_bytes};
pub use schedule::{
    CrashPointPlan, LiveExecutor, ScenarioRun, ScheduleEnd, has_crash_points, misfit, run_all, scenario_runs,
};
