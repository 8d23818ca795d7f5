//! A client process of a workload with several clients, which [`Workers`](crate::workers::Workers) starts.
//!
//! In an open loop, a call's response time counts from its scheduled start: a call that waits for the end of the one before
//! it has waited, too.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use workloads::script::clients::Clients;

use crate::workers::{DONE, GO, READY, say};

/// A file of this process.
struct Target {
    path: PathBuf,
    open: Option<File>,
}

/// Reads the files of `process` in `dir` once, says [`READY`], waits until it is told to go, makes its calls, says
/// [`DONE`] and the response times of an open loop in nanoseconds.
///
/// # Errors
/// A failed call, or a file that does not hold what was written to it last; with its path.
pub fn work(dir: &Path, process: u32, clients: &Clients) -> io::Result<()> {
    let mut content = vec![0; clients.bytes as usize];
    let mut targets = Vec::new();
    for file in 0..clients.files {
        let path = dir.join(Clients::name(process, file));
        let mut target = Target { path, open: None };
        target.read(&mut content)?;
        if clients.keep_open {
            let open = OpenOptions::new().read(true).write(true).open(&target.path);
            target.open = Some(open.map_err(|error| target.failed("opening", &error))?);
        }
        targets.push(target);
    }
    let calls: Vec<_> = clients.calls(process).collect();
    let mut held = vec![0_u8; targets.len()];
    say(READY)?;
    let mut told = String::new();
    io::stdin().lock().read_to_string(&mut told)?;
    if told != GO {
        return Ok(());
    }
    let (begun, mut done) = (Instant::now(), DONE.to_owned());
    for (number, call) in (0..).zip(calls) {
        let due = clients.due(process, number);
        if let Some(due) = due {
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        let file = call.file as usize;
        match call.write {
            Some(byte) => {
                content.fill(byte);
                targets[file].overwrite(&content)?;
                held[file] = byte;
            }
            None => {
                targets[file].read(&mut content)?;
                if content.first() != Some(&held[file]) {
                    let path = targets[file].path.display();
                    let message = format!("{path} does not hold what was written to it last");
                    return Err(io::Error::other(message));
                }
            }
        }
        if let Some(due) = due {
            done += &format!(" {}", begun.elapsed().saturating_sub(due).as_nanos());
        }
    }
    say(&done)
}

impl Target {
    fn read(&self, content: &mut [u8]) -> io::Result<()> {
        let read = match &self.open {
            Some(file) => file.read_at(content, 0),
            None => File::open(&self.path).and_then(|file| file.read_at(content, 0)),
        };
        let read = read.map_err(|error| self.failed("reading", &error))?;
        if read != content.len() {
            let (path, wanted) = (self.path.display(), content.len());
            let message = format!("{path}: {read} bytes instead of {wanted}");
            return Err(io::Error::other(message));
        }
        Ok(())
    }

    fn overwrite(&self, content: &[u8]) -> io::Result<()> {
        let written = match &self.open {
            Some(file) => file.write_all_at(content, 0),
            None => OpenOptions::new().write(true).open(&self.path).and_then(|file| file.write_all_at(content, 0)),
        };
        written.map_err(|error| self.failed("overwriting", &error))
    }

    fn failed(&self, doing: &str, error: &io::Error) -> io::Error {
        io::Error::other(format!("{doing} {}: {error}", self.path.display()))
    }
}
