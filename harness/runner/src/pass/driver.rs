//! The kinds of workload, as plans, cells and passes see them: [`Driver`]. Each kind has a file; [`super::driver()`] lists them.

use std::io;
use std::time::Instant;

use arms::backend::{Backend, Description, WorkspaceConfig};
use workloads::definition::{CacheState, Workload};
use workloads::script::Script;

use super::calls::Replay;
use super::workspaces::{Steps, Workspaces};
use crate::clock::Clock;

/// The directory of filler files, in the root of a mount: beside the subtree of the passes.
const FILLER: &str = "filler";

/// How a cell treats the passes of a kind of workload. The default is that of plain files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The calls do not reach the files by path, so no subtree can be warmed, restored or removed.
    pub lacks_paths: bool,
    /// Each pass that needs a new subtree opens a new workspace instead.
    pub reopens: bool,
    /// Daemons and servers of idle arms run on in hot cells.
    pub runs_idle_arms: bool,
    /// The calls need all processors, even if client and daemons share one in this epoch.
    pub needs_all_processors: bool,
    /// Dirty pages of other arms are written back before a pass even if its calls do not sync.
    pub syncs_first: bool,
    /// Requests to the daemon are not only those of the calls, and are not counted.
    pub is_uncounted: bool,
    /// The cache state cannot be proved.
    pub is_unproved: bool,
    /// A hot pass waits for the disk even if its calls change no file.
    pub waits_for_disk: bool,
    /// A pass counts even if one of its calls failed.
    pub counts_failed_passes: bool,
}

/// What one kind of workload needs on one arm. The default methods fit calls on files by path.
///
/// A pass calls it once. The clock is a parameter, so that nothing between two readings of it is called dynamically.
pub trait Driver<C: Clock = Instant> {
    /// Makes, times and checks the calls of a pass.
    fn pass(&self, replay: &mut Replay<'_, C>);

    /// Why a backend cannot run a workload of this kind in a cache state; `None` if it can.
    fn unsupported(&self, workload: &Workload, state: CacheState, backend: &Description) -> Option<String> {
        let _ = (workload, state, backend);
        None
    }

    /// Opens what the passes need besides the first mount.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open(&mut self, workspaces: &mut Workspaces, backend: &dyn Backend, config: &WorkspaceConfig) -> io::Result<()> {
        if backend.describe().capabilities.changes_source {
            workspaces.source = backend.source(&config.dir).map(|source| source.path().to_owned());
        }
        Ok(())
    }

    /// Creates the first files of a script in the workspaces' subtree, which does not exist yet. `steps` work there.
    ///
    /// # Errors
    /// If a file cannot be created.
    fn fill(&self, workspaces: &mut Workspaces, script: &Script, steps: &mut Steps<'_>) -> io::Result<()> {
        if !workspaces.subtree.as_os_str().is_empty() {
            std::fs::create_dir(steps.root)?;
        }
        steps.fill(script, &workspaces.first.root().join(FILLER))
    }

    /// How a cell treats the passes.
    fn rules(&self) -> Rules {
        Rules::default()
    }
}
