//! Backends without code, as a user brings them.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Scratch, ctxbench, is_root, mounts_under, run, stderr, stdout};

/// The one TOML block of the page that says how to add a file system of somebody else.
fn documented() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ADDING-A-BACKEND.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, after) = page.split_once("```toml\n").unwrap();
    after.split_once("```").unwrap().0.to_owned()
}

fn write(scratch: &Scratch, text: &str) -> PathBuf {
    let file = scratch.path().join("my-bind.toml");
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn the_documented_example_is_measured_like_every_other_backend() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let file = write(&scratch, &documented());
    let results = scratch.path().join("run");
    let output = ctxbench(["run", "--workload", "micro/read-1k", "--state", "hot"])
        .args(["--rounds", "1", "--backend"])
        .arg(&file)
        .arg("--scratch")
        .arg(scratch.dir("work"))
        .arg("--out")
        .arg(&results)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report = fs::read_to_string(results.join("report.md")).unwrap();
    assert!(report.contains("my-bind"), "{report}");
    let samples = fs::read_to_string(results.join("samples.jsonl")).unwrap();
    let mine: Vec<&str> = samples
        .lines()
        .filter(|line| line.contains("my-bind"))
        .collect();
    assert!(
        !mine.is_empty() && mine.iter().all(|line| line.contains("\"ok\"")),
        "{mine:?}"
    );
    assert!(mounts_under(scratch.path()).is_empty());
}

#[test]
fn any_directory_is_loaded_and_left_as_it_was() {
    let scratch = Scratch::new();
    let theirs = scratch.dir("theirs");
    let output = ctxbench([
        "load",
        "directory",
        "--processes",
        "2",
        "--seconds",
        "1",
        "--rounds",
        "1",
    ])
    .arg("--scratch")
    .arg(scratch.dir("work"))
    .env("CTXBENCH_DIRECTORY", &theirs)
    .output()
    .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stdout(&output)
            .lines()
            .any(|line| line.starts_with("directory"))
    );
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);

    let output = ctxbench(["load", "directory", "--rounds", "1", "--seconds", "1"])
        .env_remove("CTXBENCH_DIRECTORY")
        .output()
        .unwrap();
    assert!(
        stderr(&output).contains("directory is left out: CTXBENCH_DIRECTORY is not set"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_is_wrong_with_a_file_is_named() {
    let scratch = Scratch::new();
    let wrong = |text: &str| {
        let file = write(&scratch, text);
        let output = run([Path::new("conform"), &file]);
        assert!(!output.status.success());
        stderr(&output)
    };
    let typo = wrong(&documented().replace("unmount =", "umount ="));
    assert!(
        typo.contains("my-bind.toml:8: unknown field `umount`"),
        "{typo}"
    );
    let variable = wrong(&documented().replace("{data}", "{datum}"));
    assert!(
        variable.contains("there is no variable `datum`"),
        "{variable}"
    );
    let missing = stderr(&run(["conform", "no-such-file.toml"]));
    assert!(
        missing.contains("no-such-file.toml: No such file"),
        "{missing}"
    );
    let unknown = stderr(&run(["conform", "sqlight"]));
    assert!(
        unknown.contains("there is no such backend; there are direct, null, memory, sqlite"),
        "{unknown}"
    );
}
