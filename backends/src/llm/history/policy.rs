//! What a model says about an operation.

use models::Reply;
use serde::Deserialize;

use super::answer::parse;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Verdict {
    pub(super) allow: bool,
    pub(super) reason: String,
}

/// Reads a verdict.
pub(super) fn verdict(reply: &Reply) -> Result<Verdict, String> {
    parse(reply)
}
