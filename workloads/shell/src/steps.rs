//! The file operations of a shell command, before they meet a session's files.

use serde::{Deserialize, Serialize};

/// The most operations of one command. The arguments of a line of 1 MiB would be 500,000.
pub(super) const STEPS_MAX: usize = 10_000;

/// What is certain of a command, or why it is not.
pub(super) type CertainResult<T> = Result<T, &'static str>;

/// The language of a shell command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Platform {
    /// `sh`, `bash`, `zsh`.
    #[default]
    Posix,
    /// PowerShell.
    PowerShell,
    /// Windows' `cmd.exe`.
    Cmd,
}

/// A shell command as an agent wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellCommand {
    /// The text of the command.
    pub line: String,
    /// The absolute directory in which it began.
    pub cwd: String,
    /// Its language.
    pub platform: Platform,
}

/// One replacement of an edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// The text to find.
    pub old: String,
    /// The replacement text.
    pub new: String,
    /// Whether to replace every occurrence instead of the first.
    pub all: bool,
}

/// A file operation of a shell command. Paths are absolute, or relative if the command's directory is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShellStep {
    /// Reads a whole file. `cat`, `head`, `sed -n` and the like all do.
    Read(String),
    /// Reads the attributes of a file, or of a directory.
    Stat(String),
    /// Lists a directory; of a file, reads the attributes.
    List {
        /// The directory.
        path: String,
        /// Whether the attributes of the entries are read, too.
        attributes: bool,
    },
    /// Lists a tree.
    Walk(String),
    /// Lists a tree and reads its files; of a file, reads it.
    Search(String),
    /// Writes a whole file.
    Write {
        /// The file.
        path: String,
        /// Its new content.
        content: String,
    },
    /// Adds to the end of a file, which it creates.
    Append {
        /// The file.
        path: String,
        /// The added text.
        content: String,
    },
    /// Replaces texts in a file.
    Edit {
        /// The file.
        path: String,
        /// The replacements, in turn.
        replacements: Vec<Replacement>,
    },
    /// Edits lines of a file, each by all of these in turn.
    EditLines {
        /// The file.
        path: String,
        /// The edits.
        edits: Vec<LineEdit>,
    },
    /// Applies the patch of one file.
    Patch {
        /// The file.
        path: String,
        /// The chunks of the patch, in turn.
        chunks: Vec<PatchChunk>,
    },
    /// Reads a file and writes it with a content that the command does not tell, such as `sed -i` with a pattern.
    Rewrite(String),
    /// Copies a file or a tree.
    Copy {
        /// The source.
        from: String,
        /// The destination: a name, or an existing directory.
        to: String,
    },
    /// Renames a file or a tree.
    Move {
        /// The old name.
        from: String,
        /// The new name, or an existing directory.
        to: String,
    },
    /// Copies or renames a file or a tree to a destination whose kind the command tells.
    Transfer {
        /// The source.
        from: String,
        /// The destination.
        to: String,
        /// Whether the source goes.
        is_move: bool,
        /// Whether the destination is a directory that gets the source, instead of its new name.
        is_into: bool,
    },
    /// Removes a file, or a tree.
    Remove {
        /// The file or directory.
        path: String,
        /// Whether the command ignores a missing file.
        force: bool,
    },
    /// Creates a directory and its missing ancestors.
    MakeDir(String),
    /// Removes an empty directory.
    RemoveDir(String),
    /// Creates an empty file, or sets the times of an existing one.
    Touch(String),
}

/// An edit of the lines of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineEdit {
    /// Replaces a literal text.
    Substitute {
        /// The lines.
        lines: LineRange,
        /// The text.
        old: String,
        /// Its replacement.
        new: String,
        /// Whether every occurrence in a line is replaced, and not only the first.
        all: bool,
    },
    /// Removes the lines.
    Delete(LineRange),
    /// Adds a text before or behind each of the lines, or puts it in their place.
    Add {
        /// The lines.
        lines: LineRange,
        /// The added lines.
        text: Vec<String>,
        /// Where they are added.
        place: AddedPlace,
    },
}

/// Where an edit adds lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddedPlace {
    /// Before a line.
    Before,
    /// Behind a line.
    Behind,
    /// In place of all lines of the range.
    Instead,
}

/// The lines of a file that an edit changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineRange {
    /// All lines.
    All,
    /// The line of this number, from 1.
    One(u64),
    /// The last line.
    Last,
    /// The lines from one to another, or to the end.
    Between(u64, Option<u64>),
    /// The lines that contain a text.
    With(String),
}

impl LineRange {
    fn has(&self, number: u64, line: &str, is_last: bool) -> bool {
        match self {
            Self::All => true,
            Self::One(only) => number == *only,
            Self::Last => is_last,
            Self::Between(first, last) => number >= *first && last.is_none_or(|last| number <= last),
            Self::With(text) => line.contains(text),
        }
    }
}

impl LineEdit {
    /// The lines in place of the line of this number after all edits in turn.
    pub fn edited(all: &[Self], number: u64, line: &str, is_last: bool) -> Vec<String> {
        let mut line = line.to_owned();
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        for edit in all {
            match edit {
                Self::Substitute { lines, old, new, all } if lines.has(number, &line, is_last) => {
                    line = if *all { line.replace(old, new) } else { line.replacen(old, new, 1) };
                }
                Self::Delete(lines) if lines.has(number, &line, is_last) => return [before, behind].concat(),
                Self::Add { lines, text, place } if lines.has(number, &line, is_last) => match place {
                    AddedPlace::Before => before.extend(text.iter().cloned()),
                    AddedPlace::Behind => behind.extend(text.iter().cloned()),
                    AddedPlace::Instead => {
                        // It stands for the whole range, at its end.
                        let ends = match lines {
                            LineRange::Between(_, Some(last)) => number == *last,
                            LineRange::Between(_, None) => is_last,
                            _ => true,
                        };
                        before.extend(text.iter().filter(|_| ends).cloned());
                        return [before, behind].concat();
                    }
                },
                _ => {}
            }
        }
        before.push(line);
        [before, behind].concat()
    }
}

/// Lines of a file that a patch replaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchChunk {
    /// A line before the replaced ones.
    pub anchor: Option<String>,
    /// The replaced lines. Without any, the new ones are added at the end.
    pub old: Vec<String>,
    /// The new lines.
    pub new: Vec<String>,
    /// Whether the replaced lines are the last ones of the file.
    pub is_at_end: bool,
}

impl PatchChunk {
    /// The replacements of text that do the same: the anchor only says where the next text is.
    pub fn replacements(&self) -> impl Iterator<Item = Replacement> {
        let text = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let replacement = |old: String, new: String| Replacement { old, new, all: false };
        let anchor = self.anchor.as_ref().map(|anchor| format!("{anchor}\n"));
        let anchor = anchor.map(|anchor| replacement(anchor.clone(), anchor));
        // What is at the end moves no line before it.
        let has_place = !self.old.is_empty() && !self.is_at_end;
        let own = has_place.then(|| replacement(text(&self.old), text(&self.new)));
        anchor.into_iter().chain(own)
    }
}

impl ShellStep {
    /// Its paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let (path, to) = match self {
            Self::Read(path)
            | Self::Stat(path)
            | Self::List { path, .. }
            | Self::Walk(path)
            | Self::Search(path)
            | Self::Write { path, .. }
            | Self::Append { path, .. }
            | Self::Edit { path, .. }
            | Self::EditLines { path, .. }
            | Self::Patch { path, .. }
            | Self::Rewrite(path)
            | Self::Remove { path, .. }
            | Self::MakeDir(path)
            | Self::RemoveDir(path)
            | Self::Touch(path) => (path, None),
            Self::Copy { from, to } | Self::Move { from, to } | Self::Transfer { from, to, .. } => (from, Some(to)),
        };
        [Some(path), to].into_iter().flatten().map(String::as_str)
    }

    /// Whether the operation changes no file.
    pub fn only_reads(&self) -> bool {
        matches!(self, Self::Read(_) | Self::Stat(_) | Self::List { .. } | Self::Walk(_) | Self::Search(_))
    }
}

/// Programs whose work on files a fixed step of ours stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProgramClass {
    /// Version control: a walk of the tree stands for it.
    VersionControl,
    /// Builds, tests, linters, package managers: a search of the tree, which reads every file, stands for it.
    Build,
}

/// A part of a file, or all of it, that a shell command printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownText {
    /// The file.
    pub path: String,
    /// The number of the first printed line, from 1.
    pub first: u64,
    /// The printed lines, without the last newline.
    pub text: String,
    /// Whether the last printed line is the file's last.
    pub reaches_end: bool,
    /// Whether the agent may have cut off empty lines at the start and at the end.
    pub is_trimmed: bool,
}

impl ShownText {
    /// The whole file, if all of it is shown.
    pub fn whole(&self) -> Option<String> {
        (self.first == 1 && self.reaches_end).then(|| format!("{}\n", self.text))
    }

    /// The number of lines of the file, one more than its newlines, if it is known.
    pub fn total_lines(&self) -> Option<u64> {
        self.reaches_end.then(|| self.first.saturating_add(line_count(&self.text)))
    }
}

/// The number of lines of a text: one more than its newlines.
pub(super) fn line_count(text: &str) -> u64 {
    1 + text.bytes().filter(|byte| *byte == b'\n').count() as u64
}

/// The effects of a shell command on files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellWork {
    /// The operations, in order.
    pub steps: Vec<ShellStep>,
    /// The programs for which a fixed step stands, with the directory of each, in order.
    pub programs: Vec<(ProgramClass, String)>,
    /// Files that the output lists, with their sizes if it tells them.
    pub listed: Vec<(String, Option<u64>)>,
    /// The text that the output shows, if the command does nothing but print a file.
    pub shown: Option<ShownText>,
    /// Directories that the command goes to.
    pub dirs: Vec<String>,
    /// Why the command cannot be replayed; `None` if the operations above are all that it did. It is not part of what is
    /// written of the work.
    #[serde(skip)]
    pub uncertain: Option<&'static str>,
}

impl ShellWork {
    /// A command that cannot be replayed.
    pub fn uncertain(why: &'static str) -> Self {
        Self { uncertain: Some(why), ..Self::default() }
    }
}
