//! Tool calls of an agent, on files that have no path.

use std::io;

use arms::backend::{Backend, Description, WorkspaceConfig};
use replay::tools::{ToolAnswers, ask, held, observe, unsupported};
use workloads::definition::{CacheState, Workload};
use workloads::script::{Call, Script};

use super::calls::{Replay, Results, TimedCalls};
use super::driver::{Driver, Rules};
use super::workspaces::{Steps, Workspaces};
use crate::clock::Clock;

#[derive(Default)]
pub(super) struct ToolDriver {
    /// A snapshot of the empty workspace.
    empty: Option<String>,
}

/// The answers of a stretch.
#[derive(Default)]
struct ToolCalls(Vec<ToolAnswers>);

impl TimedCalls for ToolCalls {
    fn begin(&mut self, ops: usize) {
        self.0.clear();
        self.0.reserve(ops);
    }

    fn make(&mut self, _: usize, call: &Call, workspaces: &mut Workspaces, _: &mut Results<'_>) {
        if let Some(tools) = workspaces.first.tools() {
            self.0.extend(call.ops.iter().map(|op| ask(op, call.lines, tools)));
        }
    }

    fn end(&mut self, calls: &[Call], results: &mut Results<'_>) {
        for (op, answers) in calls.iter().flat_map(|call| &call.ops).zip(&self.0) {
            results.observed.push(observe(op, answers, results.buffer));
        }
    }
}

impl<C: Clock> Driver<C> for ToolDriver {
    fn pass(&self, replay: &mut Replay<'_, C>) {
        replay.measure(|replay| replay.calls(&mut ToolCalls::default()));
        // From a snapshot, because a tool's read shows lines and not every byte.
        replay.read_back(|replay| match replay.workspaces.first.tools() {
            Some(tools) => {
                let held = held(tools, replay.results.buffer)?;
                replay.verify_all(&Ok(held))
            }
            None => Ok(()),
        });
    }

    fn unsupported(&self, workload: &Workload, state: CacheState, backend: &Description) -> Option<String> {
        let name = &backend.name;
        if workload.name.starts_with("micro/") {
            return Some(format!("{name} is reached by tool calls only: it has no path for a POSIX operation"));
        }
        if let Some(reason) = unsupported(&workload.script) {
            return Some(format!("{name}: {reason}"));
        }
        let is_hot = state == CacheState::Hot;
        (!is_hot).then(|| format!("{name} is in the agent's own memory, so there is no cache to empty"))
    }

    fn open(&mut self, workspaces: &mut Workspaces, _: &dyn Backend, _: &WorkspaceConfig) -> io::Result<()> {
        self.empty = workspaces.first.tools().map(|tools| tools.snapshot());
        Ok(())
    }

    fn fill(&self, workspaces: &mut Workspaces, script: &Script, _: &mut Steps<'_>) -> io::Result<()> {
        let Some(tools) = workspaces.first.tools() else {
            return Ok(());
        };
        if let Some(empty) = &self.empty {
            tools.restore(empty)?;
        }
        let mut files = script.files.iter();
        files.try_for_each(|(path, content)| {
            tools.write_file(path.as_str(), content).map_err(io::Error::other).map(drop)
        })
    }

    fn rules(&self) -> Rules {
        Rules { lacks_paths: true, ..Rules::default() }
    }
}
