//! A simple command of a shell: which program it runs, with which operands and options, and what it certainly prints.

use super::programs::lists;
use super::steps::CertainResult;
use super::words::{Expansion, Redirection, RedirectionKind, SimpleCommand, Word, without_wrappers};

/// Version control.
pub(super) const VERSION_CONTROL: &str = "git hg jj svn";

/// Builds, tests, linters, formatters and package managers.
pub(super) const BUILDS: &str = "apk apt apt-get bazel biome black brew bun bundle cargo clippy-driver cmake composer conda coverage ctest deno dnf dotnet \
    eslint flake8 g++ gcc clang go gofmt golangci-lint gradle gradlew isort javac jest just make mise mix mocha mvn \
    mypy ninja npm npx nx nox phpunit pip pip3 pnpm poetry pre-commit prettier pylint pyright pytest rake rspec ruff rubocop rustc \
    rustfmt stylelint swift tox tsc turbo uv vite vitest xcodebuild yarn yum zig";

/// Modules of `python -m` that are builds or tests.
pub(super) const BUILD_MODULES: &str =
    "black build compileall coverage flake8 isort mypy nox pip py_compile pylint pytest ruff tox unittest venv";

pub(super) const UNKNOWN_OPTIONS: &str = "options of a program that are not known";

/// The name of the program that a command runs; empty if it runs none.
pub(super) fn program_name(simple: &SimpleCommand) -> &str {
    without_wrappers(&simple.words).first().map_or("", |word| base_name(&word.text))
}

/// The last component of a program's path.
pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether a command is another shell.
pub(super) fn runs_shell(simple: &SimpleCommand) -> bool {
    lists("sh bash zsh", program_name(simple))
}

/// Whether a command goes to another directory.
pub(super) fn goes(simple: &SimpleCommand) -> bool {
    let program = simple.words.first().map(|word| word.text.as_str());
    matches!(program, Some("cd" | "pushd"))
}

/// `echo …`, `true`: the second part of `… || echo none`.
pub(super) fn is_message(simple: &SimpleCommand) -> bool {
    let program = simple.words.first().map(|word| word.text.as_str());
    matches!(program, Some("echo" | "true" | ":"))
        && !simple.redirections.iter().any(|to| to.kind != RedirectionKind::Descriptor)
}

/// Whether a redirection reads or writes a file.
pub(super) fn opens_file(redirection: &Redirection) -> bool {
    let is_file =
        matches!(redirection.kind, RedirectionKind::Input | RedirectionKind::Output | RedirectionKind::Append);
    is_file && !redirection.target.text.starts_with("/dev/")
}

pub(super) fn is_build(name: &str, rest: &[Word]) -> bool {
    let module = rest.iter().skip_while(|word| word.text != "-m").nth(1).map(|word| word.text.as_str());
    lists(BUILDS, name) || name.starts_with("python") && module.is_some_and(|module| lists(BUILD_MODULES, module))
}

/// The text of the script that Python is given: behind `-c`, or as standard input. `None` if it is given a file or a module.
pub(super) fn python_script<'a>(rest: &'a [Word], standard_input: Option<&'a str>) -> CertainResult<Option<&'a str>> {
    match rest {
        [flag, script, ..] if flag.text == "-c" => {
            let is_certain =
                script.expansion == Expansion::Plain || script.is_quoted && script.expansion != Expansion::Variable;
            if is_certain { Ok(Some(&script.text)) } else { Err("a variable or a pattern as a program") }
        }
        [] => Ok(standard_input),
        [dash, ..] if dash.text == "-" => Ok(standard_input),
        _ => Ok(None),
    }
}

/// Whether Python is given a script as [`python_script`] finds it.
pub(super) fn is_given_script(simple: &SimpleCommand) -> bool {
    let rest = without_wrappers(&simple.words).get(1);
    rest.is_none_or(|word| lists("-c -", &word.text))
}

/// The letters of all short options, without those of `-name=value`.
pub(super) fn flags(words: &[Word]) -> String {
    let short = words.iter().filter(|word| {
        let text = &word.text;
        text.starts_with('-') && !text.starts_with("--") && !text.contains('=')
    });
    short.flat_map(|word| word.text.chars().skip(1)).collect()
}

/// The words that are neither options nor values of the options in `valued`.
pub(super) fn operands<'a>(words: &'a [Word], valued: &str) -> Vec<&'a Word> {
    let mut found = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let text = word.text.as_str();
        if text == "--" {
            found.extend(rest);
            break;
        }
        if text.len() > 1 && text.starts_with('-') {
            // The last of several letters may take a value: `-nA 3`.
            let last = text.chars().last().map(|letter| format!("-{letter}"));
            let is_cluster = !text.starts_with("--") && text.len() > 2;
            let is_valued = lists(valued, text) || is_cluster && last.is_some_and(|last| lists(valued, &last));
            if is_valued {
                rest.next();
            }
        } else {
            found.push(word);
        }
    }
    found
}

/// Whether all options are among these letters and names. The rest of a word behind one of the letters in `valued` is its value.
pub(super) fn has_only(words: &[Word], letters: &str, names: &str, valued: &str) -> bool {
    let mut rest = words.iter().map(|word| word.text.as_str()).take_while(|word| *word != "--");
    while let Some(word) = rest.next() {
        if word.starts_with("--") {
            let name = word.split_once('=').map_or(word, |(name, _)| name);
            if !lists(names, name) {
                return false;
            }
        } else if let Some(own) = word.strip_prefix('-') {
            let end = own.find(|letter| valued.contains(letter)).map_or(own.len(), |at| at + 1);
            if !own[..end].chars().all(|letter| letters.contains(letter)) {
                return false;
            }
            // The value is the next word.
            if end == own.len() && own.ends_with(|last| valued.contains(last)) {
                rest.next();
            }
        }
    }
    true
}

/// The text that `echo` writes; `None` if it is not certain.
pub(super) fn echoed(words: &[Word]) -> Option<String> {
    let is_flag = |word: &&Word| word.text == "-n";
    let ends_line = !words.first().as_ref().is_some_and(is_flag);
    let words = if ends_line { words } else { &words[1..] };
    let is_certain = words.iter().all(|word| {
        word.expansion == Expansion::Plain
            && !word.text.contains('\\')
            && (word.is_quoted || !word.text.starts_with('-'))
    });
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let end = if ends_line { "\n" } else { "" };
    is_certain.then(|| texts.join(" ") + end)
}

/// The text that `printf` writes: a text with `\n` and `\t`, once for all of the arguments that its `%s` take.
pub(super) fn formatted(words: &[Word]) -> Option<String> {
    if words.iter().any(|word| word.expansion != Expansion::Plain) {
        return None;
    }
    let (format, rest) = words.split_first().filter(|(format, _)| !format.text.starts_with('-'))?;
    let mut rest = rest.iter().peekable();
    let mut text = String::new();
    loop {
        let left = rest.len();
        let mut letters = format.text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => text.push(match letters.next()? {
                    'n' => '\n',
                    't' => '\t',
                    '\\' => '\\',
                    _ => return None,
                }),
                '%' => match letters.next()? {
                    's' => text.push_str(rest.next().map_or("", |word| &word.text)),
                    '%' => text.push('%'),
                    _ => return None,
                },
                letter => text.push(letter),
            }
        }
        if rest.len() == 0 {
            return Some(text);
        }
        if rest.len() == left {
            return None;
        }
    }
}
