//! How much longer a view of 100,000 rows takes than its queries. `make speed` runs it, with a release build.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use crate::common::{CTXBENCH, Mount, memory_of, mountable};

const SENDERS: usize = 100;
const EACH: usize = 1_000;

/// Blocks of bare queries and reads through the mount, one after the other.
const BLOCKS: usize = 30;

/// The query for the names of a directory.
const NAMES: &str = "SELECT id, substr(sent_at, 1, 10), subject FROM messages WHERE folder = 'inbox' AND sender = ?1";

/// The query for the content of a file.
const ROW: &str =
    "SELECT sender, recipient, sent_at, subject, body FROM messages WHERE folder = 'inbox' AND sender = ?1 AND id = ?2";

fn fill(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    db.execute_batch(&format!(
        "CREATE TABLE messages (
           id INTEGER PRIMARY KEY, thread_id INTEGER, sender TEXT, recipient TEXT, sent_at TEXT, subject TEXT, body TEXT,
           folder TEXT, is_read INTEGER, version INTEGER DEFAULT 1);
         WITH RECURSIVE n(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id + 1 < {rows})
         INSERT INTO messages SELECT id, id / 7, 'sender' || (id % {SENDERS}) || '@example.org', 'me', '2026-03-01T10:00:00Z',
           'Subject of message ' || id, hex(randomblob(500)), 'inbox', 0, 1 FROM n;
         CREATE INDEX by_folder ON messages (folder, sender);
         ANALYZE; PRAGMA wal_checkpoint(TRUNCATE);",
        rows = SENDERS * EACH
    ))
    .unwrap();
    db
}

fn sender(number: usize) -> String {
    format!("sender{}@example.org", number % SENDERS)
}

/// The path of the file of the row `id`.
fn path(dir: &Path, id: usize) -> std::path::PathBuf {
    let name = format!("2026-03-01 Subject of message {id} {id}.eml");
    dir.join("inbox").join(sender(id)).join(name)
}

fn median(mut all: Vec<Duration>) -> f64 {
    all.sort();
    all[all.len() / 2].as_secs_f64() * 1e6
}

/// The mean time of a call in a block of `calls`.
fn block(calls: usize, mut call: impl FnMut(usize)) -> Duration {
    let began = Instant::now();
    (0..calls).for_each(&mut call);
    began.elapsed() / calls as u32
}

/// Resident memory of a process in MB.
fn memory(process: u32) -> f64 {
    memory_of(process, "VmRSS:").unwrap() as f64 * 1024.0 / 1e6
}

#[test]
#[ignore = "measures, with a release build on a quiet machine: make speed"]
fn a_view_of_100_000_rows_costs_little_more_than_its_queries() {
    let Some(scratch) = mountable() else { return };
    let (dir, file) = (scratch.dir("mail"), scratch.path().join("mail.db"));
    let db = fill(&file);
    // Another build, to compare with.
    let binary = std::env::var_os("CTXBENCH_OTHER_BINARY").unwrap_or(CTXBENCH.into());
    let mut command = std::process::Command::new(binary);
    command.args(["mount", "view"]).arg(&dir);
    command.args(["--definition", "mail", "--source"]).arg(&file);
    let mount = Mount::of(command, &dir);

    let mut names = db.prepare(NAMES).unwrap();
    let mut row = db.prepare(ROW).unwrap();
    let mut times: [Vec<Duration>; 5] = Default::default();
    for number in 0..BLOCKS {
        let at = |call: usize| number * 7 + call;
        times[0].push(block(5, |call| {
            let rows = names.query_map([sender(at(call))], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
            });
            assert_eq!(rows.unwrap().filter_map(Result::ok).count(), EACH);
        }));
        times[1].push(block(5, |call| {
            let listed = fs::read_dir(dir.join("inbox").join(sender(at(call)))).unwrap();
            assert_eq!(listed.filter_map(Result::ok).count(), EACH);
        }));
        let id = |call: usize| (number * 3001 + call * 97) % (SENDERS * EACH);
        times[2].push(block(100, |call| {
            let text: String = row
                .query_row(params![sender(id(call)), id(call) as i64], |row| {
                    let all = (0..5).map(|at| row.get::<_, String>(at));
                    Ok(all.collect::<rusqlite::Result<Vec<_>>>()?.concat())
                })
                .unwrap();
            assert!(text.len() > 1000);
        }));
        times[3].push(block(100, |call| {
            assert!(fs::read(path(&dir, id(call))).unwrap().len() > 1000);
        }));
        let open: Vec<_> = (0..100).map(|call| fs::File::open(path(&dir, id(call))).unwrap()).collect();
        let mut bytes = vec![0; 4096];
        times[4].push(block(100, |call| {
            assert!(open[call].read_at(&mut bytes, 0).unwrap() > 1000);
        }));
    }
    let [query, list, read_query, open_read, read] = times.map(median);
    println!("list 1,000: query {query:.0} µs, mount {list:.0} µs: {:.2} times", list / query);
    println!(
        "read a row: query {read_query:.1} µs; open, read and close {open_read:.1} µs: {:.1} µs more; read alone {read:.1} µs: {:.1} µs more",
        open_read - read_query,
        read - read_query
    );
    for number in 0..300 {
        let body = format!("body {number}");
        let change = "UPDATE messages SET body = ?1 WHERE id = 77";
        db.execute(change, [&body]).unwrap();
        assert!(fs::read_to_string(path(&dir, 77)).unwrap().contains(&body));
    }
    println!("300 commits: each was seen by the next read");
    let mut most: f64 = 0.0;
    for number in 0..SENDERS {
        for entry in fs::read_dir(dir.join("inbox").join(sender(number))).unwrap() {
            assert!(fs::read(entry.unwrap().path()).unwrap().len() > 6);
        }
        most = most.max(memory(mount.process.id()));
    }
    println!("memory with 100,000 files read: {most:.0} MB");
    if fs::write("/proc/sys/vm/drop_caches", "2").is_ok() {
        std::thread::sleep(Duration::from_secs(2));
        println!("after the kernel forgot them: {:.0} MB", memory(mount.process.id()));
    }
    mount.end();
    assert!(list <= 3.0 * query, "a list takes a median of {list:.0} µs, its query {query:.0} µs");
    let more = read - read_query;
    assert!(more <= 60.0, "a read takes a median of {more:.1} µs more");
    assert!(most <= 100.0, "{most:.0} MB");
}
