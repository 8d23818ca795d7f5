//! Splits a Python script into statements and their tokens.

/// A token of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A name or a word of the language.
    Name(String),
    /// A text.
    Text {
        /// The text.
        text: String,
        /// Whether it is all of the value: no part of it is computed, and it is a text, not bytes.
        is_certain: bool,
    },
    /// A number, an operator or a bracket.
    Sign(String),
}

impl Token {
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            _ => None,
        }
    }

    pub(super) fn sign(&self) -> Option<&str> {
        match self {
            Self::Sign(sign) => Some(sign),
            _ => None,
        }
    }

    pub(super) fn is(&self, sign: &str) -> bool {
        self.sign() == Some(sign)
    }

    /// How much deeper in brackets the next token is.
    pub(super) fn depth(&self) -> i32 {
        match self.sign() {
            Some("(" | "[" | "{") => 1,
            Some(")" | "]" | "}") => -1,
            _ => 0,
        }
    }
}

/// A statement, or the beginning of one with a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Statement {
    /// Blanks before it. A tab is 8.
    pub(super) indentation: usize,
    /// Its tokens, without comments.
    pub(super) tokens: Vec<Token>,
}

/// Operators of two characters.
const OPERATORS: &[&str] =
    &["==", "!=", "<=", ">=", ":=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "->", "**", "//", "<<", ">>"];

/// The statements of a script; `None` if its text is not understood.
pub(super) fn statements(script: &str) -> Option<Vec<Statement>> {
    let script = script.replace("\r\n", "\n");
    let mut all = Vec::new();
    let mut rest = script.as_str();
    let mut statement = Statement::default();
    let (mut depth, mut is_new_line) = (0, true);
    while let Some(next) = rest.chars().next() {
        if is_new_line && depth == 0 && statement.tokens.is_empty() {
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t']).len();
            statement.indentation = rest[..blanks].chars().map(|blank| if blank == '\t' { 8 } else { 1 }).sum();
            rest = &rest[blanks..];
            is_new_line = false;
            continue;
        }
        is_new_line = false;
        if next == '\n' || next == ';' && depth == 0 {
            rest = &rest[1..];
            if depth == 0 {
                let indentation = statement.indentation;
                if !statement.tokens.is_empty() {
                    all.push(std::mem::take(&mut statement));
                }
                statement.indentation = indentation;
                is_new_line = next == '\n';
            }
        } else if next.is_whitespace() {
            rest = rest.trim_start_matches([' ', '\t', '\r', '\x0c']);
        } else if let Some(after) = rest.strip_prefix("\\\n") {
            rest = after;
        } else if next == '#' {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if let Some((token, after)) = literal(rest)? {
            statement.tokens.push(token);
            rest = after;
        } else if next == '_' || next.is_alphabetic() {
            let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
            statement.tokens.push(Token::Name(rest[..end].to_owned()));
            rest = &rest[end..];
        } else if next.is_ascii_digit() {
            let end = rest.find(|c: char| !matches!(c, '_' | '.') && !c.is_alphanumeric()).unwrap_or(rest.len());
            statement.tokens.push(Token::Sign(rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            let two = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
            let sign = two.map_or(&rest[..next.len_utf8()], |operator| operator);
            let token = Token::Sign(sign.to_owned());
            rest = &rest[sign.len()..];
            depth += token.depth();
            if depth < 0 {
                return None;
            }
            statement.tokens.push(token);
        }
    }
    if depth != 0 {
        return None;
    }
    if !statement.tokens.is_empty() {
        all.push(statement);
    }
    Some(all)
}

/// The text at the beginning, and what is behind it: `'a'`, `r"b"`, `'''c'''`. `None` if it does not end, or is not understood.
#[expect(clippy::option_option, reason = "no text is not the same as one that is not understood")]
fn literal(rest: &str) -> Option<Option<(Token, &str)>> {
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let prefix = rest[..letters].to_ascii_lowercase();
    let is_prefix = matches!(&*prefix, "" | "r" | "b" | "u" | "f" | "br" | "rb" | "fr" | "rf");
    let Some(quote) = rest[letters..].chars().next().filter(|c| is_prefix && matches!(c, '\'' | '"')) else {
        return Some(None);
    };
    let (is_raw, is_format) = (prefix.contains('r'), prefix.contains('f'));
    let body = &rest[letters..];
    let three = quote.to_string().repeat(3);
    let delimiter = if body.starts_with(&three) { three.as_str() } else { &body[..1] };
    let mut text = String::new();
    let mut left = &body[delimiter.len()..];
    loop {
        if let Some(after) = left.strip_prefix(delimiter) {
            // What an f-string computes may work on files.
            let is_hiding =
                is_format && ["open(", "__", "exec(", "eval(", "Path("].iter().any(|word| text.contains(word));
            let is_certain = !is_format && !prefix.contains('b');
            return (!is_hiding).then_some(Some((Token::Text { text, is_certain }, after)));
        }
        let mut chars = left.chars();
        match chars.next()? {
            '\n' if delimiter.len() == 1 => return None,
            '\\' => {
                let escaped = chars.next()?;
                left = chars.as_str();
                if is_raw {
                    text.extend(['\\', escaped]);
                    continue;
                }
                match escaped {
                    '\n' => {}
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    '\\' | '\'' | '"' => text.push(escaped),
                    'x' | 'u' | 'U' if !prefix.contains('b') => {
                        let digits = match escaped {
                            'x' => 2,
                            'u' => 4,
                            _ => 8,
                        };
                        let code = u32::from_str_radix(left.get(..digits)?, 16).ok()?;
                        text.push(char::from_u32(code)?);
                        left = &left[digits..];
                    }
                    '0'..='9' | 'a' | 'b' | 'f' | 'v' | 'x' | 'u' | 'U' | 'N' => return None,
                    other => text.extend(['\\', other]),
                }
                continue;
            }
            other => text.push(other),
        }
        left = chars.as_str();
    }
}
