//! The daemon of a test bed: kills, signals, counters, logs and recovery.

use std::time::{Duration, Instant};

use anyhow::Context;
use fuse::connection::{detach, mount_at};
use processes::{send, stands_still, wait_until};
use rundir::faults::{Recovery, Return};
use rustix::process::Signal;

use super::super::agent::Job;
use super::{ScenarioError, StepResult, TestBed, infra};

/// How long a daemon without a connection may take to end by itself, before it counts as left behind.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// How long a log line may take to reach the log file. A dedicated thread writes the log.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// How long the threads of a daemon may take to stop after SIGSTOP.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

impl TestBed {
    /// Kills the daemon with SIGKILL and leaves the mount as it is. Returns the exit reason of a daemon
    /// that had already ended, which is a breach.
    pub fn kill_daemon(&mut self) -> StepResult<Option<String>> {
        let exit_reason = self.exit_reason();
        if let Some(exit_reason) = &exit_reason {
            self.breach(format!("before the fault: {exit_reason}"));
        }
        let killed = match &mut self.workspace {
            Some(workspace) => workspace.kill()?,
            None => false,
        };
        if !killed {
            return infra("there was no daemon to kill");
        }
        self.has_lost_daemon = true;
        Ok(exit_reason)
    }

    /// Cuts the power of the disk under the store and kills the daemon, as a machine failure would. The
    /// agent process survives, because it is not part of that machine.
    pub fn lose_power(&mut self) -> StepResult {
        // Later lines of the log do not count: ext4 may report success for an `fsync` that was in flight at
        // the cut.
        let acknowledged = std::fs::metadata(self.acknowledgements()).map_or(0, |log| log.len());
        self.acknowledged_before_cut = Some(acknowledged);
        self.disk()?.cut_power()?;
        if let Some(workspace) = &mut self.workspace {
            workspace.kill()?;
            self.has_lost_daemon |= self.backend.describe().daemons > 0;
        }
        Ok(())
    }

    /// Remounts the disk as it is after the power cut. The agent process and the old mount are gone by
    /// then.
    pub fn start_machine(&mut self) -> StepResult {
        self.dismiss_agent();
        self.workspace = None;
        let mount = self.mount_point();
        if matches!(mount_at(&mount), Ok(Some(_))) {
            detach(&mount)?;
        }
        self.disk()?.start_again().map_err(ScenarioError::Infra)
    }

    /// The exit reason of a daemon that ended without being asked to.
    pub fn exit_reason(&mut self) -> Option<String> {
        self.workspace.as_mut()?.exit_reason()
    }

    /// The process id of the daemon.
    pub fn daemon(&self) -> Option<u32> {
        self.workspace.as_ref()?.daemon()
    }

    /// Sends the daemon a signal.
    pub fn signal_daemon(&mut self, signal: Signal) -> StepResult {
        let daemon = self.daemon().context("there is no daemon to signal")?;
        Ok(send(daemon, signal)?)
    }

    /// Stops the daemon with SIGSTOP, and returns once all its threads are stopped.
    pub fn stop_daemon(&mut self) -> StepResult {
        self.signal_daemon(Signal::STOP)?;
        let stands = || self.daemon().is_some_and(stands_still);
        if !wait_until(STOP_PATIENCE, Duration::from_millis(1), stands) {
            // Dropping the test bed sends SIGCONT first.
            return infra(format!(
                "not each thread of the daemon stood still within {} s of SIGSTOP",
                STOP_PATIENCE.as_secs()
            ));
        }
        Ok(())
    }

    /// The daemon's counters. `None` if it has none or does not answer.
    pub fn counters(&mut self) -> Option<fuse::Counters> {
        self.workspace.as_mut()?.counters().ok().flatten()
    }

    /// Whether the mount is usable now. Failures are not added to the outcome.
    pub fn is_usable(&mut self) -> StepResult<Result<(), String>> {
        let looked = self.try_out(self.root(), &Job::Look)?;
        let failure = match looked {
            None => Some("the check of the mount hung".to_owned()),
            Some(answer) => answer.failure(),
        };
        Ok(failure.map_or(Ok(()), Err))
    }

    /// Expects that the mount is usable again by itself since the fault ended. Otherwise that is a breach, in
    /// the given words, and it is mounted again.
    pub fn go_on(&mut self, since: Instant, otherwise: &str) -> StepResult {
        match self.is_usable()? {
            Ok(()) => self.recovered(Return::ByItself, since.elapsed(), None),
            Err(reason) => {
                self.breach(format!("{otherwise}: {reason}"));
                self.come_back()?;
            }
        }
        Ok(())
    }

    /// Recovers as a restarted caller does: opens the workspace until it is usable or the recovery limit
    /// has passed. Removing a leftover daemon or mount first counts as a manual step.
    pub fn come_back(&mut self) -> StepResult {
        let step = self.clear_away()?;
        self.come_back_after(step)
    }

    /// Removes what an earlier mount left behind. Returns the manual step that this took, if any.
    fn clear_away(&mut self) -> StepResult<Option<String>> {
        self.dismiss_agent();
        let has_ended = || self.daemon().is_none() || self.exit_reason().is_some();
        let is_left = !wait_until(END_PATIENCE, Duration::from_millis(10), has_ended);
        if let Some(workspace) = &mut self.workspace
            && !is_left
        {
            // The daemon has ended. Marking it as killed keeps its mount in place when the workspace is
            // dropped.
            workspace.kill()?;
        }
        self.has_lost_daemon |= self.workspace.is_some() && self.backend.describe().daemons > 0;
        let mount = self.mount_point();
        let was_mounted = mount_at(&mount)?.is_some();
        self.workspace = None;
        let is_mounted = mount_at(&mount)?.is_some();
        Ok(match (is_left, was_mounted && !is_mounted) {
            (true, _) => Some("kill -9 of the remaining daemon, and umount -l".to_owned()),
            (false, true) => Some("umount -l of the remaining mount".to_owned()),
            (false, false) => None,
        })
    }

    /// As [`TestBed::come_back`], once nothing is left behind. `step` is the manual step that was needed.
    pub fn come_back_after(&mut self, mut step: Option<String>) -> StepResult {
        let limit = Duration::from_secs_f64(self.scenario.limits.recovery);
        let started = Instant::now();
        loop {
            let tried = match self.backend.open(&self.config) {
                Ok(workspace) => {
                    self.workspace = Some(workspace);
                    self.is_usable()?
                }
                Err(error) => Err(error.to_string()),
            };
            let after = started.elapsed();
            match tried {
                Ok(()) => {
                    let how = match step {
                        Some(_) => Return::AfterStep,
                        None => Return::NextMount,
                    };
                    self.recovered(how, after, step);
                    return Ok(());
                }
                Err(reason) if after > limit => {
                    self.recovered(Return::Never, after, Some(reason.clone()));
                    self.breach(format!("it did not recover within {} s: {reason}", limit.as_secs_f64()));
                    return Ok(());
                }
                Err(_) if self.interrupt.is_set() => {
                    return Err(ScenarioError::Interrupted);
                }
                Err(reason) => {
                    if self.workspace.take().is_some() {
                        let taken = format!("kill -9 of an unusable mount: {reason}");
                        step.get_or_insert(taken);
                    }
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        }
    }

    /// Opens the workspace with one more mount option, as a user does after reading the advice of a refusal.
    /// Returns the text of a second refusal.
    pub fn open_with(&mut self, option: &str) -> StepResult<Result<(), String>> {
        let backend = self.backend.with_option(option);
        let backend = backend.context("no option can be given to its daemon")?;
        Ok(match backend.open(&self.config) {
            Ok(workspace) => {
                self.workspace = Some(workspace);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        })
    }

    /// Whether the daemons' log contains `words` after its byte `from`. Waits for the thread that writes
    /// the log.
    pub fn logs(&self, from: usize, words: &str) -> bool {
        wait_until(LOG_PATIENCE, Duration::from_millis(10), || {
            let log = self.daemon_log();
            log.get(from..).is_some_and(|log| log.contains(words))
        })
    }

    /// The standard error of all daemons so far.
    pub fn daemon_log(&self) -> String {
        std::fs::read_to_string(self.config.dir.join("daemon.log")).unwrap_or_default()
    }

    /// Records how the backend recovered.
    pub fn recovered(&mut self, how: Return, after: Duration, step: Option<String>) {
        let ms = after.as_millis() as u64;
        self.outcome.recovery = Some(Recovery { how, ms, step });
    }

    /// Closes the workspace in order. If that fails, its daemon counts as lost.
    pub fn close(&mut self) -> StepResult<Result<(), String>> {
        self.dismiss_agent();
        let closed = match self.workspace.take() {
            Some(workspace) => workspace.close().map_err(|error| error.to_string()),
            None => Ok(()),
        };
        self.has_lost_daemon |= closed.is_err();
        Ok(closed)
    }
}
