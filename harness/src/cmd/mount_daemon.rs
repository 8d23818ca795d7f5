//! `ctxbench mount --daemon`: runs a mount in the background.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use arms::READY;
use inputs::border;
use rustix::io::{FdFlags, dup2, fcntl_setfd};
use rustix::process::Signal;
use signal_hook::consts::{SIGBUS, SIGKILL};
use signal_hook::low_level::signal_name;

use super::mount::{INTERRUPTED, NewFiles, open_log};
use trial::interrupt::{end_signals, stop_at_signals};

/// Starts this command line again as a daemon in its own session, with its log in the file `log`. Returns once its
/// mount is ready. If the daemon fails, prints its log and returns its exit code. A signal ends the daemon, too.
pub fn start(log: &Path) -> anyhow::Result<ExitCode> {
    keep_descriptors().context("closing the caller's files in the daemon")?;
    // From here on a signal must not end this process before the daemon, nor leave the log.
    let signals = end_signals().context("setting up signal handling")?;
    let name = border::path(log);
    let new = NewFiles::of([PathBuf::from(log)].iter());
    let mut file = open_log(log)?;
    let begins = file.metadata().with_context(|| format!("reading {name}"))?.len();
    // The first two are the program and `mount`.
    let arguments = std::env::args_os().skip(2);
    let mut daemon = Command::new(std::env::current_exe().context("finding ctxbench")?)
        .args(["mount", "--detached"])
        .args(arguments.filter(|argument| argument != "--daemon"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file.try_clone().with_context(|| format!("opening {name}"))?)
        .spawn()
        .context("starting the daemon")?;
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let (at_signal, pid) = (Arc::clone(&is_interrupted), daemon.id());
    stop_at_signals(signals, move || {
        at_signal.store(true, Ordering::Release);
        // An error means that it has ended.
        let _ = processes::send(pid, Signal::TERM);
    });
    let stdout = daemon.stdout.take().into_iter().map(BufReader::new);
    for line in stdout.flat_map(BufRead::lines).map_while(Result::ok) {
        if line != READY {
            println!("{line}");
        } else if !is_interrupted.load(Ordering::Acquire) {
            println!("process {}; log: {name}", daemon.id());
            return Ok(ExitCode::SUCCESS);
        }
    }
    let ended = daemon.wait().context("waiting for the daemon")?;
    if is_interrupted.load(Ordering::Acquire) {
        new.remove();
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let mut said = String::new();
    let read = file.seek(SeekFrom::Start(begins));
    if read.and_then(|_| file.read_to_string(&mut said)).is_ok() && !said.trim().is_empty() {
        // If standard error is closed, the exit code still reports the failure.
        eprintln!("{}", said.trim_end());
    }
    new.remove();
    if let Some(killed) = killed_by(ended) {
        eprintln!("{killed}");
    }
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// An error that names the signal by which the daemon ended; `None` if it ended otherwise.
fn killed_by(ended: ExitStatus) -> Option<String> {
    let signal = ended.signal()?;
    let known = signal_name(signal);
    let name = known.map_or_else(|| format!("signal {signal}"), str::to_owned);
    let fix = match signal {
        SIGBUS => "free at least 8 MiB on the disk of the store, and mount it again; if that fails, too, report it",
        SIGKILL => "see in `dmesg` whether the kernel killed it for lack of memory, and mount it again",
        _ => "mount it again; if that fails, too, report it",
    };
    Some(format!("ctxbench: {name} ended the daemon before its mount was ready\n  fix: {fix}"))
}

/// Keeps the files that this process has inherited from the daemon: one may be a lock, or a pipe whose reader waits for
/// its end.
#[expect(unsafe_code, reason = "the standard library does not know inherited files")]
fn keep_descriptors() -> io::Result<()> {
    let listed = std::fs::read_dir("/proc/self/fd")?;
    let numbers: Vec<i32> = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // SAFETY: the call below checks whether the descriptor is open, and closes nothing.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        match fcntl_setfd(file, FdFlags::CLOEXEC) {
            // The descriptor of the list itself.
            Err(rustix::io::Errno::BADF) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Tells the command that has started this daemon that the mount can be used, and closes standard output.
///
/// # Errors
/// If that command has ended.
#[expect(unsafe_code, reason = "the standard library cannot replace standard output")]
pub fn leave_parent() -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()?;
    let null = File::options().write(true).open("/dev/null")?;
    // SAFETY: descriptor 1 is open, and is never closed by this.
    let mut stdout = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(1) });
    Ok(dup2(null, &mut stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_ends_the_daemon_is_named_with_what_to_do() {
        assert_eq!(killed_by(ExitStatus::from_raw(1 << 8)), None);
        let said = |signal| killed_by(ExitStatus::from_raw(signal)).unwrap();
        assert!(said(SIGBUS).contains("SIGBUS ended the daemon"), "{}", said(SIGBUS));
        assert!(said(SIGBUS).contains("\n  fix: free at least 8 MiB"), "{}", said(SIGBUS));
        assert!(said(SIGKILL).contains("dmesg"), "{}", said(SIGKILL));
        assert!(said(34).contains("signal 34 ended"), "{}", said(34));
    }
}
