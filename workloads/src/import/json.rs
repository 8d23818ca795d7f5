//! Reads the records of a recording: JSON lines, one by one, or one document.
//! What can be mended is mended: a byte order mark, glued records, half of a surrogate pair. The rest is counted.

use std::io::{BufRead, Read};

use serde_json::Value;

use super::text;

/// The longest line of a recording, in bytes.
const LONGEST_LINE: u64 = 256 << 20;

/// Calls `each` with every record of a file of JSON lines. Returns how many lines could not be read whole.
///
/// # Errors
/// If the file cannot be read, or has a line that is too long.
pub fn each_line(input: &mut dyn BufRead, mut each: impl FnMut(Value)) -> Result<u64, String> {
    let mut bytes = Vec::new();
    let mut unreadable = 0;
    loop {
        bytes.clear();
        let mut limited = input.take(LONGEST_LINE);
        let read = limited.read_until(b'\n', &mut bytes);
        let read = read.map_err(|error| format!("cannot be read: {error}"))?;
        if read == 0 {
            return Ok(unreadable);
        }
        if read as u64 == LONGEST_LINE {
            return Err(format!("has a line longer than {LONGEST_LINE} bytes"));
        }
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() {
            continue;
        }
        match serde_json::from_str::<Value>(line) {
            Ok(record) => each(record),
            Err(_) => unreadable += mended(line, &mut each),
        }
    }
}

/// Reads what is readable in a line that is not valid JSON. Returns 1 if a part of it is lost.
fn mended(line: &str, each: &mut impl FnMut(Value)) -> u64 {
    let line = without_half_pairs(line);
    let mut records = serde_json::Deserializer::from_str(&line).into_iter::<Value>();
    let mut lost = 0;
    let mut start = 0;
    loop {
        match records.next() {
            Some(Ok(record)) => each(record),
            None => return lost,
            Some(Err(_)) => {
                lost = 1;
                // A record cut off in its middle: the next one begins at the next brace that begins a record.
                let from = start + records.byte_offset();
                let next = line.get(from + 1..).and_then(|rest| rest.find("{\""));
                let Some(next) = next.map(|next| from + 1 + next) else {
                    return lost;
                };
                let rest = &line[next..];
                if serde_json::from_str::<serde::de::IgnoredAny>(rest).is_err() {
                    return lost;
                }
                start = next;
                records = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            }
        }
    }
}

/// Replaces halves of surrogate pairs, which JavaScript writes and JSON forbids, by the replacement character.
fn without_half_pairs(line: &str) -> String {
    let half = |at: usize| -> Option<u16> {
        let escape = line.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(escape, 16).ok()
    };
    let mut clean = String::with_capacity(line.len());
    let mut at = 0;
    while let Some(found) = line[at..].find('\\') {
        clean.push_str(&line[at..at + found]);
        at += found;
        let (high, low) = (half(at), half(at + 6));
        let is_high = high.is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
        let is_low = |unit: Option<u16>| unit.is_some_and(|unit| (0xdc00..0xe000).contains(&unit));
        let length = match (is_high, is_low(low)) {
            (true, true) => 12,
            _ if high.is_some() => 6,
            _ => 1 + line[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
        match is_high && length == 6 || is_low(high) {
            true => clean.push_str("\\ufffd"),
            false => clean.push_str(&line[at..at + length]),
        }
        at += length;
    }
    clean.push_str(&line[at..]);
    clean
}

/// Reads a whole document.
///
/// # Errors
/// If it is not valid JSON.
pub fn document(input: &mut dyn BufRead) -> Result<Value, String> {
    let text = whole(input)?;
    let text = text.trim_start_matches('\u{feff}');
    serde_json::from_str(text)
        .or_else(|error| serde_json::from_str(&without_half_pairs(text)).map_err(|_| error))
        .map_err(|error| format!("is not JSON: {error}"))
}

/// Reads a whole file as text.
///
/// # Errors
/// If it cannot be read.
pub fn whole(input: &mut dyn BufRead) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = input.read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The text of a message or a result: a string, a list of blocks with `text`, or an object with one.
pub(super) fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| match block {
                Value::String(text) => Some(text.as_str()),
                block => text(block, "text").or_else(|| text(block, "content")),
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Object(_) => ["text", "output", "content", "result"]
            .iter()
            .find_map(|key| text(value, key))
            .map_or_else(|| value.to_string(), str::to_owned),
        _ => String::new(),
    }
}

/// The arguments of a call, which some formats write as a text of JSON.
pub(super) fn arguments(value: &Value) -> Value {
    match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
        value => value.clone(),
    }
}

/// Milliseconds since 1970 of a time in words (`2026-02-09T08:12:58.677Z`, without a zone: UTC), or of a number of seconds,
/// milliseconds, microseconds or nanoseconds.
pub(super) fn milliseconds(time: &Value) -> Option<i64> {
    match time {
        Value::String(text) => {
            if let Ok(time) = text.parse::<jiff::Timestamp>() {
                return Some(time.as_millisecond());
            }
            if let Ok(number) = text.parse::<f64>() {
                return Some(scaled(number));
            }
            let time: jiff::civil::DateTime = text.parse().ok()?;
            let zoned = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
            Some(zoned.timestamp().as_millisecond())
        }
        Value::Number(number) => number.as_f64().map(scaled),
        _ => None,
    }
}

/// A number of tokens. No session has more than the bound, so that sums of a few cannot overflow.
pub(super) fn token_count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0).min(1 << 50)
}

fn scaled(number: f64) -> i64 {
    let milliseconds = match number.abs() {
        seconds if seconds < 1e11 => number * 1e3,
        milliseconds if milliseconds < 1e14 => number,
        microseconds if microseconds < 1e17 => number / 1e3,
        _ => number / 1e6,
    };
    milliseconds as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<String>, u64) {
        let mut records = Vec::new();
        let lost = each_line(&mut text.as_bytes(), |record| {
            records.push(record.to_string())
        });
        (records, lost.unwrap())
    }

    #[test]
    fn every_record_that_can_be_read_is_read_and_the_others_are_counted() {
        for (text, records, lost) in [
            (
                "\u{feff}{\"a\":1}\r\n\r\n{\"b\":2}",
                &["{\"a\":1}", "{\"b\":2}"][..],
                0,
            ),
            ("{\"a\":1}{\"b\":2}\n", &["{\"a\":1}", "{\"b\":2}"], 0),
            (
                "{\"a\":\"x{\"b\":2}\n{\"c\":3}",
                &["{\"b\":2}", "{\"c\":3}"],
                1,
            ),
            ("{\"a\":\n{\"c\":3}", &["{\"c\":3}"], 1),
            (r#"{"a":"\ud83d"}"#, &["{\"a\":\"\u{fffd}\"}"], 0),
            (
                r#"{"a":"\\ud83d \ud83d\ude00 \ude00"}"#,
                &["{\"a\":\"\\\\ud83d \u{1f600} \u{fffd}\"}"],
                0,
            ),
            ("no\n[1]\n", &["[1]"], 1),
        ] {
            let (found, counted) = read(text);
            assert_eq!(
                (
                    found.iter().map(String::as_str).collect::<Vec<_>>(),
                    counted
                ),
                (records.to_vec(), lost),
                "{text}"
            );
        }
    }

    #[test]
    fn a_time_is_read_in_words_and_in_any_unit() {
        use serde_json::json;
        let expected = Some(1_769_000_000_000);
        for time in [
            json!("2026-01-21T12:53:20Z"),
            json!("2026-01-21T12:53:20"),
            json!(1_769_000_000),
            json!(1_769_000_000_000_u64),
            json!("1769000000000000000"),
        ] {
            assert_eq!(milliseconds(&time), expected, "{time}");
        }
    }
}
