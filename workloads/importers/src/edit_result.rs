//! The changed lines that the result of an edit states: a unified diff, or the numbered lines around the change.

use super::Hunk;
use shell::Replacement;
use shell::file_text::{NumberedLines, numbered};

/// Lines that editors show before a change.
const LINES_BEFORE: usize = 4;

/// The most places of a new text that are looked at.
const PLACES_MAX: usize = 100;

/// The places of an edit that its result states; empty if it does not state them.
pub(super) fn hunks(shown: &str, replacements: &[Replacement]) -> Vec<Hunk> {
    let of_diff = hunks_of_diff(shown);
    if !of_diff.is_empty() {
        return of_diff;
    }
    match (replacements, snippet(shown)) {
        ([one], Some(snippet)) if !one.all => hunk_of_replacement(&snippet, one).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The places of a unified diff of one file; empty if the text is none.
pub(super) fn hunks_of_diff(text: &str) -> Vec<Hunk> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("--- ")).skip(1);
    if !lines.next().is_some_and(|line| line.starts_with("+++ ")) {
        return Vec::new();
    }
    let mut lines = lines.peekable();
    let mut hunks = Vec::new();
    while let Some(line) = lines.next_if(|line| line.starts_with("@@ -")) {
        let Some(((first, mut old), (_, mut new))) = ranges(line) else {
            return Vec::new();
        };
        // Lines are added behind the line that a range without lines names.
        let first = if old == 0 { first.saturating_add(1) } else { first };
        let mut of_hunk = Vec::new();
        while let Some(line) = lines.next_if(|line| old + new > 0 || line.starts_with('\\')) {
            let (removes, adds) = match line.chars().next() {
                Some('-') => (1, 0),
                Some('+') => (0, 1),
                Some('\\') => (0, 0),
                // Some tools cut the blank of an empty line.
                Some(' ') | None => (1, 1),
                Some(_) => return Vec::new(),
            };
            let (Some(rest_old), Some(rest_new)) = (u64::checked_sub(old, removes), u64::checked_sub(new, adds)) else {
                return Vec::new();
            };
            (old, new) = (rest_old, rest_new);
            of_hunk.push(line.to_owned());
        }
        if old + new > 0 {
            return Vec::new();
        }
        hunks.push(Hunk { first, lines: of_hunk });
    }
    hunks
}

/// The ranges of lines in `@@ -1,2 +3,4 @@`: the first line of each, and their count.
fn ranges(line: &str) -> Option<((u64, u64), (u64, u64))> {
    let mut words = line.split(' ').skip(1);
    let mut range = |mark: char| {
        let range = words.next()?.strip_prefix(mark)?;
        let (first, count) = range.split_once(',').unwrap_or((range, "1"));
        Some((u64::from(first.parse::<u32>().ok()?), u64::from(count.parse::<u32>().ok()?)))
    };
    Some((range('-')?, range('+')?))
}

/// The numbered lines around a change, after it.
fn snippet(shown: &str) -> Option<NumberedLines<'_>> {
    let head: String = shown.chars().take(1000).collect();
    let is_snippet = head.contains("a snippet of") && !shown.contains("<response clipped>");
    numbered(shown).filter(|lines| is_snippet && lines.is_certain)
}

/// The lines that a replacement changed, among those that its result shows.
fn hunk_of_replacement(snippet: &NumberedLines<'_>, one: &Replacement) -> Option<Hunk> {
    // Whole lines are replaced as lines.
    let (old, new) = match (one.old.strip_suffix('\n'), one.new.strip_suffix('\n')) {
        (Some(old), Some(new)) => (old, new),
        _ => (one.old.as_str(), one.new.as_str()),
    };
    if new.is_empty() {
        return None;
    }
    let text = snippet.lines.join("\n");
    let line_of = |at: usize| text[..at].matches('\n').count();
    // Places may overlap.
    let next = |from: usize| Some(from + text.get(from..)?.find(new)?);
    let places = std::iter::successors(next(0), |at| next(at + text[*at..].chars().next()?.len_utf8()));
    let mut places: Vec<usize> = places.take(PLACES_MAX).collect();
    // Only a change in the first lines of a file has fewer lines before it.
    if places.len() > 1 && snippet.first > 1 {
        places.retain(|at| line_of(*at) == LINES_BEFORE);
    }
    let [at] = places[..] else {
        return None;
    };
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = at + new.len();
    let end = text[end..].find('\n').map_or(text.len(), |newline| end + newline);
    let before = format!("{}{old}{}", &text[start..at], &text[at + new.len()..end]);
    let first = line_of(start);
    let count = text[start..end].matches('\n').count() + 1;
    let removed = before.split('\n').map(|line| format!("-{line}"));
    Some(hunk(snippet, first, count, removed))
}

/// The lines that were inserted behind the line `after`, from 1. `is_of_lines`: a newline at the end of the text is that of its
/// last line. The result may show that it is, too.
pub(super) fn insertion(shown: &str, after: u64, text: &str, is_of_lines: bool) -> Hunk {
    let whole: Vec<&str> = text.split('\n').collect();
    let lines: Vec<&str> = text.strip_suffix('\n').unwrap_or(text).split('\n').collect();
    if let Some(snippet) = snippet(shown)
        && let Some(first) = (after + 1).checked_sub(snippet.first).and_then(|first| usize::try_from(first).ok())
    {
        let shows = |lines: &[&str]| snippet.lines.get(first..).is_some_and(|rest| rest.starts_with(lines));
        let lines = if is_of_lines || !shows(&whole) { lines.clone() } else { whole.clone() };
        if shows(&lines) {
            return hunk(&snippet, first, lines.len(), std::iter::empty());
        }
    }
    let lines = if is_of_lines { lines } else { whole };
    let lines = lines.into_iter().map(|line| format!("+{line}"));
    Hunk { first: after.saturating_add(1), lines: lines.collect() }
}

/// A hunk that adds `count` shown lines from the index `first` on in place of the removed ones. All other lines are around it.
fn hunk(snippet: &NumberedLines<'_>, first: usize, count: usize, removed: impl Iterator<Item = String>) -> Hunk {
    let marked =
        |mark: char, from: usize, to: usize| snippet.lines[from..to].iter().map(move |line| format!("{mark}{line}"));
    let added = marked('+', first, first + count);
    let lines = marked(' ', 0, first).chain(removed).chain(added);
    Hunk { first: snippet.first, lines: lines.chain(marked(' ', first + count, snippet.lines.len())).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(hunks: Vec<Hunk>) -> String {
        let hunks = hunks.iter().map(|hunk| format!("{}: {}", hunk.first, hunk.lines.join("|")));
        hunks.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_diff_in_a_result_states_the_changed_lines() {
        let diff = "Index: a\n===\n--- a\toriginal\n+++ a\tmodified\n@@ -3,2 +3,3 @@ f()\n x\n-a\n+b\n+--- c\n@@ -9,0 +11 @@\n+z\n\\ No newline at end of file\n";
        let expected = "3:  x|-a|+b|+--- c 10: +z|\\ No newline at end of file";
        assert_eq!(shown(hunks_of_diff(diff)), expected);
        assert_eq!(shown(hunks_of_diff(&format!("```diff\n{diff}```\n\n"))), expected);
        for broken in
            ["@@ -1 +1 @@\n-a\n+b\n", "--- a\n+++ b\n@@ -1,2 +1,2 @@\n-a\n+b\n", "--- a\n+++ b\n@@ -1 +1 @@\nno\n"]
        {
            assert_eq!(hunks_of_diff(broken), [], "{broken}");
        }
    }

    #[test]
    fn numbered_lines_in_a_result_tell_the_place_of_an_edit() {
        let result = |first: usize, lines: &[&str]| {
            let lines = (first..).zip(lines).map(|(number, line)| format!("{number:6}\t{line}\n"));
            let lines: String = lines.collect();
            format!(
                "The file /w/a has been edited. Here's the result of running `cat -n` on a snippet of /w/a:\n{lines}Review the changes."
            )
        };
        let edit = |old: &str, new: &str| [Replacement { old: old.to_owned(), new: new.to_owned(), all: false }];
        let context = ["1", "2", "}", "4", "}", "6"];
        for (text, old, new, expected) in [
            (result(1, &["a", "b = 2", "c"]), "1", "2", "1:  a|-b = 1|+b = 2| c"),
            (result(1, &["a", "x", "y", "c"]), "b\n", "x\ny\n", "1:  a|-b|+x|+y| c"),
            (result(1, &["a", "x", "y"]), "b\nc", "x", "1:  a|-b|-c|+x| y"),
            (result(7, &context), ")", "}", "7:  1| 2| }| 4|-)|+}| 6"),
            (result(1, &context), ")", "}", ""),
            (result(1, &["a"]), "x", "", ""),
            (result(1, &["aaa"]), "x", "aa", ""),
            (result(7, &["1", "2", "3", "4", "}}"]), ")", "}", ""),
            ("     1\ta".to_owned(), "x", "a", ""),
        ] {
            assert_eq!(shown(hunks(&text, &edit(old, new))), expected, "{text}");
        }
        let inserted =
            |text: &str, after, new: &str, is_of_lines| shown(vec![insertion(text, after, new, is_of_lines)]);
        assert_eq!(inserted(&result(1, &["a", "x", "b"]), 1, "x", false), "1:  a|+x| b");
        assert_eq!(inserted(&result(1, &["a", "x", "", "b"]), 1, "x\n", false), "1:  a|+x|+| b");
        assert_eq!(inserted(&result(1, &["a", "x", "b"]), 1, "x\n", false), "1:  a|+x| b");
        assert_eq!(inserted(&result(1, &["a", "x", "", "b"]), 1, "x\n", true), "1:  a|+x| | b");
        assert_eq!(inserted("ok", 0, "x\n", false), "1: +x|+");
        assert_eq!(inserted("ok", 4, "x\n", true), "5: +x");
    }
}
