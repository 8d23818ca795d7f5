//! Prices of models (`prices.toml`), and the bill of an account.

use std::path::Path;

use inputs::names::{alternatives, nearest};
use inputs::{InputError, parse_toml};
use serde::Deserialize;
use tokens::{Account, BilledUsage, CallTokens};

pub use crate::bucket_price::BucketPrice;

/// The prices that come with ctxbench.
const BUILT_IN: &str = include_str!("../../prices.toml");

/// The number of tokens that a price applies to.
const MILLION: f64 = 1e6;

/// A message lists all names of a list with at most so many.
const FEW: usize = 8;

/// The longer cache lifetime that providers sell, in milliseconds.
pub const HOUR_MS: u64 = 3_600_000;

/// A price list.
#[derive(Clone, Debug)]
pub struct Prices {
    models: Vec<ModelPrices>,
    bucket: Option<BucketPrice>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceFile {
    #[serde(rename = "model")]
    models: Vec<ModelPrices>,
    bucket: Option<BucketPrice>,
}

/// The prices of a model from a given day.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrices {
    /// Its name in this list.
    pub name: String,
    /// The provider.
    pub provider: String,
    /// Other names of the same model at the same price. Recordings may add the prefix `provider/`
    /// and a release date as a suffix.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The first day on which the row is valid or known to be valid: `2026-11-21`.
    pub effective_from: String,
    /// The source of the prices.
    pub source: String,
    /// The day on which the source was read.
    pub retrieved: String,
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: Option<f64>,
    cache_write_1h: Option<f64>,
    /// Prices of calls with larger prompts, by ascending limit.
    #[serde(default, rename = "tier")]
    tiers: Vec<Tier>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tier {
    above_prompt_tokens: u64,
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: Option<f64>,
    cache_write_1h: Option<f64>,
}

/// The prices of one call, in dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    input: f64,
    output: f64,
    cache_read: f64,
    /// The price of uncached prompt tokens, which are then written to the cache.
    fresh: f64,
}

/// The tokens of a call, or of several, as a provider reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedTokens {
    /// Prompt tokens outside the cache.
    pub uncached: u64,
    /// Prompt tokens read from the cache.
    pub cache_read: u64,
    /// Prompt tokens written to the cache for its standard lifetime.
    pub cache_write_5m: u64,
    /// Prompt tokens written to the cache for an hour.
    pub cache_write_1h: u64,
    /// Output tokens, with thinking.
    pub output: u64,
}

impl ReportedTokens {
    /// All tokens of the prompt.
    pub fn prompt(&self) -> u64 {
        let all = [self.uncached, self.cache_read, self.cache_write_5m, self.cache_write_1h];
        all.into_iter().fold(0, u64::saturating_add)
    }

    /// Adds other calls.
    pub fn add(&mut self, other: &Self) {
        self.uncached = self.uncached.saturating_add(other.uncached);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write_5m = self.cache_write_5m.saturating_add(other.cache_write_5m);
        self.cache_write_1h = self.cache_write_1h.saturating_add(other.cache_write_1h);
        self.output = self.output.saturating_add(other.output);
    }
}

/// A prompt cache that a provider sells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// No cache: every prompt token costs the input price.
    None,
    /// The standard cache, which expires five minutes after the last use.
    FiveMinutes,
    /// The cache with an hour of lifetime, which costs more to write.
    Hour,
}

impl Prices {
    /// The built-in list, or the one in a file.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field.
    pub fn find(file: Option<&Path>) -> Result<Self, InputError> {
        file.map_or_else(Self::built_in, Self::read)
    }

    /// The built-in list.
    ///
    /// # Errors
    /// If the built-in list is malformed; a test checks it.
    pub fn built_in() -> Result<Self, InputError> {
        Self::parse(Path::new("reports/prices.toml"), BUILT_IN)
    }

    /// The list in a file.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field.
    pub fn read(file: &Path) -> Result<Self, InputError> {
        Self::parse(file, &inputs::read(file)?)
    }

    /// Parses a price list; `file` is only for error messages.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field.
    pub fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        let PriceFile { models, bucket } = parse_toml(file, text)?;
        for model in &models {
            model.check().map_err(|problem| InputError::whole(file, format!("model {}: {problem}", model.name)))?;
        }
        for (at, model) in models.iter().enumerate() {
            let again = models[..at]
                .iter()
                .any(|other| other.name == model.name && other.effective_from == model.effective_from);
            if again {
                let message = format!("model {}: two rows from {}", model.name, model.effective_from);
                return Err(InputError::whole(file, message));
            }
        }
        Ok(Self { models, bucket })
    }

    /// The prices of a bucket, if the list has them.
    pub fn bucket(&self) -> Option<&BucketPrice> {
        self.bucket.as_ref()
    }

    /// The row of a model on a day such as `2026-11-21`. The whole name must match, because a name with
    /// a suffix (`-pro`, `-mini`) is another model at another price.
    ///
    /// # Errors
    /// A message that names the model if its price is unknown; an unknown price is not zero.
    pub fn of(&self, model: &str, day: &str) -> Result<&ModelPrices, String> {
        let rows: Vec<&ModelPrices> = self.models.iter().filter(|row| row.is(model)).collect();
        let in_force = rows.iter().filter(|row| row.effective_from.as_str() <= day);
        if let Some(row) = in_force.max_by(|a, b| a.effective_from.cmp(&b.effective_from)) {
            return Ok(row);
        }
        Err(match rows.first() {
            Some(row) => format!(
                "model {model} has no price on {day}: its first row holds from {}\n  fix: add a row for that day, and name the file with --prices",
                row.effective_from
            ),
            None => format!(
                "model {model:?} has no price; {}\n  fix: add a row to a copy of reports/prices.toml, and name it with --prices",
                self.alternatives(model)
            ),
        })
    }

    /// The end of a message about a model without a price.
    fn alternatives(&self, model: &str) -> String {
        let plain = plain_name(model);
        // Providers and routers stand before the name.
        let (_, name) = plain.rsplit_once('/').unwrap_or(("", &plain));
        let mut names: Vec<&str> = Vec::new();
        for row in &self.models {
            if !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        if names.len() > FEW && nearest(name, names.iter().copied()).is_empty() {
            format!("none of the {} names in the list is like it", names.len())
        } else {
            alternatives(name, names)
        }
    }
}

impl ModelPrices {
    /// Whether a model's name in a recording refers to this row.
    fn is(&self, model: &str) -> bool {
        let model = plain_name(model);
        let bare = match model.split_once('/') {
            Some((provider, name)) if provider == self.provider => name,
            _ => &model,
        };
        let names = std::iter::once(&self.name).chain(&self.aliases);
        names
            .into_iter()
            .any(|name| bare.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || is_release_day(rest)))
    }

    /// The row in words: prices, first day and source.
    pub fn label(&self) -> String {
        let write = match self.cache_write {
            Some(price) => format!("{price} to write to the cache"),
            None => "writing to the cache is input".to_owned(),
        };
        let tiers = self.tiers.iter().map(|tier| {
            format!("; above {} prompt tokens {} in, {} out", tier.above_prompt_tokens, tier.input, tier.output)
        });
        format!(
            "{}: {} in, {} out, {} from the cache, {write}{}; from {}, read {}: {}",
            self.name,
            self.input,
            self.output,
            self.cache_read,
            tiers.collect::<String>(),
            self.effective_from,
            self.retrieved,
            self.source
        )
    }

    /// Dollars of `calls` calls without a cache, with `prompt` and `output` tokens in total.
    /// Each call is billed by the tier of the mean prompt.
    pub fn dollars_of(&self, calls: u64, prompt: u64, output: u64) -> f64 {
        let rates = self.rates(prompt / calls.max(1), false);
        (prompt as f64 * rates.input + output as f64 * rates.output) / MILLION
    }

    /// The prices of calls with small prompts.
    fn base(&self) -> Tier {
        Tier {
            above_prompt_tokens: 0,
            input: self.input,
            output: self.output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            cache_write_1h: self.cache_write_1h,
        }
    }

    fn check(&self) -> Result<(), String> {
        for (field, day) in [("effective_from", &self.effective_from), ("retrieved", &self.retrieved)] {
            let is_day = day.parse::<jiff::civil::Date>().is_ok() && day.len() == 10;
            if !is_day {
                return Err(format!("field `{field}`: {day:?} is not a day such as 2026-11-21"));
            }
        }
        if self.source.trim().is_empty() {
            return Err("field `source`: empty; name the page with these prices".to_owned());
        }
        let base = self.base();
        let mut all = std::iter::once(&base).chain(&self.tiers).flat_map(|tier| {
            let more = [tier.cache_write, tier.cache_write_1h];
            let required = [tier.input, tier.output, tier.cache_read];
            required.into_iter().chain(more.into_iter().flatten())
        });
        if let Some(wrong) = all.find(|price| !(price.is_finite() && *price >= 0.0)) {
            return Err(format!("a price is {wrong}; it must be a number from 0"));
        }
        let hour_is_missing = |tier: &Tier| tier.cache_write_1h.is_none();
        if self.cache_write_1h.is_some() && self.tiers.iter().any(hour_is_missing) {
            return Err("field `tier.cache_write_1h`: missing, though the model has one".to_owned());
        }
        let rises = self.tiers.windows(2).all(|pair| pair[0].above_prompt_tokens < pair[1].above_prompt_tokens);
        if !rises {
            return Err("field `tier`: the smallest `above_prompt_tokens` first".to_owned());
        }
        Ok(())
    }

    fn rates(&self, prompt: u64, hour: bool) -> Rates {
        let mut tiers = self.tiers.iter().rev().copied();
        let tier = tiers.find(|tier| prompt > tier.above_prompt_tokens);
        let tier = tier.unwrap_or(self.base());
        let write = if hour { tier.cache_write_1h.or(tier.cache_write) } else { tier.cache_write };
        Rates {
            input: tier.input,
            output: tier.output,
            cache_read: tier.cache_read,
            fresh: write.unwrap_or(tier.input),
        }
    }

    /// The cache with a lifetime of `ttl_ms` milliseconds after its last use; 0 is none.
    ///
    /// # Errors
    /// If no provider sells a cache of that lifetime for this model, so that it has no price.
    pub fn cache(&self, ttl_ms: u64) -> Result<Cache, String> {
        match ttl_ms {
            0 => Ok(Cache::None),
            tokens::TTL_MS => Ok(Cache::FiveMinutes),
            HOUR_MS if self.cache_write_1h.is_some() => Ok(Cache::Hour),
            _ => {
                let hour = match self.cache_write_1h {
                    Some(_) => ", 1h",
                    None => "",
                };
                Err(format!(
                    "a cache time of {} s has no price for model {}: use 5m{hour}, or 0 for no cache",
                    ttl_ms / 1000,
                    self.name
                ))
            }
        }
    }

    /// Dollars of one call. Without a cache, every prompt token costs the input price.
    fn call(&self, call: &CallTokens, cache: Cache) -> f64 {
        let rates = self.rates(call.prompt, cache == Cache::Hour);
        let fresh = match cache {
            Cache::None => rates.input,
            Cache::FiveMinutes | Cache::Hour => rates.fresh,
        };
        (call.cached as f64 * rates.cache_read + call.fresh() as f64 * fresh + call.output as f64 * rates.output)
            / MILLION
    }

    /// Dollars of the usage that a provider reported, each kind of token at its own price. A call is in the tier of its
    /// prompt. The calls of a sum may be in any tier up to that of `longest_prompt`, the longest prompt that one of them
    /// can have: the least and the most that they cost.
    pub fn reported(&self, usage: &BilledUsage<ReportedTokens>, longest_prompt: u64) -> (f64, f64) {
        match usage {
            BilledUsage::Call(call) => {
                let dollars = self.in_tier(call, call.prompt());
                (dollars, dollars)
            }
            BilledUsage::Sum(sum) => {
                let (short, long) = (self.in_tier(sum, 0), self.in_tier(sum, longest_prompt));
                (short.min(long), short.max(long))
            }
        }
    }

    /// Dollars of tokens at the prices of the tier of a prompt.
    fn in_tier(&self, tokens: &ReportedTokens, prompt: u64) -> f64 {
        let (short, hour) = (self.rates(prompt, false), self.rates(prompt, true));
        (tokens.uncached as f64 * short.input
            + tokens.cache_read as f64 * short.cache_read
            + tokens.cache_write_5m as f64 * short.fresh
            + tokens.cache_write_1h as f64 * hour.fresh
            + tokens.output as f64 * short.output)
            / MILLION
    }

    /// Dollars of calls.
    pub fn bill(&self, calls: &[CallTokens], cache: Cache) -> f64 {
        // The sum of no numbers is -0.
        calls.iter().fold(0.0, |sum, call| sum + self.call(call, cache))
    }

    /// Dollars of an account whose prompts were cached with the lifetime of `cache`.
    pub fn dollars(&self, account: &Account, cache: Cache) -> f64 {
        self.bill(&account.calls, cache)
    }
}

/// A model's name without what clouds, routers and clients add: `claude-sonnet-4-5` for
/// `us.anthropic.claude-sonnet-4-5-20250929-v1:0`, `openrouter/anthropic/claude-sonnet-4.5` and `claude-sonnet-4-5[1m]`.
/// A provider before a `/` and a release day stay.
pub fn plain_name(model: &str) -> String {
    const ROUTERS: [&str; 14] = [
        "bedrock",
        "bedrock_converse",
        "vertex_ai",
        "vertex",
        "openrouter",
        "azure",
        "azure_ai",
        "litellm",
        "litellm_proxy",
        "github_copilot",
        "copilot",
        "databricks",
        "models",
        "gemini",
    ];
    const REGIONS: [&str; 8] = ["us", "eu", "apac", "global", "jp", "au", "us-gov", "ca"];
    let mut name = model.trim().to_ascii_lowercase();
    if name.starts_with("arn:")
        && let Some((_, profile)) = name.rsplit_once('/')
    {
        name = profile.to_owned();
    }
    if let Some((_, published)) = name.rsplit_once("publishers/") {
        name = published.replacen("/models/", "/", 1);
    }
    while let Some((router, rest)) = name.split_once('/') {
        if !ROUTERS.contains(&router) {
            break;
        }
        name = rest.to_owned();
    }
    if let Some((region, rest)) = name.split_once('.')
        && REGIONS.contains(&region)
    {
        name = rest.to_owned();
    }
    for cloud in ["anthropic.", "databricks-"] {
        if let Some(rest) = name.strip_prefix(cloud) {
            name = rest.to_owned();
        }
    }
    for end in ["[1m]", ":thinking", ":beta", "@default", "-latest"] {
        if let Some(start) = name.strip_suffix(end) {
            name = start.to_owned();
        }
    }
    // Bedrock: `-v1:0`.
    if let Some((start, version)) = name.rsplit_once("-v") {
        let is_version = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let (major, minor) = version.split_once(':').unwrap_or((version, "0"));
        if is_version(major) && is_version(minor) && start.contains("claude") {
            name = start.to_owned();
        }
    }
    // Clients and routers write Claude's versions with a point.
    if name.contains("claude-") {
        name = name.replace('.', "-");
    }
    name
}

/// Whether a suffix is a release date, which keeps the model's price: `-20250929`, `-2025-09-29`, `@20250929`.
fn is_release_day(rest: &str) -> bool {
    let Some(day) = rest.strip_prefix(['-', '@']) else {
        return false;
    };
    let digits = day.chars().filter(char::is_ascii_digit).count();
    let is_day = day.chars().all(|c| c.is_ascii_digit() || c == '-');
    day.starts_with("20") && digits == 8 && is_day
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "
[[model]]
name = 'm'
provider = 'p'
aliases = ['m-2']
effective_from = '2026-01-01'
source = 's'
retrieved = '2026-01-02'
input = 2.0
output = 10.0
cache_read = 0.1
cache_write = 2.5
";

    fn parse(text: &str) -> Result<Prices, String> {
        Prices::parse(Path::new("prices.toml"), text).map_err(|error| error.to_string())
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err()
    }

    fn account(prompt: u64, cached: u64, output: u64) -> Account {
        Account { calls: vec![CallTokens { prompt, cached, output, expired: false }], ..Account::default() }
    }

    #[test]
    fn the_built_in_list_has_the_current_models_of_three_providers() {
        let prices = Prices::built_in().unwrap();
        let of = |model: &str| prices.of(model, "2026-11-22").unwrap().provider.clone();
        assert_eq!(of("claude-opus-5-5"), "anthropic");
        assert_eq!(of("claude-sonnet-4-5-20250929"), "anthropic");
        assert_eq!(of("gpt-6.1-sol"), "openai");
        assert_eq!(of("gemini-3.1-pro-preview"), "google");
        assert_eq!(of("google/gemini-3-pro-preview"), "google");
        for another in [
            "gpt-5.5-pro",
            "gpt-5.5-cyber",
            "gpt-5.1-codex-maxi",
            "gemini-3-pro-image",
            "claude-opus-5-5-fast",
            "somebody/claude-opus-5-5",
            "claude-opus-5-5-2025",
        ] {
            let error = prices.of(another, "2026-11-22").map(|row| row.label());
            assert!(error.unwrap_err().contains("has no price"), "{another}");
        }
        for release in ["gpt-5-2025-08-07", "claude-opus-4-5@20251101", "openai/gpt-5.1"] {
            assert!(prices.of(release, "2026-11-22").is_ok(), "{release}");
        }
        for (named, row) in [
            ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5"),
            ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
            ("bedrock/global.anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
            (
                "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-haiku-4-5-20251001-v1:0",
                "claude-haiku-4-5",
            ),
            ("vertex_ai/claude-opus-4-5@20251101", "claude-opus-4-5"),
            ("openrouter/anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
            ("Claude-Opus-4.6", "claude-opus-4-6"),
            ("databricks-claude-sonnet-4-5", "claude-sonnet-4-5"),
            ("databricks/databricks-claude-opus-4-6", "claude-opus-4-6"),
            ("CLAUDE-SONNET-4-5", "claude-sonnet-4-5"),
            ("claude-sonnet-4-20250514", "claude-sonnet-4-0"),
            ("gemini/gemini-2.5-pro", "gemini-2.5-pro"),
        ] {
            let found = prices.of(named, "2026-11-22");
            assert_eq!(found.map(|price| price.name.as_str()), Ok(row), "{named}");
        }
        // A row holds from the release on.
        for (model, day) in
            [("claude-opus-4-5", "2025-12-01"), ("gpt-5-codex", "2025-10-01"), ("claude-sonnet-4-6", "2026-02-20")]
        {
            assert!(prices.of(model, day).is_ok(), "{model}");
        }
        let error = |model: &str| prices.of(model, "2026-11-22").map(|row| row.label()).unwrap_err();
        assert!(
            error("openrouter/acme/kimi-k2.66").contains("the nearest are kimi-k2.6, "),
            "{}",
            error("acme/kimi-k2.66")
        );
        assert!(error("zzz").contains("names in the list is like it\n"), "{}", error("zzz"));
        let near = prices.of("claude-opus-4-66", "2026-11-22").map(|row| row.label()).unwrap_err();
        assert!(near.contains("the nearest are claude-opus-4-6, "), "{near}");
        // Each name matches its own row.
        for model in &prices.models {
            assert_eq!(prices.of(&model.name, &model.effective_from).unwrap().name, model.name);
        }
    }

    #[test]
    fn widely_used_models_of_other_providers_have_a_price_since_their_release() {
        let prices = Prices::built_in().unwrap();
        for (day, models) in [
            ("2025-03-01", "deepseek-chat deepseek/deepseek-r1 deepseek-ai/DeepSeek-V3 o3-mini gpt-4-turbo-2024-04-09"),
            ("2025-05-01", "meta-llama/llama-4-maverick openrouter/meta-llama/llama-4-scout gpt-4.1-nano"),
            ("2025-05-01", "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8 gemini-2.0-flash"),
            ("2025-08-01", "qwen/qwen3-coder Qwen/Qwen3-Coder-480B-A35B-Instruct openrouter/qwen/qwen3-coder-plus"),
            ("2025-08-01", "moonshotai/kimi-k2 moonshotai/Kimi-K2-Instruct kimi-k2-0711-preview z-ai/glm-4.5"),
            ("2025-10-01", "x-ai/grok-code-fast-1 xai/grok-4-fast zai-org/GLM-4.6 gpt-oss-120b openai/gpt-oss-20b"),
            (
                "2026-01-01",
                "kimi-k2-thinking deepseek/deepseek-v3.2 MiniMaxAI/MiniMax-M2 devstral-2512 mistralai/mistral-large-2512",
            ),
            ("2026-10-01", "kimi-k2.7-code glm-5.3 grok-4.7 deepseek-v4-pro qwen3.7-max minimax-m3 composer-2.5"),
        ] {
            for model in models.split(' ') {
                assert!(prices.of(model, day).is_ok(), "{:?}", prices.of(model, day).map(|row| &row.name));
            }
        }
        let input = |day: &str| prices.of("deepseek-chat", day).map(|row| row.input);
        assert_eq!((input("2025-09-01"), input("2025-09-10"), input("2025-10-01")), (Ok(0.27), Ok(0.56), Ok(0.28)));
    }

    #[test]
    fn reported_tokens_are_billed_by_kind_and_a_price_of_0_is_a_price() {
        let prices = parse(&format!("{ROW}cache_write_1h = 4.0\n")).unwrap();
        let model = prices.of("m", "2026-06-01").unwrap();
        let million = 1_000_000;
        let tokens = ReportedTokens {
            uncached: million,
            cache_read: million,
            cache_write_5m: million,
            cache_write_1h: million,
            output: million,
        };
        let (dollars, most) = model.reported(&BilledUsage::Call(tokens), 0);
        assert!((dollars - (2.0 + 0.1 + 2.5 + 4.0 + 10.0)).abs() < 1e-9 && dollars == most);
        let free = ROW.replace("input = 2.0", "input = 0.0").replace("output = 10.0", "output = 0.0");
        let prices = parse(&free).unwrap();
        let uncached = ReportedTokens { uncached: million, ..ReportedTokens::default() };
        let free = prices.of("m", "2026-06-01").unwrap();
        assert_eq!(free.reported(&BilledUsage::Call(uncached), 0), (0.0, 0.0));
    }

    #[test]
    fn the_tier_of_a_sum_over_calls_is_not_that_of_the_sum() {
        let tier = "[[model.tier]]\nabove_prompt_tokens = 200000\ninput = 4.0\noutput = 15.0\ncache_read = 0.2\n";
        let prices = parse(&format!("{ROW}{tier}")).unwrap();
        let model = prices.of("m", "2026-06-01").unwrap();
        let million = ReportedTokens { uncached: 1_000_000, output: 100_000, ..ReportedTokens::default() };
        assert_eq!(model.reported(&BilledUsage::Call(million), 0), (5.5, 5.5));
        assert_eq!(model.reported(&BilledUsage::Sum(million), 1_000_000), (3.0, 5.5));
        // No prompt of the sum reaches the tier.
        assert_eq!(model.reported(&BilledUsage::Sum(million), 200_000), (3.0, 3.0));
    }

    #[test]
    fn a_call_is_billed_by_kind_and_by_the_tier_of_its_prompt() {
        let tier = "[[model.tier]]\nabove_prompt_tokens = 1000000\ninput = 4.0\noutput = 15.0\ncache_read = 0.2\n";
        let prices = parse(&format!("{ROW}{tier}")).unwrap();
        let model = prices.of("m", "2026-06-01").unwrap();
        // A million prompt tokens, 0.4 read from the cache and 0.6 written to it; 0.1 million of output.
        let call = account(1_000_000, 400_000, 100_000);
        let dollars = model.dollars(&call, Cache::FiveMinutes);
        assert!((dollars - (0.04 + 1.5 + 1.0)).abs() < 1e-9, "{dollars}");
        // One more token moves the whole call to the next tier. Its cache writes cost the input price.
        let call = account(1_000_001, 400_000, 100_000);
        let dollars = model.dollars(&call, Cache::FiveMinutes);
        assert!((dollars - (0.08 + 2.4 + 1.5)).abs() < 1e-4, "{dollars}");
        // Without a cache, the input price applies.
        let dollars = model.dollars(&account(1_000_000, 0, 0), Cache::None);
        assert!((dollars - 2.0).abs() < 1e-9, "{dollars}");
    }

    #[test]
    fn only_caches_that_are_sold_have_a_price() {
        let prices = parse(ROW).unwrap();
        let model = prices.of("m", "2026-06-01").unwrap();
        assert_eq!(model.cache(0), Ok(Cache::None));
        assert_eq!(model.cache(300_000), Ok(Cache::FiveMinutes));
        insta::assert_snapshot!(model.cache(3_600_000).unwrap_err(), @"a cache time of 3600 s has no price for model m: use 5m, or 0 for no cache");
        let prices = parse(&format!("{ROW}cache_write_1h = 4.0\n")).unwrap();
        let model = prices.of("m", "2026-06-01").unwrap();
        assert_eq!(model.cache(3_600_000), Ok(Cache::Hour));
        insta::assert_snapshot!(model.cache(600_000).unwrap_err(), @"a cache time of 600 s has no price for model m: use 5m, 1h, or 0 for no cache");
        let dollars = model.dollars(&account(1_000_000, 0, 0), Cache::Hour);
        assert!((dollars - 4.0).abs() < 1e-9, "{dollars}");
        let tier = "[[model.tier]]\nabove_prompt_tokens = 1\ninput = 4.0\noutput = 15.0\ncache_read = 0.2\n";
        assert!(error(&format!("{ROW}cache_write_1h = 4.0\n{tier}")).contains("tier.cache_write_1h"));
    }

    #[test]
    fn calls_together_are_billed_by_the_tier_of_their_mean_prompt() {
        let tier = "[[model.tier]]\nabove_prompt_tokens = 1000\ninput = 4.0\noutput = 15.0\ncache_read = 0.2\n";
        let prices = parse(&format!("{ROW}{tier}")).unwrap();
        let model = prices.of("m", "2026-06-01").unwrap();
        assert!((model.dollars_of(1000, 1_000_000, 100_000) - 3.0).abs() < 1e-9);
        assert!((model.dollars_of(500, 1_000_000, 100_000) - 5.5).abs() < 1e-9);
        assert_eq!(model.dollars_of(0, 0, 0), 0.0);
    }

    #[test]
    fn the_latest_row_that_is_in_force_counts() {
        let later = ROW.replace("2026-01-01", "2026-05-01").replace("input = 2.0", "input = 8.0");
        let prices = parse(&format!("{ROW}{later}")).unwrap();
        let input = |day: &str| prices.of("m-2", day).map(|model| model.input);
        assert_eq!(input("2026-04-30"), Ok(2.0));
        assert_eq!(input("2026-05-01"), Ok(8.0));
        let error = input("2025-12-31").unwrap_err();
        assert!(error.starts_with("model m-2 has no price on 2025-12-31"), "{error}");
    }

    #[test]
    fn a_model_without_a_price_is_an_error_that_names_it() {
        let error = parse(ROW).unwrap().of("gpt-99", "2026-06-01").map(|_| ()).unwrap_err();
        assert!(error.starts_with("model \"gpt-99\" has no price; use one of m\n"), "{error}");
    }

    #[test]
    fn a_malformed_list_is_refused_with_file_line_and_field() {
        insta::assert_snapshot!(error(&ROW.replace("input = 2.0", "inptu = 2.0")), @"prices.toml:9: field `model[0].inptu`: unknown field `inptu`, expected one of `name`, `provider`, `aliases`, `effective_from`, `source`, `retrieved`, `input`, `output`, `cache_read`, `cache_write`, `cache_write_1h`, `tier`");
        insta::assert_snapshot!(error(&ROW.replace("input = 2.0", "input = '2'")), @r#"prices.toml:9: field `model[0].input`: invalid type: string "2", expected f64"#);
        insta::assert_snapshot!(error(&ROW.replace("input = 2.0", "input = -1.0")), @"prices.toml: model m: a price is -1; it must be a number from 0");
        insta::assert_snapshot!(error(&ROW.replace("2026-01-01", "yesterday")), @r#"prices.toml: model m: field `effective_from`: "yesterday" is not a day such as 2026-11-21"#);
        insta::assert_snapshot!(error(&ROW.replace("source = 's'", "source = ''")), @"prices.toml: model m: field `source`: empty; name the page with these prices");
        insta::assert_snapshot!(error(&format!("{ROW}{ROW}")), @"prices.toml: model m: two rows from 2026-01-01");
        assert!(error("").contains("missing field `model`"));
    }
}
