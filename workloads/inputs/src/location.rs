//! Where a field is in a TOML document.

use toml::de::{DeTable, DeValue};

/// A step into a TOML document.
#[derive(Clone, Copy, Debug)]
pub enum PathStep<'a> {
    /// The field with this name.
    Field(&'a str),
    /// The item at this position, counted from 0.
    Item(usize),
    /// The only field of a table.
    Any,
}

impl PathStep<'_> {
    /// Appends the step to a path as text: `cells`, `[3]`, `.name`. One without a name appends nothing.
    pub(crate) fn append_to(self, path: &mut String) {
        *path += &match self {
            Self::Field(name) if path.is_empty() => name.to_owned(),
            Self::Field(name) => format!(".{name}"),
            Self::Item(number) => format!("[{number}]"),
            Self::Any => String::new(),
        };
    }
}

/// A path as text, and the line of its last step that is in the document, counted from 1.
pub(crate) fn locate(text: &str, path: &[PathStep<'_>]) -> (String, Option<usize>) {
    let mut field = String::new();
    let mut at = None;
    let document = DeTable::parse(text).ok();
    let document = document.as_ref().map(|document| document.get_ref());
    let mut value = document.map(TomlNode::Table);
    for step in path {
        let next = value.and_then(|node| node.below(step));
        match (step, next) {
            (PathStep::Any, Some((name, ..))) => PathStep::Field(name).append_to(&mut field),
            _ => step.append_to(&mut field),
        }
        if let Some((_, start, _)) = next {
            at = Some(start);
        }
        value = next.map(|(_, _, node)| node);
    }
    (field, at.map(|start| line(text, start)))
}

/// The line of a byte, counted from 1.
pub(crate) fn line(text: &str, byte: usize) -> usize {
    text[..byte.min(text.len())].matches('\n').count() + 1
}

#[derive(Clone, Copy)]
enum TomlNode<'a> {
    Table(&'a DeTable<'a>),
    Value(&'a DeValue<'a>),
}

impl<'a> TomlNode<'a> {
    /// The node below this one: its name, the byte where it starts, and itself.
    fn below(self, step: &PathStep<'_>) -> Option<(&'a str, usize, TomlNode<'a>)> {
        let table = match self {
            TomlNode::Table(table) => Some(table),
            TomlNode::Value(DeValue::Table(table)) => Some(table),
            TomlNode::Value(_) => None,
        };
        let entry = match step {
            PathStep::Item(number) => {
                let TomlNode::Value(DeValue::Array(items)) = self else {
                    return None;
                };
                let item = items.get(*number)?;
                return Some(("", item.span().start, TomlNode::Value(item.get_ref())));
            }
            PathStep::Any => table?.iter().next(),
            PathStep::Field(name) => table?.iter().find(|(key, _)| key.get_ref() == name),
        };
        let (key, value) = entry?;
        Some((key.get_ref(), key.span().start, TomlNode::Value(value.get_ref())))
    }
}
