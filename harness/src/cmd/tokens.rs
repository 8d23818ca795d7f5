//! `ctxbench tokens`: computes tokens and cost of a session's context.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use figures::prices::{Cache, ModelPrices, Prices};
use jiff::{Span, SpanRelativeTo};
use reports::render::{columns, count, number_of, table};
use schemars::JsonSchema;
use serde::Serialize;
use session_traces::{Blobs, TraceOrigin, trace};
use tokens::{Account, Conversation, PartKind, Residual, Terms, cached_prompts, median, residual};
use workloads::catalogue;
use workloads::compile::compile;
use workloads::context::{ContextPolicy, INLINE, context};
use workloads::conversation::of_trace;
use workloads::definition::SessionSource;
use workloads::render::{RenderedAgain, rendered_again};
use workloads::trace::{Fidelity, Trace, TraceSource};

use super::format::print_json;
use crate::advice::{RuleAdvice, RuleAnswer, rules, wants_files};
use crate::environment::today;
use crate::evidence::PriceList;
use crate::session_contexts::basis;
use crate::sessions::{Recording, format_names};

/// The model whose prices count if a session records no model.
const DEFAULT_MODEL: &str = "claude-opus-5-5";

/// Count what a session's context costs.
///
/// Counts the tokens that enter the context, the tokens that are sent again with each call, and dollars. The prompt of
/// each call of the model's API is reconstructed from all earlier messages, tool calls and results. A prompt cache
/// serves the part that was sent before, until its time to live is over. For a recorded session, the counts are
/// compared with the usage that the API reported.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench tokens --workload agent/offload-comparison --policy inline --policy offload --policy evict
  ctxbench tokens ~/.claude/projects/*/*.jsonl
  ctxbench tokens session.jsonl --advise    # should its results be in files?
  ctxbench tokens my.trace.jsonl --model claude-opus-5-5 --cache-ttl 1h --window 400000

With several inputs, an unreadable one is reported and skipped, and the exit code is 1.
docs/TOKENS.md explains the columns and the factors.")]
pub struct Tokens {
    /// Traces (`*.trace.jsonl`), or recorded sessions.
    files: Vec<PathBuf>,
    /// The format of the recorded sessions [default: detected from their content].
    #[arg(long, value_name = "FORMAT", value_parser = format_names())]
    format: Option<String>,
    /// A built-in workload, or the path of a workload file.
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// A context policy: a built-in one or the path of a file [default: inline].
    #[arg(long, value_name = "NAME")]
    policy: Vec<String>,
    /// The model whose tokens and prices count, or `none` for no prices [default: the recorded model, or
    /// claude-opus-5-5 if none is recorded].
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The context window in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    window: u64,
    /// How long a prompt stays cached after its last use: 5m, 1h if the model's provider offers it, or 0 for no cache.
    /// Without prices (`--model none`), any time, such as 90s.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = milliseconds)]
    cache_ttl: u64,
    #[command(flatten)]
    prices: PriceList,
    /// Use the prices of this day [default: today].
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    on: Option<String>,
    /// Say by nine published rules (source 5 of docs/BIAS.md) whether results belong in files, and what `evict` would save.
    #[arg(long)]
    advise: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A session to account for.
struct CountedSession {
    name: String,
    agent: String,
    /// The model that was recorded.
    model: Option<String>,
    source: SessionSource,
    inline: Conversation,
    /// The recording's reads, rendered again, if their contents are known.
    again: Option<RenderedAgain>,
}

/// A session, as `tokens` prints it for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct SessionJson {
    session: String,
    agent: String,
    recorded_model: Option<String>,
    model: String,
    per_o200k: f64,
    factor: String,
    /// Whether the model's thinking stays in the context.
    thinking: &'static str,
    /// The row of the price list, and the day for which it was looked up.
    price: Option<String>,
    priced_for: Option<String>,
    subagents: u64,
    subagent_calls: u64,
    fixed_tokens: u64,
    fixed_is: &'static str,
    policies: Vec<PolicyJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<AdviceJson>,
    reconciled: Option<LedgerCheck>,
    rendered_again: Option<RenderedAgain>,
}

/// A session under a context policy.
#[derive(Serialize, JsonSchema)]
struct PolicyJson {
    policy: String,
    tokens_are: &'static str,
    calls: usize,
    entering: u64,
    resent: u64,
    fresh: u64,
    cached: u64,
    output: u64,
    peak: u64,
    full_at_call: Option<usize>,
    expired: usize,
    compactions: usize,
    dollars: Option<f64>,
    dollars_without_cache: Option<f64>,
}

/// What source 5's rules advise.
#[derive(Serialize, JsonSchema)]
struct AdviceJson {
    rules: [RuleAnswer; 9],
    /// Whether large results belong into files.
    use_files: bool,
    /// Tokens of all prompts and dollars under `evict`, less those under `inline`: negative if it saves some. Simulated.
    evict_resent: i64,
    evict_dollars: Option<f64>,
}

/// The ledger against the usage that the API reported.
#[derive(Serialize, JsonSchema)]
struct LedgerCheck {
    #[serde(flatten)]
    residual: Residual,
    /// Dollars of the prompts after the first, in the ledger and as reported, on the recorded model.
    prompt_dollars: Option<(f64, f64)>,
}

impl Tokens {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.files.is_empty() && self.workload.is_empty() {
            bail!("nothing to count: name traces, recorded sessions, or --workload");
        }
        let prices = self.prices.read()?;
        let names = if self.policy.is_empty() { vec![INLINE.to_owned()] } else { self.policy.clone() };
        let policies: Vec<ContextPolicy> = names.iter().map(|name| context(name)).collect::<Result<_, _>>()?;
        let inputs = self.files.len() + self.workload.len();
        let mut all = Vec::new();
        let mut failed = false;
        let files = self.files.iter().map(|file| self.of_file(file));
        let workloads = self.workload.iter().map(|name| of_workload(name));
        for counted in files.chain(workloads) {
            let accounts = counted.and_then(|sessions| {
                let accounts = sessions.iter();
                let accounts = accounts.map(|session| self.account(session, &policies, &prices));
                accounts.collect::<anyhow::Result<Vec<_>>>()
            });
            match accounts {
                Ok(accounts) => {
                    // Print each session at once: the user may have named hundreds.
                    for session in accounts.iter().filter(|_| !self.json) {
                        print!("{}", self.page(session));
                    }
                    all.extend(accounts);
                }
                Err(error) if inputs == 1 => return Err(error),
                Err(error) => {
                    eprintln!("{error:#}");
                    failed = true;
                }
            }
        }
        if self.json {
            print_json(&all)?;
        } else if all.len() > 1 {
            print!("{}", together(&all));
        }
        Ok(ExitCode::from(u8::from(failed)))
    }

    fn of_file(&self, file: &Path) -> anyhow::Result<Vec<CountedSession>> {
        let recording = Recording::open(file)?;
        let is_trace = file.to_string_lossy().ends_with(".trace.jsonl");
        let traces: Vec<(Trace, Option<RenderedAgain>)> = if is_trace {
            vec![(Trace::parse(file, &recording.text()?)?, None)]
        } else {
            let imported = recording.sessions(self.format.as_deref())?;
            let traces = imported.sessions.iter().map(|session| {
                let source = TraceSource {
                    format: imported.importer.id().to_owned(),
                    repo: None,
                    commit: None,
                    path: String::new(),
                    sha256: imported.sha256.clone(),
                    licence: None,
                };
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                let id = name.into_owned();
                let provenance = TraceOrigin { id, source };
                let (trace, blobs) = trace(session, &provenance, Fidelity::Content).map_err(|lost| anyhow!(lost))?;
                let again = again(&trace, &blobs).with_context(|| file.display().to_string())?;
                Ok((trace, Some(again)))
            });
            traces.collect::<anyhow::Result<_>>()?
        };
        let several = traces.len() > 1;
        (1..)
            .zip(traces)
            .map(|(number, (trace, again))| {
                let inline = of_trace(&trace);
                Ok(CountedSession {
                    name: if several { format!("{} row {number}", file.display()) } else { file.display().to_string() },
                    agent: trace.head.agent,
                    source: SessionSource::Recorded { model: trace.head.model.clone(), conversation: inline.clone() },
                    model: Some(trace.head.model),
                    inline: inline.map_err(anyhow::Error::msg).with_context(|| file.display().to_string())?,
                    again,
                })
            })
            .collect()
    }

    fn account(
        &self,
        session: &CountedSession,
        policies: &[ContextPolicy],
        prices: &Prices,
    ) -> anyhow::Result<SessionJson> {
        let mut parts = session.inline.parts();
        if parts.all(|part| part.kind != PartKind::Memory)
            && let Some(policy) = policies.iter().find(|policy| policy.needs_notes())
        {
            bail!(
                "{}: the policy {} needs a session with notes of earlier sessions\n  fix: use --workload agent/memory-1000-notes, or another policy",
                session.name,
                policy.name
            );
        }
        let recorded = session.model.as_deref();
        let wanted = self.model.as_deref().filter(|model| *model != "none");
        let model = wanted.or(recorded).unwrap_or(DEFAULT_MODEL);
        let today = today();
        let day = self.on.as_deref().unwrap_or(&today);
        let price = match (self.model.as_deref(), prices.of(model, day)) {
            (Some("none"), _) => None,
            (_, Ok(price)) => Some(price),
            (Some(_), Err(problem)) => bail!("{}: {problem}", session.name),
            // A session on a model without a price keeps its tokens.
            (None, Err(_)) if model.is_empty() => {
                eprintln!(
                    "{}: no dollars: the recording does not name its model\n  fix: name it with --model",
                    session.name
                );
                None
            }
            (None, Err(problem)) => {
                eprintln!("{}: no dollars: {problem}", session.name);
                None
            }
        };
        let cache = match price.map(|price| price.cache(self.cache_ttl)).transpose() {
            Ok(cache) => cache.unwrap_or(Cache::None),
            Err(problem) => bail!(
                "{}: {problem}\n  fix: choose another --cache-ttl, or count without prices with --model none",
                session.name
            ),
        };
        let factor = tokens::factor(model);
        let thinking = tokens::thinking_stays(model);
        let terms = Terms { per_o200k: factor.per_o200k, ttl_ms: self.cache_ttl, thinking, ..Terms::default() };
        let no_cache = Terms { ttl_ms: 0, ..terms };
        let counted = |policy: &ContextPolicy| {
            let conversation = policy.apply(&session.inline);
            let account = Account::of(&conversation, &terms);
            let uncached = Account::of(&conversation, &no_cache);
            PolicyJson {
                policy: policy.name.clone(),
                tokens_are: basis(&session.source, &policy.name).name(),
                calls: account.calls.len(),
                entering: account.entering,
                resent: account.resent(),
                fresh: account.fresh(),
                cached: account.cached(),
                output: account.output(),
                peak: account.peak(),
                full_at_call: account.full_after(self.window),
                expired: account.expired(),
                compactions: account.compactions,
                dollars: price.map(|price| price.dollars(&account, cache)),
                dollars_without_cache: price.map(|price| price.dollars(&uncached, Cache::None)),
            }
        };
        let advice = if self.advise { Some(advice(&session.inline, counted)?) } else { None };
        let policies = policies.iter().map(counted);
        // Reported usage is in tokens of the recorded model, which may differ from the priced one.
        let recorded_terms = recorded.map(|model| Terms {
            per_o200k: tokens::factor(model).per_o200k,
            thinking: tokens::thinking_stays(model),
            ..terms
        });
        let reconciled = recorded_terms.and_then(|terms| Some((terms, residual(&session.inline, &terms)?)));
        let recorded_price = recorded.filter(|_| price.is_some());
        let recorded_price = recorded_price.and_then(|model| prices.of(model, day).ok());
        let prompt_dollars = |terms: &Terms| {
            let price = recorded_price?;
            let cache = price.cache(self.cache_ttl).ok()?;
            let (ours, theirs) = cached_prompts(&session.inline, terms);
            Some((price.bill(&ours, cache), price.bill(&theirs, cache)))
        };
        Ok(SessionJson {
            session: session.name.clone(),
            agent: session.agent.clone(),
            recorded_model: session.model.clone(),
            model: model.to_owned(),
            per_o200k: factor.per_o200k,
            factor: factor.label(),
            thinking: thinking.name(),
            price: price.map(ModelPrices::label),
            priced_for: price.map(|_| day.to_owned()),
            subagents: session.inline.subagents,
            subagent_calls: session.inline.subagent_calls,
            fixed_tokens: (session.inline.fixed as f64 * factor.per_o200k).round() as u64,
            fixed_is: session.inline.fixed_is.name(),
            policies: policies.collect(),
            advice,
            reconciled: reconciled.map(|(terms, residual)| LedgerCheck {
                residual,
                prompt_dollars: residual.cache.and_then(|_| prompt_dollars(&terms)),
            }),
            rendered_again: session.again.filter(|again| again.reads > 0),
        })
    }

    fn page(&self, session: &SessionJson) -> String {
        let mut text = format!(
            "{}: {}, {}; counted for {} ({})\n",
            session.session,
            session.agent,
            session.recorded_model.as_deref().map_or("generated".to_owned(), |model| format!("recorded on {model}")),
            session.model,
            session.factor
        );
        text += &format!(
            "    fixed part: {} tokens of system prompt and tool definitions, {}; thinking {}\n",
            count(session.fixed_tokens),
            session.fixed_is,
            session.thinking
        );
        if session.subagent_calls > 0 {
            text += &format!(
                "  {} in {} not counted\n",
                number_of(session.subagent_calls as usize, "call"),
                number_of(session.subagents as usize, "subagent")
            );
        }
        match (&session.price, &session.priced_for) {
            (Some(price), Some(day)) => text += &format!("  prices of {day}, {price}\n\n"),
            _ => text += "  no prices\n\n",
        }
        let dollars = |dollars: Option<f64>| dollars.map_or("–".to_owned(), |d| format!("{d:.4}"));
        let rows: Vec<Vec<String>> = session
            .policies
            .iter()
            .map(|policy| {
                vec![
                    policy.policy.clone(),
                    policy.tokens_are.to_owned(),
                    policy.calls.to_string(),
                    count(policy.entering),
                    count(policy.resent),
                    count(policy.fresh),
                    count(policy.cached),
                    count(policy.output),
                    count(policy.peak),
                    policy.full_at_call.map_or("never".to_owned(), |call| call.to_string()),
                    policy.expired.to_string(),
                    policy.compactions.to_string(),
                    dollars(policy.dollars),
                    dollars(policy.dollars_without_cache),
                ]
            })
            .collect();
        let head = columns(&format!(
            "policy | tokens are | calls | enter once | sent in all | uncached | from cache | \
             written | peak | {} full at call | expired | compactions | USD | USD, no cache",
            count(self.window)
        ));
        text += &table(&head, &rows);
        if let Some(advice) = &session.advice {
            text += &advice_text(advice);
        }
        if let Some(found) = &session.reconciled {
            text += &format!("\n  {}\n{}", words(&found.residual), more_words(found));
        }
        if let Some(again) = &session.rendered_again {
            text += &format!(
                "  {} reads of files known byte for byte, rendered again: {} o200k tokens; the agent was shown {}\n",
                again.reads,
                count(again.rendered),
                count(again.recorded)
            );
        }
        text + "\n"
    }
}

/// What the rules find, and what `evict` would change.
fn advice(session: &Conversation, counted: impl Fn(&ContextPolicy) -> PolicyJson) -> anyhow::Result<AdviceJson> {
    let rules = rules(session);
    let [inline, evict] = [context(INLINE)?, context("evict")?].map(|policy| counted(&policy));
    let dollars = evict.dollars.zip(inline.dollars);
    Ok(AdviceJson {
        use_files: wants_files(&rules),
        rules,
        evict_resent: evict.resent.cast_signed() - inline.resent.cast_signed(),
        evict_dollars: dollars.map(|(evict, inline)| evict - inline),
    })
}

fn advice_text(advice: &AdviceJson) -> String {
    let rows = advice.rules.iter().map(|rule| {
        let says = match rule.says {
            RuleAdvice::UseFiles => "use files",
            RuleAdvice::DoWithoutFiles => "do without",
        };
        let applies = match rule.applies {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not known",
        };
        [says, rule.rule, applies, &rule.because].map(str::to_owned).to_vec()
    });
    let head = columns("source 5 says | if | applies | because");
    let rules = table(&head, &rows.collect::<Vec<_>>());
    let change =
        |number: String, is_less: bool| if is_less { format!("{number} fewer") } else { format!("{number} more") };
    let tokens = change(count(advice.evict_resent.unsigned_abs()), advice.evict_resent < 0);
    let dollars = advice
        .evict_dollars
        .map_or(String::new(), |dollars| format!(", {}", change(format!("{:.4} USD", dollars.abs()), dollars < 0.0)));
    let advised =
        if advice.use_files { "keep large results in files" } else { "leave results in the context: none is large" };
    format!(
        "\n{rules}\n  advice: {advised}; with the policy evict (simulated), all prompts have {tokens} tokens{dollars}\n"
    )
}

/// Renders a recording's reads again, from contents in a temporary directory.
fn again(trace: &Trace, blobs: &Blobs) -> anyhow::Result<RenderedAgain> {
    let dir = tempfile::tempdir()?;
    let blob_dir = dir.path().join("blobs");
    std::fs::create_dir(&blob_dir)?;
    for (digest, bytes) in blobs {
        std::fs::write(blob_dir.join(digest), bytes)?;
    }
    let script = compile(&dir.path().join("session.trace.jsonl"), trace)?;
    Ok(rendered_again(&script))
}

fn of_workload(name: &str) -> anyhow::Result<Vec<CountedSession>> {
    let workload = catalogue::workload(name)?;
    let inline = workload.conversation().map_err(anyhow::Error::msg);
    Ok(vec![CountedSession {
        name: name.to_owned(),
        agent: "a workload".to_owned(),
        model: workload.recorded_model().map(str::to_owned),
        source: workload.session,
        inline: inline.with_context(|| name.to_owned())?,
        again: None,
    }])
}

fn words(found: &Residual) -> String {
    let percent = |share: f64| format!("{:+.1} %", share * 100.0);
    let size = |share: f64| format!("{:.1} %", share * 100.0);
    format!(
        "compared with the usage that the API reported for {} calls: prompts differ by {} in the median (absolute: {} median, {} worst), and without the fixed part by {}; {} tokens here, {} reported",
        found.calls,
        percent(found.median),
        size(found.median_abs),
        size(found.worst_abs),
        found.growth_median_abs.map_or("–".to_owned(), size),
        count(found.ledger_tokens),
        count(found.reported_tokens)
    )
}

/// The comparison with reported cache usage and compactions.
fn more_words(found: &LedgerCheck) -> String {
    let mut text = String::new();
    let off = |ours: f64, theirs: f64| format!("{:+.1} %", (ours / theirs - 1.0) * 100.0);
    if let Some(cache) = &found.residual.cache {
        let (ours, theirs) = cache.fresh;
        text += &format!(
            "    prompt cache, over {} calls after the first: {} uncached tokens here, {} reported ({}); {} calls expired here, {} reported no cache read, {} did both",
            cache.calls,
            count(ours),
            count(theirs),
            off(ours as f64, theirs as f64),
            cache.expired,
            cache.missed,
            cache.expired_and_missed
        );
        if let Some((ours, theirs)) = found.prompt_dollars {
            text +=
                &format!("; their prompts cost {ours:.4} USD here, {theirs:.4} as reported ({})", off(ours, theirs));
        }
        text += "\n";
    }
    if let Some((ours, theirs)) = found.residual.before_compaction {
        text += &format!(
            "  before a compaction: {} tokens here, {} recorded by the client ({})\n",
            count(ours),
            count(theirs),
            off(ours as f64, theirs as f64)
        );
    }
    text
}

/// The sessions' median residuals.
fn together(all: &[SessionJson]) -> String {
    let medians: Vec<f64> =
        all.iter().filter_map(|session| Some(session.reconciled.as_ref()?.residual.median_abs)).collect();
    let Some(middle) = median(medians.clone()) else {
        return String::new();
    };
    let first = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let last = medians.iter().copied().fold(0.0, f64::max);
    format!(
        "{} with reported usage: the median residual of a prompt is {:.1} % in the median session, {:.1} % to {:.1} % over all\n",
        number_of(medians.len(), "session"),
        middle * 100.0,
        first * 100.0,
        last * 100.0
    )
}

fn day(text: &str) -> Result<String, String> {
    match text.parse::<jiff::civil::Date>() {
        Ok(day) => Ok(day.to_string()),
        Err(_) => Err("must be a day such as 2026-11-21".to_owned()),
    }
}

/// Parses a time such as `5m`, `1h` or `90s`, or `0`.
fn milliseconds(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    let wrong = |error: jiff::Error| format!("must be a time such as 5m, 1h or 90s, or 0: {error}");
    let span: Span = text.parse().map_err(wrong)?;
    let time = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(wrong)?;
    let whole = u64::try_from(time.as_millis()).ok();
    let whole = whole.filter(|milliseconds| *milliseconds > 0 || span.is_zero());
    whole.ok_or_else(|| "must be at least a millisecond, or 0".to_owned())
}
