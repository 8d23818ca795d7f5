//! The conversation of a workload in an agent's context, from a recorded trace or from a generated script.
//! Counting and accounts are in the crate `tokens`.

use std::collections::{BTreeMap, BTreeSet};

use tokens::{Conversation, Fixed, Part, PartKind, Reported, Step};

use crate::model::{Expected, ReferenceModel};
use crate::render;
use crate::script::Script;
use crate::trace::{Event, MAIN_LANE, Op, Trace};

/// The time from one model answer to the next in generated workloads, in milliseconds.
/// It is the median of 281 recorded Claude Code sessions.
pub const TURN_MS: u64 = 3600;

/// The conversation of a recorded session. Only the main lane counts, because a subagent has its own context.
/// If the fixed part is inferred, the recorded model's factor converts its tokens to `o200k` tokens.
/// Thinking stays in all prompts here, because its lifetime depends on the model of the account.
/// Tokens of thinking are counted from the source's text, which may be a summary.
///
/// # Errors
/// If the trace does not contain the tokens that the model wrote.
pub fn of_trace(trace: &Trace) -> Result<Conversation, String> {
    let per_o200k = tokens::factor(&trace.head.model).per_o200k;
    let mut recording = Recording::default();
    for event in &trace.events {
        recording.event(event)?;
    }
    let steps = recording.steps;
    // Parts after the last call were never sent.
    recording.entering.clear();
    let first = steps.first().and_then(|step| {
        let entered: u64 = step.enters.iter().map(|part| part.tokens).sum();
        let reported = step.reported.filter(|reported| reported.prompt > 0)?;
        Some(((reported.prompt as f64 / per_o200k).round() as u64).saturating_sub(entered))
    });
    let (fixed, fixed_is) = match (trace.head.prompt, first) {
        (Some(prompt), _) if prompt.is_whole => (prompt.tok, Fixed::Stated),
        (_, Some(inferred)) => (inferred, Fixed::Inferred),
        (Some(prompt), None) => (prompt.tok, Fixed::Stated),
        (None, None) => (0, Fixed::Unknown),
    };
    Ok(Conversation {
        fixed,
        fixed_is,
        steps,
        subagents: recording.subagents.len() as u64,
        subagent_calls: recording.subagent_calls,
    })
}

#[derive(Default)]
struct Recording {
    steps: Vec<Step>,
    /// The index in `steps` of each API call of the main lane.
    by_call: BTreeMap<u64, usize>,
    /// Tool calls of the main lane.
    main_calls: BTreeSet<u64>,
    entering: Vec<Part>,
    compacted: bool,
    before_compaction: u64,
    /// Lanes of subagents.
    subagents: BTreeSet<String>,
    subagent_calls: u64,
    last_at: Option<u64>,
}

impl Recording {
    fn event(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::User(user) => self.entering.push(Part::new(PartKind::User, user.tok)),
            Event::Compact(compact) => {
                self.entering.clear();
                self.compacted = true;
                self.before_compaction = compact.pre_tok;
            }
            Event::Api(api) if api.lane == MAIN_LANE => {
                let usage = api.usage;
                let prompt =
                    usage.uncached + usage.cache_read + usage.cache_write_5m + usage.cache_write_1h;
                if prompt == 0 && usage.output == 0 && !self.steps.is_empty() {
                    // The client produced this message without a call of the model.
                    return Ok(());
                }
                let (Some(text), Some(thinking)) = (api.text_tok, api.thinking_tok) else {
                    return Err(format!(
                        "api call {}: no `text_tok`: the trace does not say what the model wrote\n  fix: import the session again with this ctxbench",
                        api.k
                    ));
                };
                let emits = [(PartKind::Thinking, thinking), (PartKind::Text, text)];
                let emits = emits.into_iter().filter(|(_, tokens)| *tokens > 0);
                let emits = emits
                    .map(|(kind, tokens)| Part::new(kind, tokens))
                    .collect();
                self.by_call.insert(api.k, self.steps.len());
                self.steps.push(Step {
                    gap_ms: self.last_at.map_or(0, |last| api.at.saturating_sub(last)),
                    compacted: std::mem::take(&mut self.compacted),
                    before_compaction: std::mem::take(&mut self.before_compaction),
                    enters: std::mem::take(&mut self.entering),
                    emits,
                    reported: (prompt > 0).then_some(Reported {
                        prompt,
                        cached: usage.cache_read,
                        output: usage.output,
                    }),
                    ..Step::default()
                });
                self.last_at = Some(api.at);
            }
            Event::Call(call) if call.lane == MAIN_LANE => {
                self.main_calls.insert(call.i);
                let Some(step) = self.by_call.get(&call.k) else {
                    return Ok(());
                };
                let step = &mut self.steps[*step];
                let kind = match call.op {
                    Op::Write | Op::Edit => PartKind::Content,
                    _ => PartKind::Arguments,
                };
                step.emits.push(Part::new(kind, call.tok.unwrap_or(0)));
                let is_file_call = matches!(
                    call.op,
                    Op::Read | Op::Write | Op::Edit | Op::List | Op::Search
                );
                if is_file_call && call.path.is_some() {
                    *step.files.entry(call.op.name().to_owned()).or_default() += 1;
                }
            }
            Event::Result(result) if self.main_calls.contains(&result.i) => {
                self.entering.push(Part {
                    bytes: result.bytes,
                    ..Part::new(PartKind::Result, result.tok)
                });
            }
            Event::Api(api) => {
                self.subagents.insert(api.lane.clone());
                self.subagent_calls += 1;
            }
            Event::Call(_) | Event::Result(_) | Event::Ext(_) => {}
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
        let results: Vec<Expected> = call.ops.iter().map(|op| model.apply(op)).collect();
        let Some(kind) = call.kind else {
            continue;
        };
        let written = render::written(call).into_iter();
        steps.push(Step {
            gap_ms: if steps.is_empty() { 0 } else { TURN_MS },
            enters: std::mem::take(&mut entering),
            emits: written.map(|(kind, text)| part(kind, &text)).collect(),
            files: BTreeMap::from([(kind.to_string(), 1)]),
            ..Step::default()
        });
        entering.push(result_part(&render::result(call, &results)));
    }
    steps.push(Step {
        gap_ms: TURN_MS,
        enters: entering,
        ..Step::default()
    });
    Conversation {
        steps,
        ..Conversation::default()
    }
}

/// Counts a text as a part.
pub fn part(kind: PartKind, text: &str) -> Part {
    Part {
        bytes: text.len() as u64,
        ..Part::new(kind, tokens::count(text))
    }
}

/// Counts a tool's result as a part, also as a JSON string, because a model may write it out to save it.
pub fn result_part(text: &str) -> Part {
    Part {
        escaped: tokens::count(&serde_json::Value::from(text).to_string()),
        ..part(PartKind::Result, text)
    }
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
        let result = |i: u64, tok: u64| {
            record(&format!(
                "{{'t':'result','i':{i},'ok':true,'bytes':9,'tok':{tok}}}"
            ))
        };
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

    fn no_thinking() -> Terms {
        Terms {
            thinking: tokens::ThinkingStays::Never,
            ..Terms::default()
        }
    }

    #[test]
    fn a_recorded_prompt_contains_all_earlier_parts() {
        let conversation = of_trace(&recording("")).unwrap();
        let fixed = (conversation.fixed, conversation.fixed_is);
        assert_eq!(fixed, (900, Fixed::Inferred));
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
    fn thinking_stays_as_long_as_the_models_provider_keeps_it() {
        let grows = |model: &str, middle: &str| {
            // The model of the account decides how long thinking stays, not the recorded model.
            let terms = Terms {
                thinking: tokens::thinking_stays(model),
                ..Terms::default()
            };
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
