//! One page of a key listing: prefix, delimiter, start and continuation.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::object::Object;

/// Maximum number of entries of a page, as in Amazon S3.
pub(crate) const LONGEST_PAGE: usize = 1000;

/// The parameters of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) delimiter: Option<&'a str>,
    /// The last key or common prefix that the client has received.
    pub(crate) after: Option<&'a str>,
    pub(crate) limit: usize,
}

/// The entries of a page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) objects: Vec<(String, Arc<Object>)>,
    pub(crate) common_prefixes: Vec<String>,
    /// The start of the next page, if there is one.
    pub(crate) next: Option<String>,
}

impl Page {
    /// The page of `objects` that `query` asks for.
    pub(crate) fn of(objects: &BTreeMap<String, Arc<Object>>, query: Query<'_>) -> Self {
        let mut page = Self::default();
        if query.limit == 0 {
            return page;
        }
        let from = match query.after {
            Some(after) if after >= query.prefix => Bound::Excluded(after),
            _ => Bound::Included(query.prefix),
        };
        let mut last: Option<&str> = None;
        let mut count = 0;
        for (key, object) in objects.range::<str, _>((from, Bound::Unbounded)) {
            if !key.starts_with(query.prefix) {
                break;
            }
            let common = common_prefix(key, query);
            // All keys below a common prefix are one entry, which an earlier page may contain.
            if common.is_some() && (common == last || common == query.after) {
                continue;
            }
            if count == query.limit {
                page.next = last.map(str::to_owned);
                break;
            }
            match common {
                Some(common) => page.common_prefixes.push(common.to_owned()),
                None => page.objects.push((key.clone(), Arc::clone(object))),
            }
            last = common.or(Some(key));
            count += 1;
        }
        page
    }
}

/// The part of a key up to the first delimiter after the prefix.
fn common_prefix<'a>(key: &'a str, query: Query<'_>) -> Option<&'a str> {
    let delimiter = query.delimiter.filter(|delimiter| !delimiter.is_empty())?;
    let at = key[query.prefix.len()..].find(delimiter)?;
    Some(&key[..query.prefix.len() + at + delimiter.len()])
}

/// A key in `encoding-type=url`, because XML cannot represent every character.
pub(crate) fn url_encoded(key: &str) -> String {
    key.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' | b'/' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::embedded::object::Attributes;

    fn objects(keys: &[&str]) -> BTreeMap<String, Arc<Object>> {
        let object = |_: &&str| {
            Arc::new(Object {
                file: "".into(),
                key: String::new(),
                size: 0,
                e_tag: String::new(),
                modified: SystemTime::UNIX_EPOCH,
                attributes: Attributes::default(),
            })
        };
        keys.iter().map(|key| ((*key).to_owned(), object(key))).collect()
    }

    /// All pages of a listing, each with its keys and common prefixes.
    fn pages(keys: &[&str], query: Query<'_>) -> Vec<(Vec<String>, Vec<String>)> {
        let objects = objects(keys);
        let mut pages = Vec::new();
        let mut after = query.after.map(str::to_owned);
        loop {
            let after_now = after.clone();
            let query = Query { after: after_now.as_deref(), ..query };
            let page = Page::of(&objects, query);
            let keys = page.objects.into_iter().map(|(key, _)| key).collect();
            pages.push((keys, page.common_prefixes));
            match page.next {
                Some(next) => after = Some(next),
                None => return pages,
            }
        }
    }

    const KEYS: [&str; 6] = ["a", "a/1", "a/2", "b", "b/1/x", "c"];

    fn query<'a>(prefix: &'a str, delimiter: Option<&'a str>, limit: usize) -> Query<'a> {
        Query { prefix, delimiter, after: None, limit }
    }

    #[test]
    fn the_pages_of_a_listing_hold_every_entry_once() {
        for limit in 1..8 {
            let flat: Vec<String> =
                pages(&KEYS, query("", None, limit)).into_iter().flat_map(|(keys, _)| keys).collect();
            assert_eq!(flat, KEYS, "{limit}");
            let rolled = pages(&KEYS, query("", Some("/"), limit));
            let keys: Vec<&String> = rolled.iter().flat_map(|(keys, _)| keys).collect();
            let prefixes: Vec<&String> = rolled.iter().flat_map(|(_, rolled)| rolled).collect();
            assert_eq!(keys, ["a", "b", "c"], "{limit}");
            assert_eq!(prefixes, ["a/", "b/"], "{limit}");
        }
    }

    #[test]
    fn a_prefix_and_a_start_restrict_the_listing() {
        let below = pages(&KEYS, query("b/", Some("/"), 10));
        assert_eq!(below, [(vec![], vec!["b/1/".to_owned()])]);
        let mut late = query("a", None, 10);
        late.after = Some("a/1");
        assert_eq!(pages(&KEYS, late), [(vec!["a/2".to_owned()], vec![])]);
        assert_eq!(pages(&KEYS, query("", None, 0)), [(vec![], vec![])]);
    }

    #[test]
    fn the_url_encoding_keeps_every_byte() {
        assert_eq!(url_encoded("a b/ü\n+%"), "a%20b/%C3%BC%0A%2B%25");
    }
}
