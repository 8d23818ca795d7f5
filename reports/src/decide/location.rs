//! The line of a field in a TOML document, for errors about its meaning.

use std::path::Path;

use inputs::InputError;
use toml::de::{DeTable, DeValue};

/// A step into a TOML document.
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    Field(&'a str),
    Item(usize),
    /// The only field of a table.
    Any,
}

/// An error at a position in a document. Without the last field, the line is that of its table.
pub(super) fn error(file: &Path, text: &str, path: &[Step<'_>], message: &str) -> InputError {
    let mut field = String::new();
    let mut at = None;
    let document = DeTable::parse(text).ok();
    let mut value = document.as_ref().map(|document| {
        let document = document.get_ref();
        TomlNode::Table(document)
    });
    for step in path {
        let next = value.and_then(|node| node.below(step));
        match step {
            Step::Field(name) if field.is_empty() => field += name,
            Step::Field(name) => field += &format!(".{name}"),
            Step::Item(number) => field += &format!("[{number}]"),
            Step::Any => {
                if let Some((name, ..)) = next {
                    field += &format!(".{name}");
                }
            }
        }
        if let Some((_, start, _)) = next {
            at = Some(start);
        }
        value = next.map(|(_, _, node)| node);
    }
    let message = format!("field `{field}`: {message}");
    match at {
        Some(start) => InputError::at(file, text[..start].matches('\n').count() + 1, message),
        None => InputError::whole(file, message),
    }
}

#[derive(Clone, Copy)]
enum TomlNode<'a> {
    Table(&'a DeTable<'a>),
    Value(&'a DeValue<'a>),
}

impl<'a> TomlNode<'a> {
    /// The node below this one: its name, the byte where it starts, and itself.
    fn below(self, step: &Step<'_>) -> Option<(&'a str, usize, TomlNode<'a>)> {
        let table = match self {
            TomlNode::Table(table) => Some(table),
            TomlNode::Value(DeValue::Table(table)) => Some(table),
            TomlNode::Value(_) => None,
        };
        let entry = match step {
            Step::Item(number) => {
                let TomlNode::Value(DeValue::Array(items)) = self else {
                    return None;
                };
                let item = items.get(*number)?;
                return Some(("", item.span().start, TomlNode::Value(item.get_ref())));
            }
            Step::Any => table?.iter().next(),
            Step::Field(name) => table?.iter().find(|(key, _)| key.get_ref() == name),
        };
        let (key, value) = entry?;
        Some((
            key.get_ref(),
            key.span().start,
            TomlNode::Value(value.get_ref()),
        ))
    }
}
