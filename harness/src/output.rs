//! Standard output, whose reader may be gone, as in `ctxbench list | head`, or whose disk may be full.
//! `print!` and `println!` of this binary write here; the standard library's would panic.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use backends::daemon_log;

/// Whether a write has failed. Static, because `print!` has no other place for it.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Writes text. The first error is reported, unless the reader is gone.
pub fn write(text: Arguments<'_>) {
    check(std::io::stdout().write_fmt(text));
}

fn check(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
        && !HAS_FAILED.swap(true, Ordering::Relaxed)
    {
        daemon_log::say(format_args!(
            "ctxbench: writing to standard output: {error}"
        ));
    }
}

/// Whether a write has failed although there is a reader. Writes what is buffered first: text after the last newline.
pub fn has_failed() -> bool {
    check(std::io::stdout().flush());
    HAS_FAILED.load(Ordering::Relaxed)
}
