//! Requests of a store to a model: counted by purpose, logged, and failing with an error number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fuse::store::Errno;
use models::{Cancel, Finish, Message, Meter, Model, ModelError, Origin, Reply, Request, Role, Schema};
use parking_lot::Mutex;

use crate::LogFile;
use crate::flight::Failure;

/// The most bytes of a request's messages. No supported model accepts more.
pub(super) const QUESTION_MAX: usize = 256 * 1024;

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// The tree of a new file system.
    Tree,
    /// The content of a file, on its first read.
    Content,
    /// The content of a file according to the log.
    Read,
    /// Whether an operation is allowed.
    Policy,
    /// Another request after an unusable answer.
    Repair,
}

impl Purpose {
    /// All purposes.
    pub const ALL: [Self; 5] = [Self::Tree, Self::Content, Self::Read, Self::Policy, Self::Repair];

    /// The name in logs and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Content => "content",
            Self::Read => "read",
            Self::Policy => "policy",
            Self::Repair => "repair",
        }
    }

    fn counters(self) -> [&'static str; 3] {
        match self {
            Self::Tree => ["calls-tree", "prompt-tokens-tree", "output-tokens-tree"],
            Self::Content => ["calls-content", "prompt-tokens-content", "output-tokens-content"],
            Self::Read => ["calls-read", "prompt-tokens-read", "output-tokens-read"],
            Self::Policy => ["calls-policy", "prompt-tokens-policy", "output-tokens-policy"],
            Self::Repair => ["calls-repair", "prompt-tokens-repair", "output-tokens-repair"],
        }
    }
}

/// Sampling options of every request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AskerOptions {
    /// From 0, which selects the likeliest answer, to 2.
    pub temperature: f32,
    /// The longest answer, in tokens of the model.
    pub max_tokens: u32,
    /// The seed of the random generator that samples.
    pub seed: u64,
}

impl Default for AskerOptions {
    fn default() -> Self {
        Self { temperature: 0.0, max_tokens: 1024, seed: 1 }
    }
}

/// Requests and tokens of one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurposeTotals {
    /// Answered requests.
    pub calls: u64,
    /// Tokens of the prompts.
    pub prompt_tokens: u64,
    /// Tokens of the answers.
    pub output_tokens: u64,
}

/// Sends requests to a model, counts them by purpose, and logs them.
pub struct Asker {
    meter: Arc<Meter>,
    options: AskerOptions,
    log: Option<LogFile>,
    totals: Mutex<BTreeMap<Purpose, PurposeTotals>>,
    origins: Mutex<BTreeMap<Origin, u64>>,
}

impl std::fmt::Debug for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asker").field("model", &self.meter.name()).finish_non_exhaustive()
    }
}

impl Asker {
    /// An asker that calls `meter`'s model and logs to `log`. Askers that share a meter share its budget.
    pub fn new(meter: impl Into<Arc<Meter>>, options: AskerOptions, log: Option<LogFile>) -> Self {
        Self { meter: meter.into(), options, log, totals: Mutex::default(), origins: Mutex::default() }
    }

    /// The default model.
    pub fn model(&self) -> &str {
        self.meter.name()
    }

    /// The longest answer, in tokens of the model.
    pub fn max_tokens(&self) -> u32 {
        self.options.max_tokens
    }

    /// The usage and the budget of the model.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The event log, if there is one.
    pub fn log_file(&self) -> Option<&LogFile> {
        self.log.as_ref()
    }

    /// Logs an event.
    pub fn log(&self, line: &str) {
        tracing::debug!("{line}");
        if let Some(log) = &self.log {
            log.line(line);
        }
    }

    /// Builds a request to `model` with the sampling options of this asker.
    pub fn request(&self, model: &str, system: &str, question: String, schema: Option<Schema>) -> Request {
        Request {
            model: model.to_owned(),
            messages: vec![Message::new(Role::System, system), Message::new(Role::User, question)],
            temperature: self.options.temperature,
            max_tokens: self.options.max_tokens,
            seed: self.options.seed,
            schema,
        }
    }

    /// Sends a request and waits for the reply. `what` is its subject in the log, such as `/src/main.py`.
    pub(super) fn ask(
        &self,
        purpose: Purpose,
        what: &str,
        request: &Request,
        cancel: &Cancel,
    ) -> Result<Reply, Failure> {
        let messages = request.messages.iter();
        let length: usize = messages.map(|message| message.content.len()).sum();
        if length > QUESTION_MAX {
            let reason = format!("the question has {length} bytes; the maximum is {QUESTION_MAX}");
            return Err(self.refuse(purpose, what, Errno::FBIG, reason));
        }
        match self.meter.complete(request, cancel) {
            Ok(reply) => {
                let millis = |time: Duration| time.as_secs_f64() * 1000.0;
                self.log(&format!(
                    "{} {what}: {} answered, {} + {} tokens, {:.1} ms queued, {:.1} ms to the first byte, {:.1} ms in all ({}){}",
                    purpose.name(),
                    request.model,
                    reply.usage.prompt,
                    reply.usage.output,
                    millis(reply.timing.queue),
                    millis(reply.timing.first_byte),
                    millis(reply.timing.total),
                    reply.origin.name(),
                    if reply.has_own_sampling {
"; the server chooses the sampling, so answers are not deterministic"
} else {
""
},
                ));
                self.count(purpose, &reply);
                if reply.finish == Finish::Filtered {
                    let reason = "the model declined, or the provider's content filter ended the answer";
                    return Err(self.refuse(purpose, what, Errno::IO, reason.to_owned()));
                }
                Ok(reply)
            }
            Err(error) => {
                let errno = match &error {
                    ModelError::TimedOut { .. } | ModelError::Busy { .. } => Errno::TIMEDOUT,
                    ModelError::BudgetSpent { .. } | ModelError::NoPrice { .. } => Errno::DQUOT,
                    ModelError::Cancelled => Errno::INTR,
                    _ => Errno::IO,
                };
                Err(self.refuse(purpose, what, errno, error.to_string()))
            }
        }
    }

    /// Logs a failure and returns it.
    pub(super) fn refuse(&self, purpose: Purpose, what: &str, errno: Errno, reason: String) -> Failure {
        self.log(&format!("{} {what} FAILED: {reason}", purpose.name()));
        tracing::warn!("{} {what}: {reason}", purpose.name());
        Failure { errno, reason }
    }

    fn count(&self, purpose: Purpose, reply: &Reply) {
        let mut totals = self.totals.lock();
        let total = totals.entry(purpose).or_default();
        total.calls += 1;
        total.prompt_tokens += reply.usage.prompt;
        total.output_tokens += reply.usage.output;
        let mut origins = self.origins.lock();
        *origins.entry(reply.origin).or_default() += 1;
    }

    /// Requests and tokens, by purpose.
    pub fn totals(&self) -> BTreeMap<Purpose, PurposeTotals> {
        self.totals.lock().clone()
    }

    /// The counters of the store that uses this asker.
    pub(super) fn counters(&self) -> BTreeMap<&'static str, u64> {
        let totals = self.meter.totals();
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut counters = BTreeMap::from([
            ("model-calls", totals.calls),
            ("model-failures", totals.failures),
            ("model-retries", totals.retries),
            ("prompt-tokens", totals.prompt_tokens),
            ("unanswered-tokens-estimated", totals.unanswered_tokens),
            ("output-tokens", totals.output_tokens),
            ("queue-us", micros(totals.queue)),
            ("first-byte-us", micros(totals.first_byte)),
            ("answer-us", micros(totals.total)),
        ]);
        for (purpose, total) in self.totals() {
            let [calls, prompt, output] = purpose.counters();
            counters.insert(calls, total.calls);
            counters.insert(prompt, total.prompt_tokens);
            counters.insert(output, total.output_tokens);
        }
        let origins = self.origins.lock();
        for (origin, count) in &*origins {
            let name = match origin {
                Origin::Live => "answers-live",
                Origin::Recorded => "answers-recorded",
                Origin::Simulated => "answers-simulated",
            };
            counters.insert(name, *count);
        }
        if let Some(dollars) = self.meter.dollars() {
            counters.insert("cost-nanodollars", (dollars * 1e9).round() as u64);
        }
        counters
    }
}
