//! Calls on a mount by threads of its own daemon.
//!
//! A thread that waits for an answer of its own mount cannot be killed before the answer comes. If it had `/dev/fuse` open
//! with the other threads, a killed daemon would never close it, and the kernel would never end the wait. So such a thread
//! has a table of descriptors of its own. It logs nothing: the log's files are not open in it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{CWD, Mode, OFlags, fstat, major, minor, openat};
use rustix::io::{Errno, fcntl_getfd};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::connection::MountEntry;

/// Gives this thread a table of descriptors of its own, without those of the process.
#[expect(unsafe_code, reason = "the standard library knows no such table")]
pub(super) fn leave_descriptors() -> io::Result<()> {
    // SAFETY: this thread opens all descriptors that it uses after this call, and passes none to another thread.
    unsafe { unshare_unsafe(UnshareFlags::FILES)? };
    let listed = std::fs::read_dir("/proc/thread-self/fd")?;
    let numbers: Vec<RawFd> = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers {
        // SAFETY: the descriptor is this thread's alone, and it does not use it. That of the list is closed already, and
        // is not closed again.
        unsafe {
            if fcntl_getfd(BorrowedFd::borrow_raw(number)).is_ok() {
                rustix::io::close(number);
            }
        }
    }
    Ok(())
}

/// Opens the root of a mount. An open root keeps the mount in use.
///
/// # Errors
/// [`Errno::XDEV`] if another mount covers this one.
pub(super) fn open_root(mount: &MountEntry, flags: OFlags) -> Result<OwnedFd, Errno> {
    let root = openat(CWD, &mount.at, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let device = fstat(&root)?.st_dev;
    if (major(device), minor(device)) == mount.device { Ok(root) } else { Err(Errno::XDEV) }
}
