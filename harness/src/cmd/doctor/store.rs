//! Checks a `sqlite` or `agent-memory` store.

use std::path::Path;

use backends::sqlite::check;

/// Prints the defects of the database `store`. Returns whether it is sound.
pub fn print_store(store: &Path) -> anyhow::Result<bool> {
    let checked = check(store)?;
    for problem in &checked.problems {
        println!("{problem}");
    }
    println!(
        "{}: {} inodes, {} names, {} chunks of content, {} tails, {} inodes without a name; {}",
        store.display(),
        checked.inodes,
        checked.names,
        checked.chunks,
        checked.tails,
        checked.orphans,
        if checked.problems.is_empty() {
            "whole".to_owned()
        } else {
            "DAMAGED: copy the file, and export what can be read with sqlite3".to_owned()
        }
    );
    Ok(checked.problems.is_empty())
}
