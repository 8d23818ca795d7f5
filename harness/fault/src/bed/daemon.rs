//! The daemon of a test bed: killing it, asking it, and coming back after it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use backends::fuse;
use backends::fuse::connection::{detach, mount_at};
use rundir::faults::{Recovery, Return};
use rustix::process::{Pid, Signal, kill_process};

use super::super::agent::{Answer, Task};
use super::super::watch::stands_still;
use super::{Injected, ScenarioError, TestBed};

/// How long a daemon whose connection is gone gets to end by itself, before it counts as left behind.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// How long a line may take from the daemon's call to its log: a thread of its own writes them.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// How long the threads of a daemon may take to stand still: until then one of them may answer what comes.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

impl TestBed {
    /// `kill -9`; the mount stays as it then is. Answers how the daemon had ended before, if it had, which is a breach.
    pub fn kill_daemon(&mut self) -> Injected<Option<String>> {
        let exit_reason = self.exit_reason();
        if let Some(exit_reason) = &exit_reason {
            self.breach(format!("before anything was done to it: {exit_reason}"));
        }
        let killed = match &mut self.workspace {
            Some(workspace) => workspace.kill()?,
            None => false,
        };
        if !killed {
            return Err(ScenarioError::Infra("there was no daemon to kill".into()));
        }
        self.has_lost_daemon = true;
        Ok(exit_reason)
    }

    /// The power of the disk under the store is cut, and its daemon ends with it, as if the machine had gone. What an agent was
    /// asked is still answered: it stands for nobody on that machine.
    pub fn lose_power(&mut self) -> Injected {
        let disk = self.disk.as_ref();
        let disk = disk.ok_or_else(|| ScenarioError::Infra("there is no small disk".into()))?;
        // Who is told so during the cut is told by a machine that is gone: ext4 may answer an `fsync` that was under way
        // as if it had been done.
        let acknowledged = std::fs::metadata(self.acknowledgements()).map_or(0, |log| log.len());
        self.acknowledged_before_cut = Some(acknowledged);
        disk.cut_power()?;
        if let Some(workspace) = &mut self.workspace {
            workspace.kill()?;
            self.has_lost_daemon |= self.backend.describe().daemons > 0;
        }
        Ok(())
    }

    /// The machine starts again on what is on the disk: nothing is mounted on it, and nobody has files of it open.
    pub fn start_machine(&mut self) -> Injected {
        self.dismiss_agent();
        self.workspace = None;
        let mount = self.mount_point();
        if matches!(mount_at(&mount), Ok(Some(_))) {
            detach(&mount)?;
        }
        let disk = self.disk.as_ref();
        let disk = disk.ok_or_else(|| ScenarioError::Infra("there is no small disk".into()))?;
        disk.start_again().map_err(ScenarioError::Infra)
    }

    /// How the daemon has ended, if it has although nobody told it to.
    pub fn exit_reason(&mut self) -> Option<String> {
        self.workspace.as_mut()?.exit_reason()
    }

    /// Sends the daemon a signal.
    pub fn signal_daemon(&mut self, signal: Signal) -> Injected {
        let pid = self.workspace.as_ref().and_then(|open| open.daemon());
        let pid = pid.and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.ok_or_else(|| ScenarioError::Infra("there is no daemon to signal".into()))?;
        kill_process(pid, signal).map_err(|error| ScenarioError::Infra(error.to_string()))
    }

    /// Stops the daemon, and returns when each of its threads stands still.
    pub fn stop_daemon(&mut self) -> Injected {
        self.signal_daemon(Signal::STOP)?;
        let daemon = self.workspace.as_ref().and_then(|open| open.daemon());
        let deadline = Instant::now() + STOP_PATIENCE;
        while !daemon.is_some_and(stands_still) {
            if Instant::now() > deadline {
                // Taking it down begins with a SIGCONT.
                return Err(ScenarioError::Infra(format!(
                    "not each thread of the daemon stood still within {} s of SIGSTOP",
                    STOP_PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// What the daemon has counted; `None` where nothing counts or nobody answers.
    pub fn counters(&mut self) -> Option<fuse::Counters> {
        self.workspace.as_mut()?.counters().ok().flatten()
    }

    /// What any program sees of the mount as it is now.
    pub fn look(&mut self) -> Injected<Option<Answer>> {
        let task = Task::Look { root: self.root() };
        self.perform(&task)
    }

    /// Whether the mount can be used now; what fails is not noted as seen.
    pub fn is_usable(&mut self) -> Injected<Result<(), String>> {
        let before = self.outcome.seen.clone();
        let answer = self.look()?;
        if answer.is_some() {
            self.outcome.seen = before;
        }
        Ok(match answer {
            None => Err("looking at it hung".to_owned()),
            Some(answer) => match answer.failures.first() {
                None => Ok(()),
                Some(failure) => Err(format!("{}: {}", failure.call, failure.text)),
            },
        })
    }

    /// Comes back as a caller does who is started anew: opens the workspace again, and again until it can be used or
    /// the scenario's time for it is over. A daemon or a mount that is in the way is taken away first, which is noted as a
    /// step by hand.
    pub fn come_back(&mut self) -> Injected {
        let step = self.clear_away()?;
        self.come_back_after(step)
    }

    /// Takes away whatever an earlier mount has left; answers what had to be done, if anything had.
    fn clear_away(&mut self) -> Injected<Option<String>> {
        self.dismiss_agent();
        let began = Instant::now();
        let has_daemon = |bed: &Self| {
            let open = bed.workspace.as_ref();
            open.is_some_and(|open| open.daemon().is_some())
        };
        while has_daemon(self) && self.exit_reason().is_none() && began.elapsed() < END_PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        let is_left = has_daemon(self) && self.exit_reason().is_none();
        if let Some(workspace) = &mut self.workspace
            && !is_left
        {
            // It has ended: so that nobody takes its mount away.
            workspace.kill()?;
        }
        self.has_lost_daemon |= self.workspace.is_some() && self.backend.describe().daemons > 0;
        let mount = self.mount_point();
        let was_mounted = mount_at(&mount)?.is_some();
        self.workspace = None;
        let is_mounted = mount_at(&mount)?.is_some();
        Ok(match (is_left, was_mounted && !is_mounted) {
            (true, _) => Some("kill -9 of the daemon that was left, and umount -l".to_owned()),
            (false, true) => Some("umount -l of the mount that was left".to_owned()),
            (false, false) => None,
        })
    }

    /// As [`TestBed::come_back`], when nothing is in the way any more; `step` is what was done by hand for it.
    pub fn come_back_after(&mut self, mut step: Option<String>) -> Injected {
        let limit = Duration::from_secs_f64(self.scenario.limits.recovery);
        let started = Instant::now();
        loop {
            let tried = match self.backend.open(&self.site) {
                Ok(workspace) => {
                    self.workspace = Some(workspace);
                    self.is_usable()?
                }
                Err(error) => Err(error.to_string()),
            };
            let ms = started.elapsed().as_millis() as u64;
            match tried {
                Ok(()) => {
                    let how = match step {
                        Some(_) => Return::AfterStep,
                        None => Return::NextMount,
                    };
                    self.recovered(how, ms, step);
                    return Ok(());
                }
                Err(reason) if started.elapsed() > limit => {
                    self.recovered(Return::Never, ms, Some(reason.clone()));
                    self.breach(format!(
                        "it did not come back within {} s: {reason}",
                        limit.as_secs_f64()
                    ));
                    return Ok(());
                }
                Err(_) if self.interrupt.load(Ordering::Relaxed) => {
                    return Err(ScenarioError::Interrupted);
                }
                Err(reason) => {
                    if self.workspace.take().is_some() {
                        let taken = format!("kill -9 of a mount that could not be used: {reason}");
                        step.get_or_insert(taken);
                    }
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        }
    }

    /// Opens the workspace by a mount with one more option, as somebody does who follows a refusal. Answers the words of the
    /// refusal where that is refused, too.
    pub fn open_with(&mut self, option: &str) -> Injected<Result<(), String>> {
        let backend = self.backend.with_option(option);
        let backend = backend
            .ok_or_else(|| ScenarioError::Infra("no option can be given to its daemon".into()))?;
        Ok(match backend.open(&self.site) {
            Ok(workspace) => {
                self.workspace = Some(workspace);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        })
    }

    /// Whether the daemons' log says `words` past its byte `from`, waiting for the thread that writes the log.
    pub fn logs(&self, from: usize, words: &str) -> bool {
        let began = Instant::now();
        loop {
            let log = self.daemon_log();
            if log.get(from..).is_some_and(|log| log.contains(words)) {
                return true;
            }
            if began.elapsed() > LOG_PATIENCE {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the daemons have said on their standard error.
    pub fn daemon_log(&self) -> String {
        std::fs::read_to_string(self.site.dir.join("daemon.log")).unwrap_or_default()
    }

    /// Notes how it came back.
    pub fn recovered(&mut self, how: Return, ms: u64, step: Option<String>) {
        self.outcome.recovery = Some(Recovery { how, ms, step });
    }

    /// Takes the workspace down in order; where that is not to be had, its daemon counts as lost.
    pub fn close(&mut self) -> Injected<Result<(), String>> {
        self.dismiss_agent();
        let closed = match self.workspace.take() {
            Some(workspace) => workspace.close().map_err(|error| error.to_string()),
            None => Ok(()),
        };
        self.has_lost_daemon |= closed.is_err();
        Ok(closed)
    }
}
