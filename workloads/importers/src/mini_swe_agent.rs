//! Importer for mini-swe-agent's trajectories (`.traj.json`), versions 1 and 2: shell commands in fenced blocks, or as tool
//! calls. The file contains the whole prompt and the reported usage of each call, which checks the token ledger.

use std::io::BufRead;

use serde_json::{Value, json};

use super::detect::Head;
use super::json::{content, document, milliseconds};
use super::messages::usage;
use super::recorder::{Answer, Recorder};
use super::{ImportedSession, Importer, text};

/// mini-swe-agent.
#[derive(Debug)]
pub struct MiniSweAgent;

impl Importer for MiniSweAgent {
    fn id(&self) -> &'static str {
        "mini-swe-agent"
    }

    fn reads(&self) -> &'static str {
        "mini-swe-agent trajectories (`*.traj.json`), versions 1 and 2"
    }

    fn detects(&self, head: &Head) -> bool {
        let is_object = head.has("messages.role")
            && (head.begins("trajectory_format", "mini-swe-agent") || head.has("info.mini_version"));
        // The first versions wrote the messages alone.
        let is_list = head.is_list
            && head.is("role", "assistant")
            && (head.begins("content", "<returncode>") || head.begins("content.text", "<returncode>"));
        is_object || is_list
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let (file, damage) = document(recording)?;
        let info = &file["info"];
        let version = text(info, "mini_version").unwrap_or("unknown");
        let mut recorder = Recorder::new(format!("mini-swe-agent {version}"));
        let config = &info["config"];
        recorder.directory(text(&config["environment"], "cwd").unwrap_or_default());
        recorder.cost(&info["model_stats"]["instance_cost"]);
        let messages = file["messages"].as_array().or_else(|| file.as_array());
        let messages = messages.ok_or("has no list `messages`")?;
        let mut open: Vec<(String, String)> = Vec::new();
        for message in messages {
            let said = content(&message["content"]);
            match text(message, "role") {
                Some("system") => {
                    recorder.system(&said);
                }
                Some("assistant") => {
                    let extra = &message["extra"];
                    let response = &extra["response"];
                    let time = [&response["created"], &extra["timestamp"]];
                    recorder.time(time.into_iter().find_map(milliseconds));
                    let named = text(response, "model").or_else(|| text(&config["model"], "model_name"));
                    recorder.model(named.unwrap_or_default());
                    recorder.answer();
                    recorder.said(&said, text(message, "reasoning_content").unwrap_or_default());
                    open = commands(&mut recorder, message, &said);
                    recorder.usage(usage(&response["usage"]));
                    recorder.end_answer();
                }
                Some("tool" | "user") => {
                    let id = match text(message, "tool_call_id") {
                        Some(id) => {
                            open.retain(|(waiting, _)| waiting != id);
                            Some(id.to_owned())
                        }
                        None if open.is_empty() => None,
                        None => Some(open.remove(0).1),
                    };
                    match id {
                        Some(id) => {
                            let answer = submitted(info, &said);
                            let answer = answer.unwrap_or_else(|| result(message, said));
                            recorder.answered(&id, answer);
                        }
                        None => recorder.user(&said),
                    }
                }
                // Newer versions end with the submission, and not with the result of the command.
                Some("exit") if !open.is_empty() => {
                    // The last command of an answer submits: nothing is run after it.
                    if let (Some(answer), Some((_, last))) = (submitted(info, &said), open.pop()) {
                        recorder.answered(&last, answer);
                    }
                }
                _ => {}
            }
        }
        let tools = messages.iter().any(|message| message["tool_calls"].is_array());
        if !tools {
            // The agent sends no tool definitions; a command is part of the text.
            recorder.prompt_is_whole();
        }
        recorder.unreadable(damage);
        Ok(vec![recorder.finish()])
    }
}

/// Records the commands of an answer. Returns those that the next messages answer in turn: each one's identity in the source
/// and in the recorder.
fn commands(recorder: &mut Recorder, message: &Value, said: &str) -> Vec<(String, String)> {
    let actions = message["extra"]["actions"].as_array();
    let calls = message["tool_calls"].as_array();
    let mut open = Vec::new();
    if let Some(calls) = calls {
        for call in calls {
            let function = &call["function"];
            let args = super::json::arguments(&function["arguments"]);
            let id = text(call, "id").unwrap_or_default();
            let own = recorder.new_call(id, text(function, "name").unwrap_or("bash"), args, None);
            open.push((id.to_owned(), own));
        }
        return open;
    }
    let commands: Vec<String> = match actions {
        Some(actions) => actions.iter().filter_map(|action| text(action, "command")).map(str::to_owned).collect(),
        None => fenced(said).into_iter().collect(),
    };
    for command in commands {
        let own = recorder.new_call_in_text("call", "Bash", json!({ "command": command }), None);
        open.push((String::new(), own));
    }
    open
}

/// The command in the fenced block of an answer. The agent runs nothing of an answer with several.
fn fenced(said: &str) -> Option<String> {
    let fences = ["```bash\n", "```mswea_bash_command\n"];
    let next = |said: &str| {
        let (_, rest) = fences.iter().find_map(|fence| said.split_once(fence))?;
        let (command, rest) = rest.split_once("\n```")?;
        Some((command.to_owned(), rest.to_owned()))
    };
    let (command, rest) = next(said)?;
    next(&rest).is_none().then_some(command)
}

/// The result of the command that submits: the agent ends when a command prints its mark, and keeps what follows the mark.
/// Without a text behind it, the exit status of the command is not known.
fn submitted(info: &Value, shown: &str) -> Option<Answer> {
    let is_last = text(info, "exit_status") == Some("Submitted")
        && text(info, "submission") == Some(shown)
        && !shown.trim().is_empty();
    is_last.then(|| Answer { shown: shown.to_owned(), printed: Some(shown.to_owned()), ..Answer::default() })
}

/// A result in its frame of `<returncode>` and `<output>`.
fn result(message: &Value, shown: String) -> Answer {
    let extra = &message["extra"];
    let tag = |name: &str| {
        let (_, rest) = shown.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    };
    let code = extra["returncode"].as_i64();
    let code = code.or_else(|| tag("returncode")?.trim().parse().ok());
    let output = tag("output").map(|output| output.strip_prefix('\n').unwrap_or(output));
    let printed = text(extra, "raw_output").or(output).map(str::to_owned);
    Answer { failed: code != Some(0), printed, shown, ..Answer::default() }
}

#[cfg(test)]
mod tests {
    use crate::testing::{calls, imported, stated, usages};
    use serde_json::json;

    #[test]
    fn the_cost_of_the_instance_is_stated() {
        let file = json!({"info": {"mini_version": "2.1.0", "model_stats": {"api_calls": 2, "instance_cost": 0.075}},
            "messages": [{"role": "user", "content": "Fix it."}, {"role": "assistant", "content": "Done."}]});
        assert_eq!(stated(&imported("mini-swe-agent", &file.to_string())), Some(0.075));
    }

    #[test]
    fn of_an_answer_with_several_blocks_nothing_is_run() {
        let answer = |blocks: &str| json!({"role": "assistant", "content": blocks});
        let file = json!({"info": {"mini_version": "1.15.0"}, "trajectory_format": "mini-swe-agent-1", "messages": [
            {"role": "system", "content": "You have a shell."}, {"role": "user", "content": "Fix it."},
            answer("I want:\n```bash\nrm a\n```\nand\n```bash\nls\n```"),
            {"role": "user", "content": "Give one action, and not 2."},
            answer("```bash\nls\n```"), {"role": "user", "content": "<returncode>0</returncode>\n<output>\na\n</output>"}]});
        assert_eq!(calls(&imported("mini-swe-agent", &file.to_string())), ["Bash exec: ls -> a\n"]);
    }

    #[test]
    fn commands_in_fenced_blocks_and_in_tool_calls_are_calls() {
        let usage =
            json!({"prompt_tokens": 50, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 20}});
        let response =
            |created: u64| json!({"model": "google/gemini-3-pro-preview", "created": created, "usage": usage});
        let info = json!({"mini_version": "1.15.0", "config": {"environment": {"cwd": "/testbed"}}});
        let one = json!({"info": info, "trajectory_format": "mini-swe-agent-1", "messages": [
            {"role": "system", "content": "You have a shell."},
            {"role": "user", "content": "Fix it."},
            {"role": "assistant", "content": "Look.\n```bash\nls -l\n```", "extra": {"response": response(100)}},
            {"role": "user", "content": "<returncode>2</returncode>\n<output>\n</output>"},
            {"role": "assistant", "content": "Look.\n```bash\ncat a\n```", "extra": {"response": response(104)}},
            {"role": "user", "content": "<returncode>0</returncode>\n<output>\none\n</output>"},
        ]});
        let session = imported("mini-swe-agent", &one.to_string());
        assert_eq!(session.system.as_deref(), Some("You have a shell."));
        assert_eq!(
            calls(&session),
            ["Bash exec: ls -l in /testbed -> (Exit)", "Bash exec: cat a in /testbed -> one\n"]
        );
        assert_eq!(usages(&session)[0], "google/gemini-3-pro-preview 30+20 9");
        assert!(session.is_whole_prompt);
        let call = |id: &str, command: &str| {
            json!([{"id": id, "type": "function", "function": {
            "name": "bash", "arguments": json!({"command": command}).to_string()}}])
        };
        let two = json!({"messages": [
            {"role": "user", "content": "Fix it."},
            {"role": "assistant", "content": "Look.", "tool_calls": call("c1", "cat a"), "extra": {"response": response(100)}},
            {"role": "tool", "tool_call_id": "c1", "content": "<returncode>0</returncode>\n<output>\none\n</output>",
                "extra": {"raw_output": "one\n", "returncode": 0}},
        ], "info": {"mini_version": "2.1.0"}, "trajectory_format": "mini-swe-agent-1.1"});
        let session = imported("mini-swe-agent", &two.to_string());
        assert_eq!(calls(&session), ["bash exec: cat a -> one\n"]);
        assert!(!session.is_whole_prompt);
    }

    #[test]
    fn the_command_that_submits_has_succeeded() {
        let session = |role: &str, submission: &str| {
            let mark = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat a";
            json!({"info": {"exit_status": "Submitted", "submission": submission}, "messages": [
                {"role": "user", "content": "Fix it."},
                {"role": "assistant", "content": format!("Done.\n```bash\n{mark}\n```")},
                {"role": role, "content": submission},
            ], "trajectory_format": "mini-swe-agent-1"})
        };
        let command = "Bash exec: echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat a ->";
        for role in ["user", "exit"] {
            let session = imported("mini-swe-agent", &session(role, "one\n").to_string());
            assert_eq!(calls(&session), [format!("{command} one\n")]);
        }
        // Of two calls the last one submits, whether the first was answered or not.
        let two = |answers: serde_json::Value| {
            let call = |id: &str, command: &str| {
                let arguments = json!({"command": command}).to_string();
                json!({"id": id, "type": "function", "function": {"name": "bash", "arguments": arguments}})
            };
            let mark = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat p";
            let mut messages = vec![
                json!({"role": "user", "content": "Fix it."}),
                json!({"role": "assistant", "content": "", "tool_calls": [call("c1", "git diff > p"), call("c2", mark)]}),
            ];
            messages.extend(answers.as_array().unwrap().iter().cloned());
            messages.push(json!({"role": "exit", "content": "patch\n"}));
            let info = json!({"exit_status": "Submitted", "submission": "patch\n"});
            let file = json!({"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1"});
            calls(&imported("mini-swe-agent", &file.to_string()))
        };
        let answer = "<returncode>0</returncode>\n<output>\n</output>";
        for answers in [json!([]), json!([{"role": "tool", "tool_call_id": "c1", "content": answer}])] {
            let found = two(answers);
            assert!(found[1].ends_with("cat p -> patch\n") && !found[0].contains("patch"), "{found:?}");
        }
        // Without an output, the exit status is unknown.
        let session = imported("mini-swe-agent", &session("user", "").to_string());
        assert_eq!(calls(&session), [format!("{command} (Exit)")]);
    }

    #[test]
    fn the_messages_alone_are_a_session_of_the_first_versions() {
        let messages = json!([
            {"role": "system", "content": "You have a shell."},
            {"role": "user", "content": "Fix it."},
            {"role": "assistant", "content": "Look.\n```mswea_bash_command\ncat a\n```"},
            {"role": "user", "content": "<returncode>0</returncode>\n<output>\none\n</output>"},
        ]);
        assert_eq!(calls(&imported("mini-swe-agent", &messages.to_string())), ["Bash exec: cat a -> one\n"]);
    }
}
