//! Text with columns in it: file names and bodies, rendered from a row and taken apart again.

use std::borrow::Cow;

use fuse::store::NAME_MAX;

/// A value in its text form; `None` is NULL. It need not be UTF-8.
pub(super) type Text = Option<Vec<u8>>;

/// How a value becomes a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Naming {
    /// As it reads best: blanks and quotes stay.
    #[default]
    Readable,
    /// Without what `xargs` takes for an end or a quote.
    Plain,
}

impl Naming {
    fn is_kept(self, char: char) -> bool {
        let is_plain = !SEPARATES.contains(&char);
        char != '/' && char != '%' && !char.is_control() && (self == Self::Readable || is_plain)
    }
}

/// What `xargs` takes for an end of a name or a quote; it ends a name at control characters, too.
pub(super) const SEPARATES: [char; 4] = [' ', '\'', '"', '\\'];

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Literal(String),
    Column(String),
}

/// Text with columns in braces, as in `{date} {id}.eml`; `{{` and `}}` are braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(pub(super) Vec<Part>);

impl Template {
    /// # Errors
    /// Why the text is not a template.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text.chars().peekable();
        while let Some(char) = rest.next() {
            match char {
                '{' | '}' if rest.peek() == Some(&char) => {
                    rest.next();
                    literal.push(char);
                }
                '{' => {
                    let mut column = String::new();
                    loop {
                        match rest.next() {
                            Some('}') => break,
                            Some(char) if char.is_alphanumeric() || char == '_' => {
                                column.push(char);
                            }
                            _ => return Err(format!("`{{{column}`: a column ends with `}}`")),
                        }
                    }
                    if column.is_empty() {
                        return Err("`{}` names no column".to_owned());
                    }
                    if !literal.is_empty() {
                        parts.push(Part::Literal(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Column(column));
                }
                '}' => return Err("`}` without `{`; a brace is `}}`".to_owned()),
                char => literal.push(char),
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self(parts))
    }

    /// The columns, in order, each as often as it is used.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Column(column) => Some(column.as_str()),
            Part::Literal(_) => None,
        })
    }

    /// Bytes of all literals.
    pub(super) fn literal_bytes(&self) -> usize {
        let literals = self.0.iter().map(|part| match part {
            Part::Literal(text) => text.len(),
            Part::Column(_) => 0,
        });
        literals.sum()
    }

    /// The text, with `values` in the order of [`Template::columns`].
    pub(super) fn render<'a>(&self, values: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut values = values.into_iter();
        let mut out = Vec::new();
        for part in &self.0 {
            match part {
                Part::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Part::Column(_) => out.extend_from_slice(values.next().unwrap_or_default()),
            }
        }
        out
    }

    /// The path with `values` in the order of [`Template::columns`]: each of its parts is the name that a directory shows.
    pub(super) fn render_path(&self, values: &[Text], naming: Naming) -> Vec<u8> {
        // For each part of the path: the bytes of its literals, and the number of its columns.
        let mut names = vec![(0, 0)];
        let mut name_of_column = Vec::new();
        for part in &self.0 {
            let at = names.len() - 1;
            match part {
                Part::Column(_) => {
                    names[at].1 += 1;
                    name_of_column.push(at);
                }
                Part::Literal(text) => {
                    let mut lengths = text.split('/').map(str::len);
                    names[at].0 += lengths.next().unwrap_or(0);
                    names.extend(lengths.map(|length| (length, 0)));
                }
            }
        }
        let values = name_of_column.iter().zip(values).map(|(name, value)| {
            let value = value.as_deref().unwrap_or_default();
            let is_key = value.len() <= KEY_ROOM && value.iter().all(u8::is_ascii_digit);
            match names[*name] {
                // Only a name with a key is cut.
                (literal, columns) if columns > 1 && !is_key => {
                    escape_short(value, room(literal, columns - 1), naming).into_owned()
                }
                _ => escape(value, naming),
            }
        });
        let values: Vec<Vec<u8>> = values.collect();
        self.render(values.iter().map(Vec::as_slice))
    }

    /// # Errors
    /// If the content of a row, taken apart, is not what its columns hold.
    pub(super) fn comes_back<'a>(
        &self,
        content: &[u8],
        values: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), String> {
        let parts = self.take_apart(content)?;
        match parts.iter().zip(values).find(|((_, part), value)| part != value) {
            None => Ok(()),
            Some(((column, _), _)) => Err(format!(
                "column `{column}` holds text that ends it in the template: a change could move text between columns"
            )),
        }
    }

    /// The values of the columns in a text: each ends where the next literal begins, the last one at the end.
    ///
    /// # Errors
    /// Which literal is missing.
    pub(super) fn take_apart<'a>(&self, text: &'a [u8]) -> Result<Vec<(&str, &'a [u8])>, String> {
        let mut values = Vec::new();
        let (mut rest, mut open) = (text, None);
        for (at, part) in self.0.iter().enumerate() {
            match part {
                Part::Column(column) => open = Some(column.as_str()),
                Part::Literal(literal) => {
                    let is_last = at + 1 == self.0.len();
                    let found = match open {
                        None => rest.starts_with(literal.as_bytes()).then_some(0),
                        // An editor may have added or dropped the last newline.
                        Some(_) if is_last => {
                            Some(rest.strip_suffix(literal.as_bytes()).map_or(rest.len(), <[u8]>::len))
                        }
                        Some(_) => find(rest, literal.as_bytes()),
                    };
                    let Some(found) = found else {
                        let line = 1 + text[..text.len() - rest.len()].iter().filter(|byte| **byte == b'\n').count();
                        return Err(format!("line {line}: {literal:?} is missing after it"));
                    };
                    if let Some(column) = open.take() {
                        values.push((column, &rest[..found]));
                    }
                    rest = rest.get(found + literal.len()..).unwrap_or_default();
                }
            }
        }
        if let Some(column) = open {
            values.push((column, rest));
        } else if !rest.is_empty() && !matches!(self.0.last(), Some(Part::Literal(_))) {
            return Err("there is text after the end of the template".to_owned());
        }
        Ok(values)
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// The mark, which no escaped value contains. Before a value: another entry has the plain name. After a value: the
/// value was cut, and the key follows.
pub(super) const MARK: &str = "%~";

/// A value as a part of a name: `%` and two hexadecimal digits for a byte that a name cannot have, or should not: `/`,
/// control characters, `%` itself, bytes that are not UTF-8, and what `naming` leaves out. A lone `%` is the empty value.
pub(super) fn escape(value: &[u8], naming: Naming) -> Vec<u8> {
    if value.is_empty() {
        return b"%".to_vec();
    }
    let mut out = Vec::with_capacity(value.len());
    let hex = |out: &mut Vec<u8>, byte: u8| out.extend(format!("%{byte:02X}").bytes());
    for chunk in value.utf8_chunks() {
        for char in chunk.valid().chars() {
            let is_dots = matches!(value, b"." | b"..");
            if is_dots || !naming.is_kept(char) {
                let mut buffer = [0; 4];
                char.encode_utf8(&mut buffer).bytes().for_each(|byte| hex(&mut out, byte));
            } else {
                out.extend(char.encode_utf8(&mut [0; 4]).bytes());
            }
        }
        chunk.invalid().iter().for_each(|byte| hex(&mut out, *byte));
    }
    out
}

/// The inverse of [`escape`]; `None` for a name that [`escape`] never returns.
pub(super) fn unescape(name: &[u8], naming: Naming) -> Option<Vec<u8>> {
    if name == b"%" {
        return Some(Vec::new());
    }
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            out.push(*byte);
        }
    }
    (escape(&out, naming) == name).then_some(out)
}

/// Bytes of a name that are kept for its key.
const KEY_ROOM: usize = 20;

/// The most bytes of each of `columns` columns, beside the key, in a name.
pub(super) fn room(literal_bytes: usize, columns: usize) -> usize {
    NAME_MAX.saturating_sub(literal_bytes + KEY_ROOM) / columns.max(1)
}

/// Decodes a question in a name: `%` and two hexadecimal digits are a byte.
pub(super) fn decode(name: &[u8]) -> Vec<u8> {
    let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let (mut out, mut rest) = (Vec::with_capacity(name.len()), name);
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        match digits.filter(|it| it.iter().all(u8::is_ascii_hexdigit)).and_then(byte) {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// A value as a part of a file's name of at most `most` bytes, cut where it is longer: the key tells such names apart.
pub(super) fn escape_short(value: &[u8], most: usize, naming: Naming) -> Cow<'static, [u8]> {
    let mut name = escape(value, naming);
    if name.len() > most {
        let mut cut = most.saturating_sub('…'.len_utf8());
        // Do not cut inside a character or inside an escape.
        while cut > 0 && (name[cut] & 0xc0 == 0x80 || name[cut.saturating_sub(2)..cut].contains(&b'%')) {
            cut -= 1;
        }
        name.truncate(cut);
        name.extend("…".bytes());
    }
    Cow::Owned(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_template_is_rendered_and_taken_apart() {
        let template = Template::parse("From: {who}\n{{{id}}}\n\n{body}\n").unwrap();
        assert_eq!(template.columns().collect::<Vec<_>>(), ["who", "id", "body"]);
        let text = template.render([b"a@b".as_slice(), b"7", b"one\n\ntwo"]);
        assert_eq!(text, b"From: a@b\n{7}\n\none\n\ntwo\n");
        assert_eq!(template.literal_bytes(), text.len() - 12);
        let expected = [("who", &b"a@b"[..]), ("id", b"7"), ("body", b"one\n\ntwo")];
        assert_eq!(template.take_apart(&text).unwrap(), expected);
        let without_newline = template.take_apart(&text[..text.len() - 1]);
        assert_eq!(without_newline.unwrap(), expected);
        let wrong = template.take_apart(b"From: a@b\nwhatever").unwrap_err();
        assert!(wrong.contains("line 1") && wrong.contains('{'), "{wrong}");
        assert!(template.take_apart(b"To: a@b\n").is_err());
    }

    #[test]
    fn a_wrong_template_says_what_is_wrong() {
        for (text, part) in [("{id", "ends with"), ("{}", "no column"), ("a}", "`}`"), ("{a b}", "ends")] {
            let error = Template::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        for length in 1..40 {
            let value = "ä/€x".repeat(length);
            let whole = escape(value.as_bytes(), Naming::Readable);
            let name = escape_short(value.as_bytes(), 40, Naming::Readable);
            if whole.len() <= 40 {
                assert_eq!(*name, *whole);
                continue;
            }
            assert!(name.len() <= 40);
            let name = std::str::from_utf8(&name).unwrap();
            let cut = name.strip_suffix('…').unwrap();
            assert!(whole.starts_with(cut.as_bytes()) && cut.len() > 30, "{name}");
            assert!(cut.split('%').skip(1).all(|after| after.len() >= 2), "{name}");
        }
    }

    #[test]
    fn a_question_has_every_byte() {
        for (name, text) in [("a%2Fb", "a/b"), ("100%", "100%"), ("%zz%+1", "%zz%+1"), ("%25 c++", "% c++")] {
            assert_eq!(decode(name.as_bytes()), text.as_bytes(), "{name}");
        }
    }

    #[test]
    fn a_content_that_comes_apart_elsewhere_is_refused() {
        let template = Template::parse("To: {who}\n\n{body}\n").unwrap();
        let check = |values: [&[u8]; 2]| template.comes_back(&template.render(values), values);
        for body in [&b""[..], b"\n", b"one\n\ntwo\n\n"] {
            assert_eq!(check([b"ann", body]), Ok(()));
        }
        for who in [&b"ann\n\n"[..], b"a\n\nb", b"ann\n"] {
            assert!(check([who, b"one"]).unwrap_err().contains("`who`"));
        }
    }

    proptest! {
        #[test]
        fn every_value_is_a_name_and_comes_back(
            value in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b" '\"\\%".to_vec())], 0..40),
        ) {
            for naming in [Naming::Readable, Naming::Plain] {
                let name = escape(&value, naming);
                prop_assert!(!name.contains(&b'/') && !name.contains(&0) && !name.is_empty());
                prop_assert!(name != b"." && name != b"..");
                let text = std::str::from_utf8(&name).unwrap();
                prop_assert!(naming == Naming::Readable || !text.contains(SEPARATES));
                prop_assert_eq!(unescape(&name, naming), Some(value.clone()));
            }
        }

        #[test]
        fn no_two_names_are_one_value(name in prop::collection::vec(any::<u8>(), 0..8)) {
            for naming in [Naming::Readable, Naming::Plain] {
                if let Some(value) = unescape(&name, naming) {
                    prop_assert_eq!(escape(&value, naming), &name[..]);
                }
            }
        }
    }
}
