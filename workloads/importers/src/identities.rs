//! The identity of each call of a session, and the call of each result. A source may repeat its history, use an identity
//! for another call, or have none.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use inputs::sha256;
use serde_json::Value;

/// The most calls of one answer among which a result without an identity finds its call.
const RECENT_MAX: usize = 256;

/// The calls that are known.
#[derive(Default)]
pub(super) struct Identities {
    /// The contents of the calls.
    contents: HashSet<[u8; 32]>,
    /// The identities in the source and those here.
    taken: HashSet<String>,
    /// The calls without a result.
    unanswered: HashSet<String>,
    /// The calls of the last answer that used an identity of the source, by that identity.
    waiting: HashMap<String, AnswerCalls>,
    /// How often an identity of the source was used, if more than once.
    uses: HashMap<String, u64>,
    /// The calls of the last answer: each one's identity here and its tool.
    recent: VecDeque<(String, String)>,
    answer: Option<u64>,
}

/// The calls of one answer, in order.
#[derive(Default)]
struct AnswerCalls {
    answer: u64,
    calls: VecDeque<WaitingCall>,
}

struct WaitingCall {
    /// Its identity here.
    own: String,
    tool: String,
    args: Fields,
}

/// The hash of each argument, by that of its name.
#[derive(Default)]
struct Fields(HashMap<u64, u64>);

impl Fields {
    fn of(args: &Value) -> Self {
        let hash = |text: &str| {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            hasher.finish()
        };
        let hash_of = |value: &Value| match value {
            // A text that is the JSON of another value is not that value.
            Value::String(text) => hash(text).rotate_left(1),
            other => hash(&other.to_string()),
        };
        match args {
            Value::Null => Self::default(),
            Value::Object(fields) => Self(fields.iter().map(|(name, value)| (hash(name), hash_of(value))).collect()),
            other => Self(HashMap::from([(hash(""), hash_of(other))])),
        }
    }

    /// Whether both may be reports of the same call, one of which lacks arguments.
    fn agree(&self, other: &Self) -> bool {
        let mut common = self.0.iter().filter_map(|(name, value)| Some((value, other.0.get(name)?))).peekable();
        let is_empty = self.0.is_empty() || other.0.is_empty();
        (is_empty || common.peek().is_some()) && common.all(|(one, other)| one == other)
    }
}

/// A call as its source writes it.
pub(super) struct SourceCall<'a> {
    /// Its identity in the source; empty if it has none.
    pub(super) id: &'a str,
    /// The identity of the answer that makes the call; empty if the source has none.
    pub(super) origin: &'a str,
    /// The number of that answer.
    pub(super) answer: u64,
    /// The number of the last answer that has begun, which may be the one before.
    pub(super) last_answer: u64,
    /// Its tool.
    pub(super) tool: &'a str,
    /// Its arguments.
    pub(super) args: &'a Value,
    /// The same as JSON.
    pub(super) json: &'a str,
}

/// The call of a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResultCall {
    /// The call with this identity here.
    Call(String),
    /// A call that has a result.
    Answered,
    /// No call that is known so far.
    Unknown,
}

impl Identities {
    /// The identity of a call of a source that may repeat its history; `None` if it is such a repetition.
    pub(super) fn call(&mut self, call: &SourceCall<'_>) -> Option<String> {
        let SourceCall { id, origin, tool, json, .. } = call;
        let content = sha256(format!("{origin}\0{id}\0{tool}\0{json}"));
        let mut half = [0; 32];
        half.copy_from_slice(&content.as_bytes()[..32]);
        let is_known = !self.contents.insert(half);
        if is_known && !(id.is_empty() && origin.is_empty()) || self.is_reported_again(call) {
            return None;
        }
        let own = if id.is_empty() || self.taken.contains(*id) { self.fresh(id) } else { (*id).to_owned() };
        self.wait(call, &own);
        Some(own)
    }

    /// The identity of a call of a source that does not repeat its history.
    pub(super) fn new_call(&mut self, call: &SourceCall<'_>) -> String {
        let own = self.fresh(call.id);
        self.wait(call, &own);
        own
    }

    /// Whether a call without a result is reported again, such as at its start.
    fn is_reported_again(&self, call: &SourceCall<'_>) -> bool {
        let Some(waiting) = self.waiting.get(call.id) else {
            return false;
        };
        if call.id.is_empty() || waiting.answer != call.answer && waiting.answer != call.last_answer {
            return false;
        }
        let args = Fields::of(call.args);
        let calls = waiting.calls.iter().filter(|waiting| self.unanswered.contains(&waiting.own));
        calls.into_iter().any(|waiting| waiting.tool == call.tool && waiting.args.agree(&args))
    }

    /// An identity that no call has.
    fn fresh(&mut self, id: &str) -> String {
        let uses = self.uses.entry(id.to_owned()).or_insert(1);
        loop {
            *uses += 1;
            let own = format!("{id} {uses}");
            if !self.taken.contains(&own) {
                return own;
            }
        }
    }

    fn wait(&mut self, call: &SourceCall<'_>, own: &str) {
        self.taken.insert(own.to_owned());
        if !call.id.is_empty() {
            self.taken.insert(call.id.to_owned());
        }
        self.unanswered.insert(own.to_owned());
        let waiting = self.waiting.entry(call.id.to_owned()).or_default();
        if waiting.answer != call.answer {
            *waiting = AnswerCalls { answer: call.answer, ..AnswerCalls::default() };
        }
        let args = Fields::of(call.args);
        waiting.calls.push_back(WaitingCall { own: own.to_owned(), tool: call.tool.to_owned(), args });
        if self.answer != Some(call.answer) {
            self.answer = Some(call.answer);
            self.recent.clear();
        }
        if self.recent.len() < RECENT_MAX {
            self.recent.push_back((own.to_owned(), call.tool.to_owned()));
        }
    }

    /// The call of a result with this identity of the source, with the identity of a call here, or with the name of a tool.
    /// Results with the same identity are in the order of the calls of an answer.
    pub(super) fn result(&mut self, id: &str) -> ResultCall {
        if let Some(waiting) = self.waiting.get_mut(id) {
            let mut calls = std::iter::from_fn(|| waiting.calls.pop_front());
            let first = calls.find(|waiting| self.unanswered.remove(&waiting.own)).map(|waiting| waiting.own);
            if waiting.calls.is_empty() {
                self.waiting.remove(id);
            }
            if let Some(own) = first {
                return ResultCall::Call(own);
            }
        }
        if self.unanswered.remove(id) {
            return ResultCall::Call(id.to_owned());
        }
        if !id.is_empty() && self.taken.contains(id) {
            return ResultCall::Answered;
        }
        self.recent.retain(|(own, _)| self.unanswered.contains(own));
        let of = self.recent.iter().position(|(_, tool)| id.is_empty() || tool == id);
        match of.and_then(|of| self.recent.remove(of)) {
            Some((own, _)) => {
                self.unanswered.remove(&own);
                ResultCall::Call(own)
            }
            None => ResultCall::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(id: &'a str, answer: u64, tool: &'a str, args: &'a Value) -> SourceCall<'a> {
        SourceCall { id, origin: "", answer, last_answer: answer, tool, args, json: args.to_string().leak() }
    }

    fn path(name: &str) -> Value {
        serde_json::json!({ "path": name })
    }

    fn of(own: &str) -> ResultCall {
        ResultCall::Call(own.to_owned())
    }

    #[test]
    fn an_identity_that_is_used_again_is_another_call_unless_history_is_repeated() {
        let mut known = Identities::default();
        for repetition in [false, true] {
            let expected = |own: &str| (!repetition).then(|| own.to_owned());
            assert_eq!(known.call(&call("c", 0, "read", &path("a"))), expected("c"));
            assert_eq!(known.result("c"), if repetition { ResultCall::Answered } else { of("c") });
            assert_eq!(known.call(&call("c", 1, "read", &path("b"))), expected("c 2"));
            assert_eq!(known.result("c"), if repetition { ResultCall::Answered } else { of("c 2") });
        }
        // The same call in another answer is another call.
        let args = path("a");
        let with_origin = |origin| SourceCall { origin, ..call("c", 2, "read", &args) };
        assert_eq!(known.call(&with_origin("m1")), Some("c 3".to_owned()));
        assert_eq!(known.call(&with_origin("m1")), None);
        assert_eq!(known.result("c"), of("c 3"));
        assert_eq!(known.call(&with_origin("m2")), Some("c 4".to_owned()));
        // A call that is reported again with more of its arguments is the same call.
        let mut more = path("a");
        more["limit"] = 1.into();
        assert_eq!(known.call(&call("c", 2, "read", &more)), None);
        assert_eq!(known.call(&call("c", 2, "read", &path("d"))), Some("c 5".to_owned()));
        // A source without repetitions can make the same call again.
        assert_eq!(known.new_call(&call("d", 3, "ls", &Value::Null)), "d 2");
        assert_eq!(known.new_call(&call("d", 3, "ls", &Value::Null)), "d 3");
    }

    #[test]
    fn results_without_an_identity_follow_the_order_of_the_calls_of_an_answer() {
        let mut known = Identities::default();
        let lost = known.new_call(&call("", 0, "read", &path("z")));
        let all = [("", "read", "a"), ("", "write", "b"), ("x", "read", "c"), ("", "read", "d")];
        let own = all.map(|(id, tool, args)| known.new_call(&call(id, 1, tool, &path(args))));
        assert_eq!(known.result("write"), of(&own[1]));
        assert_eq!(known.result("x"), of(&own[2]));
        assert_eq!(known.result(""), of(&own[0]));
        assert_eq!(known.result(""), of(&own[3]));
        assert_eq!(known.result(""), ResultCall::Unknown);
        assert_eq!(known.result("y"), ResultCall::Unknown);
        // The call of an earlier answer is known by its identity here.
        assert_eq!(known.result(&lost), of(&lost));
        assert_eq!(known.result(&lost), ResultCall::Answered);
    }
}
