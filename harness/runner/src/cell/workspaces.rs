//! Prepares a cell's workspaces for a pass: fills or restores a subtree and sets the cache state.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use arms::backend::drop_machine_caches;
use rundir::DaemonCounters;
use workloads::definition::CacheState;
use workloads::script::FileOp;

use super::{CellRun, KEPT_BYTES, MountedArm, SETTLING, SETUP_LIMIT, SubtreeState, pass_bytes};
use crate::pass::{self, Steps, Workspaces, start_model};
use trial::interrupt::Interrupt;
use trial::watchdog::Watchdog;

/// The name of an arm's subtree number `number`. All have one length, as arms may be at different numbers in a round.
pub fn subtree_name(number: u32) -> String {
    format!("p{number:05}")
}

impl CellRun<'_> {
    /// Fills the workspaces of a round's arms and syncs them. In cold cells it stops their daemons.
    pub(super) fn fill_for_round(&mut self, arms: &mut [MountedArm<'_>], order: &[usize], round: u32) {
        let began = Instant::now();
        let is_cold = self.task.state == CacheState::Cold;
        for at in order {
            let arm = &mut arms[*at];
            if arm.workspaces.is_none() {
                continue;
            }
            let ready = self.freshen(arm).and_then(|()| {
                let Some(workspaces) = &mut arm.workspaces else {
                    return Ok(());
                };
                self.watchdog.enter(SETUP_LIMIT);
                // Drain write-back of the preparation before the pass.
                workspaces.first.sync()?;
                workspaces.first.drop_own_caches()?;
                // Read the counters before the drop: arms without counters get no request between the drop and
                // the pass, either. A new daemon starts at zero.
                arm.counted_before = if is_cold {
                    workspaces.first.counters()?.map(|_| DaemonCounters::default())
                } else {
                    pass::counters(&mut *workspaces.first).map_err(io::Error::other)?
                };
                if is_cold {
                    self.watchdog.independent();
                    workspaces.first.stop()?;
                }
                Ok(())
            });
            self.or_give_up(arm, ready, round, began);
        }
        self.watchdog.leave();
    }

    /// Drops the kernel's caches before an arm's pass: the arm before it has read metadata of the file system that all arms
    /// share. In a cold cell the arm then gets a new daemon.
    pub(super) fn empty_caches(&self, arm: &mut MountedArm<'_>, round: u32) {
        let began = Instant::now();
        let Some(workspaces) = &mut arm.workspaces else {
            return;
        };
        // If dropping the caches hangs, the mount that causes it is unknown: the watchdog must kill none.
        self.watchdog.independent();
        self.watchdog.enter(SETUP_LIMIT);
        let mut emptied = drop_machine_caches(&self.task.dir);
        if self.task.state == CacheState::Cold && emptied.is_ok() {
            self.watchdog.enter(SETUP_LIMIT);
            emptied = workspaces.first.start();
            if emptied.is_ok() {
                let ready = workspaces.first.time_to_ready();
                arm.totals.note_ready(ready);
            }
        }
        self.or_give_up(arm, emptied, round, began);
        self.watchdog.leave();
        std::thread::sleep(SETTLING);
    }

    /// Gives an arm the first files of the script. If calls change files, undoes them or fills a fresh subtree.
    pub(super) fn freshen(&mut self, arm: &mut MountedArm<'_>) -> io::Result<()> {
        let script = &*self.task.workload.script;
        let capabilities = arm.described.capabilities;
        let rules = arm.driver.rules();
        // A model sees the paths, so they must be the same in every pass. A source has the directories of a controller, and no
        // others for passes.
        let keeps_root = !rules.lacks_paths && (capabilities.guesses_content || capabilities.changes_source);
        let is_reopened = rules.reopens || keeps_root;
        let Some(workspaces) = &arm.workspaces else {
            return Ok(());
        };
        workspaces.answer_for(self.watchdog);
        if arm.subtree.is_filled && !arm.expectations.changes() {
            return Ok(());
        }
        let is_reused = arm.subtree.is_filled && capabilities.holds_data && !rules.lacks_paths && !is_reopened;
        if is_reused
            && self.task.state == CacheState::Hot
            && let Some(restoration) = arm.expectations.restoration()
        {
            return self.steps(&workspaces.mounted()).restore(restoration);
        }
        if is_reopened && arm.subtree.number > 0 {
            if let Some(workspaces) = arm.workspaces.take() {
                self.watchdog.independent();
                self.watchdog.enter(SETUP_LIMIT);
                workspaces.close()?;
            }
            arm.config.dir = self.task.arm_dir(arm.place, arm.subtree.number);
            self.open(arm)?;
        }
        arm.subtree.number += 1;
        arm.subtree.is_filled = true;
        let Some(workspaces) = &mut arm.workspaces else {
            return Ok(());
        };
        workspaces.answer_for(self.watchdog);
        if !capabilities.holds_data {
            return Ok(());
        }
        self.watchdog.enter(SETUP_LIMIT);
        if !is_reopened {
            if !rules.lacks_paths {
                self.remove_old(&mut arm.subtree, workspaces)?;
            }
            workspaces.subtree = PathBuf::from(subtree_name(arm.subtree.number));
        }
        let files = workspaces.files();
        arm.driver.fill(workspaces, script, &mut self.steps(&files))?;
        if self.task.workload.asks {
            wait_until_embedded(&workspaces.mounted(), self.watchdog, &self.task.setup.interrupt)?;
        }
        if self.task.state != CacheState::Hot {
            self.warm(arm)?;
        }
        Ok(())
    }

    fn steps<'s>(&'s mut self, root: &'s Path) -> Steps<'s> {
        Steps { root, watchdog: self.watchdog, limit: 2 * self.task.call_timeout, buffer: &mut self.buffer }
    }

    /// Removes the subtrees of finished passes once they hold more than [`KEPT_BYTES`].
    fn remove_old(&self, subtree: &mut SubtreeState, workspaces: &Workspaces) -> io::Result<()> {
        if workspaces.subtree.as_os_str().is_empty() {
            return Ok(());
        }
        subtree.kept_bytes += pass_bytes(&self.task.workload);
        if subtree.kept_bytes <= KEPT_BYTES {
            return Ok(());
        }
        for entry in std::fs::read_dir(workspaces.first.root())? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        subtree.kept_bytes = 0;
        Ok(())
    }

    pub(super) fn warm(&mut self, arm: &mut MountedArm<'_>) -> io::Result<()> {
        let script = &*self.task.workload.script;
        let capabilities = arm.described.capabilities;
        let Some(workspaces) = &arm.workspaces else {
            return Ok(());
        };
        // A backend without data has nothing to warm, and one without paths has no kernel cache.
        if !capabilities.holds_data || arm.driver.rules().lacks_paths {
            return Ok(());
        }
        let root = workspaces.mounted();
        let mut model = start_model(script, &arm.described);
        let mut steps = self.steps(&root);
        if workspaces.source.is_some() {
            return steps.warm_up_among_others(script);
        }
        // A model answers each read separately, so reading fills no cache.
        let skip = |op: &FileOp| capabilities.guesses_content && op.reads_content();
        steps.warm_up(script, &mut model, skip)
    }
}

/// Waits until a backend that indexes or embeds notes has done so for all of them. It may take [`SETUP_LIMIT`] for the next
/// of them, however many there are.
fn wait_until_embedded(root: &Path, watchdog: &Watchdog, interrupt: &Interrupt) -> io::Result<()> {
    let mut least = u64::MAX;
    watchdog.enter(SETUP_LIMIT);
    while !interrupt.is_set() {
        let stats = std::fs::read_to_string(root.join(":stats"))?;
        let waiting: Result<Vec<u64>, _> = stats
            .lines()
            .filter_map(|line| line.strip_prefix("waiting-to-be-")?.split_once(": "))
            .map(|(_, count)| count.trim().parse())
            .collect();
        let waiting = waiting.map_err(|error| io::Error::other(format!(":stats, waiting-to-be-…: {error}")))?;
        let waiting: u64 = waiting.iter().sum();
        if waiting == 0 {
            break;
        }
        if waiting < least {
            least = waiting;
            watchdog.enter(SETUP_LIMIT);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
