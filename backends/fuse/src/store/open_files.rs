//! The trait of stores whose open files have contents of their own.

use super::{Attr, Caller, Change, Ino, Result};
#[cfg(doc)]
use super::{Coherence, Store};

/// Open files with contents of their own: a reader's stays the same from one read to the next, and a writer's is
/// gathered until it is committed. Only a store whose opens the kernel sends ([`Coherence::Uncached`]) can have them.
pub trait OpenFiles {
    /// The handle of a new open file. `writes`: it is open for writing, as after a [`Store::create`].
    fn open(&self, ino: Ino, writes: bool) -> Result<u64>;

    /// [`Store::setattr`] through an open file, whose uncommitted content it resizes. An open with `O_TRUNC` truncates
    /// by this call, and is committed together with what is written after it.
    fn setattr_handle(&self, handle: u64, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr>;

    /// [`Store::read`] of the open file's content.
    fn read_handle(&self, handle: u64, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()>;

    /// [`Store::write`] to the open file's content.
    fn write_handle(&self, handle: u64, offset: u64, data: &[u8]) -> Result<()>;

    /// Writes all of `data` to the end of the open file's content.
    fn append_handle(&self, handle: u64, data: &[u8]) -> Result<()>;

    /// [`Store::fsync`] of the open file, which commits its content.
    fn fsync_handle(&self, handle: u64) -> Result<()>;

    /// Ends an open file, and drops its content.
    fn release(&self, handle: u64);
}
