//! Generators loaded from a file: a command that is given path and prompt, and prints the content.
//!
//! The command is started as it is written, never by a shell, so a path cannot become code. It asks no model of the
//! mount; what it asks itself is its own.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use arms::child::{head, kill_group};
use fuse::store::{Errno, Result, StoreError};
use inputs::InputError;
use models::Cancel;
use serde::Deserialize;

use super::generator::{FileToMake, Generator, Made};
use super::settings::Setting;
use crate::names::shown;

/// The most bytes a command may print.
const CONTENT_MAX: u64 = 16 << 20;

/// The most bytes of standard error in a reason.
const REASON_MAX: u64 = 1024;

/// Poll interval while the command runs.
const POLL: Duration = Duration::from_millis(2);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Definition {
    name: String,
    command: Vec<String>,
    #[serde(default = "timeout_default")]
    timeout_seconds: f64,
}

fn timeout_default() -> f64 {
    30.0
}

/// A generator that runs a command, by a definition such as
///
/// ```toml
/// name = "outline"                       # for `user.llmfs.generator`; `default` writes all files of the tree
/// command = ["./outline.py", "--short"]  # with a slash: from this file's directory; the file's path is added
/// timeout-seconds = 30                   # from 0.1 to 3600
/// ```
///
/// Its standard input has the prompt of the directory, an empty line, and the prompt of the file, if they exist.
#[derive(Debug)]
pub struct CommandGenerator {
    name: String,
    /// The program and its arguments, behind the launcher.
    words: Vec<OsString>,
    /// The directory of the definition, in which the command runs.
    dir: PathBuf,
    timeout: Duration,
}

impl CommandGenerator {
    /// Reads a definition. `launcher` is put before the command; it may bind its life to this process.
    ///
    /// # Errors
    /// File, line and field of the mistake.
    pub fn read(file: &Path, launcher: impl IntoIterator<Item = OsString>) -> std::result::Result<Self, InputError> {
        let wrong = |field: &str, why: &str| InputError::whole(file, format!("field `{field}`: {why}"));
        let text = inputs::read(file)?;
        let definition: Definition = inputs::parse_toml(file, &text)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if definition.name.is_empty() || !definition.name.chars().all(is_name) {
            return Err(wrong("name", "must consist of letters, digits, `-` and `_`"));
        }
        if !(0.1..=3600.0).contains(&definition.timeout_seconds) {
            return Err(wrong("timeout-seconds", "must be from 0.1 to 3600"));
        }
        let dir = std::path::absolute(file).map_err(|error| InputError::whole(file, error))?;
        let dir = dir.parent().unwrap_or(Path::new("/")).to_owned();
        let mut command = definition.command.into_iter();
        let program = command.next().filter(|program| !program.is_empty());
        let program = program.ok_or_else(|| wrong("command", "must name a program"))?;
        // Joining an absolute path replaces the directory.
        let program = match program.contains('/') {
            true => dir.join(program).into_os_string(),
            false => program.into(),
        };
        let words = launcher.into_iter().chain([program]);
        Ok(Self {
            name: definition.name,
            words: words.chain(command.map(OsString::from)).collect(),
            dir,
            timeout: Duration::from_secs_f64(definition.timeout_seconds),
        })
    }

    /// Runs the command for the file at `path` and returns what it printed.
    fn run(&self, path: &str, prompt: &str, cancel: &Cancel) -> Result<Vec<u8>> {
        let io = |error: io::Error| self.failed(Errno::IO, &error.to_string());
        // Files, not pipes: a process that the command leaves behind would keep a pipe open.
        let mut input = tempfile::tempfile().map_err(io)?;
        input.write_all(prompt.as_bytes()).map_err(io)?;
        input.rewind().map_err(io)?;
        let output = tempfile::tempfile().map_err(io)?;
        let complaints = tempfile::tempfile().map_err(io)?;
        let (program, arguments) = self.words.split_first().ok_or(Errno::INVAL)?;
        let mut process = Command::new(program)
            .args(arguments)
            .arg(path)
            .current_dir(&self.dir)
            .stdin(input)
            .stdout(output.try_clone().map_err(io)?)
            .stderr(complaints.try_clone().map_err(io)?)
            .process_group(0)
            .spawn()
            .map_err(|error| self.failed(Errno::IO, &format!("cannot start: {error}")))?;
        let ended = self.wait(&mut process, &output, cancel);
        // Also kills processes that the command has left behind.
        kill_group(&mut process);
        let status = ended?;
        if !status.success() {
            let said = head(complaints, REASON_MAX).map_err(io)?;
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            let why = format!("{status}: {said}");
            return Err(self.failed(Errno::IO, why.trim_end_matches(": ")));
        }
        head(output, CONTENT_MAX).map_err(io)
    }

    fn wait(&self, process: &mut Child, output: &File, cancel: &Cancel) -> Result<ExitStatus> {
        let io = |error: io::Error| self.failed(Errno::IO, &error.to_string());
        let deadline = Instant::now() + self.timeout;
        loop {
            let ended = process.try_wait().map_err(io)?;
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

impl Generator for CommandGenerator {
    fn name(&self) -> &str {
        &self.name
    }

    fn generate(&self, file: &FileToMake<'_>) -> Result<Made> {
        let of_directory = file.around.setting(file.path, Setting::Prompt);
        let prompts = of_directory.into_iter().chain(file.about.map(str::to_owned));
        let prompts: Vec<String> = prompts.map(|prompt| prompt + "\n").collect();
        let content = self.run(file.path, &prompts.join("\n"), file.cancel)?;
        if content.is_empty() {
            let why = format!("it printed nothing for {}", shown(file.path.as_bytes()));
            return Err(self.failed(Errno::IO, &why));
        }
        Ok(Made { content, ..Made::default() })
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
        generator.run(path, prompt, cancel)
    }

    fn run(text: &str, path: &str, prompt: &str) -> Result<Vec<u8>> {
        run_until(&Cancel::default(), text, path, prompt)
    }

    #[test]
    fn a_malformed_definition_is_refused_by_file_line_and_field() {
        for (text, said) in [
            ("name = 'a'\ncommand = ['b']\ncolour = 1", "g.toml:3"),
            ("name = 'a'", "command"),
            ("name = 'a b'\ncommand = ['b']", "field `name`"),
            ("name = 'a'\ncommand = []", "field `command`"),
            ("name = 'a'\ncommand = ['b']\ntimeout-seconds = 0", "field `timeout-seconds`"),
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
        let dir = tempfile::tempdir().unwrap();
        let (pids, begun) = (dir.path().join("pids"), Instant::now());
        let script = format!("sleep 1000 & echo $$ $! > {}; sleep 1000", pids.display());
        let hangs = format!("name = 'a'\ncommand = ['sh', '-c', '{script}']\ntimeout-seconds = 1");
        let error = run(&hangs, "/x", "").unwrap_err();
        assert_eq!(error.errno, Errno::TIMEDOUT);
        assert!(begun.elapsed() < Duration::from_secs(20));
        for pid in std::fs::read_to_string(pids).unwrap().split_whitespace() {
            // Init reaps the processes that the shell has left behind.
            while Path::new("/proc").join(pid).exists() {
                assert!(begun.elapsed() < Duration::from_secs(20), "{pid}");
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
