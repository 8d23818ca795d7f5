//! Two hosts that change one memory at once: what is merged, what is kept twice, and what other hosts' changes free.

use crate::common::*;
use crate::hosts::*;

use std::sync::{Arc, Mutex};

use fuse::store::{Ino, KernelCache, Kind, ROOT, RenameMode, Store};
use proptest::prelude::*;
use s3_store::S3Store;

const REPLACE: RenameMode = RenameMode::Replace;

/// Two hosts that have both read all files.
fn hosts(files: &[(&str, &[u8])]) -> (Memory, S3Store, S3Store) {
    let memory = Memory::new();
    let (a, b) = (memory.mount("alice"), memory.mount("bob"));
    for (name, content) in files {
        write(&a, name, content);
    }
    exchange(&a, &b);
    assert_eq!(state(&b), state(&a));
    (memory, a, b)
}

/// Commits the changes of both, `first` first, and checks that all hosts then have the same.
fn converge(memory: &Memory, first: &S3Store, second: &S3Store) {
    for host in [first, second, first, second] {
        host.upload().unwrap();
        host.pull().unwrap();
    }
    let seen = state(first);
    assert_eq!(state(second), seen);
    assert_eq!(state(&memory.fresh()), seen);
    for host in [first, second] {
        assert_eq!(host.pending().unwrap(), 0);
    }
    memory.check();
}

fn is_free_of_conflicts(hosts: [&S3Store; 2]) {
    hosts.into_iter().for_each(is_settled);
}

/// Text of so many bytes, in lines.
fn lines(length: usize) -> Vec<u8> {
    let mut text: Vec<u8> = (0..length / 60).flat_map(|number| format!("{number:059}\n").into_bytes()).collect();
    text.resize(length, b'\n');
    text
}

#[test]
fn lines_that_two_hosts_append_at_once_are_all_there_once() {
    // The second is past the head that the database holds.
    for length in [0, 300 << 10] {
        let (memory, a, b) = hosts(&[("log", &lines(length))]);
        std::thread::scope(|scope| {
            for (who, host) in [("alice", &a), ("bob", &b)] {
                scope.spawn(move || {
                    let log = find(host, "log");
                    for number in 0..25 {
                        append(host, log, format!("{who} {number}\n").as_bytes());
                        host.upload().unwrap();
                    }
                });
            }
        });
        converge(&memory, &a, &b);
        is_free_of_conflicts([&a, &b]);
        let text = text(&a, "log");
        for who in ["alice", "bob"] {
            let appended: Vec<&str> = text.lines().filter(|line| line.starts_with(who)).collect();
            let expected: Vec<String> = (0..25).map(|number| format!("{who} {number}")).collect();
            assert_eq!(appended, expected);
        }
        assert!(text.as_bytes().starts_with(&lines(length)));
        let before = lines(length).iter().filter(|b| **b == b'\n').count();
        assert_eq!(text.lines().count(), before + 50);
    }
}

#[test]
fn a_log_that_two_hosts_create_at_once_is_one_file_with_the_lines_of_both() {
    for name in ["run.log", "events.jsonl", "2026-11-24.md"] {
        let (memory, a, b) = hosts(&[]);
        let mut expected = Vec::new();
        for number in 0..25 {
            for (host, who) in [(&a, "alice"), (&b, "bob")] {
                let line = format!("{who} {number}\n");
                match number {
                    0 => drop(write(host, name, line.as_bytes())),
                    _ => append(host, find(host, name), line.as_bytes()),
                }
                expected.push(line);
            }
        }
        converge(&memory, &a, &b);
        is_free_of_conflicts([&a, &b]);
        let text = text(&a, name);
        let mut found: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn appends_merge_past_the_end_of_the_first_chunk() {
    let base = lines((8 << 20) - 700);
    let (memory, a, b) = hosts(&[("log", &base)]);
    let (ours, theirs) = (lines(500), lines(600));
    append(&a, find(&a, "log"), &theirs);
    append(&b, find(&b, "log"), &ours);
    converge(&memory, &a, &b);
    is_free_of_conflicts([&a, &b]);
    for host in [&a, &b] {
        assert!(bytes(host, find(host, "log")) == [&base[..], &theirs, &ours].concat());
    }
}

#[test]
fn edits_of_different_lines_are_merged() {
    for length in [600, 300 << 10] {
        let base = String::from_utf8(lines(length)).unwrap();
        let (one, other) = (format!("{:059}\n", 1), format!("{:059}\n", 7));
        let (memory, a, b) = hosts(&[("text", base.as_bytes())]);
        write(&a, "text", base.replace(&one, "of alice\n").as_bytes());
        write(&b, "text", base.replace(&other, "bob's\n").as_bytes());
        converge(&memory, &a, &b);
        is_free_of_conflicts([&a, &b]);
        let both = base.replace(&one, "of alice\n").replace(&other, "bob's\n");
        assert!(text(&a, "text") == both);
    }
}

#[test]
fn edits_that_cannot_be_merged_are_both_kept() {
    let long = pattern(9 << 20, 1);
    let edited = |at: usize| {
        let mut edited = long.clone();
        edited[at] ^= 1;
        edited
    };
    type Case<'a> = (&'a str, &'a [u8], &'a [u8], &'a [u8]);
    let cases: [Case<'_>; 4] = [
        ("one line", b"1\n2\n3\n", b"1\na\n3\n", b"1\nb\n3\n"),
        ("bytes", b"\xff\x00", b"\xff\x01", b"\xff\x02"),
        ("both made it", b"", b"a", b"b"),
        ("long", &long, &edited(5), &edited(9_000_000)),
    ];
    for (what, base, alices, bobs) in cases {
        let (memory, a, b) = hosts(&[]);
        if !base.is_empty() {
            write(&a, "f.md", base);
            exchange(&a, &b);
            // Bob's version follows from the base.
            assert!(bytes(&b, find(&b, "f.md")) == base);
        }
        write(&a, "f.md", alices);
        write(&b, "f.md", bobs);
        let open = find(&b, "f.md");
        converge(&memory, &a, &b);
        for host in [&a, &b] {
            let kept = conflicts(host);
            assert_eq!(kept.len(), 1, "{what}: {kept:?}");
            let name = kept[0].as_str();
            let is_bobs = name.starts_with("f.conflict-bob-");
            assert!(is_bobs && name.ends_with(".md"), "{name}");
            assert!(bytes(host, find(host, "f.md")) == alices, "{what}");
            assert!(bytes(host, find(host, name)) == bobs, "{what}");
        }
        assert_eq!(b.counters()["s3_conflicts"], 1, "{what}");
        // An open handle continues with the content that was written there.
        assert!(bytes(&b, open) == bobs, "{what}");
    }
}

/// Overwrites `f.md`.
type Overwrite = fn(&S3Store, &[u8]);

/// Each way to put other bytes in the place of a file's, of the same length.
const OVERWRITES: [(&str, Overwrite); 3] = [
    ("truncates", |host, text| _ = write(host, "f.md", text)),
    ("writes in place", |host, text| {
        let ino = find(host, "f.md");
        host.write(&now(), ino, 0, text).unwrap();
    }),
    ("replaces", |host, text| {
        write(host, "f.new", text);
        rename(host, "f.new", "f.md", REPLACE);
    }),
];

#[test]
fn a_version_that_arrives_in_the_middle_of_an_edit_is_kept() {
    let long = |line: &str| [line.as_bytes(), &lines(300 << 10)].concat();
    let short = |line: &str| line.as_bytes().to_vec();
    for (what, overwrite) in OVERWRITES {
        for is_long in [false, true] {
            let of = |line: &str| if is_long { long(line) } else { short(line) };
            let (memory, a, b) = hosts(&[("f.md", &of("12345\n"))]);
            // Bob's program has read the file, and writes it back after the commit has arrived.
            write(&a, "f.md", &of("alice\n"));
            exchange(&a, &b);
            overwrite(&b, &of("bobby\n"));
            converge(&memory, &b, &a);
            for host in [&a, &b] {
                let kept = conflicts(host);
                assert_eq!(kept.len(), 1, "{what}: {kept:?}");
                assert!(kept[0].starts_with("f.conflict-bob-"), "{kept:?}");
                assert!(bytes(host, find(host, &kept[0])) == of("alice\n"), "{what}");
                assert!(bytes(host, find(host, "f.md")) == of("bobby\n"), "{what}");
            }
        }
    }
}

#[test]
fn a_file_that_arrives_while_a_program_makes_one_of_that_name_is_kept() {
    let (memory, a, b) = hosts(&[]);
    write(&a, "f.md", b"alice\n");
    exchange(&a, &b);
    write(&b, "f.md", b"bobby\n");
    converge(&memory, &b, &a);
    let kept = conflicts(&a);
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(text(&a, &kept[0]), "alice\n");
}

#[test]
fn a_read_that_is_cut_to_the_old_length_loses_no_line_of_either_host() {
    let (memory, a, b) = hosts(&[("f.md", b"one\n")]);
    write(&a, "f.md", b"one\nalice\n");
    let ino = write(&b, "f.md", b"one\nbobby\n");
    assert_eq!(bytes(&b, ino), b"one\nbobby\n");
    exchange(&a, &b);
    // The kernel still has the size of before, and has not asked for another.
    let cut = read(&b, ino, 0, "one\nbobby\n".len());
    assert_eq!(cut, b"one\nalice\n");
    write(&b, "f.md", b"one\nalice\nmore\n");
    converge(&memory, &b, &a);
    let kept = conflicts(&a);
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(text(&a, &kept[0]), "one\nalice\nbobby\n");
    assert_eq!(text(&a, "f.md"), "one\nalice\nmore\n");
}

#[test]
fn an_edit_of_a_version_that_was_read_leaves_no_copy() {
    for (what, overwrite) in OVERWRITES {
        let (memory, a, b) = hosts(&[("f.md", b"12345\n")]);
        write(&a, "f.md", b"alice\n");
        exchange(&a, &b);
        assert_eq!(text(&b, "f.md"), "alice\n");
        overwrite(&b, b"bobby\n");
        converge(&memory, &b, &a);
        is_free_of_conflicts([&a, &b]);
        assert_eq!(text(&a, "f.md"), "bobby\n", "{what}");
    }
}

#[test]
fn an_edit_outlives_a_deletion() {
    let long = pattern(9 << 20, 1);
    for (is_open, is_deleted_first) in [(false, false), (false, true), (true, false), (true, true)] {
        let (memory, a, b) = hosts(&[("note", b"one\n"), ("long", &long), ("dirty", &long)]);
        for name in ["note", "long"] {
            // The second chunk of the long one: the first is that of before.
            let end = a.getattr(find(&a, name)).unwrap().size;
            a.append(&now(), find(&a, name), end, b"two\n").unwrap();
        }
        append(&a, find(&a, "dirty"), b"two\n");
        b.write(&now(), find(&b, "dirty"), 0, b"overwritten, then removed").unwrap();
        for name in ["note", "long", "dirty"] {
            if is_open { _ = b.unlink(&now(), ROOT, name.as_bytes()).unwrap() } else { unlink(&b, name) }
        }
        if is_deleted_first {
            converge(&memory, &b, &a)
        } else {
            converge(&memory, &a, &b)
        }
        for host in [&a, &b] {
            assert_eq!(names(host, ROOT), ["dirty", "long", "note"]);
            assert_eq!(text(host, "note"), "one\ntwo\n");
            for name in ["long", "dirty"] {
                let expected = [&long[..], b"two\n"].concat();
                let found = bytes(host, find(host, name));
                assert!(found == expected, "{name} {is_open}");
            }
        }
        // It can be used as any other.
        append(&b, find(&b, "note"), b"three\n");
        converge(&memory, &b, &a);
        assert_eq!(text(&a, "note"), "one\ntwo\nthree\n");
        is_free_of_conflicts([&a, &b]);
    }
}

#[test]
fn names_that_both_change_combine() {
    type Act = fn(&S3Store);
    let cases: [(&str, Act, Act, &[&str]); 8] = [
        (
            "one renames, the other edits",
            |a| rename(a, "f", "g", REPLACE),
            |b| append(b, find(b, "f"), b"more"),
            &["dir/in=in", "g=fmore", "h=h"],
        ),
        (
            "both rename to the same",
            |a| rename(a, "f", "g", REPLACE),
            |b| rename(b, "f", "g", REPLACE),
            &["dir/in=in", "g=f", "h=h"],
        ),
        (
            "one renames, the other deletes",
            |a| rename(a, "f", "g", REPLACE),
            |b| unlink(b, "f"),
            &["dir/in=in", "g=f", "h=h"],
        ),
        (
            "one exchanges, the other edits",
            |a| rename(a, "f", "h", RenameMode::Exchange),
            |b| append(b, find(b, "h"), b"more"),
            &["dir/in=in", "f=hmore", "h=f"],
        ),
        (
            "one renames a directory, the other writes in it",
            |a| rename(a, "dir", "moved", REPLACE),
            |b| _ = write_in(b, find(b, "dir"), "new", b"new"),
            &["f=f", "h=h", "moved/in=in", "moved/new=new"],
        ),
        (
            "both make a directory",
            |a| _ = write_in(a, mkdir(a, ROOT, "made"), "a", b"a"),
            |b| _ = write_in(b, mkdir(b, ROOT, "made"), "b", b"b"),
            &["dir/in=in", "f=f", "h=h", "made/a=a", "made/b=b"],
        ),
        (
            "one removes a directory, the other writes in it",
            remove_dir,
            |b| _ = write_in(b, find(b, "dir"), "new", b"new"),
            &["dir/new=new", "f=f", "h=h"],
        ),
        (
            "one writes in a directory that the other has removed",
            |a| _ = write_in(a, find(a, "dir"), "new", b"new"),
            remove_dir,
            &["dir/new=new", "f=f", "h=h"],
        ),
    ];
    for (what, alices, bobs, expected) in cases {
        for is_bob_first in [false, true] {
            let (memory, a, b) = hosts(&[("f", b"f"), ("h", b"h")]);
            write_in(&a, mkdir(&a, ROOT, "dir"), "in", b"in");
            exchange(&a, &b);
            alices(&a);
            bobs(&b);
            if is_bob_first {
                converge(&memory, &b, &a)
            } else {
                converge(&memory, &a, &b)
            }
            let mut found = Vec::new();
            list(&a, ROOT, "", &mut found);
            assert_eq!(found, expected, "{what}, bob first: {is_bob_first}");
        }
    }
}

#[test]
fn an_edit_goes_into_the_file_that_replaced_its_own_while_that_is_open_without_a_name() {
    let (memory, a, b) = hosts(&[("f", b"1\n2\n3\n"), ("next", b"1\n2\n3\n4\n")]);
    rename(&a, "next", "f", REPLACE);
    write(&b, "f", b"one\n2\n3\n");
    let open = find(&b, "next");
    b.unlink(&now(), ROOT, b"next").unwrap();
    converge(&memory, &a, &b);
    is_free_of_conflicts([&a, &b]);
    assert_eq!(text(&a, "f"), "one\n2\n3\n4\n");
    assert_eq!(bytes(&b, open), b"1\n2\n3\n4\n");
}

fn remove_dir(host: &S3Store) {
    let dir = find(host, "dir");
    let gone = host.unlink(&now(), dir, b"in").unwrap();
    host.reclaim(gone.unwrap()).unwrap();
    let gone = host.rmdir(&now(), ROOT, b"dir").unwrap();
    host.reclaim(gone.unwrap()).unwrap();
}

fn list(host: &S3Store, dir: Ino, path: &str, found: &mut Vec<String>) {
    for name in names(host, dir) {
        let attr = host.lookup(dir, name.as_bytes()).unwrap();
        match attr.kind {
            Kind::Directory => list(host, attr.ino, &format!("{path}{name}/"), found),
            _ => found.push(format!("{path}{name}={}", text_in(host, dir, &name))),
        }
    }
}

#[test]
fn two_moves_that_make_a_circle_lose_nothing() {
    let (memory, a, b) = hosts(&[]);
    for name in ["x", "y"] {
        write_in(&a, mkdir(&a, ROOT, name), "in", name.as_bytes());
    }
    exchange(&a, &b);
    for (host, from, to) in [(&a, "x", "y"), (&b, "y", "x")] {
        let name = from.as_bytes();
        let to = (find(host, to), name);
        host.rename(&now(), (ROOT, name), to, REPLACE).unwrap();
    }
    converge(&memory, &a, &b);
    let mut found = Vec::new();
    list(&b, ROOT, "", &mut found);
    assert_eq!(found, ["y/in=y", "y/x/in=x"]);
}

#[test]
fn attributes_of_one_host_and_content_of_another_combine() {
    let (memory, a, b) = hosts(&[("f", b"f")]);
    let changed = find(&a, "f");
    a.setattr(&now(), changed, &permissions(0o600)).unwrap();
    append(&b, find(&b, "f"), b"more");
    converge(&memory, &a, &b);
    is_free_of_conflicts([&a, &b]);
    assert_eq!(a.getattr(find(&a, "f")).unwrap().permissions, 0o600);
    assert_eq!(text(&b, "f"), "fmore");
}

/// A kernel that has one inode open, and records its notifications.
#[derive(Default)]
struct Kernel {
    open: Mutex<Vec<Ino>>,
    told: Mutex<Vec<String>>,
}

impl KernelCache for Kernel {
    fn invalidate_inode(&self, ino: Ino) {
        self.told.lock().unwrap().push(format!("inode {ino}"));
    }
    fn invalidate_name(&self, _: Ino, name: &[u8]) {
        let name = String::from_utf8_lossy(name);
        self.told.lock().unwrap().push(format!("name {name}"));
    }
    fn store_pages(&self, _: Ino, _: u64, _: &[u8]) {}
    fn knows(&self, ino: Ino) -> bool {
        self.open.lock().unwrap().contains(&ino)
    }
    fn tell_watchers(&self, _: Ino, path: &[u8]) {
        let path = String::from_utf8_lossy(path);
        self.told.lock().unwrap().push(format!("event {path}"));
    }
    fn is_unreferenced(&self, ino: Ino) -> bool {
        !self.open.lock().unwrap().contains(&ino)
    }
}

#[test]
fn files_that_others_delete_free_their_space_and_the_kernel_is_told() {
    let long = pattern(1 << 20, 1);
    let (_memory, a, b) = hosts(&[("gone", &long), ("open", &long), ("changed", b"1")]);
    let kernel = Arc::new(Kernel::default());
    let (gone, open) = (find(&b, "gone"), find(&b, "open"));
    kernel.open.lock().unwrap().push(open);
    b.attach(Arc::clone(&kernel) as Arc<dyn KernelCache>);
    for name in ["gone", "open"] {
        unlink(&a, name);
    }
    append(&a, find(&a, "changed"), b"2");
    exchange(&a, &b);
    eventually("the space is free", || b.getattr(gone).is_err());
    let changed = find(&b, "changed");
    let told = kernel.told.lock().unwrap().clone();
    let is_told = |what: &str| told.iter().any(|told| told == what);
    for what in ["name gone", "name open", &format!("inode {changed}")] {
        assert!(is_told(what), "{what}: {told:?}");
    }
    assert!(!is_told("name changed"));
    assert!(bytes(&b, open) == long, "it is open");
    b.reclaim(open).unwrap();
    assert!(b.getattr(open).is_err());
    b.detach();
}

#[test]
fn watchers_are_told_of_what_others_change_only_where_the_kernel_knows_it() {
    let (_memory, a, b) = hosts(&[("known", b"1"), ("other", b"1")]);
    let dir = create(&a, ROOT, "d", Kind::Directory).ino;
    create(&a, dir, "in d", Kind::File);
    exchange(&a, &b);
    let kernel = Arc::new(Kernel::default());
    kernel.open.lock().unwrap().extend([ROOT, find(&b, "known")]);
    b.attach(Arc::clone(&kernel) as Arc<dyn KernelCache>);
    let told = || {
        let told = std::mem::take(&mut *kernel.told.lock().unwrap());
        let is_event = |told: &String| told.starts_with("event");
        told.into_iter().filter(is_event).collect::<Vec<_>>()
    };
    for name in ["known", "other"] {
        append(&a, find(&a, name), b"2");
    }
    exchange(&a, &b);
    assert_eq!(told(), ["event known"]);
    create(&a, ROOT, "new", Kind::File);
    create(&a, dir, "new in d", Kind::File);
    exchange(&a, &b);
    // The directory first: its event is the last to be dropped.
    assert_eq!(told(), ["event ", "event new"]);
    unlink(&a, "new");
    exchange(&a, &b);
    assert_eq!(told(), ["event "]);
    kernel.open.lock().unwrap().push(b.lookup(ROOT, b"d").unwrap().ino);
    create(&a, dir, "last", Kind::File);
    exchange(&a, &b);
    assert_eq!(told(), ["event d", "event d/last"]);
    b.detach();
}

/// A step of one host, an upload, a pull, or a reopening.
#[derive(Clone, Debug)]
enum Turn {
    Step(bool, Step),
    Upload(bool),
    Pull(bool),
    Reopen(bool),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        10 => (any::<bool>(), step()).prop_map(|(who, step)| Turn::Step(who, step)),
        1 => any::<bool>().prop_map(Turn::Upload),
        1 => any::<bool>().prop_map(Turn::Pull),
        1 => any::<bool>().prop_map(Turn::Reopen),
    ];
    prop::collection::vec(turn, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn hosts_that_change_the_same_files_at_random_have_the_same_in_the_end(turns in turns(), is_shared in any::<bool>()) {
        let memory = if is_shared { Memory::in_directory() } else { Memory::new() };
        let writers = ["alice", "bob"];
        let mut hosts = writers.map(|writer| Some((memory.mount(writer), vec![ROOT])));
        for (at, turn) in turns.iter().enumerate() {
            let now = 100 + at as i64;
            match turn {
                Turn::Step(who, step) => {
                    let (store, made) = hosts[usize::from(*who)].as_mut().unwrap();
                    let mut driven = StoreDriver { store, made: std::mem::take(made) };
                    // A failed step must change nothing, so failures are cases, too.
                    let _ = driven.step(step, now);
                    *made = driven.made;
                }
                Turn::Upload(who) | Turn::Pull(who) => {
                    let (store, made) = hosts[usize::from(*who)].as_mut().unwrap();
                    match turn {
                        Turn::Pull(_) => store.pull().unwrap(),
                        _ => store.upload().unwrap(),
                    }
                    all_inodes(store, ROOT, made);
                }
                Turn::Reopen(who) => {
                    let who = usize::from(*who);
                    hosts[who] = None;
                    let store = memory.mount(writers[who]);
                    let mut made = vec![ROOT];
                    all_inodes(&store, ROOT, &mut made);
                    hosts[who] = Some((store, made));
                }
            }
        }
        let [Some((a, _)), Some((b, _))] = &hosts else { unreachable!() };
        converge(&memory, a, b);
    }
}

/// Adds the named inodes to those that steps choose from.
fn all_inodes(store: &dyn Store, dir: Ino, made: &mut Vec<Ino>) {
    for name in names(store, dir) {
        let attr = store.lookup(dir, name.as_bytes()).unwrap();
        if !made.contains(&attr.ino) {
            made.push(attr.ino);
        }
        if attr.kind == Kind::Directory {
            all_inodes(store, attr.ino, made);
        }
    }
}
