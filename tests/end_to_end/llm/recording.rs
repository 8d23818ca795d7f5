//! Recorded answers.

use std::path::{Path, PathBuf};

use super::{answering, errno, model_suite, said, xattr};
use crate::common::{Mount, Scratch, Succeeds, ctxbench, has, json_of, lacks, mountable, text_of};

#[test]
fn a_recording_replays_the_models_answers_and_names_missing_ones() {
    let Some(lab) = answering() else { return };
    let cassette = lab.path("cassette.jsonl").display().to_string();
    let mount = lab.generate(&["--record", &cassette, "--no-cache"]);
    let live = said(&mount.dir, "cat a.txt");
    mount.end();
    let recording = std::fs::read_to_string(&cassette).unwrap();
    assert_eq!(recording.lines().count(), 2, "{recording}");
    lacks(&recording, &["sk-this"]);

    std::fs::remove_file(lab.path("mnt.llmfs.json")).unwrap();
    let tree = lab.path("tree.json").display().to_string();
    let mut command = ctxbench(["mount", "llm-generate"]);
    command.arg(lab.path("mnt")).args(["--tree", &tree, "--cassette", &cassette, "--no-cache"]);
    let mount = Mount::of(command, &lab.path("mnt"));
    assert_eq!(said(&mount.dir, "cat a.txt"), live);
    let missing = mount.dir.join("b.txt");
    assert_eq!(errno(&missing), Some(5));
    let why = xattr(&missing, "user.llmfs.error");
    has(&why, &["has no answer to request"]);
    mount.end();
    has(&lab.log(), &["(recorded)"]);
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The directory of a run of model files that a committed recording answers.
fn replayed(scratch: &Scratch, how_much: &str, cassette: &str) -> PathBuf {
    let out = scratch.path().join("out");
    let cassettes = repository().join("backends/models/cassettes");
    let mut run = ctxbench(["run", "--replay-instantly", "--suite"]);
    run.arg(model_suite(scratch.path(), how_much));
    run.arg("--cassette").arg(cassettes.join(cassette));
    run.arg("--scratch-dir").arg(scratch.path());
    run.arg("--out").arg(&out);
    run.env("CTXBENCH_MODEL", "/nonexistent").succeeds();
    out
}

#[test]
fn the_committed_recording_reproduces_the_committed_page() {
    let Some(scratch) = mountable() else { return };
    let how_much = "lengths = [1, 10, 100]\nhistories = 2\nreads = 3\n";
    let out = replayed(&scratch, how_much, "smollm2-135m.jsonl");
    let fidelity = |page: &str| -> Vec<String> {
        let lines = page.lines().map(|line| line.replace("(live)", "(recorded)"));
        let rows = lines.skip_while(|line| !line.starts_with("## Fidelity"));
        let rows = rows.skip(1).take_while(|line| !line.starts_with("## "));
        // A recording stores a repeated question once, with the time of its first answer.
        let is_time = |cell: &str| cell.ends_with(" s (recorded) ");
        let without_times = |line: String| -> String {
            let cells = line.split('|').filter(|cell| !is_time(cell));
            cells.collect::<Vec<_>>().join("|")
        };
        let rows = rows.filter(|line| line.starts_with("| "));
        rows.map(without_times).collect()
    };
    let example = repository().join("docs/results");
    let again = text_of(&out, "model-files.md");
    let live = fidelity(&text_of(&example, "model-files.md"));
    assert!(live.len() > 5, "{live:?}");
    assert_eq!(live, fidelity(&again));
    has(&again, &["answers: **recorded**"]);
    // The calls and tokens of each tool and of the session over the mounts.
    let asked = |dir: &Path| -> Vec<serde_json::Value> {
        let found = json_of(dir, "model-files.json");
        let steps = ["history", "generate"].iter().flat_map(|mode| found[mode]["steps"].as_array().unwrap());
        let names = ["what", "calls", "prompt_tokens", "output_tokens"];
        let steps = steps.map(|step| names.map(|name| step[name].clone()).to_vec().into());
        let session = &found["history"]["session_tokens"];
        assert!(session[1].as_u64() > Some(0), "{session}");
        steps.chain([session.clone()]).collect()
    };
    let live = asked(&example);
    assert!(live.len() > 10);
    assert_eq!(live, asked(&out));
    has(&again, &["US$", "computed from these tokens, not billed"]);
}

#[test]
fn the_committed_recording_answers_every_question_of_a_run() {
    let Some(scratch) = mountable() else { return };
    let how_much = "lengths = [1, 10]\nhistories = 1\nreads = 1\nbrief = true\n";
    let out = replayed(&scratch, how_much, "run.jsonl");
    let found = json_of(&out, "model-files.json");
    assert_eq!(found["origin"], "recorded");
    for at in found["fidelity"].as_array().unwrap() {
        assert_eq!(at["unanswered"], 0, "{at}");
        assert!(at["calls"].as_u64().unwrap() > 0);
    }
    let page = text_of(&out, "model-files.md");
    lacks(&page, &["got no answer at all"]);
    let modes = ["history", "generate"].iter();
    let steps = modes.flat_map(|mode| found[mode]["steps"].as_array().unwrap());
    let asking: Vec<_> = steps.filter(|step| step["calls"] != 0).collect();
    assert!(asking.len() >= 5, "{asking:?}");
    for step in asking {
        assert_ne!(step["prompt_tokens"], 0, "not recorded: {step}");
    }
}
