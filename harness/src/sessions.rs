//! Reads recorded sessions of several agents.

use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, bail};
use clap::ValueEnum;
use flate2::read::GzDecoder;
use inputs::files::{self, RECORDING};
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
    let reading = || format!("reading {}", path.display());
    let file = files::open(path).with_context(reading)?;
    let packed = file.metadata().with_context(reading)?.len();
    let mut file = BufReader::new(file);
    let is_packed = file
        .fill_buf()
        .with_context(reading)?
        .starts_with(&[0x1f, 0x8b]);
    let bytes = match is_packed {
        true => files::read_unpacked(GzDecoder::new(file), packed, RECORDING)
            .with_context(|| format!("unpacking {}", path.display()))?,
        false => files::read_all(file, RECORDING).with_context(reading)?,
    };
    // A broken character in one message must not lose the whole session.
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Parses the sessions in a recording; `path` appears in errors.
pub fn sessions(
    path: &Path,
    format: SessionFormat,
    text: &str,
) -> anyhow::Result<Vec<ImportedSession>> {
    let sessions = match format {
        SessionFormat::ClaudeCode => {
            claude_code::read_with_subagents(text, &subagents(path)?).map(|session| vec![session])
        }
        SessionFormat::MiniSweAgent => mini_swe_agent::read(text).map(|session| vec![session]),
        SessionFormat::Openhands => openhands::read(text),
    };
    match sessions {
        Ok(sessions) => Ok(sessions),
        Err(problem) => bail!("{}: {problem}", path.display()),
    }
}

/// The recordings of a Claude Code session's subagents: `SESSION/subagents/*.jsonl` beside `SESSION.jsonl`.
fn subagents(session: &Path) -> anyhow::Result<Vec<String>> {
    let name = session.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(".gz").trim_end_matches(".jsonl");
    let dir = session.with_file_name(name).join("subagents");
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let reading = || format!("reading {}", dir.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&dir).with_context(reading)? {
        let file = entry.with_context(reading)?.path();
        if file.extension().is_some_and(|end| end == "jsonl") {
            files.push(file);
        }
    }
    files.sort();
    files.iter().map(|file| recording(file)).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_small_packed_file_does_not_become_gigabytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bomb.jsonl.gz");
        let mut packer = GzEncoder::new(std::fs::File::create(&path).unwrap(), Compression::fast());
        let line = [b' '; 1023]
            .iter()
            .chain(b"\n")
            .copied()
            .collect::<Vec<u8>>();
        for _ in 0..200 << 10 {
            packer.write_all(&line).unwrap();
        }
        packer.finish().unwrap();
        assert!(path.metadata().unwrap().len() < 2 << 20);
        let refused = format!("{:#}", recording(&path).unwrap_err());
        assert!(
            refused.ends_with("unpacks to more than 100 times its size"),
            "{refused}"
        );
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        for path in ["/dev/zero", "/tmp"] {
            let refused = format!("{:#}", recording(Path::new(path)).unwrap_err());
            assert!(refused.contains("not a regular file"), "{refused}");
        }
    }

    #[test]
    fn the_files_of_subagents_belong_to_their_session() {
        let dir = tempfile::tempdir().unwrap();
        let call = |id: &str, second: u32, agent: &str| {
            format!(
                r#"{{"type":"assistant","timestamp":"2026-01-01T00:00:0{second}Z","cwd":"/p"{agent},"message":{{"id":"m{id}","content":[{{"type":"tool_use","id":"{id}","name":"LS","input":{{}}}}]}}}}"#
            ) + "\n"
        };
        let path = dir.path().join("s.jsonl");
        let text = call("a", 1, "") + &call("c", 3, "");
        std::fs::write(&path, &text).unwrap();
        let beside = dir.path().join("s/subagents");
        std::fs::create_dir_all(&beside).unwrap();
        let agent = r#","isSidechain":true,"agentId":"x""#;
        std::fs::write(beside.join("agent-x.jsonl"), call("b", 2, agent)).unwrap();
        std::fs::write(beside.join("agent-x.meta.json"), "{}").unwrap();
        let session = sessions(&path, SessionFormat::ClaudeCode, &text)
            .unwrap()
            .remove(0);
        let calls = session.events.iter().filter_map(|event| match event {
            workloads::import::Recorded::Call(call) => Some((call.id.as_str(), call.lane.as_str())),
            _ => None,
        });
        assert_eq!(
            calls.collect::<Vec<_>>(),
            [("a", "main"), ("b", "sub:x"), ("c", "main")]
        );
    }

    #[test]
    fn a_broken_character_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, b"a\xffb\n").unwrap();
        assert_eq!(recording(&path).unwrap(), "a\u{fffd}b\n");
    }
}
