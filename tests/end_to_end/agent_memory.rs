//! Agent memory over a real mount, with common shell tools.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;

use crate::common::{Mount, Scratch, mountable, mounts_under, run, stderr};
use rustix::fs::{XattrFlags, setxattr};

/// The standard output of a shell command in the mount. The command must succeed.
fn sh(dir: &Path, command: &str) -> String {
    let (code, out, err) = shell(dir, command);
    assert_eq!(code, 0, "{command}: {err}");
    out
}

fn shell(dir: &Path, command: &str) -> (i32, String, String) {
    let output = Command::new("timeout")
        .args(["60", "bash", "-c", command])
        .current_dir(dir)
        .output()
        .unwrap();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn shell_tools_search_and_recall_notes() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let mount = Mount::new("agent-memory", &dir, &["--agent-id", "akashi"]);
    sh(
        &dir,
        "echo 'RSI > 70 → exit' > memory/private/akashi/rsi_rule.md",
    );
    assert_eq!(
        sh(&dir, "cat memory/private/akashi/rsi_rule.md"),
        "RSI > 70 → exit\n"
    );
    let found = sh(&dir, "cat ':search?RSI'");
    assert!(
        found.contains("/memory/private/akashi/rsi_rule.md") && found.contains("RSI > 70"),
        "{found}"
    );
    sh(
        &dir,
        "mkdir memory/shared/market; echo 'NVDA risk: sell' > memory/shared/market/nvda.md",
    );
    let recalled = sh(&dir, "cat ':recall?query=NVDA+risk&max_tokens=200'");
    assert!(
        recalled.contains("## /memory/shared/market/nvda.md")
            && recalled.contains("NVDA risk: sell"),
        "{recalled}"
    );
    // The path in a recall's answer can be opened.
    assert_eq!(
        sh(&dir, "cat ./$(cat ':recall?NVDA' | sed -n 's/^## //p')"),
        "NVDA risk: sell\n"
    );

    // The size is right before the first read, for every way of reading.
    let size: usize = sh(&dir, "stat -c %s ':search?RSI'").trim().parse().unwrap();
    assert_eq!(size, found.len());
    assert_eq!(
        sh(&dir, "wc -c < ':search?RSI'").trim(),
        found.len().to_string()
    );
    assert_eq!(sh(&dir, "head -c 5 ':search?RSI'"), found[..5]);
    assert_eq!(
        sh(&dir, "tail -n 1 ':search?RSI'").trim(),
        found.lines().last().unwrap()
    );
    assert_eq!(sh(&dir, "grep -c RSI ':search?RSI'").trim(), "1");
    assert_eq!(sh(&dir, "cat < ':search?RSI'"), found);
    assert_eq!(sh(&dir, "cp ':search?RSI' copy.txt; cat copy.txt"), found);

    // Every answer reflects the current notes: same name, new content, new size.
    for number in 0..20 {
        sh(
            &dir,
            &format!(
                "echo 'RSI note number {number}' >> memory/rsi{}.md",
                number / 2
            ),
        );
        let now = fs::read_to_string(dir.join(":search?RSI")).unwrap();
        assert!(
            now.contains(&format!("/memory/rsi{}.md", number / 2)),
            "{now}"
        );
        let exact = fs::read_to_string(dir.join(format!(":search?\"number+{number}\""))).unwrap();
        assert!(exact.starts_with("1 notes match"), "{exact}");
    }

    // Directory listings show no answers.
    assert_eq!(sh(&dir, "ls -A"), "copy.txt\nmemory\n");
    assert_eq!(sh(&dir, "find . -name ':*'"), "");
    assert!(sh(&dir, "ls -l ':stats'").contains(":stats"));
    mount.end();
    let mount = Mount::new("agent-memory", &dir, &["--agent-id", "akashi"]);
    assert!(sh(&dir, "cat ':search?exit'").contains("rsi_rule.md"));
    mount.end();
}

#[test]
fn bad_requests_and_writes_to_answers_fail() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let mount = Mount::new("agent-memory", &dir, &[]);
    for (request, reason) in [
        (":search?AND", "syntax error"),
        (":recall?query=x&max_tokens=0", "from 64 to"),
        (":recall?query=x&strategy=best", "no strategy"),
    ] {
        let (code, out, err) = shell(&dir, &format!("cat '{request}'"));
        assert_eq!((code, out.as_str()), (1, ""), "{request}");
        assert!(err.contains("Invalid argument"), "{err}");
        let stats = sh(&dir, "grep last-error ':stats'");
        assert!(stats.contains(request) && stats.contains(reason), "{stats}");
    }
    let (_, _, err) = shell(&dir, &format!("cat ':search?{}'", "x".repeat(65_536)));
    assert!(err.contains("File name too long"), "{err}");
    let empty = sh(&dir, "cat ':search?absent'");
    assert!(empty.starts_with("nothing found"), "{empty}");
    for command in [
        "echo x > ':stats'",
        "echo x >> ':search?a'",
        "truncate -s 0 ':stats'",
        "mkdir ':tags'",
        "echo a > a; mv a ':meta'",
    ] {
        let (code, ..) = shell(&dir, command);
        assert_ne!(code, 0, "{command}");
    }
    let listed = sh(&dir, "ls -A");
    assert_eq!(listed, "a\n", "{listed}");
    mount.end();
}

#[test]
fn agent_memory_serves_ordinary_files() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let mount = Mount::new("agent-memory", &dir, &[]);
    let bytes: Vec<u8> = (0..=255).cycle().take(600_000).collect();
    fs::write(dir.join("b.bin"), &bytes).unwrap();
    assert!(
        fs::read(dir.join("b.bin")).unwrap() == bytes,
        "byte by byte"
    );
    sh(
        &dir,
        "echo one > a.md; echo two >> a.md; echo three >> a.md",
    );
    assert_eq!(
        fs::read_to_string(dir.join("a.md")).unwrap(),
        "one\ntwo\nthree\n"
    );
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(dir.join("a.md"))
        .unwrap();
    file.seek(SeekFrom::Start(4)).unwrap();
    file.write_all(b"TWO").unwrap();
    // Written and not closed: the search must find it.
    assert!(sh(&dir, "cat ':search?TWO'").contains("a.md"));
    drop(file);

    setxattr(
        dir.join("a.md"),
        "user.ctx.importance",
        b"0.9",
        XattrFlags::empty(),
    )
    .unwrap();
    setxattr(
        dir.join("a.md"),
        "user.ctx.tags",
        b"trading,nvda",
        XattrFlags::empty(),
    )
    .unwrap();
    assert!(sh(&dir, "cat a.md:meta").contains("importance: 0.9\ntags: nvda,trading\n"));
    assert_eq!(sh(&dir, "cat ':tags'"), "1 nvda\n1 trading\n");
    let refused = setxattr(
        dir.join("a.md"),
        "user.ctx.importance",
        b"9",
        XattrFlags::empty(),
    );
    assert_eq!(refused, Err(rustix::io::Errno::INVAL));
    assert!(sh(&dir, "cat ':stats'").contains("importance must be"));

    // Common tools can remove expired notes.
    sh(
        &dir,
        "printf -- '---\\nttl: 0\\n---\\nold news\\n' > old.md",
    );
    assert!(sh(&dir, "cat ':search?news'").starts_with("nothing found"));
    let expire = |name: &str| {
        let command = format!("printf -- '---\\nttl: 0\\n---\\nold news\\n' > {name}");
        sh(&dir, &command);
    };
    // Names that a line-based tool would split or mistake for other names.
    expire("$'x\\na.md'");
    sh(&dir, "mkdir $'d\\xff'");
    expire("$'d\\xff/\\xe9.md'");
    sh(&dir, "cat ':ttl?expired' | xargs -0r rm --");
    assert_eq!(sh(&dir, "ls; rmdir d*"), "a.md\nb.bin\nd\u{fffd}\n");
    sh(&dir, "cat ':ttl?expired' | xargs -0r rm --");

    // An open answer does not change.
    let mut held = fs::File::open(dir.join(":search?one")).unwrap();
    sh(&dir, "echo one more > c.md; cat ':search?one' > /dev/null");
    let mut text = String::new();
    held.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("1 notes"), "{text}");
    assert!(sh(&dir, "cat ':search?one'").starts_with("2 notes"));
    mount.end();
}

#[test]
fn a_failed_request_on_a_missing_file_is_not_cached() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let mount = Mount::new("agent-memory", &dir, &[]);
    for (name, made) in [
        ("new.md", "echo alpha > new.md"),
        ("renamed.md", "mv new.md renamed.md"),
        ("linked.md", "ln renamed.md linked.md"),
    ] {
        for aspect in ["meta", "tags", "ttl", "history"] {
            let (code, _, err) = shell(&dir, &format!("cat {name}:{aspect}"));
            assert!(code == 1 && err.contains("No such file"), "{err}");
        }
        sh(&dir, made);
        for aspect in ["meta", "tags", "ttl", "history"] {
            let answer = sh(&dir, &format!("cat {name}:{aspect}"));
            assert!(!answer.is_empty());
        }
    }
    mount.end();
}

#[test]
fn a_killed_daemon_keeps_all_notes_and_finds_them() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let mount = Mount::new("agent-memory", &dir, &[]);
    for number in 0..50 {
        fs::write(
            dir.join(format!("n{number}.md")),
            format!("fact{number} is so\n"),
        )
        .unwrap();
    }
    let mut open = fs::File::create(dir.join("open.md")).unwrap();
    open.write_all(b"unclosed fact\n").unwrap();
    mount.crash();
    drop(open);
    let mount = Mount::new("agent-memory", &dir, &[]);
    for number in 0..50 {
        let found = fs::read_to_string(dir.join(format!(":search?fact{number}"))).unwrap();
        assert!(found.contains(&format!("/n{number}.md")), "{found}");
    }
    assert!(sh(&dir, "cat ':search?unclosed'").contains("open.md"));
    mount.end();
}

#[test]
fn processes_of_one_host_share_a_memory_and_a_second_mount_is_referred_to_the_first() {
    let Some(scratch) = mountable() else { return };
    let (one, two) = (scratch.dir("one"), scratch.dir("two"));
    let db = scratch.path().join("avm.db").display().to_string();
    let mount = Mount::new("agent-memory", &one, &["--db", &db]);
    // Each `sh` is a process of its own, and sees at once what another has noted.
    sh(&one, "echo 'RSI above 70 means exit' > rule.md");
    assert!(sh(&one, "cat ':search?RSI'").contains("/rule.md"));
    sh(&one, "echo 'RSI above 80 means exit' > rule.md");
    assert!(sh(&one, "cat ':recall?query=RSI+exit'").contains("above 80"));
    let output = run([
        "mount",
        "agent-memory",
        two.to_str().unwrap(),
        "--db",
        db.as_str(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let error = stderr(&output);
    assert!(
        error.contains("in use by another ctxbench mount")
            && error.contains(one.to_str().unwrap())
            && error.contains("use that mount"),
        "{error}"
    );
    assert!(mounts_under(&two).is_empty());
    mount.end();
}

#[test]
fn concurrent_searches_get_answers_during_writes() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let mount = Mount::new("agent-memory", &dir, &["--threads", "4"]);
    fs::write(dir.join("first.md"), "alpha\n").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let dir = &dir;
            scope.spawn(move || {
                for turn in 0..200 {
                    if thread == 0 {
                        fs::write(dir.join(format!("n{turn}.md")), "alpha beta\n").unwrap();
                    }
                    for request in [":search?alpha&limit=1000", ":recall?alpha", ":stats"] {
                        let answer = fs::read_to_string(dir.join(request)).unwrap();
                        assert!(!answer.is_empty());
                    }
                }
            });
        }
    });
    let all = fs::read_to_string(dir.join(":search?alpha&limit=1000")).unwrap();
    assert!(all.starts_with("201 notes match"), "{all}");
    mount.end();
}

/// The installed embedding model. Without one, the test passes with a note, unless
/// `CTXBENCH_REQUIRE_EMBEDDINGS` is set.
fn model() -> Option<String> {
    match embeddings::find() {
        Ok(dir) => Some(dir.display().to_string()),
        Err(missing) if std::env::var_os("CTXBENCH_REQUIRE_EMBEDDINGS").is_some() => {
            panic!("{missing}")
        }
        Err(missing) => {
            eprintln!("SKIPPED: {missing}");
            None
        }
    }
}

/// Waits until all notes have a vector.
fn embedded(dir: &Path) {
    let started = std::time::Instant::now();
    loop {
        let stats = fs::read_to_string(dir.join(":stats")).unwrap();
        if stats.contains("waiting-to-be-embedded: 0\n") {
            return;
        }
        assert!(started.elapsed().as_secs() < 60, "{stats}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_recall_finds_notes_by_meaning_across_remounts() {
    let Some(model) = model() else { return };
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let with = ["--embeddings", &model];
    let mount = Mount::new("agent-memory", &dir, &with);
    sh(&dir, "echo 'The cat sleeps on the sofa all day.' > pets.md");
    sh(
        &dir,
        "echo 'Quarterly revenue rose by nine percent.' > money.md",
    );
    sh(&dir, "head -c 2000 /dev/urandom > binary");
    embedded(&dir);
    // The question shares no word with the notes.
    let ask = "cat ':recall?query=where+do+felines+nap%3F'";
    let recalled = sh(&dir, ask);
    assert!(
        recalled.contains("by full text and meaning\n"),
        "{recalled}"
    );
    assert!(recalled.contains("## /pets.md"), "{recalled}");
    assert!(!recalled.contains("money.md"), "{recalled}");
    // A changed note is found by its new meaning only.
    sh(&dir, "echo 'Rents are due on the first.' > pets.md");
    embedded(&dir);
    let changed = sh(&dir, ask);
    assert!(!changed.contains("pets.md"), "{changed}");
    sh(
        &dir,
        "echo 'The cat sleeps on the sofa all day.' > pets.md; mv pets.md animals.md",
    );
    embedded(&dir);
    mount.end();
    // Vectors are kept. A mount without a model reports that it searches by full text only.
    let mount = Mount::new("agent-memory", &dir, &["--embeddings", "none"]);
    let plain = sh(&dir, ask);
    assert!(
        plain.starts_with("# nothing found") && plain.contains("by full text)"),
        "{plain}"
    );
    assert!(sh(&dir, "cat :stats").contains("relevance: full text (--embeddings none)"));
    sh(&dir, "rm money.md");
    mount.end();
    let mount = Mount::new("agent-memory", &dir, &with);
    embedded(&dir);
    assert!(sh(&dir, ask).contains("## /animals.md"));
    mount.end();
    // After a kill during embedding, the next mount embeds the rest.
    let mount = Mount::new("agent-memory", &dir, &with);
    for number in 0..200 {
        fs::write(
            dir.join(format!("n{number}.md")),
            format!("Ticket {number} is open.\n"),
        )
        .unwrap();
    }
    mount.crash();
    let mount = Mount::new("agent-memory", &dir, &with);
    embedded(&dir);
    let first = sh(&dir, ask);
    assert!(
        first.contains("by full text and meaning\n") && first.contains("/animals.md"),
        "{first}"
    );
    mount.end();
}

#[test]
fn a_mount_without_a_valid_model_is_refused() {
    let scratch = Scratch::new();
    let dir = scratch.dir("avm");
    let output = Command::new(crate::common::CTXBENCH)
        .args(["mount", "agent-memory", "--embeddings"])
        .args([scratch.path(), &dir])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("config.json"),
        "{error}"
    );
}
