//! Phrases that tell something of a long output: all are looked for in one pass.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};

/// Phrases to look for.
pub(super) struct Phrases {
    all: &'static [&'static str],
    searcher: OnceLock<Option<AhoCorasick>>,
}

impl Phrases {
    /// These phrases.
    pub(super) const fn new(all: &'static [&'static str]) -> Self {
        Self { all, searcher: OnceLock::new() }
    }

    /// Whether one of the phrases is in a text.
    pub(super) fn are_in(&self, text: &str) -> bool {
        // Only the search for the first phrase in turn has the vector instructions.
        let searcher = self.searcher.get_or_init(|| {
            let kind = MatchKind::LeftmostFirst;
            AhoCorasick::builder().match_kind(kind).build(self.all).ok()
        });
        match searcher {
            Some(searcher) => searcher.is_match(text),
            None => self.all.iter().any(|phrase| text.contains(phrase)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_of_the_phrases_is_found_wherever_it_is() {
        static PHRASES: Phrases = Phrases::new(&["tokens truncated…", "os error"]);
        for (text, expected) in [
            ("", false),
            ("os erro", false),
            ("(os error 2)", true),
            ("…12 tokens truncated…", true),
            ("tokens truncated", false),
        ] {
            assert_eq!(PHRASES.are_in(text), expected, "{text}");
        }
    }
}
