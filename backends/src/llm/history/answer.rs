//! What a model says a file holds, or a directory names.

use models::{Finish, Reply};
use serde::Deserialize;

/// What a model says of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its bytes; `None` if there is no such file.
    pub content: Option<Vec<u8>>,
    /// What it took.
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

/// Reads an answer about a file.
pub(super) fn file(reply: &Reply) -> Result<Answer, String> {
    let file: File = parse(reply)?;
    Ok(Answer {
        content: file.exists.then(|| file.content.into_bytes()),
        reply: reply.clone(),
    })
}

/// Reads an answer about a directory.
pub(super) fn names(reply: &Reply) -> Result<Vec<String>, String> {
    parse::<Listing>(reply).map(|listing| listing.names)
}

/// Reads an answer that must be JSON of a known form.
pub(super) fn parse<T: for<'a> Deserialize<'a>>(reply: &Reply) -> Result<T, String> {
    serde_json::from_str(reply.text.trim()).map_err(|error| match reply.finish {
        Finish::Length => "the answer is cut off at --answer-tokens".to_owned(),
        _ => format!("the answer is not what was asked for: {error}"),
    })
}
