//! Merging two versions of a file's content.

/// Lines of a text, beyond which edits are not merged: finding them takes time in the square of their number.
const LINES_MAX: usize = 10_000;

/// Names of journals without an extension, in lower case.
const JOURNALS: [&str; 3] = ["diary", "journal", "log"];

/// Whether a file or key is Markdown, which has front matter in the mirror.
pub(crate) fn is_markdown(name: &[u8]) -> bool {
    name.to_ascii_lowercase().ends_with(b".md")
}

/// Whether programs add lines at the end of a file of that name: logs, plain text, a day's notes (`2026-11-24.md`) and
/// `journal.md`. Other Markdown is a document: two of them in one file would be none.
pub fn is_journal(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else {
        return false;
    };
    let name = name.to_ascii_lowercase();
    let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
    match extension {
        "jsonl" | "log" | "ndjson" | "txt" => true,
        "" | "md" => JOURNALS.contains(&stem) || stem.parse::<jiff::civil::Date>().is_ok(),
        _ => false,
    }
}

/// The base of two journals that were made at once: the whole lines that both begin with, such as a title.
pub fn journal_base<'a>(ours: &'a [u8], theirs: &[u8]) -> &'a [u8] {
    &ours[..common_lines(ours, theirs)]
}

/// Merges `ours` and `theirs`, which both come from `base`. `None` if both must be kept.
///
/// Where both only append text, the appended parts follow each other, theirs first. Otherwise edits of text are merged
/// where they do not overlap. Text is what has no zero byte, as for git, and is UTF-8 if the base is empty. With `is_own`, `theirs` is an earlier state of the same working copy, which has forgotten that
/// it was committed: lines that both begin with are there once.
pub fn merge(base: Option<&[u8]>, ours: &[u8], theirs: &[u8], is_own: bool) -> Option<Vec<u8>> {
    if ours == theirs || base == Some(theirs) {
        return Some(ours.to_vec());
    }
    if base == Some(ours) || (is_own && theirs.starts_with(ours)) {
        return Some(theirs.to_vec());
    }
    if is_own && ours.starts_with(theirs) {
        return Some(ours.to_vec());
    }
    let base = base?;
    let is_text = |bytes: &[u8]| {
        if base.is_empty() {
            // Short binary files often have no zero byte, and nothing tells that they were text before.
            std::str::from_utf8(bytes).is_ok()
        } else {
            true
        }
    };
    if ([base, ours, theirs].iter()).any(|bytes| bytes.contains(&0) || !is_text(bytes)) {
        return None;
    }
    if ours.starts_with(base) && theirs.starts_with(base) {
        let common = if is_own { common_lines(ours, theirs).max(base.len()) } else { base.len() };
        // A last line without its end is ended first, so that no line is torn.
        let is_ended = theirs.is_empty() || theirs.ends_with(b"\n");
        let end = if is_ended { &b""[..] } else { b"\n" };
        return Some([theirs, end, &ours[common..]].concat());
    }
    let is_long = |text: &&[u8]| text.split(|byte| *byte == b'\n').nth(LINES_MAX).is_some();
    if [base, ours, theirs].iter().any(is_long) {
        return None;
    }
    diffy::merge_bytes(base, ours, theirs).ok()
}

/// The bytes of whole lines that both begin with.
fn common_lines(one: &[u8], other: &[u8]) -> usize {
    let lines = |bytes| <[u8]>::split_inclusive(bytes, |byte| *byte == b'\n');
    let common =
        std::iter::zip(lines(one), lines(other)).take_while(|(one, other)| one == other && one.ends_with(b"\n"));
    common.map(|(line, _)| line.len()).sum()
}
