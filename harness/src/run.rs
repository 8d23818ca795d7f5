//! The run: measures cells epoch by epoch and records each result at once. It ends when the budget is spent, all
//! epochs are done, or every cell is decided.

use std::collections::BTreeSet;
use std::time::Duration;

use rundir::{Epoch, Outcome, Plan, Run, RunError, SCHEMA_VERSION, Sample, Writer};
use rustix::io::Errno;
use stats::MIN_EPOCHS;

use crate::cell::Line;
use crate::interrupt::Interrupt;
use crate::lab::{CellResult, Lab};
use crate::schedule::{PlannedCell, all_cells, due, in_order, still_open};

/// How a run ended.
#[derive(Debug)]
pub enum RunEnd {
    /// Everything that the plan asks for is recorded.
    Complete,
    /// The user ended it; it can be resumed.
    Interrupted,
    /// The scratch is full; with the error.
    ScratchFull(String),
    /// An epoch could not begin.
    NoScratch(anyhow::Error),
    /// A result could not be written. Earlier results stay readable.
    CannotRecord(RunError),
}

impl From<RunError> for RunEnd {
    fn from(error: RunError) -> Self {
        RunEnd::CannotRecord(error)
    }
}

/// Receives the events of a run.
pub trait Watcher {
    /// An epoch of `cells` cells begins; `spent` of the budget is used.
    fn epoch(&mut self, plan: &Plan, epoch: u32, cells: usize, spent: Duration);
    fn begins(&mut self, plan: &Plan, cell: &PlannedCell);
    /// A pass has been recorded.
    fn recorded(&mut self, sample: &Sample);
    /// A cell has ended.
    fn ends(&mut self);
}

/// A run under way.
pub struct Runner<'a> {
    pub plan: &'a Plan,
    /// Records the results.
    pub writer: &'a Writer,
    /// Ends the run between calls.
    pub interrupt: &'a Interrupt,
    /// All samples so far, those of an interrupted earlier part included.
    pub samples: Vec<Sample>,
    /// The epochs that ended.
    pub epochs: Vec<Epoch>,
    /// The time that the last epoch spent on each workload with a number of epochs of its own, after that number.
    limited: Vec<(u32, Duration)>,
}

impl<'a> Runner<'a> {
    /// A new run, or the continuation of `before`.
    pub fn new(
        plan: &'a Plan,
        writer: &'a Writer,
        interrupt: &'a Interrupt,
        before: Option<Run>,
    ) -> Self {
        let (samples, epochs) =
            before.map_or_else(Default::default, |run| (run.samples, run.epochs));
        Self {
            plan,
            writer,
            interrupt,
            samples,
            epochs,
            limited: Vec::new(),
        }
    }

    /// The number of epochs of a cell's workload, if it has one of its own.
    fn limit(&self, cell: &PlannedCell) -> Option<u32> {
        self.plan.workloads[cell.workload].epochs
    }

    /// The part of the budget that workloads with a number of epochs of their own will take, as the last epoch shows.
    fn reserved(&self, sound: u32) -> Duration {
        let cells = self.limited.iter();
        cells
            .map(|(epochs, took)| *took * epochs.saturating_sub(sound))
            .sum()
    }

    /// Epochs that do not count: void ones and interrupted ones.
    fn void(&self) -> BTreeSet<u32> {
        let mut void: BTreeSet<u32> = self.samples.iter().map(|sample| sample.epoch).collect();
        for epoch in self.epochs.iter().filter(|epoch| epoch.void.is_none()) {
            void.remove(&epoch.epoch);
        }
        void
    }

    /// The cells that the interim analyses of an earlier part of the run left open.
    fn left(&self, mut cells: Vec<PlannedCell>) -> Vec<PlannedCell> {
        let void = self.void();
        let mut sound: Vec<u32> = self.epochs.iter().map(|epoch| epoch.epoch).collect();
        sound.retain(|epoch| !void.contains(epoch));
        for look in &self.plan.schedule.looks.0 {
            let Some(last) = sound.get(look.epochs.saturating_sub(1) as usize) else {
                break;
            };
            let seen = self.samples.iter().filter(|sample| sample.epoch <= *last);
            let seen: Vec<Sample> = seen.cloned().collect();
            cells = still_open(self.plan, cells, &seen, &void);
        }
        cells
    }

    /// Measures until the budget is spent, the last epoch ends, or every cell is decided.
    pub fn run(&mut self, lab: &mut dyn Lab, watcher: &mut dyn Watcher) -> RunEnd {
        let schedule = &self.plan.schedule;
        let budget = Duration::from_millis(schedule.budget_ms);
        let took = self.epochs.iter().map(|epoch| epoch.took_ms).sum();
        let mut spent = Duration::from_millis(took);
        let mut cells = self.left(all_cells(self.plan));
        let mut sound = self
            .epochs
            .iter()
            .filter(|epoch| epoch.void.is_none())
            .count() as u32;
        let begun = self.samples.iter().map(|sample| sample.epoch + 1).max();
        let mut next = begun.unwrap_or(0).max(self.epochs.len() as u32);
        // Void epochs are repeated, but only so often.
        let most_void = schedule.epochs.div_ceil(2) as usize;
        loop {
            if schedule.looks.is_due(sound as usize) && sound > 0 {
                cells = still_open(self.plan, cells, &self.samples, &self.void());
            }
            let void = self.epochs.iter().filter(|epoch| epoch.void.is_some());
            let due = due(self.plan, &cells, sound);
            if due.is_empty() || sound >= schedule.epochs || void.count() > most_void {
                return RunEnd::Complete;
            }
            let left = budget.saturating_sub(spent);
            let least = self.least(due.len());
            if sound as usize >= MIN_EPOCHS && left < least {
                return RunEnd::Complete;
            }
            let shared = left.saturating_sub(self.reserved(sound));
            let share = shared / (schedule.epochs - sound).max(1);
            watcher.epoch(self.plan, next, due.len(), spent);
            let epoch = match self.epoch(next, &due, share, lab, watcher) {
                Ok(epoch) => epoch,
                Err(ended) => return ended,
            };
            spent += Duration::from_millis(epoch.took_ms);
            sound += u32::from(epoch.void.is_none());
            next += 1;
            self.epochs.push(epoch);
        }
    }

    /// Lower estimate of the time for an epoch of `cells` cells: half of the last epoch's time for each cell.
    fn least(&self, cells: usize) -> Duration {
        let last = self.epochs.last().filter(|epoch| epoch.cells > 0);
        last.map_or(Duration::ZERO, |epoch| {
            Duration::from_millis(epoch.took_ms / 2 / u64::from(epoch.cells)) * cells as u32
        })
    }

    fn epoch(
        &mut self,
        number: u32,
        cells: &[PlannedCell],
        share: Duration,
        lab: &mut dyn Lab,
        watcher: &mut dyn Watcher,
    ) -> Result<Epoch, RunEnd> {
        let cpu = lab
            .begin_epoch(self.plan, number)
            .map_err(RunEnd::NoScratch)?;
        let mut epoch = Epoch {
            v: SCHEMA_VERSION,
            epoch: number,
            cpu,
            cells: cells.len() as u32,
            ..Epoch::default()
        };
        let mut used = Duration::ZERO;
        let mut hot_timed_us = 0;
        self.limited.clear();
        let ordered = in_order(self.plan, number, cells.to_vec());
        let mut to_share = cells
            .iter()
            .filter(|cell| self.limit(cell).is_none())
            .count() as u32;
        for cell in &ordered {
            if self.interrupt.is_set() {
                return Err(RunEnd::Interrupted);
            }
            watcher.begins(self.plan, cell);
            let own_epochs = self.limit(cell);
            let slice = match own_epochs {
                Some(_) => Duration::ZERO,
                None => share.saturating_sub(used) / to_share,
            };
            let Some(result) = lab.measure(self.plan, number, cell, slice) else {
                return Err(RunEnd::Interrupted);
            };
            match own_epochs {
                Some(epochs) => self.limited.push((epochs, result.took)),
                None => {
                    used += result.took;
                    to_share -= 1;
                }
            }
            let state = &self.plan.workloads[cell.workload].states[cell.state];
            if state == "hot" {
                epoch.hot_ms += result.took.as_millis() as u64;
                hot_timed_us += timed_us(&result);
            }
            self.record(result, watcher)?;
            watcher.ends();
        }
        lab.end_epoch(&mut epoch);
        epoch.hot_timed_ms = hot_timed_us / 1000;
        self.writer.epoch(&epoch)?;
        Ok(epoch)
    }

    fn record(&mut self, result: CellResult, watcher: &mut dyn Watcher) -> Result<(), RunEnd> {
        for line in result.lines {
            match line {
                Line::Sample(mut sample) => {
                    sample.order = self.samples.len() as u64;
                    if sample.outcome == Outcome::Setup
                        && let Some(reason) = &sample.reason
                        && reason.contains(&Errno::NOSPC.to_string())
                    {
                        // Every later cell would fail, too, and reveal nothing about a backend.
                        return Err(RunEnd::ScratchFull(reason.clone()));
                    }
                    self.writer.sample(&sample)?;
                    watcher.recorded(&sample);
                    self.samples.push(*sample);
                }
                Line::Cell(cell) => self.writer.cell(&cell)?,
            }
        }
        Ok(())
    }
}

fn timed_us(result: &CellResult) -> u64 {
    let lines = result.lines.iter();
    lines
        .map(|line| match line {
            Line::Cell(cell) => cell.timed_us,
            Line::Sample(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests;
