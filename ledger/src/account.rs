//! What has to be sent for a conversation, and what of it a prompt cache answers.
//!
//! The prompt of a call is the fixed part and all parts that are in the context by then. A provider keeps
//! the prompt of a call for a time to live, which every use renews; of the next prompt, the longest common
//! prefix is then read from the cache. So a call is answered from the cache up to the first part that
//! changed, and not at all when more than the time to live lies between two calls. DESIGN §8;
//! <https://platform.claude.com/docs/en/build-with-claude/prompt-caching>.

use crate::conversation::{Conversation, Step};

/// The time to live of a cached prompt unless somebody pays for more: five minutes, in milliseconds.
pub const TTL_MS: u64 = 300_000;

/// What a conversation is billed by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The model's own tokens for each `o200k` token.
    pub per_o200k: f64,
    /// How long a prompt stays cached after its last use, in milliseconds; 0 for no cache at all.
    pub ttl_ms: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            per_o200k: 1.0,
            ttl_ms: TTL_MS,
        }
    }
}

/// The tokens of one call, in the model's own tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTokens {
    /// The whole prompt.
    pub prompt: u64,
    /// Of it, what the cache answers. The rest is sent anew, and cached.
    pub cached: u64,
    /// What the model writes.
    pub output: u64,
    /// The cache had expired: too much time since the call before.
    pub expired: bool,
}

impl CallTokens {
    /// Prompt tokens that no cache answers.
    pub fn fresh(&self) -> u64 {
        self.prompt - self.cached
    }
}

/// What a conversation costs, in the model's own tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Call by call.
    pub calls: Vec<CallTokens>,
    /// Tokens that come into the context for the first time: the fixed part, all that enters, all that is emitted.
    pub entering: u64,
    /// Times that everything but the fixed part left the context.
    pub compactions: usize,
}

impl Account {
    /// Adds up a conversation.
    pub fn of(conversation: &Conversation, terms: &Terms) -> Self {
        Self::delayed(conversation, terms, |_| 0)
    }

    /// As [`Account::of`], where so many milliseconds more pass after a step, because its file calls take them.
    pub fn delayed(
        conversation: &Conversation,
        terms: &Terms,
        delay_ms: impl Fn(&Step) -> u64,
    ) -> Self {
        let own = |tokens: u64| (tokens as f64 * terms.per_o200k).round() as u64;
        let mut account = Self {
            compactions: conversation.compactions(),
            ..Self::default()
        };
        // Tokens of the parts that are in the context, by their number; 0 for those that are gone.
        let mut held: Vec<u64> = Vec::new();
        let mut before: Option<u64> = None;
        let mut delay = 0;
        let mut entering = conversation.fixed;
        for step in &conversation.steps {
            let mut common = before;
            if step.compacted {
                held.iter_mut().for_each(|part| *part = 0);
                common = common.map(|_| conversation.fixed);
            }
            for rewrite in &step.rewrites {
                let Some(part) = held.get_mut(rewrite.part) else {
                    continue;
                };
                if *part != rewrite.tokens {
                    *part = rewrite.tokens;
                    let unchanged: u64 = held[..rewrite.part].iter().sum();
                    common = common.map(|common| common.min(conversation.fixed + unchanged));
                }
            }
            held.extend(step.enters.iter().map(|part| part.tokens));
            let prompt = conversation.fixed + held.iter().sum::<u64>();
            let expired = before.is_some() && step.gap_ms.saturating_add(delay) > terms.ttl_ms;
            let cached = common.filter(|_| !expired).unwrap_or(0).min(prompt);
            let emitted: u64 = step.emits.iter().map(|part| part.tokens).sum();
            account.calls.push(CallTokens {
                prompt: own(prompt),
                cached: own(cached),
                output: own(emitted),
                expired,
            });
            before = Some(prompt);
            held.extend(step.emits.iter().map(|part| part.tokens));
            entering += step.enters.iter().map(|part| part.tokens).sum::<u64>() + emitted;
            delay = delay_ms(step);
        }
        account.entering = own(entering);
        account
    }

    /// Prompt tokens of all calls together: what is sent where nothing is cached.
    pub fn resent(&self) -> u64 {
        self.calls.iter().map(|call| call.prompt).sum()
    }

    /// Of [`Account::resent`], what the cache answers.
    pub fn cached(&self) -> u64 {
        self.calls.iter().map(|call| call.cached).sum()
    }

    /// Of [`Account::resent`], what no cache answers: billed in full, or as a write to the cache.
    pub fn fresh(&self) -> u64 {
        self.calls.iter().map(CallTokens::fresh).sum()
    }

    /// Tokens that the model writes.
    pub fn output(&self) -> u64 {
        self.calls.iter().map(|call| call.output).sum()
    }

    /// The largest context: a prompt with its answer.
    pub fn peak(&self) -> u64 {
        let full = self.calls.iter().map(|call| call.prompt + call.output);
        full.max().unwrap_or(0)
    }

    /// The number of the first call, from 1, whose prompt and answer do not fit into `window` tokens.
    pub fn full_after(&self, window: u64) -> Option<usize> {
        let full = |call: &CallTokens| call.prompt + call.output > window;
        self.calls.iter().position(full).map(|at| at + 1)
    }

    /// Calls that found their prompt expired.
    pub fn expired(&self) -> usize {
        self.calls.iter().filter(|call| call.expired).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{Fixed, Part, PartKind, Rewrite};
    use proptest::prelude::*;

    fn step(enters: u64, emits: u64) -> Step {
        Step {
            gap_ms: 1000,
            enters: vec![Part::new(PartKind::Result, enters)],
            emits: vec![Part::new(PartKind::Text, emits)],
            ..Step::default()
        }
    }

    fn conversation(steps: Vec<Step>) -> Conversation {
        Conversation {
            fixed: 100,
            fixed_is: Fixed::Stated,
            steps,
        }
    }

    #[test]
    fn every_call_sends_all_that_was_before_it() {
        let three = conversation(vec![step(10, 1), step(20, 2), step(30, 3)]);
        let account = Account::of(&three, &Terms::default());
        let prompts: Vec<_> = account.calls.iter().map(|call| call.prompt).collect();
        assert_eq!(prompts, [110, 131, 163]);
        // What was sent before is cached; the answer in between was never sent.
        let fresh: Vec<_> = account.calls.iter().map(CallTokens::fresh).collect();
        assert_eq!(fresh, [110, 21, 32]);
        assert_eq!((account.entering, account.resent()), (166, 404));
        assert_eq!((account.peak(), account.output()), (166, 6));
        assert_eq!(account.full_after(166), None);
        assert_eq!(account.full_after(165), Some(3));
        assert_eq!(account.full_after(0), Some(1));
    }

    #[test]
    fn a_gap_longer_than_the_time_to_live_breaks_the_prefix_and_a_slow_backend_makes_it_longer() {
        let mut three = conversation(vec![step(10, 1), step(20, 2), step(30, 3)]);
        three.steps[1].gap_ms = TTL_MS;
        let in_time = Account::of(&three, &Terms::default());
        assert_eq!((in_time.expired(), in_time.cached()), (0, 110 + 131));
        three.steps[0].files.insert("read".to_owned(), 1);
        let slow = |step: &Step| step.files.values().sum::<u64>();
        let late = Account::delayed(&three, &Terms::default(), slow);
        assert_eq!((late.expired(), late.cached()), (1, 131));
        assert_eq!(late.resent(), in_time.resent());
        let none = Terms {
            ttl_ms: 0,
            ..Terms::default()
        };
        let uncached = Account::of(&three, &none);
        assert_eq!(uncached.fresh(), uncached.resent());
    }

    #[test]
    fn what_changes_in_the_middle_is_sent_anew_from_there() {
        let mut three = conversation(vec![step(10, 1), step(20, 2), step(30, 3)]);
        // The result of the second step shrinks before the third call.
        three.steps[2].rewrites = vec![Rewrite { part: 2, tokens: 5 }];
        let account = Account::of(&three, &Terms::default());
        let third = account.calls[2];
        assert_eq!((third.prompt, third.cached), (100 + 11 + 5 + 2 + 30, 111));
        assert_eq!(account.entering, 166, "it did enter");
    }

    #[test]
    fn compaction_leaves_the_fixed_part() {
        let mut three = conversation(vec![step(10, 1), step(20, 2), step(30, 3)]);
        three.steps[2].compacted = true;
        let account = Account::of(&three, &Terms::default());
        assert_eq!(
            (account.calls[2].prompt, account.calls[2].cached),
            (130, 100)
        );
        assert_eq!((account.peak(), account.compactions), (133, 1));
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let one = (
            0..5000u64,
            0..500u64,
            0..700_000u64,
            prop::bool::weighted(0.1),
            0..40usize,
            0..50u64,
        );
        let one = one.prop_map(|(enters, emits, gap_ms, compacted, part, tokens)| Step {
            gap_ms,
            compacted,
            rewrites: vec![Rewrite { part, tokens }],
            ..step(enters, emits)
        });
        prop::collection::vec(one, 0..20)
    }

    proptest! {
        #[test]
        fn what_is_billed_in_full_is_never_more_than_what_is_sent(steps in steps(), factor in 0.5..2.0f64) {
            let terms = Terms { per_o200k: factor, ttl_ms: TTL_MS };
            let account = Account::of(&conversation(steps), &terms);
            prop_assert!(account.fresh() <= account.resent());
            prop_assert_eq!(account.fresh() + account.cached(), account.resent());
            prop_assert!(account.calls.iter().all(|call| !call.expired || call.cached == 0));
            prop_assert!(account.calls.iter().all(|call| call.prompt + call.output <= account.peak()));
        }

        #[test]
        fn more_waiting_never_makes_it_cheaper(steps in steps(), delay in 0..600_000u64) {
            let conversation = conversation(steps);
            let terms = Terms::default();
            let delayed = Account::delayed(&conversation, &terms, |_| delay);
            let prompt = Account::of(&conversation, &terms);
            prop_assert!(delayed.fresh() >= prompt.fresh());
            prop_assert_eq!(delayed.resent(), prompt.resent());
        }

        #[test]
        fn what_enters_once_does_not_depend_on_the_order(steps in steps()) {
            let mut turned = steps.clone();
            turned.reverse();
            let terms = Terms::default();
            let (one, other) = (conversation(steps), conversation(turned));
            prop_assert_eq!(Account::of(&one, &terms).entering, Account::of(&other, &terms).entering);
        }
    }
}
