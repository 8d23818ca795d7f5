//! What the sessions of a run put into an agent's context, under every context policy of their workload.

use std::sync::Arc;

use ledger::Conversation;
use reports::context::MODELS;
use reports::run::{Basis, ModelFactor, SCHEMA_VERSION, SessionContext};
use workloads::context::context;
use workloads::definition::{SessionSource, Workload};

/// The lines of `contexts.jsonl`. A workload that does not tell its session is left out, with a warning.
pub fn session_contexts(workloads: &[Arc<Workload>]) -> Vec<SessionContext> {
    let mut lines = Vec::new();
    for workload in workloads {
        if matches!(workload.session, SessionSource::None) {
            continue;
        }
        let inline = match workload.conversation() {
            Ok(inline) => inline,
            Err(problem) => {
                tracing::warn!(
                    "{}: its context is not accounted for: {problem}",
                    workload.name
                );
                continue;
            }
        };
        let recorded = workload.recorded_model();
        let basis = match recorded {
            Some(_) => Basis::Recorded,
            None => Basis::Generated,
        };
        for name in &workload.contexts {
            // Names were checked when the workload was read.
            let Ok(policy) = context(name) else {
                continue;
            };
            let conversation = policy.apply(&inline);
            lines.push(line(workload, name, basis, recorded, conversation));
        }
        if let SessionSource::Stated { published, .. } = &workload.session {
            for (name, conversation) in published {
                let conversation = conversation.clone();
                lines.push(line(workload, name, Basis::Published, None, conversation));
            }
        }
    }
    lines
}

fn line(
    workload: &Workload,
    policy: &str,
    basis: Basis,
    recorded: Option<&str>,
    conversation: Conversation,
) -> SessionContext {
    let models = MODELS.into_iter().chain(recorded);
    let factors = models.map(|model| {
        let factor = tokens::factor(model);
        ModelFactor {
            model: model.to_owned(),
            per_o200k: factor.per_o200k,
            label: factor.label(),
        }
    });
    SessionContext {
        v: SCHEMA_VERSION,
        workload: workload.name.clone(),
        policy: policy.to_owned(),
        basis,
        model: recorded.map(str::to_owned),
        factors: factors.collect(),
        conversation,
    }
}
