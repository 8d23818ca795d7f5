//! API keys, and their removal from logs, errors and debug output.

/// A key for a model server.
#[derive(Clone)]
pub struct ApiKey(String);

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl ApiKey {
    /// The key in the first of `variables` that is set and not empty.
    pub fn from_environment(variables: &[&str]) -> Option<Self> {
        let mut values =
            variables.iter().filter_map(|name| std::env::var(name).ok()).map(|value| value.trim().to_owned());
        values.find(|value| !value.is_empty()).map(Self)
    }

    /// A key from another source.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` without the key, and without words that contain its first 6 bytes: servers echo both.
    pub(crate) fn scrub(&self, text: &str) -> String {
        let text = text.replace(&self.0, "***");
        // "Incorrect API key provided: sk-abcd****wxyz" shows both ends of the key.
        let head = self.0.get(..6).unwrap_or(&self.0);
        let word = |word| if !head.is_empty() && str::contains(word, head) { "***" } else { word };
        text.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }
}

/// A URL for display: without user, password and query, which may hold a key. Accepts invalid URLs.
pub fn without_secrets(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let (rest, query) = match rest.find(['?', '#']) {
        Some(at) => (&rest[..at], "?***"),
        None => (rest, ""),
    };
    // The last `@`: a password may contain `@` and `/`, and the rest of a model server's URL has no `@`.
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}***@{host}{query}"),
        None => format!("{scheme}{rest}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_may_be_secret() {
        for (url, shown) in [
            ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
            ("https://me:hunter2@host/v1", "https://***@host/v1"),
            ("https://me:hun/t@er2@host/v1", "https://***@host/v1"),
            ("me:hunter2@host", "***@host"),
            ("ftp://hunter2@[bad", "ftp://***@[bad"),
            ("https://host/v1?key=hunter2", "https://host/v1?***"),
            ("https://host/v1#hunter2", "https://host/v1?***"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }

    #[test]
    fn a_key_is_never_shown_not_even_in_part() {
        let key = ApiKey::new("sk-abcdefghijklmnop");
        assert_eq!(format!("{key:?}"), "***");
        let echoed = key.scrub("wrong key sk-abcdefghijklmnop, given sk-abcde***mnop.");
        assert_eq!(echoed, "wrong key ***, given ***");
    }
}
