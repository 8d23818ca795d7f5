//! Opens files that only ctxbench writes. Another program may have put something else in the place of one: no link is followed,
//! and no FIFO waited for.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};

const FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a file by `options`.
///
/// # Errors
/// Also [`is_foreign`].
pub fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let mut options = options.clone();
    let opened = options.custom_flags(FLAGS.bits().cast_signed()).open(path);
    regular(opened, CWD, path)
}

/// Opens a file by its name in `dir`; a new one is private to its owner.
///
/// # Errors
/// Also [`is_foreign`].
pub fn open_in(dir: &File, name: &Path, flags: OFlags) -> io::Result<File> {
    let opened = openat(dir, name, flags | FLAGS, Mode::RUSR | Mode::WUSR);
    regular(opened.map(File::from).map_err(io::Error::from), dir, name)
}

/// The bytes of a file.
///
/// # Errors
/// Also [`is_foreign`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, File::options().read(true))?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The file of that name, if it is a regular one.
fn regular(opened: io::Result<File>, dir: impl AsFd, name: &Path) -> io::Result<File> {
    let is_regular = match &opened {
        Ok(file) => file.metadata()?.is_file(),
        // The open fails for a link, a socket, a directory and some devices.
        Err(_) => match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => FileType::from_raw_mode(found.st_mode) == FileType::RegularFile,
            Err(_) => true,
        },
    };
    if is_regular { opened } else { Err(io::Error::other("it is not a regular file")) }
}

/// Whether a file was not opened because a link, a directory, a FIFO, a socket or a device has its name.
pub fn is_foreign(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Other && error.raw_os_error().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_or_a_link_in_the_place_of_a_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name| dir.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        rustix::fs::mkfifoat(CWD, at("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(read(&at("file")).unwrap(), b"text");
        for name in ["link", "fifo"] {
            assert!(is_foreign(&read(&at(name)).unwrap_err()), "{name}");
            assert!(is_foreign(&open(&at(name), File::options().append(true).create(true)).unwrap_err()), "{name}");
        }
        assert_eq!(std::fs::read(at("file")).unwrap(), b"text");
    }
}
