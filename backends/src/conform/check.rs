//! How a check says what it saw.

use std::fmt::Debug;
use std::io;

use rustix::io::Errno;

/// Why a feature does not count as working.
#[derive(Debug)]
pub(super) enum Shortfall {
    /// It did something else than expected.
    Wrong(String),
    /// It cannot be tried here.
    NotHere(String),
}

pub(super) type Check = Result<(), Shortfall>;

/// What succeeded, or that it should have.
pub(super) fn did<T, E: Into<io::Error>>(what: &str, result: Result<T, E>) -> Result<T, Shortfall> {
    result.map_err(|error| Shortfall::Wrong(format!("{what}: {}", error.into())))
}

/// That something fails, and with which error.
pub(super) fn refused<T, E: Into<io::Error>>(
    what: &str,
    result: Result<T, E>,
    errno: Errno,
) -> Check {
    match result {
        Ok(_) => Err(Shortfall::Wrong(format!("{what}: allowed, not {errno}"))),
        Err(error) => {
            let error = error.into();
            must(error.raw_os_error() == Some(errno.raw_os_error()), || {
                format!("{what}: {error}, not {errno}")
            })
        }
    }
}

/// That two values are the same.
pub(super) fn same<T: PartialEq + Debug>(what: &str, is: T, should: T) -> Check {
    must(is == should, || format!("{what}: {is:?}, not {should:?}"))
}

/// That something holds.
pub(super) fn must<S: Into<String>>(holds: bool, what: impl FnOnce() -> S) -> Check {
    if holds {
        Ok(())
    } else {
        Err(Shortfall::Wrong(what().into()))
    }
}
