//! Tools over files, memories and databases, served to an agent over MCP on standard input and output. Each module is a
//! group of tools, but for those of the protocol: `server`, `transport`, `lines`, `toolset`; `sql_worker` runs statements.

mod files;
mod lines;
mod memory;
mod server;
mod sql;
mod sql_worker;
mod toolset;
mod transport;
mod tree;

use std::path::Path;

use anyhow::Context;
use backends::state::StateFiles;
use parking_lot::Mutex;
use serde_json::{Map, Value};

pub use memory::REMEMBERED;
pub use server::PreparedServer;
pub use sql::SqlWorkers;
pub use sql_worker::run_statements;
pub use toolset::Toolset;

use files::FileTools;
use memory::MemoryTools;
use tree::DirectoryTree;

/// File tools over files that end with the server.
pub fn state() -> Box<dyn Toolset> {
    Box::new(FileTools::State(Mutex::new(StateFiles::default())))
}

/// File tools over a directory, and memory tools if it is the root of a memory.
///
/// # Errors
/// If `dir` cannot be opened.
pub fn over(dir: &Path) -> anyhow::Result<Vec<Box<dyn Toolset>>> {
    let open = || DirectoryTree::open(dir).with_context(|| format!("cannot open {}", dir.display()));
    let memory = MemoryTools::of(open()?);
    let home = memory.as_ref().and_then(MemoryTools::home);
    let files = FileTools::Tree { tree: open()?, home: home.unwrap_or_else(|| ".".to_owned()) };
    let mut toolsets: Vec<Box<dyn Toolset>> = vec![Box::new(files)];
    if let Some(memory) = memory {
        toolsets.push(Box::new(memory));
    }
    Ok(toolsets)
}

/// Calls a memory tool on the mounted memory at `dir`.
///
/// # Errors
/// If `dir` is not in a mounted memory, or with the tool's own reason.
pub fn call_memory(dir: &Path, tool: &str, given: Map<String, Value>) -> anyhow::Result<String> {
    let tree = DirectoryTree::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    let memory = MemoryTools::of(tree);
    let memory = memory.with_context(|| {
        let dir = dir.display();
        format!("{dir} is not in a mounted agent-memory (ctxbench mount agent-memory {dir})")
    })?;
    let called = memory.call(tool, given);
    let answer = called.with_context(|| format!("a memory has no tool {tool}"))?;
    answer.map_err(anyhow::Error::msg)
}
