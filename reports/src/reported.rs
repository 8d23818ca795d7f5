//! The bill of a recorded session: dollars of the tokens that its files report, by model, and of those that our ledger
//! counts, as an estimate with an interval.

use std::collections::BTreeMap;

use tokens::{Account, Conversation, Terms};

use crate::prices::{Cache, Prices, ReportedTokens};

/// How far the ledger's dollars can be from the reported ones on models whose tokenizer was measured: the worst of the
/// sessions that it was tested on, rounded up.
const MEASURED: (f64, f64) = (0.90, 1.10);

/// The same on other models: their tokenizers give up to 54 % more tokens than the measured ones.
const UNMEASURED: (f64, f64) = (0.90, 1.60);

/// What one model of a session used, as the session's files report it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelBill {
    /// The model's name in the recording; empty if the recording does not say.
    pub model: String,
    /// Calls that report their usage; 0 if only a total is stated.
    pub calls: u64,
    /// The tokens.
    pub tokens: ReportedTokens,
    /// The dollars, or why there are none.
    pub dollars: Result<f64, String>,
    /// The row of the price list.
    pub price: Option<String>,
}

/// The dollars that our ledger gives a session: an estimate, and the interval in which the reported dollars would lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LedgerEstimate {
    /// The ledger's dollars.
    pub dollars: f64,
    /// The ends of the interval.
    pub interval: (f64, f64),
}

/// Bills what each model used on the session's day. A call's own tokens select its tier.
pub fn bill<'a>(
    calls: impl IntoIterator<Item = (&'a str, ReportedTokens)>,
    prices: &Prices,
    day: &str,
) -> Vec<ModelBill> {
    let mut all: BTreeMap<&str, ModelBill> = BTreeMap::new();
    for (model, tokens) in calls {
        let price = prices.of(model, day);
        let bill = all.entry(model).or_insert_with(|| ModelBill {
            model: model.to_owned(),
            calls: 0,
            tokens: ReportedTokens::default(),
            dollars: match (&price, model) {
                (_, "") => Err("the recording does not name the model".to_owned()),
                (price, _) => price.as_ref().map(|_| 0.0).map_err(Clone::clone),
            },
            price: price.as_ref().ok().map(|price| price.label()),
        });
        bill.calls += 1;
        bill.tokens.add(&tokens);
        if let (Ok(dollars), Ok(price)) = (&mut bill.dollars, price) {
            *dollars += price.reported(&tokens);
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

/// The dollars that our ledger gives a conversation on a model; `None` without a price, or without a call of the model.
pub fn estimate(
    conversation: &Conversation,
    model: &str,
    prices: &Prices,
    day: &str,
) -> Option<LedgerEstimate> {
    let price = prices.of(model, day).ok()?;
    if conversation.steps.is_empty() {
        return None;
    }
    let factor = tokens::factor(model);
    let terms = Terms {
        per_o200k: factor.per_o200k,
        thinking: tokens::thinking_stays(model),
        ..Terms::default()
    };
    let dollars = price.dollars(&Account::of(conversation, &terms), Cache::FiveMinutes);
    let (low, high) = match factor.is_measured {
        true => MEASURED,
        false => UNMEASURED,
    };
    Some(LedgerEstimate {
        dollars,
        interval: (dollars * low, dollars * high),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_is_billed_at_its_price_and_one_without_a_price_keeps_its_tokens() {
        let prices = Prices::built_in().unwrap();
        let tokens = |uncached, output| ReportedTokens {
            uncached,
            output,
            ..ReportedTokens::default()
        };
        let calls = [
            ("claude-sonnet-4-5[1m]", tokens(1_000_000, 0)),
            ("gpt-5-codex", tokens(0, 1_000_000)),
            ("gpt-5-codex", tokens(0, 1_000_000)),
            ("own-model", tokens(7, 8)),
            ("", tokens(1, 0)),
        ];
        let bills = bill(calls, &prices, "2026-02-01");
        let shown: Vec<(&str, u64, String)> = bills
            .iter()
            .map(|bill| {
                let dollars = bill
                    .dollars
                    .as_ref()
                    .map_or_else(Clone::clone, |d| format!("{d:.2}"));
                let dollars = dollars.lines().next().unwrap_or_default().to_owned();
                (bill.model.as_str(), bill.calls, dollars)
            })
            .collect();
        assert_eq!(shown[0], ("gpt-5-codex", 2, "20.00".to_owned()));
        // A prompt of a million tokens is billed by the tier above 200,000.
        assert_eq!(shown[1], ("claude-sonnet-4-5[1m]", 1, "6.00".to_owned()));
        assert!(
            shown[2..]
                .iter()
                .any(|(_, _, why)| why.contains("has no price; ")),
            "{shown:?}"
        );
        assert!(
            shown[2..]
                .iter()
                .any(|(_, _, why)| why.contains("does not name")),
            "{shown:?}"
        );
        let own = bills.iter().find(|bill| bill.model == "own-model").unwrap();
        assert_eq!((own.tokens.uncached, own.tokens.output), (7, 8));
    }
}
