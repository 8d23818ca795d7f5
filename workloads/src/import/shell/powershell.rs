//! PowerShell's commands on files.

use super::programs::lists;
use super::steps::{ShellCommand, ShellStep, ShellWork};

/// The longest command that is parsed, in bytes.
const LONGEST: usize = 1 << 20;

/// Parameters of the commands below that take no value.
const SWITCHES: &str =
    "-append -asbytestream -directory -file -force -hidden -name -noclobber -nonewline -passthru -raw -recurse -wait";

/// Commands that print, or change nothing.
const WITHOUT_FILES: &str = "echo format-list format-table ft fl get-date get-location measure-object out-null out-string pwd \
    select-object sort-object start-sleep where-object write-host write-output";

/// Words of a command that could not do its work.
const FAILURES: &[&str] = &["Cannot find path", "CategoryInfo", "is denied", "does not exist", "already exists"];

type Certain<T> = Result<T, &'static str>;

/// A command with its words, and whether it reads the output of the one before it.
struct Simple {
    words: Vec<Word>,
    is_piped: bool,
}

#[derive(Default)]
struct Word {
    text: String,
    is_quoted: bool,
    /// Whether PowerShell expands it.
    is_expanded: bool,
}

/// The operations of a command.
pub(super) fn operations(command: &ShellCommand, output: &str, ok: bool) -> ShellWork {
    let mut work = ShellWork::default();
    let mut cwd = command.cwd.clone();
    let failed = !ok || FAILURES.iter().any(|failure| output.contains(failure));
    let made = if failed {
        Err("a command that failed")
    } else {
        split(&command.line).and_then(|all| all.iter().try_for_each(|simple| program(simple, &mut cwd, &mut work)))
    };
    let why = match made {
        Err(why) => Some(why),
        Ok(()) if work.steps.is_empty() => Some("a command without files"),
        Ok(()) => None,
    };
    match why {
        Some(why) => ShellWork { dirs: work.dirs, ..ShellWork::uncertain(why) },
        None => work,
    }
}

fn split(line: &str) -> Certain<Vec<Simple>> {
    if line.len() > LONGEST {
        return Err("a command of extreme size");
    }
    let mut all = vec![Simple { words: Vec::new(), is_piped: false }];
    let mut word: Option<Word> = None;
    let mut rest = line;
    while let Some(next) = rest.chars().next() {
        let after = &rest[next.len_utf8()..];
        let ends_word = next.is_whitespace() || ";|&".contains(next);
        if ends_word && let (Some(word), Some(simple)) = (word.take(), all.last_mut()) {
            simple.words.push(word);
        }
        match next {
            '@' if after.starts_with("'\n") || after.starts_with("'\r\n") => {
                let text = after[1..].trim_start_matches('\r');
                let text = text.strip_prefix('\n').unwrap_or(text);
                let (text, after) = text.split_once("\n'@").ok_or("a quote without an end")?;
                let started = word.get_or_insert_default();
                started.text.push_str(text);
                started.is_quoted = true;
                rest = after;
                continue;
            }
            '\'' => {
                let started = word.get_or_insert_default();
                started.is_quoted = true;
                let (text, after) = after.split_once('\'').ok_or("a quote without an end")?;
                started.text.push_str(text);
                // Two quotes are one.
                if after.starts_with('\'') {
                    started.text.push('\'');
                }
                rest = after;
                continue;
            }
            '"' => {
                let started = word.get_or_insert_default();
                started.is_quoted = true;
                let (text, after) = after.split_once('"').ok_or("a quote without an end")?;
                if text.contains('`') || after.starts_with('"') {
                    return Err("a text with escapes");
                }
                started.is_expanded |= text.contains('$');
                started.text.push_str(text);
                rest = after;
                continue;
            }
            '\n' | ';' => all.push(Simple { words: Vec::new(), is_piped: false }),
            '&' if after.starts_with('&') => {
                all.push(Simple { words: Vec::new(), is_piped: false });
                rest = &after[1..];
                continue;
            }
            '|' if !after.starts_with('|') => all.push(Simple { words: Vec::new(), is_piped: true }),
            '&' | '|' => return Err("a command for the case of a failure"),
            '(' | ')' | '{' | '}' | '@' | '`' | '>' | '<' => return Err("an expression"),
            '$' => {
                let started = word.get_or_insert_default();
                started.is_expanded = true;
                started.text.push('$');
            }
            next if next.is_whitespace() => {}
            next => word.get_or_insert_default().text.push(next),
        }
        rest = after;
    }
    if let (Some(word), Some(simple)) = (word, all.last_mut()) {
        simple.words.push(word);
    }
    all.retain(|simple| !simple.words.is_empty());
    Ok(all)
}

/// The parameters of a command, by their names in lower case; arguments without a name have the name ``.
fn parameters(words: &[Word]) -> Certain<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let name = word.text.to_lowercase();
        let is_name = name.len() > 1 && name.starts_with('-') && !word.is_quoted;
        if is_name && lists(SWITCHES, &name) {
            found.push((name, String::new()));
            continue;
        }
        let value = match is_name {
            true => rest.next().ok_or("options of a program that are not known")?,
            false => word,
        };
        if value.is_expanded {
            return Err("a variable in a path");
        }
        let name = if is_name { name } else { String::new() };
        found.push((name, value.text.clone()));
    }
    Ok(found)
}

fn program(simple: &Simple, cwd: &mut String, work: &mut ShellWork) -> Certain<()> {
    let Some((first, rest)) = simple.words.split_first() else {
        return Ok(());
    };
    let name = first.text.to_lowercase();
    if lists(WITHOUT_FILES, &name) || simple.is_piped && name == "select-string" {
        return Ok(());
    }
    let all = parameters(rest)?;
    let has = |switch: &str| all.iter().any(|(name, _)| name == switch);
    let value = |names: &str| {
        let found = all.iter().find(|(name, _)| lists(names, name));
        found.map(|(_, value)| value.clone())
    };
    let plain: Vec<String> = all.iter().filter(|(name, _)| name.is_empty()).map(|(_, value)| value.clone()).collect();
    let absolute = |path: &str| -> Certain<Vec<String>> {
        let paths = path.split(',').map(str::trim).filter(|path| !path.is_empty());
        paths
            .map(|path| {
                if path.contains(['*', '?', '[']) {
                    return Err("a pattern of file names");
                }
                let is_absolute = super::is_absolute(path) || path.starts_with(['\\', '~']);
                Ok(match is_absolute || cwd.is_empty() {
                    true => path.to_owned(),
                    false => format!("{cwd}/{path}"),
                })
            })
            .collect()
    };
    const PATHS: &str = "-path -literalpath -filepath";
    let path = value(PATHS).or_else(|| plain.first().cloned());
    // The second argument, or the first if the path has a name.
    let second = || plain.get(usize::from(value(PATHS).is_none())).cloned();
    let needed = || path.clone().ok_or("options of a program that are not known");
    match name.as_str() {
        "get-content" | "gc" | "cat" | "type" => {
            let paths = absolute(&needed()?)?;
            work.steps.extend(paths.into_iter().map(ShellStep::Read));
        }
        "select-string" | "sls" => {
            let path = value("-path -literalpath").or_else(|| plain.get(1).cloned());
            let paths = absolute(&path.ok_or("options of a program that are not known")?)?;
            work.steps.extend(paths.into_iter().map(ShellStep::Read));
        }
        "get-childitem" | "gci" | "ls" | "dir" => {
            for path in absolute(&path.unwrap_or_else(|| cwd.clone()))? {
                work.steps.push(match has("-recurse") {
                    true => ShellStep::Walk(path),
                    false => ShellStep::List { path, attributes: true },
                });
            }
        }
        "get-item" | "gi" | "test-path" | "resolve-path" => {
            let paths = absolute(&needed()?)?;
            work.steps.extend(paths.into_iter().map(ShellStep::Stat));
        }
        "set-content" | "sc" | "add-content" | "ac" | "out-file" => {
            let content = value("-value -inputobject").or_else(second);
            let Some(content) = content.filter(|_| !simple.is_piped) else {
                return Err("an output whose text is unknown");
            };
            let end = if has("-nonewline") { "" } else { "\r\n" };
            for path in absolute(&needed()?)? {
                let content = format!("{content}{end}");
                let appends = name.starts_with('a') || has("-append");
                work.steps.push(match appends {
                    true => ShellStep::Append { path, content },
                    false => ShellStep::Write { path, content },
                });
            }
        }
        "remove-item" | "ri" | "rm" | "del" | "erase" | "rd" | "rmdir" => {
            let force = value("-erroraction").is_some_and(|action| action.eq_ignore_ascii_case("silentlycontinue"));
            for path in absolute(&needed()?)? {
                work.steps.push(ShellStep::Remove { path, force });
            }
        }
        "copy-item" | "cp" | "copy" | "cpi" | "move-item" | "mv" | "move" | "mi" | "rename-item" | "ren" => {
            let to = value("-destination -newname").or_else(second);
            let to = to.ok_or("options of a program that are not known")?;
            let from = absolute(&needed()?)?;
            let to = match (name.starts_with("ren"), from.first()) {
                // A new name is in the old directory.
                (true, Some(from)) => {
                    let end = from.rfind(['/', '\\']).map_or(0, |at| at + 1);
                    format!("{}{to}", &from[..end])
                }
                _ => absolute(&to)?.pop().ok_or("options of a program that are not known")?,
            };
            for from in from {
                let to = to.clone();
                work.steps.push(match name.starts_with('c') {
                    true => ShellStep::Copy { from, to },
                    false => ShellStep::Move { from, to },
                });
            }
        }
        "new-item" | "ni" | "mkdir" | "md" => {
            let kind = value("-itemtype -type").unwrap_or_default().to_lowercase();
            let is_dir = name.starts_with('m') || kind.starts_with('d');
            for path in absolute(&needed()?)? {
                work.steps.push(match (is_dir, value("-value")) {
                    (true, _) => ShellStep::MakeDir(path),
                    (false, Some(content)) => ShellStep::Write { path, content },
                    (false, None) => ShellStep::Touch(path),
                });
            }
        }
        "set-location" | "cd" | "sl" | "push-location" => {
            let dir = absolute(&needed()?)?.pop().unwrap_or_default();
            work.dirs.push(dir.clone());
            *cwd = dir;
        }
        _ => return Err("a program whose work on files is not known"),
    }
    Ok(())
}
