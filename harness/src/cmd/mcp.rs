//! `ctxbench mcp`: serves a backend's tools over MCP on standard input and output.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use arms::backend::{Access, Backend, Description, FILES, Launch, Workspace, WorkspaceConfig};
use backends::registry::Registry;
use clap::Args;
use mcp::{PreparedServer, SqlWorkers, Toolset, over, state};

/// How long a mount may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Serve a backend's tools to an agent over MCP (standard input and output).
///
/// `sql FILE` offers the tool `query`, and with --writable also `execute`. `files DIR` offers file tools over a
/// directory or a mount. `state` offers file tools over files that exist until the server ends. Any other backend keeps
/// its files in DIR, and is mounted on DIR/mnt until the server ends. `s3` with --endpoint serves a memory in a bucket of
/// your own. If the directory is an `agent-memory` or such an `s3`, the tools `remember` and `recall` are offered, too. At
/// the end of its input, the server answers the pending requests, for at most ten minutes, and exits.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench mcp sql mail.db                  # query, with its schema
  ctxbench mcp sql mail.db --writable       # execute, too
  ctxbench mcp files ~/notes                # ls_files, read_file, write_file, search
  ctxbench mcp agent-memory ~/memory        # these, remember and recall
  ctxbench mcp agent-memory ~/memory --agent-id akashi    # with private notes
  ctxbench mcp s3 --endpoint http://127.0.0.1:9000 --agent-id kim ~/cache    # a memory in a bucket
  ctxbench mcp state")]
pub struct Mcp {
    /// `sql`, `files`, or a backend: see `ctxbench list`.
    backend: String,
    /// The database of `sql`, the directory of `files`, or where the backend keeps its files.
    path: Option<PathBuf>,
    /// Let `sql` change rows: adds the tool `execute`.
    #[arg(long)]
    writable: bool,
    /// The agent whose memory `agent-memory` serves: `remember` writes private notes, and those of other agents are hidden. With
    /// `s3`, the agent whose memory in the bucket is served [default: the user's name].
    #[arg(long, value_name = "NAME")]
    agent_id: Option<String>,
    /// The S3 server of a bucket of your own, for `s3`; DIR keeps the cache. Keys come from the environment, as for
    /// `ctxbench mount s3`.
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The bucket of `s3` [default: $CTXBENCH_S3_BUCKET, or ctxbench].
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    bucket: Option<String>,
}

/// Refuses a backend that would not keep an agent's files: on a server that ends with this process, or in memory.
fn refuse_lost_files(backend: &dyn Backend) -> anyhow::Result<()> {
    let Description { name, capabilities, .. } = backend.describe();
    if backend.ends_with_process() {
        bail!(
            "cannot serve {name}: its files would be on an S3 server that ends with this command; \
             serve a bucket of your own: ctxbench mcp s3 --endpoint URL --bucket NAME DIR"
        );
    }
    if !capabilities.persistent {
        bail!(
            "cannot serve {name}: its files are lost when this command ends; use `ctxbench mcp \
             sqlite DIR` to keep them, or `ctxbench mcp state` if they may be lost"
        );
    }
    Ok(())
}

const WITHOUT_AGENTS: &str = "--agent-id is for agent-memory only\n  fix: leave it out, or serve a memory: ctxbench mcp agent-memory DIR --agent-id NAME";

const WITHOUT_BUCKETS: &str =
    "--endpoint is for s3 only\n  fix: leave it out, or serve a bucket: ctxbench mcp s3 --endpoint URL DIR";

/// The memory of one agent. An id that is not a name is refused here, before anything is made or mounted.
fn of_agent(backend: &dyn Backend, agent: &str) -> anyhow::Result<Box<dyn Backend>> {
    s3::config::check_name("agent", agent)?;
    let memory =
        backend.describe().capabilities.answers_requests.then(|| backend.with_option(&format!("--agent-id={agent}")));
    memory.flatten().context(WITHOUT_AGENTS)
}

/// Whether another file system is mounted on `dir`. A mount whose daemon has ended does not count.
fn is_mount_point(dir: &Path) -> bool {
    let device = |dir: &Path| dir.metadata().map(|it| it.dev()).ok();
    device(dir).is_some_and(|mounted| dir.parent().and_then(device) != Some(mounted))
}

/// Why a directory cannot be served that another process has mounted. To unmount it would end that process's memory.
fn served_elsewhere(name: &str, dir: &Path) -> String {
    let (files, dir) = (dir.join(FILES), dir.display());
    let files = files.display();
    format!(
        "cannot open {name} in {dir}: another process has it open, and has mounted it on {files}; only one process at a time can open it\n  \
         fix: end that process first, or give this one another directory; `ctxbench mcp files {files}` offers the tools over \
         the other process's mount, as its agent"
    )
}

/// The tools, and the workspace that is closed after them.
struct OpenTools {
    toolsets: Vec<Box<dyn Toolset>>,
    workspace: Option<Box<dyn Workspace>>,
}

impl Mcp {
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        // Before anything is mounted: a signal from here on ends in order.
        let server = PreparedServer::new().context("starting the server")?;
        let OpenTools { toolsets, workspace } = self.open(registry)?;
        let served = server.serve(toolsets);
        if let Some(workspace) = workspace {
            let name = &self.backend;
            workspace.close().with_context(|| format!("closing {name}"))?;
        }
        served.map(|()| ExitCode::SUCCESS)
    }

    fn open(&self, registry: &Registry) -> anyhow::Result<OpenTools> {
        let name = self.backend.as_str();
        if self.writable && name != "sql" {
            bail!(
                "--writable is for sql only; leave it out (the file tools can write wherever their files are writable)"
            );
        }
        if self.agent_id.is_some() && matches!(name, "sql" | "files" | "state") {
            bail!("{WITHOUT_AGENTS}");
        }
        if self.endpoint.is_some() && name != "s3" {
            bail!("{WITHOUT_BUCKETS}");
        }
        let toolsets: Vec<Box<dyn Toolset>> = match name {
            "sql" => {
                let file = self.path("the database file")?.to_owned();
                let program = std::env::current_exe().context("finding this program")?;
                let tools = SqlWorkers::open(program, file, self.writable);
                let tools = tools.map_err(|problem| {
                    anyhow::anyhow!("{problem}\n  fix: name the file of a database that you may read")
                })?;
                vec![Box::new(tools)]
            }
            "files" => over(self.path("a directory")?)?,
            "state" => {
                if self.path.is_some() {
                    bail!("state has no files on disk; leave out the path");
                }
                vec![state()]
            }
            _ => return self.open_backend(registry, name),
        };
        Ok(OpenTools { toolsets, workspace: None })
    }

    fn open_backend(&self, registry: &Registry, name: &str) -> anyhow::Result<OpenTools> {
        let backend = registry.find(name).map_err(|error| {
            anyhow::anyhow!("{error}; or `sql FILE` for a database, or `files DIR` for a directory")
        })?;
        if backend.access() != Access::Paths {
            bail!("{name} has no files that tools can read; `ctxbench list` shows the other backends");
        }
        let dir = self.path("the directory that holds its files")?;
        let backend = match (&self.endpoint, &self.agent_id) {
            (Some(endpoint), _) => self.on_bucket(backend.as_ref(), endpoint, dir)?,
            (None, agent) => {
                refuse_lost_files(backend.as_ref())?;
                match agent {
                    Some(agent) => of_agent(backend.as_ref(), agent)?,
                    None => backend,
                }
            }
        };
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let config = WorkspaceConfig {
            dir: dir.canonicalize().with_context(|| format!("cannot resolve {}", dir.display()))?,
            program: std::env::current_exe().context("finding this program")?,
            patience: PATIENCE,
            cpu: None,
            allow_other: false,
        };
        // An attempt to open it would remove the other daemon's control socket.
        if is_mount_point(&config.dir.join(FILES)) {
            bail!(served_elsewhere(name, &config.dir));
        }
        let workspace = backend.open(&config).with_context(|| format!("cannot open {name} in {}", dir.display()))?;
        Ok(OpenTools { toolsets: over(workspace.root())?, workspace: Some(workspace) })
    }

    /// The backend on a bucket of the user, with its cache in `dir`.
    fn on_bucket(&self, backend: &dyn Backend, endpoint: &str, dir: &Path) -> anyhow::Result<Box<dyn Backend>> {
        let cache = std::path::absolute(dir).with_context(|| format!("cannot resolve {}", dir.display()))?;
        let cache = cache.join("cache.s3.db");
        let mut arguments = vec!["--endpoint".into(), endpoint.into(), "--cache".into(), cache.into()];
        for (option, value) in [("--bucket", &self.bucket), ("--agent-id", &self.agent_id)] {
            arguments.extend(value.iter().flat_map(|value| [option.into(), value.into()]));
        }
        let launch = Launch { arguments, environment: Vec::new() };
        backend.with_launch(launch).context(WITHOUT_BUCKETS)
    }

    fn path(&self, what: &str) -> anyhow::Result<&Path> {
        let name = &self.backend;
        let path = self.path.as_deref();
        path.with_context(|| format!("{name} needs {what}: ctxbench mcp {name} PATH"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_backend_that_loses_an_agents_files_is_served() {
        let registry = Registry::default();
        let mut served = Vec::new();
        for backend in registry.all() {
            let Description { name, capabilities, .. } = backend.describe();
            match refuse_lost_files(backend.as_ref()) {
                Ok(()) => {
                    assert!(capabilities.persistent, "{name}");
                    assert!(!name.starts_with("s3") || name.contains("bare"), "{name}");
                    served.push(name);
                }
                Err(error) => {
                    let says = ["ctxbench mcp", &name];
                    let text = error.to_string();
                    assert!(says.iter().all(|part| text.contains(part)), "{text}");
                }
            }
        }
        for kept in ["sqlite", "agent-memory"] {
            assert!(served.iter().any(|name| name == kept), "{kept}: {served:?}");
        }
        let refused = registry.find("s3-embedded").unwrap();
        assert!(refuse_lost_files(refused.as_ref()).is_err());
    }
}
