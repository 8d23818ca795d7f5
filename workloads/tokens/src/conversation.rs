//! What came into a context, and when.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A session as its context saw it. All tokens are `o200k` tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// Tokens that stand before everything else and are in no record: system prompt, tool schemas.
    pub fixed: u64,
    /// Where `fixed` comes from.
    pub fixed_is: Fixed,
    /// The calls of the model's API, in order. Thinking is in all prompts: [`ThinkingStays`] takes it out.
    pub steps: Vec<Step>,
    /// Subagents of the session: each has a context of its own, and none of their calls is in `steps`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub subagents: u64,
    /// Calls of the model's API that those subagents made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub subagent_calls: u64,
}

/// How long a model's own thinking stays in its prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThinkingStays {
    /// As any other text.
    #[default]
    Always,
    /// Until the user says something again.
    UntilUserSpeaks,
    /// It is not sent back at all.
    Never,
}

impl ThinkingStays {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            ThinkingStays::Always => "stays in the prompts",
            ThinkingStays::UntilUserSpeaks => "stays in the prompts until the user speaks",
            ThinkingStays::Never => "is not sent back",
        }
    }
}

/// Where the tokens of system prompt and tool schemas come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fixed {
    /// The source says it, or has the text.
    Stated,
    /// What the first call reported, less what of it is recorded. No other call is used for it.
    Inferred,
    /// Nothing says it: it is taken as 0.
    #[default]
    Unknown,
}

impl Fixed {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fixed::Stated => "stated",
            Fixed::Inferred => "inferred from the first call",
            Fixed::Unknown => "unknown, taken as 0",
        }
    }
}

/// One call of the model's API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Milliseconds since the call before it.
    pub gap_ms: u64,
    /// Everything but the fixed part left the context before this call: it was compacted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub compacted: bool,
    /// Tokens that the context had before it was compacted, in the model's own, as the client recorded it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before_compaction: u64,
    /// What became shorter where it stood, before this call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewrites: Vec<Rewrite>,
    /// What the prompt has at its end that the call before had not.
    pub enters: Vec<Part>,
    /// What the model wrote. It is in the prompt of every later call.
    pub emits: Vec<Part>,
    /// File calls that the model asked for here, by kind: what a slow backend delays.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, u64>,
    /// What the API reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Reported>,
}

/// A piece of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// What it is.
    pub kind: PartKind,
    /// Its tokens.
    pub tokens: u64,
    /// Bytes of its text, where they are known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// Tokens of its text as a JSON string, where the text is known: what a call takes that writes it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub escaped: u64,
}

/// What a piece of a context is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartKind {
    /// The user said it, or the harness on the user's behalf.
    User,
    /// A tool answered it.
    Result,
    /// A line that stands for a result which is stored elsewhere.
    Receipt,
    /// A part of a stored result, read back.
    ReadBack,
    /// The model wrote it to the user.
    Text,
    /// The model thought it.
    Thinking,
    /// The model wrote it to call a tool.
    Arguments,
    /// The model wrote it to have it stored in a file.
    Content,
}

/// A part became shorter where it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rewrite {
    /// Which part, counted from 0 over all steps, what enters before what is emitted.
    pub part: usize,
    /// Its tokens from now on.
    pub tokens: u64,
}

/// What the API said about a call, in the model's own tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reported {
    /// Prompt tokens, cached or not.
    pub prompt: u64,
    /// Of them, read from the cache.
    pub cached: u64,
    /// Tokens the model wrote.
    pub output: u64,
}

impl Conversation {
    /// All parts in the order that [`Rewrite::part`] counts them.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.steps
            .iter()
            .flat_map(|step| step.enters.iter().chain(&step.emits))
    }

    /// How often the context was compacted.
    pub fn compactions(&self) -> usize {
        self.steps.iter().filter(|step| step.compacted).count()
    }
}

impl Part {
    /// A part whose bytes do not matter.
    pub fn new(kind: PartKind, tokens: u64) -> Self {
        Self {
            kind,
            tokens,
            bytes: 0,
            escaped: 0,
        }
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
