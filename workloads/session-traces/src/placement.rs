//! Where an edit changes a text: by the texts that it replaces, and by the changed lines that the recording states. What the
//! recording states wins.

use std::borrow::Cow;

use super::Hunk;
use super::sketch::{newlines, place_of, same, tabbed};
use shell::Replacement;

/// The ranges that an edit replaces: start, old length, new text. They are ordered and do not overlap.
pub(super) type Places = Vec<(usize, usize, String)>;

/// The most places of one text that are compared with the stated lines.
const COMPARED_MAX: usize = 16;

/// The places of the replacements, if the text after them has the lines that `hunks` state. Without replacements, those of the
/// lines of `hunks`. `takes_newline`: see [`old_text`].
pub(super) fn places(
    before: &str,
    replacements: &[Replacement],
    hunks: &[Hunk],
    takes_newline: bool,
) -> Option<Places> {
    if replacements.is_empty() {
        return places_of_lines(before, hunks, false);
    }
    if hunks.is_empty() {
        return places_of_texts(before, replacements, takes_newline);
    }
    let stated = StatedLines::new(before, hunks)?;
    let is_stated = |places: &Places| stated.are_in(&after(before, places));
    [takes_newline, !takes_newline].into_iter().find_map(|takes_newline| {
        let at_hunks = match replacements {
            [one] if !one.all => places_at(before, one, hunks, takes_newline).into_iter().find(is_stated),
            _ => None,
        };
        // A diff may name an equal line before or behind the text as the changed one.
        at_hunks.or_else(|| places_of_texts(before, replacements, takes_newline).filter(is_stated))
    })
}

/// The places of an edit: those of [`places`], or of the lines that `hunks` state, or, if these are not in the text, of the
/// replacements alone.
pub(super) fn best_places(
    before: &str,
    replacements: &[Replacement],
    hunks: &[Hunk],
    takes_newline: bool,
) -> Option<Places> {
    places(before, replacements, hunks, takes_newline).or_else(|| {
        let stated = StatedLines::new(before, hunks).filter(|_| !hunks.is_empty());
        let tabs = has_tabs(replacements) || stated.as_ref().is_some_and(|stated| stated.show_tabs_as_spaces);
        let of_lines = || places_of_lines(before, hunks, tabs);
        match stated {
            Some(_) => of_lines(),
            None => places_elsewhere(before, replacements, hunks, takes_newline).or_else(of_lines),
        }
    })
}

/// The places of replacements whose text is not where `hunks` say. Of two readings, the one that changes the number of lines
/// as `hunks` do.
pub(super) fn places_elsewhere(
    before: &str,
    replacements: &[Replacement],
    hunks: &[Hunk],
    takes_newline: bool,
) -> Option<Places> {
    let count = |mark: char| hunks.iter().flat_map(|hunk| &hunk.lines).filter(|line| line.starts_with(mark)).count();
    let stated = count('+') as i64 - count('-') as i64;
    let has_stated_lines = |places: &Places| {
        let changes =
            places.iter().map(|(at, old, new)| newlines(new) as i64 - newlines(&before[*at..at + old]) as i64);
        changes.sum::<i64>() == stated
    };
    let readings = [takes_newline, !takes_newline].into_iter();
    let mut readings = readings.filter_map(|takes_newline| places_of_texts(before, replacements, takes_newline));
    readings.find(has_stated_lines).or_else(|| places_of_texts(before, replacements, takes_newline))
}

/// Whether texts of an edit begin lines with tabs.
pub(super) fn has_tabs(replacements: &[Replacement]) -> bool {
    let texts = replacements.iter().flat_map(|each| [&each.old, &each.new]);
    texts.into_iter().any(|text| text.starts_with('\t') || text.contains("\n\t"))
}

/// The text that a replacement removes. Claude Code's Edit (`takes_newline`) removes the newline, too, if nothing replaces the
/// text of a line's end.
fn old_text<'a>(text: &str, replacement: &'a Replacement, takes_newline: bool) -> Cow<'a, str> {
    if takes_newline && replacement.new.is_empty() && !replacement.old.ends_with('\n') {
        let line = format!("{}\n", replacement.old);
        if text.contains(&line) {
            return line.into();
        }
    }
    replacement.old.as_str().into()
}

/// The places of one text that contain the changed lines of a hunk.
fn places_at(before: &str, one: &Replacement, hunks: &[Hunk], takes_newline: bool) -> Vec<Places> {
    let old = old_text(before, one, takes_newline);
    if old.is_empty() {
        return Vec::new();
    }
    let changed: Vec<(u64, u64)> = hunks.iter().map(changed_lines).collect();
    let (mut line, mut counted) = (1, 0);
    let places = before.match_indices(&*old).filter(|(at, old)| {
        line += newlines(&before[counted..*at]) as u64;
        counted = *at;
        let last = line + newlines(old) as u64;
        changed.iter().any(|(from, to)| line <= *from && *to <= last)
    });
    places.take(COMPARED_MAX).map(|(at, old)| vec![(at, old.len(), one.new.clone())]).collect()
}

/// The places of replacements by their texts alone.
fn places_of_texts(before: &str, replacements: &[Replacement], takes_newline: bool) -> Option<Places> {
    if let [one] = replacements {
        let old = old_text(before, one, takes_newline);
        if old.is_empty() {
            return None;
        }
        let all: Vec<usize> = if one.all {
            before.match_indices(&*old).map(|(at, _)| at).collect()
        } else {
            place_of(before, &old, 0).into_iter().collect()
        };
        let places = all.into_iter().map(|at| (at, old.len(), one.new.clone()));
        return Some(places.collect::<Places>()).filter(|places| !places.is_empty());
    }
    // Several edits in one call are applied in turn, and their result becomes one replaced range.
    let after = applied(before, replacements, takes_newline, |_| None)?;
    let start = common(before.chars(), after.chars());
    let end = common(before[start..].chars().rev(), after[start..].chars().rev());
    let new = after[start..after.len() - end].to_owned();
    Some(vec![(start, before.len() - start - end, new)])
}

/// The text after replacements in turn. Each is looked for behind the one before it, as patches are, then in the whole text.
/// `missing` says of the index of one that is not there whether to go on.
pub(super) fn applied(
    before: &str,
    replacements: &[Replacement],
    takes_newline: bool,
    mut missing: impl FnMut(usize) -> Option<()>,
) -> Option<String> {
    let mut after = before.to_owned();
    let mut from = 0;
    for (index, each) in replacements.iter().enumerate() {
        let old = old_text(&after, each, takes_newline);
        let place =
            if old.is_empty() { None } else { place_of(&after, &old, from).or_else(|| place_of(&after, &old, 0)) };
        match place {
            Some(_) if each.all => after = after.replace(&*old, &each.new),
            Some(at) => {
                after.replace_range(at..at + old.len(), &each.new);
                from = at + each.new.len();
            }
            // A text that only says where the next one is.
            None if each.old == each.new => {}
            None => missing(index)?,
        }
    }
    Some(after)
}

/// The text after its places are replaced.
fn after(before: &str, places: &Places) -> String {
    let mut text = String::with_capacity(before.len());
    let mut next = 0;
    for (at, old, new) in places {
        text.push_str(&before[next..*at]);
        text.push_str(new);
        next = at + old;
    }
    text.push_str(&before[next..]);
    text
}

/// The lines of a text after the change that hunks state.
struct StatedLines<'a> {
    lines: Vec<&'a str>,
    /// Whether the hunks show leading tabs of the text as spaces.
    show_tabs_as_spaces: bool,
}

impl<'a> StatedLines<'a> {
    /// `None` if the hunks' lines before the change are not in the text.
    fn new(before: &'a str, hunks: &'a [Hunk]) -> Option<Self> {
        let old: Vec<&str> = before.split('\n').collect();
        let mut lines = Vec::with_capacity(old.len());
        let mut next = 0;
        let mut show_tabs_as_spaces = false;
        let (mut was_unterminated, mut is_unterminated) = (false, false);
        for hunk in hunks {
            let start = usize::try_from(hunk.first.saturating_sub(1)).ok()?;
            lines.extend(old.get(next..start)?);
            next = start;
            let mut last = ' ';
            for line in &hunk.lines {
                let rest = line.get(1..).unwrap_or("");
                let mark = line.chars().next().unwrap_or(' ');
                match mark {
                    '+' => lines.push(rest),
                    '\\' => {
                        was_unterminated |= last != '+';
                        is_unterminated |= last != '-';
                    }
                    _ => {
                        let known = *old.get(next)?;
                        if !same(known, rest) {
                            return None;
                        }
                        show_tabs_as_spaces |= known != rest && known.starts_with('\t');
                        if mark != '-' {
                            lines.push(known);
                        }
                        next += 1;
                    }
                }
                last = mark;
            }
        }
        lines.extend(old.get(next..)?);
        match (was_unterminated, is_unterminated) {
            (false, true) => {
                lines.pop_if(|line| line.is_empty());
            }
            (true, false) => lines.push(""),
            _ => {}
        }
        Some(Self { lines, show_tabs_as_spaces })
    }

    /// Whether a text has these lines.
    fn are_in(&self, text: &str) -> bool {
        let mut stated = self.lines.iter();
        text.split('\n').all(|line| stated.next().is_some_and(|stated| same(line, stated))) && stated.next().is_none()
    }
}

/// The ranges of whole lines that an edit's places replace, by their numbers. `tabs`: leading spaces of new lines stand for tabs.
fn places_of_lines(before: &str, hunks: &[Hunk], tabs: bool) -> Option<Places> {
    let mut starts = vec![0];
    starts.extend(before.match_indices('\n').map(|(at, _)| at + 1));
    let start_of = |line: u64| {
        let line = usize::try_from(line).ok()?;
        let end = (line == starts.len()).then_some(before.len());
        starts.get(line).copied().or(end)
    };
    let mut places: Places = Vec::new();
    for hunk in hunks {
        let mut line = hunk.first.saturating_sub(1);
        let mut open: Option<(usize, String)> = None;
        let mut last = ' ';
        for text in hunk.lines.iter().map(String::as_str).chain([" "]) {
            let rest = text.get(1..).unwrap_or("");
            let mark = text.chars().next().unwrap_or(' ');
            match mark {
                '-' => {
                    open.get_or_insert((start_of(line)?, String::new()));
                    line = line.checked_add(1)?;
                }
                '+' => {
                    let (_, new) = open.get_or_insert((start_of(line)?, String::new()));
                    new.push_str(&if tabs { tabbed(rest) } else { rest.to_owned() });
                    new.push('\n');
                }
                '\\' => {
                    if let Some((_, new)) = open.as_mut().filter(|_| last == '+') {
                        new.pop();
                    }
                }
                _ => {
                    if let Some((start, mut new)) = open.take() {
                        let end = start_of(line)?;
                        // Lines behind the last line, which has no newline.
                        if start == end && line == starts.len() as u64 {
                            new.insert(0, '\n');
                            new.pop();
                        }
                        places.push((start, end - start, new));
                    }
                    line = line.checked_add(1)?;
                }
            }
            last = mark;
        }
    }
    let is_ordered = places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
    (is_ordered && !places.is_empty()).then_some(places)
}

/// The first and the last line that a place changes, from 1. An insertion is between two lines, and changes one of them.
fn changed_lines(hunk: &Hunk) -> (u64, u64) {
    let mut line = hunk.first;
    let mut removed: Option<(u64, u64)> = None;
    let mut inserted = None;
    for text in &hunk.lines {
        match text.chars().next() {
            Some('-') => {
                removed = Some((removed.map_or(line, |(first, _)| first), line));
                line = line.saturating_add(1);
            }
            Some('+') => inserted = inserted.or(Some(line)),
            Some('\\') => {}
            _ => line = line.saturating_add(1),
        }
    }
    let inserted = inserted.map(|line| (line, line.saturating_sub(1)));
    removed.or(inserted).unwrap_or((hunk.first, hunk.first))
}

/// The bytes of the characters with which both begin.
fn common(one: impl Iterator<Item = char>, other: impl Iterator<Item = char>) -> usize {
    let same = one.zip(other).take_while(|(a, b)| a == b);
    same.map(|(a, _)| a.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunk(first: u64, lines: &[&str]) -> Hunk {
        Hunk { first, lines: lines.iter().map(|line| (*line).to_owned()).collect() }
    }

    fn edit(old: &str, new: &str, all: bool) -> Replacement {
        Replacement { old: old.to_owned(), new: new.to_owned(), all }
    }

    #[test]
    fn places_of_edits() {
        let place = |start, old, new: &str| (start, old, new.to_owned());
        let two = [edit("one", "1", false), edit("1 two", "1 2", false)];
        let both = vec![place(0, 1, "bb"), place(2, 1, "bb")];
        for (text, edits, expected) in [
            ("a-a", &[edit("a", "bb", true)][..], Some(both)),
            ("a-a", &[edit("a", "b", false)], Some(vec![place(0, 1, "b")])),
            ("a", &[edit("x", "b", false)], None),
            ("say one two!", &two, Some(vec![place(4, 7, "1 2")])),
            // A text behind another one, and whole lines.
            ("a\nf\na\n", &[edit("f\n", "f\n", false), edit("a\n", "b\n", false)], Some(vec![place(4, 1, "b")])),
            ("xa\na\n", &[edit("a\n", "b\n", false)], Some(vec![place(3, 2, "b\n")])),
        ] {
            assert_eq!(places(text, edits, &[], false), expected, "{text}");
        }
    }

    #[test]
    fn the_lines_that_a_recording_states_win_over_the_texts_of_an_edit() {
        for (text, edits, hunks, expected, agrees) in [
            // Claude Code removes the newline of a line that nothing replaces.
            ("a\nb\nc\n", vec![edit("b", "", false)], vec![hunk(1, &[" a", "-b", " c"])], "a\nc\n", true),
            ("a\nb\nc\n", vec![edit("b", "", false)], vec![hunk(1, &[" a", "-b", "+", " c"])], "a\n\nc\n", true),
            ("xb\nb\n", vec![edit("b", "", true)], vec![hunk(1, &["-xb", "-b", "+x", "\\ No newline"])], "x", true),
            // Of two places, the stated one, though both are in its line.
            ("b b\n", vec![edit("b", "c", false)], vec![hunk(1, &["-b b", "+b c"])], "b c\n", true),
            // A diff names one of three equal lines.
            (
                "a\n}\n}\n",
                vec![edit("a\n", "a\n}\n", false)],
                vec![hunk(1, &[" a", " }", " }", "+}"])],
                "a\n}\n}\n}\n",
                true,
            ),
            // The user or the client changed what the model asked for.
            ("a\nb\n", vec![edit("b", "c", false)], vec![hunk(1, &[" a", "-b", "+C", "+D"])], "a\nC\nD\n", false),
            (
                "say \u{201c}a\u{201d}\n",
                vec![edit("\"a\"", "\"b\"", false)],
                vec![hunk(1, &["-say \u{201c}a\u{201d}", "+say \u{201c}b\u{201d}"])],
                "say \u{201c}b\u{201d}\n",
                false,
            ),
            // Tabs that the recording shows as spaces.
            ("\tb\n", vec![edit("\tb", "\tc", false)], vec![hunk(1, &["-  b", "+  c"])], "\tc\n", true),
            ("\tb\n", vec![edit("b", "x", false)], vec![hunk(1, &["-  b", "+  c"])], "\tc\n", false),
            // Files without a newline at their end.
            (
                "a\nb",
                vec![edit("b", "c", false)],
                vec![hunk(1, &[" a", "-b", "\\ No newline", "+c", "\\ No newline"])],
                "a\nc",
                true,
            ),
            (
                "a\nb",
                vec![edit("x", "y", false)],
                vec![hunk(1, &[" a", "-b", "\\ No newline", "+c", "\\ No newline"])],
                "a\nc",
                false,
            ),
            (
                "a\nb",
                vec![edit("b", "c\n", false)],
                vec![hunk(1, &[" a", "-b", "\\ No newline", "+c"])],
                "a\nc\n",
                true,
            ),
            // Stated lines that the text does not have.
            ("a\nb\nc\n", vec![edit("b", "", false)], vec![hunk(7, &["-b", "+"])], "a\n\nc\n", false),
            ("a\nb\nc\n", vec![edit("b", "", false)], vec![hunk(7, &["-b"])], "a\nc\n", false),
        ] {
            let is_stated = places(text, &edits, &hunks, true).is_some();
            let found = best_places(text, &edits, &hunks, true).unwrap();
            assert_eq!((after(text, &found).as_str(), is_stated), (expected, agrees), "{text:?} {hunks:?}");
        }
    }

    #[test]
    fn lines_are_added_behind_a_last_line_without_a_newline() {
        for (text, first, expected) in
            [("a\nb", 3, "a\nb\nc"), ("a\nb\n", 3, "a\nb\nc\n"), ("a\nb\n", 4, "a\nb\n\nc"), ("", 1, "c\n")]
        {
            let found = places(text, &[], &[hunk(first, &["+c"])], false).unwrap();
            assert_eq!(after(text, &found), expected);
        }
    }
}
