//! Importer for trajectories in the Agent Trajectory Interchange Format (ATIF), as Harbor and Terminal-Bench write them.
//! A step has a source: `system`, `user` or `agent`. The results of an agent's calls are in the same step.

use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::{arguments, content, milliseconds, token_count};
use super::recorder::Recorder;
use super::records::each_document;
use super::{ImportedSession, Importer, ReportedTotal, text};
use workloads::trace::TokenUsage;

/// The Agent Trajectory Interchange Format.
#[derive(Debug)]
pub struct Atif;

impl Importer for Atif {
    fn id(&self) -> &'static str {
        "atif"
    }

    fn reads(&self) -> &'static str {
        "ATIF trajectories of Harbor and Terminal-Bench (`agent/trajectory.json`)"
    }

    fn detects(&self, head: &Head) -> bool {
        head.has("steps.step_id") && (head.begins("schema_version", "ATIF") || head.has("steps.source"))
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let mut sessions = Vec::new();
        let damage = each_document(recording, |record| sessions.push(session(&record)))?;
        if let Some(first) = sessions.first_mut() {
            first.unreadable_lines += damage.unreadable;
            first.mended_lines += damage.mended;
        }
        Ok(sessions)
    }
}

fn session(trajectory: &Value) -> ImportedSession {
    let agent = &trajectory["agent"];
    let name = text(agent, "name").unwrap_or("unknown agent");
    let mut recorder = Recorder::new(match text(agent, "version") {
        Some(version) => format!("{name} {version}"),
        None => name.to_owned(),
    });
    recorder.identity(text(trajectory, "session_id").unwrap_or_default());
    recorder.model(text(agent, "model_name").unwrap_or_default());
    for dir in agent["extra"]["cwds"].as_array().into_iter().flatten() {
        recorder.directory(dir.as_str().unwrap_or_default());
    }
    let mut has_usage = false;
    for at in trajectory["steps"].as_array().into_iter().flatten() {
        has_usage |= at["metrics"]["prompt_tokens"].is_u64();
        step(&mut recorder, at);
    }
    let totals = &trajectory["final_metrics"];
    if !has_usage && totals["total_prompt_tokens"].is_u64() {
        let counts = ["total_prompt_tokens", "total_cached_tokens", "total_completion_tokens"];
        recorder.total(ReportedTotal {
            model: text(agent, "model_name").unwrap_or_default().to_owned(),
            usage: Some(usage(counts.map(|name| &totals[name]))),
            dollars: totals["total_cost_usd"].as_f64(),
        });
    }
    recorder.finish()
}

fn step(recorder: &mut Recorder, step: &Value) {
    recorder.time(milliseconds(&step["timestamp"]));
    let said = content(&step["message"]);
    match text(step, "source") {
        Some("system") => recorder.system(&said),
        Some("user") => recorder.user(&said),
        _ => {
            recorder.answer();
            recorder.model(text(step, "model_name").unwrap_or_default());
            recorder.said(&said, text(step, "reasoning_content").unwrap_or_default());
            let metrics = &step["metrics"];
            recorder.usage(usage(["prompt_tokens", "cached_tokens", "completion_tokens"].map(|name| &metrics[name])));
            recorder.cost(&metrics["cost_usd"]);
            let calls: Vec<String> =
                step["tool_calls"].as_array().into_iter().flatten().map(|each| call(recorder, each)).collect();
            let results = step["observation"]["results"].as_array().into_iter().flatten();
            for (at, result) in results.enumerate() {
                // Without a name, results are in the order of the calls.
                let id = text(result, "source_call_id").or_else(|| calls.get(at).map(String::as_str));
                if let Some(id) = id {
                    let failed = result["extra"]["is_error"].as_bool() == Some(true);
                    recorder.result(id, content(&result["content"]), failed);
                }
            }
        }
    }
}

/// Adds a call. Returns its identity.
fn call(recorder: &mut Recorder, call: &Value) -> String {
    let id = text(call, "tool_call_id").unwrap_or_default();
    let tool = text(call, "function_name").unwrap_or("unknown");
    recorder.new_call(id, tool, arguments(&call["arguments"]), None)
}

/// Prompt tokens, those of them that come from the cache, and tokens of the answer.
fn usage([prompt, cached, answer]: [&Value; 3]) -> TokenUsage {
    let (prompt, cached) = (token_count(prompt), token_count(cached));
    TokenUsage {
        uncached: prompt.saturating_sub(cached),
        cache_read: cached,
        output: token_count(answer),
        ..TokenUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{calls, imported, usages};

    #[test]
    fn a_trajectory_gives_its_calls_with_the_results_of_their_step() {
        let session = imported("atif", include_str!("fixtures/atif.json"));
        assert_eq!((session.agent.as_str(), session.model.as_str()), ("claude-code 2.1.0", "claude-opus-4-5"));
        assert_eq!(
            calls(&session),
            [
                "Bash exec: cat a.txt in /work -> one\ntwo\n",
                "Write write a.txt: written three\n",
                "Bash exec: cat a.txt in /work -> three\n",
            ]
        );
        assert_eq!(usages(&session), ["claude-opus-4-5 100+900 20", "claude-opus-4-5 50+1000 10"]);
    }
}
