//! Reads the common fields of records: texts, arguments, times and numbers of tokens. [`super::records`] reads the
//! records.

use std::io::BufRead;

use serde_json::Value;

use super::records::Damage;
use super::text;

/// Reads a whole document. Of one that is cut off, the last element of its innermost list is missing.
///
/// # Errors
/// If it is not valid JSON.
pub fn document(input: &mut dyn BufRead) -> Result<(Value, Damage), String> {
    let mut bytes = Vec::new();
    let read = input.read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    super::records::damaged_document(&bytes)
}

/// Reads a whole file as text.
///
/// # Errors
/// If it cannot be read.
pub fn whole(input: &mut dyn BufRead) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = input.read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
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

/// Dollars that a source states. No session costs more than the bound.
pub(super) fn stated_dollars(dollars: f64) -> Option<f64> {
    (0.0..=1e9).contains(&dollars).then_some(dollars)
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
