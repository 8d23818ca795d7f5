//! Python scripts that a command runs (`python3 -c`, `python3 - <<EOF`): what they do to files, if each file is opened by a name
//! that the script states, outside of conditions, loops and functions. A script is read, never run. What reads its text is in
//! [`super::python_tokens`].

use std::cell::Cell;
use std::collections::HashMap;

use super::programs::lists;
use super::python_tokens::{Statement, Token, statements};
use super::steps::{CertainResult, Replacement, ShellStep};

const SCRIPT: &str = "a script";
const UNKNOWN_TEXT: &str = "an output whose text is unknown";

/// Modules that work on no file by themselves; of `os`, only [`OF_SYSTEM`].
const MODULES: &str = "__future__ ast base64 bisect calendar collections copy csv datetime decimal difflib enum fractions functools hashlib \
    heapq html io itertools json math operator os pathlib pprint random re statistics string struct sys textwrap time tomllib typing \
    unicodedata uuid yaml";

/// What a script may use of the module `os`: its paths, as texts.
const OF_SYSTEM: &str = "environ linesep sep basename dirname join normpath relpath splitext";

/// Names with which a script can do what its text does not show, or end early.
const HIDDEN: &str = "__builtins__ __import__ breakpoint compile delattr eval exec exit getattr global globals locals nonlocal quit \
    setattr vars SystemExit";

/// Attributes that end a script, work on files, or change what a name means.
const ATTRIBUTES: &str = "FileIO dump exit modules open_code writelines write_bytes writerow writerows";

/// Words that begin a statement with a block.
const BLOCKS: &str = "async class def elif else except finally for if match try while with";

/// Words after which a part of a statement may not run.
const CONDITIONS: &str = "and else for if lambda or";

/// The most bytes of texts that are made while a script is read: `a = a + a` doubles one.
const ROOM: usize = 1 << 24;

/// What a name of the script stands for, if it is known.
#[derive(Clone, Debug)]
enum Value {
    /// A text.
    Text(String),
    /// The text of a file after replacements, as the file was before the step with the number `at`.
    Content { path: String, replacements: Vec<Replacement>, at: usize },
    /// A file that is open.
    Handle { path: String, mode: Mode },
}

impl Value {
    fn bytes(&self) -> usize {
        match self {
            Self::Content { replacements, .. } => replacements.iter().map(|each| each.old.len() + each.new.len()).sum(),
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Read,
    Write,
    Append,
}

/// The operations of a script. `absolute` completes its paths.
///
/// # Errors
/// Why they are not certain.
pub(super) fn steps(script: &str, absolute: &dyn Fn(&str) -> String) -> CertainResult<Vec<ShellStep>> {
    let mut reader =
        Reader { absolute, names: HashMap::new(), steps: Vec::new(), unwritten: Vec::new(), room: Cell::new(ROOM) };
    // The indentation of the statement that begins each block, and whether the block runs once.
    let mut blocks: Vec<(usize, bool)> = Vec::new();
    for Statement { indentation, tokens } in statements(script).ok_or(SCRIPT)? {
        while blocks.pop_if(|(outer, _)| *outer >= indentation).is_some() {}
        let is_certain = blocks.iter().all(|(_, is_certain)| *is_certain);
        if let Some(is_certain) = reader.statement(&tokens, is_certain)? {
            blocks.push((indentation, is_certain));
        }
    }
    if reader.unwritten.is_empty() { Ok(reader.steps) } else { Err(UNKNOWN_TEXT) }
}

/// Whether an output has the words with which a script fails: those of an exception, or of a script that Python cannot read.
pub(super) fn has_failed(output: &str) -> bool {
    ["Traceback (most recent call last)", "File \"<stdin>\"", "File \"<string>\""]
        .iter()
        .any(|words| output.contains(words))
}

struct Reader<'a> {
    absolute: &'a dyn Fn(&str) -> String,
    names: HashMap<String, Value>,
    steps: Vec<ShellStep>,
    /// The files that are open to be written, before the first text.
    unwritten: Vec<String>,
    /// The bytes of texts that may still be made.
    room: Cell<usize>,
}

impl Reader<'_> {
    /// Reads a statement, which runs once if `is_certain`. Of one with a block behind it, returns whether the block runs once.
    fn statement(&mut self, tokens: &[Token], is_certain: bool) -> CertainResult<Option<bool>> {
        let name = |at: usize| tokens.get(at).and_then(Token::name).unwrap_or_default();
        if name(0) == "import" || name(0) == "from" {
            return imports(tokens).then_some(None).ok_or(SCRIPT);
        }
        allowed(tokens)?;
        if lists(BLOCKS, name(0))
            && let Some(colon) = position(tokens, ":")
        {
            let (head, body) = (&tokens[..colon], &tokens[colon + 1..]);
            let runs_once = is_certain && name(0) == "with" && self.with(head)?;
            if !runs_once {
                self.head(head, is_certain)?;
            }
            if body.first().and_then(Token::name).is_some_and(|name| lists(BLOCKS, name)) {
                return Err(SCRIPT);
            }
            if !body.is_empty() {
                self.statement(body, runs_once)?;
            }
            return Ok(Some(runs_once));
        }
        let is_assignment = tokens.get(1).is_some_and(|token| token.is("="));
        if is_certain && is_assignment {
            let value = self.value(&tokens[2..])?;
            self.name(name(0), value);
        } else if !(is_certain && self.write(tokens)?) {
            self.others(tokens, is_certain)?;
        }
        Ok(None)
    }

    /// `with open('a') as f`. Returns whether the statement is one of these.
    fn with(&mut self, head: &[Token]) -> CertainResult<bool> {
        let Some((path, mode, end)) = self.opened(&head[1..])? else {
            return Ok(false);
        };
        let [Token::Name(as_), Token::Name(name)] = &head[1 + end..] else {
            return Err(SCRIPT);
        };
        if as_ != "as" {
            return Err(SCRIPT);
        }
        match mode {
            Mode::Read => self.steps.push(ShellStep::Read(path.clone())),
            Mode::Write | Mode::Append => self.unwritten.push(path.clone()),
        }
        self.names.insert(name.clone(), Value::Handle { path, mode });
        Ok(true)
    }

    /// The beginning of a block that may run any number of times. A loop over the lines of a file reads it.
    fn head(&mut self, head: &[Token], is_certain: bool) -> CertainResult<()> {
        let lines = head.iter().position(|token| token.name() == Some("in")).filter(|_| head[0].name() == Some("for"));
        match lines {
            Some(at) if is_certain => {
                self.forget(&head[..at]);
                self.others(&head[at + 1..], true)
            }
            _ => self.others(head, false),
        }
    }

    fn name(&mut self, name: &str, value: Option<Value>) {
        match value {
            Some(value) => self.names.insert(name.to_owned(), value),
            None => self.names.remove(name),
        };
    }

    /// The value of an expression that is evaluated once.
    fn value(&mut self, tokens: &[Token]) -> CertainResult<Option<Value>> {
        if let Some(text) = self.text(tokens) {
            return Ok(Some(Value::Text(text)));
        }
        let content = self.content(tokens)?;
        if content.is_none() {
            self.others(tokens, true)?;
        }
        Ok(content)
    }

    /// Makes a text of this length. `None` if there is no room for it.
    fn make(&self, bytes: usize) -> Option<()> {
        self.room.set(self.room.get().checked_sub(bytes)?);
        Some(())
    }

    /// The text of literals and names: `'a' + b`, `('a' 'b')`.
    fn text(&self, tokens: &[Token]) -> Option<String> {
        let tokens = within(tokens).unwrap_or(tokens);
        let mut text = String::new();
        let mut needs_plus = false;
        for token in tokens {
            let part = match token {
                Token::Text { text, is_certain: true } => text,
                Token::Name(name) if !needs_plus => match self.names.get(name)? {
                    Value::Text(text) => text,
                    _ => return None,
                },
                Token::Sign(sign) if sign == "+" && needs_plus => {
                    needs_plus = false;
                    continue;
                }
                _ => return None,
            };
            self.make(part.len())?;
            text += part;
            needs_plus = true;
        }
        needs_plus.then_some(text)
    }

    /// The text of a file: `open('a').read()`, `s.replace('x', 'y')`.
    fn content(&mut self, tokens: &[Token]) -> CertainResult<Option<Value>> {
        let at = self.steps.len();
        let opened = self.opened(tokens)?;
        let is_open = opened.is_some();
        let known = match tokens {
            [Token::Name(name), ..] if !is_open => self.names.get(name),
            _ => None,
        };
        let (mut value, mut rest) = match (opened, known) {
            (Some((path, Mode::Read, end)), _) => (Value::Handle { path, mode: Mode::Read }, &tokens[end..]),
            (Some(_), _) => return Err(UNKNOWN_TEXT),
            (None, Some(Value::Text(_)) | None) => return Ok(None),
            (None, Some(value)) => {
                self.make(value.bytes()).ok_or("a command of extreme size")?;
                (value.clone(), &tokens[1..])
            }
        };
        if let Value::Handle { path, mode } = &value {
            let Some((name, arguments, after)) = method(rest) else {
                return Ok(None);
            };
            // The arguments of `read_text` say how the text is encoded.
            let is_whole = name == "read" && arguments.is_empty() || name == "read_text";
            if !is_whole || *mode != Mode::Read {
                return Ok(None);
            }
            value = Value::Content { path: path.clone(), replacements: Vec::new(), at };
            rest = after;
        }
        while let Some(("replace", arguments, after)) = method(rest) {
            let (old, new, all) = match arguments[..] {
                [old, new] => (old, new, true),
                [old, new, [count]] if count.is("1") => (old, new, false),
                _ => return Ok(None),
            };
            let (Some(old), Some(new)) = (self.text(old).filter(|old| !old.is_empty()), self.text(new)) else {
                return Ok(None);
            };
            if let Value::Content { replacements, .. } = &mut value {
                replacements.push(Replacement { old, new, all });
            }
            rest = after;
        }
        if !rest.is_empty() {
            return Ok(None);
        }
        if let (true, Value::Content { path, .. }) = (is_open, &value) {
            self.steps.push(ShellStep::Read(path.clone()));
        }
        Ok(Some(value))
    }

    /// A statement that writes a file: `open('a', 'w').write(s)`. Returns whether it is one.
    fn write(&mut self, tokens: &[Token]) -> CertainResult<bool> {
        let (path, mode, end, is_handle) = match (self.opened(tokens)?, tokens) {
            (Some((path, mode, end)), _) => (path, mode, end, false),
            (None, [Token::Name(name), ..]) => match self.names.get(name) {
                Some(Value::Handle { path, mode }) => (path.clone(), *mode, 1, true),
                _ => return Ok(false),
            },
            _ => return Ok(false),
        };
        let Some((name, arguments, after)) =
            method(&tokens[end..]).filter(|(name, ..)| lists("write write_text", name))
        else {
            return Ok(false);
        };
        let mode = if name == "write_text" { Mode::Write } else { mode };
        let content = match arguments[..] {
            [content, ..] if after.is_empty() && mode != Mode::Read => content,
            _ => return Err(UNKNOWN_TEXT),
        };
        // A file that is open is written piece by piece.
        let is_first = !is_handle || self.unwritten.contains(&path);
        self.unwritten.retain(|unwritten| *unwritten != path);
        let value = self.value(content)?;
        let is_kept = |at: usize| {
            let later = self.steps.iter().skip(at).filter(|step| !step.only_reads());
            later.flat_map(ShellStep::paths).all(|changed| changed != path)
        };
        let step = match value {
            Some(Value::Text(content)) if mode == Mode::Append || !is_first => ShellStep::Append { path, content },
            Some(Value::Text(content)) => ShellStep::Write { path, content },
            Some(Value::Content { path: of, replacements, at })
                if of == path && mode == Mode::Write && is_first && is_kept(at) && !replacements.is_empty() =>
            {
                ShellStep::Edit { path, replacements }
            }
            // A text that the script makes of what it has read.
            _ if mode == Mode::Write && is_first && self.steps.contains(&ShellStep::Read(path.clone())) => {
                ShellStep::Rewrite(path)
            }
            _ => return Err(UNKNOWN_TEXT),
        };
        self.steps.push(step);
        Ok(true)
    }

    fn is_handle(&self, name: &str) -> bool {
        matches!(self.names.get(name), Some(Value::Handle { .. }))
    }

    /// Any other part of a script: it may read files, if it runs once and nothing in it is left out.
    fn others(&mut self, tokens: &[Token], is_certain: bool) -> CertainResult<()> {
        let is_conditional = tokens.iter().any(|token| token.name().is_some_and(|name| lists(CONDITIONS, name)));
        let mut at = 0;
        while at < tokens.len() {
            let is_attribute = at > 0 && tokens[at - 1].is(".");
            match &tokens[at] {
                Token::Name(name) if !is_attribute && lists("open io Path pathlib", name) => {
                    let opened = self.opened(&tokens[at..])?.ok_or(SCRIPT)?;
                    let (path, Mode::Read, end) = opened else {
                        return Err(UNKNOWN_TEXT);
                    };
                    if !is_certain || is_conditional {
                        return Err(SCRIPT);
                    }
                    self.steps.push(ShellStep::Read(path));
                    at += end;
                    continue;
                }
                Token::Name(name) if !is_attribute && name == "os" => {
                    let mut names = tokens[at..].chunks(2).map_while(|two| two[0].name()).skip(1);
                    let used = names.find(|name| *name != "path");
                    if !used.is_some_and(|used| lists(OF_SYSTEM, used)) {
                        return Err(SCRIPT);
                    }
                }
                Token::Name(name) if is_attribute && lists("write write_text", name) => {
                    let stream = at.checked_sub(2).and_then(|before| tokens[before].name());
                    if !stream.is_some_and(|stream| lists("stdout stderr", stream)) {
                        return Err(UNKNOWN_TEXT);
                    }
                }
                Token::Name(name) if !is_attribute => match self.names.get(name) {
                    Some(Value::Handle { mode, .. }) if *mode != Mode::Read => return Err(UNKNOWN_TEXT),
                    _ => {}
                },
                _ => {}
            }
            at += 1;
        }
        self.forget(tokens);
        Ok(())
    }

    /// Forgets the names to which a statement gives a value.
    fn forget(&mut self, tokens: &[Token]) {
        // `d['a'] = 1` changes what a name stands for, and not the name.
        let is_part = tokens.get(1).is_some_and(|token| token.is("[") || token.is("."));
        let mut depth = 0;
        let sets = tokens.iter().any(|token| {
            depth += token.depth();
            let sign = token.sign().filter(|sign| !lists("== != <= >=", sign));
            sign.is_some_and(|sign| sign == ":=" || depth == 0 && !is_part && sign.ends_with('='))
                || depth == 0 && token.name().is_some_and(|name| lists("for as del", name))
        });
        if sets {
            let names = tokens.iter().filter_map(Token::name);
            names.filter(|name| !self.is_handle(name)).map(str::to_owned).collect::<Vec<_>>().iter().for_each(|name| {
                self.names.remove(name);
            });
        }
    }

    /// A file that an expression opens at its beginning: `open('a', 'w')`, `io.open('a')`, `Path('a')`. Returns its path, the mode,
    /// and where the call ends.
    fn opened(&self, tokens: &[Token]) -> CertainResult<Option<(String, Mode, usize)>> {
        let name = |at: usize| tokens.get(at).and_then(Token::name).unwrap_or_default();
        let has_module = lists("io pathlib", name(0)) && tokens.get(1).is_some_and(|token| token.is("."));
        let at = if has_module { 2 } else { 0 };
        if has_module && lists("StringIO BytesIO", name(2)) || !has_module && !lists("open Path", name(0)) {
            return Ok(None);
        }
        let (arguments, end) = tokens.get(at + 1..).and_then(arguments).ok_or(SCRIPT)?;
        let [path, others @ ..] = &arguments[..] else {
            return Err(SCRIPT);
        };
        let path = (self.absolute)(&self.text(path).ok_or(SCRIPT)?);
        let end = at + 1 + end;
        if name(at) == "Path" {
            // Of a path, only its text is read or written.
            let rest = &tokens[end..];
            let method = rest.get(1).and_then(Token::name).filter(|_| rest[0].is("."));
            let is_known = method.is_some_and(|method| lists("read_text write_text", method)) && others.is_empty();
            return if is_known { Ok(Some((path, Mode::Read, end))) } else { Err(SCRIPT) };
        }
        if name(at) != "open" {
            return Err(SCRIPT);
        }
        let mut mode = Some("r".to_owned());
        for (place, argument) in others.iter().enumerate() {
            match argument {
                [Token::Name(name), sign, value @ ..] if sign.is("=") && name == "mode" => mode = self.text(value),
                [_, sign, ..] if sign.is("=") => {}
                positional if place == 0 => mode = self.text(positional),
                _ => {}
            }
        }
        let mode = match mode.as_deref() {
            Some("r" | "rt" | "rb") => Mode::Read,
            Some("w" | "wt") => Mode::Write,
            Some("a" | "at") => Mode::Append,
            _ => return Err(SCRIPT),
        };
        Ok(Some((path, mode, end)))
    }
}

/// The tokens of each argument of a call.
type Arguments<'a> = Vec<&'a [Token]>;

/// The call of a method: its name, its arguments, and what is behind it.
fn method(tokens: &[Token]) -> Option<(&str, Arguments<'_>, &[Token])> {
    let [dot, Token::Name(name), rest @ ..] = tokens else {
        return None;
    };
    let (arguments, end) = arguments(rest).filter(|_| dot.is("."))?;
    Some((name, arguments, &rest[end..]))
}

/// Whether a statement imports only known modules, by their own names.
fn imports(tokens: &[Token]) -> bool {
    let words: Vec<&str> = tokens.iter().filter_map(Token::name).collect();
    let is_renamed = words.contains(&"as");
    match words[..] {
        ["from", module, "import", ..] if module != "os" => {
            let opens = lists("io pathlib sys", module);
            lists(MODULES, module)
                && !(opens && (is_renamed || words.iter().any(|word| lists("exit FileIO open_code modules", word))))
        }
        ["import", ref modules @ ..] => !is_renamed && modules.iter().all(|module| lists(MODULES, module)),
        _ => false,
    }
}

/// Refuses names that can hide what a script does.
fn allowed(tokens: &[Token]) -> CertainResult<()> {
    for (at, token) in tokens.iter().enumerate() {
        let is_attribute = at > 0 && tokens[at - 1].is(".");
        let Some(name) = token.name() else {
            continue;
        };
        let is_hidden = if is_attribute { lists(ATTRIBUTES, name) } else { lists(HIDDEN, name) };
        // `open` without a call gets another name.
        let is_called = tokens.get(at + 1).is_some_and(|next| next.is("("));
        let is_kept = lists("open Path", name) && !is_called;
        if is_hidden || is_kept || name.starts_with("__") {
            return Err(SCRIPT);
        }
    }
    Ok(())
}

/// The place of a sign outside of brackets.
fn position(tokens: &[Token], sign: &str) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().position(|token| {
        depth += token.depth();
        depth == 0 && token.is(sign)
    })
}

/// What is in the parentheses around all tokens.
fn within(tokens: &[Token]) -> Option<&[Token]> {
    let [open, inner @ .., close] = tokens else {
        return None;
    };
    let mut depth = 0;
    let is_one = inner.iter().all(|token| {
        depth += token.depth();
        depth >= 0
    });
    (open.is("(") && close.is(")") && is_one).then_some(inner)
}

/// The arguments of a call whose parenthesis is the first token, and where it ends.
fn arguments(tokens: &[Token]) -> Option<(Arguments<'_>, usize)> {
    if !tokens.first()?.is("(") {
        return None;
    }
    let mut depth = 0;
    let end = tokens.iter().position(|token| {
        depth += token.depth();
        depth == 0
    })?;
    let mut rest = &tokens[1..end];
    let mut all = Vec::new();
    while let Some(comma) = position(rest, ",") {
        all.push(&rest[..comma]);
        rest = &rest[comma + 1..];
    }
    if !rest.is_empty() {
        all.push(rest);
    }
    Some((all, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(script: &str) -> Result<Vec<String>, &'static str> {
        let shown = |step: ShellStep| match step {
            ShellStep::Read(path) => format!("read {path}"),
            ShellStep::Write { path, content } => format!("write {path} {content:?}"),
            ShellStep::Append { path, content } => format!("append {path} {content:?}"),
            ShellStep::Rewrite(path) => format!("rewrite {path}"),
            ShellStep::Edit { path, replacements } => {
                let each = replacements.iter().map(|each| format!("{:?}>{:?} {}", each.old, each.new, each.all));
                format!("edit {path} {}", each.collect::<Vec<_>>().join(" "))
            }
            other => format!("{other:?}"),
        };
        steps(script, &str::to_owned).map(|steps| steps.into_iter().map(shown).collect())
    }

    #[test]
    fn a_script_that_reads_files_by_stated_names_reads_them() {
        for (script, expected) in [
            ("import json\nd = json.load(open('a.json', encoding='utf-8'))\nprint(d['x'][:3])", vec!["read a.json"]),
            ("p = 'd/' + \"a.txt\"\nfor line in open(p):\n    if line: print(line)\n", vec!["read d/a.txt"]),
            (
                "import sys; print(len(open('a', 'rb').read())); print(open('b').read().split())",
                vec!["read a", "read b"],
            ),
            ("with open('a') as f:\n  lines = f.read().split('\\n')\nprint(f'{len(lines)} lines')", vec!["read a"]),
            ("from pathlib import Path\nprint(Path('a').read_text())", vec!["read a"]),
            ("import os\nprint(os.path.basename(open('a').read()), os.environ['HOME'])", vec!["read a"]),
            ("import re, sys\nfor line in sys.stdin:\n    sys.stdout.write(re.sub('a', 'b', line))", vec![]),
        ] {
            assert_eq!(shown(script), Ok(expected.into_iter().map(str::to_owned).collect()), "{script}");
        }
    }

    #[test]
    fn a_script_that_replaces_texts_of_a_file_edits_it() {
        for (script, expected) in [
            (
                "import io\np = 'a.py'\ns = io.open(p, encoding='utf-8').read()\nold = \'\'\'def f():\n    pass\n\'\'\'\nassert old in s, 'no'\ns = s.replace(old, 'x = 1\\n', 1)\nio.open(p, 'w', newline='\\n').write(s)\nprint('done')\n",
                vec!["read a.py", "edit a.py \"def f():\\n    pass\\n\">\"x = 1\\n\" false"],
            ),
            (
                "s = open('a').read()\nopen('a', 'w').write(s.replace('x', 'y').replace('z', ''))",
                vec!["read a", "edit a \"x\">\"y\" true \"z\">\"\" true"],
            ),
            (
                "with open('a') as f:\n    s = f.read()\ns = s.replace(r'\\d', (\n  'one '\n  'two'))\nwith open('a', 'w') as f:\n    f.write(s)\n    f.write('end')",
                vec!["read a", "edit a \"\\\\d\">\"one two\" true", "append a \"end\""],
            ),
            (
                "import json\nd = json.load(open('a'))\nd['x'] = 1\nopen('a', 'w').write(json.dumps(d))",
                vec!["read a", "rewrite a"],
            ),
            (
                "open('a', 'w').write('x')\nopen('b', 'a').write('y' + '\\n')",
                vec!["write a \"x\"", "append b \"y\\n\""],
            ),
            ("from pathlib import Path\nPath('a').write_text('x', encoding='utf-8')", vec!["write a \"x\""]),
        ] {
            assert_eq!(shown(script), Ok(expected.into_iter().map(str::to_owned).collect()), "{script}");
        }
    }

    #[test]
    fn a_script_whose_work_is_not_certain_has_no_steps() {
        for script in [
            "import os\nos.remove('a')",
            "import os\nprint(os.path.getsize('a'))",
            "import os\nprint(os)",
            "from os import remove",
            "import subprocess",
            "from src.a import b\nprint(b)",
            "for p in ['a', 'b']:\n    print(open(p).read())",
            "p = 'a'\nfor p in ['b']: pass\nprint(open(p).read())",
            "p = f'{x}'\nprint(open(p).read())",
            "if x:\n    print(open('a').read())",
            "print(open('a').read() if x else 1)",
            "try:\n    s = open('a').read()\nexcept OSError:\n    pass",
            "def f():\n    return open('a').read()",
            "o = open\nprint(o('a').read())",
            "import json\njson.dump(1, open('a', 'w'))",
            "f = open('a', 'w')\nf.write('x')",
            "for x in y:\n    open('a', 'w').write('x')",
            "with open('a', 'w') as f:\n    for x in y: f.write('x')",
            "with open('a', 'w') as f:\n    pass",
            "with open('a', 'w') as f:\n    print('x', file=f)",
            "s = open('a').read()\nopen('b', 'w').write(s)",
            "s = t\nopen('a', 'w').write(s)",
            "s = open('a').read()\nopen('a', 'a').write(s)",
            "import sys\nif x: sys.exit()\nopen('a', 'w').write('x')",
            "print(f'{open(1)}')",
            "exec('x')",
            "from pathlib import Path\nPath('a').unlink()",
            "open('a', 'r+').write('x')",
            "print('",
            "print((1)",
            "if x: if y: print(1)",
            &("a = 'x'\n".to_owned() + &"a = a + a\n".repeat(60) + "open('b', 'w').write(a)"),
        ] {
            assert!(steps(script, &str::to_owned).is_err(), "{script}");
        }
    }
}
