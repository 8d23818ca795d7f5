//! What shall go wrong, with which requests, and how often.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};

/// What a request asks an S3 server for, as far as a fault tells requests apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// The bytes of an object, or a range of them.
    Get,
    /// What is known of an object.
    Head,
    /// A whole object.
    Put,
    /// A copy of an object.
    Copy,
    /// A listing.
    List,
    /// One object's end, or that of many.
    Delete,
    /// Any request of an upload in parts.
    Parts,
    /// Whatever is none of these: every request of another protocol than S3.
    Other,
}

impl Operation {
    /// What a request is.
    #[must_use]
    pub fn of(method: &Method, query: &str, is_copy: bool) -> Self {
        let asks = |name: &str| {
            let mut parameters = query.split('&');
            parameters.any(|parameter| parameter.split('=').next() == Some(name))
        };
        match method.as_str() {
            _ if asks("uploadId") || asks("uploads") => Self::Parts,
            "GET" if asks("list-type") => Self::List,
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "PUT" if is_copy => Self::Copy,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "POST" if asks("delete") => Self::Delete,
            _ => Self::Other,
        }
    }
}

/// How often a rule does something to the requests that it is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum When {
    /// To each.
    #[default]
    Always,
    /// To one, counted from 1.
    Nth(u64),
    /// To so many, the first ones.
    First(u64),
    /// To the first `length` of every `every`.
    Bursts {
        /// Requests of a burst.
        length: u64,
        /// Requests from the start of one burst to that of the next.
        every: u64,
    },
    /// To this share of them, from 0 to 1; the same ones with the same seed.
    Chance {
        /// The share.
        share: f64,
        /// The seed.
        seed: u64,
    },
}

impl When {
    /// Whether it is the turn of a request, counted from 1.
    fn is_turn(self, count: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Nth(nth) => count == nth,
            Self::First(first) => count <= first,
            Self::Bursts { length, every } => (count - 1) % every.max(1) < length,
            Self::Chance { share, seed } => fraction(seed, count) < share,
        }
    }
}

/// A number from 0 to 1 that looks random and is not (`SplitMix64`, Steele et al. 2014).
fn fraction(seed: u64, count: u64) -> f64 {
    let mut z = seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as f64 / u64::MAX as f64
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// The request is passed on so much later, in milliseconds.
    Delay {
        /// How much later.
        ms: f64,
    },
    /// The request is taken and never answered. When the rules change, the connection ends.
    Hang,
    /// The request is held, and passed on when the rules change: late, and maybe to nobody's use any more.
    Hold,
    /// The server is not asked: it refuses, with an S3 error in XML.
    Refuse {
        /// The HTTP status.
        status: u16,
        /// S3's code for it, such as `SlowDown`.
        code: String,
        /// Seconds in a `Retry-After` header; none for no header.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
    },
    /// The server is not asked: the connection is reset.
    Reset,
    /// The server is asked, and does it; the connection is reset before a byte of its answer has come.
    LoseAnswer,
    /// Half of the answer's body comes, then the connection is reset.
    ResetInBody,
    /// Half of the answer's body comes, then the connection ends in order; `Content-Length` speaks of all of it.
    CutBody,
    /// Half of the answer's body comes, and `Content-Length` speaks of that half.
    ShortenBody,
    /// The answer's body has its length, and a wrong byte in every 64 from its middle on; at least one.
    DamageBody,
    /// The request's body reaches the server with such bytes.
    DamageRequest,
    /// The answer's `Date` is so many seconds off.
    SkewDate {
        /// How many; negative for the past.
        seconds: i64,
    },
    /// Listings are answered as they were answered last before the rules changed.
    StaleList,
}

/// A fault, and the requests that it happens to. The first rule of a list whose turn it is decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The requests it is for; empty for all.
    #[serde(default)]
    pub requests: Vec<Operation>,
    /// What their path or query holds; empty for anything.
    #[serde(default)]
    pub path_contains: String,
    /// How often it does something to them.
    #[serde(default)]
    pub when: When,
    /// What it does.
    pub fault: Fault,
}

impl Rule {
    /// A rule for every request.
    #[must_use]
    pub fn always(fault: Fault) -> Self {
        Self {
            requests: Vec::new(),
            path_contains: String::new(),
            when: When::Always,
            fault,
        }
    }

    /// The same for some requests only.
    #[must_use]
    pub fn of(mut self, requests: &[Operation]) -> Self {
        self.requests = requests.to_vec();
        self
    }

    /// The same for some paths only.
    #[must_use]
    pub fn below(mut self, path_contains: &str) -> Self {
        path_contains.clone_into(&mut self.path_contains);
        self
    }

    /// The same at some times only.
    #[must_use]
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    fn is_for(&self, operation: Operation, target: &str) -> bool {
        (self.requests.is_empty() || self.requests.contains(&operation))
            && target.contains(&self.path_contains)
    }
}

/// How often a rule has met a request, and done something to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// Requests that it is for.
    pub met: u64,
    /// Requests that it did something to.
    pub done: u64,
}

/// The rules of a time, with what they have done.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<(Rule, AtomicU64, AtomicU64)>);

impl Rules {
    pub(super) fn new(rules: Vec<Rule>) -> Self {
        let rules = rules.into_iter();
        Self(
            rules
                .map(|rule| (rule, AtomicU64::new(0), AtomicU64::new(0)))
                .collect(),
        )
    }

    /// What happens to a request.
    pub(super) fn fault(&self, operation: Operation, target: &str) -> Option<&Fault> {
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

    pub(super) fn fired(&self) -> Vec<Fired> {
        let rules = self.0.iter();
        rules
            .map(|(_, met, done)| Fired {
                met: met.load(Ordering::SeqCst),
                done: done.load(Ordering::SeqCst),
            })
            .collect()
    }
}

/// Sleeps more exactly than tokio's timers, which know only whole milliseconds.
pub(super) async fn delay(ms: f64) {
    let length = Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
    if length >= Duration::from_millis(20) {
        tokio::time::sleep(length).await;
        return;
    }
    // An error means that the runtime is ending.
    let _ = tokio::task::spawn_blocking(move || std::thread::sleep(length)).await;
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn turns(when: When, of: u64) -> Vec<u64> {
        (1..=of).filter(|count| when.is_turn(*count)).collect()
    }

    #[test]
    fn a_rule_has_its_turns() {
        assert_eq!(turns(When::Always, 3), [1, 2, 3]);
        assert_eq!(turns(When::Nth(2), 4), [2]);
        assert_eq!(turns(When::First(2), 4), [1, 2]);
        let bursts = When::Bursts {
            length: 2,
            every: 5,
        };
        assert_eq!(turns(bursts, 11), [1, 2, 6, 7, 11]);
        let chance = |seed| When::Chance { share: 0.2, seed };
        let taken = turns(chance(1), 10_000);
        assert!((1_900..2_100).contains(&taken.len()), "{}", taken.len());
        assert_eq!(taken, turns(chance(1), 10_000));
        assert_ne!(taken, turns(chance(2), 10_000));
        assert!(
            turns(
                When::Chance {
                    share: 0.0,
                    seed: 1
                },
                100
            )
            .is_empty()
        );
    }

    #[test]
    fn requests_are_told_apart_as_s3_does() {
        let of = |method: &str, query: &str, is_copy: bool| {
            Operation::of(&method.parse().unwrap(), query, is_copy)
        };
        assert_eq!(of("GET", "list-type=2&prefix=a", false), Operation::List);
        assert_eq!(of("GET", "", false), Operation::Get);
        assert_eq!(of("HEAD", "", false), Operation::Head);
        assert_eq!(of("PUT", "X-Amz-Date=1", false), Operation::Put);
        assert_eq!(of("PUT", "", true), Operation::Copy);
        assert_eq!(
            of("PUT", "partNumber=1&uploadId=x", false),
            Operation::Parts
        );
        assert_eq!(of("POST", "uploads", false), Operation::Parts);
        assert_eq!(of("POST", "delete", false), Operation::Delete);
        assert_eq!(of("DELETE", "", false), Operation::Delete);
        assert_eq!(of("POST", "", false), Operation::Other);
    }

    #[test]
    fn the_first_rule_whose_turn_it_is_decides_and_all_is_counted() {
        let refusal = Fault::Refuse {
            status: 503,
            code: "SlowDown".to_owned(),
            retry_after: None,
        };
        let rules = Rules::new(vec![
            Rule::always(refusal.clone())
                .of(&[Operation::Put])
                .when(When::Nth(2)),
            Rule::always(Fault::Hang).below("agents/"),
        ]);
        assert_eq!(rules.fault(Operation::Put, "/b/x"), None);
        assert_eq!(rules.fault(Operation::Put, "/b/agents/x"), Some(&refusal));
        assert_eq!(
            rules.fault(Operation::Put, "/b/agents/x"),
            Some(&Fault::Hang)
        );
        assert_eq!(rules.fault(Operation::Get, "/b/x"), None);
        let fired = rules.fired();
        assert_eq!(fired[0], Fired { met: 3, done: 1 });
        assert_eq!(fired[1], Fired { met: 1, done: 1 });
    }

    #[test]
    fn rules_are_written_as_toml_writes_them() {
        let text = r#"{"requests":["put"],"when":{"bursts":{"length":5,"every":20}},
            "fault":{"refuse":{"status":503,"code":"SlowDown"}}}"#;
        let rule: Rule = serde_json::from_str(text).unwrap();
        assert_eq!(rule.requests, [Operation::Put]);
        let hang: Rule = serde_json::from_str(r#"{"fault":"hang"}"#).unwrap();
        assert_eq!(hang, Rule::always(Fault::Hang));
        let wrong = serde_json::from_str::<Rule>(r#"{"fault":"hang","wen":"always"}"#);
        assert!(wrong.unwrap_err().to_string().contains("wen"));
    }
}
