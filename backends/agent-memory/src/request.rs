//! Parsing of names that are requests: `:search?RSI`, `:recall?query=NVDA+risk&max_tokens=2000`,
//! `note.md:meta`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use url::form_urlencoded;

/// The most bytes of a question or search expression, decoded.
pub(super) const QUERY_MAX: usize = 4096;

/// The token budget of a recall: its limits and its default. A smaller one has no room for an answer.
pub(super) const TOKENS_MIN: u64 = 64;
const TOKENS_MAX: u64 = 1_000_000;
const TOKENS_DEFAULT: u64 = 2000;

/// Lines that a search shows: the default and the limit.
const LINES_DEFAULT: usize = 20;
const LINES_MAX: usize = 1000;

/// The order of relevant notes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Newest first.
    Recency,
    /// Most important first.
    Importance,
    /// Relevance, importance and recency together.
    #[default]
    Balanced,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 3] = [Self::Recency, Self::Importance, Self::Balanced];

    /// The name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recency => "recency",
            Self::Importance => "importance",
            Self::Balanced => "balanced",
        }
    }
}

/// Where the query of a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Query {
    /// In the name.
    Here(String),
    /// In a file of the same directory: a name has no room for more than 255 bytes.
    InFile(String),
    /// The target of a symbolic link of the same directory. A link is not a note, so no request finds the query itself.
    InLink(String),
}

/// A request about a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Search { query: Query, lines: usize },
    Recall { query: Query, max_tokens: u64, strategy: Strategy },
    Stats,
    Meta,
    Tags,
    Ttl { only_expired: bool },
    History,
}

/// A request about one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aspect {
    Meta,
    Tags,
    Ttl,
    History,
}

/// Whether a name is a request about a directory. Files cannot be created with such a name.
pub(super) fn is_reserved(name: &[u8]) -> bool {
    name.strip_prefix(b":").is_some_and(|rest| {
        let keyword = rest.split(|byte| *byte == b'?').next().unwrap_or_default();
        matches!(keyword, b"search" | b"recall" | b"stats" | b"meta" | b"tags" | b"ttl" | b"history")
    })
}

/// The file's name and the aspect in a name such as `note.md:meta`.
pub(super) fn aspect(name: &[u8]) -> Option<(&[u8], Aspect)> {
    let colon = name.iter().rposition(|byte| *byte == b':')?;
    let aspect = match &name[colon + 1..] {
        b"meta" => Aspect::Meta,
        b"tags" => Aspect::Tags,
        b"ttl" => Aspect::Ttl,
        b"history" => Aspect::History,
        _ => return None,
    };
    (colon > 0).then_some((&name[..colon], aspect))
}

/// Parses a reserved name.
///
/// # Errors
/// The reason why the name is refused, for `:stats`.
pub(super) fn parse(name: &[u8]) -> Result<Request, String> {
    let name = std::str::from_utf8(name).map_err(|_| "the name is not UTF-8; write other bytes as %xx".to_owned())?;
    let rest = name.strip_prefix(':').unwrap_or(name);
    let (keyword, arguments) = match rest.split_once('?') {
        Some((keyword, arguments)) => (keyword, Some(arguments)),
        None => (rest, None),
    };
    let nothing = |request| match arguments {
        None | Some("") => Ok(request),
        Some(_) => Err(format!(":{keyword} takes no argument")),
    };
    match keyword {
        "search" => search(arguments),
        "recall" => recall(arguments),
        "stats" => nothing(Request::Stats),
        "meta" => nothing(Request::Meta),
        "tags" => nothing(Request::Tags),
        "history" => nothing(Request::History),
        "ttl" => match arguments {
            Some("expired") => Ok(Request::Ttl { only_expired: true }),
            None | Some("") => Ok(Request::Ttl { only_expired: false }),
            Some(_) => Err("the only argument of :ttl? is `expired`".to_owned()),
        },
        _ => Err(format!("there is no :{keyword}")),
    }
}

fn search(arguments: Option<&str>) -> Result<Request, String> {
    let usage = "write :search?WORDS, as in :search?RSI, :search?\"exact+words\" or :search?RSI&limit=50";
    let mut lines = LINES_DEFAULT;
    let query = parse_query("search", usage, arguments, |key, value| {
        match key {
            "limit" => lines = number(key, value, 1..=LINES_MAX)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let query = query.ok_or_else(|| format!("the search is empty; {usage}"))?;
    Ok(Request::Search { query, lines })
}

fn recall(arguments: Option<&str>) -> Result<Request, String> {
    let usage = "write :recall?query=WORDS&max_tokens=2000&strategy=balanced";
    let (mut max_tokens, mut strategy) = (TOKENS_DEFAULT, Strategy::default());
    let query = parse_query("recall", usage, arguments, |key, value| {
        match key {
            "max_tokens" => max_tokens = number(key, value, TOKENS_MIN..=TOKENS_MAX)?,
            "strategy" => {
                strategy = Strategy::ALL
                    .into_iter()
                    .find(|strategy| strategy.name().eq_ignore_ascii_case(value))
                    .ok_or_else(|| format!("unknown strategy {value:?}; use recency, importance or balanced"))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let query = query.ok_or_else(|| format!("the query is missing; {usage}"))?;
    Ok(Request::Recall { query, max_tokens, strategy })
}

/// Parses the parameters of a query. `option` takes the key and value of any other parameter; false if it has none of
/// that name.
fn parse_query(
    keyword: &str,
    usage: &str,
    arguments: Option<&str>,
    mut option: impl FnMut(&str, &str) -> Result<bool, String>,
) -> Result<Option<Query>, String> {
    let arguments = arguments.unwrap_or_default();
    let first = arguments.split('&').next().unwrap_or_default();
    // The form of source 3: the text after the question mark is the query.
    let is_bare = !first.is_empty() && !first.contains('=');
    let mut query = None;
    // With `+` and `%xx` decoded.
    let pairs = form_urlencoded::parse(arguments.as_bytes());
    for (position, (key, value)) in pairs.enumerate() {
        match (&*key, &*value) {
            (text, _) if position == 0 && is_bare => set(&mut query, here(text)?)?,
            ("query", text) => set(&mut query, here(text)?)?,
            ("file", name) => set(&mut query, Query::InFile(beside("file", name)?))?,
            ("link", name) => set(&mut query, Query::InLink(beside("link", name)?))?,
            (key, value) => {
                if !option(key, value)? {
                    return Err(format!(":{keyword} has no parameter {key:?} (write & as %26 and = as %3D); {usage}"));
                }
            }
        }
    }
    Ok(query)
}

fn number<T: FromStr + PartialOrd + Display>(key: &str, value: &str, range: RangeInclusive<T>) -> Result<T, String> {
    let number = value.parse::<T>().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (min, max) = (range.start(), range.end());
        format!("{key} is {value:?}; it must be a number from {min} to {max}")
    })
}

fn set(query: &mut Option<Query>, given: Query) -> Result<(), String> {
    match query.replace(given) {
        None => Ok(()),
        Some(_) => Err("there are two queries".to_owned()),
    }
}

fn here(text: &str) -> Result<Query, String> {
    check_query(text)?;
    Ok(Query::Here(text.to_owned()))
}

/// The name of a file or symbolic link of the directory that is asked.
fn beside(kind: &str, name: &str) -> Result<String, String> {
    if name.is_empty() || name.contains('/') {
        return Err(format!("{kind} must name a {kind} of this directory"));
    }
    Ok(name.to_owned())
}

/// Whether a text is a valid query.
pub(super) fn check_query(text: &str) -> Result<(), String> {
    if text.len() > QUERY_MAX {
        return Err(format!("the query has {} bytes; the maximum is {QUERY_MAX}", text.len()));
    }
    if !text.chars().any(char::is_alphanumeric) {
        return Err("the query has no words".to_owned());
    }
    if text.contains('\0') {
        return Err("the query has a NUL byte".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(text: &str) -> Query {
        Query::Here(text.to_owned())
    }

    #[test]
    fn the_forms_of_source_3_are_understood() {
        let search = |text: &str| Request::Search { query: here(text), lines: 20 };
        assert_eq!(parse(b":search?RSI"), Ok(search("RSI")));
        assert_eq!(parse(b":search?NVDA+risk"), Ok(search("NVDA risk")));
        assert_eq!(parse(b":search?a%2Fb%26c%3Dd"), Ok(search("a/b&c=d")));
        assert_eq!(parse(":search?größe".as_bytes()), Ok(search("größe")));
        let recall = |max_tokens, strategy| Request::Recall { query: here("NVDA risk"), max_tokens, strategy };
        assert_eq!(parse(b":recall?query=NVDA+risk&max_tokens=500"), Ok(recall(500, Strategy::Balanced)));
        assert_eq!(parse(b":recall?NVDA+risk&strategy=recency"), Ok(recall(2000, Strategy::Recency)));
        // As source 3 writes them.
        assert_eq!(parse(b":recall?NVDA+risk&strategy=IMPORTANCE"), Ok(recall(2000, Strategy::Importance)));
        assert_eq!(parse(b":ttl?expired"), Ok(Request::Ttl { only_expired: true }));
        assert_eq!(aspect(b"note.md:meta"), Some((&b"note.md"[..], Aspect::Meta)));
        assert_eq!(aspect(b":meta"), None);
        assert_eq!(aspect(b"mail:2,S"), None);
    }

    #[test]
    fn a_request_without_an_answer_says_why() {
        for (name, reason) in [
            (":search", "the search is empty"),
            (":search?", "the search is empty"),
            (":search?%22%22", "no words"),
            (":search?x&limit=0", "limit is \"0\""),
            (":search?x&y=1", "no parameter \"y\""),
            (":search?query=x&query=y", "two queries"),
            (":recall?query=", "no words"),
            (":recall?max_tokens=100", "the query is missing"),
            (":recall?query=x&max_tokens=0", "max_tokens is \"0\""),
            (":recall?query=x&max_tokens=-5", "max_tokens is \"-5\""),
            (":recall?query=x&max_tokens=many", "max_tokens is \"many\""),
            (":recall?query=x&max_tokens=63", "from 64 to 1000000"),
            (":recall?query=x&strategy=best", "unknown strategy \"best\""),
            (":recall?query=x%00y", "NUL"),
            (":recall?file=a/b", "file of this directory"),
            (":recall?link=", "link of this directory"),
            (":recall?link=a&query=b", "two queries"),
            (":stats?x", "takes no argument"),
            (":ttl?x", "only argument of :ttl? is `expired`"),
        ] {
            let said = parse(name.as_bytes()).unwrap_err();
            assert!(said.contains(reason), "{name}: {said}");
        }
        let long = format!(":recall?query={}", "word ".repeat(13_000));
        assert!(parse(long.as_bytes()).unwrap_err().contains("the maximum is 4096"));
    }
}
