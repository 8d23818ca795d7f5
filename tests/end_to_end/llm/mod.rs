//! Files that a model generates, over real mounts.
//!
//! The model is simulated, except in one test that runs the local model if `make model` has installed it.

mod budget;
mod failures;
mod full_disk;
mod generator;
mod history;
#[path = "../../../backends/tests/stores/common/oracle.rs"]
mod oracle;
mod questions;
mod recording;
mod runs;
mod settings;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Mount, Scratch, can_mount, ctxbench, installed, said, sh, text_of, words};
use models::{Behaviour, FakeServer};
use rustix::fs::getxattr;

const KEY: &str = "sk-this-must-never-be-seen";

const TREE: &str = r#"{"entries":[
    {"path":"src/main.py","kind":"file","about":"prints hello"},
    {"path":"src/util.py","kind":"file"},
    {"path":"a.txt","kind":"file"},{"path":"b.txt","kind":"file"},{"path":"c.txt","kind":"file"},
    {"path":"d.txt","kind":"file"},{"path":"e.txt","kind":"file"},{"path":"f.txt","kind":"file"},
    {"path":"g.txt","kind":"file"},
    {"path":"latest","kind":"symlink","target":"src/main.py"}
]}"#;

struct Lab {
    scratch: Scratch,
    server: FakeServer,
}

/// Writes a suite that only measures model files.
fn model_suite(dir: &Path, how_much: &str) -> PathBuf {
    let file = dir.join("model-suite.toml");
    let head =
        "essay = 'A test of files that a model makes up, and nothing else, as small as it can be and still ask.'";
    let text = format!("{head}\npolicy = 'none'\nbackends = ['direct']\n[model_files]\n{how_much}");
    std::fs::write(&file, text).unwrap();
    file
}

/// A lab whose model answers every question; `None` where tests cannot mount.
fn answering() -> Option<Lab> {
    can_mount().then(|| Lab::new(vec![Behaviour::Answer]))
}

/// As [`answering`], with a model that behaves so.
fn behaving(behaviour: Behaviour) -> Option<Lab> {
    can_mount().then(|| Lab::new(vec![behaviour]))
}

/// As [`answering`], with a model that always says the same.
fn saying(text: &str) -> Option<Lab> {
    behaving(Behaviour::Say(text.to_owned()))
}

impl Lab {
    fn new(script: Vec<Behaviour>) -> Self {
        let scratch = Scratch::new();
        std::fs::write(scratch.path().join("tree.json"), TREE).unwrap();
        let server = FakeServer::start(script).unwrap();
        Self { scratch, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Measures the server's model on one short history, into `out`.
    fn model_files(&self, out: &Path, more: &[&str]) -> Output {
        let how_much = "lengths = [1]\nhistories = 1\nreads = 3\n";
        let mut command = ctxbench(["run", "--suite"]);
        command.arg(model_suite(self.scratch.path(), how_much));
        command.arg("--scratch-dir").arg(self.scratch.path());
        command.arg("--out").arg(out).args(more);
        self.ask_server(&mut command).output().unwrap()
    }

    /// Lets a command ask the simulated model.
    fn ask_server<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let url = self.server.base_url();
        let options = format!("--base-url {url} --model simulated");
        command.args(words(&options)).env("CTXBENCH_API_KEY", KEY)
    }

    fn command(&self, backend: &str, more: &[&str]) -> Command {
        let dir = self.path("mnt");
        // A dead mount exists and cannot be accessed.
        let _ = std::fs::create_dir(&dir);
        let mut command = ctxbench(["mount", backend]);
        self.ask_server(command.arg(&dir)).args(more);
        if backend == "llm-generate" {
            command.arg("--cache-folder").arg(self.path("cache"));
        }
        command
    }

    fn mount(&self, backend: &str, more: &[&str]) -> Mount {
        Mount::of(self.command(backend, more), &self.path("mnt"))
    }

    fn generate(&self, more: &[&str]) -> Mount {
        let tree = self.path("tree.json").display().to_string();
        let mut all = vec!["--tree", &tree];
        all.extend(more);
        self.mount("llm-generate", &all)
    }

    fn log(&self) -> String {
        text_of(self.scratch.path(), "mnt.llmfs.log")
    }
}

/// The error number of a read.
#[track_caller]
fn errno(path: &Path) -> Option<i32> {
    std::fs::read(path).unwrap_err().raw_os_error()
}

/// Whether the local model and its server are installed. `CTXBENCH_REQUIRE_MODEL` makes it a failure if not.
fn has_local_model() -> bool {
    let is_there = models::find_model().is_ok() && models::find_llama_server().is_ok();
    let found = is_there.then_some(()).ok_or("no local model: make model");
    installed(found, "CTXBENCH_REQUIRE_MODEL").is_some()
}

fn set_xattr(path: &Path, name: &str, value: &str) -> rustix::io::Result<()> {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, name, value.as_bytes(), flags)
}

fn xattr(path: &Path, name: &str) -> String {
    let mut value = [0; 4096];
    let length = getxattr(path, name, &mut value).unwrap();
    String::from_utf8_lossy(&value[..length]).into_owned()
}
