//! Importers: each reads one agent's format into an [`ImportedSession`]: calls, results, and the files they show.
//! [`session_traces::trace()`] turns any session into a trace.

mod aider;
mod atif;
pub mod claude_code;
#[cfg(test)]
mod claude_code_tests;
mod cline;
mod cline_sdk;
mod code_mode;
mod codex;
mod copilot;
mod cursor;
pub mod detect;
mod droid;
mod edit_result;
#[cfg(test)]
mod edit_tests;
#[cfg(test)]
mod example;
mod gemini;
mod gemini_telemetry;
mod identities;
mod inspect_ai;
pub mod json;
mod kiro;
mod mcp;
mod messages;
mod mini_swe_agent;
mod opencode;
mod openhands;
mod otel;
mod pi;
mod recorder;
pub mod records;
mod repair;
mod responses;
mod strace;
mod swe_agent;
#[cfg(test)]
mod testing;
mod tools;
#[cfg(test)]
mod trace_tests;

use std::io::BufRead;

use serde_json::Value;
use session_traces::{
    CopiedHistory, Hunk, ImportedSession, RecordedCall, RecordedEvent, RecordedResult, ReportedTotal, SeenContent,
    UnplacedUsage,
};
use workloads::trace::Op;

/// Reads recordings of one format.
pub trait Importer: Sync {
    /// The name of the format, in options and in traces.
    fn id(&self) -> &'static str;

    /// What it reads: the agent, and the file.
    fn reads(&self) -> &'static str;

    /// What such a recording lacks, if it lacks something; a text such as `no results of tools`.
    fn lacks(&self) -> Option<&'static str> {
        None
    }

    /// Whether a session holds the results of its tools. If it does not, nothing tells how large they are.
    fn holds_results(&self, session: &ImportedSession) -> bool {
        session.shows_results()
    }

    /// Whether it reads a recording record by record: a file whose start shows the format need not be in memory.
    fn streams(&self) -> bool {
        false
    }

    /// Whether a file with this head is of the format.
    fn detects(&self, head: &detect::Head) -> bool;

    /// Reads the sessions of a recording. A record that cannot be read costs that record.
    ///
    /// # Errors
    /// If the file is not of the format.
    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String>;
}

/// The importers. The first one that detects a file reads it.
pub static IMPORTERS: &[&dyn Importer] = &[
    &codex::Codex,
    &cursor::Cursor,
    &claude_code::ClaudeCode,
    &atif::Atif,
    &mini_swe_agent::MiniSweAgent,
    &swe_agent::SweAgent,
    &opencode::OpenCode,
    &gemini::Gemini,
    &gemini_telemetry::GeminiTelemetry,
    &copilot::Copilot,
    &openhands::OpenHands,
    &inspect_ai::InspectAi,
    &pi::Pi,
    &droid::Droid,
    &kiro::Kiro,
    &otel::OpenTelemetry,
    &responses::Responses,
    &mcp::Mcp,
    &cline::Cline,
    &messages::Messages,
    &strace::Strace,
    &aider::Aider,
];

/// The clock of a session, which starts at its first time.
#[derive(Default)]
struct Clock(Option<i64>);

impl Clock {
    /// Milliseconds since the session's start, of a time in milliseconds.
    fn at(&mut self, time: Option<i64>) -> u64 {
        let since = time.map(|time| time.saturating_sub(*self.0.get_or_insert(time)));
        since.map_or(0, |since| u64::try_from(since).unwrap_or(0))
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

/// The kind of a shell command.
fn shell_op(command: &str) -> Op {
    if command.trim_start().starts_with("git ") { Op::Vcs } else { Op::Exec }
}
