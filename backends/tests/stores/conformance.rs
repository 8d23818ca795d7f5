//! Checks for every store, and random sequences compared with the reference model.

use crate::common;
use crate::hosts;
use crate::model;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use agent_memory::AgentMemory;
use common::*;
use fuse::memory::MemoryStore;
use fuse::store::{Allocation, Change, Errno, Ino, Kind, NewNode, ROOT, RenameMode, Seek, Store, Timestamp, XattrMode};
use model::{exact, generate, history, nobody};
use proptest::prelude::*;
use sqlite::{SqliteStore, check};

/// A check of a store, with the directory that is its root.
type Check = fn(&dyn Store, Ino);

/// Runs a check. A failed test then prints which store it was.
fn run(check: Check, store: &dyn Store, root: Ino) {
    println!("the store: {}", store.kind());
    check(store, root);
}

/// Runs a check on a fresh instance of every store.
fn on_every_store(check: Check) {
    on_every_store_of_any_bytes(check);
    // Its model answers exactly, from the prompt alone.
    run(check, &history(exact(), None), ROOT);
}

/// As [`on_every_store`], without `llm-history`: its content is one answer, which is text of limited length,
/// and it has no content for a file without a name.
fn on_every_store_of_any_bytes(check: Check) {
    let generated = generate(nobody(), None, None).unwrap();
    run(check, &generated, make_work(&generated));
    run(check, &MemoryStore::new(&caller(1)), ROOT);
    let dir = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(&dir.path().join("t.db"), &caller(1));
    run(check, &sqlite.unwrap(), ROOT);
    let notes = AgentMemory::open(&dir.path().join("m.db"), &caller(1), None);
    run(check, &notes.unwrap(), ROOT);
    for memory in hosts::Memory::everywhere() {
        let host = memory.mount("host");
        run(check, &host, ROOT);
        // Whatever the check has left, a host that has never mounted the memory reads it from the bucket.
        host.upload().unwrap();
        hosts::is_settled(&host);
        assert_eq!(hosts::state(&memory.fresh()), hosts::state(&host));
        memory.check();
    }
    let memory = hosts::Memory::new();
    let indexed = memory.mount_with_requests("host");
    indexed.lookup(ROOT, b":stats").unwrap();
    run(check, &indexed, ROOT);
}

/// The root of a generated file system lists `.llmfs`, so this directory serves as the root.
fn make_work(store: &dyn Store) -> Ino {
    let work = NewNode { permissions: 0o755, ..node(Kind::Directory) };
    store.create(&caller(1), ROOT, b"work", &work).unwrap().ino
}

#[test]
fn the_root_is_an_empty_directory_of_its_owner() {
    on_every_store(|store, root| {
        let attr = store.getattr(root).unwrap();
        let found = (attr.kind, attr.nlink, attr.uid, attr.gid);
        assert_eq!(found, (Kind::Directory, 2, 1000, 100));
        assert_eq!(store.parent(root).unwrap(), ROOT);
        assert!(names(store, root).is_empty());
    });
}

#[test]
fn names_are_bytes() {
    on_every_store(|store, root| {
        let long = [b'x'; 255];
        for name in [&b"\xff\xfe not utf-8"[..], b"a:b", b"mail:2,S", b"*?", b"'; DROP TABLE inode", &long] {
            let create = || store.create(&caller(10), root, name, &node(Kind::File));
            let made = create().unwrap();
            assert_eq!(store.lookup(root, name).unwrap().ino, made.ino);
            assert_eq!(errno(create()), Errno::EXIST);
        }
        assert_eq!(names(store, root).len(), 6);
        assert_eq!(errno(store.lookup(root, b"missing")), Errno::NOENT);
        let file = store.lookup(root, b"a:b").unwrap().ino;
        assert_eq!(errno(store.lookup(file, b"below a file")), Errno::NOTDIR);
    });
}

#[test]
fn directories_count_their_subdirectories_and_stamp_changes() {
    on_every_store(|store, root| {
        let dir = create(store, root, "dir", Kind::Directory);
        assert_eq!((dir.nlink, store.getattr(root).unwrap().nlink), (2, 3));
        assert_eq!(store.parent(dir.ino).unwrap(), root);
        let attr = store.getattr(root).unwrap();
        assert_eq!((attr.mtime, attr.ctime), (Timestamp(10), Timestamp(10)));
        assert_eq!(errno(store.unlink(&caller(20), root, b"dir")), Errno::ISDIR);
        create(store, dir.ino, "file", Kind::File);
        let refused = store.rmdir(&caller(20), root, b"dir");
        assert_eq!(errno(refused), Errno::NOTEMPTY);
        store.unlink(&caller(20), dir.ino, b"file").unwrap();
        let removed = store.rmdir(&caller(30), root, b"dir").unwrap();
        assert_eq!(removed, Some(dir.ino));
        assert_eq!(store.getattr(root).unwrap().nlink, 2);
        // A removed directory that is still open: nothing can be created in it.
        assert_eq!(store.getattr(dir.ino).unwrap().nlink, 0);
        let refused = store.create(&caller(30), dir.ino, b"x", &node(Kind::File));
        assert_eq!(errno(refused), Errno::NOENT);
        store.reclaim(dir.ino).unwrap();
        assert_eq!(errno(store.getattr(dir.ino)), Errno::NOENT);
    });
}

#[test]
fn a_set_group_id_directory_passes_its_group_on() {
    on_every_store(|store, root| {
        let dir = create(store, root, "dir", Kind::Directory);
        let change = Change { permissions: Some(0o2775), gid: Some(7), ..Change::default() };
        store.setattr(&caller(10), dir.ino, &change).unwrap();
        assert_eq!(create(store, dir.ino, "file", Kind::File).gid, 7);
        let sub = create(store, dir.ino, "sub", Kind::Directory);
        assert_eq!((sub.gid, sub.permissions), (7, 0o2644));
        assert_eq!(create(store, root, "other", Kind::File).gid, 100);
    });
}

#[test]
fn content_grows_shrinks_and_has_holes() {
    on_every_store_of_any_bytes(|store, root| {
        let file = create(store, root, "file", Kind::File).ino;
        store.write(&caller(20), file, 5, b"hello").unwrap();
        assert_eq!(read(store, file, 0, 100), b"\0\0\0\0\0hello");
        let attr = store.getattr(file).unwrap();
        assert_eq!((attr.size, attr.mtime), (10, Timestamp(20)));
        assert!(attr.blocks > 0);
        assert_eq!(read(store, file, 8, 1), b"l");
        assert_eq!(read(store, file, 10, 5), b"");
        assert_eq!(read(store, file, 1 << 40, 5), b"");

        let far = 100_000_000_000;
        store.write(&caller(30), file, far, b"end").unwrap();
        assert_eq!(store.getattr(file).unwrap().size, far + 3);
        let blocks = store.getattr(file).unwrap().blocks;
        assert!(blocks < 1000, "a hole takes no space");
        assert_eq!(read(store, file, far - 2, 10), b"\0\0end");
        // A store may tell holes byte for byte, or in blocks.
        assert!(store.seek(file, 0, Seek::Data).unwrap() <= 5);
        let hole = store.seek(file, 0, Seek::Hole).unwrap();
        assert!((10..1 << 20).contains(&hole));
        let data = store.seek(file, hole, Seek::Data).unwrap();
        assert!(data <= far && far - data < 1 << 20);
        assert_eq!(store.seek(file, far, Seek::Hole).unwrap(), far + 3);
        assert_eq!(errno(store.seek(file, far + 3, Seek::Data)), Errno::NXIO);

        let cut = store.setattr(&caller(40), file, &size_change(7)).unwrap();
        assert_eq!(cut.size, 7);
        assert_eq!(read(store, file, 0, 100), b"\0\0\0\0\0he");
        // Truncated data must not come back.
        resize(store, file, 12);
        assert_eq!(read(store, file, 5, 100), b"he\0\0\0\0\0");
        resize(store, file, 0);
        assert_eq!(store.getattr(file).unwrap().blocks, 0);
        assert_eq!(errno(store.write(&caller(50), root, 0, b"x")), Errno::ISDIR);
    });
}

#[test]
fn ranges_are_reserved_punched_and_zeroed() {
    on_every_store_of_any_bytes(|store, root| {
        let file = create(store, root, "file", Kind::File).ino;
        let text: Vec<u8> = (0..200_000u32).map(|n| n as u8 | 1).collect();
        store.write(&caller(20), file, 0, &text).unwrap();
        let before = store.getattr(file).unwrap().blocks;
        let allocate = |how, offset, length| store.fallocate(&caller(30), file, how, offset, length);
        allocate(Allocation::PunchHole, 1000, 150_000).unwrap();
        let mut expected = text.clone();
        expected[1000..151_000].fill(0);
        assert!(read(store, file, 0, 300_000) == expected);
        assert!(store.getattr(file).unwrap().blocks < before);
        allocate(Allocation::PunchHole, 199_000, 1 << 30).unwrap();
        expected[199_000..].fill(0);
        assert!(read(store, file, 0, 300_000) == expected, "the size stays");
        allocate(Allocation::Zero { keep_size: true }, 0, 10).unwrap();
        allocate(Allocation::Zero { keep_size: false }, 199_990, 20).unwrap();
        expected[..10].fill(0);
        expected.resize(200_010, 0);
        assert!(read(store, file, 0, 300_000) == expected);
        allocate(Allocation::Reserve { keep_size: true }, 300_000, 10).unwrap();
        assert_eq!(store.getattr(file).unwrap().size, 200_010);
        allocate(Allocation::Reserve { keep_size: false }, 300_000, 10).unwrap();
        assert_eq!(store.getattr(file).unwrap().size, 300_010);
    });
}

#[test]
fn hard_links_share_an_inode_until_the_last_is_gone() {
    on_every_store_of_any_bytes(|store, root| {
        let file = create(store, root, "a", Kind::File).ino;
        store.write(&caller(10), file, 0, b"text").unwrap();
        let linked = store.link(&caller(20), file, root, b"b").unwrap();
        let found = (linked.ino, linked.nlink, linked.ctime);
        assert_eq!(found, (file, 2, Timestamp(20)));
        let link = |ino, name: &[u8]| errno(store.link(&caller(20), ino, root, name));
        assert_eq!(link(file, b"b"), Errno::EXIST);
        assert_eq!(link(root, b"c"), Errno::PERM);
        assert_eq!(store.unlink(&caller(30), root, b"a").unwrap(), None);
        store.reclaim(file).unwrap();
        let left = store.lookup(root, b"b").unwrap().ino;
        assert_eq!(read(store, left, 0, 9), b"text");
        assert_eq!(store.unlink(&caller(30), root, b"b").unwrap(), Some(file));
        // Unlinked while open: content and attributes live on.
        assert_eq!(read(store, file, 0, 9), b"text");
        store.write(&caller(40), file, 4, b"!").unwrap();
        assert_eq!(store.getattr(file).unwrap().nlink, 0);
        assert_eq!(link(file, b"back"), Errno::NOENT);
        store.reclaim(file).unwrap();
        assert_eq!(errno(store.getattr(file)), Errno::NOENT);
    });
}

#[test]
fn symbolic_links_and_special_files_keep_what_they_are() {
    on_every_store(|store, root| {
        let link = NewNode { target: b"some/where", permissions: 0o777, ..node(Kind::Symlink) };
        let link = store.create(&caller(10), root, b"link", &link).unwrap();
        assert_eq!((link.kind, link.size), (Kind::Symlink, 10));
        assert_eq!(store.readlink(link.ino).unwrap(), b"some/where");
        assert_eq!(errno(store.readlink(root)), Errno::INVAL);
        let device = NewNode { rdev: 0x103, ..node(Kind::CharDevice) };
        let device = store.create(&caller(10), root, b"null", &device).unwrap();
        assert_eq!(store.getattr(device.ino).unwrap().rdev, 0x103);
        for (name, kind) in [("fifo", Kind::Fifo), ("socket", Kind::Socket)] {
            assert_eq!(create(store, root, name, kind).kind, kind);
        }
    });
}

#[test]
fn rename_replaces_refuses_and_exchanges() {
    on_every_store(|store, root| {
        let rename = |from: (Ino, &str), to: (Ino, &str), mode| {
            let from = (from.0, from.1.as_bytes());
            store.rename(&caller(20), from, (to.0, to.1.as_bytes()), mode)
        };
        let [a, b] = ["a", "b"].map(|name| create(store, root, name, Kind::File));
        let dir = create(store, root, "dir", Kind::Directory);
        let sub = create(store, dir.ino, "sub", Kind::Directory);
        let replace = RenameMode::Replace;

        let (no_replace, exchange) = (RenameMode::NoReplace, RenameMode::Exchange);
        for (from, to, mode, error) in [
            ((root, "a"), (root, "b"), no_replace, Errno::EXIST),
            ((root, "a"), (root, "b"), RenameMode::WhiteoutNoReplace, Errno::EXIST),
            ((root, "x"), (root, "y"), RenameMode::WhiteoutNoReplace, Errno::NOENT),
            ((root, "x"), (root, "b"), replace, Errno::NOENT),
            ((root, "a"), (root, "dir"), replace, Errno::ISDIR),
            ((root, "dir"), (root, "a"), replace, Errno::NOTDIR),
            ((root, "dir"), (sub.ino, "in"), replace, Errno::INVAL),
            ((dir.ino, "sub"), (root, "dir"), replace, Errno::NOTEMPTY),
            ((root, "dir"), (dir.ino, "sub"), exchange, Errno::INVAL),
            ((root, "a"), (root, "x"), exchange, Errno::NOENT),
        ] {
            let refused = errno(rename(from, to, mode));
            assert_eq!(refused, error, "{from:?} to {to:?}, {mode:?}");
        }

        let replaced = rename((root, "a"), (root, "b"), replace).unwrap();
        assert_eq!(replaced, Some(b.ino));
        assert_eq!(store.lookup(root, b"b").unwrap().ino, a.ino);
        assert_eq!(errno(store.lookup(root, b"a")), Errno::NOENT);
        assert_eq!(store.getattr(a.ino).unwrap().ctime, Timestamp(20));

        // A rename between two links of one inode changes nothing.
        store.link(&caller(20), a.ino, root, b"twin").unwrap();
        assert_eq!(rename((root, "b"), (root, "twin"), replace).unwrap(), None);
        assert_eq!(store.getattr(a.ino).unwrap().nlink, 2);

        // An exchange of a file and a directory, across directories.
        rename((root, "b"), (dir.ino, "sub"), RenameMode::Exchange).unwrap();
        assert_eq!(store.lookup(root, b"b").unwrap().kind, Kind::Directory);
        assert_eq!(store.lookup(dir.ino, b"sub").unwrap().ino, a.ino);
        assert_eq!(store.parent(sub.ino).unwrap(), root);
        assert_eq!(store.getattr(dir.ino).unwrap().nlink, 2);
        assert_eq!(store.getattr(root).unwrap().nlink, 4);

        // A directory replaces an empty one in another parent.
        let empty = create(store, dir.ino, "empty", Kind::Directory);
        let replaced = rename((root, "b"), (dir.ino, "empty"), replace).unwrap();
        assert_eq!(replaced, Some(empty.ino));
        assert_eq!(store.parent(sub.ino).unwrap(), dir.ino);
        assert_eq!(store.getattr(dir.ino).unwrap().nlink, 3);
        assert_eq!(store.getattr(root).unwrap().nlink, 3);
    });
}

#[test]
fn a_rename_leaves_a_whiteout_where_that_is_asked_for() {
    on_every_store(|store, root| {
        let whiteout = |from: (Ino, &str), to: (Ino, &str)| {
            let from = (from.0, from.1.as_bytes());
            let to = (to.0, to.1.as_bytes());
            store.rename(&caller(20), from, to, RenameMode::Whiteout)
        };
        let [a, b] = ["a", "b"].map(|name| create(store, root, name, Kind::File));
        let dir = create(store, root, "dir", Kind::Directory);
        let is_whiteout = |parent, name: &[u8]| {
            let attr = store.lookup(parent, name).unwrap();
            let found = (attr.kind, attr.permissions, attr.rdev, attr.nlink);
            assert_eq!(found, (Kind::CharDevice, 0, 0, 1));
            attr.ino
        };
        assert_eq!(whiteout((root, "a"), (dir.ino, "new")).unwrap(), None);
        assert_eq!(store.lookup(dir.ino, b"new").unwrap().ino, a.ino);
        let left = is_whiteout(root, b"a");
        assert!(left != a.ino && left != b.ino);
        // Over an existing name, also over a whiteout.
        assert_eq!(whiteout((root, "b"), (root, "a")).unwrap(), Some(left));
        assert_eq!(store.lookup(root, b"a").unwrap().ino, b.ino);
        is_whiteout(root, b"b");
        // A directory.
        assert_eq!(whiteout((root, "dir"), (root, "moved")).unwrap(), None);
        is_whiteout(root, b"dir");
        assert_eq!(store.getattr(root).unwrap().nlink, 3);
        // Two names of one inode both stay; what fails leaves nothing.
        store.link(&caller(20), a.ino, root, b"twin").unwrap();
        assert_eq!(whiteout((root, "twin"), (dir.ino, "new")).unwrap(), None);
        assert_eq!(store.lookup(root, b"twin").unwrap().ino, a.ino);
        let refused = whiteout((root, "moved"), (root, "a"));
        assert_eq!(errno(refused), Errno::NOTDIR);
        assert_eq!(names(store, root), ["a", "b", "dir", "moved", "twin"]);
        let (from, to) = ((root, &b"twin"[..]), (root, &b"free"[..]));
        store.rename(&caller(20), from, to, RenameMode::WhiteoutNoReplace).unwrap();
        assert_eq!(store.lookup(root, b"free").unwrap().ino, a.ino);
        is_whiteout(root, b"twin");
    });
}

#[test]
fn attributes_change_one_by_one() {
    on_every_store(|store, root| {
        let file = create(store, root, "file", Kind::File).ino;
        let set = |change: Change| store.setattr(&caller(50), file, &change).unwrap();
        let attr = set(permissions(0o6755));
        let found = (attr.permissions, attr.mtime, attr.ctime);
        assert_eq!(found, (0o6755, Timestamp(10), Timestamp(50)));
        let attr = set(Change { uid: Some(5), gid: Some(6), drop_privileges: true, ..Change::default() });
        assert_eq!((attr.uid, attr.gid, attr.permissions), (5, 6, 0o755));
        let (first, last) = (Timestamp(-1), Timestamp(i64::MAX));
        let attr = set(Change { atime: Some(first), mtime: Some(last), ..Change::default() });
        assert_eq!((attr.atime, attr.mtime), (first, last));
        assert_eq!(store.getattr(file).unwrap(), attr);
    });
}

#[test]
fn extended_attributes_are_set_replaced_and_removed() {
    on_every_store(|store, root| {
        let file = create(store, root, "file", Kind::File).ino;
        let set = |value: &[u8], mode| store.setxattr(&caller(60), file, b"user.k", value, mode);
        assert_eq!(errno(set(b"1", XattrMode::Replace)), Errno::NODATA);
        set(b"1", XattrMode::Create).unwrap();
        assert_eq!(errno(set(b"2", XattrMode::Create)), Errno::EXIST);
        set(b"\0\xff", XattrMode::Replace).unwrap();
        set(b"", XattrMode::Set).unwrap();
        assert_eq!(store.getxattr(file, b"user.k").unwrap(), b"");
        assert_eq!(store.listxattr(file).unwrap(), [b"user.k".to_vec()]);
        assert_eq!(store.getattr(file).unwrap().ctime, Timestamp(60));
        store.removexattr(&caller(60), file, b"user.k").unwrap();
        assert_eq!(errno(store.getxattr(file, b"user.k")), Errno::NODATA);
        let again = store.removexattr(&caller(60), file, b"user.k");
        assert_eq!(errno(again), Errno::NODATA);
    });
}

#[test]
fn a_listing_resumes_after_a_cookie_while_names_change() {
    on_every_store(|store, root| {
        for number in 0..100 {
            create(store, root, &format!("f{number}"), Kind::File);
        }
        let mut seen = Vec::new();
        let mut after = 0;
        for page in 0.. {
            let before = seen.len();
            store
                .readdir(root, after, false, &mut |entry| {
                    assert!(entry.cookie > after);
                    after = entry.cookie;
                    seen.push(String::from_utf8_lossy(entry.name).into_owned());
                    match seen.len() % 7 {
                        0 => ControlFlow::Break(()),
                        _ => ControlFlow::Continue(()),
                    }
                })
                .unwrap();
            if seen.len() == before {
                break;
            }
            // The listing must return each lasting name exactly once.
            if page < 10 {
                create(store, root, &format!("new{page}"), Kind::File);
            }
            if let Some(first) = seen.first().filter(|_| page == 0) {
                store.unlink(&caller(10), root, first.as_bytes()).unwrap();
            }
        }
        seen.retain(|name| name.starts_with('f'));
        seen.sort();
        let count = seen.len();
        seen.dedup();
        assert_eq!((seen.len(), count), (100, 100));
    });
}

#[test]
fn a_history_with_an_exact_model_keeps_text_links_and_ranges() {
    let store = history(exact(), None);
    let file = create(&store, ROOT, "a", Kind::File).ino;
    let dir = create(&store, ROOT, "dir", Kind::Directory).ino;
    store.write(&caller(10), file, 3, b"text").unwrap();
    assert_eq!(read(&store, file, 0, 100), b"\0\0\0text");
    store.link(&caller(20), file, dir, b"b").unwrap();
    let text = "größer".as_bytes();
    store.write(&caller(30), file, 0, text).unwrap();
    store.unlink(&caller(40), ROOT, b"a").unwrap();
    assert_eq!(read(&store, file, 0, 100), text);
    let allocate = |how, at, length| store.fallocate(&caller(50), file, how, at, length).unwrap();
    allocate(Allocation::PunchHole, 0, 2);
    allocate(Allocation::Reserve { keep_size: false }, 8, 4);
    allocate(Allocation::Reserve { keep_size: true }, 50, 4);
    let mut expected = text.to_vec();
    expected[..2].fill(0);
    expected.resize(12, 0);
    assert_eq!(read(&store, file, 0, 100), expected);
    // A name that would be another line of the prompt if it were not escaped.
    let name = b"x\nwrite /y at 0: \"no\"";
    let made = store.create(&caller(60), ROOT, name, &node(Kind::File));
    let odd = made.unwrap().ino;
    let other = create(&store, ROOT, "y", Kind::File).ino;
    store.write(&caller(70), odd, 0, b"yes").unwrap();
    assert_eq!(read(&store, odd, 0, 9), b"yes");
    assert_eq!(read(&store, other, 0, 9), b"");
}

/// Makes the same changes in a store and in the reference model, which must answer the same. Calls `between` after
/// every fifth. Returns the model, and the inodes of the store and of the model.
fn same_answers(
    store: &dyn Store,
    root: Ino,
    steps: &[Step],
    between: impl Fn(),
) -> Result<(MemoryStore, [Vec<Ino>; 2]), TestCaseError> {
    let reference = MemoryStore::new(&caller(1));
    let driven = |store, root| StoreDriver { store, made: vec![root] };
    let (mut tested, mut model) = (driven(store, root), driven(&reference, ROOT));
    for (at, step) in steps.iter().enumerate() {
        let now = 100 + at as i64;
        let (found, expected) = (tested.step(step, now), model.step(step, now));
        prop_assert_eq!(found, expected, "step {}: {:?}", at, step);
        if at % 5 == 0 {
            between();
        }
    }
    let made = [tested.made, model.made];
    Ok((reference, made))
}

fn dump(store: &dyn Store, made: &[Ino]) -> Vec<String> {
    let made = made.to_vec();
    StoreDriver { store, made }.dump()
}

/// Limits a step to short files of text.
fn short_text(step: Step) -> Step {
    match step {
        Step::Write(node, offset, length, byte) => Step::Write(node, offset % 60, length % 20, b'a' + byte % 26),
        Step::Truncate(node, size) => Step::Truncate(node, size % 80),
        Step::Punch(node, offset, length) => Step::Punch(node, offset % 60, length % 40 + 1),
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_history_with_an_exact_model_does_what_the_reference_model_does(
        steps in prop::collection::vec(step().prop_map(short_text), 1..60),
    ) {
        let guessed = history(exact(), None);
        let (memory, _) = same_answers(&guessed, ROOT, &steps, || {})?;
        prop_assert_eq!(tree(&guessed, ROOT), tree(&memory, ROOT));
    }

    #[test]
    fn a_generated_tree_does_what_the_reference_model_does_and_is_the_same_after_a_remount(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let save = dir.path().join("save.json");
        let made_up = generate(nobody(), None, Some(&save)).unwrap();
        let work = make_work(&made_up);
        let (memory, [tested, model]) = same_answers(&made_up, work, &steps, || {})?;
        prop_assert_eq!(dump(&made_up, &tested), dump(&memory, &model));
        made_up.sync().unwrap();
        drop(made_up);
        let again = generate(nobody(), None, Some(&save)).unwrap();
        let work = again.lookup(ROOT, b"work").unwrap().ino;
        prop_assert_eq!(tree(&again, work), tree(&memory, ROOT));
        prop_assert_eq!(hard_links(&again, work), hard_links(&memory, ROOT));
    }
}

/// The paths of each file with several hard links.
fn hard_links(store: &dyn Store, dir: Ino) -> Vec<Vec<String>> {
    let mut found: BTreeMap<Ino, Vec<String>> = BTreeMap::new();
    walk(store, dir, "", &mut |path, attr| {
        if attr.kind != Kind::Directory && attr.nlink > 1 {
            found.entry(attr.ino).or_default().push(path);
        }
    });
    let mut groups: Vec<Vec<String>> = found.into_values().collect();
    groups.sort();
    groups
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn agent_memory_does_what_the_reference_model_does(steps in prop::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.db");
        let notes = AgentMemory::open(&path, &caller(1), None).unwrap();
        let closes = || notes.close(0, ROOT).unwrap();
        let (memory, [tested, model]) = same_answers(&notes, ROOT, &steps, closes)?;
        prop_assert_eq!(dump(&notes, &tested), dump(&memory, &model));
        drop(notes);
        prop_assert_eq!(check(&path).unwrap().problems, Vec::<String>::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_does_what_the_reference_model_does(steps in prop::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.db");
        let sqlite = SqliteStore::open(&path, &caller(1)).unwrap();
        let (memory, [tested, model]) = same_answers(&sqlite, ROOT, &steps, || {})?;
        let before = dump(&memory, &model);
        prop_assert_eq!(&dump(&sqlite, &tested), &before);
        // After a reopen everything is there, except inodes without a name.
        drop(sqlite);
        let sqlite = SqliteStore::open(&path, &caller(1)).unwrap();
        prop_assert_eq!(check(&path).unwrap().problems, Vec::<String>::new());
        let again = dump(&sqlite, &tested);
        for (number, (again, line)) in again.iter().zip(&before).enumerate() {
            if line.contains("nlink: 0,") {
                prop_assert_eq!(again, &format!("{number} gone"));
            } else {
                prop_assert_eq!(again, line);
            }
        }
    }
}
