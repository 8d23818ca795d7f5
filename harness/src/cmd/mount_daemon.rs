//! `ctxbench mount --daemon`: runs a mount in the background.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use backends::READY;

/// Starts this command line again as a daemon in its own session, with its log in the file `log`. Returns once its
/// mount is ready. If the daemon fails, prints its log and returns its exit code.
pub fn start(log: &Path) -> anyhow::Result<ExitCode> {
    let name = log.display();
    let opened = File::options()
        .create(true)
        .append(true)
        .read(true)
        .open(log);
    let mut file = opened.with_context(|| format!("opening the log {name}"))?;
    let begins = file
        .metadata()
        .with_context(|| format!("reading {name}"))?
        .len();
    // The first two are the program and `mount`.
    let arguments = std::env::args_os().skip(2);
    let mut daemon = Command::new(std::env::current_exe().context("finding ctxbench")?)
        .args(["mount", "--detached"])
        .args(arguments.filter(|argument| argument != "--daemon"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(
            file.try_clone()
                .with_context(|| format!("opening {name}"))?,
        )
        .spawn()
        .context("starting the daemon")?;
    let stdout = daemon.stdout.take().into_iter().map(BufReader::new);
    for line in stdout.flat_map(BufRead::lines).map_while(Result::ok) {
        if line == READY {
            println!("process {}; log: {name}", daemon.id());
            return Ok(ExitCode::SUCCESS);
        }
        println!("{line}");
    }
    let ended = daemon.wait().context("waiting for the daemon")?;
    let mut said = String::new();
    let read = file.seek(SeekFrom::Start(begins));
    if read.and_then(|_| file.read_to_string(&mut said)).is_ok() {
        // If standard error is closed, the exit code still reports the failure.
        eprintln!("{}", said.trim_end());
    }
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
