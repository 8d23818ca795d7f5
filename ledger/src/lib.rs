//! What an agent's context costs in tokens: the arithmetic, without texts, prices or files.
//!
//! A [`Conversation`] says what came into a context, call by call of the model's API. An [`Account`]
//! says what had to be sent for it, what of that a prompt cache could answer, and how full the context
//! became. Conversations are made in `workloads`, where the texts are; prices and pages are in `reports`.

mod account;
mod conversation;
mod residual;

pub use account::{Account, CallTokens, TTL_MS, Terms};
pub use conversation::{
    Conversation, Fixed, Part, PartKind, Reported, Rewrite, Step, ThinkingStays,
};
pub use residual::{CacheResidual, Residual, cached_prompts, median, residual};
