//! Binds threads to a processor, and releases them.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that the calling thread may use, in ascending order.
///
/// # Errors
/// If the kernel does not report them.
pub fn allowed() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// Binds the calling thread, and the threads and processes that it starts later, to one processor.
///
/// # Errors
/// If the kernel does not allow it.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut one = CpuSet::new();
    one.set(cpu);
    Ok(sched_setaffinity(None, &one)?)
}

/// Releases the calling thread to every processor that its control group allows.
///
/// # Errors
/// If the kernel does not allow it.
pub fn unpin() -> io::Result<()> {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    Ok(sched_setaffinity(None, &all)?)
}
