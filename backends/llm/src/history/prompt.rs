//! Prompts of a history, and the schemas of their answers.

use std::borrow::Cow;

use models::Schema;
use serde_json::json;

const RULES: &str = "You are a file system. You are given the log of everything that was done, oldest first. \
A write puts its bytes at an offset of a file and leaves the others as they are; truncate cuts a file off or extends it with zeros; \
rename moves a file; delete removes it. Answer in JSON only.";

/// Bytes of an operation that a prompt shows before it cuts the operation.
const CUT_TO: usize = 160;

/// The newest operations that fit into `limit` bytes, and how many are left out or cut. An operation that
/// does not fit and takes more than half of the limit is cut, so that older ones fit.
pub(super) fn log(lines: &[String], limit: usize) -> (String, usize) {
    let mut room = limit;
    let mut shown: Vec<Cow<'_, str>> = Vec::new();
    let mut cut = 0;
    for line in lines.iter().rev() {
        let whole = line.len() + 1;
        let line = if whole > room && whole > limit / 2 {
            let ends = line.char_indices().map(|(at, _)| at);
            let end = ends.take_while(|at| *at <= CUT_TO).last().unwrap_or(0);
            cut += 1;
            Cow::Owned(format!("{}… ({} bytes of this operation are left out)", &line[..end], line.len() - end))
        } else {
            Cow::Borrowed(line.as_str())
        };
        let Some(rest) = room.checked_sub(line.len() + 1) else {
            break;
        };
        room = rest;
        shown.push(line);
    }
    let left_out = lines.len() - shown.len();
    let mut text = String::new();
    if left_out > 0 {
        text.push_str(&format!("({left_out} older operations are left out)\n"));
    }
    for line in shown.iter().rev() {
        text.push_str(line);
        text.push('\n');
    }
    (text, left_out + cut)
}

/// A request to the model: instructions, question, and the schema of the answer.
pub(super) type Prompt = (&'static str, String, Schema);

/// The schema of an object with these fields, which are all required.
fn schema(name: &'static str, properties: serde_json::Value) -> Schema {
    let fields = properties.as_object().into_iter().flatten();
    let required: Vec<&String> = fields.map(|(name, _)| name).collect();
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    Schema { name, schema }
}

/// The prompt for the content of the file at `path`.
pub(super) fn file(log: &str, path: &str) -> Prompt {
    let question = format!("Log:\n{log}\nWhat does the file {path} hold now?");
    let fields = json!({"exists": {"type": "boolean"}, "content": {"type": "string"}});
    (RULES, question, schema("file", fields))
}

/// The prompt for the names in the root directory.
pub(super) fn listing(log: &str) -> Prompt {
    let question = format!("Log:\n{log}\nWhich names are in the directory / now?");
    let names = json!({"type": "array", "maxItems": 200, "items": {"type": "string"}});
    (RULES, question, schema("listing", json!({"names": names})))
}

/// The prompt for a decision of the policy on an operation.
pub(super) fn policy(policy: &str, operation: &str) -> Prompt {
    const JUDGE: &str = "You decide whether a file system may do an operation, by the policy that you are given and by nothing else. \
Answer in JSON only.";
    let question = format!("Policy: {policy}\nOperation: {operation}\nMay it be done, and why?");
    let reason = json!({"type": "string", "maxLength": 200});
    let fields = json!({"allow": {"type": "boolean"}, "reason": reason});
    (JUDGE, question, schema("verdict", fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_operations_are_left_out_and_it_is_said() {
        let lines: Vec<String> = (0..10).map(|at| format!("line {at}")).collect();
        assert_eq!(log(&lines, 1000).1, 0);
        let (text, left_out) = log(&lines, 15);
        assert_eq!(left_out, 8);
        assert_eq!(text, "(8 older operations are left out)\nline 8\nline 9\n");
    }

    #[test]
    fn a_long_write_does_not_hide_what_was_before_it() {
        let long = format!("write /big at 0: \"{}\"", "é".repeat(5000));
        let lines = ["create /a", "write /a at 0: \"x\"", &long, "create /b"].map(str::to_owned);
        let (text, left_out) = log(&lines, 1000);
        assert_eq!(left_out, 1, "{text}");
        for part in ["write /a at 0: \"x\"\n", "write /big at 0: \"éé", "bytes of this operation", "create /b\n"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.len() <= 1000 && !text.contains("older operations"), "{text}");
        assert_eq!(log(&lines, 20_000).0.lines().count(), 4);
        assert!(log(&lines, 20_000).0.contains(&long), "what fits is shown as a whole");
        // Two long operations leave room for a short one between them.
        let twice = [long.clone(), "create /c".to_owned(), long.clone()];
        let (text, left_out) = log(&twice, 1000);
        assert!(left_out == 2 && text.contains("create /c\n"), "{text}");
    }
}
