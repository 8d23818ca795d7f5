//! The conversation of a session: what enters its context at each call.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A session as seen by its context. All tokens are `o200k` tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// Tokens before the first message that no event records: system prompt and tool schemas.
    pub fixed: u64,
    /// The origin of `fixed`.
    pub fixed_is: FixedOrigin,
    /// The calls of the model's API, in order. Thinking stays in all prompts here; [`ThinkingRetention`] removes
    /// it.
    pub steps: Vec<Step>,
    /// Number of subagents. Each has its own context, so `steps` contains none of their calls.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub subagents: u64,
    /// Number of API calls by subagents.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub subagent_calls: u64,
}

/// How long a model's own thinking stays in its prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThinkingRetention {
    /// It stays like any other text.
    #[default]
    Always,
    /// It stays until the next message of the user.
    UntilUserSpeaks,
    /// It is never sent back.
    Never,
}

impl ThinkingRetention {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            ThinkingRetention::Always => "stays in the prompts",
            ThinkingRetention::UntilUserSpeaks => "stays in the prompts until the user speaks",
            ThinkingRetention::Never => "is not sent back",
        }
    }
}

/// The origin of the tokens of system prompt and tool schemas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FixedOrigin {
    /// The source states the number, or contains the text.
    Stated,
    /// The reported prompt of the first call minus its recorded parts. No other call is used.
    Inferred,
    /// Unknown, taken as 0.
    #[default]
    Unknown,
}

impl FixedOrigin {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            FixedOrigin::Stated => "stated",
            FixedOrigin::Inferred => "inferred from the first call",
            FixedOrigin::Unknown => "unknown, taken as 0",
        }
    }
}

/// One call of the model's API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The time since the previous call, in milliseconds.
    pub gap_ms: u64,
    /// The model; empty for the session's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Whether the context was compacted to the fixed part before this call.
    #[serde(default, skip_serializing_if = "is_false")]
    pub compacted: bool,
    /// The client's record of the context before the compaction, in the model's own tokens.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before_compaction: u64,
    /// Parts that became shorter in place before this call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewrites: Vec<Rewrite>,
    /// New parts at the end of the prompt.
    pub enters: Vec<Part>,
    /// The model's output, which is in the prompt of every later call.
    pub emits: Vec<Part>,
    /// Number of file calls requested by this answer, by kind; a slow backend delays them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, u64>,
    /// The purpose of each of its tool calls, in order; empty where the source does not tell. Runs do not record it.
    #[serde(skip)]
    pub purposes: Vec<CallPurpose>,
    /// The usage that the API reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<CallUsage>,
}

/// A part of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its kind.
    pub kind: PartKind,
    /// Its tokens.
    pub tokens: u64,
    /// Bytes of its text; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// Tokens of its text as a JSON string, as in a call that writes it; 0 if the text is unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub escaped: u64,
}

/// The kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartKind {
    /// A message of the user, or of the harness on the user's behalf.
    User,
    /// Text that the client adds by itself: a reminder, an attached file, a list of tools.
    Reminder,
    /// Notes of earlier sessions, which the harness loads.
    Memory,
    /// A tool's result.
    Result,
    /// A line in place of a result that is stored in a file.
    Receipt,
    /// A part of a stored result, read back.
    ReadBack,
    /// The model's text to the user.
    Text,
    /// The model's thinking.
    Thinking,
    /// The model's arguments of a tool call.
    Arguments,
    /// File content that the model wrote.
    Content,
}

/// The purpose of a tool call, by its kind and its file operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPurpose {
    /// Write the steps of a plan.
    Plan,
    /// Get data: read or search files, query, fetch.
    Gathering,
    /// List names or read attributes, and no content.
    Names,
    /// Change files.
    Change,
    /// Think, ask the user, or report.
    Message,
    /// The source does not tell.
    Unknown,
}

/// A part that became shorter in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rewrite {
    /// The number of the part, from 0 over all steps; a step's entering parts precede its emitted ones.
    pub part: usize,
    /// Its new number of tokens.
    pub tokens: u64,
}

/// The usage that the API reported for a call, in the model's own tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallUsage {
    /// Prompt tokens, cached or not.
    pub prompt: u64,
    /// Prompt tokens read from the cache.
    pub cached: u64,
    /// Prompt tokens written to the cache for an hour.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub written_1h: u64,
    /// Prompt tokens written to the cache for the provider's short time to live.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub written: u64,
    /// Output tokens.
    pub output: u64,
}

impl Conversation {
    /// All parts in the order that [`Rewrite::part`] counts them.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.steps.iter().flat_map(|step| step.enters.iter().chain(&step.emits))
    }

    /// Number of compactions.
    pub fn compactions(&self) -> usize {
        self.steps.iter().filter(|step| step.compacted).count()
    }
}

impl Part {
    /// A part with unknown bytes and text.
    pub fn new(kind: PartKind, tokens: u64) -> Self {
        Self { kind, tokens, bytes: 0, escaped: 0 }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}
