//! Reads recorded sessions of several agents.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use clap::ValueEnum;
use workloads::import::{ImportedSession, claude_code, mini_swe_agent, openhands};

/// The format of a recorded session, by the agent that recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SessionFormat {
    /// Claude Code session files (`~/.claude/projects/*/*.jsonl`).
    ClaudeCode,
    /// mini-swe-agent trajectories (`*.traj.json`).
    MiniSweAgent,
    /// OpenHands evaluation output (`output.jsonl`, V0 events), a session a row.
    Openhands,
}

impl SessionFormat {
    /// The name in traces.
    pub fn name(self) -> &'static str {
        match self {
            SessionFormat::ClaudeCode => "claude-code",
            SessionFormat::MiniSweAgent => "mini-swe-agent",
            SessionFormat::Openhands => "openhands",
        }
    }
}

/// Reads a recording, which may be gzip-compressed.
pub fn recording(path: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..])
            .read_to_end(&mut plain)
            .with_context(|| format!("unpacking {}", path.display()))?;
        plain
    } else {
        bytes
    };
    // A broken character in one message must not lose the whole session.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the sessions in a recording; `path` appears in errors.
pub fn sessions(
    path: &Path,
    format: SessionFormat,
    text: &str,
) -> anyhow::Result<Vec<ImportedSession>> {
    let sessions = match format {
        SessionFormat::ClaudeCode => claude_code::read(text).map(|session| vec![session]),
        SessionFormat::MiniSweAgent => mini_swe_agent::read(text).map(|session| vec![session]),
        SessionFormat::Openhands => openhands::read(text),
    };
    match sessions {
        Ok(sessions) => Ok(sessions),
        Err(problem) => bail!("{}: {problem}", path.display()),
    }
}
