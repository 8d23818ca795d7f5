//! Statements with `:name` parameters as PostgreSQL wants them: `$1`, `$2`.

/// The statement with numbers for names, and the names in the order of their numbers. Text, names in quotes, comments and
/// casts (`::`) stay as they are.
pub(super) fn numbered(sql: &str) -> (String, Vec<String>) {
    let (mut out, mut names) = (String::with_capacity(sql.len()), Vec::<String>::new());
    let mut rest = sql;
    while let Some(char) = rest.chars().next() {
        let skipped = match char {
            // `E'…'`: a backslash escapes a quote. The letter may not be the end of a name.
            'E' | 'e' if rest[1..].starts_with('\'') && !out.ends_with(is_name) => 1 + quoted(&rest[1..], '\'', true),
            '\'' => quoted(rest, '\'', false),
            '"' => quoted(rest, '"', false),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => comment(rest),
            '$' => dollar_quoted(rest),
            ':' if rest.starts_with("::") => 2,
            ':' => {
                let name = &rest[1..];
                let name = &name[..name.find(|char| !is_name(char)).unwrap_or(name.len())];
                if name.is_empty() {
                    1
                } else {
                    let at = names.iter().position(|has| has == name);
                    let at = at.unwrap_or_else(|| {
                        names.push(name.to_owned());
                        names.len() - 1
                    });
                    out.push_str(&format!("${}", at + 1));
                    rest = &rest[1 + name.len()..];
                    continue;
                }
            }
            char => char.len_utf8(),
        };
        out.push_str(&rest[..skipped]);
        rest = &rest[skipped..];
    }
    (out, names)
}

fn is_name(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// The length of a text in quotes. A doubled quote inside ends one text and begins the next.
fn quoted(text: &str, quote: char, is_escaped: bool) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, char)) = chars.next() {
        if char == '\\' && is_escaped {
            chars.next();
        } else if char == quote {
            return at + 1;
        }
    }
    text.len()
}

/// The length of a comment, which may have others in it.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        at += match rest {
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
    }
    text.len()
}

/// The length of `$tag$ … $tag$`, or 1.
fn dollar_quoted(text: &str) -> usize {
    let Some(end) = text[1..].find('$').map(|end| end + 2) else {
        return 1;
    };
    let tag = &text[..end];
    let is_tag = tag[1..end - 1].chars().all(is_name);
    match text[end..].find(tag) {
        Some(at) if is_tag => end + at + end,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_numbers_except_in_text_comments_and_casts() {
        for (sql, expected, names) in [
            ("a = :a AND b = :b OR :a", "a = $1 AND b = $2 OR $1", &["a", "b"][..]),
            ("':a' || \":b\" || ':c'':d'", "':a' || \":b\" || ':c'':d'", &[]),
            ("x::text = :x::text -- :y\n:z", "x::text = $1::text -- :y\n$2", &["x", "z"]),
            ("/* :a /* :b */ :c */ :d", "/* :a /* :b */ :c */ $1", &["d"]),
            ("$$ :a $$ || $t$ :b $$ $t$ || :c", "$$ :a $$ || $t$ :b $$ $t$ || $1", &["c"]),
            (" E'\\':a' || '\\' || :b", " E'\\':a' || '\\' || $1", &["b"]),
            ("'é' || :été; '", "'é' || $1; '", &["été"]),
            ("a[1 : 2] :", "a[1 : 2] :", &[]),
        ] {
            let (numbered, found) = numbered(sql);
            assert_eq!((numbered.as_str(), found.join(",")), (expected, names.join(",")), "{sql}");
        }
    }
}
