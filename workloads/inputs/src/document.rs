//! A parsed document of TOML or JSON, and its deserializer, whose error knows the place. The code that reads a type is
//! compiled once; with the deserializers of the two crates it would be once for each.

use std::collections::HashSet;
use std::fmt::{self, Display};
use std::{mem, vec};

use serde::de::value::StrDeserializer;
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, Expected,
    MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::PathStep;

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

impl From<serde_json::Value> for Document {
    fn from(value: serde_json::Value) -> Self {
        use serde_json::Value;
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => Self::Unsigned(number),
                (_, Some(number), _) => Self::Negative(number),
                (_, _, Some(number)) => Self::Float(number),
                // Of a size that no type here has; as a text it is refused with its digits.
                (None, None, None) => Self::Text(number.to_string()),
            },
            Value::String(text) => Self::Text(text),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Object(fields) => Self::Table(
                fields
                    .into_iter()
                    .map(|(name, value)| (name, value.into()))
                    .collect(),
            ),
        }
    }
}

impl From<toml::Value> for Document {
    fn from(value: toml::Value) -> Self {
        use toml::Value;
        match value {
            Value::String(text) => Self::Text(text),
            Value::Integer(number) => {
                u64::try_from(number).map_or(Self::Negative(number), Self::Unsigned)
            }
            Value::Float(number) => Self::Float(number),
            Value::Boolean(value) => Self::Bool(value),
            Value::Datetime(date) => Self::Text(date.to_string()),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Table(fields) => Self::Table(
                fields
                    .into_iter()
                    .map(|(name, value)| (name, value.into()))
                    .collect(),
            ),
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
                        return Err(A::Error::custom(format_args!("`{name}` is there twice")));
                    }
                    fields.push((name, value));
                }
                Ok(Document::Table(fields))
            }
        }

        input.deserialize_any(Any)
    }
}

impl Document {
    /// Parses a text of JSON.
    ///
    /// # Errors
    /// If it is none, or has a field twice.
    pub fn from_json(text: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(text)
    }

    /// The unsigned integer in the field `name`, if this is a table that has it.
    pub fn unsigned(&self, name: &str) -> Option<u64> {
        let Self::Table(fields) = self else {
            return None;
        };
        let field = fields.iter().find(|(field, _)| field == name);
        field.and_then(|(_, value)| match value {
            Self::Unsigned(number) => Some(*number),
            _ => None,
        })
    }

    /// Reads it as a `T`.
    ///
    /// # Errors
    /// [`Mismatch`] if it has another form.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, Mismatch> {
        T::deserialize(self)
    }

    fn mismatch(&self, expected: &dyn Expected) -> Mismatch {
        let found = match self {
            Self::Null => Unexpected::Other("null"),
            Self::Bool(value) => Unexpected::Bool(*value),
            Self::Unsigned(number) => Unexpected::Unsigned(*number),
            Self::Negative(number) => Unexpected::Signed(*number),
            Self::Float(number) => Unexpected::Float(*number),
            Self::Text(text) => Unexpected::Str(text),
            Self::List(_) => Unexpected::Seq,
            Self::Table(_) => Unexpected::Map,
        };
        Mismatch::invalid_type(found, expected)
    }
}

/// A document that is not what was expected: where, and why.
#[derive(Debug)]
pub struct Mismatch(Box<Located>);

#[derive(Debug)]
struct Located {
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
        for step in self.0.path.iter().rev() {
            text += &match step {
                OwnedStep::Field(name) if text.is_empty() => name.clone(),
                OwnedStep::Field(name) => format!(".{name}"),
                OwnedStep::Item(number) => format!("[{number}]"),
            };
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
        Self(Box::new(Located {
            message: message.to_string(),
            path: Vec::new(),
        }))
    }
}

/// The names of an enum's variants.
struct OneOf(&'static [&'static str]);

impl Expected for OneOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|name| format!("`{name}`")).collect();
        write!(
            f,
            "one of {}, or a table with one of them",
            names.join(", ")
        )
    }
}

/// The methods for one kind of value: the others refuse it without code of their own for each visitor.
macro_rules! only {
    ($($method:ident: $($kind:ident => $visit:ident)|+;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
            match self {
                $(Document::$kind(value) => visitor.$visit(value),)+
                other => Err(other.mismatch(&visitor)),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Document {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self {
            Self::Null => visitor.visit_unit(),
            Self::Bool(value) => visitor.visit_bool(value),
            Self::Unsigned(number) => visitor.visit_u64(number),
            Self::Negative(number) => visitor.visit_i64(number),
            Self::Float(number) => visitor.visit_f64(number),
            Self::Text(text) => visitor.visit_string(text),
            Self::List(items) => visit_list(items, visitor),
            Self::Table(fields) => visitor.visit_map(Fields::new(fields)),
        }
    }

    only! {
        deserialize_bool: Bool => visit_bool;
        deserialize_i8: Unsigned => visit_u64 | Negative => visit_i64;
        deserialize_i16: Unsigned => visit_u64 | Negative => visit_i64;
        deserialize_i32: Unsigned => visit_u64 | Negative => visit_i64;
        deserialize_i64: Unsigned => visit_u64 | Negative => visit_i64;
        deserialize_u8: Unsigned => visit_u64 | Negative => visit_i64;
        deserialize_u16: Unsigned => visit_u64 | Negative => visit_i64;
        deserialize_u32: Unsigned => visit_u64 | Negative => visit_i64;
        deserialize_u64: Unsigned => visit_u64 | Negative => visit_i64;
        deserialize_f32: Float => visit_f64 | Unsigned => visit_u64 | Negative => visit_i64;
        deserialize_f64: Float => visit_f64 | Unsigned => visit_u64 | Negative => visit_i64;
        deserialize_char: Text => visit_string;
        deserialize_str: Text => visit_string;
        deserialize_string: Text => visit_string;
        deserialize_identifier: Text => visit_string;
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self {
            Self::Null => visitor.visit_unit(),
            other => Err(other.mismatch(&visitor)),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self {
            Self::Null => visitor.visit_none(),
            other => visitor.visit_some(other),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self {
            Self::List(items) => visit_list(items, visitor),
            other => Err(other.mismatch(&visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self {
            Self::Table(fields) => visitor.visit_map(Fields::new(fields)),
            other => Err(other.mismatch(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        let (name, content) = match self {
            Self::Text(name) => (name, None),
            Self::Table(fields) => {
                let mut fields = fields.into_iter();
                match (fields.next(), fields.next()) {
                    (Some((name, content)), None) => (name, Some(content)),
                    _ => return Err(Mismatch::invalid_value(Unexpected::Map, &OneOf(variants))),
                }
            }
            other => return Err(other.mismatch(&OneOf(variants))),
        };
        visitor.visit_enum(Variant { name, content })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { bytes byte_buf }
}

fn visit_list<'de, V: Visitor<'de>>(
    items: Vec<Document>,
    visitor: V,
) -> Result<V::Value, Mismatch> {
    let all = items.len();
    let mut items = Items {
        items: items.into_iter(),
        next: 0,
    };
    let value = visitor.visit_seq(&mut items)?;
    match items.items.len() {
        0 => Ok(value),
        left => Err(Mismatch::invalid_length(
            all,
            &&*format!("a list of {}", all - left),
        )),
    }
}

struct Items {
    items: vec::IntoIter<Document>,
    next: usize,
}

impl<'de> SeqAccess<'de> for &mut Items {
    type Error = Mismatch;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Mismatch> {
        let Some(item) = self.items.next() else {
            return Ok(None);
        };
        self.next += 1;
        let value = seed.deserialize(item);
        value
            .map(Some)
            .map_err(|error| error.below(OwnedStep::Item(self.next - 1)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Fields {
    fields: vec::IntoIter<(String, Document)>,
    /// The field whose name was read last.
    name: String,
    value: Document,
}

impl Fields {
    fn new(fields: Vec<(String, Document)>) -> Self {
        Self {
            fields: fields.into_iter(),
            name: String::new(),
            value: Document::Null,
        }
    }

    fn at_field(&mut self, error: Mismatch) -> Mismatch {
        error.below(OwnedStep::Field(mem::take(&mut self.name)))
    }
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Mismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Mismatch> {
        let Some((name, value)) = self.fields.next() else {
            return Ok(None);
        };
        self.name = name;
        self.value = value;
        let key = seed.deserialize(Key(&self.name));
        key.map(Some).map_err(|error| self.at_field(error))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Mismatch> {
        let value = seed.deserialize(mem::replace(&mut self.value, Document::Null));
        value.map_err(|error| self.at_field(error))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}

/// A key, which may also be a number.
struct Key<'a>(&'a str);

macro_rules! numbers {
    ($($method:ident $visit:ident $number:ty;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
            match self.0.parse::<$number>() {
                // Not `+1` or `01`, which would be another key of the same number.
                Ok(number) if number.to_string() == self.0 => visitor.$visit(number),
                _ => visitor.visit_str(self.0),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Key<'_> {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_str(self.0)
    }

    numbers! {
        deserialize_i8 visit_i64 i64;
        deserialize_i16 visit_i64 i64;
        deserialize_i32 visit_i64 i64;
        deserialize_i64 visit_i64 i64;
        deserialize_u8 visit_u64 u64;
        deserialize_u16 visit_u64 u64;
        deserialize_u32 visit_u64 u64;
        deserialize_u64 visit_u64 u64;
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        StrDeserializer::new(self.0).deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

struct Variant {
    name: String,
    content: Option<Document>,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = Mismatch;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Mismatch> {
        let name = StrDeserializer::<Mismatch>::new(&self.name);
        Ok((seed.deserialize(name)?, self))
    }
}

impl Variant {
    fn content(&mut self, expected: &str) -> Result<Document, Mismatch> {
        let content = self.content.take();
        content.ok_or_else(|| Mismatch::invalid_type(Unexpected::UnitVariant, &expected))
    }

    fn within<T>(self, value: Result<T, Mismatch>) -> Result<T, Mismatch> {
        value.map_err(|error| error.below(OwnedStep::Field(self.name)))
    }
}

impl<'de> VariantAccess<'de> for Variant {
    type Error = Mismatch;

    fn unit_variant(self) -> Result<(), Mismatch> {
        match self.content {
            None | Some(Document::Null) => Ok(()),
            // TOML has no null.
            Some(Document::Table(fields)) if fields.is_empty() => Ok(()),
            Some(other) => {
                let error = other.mismatch(&"a variant without fields");
                Err(error.below(OwnedStep::Field(self.name)))
            }
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        mut self,
        seed: T,
    ) -> Result<T::Value, Mismatch> {
        let content = self.content("a variant with a value")?;
        let value = seed.deserialize(content);
        self.within(value)
    }

    fn tuple_variant<V: Visitor<'de>>(
        mut self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        let content = self.content("a variant with a list")?;
        let value = content.deserialize_seq(visitor);
        self.within(value)
    }

    fn struct_variant<V: Visitor<'de>>(
        mut self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        let content = self.content("a variant with fields")?;
        let value = content.deserialize_map(visitor);
        self.within(value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Everything {
        flag: bool,
        small: i8,
        large: u64,
        ratio: f64,
        letter: char,
        text: Option<String>,
        nothing: (),
        pair: (u8, String),
        list: Vec<Kind>,
        wrapped: Option<Wrapped>,
        by_number: BTreeMap<u16, bool>,
        by_kind: BTreeMap<Unit, i32>,
        tagged: Vec<Tagged>,
        untagged: Vec<Untagged>,
        flat: Flat,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Wrapped(i64);

    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    enum Unit {
        One,
        Other,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Unit,
        Value(i32),
        Pair(i32, i32),
        Fields { a: Option<u8> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind", deny_unknown_fields)]
    enum Tagged {
        A { a: u8 },
        B { b: Vec<Kind> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Number(f64),
        Text(String),
        Map(BTreeMap<String, u8>),
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Flat {
        own: u8,
        #[serde(flatten)]
        rest: BTreeMap<String, u8>,
    }

    /// What is read of a JSON text, and what `serde_json` reads.
    fn read(text: &str) -> (Result<Everything, Mismatch>, serde_json::Result<Everything>) {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        let parsed = format!("{:?}", Document::from_json(text.as_bytes()).unwrap());
        assert_eq!(parsed, format!("{:?}", Document::from(value.clone())));
        (
            Document::from(value.clone()).read(),
            serde_json::from_value(value),
        )
    }

    #[test]
    fn it_reads_what_serde_json_reads() {
        let accepted = [
            "{}",
            r#"{"flag": true, "small": -128, "large": 18446744073709551615, "ratio": 3, "letter": "ä"}"#,
            r#"{"ratio": -1.5, "text": null, "nothing": null, "pair": [7, "x"]}"#,
            r#"{"text": "", "list": ["Unit", {"Unit": null}, {"Value": -1}, {"Pair": [1, 2]}, {"Fields": {"a": 3}}, {"Fields": {}}]}"#,
            r#"{"wrapped": 5, "by_number": {"1": true, "65535": false}, "by_kind": {"Other": 1, "One": -1}}"#,
            r#"{"tagged": [{"kind": "A", "a": 1}, {"b": ["Unit"], "kind": "B"}], "untagged": [1, "x", {"y": 2}]}"#,
            r#"{"flat": {"own": 1, "x": 2, "y": 3}}"#,
        ];
        for text in accepted {
            let (ours, theirs) = read(text);
            assert_eq!(ours.unwrap(), theirs.unwrap(), "{text}");
        }
    }

    #[test]
    fn a_field_that_is_there_twice_is_refused() {
        let error = Document::from_json(br#"{"a": 1, "b": {"c": 1, "c": 2}}"#).unwrap_err();
        insta::assert_snapshot!(error, @"`c` is there twice at line 1 column 30");
    }

    #[test]
    fn a_mismatch_says_what_was_found_and_what_is_allowed() {
        let error = |text| read(text).0.unwrap_err().to_string();
        insta::assert_snapshot!(error(r#"{"large": null}"#), @"large: invalid type: null, expected u64");
        insta::assert_snapshot!(error(r#"{"by_kind": {"Two": 1}}"#), @"by_kind.Two: unknown variant `Two`, expected `One` or `Other`");
        insta::assert_snapshot!(error(r#"{"list": [5]}"#), @"list[0]: invalid type: integer `5`, expected one of `Unit`, `Value`, `Pair`, `Fields`, or a table with one of them");
    }

    #[test]
    fn a_list_is_no_struct() {
        let (ours, theirs) = read("[]");
        assert_eq!(theirs.unwrap(), Everything::default());
        let error = ours.unwrap_err().to_string();
        insta::assert_snapshot!(error, @"invalid type: sequence, expected struct Everything");
    }

    #[test]
    fn it_refuses_what_serde_json_refuses_and_says_where() {
        let refused = [
            ("0", ""),
            (r#"{"other": 1}"#, "other"),
            (r#"{"flag": 1}"#, "flag"),
            (r#"{"small": 128}"#, "small"),
            (r#"{"small": 1.0}"#, "small"),
            (r#"{"large": -1}"#, "large"),
            (r#"{"ratio": "1"}"#, "ratio"),
            (r#"{"letter": "ab"}"#, "letter"),
            (r#"{"text": 1}"#, "text"),
            (r#"{"nothing": 0}"#, "nothing"),
            (r#"{"pair": [7]}"#, "pair"),
            (r#"{"pair": [7, "x", 1]}"#, "pair"),
            (r#"{"pair": [7, 7]}"#, "pair[1]"),
            (r#"{"list": ["Unit", "None"]}"#, "list[1]"),
            (r#"{"list": ["Value"]}"#, "list[0]"),
            (r#"{"list": [{"Unit": 1}]}"#, "list[0].Unit"),
            (r#"{"list": [{"Value": 1, "Unit": null}]}"#, "list[0]"),
            (r#"{"list": [{"Pair": [1]}]}"#, "list[0].Pair"),
            (r#"{"list": [{"Fields": {"a": 256}}]}"#, "list[0].Fields.a"),
            (r#"{"by_number": {"x": true}}"#, "by_number.x"),
            (r#"{"by_number": {"65536": true}}"#, "by_number.65536"),
            (r#"{"by_number": {"+1": true}}"#, "by_number.+1"),
            (r#"{"by_number": {"01": true}}"#, "by_number.01"),
            (r#"{"by_kind": {"Two": 1}}"#, "by_kind.Two"),
            (
                r#"{"tagged": [{"kind": "A", "a": 1}, {"kind": "A"}]}"#,
                "tagged[1]",
            ),
            (
                r#"{"tagged": [{"kind": "A", "a": 1, "b": 1}]}"#,
                "tagged[0]",
            ),
            (r#"{"untagged": [true]}"#, "untagged[0]"),
            (r#"{"flat": {"own": 1, "x": 256}}"#, "flat"),
        ];
        for (text, place) in refused {
            let (ours, theirs) = read(text);
            theirs.unwrap_err();
            assert_eq!(ours.unwrap_err().field(), place, "{text}");
        }
    }
}
