//! The example is a program with a store of its own, as one outside this repository: it is mounted and used.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The example, which Cargo puts beside the directory of this test's program.
fn example() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let example = tests.parent().unwrap().parent().unwrap().join("examples/map");
    assert!(example.exists(), "{} is missing (cargo build -p fuse --examples)", example.display());
    example
}

#[test]
fn a_program_with_a_store_of_its_own_serves_files() {
    if let Err(error) = fuse::check_device() {
        assert!(std::env::var_os("CTXBENCH_REQUIRE_FUSE").is_none(), "{error}");
        eprintln!("SKIPPED: {error}");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let mut map = Command::new(example()).arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(map.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");

    fs::write(dir.join("a"), "one").unwrap();
    fs::write(dir.join("b"), "two").unwrap();
    fs::write(dir.join("a"), "three").unwrap();
    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "three");
    fs::remove_file(dir.join("b")).unwrap();
    let names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a"]);
    assert_eq!(fs::create_dir(dir.join("c")).unwrap_err().raw_os_error(), Some(95), "EOPNOTSUPP");

    drop(map.stdin.take());
    assert!(map.wait().unwrap().success());
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "it is unmounted");
}
