//! The Python SDK in `sdk/python`: its own tests, with this build's program.

use std::path::Path;
use std::process::Command;

use crate::common::{CTXBENCH, Scratch, can_mount, installed, mounts_under, stderr};

/// A Python that the SDK supports. `CTXBENCH_REQUIRE_PYTHON`, set in CI, makes a missing one a failure.
fn python() -> Option<&'static str> {
    let supported = "import sys; sys.exit(sys.version_info < (3, 9))";
    let found = Command::new("python3").args(["-c", supported]).status();
    let is_there = found.is_ok_and(|status| status.success());
    let missing = "the Python SDK needs python3, version 3.9 or newer";
    installed(
        is_there.then_some("python3").ok_or(missing),
        "CTXBENCH_REQUIRE_PYTHON",
    )
}

fn sdk() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/python")
}

#[test]
fn the_python_sdk_passes_its_tests_with_this_program() {
    let (Some(python), true) = (python(), can_mount()) else {
        return;
    };
    let scratch = Scratch::new();
    let output = Command::new(python)
        .args(["-B", "-m", "unittest", "discover", "--verbose"])
        .arg(sdk().join("tests"))
        .env("CTXBENCH_BIN", CTXBENCH)
        .env("TMPDIR", scratch.path())
        .output()
        .unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    for part in ["test_memory", "test_mount", "test_runs", "test_state"] {
        assert!(said.contains(part), "{part} was not run: {said}");
    }
    // Where mounts are possible, only a frame library or a framework may be missing.
    for line in said.lines().filter(|line| line.contains("skipped '")) {
        eprintln!("SKIPPED: {line}");
        assert!(line.contains("is not installed"), "{line}");
    }
    assert!(mounts_under(scratch.path()).is_empty());
}

#[test]
fn the_python_sdk_has_the_version_of_the_program_and_no_dependency() {
    let project = std::fs::read_to_string(sdk().join("pyproject.toml")).unwrap();
    let project: toml::Table = project.parse().unwrap();
    let project = &project["project"];
    assert_eq!(project["version"].as_str(), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(project["dependencies"].as_array().map(Vec::len), Some(0));
}
