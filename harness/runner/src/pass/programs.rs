//! Programs that run in the workspace, such as a build.

use arms::backend::Description;
use workloads::definition::{CacheState, Workload};

use super::calls::Replay;
use super::driver::{Driver, Rules};
use super::files::{self, PathCalls};
use crate::clock::Clock;

pub(super) struct ProgramDriver {
    /// Whether several of them run at the same time.
    pub(super) are_parallel: bool,
}

impl<C: Clock> Driver<C> for ProgramDriver {
    fn pass(&self, replay: &mut Replay<'_, C>) {
        files::pass(replay, PathCalls::prepare);
    }

    fn unsupported(&self, _: &Workload, _: CacheState, backend: &Description) -> Option<String> {
        let guesses = backend.capabilities.guesses_content;
        guesses.then(|| format!("{} asks a model whenever a program reads a file", backend.name))
    }

    fn rules(&self) -> Rules {
        // Other arms' dirty pages would lengthen the long passes of programs. The disk reads of a program are not counted, so a
        // proof would hold for arms with a daemon alone.
        let needs_all_processors = self.are_parallel;
        Rules { syncs_first: true, is_unproved: true, needs_all_processors, ..Rules::default() }
    }
}
