//! What a session shows of a file's first content, line by line, from partial reads and from the places of edits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Hunk;
use super::spill::{Spill, SpilledValue, spillable};
use workloads::filler::fill;

/// The most lines of a file that is put together from parts.
const LINES_MAX: u64 = 1 << 18;

/// The most bytes of a file that is put together from parts.
const BYTES_MAX: u64 = 4 << 20;

/// The assumed bytes per line of a file without a known line.
const LINE_BYTES: u64 = 35;

/// A known line.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    text: String,
    /// Whether its leading tabs may be shown as spaces.
    is_expanded: bool,
}

/// Known lines, by their numbers from 0.
type Lines = BTreeMap<u64, Line>;

spillable!(Lines);

/// The lines of a file's first content, and where they are now.
#[derive(Clone, Debug, Default)]
pub(super) struct Sketch {
    /// Its lines, unless they are in `stored`.
    lines: Lines,
    /// Its lines outside of memory.
    stored: Option<SpilledValue<Lines>>,
    /// Why its lines are lost, if they are.
    pub(super) lost: Option<String>,
    /// The number of lines: one more than the newlines; 0 while no read tells it.
    total: u64,
    /// The current lines, in order: ranges of first lines, and inserted lines.
    now: Vec<Range>,
    /// Whether something else has changed the file, so that later lines are not those of its first content.
    is_closed: bool,
    uses_tabs: bool,
}

/// Neighbouring current lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    /// The first of them in the first content, from 0; `None` for inserted lines.
    first: Option<u64>,
    count: u64,
}

impl Sketch {
    pub(super) fn new() -> Self {
        Self { now: vec![Range { first: Some(0), count: u64::MAX }], ..Self::default() }
    }

    /// Moves its lines out of memory, until they are needed.
    pub(super) fn store(&mut self, spill: &mut Spill) {
        if !self.lines.is_empty() {
            self.stored = Some(spill.keep(std::mem::take(&mut self.lines)));
        }
    }

    fn load(&mut self) {
        match self.stored.take().map(|stored| stored.load()) {
            Some(Ok(lines)) => self.lines = lines,
            Some(Err(error)) => self.lost = Some(error),
            None => {}
        }
    }

    /// Takes no more lines.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Learns the lines from `first` (from 1) on, of `total` lines of the current file.
    pub(super) fn part(&mut self, first: u64, content: &str, total: u64) {
        if first > LINES_MAX {
            return;
        }
        if !self.is_closed && self.total == 0 {
            // All that follows the last change is still there.
            let last = self.now.last().and_then(|range| range.first).unwrap_or(0);
            let before_last: u64 = self.now.iter().rev().skip(1).map(|range| range.count).sum();
            self.total = total.saturating_sub(before_last).saturating_add(last);
        }
        for (at, text) in (first.max(1) - 1..).zip(content.split('\n')) {
            self.learn(at, text, false);
        }
    }

    /// Learns the lines of an edit's places, and applies the edit. `tabs`: whether its texts begin lines with tabs.
    pub(super) fn patch(&mut self, hunks: &[Hunk], tabs: bool) {
        self.uses_tabs |= tabs;
        if hunks.iter().any(|hunk| hunk.first > LINES_MAX) {
            self.close();
            return;
        }
        for hunk in hunks {
            for (at, text) in (hunk.first.max(1) - 1..).zip(old_lines(hunk)) {
                self.learn(at, text, true);
            }
        }
        for hunk in hunks.iter().rev() {
            let mut at = hunk.first.max(1) - 1;
            for line in &hunk.lines {
                match line.chars().next() {
                    Some('-') => self.remove(at),
                    Some('+') => {
                        self.insert(at);
                        at += 1;
                    }
                    Some(' ') | None => at += 1,
                    _ => {}
                }
            }
        }
    }

    fn learn(&mut self, at: u64, text: &str, is_expanded: bool) {
        if self.is_closed || at >= LINES_MAX {
            return;
        }
        let Some(first) = self.first_of(at) else {
            return;
        };
        self.uses_tabs |= !is_expanded && text.starts_with('\t');
        self.load();
        let text = text.to_owned();
        match self.lines.get_mut(&first) {
            None => {
                self.lines.insert(first, Line { text, is_expanded });
            }
            Some(known) if !same(&known.text, &text) => self.is_closed = true,
            Some(known) if known.is_expanded && !is_expanded => *known = Line { text, is_expanded },
            Some(_) => {}
        }
    }

    /// The line of the first content that is the current line `at`.
    fn first_of(&self, at: u64) -> Option<u64> {
        let mut before = 0_u64;
        for range in &self.now {
            if at - before < range.count {
                return range.first.map(|first| first + (at - before));
            }
            before += range.count;
        }
        None
    }

    /// Splits the ranges so that one begins at `at`. Returns its index.
    fn split(&mut self, at: u64) -> usize {
        let mut before = 0_u64;
        for index in 0..self.now.len() {
            let range = self.now[index];
            let offset = at - before;
            if offset == 0 {
                return index;
            }
            if offset < range.count {
                let rest = Range { first: range.first.map(|first| first + offset), count: range.count - offset };
                self.now[index].count = offset;
                self.now.insert(index + 1, rest);
                return index + 1;
            }
            before += range.count;
        }
        self.now.len()
    }

    fn remove(&mut self, at: u64) {
        if at >= LINES_MAX {
            self.is_closed = true;
            return;
        }
        let index = self.split(at);
        self.split(at + 1);
        if index < self.now.len() {
            self.now.remove(index);
        }
    }

    fn insert(&mut self, at: u64) {
        if at >= LINES_MAX {
            self.is_closed = true;
            return;
        }
        let index = self.split(at);
        let grows = index > 0 && self.now[index - 1].first.is_none();
        if grows {
            self.now[index - 1].count += 1;
        } else {
            let inserted = Range { first: None, count: 1 };
            self.now.insert(index, inserted);
        }
    }

    /// The first content: the known lines, and filler for the others. `None` if it is too large, or no line is known.
    pub(super) fn text(&mut self) -> Option<String> {
        self.load();
        let (last, _) = self.lines.last_key_value()?;
        let total = self.total.max(last + 1);
        let known: u64 = self.lines.values().map(|line| line.text.len() as u64).sum();
        let mean = match self.lines.len() as u64 {
            0 => LINE_BYTES,
            count => known / count,
        };
        if total > LINES_MAX || (mean + 1).saturating_mul(total) > BYTES_MAX {
            return None;
        }
        let mut text = String::new();
        let mut at = 0;
        for (number, line) in &self.lines {
            text.push_str(&unknown(at, number - at, mean));
            text.push_str(&self.with_tabs(line));
            at = number + 1;
            if at < total {
                text.push('\n');
            }
        }
        let mut rest = unknown(at, total.saturating_sub(at), mean);
        // The last line has no newline.
        rest.pop();
        text.push_str(&rest);
        Some(text)
    }

    fn with_tabs(&self, line: &Line) -> String {
        if !(line.is_expanded && self.uses_tabs) {
            return line.text.clone();
        }
        tabbed(&line.text)
    }
}

/// Filler for `count` lines from `at` on, each with its newline.
fn unknown(at: u64, count: u64, mean: u64) -> String {
    let filler = fill(at, (mean + 1) * count, count);
    String::from_utf8_lossy(&filler).into_owned()
}

/// The lines of a place before its edit.
pub(super) fn old_lines(hunk: &Hunk) -> impl Iterator<Item = &str> {
    let old = hunk.lines.iter();
    old.filter(|line| !line.starts_with(['+', '\\'])).map(|line| line.get(1..).unwrap_or(""))
}

/// Each two leading spaces as a tab, as Claude Code shows tabs in the places of edits.
pub(super) fn tabbed(line: &str) -> String {
    let rest = line.trim_start_matches(' ');
    let spaces = line.len() - rest.len();
    format!("{}{}{rest}", "\t".repeat(spaces / 2), " ".repeat(spaces % 2))
}

/// Whether two lines are equal, but for leading tabs that one of them shows as two spaces each.
pub(super) fn same(one: &str, other: &str) -> bool {
    let expanded = |line: &str| {
        let rest = line.trim_start_matches(['\t', ' ']);
        let indent = &line[..line.len() - rest.len()];
        let columns: usize = indent.chars().map(|c| if c == '\t' { 2 } else { 1 }).sum();
        (columns, rest.len())
    };
    one == other
        || expanded(one) == expanded(other)
            && one.trim_start_matches(['\t', ' ']) == other.trim_start_matches(['\t', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunk(first: u64, lines: &[&str]) -> Hunk {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        Hunk { first, lines }
    }

    #[test]
    fn parts_and_places_of_edits_become_one_first_content() {
        let mut sketch = Sketch::new();
        let mut spill = Spill::default();
        sketch.part(2, "b\nc", 7);
        sketch.store(&mut spill);
        assert!(sketch.lines.is_empty());
        sketch.patch(&[hunk(3, &[" c", "-d", "+D", "+D2", " e"])], false);
        // Two lines further down now: the fifth line was the fourth.
        sketch.part(6, "e\nf\n", 8);
        sketch.patch(&[hunk(1, &["-a"]), hunk(7, &[" f", "+new"])], false);
        let text = sketch.text().unwrap();
        assert_eq!(text, "a\nb\nc\nd\ne\nf\n");
    }

    #[test]
    fn a_change_by_something_else_ends_what_is_known_of_the_first_content() {
        let mut sketch = Sketch::new();
        sketch.part(1, "a", 3);
        sketch.part(1, "other", 3);
        sketch.part(2, "b", 3);
        let text = sketch.text().unwrap();
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!((lines[0], lines.len()), ("a", 3));
        assert_ne!(lines[1], "b");
    }

    #[test]
    fn leading_tabs_come_back_from_the_places_of_edits() {
        let mut sketch = Sketch::new();
        sketch.patch(&[hunk(1, &[" if x {", "-    y()", "+    z()", " }"])], true);
        assert_eq!(sketch.text().unwrap(), "if x {\n\t\ty()\n}");
        assert!(same("\t\ty", "    y") && same("x", "x"));
        assert!(!same("\ty", "    y") && !same("y ", "y"));
    }

    #[test]
    fn a_hostile_number_of_lines_gives_no_text() {
        let mut sketch = Sketch::new();
        sketch.part(u64::MAX, "a", u64::MAX);
        sketch.patch(&[hunk(u64::MAX, &["-a", "+b"])], false);
        assert!(sketch.text().is_none());
        let mut sketch = Sketch::new();
        sketch.part(1, "a", u64::MAX);
        assert!(sketch.text().is_none());
    }
}
