//! Client processes that work in parallel: started and warmed up before the timed calls, released in one.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use processes::ChildProcess;
use rustix::io::Errno;
use workloads::script::clients::Clients;

/// A worker writes this once its files exist, are open and have been read.
pub const READY: &str = "ready";

/// A worker that reads this makes its calls. If its input ends without it, the worker exits.
pub const GO: &str = "go";

/// A worker writes this after all its calls, and behind it the response times of an open loop.
pub const DONE: &str = "done";

/// Client processes that wait for [`GO`]. They are killed when dropped.
#[derive(Debug)]
pub struct Workers(Mutex<Vec<Worker>>);

#[derive(Debug)]
struct Worker {
    process: ChildProcess,
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

    /// Releases all processes and waits until each has made its calls. Returns the 99th percentile of the response times of
    /// an open loop in nanoseconds, and `None` without a schedule.
    /// Fails with `EIO` if one failed, whose message is on standard error.
    pub fn run(&self) -> Result<Option<u64>, Errno> {
        let mut workers = self.0.lock().map_err(|_| Errno::IO)?;
        for worker in workers.iter_mut() {
            // The loop below finds a worker that has ended.
            let _ = worker.process.input().and_then(|input| input.write_all(GO.as_bytes()));
            worker.process.close_input();
        }
        let (mut all_done, mut responses) = (true, Vec::new());
        for worker in workers.iter_mut() {
            let told = worker.line().ok().and_then(|line| response_times(&line));
            all_done &= told.is_some();
            responses.extend(told.into_iter().flatten());
        }
        responses.sort_unstable();
        let slow = (responses.len() * 99).div_ceil(100).saturating_sub(1);
        all_done.then(|| responses.get(slow).copied()).ok_or(Errno::IO)
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
        // Usually it has ended when it is dropped. One that has not must not run on.
        let mut process = ChildProcess::start(&mut command, Duration::ZERO)?;
        let stdout = BufReader::new(process.output()?);
        Ok(Self { process, stdout })
    }

    fn says(&mut self, word: &str) -> io::Result<bool> {
        Ok(self.line()?.trim_end() == word)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line)
    }
}

/// The response times behind [`DONE`]; `None` if a line is not that of a worker that has made its calls.
fn response_times(line: &str) -> Option<Vec<u64>> {
    let mut words = line.split_whitespace();
    let is_done = words.next() == Some(DONE);
    let times = words.map(|word| word.parse().ok()).collect::<Option<Vec<u64>>>();
    times.filter(|_| is_done)
}

/// Writes a line to the parent process.
pub fn say(word: &str) -> io::Result<()> {
    // `println!` would panic once the parent process is gone.
    writeln!(io::stdout(), "{word}")?;
    io::stdout().flush()
}
