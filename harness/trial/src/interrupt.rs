//! Orderly ends of a command: by Ctrl-C, as a flag that a run checks between calls, and by the end of standard input.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

const END_SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Clears the inherited signal mask, and resets SIGCHLD to its default disposition. With a blocked SIGTERM this process could
/// not be stopped, and with an ignored SIGCHLD it would not learn how its children end. Has to be called before the first
/// thread starts.
#[expect(unsafe_code, reason = "the standard library has no call for it")]
pub fn accept_signals() -> std::io::Result<()> {
    SigSet::all().thread_unblock()?;
    // While SIGCHLD is ignored, the kernel keeps no exit status. A handler would interrupt system calls at each child's end.
    // SAFETY: the default action of SIGCHLD runs no code of this process.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    Ok(())
}

/// Whether the user wants the run to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    pub fn catch() -> std::io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in END_SIGNALS {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// An interrupt that is never set.
    pub fn never() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// An interrupt that is set with `flag`.
    pub fn of(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Whether a signal has come.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Catches SIGINT, SIGTERM and SIGHUP from now on, for [`stop_at_signals`].
pub fn end_signals() -> std::io::Result<Signals> {
    Signals::new(END_SIGNALS)
}

/// Calls `stop` at each of the signals.
pub fn stop_at_signals(mut signals: Signals, stop: impl Fn() + Send + 'static) {
    std::thread::spawn(move || signals.forever().for_each(|_| stop()));
}

/// Calls `stop` at the end of standard input, whose content is ignored. An error counts as its end.
pub fn stop_at_end_of_stdin(stop: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        stop();
    });
}
