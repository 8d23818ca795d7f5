//! PowerShell's commands on files.

use super::command::{BUILD_MODULES, BUILDS, VERSION_CONTROL};
use super::control_flow::{Ends, Execution, Pipeline, executions};
use super::programs::lists;
use super::steps::{CertainResult, ProgramClass, ShellCommand, ShellStep, ShellWork};
use super::variables::Variables;
use super::words::Joint;

/// The longest command that is parsed, in bytes.
const LONGEST: usize = 1 << 20;

/// Parameters of the commands below that take no value.
const SWITCHES: &str =
    "-append -asbytestream -directory -file -force -hidden -name -noclobber -nonewline -passthru -raw -recurse -wait";

/// Commands that print, or change nothing.
const WITHOUT_FILES: &str = "echo format-list format-table ft fl get-date get-location measure-object out-null out-string pwd \
    more netstat select-object sort sort-object start-sleep taskkill tasklist timeout ver where where-object write-host \
    write-output";

/// Options of `rg` and of version control that take a value.
const VALUED: &str = "-A -B -C -c -e -f -g -m -t -T --context --glob --iglob --max-count --regexp --type";

/// Commands on files that say so if they fail.
const COMMANDS: &str = "ac add-content cat copy copy-item cp cpi del dir erase gc gci get-childitem get-content get-item gi ls md mi mkdir \
    move move-item mv new-item ni rd remove-item ren rename-item resolve-path ri rm rmdir sc select-string set-content sls \
    type";

/// Commands that go to a directory.
const LOCATIONS: &str = "set-location cd chdir sl push-location pushd";

/// Words of a command that could not do its work.
const FAILURES: &[&str] = &["Cannot find path", "CategoryInfo", "is denied", "does not exist", "already exists"];

/// Words of a shell that did not find a program.
const NOT_FOUND: &[&str] = &["is not recognized as", "cannot find the path"];

/// A command with its words, and how it follows the one before it.
pub(super) struct SimpleCommand {
    pub(super) words: Vec<Word>,
    pub(super) joint: Joint,
    /// Whether texts of what it prints are replaced: `(Get-Content a) -replace 'x', 'y'`.
    pub(super) is_replaced: bool,
}

#[derive(Default)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) is_quoted: bool,
    /// Whether the shell expands it.
    pub(super) is_expanded: bool,
}

impl Word {
    /// Adds the text up to the second `"`. Returns what follows it.
    fn double_quoted<'a>(&mut self, quoted: &'a str, variables: &Variables) -> CertainResult<&'a str> {
        let mut letters = quoted.char_indices().peekable();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' if letters.next_if(|(_, next)| *next == '"').is_some() => self.text.push('"'),
                '"' => return Ok(&quoted[at + 1..]),
                '`' => self.text.push(match letters.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, 'r')) => '\r',
                    Some((_, 't')) => '\t',
                    Some((_, escaped @ ('"' | '`' | '$' | '\''))) => escaped,
                    _ => return Err("a text with escapes"),
                }),
                '$' => {
                    let name = name_of(&quoted[at + 1..]);
                    let is_drive = quoted[at + 1 + name.len()..].starts_with(':');
                    match variables.text(&name.to_lowercase()).filter(|_| !is_drive) {
                        Some(text) => {
                            self.text.push_str(text);
                            name.chars().for_each(|_| {
                                letters.next();
                            });
                        }
                        None => {
                            self.is_expanded = true;
                            self.text.push('$');
                        }
                    }
                }
                letter => self.text.push(letter),
            }
        }
        Err("a quote without an end")
    }
}

/// The operations of a command.
pub(super) fn operations(command: &ShellCommand, output: &str, ok: bool) -> ShellWork {
    performed(split(&command.line), &command.cwd, output, ok)
}

/// The operations of commands that a shell of Windows ran one after the other.
pub(super) fn performed(commands: CertainResult<Vec<SimpleCommand>>, cwd: &str, output: &str, ok: bool) -> ShellWork {
    let mut work = ShellWork::default();
    let mut cwd = cwd.to_owned();
    let made = match commands {
        Ok(all) if has_worked(&all, output, ok) => perform(&all, ok, &mut cwd, &mut work),
        Err(why) if ok => Err(why),
        _ => Err("a command that failed"),
    };
    let why = match made {
        Err(why) => Some(why),
        Ok(()) if work.steps.is_empty() && work.programs.is_empty() => Some("a command without files"),
        Ok(()) => None,
    };
    match why {
        Some(why) => ShellWork { dirs: work.dirs, ..ShellWork::uncertain(why) },
        None => work,
    }
}

/// Adds the effects of commands that have done their work, if they have run.
fn perform(all: &[SimpleCommand], ok: bool, cwd: &mut String, work: &mut ShellWork) -> CertainResult<()> {
    let mut pipelines: Vec<Pipeline> = Vec::new();
    for simple in all {
        let name = simple.name();
        let is_silent = lists(WITHOUT_FILES, &name) || lists(COMMANDS, &name) || lists(LOCATIONS, &name);
        // No command has said that it failed.
        let ends = if is_silent { Ends::SUCCESS } else { Ends::ANY };
        match pipelines.last_mut() {
            Some(pipeline) if simple.joint == Joint::Pipe => pipeline.ends = pipeline.ends.followed_by(ends),
            _ => pipelines.push(Pipeline { joint: simple.joint, ends, is_strict: false }),
        }
    }
    let is_exact = ok && !all.last().is_some_and(|last| lists("rg findstr", &last.name()));
    let mut executions = executions(&pipelines, is_exact.then_some(true)).into_iter();
    let mut execution = Execution::default();
    let mut piped = None;
    let mut is_replaced = false;
    for simple in all {
        let writes_replaced = std::mem::replace(&mut is_replaced, simple.is_replaced) && simple.joint == Joint::Pipe;
        if simple.joint != Joint::Pipe {
            execution = executions.next().unwrap_or_default();
            piped = None;
        }
        if execution.ends == Ends::NONE {
            continue;
        }
        let known = (work.steps.len(), work.programs.len(), cwd.clone());
        match (simple.text(), piped.take()) {
            (Some(text), None) => piped = Some(text),
            (_, None) if writes_replaced && lists("set-content sc out-file", &simple.name()) => {
                rewrite(simple, cwd, work)?;
            }
            (_, text) => program(simple, text, cwd, work)?,
        }
        if execution.skipped && known != (work.steps.len(), work.programs.len(), cwd.clone()) {
            return Err("a command that may not have run");
        }
    }
    Ok(())
}

/// Whether commands have done their work on files. Failed builds, and searches without a match, have.
fn has_worked(all: &[SimpleCommand], output: &str, ok: bool) -> bool {
    let says = |words: &[&str]| words.iter().any(|words| output.contains(words));
    let mut working = all.iter().filter(|simple| simple.joint != Joint::Pipe && !lists(LOCATIONS, &simple.name()));
    let reads_anyway = |simple: &SimpleCommand| simple.name() == "rg" || simple.is_build();
    match (working.next(), working.next()) {
        (Some(one), None) if reads_anyway(one) => !says(NOT_FOUND),
        _ => ok && !says(FAILURES),
    }
}

impl SimpleCommand {
    /// A command without words so far.
    pub(super) fn new(joint: Joint) -> Self {
        Self { words: Vec::new(), joint, is_replaced: false }
    }

    /// The text that the command is, if it is one in quotes: `'x' | Set-Content a`.
    fn text(&self) -> Option<String> {
        match &self.words[..] {
            [only] if only.is_quoted && !only.is_expanded => Some(only.text.clone()),
            _ => None,
        }
    }

    /// The name of the program in lower case, without its directory and its extension.
    fn name(&self) -> String {
        let name = self.words.first().map_or(String::new(), |word| word.text.to_lowercase());
        let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
        let extension = [".exe", ".cmd", ".bat"].iter().find_map(|extension| name.strip_suffix(extension));
        extension.unwrap_or(name).to_owned()
    }

    fn is_build(&self) -> bool {
        let name = self.name();
        let module = self.words.iter().skip_while(|word| word.text != "-m").nth(1);
        let is_module = module.is_some_and(|module| lists(BUILD_MODULES, &module.text));
        lists(BUILDS, &name) || name.starts_with("py") && is_module
    }

    /// The words after the program that are neither options nor values of [`VALUED`].
    fn operands(&self) -> Vec<&Word> {
        let mut operands = Vec::new();
        let mut rest = self.words.iter().skip(1);
        while let Some(word) = rest.next() {
            let is_option = word.text.starts_with('-') && !word.is_quoted;
            if is_option && lists(VALUED, &word.text) {
                rest.next();
            } else if !is_option {
                operands.push(word);
            }
        }
        operands
    }
}

/// The commands of a line, while it is taken apart into words.
pub(super) struct Words {
    commands: Vec<SimpleCommand>,
    word: Option<Word>,
}

impl Words {
    /// None yet of `line`, which must not be too long.
    pub(super) fn new(line: &str) -> CertainResult<Self> {
        if line.len() > LONGEST {
            Err("a command of extreme size")
        } else {
            Ok(Self { commands: vec![SimpleCommand::new(Joint::Sequence)], word: None })
        }
    }

    /// The word that goes on or begins here.
    pub(super) fn word(&mut self) -> &mut Word {
        self.word.get_or_insert_default()
    }

    /// Ends the word, if there is one.
    pub(super) fn end_word(&mut self) {
        if let (Some(word), Some(command)) = (self.word.take(), self.commands.last_mut()) {
            command.words.push(word);
        }
    }

    /// Whether the next word is the first one of its command.
    fn begins_command(&self) -> bool {
        self.word.is_none() && self.commands.last().is_some_and(|command| command.words.is_empty())
    }

    /// Makes the last command the reader of a file whose text is replaced.
    fn replace(&mut self, reader: Vec<Word>) {
        if let Some(command) = self.commands.last_mut() {
            (command.words, command.is_replaced) = (reader, true);
        }
    }

    /// Begins the next command.
    pub(super) fn begin(&mut self, joint: Joint) {
        self.commands.push(SimpleCommand::new(joint));
    }

    /// Drops the word before a redirection that names one of `outputs`.
    pub(super) fn drop_output(&mut self, outputs: &[&str]) {
        self.word.take_if(|word| !word.is_quoted && outputs.contains(&word.text.as_str()));
    }

    /// The commands that have words.
    pub(super) fn commands(mut self) -> Vec<SimpleCommand> {
        self.end_word();
        self.commands.retain(|command| !command.words.is_empty());
        self.commands
    }
}

/// Where a redirection ends that writes no file, after its `>`: to `$null`, `nul` or another output.
pub(super) fn after_sink(rest: &str) -> Option<&str> {
    let target = rest.trim_start_matches('>').trim_start_matches(' ');
    let sinks = ["&1", "&2", "$null", "nul", "NUL"];
    let after = sinks.iter().find_map(|sink| target.strip_prefix(sink))?;
    after.chars().next().is_none_or(|next| next.is_whitespace() || ";|&)".contains(next)).then_some(after)
}

/// The name of a variable at the start of a text.
fn name_of(text: &str) -> &str {
    let end = text.find(|letter: char| !(letter == '_' || letter.is_ascii_alphanumeric()));
    &text[..end.unwrap_or(text.len())]
}

/// A text between quotes, after blanks, and what follows it.
fn literal<'a>(text: &'a str, variables: &Variables) -> Option<(String, &'a str)> {
    let text = text.trim_start_matches([' ', '\t']);
    if let Some(quoted) = text.strip_prefix('\'') {
        let (text, after) = quoted.split_once('\'')?;
        // Two quotes are one: such a text is left to the command.
        return (!after.starts_with('\'')).then(|| (text.to_owned(), after));
    }
    let mut word = Word::default();
    let after = word.double_quoted(text.strip_prefix('"')?, variables).ok()?;
    (!word.is_expanded).then_some((word.text, after))
}

/// The text that an assignment gives a variable, by what stands behind its name, and what follows the assignment.
fn assigned<'a>(text: &'a str, variables: &Variables) -> Option<(String, &'a str)> {
    let value = text.trim_start_matches([' ', '\t']).strip_prefix('=')?;
    let (text, after) = literal(value, variables)?;
    let after = after.trim_start_matches([' ', '\t', '\r']);
    (after.is_empty() || after.starts_with([';', '\n'])).then_some((text, after))
}

/// The words of `(Get-Content a) -replace 'x', 'y'` or `(Get-Content a).Replace('x', 'y')` without the replacements, and what
/// follows it. What the replacements do is not told: they are patterns of .NET.
fn replaced<'a>(text: &'a str, variables: &Variables) -> Option<(Vec<Word>, &'a str)> {
    let (inner, mut rest) = text.strip_prefix('(')?.split_once(')')?;
    // A line of its own has no variables.
    let mut inner = split(inner).ok()?;
    let reader = inner.pop().filter(|reader| inner.is_empty() && lists("get-content gc cat type", &reader.name()))?;
    let mut count = 0;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        let lower: String = rest.chars().take(12).flat_map(char::to_lowercase).collect();
        let is_call = lower.starts_with(".replace(");
        let operator = ["-replace", "-creplace", "-ireplace"].into_iter().find(|operator| lower.starts_with(*operator));
        rest = match operator {
            Some(operator) => rest.get(operator.len()..)?,
            None if is_call => rest.get(".replace(".len()..)?,
            None => break,
        };
        rest = literal(rest, variables)?.1.trim_start_matches([' ', '\t']);
        if let Some(second) = rest.strip_prefix(',') {
            rest = literal(second, variables)?.1;
        }
        if is_call {
            rest = rest.trim_start_matches([' ', '\t']).strip_prefix(')')?;
        }
        count += 1;
    }
    (count > 0 && rest.starts_with('|')).then_some((reader.words, rest))
}

fn split(line: &str) -> CertainResult<Vec<SimpleCommand>> {
    let mut words = Words::new(line)?;
    let mut rest = line;
    // By their names in lower case.
    let mut variables = Variables::default();
    while let Some(next) = rest.chars().next() {
        let begins = words.begins_command();
        if begins && next == '$' {
            let name = name_of(&rest[1..]);
            if !name.is_empty()
                && let Some((text, after)) = assigned(&rest[1 + name.len()..], &variables)
            {
                variables.set(name.to_lowercase(), text);
                rest = after;
                continue;
            }
            variables.remove(&name.to_lowercase());
        }
        if begins
            && next == '('
            && let Some((reader, after)) = replaced(rest, &variables)
        {
            words.replace(reader);
            rest = after;
            continue;
        }
        let after = &rest[next.len_utf8()..];
        if next.is_whitespace() || ";|&".contains(next) {
            words.end_word();
        }
        match next {
            '@' if after.starts_with("\"\n") || after.starts_with("\"\r\n") => {
                let text = after[1..].trim_start_matches('\r');
                let text = text.strip_prefix('\n').unwrap_or(text);
                let (text, after) = text.split_once("\n\"@").ok_or("a quote without an end")?;
                if text.contains(['`', '$']) {
                    return Err("a text with escapes");
                }
                let started = words.word();
                started.text.push_str(text);
                started.is_quoted = true;
                rest = after;
                continue;
            }
            '@' if after.starts_with("'\n") || after.starts_with("'\r\n") => {
                let text = after[1..].trim_start_matches('\r');
                let text = text.strip_prefix('\n').unwrap_or(text);
                let (text, after) = text.split_once("\n'@").ok_or("a quote without an end")?;
                let started = words.word();
                started.text.push_str(text);
                started.is_quoted = true;
                rest = after;
                continue;
            }
            '\'' => {
                let started = words.word();
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
                let started = words.word();
                started.is_quoted = true;
                rest = started.double_quoted(after, &variables)?;
                continue;
            }
            '\n' | ';' => words.begin(Joint::Sequence),
            '&' if after.starts_with('&') => {
                words.begin(Joint::And);
                rest = &after[1..];
                continue;
            }
            '|' if !after.starts_with('|') => words.begin(Joint::Pipe),
            '&' | '|' => return Err("a command for the case of a failure"),
            '>' => {
                words.drop_output(&["1", "2", "*"]);
                rest = after_sink(after).ok_or("an output whose text is unknown")?;
                continue;
            }
            '(' | ')' | '{' | '}' | '@' | '`' | '<' => return Err("an expression"),
            '$' => {
                let started = words.word();
                let name = name_of(after);
                let behind = &after[name.len()..];
                match variables.text(&name.to_lowercase()).filter(|_| !behind.starts_with(['.', '[', ':'])) {
                    Some(text) => {
                        started.is_quoted = true;
                        started.text.push_str(text);
                        rest = behind;
                        continue;
                    }
                    None => {
                        started.is_expanded = true;
                        started.text.push('$');
                    }
                }
            }
            next if next.is_whitespace() => {}
            next => words.word().text.push(next),
        }
        rest = after;
    }
    Ok(words.commands())
}

/// The parameters of a command, by their names in lower case; arguments without a name have the name ``.
fn parameters(words: &[Word]) -> CertainResult<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let name = word.text.to_lowercase();
        let is_name = name.len() > 1 && name.starts_with('-') && !word.is_quoted;
        if is_name && lists(SWITCHES, &name) {
            found.push((name, String::new()));
            continue;
        }
        let value = if is_name { rest.next().ok_or("options of a program that are not known")? } else { word };
        if value.is_expanded {
            return Err("a variable in a path");
        }
        let name = if is_name { name } else { String::new() };
        found.push((name, value.text.clone()));
    }
    Ok(found)
}

/// The path of a file as seen from a directory.
fn seen_from(cwd: &str, path: &str) -> CertainResult<String> {
    if path.contains(['*', '?', '[']) {
        return Err("a pattern of file names");
    }
    let is_absolute = super::path::is_absolute(path) || path.starts_with(['\\', '~']);
    Ok(if is_absolute || cwd.is_empty() { path.to_owned() } else { format!("{cwd}/{path}") })
}

/// The path that a word names.
fn path_of(word: &Word, cwd: &str) -> CertainResult<String> {
    if word.is_expanded { Err("a variable in a path") } else { seen_from(cwd, &word.text) }
}

/// A fixed step for version control or a build.
fn fixed(simple: &SimpleCommand, name: &str, cwd: &str, work: &mut ShellWork) -> CertainResult<()> {
    let is_version_control = lists(VERSION_CONTROL, name);
    let dir = simple.words.iter().skip_while(|word| word.text != "-C").nth(1).filter(|_| is_version_control);
    let dir = match dir {
        Some(dir) => {
            let dir = path_of(dir, cwd)?;
            work.dirs.push(dir.clone());
            dir
        }
        None => cwd.to_owned(),
    };
    let class = if is_version_control { ProgramClass::VersionControl } else { ProgramClass::Build };
    let step = (class, dir);
    if work.programs.last() != Some(&step) {
        work.programs.push(step);
    }
    Ok(())
}

/// The end of a command that writes what it has read of a file back to it, with other texts.
fn rewrite(simple: &SimpleCommand, cwd: &str, work: &mut ShellWork) -> CertainResult<()> {
    const UNKNOWN: &str = "an output whose text is unknown";
    let all = parameters(&simple.words[1..])?;
    let named = all.iter().find(|(name, _)| lists("-path -literalpath -filepath", name));
    let (_, path) = named.or(all.iter().find(|(name, _)| name.is_empty())).ok_or(UNKNOWN)?;
    let path = seen_from(cwd, path)?;
    match work.steps.pop() {
        Some(ShellStep::Read(read)) if read == path => work.steps.push(ShellStep::Rewrite(path)),
        _ => return Err(UNKNOWN),
    }
    Ok(())
}

/// `rg`, which searches the current directory if it gets no path.
fn search(simple: &SimpleCommand, cwd: &str, work: &mut ShellWork) -> CertainResult<()> {
    let has_pattern = simple.words.iter().any(|word| lists("-e -f --files --regexp", &word.text));
    let operands = simple.operands();
    let paths = operands.get(usize::from(!has_pattern)..).unwrap_or_default();
    if paths.is_empty() {
        work.steps.push(ShellStep::Search(cwd.to_owned()));
    }
    for path in paths {
        work.steps.push(ShellStep::Search(path_of(path, cwd)?));
    }
    Ok(())
}

/// `findstr`: with `/s`, it searches the current directory for files that a pattern names.
fn find_text(simple: &SimpleCommand, cwd: &str, work: &mut ShellWork) -> CertainResult<()> {
    let is_switch = |word: &&Word| word.text.starts_with('/');
    let switches = || simple.words.iter().skip(1).filter(is_switch).map(|word| word.text.to_lowercase());
    if switches().any(|switch| switch == "/s") {
        work.steps.push(ShellStep::Search(cwd.to_owned()));
        return Ok(());
    }
    let has_pattern = switches().any(|switch| switch.starts_with("/c:") || switch.starts_with("/g:"));
    let operands = simple.words.iter().skip(1).filter(|word| !is_switch(word));
    for word in operands.skip(usize::from(!has_pattern)) {
        work.steps.push(ShellStep::Read(path_of(word, cwd)?));
    }
    Ok(())
}

/// Adds the effects of a command, which reads the text `piped` if it is known.
fn program(simple: &SimpleCommand, piped: Option<String>, cwd: &mut String, work: &mut ShellWork) -> CertainResult<()> {
    let Some((_, rest)) = simple.words.split_first() else {
        return Ok(());
    };
    let name = simple.name();
    let is_piped = simple.joint == Joint::Pipe;
    let is_filter = is_piped && lists("select-string sls rg findstr", &name);
    if lists(WITHOUT_FILES, &name) || is_filter {
        return Ok(());
    }
    if lists(VERSION_CONTROL, &name) || simple.is_build() {
        return fixed(simple, &name, cwd, work);
    }
    if name == "rg" {
        return search(simple, cwd, work);
    }
    if name == "findstr" {
        return find_text(simple, cwd, work);
    }
    let all = parameters(rest)?;
    let has = |switch: &str| all.iter().any(|(name, _)| name == switch);
    let value = |names: &str| {
        let found = all.iter().find(|(name, _)| lists(names, name));
        found.map(|(_, value)| value.clone())
    };
    let plain: Vec<String> = all.iter().filter(|(name, _)| name.is_empty()).map(|(_, value)| value.clone()).collect();
    let absolute = |path: &str| -> CertainResult<Vec<String>> {
        let paths = path.split(',').map(str::trim).filter(|path| !path.is_empty());
        paths.map(|path| seen_from(cwd, path)).collect()
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
                work.steps.push(if has("-recurse") {
                    ShellStep::Walk(path)
                } else {
                    ShellStep::List { path, attributes: true }
                });
            }
        }
        "get-item" | "gi" | "test-path" | "resolve-path" => {
            let paths = absolute(&needed()?)?;
            work.steps.extend(paths.into_iter().map(ShellStep::Stat));
        }
        "set-content" | "sc" | "add-content" | "ac" | "out-file" => {
            let content = if is_piped { piped } else { value("-value -inputobject").or_else(second) };
            // Without one, the encoding of `Out-File` depends on the version.
            let encoding = value("-encoding").map(|encoding| encoding.to_lowercase());
            let keeps_bytes = match encoding.as_deref() {
                None | Some("utf8") => name != "out-file",
                Some(encoding) => lists("ascii utf8nobom default ansi oem", encoding),
            };
            let is_certain = |text: &String| text.is_ascii() && keeps_bytes;
            let Some(content) = content.filter(is_certain) else {
                return Err("an output whose text is unknown");
            };
            let end = if has("-nonewline") { "" } else { "\r\n" };
            for path in absolute(&needed()?)? {
                let content = format!("{content}{end}");
                let appends = name.starts_with('a') || has("-append");
                work.steps.push(if appends {
                    ShellStep::Append { path, content }
                } else {
                    ShellStep::Write { path, content }
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
                work.steps.push(if name.starts_with('c') {
                    ShellStep::Copy { from, to }
                } else {
                    ShellStep::Move { from, to }
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
        _ if lists(LOCATIONS, &name) => {
            let dir = absolute(&needed()?)?.pop().unwrap_or_default();
            work.dirs.push(dir.clone());
            *cwd = dir;
        }
        _ => return Err("a program whose work on files is not known"),
    }
    Ok(())
}
