//! Commands of Windows' `cmd.exe`. PowerShell has aliases of most of their names, and they work on files in the same way.

use super::powershell::{SimpleCommand, Word, Words, after_sink, performed};
use super::programs::lists;
use super::steps::{CertainResult, ShellCommand, ShellWork};
use super::words::Joint;

/// Commands of `cmd.exe` that take several paths.
const WITH_PATHS: &str = "dir type del erase rd rmdir md mkdir";

/// The operations of a command.
pub(super) fn operations(command: &ShellCommand, output: &str, ok: bool) -> ShellWork {
    let commands = split(&command.line).and_then(|all| all.into_iter().map(translated).collect());
    performed(commands, &command.cwd, output, ok)
}

fn split(line: &str) -> CertainResult<Vec<SimpleCommand>> {
    let mut words = Words::new(line)?;
    let mut rest = line;
    while let Some(next) = rest.chars().next() {
        let after = &rest[next.len_utf8()..];
        if next.is_whitespace() || "|&".contains(next) {
            words.end_word();
        }
        rest = after;
        match next {
            '"' => {
                let (text, after) = after.split_once('"').ok_or("a quote without an end")?;
                let started = words.word();
                started.is_quoted = true;
                started.is_expanded |= text.contains('%');
                started.text.push_str(text);
                rest = after;
            }
            '|' if after.starts_with('|') => return Err("a command for the case of a failure"),
            '|' => words.begin(Joint::Pipe),
            '&' if after.starts_with('&') => {
                words.begin(Joint::And);
                rest = &after[1..];
            }
            '\n' | '&' => words.begin(Joint::Sequence),
            '>' => {
                words.drop_output(&["1", "2"]);
                rest = after_sink(after).ok_or("an output whose text is unknown")?;
            }
            '(' | ')' | '<' => return Err("an expression"),
            '^' => return Err("a text with escapes"),
            next if next.is_whitespace() => {}
            next => {
                let started = words.word();
                started.is_expanded |= next == '%';
                started.text.push(next);
            }
        }
    }
    Ok(words.commands())
}

/// The command of PowerShell that does the same: without switches, and with its paths in one word.
fn translated(simple: SimpleCommand) -> CertainResult<SimpleCommand> {
    let SimpleCommand { mut words, joint, .. } = simple;
    let name = words.first().map_or(String::new(), |word| word.text.to_lowercase());
    let takes_paths = lists(WITH_PATHS, &name);
    if !takes_paths && !lists("cd chdir pushd copy move ren", &name) {
        return Ok(SimpleCommand { words, ..SimpleCommand::new(joint) });
    }
    let is_switch = |word: &Word| word.text.starts_with('/') && !word.is_quoted;
    let is_tree = name == "dir" && words.iter().any(|word| is_switch(word) && word.text.eq_ignore_ascii_case("/s"));
    words.retain(|word| !is_switch(word));
    if words.len() == 1 && lists("cd chdir", &name) {
        // Without a directory, it prints the current one.
        words[0].text = "pwd".to_owned();
    }
    if takes_paths && words.len() > 1 {
        let paths = words.split_off(1);
        if paths.iter().any(|path| path.text.contains(',')) {
            return Err("a pattern of file names");
        }
        let is_expanded = paths.iter().any(|path| path.is_expanded);
        let texts: Vec<String> = paths.into_iter().map(|path| path.text).collect();
        words.push(Word { text: texts.join(","), is_quoted: true, is_expanded });
    }
    if is_tree {
        words.push(Word { text: "-recurse".to_owned(), ..Word::default() });
    }
    Ok(SimpleCommand { words, ..SimpleCommand::new(joint) })
}
