//! The content for a file in a model's answer.

/// Whether an answer has no content for a file.
pub(super) fn is_blank(answer: &str, is_cut_off: bool) -> bool {
    unfenced(answer, is_cut_off).trim().is_empty()
}

/// Removes a Markdown fence around the whole text, which models often add, and ends the text with a newline. The fence of
/// an answer that is cut off has no end.
pub(super) fn unfenced(text: &str, is_cut_off: bool) -> String {
    let trimmed = text.trim();
    let inner = trimmed.strip_prefix("```").and_then(|rest| {
        let is_opening = is_cut_off && !rest.contains('`');
        let (_language, rest) = rest.split_once('\n').or_else(|| is_opening.then_some((rest, "")))?;
        let inner = match rest.strip_suffix("```") {
            None if is_cut_off => rest,
            inner => inner?,
        };
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
        for (answer, is_cut_off, content) in [
            ("```python\nprint(1)\n```", false, "print(1)\n"),
            ("print(1)", false, "print(1)\n"),
            ("  indented\n", false, "  indented\n"),
            ("```python\nprint(1)\nprin", true, "print(1)\nprin\n"),
            ("```python\nprint(1)\n```", true, "print(1)\n"),
        ] {
            assert_eq!(unfenced(answer, is_cut_off), content, "{answer}");
        }
        let two = "```a\nx\n```\ntext\n```b\ny\n```";
        for (answer, is_cut_off) in [(two, false), (two, true), ("```python\nprint(1)", false)] {
            assert_eq!(unfenced(answer, is_cut_off), format!("{answer}\n"));
        }
        assert!(is_blank("```python\n", true) && !is_blank("```python\nprint(1)", true));
    }
}
