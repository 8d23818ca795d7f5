//! Agent memory over a real mount, with common shell tools.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use crate::common::{
    Mount, Scratch, ctxbench, has, installed, lacks, mountable, mounts_under, replays, run, said, sh, stderr, text_of,
    wait_for,
};

#[test]
fn the_transcript_in_the_docs_is_what_a_shell_shows() {
    let Some(scratch) = mountable() else { return };
    replays(&scratch, "MEMORY.md", "avm");
}

#[test]
fn shell_tools_search_and_recall_notes() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let mount = Mount::new("agent-memory", &dir, &["--agent-id", "akashi"]);
    let rule = "memory/private/akashi/rsi_rule.md";
    said(&dir, &format!("echo 'RSI > 70 → exit' > {rule}"));
    assert_eq!(said(&dir, &format!("cat {rule}")), "RSI > 70 → exit\n");
    let found = said(&dir, "cat ':search?RSI'");
    has(&found, &["/memory/private/akashi/rsi_rule.md", "RSI > 70"]);
    let market = "memory/shared/market";
    let note = format!("mkdir {market}; echo 'NVDA risk: sell' > {market}/nvda.md");
    said(&dir, &note);
    let recalled = said(&dir, "cat ':recall?query=NVDA+risk&max_tokens=200'");
    let shown = format!("## /{market}/nvda.md");
    has(&recalled, &[&shown, "NVDA risk: sell"]);
    // The path in a recall's answer can be opened.
    for read in [
        "cat ./$(cat ':recall?NVDA' | sed -n 's/^## //p')",
        "cd memory && cat $(cat ':recall?NVDA' | sed -n 's/^## //p')",
    ] {
        assert_eq!(said(&dir, read), "NVDA risk: sell\n");
    }

    // The size is right before the first read, for every way of reading.
    let size = found.len().to_string();
    for (command, answer) in [
        ("stat -c %s ':search?RSI'", &*size),
        ("wc -c < ':search?RSI'", &size),
        ("head -c 5 ':search?RSI'", &found[..5]),
        ("tail -n 1 ':search?RSI'", found.lines().last().unwrap()),
        ("grep -c RSI ':search?RSI'", "1"),
        ("cat < ':search?RSI'", &found),
        ("cp ':search?RSI' copy.txt; cat copy.txt", &found),
    ] {
        assert_eq!(said(&dir, command).trim(), answer.trim(), "{command}");
    }

    // Every answer reflects the current notes: same name, new content, new size.
    for number in 0..20 {
        let note = format!("/memory/rsi{}.md", number / 2);
        said(&dir, &format!("echo 'RSI note number {number}' >> .{note}"));
        has(&text_of(&dir, ":search?RSI"), &[&note]);
        let exact = text_of(&dir, &format!(":search?\"number+{number}\""));
        assert!(exact.starts_with("1 note matches"), "{exact}");
    }

    // Directory listings show no answers.
    assert_eq!(said(&dir, "ls -A"), "copy.txt\nmemory\n");
    assert_eq!(said(&dir, "find . -name ':*'"), "");
    has(&said(&dir, "ls -l ':stats'"), &[":stats"]);
    mount.end();
    let mount = Mount::new("agent-memory", &dir, &["--agent-id", "akashi"]);
    has(&said(&dir, "cat ':search?exit'"), &["rsi_rule.md"]);
    mount.end();
}

#[test]
fn common_tools_remove_expired_notes_and_an_open_answer_does_not_change() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let mount = Mount::new("agent-memory", &dir, &[]);
    let mut file = fs::File::create(dir.join("a.md")).unwrap();
    file.write_all(b"one\n").unwrap();
    // Written and not closed: the search must find it.
    has(&said(&dir, "cat ':search?one'"), &["a.md"]);
    drop(file);
    let expire = |name: &str| {
        let command = format!("printf -- '---\\nttl: 0\\n---\\nold news\\n' > {name}");
        said(&dir, &command);
    };
    expire("old.md");
    has(&said(&dir, "cat ':search?news'"), &["nothing found"]);
    // Names that a line-based tool would split or mistake for other names.
    expire("$'x\\na.md'");
    said(&dir, "mkdir $'d\\xff'");
    expire("$'d\\xff/\\xe9.md'");
    said(&dir, "cat ':ttl?expired' | xargs -0r rm --");
    assert_eq!(said(&dir, "ls; rmdir d*"), "a.md\nd\u{fffd}\n");
    said(&dir, "cat ':ttl?expired' | xargs -0r rm --");

    let mut held = fs::File::open(dir.join(":search?one")).unwrap();
    said(&dir, "echo one more > c.md; cat ':search?one' > /dev/null");
    let mut text = String::new();
    held.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("1 note matches"), "{text}");
    has(&said(&dir, "cat ':search?one'"), &["2 notes"]);
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
            let refused = sh(&dir, &format!("cat {name}:{aspect}"));
            has(&stderr(&refused), &["No such file"]);
        }
        said(&dir, made);
        for aspect in ["meta", "tags", "ttl", "history"] {
            assert!(!said(&dir, &format!("cat {name}:{aspect}")).is_empty());
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
        let note = format!("fact{number} is so\n");
        fs::write(dir.join(format!("n{number}.md")), note).unwrap();
    }
    let mut open = fs::File::create(dir.join("open.md")).unwrap();
    open.write_all(b"unclosed fact\n").unwrap();
    mount.crash();
    drop(open);
    let mount = Mount::new("agent-memory", &dir, &[]);
    for number in 0..50 {
        let found = text_of(&dir, &format!(":search?fact{number}"));
        has(&found, &[&format!("/n{number}.md")]);
    }
    has(&text_of(&dir, ":search?unclosed"), &["open.md"]);
    mount.end();
}

#[test]
fn processes_of_one_host_share_a_memory_and_a_second_mount_is_referred_to_the_first() {
    let Some(scratch) = mountable() else { return };
    let (one, two) = (scratch.dir("one"), scratch.dir("two"));
    let db = scratch.path().join("avm.db").display().to_string();
    let mount = Mount::new("agent-memory", &one, &["--db", &db]);
    // Each `sh` is a separate process, and sees the notes of the others at once.
    said(&one, "echo 'RSI above 70 means exit' > rule.md");
    has(&said(&one, "cat ':search?RSI'"), &["/rule.md"]);
    said(&one, "echo 'RSI above 80 means exit' > rule.md");
    has(&said(&one, "cat ':recall?query=RSI+exit'"), &["above 80"]);
    let output = run(["mount", "agent-memory", two.to_str().unwrap(), "--db", &db]);
    assert_eq!(output.status.code(), Some(1));
    let (in_use, first) = ("in use by another ctxbench mount", one.to_str().unwrap());
    has(&stderr(&output), &[in_use, first, "use that mount"]);
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
                        assert!(!text_of(dir, request).is_empty());
                    }
                }
            });
        }
    });
    let all = text_of(&dir, ":search?alpha&limit=1000");
    assert!(all.starts_with("201 notes match"), "{all}");
    mount.end();
}

/// Waits until all notes have a vector.
fn embedded(dir: &Path) {
    wait_for("a vector of every note", || text_of(dir, ":stats").contains("waiting-to-be-embedded: 0\n"));
}

#[test]
fn a_recall_finds_notes_by_meaning_across_remounts() {
    let model = installed(embeddings::find(), "CTXBENCH_REQUIRE_EMBEDDINGS");
    let Some(model) = model else { return };
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let with = ["--embeddings", model.to_str().unwrap()];
    let mount = Mount::new("agent-memory", &dir, &with);
    said(&dir, "echo 'The cat sleeps on the sofa all day.' > pets.md");
    let money = "echo 'Quarterly revenue rose by nine percent.' > money.md";
    said(&dir, money);
    said(&dir, "echo 'He planted tomatoes in May.' > may.md");
    said(&dir, "head -c 2000 /dev/urandom > binary");
    embedded(&dir);
    // The question shares no word with the notes.
    let ask = "cat ':recall?query=where+do+felines+nap%3F'";
    let recalled = said(&dir, ask);
    has(&recalled, &["by full text and meaning\n", "## /pets.md"]);
    lacks(&recalled, &["money.md"]);
    // A word that no note has, and that is close to none.
    let recalled = said(&dir, "cat ':recall?gardening'");
    has(&recalled, &["by full text and meaning\n", "## /may.md"]);
    lacks(&recalled, &["money.md"]);
    mount.end();
    // Vectors are kept. A mount without a model reports that it searches by full text only.
    let mount = Mount::new("agent-memory", &dir, &["--embeddings", "none"]);
    has(&said(&dir, ask), &["# nothing found", "by full text)"]);
    let none = "relevance: full text (--embeddings none)";
    has(&said(&dir, "cat :stats"), &[none]);
    mount.end();
    // After a kill during embedding, the next mount embeds the rest.
    let mount = Mount::new("agent-memory", &dir, &with);
    for number in 0..200 {
        let note = dir.join(format!("n{number}.md"));
        fs::write(note, format!("Ticket {number} is open.\n")).unwrap();
    }
    mount.crash();
    let mount = Mount::new("agent-memory", &dir, &with);
    embedded(&dir);
    let found = ["by full text and meaning\n", "## /pets.md"];
    has(&said(&dir, ask), &found);
    mount.end();
}

#[test]
fn a_mount_without_a_valid_model_is_refused() {
    let scratch = Scratch::new();
    let dir = scratch.dir("avm");
    let mut command = ctxbench(["mount", "agent-memory", "--embeddings"]);
    let output = command.args([scratch.path(), &dir]).output().unwrap();
    assert!(!output.status.success());
    has(&stderr(&output), &["config.json"]);
}
