//! The SDKs in `sdk`: their own tests, with this build's program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{CTXBENCH, can_mount, has, installed, stderr, stdout};

fn sdk(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk").join(name)
}

/// Whether a command succeeds here. `required`, set in CI, makes a missing one a failure.
fn is_installed(program: &str, arguments: [&str; 2], missing: &str, required: &str) -> bool {
    let found = Command::new(program).args(arguments).status();
    let is_there = found.is_ok_and(|status| status.success());
    installed(is_there.then_some(()).ok_or(missing), required).is_some()
}

/// Runs an SDK's tests, which must succeed. They fail if a mount is left.
fn passes(tests: &mut Command) -> Output {
    let output = tests.env("CTXBENCH_BIN", CTXBENCH).output().unwrap();
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert!(output.status.success(), "{said}");
    output
}

/// The packages of frameworks that the SDKs have adapters for.
const ADAPTED: [&str; 7] = [
    "anthropic",
    "deepagents",
    "langgraph",
    "openai-agents",
    "@anthropic-ai/sdk",
    "@langchain/langgraph",
    "@openai/agents",
];

/// Checks that what a line reports as skipped is only a package that users may have. `CTXBENCH_REQUIRE_SDK_PACKAGES`, set in
/// CI, makes a missing one of an adapter a failure.
fn is_optional(line: &str) {
    let missing = |package: &&str| line.contains(&format!("{package} is not installed"));
    match ADAPTED.into_iter().find(missing) {
        Some(package) => {
            let missing = format!("the package {package} is missing: make sdk-packages ({line})");
            installed::<()>(Err(missing), "CTXBENCH_REQUIRE_SDK_PACKAGES");
        }
        None => {
            eprintln!("SKIPPED: {line}");
            assert!(line.contains("is not installed"), "{line}");
        }
    }
}

/// The Python that has the frameworks' packages, else that of the machine.
fn python() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/sdk/bin/python");
    if own.exists() { own } else { "python3".into() }
}

#[test]
fn the_python_sdk_passes_its_tests_with_this_program() {
    let supported = ["-c", "import sys; sys.exit(sys.version_info < (3, 9))"];
    let missing = "the Python SDK needs python3, version 3.9 or newer";
    let python = python();
    if !can_mount() || !is_installed(python.to_str().unwrap(), supported, missing, "CTXBENCH_REQUIRE_PYTHON") {
        return;
    }
    let mut tests = Command::new(python);
    tests.args(["-B", "-m", "unittest", "discover", "--verbose"]);
    let said = stderr(&passes(tests.arg(sdk("python").join("tests"))));
    has(
        &said,
        &[
            "test_anthropic",
            "test_deepagents",
            "test_langgraph",
            "test_memory",
            "test_mount",
            "test_openai_agents",
            "test_runs",
            "test_state",
        ],
    );
    said.lines().filter(|line| line.contains("skipped '")).for_each(is_optional);
}

#[test]
fn the_typescript_sdk_passes_its_tests_with_this_program() {
    let supported = ["-e", "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)"];
    let missing = "the TypeScript SDK needs node, version 20 or newer";
    if !can_mount() || !is_installed("node", supported, missing, "CTXBENCH_REQUIRE_NODE") {
        return;
    }
    let entries = std::fs::read_dir(sdk("typescript").join("tests")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let files = files.filter(|file| file.to_string_lossy().ends_with(".test.js"));
    let mut tests = Command::new("node");
    tests.args(["--test", "--test-reporter=tap", "--test-concurrency=1"]);
    let said = stdout(&passes(tests.args(files)));
    has(
        &said,
        &[
            "source 3's listing",
            "an option reaches",
            "store of LangGraph",
            "Anthropic's documentation",
            "the package's session",
        ],
    );
    said.lines().filter(|line| line.contains("# SKIP")).for_each(is_optional);
}

#[test]
fn an_sdk_has_the_version_of_the_program_and_no_dependency() {
    let read = |file: &str| std::fs::read_to_string(sdk(file)).unwrap();
    let python: toml::Table = read("python/pyproject.toml").parse().unwrap();
    let python = &python["project"];
    let node: serde_json::Value = serde_json::from_str(&read("typescript/package.json")).unwrap();
    let version = Some(env!("CARGO_PKG_VERSION"));
    assert_eq!(python["version"].as_str(), version);
    assert_eq!(node["version"].as_str(), version);
    assert_eq!(python["dependencies"].as_array().map(Vec::len), Some(0));
    assert!(node.get("dependencies").is_none());
}
