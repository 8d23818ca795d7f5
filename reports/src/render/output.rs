//! Writes files of reports, each atomically: a reader finds the old or the new file, whenever this process ends.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use inputs::names::FileName;

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A file cannot be written.
    #[error("{}: {}", .file.display(), inputs::advised(.error))]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A document, chart or table cannot be formatted.
    #[error("{0}")]
    Format(String),
}

impl WriteError {
    fn io(file: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let file = file.to_owned();
        move |error| Self::Io { file: file.clone(), error }
    }
}

/// The temporary files of this process, which a signal removes. Static, because a signal ends the whole process.
static TEMPORARY: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn temporary() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the temporary files of this process, and lets no other thread create or rename one until `end` has ended the
/// process.
pub fn abandon_files(end: impl FnOnce()) {
    let files = temporary();
    for file in files.iter() {
        // Its directory may be gone, too.
        let _ = fs::remove_file(file);
    }
    end();
}

/// A file that replaces another one when it is complete. Dropped before, it leaves nothing.
pub(super) struct NewFile {
    file: PathBuf,
    half: PathBuf,
    writer: Option<BufWriter<File>>,
}

impl NewFile {
    /// Begins the file.
    pub(super) fn create(file: &Path) -> Result<Self, WriteError> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        // The name is short, so that it fits where that of the file does.
        let name: String = name.chars().take(32).collect();
        let mut numbers = 0..100;
        let created = loop {
            let number = numbers.next();
            let pid = std::process::id();
            let half = file.with_file_name(format!(".{name}.{pid}-{}.part", number.unwrap_or(0)));
            let mut files = temporary();
            let mut options = File::options();
            // Never over a link that a foreign directory has under this name.
            match options.write(true).create_new(true).mode(0o666).open(&half) {
                Ok(open) => {
                    files.insert(half.clone());
                    break Ok((half, open));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number.is_some() => {}
                Err(error) => break Err(error),
            }
        };
        let (half, open) = created.map_err(WriteError::io(file))?;
        Ok(Self { file: file.to_owned(), half, writer: Some(BufWriter::new(open)) })
    }

    /// Puts the file into its place.
    pub(super) fn finish(mut self) -> Result<(), WriteError> {
        let io = WriteError::io(&self.file);
        self.flush().map_err(&io)?;
        drop(self.writer.take());
        let mut files = temporary();
        fs::rename(&self.half, &self.file).map_err(&io)?;
        files.remove(&self.half);
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.as_mut().map_or(Ok(0), |writer| writer.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let mut files = temporary();
        if files.remove(&self.half) {
            // The error that ended the file is reported.
            let _ = fs::remove_file(&self.half);
        }
    }
}

/// Writes a file of a directory atomically. Another node with its name, also a link, is replaced.
///
/// # Errors
/// See [`WriteError`].
pub fn put(file: &Path, content: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), WriteError> {
    put_by(file, |new| new.write_all(content.as_ref()))
}

fn put_by(file: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), WriteError> {
    let mut new = NewFile::create(file)?;
    write(&mut new).map_err(WriteError::io(file))?;
    new.finish()
}

/// The most links from a path to its file, as in Linux.
const MOST_LINKS: usize = 40;

/// Writes the output that a user has named: replaces a file atomically, at the end of links, too. Writes into a device or
/// a pipe.
///
/// # Errors
/// See [`WriteError`]. A directory is refused.
pub fn put_output(path: &Path, text: &str) -> Result<(), WriteError> {
    put_output_by(path, |out| out.write_all(text.as_bytes()))
}

/// Writes such an output part by part.
///
/// # Errors
/// See [`put_output`].
pub fn put_output_by(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), WriteError> {
    let io = WriteError::io(path);
    let node = match path.metadata() {
        Ok(node) => Some(node),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io(error)),
    };
    match node {
        Some(node) if node.is_dir() => {
            let message = "is a directory (name a file in it)";
            Err(io(io::Error::new(io::ErrorKind::IsADirectory, message)))
        }
        Some(node) if !node.is_file() => {
            let open = File::options().write(true).open(path).map_err(&io)?;
            let mut open = BufWriter::new(open);
            write(&mut open).and_then(|()| open.flush()).map_err(io)
        }
        _ => {
            let mut file = path.to_owned();
            for _ in 0..MOST_LINKS {
                let Ok(target) = fs::read_link(&file) else { break };
                file = file.with_file_name("").join(target);
            }
            put_by(&file, write)
        }
    }
}

/// The path of a file in a folder of a report, which is created. A folder that is a link could lead anywhere, and is
/// refused.
pub(super) fn place(dir: &Path, folder: &'static str, name: &FileName) -> Result<PathBuf, WriteError> {
    let folder = dir.join(folder);
    let io = WriteError::io(&folder);
    match folder.symlink_metadata() {
        Ok(found) if found.is_dir() => {}
        Ok(_) => {
            let message = "is not a directory (remove it: a report never follows a link)";
            return Err(io(io::Error::new(io::ErrorKind::NotADirectory, message)));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(&folder).map_err(&io)?;
        }
        Err(error) => return Err(io(error)),
    }
    Ok(name.within(&folder))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, symlink};

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_that_is_not_finished_leaves_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("report.md");
        put(&file, "old").unwrap();
        let mut half = NewFile::create(&file).unwrap();
        half.write_all(b"ne").unwrap();
        drop(half);
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(names(dir.path()), ["report.md"]);
    }

    #[test]
    fn an_output_that_a_user_names_goes_through_links_and_into_pipes() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        fs::write(at("sub/file"), "old").unwrap();
        symlink("sub/file", at("near")).unwrap();
        symlink(at("near"), at("far")).unwrap();
        symlink("sub/new", at("dangling")).unwrap();
        for (link, file) in [("far", "sub/file"), ("dangling", "sub/new"), ("plain", "plain")] {
            put_output(&at(link), link).unwrap();
            assert_eq!(fs::read_to_string(at(file)).unwrap(), link);
            assert_eq!(at(link).is_symlink(), link != file);
        }
        let pipe = at("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let reader = {
            let pipe = pipe.clone();
            std::thread::spawn(move || fs::read_to_string(pipe).unwrap())
        };
        put_output(&pipe, "through").unwrap();
        // Its reader waits for a writer as long as there was none.
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(reader.join().unwrap(), "through");
        let refused = put_output(&at("sub"), "x").unwrap_err().to_string();
        assert!(refused.contains("sub: is a directory (name a file in it)"), "{refused}");
        let mut left = names(dir.path());
        left.sort();
        assert_eq!(left, ["dangling", "far", "near", "pipe", "plain", "sub"]);
    }

    #[test]
    fn links_of_a_foreign_directory_are_replaced_and_never_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let (run, outside) = (dir.path().join("run"), dir.path().join("outside"));
        fs::create_dir_all(&run).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("secret"), "kept").unwrap();
        symlink(outside.join("secret"), run.join("report.md")).unwrap();
        symlink(&outside, run.join("charts")).unwrap();
        put(&run.join("report.md"), "new").unwrap();
        assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "kept");
        assert_eq!(fs::read_to_string(run.join("report.md")).unwrap(), "new");
        let name = FileName::new("latency.svg").unwrap();
        let refused = place(&run, "charts", &name).unwrap_err().to_string();
        assert!(refused.contains("charts: is not a directory"), "{refused}");
        assert_eq!(names(&outside), ["secret"]);
    }
}
