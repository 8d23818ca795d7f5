//! A question to the memory, as a recall answers it.

use fuse::store::Timestamp;

use crate::meaning::QuestionEmbedding;
use crate::request::Strategy;

/// A question and its token budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) query: &'a str,
    pub(super) max_tokens: u64,
    pub(super) strategy: Strategy,
    pub(super) now: Timestamp,
    /// The number of all notes.
    pub(super) notes: u64,
    /// The question's vector and its nearest notes.
    pub(super) meant: &'a QuestionEmbedding,
}
