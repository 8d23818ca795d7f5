//! `ctxbench try`: from recorded sessions to an answer, in one command.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use backends::registry::Registry;
use clap::{Args, Parser, ValueEnum};
use figures::context;
use figures::prices::{Prices, ReportedTokens};
use figures::reported::{LedgerEstimate, ModelBill, ReportedUsage, bill, estimate};
use figures::summary::summarise;
use inputs::border::terminal_cell;
use reports::answer::{AdviceKind, Overview, TRY_WITH_PROGRAMS};
use reports::render::{count, number_of, partial_answer, put};
use reports::sessions::{LIST, SESSIONS, TriedBill, TriedSession};
use rundir::{Plan, Run};
use session_traces::coverage::Coverage;
use session_traces::{ImportedSession, RecordedEvent, TraceOrigin, trace};
use tokens::{Account, BilledUsage, Terms};
use verdicts::decide::{Evidence, Policy, decide, find, identity};
use workloads::compile::counted;
use workloads::conversation::{of_subagents, of_trace};
use workloads::trace::{Fidelity, TokenUsage, Trace, TraceSource};

use super::format::ScreenFormat;
use super::headline::print_answer;
use super::run::{Options, RunOutcome};
use super::trace::source_lines;
use crate::environment::{new_run_dir, now, today};
use crate::error_text;
use crate::evidence::PriceList;
use crate::progress_line::ProgressLine;
use crate::reporting::ReportInputs;
use crate::session_contexts::recorded_contexts;
use crate::session_files::{AgentHome, ENDS as FILE_ENDS, SessionPlace, newest, session_files};
use crate::sessions::format_names;
use crate::shell_word::shell_word;
use runner::plan::BASELINE;
use session_traces::copies::{AddedSession, KnownCalls};
use trial::interrupt::Interrupt;

/// The backends that sessions are replayed on.
const BACKENDS: [&str; 2] = ["direct", "sqlite"];

/// Of many sessions, so many are replayed: those with most file operations.
const MOST_REPLAYED: usize = 3;

/// How many causes are listed why calls of a session are not replayed.
const MOST_CAUSES: usize = 3;

/// How many sessions of an agent are listed.
const LISTED: usize = 10;

/// More sessions than this have a line each, without details.
const MOST_DETAILED: usize = 3;

/// How many sessions have a line.
const MOST_LINES: usize = 20;

/// How many unreadable files are named at the end.
const MOST_FAILED: usize = 5;

/// Of many sessions, so many are asked about large results without a replay: those with most tokens.
const MOST_ASKED: usize = 20;

/// The lines of the answer on large results.
const ANSWER_LINES: usize = 6;

/// The most columns of a line, except for paths and commands.
const WIDTH: usize = 100;

/// The longest name of a session in the title of a row, in characters.
const LONGEST_TITLE: usize = 40;

/// The longest command with the names of the sessions in an answer, in characters.
const LONGEST_COMMAND: usize = 60;

/// The longest name of a workload, in characters behind its prefix.
const LONGEST_WORKLOAD: usize = 40;

/// The policy on git and files, and the recorded session for which a session of the user stands in it.
const CODING_AGENT: (&str, &str) = ("coding-agent", "agent/claude-code-write-heavy");

/// The policy on large results, which needs tokens, and the session for which those of the user stand in it.
const LONG_CONTEXT: (&str, &str) = ("long-context", "agent/offload-comparison");

/// Import, replay and decide for your own recorded sessions.
///
/// Finds the format of each session, counts its tokens and dollars, replays its file operations on a plain directory
/// and on the `sqlite` store, measures git there, and kills the store's daemon. Then decides whether the files and the large
/// results of these sessions should be kept elsewhere. Other stores are left out: with 60 kills and 60 simulated power cuts of
/// each, the command would take longer than a minute and a half.
/// No text of a session gets into the results: contents and names are replaced by filler of the same size. Only the name of
/// the recording's own file is kept, without its directories.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench try ~/.claude/projects/my-project/session.jsonl
  ctxbench try --session codex
  ctxbench try sessions/ --no-replay
  zstdcat session.jsonl.zst | ctxbench try -

Exit codes: 0 answered for all files; 1 failed, or a file could not be read and the others are answered; 130 interrupted.
An interrupted command leaves no files.")]
pub struct TrySession {
    /// Recorded sessions: files (also compressed), directories, patterns such as 'logs/*.jsonl', or `-` for standard
    /// input.
    #[arg(value_name = "SESSION")]
    sessions: Vec<PathBuf>,
    /// List the ten newest sessions in this agent's own directory, and try the newest one.
    #[arg(long, value_enum, value_name = "AGENT", conflicts_with = "sessions")]
    session: Option<AgentHome>,
    /// The format of the sessions [default: detected from their content].
    #[arg(long, value_name = "FORMAT", value_parser = format_names())]
    format: Option<String>,
    /// Replay nothing: count tokens and dollars, and decide only on large results, which needs no replay.
    #[arg(long)]
    no_replay: bool,
    /// Seconds that the replay may take; from 30 s on, it also measures git and single reads. Probes, kills and
    /// simulated power cuts follow, and take about 15 s more.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = super::run::positive)]
    budget: f64,
    /// Directory in which the command creates a directory with the results.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    #[command(flatten)]
    prices: PriceList,
}

/// The options of a run, as its command line has them.
#[derive(Debug, Parser)]
struct RunOptions {
    #[command(flatten)]
    options: Options,
}

/// A session, and what is known of it without replaying it.
struct SessionEntry {
    /// The path of its file, or where else it is from.
    name: String,
    /// The name of its file; with the directory around it, if another session has the same.
    file: String,
    format: &'static str,
    lacks: Option<&'static str>,
    agent: String,
    model: String,
    /// What was wrong with records of the recording.
    source_lines: String,
    /// Answers and calls that count in another of the sessions.
    copied: u64,
    /// Its number among the sessions that were read, in [`KnownCalls`].
    number: usize,
    /// Recordings that are earlier states of this session, or copies of it.
    earlier: usize,
    calls: u64,
    replayed: u64,
    /// Why calls cannot be replayed, with their number.
    causes: BTreeMap<String, u64>,
    bills: Vec<ModelBill>,
    /// Dollars that the recording states itself.
    stated: Option<f64>,
    /// Services that the provider bills beside the tokens.
    web_searches: u64,
    fast_answers: u64,
    estimate: Option<LedgerEstimate>,
    counted: u64,
    /// Whether the recording holds the results of its tools.
    holds_results: bool,
    trace: Trace,
    /// Why it cannot be replayed.
    idle: Option<String>,
}

impl SessionEntry {
    /// Whether a model writes or reads anything that counts in this session: its answers can be copies of another one's.
    fn has_own_tokens(&self) -> bool {
        let is_copy = self.copied > 0 && self.bills.is_empty();
        self.counted > 0 && !is_copy
    }

    /// Whether it tells how large the results of its tools are.
    fn tells_of_results(&self) -> bool {
        self.has_own_tokens() && self.holds_results
    }
}

impl TrySession {
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        let prices = self.prices.read()?;
        let files = self.places()?;
        let interrupt = Interrupt::catch().context("setting up signal handling")?;
        let stopped = || {
            eprintln!("interrupted while reading the sessions; nothing was written");
            Ok(ExitCode::from(130))
        };
        let mut tried: Vec<SessionEntry> = Vec::new();
        let mut known = KnownCalls::default();
        let mut failed: Vec<String> = Vec::new();
        for file in &files {
            match self.sessions_of(file, &prices, &mut known) {
                Ok(sessions) => tried.extend(sessions),
                Err(error) if files.len() == 1 => return Err(error),
                Err(error) => {
                    // The advice is the same for each of many files: it follows once.
                    let words = error_text::words(&error);
                    eprintln!("{}", words.lines().next().unwrap_or_default());
                    failed.push(file.name());
                }
            }
            if interrupt.is_set() {
                return stopped();
            }
        }
        if tried.is_empty() {
            bail!(
                "no readable session among {}\n  fix: see the reasons above, or name other files",
                number_of(files.len(), "file")
            );
        }
        let mut tried = distinct(tried, &known);
        make_distinct(&mut tried);
        print!("{}", listing(&tried));
        let mut replayable: Vec<&SessionEntry> = tried.iter().filter(|session| session.idle.is_none()).collect();
        replayable.sort_by_key(|session| std::cmp::Reverse(session.replayed));
        let code = if self.no_replay || replayable.is_empty() {
            print!("{}", on_large_results(&tried, &prices, &self.again(&files))?);
            match (replayable.is_empty(), &files[..]) {
                (false, _) => {
                    println!("\nNext, to replay the file calls and decide about files: {}", self.again(&files))
                }
                (true, [SessionPlace::File(file)]) if file != Path::new("-") => println!(
                    "\nNothing was replayed, so nothing is decided about files.\nNext, for the tokens of its context: ctxbench tokens {}",
                    shell_word(&file.display().to_string())
                ),
                (true, _) => println!("\nNothing was replayed, so nothing is decided about files."),
            }
            ExitCode::SUCCESS
        } else {
            if replayable.len() > MOST_REPLAYED {
                println!(
                    "Of {} sessions, the {MOST_REPLAYED} with most file operations are replayed, and the answer is about these.",
                    replayable.len()
                );
                replayable.truncate(MOST_REPLAYED);
            }
            self.measured(registry, &interrupt, &replayable, &tried, &self.again(&files))?
        };
        if failed.is_empty() || code != ExitCode::SUCCESS {
            return Ok(code);
        }
        eprintln!("{}", unreadable(&failed, files.len()));
        Ok(ExitCode::FAILURE)
    }

    /// The command line of the same sessions, without the options of this one.
    fn again(&self, files: &[SessionPlace]) -> String {
        let named: Vec<PathBuf> = match (&self.sessions[..], files.first()) {
            ([], Some(SessionPlace::File(file))) => vec![file.clone()],
            (sessions, _) => sessions.to_vec(),
        };
        let named: Vec<String> = named.iter().map(|file| shell_word(&file.display().to_string())).collect();
        let named = match (named.len(), self.session.and_then(|home| home.to_possible_value())) {
            (0, Some(home)) => format!("--session {}", home.get_name()),
            // Many names do not fit into a line.
            (count, _) if count > MOST_FAILED => "SESSION…".to_owned(),
            _ => named.join(" "),
        };
        let format = self.format.iter().map(|format| format!("--format {format}"));
        let words = ["ctxbench try".to_owned(), named].into_iter().chain(format).chain(self.prices.option());
        words.collect::<Vec<_>>().join(" ")
    }

    fn places(&self) -> anyhow::Result<Vec<SessionPlace>> {
        if let Some(home) = self.session {
            let found = newest(home, LISTED)?;
            println!("The newest sessions of {}:", home.title());
            for session in &found {
                println!("  {}  {}", session.when, session.place.name());
            }
            print!("\n");
            return Ok(found.into_iter().take(1).map(|session| session.place).collect());
        }
        if self.sessions.is_empty() {
            bail!(
                "no session given\n  fix: name a session file, or find one with --session claude-code, codex, opencode, gemini or copilot"
            );
        }
        session_files(&self.sessions)
    }

    fn sessions_of(
        &self,
        place: &SessionPlace,
        prices: &Prices,
        known: &mut KnownCalls,
    ) -> anyhow::Result<Vec<SessionEntry>> {
        let _line = ProgressLine::moving(&format!("reading {}", place.name()));
        let mut imported = place.open()?.sessions(self.format.as_deref())?;
        let several = imported.sessions.len() > 1;
        let sessions = (1..)
            .zip(&mut imported.sessions)
            .filter_map(|(row, session)| known.add(session).map(|added| (row, session, added)));
        let sessions = sessions.map(|(row, session, AddedSession { number, copied })| {
            let row_of = |name: String| if several { format!("{name} row {row}") } else { name };
            let id = format!("session-{}-{row}", &imported.sha256[..8]);
            let origin = TraceOrigin {
                id: id.clone(),
                source: TraceSource {
                    format: imported.importer.id().to_owned(),
                    repo: None,
                    commit: None,
                    path: id,
                    sha256: imported.sha256.clone(),
                    licence: None,
                },
            };
            let (trace, _) = trace(session, &origin, Fidelity::Shape).map_err(|lost| anyhow!(lost))?;
            let mut tried = tried(session, trace, prices);
            tried.name = row_of(place.name());
            tried.file = row_of(place.file_name());
            tried.copied = copied;
            tried.number = number;
            tried.format = imported.importer.id();
            tried.holds_results = imported.importer.holds_results(session);
            // The usage can have come from the file beside it.
            let is_there = |lacks: &str| lacks.starts_with("usage") && !tried.bills.is_empty();
            tried.lacks = imported.importer.lacks().filter(|lacks| !is_there(lacks));
            Ok(tried)
        });
        sessions.collect()
    }

    /// Replays sessions, decides, and writes the page. The files of an interrupted replay are removed.
    fn measured(
        &self,
        registry: &Registry,
        interrupt: &Interrupt,
        sessions: &[&SessionEntry],
        all: &[SessionEntry],
        again: &str,
    ) -> anyhow::Result<ExitCode> {
        let dir = new_run_dir(&self.results, &now(), "try")?;
        let measured = self.measured_in(registry, interrupt, (sessions, all), again, &dir);
        let is_complete = matches!(measured, Ok(ref code) if *code == ExitCode::SUCCESS);
        if is_complete {
            return measured;
        }
        let removed = std::fs::remove_dir_all(&dir);
        let left = match &removed {
            Ok(()) => "its results were removed, and nothing is left behind".to_owned(),
            Err(error) => format!("cannot remove {}: {error}; remove it yourself", dir.display()),
        };
        // An error is reported by itself.
        if measured.is_ok() {
            eprintln!("interrupted: the replay was stopped; {left}");
        } else if removed.is_err() {
            eprintln!("{left}");
        }
        measured
    }

    fn measured_in(
        &self,
        registry: &Registry,
        interrupt: &Interrupt,
        (sessions, all): (&[&SessionEntry], &[SessionEntry]),
        again: &str,
        dir: &Path,
    ) -> anyhow::Result<ExitCode> {
        let inputs = dir.join(SESSIONS);
        std::fs::create_dir(&inputs).with_context(|| format!("creating {}", inputs.display()))?;
        let named = named_sessions(sessions, &self.prices.read()?);
        let mut files = Vec::new();
        for (session, named) in sessions.iter().zip(&named) {
            let id = &session.trace.head.id;
            put(&inputs.join(format!("{id}.trace.jsonl")), &session.trace.to_jsonl()?)?;
            let workload = inputs.join(format!("{id}.toml"));
            put(&workload, &definition(&named.workload, id, session))?;
            files.push(workload.canonicalize()?.display().to_string());
        }
        let list = list(sessions, &named, all);
        put(&inputs.join(LIST), &serde_json::to_string_pretty(&list)?)?;
        let suite_file = inputs.join("try.toml");
        put(&suite_file, &suite(&files, self.budget))?;
        let policy_of = |(policy, stands_for): (&str, &str)| {
            let (_, text) = find(policy)?;
            let text = for_sessions(&text, stands_for, &named);
            let file = inputs.join(format!("{policy}.toml"));
            put(&file, &text)?;
            anyhow::Ok((file, text))
        };
        let (policy, _) = policy_of(CODING_AGENT)?;
        let mut further = BTreeMap::new();
        if named.iter().any(|session| session.tells_of_results) {
            let (_, text) = policy_of(LONG_CONTEXT)?;
            further.insert(LONG_CONTEXT.0.to_owned(), identity(&text));
        } else {
            print!("{}", undecided_words(sessions.iter().copied()));
        }
        print!("{}{}", without_results_words(sessions.iter().copied()), unpriced_words(&named));
        let words = [
            "ctxbench try",
            "--suite",
            path(&suite_file)?,
            "--out",
            path(dir)?,
            "--policy",
            path(&policy)?,
            "--no-model-files",
        ];
        let parsed = RunOptions::try_parse_from(words).context("making the options of the run")?;
        let mut options = parsed.options;
        // Paths of sessions name their users.
        options.command = Some(format!("ctxbench try SESSION --budget {}", self.budget));
        // Rows on kills and power cuts read only candidates.
        let candidates = BACKENDS.into_iter().filter(|name| *name != BASELINE);
        options.crashed = Some(candidates.map(str::to_owned).collect());
        options.further_policies = further;
        let measured = options.measure(registry, interrupt, None)?;
        let RunOutcome::Complete(dir) = measured else {
            return Ok(ExitCode::from(130));
        };
        registry.services().stop();
        let mut report = ReportInputs::of(&dir, &[], None, &self.prices)?;
        let page = report.write()?;
        make_runnable(&mut report.overview, again);
        print_answer(&report, &page, ScreenFormat::Text)?;
        print!("{}", placeholder_words(commands(&report.overview), again));
        let decisions = report.decisions.iter();
        let workloads: Vec<String> = named.into_iter().map(|session| session.workload).collect();
        for answer in decisions.filter_map(|decision| partial_answer(decision, &workloads)) {
            print!("\n{answer}");
        }
        Ok(if interrupt.is_set() { ExitCode::from(130) } else { ExitCode::SUCCESS })
    }
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{}: is not UTF-8 text", path.display()))
}

/// The suite of a replay: the sessions, and with enough time what a coding agent does besides: git, and single reads.
fn suite(sessions: &[String], budget: f64) -> String {
    let mut suite = format!(
        "essay = \"The recorded sessions that `ctxbench try` was given.\"\nbackends = {BACKENDS:?}\nprobes = true\n"
    );
    let mut section = |name: &str, share: f64, more: &str, workloads: &[String]| {
        suite += &format!("\n[[section]]\nname = {name:?}\nbudget = {:?}\n{more}", budget * share);
        for workload in workloads {
            suite += &format!("\n[[section.workload]]\nname = {workload:?}\nstates = [\"hot\"]\n");
        }
    };
    if budget < TRY_WITH_PROGRAMS {
        section("sessions", 1.0, "", sessions);
        return suite;
    }
    section("sessions", 0.4, "", sessions);
    let once = "epochs = 8\nrounds = 1\nwarm_up = false\n";
    section("programs", 0.5, once, &["program/git".to_owned()]);
    section("calls", 0.1, "epochs = 4\n", &["micro/read-1k".to_owned()]);
    suite
}

/// A workload file for a session.
fn definition(name: &str, id: &str, session: &SessionEntry) -> String {
    format!(
        "name = {name:?}\nessay = \"A session that the user recorded ({}), replayed with filler instead of its contents. It represents only itself.\"\nstates = [\"hot\"]\n\n[trace]\nfile = \"{id}.trace.jsonl\"\n",
        session.format
    )
}

/// What is printed about sessions in which no model says anything.
const NO_TOKENS: &str = "These recordings have no tokens of a model, so nothing is decided about large results.\n";

/// Why nothing is decided about large results of these sessions.
fn undecided_words<'a>(mut sessions: impl Iterator<Item = &'a SessionEntry>) -> String {
    match sessions.find(|session| session.has_own_tokens()) {
        Some(session) => format!(
            "These recordings ({}) have no results of tools, so nothing is decided about large results.\n",
            session.format
        ),
        None => NO_TOKENS.to_owned(),
    }
}

/// A line on the sessions that are left out of the answer on large results; empty if all are, or none.
fn without_results_words<'a>(sessions: impl Iterator<Item = &'a SessionEntry>) -> String {
    let with_tokens = sessions.filter(|session| session.has_own_tokens());
    let (kept, left): (Vec<_>, Vec<_>) = with_tokens.partition(|session| session.tells_of_results());
    if kept.is_empty() || left.is_empty() {
        return String::new();
    }
    let left = number_of(left.len(), "session");
    format!("The answer on large results leaves out {left} without results of tools.\n")
}

/// A session in a policy and in a run.
struct NamedSession {
    /// Its workload, named after its file.
    workload: String,
    /// Its file, in titles.
    title: String,
    /// Whether it tells how large the results of its tools are.
    tells_of_results: bool,
    /// The models without a price in it.
    unpriced: BTreeSet<String>,
}

fn named_sessions(sessions: &[&SessionEntry], prices: &Prices) -> Vec<NamedSession> {
    let day = today();
    let mut workloads = BTreeSet::new();
    let named = sessions.iter().map(|session| {
        let plain = workload_name(&session.file);
        let numbered = (2..).map(|number| format!("{plain}-{number}"));
        let mut free = std::iter::once(plain.clone()).chain(numbered).filter(|name| workloads.insert(name.clone()));
        NamedSession {
            workload: free.next().unwrap_or(plain.clone()),
            title: shortened(&terminal_cell(&session.file), LONGEST_TITLE),
            tells_of_results: session.tells_of_results(),
            unpriced: models(&session.trace).filter(|model| prices.of(model, &day).is_err()).collect(),
        }
    });
    named.collect()
}

/// The models of a session's own calls, without those of its subagents.
fn models(trace: &Trace) -> impl Iterator<Item = String> {
    let steps = of_trace(trace).map_or(Vec::new(), |conversation| conversation.steps);
    let head = trace.head.model.clone();
    steps.into_iter().map(move |step| if step.model.is_empty() { head.clone() } else { step.model })
}

/// A line on the sessions whose dollars decide nothing; empty if all have a price, or none has one.
fn unpriced_words(sessions: &[NamedSession]) -> String {
    let with_tokens = || sessions.iter().filter(|session| session.tells_of_results);
    let priced = with_tokens().filter(|session| session.unpriced.is_empty()).count();
    if priced == 0 || priced == with_tokens().count() {
        return String::new();
    }
    let models: BTreeSet<&str> = with_tokens().flat_map(|session| &session.unpriced).map(String::as_str).collect();
    let models: Vec<&str> =
        models.into_iter().map(|model| if model.is_empty() { "a model without a name" } else { model }).collect();
    let without = with_tokens().count() - priced;
    format!("Dollars leave out {}: no price for {}.\n", number_of(without, "session"), models.join(", "))
}

/// The name of a file's workload: its letters and digits, without the ends of its name.
fn workload_name(file: &str) -> String {
    let mut stem = file;
    while let Some(rest) = FILE_ENDS.iter().find_map(|end| stem.strip_suffix(end)) {
        stem = rest;
    }
    let plain = stem.chars().map(|char| if char.is_ascii_alphanumeric() { char.to_ascii_lowercase() } else { '-' });
    let plain: String = plain.collect();
    let words = plain.split('-').filter(|word| !word.is_empty());
    let words: String = ["agent/session"].into_iter().chain(words).collect::<Vec<_>>().join("-");
    shortened(&words, LONGEST_WORKLOAD + "agent/session-".len()).replace('…', "-")
}

/// The beginning and the end of a text that is too long.
fn shortened(text: &str, most: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= most {
        return text.to_owned();
    }
    let end = most / 2;
    let start = letters.iter().take(most - end - 1);
    start.chain(['…'].iter()).chain(&letters[letters.len() - end..]).collect()
}

/// Puts the directory before the file's name where two sessions have the same, and a number behind what is still the same.
fn make_distinct(sessions: &mut [SessionEntry]) {
    let counts = |sessions: &[SessionEntry]| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        sessions.iter().for_each(|session| *counts.entry(session.file.clone()).or_default() += 1);
        counts
    };
    let before = counts(sessions);
    for session in sessions.iter_mut().filter(|session| before[&session.file] > 1) {
        let mut ends = session.name.rsplitn(3, '/');
        if let (Some(file), Some(dir)) = (ends.next(), ends.next()) {
            session.file = format!("{dir}/{file}");
        }
    }
    let still = counts(sessions);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for session in sessions.iter_mut().filter(|session| still[&session.file] > 1) {
        let number = seen.entry(session.file.clone()).or_default();
        *number += 1;
        session.file = format!("{} ({number})", session.file);
    }
}

/// A text in a TOML file: JSON escapes what TOML does not take.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A policy for these sessions: in each row, they stand for the session that the policy names. Tokens and dollars of a
/// benefit are those of all of them together, on the models of the recordings; every other row is one row a session. The
/// bills of sessions that ctxbench ships become one row a session, too.
fn for_sessions(policy: &str, stands_for: &str, sessions: &[NamedSession]) -> String {
    let named = format!("\"{stands_for}\"");
    let mut parts = policy.split("\n[[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    let with_tokens = || sessions.iter().filter(|session| session.tells_of_results);
    // Without any price, the rows are there and say what is missing.
    let has_prices = with_tokens().any(|session| session.unpriced.is_empty());
    let paid = || with_tokens().filter(move |session| session.unpriced.is_empty() || !has_prices);
    let mut has_bills = false;
    for part in parts {
        let is_of_tokens = part.contains("measure.context");
        // A table may follow the row, and stays.
        let (row, table) = part.split_once("\n[").unwrap_or((part, ""));
        let mut rows: Vec<String> = Vec::new();
        match (is_of_tokens, part.contains(&named)) {
            (true, true) => {
                let asked: Vec<&NamedSession> =
                    if row.contains("figure = \"dollars\"") { paid().collect() } else { with_tokens().collect() };
                let workloads: Vec<String> = asked.iter().map(|session| format!("{:?}", session.workload)).collect();
                let together = match &workloads[..] {
                    [first, others @ ..] if !others.is_empty() => format!("{first}, with = [{}]", others.join(", ")),
                    workloads => workloads.concat(),
                };
                // The condition of a built-in benefit is about the sessions that ctxbench ships.
                let own = row.split_inclusive('\n').filter(|line| !line.starts_with("condition = { sessions"));
                rows.push(on_recorded_models(&own.collect::<String>().replace(&named, &together)));
            }
            (true, false) if has_bills || !row.starts_with("cost]]") => {}
            (true, false) => {
                has_bills = true;
                rows.extend(paid().map(|session| session_bill(row, session)));
            }
            (false, true) => rows.extend(sessions.iter().map(|session| {
                let copy = row.replace(&named, &format!("{:?}", session.workload));
                match sessions.len() {
                    1 => copy,
                    _ => titled(&copy, &session.title),
                }
            })),
            (false, false) => rows.push(row.to_owned()),
        }
        text.extend(rows.iter().map(|row| format!("\n[[{}\n", row.trim_end())));
        if !table.is_empty() {
            text += &format!("\n[{table}");
        }
    }
    text
}

/// A row whose dollars are those of the models that the sessions were recorded on.
fn on_recorded_models(row: &str) -> String {
    row.replace("figure = \"dollars\"", &format!("figure = \"dollars\", model = {:?}", context::RECORDED))
}

/// A row on the bill of another session, for one of these.
fn session_bill(row: &str, session: &NamedSession) -> String {
    let lines = row.trim_end().lines().map(|line| {
        if line.starts_with("title = ") {
            return format!("title = {}", toml_text(&format!("Dollars of {}", session.title)));
        }
        let Some((before, rest)) = line.split_once("workload = \"") else {
            return line.to_owned();
        };
        let after = rest.split_once('"').map_or("", |(_, after)| after);
        format!("{before}workload = {:?}{after}", session.workload)
    });
    on_recorded_models(&lines.collect::<Vec<_>>().join("\n"))
}

/// A row with its session in its title.
fn titled(row: &str, session: &str) -> String {
    let lines = row.lines().map(|line| match line.strip_prefix("title = ") {
        Some(title) => format!("title = {}", toml_text(&format!("{} ({session})", title.trim_matches('"')))),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The sessions as the run directory lists them: those that it replays first.
fn list(replayed: &[&SessionEntry], named: &[NamedSession], all: &[SessionEntry]) -> Vec<TriedSession> {
    let with = replayed.iter().zip(named).map(|(session, named)| of_list(session, &named.workload));
    let is_replayed = |session: &&SessionEntry| replayed.iter().any(|replayed| std::ptr::eq(*replayed, *session));
    let others = all.iter().filter(|session| !is_replayed(session)).map(|session| of_list(session, ""));
    with.chain(others).collect()
}

fn of_list(session: &SessionEntry, workload: &str) -> TriedSession {
    let bills = session.bills.iter().map(|bill| TriedBill {
        model: bill.model.clone(),
        prompt: bill.tokens.prompt(),
        output: bill.tokens.output,
        dollars: bill.dollars.as_ref().ok().copied(),
    });
    TriedSession {
        name: session.file.clone(),
        workload: workload.to_owned(),
        agent: session.agent.clone(),
        calls: session.calls,
        replayed: session.replayed,
        bills: bills.collect(),
        counted: session.bills.is_empty().then_some(session.counted),
        stated: session.stated,
    }
}

/// The answer on large results of these sessions, which needs no replay. Of many sessions, those with most tokens count.
/// `again` is the command of these sessions.
fn on_large_results(tried: &[SessionEntry], prices: &Prices, again: &str) -> anyhow::Result<String> {
    let mut sessions: Vec<&SessionEntry> = tried.iter().filter(|session| session.tells_of_results()).collect();
    if sessions.is_empty() {
        return Ok(undecided_words(tried.iter()));
    }
    sessions.sort_by_key(|session| std::cmp::Reverse(session.counted));
    let all = sessions.len();
    sessions.truncate(MOST_ASKED);
    let named = named_sessions(&sessions, prices);
    let (name, stands_for) = LONG_CONTEXT;
    let (file, text) = find(name)?;
    let text = for_sessions(&text, stands_for, &named);
    let mut policy = Policy::parse(&file, &text)?;
    // Where the files of a context policy would be needs a replay.
    policy.places = None;
    let plan = Plan { created: now(), policies: [(name.to_owned(), identity(&text))].into(), ..Plan::default() };
    let mut run = Run { plan, ..Run::default() };
    for (session, named) in sessions.iter().zip(&named) {
        let conversation = of_trace(&session.trace).map_err(anyhow::Error::msg)?;
        run.contexts.extend(recorded_contexts(&named.workload, &session.model, &conversation));
    }
    let summary = summarise(&run).map_err(anyhow::Error::msg)?;
    let contexts = context::contexts(&run, prices).map_err(anyhow::Error::msg)?;
    let evidence = Evidence::of(&run, &summary, &contexts);
    let mut overview = Overview::of(&decide(&policy, &text, &evidence), &evidence.runs);
    make_runnable(&mut overview, again);
    let mut answer = overview.answer_lines(ANSWER_LINES).join("\n") + "\n";
    if overview.uses.iter().any(|answer| matches!(answer.kind, AdviceKind::Choose | AdviceKind::ChooseIf)) {
        answer += "By the recorded tokens alone: only a replay tries where the policy can keep its files.\n";
    }
    if all > sessions.len() {
        answer += &format!("Of {all} sessions, the answer is about the {} with most tokens.\n", sessions.len());
    }
    answer += &placeholder_words(commands(&overview), again);
    Ok(answer + &without_results_words(tried.iter()) + &unpriced_words(&named))
}

/// Names the sessions in the commands of a screen, unless they are too long for it. A page names no paths of the user.
fn make_runnable(overview: &mut Overview, again: &str) {
    if again.chars().count() > LONGEST_COMMAND {
        return;
    }
    let answers = overview.uses.iter_mut().map(|answer| &mut answer.command);
    let remedies = overview.missing.iter_mut().map(|remedy| &mut remedy.command);
    for command in answers.chain(remedies) {
        if let Some(options) = command.strip_prefix("ctxbench try SESSION") {
            *command = format!("{again}{options}");
        }
    }
}

/// The commands that a screen advises.
fn commands(overview: &Overview) -> impl Iterator<Item = &str> {
    let answers = overview.uses.iter().map(|answer| answer.command.as_str());
    answers.chain(overview.missing.iter().map(|remedy| remedy.command.as_str()))
}

/// What `SESSION` in the commands of a screen stands for, if the names of the sessions are too long for them.
fn placeholder_words<'a>(mut commands: impl Iterator<Item = &'a str>, again: &str) -> String {
    let named = again.strip_prefix("ctxbench try ").filter(|named| !named.starts_with("SESSION…"));
    match named {
        Some(named) if commands.any(|command| command.starts_with("ctxbench try SESSION")) => {
            format!("\nSESSION is {named}\n")
        }
        _ => String::new(),
    }
}

/// All sessions: each with its details, or many with a line each.
fn listing(tried: &[SessionEntry]) -> String {
    let mut text = String::new();
    if tried.len() <= MOST_DETAILED {
        text.extend((1..).zip(tried).map(|(number, session)| within_columns(&page(number, session))));
    } else {
        text += &lines(tried);
    }
    if tried.len() > 1 {
        text += &format!("{}\n", together(tried));
    }
    text
}

/// Breaks the lines of a page at blanks, except for its first one, which has the path.
fn within_columns(page: &str) -> String {
    const CONTINUED: &str = "                  ";
    let mut text = String::new();
    for (at, line) in page.split_inclusive('\n').enumerate() {
        if at == 0 || line.chars().count() <= WIDTH {
            text += line;
            continue;
        }
        let start = line.len() - line.trim_start().len();
        let mut shown = line[..start].to_owned();
        // The blanks between two words stay as they are.
        for word in line[start..].trim_end().split_inclusive(' ') {
            if shown.chars().count() + word.trim_end().chars().count() > WIDTH && !shown.trim().is_empty() {
                text += &format!("{}\n", shown.trim_end());
                shown = CONTINUED.to_owned();
            }
            shown += word;
        }
        text += &format!("{}\n", shown.trim_end());
    }
    text
}

/// A line for each session.
fn lines(tried: &[SessionEntry]) -> String {
    let head = ["", "session", "format", "replayable", "tokens in", "out", "reported"].map(str::to_owned);
    let rows = (1..).zip(tried).take(MOST_LINES).map(|(number, session)| {
        let of = |of: fn(&ReportedTokens) -> u64| {
            let all = session.bills.iter().map(|bill| of(&bill.tokens));
            count(all.fold(0, u64::saturating_add))
        };
        let dollars = session.bills.iter().filter_map(|bill| bill.dollars.as_ref().ok());
        let dollars = if session.bills.iter().all(|bill| bill.dollars.is_err()) {
            "–".to_owned()
        } else {
            format!("${:.2}", dollars.fold(0.0, |sum, dollars| sum + dollars))
        };
        let (prompt, output) = if session.bills.is_empty() {
            (format!("≈{}", count(session.counted)), "–".to_owned())
        } else {
            (of(ReportedTokens::prompt), of(|tokens| tokens.output))
        };
        [
            number.to_string(),
            shortened(&terminal_cell(&session.file), LONGEST_TITLE),
            session.format.to_owned(),
            format!("{} of {}", session.replayed, session.calls),
            prompt,
            output,
            dollars,
        ]
    });
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            1 | 2 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text += &format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    if tried.len() > MOST_LINES {
        text += &format!("… and {} more\n", tried.len() - MOST_LINES);
    }
    text + "For the details of a session, name it alone.\n\n"
}

/// The files that could not be read, which the errors before have described.
fn unreadable(failed: &[String], files: usize) -> String {
    let mut named: Vec<String> = failed.iter().take(MOST_FAILED).cloned().collect();
    if failed.len() > MOST_FAILED {
        named.push(format!("{} more", failed.len() - MOST_FAILED));
    }
    format!(
        "{} of {} could not be read: {}\n  fix: for the formats and the advice on a file, name it alone; the answer is about the others",
        failed.len(),
        number_of(files, "file"),
        named.join(", ")
    )
}

/// The sessions that are no earlier states of others.
fn distinct(tried: Vec<SessionEntry>, known: &KnownCalls) -> Vec<SessionEntry> {
    let states = tried.into_iter().filter_map(|mut session| {
        session.earlier = known.earlier_states(session.number)?;
        Some(session)
    });
    states.collect()
}

/// What is known of a session without replaying it.
fn tried(session: &ImportedSession, trace: Trace, prices: &Prices) -> SessionEntry {
    let calls = trace.calls_by_op().values().sum();
    let (replayed, idle) = match counted(Path::new("session"), &trace) {
        Ok(counts) => {
            let replayed: u64 = counts.timed.values().sum();
            let idle = match (replayed, calls) {
                (0, 0) => Some("no tool call".to_owned()),
                (0, _) => Some("no tool call is a file operation whose effect is known".to_owned()),
                _ => None,
            };
            (replayed, idle)
        }
        Err(error) => (0, Some(error.to_string())),
    };
    let conversation = of_trace(&trace);
    let conversations = conversation.as_ref().map_err(Clone::clone).and_then(|main| {
        let mut all = of_subagents(&trace)?;
        all.insert(0, main.clone());
        Ok(all)
    });
    let bills = bill(&reported(session), prices);
    let stated = session.totals.iter().filter_map(|total| total.dollars).reduce(|a, b| a + b);
    SessionEntry {
        name: String::new(),
        file: String::new(),
        format: "",
        lacks: None,
        agent: session.agent.clone(),
        model: session.model.clone(),
        source_lines: source_lines(session),
        copied: 0,
        number: 0,
        earlier: 0,
        calls,
        replayed,
        causes: Coverage::of(&trace).causes,
        bills,
        stated,
        web_searches: session.web_searches,
        fast_answers: session.fast_answers,
        estimate: conversations.ok().and_then(|all| estimate(&all, &session.model, prices, &|at| day_at(session, at))),
        counted: conversation.map_or(0, |conversation| Account::of(&conversation, &Terms::default()).entering),
        holds_results: true,
        trace,
        idle,
    }
}

/// The usage that a recording reports: of each call of the model, of several calls, and what it states in all beyond these.
fn reported(session: &ImportedSession) -> Vec<ReportedUsage<'_>> {
    let mut calls: Vec<ReportedUsage<'_>> = Vec::new();
    for event in &session.events {
        if let RecordedEvent::Api { at, usage, model, .. } = event
            && *usage != TokenUsage::default()
        {
            calls.push(ReportedUsage { model, day: day_at(session, *at), tokens: BilledUsage::Call(tokens(usage)) });
        }
    }
    calls.extend(session.unplaced.iter().map(|one| {
        let tokens = one.tokens.map(|usage| tokens(&usage));
        ReportedUsage { model: &one.model, day: day_at(session, one.at), tokens }
    }));
    let mut unreported = Vec::new();
    for total in &session.totals {
        let Some(usage) = &total.usage else {
            continue;
        };
        let mut of_model = calls.iter().filter(|call| call.model == total.model).peekable();
        // A total under another name than that of the calls can be theirs.
        if of_model.peek().is_none() && !calls.is_empty() {
            continue;
        }
        let mut known = ReportedTokens::default();
        of_model.for_each(|call| known.add(call.tokens.tokens()));
        let tokens = beyond(&tokens(usage), &known);
        if tokens != ReportedTokens::default() {
            let tokens = BilledUsage::Sum(tokens);
            unreported.push(ReportedUsage { model: &total.model, day: day_at(session, 0), tokens });
        }
    }
    calls.extend(unreported);
    calls
}

fn tokens(usage: &TokenUsage) -> ReportedTokens {
    ReportedTokens {
        uncached: usage.uncached,
        cache_read: usage.cache_read,
        cache_write_5m: usage.cache_write_5m,
        cache_write_1h: usage.cache_write_1h,
        output: usage.output,
    }
}

/// What a total has beyond the sum of the calls. If a part of the calls' prompts exceeds the total's, the two divide
/// prompts differently, and only the output is compared.
fn beyond(total: &ReportedTokens, calls: &ReportedTokens) -> ReportedTokens {
    let prompt = || {
        Some(ReportedTokens {
            uncached: total.uncached.checked_sub(calls.uncached)?,
            cache_read: total.cache_read.checked_sub(calls.cache_read)?,
            cache_write_5m: total.cache_write_5m.checked_sub(calls.cache_write_5m)?,
            cache_write_1h: total.cache_write_1h.checked_sub(calls.cache_write_1h)?,
            output: 0,
        })
    };
    ReportedTokens { output: total.output.saturating_sub(calls.output), ..prompt().unwrap_or_default() }
}

/// The day of a time in milliseconds since the session's beginning.
fn day_at(session: &ImportedSession, at: u64) -> String {
    let time = session.started_ms.map(|started| started.saturating_add(i64::try_from(at).unwrap_or(i64::MAX)));
    time.and_then(day).unwrap_or_else(today)
}

/// The day of a time in milliseconds.
fn day(milliseconds: i64) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(milliseconds).ok()?;
    Some(time.strftime("%Y-%m-%d").to_string())
}

fn page(number: usize, session: &SessionEntry) -> String {
    let model = match session.model.as_str() {
        "" => "a model that it does not name",
        model => model,
    };
    let mut text = format!("{number}  {}\n", session.name);
    text += &format!("   {} on {model}; format {}\n", session.agent, session.format);
    let share = session.replayed as f64 / session.calls.max(1) as f64 * 100.0;
    text += &format!("   tool calls     {}; {} can be replayed ({share:.0} %)\n", session.calls, session.replayed);
    text += &not_replayed(&session.causes);
    if let Some(why) = &session.idle {
        text += &format!("   nothing to replay: {why}\n");
    }
    if session.earlier > 0 {
        let states = match session.earlier {
            1 => "1 recording is an earlier state of this session or a copy".to_owned(),
            many => format!("{many} recordings are earlier states of this session or copies"),
        };
        text += &format!("   not counted    {states}\n");
    }
    if session.copied > 0 {
        let copies = "of its answers and calls are copies, and count in another of these sessions";
        text += &format!("   copied         {} {copies}\n", session.copied);
    }
    text += &session.source_lines.lines().map(|line| format!(" {line}\n")).collect::<String>();
    text += &spent(&session.bills, session.stated);
    text += &not_included(session.web_searches, session.fast_answers);
    if let Some(lacks) = session.lacks {
        text += &format!("   this format lacks {lacks}\n");
    }
    if session.bills.is_empty() {
        text += &format!(
            "   tokens         {} counted here, an estimate: the recording reports none\n",
            count(session.counted)
        );
    }
    if let Some(LedgerEstimate { dollars, unreported, interval: (low, high) }) = session.estimate {
        text += &format!("   our ledger     ${dollars:.2}, an estimate; from ${low:.2} to ${high:.2}\n");
        // Less than a cent is not shown.
        if unreported >= 0.005 {
            text += &format!(
                "                  ${unreported:.2} of it for output that the recording holds and does not report\n"
            );
        }
    }
    text + "\n"
}

/// Why calls cannot be replayed: the most frequent causes, and the number of calls of the others.
fn not_replayed(causes: &BTreeMap<String, u64>) -> String {
    let mut causes: Vec<(&String, &u64)> = causes.iter().collect();
    causes.sort_by_key(|(cause, count)| (std::cmp::Reverse(**count), *cause));
    let (shown, others) = causes.split_at(causes.len().min(MOST_CAUSES));
    let mut text = String::new();
    for (number, (cause, count)) in shown.iter().enumerate() {
        let label = if number == 0 { "not replayed" } else { "" };
        text += &format!("   {label:<14} {count:>4}  {cause}\n");
    }
    let others: u64 = others.iter().map(|(_, count)| *count).sum();
    if others > 0 {
        text += &format!("   {:<14} {others:>4}  for other causes, which `ctxbench trace import` lists\n", "");
    }
    text
}

/// Tokens and dollars as reported, by model.
fn spent(bills: &[ModelBill], stated: Option<f64>) -> String {
    let mut text = String::new();
    for bill in bills {
        let tokens = &bill.tokens;
        let prompt = tokens.prompt();
        let cached = tokens.cache_read as f64 / prompt.max(1) as f64 * 100.0;
        let model = if bill.model.is_empty() { "unnamed model" } else { &bill.model };
        text += &format!(
            "   as reported    {} tokens in ({cached:.0} % from the cache), {} out, on {model}",
            count(prompt),
            count(tokens.output)
        );
        text += &match (&bill.dollars, bill.most) {
            (Ok(dollars), Some(most)) => format!(
                ": ${dollars:.2} at the price of short prompts, at most ${most:.2}: the recording has only the sum over calls, and long prompts cost more\n"
            ),
            (Ok(dollars), None) => format!(": ${dollars:.2}\n"),
            (Err(why), _) => format!(": no dollars, {}\n", why.lines().next().unwrap_or_default()),
        };
    }
    if let Some(stated) = stated {
        text += &format!("   the recording itself states ${stated:.2}\n");
    }
    text
}

/// What a provider bills beside the tokens. The price list has no prices of it.
fn not_included(web_searches: u64, fast_answers: u64) -> String {
    let mut text = String::new();
    if web_searches > 0 {
        text += &format!("   not included   the price of {}\n", number_of(web_searches as usize, "web search request"));
    }
    if fast_answers > 0 {
        let answers = number_of(fast_answers as usize, "answer");
        text += &format!("   not included   the higher price of fast mode, which {answers} had\n");
    }
    text
}

/// The sum of all sessions.
fn together(tried: &[SessionEntry]) -> String {
    let bills = || tried.iter().flat_map(|session| &session.bills);
    let calls: u64 = tried.iter().map(|session| session.calls).sum();
    let replayed: u64 = tried.iter().map(|session| session.replayed).sum();
    let mut text = format!(
        "{}: {}; {replayed} of {calls} tool calls can be replayed\n",
        number_of(tried.len(), "session"),
        sum_of(bills())
    );
    // A model is named once.
    let unpriced: BTreeMap<&str, &str> =
        bills().filter_map(|bill| Some((bill.model.as_str(), bill.dollars.as_ref().err()?.lines().next()?))).collect();
    for why in unpriced.values() {
        text += &format!("   without dollars   {why}\n");
    }
    let sum = |of: fn(&SessionEntry) -> u64| tried.iter().map(of).fold(0, u64::saturating_add);
    text + &not_included(sum(|session| session.web_searches), sum(|session| session.fast_answers))
}

/// The dollars of bills, in words.
fn sum_of<'a>(bills: impl Iterator<Item = &'a ModelBill> + Clone) -> String {
    let priced = || bills.clone().filter_map(|bill| Some((*bill.dollars.as_ref().ok()?, bill.most)));
    if bills.clone().next().is_none() {
        return "no usage is reported".to_owned();
    }
    if priced().next().is_none() {
        return "no dollars, since the price of no reported model is known".to_owned();
    }
    // The sum of no numbers is -0.
    let (dollars, most) =
        priced().fold((0.0, 0.0), |(dollars, most), (one, up_to)| (dollars + one, most + up_to.unwrap_or(one)));
    if priced().any(|(_, most)| most.is_some()) {
        format!("${dollars:.2} as reported, at most ${most:.2}")
    } else {
        format!("${dollars:.2} as reported")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdicts::decide::Policy;
    use workloads::suite::Suite;

    fn named(names: &[(&str, bool)]) -> Vec<NamedSession> {
        let named = names.iter().map(|(title, tells_of_results)| NamedSession {
            workload: workload_name(title),
            title: (*title).to_owned(),
            tells_of_results: *tells_of_results,
            unpriced: BTreeSet::new(),
        });
        named.collect()
    }

    #[test]
    fn a_policy_for_sessions_names_them_and_is_a_policy() {
        let sessions = named(&[("a.jsonl", true), ("no-tokens.strace", false), ("\"b\"\\.jsonl", true)]);
        for (name, stands_for) in [CODING_AGENT, LONG_CONTEXT] {
            let (file, text) = find(name).unwrap();
            assert!(text.contains(stands_for), "{name}");
            for some in [&sessions[..1], &sessions] {
                let own = for_sessions(&text, stands_for, some);
                assert!(!own.contains(stands_for), "{own}");
                assert!(name != "long-context" || !own.contains("agent/claude-code"), "{own}");
                assert!(some.iter().all(|session| own.contains(&session.workload)), "{own}");
                let policy = Policy::parse(&file, &own).unwrap();
                // Each session has to pay its own bill, and none of another one is asked for.
                let bills = policy.costs.iter();
                let bills: Vec<&str> =
                    bills.map(|row| row.title.as_str()).filter(|title| title.starts_with("Dollars of ")).collect();
                let expected = match (name, some.len()) {
                    ("long-context", 1) => vec!["Dollars of a.jsonl"],
                    ("long-context", _) => vec!["Dollars of a.jsonl", "Dollars of \"b\"\\.jsonl"],
                    _ => Vec::new(),
                };
                assert_eq!(bills, expected, "{own}");
            }
        }
    }

    #[test]
    fn benefits_are_asked_of_all_sessions_with_tokens_on_their_own_models() {
        let sessions = named(&[("no-tokens.strace", false), ("a.jsonl", true), ("b.jsonl", true)]);
        let (name, stands_for) = LONG_CONTEXT;
        let (file, text) = find(name).unwrap();
        let policy = Policy::parse(&file, &for_sessions(&text, stands_for, &sessions)).unwrap();
        let measures = policy.benefits.iter().chain(&policy.costs).map(|row| format!("{:?}", row.measure));
        let measures: Vec<String> = measures.collect();
        for benefit in &measures[..policy.benefits.len()] {
            let all = ["agent/session-a", "agent/session-b"];
            assert!(all.iter().all(|name| benefit.contains(name)) && !benefit.contains("no-tokens"), "{benefit}");
        }
        let dollars: Vec<&String> = measures.iter().filter(|measure| measure.contains("dollars")).collect();
        assert!(dollars.len() >= 3 && dollars.iter().all(|one| one.contains("Some(\"recorded\")")), "{dollars:?}");
    }

    #[test]
    fn a_session_without_a_price_has_no_dollars_in_the_sum_and_keeps_its_prompts_in_it() {
        let mut sessions = named(&[("a.jsonl", true), ("b.jsonl", true), ("c.jsonl", true)]);
        sessions[1].unpriced.insert("own-model".to_owned());
        let (name, stands_for) = LONG_CONTEXT;
        let (file, text) = find(name).unwrap();
        let rows = |sessions: &[NamedSession]| {
            let policy = Policy::parse(&file, &for_sessions(&text, stands_for, sessions)).unwrap();
            let mut asked = policy.benefits.iter().chain(&policy.costs).map(|row| {
                let measure = format!("{:?}", row.measure);
                measure.contains("agent/session-b")
            });
            let benefits: Vec<bool> = asked.by_ref().take(policy.benefits.len()).collect();
            (benefits, asked.any(|is_asked| is_asked))
        };
        assert_eq!(rows(&sessions), (vec![true, false], false));
        let words = "Dollars leave out 1 session: no price for own-model.\n";
        assert_eq!(unpriced_words(&sessions), words);
        // If no session has a price, the missing one is named in the rows.
        sessions.truncate(2);
        sessions.remove(0);
        assert_eq!((rows(&sessions), unpriced_words(&sessions)), ((vec![true, true], true), String::new()));
    }

    #[test]
    fn a_page_is_at_most_a_hundred_columns_wide_without_its_path() {
        let words = "as reported    ".to_owned() + &"many words ".repeat(30);
        let long = "x".repeat(150);
        let page = format!("1  {long}\n   {words}\n   {long} end\n   short   line\n\n");
        let shown = within_columns(&page);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], format!("1  {long}"));
        assert!(
            lines[1].starts_with("   as reported    many") && lines[2].starts_with("                  words many"),
            "{shown}"
        );
        assert!(lines[1..].iter().all(|line| line.chars().count() <= 100 || line.trim() == long), "{shown}");
        assert!(shown.ends_with("   short   line\n\n"), "{shown}");
        let blanks = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(blanks(&shown), blanks(&page));
    }

    #[test]
    fn sessions_are_named_by_their_files_and_no_two_have_the_same_name() {
        for (file, workload) in [
            ("13-db96e5c261-0.jsonl.gz", "agent/session-13-db96e5c261-0"),
            ("My Session!.traj.json.zst", "agent/session-my-session"),
            ("…", "agent/session"),
            ("../../x\u{1b}]0;y.jsonl", "agent/session-x-0-y"),
        ] {
            assert_eq!(workload_name(file), workload);
            inputs::names::check_name(workload).unwrap();
        }
        let long = workload_name(&"a-b".repeat(200));
        assert!(long.len() < 60 && inputs::names::check_name(&long).is_ok(), "{long}");
        let dir = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for task in ["one", "two"] {
            std::fs::create_dir(dir.path().join(task)).unwrap();
            files.push(dir.path().join(task).join("history.json"));
        }
        files.push(dir.path().join("other.json"));
        // Equal recordings would count once.
        for (at, file) in files.iter().enumerate() {
            let talk =
                format!(r#"[{{"role":"user","content":"Hello {at}."}},{{"role":"assistant","content":"Hello."}}]"#);
            std::fs::write(file, talk).unwrap();
        }
        let mut tried = tried_files(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>());
        make_distinct(&mut tried);
        let names: Vec<&str> = tried.iter().map(|session| session.file.as_str()).collect();
        assert_eq!(names, ["one/history.json", "two/history.json", "other.json"]);
        let named = named_sessions(&[&tried[0], &tried[0]], &Prices::built_in().unwrap());
        assert_ne!(named[0].workload, named[1].workload);
    }

    #[test]
    fn large_results_are_decided_without_a_replay_on_the_price_of_the_sessions_model() {
        let dir = tempfile::tempdir().unwrap();
        let prices = Prices::built_in().unwrap();
        let usage = |tokens: u64| serde_json::json!({"input_tokens": tokens});
        let answer = |model: &str| {
            let file = dir.path().join("s1.jsonl");
            let call = |id: &str, second: u64| {
                let call = claude_call("s1", id, model, &format!("2026-06-01T10:00:0{second}Z"), usage(1000));
                call.replace("\"one", &format!("\"{}", "word ".repeat(20_000)))
            };
            std::fs::write(&file, call("m1", 1) + &call("m2", 2) + &call("m3", 3)).unwrap();
            on_large_results(&tried_files(&[&file]), &prices, "ctxbench try s1.jsonl").unwrap()
        };
        let shown = answer("claude-sonnet-4-5");
        assert!(shown.contains("Large results") && !shown.contains("Not decided"), "{shown}");
        // Nothing is decided on dollars that are not known.
        let shown = answer("own-model");
        assert!(shown.contains("Not decided") && shown.contains("the price of own-model"), "{shown}");
        assert!(shown.contains("ctxbench try s1.jsonl --prices FILE"), "{shown}");
    }

    #[test]
    fn a_recording_without_tokens_has_no_answer_on_large_results() {
        let strace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/importers/src/fixtures/program.strace");
        let tried = tried_files(&[&strace]);
        let shown = on_large_results(&tried, &Prices::built_in().unwrap(), "").unwrap();
        assert_eq!(shown, NO_TOKENS);
    }

    #[test]
    fn a_recording_without_results_of_tools_has_no_answer_on_large_results() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let file = dir.path().join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        let cursor = r#"{"role":"user","message":{"content":[{"type":"text","text":"Look."}]}}
{"role":"assistant","message":{"content":[{"type":"text","text":"I look."},{"type":"tool_use","name":"Read","input":{"path":"/w/p/a.txt"}}]}}
"#;
        let request = serde_json::json!({"tokensIn": 1000, "tokensOut": 1, "cost": 0.1}).to_string();
        let tool = serde_json::json!({"tool": "readFile", "path": "a.txt", "content": "/w/p/a.txt"}).to_string();
        let cline = serde_json::json!([
            {"ts": 1_780_000_000_000_u64, "type": "say", "say": "task", "text": "Look."},
            {"ts": 1_780_000_000_000_u64, "type": "say", "say": "api_req_started", "text": request},
            {"ts": 1_780_000_000_000_u64, "type": "say", "say": "tool", "text": tool},
            {"ts": 1_780_000_000_000_u64, "type": "say", "say": "text", "text": "I see."},
        ]);
        let aider = "# aider chat started at 2026-06-01 10:00:00\n\n> Model: gpt-5.5\n\n#### Look.\n\nI look.\n";
        let files = [
            (file("cursor.jsonl", cursor), "cursor"),
            (file("interface.json", &cline.to_string()), "cline"),
            (file("aider.history.md", aider), "aider"),
        ];
        let prices = Prices::built_in().unwrap();
        for (file, format) in &files {
            let tried = tried_files(&[file]);
            assert!(tried.iter().all(SessionEntry::has_own_tokens));
            let shown = on_large_results(&tried, &prices, "").unwrap();
            let expected = format!("({format}) have no results of tools, so nothing is decided");
            assert!(shown.contains(&expected) && !shown.contains("Keep"), "{shown}");
        }
        let claude = claude_call("s1", "m1", "claude-opus-4-6", "2026-06-01T10:00:00Z", serde_json::json!({}));
        let tried = tried_files(&[&file("s1.jsonl", &claude), &files[0].0]);
        let shown = on_large_results(&tried, &prices, "").unwrap();
        assert!(
            shown.contains("Large results") && shown.contains("leaves out 1 session without results of tools"),
            "{shown}"
        );
    }

    #[test]
    fn many_sessions_have_a_line_each_of_at_most_a_hundred_columns() {
        let dir = tempfile::tempdir().unwrap();
        let usage = serde_json::json!({"input_tokens": 1_000_000});
        for number in 0..25 {
            let name = format!("{number}-{}.jsonl", "long".repeat(20));
            let id = format!("s{number}");
            let text = claude_call(&id, &id, "claude-opus-4-6", "2026-06-01T10:00:00Z", usage.clone());
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let tried = tried_files(&[dir.path()]);
        let shown = listing(&tried);
        assert!(shown.lines().count() <= 30 && shown.contains("… and 5 more"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        assert!(shown.contains("1,000,000") && shown.contains("$5.00"), "{shown}");
    }

    #[test]
    fn unreadable_files_are_named() {
        let failed: Vec<String> = (1..=7).map(|number| format!("f{number}")).collect();
        let words = unreadable(&failed, 9);
        assert!(words.starts_with("7 of 9 files could not be read: f1, f2, f3, f4, f5, 2 more\n  fix: "), "{words}");
    }

    #[test]
    fn the_most_frequent_causes_are_named_and_the_others_are_counted() {
        let causes = [("a", 1), ("b", 20), ("c", 3), ("d", 3), ("e", 2)];
        let causes = causes.map(|(cause, count)| (cause.to_owned(), count));
        let text = not_replayed(&causes.into());
        let rows: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(rows[0], "not replayed     20  b");
        assert_eq!(rows[1..3], ["3  c", "3  d"]);
        assert!(rows[3].starts_with("3  for other causes"), "{text}");
        assert_eq!(not_replayed(&BTreeMap::new()), "");
    }

    #[test]
    fn the_suite_of_a_replay_has_what_the_policy_reads_if_there_is_time() {
        let sections = |budget: f64| {
            let text = suite(&["/x/session.toml".to_owned()], budget);
            let suite = Suite::parse(Path::new("try.toml"), &text).unwrap();
            let all: f64 = suite.sections.iter().filter_map(|one| one.budget).sum();
            assert!((all - budget).abs() < 1e-9, "{all}");
            let names = suite.workloads().map(|entry| entry.name.clone());
            names.collect::<Vec<_>>()
        };
        assert_eq!(sections(5.0), ["/x/session.toml"]);
        let expected = ["/x/session.toml", "program/git", "micro/read-1k"];
        assert_eq!(sections(60.0), expected);
    }

    fn tried_files(files: &[&Path]) -> Vec<SessionEntry> {
        let options = TrySession {
            sessions: Vec::new(),
            session: None,
            format: None,
            no_replay: false,
            budget: 1.0,
            results: PathBuf::new(),
            prices: PriceList::default(),
        };
        let arguments: Vec<PathBuf> = files.iter().map(|file| (*file).to_owned()).collect();
        let places = session_files(&arguments).unwrap();
        let mut known = KnownCalls::default();
        let sessions = places.iter().map(|place| options.sessions_of(place, &Prices::built_in().unwrap(), &mut known));
        let tried = sessions.flat_map(Result::unwrap).collect();
        distinct(tried, &known)
    }

    /// Lines of Claude Code: an answer with a call, and its result.
    fn claude_call(session: &str, id: &str, model: &str, time: &str, usage: serde_json::Value) -> String {
        let path = format!("/w/p/{id}.txt");
        let call = serde_json::json!({"type": "tool_use", "id": format!("t{id}"), "name": "Read", "input": {"file_path": path}});
        let result = serde_json::json!({"type": "tool_result", "tool_use_id": format!("t{id}"), "content": "one"});
        let file = serde_json::json!({"file": {"filePath": path, "content": "one\n", "startLine": 1, "totalLines": 2}});
        let lines = [
            serde_json::json!({"type": "assistant", "uuid": format!("{session}a{id}"), "sessionId": session, "cwd": "/w/p", "timestamp": time, "message": {"id": id, "role": "assistant", "model": model, "content": [call], "usage": usage}}),
            serde_json::json!({"type": "user", "uuid": format!("{session}u{id}"), "sessionId": session, "cwd": "/w/p", "timestamp": time, "message": {"role": "user", "content": [result]}, "toolUseResult": file}),
        ];
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn a_fork_counts_its_own_calls_and_the_sum_counts_each_call_once() {
        let dir = tempfile::tempdir().unwrap();
        let million = serde_json::json!({"input_tokens": 1_000_000});
        let call = |session: &str, id: &str, second: u64| {
            claude_call(session, id, "claude-opus-4-6", &format!("2026-06-01T10:00:0{second}Z"), million.clone())
        };
        let [first, fork] = ["s1.jsonl", "s2.jsonl"].map(|name| dir.path().join(name));
        std::fs::write(&first, call("s1", "m1", 1)).unwrap();
        std::fs::write(&fork, call("s2", "m1", 1) + &call("s2", "m2", 2)).unwrap();
        let tried = tried_files(&[dir.path()]);
        let sum = together(&tried);
        assert!(sum.starts_with("2 sessions: $10.00 as reported; 2 of 2 tool calls"), "{sum}");
        let shown = page(2, &tried[1]);
        assert!(shown.contains("on claude-opus-4-6: $5.00") && shown.contains("copied         2 of"), "{shown}");
        assert!(tried.iter().all(SessionEntry::has_own_tokens));
        // Alone, it has all calls.
        let tried = tried_files(&[&fork]);
        let shown = page(1, &tried[0]);
        assert!(shown.contains("on claude-opus-4-6: $10.00") && !shown.contains("copied"), "{shown}");
        // A whole copy is asked nothing of its own.
        std::fs::write(&fork, call("s2", "m1", 1)).unwrap();
        let own: Vec<bool> = tried_files(&[dir.path()]).iter().map(SessionEntry::has_own_tokens).collect();
        assert_eq!(own, [true, false]);
        // An equal number of tokens at another time is no copy.
        std::fs::write(&fork, call("s2", "m1", 3)).unwrap();
        assert!(together(&tried_files(&[dir.path()])).starts_with("2 sessions: $10.00"));
    }

    #[test]
    fn a_model_without_a_price_is_named_with_the_nearest_names_instead_of_zero_dollars() {
        let dir = tempfile::tempdir().unwrap();
        let usage = serde_json::json!({"input_tokens": 1_000_000});
        let call = |id: &str, model: &str| claude_call(id, id, model, "2026-06-01T10:00:00Z", usage.clone());
        std::fs::write(dir.path().join("s1.jsonl"), call("m1", "claude-opus-4-66")).unwrap();
        std::fs::write(dir.path().join("s2.jsonl"), call("m2", "claude-opus-4-66")).unwrap();
        let sum = together(&tried_files(&[dir.path()]));
        assert!(sum.starts_with("2 sessions: no dollars, since the price of no reported model is known; "), "{sum}");
        let why = "without dollars   model \"claude-opus-4-66\" has no price; the nearest are claude-opus-4-6, ";
        assert_eq!(sum.matches(why).count(), 1, "{sum}");
        std::fs::write(dir.path().join("s3.jsonl"), call("m3", "claude-opus-4-6")).unwrap();
        let sum = together(&tried_files(&[dir.path()]));
        assert!(sum.starts_with("3 sessions: $5.00 as reported; ") && sum.contains(why), "{sum}");
    }

    #[test]
    fn earlier_states_of_a_session_and_copies_of_it_count_once_in_every_format() {
        let count = |total: u64, second: u64| {
            let info = serde_json::json!({"total_token_usage": {"input_tokens": total}, "last_token_usage": {"input_tokens": 100_000}});
            let call = serde_json::json!({"type": "function_call", "name": "shell", "call_id": format!("c{second}"), "arguments": "{}"});
            [("response_item", call), ("event_msg", serde_json::json!({"type": "token_count", "info": info}))]
                .map(|(kind, payload)| {
                    let time = format!("2026-06-01T10:00:0{second}Z");
                    serde_json::json!({"timestamp": time, "type": kind, "payload": payload}).to_string()
                })
                .join("\n")
        };
        let turn = serde_json::json!({"type": "turn_context", "payload": {"model": "gpt-5.5"}}).to_string();
        let meta =
            |id: &str| serde_json::json!({"type": "session_meta", "payload": {"id": id, "cwd": "/w"}}).to_string();
        let codex = |id: &str, calls: u64| {
            let counts = (1..=calls).map(|number| count(100_000 * number, number));
            [meta(id), turn.clone()].into_iter().chain(counts).collect::<Vec<_>>().join("\n")
        };
        let said = |answers: u64| {
            let usage = serde_json::json!({"prompt_tokens": 100_000, "completion_tokens": 0});
            let answer =
                serde_json::json!({"role": "assistant", "content": "Hello.", "model": "gpt-5.5", "usage": usage});
            let user = serde_json::json!({"role": "user", "content": "Hello."}).to_string();
            let answers = (0..answers).map(|_| answer.to_string());
            std::iter::once(user).chain(answers).collect::<Vec<_>>().join("\n")
        };
        // The second call has not reported its usage yet.
        let cut = codex("s1", 2).rsplit_once('\n').unwrap().0.to_owned();
        let states = [codex("s1", 1), codex("s1", 3), cut, codex("s1", 3)];
        let messages = [said(1), said(3), said(2), said(3)];
        for (files, other) in [(states, codex("s2", 4)), (messages, said(1).replace("Hello", "Bye"))] {
            let dir = tempfile::tempdir().unwrap();
            for (number, text) in files.iter().enumerate() {
                std::fs::write(dir.path().join(format!("{number}.jsonl")), text).unwrap();
            }
            let tried = tried_files(&[dir.path()]);
            assert_eq!(tried.len(), 1, "{}", page(1, &tried[0]));
            let shown = page(1, &tried[0]);
            // Three calls with 100,000 tokens at $5 a million.
            assert!(shown.contains("on gpt-5.5: $1.50"), "{shown}");
            assert!(
                shown.contains("not counted    3 recordings are earlier states of this session or copies\n"),
                "{shown}"
            );
            // The history that another session shares with it counts once, too.
            std::fs::write(dir.path().join("other.jsonl"), other).unwrap();
            let tried = tried_files(&[dir.path()]);
            assert!(together(&tried).starts_with("2 sessions: $2.00 as reported; "), "{}", together(&tried));
        }
    }

    #[test]
    fn a_cline_task_has_the_usage_of_its_interface() {
        let dir = tempfile::tempdir().unwrap();
        let task = serde_json::json!([
            {"role": "user", "content": [{"type": "text", "text": "<task>\nLook.\n</task>"}]},
            {"role": "assistant", "modelInfo": {"modelId": "claude-opus-4-6"}, "content": [{"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "/w/p/a.txt"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "one"}]},
        ]);
        let request = serde_json::json!({"tokensIn": 1_000_000, "tokensOut": 0, "cost": 4.5}).to_string();
        let interface = serde_json::json!([
            {"ts": 1_780_000_000_000_u64, "type": "say", "say": "task", "text": "Look."},
            {"ts": 1_780_000_000_000_u64, "type": "say", "say": "api_req_started", "text": request},
        ]);
        std::fs::write(dir.path().join("api_conversation_history.json"), task.to_string()).unwrap();
        std::fs::write(dir.path().join("ui_messages.json"), interface.to_string()).unwrap();
        let tried = tried_files(&[dir.path()]);
        assert_eq!((tried.len(), tried[0].calls), (1, 1));
        let shown = page(1, &tried[0]);
        let expected = ["1,000,000 tokens in", "on claude-opus-4-6: $5.00", "itself states $4.50"];
        assert!(expected.iter().all(|words| shown.contains(words)) && !shown.contains("lacks"), "{shown}");
    }

    #[test]
    fn a_kiro_session_has_the_usage_of_its_metadata() {
        let dir = tempfile::tempdir().unwrap();
        let line = |kind: &str, block: serde_json::Value| {
            serde_json::json!({"version": "v1", "kind": kind, "data": {"content": [block]}}).to_string() + "\n"
        };
        let call = serde_json::json!({"kind": "toolUse", "data": {"toolUseId": "t1", "name": "shell", "input": {"command": "cat a.txt"}}});
        let result = serde_json::json!({"kind": "toolResult", "data": {"toolUseId": "t1", "status": "success",
            "content": [{"kind": "text", "data": "one\n"}]}});
        let metadata = serde_json::json!({"session_id": "s", "cwd": "/w/p", "session_state": {"conversation_metadata": {
            "user_turn_metadatas": [{"model": "claude-opus-4.6", "input_token_count": 100_000, "output_token_count": 0}]}}});
        let text = line("AssistantMessage", call) + line("ToolResults", result).trim_end();
        std::fs::write(dir.path().join("s.jsonl"), text).unwrap();
        std::fs::write(dir.path().join("s.json"), serde_json::to_string_pretty(&metadata).unwrap()).unwrap();
        let tried = tried_files(&[dir.path()]);
        assert_eq!((tried.len(), tried[0].calls), (1, 1));
        let shown = page(1, &tried[0]);
        let expected = ["1 can be replayed", "100,000 tokens in", "on claude-opus-4.6: $0.50"];
        assert!(expected.iter().all(|words| shown.contains(words)) && !shown.contains("lacks"), "{shown}");
    }

    #[test]
    fn each_call_has_the_price_of_its_day() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s1.jsonl");
        let call = |id: &str, day: &str| {
            let usage = serde_json::json!({"input_tokens": 100_000});
            claude_call("s1", id, "gpt-5.6-luna", &format!("{day}T10:00:00Z"), usage)
        };
        std::fs::write(&file, call("m1", "2026-07-20") + &call("m2", "2026-08-20")).unwrap();
        let shown = page(1, &tried_files(&[&file])[0]);
        assert!(shown.contains("on gpt-5.6-luna: $0.12"), "{shown}");
    }

    #[test]
    fn tokens_that_only_the_total_states_count() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s1.jsonl");
        let usage = serde_json::json!({"input_tokens": 100_000, "output_tokens": 2});
        let end = serde_json::json!({"type": "result", "session_id": "s1", "total_cost_usd": 1.25, "modelUsage": {
            "claude-opus-4-6": {"inputTokens": 100_000, "outputTokens": 20_000}}});
        let text = claude_call("s1", "m1", "claude-opus-4-6", "2026-06-01T10:00:00Z", usage);
        std::fs::write(&file, format!("{text}{end}\n")).unwrap();
        let shown = page(1, &tried_files(&[&file])[0]);
        // 100,000 tokens at $5 and 20,000 at $25 a million.
        let expected = ["100,000 tokens in", "20,000 out", "on claude-opus-4-6: $1.00\n", "itself states $1.25\n"];
        assert!(expected.iter().all(|words| shown.contains(words)), "{shown}");
    }

    #[test]
    fn a_page_names_what_the_dollars_leave_out() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s1.jsonl");
        let usage =
            serde_json::json!({"input_tokens": 1000, "speed": "fast", "server_tool_use": {"web_search_requests": 3}});
        let text = claude_call("s1", "m1", "claude-opus-4-6", "2026-06-01T10:00:00Z", usage);
        std::fs::write(&file, text).unwrap();
        let tried = tried_files(&[&file]);
        for shown in [page(1, &tried[0]), together(&tried)] {
            assert!(shown.contains("not included   the price of 3 web search requests\n"), "{shown}");
            assert!(shown.contains("not included   the higher price of fast mode, which 1 answer had\n"), "{shown}");
        }
    }

    #[test]
    fn a_page_names_repairs_and_unknown_records() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s1.jsonl");
        let usage = serde_json::json!({"input_tokens": 1000});
        let text = claude_call("s1", "m1", "claude-opus-4-6", "2026-06-01T10:00:00Z", usage);
        let unknown = "{\"type\":\"brand-new\",\"sessionId\":\"s1\"}\n";
        std::fs::write(&file, format!("{text}{unknown}{{\"type\":\"summary\"}}{{\"type\":\"summary\"}}\n")).unwrap();
        let shown = page(1, &tried_files(&[&file])[0]);
        assert!(shown.contains("   lines of the session: 0 with text outside of a record, 1 repaired\n"), "{shown}");
        assert!(shown.contains("   1 record of the unknown type \"brand-new\"\n"), "{shown}");
        assert!(!shown.contains("not readable"), "{shown}");
    }

    #[test]
    fn no_usage_is_no_price_and_less_than_a_cent_of_unreported_output_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s1.json");
        let text = r#"[{"role":"user","content":"Hello."},{"role":"assistant","content":"Hello."}]"#;
        std::fs::write(&file, text).unwrap();
        let mut tried = tried_files(&[&file]);
        let sum = together(&tried);
        assert!(sum.starts_with("1 session: no usage is reported; "), "{sum}");
        for (unreported, is_shown) in [(0.004, false), (0.006, true)] {
            tried[0].estimate = Some(LedgerEstimate { dollars: 1.0, unreported, interval: (1.0, 1.0) });
            assert_eq!(page(1, &tried[0]).contains("of it for output"), is_shown);
        }
    }

    #[test]
    fn a_session_without_calls_of_tools_keeps_its_tokens() {
        let text = r#"{"role":"user","content":"Hello."}
{"role":"assistant","content":"Hello.","model":"gpt-5.5","usage":{"prompt_tokens":1000000,"completion_tokens":10}}
"#;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s.jsonl");
        std::fs::write(&file, text).unwrap();
        let tried = tried_files(&[&file]);
        let shown = page(1, &tried[0]);
        assert!(shown.contains("nothing to replay: no tool call"), "{shown}");
        assert!(shown.contains("1,000,000 tokens in") || shown.contains("1000000 tokens in"), "{shown}");
        assert!(shown.contains("on gpt-5.5: $10.00"), "{shown}");
    }

    #[test]
    fn sessions_whose_names_are_too_long_for_a_command_are_named_below_the_answer() {
        let long = format!("ctxbench try {}/a.jsonl", "d".repeat(LONGEST_COMMAND));
        let said = |command: &str, again: &str| placeholder_words([command].into_iter(), again);
        let words = said("ctxbench try SESSION --budget 60", &long);
        assert!(words.starts_with("\nSESSION is ddd") && words.ends_with("/a.jsonl\n"), "{words}");
        assert_eq!(said("ctxbench try a.jsonl --budget 60", "ctxbench try a.jsonl"), "");
        assert_eq!(said("ctxbench try SESSION --budget 60", "ctxbench try SESSION…"), "");
    }
}
