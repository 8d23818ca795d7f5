//! Processes by their ids: their state, signals to them, and waiting for them.

use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Waits until a condition holds, with a pause of `tick` between two checks. Returns false if `limit` passes
/// first.
pub fn wait_until(limit: Duration, tick: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(tick);
    }
    true
}

/// Sends a process a signal.
///
/// # Errors
/// If there is no such process, or it belongs to another user.
pub fn send(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal)?)
}

/// The state of a process from `/proc/PID/stat`: `R`, `S`, `D`, `T`, `Z`. `None` if there is no such
/// process.
pub fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    state_in(&stat)
}

fn state_in(stat: &str) -> Option<char> {
    // The command name in parentheses may contain any character.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.chars().next()
}

/// Whether every thread of a process is stopped. After SIGSTOP, a thread that still runs may answer a
/// request. False if there is no such process.
pub fn stands_still(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let mut states = threads.flatten().filter_map(|thread| {
        // A thread that has ended meanwhile counts as stopped.
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        state_in(&stat)
    });
    states.all(|state| state == 'T')
}

/// The processes that have a variable with this value in their environment. Those of other users are not seen.
pub fn with_variable(name: &str, value: &str) -> Vec<u32> {
    let variable = format!("{name}={value}");
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
    };
    ids.filter(has_it).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::ChildProcess;

    #[test]
    fn a_process_is_stopped_when_all_its_threads_are() {
        let until = |what: &str, is_so: &dyn Fn() -> bool| {
            assert!(wait_until(Duration::from_secs(20), Duration::from_millis(5), is_so), "{what}");
        };
        assert!(!stands_still(std::process::id()), "this thread runs");
        let mut child = ChildProcess::start(Command::new("sleep").arg("60"), Duration::ZERO).unwrap();
        assert!(!stands_still(child.id()));
        send(child.id(), Signal::STOP).unwrap();
        until("it stops", &|| stands_still(child.id()));
        send(child.id(), Signal::CONT).unwrap();
        until("it continues", &|| !stands_still(child.id()));
        child.kill().unwrap();
        assert!(!stands_still(child.id()));
    }
}
