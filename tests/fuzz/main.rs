//! Fuzz targets: each parser of foreign bytes gets mutations of valid inputs. No input may panic, hang, or take memory
//! without limit. Every target runs for CTXBENCH_FUZZ_SECONDS (3 unless set; `make fuzz`: 600).
//!
//! The seed is fixed, so a failure comes back at the same input; CTXBENCH_FUZZ_SEED chooses another. A failing input is
//! written below `target/fuzz`.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "tests")]

mod definitions;
mod log_objects;
mod mutation;
mod names;
mod recordings;
mod redo_log;
mod run_directory;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The longest time for one input, in a debug build beside other tests.
const INPUT_LIMIT: Duration = Duration::from_secs(60);

/// The most memory that this process may ever hold: several targets at once, and their seeds.
const MEMORY_LIMIT: u64 = 2 << 30;

/// The random generator of a target.
pub type Rng = ChaCha8Rng;

fn variable(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().expect(name))
}

/// Writes an input below `target/fuzz` and returns its path.
fn keep(target: &str, input: &[u8]) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("fuzz");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join(format!("{target}-{}", &inputs::sha256(input)[..12]));
    std::fs::write(&file, input).unwrap();
    file
}

/// The most memory that this process has held, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() * 1024
}

/// Runs a target until its time is over. `make` derives an input from the seeds, `check` parses it.
pub fn fuzz(target: &'static str, mut make: impl FnMut(&mut Rng) -> Vec<u8>, mut check: impl FnMut(&[u8])) {
    let time = Duration::from_secs(variable("CTXBENCH_FUZZ_SECONDS", 3));
    let mut rng = Rng::seed_from_u64(variable("CTXBENCH_FUZZ_SEED", 1));
    let began = Instant::now();
    let mut inputs = 0_u64;
    // An input that never ends would take the whole test with it: another thread sees that and names the input.
    let (tell, told) = channel::<Vec<u8>>();
    let done = AtomicU64::new(0);
    std::thread::scope(|threads| {
        let done = &done;
        threads.spawn(move || watch(target, &told, done));
        while began.elapsed() < time || inputs < 100 {
            let input = make(&mut rng);
            tell.send(input.clone()).unwrap();
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&input))) {
                let file = keep(target, &input);
                eprintln!("fuzz: {target}: panics, input {inputs}: {}", file.display());
                resume_unwind(panic);
            }
            inputs += 1;
            done.store(inputs, Ordering::Release);
            assert!(
                peak_memory_is_fine(inputs),
                "{target}: {} bytes of memory, input {inputs}: {}",
                peak_memory(),
                keep(target, &input).display()
            );
        }
        drop(tell);
    });
    let seconds = began.elapsed().as_secs_f64();
    eprintln!("fuzz: {target}: {inputs} inputs in {seconds:.0} s");
}

/// Reading the peak takes longer than most inputs, so it is read now and then.
fn peak_memory_is_fine(inputs: u64) -> bool {
    !inputs.is_multiple_of(64) || peak_memory() < MEMORY_LIMIT
}

/// Ends the process when an input takes too long.
fn watch(target: &str, told: &std::sync::mpsc::Receiver<Vec<u8>>, done: &AtomicU64) {
    let mut current = (0, Vec::new());
    let mut since = Instant::now();
    loop {
        match told.recv_timeout(Duration::from_secs(1)) {
            Ok(input) => {
                current = (current.0 + 1, input);
                since = Instant::now();
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let is_done = done.load(Ordering::Acquire) >= current.0;
        if !is_done && since.elapsed() > INPUT_LIMIT {
            let file = keep(target, &current.1);
            eprintln!("fuzz: {target}: no end after {INPUT_LIMIT:?}: {}", file.display());
            std::process::abort();
        }
    }
}
