//! Contains a panic in a request handler: it fails that request, but neither the thread nor the mount.
//!
//! A store undoes a partial change before its lock is free, or refuses later calls: most locks cannot be poisoned.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::counters::Opcode;

/// Runs `work`, which answers a request. A panic drops its reply, which then answers `EIO`, and is logged.
pub(super) fn contain(opcode: Opcode, work: impl FnOnce()) {
    // `work` takes its own state along; a store repairs shared state, or refuses it, before its lock is free.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        tracing::error!(opcode = opcode.name(), "a request panicked and returned EIO: {}", message(&*panic));
    }
}

/// The message of a panic.
pub(super) fn message(panic: &(dyn Any + Send)) -> &str {
    let formatted = panic.downcast_ref::<String>().map(String::as_str);
    let literal = || panic.downcast_ref::<&str>().copied();
    formatted.or_else(literal).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_here_and_says_what_it_said() {
        contain(Opcode::Read, || panic!("on purpose"));
        let said = |work: fn()| {
            let panic = catch_unwind(work).unwrap_err();
            message(&*panic).to_owned()
        };
        assert_eq!(said(|| panic!("as it is")), "as it is");
        assert_eq!(said(|| panic!("number {}", std::process::id() / u32::MAX)), "number 0");
        assert_eq!(said(|| std::panic::panic_any(7)), "without a message");
    }
}
