//! Importer for plain conversations: OpenAI chat messages and Anthropic messages, with tool calls or without.
//! Its messages are those of several agents' files, whose importers use [`message`].

use std::io::BufRead;

use serde_json::Value;

use super::detect::Head;
use super::json::{arguments, content, document, milliseconds, token_count};
use super::recorder::Recorder;
use super::records::each_document;
use super::{ImportedSession, Importer, text};
use shell::path::is_absolute;
use workloads::trace::TokenUsage;

/// Conversations of OpenAI's and Anthropic's APIs.
#[derive(Debug)]
pub struct Messages;

impl Importer for Messages {
    fn id(&self) -> &'static str {
        "messages"
    }

    fn reads(&self) -> &'static str {
        "OpenAI chat messages and Anthropic messages: a list, an object with `messages`, or one of either a line"
    }

    fn detects(&self, head: &Head) -> bool {
        ["role", "messages.role", "request.messages.role"].iter().any(|role| {
            let base = role.trim_end_matches("role");
            let is_role = |name: &str| head.is(role, name);
            (is_role("assistant") || is_role("user"))
                && ["content", "tool_calls"].iter().any(|field| head.has(&format!("{base}{field}")))
        })
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let start = recording.fill_buf().map_err(|error| format!("cannot be read: {error}"))?;
        let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
        let is_list = start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
        let mut sessions = Vec::new();
        let mut lines = Recorder::new("unknown agent");
        let mut each = |record: &Value| match record_messages(record) {
            Some(messages) => {
                let mut recorder = Recorder::new("unknown agent");
                about(&mut recorder, record);
                let messages = messages.iter();
                messages.for_each(|one| message(&mut recorder, one));
                answer(&mut recorder, record);
                sessions.push(recorder.finish());
            }
            None => message(&mut lines, record),
        };
        if is_list {
            let (whole, damage) = document(recording)?;
            whole.as_array().into_iter().flatten().for_each(each);
            lines.unreadable(damage);
        } else {
            // One document is one line, or many lines that are not records.
            let lost = each_document(recording, |record| each(&record))?;
            lines.unreadable(lost);
        }
        if !lines.is_empty() {
            sessions.push(lines.finish());
        }
        Ok(sessions)
    }
}

/// The messages of an object that holds a conversation, a request, or a logged call.
fn record_messages(record: &Value) -> Option<&Vec<Value>> {
    let places = [record, &record["request"], &record["request"]["body"], &record["body"]];
    places.into_iter().find_map(|place| place["messages"].as_array())
}

/// Model, system prompt and agent, where a record has them.
fn about(recorder: &mut Recorder, record: &Value) {
    for place in [record, &record["request"], &record["request"]["body"], &record["body"]] {
        recorder.model(text(place, "model").unwrap_or_default());
        recorder.system(&content(&place["system"]));
    }
    for name in ["cwd", "working_directory", "workspace"] {
        recorder.directory(text(record, name).unwrap_or_default());
    }
}

/// The answer that a logged call has beside its request.
fn answer(recorder: &mut Recorder, record: &Value) {
    let response = match &record["response"]["body"] {
        Value::Null => &record["response"],
        body => body,
    };
    let answers = response["choices"].as_array().into_iter().flatten();
    let messages: Vec<&Value> = answers.map(|choice| &choice["message"]).collect();
    let messages = match messages[..] {
        [] if response["content"].is_array() => vec![response],
        _ => messages,
    };
    for one in messages {
        recorder.model(text(response, "model").unwrap_or_default());
        message(recorder, one);
        recorder.usage(usage(&response["usage"]));
    }
}

/// A message in any of the usual forms.
pub(super) fn message(recorder: &mut Recorder, message: &Value) {
    let time = ["timestamp", "created_at", "ts"].into_iter().find_map(|name| message.get(name));
    recorder.time(time.and_then(milliseconds));
    let body = &message["content"];
    match text(message, "role") {
        Some("system" | "developer") => recorder.system(&content(body)),
        Some("user" | "human") => user(recorder, body),
        Some("assistant" | "ai" | "model") => assistant(recorder, message),
        Some("tool" | "function" | "toolResult" | "tool_result") => {
            let id = ["tool_call_id", "toolCallId", "tool_use_id", "name"];
            let id = id.into_iter().find_map(|name| text(message, name));
            recorder.result(id.unwrap_or_default(), content(body), is_failed(message));
        }
        _ => {}
    }
}

fn user(recorder: &mut Recorder, body: &Value) {
    let Some(blocks) = body.as_array() else {
        return recorder.user(&content(body));
    };
    for block in blocks {
        match text(block, "type") {
            Some("tool_result") => {
                let id = text(block, "tool_use_id").unwrap_or_default();
                recorder.result(id, content(&block["content"]), is_failed(block));
            }
            _ => recorder.user(block.as_str().or_else(|| text(block, "text")).unwrap_or_default()),
        }
    }
}

/// An answer of the model: its text, its thinking, its calls and its usage.
pub(super) fn assistant(recorder: &mut Recorder, message: &Value) {
    let extra = &message["extra"]["response"];
    let metadata = &message["response_metadata"];
    for place in [message, extra, metadata] {
        recorder.model(text(place, "model").or_else(|| text(place, "model_name")).unwrap_or_default());
    }
    recorder.answer();
    let thinking = ["reasoning_content", "reasoning", "thinking"];
    let thinking = thinking.into_iter().find_map(|name| text(message, name));
    recorder.said("", thinking.unwrap_or_default());
    let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Some clients state a call among the blocks of the text, too.
    let is_stated =
        |block: &Value| block_id(block).is_some_and(|id| calls.iter().any(|call| text(call, "id") == Some(id)));
    match &message["content"] {
        Value::Array(blocks) => {
            blocks.iter().filter(|block| !is_stated(block)).for_each(|block| answer_block(recorder, block));
        }
        body => recorder.said(&content(body), ""),
    }
    for call in calls {
        let function = match &call["function"] {
            function @ Value::Object(_) => function,
            _ => call,
        };
        let name = text(function, "name").or_else(|| text(call, "function")).or_else(|| text(call, "type"));
        let args = ["arguments", "args", "input"].into_iter().find_map(|name| function.get(name));
        let id = text(call, "id").unwrap_or_default();
        new_call(recorder, id, name.unwrap_or("unknown"), args.map(arguments).unwrap_or_default());
    }
    let old = &message["function_call"];
    if let Some(name) = text(old, "name") {
        new_call(recorder, name, name, arguments(&old["arguments"]));
    }
    let reported = [message, extra, metadata].into_iter().map(|place| usage(&place["usage"]));
    let reported = reported.chain([usage(&message["usage_metadata"])]);
    let known = reported.into_iter().find(|usage| *usage != TokenUsage::default());
    recorder.usage(known.unwrap_or_default());
    recorder.end_answer();
}

/// Adds a call, in the directory that its arguments name.
fn new_call(recorder: &mut Recorder, id: &str, name: &str, args: Value) {
    let dir = ["workdir", "cwd"].into_iter().find_map(|field| text(&args, field)).map(str::to_owned);
    if let Some(dir) = dir.as_deref().filter(|dir| is_absolute(dir)) {
        recorder.directory(dir);
    }
    recorder.new_call(id, name, args, dir.as_deref());
}

/// The identity of a block that is a call.
fn block_id(block: &Value) -> Option<&str> {
    ["id", "toolCallId", "tool_call_id"].into_iter().find_map(|name| text(block, name))
}

fn answer_block(recorder: &mut Recorder, block: &Value) {
    match text(block, "type") {
        Some("tool_use" | "toolCall" | "tool_call" | "tool-call") => {
            let names = ["name", "toolName"];
            let name = names.into_iter().find_map(|name| text(block, name)).unwrap_or("unknown");
            let args = ["input", "arguments", "args"].into_iter().find_map(|name| block.get(name));
            new_call(recorder, block_id(block).unwrap_or_default(), name, args.map(arguments).unwrap_or_default());
        }
        Some("thinking" | "reasoning" | "redacted_thinking") => {
            let thinking = ["thinking", "reasoning", "text"].into_iter().find_map(|name| text(block, name));
            recorder.said("", thinking.unwrap_or_default());
            let signature = ["signature", "thinkingSignature", "data"].into_iter().find_map(|name| text(block, name));
            recorder.signed(signature.unwrap_or_default());
        }
        _ => recorder.said(text(block, "text").unwrap_or_default(), ""),
    }
}

/// Whether a result says that the call failed.
pub(super) fn is_failed(result: &Value) -> bool {
    let is_true = |name: &str| result[name].as_bool() == Some(true);
    let error = &result["error"];
    is_true("is_error")
        || is_true("isError")
        || text(result, "status") == Some("error")
        || error.is_object()
        || error.as_str().is_some_and(|error| !error.is_empty())
}

/// A usage record of any provider.
pub(super) fn usage(usage: &Value) -> TokenUsage {
    let count = |names: &[&str]| {
        let values =
            names.iter().filter_map(|name| usage.pointer(name).filter(|count| count.is_u64())).map(token_count);
        values.into_iter().next()
    };
    let input = count(&["/prompt_tokens", "/input_tokens", "/input", "/inputTokens"]).unwrap_or(0);
    let output = count(&["/completion_tokens", "/output_tokens", "/output", "/outputTokens"]);
    // OpenAI counts cached tokens in the prompt; Anthropic counts them beside it.
    let inside = count(&[
        "/prompt_tokens_details/cached_tokens",
        "/input_tokens_details/cached_tokens",
        "/input_token_details/cache_read",
    ]);
    let beside = count(&["/cache_read_input_tokens", "/cacheRead", "/cacheReadTokens", "/input_tokens_cache_read"]);
    let written =
        count(&["/cache_creation_input_tokens", "/cacheWrite", "/cacheWriteTokens", "/input_tokens_cache_write"]);
    let written = written.unwrap_or(0);
    let hour = count(&["/cache_creation/ephemeral_1h_input_tokens"]).unwrap_or(0).min(written);
    // litellm translates Anthropic's usage into OpenAI's and keeps both.
    let is_openai = usage["prompt_tokens"].is_u64();
    let cached = inside.or(beside).unwrap_or(0);
    let uncached = if inside.is_some() || is_openai {
        input.saturating_sub(cached).saturating_sub(if is_openai { written } else { 0 })
    } else {
        input
    };
    TokenUsage {
        uncached,
        cache_read: cached,
        cache_write_5m: written - hour,
        cache_write_1h: hour,
        output: output.unwrap_or(0),
        reasoning: count(&[
            "/completion_tokens_details/reasoning_tokens",
            "/output_tokens_details/reasoning_tokens",
            "/reasoning_tokens",
        ])
        .unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{calls, coverage, files, imported, imported_all, usages};
    use serde_json::json;

    #[test]
    fn a_file_that_a_command_prints_has_the_printed_text() {
        let mut messages = vec![json!({"role": "user", "content": "Look."})];
        for (id, (command, shown)) in [
            ("cat a.txt", "one\ntwo\n"),
            ("sed -n '2,3p' b.txt", "2\n3\n"),
            ("echo three >> a.txt", ""),
            ("cat a.txt", "one\ntwo\nthree"),
            ("nl -ba b.txt | head -n 3 | tail -n +2", "     2\t2\n     3\tthree\n"),
        ]
        .into_iter()
        .enumerate()
        {
            let function = json!({"name": "bash", "arguments": json!({"command": command}).to_string()});
            let call = json!({"id": format!("c{id}"), "type": "function", "function": function});
            messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
            messages.push(json!({"role": "tool", "tool_call_id": format!("c{id}"), "content": shown}));
        }
        let session = imported("messages", &json!({"messages": messages}).to_string());
        let files = files(&session);
        assert_eq!(files[0], "a.txt Full one\ntwo\n");
        assert!(files[1].starts_with("b.txt Partial ") && files[1].ends_with("\n2\n3"), "{files:?}");
        let coverage = coverage(&session);
        // The last line of b.txt has changed.
        assert_eq!((coverage.replayed, coverage.read_bytes, coverage.read_bytes_equal), (5, 32, 27));
    }

    #[test]
    fn lines_that_were_seen_before_a_change_from_outside_are_those_of_the_first_content() {
        let call = |id: &str, name: &str, args: Value| {
            let function = json!({"name": name, "arguments": args.to_string()});
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]})
        };
        let shows = |id: &str, shown: &str| json!({"role": "tool", "tool_call_id": id, "content": shown});
        let messages = json!([
            {"role": "user", "content": "Look."},
            call("c1", "read_file", json!({"path": "a.txt", "offset": 2, "limit": 1})), shows("c1", "     2\ttwo\n"),
            call("c2", "bash", json!({"command": "git checkout x"})), shows("c2", "Switched to branch 'x'"),
            call("c3", "read_file", json!({"path": "a.txt"})), shows("c3", "     1\tone\n     2\t2\n"),
        ]);
        let session = imported("messages", &messages.to_string());
        let file = files(&session).remove(0);
        assert!(file.starts_with("a.txt Partial ") && file.ends_with("\ntwo"), "{file}");
        let coverage = coverage(&session);
        assert_eq!((coverage.read_bytes, coverage.read_bytes_equal), (9, 3));
    }

    #[test]
    fn a_signature_tells_the_size_of_claudes_thinking() {
        let thinking = |model: &str, block: Value| {
            let answer =
                json!({"role": "assistant", "model": model, "content": [block, {"type": "text", "text": "Done."}]});
            let messages = json!([{"role": "user", "content": "Look."}, answer]);
            let session = imported("messages", &messages.to_string());
            let (trace, _) = crate::testing::traced(&session);
            trace.events.iter().find_map(|event| match event {
                workloads::trace::Event::Api(api) => api.thinking_tok,
                _ => None,
            })
        };
        let signature = "A".repeat(300 + 4000);
        for (model, block, expected) in [
            ("claude-opus-4-6", json!({"type": "thinking", "thinking": "hm", "signature": signature}), 735),
            ("claude-opus-4-6", json!({"type": "thinking", "thinking": "hm", "thinkingSignature": signature}), 735),
            ("claude-opus-4-6", json!({"type": "redacted_thinking", "data": signature}), 735),
            ("gpt-5.5", json!({"type": "thinking", "thinking": "hm", "thinkingSignature": signature}), 1),
        ] {
            assert_eq!(thinking(model, block.clone()), Some(expected), "{model} {block}");
        }
    }

    #[test]
    fn commands_state_the_workspace_if_all_their_paths_are_absolute() {
        let replayed = |commands: [&str; 2]| {
            let mut messages = vec![json!({"role": "user", "content": "Look."})];
            for (id, command) in commands.iter().enumerate() {
                let function = json!({"name": "bash", "arguments": json!({"command": command}).to_string()});
                let call = json!({"id": format!("c{id}"), "type": "function", "function": function});
                messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
                messages.push(json!({"role": "tool", "tool_call_id": format!("c{id}"), "content": "one\n"}));
            }
            coverage(&imported("messages", &json!({"messages": messages}).to_string())).replayed
        };
        assert_eq!(replayed(["cat /srv/app/a.txt", "cat /srv/app/d/b.txt"]), 2);
        // A relative path may be one of these files, or not.
        assert_eq!(replayed(["cat /srv/app/a.txt", "cat b.txt"]), 1);
    }

    #[test]
    fn openai_messages_give_their_calls_even_if_an_identity_is_used_again() {
        let call = |name: &str, args: Value| {
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_0", "type": "function", "function": {"name": name, "arguments": args.to_string()}}]})
        };
        let result = |text: &str| json!({"role": "tool", "tool_call_id": "call_0", "content": text});
        let messages = json!([
            {"role": "system", "content": "You have files."},
            {"role": "user", "content": "Look."},
            call("read_file", json!({"path": "/w/p/a.txt"})), result("one\n"),
            call("write_file", json!({"path": "/w/p/d/b.txt", "content": "two\n"})), result("ok"),
            {"role": "assistant", "content": "Done.", "usage": {"prompt_tokens": 30, "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 10}}, "model": "gpt-5.5"},
        ]);
        let expected = ["read_file read a.txt: whole one\n", "write_file write d/b.txt: written two\n"];
        for text in [
            messages.to_string(),
            json!({"messages": messages}).to_string(),
            serde_json::to_string_pretty(&json!({"messages": messages})).unwrap(),
            messages.as_array().unwrap().iter().map(|m| format!("{m}\n")).collect(),
        ] {
            let session = imported("messages", &text);
            assert_eq!(calls(&session), expected, "{text}");
            assert_eq!(usages(&session), ["gpt-5.5 20+10 4"]);
        }
        let two = format!("{0}\n{0}\n", json!({"messages": messages}));
        assert_eq!(imported_all("messages", &two).len(), 2);
    }

    #[test]
    fn calls_without_an_identity_have_their_results_in_order() {
        let call = |name: &str, path: &str| json!({"type": "function", "function": {"name": name, "arguments": json!({"path": path}).to_string()}});
        let with_id = |mut call: Value| {
            call["id"] = "".into();
            call
        };
        let [a, b] = [call("read_file", "/w/p/a"), call("view", "/w/p/b")];
        let expected = ["read_file read a: whole A\n", "view read b: whole B\n"];
        let named = |id: &str, name: &str, shown: &str| json!({"role": "tool", id: name, "content": shown});
        for (calls_made, results) in [
            (
                json!([with_id(a.clone()), with_id(b.clone())]),
                [named("tool_call_id", "", "A\n"), named("tool_call_id", "", "B\n")],
            ),
            (json!([a, b]), [named("name", "view", "B\n"), named("name", "read_file", "A\n")]),
            (json!([a, b]), [json!({"role": "tool", "content": "A\n"}), json!({"role": "tool", "content": "B\n"})]),
        ] {
            let [one, two] = results;
            let messages = json!([{"role": "user", "content": "Look."},
                {"role": "assistant", "content": null, "tool_calls": calls_made}, one, two]);
            let session = imported("messages", &messages.to_string());
            assert_eq!(calls(&session), expected, "{messages}");
            assert_eq!(session.results_without_call, 0);
        }
    }

    #[test]
    fn a_call_that_is_among_the_blocks_too_is_one_call_in_the_directory_of_its_arguments() {
        let args = json!({"command": "cat a.txt", "workdir": "/w/p"}).to_string();
        let messages = json!([
            {"role": "user", "content": "Look."},
            {"role": "assistant",
                "content": [{"type": "tool_call", "tool_call_id": "c1", "tool_name": "shell", "arguments": args}],
                "tool_calls": [{"id": "c1", "function": {"name": "shell", "arguments": args}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "one\n"},
        ]);
        let session = imported("messages", &messages.to_string());
        assert_eq!(calls(&session), ["shell exec: cat a.txt in /w/p -> one\n"]);
    }

    #[test]
    fn anthropic_messages_give_their_calls() {
        let text = json!({"model": "claude-sonnet-4-6", "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}}],
                "usage": {"input_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 7, "output_tokens": 5}},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a.txt"}]}]},
        ]});
        let session = imported("messages", &text.to_string());
        assert_eq!(calls(&session), ["bash exec: ls -> a.txt"]);
        assert_eq!(usages(&session), ["claude-sonnet-4-6 3+100+7 5"]);
    }

    #[test]
    fn a_usage_of_litellm_counts_the_cache_once() {
        let both = json!({"prompt_tokens": 110, "completion_tokens": 5, "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 7, "prompt_tokens_details": {"cached_tokens": 100}});
        let usage = usage(&both);
        assert_eq!((usage.uncached, usage.cache_read, usage.cache_write_5m), (3, 100, 7));
    }
}
