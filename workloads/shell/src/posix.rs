//! Commands of `sh`, `bash` and `zsh`: what their programs do to files.

use super::command::{
    UNKNOWN_OPTIONS, VERSION_CONTROL, base_name, echoed, flags, formatted, goes, has_only, is_build, is_message,
    opens_file, operands, python_script, runs_shell,
};
use super::file_text::is_cut_output;
use super::listing::{Listing, listed};
use super::outcomes::{Outcome, Report, outcomes};
use super::patch;
use super::programs::lists;
use super::python;
use super::sed::{self, SedCall};
use super::shown::{counted, shown};
use super::steps::{CertainResult, ProgramClass, STEPS_MAX, ShellCommand, ShellStep, ShellWork};
use super::words::{Expansion, Joint, Redirection, RedirectionKind, SimpleCommand, Word, split, without_wrappers};

/// The longest command that is parsed, in bytes.
const LONGEST: usize = 1 << 20;
/// The longest path of a directory, in bytes, as in Linux.
const LONGEST_DIR: usize = 4096;

/// How deep `sh -c` may be nested.
const DEEPEST: usize = 4;

/// Programs that read and write no file, or only the terminal's and the system's.
const WITHOUT_FILES: &str = "[ [[ : alias basename clear date dirname echo export expr false free hostname id jobs kill lsof nproc \
    pgrep pkill printenv printf ps pwd seq set sleep test tput true type ulimit umask uname unset uptime wait which \
    whoami yes";

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

/// Tests of `find` by name and type alone, as those of `grep --include`.
const BROAD_TESTS: &str = "! ( ) -a -and -iname -name -not -o -or -path -print -print0 -prune -type -wholename";

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

#[derive(Default)]
struct Reader {
    work: ShellWork,
    cwd: String,
    /// What the output of the only pipeline lists.
    listing: Option<Listing>,
    /// The text that the command before a pipe writes, if it is certain.
    piped: Option<String>,
    /// The directories whose files `find` before a pipe names, if it chooses them by name and type alone.
    found: Option<Vec<String>>,
    /// Whether the output is of one command alone.
    is_only: bool,
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
        self.is_only = depth == 0 && all.iter().filter(|simple| !goes(simple)).count() == 1;
        for (at, (simple, outcome)) in all.iter().zip(outcomes).enumerate() {
            if outcome == Outcome::LeftOut {
                continue;
            }
            // Each step of a line that goes down and down has a longer path.
            if self.work.steps.len() > STEPS_MAX || self.cwd.len() > LONGEST_DIR {
                return Err("a command of extreme size");
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
        let opens_others = simple.redirections.iter().any(|to| to.descriptor != '2');
        if !is_piped || opens_others {
            self.found = None;
        }
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
        if opens_others {
            self.found = None;
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
        let found = self.found.take();
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
            let counted = (name == "wc" && self.is_only).then(|| counted_files(&operands, report.output)).flatten();
            let paths = match counted {
                Some(paths) => paths.into_iter().map(|path| self.absolute(path)).collect(),
                None => self.files(&operands)?,
            };
            for path in paths {
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
            "sh" | "bash" | "zsh" if rest.first().is_none_or(|word| !lists(checks(name), &word.text)) => {
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
            "xargs" if found.is_some() && reads_operands(rest) => {
                for dir in found.into_iter().flatten() {
                    self.step(ShellStep::Search(dir));
                }
            }
            // The script of a virtual environment changes nothing but variables of the shell.
            "source" | "."
                if let [script] = rest
                    && script.text.ends_with("bin/activate") =>
            {
                for path in self.files(&[script])? {
                    self.step(ShellStep::Read(path));
                }
            }
            "node" | "ruby" | "bash" | "sh" | "zsh" | "php"
                if let [check, script] = rest
                    && lists(checks(name), &check.text)
                    && !script.text.starts_with('-') =>
            {
                for path in self.files(&[script])? {
                    self.step(ShellStep::Read(path));
                }
            }
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
        let dirs = self.files_or_here(&starts)?;
        for path in dirs.clone() {
            self.step(ShellStep::Walk(path));
        }
        let mut tests = rest.iter().skip(starts.len()).filter(|word| word.text.starts_with('-'));
        self.found = tests.all(|word| lists(BROAD_TESTS, &word.text)).then_some(dirs);
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

/// The options with which a language's program reads a script and checks its grammar, without running it.
fn checks(name: &str) -> &'static str {
    match name {
        "node" => "--check -c",
        "ruby" => "-c",
        "php" => "-l",
        _ => "-n",
    }
}

/// The files that `wc` names in its output, if patterns of file names stand for some of them, and all are listed.
fn counted_files<'a>(operands: &[&Word], output: &'a str) -> Option<Vec<&'a str>> {
    let patterns = operands.iter().filter(|word| word.expansion == Expansion::Pattern);
    let patterns: Vec<&str> = patterns.map(|word| word.text.as_str()).collect();
    let is_simple = |word: &&Word| word.expansion != Expansion::Variable && !word.text.contains(['{', '~', '[', '?']);
    let is_certain = operands.iter().all(|word| is_simple(word) && !word.text.contains("**"));
    if patterns.is_empty() || !is_certain || is_cut_output(output) {
        return None;
    }
    let fits = |pattern: &str, path: &str| {
        let start = pattern.split('*').next().unwrap_or_default();
        let end = pattern.rsplit('*').next().unwrap_or_default();
        let depth = |path: &str| path.matches('/').count();
        path.len() >= start.len() + end.len()
            && path.starts_with(start)
            && path.ends_with(end)
            && depth(path) == depth(pattern)
    };
    let mut paths = Vec::new();
    for line in output.lines().filter(|line| !line.trim().is_empty()) {
        let mut path = line.trim_start();
        while let Some((count, rest)) = path.split_once(' ')
            && count.bytes().all(|b| b.is_ascii_digit())
        {
            path = rest.trim_start();
        }
        if path == line.trim_start() {
            return None;
        }
        let is_named = operands.iter().any(|word| word.text == path) || patterns.iter().any(|one| fits(one, path));
        if !is_named && path != "total" {
            return None;
        }
        paths.extend(Some(path).filter(|_| is_named));
    }
    let are_listed = operands.iter().all(|word| paths.iter().any(|path| word.text == *path || fits(&word.text, path)));
    // Without the sum of several, the output may end early.
    let is_whole = paths.len() == 1 || output.lines().last().is_some_and(|line| line.trim_end().ends_with(" total"));
    (are_listed && is_whole).then_some(paths)
}

/// Whether `xargs` with these words runs a program that reads the files of its standard input, and no others.
fn reads_operands(words: &[Word]) -> bool {
    let mut rest = words;
    while let [option, others @ ..] = rest
        && option.text.starts_with('-')
    {
        rest = match option.text.as_str() {
            "-0" | "-r" | "--null" | "--no-run-if-empty" => others,
            "-n" | "-P" if !others.is_empty() => &others[1..],
            _ => return false,
        };
    }
    let Some((program, rest)) = rest.split_first() else {
        return false;
    };
    let has_pattern = rest.iter().any(|word| lists("-e --regexp", &word.text));
    match program.text.as_str() {
        "grep" | "egrep" | "fgrep" => {
            let takes_file = flags(rest).contains('f') || rest.iter().any(|word| word.text.starts_with("--f"));
            let operands = operands(rest, "-e -m -A -B -C --include --exclude --regexp --max-count --context");
            !takes_file && operands.len() == usize::from(!has_pattern)
        }
        "cat" | "wc" => operands(rest, "").is_empty(),
        "head" | "tail" => operands(rest, "-n -c --lines --bytes").is_empty(),
        _ => false,
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

/// Whether a command writes the content of its only file: `cat a`.
fn copies(words: &[Word], is_fed: bool) -> bool {
    match words {
        [program, file] => program.text == "cat" && !is_fed && !file.text.starts_with('-'),
        _ => false,
    }
}
