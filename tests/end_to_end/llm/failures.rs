//! Failed answers, content filters, signals, Ctrl-C.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{KEY, Lab, errno, said, sh, xattr};
use crate::common::{can_mount, has, lacks, stderr, words};
use models::Behaviour;
use rustix::fs::getxattr;

#[test]
fn a_program_that_retries_a_read_after_a_signal_causes_one_call() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::SayAfter(
        Duration::from_millis(1500),
        "at last\n".to_owned(),
    )]);
    let mut mount = lab.generate(&["--parallel", "8"]);
    let mut log = mount.process.stderr.take().unwrap();
    // Python handles the timer's signal and retries the read, as Go does.
    let timer = "import signal\nsignal.signal(signal.SIGALRM, lambda *_: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)\nprint(open('a.txt').read(), end='')";
    assert_eq!(
        said(&mount.dir, &format!("python3 -c \"{timer}\"")),
        "at last\n"
    );
    assert_eq!(lab.server.calls(), 1, "each signal asked anew");
    mount.end();
    // An interrupted call is a normal event and is not logged.
    let mut text = String::new();
    log.read_to_string(&mut text).unwrap();
    assert_eq!(text, "");
}

#[test]
fn a_signal_ends_a_change_that_waits_for_the_policy_and_other_calls_proceed() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Say(
        r#"{"allow":true,"reason":"yes"}"#.to_owned(),
    )]);
    let policy = words("--policy Everything. --parallel 8 --answer-timeout 300");
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
        // Python handles the signal.
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
        crate::common::wait_for("the policy being asked", || lab.server.calls() > before);
        // Other calls proceed in this directory and elsewhere. The kernel locks a directory during a create
        // or unlink, so listings and uncached names there wait.
        let started = Instant::now();
        said(dir, "stat sub/known other/file; ls other; ls .");
        assert!(started.elapsed() < Duration::from_secs(5), "{change}");
        let pid = rustix::process::Pid::from_raw(waiting.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let started = Instant::now();
        assert!(!waiting.wait().unwrap().success(), "{change}");
        assert!(started.elapsed() < Duration::from_secs(3), "{change}");
    }
    assert_eq!(said(dir, "ls sub"), "known\n", "nothing of it was done");
    mount.end();
}

#[test]
fn a_model_failure_is_an_error_number_and_never_an_empty_file() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Status(400, format!("wrong, {KEY}"), None)]);
    let mount = lab.generate(&["--answer-timeout", "1", "--max-tokens", "200", "--no-cache"]);
    let path = mount.dir.join("a.txt");
    assert_eq!(errno(&path), Some(5), "EIO");
    has(
        &xattr(&path, "user.llmfs.error"),
        &["refuses the request (400)"],
    );
    has(
        &stderr(&sh(&mount.dir, "cat a.txt")),
        &["Input/output error"],
    );

    lab.server.behave(vec![Behaviour::Hang]);
    let started = Instant::now();
    assert_eq!(errno(&path), Some(110), "ETIMEDOUT");
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(xattr(&path, "user.llmfs.error").contains("no answer within 1.0 s"));

    lab.server.behave(vec![Behaviour::Say(String::new())]);
    assert_eq!(errno(&path), Some(5), "what is empty is no answer");

    let filtered = Behaviour::Filtered("The beginn".to_owned());
    lab.server.behave(vec![filtered]);
    assert_eq!(errno(&path), Some(5), "what is filtered is no answer");
    has(&xattr(&path, "user.llmfs.error"), &["content filter"]);

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
    has(&log, &["/a.txt FAILED", "no answer within"]);
    for name in ["mnt.llmfs.log", "mnt.llmfs.json"] {
        let text = std::fs::read_to_string(lab.path(name)).unwrap();
        lacks(&text, &[KEY, "sk-this"]);
    }
}

#[test]
fn ctrl_c_ends_a_slow_read_and_a_mount_with_a_stuck_model() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Hang]);
    let mount = lab.generate(&["--answer-timeout", "300"]);
    let read = |name: &str| {
        let mut cat = Command::new("cat");
        cat.arg(mount.dir.join(name)).stderr(Stdio::null());
        cat.spawn().unwrap()
    };
    let mut cat = read("a.txt");
    crate::common::wait_for("the model being asked", || lab.server.calls() == 1);
    let pid = rustix::process::Pid::from_raw(cat.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let started = Instant::now();
    assert!(!cat.wait().unwrap().success());
    assert!(started.elapsed() < Duration::from_secs(3));

    // A read that still waits when the mount ends.
    let mut waiting = read("b.txt");
    crate::common::wait_for("the model being asked again", || lab.server.calls() == 2);
    let started = Instant::now();
    mount.signal(rustix::process::Signal::INT);
    let status = mount.wait();
    assert!(status.success(), "{status}");
    assert!(started.elapsed() < Duration::from_secs(20));
    let _ = waiting.kill();
    waiting.wait().unwrap();
    assert!(crate::common::mounts_under(lab.scratch.path()).is_empty());
}

#[test]
fn a_mount_asks_without_temperature_if_the_server_refuses_it() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::AnswerAsNewerModels]);
    let mount = lab.generate(&["--no-cache"]);
    said(&mount.dir, "cat a.txt b.txt");
    mount.end();
    let told = "sampling is the server's own: answers are not deterministic";
    assert_eq!(lab.log().matches(told).count(), 2, "{}", lab.log());
    assert_eq!(lab.server.calls(), 4, "what is refused is remembered");

    let out = lab.path("out");
    let output = lab.model_files(&out, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = std::fs::read_to_string(out.join("model-files.md")).unwrap();
    let told =
        "The server takes no temperature: sampling is its own, and answers are not deterministic.";
    has(&page, &[told]);
}
