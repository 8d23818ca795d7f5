//! What several agents do with one file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reports::faults::Fact;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{Caller, pause};

/// What one of several agents does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareTask {
    /// Adds lines to a file, one after the other.
    AddLines {
        /// The file.
        file: PathBuf,
        /// How.
        how: How,
        /// Who adds.
        agent: u32,
        /// How many.
        times: u32,
        /// Microseconds between them.
        pause_us: u64,
    },
    /// Counts the lines of a file: whole, damaged, twice.
    CountLines {
        /// The file.
        file: PathBuf,
    },
    /// Counts the names in a directory that hold a word.
    CountNames {
        /// The directory.
        dir: PathBuf,
        /// The word.
        word: String,
    },
    /// Takes an exclusive `flock` and keeps it, or finds that somebody else has it.
    TryLock {
        /// The file.
        file: PathBuf,
    },
    /// Lets it go.
    Unlock,
    /// Writes a file and closes it.
    WriteNote {
        /// The file.
        file: PathBuf,
        /// What is in it.
        text: String,
    },
    /// Waits until a file says something, and says how long that took.
    AwaitNote {
        /// The file.
        file: PathBuf,
        /// What it is to say.
        text: String,
        /// For at most so many milliseconds.
        limit_ms: u64,
    },
}

/// How a line is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// One `write` to a file opened for appending.
    Append,
    /// Read all, write all.
    ReadModifyWrite,
    /// The same under `flock`.
    Locked,
    /// Read all, write a new file, rename it over.
    Rename,
}

/// What is kept from one task to the next.
#[derive(Default)]
pub struct Kept {
    lock: Option<File>,
}

/// A line that says if a part of it is missing.
pub fn line(agent: u32, number: u32) -> String {
    let word = format!("{agent:03}-{number:05}");
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
    /// Does it.
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
                for number in 0..times {
                    // Noted if it fails; the others go on.
                    torn += add(&file, how, agent, number, caller).unwrap_or(0);
                    pause(pause_us);
                }
                caller.fact("torn_reads", Fact::Count(torn));
            }
            ShareTask::CountLines { file } => count(&file, caller),
            ShareTask::CountNames { dir, word } => {
                let names = caller.call("readdir", || {
                    let names = fs::read_dir(&dir)?.map(|entry| Ok(entry?.file_name()));
                    names.collect::<io::Result<Vec<_>>>()
                });
                let names = names.unwrap_or_default();
                let named = names
                    .iter()
                    .filter(|name| name.to_string_lossy().contains(&word));
                caller.fact("names", Fact::Count(named.count() as u64));
            }
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
                            // Noted as any other failure.
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
                // Noted if it fails.
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
                        caller.wrong("read", format!("not seen within {limit_ms} ms"));
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

/// Adds a line; answers how many damaged lines were read on the way.
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
    fn each_way_of_adding_adds() {
        let dir = tempfile::tempdir().unwrap();
        for how in [How::Append, How::ReadModifyWrite, How::Locked, How::Rename] {
            let file = dir.path().join(format!("{how:?}"));
            let mut caller = Caller::default();
            for number in 0..3 {
                assert_eq!(add(&file, how, 1, number, &mut caller).unwrap(), 0);
            }
            count(&file, &mut caller);
            assert_eq!(caller.answer.facts["lines"], Fact::Count(3), "{how:?}");
            assert_eq!(caller.answer.facts["lines_damaged"], Fact::Count(0));
        }
    }
}
