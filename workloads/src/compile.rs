//! Compiles traces to scripts: recorded calls become file operations; other calls are only counted.

use std::collections::BTreeSet;
use std::path::Path;

use crate::filler::fill;
use crate::model::ReferenceModel;
use crate::path::WorkspacePath;
use crate::script::{Bytes, CallKind, FileOp, Script};
use crate::trace::{
    CallError, CallResult, Effect, Event, External, Op, Span, Trace, TraceCall, TraceContent,
};
use inputs::{InputError, sha256};

/// The longest time of a turn, in milliseconds. A longer pause between two API calls is not the model's.
const LONGEST_TURN_MS: u64 = 600_000;

/// The maximum size of a content in a trace: 1 GiB.
const CONTENT_MAX: u64 = 1 << 30;

/// Turns a trace into a script. `file` is for error messages; blobs are in the same directory.
///
/// # Errors
/// [`InputError`] if the trace is inconsistent: a content with another SHA-256, a read of a missing file,
/// an edit outside its file, a result without a call.
pub fn compile(file: &Path, trace: &Trace) -> Result<Script, InputError> {
    let mut files = Vec::with_capacity(trace.files.len());
    for initial in &trace.files {
        let bytes = materialise(file, &initial.content)
            .map_err(|message| wrong(file, &format!("file {}", initial.path), &message))?;
        files.push((initial.path.clone(), bytes));
    }
    check_tree(&files).map_err(|(path, message)| wrong(file, &format!("file {path}"), &message))?;
    let script = Script::new(files);
    let mut compiler = Compiler {
        file,
        state: ReferenceModel::of(&script),
        script,
        pending: Vec::new(),
        last_api_at: None,
    };
    for event in &trace.events {
        compiler.event(event)?;
    }
    if let Some(call) = compiler.pending.first() {
        let place = format!("call {}", call.i);
        return Err(wrong(file, &place, "has no result record"));
    }
    Ok(compiler.script)
}

struct Compiler<'a> {
    file: &'a Path,
    script: Script,
    state: ReferenceModel,
    /// Calls without a result so far, because agents call several tools at once.
    pending: Vec<&'a TraceCall>,
    last_api_at: Option<u64>,
}

impl<'a> Compiler<'a> {
    fn event(&mut self, event: &'a Event) -> Result<(), InputError> {
        match event {
            Event::User(_) => self.last_api_at = None,
            Event::Compact(_) => {}
            Event::Api(api) => {
                let before = self.last_api_at.replace(api.at);
                let turn = before.map(|before| api.at.saturating_sub(before));
                let turn = turn.filter(|turn| *turn <= LONGEST_TURN_MS);
                self.script.think_ms.extend(turn);
            }
            Event::Call(call) => self.pending.push(call),
            Event::Result(result) => {
                let asked = self.pending.iter().position(|call| call.i == result.i);
                let Some(asked) = asked else {
                    let place = format!("result {}", result.i);
                    return Err(wrong(self.file, &place, "answers no open call"));
                };
                let call = self.pending.remove(asked);
                self.answered(call, result)
                    .map_err(|message| wrong(self.file, &format!("call {}", call.i), &message))?;
            }
            Event::Ext(change) => self
                .changed(change)
                .map_err(|message| wrong(self.file, &format!("ext {}", change.path), &message))?,
        }
        Ok(())
    }

    fn answered(&mut self, call: &TraceCall, result: &CallResult) -> Result<(), String> {
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
        if let (Some(path), Some(expected)) = (&call.path, &result.post_sha256) {
            let content = self.state.file(path).map(|bytes| sha256(bytes.as_slice()));
            if content.as_ref() != Some(expected) {
                return Err(format!(
                    "leaves other bytes in {path} than post_sha256 says"
                ));
            }
        }
        self.script.call(kind, ops);
        if call.op == Op::Read
            && let Some(asked) = self.script.calls.last_mut()
        {
            asked.lines = call.range;
            let is_known = result.ok && result.sha256.is_some();
            asked.recorded_tokens = is_known.then_some(result.tok);
        }
        Ok(())
    }

    /// The file operations of a call; `None` if it has none that can be replayed.
    fn operations(
        &self,
        call: &TraceCall,
        result: &CallResult,
    ) -> Result<Option<(CallKind, Vec<FileOp>)>, String> {
        let Some(path) = &call.path else {
            return Ok(None);
        };
        let failed_before_touching = matches!(
            result.err,
            Some(CallError::Rejected | CallError::Stale | CallError::Other | CallError::Exit)
        );
        if failed_before_touching {
            return Ok(None);
        }
        let operations = match call.op {
            Op::Read => (CallKind::Read, vec![FileOp::Read(path.clone())]),
            Op::Write => {
                let Some(Effect::Write(content)) = &call.effect else {
                    return Err("is a write without an effect of that kind".to_owned());
                };
                let content = materialise(self.file, content)?;
                (CallKind::Write, self.write(path, content))
            }
            Op::Edit => {
                let mut ops = vec![FileOp::Read(path.clone())];
                if result.ok {
                    let Some(Effect::Edit(spans)) = &call.effect else {
                        return Err("is an edit without an effect of that kind".to_owned());
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
        let mut ops = Vec::new();
        if let Some(dir) = path.parent().filter(|dir| !dir.is_root())
            && self.state.file(path).is_none()
        {
            ops.push(FileOp::MakeDir(dir));
        }
        ops.push(FileOp::write(path.clone(), content));
        ops
    }

    fn edited(&self, path: &WorkspacePath, spans: &[Span]) -> Result<Bytes, String> {
        let old = self
            .state
            .file(path)
            .ok_or_else(|| format!("edits {path}, which is not there"))?;
        let mut new = Vec::new();
        let mut done = 0;
        for span in spans {
            let (start, end) = (span.at, span.at.saturating_add(span.old));
            if start < done as u64 || end > old.len() as u64 {
                return Err(format!(
                    "replaces bytes {start}..{end} of {path}, which has {} bytes",
                    old.len()
                ));
            }
            let (start, end) = (start as usize, end as usize);
            new.extend_from_slice(&old[done..start]);
            new.extend_from_slice(&materialise(self.file, &span.new)?);
            done = end;
        }
        new.extend_from_slice(&old[done..]);
        Ok(new.into())
    }

    fn changed(&mut self, change: &External) -> Result<(), String> {
        let ops = match &change.content {
            Some(content) => {
                let content = materialise(self.file, content)?;
                self.write(&change.path, content)
            }
            None => vec![FileOp::Remove(change.path.clone())],
        };
        self.apply(&ops, true)?;
        self.script.meanwhile(ops);
        Ok(())
    }

    /// Applies the operations to the reference model. The last one must have the recorded outcome.
    fn apply(&mut self, ops: &[FileOp], ok: bool) -> Result<(), String> {
        use crate::model::Expected;
        for (position, op) in ops.iter().enumerate() {
            let is_last = position + 1 == ops.len();
            match (self.state.apply(op), ok) {
                (Expected::Errno(errno), true) => {
                    return Err(format!(
                        "succeeded in the recording, but to {} fails with error number {errno} at this point",
                        op.describe()
                    ));
                }
                // A failed edit of an existing file fails after the read.
                (Expected::Errno(_), false) => {}
                (_, false) if is_last && matches!(op, FileOp::Write { .. }) => {
                    let what = op.describe();
                    return Err(format!("failed in the recording, but to {what} works"));
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
            return Err((path.clone(), "is there twice".to_owned()));
        }
    }
    for path in &all {
        let mut others = all.iter().filter(|other| *other != path);
        if let Some(above) = others.find(|other| path.is_within(other)) {
            let message = format!("lies below {above}, which is a file");
            return Err(((*path).clone(), message));
        }
    }
    Ok(())
}

/// The bytes of a content record.
fn materialise(file: &Path, content: &TraceContent) -> Result<Bytes, String> {
    if content.bytes > CONTENT_MAX {
        return Err(format!(
            "field `bytes`: {} is more than the {CONTENT_MAX} that are allowed",
            content.bytes
        ));
    }
    let bytes = match (&content.fill, &content.blob) {
        (Some(filler), None) => fill(filler.seed, content.bytes, content.lines),
        (None, Some(blob)) => {
            let blob = WorkspacePath::new(blob.as_str()).map_err(|error| error.to_string())?;
            let place = blob.below(file.parent().unwrap_or(Path::new(".")));
            std::fs::read(&place).map_err(|error| format!("blob {}: {error}", place.display()))?
        }
        (None, None) if content.bytes == 0 => Vec::new(),
        _ => return Err("content needs exactly one of `fill` and `blob`".to_owned()),
    };
    let found = sha256(&bytes);
    if found != content.sha256 {
        return Err(format!(
            "content has SHA-256 {found}, but the trace says {}",
            content.sha256
        ));
    }
    Ok(bytes.into())
}

fn wrong(file: &Path, place: &str, message: &str) -> InputError {
    InputError::whole(file, format!("{place}: {message}"))
}
