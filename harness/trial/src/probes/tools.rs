//! Runs common tools, each with its own task that fails on a wrong file system.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::Command;

use rundir::{Outcome, Probe};

use super::{Prober, STEP_LIMIT, is_installed, run};
use crate::watchdog::Watchdog;

/// Programs, each with a shell script for an empty directory. Any failing line fails the probe.
const TASKS: &[(&str, &str)] = &[
    ("cat", "printf 'hello\\nworld\\n' > a; test \"$(cat a | wc -l)\" = 2"),
    ("ls", "touch b a; mkdir c; test \"$(ls | tr '\\n' ' ')\" = 'a b c '; ls -la | grep -q ' a$'"),
    ("grep", "mkdir -p x/y; echo needle > x/y/a; echo hay > x/b; test \"$(grep -rl needle .)\" = ./x/y/a"),
    (
        "find",
        "mkdir -p x/y; touch x/y/a.md x/b.txt; test \"$(find . -name '*.md' -type f)\" = ./x/y/a.md; test -z \"$(find . -newermt 2100-01-01)\"",
    ),
    ("sed", "echo hello > a; sed -i s/hello/bye/ a; test \"$(cat a)\" = bye"),
    ("cp", "seq 100000 > a; cp -a a b; cmp a b; test \"$(stat -c %Y a)\" = \"$(stat -c %Y b)\""),
    ("mv", "echo 1 > a; echo 2 > b; mv a b; test \"$(cat b)\" = 1; test ! -e a"),
    ("rm", "mkdir -p x/y/z; touch x/1 x/y/2 x/y/z/3; rm -r x; test ! -e x"),
    ("ln", "echo 1 > a; ln a b; ln -s a c; echo 2 > a; test \"$(cat b)$(cat c)\" = 22; test \"$(stat -c %h a)\" = 2"),
    ("truncate", "truncate -s 1M a; test \"$(stat -c %s a)\" = 1048576; truncate -s 10 a; test \"$(wc -c < a)\" = 10"),
    ("tar", "mkdir x; seq 1000 > x/a; ln -s a x/b; tar cf t.tar x; mkdir out; tar xf t.tar -C out; diff -r x out/x"),
    (
        "flock",
        "echo 0 > n; for i in 1 2; do (for j in 1 2 3 4 5 6 7 8 9 10; do flock l sh -c 'echo $(($(cat n) + 1)) > n'; done) & done; wait; test \"$(cat n)\" = 20",
    ),
    (
        "git",
        "git init -q r; cd r; seq 2000 > a; git add a; git -c user.name=n -c user.email=e@example.org commit -qm m; cd ..; git clone -q r s; git -C s fsck --strict --no-progress; cmp r/a s/a; test -z \"$(git -C s status --porcelain)\"",
    ),
    ("rg", "mkdir -p x/y; echo needle > x/y/a; test \"$(rg -l needle . | wc -l)\" = 1"),
    ("rsync", "mkdir x; seq 1000 > x/a; rsync -a x/ y/; diff -r x y; test -z \"$(rsync -ani x/ y/)\""),
    (
        "sqlite3",
        "sqlite3 d 'CREATE TABLE t (n); INSERT INTO t VALUES (1), (2)'; test \"$(sqlite3 d 'SELECT sum(n) FROM t; PRAGMA integrity_check' | tr '\\n' ' ')\" = '3 ok '",
    ),
    ("vi", "echo one > a; vi -es -u NONE -c 's/one/two/' -c wq a; test \"$(cat a)\" = two; test \"$(ls -A)\" = a"),
    (
        "cargo",
        "cargo init -q --vcs none --name hello h; cd h; unset CARGO_TARGET_DIR CARGO_BUILD_TARGET_DIR; cargo build -q --offline; test \"$(./target/debug/hello)\" = 'Hello, world!'",
    ),
    (
        "python3",
        "python3 -c 'import os, json; json.dump([1], open(\"a.tmp\", \"w\")); os.replace(\"a.tmp\", \"a\"); assert json.load(open(\"a\")) == [1]'",
    ),
];

/// Programs that read what other programs wrote, or change it, each with a shell script for a directory with `a.md` and
/// `b.md`. What it prints must be what it prints in the plain directory behind a view.
const SHOWN: &[(&str, &str)] = &[
    ("cat", "cat a.md b.md"),
    ("ls", "ls; ls -l a.md | cut -d ' ' -f 5"),
    ("grep", "grep -rl needle ."),
    ("find", "find . -name '*.md' -type f | sort"),
    ("sed", "sed -i s/needle/thread/ a.md; cat a.md"),
    ("mv", "mv a.md c.md; ls"),
];

/// The programs that are probed.
pub(super) fn names() -> BTreeSet<&'static str> {
    TASKS.iter().chain(SHOWN).map(|(program, _)| *program).collect()
}

/// As [`probe`], for a view of a plain directory.
fn probe_shown(prober: &Prober, watchdog: &Watchdog) -> io::Result<Vec<Probe>> {
    let (config, workspace) = prober.open("tools", watchdog)?;
    let (plain, shown) = prober.places(&config, &*workspace);
    let mut probes = Vec::new();
    for (program, script) in SHOWN {
        for (name, text) in [("a.md", "a needle\n"), ("b.md", "hay\n")] {
            std::fs::write(plain.join(name), text)?;
        }
        let _ = std::fs::remove_file(plain.join("c.md"));
        let mut shell = Command::new("sh");
        shell.args(["-euc", script]);
        // The view first: in the plain directory a change succeeds.
        let seen = run(&mut shell, &shown);
        let expected = run(&mut shell, &plain);
        let (outcome, detail) = match (seen, expected) {
            (Ok(seen), Ok(expected)) if seen == expected => {
                (Outcome::Ok, "printed what it prints in the plain directory".to_owned())
            }
            (Ok(seen), expected) => (Outcome::WrongData, format!("printed {seen:?}, expected {expected:?}")),
            (Err(problem), _) => (Outcome::Errno, problem),
        };
        probes.push(prober.probe("tool", program, outcome, detail));
    }
    workspace.close()?;
    watchdog.leave();
    let others = names().into_iter().filter(|name| !SHOWN.iter().any(|(program, _)| program == name));
    let detail = "not tried: it needs files of its own, and a view shows those of another program";
    probes.extend(others.map(|name| prober.probe("tool", name, Outcome::Skipped, detail.to_owned())));
    Ok(probes)
}

pub(super) fn probe(prober: &Prober, watchdog: &Watchdog) -> io::Result<Vec<Probe>> {
    if !prober.backend.describe().capabilities.holds_data || prober.shows_rows() {
        return Ok(Vec::new());
    }
    if prober.backend.source(Path::new("")).is_some() {
        return probe_shown(prober, watchdog);
    }
    let (_, workspace) = prober.open("tools", watchdog)?;
    let mut probes = Vec::new();
    for (program, script) in TASKS {
        if watchdog.killed().is_some() {
            let detail = "not tried: an earlier tool hung and was aborted".to_owned();
            probes.push(prober.probe("tool", program, Outcome::Skipped, detail));
            continue;
        }
        if !is_installed(program) {
            let detail = "not installed on this machine".to_owned();
            probes.push(prober.probe("tool", program, Outcome::Skipped, detail));
            continue;
        }
        watchdog.enter(STEP_LIMIT);
        let dir = workspace.root().join(program);
        let result = std::fs::create_dir(&dir)
            .map_err(|error| error.to_string())
            .and_then(|()| run(Command::new("sh").args(["-euc", script]), &dir));
        let (outcome, detail) = match result {
            Ok(_) => (Outcome::Ok, "did its task".to_owned()),
            Err(_) if watchdog.killed().is_some() => (Outcome::Hang, "hung and was aborted".to_owned()),
            Err(problem) => (Outcome::Errno, problem),
        };
        probes.push(prober.probe("tool", program, outcome, detail));
        // The caller records no probe of an interrupted arm.
        if prober.interrupt.is_set() {
            break;
        }
    }
    watchdog.enter(STEP_LIMIT);
    workspace.close()?;
    watchdog.leave();
    Ok(probes)
}
