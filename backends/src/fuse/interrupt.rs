//! Ctrl-C on a call that takes long.
//!
//! The kernel tells a FUSE daemon by `FUSE_INTERRUPT` that whoever made a request has a signal pending; `fuser`
//! answers that message itself and tells nobody. What it says can be seen otherwise: the requester's thread is
//! known by its id, and a signal that waits for it is in `/proc/ID/status`. So a store that waits for something
//! asks [`requester`] now and then, and answers `EINTR` if it waits no longer.

use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static IS_INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

thread_local! {
    static REQUESTER: Cell<u32> = const { Cell::new(0) };
}

/// Does `work` on behalf of the thread `requester`; 0 for nobody who can be asked.
pub(crate) fn on_behalf_of<T>(requester: u32, work: impl FnOnce() -> T) -> T {
    REQUESTER.set(requester);
    let done = work();
    REQUESTER.set(0);
    done
}

/// Does `work` on behalf of somebody who has a signal pending that they catch.
#[cfg(test)]
pub(crate) fn while_interrupted<T>(work: impl FnOnce() -> T) -> T {
    IS_INTERRUPTED.set(true);
    let done = work();
    IS_INTERRUPTED.set(false);
    done
}

/// What has become of who waits for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// It waits, as far as can be seen.
    Waits,
    /// A signal that it catches is pending: it may well make the same call again.
    Interrupted,
    /// It has died, or a signal that ends it is pending.
    Gone,
}

/// What has become of who waits for the call that this thread works on.
pub fn requester() -> Requester {
    #[cfg(test)]
    if IS_INTERRUPTED.get() {
        return Requester::Interrupted;
    }
    match REQUESTER.get() {
        0 => Requester::Waits,
        thread => state_of(thread),
    }
}

/// Whether who waits for the call that this thread works on waits no longer.
pub fn requester_gave_up() -> bool {
    requester() != Requester::Waits
}

fn state_of(thread: u32) -> Requester {
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => signalled(&status),
        // It is gone, or, in another PID namespace, was never to be seen: then its number is 0.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Requester::Gone,
        Err(_) => Requester::Waits,
    }
}

/// What a `/proc/ID/status` shows of pending signals that are neither blocked nor ignored.
fn signalled(status: &str) -> Requester {
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let pending = set("SigPnd:").unwrap_or(0) | set("ShdPnd:").unwrap_or(0);
    // SIGCHLD, SIGURG and SIGWINCH do nothing unless caught; SIGSTOP and its like only pause.
    const HARMLESS: [u32; 8] = [17, 18, 19, 20, 21, 22, 23, 28];
    let harmless = HARMLESS
        .iter()
        .fold(0, |set, signal| set | 1_u64 << (signal - 1));
    let caught = set("SigCgt:").unwrap_or(0);
    let quiet = set("SigBlk:").unwrap_or(0) | set("SigIgn:").unwrap_or(0) | (harmless & !caught);
    let loud = pending & !quiet;
    if loud & !caught != 0 {
        Requester::Gone
    } else if loud != 0 {
        Requester::Interrupted
    } else {
        Requester::Waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pending: u64, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tcat\nSigPnd:\t{pending:016x}\nShdPnd:\t0000000000000000\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
        )
    }

    #[test]
    fn a_signal_counts_unless_it_is_blocked_ignored_or_harmless_and_ends_who_does_not_catch_it() {
        use Requester::{Gone, Interrupted, Waits};
        let signal = |number: u32| 1_u64 << (number - 1);
        let (int, kill, child) = (signal(2), signal(9), signal(17));
        for (what, status, expected) in [
            ("nothing", status(0, 0, 0, 0), Waits),
            ("SIGINT", status(int, 0, 0, 0), Gone),
            ("SIGKILL", status(kill, 0, 0, 0), Gone),
            ("SIGINT, caught", status(int, 0, 0, int), Interrupted),
            ("both", status(int | kill, 0, 0, int), Gone),
            ("SIGINT, blocked", status(int, int, 0, 0), Waits),
            ("SIGINT, ignored", status(int, 0, int, 0), Waits),
            ("SIGCHLD", status(child, 0, 0, 0), Waits),
            ("SIGCHLD, caught", status(child, 0, 0, child), Interrupted),
        ] {
            assert_eq!(signalled(&status), expected, "{what}");
        }
    }

    #[test]
    fn this_thread_has_not_given_up_and_a_missing_one_has() {
        assert!(!requester_gave_up(), "nobody waits");
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(!on_behalf_of(me, requester_gave_up));
        assert!(on_behalf_of(u32::MAX, requester_gave_up));
        assert!(!requester_gave_up());
    }
}
