//! Files that get their own name only when they are whole.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Creates a file for the owner alone, to be renamed once it is whole. Removes what a killed mount has left at `path`: nothing
/// that lies there is written to, since it may be a symbolic link.
///
/// # Errors
/// If it cannot be created, or what lies there cannot be removed.
pub fn create(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.open(path)
}
