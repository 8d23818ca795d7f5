//! The language model that the workspaces of one process share.
//!
//! It is a `llama-server` (started at first use, ended by `Services::stop`), an external server, or a recording.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use fuse::cpu;
use inputs::{sha256, variable};
use models::{Cassette, LlamaServer, Model, Pace, check_gguf, find_llama_server, find_model, sha256_of};
use parking_lot::Mutex;

use crate::backend::{Unavailable, Versions};

/// The variable with the URL of an OpenAI-compatible server, for the `-given` backends.
pub const SERVER: &str = "CTXBENCH_MODEL_URL";

/// The variable with the name of that server's model.
pub const SERVER_MODEL: &str = "CTXBENCH_MODEL_NAME";

/// The variable with the path of a file that records a run's live answers.
pub const RECORD: &str = "CTXBENCH_MODEL_RECORD";

/// The shipped recording: SmolLM2-135M's answers to the reads of [`RECORDED`], and to the requests
/// that a run of the default suite makes after its cells.
pub const RECORDING: &str = include_str!("../../../models/cassettes/run.jsonl");

/// The workloads whose reads the recording answers, by name and SHA-256. Workloads without reads need
/// no entry.
pub const RECORDED: &[(&str, &str)] =
    &[("agent/shortened", "68b22d005ab25daf7a09cf91319ad1d003368af534ad99f12afc6538a7b3a814")];

/// The source of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// A local model in a `llama-server` that we start.
    Local,
    /// The external server at [`SERVER`].
    Given,
    /// The shipped recording.
    Recorded,
    /// The scripted provider of a `ctxbench fault` scenario.
    Scripted,
}

impl Answers {
    /// Parses the end of a backend's name; an empty one is [`Answers::Local`].
    pub fn of_suffix(suffix: &str) -> Option<Self> {
        match suffix {
            "" | "-live" => Some(Self::Local),
            "-given" => Some(Self::Given),
            "-recorded" => Some(Self::Recorded),
            "-scripted" => Some(Self::Scripted),
            _ => None,
        }
    }

    /// The inverse of [`Answers::of_suffix`]. It is never empty, so that answers of different sources are
    /// different arms.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Local => "-live",
            Self::Given => "-given",
            Self::Recorded => "-recorded",
            Self::Scripted => "-scripted",
        }
    }

    /// The source of answers, for a description.
    pub fn words(self) -> &'static str {
        match self {
            Self::Local => "live answers of a local model in a llama-server",
            Self::Given => "answers of the server at $CTXBENCH_MODEL_URL, live unless its model is called simulated",
            Self::Recorded => "recorded answers, replayed at the recorded speed",
            Self::Scripted => "simulated answers of a provider that a fault scenario starts",
        }
    }

    /// The requirements of the machine.
    pub fn need(self) -> &'static str {
        match self {
            Self::Local => "a GGUF file and a llama-server, to generate the content of files",
            Self::Given => "behind $CTXBENCH_MODEL_URL, to generate the content of files",
            Self::Recorded => "during the recording; none now",
            Self::Scripted => "none: a fault scenario scripts the answers",
        }
    }

    /// The model, and the program that runs it.
    ///
    /// # Errors
    /// [`Unavailable`] names the missing part.
    pub fn versions(self, local: &LocalModel) -> Result<Versions, Unavailable> {
        match self {
            Self::Local => local.installed().map(|local| local.versions.clone()),
            Self::Given => {
                let (url, model) = given()?;
                let origin = match model.as_str() {
                    "simulated" => "simulated",
                    _ => "live",
                };
                let server = models::without_secrets(&url);
                Ok(versions(origin, [("model", model), ("model server", server)]))
            }
            Self::Scripted => Ok(versions("simulated", [])),
            Self::Recorded => {
                let cassette = recording()?;
                let more = [
                    ("model", cassette.name().to_owned()),
                    ("recorded on", cassette.engine().to_owned()),
                    ("recording sha256", sha256(RECORDING)),
                ];
                Ok(versions("recorded", more))
            }
        }
    }

    /// Why this source cannot answer a workload's reads; `None` if it may.
    pub fn unsupported_reason(self, workload: &str, sha256: &str) -> Option<String> {
        let is_known = self != Self::Recorded || RECORDED.contains(&(workload, sha256));
        (!is_known).then(|| {
            format!(
                "the recording has no answers for the reads of {workload} (fix: install a live model with `make model`)"
            )
        })
    }

    /// The options of `ctxbench mount` that select this source; starts a required server.
    ///
    /// `program` is the `ctxbench` binary, `dir` the workspace's directory.
    pub fn arguments(self, local: &LocalModel, program: &Path, dir: &Path) -> io::Result<Vec<OsString>> {
        Ok(match self {
            Self::Local => {
                let Endpoint { url, model } = local.shared(program)?;
                let mut words: Vec<OsString> = ["--provider=local", "--parallel=1"].map(Into::into).into();
                words.push(format!("--base-url={url}").into());
                words.push(format!("--model={model}").into());
                if let Some(file) = std::env::var_os(RECORD).filter(|file| !file.is_empty()) {
                    words.extend(["--record".into(), file]);
                }
                words
            }
            Self::Given => {
                let (url, model) = given().map_err(io::Error::other)?;
                vec!["--provider=openai".into(), format!("--base-url={url}").into(), format!("--model={model}").into()]
            }
            Self::Scripted => {
                let message = "only a scenario of `ctxbench fault` has a scripted provider";
                return Err(io::Error::other(message));
            }
            Self::Recorded => {
                let cassette = dir.join("recording.jsonl");
                std::fs::write(&cassette, RECORDING)?;
                // The recorded latencies are of one request at a time.
                let words = ["--provider=cassette", "--parallel=1", "--cassette"];
                let mut words: Vec<OsString> = words.map(Into::into).into();
                words.push(cassette.into());
                words
            }
        })
    }
}

fn versions<const N: usize>(answers: &str, more: [(&str, String); N]) -> Versions {
    let more = more.map(|(what, is)| (what.to_owned(), is));
    let answers = [("answers".to_owned(), answers.to_owned())];
    answers.into_iter().chain(more).collect()
}

fn recording() -> Result<Cassette, Unavailable> {
    let path = Path::new("backends/models/cassettes/run.jsonl");
    Cassette::parse(path, RECORDING, Pace::AsRecorded)
        .map_err(|error| Unavailable { reason: error.to_string(), fix: "make model".to_owned() })
}

fn given() -> Result<(String, String), Unavailable> {
    let given = |name: &str| {
        variable(name).ok_or_else(|| Unavailable {
            reason: format!("{name} is not set"),
            fix: format!("set {SERVER} as in http://127.0.0.1:11434/v1, and {SERVER_MODEL}"),
        })
    };
    Ok((given(SERVER)?, given(SERVER_MODEL)?))
}

/// The installed model, and the server that runs it once it was needed.
#[derive(Debug, Default)]
pub struct LocalModel {
    /// Searched once, because the checksum of a model takes long.
    installed: OnceLock<Result<Installation, Unavailable>>,
    running: Mutex<Option<ServerHandle>>,
}

/// The installed model and server.
#[derive(Clone, Debug)]
struct Installation {
    model: PathBuf,
    program: PathBuf,
    versions: Versions,
}

/// How a workspace reaches the shared server.
#[derive(Clone, Debug)]
struct Endpoint {
    url: String,
    model: String,
}

#[derive(Debug)]
struct ServerHandle {
    shared: Endpoint,
    /// Dropping it ends the server.
    stop: Sender<()>,
    keeper: JoinHandle<()>,
}

impl LocalModel {
    fn installed(&self) -> Result<&Installation, Unavailable> {
        let found = self.installed.get_or_init(look);
        found.as_ref().map_err(Clone::clone)
    }

    fn shared(&self, program: &Path) -> io::Result<Endpoint> {
        let mut running = self.running.lock();
        if let Some(running) = &*running {
            return Ok(running.shared.clone());
        }
        let local = self.installed().map_err(io::Error::other)?.clone();
        let model = name_of(&local.model);
        let launcher = servers::bound_to_this_process(program);
        let (started, start) = channel();
        let (stop, stopped) = channel();
        // The kernel ends the server with the thread that started it, so a block's thread must not start it.
        let keeper = std::thread::spawn(move || keep(&local, &launcher, &started, &stopped));
        let url = match start.recv() {
            Ok(Ok(url)) => url,
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(io::Error::other("llama-server was not started")),
        };
        let shared = Endpoint { url, model };
        *running = Some(ServerHandle { shared: shared.clone(), stop, keeper });
        Ok(shared)
    }

    pub(super) fn stop(&self) {
        let Some(ServerHandle { stop, keeper, .. }) = self.running.lock().take() else {
            return;
        };
        drop(stop);
        if keeper.join().is_err() {
            tracing::warn!("the thread that kept the llama-server panicked");
        }
    }
}

fn look() -> Result<Installation, Unavailable> {
    let missing = |error: &dyn std::error::Error| {
        let said = error.to_string();
        let (reason, fix) = said.split_once("\n  fix: ").unwrap_or((&said, "make model"));
        Unavailable { reason: reason.to_owned(), fix: fix.to_owned() }
    };
    let model = find_model().map_err(|error| missing(&error))?;
    let program = find_llama_server().map_err(|error| missing(&error))?;
    check_gguf(&model, None).map_err(|error| missing(&error))?;
    let sha256 = sha256_of(&model).map_err(|error| missing(&error))?;
    let version = LlamaServer::version(&program).ok_or_else(|| Unavailable {
        reason: format!("{} does not say its version", program.display()),
        fix: "make model".to_owned(),
    })?;
    let name = name_of(&model);
    let more = [("llama-server", version), ("model", name), ("model sha256", sha256)];
    let versions = versions("live", more);
    Ok(Installation { model, program, versions })
}

fn name_of(model: &Path) -> String {
    let stem = model.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// Starts the server, sends its URL to `started`, and keeps it until `stopped` is closed.
fn keep(local: &Installation, launcher: &[OsString], started: &Sender<io::Result<String>>, stopped: &Receiver<()>) {
    // The thread that needs the server first may be bound to the measured processor.
    let server = cpu::unpin()
        .and_then(|()| LlamaServer::start(&local.program, &local.model, launcher).map_err(io::Error::other));
    match server {
        Ok(server) => {
            // An error means that the receiver is gone: then `stopped` is closed, too.
            let _ = started.send(Ok(server.base_url()));
            let _ = stopped.recv();
        }
        Err(error) => {
            let _ = started.send(Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_with_what_answers() {
        for suffix in ["-live", "-given", "-recorded"] {
            assert_eq!(Answers::of_suffix(suffix).unwrap().suffix(), suffix);
        }
        assert_eq!(Answers::of_suffix(""), Some(Answers::Local));
        assert_eq!(Answers::of_suffix("-simulated"), None);
        assert_eq!(Answers::of_suffix("live"), None);
    }

    #[test]
    fn a_recording_takes_part_only_where_it_has_answers() {
        let lacks = Answers::Recorded.unsupported_reason("agent/other", "0").unwrap();
        assert!(lacks.contains("agent/other") && lacks.contains("make model"));
        assert_eq!(Answers::Local.unsupported_reason("agent/other", "0"), None);
        for (workload, sha256) in RECORDED {
            assert_eq!(Answers::Recorded.unsupported_reason(workload, sha256), None);
            assert!(Answers::Recorded.unsupported_reason(workload, "another").is_some());
        }
    }

    #[test]
    fn the_recording_says_whose_answers_it_has() {
        let versions = Answers::Recorded.versions(&LocalModel::default()).unwrap();
        assert_eq!(versions["answers"], "recorded");
        assert_eq!(versions["model"], "SmolLM2-135M-Instruct.Q4_1");
        assert!(versions["recorded on"].contains("llama-server"));
        assert_eq!(versions["recording sha256"].len(), 64);
    }
}
