//! The event log of a mount: one line an event, rotated by size.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fuse::own_file;
use parking_lot::Mutex;

/// Size in bytes at which a log is rotated.
const ROTATE_AT: u64 = 1 << 20;

/// How many rotated logs are kept; `LOG.1` is the newest.
const KEPT: u32 = 3;

/// The file mode of a log: access for its owner only.
const PRIVATE: u32 = 0o600;

/// A log with one line an event. Several processes may append: each line is one `write` with `O_APPEND`.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: Mutex<File>,
}

impl LogFile {
    /// Opens a log, or creates it.
    ///
    /// # Errors
    /// If the file cannot be opened for appending, or its mode cannot be set.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: std::path::absolute(path)?, file: Mutex::new(append(path)?) })
    }

    /// The absolute path of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line with a UTC timestamp. A write error is only logged as a warning.
    pub fn line(&self, text: &str) {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ");
        let mut line = format!("{now} ");
        for char in text.chars() {
            match char {
                '\n' => line.push_str(" | "),
                // A name must not send control sequences to a terminal.
                char if char.is_control() => line.extend(char.escape_default()),
                char => line.push(char),
            }
        }
        line.push('\n');
        let mut file = self.file.lock();
        let written = self.rotate(&mut file).and_then(|()| file.write_all(line.as_bytes()));
        if let Err(error) = written {
            tracing::warn!("the log {}: {error}", self.path.display());
        }
    }

    fn rotate(&self, file: &mut File) -> io::Result<()> {
        if file.metadata()?.len() < ROTATE_AT {
            return Ok(());
        }
        let aside = |number: u32| PathBuf::from(format!("{}.{number}", self.path.display()));
        for number in (1..KEPT).rev() {
            // Older logs may not exist yet.
            let _ = std::fs::rename(aside(number), aside(number + 1));
        }
        std::fs::rename(&self.path, aside(1))?;
        *file = append(&self.path)?;
        Ok(())
    }
}

/// Opens a log that only its owner can read: under a policy it contains written data.
fn append(path: &Path) -> io::Result<File> {
    let file = own_file::open(path, File::options().create(true).append(true).mode(PRIVATE))?;
    let mode = file.metadata()?.permissions().mode() & 0o7777;
    if mode & !PRIVATE != 0 {
        // An existing log may have a wider mode.
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_put_aside_and_few_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = LogFile::open(&dir.path().join("log")).unwrap();
        let long = "x".repeat(300_000);
        for _ in 0..40 {
            log.line(&long);
        }
        let mut names: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["log", "log.1", "log.2", "log.3"]);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        for name in &names {
            let mode = mode(&dir.path().join(name));
            assert_eq!(mode, 0o600, "{name} holds what was written");
        }
        std::fs::set_permissions(log.path(), Permissions::from_mode(0o644)).unwrap();
        LogFile::open(log.path()).unwrap();
        assert_eq!(mode(log.path()), 0o600);
        log.line("two\nlines\u{1b}[2J");
        let text = std::fs::read_to_string(log.path()).unwrap();
        assert!(text.ends_with("Z two | lines\\u{1b}[2J\n"), "{text}");
    }
}
