//! Turns a recorded session into a trace by following the content of each file over time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::panic::resume_unwind;
use std::thread;

use inputs::sha256;
use serde_json::Value;

use super::alignment::{Alignment, LineChange};
use super::disguise::Disguise;
use super::evidence::{Evidence, UnseenWrites, unseen_writes};
use super::placement::{Places, applied, best_places, has_tabs, places, places_elsewhere};
use super::roots::{LONGEST, Roots};
use super::sketch::{Sketch, has_lines, line_count, lines_of, newlines, old_lines, same, tabbed};
use super::spill::{Spill, SpilledValue};
use super::{Hunk, ImportedSession, RecordedCall, RecordedEvent, RecordedResult, SeenContent};
use shell::{LineEdit, PatchChunk, ProgramClass, Replacement, ShellStep, ShellWork, ShownText, patch, programs};
use workloads::path::WorkspacePath;
use workloads::trace::{
    Api, CAUSE, CallError, CallResult, ChangeCause, Compact, ContentKnowledge, Effect, End, Event, External, Extra,
    Fidelity, FileStep, InitialFile, Op, Span, SystemPrompt, TokenUsage, Trace, TraceCall, TraceContent, TraceHead,
    TraceSource, UsageSource, User, VERSION,
};

/// The depth up to which arguments can certainly be parsed, so that their text is what they are.
const PARSED_DEPTH: usize = 100;

/// The assumed size in bytes of a file known only by name, if the session shows no whole file.
const UNSEEN_BYTES: u64 = 4096;

/// The assumed bytes per line of a file with unknown content.
const UNSEEN_LINE_BYTES: u64 = 35;

/// The maximum assumed length of a file that a session shows in part: a session may state any number of lines.
const PARTLY_SEEN_MAX: u64 = 64 << 20;

/// The most files of a tree that one shell command may copy, move or remove in a trace.
const TREE_MAX: usize = 1000;

/// Tokens of an image, estimated from the growth of reported prompts.
const IMAGE_TOKENS: u64 = 800;

/// `o200k` tokens of a byte of thinking, from the reported output of sessions whose thinking is hidden.
const TOKENS_PER_THINKING_BYTE: f64 = 0.245;

/// The most bytes of files' current contents that stay in memory.
const HELD_MAX: usize = 16 << 20;

/// The most bytes of partly known files' lines that stay in memory. They are gone before the events are written.
const SKETCHED_MAX: usize = 16 << 20;

/// Bytes of results after which the size of these lines is looked at.
const SKETCHED_STEP: usize = 1 << 20;

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
///
/// # Errors
/// If a text of the session is lost.
pub fn trace(
    session: &ImportedSession,
    provenance: &TraceOrigin,
    fidelity: Fidelity,
) -> Result<(Trace, Blobs), String> {
    let mut stream = TraceStream::new(session, provenance, fidelity)?;
    let files = std::mem::take(&mut stream.files);
    let events = stream.by_ref().collect::<Result<_, _>>()?;
    let (head, end, blobs) = stream.finish();
    Ok((Trace { head, files, events, end }, blobs))
}

/// The events of a session's trace, in order. Each is made when it is asked for: a long session and its trace do not fit
/// into memory together.
pub struct TraceStream<'a> {
    /// The files that exist when the session starts.
    pub files: Vec<InitialFile>,
    session: &'a ImportedSession,
    provenance: &'a TraceOrigin,
    fidelity: Fidelity,
    /// What of the session is not in the trace yet, with its tokens.
    rest: std::iter::Zip<std::slice::Iter<'a, RecordedEvent>, std::vec::IntoIter<RecordedTokens>>,
    writer: Writer<'a>,
    is_at_end: bool,
}

impl<'a> TraceStream<'a> {
    /// Infers the initial files of a session.
    ///
    /// # Errors
    /// If a text of the session is lost.
    pub fn new(session: &'a ImportedSession, provenance: &'a TraceOrigin, fidelity: Fidelity) -> Result<Self, String> {
        if let Some(lost) = &session.lost {
            return Err(lost.clone());
        }
        let mut writer = Writer {
            disguise: Disguise::new(fidelity, &provenance.id),
            calls: HashMap::new(),
            are_answered: Vec::new(),
            works: Vec::new(),
            recorded_calls: 0,
            state: BTreeMap::new(),
            dirs: HashSet::new(),
            changed_dirs: Vec::new(),
            roots: session.roots.clone(),
            spill: Spill::default(),
            held: 0,
            lost: None,
            events: VecDeque::new(),
            taken: 0,
            open: HashSet::new(),
            turns: 0,
            model: &session.model,
            apis: 0,
            last_answered: None,
            last_exec: None,
            seen: MatchCounts::default(),
            evidence: HashMap::new(),
        };
        // Neither needs the other, and both read all texts.
        let (files, tokens) = thread::scope(|scope| {
            let tokens = scope.spawn(|| session.events.iter().map(RecordedTokens::of).collect::<Result<Vec<_>, _>>());
            let files = writer.first_state(session);
            (files, tokens.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        Ok(Self {
            files: files?,
            session,
            provenance,
            fidelity,
            rest: session.events.iter().zip(tokens?),
            writer,
            is_at_end: false,
        })
    }

    /// The first and the last record of the trace, after all events, and the blobs that the trace refers to.
    pub fn finish(self) -> (TraceHead, End, Blobs) {
        let (session, provenance) = (self.session, self.provenance);
        let mut x = Extra::new();
        let seen = &self.writer.seen;
        for (name, count) in [
            ("unreadable_lines", session.unreadable_lines),
            ("mended_lines", session.mended_lines),
            ("unknown_records", session.unknown_records.values().sum::<u64>()),
            ("read_bytes", seen.read_bytes),
            ("read_bytes_equal", seen.equal_bytes),
            ("read_bytes_unrecorded", seen.unrecorded_bytes),
            ("read_bytes_unrecorded_equal", seen.unrecorded_equal),
            ("edits", seen.edits),
            ("edits_equal", seen.equal_edits),
            ("edits_unrecorded", seen.unrecorded_edits),
            ("edits_unrecorded_equal", seen.unrecorded_equal_edits),
        ] {
            if count > 0 {
                x.insert(name.to_owned(), count.into());
            }
        }
        if session.numbers_lines_by_tab() {
            x.insert("line_numbers".to_owned(), "tab".into());
        }
        let prompt = session.system.as_ref();
        let head = TraceHead {
            v: VERSION,
            id: provenance.id.clone(),
            source: provenance.source.clone(),
            agent: session.agent.clone(),
            model: session.model.clone(),
            cwd: "/ws".to_owned(),
            fidelity: self.fidelity,
            tokenizer: tokens::NAME.to_owned(),
            prompt: prompt.map(|text| SystemPrompt { tok: tokens::count(text), is_whole: session.is_whole_prompt }),
            x,
        };
        (head, End { exit: "unknown".to_owned() }, self.writer.disguise.blobs)
    }
}

impl Iterator for TraceStream<'_> {
    type Item = Result<Event, String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(lost) = self.writer.lost.take() {
                return Some(Err(lost));
            }
            if let Some(event) = self.writer.next(self.is_at_end) {
                return Some(Ok(event));
            }
            match self.rest.next() {
                Some((recorded, tokens)) => {
                    if let Err(lost) = self.writer.event(recorded, tokens) {
                        return Some(Err(lost));
                    }
                }
                None if self.is_at_end => return None,
                None => {
                    self.writer.close_open_calls();
                    self.is_at_end = true;
                }
            }
        }
    }
}

/// Counted tokens of what a session recorded.
#[derive(Clone, Copy, Debug, Default)]
struct RecordedTokens {
    /// Those of its text, or of a call.
    text: u64,
    /// Those of the thinking in an answer.
    thinking: u64,
}

impl RecordedTokens {
    fn of(recorded: &RecordedEvent) -> Result<Self, String> {
        let text = match recorded {
            RecordedEvent::User { text, .. } => tokens::count(&text.load()?),
            RecordedEvent::Api { text, thinking, .. } => {
                let thinking = tokens::count(&thinking.load()?);
                return Ok(Self { text: tokens::count(&text.load()?), thinking });
            }
            RecordedEvent::Call(call) => call_tokens(call)?,
            RecordedEvent::Result(result) => tokens::count(&result.shown.load()?),
            RecordedEvent::Compact { .. } | RecordedEvent::Inherited { .. } => 0,
        };
        Ok(Self { text, thinking: 0 })
    }
}

/// A file's initial state, by the first statement of the session about it.
#[derive(Clone, Debug)]
enum First {
    /// The file did not exist.
    Absent,
    /// The file had this content.
    Full(SpilledValue<String>),
    /// The file existed, with this number of bytes and lines if they can be estimated.
    Partial(Option<(u64, u64)>),
}

/// The session's information about a file's initial state.
#[derive(Clone, Debug)]
struct Survey {
    first: First,
    sketch: Sketch,
    /// Whether the session has changed the file.
    is_changed: bool,
    /// Whether a call reads, writes or edits it: a name alone may be a directory's.
    is_certain: bool,
}

/// How many of the bytes that the session shows are in the trace, byte for byte.
#[derive(Clone, Copy, Debug, Default)]
struct MatchCounts {
    /// Bytes that reads showed.
    read_bytes: u64,
    /// Those of them that the trace's file has at their place when it is read, without a change from outside.
    equal_bytes: u64,
    /// Bytes of `read_bytes` that a change outside of the recorded calls may have written.
    unrecorded_bytes: u64,
    /// Those of them that are in `equal_bytes`.
    unrecorded_equal: u64,
    /// Edits that succeeded.
    edits: u64,
    /// Those of them whose file has, without a change from outside, the recorded text at the edited place.
    equal_edits: u64,
    /// Edits of lines that a change outside of the recorded calls may have written.
    unrecorded_edits: u64,
    /// Those of them that are in `equal_edits`.
    unrecorded_equal_edits: u64,
}

/// The current state of a file.
#[derive(Clone, Debug)]
struct FileState {
    /// Its content in the session, with filler in place of lines that the session does not show; `None` while unknown.
    original: Option<SpilledValue<String>>,
    /// Whether the session shows all of `original`.
    is_exact: bool,
    /// Its content in the trace.
    shown: SpilledValue<Vec<u8>>,
}

impl FileState {
    /// Its bytes in memory.
    fn held(&self) -> usize {
        let original = self.original.as_ref();
        original.map_or(0, SpilledValue::bytes_in_memory) + self.shown.bytes_in_memory()
    }
}

/// Former states of files, in the order of their changes.
type Undo = Vec<(String, Option<FileState>)>;

/// The replay of a call.
enum CallReplay {
    /// The call's operation on this file or directory, with this change.
    Path(String, Option<Effect>),
    /// File operations of a shell command.
    Steps { steps: Vec<FileStep>, is_model: bool },
}

struct OpenCall<'a> {
    call: &'a RecordedCall,
    index: u64,
    /// The number of its event, which the result completes.
    place: usize,
}

struct Writer<'a> {
    disguise: Disguise,
    /// The calls without a result so far, by identity.
    calls: HashMap<&'a str, OpenCall<'a>>,
    /// Whether each call has a result.
    are_answered: Vec<bool>,
    /// What each call's shell command did, or why that is not certain, until the call's result takes it.
    works: Vec<Option<Result<SpilledValue<ShellWork>, &'static str>>>,
    /// How many calls have an event.
    recorded_calls: usize,
    /// The current files, by original path.
    state: BTreeMap<String, FileState>,
    /// The current directories, by original path, without the workspace itself.
    dirs: HashSet<String>,
    /// The directories that the current call has made (`true`) and removed, in order.
    changed_dirs: Vec<(String, bool)>,
    /// Gives the paths of shell commands their places.
    roots: Roots,
    spill: Spill,
    /// Bytes of `state` in memory.
    held: usize,
    /// Why a text of the session is lost, if one is.
    lost: Option<String>,
    /// The events from the first one on that is not complete.
    events: VecDeque<Event>,
    /// The number of events before these.
    taken: usize,
    /// The numbers of calls' events that a result will complete.
    open: HashSet<usize>,
    turns: u64,
    /// The session's model.
    model: &'a str,
    apis: u64,
    last_answered: Option<u64>,
    last_exec: Option<ChangeCause>,
    seen: MatchCounts,
    /// What the recording tells of the lines of files, by original path.
    evidence: HashMap<String, Evidence>,
}

/// What a call's shell command did, if the call is one. Its paths are places in the workspace. Without `listed`, the files that
/// its output lists are left out.
fn shell_work(
    call: &RecordedCall,
    result: &RecordedResult,
    roots: &mut Roots,
    listed: bool,
) -> Result<Option<ShellWork>, String> {
    let Some(command) = &call.shell else {
        return Ok(None);
    };
    let has_run = !matches!(result.err, Some(CallError::Rejected));
    let mut work = match has_run {
        true if result.is_unfinished => ShellWork::uncertain("a command that did not end"),
        true => shell::operations(&command.load()?, &result.output()?, result.err.is_none()),
        false => ShellWork::uncertain("a call that was not allowed"),
    };
    // On Windows, each place depends on the ones before.
    if !listed && !roots.is_windows() {
        work.listed.clear();
    }
    Ok(Some(placed(work, roots)))
}

/// Gives each path of a command its place in the workspace.
fn placed(mut work: ShellWork, roots: &mut Roots) -> ShellWork {
    let mut outside = None;
    let mut place = |path: &mut String| match roots.place(&roots.absolute("", path)) {
        Some(place) => *path = place,
        None if path.starts_with(shell::UNKNOWN_DIRECTORY) => outside = Some("a directory that is not certain"),
        None => outside = Some("a path outside the session's directories"),
    };
    for step in &mut work.steps {
        match step {
            ShellStep::Read(path)
            | ShellStep::Stat(path)
            | ShellStep::List { path, .. }
            | ShellStep::Walk(path)
            | ShellStep::Search(path)
            | ShellStep::Write { path, .. }
            | ShellStep::Append { path, .. }
            | ShellStep::Edit { path, .. }
            | ShellStep::EditLines { path, .. }
            | ShellStep::Patch { path, .. }
            | ShellStep::Rewrite(path)
            | ShellStep::Remove { path, .. }
            | ShellStep::MakeDir(path)
            | ShellStep::RemoveDir(path)
            | ShellStep::Touch(path) => place(path),
            ShellStep::Copy { from, to } | ShellStep::Move { from, to } | ShellStep::Transfer { from, to, .. } => {
                place(from);
                place(to);
            }
        }
    }
    for (_, dir) in &mut work.programs {
        place(dir);
    }
    if let Some(shown) = &mut work.shown {
        place(&mut shown.path);
    }
    let listed = std::mem::take(&mut work.listed).into_iter();
    work.listed =
        listed.filter_map(|(path, size)| Some((roots.place(&path)?, size))).filter(|(path, _)| path != ".").collect();
    if let Some(cause) = outside
        && work.uncertain.is_none()
    {
        return ShellWork { dirs: work.dirs, ..ShellWork::uncertain(cause) };
    }
    work
}

impl<'a> Writer<'a> {
    /// Infers the initial files, and sets the state to them.
    fn first_state(&mut self, session: &ImportedSession) -> Result<Vec<InitialFile>, String> {
        let mut roots = session.roots.clone();
        let mut surveys: BTreeMap<String, Survey> = BTreeMap::new();
        let mut calls: HashMap<&str, (&RecordedCall, usize)> = HashMap::new();
        let mut sketched = 0;
        for recorded in &session.events {
            match recorded {
                RecordedEvent::Call(call) => {
                    calls.insert(call.id.as_str(), (call, self.are_answered.len()));
                    self.are_answered.push(false);
                    self.works.push(None);
                }
                RecordedEvent::Result(result) => {
                    let Some(&(call, number)) = calls.get(result.id.as_str()) else {
                        continue;
                    };
                    self.are_answered[number] = true;
                    let seen = result.seen.load()?;
                    if seen.contradicts(call) {
                        continue;
                    }
                    for (path, state, is_certain) in said(call, result, &seen) {
                        let is_better = match surveys.get_mut(&path) {
                            Some(survey) => survey.is_bettered_by(&state)?,
                            None => true,
                        };
                        let state = match state {
                            First::Full(text) if is_better => First::Full(self.spill.keep(text.load()?)),
                            state => state,
                        };
                        let survey = state_once(&mut surveys, path, &state, is_certain);
                        if is_better {
                            survey.first = state;
                        }
                    }
                    sketch(&mut surveys, call, &seen);
                    if let Some(work) = shell_work(call, result, &mut roots, true)? {
                        survey_shell(&mut surveys, &work);
                        self.survey_shown(&mut surveys, &work);
                        self.keep_work(number, work);
                    }
                    sketched += result.shown.bytes() + result.seen.bytes();
                    if sketched > SKETCHED_STEP {
                        sketched = 0;
                        let held: usize = surveys.values().map(|survey| survey.sketch.bytes_in_memory()).sum();
                        if held > SKETCHED_MAX {
                            surveys.values_mut().for_each(|survey| survey.sketch.store(&mut self.spill));
                        }
                    }
                }
                _ => {}
            }
        }
        remove_directories(&mut surveys);
        let unseen = median_size(&surveys);
        let mut files = Vec::new();
        for (path, mut survey) in surveys {
            let (original, is_exact) = match &survey.first {
                First::Absent => continue,
                First::Full(text) => (Some(text.load()?), true),
                First::Partial(_) => (survey.sketch.text(), false),
            };
            if let Some(lost) = survey.sketch.lost {
                return Err(lost);
            }
            let (content, shown) = match (&original, survey.first) {
                (None, First::Partial(size)) => {
                    let (bytes, lines) = size.unwrap_or((unseen, unseen / UNSEEN_LINE_BYTES));
                    self.disguise.filler(bytes, lines)
                }
                (original, _) => self.disguise.content(original.as_deref().unwrap_or_default()),
            };
            let known = if is_exact { ContentKnowledge::Full } else { ContentKnowledge::Partial };
            let Ok(shown_path) = WorkspacePath::new(self.disguise.path(&path)) else {
                continue;
            };
            files.push(InitialFile { path: shown_path, known, content });
            let state = self.file_state(original, is_exact, shown);
            self.put(&path, state);
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// Keeps what a call's shell command did until the call's result. On Windows, its places depend on those before.
    fn keep_work(&mut self, number: usize, work: ShellWork) {
        if self.roots.is_windows() || self.works[number].is_some() {
            return;
        }
        self.works[number] = Some(match work.uncertain {
            Some(why) => Err(why),
            None => Ok(self.spill.keep(ShellWork { listed: Vec::new(), dirs: Vec::new(), ..work })),
        });
    }

    /// What a call's shell command did, if the call is one.
    fn work(&mut self, open: &OpenCall, result: &RecordedResult) -> Result<Option<ShellWork>, String> {
        match self.works.get_mut(open.index as usize).and_then(Option::take) {
            Some(Ok(kept)) => Ok(Some(kept.load()?)),
            Some(Err(why)) => Ok(Some(ShellWork::uncertain(why))),
            None => shell_work(open.call, result, &mut self.roots, false),
        }
    }

    /// Adds the text that a shell command printed of a file.
    fn survey_shown(&mut self, surveys: &mut BTreeMap<String, Survey>, work: &ShellWork) {
        let Some(shown) = &work.shown else {
            return;
        };
        let Some(survey) = partly_known(surveys, &shown.path) else {
            return;
        };
        match shown.whole() {
            Some(text) if survey.can_be(&text) => survey.first = First::Full(self.spill.keep(text)),
            _ => survey.sketch.part(shown.first, &shown.text, shown.total_lines()),
        }
    }

    /// The state of a file, in memory as long as there is room.
    fn file_state(&mut self, original: Option<String>, is_exact: bool, shown: Vec<u8>) -> FileState {
        let bytes = original.as_ref().map_or(0, String::len) + shown.len();
        let (original, shown) = if self.held + bytes <= HELD_MAX {
            (original.map(SpilledValue::in_memory), shown.into())
        } else {
            (original.map(|text| self.spill.keep(text)), self.spill.keep(shown))
        };
        FileState { original, is_exact, shown }
    }

    /// A value. If it is lost, the session has no trace.
    fn or_lost<T: Default>(&mut self, value: Result<T, String>) -> T {
        value.unwrap_or_else(|error| {
            self.lost = Some(error);
            T::default()
        })
    }

    /// The text of a file, if it is known.
    fn text_of(&mut self, path: &str) -> Option<String> {
        let text = self.state.get(path)?.original.as_ref()?.load();
        Some(self.or_lost(text))
    }

    /// The content of a file in the trace, if it exists.
    fn shown_of(&mut self, path: &str) -> Option<Vec<u8>> {
        let shown = self.state.get(path)?.shown.load();
        Some(self.or_lost(shown))
    }

    /// The next event, if it is complete, or all are.
    fn next(&mut self, all: bool) -> Option<Event> {
        if !all && self.open.contains(&self.taken) {
            return None;
        }
        let event = self.events.pop_front()?;
        self.taken += 1;
        Some(event)
    }

    /// A call's event, unless it was taken.
    fn call_event(&mut self, place: usize) -> Option<&mut TraceCall> {
        match self.events.get_mut(place.checked_sub(self.taken)?) {
            Some(Event::Call(call)) => Some(call),
            _ => None,
        }
    }

    fn event(&mut self, recorded: &'a RecordedEvent, tokens: RecordedTokens) -> Result<(), String> {
        match recorded {
            RecordedEvent::User { by_client, images, .. } => {
                let turn = self.turns;
                self.turns += u64::from(!by_client);
                let tok = tokens.text + images * IMAGE_TOKENS;
                self.events.push_back(Event::User(User { turn, tok, by_client: *by_client }));
            }
            RecordedEvent::Api { at, usage, lane, thinking_bytes, model, .. } => {
                let k = self.apis;
                self.apis += 1;
                let lane = self.disguise.lane(lane);
                self.events.push_back(Event::Api(Api {
                    k,
                    at: *at,
                    usage: *usage,
                    usage_src: UsageSource::Reported,
                    lane,
                    text_tok: Some(tokens.text),
                    thinking_tok: Some(self.thinking(tokens.thinking, *thinking_bytes, usage, model)),
                    model: if **model == *self.model { String::new() } else { (**model).to_owned() },
                }));
            }
            RecordedEvent::Inherited { tokens } => {
                let tok = (*tokens as f64 / tokens::factor(self.model).per_o200k).round() as u64;
                self.events.push_back(Event::User(User { turn: self.turns, tok, by_client: true }));
            }
            RecordedEvent::Compact { pre_tok } => {
                self.events.push_back(Event::Compact(Compact { k: self.apis.saturating_sub(1), pre_tok: *pre_tok }))
            }
            RecordedEvent::Call(call) => {
                let index = self.recorded_calls as u64;
                let place = self.taken + self.events.len();
                let mut record = self.call_record(call, index, tokens.text)?;
                match self.are_answered.get(self.recorded_calls) {
                    Some(true) => {
                        self.open.insert(place);
                    }
                    _ => {
                        let cause = without_files(call.op).unwrap_or("a call without a result");
                        record.x.insert(CAUSE.to_owned(), cause.into());
                    }
                }
                self.recorded_calls += 1;
                self.events.push_back(Event::Call(Box::new(record)));
                let open = OpenCall { call, index, place };
                self.calls.insert(&call.id, open);
            }
            RecordedEvent::Result(result) => self.result(result, tokens.text)?,
        }
        Ok(())
    }

    /// Tokens of an answer's thinking, whose text has `thinking` tokens. The text may be a summary, or missing.
    fn thinking(&self, thinking: u64, bytes: u64, usage: &TokenUsage, model: &str) -> u64 {
        let model = if model.is_empty() { self.model } else { model };
        let stated = usage.reasoning as f64 / tokens::factor(model).per_o200k;
        let signed = bytes as f64 * TOKENS_PER_THINKING_BYTE;
        thinking.max(stated.max(signed).round() as u64)
    }

    fn call_record(&mut self, call: &RecordedCall, index: u64, tok: u64) -> Result<TraceCall, String> {
        let arguments = call.arguments()?;
        let mut args = self.disguise.args(&arguments);
        if call.recursive {
            args.insert("recursive".to_owned(), true.into());
        }
        let mut x = Extra::new();
        if works_on_files(call.op) && call.path.is_none() {
            x.insert("outside".to_owned(), true.into());
        }
        let commands = self.commands(call, &arguments);
        Ok(TraceCall {
            i: index,
            k: call.api,
            lane: self.disguise.lane(&call.lane),
            tool: self.disguise.tool(&call.tool),
            op: call.op,
            path: None,
            range: call.range,
            args,
            commands,
            tok: Some(tok),
            effect: None,
            steps: Vec::new(),
            is_model: false,
            at: call.at,
            x,
        })
    }

    fn commands(&self, call: &RecordedCall, arguments: &Extra) -> Vec<String> {
        let line = arguments.get("command").and_then(|line| line.as_str());
        match (call.op, line) {
            (Op::Exec | Op::Vcs, Some(line)) => programs::commands(line, self.disguise.keeps_names()),
            _ => Vec::new(),
        }
    }

    fn result(&mut self, result: &RecordedResult, tok: u64) -> Result<(), String> {
        let Some(open) = self.calls.remove(result.id.as_str()) else {
            return Ok(());
        };
        let (call, index, place) = (open.call, open.index, open.place);
        let mut record = CallResult {
            i: index,
            ok: result.err.is_none(),
            err: result.err,
            bytes: result.shown.bytes() as u64,
            tok,
            sha256: None,
            post_sha256: None,
            x: Extra::new(),
        };
        let seen = result.seen.load()?;
        let replayed = match self.work(&open, result)? {
            Some(work) => self.shell_steps(&work),
            None => self.replayed(call, result, &seen, &mut record),
        };
        self.doubt_by(call, replayed.is_err())?;
        if result.err.is_none() && call.op == Op::Edit {
            self.seen.edits += 1;
        }
        match call.op {
            Op::Exec => self.last_exec = Some(ChangeCause::Exec),
            Op::Vcs => self.last_exec = Some(ChangeCause::Vcs),
            _ => {}
        }
        let shown = match &replayed {
            Ok(CallReplay::Path(path, _)) => WorkspacePath::new(self.disguise.path(path)).ok(),
            _ => None,
        };
        self.open.remove(&place);
        if let Some(call) = self.call_event(place) {
            match replayed {
                Ok(CallReplay::Path(_, effect)) => {
                    call.path = shown;
                    call.effect = effect;
                }
                Ok(CallReplay::Steps { steps, is_model }) => {
                    call.steps = steps;
                    call.is_model = is_model;
                }
                Err(cause) => {
                    call.x.insert(CAUSE.to_owned(), cause.into());
                }
            }
        }
        self.last_answered = Some(index);
        self.events.push_back(Event::Result(record));
        Ok(())
    }

    /// Takes note that a command may have written to files what the recording does not show.
    fn doubt_by(&mut self, call: &RecordedCall, is_unknown: bool) -> Result<(), String> {
        let Some(command) = &call.shell else {
            return Ok(());
        };
        let line = command.load()?.line;
        let writes = unseen_writes(&line);
        if writes == UnseenWrites::None && !is_unknown {
            return Ok(());
        }
        for (path, evidence) in &mut self.evidence {
            let name = path.rsplit('/').next().unwrap_or(path);
            if writes == UnseenWrites::All || is_unknown && line.contains(name) {
                evidence.doubt();
            } else if writes == UnseenWrites::Edits {
                evidence.doubt_edits();
            }
        }
        Ok(())
    }

    /// The replay of a call, or the reason why it is not replayed.
    fn replayed(
        &mut self,
        call: &RecordedCall,
        result: &RecordedResult,
        seen: &SeenContent,
        record: &mut CallResult,
    ) -> Result<CallReplay, &'static str> {
        // A state that the trace does not follow would make a later call wrong: what speaks against the call comes first.
        if seen.contradicts(call) {
            return Err("a result of another file than the call's");
        }
        let path = match (&call.path, seen.path()) {
            (_, Some(path)) | (Some(path), None) => path,
            (None, None) if works_on_files(call.op) => {
                // A lost text ends the import elsewhere.
                let names_path = call.names_path();
                return Err(if names_path {
                    "a path outside the session's directories"
                } else {
                    "a call that names no file"
                });
            }
            (None, None) => {
                return Err(match call.op {
                    Op::Exec | Op::Vcs => "a shell command that is not parsed",
                    op if let Some(work) = without_files(op) => work,
                    _ if call.names_path() => "an unknown tool that names a file",
                    _ => "another tool",
                });
            }
        };
        self.place(path)?;
        const NOT_SHOWN: &str = "an effect that the recording does not show";
        let changed_by = match seen {
            SeenContent::Written { .. } | SeenContent::Replaced { .. } => Some(Op::Write),
            SeenContent::Edited { .. } | SeenContent::Patched { .. } => Some(Op::Edit),
            _ => None,
        };
        if changed_by.is_some_and(|op| op != call.op || result.err.is_some()) {
            return Err(NOT_SHOWN);
        }
        let effect = self.effect(call, seen, record)?;
        if result.err.is_none() && matches!(call.op, Op::Write | Op::Edit) && effect.is_none() {
            return Err(NOT_SHOWN);
        }
        self.can_be_replayed(path, call.op, result.err)?;
        Ok(CallReplay::Path(path.clone(), effect))
    }

    /// Follows what a result shows. Returns the call's change of its file.
    fn effect(
        &mut self,
        call: &RecordedCall,
        seen: &SeenContent,
        record: &mut CallResult,
    ) -> Result<Option<Effect>, &'static str> {
        Ok(match seen {
            SeenContent::Nothing | SeenContent::Printed(_) | SeenContent::PrintedEnd(_) | SeenContent::Listed(_) => {
                None
            }
            SeenContent::Whole { path, content } => {
                self.can_be(path)?;
                self.whole(path, content);
                record.sha256 = self.shown_of(path).map(sha256);
                None
            }
            SeenContent::Part { path, content, total_lines } => {
                self.can_be(path)?;
                let first = call.range.map_or(1, |(first, _)| first);
                self.part(path, first, content, Some(*total_lines));
                None
            }
            SeenContent::Replaced { path, content } => {
                self.can_be(path)?;
                Some(self.written(path, content, record))
            }
            SeenContent::Written { path, before, content } => {
                self.can_be(path)?;
                match before {
                    Some(before) => {
                        self.learn(path, before);
                    }
                    None => self.learn_absent(path),
                }
                Some(self.written(path, content, record))
            }
            SeenContent::Edited { path, before, replacements, hunks } => {
                self.can_be(path)?;
                let takes_newline = takes_newline(call);
                if let Some(before) = before {
                    let follows = self.follows(path, 0, &before.split('\n').collect::<Vec<_>>());
                    let is_known = self.learn(path, before);
                    let is_stated = is_known && places(before, replacements, hunks, takes_newline).is_some();
                    self.count_edit(is_stated, follows);
                }
                Some(self.edited(path, replacements, hunks, takes_newline, record)?)
            }
            SeenContent::Patched { path, replacements, hunks } => {
                self.can_be(path)?;
                let takes_newline = takes_newline(call);
                self.patched(path, replacements, hunks, takes_newline);
                Some(self.edited(path, replacements, hunks, takes_newline, record)?)
            }
        })
    }

    fn written(&mut self, path: &str, content: &str, record: &mut CallResult) -> Effect {
        let (written, shown) = self.disguise.content(content);
        record.post_sha256 = Some(written.sha256.clone());
        let state = self.file_state(Some(content.to_owned()), true, shown);
        self.put(path, state);
        let evidence = Evidence::whole(line_count(content));
        self.evidence.insert(path.to_owned(), evidence);
        Effect::Write(written)
    }

    fn edited(
        &mut self,
        path: &str,
        replacements: &[Replacement],
        hunks: &[Hunk],
        takes_newline: bool,
        record: &mut CallResult,
    ) -> Result<Effect, &'static str> {
        let edited = self.edit(path, replacements, hunks, takes_newline);
        let (spans, after) = edited.ok_or("an edit of a text that is not known")?;
        record.post_sha256 = Some(after);
        Ok(Effect::Edit(spans))
    }

    /// Checks a read of a whole file against the known text, and takes over what differs as a change from outside.
    fn whole(&mut self, path: &str, content: &str) {
        let known = self.text_of(path).unwrap_or_default();
        let is_equal = known == content;
        let (shown, lines) = (lines_of(content), lines_of(&known));
        let of_lines: Vec<bool> = (0..shown.len()).map(|at| is_equal || lines.get(at) == shown.get(at)).collect();
        // A whole file is equal as a whole, or not.
        self.count(path, 0, &shown, &of_lines, is_equal);
        self.learn(path, content);
        if !is_equal {
            self.evidence.insert(path.to_owned(), Evidence::whole(shown.len()));
        }
    }

    /// Whether the lines from `start` on, which a call shows, follow from the recording.
    fn follows(&mut self, path: &str, start: usize, shown: &[&str]) -> bool {
        let known = self.text_of(path).unwrap_or_default();
        let lines = lines_of(&known);
        if start > 2 * lines.len() + 1000 {
            return true;
        }
        let is_expected = |(at, line): (usize, &&str)| lines.get(at).is_some_and(|known| same(known, line));
        let is_expected: Vec<bool> = (start..).zip(shown).map(is_expected).collect();
        let follows = self.evidence.entry(path.to_owned()).or_default().read(start, &is_expected);
        follows.into_iter().all(|follows| follows)
    }

    fn count_edit(&mut self, is_equal: bool, follows: bool) {
        self.seen.equal_edits += u64::from(is_equal);
        self.seen.unrecorded_edits += u64::from(!follows);
        self.seen.unrecorded_equal_edits += u64::from(!follows && is_equal);
    }

    /// Counts the bytes of a read of the lines from `start` on. If they `can_be_equal`, those where `is_expected` are.
    fn count(&mut self, path: &str, start: usize, shown: &[&str], is_expected: &[bool], can_be_equal: bool) {
        let follows = self.evidence.entry(path.to_owned()).or_default().read(start, is_expected);
        for (at, line) in shown.iter().enumerate() {
            // The last line has no newline here.
            let bytes = line.len() as u64 + u64::from(at + 1 < shown.len());
            let equal = if is_expected[at] && can_be_equal { bytes } else { 0 };
            self.seen.read_bytes += bytes;
            self.seen.equal_bytes += equal;
            if !follows[at] {
                self.seen.unrecorded_bytes += bytes;
                self.seen.unrecorded_equal += equal;
            }
        }
    }

    /// Checks a partial read against the known text, and takes over what differs as a change from outside.
    fn part(&mut self, path: &str, first: u64, content: &str, total_lines: Option<u64>) {
        let shown = lines_of(content);
        let start = usize::try_from(first.max(1) - 1).unwrap_or(usize::MAX);
        let end = start.saturating_add(shown.len());
        let Some(known) = self.text_of(path) else {
            self.seen.read_bytes += content.len() as u64;
            return;
        };
        let is_inside = total_lines.is_none_or(|total| end as u64 <= total);
        let is_of_size = end.max(total_lines.unwrap_or(0) as usize) <= 2 * line_count(&known) + 1000;
        if !is_of_size {
            self.seen.read_bytes += content.len() as u64;
            return;
        }
        // Most reads show what is known: then the text is not split into its lines.
        if has_lines(&known, start, content) {
            self.count(path, start, &shown, &vec![true; shown.len()], true);
            return;
        }
        let lines = lines_of(&known);
        let is_expected: Vec<bool> = (start..).zip(&shown).map(|(at, line)| lines.get(at) == Some(line)).collect();
        self.count(path, start, &shown, &is_expected, true);
        if is_expected.iter().all(|expected| *expected) || !is_inside {
            return;
        }
        let (mut changed, changes) = after_changes(lines, start, &shown);
        let evidence = self.evidence.entry(path.to_owned()).or_default();
        evidence.align(&changes);
        evidence.read(start, &vec![true; shown.len()]);
        changed.splice(start..end, shown);
        if let Some(total) = total_lines {
            changed.resize(total as usize, "");
        }
        let changed = changed.join("\n");
        let is_exact = self.state.get(path).is_some_and(|state| state.is_exact);
        self.learn(path, &changed);
        if let Some(state) = self.state.get_mut(path) {
            state.is_exact = is_exact;
        }
    }

    /// Takes over the text of an edit's places as a change from outside, where the known text differs.
    fn patched(&mut self, path: &str, replacements: &[Replacement], hunks: &[Hunk], takes_newline: bool) {
        let Some(known) = self.text_of(path) else {
            return;
        };
        let mut lines: Vec<String> = known.split('\n').map(str::to_owned).collect();
        let is_there = |lines: &[String], hunk: &Hunk| {
            let start = usize::try_from(hunk.first.saturating_sub(1)).unwrap_or(usize::MAX);
            let mut current = lines.iter().skip(start);
            old_lines(hunk).all(|old| current.next().is_some_and(|line| same(line, old)))
        };
        let is_placed = hunks.iter().all(|hunk| is_there(&lines, hunk));
        let is_equal = is_placed && places(&known, replacements, hunks, takes_newline).is_some();
        let mut follows = true;
        for hunk in hunks {
            let start = usize::try_from(hunk.first.saturating_sub(1)).unwrap_or(usize::MAX);
            follows &= self.follows(path, start, &old_lines(hunk).collect::<Vec<_>>());
        }
        self.count_edit(is_equal, follows);
        if is_placed || hunks.is_empty() {
            return;
        }
        // The text may have moved. Then the edit is placed by its text alone.
        if places_elsewhere(&known, replacements, hunks, takes_newline).is_some() {
            return;
        }
        let tabs = has_tabs(replacements);
        for hunk in hunks {
            let start = usize::try_from(hunk.first.saturating_sub(1)).unwrap_or(usize::MAX);
            let old: Vec<String> =
                old_lines(hunk).map(|line| if tabs { tabbed(line) } else { line.to_owned() }).collect();
            if start > lines.len() + 1000 {
                return;
            }
            let end = start + old.len();
            if lines.len() < end {
                lines.resize(end, String::new());
            }
            for (line, old) in lines[start..end].iter_mut().zip(old) {
                if !same(line, &old) {
                    *line = old;
                }
            }
        }
        self.learn(path, &lines.join("\n"));
        if let Some(state) = self.state.get_mut(path) {
            state.is_exact = false;
        }
    }

    fn put(&mut self, path: &str, state: FileState) {
        self.make_dirs(path);
        self.replace(path, Some(state));
    }

    /// Replaces the state of a file. Returns the one before.
    fn replace(&mut self, path: &str, state: Option<FileState>) -> Option<FileState> {
        self.held += state.as_ref().map_or(0, FileState::held);
        let before = match state {
            Some(state) => self.state.insert(path.to_owned(), state),
            None => self.state.remove(path),
        };
        self.held -= before.as_ref().map_or(0, FileState::held);
        before
    }

    /// Adds the directories above `path`.
    fn make_dirs(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            if self.dirs.insert(path[..at].to_owned()) {
                self.changed_dirs.push((path[..at].to_owned(), true));
            }
        }
    }

    fn is_dir(&self, path: &str) -> bool {
        path == "." || self.dirs.contains(path)
    }

    /// Whether a file may be at `path`: a file among its directories, or a directory there, excludes it.
    fn can_be(&self, path: &str) -> Result<(), &'static str> {
        let mut above = path.match_indices('/').map(|(at, _)| &path[..at]);
        if above.any(|dir| self.state.contains_key(dir)) || self.is_dir(path) {
            return Err("a file in place of a directory, or the other way round");
        }
        Ok(())
    }

    /// Whether the call has the recorded outcome on the known files.
    fn can_be_replayed(&self, path: &str, op: Op, err: Option<CallError>) -> Result<(), &'static str> {
        let is_file = self.state.contains_key(path);
        let is_dir = self.is_dir(path);
        let (can, cause) = match (op, err) {
            (Op::Read | Op::Edit, None) => (is_file, "a file that is not known"),
            (Op::Write, None) => (!is_dir, "a file in place of a directory, or the other way round"),
            (Op::Search, None) => (is_file || is_dir, "a directory without known files"),
            (Op::List, None) => (is_dir, "a directory without known files"),
            (Op::Read | Op::Search | Op::List, Some(CallError::NotFound)) => {
                (!is_file && !is_dir, "a failure that the known files do not have")
            }
            (Op::Edit, Some(CallError::NoMatch | CallError::MultiMatch)) => (is_file, "a file that is not known"),
            (_, Some(CallError::Rejected)) => (false, "a call that was not allowed"),
            _ => (false, "a call that failed before it touched a file"),
        };
        if can { Ok(()) } else { Err(cause) }
    }

    /// The steps of a shell command. If one of them cannot be replayed, none is, and the files stay as they are.
    fn shell_steps(&mut self, work: &ShellWork) -> Result<CallReplay, &'static str> {
        if let Some(why) = work.uncertain {
            return Err(why);
        }
        let mut undo = Vec::new();
        self.changed_dirs.clear();
        let made = self.try_steps(work, &mut undo);
        if let (Ok(_), Some(shown)) = (&made, &work.shown) {
            self.shown(shown);
        }
        if made.is_err() {
            for (dir, is_new) in std::mem::take(&mut self.changed_dirs).into_iter().rev() {
                if is_new {
                    self.dirs.remove(&dir)
                } else {
                    self.dirs.insert(dir)
                };
            }
            for (path, state) in undo.into_iter().rev() {
                self.replace(&path, state);
            }
        }
        made
    }

    /// Checks the text that a shell command printed against the known text, and takes over what differs.
    fn shown(&mut self, shown: &ShownText) {
        let known = self.text_of(&shown.path).unwrap_or_default();
        if let Some(text) = shown.whole() {
            // The agent may have cut off empty lines.
            let text = if known.trim() == text.trim() { known } else { text };
            self.whole(&shown.path, &text);
            return;
        }
        let skipped = known.split('\n').skip(usize::try_from(shown.first - 1).unwrap_or(usize::MAX));
        let cut = if shown.is_trimmed && !shown.text.starts_with('\n') {
            skipped.take_while(|line| line.trim().is_empty()).count() as u64
        } else {
            0
        };
        let first = shown.first.saturating_add(cut);
        self.part(&shown.path, first, &shown.text, shown.total_lines());
    }

    fn try_steps(&mut self, work: &ShellWork, undo: &mut Undo) -> Result<CallReplay, &'static str> {
        let mut steps = Vec::new();
        for step in &work.steps {
            self.shell_step(step, &mut steps, undo)?;
        }
        for (class, dir) in &work.programs {
            if !self.is_dir(dir) {
                return Err("a directory without known files");
            }
            let dir = self.place(dir)?;
            steps.push(match class {
                ProgramClass::VersionControl => FileStep::Walk(dir),
                ProgramClass::Build => FileStep::Search(dir),
            });
        }
        if steps.is_empty() {
            return Err("a command without files");
        }
        let is_model = !work.programs.is_empty();
        // Most commands have one step, and a list that grows takes the room of four.
        steps.shrink_to_fit();
        Ok(CallReplay::Steps { steps, is_model })
    }

    fn shell_step(&mut self, step: &ShellStep, steps: &mut Vec<FileStep>, undo: &mut Undo) -> Result<(), &'static str> {
        const UNKNOWN_DIR: &str = "a directory without known files";
        const UNKNOWN_FILE: &str = "a file that is not known";
        let is_file = |writer: &Self, path: &str| writer.state.contains_key(path);
        match step {
            ShellStep::Read(path) => {
                let known = is_file(self, path);
                steps.push(FileStep::Read(self.place_if(known, path, UNKNOWN_FILE)?));
            }
            ShellStep::Stat(path) => {
                let known = is_file(self, path) || self.is_dir(path);
                steps.push(FileStep::Stat(self.place_if(known, path, UNKNOWN_FILE)?));
            }
            ShellStep::List { path, .. } | ShellStep::Walk(path) if is_file(self, path) => {
                steps.push(FileStep::Stat(self.place(path)?));
            }
            ShellStep::List { path, attributes } => {
                let known = self.is_dir(path);
                let (path, attributes) = (self.place_if(known, path, UNKNOWN_DIR)?, *attributes);
                steps.push(FileStep::List { path, attributes });
            }
            ShellStep::Walk(path) => {
                let known = self.is_dir(path);
                steps.push(FileStep::Walk(self.place_if(known, path, UNKNOWN_DIR)?));
            }
            ShellStep::Search(path) if is_file(self, path) => {
                steps.push(FileStep::Read(self.place(path)?));
            }
            ShellStep::Search(path) => {
                let known = self.is_dir(path);
                steps.push(FileStep::Search(self.place_if(known, path, UNKNOWN_DIR)?));
            }
            ShellStep::Write { path, content } => {
                self.can_be(path)?;
                let place = self.place(path)?;
                let (written, shown) = self.disguise.content(content);
                let state = self.file_state(Some(content.clone()), true, shown);
                self.change(path, Some(state), undo);
                let evidence = Evidence::whole(line_count(content));
                self.evidence.insert(path.to_owned(), evidence);
                steps.push(FileStep::Write { path: place, content: written });
            }
            ShellStep::Append { path, content } => {
                self.can_be(path)?;
                let place = self.place(path)?;
                let (added, bytes) = self.disguise.content(content);
                let is_exact = self.state.get(path).is_none_or(|state| state.is_exact);
                let (original, shown) = match self.shown_of(path) {
                    Some(mut shown) => {
                        shown.extend(bytes);
                        (self.text_of(path).map(|text| text + content), shown)
                    }
                    None => (Some(content.clone()), bytes),
                };
                let state = self.file_state(original, is_exact, shown);
                self.change(path, Some(state), undo);
                steps.push(FileStep::Append { path: place, content: added });
            }
            ShellStep::Edit { path, replacements } => {
                let known = is_file(self, path);
                let place = self.place_if(known, path, UNKNOWN_FILE)?;
                self.note(path, undo);
                match self.edit(path, replacements, &[], false) {
                    Some((spans, _)) => steps.push(FileStep::Edit { path: place, spans }),
                    // A text to replace is in a part that the session does not show.
                    None => {
                        let known = self.applicable(path, replacements);
                        let edited = self.edit(path, &known, &[], false).filter(|_| !known.is_empty());
                        self.doubt(path);
                        self.evidence.entry(path.clone()).or_default().edit(&[]);
                        steps.push(match edited {
                            Some((spans, _)) => FileStep::Edit { path: place, spans },
                            None => FileStep::Rewrite(place),
                        });
                    }
                }
            }
            ShellStep::Patch { path, chunks } => {
                let known = is_file(self, path);
                let place = self.place_if(known, path, UNKNOWN_FILE)?;
                self.note(path, undo);
                let is_exact = self.state.get(path).is_some_and(|state| state.is_exact);
                let text = self.text_of(path).unwrap_or_default();
                let patched = patch::places(&text, chunks, is_exact);
                let edited =
                    if patched.places.is_empty() { None } else { self.replace_places(path, text, patched.places) };
                if !patched.is_whole {
                    // Lines to replace are in a part that the session does not show.
                    self.doubt(path);
                    self.evidence.entry(path.clone()).or_default().edit(&[]);
                }
                steps.push(match edited {
                    Some((spans, _)) => FileStep::Edit { path: place, spans },
                    None => FileStep::Rewrite(place),
                });
            }
            ShellStep::Rewrite(path) => {
                let known = is_file(self, path);
                let place = self.place_if(known, path, UNKNOWN_FILE)?;
                self.note(path, undo);
                self.doubt(path);
                self.evidence.entry(path.clone()).or_default().doubt();
                steps.push(FileStep::Rewrite(place));
            }
            ShellStep::EditLines { path, edits } => {
                let known = is_file(self, path);
                let place = self.place_if(known, path, UNKNOWN_FILE)?;
                self.note(path, undo);
                let is_exact = self.state.get(path).is_some_and(|state| state.is_exact);
                let hunks = self.text_of(path).and_then(|text| edited_lines(&text, edits));
                let edited = hunks.as_ref().and_then(|hunks| self.edit(path, &[], hunks, false));
                // Nothing to edit in a file that is known.
                let is_same = is_exact && hunks.is_some_and(|hunks| hunks.is_empty());
                if !is_exact || edited.is_none() && !is_same {
                    self.doubt(path);
                    self.evidence.entry(path.clone()).or_default().doubt();
                }
                steps.push(match edited {
                    Some((spans, _)) => FileStep::Edit { path: place, spans },
                    None => FileStep::Rewrite(place),
                });
            }
            ShellStep::Copy { from, to } | ShellStep::Move { from, to } => {
                let is_into = to == "." || self.dirs.contains(to);
                let is_move = matches!(step, ShellStep::Move { .. });
                self.transfer(from, to, (is_move, is_into), steps, undo)?;
            }
            ShellStep::Transfer { from, to, is_move, is_into } => {
                // The command has worked: its directory was there, even if the recording shows no file in it.
                self.transfer(from, to, (*is_move, *is_into), steps, undo)?;
            }
            ShellStep::Remove { path, force } => {
                let is_there = is_file(self, path) || self.is_dir(path);
                if !is_there && *force {
                    return Ok(());
                }
                if path == "." {
                    return Err("a removal of the whole workspace");
                }
                for path in self.tree(path)? {
                    let place = self.place(&path)?;
                    self.change(&path, None, undo);
                    steps.push(FileStep::Remove(place));
                }
                self.remove_dirs(path, steps)?;
            }
            ShellStep::MakeDir(path) => {
                if is_file(self, path) {
                    return Err("a file in place of a directory, or the other way round");
                }
                let mut above = path.match_indices('/').map(|(at, _)| &path[..at]);
                if above.any(|dir| self.state.contains_key(dir)) {
                    return Err("a file in place of a directory, or the other way round");
                }
                if path == "." {
                    return Ok(());
                }
                let place = self.place(path)?;
                self.make_dirs(&format!("{path}/"));
                steps.push(FileStep::MakeDir(place));
            }
            ShellStep::RemoveDir(path) => {
                if path == "." || !self.is_dir(path) {
                    return Err(UNKNOWN_DIR);
                }
                if !self.tree(path)?.is_empty() || self.dirs_below(path).len() > 1 {
                    return Err("a directory that is not empty");
                }
                self.remove_dirs(path, steps)?;
            }
            ShellStep::Touch(path) if is_file(self, path) || self.is_dir(path) => {
                steps.push(FileStep::Stat(self.place(path)?));
            }
            ShellStep::Touch(path) => {
                self.can_be(path)?;
                let place = self.place(path)?;
                let state = self.file_state(Some(String::new()), true, Vec::new());
                self.change(path, Some(state), undo);
                steps.push(FileStep::Create(place));
            }
        }
        Ok(())
    }

    /// Copies or moves a file or a tree to `to`, or into that directory.
    fn transfer(
        &mut self,
        from: &str,
        to: &str,
        (is_move, is_into): (bool, bool),
        steps: &mut Vec<FileStep>,
        undo: &mut Undo,
    ) -> Result<(), &'static str> {
        let name = from.rsplit('/').next().unwrap_or(from);
        let to = match (is_into, to) {
            (true, ".") => name.to_owned(),
            (true, to) => format!("{to}/{name}"),
            (false, to) => to.to_owned(),
        };
        let is_dir = !self.state.contains_key(from);
        if is_dir && format!("{to}/").starts_with(&format!("{from}/")) {
            return Err("a tree that is copied into itself");
        }
        let moved = |path: &str| match to.as_str() {
            "." => path[from.len()..].trim_start_matches('/').to_owned(),
            to => format!("{to}{}", &path[from.len()..]),
        };
        for old in self.tree(from)? {
            let to = moved(&old);
            self.can_be(&to)?;
            let state = self.state.get(&old).cloned();
            let (from, place) = (self.place(&old)?, self.place(&to)?);
            if is_move {
                self.change(&old, None, undo);
            }
            self.change(&to, state, undo);
            steps.push(if is_move { FileStep::Move { from, to: place } } else { FileStep::Copy { from, to: place } });
        }
        // Those with files are there with their files.
        for dir in self.dirs_below(from) {
            let to = moved(&dir);
            if !to.is_empty() && !self.is_dir(&to) {
                self.shell_step(&ShellStep::MakeDir(to), steps, undo)?;
            }
        }
        if is_move {
            self.remove_dirs(from, steps)?;
        }
        Ok(())
    }

    /// The file at a path, or the files below it.
    fn tree(&self, path: &str) -> Result<Vec<String>, &'static str> {
        if self.state.contains_key(path) {
            return Ok(vec![path.to_owned()]);
        }
        if path == "." || !self.is_dir(path) {
            return Err("a file that is not known");
        }
        let below = format!("{path}/");
        let files = self.state.range(below.clone()..).map(|(path, _)| path);
        let files = files.take_while(|path| path.starts_with(&below));
        let files: Vec<String> = files.take(TREE_MAX + 1).cloned().collect();
        if files.len() > TREE_MAX { Err("a tree of very many files") } else { Ok(files) }
    }

    /// The directories of a tree, each before those below it.
    fn dirs_below(&self, path: &str) -> Vec<String> {
        let below = format!("{path}/");
        let dirs = self.dirs.iter().filter(|dir| *dir == path || dir.starts_with(&below));
        let mut dirs: Vec<String> = dirs.cloned().collect();
        dirs.sort();
        dirs
    }

    /// Removes the directories of a tree without files.
    fn remove_dirs(&mut self, path: &str, steps: &mut Vec<FileStep>) -> Result<(), &'static str> {
        for dir in self.dirs_below(path).into_iter().rev() {
            steps.push(FileStep::RemoveDir(self.place(&dir)?));
            self.dirs.remove(&dir);
            self.changed_dirs.push((dir, false));
        }
        Ok(())
    }

    fn place(&mut self, path: &str) -> Result<WorkspacePath, &'static str> {
        WorkspacePath::new(self.disguise.path(path)).map_err(|_| "a name that no file can have")
    }

    fn place_if(&mut self, known: bool, path: &str, cause: &'static str) -> Result<WorkspacePath, &'static str> {
        if known { self.place(path) } else { Err(cause) }
    }

    fn note(&self, path: &str, undo: &mut Undo) {
        undo.push((path.to_owned(), self.state.get(path).cloned()));
    }

    fn change(&mut self, path: &str, state: Option<FileState>, undo: &mut Undo) {
        self.note(path, undo);
        self.evidence.insert(path.to_owned(), Evidence::whole(0));
        match state {
            Some(state) => self.put(path, state),
            None => {
                self.replace(path, None);
            }
        }
    }

    /// Records that the session no longer shows a file's content.
    fn doubt(&mut self, path: &str) {
        if let Some(state) = self.state.get_mut(path) {
            state.is_exact = false;
        }
    }

    /// Records that the file has `content` now. If the known state differs, this adds an external change.
    /// Returns whether it was the same.
    fn learn(&mut self, path: &str, content: &str) -> bool {
        if self.text_of(path).as_deref() == Some(content) {
            if let Some(state) = self.state.get_mut(path) {
                state.is_exact = true;
            }
            return true;
        }
        let (record, shown) = self.disguise.content(content);
        self.changed(path, Some(record));
        let state = self.file_state(Some(content.to_owned()), true, shown);
        self.put(path, state);
        false
    }

    /// Records that the file does not exist now.
    fn learn_absent(&mut self, path: &str) {
        if self.replace(path, None).is_some() {
            self.changed(path, None);
        }
    }

    fn changed(&mut self, path: &str, content: Option<TraceContent>) {
        let Ok(path) = WorkspacePath::new(self.disguise.path(path)) else {
            return;
        };
        self.events.push_back(Event::Ext(External {
            after: self.last_answered,
            path,
            content,
            why: self.last_exec.unwrap_or(ChangeCause::Unknown),
        }));
    }

    /// Applies an edit. Returns its spans, and the SHA-256 of the trace's file after it.
    fn edit(
        &mut self,
        path: &str,
        replacements: &[Replacement],
        hunks: &[Hunk],
        takes_newline: bool,
    ) -> Option<(Vec<Span>, String)> {
        let before = self.text_of(path)?;
        let places = best_places(&before, replacements, hunks, takes_newline)?;
        self.replace_places(path, before, places)
    }

    /// Replaces ranges of a file's text. Returns the spans of the edit, and the SHA-256 of the trace's file after it. `None` if
    /// the text is not known.
    fn replace_places(&mut self, path: &str, before: String, places: Places) -> Option<(Vec<Span>, String)> {
        let state = self.state.get(path).filter(|state| state.original.is_some())?;
        let is_exact = state.is_exact;
        let mut shown = self.shown_of(path)?;
        let (mut line, mut counted) = (0, 0);
        let changes = places.iter().map(|(at, old, new)| {
            line += newlines(&before[counted..*at]) as u64;
            counted = *at;
            LineChange { at: line, old: newlines(&before[*at..at + old]) as u64, new: newlines(new) as u64 }
        });
        self.evidence.entry(path.to_owned()).or_default().edit(&changes.collect::<Vec<_>>());
        let mut spans = Vec::with_capacity(places.len());
        // From the end, so that earlier offsets stay valid.
        let mut after = before;
        for (at, old, new) in places.into_iter().rev() {
            let (content, new_shown) = self.disguise.content(&new);
            shown.splice(at..at + old, new_shown);
            after.replace_range(at..at + old, &new);
            spans.push(Span { at: at as u64, old: old as u64, new: content });
        }
        spans.reverse();
        let digest = sha256(&shown);
        let state = self.file_state(Some(after), is_exact, shown);
        self.put(path, state);
        Some((spans, digest))
    }

    /// The replacements whose texts the file has, in turn.
    fn applicable(&mut self, path: &str, replacements: &[Replacement]) -> Vec<Replacement> {
        let text = self.text_of(path).unwrap_or_default();
        let mut missing = Vec::new();
        applied(&text, replacements, false, |index| {
            missing.push(index);
            Some(())
        });
        let known = replacements.iter().enumerate().filter(|(index, _)| !missing.contains(index));
        known.map(|(_, each)| each.clone()).collect()
    }

    /// Adds a result to each call without one, because a trace has no open calls but a truncated session may.
    fn close_open_calls(&mut self) {
        let mut open: Vec<u64> = self.calls.values().map(|call| call.index).collect();
        open.sort_unstable();
        for i in open {
            self.events.push_back(Event::Result(CallResult {
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

/// The lines after the changes from outside that `shown`, the lines from `start` on, tells of other lines. The places of `shown`
/// are there.
fn after_changes<'a>(mut lines: Vec<&'a str>, start: usize, shown: &[&str]) -> (Vec<&'a str>, Vec<LineChange>) {
    let known: Vec<(u64, &str)> = (0..).zip(lines.iter().copied()).collect();
    let changes = Alignment::new(&known, start as u64, shown).map(|found| found.changes).unwrap_or_default();
    for change in changes.iter().rev() {
        let at = change.at as usize;
        lines.splice(at..at + change.old as usize, std::iter::repeat_n("", change.new as usize));
    }
    // A file ends with a newline, unless a read tells otherwise.
    if lines.len() <= start + shown.len() {
        lines.resize(start + shown.len() + 1, "");
    }
    (lines, changes)
}

/// The tokens of a call in the model's output.
fn call_tokens(call: &RecordedCall) -> Result<u64, String> {
    if call.is_in_text {
        return Ok(0);
    }
    let args = call.args.load()?;
    let is_deep = args.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count() > PARSED_DEPTH;
    let input = if args.is_empty() || is_deep { Value::Object(call.arguments()?).to_string() } else { args };
    let name = Value::from(&*call.tool);
    Ok(tokens::count(&format!(r#"{{"name":{name},"input":{input}}}"#)))
}

/// The initial states of files that a result proves, each with whether it is certain that they are files.
fn said(call: &RecordedCall, result: &RecordedResult, seen: &SeenContent) -> Vec<(String, First, bool)> {
    let full = |content: &String| First::Full(SpilledValue::in_memory(content.clone()));
    match seen {
        SeenContent::Whole { path, content } => {
            vec![(path.clone(), full(content), true)]
        }
        SeenContent::Part { path, content, total_lines } => {
            let lines = line_count(content) as u64;
            let bytes = content.len() as u64 + 1;
            let all = u128::from(bytes) * u128::from(*total_lines) / u128::from(lines);
            let all = all.min(u128::from(PARTLY_SEEN_MAX)) as u64;
            let size = (all, total_lines.saturating_sub(1).min(all));
            vec![(path.clone(), First::Partial(Some(size)), true)]
        }
        SeenContent::Edited { path, before, .. } => {
            let state = before.as_ref().map_or(First::Partial(None), full);
            vec![(path.clone(), state, true)]
        }
        SeenContent::Patched { path, .. } | SeenContent::Replaced { path, .. } => {
            vec![(path.clone(), First::Partial(None), true)]
        }
        SeenContent::Written { path, before, .. } => {
            let state = before.as_ref().map_or(First::Absent, full);
            vec![(path.clone(), state, true)]
        }
        SeenContent::Listed(paths) => paths.iter().map(|path| (path.clone(), First::Partial(None), false)).collect(),
        SeenContent::Nothing | SeenContent::Printed(_) | SeenContent::PrintedEnd(_) => {
            match (&call.path, call.op, result.err) {
                (Some(path), Op::Read, Some(CallError::NotFound)) => {
                    vec![(path.clone(), First::Absent, false)]
                }
                (Some(path), Op::Read, None) => vec![(path.clone(), First::Partial(None), true)],
                _ => Vec::new(),
            }
        }
    }
}

/// The survey of a file, which begins with `state` if nothing was said of the file before.
fn state_once<'a>(
    surveys: &'a mut BTreeMap<String, Survey>,
    path: String,
    state: &First,
    is_certain: bool,
) -> &'a mut Survey {
    let survey = surveys.entry(path).or_insert_with(|| Survey {
        first: state.clone(),
        sketch: Sketch::new(),
        is_changed: false,
        is_certain: false,
    });
    survey.is_certain |= is_certain;
    survey
}

/// Adds the lines that a result shows to the sketch of its file.
fn sketch(surveys: &mut BTreeMap<String, Survey>, call: &RecordedCall, seen: &SeenContent) {
    match seen {
        SeenContent::Whole { path, content } => {
            if let Some(survey) = partly_known(surveys, path) {
                let lines = line_count(content) as u64;
                survey.sketch.part(1, content, Some(lines));
            }
        }
        SeenContent::Part { path, content, total_lines } => {
            if let Some(survey) = partly_known(surveys, path) {
                let first = call.range.map_or(1, |(first, _)| first);
                survey.sketch.part(first, content, Some(*total_lines));
            }
        }
        SeenContent::Patched { path, replacements, hunks } => {
            if let Some(survey) = surveys.get_mut(path) {
                survey.is_changed = true;
                if hunks.is_empty() {
                    survey.sketch.replace(replacements)
                } else {
                    survey.sketch.patch(hunks, has_tabs(replacements))
                }
            }
        }
        SeenContent::Edited { path, .. } | SeenContent::Written { path, .. } | SeenContent::Replaced { path, .. } => {
            if let Some(survey) = surveys.get_mut(path) {
                survey.is_changed = true;
                survey.sketch.close();
            }
        }
        SeenContent::Nothing | SeenContent::Printed(_) | SeenContent::PrintedEnd(_) | SeenContent::Listed(_) => {}
    }
}

/// A file of whose first content only parts are known. The content of others is not put together from parts.
fn partly_known<'a>(surveys: &'a mut BTreeMap<String, Survey>, path: &str) -> Option<&'a mut Survey> {
    let survey = surveys.get_mut(path);
    survey.filter(|survey| matches!(survey.first, First::Partial(_)))
}

impl Survey {
    /// Whether a state tells more of the file's first content.
    fn is_bettered_by(&mut self, state: &First) -> Result<bool, String> {
        Ok(match (&self.first, state) {
            (First::Partial(_), First::Full(text)) => self.can_be(&text.load()?),
            (First::Partial(None), First::Partial(Some(_))) => !self.is_changed,
            _ => false,
        })
    }

    /// Whether a whole text that a session shows can be the first content. If other lines were seen before, something has
    /// changed the file since then.
    fn can_be(&mut self, text: &str) -> bool {
        if !self.is_changed && !self.sketch.is_in(text) {
            self.close();
        }
        !self.is_changed
    }

    /// What a read shows of the file from now on is not its first content.
    fn close(&mut self) {
        self.is_changed = true;
        self.sketch.close();
    }
}

/// The surveyed paths below a directory.
fn surveyed_tree(surveys: &BTreeMap<String, Survey>, dir: &str) -> Vec<String> {
    let below = format!("{dir}/");
    let tree = surveys.range(below.clone()..).map(|(path, _)| path);
    tree.take_while(|path| path.starts_with(&below)).take(TREE_MAX).cloned().collect()
}

/// Adds what a copy or a move proves of initial files: its destinations are new, whether `to` is a name or a directory.
fn survey_transfer(surveys: &mut BTreeMap<String, Survey>, step: &ShellStep, from: &str, to: &str) {
    let name = from.rsplit('/').next().unwrap_or(from);
    let into = if to == "." { name.to_owned() } else { format!("{to}/{name}") };
    let (is_name, is_into) = match step {
        ShellStep::Transfer { is_into, .. } => (!is_into, *is_into),
        _ => (to != ".", true),
    };
    let is_move = matches!(step, ShellStep::Move { .. } | ShellStep::Transfer { is_move: true, .. });
    let tree = surveyed_tree(surveys, from);
    let destinations = [(is_name, to), (is_into, into.as_str())].into_iter().filter(|(may, _)| *may).map(|(_, to)| to);
    for to in destinations {
        for path in &tree {
            state_once(surveys, format!("{to}{}", &path[from.len()..]), &First::Absent, false);
        }
        // A known directory cannot be a file.
        if tree.is_empty() || surveyed_tree(surveys, to).is_empty() {
            state_once(surveys, to.to_owned(), &First::Absent, false).close();
        }
    }
    if is_move {
        for path in &tree {
            surveys.entry(path.clone()).and_modify(Survey::close);
        }
    }
    if tree.is_empty() {
        let survey = state_once(surveys, from.to_owned(), &First::Partial(None), false);
        if is_move {
            survey.close();
        }
    }
}

/// Adds what a shell command proves of initial files.
fn survey_shell(surveys: &mut BTreeMap<String, Survey>, work: &ShellWork) {
    let exists = First::Partial(None);
    for step in &work.steps {
        let (path, state, is_changed) = match step {
            ShellStep::Read(path) => (path, &exists, false),
            ShellStep::Edit { path, .. }
            | ShellStep::EditLines { path, .. }
            | ShellStep::Patch { path, .. }
            | ShellStep::Rewrite(path) => (path, &exists, true),
            ShellStep::Remove { path, force: false } => (path, &exists, true),
            ShellStep::Write { path, .. }
            | ShellStep::Append { path, .. }
            | ShellStep::Touch(path)
            | ShellStep::Remove { path, force: true } => (path, &First::Absent, true),
            ShellStep::MakeDir(path) => {
                state_once(surveys, path.clone(), &First::Absent, false);
                continue;
            }
            ShellStep::Copy { from, to } | ShellStep::Move { from, to } | ShellStep::Transfer { from, to, .. } => {
                survey_transfer(surveys, step, from, to);
                continue;
            }
            _ => continue,
        };
        let is_certain = !matches!(step, ShellStep::Remove { .. });
        if matches!(step, ShellStep::Remove { .. }) {
            let tree = surveyed_tree(surveys, path);
            for below in &tree {
                surveys.entry(below.clone()).and_modify(Survey::close);
            }
            if !tree.is_empty() {
                continue;
            }
        }
        let survey = state_once(surveys, path.clone(), state, is_certain);
        if is_changed {
            survey.is_changed = true;
            match step {
                ShellStep::Edit { replacements, .. } if matches!(survey.first, First::Partial(_)) => {
                    survey.sketch.replace(replacements);
                }
                ShellStep::Patch { chunks, .. } if matches!(survey.first, First::Partial(_)) => {
                    let replacements: Vec<Replacement> = chunks.iter().flat_map(PatchChunk::replacements).collect();
                    survey.sketch.replace(&replacements);
                }
                // What changed is seen in the next read.
                ShellStep::Edit { .. }
                | ShellStep::EditLines { .. }
                | ShellStep::Patch { .. }
                | ShellStep::Rewrite(_) => {}
                _ => survey.sketch.close(),
            }
        }
    }
    for (path, size) in &work.listed {
        let size = size.map(|bytes| {
            let bytes = bytes.min(PARTLY_SEEN_MAX);
            (bytes, bytes / UNSEEN_LINE_BYTES)
        });
        let survey = state_once(surveys, path.clone(), &First::Partial(size), false);
        if !survey.is_changed && matches!(survey.first, First::Partial(None)) {
            survey.first = First::Partial(size);
        }
    }
}

/// Removes the files below which others are: the less certain of two that exclude each other.
fn remove_directories(surveys: &mut BTreeMap<String, Survey>) {
    // No file has a longer path, and to look up every directory above one takes minutes.
    surveys.retain(|path, _| path.len() <= LONGEST);
    let is_there = |survey: &Survey| !matches!(survey.first, First::Absent);
    let mut wrong = HashSet::new();
    for (path, survey) in surveys.iter() {
        for (at, _) in path.match_indices('/') {
            let above = &path[..at];
            let Some(file) = surveys.get(above).filter(|file| is_there(file)) else {
                continue;
            };
            if survey.is_certain && !file.is_certain {
                wrong.insert(above.to_owned());
            } else if is_there(survey) {
                wrong.insert(path.clone());
            }
        }
    }
    surveys.retain(|path, _| path != "." && !wrong.contains(path));
}

/// The median size of the files with known content, in bytes.
fn median_size(surveys: &BTreeMap<String, Survey>) -> u64 {
    let mut sizes: Vec<u64> = surveys
        .values()
        .filter_map(|survey| match &survey.first {
            First::Full(text) => Some(text.bytes() as u64),
            _ => None,
        })
        .collect();
    sizes.sort_unstable();
    sizes.get(sizes.len() / 2).copied().unwrap_or(UNSEEN_BYTES)
}

/// Whether an edit that replaces a text by nothing also removes the newline behind it, as Claude Code's does.
fn takes_newline(call: &RecordedCall) -> bool {
    matches!(&*call.tool, "Edit" | "MultiEdit")
}

/// What a call does that does not work on files.
fn without_files(op: Op) -> Option<&'static str> {
    match op {
        Op::Plan => Some("a plan"),
        Op::Net => Some("a call of the network"),
        Op::Agent => Some("a call of another agent"),
        _ => None,
    }
}

fn works_on_files(op: Op) -> bool {
    matches!(op, Op::Read | Op::Write | Op::Edit | Op::List | Op::Search)
}

/// The lines that edits change in a text, each as a place; `None` if one of them is the last and has no newline.
fn edited_lines(text: &str, edits: &[LineEdit]) -> Option<Vec<Hunk>> {
    let mut hunks = Vec::new();
    let mut lines = text.split_inclusive('\n').peekable();
    let mut number = 0;
    while let Some(line) = lines.next() {
        number += 1;
        let old = line.strip_suffix('\n').unwrap_or(line);
        let new = LineEdit::edited(edits, number, old, lines.peek().is_none());
        if new == [old] {
            continue;
        }
        if !line.ends_with('\n') {
            return None;
        }
        let removed = format!("-{old}");
        let lines = [removed].into_iter().chain(new.iter().map(|new| format!("+{new}")));
        hunks.push(Hunk { first: number, lines: lines.collect() });
    }
    Some(hunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_any_stated_number_of_lines_has_a_bounded_size() {
        let call = RecordedCall::new("c".to_owned(), 0, "main".into(), "Read".into(), Op::Read, 0);
        let result = RecordedResult {
            id: "c".to_owned(),
            err: None,
            shown: String::new().into(),
            seen: SeenContent::Nothing.into(),
            is_unfinished: false,
        };
        let seen = SeenContent::Part { path: "a".to_owned(), content: "some text".to_owned(), total_lines: u64::MAX };
        let sizes = said(&call, &result, &seen);
        let [(_, First::Partial(Some((bytes, lines))), true)] = sizes[..] else {
            panic!("{sizes:?}");
        };
        assert_eq!((bytes, lines), (PARTLY_SEEN_MAX, PARTLY_SEEN_MAX));
    }

    #[test]
    fn a_path_that_is_too_long_for_a_file_is_no_file_at_the_start() {
        let mut surveys = BTreeMap::new();
        for path in ["a/b".to_owned(), "a/".repeat(LONGEST / 2), "a/".repeat(LONGEST / 2 + 1)] {
            state_once(&mut surveys, path, &First::Partial(None), true);
        }
        remove_directories(&mut surveys);
        let mut lengths: Vec<usize> = surveys.keys().map(String::len).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [3, LONGEST]);
    }
}
