//! The `agent-memory` and `agent-memory-meaning` backends.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::backend::{Description, Launch, Unavailable, Versions, WorkspaceConfig};
use crate::mounted::{MountedStore, description};
use crate::promise::Promises;
use crate::sqlite::backend::{PROMISES, STORE, offline_read};

/// A mount of a [`super::AgentMemory`].
pub(crate) struct AgentMemoryMount {
    /// Whether an embedding model takes part.
    pub(crate) meaning: bool,
}

impl MountedStore for AgentMemoryMount {
    fn describe(&self) -> Description {
        let mut description = match self.meaning {
            false => description(
                "agent-memory",
                "sqlite with an index: every directory answers searches and recalls, and shows none of it in listings",
                "as sqlite; what is found is derived from it, and up to date with every call that has returned",
                env!("CTXBENCH_LINES_AGENT_MEMORY"),
            ),
            true => description(
                "agent-memory-meaning",
                "agent-memory that recalls by meaning, too, with a sentence model in the daemon",
                "as sqlite; what is found by words is up to date with every call that has returned, by meaning soon after",
                env!("CTXBENCH_LINES_AGENT_MEMORY_MEANING"),
            ),
        };
        description.capabilities.answers_requests = true;
        description
    }

    fn store(&self) -> String {
        "agent-memory".to_owned()
    }

    fn gives(&self) -> &'static [&'static str] {
        &["one-file"]
    }

    fn launch(&self, config: &WorkspaceConfig, _: Option<&Path>) -> io::Result<Launch> {
        let embeddings = match self.meaning {
            true => embeddings::find().map_err(io::Error::other)?.into(),
            false => "none".into(),
        };
        Ok(Launch {
            arguments: vec![
                "--db".into(),
                config.dir.join(STORE).into(),
                "--embeddings".into(),
                embeddings,
            ],
            ..Launch::default()
        })
    }

    fn database(&self) -> Option<&'static str> {
        Some(STORE)
    }

    fn promises(&self) -> Promises {
        PROMISES
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        if !self.meaning {
            return Ok(Versions::new());
        }
        let dir = embeddings::find().map_err(|missing| Unavailable {
            reason: missing.to_string(),
            fix: "make embeddings".to_owned(),
        })?;
        let dir = dir.display().to_string();
        Ok(Versions::from([("embeddings".to_owned(), dir)]))
    }

    fn background(&self) -> Option<&'static str> {
        self.meaning.then_some("waiting_to_be_embedded")
    }

    fn offline_read(
        &self,
        config: &WorkspaceConfig,
        name: &str,
    ) -> Option<(String, Vec<OsString>)> {
        Some(offline_read(config, name))
    }
}
