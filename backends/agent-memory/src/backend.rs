//! The `agent-memory` and `agent-memory-meaning` backends.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use arms::backend::{Description, Launch, Unavailable, Versions, WorkspaceConfig};
use arms::mount_command::{MountPoint, OpenedStore, StoreOpenError, StoreOptions};
use arms::mounted::{MountedStore, description};
use arms::promise::Promises;
use clap::Args;
use fuse::store::Store;
use s3::config::check_name;
use sqlite::backend::{DatabaseOptions, PROMISES, STATE, STORE, offline_read};

use crate::{AgentMemory, Embeddings};

/// One SQLite file with notes that can be searched and recalled: see docs/MEMORY.md.
#[derive(Debug, Args)]
pub struct AgentMemoryOptions {
    #[command(flatten)]
    database: DatabaseOptions,
    /// The agent whose notes are private on this mount [default: none, and no note is private].
    #[arg(long, value_name = "NAME")]
    agent_id: Option<String>,
    #[command(flatten)]
    model: EmbeddingOptions,
}

/// The sentence model of a memory.
#[derive(Debug, Args)]
pub struct EmbeddingOptions {
    /// Directory of the sentence model for recall by meaning, or `none` for full text alone [default:
    /// $CTXBENCH_EMBEDDINGS, or the model of `make embeddings` if it is installed].
    #[arg(long, value_name = "DIR")]
    embeddings: Option<OsString>,
}

impl EmbeddingOptions {
    /// The given model, or the installed one.
    pub fn wanted(self) -> Embeddings {
        let off = |reason: String| Embeddings::Off { reason };
        match self.embeddings {
            Some(dir) if dir == "none" => off("--embeddings none".to_owned()),
            // The model is loaded in the background, when a daemon has left the directory it was started from.
            Some(dir) => Embeddings::In(std::path::absolute(&dir).unwrap_or_else(|_| dir.into())),
            None => match embeddings::find() {
                Ok(dir) => Embeddings::In(std::path::absolute(&dir).unwrap_or(dir)),
                Err(missing) => off(missing.to_string()),
            },
        }
    }
}

impl StoreOptions for AgentMemoryOptions {
    const NAME: &'static str = "agent-memory";
    const EXAMPLES: &'static [&'static str] = &[
        "agent-memory ctx    # notes in ctx.db",
        "agent-memory --agent-id akashi --db avm.db /tmp/avm    # then: cat '/tmp/avm/:search?RSI'",
    ];

    fn open(self, at: MountPoint<'_>) -> Result<OpenedStore, StoreOpenError> {
        let agent = self.agent_id.as_deref();
        if let Some(agent) = agent {
            check_name("agent", agent)?;
        }
        let wanted = self.model.wanted();
        let path = self.database.prepare(at)?;
        let mut memory = AgentMemory::open(&path, at.owner, agent)?;
        if let Embeddings::Off { reason } = &wanted {
            tracing::info!("recall uses full text only: {reason}");
        }
        if let Err(reason) = memory.set_embeddings(wanted) {
            memory.discard_new();
            return Err(format!("embedding model: {reason}\n  fix: correct --embeddings, or use `none`").into());
        }
        let read_only = memory.read_only().map(str::to_owned);
        Ok(OpenedStore { read_only, ..OpenedStore::of(memory, path.display().to_string()) })
    }
}

/// A mount of a [`super::AgentMemory`].
pub struct AgentMemoryMount {
    /// Whether an embedding model takes part.
    pub meaning: bool,
}

impl MountedStore for AgentMemoryMount {
    fn describe(&self) -> Description {
        let mut description = if self.meaning {
            description(
                "agent-memory-meaning",
                "agent-memory with a sentence model in the daemon, so that a recall also finds notes by meaning",
                "as sqlite; a search by words finds every completed write, and embeddings follow soon after",
            )
        } else {
            description(
                "agent-memory",
                "sqlite with a search index: every directory answers search and recall requests, which listings do not show",
                "as sqlite; a search finds every completed write",
            )
        };
        description.capabilities.answers_requests = true;
        description
    }

    fn store(&self) -> String {
        AgentMemoryOptions::NAME.to_owned()
    }

    fn launch(&self, config: &WorkspaceConfig, _: Option<&Path>) -> io::Result<Launch> {
        let embeddings =
            if self.meaning { embeddings::find().map_err(io::Error::other)?.into() } else { "none".into() };
        Ok(Launch {
            arguments: vec!["--db".into(), config.dir.join(STORE).into(), "--embeddings".into(), embeddings],
            ..Launch::default()
        })
    }

    fn database(&self) -> Option<&'static str> {
        Some(STORE)
    }

    fn state(&self) -> &'static [&'static str] {
        STATE
    }

    fn promises(&self) -> Promises {
        PROMISES
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        if !self.meaning {
            return Ok(Versions::new());
        }
        let dir = embeddings::find()
            .map_err(|missing| Unavailable { reason: missing.to_string(), fix: "make embeddings".to_owned() })?;
        let dir = dir.display().to_string();
        Ok(Versions::from([("embeddings".to_owned(), dir)]))
    }

    fn background(&self) -> Option<&'static str> {
        self.meaning.then_some("waiting_to_be_embedded")
    }

    fn offline_read(&self, config: &WorkspaceConfig, name: &str) -> Option<(String, Vec<OsString>)> {
        Some(offline_read(config, name))
    }
}
