//! Calls of client processes that work in parallel.

use std::io;
use std::path::PathBuf;

use arms::backend::{Backend, WorkspaceConfig};
use replay::workers::Workers;
use workloads::script::FileOp;

use super::calls::{Pass, Replay};
use super::driver::{Driver, Rules};
use super::files::{self, PathCalls};
use super::workspaces::Workspaces;
use crate::clock::Clock;

#[derive(Default)]
pub(super) struct ClientDriver {
    /// The `ctxbench` binary, which the client processes run.
    program: PathBuf,
}

impl ClientDriver {
    fn prepare<'p>(&self, pass: &'p Pass<'p>, workspaces: &Workspaces) -> io::Result<PathCalls<'p>> {
        let mut calls = PathCalls::prepare(pass, workspaces)?;
        for prepared in calls.0.iter_mut().flatten() {
            if let FileOp::Together { dir, clients } = prepared.op {
                let dir = dir.below(&workspaces.root(prepared.op));
                prepared.workers = Some(Workers::start(&self.program, &dir, clients)?);
            }
        }
        Ok(calls)
    }
}

impl<C: Clock> Driver<C> for ClientDriver {
    fn pass(&self, replay: &mut Replay<'_, C>) {
        files::pass(replay, |pass, workspaces| self.prepare(pass, workspaces));
    }

    fn open(&mut self, _: &mut Workspaces, _: &dyn Backend, config: &WorkspaceConfig) -> io::Result<()> {
        self.program.clone_from(&config.program);
        Ok(())
    }

    fn rules(&self) -> Rules {
        Rules { needs_all_processors: true, ..Rules::default() }
    }
}
