//! The records of a JSON-lines file of which some lines are damaged.

use std::collections::BTreeSet;

use serde_json::{Deserializer, Value};

/// The most places of a damaged line at which a record may begin.
const BEGINNINGS_MAX: usize = 16;

/// The longest beginning of a record that is remembered, in bytes.
const BEGINNING_BYTES: usize = 40;

/// What was wrong with the lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Lines with text that belongs to no record.
    pub unreadable: u64,
    /// Lines whose records were read after a repair: a lone surrogate, several records on one line.
    pub mended: u64,
}

impl std::ops::AddAssign for Damage {
    fn add_assign(&mut self, other: Self) {
        self.unreadable += other.unreadable;
        self.mended += other.mended;
    }
}

/// Calls `each` with every record of `text`, in order.
pub fn read(text: &str, mut each: impl FnMut(Value)) -> Damage {
    let mut damage = Damage::default();
    let mut beginnings = BTreeSet::new();
    // A byte order mark is no part of the first record.
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        if let Ok(record) = serde_json::from_str(line) {
            beginnings.extend(beginning(line));
            each(record);
            continue;
        }
        let whole = without_lone_surrogates(line);
        if let Some(records) = all(&whole) {
            damage.mended += 1;
            records.into_iter().for_each(&mut each);
            continue;
        }
        damage.unreadable += 1;
        // The rest of a cut record may stand before a whole one.
        let mut found: Vec<usize> = beginnings
            .iter()
            .flat_map(|start: &String| whole.match_indices(start.as_str()))
            .map(|(at, _)| at)
            .filter(|at| *at > 0)
            .collect();
        found.sort_unstable();
        found.truncate(BEGINNINGS_MAX);
        if let Some(records) = found.into_iter().find_map(|at| all(&whole[at..])) {
            damage.mended += 1;
            records.into_iter().for_each(&mut each);
        }
    }
    damage
}

/// The records of which the whole text consists.
fn all(text: &str) -> Option<Vec<Value>> {
    let records = Deserializer::from_str(text)
        .into_iter()
        .collect::<Result<Vec<Value>, _>>();
    records
        .ok()
        .filter(|records| records.iter().all(Value::is_object))
}

/// The beginning of a record, up to the end of its first key.
fn beginning(line: &str) -> Option<String> {
    let (key, _) = line.split_once(':')?;
    (key.len() <= BEGINNING_BYTES).then(|| key.to_owned())
}

/// Replaces each escape of half a character by one of U+FFFD.
fn without_lone_surrogates(line: &str) -> String {
    let code = |at: usize| {
        let escape = line.get(at..at + 6)?;
        let digits = escape.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut mended = String::with_capacity(line.len());
    let mut at = 0;
    while let Some(next) = line[at..].find('\\') {
        mended.push_str(&line[at..at + next]);
        at += next;
        let length = match (code(at), code(at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                mended.push_str("\\ufffd");
                at += 6;
                continue;
            }
            (Some(_), _) => 6,
            // A backslash before another one is no escape of what follows it.
            (None, _) => {
                let escaped = line[at + 1..].chars().next();
                1 + escaped.map_or(0, char::len_utf8)
            }
        };
        mended.push_str(&line[at..at + length]);
        at += length;
    }
    mended.push_str(&line[at..]);
    mended
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str) -> (Vec<String>, Damage) {
        let mut found = Vec::new();
        let damage = read(text, |record| found.push(record.to_string()));
        (found, damage)
    }

    #[test]
    fn every_whole_record_of_a_damaged_file_is_read() {
        let damage = |unreadable, mended| Damage { unreadable, mended };
        for (text, expected, state) in [
            (
                "\u{feff}{\"a\":1}\r\n\r\n{\"a\":2}\r\n",
                "1 2",
                damage(0, 0),
            ),
            ("{\"a\":1}{\"a\":2} {\"a\":3}\n", "1 2 3", damage(0, 1)),
            (
                "{\"a\":1}\n{\"x\":\"cut{\"a\":2}\n{\"a\":3}\n",
                "1 2 3",
                damage(1, 1),
            ),
            ("{\"a\":1}\nnonsense\n", "1", damage(1, 0)),
        ] {
            let (found, stated) = records(text);
            let expected: Vec<String> = expected
                .split(' ')
                .map(|n| format!("{{\"a\":{n}}}"))
                .collect();
            assert_eq!((found, stated), (expected, state), "{text}");
        }
    }

    #[test]
    fn half_a_character_is_replaced_and_its_record_kept() {
        for (escaped, expected) in [
            (r"x\ud83dy", "x\u{fffd}y"),
            (r"\uDE00", "\u{fffd}"),
            (r"\ud83d\ud83d\ude00", "\u{fffd}\u{1f600}"),
            (r"\ud83d\n", "\u{fffd}\n"),
            (r"\\ud83d\ud83d", "\\ud83d\u{fffd}"),
        ] {
            let (found, damage) = records(&format!("{{\"a\":\"{escaped}\"}}"));
            assert_eq!(found, [serde_json::json!({ "a": expected }).to_string()]);
            assert_eq!(
                damage,
                Damage {
                    unreadable: 0,
                    mended: 1
                }
            );
        }
        assert_eq!(records(r#"{"a":"\ud83d\ude00"}"#).1, Damage::default());
    }
}
