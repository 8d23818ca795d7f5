//! Turns a recorded session into a trace by following the content of each file over time.

use std::collections::{BTreeMap, HashMap, HashSet};

use inputs::sha256;

use super::disguise::Disguise;
use super::shell::programs;
use super::{ImportedSession, Recorded, RecordedCall, RecordedResult, Replacement, SeenContent};
use crate::path::WorkspacePath;
use crate::trace::{
    Api, CallError, CallResult, Compact, Effect, End, Event, External, Extra, Fidelity,
    InitialFile, Known, Op, Span, SystemPrompt, Trace, TraceCall, TraceContent, TraceHead,
    TraceSource, UsageSource, User, VERSION, Why,
};

/// The assumed size in bytes of a file known only by name, if the session shows no whole file.
const UNSEEN_BYTES: u64 = 4096;

/// The assumed bytes per line of a file with unknown content.
const UNSEEN_LINE_BYTES: u64 = 35;

/// The most bytes that a file is taken to have of which a session shows a part: a session may state any number of lines.
const PARTLY_SEEN_MAX: u64 = 64 << 20;

/// Contents by SHA-256.
pub type Blobs = BTreeMap<String, Vec<u8>>;

/// The origin of a session.
#[derive(Clone, Debug)]
pub struct TraceOrigin {
    /// The trace's name.
    pub id: String,
    /// The source, with the format's name.
    pub source: TraceSource,
}

/// Turns a session into a trace and the blobs it refers to (none for `shape`).
pub fn trace(
    session: &ImportedSession,
    provenance: &TraceOrigin,
    fidelity: Fidelity,
) -> (Trace, Blobs) {
    let mut writer = Writer {
        disguise: Disguise::new(fidelity, &provenance.id),
        calls: HashMap::new(),
        state: BTreeMap::new(),
        events: Vec::new(),
        turns: 0,
        apis: 0,
        last_answered: None,
        last_exec: None,
    };
    let files = writer.first_state(session);
    for recorded in &session.events {
        writer.event(recorded);
    }
    let mut x = Extra::new();
    if session.unreadable_lines > 0 {
        x.insert(
            "unreadable_lines".to_owned(),
            session.unreadable_lines.into(),
        );
    }
    writer.close_open_calls();
    let trace = Trace {
        head: TraceHead {
            v: VERSION,
            id: provenance.id.clone(),
            source: provenance.source.clone(),
            agent: session.agent.clone(),
            model: session.model.clone(),
            cwd: "/ws".to_owned(),
            fidelity,
            tokenizer: tokens::NAME.to_owned(),
            prompt: session.system.as_ref().map(|text| SystemPrompt {
                tok: tokens::count(text),
                is_whole: session.is_whole_prompt,
            }),
            x,
        },
        files,
        events: writer.events,
        end: End {
            exit: "unknown".to_owned(),
        },
    };
    (trace, writer.disguise.blobs)
}

/// A file's initial state, by the first statement of the session about it.
#[derive(Clone, Debug)]
enum First {
    /// The file did not exist.
    Absent,
    /// The file had this content.
    Full(String),
    /// The file existed, with this number of bytes and lines if they can be estimated.
    Partial(Option<(u64, u64)>),
}

/// The current state of a file.
#[derive(Clone, Debug)]
struct FileState {
    /// Its content in the session; `None` while unknown.
    original: Option<String>,
    /// Its content in the trace.
    shown: Vec<u8>,
}

struct OpenCall<'a> {
    call: &'a RecordedCall,
    index: u64,
    /// The index of its event, which the result completes.
    place: usize,
}

struct Writer<'a> {
    disguise: Disguise,
    calls: HashMap<&'a str, OpenCall<'a>>,
    /// The current files, by original path.
    state: BTreeMap<String, FileState>,
    events: Vec<Event>,
    turns: u64,
    apis: u64,
    last_answered: Option<u64>,
    last_exec: Option<Why>,
}

impl<'a> Writer<'a> {
    /// Infers the initial files, and sets the state to them.
    fn first_state(&mut self, session: &ImportedSession) -> Vec<InitialFile> {
        let mut first: BTreeMap<String, First> = BTreeMap::new();
        let mut touched = HashSet::new();
        let mut calls = HashMap::new();
        for recorded in &session.events {
            match recorded {
                Recorded::Call(call) => {
                    calls.insert(call.id.as_str(), call);
                }
                Recorded::Result(result) => {
                    let Some(call) = calls.get(result.id.as_str()) else {
                        continue;
                    };
                    for (path, state) in said(call, result) {
                        let known = first.entry(path.clone()).or_insert_with(|| state.clone());
                        let may_learn = !touched.contains(&path);
                        let is_better = matches!(
                            (&*known, &state),
                            (First::Partial(_), First::Full(_))
                                | (First::Partial(None), First::Partial(Some(_)))
                        );
                        if may_learn && is_better {
                            *known = state;
                        }
                    }
                    if let SeenContent::Edited { path, .. } | SeenContent::Written { path, .. } =
                        &result.seen
                    {
                        touched.insert(path.clone());
                    }
                }
                _ => {}
            }
        }
        let unseen = median_size(&first);
        let mut files = Vec::new();
        for (path, state) in first {
            let ((content, shown), original) = match state {
                First::Absent => continue,
                First::Full(text) => (self.disguise.content(&text), Some(text)),
                First::Partial(size) => {
                    let (bytes, lines) = size.unwrap_or((unseen, unseen / UNSEEN_LINE_BYTES));
                    (self.disguise.filler(bytes, lines), None)
                }
            };
            let known = match original {
                Some(_) => Known::Full,
                None => Known::Partial,
            };
            let Ok(shown_path) = WorkspacePath::new(self.disguise.path(&path)) else {
                continue;
            };
            files.push(InitialFile {
                path: shown_path,
                known,
                content,
            });
            self.state.insert(path, FileState { original, shown });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    fn event(&mut self, recorded: &'a Recorded) {
        match recorded {
            Recorded::User { text } => {
                let turn = self.turns;
                self.turns += 1;
                let tok = tokens::count(text);
                self.events.push(Event::User(User { turn, tok }));
            }
            Recorded::Api {
                at,
                usage,
                lane,
                text,
                thinking,
            } => {
                let k = self.apis;
                self.apis += 1;
                let lane = self.disguise.lane(lane);
                self.events.push(Event::Api(Api {
                    k,
                    at: *at,
                    usage: *usage,
                    usage_src: UsageSource::Reported,
                    lane,
                    text_tok: Some(tokens::count(text)),
                    thinking_tok: Some(tokens::count(thinking)),
                }));
            }
            Recorded::Compact { pre_tok } => self.events.push(Event::Compact(Compact {
                k: self.apis.saturating_sub(1),
                pre_tok: *pre_tok,
            })),
            Recorded::Call(call) => {
                let index = self.calls.len() as u64;
                let place = self.events.len();
                let record = self.call_record(call, index);
                self.events.push(Event::Call(record));
                let open = OpenCall { call, index, place };
                self.calls.insert(&call.id, open);
            }
            Recorded::Result(result) => self.result(result),
        }
    }

    fn call_record(&mut self, call: &RecordedCall, index: u64) -> TraceCall {
        let mut args = self.disguise.args(&call.args);
        if call.recursive {
            args.insert("recursive".to_owned(), true.into());
        }
        let mut x = Extra::new();
        let works_on_files = matches!(
            call.op,
            Op::Read | Op::Write | Op::Edit | Op::List | Op::Search
        );
        if works_on_files && call.path.is_none() {
            x.insert("outside".to_owned(), true.into());
        }
        TraceCall {
            i: index,
            k: call.api,
            lane: self.disguise.lane(&call.lane),
            tool: self.disguise.tool(&call.tool),
            op: call.op,
            path: None,
            range: call.range,
            args,
            commands: self.commands(call),
            tok: Some(call_tokens(call)),
            effect: None,
            at: call.at,
            x,
        }
    }

    fn commands(&self, call: &RecordedCall) -> Vec<String> {
        let line = call.args.get("command").and_then(|line| line.as_str());
        match (call.op, line) {
            (Op::Exec | Op::Vcs, Some(line)) => {
                programs::commands(line, self.disguise.keeps_names())
            }
            _ => Vec::new(),
        }
    }

    fn result(&mut self, result: &RecordedResult) {
        let Some(open) = self.calls.get(result.id.as_str()) else {
            return;
        };
        let (call, index, place) = (open.call, open.index, open.place);
        let mut record = CallResult {
            i: index,
            ok: result.err.is_none(),
            err: result.err,
            bytes: result.shown.len() as u64,
            tok: tokens::count(&result.shown),
            sha256: None,
            post_sha256: None,
            x: Extra::new(),
        };
        let mut effect = None;
        let mut path = call.path.clone();
        match &result.seen {
            SeenContent::Whole { path, content } => {
                self.learn(path, content);
                record.sha256 = self.state.get(path).map(|state| sha256(&state.shown));
            }
            SeenContent::Part { .. } | SeenContent::Nothing | SeenContent::Listed(_) => {}
            SeenContent::Written {
                path,
                before,
                content,
            } => {
                match before {
                    Some(before) => self.learn(path, before),
                    None => self.learn_absent(path),
                }
                let (written, shown) = self.disguise.content(content);
                record.post_sha256 = Some(written.sha256.clone());
                effect = Some(Effect::Write(written));
                let original = Some(content.clone());
                let state = FileState { original, shown };
                self.state.insert(path.clone(), state);
            }
            SeenContent::Edited {
                path: edited,
                before,
                replacements,
            } => {
                if let Some(before) = before {
                    self.learn(edited, before);
                }
                match self.edit(edited, replacements) {
                    Some((spans, after)) => {
                        record.post_sha256 = Some(after);
                        effect = Some(Effect::Edit(spans));
                    }
                    // The replaced text is unknown, so the edit cannot be replayed.
                    None => path = None,
                }
            }
        }
        match call.op {
            Op::Exec => self.last_exec = Some(Why::Exec),
            Op::Vcs => self.last_exec = Some(Why::Vcs),
            _ => {}
        }
        let is_changed_as_asked = match call.op {
            Op::Edit => matches!(effect, Some(Effect::Edit(_))),
            Op::Write => matches!(effect, Some(Effect::Write(_))),
            _ => true,
        };
        if result.err.is_none() && !is_changed_as_asked {
            // The effect of the call is unknown, or differs from its kind.
            path = None;
            effect = None;
        }
        if let Some(original) = &path
            && !self.can_be_replayed(original, call.op, result.err)
        {
            path = None;
        }
        let shown = path.and_then(|path| WorkspacePath::new(self.disguise.path(&path)).ok());
        if let Some(Event::Call(call)) = self.events.get_mut(place) {
            call.path = shown;
            call.effect = effect;
        }
        self.last_answered = Some(index);
        self.events.push(Event::Result(record));
    }

    /// Whether the call has the recorded outcome on the known files.
    fn can_be_replayed(&self, path: &str, op: Op, err: Option<CallError>) -> bool {
        let is_file = self.state.contains_key(path);
        let is_dir = path == "." || {
            let below = format!("{path}/");
            let next = self.state.range(below.clone()..).next();
            next.is_some_and(|(file, _)| file.starts_with(&below))
        };
        match (op, err) {
            (Op::Read | Op::Edit, None) => is_file,
            (Op::Write, None) => !is_dir,
            (Op::Search, None) => is_file || is_dir,
            (Op::List, None) => is_dir,
            (Op::Read | Op::Search | Op::List, Some(CallError::NotFound)) => !is_file && !is_dir,
            (Op::Edit, Some(CallError::NoMatch | CallError::MultiMatch)) => is_file,
            _ => false,
        }
    }

    /// Records that the file has `content` now. If the known state differs, this adds an external change.
    fn learn(&mut self, path: &str, content: &str) {
        let known = self
            .state
            .get(path)
            .and_then(|known| known.original.as_deref());
        if known == Some(content) {
            return;
        }
        let (record, shown) = self.disguise.content(content);
        self.changed(path, Some(record));
        let original = Some(content.to_owned());
        self.state
            .insert(path.to_owned(), FileState { original, shown });
    }

    /// Records that the file does not exist now.
    fn learn_absent(&mut self, path: &str) {
        if self.state.remove(path).is_some() {
            self.changed(path, None);
        }
    }

    fn changed(&mut self, path: &str, content: Option<TraceContent>) {
        let Ok(path) = WorkspacePath::new(self.disguise.path(path)) else {
            return;
        };
        self.events.push(Event::Ext(External {
            after: self.last_answered,
            path,
            content,
            why: self.last_exec.unwrap_or(Why::Unknown),
        }));
    }

    /// Applies an edit. Returns its spans, and the SHA-256 of the trace's file after it.
    fn edit(&mut self, path: &str, replacements: &[Replacement]) -> Option<(Vec<Span>, String)> {
        let state = self.state.get(path)?;
        let before = state.original.clone()?;
        let mut shown = state.shown.clone();
        let places = places(&before, replacements)?;
        let mut spans = Vec::with_capacity(places.len());
        // From the end, so that earlier offsets stay valid.
        let mut after = before;
        for (at, old, new) in places.into_iter().rev() {
            let (content, new_shown) = self.disguise.content(&new);
            shown.splice(at..at + old, new_shown);
            after.replace_range(at..at + old, &new);
            spans.push(Span {
                at: at as u64,
                old: old as u64,
                new: content,
            });
        }
        spans.reverse();
        let digest = sha256(&shown);
        let original = Some(after);
        self.state
            .insert(path.to_owned(), FileState { original, shown });
        Some((spans, digest))
    }

    /// Adds a result to each call without one, because a trace has no open calls but a truncated session may.
    fn close_open_calls(&mut self) {
        let answered = self.events.iter().filter_map(|event| match event {
            Event::Result(result) => Some(result.i),
            _ => None,
        });
        let answered: HashSet<u64> = answered.collect();
        let mut open: Vec<u64> = self.calls.values().map(|open| open.index).collect();
        open.retain(|index| !answered.contains(index));
        open.sort_unstable();
        for i in open {
            self.events.push(Event::Result(CallResult {
                i,
                ok: false,
                err: Some(CallError::Other),
                bytes: 0,
                tok: 0,
                sha256: None,
                post_sha256: None,
                x: Extra::from_iter([("unanswered".to_owned(), true.into())]),
            }));
        }
    }
}

/// The tokens of a call in the model's output.
fn call_tokens(call: &RecordedCall) -> u64 {
    if call.is_in_text {
        return 0;
    }
    let written = serde_json::json!({ "name": call.tool, "input": call.args });
    tokens::count(&written.to_string())
}

/// The initial states of files that a result proves.
fn said(call: &RecordedCall, result: &RecordedResult) -> Vec<(String, First)> {
    match &result.seen {
        SeenContent::Whole { path, content } => vec![(path.clone(), First::Full(content.clone()))],
        SeenContent::Part {
            path,
            content,
            total_lines,
        } => {
            let lines = content.matches('\n').count() as u64 + 1;
            let bytes = content.len() as u64 + 1;
            let all = u128::from(bytes) * u128::from(*total_lines) / u128::from(lines);
            let all = all.min(u128::from(PARTLY_SEEN_MAX)) as u64;
            let size = (all, total_lines.saturating_sub(1).min(all));
            vec![(path.clone(), First::Partial(Some(size)))]
        }
        SeenContent::Edited { path, before, .. } => {
            let state = before.clone().map_or(First::Partial(None), First::Full);
            vec![(path.clone(), state)]
        }
        SeenContent::Written { path, before, .. } => {
            let state = before.clone().map_or(First::Absent, First::Full);
            vec![(path.clone(), state)]
        }
        SeenContent::Listed(paths) => paths
            .iter()
            .map(|path| (path.clone(), First::Partial(None)))
            .collect(),
        SeenContent::Nothing => match (&call.path, call.op, result.err) {
            (Some(path), Op::Read, Some(CallError::NotFound)) => {
                vec![(path.clone(), First::Absent)]
            }
            (Some(path), Op::Read, None) => vec![(path.clone(), First::Partial(None))],
            _ => Vec::new(),
        },
    }
}

/// The median size of the files with known content, in bytes.
fn median_size(first: &BTreeMap<String, First>) -> u64 {
    let mut sizes: Vec<u64> = first
        .values()
        .filter_map(|state| match state {
            First::Full(text) => Some(text.len() as u64),
            _ => None,
        })
        .collect();
    sizes.sort_unstable();
    sizes.get(sizes.len() / 2).copied().unwrap_or(UNSEEN_BYTES)
}

/// The ranges that an edit replaces: start, old length, new text. They are ordered and do not overlap.
fn places(before: &str, replacements: &[Replacement]) -> Option<Vec<(usize, usize, String)>> {
    if let [one] = replacements {
        if one.old.is_empty() || !before.contains(&one.old) {
            return None;
        }
        let most = if one.all { usize::MAX } else { 1 };
        let found = before.match_indices(&one.old).take(most);
        return Some(
            found
                .map(|(at, old)| (at, old.len(), one.new.clone()))
                .collect(),
        );
    }
    // Several edits in one call are applied in turn, and their result becomes one replaced range.
    let mut after = before.to_owned();
    for each in replacements {
        if each.old.is_empty() || !after.contains(&each.old) {
            return None;
        }
        after = if each.all {
            after.replace(&each.old, &each.new)
        } else {
            after.replacen(&each.old, &each.new, 1)
        };
    }
    let start = common(before.chars(), after.chars());
    let end = common(before[start..].chars().rev(), after[start..].chars().rev());
    let new = after[start..after.len() - end].to_owned();
    Some(vec![(start, before.len() - start - end, new)])
}

/// The bytes of the characters with which both begin.
fn common(one: impl Iterator<Item = char>, other: impl Iterator<Item = char>) -> usize {
    let same = one.zip(other).take_while(|(a, b)| a == b);
    same.map(|(a, _)| a.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;
    use crate::import::claude_code;
    use crate::script::CallKind;
    use std::path::Path;

    fn imported(fidelity: Fidelity) -> (Trace, Blobs) {
        let session = claude_code::read(include_str!("fixtures/claude-code-traps.jsonl")).unwrap();
        let provenance = TraceOrigin {
            id: "traps".to_owned(),
            source: TraceSource {
                format: "claude-code".to_owned(),
                repo: None,
                commit: None,
                path: "traps.jsonl".to_owned(),
                sha256: "0".to_owned(),
                licence: None,
            },
        };
        trace(&session, &provenance, fidelity)
    }

    #[test]
    fn a_shape_holds_none_of_the_sessions_words() {
        let (trace, blobs) = imported(Fidelity::Shape);
        let text = trace.to_jsonl().unwrap();
        assert!(blobs.is_empty());
        for word in [
            "secret", "package", "main.go", "gofmt", "notes", "fix it", "docs",
        ] {
            assert!(!text.contains(word), "{word:?} in {text}");
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_file_with_any_stated_number_of_lines_has_a_bounded_size() {
        let call = RecordedCall::new("c".to_owned(), 0, "Read", Op::Read, 0);
        let result = RecordedResult {
            id: "c".to_owned(),
            err: None,
            shown: String::new(),
            seen: SeenContent::Part {
                path: "a".to_owned(),
                content: "some text".to_owned(),
                total_lines: u64::MAX,
            },
        };
        let sizes = said(&call, &result);
        let [(_, First::Partial(Some((bytes, lines))))] = sizes[..] else {
            panic!("{sizes:?}");
        };
        assert_eq!((bytes, lines), (PARTLY_SEEN_MAX, PARTLY_SEEN_MAX));
    }

    #[test]
    fn files_are_there_as_they_were_first_seen() {
        let (trace, _) = imported(Fidelity::Content);
        let files = trace.files.iter();
        let files = files.map(|file| (file.path.as_str(), file.known, file.content.bytes));
        // A search named docs/a.md, then a read showed two of its three lines: 18 bytes, times 3/2.
        let partial = ("docs/a.md", Known::Partial, 27);
        let expected = [partial, ("src/main.go", Known::Full, 29)];
        assert_eq!(files.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_change_from_outside_is_inferred_from_the_next_known_state() {
        let (trace, blobs) = imported(Fidelity::Content);
        let mut changes = trace.events.iter().filter_map(|event| match event {
            Event::Ext(change) => Some(change),
            _ => None,
        });
        let (Some(change), None) = (changes.next(), changes.next()) else {
            panic!("{:?}", trace.events);
        };
        assert_eq!(change.path.as_str(), "src/main.go");
        assert_eq!(change.why, Why::Exec);
        let content = &blobs[&change.content.as_ref().unwrap().sha256];
        assert_eq!(content, b"package main\n\nfunc main() {\n}\n");
    }

    #[test]
    fn both_fidelities_replay_the_same_calls() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("traps.trace.jsonl");
        let (content, blobs) = imported(Fidelity::Content);
        std::fs::create_dir(dir.path().join("blobs")).unwrap();
        for (digest, bytes) in blobs {
            std::fs::write(dir.path().join("blobs").join(digest), bytes).unwrap();
        }
        let full = compile(&file, &content).unwrap();
        let shape = compile(Path::new("shape"), &imported(Fidelity::Shape).0).unwrap();
        let calls = [
            (CallKind::Read, 3),
            (CallKind::Write, 1),
            (CallKind::Edit, 2),
            (CallKind::Search, 1),
        ];
        assert_eq!(full.timed_calls(), calls.into());
        assert_eq!(shape.timed_calls(), calls.into());
        let expected = ["exec", "read", "vcs"].map(|op| (op.to_owned(), 1));
        assert_eq!(full.not_replayed, expected.into());
        assert_eq!(shape.not_replayed, full.not_replayed);
    }

    #[test]
    fn a_tampered_trace_is_refused() {
        let (trace, _) = imported(Fidelity::Shape);
        let error = |change: fn(&mut Trace)| {
            let mut trace = trace.clone();
            change(&mut trace);
            compile(Path::new("t.jsonl"), &trace)
                .unwrap_err()
                .to_string()
        };
        let other_sha256 = error(|trace| trace.files[0].content.sha256 = "0".repeat(64));
        let no_result = error(|trace| {
            let is_third = |event: &Event| matches!(event, Event::Result(result) if result.i == 3);
            trace.events.retain(|event| !is_third(event));
        });
        let no_files = error(|trace| trace.files.clear());
        for (message, expected) in [
            (other_sha256, "content has SHA-256"),
            (no_result, "call 3: has no result record"),
            (no_files, "succeeded in the recording, but"),
        ] {
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn places_of_edits() {
        let edit = |old: &str, new: &str, all| Replacement {
            old: old.to_owned(),
            new: new.to_owned(),
            all,
        };
        let place = |start, old, new: &str| (start, old, new.to_owned());
        let two = [edit("one", "1", false), edit("1 two", "1 2", false)];
        let both = vec![place(0, 1, "bb"), place(2, 1, "bb")];
        for (text, edits, expected) in [
            ("a-a", &[edit("a", "bb", true)][..], Some(both)),
            (
                "a-a",
                &[edit("a", "b", false)],
                Some(vec![place(0, 1, "b")]),
            ),
            ("a", &[edit("x", "b", false)], None),
            ("say one two!", &two, Some(vec![place(4, 7, "1 2")])),
        ] {
            assert_eq!(places(text, edits), expected, "{text}");
        }
    }
}
