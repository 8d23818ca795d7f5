//! Residuals: the differences between the ledger and the usage that the API reported.

use schemars::JsonSchema;
use serde::Serialize;

use crate::account::{Account, CallTokens, Terms};
use crate::conversation::{Conversation, FixedOrigin};

/// The residuals of the ledger against reported prompts. A residual is `ledger / reported - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Residual {
    /// Number of compared calls.
    pub calls: usize,
    /// The median residual of a prompt.
    pub median: f64,
    /// The median of the absolute residuals of prompts.
    pub median_abs: f64,
    /// The largest absolute residual of a prompt.
    pub worst_abs: f64,
    /// The median absolute residual of the prompts' growth beyond the fixed part, which no constant can hide.
    /// Null if no prompt grows.
    pub growth_median_abs: Option<f64>,
    /// The sum of all compared prompts in the ledger.
    pub ledger_tokens: u64,
    /// The sum of all compared prompts as reported.
    pub reported_tokens: u64,
    /// The residuals of the cache; null if no call reported a cache read.
    pub cache: Option<CacheResidual>,
    /// Tokens of the context before the compaction where ledger and client differ most:
    /// the ledger's, and the client's record.
    pub before_compaction: Option<(u64, u64)>,
}

/// The differences between the ledger's cache and the reported one, over all reported calls but the first.
/// The first call may find the prompt of another session in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CacheResidual {
    /// Number of compared calls.
    pub calls: usize,
    /// Uncached prompt tokens: the ledger's, and the reported ones.
    pub fresh: (u64, u64),
    /// Calls whose prompt had expired according to the ledger.
    pub expired: usize,
    /// Calls that reported no cache read.
    pub missed: usize,
    /// Calls whose prompt had expired according to the ledger, and that reported no cache read.
    pub expired_and_missed: usize,
}

/// The prompts of all reported calls but the first: the ledger's, and the reported ones.
/// Both are without output tokens, because clients report those wrongly.
pub fn cached_prompts(conversation: &Conversation, terms: &Terms) -> (Vec<CallTokens>, Vec<CallTokens>) {
    let account = Account::of(conversation, terms);
    let steps = conversation.steps.iter().zip(account.calls).skip(1);
    steps
        .filter_map(|(step, ours)| {
            let reported = step.reported.filter(|reported| reported.prompt > 0)?;
            let theirs = CallTokens {
                prompt: reported.prompt,
                cached: reported.cached.min(reported.prompt),
                output: 0,
                expired: reported.cached == 0,
            };
            Some((CallTokens { output: 0, ..ours }, theirs))
        })
        .unzip()
}

fn cache_residual(conversation: &Conversation, terms: &Terms) -> Option<CacheResidual> {
    let (ours, theirs) = cached_prompts(conversation, terms);
    theirs.iter().find(|call| call.cached > 0)?;
    let fresh = |calls: &[CallTokens]| calls.iter().map(CallTokens::fresh).sum();
    let expired = |calls: &[CallTokens]| calls.iter().filter(|call| call.expired).count();
    let both = ours.iter().zip(&theirs);
    Some(CacheResidual {
        calls: ours.len(),
        fresh: (fresh(&ours), fresh(&theirs)),
        expired: expired(&ours),
        missed: expired(&theirs),
        expired_and_missed: both.filter(|(a, b)| a.expired && b.expired).count(),
    })
}

/// Compares each call with its reported usage. If the fixed part was inferred from the first call,
/// that call is left out. `None` if no call is left.
pub fn residual(conversation: &Conversation, terms: &Terms) -> Option<Residual> {
    let account = Account::of(conversation, terms);
    let fixed = conversation.fixed as f64 * terms.per_o200k;
    let first = usize::from(conversation.fixed_is == FixedOrigin::Inferred);
    let (mut ledger_tokens, mut reported_tokens) = (0, 0);
    let (mut all, mut growth) = (Vec::new(), Vec::new());
    let steps = conversation.steps.iter().zip(&account.calls).skip(first);
    for (step, call) in steps {
        let Some(reported) = step.reported.filter(|reported| reported.prompt > 0) else {
            continue;
        };
        let (ours, theirs) = (call.prompt as f64, reported.prompt as f64);
        ledger_tokens += call.prompt;
        reported_tokens += reported.prompt;
        all.push(ours / theirs - 1.0);
        if theirs > fixed + 1.0 {
            growth.push(((ours - fixed) / (theirs - fixed) - 1.0).abs());
        }
    }
    let calls = account.calls.iter().map(|call| call.prompt + call.output);
    let compacted = conversation.steps.iter().skip(1).zip(calls);
    let compacted = compacted.filter(|(step, _)| step.before_compaction > 0);
    let before_compaction = compacted
        .map(|(step, before)| (before, step.before_compaction))
        .max_by_key(|(ours, theirs)| ours.abs_diff(*theirs));
    let absolute: Vec<f64> = all.iter().map(|residual| residual.abs()).collect();
    Some(Residual {
        calls: all.len(),
        median: median(all)?,
        worst_abs: absolute.iter().copied().fold(0.0, f64::max),
        median_abs: median(absolute)?,
        growth_median_abs: median(growth),
        ledger_tokens,
        reported_tokens,
        cache: cache_residual(conversation, terms),
        before_compaction,
    })
}

/// The median; for an even number of values, the mean of the middle two. `None` without values.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{CallUsage, Part, PartKind, Step};

    fn step(enters: u64, reported: u64) -> Step {
        Step {
            enters: vec![Part::new(PartKind::User, enters)],
            reported: (reported > 0).then_some(CallUsage { prompt: reported, ..CallUsage::default() }),
            ..Step::default()
        }
    }

    #[test]
    fn the_first_call_is_left_out_if_the_fixed_part_is_inferred() {
        let mut conversation = Conversation {
            fixed: 1000,
            fixed_is: FixedOrigin::Inferred,
            steps: vec![step(0, 1000), step(100, 1050), step(100, 1300), step(0, 0)],
            ..Conversation::default()
        };
        let found = residual(&conversation, &Terms::default()).unwrap();
        let tokens = (found.ledger_tokens, found.reported_tokens);
        assert_eq!((found.calls, tokens), (2, (2300, 2350)));
        assert!((found.worst_abs - 100.0 / 1300.0).abs() < 1e-9);
        // The growth is 100 instead of 50, then 200 instead of 300.
        let growth = found.growth_median_abs.unwrap();
        assert!((growth - (1.0 + 1.0 / 3.0) / 2.0).abs() < 1e-9, "{growth}");
        conversation.fixed_is = FixedOrigin::Stated;
        assert_eq!(residual(&conversation, &Terms::default()).unwrap().calls, 3);
        conversation.steps.clear();
        assert_eq!(residual(&conversation, &Terms::default()), None);
    }

    #[test]
    fn the_ledgers_cache_is_compared_with_reported_reads() {
        let cached = |enters: u64, reported: u64, cached: u64, gap_ms: u64| {
            let mut step = step(enters, reported);
            step.gap_ms = gap_ms;
            step.reported.as_mut().unwrap().cached = cached;
            step
        };
        let conversation = Conversation {
            fixed: 1000,
            steps: vec![
                cached(0, 1000, 900, 0),
                cached(100, 1100, 1000, 1000),
                // Expired in both, in the ledger only, in the report only.
                cached(100, 1200, 0, 400_000),
                cached(100, 1300, 1200, 400_000),
                cached(100, 1400, 0, 1000),
            ],
            ..Conversation::default()
        };
        let found = residual(&conversation, &Terms::default()).unwrap();
        let expected = CacheResidual {
            calls: 4,
            fresh: (100 + 1200 + 1300 + 100, 100 + 1200 + 100 + 1400),
            expired: 2,
            missed: 2,
            expired_and_missed: 1,
        };
        assert_eq!(found.cache, Some(expected));
        let mut silent = conversation;
        for step in &mut silent.steps {
            step.reported.as_mut().unwrap().cached = 0;
        }
        assert_eq!(residual(&silent, &Terms::default()).unwrap().cache, None);
    }

    #[test]
    fn the_context_before_a_compaction_is_compared_with_the_clients_record() {
        let mut compacted = step(300, 1300);
        compacted.compacted = true;
        compacted.before_compaction = 1210;
        let conversation = Conversation {
            fixed: 1000,
            steps: vec![step(0, 1000), step(200, 1200), compacted],
            ..Conversation::default()
        };
        let found = residual(&conversation, &Terms::default()).unwrap();
        assert_eq!(found.before_compaction, Some((1200, 1210)));
    }

    #[test]
    fn the_median_of_an_even_number_of_values_is_the_mean_of_the_middle_two() {
        assert_eq!(median(vec![4.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
