//! Calls of a client in the harness's own process, on files that have no path.

use std::io;

use arms::backend::Description;
use replay::in_process::{perform_in_process, unsupported};
use workloads::definition::{CacheState, Workload};
use workloads::path::WorkspacePath;
use workloads::script::{Call, FileOp, Script};

use super::calls::{Replay, Results, TimedCalls};
use super::driver::{Driver, Rules};
use super::workspaces::{Steps, Workspaces};
use crate::clock::Clock;

pub(super) struct InProcessDriver;

/// The subtree of the calls.
struct ClientCalls(String);

impl TimedCalls for ClientCalls {
    fn make(&mut self, _: usize, call: &Call, workspaces: &mut Workspaces, results: &mut Results<'_>) {
        if let Some(client) = workspaces.first.client() {
            for op in &call.ops {
                results.observed.push(perform_in_process(op, &self.0, client, results.buffer));
            }
        }
    }
}

impl<C: Clock> Driver<C> for InProcessDriver {
    fn pass(&self, replay: &mut Replay<'_, C>) {
        let mut calls = ClientCalls(replay.workspaces.subtree.to_string_lossy().into_owned());
        replay.measure(|replay| replay.calls(&mut calls));
        replay.read_back(|replay| match replay.workspaces.first.client() {
            Some(client) => {
                let everything = FileOp::Search(WorkspacePath::root());
                let held = perform_in_process(&everything, &calls.0, client, replay.results.buffer);
                replay.verify_all(&held)
            }
            None => Ok(()),
        });
    }

    fn unsupported(&self, workload: &Workload, state: CacheState, backend: &Description) -> Option<String> {
        let name = &backend.name;
        if let Some(reason) = unsupported(&workload.script) {
            return Some(format!("{name}: {reason}"));
        }
        let is_lukewarm = state == CacheState::Lukewarm;
        is_lukewarm.then(|| format!("{name} keeps no data, so there is no cache to empty"))
    }

    fn fill(&self, workspaces: &mut Workspaces, script: &Script, _: &mut Steps<'_>) -> io::Result<()> {
        let subtree = workspaces.subtree.display();
        let files = script.files.iter().map(|(path, content)| (format!("{subtree}/{path}"), &content[..]));
        let files: Vec<_> = files.collect();
        workspaces.first.client().map_or(Ok(()), |client| client.fill(&files))
    }

    fn rules(&self) -> Rules {
        // A client in this process has no cache.
        Rules { lacks_paths: true, is_unproved: true, ..Rules::default() }
    }
}
