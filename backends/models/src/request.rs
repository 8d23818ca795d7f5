//! What a model is asked and what it answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::Origin;

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// What holds for the whole conversation.
    System,
    /// The question.
    User,
    /// An earlier answer.
    Assistant,
}

/// One message of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        let content = content.into();
        Self { role, content }
    }
}

/// The form an answer must have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Schema {
    /// Its name, as the protocol wants one.
    pub name: &'static str,
    /// A JSON Schema.
    pub schema: Value,
}

/// Everything that decides an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Request {
    /// The model's name.
    pub model: String,
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// 0 for the likeliest answer, up to 2.
    pub temperature: f32,
    /// The longest answer, in the model's tokens.
    pub max_tokens: u32,
    /// The seed of the sampling.
    pub seed: u64,
    /// The form the answer must have; `None` for plain text.
    pub schema: Option<Schema>,
}

impl Request {
    /// SHA-256 over every parameter, in hexadecimal: equal for equal requests only.
    pub fn hash(&self) -> String {
        // Field order is fixed, and so is that of the schema's map: equal requests give equal bytes.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        let digest = Sha256::digest(&bytes);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Request {
    /// Tokens of its messages by the `o200k` vocabulary, which is not the model's: for a question of which nobody
    /// says how long it was.
    pub fn estimated_tokens(&self) -> u64 {
        let messages = self.messages.iter();
        messages
            .map(|message| tokens::count(&message.content))
            .sum()
    }
}

/// Tokens of one exchange, as the provider counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Tokens of the request.
    pub prompt: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// The provider said nothing: counted with the `o200k` vocabulary, which is not the model's.
    #[serde(default)]
    pub is_estimated: bool,
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Until the model was free for this request.
    pub queue: Duration,
    /// From sending the request to the first piece of the answer: transfer and the reading of the prompt.
    pub first_byte: Duration,
    /// From sending the request to the end of the answer.
    pub total: Duration,
    /// Requests that were sent, the last one answered.
    pub attempts: u32,
    /// Of those before the last, how many broke off after the answer had begun: they have been read, and may cost.
    pub broke_off: u32,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    /// The model was done.
    Stop,
    /// At `max_tokens`: the answer is cut off.
    Length,
    /// The provider's content filter ended it, or the model declined in the field that is for that: no answer.
    Filtered,
    /// Something else, or the provider does not say.
    Other,
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The answer.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// What it used.
    pub usage: Usage,
    /// How long it took.
    pub timing: Timing,
    /// Whether this came from a model, a recording, or a simulation.
    pub origin: Origin,
    /// The server took no temperature: sampling was its own, and another answer may differ.
    pub has_own_sampling: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_in_the_hash() {
        let request = Request {
            model: "m".to_owned(),
            messages: vec![Message::new(Role::User, "hello")],
            temperature: 0.0,
            max_tokens: 10,
            seed: 1,
            schema: None,
        };
        let hash = request.hash();
        assert_eq!(hash.len(), 64);
        assert_eq!(hash, request.clone().hash());
        type Alter = fn(&mut Request);
        let alterations: [Alter; 6] = [
            |request| request.model.push('2'),
            |request| request.messages[0].content.push('!'),
            |request| request.temperature = 0.5,
            |request| request.max_tokens = 11,
            |request| request.seed = 2,
            |request| {
                request.schema = Some(Schema {
                    name: "x",
                    schema: serde_json::json!({"type": "object"}),
                });
            },
        ];
        for alter in alterations {
            let mut other = request.clone();
            alter(&mut other);
            assert_ne!(other.hash(), hash);
        }
    }
}
