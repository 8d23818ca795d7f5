//! Shows the progress of a run: epoch, cell and spent budget.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use inputs::border;
use rundir::{Outcome, Plan, Sample, Schedule, Section};

use crate::run::Watcher;
use crate::schedule::PlannedCell;

/// How often a line is printed if standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Shows progress on standard error.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    last_line: Instant,
    failures: usize,
    /// The epoch under way with its section, its cells, and how many of them have ended.
    epoch: (String, usize, usize),
    budget: Duration,
}

impl Progress {
    /// Progress through the budget of `schedule`.
    pub fn new(schedule: &Schedule) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(schedule.budget_ms() / 1000)
        } else {
            ProgressBar::hidden()
        };
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} s  {wide_msg}") {
            bar.set_style(style);
        }
        // No steady tick: a thread that redraws would disturb the measurement.
        Self {
            bar,
            started: Instant::now(),
            last_line: Instant::now(),
            failures: 0,
            epoch: (String::new(), 0, 0),
            budget: Duration::from_millis(schedule.budget_ms()),
        }
    }

    /// Passes that did not end well.
    pub fn failures(&self) -> usize {
        self.failures
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watcher for Progress {
    fn epoch(&mut self, _plan: &Plan, section: &Section, turn: u32, cells: usize) {
        let epoch = format!("{}, epoch {}", section.name, turn + 1);
        self.epoch = (epoch, cells, 0);
    }

    fn begins(&mut self, plan: &Plan, cell: &PlannedCell) {
        let workload = &plan.workloads[cell.workload];
        self.bar.set_position(self.started.elapsed().as_secs());
        let message = format!(
            "{}, cell {} of {}: {} {}",
            self.epoch.0,
            self.epoch.2 + 1,
            self.epoch.1,
            workload.name,
            workload.states[cell.state]
        );
        self.bar.set_message(border::terminal_cell(&message));
    }

    fn recorded(&mut self, sample: &Sample) {
        if sample.outcome != Outcome::Ok {
            self.failures += 1;
            let reason = sample.reason.as_deref().unwrap_or_default();
            let line = format!(
                "{}: {} {} on {}: {reason}",
                sample.outcome, sample.workload, sample.state, sample.arm
            );
            if self.bar.is_hidden() {
                eprintln!("{line}");
            } else {
                self.bar.println(border::terminal(&line));
            }
        }
    }

    fn ends(&mut self) {
        self.epoch.2 += 1;
        if self.bar.is_hidden() && self.last_line.elapsed() > LINE_EVERY {
            self.last_line = Instant::now();
            eprintln!(
                "{}, {} of {} cells; {:.0} of {:.0} s spent",
                self.epoch.0,
                self.epoch.2,
                self.epoch.1,
                self.started.elapsed().as_secs_f64(),
                self.budget.as_secs_f64()
            );
        }
    }
}
