//! Documents of TOML and JSON: their limits, and errors with the path of the field.

#[cfg(test)]
mod tests;

use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};
use serde_path_to_error::{Path, Segment};

use crate::files::{RECORD_VALUES, has_more_values};
use crate::location::PathStep;

/// Parses a text of JSON.
///
/// # Errors
/// If the text is not JSON, has more than [`RECORD_VALUES`] values, or an object of it has a field twice.
pub fn parse_json(text: &str) -> serde_json::Result<Value> {
    if has_more_values(text.as_bytes(), RECORD_VALUES) {
        return Err(too_many());
    }
    let Unique(value) = serde_json::from_str(text)?;
    Ok(value)
}

/// Parses a text of TOML to a value of JSON. A date without quotes is text.
///
/// # Errors
/// If the text is not TOML, has an integer from 2^63, an infinite number or NaN, or more than [`RECORD_VALUES`] signs
/// that separate values.
pub fn toml_as_json(text: &str) -> Result<Value, toml::de::Error> {
    let read = read_toml(toml_tree(text)?);
    read.map(|Unique(value)| value).map_err(Error::custom)
}

/// Parses a text of TOML.
///
/// # Errors
/// If the text is not TOML, has an integer from 2^63, or more than [`RECORD_VALUES`] signs that separate values.
pub(crate) fn toml_tree(text: &str) -> Result<toml::Value, toml::de::Error> {
    // Also in texts, whose ends only a parser finds.
    let signs = || text.bytes().filter(|byte| matches!(byte, b',' | b'=' | b'[' | b'{')).count();
    if text.len() > RECORD_VALUES && signs() > RECORD_VALUES {
        return Err(too_many());
    }
    let table: toml::Table = text.parse()?;
    Ok(toml::Value::Table(table))
}

/// The error of a text with more values than a record may have.
fn too_many<E: Error>() -> E {
    E::custom(format_args!("it has more than {RECORD_VALUES} values"))
}

/// The number of values in a tree: itself, and all in its arrays and tables.
pub(crate) fn values(tree: &toml::Value) -> usize {
    let below: usize = match tree {
        toml::Value::Array(items) => items.iter().map(values).sum(),
        toml::Value::Table(fields) => fields.values().map(values).sum(),
        _ => 0,
    };
    1 + below
}

/// Reads a value as a `T`.
///
/// # Errors
/// [`Mismatch`] if it has another form.
pub fn read_value<T: DeserializeOwned>(value: Value) -> Result<T, Mismatch> {
    read(value, |error: &serde_json::Error| error.to_string())
}

/// As [`read_value`], of TOML. A date without quotes is text, and an empty table may be a variant without fields.
pub(crate) fn read_toml<T: DeserializeOwned>(tree: toml::Value) -> Result<T, Mismatch> {
    read(tree, |error: &toml::de::Error| error.message().to_owned())
}

fn read<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    input: D,
    message: impl Fn(&D::Error) -> String,
) -> Result<T, Mismatch> {
    let read = serde_path_to_error::deserialize(input);
    read.map_err(|error| Mismatch { path: error.path().clone(), message: message(error.inner()) })
}

/// A document that is not what was expected: where, and why.
#[derive(Debug)]
pub struct Mismatch {
    path: Path,
    message: String,
}

impl Mismatch {
    /// The steps from the root of the document to the place. The first key that is not a text ends them.
    pub(crate) fn path(&self) -> Vec<PathStep<'_>> {
        let steps = self.path.iter().map_while(|segment| match segment {
            Segment::Seq { index } => Some(PathStep::Item(*index)),
            Segment::Map { key } | Segment::Enum { variant: key } => Some(PathStep::Field(key)),
            Segment::Unknown => None,
        });
        steps.collect()
    }

    /// The path as text, as in `cells[3].name`; empty for the whole document.
    fn field(&self) -> String {
        let mut text = String::new();
        for step in self.path() {
            step.append_to(&mut text);
        }
        text
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field();
        if field.is_empty() || self.message.contains(&format!("`{field}`")) {
            f.write_str(&self.message)
        } else {
            write!(f, "field `{field}`: {}", self.message)
        }
    }
}

impl std::error::Error for Mismatch {}

/// A value whose objects have each field once, and whose numbers are finite. `serde_json` would keep the last of two
/// fields, and make `null` of an infinite number.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Unique;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Unique, E> {
                Ok(Unique(Value::Null))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Unique, E> {
                Ok(Unique(value.into()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Unique, E> {
                Ok(Unique(number.into()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Unique, E> {
                Ok(Unique(number.into()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Unique, E> {
                let finite = Number::from_f64(number).map(|number| Unique(Value::Number(number)));
                finite.ok_or_else(|| E::custom(format_args!("the number {number} is out of range")))
            }

            fn visit_str<E>(self, text: &str) -> Result<Unique, E> {
                Ok(Unique(text.into()))
            }

            fn visit_string<E>(self, text: String) -> Result<Unique, E> {
                Ok(Unique(text.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Unique, A::Error> {
                let mut items = Vec::new();
                while let Some(Unique(item)) = input.next_element()? {
                    items.push(item);
                }
                Ok(Unique(items.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Unique, A::Error> {
                let mut fields = Map::new();
                while let Some((name, Unique(value))) = input.next_entry::<String, Unique>()? {
                    match fields.entry(name) {
                        Entry::Vacant(field) => field.insert(value),
                        Entry::Occupied(field) => {
                            return Err(A::Error::custom(format_args!("`{}` appears twice", field.key())));
                        }
                    };
                }
                Ok(Unique(fields.into()))
            }
        }

        input.deserialize_any(Any)
    }
}
