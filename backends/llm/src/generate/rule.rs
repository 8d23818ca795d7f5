//! Patterns of paths, by which a generator writes files of the tree.

use std::str::FromStr;

use glob::{MatchOptions, Pattern};

/// The longest pattern in characters.
const LENGTH_MAX: usize = 1000;

const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// A pattern of paths: `*` and `?` match within a name, `**` any number of directories, `[a-z]` one character. One with
/// a slash matches the path from the root (`docs/**/*.txt`, `/a.md`), another the file's name in every directory.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pattern: Pattern,
    /// Whether it matches the path from the root.
    is_of_path: bool,
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix('/').unwrap_or(text);
        let refused = match inner {
            "" => Some("it is empty".to_owned()),
            _ if text.chars().count() > LENGTH_MAX => Some(format!("it has more than {LENGTH_MAX} characters")),
            _ if text.contains('\\') => Some("directories are separated by slashes".to_owned()),
            _ if inner.ends_with('/') => Some("it ends with a slash, and only files are generated".to_owned()),
            _ if inner.split('/').any(|part| matches!(part, "" | "." | "..")) => {
                Some("no path has an empty part, `.` or `..`".to_owned())
            }
            _ => None,
        };
        let named = |why: &str| format!("the pattern {text:?} matches no file: {why}; write it as in \"docs/**/*.md\"");
        if let Some(why) = refused {
            return Err(named(&why));
        }
        let pattern = Pattern::new(inner).map_err(|error| {
            // Its position counts characters from 0, as those of the error do.
            named(&format!("{} at character {}", error.msg, error.pos + 1 + (text.len() - inner.len())))
        })?;
        Ok(Self { pattern, is_of_path: text.contains('/') })
    }
}

impl Rule {
    /// Whether it matches the file at `path`, from the root, such as `/docs/a.md`.
    pub(super) fn matches(&self, path: &str) -> bool {
        let path = path.trim_start_matches('/');
        let name = path.rsplit('/').next().unwrap_or(path);
        self.pattern.matches_with(if self.is_of_path { path } else { name }, OPTIONS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_with_a_slash_matches_from_the_root_and_another_in_every_directory() {
        for (pattern, path, expected) in [
            ("*.md", "/a.md", true),
            ("*.md", "/docs/deep/a.md", true),
            ("*.md", "/a.md.txt", false),
            ("/*.md", "/a.md", true),
            ("/*.md", "/docs/a.md", false),
            ("docs/*.md", "/docs/a.md", true),
            ("docs/*.md", "/docs/deep/a.md", false),
            ("docs/**/*.md", "/docs/deep/er/a.md", true),
            ("docs/**/*.md", "/docs/a.md", true),
            ("docs/**", "/docs/deep/a.md", true),
            ("**/test_?.py", "/tests/test_x.py", true),
            ("[a-c].csv", "/d.csv", false),
            (".*", "/.gitignore", true),
            ("*", "/.gitignore", true),
            ("A.md", "/a.md", false),
        ] {
            let rule: Rule = pattern.parse().unwrap();
            assert_eq!(rule.matches(path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_match_is_refused_with_its_reason() {
        for (pattern, why) in [
            ("", "it is empty"),
            ("/", "it is empty"),
            ("docs/", "ends with a slash"),
            ("a//b", "empty part"),
            ("../a", "`..`"),
            ("a/./b", "`.`"),
            ("docs\\a", "slashes"),
            ("a**", "at character"),
            ("/a[b", "at character 3"),
            (&"x".repeat(1001), "more than 1000"),
        ] {
            let error = pattern.parse::<Rule>().unwrap_err();
            assert!(error.contains(why) && error.contains("matches no file"), "{pattern}: {error}");
        }
    }
}
