//! Mutations of valid inputs: of bytes, and of the values of JSON and TOML documents.

use rand::RngExt;
use serde_json::{Map, Number, Value};

use crate::Rng;

/// Pieces that parsers treat in a special way.
const TOKENS: [&[u8]; 24] = [
    b"\0",
    b"\n",
    b"\r\n",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"{",
    b"}",
    b"[",
    b"]",
    b"../",
    b"/",
    b"null",
    b"-1",
    b"1e308",
    b"18446744073709551616",
    b"0.0",
    b"{{",
    b"}}",
    b"\x1b[2J",
    b"=1+1",
];

/// Numbers at the borders of types.
const NUMBERS: [f64; 10] =
    [0.0, -1.0, 1e308, -1e308, 5e-324, 0.1, 2147483648.0, 4294967296.0, 9007199254740993.0, 18446744073709551615.0];

/// A chosen seed.
pub fn pick<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.random_range(0..of.len())]
}

/// Changes bytes at one to eight places.
pub fn bytes(rng: &mut Rng, seed: &[u8]) -> Vec<u8> {
    let mut input = seed.to_vec();
    for _ in 0..rng.random_range(1..=8) {
        let length = input.len();
        let at = rng.random_range(0..=length);
        let end = (at + rng.random_range(0..=64)).min(length);
        match rng.random_range(0..7) {
            0 if length > 0 => input[at.min(length - 1)] ^= 1 << rng.random_range(0..8),
            1 if length > 0 => input[at.min(length - 1)] = rng.random_range(0..=255),
            2 => {
                input.drain(at..end);
            }
            3 => {
                let piece = input[at..end].to_vec();
                let to = rng.random_range(0..=length);
                input.splice(to..to, piece);
            }
            4 => {
                input.splice(at..at, pick(rng, &TOKENS).iter().copied());
            }
            5 => input.truncate(at),
            _ => input[at..end].fill(0),
        }
    }
    input
}

/// A value that a field does not expect.
fn value(rng: &mut Rng) -> Value {
    match rng.random_range(0..11) {
        0 => Value::Null,
        1 => Value::Bool(rng.random()),
        2 => Number::from_f64(*pick(rng, &NUMBERS)).map_or(Value::Null, Value::Number),
        3 => Value::from(*pick(rng, &[0_u64, 1, 1 << 31, 1 << 32, 1 << 45, 1 << 63, u64::MAX])),
        4 => Value::from(*pick(rng, &[-1_i64, i64::MIN, -86_400_000])),
        5 => Value::String(String::new()),
        6 => {
            let token = *pick::<&[u8]>(rng, &TOKENS);
            Value::String(String::from_utf8_lossy(token).repeat(rng.random_range(1..=300)))
        }
        7 => Value::String("../../../etc/passwd".to_owned()),
        8 => Value::Array(vec![Value::Null; rng.random_range(0..=3)]),
        9 => Value::Object(Map::from_iter([("type".to_owned(), Value::Null)])),
        _ => (0..rng.random_range(1..=200)).fold(Value::Null, |inner, _| Value::Array(vec![inner])),
    }
}

/// The number of nodes below and with a value.
fn nodes(of: &Value) -> usize {
    1 + match of {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(fields) => fields.values().map(nodes).sum(),
        _ => 0,
    }
}

/// The node at a place in the order of [`nodes`].
fn node<'a>(of: &'a mut Value, place: &mut usize) -> Option<&'a mut Value> {
    if *place == 0 {
        return Some(of);
    }
    *place -= 1;
    match of {
        Value::Array(items) => items.iter_mut().find_map(|item| node(item, place)),
        Value::Object(fields) => fields.values_mut().find_map(|field| node(field, place)),
        _ => None,
    }
}

/// Replaces, removes, doubles or renames one to four nodes of a document.
pub fn document(rng: &mut Rng, seed: &Value) -> Value {
    let mut document = seed.clone();
    for _ in 0..rng.random_range(1..=4) {
        let mut place = rng.random_range(0..nodes(&document));
        let Some(chosen) = node(&mut document, &mut place) else {
            continue;
        };
        let choice = rng.random_range(0..4);
        match chosen {
            Value::Array(items) if choice == 0 && !items.is_empty() => {
                let again = pick(rng, items).clone();
                items.extend(vec![again; rng.random_range(1..=20)]);
            }
            Value::Array(items) if choice == 1 => items.clear(),
            Value::Object(fields) if choice < 3 && !fields.is_empty() => {
                let keys: Vec<String> = fields.keys().cloned().collect();
                let removed = fields.remove(pick(rng, &keys));
                if choice == 0 {
                    fields.insert("unknown".to_owned(), removed.unwrap_or_default());
                }
            }
            other => *other = value(rng),
        }
    }
    document
}

/// Changes one to three of the lines of a file of JSON lines: as documents, as bytes, or their order.
pub fn json_lines(rng: &mut Rng, seed: &[u8]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = seed.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    for _ in 0..rng.random_range(1..=3) {
        let at = rng.random_range(0..lines.len());
        let parsed = serde_json::from_slice::<Value>(&lines[at]).ok();
        match (rng.random_range(0..6), parsed) {
            (0..=2, Some(parsed)) => {
                lines[at] = document(rng, &parsed).to_string().into_bytes();
            }
            (3, _) => {
                let to = rng.random_range(0..lines.len());
                lines.swap(at, to);
            }
            (4, _) => {
                let again = lines[at].clone();
                lines.insert(at, again);
            }
            _ => lines[at] = bytes(rng, &lines[at]),
        }
    }
    lines.join(&b'\n')
}

/// Changes a JSON document, or its bytes.
pub fn json(rng: &mut Rng, seed: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<Value>(seed) {
        Ok(parsed) if rng.random_range(0..4) > 0 => document(rng, &parsed).to_string().into_bytes(),
        _ => bytes(rng, seed),
    }
}

/// Changes a TOML document, or its bytes.
pub fn toml(rng: &mut Rng, seed: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(seed);
    if rng.random_range(0..4) > 0
        && let Ok(parsed) = toml::from_str::<Value>(&text)
        && let Ok(changed) = toml::to_string(&without_null(document(rng, &parsed)))
    {
        return changed.into_bytes();
    }
    bytes(rng, seed)
}

/// TOML has no null.
fn without_null(value: Value) -> Value {
    match value {
        Value::Null => Value::String(String::new()),
        Value::Array(items) => items.into_iter().map(without_null).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields.map(|(key, value)| (key, without_null(value))).collect()
        }
        other => other,
    }
}
