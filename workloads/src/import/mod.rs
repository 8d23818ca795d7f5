//! Recorded sessions to traces.
//!
//! A reader turns one agent's format into a [`Session`]: calls, what they returned, and what that
//! says about files. [`trace()`] turns any session into a [`crate::trace::Trace`]: it works out which
//! files were there at the start and what changed outside the recorded calls, and leaves out or
//! replaces what may not be published.

pub mod claude_code;
mod disguise;
pub mod mini_swe_agent;
pub mod openhands;
mod timeline;

use crate::trace::{CallError, Extra, Op, Usage};

pub use timeline::{Blobs, Provenance, trace};

/// A recorded session, whatever the format was.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// The agent and its version.
    pub agent: String,
    /// The model it ran on.
    pub model: String,
    /// The system prompt, where the source has it.
    pub system: Option<String>,
    /// Nothing but the system prompt stands before the first message: the agent sends no tool schemas.
    pub is_whole_prompt: bool,
    /// What happened, in order.
    pub events: Vec<Recorded>,
    /// Lines of the source that could not be read at all.
    pub unreadable_lines: u64,
}

/// Something that was recorded.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// The user said something.
    User {
        /// What.
        text: String,
    },
    /// The model's API was called.
    Api {
        /// Milliseconds since the session's start.
        at: u64,
        /// What it reported.
        usage: Usage,
        /// `main`, or `sub:<id>`.
        lane: String,
        /// The text that it answered.
        text: String,
        /// What it showed of its thinking.
        thinking: String,
    },
    /// A tool was called.
    Call(RecordedCall),
    /// A tool answered.
    Result(RecordedResult),
    /// The context was compacted.
    Compact {
        /// Tokens before it.
        pre_tok: u64,
    },
}

/// A call of a tool.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// The source's name for this call.
    pub id: String,
    /// The API call it belongs to, counted from 0.
    pub api: u64,
    /// `main`, or `sub:<id>`.
    pub lane: String,
    /// The tool.
    pub tool: String,
    /// What it does.
    pub op: Op,
    /// The path inside the workspace, `.` for the workspace itself.
    pub path: Option<String>,
    /// First line wanted and how many.
    pub range: Option<(u64, u64)>,
    /// The arguments as they were.
    pub args: Extra,
    /// The model wrote the call as a part of its text, not as arguments of a tool.
    pub is_in_text: bool,
    /// For a list: the whole tree below, not one directory.
    pub recursive: bool,
    /// Milliseconds since the session's start.
    pub at: u64,
}

/// What a tool answered.
#[derive(Clone, Debug)]
pub struct RecordedResult {
    /// The call it answers.
    pub id: String,
    /// Why it failed, if it did.
    pub err: Option<CallError>,
    /// The text that the agent was shown.
    pub shown: String,
    /// What it says about files.
    pub seen: Seen,
}

/// What a result says about files. Paths are inside the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing that is known here.
    Nothing,
    /// A file's whole content.
    Whole {
        /// The file.
        path: String,
        /// Its content.
        content: String,
    },
    /// Some lines of a file.
    Part {
        /// The file.
        path: String,
        /// Their text, without the last newline.
        content: String,
        /// Lines in the whole file, counted as one more than its newlines.
        total_lines: u64,
    },
    /// An edit, with what was there before.
    Edited {
        /// The file.
        path: String,
        /// Its content before, where the source has it.
        before: Option<String>,
        /// What was replaced by what, once or everywhere.
        replacements: Vec<Replacement>,
    },
    /// A write.
    Written {
        /// The file.
        path: String,
        /// Its content before; `None` if it was created.
        before: Option<String>,
        /// Its content after.
        content: String,
    },
    /// Files that are there.
    Listed(Vec<String>),
}

/// One replacement of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The text to find.
    pub old: String,
    /// The text to put there.
    pub new: String,
    /// Everywhere, not only at the first place.
    pub all: bool,
}
