//! Failed answers, content filters, signals, Ctrl-C.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{KEY, behaving, errno, said, saying, sh, xattr};
use crate::common::{has, lacks, mounts_under, signal, stderr, text_of, wait_for, words};
use models::Behaviour;
use rustix::fs::getxattr;
use rustix::process::Signal;

#[test]
fn a_program_that_retries_a_read_after_a_signal_causes_one_call() {
    let late = Behaviour::SayAfter(Duration::from_millis(1500), "at last\n".to_owned());
    let Some(lab) = behaving(late) else { return };
    let mount = lab.generate(&["--parallel", "8"]);
    // Python handles the timer's signal and retries the read, as Go does. At its end it would be killed by one.
    let timer = "import signal\nsignal.signal(signal.SIGALRM, lambda *_: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)\ntext = open('a.txt').read()\nsignal.setitimer(signal.ITIMER_REAL, 0)\nprint(text, end='')";
    let read = said(&mount.dir, &format!("python3 -c \"{timer}\""));
    assert_eq!(read, "at last\n");
    assert_eq!(lab.server.calls(), 1, "each signal asked again");
    // An interrupted call is a normal event and is not logged.
    assert_eq!(mount.end_with_log(), "");
}

#[test]
fn a_signal_ends_a_change_that_waits_for_the_policy_and_other_calls_proceed() {
    let answer = r#"{"allow":true,"reason":"yes"}"#;
    let Some(lab) = saying(answer) else { return };
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
        wait_for("the policy being asked", || lab.server.calls() > before);
        // Other calls proceed in this directory and elsewhere. The kernel locks a directory during a create
        // or unlink, so listings and uncached names there wait.
        let started = Instant::now();
        said(dir, "stat sub/known other/file; ls other; ls .");
        assert!(started.elapsed() < Duration::from_secs(60), "{change}");
        signal(&waiting, Signal::TERM);
        let started = Instant::now();
        assert!(!waiting.wait().unwrap().success(), "{change}");
        assert!(started.elapsed() < Duration::from_secs(60), "{change}");
    }
    assert_eq!(said(dir, "ls sub"), "known\n", "nothing of it was done");
    mount.end();
}

#[test]
fn a_model_failure_is_an_error_number_and_never_an_empty_file() {
    let wrong = Behaviour::Status(400, format!("wrong, {KEY}"), None);
    let Some(lab) = behaving(wrong) else { return };
    let mount = lab.generate(&["--answer-timeout", "5", "--max-tokens", "200", "--no-cache"]);
    let path = mount.dir.join("a.txt");
    let fails = |number: i32, reason: &str| {
        assert_eq!(errno(&path), Some(number), "{reason}");
        has(&xattr(&path, "user.llmfs.error"), &[reason]);
    };
    const EIO: i32 = 5;
    const ETIMEDOUT: i32 = 110;
    fails(EIO, "refuses the request (400)");
    let told = stderr(&sh(&mount.dir, "cat a.txt"));
    has(&told, &["Input/output error"]);

    lab.server.behave(vec![Behaviour::Hang]);
    let started = Instant::now();
    fails(ETIMEDOUT, "did not answer within 5.0 s");
    assert!(started.elapsed() < Duration::from_secs(60));

    lab.server.behave(vec![Behaviour::Say(String::new())]);
    assert_eq!(errno(&path), Some(EIO), "an empty answer is invalid");

    let filtered = Behaviour::Filtered("The beginn".to_owned());
    lab.server.behave(vec![filtered]);
    fails(EIO, "content filter");

    lab.server.behave(vec![Behaviour::Say("word ".repeat(200))]);
    assert_eq!(std::fs::read(&path).unwrap().len(), 1001);
    let reason = getxattr(&path, "user.llmfs.error", &mut [0; 100]);
    assert!(reason.is_err(), "it is well now");
    let other = mount.dir.join("b.txt");
    assert_eq!(errno(&other), Some(122), "EDQUOT: the budget is used up");
    has(&xattr(&other, "user.llmfs.error"), &["--max-tokens"]);
    mount.end();

    let log = lab.log();
    has(&log, &["/a.txt FAILED", "did not answer within"]);
    for name in ["mnt.llmfs.log", "mnt.llmfs.json"] {
        lacks(&text_of(lab.scratch.path(), name), &[KEY, "sk-this"]);
    }
}

#[test]
fn ctrl_c_ends_a_slow_read_and_a_mount_with_a_stuck_model() {
    let Some(lab) = behaving(Behaviour::Hang) else {
        return;
    };
    let mut mount = lab.generate(&["--answer-timeout", "300"]);
    let dir = mount.dir.clone();
    let read = |name: &str| {
        let mut cat = Command::new("cat");
        cat.arg(dir.join(name)).stderr(Stdio::null());
        cat.spawn().unwrap()
    };
    let mut cat = read("a.txt");
    wait_for("the model being asked", || lab.server.calls() == 1);
    signal(&cat, Signal::TERM);
    let started = Instant::now();
    assert!(!cat.wait().unwrap().success());
    assert!(started.elapsed() < Duration::from_secs(60));

    // A read that still waits when the mount ends.
    let mut waiting = read("b.txt");
    wait_for("the model being asked again", || lab.server.calls() == 2);
    signal(&mount.process, Signal::INT);
    wait_for("the end of the mount", || mount.process.try_wait().unwrap().is_some());
    assert!(mount.process.wait().unwrap().success());
    let _ = waiting.kill();
    waiting.wait().unwrap();
    assert!(mounts_under(lab.scratch.path()).is_empty());
}

#[test]
fn a_mount_asks_without_temperature_if_the_server_refuses_it() {
    let newer = Behaviour::AnswerAsNewerModels;
    let Some(lab) = behaving(newer) else { return };
    let mount = lab.generate(&["--no-cache"]);
    said(&mount.dir, "cat a.txt b.txt");
    mount.end();
    let told = "the server chooses the sampling, so answers are not deterministic";
    assert_eq!(lab.log().matches(told).count(), 2, "{}", lab.log());
    assert_eq!(lab.server.calls(), 4, "what is refused is remembered");

    let out = lab.path("out");
    let output = lab.model_files(&out, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let told = " The server accepts no temperature: it chooses the sampling itself, and answers are not deterministic.";
    has(&text_of(&out, "model-files.md"), &[told]);
}
