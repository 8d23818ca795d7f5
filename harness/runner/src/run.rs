//! The run: measures cells epoch by epoch and records each result at once. The epochs of its sections take turns. A section
//! ends when its budget is spent or all its epochs are done.

use std::collections::BTreeMap;
use std::time::Duration;

use rundir::{Epoch, Outcome, Plan, RUN_DIRECTORY_VERSION, Run, RunError, Sample, Section, Writer, cache_state};
use rustix::io::Errno;
use stats::MIN_EPOCHS;

use crate::cell::Line;
use crate::lab::{CellResult, Lab};
use crate::schedule::{PlannedCell, all_cells, in_order, next_section, shortened, slice};
use trial::interrupt::Interrupt;

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
    /// The epoch of a section after `turn` others of it begins. It has `cells` cells.
    fn epoch(&mut self, plan: &Plan, section: &Section, turn: u32, cells: usize);
    /// A cell begins.
    fn begins(&mut self, plan: &Plan, cell: &PlannedCell);
    /// A pass has been recorded.
    fn recorded(&mut self, sample: &Sample);
    /// A cell has ended.
    fn ends(&mut self);
}

/// A run under way.
pub struct Runner<'a> {
    /// What is run.
    pub plan: &'a Plan,
    /// Records the results.
    pub writer: &'a Writer,
    /// Ends the run between calls.
    pub interrupt: &'a Interrupt,
    /// All samples so far, those of an interrupted earlier part included.
    pub samples: Vec<Sample>,
    /// The epochs that ended.
    pub epochs: Vec<Epoch>,
}

/// A section under way.
struct SectionRun {
    /// With the budget of this run.
    section: Section,
    cells: Vec<PlannedCell>,
    /// By how much each cell overran its slices in this process, by workload and state, without void epochs.
    overruns: BTreeMap<(usize, usize), Vec<Duration>>,
    /// What its epochs took so far.
    spent: Duration,
    /// Its epochs that count, and those that are void.
    sound: u32,
    void: u32,
    /// The duration and number of cells of its last epoch.
    last: Option<(Duration, u32)>,
}

impl SectionRun {
    fn add(&mut self, epoch: &Epoch) {
        let took = Duration::from_millis(epoch.took_ms);
        self.spent += took;
        self.last = Some((took, epoch.cells));
        match epoch.void {
            None => self.sound += 1,
            Some(_) => self.void += 1,
        }
    }

    fn left(&self) -> Duration {
        Duration::from_millis(self.section.budget_ms).saturating_sub(self.spent)
    }

    /// Whether no epoch follows: all are done, it has no cell, or the budget is spent.
    fn is_over(&self) -> bool {
        // Void epochs are repeated, but only so often.
        let most_void = self.section.epochs.div_ceil(2);
        let is_spent = self.sound as usize >= MIN_EPOCHS && self.left() < self.least();
        self.cells.is_empty() || self.sound >= self.section.epochs || self.void > most_void || is_spent
    }

    /// Lower estimate of the time for an epoch: half of the last epoch's time for each cell.
    fn least(&self) -> Duration {
        match self.last {
            Some((took, cells)) if cells > 0 => took / 2 / cells * self.cells.len() as u32,
            _ => Duration::ZERO,
        }
    }
}

/// Whose turn it is in a run: its sections, as its plan and the epochs so far determine them.
pub struct Turns<'a> {
    plan: &'a Plan,
    sections: Vec<SectionRun>,
}

impl<'a> Turns<'a> {
    /// The start of a run.
    pub fn new(plan: &'a Plan) -> Self {
        let all = all_cells(plan);
        let sections = plan.schedule.sections.iter().enumerate();
        let sections = sections.map(|(at, section)| SectionRun {
            section: Section { budget_ms: plan.budget_ms(section), ..section.clone() },
            cells: all.iter().filter(|cell| cell.section == at).cloned().collect(),
            overruns: BTreeMap::new(),
            spent: Duration::ZERO,
            sound: 0,
            void: 0,
            last: None,
        });
        Self { plan, sections: sections.collect() }
    }

    /// The sections that are not over, by their place in the plan.
    pub fn open(&self) -> impl Iterator<Item = usize> {
        let sections = self.sections.iter().enumerate();
        sections.filter(|(_, state)| !state.is_over()).map(|(at, _)| at)
    }

    /// The section of the next epoch, by its place in the plan. `None` once every section is over.
    pub fn next(&self) -> Option<usize> {
        let done = self.sections.iter();
        let done: Vec<Option<u32>> = done.map(|state| (!state.is_over()).then_some(state.sound)).collect();
        next_section(&self.plan.schedule.sections, &done)
    }

    /// The cells of a section's next epoch, in the plan's order.
    pub fn cells(&self, section: usize) -> &[PlannedCell] {
        &self.sections[section].cells
    }

    /// Adds an epoch that ended. An epoch of an unknown section changes nothing.
    pub fn ended(&mut self, epoch: &Epoch) {
        let mut sections = self.sections.iter_mut();
        if let Some(state) = sections.find(|state| state.section.name == epoch.section) {
            state.add(epoch);
        }
    }
}

impl<'a> Runner<'a> {
    /// A new run, or the continuation of `before`.
    pub fn new(plan: &'a Plan, writer: &'a Writer, interrupt: &'a Interrupt, before: Option<Run>) -> Self {
        let (samples, epochs) = before.map_or_else(Default::default, |run| (run.samples, run.epochs));
        Self { plan, writer, interrupt, samples, epochs }
    }

    /// The turns, as an earlier part of the run left them.
    fn turns(&self) -> Turns<'a> {
        let mut turns = Turns::new(self.plan);
        for epoch in &self.epochs {
            turns.ended(epoch);
        }
        turns
    }

    /// Measures until every section is over: its budget is spent, or its last epoch ends.
    pub fn run(&mut self, lab: &mut dyn Lab, watcher: &mut dyn Watcher) -> RunEnd {
        let mut turns = self.turns();
        let begun = self.samples.iter().map(|sample| sample.epoch + 1);
        let ended = self.epochs.iter().map(|epoch| epoch.epoch + 1);
        let mut next = begun.chain(ended).max().unwrap_or(0);
        while let Some(at) = turns.next() {
            let state = &mut turns.sections[at];
            let turn = state.sound + state.void;
            watcher.epoch(self.plan, &state.section, turn, state.cells.len());
            let slice = slice(&state.section, state.cells.len(), state.sound, state.left());
            let epoch = match self.epoch(next, state, slice, lab, watcher) {
                Ok(epoch) => epoch,
                Err(ended) => return ended,
            };
            next += 1;
            self.epochs.push(epoch.clone());
            turns.ended(&epoch);
        }
        RunEnd::Complete
    }

    fn epoch(
        &mut self,
        number: u32,
        state: &mut SectionRun,
        slice: Duration,
        lab: &mut dyn Lab,
        watcher: &mut dyn Watcher,
    ) -> Result<Epoch, RunEnd> {
        let cpu = lab.begin_epoch(self.plan, &state.section, state.sound + state.void).map_err(RunEnd::NoScratch)?;
        let mut epoch = Epoch {
            v: RUN_DIRECTORY_VERSION,
            epoch: number,
            section: state.section.name.clone(),
            cpu,
            cells: state.cells.len() as u32,
            ..Epoch::default()
        };
        let mut hot_timed_us = 0;
        let mut overruns = Vec::new();
        for cell in &in_order(self.plan, number, state.cells.clone()) {
            if self.interrupt.is_set() {
                return Err(RunEnd::Interrupted);
            }
            watcher.begins(self.plan, cell);
            let place = (cell.workload, cell.state);
            let slice = shortened(slice, state.overruns.get(&place).map_or(&[], Vec::as_slice));
            let Some(result) = lab.measure(self.plan, number, cell, slice) else {
                return Err(RunEnd::Interrupted);
            };
            overruns.push((place, result.took.saturating_sub(slice)));
            let name = &self.plan.workloads[cell.workload].states[cell.state];
            // Where only counts are wanted, no time is.
            if cache_state(name) == "hot" && !state.section.counts {
                epoch.hot_ms += result.took.as_millis() as u64;
                hot_timed_us += timed_us(&result);
            }
            self.record(result, watcher)?;
            watcher.ends();
        }
        lab.end_epoch(&mut epoch);
        if epoch.void.is_none() {
            for (place, overrun) in overruns {
                state.overruns.entry(place).or_default().push(overrun);
            }
        }
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
