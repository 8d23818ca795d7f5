//! Ctrl-C: a flag that the run looks at between calls, so that everything is taken down in order.

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

    /// One that is never set.
    #[cfg(test)]
    pub fn never() -> Self {
        Self::of(Arc::new(AtomicBool::new(false)))
    }

    /// One that a test sets.
    #[cfg(test)]
    pub fn of(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// The flag itself, for who waits elsewhere.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Whether it has come.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
