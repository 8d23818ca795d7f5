//! The parts of a note that answers show.

use std::borrow::Cow;
use std::ops::Range;

use crate::metadata::DEFAULT_IMPORTANCE;
use crate::words::{self, hash, stem};

/// The longest body, in bytes, that recall shows whole; of a longer one it shows a passage.
const WHOLE_MAX: usize = 1200;

/// About how many tokens that is, at four bytes each.
pub(super) const TOKENS_MAX: u64 = 300;

/// The longest sentence or line, in bytes, that is not split although it fills more than half of a passage.
const PART_MAX: usize = 240;

/// The shortest sentence, in bytes, for which a passage is searched when it is nearly full.
const PART_MIN: usize = 16;

/// The longest run of white space, in bytes, that a passage keeps as it is.
const BLANK_MAX: usize = 32;

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

/// The path and the metadata of a note. The text begins with `##` and ends with a newline.
pub(super) fn heading(path: &str, importance: f64, tags: &str, author: &str) -> String {
    let mut metadata = Vec::new();
    // The default says nothing, and a recall of short notes is mostly headings.
    if importance != DEFAULT_IMPORTANCE {
        metadata.push(format!("importance {importance}"));
    }
    for (what, value) in [("tags", tags), ("by", author)] {
        if !value.is_empty() {
            metadata.push(format!("{what} {value}"));
        }
    }
    let mut heading = format!("## {}\n", one_line(path));
    if !metadata.is_empty() {
        heading += &metadata.join(" ");
        heading.push('\n');
    }
    heading
}

/// A body as recall shows it, if it is short enough to be shown whole.
///
/// The text never begins with white space or a slash. The vocabulary then splits before it, so its tokens add
/// to those of the preceding text.
pub(super) fn whole(body: &str) -> Option<String> {
    let body = body.trim();
    (body.len() <= WHOLE_MAX).then(|| shown(body, false))
}

/// A word to look for in a passage.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchWord {
    /// Of its stem.
    pub(super) hash: u32,
    pub(super) weight: f64,
}

/// The most telling sentences and lines of a body, of at most `most` bytes together, or one that is cut.
///
/// The first one is always among them, because it usually says what the note is about. Then come those with the
/// largest sum of weights of their words, then those next to the best.
pub(super) fn telling(body: &str, words: &[SearchWord], most: usize) -> String {
    let body = &*without_long_blanks(body.trim());
    let most = most.min(WHOLE_MAX);
    let parts = parts(body, (most / 2).max(PART_MAX).min(most));
    let scores: Vec<f64> = parts.iter().map(|part| score(&body[part.clone()], words)).collect();
    let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    let best = best.map_or(0, |(at, _)| at);
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|a, b| {
        let is_head = (*b == 0).cmp(&(*a == 0));
        is_head.then(scores[*b].total_cmp(&scores[*a])).then(a.abs_diff(best).cmp(&b.abs_diff(best))).then(a.cmp(b))
    });
    let mut used = 0;
    let mut kept: Vec<usize> = Vec::new();
    for at in order {
        if kept.is_empty() || used + parts[at].len() <= most {
            used += parts[at].len();
            kept.push(at);
        }
        if used + PART_MIN > most {
            break;
        }
    }
    kept.sort_unstable();
    let mut text = String::with_capacity(used + 16);
    let mut end = 0;
    for at in kept {
        if parts[at].start > end {
            text.truncate(text.trim_end().len());
            text += " …";
            // Most parts begin with white space.
            if !body[parts[at].clone()].starts_with(char::is_whitespace) {
                text.push(' ');
            }
        }
        text += &body[parts[at].clone()];
        end = parts[at].end;
    }
    shown(text.trim(), end < body.len())
}

/// A text whose longest runs of white space are one line break or one space, so that they do not fill a passage.
fn without_long_blanks(text: &str) -> Cow<'_, str> {
    let mut short = String::new();
    let mut copied = 0;
    let mut rest = text;
    while let Some(start) = rest.find(char::is_whitespace) {
        let blank = rest[start..].len() - rest[start..].trim_start().len();
        let at = text.len() - rest.len() + start;
        if blank > BLANK_MAX {
            short += &text[copied..at];
            short.push(if text[at..at + blank].contains('\n') { '\n' } else { ' ' });
            copied = at + blank;
        }
        rest = &text[at + blank..];
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    short += &text[copied..];
    Cow::Owned(short)
}

/// The sum of the weights of the words that a text has.
fn score(text: &str, wanted: &[SearchWord]) -> f64 {
    let mut is_found = vec![false; wanted.len()];
    for word in words::words(text) {
        let hash = hash(&stem(&word));
        for (wanted, is_found) in wanted.iter().zip(&mut is_found) {
            *is_found |= wanted.hash == hash;
        }
    }
    let found = wanted.iter().zip(is_found).filter(|(_, is_found)| *is_found);
    found.map(|(wanted, _)| wanted.weight).sum()
}

/// Splits a text into sentences and lines; what is longer than `most` bytes, between words where it has any.
///
/// Each part but the first begins with the white space before it.
fn parts(text: &str, most: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut last_space = 0;
    let (mut is_ended, mut is_blank) = (false, true);
    for (at, c) in text.char_indices() {
        if c.is_whitespace() {
            // A small letter goes on with the sentence, as after `approx.`.
            let goes_on = || {
                let next = text[at..].trim_start().chars().next();
                next.is_some_and(char::is_lowercase)
            };
            let is_end = c == '\n' || is_ended && !goes_on();
            // Blank lines belong to the part after them.
            if is_end && !is_blank {
                parts.push(start..at);
                (start, is_blank) = (at, true);
            }
            (last_space, is_ended) = (at, false);
            continue;
        }
        is_blank = false;
        if at > start && at + c.len_utf8() - start > most {
            let end = if last_space > start { last_space } else { at };
            parts.push(start..end);
            start = end;
        }
        is_ended = match c {
            // A single letter before it is an initial.
            '.' => at > last_space + 2,
            '!' | '?' => true,
            '"' | '\'' | ')' | ']' | '”' | '’' => is_ended,
            _ => false,
        };
    }
    parts.push(start..text.len());
    parts
}

fn shown(text: &str, is_cut_after: bool) -> String {
    let before = if text.starts_with('/') || text.is_empty() { "… " } else { "" };
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

    fn wanted(words: &[&str]) -> Vec<SearchWord> {
        let words = words.iter().map(|word| SearchWord { hash: hash(&stem(word)), weight: 1.0 });
        words.collect()
    }

    #[test]
    fn a_passage_has_the_first_line_and_the_lines_around_the_one_with_most_words() {
        let filler = "nothing of interest here\n".repeat(200);
        let text = format!("Trades of May\n{filler}NVDA fell after RSI above 70\n{filler}");
        let shown = telling(&text, &wanted(&["nvda", "rsi"]), WHOLE_MAX);
        assert!(shown.starts_with("Trades of May …\nnothing") && shown.ends_with(" …\n"), "{shown}");
        assert!(shown.contains("here\nNVDA fell after RSI above 70\nnothing"), "{shown}");
        assert!(shown.len() <= WHOLE_MAX + 16);
        let one_line = format!("{} NVDA {}", "x ".repeat(5000), "y ".repeat(5000));
        let shown = telling(&one_line, &wanted(&["nvda"]), WHOLE_MAX);
        assert!(shown.contains("NVDA"), "{shown}");
    }

    #[test]
    fn a_long_run_of_white_space_does_not_fill_a_passage() {
        for (blank, shown_as) in [(" ".repeat(5000), ' '), (" \n".repeat(2500), '\n')] {
            let text = format!("Trades{blank}NVDA fell{blank}again");
            assert_eq!(telling(&text, &wanted(&["nvda"]), 60), format!("Trades{shown_as}NVDA fell{shown_as}again\n"));
        }
        assert_eq!(without_long_blanks("a\n    b  c"), "a\n    b  c");
    }

    #[test]
    fn a_text_is_split_after_sentences_and_lines_and_not_after_initials() {
        let split = |text: &str, most| -> Vec<String> {
            let parts = parts(text, most).into_iter();
            parts.map(|part| text[part].to_owned()).collect()
        };
        assert_eq!(
            split("By G. Puccini, approx. in 1900. \"Sung?\" Yes.\n\n* one", 99),
            ["By G. Puccini, approx. in 1900.", " \"Sung?\"", " Yes.", "\n\n* one"]
        );
        assert_eq!(split("one two three", 8), ["one two", " three"]);
        assert_eq!(split("éééé", 4), ["éé", "éé"]);
        assert_eq!(split("", 4), [""]);
    }

    #[test]
    fn a_short_passage_keeps_the_sentences_with_the_question_s_words() {
        let text = "Tosca is an opera. It has three acts, e.g. one in a church. \
                    \"Was it a success?\" It was first sung in Rome in 1900. Critics disliked it.";
        assert_eq!(
            telling(text, &wanted(&["rome", "sung"]), 60),
            "Tosca is an opera. … It was first sung in Rome in 1900. …\n"
        );
        assert_eq!(telling(text, &[], 45), "Tosca is an opera. … \"Was it a success?\" …\n");
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
        fn passages_of_anything_can_be_cut(body in "(?s)([a-zé\n ]{0,300}){0,20}", word in "[a-zé]{1,3}", most in 1_usize..2000) {
            let _ = line(&body, std::slice::from_ref(&word));
            let shown = telling(&body, &wanted(&[word.as_str()]), most);
            // Each gap is marked by ` … `, and every part has at least one byte.
            prop_assert!(shown.ends_with('\n') && shown.len() <= 8 * most.max(8), "{shown}");
        }
    }
}
