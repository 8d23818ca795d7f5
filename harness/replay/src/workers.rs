//! Client processes that work in parallel: started and warmed up before the timed calls, released in one.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use rustix::io::Errno;
use workloads::script::clients::Clients;

/// A worker writes this once its files exist, are open and have been read.
pub const READY: &str = "ready";

/// A worker that reads this makes its calls. If its input ends without it, the worker exits.
pub const GO: &str = "go";

/// A worker writes this after all its calls.
pub const DONE: &str = "done";

/// Client processes that wait for [`GO`]. They are killed when dropped.
#[derive(Debug)]
pub struct Workers(Mutex<Vec<Worker>>);

#[derive(Debug)]
struct Worker {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Workers {
    /// Starts the processes, each on its directory below `dir`, and waits until all are ready. `program` is the
    /// `ctxbench` binary.
    pub fn start(program: &Path, dir: &Path, clients: &Clients) -> io::Result<Self> {
        let description = serde_json::to_string(clients)?;
        let start = |process| Worker::start(program, dir, process, &description);
        let mut workers = (0..clients.processes).map(start).collect::<io::Result<Vec<_>>>()?;
        for worker in &mut workers {
            if !worker.says(READY)? {
                return Err(io::Error::other("a client process could not read its files"));
            }
        }
        Ok(Self(Mutex::new(workers)))
    }

    /// Releases all processes and waits until each has made its calls.
    /// Fails with `EIO` if one failed, whose message is on standard error.
    pub fn run(&self) -> Result<(), Errno> {
        let mut workers = self.0.lock().map_err(|_| Errno::IO)?;
        for worker in workers.iter_mut() {
            if let Some(mut stdin) = worker.stdin.take() {
                // The loop below finds a worker that has ended.
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
        Ok(Self { process, stdin, stdout: BufReader::new(stdout) })
    }

    fn says(&mut self, word: &str) -> io::Result<bool> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end() == word)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Usually it has ended. One that has not must not run on.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes a line to the parent process.
pub fn say(word: &str) -> io::Result<()> {
    // `println!` would panic once the parent process is gone.
    writeln!(io::stdout(), "{word}")?;
    io::stdout().flush()
}
