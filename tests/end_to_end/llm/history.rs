//! `llm-history`: its log, its policy, and its conformance with an exact model.

use std::path::Path;
use std::process::Command;

use super::{behaving, errno, oracle, said, saying};
use crate::common::{Mount, Succeeds, as_root, has, sh, stderr, stdout};
use models::Behaviour;

#[test]
fn a_history_with_an_exact_model_conforms_to_a_plain_file_system() {
    let exact = Behaviour::By(|request| oracle::answer(request["messages"][1]["content"].as_str().unwrap()));
    let Some(lab) = behaving(exact) else { return };
    // The question contains the whole log, up to the longest possible question.
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
    // A file without a prompt works like any other file.
    assert_eq!(generate, plain);
    // Features that no answer can provide, as docs/LLM.md says.
    let exceptions = [
        // The backend cannot ask about a file without a name.
        "rename replaces, and the replaced stays readable",
        "links unlinked while open: readable, writable, gone after",
        // An answer is text and no longer than the longest question.
        "content large files: 3 MB byte for byte",
        "content sparse files: holes read as zeros and take no space",
        // The kernel caches no pages of direct reads. The last word is on the next line.
        "content `SEEK_DATA` hides nothing that a live map has",
        "content fallocate: punch a hole, zero a range",
        "content mmap: shared writes reach the file",
        "content mmap: writes by others show in the map",
    ];
    let fails = history.iter().filter(|line| !plain.contains(line));
    let fails: Vec<&str> = fails.map(|line| line.trim_end_matches(" FAILS")).collect();
    assert_eq!(fails, exceptions);
}

/// The failures that `ctxbench conform` reports for a directory, one per line.
fn conformance(dir: &Path) -> Vec<String> {
    let output = crate::common::conform(["--path".as_ref(), dir.as_os_str()]);
    let table = stdout(&output);
    assert!(table.contains("works"), "{}", stderr(&output));
    let failing = table.lines().filter(|line| line.contains("FAILS"));
    let failing = failing.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    failing.collect()
}

#[test]
fn a_history_asks_the_model_for_content_only() {
    let answer = |text| serde_json::json!({"exists": true, "content": text}).to_string();
    let Some(lab) = saying(&answer("guessed\n")) else {
        return;
    };
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
    let asked = lab.server.requests();
    let question = asked[0]["messages"][1]["content"].as_str().unwrap();
    let lines = [
        "create /a",
        "write /a at 0: \"hello\\n\"",
        "write /a at 6: \"more\\n\"",
        "rename /a to /d/b",
        "truncate /d/b to 8 bytes",
    ];
    has(question, &lines);
    let size = dir.join("d/b").metadata().unwrap().len();
    assert_eq!(size, 8, "attributes come from the interpreter");
    let unusable = Behaviour::Say("no JSON".to_owned());
    lab.server.behave(vec![unusable]);
    assert_eq!(errno(&dir.join("d/b")), Some(5));
    mount.crash();

    lab.server.behave(vec![Behaviour::Say(answer("again\n"))]);
    let mount = lab.mount("llm-history", &["--log-db", &log]);
    assert_eq!(said(&mount.dir, "ls d; cat d/b"), "b\nagain\n");
    let question = lab.server.requests().last().unwrap()["messages"][1]["content"].to_string();
    has(&question, &["rename /a to /d/b"]);
    mount.end();

    let text = "this is not a database, but long enough to be looked at";
    std::fs::write(lab.path("other.db"), text).unwrap();
    let other = lab.path("other.db").display().to_string();
    let mut refused = lab.command("llm-history", &["--log-db", &other]);
    has(&stderr(&refused.output().unwrap()), &["other.db"]);
}

#[test]
fn a_history_whose_log_can_only_be_read_is_mounted_read_only_and_leaves_no_file() {
    if as_root().is_none() {
        return;
    }
    let answer = serde_json::json!({"exists": true, "content": "guessed\n"}).to_string();
    let Some(lab) = saying(&answer) else { return };
    let (disk, ro) = (lab.scratch.dir("disk"), lab.scratch.dir("ro"));
    std::fs::create_dir(disk.join("mnt")).unwrap();
    let mount = |dir: &Path| {
        let mut command = Command::new(crate::common::CTXBENCH);
        command.args(["mount", "llm-history"]).arg(dir.join("mnt"));
        lab.ask_server(&mut command).arg("--log-db");
        command.arg(dir.join("log.db"));
        command
    };
    let writable = Mount::of(mount(&disk), &disk.join("mnt"));
    said(&writable.dir, "echo hello > a; mkdir d");
    writable.end();
    std::fs::remove_file(disk.join("mnt.llmfs.log")).unwrap();
    let mut bind = Command::new("mount");
    bind.args(["--bind", "--make-private", "-o", "ro"]);
    bind.arg(&disk).arg(&ro).succeeds();
    let files = || said(&disk, "ls -lRA --time-style=full-iso; sha256sum log.db*");
    let before = files();

    let mut read_only = Mount::of(mount(&ro), &ro.join("mnt"));
    let notes = ["read-only: its file system is read-only", "requests to the model are not logged: "];
    has(&(read_only.said() + &read_only.said()), &notes);
    assert_eq!(said(&read_only.dir, "ls; cat a"), "a\nd\nguessed\n");
    for change in ["echo > new", "echo >> a", "rm a", "mkdir e", "touch a"] {
        let refused = sh(&read_only.dir, change);
        has(&stderr(&refused), &["Read-only file system"]);
    }
    read_only.end();
    assert_eq!(files(), before);

    let killed = Mount::of(mount(&disk), &disk.join("mnt"));
    said(&killed.dir, "echo late > b");
    killed.crash();
    Command::new("umount").arg(disk.join("mnt")).succeeds();
    std::fs::remove_file(disk.join("mnt.llmfs.log")).unwrap();
    let before = files();
    let refused = mount(&ro).output().unwrap();
    has(&stderr(&refused), &["read-only", "copy all files"]);
    assert_eq!(files(), before);
    Command::new("umount").arg(&ro).succeeds();
}
