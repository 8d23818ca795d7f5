//! Reads recordings record by record: JSON lines, some of which may be damaged, or one document. Only one line is in
//! memory at a time. It repairs a byte order mark, glued records, half of a surrogate pair, and what `repair` names.

use std::collections::BTreeSet;
use std::io::{BufRead, Read};

use serde_json::{Deserializer, Map, Value, json};

use super::repair::{closed, repaired};

/// The longest line of a recording, in bytes.
const LONGEST_LINE: u64 = 256 << 20;

/// The longest document, and the longest text, in bytes.
const LONGEST_DOCUMENT: u64 = 1 << 30;

/// The most places of a damaged line at which a record may begin.
const BEGINNINGS_MAX: usize = 16;

/// The longest beginning of a record that is remembered, in bytes, and the most of them.
const BEGINNING_BYTES: usize = 40;
const BEGINNINGS_KNOWN: usize = 64;

/// What was wrong with the lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Lines with text that belongs to no record.
    pub unreadable: u64,
    /// Lines whose records were read after a repair, such as of a lone surrogate or of several records on one line.
    pub mended: u64,
}

impl std::ops::AddAssign for Damage {
    fn add_assign(&mut self, other: Self) {
        self.unreadable += other.unreadable;
        self.mended += other.mended;
    }
}

/// Calls `each` with every record of a file of JSON lines, in order.
///
/// # Errors
/// If the file cannot be read, or has a line that is too long.
pub fn each_line(input: &mut dyn BufRead, mut each: impl FnMut(Value)) -> Result<Damage, String> {
    let mut lines = Lines::default();
    let mut bytes = Vec::new();
    while next_line(input, &mut bytes)? {
        lines.line(&bytes, &mut each);
    }
    Ok(lines.damage)
}

/// Calls `each` with the records of a file that is one document, or has one record a line.
///
/// # Errors
/// If the file cannot be read, or is too long.
pub fn each_record(input: &mut dyn BufRead, mut each: impl FnMut(Value)) -> Result<Damage, String> {
    let mut bytes = Vec::new();
    let mut lines = Lines::default();
    while next_line(input, &mut bytes)? {
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        // A first line that is a record, or begins as one that was cut, is not the first line of a document.
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_start_matches('\u{feff}').trim();
        if serde_json::from_str::<Value>(text).is_ok() || !text.starts_with(['{', '[']) {
            lines.line(&bytes, &mut each);
            break;
        }
        let read = input.take(LONGEST_DOCUMENT).read_to_end(&mut bytes);
        read.map_err(|error| format!("cannot be read: {error}"))?;
        if let Ok(document) = document(&bytes) {
            each(document);
            return Ok(Damage::default());
        }
        let text = String::from_utf8_lossy(&bytes);
        if begins_with_record(&text) {
            return Ok(one_after_the_other(&text, &mut each));
        }
        // A first line that was cut off is followed by lines that are records.
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let first = lines.next().unwrap_or_default().trim_start_matches('\u{feff}').trim();
        let has_records = || text.lines().any(|line| serde_json::from_str::<Map<String, Value>>(line).is_ok());
        let is_document = matches!(first, "{" | "[") || lines.next().is_none() || !has_records();
        if is_document && let Ok((document, damage)) = damaged_document(&bytes) {
            each(document);
            return Ok(damage);
        }
        return each_line(&mut bytes.as_slice(), each);
    }
    while next_line(input, &mut bytes)? {
        lines.line(&bytes, &mut each);
    }
    Ok(lines.damage)
}

/// Whether a text begins with a whole record, which may be over many lines.
fn begins_with_record(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}');
    let mut records = Deserializer::from_str(text).into_iter::<Value>();
    matches!(records.next(), Some(Ok(Value::Object(_))))
}

/// Calls `each` with records that follow each other, each over many lines. A record that is cut off ends where a line begins
/// with the next one.
fn one_after_the_other(text: &str, each: &mut dyn FnMut(Value)) -> Damage {
    let mut damage = Damage::default();
    let mut rest = text.trim_start_matches('\u{feff}');
    while !rest.trim_start().is_empty() {
        let mut records = Deserializer::from_str(rest).into_iter::<Value>();
        while let Some(Ok(record)) = records.next() {
            each(record);
        }
        let read = records.byte_offset();
        rest = rest[read..].trim_start();
        if rest.is_empty() {
            break;
        }
        damage.unreadable += 1;
        rest = match rest.find("\n{") {
            Some(next) => &rest[next + 1..],
            None => "",
        };
    }
    damage
}

/// Reads the next line. Returns `false` at the end.
fn next_line(input: &mut dyn BufRead, bytes: &mut Vec<u8>) -> Result<bool, String> {
    bytes.clear();
    // One long line must not hold its memory until the end.
    bytes.shrink_to(1 << 20);
    let read = input.take(LONGEST_LINE).read_until(b'\n', bytes);
    let read = read.map_err(|error| format!("cannot be read: {error}"))?;
    if read as u64 == LONGEST_LINE {
        return Err(format!("has a line longer than {LONGEST_LINE} bytes"));
    }
    Ok(read > 0)
}

/// Parses a document.
///
/// # Errors
/// If it is not JSON.
pub(super) fn document(bytes: &[u8]) -> Result<Value, String> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}');
    serde_json::from_str(text)
        .or_else(|error| serde_json::from_str(&without_lone_surrogates(text)).map_err(|_| error))
        .map_err(|error| format!("is not JSON: {error}"))
}

/// Parses a document, which may be damaged or cut off.
///
/// # Errors
/// If it is not the beginning of JSON.
pub(super) fn damaged_document(bytes: &[u8]) -> Result<(Value, Damage), String> {
    let error = match document(bytes) {
        Ok(document) => return Ok((document, Damage::default())),
        Err(error) => error,
    };
    let text = String::from_utf8_lossy(bytes);
    let whole = without_lone_surrogates(text.trim_start_matches('\u{feff}'));
    if let Ok(document) = serde_json::from_str(&repaired(&whole)) {
        return Ok((document, Damage { mended: 1, unreadable: 0 }));
    }
    let cut = closed(&whole).and_then(|text| serde_json::from_str(&text).ok());
    match cut.filter(|document| *document != json!({}) && *document != json!([])) {
        Some(document) => Ok((document, Damage { mended: 0, unreadable: 1 })),
        None => Err(error),
    }
}

/// The lines of a file that have been read.
#[derive(Default)]
struct Lines {
    damage: Damage,
    /// How records of the file begin.
    beginnings: BTreeSet<String>,
}

impl Lines {
    fn line(&mut self, bytes: &[u8], each: &mut dyn FnMut(Value)) {
        let line = String::from_utf8_lossy(bytes);
        // A disk that lost its data leaves zeros.
        let line = line.trim_start_matches('\u{feff}').trim_matches(|c: char| c.is_whitespace() || c == '\0');
        if line.is_empty() {
            return;
        }
        if let Ok(record) = serde_json::from_str(line) {
            if self.beginnings.len() < BEGINNINGS_KNOWN {
                self.beginnings.extend(beginning(line));
            }
            each(record);
            return;
        }
        let whole = without_lone_surrogates(line);
        if let Some(records) = all(&whole).or_else(|| all(&repaired(&whole))) {
            self.damage.mended += 1;
            records.into_iter().for_each(each);
            return;
        }
        self.damage.unreadable += 1;
        // The rest of a cut record may stand before a whole one. First the beginnings that other records have.
        let mut known: Vec<usize> = self
            .beginnings
            .iter()
            .flat_map(|start: &String| whole.match_indices(start.as_str()))
            .map(|(at, _)| at)
            .filter(|at| *at > 0)
            .collect();
        known.sort_unstable();
        known.truncate(BEGINNINGS_MAX);
        let any = whole.match_indices("{\"").map(|(at, _)| at);
        let any = any.filter(|at| *at > 0).take(BEGINNINGS_MAX);
        let found = known.into_iter().chain(any);
        // A record that begins the line is whole if only the text behind it was cut.
        let mut first = Deserializer::from_str(&whole).into_iter::<Value>();
        let start = first.next().and_then(Result::ok).filter(Value::is_object);
        let rest = found.into_iter().find_map(|at| all(&whole[at..]));
        match (rest, start) {
            (Some(records), _) => {
                self.damage.mended += 1;
                records.into_iter().for_each(each);
            }
            (None, Some(record)) => {
                self.damage.mended += 1;
                each(record);
            }
            (None, None) => {}
        }
    }
}

/// The records, if the whole text consists of records.
fn all(text: &str) -> Option<Vec<Value>> {
    let records = Deserializer::from_str(text).into_iter().collect::<Result<Vec<Value>, _>>();
    records.ok().filter(|records| records.iter().all(Value::is_object))
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
            // The second of two backslashes does not escape the next character.
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
        let damage = each_line(&mut text.as_bytes(), |record| found.push(record.to_string()));
        (found, damage.unwrap())
    }

    #[test]
    fn every_whole_record_of_a_damaged_file_is_read() {
        let damage = |unreadable, mended| Damage { unreadable, mended };
        for (text, expected, state) in [
            ("\u{feff}{\"a\":1}\r\n\r\n{\"a\":2}\r\n", "1 2", damage(0, 0)),
            ("{\"a\":1}{\"a\":2} {\"a\":3}\n", "1 2 3", damage(0, 1)),
            ("{\"a\":1}\n{\"x\":\"cut{\"a\":2}\n{\"a\":3}\n", "1 2 3", damage(1, 1)),
            ("{\"a\":1}\nnonsense\n", "1", damage(1, 0)),
            ("{\"x\":\"cut{\"a\":2}\n{\"a\":3}", "2 3", damage(1, 1)),
            ("{\"x\":\n{\"a\":3}", "3", damage(1, 0)),
            ("{\"a\":1}{\"x\":\"cut", "1", damage(1, 1)),
            ("{\"a\":1}\n\0\0{\"a\":2}\0\0{\"a\":3}\0\n\0\0\0\0", "1 2 3", damage(0, 1)),
        ] {
            let (found, stated) = records(text);
            let expected: Vec<String> = expected.split(' ').map(|n| format!("{{\"a\":{n}}}")).collect();
            assert_eq!((found, stated), (expected, state), "{text}");
        }
    }

    #[test]
    fn a_record_that_is_nearly_json_is_read() {
        let (found, damage) = records("{\"a\":NaN}\n{\"b\":\"\t\0\\x\"}\n");
        assert_eq!(found, [r#"{"a":null}"#, r#"{"b":"\t\u0000\\x"}"#]);
        assert_eq!(damage, Damage { unreadable: 0, mended: 2 });
        let deep = format!("{{\"a\":1,\"b\":{}{}}}", "[".repeat(500), "]".repeat(500));
        assert_eq!(records(&deep).1, Damage { unreadable: 0, mended: 1 });
    }

    #[test]
    fn a_document_without_its_end_keeps_what_is_whole() {
        let whole = "{\"n\": NaN, \"steps\": [{\"a\": 1},\n{\"a\": 2},\n{\"a\": 3}]}";
        for (text, steps, damage) in [
            (whole.to_owned(), 3, Damage { unreadable: 0, mended: 1 }),
            (whole.replace("NaN", "0"), 3, Damage::default()),
            (whole[..whole.len() - 6].to_owned(), 2, Damage { unreadable: 1, mended: 0 }),
            (whole[..whole.len() - 6].replace(['\n', ' '], ""), 2, Damage { unreadable: 1, mended: 0 }),
            (whole[..whole.len() - 6].replace('{', "{\n"), 2, Damage { unreadable: 1, mended: 0 }),
        ] {
            let (document, found) = damaged_document(text.as_bytes()).unwrap();
            assert_eq!((document["steps"].as_array().unwrap().len(), found), (steps, damage), "{text}");
            let mut records = Vec::new();
            assert_eq!(each_record(&mut text.as_bytes(), |record| records.push(record)), Ok(damage), "{text}");
            assert_eq!(records, [document], "{text}");
        }
        assert!(damaged_document(b"no JSON").is_err() && damaged_document(b"{\"a\" 1").is_err());
    }

    #[test]
    fn records_over_many_lines_follow_each_other_and_a_cut_one_costs_itself() {
        let one = "{\n  \"a\": 1\n}\n";
        for (text, expected, unreadable) in [
            (format!("{one}{one}"), 2, 0),
            (format!("{one}{{\n  \"a\": \n{one}{one}"), 3, 1),
            (format!("{one}{{\n  \"a\": \"{{"), 1, 1),
        ] {
            let mut found = 0;
            let damage = each_record(&mut text.as_bytes(), |record| {
                assert_eq!(record["a"], 1, "{text}");
                found += 1;
            });
            assert_eq!((found, damage.unwrap().unreadable), (expected, unreadable), "{text}");
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
            assert_eq!(damage, Damage { unreadable: 0, mended: 1 });
        }
        assert_eq!(records(r#"{"a":"\ud83d\ude00"}"#).1, Damage::default());
    }
}
