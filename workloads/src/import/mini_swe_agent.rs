//! Importer for mini-swe-agent's trajectories (`.traj.json`): each answer contains one shell command.
//! The agent changes files only by shell, so no call is replayed.
//! The file contains the whole prompt and the reported usage of each call, which checks the token ledger.

use serde_json::Value;

use super::{
    Clock, ImportedSession, Recorded, RecordedCall, RecordedResult, SeenContent, shell_op,
};
use crate::trace::{CallError, Extra, MAIN_LANE, TokenUsage};

/// Reads a trajectory.
///
/// # Errors
/// If the text is not a trajectory.
pub fn read(text: &str) -> Result<ImportedSession, String> {
    let file: Value =
        serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
    let format = file["trajectory_format"].as_str().unwrap_or_default();
    let messages = file["messages"]
        .as_array()
        .filter(|_| format.starts_with("mini-swe-agent"))
        .ok_or("is no mini-swe-agent trajectory: `trajectory_format` and `messages` are missing")?;
    let version = file["info"]["mini_version"].as_str().unwrap_or("unknown");
    let mut session = ImportedSession {
        agent: format!("mini-swe-agent {version}"),
        // The agent has no tools; a command is part of the text.
        is_whole_prompt: true,
        ..ImportedSession::default()
    };
    let mut apis = 0;
    let mut clock = Clock::default();
    let mut open: Option<String> = None;
    for message in messages {
        let content = message["content"].as_str().unwrap_or_default().to_owned();
        match message["role"].as_str() {
            Some("system") => session.system = Some(content),
            Some("assistant") => {
                let response = &message["extra"]["response"];
                if session.model.is_empty() {
                    let model = response["model"].as_str().unwrap_or_default();
                    session.model = model.to_owned();
                }
                let created = response["created"].as_i64().unwrap_or(0);
                let at = clock.at(Some(created.saturating_mul(1000)));
                let command = command(&content);
                session.events.push(Recorded::Api {
                    at,
                    usage: usage(&response["usage"]),
                    lane: MAIN_LANE.to_owned(),
                    text: content,
                    thinking: String::new(),
                });
                if let Some(command) = command {
                    let id = format!("call-{apis}");
                    open = Some(id.clone());
                    session
                        .events
                        .push(Recorded::Call(call(id, apis, &command, at)));
                }
                apis += 1;
            }
            Some("user") => match open.take() {
                Some(id) => session.events.push(Recorded::Result(RecordedResult {
                    id,
                    err: (!content.starts_with("<returncode>0<")).then_some(CallError::Exit),
                    shown: content,
                    seen: SeenContent::Nothing,
                })),
                None => session.events.push(Recorded::User { text: content }),
            },
            _ => {}
        }
    }
    if apis == 0 {
        return Err("holds no answer of a model".to_owned());
    }
    Ok(session)
}

fn call(id: String, api: u64, command: &str, at: u64) -> RecordedCall {
    RecordedCall {
        args: Extra::from_iter([("command".to_owned(), command.into())]),
        is_in_text: true,
        ..RecordedCall::new(id, api, "Bash", shell_op(command), at)
    }
}

/// The command in the fenced block of an answer.
fn command(content: &str) -> Option<String> {
    let (_, rest) = content.split_once("```bash\n")?;
    let (command, _) = rest.split_once("\n```")?;
    Some(command.to_owned())
}

/// Parses an OpenAI-style usage record.
pub(super) fn usage(usage: &Value) -> TokenUsage {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let cached = count(&usage["prompt_tokens_details"]["cached_tokens"]);
    TokenUsage {
        uncached: count(&usage["prompt_tokens"]).saturating_sub(cached),
        cache_read: cached,
        output: count(&usage["completion_tokens"]),
        reasoning: count(&usage["completion_tokens_details"]["reasoning_tokens"]),
        ..TokenUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trajectory_is_a_conversation_with_commands_in_its_text() {
        let text = serde_json::json!({
            "trajectory_format": "mini-swe-agent-1",
            "info": {"mini_version": "1.15.0"},
            "messages": [
                {"role": "system", "content": "You have a shell."},
                {"role": "user", "content": "Fix it."},
                {"role": "assistant", "content": "Look.\n```bash\nls -l\n```", "extra": {"response": {
                    "model": "google/gemini-3-pro-preview", "created": 100,
                    "usage": {"prompt_tokens": 50, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 20}}}}},
                {"role": "user", "content": "<returncode>2</returncode>\n<output>\n</output>"},
                {"role": "assistant", "content": "Done.", "extra": {"response": {"created": 104, "usage": {"prompt_tokens": 80}}}},
            ],
        });
        let session = read(&text.to_string()).unwrap();
        assert_eq!(session.system.as_deref(), Some("You have a shell."));
        let kinds: Vec<String> = session
            .events
            .iter()
            .map(|event| match event {
                Recorded::User { .. } => "user".to_owned(),
                Recorded::Api { at, usage, .. } => {
                    format!("api {at} {}+{}", usage.uncached, usage.cache_read)
                }
                Recorded::Call(call) => format!("call {:?} {}", call.op, call.args["command"]),
                Recorded::Result(result) => format!("result {:?}", result.err),
                Recorded::Compact { .. } => "compact".to_owned(),
            })
            .collect();
        assert_eq!(
            kinds,
            [
                "user",
                "api 0 30+20",
                "call Exec \"ls -l\"",
                "result Some(Exit)",
                "api 4000 80+0"
            ]
        );
        for bad in [
            "",
            "{}",
            r#"{"trajectory_format":"mini-swe-agent-1","messages":[]}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
