//! A parsed document of TOML or JSON. Types are read from it, so that the code that reads a type is compiled once; with
//! the deserializers of the two crates it would be once for each.

mod deserializer;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt::{self, Display};

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::files::{RECORD_VALUES, has_more_values};
use crate::location::PathStep;

/// A value of TOML or JSON.
#[derive(Debug)]
pub enum Document {
    /// `null` of JSON.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer from 0.
    Unsigned(u64),
    /// An integer below 0.
    Negative(i64),
    /// Another number; TOML has infinite ones and NaN.
    Float(f64),
    /// A text, or a date of TOML.
    Text(String),
    /// An array.
    List(Vec<Document>),
    /// A table of TOML, an object of JSON, in its order.
    Table(Vec<(String, Document)>),
}

impl From<toml::Value> for Document {
    fn from(value: toml::Value) -> Self {
        use toml::Value;
        match value {
            Value::String(text) => Self::Text(text),
            Value::Integer(number) => u64::try_from(number).map_or(Self::Negative(number), Self::Unsigned),
            Value::Float(number) => Self::Float(number),
            Value::Boolean(value) => Self::Bool(value),
            Value::Datetime(date) => Self::Text(date.to_string()),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Table(fields) => Self::Table(fields.into_iter().map(|(name, value)| (name, value.into())).collect()),
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Document;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Document, E> {
                Ok(Document::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
                Ok(Document::Bool(value))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Document, E> {
                Ok(Document::Unsigned(number))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Document, E> {
                Ok(u64::try_from(number).map_or(Document::Negative(number), Document::Unsigned))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Document, E> {
                Ok(Document::Float(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Document, E> {
                Ok(Document::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Document, E> {
                Ok(Document::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Document, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = input.next_element()? {
                    items.push(item);
                }
                Ok(Document::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Document, A::Error> {
                let mut fields: Vec<(String, Document)> = Vec::new();
                let mut names = HashSet::new();
                while let Some((name, value)) = input.next_entry::<String, Document>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format_args!("`{name}` appears twice")));
                    }
                    fields.push((name, value));
                }
                Ok(Document::Table(fields))
            }
        }

        input.deserialize_any(Any)
    }
}

/// The error of a text with more values than a record may have.
fn too_many<E: Error>() -> E {
    E::custom(format_args!("it has more than {RECORD_VALUES} values"))
}

impl Document {
    /// Parses a text of JSON.
    ///
    /// # Errors
    /// If the text is not JSON, has more than [`RECORD_VALUES`] values, or an object of it has a field twice.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        if has_more_values(text.as_bytes(), RECORD_VALUES) {
            return Err(too_many());
        }
        serde_json::from_str(text)
    }

    /// Parses a text of TOML.
    ///
    /// # Errors
    /// If the text is not TOML, has an integer from 2^63, or more than [`RECORD_VALUES`] signs that separate values.
    pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
        // Also in texts, whose ends only a parser finds.
        let signs = || text.bytes().filter(|byte| matches!(byte, b',' | b'=' | b'[' | b'{')).count();
        if text.len() > RECORD_VALUES && signs() > RECORD_VALUES {
            return Err(too_many());
        }
        let table: toml::Table = text.parse()?;
        Ok(toml::Value::Table(table).into())
    }

    /// The number of values in it: itself, and all in its lists and tables.
    pub fn values(&self) -> usize {
        let (mut count, mut waiting) = (0, vec![self]);
        while let Some(value) = waiting.pop() {
            count += 1;
            match value {
                Self::List(items) => waiting.extend(items),
                Self::Table(fields) => waiting.extend(fields.iter().map(|(_, value)| value)),
                _ => {}
            }
        }
        count
    }

    /// The field `name`, if this is a table that has it.
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Self::Table(fields) = self else {
            return None;
        };
        let field = fields.iter().find(|(field, _)| field == name);
        field.map(|(_, value)| value)
    }

    /// The unsigned integer in the field `name`, if this is a table that has it.
    pub fn unsigned(&self, name: &str) -> Option<u64> {
        match self.field(name) {
            Some(Self::Unsigned(number)) => Some(*number),
            _ => None,
        }
    }

    /// Reads it as a `T`.
    ///
    /// # Errors
    /// [`Mismatch`] if it has another form.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, Mismatch> {
        T::deserialize(self)
    }
}

/// A document that is not what was expected: where, and why.
#[derive(Debug)]
pub struct Mismatch(Box<LocatedError>);

#[derive(Debug)]
struct LocatedError {
    message: String,
    /// The innermost step first.
    path: Vec<OwnedStep>,
}

#[derive(Debug)]
enum OwnedStep {
    Field(String),
    Item(usize),
}

impl Mismatch {
    /// Why, without the place.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The steps from the root of the document to the place.
    pub fn path(&self) -> Vec<PathStep<'_>> {
        let steps = self.0.path.iter().rev();
        steps
            .map(|step| match step {
                OwnedStep::Field(name) => PathStep::Field(name),
                OwnedStep::Item(number) => PathStep::Item(*number),
            })
            .collect()
    }

    /// The path as text, as in `cells[3].name`; empty for the whole document.
    pub fn field(&self) -> String {
        let mut text = String::new();
        for step in self.path() {
            step.append_to(&mut text);
        }
        text
    }

    fn below(mut self, step: OwnedStep) -> Self {
        self.0.path.push(step);
        self
    }
}

impl Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field() {
            whole if whole.is_empty() => f.write_str(self.message()),
            field => write!(f, "{field}: {}", self.message()),
        }
    }
}

impl std::error::Error for Mismatch {}

impl Error for Mismatch {
    fn custom<T: Display>(message: T) -> Self {
        Self(Box::new(LocatedError { message: message.to_string(), path: Vec::new() }))
    }
}
