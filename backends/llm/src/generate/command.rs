//! Generators loaded from a file: a command that is given path and prompt, or the tree, and prints the content.
//!
//! The command is started as it is written, never by a shell, so a path cannot become code. It asks no model of the
//! mount; what it asks itself is its own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use fuse::store::{Errno, Kind, Result, StoreError};
use inputs::{InputError, PathStep};
use models::Cancel;
use processes::{ChildProcess, head};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::generator::{FileRequest, GeneratedContent, Generator, Generators, TreeLine};
use super::rule::Rule;
use super::settings::Setting;
use crate::names::shown;

/// The most bytes a command may print.
const CONTENT_MAX: u64 = 16 << 20;

/// The most bytes of standard error in a reason.
const REASON_MAX: u64 = 1024;

/// The generator of files without another one.
const DEFAULT: &str = "default";

/// Poll interval while the command runs.
const POLL: Duration = Duration::from_millis(2);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Definition {
    name: String,
    command: Vec<String>,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    input: Input,
    #[serde(default = "timeout_default")]
    timeout_seconds: f64,
}

/// What a command gets on its standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Input {
    /// The prompt of the directory, an empty line, and the prompt of the file, if they exist.
    #[default]
    Prompts,
    /// An [`InputDocument`].
    Json,
}

/// The file system, as a command with the input `json` gets it.
#[derive(Serialize)]
struct InputDocument<'a> {
    path: &'a str,
    /// The prompt of the directory.
    prompt: Option<String>,
    /// The prompt of the file.
    about: Option<&'a str>,
    node: Option<InputNode<'a>>,
    tree: Vec<InputNode<'a>>,
    /// Generated files, as the prompt of a model shows them.
    context: Vec<serde_json::Value>,
}

/// An entry of the tree.
#[derive(Serialize)]
struct InputNode<'a> {
    path: &'a str,
    kind: &'static str,
    size: u64,
    /// Permission bits.
    mode: u16,
    uid: u32,
    gid: u32,
    /// Seconds since 1970.
    mtime: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    is_waiting: bool,
    attributes: &'a BTreeMap<String, String>,
}

impl<'a> InputNode<'a> {
    fn new(line: &'a TreeLine) -> Self {
        Self {
            path: &line.path,
            kind: match line.attr.kind {
                Kind::File => "file",
                Kind::Directory => "directory",
                Kind::Symlink => "symlink",
                _ => "special",
            },
            size: line.attr.size,
            mode: line.attr.permissions,
            uid: line.attr.uid,
            gid: line.attr.gid,
            mtime: line.attr.mtime.0.div_euclid(1_000_000_000),
            target: line.target.as_deref(),
            is_waiting: line.is_pending,
            attributes: &line.attributes,
        }
    }
}

fn timeout_default() -> f64 {
    30.0
}

/// A generator that runs a command, by a definition such as
///
/// ```toml
/// name = "outline"                       # for `user.llmfs.generator`; `default` writes all files of the tree
/// command = ["./outline.py", "--short"]  # with a slash: from this file's directory; the file's path is added
/// files = ["*.md", "docs/**/*.txt"]      # the files of the tree that it writes; see `Rule`
/// input = "json"                         # prompt, node and tree on its standard input; "prompts" for prompts alone
/// timeout-seconds = 30                   # from 0.1 to 3600
/// ```
#[derive(Debug)]
pub struct CommandGenerator {
    name: String,
    /// The program and its arguments, behind the launcher.
    words: Vec<OsString>,
    /// The directory of the definition, in which the command runs.
    dir: PathBuf,
    /// The files of the tree that it writes.
    rules: Vec<Rule>,
    input: Input,
    timeout: Duration,
}

impl CommandGenerator {
    /// Reads a definition. `launcher` is put before the command; it may bind its life to this process.
    ///
    /// # Errors
    /// File, line and field of the mistake.
    pub fn read(file: &Path, launcher: impl IntoIterator<Item = OsString>) -> std::result::Result<Self, InputError> {
        let text = inputs::read(file)?;
        let definition: Definition = inputs::parse_toml(file, &text)?;
        let wrong = |field: &str, why: &str| inputs::toml_error(file, &text, &[PathStep::Field(field)], why);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let name = definition.name.as_str();
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(wrong("name", "must consist of letters, digits, `-` and `_`"));
        }
        if name != DEFAULT && Generators::standard().get(name).is_some() {
            let why =
                format!("{name} is a built-in generator; choose another name, or `{DEFAULT}` to replace the model");
            return Err(wrong("name", &why));
        }
        if !(0.1..=3600.0).contains(&definition.timeout_seconds) {
            return Err(wrong("timeout-seconds", "must be from 0.1 to 3600"));
        }
        if name == DEFAULT && !definition.files.is_empty() {
            return Err(wrong("files", "`default` writes all files of the tree; choose another name, or leave it out"));
        }
        let mut rules = Vec::new();
        for (at, pattern) in definition.files.iter().enumerate() {
            let step = [PathStep::Field("files"), PathStep::Item(at)];
            let rule = pattern.parse::<Rule>().map_err(|why: String| inputs::toml_error(file, &text, &step, &why))?;
            rules.push(rule);
        }
        let dir = std::path::absolute(file).map_err(|error| InputError::whole(file, error))?;
        let dir = dir.parent().unwrap_or(Path::new("/")).to_owned();
        let mut command = definition.command.into_iter();
        let program = command.next().filter(|program| !program.is_empty());
        let program = program.ok_or_else(|| wrong("command", "must name a program"))?;
        // Joining an absolute path replaces the directory.
        let program = if program.contains('/') { dir.join(program).into_os_string() } else { program.into() };
        let words = launcher.into_iter().chain([program]);
        Ok(Self {
            name: definition.name,
            words: words.chain(command.map(OsString::from)).collect(),
            dir,
            rules,
            input: definition.input,
            timeout: Duration::from_secs_f64(definition.timeout_seconds),
        })
    }

    /// Runs the command for the file at `path`, with this standard input, and returns what it printed.
    fn run(&self, path: &str, input: &[u8], cancel: &Cancel) -> Result<Vec<u8>> {
        let io = |error: io::Error| self.failed(Errno::IO, &error.to_string());
        // Files, not pipes: a process that the command leaves behind would keep a pipe open.
        let mut stdin = tempfile::tempfile().map_err(io)?;
        stdin.write_all(input).map_err(io)?;
        stdin.rewind().map_err(io)?;
        let output = tempfile::tempfile().map_err(io)?;
        let complaints = tempfile::tempfile().map_err(io)?;
        let (program, arguments) = self.words.split_first().ok_or(Errno::INVAL)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg(path)
            .current_dir(&self.dir)
            .stdin(stdin)
            .stdout(output.try_clone().map_err(io)?)
            .stderr(complaints.try_clone().map_err(io)?);
        let mut process = ChildProcess::start_group(&mut command)
            .map_err(|error| self.failed(Errno::IO, &format!("cannot start: {error}")))?;
        let ended = self.wait(&mut process, &output, cancel);
        // Also kills processes that the command has left behind; an error means that there are none.
        let _ = process.kill();
        let status = ended?;
        if !status.success() {
            let said = tail(complaints, REASON_MAX).map_err(io)?;
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            let why = format!("{status}: {said}");
            return Err(self.failed(Errno::IO, why.trim_end_matches(": ")));
        }
        head(output, CONTENT_MAX).map_err(io)
    }

    fn wait(&self, process: &mut ChildProcess, output: &File, cancel: &Cancel) -> Result<ExitStatus> {
        let io = |error: io::Error| self.failed(Errno::IO, &error.to_string());
        let deadline = Instant::now() + self.timeout;
        loop {
            let ended = process.ended().map_err(io)?;
            if output.metadata().map_err(io)?.len() > CONTENT_MAX {
                return Err(self.failed(Errno::IO, "it printed more than 16 MiB"));
            }
            if let Some(status) = ended {
                return Ok(status);
            }
            if cancel.is_cancelled() {
                return Err(self.failed(Errno::INTR, "no caller waits for it any longer"));
            }
            if Instant::now() >= deadline {
                let limit = self.timeout.as_secs_f64();
                let why = format!("it did not exit within {limit} s (timeout-seconds)");
                return Err(self.failed(Errno::TIMEDOUT, &why));
            }
            std::thread::sleep(POLL);
        }
    }

    fn failed(&self, errno: Errno, why: &str) -> StoreError {
        let why = format!("the command of generator {}: {why}", self.name);
        StoreError::storage(errno, why)
    }
}

/// The last bytes of a file, at most `most`: the last line of a traceback says what failed.
fn tail(mut file: File, most: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Generator for CommandGenerator {
    fn name(&self) -> &str {
        &self.name
    }

    fn writes(&self, path: &str) -> bool {
        self.rules.iter().any(|rule| rule.matches(path))
    }

    fn generate(&self, file: &FileRequest<'_>) -> Result<GeneratedContent> {
        let prompt = file.around.setting(file.path, Setting::Prompt);
        let mut context = Vec::new();
        let input = match self.input {
            Input::Prompts => {
                let prompts = prompt.into_iter().chain(file.about.map(str::to_owned));
                let prompts: Vec<String> = prompts.map(|prompt| prompt + "\n").collect();
                prompts.join("\n").into_bytes()
            }
            Input::Json => {
                let tree = file.around.tree();
                context = file.around.context(file.path, usize::MAX);
                let shown = context.iter();
                let shown = shown.map(|it| json!({"path": it.path, "text": it.text, "size": it.size}));
                let document = InputDocument {
                    path: file.path,
                    prompt,
                    about: file.about,
                    node: tree.iter().find(|line| line.path == file.path).map(InputNode::new),
                    tree: tree.iter().map(InputNode::new).collect(),
                    context: shown.collect(),
                };
                serde_json::to_vec(&document).map_err(|error| self.failed(Errno::IO, &error.to_string()))?
            }
        };
        let content = self.run(file.path, &input, file.cancel)?;
        if content.is_empty() {
            let why = format!("it printed nothing for {}", shown(file.path.as_bytes()));
            return Err(self.failed(Errno::IO, &why));
        }
        Ok(GeneratedContent { content, context, ..GeneratedContent::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defined(dir: &Path, text: &str) -> std::result::Result<CommandGenerator, InputError> {
        let file = dir.join("g.toml");
        std::fs::write(&file, text).unwrap();
        CommandGenerator::read(&file, [])
    }

    fn run_until(cancel: &Cancel, text: &str, path: &str, prompt: &str) -> Result<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let generator = defined(dir.path(), text).unwrap();
        generator.run(path, prompt.as_bytes(), cancel)
    }

    fn run(text: &str, path: &str, prompt: &str) -> Result<Vec<u8>> {
        run_until(&Cancel::default(), text, path, prompt)
    }

    #[test]
    fn a_malformed_definition_is_refused_by_file_line_and_field() {
        for (text, said) in [
            ("name = 'a'\ncommand = ['b']\ncolour = 1", "g.toml:3"),
            ("name = 'a'", "command"),
            ("name = 'a b'\ncommand = ['b']", "g.toml:1: field `name`"),
            ("command = ['b']\nname = 'cache_list'", "g.toml:2: field `name`: cache_list is a built-in generator"),
            ("name = 'a'\ncommand = []", "g.toml:2: field `command`"),
            ("name = 'a'\ncommand = ['b']\ntimeout-seconds = 0", "g.toml:3: field `timeout-seconds`"),
            ("name = 'a'\ncommand = ['b']\ninput = 'xml'", "g.toml:3: field `input`: unknown variant `xml`"),
            ("name = 'default'\ncommand = ['b']\nfiles = ['*.md']", "g.toml:3: field `files`: `default` writes all"),
            ("name = 'a'\ncommand = ['b']\nfiles = [\n  '*.md',\n  'a[b',\n]", "g.toml:5: field `files[1]`: "),
            ("name = 'a'\ncommand = ['b']\nfiles = ['']", "g.toml:3: field `files[0]`: "),
            ("name = 'a'\ncommand = ['b']\nfiles = '*.md'", "g.toml:3: field `files`"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let error = defined(dir.path(), text).unwrap_err().to_string();
            assert!(error.contains("g.toml") && error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_command_gets_path_and_prompt_as_they_are() {
        let cat = "name = 'a'\ncommand = ['sh', '-c', 'printf %s \"$1\"; cat', 'sh']";
        let made = run(cat, "/a; $(touch b).md", "a prompt\n").unwrap();
        assert_eq!(made, b"/a; $(touch b).mda prompt\n");
    }

    #[test]
    fn a_command_that_fails_hangs_or_cannot_start_is_an_error_with_a_reason() {
        let fails = "name = 'a'\ncommand = ['sh', '-c', 'echo bad luck >&2; exit 3']";
        let error = run(fails, "/x", "").unwrap_err();
        let reason = error.reason.clone().unwrap();
        assert_eq!(error.errno, Errno::IO);
        assert!(reason.contains("exit status: 3: bad luck"), "{reason}");
        let verbose = "name = 'a'\ncommand = ['sh', '-c', 'yes | head -c 5000 >&2; echo last words >&2; exit 3']";
        let reason = run(verbose, "/x", "").unwrap_err().reason.unwrap();
        assert!(reason.ends_with("last words") && reason.len() < 1200, "{reason}");
        let dir = tempfile::tempdir().unwrap();
        let (pids, begun) = (dir.path().join("pids"), Instant::now());
        let script = format!("sleep 1000 & echo $$ $! > {}; sleep 1000", pids.display());
        let hangs = format!("name = 'a'\ncommand = ['sh', '-c', '{script}']\ntimeout-seconds = 5");
        let error = run(&hangs, "/x", "").unwrap_err();
        assert_eq!(error.errno, Errno::TIMEDOUT);
        assert!(begun.elapsed() < Duration::from_secs(60));
        for pid in std::fs::read_to_string(pids).unwrap().split_whitespace() {
            // Init reaps the processes that the shell has left behind.
            while Path::new("/proc").join(pid).exists() {
                assert!(begun.elapsed() < Duration::from_secs(60), "{pid}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let none = run("name = 'a'\ncommand = ['no-such-program']", "/x", "").unwrap_err();
        assert!(none.reason.unwrap().contains("cannot start"));
    }

    #[test]
    fn a_command_ends_when_no_caller_waits_or_it_prints_too_much() {
        let endless = "name = 'a'\ncommand = ['yes']";
        let error = run(endless, "/x", "").unwrap_err();
        assert!(error.reason.unwrap().contains("more than 16 MiB"));
        let sleeps = "name = 'a'\ncommand = ['sh', '-c', 'sleep 1000']";
        let cancel = Cancel::default();
        cancel.cancel();
        let error = run_until(&cancel, sleeps, "/x", "").unwrap_err();
        assert_eq!(error.errno, Errno::INTR);
    }
}
