//! A local `llama-server`: its installation, start on a loopback port, and end with this process.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use processes::{ChildProcess, head, last_lines};

use crate::gguf::SMOLLM2;

/// The variable with the path of a `llama-server`.
const SERVER_VARIABLE: &str = "CTXBENCH_LLAMA_SERVER";

/// The variable with the path of a model file.
const MODEL_VARIABLE: &str = "CTXBENCH_MODEL";

const PROGRAM: &str = "llama-server";

/// Where `make model` installs both, below a `target` directory.
const BELOW_TARGET: &str = "model";

/// How long a model may take to load.
const PATIENCE: Duration = Duration::from_secs(120);

/// Poll interval for a server that loads its model.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Maximum tokens of request and answer together.
const CONTEXT: u32 = 4096;

/// Number of log lines in an error.
const SHOWN_LINES: usize = 6;

/// The most of a log that is read, in bytes.
const LOG_BYTES: u64 = 16 << 20;

/// Why there is no local model.
#[derive(Debug, thiserror::Error)]
pub enum LlamaServerError {
    /// The server or the model is not installed.
    #[error("{what} is not installed: {looked}\n  fix: `make model` (about five minutes, once), or set {variable}")]
    NotInstalled {
        /// The missing part.
        what: &'static str,
        /// The searched places.
        looked: String,
        /// The variable that selects another one.
        variable: &'static str,
    },
    /// The program cannot be started.
    #[error("cannot start {}: {error}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The server ended while it loaded the model.
    #[error("llama-server ended before it was ready ({status}); its last output:\n{last_words}")]
    Ended {
        /// Its exit status.
        status: ExitStatus,
        /// The end of its log.
        last_words: String,
    },
    /// The server did not become ready in time.
    #[error("llama-server was not ready within {} s; its last output:\n{last_words}", PATIENCE.as_secs())]
    NotReady {
        /// The end of its log.
        last_words: String,
    },
}

/// Finds `llama-server`: at `CTXBENCH_LLAMA_SERVER`, else as installed by `make model`, else on the `PATH`.
///
/// # Errors
/// [`LlamaServerError::NotInstalled`].
pub fn find_llama_server() -> Result<PathBuf, LlamaServerError> {
    let below = format!("{BELOW_TARGET}/{PROGRAM}");
    let installed = || inputs::find_program(PROGRAM, &below);
    find(PROGRAM, SERVER_VARIABLE, inputs::is_program, installed)
}

/// Finds the default model: at `CTXBENCH_MODEL`, else as installed by `make model`.
///
/// # Errors
/// [`LlamaServerError::NotInstalled`].
pub fn find_model() -> Result<PathBuf, LlamaServerError> {
    let installed = || {
        let targets = inputs::targets().into_iter();
        let mut places = targets.map(|target| target.join(BELOW_TARGET).join(SMOLLM2.0));
        places.find(|place| place.is_file())
    };
    find(SMOLLM2.0, MODEL_VARIABLE, Path::is_file, installed)
}

fn find(
    what: &'static str,
    variable: &'static str,
    is_there: impl Fn(&Path) -> bool,
    installed: impl FnOnce() -> Option<PathBuf>,
) -> Result<PathBuf, LlamaServerError> {
    // An explicit path has no fallback.
    let (found, looked) = match std::env::var_os(variable).filter(|named| !named.is_empty()) {
        Some(named) => {
            let named = PathBuf::from(named);
            let looked = format!("{variable} names {}, which does not exist", named.display());
            (Some(named).filter(|named| is_there(named)), looked)
        }
        None => (installed(), format!("there is none in target/{BELOW_TARGET}")),
    };
    found.ok_or(LlamaServerError::NotInstalled { what, looked, variable })
}

/// A running server; ended when dropped.
#[derive(Debug)]
pub struct LlamaServer {
    process: ChildProcess,
    port: u16,
    load_time: Duration,
}

/// A home that does not exist, so that the server finds no settings or models of the user.
const NO_HOME: &str = "/nonexistent";

/// `program` with a minimal environment, which holds no key.
fn command(program: &std::ffi::OsStr) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", NO_HOME)
        .stdin(Stdio::null());
    command
}

impl LlamaServer {
    /// Loads a model and waits until the server is ready.
    ///
    /// It answers one request at a time on one thread, because more threads slow each other down on a busy
    /// machine. `launcher` precedes program and arguments; it ends the server even if this process is killed.
    ///
    /// # Errors
    /// [`LlamaServerError`], with the end of the server's log.
    pub fn start(program: &Path, model: &Path, launcher: &[OsString]) -> Result<Self, LlamaServerError> {
        let failed = |error| LlamaServerError::Start { program: program.to_owned(), error };
        let started = Instant::now();
        // An unnamed file leaves nothing behind, even if this process is killed.
        let log = tempfile::tempfile().map_err(failed)?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .map_err(failed)?
            .port();
        let mut words = launcher.to_vec();
        words.push(program.into());
        let mut command = command(&words[0]);
        command
            .args(&words[1..])
            .arg("-m")
            .arg(model)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--device", "none", "-t", "1", "-np", "1", "--no-webui"])
            .args(["-c", &CONTEXT.to_string()])
            // Both share one file position, so that they append to each other.
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log.try_clone().map_err(failed)?);
        // The server holds no state, and needs no time to end.
        let process = ChildProcess::start(&mut command, Duration::ZERO).map_err(failed)?;
        let mut server = Self { process, port, load_time: Duration::ZERO };
        // An unreadable log is left out of the error.
        let last_words = || {
            let said = log.try_clone().and_then(|log| head(log, LOG_BYTES));
            last_lines(&said.unwrap_or_default(), SHOWN_LINES)
        };
        while !is_healthy(port) {
            if let Some(status) = server.process.ended().map_err(failed)? {
                return Err(LlamaServerError::Ended { status, last_words: last_words() });
            }
            if started.elapsed() > PATIENCE {
                return Err(LlamaServerError::NotReady { last_words: last_words() });
            }
            std::thread::sleep(ASK_EVERY);
        }
        server.load_time = started.elapsed();
        Ok(server)
    }

    /// The base URL for a client: `http://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Time from its start to its first successful health check.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The version that `program --version` prints.
    pub fn version(program: &Path) -> Option<String> {
        let asked = command(program.as_os_str()).arg("--version").output();
        let output = asked.ok()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let line = said.lines().find(|line| line.contains("version"))?;
        Some(line.trim().trim_start_matches("version:").trim().to_owned())
    }
}

/// Whether the server's health check succeeds.
fn is_healthy(port: u16) -> bool {
    let ask = || -> io::Result<bool> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut stream = TcpStream::connect_timeout(&address, ASK_EVERY)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.take(4096).read_to_end(&mut answer)?;
        Ok(answer.starts_with(b"HTTP/1.") && answer.windows(4).any(|four| four == b" 200"))
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
#[path = "../../../tests/executable.rs"]
mod executable;

#[cfg(test)]
mod tests {
    use super::executable::write_executable;
    use super::*;

    /// A program that prints whether it inherited cargo's environment from this test.
    fn program(dir: &Path, more: &str) -> PathBuf {
        let path = dir.join("llama-server");
        let script = format!("#!/bin/sh\necho \"version: ${{CARGO_MANIFEST_DIR:-clean}} in $HOME\"\n{more}\n");
        write_executable(&path, &script);
        path
    }

    #[test]
    fn a_server_is_told_nothing_of_our_environment_and_its_last_words_are_shown() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let dir = tempfile::tempdir().unwrap();
        let version = LlamaServer::version(&program(dir.path(), ""));
        assert_eq!(version.as_deref(), Some("clean in /nonexistent"));
        let failing = program(dir.path(), "echo 'no such model' >&2; exit 3");
        let error = LlamaServer::start(&failing, Path::new("m.gguf"), &[]).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("clean in /nonexistent\nno such model"), "{said}");
    }
}
