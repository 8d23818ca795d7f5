//! A panic while a request is answered: it ends that request, not the thread that answers, and not the mount.
//!
//! What is behind a lock that the panic met is the store's business: it undoes what was half done, or refuses
//! everything from then on.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::counters::Opcode;

/// Does `work`, which answers a request. If it panics, its reply goes with it, and a reply that goes unsent answers
/// `EIO`; the log has the panic.
pub(super) fn contain(opcode: Opcode, work: impl FnOnce()) {
    // What the work owns is gone with it; what it shares is behind locks that know of a panic.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        tracing::error!(
            opcode = opcode.name(),
            "a panic, answered by EIO: {}",
            message(&*panic)
        );
    }
}

/// What a panic says.
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
        assert_eq!(
            said(|| panic!("number {}", std::process::id() / u32::MAX)),
            "number 0"
        );
        assert_eq!(said(|| std::panic::panic_any(7)), "without a message");
    }
}
