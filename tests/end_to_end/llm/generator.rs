//! A generator that is a command, and the example trees of source 2.
//!
//! Those in `trees` have the shape that source 2 shows: its names, and descriptions of ours.

use std::path::PathBuf;

use super::{Lab, has_local_model, said, saying, set_xattr, xattr};
use crate::common::{Mount, can_mount, ctxbench, has, mountable, stderr, text_of, write_executable};
use models::Behaviour;

const WINDOWS: &str =
    "Create an authentic Windows 95 filesystem structure with Program Files, Windows folder, and system files";
const UNIX: &str = "Generate a classic Unix filesystem with standard directories and period-accurate system files";

/// Says what it was given; fails for some paths.
const SCRIPT: &str = r#"#!/bin/sh
case "$2" in
*bad*) echo 'no such chapter' >&2; exit 3 ;;
esac
echo "$# $1 $2"
cat
"#;

fn command(lab: &Lab) -> PathBuf {
    let script = lab.path("write.sh");
    write_executable(&script, SCRIPT);
    let file = lab.path("chapters.toml");
    std::fs::write(&file, "name = 'chapters'\ncommand = ['./write.sh', '-v']\n").unwrap();
    file
}

#[test]
fn a_command_writes_files_from_path_and_prompt_and_no_model_is_asked() {
    let answer = "by the model\n";
    let Some(lab) = saying(answer) else { return };
    let file = command(&lab);
    let mount = lab.generate(&["--prompt", "a book", "--generator", file.to_str().unwrap()]);
    let path = mount.dir.join("one; touch pwned.md");
    std::fs::write(&path, "").unwrap();
    set_xattr(&path, "user.llmfs.prompt", "the first chapter").unwrap();
    set_xattr(&path, "user.llmfs.generator", "chapters").unwrap();
    let given = "2 -v /one; touch pwned.md\na book\n\nthe first chapter\n";
    assert_eq!(std::fs::read_to_string(&path).unwrap(), given);
    assert_eq!(xattr(&path, "user.llmfs.state"), "generated");
    assert_eq!(lab.server.calls(), 0);
    assert!(!lab.path("pwned.md").exists());
    // The others are still the model's.
    assert_eq!(said(&mount.dir, "cat a.txt"), answer);
    has(&said(&mount.dir, "cat .llmfs/tree"), &["[chapters]"]);
    mount.end();
    has(&lab.log(), &["generator chapters: the command of"]);
}

/// Says what it finds in the document that it gets.
const INDEX: &str = r#"#!/usr/bin/env python3
import json, sys
it = json.load(sys.stdin)
node = it["node"]
files = [entry["path"] for entry in it["tree"] if entry["kind"] == "file"]
links = [entry["target"] for entry in it["tree"] if entry["kind"] == "symlink"]
print(sys.argv[1] == it["path"] == node["path"], it["prompt"], it["about"], node["is_waiting"], oct(node["mode"]))
print(node["attributes"]["user.llmfs.prompt"], node["attributes"]["user.colour"], len(files), links)
print([(file["path"], file["text"], file["size"]) for file in it["context"]])
"#;

#[test]
fn a_command_writes_the_files_of_its_patterns_from_tree_node_and_attributes() {
    let Some(lab) = saying("by the model\n") else { return };
    let script = lab.path("index.py");
    write_executable(&script, INDEX);
    let define = |files: &str| {
        let file = lab.path("index.toml");
        let text = format!("name = 'index'\ncommand = ['./index.py']\ninput = 'json'\nfiles = {files}\n");
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let generator = define("['src/*.py']");
    let mount = lab.generate(&["--prompt", "a program", "--generator", &generator]);
    let dir = &mount.dir;
    has(&said(dir, "cat .llmfs/tree"), &["/src/main.py [index] not read yet", "/a.txt [default] not read yet"]);
    set_xattr(&dir.join("src/main.py"), "user.colour", "blue").unwrap();
    // It does not see files that wait.
    assert_eq!(said(dir, "cat b.txt"), "by the model\n");
    let expected = "True a program prints hello True 0o644\nprints hello blue 9 ['src/main.py']\n\
                    [('/b.txt', 'by the model\\n', 13)]\n";
    assert_eq!(said(dir, "cat src/main.py"), expected);
    has(&xattr(&dir.join("src/main.py"), "user.llmfs.context"), &["  b.txt\n"]);
    assert_eq!(lab.server.calls(), 1, "its files ask no model");
    mount.end();

    // The next mount lacks the generator; the last one has another pattern.
    let mount = lab.mount("llm-generate", &[]);
    assert_eq!(said(&mount.dir, "cat src/main.py"), expected);
    let waiting = mount.dir.join("src/util.py");
    assert!(std::fs::read(&waiting).is_err());
    has(&xattr(&waiting, "user.llmfs.error"), &["no generator \"index\"", "--generator"]);
    mount.end();
    let mount = lab.mount("llm-generate", &["--generator", &define("['/?.txt']")]);
    has(&said(&mount.dir, "cat .llmfs/tree"), &["/a.txt [index] not read yet", "/b.txt [default] 13 bytes"]);
    mount.end();

    let refused = |generators: &[&str], parts: &[&str]| {
        let more: Vec<&str> = generators.iter().flat_map(|file| ["--generator", *file]).collect();
        let output = lab.command("llm-generate", &more).output().unwrap();
        assert!(!output.status.success());
        has(&stderr(&output), parts);
    };
    refused(&[&define("[\n'a.md',\n'b[',\n]")], &["index.toml:6: field `files[1]`: the pattern \"b[\""]);
    let good = define("['a.md']");
    refused(&[&good, &good], &["index.toml also defines index"]);
}

#[test]
fn the_windows_95_and_unix_trees_of_source_2_are_laid_out_read_and_kept() {
    if !can_mount() {
        return;
    }
    for (prompt, tree, file, content, names) in [
        (
            WINDOWS,
            include_str!("trees/windows-95.json"),
            "AUTOEXEC.BAT",
            "@ECHO OFF\nPATH C:\\WINDOWS;C:\\WINDOWS\\COMMAND\n",
            "AUTOEXEC.BAT\nCONFIG.SYS\nPROGRA~1\nWINDOWS\n",
        ),
        (
            UNIX,
            include_str!("trees/unix.json"),
            "etc/passwd",
            "root::0:0:The Super User:/:/bin/sh\n",
            "bin\netc\nusr\nvar\n",
        ),
    ] {
        let lab = Lab::new(vec![Behaviour::Say(tree.to_owned()), Behaviour::Say(content.to_owned())]);
        let mount = lab.mount("llm-generate", &["--prompt", prompt]);
        let asked = lab.server.requests()[0].to_string();
        has(&asked, &[prompt]);
        assert_eq!(said(&mount.dir, "ls"), names);
        assert_eq!(lab.server.calls(), 1, "a listing asks no model");
        assert_eq!(said(&mount.dir, &format!("cat {file}")), content);
        assert!(lab.server.requests()[1].to_string().contains(file));
        mount.end();
        let again = lab.mount("llm-generate", &[]);
        assert_eq!(said(&again.dir, "ls"), names);
        assert_eq!(said(&again.dir, &format!("cat {file}")), content);
        assert_eq!(lab.server.calls(), 2, "tree and file are kept");
        again.end();
    }
}

#[test]
fn a_live_model_lays_out_the_trees_of_source_2_and_writes_a_file() {
    if !has_local_model() {
        return;
    }
    for prompt in [WINDOWS, UNIX] {
        let Some(scratch) = mountable() else { return };
        let dir = scratch.dir("mnt");
        let mut command = ctxbench(["mount", "llm-generate"]);
        command.arg(&dir).args(["--prompt", prompt, "--no-cache"]);
        // A small model makes few names, and ends in repeating itself.
        command.args(["--answer-tokens", "128"]);
        let mount = Mount::of(command, &dir);
        let found = said(&dir, "find . -name .llmfs -prune -o -type f -print");
        let file = found.lines().next().expect("the tree has a file");
        assert!(!text_of(&dir, file).trim().is_empty(), "{found}");
        assert_eq!(xattr(&dir.join(file), "user.llmfs.state"), "generated");
        mount.end();
        has(&text_of(scratch.path(), "mnt.llmfs.log"), &["(live)"]);
    }
}
