//! Prepares a cell's workspaces for a pass: fills or restores a subtree and sets the cache state.

use arms::backend::drop_machine_caches;
use workloads::path::WorkspacePath;

use super::*;

/// The name of an arm's subtree number `number`. All have one length, as arms may be at different numbers in a round.
pub fn subtree_name(number: u32) -> String {
    format!("p{number:05}")
}

impl CellTask {
    /// Fills the workspaces of a round's arms and syncs them. In cold cells it stops their daemons.
    pub(super) fn fill_for_round(
        &self,
        arms: &mut [MountedArm<'_>],
        order: &[usize],
        round: u32,
        watchdog: &Watchdog,
        buffer: &mut ResultBuffer,
        lines: &Sender<Line>,
    ) {
        let began = Instant::now();
        let is_cold = self.state == CacheState::Cold;
        for at in order {
            let arm = &mut arms[*at];
            if arm.workspaces.is_none() {
                continue;
            }
            let ready = self.freshen(arm, watchdog, buffer).and_then(|()| {
                let Some(workspaces) = &mut arm.workspaces else {
                    return Ok(());
                };
                watchdog.enter(SETUP_LIMIT);
                // Drain write-back of the preparation before the pass.
                workspaces.first.sync()?;
                workspaces.first.drop_own_caches()?;
                // Read the counters before the drop: arms without counters get no request between the drop and
                // the pass, either. A new daemon starts at zero.
                arm.counted_before = match is_cold {
                    true => workspaces.first.counters()?.map(|_| DaemonCounters::default()),
                    false => pass::counters(&mut *workspaces.first).map_err(io::Error::other)?,
                };
                if is_cold {
                    watchdog.independent();
                    workspaces.first.stop()?;
                }
                Ok(())
            });
            self.or_give_up(arm, ready, round, watchdog, lines, began);
        }
        watchdog.leave();
    }

    /// Drops the kernel's caches before an arm's pass: the arm before it has read metadata of the file system that all arms
    /// share. In a cold cell the arm then gets a new daemon.
    pub(super) fn empty_caches(&self, arm: &mut MountedArm<'_>, round: u32, watchdog: &Watchdog, lines: &Sender<Line>) {
        let began = Instant::now();
        let Some(workspaces) = &mut arm.workspaces else {
            return;
        };
        // If dropping the caches hangs, the mount that causes it is unknown: the watchdog must kill none.
        watchdog.independent();
        watchdog.enter(SETUP_LIMIT);
        let mut emptied = drop_machine_caches(&self.dir);
        if self.state == CacheState::Cold && emptied.is_ok() {
            watchdog.enter(SETUP_LIMIT);
            emptied = workspaces.first.start();
            if emptied.is_ok() {
                let ready = workspaces.first.time_to_ready();
                arm.note_ready(ready);
            }
        }
        self.or_give_up(arm, emptied, round, watchdog, lines, began);
        watchdog.leave();
        std::thread::sleep(SETTLING);
    }

    /// Gives an arm the first files of the script. If calls change files, undoes them or fills a fresh subtree.
    pub(super) fn freshen(
        &self,
        arm: &mut MountedArm<'_>,
        watchdog: &Watchdog,
        buffer: &mut ResultBuffer,
    ) -> io::Result<()> {
        let script = &self.workload.script;
        let is_reopened = is_reopened(script, &arm.described);
        let Some(workspaces) = &arm.workspaces else {
            return Ok(());
        };
        workspaces.answer_for(watchdog);
        // A pass of tasks fills its source itself.
        if script.tasks.is_some() || (arm.is_filled && !arm.expectations.changes()) {
            return Ok(());
        }
        if arm.is_filled
            && arm.is_restored
            && let Some(restoration) = arm.expectations.restoration()
        {
            let root = workspaces.root(&FileOp::Walk(WorkspacePath::root()));
            return self.steps(&root, watchdog, buffer).restore(restoration);
        }
        if is_reopened && arm.subtrees > 0 {
            if let Some(workspaces) = arm.workspaces.take() {
                watchdog.independent();
                watchdog.enter(SETUP_LIMIT);
                workspaces.close()?;
            }
            arm.config.dir = self.arm_dir(arm.place, arm.subtrees);
            self.open(arm)?;
        }
        let Some(workspaces) = &mut arm.workspaces else {
            return Ok(());
        };
        workspaces.answer_for(watchdog);
        arm.subtrees += 1;
        arm.is_filled = true;
        if !arm.described.capabilities.holds_data {
            return Ok(());
        }
        if let Some(client) = workspaces.first.client() {
            let subtree = subtree_name(arm.subtrees);
            watchdog.enter(SETUP_LIMIT);
            let files = script.files.iter();
            let files = files.map(|(path, content)| (format!("{subtree}/{path}"), &content[..]));
            client.fill(&files.collect::<Vec<_>>())?;
            workspaces.subtree = PathBuf::from(subtree);
            return Ok(());
        }
        if let Some(tools) = workspaces.first.tools() {
            if let Some(empty) = &arm.empty {
                tools.restore(empty)?;
            }
            for (path, content) in &script.files {
                tools.write_file(path.as_str(), content).map_err(io::Error::other)?;
            }
            return Ok(());
        }
        let root = workspaces.first.root().to_owned();
        watchdog.enter(SETUP_LIMIT);
        if !is_reopened {
            self.remove_old(arm, &root)?;
        }
        let Some(workspaces) = &mut arm.workspaces else {
            return Ok(());
        };
        if !is_reopened {
            workspaces.subtree = PathBuf::from(subtree_name(arm.subtrees));
            std::fs::create_dir(root.join(&workspaces.subtree))?;
        }
        self.steps(&workspaces.files(), watchdog, buffer).fill(script)?;
        if self.workload.asks {
            let root = workspaces.root(&FileOp::Walk(WorkspacePath::root()));
            wait_until_embedded(&root, watchdog, &self.interrupt)?;
        }
        if self.state != CacheState::Hot {
            self.warm(arm, watchdog, buffer)?;
        }
        Ok(())
    }

    fn steps<'a>(&self, root: &'a Path, watchdog: &'a Watchdog, buffer: &'a mut ResultBuffer) -> Steps<'a> {
        Steps { root, watchdog, limit: 2 * self.call_timeout, buffer }
    }

    /// Removes the subtrees of finished passes once they hold more than [`KEPT_BYTES`].
    pub(super) fn remove_old(&self, arm: &mut MountedArm<'_>, root: &Path) -> io::Result<()> {
        let Some(workspaces) = &arm.workspaces else {
            return Ok(());
        };
        if workspaces.subtree.as_os_str().is_empty() {
            return Ok(());
        }
        arm.kept_bytes += pass_bytes(&self.workload);
        if arm.kept_bytes <= KEPT_BYTES {
            return Ok(());
        }
        for entry in std::fs::read_dir(root)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        arm.kept_bytes = 0;
        Ok(())
    }

    pub(super) fn warm(
        &self,
        arm: &mut MountedArm<'_>,
        watchdog: &Watchdog,
        buffer: &mut ResultBuffer,
    ) -> io::Result<()> {
        let script = &self.workload.script;
        let capabilities = arm.described.capabilities;
        let Some(workspaces) = &mut arm.workspaces else {
            return Ok(());
        };
        // A backend without data has nothing to warm, and one without paths has no kernel cache.
        let has_paths = matches!(arm.arm.backend.access(), Access::Paths | Access::Program);
        if !capabilities.holds_data || !has_paths {
            return Ok(());
        }
        let root = workspaces.root(&FileOp::Walk(WorkspacePath::root()));
        let mut model = start_model(script, &arm.described);
        let mut steps = self.steps(&root, watchdog, buffer);
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
