//! Several processes that work at once: started and warmed up outside the clock, let go under it.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use rustix::io::Errno;
use workloads::generate::clients::Clients;

/// What a worker says when its files are there, open and read once.
pub const READY: &str = "ready";

/// What a worker is told when it is to make its calls; without it, the end of its input ends it.
pub const GO: &str = "go";

/// What a worker says when it has made all its calls.
pub const DONE: &str = "done";

/// Processes that wait to be let go; they end when dropped.
#[derive(Debug)]
pub struct Workers(Mutex<Vec<Worker>>);

#[derive(Debug)]
struct Worker {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Workers {
    /// Starts them, each on its directory below `dir`, and waits until all are ready. `program` is `ctxbench`.
    ///
    /// # Errors
    /// If one cannot be started, or cannot read its files.
    pub fn start(program: &Path, dir: &Path, clients: &Clients) -> io::Result<Self> {
        let description = serde_json::to_string(clients)?;
        let start = |process| Worker::start(program, dir, process, &description);
        let mut workers = (0..clients.processes)
            .map(start)
            .collect::<io::Result<Vec<_>>>()?;
        for worker in &mut workers {
            if !worker.says(READY)? {
                return Err(io::Error::other(
                    "a client process could not read its files",
                ));
            }
        }
        Ok(Self(Mutex::new(workers)))
    }

    /// Lets all go, and waits until each has made its calls.
    ///
    /// # Errors
    /// `EIO` if one failed: what it said is on standard error.
    pub fn run(&self) -> Result<(), Errno> {
        let mut workers = self.0.lock().map_err(|_| Errno::IO)?;
        for worker in workers.iter_mut() {
            if let Some(mut stdin) = worker.stdin.take() {
                // A worker that has ended is found below.
                let _ = stdin.write_all(GO.as_bytes());
            }
        }
        let mut all_done = true;
        for worker in workers.iter_mut() {
            all_done &= worker.says(DONE).unwrap_or(false);
        }
        all_done.then_some(()).ok_or(Errno::IO)
    }
}

impl Worker {
    fn start(program: &Path, dir: &Path, process: u32, description: &str) -> io::Result<Self> {
        let mut command = Command::new(program);
        command
            .arg("worker")
            .arg(dir)
            .arg(process.to_string())
            .arg(description)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take();
        let stdout = stdout.ok_or_else(|| io::Error::other("a worker has no output"))?;
        Ok(Self {
            process,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    fn says(&mut self, word: &str) -> io::Result<bool> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end() == word)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has mostly ended by itself; one that has not must not go on.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Tells the process that started this one something.
///
/// # Errors
/// If it has gone.
pub fn say(word: &str) -> io::Result<()> {
    println!("{word}");
    io::stdout().flush()
}
