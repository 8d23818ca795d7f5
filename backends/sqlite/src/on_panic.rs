//! Cleans up after a panic in a store, before the next thread takes its lock.

/// Runs `act` if a panic begins while the answer lives.
pub(super) fn on_panic<F: Fn()>(act: F) -> PanicGuard<F> {
    PanicGuard { act, was_panicking: std::thread::panicking() }
}

pub(super) struct PanicGuard<F: Fn()> {
    act: F,
    /// This thread ends by an earlier panic, which this work does not cause.
    was_panicking: bool,
}

impl<F: Fn()> Drop for PanicGuard<F> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            (self.act)();
        }
    }
}
