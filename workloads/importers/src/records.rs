//! Reads recordings record by record: JSON lines, some of which may be damaged, the elements of a list, or one document. Only
//! one record is in memory at a time. It repairs a byte order mark, glued records, half of a surrogate pair, and what `repair` names.

use std::collections::BTreeSet;
use std::io::{BufRead, Read};

use inputs::files::{DOCUMENT_VALUES, RECORD_VALUES, has_more_values};
use serde_json::{Deserializer, Map, Value, json};

use super::repair::{closed, repaired};

/// The longest record of a recording, in bytes: one of this length takes about three times its size in memory.
const LONGEST_RECORD: usize = 64 << 20;

/// The longest document, and the longest text, in bytes.
const LONGEST_DOCUMENT: u64 = 1 << 30;

/// The most places of a damaged line at which a record is looked for and is not found.
const BEGINNINGS_MAX: usize = 16;

/// The most blanks between the start of a list and its first element.
const BLANKS_MAX: usize = 1 << 16;

/// The longest beginning of a record that is remembered, in bytes, and the most of them.
const BEGINNING_BYTES: usize = 40;
const BEGINNINGS_KNOWN: usize = 64;

/// What was wrong with the lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Lines with text that belongs to no record, and records that are too long.
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

/// Calls `each` with every record of a file, in order. The records are one a line, the elements of a list, or objects that
/// follow each other over many lines.
///
/// # Errors
/// If the file cannot be read.
pub fn each_record(input: &mut dyn BufRead, mut each: impl FnMut(Value)) -> Result<Damage, String> {
    let mut lines = Lines::default();
    let start = Start::of(input)?;
    if start.has_objects {
        let mut objects = Objects::default();
        let mut next = start.bytes;
        while !next.is_empty() {
            next.iter().for_each(|byte| objects.byte(*byte, &mut lines, &mut each));
            next.clear();
            let more = input.fill_buf().map_err(unreadable)?;
            let length = more.len();
            next.extend_from_slice(more);
            input.consume(length);
        }
        lines.damage.unreadable += u64::from(objects.is_open() || objects.has_other_text);
        return Ok(lines.damage);
    }
    let mut bytes = start.bytes;
    while next_line(input, &mut bytes, &mut lines.damage)? {
        lines.line(std::mem::take(&mut bytes), &mut each);
    }
    Ok(lines.damage)
}

fn unreadable(error: std::io::Error) -> String {
    format!("cannot be read: {error}")
}

/// The beginning of a file.
struct Start {
    /// What was read of it, without blanks at its start.
    bytes: Vec<u8>,
    /// Whether objects follow each other over many lines, or are the elements of a list.
    has_objects: bool,
}

impl Start {
    fn of(input: &mut dyn BufRead) -> Result<Self, String> {
        let mut bytes = Vec::new();
        let mut has_line_end = false;
        loop {
            let next = input.fill_buf().map_err(unreadable)?.first().copied();
            let is_end = match (next, &bytes[..]) {
                (None, _) => true,
                // The byte order mark.
                (Some(0xEF | 0xBB | 0xBF | 0), []) => false,
                (Some(b'\n'), [b'{']) => {
                    has_line_end = true;
                    true
                }
                (Some(byte), []) if byte.is_ascii_whitespace() => false,
                (Some(byte), [b'[', ..]) if byte.is_ascii_whitespace() && bytes.len() < BLANKS_MAX => {
                    bytes.push(byte);
                    false
                }
                (Some(byte @ (b'{' | b'[')), []) => {
                    bytes.push(byte);
                    false
                }
                (Some(_), _) => true,
            };
            if is_end {
                let has_objects = has_line_end || bytes.starts_with(b"[") && next == Some(b'{');
                return Ok(Self { bytes, has_objects });
            }
            input.consume(1);
        }
    }
}

/// Finds the objects of a list, or those that follow each other over many lines.
#[derive(Default)]
struct Objects {
    /// The object that is open.
    object: Vec<u8>,
    depth: usize,
    in_text: bool,
    is_escaped: bool,
    is_too_long: bool,
    /// The column of the next byte, if only blanks stand before it in its line.
    column: Option<usize>,
    /// The column at which objects begin.
    objects_column: Option<usize>,
    /// Whether the lines of an object are indented: then a line that begins as an object does begins the next one.
    is_indented: Option<bool>,
    /// Whether there is text between objects.
    has_other_text: bool,
}

impl Objects {
    fn is_open(&self) -> bool {
        self.depth > 0
    }

    fn byte(&mut self, byte: u8, lines: &mut Lines, each: &mut dyn FnMut(Value)) {
        if byte == b'\n' {
            self.column = Some(0);
            // No text crosses the end of a line.
            self.in_text = false;
            self.is_escaped = false;
        } else if let Some(column) = self.column {
            if byte.is_ascii_whitespace() {
                self.column = Some(column + 1)
            } else {
                self.begin_line(byte, column, lines)
            }
        }
        if !self.is_open() {
            match byte {
                b'{' => self.depth = 1,
                b',' | b'[' | b']' | 0 => return,
                byte if byte.is_ascii_whitespace() => return,
                _ => {
                    self.has_other_text = true;
                    return;
                }
            }
        } else if self.is_escaped {
            self.is_escaped = false;
        } else {
            match byte {
                b'"' => self.in_text = !self.in_text,
                b'\\' => self.is_escaped = self.in_text,
                b'{' | b'[' if !self.in_text => self.depth += 1,
                b'}' | b']' if !self.in_text => self.depth -= 1,
                _ => {}
            }
        }
        self.is_too_long |= self.object.len() >= LONGEST_RECORD;
        if self.is_too_long {
            self.object = Vec::new();
        } else {
            self.object.push(byte);
        }
        if self.depth == 0 {
            let object = std::mem::take(&mut self.object);
            if std::mem::take(&mut self.is_too_long) { lines.damage.unreadable += 1 } else { lines.line(object, each) }
        }
    }

    /// The first byte of a line that is not blank. An object that was cut off ends where the next one begins.
    fn begin_line(&mut self, byte: u8, column: usize, lines: &mut Lines) {
        self.column = None;
        if !self.is_open() {
            if byte == b'{' {
                self.objects_column.get_or_insert(column);
            }
            return;
        }
        let start = self.objects_column.unwrap_or(0);
        let is_indented = *self.is_indented.get_or_insert(column > start);
        let last = self.object.iter().rev().find(|byte| !byte.is_ascii_whitespace());
        let can_be_inside = !is_indented && last.is_some_and(|last| b":,[".contains(last));
        if byte == b'{' && column == start && !can_be_inside {
            lines.damage.unreadable += 1;
            self.object = Vec::new();
            self.depth = 0;
        }
    }
}

/// Calls `each` with the records of a file that is one document, or has one record a line.
///
/// # Errors
/// If the file cannot be read, or is too long.
pub fn each_document(input: &mut dyn BufRead, mut each: impl FnMut(Value)) -> Result<Damage, String> {
    let mut bytes = Vec::new();
    let mut lines = Lines::default();
    loop {
        let read = (&mut *input).take(LONGEST_DOCUMENT).read_until(b'\n', &mut bytes).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        // A first line that is a record, or begins as one that was cut, is not the first line of a document.
        let is_small = !has_more_values(&bytes, DOCUMENT_VALUES);
        if is_small && is_line_of_records(&String::from_utf8_lossy(&bytes)) {
            lines.line(std::mem::take(&mut bytes), &mut each);
            break;
        }
        (&mut *input).take(LONGEST_DOCUMENT).read_to_end(&mut bytes).map_err(unreadable)?;
        if has_more_values(&bytes, DOCUMENT_VALUES) {
            return each_record(&mut bytes.as_slice(), each);
        }
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
        return each_record(&mut bytes.as_slice(), each);
    }
    while next_line(input, &mut bytes, &mut lines.damage)? {
        lines.line(std::mem::take(&mut bytes), &mut each);
    }
    Ok(lines.damage)
}

/// Whether a first line is a record, or is not the first line of a document.
fn is_line_of_records(line: &str) -> bool {
    let line = line.trim_start_matches('\u{feff}').trim();
    serde_json::from_str::<Value>(line).is_ok() || !line.starts_with(['{', '['])
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

/// Adds the next line to `bytes`. Returns `false` at the end. A line that is too long is left out and counted.
fn next_line(input: &mut dyn BufRead, bytes: &mut Vec<u8>, damage: &mut Damage) -> Result<bool, String> {
    loop {
        let room = LONGEST_RECORD.saturating_sub(bytes.len()) as u64;
        let read = (&mut *input).take(room).read_until(b'\n', bytes).map_err(unreadable)?;
        if read as u64 == room && !bytes.ends_with(b"\n") {
            *bytes = Vec::new();
            damage.unreadable += 1;
            skip_line(input)?;
        } else {
            return Ok(!bytes.is_empty());
        }
    }
}

fn skip_line(input: &mut dyn BufRead) -> Result<(), String> {
    loop {
        let more = input.fill_buf().map_err(unreadable)?;
        let end = more.iter().position(|byte| *byte == b'\n');
        let (length, is_end) = (end.map_or(more.len(), |end| end + 1), end.is_some() || more.is_empty());
        input.consume(length);
        if is_end {
            return Ok(());
        }
    }
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
    if has_more_values(bytes, DOCUMENT_VALUES) {
        return Err(format!("has more than {DOCUMENT_VALUES} values, the limit for one document"));
    }
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
    fn line(&mut self, bytes: Vec<u8>, each: &mut dyn FnMut(Value)) {
        let text = String::from_utf8(bytes);
        let text = text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        // A disk that lost its data leaves zeros.
        let line = text.trim_start_matches('\u{feff}').trim_matches(|c: char| c.is_whitespace() || c == '\0');
        if line.is_empty() {
            return;
        }
        if has_more_values(line.as_bytes(), RECORD_VALUES) {
            self.damage.unreadable += 1;
            return;
        }
        if let Ok(record) = serde_json::from_str(line) {
            if self.beginnings.len() < BEGINNINGS_KNOWN {
                self.beginnings.extend(beginning(line));
            }
            // A long record is not in memory as text and as a value.
            drop(text);
            each(record);
            return;
        }
        let whole = without_lone_surrogates(line);
        drop(text);
        if let Some(records) = all(&whole).or_else(|| all(&repaired(&whole))) {
            self.damage.mended += 1;
            records.into_iter().for_each(each);
            return;
        }
        let records = self.whole_records(&whole);
        self.damage.mended += u64::from(!records.is_empty());
        records.into_iter().for_each(each);
    }

    /// The whole records of a damaged line, with text before, between and behind them, or with records that were cut off.
    fn whole_records(&mut self, line: &str) -> Vec<Value> {
        let (mut records, mut at, mut misses, mut is_damaged) = (Vec::new(), 0, 0, false);
        loop {
            at = line.len()
                - line[at..].trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ',' | '\0')).len();
            let next = match first_record(&line[at..]) {
                Some((record, length)) => Some((record, at + length)),
                None => {
                    is_damaged |= at < line.len();
                    self.next_record(line, at, &mut misses)
                }
            };
            let Some((record, end)) = next else {
                break;
            };
            records.push(record);
            at = end;
        }
        self.damage.unreadable += u64::from(is_damaged);
        records
    }

    /// The first whole record behind `from`, and where it ends.
    fn next_record(&self, line: &str, from: usize, misses: &mut usize) -> Option<(Value, usize)> {
        // An object inside a record that was cut off does not count as a record.
        let is_cut = line[from..].starts_with('{');
        let begins_known = |at: &usize| self.beginnings.iter().any(|start| line[*at..].starts_with(start.as_str()));
        let starts = || line[from..].match_indices("{\"").map(|(at, _)| from + at).filter(|at| *at > from || !is_cut);
        let mut skipped = 0;
        for at in starts().filter(|at| !is_cut || begins_known(at)) {
            if at < skipped {
                continue;
            }
            match first_record(&line[at..]) {
                Some((record, length)) => {
                    let rest = line[at + length..].trim_start();
                    if !(is_cut && rest.starts_with([',', ']', '}'])) {
                        return Some((record, at + length));
                    }
                    skipped = at + length;
                }
                None => *misses += 1,
            }
            if *misses > BEGINNINGS_MAX {
                return None;
            }
        }
        starts().take(BEGINNINGS_MAX).filter(|at| all(&line[*at..]).is_some()).find_map(|at| {
            let (record, length) = first_record(&line[at..])?;
            Some((record, at + length))
        })
    }
}

/// The record at the beginning of a text, and its length.
fn first_record(text: &str) -> Option<(Value, usize)> {
    let mut records = Deserializer::from_str(text).into_iter::<Value>();
    let record = records.next()?.ok().filter(Value::is_object)?;
    Some((record, records.byte_offset()))
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
        let damage = each_record(&mut text.as_bytes(), |record| found.push(record.to_string()));
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
            ("{\"a\":1} text {\"a\":2} text\n", "1 2", damage(1, 1)),
            ("{\"a\":1},{\"a\":2}\n", "1 2", damage(0, 1)),
            ("{\"a\":1}\n{\"x\":\"cut{\"a\":2}{\"x\":\"cut{\"a\":3}{\"x\":", "1 2 3", damage(1, 1)),
            ("{\"a\":1}\n{\"x\":[{\"a\":5},{\"a\":6}],\"y\":\"cut{\"a\":2}{\"x\":\"cut", "1 2", damage(1, 1)),
            ("{\"a\":1}\n\0\0{\"a\":2}\0\0{\"a\":3}\0\n\0\0\0\0", "1 2 3", damage(0, 1)),
        ] {
            let (found, stated) = records(text);
            let expected: Vec<String> = expected.split(' ').map(|n| format!("{{\"a\":{n}}}")).collect();
            assert_eq!((found, stated), (expected, state), "{text}");
        }
    }

    #[test]
    fn the_records_of_a_list_and_objects_over_many_lines_are_read_one_by_one() {
        let all = json!([{"a": 1}, {"a": 2, "text": "}{\\\"[", "more": [{"b": []}]}, {"a": 3}]);
        let pretty = serde_json::to_string_pretty(&all).unwrap();
        let each = all.as_array().unwrap().iter().map(|one| serde_json::to_string_pretty(one).unwrap());
        let objects = each.collect::<Vec<_>>().join("\n");
        let cut = |text: &str| text.replacen("        \"b\": []", "        \"b\": \"cut", 1);
        for (text, expected, unreadable) in [
            (all.to_string(), "1 2 3", 0),
            (format!("\u{feff} [\n{}", &all.to_string()[1..]), "1 2 3", 0),
            (pretty.clone(), "1 2 3", 0),
            (objects.clone(), "1 2 3", 0),
            (pretty[..pretty.len() - 8].to_owned(), "1 2", 1),
            (objects[..objects.len() - 3].to_owned(), "1 2", 1),
            (cut(&pretty).split("cut").next().unwrap().to_owned() + "\n  {\n    \"a\": 3\n  }\n]", "1 3", 1),
            (objects.replacen("\n    {\n      \"b\": []\n    }\n  ]\n}", "", 1), "1 3", 1),
            ("[{\"a\": 1}, 7, {\"a\": 3}]".to_owned(), "1 3", 1),
        ] {
            let mut found = Vec::new();
            let read = each_record(&mut text.as_bytes(), |record| found.push(record["a"].to_string()));
            assert_eq!((found.join(" ").as_str(), read.unwrap().unreadable), (expected, unreadable), "{text}");
        }
    }

    #[test]
    fn a_record_that_is_too_long_costs_itself() {
        let long = || "x".repeat(LONGEST_RECORD);
        for text in [
            format!("{{\"a\":1}}\n{{\"a\":\"{}\"}}\n{{\"a\":3}}\n", long()),
            format!("[{{\"a\":1}},{{\"a\":\"{}\"}},{{\"a\":3}}]", long()),
            format!("{{\"a\":\"{}\"}}\n{{\"a\":1}}\n{{\"a\":3}}", long()),
        ] {
            let mut found = Vec::new();
            let read = each_record(&mut text.as_bytes(), |record| found.push(record["a"].to_string()));
            assert_eq!((found.join(" ").as_str(), read.unwrap().unreadable), ("1 3", 1), "{}", &text[..9]);
        }
    }

    #[test]
    fn a_record_or_a_document_with_too_many_values_costs_itself() {
        let many = |count: usize| format!("[0{}]", ",0".repeat(count));
        let text = format!("{{\"a\":1}}\n{{\"a\":{}}}\n{{\"a\":3}}\n", many(RECORD_VALUES));
        let mut found = Vec::new();
        let read = each_record(&mut text.as_bytes(), |record| found.push(record["a"].to_string()));
        assert_eq!((found.join(" ").as_str(), read.unwrap().unreadable), ("1 3", 1));
        let text = format!("{{\"a\":{}}}", many(DOCUMENT_VALUES));
        let read = each_document(&mut text.as_bytes(), |_| panic!("it is read"));
        assert_eq!(read.unwrap().unreadable, 1);
        let refused = damaged_document(text.as_bytes()).unwrap_err();
        assert!(refused.contains("16000000 values"), "{refused}");
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
            assert_eq!(each_document(&mut text.as_bytes(), |record| records.push(record)), Ok(damage), "{text}");
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
            let damage = each_document(&mut text.as_bytes(), |record| {
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
