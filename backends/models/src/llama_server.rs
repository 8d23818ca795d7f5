//! A `llama-server` of our own: found, started on a loopback port, and ended with us.

use std::ffi::OsString;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::gguf::SMOLLM2;

/// The variable that names a `llama-server`.
const SERVER_VARIABLE: &str = "CTXBENCH_LLAMA_SERVER";

/// The variable that names a model file.
const MODEL_VARIABLE: &str = "CTXBENCH_MODEL";

/// Where `make model` puts both, below a `target` directory.
const BELOW_TARGET: &str = "model";

/// How long a model may take to load.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often a server that is loading is asked.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Tokens of request and answer together.
const CONTEXT: u32 = 4096;

/// Lines of a log that are shown.
const SHOWN_LINES: usize = 6;

/// Why there is no local model.
#[derive(Debug, thiserror::Error)]
pub enum LlamaServerError {
    /// The server or the model is not installed.
    #[error(
        "{what} is not installed: {looked}\n  fix: `make model` (about five minutes, once), or set {variable}"
    )]
    NotInstalled {
        /// What is missing.
        what: &'static str,
        /// Where it was looked for.
        looked: String,
        /// What names another one.
        variable: &'static str,
    },
    /// It cannot be started.
    #[error("cannot start {}: {error}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It ended while it loaded the model.
    #[error("llama-server ended before it was ready ({status}); it said:\n{last_words}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        last_words: String,
    },
    /// It does not become ready.
    #[error("llama-server was not ready within {} s; it said:\n{last_words}", PATIENCE.as_secs())]
    NotReady {
        /// The end of its log.
        last_words: String,
    },
}

/// The `llama-server` to be used: the one that `CTXBENCH_LLAMA_SERVER` names, that of `make model`, or one on the PATH.
///
/// # Errors
/// [`LlamaServerError::NotInstalled`].
pub fn find_llama_server() -> Result<PathBuf, LlamaServerError> {
    find(
        "llama-server",
        SERVER_VARIABLE,
        "llama-server/llama-server",
        true,
    )
}

/// The model to be used unless another is named: the one that `CTXBENCH_MODEL` names, or that of `make model`.
///
/// # Errors
/// [`LlamaServerError::NotInstalled`].
pub fn find_model() -> Result<PathBuf, LlamaServerError> {
    find(SMOLLM2.0, MODEL_VARIABLE, SMOLLM2.0, false)
}

fn find(
    what: &'static str,
    variable: &'static str,
    below: &str,
    is_program: bool,
) -> Result<PathBuf, LlamaServerError> {
    let is_there = |path: &Path| {
        path.metadata().is_ok_and(|file| {
            file.is_file() && (!is_program || file.permissions().mode() & 0o111 != 0)
        })
    };
    let not_installed = |looked| LlamaServerError::NotInstalled {
        what,
        looked,
        variable,
    };
    // Who names one means that one, and no other.
    if let Some(named) = std::env::var_os(variable).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        if is_there(&named) {
            return Ok(named);
        }
        let looked = format!("{variable} names {}, which is not there", named.display());
        return Err(not_installed(looked));
    }
    let mut places: Vec<PathBuf> = targets()
        .into_iter()
        .map(|target| target.join(BELOW_TARGET).join(below))
        .collect();
    if is_program {
        let path = std::env::var_os("PATH").unwrap_or_default();
        places.extend(std::env::split_paths(&path).map(|dir| dir.join(what)));
    }
    places
        .into_iter()
        .find(|place| is_there(place))
        .ok_or_else(|| not_installed(format!("there is no target/{BELOW_TARGET}/{below}")))
}

/// The `target` directories in which our scripts install things.
fn targets() -> Vec<PathBuf> {
    let here = std::env::current_dir().map(|here| here.join("target"));
    let mut targets: Vec<PathBuf> = here.into_iter().collect();
    if let Ok(program) = std::env::current_exe() {
        let above = program.ancestors().filter(|path| path.ends_with("target"));
        targets.extend(above.map(Path::to_owned));
    }
    targets
}

/// A running server; ended when dropped.
#[derive(Debug)]
pub struct LlamaServer {
    process: Child,
    port: u16,
    load_time: Duration,
}

/// A home that is not there: the server must not look for settings or models of its user's.
const NO_HOME: &str = "/nonexistent";

/// `program` with an environment that holds no key.
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
    /// Loads a model and waits until it answers. One thread works on one request at a time: on a busy machine
    /// more of them only wait for each other.
    ///
    /// `launcher` is put before program and arguments, so that the server ends however this process does.
    ///
    /// # Errors
    /// [`LlamaServerError`], with what the server said.
    pub fn start(
        program: &Path,
        model: &Path,
        launcher: &[OsString],
    ) -> Result<Self, LlamaServerError> {
        let failed = |error| LlamaServerError::Start {
            program: program.to_owned(),
            error,
        };
        let started = Instant::now();
        // A file without a name: nothing is left of it, however this process ends.
        let mut log = tempfile::tempfile().map_err(failed)?;
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
            // One file with one position: both add to it.
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log.try_clone().map_err(failed)?);
        let process = command.spawn().map_err(failed)?;
        let mut server = Self {
            process,
            port,
            load_time: Duration::ZERO,
        };
        let mut last_words = || {
            let mut said = Vec::new();
            // What cannot be read is not shown.
            let _ = log
                .seek(SeekFrom::Start(0))
                .and_then(|_| log.read_to_end(&mut said));
            let log = String::from_utf8_lossy(&said).into_owned();
            let lines: Vec<&str> = log.trim().lines().collect();
            lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
        };
        while !is_healthy(port) {
            if let Some(status) = server.process.try_wait().map_err(failed)? {
                return Err(LlamaServerError::Ended {
                    status,
                    last_words: last_words(),
                });
            }
            if started.elapsed() > PATIENCE {
                return Err(LlamaServerError::NotReady {
                    last_words: last_words(),
                });
            }
            std::thread::sleep(ASK_EVERY);
        }
        server.load_time = started.elapsed();
        Ok(server)
    }

    /// What a client of it needs: `http://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// From its start to its first answer.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What `program` says its version is.
    pub fn version(program: &Path) -> Option<String> {
        let asked = command(program.as_os_str()).arg("--version").output();
        let output = asked.ok()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let line = said.lines().find(|line| line.contains("version"))?;
        Some(line.trim().trim_start_matches("version:").trim().to_owned())
    }
}

impl Drop for LlamaServer {
    fn drop(&mut self) {
        // It holds nothing that could be lost. An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether the server says that it can answer.
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
mod tests {
    use super::*;

    /// A program that says whether it was told what cargo tells this test.
    fn program(dir: &Path, more: &str) -> PathBuf {
        let path = dir.join("llama-server");
        let script = format!(
            "#!/bin/sh\necho \"version: ${{CARGO_MANIFEST_DIR:-clean}} in $HOME\"\n{more}\n"
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
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
        assert!(
            said.contains("clean in /nonexistent\nno such model"),
            "{said}"
        );
    }
}
