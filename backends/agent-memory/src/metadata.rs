//! Metadata of notes: importance, tags, time to live, author. Sources: `user.ctx.*` attributes, YAML front
//! matter.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use fuse::store::{Errno, XATTR_VALUE_MAX};

/// Importance of a note that does not set it.
pub(super) const DEFAULT_IMPORTANCE: f64 = 0.5;

/// The most bytes of front matter; a longer one counts as text.
const FRONT_MATTER_MAX: usize = 64 * 1024;

/// The most `[` and `{` of front matter: the YAML parser takes quadratic time for nested ones.
const BRACKETS_MAX: usize = 1024;

/// Metadata from one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Metadata {
    /// From 0 to 1.
    pub(super) importance: Option<f64>,
    pub(super) tags: Option<Vec<String>>,
    /// Seconds after the last change of its content.
    pub(super) ttl: Option<u64>,
    pub(super) author: Option<String>,
}

impl Metadata {
    /// Fills missing fields from `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            importance: self.importance.or(other.importance),
            tags: self.tags.or(other.tags),
            ttl: self.ttl.or(other.ttl),
            author: self.author.or(other.author),
        }
    }

    /// Parses an attribute. False if its name is not known here.
    pub(super) fn take(&mut self, name: &[u8], value: &[u8]) -> Result<bool, String> {
        let Some(name) = name.strip_prefix(b"user.ctx.") else {
            return Ok(false);
        };
        let text = || {
            let text = std::str::from_utf8(value).map_err(|_| "it must be UTF-8 text".to_owned())?;
            Ok::<_, String>(text.trim())
        };
        match name {
            b"importance" => self.importance = Some(importance(text()?)?),
            b"tags" => self.tags = Some(tags(text()?.split(','))),
            b"ttl" => self.ttl = Some(seconds(text()?)?),
            b"author" => self.author = Some(author(text()?)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

const IMPORTANCE: &str = "importance must be a number from 0 to 1";

fn importance(text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok();
    let number = number.filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| IMPORTANCE.to_owned())
}

fn tags<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut tags: Vec<String> =
        words.map(|tag| tag.trim().replace([',', '\n'], " ")).filter(|tag| !tag.is_empty()).collect();
    tags.sort();
    tags.dedup();
    tags
}

fn author(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('\n') {
        return Err("author must be one line of text".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses a time to live in seconds, or with a unit `s`, `m`, `h`, `d` or `w`.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || "ttl must be a number of seconds, or one with s, m, h, d or w, as in 7d".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

/// Checks the time to live of a note: seconds, or a number with `s`, `m`, `h`, `d` or `w`.
///
/// # Errors
/// What a time to live must be.
pub fn check_ttl(text: &str) -> Result<(), String> {
    seconds(text.trim()).map(|_| ())
}

/// Whether an attribute may be set; else the error number and the reason.
pub(super) fn check(name: &[u8], value: &[u8]) -> Result<(), (Errno, String)> {
    if value.len() > XATTR_VALUE_MAX {
        return Err((Errno::TOOBIG, "it is too long".to_owned()));
    }
    let taken = Metadata::default().take(name, value);
    taken.map(|_| ()).map_err(|reason| (Errno::INVAL, reason))
}

/// Text or a number, as text. An untagged enum would keep a whole value first, with all that its aliases repeat.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a number")
            }
            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// A list, or words between commas.
struct Tags(Vec<String>);

impl<'de> Deserialize<'de> for Tags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Tags;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list, or words between commas")
            }
            fn visit_str<E>(self, text: &str) -> Result<Tags, E> {
                Ok(Tags(tags(text.split(','))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tags, A::Error> {
                let (mut list, mut bytes) = (Vec::new(), 0);
                while let Some(Scalar(tag)) = items.next_element()? {
                    bytes += tag.len();
                    // Aliases repeat what is written once.
                    if bytes > FRONT_MATTER_MAX {
                        return Err(A::Error::custom("they are too long"));
                    }
                    list.push(tag);
                }
                Ok(Tags(tags(list.iter().map(String::as_str))))
            }
        }
        deserializer.deserialize_any(List)
    }
}

/// The keys of front matter that are read; others are ignored.
#[derive(Default, Deserialize)]
struct FrontMatter {
    importance: Option<Scalar>,
    tags: Option<Tags>,
    ttl: Option<Scalar>,
    author: Option<Scalar>,
}

impl FrontMatter {
    fn check(self) -> Result<Metadata, String> {
        let text = |Scalar(text): Scalar| text;
        let number = self.importance.map(text).as_deref().map(importance);
        let ttl = self.ttl.map(text);
        Ok(Metadata {
            importance: number.transpose()?,
            tags: self.tags.map(|Tags(tags)| tags),
            ttl: ttl.map(|text| seconds(text.trim())).transpose()?,
            author: self.author.map(text).as_deref().map(author).transpose()?,
        })
    }
}

/// The front matter of a note.
#[derive(Debug, PartialEq)]
pub(super) struct Head {
    pub(super) metadata: Metadata,
    /// Offset of the body in bytes.
    pub(super) body: usize,
    /// Why the front matter is invalid, if it is.
    pub(super) problem: Option<String>,
}

/// Parses the front matter of a note: the lines between a first line `---` and the next `---`.
pub(super) fn head(text: &str) -> Head {
    let nothing = Head { metadata: Metadata::default(), body: 0, problem: None };
    let Some(rest) = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n")) else {
        return nothing;
    };
    let start = text.len() - rest.len();
    let mut at = start;
    for line in rest.split_inclusive('\n') {
        if at - start > FRONT_MATTER_MAX {
            return nothing;
        }
        let end = at + line.len();
        if line.trim_end() == "---" {
            let yaml = &text[start..at];
            return match read_front_matter(yaml) {
                Ok(metadata) => Head { metadata, body: end, problem: None },
                // It may be no front matter, so the body is the whole text.
                Err(problem) => Head { problem: Some(problem), ..nothing },
            };
        }
        at = end;
    }
    nothing
}

fn read_front_matter(yaml: &str) -> Result<Metadata, String> {
    if yaml.trim().is_empty() {
        return Ok(Metadata::default());
    }
    let brackets = yaml.bytes().filter(|byte| matches!(byte, b'[' | b'{'));
    if brackets.count() > BRACKETS_MAX {
        return Err(format!("it has more than {BRACKETS_MAX} brackets"));
    }
    let read: FrontMatter = yaml_serde::from_str(yaml).map_err(|error| {
        let error = error.to_string();
        error.lines().next().unwrap_or_default().to_owned()
    })?;
    read.check()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_says_what_attributes_do() {
        let head =
            head("---\ntitle: mine\nimportance: 0.9\ntags: [trading, nvda]\nttl: 7d\nauthor: akashi\n---\nRSI\n");
        assert_eq!(head.problem, None);
        let mut said = Metadata::default();
        for (name, value) in [("importance", "0.9"), ("tags", "nvda, trading"), ("ttl", "604800"), ("author", "akashi")]
        {
            let name = format!("user.ctx.{name}");
            assert!(said.take(name.as_bytes(), value.as_bytes()).unwrap());
        }
        assert_eq!(head.metadata, said);
    }

    #[test]
    fn front_matter_is_read_as_people_write_it() {
        for (yaml, importance, tags, ttl) in [
            ("importance: '0.5'", Some(0.5), None, None),
            ("tags: a, b", None, Some(vec!["a", "b"]), None),
            ("tags:\n- 'b # c'\n- a # b", None, Some(vec!["a", "b # c"]), None),
            ("ttl: 60\r\nmood: {a: [1, ~]}\r", None, None, Some(60)),
            ("? ttl\n: '2m'", None, None, Some(120)),
            ("of: &of [x, 7]\ntags: *of", None, Some(vec!["7", "x"]), None),
        ] {
            let head = head(&format!("---\n{yaml}\n---\nbody"));
            let expected = Metadata {
                importance,
                tags: tags.map(|tags| tags.into_iter().map(str::to_owned).collect()),
                ttl,
                author: None,
            };
            assert_eq!((head.problem, head.metadata), (None, expected), "{yaml}");
        }
    }

    #[test]
    fn aliases_take_no_more_memory_than_front_matter() {
        let lists = format!("x: &x [{}1]", "1,".repeat(10_000));
        let words = format!("x: &x {}", "w".repeat(10_000));
        for (anchor, why) in [(lists, "invalid type: sequence"), (words, "too long")] {
            let many = "*x, ".repeat(5_000);
            let head = head(&format!("---\n{anchor}\ntags: [{many}*x]\n---\nbody"));
            let problem = head.problem.unwrap();
            assert!(problem.contains(why), "{problem}");
            assert_eq!(head.metadata, Metadata::default());
        }
    }

    #[test]
    fn invalid_front_matter_counts_as_text() {
        for text in ["", "---", "---\n", "---\nnever ends", "a\n---\nb\n---\n"] {
            assert_eq!(head(text).body, 0, "{text:?}");
        }
        let broken = head("---\nimportance: [\n---\nbody\n");
        assert_eq!(broken.body, 0);
        assert!(broken.problem.is_some());
        let outside = head("---\nimportance: 7\n---\nbody\n");
        assert_eq!(outside.problem.as_deref(), Some(IMPORTANCE));
        assert_eq!(head("---\n---\nbody\n").body, 8);
    }

    #[test]
    fn a_wrong_attribute_is_refused_with_its_reason() {
        for (name, value) in [
            ("user.ctx.importance", &b"1.5"[..]),
            ("user.ctx.importance", b"NaN"),
            ("user.ctx.importance", b"high"),
            ("user.ctx.ttl", b"soon"),
            ("user.ctx.ttl", b"-1"),
            ("user.ctx.ttl", b"99999999999999999999w"),
            ("user.ctx.author", b""),
            ("user.ctx.tags", b"\xff"),
        ] {
            let (errno, reason) = check(name.as_bytes(), value).unwrap_err();
            assert_eq!(errno, Errno::INVAL);
            assert!(!reason.is_empty());
        }
        assert!(check(b"user.ctx.other", b"\xff").is_ok());
        assert!(check(b"user.importance", b"high").is_ok());
    }
}
