//! Reads the kernel's statistics of threads and processes: processor time, memory, I/O.

use std::fs;
use std::time::Duration;

use rundir::Memory;

/// Processor time of the calling thread.
pub fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Processor time of all living threads of a process in nanoseconds; 0 if unknown.
pub fn process_cpu_ns(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|schedstat| schedstat.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// Memory of a process in bytes; zeros if it has ended.
pub fn process_memory(pid: u32) -> Memory {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let bytes = |field: &str| {
        let line = status.lines().find(|line| line.starts_with(field));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    };
    Memory {
        resident: bytes("VmRSS:"),
        peak: bytes("VmHWM:"),
    }
}

/// I/O that the kernel charges to a thread or a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Io {
    /// Bytes read from disk.
    pub read_bytes: u64,
    /// Bytes of pages dirtied for the disk.
    pub write_bytes: u64,
    /// Bytes written to files, devices and pipes.
    pub written: u64,
}

/// I/O of the calling thread so far; zeros if unknown.
pub fn thread_io() -> Io {
    io("/proc/thread-self/io")
}

/// I/O of all threads of a process so far; zeros if unknown.
pub fn process_io(pid: u32) -> Io {
    io(&format!("/proc/{pid}/io"))
}

fn io(file: &str) -> Io {
    let text = fs::read_to_string(file).unwrap_or_default();
    let count = |field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
    };
    Io {
        read_bytes: count("read_bytes: "),
        write_bytes: count("write_bytes: "),
        written: count("wchar: "),
    }
}
