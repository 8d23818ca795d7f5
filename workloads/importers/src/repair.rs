//! Repairs JSON that a program wrote wrongly or that was cut off: numbers that are none, characters that a text must escape,
//! values that are nested too deeply, and a document without its end.

/// The deepest nesting that is kept. The parser refuses 128 levels, and the importers wrap a value in a few more.
const DEEPEST: usize = 100;

/// Words that programs write for numbers which JSON does not have.
const NO_NUMBERS: [&str; 4] = ["NaN", "-Infinity", "Infinity", "undefined"];

/// The text with repairs inside of its values. It need not be JSON.
pub(super) fn repaired(text: &str) -> String {
    Repair::of(text).out
}

/// A document that was cut off, up to the last whole element of a list, with its open values closed. `None` if the text is
/// not cut off.
pub(super) fn closed(text: &str) -> Option<String> {
    let mut repair = Repair::of(text);
    if repair.open.is_empty() {
        return None;
    }
    repair.out.truncate(repair.whole);
    repair.out.extend(repair.to_close.iter().rev());
    Some(repair.out)
}

#[derive(Default)]
struct Repair {
    out: String,
    /// What ends each open list and object.
    open: Vec<char>,
    /// The length of `out` up to the last place where a document can be cut, and what ends the values that are open there.
    whole: usize,
    to_close: Vec<char>,
    /// Whether a number or another word is open.
    in_word: bool,
}

impl Repair {
    fn of(text: &str) -> Self {
        let mut repair = Self::default();
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            at += match c {
                '"' => repair.string(&text[at..]),
                '{' | '[' if repair.open.len() >= DEEPEST => repair.nothing_for(&text[at..]),
                _ => repair.outside(c, &text[at..]),
            };
        }
        repair
    }

    /// Notes that the document can be cut here: in a list, behind a whole element, or where no list is open.
    fn can_be_cut(&mut self) {
        if self.open.last() == Some(&']') || !self.open.contains(&']') {
            self.whole = self.out.len();
            self.to_close.clone_from(&self.open);
        }
    }

    /// A character outside of texts, or a word for no number. Returns the length of what was read.
    fn outside(&mut self, c: char, rest: &str) -> usize {
        let is_in_word = c.is_alphanumeric() || matches!(c, '-' | '+' | '.');
        if self.in_word && !is_in_word {
            self.in_word = false;
            self.can_be_cut();
        }
        if let Some(word) = NO_NUMBERS.iter().find(|word| !self.in_word && rest.starts_with(**word)) {
            self.out.push_str("null");
            self.in_word = true;
            return word.len();
        }
        self.in_word = is_in_word;
        match c {
            '{' | '[' => self.open.push(if c == '{' { '}' } else { ']' }),
            '}' | ']' if self.open.last() == Some(&c) => _ = self.open.pop(),
            // A character without a meaning here, such as one of a disk that lost its data.
            '\0' => return 1,
            _ => {}
        }
        self.out.push(c);
        if matches!(c, '{' | '[' | '}' | ']') {
            self.can_be_cut();
        }
        c.len_utf8()
    }

    /// A text, with its characters escaped. One without its end is a cut that [`Repair::can_be_cut`] does not reach.
    fn string(&mut self, rest: &str) -> usize {
        let is_name = self.open.last() == Some(&'}') && self.out.trim_end().ends_with(['{', ',']);
        self.in_word = false;
        self.out.push('"');
        let mut chars = rest.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.out.push('"');
                    if !is_name {
                        self.can_be_cut();
                    }
                    return at + 1;
                }
                '\\' => {
                    let escaped = chars.peek().map(|(_, escaped)| *escaped);
                    let is_known = match escaped {
                        Some('u') => {
                            let digits = rest.get(at + 2..at + 6);
                            digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
                        }
                        escaped => escaped.is_some_and(|escaped| "\"\\/bfnrt".contains(escaped)),
                    };
                    self.out.push_str(if is_known { "\\" } else { "\\\\" });
                    if is_known && let Some((_, escaped)) = chars.next() {
                        self.out.push(escaped);
                    }
                }
                c if c < ' ' => self.out.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => self.out.push(c),
            }
        }
        rest.len()
    }

    /// Nothing in place of a value that is nested too deeply.
    fn nothing_for(&mut self, rest: &str) -> usize {
        let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
        for (at, c) in rest.char_indices() {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' if is_text => is_escaped = true,
                '"' => is_text = !is_text,
                '{' | '[' if !is_text => depth += 1,
                '}' | ']' if !is_text => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.out.push_str("null");
                self.can_be_cut();
                return at + 1;
            }
        }
        rest.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn what_json_does_not_have_is_replaced_and_texts_keep_it() {
        for (text, expected) in [
            (
                r#"{"a": NaN, "b": [-Infinity,Infinity], "c": undefined}"#,
                json!({"a": null, "b": [null, null], "c": null}),
            ),
            (r#"{"a": "NaN, Infinity"}"#, json!({"a": "NaN, Infinity"})),
            ("{\"a\": \"x\u{0}\ty\r\n\"}\u{0}\u{0}", json!({"a": "x\u{0}\ty\r\n"})),
            (r#"{"a": "C:\work\x \u12"}"#, json!({"a": "C:\\work\\x \\u12"})),
            (r#"{"a": "\u0041\"\\"}"#, json!({"a": "A\"\\"})),
        ] {
            assert_eq!(value(&repaired(text)), expected, "{text}");
            assert_eq!(closed(text), None, "{text}");
        }
    }

    #[test]
    fn a_deep_value_is_lost_and_what_follows_it_is_kept() {
        for levels in [90, 200, 100_000] {
            let text = format!("{{\"a\":{}\"]}}\"{},\"b\":1}}", "[".repeat(levels), "]".repeat(levels));
            assert_eq!(value(&repaired(&text))["b"], 1);
        }
        let open = "[".repeat(100_000);
        let found = closed(&open).unwrap();
        assert!(found.len() <= 2 * DEEPEST && serde_json::from_str::<Value>(&found).is_ok(), "{found}");
    }

    #[test]
    fn a_document_that_was_cut_keeps_its_whole_elements() {
        let whole = r#"{"info": {"n": 1}, "steps": [{"a": "x]", "b": [1, 23]}, {"a": "é\n", "b": []}], "end": 1}"#;
        for at in (1..whole.len()).filter(|at| whole.is_char_boundary(*at)) {
            let found = value(&closed(&whole[..at]).unwrap());
            let steps = found["steps"].as_array().map_or(0, Vec::len);
            let expected = match at {
                0..=25 => 0,
                _ if at <= whole.find("}, {").unwrap() => steps.min(1),
                _ if at <= whole.find("}], ").unwrap() => steps.clamp(1, 2),
                _ => 2,
            };
            assert_eq!(steps, expected, "{}", &whole[..at]);
            if at > whole.find("}, {").unwrap() {
                assert_eq!(found["steps"][0], json!({"a": "x]", "b": [1, 23]}), "{}", &whole[..at]);
            }
        }
    }
}
