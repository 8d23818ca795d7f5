//! The elements of a JSON list, one after the other: one that is damaged costs no other.

/// The list is none, or is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidList;

/// The bytes of each element of a JSON list. An element is not checked beyond its end: its brackets and quotes.
pub(super) struct Elements<'a> {
    rest: &'a [u8],
    is_ended: bool,
    is_first: bool,
}

impl<'a> Elements<'a> {
    /// The elements of the list in `text`.
    ///
    /// # Errors
    /// If it begins as no list.
    pub(super) fn of(text: &'a [u8]) -> Result<Self, InvalidList> {
        let rest = text.trim_ascii().strip_prefix(b"[").ok_or(InvalidList)?;
        Ok(Self { rest, is_ended: false, is_first: true })
    }
}

/// The length of a JSON value at the start of a text: up to the first of `ends` that is outside of its brackets and quotes.
/// `None` if there is no such end, or if a bracket closes that was never opened.
pub(super) fn value_length(text: &[u8], ends: &[u8]) -> Option<usize> {
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            byte if depth == 0 && ends.contains(byte) => return Some(at),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], InvalidList>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_ended {
            return None;
        }
        let Some(length) = value_length(self.rest, b",]") else {
            self.is_ended = true;
            return Some(Err(InvalidList));
        };
        let (element, rest) = self.rest.split_at(length);
        let element = element.trim_ascii();
        self.is_ended = rest[0] == b']';
        self.rest = &rest[1..];
        let is_empty_list = self.is_ended && self.is_first && element.is_empty();
        self.is_first = false;
        if self.is_ended && !self.rest.is_empty() {
            // Something follows the list.
            return Some(Err(InvalidList));
        }
        if is_empty_list { None } else { Some(Ok(element)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(text: &str) -> Result<Vec<String>, InvalidList> {
        let element = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let each = Elements::of(text.as_bytes())?;
        each.map(|bytes| bytes.map(element)).collect()
    }

    #[test]
    fn a_list_is_taken_apart_at_its_own_commas() {
        for (text, expected) in [
            ("[]", &[][..]),
            (" [ \n ] ", &[]),
            ("[1]", &["1"]),
            ("[1, 2,3 ]", &["1", "2", "3"]),
            (r#"[{"a": [1, 2]}, "x,]\"[", null]"#, &[r#"{"a": [1, 2]}"#, r#""x,]\"[""#, "null"]),
            (r#"["\\", 2]"#, &[r#""\\""#, "2"]),
            // An invalid value is an element, too, and invalidates only itself.
            ("[1,,nonsense,{\"a\": }]", &["1", "", "nonsense", "{\"a\": }"]),
        ] {
            assert_eq!(elements(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_list_or_is_truncated_is_refused() {
        for text in ["", "{}", "null", "[", "[1", "[1,", "[\"a]", "[{]", "[1] 2", "[}]"] {
            assert_eq!(elements(text), Err(InvalidList), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_list_of_values_has_its_elements_and_any_bytes_end(
            texts in proptest::collection::vec(".{0,8}", 0..8),
            noise in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64),
        ) {
            let list = serde_json::to_string(&texts).unwrap();
            let found: Vec<String> = Elements::of(list.as_bytes()).unwrap()
                .map(|bytes| serde_json::from_slice(bytes.unwrap()).unwrap())
                .collect();
            proptest::prop_assert_eq!(found, texts);
            let noise = [b"[", &noise[..]].concat();
            let count = Elements::of(&noise).unwrap().count();
            proptest::prop_assert!(count <= noise.len());
        }
    }
}
