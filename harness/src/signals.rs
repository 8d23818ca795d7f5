//! The end of a command that only computes and writes, by a signal.

use reports::render::abandon_files;
use signal_hook::iterator::Signals;
use trial::interrupt::end_signals;

/// The exit code of an interrupted command.
const INTERRUPTED: i32 = 130;

/// Ends this process at SIGINT, SIGTERM or SIGHUP from now on, whatever it computes. A report that is being written
/// leaves no temporary file. Not for a process with mounts or scratch, which have to be removed.
pub fn end_process_at_signals() -> std::io::Result<()> {
    let signals = end_signals()?;
    let end = move |mut signals: Signals| {
        if signals.forever().next().is_some() {
            abandon_files(|| signal_hook::low_level::exit(INTERRUPTED));
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || end(signals))?;
    Ok(())
}
