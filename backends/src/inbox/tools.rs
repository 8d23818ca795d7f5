//! The arms without files: the same SQL tools in the agent's process, and behind an MCP server.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Source;
use super::mcp::Session;
use crate::backend::{
    Access, Backend, Capabilities, Description, DomainTools, KillHandle, Need, Unavailable,
    Versions, Workspace, WorkspaceConfig,
};
use crate::sql_tool::SqlTool;

/// SQL tools in the agent's own process.
pub(crate) struct SqlTools;

/// The same tools behind `ctxbench mcp sql`, as a child process.
pub(crate) struct McpTools;

const CAPABILITIES: Capabilities = Capabilities {
    holds_data: false,
    persistent: true,
    counts_requests: false,
    answers_requests: false,
    guesses_content: false,
    starts_empty: false,
    several_hosts: false,
};

fn versions() -> Versions {
    Versions::from([
        ("ctxbench".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("sqlite".to_owned(), rusqlite::version().to_owned()),
    ])
}

impl Backend for SqlTools {
    fn describe(&self) -> Description {
        Description {
            name: "tools-sql".to_owned(),
            file: None,
            summary: "no files: the tools query and execute over a SQLite database, in the agent's own process".to_owned(),
            durability: "as the database makes a commit".to_owned(),
            capabilities: CAPABILITIES,
            daemons: 0,
            mounts: 0,
            needs: Vec::new(),
            lines_of_code: env!("CTXBENCH_LINES_TOOLS_SQL").parse().unwrap_or(0),
        }
    }

    fn access(&self) -> Access {
        Access::Tools
    }

    fn source(&self, dir: &Path) -> Option<Source> {
        Some(Source::database(dir))
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        Ok(versions())
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        let source = Source::database(&config.dir);
        source.make()?;
        let tools = SqlTool::open(source.path(), true).map_err(io::Error::other)?;
        let definitions = tools.definitions().into_iter();
        let definitions = definitions.map(|own| {
            json!({"name": own.name, "description": own.description, "inputSchema": own.schema()})
        });
        Ok(Box::new(InProcess {
            definitions: Value::Array(definitions.collect()).to_string(),
            tools,
            dir: config.dir.clone(),
        }))
    }

    fn offline_read(&self, _: &WorkspaceConfig, _: &str) -> Option<(String, Vec<OsString>)> {
        None
    }
}

struct InProcess {
    tools: SqlTool,
    definitions: String,
    dir: PathBuf,
}

impl Workspace for InProcess {
    fn root(&self) -> &Path {
        &self.dir
    }

    fn domain_tools(&mut self) -> Option<&mut dyn DomainTools> {
        Some(self)
    }
}

impl DomainTools for InProcess {
    fn definitions(&self) -> &str {
        &self.definitions
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> io::Result<Result<String, String>> {
        let called = self.tools.call(tool, arguments.clone());
        called.ok_or_else(|| io::Error::other(format!("there is no tool {tool}")))
    }
}

impl Backend for McpTools {
    fn describe(&self) -> Description {
        Description {
            name: "tools-mcp".to_owned(),
            file: None,
            summary: "no files: the tools of `ctxbench mcp sql` over a SQLite database, by JSON-RPC over pipes".to_owned(),
            durability: "as the database makes a commit".to_owned(),
            capabilities: CAPABILITIES,
            daemons: 1,
            mounts: 0,
            needs: vec![Need {
                name: "an MCP client".to_owned(),
                why: "the agent reaches the tools through it".to_owned(),
            }],
            lines_of_code: env!("CTXBENCH_LINES_TOOLS_MCP").parse().unwrap_or(0),
        }
    }

    fn access(&self) -> Access {
        Access::Tools
    }

    fn source(&self, dir: &Path) -> Option<Source> {
        Some(Source::database(dir))
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        Ok(versions())
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        let source = Source::database(&config.dir);
        source.make()?;
        let began = Instant::now();
        let mut session = Session::start(
            &config.program,
            &[
                "sql".as_ref(),
                source.path().as_os_str(),
                "--writable".as_ref(),
            ],
        )?;
        let listed = session.request("tools/list", &json!({}))?;
        Ok(Box::new(OverMcp {
            definitions: listed["tools"].to_string(),
            session,
            ready: began.elapsed(),
            dir: config.dir.clone(),
        }))
    }

    fn offline_read(&self, _: &WorkspaceConfig, _: &str) -> Option<(String, Vec<OsString>)> {
        None
    }
}

struct OverMcp {
    session: Session,
    definitions: String,
    ready: Duration,
    dir: PathBuf,
}

impl Workspace for OverMcp {
    fn root(&self) -> &Path {
        &self.dir
    }

    fn domain_tools(&mut self) -> Option<&mut dyn DomainTools> {
        Some(self)
    }

    fn kill_handle(&self) -> KillHandle {
        KillHandle {
            daemon: Some(self.session.process()),
            mount: None,
        }
    }

    fn daemon(&self) -> Option<u32> {
        Some(self.session.process())
    }

    fn time_to_ready(&self) -> Duration {
        self.ready
    }

    fn exit_reason(&mut self) -> Option<String> {
        let status = self.session.ended()?;
        Some(format!("the MCP server ended: {status}"))
    }

    fn kill(&mut self) -> io::Result<bool> {
        self.session.kill()?;
        Ok(true)
    }
}

impl DomainTools for OverMcp {
    fn definitions(&self) -> &str {
        &self.definitions
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> io::Result<Result<String, String>> {
        self.session.call(tool, arguments)
    }
}
