//! What `ctxbench model-files` measures.

mod fidelity;
mod history;
mod mounts;
mod page;

use std::path::Path;
use std::time::Duration;

use backends::llm::Asker;
use models::{Cancel, Meter, Model, ModelError, Origin, Reply, Request, Totals};
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cmd::llm::ModelArgs;
use crate::interrupt::Interrupt;

pub use fidelity::Fidelity;
pub use mounts::Mounted;
pub use page::page;

/// How much is measured.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub lengths: Vec<u32>,
    pub histories: u32,
    pub reads: u32,
    pub seed: u64,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Results {
    pub plan: Plan,
    /// `live`, `recorded` or `simulated`: of all answers in here, which have one origin.
    pub origin: String,
    pub model: String,
    pub engine: String,
    pub fidelity: Vec<Fidelity>,
    pub repeats: Repeats,
    pub latency: Latency,
    pub history: Mounted,
    pub generate: Mounted,
    pub memory_ratio: Option<(f64, f64, f64)>,
}

/// Whether the same request gave the same answer.
#[derive(Debug, Default, Serialize)]
pub struct Repeats {
    pub asked_twice: u32,
    pub equal: u32,
}

/// Where the time of the answers in the fidelity part went.
#[derive(Debug, Default, Serialize)]
pub struct Latency {
    pub answers: u64,
    pub queue_ms: f64,
    /// Transfer and the reading of the question.
    pub first_byte_ms: f64,
    /// Writing the answer.
    pub generation_ms: f64,
    /// Reading and checking the answer.
    pub validation_ms: f64,
    pub prompt_tokens_per_second: f64,
    pub output_tokens_per_second: f64,
}

/// A model that several askers share.
pub(crate) struct Shared(Arc<Noting>);

struct Noting {
    model: Box<dyn Model>,
    origins: Mutex<Vec<Origin>>,
}

impl Model for Shared {
    fn name(&self) -> &str {
        self.0.model.name()
    }

    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError> {
        let reply = self.0.model.complete(request, cancel)?;
        let mut origins = self
            .0
            .origins
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !origins.contains(&reply.origin) {
            origins.push(reply.origin);
        }
        Ok(reply)
    }
}

/// Measures everything; says on standard error how far it is.
pub fn measure(
    args: &ModelArgs,
    plan: &Plan,
    scratch: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Results> {
    let ready = args.ready()?;
    let (engine, model) = (ready.engine.clone(), ready.model.name().to_owned());
    eprintln!("model: {model} by {engine}");
    let noting = Arc::new(Noting {
        model: ready.model,
        origins: Mutex::default(),
    });
    let asker = || {
        let shared = Shared(Arc::clone(&noting));
        let meter: Meter = args.meter(Box::new(shared), ready.provider);
        Asker::new(meter, args.options(), None)
    };
    let mut totals = Totals::default();
    let mut validation = Duration::ZERO;
    let mut repeats = Repeats::default();
    let mut fidelity = Vec::new();
    for length in &plan.lengths {
        let part = fidelity::measure(
            plan,
            *length,
            &asker,
            &mut totals,
            &mut validation,
            &mut repeats,
            interrupt,
        )?;
        fidelity.push(part);
    }
    // The server is ours alone no longer: each mount starts one of its own.
    drop(ready.server);
    let history = mounts::history(args, &scratch.join("history"), interrupt)?;
    let generate = mounts::generate(args, &scratch.join("generate"), interrupt)?;
    let memory_ratio = mounts::rereads(args, &scratch.join("reread"), plan.seed, interrupt)?;
    let origins = noting
        .origins
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let origin = origins
        .iter()
        .map(|origin| origin.name())
        .collect::<Vec<_>>()
        .join(" and ");
    Ok(Results {
        plan: plan.clone(),
        origin,
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

fn latency(totals: &Totals, validation: Duration) -> Latency {
    let calls = totals.calls.max(1) as f64;
    let ms = |time: Duration| time.as_secs_f64() * 1000.0 / calls;
    let generation = totals.total.saturating_sub(totals.first_byte);
    let rate = |tokens: u64, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
    Latency {
        answers: totals.calls,
        queue_ms: ms(totals.queue),
        first_byte_ms: ms(totals.first_byte),
        generation_ms: ms(generation),
        validation_ms: ms(validation),
        prompt_tokens_per_second: rate(totals.prompt_tokens, totals.first_byte),
        output_tokens_per_second: rate(totals.output_tokens, generation),
    }
}
