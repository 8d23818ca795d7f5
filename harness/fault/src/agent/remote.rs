//! Files whose content follows from their names, so that one host can check what another wrote.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rundir::faults::Fact;
use serde::{Deserialize, Serialize};

use super::Caller;

/// Interval between two listings of a directory while waiting for files.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A series of files: `NAME-0`, `NAME-1`, ….
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Their directory.
    pub dir: PathBuf,
    /// Prefix of their names.
    pub name: String,
    /// Number of the first file.
    pub first: u64,
    /// The number of files.
    pub files: u64,
    /// Bytes of each file.
    pub bytes: usize,
    /// Version of their content.
    pub version: u64,
}

/// A task on files of a series or on a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemoteTask {
    /// Writes each file, even after a failure.
    Write(Series),
    /// Reads each file and compares it with the expected content.
    Read(Series),
    /// Removes each file.
    Remove(Series),
    /// Waits until all files are listed with their sizes. Fact `awaited`: how many are.
    Await(Series),
    /// Lists a directory. Fact `names`: one name per line.
    List {
        /// The directory.
        dir: PathBuf,
    },
    /// Creates an empty directory.
    MakeDir {
        /// Path of the directory.
        dir: PathBuf,
    },
    /// Writes a file.
    WriteText {
        /// Path of the file.
        file: PathBuf,
        /// The new content.
        text: String,
    },
    /// Reads a file whose content is unknown but not empty. Facts `bytes` and `text`.
    ReadAny {
        /// Path of the file.
        file: PathBuf,
    },
}

impl Series {
    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{}-{number}", self.name))
    }

    fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.files
    }

    /// Expected content of a file: lines with its name and number, so that any wrong byte is found.
    pub fn content(&self, number: u64) -> Vec<u8> {
        let line = |at: usize| {
            format!(
                "{} {number} version {} line {at}\n",
                self.name, self.version
            )
        };
        let mut content = Vec::with_capacity(self.bytes);
        let mut at = 0;
        while content.len() < self.bytes {
            content.extend_from_slice(line(at).as_bytes());
            at += 1;
        }
        content.truncate(self.bytes);
        content
    }
}

impl RemoteTask {
    /// The path that the task works on.
    pub(super) fn place(&self) -> &Path {
        match self {
            RemoteTask::Write(series)
            | RemoteTask::Read(series)
            | RemoteTask::Remove(series)
            | RemoteTask::Await(series) => &series.dir,
            RemoteTask::List { dir } | RemoteTask::MakeDir { dir } => dir,
            RemoteTask::WriteText { file, .. } | RemoteTask::ReadAny { file } => file,
        }
    }

    /// Performs the task and records its failures.
    pub(super) fn perform(self, caller: &mut Caller) {
        match self {
            RemoteTask::Write(series) => {
                for number in series.numbers() {
                    let content = series.content(number);
                    // A failure is recorded.
                    let _ = caller.call("write", || fs::write(series.path(number), &content));
                }
            }
            RemoteTask::Read(series) => read(&series, caller),
            RemoteTask::Remove(series) => {
                for number in series.numbers() {
                    let _ = caller.call("unlink", || fs::remove_file(series.path(number)));
                }
            }
            RemoteTask::Await(series) => wait_for(&series, caller),
            RemoteTask::List { dir } => {
                let names = caller.call("readdir", || names(&dir));
                let names = names.unwrap_or_default();
                caller.fact("names", Fact::Words(names.join("\n")));
            }
            RemoteTask::MakeDir { dir } => {
                let _ = caller.call("mkdir", || fs::create_dir(&dir));
            }
            RemoteTask::WriteText { file, text } => {
                let _ = caller.call("write", || fs::write(&file, text));
            }
            RemoteTask::ReadAny { file } => read_any(&file, caller),
        }
    }
}

fn read(series: &Series, caller: &mut Caller) {
    let mut right = 0;
    for number in series.numbers() {
        let Ok(bytes) = caller.call("read", || fs::read(series.path(number))) else {
            continue;
        };
        let wanted = series.content(number);
        if bytes == wanted {
            right += 1;
        } else {
            let first = bytes.iter().zip(&wanted).position(|(is, must)| is != must);
            let name = &series.name;
            let what = match first {
                Some(at) => format!("byte {at} of {} is wrong", wanted.len()),
                None => format!("{} bytes instead of {}", bytes.len(), wanted.len()),
            };
            caller.wrong("read", format!("{name} files: {what}"));
        }
    }
    caller.fact("right", Fact::Count(right));
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(dir)?;
    let mut names: Vec<String> = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

fn wait_for(series: &Series, caller: &mut Caller) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let is_there = |number| {
        fs::metadata(series.path(number)).is_ok_and(|found| found.len() == series.bytes as u64)
    };
    let mut there = 0;
    while Instant::now() < deadline {
        there = series.numbers().filter(|number| is_there(*number)).count() as u64;
        if there == series.files {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    caller.fact("awaited", Fact::Count(there));
}

fn read_any(file: &Path, caller: &mut Caller) {
    let Ok(bytes) = caller.call("read", || fs::read(file)) else {
        return;
    };
    if bytes.is_empty() {
        caller.wrong("read", "an empty file, and no error".to_owned());
    }
    let text: String = String::from_utf8_lossy(&bytes).chars().take(200).collect();
    caller.fact("bytes", Fact::Count(bytes.len() as u64));
    caller.fact("text", Fact::Words(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(dir: &Path) -> Series {
        Series {
            dir: dir.to_owned(),
            name: "mine".to_owned(),
            first: 3,
            files: 4,
            bytes: 100,
            version: 1,
        }
    }

    fn done(task: RemoteTask) -> super::super::Answer {
        let mut caller = Caller::default();
        task.perform(&mut caller);
        caller.answer
    }

    #[test]
    fn a_reader_accepts_written_files_and_finds_a_wrong_byte() {
        let dir = tempfile::tempdir().unwrap();
        let series = series(dir.path());
        assert_eq!(done(RemoteTask::Write(series.clone())).failures, []);
        let awaited = done(RemoteTask::Await(series.clone()));
        assert_eq!(awaited.facts["awaited"], Fact::Count(4));
        let read = done(RemoteTask::Read(series.clone()));
        assert_eq!(
            (read.failures.len(), &read.facts["right"]),
            (0, &Fact::Count(4))
        );
        let mut wrong = series.content(4);
        wrong[50] ^= 1;
        fs::write(series.path(4), wrong).unwrap();
        fs::write(series.path(5), "").unwrap();
        let read = done(RemoteTask::Read(series.clone()));
        assert_eq!(read.facts["right"], Fact::Count(2));
        assert!(
            read.failures[0].text.contains("byte 50 of 100"),
            "{:?}",
            read.failures
        );
        assert!(read.failures[1].text.contains("0 bytes instead of 100"));
        let later = Series {
            version: 2,
            ..series.clone()
        };
        assert_eq!(done(RemoteTask::Read(later)).facts["right"], Fact::Count(0));
        assert_eq!(done(RemoteTask::Remove(series)).failures, []);
    }

    #[test]
    fn a_reader_rejects_an_empty_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "").unwrap();
        assert_eq!(
            done(RemoteTask::ReadAny { file: file.clone() })
                .failures
                .len(),
            1
        );
        fs::write(&file, "x").unwrap();
        assert_eq!(done(RemoteTask::ReadAny { file }).failures, []);
    }
}
