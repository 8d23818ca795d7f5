//! What the kernel says about processes and pressure.

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

/// Processor time of all threads of a process in nanoseconds; 0 if it is gone or the kernel does not say.
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

/// Memory of a process; zeros if it is gone.
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

/// What the kernel charges a thread or a process for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Io {
    /// Bytes fetched from disk.
    pub read_bytes: u64,
    /// Bytes of pages dirtied for the disk.
    pub write_bytes: u64,
    /// Bytes written to files, devices and pipes.
    pub written: u64,
}

/// What the calling thread has had read and written so far; zeros where the kernel does not say.
pub fn thread_io() -> Io {
    io("/proc/thread-self/io")
}

/// What all threads of a process have had read and written so far; zeros where the kernel does not say.
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
