//! The run: block after block, each recorded as soon as it is there.

use std::collections::BTreeSet;

use reports::run::{Plan, RunError, Sample, Writer};

use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::plan::{Block, blocks};

/// How a run ended.
#[derive(Debug)]
pub enum Ended {
    /// Every block of the plan is recorded.
    Complete,
    /// The user ended it; it can be resumed.
    Interrupted,
    /// Results could not be written any more; those before are readable.
    CannotRecord(RunError),
}

/// What a run tells while it goes on.
pub trait Watcher {
    /// A block begins.
    fn begins(&mut self, plan: &Plan, block: &Block);
    /// A block has been recorded, `left` remain.
    fn recorded(&mut self, sample: &Sample, left: usize);
}

/// Measures all blocks of `plan` that are not among `done`.
pub fn run(
    plan: &Plan,
    done: &[Sample],
    lab: &mut dyn Lab,
    writer: &Writer,
    interrupt: &Interrupt,
    watcher: &mut dyn Watcher,
) -> Ended {
    let done: BTreeSet<u32> = done.iter().map(|sample| sample.order).collect();
    let mut todo: Vec<Block> = blocks(plan);
    todo.retain(|block| !done.contains(&block.order));
    let count = todo.len();
    for (number, block) in todo.into_iter().enumerate() {
        if interrupt.is_set() {
            return Ended::Interrupted;
        }
        watcher.begins(plan, &block);
        let Some(sample) = lab.measure(plan, &block) else {
            return Ended::Interrupted;
        };
        if let Err(error) = writer.sample(&sample) {
            return Ended::CannotRecord(error);
        }
        watcher.recorded(&sample, count - number - 1);
    }
    Ended::Complete
}
