//! Which calls ask the model; tools that read; which callers wait for an answer.

use std::time::{Duration, Instant};

use super::{answering, behaving, said, saying, sh, xattr};
use crate::common::{Mount, has, lacks, stderr, text_of};
use models::Behaviour;

#[test]
fn only_a_read_asks_the_model() {
    let Some(lab) = answering() else { return };
    let mount = lab.generate(&[]);
    let dir = &mount.dir;
    let looks = [
        "stat src/main.py a.txt latest",
        "ls -lR",
        "find . -type f -size -1 -name '*.py'",
        "test -e a.txt && test -f src/util.py && test ! -s b.txt",
        "exec 3<a.txt",
        "python3 -c \"import os; f=os.open('b.txt', os.O_RDONLY); os.fstat(f); os.close(f)\"",
        "du -a . >/dev/null",
        "truncate -s 0 c.txt",
        "echo mine > d.txt",
        "cat .llmfs/tree .llmfs/README .llmfs/cache_stats >/dev/null",
        "mkdir new && touch new/file && mv new other && rm -r other",
    ];
    for look in looks {
        said(dir, look);
        assert_eq!(lab.server.calls(), 0, "{look} asked the model");
    }
    assert_eq!(text_of(dir, "d.txt"), "mine\n");
    assert_eq!(text_of(dir, "c.txt"), "", "cut off, it is theirs");
    assert_eq!(lab.server.calls(), 0);
    assert_eq!(xattr(&dir.join("a.txt"), "user.llmfs.state"), "waiting");

    let answer = "Write the file /src/main.py.\n";
    assert_eq!(said(dir, "cat src/main.py"), answer);
    assert_eq!(said(dir, "cat latest src/main.py").lines().count(), 2);
    assert_eq!(lab.server.calls(), 1, "it is kept");
    let main = dir.join("src/main.py");
    assert_eq!(main.metadata().unwrap().len(), 29);
    for (name, value) in
        [("state", "generated"), ("generator", "default"), ("model", "simulated"), ("prompt", "prints hello")]
    {
        assert_eq!(xattr(&main, &format!("user.llmfs.{name}")), value);
    }
    assert!(xattr(&main, "user.llmfs.tokens").parse::<u64>().unwrap() > 0);
    assert!(xattr(&main, "user.llmfs.generated-at").ends_with('Z'));
    mount.end();
}

#[test]
fn tools_read_files_that_were_never_read_before() {
    let long = "0123456789abcdef\n".repeat(20_000);
    let Some(lab) = saying(&long) else { return };
    std::fs::write(lab.path("expected"), &long).unwrap();
    let sum = said(lab.scratch.path(), "md5sum < expected");
    let mount = lab.generate(&["--no-cache"]);
    // Each reads a file that no other has read.
    let tools = [
        ("cat a.txt | md5sum", &*sum),
        ("cp b.txt ../copy && md5sum < ../copy", &sum),
        ("grep -c abcdef c.txt", "20000\n"),
        ("wc -c < d.txt", "340000\n"),
        ("head -n 1 e.txt", "0123456789abcdef\n"),
        ("tail -n 1 f.txt", "0123456789abcdef\n"),
        ("cmp g.txt ../expected", ""),
        ("cp src/main.py inside && md5sum < inside", &sum),
        ("python3 -c \"print(len(open('src/util.py').read()))\"", "340000\n"),
    ];
    for (at, (tool, expected)) in tools.into_iter().enumerate() {
        assert_eq!(said(&mount.dir, tool), expected, "{tool}");
        assert_eq!(lab.server.calls(), at + 1, "{tool}");
    }
    mount.end();
}

/// Programs that ask for the size before reading get 0 until the file has been read. docs/LLM.md lists
/// them.
#[test]
fn programs_that_trust_the_size_find_an_unread_file_empty() {
    let Some(lab) = saying("made up\n") else {
        return;
    };
    std::fs::write(lab.path("expected"), "made up\n").unwrap();
    let mount = lab.generate(&["--no-cache"]);
    let dir = &mount.dir;
    let copy = "python3 -c \"import shutil; shutil.copy('a.txt', '../copy')\"; cat ../copy";
    let mapped = "python3 -c \"import mmap; f = open('b.txt', 'rb'); print(len(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)))\"";
    assert_eq!(said(dir, copy), "");
    assert!(!sh(dir, mapped).status.success());
    assert!(!sh(dir, "cmp -s c.txt ../expected").status.success());
    assert_eq!(said(dir, "tar c d.txt | tar xO"), "");
    assert_eq!(lab.server.calls(), 0);
    // Reading all files first is the documented workaround.
    said(dir, "find . -type f -exec cat {} + >/dev/null");
    assert_eq!(said(dir, copy), "made up\n");
    assert_eq!(said(dir, mapped), "8\n");
    assert!(sh(dir, "cmp -s c.txt ../expected").status.success());
    assert_eq!(said(dir, "tar c d.txt | tar xO"), "made up\n");
    mount.end();
}

#[test]
fn a_mount_asks_a_local_server_without_a_proxy() {
    let Some(lab) = answering() else { return };
    let tree = lab.path("tree.json").display().to_string();
    let mut command = lab.command("llm-generate", &["--tree", &tree]);
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(name, "http://127.0.0.1:9");
    }
    command.env_remove("no_proxy").env_remove("NO_PROXY");
    let mount = Mount::of(command, &lab.path("mnt"));
    assert_eq!(said(&mount.dir, "cat a.txt"), "Write the file /a.txt.\n");
    mount.end();
}

#[test]
fn a_prompt_shows_generated_files_and_sha256sum_says_which_have_changed_since() {
    let Some(lab) = answering() else { return };
    let mount = lab.generate(&[]);
    let dir = &mount.dir;
    said(dir, "cat src/util.py src/main.py");
    let asked = |at: usize| lab.server.requests()[at]["messages"][1]["content"].as_str().unwrap().to_owned();
    lacks(&asked(0), &["already written"]);
    has(&asked(1), &["/src/util.py:\n```\nWrite the file /src/util.py.\n```\n"]);
    std::fs::write(lab.path("seen"), xattr(&dir.join("src/main.py"), "user.llmfs.context")).unwrap();
    let check = "sha256sum -c ../seen 2>&1";
    assert_eq!(said(dir, check), "src/util.py: OK\n");
    assert!(xattr(&dir.join("src/main.py"), "user.llmfs.context-tokens").parse::<u64>().unwrap() > 10);
    has(&lab.log(), &["content /src/main.py: ", "bytes of the prompt are other generated files, about "]);
    let before = said(dir, "cat src/main.py");
    said(dir, "echo '# mine' >> src/util.py");
    let changed = sh(dir, check);
    has(&String::from_utf8_lossy(&changed.stdout), &["src/util.py: FAILED"]);
    assert_eq!(said(dir, "cat src/main.py"), before);
    assert_eq!(lab.server.calls(), 2);
    mount.end();

    std::fs::remove_file(lab.path("mnt.llmfs.json")).unwrap();
    let mount = lab.generate(&["--no-cache", "--context-bytes", "0"]);
    said(&mount.dir, "cat src/util.py src/main.py");
    lacks(&asked(3), &["already written"]);
    mount.end();
    let refused = lab.command("llm-generate", &["--context-bytes", "131073"]).output().unwrap();
    has(&stderr(&refused), &["--context-bytes", "from 0 to 131072"]);
}

#[test]
fn concurrent_readers_cause_one_call() {
    let late = Behaviour::SayAfter(Duration::from_secs(6), "once\n".to_owned());
    let Some(lab) = behaving(late) else { return };
    let mount = lab.generate(&["--parallel", "8"]);
    let path = mount.dir.join("a.txt");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(std::fs::read_to_string(&path).unwrap(), "once\n"));
        }
        // Other callers do not wait meanwhile.
        std::thread::sleep(Duration::from_millis(200));
        let started = Instant::now();
        said(&mount.dir, "ls -l");
        let took = started.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
    assert_eq!(lab.server.calls(), 1);
    mount.end();
}
