//! The directory of a shell that stays open between the calls of an agent.

use super::programs::lists;
use super::words::{Expansion, Joint, RedirectionKind, SimpleCommand, split};
use super::{Platform, ShellCommand};

/// The place of a directory that is not certain. It is in no root.
pub const UNKNOWN_DIRECTORY: &str = "/\0";

/// Programs and commands that change the directory of a shell.
const MOVES: &str = "cd chdir pushd popd set-location push-location pop-location sl";

/// Programs that run a text in the shell itself.
const RUNS_TEXT: &str = ". builtin command eval exec source trap";

/// Follows the directory of an open shell.
#[derive(Debug, Default)]
pub struct ShellDirectory {
    now: String,
    /// Commands without a result that may change the directory.
    moving: u64,
}

impl ShellDirectory {
    /// A shell in this directory.
    pub fn new(dir: &str) -> Self {
        Self { now: dir.to_owned(), moving: 0 }
    }

    /// The current directory.
    pub fn now(&self) -> &str {
        match self.moving {
            0 => &self.now,
            _ => UNKNOWN_DIRECTORY,
        }
    }

    /// A command begins. Returns its directory.
    pub fn begin(&mut self, line: &str) -> String {
        let dir = self.now().to_owned();
        self.moving += u64::from(may_move(line));
        dir
    }

    /// The result of a command: its output and whether it has worked, or `None` if it did not end. The source may state the
    /// directory.
    pub fn end(&mut self, command: &ShellCommand, outcome: Option<(&str, bool)>, stated: Option<&str>) {
        let moves = may_move(&command.line);
        self.moving = self.moving.saturating_sub(u64::from(moves));
        let dir = match stated {
            Some(dir) => Some(dir.to_owned()),
            None if moves => outcome.and_then(|(output, ok)| directory_after(command, output, ok)),
            None => return,
        };
        self.now = dir.unwrap_or_else(|| UNKNOWN_DIRECTORY.to_owned());
    }

    /// Keeps the directory only if it is one that the agent leaves to the shell.
    pub fn keep_if(&mut self, is_kept: impl Fn(&str) -> bool) {
        if !is_kept(&self.now) {
            UNKNOWN_DIRECTORY.clone_into(&mut self.now);
        }
    }

    /// The commands without a result did not end: they may have changed the directory.
    pub fn give_up(&mut self) {
        if std::mem::take(&mut self.moving) > 0 {
            UNKNOWN_DIRECTORY.clone_into(&mut self.now);
        }
    }
}

/// Whether a command may change the directory of its shell.
fn may_move(line: &str) -> bool {
    let is_other = |c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
    line.split(is_other).any(|word| lists(MOVES, &word.to_lowercase()))
}

/// The directory of a shell after a command that may change it; `None` if it is not certain.
fn directory_after(command: &ShellCommand, output: &str, ok: bool) -> Option<String> {
    if command.platform != Platform::Posix || crate::file_text::is_cut_output(output) {
        return None;
    }
    if moves_in_subshells_only(&command.line) {
        return Some(command.cwd.clone());
    }
    let all = split(&command.line).ok()?;
    let mut dir = command.cwd.clone();
    for (at, simple) in all.iter().enumerate() {
        let words: Vec<&str> = simple.words.iter().map(|word| word.text.as_str()).collect();
        let [program, operands @ ..] = &words[..] else {
            continue;
        };
        let next = all.get(at + 1);
        // Each command of a pipeline has a shell of its own.
        if simple.joint == Joint::Pipe || next.is_some_and(|next| next.joint == Joint::Pipe) {
            continue;
        }
        if lists(RUNS_TEXT, program) && operands.iter().any(|word| may_move(word)) {
            return None;
        }
        if !lists(MOVES, program) {
            continue;
        }
        let is_last_resort = |simple: &SimpleCommand| {
            let word = simple.words.first();
            simple.joint == Joint::Or && word.is_none_or(|word| !lists("exit return", &word.text))
        };
        let is_and = |simple: &SimpleCommand| matches!(simple.joint, Joint::And | Joint::Pipe);
        let has_run = match simple.joint {
            Joint::Sequence => true,
            // The status is known of the whole line.
            Joint::And => ok && all[1..].iter().all(is_and),
            Joint::Or | Joint::Pipe => false,
        };
        let has_worked = ok && all[at + 1..].iter().all(is_and);
        let hides_errors = simple
            .redirections
            .iter()
            .any(|to| matches!(to.descriptor, '2' | '&') && to.kind != RedirectionKind::Descriptor);
        let is_plain = simple.words.iter().all(|word| word.expansion == Expansion::Plain);
        if !has_run
            || !is_plain
            || !has_worked && (hides_errors || says_failure(output))
            || next.is_some_and(is_last_resort)
        {
            return None;
        }
        let target = match (*program, operands) {
            ("cd" | "chdir", [] | ["--"]) => "~",
            ("cd" | "chdir" | "pushd", [target] | ["--" | "-P" | "-L", target]) if !target.starts_with(['-', '+']) => {
                target
            }
            _ => return None,
        };
        dir = if target.starts_with(['/', '~']) || dir.is_empty() {
            target.to_owned()
        } else {
            format!("{dir}/{target}")
        };
    }
    Some(dir)
}

/// Whether an output says that a directory could not be entered.
fn says_failure(output: &str) -> bool {
    let output = output.to_lowercase();
    let words = ["no such file", "not a directory", "permission denied", "can't cd", "not found", "too many arguments"];
    words.iter().any(|words| output.contains(words))
}

/// Whether each command that changes a directory is between parentheses, which are no part of a text.
fn moves_in_subshells_only(line: &str) -> bool {
    let is_simple = !line.contains(['\'', '"', '\\', '`', '#']) && !line.contains("<<");
    if !is_simple || !line.contains('(') {
        return false;
    }
    let mut depth = 0_usize;
    line.split_inclusive(['(', ')']).all(|part| {
        let text = part.trim_end_matches(['(', ')']);
        let is_inside = depth > 0 || !may_move(text);
        match part.as_bytes().last() {
            Some(b'(') => depth += 1,
            Some(b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        is_inside
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(line: &str, output: &str, ok: bool) -> Option<String> {
        let command = ShellCommand { line: line.to_owned(), cwd: "/w".to_owned(), platform: Platform::Posix };
        directory_after(&command, output, ok)
    }

    #[test]
    fn the_directory_after_a_command_is_followed_where_it_is_certain() {
        for (line, expected) in [
            ("cd sub", "/w/sub"),
            ("cd sub && ls", "/w/sub"),
            ("cd /x; cd 'a b'", "/x/a b"),
            ("cd sub; make", "/w/sub"),
            ("make && cd sub", "/w/sub"),
            ("cd sub || exit 1", "/w/sub"),
            ("cd", "~"),
            ("pushd sub", "/w/sub"),
            ("cd sub | true", "/w"),
            ("ls | cd sub", "/w"),
            ("(cd sub; ls)", "/w"),
            ("echo $(cd sub && pwd)", "/w"),
            ("bash -c 'cd sub'", "/w"),
            ("echo 'cd sub'", "/w"),
        ] {
            assert_eq!(after(line, "x", true).as_deref(), Some(expected), "{line}");
        }
        assert_eq!(after("cd sub && make", "1 error", false).as_deref(), Some("/w/sub"));
        for line in [
            "cd -",
            "popd",
            "cd $X",
            "cd sub || mkdir sub",
            "test -d a || cd b",
            "make && cd sub; ls",
            "if true; then cd sub; fi",
            "eval 'cd sub'",
            "cd sub 2>/dev/null; ls",
            "cd a b",
            "echo '('; cd sub)",
        ] {
            assert_eq!(after(line, "x", true), None, "{line}");
        }
        for (line, ok) in [("cd sub && make", false), ("cd sub; ls", true)] {
            assert_eq!(after(line, "sh: sub: No such file or directory", ok), None, "{line}");
        }
        assert_eq!(after("make && cd sub", "x", false), None);
    }

    #[test]
    fn a_command_beside_one_that_moves_has_no_certain_directory() {
        let mut shell = ShellDirectory::new("/w");
        assert_eq!(shell.begin("cd sub"), "/w");
        assert_eq!(shell.begin("ls"), UNKNOWN_DIRECTORY);
        let command =
            |line: &str| ShellCommand { line: line.to_owned(), cwd: "/w".to_owned(), platform: Platform::Posix };
        shell.end(&command("cd sub"), Some(("", true)), None);
        shell.end(&command("ls"), Some(("", true)), None);
        assert_eq!(shell.now(), "/w/sub");
        shell.begin("cd x");
        shell.give_up();
        assert_eq!(shell.now(), UNKNOWN_DIRECTORY);
        shell.end(&command("ls"), Some(("", true)), Some("/v"));
        assert_eq!(shell.now(), "/v");
        shell.begin("cd x");
        shell.end(&command("cd x"), None, None);
        assert_eq!(shell.now(), UNKNOWN_DIRECTORY);
    }
}
