//! Measures files that a language model generates: latency, errors and cost. Reports render the results.

mod brief;
mod fidelity;
mod history;
mod mounts;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::bail;
use fuse::Counters;
use llm::Asker;
use models::{Budget, Cancel, Meter, Model, ModelError, Origin, Reply, Request, Totals};
use parking_lot::Mutex;
use rundir::{AnswerLatency, ModelFiles, ModelFilesPlan};

use crate::model_options::ModelOptions;
use trial::interrupt::Interrupt;

pub use brief::measure_for;

/// A model that several askers share. It records the origins of its replies.
pub(crate) struct SharedModel(Arc<OriginRecorder>);

struct OriginRecorder {
    model: Box<dyn Model>,
    origins: Mutex<Vec<Origin>>,
    has_own_sampling: AtomicBool,
}

impl Model for SharedModel {
    fn name(&self) -> &str {
        self.0.model.name()
    }

    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError> {
        let reply = self.0.model.complete(request, cancel)?;
        let mut origins = self.0.origins.lock();
        self.0.has_own_sampling.fetch_or(reply.has_own_sampling, Ordering::Relaxed);
        if !origins.contains(&reply.origin) {
            origins.push(reply.origin);
        }
        Ok(reply)
    }
}

/// The rest of a budget that several mounts share, one after the other.
pub(super) struct RemainingBudget<'a> {
    args: &'a ModelOptions,
    left: Budget,
}

impl RemainingBudget<'_> {
    /// The options of the next mount, with the rest of the budget.
    fn args(&self) -> ModelOptions {
        self.args.with_budget(self.left)
    }

    /// The rest of the budget after a mount's usage.
    fn left_after(&self, counters: &Counters) -> Budget {
        let used = ["prompt-tokens", "output-tokens", "unanswered-tokens-estimated"];
        let used: u64 = used.map(|name| mounts::count(counters, name)).iter().sum();
        let dollars = mounts::count(counters, "cost-nanodollars") as f64 / 1e9;
        Budget {
            tokens: self.left.tokens.map(|left| left.saturating_sub(used)),
            dollars: self.left.dollars.map(|left| (left - dollars).max(0.0)),
        }
    }

    /// Fails if a running mount has spent the budget: later failures would only reflect that.
    fn check(&self, counters: &Counters) -> anyhow::Result<()> {
        let left = self.left_after(counters);
        if left.tokens == Some(0) || left.dollars.is_some_and(|left| left <= 0.0) {
            bail!(
                "the budget was used up before the measurement was complete, so nothing is written\n  fix: raise --max-tokens or --max-cost, or measure less"
            );
        }
        Ok(())
    }
}

/// Measures everything. Prints progress on standard error.
fn measure(
    args: &ModelOptions,
    plan: &ModelFilesPlan,
    scratch: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<ModelFiles> {
    let ready = args.ready()?;
    let (engine, model) = (ready.engine.clone(), ready.model.name().to_owned());
    eprintln!("model: {model} by {engine}");
    let recorder = Arc::new(OriginRecorder {
        model: ready.model,
        origins: Mutex::default(),
        has_own_sampling: AtomicBool::new(false),
    });
    // All parts share one meter, because the budget is for all of them.
    let shared = SharedModel(Arc::clone(&recorder));
    let meter: Arc<Meter> = Arc::new(args.meter(Box::new(shared), ready.provider)?);
    let asker = || Asker::new(Arc::clone(&meter), args.options(), None);
    let mut sums = fidelity::Sums::default();
    let mut fidelity = Vec::new();
    for length in &plan.lengths {
        let part = fidelity::measure(plan, *length, &asker, &mut sums, interrupt)?;
        fidelity.push(part);
    }
    let fidelity::Sums { totals, validation, mut repeats } = sums;
    repeats.has_own_sampling = recorder.has_own_sampling.load(Ordering::Relaxed);
    if totals.calls == 0 {
        let mut reasons = fidelity.iter();
        let because = reasons.find_map(|found| found.unanswered_because.as_deref());
        bail!("{model} answered no question: {}", because.unwrap_or("none was asked"));
    }
    // Stop our server: each mount starts its own.
    drop(ready.server);
    let left = meter.left();
    let mut budget = RemainingBudget { args, left };
    let history = mounts::history(&mut budget, &scratch.join("history"), interrupt)?;
    let at = scratch.join("generate");
    let generate = mounts::generate(&mut budget, &at, plan.is_brief, interrupt)?;
    let memory_ratio =
        if plan.is_brief { None } else { mounts::rereads(&mut budget, &scratch.join("reread"), interrupt)? };
    let origins = recorder.origins.lock();
    let origins: Vec<&str> = origins.iter().map(|origin| origin.name()).collect();
    Ok(ModelFiles {
        failed: None,
        plan: plan.clone(),
        origin: origins.join(" and "),
        model,
        engine,
        fidelity,
        repeats,
        latency: latency(&totals, validation),
        history,
        generate,
        memory_ratio,
    })
}

fn latency(totals: &Totals, validation: Duration) -> AnswerLatency {
    let calls = totals.calls.max(1) as f64;
    let ms = |time: Duration| time.as_secs_f64() * 1000.0 / calls;
    let generation = totals.total.saturating_sub(totals.first_byte);
    let rate = |tokens: u64, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
    AnswerLatency {
        answers: totals.calls,
        queue_ms: ms(totals.queue),
        first_byte_ms: ms(totals.first_byte),
        generation_ms: ms(generation),
        validation_ms: ms(validation),
        prompt_tokens_per_second: rate(totals.prompt_tokens, totals.first_byte),
        output_tokens_per_second: rate(totals.output_tokens, generation),
    }
}
