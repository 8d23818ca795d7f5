//! How many operations a log has, in a file beside it. SQLite ends its own log silently at the first damaged frame, so after a
//! kill only this tells that operations are lost.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fuse::{own_file, unfinished};

use sqlite::database::boot;

/// Bytes: the number, the run of the kernel, and a CRC-32 of both.
const BYTES: usize = 28;

/// The file of the log at `log`.
pub(super) fn path_of(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push("-count");
    name.into()
}

fn encode(operations: u64, boot: u128) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&operations.to_le_bytes());
    bytes[8..24].copy_from_slice(&boot.to_le_bytes());
    let sum = crc32fast::hash(&bytes[..24]);
    bytes[24..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The content of the file with a log's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordedCount {
    /// The log must have so many operations.
    AtLeast(u64),
    /// Any number is right: the last mount has ended in order, or the machine has restarted, and power loss takes operations.
    Nothing,
    /// The file is damaged.
    Damaged,
}

/// Reads the file of a log.
pub(super) fn read(log: &Path) -> io::Result<RecordedCount> {
    let bytes = match own_file::read(&path_of(log)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(RecordedCount::Nothing),
        bytes => bytes?,
    };
    let parts = (bytes.get(..8), bytes.get(8..24));
    let (Some(operations), Some(written_in)) = parts else {
        return Ok(RecordedCount::Damaged);
    };
    let operations = u64::from_le_bytes(operations.try_into().unwrap_or_default());
    let written_in = u128::from_le_bytes(written_in.try_into().unwrap_or_default());
    Ok(match bytes == encode(operations, written_in) {
        true if written_in != 0 && written_in == boot() => RecordedCount::AtLeast(operations),
        true => RecordedCount::Nothing,
        false => RecordedCount::Damaged,
    })
}

/// The file of a log that is open.
#[derive(Debug)]
pub(super) struct Count {
    file: File,
    path: PathBuf,
    boot: u128,
}

impl Count {
    /// Begins with `operations`. The file has its name only when it is whole: a power loss must not leave a part of it, which
    /// would count as damage.
    pub(super) fn create(log: &Path, operations: u64) -> io::Result<Self> {
        let path = path_of(log);
        let mut new = path.clone().into_os_string();
        new.push("-new");
        let new = PathBuf::from(new);
        let file = unfinished::create(&new)?;
        let count = Self { file, path, boot: boot() };
        let made = count
            .set(operations)
            .and_then(|()| count.file.sync_all())
            .and_then(|()| std::fs::rename(&new, &count.path));
        if let Err(error) = made {
            std::fs::remove_file(&new)?;
            // A full disk: the file of a killed mount has its place.
            let there = own_file::open(&count.path, File::options().read(true).write(true)).map_err(|_| error)?;
            let count = Self { file: there, ..count };
            count.set(operations)?;
            return Ok(count);
        }
        Ok(count)
    }

    /// The log has so many operations now.
    pub(super) fn set(&self, operations: u64) -> io::Result<()> {
        self.file.write_all_at(&encode(operations, self.boot), 0)
    }

    /// Removes the file: the log ends in order.
    pub(super) fn remove(self) {
        match std::fs::remove_file(&self.path) {
            // Its directory was moved; the number stays right.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, "removing {}", self.path.display()),
            Ok(()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_has_its_name_only_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        let new = dir.path().join("a.log-count-new");
        // A start that was killed has left a part of one.
        std::fs::write(&new, b"a part").unwrap();
        assert_eq!(read(&log).unwrap(), RecordedCount::Nothing);
        let count = Count::create(&log, 7).unwrap();
        assert!(!new.exists());
        assert_eq!(read(&log).unwrap(), RecordedCount::AtLeast(7));
        count.set(8).unwrap();
        assert_eq!(read(&log).unwrap(), RecordedCount::AtLeast(8));
        count.remove();
        assert!(!path_of(&log).exists());
        // Where it cannot be made, nothing is left.
        std::fs::create_dir(path_of(&log)).unwrap();
        Count::create(&log, 7).unwrap_err();
        assert!(!new.exists());
    }
}
