//! What the harness itself costs, and the parts of a backend without FUSE: `make microbench`.
//!
//! Only ratios within one run count. The cost of the harness for a call is `call/stat timed` minus `call/stat bare`; the benches
//! between them each have a part of it. `stat by a function` is the system call as a program makes it that calls libc: on
//! kernels that guard the return predictor, the first return after a system call costs 300 ns.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark may panic")]

mod large_run;

use std::ffi::{CStr, CString};
use std::hint::black_box;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use agent_memory::AgentMemory;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fuse::memory::MemoryStore;
use fuse::store::{Attr, Caller, Ino, Kind, NewNode, ROOT, RenameMode, Store, Timestamp};
use replay::{Observation, OpenFileTable, ResultBuffer, perform, prepare};
use rundir::{Run, histogram};
use rustix::fs::{AtFlags, CWD, statat};
use rustix::io::Errno;
use sqlite::SqliteStore;
use stats::{Disturbance, Margin, MarginKind, Ratios, compare};
use workloads::path::WorkspacePath;
use workloads::script::FileOp;

const FILES: usize = 1000;
const KIB: [u8; 1024] = [7; 1024];

/// Calls in one measured batch: as many as in a short pass.
const CALLS: u64 = 512;

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, now: Timestamp::now() }
}

fn node(kind: Kind) -> NewNode<'static> {
    NewNode { kind, permissions: 0o644, rdev: 0, target: &[] }
}

fn name(number: usize) -> Vec<u8> {
    format!("f{number:04}").into_bytes()
}

#[inline(never)]
fn stat_by_a_function(path: &CStr) {
    black_box(statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)).unwrap();
}

/// A system call alone, and the same call as a pass makes it: prepared, between two readings of the clock, with its
/// result kept and its time in a histogram.
fn harness(criterion: &mut Criterion) {
    let scratch = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = scratch.path().join("a");
    std::fs::write(&file, KIB).unwrap();
    let path = CString::new(file.as_os_str().as_bytes()).unwrap();
    let op = FileOp::Stat(WorkspacePath::new("a").unwrap());
    let prepared = prepare(scratch.path(), &op, &mut OpenFileTable::new()).unwrap();
    let mut group = criterion.benchmark_group("call");
    group.throughput(Throughput::Elements(CALLS));
    group.bench_function("stat bare", |bencher| {
        bencher.iter(|| {
            for _ in 0..CALLS {
                black_box(statat(CWD, path.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)).unwrap();
            }
        });
    });
    group.bench_function("stat by a function", |bencher| {
        bencher.iter(|| {
            for _ in 0..CALLS {
                stat_by_a_function(&path);
            }
        });
    });
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    group.bench_function("stat bare between two readings of the clock", |bencher| {
        let mut took = Vec::new();
        bencher.iter(|| {
            took.clear();
            for _ in 0..CALLS {
                let started = now();
                black_box(statat(CWD, path.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)).unwrap();
                took.push(now() - started);
            }
            black_box(&took);
        });
    });
    let expected: Result<Observation, Errno> = Ok(Observation::Attributes { size: KIB.len() as u64, is_dir: false });
    group.bench_function("stat performed", |bencher| {
        let mut buffer = ResultBuffer::new();
        let mut observed = Vec::new();
        bencher.iter(|| {
            buffer.clear();
            observed.clear();
            for _ in 0..CALLS {
                observed.push(perform(&prepared, &mut buffer));
            }
        });
        assert_eq!(observed, vec![expected.clone(); CALLS as usize]);
    });
    group.bench_function("stat timed", |bencher| {
        let mut buffer = ResultBuffer::new();
        let (mut observed, mut took) = (Vec::new(), Vec::new());
        let mut times = histogram();
        bencher.iter(|| {
            buffer.clear();
            observed.clear();
            took.clear();
            for _ in 0..CALLS {
                let started = now();
                observed.push(perform(&prepared, &mut buffer));
                took.push(now() - started);
            }
            took.iter().for_each(|took| times.saturating_record((*took).max(1)));
        });
        assert_eq!(observed, vec![expected.clone(); CALLS as usize]);
        assert_eq!(buffer.system_calls, times.len(), "one system call for each time");
    });
    group.bench_function("histogram record", |bencher| {
        let mut times = histogram();
        let mut ns = 700;
        bencher.iter(|| {
            for _ in 0..CALLS {
                ns = ns * 31 % 99_991;
                times.saturating_record(black_box(ns + 1));
            }
        });
    });
    group.finish();
}

/// Statistics of one comparison, and everything from a run directory of a million calls to its summary.
fn reports(criterion: &mut Criterion) {
    let measured: Vec<Vec<f64>> = (0..8_u32)
        .map(|epoch| (0..40_u32).map(|round| 0.3 + f64::from((epoch * 41 + round * 17) % 29) / 1000.0).collect())
        .collect();
    let ratios = Ratios { measured, disturbance: Disturbance::Absent };
    let margin = Margin { ratio: 1.05, kind: MarginKind::Relative };
    criterion.bench_function("statistics/compare 8 epochs of 40 rounds", |bencher| {
        bencher.iter(|| compare(black_box(&ratios), 0.01, margin));
    });
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let dir = scratch.path().join("run");
    large_run::million_calls(&dir);
    let mut group = criterion.benchmark_group("report");
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    group.bench_function("read a run of a million calls", |bencher| {
        bencher.iter(|| Run::read(&dir).unwrap());
    });
    let run = Run::read(&dir).unwrap();
    group.bench_function("summarise a run of a million calls", |bencher| {
        bencher.iter(|| figures::summary::summarise(&run).unwrap());
    });
    group.finish();
}

/// A directory of files of 1 KiB.
fn filled(store: &dyn Store) -> (Ino, Vec<Attr>) {
    let dir = store.create(&caller(), ROOT, b"files", &node(Kind::Directory)).unwrap();
    let file = |number| {
        let file = store.create(&caller(), dir.ino, &name(number), &node(Kind::File)).unwrap();
        store.write(&caller(), file.ino, 0, &KIB).unwrap();
        file
    };
    (dir.ino, (0..FILES).map(file).collect())
}

/// The stores called directly: the part of a call without the kernel.
fn stores(criterion: &mut Criterion) {
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let memory: Box<dyn Store> = Box::new(MemoryStore::new(&caller()));
    let sqlite: Box<dyn Store> = Box::new(SqliteStore::open(&scratch.path().join("bench.db"), &caller()).unwrap());
    for store in [memory, sqlite] {
        let kind = store.kind();
        let (dir, files) = filled(&*store);
        let mut turn = 0;
        let mut next = move || {
            turn = (turn + 617) % FILES;
            turn
        };
        let mut bench = |what: &str, call: &mut dyn FnMut(usize)| {
            criterion.bench_function(&format!("store/{what}/{kind}"), |bencher| {
                bencher.iter(|| call(next()));
            });
        };
        bench("lookup", &mut |n| {
            black_box(store.lookup(dir, &name(n)).unwrap());
        });
        bench("getattr", &mut |n| {
            black_box(store.getattr(files[n].ino).unwrap());
        });
        let mut bytes = Vec::new();
        bench("read 1 KiB", &mut |n| {
            bytes.clear();
            store.read(files[n].ino, 0, 4096, &mut bytes).unwrap();
            assert_eq!(bytes.len(), KIB.len());
        });
        let mut content = 0_u8;
        bench("overwrite 1 KiB", &mut |n| {
            // Other bytes each time.
            content = content.wrapping_add(1);
            store.write(&caller(), files[n].ino, 0, &[content; 1024]).unwrap();
        });
        let mut created = 0;
        bench("create and write 1 KiB", &mut |_| {
            let name = format!("n{created}");
            created += 1;
            let file = store.create(&caller(), dir, name.as_bytes(), &node(Kind::File)).unwrap();
            store.write(&caller(), file.ino, 0, &KIB).unwrap();
        });
        let mut renamed = 0_usize;
        bench("rename", &mut |_| {
            let (from, to) = (format!("f{:04}", renamed % FILES), format!("r{:04}", renamed % FILES));
            let back = (renamed / FILES) % 2 == 1;
            let (from, to) = if back { (to, from) } else { (from, to) };
            renamed += 1;
            store.rename(&caller(), (dir, from.as_bytes()), (dir, to.as_bytes()), RenameMode::Replace).unwrap();
        });
        let listed = store.create(&caller(), ROOT, b"listed", &node(Kind::Directory)).unwrap();
        for number in 0..FILES {
            store.create(&caller(), listed.ino, &name(number), &node(Kind::File)).unwrap();
        }
        bench("list 1,000 with attributes", &mut |_| {
            let mut count = 0;
            let mut emit = |entry: fuse::store::DirEntry<'_>| {
                count += usize::from(entry.attr.is_some());
                ControlFlow::Continue(())
            };
            store.readdir(listed.ino, 0, true, &mut emit).unwrap();
            assert_eq!(count, FILES);
        });
    }
}

/// Two writers' versions of a note of 64 KiB, each with another line changed.
fn merging(criterion: &mut Criterion) {
    let base: String = (0..1500).map(|line| format!("line {line}: what the agent knows of it\n")).collect();
    let (ours, theirs) = (base.replace("line 100:", "ours 100:"), base.replace("line 1400:", "theirs 1400:"));
    criterion.bench_function("merge/two edits of a note of 64 KiB", |bencher| {
        bencher.iter(|| {
            let merged = s3::text::merge(Some(base.as_bytes()), ours.as_bytes(), theirs.as_bytes(), false);
            black_box(merged.unwrap());
        });
    });
}

/// A recall by full text among 1,000 notes.
fn recall(criterion: &mut Criterion) {
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let memory = AgentMemory::open(&scratch.path().join("notes.db"), &caller(), None).unwrap();
    const WORDS: [&str; 8] = ["risk", "deploy", "parser", "invoice", "timeout", "zebra", "margin", "replica"];
    for number in 0..FILES {
        let file = memory.create(&caller(), ROOT, format!("{number}.md").as_bytes(), &node(Kind::File)).unwrap();
        let text: String = (0..40).map(|at| format!("{} ", WORDS[(number * 7 + at * at) % WORDS.len()])).collect();
        memory.write(&caller(), file.ino, 0, text.as_bytes()).unwrap();
    }
    let mut out = Vec::new();
    criterion.bench_function("recall/2,000 tokens of 1,000 notes", |bencher| {
        let mut asked = 0;
        bencher.iter(|| {
            // Another question each time, with a word of no note: an answer is kept until a note changes.
            asked += 1;
            let request = format!(":recall?zebra+margin+x{asked}&max_tokens=2000");
            let answer = memory.lookup(ROOT, request.as_bytes()).unwrap();
            out.clear();
            memory.read(answer.ino, 0, 1 << 20, &mut out).unwrap();
            assert!(!out.is_empty());
            memory.reclaim(answer.ino).unwrap();
        });
    });
}

criterion_group!(benches, harness, reports, stores, merging, recall);
criterion_main!(benches);
