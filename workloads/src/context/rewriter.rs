//! The steps of a session under a context policy, and the new numbers of its parts.

use std::collections::VecDeque;
use std::ops::Range;

use tokens::{Rewrite, Step};

/// The part of the session that is already rewritten under a policy.
#[derive(Default)]
pub(super) struct Rewriter {
    pub(super) steps: Vec<Step>,
    /// The model of the recorded step, which makes the steps that replace it.
    pub(super) model: String,
    /// Number of parts so far.
    pub(super) parts: usize,
    /// The new number of each part of the inline conversation.
    moved: Vec<usize>,
    /// Number of results stored so far.
    pub(super) stored: u64,
    /// Results in the context, oldest first.
    pub(super) live: VecDeque<Live>,
    /// Tokens of all notes.
    pub(super) notes: u64,
}

/// A result in the context.
pub(super) struct Live {
    pub(super) part: usize,
    pub(super) tokens: u64,
    /// Tokens of its receipt, if it is already stored.
    pub(super) receipt: Option<u64>,
}

impl Rewriter {
    /// Appends a step and returns the number of its first part. Those of its parts that are `of_inline` get the numbers
    /// of the next parts of the inline conversation.
    pub(super) fn push(&mut self, step: Step, of_inline: Range<usize>) -> usize {
        let first = self.parts;
        self.moved.extend(first + of_inline.start..first + of_inline.end);
        self.parts += step.enters.len() + step.emits.len();
        self.steps.push(Step { model: self.model.clone(), ..step });
        first
    }

    /// A copy of `step` without its entering and emitted parts, files and reported usage.
    pub(super) fn begin(&self, step: &Step) -> Step {
        let moved = |rewrite: &Rewrite| {
            let part = *self.moved.get(rewrite.part)?;
            Some(Rewrite { part, tokens: rewrite.tokens })
        };
        Step {
            gap_ms: step.gap_ms,
            compacted: step.compacted,
            before_compaction: step.before_compaction,
            rewrites: step.rewrites.iter().filter_map(moved).collect(),
            ..Step::default()
        }
    }

    pub(super) fn keep(&mut self, step: &Step) {
        let mut copy = self.begin(step);
        copy.enters.clone_from(&step.enters);
        copy.emits.clone_from(&step.emits);
        copy.files.clone_from(&step.files);
        copy.reported = step.reported;
        let count = copy.enters.len() + copy.emits.len();
        self.push(copy, 0..count);
    }
}
