//! The files that the output of a command lists.

/// The lines that the output of a command has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// `ls -l` of a directory.
    Long(String),
    /// Paths, seen from a directory.
    Paths(String),
    /// `path:line:text` or `path:text`.
    Matches(String),
}

/// The files that an output lists.
pub(super) fn listed(listing: &Listing, output: &str) -> Vec<(String, Option<u64>)> {
    let below = |dir: &str, path: &str| {
        if super::path::is_absolute(path) || dir.is_empty() { path.to_owned() } else { format!("{dir}/{path}") }
    };
    // An agent shows the start of a long output, and says so.
    if output.contains("<persisted-output>") || output.contains("truncated") {
        return Vec::new();
    }
    // Of a file, `ls -l` shows one line with the path that it was asked for.
    let is_directory = output.starts_with("total ");
    let mut last = None;
    let found = output.lines().filter_map(|line| match listing {
        Listing::Long(path) if !is_directory => {
            let (size, _) = long_entry(line)?;
            Some((path.clone(), Some(size)))
        }
        Listing::Long(dir) => {
            let (size, name) = long_entry(line)?;
            (!name.contains('/')).then(|| (below(dir, name), Some(size)))
        }
        Listing::Paths(dir) => {
            let is_path = !line.is_empty() && !line.contains(": ") && !line.ends_with('/');
            is_path.then(|| (below(dir, line), None))
        }
        Listing::Matches(dir) => {
            let (path, _) = line.split_once(':')?;
            // Most files have several matches, one after the other.
            let is_first = last.replace(path) != Some(path);
            let is_path =
                is_first && !path.is_empty() && !path.contains(char::is_whitespace) && path.contains(['/', '.']);
            is_path.then(|| (below(dir, path), None))
        }
    });
    let mut found: Vec<_> = found.collect();
    found.dedup();
    found
}

/// Size and name of a file in a line of `ls -l`.
fn long_entry(line: &str) -> Option<(u64, &str)> {
    let mode = line.split_whitespace().next()?;
    if !mode.starts_with('-') || mode.len() < 10 {
        return None;
    }
    // Mode, links, owner, group, size, month, day, time, name.
    let mut rest = line;
    let mut size = None;
    for column in 0..8 {
        rest = rest.trim_start();
        let end = rest.find(char::is_whitespace)?;
        if column == 4 {
            size = rest[..end].parse().ok();
        }
        rest = &rest[end..];
    }
    let name = rest.trim_start();
    Some((size?, name)).filter(|(_, name)| !name.is_empty())
}
