//! Names that the events of a session repeat: lanes, tools and models. Each is in memory once.

use std::collections::HashSet;
use std::sync::Arc;

/// The names of a session.
#[derive(Debug, Default)]
pub struct SessionNames(HashSet<Arc<str>>);

impl SessionNames {
    /// The shared copy of a name.
    pub fn shared(&mut self, name: &str) -> Arc<str> {
        match self.0.get(name) {
            Some(known) => Arc::clone(known),
            None => {
                let new = Arc::from(name);
                self.0.insert(Arc::clone(&new));
                new
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_events_repeat_is_in_memory_once() {
        let mut names = SessionNames::default();
        let [first, other, again] = ["main", "sub:a", "main"].map(|name| names.shared(name));
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!((&*first, &*other), ("main", "sub:a"));
    }
}
