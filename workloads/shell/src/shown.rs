//! The text of a file that the output of a command shows: `cat`, `head`, `tail -n +3`, `sed -n 2,9p`, `nl -ba`, and pipes of them.

use super::steps::{ShownText, line_count};
use super::words::{Expansion, Joint, SimpleCommand, without_wrappers};
use crate::file_text::numbered;

/// Lines that an agent may cut off the end of an output because they are empty.
const CUT_LINES: u64 = 2;

/// Words of an agent that says that an output is not whole, or where it is.
const CUTS: &[&str] = &["truncated", "omitted", "<persisted-output>"];

/// Starts of lines that an agent writes above an output.
const FRAMES: &[&str] = &[
    "<output",
    "<returncode",
    "<system",
    "Command:",
    "Chunk ID:",
    "Exit code",
    "Exit Code",
    "Output:",
    "STDOUT",
    "Wall time",
    "stdout",
];

/// The lines that a program prints of its input, from 1.
struct Lines {
    first: u64,
    last: Option<u64>,
    are_numbered: bool,
}

/// The text that the pipeline `all` prints of its only file.
pub(super) fn shown(all: &[&SimpleCommand], path: &str, output: &str) -> Option<ShownText> {
    let (first, rest) = all.split_first()?;
    let has_other_output = |simple: &SimpleCommand| simple.redirections.iter().any(|to| to.descriptor != '2');
    let is_pipeline = rest.iter().all(|simple| simple.joint == Joint::Pipe);
    let is_framed = FRAMES.iter().any(|frame| output.starts_with(frame));
    if !is_pipeline
        || all.iter().any(|simple| has_other_output(simple))
        || is_framed
        || CUTS.iter().any(|words| output.contains(words))
    {
        return None;
    }
    let mut printed = lines(&texts(first, true)?)?;
    for simple in rest {
        let next = lines(&texts(simple, false)?)?;
        // The numbers would be of other lines than the file's.
        if next.are_numbered && (printed.are_numbered || printed.first != 1) {
            return None;
        }
        let of_input = |line: u64| printed.first.saturating_add(line - 1);
        let last = [printed.last, next.last.map(of_input)].into_iter().flatten().min();
        printed = Lines { first: of_input(next.first), last, are_numbered: printed.are_numbered || next.are_numbered };
    }
    let text = output.strip_suffix('\n').unwrap_or(output);
    let count = line_count(text);
    let text = if printed.are_numbered {
        let numbered = numbered(text).filter(|found| found.first == printed.first)?;
        (numbered.lines.len() as u64 == count).then(|| numbered.lines.join("\n"))?
    } else {
        text.to_owned()
    };
    let asked = printed.last.map(|last| last.saturating_add(1).saturating_sub(printed.first));
    if text.is_empty() || asked.is_some_and(|asked| count > asked) {
        return None;
    }
    let is_trimmed = !output.ends_with('\n');
    let reaches_end = asked.is_none_or(|asked| asked - count > if is_trimmed { CUT_LINES } else { 0 });
    Some(ShownText { path: path.to_owned(), first: printed.first, text, reaches_end, is_trimmed })
}

/// The bytes of the only file that `wc -c` counts.
pub(super) fn counted(all: &[&SimpleCommand], output: &str) -> Option<u64> {
    let [only] = all else {
        return None;
    };
    let texts = texts(only, true)?;
    (texts == ["wc", "-c"]).then(|| output.split_whitespace().next()?.parse().ok())?
}

/// The words of a command without its last one, the file, if `has_file`. `None` if the shell expands one of them.
fn texts(simple: &SimpleCommand, has_file: bool) -> Option<Vec<&str>> {
    let words = without_wrappers(&simple.words);
    if words.iter().any(|word| word.expansion == Expansion::Variable) {
        return None;
    }
    let mut texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    if has_file {
        texts.pop()?;
    }
    Some(texts)
}

/// The lines that a program with these words prints.
fn lines(words: &[&str]) -> Option<Lines> {
    let (first, last, are_numbered) = match *words {
        ["cat"] => (1, None, false),
        ["cat", "-n"] | ["nl", "-ba"] | ["nl", "-b", "a"] => (1, None, true),
        ["head"] => (1, Some(10), false),
        ["head", "-n", count] => (1, Some(count.parse().ok()?), false),
        ["head", option] => {
            let count = option.strip_prefix("-n").or_else(|| option.strip_prefix('-'))?;
            (1, Some(count.parse().ok()?), false)
        }
        ["tail", "-n", first] => (first.strip_prefix('+')?.parse().ok()?, None, false),
        ["tail", option] => (option.strip_prefix("-n+").or(option.strip_prefix('+'))?.parse().ok()?, None, false),
        ["sed", "-n", range] => {
            let range = range.strip_suffix('p')?;
            let (first, last) = range.split_once(',').unwrap_or((range, range));
            let last = if last == "$" { None } else { Some(last.parse().ok()?) };
            (first.parse().ok()?, last, false)
        }
        _ => return None,
    };
    let is_range = first > 0 && last.is_none_or(|last: u64| (first..u64::MAX).contains(&last));
    is_range.then_some(Lines { first, last, are_numbered })
}
