//! The bill of a recorded session: dollars of the tokens that its files report, by model, and of those that our ledger
//! counts, as an estimate with an interval.

use std::collections::BTreeMap;

use tokens::{Account, BilledUsage, CallTokens, Conversation, PartKind, Terms};

use crate::prices::{Cache, HOUR_MS, Prices, ReportedTokens};

/// How far the reported dollars are from the ledger's on models whose tokenizer was measured: nine in ten of the sessions
/// that no constant was fitted to lie between. Most of it is calls that find nothing in the cache for no recorded reason.
const MEASURED: (f64, f64) = (0.80, 1.50);

/// The same on other models: their tokenizers may give a tenth less or half as much again.
const UNMEASURED: (f64, f64) = (0.70, 2.20);

/// How often a call with a message of the user finds only the shared beginning of its prompt in the cache, although the
/// cache has not expired: in 22 of 346 calls of the sessions that the ledger was fitted to.
const USERS_MISS: f64 = 0.06;

/// The ledger counts output that the files do not report if they report less than this part of it.
const OUTPUT_REPORTED: f64 = 0.6;

/// What one model of a session used, as the session's files report it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelBill {
    /// The model's name in the recording; empty if the recording does not say.
    pub model: String,
    /// Calls that report their usage; 0 if only sums are stated.
    pub calls: u64,
    /// The tokens.
    pub tokens: ReportedTokens,
    /// The dollars, or why there are none. Calls of which only a sum is stated count as calls with short prompts.
    pub dollars: Result<f64, String>,
    /// The most that it can be, if the files state only a sum over calls, and the price depends on the length of each
    /// prompt.
    pub most: Option<f64>,
}

/// The usage of a call or of several, as the session's files report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedUsage<'a> {
    /// The model's name in the recording; empty if the recording does not say.
    pub model: &'a str,
    /// The day of the call, such as `2026-11-21`.
    pub day: String,
    /// The tokens.
    pub tokens: BilledUsage<ReportedTokens>,
}

/// The dollars that our ledger gives a session: an estimate, and the interval in which the reported dollars would lie.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LedgerEstimate {
    /// The ledger's dollars.
    pub dollars: f64,
    /// The part of them for output that the recording holds and does not report: clients may write down the usage of an
    /// answer when it begins.
    pub unreported: f64,
    /// The ends of the interval.
    pub interval: (f64, f64),
}

/// Bills what each model used, each call at the price of its day. A call's own tokens select its tier; the tiers of the calls
/// of a sum are not known.
pub fn bill(used: &[ReportedUsage<'_>], prices: &Prices) -> Vec<ModelBill> {
    // A sum of output may be that of calls whose prompts are known.
    let mut longest: BTreeMap<&str, u64> = BTreeMap::new();
    for ReportedUsage { model, tokens, .. } in used {
        let prompt = longest.entry(model).or_default();
        *prompt = tokens.tokens().prompt().max(*prompt);
    }
    let mut all: BTreeMap<&str, ModelBill> = BTreeMap::new();
    for ReportedUsage { model, day, tokens } in used {
        let price = match *model {
            "" => Err("the recording does not name the model".to_owned()),
            model => prices.of(model, day),
        };
        let bill = all.entry(model).or_insert_with(|| ModelBill {
            model: (*model).to_owned(),
            calls: 0,
            tokens: ReportedTokens::default(),
            dollars: Ok(0.0),
            most: None,
        });
        bill.calls += u64::from(matches!(tokens, BilledUsage::Call(_)));
        bill.tokens.add(tokens.tokens());
        if let Ok(dollars) = bill.dollars {
            let longest = longest.get(model).copied().unwrap_or(0);
            match price.map(|price| price.reported(tokens, longest)) {
                Ok((least, most)) => {
                    let sum = bill.most.unwrap_or(dollars) + most;
                    bill.dollars = Ok(dollars + least);
                    bill.most = (bill.most.is_some() || most > least).then_some(sum);
                }
                Err(why) => {
                    bill.dollars = Err(why);
                    bill.most = None;
                }
            }
        }
    }
    let mut bills: Vec<ModelBill> = all.into_values().collect();
    // The model that cost most comes first; one without a price comes last.
    bills.sort_by(|a, b| {
        let key = |bill: &ModelBill| *bill.dollars.as_ref().unwrap_or(&-1.0);
        key(b).total_cmp(&key(a))
    });
    bills
}

/// The dollars that our ledger gives the conversations of a session; `None` without a call of a model, or if one of the
/// models has no price. `model` is the session's model; `day` is the day of a time in milliseconds since its beginning.
/// Every conversation counts as begun with the session.
pub fn estimate(
    conversations: &[Conversation],
    model: &str,
    prices: &Prices,
    day: &dyn Fn(u64) -> String,
) -> Option<LedgerEstimate> {
    let mut sum = LedgerEstimate::default();
    let mut is_measured = true;
    for conversation in conversations {
        let models = conversation.steps.iter().map(|step| match &*step.model {
            "" => model,
            other => other,
        });
        let models: Vec<&str> = models.collect();
        is_measured &= models.iter().all(|model| tokens::factor(model).is_measured);
        let (dollars, unreported) = of_calls(conversation, &models, prices, day)?;
        sum.dollars += dollars;
        sum.unreported += unreported;
    }
    if conversations.iter().all(|conversation| conversation.steps.is_empty()) {
        return None;
    }
    let (low, high) = if is_measured { MEASURED } else { UNMEASURED };
    let reported = sum.dollars - sum.unreported;
    sum.interval = (reported * low, reported * high + sum.unreported);
    Some(sum)
}

/// The dollars of a conversation, each step on its model, and the part of them for output that the recording does not
/// report. What the first call reports of its cache says how the client caches: for how long, and what other sessions
/// share with it.
fn of_calls(
    conversation: &Conversation,
    models: &[&str],
    prices: &Prices,
    day: &dyn Fn(u64) -> String,
) -> Option<(f64, f64)> {
    let Some(first) = models.first() else {
        return Some((0.0, 0.0));
    };
    let mut reported = conversation.steps.iter().filter_map(|step| step.reported);
    let shared = reported.clone().next().map_or(0, |first| first.cached);
    let writes = reported.find(|reported| reported.written + reported.written_1h > 0);
    let hour =
        writes.filter(|first| first.written_1h > 0).and_then(|_| prices.of(first, &day(0)).ok()?.cache(HOUR_MS).ok());
    let (cache, ttl_ms) = match hour {
        Some(hour) => (hour, HOUR_MS),
        None => (Cache::FiveMinutes, tokens::TTL_MS),
    };
    let factor = tokens::factor(first);
    let terms = Terms { per_o200k: factor.per_o200k, thinking: tokens::thinking_stays(first), ttl_ms, shared };
    let account = Account::of(conversation, &terms);
    let (mut dollars, mut unreported) = (0.0, 0.0);
    let steps = conversation.steps.iter().zip(&account.calls).zip(models);
    let mut outputs = (0, 0);
    let mut at = 0_u64;
    for (number, ((step, call), model)) in (0..).zip(steps) {
        at = at.saturating_add(step.gap_ms);
        let price = prices.of(model, &day(at)).ok()?;
        let scale = tokens::factor(model).per_o200k / factor.per_o200k;
        let scaled = |tokens: u64| (tokens as f64 * scale).round() as u64;
        let call = CallTokens {
            prompt: scaled(call.prompt),
            cached: scaled(call.cached),
            output: scaled(call.output),
            ..*call
        };
        let billed = price.bill(&[call], cache);
        dollars += billed;
        let is_users = step.enters.iter().any(|part| part.kind == PartKind::User);
        if number > 0 && is_users && call.cached > shared {
            let missed = CallTokens { cached: shared, ..call };
            dollars += USERS_MISS * (price.bill(&[missed], cache) - billed);
        }
        if let Some(reported) = step.reported {
            outputs = (outputs.0 + call.output, outputs.1 + reported.output);
            let silent = CallTokens { output: reported.output.min(call.output), ..call };
            unreported += billed - price.bill(&[silent], cache);
        }
    }
    if outputs.1 as f64 >= outputs.0 as f64 * OUTPUT_REPORTED {
        unreported = 0.0;
    }
    Some((dollars, unreported))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokens::{CallUsage, Part, Step};

    #[test]
    fn each_model_is_billed_at_its_price_and_one_without_a_price_keeps_its_tokens() {
        let prices = Prices::built_in().unwrap();
        let tokens = |uncached, output| ReportedTokens { uncached, output, ..ReportedTokens::default() };
        let calls = [
            ("claude-sonnet-4-5[1m]", tokens(1_000_000, 0)),
            ("gpt-5-codex", tokens(0, 1_000_000)),
            ("gpt-5-codex", tokens(0, 1_000_000)),
            ("own-model", tokens(7, 8)),
            ("", tokens(1, 0)),
        ];
        let day = "2026-02-01";
        let calls = calls.map(|(model, tokens)| (model, BilledUsage::Call(tokens)));
        let calls = calls.map(|(model, tokens)| ReportedUsage { model, day: day.to_owned(), tokens });
        let bills = bill(&calls, &prices);
        let shown: Vec<(&str, u64, String)> = bills
            .iter()
            .map(|bill| {
                let dollars = bill.dollars.as_ref().map_or_else(Clone::clone, |d| format!("{d:.2}"));
                let dollars = dollars.lines().next().unwrap_or_default().to_owned();
                (bill.model.as_str(), bill.calls, dollars)
            })
            .collect();
        assert_eq!(shown[0], ("gpt-5-codex", 2, "20.00".to_owned()));
        // A prompt of a million tokens is billed by the tier above 200,000.
        assert_eq!(shown[1], ("claude-sonnet-4-5[1m]", 1, "6.00".to_owned()));
        assert!(shown[2..].iter().any(|(_, _, why)| why.contains("has no price; ")), "{shown:?}");
        assert!(shown[2..].iter().any(|(_, _, why)| why.contains("does not name")), "{shown:?}");
        let own = bills.iter().find(|bill| bill.model == "own-model").unwrap();
        assert_eq!((own.tokens.uncached, own.tokens.output), (7, 8));
    }

    #[test]
    fn a_sum_over_calls_is_billed_as_short_prompts_and_the_bill_says_how_much_more_it_can_be() {
        let prices = Prices::built_in().unwrap();
        let tokens = |uncached, output| ReportedTokens { uncached, output, ..ReportedTokens::default() };
        let of = |used: &[BilledUsage<ReportedTokens>]| {
            let (model, day) = ("claude-sonnet-4-5", "2026-02-01".to_owned());
            let used = used.iter().map(|tokens| ReportedUsage { model, day: day.clone(), tokens: *tokens });
            let used: Vec<_> = used.collect();
            let bill = bill(&used, &prices).remove(0);
            (bill.calls, bill.dollars.unwrap(), bill.most)
        };
        // $3 and $15 a million, and $6 and $22.50 above 200,000.
        assert_eq!(of(&[BilledUsage::Sum(tokens(1_000_000, 100_000))]), (0, 4.5, Some(8.25)));
        assert_eq!(of(&[BilledUsage::Sum(tokens(200_000, 100_000))]), (0, 2.1, None));
        // Output beyond that of calls is theirs.
        let output = BilledUsage::Sum(tokens(0, 100_000));
        assert_eq!(of(&[BilledUsage::Call(tokens(100_000, 0)), output]), (1, 1.8, None));
        assert_eq!(of(&[BilledUsage::Call(tokens(1_000_000, 0)), output]), (1, 7.5, Some(8.25)));
    }

    const TWO_PRICES: &str = r#"
        [[model]]
        name = "m"
        provider = "p"
        effective_from = "2026-01-01"
        source = "s"
        retrieved = "2026-01-01"
        input = 1.0
        output = 0.0
        cache_read = 1.0
        [[model]]
        name = "m"
        provider = "p"
        effective_from = "2026-01-02"
        source = "s"
        retrieved = "2026-01-02"
        input = 0.25
        output = 0.0
        cache_read = 0.25"#;

    #[test]
    fn each_call_has_the_price_of_its_day() {
        let prices = Prices::parse(std::path::Path::new("prices.toml"), TWO_PRICES).unwrap();
        let call = |day: &str, uncached| ReportedUsage {
            model: "m",
            day: day.to_owned(),
            tokens: BilledUsage::Call(ReportedTokens { uncached, ..ReportedTokens::default() }),
        };
        let bills = bill(&[call("2026-01-01", 1_000_000), call("2026-01-02", 1_000_000)], &prices);
        assert_eq!(bills.len(), 1);
        assert_eq!((bills[0].calls, bills[0].dollars.clone()), (2, Ok(1.25)));
        // A day without a price leaves the sum unknown.
        let bills = bill(&[call("2026-01-01", 1), call("2025-12-31", 1)], &prices);
        assert!(bills[0].dollars.as_ref().is_err_and(|why| why.contains("no price on 2025-12-31")), "{bills:?}");
        // The ledger's steps have days, too: the second one is a day after the first.
        let step = |gap_ms| Step { gap_ms, enters: vec![Part::new(PartKind::Result, 1_000_000)], ..Step::default() };
        let both = [Conversation { steps: vec![step(0), step(86_400_000)], ..Conversation::default() }];
        let on = |day: &dyn Fn(u64) -> String| estimate(&both, "m", &prices, day).unwrap().dollars;
        let [first, second] = ["2026-01-01", "2026-01-02"].map(|day| on(&|_| day.to_owned()));
        let changes = on(&|at| if at < 86_400_000 { "2026-01-01".to_owned() } else { "2026-01-02".to_owned() });
        assert!(second < changes && changes < first, "{second} {changes} {first}");
    }

    /// Three calls of a model without hidden parts, of which the recording reports prompt, cache and output.
    fn conversation(reported: [CallUsage; 3]) -> Conversation {
        let steps = reported.map(|reported| Step {
            gap_ms: 400_000,
            enters: vec![Part::new(PartKind::Result, 100_000)],
            emits: vec![Part::new(PartKind::Text, 10_000)],
            reported: Some(reported),
            ..Step::default()
        });
        Conversation { fixed: 100_000, steps: steps.to_vec(), ..Conversation::default() }
    }

    fn dollars(conversation: &Conversation) -> LedgerEstimate {
        let prices = Prices::built_in().unwrap();
        let all = [conversation.clone()];
        estimate(&all, "claude-opus-4-5", &prices, &|_| "2026-12-01".to_owned()).unwrap()
    }

    #[test]
    fn the_first_call_says_how_long_the_client_caches_and_what_others_share() {
        let silent = CallUsage { prompt: 1, output: 11_000, ..CallUsage::default() };
        let hour = CallUsage { written_1h: 1, ..silent };
        let shares = CallUsage { cached: 55_000, ..silent };
        // In millions of tokens at $5, $0.50 from the cache, $6.25 for five minutes, $10 for an hour; output $25.
        let output = 3.0 * 0.011 * 25.0;
        let expired = (0.22 + 0.341 + 0.462) * 6.25;
        let kept = (0.22 + 0.121 + 0.121) * 10.0 + (0.22 + 0.341) * 0.5;
        let shared = expired - 3.0 * 0.055 * (6.25 - 0.5);
        for (first, expected) in [(silent, expired), (hour, kept), (shares, shared)] {
            let found = dollars(&conversation([first, silent, silent])).dollars;
            assert!((found - expected - output).abs() < 0.001, "{found} {}", expected + output);
        }
    }

    #[test]
    fn a_message_of_the_user_misses_the_cache_at_the_known_rate() {
        let reported = CallUsage { prompt: 1, output: 11_000, ..CallUsage::default() };
        let mut asked = conversation([reported; 3]);
        for step in &mut asked.steps {
            step.gap_ms = 1000;
        }
        let plain = dollars(&asked).dollars;
        asked.steps[1].enters[0].kind = PartKind::User;
        let miss = USERS_MISS * 0.22 * (6.25 - 0.5);
        assert!((dollars(&asked).dollars - plain - miss).abs() < 0.001);
    }

    #[test]
    fn output_that_the_recording_does_not_report_is_named() {
        let reported = |output| CallUsage { prompt: 1, output, ..CallUsage::default() };
        let most = dollars(&conversation([reported(8000); 3]));
        assert_eq!(most.unreported, 0.0);
        let few = dollars(&conversation([reported(1000); 3]));
        assert!((few.unreported - 3.0 * 0.010 * 25.0).abs() < 0.001);
        assert_eq!(few.dollars, most.dollars);
        // What the files report lies below, since they do not report it.
        assert!(few.interval.0 < most.interval.0);
    }

    #[test]
    fn subagents_and_changes_of_the_model_are_in_the_estimate() {
        let reported = CallUsage { prompt: 1, output: 11_000, ..CallUsage::default() };
        let one = conversation([reported; 3]);
        let prices = Prices::built_in().unwrap();
        let of = |all: &[Conversation]| estimate(all, "claude-opus-4-5", &prices, &|_| "2026-12-01".to_owned());
        let twice = of(&[one.clone(), one.clone()]).unwrap().dollars;
        assert!((twice - 2.0 * dollars(&one).dollars).abs() < 1e-9);
        let mut cheaper = one.clone();
        for step in &mut cheaper.steps {
            step.model = "claude-haiku-4-5".to_owned();
        }
        // A fifth of the price of Opus.
        assert!((dollars(&cheaper).dollars - dollars(&one).dollars / 5.0).abs() < 0.001);
        cheaper.steps[2].model = "own-model".to_owned();
        assert_eq!(of(&[cheaper]), None);
        assert_eq!(of(&[]), None);
    }
}
