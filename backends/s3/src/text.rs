//! Merging two versions of a file's content.

/// Lines of a text, beyond which edits are not merged: finding them takes time in the square of their number.
const LINES_MAX: usize = 10_000;

/// Merges `ours` and `theirs`, which both come from `base`. `None` if both must be kept.
///
/// Where both only append text, the appended parts follow each other, theirs first. Otherwise edits of text are merged
/// where they do not overlap. With `is_own`, `theirs` is an earlier state of the same working copy, which has forgotten that
/// it was committed: lines that both begin with are there once.
pub fn merge(base: Option<&[u8]>, ours: &[u8], theirs: &[u8], is_own: bool) -> Option<Vec<u8>> {
    if ours == theirs || base == Some(theirs) {
        return Some(ours.to_vec());
    }
    if base == Some(ours) {
        return Some(theirs.to_vec());
    }
    if is_own && ours.starts_with(theirs) {
        return Some(ours.to_vec());
    }
    if is_own && theirs.starts_with(ours) {
        return Some(theirs.to_vec());
    }
    let [Some(base), Some(ours), Some(theirs)] =
        [base, Some(ours), Some(theirs)].map(|bytes| std::str::from_utf8(bytes?).ok())
    else {
        return None;
    };
    if ours.starts_with(base) && theirs.starts_with(base) {
        let common = match is_own {
            true => common_lines(ours, theirs).max(base.len()),
            false => base.len(),
        };
        // A last line without its end is ended first, so that no line is torn.
        let end = if theirs.is_empty() || theirs.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        return Some([theirs, end, &ours[common..]].concat().into_bytes());
    }
    let is_long = |text: &&str| text.lines().nth(LINES_MAX).is_some();
    if [base, ours, theirs].iter().any(is_long) {
        return None;
    }
    let merged = diffy::merge(base, ours, theirs);
    merged.ok().map(String::into_bytes)
}

/// The bytes of whole lines that both begin with.
fn common_lines(one: &str, other: &str) -> usize {
    let lines = std::iter::zip(one.split_inclusive('\n'), other.split_inclusive('\n'));
    let common = lines.take_while(|(one, other)| one == other && one.ends_with('\n'));
    common.map(|(line, _)| line.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(base: &str, ours: &str, theirs: &str) -> Option<String> {
        merge(
            Some(base.as_bytes()),
            ours.as_bytes(),
            theirs.as_bytes(),
            false,
        )
        .map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn two_writers_that_append_keep_every_line_once() {
        let both = merged("a\n", "a\nours\n", "a\ntheirs\n");
        assert_eq!(both.as_deref(), Some("a\ntheirs\nours\n"));
        assert_eq!(merged("", "x\n", "y\n").as_deref(), Some("y\nx\n"));
        // A line that both append is there twice: neither writer loses one.
        assert_eq!(merged("", "x\n", "x\nx\n").as_deref(), Some("x\nx\nx\n"));
        assert_eq!(merged("a\n", "a\nb", "a\nc").as_deref(), Some("a\nc\nb"));
    }

    #[test]
    fn edits_of_different_lines_are_merged_and_others_are_not() {
        let base = "1\n2\n3\n4\n5\n6\n7\n8\n";
        let both = merged(base, &base.replace('2', "two"), &base.replace('7', "seven"));
        assert_eq!(
            both.unwrap(),
            base.replace('2', "two").replace('7', "seven")
        );
        assert_eq!(
            merged(base, &base.replace('2', "a"), &base.replace('2', "b")),
            None
        );
        assert_eq!(merge(Some(&[0xff, 1]), &[0xff, 2], &[0xff, 3], false), None);
        assert_eq!(merge(Some(&[]), &[0xff, 2], &[0xff, 3], false), None);
        assert_eq!(merge(None, b"a", b"b", false), None);
    }

    #[test]
    fn a_state_of_the_same_working_copy_is_not_taken_for_another_writers() {
        let own = merge(Some(b"a\n"), b"a\nb\nc\n", b"a\nb\n", true);
        assert_eq!(own.as_deref(), Some(b"a\nb\nc\n".as_slice()));
        let own = merge(Some(b"a\n"), b"a\nb\n", b"a\nb\nc\n", true);
        assert_eq!(own.as_deref(), Some(b"a\nb\nc\n".as_slice()));
        let own = merge(Some(b"a\n"), b"a\nb\nc\n", b"a\nb\nd\n", true);
        assert_eq!(own.as_deref(), Some(b"a\nb\nd\nc\n".as_slice()));
    }
}
