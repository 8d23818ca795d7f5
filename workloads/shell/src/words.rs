//! Splits a line of `sh` into simple commands, in one pass.
//!
//! The words of loops, functions, substitutions and background jobs are not split: the commands that they run are not
//! certain. No kept parser was found to fit: conch-parser ended at 0.1.1, and yash-syntax is GPL. brush-parser and
//! tree-sitter-bash parse the whole language; only simple commands are needed here.

use super::variables::Variables;

/// How certain a word is before the shell expands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Expansion {
    /// The word is its own text.
    Plain,
    /// The shell matches it with file names, or expands braces.
    Pattern,
    /// It contains a variable or the output of a command.
    Variable,
}

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Its text without quotes.
    pub(super) text: String,
    /// The shell's expansion of it.
    pub(super) expansion: Expansion,
    /// Whether a part of it was quoted.
    pub(super) is_quoted: bool,
}

/// A redirection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirection {
    /// The descriptor; `&` for both outputs.
    pub(super) descriptor: char,
    /// The kind.
    pub(super) kind: RedirectionKind,
    /// The file, the descriptor, or the text of a here-document.
    pub(super) target: Word,
}

/// The kind of a redirection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedirectionKind {
    /// `<`.
    Input,
    /// `>`, `>|`.
    Output,
    /// `>>`.
    Append,
    /// `>&`, `<&`.
    Descriptor,
    /// `<<`, `<<<`.
    Text,
}

/// How a command follows the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joint {
    /// The first command, or one after `;` or a new line.
    Sequence,
    /// `|`.
    Pipe,
    /// `&&`.
    And,
    /// `||`.
    Or,
}

/// A simple command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    pub(super) joint: Joint,
    pub(super) words: Vec<Word>,
    pub(super) redirections: Vec<Redirection>,
}

/// Words that begin or end a compound command.
const COMPOUND: &str = "case do done elif else esac fi for function if in select then until while { } !";

/// Programs of the shell that can change a variable.
const SETTERS: &str = ". declare eval export getopts local mapfile read readarray readonly source typeset unset";

/// The name and the value of an assignment.
pub(super) fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_letter = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let is_name = !name.is_empty() && name.chars().all(is_letter) && !name.starts_with(|c: char| c.is_ascii_digit());
    is_name.then_some((name, value))
}

/// Programs whose output depends on no file of the workspace, and that change none.
const WITHOUT_FILES: &str = "basename date dirname echo hostname id nproc printf pwd uname whoami";

/// Whether a command touches no file.
fn touches_no_file(simple: &SimpleCommand) -> bool {
    let program = simple.words.first();
    let is_descriptor = |redirection: &Redirection| {
        redirection.kind == RedirectionKind::Descriptor
            || redirection.kind == RedirectionKind::Output && redirection.target.text == "/dev/null"
    };
    program.is_some_and(|word| super::programs::lists(WITHOUT_FILES, &word.text))
        && simple.words.iter().all(|word| word.expansion != Expansion::Pattern)
        && simple.redirections.iter().all(is_descriptor)
}

/// The here-document that `cat` prints, if the command does nothing else.
fn document_of_cat(simple: &SimpleCommand) -> Option<&Word> {
    match (simple.words.as_slice(), simple.redirections.as_slice()) {
        ([program], [text]) if program.text == "cat" && text.kind == RedirectionKind::Text => Some(&text.target),
        _ => None,
    }
}

/// Programs that run the command that follows them.
const WRAPPERS: &str = "builtin command env exec nice nohup sudo time timeout";

/// The words of a command after assignments and programs that run another, such as `timeout 5`.
pub(super) fn without_wrappers(words: &[Word]) -> &[Word] {
    let mut rest = words;
    while let Some((first, after)) = rest.split_first() {
        if assignment(&first.text).is_some() {
            rest = after;
        } else if super::programs::lists(WRAPPERS, &first.text) && !after.is_empty() {
            // `command -v` runs nothing, and others go to a directory first.
            let own = after.iter().map(|word| word.text.as_str()).take_while(|word| word.starts_with('-'));
            if own.clone().any(|word| super::programs::lists("-v -V -C -D -R", word) || word.starts_with("--ch")) {
                break;
            }
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

/// Splits a line into simple commands.
///
/// # Errors
/// Why the commands that the line runs are not certain.
pub(super) fn split(line: &str) -> Result<Vec<SimpleCommand>, &'static str> {
    let mut splitter = Splitter::new(line, line.char_indices().peekable(), false);
    splitter.run()?;
    Ok(splitter.all)
}

/// A here-document whose text follows the line: its command, its redirection, its end, whether tabs are stripped.
struct Document {
    command: usize,
    redirection: usize,
    end: String,
    strips_tabs: bool,
}

struct Splitter<'a> {
    rest: std::iter::Peekable<std::str::CharIndices<'a>>,
    line: &'a str,
    all: Vec<SimpleCommand>,
    current: SimpleCommand,
    documents: Vec<Document>,
    /// The variables that the line itself has set to a certain text.
    variables: Variables,
    /// Those of them that are set only if the commands before in the list succeed: after the list, they are not certain.
    conditional: Vec<String>,
    /// Whether the list consists of assignments so far, which do not fail.
    only_assigns: bool,
    /// Whether the commands are those of `$(…)`, which a `)` ends.
    is_substitution: bool,
}

impl<'a> Splitter<'a> {
    fn new(line: &'a str, rest: std::iter::Peekable<std::str::CharIndices<'a>>, is_substitution: bool) -> Self {
        Self {
            rest,
            line,
            all: Vec::new(),
            current: SimpleCommand { joint: Joint::Sequence, words: Vec::new(), redirections: Vec::new() },
            documents: Vec::new(),
            variables: Variables::default(),
            conditional: Vec::new(),
            only_assigns: true,
            is_substitution,
        }
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().map(|(_, c)| *c)
    }

    fn next_if(&mut self, wanted: char) -> bool {
        self.rest.next_if(|(_, c)| *c == wanted).is_some()
    }

    fn run(&mut self) -> Result<(), &'static str> {
        while let Some(next) = self.peek() {
            match next {
                '\n' => {
                    self.rest.next();
                    self.end(Joint::Sequence)?;
                    self.take_documents()?;
                }
                ' ' | '\t' | '\r' => {
                    self.rest.next();
                }
                '#' => while self.rest.next_if(|(_, c)| *c != '\n').is_some() {},
                ';' => {
                    self.rest.next();
                    if self.next_if(';') {
                        return Err("a loop, a condition or a function");
                    }
                    self.end(Joint::Sequence)?;
                }
                '|' => {
                    self.rest.next();
                    if self.next_if('|') {
                        self.end(Joint::Or)?;
                    } else {
                        if self.next_if('&') {
                            return Err("a pipe of both outputs");
                        }
                        self.end(Joint::Pipe)?;
                    }
                }
                '&' => {
                    self.rest.next();
                    if self.next_if('&') {
                        self.end(Joint::And)?;
                    } else if self.next_if('>') {
                        self.redirection('&', '>')?;
                    } else {
                        return Err("a background job");
                    }
                }
                ')' if self.is_substitution => {
                    self.rest.next();
                    self.end(Joint::Sequence)?;
                    return if self.documents.is_empty() { Ok(()) } else { Err("a here-document without an end") };
                }
                '(' | ')' => return Err("a subshell or a function"),
                '<' | '>' => {
                    self.rest.next();
                    let descriptor = if next == '<' { '0' } else { '1' };
                    self.redirection(descriptor, next)?;
                }
                _ => {
                    let word = self.word()?;
                    let is_descriptor =
                        word.text.len() == 1 && word.text.bytes().all(|b| b.is_ascii_digit()) && !word.is_quoted;
                    match (is_descriptor, self.peek()) {
                        (true, Some(next @ ('<' | '>'))) => {
                            self.rest.next();
                            let descriptor = word.text.chars().next().unwrap_or('1');
                            self.redirection(descriptor, next)?;
                        }
                        // The end of a line that goes on.
                        _ if word.text.is_empty() && !word.is_quoted => {}
                        _ => self.add(word)?,
                    }
                }
            }
        }
        self.end(Joint::Sequence)?;
        if self.documents.is_empty() && !self.is_substitution { Ok(()) } else { Err("a here-document without an end") }
    }

    /// Reads `(…)` after `$`, if its commands touch no file: a text is added, another output makes the word uncertain.
    fn substitution(&mut self, word: &mut Word, is_quoted: bool) -> Result<(), &'static str> {
        const UNCERTAIN: &str = "the output of a command in a command";
        if self.is_substitution {
            return Err(UNCERTAIN);
        }
        self.rest.next();
        // Its variables are unknown: a copy for each substitution would take time in proportion to the square of the
        // line's length.
        let mut inner = Splitter::new(self.line, self.rest.clone(), true);
        inner.run().map_err(|_| UNCERTAIN)?;
        let text = match inner.all.as_slice() {
            [only] => document_of_cat(only),
            _ => None,
        };
        match text {
            Some(document) if document.expansion == Expansion::Plain => {
                let text = document.text.trim_end_matches('\n');
                // Without quotes, the shell splits the text and matches it with file names.
                if !is_quoted && text.contains([' ', '\t', '\n', '*', '?', '[']) {
                    word.expansion = Expansion::Variable;
                }
                word.text.push_str(text);
            }
            Some(_) => word.expansion = Expansion::Variable,
            None if inner.all.iter().all(touches_no_file) => word.expansion = Expansion::Variable,
            None => return Err(UNCERTAIN),
        }
        self.rest = inner.rest;
        Ok(())
    }

    fn add(&mut self, word: Word) -> Result<(), &'static str> {
        let is_first = self.current.words.is_empty();
        if is_first && !word.is_quoted && super::programs::lists(COMPOUND, &word.text) {
            return Err("a loop, a condition or a function");
        }
        self.current.words.push(word);
        Ok(())
    }

    fn end(&mut self, next: Joint) -> Result<(), &'static str> {
        let is_empty = self.current.words.is_empty() && self.current.redirections.is_empty();
        if is_empty {
            let is_start = self.current.joint == Joint::Sequence && next == Joint::Sequence;
            // A line may be empty, and may go on after `&&` or a pipe.
            return if is_start || next == Joint::Sequence { Ok(()) } else { Err("an operator without a command") };
        }
        let following = SimpleCommand { joint: next, words: Vec::new(), redirections: Vec::new() };
        let ended = std::mem::replace(&mut self.current, following);
        self.assign(&ended, next);
        self.all.push(ended);
        Ok(())
    }

    /// Notes the variables that a command sets, or forgets those that it may have changed.
    fn assign(&mut self, simple: &SimpleCommand, next: Joint) {
        let pairs = simple.words.iter().map_while(|word| Some((assignment(&word.text)?, word)));
        let pairs: Vec<((&str, &str), &Word)> = pairs.collect();
        let program = simple.words.get(pairs.len());
        if program.is_some_and(|word| super::programs::lists(SETTERS, &word.text)) {
            self.variables.clear();
        }
        let is_conditional = simple.joint == Joint::And && !self.only_assigns;
        self.only_assigns = match next {
            Joint::Sequence => true,
            _ => self.only_assigns && program.is_none(),
        };
        if program.is_none() {
            let names = pairs.iter().map(|((name, _), _)| (*name).to_owned());
            if is_conditional {
                self.conditional.extend(names);
            }
            self.set(&pairs, simple, next);
        }
        if matches!(next, Joint::Sequence | Joint::Or) {
            for name in self.conditional.drain(..) {
                self.variables.remove(&name);
            }
        }
    }

    /// Sets the variables of a command that only assigns.
    fn set(&mut self, pairs: &[((&str, &str), &Word)], simple: &SimpleCommand, next: Joint) {
        // A part of a pipe has its own variables, and the part after `||` may not have run.
        let is_pipe = simple.joint == Joint::Pipe || next == Joint::Pipe;
        for &((name, value), word) in pairs {
            let is_certain =
                word.expansion == Expansion::Plain && !is_pipe && simple.joint != Joint::Or && !value.starts_with('~');
            if is_certain {
                self.variables.set(name.to_owned(), value.to_owned());
            } else {
                self.variables.remove(name);
            }
        }
    }

    /// Reads the name after `$`, and adds the variable's text if the line has set it.
    fn variable(&mut self, word: &mut Word, is_quoted: bool) {
        let after = self.rest.peek().map_or(self.line.len(), |(at, _)| *at);
        let rest = &self.line[after..];
        let braced = rest.strip_prefix('{');
        let inner = braced.unwrap_or(rest);
        let end = inner.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        let name = &inner[..end.unwrap_or(inner.len())];
        let (named, end) = match braced {
            None => (name, name.len()),
            Some(inner) if inner[name.len()..].starts_with('}') => (name, name.len() + 2),
            // Such as `${name:-other}`.
            Some(_) => ("", 0),
        };
        let value = self.variables.text(named).filter(|value| {
            // Without quotes, the shell splits the text and matches it with file names.
            is_quoted || !value.is_empty() && !value.contains([' ', '\t', '\n', '*', '?', '['])
        });
        if let Some(value) = value {
            word.text.push_str(value);
            while self.rest.next_if(|(at, _)| *at < after + end).is_some() {}
            return;
        }
        let is_name = self.peek().is_some_and(|next| next.is_ascii_alphanumeric() || "_{?!@*#$-".contains(next));
        if is_name {
            word.expansion = Expansion::Variable;
        }
        word.text.push('$');
    }

    fn redirection(&mut self, descriptor: char, first: char) -> Result<(), &'static str> {
        let kind = match first {
            '<' if self.next_if('<') => {
                if self.next_if('<') {
                    RedirectionKind::Text
                } else {
                    return self.document(descriptor);
                }
            }
            '<' if self.next_if('&') => RedirectionKind::Descriptor,
            '<' if self.peek() == Some('>') => return Err("a file opened for reading and writing"),
            '<' => RedirectionKind::Input,
            _ if self.next_if('>') => RedirectionKind::Append,
            _ if self.next_if('&') => RedirectionKind::Descriptor,
            _ => {
                self.next_if('|');
                RedirectionKind::Output
            }
        };
        while self.next_if(' ') || self.next_if('\t') {}
        if self.peek() == Some('(') {
            return Err("a process substitution");
        }
        let mut target = self.word()?;
        if kind == RedirectionKind::Text {
            target.text.push('\n');
        }
        self.current.redirections.push(Redirection { descriptor, kind, target });
        Ok(())
    }

    fn document(&mut self, descriptor: char) -> Result<(), &'static str> {
        let strips_tabs = self.next_if('-');
        while self.next_if(' ') || self.next_if('\t') {}
        let end = self.word()?;
        self.documents.push(Document {
            command: self.all.len(),
            redirection: self.current.redirections.len(),
            end: end.text,
            strips_tabs,
        });
        self.current.redirections.push(Redirection {
            descriptor,
            kind: RedirectionKind::Text,
            target: Word {
                text: String::new(),
                // Without quotes, the shell expands the text.
                expansion: if end.is_quoted { Expansion::Plain } else { Expansion::Variable },
                is_quoted: end.is_quoted,
            },
        });
        Ok(())
    }

    /// Reads the texts of the here-documents that began on the line before.
    fn take_documents(&mut self) -> Result<(), &'static str> {
        for document in std::mem::take(&mut self.documents) {
            let mut text = String::new();
            loop {
                let Some((start, _)) = self.rest.peek().copied() else {
                    return Err("a here-document without an end");
                };
                let line = &self.line[start..];
                let line = line.split_once('\n').map_or(line, |(line, _)| line);
                while self.rest.next_if(|(_, c)| *c != '\n').is_some() {}
                self.rest.next();
                let line = if document.strips_tabs { line.trim_start_matches('\t') } else { line };
                if line == document.end {
                    break;
                }
                text.push_str(line);
                text.push('\n');
            }
            let command = self.all.get_mut(document.command);
            let redirection = command.and_then(|command| command.redirections.get_mut(document.redirection));
            if let Some(redirection) = redirection {
                let is_expanded = redirection.target.expansion == Expansion::Variable;
                if is_expanded && !text.contains(['$', '`', '\\']) {
                    redirection.target.expansion = Expansion::Plain;
                }
                redirection.target.text = text;
            }
        }
        Ok(())
    }

    fn word(&mut self) -> Result<Word, &'static str> {
        let mut word = Word { text: String::new(), expansion: Expansion::Plain, is_quoted: false };
        while let Some(next) = self.peek() {
            match next {
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                _ => {}
            }
            self.rest.next();
            match next {
                '\'' => {
                    word.is_quoted = true;
                    self.until_quote(&mut word)?;
                }
                '"' => {
                    word.is_quoted = true;
                    self.double_quoted(&mut word)?;
                }
                '\\' => match self.rest.next() {
                    Some((_, '\n')) | None => {}
                    Some((_, escaped)) => {
                        word.is_quoted = true;
                        word.text.push(escaped);
                    }
                },
                '$' if self.peek() == Some('\'') => {
                    self.rest.next();
                    word.is_quoted = true;
                    self.escaped(&mut word)?;
                }
                '$' if self.peek() == Some('"') => return Err("a text that depends on the language"),
                '$' if self.peek() == Some('(') => self.substitution(&mut word, false)?,
                '`' => return Err("the output of a command in a command"),
                '$' => self.variable(&mut word, false),
                '*' | '?' | '[' | '{' => {
                    let is_test = word.text.is_empty() && "[{".contains(next);
                    let is_alone = is_test && self.peek().is_none_or(|next| " [\n;\t}".contains(next));
                    if !is_alone {
                        word.expansion = word.expansion.max(Expansion::Pattern);
                    }
                    word.text.push(next);
                }
                _ => word.text.push(next),
            }
        }
        Ok(word)
    }

    /// The text of `$'…'`, in which `\` escapes.
    fn escaped(&mut self, word: &mut Word) -> Result<(), &'static str> {
        loop {
            let Some((_, letter)) = self.rest.next() else {
                return Err("a quote without an end");
            };
            word.text.push(match letter {
                '\'' => return Ok(()),
                '\\' => match self.rest.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, 't')) => '\t',
                    Some((_, 'r')) => '\r',
                    Some((_, escaped @ ('\\' | '\'' | '"' | '?'))) => escaped,
                    _ => return Err("a text with escapes"),
                },
                letter => letter,
            });
        }
    }

    fn until_quote(&mut self, word: &mut Word) -> Result<(), &'static str> {
        loop {
            match self.rest.next() {
                Some((_, '\'')) => return Ok(()),
                Some((_, quoted)) => word.text.push(quoted),
                None => return Err("a quote without an end"),
            }
        }
    }

    fn double_quoted(&mut self, word: &mut Word) -> Result<(), &'static str> {
        loop {
            match self.rest.next() {
                Some((_, '"')) => return Ok(()),
                Some((_, '\\')) => match self.rest.next() {
                    Some((_, '\n')) => {}
                    Some((_, escaped @ ('"' | '\\' | '$' | '`'))) => word.text.push(escaped),
                    Some((_, other)) => word.text.extend(['\\', other]),
                    None => return Err("a quote without an end"),
                },
                Some((_, '`')) => return Err("the output of a command in a command"),
                Some((_, '$')) => match self.peek() {
                    Some('(') => self.substitution(word, true)?,
                    _ => self.variable(word, true),
                },
                Some((_, quoted)) => word.text.push(quoted),
                None => return Err("a quote without an end"),
            }
        }
    }
}
