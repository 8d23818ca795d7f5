//! The clock that times calls, and a scripted clock for tests.

use std::time::Instant;

/// A monotonic clock.
pub trait Clock {
    /// Nanoseconds since an arbitrary, fixed moment.
    fn now_ns(&self) -> u64;
}

/// The machine's monotonic clock, from that moment.
impl Clock for Instant {
    fn now_ns(&self) -> u64 {
        self.elapsed().as_nanos() as u64
    }
}

/// A clock that advances by a scripted step at each reading.
#[cfg(test)]
#[derive(Debug, Default)]
pub struct ScriptedClock {
    now: std::cell::Cell<u64>,
    steps: std::cell::RefCell<std::collections::VecDeque<u64>>,
}

#[cfg(test)]
impl ScriptedClock {
    /// A clock that stands still once the steps are used up.
    pub fn new(steps: impl IntoIterator<Item = u64>) -> Self {
        Self { now: std::cell::Cell::new(0), steps: std::cell::RefCell::new(steps.into_iter().collect()) }
    }
}

#[cfg(test)]
impl Clock for ScriptedClock {
    fn now_ns(&self) -> u64 {
        let step = self.steps.borrow_mut().pop_front().unwrap_or(0);
        self.now.set(self.now.get() + step);
        self.now.get()
    }
}
