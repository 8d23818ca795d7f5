//! What the user sees of a run: which block, how many are left, how long it will take.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use reports::run::{Outcome, Plan, Sample};

use crate::plan::Block;
use crate::run::Watcher;

/// How often a line is printed where there is no terminal to redraw.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Shows progress on standard error.
pub struct Progress {
    bar: ProgressBar,
    blocks: usize,
    started: Instant,
    last_line: Instant,
    failures: usize,
}

impl Progress {
    /// Progress over `blocks` blocks.
    pub fn new(blocks: usize) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(blocks as u64)
        } else {
            ProgressBar::hidden()
        };
        let template = "{bar:30} {pos}/{len}  {eta} left  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Self {
            bar,
            blocks,
            started: Instant::now(),
            last_line: Instant::now(),
            failures: 0,
        }
    }

    /// Blocks that did not end well.
    pub fn failures(&self) -> usize {
        self.failures
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watcher for Progress {
    fn begins(&mut self, plan: &Plan, block: &Block) {
        let workload = &plan.workloads[block.workload];
        self.bar.set_message(format!(
            "{} {} {}",
            workload.name, workload.states[block.state], plan.arms[block.arm].name
        ));
    }

    fn recorded(&mut self, sample: &Sample, left: usize) {
        self.bar.inc(1);
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
                self.bar.println(line);
            }
        }
        if self.bar.is_hidden() && self.last_line.elapsed() > LINE_EVERY {
            self.last_line = Instant::now();
            let done = self.blocks - left;
            let rest = self.started.elapsed().as_secs_f64() / done as f64 * left as f64;
            eprintln!("{done} of {} blocks, about {rest:.0} s left", self.blocks);
        }
    }
}
