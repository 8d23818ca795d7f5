//! Compiles traces to scripts: recorded calls become file operations; other calls are only counted.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::filler::fill;
use crate::model::ReferenceModel;
use crate::path::WorkspacePath;
use crate::script::{Bytes, CallKind, FileOp, Script};
use crate::trace::{
    CallError, CallResult, Effect, Event, External, FileStep, InitialFile, Op, Span, Trace, TraceCall, TraceContent,
};
use inputs::files::{self, BLOB};
use inputs::{InputError, sha256};

/// The longest time of a turn, in milliseconds. A longer pause between two API calls is not the model's.
const LONGEST_TURN_MS: u64 = 600_000;

/// The maximum size of a content in a trace: 1 GiB.
const CONTENT_MAX: u64 = BLOB.bytes();

/// The maximum size of all contents of a trace together, every version of an edited file counted: 4 GiB.
const ALL_CONTENT_MAX: u64 = 4 << 30;

/// Turns a trace into a script. `file` is for error messages; blobs are in the same directory.
///
/// # Errors
/// [`InputError`] if the trace is inconsistent: a content with another SHA-256, a read of a missing file,
/// an edit outside its file, a result without a call.
pub fn compile(file: &Path, trace: &Trace) -> Result<Script, InputError> {
    compared(file, trace).map(|(script, _)| script)
}

/// How many calls of a replay have the recorded bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComparedBytes {
    /// Reads of whole files whose SHA-256 the trace states.
    pub reads: u64,
    /// Those of them that return these bytes.
    pub equal_reads: u64,
    /// Writes and edits, which all leave the stated bytes: a trace in which one does not is refused.
    pub changes: u64,
}

/// Turns a trace into a script, and compares its replay with the recording.
///
/// # Errors
/// As [`compile`].
pub fn compared(file: &Path, trace: &Trace) -> Result<(Script, ComparedBytes), InputError> {
    let compiler = compiled(file, trace, Contents::of(file))?;
    Ok((compiler.script, compiler.compared))
}

/// The calls of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedCalls {
    /// The calls that a replay makes, by kind.
    pub timed: BTreeMap<CallKind, u64>,
    /// Calls that are not replayed, by operation.
    pub not_replayed: BTreeMap<String, u64>,
}

/// Counts the calls of a trace that this program has just made. Checks all that [`compile`] checks, but for the bytes of
/// the contents: of each, only the length is in memory.
///
/// # Errors
/// [`InputError`] if the trace is inconsistent.
pub fn counted(file: &Path, trace: &Trace) -> Result<CountedCalls, InputError> {
    let mut counter = CallCounter::new(file, &trace.files)?;
    trace.events.iter().try_for_each(|event| counter.compiler.event(event))?;
    counter.finish()
}

/// Counts the calls of a trace, and checks all that [`compile`] checks. Of each file, only the latest content is in memory.
///
/// # Errors
/// As [`compile`].
pub fn checked(file: &Path, trace: &Trace) -> Result<CountedCalls, InputError> {
    let mut compiler = checker(file, trace)?;
    trace.events.iter().try_for_each(|event| compiler.event(event))?;
    compiler.finish().map(Compiler::counts)
}

fn checker<'a>(file: &'a Path, trace: &Trace) -> Result<Compiler<'a>, InputError> {
    let compiler = Compiler::new(file, &trace.files, Contents::of(file))?;
    Ok(Compiler { keeps_calls: false, ..compiler })
}

/// Counts the calls of a trace while it is made, as [`counted`] does of a whole one.
pub struct CallCounter<'a> {
    compiler: Compiler<'a>,
}

impl<'a> CallCounter<'a> {
    /// Begins with the initial files of a trace. `file` is for error messages.
    ///
    /// # Errors
    /// [`InputError`] if there cannot be such files.
    pub fn new(file: &'a Path, files: &[InitialFile]) -> Result<Self, InputError> {
        let contents = Contents { only_lengths: true, ..Contents::of(file) };
        let compiler = Compiler::new(file, files, contents)?;
        Ok(Self { compiler: Compiler { keeps_calls: false, ..compiler } })
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// [`InputError`] if the trace is inconsistent.
    pub fn event(&mut self, event: Event) -> Result<(), InputError> {
        match event {
            Event::Call(call) => self.compiler.asks(Cow::Owned(*call)),
            other => self.compiler.other_event(&other)?,
        }
        Ok(())
    }

    /// The calls, after all events.
    ///
    /// # Errors
    /// [`InputError`] if a call has no result.
    pub fn finish(self) -> Result<CountedCalls, InputError> {
        self.compiler.finish().map(Compiler::counts)
    }
}

fn compiled<'a>(file: &'a Path, trace: &'a Trace, contents: Contents<'a>) -> Result<Compiler<'a>, InputError> {
    let mut compiler = Compiler::new(file, &trace.files, contents)?;
    compiler.numbers_by_tab = trace.head.x.get("line_numbers").is_some_and(|mark| mark == "tab");
    trace.events.iter().try_for_each(|event| compiler.event(event))?;
    compiler.finish()
}

struct Compiler<'a> {
    file: &'a Path,
    contents: Contents<'a>,
    script: Script,
    state: ReferenceModel,
    /// Calls without a result so far, because agents call several tools at once.
    /// By number, and the order of calls with one number.
    pending: BTreeMap<(u64, usize), Cow<'a, TraceCall>>,
    asked: usize,
    last_api_at: Option<u64>,
    numbers_by_tab: bool,
    compared: ComparedBytes,
    /// Whether the script gets the calls, with every version of an edited file. Otherwise they are counted.
    keeps_calls: bool,
    /// The calls by kind, if they are counted.
    timed: BTreeMap<CallKind, u64>,
}

impl<'a> Compiler<'a> {
    fn new(file: &'a Path, files: &[InitialFile], contents: Contents<'a>) -> Result<Self, InputError> {
        let mut made = Vec::with_capacity(files.len());
        for initial in files {
            let bytes = contents
                .materialise(&initial.content)
                .map_err(|message| wrong(file, &format!("file {}", initial.path), &message))?;
            made.push((initial.path.clone(), bytes));
        }
        check_tree(&made).map_err(|(path, message)| wrong(file, &format!("file {path}"), &message))?;
        let script = Script::new(made);
        Ok(Self {
            file,
            contents,
            state: ReferenceModel::of(&script),
            script,
            pending: BTreeMap::new(),
            asked: 0,
            keeps_calls: true,
            last_api_at: None,
            compared: ComparedBytes::default(),
            timed: BTreeMap::new(),
            numbers_by_tab: false,
        })
    }

    fn event(&mut self, event: &'a Event) -> Result<(), InputError> {
        match event {
            Event::Call(call) => self.asks(Cow::Borrowed(call)),
            other => self.other_event(other)?,
        }
        Ok(())
    }

    fn asks(&mut self, call: Cow<'a, TraceCall>) {
        self.pending.insert((call.i, self.asked), call);
        self.asked += 1;
    }

    /// An event that is no call.
    fn other_event(&mut self, event: &Event) -> Result<(), InputError> {
        match event {
            Event::User(user) if !user.by_client => self.last_api_at = None,
            Event::User(_) | Event::Compact(_) | Event::Call(_) => {}
            Event::Api(api) => {
                let before = self.last_api_at.replace(api.at);
                let turn = before.map(|before| api.at.saturating_sub(before));
                let turn = turn.filter(|turn| *turn <= LONGEST_TURN_MS);
                self.script.think_ms.extend(turn);
            }
            Event::Result(result) => {
                let asked = self.pending.range((result.i, 0)..=(result.i, usize::MAX)).next();
                let asked = asked.map(|(asked, _)| *asked);
                let Some(call) = asked.and_then(|asked| self.pending.remove(&asked)) else {
                    let place = format!("result {}", result.i);
                    return Err(wrong(self.file, &place, "answers no open call"));
                };
                self.answered(&call, result)
                    .map_err(|message| wrong(self.file, &format!("call {}", call.i), &message))?;
            }
            Event::Ext(change) => {
                self.changed(change).map_err(|message| wrong(self.file, &format!("ext {}", change.path), &message))?
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Self, InputError> {
        match self.pending.first_key_value() {
            Some((_, call)) => Err(wrong(self.file, &format!("call {}", call.i), "has no result record")),
            None => Ok(self),
        }
    }

    fn counts(self) -> CountedCalls {
        CountedCalls { timed: self.timed, not_replayed: self.script.not_replayed }
    }

    fn answered(&mut self, call: &TraceCall, result: &CallResult) -> Result<(), String> {
        if !call.steps.is_empty() {
            return self.stepped(call);
        }
        let Some((kind, ops)) = self.operations(call, result)? else {
            let not_replayed = &mut self.script.not_replayed;
            *not_replayed.entry(call.op.name().to_owned()).or_default() += 1;
            let has_run = result.err != Some(CallError::Rejected);
            for command in call.commands.iter().filter(|_| has_run) {
                *self.script.commands.entry(command.clone()).or_default() += 1;
            }
            return Ok(());
        };
        self.apply(&ops, result.ok)?;
        let has_bytes = !self.contents.only_lengths;
        if let (Some(path), Some(expected), true) = (&call.path, &result.sha256, has_bytes) {
            let content = self.state.file(path).map(|bytes| sha256(bytes.as_slice()));
            self.compared.reads += 1;
            self.compared.equal_reads += u64::from(content.as_ref() == Some(expected));
        }
        if let (Some(path), Some(expected), true) = (&call.path, &result.post_sha256, has_bytes) {
            self.compared.changes += 1;
            let content = self.state.file(path).map(|bytes| sha256(bytes.as_slice()));
            if content.as_ref() != Some(expected) {
                return Err(format!("leaves bytes in {path} that do not match post_sha256"));
            }
        }
        if !self.keeps_calls {
            *self.timed.entry(kind).or_default() += 1;
            return Ok(());
        }
        self.script.call(kind, ops);
        if call.op == Op::Read
            && let Some(asked) = self.script.calls.last_mut()
        {
            asked.lines = call.range;
            asked.numbers_by_tab = self.numbers_by_tab;
            let is_known = result.ok && result.sha256.is_some();
            asked.recorded_tokens = is_known.then_some(result.tok);
        }
        Ok(())
    }

    /// Adds the file operations of a shell command as one call.
    fn stepped(&mut self, call: &TraceCall) -> Result<(), String> {
        if !matches!(call.op, Op::Exec | Op::Vcs) || call.path.is_some() {
            return Err("has steps, but is not a shell command".to_owned());
        }
        let mut all = Vec::new();
        for step in &call.steps {
            let ops = self.step(step)?;
            self.apply(&ops, true)?;
            all.extend(ops);
        }
        let kind = if call.is_model { CallKind::ModelledProgram } else { CallKind::Shell };
        if !self.keeps_calls {
            *self.timed.entry(kind).or_default() += 1;
        } else {
            self.script.call(kind, all);
        }
        Ok(())
    }

    fn step(&self, step: &FileStep) -> Result<Vec<FileOp>, String> {
        let existing = |path: &WorkspacePath| {
            let content = self.state.file(path).cloned();
            content.ok_or_else(|| format!("uses {path}, which does not exist"))
        };
        Ok(match step {
            FileStep::Read(path) => vec![FileOp::Read(path.clone())],
            FileStep::Stat(path) => vec![FileOp::Stat(path.clone())],
            FileStep::List { path, attributes } => vec![FileOp::list(path.clone(), *attributes)],
            FileStep::Walk(path) => vec![FileOp::Walk(path.clone())],
            FileStep::Search(path) => vec![FileOp::Search(path.clone())],
            FileStep::Write { path, content } => self.write(path, self.contents.materialise(content)?),
            FileStep::Append { path, content } => {
                let content = self.contents.materialise(content)?;
                let mut ops = self.parent(path);
                let path = path.clone();
                ops.push(FileOp::Append { path, content });
                ops
            }
            FileStep::Edit { path, spans } => {
                let mut ops = vec![FileOp::Read(path.clone())];
                ops.extend(self.write(path, self.edited(path, spans)?));
                ops
            }
            FileStep::Rewrite(path) => {
                let content = existing(path)?;
                self.contents.take(self.contents.length(&content))?;
                vec![FileOp::Read(path.clone()), FileOp::write(path.clone(), content)]
            }
            FileStep::Copy { from, to } => {
                let content = existing(from)?;
                self.contents.take(self.contents.length(&content))?;
                let mut ops = vec![FileOp::Read(from.clone())];
                ops.extend(self.write(to, content));
                ops
            }
            FileStep::Move { from, to } => {
                let mut ops = self.parent(to);
                let (from, to) = (from.clone(), to.clone());
                ops.push(FileOp::Rename { from, to });
                ops
            }
            FileStep::Remove(path) => vec![FileOp::Remove(path.clone())],
            FileStep::MakeDir(path) => vec![FileOp::MakeDir(path.clone())],
            FileStep::RemoveDir(path) => vec![FileOp::RemoveDir(path.clone())],
            FileStep::Create(path) => {
                let mut ops = self.parent(path);
                ops.push(FileOp::Create(path.clone()));
                ops
            }
        })
    }

    /// The file operations of a call; `None` if it has none that can be replayed.
    fn operations(&self, call: &TraceCall, result: &CallResult) -> Result<Option<(CallKind, Vec<FileOp>)>, String> {
        let Some(path) = &call.path else {
            return Ok(None);
        };
        let failed_before_touching =
            matches!(result.err, Some(CallError::Rejected | CallError::Stale | CallError::Other | CallError::Exit));
        if failed_before_touching {
            return Ok(None);
        }
        let operations = match call.op {
            Op::Read => (CallKind::Read, vec![FileOp::Read(path.clone())]),
            Op::Write => {
                let Some(Effect::Write(content)) = &call.effect else {
                    return Err("is a write without a matching effect".to_owned());
                };
                let content = self.contents.materialise(content)?;
                (CallKind::Write, self.write(path, content))
            }
            Op::Edit => {
                let mut ops = vec![FileOp::Read(path.clone())];
                if result.ok {
                    let Some(Effect::Edit(spans)) = &call.effect else {
                        return Err("is an edit without a matching effect".to_owned());
                    };
                    let edited = self.edited(path, spans)?;
                    ops.extend(self.write(path, edited));
                }
                (CallKind::Edit, ops)
            }
            Op::List => {
                let recursive = call.args.get("recursive").and_then(|value| value.as_bool());
                let op = match recursive {
                    Some(true) => FileOp::Walk(path.clone()),
                    _ => FileOp::list(path.clone(), false),
                };
                (CallKind::List, vec![op])
            }
            Op::Search => {
                let op = match self.state.file(path) {
                    Some(_) => FileOp::Read(path.clone()),
                    None => FileOp::Search(path.clone()),
                };
                (CallKind::Search, vec![op])
            }
            Op::Exec | Op::Vcs | Op::Plan | Op::Net | Op::Agent | Op::Other => return Ok(None),
        };
        Ok(Some(operations))
    }

    fn write(&self, path: &WorkspacePath, content: Bytes) -> Vec<FileOp> {
        let mut ops = self.parent(path);
        ops.push(FileOp::write(path.clone(), content));
        ops
    }

    /// Creates the directory of a file that is not there.
    fn parent(&self, path: &WorkspacePath) -> Vec<FileOp> {
        let dir = path.parent().filter(|dir| !dir.is_root());
        let dir = dir.filter(|_| self.state.file(path).is_none());
        dir.map(FileOp::MakeDir).into_iter().collect()
    }

    fn edited(&self, path: &WorkspacePath, spans: &[Span]) -> Result<Bytes, String> {
        let old = self.state.file(path).ok_or_else(|| format!("edits {path}, which does not exist"))?;
        let length = self.contents.length(old);
        self.contents.take(length)?;
        let mut new = Vec::new();
        let mut new_length = length;
        let mut done = 0;
        for span in spans {
            let (start, end) = (span.at, span.at.saturating_add(span.old));
            if start < done as u64 || end > length {
                return Err(format!("replaces bytes {start}..{end} of {path}, which has {length} bytes"));
            }
            if self.contents.only_lengths {
                self.contents.take(span.new.bytes)?;
                new_length = new_length - span.old + span.new.bytes;
                done = end as usize;
                continue;
            }
            let (start, end) = (start as usize, end as usize);
            new.extend_from_slice(&old[done..start]);
            new.extend_from_slice(&self.contents.materialise(&span.new)?);
            done = end;
        }
        if self.contents.only_lengths {
            return Ok(length_alone(new_length));
        }
        new.extend_from_slice(&old[done..]);
        Ok(new.into())
    }

    fn changed(&mut self, change: &External) -> Result<(), String> {
        let ops = match &change.content {
            Some(content) => {
                let content = self.contents.materialise(content)?;
                self.write(&change.path, content)
            }
            None => vec![FileOp::Remove(change.path.clone())],
        };
        self.apply(&ops, true)?;
        if self.keeps_calls {
            self.script.meanwhile(ops);
        }
        Ok(())
    }

    /// Applies the operations to the reference model. The last one must have the recorded outcome.
    fn apply(&mut self, ops: &[FileOp], ok: bool) -> Result<(), String> {
        for (position, op) in ops.iter().enumerate() {
            let is_last = position + 1 == ops.len();
            match (self.state.follow(op), ok) {
                (Err(errno), true) => {
                    return Err(format!(
                        "succeeded in the recording, but {} fails with error number {errno} in the replay",
                        op.describe()
                    ));
                }
                // A failed edit of an existing file fails after the read.
                (Err(_), false) => {}
                (Ok(()), false) if is_last && matches!(op, FileOp::Write { .. }) => {
                    let what = op.describe();
                    return Err(format!("failed in the recording, but {what} works in the replay"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Checks that these files fit into one tree.
fn check_tree(files: &[(WorkspacePath, Bytes)]) -> Result<(), (WorkspacePath, String)> {
    let mut all = BTreeSet::new();
    for (path, _) in files {
        if *path == WorkspacePath::root() {
            return Err((path.clone(), "is the workspace itself".to_owned()));
        }
        if !all.insert(path) {
            return Err((path.clone(), "appears twice".to_owned()));
        }
    }
    // In the order of their components, what lies below a file follows it. A path has no NUL.
    let key = |path: &WorkspacePath| path.as_str().replace('/', "\0");
    let mut ordered: Vec<(String, &WorkspacePath)> = all.into_iter().map(|path| (key(path), path)).collect();
    ordered.sort();
    for pair in ordered.windows(2) {
        let (above, path) = (pair[0].1, pair[1].1);
        if path.is_within(above) {
            let message = format!("lies below {above}, which is a file");
            return Err((path.clone(), message));
        }
    }
    Ok(())
}

/// The contents that a trace states, which are made up to a limit.
struct Contents<'a> {
    file: &'a Path,
    /// Bytes that may still be made.
    left: Cell<u64>,
    /// Whether each content is represented by its length, in eight bytes. What is appended adds its own.
    only_lengths: bool,
}

/// The representation of a content by its length.
fn length_alone(length: u64) -> Bytes {
    length.to_le_bytes().to_vec().into()
}

impl<'a> Contents<'a> {
    fn of(file: &'a Path) -> Self {
        Self { file, left: Cell::new(ALL_CONTENT_MAX), only_lengths: false }
    }

    /// The length of a content.
    fn length(&self, content: &[u8]) -> u64 {
        if !self.only_lengths {
            return content.len() as u64;
        }
        let parts = content.chunks(8).map(|part| {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            u64::from_le_bytes(bytes)
        });
        parts.sum()
    }

    /// Counts bytes against the limit.
    fn take(&self, bytes: u64) -> Result<(), String> {
        let left = self.left.get().checked_sub(bytes);
        self.left
            .set(left.ok_or_else(|| format!("the contents of the trace exceed the limit of {ALL_CONTENT_MAX} bytes"))?);
        Ok(())
    }

    fn materialise(&self, content: &TraceContent) -> Result<Bytes, String> {
        self.take(content.bytes)?;
        if self.only_lengths {
            return Ok(length_alone(content.bytes));
        }
        materialise(self.file, content)
    }
}

/// The bytes of a content record.
fn materialise(file: &Path, content: &TraceContent) -> Result<Bytes, String> {
    if content.bytes > CONTENT_MAX {
        return Err(format!("field `bytes`: {} exceeds the limit of {CONTENT_MAX}", content.bytes));
    }
    let bytes = match (&content.fill, &content.blob) {
        (Some(filler), None) => fill(filler.seed, content.bytes, content.lines),
        (None, Some(blob)) => {
            let blob = WorkspacePath::new(blob.as_str()).map_err(|error| error.to_string())?;
            let place = blob.below(file.parent().unwrap_or(Path::new(".")));
            let failed = |error: std::io::Error| format!("blob {}: {error}", place.display());
            let dir = file.parent().unwrap_or(Path::new("."));
            let inside = Path::new(blob.as_str());
            let open = files::open_inside(dir, inside).map_err(failed)?;
            let size = open.metadata().map_err(failed)?.len();
            if size != content.bytes {
                return Err(format!(
                    "blob {}: has {size} bytes, but the trace says {}",
                    place.display(),
                    content.bytes
                ));
            }
            files::read_file(open, BLOB).map_err(failed)?
        }
        (None, None) if content.bytes == 0 => Vec::new(),
        _ => return Err("content needs exactly one of `fill` and `blob`".to_owned()),
    };
    let found = sha256(&bytes);
    if found != content.sha256 {
        return Err(format!("content has SHA-256 {found}, but the trace says {}", content.sha256));
    }
    Ok(bytes.into())
}

fn wrong(file: &Path, place: &str, message: &str) -> InputError {
    InputError::whole(file, format!("{place}: {message}"))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;
    use crate::trace::Fill;

    fn files(paths: &[String]) -> Vec<(WorkspacePath, Bytes)> {
        let paths = paths.iter().map(|path| WorkspacePath::new(path.as_str()).unwrap());
        paths.map(|path| (path, Bytes::default())).collect()
    }

    proptest! {
        #[test]
        fn a_file_below_a_file_is_found_wherever_it_is(paths in prop::collection::vec("[a-b!-.]{1,2}(/[ab.!-]{1,2}){0,3}", 1..12)) {
            let paths: Vec<String> = paths.into_iter().filter(|path| WorkspacePath::new(path.as_str()).is_ok()).collect();
            let files = files(&paths);
            let is_one_tree = files.iter().enumerate().all(|(at, (path, _))| {
                let mut others = files.iter().enumerate().filter(|(other, _)| *other != at);
                others.all(|(_, (other, _))| !path.is_within(other))
            });
            let is_root = paths.iter().any(|path| path == ".");
            prop_assert_eq!(check_tree(&files).is_ok(), is_one_tree && !is_root);
        }
    }

    /// A trace of one file and so many calls `op`, whose results follow each call, or all calls.
    fn trace_of(op: &str, count: usize, at_once: bool) -> Trace {
        let added = sha256(fill(7, 100, 1));
        let (mut lines, mut results) = (Vec::new(), Vec::new());
        lines.push(
            r#"{"t":"head","v":1,"id":"x","source":{"format":"claude-code","repo":"r","commit":"c","path":"p","sha256":"0000000000000000000000000000000000000000000000000000000000000000","licence":"MIT"},"agent":"a","model":"m","cwd":"/ws","fidelity":"shape","tokenizer":"o200k"}"#
                .to_owned(),
        );
        let empty = sha256("");
        lines.push(format!(
            r#"{{"t":"file","path":"a","known":"full","content":{{"bytes":0,"lines":0,"sha256":"{empty}"}}}}"#
        ));
        for i in 0..count {
            let effect = match op {
                "edit" => format!(
                    r#","path":"a","effect":{{"edit":[{{"at":0,"old":0,"new":{{"bytes":100,"lines":1,"sha256":"{added}","fill":{{"seed":7}}}}}}]}}"#
                ),
                _ => String::new(),
            };
            lines.push(format!(
                r#"{{"t":"call","i":{i},"k":0,"lane":"main","tool":"T","op":"{op}","args":{{}},"tok":1,"at":{i}{effect}}}"#
            ));
            let into = if at_once { &mut results } else { &mut lines };
            into.push(format!(r#"{{"t":"result","i":{i},"ok":true,"bytes":1,"tok":1}}"#));
        }
        lines.append(&mut results);
        lines.push(r#"{"t":"end","exit":"unknown"}"#.to_owned());
        Trace::parse(Path::new("x.trace.jsonl"), &(lines.join("\n") + "\n")).unwrap()
    }

    #[test]
    fn a_check_counts_as_a_compilation_does_and_keeps_only_the_latest_content_of_a_file() {
        let (file, trace) = (Path::new("x.trace.jsonl"), trace_of("edit", 200, false));
        let script = compile(file, &trace).unwrap();
        let counted = CountedCalls { timed: script.timed_calls(), not_replayed: script.not_replayed };
        assert_eq!(checked(file, &trace).unwrap(), counted);
        let mut compiler = checker(file, &trace).unwrap();
        trace.events.iter().try_for_each(|event| compiler.event(event)).unwrap();
        assert!(compiler.script.calls.is_empty());
        assert_eq!(compiler.state.file(&WorkspacePath::new("a").unwrap()).unwrap().len(), 200 * 100);
    }

    #[test]
    fn many_calls_without_a_result_are_checked_in_time() {
        let (file, trace) = (Path::new("x.trace.jsonl"), trace_of("net", 100_000, true));
        let started = Instant::now();
        let calls = checked(file, &trace).unwrap();
        assert_eq!(calls.not_replayed["net"], 100_000);
        // The quadratic search took minutes.
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    }

    #[test]
    fn many_files_are_checked_in_time() {
        let paths: Vec<String> = (0..100_000).map(|number| format!("dir{}/f{number}", number % 100)).collect();
        let started = Instant::now();
        check_tree(&files(&paths)).unwrap();
        // The quadratic check took minutes.
        assert!(started.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_blob_is_a_regular_file_of_the_stated_size_beside_its_trace() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("in");
        std::fs::create_dir_all(at.join("blobs")).unwrap();
        std::fs::write(dir.path().join("secret"), "0123456789").unwrap();
        std::fs::write(at.join("blobs/good"), "0123456789").unwrap();
        std::fs::write(at.join("blobs/long"), "0123456789+").unwrap();
        std::os::unix::fs::symlink("../../secret", at.join("blobs/link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at.join("blobs/zero")).unwrap();
        std::os::unix::fs::symlink("..", at.join("up")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(at.join("blobs/fifo")).status();
        assert!(made.unwrap().success());
        let read = |blob: &str| {
            let content = TraceContent {
                bytes: 10,
                lines: 1,
                sha256: sha256("0123456789"),
                fill: None::<Fill>,
                blob: Some(blob.to_owned()),
            };
            Contents::of(&at.join("a.trace.jsonl")).materialise(&content)
        };
        assert_eq!(&*read("blobs/good").unwrap(), b"0123456789");
        for bad in
            ["blobs/long", "blobs/link", "blobs/zero", "blobs/fifo", "blobs", "up/secret", "../secret", "/dev/zero"]
        {
            read(bad).unwrap_err();
        }
    }
}
