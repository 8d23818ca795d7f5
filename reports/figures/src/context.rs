//! The cost of a run's session contexts: accounts, dollars, residuals, and the effect of slow files.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use tokens::{Account, CacheResidual, CallTokens, PartKind, Step, Terms, cached_prompts, residual};

use crate::prices::{Cache, ModelPrices, Prices};
use crate::summary::void;
use rundir::{Basis, CONTEXTS, Outcome, Run, Sample, SessionContext};

/// The models whose dollars a report shows: one of each provider in the price list.
pub const MODELS: [&str; 3] = ["claude-opus-5-5", "gpt-6.1-sol", "gemini-3.1-pro-preview"];

/// The context window that a report assumes, in the session's `o200k` tokens.
pub const WINDOW: u64 = 200_000;

/// In place of a model: the models that a session was recorded on.
pub const RECORDED: &str = "recorded";

/// The figure of a context in dollars.
pub const DOLLARS: &str = "dollars";

/// The context policy that keeps everything.
pub const INLINE: &str = "inline";

/// All results about contexts that follow from a run.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Contexts {
    /// The costs by workload and policy, in the run's order.
    pub costs: Vec<ContextCost>,
    /// The ledger against the API's figures for the same prompts, by workload.
    pub residuals: Vec<Reconciliation>,
    /// The effect of waiting for files on the prompt cache, by workload, arm and cache state.
    pub delays: Vec<Delay>,
    /// The token factors of the dollars and residuals.
    pub factors: Vec<String>,
    /// The rows of the price list behind the dollars.
    pub prices: Vec<String>,
}

/// The cost of a session under a policy. Tokens are `o200k` tokens; published accounts keep their own units.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ContextCost {
    /// The workload.
    pub workload: String,
    /// The context policy.
    pub policy: String,
    /// The origin of the token counts.
    pub basis: Basis,
    /// Calls of the model.
    pub calls: usize,
    /// Tokens that enter the context for the first time.
    pub entering: u64,
    /// Prompt tokens of all calls, cached or not.
    pub resent: u64,
    /// Prompt tokens that the cache does not serve.
    pub fresh: u64,
    /// Prompt tokens that the cache serves.
    pub cached: u64,
    /// Output tokens of the model.
    pub output: u64,
    /// The largest prompt with its answer.
    pub peak: u64,
    /// The first call, from 1, that does not fit into the window of the model; null if all fit.
    pub full_at_call: Option<usize>,
    /// Calls whose prompt had expired in the cache.
    pub expired: usize,
    /// Compactions, as recorded.
    pub compactions: usize,
    /// Subagents of the session; their contexts are not included.
    pub subagents: u64,
    /// Calls that those subagents made.
    pub subagent_calls: u64,
    /// The largest single part that entered, in tokens.
    pub largest_entering: u64,
    /// The largest single part that the model wrote, in tokens.
    pub largest_written: u64,
    /// Dollars by model; empty for published accounts.
    pub dollars: BTreeMap<String, f64>,
    /// Dollars on the models that the session was recorded on; null for sessions without a recording.
    pub recorded: Option<RecordedDollars>,
}

/// The dollars of a session on the models that it was recorded on, each call on its own model.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RecordedDollars {
    /// The models, the one with most tokens first.
    pub models: Vec<String>,
    /// The dollars; null if one of the models has no price.
    pub dollars: Option<f64>,
    /// The models without a price on the day of the run.
    pub unpriced: Vec<String>,
}

/// The ledger against the figures that the API reported.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Reconciliation {
    /// The workload.
    pub workload: String,
    /// The model it was recorded on.
    pub model: String,
    /// The origin of the tokens before the first message.
    pub fixed_is: &'static str,
    /// Tokens before the first message, in the model's own tokens.
    pub fixed: u64,
    /// Calls compared.
    pub calls: usize,
    /// The median of `ledger / reported - 1`.
    pub median: f64,
    /// The median of its absolute value.
    pub median_abs: f64,
    /// The largest absolute value.
    pub worst_abs: f64,
    /// The median absolute value without the tokens before the first message.
    pub growth_median_abs: Option<f64>,
    /// The residual of the prompt cache; null if the API reported no cache read.
    pub cache: Option<CacheResidual>,
    /// Dollars of the prompts after the first: the ledger's and the reported ones; null without a price, or without a
    /// reported cache read.
    pub dollars: Option<(f64, f64)>,
    /// Tokens of the context before a compaction: the ledger's, and the client's record.
    pub before_compaction: Option<(u64, u64)>,
}

/// The effect of waiting for files on the prompt cache.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Delay {
    /// The workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// The cache state of its passes.
    pub state: String,
    /// Timed passes.
    pub passes: usize,
    /// Passes in which calls timed out or hung. Their times are unknown and in no mean.
    /// In the worst case every call takes twice the call timeout, at which the watchdog aborts it.
    pub too_slow: usize,
    /// Passes left out because of another outcome.
    pub left_out: usize,
    /// Kinds of calls in the session that no pass has timed; they count as instant.
    pub untimed: Vec<String>,
    /// The cost if files took no time.
    pub without: WaitCost,
    /// The cost if each call takes the mean time of its kind.
    pub typical: WaitCost,
    /// The cost if each call takes the longest time of its kind.
    pub worst: WaitCost,
}

/// The cost of a session that waits for its files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WaitCost {
    /// The longest wait of one turn for files, in milliseconds, rounded up.
    pub longest_ms: u64,
    /// Calls whose prompt has expired in the cache.
    pub expired: usize,
    /// `o200k` prompt tokens that the cache does not serve.
    pub fresh: u64,
    /// Dollars, on the first model of the price list that reports name.
    pub dollars: f64,
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

    /// The dollars that a reader of the session pays, if they are known: on the models that it was recorded on, or else on
    /// the first of [`MODELS`].
    pub fn paid(&self) -> Option<f64> {
        let own = self.recorded.as_ref().and_then(|recorded| recorded.dollars);
        own.or_else(|| self.dollars.get(MODELS[0]).copied())
    }

    /// The names that [`ContextCost::figure`] knows.
    pub const FIGURES: [&str; 7] =
        ["entering", "resent", "fresh", "output", "peak", "largest-entering", "largest-written"];
}

/// Checks that each of [`MODELS`] has a price on a day.
///
/// # Errors
/// A message that names the first model without a price.
pub fn check_prices(prices: &Prices, day: &str) -> Result<(), String> {
    MODELS.iter().try_for_each(|model| prices.of(model, day).map(|_| ()))
}

/// Accounts for the contexts of a run.
///
/// # Errors
/// If one of [`MODELS`] has no price on the day of the run, or a context lacks tokens of its session.
pub fn contexts(run: &Run, prices: &Prices) -> Result<Contexts, String> {
    let day: String = run.plan.created.chars().take(10).collect();
    let mut found = Contexts::default();
    check_users(&run.contexts)?;
    let timed = timed(run);
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
        if let Some(model) = &session.model
            && let Ok(price) = prices.of(model, &day)
            && !found.prices.contains(&price.label())
        {
            found.prices.push(price.label());
        }
        found.residuals.extend(reconciled(session, prices, &day));
        found.delays.extend(delays(run, &timed, session, prices.of(MODELS[0], &day)?));
        for factor in &session.factors {
            let line = format!("{}: {}", factor.model, factor.label);
            if !found.factors.contains(&line) {
                found.factors.push(line);
            }
        }
    }
    Ok(found)
}

/// Checks that a session has the same messages of its user under each context policy: only results and files can leave a context.
fn check_users(contexts: &[SessionContext]) -> Result<(), String> {
    let of_user = |session: &SessionContext| -> u64 {
        let parts = session.conversation.steps.iter().flat_map(|step| &step.enters);
        parts.filter(|part| part.kind == PartKind::User).map(|part| part.tokens).sum()
    };
    let inline = contexts.iter().filter(|session| session.policy == INLINE);
    let inline: BTreeMap<&str, u64> = inline.map(|session| (&*session.workload, of_user(session))).collect();
    for session in contexts.iter().filter(|session| session.basis != Basis::Published) {
        let (workload, policy, own) = (&session.workload, &session.policy, of_user(session));
        if let Some(all) = inline.get(&**workload).filter(|all| **all != own) {
            return Err(format!(
                "{CONTEXTS}: {workload} under {policy}: field `conversation.steps.enters`: {own} tokens of the user, and {all} under {INLINE}"
            ));
        }
    }
    Ok(())
}

/// The billing terms of a session on a model.
fn terms(session: &SessionContext, model: &str) -> Terms {
    let known = session.factors.iter().find(|factor| factor.model == model);
    known.map_or(Terms::default(), |factor| Terms {
        per_o200k: factor.per_o200k,
        thinking: factor.thinking,
        ..Terms::default()
    })
}

/// The terms for `o200k` tokens, with thinking kept as on the recorded model.
pub fn o200k(session: &SessionContext) -> Terms {
    Terms { per_o200k: 1.0, ..terms(session, session.model.as_deref().unwrap_or_default()) }
}

/// The dollars of a session on its own models. `None` without a recording.
fn recorded(session: &SessionContext, prices: &Prices, day: &str) -> Option<RecordedDollars> {
    let own = session.model.as_ref().filter(|_| session.basis != Basis::Published)?;
    let terms = terms(session, own);
    let account = Account::of(&session.conversation, &terms);
    let mut by_model: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
    let mut unpriced = BTreeSet::new();
    for (step, call) in session.conversation.steps.iter().zip(&account.calls) {
        let model = if step.model.is_empty() { own } else { &step.model };
        let scale = per_o200k(session, model) / terms.per_o200k;
        let scaled = |tokens: u64| (tokens as f64 * scale).round() as u64;
        let (prompt, cached, output) = (scaled(call.prompt), scaled(call.cached), scaled(call.output));
        let (tokens, dollars) = by_model.entry(model).or_default();
        *tokens = tokens.saturating_add(prompt).saturating_add(output);
        match prices.of(model, day) {
            Ok(price) => *dollars += price.bill(&[CallTokens { prompt, cached, output, ..*call }], Cache::FiveMinutes),
            Err(_) => {
                unpriced.insert(model.to_owned());
            }
        }
    }
    let mut models: Vec<(&str, u64)> = by_model.iter().map(|(model, (tokens, _))| (*model, *tokens)).collect();
    models.sort_by_key(|(_, tokens)| Reverse(*tokens));
    let dollars = by_model.values().fold(0.0, |sum, (_, dollars)| sum + dollars);
    Some(RecordedDollars {
        models: models.into_iter().map(|(model, _)| model.to_owned()).collect(),
        dollars: unpriced.is_empty().then_some(dollars),
        unpriced: unpriced.into_iter().collect(),
    })
}

/// A model's own tokens per `o200k` token, as the run recorded it.
fn per_o200k(session: &SessionContext, model: &str) -> f64 {
    let known = session.factors.iter().find(|factor| factor.model == model);
    known.map_or_else(|| tokens::factor(model).per_o200k, |factor| factor.per_o200k)
}

fn cost(session: &SessionContext, prices: &Prices, day: &str) -> Result<ContextCost, String> {
    let conversation = &session.conversation;
    let account = Account::of(conversation, &o200k(session));
    let mut dollars = BTreeMap::new();
    if session.basis != Basis::Published {
        for model in MODELS {
            let model_account = Account::of(conversation, &terms(session, model));
            let price = prices.of(model, day)?;
            dollars.insert(model.to_owned(), price.dollars(&model_account, Cache::FiveMinutes));
        }
    }
    let largest = |parts: fn(&Step) -> &[tokens::Part]| {
        let tokens = conversation.steps.iter().flat_map(parts).map(|part| part.tokens);
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
        subagents: conversation.subagents,
        subagent_calls: conversation.subagent_calls,
        largest_entering: largest(|step| &step.enters),
        largest_written: largest(|step| &step.emits),
        dollars,
        recorded: recorded(session, prices, day),
    })
}

fn reconciled(session: &SessionContext, prices: &Prices, day: &str) -> Option<Reconciliation> {
    let model = session.model.as_ref()?;
    let terms = terms(session, model);
    let found = residual(&session.conversation, &terms)?;
    let price = prices.of(model, day).ok();
    let dollars = price.filter(|_| found.cache.is_some()).map(|price| {
        let (ours, theirs) = cached_prompts(&session.conversation, &terms);
        let bill = |calls: &[_]| price.bill(calls, Cache::FiveMinutes);
        (bill(&ours), bill(&theirs))
    });
    Some(Reconciliation {
        workload: session.workload.clone(),
        model: model.clone(),
        fixed_is: session.conversation.fixed_is.name(),
        fixed: (session.conversation.fixed as f64 * terms.per_o200k).round() as u64,
        calls: found.calls,
        median: found.median,
        median_abs: found.median_abs,
        worst_abs: found.worst_abs,
        growth_median_abs: found.growth_median_abs,
        cache: found.cache,
        dollars,
        before_compaction: found.before_compaction,
    })
}

/// Timed passes of valid epochs: by workload, then by arm and cache state.
type TimedPasses<'a> = BTreeMap<&'a str, BTreeMap<(&'a str, &'a str), Vec<&'a Sample>>>;

fn timed(run: &Run) -> TimedPasses<'_> {
    let void = void(run);
    let mut timed = TimedPasses::new();
    for sample in &run.samples {
        if sample.warm_up || sample.outcome == Outcome::Skipped || void.contains(&sample.epoch) {
            continue;
        }
        let of_workload = timed.entry(&sample.workload).or_default();
        let place = (sample.arm.as_str(), sample.state.as_str());
        of_workload.entry(place).or_default().push(sample);
    }
    timed
}

/// The waits of a session's turns for each arm's files in each cache state, from the arm's measured times.
fn delays(run: &Run, timed: &TimedPasses<'_>, session: &SessionContext, price: &ModelPrices) -> Vec<Delay> {
    let limit_ns = run.plan.settings.call_timeout_ms.saturating_mul(2_000_000);
    let passes = timed.get(session.workload.as_str()).into_iter().flatten();
    passes.map(|(place, samples)| delay(session, price, *place, samples, limit_ns)).collect()
}

fn delay(
    session: &SessionContext,
    price: &ModelPrices,
    (arm, state): (&str, &str),
    samples: &[&Sample],
    limit_ns: u64,
) -> Delay {
    let is_slow = |sample: &&&Sample| matches!(sample.outcome, Outcome::Timeout | Outcome::Hang);
    let too_slow = samples.iter().filter(is_slow).count();
    let timed: Vec<&&Sample> =
        samples.iter().filter(|sample| sample.outcome == Outcome::Ok || is_slow(sample)).collect();
    let mut times: BTreeMap<&str, KindTimes> = BTreeMap::new();
    for (kind, calls) in timed.iter().flat_map(|sample| &sample.calls) {
        let times = times.entry(kind).or_default();
        times.total_ns += calls.total_ns;
        times.count += calls.count;
        times.max_ns = times.max_ns.max(calls.max_ns);
    }
    let kinds = session.conversation.steps.iter();
    let kinds: BTreeSet<&str> = kinds.flat_map(|step| step.files.keys().map(String::as_str)).collect();
    let mean_ns = |kind: &str| {
        let times = times.get(kind);
        times.map_or(0, |times| times.total_ns / times.count.max(1))
    };
    let worst_ns = |kind: &str| {
        let slowest = times.get(kind).map_or(0, |times| times.max_ns);
        if too_slow > 0 { slowest.max(limit_ns) } else { slowest }
    };
    let waited = |call_ns: &dyn Fn(&str) -> u64| {
        let wait_ms = |step: &Step| {
            let ns = step.files.iter().map(|(kind, calls)| calls * call_ns(kind));
            ns.sum::<u64>().div_ceil(1_000_000)
        };
        let steps = session.conversation.steps.iter();
        let account = Account::delayed(&session.conversation, &o200k(session), wait_ms);
        let priced = terms(session, MODELS[0]);
        let priced = Account::delayed(&session.conversation, &priced, wait_ms);
        WaitCost {
            longest_ms: steps.map(wait_ms).max().unwrap_or(0),
            expired: account.expired(),
            fresh: account.fresh(),
            dollars: price.dollars(&priced, Cache::FiveMinutes),
        }
    };
    Delay {
        workload: session.workload.clone(),
        arm: arm.to_owned(),
        state: state.to_owned(),
        passes: timed.len(),
        too_slow,
        left_out: samples.len() - timed.len(),
        untimed: kinds.into_iter().filter(|kind| !times.contains_key(kind)).map(str::to_owned).collect(),
        without: waited(&|_| 0),
        typical: waited(&mean_ns),
        worst: waited(&worst_ns),
    }
}

/// Service times of the calls of one kind, in nanoseconds.
#[derive(Default)]
struct KindTimes {
    total_ns: u64,
    count: u64,
    max_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn found(run: &Run) -> Contexts {
        contexts(run, &Prices::built_in().unwrap()).unwrap()
    }

    fn delay(run: &Run, arm: &str, state: &str) -> Delay {
        let mut delays = found(run).delays.into_iter();
        delays.find(|delay| delay.arm == arm && delay.state == state).unwrap()
    }

    #[test]
    fn a_context_without_the_messages_of_its_user_is_refused() {
        let mut run = testing::run();
        for context in &mut run.contexts {
            context.conversation.steps[0].enters.push(tokens::Part::new(PartKind::User, 30));
        }
        found(&run);
        // A published account may leave them out.
        run.contexts[2].conversation.steps[0].enters.clear();
        found(&run);
        let evict = &mut run.contexts[1].conversation;
        evict.steps.iter_mut().for_each(|step| step.enters.clear());
        let refused = contexts(&run, &Prices::built_in().unwrap()).unwrap_err();
        assert_eq!(
            refused,
            "contexts.jsonl: agent/session under evict: field `conversation.steps.enters`: 0 tokens of the user, and 30 under inline"
        );
    }

    #[test]
    fn a_backend_slow_enough_to_outlive_the_cache_breaks_the_prefix() {
        let mut run = testing::run();
        let of = |run: &Run, arm: &str| delay(run, arm, "hot");
        for arm in ["direct", "sqlite"] {
            let delay = of(&run, arm);
            assert_eq!((delay.worst.expired, delay.without.expired), (0, 0), "{arm}");
            assert_eq!(delay.worst.fresh, delay.without.fresh);
            assert!(delay.worst.longest_ms >= delay.typical.longest_ms);
        }
        // From 200 microseconds per call to 100 seconds. Each scripted turn makes one call, four minutes
        // after the last.
        testing::scale(&mut run, "sqlite", 5e5);
        assert_eq!(of(&run, "direct").worst.expired, 0);
        let slow = of(&run, "sqlite");
        assert!(slow.typical.expired > 0 && slow.worst.expired >= slow.typical.expired);
        assert!(slow.typical.fresh > slow.without.fresh);
        assert!(slow.typical.dollars > slow.without.dollars);
    }

    #[test]
    fn a_timed_out_pass_counts_in_the_worst_case() {
        let mut run = testing::run();
        run.plan.settings.call_timeout_ms = 200_000;
        let passes = run.samples.iter_mut();
        let mut passes =
            passes.filter(|sample| sample.arm == "sqlite" && sample.workload == "agent/session" && !sample.warm_up);
        let one = passes.next().unwrap();
        (one.outcome, one.calls) = (Outcome::Timeout, BTreeMap::new());
        let state = one.state.clone();
        let two = passes.find(|sample| sample.state == state).unwrap();
        two.outcome = Outcome::Crash;
        let delay = delay(&run, "sqlite", &state);
        assert_eq!((delay.too_slow, delay.left_out), (1, 1));
        // The call is aborted after 400 seconds. It is in no mean, but it outlives the cache.
        assert_eq!((delay.typical.expired, delay.worst.longest_ms), (0, 400_000));
        assert!(delay.worst.expired > 0);
    }

    #[test]
    fn a_call_kind_without_a_timed_pass_is_named() {
        let mut run = testing::run();
        for session in &mut run.contexts {
            session.conversation.steps[0].files.insert("append".to_owned(), 3);
        }
        let mut delays = found(&run).delays.into_iter();
        assert!(delays.all(|delay| delay.untimed == ["append"]));
    }

    #[test]
    fn the_cache_is_reconciled_in_dollars_too() {
        let mut run = testing::run();
        for step in &mut run.contexts[0].conversation.steps {
            step.reported.as_mut().unwrap().cached = 1000;
        }
        let found = found(&run);
        let [residual] = &found.residuals[..] else {
            panic!("{:?}", found.residuals);
        };
        let cache = residual.cache.unwrap();
        assert_eq!((cache.calls, cache.fresh.1), (2, 13_500 + 14_000));
        let (ours, theirs) = residual.dollars.unwrap();
        // Sonnet 4.5: 3.75 dollars per million tokens written to the cache, 0.30 per million read.
        assert!((theirs - (27_500.0 * 3.75 + 2000.0 * 0.3) / 1e6).abs() < 1e-9, "{theirs}");
        assert!(ours > 0.0 && ours < theirs);
    }

    #[test]
    fn a_run_on_a_day_without_prices_is_an_error_that_names_the_model() {
        let mut run = testing::run();
        run.plan.created = "2020-01-01T00:00:00Z".to_owned();
        let error = contexts(&run, &Prices::built_in().unwrap()).unwrap_err();
        assert!(error.contains("claude-opus-5-5 has no price on 2020-01-01"), "{error}");
        assert_eq!(check_prices(&Prices::built_in().unwrap(), "2020-01-01").unwrap_err(), error);
        // A run without sessions needs no prices.
        run.contexts.clear();
        assert!(contexts(&run, &Prices::built_in().unwrap()).is_ok());
    }

    #[test]
    fn a_session_is_priced_on_its_own_models_and_one_without_a_price_leaves_the_sum_unknown() {
        let prices = Prices::built_in().unwrap();
        let run = testing::run();
        let session = run.contexts[0].clone();
        let day = &run.plan.created[..10];
        let of = |session: &SessionContext| recorded(session, &prices, day).unwrap();
        let own = of(&session);
        assert_eq!((&own.models[..], &own.unpriced[..]), (&["claude-sonnet-4-5".to_owned()][..], &[][..]));
        let bill = |model: &str| {
            let account = Account::of(&session.conversation, &terms(&session, "claude-sonnet-4-5"));
            prices.of(model, day).unwrap().dollars(&account, Cache::FiveMinutes)
        };
        let sonnet = own.dollars.unwrap();
        assert!((sonnet - bill("claude-sonnet-4-5")).abs() < 1e-9 && sonnet > 0.0);
        // Each call is paid on its own model: the last one has a third of the price and the same tokens.
        let mut changed = session.clone();
        changed
            .factors
            .push(rundir::ModelFactor { model: "claude-haiku-4-5".to_owned(), ..session.factors[0].clone() });
        changed.conversation.steps[1].model = "claude-haiku-4-5".to_owned();
        changed.conversation.steps[2].model = "claude-haiku-4-5".to_owned();
        let both = of(&changed);
        assert_eq!(both.models, ["claude-haiku-4-5", "claude-sonnet-4-5"]);
        assert!(both.dollars.unwrap() < sonnet && both.dollars.unwrap() > bill("claude-haiku-4-5"), "{both:?}");
        changed.conversation.steps[2].model = "own-model".to_owned();
        let unknown = of(&changed);
        assert_eq!((unknown.dollars, &unknown.unpriced[..]), (None, &["own-model".to_owned()][..]));
        // A generated session and a published account have no models of their own.
        changed.model = None;
        assert_eq!(recorded(&changed, &prices, day), None);
        assert_eq!(recorded(&SessionContext { basis: Basis::Published, ..session }, &prices, day), None);
    }

    #[test]
    fn a_session_without_a_call_costs_zero_dollars_and_not_minus_zero() {
        let mut run = testing::run();
        run.contexts.truncate(1);
        run.contexts[0].conversation.steps.clear();
        let cost = found(&run).costs.remove(0);
        let all = cost.dollars.values().copied().chain(cost.recorded.unwrap().dollars);
        assert!(all.into_iter().all(|dollars| format!("{dollars:.4}") == "0.0000"), "{:?}", cost.dollars);
    }

    #[test]
    fn a_cost_has_every_figure_that_a_claim_may_name() {
        let cost = &found(&testing::run()).costs[0];
        for figure in ContextCost::FIGURES {
            assert!(cost.figure(figure).is_some(), "{figure}");
        }
        assert_eq!(cost.figure("nonsense"), None);
    }
}
