//! `.llmfs`, remounts, and refused mounts.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{KEY, TREE, answering, said, saying, set_xattr, sh, xattr};
use crate::common::{Mount, ctxbench, has, lacks, mounts_under, stderr, words};

#[test]
fn files_next_to_a_mount_are_private_to_its_user() {
    let Some(lab) = saying(TREE) else { return };
    let dir = lab.scratch.dir("mnt");
    let mut command = ctxbench(["mount", "llm-generate", "--prompt", "x"]);
    lab.ask_server(command.arg(&dir)).env_remove("HOME");
    let mount = Mount::of(command, &dir);
    said(&mount.dir, "cat a.txt");
    mount.end();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for name in ["mnt.llmfs.log", "mnt.llmfs.json"] {
        assert_eq!(mode(&lab.path(name)), 0o600, "{name}");
    }
    // Without a home directory, the cache is not in /tmp, where another user could have created it.
    let folder = lab.path("mnt.llmfs.cache");
    assert_eq!(mode(&folder), 0o700);
    assert!(folder.read_dir().unwrap().count() > 0);
}

#[test]
fn a_remount_keeps_generated_files_even_after_a_crash() {
    let Some(lab) = answering() else { return };
    let mount = lab.generate(&["--prompt", "A project"]);
    let dir = mount.dir.clone();
    let note = dir.join("note");
    let first = said(&dir, "cat src/main.py; ln a.txt hard; echo note > note");
    set_xattr(&note, "user.x", "1").unwrap();
    std::fs::File::open(&note).unwrap().sync_all().unwrap();
    mount.crash();
    let calls = lab.server.calls();
    let mount = lab.mount("llm-generate", &[]);
    assert_eq!(said(&dir, "cat src/main.py"), first);
    assert_eq!(said(&dir, "cat note"), "note\n");
    assert_eq!(xattr(&note, "user.x"), "1");
    assert_eq!(said(&dir, "cat .llmfs/prompt.default"), "A project\n");
    assert_eq!(lab.server.calls(), calls);
    assert_eq!(xattr(&dir.join("b.txt"), "user.llmfs.state"), "waiting");
    let linked = said(&dir, "cat hard; stat -c %h a.txt");
    assert_eq!(linked, "Write the file /a.txt.\n2\n");
    mount.end();

    let damaged = "{\"v\":1,\"nodes\":[{\"node\":\"x\"}]}";
    std::fs::write(lab.path("mnt.llmfs.json"), damaged).unwrap();
    let refused = lab.command("llm-generate", &[]).output().unwrap();
    has(&stderr(&refused), &["nodes[0].node"]);
}

#[test]
fn settings_of_a_directory_take_effect_at_once() {
    let Some(lab) = answering() else { return };
    let mount = lab.generate(&["--prompt", "The whole"]);
    let dir = &mount.dir;
    said(dir, "mkdir src/.llmfs && echo 'The sources' > src/.llmfs/prompt && : > src/.llmfs/model");
    said(dir, "cat src/main.py a.txt");
    let asked = |at: usize| lab.server.requests()[at]["messages"][1]["content"].to_string();
    has(&asked(0), &["The sources", "prints hello"]);
    has(&asked(1), &["The whole"]);

    let cache = said(dir, "cat .llmfs/cache_enabled .llmfs/cache_stats");
    assert!(cache.starts_with("1\nHits: 0\nMisses: 2\n"), "{cache}");
    assert_eq!(said(dir, "cat .llmfs/cache_list").lines().count(), 2);
    // The same request as for a new file.
    let anew = || {
        said(dir, "truncate -s 0 a.txt");
        set_xattr(&dir.join("a.txt"), "user.llmfs.generator", "default").unwrap();
        assert_eq!(said(dir, "cat a.txt"), "Write the file /a.txt.\n");
    };
    anew();
    assert_eq!(lab.server.calls(), 2, "it was in the cache");
    assert!(said(dir, "cat .llmfs/cache_stats").starts_with("Hits: 1\nMisses: 2\n"));
    said(dir, "echo 0 > .llmfs/cache_enabled");
    assert!(said(dir, "cat .llmfs/cache_stats").ends_with("Enabled: False\n"));
    anew();
    assert_eq!(lab.server.calls(), 3, "it was not looked for");
    said(dir, "echo 1 > .llmfs/cache_clear");
    assert_eq!(said(dir, "cat .llmfs/cache_list"), "");
    for refused in ["echo maybe > .llmfs/cache_enabled", "rm .llmfs/tree"] {
        assert!(!sh(dir, refused).status.success(), "{refused}");
    }
    for (file, generator) in [("a.txt", "nonsense"), ("src/main.py", "default")] {
        set_xattr(&dir.join(file), "user.llmfs.generator", generator).unwrap_err();
    }
    has(&said(dir, "grep main.py .llmfs/tree"), &["[default]"]);
    assert!(said(dir, "cat .llmfs/README").lines().count() > 5);
    let log = said(dir, "tail -n 50 .llmfs/log");
    has(&log, &["content /src/main.py: simulated answered"]);
    mount.end();
}

#[test]
fn a_refused_mount_says_why_and_leaves_nothing_behind() {
    let tree = r#"{"entries":[{"path":"../x","kind":"file"}]}"#;
    let Some(lab) = saying(tree) else { return };
    let fails = |command: &mut Command, expected: &str| {
        let started = Instant::now();
        let output = command.output().unwrap();
        let error = stderr(&output);
        assert!(!output.status.success(), "{expected}");
        has(&error, &[expected]);
        lacks(&error, &["sk-this", "hidden"]);
        assert!(started.elapsed() < Duration::from_secs(60));
        assert!(mounts_under(lab.scratch.path()).is_empty());
        assert!(!lab.path("mnt.llmfs.json").exists());
    };
    let generates = |prompt: &str, expected: &str| {
        let mut command = lab.command("llm-generate", &["--prompt", prompt]);
        fails(&mut command, expected);
    };
    generates("x", "leads out of the tree with `..`");
    assert_eq!(lab.server.calls(), 3, "asked again twice");
    generates(&"x".repeat(100_000), "the maximum is 65536");
    for (path, expected) in [(&b"/../a"[..], "leads out"), (b"\xff", "UTF-8")] {
        let file = lab.path("tree.json");
        let [start, end] = [r#"{"entries":[{"path":""#, r#"","kind":"file"}]}"#];
        let tree = [start.as_bytes(), path, end.as_bytes()].concat();
        std::fs::write(&file, tree).unwrap();
        let mut command = lab.command("llm-generate", &[]);
        fails(command.arg("--tree").arg(file), expected);
    }

    let file = |name: &str, content: &str| {
        std::fs::write(lab.path(name), content).unwrap();
        lab.path(name).display().to_string()
    };
    let (not_gguf, other) = (file("not.gguf", "PK"), file("other.gguf", "GGUF"));
    let url = lab.server.base_url();
    let priced = format!("--base-url {url} --model simulated --price 1,1 --max-cost");
    for (options, expected) in [
        ("--base-url http://127.0.0.1:1/v1 --model m", "127.0.0.1:1"),
        (&*format!("--base-url {url} --model gpt-9"), "gpt-9"),
        (&*format!("--base-url {url}"), "--model"),
        ("--base-url https://api.openai.com/v1 --model m", "OPENAI_API_KEY"),
        // A key is all that it lacks.
        ("--provider openai", "OPENAI_API_KEY"),
        ("--provider openai --model m", "OPENAI_API_KEY"),
        (&*format!("--provider local --model {not_gguf}"), "not a GGUF file"),
        (&*format!("--provider local --model {other} --model-sha256 00"), "SHA-256"),
        (&*format!("--cassette {not_gguf}"), "not.gguf:1:"),
        ("--provider local --answer-timeout 0", "from 0.1 to 3600"),
        (&*format!("{priced}=nan"), "--max-cost"),
        (&*format!("{priced}=inf"), "--max-cost"),
        (&*format!("{priced}=-1"), "--max-cost"),
        (&*format!("{priced}=much"), "--max-cost"),
        // No message shows a password.
        ("--base-url http://me:hidden@127.0.0.1:1/v1", "***@"),
        ("--base-url ftp://me:hidden@x/v1 --model m", "***@"),
        ("--base-url me:hidden@[x", "***@"),
    ] {
        let mut command = ctxbench(["mount", "llm-history"]);
        command.arg(lab.path("mnt")).args(words(options));
        match expected {
            "OPENAI_API_KEY" => command.env_remove("CTXBENCH_API_KEY").env_remove(expected),
            _ => command.env("CTXBENCH_API_KEY", KEY),
        };
        fails(&mut command, expected);
    }
}

#[test]
fn an_option_precedes_our_variables_and_those_precede_the_ones_of_source_2() {
    let Some(lab) = answering() else { return };
    let dir = lab.scratch.dir("vars");
    let home = lab.scratch.dir("home");
    let prompt = |source: &str| format!("a garden of {source}");
    let sources = ["LLMFS", "CTXBENCH", "option"];
    for (at, winner) in sources.iter().enumerate() {
        let mut command = ctxbench(["mount", "llm-generate"]);
        command.arg(&dir).arg("--tree").arg(lab.path("tree.json"));
        lab.ask_server(&mut command).env("HOME", &home);
        for source in ["LLMFS", "CTXBENCH"] {
            let variables = ["PROMPT", "CACHE_FOLDER"].map(|name| format!("{source}_{name}"));
            let [prompt_variable, folder] = variables;
            if sources[..=at].contains(&source) {
                command.env(prompt_variable, prompt(source));
                command.env(folder, lab.path(source));
            } else {
                command.env_remove(prompt_variable).env_remove(folder);
            }
        }
        if *winner == "option" {
            command.args(["--prompt", &prompt(winner), "--cache-folder"]);
            command.arg(lab.path(winner));
        }
        let mount = Mount::of(command, &dir);
        said(&mount.dir, "cat a.txt");
        mount.end();
        std::fs::remove_file(lab.path("vars.llmfs.json")).unwrap();
        let asked = lab.server.requests().last().unwrap().to_string();
        has(&asked, &[&prompt(winner)]);
        assert_eq!(asked.matches("a garden of ").count(), 1, "{asked}");
        let kept = lab.path(winner).read_dir().unwrap().count();
        assert!(kept > 0, "{winner}");
    }
    assert!(!home.join(".ctxbench.cache").exists());
}
