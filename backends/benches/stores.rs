//! The stores called directly, without FUSE: what is left when the way through the kernel is cut off.
//!
//! `cargo bench -p backends` compares runs by itself; only ratios within one run count.

#![allow(missing_docs, clippy::expect_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::ops::ControlFlow;

use backends::memory::MemoryStore;
use backends::sqlite::SqliteStore;
use backends::store::{Attr, Caller, Ino, Kind, NewNode, ROOT, RenameMode, Store, Timestamp};
use criterion::{Criterion, criterion_group, criterion_main};

const FILES: usize = 1000;
const KIB: [u8; 1024] = [7; 1024];

fn caller() -> Caller {
    Caller {
        uid: 0,
        gid: 0,
        now: Timestamp::now(),
    }
}

fn node(kind: Kind) -> NewNode<'static> {
    NewNode {
        kind,
        permissions: 0o644,
        rdev: 0,
        target: &[],
    }
}

fn name(number: usize) -> Vec<u8> {
    format!("f{number:04}").into_bytes()
}

/// A directory of files of 1 KiB.
fn filled(store: &dyn Store) -> (Ino, Vec<Attr>) {
    let dir = store
        .create(&caller(), ROOT, b"files", &node(Kind::Directory))
        .expect("mkdir");
    let file = |number| {
        let file = store
            .create(&caller(), dir.ino, &name(number), &node(Kind::File))
            .expect("create");
        store.write(&caller(), file.ino, 0, &KIB).expect("write");
        file
    };
    (dir.ino, (0..FILES).map(file).collect())
}

fn stores(criterion: &mut Criterion) {
    let scratch = tempfile::tempdir_in("/var/tmp").expect("scratch");
    let memory: Box<dyn Store> = Box::new(MemoryStore::new(&caller()));
    let sqlite: Box<dyn Store> =
        Box::new(SqliteStore::open(&scratch.path().join("bench.db"), &caller()).expect("database"));
    for store in [memory, sqlite] {
        let kind = store.kind();
        let (dir, files) = filled(&*store);
        let mut turn = 0;
        let mut next = move || {
            turn = (turn + 617) % FILES;
            turn
        };
        let mut bench = |what: &str, call: &mut dyn FnMut(usize)| {
            criterion.bench_function(&format!("{what}/{kind}"), |bencher| {
                bencher.iter(|| call(next()));
            });
        };
        bench("lookup", &mut |n| {
            black_box(store.lookup(dir, &name(n)).expect("lookup"));
        });
        bench("getattr", &mut |n| {
            black_box(store.getattr(files[n].ino).expect("getattr"));
        });
        let mut bytes = Vec::new();
        bench("read 1 KiB", &mut |n| {
            bytes.clear();
            store.read(files[n].ino, 0, 4096, &mut bytes).expect("read");
            assert_eq!(bytes.len(), KIB.len());
        });
        bench("overwrite 1 KiB", &mut |n| {
            store
                .write(&caller(), files[n].ino, 0, &KIB)
                .expect("write");
        });
        let larger = store
            .create(&caller(), ROOT, b"larger", &node(Kind::Directory))
            .expect("mkdir");
        let larger: Vec<Ino> = (0..FILES)
            .map(|number| {
                let file = store
                    .create(&caller(), larger.ino, &name(number), &node(Kind::File))
                    .expect("create");
                let content = [0; 16 * 1024];
                store
                    .write(&caller(), file.ino, 0, &content)
                    .expect("write");
                file.ino
            })
            .collect();
        let mut content = 0_u8;
        bench("overwrite 4 KiB of 16", &mut |n| {
            let part = (n % 4 * 4096) as u64;
            // Something else each time: what stays the same is not written.
            content = content.wrapping_add(1);
            store
                .write(&caller(), larger[n], part, &[content; 4096])
                .expect("write");
        });
        let mut created = 0;
        bench("create and write 1 KiB", &mut |_| {
            let name = format!("n{created}");
            created += 1;
            let file = store
                .create(&caller(), dir, name.as_bytes(), &node(Kind::File))
                .expect("create");
            store.write(&caller(), file.ino, 0, &KIB).expect("write");
        });
        let mut renamed = 0;
        bench("rename", &mut |_| {
            let (from, to) = (format!("n{renamed}"), format!("r{renamed}"));
            renamed += 1;
            if renamed < created {
                store
                    .rename(
                        &caller(),
                        (dir, from.as_bytes()),
                        (dir, to.as_bytes()),
                        RenameMode::Replace,
                    )
                    .expect("rename");
            }
        });
        let listed = store
            .create(&caller(), ROOT, b"listed", &node(Kind::Directory))
            .expect("mkdir");
        for number in 0..FILES {
            store
                .create(&caller(), listed.ino, &name(number), &node(Kind::File))
                .expect("create");
        }
        bench("list 1,000 with attributes", &mut |_| {
            let mut count = 0;
            store
                .readdir(listed.ino, 0, true, &mut |entry| {
                    count += usize::from(entry.attr.is_some());
                    ControlFlow::Continue(())
                })
                .expect("readdir");
            assert_eq!(count, FILES);
        });
    }
}

criterion_group!(benches, stores);
criterion_main!(benches);
