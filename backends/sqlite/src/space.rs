//! What the files of a database occupy on its disk, mounted or not.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::files::{folder, log_of, redo_of, tails_of};
use crate::room;

/// Bytes of the header of a database.
const HEADER: usize = 100;

/// Disk space in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseSpace {
    /// The database file, with the next two.
    pub database: u64,
    /// Its pages that hold nothing, as of the last checkpoint.
    pub free_pages: u64,
    /// Reserved past its end.
    pub reserve: u64,
    /// SQLite's write-ahead log.
    pub log: u64,
    /// The redo log.
    pub redo: u64,
    /// The tails of long files, with the next one.
    pub tails: u64,
    /// Reserved past the ends of tails that grow.
    pub reserved_ahead: u64,
    /// Left on the disk for users.
    pub disk_free: u64,
}

fn allocated(file: &Metadata) -> u64 {
    file.blocks() * 512
}

fn past_end(file: &Metadata) -> u64 {
    allocated(file).saturating_sub(file.len().next_multiple_of(4096))
}

/// The space of the database at `path`. `None` if the file is not an SQLite database. Not for a process that has the
/// database open: closing a file ends the locks that SQLite has on it.
///
/// # Errors
/// If a file cannot be read; a file that another process removes meanwhile does not count as an error.
pub fn space(path: &Path) -> io::Result<Option<DatabaseSpace>> {
    let path = path.canonicalize()?;
    let file = File::open(&path)?;
    let mut header = [0; HEADER];
    let is_read = file.metadata()?.is_file() && file.read_exact_at(&mut header, 0).is_ok();
    if !is_read || !header.starts_with(b"SQLite format 3\0") {
        return Ok(None);
    }
    let page = match u64::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 65_536,
        bytes => bytes,
    };
    let free = u32::from_be_bytes([header[36], header[37], header[38], header[39]]);
    let database = file.metadata()?;
    let of = |path: &Path| std::fs::metadata(path).map_or(0, |file| allocated(&file));
    let mut space = DatabaseSpace {
        database: allocated(&database),
        free_pages: u64::from(free) * page,
        reserve: past_end(&database),
        log: of(&log_of(&path)),
        redo: of(&redo_of(&path)),
        disk_free: room::free_of(&File::open(folder(&path))?),
        ..DatabaseSpace::default()
    };
    match std::fs::read_dir(tails_of(&path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        entries => {
            for entry in entries? {
                if let Ok(tail) = entry?.metadata() {
                    space.tails += allocated(&tail);
                    space.reserved_ahead += past_end(&tail);
                }
            }
        }
    }
    Ok(Some(space))
}
