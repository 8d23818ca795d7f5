//! Reads the kernel's statistics of threads and processes: processor time, memory, I/O.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rundir::Memory;

/// Processor time of the calling thread.
pub fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.try_into().unwrap_or_default()
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

/// Bytes of the blocks of all files below a directory; a file with several names counts once. What cannot be read counts
/// as nothing.
pub fn disk_use(dir: &Path) -> u64 {
    let (mut bytes, mut seen, mut dirs) = (0, HashSet::new(), vec![dir.to_owned()]);
    let device = fs::symlink_metadata(dir).map(|metadata| metadata.dev()).ok();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(about) = entry.metadata() else {
                continue;
            };
            // A mount below shows the same bytes again.
            if Some(about.dev()) != device || !seen.insert(about.ino()) {
                continue;
            }
            bytes += about.blocks() * 512;
            if about.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    bytes
}

/// Memory of a process in bytes; zeros if it has ended.
pub fn process_memory(pid: u32) -> Memory {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let bytes = |field: &str| {
        let line = status.lines().find(|line| line.starts_with(field));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    };
    Memory { resident: bytes("VmRSS:"), peak: bytes("VmHWM:") }
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

impl Io {
    /// The I/O since an earlier reading.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
            written: self.written.saturating_sub(before.written),
        }
    }
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
    Io { read_bytes: count("read_bytes: "), write_bytes: count("write_bytes: "), written: count("wchar: ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_a_file_with_two_names_count_once_and_holes_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let empty = disk_use(dir.path());
        fs::write(dir.path().join("a"), vec![7; 100_000]).unwrap();
        fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
        fs::create_dir(dir.path().join("c")).unwrap();
        let hole = fs::File::create(dir.path().join("c/hole")).unwrap();
        hole.set_len(1 << 30).unwrap();
        let used = disk_use(dir.path()) - empty;
        assert!((100_000..200_000).contains(&used), "{used}");
        assert_eq!(disk_use(&dir.path().join("missing")), 0);
    }
}
