//! Interruption of long calls by a signal that asks the requester to end, such as Ctrl-C. A call goes on after any other
//! signal that the requester catches, such as a timer's, as a call on a local disk does: a FUSE file system can answer
//! `EINTR`, but cannot tell the kernel to restart the call, which `SA_RESTART` asks for.
//!
//! `fuser` handles `FUSE_INTERRUPT` itself and does not report it. The same information is in
//! `/proc/ID/status` of the requesting thread, which lists pending signals. A store that waits for a
//! remote server therefore polls [`requester`], and answers `EINTR` once the requester has given up.

use std::cell::Cell;

thread_local! {
    // The calls of `Store` do not name their requester, and a thread handles one at a time.
    static REQUESTER: Cell<u32> = const { Cell::new(0) };
}

/// Runs `work` for the thread `requester`; 0 means unknown. A thread that does not exist counts as gone.
pub fn on_behalf_of<T>(requester: u32, work: impl FnOnce() -> T) -> T {
    REQUESTER.set(requester);
    let done = work();
    REQUESTER.set(0);
    done
}

/// The state of the thread that waits for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// No pending signal is visible.
    Waits,
    /// A signal that asks it to end is pending, and it catches that; it may repeat the call.
    Interrupted,
    /// It has exited, or a fatal signal is pending.
    Gone,
}

/// The state of the thread that waits for the call this thread handles.
pub fn requester() -> Requester {
    match REQUESTER.get() {
        0 => Requester::Waits,
        thread => state_of(thread),
    }
}

/// Whether the requester of the call that this thread handles has given up.
pub fn requester_gave_up() -> bool {
    requester() != Requester::Waits
}

fn state_of(thread: u32) -> Requester {
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => signalled(&status),
        // It has exited: a requester in another PID namespace has number 0 and does not get here.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Requester::Gone,
        Err(_) => Requester::Waits,
    }
}

/// Derives the state from the pending signals in `/proc/ID/status` that are neither blocked nor ignored.
fn signalled(status: &str) -> Requester {
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let pending = set("SigPnd:").unwrap_or(0) | set("ShdPnd:").unwrap_or(0);
    // Uncaught, SIGCHLD, SIGCONT, SIGURG and SIGWINCH do not end a process; SIGSTOP and its kind pause it.
    const HARMLESS: [u32; 8] = [17, 18, 19, 20, 21, 22, 23, 28];
    let harmless = HARMLESS.iter().fold(0, |set, signal| set | 1_u64 << (signal - 1));
    let caught = set("SigCgt:").unwrap_or(0);
    let quiet = set("SigBlk:").unwrap_or(0) | set("SigIgn:").unwrap_or(0) | (harmless & !caught);
    let loud = pending & !quiet;
    // SIGHUP, SIGINT, SIGQUIT and SIGTERM ask a process to end.
    let asks_to_end = [1, 2, 3, 15].iter().fold(0, |set, signal| set | 1_u64 << (signal - 1));
    if loud & !caught != 0 {
        Requester::Gone
    } else if loud & asks_to_end != 0 {
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
    fn a_call_goes_on_unless_a_signal_ends_its_requester_or_asks_it_to_end() {
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
            ("SIGCHLD, caught", status(child, 0, 0, child), Waits),
            ("SIGALRM", status(signal(14), 0, 0, 0), Gone),
            ("SIGALRM, caught", status(signal(14), 0, 0, signal(14)), Waits),
            ("SIGURG, caught", status(signal(23), 0, 0, signal(23)), Waits),
            (
                "a timer's and SIGTERM, caught",
                status(signal(14) | signal(15), 0, 0, signal(14) | signal(15)),
                Interrupted,
            ),
        ] {
            assert_eq!(signalled(&status), expected, "{what}");
        }
    }

    #[test]
    fn this_thread_has_not_given_up_and_a_missing_one_has() {
        assert!(!requester_gave_up(), "no caller waits");
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(!on_behalf_of(me, requester_gave_up));
        assert!(on_behalf_of(u32::MAX, requester_gave_up));
        assert!(!requester_gave_up());
    }
}
