//! A process that runs statements for [`super::sql`], one after another, within limits that the kernel keeps.
//!
//! Its output begins with a line that has its tools; then each line of input is a call, and each line of output an answer.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use backends::tools::sql::{GROWTH_MAX, MEMORY_MAX, SqlTool, TIME_MAX};
use rmcp::model::Tool;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::toolset::{ToolAnswer, definition};

/// More seconds of processor time than a statement may run. The kernel ends a worker whose server was killed.
const SPARE_SECONDS: u64 = 3;

/// The first line of a worker: its tools, or why it has none.
pub(super) type WorkerStart = Result<Vec<Tool>, String>;

/// A call, as a line.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) arguments: Value,
}

/// Runs the statements that come on standard input on the database in `file`, until the input ends.
///
/// # Errors
/// If the kernel refuses a limit, or standard input or output fails.
pub fn run_statements(file: &Path, may_write: bool) -> anyhow::Result<()> {
    limit(Resource::Data, MEMORY_MAX).context("limiting the memory")?;
    limit(Resource::Core, 0).context("limiting core dumps")?;
    // A write past the limit fails with EFBIG; without a handler the signal would end the process before SQLite rolls back.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::<AtomicBool>::default())
        .context("handling the signal of the size limit")?;
    limit_growth(file)?;
    let mut output = std::io::stdout().lock();
    let mut say = |line: String| -> std::io::Result<()> {
        output.write_all(line.as_bytes())?;
        output.write_all(b"\n")?;
        output.flush()
    };
    let mut database = match SqlTool::open(file, may_write) {
        Ok(database) => database,
        Err(reason) => {
            return Ok(say(serde_json::to_string(&WorkerStart::Err(reason))?)?);
        }
    };
    let tools = database.definitions().into_iter();
    let tools = tools.map(|it| definition(it.name, it.description, it.properties, it.required));
    say(serde_json::to_string(&WorkerStart::Ok(tools.collect()))?)?;
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let call: Call = serde_json::from_slice(&line)?;
        // The text of a long statement is not kept.
        line = Vec::new();
        limit_time()?;
        if call.tool == "execute" {
            limit_growth(file)?;
        }
        let answer: Option<ToolAnswer> = database.call(&call.tool, call.arguments);
        say(serde_json::to_string(&answer)?)?;
    }
}

fn limit(resource: Resource, most: u64) -> rustix::io::Result<()> {
    let maximum = getrlimit(resource).maximum;
    let current = Some(maximum.map_or(most, |maximum| maximum.min(most)));
    setrlimit(resource, Rlimit { current, maximum })
}

/// Limits the files of the database to [`GROWTH_MAX`] more than they have.
fn limit_growth(file: &Path) -> anyhow::Result<()> {
    let length = |suffix: &str| {
        let mut path = file.as_os_str().to_owned();
        path.push(suffix);
        std::fs::metadata(path).map_or(0, |found| found.len())
    };
    let longest = length("").max(length("-wal")).max(length("-journal"));
    limit(Resource::Fsize, longest + GROWTH_MAX).context("limiting the size of files")
}

fn limit_time() -> anyhow::Result<()> {
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec.unsigned_abs();
    limit(Resource::Cpu, used + TIME_MAX.as_secs() + SPARE_SECONDS).context("limiting the processor time")
}
