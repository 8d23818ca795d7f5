//! Jobs of several concurrent agent processes on one file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rundir::faults::Fact;
use rustix::fs::{FlockOperation, flock};
use workloads::fault::WriteMode;

use super::Caller;

/// How long a note of another agent process may take to become visible.
const VISIBLE_WITHIN: Duration = Duration::from_secs(10);

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

/// Adds lines. A failure is recorded, and the next lines are still added.
pub(super) fn add_lines(file: &Path, how: WriteMode, agent: u32, times: u32, pause: Duration, caller: &mut Caller) {
    let mut torn = 0;
    let mut not_added = Vec::new();
    for number in 0..times {
        match add(file, how, agent, number, caller) {
            Ok(damaged) => torn += damaged,
            Err(_) => not_added.push(word(agent, number)),
        }
        std::thread::sleep(pause);
    }
    caller.fact("torn_reads", Fact::Count(torn));
    caller.fact("not_added", Fact::Words(not_added.join(" ")));
}

/// Opens a file to read and write it, and creates it if it does not exist.
fn open(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(file)
}

/// The file with its lock; `None` if another process holds the lock.
pub(super) fn try_lock(file: &Path, caller: &mut Caller) -> Option<File> {
    let file = caller.call("open", || open(file)).ok()?;
    let locked = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => false,
        // Recorded as any other failure.
        locked => caller.call("flock", || Ok(locked?)).is_ok(),
    };
    caller.fact("locked", Fact::Count(locked.into()));
    locked.then_some(file)
}

/// Waits until a file has this content.
pub(super) fn await_text(file: &Path, text: &str, caller: &mut Caller) {
    let started = Instant::now();
    let mut partial = 0;
    loop {
        match fs::read_to_string(file) {
            Ok(found) if found == text => break,
            Ok(_) => partial += 1,
            Err(_) => {}
        }
        if started.elapsed() > VISIBLE_WITHIN {
            let limit = VISIBLE_WITHIN.as_millis();
            caller.late("read", format!("not seen within {limit} ms"));
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    caller.fact("partial_reads", Fact::Count(partial));
    let ms = started.elapsed().as_secs_f64() * 1e3;
    caller.fact("seen_after_ms", Fact::Number(ms));
}

/// Adds a line. Returns how many damaged lines were read on the way.
fn add(file: &Path, how: WriteMode, agent: u32, number: u32, caller: &mut Caller) -> io::Result<u64> {
    let line = line(agent, number);
    match how {
        WriteMode::Append => {
            let mut options = OpenOptions::new();
            options.append(true).create(true);
            let mut open = caller.call("open", || options.open(file))?;
            caller.call("append", || open.write_all(line.as_bytes()))?;
            Ok(0)
        }
        WriteMode::ReadModifyWrite | WriteMode::Locked => {
            let mut open = caller.call("open", || open(file))?;
            if how == WriteMode::Locked {
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
        WriteMode::Rename => {
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

pub(super) fn count(file: &Path, caller: &mut Caller) {
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
        let file = dir.path().join("missing").join("file");
        let how = WriteMode::Append;
        add_lines(&file, how, 2, 2, Duration::ZERO, &mut caller);
        let not_added = Fact::Words("002-00000 002-00001".to_owned());
        assert_eq!(caller.answer.facts["not_added"], not_added);
    }

    #[test]
    fn each_way_of_adding_adds_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        for how in [WriteMode::Append, WriteMode::ReadModifyWrite, WriteMode::Locked, WriteMode::Rename] {
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
