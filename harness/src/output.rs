//! Standard output, whose reader may be gone, as in `ctxbench list | head`, or whose disk may be full; and messages.
//! `print!`, `println!` and `eprintln!` of this binary write here; the standard library's would panic, and would print
//! the control characters of a foreign name.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use fuse::daemon_log;
use inputs::border;

/// Whether a write has failed. Static, because `print!` has no other place for it.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Writes text. The first error is reported, unless the reader is gone.
pub fn write(text: Arguments<'_>) {
    let text = text.to_string();
    check(std::io::stdout().write_all(border::terminal(&text).as_bytes()));
}

/// Writes a message to standard error. One that cannot be written is lost.
pub fn write_message(text: Arguments<'_>) {
    let text = text.to_string();
    // There is no other place to report it.
    let _ = std::io::stderr().write_all(border::terminal(&text).as_bytes());
}

fn check(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
        && !HAS_FAILED.swap(true, Ordering::Relaxed)
    {
        daemon_log::say(format_args!("ctxbench: writing to standard output: {error}"));
    }
}

/// Whether a write has failed although there is a reader. Writes what is buffered first: text after the last newline.
pub fn has_failed() -> bool {
    check(std::io::stdout().flush());
    HAS_FAILED.load(Ordering::Relaxed)
}
