//! The parts of a note that answers show.

use std::fmt::Write;

use super::date;
use crate::store::Timestamp;

/// The longest body, in bytes, that recall shows whole; of a longer one it shows a passage.
const WHOLE_MAX: usize = 1200;

/// The longest line of a search, in bytes.
const LINE_MAX: usize = 160;

/// Escapes control characters as Rust does, such as `\n`. The result is one line without terminal sequences.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// A name as answers show it: on one line, with `\u{fffd}` for invalid UTF-8.
pub(super) fn shown_name(name: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(name))
}

/// The path and the metadata of a note. The text begins with `#` and ends with a newline.
pub(super) fn heading(
    path: &str,
    changed: Timestamp,
    importance: f64,
    tags: &str,
    author: &str,
) -> String {
    let mut heading = format!(
        "## {}\n{} importance {importance}",
        one_line(path),
        date(changed)
    );
    for (what, value) in [("tags", tags), ("by", author)] {
        if !value.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(heading, " {what} {value}");
        }
    }
    heading.push('\n');
    heading
}

/// A body as recall shows it, if it is short enough to be shown whole.
///
/// The text never begins with white space or a slash. The vocabulary then splits before it, so its tokens add
/// to those of the preceding text.
pub(super) fn whole(body: &str) -> Option<String> {
    let body = body.trim();
    (body.len() <= WHOLE_MAX).then(|| shown(body, false, false))
}

/// The lines of a long body around the one with most of the words, as recall shows them.
pub(super) fn around(body: &str, words: &[String]) -> String {
    let body = body.trim();
    let mut best = (0, 0..body.len().min(1));
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        let lower = line.to_lowercase();
        let found = words.iter().filter(|word| lower.contains(*word)).count();
        if found > best.0 || at == 0 {
            best = (found, at..at + line.len());
        }
        at += line.len();
    }
    let mut range = best.1;
    if range.len() > WHOLE_MAX {
        // One very long line: cut it around its first word.
        let lower = body[range.clone()].to_lowercase();
        let first = words
            .iter()
            .filter_map(|word| lower.find(word.as_str()))
            .min();
        let start = range.start + first.unwrap_or(0).saturating_sub(WHOLE_MAX / 4);
        let start = floor(body, start.min(range.end));
        range = start..floor(body, (start + WHOLE_MAX).min(range.end));
    }
    // Add whole lines after and before it, up to the limit.
    for line in body[range.end..].split_inclusive('\n') {
        if range.len() + line.len() > WHOLE_MAX * 3 / 4 {
            break;
        }
        range.end += line.len();
    }
    for line in body[..range.start].split_inclusive('\n').rev() {
        if range.len() + line.len() > WHOLE_MAX {
            break;
        }
        range.start -= line.len();
    }
    let (is_cut_before, is_cut_after) = (range.start > 0, range.end < body.len());
    shown(body[range].trim(), is_cut_before, is_cut_after)
}

fn shown(text: &str, is_cut_before: bool, is_cut_after: bool) -> String {
    let before = if is_cut_before || text.starts_with('/') || text.is_empty() {
        "… "
    } else {
        ""
    };
    let after = if is_cut_after { " …" } else { "" };
    format!("{before}{text}{after}\n")
}

/// One line of a body: the first with the most of `words`, else the first that is not blank.
pub(super) fn line<'a>(body: &'a str, words: &[String]) -> &'a str {
    let mut best = (0, "");
    for line in body.lines() {
        let lower = line.to_lowercase();
        let found = words.iter().filter(|word| lower.contains(*word)).count();
        if found > best.0 || (best.1.is_empty() && !line.trim().is_empty()) {
            best = (found, line);
        }
        if found == words.len() {
            break;
        }
    }
    let line = best.1.trim();
    &line[..floor(line, LINE_MAX)]
}

/// The character boundary at or before `at`.
fn floor(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_passage_is_around_the_line_with_most_words() {
        let filler = "nothing of interest here\n".repeat(200);
        let text = format!("{filler}NVDA fell after RSI above 70\n{filler}");
        let shown = around(&text, &["nvda".to_owned(), "rsi".to_owned()]);
        assert!(shown.contains("NVDA fell after RSI"), "{shown}");
        assert!(shown.len() < 2 * WHOLE_MAX);
        assert!(shown.starts_with("… ") && shown.ends_with(" …\n"));
        let one_line = format!("{} NVDA {}", "x ".repeat(5000), "y ".repeat(5000));
        let shown = around(&one_line, &["nvda".to_owned()]);
        assert!(shown.contains("NVDA") && shown.len() < 2 * WHOLE_MAX);
    }

    proptest! {
        #[test]
        fn what_is_shown_adds_up(body in "(?s).{0,80}", before in "[a-z#.·/ -]{0,20}") {
            let before = format!("{before}\n");
            let shown = whole(&body).unwrap();
            prop_assert_eq!(
                tokens::count(&format!("{before}{shown}")),
                tokens::count(&before) + tokens::count(&shown)
            );
        }

        #[test]
        fn passages_of_anything_can_be_cut(body in "(?s)([a-zé\n ]{0,300}){0,20}", word in "[a-zé]{1,3}") {
            let words = [word];
            let _ = line(&body, &words);
            prop_assert!(around(&body, &words).ends_with('\n'));
        }
    }
}
