//! What a model is asked about a history.

use models::Schema;
use serde_json::json;

const RULES: &str = "You are a file system. You are given the log of everything that was done, oldest first. \
A write puts its bytes at an offset of a file and leaves the others as they are; truncate cuts a file off or extends it with zeros; \
rename moves a file; delete removes it. Answer in JSON only.";

/// The newest operations that fit into `limit` bytes, and how many are left out.
pub(super) fn log(lines: &[String], limit: usize) -> (String, usize) {
    let mut bytes = 0;
    let fitting = lines.iter().rev().take_while(|line| {
        bytes += line.len() + 1;
        bytes <= limit
    });
    let kept = fitting.count();
    let left_out = lines.len() - kept;
    let mut text = String::new();
    if left_out > 0 {
        text.push_str(&format!("({left_out} older operations are left out)\n"));
    }
    for line in &lines[left_out..] {
        text.push_str(line);
        text.push('\n');
    }
    (text, left_out)
}

/// What the file at `path` holds.
pub(super) fn file(log: &str, path: &str) -> (&'static str, String, Schema) {
    let question = format!("Log:\n{log}\nWhat does the file {path} hold now?");
    let schema = Schema {
        name: "file",
        schema: json!({
            "type": "object",
            "properties": {"exists": {"type": "boolean"}, "content": {"type": "string"}},
            "required": ["exists", "content"],
            "additionalProperties": false,
        }),
    };
    (RULES, question, schema)
}

/// What names there are in the root directory.
pub(super) fn listing(log: &str) -> (&'static str, String, Schema) {
    let question = format!("Log:\n{log}\nWhich names are in the directory / now?");
    let schema = Schema {
        name: "listing",
        schema: json!({
            "type": "object",
            "properties": {"names": {"type": "array", "maxItems": 200, "items": {"type": "string"}}},
            "required": ["names"],
            "additionalProperties": false,
        }),
    };
    (RULES, question, schema)
}

/// Whether the policy allows an operation.
pub(super) fn policy(policy: &str, operation: &str) -> (&'static str, String, Schema) {
    const JUDGE: &str = "You decide whether a file system may do an operation, by the policy that you are given and by nothing else. \
Answer in JSON only.";
    let question = format!("Policy: {policy}\nOperation: {operation}\nMay it be done, and why?");
    let schema = Schema {
        name: "verdict",
        schema: json!({
            "type": "object",
            "properties": {"allow": {"type": "boolean"}, "reason": {"type": "string", "maxLength": 200}},
            "required": ["allow", "reason"],
            "additionalProperties": false,
        }),
    };
    (JUDGE, question, schema)
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
}
