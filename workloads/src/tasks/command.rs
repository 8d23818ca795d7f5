//! The shell commands of the scripts: the text that an agent types, and what it means. The harness performs them.

use std::collections::BTreeSet;

/// The parts of a match that a `grep` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchPart {
    /// File and line.
    FileAndLine,
    /// The line alone (`-h`).
    Line,
    /// The file alone, once (`-l`).
    File,
}

/// A program that a team keeps beside its files, for what the files alone do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskProgram {
    /// The health of the tasks, the tasks of each state, and what each task depends on.
    Health,
    /// The lines of all logs, by time.
    AllLogs,
}

impl TaskProgram {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Health, Self::AllLogs];

    /// The programs that they and the filters of their output run, each with its Debian package.
    pub const NEEDS: [(&str, &str); 6] = [
        ("awk", "mawk"),
        ("dirname", "coreutils"),
        ("grep", "grep"),
        ("sh", "dash"),
        ("sort", "coreutils"),
        ("tail", "coreutils"),
    ];

    /// The programs of [`TaskProgram::NEEDS`] that are not there, and how to install them; `None` if all are.
    pub fn missing(is_there: impl Fn(&str) -> bool) -> Option<String> {
        let missing = Self::NEEDS.into_iter().filter(|(program, _)| !is_there(program));
        let (programs, packages): (Vec<_>, BTreeSet<_>) = missing.unzip();
        let packages: Vec<_> = packages.into_iter().collect();
        (!programs.is_empty())
            .then(|| format!("not installed: {} (`apt-get install {}`)", programs.join(", "), packages.join(" ")))
    }

    /// Its file below the workspace.
    pub fn path(self) -> &'static str {
        match self {
            Self::Health => "bin/health",
            Self::AllLogs => "bin/all-logs",
        }
    }

    /// Its text, for a POSIX shell.
    pub fn text(self) -> &'static str {
        match self {
            Self::Health => include_str!("health.sh"),
            Self::AllLogs => include_str!("all-logs.sh"),
        }
    }
}

/// One command. A place is a file, `dir/*`: everything in a directory, or `dir/*/name`: what has this name in each of those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskCommand {
    /// `ls`: the names in directories; of several ones each below its name.
    List(Vec<String>),
    /// `cat`: the content of files.
    Read(Vec<String>),
    /// `grep -F`: lines with any of these texts.
    Grep {
        /// The texts.
        texts: Vec<String>,
        /// A place, or with `is_recursive` a directory.
        place: String,
        /// Whether to search everything below a directory (`-r`).
        is_recursive: bool,
        /// The parts of a match to print.
        shows: MatchPart,
        /// Only the last of so many lines (`| tail -n`).
        last: Option<usize>,
    },
    /// `cat > file <<'END'`: creates or replaces a file.
    Write {
        /// The file.
        path: String,
        /// Its content, which ends with a newline.
        content: String,
    },
    /// `sh bin/program`: a program of the workspace, or of its output the lines with a text.
    Run {
        /// The program.
        program: TaskProgram,
        /// The text of the lines to print (`| grep -F`); all lines without it.
        text: Option<String>,
        /// Only the last of so many lines (`| tail -n`).
        last: Option<usize>,
    },
    /// `mv dir/*'suffix' to/`: moves the files whose names end so.
    Move {
        /// The directory.
        dir: String,
        /// The end of the names.
        suffix: String,
        /// The directory that gets them.
        to: String,
    },
}

impl TaskCommand {
    /// The text that an agent types.
    pub fn text(&self) -> String {
        let all = |places: &[String]| {
            let quoted: Vec<String> = places.iter().map(|place| quoted_place(place)).collect();
            quoted.join(" ")
        };
        match self {
            TaskCommand::List(places) => format!("ls {}", all(places)),
            TaskCommand::Read(places) => format!("cat {}", all(places)),
            TaskCommand::Grep { texts, place, is_recursive, shows, last } => {
                let recursive = if *is_recursive { "r" } else { "" };
                let shows = match shows {
                    MatchPart::FileAndLine => "",
                    MatchPart::Line => "h",
                    MatchPart::File => "l",
                };
                let texts: Vec<String> = match &texts[..] {
                    [one] => vec![quoted(one)],
                    several => several.iter().map(|text| format!("-e {}", quoted(text))).collect(),
                };
                let tail = last.map_or(String::new(), |last| format!(" | tail -n {last}"));
                format!("grep -{recursive}{shows}F {} {}{tail}", texts.join(" "), quoted_place(place))
            }
            TaskCommand::Write { path, content } => {
                format!("cat > {} <<'END'\n{content}END", quoted(path))
            }
            TaskCommand::Run { program, text, last } => {
                let grep = text.as_ref().map_or(String::new(), |text| format!(" | grep -F {}", quoted(text)));
                let tail = last.map_or(String::new(), |last| format!(" | tail -n {last}"));
                format!("sh {}{grep}{tail}", program.path())
            }
            TaskCommand::Move { dir, suffix, to } => {
                format!("mv {}/*{} {}/", quoted(dir), quoted(suffix), quoted(to))
            }
        }
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._-/:=".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A place as a shell takes it: its `*` stays outside the quotes.
fn quoted_place(place: &str) -> String {
    match place.split_once("/*") {
        Some((dir, "")) => format!("{}/*", quoted(dir)),
        Some((dir, rest)) => format!("{}/*{}", quoted(dir), quoted(rest)),
        None => quoted(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_what_an_agent_types() {
        let text = |command: TaskCommand| command.text();
        let grep = TaskCommand::Grep {
            texts: vec!["\"state\"".to_owned(), "\"depends_on\"".to_owned()],
            place: "tasks/*".to_owned(),
            is_recursive: false,
            shows: MatchPart::FileAndLine,
            last: None,
        };
        assert_eq!(text(grep), r#"grep -F -e '"state"' -e '"depends_on"' tasks/*"#);
        let grep = TaskCommand::Grep {
            texts: vec![" web ERROR ".to_owned()],
            place: "logs".to_owned(),
            is_recursive: true,
            shows: MatchPart::Line,
            last: Some(1),
        };
        assert_eq!(text(grep), "grep -rhF ' web ERROR ' logs | tail -n 1");
        let read = TaskCommand::Read(vec![":about?Budget of Falcon".to_owned()]);
        assert_eq!(text(read), "cat ':about?Budget of Falcon'");
        let moved =
            TaskCommand::Move { dir: "inbox/ann".to_owned(), suffix: " 1012.eml".to_owned(), to: "archive".to_owned() };
        assert_eq!(text(moved), "mv inbox/ann/*' 1012.eml' archive/");
        let list = TaskCommand::List(vec!["a b/*/c d".to_owned(), "a/*".to_owned()]);
        assert_eq!(text(list), "ls 'a b'/*'/c d' a/*");
        let run = TaskCommand::Run { program: TaskProgram::AllLogs, text: Some("it's down".to_owned()), last: Some(1) };
        assert_eq!(text(run), r"sh bin/all-logs | grep -F 'it'\''s down' | tail -n 1");
        let run = TaskCommand::Run { program: TaskProgram::Health, text: None, last: None };
        assert_eq!(text(run), "sh bin/health");
        let write = TaskCommand::Write { path: "drafts/1.eml".to_owned(), content: "To: ann\n".to_owned() };
        assert_eq!(text(write), "cat > drafts/1.eml <<'END'\nTo: ann\nEND");
    }
}
