//! Scripts of `sed`: the edits of lines that follow from the text alone, and whether a script works on other files.

use super::command::UNKNOWN_OPTIONS;
use super::steps::{AddedPlace, CertainResult, LineEdit, LineRange, Replacement};
use super::words::Word;

/// The longest script that is read, in commands.
const LONGEST: usize = 1000;

/// Characters that have a meaning in a pattern.
const SPECIAL: &str = ".*[]^$+?(){}|\\";

/// Those of them that have it in extended patterns only.
const SPECIAL_EXTENDED: &str = "+?(){}|";

/// The arguments of `sed`.
#[derive(Default)]
pub(super) struct SedCall<'a> {
    pub(super) is_in_place: bool,
    /// Whether it prints only what the script says.
    pub(super) is_quiet: bool,
    /// Whether its lines do not end with newlines.
    pub(super) has_other_lines: bool,
    /// Whether its patterns are extended ones.
    pub(super) is_extended: bool,
    pub(super) scripts: Vec<Word>,
    pub(super) operands: Vec<&'a Word>,
}

impl<'a> SedCall<'a> {
    pub(super) fn new(words: &'a [Word]) -> CertainResult<Self> {
        let mut call = Self::default();
        let mut rest = words.iter().peekable();
        while let Some(word) = rest.next() {
            let text = word.text.as_str();
            if text == "--" {
                call.operands.extend(rest);
                break;
            }
            if let Some(name) = text.strip_prefix("--") {
                match name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value))) {
                    ("expression", Some(value)) => {
                        call.scripts.push(Word { text: value.to_owned(), ..word.clone() });
                    }
                    ("expression", None) => call.scripts.push(rest.next().ok_or(UNKNOWN_OPTIONS)?.clone()),
                    ("in-place", None) => call.is_in_place = true,
                    ("quiet" | "silent", None) => call.is_quiet = true,
                    ("regexp-extended", None) => call.is_extended = true,
                    ("separate" | "unbuffered" | "posix" | "sandbox", None) => {}
                    ("null-data", None) => call.has_other_lines = true,
                    ("file", _) => return Err("a script"),
                    _ => return Err(UNKNOWN_OPTIONS),
                }
                continue;
            }
            let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
                call.operands.push(word);
                continue;
            };
            for (at, letter) in letters.char_indices() {
                let value = &letters[at + 1..];
                match letter {
                    'n' => call.is_quiet = true,
                    'E' | 'r' => call.is_extended = true,
                    's' | 'u' => {}
                    'z' => call.has_other_lines = true,
                    'e' => {
                        call.scripts.push(match value {
                            "" => rest.next().ok_or(UNKNOWN_OPTIONS)?.clone(),
                            value => Word { text: value.to_owned(), ..word.clone() },
                        });
                        break;
                    }
                    'i' if value.is_empty() => {
                        call.is_in_place = true;
                        // BSD's `-i ''`.
                        rest.next_if(|next| next.text.is_empty());
                    }
                    'f' => return Err("a script"),
                    _ => return Err(UNKNOWN_OPTIONS),
                }
            }
        }
        Ok(call)
    }
}

/// A script.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// Its commands as edits of lines; `None` if the text of a command does not tell its effect.
    pub(super) edits: Option<Vec<LineEdit>>,
}

impl Script {
    /// The replacements, if the script does nothing else than to replace every occurrence of literal texts.
    pub(super) fn replacements(&self) -> Option<Vec<Replacement>> {
        let edits = self.edits.as_ref()?.iter().map(|edit| match edit {
            LineEdit::Substitute { lines: LineRange::All, old, new, all: true } => {
                Some(Replacement { old: old.clone(), new: new.clone(), all: true })
            }
            _ => None,
        });
        edits.collect()
    }
}

/// An address of a command.
enum Address {
    Lines(LineRange),
    Other,
}

/// Reads a script. `None` if it is not understood, or if it reads or writes other files or runs programs.
pub(super) fn script(text: &str, is_extended: bool) -> Option<Script> {
    let mut reader = Reader { rest: text, is_extended };
    let mut edits = Some(Vec::new());
    for _ in 0..LONGEST {
        reader.skip(|c| c.is_whitespace() || c == ';' || c == '}');
        if reader.rest.is_empty() {
            return Some(Script { edits });
        }
        if reader.rest.starts_with('#') {
            reader.line();
            continue;
        }
        let lines = match reader.address()? {
            Some(Address::Lines(lines)) => Some(lines),
            Some(Address::Other) => None,
            None => Some(LineRange::All),
        };
        let edit = match reader.next()? {
            's' => reader.substitution(lines)?,
            'd' => lines.map(LineEdit::Delete),
            'y' => {
                let mark = reader.mark()?;
                reader.until(mark)?;
                reader.until(mark)?;
                None
            }
            'p' | '=' | 'n' | 'N' | 'D' | 'P' | 'h' | 'H' | 'g' | 'G' | 'x' | 'l' | 'z' | '{' => None,
            'q' | 'Q' => {
                reader.skip(|c| c.is_ascii_digit() || c == ' ');
                None
            }
            'b' | 't' | 'T' | ':' => {
                reader.skip(|c| c != ';' && c != '\n' && c != '}');
                None
            }
            'a' => reader.addition(lines, AddedPlace::Behind),
            'i' => reader.addition(lines, AddedPlace::Before),
            'c' => reader.addition(lines, AddedPlace::Instead),
            _ => return None,
        };
        let ends = reader.rest.trim_start_matches([' ', '\t']);
        let is_ended = matches!(edit, Some(LineEdit::Add { .. }));
        if !is_ended && !matches!(ends.chars().next(), None | Some(';' | '\n' | '}' | '#')) && edit.is_some() {
            return None;
        }
        match (&mut edits, edit) {
            (Some(edits), Some(edit)) => edits.push(edit),
            (edits, _) => *edits = None,
        }
    }
    None
}

struct Reader<'a> {
    rest: &'a str,
    is_extended: bool,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn skip(&mut self, wanted: impl Fn(char) -> bool) {
        self.rest = self.rest.trim_start_matches(wanted);
    }

    /// The rest of the line.
    fn line(&mut self) -> &str {
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        line
    }

    /// An addition of the text behind the command, which goes on behind a line that ends with `\`. `None` if its text is not
    /// certain.
    fn addition(&mut self, lines: Option<LineRange>, place: AddedPlace) -> Option<LineEdit> {
        self.skip(|c| c == ' ' || c == '\t');
        let is_marked = self.rest.starts_with('\\');
        if is_marked {
            self.next();
        }
        let is_below = is_marked && self.rest.starts_with('\n');
        if is_below {
            self.next();
        }
        let (mut text, mut is_certain) = (vec![String::new()], true);
        loop {
            let added = match self.next() {
                None | Some('\n') => break,
                Some('\\') => match self.next() {
                    Some('\n' | 'n') => {
                        text.push(String::new());
                        continue;
                    }
                    Some('t') => '\t',
                    Some(escaped) => {
                        is_certain &= !escaped.is_ascii_alphanumeric();
                        escaped
                    }
                    None => break,
                },
                Some(added) => added,
            };
            if let Some(last) = text.last_mut() {
                last.push(added);
            }
        }
        // BSD's drops the blanks before a text on lines of its own, and versions differ in what they do without one.
        let has_blanks = text.iter().any(|line| line.starts_with([' ', '\t']));
        is_certain &= text.iter().any(|line| !line.is_empty()) && !(is_below && has_blanks);
        lines.filter(|_| is_certain).map(|lines| LineEdit::Add { lines, text, place })
    }

    fn number(&mut self) -> Option<u64> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let number = self.rest[..end].parse().ok()?;
        self.rest = &self.rest[end..];
        Some(number)
    }

    /// The character that separates the parts of a command.
    fn mark(&mut self) -> Option<char> {
        self.next().filter(|mark| !matches!(mark, '\\' | '\n'))
    }

    /// The text before the next `mark`, with its escapes.
    fn until(&mut self, mark: char) -> Option<String> {
        let mut text = String::new();
        let mut is_class = false;
        loop {
            match self.next()? {
                '\\' => text.extend(['\\', self.next()?]),
                '[' => {
                    is_class = true;
                    text.push('[');
                }
                ']' => {
                    is_class = false;
                    text.push(']');
                }
                // In a class, POSIX takes it for a character, and others do not.
                next if next == mark && is_class => return None,
                next if next == mark => return Some(text),
                next => text.push(next),
            }
        }
    }

    /// The lines that a command works on.
    fn address(&mut self) -> Option<Option<Address>> {
        let Some(first) = self.one_address()? else {
            return Some(None);
        };
        let mut address = first;
        if let Some(rest) = self.rest.strip_prefix(',') {
            self.rest = rest;
            self.skip(|c| c == ' ' || c == '+');
            let last = self.one_address()?;
            address = match (address, last) {
                (Address::Lines(LineRange::One(from)), Some(Address::Lines(LineRange::One(to)))) if from <= to => {
                    Address::Lines(LineRange::Between(from, Some(to)))
                }
                (Address::Lines(LineRange::One(from)), Some(Address::Lines(LineRange::Last))) => {
                    Address::Lines(LineRange::Between(from, None))
                }
                _ => Address::Other,
            };
        }
        self.skip(|c| c == ' ' || c == '\t');
        if self.rest.starts_with('!') {
            self.skip(|c| c == '!' || c == ' ');
            address = Address::Other;
        }
        Some(Some(address))
    }

    fn one_address(&mut self) -> Option<Option<Address>> {
        let address = match self.rest.chars().next()? {
            '0'..='9' => {
                let number = self.number()?;
                match self.rest.strip_prefix('~') {
                    Some(rest) => {
                        self.rest = rest;
                        self.number()?;
                        Address::Other
                    }
                    None if number == 0 => Address::Other,
                    None => Address::Lines(LineRange::One(number)),
                }
            }
            '$' => {
                self.next();
                Address::Lines(LineRange::Last)
            }
            '/' => {
                self.next();
                let pattern = self.until('/')?;
                self.skip(|c| c == 'I' || c == 'M');
                match literal(&pattern, '/', self.is_extended) {
                    Some(text) => Address::Lines(LineRange::With(text)),
                    None => Address::Other,
                }
            }
            '\\' => {
                self.next();
                let mark = self.mark()?;
                self.until(mark)?;
                Address::Other
            }
            _ => return Some(None),
        };
        Some(Some(address))
    }

    /// A substitution; `Some(None)` if its effect is not known.
    fn substitution(&mut self, lines: Option<LineRange>) -> Option<Option<LineEdit>> {
        let mark = self.mark()?;
        let old = self.until(mark)?;
        let new = self.replacement(mark)?;
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let flags = &self.rest[..end];
        self.rest = &self.rest[end..];
        // Written to a file, or run.
        if flags.contains(['w', 'e']) {
            return None;
        }
        let all = match flags {
            "" => false,
            "g" => true,
            _ => return Some(None),
        };
        let edit = (|| {
            let (old, new) = (literal(&old, mark, self.is_extended)?, new?);
            Some(LineEdit::Substitute { lines: lines?, old, new, all })
        })();
        Some(edit)
    }

    /// The text that replaces a pattern; `Some(None)` if it contains parts of the pattern's match.
    fn replacement(&mut self, mark: char) -> Option<Option<String>> {
        let mut text = Some(String::new());
        loop {
            let next = self.next()?;
            let added = match next {
                '\\' => match self.next()? {
                    escaped if escaped == mark || "\\/.*[]^$&-\"' ".contains(escaped) => Some(escaped),
                    _ => None,
                },
                '&' | '\n' => None,
                next if next == mark => return Some(text),
                next => Some(next),
            };
            text = text.zip(added).map(|(mut text, added)| {
                text.push(added);
                text
            });
        }
    }
}

/// The text that a pattern stands for, if it is a literal one.
fn literal(pattern: &str, mark: char, is_extended: bool) -> Option<String> {
    let is_special = |letter| SPECIAL.contains(letter) && (is_extended || !SPECIAL_EXTENDED.contains(letter));
    let mut text = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next()? {
                escaped if escaped == mark && !SPECIAL.contains(mark) => text.push(escaped),
                escaped if ".*[]^$\\/&-\"'".contains(escaped) && escaped != mark => text.push(escaped),
                escaped if is_extended && SPECIAL_EXTENDED.contains(escaped) && escaped != mark => text.push(escaped),
                _ => return None,
            },
            letter if is_special(letter) => return None,
            letter => text.push(letter),
        }
    }
    (!text.is_empty() && !text.contains('\n')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_edits_of_lines_or_not_understood() {
        let all = |old: &str, new: &str, all| LineEdit::Substitute {
            lines: LineRange::All,
            old: old.to_owned(),
            new: new.to_owned(),
            all,
        };
        let add = |lines, text: &[&str], place| LineEdit::Add {
            lines,
            text: text.iter().map(|line| (*line).to_owned()).collect(),
            place,
        };
        let (before, behind) = (AddedPlace::Before, AddedPlace::Behind);
        for (text, expected) in [
            ("s/f(x) -> y/f(z)/", Some(Some(vec![all("f(x) -> y", "f(z)", false)]))),
            (r"s/a\(b\)/c/", Some(None)),
            (r"3a\    x\n  y", Some(Some(vec![add(LineRange::One(3), &["    x", "  y"], behind)]))),
            (r"3i\\  x", Some(Some(vec![add(LineRange::One(3), &["  x"], before)]))),
            ("$a  x; y", Some(Some(vec![add(LineRange::Last, &["x; y"], behind)]))),
            (
                "/b/a\\\nx\\\ny\n2d",
                Some(Some(vec![
                    add(LineRange::With("b".to_owned()), &["x", "y"], behind),
                    LineEdit::Delete(LineRange::One(2)),
                ])),
            ),
            ("1a\\\n  x", Some(None)),
            ("1a\\\nx\\\n  y", Some(None)),
            (r"1a x\x41", Some(None)),
            ("2i\\", Some(None)),
            ("s/x/y/", Some(Some(vec![all("x", "y", false)]))),
            (
                "s/x/y/g; s%a/b%c%g\ns~d~~",
                Some(Some(vec![all("x", "y", true), all("a/b", "c", true), all("d", "", false)])),
            ),
            ("s/x/w/;s_a_b_", Some(Some(vec![all("x", "w", false), all("a", "b", false)]))),
            (r"s/a\.b\/c/d\&\/e/", Some(Some(vec![all("a.b/c", "d&/e", false)]))),
            ("3d", Some(Some(vec![LineEdit::Delete(LineRange::One(3))]))),
            (
                "2,5d;$d",
                Some(Some(vec![LineEdit::Delete(LineRange::Between(2, Some(5))), LineEdit::Delete(LineRange::Last)])),
            ),
            ("/a b/d # c", Some(Some(vec![LineEdit::Delete(LineRange::With("a b".to_owned()))]))),
            (
                "4,$s/x/y/",
                Some(Some(vec![LineEdit::Substitute {
                    lines: LineRange::Between(4, None),
                    old: "x".to_owned(),
                    new: "y".to_owned(),
                    all: false,
                }])),
            ),
            ("s/a.*b/c/", Some(None)),
            ("s/x/&y/", Some(None)),
            ("s/x/y/2", Some(None)),
            ("s.a\\.b.c.", Some(None)),
            ("s/[/]/y/", None),
            ("1,20p", Some(None)),
            ("/x/,/y/{ /z/d; p }", Some(None)),
            ("3i\\\nw out", Some(Some(vec![add(LineRange::One(3), &["w out"], before)]))),
            ("2!d", Some(None)),
            ("5q", Some(None)),
            ("s/a/b/w out", None),
            ("s/a/b/e", None),
            ("w out", None),
            ("r in", None),
            ("1e rm a", None),
            ("s/a/b", None),
            (".bak", None),
            ("", Some(Some(vec![]))),
        ] {
            assert_eq!(script(text, false).map(|script| script.edits), expected, "{text}");
        }
    }

    #[test]
    fn extended_patterns_have_other_signs() {
        let first = |text: &str| match script(text, true)?.edits?.pop()? {
            LineEdit::Substitute { old, .. } => Some(old),
            _ => None,
        };
        assert_eq!(first("s/a(b)/c/"), None);
        assert_eq!(first(r"s/a\(b\)/c/").as_deref(), Some("a(b)"));
    }
}
