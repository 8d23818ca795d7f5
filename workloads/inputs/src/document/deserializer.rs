//! Reads a type from a [`Document`]; an error knows the place.

use std::fmt::{self, Formatter};
use std::{mem, vec};

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, Expected, MapAccess, SeqAccess, Unexpected, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::{Document, Mismatch, OwnedStep};

impl Document {
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

/// The names of an enum's variants.
struct VariantNames(&'static [&'static str]);

impl Expected for VariantNames {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|name| format!("`{name}`")).collect();
        write!(f, "one of {}, or a table with one of them", names.join(", "))
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

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Mismatch> {
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

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Mismatch> {
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
                    _ => return Err(Mismatch::invalid_value(Unexpected::Map, &VariantNames(variants))),
                }
            }
            other => return Err(other.mismatch(&VariantNames(variants))),
        };
        visitor.visit_enum(Variant { name, content })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { bytes byte_buf }
}

fn visit_list<'de, V: Visitor<'de>>(items: Vec<Document>, visitor: V) -> Result<V::Value, Mismatch> {
    let all = items.len();
    let mut items = Items { items: items.into_iter(), next: 0 };
    let value = visitor.visit_seq(&mut items)?;
    match items.items.len() {
        0 => Ok(value),
        left => Err(Mismatch::invalid_length(all, &&*format!("a list of {}", all - left))),
    }
}

struct Items {
    items: vec::IntoIter<Document>,
    next: usize,
}

impl<'de> SeqAccess<'de> for &mut Items {
    type Error = Mismatch;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mismatch> {
        let Some(item) = self.items.next() else {
            return Ok(None);
        };
        self.next += 1;
        let value = seed.deserialize(item);
        value.map(Some).map_err(|error| error.below(OwnedStep::Item(self.next - 1)))
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
        Self { fields: fields.into_iter(), name: String::new(), value: Document::Null }
    }

    fn at_field(&mut self, error: Mismatch) -> Mismatch {
        error.below(OwnedStep::Field(mem::take(&mut self.name)))
    }
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Mismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mismatch> {
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

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(mut self, seed: T) -> Result<T::Value, Mismatch> {
        let content = self.content("a variant with a value")?;
        let value = seed.deserialize(content);
        self.within(value)
    }

    fn tuple_variant<V: Visitor<'de>>(mut self, _len: usize, visitor: V) -> Result<V::Value, Mismatch> {
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
