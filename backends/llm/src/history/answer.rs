//! Parsing of a model's answers about files, directories and operations.

use models::{Finish, Reply};
use serde::Deserialize;

/// A model's answer about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The file's bytes; `None` if the model says that there is no such file.
    pub content: Option<Vec<u8>>,
    /// The reply, with its token usage and timing.
    pub reply: Reply,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    exists: bool,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    names: Vec<String>,
}

/// A model's decision on an operation, by the policy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyDecision {
    pub(super) allow: bool,
    pub(super) reason: String,
}

/// Parses an answer about a file.
pub(super) fn file(reply: &Reply) -> Result<Answer, String> {
    let file: File = parse(reply)?;
    Ok(Answer { content: file.exists.then(|| file.content.into_bytes()), reply: reply.clone() })
}

/// Parses an answer about a directory.
pub(super) fn names(reply: &Reply) -> Result<Vec<String>, String> {
    parse::<Listing>(reply).map(|listing| listing.names)
}

/// Parses a JSON answer.
pub(super) fn parse<T: for<'a> Deserialize<'a>>(reply: &Reply) -> Result<T, String> {
    serde_json::from_str(reply.text.trim()).map_err(|error| match reply.finish {
        Finish::Length => "the answer is cut off at --answer-tokens".to_owned(),
        _ => format!("the answer is not what was asked for: {error}"),
    })
}
