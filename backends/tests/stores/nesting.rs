//! Directories nested more deeply than a stack or a path holds, and directories with very many names: nothing may be
//! recursive or quadratic in them.

use std::ops::ControlFlow;
use std::time::Instant;

use agent_memory::AgentMemory;
use fuse::memory::MemoryStore;
use fuse::store::{Errno, Ino, Kind, ROOT, RenameMode, Store};
use sqlite::{SqliteStore, check};

use crate::common::*;
use crate::hosts;
use crate::model::{exact, history};

fn text(store: &dyn Store, ino: Ino) -> String {
    String::from_utf8(read(store, ino, 0, 1 << 20)).unwrap()
}

/// How many directories are nested.
const DEPTH: usize = 30_000;

/// Every so many directories have a note.
const NOTES: usize = 1000;

/// Says how long a step took; a step that is quadratic takes minutes.
fn timed<T>(what: &str, step: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = step();
    println!("  {what}: {:.2?}", began.elapsed());
    done
}

/// Nested directories below `top` of the root, with notes in some of them.
fn nest(store: &dyn Store) -> Vec<Ino> {
    let mut dirs = vec![ROOT];
    for depth in 0..DEPTH {
        let name = if depth == 0 { "top" } else { "d" };
        let parent = dirs[depth];
        dirs.push(create(store, parent, name, Kind::Directory).ino);
        if depth % NOTES == NOTES - 1 {
            create(store, parent, "note.md", Kind::File);
        }
    }
    dirs
}

/// The nested directories below `top`, by lookups and listings.
fn descend(store: &dyn Store, top: &str) -> Vec<Ino> {
    let mut dirs = vec![ROOT];
    let mut name = top.as_bytes();
    while let Ok(attr) = store.lookup(dirs[dirs.len() - 1], name) {
        assert_eq!(store.parent(attr.ino).unwrap(), dirs[dirs.len() - 1]);
        dirs.push(attr.ino);
        let listed = store.readdir(attr.ino, 0, true, &mut |_| ControlFlow::Continue(()));
        listed.unwrap();
        name = b"d";
    }
    dirs
}

/// Moves the top, and tries to move it to its own bottom.
fn rename_top(store: &dyn Store, dirs: &[Ino]) {
    let plain = RenameMode::Replace;
    let bottom = *dirs.last().unwrap();
    let inside = store.rename(&caller(2), (ROOT, b"top"), (bottom, b"x"), plain);
    assert_eq!(inside.unwrap_err().errno, Errno::INVAL);
    let moved = store.rename(&caller(2), (ROOT, b"top"), (ROOT, b"moved"), plain);
    moved.unwrap();
}

/// Removes everything, the bottom first.
fn remove_all(store: &dyn Store, dirs: &[Ino]) {
    for depth in (0..dirs.len() - 1).rev() {
        let parent = dirs[depth];
        if depth % NOTES == NOTES - 1 {
            store.unlink(&caller(3), parent, b"note.md").unwrap();
        }
        let name: &[u8] = if depth == 0 { b"moved" } else { b"d" };
        store.rmdir(&caller(3), parent, name).unwrap();
    }
    assert_eq!(errno(store.lookup(ROOT, b"moved")), Errno::NOENT);
}

/// All of it, with another mount of the same store after the move.
fn nested<S: Store>(mount: impl Fn() -> S, then: impl Fn(&S, &[Ino])) {
    let store = mount();
    println!("{}", store.kind());
    let dirs = timed("mkdir", || nest(&store));
    assert_eq!(timed("lookup", || descend(&store, "top")), dirs);
    timed("rename", || rename_top(&store, &dirs));
    then(&store, &dirs);
    let store = timed("unmount and mount", || {
        drop(store);
        mount()
    });
    let dirs = timed("lookup", || descend(&store, "moved"));
    assert_eq!(dirs.len(), DEPTH + 1);
    then(&store, &dirs);
    timed("rm -r", || remove_all(&store, &dirs));
    timed("unmount", || drop(store));
}

#[test]
fn memory_holds_30_000_nested_directories() {
    let store = &MemoryStore::new(&caller(1));
    let dirs = timed("mkdir", || nest(store));
    assert_eq!(timed("lookup", || descend(store, "top")), dirs);
    timed("rename", || rename_top(store, &dirs));
    timed("rm -r", || remove_all(store, &dirs));
}

#[test]
fn history_refuses_a_path_that_is_too_long_for_a_prompt() {
    let store = history(exact(), None);
    let mut dirs = vec![ROOT];
    let refused = loop {
        let made = store.create(&caller(1), dirs[dirs.len() - 1], b"d", &node(Kind::Directory));
        match made {
            Ok(attr) => dirs.push(attr.ino),
            Err(error) => break error,
        }
    };
    assert_eq!((refused.errno, dirs.len()), (Errno::NAMETOOLONG, 1 + 4096 / 2));
    let (bottom, long) = (*dirs.last().unwrap(), [b'x'; 200]);
    create(&store, ROOT, "a", Kind::File);
    let a = store.lookup(ROOT, b"a").unwrap().ino;
    for error in [
        store.link(&caller(2), a, bottom, b"l").map(|_| ()),
        store.rename(&caller(2), (ROOT, b"a"), (bottom, b"l"), RenameMode::Replace).map(|_| ()),
    ] {
        assert_eq!(errno(error), Errno::NAMETOOLONG);
    }
    let moved = store.rename(&caller(2), (ROOT, b"d"), (ROOT, &long), RenameMode::Replace);
    moved.unwrap();
    for at in (1..dirs.len() - 1).rev() {
        store.rmdir(&caller(3), dirs[at], b"d").unwrap();
    }
}

#[test]
fn sqlite_holds_30_000_nested_directories() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.db");
    nested(
        || SqliteStore::open(&file, &caller(1)).unwrap(),
        |_, _| {
            let checked = timed("doctor", || check(&file).unwrap());
            assert_eq!(checked.problems, Vec::<String>::new());
        },
    );
}

#[test]
fn agent_memory_holds_and_finds_notes_in_30_000_nested_directories() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m.db");
    let ask = |store: &AgentMemory, dir: Ino, name: &str| {
        let attr = store.lookup(dir, name.as_bytes())?;
        Ok::<_, fuse::store::StoreError>(text(store, attr.ino))
    };
    nested(
        || AgentMemory::open(&file, &caller(1), Some("kim")).unwrap(),
        |store, dirs| {
            for (request, part) in [
                (":search?note&limit=100", "30 notes match"),
                (":recall?query=note", "notes"),
                (":stats", "notes: 30"),
                (":history", "written"),
                (":meta", "note.md"),
                (":ttl", "expires"),
            ] {
                let said = timed(request, || ask(store, dirs[200], request).unwrap());
                let found = match request {
                    ":search?note&limit=100" | ":recall?query=note" | ":stats" | ":history" => part,
                    _ => "",
                };
                has(&said, &[found]);
                assert!(said.len() < 200_000, "{request}: {} bytes", said.len());
            }
            // Below the limit there are notes, but no requests.
            let note = ask(store, dirs[NOTES - 1], "note.md:meta").unwrap();
            has(&note, &["importance"]);
            let bottom = *dirs.last().unwrap();
            assert_eq!(errno(ask(store, bottom, ":search?note")), Errno::INVAL);
            has(&ask(store, ROOT, ":stats").unwrap(), &["more than 256 levels deep"]);
            let checked = timed("doctor", || check(&file).unwrap());
            assert_eq!(checked.problems, Vec::<String>::new());
        },
    );
    assert_eq!(check(&file).unwrap().problems, Vec::<String>::new());
}

#[test]
fn agent_memory_indexes_a_note_in_each_of_3_000_nested_directories() {
    let dir = tempfile::tempdir().unwrap();
    let store = AgentMemory::open(&dir.path().join("m.db"), &caller(1), None).unwrap();
    let mut dir = ROOT;
    for _ in 0..3000 {
        create(&store, dir, "note.md", Kind::File);
        dir = create(&store, dir, "d", Kind::Directory).ino;
    }
    let found = timed(":search", || store.lookup(ROOT, b":search?note&limit=5").unwrap());
    has(&text(&store, found.ino), &["these 5 notes match"]);
    assert_eq!(store.notes(), 3000);
}

#[test]
fn s3_holds_30_000_nested_directories_and_another_host_reads_them() {
    let memory = hosts::Memory::new();
    let host = memory.mount("host");
    println!("{}", host.kind());
    let dirs = timed("mkdir", || nest(&host));
    assert_eq!(timed("lookup", || descend(&host, "top")), dirs);
    timed("upload", || host.upload().unwrap());
    timed("rename", || rename_top(&host, &dirs));
    timed("upload", || host.upload().unwrap());
    let other = timed("mount of another host", || memory.fresh());
    let found = timed("lookup", || descend(&other, "moved"));
    assert_eq!(found.len(), DEPTH + 1);
    timed("check", || memory.check());
    timed("rm -r", || remove_all(&host, &dirs));
    timed("exchange", || hosts::exchange(&host, &other));
    assert!(names(&other, ROOT).is_empty());
}

#[test]
fn a_directory_of_100_000_names_and_an_inode_of_20_000_links_stay_usable() {
    let dir = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(&dir.path().join("t.db"), &caller(1)).unwrap();
    let notes = AgentMemory::open(&dir.path().join("m.db"), &caller(1), None).unwrap();
    let memory = hosts::Memory::new();
    let host = memory.mount("host");
    let stores: [&dyn Store; 5] = [&MemoryStore::new(&caller(1)), &history(exact(), None), &sqlite, &notes, &host];
    for store in stores {
        println!("{}", store.kind());
        let ino =
            timed("create", || (0..100_000).fold(0, |_, at| create(store, ROOT, &format!("n{at}"), Kind::Symlink).ino));
        timed("list", || assert_eq!(names(store, ROOT).len(), 100_000));
        let links = create(store, ROOT, "links", Kind::Directory).ino;
        let linked = (0..20_000).all(|at| store.link(&caller(2), ino, links, format!("l{at}").as_bytes()).is_ok());
        timed("link", || assert!(linked));
        timed("unlink", || {
            for at in 0..20_000 {
                store.unlink(&caller(2), links, format!("l{at}").as_bytes()).unwrap();
            }
        });
        assert_eq!(store.getattr(ino).unwrap().nlink, 1);
        let moved = store.rename(&caller(3), (ROOT, b"links"), (ROOT, b"other"), RenameMode::Replace);
        moved.unwrap();
    }
    timed("upload", || host.upload().unwrap());
    let found = timed("mount of another host", || names(&memory.fresh(), ROOT).len());
    assert_eq!(found, 100_001);
}

#[test]
fn agent_memory_indexes_and_recalls_every_shape_of_text_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = AgentMemory::open(&dir.path().join("m.db"), &caller(1), None).unwrap();
    let size = 256 << 10;
    let of = |part: &str| part.repeat(size / part.len());
    let front = |yaml: String| format!("---\nx: {yaml}\n---\nzebra\n");
    let laughs: String = (0..60)
        .map(|at| {
            let again = format!("*a{}, ", at).repeat(9);
            format!("a{}: &a{} [{}]\n", at + 1, at + 1, again.trim_end_matches(", "))
        })
        .collect();
    let texts = [
        ("word", of("a")),
        ("words", of("a ")),
        ("distinct", (0..40_000).map(|at| format!("w{at} ")).collect()),
        ("headings", of("# x\n")),
        ("nested-headings", (0..8000).map(|at| format!("{} h\n", "#".repeat(1 + at % 30))).collect()),
        ("dots", of(". ")),
        ("points", of(".")),
        ("blanks", format!("zebra{}zebra", of(" "))),
        ("lines", of("\n")),
        ("quotes", of("\"'")),
        ("accents", of("e\u{301}")),
        ("faces", of("👨\u{200d}👩\u{200d}👧")),
        ("nul", of("\0a")),
        ("sequences", front("[".repeat(60_000))),
        ("mappings", front("{a: ".repeat(15_000))),
        ("dashes", front("- ".repeat(30_000))),
        ("questions", front("? ".repeat(30_000))),
        ("indented", front((0..340).map(|at| format!("{}a:\n", " ".repeat(at + 1))).collect())),
        ("quoted", front(format!("\"{}", "\\n".repeat(30_000)))),
        ("laughs", front(format!("1\na0: &a0 lol\n{laughs}tags: *a60"))),
        ("anchors", front((0..5000).map(|at| format!("&b{at} ")).collect())),
        ("open", format!("---\n{}", of("a: b\n"))),
    ];
    for (name, text) in &texts {
        let name = format!("{name}.md");
        timed(&name, || {
            let ino = create(&store, ROOT, &name, Kind::File).ino;
            store.write(&caller(2), ino, 0, text.as_bytes()).unwrap();
            store.lookup(ROOT, format!("{name}:meta").as_bytes()).unwrap();
        });
    }
    let words: Vec<String> = (0..40).map(|at| format!("w{at}")).collect();
    for request in [
        ":search?a".to_owned(),
        format!(":search?{}", words.join("%20OR%20")),
        ":recall?query=a+zebra+x".to_owned(),
        format!(":recall?query={}&max_tokens=1000000", words.join("+")),
        format!(":search?{}a{}", "(".repeat(80), ")".repeat(80)),
    ] {
        let said = timed(&request[..20.min(request.len())], || store.lookup(ROOT, request.as_bytes()));
        println!("    {}", said.map_or_else(|error| error.to_string(), |it| it.size.to_string()));
    }
    // A note of any length: its first 256 KiB are indexed.
    let ino = create(&store, ROOT, "large.md", Kind::File).ino;
    store.write(&caller(2), ino, 0, b"zebra").unwrap();
    resize(&store, ino, 100 << 30);
    let said = timed("100 GiB", || store.lookup(ROOT, b"large.md:meta").unwrap());
    has(&text(&store, said.ino), &["bytes: 107374182400"]);
    // Attributes: as many as the store takes.
    let taken = timed("attributes", || {
        (0..10_000).take_while(|at| set(&store, ino, &format!("user.n{at}"), "v").is_ok()).count()
    });
    println!("    {taken}");
    timed("list of attributes", || assert_eq!(store.listxattr(ino).unwrap().len(), taken));
    timed("meta", || store.lookup(ROOT, b"large.md:meta").unwrap());
}
