//! Makes the machine busy on purpose: a busy loop for each processor, and a thread that rewrites a file.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Context;
use fuse::cpu;

/// Bytes of the written file.
const FILE_BYTES: usize = 64 << 20;

/// A load. Dropping it ends it.
pub struct LoadGenerator {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl LoadGenerator {
    /// Starts the load.
    pub fn start() -> anyhow::Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        let disk = std::env::var_os("CTXBENCH_SCRATCH").unwrap_or_else(|| "/var/tmp".into());
        let mut file =
            tempfile::tempfile_in(&disk).with_context(|| format!("making a file to write in {}", disk.display()))?;
        for _ in cpu::allowed()? {
            let ends = Arc::clone(&ends);
            threads.push(std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }));
        }
        let writer = Arc::clone(&ends);
        threads.push(std::thread::spawn(move || {
            let piece = vec![1; 1 << 20];
            while !writer.load(Ordering::Relaxed) {
                // A full disk ends the writer only.
                if write_once(&mut file, &piece).is_err() {
                    return;
                }
            }
        }));
        Ok(Self { ends, threads })
    }
}

fn write_once(file: &mut File, piece: &[u8]) -> std::io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    for _ in 0..FILE_BYTES / piece.len() {
        file.write_all(piece)?;
    }
    file.sync_data()
}

impl Drop for LoadGenerator {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panicked thread has ended, too.
            let _ = thread.join();
        }
    }
}
