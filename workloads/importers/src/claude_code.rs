//! Importer for Claude Code's session files and what `claude -p` prints as `--output-format stream-json` or `json`.
//! An API response spans several lines with the same `message.id`, each with the usage so far.
//! Resumed and forked files copy history under new `uuid`s, so a call counts once by its `tool_use` id.
//! Subagents' turns are in `progress.data.message`, in lines with `agentId`, or with `parent_tool_use_id`.
//! `toolUseResult` is a plain string on error.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::BufRead;
use std::sync::Arc;

use serde_json::{Value, json};

use super::detect::Head;
use super::edit_result;
use super::identities::{Identities, ResultCall, SourceCall};
use super::json::{stated_dollars, token_count};
use super::records::{Damage, each_record};
use super::tools;
use super::{
    Clock, Hunk, ImportedSession, Importer, RecordedCall, RecordedEvent, RecordedResult, ReportedTotal, SeenContent,
    shell_op, text,
};
use inputs::sha256;
use session_traces::names::SessionNames;
use session_traces::roots::Roots;
use session_traces::spill::{Spill, SpilledText, SpilledValue};
use shell::path::is_windows;
use shell::{Platform, Replacement, ShellCommand, ShellDirectory, UNKNOWN_DIRECTORY};
use workloads::trace::{CallError, MAIN_LANE, Op, TokenUsage};

/// Claude Code.
#[derive(Debug)]
pub struct ClaudeCode;

impl Importer for ClaudeCode {
    fn id(&self) -> &'static str {
        "claude-code"
    }

    fn reads(&self) -> &'static str {
        "Claude Code session files (`~/.claude/projects/*/*.jsonl`) and `claude -p --output-format stream-json` or `json`"
    }

    fn streams(&self) -> bool {
        true
    }

    fn detects(&self, head: &Head) -> bool {
        let kinds = ["user", "assistant", "system", "summary", "progress", "file-history-snapshot", "result"];
        let is_kind = kinds.iter().any(|kind| head.is("type", kind));
        let is_session = head.has("sessionId") && (head.has("message.content") || head.has("uuid"));
        // Sessions that were cut down may not name their session.
        let is_bare = head.has("message.content")
            && head.has("message.role")
            && ["uuid", "parentUuid", "cwd"].iter().any(|field| head.has(field));
        // `claude -p --output-format json` prints nothing but the result.
        let is_result = head.is("type", "result") && (head.has("total_cost_usd") || head.has("modelUsage"));
        let is_stream =
            head.has("session_id") && (head.has("message.content") || head.is("subtype", "init") || is_result);
        let is_summary = head.is("type", "summary") && head.has("leafUuid");
        let is_snapshot = head.is("type", "file-history-snapshot") || head.is("type", "queue-operation");
        // Qwen Code's records are like these, with messages of Gemini's API.
        let is_other = head.has("message.parts");
        !is_other && (is_kind && (is_session || is_stream || is_bare) || is_summary || is_snapshot)
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        read(recording, &mut []).map(|session| vec![session])
    }
}
/// Types of records that hold no call and no message.
const WITHOUT_CALLS: &str = "agent-color agent-name agent-setting ai-title attribution-snapshot atis-latch \
    attachment content-replacement custom-title file-history-delta file-history-snapshot frame-link last-prompt \
    marble-origami-commit marble-origami-snapshot mode permission-mode pr-link progress queue-operation \
    rate_limit_event speculation-accept stream_event summary system tag task-summary tool_progress \
    tool_use_summary worktree-state";

/// Reads a session file, and the files of its subagents in `SESSION/subagents/`, in the order of time.
///
/// # Errors
/// If no line belongs to a Claude Code session, or a file cannot be read.
pub fn read(session: &mut dyn BufRead, subagents: &mut [Box<dyn BufRead>]) -> Result<ImportedSession, String> {
    let mut reader = Reader::default();
    let mut damage = Damage::default();
    let mut beside: Vec<(Option<i64>, Value)> = Vec::new();
    for file in subagents {
        let mut last = None;
        damage += each_record(&mut **file, |record| {
            // A record without a time follows the one before it.
            last = time(&record).or(last);
            beside.push((last, record));
        })?;
    }
    beside.sort_by_key(|(time, _)| *time);
    let mut beside = beside.into_iter().peekable();
    damage += each_record(session, |record| {
        if let Some(now) = time(&record) {
            while let Some((_, earlier)) = beside.next_if(|(time, _)| *time < Some(now)) {
                reader.line(&earlier);
            }
        }
        reader.line(&record);
    })?;
    beside.for_each(|(_, record)| reader.line(&record));
    reader.session.unreadable_lines = damage.unreadable;
    reader.session.mended_lines = damage.mended;
    reader.session.started_ms = reader.clock.0;
    for (searches, is_fast) in reader.surcharges.values() {
        reader.session.web_searches = reader.session.web_searches.saturating_add(*searches);
        reader.session.fast_answers += u64::from(*is_fast);
    }
    reader.session.totals = std::mem::take(&mut reader.totals).all();
    if reader.session.agent.is_empty() {
        "claude-code".clone_into(&mut reader.session.agent);
    }
    if reader.session.events.is_empty() && reader.session.totals.is_empty() {
        return Err("no line of it is a message of a Claude Code session".to_owned());
    }
    if let Err(error) = reader.place_early_results().and_then(|()| reader.place_paths()) {
        reader.session.lost = Some(error);
    }
    Ok(reader.session)
}

#[derive(Default)]
struct Reader {
    session: ImportedSession,
    names: SessionNames,
    spill: Spill,
    seen_uuids: HashSet<TextDigest>,
    /// The index in `events` and the number of each API response, by its message id.
    responses: HashMap<String, (usize, u64)>,
    /// Blocks of text and thinking, each with its response.
    blocks: HashSet<(usize, TextDigest)>,
    /// The user's messages, each with its time.
    messages: HashSet<TextDigest>,
    identities: Identities,
    /// The calls whose result may follow, by identity.
    tools: HashMap<String, Tool>,
    /// Results that came before a call of their identity: that identity, the record, and the index in `events`.
    early: Vec<(String, SpilledValue<String>, usize)>,
    /// Web searches of a response and whether it was in fast mode, by its index in `events`.
    surcharges: HashMap<usize, (u64, bool)>,
    /// The directory that a record stated last.
    cwd: String,
    /// Whether the current record states it.
    states_cwd: bool,
    /// Where the session began.
    project: String,
    /// The shell of the main agent. It stays open, and `claude -p` states its directory at the start only.
    shell: ShellDirectory,
    clock: Clock,
    totals: StatedTotals,
}

/// What each run of `claude -p` states at its end.
#[derive(Default)]
struct StatedTotals {
    /// By session: the last totals of each of its runs.
    runs: BTreeMap<String, Vec<Vec<ReportedTotal>>>,
}

impl StatedTotals {
    /// Adds the totals of a session so far. They grow until the run ends; smaller ones are those of another run.
    fn add(&mut self, session: &str, totals: Vec<ReportedTotal>) {
        let sum = |totals: &[ReportedTotal]| {
            let output: u64 = totals.iter().filter_map(|total| total.usage).map(|usage| usage.output).sum();
            let dollars: f64 = totals.iter().filter_map(|total| total.dollars).sum();
            (output, dollars)
        };
        let runs = self.runs.entry(session.to_owned()).or_default();
        let (output, dollars) = sum(&totals);
        match runs.last_mut() {
            Some(last) if sum(last).0 <= output && sum(last).1 <= dollars => *last = totals,
            _ => runs.push(totals),
        }
    }

    /// The totals of all runs, by model, and the dollars.
    fn all(self) -> Vec<ReportedTotal> {
        let mut models: BTreeMap<String, TokenUsage> = BTreeMap::new();
        let mut dollars: Option<f64> = None;
        for total in self.runs.into_values().flatten().flatten() {
            if let Some(usage) = total.usage {
                add_usage(models.entry(total.model).or_default(), usage);
            }
            dollars = total.dollars.map(|more| dollars.unwrap_or(0.0) + more).or(dollars);
        }
        let models = models.into_iter();
        let models = models.map(|(model, usage)| ReportedTotal { model, usage: Some(usage), dollars: None });
        models.chain(dollars.map(|_| ReportedTotal { dollars, ..ReportedTotal::default() })).collect()
    }
}

fn add_usage(sum: &mut TokenUsage, more: TokenUsage) {
    sum.uncached = sum.uncached.saturating_add(more.uncached);
    sum.cache_read = sum.cache_read.saturating_add(more.cache_read);
    sum.cache_write_5m = sum.cache_write_5m.saturating_add(more.cache_write_5m);
    sum.cache_write_1h = sum.cache_write_1h.saturating_add(more.cache_write_1h);
    sum.output = sum.output.saturating_add(more.output);
    sum.reasoning = sum.reasoning.saturating_add(more.reasoning);
}

/// The first half of a text's SHA-256: a session may have more texts than memory.
type TextDigest = [u8; 32];

fn digest(text: &str) -> TextDigest {
    let hex = sha256(text);
    let mut half = TextDigest::default();
    half.copy_from_slice(&hex.as_bytes()[..32]);
    half
}

/// A call whose result may follow.
struct Tool {
    name: String,
    input: Value,
    cwd: String,
    /// The index of the call in `events`.
    place: usize,
    /// Whether it runs in the shell that stays open.
    keeps_shell: bool,
}

impl Reader {
    fn line(&mut self, line: &Value) {
        if let Some(uuid) = text(line, "uuid")
            && !self.seen_uuids.insert(digest(uuid))
        {
            return;
        }
        let cwd = text(line, "cwd");
        self.states_cwd = cwd.is_some();
        if let Some(cwd) = cwd.filter(|cwd| *cwd != self.cwd || *cwd != self.shell.now()) {
            self.session.roots.add(cwd);
            cwd.clone_into(&mut self.cwd);
            self.shell = ShellDirectory::new(cwd);
            if self.project.is_empty() {
                cwd.clone_into(&mut self.project);
            }
        }
        if self.session.identity.is_empty() {
            let id = text(line, "sessionId").or_else(|| text(line, "session_id"));
            id.unwrap_or_default().clone_into(&mut self.session.identity);
        }
        let version = text(line, "version").or_else(|| text(line, "claude_code_version"));
        if let Some(version) = version
            && self.session.agent.is_empty()
        {
            self.session.agent = format!("claude-code {version}");
        }
        match text(line, "type") {
            Some("assistant" | "user") => {
                let sidechain = line.get("isSidechain").and_then(Value::as_bool);
                let lane = match (sidechain, text(line, "agentId"), text(line, "parent_tool_use_id")) {
                    (Some(true), Some(agent), _) => format!("sub:{agent}"),
                    (Some(true), None, _) => "sub:sidechain".to_owned(),
                    (_, _, Some(parent)) => format!("sub:{parent}"),
                    _ => "main".to_owned(),
                };
                self.message(line, &lane);
            }
            Some("progress") => {
                let data = &line["data"];
                if data["message"].is_object() {
                    let id = text(data, "agentId").or_else(|| text(line, "parentToolUseID"));
                    let lane = format!("sub:{}", id.unwrap_or("unknown"));
                    // A turn reported again with more progress is the same turn.
                    if let Some(uuid) = text(&data["message"], "uuid")
                        && !self.seen_uuids.insert(digest(uuid))
                    {
                        return;
                    }
                    self.message(&data["message"], &lane);
                }
            }
            Some("system") => match text(line, "subtype") {
                Some("compact_boundary") => {
                    let time = text(line, "timestamp").unwrap_or_default();
                    let key = digest(&format!("{time}\0compact_boundary"));
                    if time.is_empty() || self.messages.insert(key) {
                        let pre_tok = line["compactMetadata"]["preTokens"].as_u64().unwrap_or(0);
                        self.session.events.push(RecordedEvent::Compact { pre_tok });
                    }
                }
                Some("init") if self.session.model.is_empty() => {
                    self.session.model = text(line, "model").unwrap_or_default().to_owned();
                }
                _ => {}
            },
            Some("attachment") if line["isSidechain"].as_bool() != Some(true) => {
                let added = attached(&line["attachment"]);
                let images = u64::from(is_image(&line["attachment"]));
                let time = text(line, "timestamp").unwrap_or_default();
                self.enters(time, &added, true, images);
            }
            Some("result") => self.stated(line),
            Some(known) if shell::programs::lists(WITHOUT_CALLS, known) => {}
            other => self.session.count_unknown(other),
        }
    }

    fn message(&mut self, line: &Value, lane: &str) {
        let at = self.at(line);
        let message = &line["message"];
        match text(line, "type") {
            Some("assistant") => self.assistant(line, message, lane, at),
            Some("user") => self.user(line, message, lane),
            _ => {}
        }
    }

    fn assistant(&mut self, line: &Value, message: &Value, lane: &str, at: u64) {
        if let Some(model) = text(message, "model")
            && self.session.model.is_empty()
            && model != "<synthetic>"
        {
            self.session.model = model.to_owned();
        }
        let known = self.responses.len();
        let (place, api) = self.response(line, message, lane, at);
        if self.responses.len() > known && lane == MAIN_LANE {
            // An answer follows the results of the calls before it.
            self.shell.give_up();
        }
        // Other programs write the text of an answer without blocks.
        if let Some(said) = message["content"].as_str().filter(|said| !said.is_empty())
            && self.blocks.insert((place, digest(said)))
            && let Some(RecordedEvent::Api { text, .. }) = self.session.events.get_mut(place)
        {
            text.append(said, &mut self.spill);
        }
        for block in message["content"].as_array().into_iter().flatten() {
            let written = text(block, "text").unwrap_or_default();
            let thought = text(block, "thinking").unwrap_or_default();
            let hidden = ["signature", "data"].map(|key| text(block, key).unwrap_or_default());
            let signature = hidden.concat();
            // Copied history repeats the blocks of a response.
            let key = (place, digest(&format!("{written}\0{thought}\0{signature}")));
            if written.len() + thought.len() + signature.len() > 0
                && self.blocks.insert(key)
                && let Some(RecordedEvent::Api { text, thinking, thinking_bytes, .. }) =
                    self.session.events.get_mut(place)
            {
                text.append(written, &mut self.spill);
                thinking.append(thought, &mut self.spill);
                *thinking_bytes += signed_bytes(signature.len() as u64);
            }
            if text(block, "type") == Some("tool_use") {
                let tool = text(block, "name").unwrap_or("unknown");
                let input = &block["input"];
                let origin = text(message, "id").unwrap_or_default();
                let id = text(block, "id").unwrap_or_default();
                let json = input.to_string();
                let of = SourceCall { id, origin, answer: api, last_answer: api, tool, args: input, json: &json };
                let Some(id) = self.identities.call(&of) else {
                    continue;
                };
                let place = self.session.events.len();
                let cwd = self.directory_of(lane, tool, input);
                let shared = self.names.shared(lane);
                let call = RecordedCall { at, ..self.call(&id, api, (shared, tool), (input, json), &cwd) };
                self.session.events.push(RecordedEvent::Call(call));
                let keeps_shell = tool == "Bash" && lane == MAIN_LANE && !self.states_cwd && !is_in_background(input);
                let known = Tool { name: tool.to_owned(), input: input.clone(), cwd, place, keeps_shell };
                self.tools.insert(id, known);
            }
        }
    }

    /// What `claude -p` states at its end: tokens by model, and dollars, of all queries so far. The lines of answers were
    /// written when these began, and lack most of the output.
    fn stated(&mut self, result: &Value) {
        let models = result["modelUsage"].as_object();
        let models = models.filter(|models| !models.is_empty());
        let most_used =
            models.and_then(|models| models.iter().max_by_key(|(_, used)| token_count(&used["outputTokens"])));
        if let Some((model, _)) = most_used.filter(|_| self.session.model.is_empty()) {
            model.trim_end_matches("[1m]").clone_into(&mut self.session.model);
        }
        // Earlier versions state the usage of all models together.
        let all = usage(&result["usage"]);
        let unnamed = models.is_none() && all != TokenUsage::default();
        let unnamed = unnamed.then(|| ReportedTotal { usage: Some(all), ..ReportedTotal::default() });
        let models = models.into_iter().flatten().map(|(model, used)| {
            let count = |key: &str| token_count(&used[key]);
            let usage = TokenUsage {
                uncached: count("inputTokens"),
                cache_read: count("cacheReadInputTokens"),
                cache_write_5m: count("cacheCreationInputTokens"),
                output: count("outputTokens"),
                ..TokenUsage::default()
            };
            // Answers name the model without the size of its context.
            let model = model.trim_end_matches("[1m]").to_owned();
            ReportedTotal { model, usage: Some(usage), dollars: None }
        });
        let dollars =
            ["total_cost_usd", "cost_usd"].into_iter().find_map(|key| result[key].as_f64()).and_then(stated_dollars);
        let all = dollars.map(|_| ReportedTotal { dollars, ..ReportedTotal::default() });
        let session = text(result, "session_id").unwrap_or_default();
        self.totals.add(session, models.chain(unnamed).chain(all).collect());
    }

    /// Counts an API response once, although it spans several lines, and keeps the usage of the last line.
    /// Returns the index of its event, and its number.
    fn response(&mut self, line: &Value, message: &Value, lane: &str, at: u64) -> (usize, u64) {
        let (place, number) = self.response_place(line, message, lane, at);
        let used = &message["usage"];
        let searches = token_count(&used["server_tool_use"]["web_search_requests"]);
        let is_fast = text(used, "speed") == Some("fast");
        if searches > 0 || is_fast {
            // A later line of the response has the count so far.
            self.surcharges.insert(place, (searches, is_fast));
        }
        (place, number)
    }

    fn response_place(&mut self, line: &Value, message: &Value, lane: &str, at: u64) -> (usize, u64) {
        let usage = usage(&message["usage"]);
        let id = text(message, "id").or_else(|| text(line, "requestId"));
        let id = id.unwrap_or_default();
        if let Some((place, number)) = self.responses.get(id)
            && !id.is_empty()
        {
            if let Some(RecordedEvent::Api { usage: known, .. }) = self.session.events.get_mut(*place)
                && usage.output >= known.output
            {
                *known = usage;
            }
            return (*place, *number);
        }
        let number = self.responses.len() as u64;
        let key = if id.is_empty() { format!("unnamed {number}") } else { id.to_owned() };
        let place = self.session.events.len();
        let model = text(message, "model").filter(|model| *model != "<synthetic>");
        self.responses.insert(key, (place, number));
        self.session.events.push(RecordedEvent::Api {
            at,
            usage,
            model: self.names.shared(model.unwrap_or_default()),
            lane: self.names.shared(lane),
            text: SpilledText::default(),
            thinking: SpilledText::default(),
            thinking_bytes: 0,
        });
        (place, number)
    }

    /// The directory in which a call begins.
    fn directory_of(&mut self, lane: &str, tool: &str, input: &Value) -> String {
        if self.states_cwd {
            return self.cwd.clone();
        }
        match text(input, "command") {
            Some(line) if lane == MAIN_LANE && tool == "Bash" && !is_in_background(input) => self.shell.begin(line),
            _ if lane == MAIN_LANE || self.shell.now() == self.cwd => self.shell.now().to_owned(),
            // Versions differ in whether a subagent begins where the main agent is.
            _ => UNKNOWN_DIRECTORY.to_owned(),
        }
    }

    fn call(
        &mut self,
        id: &str,
        api: u64,
        (lane, tool): (Arc<str>, &str),
        (input, json): (&Value, String),
        cwd: &str,
    ) -> RecordedCall {
        let op = op(tool, input);
        let named = ["file_path", "path", "notebook_path"].into_iter().find_map(|key| text(input, key));
        let path = match (op, named) {
            (Op::Read | Op::Write | Op::Edit, Some(path)) => Some(self.absolute(cwd, path)),
            // A search or list without a path refers to the current directory.
            (Op::Search | Op::List, path) => Some(match path {
                Some(path) => self.absolute(cwd, path),
                None if cwd.is_empty() => ".".to_owned(),
                None => cwd.to_owned(),
            }),
            _ => None,
        };
        let platform = match tool {
            "Bash" => Some(Platform::Posix),
            "PowerShell" => Some(Platform::PowerShell),
            _ => None,
        };
        // The result of a command in the background is not its end.
        let is_done = !is_in_background(input);
        let shell = platform.filter(|_| is_done).and_then(|platform| {
            let command = ShellCommand { line: text(input, "command")?.to_owned(), cwd: cwd.to_owned(), platform };
            Some(self.spill.keep(command))
        });
        let range = (op == Op::Read).then(|| tools::range(input)).flatten();
        let served = tools::is_of_file_server(tool, input).then(|| tools::meaning(tool, input, None));
        let args = self.spill.keep(if input.is_object() { json } else { format!(r#"{{"input":{json}}}"#) });
        let name = self.names.shared(tool);
        if let Some(served) = served {
            let shell = served.command.map(|(line, _)| {
                self.spill.keep(ShellCommand { line, cwd: cwd.to_owned(), platform: Platform::Posix })
            });
            return RecordedCall {
                path: served.path,
                range: served.range,
                args,
                shell,
                recursive: served.recursive,
                ..RecordedCall::new(id.to_owned(), api, lane, name, served.op, 0)
            };
        }
        RecordedCall {
            path,
            range,
            args,
            shell,
            recursive: tool == "Glob",
            ..RecordedCall::new(id.to_owned(), api, lane, name, op, 0)
        }
    }

    fn user(&mut self, line: &Value, message: &Value, lane: &str) {
        let content = &message["content"];
        let time = text(line, "timestamp").unwrap_or_default();
        if let Some(said) = content.as_str() {
            if lane == "main" {
                self.enters(time, said, false, 0);
            }
            return;
        }
        for block in content.as_array().into_iter().flatten() {
            match text(block, "type") {
                Some("tool_result") => {
                    let is_new = self.result(line, block, lane);
                    let shown = block["content"].as_array().into_iter().flatten();
                    let images = shown.filter(|part| is_image(part)).count() as u64;
                    if lane == "main" && images > 0 && is_new {
                        self.add_text("", true, images);
                    }
                }
                Some("text") if lane == "main" => {
                    self.enters(time, text(block, "text").unwrap_or_default(), false, 0);
                }
                Some("image") if lane == "main" => {
                    let source = block["source"].to_string();
                    let key = digest(&format!("{time}\0{source}"));
                    if time.is_empty() || self.messages.insert(key) {
                        self.add_text("", true, 1);
                    }
                }
                _ => {}
            }
        }
    }

    /// A message of the user, or text that the client adds. Copied history repeats it with its time.
    fn enters(&mut self, time: &str, said: &str, by_client: bool, images: u64) {
        let key = digest(&format!("{time}\0{said}"));
        if (!by_client || !said.is_empty() || images > 0) && (time.is_empty() || self.messages.insert(key)) {
            self.add_text(said, by_client, images);
        }
    }

    fn add_text(&mut self, added: &str, by_client: bool, images: u64) {
        let text = self.spill.keep(added.to_owned());
        self.session.events.push(RecordedEvent::User { text, by_client, images });
    }

    /// Reads the result of a call. Returns whether history has not had it before.
    fn result(&mut self, line: &Value, block: &Value, lane: &str) -> bool {
        let source = text(block, "tool_use_id").unwrap_or_default();
        match self.identities.result(source) {
            ResultCall::Call(id) => {
                if let Some(tool) = self.tools.remove(&id) {
                    let result = self.known_result(line, block, &id, &tool);
                    self.session.events.push(RecordedEvent::Result(result));
                }
                true
            }
            ResultCall::Answered => false,
            ResultCall::Unknown => {
                let shown = shown(&block["content"]);
                let is_new = self.messages.insert(digest(&format!("{source}\0{shown}")));
                if is_new {
                    let record = json!({ "toolUseResult": line["toolUseResult"], "block": block });
                    let record = self.spill.keep(record.to_string());
                    self.early.push((source.to_owned(), record, self.session.events.len()));
                    self.session.results_without_call += 1;
                    // The text is in the prompt all the same.
                    self.add_text(if lane == "main" { &shown } else { "" }, true, 0);
                }
                is_new
            }
        }
    }

    /// Gives results that came before their call their place behind it.
    fn place_early_results(&mut self) -> Result<(), String> {
        let mut behind: HashMap<usize, RecordedEvent> = HashMap::new();
        let mut moved = HashSet::new();
        for (source, record, place) in std::mem::take(&mut self.early) {
            // The identity of a call that another one had before is of another part of the session.
            let call = match self.identities.result(&source) {
                ResultCall::Call(id) if id == source => self.tools.remove(&id).map(|tool| (id, tool)),
                _ => None,
            };
            let Some((id, tool)) = call else {
                continue;
            };
            let record: Value = serde_json::from_str(&record.load()?).map_err(|error| error.to_string())?;
            let result = self.known_result(&record, &record["block"], &id, &tool);
            behind.insert(tool.place, RecordedEvent::Result(result));
            self.session.results_without_call -= 1;
            // Its text stood here as that of a result without a call.
            moved.insert(place);
        }
        if !behind.is_empty() {
            let events = std::mem::take(&mut self.session.events).into_iter().enumerate();
            let events =
                events.flat_map(|(at, event)| [Some(event).filter(|_| !moved.contains(&at)), behind.remove(&at)]);
            self.session.events = events.flatten().collect();
        }
        Ok(())
    }

    fn known_result(&mut self, line: &Value, block: &Value, id: &str, tool: &Tool) -> RecordedResult {
        let Tool { name, input, cwd, place, keeps_shell } = tool;
        let shown = shown(&block["content"]);
        let structured = &line["toolUseResult"];
        let failed = block["is_error"].as_bool() == Some(true) || structured.is_string();
        let err = failed.then(|| error(structured.as_str().unwrap_or(&shown)));
        // A command that went on in the background has not ended either.
        let is_unfinished = structured["interrupted"].as_bool() == Some(true)
            || structured["backgroundTaskId"].is_string()
            || shown.starts_with("[Request interrupted by user");
        let (mut err, mut seen) = (err.or(is_unfinished.then_some(CallError::Other)), SeenContent::Nothing);
        if tools::is_of_file_server(name, input) {
            let served = tools::meaning(name, input, Some((&shown, failed)));
            (err, seen) = (served.err, self.seen_served(served.seen, cwd));
            if let Some(RecordedEvent::Call(call)) = self.session.events.get_mut(*place) {
                call.op = served.op;
            }
        } else if !failed {
            seen = self.seen(name, input, cwd, structured, &shown);
            self.named_directories(name, input, cwd, structured);
        }
        if !failed && tools::lists_directories(name) {
            tools::allowed_directories(&shown).for_each(|dir| self.session.roots.add(dir));
        }
        // The lines that were returned may be others than those that the call asked for.
        if let SeenContent::Part { content, .. } = &seen
            && let Some(first) = first_line(structured, &shown)
            && let Some(RecordedEvent::Call(call)) = self.session.events.get_mut(*place)
            && call.range.map_or(1, |(asked, _)| asked) != first
        {
            call.range = Some((first, content.matches('\n').count() as u64 + 1));
        }
        if *keeps_shell && !self.states_cwd {
            self.follow(input, cwd, &shown, !failed, is_unfinished);
        }
        let (shown, seen) = (self.spill.keep(shown), self.spill.keep(seen));
        RecordedResult { id: id.to_owned(), err, shown, seen, is_unfinished }
    }

    /// Follows the shell to the directory in which a command leaves it.
    fn follow(&mut self, input: &Value, cwd: &str, shown: &str, ok: bool, is_unfinished: bool) {
        let line = text(input, "command").unwrap_or_default().to_owned();
        let command = ShellCommand { line, cwd: cwd.to_owned(), platform: Platform::Posix };
        let reset = shown.rsplit_once("Shell cwd was reset to ");
        let reset = reset.and_then(|(_, dir)| dir.lines().next()).map(str::trim);
        self.shell.end(&command, (!is_unfinished).then_some((shown, ok)), reset);
        // Claude Code leaves the shell in the project only, unless a directory was added to it.
        let mut project = Roots::default();
        project.add(&self.project);
        self.shell.keep_if(|dir| project.clone().place(dir).is_some_and(|place| !place.starts_with(".roots/")));
    }

    /// What the result of a server's tool shows, with absolute paths.
    fn seen_served(&self, seen: SeenContent, cwd: &str) -> SeenContent {
        match seen {
            // The server does not state the file before the edit.
            SeenContent::Edited { path, before: None, replacements, hunks } => {
                SeenContent::Patched { path, replacements, hunks }
            }
            SeenContent::Listed(paths) => {
                SeenContent::Listed(paths.iter().map(|path| self.absolute(cwd, path)).collect())
            }
            seen => seen,
        }
    }

    /// Adds the directories that a call names to the roots.
    fn named_directories(&mut self, tool: &str, input: &Value, cwd: &str, structured: &Value) {
        match (tool, text(input, "path"), text(input, "command")) {
            ("Grep" | "Glob" | "LS", Some(path), _) => {
                let path = self.absolute(cwd, path);
                self.session.roots.add(&path);
            }
            ("Bash", _, Some(line)) => {
                let command = ShellCommand { line: line.to_owned(), cwd: cwd.to_owned(), platform: Platform::Posix };
                for dir in shell::directories(&command) {
                    self.session.roots.add(&dir);
                }
            }
            _ => {}
        }
        if let Some(path) = text(structured, "worktreePath") {
            self.session.roots.add(path);
        }
    }

    /// What a result shows. Paths are absolute here; [`Self::place_paths`] gives them their places.
    fn seen(&self, tool: &str, input: &Value, cwd: &str, structured: &Value, shown: &str) -> SeenContent {
        let path_of = |value: &Value, key: &str| text(value, key).map(|path| self.absolute(cwd, path));
        match tool {
            "Read" => self.seen_read(input, cwd, structured, shown),
            "Write" => {
                let path = path_of(structured, "filePath").or_else(|| path_of(input, "file_path"));
                let content = text(structured, "content").or_else(|| text(input, "content"));
                let (Some(path), Some(content)) = (path, content.map(str::to_owned)) else {
                    return SeenContent::Nothing;
                };
                let before = text(structured, "originalFile").map(str::to_owned);
                let existed = match text(structured, "type") {
                    Some(kind) => kind == "update",
                    None => shown.contains("has been updated"),
                };
                if existed && before.is_none() {
                    SeenContent::Replaced { path, content }
                } else {
                    SeenContent::Written { path, before, content }
                }
            }
            "Edit" | "MultiEdit" => {
                let path = path_of(structured, "filePath").or_else(|| path_of(input, "file_path"));
                let replacements = replacements(input, structured);
                let Some(path) = path.filter(|_| !replacements.is_empty()) else {
                    return SeenContent::Nothing;
                };
                let before = ["originalFile", "originalFileContents"].into_iter().find_map(|key| text(structured, key));
                if creates_file(tool, input) {
                    let content = replacements.into_iter().map(|only| only.new).collect();
                    // Of a file that does not exist, the content before is an empty text.
                    let before = before.filter(|before| !before.is_empty()).map(str::to_owned);
                    return SeenContent::Written { path, before, content };
                }
                let mut hunks = hunks(&structured["structuredPatch"]);
                if hunks.is_empty() {
                    hunks = edit_result::hunks(shown, &replacements);
                }
                match before {
                    Some(before) => SeenContent::Edited { path, before: Some(before.to_owned()), replacements, hunks },
                    None => SeenContent::Patched { path, replacements, hunks },
                }
            }
            "NotebookEdit" => {
                let path = path_of(structured, "notebook_path").or_else(|| path_of(input, "notebook_path"));
                let before = text(structured, "original_file");
                match (path, before, text(structured, "updated_file")) {
                    (Some(path), Some(before), Some(after)) if !before.is_empty() => {
                        let whole = Replacement { old: before.to_owned(), new: after.to_owned(), all: false };
                        let (before, replacements) = (Some(before.to_owned()), vec![whole]);
                        SeenContent::Edited { path, before, replacements, hunks: Vec::new() }
                    }
                    _ => SeenContent::Nothing,
                }
            }
            "Grep" | "Glob" => {
                let mut files: Vec<&str> =
                    structured["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                if files.is_empty() && text(structured, "mode") == Some("content") {
                    let content = text(structured, "content").unwrap_or_default();
                    match text(input, "path").filter(|_| is_of_one_file(content)) {
                        Some(path) => files.push(path),
                        None => files.extend(content.lines().filter_map(grep_file)),
                    }
                }
                let files = files.into_iter().map(|path| self.absolute(cwd, path));
                SeenContent::Listed(files.collect())
            }
            _ => SeenContent::Nothing,
        }
    }

    fn seen_read(&self, input: &Value, cwd: &str, structured: &Value, shown: &str) -> SeenContent {
        let file = &structured["file"];
        let path = text(file, "filePath").or_else(|| text(input, "file_path"));
        let Some(path) = path.map(|path| self.absolute(cwd, path)) else {
            return SeenContent::Nothing;
        };
        if let Some(content) = text(file, "content") {
            let start = file["startLine"].as_u64().unwrap_or(1);
            let lines = content.matches('\n').count() as u64 + 1;
            let total_lines = file["totalLines"].as_u64().unwrap_or(lines);
            return if start <= 1 && lines == total_lines {
                SeenContent::Whole { path, content: content.to_owned() }
            } else {
                SeenContent::Part { path, content: content.to_owned(), total_lines }
            };
        }
        // A subagent's results have no structure, only the displayed lines with numbers.
        let numbered: Vec<(u64, &str)> = shown.lines().filter_map(numbered_line).collect();
        let Some((last, _)) = numbered.last() else {
            return SeenContent::Nothing;
        };
        let total_lines = *last;
        let lines: Vec<&str> = numbered.into_iter().map(|(_, text)| text).collect();
        SeenContent::Part { path, content: lines.join("\n"), total_lines }
    }

    fn absolute(&self, cwd: &str, path: &str) -> String {
        self.session.roots.absolute(cwd, path)
    }

    /// Gives each path its place in the workspace. All roots are known only after the last line. A call is outside if its
    /// path or that of its result is.
    fn place_paths(&mut self) -> Result<(), String> {
        let session = &mut self.session;
        let roots = &mut session.roots;
        let mut outside: HashSet<String> = HashSet::new();
        for event in &mut session.events {
            match event {
                RecordedEvent::Call(call) => {
                    let path = call.path.take();
                    call.path = path.as_ref().and_then(|path| roots.place(path));
                    if path.is_some() && call.path.is_none() {
                        outside.insert(call.id.clone());
                    }
                }
                RecordedEvent::Result(result) => {
                    let mut seen = result.seen.load()?;
                    if let SeenContent::Listed(paths) = &mut seen {
                        let placed = paths.iter().filter_map(|path| roots.place(path));
                        *paths = placed.filter(|path| path != ".").collect();
                    } else if let Some(path) = seen.path_mut() {
                        let place = roots.place(path).filter(|_| !outside.contains(&result.id));
                        match place {
                            Some(place) => *path = place,
                            None => {
                                outside.insert(result.id.clone());
                                seen = SeenContent::Nothing;
                            }
                        }
                    } else {
                        continue;
                    }
                    result.seen = self.spill.keep(seen);
                }
                RecordedEvent::User { .. }
                | RecordedEvent::Api { .. }
                | RecordedEvent::Compact { .. }
                | RecordedEvent::Inherited { .. } => {}
            }
        }
        for event in &mut session.events {
            if let RecordedEvent::Call(call) = event
                && outside.contains(&call.id)
            {
                call.path = None;
            }
        }
        Ok(())
    }

    /// Milliseconds since the first line that has a time.
    fn at(&mut self, line: &Value) -> u64 {
        self.clock.at(time(line))
    }
}

fn op(tool: &str, input: &Value) -> Op {
    match tool {
        "Read" | "NotebookRead" => Op::Read,
        "Write" => Op::Write,
        "Edit" if creates_file(tool, input) => Op::Write,
        "Edit" | "MultiEdit" | "NotebookEdit" => Op::Edit,
        "Grep" => Op::Search,
        "Glob" | "LS" => Op::List,
        "Bash" => shell_op(text(input, "command").unwrap_or_default()),
        "BashOutput" | "KillShell" | "KillBash" | "PowerShell" => Op::Exec,
        "TodoWrite" | "TodoRead" | "ExitPlanMode" | "EnterPlanMode" | "TaskCreate" | "TaskUpdate" | "TaskList"
        | "TaskGet" | "AskUserQuestion" => Op::Plan,
        "WebFetch" | "WebSearch" => Op::Net,
        "Task" | "Agent" | "Skill" => Op::Agent,
        _ => Op::Other,
    }
}

fn usage(usage: &Value) -> TokenUsage {
    let count = |key: &str| token_count(&usage[key]);
    let split = &usage["cache_creation"];
    let hour = token_count(&split["ephemeral_1h_input_tokens"]);
    TokenUsage {
        uncached: count("input_tokens"),
        cache_read: count("cache_read_input_tokens"),
        cache_write_5m: count("cache_creation_input_tokens").saturating_sub(hour),
        cache_write_1h: hour,
        output: count("output_tokens"),
        reasoning: 0,
    }
}

/// Bytes of thinking that a signature of this length encrypts, in base64 after a header. The header is of the sessions that
/// show all their thinking (233) and of those that hide it (about 350).
pub(super) fn signed_bytes(signature: u64) -> u64 {
    const HEADER: u64 = 300;
    signature.saturating_sub(HEADER) / 4 * 3
}

/// Attachments that the client shows to the user only.
const NOT_FOR_THE_MODEL: &str =
    "auto_mode command_permissions hook_cancelled hook_non_blocking_error hook_system_message";

/// The fields of an attachment whose texts the client adds to the context.
const ATTACHED: [&str; 14] = [
    "content",
    "file",
    "text",
    "subject",
    "description",
    "status",
    "prompt",
    "snippet",
    "stdout",
    "diagnostics",
    "message",
    "addedBlocks",
    "addedLines",
    "addedNames",
];

/// The text that an attachment adds to the context.
fn attached(attachment: &Value) -> String {
    if text(attachment, "type").is_some_and(|kind| shell::programs::lists(NOT_FOR_THE_MODEL, kind)) {
        return String::new();
    }
    let mut added = String::new();
    // What `content` holds is what the hook printed.
    let has_content = attachment["content"].as_str().is_some_and(|text| !text.is_empty());
    let fields = ATTACHED.iter().filter(|field| !has_content || **field != "stdout");
    fields.for_each(|field| add_texts(&attachment[*field], &mut added));
    added
}

/// Adds the texts of a value, one a line.
fn add_texts(value: &Value, added: &mut String) {
    match value {
        Value::String(text) => {
            added.push_str(text);
            added.push('\n');
        }
        Value::Array(values) => values.iter().for_each(|value| add_texts(value, added)),
        Value::Object(_) => ATTACHED.iter().for_each(|field| add_texts(&value[*field], added)),
        _ => {}
    }
}

/// Whether a block, or an attached file, is an image.
fn is_image(block: &Value) -> bool {
    let kind = text(block, "type");
    kind == Some("image") || kind == Some("file") && text(&block["content"], "type") == Some("image")
}

/// Whether the result of a command is not its end.
fn is_in_background(input: &Value) -> bool {
    input["run_in_background"].as_bool() == Some(true)
}

/// Whether an edit replaces nothing by a text: this creates the file.
fn creates_file(tool: &str, input: &Value) -> bool {
    tool == "Edit" && text(input, "old_string") == Some("")
}

/// The number of the first line that Read returned.
fn first_line(structured: &Value, shown: &str) -> Option<u64> {
    let stated = structured["file"]["startLine"].as_u64();
    stated.or_else(|| Some(shown.lines().find_map(numbered_line)?.0)).map(|first| first.max(1))
}

fn hunks(patch: &Value) -> Vec<Hunk> {
    let hunks = patch.as_array().into_iter().flatten();
    hunks
        .filter_map(|hunk| {
            let lines = hunk["lines"].as_array()?.iter().filter_map(Value::as_str);
            Some(Hunk { first: hunk["oldStart"].as_u64()?.max(1), lines: lines.map(str::to_owned).collect() })
        })
        .collect()
}

/// The replacements of an edit. The client states those that it has made: the user may have changed what the model asked for,
/// and quotes follow those of the file.
fn replacements(input: &Value, structured: &Value) -> Vec<Replacement> {
    let all = [structured, input].into_iter().map(|edit| match edit["edits"].as_array() {
        Some(edits) => edits.iter().filter_map(replacement).collect(),
        None => replacement(edit).into_iter().collect(),
    });
    all.into_iter().find(|all: &Vec<Replacement>| !all.is_empty()).unwrap_or_default()
}

fn replacement(edit: &Value) -> Option<Replacement> {
    let named = |name: &str, stated: &str| text(edit, stated).or_else(|| text(edit, name)).map(str::to_owned);
    let is_true = |name: &str| edit[name].as_bool() == Some(true);
    Some(Replacement {
        old: named("old_string", "oldString")?,
        new: named("new_string", "newString")?,
        all: is_true("replace_all") || is_true("replaceAll"),
    })
}

/// The text of a result block, which is a string or a list of text blocks.
fn shown(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| text(block, "text"));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn error(message: &str) -> CallError {
    let says = |part: &str| message.contains(part);
    if says("user doesn't want") || says("user rejected") || is_not_permitted(message) {
        CallError::Rejected
    } else if says("does not exist") {
        CallError::NotFound
    } else if says("String to replace not found") {
        CallError::NoMatch
    } else if says("matches of the string to replace") {
        CallError::MultiMatch
    } else if says("has not been read yet") || says("has been modified since") {
        CallError::Stale
    } else if says("Exit code") {
        CallError::Exit
    } else {
        CallError::Other
    }
}

/// Whether the agent's own rules kept a call from running: by their words, before any output of a command.
fn is_not_permitted(message: &str) -> bool {
    let first = message.lines().next().unwrap_or_default();
    let first = first.strip_prefix("Error: ").unwrap_or(first);
    let asks =
        ["This command requires approval", "This Bash command contains multiple operations", "Permission to use "];
    asks.iter().any(|start| first.starts_with(start))
        || !first.starts_with("Exit code") && first.contains("was blocked. For security, Claude Code may only")
}

/// The file in a line of `grep -n` output: `path:12:text`, or `path-12-text` around a match.
fn grep_file(line: &str) -> Option<&str> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let drive = if is_windows(line) { 2 } else { 0 };
    let (path, rest) = line[drive..].split_once(':')?;
    let path = &line[..drive + path.len()];
    let (number, _) = rest.split_once(':')?;
    // A Windows path may contain spaces; elsewhere a space tells text from a path.
    let has_space = drive == 0 && path.contains(char::is_whitespace);
    (is_number(number) && !path.is_empty() && !has_space).then_some(path)
}

/// Whether `grep -n` searched one file: then its lines have no path, `12:text`, or `12-text` around a match.
fn is_of_one_file(content: &str) -> bool {
    let is_numbered = |line: &str| {
        let digits = line.bytes().take_while(u8::is_ascii_digit).count();
        digits > 0 && line[digits..].starts_with([':', '-'])
    };
    // A line of dashes is between groups of lines.
    let mut lines = content.lines().filter(|line| *line != "--").peekable();
    lines.peek().is_some() && lines.all(is_numbered)
}

/// Number and text of a line in Read's format: the number, right-aligned before an arrow or alone before a tab.
fn numbered_line(line: &str) -> Option<(u64, &str)> {
    let (number, text) = line.split_once(['→', '\t'])?;
    Some((number.trim().parse().ok()?, text))
}

/// The time of a record, in milliseconds since 1970.
fn time(record: &Value) -> Option<i64> {
    let time = text(record, "timestamp")?;
    Some(time.parse::<jiff::Timestamp>().ok()?.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traps() -> ImportedSession {
        read(&mut include_bytes!("fixtures/claude-code-traps.jsonl").as_slice(), &mut []).unwrap()
    }

    #[test]
    fn a_response_over_several_lines_counts_once_with_its_last_usage() {
        let session = traps();
        let apis = session.events.iter().filter_map(|event| match event {
            RecordedEvent::Api { usage, .. } => Some(*usage),
            _ => None,
        });
        let apis: Vec<_> = apis.collect();
        assert_eq!(apis.len(), 6, "m1 to m6, m5 by the subagent");
        let expected = TokenUsage {
            uncached: 10,
            cache_read: 100,
            cache_write_5m: 20,
            cache_write_1h: 10,
            output: 9,
            reasoning: 0,
        };
        assert_eq!(apis[0], expected);
    }

    #[test]
    fn copied_history_counts_once_and_broken_lines_are_counted() {
        let session = traps();
        let users = session.events.iter();
        let users = users.filter(|event| matches!(event, RecordedEvent::User { .. }));
        assert_eq!(users.count(), 1);
        assert_eq!(session.unreadable_lines, 1);
    }

    #[test]
    fn a_subagent_has_a_lane_of_its_own() {
        let session = traps();
        let others = session.calls().filter(|call| *call.lane != *"main");
        let others: Vec<_> = others.map(|call| (&*call.id, &*call.lane)).collect();
        assert_eq!(others, [("t7", "sub:a7")]);
    }

    #[test]
    fn the_importer_extracts_file_content_from_results() {
        let session = traps();
        let seen = session.results().map(|result| (&*result.id, result));
        let seen: HashMap<_, _> = seen.collect();
        assert!(matches!(seen["t1"].seen.load().unwrap(), SeenContent::Whole { path, .. } if path == "src/main.go"));
        assert_eq!(seen["t2"].seen.load().unwrap(), SeenContent::Listed(vec!["docs/a.md".to_owned()]));
        assert_eq!(seen["t5"].err, Some(CallError::NotFound));
        assert_eq!(seen["t6"].err, Some(CallError::NoMatch));
        let part = SeenContent::Part {
            path: "docs/a.md".to_owned(),
            content: "line two\na secret".to_owned(),
            total_lines: 3,
        };
        assert_eq!(seen["t7"].seen.load().unwrap(), part);
        let written = seen["t8"].seen.load().unwrap();
        assert!(matches!(written, SeenContent::Written { before: None, .. }));
        assert_eq!(seen["t9"].seen.load().unwrap(), SeenContent::Nothing, "outside the workspace");
    }

    #[test]
    fn errors_and_lines_of_grep_are_told_apart() {
        let many = "Error: Found 3 matches of the string to replace";
        for (message, expected) in [
            (many, CallError::MultiMatch),
            ("Error: File has not been read yet.", CallError::Stale),
            ("Error: The user doesn't want to proceed", CallError::Rejected),
            ("Error: Exit code 1", CallError::Exit),
            ("Error: This command requires approval", CallError::Rejected),
            (
                "This Bash command contains multiple operations. The following part requires approval: b",
                CallError::Rejected,
            ),
            ("Permission to use Bash with command a has been denied.", CallError::Rejected),
            ("mkdir in '/v' was blocked. For security, Claude Code may only create in '/w'.", CallError::Rejected),
            ("Error: Exit code 2\nThis command requires approval", CallError::Exit),
        ] {
            assert_eq!(error(message), expected);
        }
        assert_eq!(grep_file("a/b.go:12:text: more"), Some("a/b.go"));
        assert_eq!(grep_file("some text: not a file: 12:"), None);
        assert_eq!(grep_file("no"), None);
    }

    #[test]
    fn a_file_without_a_session_is_refused() {
        assert!(read(&mut "".as_bytes(), &mut []).is_err());
        assert!(read(&mut "{\"type\":\"summary\"}\nnonsense\n".as_bytes(), &mut []).is_err());
    }
}
