//! Runs the cells of an epoch on this machine. Tests implement [`Lab`] without a machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::Context;
use arms::backend::DEFINITION;
use rundir::{Epoch, Outcome, Placement, Plan, RUN_DIRECTORY_VERSION, Sample, Section, cache_state};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use workloads::definition::{CacheState, Workload};

use crate::cell::{CellArm, CellTask, Line, Rounds, RunSetup, signal_all};
use crate::plan::LiveArm;
use crate::quiet::{Gauge, Ticks};
use crate::schedule::{PlannedCell, orders};
use crate::scratch::{EpochScratch, ScratchDisk};
use trial::watchdog::{AbandonReason, supervise};

/// How far clocks may diverge in an epoch. More means that the machine slept or that a clock was set.
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// What a cell leaves.
#[derive(Debug, Default)]
pub struct CellResult {
    /// Lines for the run directory, in order.
    pub lines: Vec<Line>,
    /// How long it took, mounting included.
    pub took: Duration,
}

/// Measures cells.
pub trait Lab {
    /// Begins an epoch of a section, after `turn` others of it, with its own scratch. Returns the processor that client and
    /// daemons share in it, if any.
    fn begin_epoch(&mut self, plan: &Plan, section: &Section, turn: u32) -> anyhow::Result<Option<u32>>;

    /// Measures a cell. No round begins after `slice`, except the fewest that a cell needs. `None` if interrupted.
    fn measure(&mut self, plan: &Plan, epoch: u32, cell: &PlannedCell, slice: Duration) -> Option<CellResult>;

    /// Ends the epoch and fills in its duration, its load, and whether it is void.
    fn end_epoch(&mut self, epoch: &mut Epoch);
}

/// The lab of a real run: this machine.
pub struct Machine {
    /// The arms, in the plan's order.
    pub arms: Vec<LiveArm>,
    /// The workloads, in the plan's order.
    pub workloads: Vec<Arc<Workload>>,
    /// The disk of the workspaces.
    pub scratch: ScratchDisk,
    /// What its cells have in common.
    pub setup: RunSetup,
    /// The processors that client and daemons may share. Epochs use them in turn.
    pub cpus: Vec<usize>,
    /// The epoch that is being measured.
    pub epoch: Option<RunningEpoch>,
}

/// An epoch under way on this machine.
pub struct RunningEpoch {
    scratch: EpochScratch,
    cells: u32,
    began: Clocks,
    gauge: Gauge,
    ticks: Ticks,
    stalled_us: [u64; 3],
    /// The processor that client and daemons share.
    cpu: Option<usize>,
}

/// Three clocks that reveal a suspended machine and a changed clock. `monotonic` stops during suspend, `boot` does
/// not, and `wall` can be set.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    monotonic: Duration,
    boot: Duration,
    wall: Duration,
}

impl Clocks {
    fn read() -> Self {
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        Self { monotonic: read(ClockId::Monotonic), boot: read(ClockId::Boottime), wall: read(ClockId::Realtime) }
    }

    /// Why times between the two readings are unreliable; `None` if they are sound.
    fn trouble_since(&self, before: &Self) -> Option<String> {
        let ran = self.monotonic.saturating_sub(before.monotonic);
        let slept = self.boot.saturating_sub(before.boot).saturating_sub(ran);
        if slept > CLOCKS_APART {
            return Some(format!("the machine slept for {:.0} s", slept.as_secs_f64()));
        }
        let wall = self.wall.as_secs_f64() - before.wall.as_secs_f64() - ran.as_secs_f64();
        (wall.abs() > CLOCKS_APART.as_secs_f64()).then(|| format!("the clock jumped by {wall:.1} s"))
    }
}

impl Machine {
    /// The processor of a section's epoch after `turn` others of it.
    fn cpu(&self, section: &Section, turn: u32) -> Option<usize> {
        if section.placement == Placement::Free || self.cpus.is_empty() {
            return None;
        }
        let turn = turn as usize % self.cpus.len();
        // Begin with the last one: the first often handles interrupts.
        self.cpus.iter().rev().nth(turn).copied()
    }

    fn task(&self, plan: &Plan, epoch: u32, cell: &PlannedCell, slice: Duration, dir: PathBuf) -> Option<CellTask> {
        let workload = &self.workloads[cell.workload];
        let section = &plan.schedule.sections[cell.section];
        let name = &plan.workloads[cell.workload].states[cell.state];
        let state = cache_state(name);
        let state = workload.states.iter().find(|own| own.name() == state)?;
        let warm_up = section.warm_up && *state == CacheState::Hot;
        let rounds = section.rounds.saturating_add(u32::from(warm_up));
        let arms = cell.arms.iter().map(|at| CellArm {
            name: plan.arms[*at].name.clone(),
            is_external: plan.arms[*at].backend.versions.contains_key(DEFINITION),
            backend: Arc::clone(&self.arms[*at].backend),
            slowed_percent: plan.arms[*at].slowed_percent.unwrap_or(0),
        });
        Some(CellTask {
            setup: self.setup.clone(),
            epoch,
            workload: Arc::clone(workload),
            state: *state,
            state_name: name.clone(),
            arms: arms.collect(),
            rounds: Rounds { orders: orders(plan, epoch, cell, rounds), warm_up, slice, limits: plan.limits },
            dir,
            cpu: self.epoch.as_ref().and_then(|epoch| epoch.cpu),
            call_timeout: Duration::from_millis(plan.settings.call_timeout_ms),
        })
    }
}

impl Lab for Machine {
    fn begin_epoch(&mut self, plan: &Plan, section: &Section, turn: u32) -> anyhow::Result<Option<u32>> {
        let gauge = Gauge::open(plan.limits);
        let cpu = self.cpu(section, turn);
        self.epoch = Some(RunningEpoch {
            scratch: self.scratch.epoch().context("making an epoch's scratch")?,
            cells: 0,
            began: Clocks::read(),
            ticks: gauge.ticks(),
            stalled_us: gauge.stalled_us(),
            gauge,
            cpu,
        });
        Ok(cpu.map(|cpu| cpu as u32))
    }

    fn measure(&mut self, plan: &Plan, epoch: u32, cell: &PlannedCell, slice: Duration) -> Option<CellResult> {
        let began = Instant::now();
        let under_way = self.epoch.as_mut()?;
        under_way.cells += 1;
        let dir = under_way.scratch.path().join(format!("c{}", under_way.cells));
        let task = self.task(plan, epoch, cell, slice, dir.clone())?;
        let mut result = CellResult::default();
        let (sender, lines) = channel();
        let lost = match std::fs::create_dir(&dir) {
            Err(error) => Some((Outcome::Infra, format!("creating {}: {error}", dir.display()))),
            Ok(()) => {
                let done = supervise(&self.setup.interrupt, move |watchdog| {
                    task.run(watchdog, &sender);
                });
                match done {
                    Ok(()) => None,
                    Err(AbandonReason::Stuck) => Some((
                        Outcome::Hang,
                        "a call did not return although the watchdog had aborted its connection; its thread still waits, and this cell gets no more passes in this epoch".to_owned(),
                    )),
                    Err(AbandonReason::Panicked) => {
                        Some((Outcome::Infra, "the replay panicked; see the log".to_owned()))
                    }
                }
            }
        };
        result.lines.extend(lines.try_iter());
        if self.setup.interrupt.is_set() {
            return None;
        }
        let is_lost = lost.is_some();
        if let Some((outcome, reason)) = lost {
            // The arm that hung is unknown: every arm without a result gets the outcome.
            for arm in &cell.arms {
                let name = &plan.arms[*arm].name;
                let ended = |line: &Line| matches!(line, Line::Cell(cell) if cell.arm == *name);
                if !result.lines.iter().any(ended) {
                    let sample = unfinished(plan, epoch, cell, name, outcome, &reason);
                    result.lines.push(Line::Sample(Box::new(sample)));
                }
            }
        }
        if is_lost {
            // Mounts in `dir` may still hang. The scratch detaches them when the epoch ends.
            // The abandoned cell may have stopped the servers, which other cells need.
            signal_all(self.setup.services.s3.processes(), Signal::CONT);
        } else if let Err(error) = std::fs::remove_dir_all(&dir) {
            tracing::warn!("removing {}: {error}", dir.display());
        }
        result.took = began.elapsed();
        Some(result)
    }

    fn end_epoch(&mut self, epoch: &mut Epoch) {
        let Some(under_way) = self.epoch.take() else {
            return;
        };
        let now = Clocks::read();
        let took = now.monotonic.saturating_sub(under_way.began.monotonic);
        let stalled = under_way.gauge.stalled_us();
        let micros = took.as_micros().max(1) as f64;
        epoch.void = now.trouble_since(&under_way.began);
        epoch.took_ms = took.as_millis() as u64;
        epoch.steal = under_way.gauge.ticks().stolen_since(&under_way.ticks);
        epoch.neighbours = under_way.gauge.neighbours();
        epoch.stalled = [0, 1, 2].map(|at| stalled[at].saturating_sub(under_way.stalled_us[at]) as f64 / micros);
        if let Err(error) = under_way.scratch.close() {
            tracing::warn!("taking an epoch's scratch down: {error}");
        }
    }
}

/// The sample of a pass that did not end.
pub fn unfinished(plan: &Plan, epoch: u32, cell: &PlannedCell, arm: &str, outcome: Outcome, reason: &str) -> Sample {
    let workload = &plan.workloads[cell.workload];
    Sample {
        v: RUN_DIRECTORY_VERSION,
        epoch,
        arm: arm.to_owned(),
        workload: workload.name.clone(),
        state: workload.states[cell.state].clone(),
        outcome,
        reason: Some(reason.to_owned()),
        ..Sample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lab_notices_a_suspend_and_a_clock_jump() {
        let clocks = |monotonic: u64, boot: u64, wall: u64| Clocks {
            monotonic: Duration::from_secs(monotonic),
            boot: Duration::from_secs(boot),
            wall: Duration::from_secs(wall),
        };
        let before = clocks(100, 200, 5000);
        assert_eq!(clocks(130, 230, 5030).trouble_since(&before), None);
        let slept = clocks(130, 290, 5090).trouble_since(&before).unwrap();
        assert!(slept.contains("slept for 60 s"), "{slept}");
        let set = clocks(130, 230, 1030).trouble_since(&before).unwrap();
        assert!(set.contains("jumped by -4000"), "{set}");
    }
}
