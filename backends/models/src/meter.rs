//! Counts a model's requests, tokens and costs, and enforces a budget.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::{Cancel, Model, ModelError, Reply, Request};

/// Poll interval for cancellation of a queued request.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// Price of request tokens.
    pub prompt: f64,
    /// Price of answer tokens.
    pub output: f64,
}

impl Price {
    /// US dollars for the tokens of requests and answers.
    pub fn of(&self, prompt: u64, output: u64) -> f64 {
        (prompt as f64 * self.prompt + output as f64 * self.output) / 1e6
    }
}

/// The limits of use. A request that starts within the budget is answered, so parallel requests may
/// exceed it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// Total tokens; `None` for no limit.
    pub tokens: Option<u64>,
    /// US dollars; `None` for no limit. Needs a price.
    pub dollars: Option<f64>,
}

/// The use so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Answered requests.
    pub calls: u64,
    /// Failed requests.
    pub failures: u64,
    /// Request tokens of attempts that a model received and did not answer completely.
    ///
    /// An estimate with the `o200k` vocabulary. They count against a budget.
    pub unanswered_tokens: u64,
    /// Attempts after the first of each answered request.
    pub retries: u64,
    /// Request tokens of answered requests.
    pub prompt_tokens: u64,
    /// Answer tokens.
    pub output_tokens: u64,
    /// Total time in the queue.
    pub queue: Duration,
    /// Total time from sending a request to the first piece of its answer.
    pub first_byte: Duration,
    /// Total time from sending a request to the end of its answer.
    pub total: Duration,
}

/// A model with counters, a budget, and a limit of parallel requests.
pub struct Meter {
    model: Box<dyn Model>,
    price: Option<Price>,
    budget: Budget,
    parallel: usize,
    patience: Option<Duration>,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    totals: Totals,
    /// US dollars for the tokens of the model with a known price.
    dollars: f64,
    running: usize,
}

/// The slot of a running request. Dropping it, also by a panic, lets the next request run.
struct Slot<'a>(&'a Meter);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
        self.0.freed.notify_one();
    }
}

impl Meter {
    /// Counts the requests to `model`; at most `parallel` (minimum 1) of them run at once.
    pub fn new(model: Box<dyn Model>, price: Option<Price>, budget: Budget, parallel: usize) -> Self {
        Self {
            model,
            price,
            budget,
            parallel: parallel.max(1),
            patience: None,
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Limits each answer to `patience`, including the time in the queue.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// The unused budget.
    pub fn left(&self) -> Budget {
        let state = self.state.lock();
        let Budget { tokens, dollars } = self.budget;
        Budget {
            tokens: tokens.map(|limit| limit.saturating_sub(spent(&state.totals))),
            dollars: dollars.map(|limit| (limit - state.dollars).max(0.0)),
        }
    }

    /// The use so far.
    pub fn totals(&self) -> Totals {
        self.state.lock().totals
    }

    /// US dollars used so far by the model with a known price, unanswered requests included.
    /// `None` without a price.
    pub fn dollars(&self) -> Option<f64> {
        self.price.map(|_| self.state.lock().dollars)
    }

    fn check_budget(&self, state: &State) -> Result<(), ModelError> {
        let tokens = spent(&state.totals);
        if let Some(limit) = self.budget.tokens.filter(|limit| tokens >= *limit) {
            return Err(ModelError::BudgetSpent {
                spent: format!("{tokens} tokens"),
                budget: format!("{limit} tokens"),
            });
        }
        let dollars = state.dollars;
        if let Some(limit) = self.budget.dollars.filter(|limit| dollars >= *limit) {
            return Err(ModelError::BudgetSpent { spent: format!("${dollars:.4}"), budget: format!("${limit:.4}") });
        }
        Ok(())
    }

    /// Adds the cost of tokens of `model`, if its price is known.
    fn count(&self, state: &mut State, model: &str, prompt: u64, output: u64) {
        if let Some(price) = self.price.filter(|_| model == self.name()) {
            state.dollars += price.of(prompt, output);
        }
    }

    fn is_too_late(&self, came: Instant) -> bool {
        self.patience.is_some_and(|patience| came.elapsed() >= patience)
    }

    fn busy(&self, came: Instant) -> ModelError {
        ModelError::Busy { model: self.name().to_owned(), after: came.elapsed() }
    }

    /// Waits for a free slot.
    fn queue(&self, came: Instant, cancel: &Cancel) -> Result<Slot<'_>, ModelError> {
        let mut state = self.state.lock();
        while state.running >= self.parallel {
            if cancel.is_cancelled() {
                return Err(ModelError::Cancelled);
            }
            if self.is_too_late(came) {
                break;
            }
            self.freed.wait_for(&mut state, LOOK_EVERY);
        }
        if self.is_too_late(came) {
            state.totals.failures += 1;
            return Err(self.busy(came));
        }
        if let Err(spent) = self.check_budget(&state) {
            state.totals.failures += 1;
            return Err(spent);
        }
        state.running += 1;
        Ok(Slot(self))
    }
}

/// Tokens that count against a budget.
fn spent(totals: &Totals) -> u64 {
    totals.prompt_tokens + totals.output_tokens + totals.unanswered_tokens
}

impl Model for Meter {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError> {
        let came = Instant::now();
        if self.budget.dollars.is_some() && request.model != self.name() {
            self.state.lock().totals.failures += 1;
            return Err(ModelError::NoPrice { model: request.model.clone(), priced: self.name().to_owned() });
        }
        let slot = self.queue(came, cancel)?;
        let queue = came.elapsed();
        let deadline = self.patience.and_then(|patience| came.checked_add(patience));
        let answered = match deadline {
            Some(deadline) => self.model.complete(request, &cancel.before(deadline)),
            None => self.model.complete(request, cancel),
        };
        drop(slot);
        let unanswered = match &answered {
            Ok(reply) => u64::from(reply.timing.broke_off),
            Err(error) => u64::from(error.has_been_asked()),
        };
        let unanswered = match unanswered {
            // Counting tokens takes time.
            0 => 0,
            attempts => attempts * request.estimated_tokens(),
        };
        let mut state = self.state.lock();
        state.totals.unanswered_tokens += unanswered;
        self.count(&mut state, &request.model, unanswered, 0);
        if let Ok(reply) = &answered {
            let usage = reply.usage;
            self.count(&mut state, &request.model, usage.prompt, usage.output);
        }
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::{Finish, Message, Origin, Role, Timing, Usage};

    struct TenTokenModel;

    impl Model for TenTokenModel {
        fn name(&self) -> &str {
            "ten"
        }
        fn complete(&self, _: &Request, _: &Cancel) -> Result<Reply, ModelError> {
            std::thread::sleep(Duration::from_millis(20));
            Ok(Reply {
                text: "ten".to_owned(),
                finish: Finish::Stop,
                usage: Usage { prompt: 7, output: 3, is_estimated: false },
                timing: Timing::default(),
                origin: Origin::Simulated,
                has_own_sampling: false,
            })
        }
    }

    fn request(model: &str) -> Request {
        Request { model: model.to_owned(), messages: vec![Message::new(Role::User, "x")], ..Request::default() }
    }

    fn ask(meter: &Meter) -> Result<Reply, ModelError> {
        meter.complete(&request("ten"), &Cancel::default())
    }

    /// A dollar a token.
    const DEAR: Price = Price { prompt: 1e6, output: 1e6 };

    #[test]
    fn stops_at_the_budget_of_tokens_and_of_dollars() {
        for (tokens, dollars) in [(Some(20), None), (None, Some(20.0))] {
            let budget = Budget { tokens, dollars };
            let meter = Meter::new(Box::new(TenTokenModel), Some(DEAR), budget, 1);
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
        let queue = || {
            let meter = Meter::new(Box::new(TenTokenModel), None, Budget::default(), 1);
            let started = Instant::now();
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| ask(&meter).unwrap());
                }
            });
            assert!(started.elapsed() >= Duration::from_millis(60));
            meter.totals().queue
        };
        // On a busy machine, they may begin one after the other.
        let mut queues = (0..100).map(|_| queue());
        assert!(queues.any(|queue| queue >= Duration::from_millis(40)));
    }

    /// Times out at every request, but panics at the first one if its flag is false.
    struct StuckModel(AtomicBool);

    impl Model for StuckModel {
        fn name(&self) -> &str {
            "stuck"
        }
        fn complete(&self, _: &Request, cancel: &Cancel) -> Result<Reply, ModelError> {
            assert!(self.0.swap(true, Ordering::Relaxed), "on purpose, once");
            let deadline = cancel.deadline().unwrap();
            while Instant::now() < deadline && !cancel.is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(ModelError::TimedOut { url: "nowhere".to_owned(), after: Duration::from_millis(200) })
        }
    }

    #[test]
    fn a_request_that_panics_gives_its_place_back() {
        let stuck = StuckModel(AtomicBool::new(false));
        let meter = Meter::new(Box::new(stuck), None, Budget::default(), 1).with_patience(Duration::from_secs(1));
        let panicked = std::thread::scope(|scope| scope.spawn(|| ask(&meter)).join());
        assert!(panicked.is_err());
        let next = ask(&meter).unwrap_err();
        assert!(matches!(next, ModelError::TimedOut { .. }), "{next}");
    }

    #[test]
    fn waiting_for_the_model_is_part_of_the_patience() {
        let stuck = StuckModel(AtomicBool::new(true));
        let patience = Duration::from_secs(2);
        let meter = Meter::new(Box::new(stuck), None, Budget::default(), 1).with_patience(patience);
        let started = Instant::now();
        let errors: Vec<ModelError> = std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| ask(&meter).unwrap_err())).collect();
            waiting.into_iter().map(|one| one.join().unwrap()).collect()
        });
        // One after the other, they would take four times the patience.
        assert!(started.elapsed() < patience * 3, "{:?}", started.elapsed());
        // A request that gets its slot just before the deadline times out in the model.
        let is_late = |error: &ModelError| matches!(error, ModelError::Busy { .. } | ModelError::TimedOut { .. });
        assert!(errors.iter().all(is_late), "{errors:?}");
    }

    #[test]
    fn a_question_that_was_asked_counts_whatever_came_of_it() {
        let stuck = StuckModel(AtomicBool::new(true));
        let budget = Budget { tokens: Some(1), dollars: None };
        let meter = Meter::new(Box::new(stuck), Some(DEAR), budget, 1).with_patience(Duration::from_secs(1));
        let request = request("stuck");
        meter.complete(&request, &Cancel::default()).unwrap_err();
        let totals = meter.totals();
        assert_eq!((totals.unanswered_tokens, totals.prompt_tokens), (1, 0));
        assert_eq!(meter.dollars(), Some(1.0));
        let spent = meter.complete(&request, &Cancel::default()).unwrap_err();
        assert!(matches!(spent, ModelError::BudgetSpent { .. }), "{spent}");
        assert_eq!(meter.left().tokens, Some(0));
    }

    #[test]
    fn a_model_without_a_price_is_not_asked_where_dollars_are_limited() {
        let limited = Budget { tokens: None, dollars: Some(20.0) };
        let (dearer, cancel) = (request("dearer"), Cancel::default());
        let meter = Meter::new(Box::new(TenTokenModel), Some(DEAR), limited, 1);
        let refused = meter.complete(&dearer, &cancel).unwrap_err();
        assert!(refused.to_string().contains("dearer") && refused.to_string().contains("of ten"));
        ask(&meter).unwrap();

        // Without a limit the request is sent, and its unknown cost is not counted.
        let meter = Meter::new(Box::new(TenTokenModel), Some(DEAR), Budget::default(), 1);
        meter.complete(&dearer, &cancel).unwrap();
        assert_eq!((meter.dollars(), meter.totals().prompt_tokens), (Some(0.0), 7));
    }
}
