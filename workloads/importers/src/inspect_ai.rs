//! Importer for inspect_ai's logs: a session a sample. An `.eval` log is an archive, which becomes one such document
//! when it is opened.

use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::document;
use super::messages::{message, usage};
use super::recorder::Recorder;
use super::{ImportedSession, Importer, ReportedTotal, text};
use workloads::trace::TokenUsage;

/// inspect_ai.
#[derive(Debug)]
pub struct InspectAi;

impl Importer for InspectAi {
    fn id(&self) -> &'static str {
        "inspect-ai"
    }

    fn reads(&self) -> &'static str {
        "inspect_ai logs (`*.eval`, and in JSON)"
    }

    fn detects(&self, head: &Head) -> bool {
        head.has("eval.task") && head.has("eval.model")
            || head.has("messages.role") && head.has("model_usage") && head.has("epoch")
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let (file, damage) = document(recording)?;
        let eval = &file["eval"];
        let model = text(eval, "model").unwrap_or_default();
        let samples = match file["samples"].as_array() {
            Some(samples) => samples.iter().collect(),
            // A sample of an unpacked `.eval` archive.
            None if file["messages"].is_array() => vec![&file],
            None => Vec::new(),
        };
        let mut sessions: Vec<ImportedSession> = samples
            .into_iter()
            .map(|each| sample(each, model))
            .filter(|session| !session.events.is_empty() || !session.totals.is_empty())
            .collect();
        if sessions.is_empty() {
            // A log that was written without its samples has the usage of all of them.
            let mut recorder = Recorder::new("inspect_ai");
            recorder.model(model);
            totals(&mut recorder, &file["stats"]["model_usage"]);
            sessions.push(recorder.finish());
        }
        // The last sample is the one that was cut off.
        if let Some(last) = sessions.last_mut() {
            last.unreadable_lines += damage.unreadable;
            last.mended_lines += damage.mended;
        }
        Ok(sessions)
    }
}

fn sample(sample: &Value, model: &str) -> ImportedSession {
    let mut recorder = Recorder::new("inspect_ai");
    recorder.identity(&match text(sample, "uuid") {
        Some(uuid) => uuid.to_owned(),
        None => format!("{} {}", sample["id"], sample["epoch"]),
    });
    recorder.model(model);
    let messages: Vec<&Value> = sample["messages"].as_array().into_iter().flatten().collect();
    let events = sample["events"].as_array().into_iter().flatten();
    let calls = events.filter(|event| text(event, "event") == Some("model"));
    let usages: Vec<TokenUsage> = calls.map(|call| counted(&call["output"]["usage"])).collect();
    let is_answer = |one: &&&Value| text(one, "role") == Some("assistant");
    // A call of the model is an answer only if there are as many of both.
    let is_paired = usages.len() == messages.iter().filter(is_answer).count();
    let mut usages = usages.into_iter();
    for one in &messages {
        message(&mut recorder, one);
        if is_answer(&one) && is_paired {
            recorder.usage(usages.next().unwrap_or_default());
        }
    }
    totals(&mut recorder, &sample["model_usage"]);
    recorder.finish()
}

/// The usage of each model.
fn totals(recorder: &mut Recorder, usage: &Value) {
    for (model, reported) in usage.as_object().into_iter().flatten() {
        recorder.total(ReportedTotal {
            model: model.clone(),
            usage: Some(counted(reported)),
            dollars: reported["total_cost"].as_f64(),
        });
    }
}

/// A usage record. Some providers' input includes what the cache serves: the total tells.
fn counted(reported: &Value) -> TokenUsage {
    let mut counted = usage(reported);
    let beside = counted.uncached + counted.cache_read + counted.cache_write_5m + counted.output;
    let includes_cache = reported["total_tokens"].as_u64().is_some_and(|total| total < beside);
    if includes_cache {
        let cached = counted.cache_read + counted.cache_write_5m;
        counted.uncached = counted.uncached.saturating_sub(cached);
    }
    counted
}

#[cfg(test)]
mod tests {
    use crate::testing::{calls, imported_all};
    use serde_json::json;

    #[test]
    fn each_sample_is_a_session_with_its_usage() {
        let one = json!({"id": 1, "epoch": 1, "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": "bash", "arguments": {"cmd": "cat a"}, "type": "function"}]},
            {"role": "tool", "tool_call_id": "c1", "function": "bash", "content": "one\n", "error": null},
            {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        ], "model_usage": {"openai/gpt-5.5": {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107, "input_tokens_cache_read": 40}}});
        let log = json!({"version": 2, "status": "success", "eval": {"task": "t", "model": "openai/gpt-5.5"}, "samples": [one, one]});
        let sessions = imported_all("inspect-ai", &log.to_string());
        assert_eq!(sessions.len(), 2);
        assert_eq!(calls(&sessions[0]), ["bash exec: cat a -> one\n"]);
        let usage = sessions[0].totals[0].usage.unwrap();
        assert_eq!((usage.uncached, usage.cache_read, usage.output), (60, 40, 7));
    }

    #[test]
    fn a_log_without_samples_has_its_usage() {
        let log = json!({"version": 2, "status": "success", "eval": {"task": "t", "model": "m"},
            "stats": {"model_usage": {"m": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}}}});
        let sessions = imported_all("inspect-ai", &log.to_string());
        assert_eq!(sessions[0].totals[0].usage.unwrap().uncached, 9);
        assert!(sessions[0].events.is_empty());
    }
}
