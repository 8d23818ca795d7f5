//! Faults of a language model's provider. The provider is scripted, so every answer is simulated.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use arms::backend::Launch;
use models::{Behaviour, FakeServer};
use rundir::faults::{AgentEventKind, Fact, Return};
use workloads::fault::LlmFault;

use super::super::agent::{Job, JobAnswer};
use super::super::bed::{StepResult, TestBed, infra, skipped};

/// Content of the file that the model is asked for. For `llm-history`, the scenario also writes it there.
const CONTENT: &str = "the ledger says 42\n";

/// Other content of the same length.
const OTHER: &str = "the ledger says 99\n";

/// The answer of a model that refuses.
const REFUSAL: &str = "I'm sorry, but I can't help with that.";

/// An API key that no log may contain.
const KEY: &str = "sk-ctxbench-fault-scenario-0000";

/// Seconds that a call may take beyond the answer timeout, within the scenario's hang limit.
const SLACK: f64 = 2.0;

/// The backend: `llm-history` asks for written content, `llm-generate` invents files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    History,
    Generate,
}

/// A model's answer in the form that the backend expects.
fn answer(mode: Mode, content: &str) -> String {
    match mode {
        Mode::History => serde_json::json!({"exists": true, "content": content}).to_string(),
        Mode::Generate => content.to_owned(),
    }
}

/// The description of a fault, and the provider's behaviour.
fn script(fault: LlmFault, mode: Mode) -> (String, Behaviour) {
    let status = |status: u16, said: &str, message: &str| {
        let words = format!("the provider answered {status}{said}");
        (words, Behaviour::Status(status, message.to_owned(), None))
    };
    let words = |words: &str, behaviour| (words.to_owned(), behaviour);
    match fault {
        LlmFault::RateLimited { retry_after } => {
            let seconds = retry_after.map(|seconds| seconds.to_string());
            let words = match &seconds {
                Some(seconds) => format!("the provider answered 429 with Retry-After: {seconds}"),
                None => "the provider answered 429 without Retry-After".to_owned(),
            };
            let message = "Rate limit reached".to_owned();
            (words, Behaviour::Status(429, message, seconds))
        }
        LlmFault::ServerError => status(500, "", "The server had an error"),
        LlmFault::Hang => words("the provider took the request and never answered", Behaviour::Hang),
        LlmFault::StreamCut => words("the stream of the answer broke off", Behaviour::BreakOff),
        LlmFault::InvalidJson => words("the provider answered with invalid JSON", Behaviour::Garbage),
        LlmFault::Empty => words("the model answered with nothing", Behaviour::Say(String::new())),
        LlmFault::Refusal => words(&format!("the model answered {REFUSAL:?}"), Behaviour::Say(REFUSAL.to_owned())),
        LlmFault::ContextOverflow => status(
            400,
            ": the question is too long",
            "This model's maximum context length is 8192 tokens (context_length_exceeded)",
        ),
        LlmFault::KeyRevoked => status(401, "", "Incorrect API key provided (invalid_api_key)"),
        LlmFault::BudgetExhausted => {
            words("the mount's budget of tokens was spent", Behaviour::Say(answer(mode, CONTENT)))
        }
        LlmFault::WrongContent => {
            words("the model answered with wrong bytes of the right length", Behaviour::Say(answer(mode, OTHER)))
        }
    }
}

/// The scripted provider and the kind of backend that asks it.
struct World {
    server: FakeServer,
    mode: Mode,
}

impl World {
    fn start(bed: &mut TestBed, script: Vec<Behaviour>, budget: Option<u64>) -> StepResult<Self> {
        let name = bed.backend.describe().name;
        let mode = if name.starts_with("llm-history") { Mode::History } else { Mode::Generate };
        let server = FakeServer::start(script)?;
        let dir = bed.config.dir.clone();
        let timeout = (bed.scenario.limits.hang - SLACK).max(1.0);
        let mut arguments: Vec<OsString> = vec![
            "--provider=openai".into(),
            "--model=simulated".into(),
            format!("--base-url={}", server.base_url()).into(),
            format!("--answer-timeout={timeout}").into(),
        ];
        if let Some(tokens) = budget {
            arguments.push(format!("--max-tokens={tokens}").into());
        }
        match mode {
            Mode::History => arguments.extend(["--log-db".into(), dir.join("log.db").into()]),
            Mode::Generate => {
                let tree = dir.join("tree.json");
                std::fs::write(&tree, TREE)?;
                arguments.extend(["--tree".into(), tree.into(), "--no-cache".into()]);
                arguments.push("--prompt=A ledger".into());
            }
        }
        let launch = Launch {
            arguments,
            environment: vec![
                ("CTXBENCH_PROMPT", String::new()),
                ("CTXBENCH_API_KEY", KEY.to_owned()),
                ("OPENAI_API_KEY", String::new()),
            ],
        };
        bed.backend = bed.with_launch(launch)?.into();
        Ok(Self { server, mode })
    }

    /// Path of the file that the model is asked for.
    fn file(&self, bed: &TestBed) -> PathBuf {
        // `llm-generate` shows its files in the root of the mount, above a workload's directory.
        match self.mode {
            Mode::History => bed.root().join("ledger.txt"),
            Mode::Generate => bed.config.dir.join("mnt").join("ledger.txt"),
        }
    }
}

/// The tree of `llm-generate`, so that the backend does not ask a model for it.
const TREE: &str = r#"{"entries": [{"path": "ledger.txt", "kind": "file", "about": "the ledger"}, {"path": "second.txt", "kind": "file", "about": "another"}]}"#;

/// Runs the scenario of one provider fault.
pub fn run(bed: &mut TestBed, fault: LlmFault) -> StepResult {
    let budget = (fault == LlmFault::BudgetExhausted).then_some(1);
    let healed = |mode| vec![Behaviour::Say(answer(mode, CONTENT))];
    let world = World::start(bed, Vec::new(), budget)?;
    if fault == LlmFault::WrongContent && world.mode == Mode::Generate {
        return skipped("generated content has no expected bytes");
    }
    bed.open()?;
    let file = world.file(bed);
    if world.mode == Mode::History && !bed.succeeds(&file, &Job::WriteText(CONTENT.to_owned()))? {
        return infra("the file could not be written");
    }
    if fault == LlmFault::BudgetExhausted {
        // The first answer uses up the token budget.
        world.server.behave(healed(world.mode));
        bed.perform(&file, &Job::ReadAny)?;
        bed.outcome.seen.clear();
    }
    let (words, behaviour) = script(fault, world.mode);
    bed.injected(words);
    bed.label("simulated: a scripted provider, no model");
    let calls = world.server.calls();
    world.server.behave(vec![behaviour]);
    let log = bed.config.dir.join("mnt.llmfs.log");
    let said_before = std::fs::read_to_string(&log).unwrap_or_default().len();

    let target = match (fault, world.mode) {
        // The first file's content is cached, so another file is read.
        (LlmFault::BudgetExhausted, Mode::Generate) => file.with_file_name("second.txt"),
        _ => file.clone(),
    };
    let started = Instant::now();
    let read = bed.perform(target, &Job::ReadAny)?;
    bed.count("read_ms", started.elapsed().as_millis() as u64);
    let calls = (world.server.calls() - calls) as u64;
    bed.count("model_calls", calls);
    if calls == 0 && fault != LlmFault::BudgetExhausted {
        return infra("the model was not asked: the fault hit nothing");
    }
    let is_refused = read.as_ref().is_none_or(|answer| !answer.failures.is_empty());
    if fault == LlmFault::BudgetExhausted && !is_refused {
        return infra("the read was answered: the budget was not spent, or nothing was asked");
    }
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let said = said.get(said_before..).unwrap_or_default();
    check_failure(bed, fault, read, said);
    if said.contains(KEY) || bed.daemon_log().contains(KEY) {
        bed.breach("a log shows the API key");
    }
    if fault == LlmFault::BudgetExhausted {
        // Only a new mount gets a new budget.
        return Ok(());
    }

    // Once the provider answers again, so must the file.
    world.server.behave(healed(world.mode));
    let began = Instant::now();
    let limit = Duration::from_secs_f64(bed.scenario.limits.recovery);
    let mut kept = String::new();
    let is_healed = bed.wait_until(limit, Duration::from_millis(200), |bed| {
        let read = bed.try_out(&file, &Job::ReadAny)?;
        kept = read.map(|answer| answer.words("text")).unwrap_or_default();
        Ok(kept == CONTENT)
    })?;
    let after = began.elapsed();
    if is_healed {
        bed.recovered(Return::ByItself, after, None);
    } else {
        bed.recovered(Return::Never, after, Some(format!("it keeps {kept:?}")));
        bed.breach("the result of one failure stays in the file");
    }
    Ok(())
}

/// Checks that a failure gives an error number and a log line, never an empty file.
fn check_failure(bed: &mut TestBed, fault: LlmFault, read: Option<JobAnswer>, said: &str) {
    let Some(read) = read else {
        return;
    };
    let text = read.facts.get("text").map(ToString::to_string);
    let is_error = read.failures.iter().any(|failure| failure.errno.is_some());
    if let Some(text) = &text {
        bed.words("read", text.clone());
    }
    match (is_error, &text) {
        (true, _) => {
            // A line about the model's answer does not describe a failure.
            let mut lines = said.lines();
            let line = lines.rfind(|line| !line.trim().is_empty() && !line.contains(" answered, "));
            match line {
                Some(line) => {
                    let line: String = line.chars().take(200).collect();
                    bed.words("log_line", line);
                }
                None => bed.breach("an error, and no line in the log"),
            }
        }
        (false, Some(text)) if text != CONTENT => {
            // The reader cannot tell this content from correct content.
            bed.saw("read", AgentEventKind::WrongBytes, None, "wrong content, and no error");
            if fault != LlmFault::WrongContent {
                bed.breach(format!("{} became the content of a file", fault.name()));
            }
        }
        _ => {}
    }
    if read.facts.get("bytes") == Some(&Fact::Count(0)) {
        bed.breach("a failure of the model is an empty file");
    }
}
