//! Real programs as workloads: what is checked, and what is skipped.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Scratch, can_mount, run, stderr};
use serde_json::Value;

/// Runs a workload hot, and returns the run directory.
fn measure(scratch: &Scratch, workload: &str, backends: &[&str]) -> PathBuf {
    let out = scratch.path().join("run");
    let mut arguments = vec!["run", "--state", "hot", "--workload", workload];
    for backend in backends {
        arguments.extend(["--backend", backend]);
    }
    arguments.extend(["--budget", "1", "--epochs", "3", "--rounds", "2"]);
    arguments.extend(["--no-probes", "--policy", "none"]);
    let (out_text, scratch_text) = (out.to_str().unwrap(), scratch.path().to_str().unwrap());
    arguments.extend(["--out", out_text, "--scratch-dir", scratch_text]);
    let output = run(arguments);
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "{}",
        stderr(&output)
    );
    out
}

fn samples(run: &Path) -> Vec<Value> {
    // Without a pass there is no such file.
    let text = fs::read_to_string(run.join("samples.jsonl")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A workload file whose one program lists a directory of two files.
fn listing(scratch: &Scratch, program: &str, output: &str) -> String {
    let file = scratch.path().join("listing.toml");
    let essay = "A test of what is checked after a program has run: its standard output, its exit status and the tree.";
    let text = format!(
        "name = 'program/listing'\nessay = '{essay}'\nstates = ['hot']\n[program]\nneeds = {{ {program} = 'a-package' }}\n\
         [program.tree]\ndirectory = 'src'\ndirectories = 1\nfiles = 2\nbytes = 50\nextension = 'txt'\nseed = 1\n\
         [[program.step]]\nrun = ['{program}', 'src/d00']\nkind = 'find'\noutput = \"{output}\"\n"
    );
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_program_that_prints_something_else_is_wrong_data() {
    for (output, outcome) in [
        ("f0000.txt\\nf0001.txt\\n", "ok"),
        ("f0000.txt\\n", "wrong-data"),
    ] {
        let scratch = Scratch::new();
        let file = listing(&scratch, "ls", output);
        let samples = samples(&measure(&scratch, &file, &["direct"]));
        assert!(!samples.is_empty());
        for sample in samples {
            assert_eq!(sample["outcome"], outcome, "{sample}");
            if outcome != "ok" {
                let reason = sample["reason"].as_str().unwrap();
                assert!(reason.contains("run `ls src/d00`: printed"), "{reason}");
            }
        }
    }
}

#[test]
fn a_program_that_is_not_installed_is_skipped_with_its_package() {
    let scratch = Scratch::new();
    let file = listing(&scratch, "no-such-program", "");
    let run = measure(&scratch, &file, &["direct"]);
    let plan = fs::read_to_string(run.join("plan.toml")).unwrap();
    let reason = "no-such-program is not installed: `apt-get install a-package`";
    assert!(plan.contains(reason), "{plan}");
    assert!(samples(&run).is_empty());
}

#[test]
fn programs_leave_the_same_tree_on_every_mount() {
    if !can_mount() {
        return;
    }
    for workload in [
        "program/tree",
        "program/git",
        "program/python",
        "program/database",
    ] {
        let scratch = Scratch::new();
        let samples = samples(&measure(&scratch, workload, &["memory", "sqlite"]));
        for arm in ["direct", "memory", "sqlite"] {
            let mut own = samples.iter().filter(|sample| sample["arm"] == arm);
            assert!(own.clone().count() > 3, "{workload} on {arm}");
            let bad = own.find(|sample| sample["outcome"] != "ok");
            assert_eq!(bad, None, "{workload} on {arm}");
        }
    }
}
