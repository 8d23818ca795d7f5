//! Which bytes of a read follow from the recording: those of lines that nothing outside of the recorded calls has changed since
//! they were shown. docs/FORMAT.md states the rule.

use super::alignment::LineChange;
use shell::programs::lists;

/// What the recording tells of a line, besides its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// It was shown before an edit of the file, or no call has told anything of it.
    Derived,
    /// An edit wrote it.
    Edited,
    /// A read has shown it, and no call has changed the file since.
    Shown,
    /// It may be older than a change outside of the recorded calls.
    Doubtful,
}

/// What the recording tells of the lines of a file, by their current numbers from 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    lines: Vec<Line>,
    /// Whether the lines beyond `lines` are doubtful.
    is_rest_doubtful: bool,
}

impl Evidence {
    /// A call has written or shown a whole file of so many lines.
    pub(super) fn whole(lines: usize) -> Self {
        Self { lines: vec![Line::Shown; lines], is_rest_doubtful: false }
    }

    /// Something outside of the recorded calls may have changed the file.
    pub(super) fn doubt(&mut self) {
        self.lines.fill(Line::Doubtful);
        self.is_rest_doubtful = true;
    }

    /// A program may have changed what edits wrote: a formatter.
    pub(super) fn doubt_edits(&mut self) {
        for line in self.lines.iter_mut().filter(|line| **line == Line::Edited) {
            *line = Line::Doubtful;
        }
    }

    /// A call has changed lines of the file.
    pub(super) fn edit(&mut self, changes: &[LineChange]) {
        for line in self.lines.iter_mut().filter(|line| **line == Line::Shown) {
            *line = Line::Derived;
        }
        self.change(changes, Line::Edited);
    }

    /// Lines came or went outside of the recorded calls.
    pub(super) fn align(&mut self, changes: &[LineChange]) {
        self.change(changes, Line::Doubtful);
    }

    fn change(&mut self, changes: &[LineChange], new: Line) {
        for change in changes.iter().rev() {
            let (at, old) = (change.at as usize, change.old as usize);
            self.reach(at + old);
            self.lines.splice(at..at + old, std::iter::repeat_n(new, change.new as usize));
        }
    }

    /// A read shows the lines from `start` on, each of which is the expected one or not. Returns for each whether it follows
    /// from the recording.
    pub(super) fn read(&mut self, start: usize, is_expected: &[bool]) -> Vec<bool> {
        let end = start + is_expected.len();
        self.reach(end);
        // No call has changed what was shown, and now it is another text.
        let mut known = self.lines[start..end].iter().zip(is_expected);
        if known.any(|(line, expected)| *line == Line::Shown && !expected) {
            self.doubt();
        }
        let follows = self.lines[start..end].iter().map(|line| *line != Line::Doubtful).collect();
        self.lines[start..end].fill(Line::Shown);
        follows
    }

    fn reach(&mut self, lines: usize) {
        let new = if self.is_rest_doubtful { Line::Doubtful } else { Line::Derived };
        self.lines.resize(self.lines.len().max(lines), new);
    }
}

/// The files that a command may change without the recording of what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnseenWrites {
    /// None.
    None,
    /// All files: version control that changes the tree.
    All,
    /// Lines that edits of the session wrote: a formatter.
    Edits,
}

/// Subcommands of git that change the tree.
const TREE_CHANGES: &str =
    "am apply checkout cherry-pick clean merge pull read-tree rebase reset restore revert stash switch";

/// Whether a program is a formatter that changes files without an option.
fn is_formatter(name: &str) -> bool {
    matches!(name, "black" | "gofumpt" | "isort" | "rustfmt" | "swiftformat")
}

/// Words with which programs change files.
const WRITES: &str = "--fix --in-place --write -i -w fix fmt format generate lint-fix lint:fix tidy";

/// Whether a program changes files if one of `WRITES` follows.
#[rustfmt::skip]
fn is_writer(name: &str) -> bool {
    matches!(
        name,
        "biome" | "buf" | "bun" | "cargo" | "clang-format" | "deno" | "dprint" | "eslint" | "go" | "gofmt" | "goimports"
            | "golangci-lint" | "just" | "make" | "mise" | "mix" | "npm" | "npx" | "perl" | "pnpm" | "prettier" | "ruff"
            | "swift-format" | "task" | "yarn"
    )
}

/// The files that a shell command may change, besides those of its known operations.
pub(super) fn unseen_writes(command: &str) -> UnseenWrites {
    let is_between = |c: char| c.is_whitespace() || matches!(c, ';' | '|' | '&' | '(' | ')' | '"' | '\'' | '`');
    let words: Vec<&str> = command.split(is_between).collect();
    let mut found = UnseenWrites::None;
    for (at, word) in words.iter().enumerate() {
        let name = word.rsplit('/').next().unwrap_or(word);
        let mut rest = words[at + 1..].iter();
        if name == "git" {
            // `-C DIR` and `-c NAME=VALUE` stand before the subcommand.
            let is_name = |word: &&&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            let subcommand = rest.find(|word| is_name(word) && !word.starts_with('-'));
            if subcommand.is_some_and(|word| lists(TREE_CHANGES, word)) {
                return UnseenWrites::All;
            }
        } else if is_formatter(name) || is_writer(name) && rest.take(4).any(|word| lists(WRITES, word)) {
            found = UnseenWrites::Edits;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_the_recording_determines_follow_from_it() {
        let mut evidence = Evidence::default();
        assert_eq!(evidence.read(0, &[true, false]), [true, true]);
        // An edit does not excuse a read of other lines.
        evidence.edit(&[LineChange { at: 1, old: 1, new: 2 }]);
        assert_eq!(evidence.read(0, &[true, true, false, false]), [true; 4]);
        // A formatter excuses what edits wrote.
        evidence.edit(&[LineChange { at: 0, old: 0, new: 1 }]);
        evidence.doubt_edits();
        assert_eq!(evidence.read(0, &[false, false, true]), [false, true, true]);
        // Another text of a line that nothing changed proves a change from outside: what was not shown since is unknown.
        assert_eq!(evidence.read(1, &[false]), [false]);
        assert_eq!(evidence.read(0, &[true, true]), [false, true]);
        assert_eq!(evidence.read(7, &[true]), [false]);
        assert_eq!(evidence.read(7, &[true]), [true]);
    }

    #[test]
    fn a_command_may_write_what_the_recording_does_not_show() {
        for (command, expected) in [
            ("git -C ../other checkout main", UnseenWrites::All),
            ("cargo test && git stash", UnseenWrites::All),
            ("git log --oneline checkout.rs", UnseenWrites::None),
            ("gofmt -w a.go && go test ./...", UnseenWrites::Edits),
            ("cd x; ./node_modules/.bin/prettier --write .", UnseenWrites::Edits),
            ("npm run format", UnseenWrites::Edits),
            ("gofmt -l . && cargo clippy", UnseenWrites::None),
            ("cat black.md", UnseenWrites::None),
        ] {
            assert_eq!(unseen_writes(command), expected, "{command}");
        }
    }
}
