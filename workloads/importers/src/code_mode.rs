//! Scripts of Codex's code mode that do nothing else than to run commands and to show each result:
//! `const a = await tools.exec_command({ cmd: "ls" }); text(a);`.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::text;
use shell::{Platform, ShellCommand, ShellStep};

/// The most commands of a script.
const MOST: usize = 100;

/// A script of several commands.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Script {
    /// The arguments of each command, in order.
    pub(super) commands: Vec<Value>,
    /// The command whose result each text of the output is.
    shown: Vec<usize>,
    /// Whether commands run at the same time.
    is_parallel: bool,
}

/// The result of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandResult {
    /// The text that the agent saw.
    pub(super) shown: String,
    /// What the command printed.
    pub(super) printed: String,
    /// Its exit code; `None` while it runs.
    pub(super) code: Option<i64>,
}

impl Script {
    /// Reads a script of at least two commands. `None` if it does anything else, or if commands that change files run at the
    /// same time.
    pub(super) fn new(source: &str) -> Option<Self> {
        let mut reader = Reader { tokens: tokens(source)?, at: 0, script: Self::default(), results: HashMap::new() };
        while reader.at < reader.tokens.len() {
            reader.statement()?;
        }
        let script = reader.script;
        let mut shown = script.shown.clone();
        shown.sort_unstable();
        let is_each_shown = shown.iter().copied().eq(0..script.commands.len());
        let is_several = (2..=MOST).contains(&script.commands.len());
        (is_each_shown && is_several && !(script.is_parallel && script.changes_files())).then_some(script)
    }

    fn changes_files(&self) -> bool {
        let lines = self.commands.iter().filter_map(|command| text(command, "cmd"));
        lines.into_iter().any(|line| {
            let command = ShellCommand { line: line.to_owned(), cwd: "/".to_owned(), platform: Platform::Posix };
            !shell::operations(&command, "", true).steps.iter().all(ShellStep::only_reads)
        })
    }

    /// The result of each command, from the texts of the script's output.
    pub(super) fn results(&self, output: &Value) -> Option<Vec<CommandResult>> {
        let (frame, texts) = output.as_array()?.split_first()?;
        if !text(frame, "text")?.starts_with("Script completed") || texts.len() != self.shown.len() {
            return None;
        }
        let mut results: Vec<(usize, CommandResult)> = Vec::with_capacity(texts.len());
        for (command, part) in self.shown.iter().zip(texts) {
            let shown = text(part, "text")?;
            let stated: Value = serde_json::from_str(shown).ok()?;
            let printed = text(&stated, "output")?.to_owned();
            results.push((
                *command,
                CommandResult { shown: shown.to_owned(), printed, code: stated["exit_code"].as_i64() },
            ));
        }
        results.sort_by_key(|(command, _)| *command);
        Some(results.into_iter().map(|(_, result)| result).collect())
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    /// A name or a number.
    Name(String),
    Text(String),
    Other(char),
}

/// The tokens of a source. `None` if it has texts that are put together.
fn tokens(source: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(next) = rest.chars().next() {
        let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
        rest = if next.is_whitespace() {
            rest.trim_start()
        } else if let Some(comment) = rest.strip_prefix("//") {
            comment.split_once('\n').map_or("", |(_, rest)| rest)
        } else if "\"'`".contains(next) {
            let (text, rest) = literal(rest)?;
            tokens.push(Token::Text(text));
            rest
        } else if is_name(next) {
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            tokens.push(Token::Name(rest[..end].to_owned()));
            &rest[end..]
        } else {
            tokens.push(Token::Other(next));
            &rest[next.len_utf8()..]
        };
    }
    Some(tokens)
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
    script: Script,
    /// The commands of each variable.
    results: HashMap<String, Vec<usize>>,
}

impl Reader {
    fn next(&mut self) -> Option<&Token> {
        self.at += 1;
        self.tokens.get(self.at - 1)
    }

    /// Whether these tokens follow, which are then read. Words and single characters are separated by blanks.
    fn takes(&mut self, words: &str) -> bool {
        let mut words_read = 0;
        for word in words.split(' ') {
            let is_same = match self.tokens.get(self.at + words_read) {
                Some(Token::Name(name)) => name == word,
                Some(Token::Other(other)) => word.chars().eq([*other]),
                _ => false,
            };
            if !is_same {
                return false;
            }
            words_read += 1;
        }
        self.at += words_read;
        true
    }

    fn name(&mut self) -> Option<String> {
        match self.next()? {
            Token::Name(name) => Some(name.clone()),
            _ => None,
        }
    }

    fn statement(&mut self) -> Option<()> {
        if self.takes(";") {
            return Some(());
        }
        if self.takes("text (") {
            let command = if self.takes("await") {
                self.command()?
            } else if self.takes("JSON . stringify (") {
                let command = self.result()?;
                self.takes(")").then_some(command)?
            } else {
                self.result()?
            };
            self.script.shown.push(command);
            return self.takes(")").then_some(());
        }
        if self.takes("for ( const") {
            let each = self.name()?;
            let all = self.takes("of").then(|| self.name())??;
            let is_shown = self.takes(") text (") && self.name()? == each && self.takes(")");
            let commands = self.results.get(&all).filter(|_| is_shown)?;
            self.script.shown.extend(commands);
            return Some(());
        }
        if !self.takes("const") {
            return None;
        }
        let mut names = Vec::new();
        let is_list = self.takes("[");
        loop {
            names.push(self.name()?);
            if !is_list || self.takes("]") {
                break;
            }
            self.takes(",").then_some(())?;
        }
        self.takes("= await").then_some(())?;
        let commands = if self.takes("Promise . all ( [") {
            self.script.is_parallel = true;
            let mut commands = Vec::new();
            while !self.takes("] )") {
                commands.push(self.command()?);
                self.takes(",");
            }
            commands
        } else {
            vec![self.command()?]
        };
        match (is_list, names.as_slice()) {
            (true, names) if names.len() == commands.len() => {
                for (name, command) in names.iter().zip(commands) {
                    self.results.insert(name.clone(), vec![command]);
                }
            }
            (false, [name]) => drop(self.results.insert(name.clone(), commands)),
            _ => return None,
        }
        Some(())
    }

    /// The command whose result `a` or `all[0]` is.
    fn result(&mut self) -> Option<usize> {
        let name = self.name()?;
        let commands = self.results.get(&name)?.clone();
        if self.takes("[") {
            let index: usize = self.name()?.parse().ok()?;
            return self.takes("]").then(|| commands.get(index).copied())?;
        }
        match commands[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Reads `tools.exec_command({ … })`.
    fn command(&mut self) -> Option<usize> {
        self.takes("tools . exec_command ( {").then_some(())?;
        let mut args = Map::new();
        while !self.takes("}") {
            let key = match self.next()? {
                Token::Name(key) | Token::Text(key) => key.clone(),
                Token::Other(_) => return None,
            };
            self.takes(":").then_some(())?;
            let value = match self.next()? {
                Token::Text(text) => text.as_str().into(),
                Token::Name(name) => serde_json::from_str::<Value>(name).ok()?,
                Token::Other(_) => return None,
            };
            args.insert(key, value);
            self.takes(",");
        }
        self.takes(")").then_some(())?;
        args.get("cmd")?.as_str()?;
        self.script.commands.push(Value::Object(args));
        Some(self.script.commands.len() - 1)
    }
}

/// The text of a literal of JavaScript that nothing is put into, and what follows it.
pub(super) fn literal(source: &str) -> Option<(String, &str)> {
    let mut chars = source.chars();
    let quote = chars.next().filter(|quote| "\"'`".contains(*quote))?;
    let mut text = String::new();
    loop {
        match chars.next()? {
            c if c == quote => return Some((text, chars.as_str())),
            '$' if quote == '`' => return None,
            '\\' => match chars.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                '\n' => {}
                'u' | 'x' => return None,
                c => text.push(c),
            },
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_script_that_only_runs_and_shows_commands_is_these_commands() {
        let two = "const a = await tools.exec_command({cmd: \"cat a\", workdir: '/w', yield_time_ms: 1000});\n\
            const b = await tools.exec_command({\"cmd\": `ls`}); // more\ntext(b); text(JSON.stringify(a));";
        let script = Script::new(two).unwrap();
        let expected = [json!({"cmd": "cat a", "workdir": "/w", "yield_time_ms": 1000}), json!({"cmd": "ls"})];
        assert_eq!(script.commands, expected);
        assert_eq!(script.shown, [1, 0]);
        for (source, is_split) in [
            ("text(await tools.exec_command({cmd: 'a'})); text(await tools.exec_command({cmd: 'b'}))", true),
            (
                "const [a, b] = await Promise.all([tools.exec_command({cmd: 'cat a'}), tools.exec_command({cmd: 'ls'}),]); text(a); text(b);",
                true,
            ),
            (
                "const r = await Promise.all([tools.exec_command({cmd: 'cat a'}), tools.exec_command({cmd: 'ls'})]); for (const x of r) text(x);",
                true,
            ),
            (
                "const r = await Promise.all([tools.exec_command({cmd: 'cat a'}), tools.exec_command({cmd: 'ls'})]); text(r[1]); text(r[0]);",
                true,
            ),
            // They run at the same time.
            (
                "const [a, b] = await Promise.all([tools.exec_command({cmd: 'cat a'}), tools.exec_command({cmd: 'rm a'})]); text(a); text(b);",
                false,
            ),
            // Of a text alone, the status is not known.
            (
                "const a = await tools.exec_command({cmd: 'a'}); const b = await tools.exec_command({cmd: 'b'}); text(a.output); text(b.output);",
                false,
            ),
            (
                "const a = await tools.exec_command({cmd: 'a'}); const b = await tools.exec_command({cmd: 'b'}); text(a);",
                false,
            ),
            ("const a = await tools.exec_command({cmd: 'a'}); if (a) { text(a); }", false),
            (
                "const a = await tools.exec_command({cmd: `ls ${x}`}); text(a); text(await tools.exec_command({cmd: 'a'}))",
                false,
            ),
            ("const a = await tools.exec_command({cmd: 'a'}); text(a);", false),
        ] {
            assert_eq!(Script::new(source).is_some(), is_split, "{source}");
        }
    }

    #[test]
    fn each_text_of_the_output_is_the_result_of_its_command() {
        let source = "text(await tools.exec_command({cmd: 'a'})); text(await tools.exec_command({cmd: 'b'}))";
        let script = Script::new(source).unwrap();
        let part = |text: &str| json!({"type": "input_text", "text": text});
        let (frame, one) = ("Script completed\nOutput:\n", r#"{"exit_code": 0, "output": "x\n"}"#);
        let (two, running) = (r#"{"exit_code": 1, "output": ""}"#, r#"{"session_id": 7, "output": ""}"#);
        let codes = |texts: &[&str]| {
            let output: Vec<Value> = texts.iter().map(|text| part(text)).collect();
            let results = script.results(&json!(output))?;
            Some(results.iter().map(|result| result.code).collect::<Vec<_>>())
        };
        assert_eq!(codes(&[frame, one, two]), Some(vec![Some(0), Some(1)]));
        assert_eq!(codes(&[frame, one, running]), Some(vec![Some(0), None]));
        assert_eq!(codes(&[frame, one]), None);
        assert_eq!(codes(&[frame, one, "x"]), None);
        assert_eq!(codes(&["Script failed", one, two]), None);
    }
}
