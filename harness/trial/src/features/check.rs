//! The result of a check, and assertions that produce it.

use std::fmt::Debug;
use std::io;

use rustix::io::Errno;

/// Why a check did not pass.
#[derive(Debug)]
pub(super) enum Shortfall {
    /// The file system did not behave as expected.
    Wrong(String),
    /// The check cannot run here.
    NotHere(String),
}

pub(super) type Check = Result<(), Shortfall>;

/// Requires success; returns the value.
pub(super) fn did<T, E: Into<io::Error>>(what: &str, result: Result<T, E>) -> Result<T, Shortfall> {
    result.map_err(|error| Shortfall::Wrong(format!("{what}: {}", error.into())))
}

/// Requires a failure with `errno`.
pub(super) fn refused<T, E: Into<io::Error>>(what: &str, result: Result<T, E>, errno: Errno) -> Check {
    match result {
        Ok(_) => Err(Shortfall::Wrong(format!("{what}: allowed, not {errno}"))),
        Err(error) => {
            let error = error.into();
            must(error.raw_os_error() == Some(errno.raw_os_error()), || format!("{what}: {error}, not {errno}"))
        }
    }
}

/// Requires two equal values.
pub(super) fn same<T: PartialEq + Debug>(what: &str, is: T, should: T) -> Check {
    must(is == should, || format!("{what}: {is:?}, not {should:?}"))
}

/// Requires a condition.
pub(super) fn must<S: Into<String>>(holds: bool, what: impl FnOnce() -> S) -> Check {
    if holds { Ok(()) } else { Err(Shortfall::Wrong(what().into())) }
}
