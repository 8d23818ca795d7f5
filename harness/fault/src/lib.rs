//! `ctxbench fault`: breaks the world of a backend on purpose, and says what came of it.
//!
//! What can be broken is in `workloads::fault`, what came of it in `reports::faults`. Here: the agent that touches the
//! mount (`agent`) and its watchdog (`watch`), the records (`record`), what was acknowledged (`history`), the pure
//! checker (`check`), what each injection does (`injections`), and which scenario is played on which backend (`schedule`).

pub mod agent;
mod bed;
mod check;
mod crash_points;
mod crash_run;
mod disk;
mod estimate;
mod history;
mod injections;
mod power_loss;
mod record;
mod schedule;
mod second;
mod watch;

pub use estimate::{Estimate, of_points, roughly};
pub use schedule::{Ended, Live, ScenarioRun, Watcher, misfit, play_all, turns};
