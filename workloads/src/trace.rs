//! The trace format, version 1: the recorded tool calls of an agent session. `docs/FORMAT.md` explains it.
//! A trace is data: the reader checks it, and nothing in it is executed.
//! Compiling a trace to a script is in [`crate::compile`].

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::path::WorkspacePath;
use inputs::{InputError, read_record};

/// The version this module reads and writes.
pub const VERSION: u32 = 1;

/// The lane of the agent that the user talks to.
pub const MAIN_LANE: &str = "main";

/// Fields of the source that the format does not define.
pub type Extra = Map<String, Value>;

/// How much of the original text a trace contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fidelity {
    /// All of it.
    Content,
    /// None: content, paths and arguments are replaced by filler of the same size.
    Shape,
}

/// The origin of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSource {
    /// The format it was recorded in.
    pub format: String,
    /// The repository of publication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// The commit of that repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The file's path or name in the source.
    pub path: String,
    /// SHA-256 of the recorded file, uncompressed.
    pub sha256: String,
    /// The licence it was published under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
}

/// The first record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceHead {
    /// [`VERSION`].
    pub v: u32,
    /// The trace's name.
    pub id: String,
    /// Its origin.
    pub source: TraceSource,
    /// The agent that was recorded.
    pub agent: String,
    /// The model it ran on.
    pub model: String,
    /// The path of the workspace in the recording.
    pub cwd: String,
    /// How much of the original text the trace contains.
    pub fidelity: Fidelity,
    /// The tokenizer of all `tok` fields.
    pub tokenizer: String,
    /// The system prompt, if the source has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<SystemPrompt>,
    /// Other fields of the source.
    #[serde(default, skip_serializing_if = "Extra::is_empty")]
    pub x: Extra,
}

/// The prompt before the first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemPrompt {
    /// Its number of tokens.
    pub tok: u64,
    /// Whether this is the whole prompt before the first message: the agent sends no tool schemas.
    pub is_whole: bool,
}

/// File content: a reference to a blob in the trace's directory, or the seed of filler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceContent {
    /// Size in bytes.
    pub bytes: u64,
    /// Newline characters.
    pub lines: u64,
    /// SHA-256 of the bytes.
    pub sha256: String,
    /// The file with these bytes, relative to the trace's directory: `blobs/<sha256>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// The filler that generates these bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
}

/// Reproducible filler; see [`crate::filler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fill {
    /// The seed of the generator.
    pub seed: u64,
}

/// How much of a file's initial content is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContentKnowledge {
    /// The recording shows the whole content.
    Full,
    /// The recording shows a part, or only the name. The size is an estimate.
    Partial,
}

/// A file that exists when the session starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitialFile {
    /// Its path.
    pub path: WorkspacePath,
    /// How much of its content is known.
    pub known: ContentKnowledge,
    /// Its content.
    pub content: TraceContent,
}

/// A message of the user, or text that the client adds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The number of the user's message, counted from 0.
    pub turn: u64,
    /// Its number of tokens.
    pub tok: u64,
    /// Whether the client added the text by itself, such as a reminder, an attached file or a list of tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_client: bool,
}

/// The billed tokens of one call of the model's API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenUsage {
    /// Prompt tokens outside the prompt cache.
    pub uncached: u64,
    /// Prompt tokens read from the cache.
    pub cache_read: u64,
    /// Prompt tokens written to the cache for five minutes.
    pub cache_write_5m: u64,
    /// Prompt tokens written to the cache for an hour.
    pub cache_write_1h: u64,
    /// Tokens of the model's output.
    pub output: u64,
    /// The hidden reasoning in `output`; 0 if unknown.
    pub reasoning: u64,
}

/// The source of a [`TokenUsage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageSource {
    /// Reported by the API.
    Reported,
    /// Counted by ctxbench.
    Recomputed,
}

/// One call of the model's API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Api {
    /// Counted from 0.
    pub k: u64,
    /// Milliseconds since the session's start.
    pub at: u64,
    /// Its billed tokens.
    pub usage: TokenUsage,
    /// The source of `usage`.
    pub usage_src: UsageSource,
    /// `main`, or `sub:<id>` for a subagent, which has its own context.
    #[serde(default = "main_lane", skip_serializing_if = "is_main_lane")]
    pub lane: String,
    /// Counted tokens of the text in the answer. Tool arguments are counted in the calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_tok: Option<u64>,
    /// Tokens of the thinking in the answer: counted from its text; if the source hides the text, or has only a summary,
    /// estimated from the length of its signature or taken from the reported reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_tok: Option<u64>,
    /// The model, if it is not the one of the head.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
}

fn main_lane() -> String {
    MAIN_LANE.to_owned()
}

fn is_main_lane(lane: &str) -> bool {
    lane == MAIN_LANE
}

inputs::named! {
    /// The kind of a call, independent of the tool's name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    #[allow(missing_docs, reason = "docs/FORMAT.md explains them")]
    pub enum Op {
        Read = "read", Write = "write", Edit = "edit", List = "list", Search = "search", Exec = "exec",
        Vcs = "vcs", Plan = "plan", Net = "net", Agent = "agent", Other = "other",
    }
}

/// A byte range of a file that an edit replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// Its offset in the file before the edit, in bytes.
    pub at: u64,
    /// Number of bytes removed.
    pub old: u64,
    /// The bytes inserted.
    pub new: TraceContent,
}

/// A call's change of the file at its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Effect {
    /// Replaces the whole content.
    Write(TraceContent),
    /// Replaces byte ranges, which are ordered and do not overlap.
    Edit(Vec<Span>),
}

/// One file operation of a shell command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FileStep {
    /// Reads a whole file.
    Read(WorkspacePath),
    /// Reads the attributes of a file or directory.
    Stat(WorkspacePath),
    /// Lists a directory.
    List {
        /// The directory.
        path: WorkspacePath,
        /// Whether the attributes of the entries are read, too.
        attributes: bool,
    },
    /// Lists a tree.
    Walk(WorkspacePath),
    /// Lists a tree and reads every file in it.
    Search(WorkspacePath),
    /// Writes a whole file.
    Write {
        /// The file.
        path: WorkspacePath,
        /// Its new content.
        content: TraceContent,
    },
    /// Adds to the end of a file, which it creates.
    Append {
        /// The file.
        path: WorkspacePath,
        /// The added bytes.
        content: TraceContent,
    },
    /// Reads a file and writes it with these byte ranges replaced, which are ordered and do not overlap.
    Edit {
        /// The file.
        path: WorkspacePath,
        /// The ranges.
        spans: Vec<Span>,
    },
    /// Reads a file and writes it with the same content: the recording does not tell the new one.
    Rewrite(WorkspacePath),
    /// Reads a file and writes its content to another.
    Copy {
        /// The source.
        from: WorkspacePath,
        /// The destination.
        to: WorkspacePath,
    },
    /// Renames a file.
    Move {
        /// The old name.
        from: WorkspacePath,
        /// The new name.
        to: WorkspacePath,
    },
    /// Removes a file.
    Remove(WorkspacePath),
    /// Creates a directory and its missing ancestors.
    MakeDir(WorkspacePath),
    /// Removes an empty directory.
    RemoveDir(WorkspacePath),
    /// Creates an empty file.
    Create(WorkspacePath),
}

/// The field of a call's `x` that says why the call is not replayed.
pub const CAUSE: &str = "not_replayed";

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceCall {
    /// Counted from 0.
    pub i: u64,
    /// The API call that requested it.
    pub k: u64,
    /// `main`, or `sub:<id>` for a subagent.
    pub lane: String,
    /// The tool's name in the recording.
    pub tool: String,
    /// Its kind.
    pub op: Op,
    /// The file or directory it works on; `None` if unknown or outside the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<WorkspacePath>,
    /// The first requested line, counted from 1, and the number of lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<(u64, u64)>,
    /// The tool's arguments.
    pub args: Extra,
    /// The programs that a shell command runs, such as `git status`; `other` for one that is not widely known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Tokens of the tool's name and arguments as JSON, which the model wrote to make the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tok: Option<u64>,
    /// Its change of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// The file operations of a shell command, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<FileStep>,
    /// Whether one of `steps` stands for the work of a program that is not replayed: a walk of the tree for version
    /// control, a search of it for a build, a test or a package manager.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_model: bool,
    /// Milliseconds since the session's start.
    pub at: u64,
    /// Other fields of the source.
    #[serde(default, skip_serializing_if = "Extra::is_empty")]
    pub x: Extra,
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "docs/FORMAT.md explains them")]
pub enum CallError {
    NotFound,
    NoMatch,
    MultiMatch,
    Stale,
    Rejected,
    Exit,
    Other,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallResult {
    /// The call.
    pub i: u64,
    /// Whether it succeeded.
    pub ok: bool,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub err: Option<CallError>,
    /// Bytes of the result that the agent saw in the recording.
    pub bytes: u64,
    /// Tokens of the result that the agent saw in the recording.
    pub tok: u64,
    /// SHA-256 of the file's bytes that a read returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// SHA-256 of the whole file after a write or an edit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_sha256: Option<String>,
    /// Other fields of the source.
    #[serde(default, skip_serializing_if = "Extra::is_empty")]
    pub x: Extra,
}

/// The cause of a change outside the recorded file operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/FORMAT.md explains them")]
pub enum ChangeCause {
    Exec,
    Vcs,
    Unknown,
}

/// A file change that no file operation of the trace made. The importer infers it from the next known state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// The earliest call after which it may have happened; `None` for before the first call.
    pub after: Option<u64>,
    /// The file.
    pub path: WorkspacePath,
    /// Its content after the change; `None` if it was removed.
    pub content: Option<TraceContent>,
    /// The cause.
    pub why: ChangeCause,
}

/// A compaction of the agent's context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compact {
    /// The last API call before it.
    pub k: u64,
    /// Tokens of the context before it.
    pub pre_tok: u64,
}

/// The last record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// How the session ended, as stated by the source.
    pub exit: String,
}

/// A record between head and end, in order of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "t", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each wraps a documented record")]
#[allow(clippy::large_enum_variant, reason = "most events are calls and results: boxing them would save nothing")]
pub enum Event {
    User(User),
    Api(Api),
    // The largest record by far: a session has as many others.
    Call(Box<TraceCall>),
    Result(CallResult),
    Ext(External),
    Compact(Compact),
}

/// A whole trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The first record.
    pub head: TraceHead,
    /// Files that exist when the session starts.
    pub files: Vec<InitialFile>,
    /// The events, in order of time.
    pub events: Vec<Event>,
    /// The last record.
    pub end: End,
}

/// A record of a trace, which is one line of its file.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "t", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each wraps a documented record")]
pub enum TraceLine<'a> {
    Head(&'a TraceHead),
    File(&'a InitialFile),
    End(&'a End),
    #[serde(untagged)]
    Event(&'a Event),
}

impl TraceLine<'_> {
    /// Writes the line.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, mut file: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut file, self)?;
        file.write_all(b"\n")
    }
}

impl Trace {
    /// Parses a trace; `file` is only for error messages.
    ///
    /// # Errors
    /// [`InputError`] with line and field for any deviation from the format.
    pub fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        let mut head = None;
        let mut files = Vec::new();
        let mut events = Vec::new();
        let mut end: Option<End> = None;
        let mut last_line = 0;
        for (number, line) in (1..).zip(text.lines()) {
            last_line = number;
            let wrong = |message: String| InputError::at(file, number, message);
            if end.is_some() {
                return Err(wrong("a record after the `end` record".to_owned()));
            }
            let (kind, record) = parse_record(file, number, line)?;
            if head.is_none() != (kind == "head") {
                let message = "the first record, and only that, must be `head`";
                return Err(wrong(message.to_owned()));
            }
            match kind.as_str() {
                "head" => head = Some(parse_head(file, number, record)?),
                "file" if events.is_empty() => files.push(read_record(file, number, record)?),
                "file" => {
                    let message = "a `file` record after the first event; use `ext` for changes";
                    return Err(wrong(message.to_owned()));
                }
                "user" => events.push(Event::User(read_record(file, number, record)?)),
                "api" => events.push(Event::Api(read_record(file, number, record)?)),
                "call" => events.push(Event::Call(Box::new(read_record(file, number, record)?))),
                "result" => events.push(Event::Result(read_record(file, number, record)?)),
                "ext" => events.push(Event::Ext(read_record(file, number, record)?)),
                "compact" => events.push(Event::Compact(read_record(file, number, record)?)),
                "end" => end = Some(read_record(file, number, record)?),
                other => {
                    return Err(wrong(format!(
                        "field `t`: unknown record {other:?}, expected one of `head`, `file`, `user`, `api`, `call`, `result`, `ext`, `compact`, `end`"
                    )));
                }
            }
        }
        let head = head.ok_or_else(|| InputError::whole(file, "is empty"))?;
        let end = end.ok_or_else(|| InputError::at(file, last_line, "the trace is cut off: no `end` record"))?;
        Ok(Self { head, files, events, end })
    }

    /// The trace as JSON lines.
    ///
    /// # Errors
    /// If JSON cannot represent the trace; a trace of these types always can be represented.
    pub fn to_jsonl(&self) -> serde_json::Result<String> {
        let mut text = String::new();
        let head = std::iter::once(TraceLine::Head(&self.head));
        let files = self.files.iter().map(TraceLine::File);
        let events = self.events.iter().map(TraceLine::Event);
        let end = std::iter::once(TraceLine::End(&self.end));
        for line in head.chain(files).chain(events).chain(end) {
            text.push_str(&serde_json::to_string(&line)?);
            text.push('\n');
        }
        Ok(text)
    }

    /// Number of calls by kind.
    pub fn calls_by_op(&self) -> BTreeMap<Op, u64> {
        let mut counts = BTreeMap::new();
        for event in &self.events {
            if let Event::Call(call) = event {
                *counts.entry(call.op).or_insert(0) += 1;
            }
        }
        counts
    }
}

/// Parses a line, and splits its kind from the other fields.
fn parse_record(file: &Path, number: usize, line: &str) -> Result<(String, Value), InputError> {
    let wrong = |message: String| InputError::at(file, number, message);
    let record = inputs::parse_json(line).map_err(|error| wrong(format!("cannot be read as JSON: {error}")))?;
    let Value::Object(mut fields) = record else {
        return Err(wrong("a record is a JSON object".to_owned()));
    };
    match fields.shift_remove("t") {
        Some(Value::String(kind)) => Ok((kind, Value::Object(fields))),
        Some(_) => Err(wrong("field `t` must be a string".to_owned())),
        None => Err(wrong("missing field `t`; a trace is made by `ctxbench trace import`".to_owned())),
    }
}

fn parse_head(file: &Path, number: usize, record: Value) -> Result<TraceHead, InputError> {
    // The version is checked first, because another version may have other fields.
    if let Some(found) = record.get("v").and_then(Value::as_u64)
        && found != u64::from(VERSION)
    {
        let message = format!("trace version {found}; this ctxbench reads version {VERSION}");
        return Err(InputError::at(file, number, message));
    }
    read_record(file, number, record)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"{"t":"head","v":1,"id":"t","source":{"format":"claude-code","path":"t.jsonl","sha256":"cd","licence":"MIT"},"agent":"claude-code 2.1","model":"m","cwd":"/ws","fidelity":"shape","tokenizer":"o200k"}
{"t":"file","path":"a.md","known":"full","content":{"bytes":10,"lines":1,"sha256":"ab","fill":{"seed":7}}}
{"t":"call","i":0,"k":0,"lane":"main","tool":"Edit","op":"edit","path":"a.md","args":{},"effect":{"edit":[{"at":1,"old":2,"new":{"bytes":10,"lines":1,"sha256":"ab","fill":{"seed":7}}}]},"at":5}
{"t":"result","i":0,"ok":false,"err":"no_match","bytes":3,"tok":1}
{"t":"end","exit":"unknown"}
"#;

    fn error(text: &str) -> String {
        Trace::parse(Path::new("t.jsonl"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_trace_survives_reading_and_writing() {
        let trace = Trace::parse(Path::new("t.jsonl"), SAMPLE).unwrap();
        assert_eq!((trace.files.len(), trace.events.len()), (1, 2));
        let Event::Call(call) = &trace.events[0] else {
            panic!("no call: {:?}", trace.events[0]);
        };
        assert_eq!((call.op, call.at, &*call.lane), (Op::Edit, 5, MAIN_LANE));
        assert_eq!(call.path.as_ref().map(|path| path.as_str()), Some("a.md"));
        let Some(Effect::Edit(spans)) = &call.effect else {
            panic!("no edit: {:?}", call.effect);
        };
        assert_eq!((spans[0].at, spans[0].old, spans[0].new.bytes), (1, 2, 10));
        assert_eq!(trace.to_jsonl().unwrap(), SAMPLE);
    }

    #[test]
    fn errors_name_file_line_field_and_what_is_allowed() {
        let changed = |from: &str, to: &str| {
            assert!(SAMPLE.contains(from));
            error(&SAMPLE.replacen(from, to, 1))
        };
        insta::assert_snapshot!(changed("\"lane\"", "\"lain\""), @"t.jsonl:3: unknown field `lain`, expected one of `i`, `k`, `lane`, `tool`, `op`, `path`, `range`, `args`, `commands`, `tok`, `effect`, `steps`, `is_model`, `at`, `x`");
        insta::assert_snapshot!(changed("\"path\":\"a.md\"", "\"path\":\"../a.md\""), @r#"t.jsonl:2: field `path`: path "../a.md" leaves the workspace; a path in a workload is relative to its workspace and stays inside it"#);
        insta::assert_snapshot!(changed("\"v\":1", "\"v\":2"), @"t.jsonl:1: trace version 2; this ctxbench reads version 1");
        insta::assert_snapshot!(changed("\"t\":\"end\"", "\"t\":\"fin\""), @r#"t.jsonl:5: field `t`: unknown record "fin", expected one of `head`, `file`, `user`, `api`, `call`, `result`, `ext`, `compact`, `end`"#);
        insta::assert_snapshot!(changed("\"t\":\"head\"", "\"t\":\"user\""), @"t.jsonl:1: the first record, and only that, must be `head`");
        insta::assert_snapshot!(changed("\"ok\":false", "\"ok\":0"), @"t.jsonl:4: field `ok`: invalid type: integer `0`, expected a boolean");
        insta::assert_snapshot!(changed("\"seed\":7", "\"sead\":7"), @"t.jsonl:2: field `content.fill.sead`: unknown field `sead`, expected `seed`");
        let cut = SAMPLE.lines().take(3).collect::<Vec<_>>().join("\n");
        insta::assert_snapshot!(error(&cut), @"t.jsonl:3: the trace is cut off: no `end` record");
        insta::assert_snapshot!(error("{\"t\":1}\n"), @"t.jsonl:1: field `t` must be a string");
        let twice = r#"{"t": "head", "v": 1, "v": 1}"#;
        insta::assert_snapshot!(error(twice), @"t.jsonl:1: cannot be read as JSON: `v` appears twice at line 1 column 29");
        insta::assert_snapshot!(error("nonsense\n"), @"t.jsonl:1: cannot be read as JSON: expected ident at line 1 column 2");
        insta::assert_snapshot!(error(""), @"t.jsonl: is empty");
    }
}
