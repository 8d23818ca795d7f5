//! Links and commands in documents must be valid.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::crates::documented;
use crate::top;

/// The Markdown files of the repository, including generated ones.
fn documents() -> Vec<PathBuf> {
    let top = top();
    let mut all = Vec::new();
    for dir in [".", "docs", "docs/example", "docs/results", "sdk/python", "sdk/typescript"] {
        for entry in std::fs::read_dir(top.join(dir)).unwrap().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                all.push(path);
            }
        }
    }
    assert!(all.len() > 10, "{all:?}");
    all
}

/// The targets of a text's links, outside of code blocks.
fn links(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split([')', ' ']).next()).collect()
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

fn has_anchor(file: &Path, wanted: &str) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut headings = text.lines().filter(|line| line.starts_with('#'));
    headings.any(|line| anchor(line.trim_start_matches('#').trim()) == wanted)
}

#[test]
fn every_link_has_an_existing_file_and_heading() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.clone(),
                file => document.parent().unwrap().join(file),
            };
            let is_there = target.exists() && (heading.is_empty() || has_anchor(&target, heading));
            if !is_there {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// PyPI and npm show the README of a package without the repository around it.
#[test]
fn the_readme_of_an_sdk_has_no_link_that_a_package_registry_cannot_follow() {
    for sdk in ["python", "typescript"] {
        let text = std::fs::read_to_string(top().join("sdk").join(sdk).join("README.md")).unwrap();
        let relative: Vec<&str> = links(&text).into_iter().filter(|link| !link.contains("://")).collect();
        assert!(relative.is_empty(), "sdk/{sdk}/README.md: {relative:?}");
    }
}

/// A shell command that succeeds if a name in the architecture is a path, a workload, or an item of a crate.
fn search(name: &str) -> String {
    let Some((package, rest)) = name.split_once("::") else {
        return format!("ls -d {name} || ls workloads/{name}.toml");
    };
    let place = documented()[package].0.clone() + "/src/" + &rest.replace("::", "/");
    let (module, item) = place.rsplit_once('/').unwrap();
    format!("ls -d {place} || ls {place}.rs || grep -qwE 'pub (fn|struct|enum|trait) {item}' {module}/*.rs {module}.rs")
}

#[test]
fn every_path_and_module_in_the_architecture_exists() {
    let text = std::fs::read_to_string(top().join("ARCHITECTURE.md")).unwrap();
    let quoted = text.split('`').skip(1).step_by(2);
    let names = quoted.filter(|name| !name.contains(char::is_whitespace));
    let names = names.filter(|name| name.contains('/') || name.contains("::"));
    let names: BTreeSet<&str> = names.collect();
    assert!(names.len() > 50, "{names:?}");
    let is_missing = |name: &&str| {
        let mut shell = Command::new("bash");
        shell.args(["-c", &search(name)]).current_dir(top());
        !shell.output().unwrap().status.success()
    };
    let missing: Vec<&str> = names.into_iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The lines of a text's shell blocks, and the code between single backticks of its prose.
fn code(text: &str) -> Vec<String> {
    let text = text.replace("```console\n", "```sh\n").replace("\n$ ", "\n");
    let mut code = Vec::new();
    for (number, part) in text.split("```").enumerate() {
        match part.strip_prefix("sh\n") {
            Some(block) if number % 2 == 1 => code.extend(block.lines().map(str::to_owned)),
            _ if number % 2 == 1 => {}
            _ => {
                let quoted = part.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
                code.extend(quoted.map(str::to_owned));
            }
        }
    }
    code
}

/// The commands of `programs` in a text's code, without pipes and comments.
fn commands(text: &str, programs: &[&str]) -> Vec<Vec<String>> {
    let code = code(text);
    let parts = code.iter().flat_map(|line| line.split(" #").next().unwrap_or("").split(['|', '&', ';']));
    let words = parts.map(|part| {
        let words = part.split_whitespace();
        let is_sudo = part.trim_start().starts_with("sudo ");
        // `sudo` and its options stand before the program.
        let words = words.skip_while(|word| is_sudo && !programs.contains(word));
        words.map(str::to_owned).collect()
    });
    let named = words.filter(|words: &Vec<String>| {
        let program = words.first();
        program.is_some_and(|program| programs.contains(&program.as_str()))
    });
    named.collect()
}

#[test]
fn every_documented_make_target_exists() {
    let makefile = std::fs::read_to_string(top().join("Makefile")).unwrap();
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| !line.starts_with(['\t', '.']))
        .filter_map(|line| Some(line.split_once(':')?.0))
        .collect();
    let (mut seen, mut missing) = (0, Vec::new());
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for words in commands(&text, &["make"]) {
            let named = words.iter().skip(1);
            // Options and variables are not targets.
            let named = named.filter(|word| !word.contains('=') && !word.starts_with('-'));
            for target in named {
                seen += 1;
                if !targets.contains(target.as_str()) {
                    missing.push(format!("{}: make {target}", document.display()));
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} targets were found");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_documented_command_has_its_options() {
    let mut helps: BTreeMap<Vec<String>, String> = BTreeMap::new();
    let mut help = |path: &[String]| {
        let known = helps.entry(path.to_owned()).or_insert_with(|| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ctxbench"));
            let output = command.args(path).arg("--help").output().unwrap();
            if output.status.success() { String::from_utf8(output.stdout).unwrap() } else { String::new() }
        });
        known.clone()
    };
    let (mut seen, mut wrong) = (0, Vec::new());
    let mut texts: Vec<(PathBuf, String)> = documents()
        .into_iter()
        .map(|document| (document.clone(), std::fs::read_to_string(document).unwrap()))
        .collect();
    for workflow in ["docs/ci/ctxbench.yml", "docs/scale/github.yml", "docs/scale/slurm.sh", ".github/workflows/ci.yml"]
    {
        let workflow = top().join(workflow);
        let lines = std::fs::read_to_string(&workflow).unwrap();
        texts.push((workflow, format!("```sh\n{lines}```")));
    }
    for (document, text) in texts {
        for words in commands(&text, &["ctxbench", "target/release/ctxbench"]) {
            let mut path: Vec<String> = words.iter().skip(1).take(1).cloned().collect();
            let text = help(&path);
            let listed = ["\nCommands:\n", "\nStores:\n"];
            let has_actions = listed.iter().any(|heading| text.contains(heading));
            let is_action = |word: &String| has_actions && !word.starts_with("--");
            let at = words.iter().skip(2).position(is_action).map(|at| at + 2);
            // The docs call a backend that a reader adds `yours`.
            let at = at.filter(|at| words[*at] != "yours");
            let above = text;
            path.extend(at.map(|at| words[at].clone()));
            let text = help(&path);
            let mut unknown = words.iter().enumerate().filter_map(|(place, word)| {
                let help = if at.is_some_and(|at| place < at) { &above } else { &text };
                let option = word.split('=').next().unwrap_or(word);
                (word.starts_with("--") && !help.contains(option)).then_some(option)
            });
            seen += 1;
            let name = document.display();
            match unknown.next() {
                _ if text.is_empty() => wrong.push(format!("{name}: no command {path:?}")),
                Some(option) => wrong.push(format!("{name}: {path:?} has no {option}")),
                None => {}
            }
        }
    }
    assert!(seen > 20, "only {seen} commands were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// How far the assumed tokens may be from the measured ones, as a share: a recall fills its budget to within a note.
const TOLERANCE: f64 = 0.02;

#[test]
fn a_recalled_answer_costs_the_tokens_that_a_run_measured() {
    let read = |file: &str| std::fs::read_to_string(top().join(file)).unwrap();
    let page = read("docs/results/recall.md");
    for (policy, arm, method) in [
        ("memory-recall", "agent-memory", ":recall balanced"),
        ("memory-recall-meaning", "agent-memory-meaning", ":recall balanced, 500 tokens"),
    ] {
        let text = read(&format!("workloads/contexts/{policy}.toml"));
        let tokens = |line: &str| line.strip_prefix("answer_tokens = ")?.parse().ok();
        let assumed: f64 = text.lines().find_map(tokens).unwrap();
        let rows = page.lines().map(|line| line.split(" | ").collect::<Vec<_>>());
        let mut rows = rows.skip_while(|row| !row.contains(&"tokens a question"));
        let heading = rows.next().unwrap();
        let column = heading.iter().position(|name| *name == "tokens a question");
        let asked = ["| micro/find-by-request-1000", arm, method];
        let row = rows.find(|row| row.starts_with(&asked)).unwrap();
        let measured: f64 = row[column.unwrap()].parse().unwrap();
        let apart = (assumed / measured - 1.0).abs();
        assert!(apart <= TOLERANCE, "{policy}: {assumed} assumed, {measured} measured");
    }
}

/// The descriptions in a schema, each with its place.
fn descriptions(schema: &Value, place: &str, found: &mut Vec<(String, String)>) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "description" => found.push((place.to_owned(), text.clone())),
                    value => descriptions(value, &format!("{place}.{name}"), found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| descriptions(item, place, found)),
        _ => {}
    }
}

#[test]
fn a_description_in_a_schema_needs_neither_rust_nor_its_neighbours() {
    // `None` and links are Rust; the other beginnings leave out what is described.
    const OF_RUST: [&str; 2] = ["`None`", "[`"];
    const BEGINNINGS: [&str; 9] =
        ["Against ", "At ", "By ", "In UTC", "In bytes", "Of these", "See ", "Their ", "Those "];
    let mut wrong = Vec::new();
    for name in ["report.schema.json", "commands.schema.json"] {
        let text = std::fs::read_to_string(top().join("docs").join(name)).unwrap();
        let mut found = Vec::new();
        descriptions(&serde_json::from_str(&text).unwrap(), name, &mut found);
        assert!(found.len() > 100, "{name}: {} descriptions", found.len());
        wrong.extend(found.into_iter().filter(|(_, text)| {
            OF_RUST.iter().any(|mark| text.contains(mark)) || BEGINNINGS.iter().any(|start| text.starts_with(start))
        }));
    }
    assert_eq!(wrong, []);
}
