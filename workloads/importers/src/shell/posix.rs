//! Commands of `sh`, `bash` and `zsh`: what their programs do to files.

use super::patch;
use super::programs::lists;
use super::shown::{counted, shown};
use super::steps::{ProgramClass, ShellCommand, ShellStep, ShellWork};
use super::words::{Expansion, Joint, Redirection, RedirectionKind, Simple, Word, assignment, split};
use crate::Replacement;
use crate::phrases::Phrases;

/// The longest command that is parsed, in bytes.
const LONGEST: usize = 1 << 20;

/// How deep `sh -c` may be nested.
const DEEPEST: usize = 4;

/// Programs that read and write no file, or only the terminal's and the system's.
const WITHOUT_FILES: &str = "[ [[ : alias basename clear date dirname echo export expr false free hostname id jobs kill lsof nproc \
    printenv printf ps pwd seq set sleep test tput true type ulimit umask uname unset uptime wait which whoami yes";

/// Programs that read the files of their arguments, or standard input. Options that take a value follow each colon.
const READERS: &[(&str, &str)] = &[
    ("awk", "-F -v -f"),
    ("base64", "-w"),
    ("cat", ""),
    ("cksum", ""),
    ("column", "-s -t -c"),
    ("cut", "-d -f -c -b"),
    ("diff", "-U --label"),
    ("cmp", "-n"),
    ("comm", ""),
    ("file", ""),
    ("fold", "-w"),
    ("head", "-n -c --lines --bytes"),
    ("hexdump", "-n -s"),
    ("jq", "--arg --argjson --indent"),
    ("less", ""),
    ("md5sum", ""),
    ("more", ""),
    ("nl", "-b -w -s -v"),
    ("od", "-A -t -N -j"),
    ("rev", ""),
    ("sha1sum", ""),
    ("sha256sum", ""),
    ("shasum", "-a"),
    ("sort", "-k -t -o -T"),
    ("strings", "-n"),
    ("tac", ""),
    ("tail", "-n -c --lines --bytes"),
    ("tr", ""),
    ("uniq", "-f -s -w"),
    ("wc", ""),
    ("xxd", "-l -s -c"),
];

/// Programs whose first argument is an expression and no file.
const WITH_EXPRESSION: &str = "awk jq tr";

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

/// Programs that run the command that follows them.
const WRAPPERS: &str = "builtin command env exec nice nohup sudo time timeout";

/// Words of a program that could not do its work.
static FAILURES: Phrases = Phrases::new(&[
    "No such file or directory",
    "cannot access",
    "Permission denied",
    "Is a directory",
    "Not a directory",
    "command not found",
    "File exists",
    "os error",
    "fatal: not a git repository",
]);

type Certain<T> = Result<T, &'static str>;

/// The operations of a command.
pub(super) fn operations(command: &ShellCommand, output: &str, ok: bool) -> ShellWork {
    let mut reader = Reader { cwd: command.cwd.clone(), ..Reader::default() };
    if let Err(why) = reader.line(&command.line, output, ok, 0) {
        let dirs = std::mem::take(&mut reader.work.dirs);
        return ShellWork { dirs, ..ShellWork::uncertain(why) };
    }
    if reader.work.steps.is_empty() && reader.work.programs.is_empty() {
        return ShellWork { dirs: reader.work.dirs, ..ShellWork::uncertain("a command without files") };
    }
    if ok && let ([ShellStep::Read(path)], []) = (&reader.work.steps[..], &reader.work.programs[..]) {
        let path = path.clone();
        let all = split(&command.line).unwrap_or_default();
        let printing: Vec<&Simple> = all.iter().skip_while(|simple| goes(simple)).collect();
        reader.work.shown = shown(&printing, &path, output);
        reader.work.listed.extend(counted(&printing, output).map(|bytes| (path, Some(bytes))));
    }
    reader.work
}

/// The lines that the output of a command has.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Listing {
    /// `ls -l` of a directory.
    Long(String),
    /// Paths, seen from a directory.
    Paths(String),
    /// `path:line:text` or `path:text`.
    Matches(String),
}

#[derive(Default)]
struct Reader {
    work: ShellWork,
    cwd: String,
    /// What the output of the only pipeline lists.
    listing: Option<Listing>,
    /// The text that the command before a pipe writes, if it is certain.
    piped: Option<String>,
}

impl Reader {
    fn line(&mut self, line: &str, output: &str, ok: bool, depth: usize) -> Certain<()> {
        if line.len() > LONGEST || depth > DEEPEST {
            return Err("a command of extreme size");
        }
        let all = split(line)?;
        self.checked(&all, output, ok)?;
        for (at, simple) in all.iter().enumerate() {
            let next = all.get(at + 1).map(|next| next.joint);
            if simple.joint == Joint::Or && is_message(simple) {
                continue;
            }
            self.simple(simple, next, output, ok, depth)?;
        }
        let pipelines = all.iter().filter(|simple| {
            let changes_directory = simple.words.first().is_some_and(|word| word.text == "cd");
            simple.joint != Joint::Pipe && !changes_directory && !is_message(simple)
        });
        if pipelines.count() == 1
            && let Some(listing) = self.listing.take()
        {
            self.work.listed = listed(&listing, output);
        }
        Ok(())
    }

    /// Checks that all commands have run and done their work.
    fn checked(&self, all: &[Simple], output: &str, ok: bool) -> Certain<()> {
        if let Some(or) = all.iter().find(|simple| simple.joint == Joint::Or) {
            let words: Vec<&str> = or.words.iter().map(|word| word.text.as_str()).collect();
            let is_certain = or.words.iter().all(|word| word.expansion == Expansion::Plain);
            match words[..] {
                ["echo", ref said @ ..] if is_certain => {
                    let said = said.join(" ");
                    if output.lines().any(|line| line.trim() == said.trim()) {
                        return Err("a part that failed");
                    }
                }
                ["true" | ":"] if !output.trim().is_empty() => {}
                _ => return Err("a command for the case of a failure"),
            }
        }
        // The commands that do something, beside those that go to a directory or say something.
        let working: Vec<&Simple> =
            all.iter().filter(|simple| simple.joint != Joint::Pipe && !is_message(simple) && !goes(simple)).collect();
        let program = match working[..] {
            [one] => without_wrappers(&one.words).split_first(),
            _ => None,
        };
        if !ok {
            // Without a match or with a difference, these end with status 1, and have read their files.
            let answers =
                program.is_some_and(|(first, _)| lists("grep egrep fgrep rg diff cmp", base_name(&first.text)));
            // Failed tests have read the tree all the same.
            let is_build = program.is_some_and(|(first, rest)| is_build(base_name(&first.text), rest));
            let has_run =
                !["command not found", "not found\n", "Permission denied"].iter().any(|words| output.contains(words));
            let is_pipe = all.iter().any(|simple| simple.joint == Joint::Pipe);
            if !(answers && !is_pipe || is_build && has_run) {
                return Err("a command that failed");
            }
            if is_build {
                return Ok(());
            }
        }
        // The status is that of every command if the first failure ends the line. Then a file may contain such words.
        let is_status_of_all = ok && all.iter().enumerate().all(|(at, simple)| at == 0 || simple.joint == Joint::And);
        if !is_status_of_all && FAILURES.are_in(output) {
            return Err("a part that failed");
        }
        let hides_errors = all
            .iter()
            .flat_map(|simple| &simple.redirections)
            .any(|to| matches!(to.descriptor, '2' | '&') && to.kind != RedirectionKind::Descriptor);
        if hides_errors && output.trim().is_empty() && all.len() > 1 {
            return Err("a part whose errors are hidden");
        }
        Ok(())
    }

    fn simple(&mut self, simple: &Simple, next: Option<Joint>, output: &str, ok: bool, depth: usize) -> Certain<()> {
        let is_piped = simple.joint == Joint::Pipe;
        let mut standard_input = match is_piped {
            true => self.piped.take(),
            false => None,
        };
        self.piped = None;
        let mut is_fed = is_piped;
        for redirection in &simple.redirections {
            match redirection.kind {
                RedirectionKind::Text => {
                    is_fed = true;
                    let is_certain = redirection.target.expansion == Expansion::Plain || redirection.target.is_quoted;
                    standard_input = is_certain.then(|| redirection.target.text.clone());
                }
                RedirectionKind::Input => {
                    is_fed = true;
                    if let Some(path) = self.file(&redirection.target)? {
                        self.step(ShellStep::Read(path));
                    }
                }
                _ => {}
            }
        }
        let words = without_wrappers(&simple.words);
        let written = match words.first() {
            None => Some(String::new()),
            Some(_) => self.program(words, is_fed, standard_input, (output, ok, depth))?,
        };
        let mut target: Option<(&Redirection, String)> = None;
        for redirection in &simple.redirections {
            let writes = matches!(redirection.kind, RedirectionKind::Output | RedirectionKind::Append);
            if writes && let Some(path) = self.file(&redirection.target)? {
                if redirection.descriptor != '1' || target.is_some() {
                    return Err("an output whose text is unknown");
                }
                target = Some((redirection, path));
            }
        }
        match target {
            Some((redirection, path)) => {
                let content = written.ok_or("an output whose text is unknown")?;
                self.step(match redirection.kind {
                    RedirectionKind::Append => ShellStep::Append { path, content },
                    _ => ShellStep::Write { path, content },
                });
            }
            None if next == Some(Joint::Pipe) => self.piped = written,
            None => {}
        }
        Ok(())
    }

    /// Adds the effects of a program. Returns the text that it writes, if that is certain.
    fn program(
        &mut self,
        words: &[Word],
        is_fed: bool,
        standard_input: Option<String>,
        (output, ok, depth): (&str, bool, usize),
    ) -> Certain<Option<String>> {
        let Some((first, rest)) = words.split_first() else {
            return Ok(None);
        };
        if first.expansion != Expansion::Plain {
            return Err("a variable or a pattern as a program");
        }
        let name = base_name(&first.text);
        if let Some((_, valued)) = READERS.iter().find(|(reader, _)| *reader == name) {
            let mut operands = operands(rest, valued);
            let has_program = lists(WITH_EXPRESSION, name) && !rest.iter().any(|word| word.text == "-f");
            if has_program && !operands.is_empty() {
                let program = operands.remove(0);
                if name == "awk" && runs_or_writes(&program.text) {
                    return Err("a script");
                }
            }
            if name == "tr" {
                operands.clear();
            }
            if name == "tail" {
                // `+2` is an old spelling of `-n +2`.
                operands.retain(|word| word.text.strip_prefix('+').is_none_or(|number| number.parse::<u64>().is_err()));
            }
            let keeps_lines = lists("cat head less more sort tail uniq", name) && operands.is_empty();
            if !keeps_lines {
                self.listing = None;
            }
            if operands.is_empty() && !is_fed && name != "tr" {
                return Err("a program that waits for input");
            }
            if name == "sort" && rest.iter().any(|word| word.text == "-o") {
                return Err("an output whose text is unknown");
            }
            for path in self.files(&operands)? {
                self.step(ShellStep::Read(path));
            }
            let copies_input = name == "cat" && operands.is_empty() && rest.is_empty();
            return Ok(standard_input.filter(|_| copies_input));
        }
        match name {
            "cd" | "pushd" => {
                let dir = match operands(rest, "")[..] {
                    [] => "~".to_owned(),
                    [dir] => self.plain(dir)?,
                    _ => return Err("options of a program that are not known"),
                };
                if dir == "-" {
                    return Err("a directory that is not certain");
                }
                self.cwd = self.absolute(&dir);
                self.work.dirs.push(self.cwd.clone());
            }
            "echo" => return Ok(echoed(rest)),
            "printf" => return Ok(formatted(rest)),
            "sh" | "bash" | "zsh" => {
                let script = match rest {
                    [flag, script] if flag.text.starts_with('-') && flag.text.ends_with('c') => script,
                    _ => return Err("a script"),
                };
                if script.expansion == Expansion::Variable && !script.is_quoted {
                    return Err("a variable or a pattern as a program");
                }
                let cwd = self.cwd.clone();
                self.line(&script.text.clone(), output, ok, depth + 1)?;
                self.cwd = cwd;
            }
            "ls" | "dir" => self.list(rest)?,
            "tree" | "fd" | "fdfind" | "du" => {
                let mut operands = operands(rest, "-L -I -P -d -e -t -E -g");
                if name.starts_with("fd") && !operands.is_empty() {
                    operands.remove(0);
                }
                for path in self.files_or_here(&operands)? {
                    self.step(ShellStep::Walk(path));
                }
                self.listing = name.starts_with("fd").then(|| Listing::Paths(self.cwd.clone()));
            }
            "stat" | "realpath" | "readlink" => {
                for path in self.files(&operands(rest, "-c -f --format"))? {
                    self.step(ShellStep::Stat(path));
                }
            }
            "find" => self.find(rest)?,
            "grep" | "egrep" | "fgrep" | "rg" | "ag" => self.grep(name, rest, is_fed)?,
            "sed" => self.sed(rest, is_fed)?,
            "perl" => {
                let edits = rest.iter().any(|word| {
                    let text = &word.text;
                    text.starts_with("-pi") || text.starts_with("-i") || text.starts_with("-0pi")
                });
                if !edits {
                    return Err("a script");
                }
                for path in self
                    .files(&operands(rest, "-e -pe"))?
                    .into_iter()
                    .skip(usize::from(!rest.iter().any(|word| lists("-e -pe -pie", &word.text))))
                {
                    self.step(ShellStep::Rewrite(path));
                }
            }
            "cp" | "mv" => {
                if rest.iter().any(|word| lists("-t -b -u -n -s -l --exchange", &word.text)) {
                    return Err("options of a program that are not known");
                }
                let paths = self.files(&operands(rest, ""))?;
                let Some((to, from)) = paths.split_last().filter(|(_, from)| !from.is_empty()) else {
                    return Err("options of a program that are not known");
                };
                for from in from {
                    let (from, to) = (from.clone(), to.clone());
                    self.step(match name {
                        "cp" => ShellStep::Copy { from, to },
                        _ => ShellStep::Move { from, to },
                    });
                }
            }
            "rm" | "unlink" => {
                let force = rest.iter().any(|word| {
                    word.text == "--force"
                        || word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('f')
                });
                for path in self.files(&operands(rest, ""))? {
                    self.step(ShellStep::Remove { path, force });
                }
            }
            "mkdir" => {
                for path in self.files(&operands(rest, "-m"))? {
                    self.step(ShellStep::MakeDir(path));
                }
            }
            "touch" => {
                for path in self.files(&operands(rest, "-d -t -r"))? {
                    self.step(ShellStep::Touch(path));
                }
            }
            "tee" => {
                let content = standard_input.ok_or("an output whose text is unknown")?;
                let appends = rest.iter().any(|word| lists("-a --append", &word.text));
                for path in self.files(&operands(rest, ""))? {
                    let content = content.clone();
                    self.step(match appends {
                        true => ShellStep::Append { path, content },
                        false => ShellStep::Write { path, content },
                    });
                }
                return Ok(Some(content));
            }
            "apply_patch" | "applypatch" => {
                let patch = match rest {
                    [patch] => patch.text.clone(),
                    [] => standard_input.ok_or("an output whose text is unknown")?,
                    _ => return Err("options of a program that are not known"),
                };
                let steps = patch::steps(&patch, |path| self.absolute(path))?;
                self.work.steps.extend(steps);
            }
            _ if lists(VERSION_CONTROL, name) => {
                let at = rest.iter().position(|word| word.text == "-C");
                let dir = match at.and_then(|at| rest.get(at + 1)) {
                    Some(dir) => {
                        let dir = self.absolute(&self.plain(dir)?);
                        self.work.dirs.push(dir.clone());
                        dir
                    }
                    None => self.cwd.clone(),
                };
                self.fixed(ProgramClass::VersionControl, dir);
            }
            // A program that only prints its version or help works on no file.
            _ if matches!(rest, [only] if lists("--version --help -V -h", &only.text)) => {}
            "command" | "type" if rest.first().is_some_and(|word| lists("-v -V", &word.text)) => {}
            _ if is_build(name, rest) => self.fixed(ProgramClass::Build, self.cwd.clone()),
            _ if lists(WITHOUT_FILES, name) => {}
            _ if lists("chmod chown chgrp ln", name) => {
                return Err("a change of attributes or a link");
            }
            _ if lists("curl wget ssh scp gh docker kubectl aws", name) => {
                return Err("a program of the network");
            }
            _ => return Err("a program whose work on files is not known"),
        }
        if !lists("ls dir find grep egrep fgrep rg ag fd fdfind cd", name) {
            self.listing = None;
        }
        Ok(None)
    }

    fn list(&mut self, rest: &[Word]) -> Certain<()> {
        let flags = flags(rest);
        let paths = self.files_or_here(&operands(rest, "-I -w --color"))?;
        let (is_tree, attributes) = (flags.contains('R'), flags.contains(['l', 's']));
        self.listing = match &paths[..] {
            [dir] if attributes && !is_tree => Some(Listing::Long(dir.clone())),
            _ => None,
        };
        for path in paths {
            self.step(match (flags.contains('d'), is_tree) {
                (true, _) => ShellStep::Stat(path),
                (_, true) => ShellStep::Walk(path),
                _ => ShellStep::List { path, attributes },
            });
        }
        Ok(())
    }

    fn find(&mut self, rest: &[Word]) -> Certain<()> {
        let acts = "-exec -execdir -ok -okdir -delete -fprint -fls -fprintf";
        if rest.iter().any(|word| lists(acts, &word.text)) {
            return Err("a program that find runs");
        }
        let starts = rest.iter().take_while(|word| !word.text.starts_with('-') && !lists("( !", &word.text));
        let starts: Vec<&Word> = starts.collect();
        for path in self.files_or_here(&starts)? {
            self.step(ShellStep::Walk(path));
        }
        let mut pairs = rest.windows(2);
        let only_files = pairs.any(|pair| pair[0].text == "-type" && pair[1].text == "f");
        let prints = rest.iter().any(|word| word.text.starts_with("-print"));
        self.listing = (only_files && !prints).then(|| Listing::Paths(self.cwd.clone()));
        Ok(())
    }

    fn grep(&mut self, name: &str, rest: &[Word], is_fed: bool) -> Certain<()> {
        let valued = "-e -f -m -A -B -C -g -t -T --include --exclude --exclude-dir --glob --type --regexp --max-count \
            --context -d -D";
        let flags = flags(rest);
        let has_pattern =
            rest.iter().any(|word| lists("-e -f --files --regexp", &word.text) || word.text.starts_with("--regexp="));
        let mut operands = operands(rest, valued);
        if !has_pattern && !operands.is_empty() {
            operands.remove(0);
        }
        let is_tree = name == "rg"
            || name == "ag"
            || flags.contains(['r', 'R'])
            || rest.iter().any(|word| word.text == "--recursive");
        if operands.is_empty() && is_fed {
            if flags.contains(['o', 'c', 'n']) {
                self.listing = None;
            }
            return Ok(());
        }
        if operands.is_empty() && !is_tree {
            return Err("a program that waits for input");
        }
        let several = operands.len() > 1 || is_tree || flags.contains('H');
        for path in self.files_or_here(&operands)? {
            self.step(match is_tree {
                true => ShellStep::Search(path),
                false => ShellStep::Read(path),
            });
        }
        let names_only =
            flags.contains('l') || rest.iter().any(|word| lists("--files --files-with-matches", &word.text));
        let hides_names = flags.contains('h') || flags.contains(['c', 'L']);
        self.listing = match (names_only, several && !hides_names) {
            (true, _) => Some(Listing::Paths(self.cwd.clone())),
            (false, true) => Some(Listing::Matches(self.cwd.clone())),
            _ => None,
        };
        Ok(())
    }

    fn sed(&mut self, rest: &[Word], is_fed: bool) -> Certain<()> {
        let in_place = rest.iter().position(|word| {
            let text = &word.text;
            text.starts_with("-i") || text.starts_with("--in-place") || text == "-Ei" || text == "-ni"
        });
        let mut rest: Vec<&Word> = rest.iter().collect();
        if let Some(at) = in_place {
            let flag = rest.remove(at);
            let has_backup = flag.text.len() > 2 && flag.text != "--in-place" && !flag.text.starts_with("-E");
            if has_backup {
                return Err("options of a program that are not known");
            }
            // BSD's `-i ''`.
            if rest.get(at).is_some_and(|word| word.text.is_empty()) {
                rest.remove(at);
            }
        }
        let rest: Vec<Word> = rest.into_iter().cloned().collect();
        let scripts: Vec<&Word> =
            rest.windows(2).filter(|pair| lists("-e --expression", &pair[0].text)).map(|pair| &pair[1]).collect();
        let mut operands = operands(&rest, "-e -f --expression --file");
        let script = match (&scripts[..], operands.is_empty()) {
            ([], false) => Some(operands.remove(0)),
            ([one], _) => Some(*one),
            _ => None,
        };
        let has_other_files = rest.iter().any(|word| {
            let writes = |text: &str| text.split(['/', ';', '\n', ' ']).any(|part| part == "w");
            lists("-f --file", &word.text) || writes(&word.text)
        });
        if has_other_files {
            return Err("a script");
        }
        self.listing = None;
        if operands.is_empty() && !is_fed {
            return Err("a program that waits for input");
        }
        for path in self.files(&operands)? {
            let literal = script
                .filter(|script| script.expansion != Expansion::Variable || script.is_quoted)
                .and_then(|script| literal(&script.text));
            self.step(match (in_place, literal) {
                (None, _) => ShellStep::Read(path),
                (Some(_), Some(replacement)) => ShellStep::Edit { path, replacements: vec![replacement] },
                (Some(_), None) => ShellStep::Rewrite(path),
            });
        }
        Ok(())
    }

    fn step(&mut self, step: ShellStep) {
        self.work.steps.push(step);
    }

    /// A fixed step for a program, once for neighbours of a kind.
    fn fixed(&mut self, class: ProgramClass, dir: String) {
        let step = (class, dir);
        if self.work.programs.last() != Some(&step) {
            self.work.programs.push(step);
        }
    }

    fn absolute(&self, path: &str) -> String {
        let is_home = path == "~" || path.starts_with("~/");
        if is_home || super::is_absolute(path) || self.cwd.is_empty() {
            path.to_owned()
        } else {
            format!("{}/{path}", self.cwd)
        }
    }

    fn plain(&self, word: &Word) -> Certain<String> {
        match word.expansion {
            Expansion::Plain => Ok(word.text.clone()),
            Expansion::Pattern => Err("a pattern of file names"),
            Expansion::Variable => Err("a variable in a path"),
        }
    }

    /// The absolute path of a word; `None` for standard input and devices.
    fn file(&self, word: &Word) -> Certain<Option<String>> {
        let path = self.plain(word)?;
        let is_device = path == "-" || path.starts_with("/dev/");
        Ok((!is_device).then(|| self.absolute(&path)))
    }

    fn files(&self, words: &[&Word]) -> Certain<Vec<String>> {
        let mut paths = Vec::with_capacity(words.len());
        for word in words {
            paths.extend(self.file(word)?);
        }
        Ok(paths)
    }

    /// The files, or the current directory if there is none.
    fn files_or_here(&self, words: &[&Word]) -> Certain<Vec<String>> {
        match words {
            [] => Ok(vec![self.cwd.clone()]),
            words => self.files(words),
        }
    }
}

/// Whether a program of `awk` writes a file or runs a command: `print > "a"`, `print | "sort"`, `system("rm a")`.
fn runs_or_writes(program: &str) -> bool {
    let (mut depth, mut is_text, mut is_print, mut word) = (0_u32, false, false, String::new());
    let mut letters = program.chars().peekable();
    while let Some(letter) = letters.next() {
        if is_text {
            match letter {
                '\\' => drop(letters.next()),
                '"' => is_text = false,
                _ => {}
            }
            continue;
        }
        if letter.is_ascii_alphanumeric() || letter == '_' {
            word.push(letter);
            continue;
        }
        match word.as_str() {
            "system" => return true,
            "print" | "printf" => is_print = true,
            _ => {}
        }
        word.clear();
        match letter {
            '"' => is_text = true,
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ';' | '}' | '\n' => (depth, is_print) = (0, false),
            '|' if letters.next_if_eq(&'|').is_some() => {}
            '>' | '|' if is_print && depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// The last component of a program's path.
fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether a command goes to another directory.
fn goes(simple: &Simple) -> bool {
    let program = simple.words.first().map(|word| word.text.as_str());
    matches!(program, Some("cd" | "pushd"))
}

/// `echo …`, `true`: the second part of `… || echo none`.
fn is_message(simple: &Simple) -> bool {
    let program = simple.words.first().map(|word| word.text.as_str());
    matches!(program, Some("echo" | "true" | ":"))
        && !simple.redirections.iter().any(|to| to.kind != RedirectionKind::Descriptor)
}

/// The words of a command after assignments and programs that run another, such as `timeout 5`.
pub(super) fn without_wrappers(words: &[Word]) -> &[Word] {
    let mut rest = words;
    while let Some((first, after)) = rest.split_first() {
        if assignment(&first.text).is_some() {
            rest = after;
        } else if lists(WRAPPERS, &first.text) && !after.is_empty() {
            rest = after;
            let is_own =
                |word: &Word| word.text.starts_with('-') || word.text.starts_with(|c: char| c.is_ascii_digit());
            while let Some((_, after)) = rest.split_first().filter(|(word, _)| is_own(word)) {
                rest = after;
            }
        } else {
            break;
        }
    }
    rest
}

fn is_build(name: &str, rest: &[Word]) -> bool {
    let module = rest.iter().skip_while(|word| word.text != "-m").nth(1).map(|word| word.text.as_str());
    lists(BUILDS, name) || name.starts_with("python") && module.is_some_and(|module| lists(BUILD_MODULES, module))
}

/// The letters of all short options, without those of `-name=value`.
fn flags(words: &[Word]) -> String {
    let short = words.iter().filter(|word| {
        let text = &word.text;
        text.starts_with('-') && !text.starts_with("--") && !text.contains('=')
    });
    short.flat_map(|word| word.text.chars().skip(1)).collect()
}

/// The words that are neither options nor values of the options in `valued`.
fn operands<'a>(words: &'a [Word], valued: &str) -> Vec<&'a Word> {
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

/// The text that `echo` writes; `None` if it is not certain.
fn echoed(words: &[Word]) -> Option<String> {
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

/// The text that `printf` writes: a text with `\n` and `\t`, or `%s` for each of its arguments.
fn formatted(words: &[Word]) -> Option<String> {
    if words.iter().any(|word| word.expansion == Expansion::Variable) {
        return None;
    }
    let (format, rest) = words.split_first()?;
    let mut rest = rest.iter();
    let mut text = String::new();
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
                's' => text.push_str(&rest.next()?.text),
                '%' => text.push('%'),
                _ => return None,
            },
            letter => text.push(letter),
        }
    }
    rest.next().is_none().then_some(text)
}

/// The replacement of a `sed` script that replaces all of a literal text: `s/old/new/g`.
fn literal(script: &str) -> Option<Replacement> {
    let rest = script.strip_prefix('s')?;
    let mark = rest.chars().next().filter(|mark| "/|#,@:!".contains(*mark))?;
    let mut parts = vec![String::new()];
    let mut letters = rest[mark.len_utf8()..].chars();
    while let Some(letter) = letters.next() {
        let number = parts.len();
        let part = parts.last_mut()?;
        match letter {
            '\\' => match letters.next()? {
                escaped if escaped == mark || ".*[]$^/&-\"'".contains(escaped) => part.push(escaped),
                _ => return None,
            },
            letter if letter == mark => parts.push(String::new()),
            // A pattern, or `&` of a replacement.
            letter if number == 1 && ".*[]^$+?(){}|\\".contains(letter) => return None,
            '&' if number == 2 => return None,
            letter => part.push(letter),
        }
    }
    match <[String; 3]>::try_from(parts) {
        Ok([old, new, flags]) if flags == "g" && !old.is_empty() && !old.contains('\n') => {
            Some(Replacement { old, new, all: true })
        }
        _ => None,
    }
}

/// The files that an output lists.
fn listed(listing: &Listing, output: &str) -> Vec<(String, Option<u64>)> {
    let below = |dir: &str, path: &str| match super::is_absolute(path) || dir.is_empty() {
        true => path.to_owned(),
        false => format!("{dir}/{path}"),
    };
    // An agent shows the start of a long output, and says so.
    if output.contains("<persisted-output>") || output.contains("truncated") {
        return Vec::new();
    }
    // Of a file, `ls -l` shows one line with the path that it was asked for.
    let is_directory = output.starts_with("total ");
    let found = output.lines().filter_map(|line| match listing {
        Listing::Long(path) if !is_directory => {
            let (size, _) = long_entry(line)?;
            Some((path.clone(), Some(size)))
        }
        Listing::Long(dir) => {
            let (size, name) = long_entry(line)?;
            (!name.contains('/')).then(|| (below(dir, name), Some(size)))
        }
        Listing::Paths(dir) => {
            let is_path = !line.is_empty() && !line.contains(": ") && !line.ends_with('/');
            is_path.then(|| (below(dir, line), None))
        }
        Listing::Matches(dir) => {
            let (path, _) = line.split_once(':')?;
            let is_path = !path.is_empty() && !path.contains(char::is_whitespace) && path.contains(['/', '.']);
            is_path.then(|| (below(dir, path), None))
        }
    });
    let mut found: Vec<_> = found.collect();
    found.dedup();
    found
}

/// Size and name of a file in a line of `ls -l`.
fn long_entry(line: &str) -> Option<(u64, &str)> {
    let mode = line.split_whitespace().next()?;
    if !mode.starts_with('-') || mode.len() < 10 {
        return None;
    }
    // Mode, links, owner, group, size, month, day, time, name.
    let mut rest = line;
    let mut size = None;
    for column in 0..8 {
        rest = rest.trim_start();
        let end = rest.find(char::is_whitespace)?;
        if column == 4 {
            size = rest[..end].parse().ok();
        }
        rest = &rest[end..];
    }
    let name = rest.trim_start();
    Some((size?, name)).filter(|(_, name)| !name.is_empty())
}
