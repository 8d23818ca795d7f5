//! Real programs as workloads: what is checked, and what is skipped.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Scratch, as_root, can_mount, has, lines, measure, mountable, signal, stderr, text_of, wait_up_to};
use rustix::process::Signal;
use serde_json::Value;

/// Runs a workload hot in a directory, and returns the run directory.
fn hot(scratch: &Scratch, workload: &str) -> PathBuf {
    let line = "--state hot --backend direct --budget 60 --epochs 3 --rounds 2 --no-probes \
                --policy none --workload";
    let (out, mut command) = measure(scratch, line);
    let output = command.arg(workload).output().unwrap();
    let has_run = matches!(output.status.code(), Some(0 | 1));
    assert!(has_run, "{}", stderr(&output));
    out
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
    for (output, outcome) in [("f0000.txt\\nf0001.txt\\n", "ok"), ("f0000.txt\\n", "wrong-data")] {
        let scratch = Scratch::new();
        let file = listing(&scratch, "ls", output);
        let samples = lines(&hot(&scratch, &file), "samples.jsonl");
        assert!(!samples.is_empty());
        for sample in samples {
            assert_eq!(sample["outcome"], outcome, "{sample}");
            if outcome != "ok" {
                let reason = sample["reason"].as_str().unwrap();
                has(reason, &["run `ls src/d00`: printed"]);
            }
        }
    }
}

#[test]
fn a_named_workload_whose_need_is_not_met_is_refused_with_its_package() {
    let missing = "no-such-program is not installed: `apt-get install a-package`";
    let option = "'ls --no-such-option' = 'b-package', ";
    let fails = "`ls --no-such-option` fails: `apt-get install b-package`";
    for (program, more, reason) in [("no-such-program", "", missing), ("ls", option, fails)] {
        let scratch = Scratch::new();
        let file = listing(&scratch, program, "");
        let text = fs::read_to_string(&file).unwrap();
        let needs = text.replace("needs = { ", &format!("needs = {{ {more}"));
        fs::write(&file, needs).unwrap();
        let line = "--state hot --backend direct --no-probes --policy none --workload";
        let (out, mut command) = measure(&scratch, line);
        let output = command.arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        has(&stderr(&output), &[reason]);
        assert!(!out.exists());
    }
}

/// Measures workloads for one epoch of a warm-up and one round, and returns the passes of `direct` and `backends`. A
/// workload whose programs are not installed is reported and left out.
fn once(workloads: &[&str], state: &str, backends: &[&str]) -> Vec<Value> {
    let scratch = Scratch::new();
    let line = "--budget 120 --rounds 1 --no-probes --policy none --call-timeout 60";
    let (out, mut command) = measure(&scratch, line);
    command.args(["--state", state]);
    for workload in workloads {
        command.args(["--workload", workload]);
    }
    for backend in backends {
        command.args(["--backend", backend]);
    }
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Debug builds beside three other tests: package managers take more than a minute.
    wait_up_to(Duration::from_secs(300), "the first epoch", || {
        fs::read_to_string(out.join("epochs.jsonl")).is_ok_and(|text| text.contains('\n'))
            || child.try_wait().unwrap().is_some()
    });
    // A run with nothing to measure has ended. Two more epochs of any other would measure the same.
    if child.try_wait().unwrap().is_none() {
        signal(&child, Signal::INT);
    }
    let output = child.wait_with_output().unwrap();
    let has_run = matches!(output.status.code(), Some(0 | 1 | 130));
    assert!(has_run, "{}", stderr(&output));
    if !out.exists() {
        let refused = stderr(&output);
        has(&refused, &["apt-get install"]);
        eprintln!("SKIPPED: {workloads:?}: {refused}");
        return Vec::new();
    }
    let plan: toml::Value = toml::from_str(&text_of(&out, "plan.toml")).unwrap();
    let samples = lines(&out, "samples.jsonl");
    for workload in plan["workloads"].as_array().unwrap() {
        let name = workload["name"].as_str().unwrap();
        for arm in ["direct"].iter().chain(backends) {
            let is_own = |row: &toml::Value| row["workload"].as_str() == Some(name) && row["arm"].as_str() == Some(arm);
            let skipped = plan.get("skipped").and_then(toml::Value::as_array);
            if let Some(skipped) = skipped.into_iter().flatten().find(|row| is_own(row)) {
                let reason = skipped["reason"].as_str().unwrap();
                assert!(reason.contains("apt-get install"), "{name}: {reason}");
                eprintln!("SKIPPED: {name} on {arm}: {reason}");
                continue;
            }
            let passes = samples.iter();
            let passes = passes.filter(|pass| pass["workload"] == name && pass["arm"] == *arm);
            assert!(passes.clone().count() > 0, "{name} on {arm}");
            let bad = passes.clone().find(|pass| pass["outcome"] != "ok");
            assert_eq!(bad, None, "{name} on {arm}");
        }
    }
    samples
}

#[test]
fn programs_leave_the_same_tree_on_every_mount() {
    if !can_mount() {
        return;
    }
    let workloads = ["tree", "git", "python", "database"].map(|name| format!("program/{name}"));
    let workloads = workloads.each_ref().map(String::as_str);
    once(&workloads, "hot", &["memory", "sqlite", "s3-embedded"]);
}

/// A built-in workload file, changed by these replacements.
fn changed(scratch: &Scratch, text: &str, replacements: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (from, to) in replacements {
        assert!(text.contains(from), "no {from} in {text}");
        text = text.replace(from, to);
    }
    // A file with other content cannot have the name of a built-in workload.
    let named = text.replacen("name = \"program/", "name = \"program/changed-", 1);
    assert_ne!(named, text);
    let file = scratch.path().join("changed.toml");
    fs::write(&file, named).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_tree_of_many_files_is_cloned_and_removed_on_every_mount() {
    let Some(scratch) = mountable() else { return };
    // 200 of 10,000 files: a disk that discards freed blocks at once takes minutes to remove all.
    let large = include_str!("../../workloads/program/large.toml");
    let all = "6bc73b7b43c04416b9d1a40696eb1bc52dd2badb";
    let few = "5b50d09c6c8c57361332c6d6ed121b9a9f533b28";
    let replacements = [("files = 10000", "files = 200"), (all, few)];
    let large = changed(&scratch, large, &replacements);
    once(&[&large], "hot", &["memory", "sqlite", "s3-embedded"]);
}

#[test]
fn package_managers_install_the_same_on_every_mount() {
    let Some(scratch) = mountable() else { return };
    // 20 of 450 packages: npm takes seconds for all of them.
    let npm = include_str!("../../workloads/program/npm.toml");
    let all = "8d4761226ca90792e257b3bbeee1c6a7732b26f011beb7a2e05741496744979f";
    let few = "d0427b28c790b3c74c3361dc92761c1f0dbcf4a80cf464f10b27dbc2d4a08759";
    let counts = [("range(450)", "range(20)"), ("n < 450", "n < 20"), (all, few)];
    let npm = changed(&scratch, npm, &counts);
    once(&[&npm], "hot", &["memory", "s3-embedded"]);
    once(&["program/cargo"], "hot", &["memory", "s3-embedded"]);
    once(&["program/pip", "program/venv"], "hot", &["memory"]);
}

#[test]
fn editors_logs_and_parallel_programs_lose_nothing() {
    if !can_mount() {
        return;
    }
    let workloads = ["program/editors", "program/log", "program/node", "program/parallel", "program/rsync"];
    once(&workloads, "hot", &["memory", "s3-embedded"]);
}

#[test]
fn git_finds_a_repository_unchanged_after_the_caches_were_dropped() {
    if as_root().is_none() {
        return;
    }
    let samples = once(&["program/git-cold"], "lukewarm", &["memory"]);
    let mut timed = samples.iter().filter_map(|pass| pass["calls"].as_object());
    assert!(timed.all(|calls| calls.keys().eq(["log", "status"])));
}
