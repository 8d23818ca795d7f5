//! The database tools over MCP. Statements run in processes of their own, which are killed when they exceed a limit:
//! SQLite cannot be interrupted in the middle of a function, and counts memory by value, not by answer.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use backends::tools::sql::{MEMORY_MAX, TIME_MAX};
use parking_lot::{Condvar, Mutex};
use processes::ChildProcess;
use rmcp::model::{JsonObject, Tool};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::sql_worker::{Call, WorkerStart};
use super::toolset::{ToolAnswer, Toolset};

/// The maximum number of processes. Each runs one statement at a time.
const WORKERS_MAX: usize = 4;

/// How long an answer may take after the statement should have ended by itself.
const GRACE: Duration = Duration::from_secs(1);

/// How long a worker may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest line of a worker: an answer, escaped once more.
const ANSWER_MAX: usize = 4 << 20;

/// The tools over one database.
pub struct SqlWorkers {
    program: PathBuf,
    file: PathBuf,
    may_write: bool,
    tools: Vec<Tool>,
    pool: Mutex<Pool>,
    returned: Condvar,
}

/// The workers. The last one used is used next: without calls side by side there is one.
#[derive(Default)]
struct Pool {
    idle: Vec<Worker>,
    busy: usize,
}

/// A process that runs statements.
struct Worker {
    process: ChildProcess,
    output: ChildStdout,
    read: Vec<u8>,
}

/// Why a worker has not answered.
enum Failure {
    /// It had ended before the call.
    Gone,
    /// It did not answer in time.
    Late,
    /// It ended during the call, as words.
    Ended(String),
}

impl SqlWorkers {
    /// Starts the first worker, which must be able to open the database in `file`. `program` is ctxbench.
    ///
    /// # Errors
    /// Says why the file is not a readable SQLite database.
    pub fn open(program: PathBuf, file: PathBuf, may_write: bool) -> Result<Self, String> {
        let mut tools =
            Self { program, file, may_write, tools: Vec::new(), pool: Mutex::default(), returned: Condvar::new() };
        let (worker, definitions) = tools.start()?;
        tools.tools = definitions;
        tools.pool.lock().idle.push(worker);
        Ok(tools)
    }

    fn start(&self) -> Result<(Worker, Vec<Tool>), String> {
        let mut worker = Worker::spawn(&self.program, &self.file, self.may_write)
            .map_err(|error| format!("cannot start a process for statements: {error}"))?;
        let opened: Result<WorkerStart, Failure> = worker.answer(PATIENCE);
        match opened {
            Ok(Ok(tools)) => Ok((worker, tools)),
            Ok(Err(reason)) => Err(reason),
            Err(failure) => {
                let reason = match failure {
                    Failure::Ended(status) => format!("its process ended ({status})"),
                    Failure::Gone | Failure::Late => {
                        format!("it took longer than {} s", PATIENCE.as_secs())
                    }
                };
                let file = self.file.display();
                Err(format!("cannot open {file} as a SQLite database: {reason}"))
            }
        }
    }

    /// A worker that no other call has.
    fn take(&self) -> Result<Worker, String> {
        let mut pool = self.pool.lock();
        while pool.busy >= WORKERS_MAX {
            self.returned.wait(&mut pool);
        }
        pool.busy += 1;
        let idle = pool.idle.pop();
        drop(pool);
        match idle {
            Some(worker) => Ok(worker),
            None => self.start().map(|(worker, _)| worker).inspect_err(|_| self.put(None)),
        }
    }

    fn put(&self, worker: Option<Worker>) {
        let mut pool = self.pool.lock();
        pool.busy -= 1;
        pool.idle.extend(worker);
        drop(pool);
        self.returned.notify_one();
    }

    fn run(&self, tool: &str, given: JsonObject) -> ToolAnswer {
        let call = Call { tool: tool.to_owned(), arguments: Value::Object(given) };
        let mut line = serde_json::to_vec(&call).map_err(|error| format!("{tool}: {error}"))?;
        line.push(b'\n');
        let mut worker = self.take().map_err(|reason| format!("{tool}: {reason}"))?;
        let mut answered = worker.ask(&line);
        while matches!(answered, Err(Failure::Gone)) {
            // Every idle worker may have been killed, and a new one is alive.
            drop(worker);
            self.put(None);
            worker = self.take().map_err(|reason| format!("{tool}: {reason}"))?;
            answered = worker.ask(&line);
        }
        let failure = match answered {
            Ok(answer) => {
                // A statement at the limits leaves a large heap, which ends with its process.
                let is_spent = answer.as_ref().is_err_and(|reason| reason.contains(": stopped "));
                self.put((!is_spent).then_some(worker));
                return answer;
            }
            Err(failure) => failure,
        };
        drop(worker);
        // A writer rolls back what the killed one left in a journal: no reader could.
        let next = self.may_write.then(|| self.start()).and_then(Result::ok);
        self.put(next.map(|(worker, _)| worker));
        let unknown = match tool {
            "execute" => "; `query` shows whether the change was made",
            _ => "; select less",
        };
        Err(match failure {
            Failure::Gone | Failure::Late => {
                format!("{tool}: stopped after {} s{unknown}", TIME_MAX.as_secs())
            }
            Failure::Ended(status) => format!(
                "{tool}: the statement ended its process ({status}); the process may use {} MiB of memory{unknown}",
                MEMORY_MAX >> 20
            ),
        })
    }
}

impl Toolset for SqlWorkers {
    fn definitions(&self) -> Vec<Tool> {
        self.tools.clone()
    }

    fn changes(&self, name: &str) -> bool {
        name == "execute"
    }

    fn call(&self, name: &str, given: JsonObject) -> Option<ToolAnswer> {
        let has_tool = self.tools.iter().any(|tool| tool.name == name);
        has_tool.then(|| self.run(name, given))
    }
}

impl Worker {
    fn spawn(program: &std::path::Path, file: &std::path::Path, may_write: bool) -> std::io::Result<Self> {
        let mut command = Command::new(program);
        command.arg("sql-worker");
        if may_write {
            command.arg("--writable");
        }
        command
            .arg("--")
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It says what was too much for the kernel; the answer says it, too.
            .stderr(Stdio::null());
        let mut process = ChildProcess::start(&mut command, PATIENCE)?;
        let output = process.output()?;
        Ok(Self { process, output, read: Vec::new() })
    }

    /// The answer to a call.
    fn ask(&mut self, line: &[u8]) -> Result<ToolAnswer, Failure> {
        // It has not read the end of the line: the statement has not begun.
        self.process.input().and_then(|input| input.write_all(line)).map_err(|_| Failure::Gone)?;
        let answer: Option<ToolAnswer> = self.answer(TIME_MAX + GRACE)?;
        answer.ok_or_else(|| Failure::Ended("it has other tools".to_owned()))
    }

    /// The next line, which must come within `patience`.
    fn answer<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<T, Failure> {
        let deadline = Instant::now() + patience;
        let failed = |error: &dyn std::fmt::Display| Failure::Ended(error.to_string());
        self.read.clear();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(|error| failed(&error))?;
            let mut ready = [PollFd::new(&self.output, PollFlags::IN)];
            match poll(&mut ready, Some(&timeout)) {
                Ok(0) => return Err(Failure::Late),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(failed(&error)),
            }
            let mut part = [0; 64 << 10];
            let length = self.output.read(&mut part).map_err(|error| failed(&error))?;
            if length == 0 {
                return Err(self.ended());
            }
            self.read.extend_from_slice(&part[..length]);
            if self.read.ends_with(b"\n") {
                return serde_json::from_slice(&self.read).map_err(|error| failed(&error));
            }
            if self.read.len() > ANSWER_MAX {
                return Err(Failure::Ended("its answer is too long".to_owned()));
            }
        }
    }

    /// How it has ended, whose output has.
    fn ended(&mut self) -> Failure {
        use std::os::unix::process::ExitStatusExt;

        match self.process.wait() {
            Ok(status) if status.signal() == Some(signal_hook::consts::SIGXCPU) => Failure::Late,
            Ok(status) => Failure::Ended(status.to_string()),
            Err(error) => Failure::Ended(error.to_string()),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // An idle one ends with its input, and closes the database; one that runs a statement would not.
        if !self.read.ends_with(b"\n") {
            // An error means that it has ended.
            let _ = self.process.kill();
        }
    }
}
