//! What the kernel says about processes and pressure.

use std::fs;
use std::time::Duration;

use reports::run::{Memory, Pressure};

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

/// Bytes that the calling thread has had fetched from disk so far; 0 where the kernel does not say.
pub fn thread_disk_read() -> u64 {
    io_count("/proc/thread-self/io", "read_bytes: ")
}

/// Bytes that a process has had fetched from disk so far, by all its threads; 0 where the kernel does
/// not say.
pub fn process_disk_read(pid: u32) -> u64 {
    io_count(&format!("/proc/{pid}/io"), "read_bytes: ")
}

/// Bytes that a process has written so far to files, devices and pipes; 0 where the kernel does not say.
pub fn process_written(pid: u32) -> u64 {
    io_count(&format!("/proc/{pid}/io"), "wchar: ")
}

fn io_count(file: &str, field: &str) -> u64 {
    let io = fs::read_to_string(file).unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Total stall times so far.
pub fn pressure() -> Pressure {
    let total = |resource: &str| {
        let text = fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?;
        let some = text.lines().find(|line| line.starts_with("some"))?;
        some.split("total=").nth(1)?.trim().parse().ok()
    };
    Pressure {
        cpu_us: total("cpu"),
        io_us: total("io"),
        memory_us: total("memory"),
    }
}

/// How much pressure there was between two readings.
pub fn pressure_since(before: &Pressure, after: &Pressure) -> Pressure {
    let since = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
    Pressure {
        cpu_us: since(before.cpu_us, after.cpu_us),
        io_us: since(before.io_us, after.io_us),
        memory_us: since(before.memory_us, after.memory_us),
    }
}
