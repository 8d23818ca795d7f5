//! What the contexts of a run's sessions cost: accounts, dollars, residuals, and what slow files add.

use std::collections::BTreeMap;

use ledger::{Account, Step, TTL_MS, Terms, residual};
use serde::Serialize;

use crate::prices::Prices;
use crate::run::{Basis, Outcome, Run, SessionContext};

/// The models that a report shows dollars for; one of each provider in the price list.
pub const MODELS: [&str; 3] = ["claude-opus-5-5", "gpt-6.1-sol", "gemini-3.1-pro-preview"];

/// The context window that a report counts calls up to, in the session's `o200k` tokens.
pub const WINDOW: u64 = 200_000;

/// The context policy that keeps everything.
pub const INLINE: &str = "inline";

/// Everything about contexts that follows from a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Contexts {
    /// By workload and policy, in the run's order.
    pub costs: Vec<ContextCost>,
    /// What the ledger and the API say of the same prompts, by workload.
    pub residuals: Vec<Reconciled>,
    /// What waiting for files does to the prompt cache, by workload and arm.
    pub delays: Vec<Delay>,
    /// The factors that dollars and residuals were counted with.
    pub factors: Vec<String>,
    /// The rows of the price list that dollars were counted with.
    pub prices: Vec<String>,
}

/// What a session costs under a policy. Tokens are `o200k` tokens, of published accounts their own.
#[derive(Clone, Debug, Serialize)]
pub struct ContextCost {
    /// The workload.
    pub workload: String,
    /// The context policy.
    pub policy: String,
    /// Where the tokens come from.
    pub basis: Basis,
    /// Calls of the model.
    pub calls: usize,
    /// Tokens that come in for the first time.
    pub entering: u64,
    /// Prompt tokens of all calls: what is sent without a cache.
    pub resent: u64,
    /// Of them, what no cache answers.
    pub fresh: u64,
    /// Of them, what the cache answers.
    pub cached: u64,
    /// Tokens that the model writes.
    pub output: u64,
    /// The largest prompt with its answer.
    pub peak: u64,
    /// The first call, from 1, that does not fit into [`WINDOW`].
    pub full_at_call: Option<usize>,
    /// Calls that found their prompt expired.
    pub expired: usize,
    /// Compactions, as recorded.
    pub compactions: usize,
    /// The largest part that entered at once.
    pub largest_entering: u64,
    /// The largest part that the model wrote at once.
    pub largest_written: u64,
    /// Dollars by model; empty for published accounts.
    pub dollars: BTreeMap<String, f64>,
}

/// The ledger against what the API reported.
#[derive(Clone, Debug, Serialize)]
pub struct Reconciled {
    /// The workload.
    pub workload: String,
    /// The model it was recorded on.
    pub model: String,
    /// Where the tokens before the first message come from.
    pub fixed_is: &'static str,
    /// Those tokens, in the model's own.
    pub fixed: u64,
    /// Calls compared.
    pub calls: usize,
    /// The median of `ledger / reported - 1`.
    pub median: f64,
    /// The median of its size.
    pub median_abs: f64,
    /// The largest size.
    pub worst_abs: f64,
    /// The median size without the tokens before the first message.
    pub growth_median_abs: Option<f64>,
}

/// What waiting for files does to the prompt cache.
#[derive(Clone, Debug, Serialize)]
pub struct Delay {
    /// The workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// The longest that one turn waits for files, in milliseconds, rounded up.
    pub longest_ms: u64,
    /// Calls whose prompt has expired.
    pub expired: usize,
    /// Of them, those that would not have if files took no time.
    pub because_of_files: usize,
}

impl ContextCost {
    /// A figure by its name in claims.
    pub fn figure(&self, name: &str) -> Option<u64> {
        Some(match name {
            "entering" => self.entering,
            "resent" => self.resent,
            "fresh" => self.fresh,
            "output" => self.output,
            "peak" => self.peak,
            "largest-entering" => self.largest_entering,
            "largest-written" => self.largest_written,
            _ => return None,
        })
    }

    /// The names that [`ContextCost::figure`] knows.
    pub const FIGURES: [&str; 7] = [
        "entering",
        "resent",
        "fresh",
        "output",
        "peak",
        "largest-entering",
        "largest-written",
    ];
}

/// Accounts for the contexts of a run.
///
/// # Errors
/// If a model has no price on the day of the run.
pub fn contexts(run: &Run, prices: &Prices) -> Result<Contexts, String> {
    let day: String = run.plan.created.chars().take(10).collect();
    let mut found = Contexts::default();
    if !run.contexts.is_empty() {
        for model in MODELS {
            found.prices.push(prices.of(model, &day)?.label());
        }
    }
    for session in &run.contexts {
        found.costs.push(cost(session, prices, &day)?);
        if session.policy != INLINE {
            continue;
        }
        found.residuals.extend(reconciled(session));
        found.delays.extend(delays(run, session));
        for factor in &session.factors {
            let line = format!("{}: {}", factor.model, factor.label);
            if !found.factors.contains(&line) {
                found.factors.push(line);
            }
        }
    }
    Ok(found)
}

fn per_o200k(session: &SessionContext, model: &str) -> f64 {
    let known = session.factors.iter().find(|factor| factor.model == model);
    known.map_or(1.0, |factor| factor.per_o200k)
}

fn cost(session: &SessionContext, prices: &Prices, day: &str) -> Result<ContextCost, String> {
    let conversation = &session.conversation;
    let account = Account::of(conversation, &Terms::default());
    let mut dollars = BTreeMap::new();
    if session.basis != Basis::Published {
        for model in MODELS {
            let terms = Terms {
                per_o200k: per_o200k(session, model),
                ..Terms::default()
            };
            let own = Account::of(conversation, &terms);
            let price = prices.of(model, day)?;
            dollars.insert(model.to_owned(), price.dollars(&own, TTL_MS));
        }
    }
    let largest = |parts: fn(&Step) -> &[ledger::Part]| {
        let tokens = conversation
            .steps
            .iter()
            .flat_map(parts)
            .map(|part| part.tokens);
        tokens.max().unwrap_or(0)
    };
    Ok(ContextCost {
        workload: session.workload.clone(),
        policy: session.policy.clone(),
        basis: session.basis,
        calls: account.calls.len(),
        entering: account.entering,
        resent: account.resent(),
        fresh: account.fresh(),
        cached: account.cached(),
        output: account.output(),
        peak: account.peak(),
        full_at_call: account.full_after(WINDOW),
        expired: account.expired(),
        compactions: account.compactions,
        largest_entering: largest(|step| &step.enters),
        largest_written: largest(|step| &step.emits),
        dollars,
    })
}

fn reconciled(session: &SessionContext) -> Option<Reconciled> {
    let model = session.model.as_ref()?;
    let terms = Terms {
        per_o200k: per_o200k(session, model),
        ..Terms::default()
    };
    let found = residual(&session.conversation, &terms)?;
    Some(Reconciled {
        workload: session.workload.clone(),
        model: model.clone(),
        fixed_is: session.conversation.fixed_is.name(),
        fixed: (session.conversation.fixed as f64 * terms.per_o200k).round() as u64,
        calls: found.calls,
        median: found.median,
        median_abs: found.median_abs,
        worst_abs: found.worst_abs,
        growth_median_abs: found.growth_median_abs,
    })
}

/// How long the turns of a session wait for each arm's files, caches hot, by the arm's own mean times.
fn delays(run: &Run, session: &SessionContext) -> Vec<Delay> {
    let without = Account::of(&session.conversation, &Terms::default()).expired();
    let arms = run.plan.arms.iter().filter_map(|arm| {
        let mut means: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let samples = run.samples.iter().filter(|sample| {
            sample.arm == arm.name
                && sample.workload == session.workload
                && sample.state == "hot"
                && sample.outcome == Outcome::Ok
        });
        for (kind, calls) in samples.flat_map(|sample| &sample.calls) {
            let (total, count) = means.entry(kind).or_default();
            *total += calls.total_ns;
            *count += calls.count;
        }
        if means.is_empty() {
            return None;
        }
        let waits_ms = |step: &Step| {
            let ns = step.files.iter().map(|(kind, calls)| {
                let (total, count) = means.get(kind.as_str()).copied().unwrap_or((0, 1));
                calls * total / count.max(1)
            });
            ns.sum::<u64>().div_ceil(1_000_000)
        };
        let account = Account::delayed(&session.conversation, &Terms::default(), waits_ms);
        Some(Delay {
            workload: session.workload.clone(),
            arm: arm.name.clone(),
            longest_ms: session
                .conversation
                .steps
                .iter()
                .map(waits_ms)
                .max()
                .unwrap_or(0),
            expired: account.expired(),
            because_of_files: account.expired().saturating_sub(without),
        })
    });
    arms.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn found(run: &Run) -> Contexts {
        contexts(run, &Prices::built_in().unwrap()).unwrap()
    }

    #[test]
    fn a_backend_slow_enough_to_outlive_the_cache_breaks_the_prefix() {
        let mut run = testing::run();
        let expired = |run: &Run| {
            let found = found(run);
            let of = |arm: &str| {
                found
                    .delays
                    .iter()
                    .find(|delay| delay.arm == arm)
                    .unwrap()
                    .because_of_files
            };
            (of("direct"), of("sqlite"))
        };
        assert_eq!(expired(&run), (0, 0));
        // From 10 microseconds a call to 100 seconds; each scripted turn makes one, four minutes after the last.
        testing::scale(&mut run, "sqlite", 1e7);
        let (direct, sqlite) = expired(&run);
        assert_eq!(direct, 0);
        assert!(sqlite > 0);
    }

    #[test]
    fn a_run_on_a_day_without_prices_is_an_error_that_names_the_model() {
        let mut run = testing::run();
        run.plan.created = "2020-01-01T00:00:00Z".to_owned();
        let error = contexts(&run, &Prices::built_in().unwrap()).unwrap_err();
        assert!(
            error.contains("claude-opus-5-5 has no price on 2020-01-01"),
            "{error}"
        );
        // A run without sessions has nothing to price.
        run.contexts.clear();
        assert!(contexts(&run, &Prices::built_in().unwrap()).is_ok());
    }

    #[test]
    fn every_figure_that_a_claim_may_name_is_there() {
        let cost = &found(&testing::run()).costs[0];
        for figure in ContextCost::FIGURES {
            assert!(cost.figure(figure).is_some(), "{figure}");
        }
        assert_eq!(cost.figure("nonsense"), None);
    }
}
