//! Ctrl-C on a call that takes long.
//!
//! The kernel tells a FUSE daemon by `FUSE_INTERRUPT` that whoever made a request has a signal pending; `fuser`
//! answers that message itself and tells nobody. What it says can be seen otherwise: the requester's thread is
//! known by its id, and a signal that waits for it is in `/proc/ID/status`. So a store that waits for something
//! asks [`requester_gave_up`] now and then, and answers `EINTR` if so.

use std::cell::Cell;

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

/// Whether who waits for the call that this thread works on has died, or has a signal pending which would end or
/// interrupt it.
pub fn requester_gave_up() -> bool {
    let requester = REQUESTER.get();
    requester != 0 && gave_up(requester)
}

fn gave_up(thread: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => has_signal(&status),
        // It is gone, or, in another PID namespace, was never to be seen: then its number is 0.
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Whether a `/proc/ID/status` shows a pending signal that is neither blocked nor ignored.
fn has_signal(status: &str) -> bool {
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
    pending & !quiet != 0
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
    fn a_signal_counts_unless_it_is_blocked_ignored_or_harmless() {
        let signal = |number: u32| 1_u64 << (number - 1);
        assert!(!has_signal(&status(0, 0, 0, 0)));
        assert!(has_signal(&status(signal(2), 0, 0, 0)), "SIGINT");
        assert!(has_signal(&status(signal(9), 0, 0, 0)), "SIGKILL");
        assert!(!has_signal(&status(signal(2), signal(2), 0, 0)), "blocked");
        assert!(!has_signal(&status(signal(2), 0, signal(2), 0)), "ignored");
        assert!(
            !has_signal(&status(signal(17), 0, 0, 0)),
            "SIGCHLD does nothing"
        );
        assert!(
            has_signal(&status(signal(17), 0, 0, signal(17))),
            "SIGCHLD that is caught"
        );
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
