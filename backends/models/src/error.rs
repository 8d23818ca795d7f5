//! Why a model gave no answer.

use std::time::Duration;

/// Why there is no answer. No variant holds an API key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The server wants another key, or any.
    #[error(
        "{url} does not accept the API key ({status}): {said}\n  fix: set OPENAI_API_KEY (or CTXBENCH_API_KEY) to a key of that server"
    )]
    Key {
        /// The server.
        url: String,
        /// What HTTP said.
        status: u16,
        /// What the server said, without the key.
        said: String,
    },
    /// There is no key in the environment.
    #[error("there is no API key for {url}\n  fix: set OPENAI_API_KEY, or CTXBENCH_API_KEY")]
    NoKey {
        /// The server.
        url: String,
    },
    /// The server does not know the model.
    #[error("there is no model {model:?} at {url}{}", the_known(.known))]
    NoSuchModel {
        /// The model.
        model: String,
        /// The server.
        url: String,
        /// Models that it does know, where it says.
        known: Vec<String>,
    },
    /// Nobody answers there.
    #[error(
        "{url} cannot be reached: {why}\n  fix: check the address, and that a server runs there"
    )]
    Unreachable {
        /// The server.
        url: String,
        /// What went wrong.
        why: String,
    },
    /// No answer in time.
    #[error("{url} gave no answer within {:.1} s", .after.as_secs_f64())]
    TimedOut {
        /// The server.
        url: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The model was busy with other questions for as long as an answer may take.
    #[error("{model} was busy with other questions for {:.1} s", .after.as_secs_f64())]
    Busy {
        /// The model.
        model: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// What the model costs is not known, and there is a limit in dollars.
    #[error(
        "the price of {model} is not known, only that of {priced} is: --max-cost cannot be kept to without one\n  fix: ask {priced}, or leave --max-cost out and set --max-tokens"
    )]
    NoPrice {
        /// The model that was to be asked.
        model: String,
        /// The model whose price is known.
        priced: String,
    },
    /// The server wants to be asked later than we can wait.
    #[error("{url} wants fewer requests (429){}{}", words(.said), later(.retry_after))]
    RateLimited {
        /// The server.
        url: String,
        /// What the server said, without the key: a limit that passes, or a quota that is used up.
        said: String,
        /// When it may be asked again.
        retry_after: Option<Duration>,
    },
    /// The server does not answer this request, as when it is too long.
    #[error("{url} refuses the request ({status}): {said}")]
    Refused {
        /// The server.
        url: String,
        /// What HTTP said.
        status: u16,
        /// What the server said, without the key.
        said: String,
    },
    /// The server failed.
    #[error("{url} failed ({status}): {said}")]
    Failed {
        /// The server.
        url: String,
        /// What HTTP said.
        status: u16,
        /// What the server said, without the key.
        said: String,
    },
    /// The answer is none that the protocol knows.
    #[error("{url} answered what is no answer: {why}")]
    Malformed {
        /// The server.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The answer broke off.
    #[error("{url} broke off in the middle of an answer, after {bytes} bytes: {why}")]
    BrokeOff {
        /// The server.
        url: String,
        /// Bytes of text so far.
        bytes: usize,
        /// What went wrong.
        why: String,
    },
    /// The budget is spent.
    #[error("the budget is spent: {spent} of {budget}; raise --max-tokens or --max-cost to go on")]
    BudgetSpent {
        /// How much was used, with its unit.
        spent: String,
        /// How much may be used, with its unit.
        budget: String,
    },
    /// Nobody waits for the answer any more.
    #[error("nobody waits for the answer any more")]
    Cancelled,
    /// The cassette holds no answer to this request.
    #[error(
        "the cassette {cassette} holds no answer to request {hash} ({about})\n  fix: record it anew with --record, or use a live model"
    )]
    NotRecorded {
        /// The file.
        cassette: String,
        /// The request's hash.
        hash: String,
        /// How the question begins.
        about: String,
    },
    /// An answer that was given could not be written down.
    #[error("the cassette {cassette} cannot be written: {why}")]
    NotWritten {
        /// The file.
        cassette: String,
        /// What the system said.
        why: String,
    },
}

impl ModelError {
    /// Whether the model has been asked all the same: somebody may have to pay for the question.
    pub fn has_been_asked(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::Cancelled
                | Self::BrokeOff { .. }
                | Self::Malformed { .. }
        )
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
        format!(
            ", and to be asked again in {} s, which is longer than the timeout",
            after.as_secs()
        )
    })
}
