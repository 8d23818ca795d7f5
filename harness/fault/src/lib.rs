//! `ctxbench fault`: injects faults into a backend and audits the result.
//!
//! Here: the agent process (`agent`), its watchdog (`watch`), records (`record`), their `history`, the
//! audit (`check`), the faults (`injections`) and the `schedule`. Scenario definitions live in
//! `workloads::fault`, outcomes in `rundir::faults`.

pub mod agent;
mod bed;
mod check;
mod crash_points;
mod crash_run;
mod disk;
mod estimate;
mod history;
mod injections;
mod power_disk;
mod power_loss;
pub mod record;
mod schedule;
mod second_mount;
mod watch;

pub use estimate::{Estimate, of_points, roughly, scratch_bytes};
pub use schedule::{CrashPointPlan, Live, ScenarioRun, ScheduleEnd, has_crash_points, misfit, run_all, scenario_runs};
