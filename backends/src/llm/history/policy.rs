//! The model's decision on an operation, by the policy.

use models::Reply;
use serde::Deserialize;

use super::answer::parse;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Verdict {
    pub(super) allow: bool,
    pub(super) reason: String,
}

/// Parses a decision.
pub(super) fn verdict(reply: &Reply) -> Result<Verdict, String> {
    parse(reply)
}
