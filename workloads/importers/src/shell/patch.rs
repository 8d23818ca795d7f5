//! The patches of `apply_patch`: `*** Begin Patch`, then files to add, delete, update and move.

use super::steps::ShellStep;
use crate::Replacement;

/// The operations of a patch. `place` makes a path of it absolute.
pub(super) fn steps(patch: &str, place: impl Fn(&str) -> String) -> Result<Vec<ShellStep>, &'static str> {
    const BROKEN: &str = "a patch that cannot be read";
    let mut lines = patch.lines().peekable();
    if lines.next().map(str::trim) != Some("*** Begin Patch") {
        return Err(BROKEN);
    }
    let mut steps = Vec::new();
    loop {
        let line = lines.next().ok_or(BROKEN)?;
        if line.trim() == "*** End Patch" {
            return Ok(steps);
        }
        if let Some(path) = line.strip_prefix("*** Add File: ") {
            let mut content = String::new();
            while let Some(added) = lines.next_if(|line| !line.starts_with("*** ")) {
                content.push_str(added.strip_prefix('+').ok_or(BROKEN)?);
                content.push('\n');
            }
            let path = place(path.trim());
            steps.push(ShellStep::Write { path, content });
        } else if let Some(path) = line.strip_prefix("*** Delete File: ") {
            let path = place(path.trim());
            steps.push(ShellStep::Remove { path, force: false });
        } else if let Some(path) = line.strip_prefix("*** Update File: ") {
            let path = place(path.trim());
            let moved = lines.next_if(|line| line.starts_with("*** Move to: "));
            let moved = moved.and_then(|line| line.strip_prefix("*** Move to: "));
            let mut replacements = Vec::new();
            let mut hunk: Option<Replacement> = None;
            let is_in_file = |line: &&str| !line.starts_with("*** ") || line.trim() == "*** End of File";
            while let Some(line) = lines.next_if(is_in_file) {
                if line.starts_with("@@") || line.starts_with("*** ") {
                    replacements.extend(hunk.take());
                    // A line behind which the place is.
                    let before = line.strip_prefix("@@ ").filter(|before| !before.starts_with('-'));
                    replacements.extend(before.map(|before| {
                        let text = format!("{before}\n");
                        Replacement { old: text.clone(), new: text, all: false }
                    }));
                    continue;
                }
                let hunk =
                    hunk.get_or_insert_with(|| Replacement { old: String::new(), new: String::new(), all: false });
                let (kind, text) = match line.chars().next() {
                    None => (' ', ""),
                    Some(kind @ (' ' | '+' | '-')) => (kind, &line[1..]),
                    Some(_) => return Err(BROKEN),
                };
                if kind != '+' {
                    hunk.old.push_str(text);
                    hunk.old.push('\n');
                }
                if kind != '-' {
                    hunk.new.push_str(text);
                    hunk.new.push('\n');
                }
            }
            replacements.extend(hunk);
            if replacements.iter().any(|hunk| hunk.old.is_empty()) {
                return Err("a patch that names no place");
            }
            if !replacements.is_empty() {
                let path = path.clone();
                steps.push(ShellStep::Edit { path, replacements });
            }
            if let Some(to) = moved {
                let to = place(to.trim());
                steps.push(ShellStep::Move { from: path, to });
            }
        } else if !line.trim().is_empty() {
            return Err(BROKEN);
        }
    }
}
