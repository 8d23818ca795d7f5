//! Mounts whose standard error is an unread or closed pipe.

use std::fs::{self, File};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use fuse::{ControlCommand, ask};

use crate::common::{
    Mount, Scratch, can_mount, ctxbench, embedded, mountable, mounts_under, set_server, signal, wait_for,
};
use models::{Behaviour, FakeServer};

const OPENS: usize = 10_000;
const FILES: usize = 100;

/// `fuser` logs every request at this level: about a megabyte for all opens. A pipe holds 64 KiB.
const TALKATIVE: &str = "debug";

const TREE: &str = r#"{"entries":[{"path":"a.txt","kind":"file"}]}"#;

#[derive(Clone, Copy, Debug)]
enum Stderr {
    Unread,
    Closed,
}

/// The command of a mount with a control socket, and its files.
struct Case {
    scratch: Scratch,
    command: Command,
    files: Files,
}

/// The files that the test opens.
enum Files {
    /// Created by the test in this directory of the mount.
    Made(&'static str),
    Existing(&'static [&'static str]),
}

impl Case {
    fn new(backend: &str, options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let mut command = ctxbench(["mount", backend]);
        command.arg(scratch.dir("mnt")).args(options);
        command.arg("--control").arg(scratch.path().join("control")).env_remove("CTXBENCH_LOG");
        Self { scratch, command, files: Files::Made("") }
    }

    /// Opens files 10,000 times, calls `isatty` on each, and ends the mount.
    fn open_files_and_end(mut self, stderr: Stderr, level: Option<&str>) {
        let what = format!("{:?}, {stderr:?}, {level:?}", self.command);
        if let Some(level) = level {
            self.command.env("CTXBENCH_LOG", level);
        }
        let dir = self.scratch.path().join("mnt");
        let control = self.scratch.path().join("control");
        // Standard output and standard error are pipes that the test does not read.
        let mut mount = Mount::of(self.command, &dir);
        if matches!(stderr, Stderr::Closed) {
            drop(mount.process.stderr.take());
        }
        let files = self.files;
        let (done, opened) = channel();
        std::thread::spawn(move || {
            open_many(&dir, &files);
            done.send(())
        });
        if let Err(error) = opened.recv_timeout(Duration::from_secs(300)) {
            mount.process.kill().unwrap();
            panic!("{what}: opening files: {error}");
        }
        let counters = ask(&control, ControlCommand::Counters).unwrap();
        assert!(counters.fuse["ioctl"].count >= OPENS as u64, "{what}");
        let drops = counters.log_lines_dropped > 0;
        assert_eq!(drops, level.is_some(), "{what}");
        a_panic_is_survived(&mount.dir, &control);
        end(mount, &what);
    }
}

/// Makes the daemon panic, which it also reports on standard error.
fn a_panic_is_survived(dir: &Path, control: &Path) {
    ask(control, ControlCommand::PanicNext).unwrap();
    // A program that scans all mounts may meet the panic instead.
    let _ = fs::metadata(dir.join("never-seen"));
    fs::read_dir(dir).unwrap().for_each(drop);
}

fn open_many(dir: &Path, files: &Files) {
    let paths: Vec<PathBuf> = match files {
        Files::Existing(names) => names.iter().map(|name| dir.join(name)).collect(),
        Files::Made(below) => {
            let paths = (0..FILES).map(|number| dir.join(below).join(format!("file-{number}")));
            let paths: Vec<_> = paths.collect();
            paths.iter().for_each(|path| fs::write(path, "").unwrap());
            paths
        }
    };
    const ENOTTY: i32 = 25;
    for path in paths.iter().cycle().take(OPENS) {
        // The same call as Python's `open` makes.
        assert!(!File::open(path).unwrap().is_terminal());
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(ENOTTY), "{}", path.display());
    }
}

/// Ends the mount with SIGINT.
fn end(mut mount: Mount, what: &str) {
    signal(&mount.process, rustix::process::Signal::INT);
    let has_ended = || mount.process.try_wait().unwrap().is_some();
    wait_for(what, has_ended);
    let status = mount.process.wait().unwrap();
    assert!(status.success(), "{what}: {status}");
    wait_for("the mount to leave the tree", || mounts_under(&mount.dir).is_empty());
}

fn never_waits(case: impl Fn() -> Case) {
    for level in [None, Some(TALKATIVE)] {
        case().open_files_and_end(Stderr::Unread, level);
    }
}

#[test]
fn a_local_mount_never_waits_for_its_log() {
    if !can_mount() {
        return;
    }
    never_waits(|| Case::new("memory", &[]));
    never_waits(|| Case::new("sqlite", &[]));
    never_waits(|| Case::new("sqlite", &["--writeback"]));
    never_waits(|| Case { files: Files::Existing(&["d/f0000", "d/f0001"]), ..Case::new("null", &[]) });
    never_waits(|| Case {
        files: Files::Made("memory/shared"),
        ..Case::new("agent-memory", &["--agent-id", "alice", "--embeddings", "none"])
    });
}

#[test]
fn an_s3_mount_never_waits_for_its_log() {
    let Some(scratch) = mountable() else { return };
    let (_runtime, _server, access) = embedded(&scratch.dir("server"), servers::Quirk::None);
    for (agent, level) in [("alice", None), ("bob", Some(TALKATIVE))] {
        let mut case = Case::new("s3", &["--agent-id", agent, "--endpoint", &access.endpoint]);
        // The option precedes the variable.
        let [key, secret] = [&access.access_key, &access.secret_key];
        set_server(&mut case.command, "http://127.0.0.1:9", key, secret);
        case.open_files_and_end(Stderr::Unread, level);
    }
}

#[test]
fn a_mount_with_a_model_never_waits_for_its_log() {
    if !can_mount() {
        return;
    }
    let server = FakeServer::start(vec![Behaviour::Answer]).unwrap();
    let url = server.base_url();
    let model = ["--base-url", &url, "--model", "simulated"];
    never_waits(|| Case::new("llm-history", &model));
    never_waits(|| {
        let mut case = Case { files: Files::Existing(&["a.txt"]), ..Case::new("llm-generate", &model) };
        let path = |name: &str| case.scratch.path().join(name);
        let (tree, cache) = (path("tree.json"), path("cache"));
        fs::write(&tree, TREE).unwrap();
        case.command.arg("--tree").arg(tree);
        case.command.arg("--cache-folder").arg(cache);
        case
    });
}

#[test]
fn a_mount_survives_the_close_of_its_standard_error() {
    if !can_mount() {
        return;
    }
    for backend in ["memory", "sqlite"] {
        Case::new(backend, &[]).open_files_and_end(Stderr::Closed, Some(TALKATIVE));
    }
}
