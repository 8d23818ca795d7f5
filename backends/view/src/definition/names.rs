//! Whether two things in one directory can have the same name, by their templates alone.

use crate::template::{Part, Template};

/// Which bytes a place of a name can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Byte(u8),
    Digit,
    Any,
}

impl Class {
    fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::Digit, Self::Digit) => true,
            (Self::Byte(a), Self::Byte(b)) => a == b,
            (Self::Byte(byte), Self::Digit) | (Self::Digit, Self::Byte(byte)) => byte.is_ascii_digit(),
        }
    }
}

/// The names that a template gives: at each place a byte of a class, or any number of them.
#[derive(Debug)]
pub(crate) struct Names(Vec<(Class, bool)>);

impl Names {
    /// The column `key` holds digits; other columns hold at least one byte of any kind.
    pub(crate) fn new(template: &Template, key: Option<&str>) -> Self {
        let mut places = Vec::new();
        for part in &template.0 {
            match part {
                Part::Literal(text) => places.extend(text.bytes().map(|it| (Class::Byte(it), false))),
                Part::Column(column) => {
                    let class = if key == Some(column) { Class::Digit } else { Class::Any };
                    places.extend([(class, false), (class, true)]);
                }
            }
        }
        Self(places)
    }

    /// Whether a name is one of them.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        let one = name.iter().map(|byte| (Class::Byte(*byte), false));
        self.overlaps(&Self(one.collect()))
    }

    /// Whether some name is in both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let mut seen = vec![false; (self.0.len() + 1) * (other.0.len() + 1)];
        let mut open = vec![(0, 0)];
        while let Some((a, b)) = open.pop() {
            if std::mem::replace(&mut seen[a * (other.0.len() + 1) + b], true) {
                continue;
            }
            let (here, there) = (self.0.get(a), other.0.get(b));
            if let (None, None) = (here, there) {
                return true;
            }
            // Any number of bytes can be none.
            open.extend(here.filter(|it| it.1).map(|_| (a + 1, b)));
            open.extend(there.filter(|it| it.1).map(|_| (a, b + 1)));
            if let (Some(here), Some(there)) = (here, there)
                && here.0.overlaps(there.0)
            {
                open.push((a + usize::from(!here.1), b + usize::from(!there.1)));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_that_can_give_one_name_overlap() {
        for (a, b, expected) in [
            ("{id} {a}.md", "{a} {id}.md", true),
            ("{id}.md", "{id}.eml", false),
            ("{id}.md", "x{id}.md", false),
            ("{a}.md", "{id}", false),
            ("{a}", "{id}", true),
            ("7{id}", "{id}8", true),
            ("{id}-{a}", "{id}_{a}", false),
            ("{id}-{a}", "{a}_{id}", true),
            ("{id}-", "{id}_", false),
            ("a", "{a}", true),
            ("a", "{id}", false),
            ("12", "{id}", true),
            (":about?{a}", "{a} {id}.eml", true),
            (":about?{a}", "{id} {a}.eml", false),
        ] {
            let [one, other] = [a, b].map(|text| Names::new(&Template::parse(text).unwrap(), Some("id")));
            assert_eq!(one.overlaps(&other), expected, "{a} and {b}");
            assert_eq!(other.overlaps(&one), expected, "{b} and {a}");
        }
    }
}
