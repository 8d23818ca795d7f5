//! Processes of a scenario: their state, signals to them, and waiting for them.

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
