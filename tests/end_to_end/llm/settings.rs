//! `.llmfs`, remounts, and refused mounts.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{KEY, Lab, TREE, answering, said, set_xattr, sh, xattr};
use crate::common::{Mount, can_mount, ctxbench, has, stderr, words};
use models::Behaviour;

#[test]
fn files_next_to_a_mount_are_private_to_its_user() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Say(TREE.to_owned()), Behaviour::Answer]);
    let dir = lab.scratch.dir("mnt");
    let mut command = ctxbench(["mount", "llm-generate", "--prompt", "x"]);
    command
        .arg(&dir)
        .args(["--base-url", &lab.server.base_url(), "--model", "simulated"])
        .env_remove("HOME")
        .env("CTXBENCH_API_KEY", KEY);
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
    let first = said(
        &mount.dir,
        "cat src/main.py; ln a.txt hard; echo note > note",
    );
    set_xattr(&mount.dir.join("note"), "user.x", "1").unwrap();
    std::fs::File::open(mount.dir.join("note"))
        .unwrap()
        .sync_all()
        .unwrap();
    mount.crash();
    let calls = lab.server.calls();
    let mount = lab.mount("llm-generate", &[]);
    assert_eq!(said(&mount.dir, "cat src/main.py"), first);
    assert_eq!(said(&mount.dir, "cat note"), "note\n");
    assert_eq!(xattr(&mount.dir.join("note"), "user.x"), "1");
    assert_eq!(said(&mount.dir, "cat .llmfs/prompt.default"), "A project\n");
    assert_eq!(lab.server.calls(), calls);
    assert_eq!(
        xattr(&mount.dir.join("b.txt"), "user.llmfs.state"),
        "waiting"
    );
    assert_eq!(
        said(&mount.dir, "cat hard; stat -c %h a.txt"),
        "Write the file /a.txt.\n2\n"
    );
    mount.end();

    std::fs::write(
        lab.path("mnt.llmfs.json"),
        "{\"v\":1,\"nodes\":[{\"node\":\"x\"}]}",
    )
    .unwrap();
    let refused = lab.command("llm-generate", &[]).output().unwrap();
    has(&stderr(&refused), &["nodes[0].node"]);
}

#[test]
fn settings_of_a_directory_take_effect_at_once() {
    let Some(lab) = answering() else { return };
    let mount = lab.generate(&["--prompt", "The whole"]);
    let dir = &mount.dir;
    said(
        dir,
        "mkdir src/.llmfs && echo 'The sources' > src/.llmfs/prompt && : > src/.llmfs/model",
    );
    said(dir, "cat src/main.py a.txt");
    let asked: Vec<String> = lab
        .server
        .requests()
        .iter()
        .map(|request| {
            request["messages"][1]["content"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert!(
        asked[0].contains("The sources") && asked[0].contains("prints hello"),
        "{}",
        asked[0]
    );
    assert!(asked[1].contains("The whole"), "{}", asked[1]);

    assert_eq!(
        said(dir, "cat .llmfs/cache_enabled .llmfs/cache_stats")
            .lines()
            .take(3)
            .collect::<Vec<_>>(),
        ["1", "Hits: 0", "Misses: 2"]
    );
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
    assert!(said(dir, "grep main.py .llmfs/tree").contains("[default]"));
    assert!(
        said(dir, "grep -c . .llmfs/README")
            .trim()
            .parse::<u32>()
            .unwrap()
            > 5
    );
    assert!(
        said(dir, "tail -n 50 .llmfs/log").contains("content /src/main.py: simulated answered")
    );
    mount.end();
}

#[test]
fn a_refused_mount_says_why_and_leaves_nothing_behind() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Say(
        "{\"entries\":[{\"path\":\"../x\",\"kind\":\"file\"}]}".to_owned(),
    )]);
    let fails = |command: &mut Command, expected: &str| {
        let started = Instant::now();
        let output = command.output().unwrap();
        let error = stderr(&output);
        assert!(
            !output.status.success() && error.contains(expected),
            "{expected}: {error}"
        );
        assert!(!error.contains("sk-this"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(30));
        assert!(crate::common::mounts_under(lab.scratch.path()).is_empty());
        assert!(!lab.path("mnt.llmfs.json").exists());
    };
    let refused = "leads out of the tree by `..`";
    fails(
        &mut lab.command("llm-generate", &["--prompt", "x"]),
        refused,
    );
    assert_eq!(lab.server.calls(), 3, "asked again twice");
    let long = "x".repeat(100_000);
    fails(
        &mut lab.command("llm-generate", &["--prompt", &long]),
        "at most 65536",
    );
    for (tree, expected) in [
        (
            &br#"{"entries":[{"path":"/a","kind":"file"}]}"#[..],
            "absolute",
        ),
        (
            &b"{\"entries\":[{\"path\":\"\xff\",\"kind\":\"file\"}]}"[..],
            "UTF-8",
        ),
    ] {
        let file = lab.path("tree.json");
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
    for (options, expected) in [
        ("--base-url http://127.0.0.1:1/v1 --model m", "127.0.0.1:1"),
        (&*format!("--base-url {url} --model gpt-9"), "gpt-9"),
        (&*format!("--base-url {url}"), "--model"),
        (
            "--base-url https://api.openai.com/v1 --model m",
            "OPENAI_API_KEY",
        ),
        (
            &*format!("--provider local --model {not_gguf}"),
            "no GGUF file",
        ),
        (
            &*format!("--provider local --model {other} --model-sha256 00"),
            "SHA-256",
        ),
        (&*format!("--cassette {not_gguf}"), "not.gguf:1:"),
        ("--provider local --answer-timeout 0", "from 0.1 to 3600"),
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
fn a_mount_that_would_lose_or_leak_data_is_refused() {
    let Some(lab) = answering() else { return };
    let tree = lab.path("tree.json").display().to_string();
    let refused = |backend: &str, more: &[&str], parts: &[&str]| {
        let output = lab.command(backend, more).output().unwrap();
        let said = stderr(&output);
        assert!(!output.status.success(), "{more:?}");
        for part in parts {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
        assert!(!said.contains("hidden"), "{said}");
        assert!(crate::common::mounts_under(lab.scratch.path()).is_empty());
    };
    let missing = lab.path("missing/save.json").display().to_string();
    let parts = ["missing/save.json", "make its folder"];
    refused(
        "llm-generate",
        &["--tree", &tree, "--save", &missing],
        &parts,
    );

    let mount = lab.generate(&[]);
    let second = lab.scratch.dir("second");
    let save = lab.path("mnt.llmfs.json").display().to_string();
    let mut command = ctxbench(["mount", "llm-generate"]);
    command.arg(&second).args(words(&format!(
        "--base-url {} --model simulated --save {save}",
        lab.server.base_url()
    )));
    let output = command.output().unwrap();
    has(&stderr(&output), &["belongs to another mount"]);
    mount.end();
    refused(
        "llm-generate",
        &["--tree", &tree],
        &["--tree would be ignored", "mnt.llmfs.json"],
    );

    for cost in ["nan", "inf", "-1", "much"] {
        let more = ["--price", "1,1", &format!("--max-cost={cost}")];
        refused("llm-history", &more, &["--max-cost"]);
    }
    for url in [
        "http://me:hidden@127.0.0.1:1/v1",
        "ftp://me:hidden@x/v1",
        "me:hidden@[x",
    ] {
        for more in [&["--model", "m"][..], &[]] {
            let mut command = ctxbench(["mount", "llm-history"]);
            command.arg(&second).args(["--base-url", url]).args(more);
            let output = command.output().unwrap();
            let said = stderr(&output);
            assert!(said.contains("***@") && !said.contains("hidden"), "{said}");
        }
    }
}

/// Mounts generated files with these options and variables, reads one, unmounts, and returns what the model was asked.
fn asked(lab: &Lab, more: &[&str], variables: &[(&str, &str)]) -> String {
    let dir = lab.scratch.dir("vars");
    let mut command = ctxbench(["mount", "llm-generate"]);
    command.arg(&dir).arg("--tree").arg(lab.path("tree.json"));
    command.args(["--base-url", &lab.server.base_url(), "--model", "simulated"]);
    for ours in ["CTXBENCH_PROMPT", "CTXBENCH_CACHE_FOLDER"] {
        command.env_remove(ours);
    }
    command.env("CTXBENCH_API_KEY", KEY).args(more);
    command.envs(variables.iter().copied());
    let mount = Mount::of(command, &dir);
    said(&mount.dir, "cat a.txt");
    mount.end();
    std::fs::remove_file(lab.path("vars.llmfs.json")).unwrap();
    lab.server.requests().last().unwrap().to_string()
}

fn has_only(asked: &str, part: &str, other: &str) {
    assert!(asked.contains(part) && !asked.contains(other), "{asked}");
}

#[test]
fn prompt_and_cache_folder_come_from_the_environment_as_in_the_seed() {
    let Some(lab) = answering() else { return };
    let [folder, other, home] = ["kept", "other", "home"].map(|name| lab.path(name));
    std::fs::create_dir(&home).unwrap();
    let variables = [
        ("CTXBENCH_PROMPT", "gardens on the moon"),
        ("CTXBENCH_CACHE_FOLDER", folder.to_str().unwrap()),
        ("HOME", home.to_str().unwrap()),
    ];
    has_only(
        &asked(&lab, &[], &variables),
        "gardens on the moon",
        "lighthouse",
    );
    assert!(folder.read_dir().unwrap().count() > 0);
    assert!(!home.join(".ctxbench.cache").exists());
    // An option takes precedence over its variable.
    let more = [
        "--prompt",
        "a lighthouse",
        "--cache-folder",
        other.to_str().unwrap(),
    ];
    has_only(&asked(&lab, &more, &variables), "a lighthouse", "gardens");
    assert!(other.read_dir().unwrap().count() > 0);
}

#[test]
fn the_variables_of_source_2_count_where_ours_are_not_set() {
    let Some(lab) = answering() else { return };
    let folder = lab.path("theirs");
    let theirs = [
        ("LLMFS_PROMPT", "gardens on the moon"),
        ("LLMFS_CACHE_FOLDER", folder.to_str().unwrap()),
    ];
    has_only(
        &asked(&lab, &[], &theirs),
        "gardens on the moon",
        "lighthouse",
    );
    assert!(folder.read_dir().unwrap().count() > 0);
    let both = [&theirs[..], &[("CTXBENCH_PROMPT", "a lighthouse")]].concat();
    has_only(&asked(&lab, &[], &both), "a lighthouse", "gardens");
}
