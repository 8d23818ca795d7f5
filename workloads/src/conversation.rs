//! The conversation of a workload in an agent's context, from a recorded trace or from a generated script.
//! Counting and accounts are in the crate `tokens`.

use std::collections::BTreeMap;

use tokens::{CallPurpose, CallUsage, Conversation, FixedOrigin, Frame, Part, PartKind, Step};

use crate::model::{ExpectedResult, ReferenceModel};
use crate::render;
use crate::script::{CallKind, Script};
use crate::trace::{Event, FileStep, MAIN_LANE, Op, SystemPrompt, TokenUsage, Trace, TraceCall};

/// The time from one model answer to the next in generated workloads, in milliseconds.
/// It is the median of 281 recorded Claude Code sessions.
pub const TURN_MS: u64 = 3600;

/// The conversation of a recorded session. Only the main lane counts, because a subagent has its own context.
/// If the fixed part is inferred, the recorded model's factor converts its tokens to `o200k` tokens.
/// Thinking stays in all prompts here, because its lifetime depends on the model of the account.
/// A call's arguments and its result have the frame that the recorded model puts around them.
///
/// # Errors
/// If the trace does not contain the tokens that the model wrote.
pub fn of_trace(trace: &Trace) -> Result<Conversation, String> {
    let mut lanes = lanes(trace)?;
    let main = lanes.remove(MAIN_LANE).unwrap_or_default();
    let others = lanes.values();
    Ok(Conversation {
        subagents: others.clone().filter(|lane| !lane.steps.is_empty()).count() as u64,
        subagent_calls: others.map(|lane| lane.steps.len() as u64).sum(),
        ..main.conversation(trace, trace.head.prompt)
    })
}

/// The conversations of a recorded session's subagents. The fixed part of each one holds its first message.
///
/// # Errors
/// If the trace does not contain the tokens that the model wrote.
pub fn of_subagents(trace: &Trace) -> Result<Vec<Conversation>, String> {
    let mut lanes = lanes(trace)?;
    lanes.remove(MAIN_LANE);
    let lanes = lanes.into_values().filter(|lane| !lane.steps.is_empty());
    Ok(lanes.map(|lane| lane.conversation(trace, None)).collect())
}

/// The agent's lane, and those of its subagents.
fn lanes(trace: &Trace) -> Result<BTreeMap<&str, LaneRecording>, String> {
    let frame = tokens::frame(&trace.head.model);
    let usage_of = |event: &Event| match event {
        Event::Api(api) => Some(api.usage),
        _ => None,
    };
    // A proxy may report the usage of a few answers, and none of the others.
    let usages: Vec<TokenUsage> = trace.events.iter().filter_map(usage_of).collect();
    let reports_usage = usages.iter().filter(|usage| **usage != TokenUsage::default()).count() * 2 >= usages.len();
    let mut lanes: BTreeMap<&str, LaneRecording> = BTreeMap::new();
    // The lane and the frame of each call. One that the model wrote in its text has none, and no tokens of its own.
    let mut calls: BTreeMap<u64, (&str, Frame)> = BTreeMap::new();
    for event in &trace.events {
        let (lane, frame): (&str, Frame) = match event {
            // Where calls report their usage, the client produced this message without a call of the model.
            Event::Api(api) if reports_usage && api.usage == TokenUsage::default() => continue,
            Event::Api(api) => (api.lane.as_str(), Frame::default()),
            Event::Call(call) => {
                let frame = match call.tok {
                    Some(written) if written > 0 => frame,
                    _ => Frame::default(),
                };
                calls.insert(call.i, (call.lane.as_str(), frame));
                (call.lane.as_str(), frame)
            }
            Event::Result(result) => match calls.get(&result.i) {
                Some(known) => *known,
                None => continue,
            },
            Event::User(_) | Event::Compact(_) | Event::Ext(_) => (MAIN_LANE, Frame::default()),
        };
        lanes.entry(lane).or_default().event(event, frame)?;
    }
    Ok(lanes)
}

/// What one agent of a session does.
#[derive(Default)]
struct LaneRecording {
    steps: Vec<Step>,
    /// The index in `steps` of each API call.
    by_call: BTreeMap<u64, usize>,
    entering: Vec<Part>,
    compacted: bool,
    before_compaction: u64,
    last_at: Option<u64>,
}

impl LaneRecording {
    fn conversation(self, trace: &Trace, prompt: Option<SystemPrompt>) -> Conversation {
        // Parts after the last call were never sent.
        let steps = self.steps;
        let first = steps.first().and_then(|step| {
            let model = match step.model.as_str() {
                "" => &trace.head.model,
                model => model,
            };
            let entered: u64 = step.enters.iter().map(|part| part.tokens).sum();
            let reported = step.reported.filter(|reported| reported.prompt > 0)?;
            let reported = reported.prompt as f64 / tokens::factor(model).per_o200k;
            Some((reported.round() as u64).saturating_sub(entered))
        });
        let (fixed, fixed_is) = match (prompt, first) {
            (Some(prompt), _) if prompt.is_whole => (prompt.tok, FixedOrigin::Stated),
            (_, Some(inferred)) => (inferred, FixedOrigin::Inferred),
            (Some(prompt), None) => (prompt.tok, FixedOrigin::Stated),
            (None, None) => (0, FixedOrigin::Unknown),
        };
        Conversation { fixed, fixed_is, steps, ..Conversation::default() }
    }

    fn event(&mut self, event: &Event, frame: Frame) -> Result<(), String> {
        match event {
            Event::User(user) => {
                let kind = if user.by_client { PartKind::Reminder } else { PartKind::User };
                self.entering.push(Part::new(kind, user.tok));
            }
            Event::Compact(compact) => {
                self.entering.clear();
                self.compacted = true;
                self.before_compaction = compact.pre_tok;
            }
            Event::Api(api) => {
                let usage = api.usage;
                let parts = [usage.uncached, usage.cache_read, usage.cache_write_5m, usage.cache_write_1h];
                let prompt = parts.into_iter().fold(0, u64::saturating_add);
                let (Some(text), Some(thinking)) = (api.text_tok, api.thinking_tok) else {
                    return Err(format!(
                        "api call {}: no `text_tok`: the trace does not say what the model wrote\n  fix: import the session again with this ctxbench",
                        api.k
                    ));
                };
                let emits = [(PartKind::Thinking, thinking), (PartKind::Text, text)];
                let emits = emits.into_iter().filter(|(_, tokens)| *tokens > 0);
                let emits = emits.map(|(kind, tokens)| Part::new(kind, tokens)).collect();
                self.by_call.insert(api.k, self.steps.len());
                self.steps.push(Step {
                    gap_ms: self.last_at.map_or(0, |last| api.at.saturating_sub(last)),
                    model: api.model.clone(),
                    compacted: std::mem::take(&mut self.compacted),
                    before_compaction: std::mem::take(&mut self.before_compaction),
                    enters: std::mem::take(&mut self.entering),
                    emits,
                    reported: (prompt > 0).then_some(CallUsage {
                        prompt,
                        cached: usage.cache_read,
                        written: usage.cache_write_5m,
                        written_1h: usage.cache_write_1h,
                        output: usage.output,
                    }),
                    ..Step::default()
                });
                self.last_at = Some(api.at);
            }
            Event::Call(call) => {
                let Some(step) = self.by_call.get(&call.k) else {
                    return Ok(());
                };
                let step = &mut self.steps[*step];
                let kind = match call.op {
                    Op::Write | Op::Edit => PartKind::Content,
                    _ => PartKind::Arguments,
                };
                let written = call.tok.unwrap_or(0) + frame.call;
                step.emits.push(Part::new(kind, written));
                step.purposes.push(purpose(call));
                let is_file_call = matches!(call.op, Op::Read | Op::Write | Op::Edit | Op::List | Op::Search);
                if is_file_call && call.path.is_some() {
                    *step.files.entry(call.op.name().to_owned()).or_default() += 1;
                }
            }
            Event::Result(result) => {
                self.entering
                    .push(Part { bytes: result.bytes, ..Part::new(PartKind::Result, result.tok + frame.result) });
            }
            Event::Ext(_) => {}
        }
        Ok(())
    }
}

/// The conversation of a generated script: one call per turn as the model would write it,
/// and its result as the agent would see it. It contains no system prompt.
pub fn of_script(script: &Script) -> Conversation {
    let mut model = ReferenceModel::of(script);
    let mut steps = Vec::new();
    let mut entering: Vec<Part> = Vec::new();
    for call in &script.calls {
        let results: Vec<ExpectedResult> = call.ops.iter().map(|op| model.apply(op)).collect();
        let Some(kind) = call.kind else {
            continue;
        };
        let written = render::written(call).into_iter();
        steps.push(Step {
            gap_ms: if steps.is_empty() { 0 } else { TURN_MS },
            enters: std::mem::take(&mut entering),
            emits: written.map(|(kind, text)| part(kind, &text)).collect(),
            files: BTreeMap::from([(kind.to_string(), 1)]),
            purposes: vec![purpose_of_kind(kind)],
            ..Step::default()
        });
        entering.push(result_part(&render::result(call, &results)));
    }
    steps.push(Step { gap_ms: TURN_MS, enters: entering, ..Step::default() });
    Conversation { steps, ..Conversation::default() }
}

/// The tools that write the steps of a plan, in lower case and without marks.
const PLAN_WRITERS: [&str; 9] = [
    "todowrite",
    "writetodos",
    "updatetodos",
    "updatetodolist",
    "managetodolist",
    "updateplan",
    "taskcreate",
    "tasktracker",
    "todo",
];

/// The purpose of a recorded call.
fn purpose(call: &TraceCall) -> CallPurpose {
    match call.op {
        Op::Read | Op::Search | Op::Net => CallPurpose::Gathering,
        Op::List => CallPurpose::Names,
        Op::Write | Op::Edit => CallPurpose::Change,
        Op::Plan => {
            // A server's name stands before that of its tool.
            let tool = call.tool.rsplit("__").next().unwrap_or_default();
            let tool: String = tool.chars().filter(char::is_ascii_alphanumeric).collect();
            if PLAN_WRITERS.contains(&tool.to_ascii_lowercase().as_str()) {
                CallPurpose::Plan
            } else {
                CallPurpose::Message
            }
        }
        // Steps that stand for a program do not say what it shows.
        Op::Exec | Op::Vcs if !call.is_model => purpose_of_steps(&call.steps),
        Op::Exec | Op::Vcs | Op::Agent | Op::Other => CallPurpose::Unknown,
    }
}

/// The purpose of a shell command with these file operations.
fn purpose_of_steps(steps: &[FileStep]) -> CallPurpose {
    let names = |step: &FileStep| matches!(step, FileStep::Stat(_) | FileStep::List { .. } | FileStep::Walk(_));
    let reads = |step: &FileStep| matches!(step, FileStep::Read(_) | FileStep::Search(_));
    if steps.is_empty() {
        CallPurpose::Unknown
    } else if steps.iter().all(names) {
        CallPurpose::Names
    } else if steps.iter().all(|step| names(step) || reads(step)) {
        CallPurpose::Gathering
    } else {
        CallPurpose::Change
    }
}

/// The purpose of a generated call.
fn purpose_of_kind(kind: CallKind) -> CallPurpose {
    match kind {
        CallKind::Read | CallKind::Pread | CallKind::Search | CallKind::Recall => CallPurpose::Gathering,
        CallKind::List | CallKind::ListAttributes | CallKind::Stat => CallPurpose::Names,
        CallKind::Write
        | CallKind::Edit
        | CallKind::Create
        | CallKind::Append
        | CallKind::Rename
        | CallKind::Delete => CallPurpose::Change,
        _ => CallPurpose::Unknown,
    }
}

/// Counts a text as a part.
pub fn part(kind: PartKind, text: &str) -> Part {
    Part { bytes: text.len() as u64, ..Part::new(kind, tokens::count(text)) }
}

/// Counts a tool's result as a part, also as a JSON string, because a model may write it out to save it.
pub fn result_part(text: &str) -> Part {
    Part { escaped: tokens::count(&serde_json::Value::from(text).to_string()), ..part(PartKind::Result, text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::WorkspacePath;
    use crate::script::{CallKind, FileOp};
    use crate::trace::Trace;
    use std::path::Path;
    use tokens::{Account, Terms, residual};

    fn record(line: &str) -> String {
        line.replace('\'', "\"")
    }

    /// A recording with known counts: the first call reports 1,000 tokens, 100 of them from messages.
    fn recording(middle: &str) -> Trace {
        let head = r#"{"t":"head","v":1,"id":"t","source":{"format":"claude-code","path":"t","sha256":"0"},"agent":"a","model":"m","cwd":"/ws","fidelity":"shape","tokenizer":"o200k"}"#;
        let api = |k: u64, at: u64, prompt: u64, text: u64, lane: &str| {
            record(&format!(
                "{{'t':'api','k':{k},'at':{at},'usage':{{'uncached':{prompt},'cache_read':0,'cache_write_5m':0,'cache_write_1h':0,'output':1,'reasoning':0}},'usage_src':'reported','lane':'{lane}','text_tok':{text},'thinking_tok':50}}"
            ))
        };
        let call = |i: u64, k: u64, lane: &str| {
            record(&format!(
                "{{'t':'call','i':{i},'k':{k},'lane':'{lane}','tool':'Read','op':'read','args':{{}},'tok':20,'at':1}}"
            ))
        };
        let result = |i: u64, tok: u64| record(&format!("{{'t':'result','i':{i},'ok':true,'bytes':9,'tok':{tok}}}"));
        let lines = [
            head.to_owned(),
            record("{'t':'user','turn':0,'tok':100}"),
            api(0, 0, 1000, 5, "main"),
            call(0, 0, "main"),
            result(0, 300),
            api(1, 5000, 700, 9, "sub:x"),
            call(1, 1, "sub:x"),
            result(1, 9999),
            middle.to_owned(),
            api(2, 9000, 1325, 5, "main"),
            record("{'t':'end','exit':'unknown'}"),
        ];
        let lines: Vec<String> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        Trace::parse(Path::new("t.jsonl"), &lines.join("\n")).unwrap()
    }

    #[test]
    fn the_purpose_of_a_recorded_call_follows_from_its_tool_and_its_file_operations() {
        let of = |fields: &str| {
            let call = record(&format!("{{'i':0,'k':0,'lane':'main',{fields},'args':{{}},'at':1}}"));
            purpose(&serde_json::from_str(&call).unwrap())
        };
        let listed = "{'list':{'path':'a','attributes':true}}";
        let shell = |steps: &str| of(&format!("'tool':'Bash','op':'exec','steps':[{steps}]"));
        for (found, expected) in [
            (of("'tool':'TodoWrite','op':'plan'"), CallPurpose::Plan),
            (of("'tool':'mcp__plans__update_plan','op':'plan'"), CallPurpose::Plan),
            (of("'tool':'ExitPlanMode','op':'plan'"), CallPurpose::Message),
            (of("'tool':'Glob','op':'list'"), CallPurpose::Names),
            (of("'tool':'WebFetch','op':'net'"), CallPurpose::Gathering),
            (of("'tool':'Edit','op':'edit'"), CallPurpose::Change),
            (of("'tool':'query','op':'other'"), CallPurpose::Unknown),
            (shell(""), CallPurpose::Unknown),
            (shell(&format!("{listed},{{'stat':'b'}}")), CallPurpose::Names),
            (shell(&format!("{listed},{{'read':'b'}}")), CallPurpose::Gathering),
            (shell("{'read':'b'},{'remove':'b'}"), CallPurpose::Change),
            (of("'tool':'Bash','op':'vcs','steps':[{'walk':'a'}],'is_model':true"), CallPurpose::Unknown),
        ] {
            assert_eq!(found, expected);
        }
    }

    fn no_thinking() -> Terms {
        Terms { thinking: tokens::ThinkingRetention::Never, ..Terms::default() }
    }

    #[test]
    fn a_recorded_prompt_contains_all_earlier_parts() {
        let conversation = of_trace(&recording("")).unwrap();
        let fixed = (conversation.fixed, conversation.fixed_is);
        assert_eq!(fixed, (900, FixedOrigin::Inferred));
        let account = Account::of(&conversation, &no_thinking());
        // 5 of text, 20 of arguments, 300 of the result; thinking is output, but does not stay in the prompt.
        assert_eq!(account.calls[1].prompt, 1000 + 325);
        assert_eq!(account.calls[0].output, 75);
        assert_eq!(account.calls[1].cached, 1000);
        assert_eq!(conversation.steps[1].gap_ms, 9000);
        let found = residual(&conversation, &no_thinking()).unwrap();
        assert_eq!(conversation.subagents, 1);
        assert_eq!(conversation.subagent_calls, 1);
        assert_eq!((found.calls, found.worst_abs), (1, 0.0));
    }

    #[test]
    fn a_call_and_its_result_have_the_frame_of_the_recorded_model() {
        let mut trace = recording("");
        trace.head.model = "claude-opus-5".to_owned();
        let framed = of_trace(&trace).unwrap();
        let frame = tokens::frame("claude-opus-5");
        let call = framed.steps[0].emits.last().unwrap();
        assert_eq!(call.tokens, 20 + frame.call);
        assert_eq!(framed.steps[1].enters[0].tokens, 300 + frame.result);
        assert!(frame.call > 0 && frame.result > 0);
        // A call in the model's text has no frame.
        let mut in_text = trace.clone();
        for event in &mut in_text.events {
            if let Event::Call(call) = event {
                call.tok = Some(0);
            }
        }
        let unframed = of_trace(&in_text).unwrap();
        assert_eq!(unframed.steps[0].emits.last().unwrap().tokens, 0);
        assert_eq!(unframed.steps[1].enters[0].tokens, 300);
        // The first prompt has 1,000 tokens of the model, 100 `o200k` tokens of them from a message.
        let factor = tokens::factor("claude-opus-5").per_o200k;
        assert_eq!(framed.fixed, (1000.0 / factor).round() as u64 - 100);
    }

    #[test]
    fn what_the_client_adds_enters_the_prompt_and_is_no_message_of_the_user() {
        let added = record("{'t':'user','turn':0,'tok':40,'by_client':true}");
        let conversation = of_trace(&recording(&added)).unwrap();
        let added = conversation.steps[1].enters.last().unwrap();
        assert_eq!((added.kind, added.tokens), (PartKind::Reminder, 40));
        let terms = Terms { thinking: tokens::ThinkingRetention::UntilUserSpeaks, ..Terms::default() };
        let calls = Account::of(&conversation, &terms).calls;
        assert_eq!(calls[1].prompt, 1000 + 325 + 50 + 40);
    }

    #[test]
    fn each_subagent_has_a_conversation_of_its_own() {
        let trace = recording("");
        let subagents = of_subagents(&trace).unwrap();
        assert_eq!(subagents.len(), 1);
        let fixed = (subagents[0].fixed, subagents[0].fixed_is);
        assert_eq!(fixed, (700, FixedOrigin::Inferred));
        assert_eq!(subagents[0].steps.len(), 1);
        assert_eq!(subagents[0].steps[0].emits.len(), 3);
    }

    #[test]
    fn each_call_counts_where_none_reports_its_usage_and_the_clients_own_messages_do_not() {
        let mut trace = recording("");
        let prompts = |trace: &Trace| {
            let calls = Account::of(&of_trace(trace).unwrap(), &no_thinking()).calls;
            calls.iter().map(|call| call.prompt).collect::<Vec<_>>()
        };
        let silence = |trace: &mut Trace, which: u64| {
            for event in &mut trace.events {
                if let Event::Api(api) = event
                    && api.k == which
                {
                    api.usage = TokenUsage::default();
                }
            }
        };
        silence(&mut trace, 0);
        // The first message was the client's: the fixed part is inferred from the call after it.
        assert_eq!(prompts(&trace), [1325]);
        // Where few report it, those that do not are calls, too.
        silence(&mut trace, 1);
        assert_eq!(prompts(&trace), [100, 100 + 325]);
        silence(&mut trace, 2);
        assert_eq!(prompts(&trace), [100, 100 + 325]);
    }

    #[test]
    fn a_step_names_its_model_if_it_is_not_the_sessions() {
        let mut trace = recording("");
        for event in &mut trace.events {
            if let Event::Api(api) = event
                && api.k == 2
            {
                api.model = "b".to_owned();
            }
        }
        let models = of_trace(&trace).unwrap().steps;
        let models: Vec<&str> = models.iter().map(|step| &*step.model).collect();
        assert_eq!(models, ["", "b"]);
    }

    #[test]
    fn thinking_stays_as_long_as_the_models_provider_keeps_it() {
        let grows = |model: &str, middle: &str| {
            // The model of the account decides how long thinking stays, not the recorded model.
            let terms = Terms { thinking: tokens::thinking_stays(model), ..Terms::default() };
            let calls = Account::of(&of_trace(&recording(middle)).unwrap(), &terms).calls;
            calls[1].prompt - calls[0].prompt
        };
        let said = record("{'t':'user','turn':1,'tok':40}");
        assert_eq!(grows("m", ""), 325);
        assert_eq!(grows("claude-opus-4-5", &said), 325 + 50 + 40);
        assert_eq!(grows("claude-sonnet-4-5", ""), 325 + 50);
        assert_eq!(grows("claude-sonnet-4-5", &said), 325 + 40);
    }

    #[test]
    fn a_compaction_removes_all_earlier_parts() {
        let compact = record("{'t':'compact','k':0,'pre_tok':5}\n{'t':'user','turn':1,'tok':40}");
        let conversation = of_trace(&recording(&compact)).unwrap();
        let account = Account::of(&conversation, &Terms::default());
        assert_eq!(account.calls[1].prompt, 900 + 40);
        assert_eq!(conversation.steps[1].before_compaction, 5);
        assert_eq!(account.compactions, 1);
    }

    #[test]
    fn a_trace_without_output_tokens_is_refused() {
        let mut trace = recording("");
        for event in &mut trace.events {
            if let Event::Api(api) = event {
                api.text_tok = None;
            }
        }
        let error = of_trace(&trace).unwrap_err();
        assert!(error.contains("import the session again"), "{error}");
    }

    #[test]
    fn a_scripts_calls_are_output_and_its_results_enter_the_prompt() {
        let path = WorkspacePath::new("a.md").unwrap();
        let mut script = Script::new(vec![(path.clone(), "one\n".to_owned().into_bytes().into())]);
        let content = "word ".repeat(500);
        let write = FileOp::write(path.clone(), content.as_bytes().to_vec());
        script.call(CallKind::Write, vec![write]);
        script.call(CallKind::Read, vec![FileOp::Read(path)]);
        let conversation = of_script(&script);
        let account = Account::of(&conversation, &Terms::default());
        assert_eq!(account.calls.len(), 3);
        // A written file is output of the model; a file read back enters the prompt once more.
        let words = tokens::count(&content);
        assert!(account.calls[0].output > words, "{account:?}");
        assert!(account.calls[2].prompt > 2 * words, "{account:?}");
    }
}
