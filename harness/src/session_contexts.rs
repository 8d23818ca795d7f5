//! Computes the context of an agent in each session of a run, under every context policy of its workload.

use std::collections::BTreeSet;
use std::sync::Arc;

use figures::context::MODELS;
use rundir::{Basis, ModelFactor, RUN_DIRECTORY_VERSION, SessionContext};
use tokens::Conversation;
use workloads::context::{INLINE, context, context_names_of};
use workloads::definition::{SessionSource, Workload};

/// The lines of `contexts.jsonl`. Logs a warning for a workload whose session cannot be read, and omits it.
pub fn session_contexts(workloads: &[Arc<Workload>]) -> Vec<SessionContext> {
    let mut lines = Vec::new();
    for workload in workloads {
        if matches!(workload.session, SessionSource::None) {
            continue;
        }
        let inline = match workload.conversation() {
            Ok(inline) => inline,
            Err(problem) => {
                tracing::warn!("{}: its tokens are not counted: {problem}", workload.name);
                continue;
            }
        };
        let recorded = workload.recorded_model();
        for name in &workload.contexts {
            // Cannot fail: parsing the workload checks the names.
            let Ok(policy) = context(name) else {
                continue;
            };
            let conversation = policy.apply(&inline);
            let basis = basis(&workload.session, name);
            lines.push(line(&workload.name, name, basis, recorded, conversation));
        }
        if let SessionSource::Stated { published, .. } = &workload.session {
            for (name, conversation) in published {
                let conversation = conversation.clone();
                lines.push(line(&workload.name, name, Basis::Published, None, conversation));
            }
        }
    }
    lines
}

/// The lines of a recorded session that no workload replays, under every context policy that fits it.
pub fn recorded_contexts(workload: &str, model: &str, inline: &Conversation) -> Vec<SessionContext> {
    // Cannot fail: the policies are built in.
    let policies = context_names_of(false).into_iter().filter_map(|name| Some((context(&name).ok()?, name)));
    let lines = policies.map(|(policy, name)| {
        let basis = if name == INLINE { Basis::Recorded } else { Basis::Simulated };
        line(workload, &name, basis, Some(model), policy.apply(inline))
    });
    lines.collect()
}

/// The origin of a session's token counts under a context policy.
pub fn basis(session: &SessionSource, policy: &str) -> Basis {
    match session {
        _ if policy != INLINE => Basis::Simulated,
        SessionSource::Recorded { .. } => Basis::Recorded,
        SessionSource::Stated { .. } => Basis::PartlyStated,
        SessionSource::None | SessionSource::Script => Basis::Generated,
    }
}

fn line(
    workload: &str,
    policy: &str,
    basis: Basis,
    recorded: Option<&str>,
    conversation: Conversation,
) -> SessionContext {
    let others: BTreeSet<&str> = conversation.steps.iter().map(|step| step.model.as_str()).collect();
    let others = others.into_iter().filter(|model| !model.is_empty() && Some(*model) != recorded);
    let models = MODELS.into_iter().chain(recorded).chain(others.filter(|_| recorded.is_some()));
    let factors = models.map(|model| {
        let factor = tokens::factor(model);
        ModelFactor {
            model: model.to_owned(),
            per_o200k: factor.per_o200k,
            label: factor.label(),
            thinking: tokens::thinking_stays(model),
        }
    });
    SessionContext {
        v: RUN_DIRECTORY_VERSION,
        workload: workload.to_owned(),
        policy: policy.to_owned(),
        basis,
        model: recorded.map(str::to_owned),
        factors: factors.collect(),
        conversation,
    }
}
