//! Tasks of several concurrent agent processes on one file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rundir::faults::Fact;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{Caller, pause};

/// The task of one of several agent processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareTask {
    /// Adds lines to a file. Fact `not_added` names the lines with a failed call.
    AddLines {
        /// Path of the file.
        file: PathBuf,
        /// How a line is added.
        how: How,
        /// Number of the agent process.
        agent: u32,
        /// The number of lines.
        times: u32,
        /// Microseconds between two lines.
        pause_us: u64,
    },
    /// Counts the lines of a file that are whole, damaged or duplicated. Fact `present` names the whole
    /// ones.
    CountLines {
        /// Path of the file.
        file: PathBuf,
    },
    /// Tries to take an exclusive `flock` and to keep it. Fact `locked`: 1 if it succeeded.
    TryLock {
        /// Path of the file.
        file: PathBuf,
    },
    /// Releases the lock.
    Unlock,
    /// Writes a file and closes it.
    WriteNote {
        /// Path of the file.
        file: PathBuf,
        /// The new content.
        text: String,
    },
    /// Waits until a file has the expected content. Facts `partial_reads` and `seen_after_ms`.
    AwaitNote {
        /// Path of the file.
        file: PathBuf,
        /// The expected content.
        text: String,
        /// Time limit in milliseconds.
        limit_ms: u64,
    },
}

/// The way in which a line is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// One `write` to a file opened with `O_APPEND`.
    Append,
    /// Read the whole file and write it back in place.
    ReadModifyWrite,
    /// As [`How::ReadModifyWrite`], under `flock`.
    Locked,
    /// Read the whole file, write a new file and rename it over the old one.
    Rename,
}

/// State that is kept between tasks.
#[derive(Default)]
pub struct Kept {
    lock: Option<File>,
}

/// The name of a line.
pub fn word(agent: u32, number: u32) -> String {
    format!("{agent:03}-{number:05}")
}

/// A line of four equal words, so that a missing part is found.
pub fn line(agent: u32, number: u32) -> String {
    let word = word(agent, number);
    format!("{word} {word} {word} {word}\n")
}

fn is_whole(line: &str) -> bool {
    let mut words = line.split(' ');
    let Some(first) = words.next() else {
        return false;
    };
    first.len() == 9 && words.clone().count() == 3 && words.all(|word| word == first)
}

impl ShareTask {
    /// The path that the task works on.
    pub(super) fn place(&self) -> Option<&Path> {
        match self {
            ShareTask::AddLines { file, .. }
            | ShareTask::CountLines { file }
            | ShareTask::TryLock { file }
            | ShareTask::WriteNote { file, .. }
            | ShareTask::AwaitNote { file, .. } => Some(file),
            ShareTask::Unlock => None,
        }
    }

    /// Performs the task.
    pub(super) fn perform(self, caller: &mut Caller, kept: &mut Kept) -> anyhow::Result<()> {
        match self {
            ShareTask::AddLines {
                file,
                how,
                agent,
                times,
                pause_us,
            } => {
                let mut torn = 0;
                let mut not_added = Vec::new();
                for number in 0..times {
                    // A failure is recorded. The next lines are still added.
                    match add(&file, how, agent, number, caller) {
                        Ok(damaged) => torn += damaged,
                        Err(_) => not_added.push(word(agent, number)),
                    }
                    pause(pause_us);
                }
                caller.fact("torn_reads", Fact::Count(torn));
                caller.fact("not_added", Fact::Words(not_added.join(" ")));
            }
            ShareTask::CountLines { file } => count(&file, caller),
            ShareTask::TryLock { file } => {
                let open = || {
                    OpenOptions::new()
                        .read(true)
                        .write(true)
                        .create(true)
                        .truncate(false)
                        .open(&file)
                };
                if let Ok(file) = caller.call("open", open) {
                    let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
                    let got = match locked {
                        Ok(()) => 1,
                        Err(rustix::io::Errno::WOULDBLOCK) => 0,
                        Err(error) => {
                            // Recorded as any other failure.
                            let _ = caller.call::<()>("flock", || Err(error.into()));
                            0
                        }
                    };
                    caller.fact("locked", Fact::Count(got));
                    if got == 1 {
                        kept.lock = Some(file);
                    }
                }
            }
            ShareTask::Unlock => kept.lock = None,
            ShareTask::WriteNote { file, text } => {
                // A failure is recorded.
                let _ = caller.call("write", || fs::write(&file, &text));
            }
            ShareTask::AwaitNote {
                file,
                text,
                limit_ms,
            } => {
                let started = Instant::now();
                let limit = Duration::from_millis(limit_ms);
                let mut partial = 0u64;
                loop {
                    match fs::read_to_string(&file) {
                        Ok(found) if found == text => break,
                        Ok(_) => partial += 1,
                        Err(_) => {}
                    }
                    if started.elapsed() > limit {
                        caller.late("read", format!("not seen within {limit_ms} ms"));
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                caller.fact("partial_reads", Fact::Count(partial));
                caller.fact(
                    "seen_after_ms",
                    Fact::Number(started.elapsed().as_secs_f64() * 1e3),
                );
            }
        }
        Ok(())
    }
}

/// Adds a line. Returns how many damaged lines were read on the way.
fn add(file: &Path, how: How, agent: u32, number: u32, caller: &mut Caller) -> io::Result<u64> {
    let line = line(agent, number);
    match how {
        How::Append => {
            let mut options = OpenOptions::new();
            options.append(true).create(true);
            let mut open = caller.call("open", || options.open(file))?;
            caller.call("append", || open.write_all(line.as_bytes()))?;
            Ok(0)
        }
        How::ReadModifyWrite | How::Locked => {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let mut open = caller.call("open", || options.open(file))?;
            if how == How::Locked {
                caller.call("flock", || Ok(flock(&open, FlockOperation::LockExclusive)?))?;
            }
            let mut text = String::new();
            caller.call("read", || open.read_to_string(&mut text))?;
            let torn = damaged(&text);
            text += &line;
            caller.call("write", || {
                open.rewind()?;
                open.write_all(text.as_bytes())
            })?;
            Ok(torn)
        }
        How::Rename => {
            let text = caller.call("read", || match fs::read_to_string(file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
                read => read,
            })?;
            let new = file.with_extension(format!("new-{agent}"));
            caller.call("write", || fs::write(&new, format!("{text}{line}")))?;
            caller.call("rename", || fs::rename(&new, file))?;
            Ok(damaged(&text))
        }
    }
}

fn damaged(text: &str) -> u64 {
    text.lines().filter(|line| !is_whole(line)).count() as u64
}

fn count(file: &Path, caller: &mut Caller) {
    let Ok(text) = caller.call("read", || fs::read_to_string(file)) else {
        return;
    };
    let mut seen = std::collections::BTreeSet::new();
    let mut twice = 0;
    for line in text.lines().filter(|line| is_whole(line)) {
        if !seen.insert(line) {
            twice += 1;
        }
    }
    let names = seen.iter().filter_map(|line| line.split(' ').next());
    let names: Vec<&str> = names.collect();
    caller.fact("present", Fact::Words(names.join(" ")));
    caller.fact("lines", Fact::Count(seen.len() as u64));
    caller.fact("lines_twice", Fact::Count(twice));
    caller.fact("lines_damaged", Fact::Count(damaged(&text)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_whole_or_damaged() {
        let line = line(7, 12);
        assert!(is_whole(line.trim_end()));
        for part in 1..line.len() - 1 {
            assert!(!is_whole(&line[..part]), "{part}");
        }
        let zeros = "\0".repeat(40);
        assert_eq!(damaged(&format!("{line}{zeros}\n{line}")), 1);
    }

    #[test]
    fn an_agent_names_the_lines_it_could_not_add() {
        let dir = tempfile::tempdir().unwrap();
        let mut caller = Caller::default();
        let task = ShareTask::AddLines {
            file: dir.path().join("missing").join("file"),
            how: How::Append,
            agent: 2,
            times: 2,
            pause_us: 0,
        };
        task.perform(&mut caller, &mut Kept::default()).unwrap();
        let not_added = Fact::Words("002-00000 002-00001".to_owned());
        assert_eq!(caller.answer.facts["not_added"], not_added);
    }

    #[test]
    fn each_way_of_adding_adds_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        for how in [How::Append, How::ReadModifyWrite, How::Locked, How::Rename] {
            let file = dir.path().join(format!("{how:?}"));
            let mut caller = Caller::default();
            for number in 0..3 {
                assert_eq!(add(&file, how, 1, number, &mut caller).unwrap(), 0);
            }
            count(&file, &mut caller);
            assert_eq!(caller.answer.facts["lines"], Fact::Count(3), "{how:?}");
            let present = Fact::Words("001-00000 001-00001 001-00002".to_owned());
            assert_eq!(caller.answer.facts["present"], present);
            assert_eq!(caller.answer.facts["lines_damaged"], Fact::Count(0));
        }
    }
}
