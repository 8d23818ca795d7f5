//! Faults of a language model's provider. The provider is scripted, so every answer is simulated.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use backends::backend::Launch;
use models::{Behaviour, FakeServer};
use rundir::faults::{Fact, Return};
use workloads::fault::LlmFault;

use super::super::agent::{RemoteTask, Task};
use super::super::bed::{Injected, ScenarioError, TestBed, infra};

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

fn script(fault: LlmFault, mode: Mode) -> Vec<Behaviour> {
    let status =
        |status: u16, message: &str| vec![Behaviour::Status(status, message.to_owned(), None)];
    match fault {
        LlmFault::RateLimited { retry_after } => vec![Behaviour::Status(
            429,
            "Rate limit reached".to_owned(),
            retry_after.map(|seconds| seconds.to_string()),
        )],
        LlmFault::ServerError => status(500, "The server had an error"),
        LlmFault::Hang => vec![Behaviour::Hang],
        LlmFault::StreamCut => vec![Behaviour::BreakOff],
        LlmFault::InvalidJson => vec![Behaviour::Garbage],
        LlmFault::Empty => vec![Behaviour::Say(String::new())],
        LlmFault::Refusal => vec![Behaviour::Say(REFUSAL.to_owned())],
        LlmFault::ContextOverflow => status(
            400,
            "This model's maximum context length is 8192 tokens (context_length_exceeded)",
        ),
        LlmFault::KeyRevoked => status(401, "Incorrect API key provided (invalid_api_key)"),
        LlmFault::BudgetExhausted => vec![Behaviour::Say(answer(mode, CONTENT))],
        LlmFault::WrongContent => vec![Behaviour::Say(answer(mode, OTHER))],
    }
}

fn words(fault: LlmFault) -> String {
    match fault {
        LlmFault::RateLimited {
            retry_after: Some(seconds),
        } => format!("the provider answered 429 with Retry-After: {seconds}"),
        LlmFault::RateLimited { retry_after: None } => {
            "the provider answered 429 without Retry-After".to_owned()
        }
        LlmFault::ServerError => "the provider answered 500".to_owned(),
        LlmFault::Hang => "the provider took the request and never answered".to_owned(),
        LlmFault::StreamCut => "the stream of the answer broke off".to_owned(),
        LlmFault::InvalidJson => "the provider answered with what is no JSON".to_owned(),
        LlmFault::Empty => "the model answered with nothing".to_owned(),
        LlmFault::Refusal => format!("the model answered {REFUSAL:?}"),
        LlmFault::ContextOverflow => {
            "the provider answered 400: the question is too long".to_owned()
        }
        LlmFault::KeyRevoked => "the provider answered 401".to_owned(),
        LlmFault::BudgetExhausted => "the mount's budget of tokens was spent".to_owned(),
        LlmFault::WrongContent => {
            "the model answered with as many bytes as the file has, and other ones".to_owned()
        }
    }
}

/// The scripted provider and the kind of backend that asks it.
struct World {
    server: FakeServer,
    mode: Mode,
}

impl World {
    fn start(bed: &mut TestBed, script: Vec<Behaviour>, budget: Option<u64>) -> Injected<Self> {
        let name = bed.backend.describe().name;
        let mode = if name.starts_with("llm-history") {
            Mode::History
        } else {
            Mode::Generate
        };
        let server = FakeServer::start(script)?;
        let dir = bed.config.dir.clone();
        let timeout = (bed.scenario.limits.hang - SLACK).max(1.0);
        let mut arguments: Vec<std::ffi::OsString> = [
            "--provider=openai".to_owned(),
            "--model=simulated".to_owned(),
            format!("--base-url={}", server.base_url()),
            format!("--answer-timeout={timeout}"),
        ]
        .into_iter()
        .map(Into::into)
        .collect();
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
        let backend = bed.backend.launched_by(launch);
        let backend = backend
            .ok_or_else(|| ScenarioError::Skipped("its daemon is not one of ours".into()))?;
        bed.backend = backend.into();
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
pub fn run(bed: &mut TestBed, fault: LlmFault) -> Injected {
    let budget = (fault == LlmFault::BudgetExhausted).then_some(1);
    let healed = |mode| vec![Behaviour::Say(answer(mode, CONTENT))];
    let world = World::start(bed, Vec::new(), budget)?;
    if fault == LlmFault::WrongContent && world.mode == Mode::Generate {
        let reason = "generated content has no expected bytes";
        return Err(ScenarioError::Skipped(reason.into()));
    }
    bed.open()?;
    let file = world.file(bed);
    if world.mode == Mode::History {
        let write = Task::Remote(RemoteTask::WriteText {
            file: file.clone(),
            text: CONTENT.to_owned(),
        });
        let written = bed.perform(&write)?;
        if written.is_none_or(|answer| !answer.failures.is_empty()) {
            return infra("the file could not be written");
        }
    }
    if fault == LlmFault::BudgetExhausted {
        // The first answer uses up the token budget.
        world.server.behave(healed(world.mode));
        let first = Task::Remote(RemoteTask::ReadAny { file: file.clone() });
        bed.perform(&first)?;
        bed.outcome.seen.clear();
    }
    bed.injected(words(fault));
    bed.outcome.label = Some("simulated: a scripted provider, no model".to_owned());
    let calls = world.server.calls();
    world.server.behave(script(fault, world.mode));
    let log = bed.config.dir.join("mnt.llmfs.log");
    let said_before = std::fs::read_to_string(&log).unwrap_or_default().len();

    let target = match (fault, world.mode) {
        // The first file's content is cached, so another file is read.
        (LlmFault::BudgetExhausted, Mode::Generate) => file.with_file_name("second.txt"),
        _ => file.clone(),
    };
    let started = Instant::now();
    let read = bed.perform(&Task::Remote(RemoteTask::ReadAny { file: target }))?;
    bed.fact("read_ms", Fact::Count(started.elapsed().as_millis() as u64));
    let calls = (world.server.calls() - calls) as u64;
    bed.fact("model_calls", Fact::Count(calls));
    if calls == 0 && fault != LlmFault::BudgetExhausted {
        return infra("the model was not asked: nothing was broken");
    }
    let is_refused = read
        .as_ref()
        .is_none_or(|answer| !answer.failures.is_empty());
    if fault == LlmFault::BudgetExhausted && !is_refused {
        return infra("the read was answered: the budget was not spent, or nothing was asked");
    }
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let said = said.get(said_before..).unwrap_or_default();
    judge(bed, fault, read, said);
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
    loop {
        let seen = bed.outcome.seen.clone();
        let read = bed.perform(&Task::Remote(RemoteTask::ReadAny { file: file.clone() }))?;
        bed.outcome.seen = seen;
        let text = read.as_ref().and_then(|answer| answer.facts.get("text"));
        let ms = began.elapsed().as_millis() as u64;
        if text == Some(&Fact::Words(CONTENT.to_owned())) {
            bed.recovered(Return::ByItself, ms, None);
            return Ok(());
        }
        if began.elapsed() > limit {
            let kept = text.map(ToString::to_string).unwrap_or_default();
            bed.recovered(Return::Never, ms, Some(format!("it keeps {kept:?}")));
            bed.breach("what went wrong once stays in the file");
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Checks that a failure gives an error number and a log line, never an empty file.
fn judge(
    bed: &mut TestBed,
    fault: LlmFault,
    read: Option<super::super::agent::Answer>,
    said: &str,
) {
    let Some(read) = read else {
        return;
    };
    let text = read.facts.get("text").map(ToString::to_string);
    let is_error = read.failures.iter().any(|failure| failure.errno.is_some());
    if let Some(text) = &text {
        bed.fact("read", Fact::Words(text.clone()));
    }
    match (is_error, &text) {
        (true, _) => {
            // A line about the model's answer does not describe a failure.
            let mut lines = said.lines();
            let line = lines.rfind(|line| !line.trim().is_empty() && !line.contains(" answered, "));
            match line {
                Some(line) => {
                    let line: String = line.chars().take(200).collect();
                    bed.fact("log_line", Fact::Words(line));
                }
                None => bed.breach("an error, and no line in the log"),
            }
        }
        (false, Some(text)) if text != CONTENT => {
            // The reader cannot tell this content from correct content.
            bed.saw(
                "read",
                rundir::faults::SeenKind::WrongBytes,
                None,
                "what the file does not hold, and no error",
            );
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
