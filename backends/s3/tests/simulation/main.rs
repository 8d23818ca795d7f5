//! Seeded histories of the protocol: hosts that are killed and lose power, over a server that delays, reorders, repeats and
//! loses. `CTXBENCH_SEED=… cargo test -p s3 --test simulation` runs one history and prints what happens in it;
//! `CTXBENCH_HISTORIES` says how many to run.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use history::Counts;

mod damage;
mod files;
mod history;
mod host;
mod server;

/// A bug that is planted, to show that the properties catch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// None.
    None,
    /// The server overwrites commits where it must refuse.
    Overwrite,
    /// The server overwrites always, which a session notices when it joins.
    OverwriteAll,
    /// The server answers for a blob that it does not store.
    Forget,
    /// A session does not recognise its own commit.
    SkipNonce,
    /// A commit refers to a blob before the PUT is answered.
    EarlyReference,
    /// A working copy takes their version of a file instead of the merged one.
    LoseMerge,
    /// Garbage collection does not wait.
    NoGrace,
    /// A session does not notice that it was away for long.
    BlindClock,
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {value}")))
}

/// Runs a history; a panic in it is a failure as any other.
fn run(seed: u64, bug: Bug, is_verbose: bool) -> Result<Counts, String> {
    let ran = catch_unwind(|| history::run(seed, bug, is_verbose));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

#[test]
fn no_history_loses_an_acknowledged_byte_and_all_hosts_converge() {
    if let Some(seed) = number("CTXBENCH_SEED") {
        let counts = run(seed, Bug::None, true).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        println!("{counts:?}");
        return;
    }
    let histories = number("CTXBENCH_HISTORIES").unwrap_or(10_000);
    let first = number("CTXBENCH_FIRST").unwrap_or(0);
    let (next, started) = (AtomicU64::new(0), Instant::now());
    let total = Mutex::new((Counts::default(), None::<(u64, String)>));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= histories || total.lock().unwrap().1.is_some() {
                return;
            }
            let ran = run(first + at, Bug::None, false);
            let mut total = total.lock().unwrap();
            match ran {
                Ok(counts) => total.0.add(&counts),
                Err(error) => total.1 = Some((first + at, error)),
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut said = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            if said.elapsed() > Duration::from_secs(2) {
                said = Instant::now();
                let (done, taken) = (next.load(Ordering::Relaxed).min(histories), started.elapsed().as_secs_f64());
                let left = taken / done as f64 * (histories - done) as f64;
                eprintln!("{done} of {histories} histories, {left:.0} s left");
            }
        }
    });
    let (counts, failure) = total.into_inner().unwrap();
    if let Some((seed, error)) = failure {
        panic!("{error}\nreplay: CTXBENCH_SEED={seed} cargo test -p s3 --test simulation");
    }
    eprintln!("{histories} histories in {:.1} s: {counts:?}", started.elapsed().as_secs_f64());
}

/// The first history that shows a planted bug.
fn caught(bug: Bug) -> (u64, String) {
    let found = (0..600).find_map(|seed| Some((seed, run(seed, bug, false).err()?)));
    found.unwrap_or_else(|| panic!("600 histories do not show {bug:?}"))
}

#[test]
fn planted_bugs_are_caught() {
    for bug in [
        Bug::Overwrite,
        Bug::OverwriteAll,
        Bug::Forget,
        Bug::SkipNonce,
        Bug::EarlyReference,
        Bug::LoseMerge,
        Bug::NoGrace,
        Bug::BlindClock,
    ] {
        let (seed, error) = caught(bug);
        let line = error.lines().next().unwrap_or_default();
        println!("{bug:?}: seed {seed}: {line}");
    }
}
