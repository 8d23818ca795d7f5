//! Accounts: the prompt and output tokens of a conversation, and how many of them the prompt cache serves.
//! A prompt is the fixed part and all parts in the context. A provider caches it for a time to live,
//! which every use renews. The cache serves the longest common prefix with the previous prompt:
//! all parts before the first changed one, or nothing after the time to live. `docs/TOKENS.md`;
//! <https://platform.claude.com/docs/en/build-with-claude/prompt-caching>.

use crate::conversation::{Conversation, PartKind, Step, ThinkingRetention};

/// The standard time to live of a cached prompt: five minutes, in milliseconds.
pub const TTL_MS: u64 = 300_000;

/// The billing terms of a conversation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The model's own tokens per `o200k` token.
    pub per_o200k: f64,
    /// The time to live of a cached prompt after its last use, in milliseconds; 0 for no cache.
    pub ttl_ms: u64,
    /// How long the model's thinking stays in its prompts.
    pub thinking: ThinkingRetention,
    /// Tokens at the beginning of the fixed part that other sessions keep in the cache, in the model's own tokens: the
    /// first call finds them there, and so does a call after a compaction, a gap or a change of the model.
    pub shared: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { per_o200k: 1.0, ttl_ms: TTL_MS, thinking: ThinkingRetention::Always, shared: 0 }
    }
}

/// The tokens of one call, in the model's own tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTokens {
    /// The whole prompt.
    pub prompt: u64,
    /// Prompt tokens that the cache serves. The others are sent uncached and then cached.
    pub cached: u64,
    /// Output tokens.
    pub output: u64,
    /// Whether the cached prompt had expired since the previous call.
    pub expired: bool,
}

impl CallTokens {
    /// Prompt tokens that the cache does not serve.
    pub fn fresh(&self) -> u64 {
        self.prompt - self.cached
    }
}

/// The tokens of a conversation, in the model's own tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The tokens of each call.
    pub calls: Vec<CallTokens>,
    /// Tokens that enter the context for the first time: the fixed part, entering parts and emitted parts.
    pub entering: u64,
    /// Number of compactions, in which everything but the fixed part leaves the context.
    pub compactions: usize,
}

impl Account {
    /// Computes the account of a conversation.
    pub fn of(conversation: &Conversation, terms: &Terms) -> Self {
        Self::delayed(conversation, terms, |_| 0)
    }

    /// As [`Account::of`], with an additional delay after each step for its file calls, in milliseconds.
    pub fn delayed(conversation: &Conversation, terms: &Terms, delay_ms: impl Fn(&Step) -> u64) -> Self {
        let converted = |tokens: u64| (tokens as f64 * terms.per_o200k).round() as u64;
        let mut account = Self { compactions: conversation.compactions(), ..Self::default() };
        let mut context = Context { fixed: conversation.fixed, ..Context::default() };
        let shared = ((terms.shared as f64 / terms.per_o200k).round() as u64).min(conversation.fixed);
        let mut before: Option<u64> = None;
        let mut delay = 0;
        let mut entering = conversation.fixed;
        let mut model: &str = "";
        for step in &conversation.steps {
            let unchanged = context.change(step, terms.thinking);
            let common = before.map(|before| before.min(unchanged));
            context.extend(step.enters.iter().map(|part| part.tokens));
            let prompt = context.tokens();
            let expired = before.is_some() && step.gap_ms.saturating_add(delay) > terms.ttl_ms;
            // A model does not read what another one has written to the cache.
            let is_another = before.is_some() && step.model != model;
            model = &step.model;
            let common = common.filter(|_| !expired && !is_another);
            let common = if step.compacted && shared > 0 { common.map(|common| common.min(shared)) } else { common };
            let cached = common.unwrap_or(shared).min(prompt);
            let emitted: u64 = step.emits.iter().map(|part| part.tokens).sum();
            account.calls.push(CallTokens {
                prompt: converted(prompt),
                cached: converted(cached),
                output: converted(emitted),
                expired,
            });
            before = Some(prompt);
            for part in &step.emits {
                if part.kind == PartKind::Thinking {
                    context.thoughts.push(context.next());
                }
                context.extend([part.tokens]);
            }
            entering += step.enters.iter().map(|part| part.tokens).sum::<u64>() + emitted;
            delay = delay_ms(step);
        }
        account.entering = converted(entering);
        account
    }

    /// Prompt tokens of all calls, cached or not.
    pub fn resent(&self) -> u64 {
        self.calls.iter().map(|call| call.prompt).sum()
    }

    /// The part of [`Account::resent`] that the cache serves.
    pub fn cached(&self) -> u64 {
        self.calls.iter().map(|call| call.cached).sum()
    }

    /// The part of [`Account::resent`] that the cache does not serve. It is billed as input or as a cache
    /// write.
    pub fn fresh(&self) -> u64 {
        self.calls.iter().map(CallTokens::fresh).sum()
    }

    /// Output tokens of all calls.
    pub fn output(&self) -> u64 {
        self.calls.iter().map(|call| call.output).sum()
    }

    /// The largest context: a prompt with its output.
    pub fn peak(&self) -> u64 {
        let full = self.calls.iter().map(|call| call.prompt + call.output);
        full.max().unwrap_or(0)
    }

    /// The first call, from 1, whose prompt and output do not fit into `window` tokens; `None` if all fit.
    pub fn full_after(&self, window: u64) -> Option<usize> {
        let full = |call: &CallTokens| call.prompt + call.output > window;
        self.calls.iter().position(full).map(|at| at + 1)
    }

    /// Number of calls whose prompt had expired in the cache.
    pub fn expired(&self) -> usize {
        self.calls.iter().filter(|call| call.expired).count()
    }
}

/// The context between two calls. A session of 60,000 steps has some hundred thousand parts, and each step asks for sums of
/// them.
#[derive(Default)]
struct Context {
    fixed: u64,
    /// The number of the first part since the last compaction.
    first: usize,
    /// Tokens of each part from `first` on; `None` for parts that left the context.
    held: Vec<Option<u64>>,
    /// The tokens of `held` as a Fenwick tree: the sum of the first `n` takes log n steps.
    sums: Vec<u64>,
    /// The numbers of thinking parts still in the context.
    thoughts: Vec<usize>,
}

/// The lowest bit that is set.
fn lowest_bit(number: usize) -> usize {
    number & number.wrapping_neg()
}

impl Context {
    /// The number of the next part.
    fn next(&self) -> usize {
        self.first + self.held.len()
    }

    fn extend(&mut self, parts: impl IntoIterator<Item = u64>) {
        for tokens in parts {
            self.held.push(Some(tokens));
            let place = self.held.len();
            let below = self.sum(place - 1) - self.sum(place - lowest_bit(place));
            self.sums.push(below + tokens);
        }
    }

    fn tokens(&self) -> u64 {
        self.fixed + self.sum(self.held.len())
    }

    /// Tokens of the first parts of `held`.
    fn sum(&self, parts: usize) -> u64 {
        let (mut sum, mut at) = (0, parts);
        while at > 0 {
            sum += self.sums[at - 1];
            at -= lowest_bit(at);
        }
        sum
    }

    /// Replaces the tokens of a part of `held` in the sums.
    fn resum(&mut self, at: usize, old: u64, new: u64) {
        let mut place = at + 1;
        while let Some(sum) = self.sums.get_mut(place - 1) {
            *sum = *sum - old + new;
            place += lowest_bit(place);
        }
    }

    /// Applies the changes before a step. Returns the tokens before the first changed part.
    fn change(&mut self, step: &Step, thinking: ThinkingRetention) -> u64 {
        let mut unchanged = u64::MAX;
        if step.compacted {
            self.first = self.next();
            self.held.clear();
            self.sums.clear();
            self.thoughts.clear();
            unchanged = self.fixed;
        }
        let goes = match thinking {
            ThinkingRetention::Always => false,
            ThinkingRetention::UntilUserSpeaks => step.enters.iter().any(|part| part.kind == PartKind::User),
            ThinkingRetention::Never => true,
        };
        if goes {
            for thought in std::mem::take(&mut self.thoughts) {
                unchanged = unchanged.min(self.rewrite(thought, None));
            }
        }
        for rewrite in &step.rewrites {
            unchanged = unchanged.min(self.rewrite(rewrite.part, Some(rewrite.tokens)));
        }
        unchanged
    }

    /// Replaces a part in the context. Returns the tokens before it, or `u64::MAX` without a change.
    fn rewrite(&mut self, part: usize, tokens: Option<u64>) -> u64 {
        let Some(at) = part.checked_sub(self.first) else {
            return u64::MAX;
        };
        let Some(Some(old)) = self.held.get(at).copied() else {
            return u64::MAX;
        };
        let new = tokens.unwrap_or(0);
        self.held[at] = tokens;
        self.resum(at, old, new);
        if old == 0 && new == 0 {
            return u64::MAX;
        }
        self.fixed + self.sum(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{FixedOrigin, Part, PartKind, Rewrite};
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
        Conversation { fixed: 100, fixed_is: FixedOrigin::Stated, steps, ..Conversation::default() }
    }

    fn three() -> Conversation {
        conversation(vec![step(10, 1), step(20, 2), step(30, 3)])
    }

    #[test]
    fn every_call_sends_all_earlier_parts() {
        let account = Account::of(&three(), &Terms::default());
        let prompts: Vec<_> = account.calls.iter().map(|call| call.prompt).collect();
        assert_eq!(prompts, [110, 131, 163]);
        // The previous prompt is cached, but the answer after it was never sent.
        let fresh: Vec<_> = account.calls.iter().map(CallTokens::fresh).collect();
        assert_eq!(fresh, [110, 21, 32]);
        assert_eq!((account.entering, account.resent()), (166, 404));
        assert_eq!((account.peak(), account.output()), (166, 6));
        assert_eq!(account.full_after(166), None);
        assert_eq!(account.full_after(165), Some(3));
        assert_eq!(account.full_after(0), Some(1));
    }

    #[test]
    fn a_gap_longer_than_the_time_to_live_expires_the_prompt() {
        let mut three = three();
        three.steps[1].gap_ms = TTL_MS;
        let in_time = Account::of(&three, &Terms::default());
        assert_eq!((in_time.expired(), in_time.cached()), (0, 110 + 131));
        three.steps[0].files.insert("read".to_owned(), 1);
        let slow = |step: &Step| step.files.values().sum::<u64>();
        let late = Account::delayed(&three, &Terms::default(), slow);
        assert_eq!((late.expired(), late.cached()), (1, 131));
        assert_eq!(late.resent(), in_time.resent());
        let none = Terms { ttl_ms: 0, ..Terms::default() };
        let uncached = Account::of(&three, &none);
        assert_eq!(uncached.fresh(), uncached.resent());
    }

    #[test]
    fn what_other_sessions_share_is_found_where_the_sessions_own_prompt_is_not() {
        let terms = Terms { shared: 40, ..Terms::default() };
        let cached = |change: &dyn Fn(&mut Step)| {
            let mut three = three();
            change(&mut three.steps[1]);
            let calls = Account::of(&three, &terms).calls;
            calls.iter().map(|call| call.cached).collect::<Vec<_>>()
        };
        assert_eq!(cached(&|_| {}), [40, 110, 131]);
        assert_eq!(cached(&|step| step.gap_ms = TTL_MS + 1), [40, 40, 131]);
        assert_eq!(cached(&|step| step.compacted = true), [40, 40, 120]);
        // The third call is on the first model again, and finds what the other one has not changed: the shared part.
        assert_eq!(cached(&|step| step.model = "b".to_owned()), [40, 40, 40]);
        // A share that the first prompt does not have is not in it.
        let more = Terms { shared: 9999, ..Terms::default() };
        assert_eq!(Account::of(&three(), &more).calls[0].cached, 100);
    }

    #[test]
    fn a_session_of_a_hundred_thousand_steps_is_accounted_for_at_once() {
        let steps = (0..100_000).map(|_| step(10, 20)).collect();
        let began = std::time::Instant::now();
        let account = Account::of(&conversation(steps), &Terms::default());
        assert_eq!(account.calls.len(), 100_000);
        // By a sum over all parts at each step: minutes.
        assert!(began.elapsed().as_secs() < 20);
    }

    #[test]
    fn a_changed_part_invalidates_the_cache_from_there() {
        let mut three = three();
        // The result of the second step shrinks before the third call.
        three.steps[2].rewrites = vec![Rewrite { part: 2, tokens: 5 }];
        let account = Account::of(&three, &Terms::default());
        let third = account.calls[2];
        assert_eq!((third.prompt, third.cached), (100 + 11 + 5 + 2 + 30, 111));
        assert_eq!(account.entering, 166, "it did enter");
    }

    #[test]
    fn compaction_leaves_the_fixed_part() {
        let mut three = three();
        three.steps[2].compacted = true;
        let account = Account::of(&three, &Terms::default());
        let third = account.calls[2];
        assert_eq!((third.prompt, third.cached), (130, 100));
        assert_eq!((account.peak(), account.compactions), (133, 1));
    }

    #[test]
    fn thinking_leaves_the_prompts_when_the_provider_says_so() {
        let mut three = three();
        three.steps[0].emits.insert(0, Part::new(PartKind::Thinking, 7));
        three.steps[2].enters[0].kind = PartKind::User;
        let until_user_speaks = [(110, 0), (138, 110), (163, 110)];
        for (thinking, expected) in [
            (ThinkingRetention::Always, [(110, 0), (138, 110), (170, 138)]),
            (ThinkingRetention::UntilUserSpeaks, until_user_speaks),
            (ThinkingRetention::Never, [(110, 0), (131, 110), (163, 131)]),
        ] {
            let terms = Terms { thinking, ..Terms::default() };
            let calls = Account::of(&three, &terms).calls;
            let found = calls.iter().map(|call| (call.prompt, call.cached));
            assert!(found.eq(expected), "{thinking:?}: {calls:?}");
        }
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let kind = |user: bool| if user { PartKind::User } else { PartKind::Result };
        let one = (
            (0..40u64, any::<bool>()),
            (0..20u64, 0..10u64),
            0..700_000u64,
            prop::bool::weighted(0.1),
            prop::collection::vec((0..40usize, 0..20u64), 0..3),
        );
        let one = one.prop_map(move |((enters, user), (thinks, says), gap_ms, compacted, rewrites)| Step {
            gap_ms,
            compacted,
            enters: vec![Part::new(kind(user), enters)],
            emits: vec![Part::new(PartKind::Thinking, thinks), Part::new(PartKind::Text, says)],
            rewrites: rewrites.into_iter().map(|(part, tokens)| Rewrite { part, tokens }).collect(),
            ..Step::default()
        });
        prop::collection::vec(one, 0..15)
    }

    fn thinking() -> impl Strategy<Value = ThinkingRetention> {
        prop::sample::select(vec![
            ThinkingRetention::Always,
            ThinkingRetention::UntilUserSpeaks,
            ThinkingRetention::Never,
        ])
    }

    /// The prompts token by token; every token is unique.
    fn written_out(conversation: &Conversation, thinking: ThinkingRetention) -> Vec<Vec<u64>> {
        let mut next = 0;
        let mut tokens = |count: u64| {
            next += count;
            (next - count..next).collect::<Vec<u64>>()
        };
        let fixed = tokens(conversation.fixed);
        let mut parts: Vec<(PartKind, Option<Vec<u64>>)> = Vec::new();
        let mut prompts = Vec::new();
        for step in &conversation.steps {
            let user = step.enters.iter().any(|part| part.kind == PartKind::User);
            for (kind, text) in &mut parts {
                let is_thought = *kind == PartKind::Thinking;
                let goes =
                    thinking == ThinkingRetention::Never || (thinking == ThinkingRetention::UntilUserSpeaks && user);
                if step.compacted || (is_thought && goes) {
                    *text = None;
                }
            }
            for rewrite in &step.rewrites {
                if let Some((_, Some(text))) = parts.get_mut(rewrite.part) {
                    *text = tokens(rewrite.tokens);
                }
            }
            let mut written = |part: &Part| (part.kind, Some(tokens(part.tokens)));
            parts.extend(step.enters.iter().map(&mut written));
            let texts = parts.iter().filter_map(|(_, text)| text.as_ref());
            prompts.push(fixed.iter().chain(texts.flatten()).copied().collect());
            parts.extend(step.emits.iter().map(written));
        }
        prompts
    }

    proptest! {
        #[test]
        fn the_cache_answers_the_longest_common_prefix_of_two_prompts(
            steps in steps(), thinking in thinking()
        ) {
            let conversation = conversation(steps);
            let terms = Terms { thinking, ..Terms::default() };
            let account = Account::of(&conversation, &terms);
            let prompts = written_out(&conversation, thinking);
            prop_assert_eq!(account.calls.len(), prompts.len());
            for (at, call) in account.calls.iter().enumerate() {
                prop_assert_eq!(call.prompt, prompts[at].len() as u64, "prompt {}", at);
                let expired = at > 0 && conversation.steps[at].gap_ms > TTL_MS;
                let common = match at {
                    0 => 0,
                    _ if expired => 0,
                    _ => prompts[at - 1].iter().zip(&prompts[at]).take_while(|(a, b)| a == b).count(),
                };
                prop_assert_eq!((call.cached, call.expired), (common as u64, expired), "call {}", at);
            }
        }

        #[test]
        fn a_longer_wait_never_serves_more_from_the_cache(steps in steps(), delay in 0..600_000u64) {
            let conversation = conversation(steps);
            let terms = Terms::default();
            let delayed = Account::delayed(&conversation, &terms, |_| delay);
            let prompt = Account::of(&conversation, &terms);
            prop_assert!(delayed.fresh() >= prompt.fresh());
            prop_assert_eq!(delayed.resent(), prompt.resent());
        }

        #[test]
        fn entering_tokens_do_not_depend_on_the_order_of_steps(steps in steps()) {
            let mut turned = steps.clone();
            turned.reverse();
            let terms = Terms::default();
            let (one, other) = (conversation(steps), conversation(turned));
            prop_assert_eq!(Account::of(&one, &terms).entering, Account::of(&other, &terms).entering);
        }
    }
}
