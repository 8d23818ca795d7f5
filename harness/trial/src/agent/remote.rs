//! Files whose content follows from their names, so that one host can check what another wrote.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use processes::wait_until;
use rundir::faults::Fact;
use serde::{Deserialize, Serialize};

use super::Caller;

/// Interval between two polls for awaited files.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time limit for awaited files.
const AWAIT_LIMIT: Duration = Duration::from_secs(20);

/// A series of files in a directory: `NAME-0`, `NAME-1`, ….
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSeries {
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

impl FileSeries {
    /// The first version of a series.
    pub fn new(name: &str, files: u64, bytes: usize) -> Self {
        Self { name: name.to_owned(), first: 0, files, bytes, version: 1 }
    }

    /// Some of its files.
    pub fn part(&self, first: u64, files: u64) -> Self {
        Self { first, files, ..self.clone() }
    }

    /// The same files with other content.
    pub fn version(&self, version: u64) -> Self {
        Self { version, ..self.clone() }
    }

    fn paths(&self, dir: &Path) -> impl Iterator<Item = (u64, PathBuf)> {
        let numbers = self.first..self.first + self.files;
        numbers.map(|number| (number, dir.join(format!("{}-{number}", self.name))))
    }

    /// Expected content of a file: lines with its name and number, so that any wrong byte is found.
    pub fn content(&self, number: u64) -> Vec<u8> {
        let line = |at: usize| format!("{} {number} version {} line {at}\n", self.name, self.version);
        let lines = (0..).flat_map(|at| line(at).into_bytes());
        lines.take(self.bytes).collect()
    }

    pub(super) fn write(&self, dir: &Path, caller: &mut Caller) {
        for (number, path) in self.paths(dir) {
            // A failure is recorded.
            let _ = caller.call("write", || fs::write(path, self.content(number)));
        }
    }

    pub(super) fn remove(&self, dir: &Path, caller: &mut Caller) {
        for (_, path) in self.paths(dir) {
            let _ = caller.call("unlink", || fs::remove_file(path));
        }
    }

    pub(super) fn read(&self, dir: &Path, caller: &mut Caller) {
        let mut right = 0;
        for (number, path) in self.paths(dir) {
            let Ok(bytes) = caller.call("read", || fs::read(path)) else {
                continue;
            };
            let wanted = self.content(number);
            if bytes == wanted {
                right += 1;
                continue;
            }
            let first = bytes.iter().zip(&wanted).position(|(is, must)| is != must);
            let what = match first {
                Some(at) => format!("byte {at} of {} is wrong", wanted.len()),
                None => format!("{} bytes instead of {}", bytes.len(), wanted.len()),
            };
            caller.wrong("read", format!("{} files: {what}", self.name));
        }
        caller.fact("right", Fact::Count(right));
    }

    pub(super) fn wait_for(&self, dir: &Path, caller: &mut Caller) {
        let is_there = |path: &Path| fs::metadata(path).is_ok_and(|found| found.len() == self.bytes as u64);
        let mut there = 0;
        wait_until(AWAIT_LIMIT, POLL_INTERVAL, || {
            there = self.paths(dir).filter(|(_, path)| is_there(path)).count() as u64;
            there == self.files
        });
        caller.fact("awaited", Fact::Count(there));
    }
}

/// The names in a directory, in order.
pub(super) fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(dir)?;
    let mut names: Vec<String> =
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

pub(super) fn list(dir: &Path, caller: &mut Caller) {
    let names = caller.call("readdir", || names(dir)).unwrap_or_default();
    caller.fact("names", Fact::Words(names.join("\n")));
}

pub(super) fn read_any(file: &Path, caller: &mut Caller) {
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
    use super::super::{AgentState, Job, JobAnswer, perform};
    use super::*;

    fn done(at: &Path, job: Job) -> JobAnswer {
        perform(at, job, &mut AgentState::default()).unwrap()
    }

    #[test]
    fn a_reader_accepts_written_files_and_finds_a_wrong_byte() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let series = FileSeries::new("mine", 7, 100).part(3, 4);
        let read = |series: &FileSeries| done(dir, Job::ReadSeries(series.clone()));
        assert_eq!(done(dir, Job::WriteSeries(series.clone())).failures, []);
        let awaited = done(dir, Job::AwaitSeries(series.clone()));
        assert_eq!(awaited.count("awaited"), 4);
        let right = read(&series);
        assert_eq!((right.failures.len(), right.count("right")), (0, 4));
        let mut wrong = series.content(4);
        wrong[50] ^= 1;
        fs::write(dir.join("mine-4"), wrong).unwrap();
        fs::write(dir.join("mine-5"), "").unwrap();
        let wrong = read(&series);
        assert_eq!(wrong.count("right"), 2);
        let texts = [0, 1].map(|at| wrong.failures[at].text.as_str());
        assert!(texts[0].contains("byte 50 of 100"), "{texts:?}");
        assert!(texts[1].contains("0 bytes instead of 100"), "{texts:?}");
        assert_eq!(read(&series.version(2)).count("right"), 0);
        assert_eq!(done(dir, Job::RemoveSeries(series)).failures, []);
    }

    #[test]
    fn a_reader_rejects_an_empty_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "").unwrap();
        assert_eq!(done(&file, Job::ReadAny).failures.len(), 1);
        fs::write(&file, "x").unwrap();
        assert_eq!(done(&file, Job::ReadAny).failures, []);
    }
}
