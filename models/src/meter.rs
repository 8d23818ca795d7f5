//! Counts what a model uses, and stops at a budget.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Cancel, Model, ModelError, Reply, Request};

/// How often a waiting request looks whether anybody still waits for it.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// Of a request.
    pub prompt: f64,
    /// Of an answer.
    pub output: f64,
}

impl Price {
    /// US dollars for so many tokens.
    pub fn of(&self, prompt: u64, output: u64) -> f64 {
        (prompt as f64 * self.prompt + output as f64 * self.output) / 1e6
    }
}

/// What may be used. A request that begins within the budget is answered: what runs at once may exceed it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// Tokens in all; `None` for no limit.
    pub tokens: Option<u64>,
    /// US dollars; `None` for no limit. Needs a price.
    pub dollars: Option<f64>,
}

/// What has been used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Requests that were answered.
    pub calls: u64,
    /// Requests that were not.
    pub failures: u64,
    /// Attempts beyond the first of each answered request.
    pub retries: u64,
    /// Tokens of requests.
    pub prompt_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// Time that requests waited for the model to be free.
    pub queue: Duration,
    /// Time until the first pieces of answers.
    pub first_byte: Duration,
    /// Time of answers as a whole.
    pub total: Duration,
}

/// A model with a count, a budget, and a limit to how many requests it answers at once.
pub struct Meter {
    model: Box<dyn Model>,
    price: Option<Price>,
    budget: Budget,
    parallel: usize,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    totals: Totals,
    running: usize,
}

impl Meter {
    /// Counts the requests to `model`; at most `parallel` (at least 1) of them run at once.
    pub fn new(
        model: Box<dyn Model>,
        price: Option<Price>,
        budget: Budget,
        parallel: usize,
    ) -> Self {
        Self {
            model,
            price,
            budget,
            parallel: parallel.max(1),
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// What has been used so far.
    pub fn totals(&self) -> Totals {
        self.state().totals
    }

    /// US dollars used so far, where there is a price.
    pub fn dollars(&self) -> Option<f64> {
        let totals = self.totals();
        let price = self.price?;
        Some(price.of(totals.prompt_tokens, totals.output_tokens))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_budget(&self, totals: &Totals) -> Result<(), ModelError> {
        let tokens = totals.prompt_tokens + totals.output_tokens;
        if let Some(limit) = self.budget.tokens.filter(|limit| tokens >= *limit) {
            return Err(ModelError::BudgetSpent {
                spent: format!("{tokens} tokens"),
                budget: format!("{limit} tokens"),
            });
        }
        let dollars = self.price.map_or(0.0, |price| {
            price.of(totals.prompt_tokens, totals.output_tokens)
        });
        if let Some(limit) = self.budget.dollars.filter(|limit| dollars >= *limit) {
            return Err(ModelError::BudgetSpent {
                spent: format!("${dollars:.4}"),
                budget: format!("${limit:.4}"),
            });
        }
        Ok(())
    }
}

impl Model for Meter {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError> {
        let came = Instant::now();
        let mut state = self.state();
        while state.running >= self.parallel {
            if cancel.is_cancelled() {
                return Err(ModelError::Cancelled);
            }
            let waited = self.freed.wait_timeout(state, LOOK_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Err(spent) = self.check_budget(&state.totals) {
            state.totals.failures += 1;
            return Err(spent);
        }
        state.running += 1;
        drop(state);
        let queue = came.elapsed();
        let answered = self.model.complete(request, cancel);
        let mut state = self.state();
        state.running -= 1;
        self.freed.notify_one();
        let totals = &mut state.totals;
        match answered {
            Ok(mut reply) => {
                reply.timing.queue = queue;
                totals.calls += 1;
                totals.retries += u64::from(reply.timing.attempts.saturating_sub(1));
                totals.prompt_tokens += reply.usage.prompt;
                totals.output_tokens += reply.usage.output;
                totals.queue += queue;
                totals.first_byte += reply.timing.first_byte;
                totals.total += reply.timing.total;
                Ok(reply)
            }
            Err(error) => {
                totals.failures += 1;
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Finish, Message, Origin, Role, Timing, Usage};

    struct Ten;

    impl Model for Ten {
        fn name(&self) -> &str {
            "ten"
        }
        fn complete(&self, _: &Request, _: &Cancel) -> Result<Reply, ModelError> {
            std::thread::sleep(Duration::from_millis(20));
            Ok(Reply {
                text: "ten".to_owned(),
                finish: Finish::Stop,
                usage: Usage {
                    prompt: 7,
                    output: 3,
                    is_estimated: false,
                },
                timing: Timing::default(),
                origin: Origin::Simulated,
            })
        }
    }

    fn ask(meter: &Meter) -> Result<Reply, ModelError> {
        let request = Request {
            model: "ten".to_owned(),
            messages: vec![Message::new(Role::User, "x")],
            temperature: 0.0,
            max_tokens: 10,
            seed: 1,
            schema: None,
        };
        meter.complete(&request, &Cancel::default())
    }

    #[test]
    fn stops_at_the_budget_of_tokens_and_of_dollars() {
        let price = Some(Price {
            prompt: 1e6,
            output: 1e6,
        });
        let budgets = [
            Budget {
                tokens: Some(20),
                dollars: None,
            },
            Budget {
                tokens: None,
                dollars: Some(20.0),
            },
        ];
        for budget in budgets {
            let meter = Meter::new(Box::new(Ten), price, budget, 1);
            assert!(ask(&meter).is_ok() && ask(&meter).is_ok());
            let spent = ask(&meter).unwrap_err();
            assert!(matches!(spent, ModelError::BudgetSpent { .. }), "{spent}");
            let totals = meter.totals();
            assert_eq!((totals.calls, totals.failures), (2, 1));
            assert_eq!((totals.prompt_tokens, totals.output_tokens), (14, 6));
            assert_eq!(meter.dollars(), Some(20.0));
        }
    }

    #[test]
    fn no_more_run_at_once_than_may_and_the_wait_is_counted() {
        let meter = Meter::new(Box::new(Ten), None, Budget::default(), 1);
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| ask(&meter).unwrap());
            }
        });
        assert!(started.elapsed() >= Duration::from_millis(60));
        assert!(meter.totals().queue >= Duration::from_millis(40));
    }
}
