//! The error of a request to a model.

use std::time::Duration;

use network::RedirectError;

/// Why a request has no answer. No variant holds an API key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The server rejects the key, or requires one.
    #[error(
        "{url} does not accept the API key ({status}): {said}\n  fix: set OPENAI_API_KEY (or CTXBENCH_API_KEY) to a key of that server"
    )]
    Key {
        /// The server's URL.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The server's message, without the key.
        said: String,
    },
    /// The environment has no key.
    #[error("there is no API key for {url}\n  fix: set OPENAI_API_KEY, or CTXBENCH_API_KEY")]
    NoKey {
        /// The server's URL.
        url: String,
    },
    /// The key would cross a network unencrypted.
    #[error("{url} is not asked: {why}")]
    PlainKey {
        /// The server's URL.
        url: String,
        /// What to do instead.
        why: String,
    },
    /// The server does not know the model.
    #[error("there is no model {model:?} at {url}{}", the_known(.known))]
    NoSuchModel {
        /// The model.
        model: String,
        /// The server's URL.
        url: String,
        /// Models that the server lists; may be empty.
        known: Vec<String>,
    },
    /// The server points elsewhere. Neither the key nor the question is sent there.
    #[error("{url} cannot be used: {to}")]
    Redirected {
        /// The server's URL.
        url: String,
        /// The place that it names.
        to: RedirectError,
    },
    /// The server cannot be reached.
    #[error(
        "{url} cannot be reached: {why}\n  fix: give a URL such as http://127.0.0.1:11434/v1, and check that a server runs there"
    )]
    Unreachable {
        /// The server's URL.
        url: String,
        /// The cause.
        why: String,
    },
    /// The server did not answer in time.
    #[error("{url} did not answer within {:.1} s", .after.as_secs_f64())]
    TimedOut {
        /// The server's URL.
        url: String,
        /// How long the client waited.
        after: Duration,
    },
    /// The request waited for a free slot until its timeout.
    #[error("{model} was busy with other requests for {:.1} s", .after.as_secs_f64())]
    Busy {
        /// The model.
        model: String,
        /// How long the request waited.
        after: Duration,
    },
    /// The model's price is unknown, and there is a limit in dollars.
    #[error(
        "the price of {model} is unknown, so --max-cost cannot limit it; only the price of {priced} is known\n  fix: use {priced}, or set --max-tokens instead of --max-cost"
    )]
    NoPrice {
        /// The requested model.
        model: String,
        /// The model with a known price.
        priced: String,
    },
    /// The server limits the rate, and a retry would exceed the timeout or the number of retries.
    #[error("{url} limits the rate of requests (429){}{}", words(.said), later(.retry_after))]
    RateLimited {
        /// The server's URL.
        url: String,
        /// The server's message, without the key: a temporary limit, or an exhausted quota.
        said: String,
        /// The pause that the server requests.
        retry_after: Option<Duration>,
    },
    /// The server refuses this request, for example because it is too long.
    #[error("{url} refuses the request ({status}): {said}")]
    Refused {
        /// The server's URL.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The server's message, without the key.
        said: String,
    },
    /// The server reports a transient failure (408 or 5xx).
    #[error("{url} failed ({status}): {said}")]
    Failed {
        /// The server's URL.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The server's message, without the key.
        said: String,
    },
    /// The answer violates the protocol.
    #[error("{url} sent a malformed answer: {why}")]
    Malformed {
        /// The server's URL.
        url: String,
        /// The violation.
        why: String,
    },
    /// The connection broke before the end of the answer.
    #[error("{url} ended the connection in the middle of an answer, after {bytes} bytes: {why}")]
    BrokeOff {
        /// The server's URL.
        url: String,
        /// Bytes of text received.
        bytes: usize,
        /// The cause.
        why: String,
    },
    /// The budget is spent.
    #[error("the budget is used up: {spent} of {budget}; raise --max-tokens or --max-cost to continue")]
    BudgetSpent {
        /// The use, with its unit.
        spent: String,
        /// The limit, with its unit.
        budget: String,
    },
    /// The caller has cancelled the request.
    #[error("the caller cancelled the request")]
    Cancelled,
    /// The cassette has no answer to this request.
    #[error(
        "the cassette {cassette} has no answer to request {hash} ({about})\n  fix: record it again with --record, or use a live model"
    )]
    NotRecorded {
        /// The file.
        cassette: String,
        /// The request's hash.
        hash: String,
        /// The end of the question.
        about: String,
    },
    /// An answer could not be recorded.
    #[error("the cassette {cassette} cannot be written: {why}")]
    NotWritten {
        /// The file.
        cassette: String,
        /// The system's error.
        why: String,
    },
}

impl ModelError {
    /// Whether the model may have received the request, which may then cost money.
    pub fn has_been_asked(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Cancelled | Self::BrokeOff { .. } | Self::Malformed { .. })
    }
}

fn the_known(known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    format!("; it has {}", known.join(", "))
}

fn words(said: &str) -> String {
    match said {
        "" => String::new(),
        said => format!(": {said}"),
    }
}

fn later(after: &Option<Duration>) -> String {
    after.map_or_else(String::new, |after| {
        format!(", and a retry after {} s, which is longer than the timeout", after.as_secs())
    })
}
