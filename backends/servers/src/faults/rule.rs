//! Fault rules: which fault happens to which requests, and how often.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};

/// The kinds of S3 requests that a rule can distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Reads an object or a range of it.
    Get,
    /// Reads an object's metadata.
    Head,
    /// Uploads a whole object.
    Put,
    /// Lists keys.
    List,
    /// Deletes one object or many.
    Delete,
    /// Any other request, such as copies and multipart uploads.
    Other,
}

impl Operation {
    /// Classifies a request.
    #[must_use]
    pub fn of(method: &Method, query: &str, is_copy: bool) -> Self {
        let asks = |name: &str| {
            let mut parameters = query.split('&');
            parameters.any(|parameter| parameter.split('=').next() == Some(name))
        };
        match method.as_str() {
            _ if asks("uploadId") || asks("uploads") || is_copy => Self::Other,
            "GET" if asks("list-type") => Self::List,
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "POST" if asks("delete") => Self::Delete,
            _ => Self::Other,
        }
    }
}

/// How often a rule applies to its matching requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RuleFrequency {
    /// To every request.
    #[default]
    Always,
    /// To the first requests, this many.
    First(u64),
    /// To the first `length` of every `every` requests.
    Bursts {
        /// Requests in a burst.
        length: u64,
        /// Requests from the start of one burst to the start of the next.
        every: u64,
    },
}

impl RuleFrequency {
    /// Whether the rule applies to the request with this number, from 1.
    fn is_turn(self, count: u64) -> bool {
        match self {
            Self::Always => true,
            Self::First(first) => count <= first,
            Self::Bursts { length, every } => (count - 1) % every.max(1) < length,
        }
    }
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RequestFault {
    /// The proxy forwards the request after a delay.
    Delay {
        /// The delay in milliseconds.
        ms: f64,
    },
    /// The request is never answered. When the rules change, the connection ends.
    Hang,
    /// The proxy holds the request and forwards it when the rules change, even if the client is gone by
    /// then.
    Hold,
    /// The proxy refuses the request with an S3 error in XML, without asking the server.
    Refuse {
        /// The HTTP status.
        status: u16,
        /// The S3 error code, such as `SlowDown`.
        code: String,
        /// Seconds in a `Retry-After` header; `None` for no header.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
    },
    /// The proxy resets the connection, without asking the server.
    Reset,
    /// The server performs the request; the proxy resets the connection before the first byte of the
    /// answer.
    LoseAnswer,
    /// The proxy sends half of the answer's body, then resets the connection.
    ResetInBody,
    /// The proxy sends half of the answer's body, then closes the connection. `Content-Length` is that of
    /// the whole body.
    CutBody,
    /// The proxy sends half of the answer's body, with the matching `Content-Length`.
    ShortenBody,
    /// The answer's body keeps its length. Every 64th byte from the middle on is wrong, at least one.
    DamageBody,
    /// The request's body is damaged in the same way before the server receives it.
    DamageRequest,
    /// Listings are answered as they were last answered before the rules changed.
    StaleList,
}

/// A fault and the requests to which it happens. In a list, the first rule that applies decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The kinds of requests that match; empty for all.
    #[serde(default)]
    pub requests: Vec<Operation>,
    /// Part of the path or query that matches; empty for any.
    #[serde(default)]
    pub path_contains: String,
    /// How often the rule applies to its matching requests.
    #[serde(default)]
    pub when: RuleFrequency,
    /// The fault.
    pub fault: RequestFault,
}

impl Rule {
    /// A rule that applies to every request.
    #[must_use]
    pub fn always(fault: RequestFault) -> Self {
        Self { requests: Vec::new(), path_contains: String::new(), when: RuleFrequency::Always, fault }
    }

    /// Restricts the rule to some kinds of requests.
    #[must_use]
    pub fn of(mut self, requests: &[Operation]) -> Self {
        self.requests = requests.to_vec();
        self
    }

    /// Restricts the rule to some paths.
    #[must_use]
    pub fn below(mut self, path_contains: &str) -> Self {
        path_contains.clone_into(&mut self.path_contains);
        self
    }

    /// Restricts how often the rule applies.
    #[must_use]
    pub fn when(mut self, when: RuleFrequency) -> Self {
        self.when = when;
        self
    }

    fn is_for(&self, operation: Operation, target: &str) -> bool {
        (self.requests.is_empty() || self.requests.contains(&operation)) && target.contains(&self.path_contains)
    }
}

/// How many requests a rule matched, and to how many it applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCounts {
    /// Requests that matched.
    pub met: u64,
    /// Requests to which the fault happened.
    pub done: u64,
}

/// The active rules with their counters.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<(Rule, AtomicU64, AtomicU64)>);

impl Rules {
    pub(super) fn new(rules: Vec<Rule>) -> Self {
        let rules = rules.into_iter();
        let rules = rules.map(|rule| (rule, AtomicU64::new(0), AtomicU64::new(0)));
        Self(rules.collect())
    }

    /// The fault that happens to a request, if any.
    pub(super) fn fault(&self, operation: Operation, target: &str) -> Option<&RequestFault> {
        for (rule, met, done) in &self.0 {
            if !rule.is_for(operation, target) {
                continue;
            }
            let count = met.fetch_add(1, Ordering::SeqCst) + 1;
            if rule.when.is_turn(count) {
                done.fetch_add(1, Ordering::SeqCst);
                return Some(&rule.fault);
            }
        }
        None
    }

    pub(super) fn fired(&self) -> Vec<RuleCounts> {
        let fired = self
            .0
            .iter()
            .map(|(_, met, done)| RuleCounts { met: met.load(Ordering::SeqCst), done: done.load(Ordering::SeqCst) });
        fired.collect()
    }
}

/// Sleeps for `ms` milliseconds, more exactly than tokio's timers, which have millisecond resolution.
pub(super) async fn delay(ms: f64) {
    let length = Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
    if length >= Duration::from_millis(20) {
        tokio::time::sleep(length).await;
        return;
    }
    // An error means that the runtime is shutting down.
    let _ = tokio::task::spawn_blocking(move || std::thread::sleep(length)).await;
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn turns(when: RuleFrequency, of: u64) -> Vec<u64> {
        (1..=of).filter(|count| when.is_turn(*count)).collect()
    }

    #[test]
    fn a_rule_applies_as_often_as_it_says() {
        assert_eq!(turns(RuleFrequency::Always, 3), [1, 2, 3]);
        assert_eq!(turns(RuleFrequency::First(2), 4), [1, 2]);
        let bursts = RuleFrequency::Bursts { length: 2, every: 5 };
        assert_eq!(turns(bursts, 11), [1, 2, 6, 7, 11]);
    }

    #[test]
    fn requests_are_classified_as_in_s3() {
        let of = |method: &str, query: &str, is_copy: bool| Operation::of(&method.parse().unwrap(), query, is_copy);
        assert_eq!(of("GET", "list-type=2&prefix=a", false), Operation::List);
        assert_eq!(of("GET", "", false), Operation::Get);
        assert_eq!(of("HEAD", "", false), Operation::Head);
        assert_eq!(of("PUT", "X-Amz-Date=1", false), Operation::Put);
        assert_eq!(of("PUT", "", true), Operation::Other);
        let part = "partNumber=1&uploadId=x";
        assert_eq!(of("PUT", part, false), Operation::Other);
        assert_eq!(of("POST", "delete", false), Operation::Delete);
        assert_eq!(of("DELETE", "", false), Operation::Delete);
        assert_eq!(of("POST", "", false), Operation::Other);
    }

    #[test]
    fn the_first_rule_that_applies_decides_and_every_match_is_counted() {
        let refusal = RequestFault::Refuse { status: 503, code: "SlowDown".to_owned(), retry_after: None };
        let rules = Rules::new(vec![
            Rule::always(refusal.clone()).of(&[Operation::Put]).when(RuleFrequency::First(1)),
            Rule::always(RequestFault::Hang).below("agents/"),
        ]);
        for (operation, path, expected) in [
            (Operation::Put, "/b/agents/x", Some(&refusal)),
            (Operation::Put, "/b/x", None),
            (Operation::Put, "/b/agents/x", Some(&RequestFault::Hang)),
            (Operation::Get, "/b/x", None),
        ] {
            assert_eq!(rules.fault(operation, path), expected);
        }
        let fired = rules.fired();
        assert_eq!(fired[0], RuleCounts { met: 3, done: 1 });
        assert_eq!(fired[1], RuleCounts { met: 1, done: 1 });
    }

    #[test]
    fn a_rule_parses_and_an_unknown_field_is_refused() {
        let text = r#"{"requests":["put"],"when":{"bursts":{"length":5,"every":20}},
            "fault":{"refuse":{"status":503,"code":"SlowDown"}}}"#;
        let rule: Rule = serde_json::from_str(text).unwrap();
        assert_eq!(rule.requests, [Operation::Put]);
        let hang: Rule = serde_json::from_str(r#"{"fault":"hang"}"#).unwrap();
        assert_eq!(hang, Rule::always(RequestFault::Hang));
        let wrong = serde_json::from_str::<Rule>(r#"{"fault":"hang","wen":"always"}"#);
        assert!(wrong.unwrap_err().to_string().contains("wen"));
    }
}
