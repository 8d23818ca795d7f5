//! `ctxbench trace`: imports recorded sessions as traces, and shows traces.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufWriter, IntoInnerError, Seek};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use inputs::files::{self, TRACE};
use reports::render::{number_of, put, put_output_by};
use schemars::JsonSchema;
use serde::Serialize;
use session_traces::coverage::Coverage;
use session_traces::{CopiedHistory, ImportedSession, TraceOrigin, TraceStream};
use workloads::compile::{CallCounter, ComparedBytes, CountedCalls, checked, compared};
use workloads::render::rendered_again;
use workloads::script::Script;
use workloads::trace::{ContentKnowledge, Event, Fidelity, InitialFile, Op, Trace, TraceHead, TraceLine, TraceSource};

use super::format::ScreenFormat;
use crate::sessions::{Recording, format_names};

/// Import recorded agent sessions, and inspect traces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench trace import session.jsonl --out my.trace.jsonl
  ctxbench trace show my.trace.jsonl")]
pub struct TraceCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Turn a recorded session into a trace.
    ///
    /// With `--fidelity shape`, the default, the trace holds no text of the session, so you can publish it: file
    /// contents, paths and arguments are replaced by filler of the same size. Of shell commands, it keeps only the
    /// names of widely known programs. With `content`, the trace holds everything, and file contents are in `blobs/`
    /// beside it.
    Import(Import),
    /// Compare the replay of a trace with its recording.
    ///
    /// Exits with 1 if a read returns bytes other than the recorded ones. A write or an edit whose result differs from
    /// the recording makes the trace invalid.
    #[command(after_help = "Examples:
  ctxbench trace check my.trace.jsonl
  ctxbench trace check my.trace.jsonl && ctxbench trace show my.trace.jsonl")]
    Check {
        /// The trace.
        file: PathBuf,
        /// How to print the result. Standard output gets nothing else.
        #[arg(long, value_enum, default_value_t)]
        format: ScreenFormat,
    },
    /// Check a trace, and summarize its content.
    #[command(after_help = "Examples:
  ctxbench trace show my.trace.jsonl
  ctxbench trace show traces/my-session.trace.jsonl | head -5")]
    Show {
        /// The trace.
        file: PathBuf,
        /// How to print the result. Standard output gets nothing else.
        #[arg(long, value_enum, default_value_t)]
        format: ScreenFormat,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench trace import session.jsonl --out my.trace.jsonl
  ctxbench trace import session.jsonl.gz --out traces/my-session.trace.jsonl \\
    --repo me/project --licence MIT")]
struct Import {
    /// The recorded session; may be compressed with gzip or zstd; `-` is standard input.
    session: PathBuf,
    /// The session's format [default: detected from its content].
    #[arg(long, value_name = "FORMAT", value_parser = format_names())]
    format: Option<String>,
    /// Number of the session in a file that holds several, from 1.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    row: u64,
    /// The trace to write; missing directories are created.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// How much of the session's text to keep.
    #[arg(long, value_enum, default_value_t = Keep::Shape)]
    fidelity: Keep,
    /// The trace's name [default: the output file's].
    #[arg(long)]
    id: Option<String>,
    /// The repository that published the session.
    #[arg(long)]
    repo: Option<String>,
    /// The commit of that repository.
    #[arg(long)]
    commit: Option<String>,
    /// The licence it was published under.
    #[arg(long)]
    licence: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Keep {
    /// Sizes and structure only.
    Shape,
    /// Everything.
    Content,
}

impl TraceCommand {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Import(import) => import.run()?,
            Action::Show { file, format } => {
                let text = files::read_text(&file, TRACE).with_context(|| format!("reading {}", file.display()))?;
                let trace = Trace::parse(&file, &text)?;
                let calls = checked(&file, &trace)?;
                let mut counts = EventCounts::default();
                trace.events.iter().for_each(|event| counts.add(event));
                counts.coverage.head(&trace.head);
                let text = || summary(&trace.head, &trace.files, &counts, &calls);
                format.print(text, &PrintedTrace::of(&trace.head, &trace.files, &counts, &calls))?;
            }
            Action::Check { file, format } => {
                let text = files::read_text(&file, TRACE).with_context(|| format!("reading {}", file.display()))?;
                let trace = Trace::parse(&file, &text)?;
                let (script, bytes) = compared(&file, &trace)?;
                let document = PrintedTraceCheck {
                    id: &trace.head.id,
                    reads: bytes.reads,
                    equal_reads: bytes.equal_reads,
                    changes: bytes.changes,
                    coverage: Coverage::of(&trace),
                };
                format.print(|| comparison(&trace, &script, bytes), &document)?;
                if bytes.equal_reads < bytes.reads {
                    return Ok(ExitCode::FAILURE);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Import {
    fn run(self) -> anyhow::Result<()> {
        let imported = Recording::open(&self.session)?.sessions(self.format.as_deref())?;
        let count = imported.sessions.len();
        let Some(session) = imported.sessions.into_iter().nth(self.row as usize - 1) else {
            bail!(
                "{}: has {}; --row {} does not exist (name a row from 1 on)",
                self.session.display(),
                number_of(count, "session"),
                self.row
            );
        };
        if count > 1 {
            eprintln!("session {} of {count}; choose another with --row", self.row);
        }
        let digest = imported.sha256;
        let name = self.session.file_name().unwrap_or_default();
        let name = match self.fidelity {
            // A file name may reveal content, too.
            Keep::Shape => format!("session-{}", &digest[..12]),
            Keep::Content => name.to_string_lossy().trim_end_matches(".gz").trim_end_matches(".zst").to_owned(),
        };
        let id = self.id.clone().unwrap_or_else(|| trace_name(&self.out));
        let provenance = TraceOrigin {
            id,
            source: TraceSource {
                format: imported.importer.id().to_owned(),
                repo: self.repo,
                commit: self.commit,
                path: name,
                sha256: digest,
                licence: self.licence,
            },
        };
        let fidelity = match self.fidelity {
            Keep::Shape => Fidelity::Shape,
            Keep::Content => Fidelity::Content,
        };
        // A long session and its trace do not fit into memory together.
        let mut stream = TraceStream::new(&session, &provenance, fidelity).map_err(|lost| anyhow!(lost))?;
        let files = std::mem::take(&mut stream.files);
        let mut counter = CallCounter::new(&self.out, &files)?;
        let mut counts = EventCounts::default();
        let spilling = "writing the events to a temporary file";
        let mut events = BufWriter::new(tempfile::tempfile().context(spilling)?);
        for event in stream.by_ref() {
            let event = event.map_err(|lost| anyhow!(lost))?;
            TraceLine::Event(&event).write(&mut events).context(spilling)?;
            counts.add(&event);
            counter.event(event)?;
        }
        // Check before writing, so that no unusable trace is left behind.
        let calls = counter.finish()?;
        let (head, end, blobs) = stream.finish();
        counts.coverage.head(&head);
        let mut events = events.into_inner().map_err(IntoInnerError::into_error).context(spilling)?;
        events.rewind().context(spilling)?;
        let dir = self.out.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        if !blobs.is_empty() {
            if self.out.metadata().is_ok_and(|node| !node.is_file()) {
                bail!(
                    "{}: not a file, so it cannot have the session's blobs beside it (name a file)",
                    self.out.display()
                );
            }
            let blob_dir = dir.join("blobs");
            fs::create_dir_all(&blob_dir).with_context(|| format!("creating {}", blob_dir.display()))?;
            for (digest, bytes) in blobs {
                let blob = blob_dir.join(digest);
                put(&blob, &bytes)?;
            }
        }
        put_output_by(&self.out, |mut out| {
            TraceLine::Head(&head).write(&mut out)?;
            files.iter().try_for_each(|file| TraceLine::File(file).write(&mut out))?;
            io::copy(&mut events, &mut out)?;
            TraceLine::End(&end).write(&mut out)
        })?;
        print!("{}{}", summary(&head, &files, &counts, &calls), source_lines(&session));
        Ok(())
    }
}

/// What a summary says of a trace's events.
#[derive(Default)]
struct EventCounts {
    apis: u64,
    users: u64,
    compactions: u64,
    changes: u64,
    calls: BTreeMap<Op, u64>,
    coverage: Coverage,
}

impl EventCounts {
    fn add(&mut self, event: &Event) {
        match event {
            Event::Api(_) => self.apis += 1,
            Event::User(_) => self.users += 1,
            Event::Compact(_) => self.compactions += 1,
            Event::Ext(_) => self.changes += 1,
            Event::Call(call) => *self.calls.entry(call.op).or_default() += 1,
            Event::Result(_) => {}
        }
        self.coverage.event(event);
    }
}

/// The lines of the source that are not in the trace, or are there after a repair.
pub(super) fn source_lines(session: &ImportedSession) -> String {
    let unknown = &session.unknown_records;
    let mut text = history_line(session.history);
    if session.unreadable_lines + session.mended_lines > 0 || !unknown.is_empty() {
        text += &format!(
            "  lines of the session: {} with text outside of a record, {} repaired\n",
            session.unreadable_lines, session.mended_lines
        );
    }
    for (kind, count) in unknown {
        let records = number_of(*count as usize, "record");
        text += &format!("  {records} of the unknown type {kind:?}\n");
    }
    if session.results_without_call > 0 {
        let results = number_of(session.results_without_call as usize, "result");
        text += &format!("  {results} without a call: of a call that the session does not record\n");
    }
    text
}

/// The history of another session that is not in the trace of a fork.
fn history_line(history: CopiedHistory) -> String {
    let CopiedHistory { answers, calls } = history;
    if answers + calls == 0 {
        return String::new();
    }
    format!(
        "  left out: {} and {} of the session that this fork continues; they count there\n",
        number_of(answers as usize, "answer"),
        number_of(calls as usize, "tool call")
    )
}

/// How the replay of a trace compares with its recording.
fn comparison(trace: &Trace, script: &Script, bytes: ComparedBytes) -> String {
    let ComparedBytes { reads, equal_reads, changes } = bytes;
    let mut text = format!(
        "{}: replay against recording\n  whole reads with the recorded bytes: {equal_reads} of {reads}\n  writes and edits that leave the recorded bytes: {changes} of {changes}\n",
        trace.head.id
    );
    let rendered = rendered_again(script);
    if trace.head.fidelity == Fidelity::Content && rendered.reads > 0 {
        text += &format!(
            "  tokens of {} whole reads: {} recorded, {} rendered\n",
            rendered.reads, rendered.recorded, rendered.rendered
        );
    }
    text + &replayed_share(&Coverage::of(trace))
}

/// How much of the recording a trace replays, and why not the rest.
fn replayed_share(coverage: &Coverage) -> String {
    let share = |part: u64, whole: u64| match whole {
        0 => "no calls".to_owned(),
        whole => format!("{:.1} %", 100.0 * part as f64 / whole as f64),
    };
    let others = |(whole, equal): (u64, u64), (unrecorded, unrecorded_equal): (u64, u64)| match unrecorded {
        0 => String::new(),
        _ => format!(
            "      after changes that the recording does not show: {unrecorded}; of the others, {}\n",
            share(equal.saturating_sub(unrecorded_equal), whole.saturating_sub(unrecorded))
        ),
    };
    let mut text = format!(
        "  all calls: {} of {} replayed ({})\n  calls that work on files: {0} of {} replayed ({})",
        coverage.replayed,
        coverage.recorded,
        share(coverage.replayed, coverage.recorded),
        coverage.file_work,
        share(coverage.replayed, coverage.file_work),
    );
    if coverage.modelled > 0 {
        text += &format!("; in {} of them, a walk or a search of the tree represents a program", coverage.modelled);
    }
    text.push('\n');
    if coverage.read_bytes > 0 {
        text += &format!(
            "    bytes that reads returned: {}, of which the replay reproduces {} without a correction\n",
            coverage.read_bytes,
            share(coverage.read_bytes_equal, coverage.read_bytes)
        );
    }
    text += &others(
        (coverage.read_bytes, coverage.read_bytes_equal),
        (coverage.read_bytes_unrecorded, coverage.read_bytes_unrecorded_equal),
    );
    if coverage.edits > 0 {
        text += &format!(
            "    edits: {}, of which {} apply to the recorded text without a correction\n",
            coverage.edits,
            share(coverage.edits_equal, coverage.edits)
        );
    }
    text +=
        &others((coverage.edits, coverage.edits_equal), (coverage.edits_unrecorded, coverage.edits_unrecorded_equal));
    let mut causes: Vec<(&String, &u64)> = coverage.causes.iter().collect();
    causes.sort_by_key(|(cause, count)| (std::cmp::Reverse(**count), *cause));
    if !causes.is_empty() {
        text += "  not replayed, by cause:\n";
    }
    for (cause, count) in causes {
        text += &format!("  {count:>6}  {cause}\n");
    }
    text
}

/// `a` for `dir/a.trace.jsonl`.
fn trace_name(out: &Path) -> String {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// What `trace show` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct PrintedTrace<'a> {
    id: &'a str,
    agent: &'a str,
    model: &'a str,
    fidelity: Fidelity,
    /// Files of the workspace at the start of the session.
    files: usize,
    /// Bytes of the files at the start of the session.
    bytes: u64,
    model_calls: u64,
    user_turns: u64,
    compactions: u64,
    /// Changes of files by other programs between the recorded calls.
    changes: u64,
    /// Number of recorded calls, by operation.
    recorded: BTreeMap<&'static str, u64>,
    /// Number of file calls of a replay, by kind.
    replayed: BTreeMap<String, u64>,
    /// Number of recorded calls that no file call can replay, by operation.
    not_replayed: &'a BTreeMap<String, u64>,
    coverage: &'a Coverage,
}

/// What `trace check` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct PrintedTraceCheck<'a> {
    id: &'a str,
    /// Recorded reads of whole files.
    reads: u64,
    /// Reads of whole files with the recorded bytes.
    equal_reads: u64,
    changes: u64,
    coverage: Coverage,
}

impl<'a> PrintedTrace<'a> {
    fn of(head: &'a TraceHead, files: &[InitialFile], counts: &'a EventCounts, calls: &'a CountedCalls) -> Self {
        Self {
            id: &head.id,
            agent: &head.agent,
            model: &head.model,
            fidelity: head.fidelity,
            files: files.len(),
            bytes: files.iter().map(|file| file.content.bytes).sum(),
            model_calls: counts.apis,
            user_turns: counts.users,
            compactions: counts.compactions,
            changes: counts.changes,
            recorded: counts.calls.iter().map(|(op, n)| (op.name(), *n)).collect(),
            replayed: calls.timed.iter().map(|(kind, n)| (kind.to_string(), *n)).collect(),
            not_replayed: &calls.not_replayed,
            coverage: &counts.coverage,
        }
    }
}

fn summary(head: &TraceHead, files: &[InitialFile], counts: &EventCounts, calls: &CountedCalls) -> String {
    let fidelity = match head.fidelity {
        Fidelity::Shape => "shape",
        Fidelity::Content => "content",
    };
    let mut text = format!("{}: {} on {}, fidelity {fidelity}\n", head.id, head.agent, head.model);
    let full = files.iter().filter(|f| f.known == ContentKnowledge::Full).count();
    let bytes: u64 = files.iter().map(|f| f.content.bytes).sum();
    text += &format!("  files at the start: {} ({full} completely known), {bytes} bytes\n", files.len());
    text += &format!(
        "  model calls: {}, user turns: {}, compactions: {}, changes by other programs: {}\n",
        counts.apis, counts.users, counts.compactions, counts.changes
    );
    let list = |counts: BTreeMap<String, u64>| {
        let parts: Vec<_> = counts.iter().map(|(op, n)| format!("{op} {n}")).collect();
        parts.join(", ")
    };
    let recorded_calls: u64 = counts.calls.values().sum();
    let recorded = counts.calls.iter().map(|(op, n)| (op.name().to_owned(), *n));
    text += &format!("  calls recorded: {}\n", list(recorded.collect()));
    if calls.timed.is_empty() {
        let why = match recorded_calls {
            0 => "no tool call",
            _ => "no tool call is a file operation",
        };
        text += &format!("  nothing to replay: {why}\n");
    }
    let replayed = calls.timed.iter().map(|(kind, n)| (kind.to_string(), *n));
    text += &format!("  calls replayed: {}\n", list(replayed.collect()));
    text += &format!("  not replayed: {}\n", list(calls.not_replayed.clone()));
    text + &replayed_share(&counts.coverage)
}
