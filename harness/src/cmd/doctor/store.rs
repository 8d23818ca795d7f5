//! Checks a `sqlite` or `agent-memory` store.

use std::path::Path;

use inputs::border;
use reports::render::number_of;
use serde_json::json;
use sqlite::{DatabaseCheck, check};

use crate::cmd::format::ScreenFormat;

/// How many files without checksums are listed one by one.
const SHOWN: usize = 10;

/// Prints the defects of the database `store`. Returns whether it is sound.
pub fn print_store(store: &Path, format: ScreenFormat) -> anyhow::Result<bool> {
    let checked = check(store)?;
    let is_whole = checked.problems.is_empty();
    let document = json!({
        "store": store.to_string_lossy(), "is_whole": is_whole, "problems": checked.problems, "unchecked_tails": checked.unchecked_tails,
        "is_mounted": checked.is_mounted, "inodes": checked.inodes, "names": checked.names, "chunks": checked.chunks,
        "tails": checked.tails, "orphans": checked.orphans,
    });
    format.print(|| lines(store, &checked).join("\n") + "\n", &document)?;
    Ok(is_whole)
}

/// The defects, and the conclusion. A finding is one line, whatever the names in it.
fn lines(store: &Path, checked: &DatabaseCheck) -> Vec<String> {
    let mut lines: Vec<String> = checked.problems.iter().map(|problem| border::line(problem).into_owned()).collect();
    let unchecked = checked.unchecked_tails.iter().take(SHOWN).map(border::path);
    lines.extend(unchecked.map(|path| format!("content past the first 256 KiB has no checksums: {path}")));
    lines.push(format!(
        "{}: {}, {}, {} of content, {}, {} without a name; {}",
        border::path(store),
        number_of(checked.inodes as usize, "inode"),
        number_of(checked.names as usize, "name"),
        number_of(checked.chunks as usize, "chunk"),
        number_of(checked.tails as usize, "tail"),
        number_of(checked.orphans as usize, "inode"),
        conclusion(checked)
    ));
    lines
}

/// Whether the store is whole, and what could not be checked.
fn conclusion(checked: &DatabaseCheck) -> String {
    let found = match checked.problems.is_empty() {
        true => "whole",
        false => "DAMAGED: copy the file, and export what can be read with sqlite3",
    };
    let why = match checked.is_mounted {
        true => "the mount computes them at its unmount",
        false => {
            "the mount that wrote it was killed just then, the machine restarted, or the store was copied without its -sums or without file modes"
        }
    };
    match checked.unchecked_tails.len() {
        0 => found.to_owned(),
        1 => format!(
            "{found}, but 1 file has content past 256 KiB without checksums: {why}; a changed byte there cannot be found"
        ),
        files => format!(
            "{found}, but {files} files have content past 256 KiB without checksums: {why}; a changed byte there cannot be found"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_line_feeds_adds_no_line() {
        let name = "/x\na.db: 9 inodes; whole".to_owned();
        let checked = DatabaseCheck {
            problems: vec![format!("damaged: {name}")],
            unchecked_tails: vec![name],
            ..DatabaseCheck::default()
        };
        let lines = lines(Path::new("a\n.db"), &checked);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
        assert_eq!(lines[0], r"damaged: /x\u000aa.db: 9 inodes; whole");
    }

    #[test]
    fn a_store_is_called_whole_without_a_condition_only_if_all_content_was_compared() {
        let mut checked = DatabaseCheck::default();
        assert_eq!(conclusion(&checked), "whole");
        checked.unchecked_tails = vec!["/a".to_owned(), "/b".to_owned()];
        let killed = conclusion(&checked);
        assert!(
            killed.starts_with(
                "whole, but 2 files have content past 256 KiB without checksums: the mount that wrote it was killed"
            ),
            "{killed}"
        );
        checked.is_mounted = true;
        let mounted = conclusion(&checked);
        assert!(mounted.contains("computes them at its unmount"), "{mounted}");
        checked.problems.push("damage".to_owned());
        assert!(conclusion(&checked).starts_with("DAMAGED: "));
    }
}
