//! What a session shows of a file's first content, line by line, from partial reads and from the places of edits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops;

use memchr::memchr_iter;
use serde::{Deserialize, Serialize};

use super::Hunk;
use super::alignment::Alignment;
use super::spill::{Spill, Spillable, SpilledValue, decoded, encoded};
use shell::Replacement;
use workloads::filler::fill;

/// The most lines of a file that is put together from parts.
const LINES_MAX: u64 = 1 << 18;

/// The most bytes of a file that is put together from parts.
const BYTES_MAX: u64 = 4 << 20;

/// The assumed bytes per line of a file without a known line.
const LINE_BYTES: u64 = 35;

/// The number of the first line that was not in the first content.
const ADDED: u64 = 1 << 32;

/// The most replacements of one edit that are followed.
const REPLACEMENTS_MAX: usize = 100;

/// Agents cut lines from this length on, in bytes.
const CUT_FROM: usize = 500;

/// The most edits of text that was not seen that are remembered until a read shows their new text.
const UNPLACED_MAX: usize = 100;

/// A known line.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    text: &'a str,
    /// Whether its leading tabs may be shown as spaces.
    is_expanded: bool,
}

/// The number of lines of a block.
const BLOCK: u64 = 32;

/// The places of the known ones of neighbouring lines. The number of the first line is a multiple of [`BLOCK`].
type Block = [Option<LinePlace>; BLOCK as usize];

/// Known lines. Those of the first content have their numbers there, from 0; later ones have numbers from `ADDED` on.
/// All texts are in one: a text of its own for each line would take as much time and memory as the lines.
#[derive(Clone, Debug, Default)]
struct Lines {
    /// By the number of the block.
    blocks: BTreeMap<u64, Box<Block>>,
    text: String,
    count: usize,
}

/// Where the text of a line is.
#[derive(Clone, Copy, Debug)]
struct LinePlace {
    at: u32,
    bytes: u32,
    is_expanded: bool,
}

/// Lines as they are outside of memory.
#[derive(Default, Serialize, Deserialize)]
struct StoredLines {
    blocks: Vec<StoredBlock>,
    /// The length of each line.
    lengths: Vec<u32>,
    /// The texts of the lines.
    text: String,
}

/// A block outside of memory. A line's bit says whether it is known, and whether it is expanded.
#[derive(Serialize, Deserialize)]
struct StoredBlock {
    number: u64,
    known: u32,
    expanded: u32,
}

impl Lines {
    fn line(&self, place: LinePlace) -> Line<'_> {
        let at = place.at as usize;
        Line { text: &self.text[at..at + place.bytes as usize], is_expanded: place.is_expanded }
    }

    fn get(&self, number: u64) -> Option<Line<'_>> {
        let block = self.blocks.get(&(number / BLOCK))?;
        block[(number % BLOCK) as usize].map(|place| self.line(place))
    }

    /// Adds a line, or replaces the one with its number. `None` if there is no room.
    fn insert(&mut self, number: u64, text: &str, is_expanded: bool) -> Option<()> {
        let end = u32::try_from(self.text.len() + text.len()).ok()?;
        let at = self.text.len() as u32;
        self.text.push_str(text);
        let place = LinePlace { at, bytes: end - at, is_expanded };
        self.put(number, place);
        Some(())
    }

    fn put(&mut self, number: u64, place: LinePlace) {
        let block = self.blocks.entry(number / BLOCK).or_default();
        let former = block[(number % BLOCK) as usize].replace(place);
        self.count += usize::from(former.is_none());
    }

    fn range(&self, numbers: ops::Range<u64>) -> impl DoubleEndedIterator<Item = (u64, Line<'_>)> {
        let blocks = self.blocks.range(numbers.start / BLOCK..numbers.end.div_ceil(BLOCK));
        let places = blocks.flat_map(|(number, block)| {
            let first = number * BLOCK;
            block.iter().enumerate().map(move |(offset, place)| (first + offset as u64, *place))
        });
        places.filter_map(move |(number, place)| {
            let place = place.filter(|_| numbers.contains(&number))?;
            Some((number, self.line(place)))
        })
    }

    /// Their size in memory, in bytes.
    fn bytes(&self) -> usize {
        self.text.capacity() + self.blocks.len() * (size_of::<Block>() + 2 * size_of::<(u64, Box<Block>)>())
    }
}

impl Spillable for Lines {
    fn into_bytes(self) -> Vec<u8> {
        let mut stored = StoredLines { text: String::with_capacity(self.text.len()), ..StoredLines::default() };
        stored.lengths.reserve_exact(self.count);
        for (number, block) in &self.blocks {
            let (mut known, mut expanded) = (0, 0);
            for (bit, place) in block.iter().enumerate() {
                if let Some(place) = place {
                    known |= 1 << bit;
                    expanded |= u32::from(place.is_expanded) << bit;
                    stored.lengths.push(place.bytes);
                    stored.text.push_str(self.line(*place).text);
                }
            }
            stored.blocks.push(StoredBlock { number: *number, known, expanded });
        }
        encoded(&stored)
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, String> {
        let StoredLines { blocks, lengths, text } = decoded(&bytes)?;
        let mut lines = Self { text, ..Self::default() };
        let (mut at, mut lengths) = (0, lengths.into_iter());
        for block in blocks {
            for bit in (0..BLOCK).filter(|bit| (block.known >> bit) & 1 == 1) {
                let bytes = lengths.next().unwrap_or_default();
                let is_expanded = (block.expanded >> bit) & 1 == 1;
                lines.put(block.number * BLOCK + bit, LinePlace { at, bytes, is_expanded });
                at += bytes;
            }
        }
        Ok(lines)
    }
}

/// The lines of a file's first content, and where they are now.
#[derive(Clone, Debug, Default)]
pub(super) struct Sketch {
    /// Its lines, unless they are only in `stored`.
    lines: Lines,
    /// Its lines outside of memory, until one of them changes.
    stored: Option<SpilledValue<Lines>>,
    is_only_stored: bool,
    /// Why its lines are lost, if they are.
    pub(super) lost: Option<String>,
    /// The number of lines: one more than the newlines; 0 while no read tells it.
    total: u64,
    /// The current lines, in order: ranges of first lines, and inserted lines.
    now: Vec<Range>,
    /// The number of the next line that is inserted.
    next: u64,
    /// Edits whose old text no read has shown.
    unplaced: Vec<Replacement>,
    /// Whether the file was written as a whole, so that later lines are not those of its first content.
    is_closed: bool,
    uses_tabs: bool,
}

/// Neighbouring current lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    /// The number of the first of them.
    first: u64,
    count: u64,
}

impl Sketch {
    pub(super) fn new() -> Self {
        Self { now: vec![Range { first: 0, count: ADDED }], next: ADDED, ..Self::default() }
    }

    /// The size of its lines in memory, in bytes.
    pub(super) fn bytes_in_memory(&self) -> usize {
        self.lines.bytes()
    }

    /// Moves its lines out of memory, until they are needed.
    pub(super) fn store(&mut self, spill: &mut Spill) {
        if self.lines.count > 0 {
            let lines = std::mem::take(&mut self.lines);
            self.stored.get_or_insert_with(|| spill.keep(lines));
            self.is_only_stored = true;
        }
    }

    fn load(&mut self) {
        if std::mem::take(&mut self.is_only_stored) {
            match self.stored.as_ref().map(SpilledValue::load) {
                Some(Ok(lines)) => self.lines = lines,
                Some(Err(error)) => self.lost = Some(error),
                None => {}
            }
        }
    }

    /// Takes no more lines.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Learns the lines from `first` (from 1) on, of `total` lines of the current file, if that is known.
    pub(super) fn part(&mut self, first: u64, content: &str, total: Option<u64>) {
        if first > LINES_MAX || self.is_closed {
            return;
        }
        let start = first.max(1) - 1;
        let shown = lines_of(content);
        self.load();
        self.place(start, &shown);
        self.align(start, &shown);
        if let Some(total) = total
            && self.total == 0
        {
            // All that follows the last change is still there.
            let last = self.now.last().map_or(0, |range| range.first);
            let before_last: u64 = self.now.iter().rev().skip(1).map(|range| range.count).sum();
            self.total = total.saturating_sub(before_last).saturating_add(last);
        }
        for (at, text) in (start..).zip(shown) {
            self.learn(at, text, false);
        }
    }

    /// Whether a text has the known lines in their places. An agent may have cut a long line, or left out a carriage
    /// return.
    pub(super) fn is_in(&mut self, text: &str) -> bool {
        self.load();
        let lines = lines_of(text);
        self.known().iter().all(|(at, known)| {
            let line = usize::try_from(*at).ok().and_then(|at| lines.get(at));
            let is_same = line.is_some_and(|line| {
                same(line.strip_suffix('\r').unwrap_or(line), known.strip_suffix('\r').unwrap_or(known))
            });
            is_same || known.len() >= CUT_FROM
        })
    }

    /// Applies an edit by text. Text that was not seen is placed by a later read.
    pub(super) fn replace(&mut self, replacements: &[Replacement]) {
        if self.is_closed {
            return;
        }
        self.load();
        // Each is looked for behind the one before it, as patches are, then in the whole file.
        let mut from = 0;
        for each in replacements {
            let most = if each.all { REPLACEMENTS_MAX } else { 1 };
            for count in 0..most {
                let found = self.find(&each.old, &each.new, from);
                let found = found.or_else(|| if each.all { None } else { self.find(&each.old, &each.new, 0) });
                let Some((at, old, new)) = found else {
                    if count == 0 && self.unplaced.len() < UNPLACED_MAX && each.old != each.new {
                        self.unplaced.push(each.clone());
                    }
                    break;
                };
                from = at + new.len() as u64;
                self.exchange(at, old, &new);
            }
        }
    }

    /// The first current lines from `from` on that hold the text: their place, their count, and the lines after the edit.
    fn find(&self, old: &str, new: &str, from: u64) -> Option<(u64, u64, Vec<String>)> {
        if old.is_empty() {
            return None;
        }
        let mut run = String::new();
        let (mut start, mut end) = (from, from);
        let known = self.known().into_iter().filter(|(at, _)| *at >= from);
        for (at, line) in known.chain([(u64::MAX, "")]) {
            if at != end {
                if let Some((skipped, count, lines)) = in_run(&run, old, new) {
                    return Some((start + skipped, count, lines));
                }
                run.clear();
                (start, end) = (at, at);
            }
            run.push_str(line);
            run.push('\n');
            end = end.saturating_add(1);
        }
        None
    }

    /// Replaces `old` current lines at `at`. Lines with which both begin or end stay.
    fn exchange(&mut self, at: u64, old: u64, new: &[String]) {
        let known: BTreeMap<u64, String> = (at..at + old)
            .filter_map(|line| Some((line, self.lines.get(self.number(line)?)?.text.to_owned())))
            .collect();
        let is_same = |line: u64, text: &String| known.get(&line) == Some(text);
        let head = (at..at + old).zip(new).take_while(|(line, text)| is_same(*line, text)).count();
        let rest = new.get(head..).unwrap_or_default();
        let tail = (at + head as u64..at + old).rev().zip(rest.iter().rev());
        let tail = tail.take_while(|(line, text)| is_same(*line, text)).count();
        let start = at + head as u64;
        self.remove(start, at + old - tail as u64 - start);
        let rest = &rest[..rest.len() - tail];
        self.insert(start, rest.len() as u64);
        for (line, text) in (start..).zip(rest) {
            self.learn(line, text, false);
        }
    }

    /// Applies the edits whose new text a read shows, which are edits of lines that were not known.
    fn place(&mut self, start: u64, shown: &[&str]) {
        for each in std::mem::take(&mut self.unplaced) {
            let lines = |text: &str| text.strip_suffix('\n').map(|text| text.split('\n').map(str::to_owned).collect());
            let (Some(old), Some(new)): (Option<Vec<String>>, Option<Vec<String>>) =
                (lines(&each.old), lines(&each.new))
            else {
                continue;
            };
            let found = shown.windows(new.len()).position(|lines| lines == new.as_slice());
            let Some(at) = found.map(|at| start + at as u64) else {
                self.unplaced.push(each);
                continue;
            };
            let is_possible = (at..).zip(&old).all(|(at, text)| {
                let known = self.number(at).and_then(|number| self.lines.get(number));
                known.is_none_or(|known| known.text == text)
            });
            if is_possible {
                for (at, text) in (at..).zip(&old) {
                    self.learn(at, text, false);
                }
                self.exchange(at, old.len() as u64, &new);
            }
        }
    }

    /// Finds out which of the current lines a read shows, if it shows others than expected: something else has changed the
    /// file.
    fn align(&mut self, start: u64, shown: &[&str]) {
        let differs = |(at, text): (u64, &&str)| {
            let known = self.number(at).and_then(|number| self.lines.get(number));
            known.is_some_and(|known| !same(known.text, text))
        };
        if !(start..).zip(shown).any(differs) {
            return;
        }
        let alignment = Alignment::new(&self.known(), start, shown);
        for change in alignment.iter().flat_map(|alignment| alignment.changes.iter().rev()) {
            self.remove(change.at, change.old);
            self.insert(change.at, change.new);
        }
        // Other lines were replaced where they are.
        for (at, text) in (start..).zip(shown) {
            self.replace_line(at, text);
        }
    }

    /// Removes a line that is another one than `text`, and inserts one in its place.
    fn replace_line(&mut self, at: u64, text: &str) {
        let known = self.number(at).and_then(|number| self.lines.get(number));
        if known.is_some_and(|known| !same(known.text, text)) {
            self.remove(at, 1);
            self.insert(at, 1);
        }
    }

    /// The current lines that are known, with their places.
    fn known(&self) -> Vec<(u64, &str)> {
        let mut known = Vec::with_capacity(self.lines.count);
        let mut before = 0;
        for range in &self.now {
            let of_range = self.lines.range(range.first..range.first + range.count);
            known.extend(of_range.map(|(number, line)| (before + (number - range.first), line.text)));
            before += range.count;
        }
        known
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
                    Some('-') => self.remove(at, 1),
                    Some('+') => {
                        self.insert(at, 1);
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
        let Some(first) = self.number(at) else {
            return;
        };
        self.uses_tabs |= !is_expanded && text.starts_with('\t');
        self.load();
        let is_better = match self.lines.get(first) {
            None => true,
            Some(known) if !same(known.text, text) => {
                self.is_closed = true;
                false
            }
            Some(known) => known.is_expanded && !is_expanded,
        };
        if is_better {
            self.stored = None;
            self.is_closed |= self.lines.insert(first, text, is_expanded).is_none();
        }
    }

    /// The number of the current line `at`.
    fn number(&self, at: u64) -> Option<u64> {
        let mut before = 0_u64;
        for range in &self.now {
            if at - before < range.count {
                return Some(range.first + (at - before));
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
                let rest = Range { first: range.first + offset, count: range.count - offset };
                self.now[index].count = offset;
                self.now.insert(index + 1, rest);
                return index + 1;
            }
            before += range.count;
        }
        self.now.len()
    }

    fn remove(&mut self, at: u64, count: u64) {
        if count == 0 {
            return;
        }
        if at >= LINES_MAX {
            self.is_closed = true;
            return;
        }
        let first = self.split(at);
        let end = self.split(at.saturating_add(count));
        self.now.drain(first..end);
    }

    fn insert(&mut self, at: u64, count: u64) {
        if count == 0 {
            return;
        }
        if at >= LINES_MAX {
            self.is_closed = true;
            return;
        }
        let index = self.split(at);
        let number = self.next;
        self.next += count;
        let previous = index.checked_sub(1).and_then(|index| self.now.get_mut(index));
        match previous.filter(|range| range.first + range.count == number) {
            Some(range) => range.count += count,
            None => self.now.insert(index, Range { first: number, count }),
        }
    }

    /// The first content: the known lines, and filler for the others. `None` if it is too large, or no line is known.
    pub(super) fn text(&mut self) -> Option<String> {
        self.load();
        let lines = || self.lines.range(0..ADDED);
        let (last, _) = lines().next_back()?;
        let total = self.total.max(last + 1);
        let known: u64 = lines().map(|(_, line)| line.text.len() as u64).sum();
        let mean = match lines().count() as u64 {
            0 => LINE_BYTES,
            count => known / count,
        };
        if total > LINES_MAX || (mean + 1).saturating_mul(total) > BYTES_MAX {
            return None;
        }
        let mut text = String::new();
        let mut at = 0;
        for (number, line) in lines() {
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

    fn with_tabs<'a>(&self, line: Line<'a>) -> Cow<'a, str> {
        if line.is_expanded && self.uses_tabs { tabbed(line.text).into() } else { line.text.into() }
    }
}

/// Filler for `count` lines from `at` on, each with its newline.
fn unknown(at: u64, count: u64, mean: u64) -> String {
    if count == 0 {
        return String::new();
    }
    let filler = fill(at, (mean + 1) * count, count);
    String::from_utf8_lossy(&filler).into_owned()
}

/// The lines of `text` that hold `old`: how many are before them, their count, and the lines after the edit. A text of whole
/// lines is found at the beginning of a line, if it is there.
fn in_run(text: &str, old: &str, new: &str) -> Option<(u64, u64, Vec<String>)> {
    let at = place_of(text, old, 0)?;
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = at + old.len();
    let end = if text[..end].ends_with('\n') { end } else { end + text[end..].find('\n')? + 1 };
    let after = format!("{}{new}{}", &text[start..at], &text[at + old.len()..end]);
    let count = newlines(&text[start..end]) as u64;
    let lines = if after.is_empty() {
        Vec::new()
    } else {
        after.strip_suffix('\n').unwrap_or(&after).split('\n').map(str::to_owned).collect()
    };
    Some((newlines(&text[..start]) as u64, count, lines))
}

/// The lines of a text: one more than its newlines.
pub(super) fn lines_of(text: &str) -> Vec<&str> {
    let mut lines = Vec::with_capacity(line_count(text));
    let mut start = 0;
    for end in memchr_iter(b'\n', text.as_bytes()) {
        lines.push(&text[start..end]);
        start = end + 1;
    }
    lines.push(&text[start..]);
    lines
}

/// The number of lines of a text.
pub(super) fn line_count(text: &str) -> usize {
    1 + newlines(text)
}

/// The number of newlines of a text.
pub(super) fn newlines(text: &str) -> usize {
    memchr_iter(b'\n', text.as_bytes()).count()
}

/// Whether the lines of a text from `start` on, counted from 0, are those of `shown`.
pub(super) fn has_lines(text: &str, start: usize, shown: &str) -> bool {
    let at = match start.checked_sub(1) {
        None => Some(0),
        Some(newlines) => memchr_iter(b'\n', text.as_bytes()).nth(newlines).map(|at| at + 1),
    };
    let rest = at.and_then(|at| text[at..].strip_prefix(shown));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('\n'))
}

/// Where a text to replace is, from the byte `from` on. Whole lines are found at the beginning of a line, if they are there.
pub(super) fn place_of(text: &str, old: &str, from: usize) -> Option<usize> {
    let is_line = |at: &usize| *at == 0 || text[..*at].ends_with('\n');
    let mut places = text.get(from..)?.match_indices(old).map(|(at, _)| from + at);
    let first = places.next()?;
    if old.ends_with('\n') && !is_line(&first) { Some(places.find(is_line).unwrap_or(first)) } else { Some(first) }
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
    fn a_text_has_the_lines_that_are_in_it() {
        for text in ["", "\n", "a", "a\n", "a\nbc\n\nd", "é\nbc\na\nb"] {
            let lines: Vec<&str> = text.split('\n').collect();
            assert_eq!(lines_of(text), lines);
            assert_eq!(line_count(text), lines.len());
            for start in 0..6 {
                for shown in ["", "\n", "a", "b", "bc", "bc\n", "bc\na", "a\nb", "a\nbc", "\nd"] {
                    let shown_lines: Vec<&str> = shown.split('\n').collect();
                    let expected = lines.get(start..).is_some_and(|rest| rest.starts_with(&shown_lines));
                    assert_eq!(has_lines(text, start, shown), expected, "{text:?} {start} {shown:?}");
                }
            }
        }
    }

    #[test]
    fn parts_and_places_of_edits_become_one_first_content() {
        let mut sketch = Sketch::new();
        let mut spill = Spill::default();
        sketch.part(2, "b\nc", Some(7));
        sketch.store(&mut spill);
        assert_eq!(sketch.lines.bytes(), 0);
        sketch.patch(&[hunk(3, &[" c", "-d", "+D", "+D2", " e"])], false);
        // Two lines further down now: the fifth line was the fourth.
        sketch.part(6, "e\nf\n", Some(8));
        sketch.patch(&[hunk(1, &["-a"]), hunk(7, &[" f", "+new"])], false);
        let text = sketch.text().unwrap();
        assert_eq!(text, "a\nb\nc\nd\ne\nf\n");
    }

    #[test]
    fn lines_outside_of_memory_are_those_that_were_known_last() {
        let (mut sketch, mut spill) = (Sketch::new(), Spill::default());
        sketch.part(40, "x\n\ty", Some(100));
        sketch.store(&mut spill);
        // A read of known lines changes none.
        sketch.part(40, "x", None);
        assert!(sketch.stored.is_some());
        sketch.store(&mut spill);
        sketch.patch(&[hunk(31, &[" a", " b", "   c"])], true);
        assert!(sketch.stored.is_none());
        sketch.store(&mut spill);
        let text = sketch.text().unwrap();
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!((&lines[30..33], &lines[39..41], lines.len()), (&["a", "b", "\tc"][..], &["x", "\ty"][..], 100));
    }

    #[test]
    fn a_change_by_something_else_leaves_the_other_lines_known() {
        let mut sketch = Sketch::new();
        sketch.part(1, "line-1\nline-2\nline-3\nline-4\nline-5", Some(9));
        sketch.part(1, "line-1\nother\nline-3", None);
        // Two lines came before the first one that is shown.
        sketch.part(5, "line-3\nline-4\nline-5\nsix\nseven", None);
        assert!(sketch.text().unwrap().starts_with("line-1\nline-2\nline-3\nline-4\nline-5\nsix\nseven\n"));
        // After a write of the whole file, no line is of the first content.
        sketch.close();
        sketch.part(10, "eight", None);
        assert!(!sketch.text().unwrap().contains("eight"));
    }

    #[test]
    fn an_edit_by_text_is_placed_among_the_known_lines_or_by_a_later_read() {
        let edit = |old: &str, new: &str| Replacement { old: old.to_owned(), new: new.to_owned(), all: false };
        let mut sketch = Sketch::new();
        sketch.part(3, "c\nd\ne", None);
        sketch.replace(&[edit("c\nd\n", "c\nD1\nD2\n")]);
        sketch.part(6, "e\nf", None);
        // A part of a line.
        sketch.replace(&[edit("f", "fF")]);
        sketch.part(7, "fF\ng", None);
        // Lines that no read has shown yet.
        sketch.replace(&[edit("a\nb\n", "B\n")]);
        sketch.part(1, "B\nc\nD1\nD2\ne\nfF\ng\nh", None);
        assert_eq!(sketch.text().unwrap(), "a\nb\nc\nd\ne\nf\ng\nh");
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
        sketch.part(u64::MAX, "a", Some(u64::MAX));
        sketch.patch(&[hunk(u64::MAX, &["-a", "+b"])], false);
        assert!(sketch.text().is_none());
        let mut sketch = Sketch::new();
        sketch.part(1, "a", Some(u64::MAX));
        assert!(sketch.text().is_none());
    }
}
