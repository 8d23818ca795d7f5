//! Sessions of Cline's SDK (`SESSION.messages.json`), one of the formats that [`super::cline`] reads: native calls, whose results
//! are objects with `query`, and `result` or `error`: one, or a list with one for each file or command.

use std::collections::HashMap;

use serde_json::Value;

use super::detect::Head;
use super::json::{milliseconds, token_count};
use super::messages::{assistant, is_failed};
use super::recorder::{Answer, Recorder};
use super::{Hunk, text};
use shell::file_text::numbered;
use workloads::trace::TokenUsage;

/// The most bytes of a line that reads show. They cut a longer one.
const LINE: usize = 2000;

/// Whether a file with this head is of the format.
pub(super) fn detects(head: &Head) -> bool {
    head.has("messages.role") && (head.has("messages.metrics.inputTokens") || head.has("messages.modelInfo.provider"))
}

/// Records the session in a file.
pub(super) fn session(recorder: &mut Recorder, file: &Value) {
    recorder.identity(text(file, "sessionId").unwrap_or_default());
    let system = text(file, "system_prompt").or_else(|| text(file, "systemPrompt")).unwrap_or_default();
    recorder.system(system);
    if let Some((_, rest)) = system.split_once("Working Directory: ") {
        recorder.directory(rest.lines().next().unwrap_or_default().trim());
    }
    let mut calls: HashMap<String, (String, Value)> = HashMap::new();
    for message in file["messages"].as_array().into_iter().flatten() {
        recorder.time(milliseconds(&message["ts"]));
        let blocks = message["content"].as_array().into_iter().flatten();
        if text(message, "role") == Some("assistant") {
            for block in blocks.filter(|block| text(block, "type") == Some("tool_use")) {
                let field = |name| text(block, name).unwrap_or_default().to_owned();
                calls.insert(field("id"), (field("name"), block["input"].clone()));
            }
            recorder.model(text(&message["modelInfo"], "id").unwrap_or_default());
            assistant(recorder, message);
            recorder.usage(usage(&message["metrics"]));
            recorder.cost(&message["metrics"]["cost"]);
            continue;
        }
        recorder.user(message["content"].as_str().unwrap_or_default());
        for block in blocks {
            match text(block, "type") {
                Some("tool_result") => {
                    let id = text(block, "tool_use_id").unwrap_or_default();
                    let (tool, args) = calls.get(id).map_or(("", &Value::Null), |(tool, args)| (tool, args));
                    recorder.answered(id, answer(tool, args, block));
                }
                // A file that the user attaches.
                Some("file") => recorder.user(text(block, "content").unwrap_or_default()),
                _ => recorder.user(text(block, "text").unwrap_or_default()),
            }
        }
    }
}

/// The usage of an answer. The input includes what the cache serves and keeps.
fn usage(metrics: &Value) -> TokenUsage {
    let count = |name: &str| token_count(&metrics[name]);
    let (input, cache_read, written) = (count("inputTokens"), count("cacheReadTokens"), count("cacheWriteTokens"));
    TokenUsage {
        uncached: input.checked_sub(cache_read + written).unwrap_or(input),
        cache_read,
        cache_write_5m: written,
        output: count("outputTokens"),
        ..TokenUsage::default()
    }
}

/// The result of a call.
fn answer(tool: &str, args: &Value, block: &Value) -> Answer {
    let body = &block["content"];
    let parsed: Option<Value> = body.as_str().and_then(|json| serde_json::from_str(json).ok());
    let shown = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
    let results = match parsed.as_ref().unwrap_or(body) {
        Value::Array(results) => results.iter().collect(),
        result => vec![result],
    };
    let mut answer = Answer { shown, failed: is_failed(block), ..Answer::default() };
    if !results.iter().all(|result| result["query"].is_string()) {
        return answer;
    }
    let has_failed = |result: &Value| result["success"] == false;
    let printed = results.iter().map(|result| match (&result["result"], tool) {
        _ if has_failed(result) => printed_error(tool, result),
        (Value::String(text), "read_files") if is_cut(text) => String::new(),
        (Value::String(text), "read_files") if results.len() > 1 => without_numbers(text),
        (Value::String(text), _) => text.clone(),
        // An image: it does not show the file's text.
        _ => String::new(),
    });
    let printed = printed.collect::<Vec<_>>().join("");
    // Of several files, those that were read are known. Of several commands, nothing says which ones had an effect.
    answer.failed |= match tool {
        "read_files" => results.iter().all(|result| has_failed(result)),
        _ => results.iter().any(|result| has_failed(result)),
    };
    if tool == "editor" && !answer.failed {
        answer.hunks = hunk(args, &printed).into_iter().collect();
    }
    answer.printed = Some(printed);
    answer
}

/// What a failed part of a call says, as MCP's file server says it of a file.
fn printed_error(tool: &str, result: &Value) -> String {
    let [query, shown, error] = ["query", "result", "error"].map(|name| text(result, name).unwrap_or_default());
    match tool {
        "read_files" => format!("{query}: {error}\n"),
        _ => format!("{shown}{error}"),
    }
}

/// Whether a line of a read is cut.
fn is_cut(read: &str) -> bool {
    read.lines().any(|line| line.len() > LINE && line.ends_with(" [line truncated]"))
}

/// The lines of a read without their numbers.
fn without_numbers(read: &str) -> String {
    let lines = numbered(read).map(|numbered| numbered.lines);
    lines.unwrap_or_else(|| read.lines().collect()).iter().map(|line| format!("{line}\n")).collect()
}

/// A line of the file before or after an edit: whether it is of the file after it, its number, and its text.
type DiffLine<'a> = (bool, u64, &'a str);

/// The changed lines of an edit, if the diff in its result tells them.
fn hunk(args: &Value, shown: &str) -> Option<Hunk> {
    let (old, new) = (text(args, "old_text")?, text(args, "new_text")?);
    let (_, diff) = shown.split_once("\n```diff\n")?;
    let mut lines = diff.split('\n').peekable();
    let mut stated: Vec<DiffLine<'_>> = Vec::new();
    while let Some(line) = lines.next_if(|line| line.starts_with(['-', '+'])) {
        let (number, text) = line[1..].split_once(": ")?;
        stated.push((line.starts_with('+'), number.parse().ok()?, text));
    }
    let is_whole = lines.next() == Some("```");
    let first = stated.iter().map(|(_, number, _)| *number).min()?;
    let removed = stated.iter().take_while(|(is_new, ..)| !is_new).count();
    let (before, after) = stated.split_at(removed);
    let follow = |lines: &[DiffLine<'_>], is_new: bool| {
        (first..).zip(lines).all(|(number, line)| (line.0, line.1) == (is_new, number))
    };
    if is_whole && follow(before, false) && follow(after, true) {
        return Some(changed(first, before.iter().map(|line| line.2), after.iter().map(|line| line.2)));
    }
    hunk_of_texts(&old.split('\n').collect::<Vec<_>>(), &new.split('\n').collect::<Vec<_>>(), first, &stated)
}

fn changed<'a>(first: u64, before: impl Iterator<Item = &'a str>, after: impl Iterator<Item = &'a str>) -> Hunk {
    let lines = before.map(|line| format!("-{line}")).chain(after.map(|line| format!("+{line}")));
    Hunk { first, lines: lines.collect() }
}

/// The changed lines, of a diff that compares lines of the same number, as older versions do: lines behind the edit are in it, too,
/// and may cut it off. `first` is the number of the first line that differs.
fn hunk_of_texts<'a>(old: &[&'a str], new: &[&'a str], first: u64, stated: &[DiffLine<'a>]) -> Option<Hunk> {
    let shorter = old.len().min(new.len());
    let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    // Behind the last line of the shorter text, the file may go on in the same line.
    let least = if same == shorter { same.saturating_sub(1) } else { same };
    let mut hunks = (least..=same).rev().filter_map(|same| {
        let same_at_end = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
        let same_at_end = same_at_end.min(shorter - same.max(1));
        let begin = first.checked_sub(same as u64)?;
        let lines = |text: &[&'a str], is_new: bool| {
            whole_lines(text, same, text.len() - same_at_end, begin, |number| {
                stated.iter().find(|line| (line.0, line.1) == (is_new, number)).map(|line| line.2)
            })
        };
        Some(changed(first, lines(old, false)?.into_iter(), lines(new, true)?.into_iter()))
    });
    let found = hunks.next()?;
    // Another place would be as certain.
    hunks.all(|other| other == found).then_some(found)
}

/// The lines of the file in which the lines of a text from the index `from` to `end` are. The text begins in the line `begin`. Its
/// first and last line may be parts of their lines: these are known if the diff shows them. `None` if it shows other lines.
fn whole_lines<'a>(
    text: &[&'a str],
    from: usize,
    end: usize,
    begin: u64,
    shown: impl Fn(u64) -> Option<&'a str>,
) -> Option<Vec<&'a str>> {
    let mut lines = Vec::new();
    for (index, part) in text.iter().enumerate().skip(from) {
        let line = shown(begin + index as u64);
        let (is_first, is_last) = (index == 0, index + 1 == text.len());
        let fits = |line: &str| match (is_first, is_last) {
            (false, false) => line == *part,
            (true, false) => line.ends_with(part),
            (false, true) => line.starts_with(part),
            (true, true) => line.contains(part),
        };
        if line.is_some_and(|line| !fits(line)) {
            return None;
        }
        if index < end {
            lines.push(if is_first || is_last { line? } else { *part });
        }
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{calls, coverage, files, imported, stated, usages};
    use serde_json::json;

    #[test]
    fn a_session_of_the_sdk_gives_its_calls_and_usage() {
        let session = imported("cline", include_str!("fixtures/cline-sdk.json"));
        assert_eq!(
            calls(&session),
            [
                "read_files read birds.txt: whole owl\nwren\n",
                "read_files read trees.txt: elm\nfir of 4 lines",
                "read_files exec: cat /home/ann/project/birds.txt && sed -n 4,4p /home/ann/project/trees.txt in /home/ann/project -> owl\nwren\n/home/ann/project/nests.txt: Error reading file: ENOENT: no such file\nfir\n",
                "editor edit birds.txt: 1 replacements",
                "editor write new.txt: written one\n",
                "editor edit new.txt: line 1: +zero",
                "run_commands exec: cat new.txt in /home/ann/project -> zero\none\n",
                "run_commands exec: cat new.txt && cat birds.txt in /home/ann/project -> zero\none\nowl\nrobin\n",
                "run_commands exec",
                "search_codebase search .: lists trees.txt",
                "editor edit birds.txt (NoMatch)",
                "fetch_web_content net",
            ]
        );
        assert_eq!(usages(&session), vec!["anthropic/claude-opus-4.8 100+700+200 20"; 6]);
        assert_eq!((stated(&session), session.identity.as_str()), (Some(2.75), "s1"));
        let coverage = coverage(&session);
        assert_eq!((coverage.recorded, coverage.replayed), (12, 10), "{:?}", coverage.causes);
    }

    #[test]
    fn an_edit_is_at_the_lines_that_its_diff_states() {
        let edit = |old: &str, new: &str, diff: &str| {
            let shown = format!("Edited /w/a.txt\n```diff\n{diff}```");
            let hunk = hunk(&json!({"path": "/w/a.txt", "old_text": old, "new_text": new}), &shown);
            hunk.map(|hunk| format!("{}: {}", hunk.first, hunk.lines.join("|")))
        };
        for (old, new, diff, expected) in [
            // The lines that differ, in one place.
            ("b", "B", "-2: abc\n+2: aBc\n", Some("2: -abc|+aBc")),
            ("c", "x\nc", "+3: x\n", Some("3: +x")),
            ("x\n", "", "-3: x\n", Some("3: -x")),
            // Lines of the same number: the line behind the edit is in the diff.
            ("a\nb", "a\nx\nb", "-8: b\n+8: x\n-9: c\n+9: b\n... diff truncated ...\n", Some("8: +x")),
            ("a\nb\nc\nd", "a\nx\nc\ny", "-5: b\n+5: x\n-7: de\n+7: ye\n", Some("5: -b|-c|-de|+x|+c|+ye")),
            ("a\nb\nc\nd", "a\nx\ny\nd", "-5: b\n+5: x\n-6: c\n+6: y\n", Some("5: -b|-c|+x|+y")),
            ("x\n", "", "-3: x\n+3: y\n-4: y\n+4: z\n... diff truncated ...\n", Some("3: -x|-y|+y")),
            // The line in which the text ends is not shown, or is another one.
            ("a\nb", "a\nx\nb1\nb2", "-8: b3\n+8: x\n... diff truncated ...\n", None),
            ("a\nb", "a\nx\nb", "-8: c\n+8: x\n-9: d\n+9: e\n", None),
            ("b", "B", "no diff\n", None),
        ] {
            assert_eq!(edit(old, new, diff).as_deref(), expected, "{old:?} {new:?} {diff}");
        }
    }

    #[test]
    fn a_file_that_no_read_showed_is_known_where_an_edit_changed_it() {
        let call = json!({"type": "tool_use", "id": "t1", "name": "editor", "input": {"path": "/w/a.txt", "old_text": "b", "new_text": "B"}});
        let result = json!({"query": "edit:/w/a.txt", "result": "Edited /w/a.txt\n```diff\n-2: abc\n+2: aBc\n```", "success": true});
        let file = json!({"sessionId": "s", "messages": [
            {"role": "user", "content": "Change it."},
            {"role": "assistant", "content": [call], "metrics": {"inputTokens": 9, "outputTokens": 1}},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": result.to_string()}]},
        ]});
        let session = imported("cline", &file.to_string());
        assert_eq!(coverage(&session).replayed, 1);
        assert_eq!(files(&session)[0].lines().nth(1), Some("abc"));
    }

    #[test]
    fn a_read_that_cuts_lines_shows_no_content() {
        let block = |shown: &str| json!({"type": "tool_result", "content": [{"query": "/w/a", "result": shown, "success": true}]});
        let printed = |shown: &str| answer("read_files", &Value::Null, &block(shown)).printed;
        let cut = format!("1 | {} [line truncated]", "x".repeat(LINE));
        assert_eq!(printed(&cut).as_deref(), Some(""));
        assert_eq!(printed("1 | x [line truncated]").as_deref(), Some("1 | x [line truncated]"));
        let images = json!({"type": "tool_result", "content": [{"query": "/w/a.png", "result": [{"type": "image"}], "success": true}]});
        assert_eq!(answer("read_files", &Value::Null, &images).printed.as_deref(), Some(""));
    }
}
