//! Commands of `sh`, `bash` and `zsh`: what their programs do to files.

use memchr::memchr;

use super::control_flow::{Ends, Pipeline, executions};
use super::patch;
use super::programs::lists;
use super::python;
use super::sed;
use super::shown::{counted, shown};
use super::steps::{ProgramClass, ShellCommand, ShellStep, ShellWork};
use super::words::{
    Expansion, Joint, Redirection, RedirectionKind, SimpleCommand, Word, assignment, split, without_wrappers,
};
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

/// Programs that end with status 0 whatever the files are.
const WITHOUT_FAILURE: &str = ": clear date echo id printf ps pwd set sleep true umask uname uptime whoami yes";

/// Programs that say so if they fail.
const REPORTERS: &str = "base64 cat cat cksum column comm cp cut dir du file find fold head hexdump less ls md5sum mkdir more mv nl od \
    realpath rev rm rmdir sed sha1sum sha256sum shasum sort stat strings tac tail tee touch tr tree uniq unlink wc xxd";

/// Programs whose status answers a question: they have read their files all the same.
const ANSWERERS: &str = "[ [[ ag awk cmp diff egrep fd fdfind fgrep find grep jq rg test";

/// Words of a program that could not do its work.
static FAILURES: Phrases = Phrases::new(&[
    "No such file or directory",
    "cannot access",
    "Permission denied",
    "Is a directory",
    "Not a directory",
    "command not found",
    "File exists",
    "no such file or directory",
    "not a directory",
    "permission denied",
    "Read-only file system",
    "No space left on device",
    "os error",
    "fatal: not a git repository",
]);

type CertainResult<T> = Result<T, &'static str>;

const UNKNOWN_OPTIONS: &str = "options of a program that are not known";

/// What is known of a command of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It has run, and done all of its work.
    Done,
    /// It has run. Whether it failed is not known.
    Ran {
        /// Whether its words of failure would not be in the output.
        is_hidden: bool,
        /// Whether the output has words of failure.
        tells_failure: bool,
    },
    /// It has not run.
    LeftOut,
    /// It may not have run.
    Doubtful,
}

/// What a result tells of a line.
#[derive(Clone, Copy)]
struct Report<'a> {
    output: &'a str,
    /// Whether the line ended with status 0; `None` if that is not known.
    succeeded: Option<bool>,
}

/// The operations of a command.
pub(super) fn operations(command: &ShellCommand, output: &str, ok: bool) -> ShellWork {
    let mut reader = Reader { cwd: command.cwd.clone(), ..Reader::default() };
    let report = Report { output, succeeded: Some(ok) };
    if let Err(why) = reader.line(&command.line, report, false, 0) {
        let dirs = std::mem::take(&mut reader.work.dirs);
        return ShellWork { dirs, ..ShellWork::uncertain(why) };
    }
    if reader.work.steps.is_empty() && reader.work.programs.is_empty() {
        return ShellWork { dirs: reader.work.dirs, ..ShellWork::uncertain("a command without files") };
    }
    if ok && let ([ShellStep::Read(path)], []) = (&reader.work.steps[..], &reader.work.programs[..]) {
        let path = path.clone();
        let all = split(&command.line).unwrap_or_default();
        let printing: Vec<&SimpleCommand> = all.iter().skip_while(|simple| goes(simple)).collect();
        reader.work.shown = shown(&printing, &path, output);
        reader.work.listed.extend(counted(&printing, output).map(|bytes| (path, Some(bytes))));
    }
    reader.work
}

/// Whether a command may go to a directory, or name one to git. Most do not, and need not be parsed to see that.
pub(super) fn may_go(line: &str) -> bool {
    // A word may be in several parts: between quotes, behind backslashes, or of variables.
    line.contains(['$', '\\']) || {
        let letters: String = line.chars().filter(|letter| !matches!(letter, '\'' | '"')).collect();
        ["cd", "pushd", "-C"].iter().any(|word| letters.contains(word))
    }
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
    /// Adds the effects of a line. `is_strict`: whether the shell ends with the first failure.
    fn line(&mut self, line: &str, report: Report, is_strict: bool, depth: usize) -> CertainResult<()> {
        if line.len() > LONGEST || depth > DEEPEST {
            return Err("a command of extreme size");
        }
        let all = split(line)?;
        let outcomes = outcomes(&all, report, is_strict)?;
        let pipelines = all.iter().filter(|simple| simple.joint != Joint::Pipe && !goes(simple) && !is_message(simple));
        let is_alone = pipelines.count() == 1;
        for (at, (simple, outcome)) in all.iter().zip(outcomes).enumerate() {
            if outcome == Outcome::LeftOut {
                continue;
            }
            let next = all.get(at + 1).map(|next| next.joint);
            let known = (self.work.steps.len(), self.work.programs.len(), self.cwd.clone());
            self.simple(simple, next, report, outcome, depth)?;
            let is_same_cwd = known.2 == self.cwd;
            let (steps, programs) = (&self.work.steps[known.0..], &self.work.programs[known.1..]);
            if steps.is_empty() && programs.is_empty() && is_same_cwd {
                continue;
            }
            match outcome {
                Outcome::Done | Outcome::LeftOut => {}
                Outcome::Doubtful => return Err("a command that may not have run"),
                Outcome::Ran { tells_failure: true, .. } => return Err("a part that failed"),
                // The commands of another shell have outcomes of their own.
                Outcome::Ran { .. } if runs_shell(simple) => {}
                Outcome::Ran { .. } if !is_same_cwd || !steps.iter().all(ShellStep::only_reads) => {
                    return Err("a command whose success is not known");
                }
                Outcome::Ran { is_hidden: false, .. } => {}
                Outcome::Ran { is_hidden: true, .. } => {
                    let has_output = !report.output.trim().is_empty();
                    let reads = steps.iter().any(|step| matches!(step, ShellStep::Read(_)));
                    // The only file that the line reads is what its output shows.
                    let is_shown = has_output && is_alone && self.work.steps.len() == 1;
                    if reads && !is_shown || !has_output && all.len() > 1 {
                        return Err("a part whose errors are hidden");
                    }
                }
            }
        }
        if is_alone && let Some(listing) = self.listing.take() {
            self.work.listed = listed(&listing, report.output);
        }
        Ok(())
    }

    fn simple(
        &mut self,
        simple: &SimpleCommand,
        next: Option<Joint>,
        report: Report,
        outcome: Outcome,
        depth: usize,
    ) -> CertainResult<()> {
        let is_piped = simple.joint == Joint::Pipe;
        if goes(simple) && (is_piped || next == Some(Joint::Pipe)) {
            // The parts of a pipe have directories of their own, in most shells.
            return Err("a directory that is not certain");
        }
        let mut standard_input = if is_piped { self.piped.take() } else { None };
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
            Some(_) => {
                // Of another shell, the status is known if it is this command's.
                let succeeded = (outcome == Outcome::Done).then_some(true);
                let has_files = simple.redirections.iter().any(opens_file);
                self.program(words, (is_fed, has_files), standard_input, (Report { succeeded, ..report }, depth))?
            }
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
            Some((redirection, path)) if redirection.kind == RedirectionKind::Output && copies(words, is_fed) => {
                let Some(ShellStep::Read(from)) =
                    self.work.steps.pop().filter(|step| *step != ShellStep::Read(path.clone()))
                else {
                    return Err("an output whose text is unknown");
                };
                self.step(ShellStep::Transfer { from, to: path, is_move: false, is_into: false });
            }
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
        (is_fed, has_files): (bool, bool),
        standard_input: Option<String>,
        (report, depth): (Report, usize),
    ) -> CertainResult<Option<String>> {
        let Some((first, rest)) = words.split_first() else {
            return Ok(None);
        };
        if first.expansion != Expansion::Plain {
            return Err("a variable or a pattern as a program");
        }
        let name = base_name(&first.text);
        if let Some((_, valued)) = READERS.iter().find(|(reader, _)| *reader == name) {
            if name == "awk" && !has_only(rest, "Fv", "", "Fv") {
                return Err("a script");
            }
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
            let writes = match name {
                "sort" => flags(rest).contains('o') || rest.iter().any(|word| word.text.starts_with("--o")),
                "uniq" | "xxd" => operands.len() > 1,
                "base64" | "less" => flags(rest).contains(['o', 'O']),
                _ => false,
            };
            if writes {
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
                    _ => return Err(UNKNOWN_OPTIONS),
                };
                if dir == "-" {
                    return Err("a directory that is not certain");
                }
                self.cwd = self.absolute(&dir);
                self.work.dirs.push(self.cwd.clone());
            }
            "echo" => return Ok(echoed(rest)),
            ":" | "true" => return Ok(Some(String::new())),
            "[[" if has_files => return Err("a comparison"),
            "printf" => return Ok(formatted(rest)),
            "sh" | "bash" | "zsh" => {
                let (flag, script) = match rest {
                    [flag, script] if flag.text.starts_with('-') && flag.text.ends_with('c') => (flag, script),
                    _ => return Err("a script"),
                };
                if script.expansion == Expansion::Variable && !script.is_quoted {
                    return Err("a variable or a pattern as a program");
                }
                let cwd = self.cwd.clone();
                self.line(&script.text.clone(), report, flag.text.contains('e'), depth + 1)?;
                self.cwd = cwd;
            }
            "ls" | "dir" => self.list(rest)?,
            "tree" | "fd" | "fdfind" | "du" => {
                let runs = rest.iter().any(|word| lists("-x -X --exec --exec-batch", &word.text));
                if name.starts_with("fd") && runs {
                    return Err("a program that find runs");
                }
                if name == "tree" && flags(rest).contains('o') {
                    return Err("an output whose text is unknown");
                }
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
                let edits = rest.iter().any(|word| lists("-pi -i -0pi -0777pi", &word.text));
                let acts = ["system", "unlink", "open", "rename", "exec", "qx", "`", "require", "use "];
                let is_simple = |word: &Word| !acts.iter().any(|act| word.text.contains(act));
                if !edits || !has_only(rest, "0123456789piew", "", "e") || !rest.iter().all(is_simple) {
                    return Err("a script");
                }
                let has_script = rest.iter().any(|word| lists("-e -pe", &word.text));
                for path in self.files(&operands(rest, "-e -pe"))?.into_iter().skip(usize::from(!has_script)) {
                    self.step(ShellStep::Rewrite(path));
                }
            }
            "cp" | "mv" => self.transfer(name == "mv", rest)?,
            "rm" | "unlink" => {
                let force = rest.iter().any(|word| {
                    word.text == "--force"
                        || word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('f')
                });
                if !has_only(rest, "rRfvd", "--recursive --force --verbose --dir --preserve-root", "") {
                    return Err(UNKNOWN_OPTIONS);
                }
                for path in self.files(&operands(rest, ""))? {
                    self.step(ShellStep::Remove { path, force });
                }
            }
            "rmdir" => {
                if !has_only(rest, "v", "--verbose", "") {
                    return Err(UNKNOWN_OPTIONS);
                }
                for path in self.files(&operands(rest, ""))? {
                    self.step(ShellStep::RemoveDir(path));
                }
            }
            "mkdir" => {
                if !has_only(rest, "pvm", "--parents --verbose --mode", "m") {
                    return Err(UNKNOWN_OPTIONS);
                }
                for path in self.files(&operands(rest, "-m"))? {
                    self.step(ShellStep::MakeDir(path));
                }
            }
            "touch" => {
                if !has_only(rest, "amdtr", "--date --time --reference", "dtr") {
                    return Err(UNKNOWN_OPTIONS);
                }
                for path in self.files(&operands(rest, "-d -t -r"))? {
                    self.step(ShellStep::Touch(path));
                }
            }
            "tee" => {
                let content = standard_input.ok_or("an output whose text is unknown")?;
                let appends = rest.iter().any(|word| lists("-a --append", &word.text));
                for path in self.files(&operands(rest, ""))? {
                    let content = content.clone();
                    self.step(if appends {
                        ShellStep::Append { path, content }
                    } else {
                        ShellStep::Write { path, content }
                    });
                }
                return Ok(Some(content));
            }
            "apply_patch" | "applypatch" => {
                let patch = match rest {
                    [patch] => patch.text.clone(),
                    [] => standard_input.ok_or("an output whose text is unknown")?,
                    _ => return Err(UNKNOWN_OPTIONS),
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
            "python" | "python3"
                if let [module, tool, rest @ ..] = rest
                    && module.text == "-m"
                    && tool.text == "json.tool" =>
            {
                let operands = operands(rest, "--indent");
                if operands.len() > 1 {
                    return Err("an output whose text is unknown");
                }
                for path in self.files(&operands)? {
                    self.step(ShellStep::Read(path));
                }
            }
            "python" | "python3" if let Some(script) = python_script(rest, standard_input.as_deref())? => {
                if python::has_failed(report.output) {
                    return Err("a part that failed");
                }
                let steps = python::steps(script, &|path| self.absolute(path))?;
                self.work.steps.extend(steps);
            }
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

    fn list(&mut self, rest: &[Word]) -> CertainResult<()> {
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

    fn find(&mut self, rest: &[Word]) -> CertainResult<()> {
        let acts = "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fls -fprintf";
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

    fn grep(&mut self, name: &str, rest: &[Word], is_fed: bool) -> CertainResult<()> {
        let valued = "-e -f -m -A -B -C -g -t -T --include --exclude --exclude-dir --glob --type --regexp --max-count \
            --context -d -D";
        if rest.iter().any(|word| word.text.starts_with("--pre")) {
            return Err("a program that rg runs");
        }
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
            self.step(if is_tree { ShellStep::Search(path) } else { ShellStep::Read(path) });
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

    /// `cp` and `mv`.
    fn transfer(&mut self, is_move: bool, rest: &[Word]) -> CertainResult<()> {
        let is_known = if is_move {
            has_only(rest, "fv", "--force --verbose", "")
        } else {
            has_only(
                rest,
                "rRafpvdxHLP",
                "--recursive --archive --force --verbose --preserve --dereference --no-dereference --one-file-system \
                    --reflink --sparse",
                "",
            )
        };
        let operands = operands(rest, "");
        let Some((to, from)) = operands.split_last().filter(|(_, from)| is_known && !from.is_empty()) else {
            return Err(UNKNOWN_OPTIONS);
        };
        let is_into = from.len() > 1 || to.text.ends_with('/');
        let to = self.file(to)?.ok_or(UNKNOWN_OPTIONS)?;
        for word in from {
            let from = self.file(word)?.ok_or(UNKNOWN_OPTIONS)?;
            let is_dot = matches!(base_name(&word.text), "." | "..");
            if is_move && is_dot {
                return Err(UNKNOWN_OPTIONS);
            }
            // Its files are copied, and not itself. On macOS, a slash says so, too.
            let is_content = is_dot || !is_move && word.text.ends_with('/') && self.cwd.starts_with("/Users/");
            let to = to.clone();
            self.step(match (is_content || is_into, is_move) {
                (true, _) => ShellStep::Transfer { from, to, is_move, is_into: !is_content },
                (false, true) => ShellStep::Move { from, to },
                (false, false) => ShellStep::Copy { from, to },
            });
        }
        Ok(())
    }

    fn sed(&mut self, rest: &[Word], is_fed: bool) -> CertainResult<()> {
        let mut call = SedCall::new(rest)?;
        if call.scripts.is_empty() && !call.operands.is_empty() {
            call.scripts.push(call.operands.remove(0).clone());
        }
        let is_certain = call.scripts.iter().all(|script| script.expansion == Expansion::Plain);
        let texts: Vec<&str> = call.scripts.iter().map(|script| script.text.as_str()).collect();
        let script = sed::script(&texts.join("\n"), call.is_extended).ok_or("a script")?;
        self.listing = None;
        if call.operands.is_empty() && !is_fed {
            return Err("a program that waits for input");
        }
        let is_literal = is_certain && !call.is_quiet && !call.has_other_lines;
        for path in self.files(&call.operands)? {
            let edits = script.edits.clone().filter(|edits| is_literal && !edits.is_empty());
            self.step(match (call.is_in_place, script.replacements(), edits) {
                (false, ..) => ShellStep::Read(path),
                (true, Some(replacements), Some(_)) => ShellStep::Edit { path, replacements },
                (true, None, Some(edits)) => ShellStep::EditLines { path, edits },
                (true, _, None) => ShellStep::Rewrite(path),
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
        if is_home || super::path::is_absolute(path) || self.cwd.is_empty() {
            path.to_owned()
        } else {
            format!("{}/{path}", self.cwd)
        }
    }

    fn plain(&self, word: &Word) -> CertainResult<String> {
        match word.expansion {
            Expansion::Plain => Ok(word.text.clone()),
            Expansion::Pattern => Err("a pattern of file names"),
            Expansion::Variable => Err("a variable in a path"),
        }
    }

    /// The absolute path of a word; `None` for standard input and devices.
    fn file(&self, word: &Word) -> CertainResult<Option<String>> {
        let path = self.plain(word)?;
        let is_device = path == "-" || path.starts_with("/dev/");
        Ok((!is_device).then(|| self.absolute(&path)))
    }

    fn files(&self, words: &[&Word]) -> CertainResult<Vec<String>> {
        let mut paths = Vec::with_capacity(words.len());
        for word in words {
            paths.extend(self.file(word)?);
        }
        Ok(paths)
    }

    /// The files, or the current directory if there is none.
    fn files_or_here(&self, words: &[&Word]) -> CertainResult<Vec<String>> {
        match words {
            [] => Ok(vec![self.cwd.clone()]),
            words => self.files(words),
        }
    }
}

/// The outcome of each command of a line: whether it has run, and done its work.
///
/// # Errors
/// Why none of them is certain.
fn outcomes(all: &[SimpleCommand], report: Report, is_strict: bool) -> CertainResult<Vec<Outcome>> {
    let output = report.output;
    let complaints = Complaints::new(all, output);
    if report.succeeded == Some(false) {
        return outcomes_of_failure(all, output, &complaints);
    }
    let is_cut = crate::file_text::is_cut_output(output);
    for or in all.iter().filter(|simple| simple.joint == Joint::Or) {
        let is_certain = is_message(or) && or.words.iter().all(|word| word.expansion == Expansion::Plain);
        let words: Vec<&str> = or.words.iter().map(|word| word.text.as_str()).collect();
        let has_run = is_certain
            && words.split_first().is_some_and(|(program, said)| {
                let said = said.join(" ");
                *program == "echo" && output.lines().any(|line| line.trim() == said.trim())
            });
        if has_run || !is_certain && !ends_shell(or) {
            return Err(if has_run { "a part that failed" } else { "a command for the case of a failure" });
        }
    }
    let (mut is_strict, mut has_pipefail) = (is_strict, false);
    let mut pipelines: Vec<Pipeline> = Vec::new();
    let mut own = Vec::with_capacity(all.len());
    for (at, simple) in all.iter().enumerate() {
        let is_before_pipe = all.get(at + 1).is_some_and(|next| next.joint == Joint::Pipe);
        let ends = ends(simple, is_before_pipe, is_cut, report, &complaints);
        own.push(ends);
        match pipelines.last_mut() {
            Some(pipeline) if simple.joint == Joint::Pipe => {
                pipeline.ends = if has_pipefail { pipeline.ends.followed_by(ends) } else { ends };
            }
            _ => pipelines.push(Pipeline { joint: simple.joint, ends, is_strict }),
        }
        if simple.words.first().is_some_and(|word| word.text == "set") {
            let is_certain = simple.joint == Joint::Sequence && !is_before_pipe;
            match options(&simple.words[1..]).filter(|_| is_certain) {
                Some(options) => {
                    is_strict = options.is_strict.unwrap_or(is_strict);
                    has_pipefail = options.has_pipefail.unwrap_or(has_pipefail);
                }
                None => return Err("an option of the shell"),
            }
        }
        if simple.words.first().is_some_and(|word| word.text == "exec") && at + 1 < all.len() {
            return Err("a program in place of the shell");
        }
    }
    // Agents do not take the status 1 of an answer for a failure.
    let last = all.last().map_or("", program_name);
    let is_exact = !lists(ANSWERERS, last);
    let mut executions = executions(&pipelines, report.succeeded.filter(|_| is_exact)).into_iter();
    let mut outcomes = Vec::with_capacity(all.len());
    let mut execution = Default::default();
    for (at, simple) in all.iter().enumerate() {
        if simple.joint != Joint::Pipe {
            execution = executions.next().unwrap_or_default();
        }
        let is_before_pipe = all.get(at + 1).is_some_and(|next| next.joint == Joint::Pipe);
        let name = program_name(simple);
        let is_hidden = hides_errors(simple, is_before_pipe);
        let complains = complaints.has(name);
        let tells_failure = complains || complaints.has_words;
        let has_succeeded =
            own[at] == Ends::SUCCESS || (!is_before_pipe || has_pipefail) && execution.ends == Ends::SUCCESS;
        let has_answered = lists(ANSWERERS, name)
            && if at + 1 == all.len() && report.succeeded == Some(true) {
                // The status of a search without a failure.
                name != "find" || !complains
            } else {
                !is_hidden && !tells_failure
            };
        outcomes.push(match (execution.ends == Ends::NONE, execution.skipped) {
            (true, true) => Outcome::LeftOut,
            (true, false) => return Err("an output that contradicts the status"),
            (false, true) => Outcome::Doubtful,
            (false, false) if has_succeeded || has_answered => Outcome::Done,
            (false, false) => Outcome::Ran { is_hidden, tells_failure },
        });
    }
    Ok(outcomes)
}

/// The outcomes of a line that ended with another status than 0. The shell may have been stopped anywhere: only the outcome
/// of one command that works on files is known.
fn outcomes_of_failure(all: &[SimpleCommand], output: &str, complaints: &Complaints) -> CertainResult<Vec<Outcome>> {
    const FAILED: &str = "a command that failed";
    let mut working = all.iter().filter(|simple| simple.joint != Joint::Pipe && !is_message(simple) && !goes(simple));
    let (Some(one), None) = (working.next(), working.next()) else {
        return Err(FAILED);
    };
    let is_pipe = all.iter().any(|simple| simple.joint == Joint::Pipe);
    // A program that runs says more than the shell that did not get to its directory.
    let is_lost = (complaints.has("cd") || complaints.has("pushd")) && output.trim().lines().count() <= 4;
    if is_lost || one.joint == Joint::Or {
        return Err(FAILED);
    }
    let (first, rest) = without_wrappers(&one.words).split_first().ok_or(FAILED)?;
    let name = base_name(&first.text);
    // Without a match or with a difference, these end with status 1, and have read their files.
    let answers = lists("grep egrep fgrep rg diff cmp", name) && !is_pipe && !complaints.has_words;
    // Failed tests have read the tree all the same.
    let has_run = !["command not found", "not found\n", "Permission denied"].iter().any(|words| output.contains(words));
    if !(answers || is_build(name, rest) && has_run) {
        return Err(FAILED);
    }
    let outcome = |simple: &SimpleCommand| match simple.joint {
        Joint::Pipe => Outcome::Ran { is_hidden: false, tells_failure: false },
        _ if is_message(simple) => Outcome::Doubtful,
        _ if answers && std::ptr::eq(simple, one) && hides_errors(simple, false) => {
            Outcome::Ran { is_hidden: true, tells_failure: false }
        }
        _ => Outcome::Done,
    };
    Ok(all.iter().map(outcome).collect())
}

/// The ends that a command can have.
fn ends(simple: &SimpleCommand, is_before_pipe: bool, is_cut: bool, report: Report, complaints: &Complaints) -> Ends {
    let is_silent = hides_errors(simple, is_before_pipe);
    let name = program_name(simple);
    let has_reported = is_silent || complaints.has(name) || name != "cd" && complaints.has_words;
    let opens_files = simple.redirections.iter().any(opens_file);
    // `sudo` and `timeout` have failures of their own.
    let first = simple.words.iter().find(|word| assignment(&word.text).is_none());
    let is_limited = first.is_some_and(|word| lists("sudo timeout", &word.text));
    match name {
        "false" => Ends::FAILURE,
        "exit" if ends_shell(simple) && report.succeeded == Some(true) => Ends::NONE,
        "echo" if simple.joint == Joint::Sequence && !opens_files => Ends::SUCCESS,
        "echo" if !is_before_pipe && !opens_files && !is_cut && is_absent(simple, report.output) => Ends::NONE,
        "apply_patch" | "applypatch" if report.output.contains("Success. Updated the following files:") => {
            Ends::SUCCESS
        }
        "" if !opens_files => Ends::SUCCESS,
        _ if lists(WITHOUT_FAILURE, name) && !opens_files => Ends::SUCCESS,
        _ if is_limited => Ends::ANY,
        // A script that ends early without a word has no certain steps.
        "python" | "python3" if !has_reported && is_given_script(simple) && !python::has_failed(report.output) => {
            Ends::SUCCESS
        }
        "git" if !has_reported && !complaints.has_git && has_words_of_failure(simple) => Ends::SUCCESS,
        "" | "cd" | "pushd" if !has_reported => Ends::SUCCESS,
        _ if (lists(WITHOUT_FAILURE, name) || lists(REPORTERS, name)) && !has_reported => Ends::SUCCESS,
        _ => Ends::ANY,
    }
}

/// Whether a command of git says so if it fails.
fn has_words_of_failure(simple: &SimpleCommand) -> bool {
    const SUBCOMMANDS: &str =
        "add branch checkout diff fetch log pull push restore rev-parse show stash status switch tag";
    let mut rest = without_wrappers(&simple.words).iter().skip(1).map(|word| word.text.as_str());
    let asks = rest.clone().any(|word| lists("--quiet --exit-code -q --check", word));
    let mut takes_value = false;
    let subcommand = rest.find(|word| !std::mem::replace(&mut takes_value, *word == "-C") && !word.starts_with('-'));
    subcommand.is_some_and(|word| lists(SUBCOMMANDS, word)) && !asks
}

/// Whether a text that `echo` would have written is not in the output.
fn is_absent(simple: &SimpleCommand, output: &str) -> bool {
    // A terminal breaks long lines.
    let said = said(simple).filter(|said| !said.trim().is_empty() && said.len() < 60);
    said.is_some_and(|said| !output.contains(said.trim()))
}

/// The text that `echo` writes to the output, if it is certain.
fn said(simple: &SimpleCommand) -> Option<String> {
    let is_plain = simple.redirections.is_empty() || simple.redirections.iter().all(|to| !opens_file(to));
    echoed(simple.words.get(1..)?).filter(|_| is_plain)
}

/// `exit 1`.
fn ends_shell(simple: &SimpleCommand) -> bool {
    match &simple.words[..] {
        [exit, status] => exit.text == "exit" && status.text.parse::<u8>().is_ok_and(|status| status > 0),
        _ => false,
    }
}

/// Whether a redirection reads or writes a file.
fn opens_file(redirection: &Redirection) -> bool {
    let is_file =
        matches!(redirection.kind, RedirectionKind::Input | RedirectionKind::Output | RedirectionKind::Append);
    is_file && !redirection.target.text.starts_with("/dev/")
}

/// Whether the words with which a command fails go elsewhere than to the output.
fn hides_errors(simple: &SimpleCommand, is_before_pipe: bool) -> bool {
    let is_moved = simple.redirections.iter().any(|to| to.descriptor != '2' && opens_file(to));
    simple.redirections.iter().filter(|to| matches!(to.descriptor, '2' | '&')).any(|to| match to.kind {
        // Then the errors go where the output goes.
        RedirectionKind::Descriptor => to.target.text != "1" || is_before_pipe || is_moved,
        _ => true,
    })
}

/// The options of the shell that `set` changes.
#[derive(Default)]
struct Options {
    is_strict: Option<bool>,
    has_pipefail: Option<bool>,
}

/// The options that `set` with these words changes, if they are known.
fn options(words: &[Word]) -> Option<Options> {
    let mut options = Options::default();
    let mut rest = words.iter().map(|word| word.text.as_str());
    while let Some(word) = rest.next() {
        let is_on = word.starts_with('-');
        let letters = word.strip_prefix(['-', '+'])?;
        for letter in letters.chars() {
            match letter {
                'e' => options.is_strict = Some(is_on),
                'o' => match rest.next()? {
                    "errexit" => options.is_strict = Some(is_on),
                    "pipefail" => options.has_pipefail = Some(is_on),
                    "nounset" | "xtrace" | "verbose" => {}
                    _ => return None,
                },
                'u' | 'v' | 'x' => {}
                _ => return None,
            }
        }
    }
    Some(options)
}

/// Words of failure in the output of a line.
struct Complaints<'a> {
    /// The programs that say that they failed, in the order of their names: `rm: cannot remove 'a'`, `bash: line 1: cd: b`.
    programs: Vec<&'a str>,
    /// Whether git says so.
    has_git: bool,
    /// Whether the output has words of any program.
    has_words: bool,
}

impl<'a> Complaints<'a> {
    fn new(all: &'a [SimpleCommand], output: &str) -> Self {
        let mut names: Vec<&str> = all.iter().map(program_name).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        let (mut is_named, mut has_git) = (vec![false; names.len()], false);
        let mut rest = output;
        while !rest.is_empty() {
            let end = memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            let Some(colon) = memchr(b':', line.as_bytes()) else {
                continue;
            };
            let (first, parts) = (&line[..colon], &line[colon + 1..]);
            let is_git = matches!(first, "fatal" | "error");
            let name = base_name(first);
            let known = names.binary_search(&name);
            // A shell names itself first.
            let is_shell = name.ends_with("sh") || first == "(eval)";
            if !(is_git || is_shell || known.is_ok()) || line.trim_end_matches('\r').ends_with("binary file matches") {
                continue;
            }
            has_git |= is_git;
            known.into_iter().for_each(|known| is_named[known] = true);
            if is_shell {
                let parts = parts.split(':').take(4).map(str::trim);
                parts.flat_map(|part| names.binary_search(&part)).for_each(|known| is_named[known] = true);
            }
        }
        let programs =
            names.into_iter().zip(is_named).filter(|(_, is_named)| *is_named).map(|(name, _)| name).collect();
        Self { programs, has_git, has_words: FAILURES.are_in(output) }
    }

    fn has(&self, name: &str) -> bool {
        self.programs.binary_search(&name).is_ok()
    }
}

/// The name of the program that a command runs; empty if it runs none.
fn program_name(simple: &SimpleCommand) -> &str {
    without_wrappers(&simple.words).first().map_or("", |word| base_name(&word.text))
}

/// Whether a command is another shell.
fn runs_shell(simple: &SimpleCommand) -> bool {
    lists("sh bash zsh", program_name(simple))
}

/// The arguments of `sed`.
#[derive(Default)]
struct SedCall<'a> {
    is_in_place: bool,
    /// Whether it prints only what the script says.
    is_quiet: bool,
    /// Whether its lines do not end with newlines.
    has_other_lines: bool,
    /// Whether its patterns are extended ones.
    is_extended: bool,
    scripts: Vec<Word>,
    operands: Vec<&'a Word>,
}

impl<'a> SedCall<'a> {
    fn new(words: &'a [Word]) -> CertainResult<Self> {
        let mut call = Self::default();
        let mut rest = words.iter().peekable();
        while let Some(word) = rest.next() {
            let text = word.text.as_str();
            if text == "--" {
                call.operands.extend(rest);
                break;
            }
            if let Some(name) = text.strip_prefix("--") {
                match name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value))) {
                    ("expression", Some(value)) => {
                        call.scripts.push(Word { text: value.to_owned(), ..word.clone() });
                    }
                    ("expression", None) => call.scripts.push(rest.next().ok_or(UNKNOWN_OPTIONS)?.clone()),
                    ("in-place", None) => call.is_in_place = true,
                    ("quiet" | "silent", None) => call.is_quiet = true,
                    ("regexp-extended", None) => call.is_extended = true,
                    ("separate" | "unbuffered" | "posix" | "sandbox", None) => {}
                    ("null-data", None) => call.has_other_lines = true,
                    ("file", _) => return Err("a script"),
                    _ => return Err(UNKNOWN_OPTIONS),
                }
                continue;
            }
            let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
                call.operands.push(word);
                continue;
            };
            for (at, letter) in letters.char_indices() {
                let value = &letters[at + 1..];
                match letter {
                    'n' => call.is_quiet = true,
                    'E' | 'r' => call.is_extended = true,
                    's' | 'u' => {}
                    'z' => call.has_other_lines = true,
                    'e' => {
                        call.scripts.push(match value {
                            "" => rest.next().ok_or(UNKNOWN_OPTIONS)?.clone(),
                            value => Word { text: value.to_owned(), ..word.clone() },
                        });
                        break;
                    }
                    'i' if value.is_empty() => {
                        call.is_in_place = true;
                        // BSD's `-i ''`.
                        rest.next_if(|next| next.text.is_empty());
                    }
                    'f' => return Err("a script"),
                    _ => return Err(UNKNOWN_OPTIONS),
                }
            }
        }
        Ok(call)
    }
}

/// Whether all options are among these letters and names. The rest of a word behind one of the letters in `valued` is its value.
fn has_only(words: &[Word], letters: &str, names: &str, valued: &str) -> bool {
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

/// Whether a command writes the content of its only file: `cat a`.
fn copies(words: &[Word], is_fed: bool) -> bool {
    match words {
        [program, file] => program.text == "cat" && !is_fed && !file.text.starts_with('-'),
        _ => false,
    }
}

/// The last component of a program's path.
fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether a command goes to another directory.
fn goes(simple: &SimpleCommand) -> bool {
    let program = simple.words.first().map(|word| word.text.as_str());
    matches!(program, Some("cd" | "pushd"))
}

/// `echo …`, `true`: the second part of `… || echo none`.
fn is_message(simple: &SimpleCommand) -> bool {
    let program = simple.words.first().map(|word| word.text.as_str());
    matches!(program, Some("echo" | "true" | ":"))
        && !simple.redirections.iter().any(|to| to.kind != RedirectionKind::Descriptor)
}

/// The text of the script that Python is given: behind `-c`, or as standard input. `None` if it is given a file or a module.
fn python_script<'a>(rest: &'a [Word], standard_input: Option<&'a str>) -> CertainResult<Option<&'a str>> {
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
fn is_given_script(simple: &SimpleCommand) -> bool {
    let rest = without_wrappers(&simple.words).get(1);
    rest.is_none_or(|word| lists("-c -", &word.text))
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

/// The text that `printf` writes: a text with `\n` and `\t`, once for all of the arguments that its `%s` take.
fn formatted(words: &[Word]) -> Option<String> {
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

/// The files that an output lists.
fn listed(listing: &Listing, output: &str) -> Vec<(String, Option<u64>)> {
    let below = |dir: &str, path: &str| {
        if super::path::is_absolute(path) || dir.is_empty() { path.to_owned() } else { format!("{dir}/{path}") }
    };
    // An agent shows the start of a long output, and says so.
    if output.contains("<persisted-output>") || output.contains("truncated") {
        return Vec::new();
    }
    // Of a file, `ls -l` shows one line with the path that it was asked for.
    let is_directory = output.starts_with("total ");
    let mut last = None;
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
            // Most files have several matches, one after the other.
            let is_first = last.replace(path) != Some(path);
            let is_path =
                is_first && !path.is_empty() && !path.contains(char::is_whitespace) && path.contains(['/', '.']);
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
