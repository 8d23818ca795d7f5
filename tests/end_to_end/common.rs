//! Shared parts of the end-to-end tests: running the binary, mounting, inspecting mounts.

#[path = "../../backends/tests/stores/common/shared.rs"]
mod shared;

#[path = "../executable.rs"]
mod executable;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use object_store::aws::AmazonS3;
use rustix::process::{Pid, Signal, kill_process};
use servers::{Announcement, ServerAccess};

pub use executable::write_executable;
pub use shared::*;

pub const CTXBENCH: &str = env!("CARGO_BIN_EXE_ctxbench");

/// A directory on a disk. Dropping it unmounts everything in it and removes it.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("ctxbench-test-").tempdir_in("/var/tmp").unwrap();
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        let dir = self.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for at in mounts_under(self.path()).into_iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(at).status();
        }
        if std::thread::panicking() && std::env::var_os("CTXBENCH_KEEP_FAILED").is_some() {
            self.0.disable_cleanup(true);
            eprintln!("kept: {}", self.path().display());
        }
    }
}

/// The mount points at or below a directory.
pub fn mounts_under(dir: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    let points = points.map(|point| PathBuf::from(point.replace("\\040", " ")));
    points.filter(|point| point.starts_with(dir)).collect()
}

/// Whether the tests can mount here. If not, they report it and pass. `CTXBENCH_REQUIRE_FUSE`, set in CI,
/// makes that a failure.
pub fn can_mount() -> bool {
    let mut options = std::fs::File::options();
    let opened = options.read(true).write(true).open("/dev/fuse");
    let opened = opened.map_err(|error| format!("/dev/fuse cannot be opened: {error}"));
    installed(opened, "CTXBENCH_REQUIRE_FUSE").is_some()
}

/// As [`can_mount`], for tests that need root.
pub fn is_root() -> bool {
    let user = rustix::process::geteuid();
    let root = user.is_root().then_some(()).ok_or("this needs root");
    installed(root, "CTXBENCH_REQUIRE_ROOT").is_some()
}

/// A scratch on which tests mount; `None` where they cannot.
pub fn mountable() -> Option<Scratch> {
    can_mount().then(Scratch::new)
}

/// As [`mountable`], for tests that also need root.
pub fn as_root() -> Option<Scratch> {
    (can_mount() && is_root()).then(Scratch::new)
}

/// A scratch for tests that need root, and no FUSE.
pub fn rooted() -> Option<Scratch> {
    is_root().then(Scratch::new)
}

/// Runs a test in a process of its own. Whatever program another test of this process starts inherits all open files and
/// closes them, and each close flushes the file: a test of what is not flushed yet would fail.
pub fn in_own_process(test: impl FnOnce()) {
    const IS_OWN: &str = "CTXBENCH_TEST_IN_OWN_PROCESS";
    let thread = std::thread::current();
    let name = thread.name().unwrap();
    // With one test thread, tests run on the main thread, and no other test runs beside them.
    if name == "main" || std::env::var_os(IS_OWN).is_some() {
        return test();
    }
    let mut own = Command::new(std::env::current_exe().unwrap());
    own.args([name, "--exact", "--test-threads=1", "--nocapture"]);
    let output = own.env(IS_OWN, "1").output().unwrap();
    print!("{}", stdout(&output));
    eprint!("{}", stderr(&output));
    assert!(output.status.success(), "{name} failed in its own process");
    has(&stdout(&output), &["1 passed"]);
}

/// The words of a command line, none of which holds a space.
pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// The complete lines of a run's file. The run may still write to it.
pub fn lines(out: &Path, name: &str) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(out.join(name)).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The text of a file in a directory.
#[track_caller]
pub fn text_of(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap()
}

/// The JSON of a file in a directory.
#[track_caller]
pub fn json_of(dir: &Path, name: &str) -> serde_json::Value {
    serde_json::from_str(&text_of(dir, name)).unwrap()
}

/// The path of the first entry of a directory.
pub fn entry_of(dir: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(dir).unwrap();
    entries.next().unwrap().unwrap().path()
}

/// The file `/proc/PID/NAME`. `None` once the process is gone.
pub fn process_file(process: impl Display, name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{process}/{name}")).ok()
}

/// The state of a process, such as `T` for a stopped one.
pub fn state_of(process: impl Display) -> Option<char> {
    let stat = process_file(process, "stat")?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process has ended; a zombie counts as ended.
pub fn has_ended(process: impl Display) -> bool {
    state_of(process).is_none_or(|state| state == 'Z')
}

/// A memory of a process in KiB, such as `VmHWM:`, the largest so far. `None` once it has ended.
pub fn memory_of(process: u32, what: &str) -> Option<u64> {
    let status = process_file(process, "status")?;
    let line = status.lines().find(|line| line.starts_with(what))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

pub fn signal(process: &Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).unwrap();
}

/// The text of a suite with these settings, backends, and workloads with their cache states.
pub fn suite(settings: &str, backends: &[&str], workloads: &[(&str, &[&str])]) -> String {
    let essay = "A few small cells, to see that everything works.";
    let head = format!("essay = '{essay}'\nepochs = 3\n{settings}\nbackends = {backends:?}\n");
    let workloads =
        workloads.iter().map(|(name, states)| format!("[[workload]]\nname = '{name}'\nstates = {states:?}\n"));
    head + &workloads.collect::<String>()
}

/// `ctxbench run` of the text of a suite into `out`.
pub fn suite_run(scratch: &Scratch, text: &str, out: &Path) -> Command {
    let file = scratch.path().join("suite.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = ctxbench(["run", "--seed", "7", "--suite"]);
    command.arg(file).arg("--out").arg(out);
    command.arg("--scratch-dir").arg(scratch.path());
    command
}

/// Runs a command that must be refused. Returns its standard error.
#[track_caller]
pub fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success(), "{arguments:?} was not refused");
    assert!(output.stdout.is_empty(), "{}", stdout(&output));
    stderr(&output)
}

/// Commands that must succeed.
pub trait Succeeds {
    /// Runs it to its end, and checks that it succeeds.
    fn succeeds(&mut self) -> Output;
}

impl Succeeds for Command {
    fn succeeds(&mut self) -> Output {
        let output = self.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        output
    }
}

pub fn ctxbench<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(CTXBENCH);
    // No test asks a real metadata service for keys.
    command.args(arguments).stdin(Stdio::null()).env("AWS_EC2_METADATA_DISABLED", "true");
    command
}

/// Runs a shell command in `dir`, for a minute at most.
pub fn sh(dir: &Path, command: &str) -> Output {
    let mut shell = Command::new("timeout");
    shell.args(["60", "bash", "-c", command]).current_dir(dir);
    shell.stdin(Stdio::null()).output().unwrap()
}

/// The standard output of a shell command in `dir`, which must succeed.
#[track_caller]
pub fn said(dir: &Path, command: &str) -> String {
    let output = sh(dir, command);
    assert!(output.status.success(), "{command}: {}", stderr(&output));
    stdout(&output)
}

/// Runs the transcript in a page of the docs, which mounts `dir`, and compares what its commands print.
pub fn replays(scratch: &Scratch, page: &str, dir: &str) {
    scratch.dir(dir);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = text_of(&docs, page);
    let (_, transcript) = page.split_once("```console\n$ ").unwrap();
    let (transcript, _) = transcript.split_once("\n```").unwrap();
    // Notes are dated.
    let today = said(scratch.path(), "date -u +%F");
    let transcript = transcript.replace("2026-11-22", today.trim());
    let program = Path::new(CTXBENCH).parent().unwrap().display();
    let path = format!("export PATH={program}:$PATH CTXBENCH_EMBEDDINGS=none;");
    let mut commands = transcript.split("\n$ ");
    let mount = commands.next().unwrap();
    said(scratch.path(), &format!("{path} {mount}"));
    let mut compared = 0;
    for command in commands {
        let (command, expected) = command.split_once('\n').unwrap_or((command, ""));
        // A listing is in columns on a terminal, and in lines here.
        let lines = said(scratch.path(), command);
        assert_eq!(words(&lines), words(expected), "{command}");
        compared += 1;
    }
    assert!(compared > 2, "the transcript was not found");
    said(scratch.path(), &format!("{path} ctxbench unmount {dir}"));
    assert!(mounts_under(scratch.path()).is_empty());
}

/// Runs the binary to its end.
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    ctxbench(arguments).output().unwrap()
}

/// `ctxbench run` with the options of a line, and where its run directory will be. Its workspaces are in the scratch.
pub fn measure(scratch: &Scratch, line: &str) -> (PathBuf, Command) {
    let out = scratch.path().join("run");
    let mut command = ctxbench(["run", "--out"]);
    command.arg(&out).arg("--scratch-dir");
    command.arg(scratch.dir("work")).args(words(line));
    (out, command)
}

/// Runs `ctxbench conform` and removes its run directory.
pub fn conform<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    let results = tempfile::tempdir().unwrap();
    let mut command = ctxbench(["conform"]);
    command.args(arguments).arg("--results").arg(results.path());
    command.output().unwrap()
}

/// Names a server and its keys to a command.
pub fn set_server<'a>(command: &'a mut Command, endpoint: &str, access_key: &str, secret_key: &str) -> &'a mut Command {
    command
        .env("CTXBENCH_S3_ENDPOINT", endpoint)
        .env("AWS_ACCESS_KEY_ID", access_key)
        .env("AWS_SECRET_ACCESS_KEY", secret_key)
        .env_remove("CTXBENCH_S3_KEY")
}

/// A client of a server, at an endpoint of it, that tries every request once.
pub fn s3_client(endpoint: &str, server: &Announcement) -> AmazonS3 {
    // Fails where another test has installed one.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let access = ServerAccess {
        endpoint: endpoint.to_owned(),
        access_key: server.access_key.clone(),
        secret_key: server.secret_key.clone(),
        region: server.region.clone(),
    };
    let once = object_store::RetryConfig { max_retries: 0, ..Default::default() };
    let builder = s3_builder(&access).with_bucket_name(&server.bucket);
    builder.with_retry(once).build().unwrap()
}

/// A free port that no connection gets while its server is away: the kernel takes those of connections from 32768 on.
pub fn lasting_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let ports = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id()));
    let mut ports = ports.map(|number| 20_000 + (number % 10_000) as u16);
    ports.find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// A running `ctxbench s3 serve`. Dropping it ends the process.
pub struct Server {
    pub process: Child,
    pub announcement: Announcement,
    /// The program of [`Server::command`].
    pub program: PathBuf,
    /// The `TMPDIR` of the process.
    pub tmp: Scratch,
}

impl Server {
    /// Starts a server that keeps its data in `dir`, with more options.
    pub fn start(dir: &Path, options: &[&str]) -> Self {
        let mut command = ctxbench(["s3", "serve", "--until-stdin-ends", "--dir"]);
        command.arg(dir).args(options);
        Self::of(command)
    }

    /// As [`Server::start`], for any command that serves.
    pub fn of(mut command: Command) -> Self {
        let tmp = Scratch::new();
        let mut process =
            command.env("TMPDIR", tmp.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let Ok(announcement) = serde_json::from_str(&line) else {
            panic!("{line}{}", stderr(&process.wait_with_output().unwrap()));
        };
        Self { process, announcement, program: CTXBENCH.into(), tmp }
    }

    /// A command with this server's keys.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null()).env("AWS_EC2_METADATA_DISABLED", "true");
        let Announcement { endpoint, access_key, secret_key, .. } = &self.announcement;
        set_server(&mut command, endpoint, access_key, secret_key);
        command
    }

    pub fn client(&self) -> AmazonS3 {
        s3_client(&self.announcement.endpoint, &self.announcement)
    }

    pub fn signal(&self, sent: Signal) {
        signal(&self.process, sent);
        if sent == Signal::STOP {
            // Its threads stop one after the other, and may answer until then.
            wait_for("a stopped server", || {
                let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap().flatten();
                let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
                stats.into_iter().all(|stat| stat.contains(") T "))
            });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        if let Ok(None) = self.process.try_wait() {
            // A test may have stopped it.
            let _ = kill_process(Pid::from_child(&self.process), Signal::CONT);
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Ok(None) = self.process.try_wait() {
            if Instant::now() > deadline {
                let _ = self.process.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A foreign file system of one or two hosts. A host lists its daemon in `told`, and stalls once the shell
/// condition holds. `$1` is its mount, `$2` its site, `$3` the first host's data.
pub fn stalling(name: &str, told: &Path, condition: &str) -> String {
    let told = told.display();
    format!(
        r#"
name = "{name}"
summary = "a file system that stalls"
durability = "none"
persistent = false
second_host = true
daemons = 1
version = ["{CTXBENCH}", "--version"]
mount = ["sh", "-c", "echo $$ > \"$2/pid\"; echo $$ >> {told}/pids; exec {CTXBENCH} mount memory \"$1\"", "sh", "{{mount}}", "{{site}}"]
stays = true
ready = ["sh", "-c", "grep -q \" $1 \" /proc/self/mounts || exit 1; (while kill -0 $(cat \"$2/pid\"); do {condition} && exec kill -STOP $(cat \"$2/pid\"); sleep 0.01; done) > /dev/null 2>&1 &", "sh", "{{mount}}", "{{site}}", "{{first_data}}"]
unmount = ["fusermount3", "-u", "{{mount}}"]
"#
    )
}

/// Checks that `told` lists so many daemons of [`stalling`], and that none of them runs.
pub fn no_process_of(told: &Path, daemons: usize) {
    let pids = std::fs::read_to_string(told.join("pids")).unwrap();
    assert_eq!(pids.lines().count(), daemons);
    let runs = |pid: &&str| Path::new("/proc").join(pid).exists();
    assert_eq!(pids.lines().find(runs), None);
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until a condition holds, for two minutes at most.
pub fn wait_for(what: &str, is_so: impl FnMut() -> bool) {
    wait_up_to(Duration::from_secs(120), what, is_so);
}

/// A running `ctxbench mount`.
pub struct Mount {
    pub process: Child,
    pub dir: PathBuf,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Mount {
    /// Mounts `backend` on `dir` and waits until it reports that it is ready.
    pub fn new(backend: &str, dir: &Path, more: &[&str]) -> Self {
        let mut command = ctxbench(["mount", backend]);
        command.arg(dir).args(more);
        Self::of(command, dir)
    }

    /// As [`Mount::new`], for any command that mounts on `dir`.
    pub fn of(mut command: Command, dir: &Path) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        if !line.contains("is mounted on") {
            let output = process.wait_with_output().unwrap();
            panic!("not mounted: {line}{}", stderr(&output));
        }
        Self { process, dir: dir.to_owned(), stdout }
    }

    /// The next line of its standard output.
    pub fn said(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Ends the mount with SIGINT, and checks that it succeeds and leaves nothing mounted.
    pub fn end(mut self) {
        signal(&self.process, Signal::INT);
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
        assert!(mounts_under(&self.dir).is_empty());
    }

    /// As [`Mount::end`]. Returns what it has said on standard error.
    pub fn end_with_log(mut self) -> String {
        let log = self.process.stderr.take().unwrap();
        self.end();
        std::io::read_to_string(log).unwrap()
    }

    /// Kills the daemon with SIGKILL. The dead mount stays.
    pub fn crash(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The commands that a help lists.
fn commands_in(help: &str) -> Vec<&str> {
    let heading = ["\nCommands:\n", "\nStores:\n"];
    let listed = heading.iter().find_map(|heading| help.split_once(heading));
    let (_, listed) = listed.unwrap_or_default();
    let lines = listed.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    // The second line of a description begins with more spaces.
    names.filter(|name| !name.is_empty()).collect()
}

/// Every command of the binary, with its help.
pub fn every_command() -> BTreeMap<String, String> {
    let mut commands: Vec<String> = commands_in(&stdout(&run(["--help"]))).into_iter().map(str::to_owned).collect();
    assert!(commands.contains(&"run".to_owned()), "{commands:?}");
    // The help does not list it.
    commands.push("completions".to_owned());
    let mut found = BTreeMap::new();
    while let Some(command) = commands.pop() {
        let help = stdout(&run(words(&format!("{command} --help"))));
        commands.extend(commands_in(&help).into_iter().map(|name| format!("{command} {name}")));
        found.insert(command, help);
    }
    found
}
