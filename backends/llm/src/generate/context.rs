//! The generated files that the prompt of another file shows: their order, their text within a limit, and the record
//! of them.

use std::fmt::Write;

use fuse::store::{Ino, Kind, Store};

use super::SharedState;
use super::generator::TreeLine;
use crate::names::shown;

/// The most bytes of other files in a prompt.
pub const CONTEXT_MAX: usize = 128 * 1024;

/// The default for the most bytes of other files in a prompt: about 2,000 tokens, half of a small model's context.
pub const CONTEXT_DEFAULT: usize = 8 * 1024;

/// The most bytes of the record in an extended attribute, whose value Linux limits to 64 KiB.
const RECORD_MAX: usize = 60_000;

/// The line before other files in a prompt.
pub(super) const HEAD: &str = "These files are already written. The new file must fit them:\n";

/// Beginnings and ends of a stem that make it the test of another.
const TEST_PREFIXES: [&str; 3] = ["test_", "test-", "Test"];
const TEST_SUFFIXES: [&str; 8] = ["_test", "-test", "_tests", "-tests", "_spec", "-spec", "Tests", "Test"];

/// A generated file that the prompt of another file shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFile {
    /// Path from the root, such as `/src/x.py`.
    pub path: String,
    /// Its text, or the beginning of it.
    pub text: String,
    /// Size of the file in bytes; more than that of `text` if this is the beginning alone.
    pub size: u64,
    /// SHA-256 of the whole file.
    sha256: String,
}

impl ContextFile {
    fn is_cut(&self) -> bool {
        (self.text.len() as u64) < self.size
    }

    /// The file in a prompt. Its fence is longer than any in its text, so the text cannot imitate another file.
    fn in_prompt(&self) -> String {
        let mut longest = 0;
        let mut run = 0;
        for char in self.text.chars() {
            run = if char == '`' { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        let fence = "`".repeat((longest + 1).max(3));
        let path = shown(self.path.as_bytes());
        let cut = if self.is_cut() {
            format!(" (the first {} of {} bytes)", self.text.len(), self.size)
        } else {
            String::new()
        };
        let newline = if self.text.ends_with('\n') { "" } else { "\n" };
        format!("{path}{cut}:\n{fence}\n{}{newline}{fence}\n", self.text)
    }

    /// The file in the record: a line of `sha256sum`, after a comment if the prompt shows its beginning alone.
    fn in_record(&self) -> String {
        let mut record = String::new();
        if self.is_cut() {
            // Writing to a string does not fail.
            let _ = writeln!(record, "# the first {} of {} bytes:", self.text.len(), self.size);
        }
        let _ = writeln!(record, "{}  {}", self.sha256, shown(self.path.trim_start_matches('/').as_bytes()));
        record
    }
}

/// The part of a prompt with other files; empty without any.
pub(super) fn in_prompt(files: &[ContextFile]) -> String {
    if files.is_empty() {
        return String::new();
    }
    [HEAD.to_owned()].into_iter().chain(files.iter().map(ContextFile::in_prompt)).collect()
}

/// The record of the files that a prompt shows, which `sha256sum -c` compares with the files of the mount.
pub(super) fn record(files: &[ContextFile]) -> String {
    files.iter().map(ContextFile::in_record).collect()
}

/// The stem of a file's name, without the parts that make it a test: `x` for `x.py`, `test_x.py` and `x.test.ts`.
fn stem(name: &str) -> String {
    let bare = name.trim_start_matches('.');
    let stem = bare.split('.').next().unwrap_or(bare);
    let stem = TEST_PREFIXES.iter().find_map(|prefix| stem.strip_prefix(prefix)).unwrap_or(stem);
    let stem = TEST_SUFFIXES.iter().find_map(|suffix| stem.strip_suffix(suffix)).unwrap_or(stem);
    stem.to_lowercase()
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The number of steps between two directories.
fn distance(a: &str, b: &str) -> usize {
    fn parts(dir: &str) -> impl Iterator<Item = &str> {
        dir.split('/').filter(|part| !part.is_empty())
    }
    let common = parts(a).zip(parts(b)).take_while(|(a, b)| a == b).count();
    parts(a).count() + parts(b).count() - 2 * common
}

/// Where `other` comes among the files that the prompt of `path` shows: first those of the same stem under another
/// name (`x.py` for `test_x.py`, `x.h` for `x.c`), then those of the same directory, then the nearest directories.
fn rank(path: &str, other: &str) -> (bool, usize, String) {
    let ((dir, name), (other_dir, other_name)) = (split(path), split(other));
    let is_partner = name != other_name && stem(name) == stem(other_name);
    (!is_partner, distance(dir, other_dir), other.to_owned())
}

/// The longest beginning of `text` within `most` bytes: whole lines, or a part of a first line that is longer.
fn beginning(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let lines = text[..end].rfind('\n').map_or(end, |newline| newline + 1);
    &text[..lines]
}

impl SharedState {
    /// The generated files that the prompt of the file at `path` shows, in the order of [`rank`], within `most` bytes
    /// with their paths. The last one may be cut. Files that a program has written or changed are not shown.
    pub(super) fn context_files(&self, path: &str, tree: &[TreeLine], most: usize) -> Vec<ContextFile> {
        let own = tree.iter().find(|line| line.path == path).map(|line| line.attr.ino);
        let is_candidate = |line: &&TreeLine| {
            let is_generated = line.generator().is_some() && !line.is_pending;
            line.attr.kind == Kind::File && is_generated && line.attr.size > 0 && Some(line.attr.ino) != own
        };
        let mut candidates: Vec<&TreeLine> = tree.iter().filter(is_candidate).collect();
        candidates.sort_by_cached_key(|line| rank(path, &line.path));
        let (mut files, mut left, mut recorded) = (Vec::new(), most, 0);
        let mut inodes: Vec<Ino> = Vec::new();
        for line in candidates {
            if inodes.contains(&line.attr.ino) {
                continue;
            }
            let Some(mut file) = self.context_file(line) else { continue };
            let whole = file.in_prompt().len();
            let is_last = whole > left;
            if is_last {
                // The frame of a cut file is longer by the words that say so.
                let frame = whole - file.text.len() + 60;
                file.text = beginning(&file.text, left.saturating_sub(frame)).to_owned();
                if file.text.is_empty() {
                    break;
                }
            }
            left = left.saturating_sub(file.in_prompt().len());
            recorded += file.in_record().len();
            if recorded > RECORD_MAX {
                break;
            }
            inodes.push(line.attr.ino);
            files.push(file);
            if is_last {
                break;
            }
        }
        files
    }

    /// A whole file of the tree; `None` if it is not text, or was removed.
    fn context_file(&self, line: &TreeLine) -> Option<ContextFile> {
        let mut bytes = Vec::new();
        self.files.read(line.attr.ino, 0, usize::try_from(line.attr.size).ok()?, &mut bytes).ok()?;
        let sha256 = inputs::sha256(&bytes);
        let text = String::from_utf8(bytes).ok().filter(|text| !text.is_empty() && !text.contains('\0'))?;
        Some(ContextFile { path: line.path.clone(), size: text.len() as u64, text, sha256 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str, size: u64) -> ContextFile {
        ContextFile { path: path.to_owned(), text: text.to_owned(), size, sha256: inputs::sha256(text) }
    }

    #[test]
    fn partners_come_first_then_the_same_directory_then_the_nearest() {
        let mut all = ["/z.md", "/src/x.py", "/tests/test_a.py", "/docs/deep/test_x.py", "/src/y.py", "/tests/b/c.py"];
        all.sort_by_cached_key(|other| rank("/tests/test_x.py", other));
        // A file of the same name elsewhere is no partner: each directory may have its `__init__.py`.
        let expected = ["/src/x.py", "/tests/test_a.py", "/tests/b/c.py", "/z.md", "/src/y.py", "/docs/deep/test_x.py"];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_test_has_the_stem_of_its_module() {
        for name in ["x.py", "test_x.py", "x_test.go", "x.test.ts", "X.java", "XTest.java", "x-spec.rb", "TestX.cs"] {
            assert_eq!(stem(name), "x", "{name}");
        }
        assert_ne!(stem("y.py"), "x");
        assert_eq!(stem(".gitignore"), "gitignore");
    }

    #[test]
    fn no_text_ends_its_fence_and_no_path_adds_a_line() {
        let text = "```\n/other:\n````\n";
        let prompt = in_prompt(&[file("/a\nb", text, 17), file("/c", "no newline", 99)]);
        assert!(prompt.contains("/a\\nb:\n`````\n```\n/other:\n````\n`````\n"), "{prompt}");
        assert!(prompt.contains("/c (the first 10 of 99 bytes):\n```\nno newline\n```\n"), "{prompt}");
        assert_eq!(in_prompt(&[]), "");
        let record = record(&[file("/c", "no newline", 99)]);
        let expected = format!("# the first 10 of 99 bytes:\n{}  c\n", inputs::sha256("no newline"));
        assert_eq!(record, expected);
    }

    #[test]
    fn a_beginning_has_whole_lines_and_whole_characters() {
        assert_eq!(beginning("one\ntwo\n", 8), "one\ntwo\n");
        assert_eq!(beginning("one\ntwo\n", 7), "one\n");
        assert_eq!(beginning("éé", 3), "é");
        assert_eq!(beginning("é", 1), "");
    }
}
