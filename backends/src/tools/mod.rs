//! The arms without files: tools that query a database, in the agent's process and over MCP.

mod session;
pub mod sql;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use arms::backend::{
    Access, Backend, Capabilities, Description, DomainTools, KillHandle, Need, Unavailable, Versions, Workspace,
    WorkspaceConfig,
};
use arms::source::Source;
use session::Session;
use sql::SqlTool;

/// SQL tools over a database that other programs write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SqlTools {
    /// In the agent's own process.
    InProcess,
    /// Behind `ctxbench mcp sql`, a child process.
    OverMcp,
}

impl Backend for SqlTools {
    fn describe(&self) -> Description {
        let (name, summary, needs, lines) = match self {
            SqlTools::InProcess => (
                "tools-sql",
                "no files: the tools query and execute over a SQLite database, in the agent's own process",
                Vec::new(),
                env!("CTXBENCH_LINES_TOOLS_SQL"),
            ),
            SqlTools::OverMcp => (
                "tools-mcp",
                "no files: the tools of `ctxbench mcp sql` over a SQLite database, by JSON-RPC over pipes",
                vec![Need {
                    name: "an MCP client".to_owned(),
                    why: "the agent reaches the tools through it".to_owned(),
                }],
                env!("CTXBENCH_LINES_TOOLS_MCP"),
            ),
        };
        Description {
            name: name.to_owned(),
            file: None,
            summary: summary.to_owned(),
            durability: "what the database promises after a commit".to_owned(),
            capabilities: Capabilities {
                holds_data: false,
                persistent: true,
                counts_requests: false,
                answers_requests: false,
                guesses_content: false,
                starts_empty: false,
                several_hosts: false,
                is_practice: false,
                changes_source: false,
            },
            daemons: matches!(self, SqlTools::OverMcp).into(),
            mounts: 0,
            needs,
            lines_of_code: lines.parse().unwrap_or(0),
        }
    }

    fn access(&self) -> Access {
        Access::Tools
    }

    fn source(&self, dir: &Path) -> Option<Source> {
        Some(Source::database(dir))
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        Ok(Versions::from([
            ("ctxbench".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("sqlite".to_owned(), rusqlite::version().to_owned()),
        ]))
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        let source = Source::database(&config.dir);
        source.make()?;
        match self {
            SqlTools::InProcess => Ok(Box::new(InProcess::open(&source, config)?)),
            SqlTools::OverMcp => Ok(Box::new(McpWorkspace::open(&source, config)?)),
        }
    }
}

struct InProcess {
    tools: SqlTool,
    definitions: String,
    dir: PathBuf,
}

impl InProcess {
    fn open(source: &Source, config: &WorkspaceConfig) -> io::Result<Self> {
        let tools = SqlTool::open(source.path(), true).map_err(io::Error::other)?;
        let definitions = tools.definitions().into_iter();
        let definitions = definitions
            .map(|tool| json!({"name": tool.name, "description": tool.description, "inputSchema": tool.schema()}));
        Ok(Self { definitions: Value::Array(definitions.collect()).to_string(), tools, dir: config.dir.clone() })
    }
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

struct McpWorkspace {
    session: Session,
    definitions: String,
    ready: Duration,
    dir: PathBuf,
}

impl McpWorkspace {
    fn open(source: &Source, config: &WorkspaceConfig) -> io::Result<Self> {
        let began = Instant::now();
        let arguments = ["sql".as_ref(), source.path().as_os_str(), "--writable".as_ref()];
        let mut session = Session::start(&config.program, &arguments)?;
        let listed = session.request("tools/list", &json!({}))?;
        Ok(Self { definitions: listed["tools"].to_string(), session, ready: began.elapsed(), dir: config.dir.clone() })
    }
}

impl Workspace for McpWorkspace {
    fn root(&self) -> &Path {
        &self.dir
    }

    fn domain_tools(&mut self) -> Option<&mut dyn DomainTools> {
        Some(self)
    }

    fn kill_handle(&self) -> KillHandle {
        KillHandle { daemon: Some(self.session.process()), mount: None }
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

impl DomainTools for McpWorkspace {
    fn definitions(&self) -> &str {
        &self.definitions
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> io::Result<Result<String, String>> {
        self.session.call(tool, arguments)
    }
}
