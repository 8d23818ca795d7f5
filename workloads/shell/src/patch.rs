//! The patches of `apply_patch`: `*** Begin Patch`, then files to add, delete, update and move. Lines are found as Codex finds
//! them.

use std::borrow::Cow;

use memchr::{memchr_iter, memmem};

use super::steps::{PatchChunk, ShellStep};

const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const UPDATE: &str = "*** Update File: ";
const MOVE: &str = "*** Move to: ";
const END: &str = "*** End Patch";
const END_OF_FILE: &str = "*** End of File";

/// The operations of a patch. `place` makes a path of it absolute.
pub(super) fn steps(patch: &str, place: impl Fn(&str) -> String) -> Result<Vec<ShellStep>, &'static str> {
    const BROKEN: &str = "a patch that cannot be read";
    let mut lines = without_here_document(patch).lines().peekable();
    if lines.next().map(str::trim) != Some("*** Begin Patch") {
        return Err(BROKEN);
    }
    lines.next_if(|line| line.trim().starts_with("*** Environment ID:"));
    let is_header = |line: &str| {
        let line = line.trim();
        line == END || [ADD, DELETE, UPDATE].iter().any(|header| line.starts_with(header))
    };
    let mut steps = Vec::new();
    loop {
        let line = lines.next().ok_or(BROKEN)?.trim();
        if line == END {
            return Ok(steps);
        }
        if let Some(path) = line.strip_prefix(ADD) {
            let mut content = String::new();
            while let Some(added) = lines.next_if(|line| !is_header(line)) {
                content.push_str(added.strip_prefix('+').ok_or(BROKEN)?);
                content.push('\n');
            }
            let path = place(path.trim());
            steps.push(ShellStep::Write { path, content });
        } else if let Some(path) = line.strip_prefix(DELETE) {
            let path = place(path.trim());
            steps.push(ShellStep::Remove { path, force: false });
        } else if let Some(path) = line.strip_prefix(UPDATE) {
            let path = place(path.trim());
            let moved = lines.next_if(|line| line.trim().starts_with(MOVE));
            let moved = moved.and_then(|line| line.trim().strip_prefix(MOVE));
            let mut chunks: Vec<PatchChunk> = Vec::new();
            while let Some(line) = lines.next_if(|line| !is_header(line)) {
                if line.trim() == END_OF_FILE {
                    chunks.last_mut().ok_or(BROKEN)?.is_at_end = true;
                    continue;
                }
                if let Some(anchor) = line.trim().strip_prefix("@@") {
                    let anchor = anchor.strip_prefix(' ').filter(|anchor| !anchor.starts_with('-'));
                    chunks.push(PatchChunk { anchor: anchor.map(str::to_owned), ..PatchChunk::default() });
                    continue;
                }
                // The lines of the first chunk need no mark before them, and those behind an end of the file are others.
                if chunks.last().is_none_or(|chunk| chunk.is_at_end) {
                    chunks.push(PatchChunk::default());
                }
                let chunk = chunks.last_mut().ok_or(BROKEN)?;
                let (kind, text) = match line.chars().next() {
                    None => (' ', ""),
                    Some(kind @ (' ' | '+' | '-')) => (kind, &line[1..]),
                    Some(_) => return Err(BROKEN),
                };
                if kind != '+' {
                    chunk.old.push(text.to_owned());
                }
                if kind != '-' {
                    chunk.new.push(text.to_owned());
                }
            }
            if !chunks.is_empty() {
                let path = path.clone();
                steps.push(ShellStep::Patch { path, chunks });
            }
            if let Some(to) = moved {
                let to = place(to.trim());
                steps.push(ShellStep::Move { from: path, to });
            }
        } else if !line.is_empty() {
            return Err(BROKEN);
        }
    }
}

/// The patch in a here-document that no shell has read.
fn without_here_document(patch: &str) -> &str {
    let patch = patch.trim();
    let Some((mark, rest)) = patch.strip_prefix("<<").and_then(|rest| rest.split_once('\n')) else {
        return patch;
    };
    let mark = mark.trim().trim_matches(['\'', '"']);
    rest.strip_suffix(mark).unwrap_or(rest).trim()
}

/// The places of a file that a patch changes: start, old length, new text. They are ordered and do not overlap.
pub struct PatchedPlaces {
    /// The places of the chunks that are in the text.
    pub places: Vec<(usize, usize, String)>,
    /// Whether all chunks are.
    pub is_whole: bool,
}

/// Where a patch changes a text. If that is the whole file (`is_exact`), the end of the file follows Codex's rule, too: it has
/// one newline there, and an empty last line is lost.
pub fn places(text: &str, chunks: &[PatchChunk], is_exact: bool) -> PatchedPlaces {
    let mut lines: Vec<&str> = text.split('\n').collect();
    lines.pop_if(|last| last.is_empty());
    let mut starts: Vec<usize> = vec![0];
    starts.extend(memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1));
    let mut searched = SearchedLines { text, lines: &lines, starts: &starts, readings: Default::default() };
    let mut changes: Vec<(usize, usize, String)> = Vec::new();
    let mut is_whole = true;
    let mut from = 0;
    for chunk in chunks {
        if let Some(anchor) = &chunk.anchor {
            let plain = anchor.strip_suffix(" @@").unwrap_or(anchor);
            let found = [anchor.as_str(), plain].into_iter().find_map(|anchor| searched.find(&[anchor], from));
            from = found.map_or(from, |at| at + 1);
        }
        let mut old: Vec<&str> = chunk.old.iter().map(String::as_str).collect();
        let mut new: &[String] = &chunk.new;
        if old.is_empty() {
            // An empty last line stays the last one.
            let end = lines.len() - usize::from(lines.last().is_some_and(|last| last.is_empty()));
            if !new.is_empty() {
                changes.push((end, 0, joined(new)));
            }
            continue;
        }
        let mut found = searched.find_chunk(&old, from, chunk.is_at_end);
        // The last empty line of a chunk may stand for the newline at the end of the file.
        if found.is_none() && old.last() == Some(&"") {
            old.pop();
            new = new.strip_suffix(&[String::new()]).unwrap_or(new);
            found = searched.find_chunk(&old, from, chunk.is_at_end);
        }
        match found {
            Some(at) => {
                from = at + old.len();
                changes.push((at, old.len(), joined(new)));
            }
            None => is_whole = false,
        }
    }
    changes.sort_by_key(|(at, ..)| *at);
    let count = changes.len();
    let mut end = 0;
    changes.retain(|(at, old, _)| {
        let follows = *at >= end;
        end = end.max(at + old);
        follows
    });
    is_whole &= changes.len() == count;
    let start_of = |line: usize| if line >= lines.len() { text.len() } else { starts[line] };
    let places = changes.into_iter().map(|(at, old, new)| (start_of(at), start_of(at + old) - start_of(at), new));
    let mut places: Vec<_> = places.collect();
    end_as_codex_does(text, &mut places, is_exact);
    PatchedPlaces { places, is_whole }
}

/// Gives the end of a changed file one newline.
fn end_as_codex_does(text: &str, places: &mut Vec<(usize, usize, String)>, is_exact: bool) {
    let is_unterminated = !text.is_empty() && !text.ends_with('\n');
    let Some((at, old, new)) = places.last_mut() else {
        return;
    };
    let reaches_end = *at + *old == text.len();
    if is_unterminated && reaches_end && *old == 0 {
        new.insert(0, '\n');
    }
    if !is_exact {
        return;
    }
    if is_unterminated && !reaches_end {
        places.push((text.len(), 0, "\n".to_owned()));
    } else if reaches_end && new.is_empty() {
        // The last line is one before the removed ones.
        let before = &text[..*at];
        if before.ends_with("\n\n") || before == "\n" {
            (*at, *old) = (*at - 1, *old + 1);
        }
    } else if reaches_end {
        let begins = *at == 0 || text[..*at].ends_with('\n');
        if new.ends_with("\n\n") || begins && new == "\n" {
            new.pop();
        }
    } else if text.ends_with("\n\n") {
        places.push((text.len() - 1, 1, String::new()));
    }
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The readings of lines in which they are looked for if they are not equal, each less exact than the one before.
const READINGS: [fn(&str) -> Cow<'_, str>; 3] =
    [|line| line.trim_end().into(), |line| line.trim().into(), |line| plain(line).into()];

/// The lines of a text in which others are looked for.
struct SearchedLines<'a> {
    text: &'a str,
    /// Its lines, without an empty one at the end.
    lines: &'a [&'a str],
    /// Where each line begins.
    starts: &'a [usize],
    /// For each less exact reading, all lines in one text, and where each begins.
    readings: [Option<(String, Vec<usize>)>; 3],
}

impl SearchedLines<'_> {
    /// The first of `lines`, which at the end of the file are its last ones if these are the same.
    fn find_chunk(&mut self, lines: &[&str], from: usize, is_at_end: bool) -> Option<usize> {
        let last = self.lines.len().checked_sub(lines.len()).filter(|last| is_at_end && *last >= from);
        last.and_then(|last| self.find(lines, last)).or_else(|| self.find(lines, from)).or_else(|| self.find(lines, 0))
    }

    /// The number of the first line of a run from the line `from` on, from 0.
    fn find(&mut self, lines: &[&str], from: usize) -> Option<usize> {
        if let Some(found) = self.find_equal(lines, from) {
            return Some(found);
        }
        READINGS.iter().zip(&mut self.readings).find_map(|(reading, known)| {
            let (text, starts) = known.get_or_insert_with(|| {
                // Each line has a newline on both sides.
                let mut text = "\n".to_owned();
                let mut starts = Vec::with_capacity(self.lines.len());
                for line in self.lines {
                    starts.push(text.len() - 1);
                    text.push_str(&reading(line));
                    text.push('\n');
                }
                (text, starts)
            });
            let mut looked_for = "\n".to_owned();
            for line in lines {
                looked_for.push_str(&reading(line));
                looked_for.push('\n');
            }
            let start = *starts.get(from)?;
            let at = start + text[start..].find(&looked_for)?;
            starts.binary_search(&at).ok()
        })
    }

    /// The same, of lines that are equal. Most are: the text is searched as it is.
    fn find_equal(&self, lines: &[&str], from: usize) -> Option<usize> {
        let (start, last) = (*self.starts.get(from)?, self.lines.len().checked_sub(1)?);
        if from > last {
            return None;
        }
        let rest = &self.text[start..self.starts[last] + self.lines[last].len()];
        let looked_for = format!("\n{}\n", lines.join("\n"));
        let (before, behind) = (&looked_for[1..], &looked_for[..looked_for.len() - 1]);
        let is_all = rest == &before[..before.len() - 1];
        if lines.is_empty() || is_all || rest.starts_with(before) {
            return Some(from);
        }
        let inside = memmem::find(rest.as_bytes(), looked_for.as_bytes());
        let at = inside.or_else(|| rest.ends_with(behind).then(|| rest.len() - behind.len()))?;
        self.starts.binary_search(&(start + at + 1)).ok()
    }
}

/// A line without blanks around it, and with plain dashes, quotes and blanks.
fn plain(line: &str) -> String {
    let plain = |c: char| match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    };
    line.trim().chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(text: &str, body: &str) -> Option<String> {
        let patch = format!("*** Begin Patch\n*** Update File: a\n{body}\n*** End Patch\n");
        let steps = steps(&patch, str::to_owned).unwrap();
        let [ShellStep::Patch { chunks, .. }] = &steps[..] else {
            panic!("{steps:?}");
        };
        let PatchedPlaces { places, is_whole } = places(text, chunks, true);
        let mut after = text.to_owned();
        for (at, old, new) in places.into_iter().rev() {
            after.replace_range(at..at + old, &new);
        }
        is_whole.then_some(after)
    }

    #[test]
    fn lines_are_found_and_replaced_as_codex_does() {
        for (text, body, expected) in [
            ("x\na\nx\n", "@@\n-x\n+END\n*** End of File", "x\na\nEND\n"),
            ("x\na\n", "@@\n-x\n+END\n*** End of File", "END\na\n"),
            ("a\n", "@@\n+b", "a\nb\n"),
            ("class A:\n  x\nclass B:\n", "@@ class A:\n+  w", "class A:\n  x\nclass B:\n  w\n"),
            ("b\nf\nb\n", "@@ f\n-b\n+c", "b\nf\nc\n"),
            ("b\nf\nb\n", "@@ f @@\n-b\n+c", "b\nf\nc\n"),
            ("b\nf\ng\nb\n", "@@ f\n@@ g\n-b\n+c", "b\nf\ng\nc\n"),
            ("d\na\n", "@@\n-a\n+A\n@@\n-d\n+D", "D\nA\n"),
            ("a\n", "-a\n+b", "b\n"),
            // Blanks and dashes: the patch's lines take the place of those of the file.
            ("a  \n\tb\n", "@@\n a\n-b\n+c", "a\nc\n"),
            ("a \u{2013} b\u{a0}c\n", "@@\n-a - b c\n+x", "x\n"),
            ("a\r\nb\r\n", "@@\n-a\n+x", "x\nb\r\n"),
            ("  a\na\n", "@@\n-a\n+x", "  a\nx\n"),
            // The end of the file.
            ("a\nb", "@@\n-a\n+x", "x\nb\n"),
            ("a\nb", "@@\n-b\n+x", "a\nx\n"),
            ("a", "@@\n+b", "a\nb\n"),
            ("", "@@\n+b", "b\n"),
            ("a\nb\n", "@@\n a\n-b\n-\n+x\n+", "a\nx\n"),
            ("a\n\n", "@@\n-a\n+x", "x\n"),
            ("a\n\n", "@@\n+b", "a\nb\n"),
            ("a\n\nb\n", "@@\n-b", "a\n"),
            ("a\nb\n", "@@\n-b\n+c\n+", "a\nc\n"),
        ] {
            assert_eq!(patched(text, body).as_deref(), Some(expected), "{text:?} {body}");
        }
        assert_eq!(patched("a\n", "@@\n-b\n+c"), None);
        assert_eq!(patched("a\nb\n", "@@\n a\n-b\n+c\n@@\n-a\n+d"), None);
    }

    #[test]
    fn marks_may_have_blanks_and_a_here_document_around_them() {
        let body = "*** Begin Patch\n  *** Environment ID: x\n  *** Update File: a\n  *** Move to: b\n@@\n-x\n+y\n *** End Patch";
        for patch in [
            body.to_owned(),
            format!("\n\n{body}\n"),
            format!("<<'EOF'\n{body}\nEOF\n"),
            format!("<<EOF\n{body}\nEOF"),
            format!("<<\"PATCH\"\n{body}\nPATCH"),
        ] {
            let steps = steps(&patch, str::to_owned).unwrap();
            let chunk = PatchChunk { old: vec!["x".to_owned()], new: vec!["y".to_owned()], ..PatchChunk::default() };
            let (from, to) = ("a".to_owned(), "b".to_owned());
            assert_eq!(
                steps,
                [ShellStep::Patch { path: from.clone(), chunks: vec![chunk] }, ShellStep::Move { from, to }],
                "{patch}"
            );
        }
    }

    #[test]
    fn a_patch_of_equal_lines_is_placed_in_time() {
        let text = "a\n".repeat(1 << 17);
        let body: String = "-a\n".repeat(1 << 16) + "-b\n+c";
        assert_eq!(patched(&text, &body), None);
    }
}
