//! The programs that a recorded shell command runs, by name: a trace of fidelity `shape` keeps only these of a command.
//!
//! A command is read, never run. A loop's body counts once, text inside double quotes not at all, and a filter
//! behind a pipe is left out, because it reads no file.

/// Programs whose first argument says what they do.
const WITH_SUBCOMMAND: &str = "apt-get cargo docker go git mise npm pip pip3 pnpm poetry uv yarn";

/// Subcommands that identify no person. Others are left out.
const SUBCOMMANDS: &str = "add apply bench blame branch build cat-file check checkout ci clean clippy clone commit config diff doc \
    exec fetch fmt gc generate get grep init install list log ls-files ls-tree merge mod mv pull push rebase \
    remote reset restore rev-parse rm run show stash status sync tag test tool update update-ref vet version \
    worktree";

/// Programs that most machines can have. Others may identify a recording's owner.
const PROGRAMS: &str = "[ awk base64 basename bash black cat cc cd chmod clang comm cp curl cut date df diff dirname du echo egrep \
    env eslint export false fd file find gcc gh golangci-lint grep gunzip gzip head hexdump java jest jq kill \
    less ln ls make md5sum mkdir mktemp mv mypy node npx nl od perl ponyc printf ps pwd pytest python python3 \
    read readlink realpath rg rm rmdir rsync ruff rustc rustfmt sed set sh sha256sum sleep sort source sqlite3 \
    stat tail tar tee test touch tr tree true tsc type uniq unset unzip vi vim wc which whoami xxd zip";

/// Programs that run the command that follows them.
const WRAPPERS: &str = "command env exec nice nohup sudo time timeout xargs";

/// Words of the shell before a command.
const KEYWORDS: &str = "! do elif else if then until while {";

/// Words of the shell after which a segment holds no command.
const NO_COMMAND: &str = "case done esac fi for function select }";

/// Programs that read standard input behind a pipe.
const FILTERS: &str = "awk cat cut egrep grep head jq less nl rg sed sort tail tee tr uniq wc xxd";

/// The name given to a program that is not widely known.
const OTHER: &str = "other";

/// The names of the programs that `line` runs, in its order, such as `git status` and `ls`. `keeps_names`: whether
/// names that may identify a person are kept; otherwise they are `other`.
pub fn commands(line: &str, keeps_names: bool) -> Vec<String> {
    let named = segments(line).into_iter();
    named.filter_map(|(words, is_piped)| named_by(&words, is_piped, keeps_names)).collect()
}

fn named_by(words: &[String], mut is_piped: bool, keeps_names: bool) -> Option<String> {
    let mut rest = words.iter().map(String::as_str).peekable();
    let program = loop {
        let word = rest.next()?;
        let is_wrapper = lists(WRAPPERS, word);
        if is_wrapper {
            // The command of `xargs` gets files as its arguments.
            is_piped &= word != "xargs";
            // Its own options, and the seconds of `timeout`.
            while rest.next_if(|next| next.starts_with('-') || is_number(next)).is_some() {}
        }
        if lists(NO_COMMAND, word) {
            return None;
        }
        // `env` and the like alone are commands.
        let is_skipped = is_assignment(word) || lists(KEYWORDS, word);
        if !(is_skipped || is_wrapper && rest.peek().is_some()) {
            break word;
        }
    };
    let program = program.rsplit('/').next().unwrap_or(program);
    if is_piped && lists(FILTERS, program) {
        return None;
    }
    if lists(WITH_SUBCOMMAND, program) {
        let mut rest = rest;
        let mut takes_value = false;
        let subcommand = rest.find(|word| {
            // `git -C dir status` and `git -c name=value status`.
            let is_value = std::mem::replace(&mut takes_value, matches!(*word, "-C" | "-c"));
            !is_value && !word.starts_with('-')
        });
        let subcommand = subcommand.filter(|word| keeps_names || lists(SUBCOMMANDS, word));
        return Some(subcommand.map_or(program.to_owned(), |word| format!("{program} {word}")));
    }
    let module = rest.next_if_eq(&"-m").and_then(|_| rest.next());
    if program.starts_with("python") && module == Some("pip") {
        return Some(rest.next().map_or("pip".to_owned(), |word| {
            if lists(SUBCOMMANDS, word) { format!("pip {word}") } else { "pip".to_owned() }
        }));
    }
    let is_shown = keeps_names || lists(PROGRAMS, program);
    Some(if is_shown { program } else { OTHER }.to_owned())
}

/// Whether a list of words has `word`.
pub fn lists(all: &str, word: &str) -> bool {
    all.split_ascii_whitespace().any(|listed| listed == word)
}

fn is_number(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit())
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    let is_name = |name: &str| {
        let is_letter = |c: char| c == '_' || c.is_ascii_alphanumeric();
        !name.is_empty() && name.chars().all(is_letter) && !is_number(name)
    };
    name.is_some_and(is_name)
}

/// Splits a line at the shell's operators: the words of each part, and whether it reads the output of the one before.
fn segments(line: &str) -> Vec<(Vec<String>, bool)> {
    let mut all = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let (mut is_piped, mut is_target) = (false, false);
    let mut heredocs: Vec<String> = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(next) = chars.next() {
        let ends_word = next.is_whitespace() || ";&|()`<>".contains(next);
        if ends_word && let Some(ended) = word.take() {
            let is_descriptor = "<>".contains(next) && ended.bytes().all(|b| b.is_ascii_digit());
            if !std::mem::take(&mut is_target) && !is_descriptor {
                words.push(ended);
            }
        }
        match next {
            '\'' => {
                let started = word.get_or_insert_default();
                started.extend(chars.by_ref().take_while(|character| *character != '\''));
            }
            '"' => {
                let started = word.get_or_insert_default();
                while let Some(quoted) = chars.next().filter(|quoted| *quoted != '"') {
                    started.extend(match quoted {
                        '\\' => chars.next(),
                        _ => Some(quoted),
                    });
                }
            }
            '\\' => {
                if let Some(escaped) = chars.next().filter(|escaped| *escaped != '\n') {
                    word.get_or_insert_default().push(escaped);
                }
            }
            '#' if word.is_none() => while chars.next_if(|character| *character != '\n').is_some() {},
            '<' if chars.next_if_eq(&'<').is_some() => {
                let is_string = chars.next_if_eq(&'<').is_some();
                chars.next_if_eq(&'-');
                while chars.next_if(|character| *character == ' ').is_some() {}
                let mut end = String::new();
                while let Some(character) =
                    chars.next_if(|character| !character.is_whitespace() && !";&|)".contains(*character))
                {
                    end.extend(Some(character).filter(|character| !"'\"\\".contains(*character)));
                }
                heredocs.extend(Some(end).filter(|_| !is_string));
            }
            '<' | '>' => {
                while chars.next_if(|character| ">&|".contains(*character)).is_some() {}
                is_target = true;
            }
            // `&>` redirects both outputs.
            '&' if chars.peek() == Some(&'>') => {}
            '$' if chars.peek() == Some(&'(') => {}
            ';' | '&' | '|' | '(' | ')' | '`' | '\n' => {
                let is_or = next == '|' && chars.next_if_eq(&'|').is_some();
                all.push((std::mem::take(&mut words), is_piped));
                is_piped = next == '|' && !is_or;
                is_target = false;
                if next == '\n' {
                    for end in heredocs.drain(..) {
                        skip_heredoc(&mut chars, &end);
                    }
                }
            }
            next if next.is_whitespace() => {}
            next => word.get_or_insert_default().push(next),
        }
    }
    if let Some(last) = word.filter(|_| !is_target) {
        words.push(last);
    }
    all.push((words, is_piped));
    all
}

fn skip_heredoc(chars: &mut impl Iterator<Item = char>, end: &str) {
    loop {
        let mut is_over = true;
        let line = chars.by_ref().inspect(|_| is_over = false);
        let line: String = line.take_while(|character| *character != '\n').collect();
        if is_over || line.trim() == end {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_the_list_of_programs_that_it_runs() {
        for (line, expected) in [
            ("git status", "git status"),
            ("cd /tmp && git -C a --no-pager log -1 | head -5; ls -la", "cd, git log, ls"),
            ("FOO=1 BAR='a b' timeout 5 go test ./... 2>&1 | grep -v ok", "go test"),
            ("cat > /tmp/x << 'EOF'\nrm -rf /; git push\nEOF\nrm -f a", "cat, rm"),
            ("find . -name '*.go' | xargs grep -l x", "find, grep"),
            ("for f in *; do wc -l \"$f\"; done # rm x", "wc"),
            ("if [ -f a ]; then python3 -m pip install x; fi", "[, pip install"),
            ("blob=$(git rev-parse HEAD:a) && echo \"rm; $blob\"", "git rev-parse, echo"),
            ("grep -r x . || echo no", "grep, echo"),
            ("/usr/bin/grep x <a >b 2>c &", "grep"),
            ("make \\\n  -j8 &> log", "make"),
            ("bash <<< 'ls'", "bash"),
            ("cat <<EOF", "cat"),
            ("", ""),
        ] {
            assert_eq!(commands(line, false).join(", "), expected, "{line}");
        }
    }

    #[test]
    fn a_name_that_may_identify_a_person_is_not_shown() {
        let line = "./acme-deploy.sh; git acme; mise run acme; python3 -m acme";
        assert_eq!(commands(line, false), [OTHER, "git", "mise run", "python3"]);
        assert_eq!(commands(line, true), ["acme-deploy.sh", "git acme", "mise run", "python3"]);
    }

    #[test]
    fn a_text_that_is_not_a_command_line_ends_without_a_panic() {
        for line in ["'", "\"\\", "<<", "$(", ">", "| |", "&&&", "\\", "x <<A\nB"] {
            let _ = commands(line, true);
        }
    }
}
