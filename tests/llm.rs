//! Files that a model makes up, over real mounts: what asks a model and what does not, tools, failures, Ctrl-C.
//!
//! The model is a simulated one, but for one test that runs the local one where `make model` has installed it.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
#[path = "../backends/tests/common/oracle.rs"]
mod oracle;

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Mount, Scratch, can_mount, ctxbench, stderr, stdout};
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

    fn command(&self, backend: &str, more: &[&str]) -> Command {
        let dir = self.path("mnt");
        // A dead mount is there and cannot be looked at.
        let _ = std::fs::create_dir(&dir);
        let mut command = ctxbench(["mount", backend]);
        command
            .arg(&dir)
            .args([
                "--base-url",
                &self.server.base_url(),
                "--model",
                "simulated",
            ])
            .env("CTXBENCH_API_KEY", KEY)
            .args(more);
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
        std::fs::read_to_string(self.path("mnt.llmfs.log")).unwrap()
    }
}

/// Runs a shell command in `dir`, for a minute at most.
fn sh(dir: &Path, command: &str) -> Output {
    let mut shell = Command::new("timeout");
    shell.args(["60", "bash", "-c", command]).current_dir(dir);
    shell.stdin(Stdio::null()).output().unwrap()
}

fn said(dir: &Path, command: &str) -> String {
    let output = sh(dir, command);
    assert!(output.status.success(), "{command}: {}", stderr(&output));
    stdout(&output)
}

fn set_xattr(path: &Path, name: &str, value: &str) -> rustix::io::Result<()> {
    rustix::fs::setxattr(
        path,
        name,
        value.as_bytes(),
        rustix::fs::XattrFlags::empty(),
    )
}

fn xattr(path: &Path, name: &str) -> String {
    let mut value = [0; 4096];
    let length = getxattr(path, name, &mut value).unwrap();
    String::from_utf8_lossy(&value[..length]).into_owned()
}

#[test]
fn only_a_read_asks_the_model() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Answer]);
    let mount = lab.generate(&[]);
    let dir = &mount.dir;
    let looks = [
        "stat src/main.py a.txt latest",
        "ls -lR",
        "find . -type f -size -1 -name '*.py'",
        "test -e a.txt && test -f src/util.py && test ! -s b.txt",
        "exec 3<a.txt",
        "python3 -c \"import os; f=os.open('b.txt', os.O_RDONLY); os.fstat(f); os.close(f)\"",
        "du -a . >/dev/null",
        "truncate -s 0 c.txt",
        "echo mine > d.txt",
        "cat .llmfs/tree .llmfs/README .llmfs/cache_stats >/dev/null",
        "mkdir new && touch new/file && mv new other && rm -r other",
    ];
    for look in looks {
        said(dir, look);
        assert_eq!(lab.server.calls(), 0, "{look} asked the model");
    }
    assert_eq!(
        std::fs::read_to_string(dir.join("d.txt")).unwrap(),
        "mine\n"
    );
    assert_eq!(
        std::fs::read(dir.join("c.txt")).unwrap(),
        b"",
        "cut off, it is theirs"
    );
    assert_eq!(lab.server.calls(), 0);
    assert_eq!(xattr(&dir.join("a.txt"), "user.llmfs.state"), "waiting");

    assert_eq!(
        said(dir, "cat src/main.py"),
        "Write the file /src/main.py.\n"
    );
    assert_eq!(said(dir, "cat latest src/main.py").lines().count(), 2);
    assert_eq!(lab.server.calls(), 1, "it is kept");
    let main = dir.join("src/main.py");
    assert_eq!(main.metadata().unwrap().len(), 29);
    assert_eq!(xattr(&main, "user.llmfs.state"), "generated");
    assert_eq!(xattr(&main, "user.llmfs.generator"), "default");
    assert_eq!(xattr(&main, "user.llmfs.model"), "simulated");
    assert_eq!(xattr(&main, "user.llmfs.prompt"), "prints hello");
    assert!(xattr(&main, "user.llmfs.tokens").parse::<u64>().unwrap() > 0);
    assert!(xattr(&main, "user.llmfs.generated-at").ends_with('Z'));
    mount.end();
}

#[test]
fn tools_read_files_that_nobody_has_read() {
    if !can_mount() {
        return;
    }
    let long = "0123456789abcdef\n".repeat(20_000);
    let lab = Lab::new(vec![Behaviour::Say(long.clone())]);
    let tools: [(&str, &str, String); 9] = [
        ("a.txt", "cat a.txt | md5sum", String::new()),
        (
            "b.txt",
            "cp b.txt ../copy && md5sum < ../copy",
            String::new(),
        ),
        ("c.txt", "grep -c abcdef c.txt", "20000\n".to_owned()),
        ("d.txt", "wc -c < d.txt", "340000\n".to_owned()),
        ("e.txt", "head -n 1 e.txt", "0123456789abcdef\n".to_owned()),
        ("f.txt", "tail -n 1 f.txt", "0123456789abcdef\n".to_owned()),
        ("g.txt", "cmp g.txt ../expected", String::new()),
        (
            "src/main.py",
            "cp src/main.py inside && md5sum < inside",
            String::new(),
        ),
        (
            "src/util.py",
            "python3 -c \"print(len(open('src/util.py').read()))\"",
            "340000\n".to_owned(),
        ),
    ];
    std::fs::write(lab.path("expected"), &long).unwrap();
    let sum = said(lab.scratch.path(), "md5sum < expected");
    let mount = lab.generate(&["--no-cache"]);
    for (at, (file, tool, expected)) in tools.iter().enumerate() {
        let is_sum = expected.is_empty() && tool.contains("md5sum");
        let expected = if is_sum { &sum } else { expected };
        assert_eq!(said(&mount.dir, tool), *expected, "{tool} of {file}");
        assert_eq!(lab.server.calls(), at + 1, "{tool}");
    }
    mount.end();
}

/// What has to know the size before it reads is told 0, and is not to be trusted until somebody has read: this is what
/// docs/LLM.md says of each.
#[test]
fn programs_that_believe_the_size_find_a_file_empty_until_somebody_reads_it() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Say("made up\n".to_owned())]);
    std::fs::write(lab.path("expected"), "made up\n").unwrap();
    let mount = lab.generate(&["--no-cache"]);
    let dir = &mount.dir;
    let copy = "python3 -c \"import shutil; shutil.copy('a.txt', '../copy')\"; cat ../copy";
    let mapped = "python3 -c \"import mmap; f = open('b.txt', 'rb'); print(len(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)))\"";
    assert_eq!(said(dir, copy), "");
    assert!(!sh(dir, mapped).status.success());
    assert!(!sh(dir, "cmp -s c.txt ../expected").status.success());
    assert_eq!(said(dir, "tar c d.txt | tar xO"), "");
    assert_eq!(lab.server.calls(), 0);
    // Reading it all first is the way.
    said(dir, "find . -type f -exec cat {} + >/dev/null");
    assert_eq!(said(dir, copy), "made up\n");
    assert_eq!(said(dir, mapped), "8\n");
    assert!(sh(dir, "cmp -s c.txt ../expected").status.success());
    assert_eq!(said(dir, "tar c d.txt | tar xO"), "made up\n");
    mount.end();
}

#[test]
fn a_program_that_goes_on_after_a_signal_does_not_ask_again() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::SayAfter(
        Duration::from_millis(1500),
        "at last\n".to_owned(),
    )]);
    let mount = lab.generate(&["--parallel", "8"]);
    // Python catches the timer's signal and then reads again, as Go does.
    let timer = "import signal\nsignal.signal(signal.SIGALRM, lambda *_: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)\nprint(open('a.txt').read(), end='')";
    assert_eq!(
        said(&mount.dir, &format!("python3 -c \"{timer}\"")),
        "at last\n"
    );
    assert_eq!(lab.server.calls(), 1, "each signal asked anew");
    mount.end();
}

#[test]
fn an_answer_that_a_filter_ended_is_an_error_and_not_kept() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Filtered("The beginn".to_owned())]);
    let mount = lab.generate(&[]);
    let path = mount.dir.join("a.txt");
    for _ in 0..2 {
        let error = std::fs::read(&path).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "EIO");
        assert!(xattr(&path, "user.llmfs.error").contains("content filter"));
    }
    assert_eq!(lab.server.calls(), 2, "it was in no cache");
    lab.server
        .behave(vec![Behaviour::Say("all of it\n".to_owned())]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "all of it\n");
    mount.end();
}

#[test]
fn ctrl_c_ends_a_change_that_a_policy_judges_and_nobody_waits_for_it() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Say(
        r#"{"allow":true,"reason":"yes"}"#.to_owned(),
    )]);
    let policy = [
        "--policy",
        "Everything.",
        "--parallel",
        "8",
        "--answer-timeout",
        "300",
    ];
    let mount = lab.mount("llm-history", &policy);
    let dir = &mount.dir;
    said(dir, "mkdir sub other; touch sub/known other/file");
    lab.server.behave(vec![Behaviour::Hang]);
    let changes = [
        "touch sub/new",
        "mkdir sub/dir",
        "rm sub/known",
        "mv sub/known sub/moved",
        "ln sub/known sub/link",
        "ln -s known sub/symbolic",
        "truncate -s 0 sub/known",
        "mkfifo sub/fifo",
        // Python catches the signal.
        "python3 -c \"import os; os.setxattr('sub/known', 'user.x', b'1')\"",
    ];
    for change in changes {
        let before = lab.server.calls();
        let mut waiting = Command::new("bash")
            .args(["-c", &format!("exec {change}")])
            .current_dir(dir)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        common::wait_for("the policy being asked", || lab.server.calls() > before);
        // Others go on, in this directory and elsewhere. The kernel itself holds a directory in which a name is being
        // made or removed: only names that it does not know, and listings, wait for that.
        let started = Instant::now();
        said(dir, "stat sub/known other/file; ls other; ls .");
        assert!(started.elapsed() < Duration::from_secs(5), "{change}");
        let pid = rustix::process::Pid::from_raw(waiting.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let started = Instant::now();
        assert!(!waiting.wait().unwrap().success(), "{change}");
        assert!(started.elapsed() < Duration::from_secs(3), "{change}");
    }
    assert_eq!(said(dir, "ls sub"), "known\n", "nothing of it was done");
    mount.end();
}

#[test]
fn what_is_written_beside_a_mount_is_its_users_alone() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Say(TREE.to_owned()), Behaviour::Answer]);
    let dir = lab.scratch.dir("mnt");
    let mut command = ctxbench(["mount", "llm-generate", "--prompt", "x"]);
    command
        .arg(&dir)
        .args(["--base-url", &lab.server.base_url(), "--model", "simulated"])
        .env_remove("HOME")
        .env("CTXBENCH_API_KEY", KEY);
    let mount = Mount::of(command, &dir);
    said(&mount.dir, "cat a.txt");
    mount.end();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for name in ["mnt.llmfs.log", "mnt.llmfs.json"] {
        assert_eq!(mode(&lab.path(name)), 0o600, "{name}");
    }
    // Without a home it is not in /tmp, where somebody else could have made it.
    let folder = lab.path("mnt.llmfs.cache");
    assert_eq!(mode(&folder), 0o700);
    assert!(folder.read_dir().unwrap().count() > 0);
}

#[test]
fn no_proxy_is_told_what_a_server_on_this_machine_is_asked() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Answer]);
    let tree = lab.path("tree.json").display().to_string();
    let mut command = lab.command("llm-generate", &["--tree", &tree]);
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(name, "http://127.0.0.1:9");
    }
    command.env_remove("no_proxy").env_remove("NO_PROXY");
    let mount = Mount::of(command, &lab.path("mnt"));
    assert_eq!(said(&mount.dir, "cat a.txt"), "Write the file /a.txt.\n");
    mount.end();
}

#[test]
fn a_model_without_a_price_is_not_asked_where_dollars_are_limited() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Answer]);
    let mount = lab.generate(&["--price", "1,1", "--max-cost", "1", "--no-cache"]);
    let dir = &mount.dir;
    said(dir, "mkdir src/.llmfs; echo dearer > src/.llmfs/model");
    let path = dir.join("src/main.py");
    assert_eq!(
        std::fs::read(&path).unwrap_err().raw_os_error(),
        Some(122),
        "EDQUOT"
    );
    assert!(xattr(&path, "user.llmfs.error").contains("the price of dearer is not known"));
    assert_eq!(lab.server.calls(), 0);
    said(dir, "cat a.txt");
    mount.end();
}

#[test]
fn questions_that_were_given_up_count_against_the_budget() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Hang]);
    let mount = lab.generate(&["--answer-timeout", "0.5", "--max-tokens", "1", "--no-cache"]);
    let errno = |name: &str| {
        std::fs::read(mount.dir.join(name))
            .unwrap_err()
            .raw_os_error()
    };
    assert_eq!(errno("a.txt"), Some(110), "ETIMEDOUT");
    assert_eq!(
        errno("b.txt"),
        Some(122),
        "EDQUOT: the first question counts"
    );
    assert_eq!(lab.server.calls(), 1);
    mount.end();
}

#[test]
fn a_history_whose_model_is_exact_does_what_a_plain_file_system_does() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::By(|request| {
        oracle::answer(request["messages"][1]["content"].as_str().unwrap())
    })]);
    // The question holds all of the log, as far as a question may go.
    let mount = lab.mount("llm-history", &["--log-bytes", "250000"]);
    let history = conformance(&mount.dir);
    mount.end();
    let mount = lab.generate(&[]);
    std::fs::create_dir(mount.dir.join("work")).unwrap();
    let generate = conformance(&mount.dir.join("work"));
    mount.end();
    let memory = lab.scratch.dir("memory");
    let mount = Mount::new("memory", &memory, &[]);
    let plain = conformance(&mount.dir);
    mount.end();
    assert_eq!(
        generate, plain,
        "what is not made up is a file like any other"
    );
    // What no answer can give, and docs/LLM.md says so.
    let exceptions = [
        // Without a name a file cannot be asked for.
        "rename replaces, and the replaced stays readable",
        "links unlinked while open: readable, writable, gone after",
        // An answer is text, and no longer than a question may be.
        "content large files: 3 MB byte for byte",
        "content sparse files: holes read as zeros and take no space",
        "content fallocate: punch a hole, zero a range",
        // The kernel keeps no pages of what is read directly.
        "content mmap: shared writes reach the file",
        "content mmap: writes by others show in the map",
    ];
    let fails = history.iter().filter(|line| !plain.contains(line));
    let fails: Vec<&str> = fails.map(|line| line.trim_end_matches(" FAILS")).collect();
    assert_eq!(fails, exceptions);
}

/// What `ctxbench conform` says a directory does not do, a line each.
fn conformance(dir: &Path) -> Vec<String> {
    let output = ctxbench(["conform", "--path"]).arg(dir).output().unwrap();
    let table = stdout(&output);
    assert!(table.contains("works"), "{}", stderr(&output));
    let failing = table.lines().filter(|line| line.contains("FAILS"));
    let failing = failing.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    failing.collect()
}

#[test]
fn readers_at_once_cause_one_call() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::SayAfter(
        Duration::from_millis(700),
        "once\n".to_owned(),
    )]);
    let mount = lab.generate(&["--parallel", "8"]);
    let path = mount.dir.join("a.txt");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(std::fs::read_to_string(&path).unwrap(), "once\n"));
        }
        // Nobody else waits meanwhile.
        std::thread::sleep(Duration::from_millis(200));
        let started = Instant::now();
        said(&mount.dir, "ls -l");
        assert!(
            started.elapsed() < Duration::from_millis(450),
            "{:?}",
            started.elapsed()
        );
    });
    assert_eq!(lab.server.calls(), 1);
    mount.end();
}

#[test]
fn a_failure_is_an_error_number_a_log_line_and_an_attribute_and_never_an_empty_file() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Status(400, format!("wrong, {KEY}"), None)]);
    let mount = lab.generate(&["--answer-timeout", "1", "--max-tokens", "200", "--no-cache"]);
    let path = mount.dir.join("a.txt");
    let errno = |path: &Path| std::fs::read(path).unwrap_err().raw_os_error();
    assert_eq!(errno(&path), Some(5), "EIO");
    assert!(xattr(&path, "user.llmfs.error").contains("refuses the request (400)"));
    assert!(stderr(&sh(&mount.dir, "cat a.txt")).contains("Input/output error"));

    lab.server.behave(vec![Behaviour::Hang]);
    let started = Instant::now();
    assert_eq!(errno(&path), Some(110), "ETIMEDOUT");
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(xattr(&path, "user.llmfs.error").contains("no answer within 1.0 s"));

    lab.server.behave(vec![Behaviour::Say(String::new())]);
    assert_eq!(errno(&path), Some(5), "what is empty is no answer");

    lab.server.behave(vec![Behaviour::Say("word ".repeat(200))]);
    assert_eq!(std::fs::read(&path).unwrap().len(), 1001);
    assert!(
        getxattr(&path, "user.llmfs.error", &mut [0; 100]).is_err(),
        "it is well now"
    );
    let other = mount.dir.join("b.txt");
    assert_eq!(errno(&other), Some(122), "EDQUOT: the budget is spent");
    assert!(xattr(&other, "user.llmfs.error").contains("--max-tokens"));
    mount.end();

    let log = lab.log();
    assert!(
        log.contains("/a.txt FAILED") && log.contains("no answer within"),
        "{log}"
    );
    for name in ["mnt.llmfs.log", "mnt.llmfs.json"] {
        let text = std::fs::read_to_string(lab.path(name)).unwrap();
        assert!(
            !text.contains(KEY) && !text.contains("sk-this"),
            "the key is in {name}"
        );
    }
}

#[test]
fn ctrl_c_ends_a_slow_read_and_a_mount_whose_model_is_stuck() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Hang]);
    let mount = lab.generate(&["--answer-timeout", "300"]);
    let mut cat = Command::new("cat");
    let mut cat = cat
        .arg(mount.dir.join("a.txt"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    common::wait_for("the model being asked", || lab.server.calls() == 1);
    let pid = rustix::process::Pid::from_raw(cat.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let started = Instant::now();
    assert!(!cat.wait().unwrap().success());
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );

    // One that waits still, when the mount is taken down.
    let mut waiting = Command::new("cat");
    let mut waiting = waiting
        .arg(mount.dir.join("b.txt"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    common::wait_for("the model being asked again", || lab.server.calls() == 2);
    let started = Instant::now();
    mount.signal(rustix::process::Signal::INT);
    let status = mount.wait();
    assert!(status.success(), "{status}");
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    let _ = waiting.kill();
    waiting.wait().unwrap();
    assert!(common::mounts_under(lab.scratch.path()).is_empty());
}

#[test]
fn what_was_generated_is_there_after_a_remount_and_after_a_crash() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Answer]);
    let mount = lab.generate(&["--prompt", "A project"]);
    let first = said(
        &mount.dir,
        "cat src/main.py; ln a.txt hard; echo note > note",
    );
    set_xattr(&mount.dir.join("note"), "user.x", "1").unwrap();
    std::fs::File::open(mount.dir.join("note"))
        .unwrap()
        .sync_all()
        .unwrap();
    mount.crash();
    let calls = lab.server.calls();
    let mount = lab.mount("llm-generate", &[]);
    assert_eq!(said(&mount.dir, "cat src/main.py"), first);
    assert_eq!(said(&mount.dir, "cat note"), "note\n");
    assert_eq!(xattr(&mount.dir.join("note"), "user.x"), "1");
    assert_eq!(said(&mount.dir, "cat .llmfs/prompt.default"), "A project\n");
    assert_eq!(lab.server.calls(), calls);
    assert_eq!(
        xattr(&mount.dir.join("b.txt"), "user.llmfs.state"),
        "waiting"
    );
    assert_eq!(
        said(&mount.dir, "cat hard; stat -c %h a.txt"),
        "Write the file /a.txt.\n2\n"
    );
    mount.end();

    std::fs::write(
        lab.path("mnt.llmfs.json"),
        "{\"v\":1,\"nodes\":[{\"node\":\"x\"}]}",
    )
    .unwrap();
    let refused = lab.command("llm-generate", &[]).output().unwrap();
    assert!(
        stderr(&refused).contains("nodes[0].node"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn settings_of_a_directory_and_the_cache_have_effect_at_once() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Answer]);
    let mount = lab.generate(&["--prompt", "The whole"]);
    let dir = &mount.dir;
    said(
        dir,
        "mkdir src/.llmfs && echo 'The sources' > src/.llmfs/prompt && : > src/.llmfs/model",
    );
    said(dir, "cat src/main.py a.txt");
    let asked: Vec<String> = lab
        .server
        .requests()
        .iter()
        .map(|request| {
            request["messages"][1]["content"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert!(
        asked[0].contains("The sources") && asked[0].contains("prints hello"),
        "{}",
        asked[0]
    );
    assert!(asked[1].contains("The whole"), "{}", asked[1]);

    assert_eq!(
        said(dir, "cat .llmfs/cache_enabled .llmfs/cache_stats")
            .lines()
            .take(3)
            .collect::<Vec<_>>(),
        ["1", "Hits: 0", "Misses: 2"]
    );
    assert_eq!(said(dir, "cat .llmfs/cache_list").lines().count(), 2);
    // The same request again, as of a file that is made anew.
    let anew = || {
        said(dir, "truncate -s 0 a.txt");
        set_xattr(&dir.join("a.txt"), "user.llmfs.generator", "default").unwrap();
        assert_eq!(said(dir, "cat a.txt"), "Write the file /a.txt.\n");
    };
    anew();
    assert_eq!(lab.server.calls(), 2, "it was in the cache");
    assert!(said(dir, "cat .llmfs/cache_stats").starts_with("Hits: 1\nMisses: 2\n"));
    said(dir, "echo 0 > .llmfs/cache_enabled");
    assert!(said(dir, "cat .llmfs/cache_stats").ends_with("Enabled: False\n"));
    anew();
    assert_eq!(lab.server.calls(), 3, "it was not looked for");
    said(dir, "echo 1 > .llmfs/cache_clear");
    assert_eq!(said(dir, "cat .llmfs/cache_list"), "");
    for refused in ["echo maybe > .llmfs/cache_enabled", "rm .llmfs/tree"] {
        assert!(!sh(dir, refused).status.success(), "{refused}");
    }
    for (file, generator) in [("a.txt", "nonsense"), ("src/main.py", "default")] {
        set_xattr(&dir.join(file), "user.llmfs.generator", generator).unwrap_err();
    }
    assert!(said(dir, "grep main.py .llmfs/tree").contains("[default]"));
    assert!(
        said(dir, "grep -c . .llmfs/README")
            .trim()
            .parse::<u32>()
            .unwrap()
            > 5
    );
    assert!(
        said(dir, "tail -n 50 .llmfs/log").contains("content /src/main.py: simulated answered")
    );
    mount.end();
}

#[test]
fn a_history_is_answered_by_the_model_and_looked_at_without_it() {
    if !can_mount() {
        return;
    }
    let answer = |text: &str| {
        Behaviour::Say(serde_json::json!({"exists": true, "content": text}).to_string())
    };
    let lab = Lab::new(vec![answer("guessed\n")]);
    let log = lab.path("log.db").display().to_string();
    let mount = lab.mount("llm-history", &["--log-db", &log]);
    let dir = &mount.dir;
    said(
        dir,
        "echo hello > a; mkdir d; echo more >> a; mv a d/b; stat d/b; ls -lR; find . >/dev/null; truncate -s 8 d/b",
    );
    assert_eq!(lab.server.calls(), 0);
    assert_eq!(said(dir, "cat d/b"), "guessed\n");
    assert_eq!(lab.server.calls(), 1);
    let question = lab.server.requests()[0]["messages"][1]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    for line in [
        "create /a",
        "write /a at 0: \"hello\\n\"",
        "write /a at 6: \"more\\n\"",
        "rename /a to /d/b",
        "truncate /d/b to 8 bytes",
    ] {
        assert!(question.contains(line), "{line}: {question}");
    }
    assert_eq!(
        dir.join("d/b").metadata().unwrap().len(),
        8,
        "attributes come from the interpreter"
    );
    lab.server
        .behave(vec![Behaviour::Say("no JSON".to_owned())]);
    assert_eq!(
        std::fs::read(dir.join("d/b")).unwrap_err().raw_os_error(),
        Some(5)
    );
    mount.crash();

    lab.server.behave(vec![answer("again\n")]);
    let mount = lab.mount("llm-history", &["--log-db", &log]);
    assert_eq!(said(&mount.dir, "ls d; cat d/b"), "b\nagain\n");
    let question = lab.server.requests().last().unwrap()["messages"][1]["content"].to_string();
    assert!(
        question.contains("rename /a to /d/b"),
        "the log was kept: {question}"
    );
    mount.end();

    std::fs::write(
        lab.path("other.db"),
        "this is not a database, but long enough to be looked at",
    )
    .unwrap();
    let other = lab.path("other.db").display().to_string();
    let refused = lab
        .command("llm-history", &["--log-db", &other])
        .output()
        .unwrap();
    assert!(
        stderr(&refused).contains("other.db"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn a_policy_refuses_with_a_reason_in_the_log() {
    if !can_mount() {
        return;
    }
    let verdict = |allow: bool| {
        Behaviour::Say(serde_json::json!({"allow": allow, "reason": "secrets stay"}).to_string())
    };
    let lab = Lab::new(vec![verdict(false)]);
    let mount = lab.mount("llm-history", &["--policy", "Nobody makes secrets."]);
    let refused = std::fs::write(mount.dir.join("secret"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(13), "EACCES");
    assert!(said(&mount.dir, "ls").is_empty(), "nothing of it was done");
    lab.server.behave(vec![verdict(true)]);
    std::fs::write(mount.dir.join("open"), "x").unwrap();
    lab.server.behave(vec![Behaviour::Garbage]);
    assert_eq!(
        std::fs::write(mount.dir.join("open"), "y")
            .unwrap_err()
            .raw_os_error(),
        Some(5),
        "not asked is not allowed"
    );
    mount.end();
    let log = lab.log();
    assert!(
        log.contains("REFUSED create /secret: secrets stay"),
        "{log}"
    );
}

#[test]
fn what_cannot_be_mounted_says_why_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Say(
        "{\"entries\":[{\"path\":\"../x\",\"kind\":\"file\"}]}".to_owned(),
    )]);
    let fails = |command: &mut Command, expected: &str| {
        let started = Instant::now();
        let output = command.output().unwrap();
        let error = stderr(&output);
        assert!(
            !output.status.success() && error.contains(expected),
            "{expected}: {error}"
        );
        assert!(!error.contains("sk-this"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(30));
        assert!(common::mounts_under(lab.scratch.path()).is_empty());
        assert!(!lab.path("mnt.llmfs.json").exists());
    };
    let refused = "leads out of the tree by `..`";
    fails(
        &mut lab.command("llm-generate", &["--prompt", "x"]),
        refused,
    );
    assert_eq!(lab.server.calls(), 3, "asked again twice");
    let long = "x".repeat(100_000);
    fails(
        &mut lab.command("llm-generate", &["--prompt", &long]),
        "at most 65536",
    );
    let mut megabyte = lab.command("llm-generate", &[]);
    std::fs::write(
        lab.path("tree.json"),
        "{\"entries\":[{\"path\":\"/a\",\"kind\":\"file\"}]}",
    )
    .unwrap();
    fails(
        megabyte.arg("--tree").arg(lab.path("tree.json")),
        "absolute",
    );
    std::fs::write(
        lab.path("tree.json"),
        b"{\"entries\":[{\"path\":\"\xff\",\"kind\":\"file\"}]}",
    )
    .unwrap();
    fails(
        lab.command("llm-generate", &[])
            .arg("--tree")
            .arg(lab.path("tree.json")),
        "UTF-8",
    );

    let dir = lab.path("mnt");
    let mount = |arguments: &[&str]| {
        let mut command = ctxbench(["mount", "llm-history"]);
        command
            .arg(&dir)
            .args(arguments)
            .env("CTXBENCH_API_KEY", KEY);
        command
    };
    fails(
        &mut mount(&["--base-url", "http://127.0.0.1:1/v1", "--model", "m"]),
        "127.0.0.1:1",
    );
    fails(
        &mut mount(&["--base-url", &lab.server.base_url(), "--model", "gpt-9"]),
        "gpt-9",
    );
    fails(
        &mut mount(&["--base-url", &lab.server.base_url()]),
        "--model",
    );
    fails(
        mount(&["--base-url", "https://api.openai.com/v1", "--model", "m"])
            .env_remove("CTXBENCH_API_KEY")
            .env_remove("OPENAI_API_KEY"),
        "OPENAI_API_KEY",
    );
    std::fs::write(lab.path("not.gguf"), "PK").unwrap();
    let not_gguf = lab.path("not.gguf").display().to_string();
    fails(
        &mut mount(&["--provider", "local", "--model", &not_gguf]),
        "no GGUF file",
    );
    std::fs::write(lab.path("other.gguf"), "GGUF").unwrap();
    let other = lab.path("other.gguf").display().to_string();
    fails(
        &mut mount(&[
            "--provider",
            "local",
            "--model",
            &other,
            "--model-sha256",
            "00",
        ]),
        "SHA-256",
    );
    fails(&mut mount(&["--cassette", &not_gguf]), "not.gguf:1:");
    fails(
        &mut mount(&["--provider", "local", "--answer-timeout", "0"]),
        "from 0.1 to 3600",
    );
}

#[test]
fn what_would_lose_or_show_something_is_refused_at_mount() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Answer]);
    let tree = lab.path("tree.json").display().to_string();
    let refused = |backend: &str, more: &[&str], parts: &[&str]| {
        let output = lab.command(backend, more).output().unwrap();
        let said = stderr(&output);
        assert!(!output.status.success(), "{more:?}");
        for part in parts {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
        assert!(!said.contains("hidden"), "{said}");
        assert!(common::mounts_under(lab.scratch.path()).is_empty());
    };
    let missing = lab.path("missing/save.json").display().to_string();
    let parts = ["missing/save.json", "make its folder"];
    refused(
        "llm-generate",
        &["--tree", &tree, "--save", &missing],
        &parts,
    );

    let mount = lab.generate(&[]);
    let second = lab.scratch.dir("second");
    let save = lab.path("mnt.llmfs.json").display().to_string();
    let mut command = ctxbench(["mount", "llm-generate"]);
    command.arg(&second).args([
        "--base-url",
        &lab.server.base_url(),
        "--model",
        "simulated",
        "--save",
        &save,
    ]);
    let output = command.output().unwrap();
    assert!(
        stderr(&output).contains("belongs to another mount"),
        "{}",
        stderr(&output)
    );
    mount.end();
    refused(
        "llm-generate",
        &["--tree", &tree],
        &["--tree would be ignored", "mnt.llmfs.json"],
    );

    for cost in ["nan", "inf", "-1", "much"] {
        let more = ["--price", "1,1", &format!("--max-cost={cost}")];
        refused("llm-history", &more, &["--max-cost"]);
    }
    for url in [
        "http://me:hidden@127.0.0.1:1/v1",
        "ftp://me:hidden@x/v1",
        "me:hidden@[x",
    ] {
        for more in [&["--model", "m"][..], &[]] {
            let mut command = ctxbench(["mount", "llm-history"]);
            command.arg(&second).args(["--base-url", url]).args(more);
            let output = command.output().unwrap();
            let said = stderr(&output);
            assert!(said.contains("***@") && !said.contains("hidden"), "{said}");
        }
    }
}

#[test]
fn a_budget_is_one_for_all_that_model_files_measures() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Say(
        r#"{"exists":true,"content":"guessed"}"#.to_owned(),
    )]);
    let out = lab.path("out");
    let ask = |budget: &str| {
        let mut command = ctxbench(["model-files", "--histories", "1", "--lengths", "1"]);
        let output = command
            .args(["--base-url", &lab.server.base_url(), "--model", "simulated"])
            .args(["--max-tokens", budget])
            .arg("--out")
            .arg(&out)
            .arg("--scratch")
            .arg(lab.scratch.path())
            .env("CTXBENCH_API_KEY", KEY)
            .output()
            .unwrap();
        let said = stderr(&output);
        assert!(
            !output.status.success() && said.contains("the budget is spent"),
            "{said}"
        );
        assert!(!out.exists(), "nothing half-measured is written");
        assert!(common::mounts_under(lab.scratch.path()).is_empty());
        said
    };
    // Spent by the questions about histories; and by those and one mount after it together.
    assert!(!ask("1").contains("llm-history, mounted"));
    let for_histories = lab.server.calls();
    let said = ask("500");
    assert!(
        said.contains("llm-history, mounted") && !said.contains("read again"),
        "{said}"
    );
    assert!(lab.server.calls() > for_histories + 3);
}

#[test]
fn a_recording_answers_as_the_model_did_and_names_what_it_does_not_hold() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Answer]);
    let cassette = lab.path("cassette.jsonl").display().to_string();
    let mount = lab.generate(&["--record", &cassette, "--no-cache"]);
    let live = said(&mount.dir, "cat a.txt");
    mount.end();
    let recording = std::fs::read_to_string(&cassette).unwrap();
    assert!(
        recording.lines().count() == 2 && !recording.contains("sk-this"),
        "{recording}"
    );

    std::fs::remove_file(lab.path("mnt.llmfs.json")).unwrap();
    let tree = lab.path("tree.json").display().to_string();
    let mut command = ctxbench(["mount", "llm-generate"]);
    command
        .arg(lab.path("mnt"))
        .args(["--tree", &tree, "--cassette", &cassette, "--no-cache"]);
    let mount = Mount::of(command, &lab.path("mnt"));
    assert_eq!(said(&mount.dir, "cat a.txt"), live);
    assert_eq!(
        std::fs::read(mount.dir.join("b.txt"))
            .unwrap_err()
            .raw_os_error(),
        Some(5)
    );
    assert!(
        xattr(&mount.dir.join("b.txt"), "user.llmfs.error").contains("holds no answer to request")
    );
    mount.end();
    assert!(lab.log().contains("(recorded)"));
}

/// A run's samples of one arm and workload.
fn samples(out: &Path, arm: &str, workload: &str) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(out.join("samples.jsonl")).unwrap_or_default();
    let all = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    all.filter(|sample| sample["arm"] == arm && sample["workload"] == workload)
        .collect()
}

fn measure(scratch: &Scratch, suite: &str) -> (PathBuf, Command) {
    let file = scratch.path().join("suite.toml");
    std::fs::write(&file, suite).unwrap();
    let out = scratch.path().join("out");
    let mut command = ctxbench(["run", "--seed", "7", "--policy", "none"]);
    command.arg("--suite").arg(file);
    command.arg("--out").arg(&out);
    command.arg("--scratch").arg(scratch.path());
    (out, command)
}

#[test]
fn a_run_with_an_arm_that_is_always_wrong_reports_it_and_has_no_latency_of_it() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Answer]);
    let suite = r#"
essay = "Files behind a simulated model, which is always wrong."
rounds = 2
backends = ["direct", "llm-history-given", "llm-generate-given"]
call_timeout = 30.0
[[workload]]
name = "agent/shortened"
states = ["hot"]
[[workload]]
name = "micro/stat"
states = ["hot"]
[[workload]]
name = "micro/read-1k"
states = ["hot"]
"#;
    let (out, mut command) = measure(&lab.scratch, suite);
    let output = command
        .env("CTXBENCH_MODEL_URL", lab.server.base_url())
        .env("CTXBENCH_MODEL_NAME", "simulated")
        .env("CTXBENCH_API_KEY", KEY)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));

    let history = samples(&out, "llm-history-given", "agent/shortened");
    assert_eq!(history.len(), 2);
    for sample in &history {
        assert_eq!(sample["outcome"], "wrong-data");
        assert_eq!(sample["outcomes"]["wrong-data"], 5, "{sample}");
        assert_eq!(sample["outcomes"]["ok"], 7);
        assert_eq!(
            sample["calls"].get("read"),
            None,
            "wrong reads have no latency"
        );
        assert!(sample["waited_ns"].as_u64() > sample["makespan_ns"].as_u64());
        assert_eq!(sample["daemon"]["store"]["answers-simulated"], 5);
    }
    assert_eq!(
        lab.server.calls(),
        10,
        "a timed read asks once, and nothing else asks"
    );
    for sample in samples(&out, "llm-history-given", "micro/stat") {
        assert_eq!(sample["outcome"], "ok", "{sample}");
    }
    assert!(samples(&out, "llm-history-given", "micro/read-1k").is_empty());
    for workload in ["agent/shortened", "micro/stat", "micro/read-1k"] {
        let generate = samples(&out, "llm-generate-given", workload);
        assert_eq!(generate.len(), 2);
        assert!(
            generate.iter().all(|sample| sample["outcome"] == "ok"),
            "{generate:?}"
        );
    }

    let said = stdout(&output);
    assert!(
        said.contains("agent/shortened hot on llm-history-given: 41.7 % of calls did not end well, in 2 of 2 blocks"),
        "{said}"
    );
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    for part in [
        "| agent/shortened hot | llm-history-given | 2 of 2 |",
        "41.7 %",
        "answers simulated",
        "asks a model at each of its 256 reads",
    ] {
        assert!(report.contains(part), "no {part:?} in {report}");
    }
    let plan = std::fs::read_to_string(out.join("plan.toml")).unwrap();
    assert!(plan.contains("call_timeout_ms = 30000") && plan.contains("--call-timeout 30"));
    for text in [report, plan, said, stderr(&output)] {
        assert!(!text.contains(KEY));
    }
}

#[test]
fn without_a_model_the_live_arm_is_skipped_with_the_way_to_get_it() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Answer]);
    let suite = r#"
essay = "Files behind a model that is not installed."
rounds = 1
backends = ["direct", "llm-history"]
call_timeout = 60.0
[[workload]]
name = "micro/stat"
states = ["hot"]
[[workload]]
name = "agent/shortened"
states = ["hot"]
"#;
    let (out, mut command) = measure(&lab.scratch, suite);
    let output = command
        .env("CTXBENCH_MODEL", lab.path("missing.gguf"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    for part in [
        "skipped: llm-history-live:",
        "make model",
        "llm-history-recorded replays the answers of an earlier one",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(samples(&out, "llm-history-live", "micro/stat").is_empty());
    assert_eq!(samples(&out, "llm-history-recorded", "micro/stat").len(), 1);
    // The session's reads are replayed: no live model is asked, and none of them is missing.
    let session = samples(&out, "llm-history-recorded", "agent/shortened");
    assert_eq!(session.len(), 1);
    let store = &session[0]["daemon"]["store"];
    assert_eq!(store["answers-recorded"], 5, "{store}");
    assert_eq!(store["model-failures"], 0, "{store}");
    assert_eq!(store.get("answers-live"), None, "{store}");
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    let label = "the answers of llm-history-recorded are recorded";
    assert!(
        report.contains(label) && !report.contains("nothing on this page is simulated"),
        "{report}"
    );
}

#[test]
fn a_budget_in_dollars_stops_the_questions() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Say(
        r#"{"exists":true,"content":"right"}"#.to_owned(),
    )]);
    // A dollar for each token: the first answer spends more than there is.
    let price = ["--price", "1000000,1000000", "--max-cost", "2"];
    let mount = lab.mount("llm-history", &price);
    let (one, two) = (mount.dir.join("one"), mount.dir.join("two"));
    std::fs::write(&one, "right").unwrap();
    std::fs::write(&two, "right").unwrap();
    assert_eq!(std::fs::read_to_string(&one).unwrap(), "right");
    let refused = std::fs::read(&two).unwrap_err();
    assert_eq!(
        refused.raw_os_error(),
        Some(122),
        "EDQUOT: the budget is spent"
    );
    assert_eq!(lab.server.calls(), 1);
    // Nothing else needs the model.
    assert_eq!(std::fs::metadata(&two).unwrap().len(), 5);
    std::fs::write(&two, "more").unwrap();
    mount.end();
    assert!(lab.log().contains("--max-cost"), "{}", lab.log());
}

#[test]
fn the_committed_recording_gives_the_committed_page_again_without_a_model() {
    if !can_mount() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let scratch = Scratch::new();
    let out = scratch.path().join("out");
    let output = ctxbench(["model-files", "--histories", "2", "--replay-instantly"])
        .arg("--cassette")
        .arg(root.join("models/cassettes/smollm2-135m.jsonl"))
        .arg("--out")
        .arg(&out)
        .arg("--scratch")
        .arg(scratch.path())
        .env("CTXBENCH_MODEL", "/nonexistent")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let fidelity = |page: &str| -> Vec<String> {
        let lines = page
            .lines()
            .map(|line| line.replace("(live)", "(recorded)"));
        let rows = lines.skip_while(|line| !line.starts_with("## Fidelity"));
        let rows = rows.skip(1).take_while(|line| !line.starts_with("## "));
        // A recording keeps a question that was asked twice once, with the time of its first answer.
        let is_time = |cell: &str| cell.ends_with(" s (recorded) ");
        let without_times = |line: String| -> String {
            let cells = line.split('|').filter(|cell| !is_time(cell));
            cells.collect::<Vec<_>>().join("|")
        };
        let rows = rows.filter(|line| line.starts_with("| "));
        rows.map(without_times).collect()
    };
    let live = std::fs::read_to_string(root.join("docs/example/model-files/model-files.md"));
    let again = std::fs::read_to_string(out.join("model-files.md")).unwrap();
    let (live, again_rows) = (fidelity(&live.unwrap()), fidelity(&again));
    assert!(live.len() > 5, "{live:?}");
    assert_eq!(live, again_rows);
    assert!(again.contains("answers: **recorded**"), "{again}");
    assert!(
        again.contains("US$") && again.contains("computed from these tokens, not billed"),
        "{again}"
    );
}

#[test]
fn the_committed_recording_answers_all_that_a_run_asks_after_its_blocks() {
    if !can_mount() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let scratch = Scratch::new();
    let out = scratch.path().join("out");
    let output = ctxbench(["model-files", "--brief", "--replay-instantly", "--cassette"])
        .arg(root.join("models/cassettes/run.jsonl"))
        .arg("--out")
        .arg(&out)
        .arg("--scratch")
        .arg(scratch.path())
        .env("CTXBENCH_MODEL", "/nonexistent")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let found = std::fs::read_to_string(out.join("model-files.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["origin"], "recorded");
    for at in found["fidelity"].as_array().unwrap() {
        assert_eq!(at["unanswered"], 0, "{at}");
        assert!(at["calls"].as_u64().unwrap() > 0);
    }
    let page = std::fs::read_to_string(out.join("model-files.md")).unwrap();
    assert!(!page.contains("got no answer at all"), "{page}");
    let steps =
        ["history", "generate"].map(|mode| found[mode]["steps"].as_array().unwrap().clone());
    let asking: Vec<_> = steps
        .iter()
        .flatten()
        .filter(|step| step["calls"] != 0)
        .collect();
    assert!(asking.len() >= 5, "{asking:?}");
    for step in asking {
        assert_ne!(
            step["prompt_tokens"], 0,
            "the recording does not hold {step}"
        );
    }
}

/// Processes whose parent is `parent` and whose program's name holds `name`.
fn children(parent: u32, name: &str) -> Vec<String> {
    let found = Command::new("pgrep")
        .args(["-P", &parent.to_string(), "-f", name])
        .output()
        .unwrap();
    stdout(&found)
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_server_of_a_run_ends_with_it_however_that_ends() {
    if !can_mount() || models::find_model().is_err() || models::find_llama_server().is_err() {
        assert!(
            std::env::var_os("CTXBENCH_REQUIRE_MODEL").is_none(),
            "make model has not been run"
        );
        eprintln!("SKIPPED: no mounts or no local model; `make model` installs one");
        return;
    }
    let suite = r#"
essay = "A session behind the local model."
rounds = 5
backends = ["direct", "llm-history"]
call_timeout = 60.0
[[workload]]
name = "agent/shortened"
states = ["hot"]
"#;
    for signal in ["-INT", "-KILL"] {
        let scratch = Scratch::new();
        let (out, mut command) = measure(&scratch, suite);
        let mut run = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let id = run.id();
        // The plan's receipts have asked the program for its version, in a process of its own.
        common::wait_for("the plan", || out.join("plan.toml").exists());
        common::wait_for("the server", || !children(id, "llama-server").is_empty());
        let servers = children(id, "llama-server");
        assert_eq!(servers.len(), 1, "one server for all workspaces");
        let receipt = std::fs::read_to_string(out.join("plan.toml")).unwrap();
        assert!(receipt.contains(models::SMOLLM2.2) && receipt.contains("answers = \"live\""));
        let killed = Command::new("kill")
            .args([signal, &id.to_string()])
            .status();
        assert!(killed.unwrap().success());
        run.wait().unwrap();
        common::wait_for("the server's end", || {
            !Path::new(&format!("/proc/{}", servers[0])).exists()
        });
        common::wait_for("the end of the mounts", || {
            common::mounts_under(scratch.path()).is_empty()
        });
    }
}

#[test]
fn the_local_model_answers_and_its_server_ends_with_the_mount() {
    if !can_mount() {
        return;
    }
    if models::find_model().is_err() || models::find_llama_server().is_err() {
        assert!(
            std::env::var_os("CTXBENCH_REQUIRE_MODEL").is_none(),
            "make model has not been run"
        );
        eprintln!("SKIPPED: no local model; `make model` installs one");
        return;
    }
    let lab = Lab::new(vec![Behaviour::Answer]);
    let tree = lab.path("tree.json").display().to_string();
    let mut command = ctxbench(["mount", "llm-generate"]);
    let dir = lab.scratch.dir("mnt");
    command.arg(&dir).args([
        "--tree",
        &tree,
        "--no-cache",
        "--answer-tokens",
        "16",
        "--prompt",
        "A list of fruits",
    ]);
    let temporary = lab.scratch.dir("tmp");
    command.env("TMPDIR", &temporary);
    let mount = Mount::of(command, &dir);
    let mut text = String::new();
    std::fs::File::open(dir.join("a.txt"))
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert!(!text.trim().is_empty());
    assert_eq!(xattr(&dir.join("a.txt"), "user.llmfs.cut-off"), "1");
    let children = said(
        lab.scratch.path(),
        &format!("pgrep -P {}", mount.process.id()),
    );
    let servers: Vec<&str> = children.split_whitespace().collect();
    assert!(!servers.is_empty(), "the server is a child of the mount");
    mount.crash();
    common::wait_for("the server's end", || {
        servers
            .iter()
            .all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    });
    assert!(lab.log().contains("(live)"));
    let left = temporary.read_dir().unwrap().count();
    assert_eq!(left, 0, "a killed mount leaves files behind");
}
