//! The content for a file in a model's answer.

/// Whether an answer has no content for a file.
pub(super) fn is_blank(answer: &str) -> bool {
    unfenced(answer).trim().is_empty()
}

/// Removes a Markdown fence around the whole text, which models often add, and ends the text with a newline.
pub(super) fn unfenced(text: &str) -> String {
    let trimmed = text.trim();
    let inner = trimmed.strip_prefix("```").and_then(|rest| {
        let (_language, rest) = rest.split_once('\n')?;
        let inner = rest.strip_suffix("```")?;
        (!inner.contains("\n```")).then_some(inner)
    });
    let content = inner.unwrap_or(text);
    if content.ends_with('\n') { content.to_owned() } else { format!("{content}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_around_all_of_it_is_taken_off_and_others_stay() {
        assert_eq!(unfenced("```python\nprint(1)\n```"), "print(1)\n");
        assert_eq!(unfenced("print(1)"), "print(1)\n");
        assert_eq!(unfenced("  indented\n"), "  indented\n");
        let two = "```a\nx\n```\ntext\n```b\ny\n```";
        assert_eq!(unfenced(two), format!("{two}\n"));
    }
}
