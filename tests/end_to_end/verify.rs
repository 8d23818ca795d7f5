//! Results that others can check: `verify` finds planted changes, and the shards of a plan merge into one run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{
    Scratch, Succeeds, as_root, ctxbench, has, json_of, lines, refused, stderr, stdout, suite, suite_run, text_of,
};

/// A suite of a few small cells, which gets a full report.
fn small() -> String {
    suite(
        "budget = 1\nrounds = 1",
        &["direct", "memory", "sqlite"],
        &[("micro/stat", &["hot", "lukewarm"]), ("micro/create-1k", &["hot"]), ("agent/vsm-cycle", &["hot"])],
    )
}

/// A histogram of a few calls. Passes on a busy machine have none, so the test brings its own.
const OTHER_CALLS: &str = "HISTFAAAACV4nJNpmSzMwMDAwgABzFCaEch0M9ixgMH+A0SgtYuJCQBjsQVi";

/// What `verify` prints as JSON, and whether it found nothing.
fn verified(dir: &Path) -> (bool, Value) {
    let mut command = ctxbench(["verify", "--format", "json"]);
    let output = command.arg(dir).output().unwrap();
    let found: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    assert_eq!(output.status.success(), found["holds"] == true, "{found}");
    (output.status.success(), found)
}

/// The differences that `verify` finds, each as `FILE FIELD: stated STATED`.
fn differences(dir: &Path) -> Vec<String> {
    let (_, found) = verified(dir);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let found = found["differences"].as_array().unwrap();
    let found = found.iter().map(|one| {
        let [file, field, stated] = ["file", "field", "stated"].map(|name| text(&one[name]));
        assert!(!text(&one["row"]).is_empty() && !text(&one["recomputed"]).is_empty(), "{one}");
        format!("{file} {field}: stated {stated}")
    });
    found.collect()
}

fn copy(from: &Path, to: &Path) {
    Command::new("cp").arg("-a").arg(from).arg(to).succeeds();
}

fn change(dir: &Path, name: &str, change: impl FnOnce(String) -> String) {
    let text = text_of(dir, name);
    let changed = change(text.clone());
    assert_ne!(text, changed, "{name} was not changed");
    fs::write(dir.join(name), changed).unwrap();
}

/// Changes the last digit of the first number that follows a text.
fn other_digit(text: &str, after: &str) -> String {
    let start = text.find(after).unwrap_or_else(|| panic!("no {after}")) + after.len();
    let first = start + text[start..].find(|c: char| c.is_ascii_digit()).unwrap();
    let digit = if &text[first..=first] == "7" { "6" } else { "7" };
    format!("{}{digit}{}", &text[..first], &text[first + 1..])
}

/// Writes lines of JSON.
pub fn put_lines(dir: &Path, name: &str, lines: &[Value]) {
    let text = lines.iter().map(|line| format!("{line}\n"));
    fs::write(dir.join(name), text.collect::<String>()).unwrap();
}

fn renumbered(mut samples: Vec<Value>) -> Vec<Value> {
    for (order, sample) in samples.iter_mut().enumerate() {
        sample["order"] = order.into();
    }
    samples
}

#[test]
fn verify_finds_each_planted_change_and_passes_an_untouched_run() {
    let Some(scratch) = as_root() else { return };
    let out = scratch.path().join("run");
    suite_run(&scratch, &small(), &out).succeeds();
    let (holds, found) = verified(&out);
    assert!(holds, "{found:#}");
    assert!(found["compared"]["values"].as_u64() > Some(1000), "{found}");
    let output = ctxbench(["verify"]).arg(&out).succeeds();
    has(&stdout(&output), &["no difference", "passes"]);

    // One file of it, with the hashes of its records.
    let file = scratch.path().join("run.json");
    ctxbench(["submit", "--out"]).arg(&file).arg(&out).succeeds();
    let submitted: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert!(!submitted["cells"].as_array().unwrap().is_empty());
    let samples = inputs::sha256_of(&out.join("samples.jsonl")).unwrap();
    assert_eq!(submitted["records"]["samples.jsonl"], samples.as_str());
    let records = out.join("samples.jsonl");
    let [within, of_run] = [&records, &out].map(|path| path.to_str().unwrap());
    has(&refused(&["submit", "--out", within, of_run]), &["could replace a file"]);
    assert_eq!(inputs::sha256_of(&records).unwrap(), samples);
    let linked = scratch.path().join("linked");
    copy(&out, &linked);
    std::os::unix::fs::symlink("/dev/zero", linked.join("faults.jsonl")).unwrap();
    let [elsewhere, with_link] =
        [&scratch.path().join("x.json"), &linked].map(|path| path.to_str().unwrap().to_owned());
    has(&refused(&["submit", "--out", &elsewhere, &with_link]), &["faults.jsonl", "symbolic link"]);
    let ratios = scratch.path().join("ratios.json");
    let for_bencher = ["submit", "--for", "bencher", "--out"];
    ctxbench(for_bencher).arg(&ratios).arg(&out).succeeds();
    has(&fs::read_to_string(&ratios).unwrap(), &["\"lower_value\""]);

    // A copy elsewhere is the same run.
    let published = scratch.path().join("published");
    copy(&out, &published);
    assert_eq!(differences(&published), Vec::<String>::new());

    // One figure in each published file.
    let log = "hist/micro-stat.hot.sqlite.hlog";
    for (name, after) in [
        ("cells.csv", "micro/stat,hot,stat,sqlite,"),
        ("passes.csv", "\n"),
        ("costs.csv", "micro/stat,hot,sqlite,"),
        ("claims.csv", "\n"),
        ("contexts.csv", "agent/vsm-cycle"),
        ("report.json", "\"typical_ns\": "),
        ("report.md", "passes in "),
        ("report.html", "passes in "),
        ("charts/latency.svg", "<text x=\""),
    ] {
        change(&published, name, |text| other_digit(&text, after));
    }
    let [file, damaged] = [&file, &published].map(|path| path.to_str().unwrap());
    let reason = refused(&["submit", "--out", file, damaged]);
    has(&reason, &["cells.csv", "ctxbench verify"]);
    change(&published, log, |text| text + "0.000,1.000,1.000,HISTFAAA\n");
    change(&published, "passes/micro-stat.hot.csv", |text| {
        let end = text.trim_end().rfind('\n').unwrap() + 1;
        text[..end].to_owned()
    });
    fs::remove_file(published.join("decisions.csv")).unwrap();
    fs::copy(published.join(log), published.join("hist/mine.hlog")).unwrap();
    let found = differences(&published);
    for name in [
        "cells.csv",
        "passes.csv",
        "costs.csv",
        "claims.csv",
        "contexts.csv",
        "report.json typical_ns",
        "report.md",
        "report.html",
        "charts/latency.svg",
        log,
        "passes/micro-stat.hot.csv",
        "decisions.csv",
        "hist/mine.hlog",
    ] {
        let of_file = found.iter().filter(|one| one.starts_with(name));
        assert_eq!(of_file.count(), 1, "{name}: {found:#?}");
    }
    assert_eq!(found.len(), 13, "{found:#?}");

    // Changes of the records that a new report then follows.
    type Plant = fn(&Path);
    // The last column says that records contradict each other or are missing, so that no report is made of the others.
    let plants: [(&str, Plant, &str, bool); 7] = [
        (
            "another seed",
            |dir| {
                change(dir, "plan.toml", |text| {
                    text.replace("seed = 7\n", "seed = 8\n").replace("--seed 7 ", "--seed 8 ")
                })
            },
            "samples.jsonl",
            false,
        ),
        (
            "a wider margin",
            |dir| change(dir, "plan.toml", |text| text.replace("relative = 0.05", "relative = 0.5")),
            "plan.toml margins.relative: stated 0.5",
            false,
        ),
        (
            "a removed pass",
            |dir| {
                let mut samples = lines(dir, "samples.jsonl");
                let at = samples.iter().rposition(|pass| pass["arm"] == "sqlite").unwrap();
                samples.remove(at);
                put_lines(dir, "samples.jsonl", &renumbered(samples));
            },
            "cells.jsonl timed_us",
            true,
        ),
        (
            "a histogram of other calls",
            |dir| {
                let mut cells = lines(dir, "cells.jsonl");
                let of_stat = |cell: &&mut Value| cell["workload"] == "micro/stat";
                let cell = cells.iter_mut().find(of_stat).unwrap();
                cell["latencies"] = serde_json::json!({"stat": OTHER_CALLS});
                put_lines(dir, "cells.jsonl", &cells);
            },
            "cells.jsonl latencies.",
            true,
        ),
        (
            "an epoch without its line",
            |dir| {
                let mut epochs = lines(dir, "epochs.jsonl");
                epochs.remove(1);
                put_lines(dir, "epochs.jsonl", &epochs);
            },
            "epochs.jsonl epoch: stated no line of this epoch",
            true,
        ),
        (
            "a run that was cut short",
            |dir| {
                for name in ["samples.jsonl", "cells.jsonl", "epochs.jsonl"] {
                    let mut all = lines(dir, name);
                    all.retain(|line| line["epoch"] != 2);
                    put_lines(dir, name, &all);
                }
            },
            "epochs.jsonl lines: stated 2 epochs",
            false,
        ),
        (
            "an epoch that was dropped",
            |dir| {
                for name in ["samples.jsonl", "cells.jsonl", "epochs.jsonl"] {
                    let mut all = lines(dir, name);
                    all.retain(|line| line["epoch"] != 0);
                    for line in &mut all {
                        line["epoch"] = (line["epoch"].as_u64().unwrap() - 1).into();
                    }
                    let all = if name == "samples.jsonl" { renumbered(all) } else { all };
                    put_lines(dir, name, &all);
                }
            },
            "epochs.jsonl lines: stated 2 epochs",
            false,
        ),
    ];
    for (number, (what, plant, expected, is_refused)) in plants.into_iter().enumerate() {
        let dir = scratch.path().join(format!("planted-{number}"));
        copy(&out, &dir);
        plant(&dir);
        if is_refused {
            for command in ["report", "decide", "claims", "compare"] {
                let message = refused(&[command, dir.to_str().unwrap()]);
                has(&message, &["jsonl: ", "fix: records of this run are missing", "`ctxbench verify "]);
            }
        } else {
            drop(ctxbench(["report"]).arg(&dir).succeeds())
        }
        let found = differences(&dir);
        let is_found = found.iter().any(|one| one.starts_with(expected));
        assert!(is_found, "{what}: {expected} is not in {found:#?}");
    }
    // A pass that is there twice.
    let twice = scratch.path().join("twice");
    copy(&out, &twice);
    let mut samples = lines(&twice, "samples.jsonl");
    samples.push(samples[samples.len() - 1].clone());
    put_lines(&twice, "samples.jsonl", &renumbered(samples));
    for command in ["report", "decide", "verify"] {
        has(&refused(&[command, twice.to_str().unwrap()]), &["samples.jsonl:", "is the same record as line"]);
    }
}

/// Runs a part of the suite.
fn shard(scratch: &Scratch, shard: &str, seed: &str) -> PathBuf {
    let out = scratch.path().join(format!("shard-{}-{seed}", shard.replace([' ', '/'], "-")));
    let file = scratch.path().join("suite.toml");
    fs::write(&file, small()).unwrap();
    let mut command = ctxbench(["run", "--seed", seed, "--format", "json", "--suite"]);
    command.arg(file).arg("--out").arg(&out).arg("--scratch-dir").arg(scratch.path());
    if let Some(job) = shard.strip_prefix("job ") {
        // As the container of a Kubernetes Indexed Job.
        let (index, of) = job.split_once('/').unwrap();
        command.env("JOB_COMPLETION_INDEX", index).env("JOB_COMPLETIONS", of);
    } else {
        command.args(["--shard", shard]);
    }
    command.succeeds();
    out
}

fn merge(shards: &[&Path], out: &Path) -> Command {
    let mut command = ctxbench(["merge"]);
    command.args(shards).arg("--out").arg(out);
    command
}

/// The exact counts of each cell and arm, over all epochs.
pub fn counts(dir: &Path) -> BTreeMap<String, [u64; 3]> {
    let mut counts: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for cell in lines(dir, "cells.jsonl") {
        let name = format!("{} {} {}", cell["workload"], cell["state"], cell["arm"]);
        let sums = counts.entry(name).or_default();
        for (sum, field) in sums.iter_mut().zip(["passes", "calls", "system_calls"]) {
            *sum += cell["counted"][field].as_u64().unwrap();
        }
    }
    counts
}

/// The verdict of each cell, metric and arm.
fn verdicts(dir: &Path) -> BTreeMap<String, String> {
    let report = json_of(dir, "report.json");
    let cells = report["summary"]["cells"].as_array().unwrap();
    let verdicts = cells.iter().filter_map(|cell| {
        let verdict = cell["against_baseline"]["verdict"].as_str()?.to_owned();
        let name = format!("{} {} {} {}", cell["workload"], cell["state"], cell["metric"], cell["arm"]);
        Some((name, verdict))
    });
    verdicts.collect()
}

#[test]
fn three_shards_merge_into_the_run_that_one_machine_makes() {
    let Some(scratch) = as_root() else { return };
    let whole = scratch.path().join("whole");
    suite_run(&scratch, &small(), &whole).succeeds();
    let parts = ["0/3", "1/3", "job 2/3"].map(|part| shard(&scratch, part, "7"));
    let [first, second, third] = parts.each_ref().map(PathBuf::as_path);
    let merged = scratch.path().join("merged");
    let output = merge(&[third, first, second], &merged).succeeds();
    assert!(!stderr(&output).contains("another machine"), "{}", stderr(&output));

    // Each cell is in one shard, with its own pair of `direct`.
    let mut cells: BTreeMap<String, usize> = BTreeMap::new();
    for part in &parts {
        let mut arms: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for cell in lines(part, "cells.jsonl") {
            let name = format!("{} {}", cell["workload"], cell["state"]);
            arms.entry(name).or_default().push(cell["arm"].as_str().unwrap().to_owned());
        }
        for (name, arms) in arms {
            *cells.entry(name).or_default() += 1;
            for arm in ["direct", "direct-again"] {
                assert!(arms.contains(&arm.to_owned()), "{arms:?}");
            }
        }
    }
    assert_eq!(cells.values().copied().collect::<Vec<_>>(), [1, 1, 1, 1], "{cells:?}");

    // Nothing but the numbers of epochs and passes changes.
    let without = |mut lines: Vec<Value>| {
        for line in &mut lines {
            line["epoch"] = 0.into();
            line["order"] = 0.into();
        }
        lines
    };
    for name in ["samples.jsonl", "cells.jsonl", "epochs.jsonl"] {
        let of_parts = parts.iter().flat_map(|part| lines(part, name));
        assert_eq!(without(lines(&merged, name)), without(of_parts.collect()), "{name}");
    }
    assert_eq!(counts(&merged), counts(&whole));
    let (one, other) = (verdicts(&whole), verdicts(&merged));
    assert_eq!(one.len(), other.len());
    for (cell, verdict) in &one {
        let pair = [verdict.as_str(), other[cell].as_str()];
        let contradict = pair.contains(&"better") && pair.contains(&"worse");
        assert!(!contradict, "{cell}: {pair:?}");
    }
    let report = json_of(&merged, "report.json");
    assert_eq!(report["summary"]["health"]["epochs"], 3);
    has(&report["answer"]["notes"].to_string(), &["merged from 3 shards"]);
    has(&json_of(first, "report.json")["answer"]["notes"].to_string(), &["shard 0/3"]);

    // It is a run like any other.
    for dir in [first, merged.as_path()] {
        assert_eq!(differences(dir), Vec::<String>::new(), "{}", dir.display());
    }
    ctxbench(["claims", merged.to_str().unwrap()]).succeeds();
    let decided = ctxbench(["decide", merged.to_str().unwrap()]).output().unwrap();
    assert_ne!(decided.status.code(), Some(1), "{}", stderr(&decided));

    // Shards that do not fit are refused by name.
    let path = |dir: &Path| dir.to_str().unwrap().to_owned();
    let other_seed = shard(&scratch, "1/3", "8");
    let other_count = shard(&scratch, "1/2", "7");
    let built = scratch.path().join("built");
    copy(second, &built);
    change(&built, "env.json", |text| text.replacen("\"binary_sha256\": \"", "\"binary_sha256\": \"f", 1));
    let cut = scratch.path().join("cut");
    copy(second, &cut);
    let mut epochs = lines(&cut, "epochs.jsonl");
    epochs.pop();
    put_lines(&cut, "epochs.jsonl", &epochs);
    let out = scratch.path().join("refused");
    for (shards, expected) in [
        (vec![first, first], "the same run twice"),
        (vec![first, second], "shard 2/3 is missing: 2 of 3 are given"),
        (vec![first, second, other_seed.as_path()], "are both shard 1/3"),
        (vec![first, third, other_seed.as_path()], "plan.seed: 8, 7"),
        (vec![first, other_count.as_path()], "is one of 3 shards"),
        (vec![whole.as_path()], "not a shard"),
        (vec![merged.as_path()], "not a shard"),
        (vec![first, third, built.as_path()], "SHA-256 of the binary"),
        (vec![first, third, cut.as_path()], "not those of a complete shard"),
    ] {
        let mut words = vec!["merge".to_owned(), "--out".to_owned(), path(&out)];
        words.extend(shards.into_iter().map(path));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        has(&refused(&words), &[expected]);
        assert!(!out.exists(), "{expected}");
    }
    for (shard, expected) in [("3/3", "there is no shard 3 of 3"), ("0/0", "no shards of 0")] {
        has(&refused(&["run", "--seed", "7", "--shard", shard]), &[expected]);
    }
    has(&refused(&["run", "--shard", "0/3"]), &["the same --seed"]);
    let suite = path(&scratch.path().join("suite.toml"));
    let many = ["run", "--seed", "7", "--shard", "4/9", "--suite", &suite];
    has(&refused(&many), &["has only 4 cells"]);

    // Another machine is said, and not pooled silently.
    let moved = scratch.path().join("moved");
    copy(third, &moved);
    change(&moved, "env.json", |text| text.replacen("\"cpu\": \"", "\"cpu\": \"Other ", 1));
    let mixed = scratch.path().join("mixed");
    let output = merge(&[first, second, moved.as_path()], &mixed).succeeds();
    has(&stderr(&output), &["moved ran on another machine than", "processor: "]);
    let report = json_of(&mixed, "report.json");
    let notes = report["answer"]["notes"].to_string();
    has(&notes, &["OTHER MACHINES", "shard 0, 1 on ", "shard 2 on Other ", "measured twice"]);
    has(&report["answer"]["about"].to_string(), &["2 KINDS OF MACHINES"]);
    has(&text_of(&mixed, "report.html"), &["OTHER MACHINES"]);
    assert_eq!(differences(&mixed), Vec::<String>::new());
}
