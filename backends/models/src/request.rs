//! Requests to a model, and its replies.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Origin;

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions for the whole conversation.
    System,
    /// The question.
    User,
    /// An earlier answer.
    Assistant,
}

/// One message of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its author.
    pub role: Role,
    /// Its text.
    pub content: String,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        let content = content.into();
        Self { role, content }
    }
}

/// The required JSON structure of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Schema {
    /// Its name, which the protocol requires.
    pub name: &'static str,
    /// A JSON Schema.
    pub schema: Value,
}

/// A request: all parameters that determine an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Request {
    /// The model's name.
    pub model: String,
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// The sampling temperature, 0 (the likeliest answer) to 2.
    pub temperature: f32,
    /// The maximum length of the answer in the model's tokens.
    pub max_tokens: u32,
    /// The seed of the sampling.
    pub seed: u64,
    /// The required structure of the answer; `None` for plain text.
    pub schema: Option<Schema>,
}

impl Request {
    /// SHA-256 of all parameters, in hexadecimal.
    pub fn hash(&self) -> String {
        // The order of fields and of the schema's keys is fixed, so equal requests give equal bytes.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        inputs::sha256(bytes)
    }

    /// Estimated tokens of its messages, by the `o200k` vocabulary instead of the model's own.
    ///
    /// For requests whose tokens the provider does not report.
    pub fn estimated_tokens(&self) -> u64 {
        let messages = self.messages.iter();
        messages.map(|message| tokens::count(&message.content)).sum()
    }
}

/// Tokens of one request and its answer, as the provider counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Tokens of the request.
    pub prompt: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// The provider reported no counts: an estimate by the `o200k` vocabulary instead of the model's own.
    #[serde(default)]
    pub is_estimated: bool,
}

/// The time and the attempts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Time in the queue until the request started.
    pub queue: Duration,
    /// From sending the request to the first piece of the answer: transfer and prompt processing.
    pub first_byte: Duration,
    /// From sending the request to the end of the answer.
    pub total: Duration,
    /// Requests sent, including the answered one.
    pub attempts: u32,
    /// Earlier attempts whose answer broke off: the model processed their prompts, which may cost money.
    pub broke_off: u32,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    /// The answer is complete.
    Stop,
    /// The answer is truncated at `max_tokens`.
    Length,
    /// The provider's content filter ended it, or the model declined in the protocol's `refusal` field.
    Filtered,
    /// Another reason, or none reported.
    Other,
}

/// A model's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The answer's text.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Its tokens.
    pub usage: Usage,
    /// Its times and attempts.
    pub timing: Timing,
    /// Whether a model, a recording, or a simulation answered.
    pub origin: Origin,
    /// The server accepts no temperature and samples by its own rule, so the next answer may differ.
    pub has_own_sampling: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_in_the_hash() {
        let request = Request { messages: vec![Message::new(Role::User, "hello")], ..Request::default() };
        let hash = request.hash();
        assert_eq!(hash.len(), 64);
        assert_eq!(hash, request.clone().hash());
        type Alteration = fn(&mut Request);
        let alterations: [Alteration; 6] = [
            |request| request.model.push('2'),
            |request| request.messages[0].content.push('!'),
            |request| request.temperature = 0.5,
            |request| request.max_tokens = 11,
            |request| request.seed = 2,
            |request| {
                request.schema = Some(Schema { name: "x", schema: serde_json::json!({"type": "object"}) });
            },
        ];
        for alter in alterations {
            let mut other = request.clone();
            alter(&mut other);
            assert_ne!(other.hash(), hash);
        }
    }
}
