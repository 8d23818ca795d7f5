//! Which lines of a known text a read shows, after a change of the text that the recording does not show.

use std::collections::HashMap;

/// The shortest line that tells its place, in bytes without blanks around it.
const TELLING_BYTES: usize = 6;

/// The fewest lines that tell the place of a read.
const TELLING_LINES: usize = 3;

/// Lines of a text that other lines replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineChange {
    /// The first of them in the text before the change, from 0.
    pub(super) at: u64,
    /// Their count.
    pub(super) old: u64,
    /// The count of the lines in their place.
    pub(super) new: u64,
}

/// The changes of a text after which a read shows what it shows, but for lines that were replaced one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// In order, and not overlapping.
    pub(super) changes: Vec<LineChange>,
}

impl Alignment {
    // Not `similar`: its patience also pairs the lines between the unique ones, of which blank ones and brackets tell a wrong
    // place, and it takes known lines with gaps between them for neighbours.
    /// Finds `shown`, the lines from `start` (from 0) on, among the known lines by lines that occur once in both. `None` if there
    /// are too few of them.
    pub(super) fn new(known: &[(u64, &str)], start: u64, shown: &[&str]) -> Option<Self> {
        let mut once: HashMap<&str, (u32, u64, u32, u64)> = HashMap::new();
        for (at, line) in (0..).zip(shown).filter(|(_, line)| line.trim().len() >= TELLING_BYTES) {
            let (count, place, ..) = once.entry(line).or_default();
            (*count, *place) = (*count + 1, at);
        }
        for (at, line) in known {
            if let Some((_, _, count, place)) = once.get_mut(line) {
                (*count, *place) = (*count + 1, *at);
            }
        }
        let mut pairs: Vec<(u64, u64)> = once
            .values()
            .filter(|(one, _, other, _)| (*one, *other) == (1, 1))
            .map(|(_, at, _, of)| (*at, *of))
            .collect();
        pairs.sort_unstable();
        let pairs = increasing(&pairs);
        let (Some((first, first_of)), Some(_)) = (pairs.first(), pairs.get(TELLING_LINES - 1)) else {
            return None;
        };
        // Half of the lines must be there: a few may be of another place.
        let mut next = pairs.iter().peekable();
        let mut last = (*first, *first_of);
        let found = (0..).zip(shown).filter(|(at, line)| {
            while let Some(pair) = next.next_if(|pair| pair.0 <= *at) {
                last = *pair;
            }
            let of = (last.1 + *at).checked_sub(last.0);
            let index = of.and_then(|of| known.binary_search_by_key(&of, |(place, _)| *place).ok());
            index.is_some_and(|index| known[index].1 == **line)
        });
        if 2 * found.count() < shown.len() {
            return None;
        }
        let mut changes = Vec::new();
        // Lines before the read came or went: their place is not known, so it is directly before the read.
        let begin = first_of.saturating_sub(*first);
        let (at, old, new) = if begin > start { (start, begin - start, 0) } else { (begin, 0, start - begin) };
        let missing = first.saturating_sub(*first_of);
        if old + new + missing > 0 {
            changes.push(LineChange { at, old, new: new + missing });
        }
        for pair in pairs.windows(2) {
            let old = pair[1].1 - pair[0].1 - 1;
            let new = pair[1].0 - pair[0].0 - 1;
            if old != new {
                changes.push(LineChange { at: pair[0].1 + 1, old, new });
            }
        }
        Some(Self { changes })
    }
}

/// The longest part of pairs whose second numbers increase, as their first ones do.
fn increasing(pairs: &[(u64, u64)]) -> Vec<(u64, u64)> {
    // The index of the last pair of the best part of each length, and the pair before each pair.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (index, (_, of)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].1 < *of);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        match ends.get_mut(length) {
            Some(end) => *end = index,
            None => ends.push(index),
        }
    }
    let mut part = Vec::with_capacity(ends.len());
    let mut next = ends.last().copied();
    while let Some(index) = next {
        part.push(pairs[index]);
        next = before[index];
    }
    part.reverse();
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(known: &str, start: u64, shown: &str) -> Option<Vec<(u64, u64, u64)>> {
        let known: Vec<(u64, &str)> = (0..).zip(known.split(' ')).collect();
        let shown: Vec<&str> = shown.split(' ').collect();
        let found = Alignment::new(&known, start, &shown)?;
        Some(found.changes.iter().map(|change| (change.at, change.old, change.new)).collect())
    }

    #[test]
    fn a_read_tells_which_lines_came_and_went() {
        let known = "line-a line-b line-c line-d line-e line-f line-g";
        for (start, shown, expected) in [
            (2, "line-c line-d line-e", Some(vec![])),
            (4, "line-c line-d line-e", Some(vec![(2, 0, 2)])),
            (1, "line-c line-d line-e", Some(vec![(1, 1, 0)])),
            (2, "line-c new-1 new-2 line-d line-e", Some(vec![(3, 0, 2)])),
            (1, "line-b line-e line-f line-g", Some(vec![(2, 2, 0)])),
            (1, "new-1 line-a line-b line-c", Some(vec![(0, 0, 2)])),
            // Lines that occur twice, short lines and too few lines tell no place.
            (3, "line-c line-d line-d line-c", None),
            (3, "line-c line-d", None),
            (5, "line-a line-b line-c x1 x2 x3 x4", None),
        ] {
            assert_eq!(changes(known, start, shown), expected, "{start} {shown}");
        }
        assert_eq!(changes("a b c d", 2, "a b c d"), None);
    }
}
