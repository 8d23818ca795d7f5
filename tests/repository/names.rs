//! One name, one thing: no two public types have the same name.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust_files;

/// Directories whose types may be named like others: commands are named as on the command line, crate `s3` is described
/// in terms of its protocol, and tests define their own.
const OTHERS: [&str; 5] = ["harness/src/cmd/", "backends/s3/", "tests/", "testing", "tests.rs"];

/// The public types in a source text.
fn types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words = line.trim_start().strip_prefix("pub ")?.split(' ');
        ["struct", "enum", "trait", "type"].contains(&words.next()?).then_some(())?;
        let is_no_letter = |letter: char| !letter.is_alphanumeric();
        words.next()?.split(is_no_letter).next()
    })
}

#[test]
fn no_two_public_types_have_the_same_name() {
    let files = rust_files();
    let mut places: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, text) in &files {
        if !OTHERS.iter().any(|other| file.contains(other)) {
            types(text).for_each(|name| {
                places.entry(name).or_default().insert(file);
            });
        }
    }
    assert!(places.len() > 500, "only {} types were found", places.len());
    places.retain(|name, files| files.len() > 1 && *name != "Result");
    assert!(places.is_empty(), "{places:#?}");
}
