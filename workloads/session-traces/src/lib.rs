//! A recorded session, independent of the format that recorded it, and the trace that it becomes.
//! [`trace()`] infers the initial files and the changes outside the recorded calls, and removes or replaces text that may not
//! be published.

mod alignment;
pub mod copies;
pub mod coverage;
mod disguise;
mod evidence;
pub mod names;
mod placement;
pub mod roots;
mod sketch;
pub mod spill;
mod timeline;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use roots::Roots;
use spill::{SpilledText, SpilledValue};

use shell::{Replacement, ShellCommand, ShellWork};
use tokens::BilledUsage;
use workloads::trace::{CallError, Extra, Op, TokenUsage};

pub use timeline::{Blobs, TraceOrigin, TraceStream, trace};

/// A recorded session, independent of its format.
#[derive(Clone, Debug, Default)]
pub struct ImportedSession {
    /// The source's own name of the session; empty if it has none.
    pub identity: String,
    /// The agent and its version.
    pub agent: String,
    /// The model it ran on.
    pub model: String,
    /// The system prompt, if the source has it.
    pub system: Option<String>,
    /// Whether the system prompt is the whole prompt before the first message: the agent sends no tool schemas.
    pub is_whole_prompt: bool,
    /// The events, in order.
    pub events: Vec<RecordedEvent>,
    /// Number of lines of the source that could not be parsed.
    pub unreadable_lines: u64,
    /// Lines of the source that were read after a repair.
    pub mended_lines: u64,
    /// Records of the source whose type the importer does not know, by type.
    pub unknown_records: BTreeMap<String, u64>,
    /// Results whose call the source does not have. Their text is in the prompt all the same.
    pub results_without_call: u64,
    /// The time of the first event, in milliseconds since the Unix epoch, if the source has it.
    pub started_ms: Option<i64>,
    /// Tokens and dollars that the source states for the whole session, by model.
    pub totals: Vec<ReportedTotal>,
    /// Usage that the source reports of none of the answers.
    pub unplaced: Vec<UnplacedUsage>,
    /// Web searches that the provider ran. It bills them beside the tokens.
    pub web_searches: u64,
    /// Answers in fast mode, whose tokens cost more.
    pub fast_answers: u64,
    /// The history that a fork has copied from the session that it continues. It has no events here.
    pub history: CopiedHistory,
    /// The directories that the session names. They give the paths of shell commands their places in the workspace.
    pub roots: Roots,
    /// Why a text of the session is lost, if one is: it has no trace then.
    pub lost: Option<String>,
}

/// The history that a fork has copied from another session, where it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedHistory {
    /// Its answers that report their usage.
    pub answers: u64,
    /// Its tool calls.
    pub calls: u64,
}

/// What a source states for a whole session and one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedTotal {
    /// The model; empty if the source does not say.
    pub model: String,
    /// The sum of its tokens. If the calls of the model report theirs, too, these are not counted again.
    pub usage: Option<TokenUsage>,
    /// Its dollars.
    pub dollars: Option<f64>,
}

/// Usage that is reported of none of the answers in a recording: of a turn with several of them, or of a call that is not in
/// the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnplacedUsage {
    /// Milliseconds since the session's start.
    pub at: u64,
    /// The model; empty if the source does not say.
    pub model: String,
    /// The tokens.
    pub tokens: BilledUsage<TokenUsage>,
}

/// A recorded event.
#[derive(Clone, Debug)]
pub enum RecordedEvent {
    /// A message of the user, or text that the client adds.
    User {
        /// The text.
        text: SpilledValue<String>,
        /// Whether the client added it by itself, such as a reminder, an attached file or a list of tools.
        by_client: bool,
        /// Images in it.
        images: u64,
    },
    /// A call of the model's API.
    Api {
        /// Milliseconds since the session's start.
        at: u64,
        /// The reported usage.
        usage: TokenUsage,
        /// The model; empty if the source does not say.
        model: Arc<str>,
        /// `main`, or `sub:<id>`.
        lane: Arc<str>,
        /// The text of the answer.
        text: SpilledText,
        /// The thinking in the answer, if the source contains it.
        thinking: SpilledText,
        /// Bytes of all thinking in the answer, if the source has its signature: its text may be a summary, or missing.
        thinking_bytes: u64,
    },
    /// A tool call.
    Call(RecordedCall),
    /// The result of a tool call.
    Result(RecordedResult),
    /// A compaction of the context.
    Compact {
        /// Tokens of the context before it.
        pre_tok: u64,
    },
    /// History of another session that a fork begins with.
    Inherited {
        /// Its tokens, in the model's own.
        tokens: u64,
    },
}

/// Names of the arguments with which tools take a file or a directory; the first of them counts.
pub const PATH_ARGUMENTS: [&str; 18] = [
    "file_path",
    "filePath",
    "path",
    "absolute_path",
    "absolutePath",
    "file",
    "filename",
    "file_name",
    "target_file",
    "targetFile",
    "relative_path",
    "relative_workspace_path",
    "notebook_path",
    "dir_path",
    "directory",
    "dirPath",
    "DirectoryPath",
    "uri",
];

/// A call of a tool.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// The call's identifier in the source.
    pub id: String,
    /// The API call it belongs to, counted from 0.
    pub api: u64,
    /// `main`, or `sub:<id>`.
    pub lane: Arc<str>,
    /// The tool.
    pub tool: Arc<str>,
    /// The kind of the call.
    pub op: Op,
    /// The path inside the workspace, `.` for the workspace itself.
    pub path: Option<String>,
    /// The first requested line, from 1, and the number of lines.
    pub range: Option<(u64, u64)>,
    /// The original arguments: an object as JSON, or nothing.
    pub args: SpilledValue<String>,
    /// Whether the model wrote the call in its text instead of tool arguments.
    pub is_in_text: bool,
    /// The shell command, if the call is one: its file operations are replayed where they are certain.
    pub shell: Option<SpilledValue<ShellCommand>>,
    /// For a list: whether it covers the whole tree instead of one directory.
    pub recursive: bool,
    /// Milliseconds since the session's start.
    pub at: u64,
}

impl RecordedCall {
    /// A call without path and arguments.
    pub fn new(id: String, api: u64, lane: Arc<str>, tool: Arc<str>, op: Op, at: u64) -> Self {
        Self {
            id,
            api,
            lane,
            tool,
            op,
            path: None,
            range: None,
            args: SpilledValue::default(),
            is_in_text: false,
            shell: None,
            recursive: false,
            at,
        }
    }

    /// The original arguments.
    ///
    /// # Errors
    /// If the text of the session is lost.
    pub fn arguments(&self) -> Result<Extra, String> {
        let text = self.args.load()?;
        if text.is_empty() {
            return Ok(Extra::new());
        }
        // Arguments that were nested as deep as JSON may be are one text.
        let input = |_| Extra::from_iter([("input".to_owned(), text.clone().into())]);
        Ok(serde_json::from_str(&text).unwrap_or_else(input))
    }

    /// Whether the original arguments name a file or a directory.
    pub(crate) fn names_path(&self) -> bool {
        let is_named =
            |args: Extra| PATH_ARGUMENTS.iter().any(|name| args.get(*name).is_some_and(|path| path.is_string()));
        self.arguments().is_ok_and(is_named)
    }
}

/// The result of a tool call.
#[derive(Clone, Debug)]
pub struct RecordedResult {
    /// The identifier of its call.
    pub id: String,
    /// Why the call failed; `None` if it succeeded.
    pub err: Option<CallError>,
    /// The text that the agent saw.
    pub shown: SpilledValue<String>,
    /// The file content that it shows.
    pub seen: SpilledValue<SeenContent>,
    /// Whether the call has not ended: it was interrupted, or went on in the background.
    pub is_unfinished: bool,
}

/// The file content that a result shows. Paths are inside the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeenContent {
    /// No known file content.
    #[default]
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
    /// An edit.
    Edited {
        /// The file.
        path: String,
        /// Its content before, if the source has it.
        before: Option<String>,
        /// The replacements of the edit.
        replacements: Vec<Replacement>,
        /// The changed places, in order; empty if the source does not have them.
        hunks: Vec<Hunk>,
    },
    /// An edit of a file whose content before the source does not have.
    Patched {
        /// The file.
        path: String,
        /// The replacements of the edit, in turn.
        replacements: Vec<Replacement>,
        /// The changed places, in order; empty if the source does not have them.
        hunks: Vec<Hunk>,
    },
    /// A write of an existing file whose content before the source does not have.
    Replaced {
        /// The file.
        path: String,
        /// Its content after.
        content: String,
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
    /// Existing files.
    Listed(Vec<String>),
    /// The output of a shell command, if the agent saw more than that.
    Printed(String),
    /// The same, if the text that the agent saw ends with it: its bytes.
    PrintedEnd(usize),
}

spillable!(SeenContent);
spillable!(ShellCommand);
spillable!(ShellWork);

/// The path in a content that is borrowed, shared or to change it.
macro_rules! path_of {
    ($seen:expr) => {
        match $seen {
            Self::Nothing | Self::Listed(_) | Self::Printed(_) | Self::PrintedEnd(_) => None,
            Self::Whole { path, .. }
            | Self::Part { path, .. }
            | Self::Edited { path, .. }
            | Self::Patched { path, .. }
            | Self::Replaced { path, .. }
            | Self::Written { path, .. } => Some(path),
        }
    };
}

impl SeenContent {
    /// The file whose content it is.
    fn path(&self) -> Option<&String> {
        path_of!(self)
    }

    /// The file whose content it is, to change it.
    pub fn path_mut(&mut self) -> Option<&mut String> {
        path_of!(self)
    }

    /// Whether it is of another file than the call. Such a recording is wrong, and no file is known by it.
    fn contradicts(&self, call: &RecordedCall) -> bool {
        let asked = call.path.as_ref();
        asked.is_some_and(|asked| self.path().is_some_and(|shown| shown != asked))
    }
}

impl RecordedResult {
    /// The output of a shell command.
    ///
    /// # Errors
    /// If the text of the session is lost.
    pub fn output(&self) -> Result<String, String> {
        match self.seen.load()? {
            SeenContent::Printed(output) => Ok(output),
            SeenContent::PrintedEnd(bytes) => {
                let mut shown = self.shown.load()?;
                let at = shown.len().saturating_sub(bytes);
                Ok(if shown.is_char_boundary(at) { shown.split_off(at) } else { shown })
            }
            _ => self.shown.load(),
        }
    }
}

/// A changed place of a file, with the lines around it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hunk {
    /// The first line in the file before the edit, from 1.
    pub first: u64,
    /// The lines, each after ` `, `-` or `+`. Leading tabs may be shown as two spaces each.
    pub lines: Vec<String>,
}

/// The most types of unknown records that are told apart, and the most characters of each.
const UNKNOWN_TYPES: usize = 64;

impl ImportedSession {
    /// Counts a record whose type the importer does not know.
    pub fn count_unknown(&mut self, kind: Option<&str>) {
        let kind: String = kind.unwrap_or("none").chars().take(UNKNOWN_TYPES).collect();
        let is_told_apart = self.unknown_records.len() < UNKNOWN_TYPES || self.unknown_records.contains_key(&kind);
        *self.unknown_records.entry(if is_told_apart { kind } else { "others".to_owned() }).or_default() += 1;
    }

    /// Whether reads show a tab after a line's number, as newer versions of Claude Code do, and not an arrow.
    fn numbers_lines_by_tab(&self) -> bool {
        let reads: HashSet<&str> = self
            .events
            .iter()
            .filter_map(|event| match event {
                RecordedEvent::Call(call) if call.op == Op::Read => Some(call.id.as_str()),
                _ => None,
            })
            .collect();
        let shown = self.events.iter().filter_map(|event| match event {
            RecordedEvent::Result(result) if reads.contains(result.id.as_str()) => Some(&result.shown),
            _ => None,
        });
        let mut marks = shown.filter_map(|shown| {
            let shown = shown.load().ok()?;
            let rest = shown.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
            rest.chars().next().filter(|mark| matches!(mark, '\t' | '→'))
        });
        marks.next() == Some('\t')
    }

    /// Whether the session holds what its tools showed: whether most of its reads have a text, but for those of images; without
    /// reads, its lists, its searches, or any call. A session without calls lacks nothing.
    pub fn shows_results(&self) -> bool {
        let with_text: HashSet<&str> =
            self.results().filter(|result| result.shown.bytes() > 0).map(|result| result.id.as_str()).collect();
        for op in [Op::Read, Op::List, Op::Search] {
            let of_op = self.calls().filter(|call| call.op == op && !call.path.as_deref().is_some_and(is_image));
            let texts = of_op.map(|call| with_text.contains(call.id.as_str()));
            let texts: Vec<bool> = texts.collect();
            if !texts.is_empty() {
                return texts.iter().filter(|has_text| **has_text).count() * 2 >= texts.len();
            }
        }
        self.calls().next().is_none() || self.calls().any(|call| with_text.contains(call.id.as_str()))
    }

    /// The calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &RecordedCall> {
        self.events.iter().filter_map(|event| match event {
            RecordedEvent::Call(call) => Some(call),
            _ => None,
        })
    }

    /// The results, in order.
    pub fn results(&self) -> impl Iterator<Item = &RecordedResult> {
        self.events.iter().filter_map(|event| match event {
            RecordedEvent::Result(result) => Some(result),
            _ => None,
        })
    }
}

/// Whether a read of the path shows an image, and no text.
fn is_image(path: &str) -> bool {
    const IMAGES: [&str; 7] = ["png", "jpg", "jpeg", "gif", "webp", "bmp", "pdf"];
    let (_, extension) = path.rsplit_once('.').unwrap_or_default();
    IMAGES.iter().any(|image| extension.eq_ignore_ascii_case(image))
}
