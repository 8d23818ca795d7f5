//! One pass: makes and times the calls of a script in one workspace, then checks their results.
//!
//! Each kind of workload is a [`Driver`] in a file of its own, and [`driver()`] lists them. [`crate::cell`] prepares the
//! workspaces and chooses the order of passes.

mod calls;
mod clients;
mod driver;
mod expectations;
mod files;
mod hosts;
mod in_process;
mod programs;
mod tasks;
mod timed_reader;
mod tools;
mod workspaces;

use std::collections::BTreeMap;

use arms::backend::{Access, Backend};
use replay::ResultBuffer;
use workloads::script::Script;

use crate::clock::Clock;
pub use calls::{CounterUse, Pass, PassResult, counters};
use calls::{Replay, Results};
use clients::ClientDriver;
pub use driver::{Driver, Rules};
pub use expectations::{Expectations, ExpectationsCache, start_model};
use files::FileDriver;
use hosts::HostDriver;
use in_process::InProcessDriver;
use programs::ProgramDriver;
use tasks::TaskDriver;
pub use tasks::{missing_programs, unsupported as unsupported_in_tasks};
use timed_reader::ReaderDriver;
use tools::ToolDriver;
use trial::watchdog::Watchdog;
pub use workspaces::{Steps, Workspaces, failure};

/// The driver of a workload on a backend.
pub fn driver<C: Clock>(script: &Script, backend: &dyn Backend) -> Box<dyn Driver<C>> {
    if let Some(tasks) = &script.tasks {
        return Box::new(TaskDriver::new(tasks));
    }
    match backend.access() {
        Access::Tools => Box::new(ToolDriver::default()),
        Access::Client => Box::new(InProcessDriver),
        Access::Program => Box::new(ReaderDriver),
        Access::Paths if script.needs_second_host() => Box::new(HostDriver { hosts: script.hosts() }),
        Access::Paths if script.runs_programs() => Box::new(ProgramDriver { are_parallel: script.has_clients() }),
        Access::Paths if script.has_clients() => Box::new(ClientDriver::default()),
        Access::Paths => Box::new(FileDriver),
    }
}

impl Pass<'_> {
    /// Makes the calls in the subtree of `workspaces` and checks their results. Calls `timed` after the last call,
    /// before files are read back.
    pub fn run<C: Clock>(
        &self,
        driver: &dyn Driver<C>,
        workspaces: &mut Workspaces,
        watchdog: &Watchdog,
        clock: &C,
        buffer: &mut ResultBuffer,
        timed: &mut dyn FnMut(),
    ) -> PassResult {
        let mut replay = Replay {
            pass: self,
            clock,
            watchdog,
            workspaces,
            results: Results { buffer, observed: Vec::with_capacity(1024) },
            timed,
            times: BTreeMap::new(),
            uncounted: None,
            passed: PassResult::default(),
        };
        driver.pass(&mut replay);
        replay.passed
    }
}

#[cfg(test)]
mod tests;
