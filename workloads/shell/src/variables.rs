//! The variables of a command line whose text is certain, because the line itself has set them.

use std::cell::Cell;
use std::collections::HashMap;

/// The most bytes that the variables of a line add to its words, as many as Linux passes to a program: each assignment of a
/// variable to itself, twice, doubles its text.
const ADDED_MAX: usize = 2 << 20;

#[derive(Default)]
pub(super) struct Variables {
    texts: HashMap<String, String>,
    added: Cell<usize>,
}

impl Variables {
    pub(super) fn set(&mut self, name: String, text: String) {
        self.texts.insert(name, text);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.texts.remove(name);
    }

    pub(super) fn clear(&mut self) {
        self.texts.clear();
    }

    /// The text to add for a variable; `None` if it is not certain, or if the line's variables would add too much.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let text = self.texts.get(name)?;
        let added = self.added.get() + text.len();
        (added <= ADDED_MAX).then(|| {
            self.added.set(added);
            text.as_str()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_doubles_becomes_uncertain_before_it_fills_the_memory() {
        let mut variables = Variables::default();
        variables.set("a".to_owned(), "x".repeat(1000));
        let mut doubled = 0;
        while let (Some(one), Some(two)) = (variables.text("a"), variables.text("a")) {
            let text = [one, two].concat();
            variables.set("a".to_owned(), text);
            doubled += 1;
        }
        assert_eq!(doubled, 10);
        assert!(variables.texts["a"].len() <= ADDED_MAX);
        variables.clear();
        assert_eq!(variables.text("a"), None);
    }
}
