//! `ctxbench mcp`: serves a backend's tools over MCP on standard input and output. Each module is a group of tools.

mod files;
mod memory;
mod sql;
mod toolset;
mod transport;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use backends::backend::{Access, Workspace, WorkspaceConfig};
use backends::registry::Registry;
use backends::sql_tool::SqlTool;
use backends::state::Files;
use clap::Args;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::stdio_pipes;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

use files::FileTools;
use memory::MemoryTools;
use toolset::Toolset;
use transport::Answering;
use tree::Tree;

/// How long a mount may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Serve a backend's tools to an agent over MCP (standard input and output).
///
/// `sql FILE` has `query`, and `execute` with --writable; `files DIR` has file tools over a directory or a mount; `state` has them over files that
/// end with the server. Any other backend keeps its files in DIR, and is mounted on DIR/mnt until the server ends.
/// `remember` and `recall` are there where the directory is an `agent-memory`. At the end of its input, the server answers what it was
/// asked, for at most ten minutes, and ends.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench mcp sql mail.db                  # query, with its schema
  ctxbench mcp sql mail.db --writable       # execute, too
  ctxbench mcp files ~/notes                # ls_files, read_file, write_file, search
  ctxbench mcp agent-memory ~/memory        # these, remember and recall
  ctxbench mcp state")]
pub struct Mcp {
    /// `sql`, `files`, or a backend: see `ctxbench list`.
    backend: String,
    /// The database of `sql`, the directory of `files`, or where the backend keeps its files.
    path: Option<PathBuf>,
    /// Let `sql` change rows: adds the tool `execute`.
    #[arg(long)]
    writable: bool,
}

/// The tools, and what must be closed after them.
struct Opened {
    toolsets: Vec<Box<dyn Toolset>>,
    workspace: Option<Box<dyn Workspace>>,
}

impl Mcp {
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        // Before anything is mounted: a signal from here on ends in order.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the server")?;
        let signals = {
            let _inside = runtime.enter();
            let kinds = [
                SignalKind::interrupt(),
                SignalKind::terminate(),
                SignalKind::hangup(),
            ];
            let signals: std::io::Result<Vec<_>> = kinds.into_iter().map(signal).collect();
            signals.context("setting up signal handling")?
        };
        let Opened {
            toolsets,
            workspace,
        } = self.open(registry)?;
        let served = runtime.block_on(serve(Server::new(toolsets), signals));
        // A read of a terminal cannot be cancelled; the runtime must not wait for it.
        runtime.shutdown_background();
        if let Some(workspace) = workspace {
            let name = &self.backend;
            workspace
                .close()
                .with_context(|| format!("closing {name}"))?;
        }
        served.map(|()| ExitCode::SUCCESS)
    }

    fn open(&self, registry: &Registry) -> anyhow::Result<Opened> {
        let name = self.backend.as_str();
        if self.writable && name != "sql" {
            bail!(
                "--writable is for sql only: the other tools write where their files can be written"
            );
        }
        match name {
            "sql" => {
                let file = self.path("the database file")?;
                let tools = SqlTool::open(file, self.writable).map_err(anyhow::Error::msg)?;
                Ok(Opened {
                    toolsets: vec![Box::new(tools)],
                    workspace: None,
                })
            }
            "files" => Ok(Opened {
                toolsets: over(self.path("a directory")?)?,
                workspace: None,
            }),
            "state" => {
                if self.path.is_some() {
                    bail!("state has no files on disk: leave out the path");
                }
                Ok(Opened {
                    toolsets: vec![Box::new(FileTools::State(Files::default()))],
                    workspace: None,
                })
            }
            _ => self.open_backend(registry, name),
        }
    }

    fn open_backend(&self, registry: &Registry, name: &str) -> anyhow::Result<Opened> {
        let backend = registry.find(name).map_err(|error| {
            anyhow::anyhow!("{error}; `sql FILE` and `files DIR` serve a database and a directory")
        })?;
        if backend.access() != Access::Paths {
            bail!("{name} has no files that tools can read; `ctxbench list` shows others");
        }
        let dir = self.path("the directory that holds its files")?;
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let config = WorkspaceConfig {
            dir: dir
                .canonicalize()
                .with_context(|| format!("cannot resolve {}", dir.display()))?,
            program: std::env::current_exe().context("finding this program")?,
            patience: PATIENCE,
            cpu: None,
            allow_other: false,
        };
        let workspace = backend
            .open(&config)
            .with_context(|| format!("cannot open {name} in {}", dir.display()))?;
        Ok(Opened {
            toolsets: over(workspace.root())?,
            workspace: Some(workspace),
        })
    }

    fn path(&self, what: &str) -> anyhow::Result<&Path> {
        let name = &self.backend;
        let path = self.path.as_deref();
        path.with_context(|| format!("{name} needs {what}: ctxbench mcp {name} PATH"))
    }
}

/// Calls a memory tool on the mounted memory at `dir`.
///
/// # Errors
/// If `dir` is not in a mounted memory, or with the tool's own reason.
pub(super) fn call_memory(dir: &Path, tool: &str, given: JsonObject) -> anyhow::Result<String> {
    let tree = Tree::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    let memory = MemoryTools::of(tree);
    let mut memory = memory.with_context(|| {
        let dir = dir.display();
        format!("{dir} is not in a mounted agent-memory (ctxbench mount agent-memory {dir})")
    })?;
    let called = memory.call(tool, given);
    let answer = called.with_context(|| format!("a memory has no tool {tool}"))?;
    answer.map_err(anyhow::Error::msg)
}

/// File tools over a directory, and memory tools if it is the root of a memory.
fn over(dir: &Path) -> anyhow::Result<Vec<Box<dyn Toolset>>> {
    let open = || Tree::open(dir).with_context(|| format!("cannot open {}", dir.display()));
    let mut toolsets: Vec<Box<dyn Toolset>> = vec![Box::new(FileTools::Tree(open()?))];
    if let Some(memory) = MemoryTools::of(open()?) {
        toolsets.push(Box::new(memory));
    }
    Ok(toolsets)
}

/// Serves until the input ends or a signal comes.
async fn serve(server: Server, signals: Vec<tokio::signal::unix::Signal>) -> anyhow::Result<()> {
    let interrupted = async {
        let waiting = signals.into_iter().map(|mut signal| {
            Box::pin(async move {
                signal.recv().await;
            })
        });
        futures::future::select_all(waiting).await;
    };
    let served = async {
        use rmcp::service::ServerInitializeError;
        let (input, output) = stdio_pipes();
        let transport = Answering::new(AsyncRwTransport::new_server(input, output));
        match server.serve(transport).await {
            Ok(running) => {
                running.waiting().await.context("serving MCP")?;
                Ok(())
            }
            // A client may leave before it has said anything.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(anyhow::Error::new(error).context("starting an MCP session")),
        }
    };
    tokio::select! {
        () = interrupted => Ok(()),
        ended = served => ended,
    }
}

/// Answers one client's requests, one after another.
struct Server {
    tools: Vec<Tool>,
    toolsets: Arc<Mutex<Vec<Box<dyn Toolset>>>>,
}

impl Server {
    fn new(toolsets: Vec<Box<dyn Toolset>>) -> Self {
        let tools = toolsets.iter().flat_map(|set| set.definitions());
        Self {
            tools: tools.collect(),
            toolsets: Arc::new(Mutex::new(toolsets)),
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("ctxbench", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        // In the order of arrival: a client may write and read without waiting between them.
        let mut toolsets = Arc::clone(&self.toolsets).lock_owned().await;
        let name = request.name.clone();
        // A call may take seconds, or hang in a mount: signals, pings and the end of the input must be heard meanwhile.
        let called = tokio::task::spawn_blocking(move || {
            let mut called = toolsets
                .iter_mut()
                .filter_map(|set| set.call(&name, arguments.clone()));
            called.next()
        });
        let called = called.await.map_err(|error| {
            ErrorData::internal_error(format!("{} failed: {error}", request.name), None)
        })?;
        match called {
            Some(Ok(text)) => Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into()),
            Some(Err(text)) => Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into()),
            None => {
                let message = format!("there is no tool {}; tools/list has them", request.name);
                Err(ErrorData::invalid_params(message, None))
            }
        }
    }
}
