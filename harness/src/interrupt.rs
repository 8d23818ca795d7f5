//! Catches Ctrl-C in a flag that the run checks between calls, so that all mounts end in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether the user wants the run to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn catch() -> std::io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// An interrupt that is never set.
    #[cfg(test)]
    pub fn never() -> Self {
        Self::of(Arc::new(AtomicBool::new(false)))
    }

    /// An interrupt that a test sets.
    #[cfg(test)]
    pub fn of(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// The flag itself, for code outside this crate.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Whether a signal has come.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
