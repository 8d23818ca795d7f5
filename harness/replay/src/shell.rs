//! Performs shell words by the file system calls that the programs make, without starting them: what is compared is the
//! file system, and a process costs every arm the same. Only programs of ours, which the files of an arm bring, are started.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use workloads::tasks::command::{MatchPart, TaskCommand};

/// The output of a command below `root`.
///
/// # Errors
/// The program's message for a failed call.
pub fn perform(root: &Path, command: &TaskCommand) -> Result<String, String> {
    match command {
        TaskCommand::List(places) => list(root, places),
        TaskCommand::Read(places) => {
            let mut output = String::new();
            for path in expanded(root, "cat", places)? {
                output += &read(root, "cat", &path)?;
            }
            Ok(output)
        }
        TaskCommand::Grep { texts, place, is_recursive, shows, last } => {
            let mut files = Vec::new();
            if *is_recursive {
                below(root, place, &mut files)?
            } else {
                files = expanded(root, "grep", std::slice::from_ref(place))?
            }
            let mut lines = Vec::new();
            for path in files {
                let content = read(root, "grep", &path)?;
                let is_match = |line: &&str| texts.iter().any(|text| line.contains(text.as_str()));
                let mut found = content.lines().filter(is_match);
                match shows {
                    MatchPart::File => lines.extend(found.next().map(|_| path.clone())),
                    MatchPart::Line => lines.extend(found.map(str::to_owned)),
                    MatchPart::FileAndLine => {
                        lines.extend(found.map(|line| format!("{path}:{line}")));
                    }
                }
            }
            let skipped = last.map_or(0, |last| lines.len().saturating_sub(last));
            Ok(lines[skipped..].iter().map(|line| format!("{line}\n")).collect())
        }
        TaskCommand::Write { path, content } => {
            let written = fs::File::create(root.join(path)).and_then(|mut file| {
                file.write_all(content.as_bytes())?;
                // `close` reports what a view refuses.
                nix::unistd::close(file).map_err(io::Error::from)
            });
            written.map_err(|error| said("cat", path, &error))?;
            Ok(String::new())
        }
        TaskCommand::Run { .. } => run(root, &command.text()),
        TaskCommand::Move { dir, suffix, to } => {
            let names = names(root, "mv", dir)?;
            let mut matching = names.iter().filter(|name| name.ends_with(suffix.as_str())).peekable();
            if matching.peek().is_none() {
                return Err(format!("mv: cannot stat '{dir}/*{suffix}': No such file or directory"));
            }
            for name in matching {
                let moved = fs::rename(root.join(dir).join(name), root.join(to).join(name));
                moved.map_err(|error| said("mv", &format!("{dir}/{name}"), &error))?;
            }
            Ok(String::new())
        }
    }
}

/// The output of a command line of ours, in a shell that knows nothing of the caller's environment but the search path.
fn run(root: &Path, line: &str) -> Result<String, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // By its path: a name would make the standard library fork the harness.
    let shell = Command::new("/bin/sh").args(["-c", line]).current_dir(root).env_clear().env("PATH", path).output();
    let output = shell.map_err(|error| said("sh", line, &error))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{line}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end()))
    }
}

fn said(program: &str, path: &str, error: &io::Error) -> String {
    format!("{program}: {path}: {error}")
}

fn read(root: &Path, program: &str, path: &str) -> Result<String, String> {
    let content = fs::read(root.join(path)).map_err(|error| said(program, path, &error))?;
    Ok(match String::from_utf8(content) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// The names in a directory, sorted.
fn names(root: &Path, program: &str, dir: &str) -> Result<Vec<String>, String> {
    let failed = |error: io::Error| said(program, dir, &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join(dir)).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Places as paths, the `*` of each expanded as a shell does.
fn expanded(root: &Path, program: &str, places: &[String]) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    for place in places {
        let glob = place.split_once("/*");
        let glob = glob.filter(|(_, rest)| rest.is_empty() || rest.starts_with('/'));
        let Some((dir, rest)) = glob else {
            paths.push(place.clone());
            continue;
        };
        let names = names(root, program, dir)?.into_iter();
        let expanded = names.map(|name| format!("{dir}/{name}{rest}"));
        // A path after the `*` need not exist in each match.
        let is_there = |path: &String| rest.is_empty() || root.join(path).symlink_metadata().is_ok();
        paths.extend(expanded.filter(is_there));
    }
    Ok(paths)
}

fn list(root: &Path, places: &[String]) -> Result<String, String> {
    let mut dirs = expanded(root, "ls", places)?;
    // `ls` sorts its arguments.
    dirs.sort();
    let mut sections = Vec::new();
    for dir in &dirs {
        let names = names(root, "ls", dir)?;
        let names: String = names.into_iter().map(|name| name + "\n").collect();
        sections.push(match dirs.len() {
            1 => names,
            _ => format!("{dir}:\n{names}"),
        });
    }
    Ok(sections.join("\n"))
}

/// All files below a directory, sorted by name in each.
fn below(root: &Path, dir: &str, files: &mut Vec<String>) -> Result<(), String> {
    let failed = |error: io::Error| said("grep", dir, &error);
    let mut entries = Vec::new();
    for entry in fs::read_dir(root.join(dir)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_dir = entry.file_type().map_err(failed)?.is_dir();
        entries.push((entry.file_name().to_string_lossy().into_owned(), is_dir));
    }
    entries.sort();
    for (name, is_dir) in entries {
        let path = format!("{dir}/{name}");
        if is_dir { below(root, &path, files)? } else { files.push(path) }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use workloads::tasks::command::TaskProgram;

    use super::*;

    #[test]
    fn each_command_prints_what_a_shell_prints() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (path, text) in [
            ("a/one.md", "first ERROR\nsecond\n"),
            ("a/two words.md", "ERROR third\n"),
            ("b/c/four.md", "fourth ERROR\nfifth ERROR\n"),
            ("b/d/five.md", ""),
            ("e/a file", ""),
            ("e/one/the way in/six.md", ""),
            ("e/two/the way in/seven.md", ""),
            ("e/two/the way out/eight.md", ""),
        ] {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        let grep = |place: &str, is_recursive, shows, last| TaskCommand::Grep {
            texts: vec!["ERROR".to_owned()],
            place: place.to_owned(),
            is_recursive,
            shows,
            last,
        };
        let place = |text: &str| vec![text.to_owned()];
        let several = TaskCommand::Grep {
            texts: vec!["second".to_owned(), "third".to_owned()],
            place: "a/*".to_owned(),
            is_recursive: false,
            shows: MatchPart::FileAndLine,
            last: None,
        };
        for command in [
            TaskCommand::List(place("a")),
            TaskCommand::List(vec!["b/*".to_owned(), "a".to_owned()]),
            TaskCommand::List(vec!["b".to_owned(), "e/*/the way in".to_owned()]),
            TaskCommand::Read(place("a/*")),
            TaskCommand::Read(place("a/two words.md")),
            grep("a/*", false, MatchPart::FileAndLine, None),
            grep("a", true, MatchPart::File, None),
            grep("b", true, MatchPart::Line, Some(1)),
            grep("b", true, MatchPart::Line, None),
            several,
            TaskCommand::Write { path: "a/new.md".to_owned(), content: "new\n".to_owned() },
        ] {
            let output =
                Command::new("sh").args(["-c", &command.text()]).current_dir(root).env("LC_ALL", "C").output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            let performed = perform(root, &command).unwrap();
            // `grep -r` goes by the order of the directory, which a file system may choose.
            let lines = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                if command.text().starts_with("grep -r") {
                    lines.sort();
                }
                lines
            };
            assert_eq!(lines(&performed), lines(&printed), "{}", command.text());
            assert_eq!(performed.len(), printed.len(), "{}", command.text());
        }
        let moved = TaskCommand::Move { dir: "a".to_owned(), suffix: " words.md".to_owned(), to: "b".to_owned() };
        perform(root, &moved).unwrap();
        assert!(root.join("b/two words.md").exists() && !root.join("a/two words.md").exists());
        assert!(perform(root, &moved).unwrap_err().contains("No such file"));
        for program in TaskProgram::ALL {
            fs::create_dir_all(root.join("bin")).unwrap();
            fs::write(root.join(program.path()), program.text()).unwrap();
        }
        let task = |state: &str, on: &str| format!("{{\n  \"state\": \"{state}\",\n  \"depends_on\": [{on}]\n}}\n");
        for (path, text) in [
            ("tasks/alone.json", task("open", "")),
            ("tasks/build.json", task("done", "")),
            ("tasks/check.json", task("open", "\"build\"")),
            ("tasks/deploy.json", task("open", "\"build\", \"check\"")),
            ("tasks/odd one.json", "{}\n".to_owned()),
            ("tasks/wait.json", task("open", "\"odd one\"")),
            ("logs/api.log", "2 api ERROR\n4 api INFO\n".to_owned()),
            ("logs/web.log", "1 web INFO\n3 web ERROR\n".to_owned()),
        ] {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        let run = |program, text: Option<&str>, last| {
            perform(root, &TaskCommand::Run { program, text: text.map(str::to_owned), last })
        };
        assert_eq!(
            run(TaskProgram::Health, None, None).unwrap(),
            "{\"tasks\":5,\"open\":4,\"blocked\":2,\"unreadable\":1}\ndone: build\nopen: alone check deploy wait\n\
             check depends on: build\ndeploy depends on: build check\nwait depends on: odd one\n"
        );
        assert_eq!(
            run(TaskProgram::AllLogs, None, None).unwrap(),
            "1 web INFO\n2 api ERROR\n3 web ERROR\n4 api INFO\n"
        );
        assert_eq!(run(TaskProgram::AllLogs, Some(" ERROR"), Some(1)).unwrap(), "3 web ERROR\n");
        fs::remove_dir_all(root.join("tasks")).unwrap();
        let failed = run(TaskProgram::Health, None, None).unwrap_err();
        assert!(failed.starts_with("sh bin/health: exit status: "), "{failed}");
        let missing = perform(root, &TaskCommand::Read(place("none"))).unwrap_err();
        assert!(missing.starts_with("cat: none: No such file"), "{missing}");
    }
}
