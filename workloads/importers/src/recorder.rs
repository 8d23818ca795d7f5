//! Builds a session from the parts that most formats have: messages, answers, tool calls with JSON arguments, and
//! results as text. What a call did to files follows from its tool, arguments and result: [`super::tools`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claude_code::signed_bytes;
use super::identities::{Identities, ResultCall, SourceCall};
use super::json::stated_dollars;
use super::records::Damage;
use super::tools::{self, Meaning};
use super::{
    Clock, CopiedHistory, Hunk, ImportedSession, RecordedCall, RecordedEvent, RecordedResult, ReportedTotal,
    SeenContent, UnplacedUsage,
};
use session_traces::names::SessionNames;
use session_traces::roots::{Roots, common_directory};
use session_traces::spill::{Spill, SpilledText, SpilledValue};
use session_traces::spillable;
use shell::path::is_absolute;
use shell::{Platform, Replacement, ShellCommand, ShellStep};
use tokens::BilledUsage;
use workloads::trace::{CallError, Extra, MAIN_LANE, Op, TokenUsage};

/// The number of items after which the memory of items that became events is given back.
const ITEMS_FREED: usize = 1 << 14;

/// Collects the events of one session, in order.
pub(super) struct Recorder {
    session: ImportedSession,
    spill: Spill,
    items: Vec<Item>,
    /// Directories that the session names; the first one is the workspace.
    dirs: Vec<String>,
    clock: Clock,
    at: u64,
    names: SessionNames,
    model: Arc<str>,
    lane: Arc<str>,
    /// The index in `items` of the answer that the model is giving.
    open: Option<usize>,
    /// The index in `items` of the last answer.
    last: Option<usize>,
    /// Results that follow at the end of the open answer.
    held: Vec<(ResultCall, Answer)>,
    answers: u64,
    has_model: bool,
    identities: Identities,
    /// Results that came before a call of their identity: the identity in the source, and the index in `items`.
    early: Vec<(String, usize)>,
    /// The sum of the dollars that the source states for each call of the model.
    dollars: f64,
    /// Tokens of another session's history in the first prompt.
    inherited: u64,
}

enum Item {
    Event(RecordedEvent),
    Call(RawCall),
    /// A result, with the identity of its call, or with `None` if no call is known.
    Result {
        id: Option<String>,
        answer: KeptAnswer,
        is_main: bool,
    },
}

/// The result of a call outside of memory.
#[derive(Clone)]
struct KeptAnswer {
    shown: SpilledValue<String>,
    /// Where in `shown` what was printed begins, if `shown` ends with it. Then it is not in `others`.
    printed_at: Option<usize>,
    /// The answer without `shown`.
    others: SpilledValue<Answer>,
}

impl KeptAnswer {
    fn new(mut answer: Answer, spill: &mut Spill) -> Self {
        let shown = std::mem::take(&mut answer.shown);
        let printed = answer.printed.take_if(|printed| shown.ends_with(&**printed));
        let printed_at = printed.map(|printed| shown.len() - printed.len());
        Self { shown: spill.keep(shown), printed_at, others: spill.keep(answer) }
    }

    /// The answer, without what `printed_at` tells.
    fn load(&self) -> Result<Answer, String> {
        Ok(Answer { shown: self.shown.load()?, ..self.others.load()? })
    }
}

/// Where the result of a call is.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResultPlace(usize);

/// The result of a call, as the source has it.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The text that the agent saw.
    pub(super) shown: String,
    /// The output of the program or the content of the file in that text, if it contains more.
    pub(super) printed: Option<String>,
    /// Whether the call failed.
    pub(super) failed: bool,
    /// The file's content before an edit or a write, if the source has it.
    pub(super) before: Option<String>,
    /// Its content after it, if the source has it.
    pub(super) after: Option<String>,
    /// The lines that an edit replaces by their numbers, if it does.
    pub(super) hunks: Vec<Hunk>,
    /// The file that a patch changed, if it is the only one and the source has both contents, or added, if it has the new one.
    pub(super) patched: Option<String>,
}

spillable!(Answer);

struct RawCall {
    id: String,
    api: u64,
    lane: Arc<str>,
    tool: Arc<str>,
    /// The arguments as JSON.
    args: SpilledValue<String>,
    dir: Option<Arc<str>>,
    is_in_text: bool,
    at: u64,
}

impl Recorder {
    /// A session of this agent.
    pub(super) fn new(agent: impl Into<String>) -> Self {
        let mut names = SessionNames::default();
        Self {
            model: names.shared(""),
            lane: names.shared(MAIN_LANE),
            names,
            session: ImportedSession { agent: agent.into(), ..ImportedSession::default() },
            spill: Spill::default(),
            items: Vec::new(),
            dirs: Vec::new(),
            clock: Clock::default(),
            at: 0,
            open: None,
            last: None,
            held: Vec::new(),
            answers: 0,
            has_model: true,
            identities: Identities::default(),
            early: Vec::new(),
            dollars: 0.0,
            inherited: 0,
        }
    }

    /// A recording that holds tool calls, but no answer of a model.
    pub(super) fn without_model(agent: impl Into<String>) -> Self {
        Self { has_model: false, ..Self::new(agent) }
    }

    /// Sets the agent and its version.
    pub(super) fn agent(&mut self, agent: String) {
        self.session.agent = agent;
    }

    /// The source's own name of the session. The first one counts.
    pub(super) fn identity(&mut self, id: &str) {
        if self.session.identity.is_empty() {
            id.clone_into(&mut self.session.identity);
        }
    }

    /// Sets the system prompt.
    pub(super) fn system(&mut self, text: &str) {
        if self.session.system.is_none() && !text.is_empty() {
            self.session.system = Some(text.to_owned());
        }
    }

    /// Declares that the system prompt is the whole prompt before the first message.
    pub(super) fn prompt_is_whole(&mut self) {
        self.session.is_whole_prompt = true;
    }

    /// Sets the time of what follows, in milliseconds since the Unix epoch.
    pub(super) fn time(&mut self, milliseconds: Option<i64>) {
        if milliseconds.is_some() {
            self.at = self.clock.at(milliseconds);
        }
    }

    /// Sets the model of the answers that follow.
    pub(super) fn model(&mut self, model: &str) {
        if model.is_empty() || *model == *self.model {
            return;
        }
        if self.session.model.is_empty() {
            self.session.model = model.to_owned();
        }
        self.model = self.names.shared(model);
        if let Some(Item::Event(RecordedEvent::Api { model: of, .. })) =
            self.open.and_then(|open| self.items.get_mut(open))
            && of.is_empty()
        {
            *of = Arc::clone(&self.model);
        }
    }

    /// Names a directory in which the session works; the first one is the workspace.
    pub(super) fn directory(&mut self, dir: &str) {
        if !dir.is_empty() && !self.dirs.iter().any(|known| known == dir) {
            self.dirs.push(dir.to_owned());
        }
    }

    /// Sets the lane of what follows: `None` for the agent that the user talks to.
    pub(super) fn lane(&mut self, subagent: Option<&str>) {
        let lane = match subagent {
            Some(id) => self.names.shared(&format!("sub:{id}")),
            None => self.names.shared(MAIN_LANE),
        };
        if lane != self.lane {
            self.end_answer();
            self.lane = lane;
        }
    }

    /// A message of the user; of a subagent, the message is the caller's.
    pub(super) fn user(&mut self, text: &str) {
        self.end_answer();
        if *self.lane == *MAIN_LANE && !text.is_empty() {
            let text = self.spill.keep(text.to_owned());
            self.items.push(Item::Event(RecordedEvent::User { text, by_client: false, images: 0 }));
        }
    }

    /// A text that the client adds to the context, as if the user had said it.
    pub(super) fn reminder(&mut self, text: String) {
        self.end_answer();
        if *self.lane == *MAIN_LANE && !text.is_empty() {
            let text = self.spill.keep(text);
            self.items.push(Item::Event(RecordedEvent::User { text, by_client: true, images: 0 }));
        }
    }

    /// The model begins an answer.
    pub(super) fn answer(&mut self) {
        self.end_answer();
        if !self.has_model {
            return;
        }
        self.open = Some(self.items.len());
        self.last = self.open;
        self.answers += 1;
        self.items.push(Item::Event(RecordedEvent::Api {
            at: self.at,
            usage: TokenUsage::default(),
            model: Arc::clone(&self.model),
            lane: Arc::clone(&self.lane),
            text: SpilledText::default(),
            thinking: SpilledText::default(),
            thinking_bytes: 0,
        }));
    }

    /// Ends the answer: what follows belongs to the next one.
    pub(super) fn end_answer(&mut self) {
        self.open = None;
        for (call, answer) in std::mem::take(&mut self.held) {
            self.add_result("", call, answer);
        }
    }

    fn continue_answer(&mut self) {
        if self.open.is_none() {
            self.answer();
        }
    }

    /// Text of an answer, and thinking.
    pub(super) fn said(&mut self, more: &str, more_thinking: &str) {
        if more.is_empty() && more_thinking.is_empty() {
            return;
        }
        self.continue_answer();
        let open = self.open.and_then(|open| self.items.get_mut(open));
        if let Some(Item::Event(RecordedEvent::Api { text, thinking, .. })) = open {
            text.append(more, &mut self.spill);
            thinking.append(more_thinking, &mut self.spill);
        }
    }

    /// The signature of an answer's thinking, whose text may be a summary or missing. Only that of Claude tells the size:
    /// other models' is an identity, or holds more than the thinking.
    pub(super) fn signed(&mut self, signature: &str) {
        if signature.is_empty() || !self.model.contains("claude") {
            return;
        }
        self.continue_answer();
        let open = self.open.and_then(|open| self.items.get_mut(open));
        if let Some(Item::Event(RecordedEvent::Api { thinking_bytes, .. })) = open {
            *thinking_bytes += signed_bytes(signature.len() as u64);
        }
    }

    /// The reported usage of the last answer, which is one call of the model. A second report begins another answer, which has nothing but its usage.
    pub(super) fn usage(&mut self, reported: TokenUsage) {
        if reported == TokenUsage::default() {
            return;
        }
        let unreported = |item: &Item| match item {
            Item::Event(RecordedEvent::Api { usage, .. }) => *usage == TokenUsage::default(),
            _ => false,
        };
        let last = self.last.filter(|last| self.items.get(*last).is_some_and(unreported));
        if last.is_none() {
            self.answer();
        }
        let last = self.last.and_then(|last| self.items.get_mut(last));
        if let Some(Item::Event(RecordedEvent::Api { usage, .. })) = last {
            *usage = reported;
        }
    }

    /// Reported usage of none of the answers: of one more call of the model, or the sum over several calls.
    pub(super) fn unplaced(&mut self, tokens: BilledUsage<TokenUsage>) {
        if *tokens.tokens() != TokenUsage::default() {
            self.session.unplaced.push(UnplacedUsage { at: self.at, model: self.model.to_string(), tokens });
        }
    }

    /// A tool call of the answer. `dir` is the directory that the call names for itself. A source may repeat its history: one
    /// call with the same identity, tool and arguments counts once. With others, it is another call.
    pub(super) fn call(&mut self, id: &str, tool: &str, args: Value, dir: Option<&str>) {
        let json = args.to_string();
        let own = self.identities.call(&self.source_call(id, tool, &args, &json));
        if let Some(own) = own {
            self.add_call(own, tool, json, dir, false);
        }
    }

    /// A tool call of a source that does not repeat its history. Returns its identity here; [`Recorder::result`] finds it by
    /// that of the source, too.
    pub(super) fn new_call(&mut self, id: &str, tool: &str, args: Value, dir: Option<&str>) -> String {
        let json = args.to_string();
        let own = self.identities.new_call(&self.source_call(id, tool, &args, &json));
        self.add_call(own.clone(), tool, json, dir, false);
        own
    }

    /// The same, of a call that the model wrote in its text.
    pub(super) fn new_call_in_text(&mut self, id: &str, tool: &str, args: Value, dir: Option<&str>) -> String {
        let json = args.to_string();
        let own = self.identities.new_call(&self.source_call(id, tool, &args, &json));
        self.add_call(own.clone(), tool, json, dir, true);
        own
    }

    fn source_call<'a>(&self, id: &'a str, tool: &'a str, args: &'a Value, json: &'a str) -> SourceCall<'a> {
        let (answer, last_answer) = if self.has_model {
            (self.answers + u64::from(self.open.is_none()), self.answers)
        } else {
            // Requests to a server belong to no answer: the last one with an identity is that of the result.
            (self.items.len() as u64, self.items.len() as u64)
        };
        SourceCall { id, origin: "", answer, last_answer, tool, args, json }
    }

    fn add_call(&mut self, id: String, tool: &str, args: String, dir: Option<&str>, in_text: bool) {
        if self.has_model {
            self.continue_answer();
        }
        self.items.push(Item::Call(RawCall {
            id,
            api: self.answers.saturating_sub(1),
            lane: Arc::clone(&self.lane),
            tool: self.names.shared(tool),
            args: self.spill.keep(args),
            dir: dir.map(|dir| self.names.shared(dir)),
            is_in_text: in_text,
            at: self.at,
        }));
    }

    /// The result of a call, as the agent saw it.
    pub(super) fn result(&mut self, id: &str, shown: impl Into<String>, failed: bool) {
        self.answered(id, Answer { shown: shown.into(), failed, ..Answer::default() });
    }

    /// The result of a call of the open answer, which may make more calls: the result follows at its end.
    pub(super) fn answered_at_end(&mut self, id: &str, answer: Answer) {
        let call = self.identities.result(id);
        self.held.push((call, answer));
    }

    /// The result of a call. Returns its place, for [`Recorder::ended`].
    pub(super) fn answered(&mut self, id: &str, answer: Answer) -> ResultPlace {
        self.open = None;
        let call = self.identities.result(id);
        self.add_result(id, call, answer)
    }

    fn add_result(&mut self, id: &str, call: ResultCall, answer: Answer) -> ResultPlace {
        let place = self.items.len();
        let call = match call {
            ResultCall::Call(own) => Some(own),
            ResultCall::Answered => return ResultPlace(usize::MAX),
            ResultCall::Unknown => {
                self.early.push((id.to_owned(), place));
                None
            }
        };
        let answer = KeptAnswer::new(answer, &mut self.spill);
        self.items.push(Item::Result { id: call, answer, is_main: *self.lane == *MAIN_LANE });
        ResultPlace(place)
    }

    /// A call whose result said that its program was running has ended: what the program has printed in all, and whether
    /// it failed. What the agent saw at the time stays.
    pub(super) fn ended(&mut self, place: ResultPlace, printed: String, failed: bool) {
        let others = self.spill.keep(Answer { printed: Some(printed), failed, ..Answer::default() });
        if let Some(Item::Result { answer, .. }) = self.items.get_mut(place.0) {
            answer.others = others;
            answer.printed_at = None;
        }
    }

    /// Tokens and dollars that the source states for the whole session.
    pub(super) fn total(&mut self, total: ReportedTotal) {
        let dollars = total.dollars.and_then(stated_dollars);
        self.session.totals.push(ReportedTotal { dollars, ..total });
    }

    /// Dollars that the source states for calls of the model. Their sum becomes a total.
    pub(super) fn cost(&mut self, dollars: &Value) {
        self.dollars += dollars.as_f64().and_then(stated_dollars).unwrap_or(0.0);
    }

    /// The history of another session with which this one begins: what is left out of it, and the tokens that it has in the
    /// first prompt.
    pub(super) fn history(&mut self, history: CopiedHistory, tokens: u64) {
        self.session.history = history;
        self.inherited = tokens;
    }

    /// A compaction of the context.
    pub(super) fn compact(&mut self, pre_tok: u64) {
        self.end_answer();
        self.items.push(Item::Event(RecordedEvent::Compact { pre_tok }));
    }

    /// Counts lines that could not be read, or only after a repair.
    pub(super) fn unreadable(&mut self, damage: Damage) {
        self.session.unreadable_lines += damage.unreadable;
        self.session.mended_lines += damage.mended;
    }

    /// Counts a record whose type the importer does not know.
    pub(super) fn unknown(&mut self, kind: Option<&str>) {
        self.session.count_unknown(kind);
    }

    /// Whether anything was recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The session.
    pub(super) fn finish(mut self) -> ImportedSession {
        self.end_answer();
        if self.dollars > 0.0 {
            self.total(ReportedTotal { dollars: Some(self.dollars), ..ReportedTotal::default() });
        }
        self.session.started_ms = self.clock.0;
        for (id, place) in std::mem::take(&mut self.early) {
            // The identity of a call that another one had before is of another part of the session.
            if let ResultCall::Call(own) = self.identities.result(&id)
                && own == id
                && let Some(Item::Result { id, .. }) = self.items.get_mut(place)
            {
                *id = Some(own);
            }
        }
        let items = std::mem::take(&mut self.items);
        if self.inherited > 0 {
            self.session.events.push(RecordedEvent::Inherited { tokens: self.inherited });
        }
        if let Err(error) = self.place(items) {
            self.session.lost = Some(error);
        }
        self.session
    }

    /// Turns what was collected into events, now that all directories are known.
    fn place(&mut self, items: Vec<Item>) -> Result<(), String> {
        // A call is understood with its result. The result keeps its place.
        let mut results: HashMap<String, KeptAnswer> = HashMap::new();
        for item in &items {
            if let Item::Result { id: Some(id), answer, .. } = item {
                results.insert(id.clone(), answer.clone());
            }
        }
        let session = &mut self.session;
        let mut main = self.dirs.first().cloned().unwrap_or_default();
        for dir in &self.dirs {
            session.roots.add(dir);
        }
        for item in &items {
            if let Item::Call(call) = item
                && let Some(answer) = results.get(&call.id).filter(|_| tools::lists_directories(&call.tool))
            {
                for dir in tools::allowed_directories(&answer.shown.load()?) {
                    session.roots.add(dir);
                    if main.is_empty() {
                        dir.clone_into(&mut main);
                    }
                }
            }
        }
        // A directory to which a command goes is a directory of the session.
        let (mut paths, mut of_commands) = (Vec::new(), Vec::new());
        let mut changed: HashSet<String> = HashSet::new();
        for item in &items {
            let Item::Call(call) = item else {
                continue;
            };
            // The directories of a command do not depend on its result.
            let (meaning, _) = understood(call, results.get(&call.id).filter(|_| main.is_empty()))?;
            if matches!(meaning.op, Op::Write | Op::Edit) {
                changed.extend(meaning.path.clone());
            }
            paths.extend(meaning.path);
            if let Some((line, platform)) = meaning.command {
                let from = call.dir.as_deref().unwrap_or(&main);
                let platform = platform.unwrap_or_else(|| system_shell(&line, &session.roots));
                let command = ShellCommand { cwd: session.roots.absolute(&main, from), line, platform };
                if main.is_empty() {
                    let work = shell::operations(&command, "", true);
                    of_commands.extend(work.steps.iter().flat_map(ShellStep::paths).map(str::to_owned));
                } else {
                    shell::directories(&command).iter().for_each(|dir| session.roots.add(dir));
                }
            }
        }
        if session.roots.is_empty() {
            let all = || paths.iter().chain(&of_commands).map(String::as_str);
            // A relative path of a command is in a directory that is not stated.
            let common = common_directory(paths.iter().map(String::as_str));
            if let Some(dir) = common.or_else(|| common_directory(all()).filter(|_| all().all(is_absolute))) {
                session.roots.add(&dir);
                main = dir;
            }
        } else {
            session.roots.add_elsewhere(paths.iter().map(String::as_str));
        }
        // Tools that read a file list a directory, too. A path with others below it is one.
        let mut directories: HashSet<String> = HashSet::new();
        for path in &paths {
            let ends = path.match_indices(['/', '\\']).map(|(end, _)| &path[..end]);
            directories.extend(ends.filter(|dir| !changed.contains(*dir)).map(str::to_owned));
        }
        let mut seen: HashMap<String, (Option<CallError>, SpilledValue<SeenContent>)> = HashMap::new();
        // Results that stand before their call follow it.
        let mut early: HashMap<String, SpilledValue<String>> = HashMap::new();
        // Events take the room of the items that they come from.
        let mut items = items;
        items.reverse();
        while let Some(item) = items.pop() {
            if items.len().is_multiple_of(ITEMS_FREED) {
                items.shrink_to_fit();
            }
            match item {
                Item::Event(event) => session.events.push(event),
                Item::Call(call) => {
                    let (mut meaning, args) = understood(&call, results.get(&call.id))?;
                    let is_directory =
                        meaning.path.as_deref().is_some_and(|path| directories.contains(path.trim_end_matches('/')));
                    if meaning.op == Op::Read && is_directory {
                        meaning = Meaning { op: Op::List, path: meaning.path, err: meaning.err, ..Meaning::default() };
                    }
                    let from = call.dir.as_deref().unwrap_or(&main);
                    let from = session.roots.absolute(&main, from);
                    let place = |roots: &mut Roots, path: &str| {
                        let path = path.strip_prefix("file://").unwrap_or(path);
                        let path = roots.absolute(&from, path);
                        roots.place(&path)
                    };
                    let path = meaning.path.as_deref();
                    let path = path.and_then(|path| place(&mut session.roots, path));
                    let shows = placed(meaning.seen, path.as_deref(), |path| place(&mut session.roots, path));
                    let result = (meaning.err, self.spill.keep(shows));
                    let args = match args {
                        Value::Object(_) => call.args,
                        Value::Null => SpilledValue::default(),
                        other => {
                            let input = Extra::from_iter([("input".to_owned(), other)]);
                            self.spill.keep(Value::Object(input).to_string())
                        }
                    };
                    let shell = meaning.command.map(|(line, platform)| {
                        let platform = match platform {
                            // OpenCode's tool `bash` runs PowerShell there.
                            Some(Platform::Posix) if session.roots.is_windows() && shell::is_powershell(&line) => {
                                Platform::PowerShell
                            }
                            Some(platform) => platform,
                            None => system_shell(&line, &session.roots),
                        };
                        ShellCommand { line, cwd: from, platform }
                    });
                    let id = call.id.clone();
                    session.events.push(RecordedEvent::Call(RecordedCall {
                        path,
                        range: meaning.range,
                        recursive: meaning.recursive,
                        args,
                        is_in_text: call.is_in_text,
                        shell: shell.map(|shell| self.spill.keep(shell)),
                        ..RecordedCall::new(call.id, call.api, call.lane, call.tool, meaning.op, call.at)
                    }));
                    match (early.remove(&id), result) {
                        (Some(shown), (err, seen)) => {
                            session.events.push(finished(id, err, shown, seen));
                        }
                        (None, result) => {
                            seen.insert(id, result);
                        }
                    }
                }
                Item::Result { id: Some(id), answer, .. } => match seen.remove(&id) {
                    Some((err, seen)) => {
                        session.events.push(finished(id, err, answer.shown, seen));
                    }
                    None => {
                        early.insert(id, answer.shown);
                    }
                },
                Item::Result { id: None, answer, is_main } => {
                    session.results_without_call += 1;
                    if is_main && self.has_model {
                        let text = answer.shown;
                        session.events.push(RecordedEvent::User { text, by_client: true, images: 0 });
                    }
                }
            }
        }
        Ok(())
    }
}

/// The result of a call that has ended.
fn finished(
    id: String,
    err: Option<CallError>,
    shown: SpilledValue<String>,
    seen: SpilledValue<SeenContent>,
) -> RecordedEvent {
    RecordedEvent::Result(RecordedResult { id, err, shown, seen, is_unfinished: false })
}

/// What a call did, by its result; and its arguments.
fn understood(call: &RawCall, answer: Option<&KeptAnswer>) -> Result<(Meaning, Value), String> {
    let args = serde_json::from_str(&call.args.load()?).map_err(|error| error.to_string())?;
    let meaning = match answer {
        None => tools::meaning(&call.tool, &args, None),
        Some(answer) => with_answer(call, &args, answer.load()?, answer.printed_at),
    };
    Ok((meaning, args))
}

/// The language of a command for the system's own shell.
fn system_shell(line: &str, roots: &Roots) -> Platform {
    if roots.is_windows() { shell::windows_platform(line) } else { Platform::Posix }
}

fn with_answer(call: &RawCall, args: &Value, mut answer: Answer, printed_at: Option<usize>) -> Meaning {
    let printed = answer.printed.take();
    let end = printed_at.and_then(|at| answer.shown.get(at..));
    let text = printed.as_deref().or(end).unwrap_or(&answer.shown);
    let mut meaning = tools::meaning(&call.tool, args, Some((text, answer.failed)));
    if let (Some(path), None, true) = (answer.patched.take(), meaning.err, meaning.command.is_some()) {
        meaning = match (&answer.before, answer.after.take()) {
            (None, Some(content)) => {
                let seen = SeenContent::Written { path: path.clone(), before: None, content };
                Meaning { op: Op::Write, path: Some(path), seen, ..Meaning::default() }
            }
            (_, after) => {
                answer.after = after;
                Meaning { op: Op::Edit, path: Some(path), ..Meaning::default() }
            }
        };
    }
    let is_edit = meaning.op == Op::Edit && meaning.err.is_none();
    match (&mut meaning.seen, &answer.after) {
        (SeenContent::Edited { replacements, .. }, Some(after)) if answer.before.is_none() => {
            answer.before = undone(after, replacements);
        }
        (SeenContent::Written { content, .. }, Some(after)) => content.clone_from(after),
        _ => {}
    }
    if let (true, Some(path), Some(before), Some(after)) = (is_edit, &meaning.path, &answer.before, answer.after.take())
    {
        // The second of two steps changes nothing: the timeline narrows both to the difference.
        let step = |old: &str| Replacement { old: old.to_owned(), new: after.clone(), all: false };
        let replacements = vec![step(before), step(&after)];
        meaning.seen = SeenContent::Edited { path: path.clone(), before: None, replacements, hunks: Vec::new() };
    }
    if let (true, Some(path), false) = (is_edit, &meaning.path, answer.hunks.is_empty()) {
        let hunks = std::mem::take(&mut answer.hunks);
        let replacements = match std::mem::take(&mut meaning.seen) {
            SeenContent::Edited { replacements, .. } => replacements,
            _ => Vec::new(),
        };
        meaning.seen = SeenContent::Patched { path: path.clone(), replacements, hunks };
    }
    match &mut meaning.seen {
        SeenContent::Edited { before, .. } | SeenContent::Written { before, .. } => {
            *before = answer.before.take();
        }
        SeenContent::Nothing if meaning.command.is_some() => {
            meaning.seen = match (printed, end) {
                (Some(printed), _) => SeenContent::Printed(printed),
                (None, Some(end)) => SeenContent::PrintedEnd(end.len()),
                (None, None) => SeenContent::Nothing,
            };
        }
        _ => {}
    }
    meaning
}

/// The file before an edit, by the file after it: the texts that the edit has put there are taken back, if each is there once.
fn undone(after: &str, replacements: &[Replacement]) -> Option<String> {
    let mut text = after.to_owned();
    let in_file = |part: &str| {
        if after.contains("\r\n") { part.replace("\r\n", "\n").replace('\n', "\r\n") } else { part.to_owned() }
    };
    for each in replacements.iter().rev() {
        let (old, new) = (in_file(&each.old), in_file(&each.new));
        let (mut old, mut new) = (old.as_str(), new.as_str());
        // The last line of a file may have no end.
        let end = if new.ends_with("\r\n") { "\r\n" } else { "\n" };
        if let Some(last) = new.strip_suffix(end).filter(|last| text.ends_with(last) && !text.contains(new)) {
            new = last;
            old = old.strip_suffix(end).unwrap_or(old);
        }
        let mut places = text.match_indices(new);
        let (at, _) = places.next().filter(|_| !new.is_empty())?;
        if each.all || places.next().is_some() {
            return None;
        }
        text.replace_range(at..at + new.len(), old);
    }
    Some(text)
}

/// What a result shows, with paths in the workspace. `path` is the call's, already placed.
fn placed(seen: SeenContent, path: Option<&str>, place: impl FnMut(&str) -> Option<String>) -> SeenContent {
    if matches!(seen, SeenContent::Printed(_) | SeenContent::PrintedEnd(_)) {
        return seen;
    }
    let Some(inside) = path.map(str::to_owned) else {
        return SeenContent::Nothing;
    };
    let mut seen = seen;
    if let SeenContent::Listed(paths) = &mut seen {
        let all = std::mem::take(paths);
        let all = all.iter().map(String::as_str).filter_map(place);
        paths.extend(all.filter(|path| path != "."));
    } else if let Some(path) = seen.path_mut() {
        *path = inside;
    }
    match seen {
        // The source does not have the file before the edit.
        SeenContent::Edited { path, before: None, replacements, hunks } => {
            SeenContent::Patched { path, replacements, hunks }
        }
        seen => seen,
    }
}
