//! The policies of tool results: which part of a large result stays in the context, and which a file keeps.

use serde::Deserialize;
use tokens::{Part, PartKind, Rewrite, Step};

use super::rewriter::{Live, Rewriter};
use crate::conversation::{TURN_MS, part};

/// The model saves a large result: it reads the result and writes it out again.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Offload {
    /// Results of more tokens than this are saved.
    above_tokens: u64,
    /// The share of a saved result that a separate call reads back, once.
    pub(super) read_back: f64,
    /// Whether a line replaces the result and the written content once saved. Otherwise both stay.
    clears: bool,
}

/// The tool layer stores a large result; the model sees only a part.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Evict {
    /// Results of more tokens than this are stored.
    above_tokens: u64,
    /// Tokens of the result that are shown in addition to the receipt.
    preview_tokens: u64,
    /// As in `Offload`.
    pub(super) read_back: f64,
}

/// All results together stay within a budget. The oldest ones are stored first, and a receipt replaces each.
/// A result larger than the budget is stored immediately.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EvictOldest {
    /// The maximum number of tokens of all results together.
    budget_tokens: u64,
    /// Tokens of a result larger than the budget that are shown in addition to the receipt.
    preview_tokens: u64,
    /// The share of a result larger than the budget that a separate call reads back, once.
    pub(super) read_back: f64,
}

impl Rewriter {
    pub(super) fn evict(&mut self, step: &Step, evict: &Evict) {
        let is_large = |part: &Part| is_large(part, evict.above_tokens);
        let large: Vec<Part> = step.enters.iter().copied().filter(is_large).collect();
        if large.is_empty() {
            return self.keep(step);
        }
        let mut rewritten = self.begin(step);
        for entering in &step.enters {
            rewritten.enters.push(if is_large(entering) {
                let receipt = self.receipt(entering);
                Part { tokens: receipt.tokens + evict.preview_tokens.min(entering.tokens), ..receipt }
            } else {
                *entering
            });
        }
        rewritten.files.insert("write".to_owned(), large.len() as u64);
        let entered = rewritten.enters.len();
        if evict.read_back == 0.0 {
            rewritten.emits.clone_from(&step.emits);
            add_files(&mut rewritten, step);
            self.push(rewritten, 0..entered + step.emits.len());
        } else {
            rewritten.emits = large.iter().map(|_| read_call(self.stored)).collect();
            *rewritten.files.entry("read".to_owned()).or_default() += large.len() as u64;
            self.push(rewritten, 0..entered);
            self.read_back(step, &large, evict.read_back);
        }
    }

    pub(super) fn offload(&mut self, step: &Step, offload: &Offload) {
        let is_large = |part: &Part| is_large(part, offload.above_tokens);
        let large: Vec<Part> = step.enters.iter().copied().filter(is_large).collect();
        if large.is_empty() {
            return self.keep(step);
        }
        // The model has seen the result, and writes it out to save it.
        let mut saving = self.begin(step);
        saving.enters.clone_from(&step.enters);
        saving.emits = large.iter().map(write_call).collect();
        saving.files.insert("write".to_owned(), large.len() as u64);
        let entered = saving.enters.len();
        let first = self.push(saving, 0..entered);
        let mut saved =
            Step { gap_ms: TURN_MS, enters: large.iter().map(|part| self.receipt(part)).collect(), ..Step::default() };
        if offload.clears {
            let results = (first..).zip(&step.enters);
            let results = results.filter(|(_, part)| is_large(part)).map(|(at, _)| at);
            let written = first + entered..first + entered + large.len();
            let line = part(PartKind::Receipt, "[saved]").tokens;
            saved.rewrites = results.chain(written).map(|part| Rewrite { part, tokens: line }).collect();
        }
        if offload.read_back == 0.0 {
            saved.emits.clone_from(&step.emits);
            saved.files.clone_from(&step.files);
            self.push(saved, large.len()..large.len() + step.emits.len());
        } else {
            saved.emits = large.iter().map(|_| read_call(self.stored)).collect();
            saved.files.insert("read".to_owned(), large.len() as u64);
            self.push(saved, 0..0);
            self.read_back(step, &large, offload.read_back);
        }
    }

    /// Appends the step in which the parts read back enter, and the model continues with the output of `step`.
    fn read_back(&mut self, step: &Step, large: &[Part], share: f64) {
        let back = large.iter().map(|part| {
            let tokens = (part.tokens as f64 * share).ceil() as u64;
            Part::new(PartKind::ReadBack, tokens)
        });
        let following = Step {
            gap_ms: TURN_MS,
            enters: back.collect(),
            emits: step.emits.clone(),
            files: step.files.clone(),
            ..Step::default()
        };
        self.push(following, large.len()..large.len() + step.emits.len());
    }

    pub(super) fn evict_oldest(&mut self, step: &Step, evict: &EvictOldest) {
        let mut rewritten = self.begin(step);
        if step.compacted {
            self.live.clear();
        }
        // Results larger than the budget, with the tokens of their receipts.
        let mut large: Vec<(Part, u64)> = Vec::new();
        let old = self.live.len();
        for (number, entering) in step.enters.iter().enumerate() {
            let mut shown = *entering;
            if entering.kind == PartKind::Result {
                let mut receipt = None;
                if entering.tokens > evict.budget_tokens {
                    // The result is stored, and only its beginning is shown.
                    shown = self.receipt(entering);
                    receipt = Some(shown.tokens);
                    large.push((*entering, shown.tokens));
                    shown.tokens += evict.preview_tokens.min(entering.tokens);
                }
                self.live.push_back(Live { part: self.parts + number, tokens: shown.tokens, receipt });
            }
            rewritten.enters.push(shown);
        }
        let mut written = self.trim(&mut rewritten, old, evict.budget_tokens);
        written += large.len() as u64;
        if written > 0 {
            rewritten.files.insert("write".to_owned(), written);
        }
        let mut first = 0;
        if !large.is_empty() && evict.read_back > 0.0 {
            rewritten.emits = large.iter().map(|_| read_call(self.stored)).collect();
            rewritten.files.insert("read".to_owned(), large.len() as u64);
            let entered = rewritten.enters.len();
            self.push(rewritten, 0..entered);
            rewritten = Step { gap_ms: TURN_MS, ..Step::default() };
            let old = self.live.len();
            for (number, (part, receipt)) in large.iter().enumerate() {
                let tokens = (part.tokens as f64 * evict.read_back).ceil() as u64;
                self.live.push_back(Live { part: self.parts + number, tokens, receipt: Some(*receipt) });
                rewritten.enters.push(Part::new(PartKind::ReadBack, tokens));
            }
            let written = self.trim(&mut rewritten, old, evict.budget_tokens);
            if written > 0 {
                rewritten.files.insert("write".to_owned(), written);
            }
            first = large.len();
        }
        rewritten.emits.clone_from(&step.emits);
        add_files(&mut rewritten, step);
        let count = rewritten.enters.len() + rewritten.emits.len();
        self.push(rewritten, first..count);
    }

    /// Replaces the oldest results by receipts until the budget holds. The first `old` results were in the
    /// context before `rewritten`; the others enter with it. Returns the number of newly stored results.
    fn trim(&mut self, rewritten: &mut Step, mut old: usize, budget: u64) -> u64 {
        let mut written = 0;
        let mut held: u64 = self.live.iter().map(|live| live.tokens).sum();
        while held > budget {
            let Some(gone) = self.live.pop_front() else {
                break;
            };
            let receipt = gone.receipt.unwrap_or_else(|| {
                written += 1;
                let result = Part::new(PartKind::Result, gone.tokens);
                self.receipt(&result).tokens
            });
            let left = receipt.min(gone.tokens);
            held -= gone.tokens;
            if old > 0 {
                rewritten.rewrites.push(Rewrite { part: gone.part, tokens: left });
                old -= 1;
            } else {
                // The results of one step exceed the budget, so this one enters only as a receipt.
                rewritten.enters[gone.part - self.parts].tokens = left;
            }
        }
        written
    }

    fn receipt(&mut self, stored: &Part) -> Part {
        self.stored += 1;
        let bytes = match stored.bytes {
            // Only the number of digits matters, and an estimate has as many as the size.
            0 => stored.tokens * 4,
            bytes => bytes,
        };
        let line = format!("✅ Saved results/{:04}.txt ({bytes} bytes)", self.stored);
        part(PartKind::Receipt, &line)
    }
}

fn is_large(part: &Part, above: u64) -> bool {
    part.kind == PartKind::Result && part.tokens > above
}

fn add_files(rewritten: &mut Step, step: &Step) {
    for (kind, count) in &step.files {
        *rewritten.files.entry(kind.clone()).or_default() += count;
    }
}

/// The model's call that stores a result, with the whole content as a JSON string.
/// For a recording only the tokens of the content are known, so the tokens of escaping are left out.
fn write_call(stored: &Part) -> Part {
    let call = r#"{"name":"write_file","input":{"file_path":"results/0001.txt","content":}}"#;
    let content = stored.escaped.max(stored.tokens);
    Part::new(PartKind::Content, content + part(PartKind::Content, call).tokens)
}

/// The model's call that reads back a part of a stored result.
fn read_call(number: u64) -> Part {
    let call =
        format!(r#"{{"name":"read_file","input":{{"file_path":"results/{number:04}.txt","offset":1,"limit":100}}}}"#);
    part(PartKind::Arguments, &call)
}
