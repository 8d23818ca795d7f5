//! The crate graph must match ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{packages, rust_files, top};

/// Follows the name of a crate that only tests use.
const TESTS: &str = " (tests)";

/// Each crate's directory and the names of the crates it uses, those of its tests with [`TESTS`].
type Graph = BTreeMap<String, (String, BTreeSet<String>)>;

/// The graph in the table of ARCHITECTURE.md.
pub fn documented() -> Graph {
    let text = std::fs::read_to_string(top().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
        let [name, place, _, uses] = cells[..] else {
            return None;
        };
        let place = place.strip_prefix('`')?.strip_suffix('`')?;
        let uses = uses.trim_end_matches(" |").split(", ");
        let uses = uses.filter(|one| *one != "–").map(str::to_owned);
        Some((name.to_owned(), (place.to_owned(), uses.collect())))
    });
    rows.collect()
}

/// The graph that `cargo metadata` reports.
fn built() -> Graph {
    let top = top();
    let packages = packages();
    let ours: Vec<_> = packages.iter().filter(|package| package["source"].is_null()).collect();
    let names: BTreeSet<&str> = ours.iter().map(|package| package["name"].as_str().unwrap()).collect();
    let crates = ours.iter().map(|package| {
        let manifest = std::path::Path::new(package["manifest_path"].as_str().unwrap());
        let place = manifest.parent().unwrap().strip_prefix(&top).unwrap();
        let dependencies = package["dependencies"].as_array().unwrap();
        let of_kind = |is_wanted: fn(&Value) -> bool| -> BTreeSet<&str> {
            let wanted = dependencies.iter().filter(|used| is_wanted(&used["kind"]));
            let used = wanted.map(|used| used["name"].as_str().unwrap());
            used.filter(|name| names.contains(name)).collect()
        };
        let (built, dev) = (of_kind(|kind| kind != "dev"), of_kind(|kind| kind == "dev"));
        let built_names = built.iter().map(|name| (*name).to_owned());
        let dev_names = dev.difference(&built).map(|name| format!("{name}{TESTS}"));
        let uses = built_names.chain(dev_names);
        let place = place.to_str().unwrap().to_owned();
        (package["name"].as_str().unwrap().to_owned(), (place, uses.collect()))
    });
    crates.collect()
}

#[test]
fn crates_use_only_what_the_architecture_allows() {
    let documented = documented();
    assert!(documented.len() > 5, "the table was not found");
    assert_eq!(built(), documented);
}

#[test]
fn crates_do_not_depend_on_each_other_in_a_circle() {
    let graph = built();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    while done.len() < graph.len() {
        let next = graph.iter().find(|(name, (_, uses))| {
            let mut uses = uses.iter().map(|one| one.trim_end_matches(TESTS));
            !done.contains(name.as_str()) && uses.all(|one| done.contains(one))
        });
        let (name, _) = next.unwrap_or_else(|| panic!("a circle beyond {done:?}"));
        done.insert(name);
    }
}

/// `cargo test` would not run them: `doctest = false` in each library, `test = false` in that of s3.
#[test]
fn no_example_in_a_comment_and_no_test_in_the_library_of_s3_is_left_out() {
    let mut wrong = Vec::new();
    for (path, text) in rust_files() {
        let comments = text.lines().map(str::trim_start);
        let comments = comments.filter(|line| line.starts_with("///") || line.starts_with("//!"));
        let fences: Vec<&str> = comments.filter_map(|line| line[3..].trim_start().strip_prefix("```")).collect();
        // Every second fence ends an example.
        if fences.iter().step_by(2).any(|kind| !matches!(*kind, "text" | "toml")) {
            wrong.push(format!("{path}: an example that nothing compiles"));
        }
        if path.starts_with("backends/s3/src/") && text.contains("#[cfg(test)]") {
            wrong.push(format!("{path}: a test that nothing runs"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
